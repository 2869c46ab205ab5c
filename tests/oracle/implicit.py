"""Slices without a network, a row at a time: the plain twin of ``critpath/requests/implicit.py``.

No numpy: what is known of each thread is a small object, and every rule of the docs is a branch.
Rows are ``(time, act, thread, value)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from critpath.model.requests import Act

ALL = 0  # what slices of `wake` are about


@dataclass
class Slice:
    """A slice, and the thread and time that it was begun from."""

    thread: int
    begin: int
    by: int
    sent: int
    end: int | None = None
    parent: int = -1


@dataclass
class Thread:
    """A thread as far as it was seen."""

    created: bool = False
    gone: bool = False
    asleep: bool = False
    since: int | None = None  # when it fell asleep, if that was seen
    woken: bool = False  # since it fell asleep
    seen: bool = False
    early: tuple[int, int] | None = None  # the wake just before it fell asleep
    last: Act | None = None
    last_wake: tuple[int, int] | None = None
    open: dict[int, Slice] = field(default_factory=dict)


def find_slices(
    rows: Iterable[tuple[int, Act, int, int]],
    process: Mapping[int, int],
    marker: str,
    about: Mapping[tuple[int, int], int] | None = None,
) -> list[Slice]:
    """Return the slices of `wake`, `fork`, or of sleeps for the same thing.

    `about` says of a sleep, by its thread and when it began, what it was for; sleeps that it does
    not know are for nothing that counts.
    """
    threads: dict[int, Thread] = {}
    made: list[Slice] = []

    def begin(thread: int, what: int, time: int, by: int, sent: int) -> None:
        one = Slice(thread, time, by, sent)
        threads[thread].open[what] = one
        made.append(one)

    def close(of: Thread, what: int, time: int) -> None:
        one = of.open.pop(what, None)
        if one is not None:
            one.end = time

    def end_sleep(tid: int, of: Thread, time: int, by: int, sent: int) -> None:
        """Somebody ended a sleep (by: -1 an interrupt)."""
        own = by > 0 and process.get(by, by) == process.get(tid, tid)
        if of.gone:
            return
        if marker == "wake" and by > 0:
            if own:
                if of.since is not None:
                    close(of, ALL, of.since)
                of.open.pop(ALL, None)
                begin(tid, ALL, time, by, sent)
            elif ALL not in of.open and not of.created:
                begin(tid, ALL, time, by, sent)
        if about is not None and of.since is not None:
            what = about.get((tid, of.since))
            if what is not None:
                close(of, what, of.since)
                if by > 0:
                    begin(tid, what, time, by, sent)

    for time, act, thread, value in rows:
        tid = value if act in {Act.WAKE, Act.CREATE} else thread
        if tid <= 0:
            continue
        if act == Act.CREATE:
            threads[tid] = Thread(created=True, seen=True)
            if marker in {"wake", "fork"}:
                begin(tid, ALL, time, thread, time)
            continue
        of = threads.setdefault(tid, Thread())
        if act == Act.WAKE:
            if not of.seen:
                end_sleep(tid, of, time, thread, time)  # asleep since before the recording
            elif of.asleep and not of.woken and of.last == Act.SLEEP:
                of.woken = True
                end_sleep(tid, of, time, thread, time)
            of.last_wake = (time, thread)
        elif act == Act.SLEEP:
            of.early = of.last_wake if of.last == Act.WAKE else None
            of.asleep, of.woken, of.since = True, False, time
        elif act == Act.RUN:
            if of.last == Act.SLEEP and of.early is not None:
                sent, by = of.early
                end_sleep(tid, of, max(sent, of.since or 0), by, sent)
            of.asleep = False
        elif act == Act.EXIT and not of.gone:
            of.gone = True
            for what in list(of.open):
                close(of, what, time)
        of.seen, of.last = True, act
    return made


def order(made: Sequence[Slice]) -> list[Slice]:
    """Return the slices that have an end and last, with their parents, in order of begin."""
    far = max((s.end or s.begin for s in made), default=0) + 1
    ordered = sorted(made, key=lambda s: (s.begin, s.thread, s.end if s.end is not None else far))
    parents = []
    for row, one in enumerate(ordered):
        found = -1
        for place, other in enumerate(ordered[:row]):
            inside = other.begin <= one.sent and (other.end is None or other.end >= one.sent)
            if other.thread == one.by and inside:
                found = place
        parents.append(found)
    kept = [i for i, s in enumerate(ordered) if s.end is not None and s.end > s.begin]
    place = {row: i for i, row in enumerate(kept)}
    result = []
    for row in kept:
        ordered[row].parent = place.get(parents[row], -1)
        result.append(ordered[row])
    return result
