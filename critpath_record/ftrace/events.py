"""The one table of what ftrace's events and fields are called in an LTTng trace.

Names follow lttng-modules 2.13.  An event that is in no table keeps its own name and
fields: it is converted by its format file alone.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Final

from critpath_record.profiles import ProfileEvents

# LTTng's name to the tracefs events that make it, as "group/event".  The first is the
# event itself; further ones are needed to fill its fields, or are what other kernels
# call it: a recorder enables those that its kernel has.  A "*" stands for any text, the
# same on both sides.  Nothing: the converter makes the event without the kernel.
LTTNG_NAMES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        **{
            name: (f"sched/{name}",)
            for name in (
                *("sched_switch", "sched_waking", "sched_wakeup", "sched_wakeup_new"),
                *("sched_process_exec", "sched_process_exit", "sched_process_free"),
                *("sched_process_wait", "sched_wait_task", "sched_migrate_task"),
                *("sched_pi_setprio", "sched_kthread_stop", "sched_kthread_stop_ret"),
            )
        },
        # LTTng reads the TGIDs of a fork from the tasks; task_newtask has the clone flags
        # that tell a thread from a process.
        "sched_process_fork": ("sched/sched_process_fork", "task/task_newtask"),
        "task_newtask": ("task/task_newtask",),
        "irq_handler_entry": ("irq/irq_handler_entry",),
        "irq_handler_exit": ("irq/irq_handler_exit",),
        "irq_softirq_*": ("irq/softirq_*",),
        "irq_tasklet_*": ("irq/tasklet_*",),
        # Linux 6.15 renamed hrtimer_init.
        "timer_hrtimer_init": ("timer/hrtimer_init", "timer/hrtimer_setup"),
        "timer_hrtimer_*": ("timer/hrtimer_*",),
        "timer_itimer_*": ("timer/itimer_*",),
        "x86_irq_vectors_*": ("irq_vectors/*",),
        "x86_exceptions_*": ("exceptions/*",),
        "power_cpu_idle": ("power/cpu_idle",),
        "power_cpu_frequency": ("power/cpu_frequency",),
        "net_if_receive_skb": ("net/netif_receive_skb",),
        "net_if_rx": ("net/netif_rx",),
        "net_dev_*": ("net/net_dev_*",),
        "skb_kfree": ("skb/kfree_skb",),
        "skb_consume": ("skb/consume_skb",),
        "kmem_mm_*": ("kmem/mm_*",),
        "kmem_kmalloc": ("kmem/kmalloc",),
        "kmem_kfree": ("kmem/kfree",),
        "printk_console": ("printk/console",),
        "cgroup_attach_task": ("cgroup/cgroup_attach_task",),
        # What is written to trace_marker: no event to enable, always in the buffer.
        "print": (),
        "compat_syscall_*": (),
        "syscall_entry_*": ("syscalls/sys_enter_*",),
        "syscall_exit_*": ("syscalls/sys_exit_*",),
        "lttng_statedump_*": (),
    }
)

# Their events keep the group in front: by themselves they would be system calls.
_GROUPS_KEPT_APART: Final = frozenset({"raw_syscalls"})

# New names of fields, by LTTng's name of the event.
_WAKE: Final = {"pid": "tid"}
RENAMED: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "sched_switch": {"prev_pid": "prev_tid", "next_pid": "next_tid"},
        "sched_waking": _WAKE,
        "sched_wakeup": _WAKE,
        "sched_wakeup_new": _WAKE,
        "sched_process_fork": {"parent_pid": "parent_tid", "child_pid": "child_tid"},
        "sched_process_exec": {"pid": "tid", "old_pid": "old_tid"},
        "sched_process_exit": _WAKE,
        "sched_process_free": _WAKE,
        "sched_process_wait": _WAKE,
        "sched_wait_task": _WAKE,
        "sched_migrate_task": _WAKE,
        "sched_pi_setprio": _WAKE,
    }
)

# ftrace writes task_struct.prio, LTTng what user space calls the priority.
MAX_RT_PRIO: Final = 100
PRIORITIES: Final = frozenset({"prio", "prev_prio", "next_prio", "oldprio", "newprio"})

# Fields that LTTng has not: the event's name says the same.
DROPPED: Final = frozenset({"__syscall_nr"})


_SOURCES: Final = {
    source: name
    for name, sources in LTTNG_NAMES.items()
    for source in sources[: 2 if name == "timer_hrtimer_init" else 1]
}
_NAMED: Final = {source: name for source, name in _SOURCES.items() if "*" not in source}
_PATTERNS: Final = {source: name for source, name in _SOURCES.items() if "*" in source}


def lttng_name(group: str, event: str) -> str:
    """Return what LTTng calls an event of tracefs."""
    if group in _GROUPS_KEPT_APART:
        return f"{group}:{event}"
    whole = f"{group}/{event}"
    if whole in _NAMED:
        return _NAMED[whole]
    for source, name in _PATTERNS.items():
        if fnmatchcase(whole, source):
            return name.replace("*", whole[source.index("*") :])
    return event


# The kernel's functions for timers that a sentence can say more of than that they are timers.
_TIMER_FUNCTIONS: Final = (
    *("tcp_delack_timer", "tcp_write_timer", "tcp_keepalive_timer", "reqsk_timer_handler"),
    *("neigh_timer_handler", "process_timeout", "delayed_work_timer_fn"),
    "sched_cfs_period_timer",  # ends a period of a control group's cpu quota
)


def find_timer_functions(place: Path = Path("/proc/kallsyms")) -> str:
    """Return where these functions are, ``address=name,...``: events have the address only."""
    try:
        symbols = place.read_bytes()
    except OSError:
        return ""
    lines = sorted(x for name in _TIMER_FUNCTIONS for x in _find_lines(symbols, name.encode()))
    found = [(address, name) for address, kind, name in lines if kind in b"tT"]
    return ",".join(f"{a.decode()}={n.decode()}" for a, n in found if a.strip(b"0"))


def _find_lines(symbols: bytes, name: bytes) -> Iterator[list[bytes]]:
    """Yield the lines that end with a name: a tenth of what a pattern takes in so many bytes."""
    end = b" " + name + b"\n"
    at = symbols.find(end)
    while at >= 0:
        yield symbols[symbols.rfind(b"\n", 0, at) + 1 : at + len(end)].split()
        at = symbols.find(end, at + 1)


def find_net_devices(
    devices: Path = Path("/sys/class/net"), interrupts: Path = Path("/proc/interrupts")
) -> str:
    """Return whose each network interrupt is, ``interrupt=device,...``: many name a queue only."""
    found = {}
    with contextlib.suppress(OSError):
        names = {}
        for line in interrupts.read_text(encoding="ascii", errors="replace").splitlines():
            number, _, rest = line.strip().partition(":")
            name = re.split(r"\s{2,}", rest)[-1]
            if number.isdecimal() and not re.search("[,=]", name):  # one that is not shared
                names[number] = name
        for device in sorted(devices.iterdir()):
            place = (device / "device").resolve()
            # A virtio device's interrupts are those of the device on the bus that it is.
            place = place.parent if place.name.startswith("virtio") else place
            numbers = [file.name for file in place.glob("msi_irqs/*")]
            if not numbers and (place / "irq").is_file():
                numbers = [(place / "irq").read_text(encoding="ascii").strip()]
            found.update({names[n]: device.name for n in sorted(numbers) if n in names})
    return ",".join(f"{name}={device}" for name, device in found.items())


# The kernel's events that a profile selects


SWITCH: Final = "sched/sched_switch"
SEGMENTS: Final = "tcp_probe"  # tells what arrives at which socket, where packets do not
FORK: Final = "sched/sched_process_fork"
# TGIDs of what was forked; which control group a process is moved to.
WITH_FORK: Final = ("task/task_newtask", "cgroup/cgroup_attach_task")

SYSCALLS: Final = "syscalls"
# Not for "*": a tracer's own records, system calls (which are asked for apart, and by
# name), and what somebody else defined.
_APART: Final = frozenset(
    {"ftrace", SYSCALLS, "raw_syscalls", "kprobes", "uprobes", "eprobes", "synthetic", "fprobes"}
)


@dataclass(frozen=True)
class EventSelection:
    """The kernel's events that a profile selects."""

    events: tuple[str, ...]  # ``group/event``, sorted
    missing: tuple[str, ...]  # LTTng's names of events that this kernel lacks


