"""Finds which process and pid namespace the two sides of every fork belong to.

ftrace's fork event has thread ids only.  ``task_newtask``, which comes just before it,
tells a new thread from a new process; what the forking thread belongs to is known from
the statedump or from its own fork.
"""

from __future__ import annotations

import heapq
import struct
from array import array
from collections.abc import Iterator, Sequence
from typing import Final

from critpath.record.ftrace.ctf_events import FORK_BESIDE, EventClass, Step, programs
from critpath.record.ftrace.ctf_raw import Thread
from critpath.record.ftrace.formats import Format

CLONE_THREAD: Final = 0x00010000
CLONE_NEWPID: Final = 0x20000000

_NEWTASK, _FORK = 0, 1
_GATHERED: Final = struct.Struct("<QIiiQ")  # time, which, parent, child, clone flags
_BESIDE: Final = struct.Struct("<iIiI")
assert _BESIDE.size == FORK_BESIDE  # noqa: S101 - two modules agree on one record


def gathering(
    fork: tuple[Format, EventClass] | None, newtask: tuple[Format, EventClass] | None
) -> tuple[array[int], array[int]]:
    """Return the programs that gather forks and new tasks, see `ctf_events.programs`.

    Parameters
    ----------
    fork, newtask : tuple of (Format, EventClass), or None
        The two events, where they were recorded.
    """
    wanted = []
    if newtask is not None:
        form, of = newtask
        at = {f.name: f for f in form.fields}
        if {"pid", "clone_flags"} <= at.keys() and at["pid"].size == 4:
            flags = at["clone_flags"]
            half = () if flags.size == 8 else ((Step.CONSTANT32, 0, 0, 0),)
            if flags.size in {4, 8}:
                wanted.append(
                    EventClass(
                        *(of.name, _NEWTASK, (), form.number, of.need),
                        steps=(
                            (Step.CONSTANT32, _NEWTASK, 0, 0),
                            (Step.COPY, form.common["common_pid"].offset, 4, 0),
                            (Step.COPY, at["pid"].offset, 4, 0),
                            (Step.COPY, flags.offset, flags.size, 0),
                            *half,
                        ),
                    )
                )
    if fork is not None:
        form, of = fork
        at = {f.name: f for f in form.fields}
        if all(name in at and at[name].size == 4 for name in ("parent_pid", "child_pid")):
            wanted.append(
                EventClass(
                    *(of.name, _FORK, (), form.number, of.need),
                    steps=(
                        (Step.CONSTANT32, _FORK, 0, 0),
                        (Step.COPY, at["parent_pid"].offset, 4, 0),
                        (Step.COPY, at["child_pid"].offset, 4, 0),
                        (Step.CONSTANT32, 0, 0, 0),
                        (Step.CONSTANT32, 0, 0, 0),
                    ),
                )
            )
    return programs(wanted)


def _events(gathered: bytes, cpu: int) -> Iterator[tuple[int, int, int, int, int, int]]:
    for time, which, parent, child, flags in _GATHERED.iter_unpack(gathered):
        yield time, cpu, which, parent, child, flags


def resolve_forks(
    gathered: Sequence[bytes], threads: Sequence[Thread], later: Sequence[Thread]
) -> list[bytearray]:
    """Return what the forks of each cpu have beside their records.

    Parameters
    ----------
    gathered : sequence of bytes
        For each cpu what `gathering`'s programs made, in order of time.
    threads, later : sequence of Thread
        The threads at the start and at the end.

    Returns
    -------
    list of bytearray
        For each cpu and each of its forks the parent's TGID (i32) and namespace (u32),
        then the child's.  A thread that nothing is known of counts as a process of its
        own; a namespace that is not known is 0.
    """
    # What a thread id meant at the end holds for its last fork.
    at_end = {t.tid: t for t in later}
    last_fork: dict[int, int] = {}
    for one in gathered:
        for time, which, _, child, _ in _GATHERED.iter_unpack(one):
            if which == _FORK and child in at_end and time <= at_end[child].time:
                last_fork[child] = max(time, last_fork.get(child, 0))
    group: dict[int, tuple[int, int]] = {
        # The statedump takes a while: threads fork before their turn in it has come.
        **{t.tid: (t.tgid, t.namespace) for t in later if t.tid not in last_fork},
        **{t.tid: (t.tgid, t.namespace) for t in threads},
    }
    dumped = iter(threads)
    waiting = next(dumped, None)
    flags_of: dict[int, int] = {}
    found = [bytearray() for _ in gathered]
    streams = [_events(one, cpu) for cpu, one in enumerate(gathered)]
    for time, cpu, which, parent, child, flags in heapq.merge(*streams, key=lambda e: e[:1]):
        while waiting is not None and waiting.time <= time:
            group[waiting.tid] = waiting.tgid, waiting.namespace
            waiting = next(dumped, None)
        if which == _NEWTASK:
            flags_of[child] = flags
            continue
        known = at_end.get(child) if last_fork.get(child) == time else None
        cloned = flags_of.pop(child, None)
        if cloned is None:
            cloned = CLONE_THREAD if known is not None and known.tgid != child else 0
        mine = group.get(parent)
        if mine is None:
            # A new thread that was seen at the end tells whose it is.
            mine = (known.tgid if known is not None and cloned & CLONE_THREAD else parent), 0
        if cloned & CLONE_THREAD:
            new = mine
        else:
            # Who unshared its pid namespace makes children in another than its own: what
            # was seen at the end goes before what is inherited.
            seen = known.namespace if known is not None else 0
            new = child, seen or (0 if cloned & CLONE_NEWPID else mine[1])
        group[child] = new
        found[cpu] += _BESIDE.pack(mine[0], mine[1], new[0], new[1])
    return found
