"""What an interrupt, a timer or a system call says about the thread it wakes.

One table each; names end up as the qualifier (``detail``) of a segment.
"""

from __future__ import annotations

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
