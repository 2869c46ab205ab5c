"""Slices that a program itself names, as executions: marks of atrace and of Perfetto.

``B|PROCESS|NAME`` begins a slice of a thread, ``E|PROCESS`` ends the one that began last there.
``S|PROCESS|NAME|COOKIE`` and ``F|...`` begin and end one that may pass between threads,
``G|PROCESS|TRACK|NAME|COOKIE`` and ``H|PROCESS|TRACK|COOKIE`` one on a track of its own.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable
from typing import Final, NamedTuple

import numpy as np

from critpath.executions.events import Pairs, build_executions
from critpath.executions.fields import Condition, EventPattern, find_occurrences, has_field
from critpath.executions.listed import ListAskedError, ListedRow
from critpath.executions.marker import MESSAGES
from critpath.executions.scheduling import UNKNOWN, Owners, Scheduling, find_owners
from critpath.executions.specification import EVERY_MARKER, Specification
from critpath.model import I64, Bool, Events, Executions
from critpath.units import plural

_MARK: Final = re.compile(
    r"^(?:(?P<what>[BSFGH])\|(?P<process>\d{1,10})\|(?P<rest>[^\n]*)"
    r"|E(?:\|[^\n]*)?)\s*$"
)
_DIGITS: Final = re.compile(r"\d+")


class _Slices(NamedTuple):
    """Slices, in order of their begins, which are positions among the marks."""

    pairs: Pairs
    names: tuple[str, ...]
    open: Counter[str]  # by name, those without an end


def find_named_slices(events: Events, specification: Specification) -> Executions:
    """Find the slices of a name; in one that is within another of that name the other goes on.

    A ``#`` in the name stands for any number: ``frame #`` is every ``frame 17``.

    Raises
    ------
    ListAskedError
        For the name ``?``, with those that there are.
    """
    scheduling = Scheduling(events)
    rows, marks = _find_marks(events)
    owners = find_owners(events, rows, scheduling)
    found = _pair(marks, owners)
    asked, name = specification.slices, specification.label
    if name == EVERY_MARKER:
        raise _list_names(events, rows, owners, found)
    chosen = np.array([name in {one, _family(one)} for one in found.names], np.bool_)
    begin, end = found.pairs.begin[chosen], found.pairs.end[chosen]
    left_open = sum(count for one, count in found.open.items() if name in {one, _family(one)})
    outer = _find_outer(begin, end, owners)
    notes = []
    if inner := int((~outer).sum()):
        notes.append(f"{plural(inner, 'slice')} within one of the same name: a part of it")
    if left_open:
        notes.append(f"{plural(left_open, 'begin')} without an end in the recording")
    if found.pairs.unbegun:
        notes.append(
            f"{plural(found.pairs.unbegun, 'end')} of slices without a begin in the recording"
        )
    if found.pairs.unknown:
        notes.append(f"{plural(found.pairs.unknown, 'mark')} left out: without a known thread")
    if not len(begin):
        notes.append(f"no slice of the recording is called so: slice:{EVERY_MARKER} lists them")
    begin, end = begin[outer], end[outer]
    subject = np.where(owners.tid[end] == UNKNOWN, owners.tid[begin], owners.tid[end])
    made = build_executions(
        events,
        scheduling,
        (rows[begin], rows[end]),
        Owners(owners.host[end], subject, owners.notes),
        [None] * len(begin),
        [name] * len(begin),
        incomplete=left_open,
        notes=tuple(notes),
    )
    keep = made.duration >= asked.least
    if asked.comm:
        keep &= np.array([comm == asked.comm for comm in made.comm], np.bool_)
    return made if keep.all() else made.take(np.flatnonzero(keep))


def _family(name: str) -> str:
    return _DIGITS.sub("#", name)


def _find_marks(events: Events) -> tuple[I64, list[tuple[str, str, str]]]:
    """Return the marks' rows, and of each what it does, its process and the rest."""
    found = [
        find_occurrences(events, EventPattern(name, (Condition(field, expression=_MARK),)))
        for name, field in MESSAGES
        if has_field(events, name, field)
    ]
    rows = np.concatenate([np.zeros(0, np.int64), *(one.rows for one in found)])
    order = np.argsort(rows, kind="stable")
    marks = [
        (what or "E", process or "", rest or "")
        for one in found
        for what, process, rest in zip(
            *(one.texts(field) for field in ("what", "process", "rest")), strict=True
        )
    ]
    return rows[order], [marks[at] for at in order.tolist()]


