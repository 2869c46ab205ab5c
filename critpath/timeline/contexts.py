"""What an interrupt, a timer or a system call says about the thread it wakes.

One table each; names end up as the qualifier (``detail``) of a segment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from critpath.model import State

# linux/interrupt.h: softirq vectors, and what a thread woken from one was waiting for.
SOFTIRQS: tuple[tuple[str, State], ...] = (
    ("HI", State.WAIT_SOFTIRQ),
    ("TIMER", State.WAIT_TIMER),
    ("NET_TX", State.WAIT_NET),
    ("NET_RX", State.WAIT_NET),
    ("BLOCK", State.WAIT_DISK),
    ("IRQ_POLL", State.WAIT_DISK),
    ("TASKLET", State.WAIT_SOFTIRQ),
    ("SCHED", State.WAIT_SOFTIRQ),
    ("HRTIMER", State.WAIT_TIMER),
    ("RCU", State.WAIT_SOFTIRQ),
)

# Interrupt names, as drivers register them.
_DEVICES: tuple[tuple[str, State], ...] = (
    ("virtio*-req*", State.WAIT_DISK),
    ("nvme*", State.WAIT_DISK),
    ("ahci*", State.WAIT_DISK),
    ("ata_*", State.WAIT_DISK),
    ("libata*", State.WAIT_DISK),
    ("mmc*", State.WAIT_DISK),
    ("sdhci*", State.WAIT_DISK),
    ("megasas*", State.WAIT_DISK),
    ("mpt[23]sas*", State.WAIT_DISK),
    ("xen-blkif*", State.WAIT_DISK),
    ("blkif*", State.WAIT_DISK),
    ("virtio*-input*", State.WAIT_NET),
    ("virtio*-output*", State.WAIT_NET),
    ("eth*", State.WAIT_NET),
    ("en[opsx]*", State.WAIT_NET),
    ("wlan*", State.WAIT_NET),
    ("iwlwifi*", State.WAIT_NET),
    ("mlx*", State.WAIT_NET),
    ("i40e*", State.WAIT_NET),
    ("ixgbe*", State.WAIT_NET),
    ("e1000*", State.WAIT_NET),
    ("ena*", State.WAIT_NET),
)

# What a sleeper whose waker is no thread and no interrupt was waiting for, by the
# system call it slept in.
_SYSCALLS: tuple[tuple[str, State], ...] = (
    ("futex*", State.WAIT_FUTEX),
    ("*nanosleep", State.WAIT_TIMER),
    ("poll", State.WAIT_POLL),
    ("ppoll*", State.WAIT_POLL),
    ("select", State.WAIT_POLL),
    ("_newselect", State.WAIT_POLL),
    ("pselect6*", State.WAIT_POLL),
    ("epoll_*wait*", State.WAIT_POLL),
    ("recv*", State.WAIT_NET),
    ("accept*", State.WAIT_NET),
    ("connect", State.WAIT_NET),
    ("fsync", State.WAIT_DISK),
    ("fdatasync", State.WAIT_DISK),
    ("sync*", State.WAIT_DISK),
)

# Inter-processor interrupts among the x86 vectors; every other vector is a device.
_VECTORS: tuple[tuple[str, State], ...] = (
    ("local_timer", State.WAIT_TIMER),
    ("reschedule", State.WAIT_IPI),
    ("call_function*", State.WAIT_IPI),
    ("irq_work", State.WAIT_IPI),
    ("ipi", State.WAIT_IPI),
)


def _first(table: tuple[tuple[str, State], ...], name: str, default: State) -> State:
    return next((state for pattern, state in table if fnmatchcase(name, pattern)), default)


def device_state(irq_name: str) -> State:
    """Return what a thread woken by that interrupt's handler was waiting for."""
    return _first(_DEVICES, irq_name, State.WAIT_DEVICE)


def syscall_state(name: str) -> State | None:
    """Return what a thread asleep in that system call waits for, None if it is open."""
    state = _first(_SYSCALLS, name, State.UNKNOWN)
    return None if state is State.UNKNOWN else state


def vector_state(name: str) -> State:
    """Return what a thread woken from that x86 interrupt vector was waiting for."""
    return _first(_VECTORS, name, State.WAIT_DEVICE)


def syscall_name(event: str) -> str:
    """Return the system call of an entry event's name (``syscall_entry_read`` -> ``read``)."""
    for prefix in ("compat_syscall_entry_", "syscall_entry_", "compat_sys_", "sys_"):
        if event.startswith(prefix):
            return event.removeprefix(prefix)
    return event


def vector_name(event: str) -> str:
    """Return the vector of an event's name (``x86_irq_vectors_local_timer_entry``)."""
    name = event.removeprefix("x86_irq_vectors_").removeprefix("irq_vectors:")
    return name.removesuffix("_entry").removesuffix("_exit")


# What ``prev_state`` of ``sched_switch`` means, per kernel release: the one table.


@dataclass(frozen=True)
class PrevState:
    """How to read ``prev_state``.

    Attributes
    ----------
    runnable : frozenset of int
        Exact values of a thread that still wants the cpu.
    dead : int
        Any of these bits: the thread will not run again.
    stopped : int
        Any of these bits: stopped by a signal or a debugger.
    """

    runnable: frozenset[int]
    dead: int
    stopped: int = 4 | 8


# (first release it holds for, meaning), newest first.
_TABLE: tuple[tuple[tuple[int, int], PrevState], ...] = (
    ((4, 18), PrevState(frozenset({0, 256, 4096}), dead=16 | 32)),
    ((4, 14), PrevState(frozenset({0, 256, 4096}), dead=16 | 32 | 128)),
    ((4, 8), PrevState(frozenset({0, 4096}), dead=16 | 32 | 64)),
    ((4, 2), PrevState(frozenset({0, 2048}), dead=16 | 32 | 64)),
    ((3, 9), PrevState(frozenset({0, 1024}), dead=16 | 32 | 64)),
    ((0, 0), PrevState(frozenset({0, 512}), dead=16 | 32 | 64)),
)

# Where no trace names its kernel: every marker that is unambiguous when it stands
# alone; 64 and 128 may be death or parking, so there the exit event decides.
UNKNOWN_RELEASE = PrevState(frozenset({0, 256, 1024, 2048, 4096}), dead=16 | 32)


def find_prev_state(release: str) -> PrevState:
    """Return the meaning of ``prev_state`` on a kernel."""
    found = re.match(r"(\d+)\.(\d+)", release)
    if not found:
        return UNKNOWN_RELEASE
    version = (int(found[1]), int(found[2]))
    return next(meaning for since, meaning in _TABLE if version >= since)
