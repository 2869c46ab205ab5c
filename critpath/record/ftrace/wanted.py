"""Which of the kernel's events a profile stands for.

A profile has LTTng's names; the table that converts the trace says what they are called
here, so that a profile cannot mean two things.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from critpath.record.ftrace.events import LTTNG_NAMES, lttng_name
from critpath.record.profiles import ProfileEvents

SWITCH: Final = "sched/sched_switch"
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
class Wanted:
    """What a profile comes to on this kernel.

    Attributes
    ----------
    events : tuple of str
        ``group/event``, sorted.
    missing : tuple of str
        LTTng's names of what this kernel has not.
    """

    events: tuple[str, ...]
    missing: tuple[str, ...]


def wanted(profile: ProfileEvents, available: Collection[str]) -> Wanted:
    """Translate a profile.

    Parameters
    ----------
    profile : ProfileEvents
    available : collection of str
        The kernel's events as ``group/event``.
    """
    kernel = frozenset(available)
    named: dict[str, list[str]] = {}
    for event in sorted(kernel):
        group, _, name = event.partition("/")
        if group not in _APART:
            named.setdefault(lttng_name(group, name), []).append(event)
    found: set[str] = set()
    missing = []
    for rule in profile.tracepoints:
        events = [e for name in _matching(named, rule) for e in named[name]]
        events += [e for e in LTTNG_NAMES.get(rule, ()) if e in kernel]
        found.update(events)
        if not events and not _without_kernel(rule):
            missing.append(rule)
    for rule in profile.syscalls:
        calls = [f"{SYSCALLS}/sys_{side}_{rule}" for side in ("enter", "exit")]
        events = [e for call in calls for e in _matching(kernel, call)]
        found.update(events)
        if not events:
            missing.append(f"system call {rule}")
    if FORK in found:
        found.update(event for event in WITH_FORK if event in kernel)
    return Wanted(tuple(sorted(found)), tuple(missing))


def shortened(events: Iterable[str], available: Iterable[str]) -> list[str]:
    """Return names for ``set_event``, with whole groups as one: each is a system call.

    Parameters
    ----------
    events, available : iterable of str
        What is wanted, and all that there is: ``group/event``.
    """
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


def _matching(names: Iterable[str], rule: str) -> list[str]:
    """Return the names that a rule stands for."""
    if "*" not in rule:
        return [rule] if rule in names else []
    return [name for name in names if fnmatchcase(name, rule)]


def _without_kernel(rule: str) -> bool:
    """Tell whether the converter makes an event itself, or a marker takes its place."""
    return rule.startswith("lttng_") or LTTNG_NAMES.get(rule) == ()