def select_events(profile: ProfileEvents, available: Collection[str]) -> EventSelection:
    """Translate a profile to the kernel's `available` events (``group/event``)."""
    kernel = frozenset(available)
    named: dict[str, list[str]] = {}
    for event in sorted(kernel):
        group, _, name = event.partition("/")
        if group not in _APART:
            named.setdefault(lttng_name(group, name), []).append(event)
    profile = profile.for_tracer(named)
    found: set[str] = set()
    missing = []
    for rule in profile.tracepoints:
        events = [e for name in _match_rule(named, rule) for e in named[name]]
        events += [e for e in LTTNG_NAMES.get(rule, ()) if e in kernel]
        found.update(events)
        if not events and not _needs_no_event(rule):
            missing.append(rule)
    for rule in profile.syscalls:
        calls = [f"{SYSCALLS}/sys_{side}_{rule}" for side in ("enter", "exit")]
        events = [e for call in calls for e in _match_rule(kernel, call)]
        found.update(events)
        if not events:
            missing.append(f"system call {rule}")
    if FORK in found:
        found.update(event for event in WITH_FORK if event in kernel)
    return EventSelection(tuple(sorted(found)), tuple(missing))


def abbreviate_groups(events: Iterable[str], available: Iterable[str]) -> list[str]:
    """Return names for ``set_event``: one for each group that is wanted whole of `available`."""
    groups: dict[str, set[str]] = {}
    whole: dict[str, set[str]] = {}
    for into, names in ((groups, events), (whole, available)):
        for event in names:
            into.setdefault(event.partition("/")[0], set()).add(event)
    found = []
    for group, members in sorted(groups.items()):
        if len(members) > 1 and members == whole.get(group):
            found.append(f"{group}:*")
        else:
            found += [member.replace("/", ":", 1) for member in sorted(members)]
    return found


def _match_rule(names: Iterable[str], rule: str) -> list[str]:
    """Return the names that match a rule."""
    if "*" not in rule:
        return [rule] if rule in names else []
    return [name for name in names if fnmatchcase(name, rule)]


def _needs_no_event(rule: str) -> bool:
    """Return whether the converter makes an event itself, or a marker takes its place."""
    return rule.startswith("lttng_") or LTTNG_NAMES.get(rule) == ()
