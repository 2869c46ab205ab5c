"""What is counted: sets of tracepoints, and the terms that they are called by."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from critpath_record.counts.syscall_names import syscall_names
from critpath_record.ftrace.events import lttng_name
from critpath_record.proc import read_text

EVENT_SETS: Final = ("minimal", "broad", "all")
FREE: Final = "free"  # no events: what the kernel counts anyway
SYSCALL: Final = "raw_syscalls/sys_enter"
SOFTIRQ: Final = "irq/softirq_entry"
INTERRUPT: Final = "irq/irq_handler_entry"

# Who runs, what interrupts, what begins and ends: enough to tell what runs.
_MINIMAL: Final = (
    *("sched/sched_switch", "sched/sched_waking", "sched/sched_wakeup", "sched/sched_wakeup_new"),
    *("sched/sched_migrate_task", "sched/sched_process_fork", "sched/sched_process_exec"),
    *("sched/sched_process_exit", INTERRUPT, SOFTIRQ, "irq/softirq_raise"),
    *("timer/hrtimer_expire_entry", "timer/timer_expire_entry"),
)
# What tells faults, too; memory, RCU and accounting of control groups add nothing to it.
_BROAD: Final = frozenset(
    {
        *("sched", "irq", "timer", "task", "block", "ext4", "jbd2", "writeback", "net", "tcp"),
        *("sock", "workqueue", "exceptions", "io_uring", "signal"),
    }
)
# No events of the kernel's own, and system calls, which one program counts for all.
_NEVER: Final = frozenset(
    {
        *("ftrace", "syscalls", "raw_syscalls", "kprobes", "uprobes", "eprobes", "synthetic"),
        *("fprobes", "bpf_test_run", "initcall"),
    }
)
_SYSCALLS: Final = 512  # numbers that have a place of their own
_COMMON: Final = 424  # from here on a number is the same call on every architecture
_INTERRUPTS: Final = 256
_SOFTIRQS: Final = (
    *("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"),
)
_OTHER: Final = "#other"


@dataclass(frozen=True)
class Counted:
    """A tracepoint that is counted, and its places in a row of counts."""

    event: str  # ``group/event`` of tracefs
    # One; or one for each value of an argument, the last for all larger ones.
    terms: tuple[str, ...]
    argument: int = 0  # which of the tracepoint's arguments that is
    # Number of the kernel's function that it is instead, in BTF; 0 for a tracepoint.
    function: int = 0

    @property
    def tracepoint(self) -> str:
        """The name that the kernel attaches programs by; "" for a function, which has a number."""
        return "" if self.function else self.event.partition("/")[2]


def select_counted(chosen: str, available: Iterable[str]) -> list[Counted]:
    """Return what is counted of the kernel's events: system calls, then a set by its name."""
    kernel = {*available}
    found: list[Counted] = []
    if SYSCALL in kernel:
        found.append(Counted(SYSCALL, _syscall_terms(), 1))
    taken: set[str] = set()
    for event in sorted(kernel):
        group, _, name = event.partition("/")
        if chosen == "minimal":
            wanted = event in _MINIMAL
        else:
            wanted = group not in _NEVER and (chosen == "all" or group in _BROAD)
        if not wanted:
            continue
        if event == SOFTIRQ:
            found.append(Counted(event, _softirq_terms()))
        elif event == INTERRUPT:
            found.append(Counted(event, _interrupt_terms()))
        else:
            term = lttng_name(group, name)
            term = f"{group}:{name}" if term in taken else term
            taken.add(term)
            found.append(Counted(event, (term,)))
    return found


def missing_events(available: Iterable[str]) -> list[str]:
    """Return the events of the least set that this kernel lacks."""
    return sorted({SYSCALL, *_MINIMAL} - {*available})


def _syscall_terms() -> tuple[str, ...]:
    names = syscall_names()
    return (
        *(
            f"sys:{names.get(number) or (f'#{number}' if number >= _COMMON else _OTHER)}"
            for number in range(_SYSCALLS - 1)
        ),
        f"sys:{_OTHER}",
    )


def _softirq_terms() -> tuple[str, ...]:
    return (*(f"softirq:{name}" for name in _SOFTIRQS), f"softirq:{_OTHER}")


def _interrupt_terms(place: Path = Path("/proc/interrupts")) -> tuple[str, ...]:
    """Return what interrupts are called now; their handlers' numbers are for who reads it."""
    names: dict[int, str] = {}
    for line in read_text(place).splitlines():
        number, _, rest = line.strip().partition(":")
        if number.isdecimal():
            names[int(number)] = handler_name(rest)
    terms = (f"irq:{names.get(n) or _OTHER}" for n in range(_INTERRUPTS - 1))
    return (*terms, f"irq:{_OTHER}")


def handler_name(line: str) -> str:
    """Return what the last words of a line of /proc/interrupts call a handler."""
    name = re.split(r"\s{2,}|\d+-(?:edge|fasteoi|level)\s+", line.strip())[-1]
    return re.sub(r"[^ -~]", "?", name.strip())[:100]


def distinct_terms(counted: Iterable[Counted]) -> tuple[list[str], list[int]]:
    """Return terms, each once, and for every place in a row the term that it counts for."""
    places: dict[str, int] = {}
    of = [places.setdefault(term, len(places)) for each in counted for term in each.terms]
    return [*places], of
