"""What an event is called in a signature: a name that means the same on another kernel."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import numpy as np

from critpath.model import Counts
from critpath.units import safe_text

SYSCALL, INTERRUPT, SOFTIRQ = "sys:", "irq:", "softirq:"
_ENTRY: Final = re.compile(
    r"(?:compat_)?(?:syscall_entry_|sys_(?!exit_)|syscalls:sys_enter_)(\w+)|sys_exit_group|raw_.*"
)
_EXIT: Final = re.compile(r"(?:compat_)?(?:syscall_exit_|exit_syscall|syscalls:sys_exit_)")
_PERF: Final = re.compile(r"[a-z0-9_]+:([a-z0-9_]+)")
# Softirqs by number, the same on every kernel since 2.6.
SOFTIRQS: Final = (
    *("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"),
)
OTHER: Final = "#other"

# What an older or newer kernel, or another tracer, calls the same: one line each.
ALIASES: Final[Mapping[str, str]] = {
    # The functions of system calls, as tracers name them; the calls, as man pages do.
    "sys:newstat": "sys:stat",
    "sys:newfstat": "sys:fstat",
    "sys:newlstat": "sys:lstat",
    "sys:newuname": "sys:uname",
    "sys:sendfile64": "sys:sendfile",
    "sys:umount": "sys:umount2",
    "sys:sysctl": "sys:_sysctl",
    "sys:mmap_pgoff": "sys:mmap",
    "sys:clock_nanosleep_time64": "sys:clock_nanosleep",
    # Names that changed.
    "hrtimer_setup": "timer_hrtimer_init",
    "timer_hrtimer_setup": "timer_hrtimer_init",
    "softirq_raise": "irq_softirq_raise",
    "softirq_exit": "irq_softirq_exit",
    "hrtimer_expire_entry": "timer_hrtimer_expire_entry",
    "hrtimer_expire_exit": "timer_hrtimer_expire_exit",
}


def event_term(name: str, domain: str = "kernel") -> str:
    """Return the term of an event's name as a tracer spells it.

    Parameters
    ----------
    name : str
    domain : str
        As of `critpath.model.EventClass`.

    Returns
    -------
    str
        `INTERRUPT` or `SOFTIRQ` where the term needs a field of the event besides; "" for what
        no kernel counts: exits of system calls, statedumps, events of programs.
    """
    if domain != "kernel" or name.startswith(("lttng_", "critpath_", "raw_syscalls")):
        return ""
    if _EXIT.match(name) or name in {"print", "marker"}:
        return ""
    entry = _ENTRY.fullmatch(name)
    if entry:
        return normal_term(f"{SYSCALL}{entry[1]}") if entry[1] else ""
    perf = _PERF.fullmatch(name)
    bare = perf[1] if perf else name
    if bare == "irq_handler_entry":
        return INTERRUPT
    if bare in {"irq_softirq_entry", "softirq_entry"}:
        return SOFTIRQ
    return normal_term(bare)


def normal_term(term: str) -> str:
    """Return a term by its one name, without the numbers of instances."""
    if term.startswith(INTERRUPT):
        return INTERRUPT + (re.sub(r"\d+", "#", term.removeprefix(INTERRUPT)) or OTHER)
    return ALIASES.get(term, term)


def qualified_term(kind: str, qualifier: str | int) -> str:
    """Return the term of an interrupt by its handler's name, or of a softirq by its number."""
    if kind == SOFTIRQ:
        known = isinstance(qualifier, int) and 0 <= qualifier < len(SOFTIRQS)
        return SOFTIRQ + (SOFTIRQS[int(qualifier)] if known else OTHER)
    return normal_term(f"{INTERRUPT}{safe_text(str(qualifier))[:200]}")


def normalised(counts: Counts) -> Counts:
    """Return counts by terms' one names: those of a file may have instances' numbers."""
    names = [normal_term(term) for term in counts.vocabulary]
    vocabulary = sorted({*names})
    if tuple(vocabulary) == counts.vocabulary:
        return counts
    rank = {name: at for at, name in enumerate(vocabulary)}
    code = np.array([rank[name] for name in names], np.int64)
    key = counts.document.astype(np.int64) * len(vocabulary) + code[counts.term]
    distinct, place = np.unique(key, return_inverse=True)
    total = np.zeros(len(distinct), np.int64)
    np.add.at(total, place, counts.count)
    return Counts(
        vocabulary=tuple(vocabulary),
        scopes=counts.scopes,
        begin=counts.begin,
        end=counts.end,
        scope=counts.scope,
        lossy=counts.lossy,
        document=(distinct // len(vocabulary)).astype(np.int32),
        term=(distinct % len(vocabulary)).astype(np.int32),
        count=total,
        interval=counts.interval,
        source=counts.source,
        executions=counts.executions,
    )
