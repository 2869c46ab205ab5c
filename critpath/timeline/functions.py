"""Which functions of Python the threads of a recording were in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from critpath.model import (
    I64,
    Bool,
    EventChunk,
    EventClass,
    Events,
    FunctionSpans,
    Kind,
    PathSet,
    State,
)
from critpath.model.details import NO_DETAIL, Detail
from critpath.timeline._functions import find_longest, nest

_ENTRY, _EXIT, _LAST = 0, 1, 2  # technical
_WHAT: Final = {Kind.FUNCTION_ENTRY: _ENTRY, Kind.FUNCTION_EXIT: _EXIT, Kind.EXIT: _LAST}
# What has no detail otherwise.
_NAMED: Final = (State.RUN, State.RUN_USER)


class FunctionEvents:
    """Collects entries and exits of functions, and ends of threads, as they come."""

    def __init__(self) -> None:
        self._what = np.zeros(0, np.int64)
        self._host = np.zeros(0, np.int64)
        self._rows: list[I64] = []
        self._any = False

    def feed(self, chunk: EventChunk | Events, classes: Sequence[EventClass]) -> None:
        """Take note of some events, which come after those before."""
        if len(classes) > len(self._what):
            known = [-1 if "absent" in c.types[:1] else _WHAT.get(c.kind, -1) for c in classes]
            self._what = np.array(known, np.int64)
            self._host = np.array([c.host for c in classes], np.int64)
            self._any |= any(_WHAT.get(c.kind) == _ENTRY for c in classes)
        if not self._any:
            return
        what = self._what[chunk.event_class]
        rows = np.flatnonzero(what >= 0)
        if len(rows):
            at, what = chunk.offset[rows], what[rows]
            # A thread's end says nothing of a function.
            last = what == _LAST
            code = np.where(last, 0, chunk.values[np.where(last, at, at + 1)])
            host = self._host[chunk.event_class[rows]]
            self._rows.append(
                np.stack([chunk.timestamp[rows], host, chunk.values[at], code, what], axis=1)
            )

    def finish(self, end: int) -> FunctionSpans | None:
        """Return the spans of all threads; None where no functions were recorded."""
        if not self._any or not self._rows:
            return None
        rows = np.concatenate(self._rows)
        self._rows.clear()
        return nest_functions(rows, end)


def nest_functions(rows: I64, end: int) -> FunctionSpans:
    """Return spans from rows of time, host, thread, code and what it is, in order of time."""
    # Stable: those of a thread stay in order.
    rows = rows[np.lexsort((rows[:, 2], rows[:, 1]))]
    new = np.ones(len(rows), np.bool_)
    new[1:] = (rows[1:, 1:3] != rows[:-1, 1:3]).any(axis=1)
    starts = np.append(np.flatnonzero(new), len(rows))
    most = int((rows[:, 4] == _ENTRY).sum())
    begin, ends, code, parent, thread = (np.zeros(most, np.int64) for _ in range(5))
    changes = np.zeros((len(rows), 2), np.int64)
    spans = changed = 0
    threads: list[tuple[int, ...]] = []
    for low, high in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        if not (rows[low:high, 4] == _ENTRY).any():
            continue
        mine = slice(spans, None)
        time, function = (np.ascontiguousarray(rows[low:high, column]) for column in (0, 3))
        what = rows[low:high, 4].astype(np.uint8)
        places = begin[mine], ends[mine], code[mine], parent[mine], changes[changed:]
        more, moved = nest(time, function, what, end, spans, *places)
        thread[spans : spans + more] = len(threads)
        threads.append((*rows[low, 1:3].tolist(), changed, changed + moved))
        spans += more
        changed += moved
    of_threads = np.array(threads, np.int64).reshape(-1, 4)
    return FunctionSpans(begin, ends, code, parent, thread, changes[:changed], of_threads)


def find_callers(spans: FunctionSpans, own: Bool) -> I64:
    """Return for each span the function of the project that called it, 0 for none.

    That is the innermost one around it, of another function; what is the project's itself needs
    none.

    Parameters
    ----------
    spans : FunctionSpans
    own : bool [codes]
        Which functions are the project's.
    """
    result = np.zeros(len(spans), np.int64)
    mine = own[np.minimum(spans.code, len(own) - 1)]
    # One level at a time: all that are searching look one call further out.
    searching = np.flatnonzero(~mine)
    at = spans.parent[searching]
    while len(searching):
        there = at >= 0
        searching, at = searching[there], at[there]
        hit = mine[at]
        result[searching[hit]] = spans.code[at[hit]]
        searching, at = searching[~hit], spans.parent[at[~hit]]
    return result


def name_functions(
    paths: PathSet, spans: FunctionSpans, names: Mapping[int, str], project: Sequence[int]
) -> PathSet:
    """Return the paths with the functions that their threads ran as details.

    Parameters
    ----------
    paths : PathSet
        Of one recording.
    spans : FunctionSpans
    names : mapping of int to str
        Of functions, by number.
    project : sequence of int
        Those that are the user's own: what is called by them is said to be.
    """
    segments = paths.paths
    rows = np.flatnonzero(np.isin(segments.state, _NAMED) & (segments.detail == 0))
    if not len(rows) or not len(spans):
        return paths
    own = np.zeros(int(spans.code.max()) + 1, np.bool_)
    own[[number for number in project if number < len(own)]] = True
    pairs, kind = np.unique(
        np.stack([spans.code, find_callers(spans, own)], axis=1), axis=0, return_inverse=True
    )
    kind = kind.reshape(-1).astype(np.int64)
    tally = np.zeros(len(pairs), np.int64)
    found = np.full(len(segments.begin), -1, np.int64)
    for host, tid, first, after in spans.threads.tolist():
        mine = rows[(segments.tid[rows] == tid) & (segments.host[rows] == host)]
        if len(mine):
            winner = np.full(len(mine), -1, np.int64)
            find_longest(
                *(spans.changes, first, after, kind),
                *(segments.begin[mine], segments.end[mine], tally, winner),
            )
            found[mine] = winner
    used = np.unique(found[found >= 0])
    if not len(used):
        return paths
    codes = {detail: code for code, detail in enumerate(segments.details)}
    code_of = np.zeros(len(pairs), np.int32)
    for one in used.tolist():
        function, caller = (names.get(number, "") for number in pairs[one].tolist())
        named = Detail(function=function, caller=caller) if function else NO_DETAIL
        code_of[one] = codes.setdefault(named, len(codes))
    detail = np.where(found >= 0, code_of[found], segments.detail).astype(np.int32)
    return replace(paths, paths=replace(segments, detail=detail, details=tuple(codes)))
