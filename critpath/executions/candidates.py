"""Specifications that fit a trace for which the user gave none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from critpath.executions.pattern import escape

PAIRS: Final = (
    ("begin", ("end",)),
    ("entry", ("exit",)),
    ("start", ("end", "stop", "done")),
)

# perf and ftrace spell the kernel's own events SUBSYSTEM:EVENT, as user space does.
KERNEL: Final = frozenset(
    {
        *("block", "bridge", "cgroup", "clk", "compaction", "cpuhp", "drm", "exceptions", "ext4"),
        *("fib", "filelock", "filemap", "ftrace", "gpio", "huge_memory", "i2c", "io_uring"),
        *("iomap", "iommu", "irq", "irq_matrix", "irq_vectors", "jbd2", "kmem", "kvm", "kvmmmu"),
        *("libata", "mce", "migrate", "mmap", "module", "msr", "napi", "neigh", "net", "nvme"),
        *("oom", "page_isolation", "percpu", "power", "printk", "probe", "qdisc", "random", "ras"),
        *("raw_syscalls", "rcu", "regmap", "rpm", "rseq", "sched", "scsi", "signal", "skb"),
        *("sock", "spi", "swiotlb", "sync_trace", "syscalls", "task", "tcp", "thermal"),
        *("timer", "tlb", "udp", "vmscan", "vsyscall", "wbt", "workqueue", "writeback", "x86_fpu"),
        *("xdp", "xen", "xfs", "btrfs"),
    }
)


def candidates(names: Sequence[str]) -> list[str]:
    """Return ``events:`` specifications for pairs of user-space events.

    Pairs are ``X_begin``/``X_end``, ``X_entry``/``X_exit`` and ``X_start`` with
    ``X_end``, ``X_stop`` or ``X_done`` of one provider (``_``, ``:``, ``.`` or
    ``-`` before the word).  LTTng's own user-space providers are left out.

    Parameters
    ----------
    names : sequence of str
        Names of the trace's event classes.

    Returns
    -------
    list of str
        Sorted; the caller may use one if it is the only one, and must say so.
    """
    present = {name for name in names if _from_user_space(name)}
    found = []
    for name in sorted(present):
        for first, lasts in PAIRS:
            stem = name.removesuffix(first)
            if stem == name or not stem or stem[-1] not in "_:.-":
                continue
            found += [
                f"events:{escape(name)},{escape(stem + last)}"
                for last in lasts
                if stem + last in present
            ]
    return found


def _from_user_space(name: str) -> bool:
    provider, colon, _ = name.partition(":")
    return bool(colon) and provider not in KERNEL and not provider.startswith("lttng_ust")