def _pair(marks: list[tuple[str, str, str]], owners: Owners) -> _Slices:
    """Pair begins and ends: in a thread the last that is open, else by name and cookie."""
    stacks: defaultdict[Hashable, list[tuple[int, str]]] = defaultdict(list)
    apart: dict[Hashable, tuple[int, str]] = {}
    pairs: list[tuple[int, int, str]] = []
    left_open: Counter[str] = Counter()
    unbegun = unknown = 0
    threads = zip(owners.host.tolist(), owners.tid.tolist(), strict=True)
    for at, ((what, process, rest), (host, tid)) in enumerate(zip(marks, threads, strict=True)):
        if what in {"B", "E"} and tid == UNKNOWN:
            unknown += 1
        elif what == "B":
            # What Chrome has behind the name are arguments.
            stacks[host, tid].append((at, rest.partition("|")[0]))
        elif what == "E":
            stack = stacks[host, tid]
            if stack:
                begin, name = stack.pop()
                pairs.append((begin, at, name))
            else:
                unbegun += 1
        else:
            first, _, cookie = rest.rpartition("|")
            track, _, name = first.partition("|")
            name = name if what == "G" else first
            # On a track its name and the cookie tell which, also where the end has the slice's.
            key = host, process, track if what in {"G", "H"} else first, cookie, what in {"G", "H"}
            if what in {"S", "G"}:
                if key in apart:
                    left_open[apart[key][1]] += 1
                apart[key] = at, name
            elif key in apart:
                begin, name = apart.pop(key)
                pairs.append((begin, at, name))
            else:
                unbegun += 1
    for stack in stacks.values():
        left_open.update(name for _, name in stack)
    left_open.update(name for _, name in apart.values())
    pairs.sort()
    columns = np.array([pair[:2] for pair in pairs], np.int64).reshape(-1, 2)
    names = tuple(name for *_, name in pairs)
    paired = Pairs(columns[:, 0], columns[:, 1], 0, sum(left_open.values()), unbegun, unknown)
    return _Slices(paired, names, left_open)


def _find_outer(begin: I64, end: I64, owners: Owners) -> Bool:
    """Return which slices are in no other that began and ends in the same thread."""
    outer = np.ones(len(begin), np.bool_)
    last: dict[tuple[int, int], int] = {}
    for at, (first, until) in enumerate(zip(begin.tolist(), end.tolist(), strict=True)):
        thread = int(owners.host[first]), int(owners.tid[first])
        if owners.tid[first] != owners.tid[until]:
            continue
        if until < last.get(thread, -1):
            outer[at] = False
        else:
            last[thread] = until
    return outer


def _list_names(events: Events, rows: I64, owners: Owners, found: _Slices) -> ListAskedError:
    """Return what ``slice:?`` asks for: names, with ``#`` for numbers, and how many there are."""
    by_name: defaultdict[str, list[int]] = defaultdict(list)
    for at, name in enumerate(found.names):
        by_name[_family(name)].append(at)
    left_open: Counter[str] = Counter()
    for name, count in found.open.items():
        left_open[_family(name)] += count
    scheduling = Scheduling(events)
    listed = []
    for name, mine in sorted(by_name.items(), key=lambda one: (-len(one[1]), one[0])):
        first, last = found.pairs.begin[mine], found.pairs.end[mine]
        lasting = events.timestamp[rows[last]] - events.timestamp[rows[first]]
        threads = Counter(zip(owners.host[last].tolist(), owners.tid[last].tolist(), strict=True))
        (host, tid), most = threads.most_common(1)[0]
        [comm] = scheduling.names(
            *(np.array([host]), np.array([tid]), rows[first[:1]]), forward=False
        )
        listed.append(
            ListedRow(
                *(name, len(mine), left_open[name]),
                *(int(np.quantile(lasting, 0.5)), int(np.quantile(lasting, 0.99))),  # technical
                len(threads),
                f"{comm or tid} ({most:,})",
            )
        )
    kinds = ", ".join(f"{row.name} ({row.count:,})" for row in listed[:_SHOWN])
    return ListAskedError(
        f"the slices that the program names, with how many there are: {kinds or 'none'}",
        "choose one with slice:NAME; critpath path TRACE --execution 'slice:?' has figures",
        listed,
        "named slices",
    )


_SHOWN: Final = 20  # technical: names in one line
