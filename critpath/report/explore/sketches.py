"""Sketches of executions: who worked for one, when, and what they waited for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import numpy as np

from critpath.model import Executions, PathSet, State, role_name
from critpath.model.exploration import FactTable, Question
from critpath.model.vectors import split_host

MOST: Final = 200  # executions whose sketch is in a page
MOST_LANES: Final = 8
MOST_STRETCHES: Final = 400  # of one sketch
MOST_LINKS: Final = 40
_LED: Final = 11  # of `DOINGS`: a slice that this one caused
# What a thread does, in the order of the page's textures.
DOINGS: Final = (
    *("running", "cpu", "waiting", "network", "timer", "disk", "throttled", "interrupts"),
    *("unknown", "queued", "shared", "led"),
)
_DOING_OF: Final = {
    **dict.fromkeys((State.RUN, State.RUN_USER, State.RUN_SYSCALL, State.RECLAIM), 0),
    State.WAIT_CPU: 1,
    **dict.fromkeys((State.WAIT_NET, State.NET_TRANSIT, State.WAIT_POLL), 3),
    State.WAIT_TIMER: 4,
    **dict.fromkeys((State.WAIT_DISK, State.WAIT_DEVICE, State.WAIT_SOFTIRQ), 5),
    State.WAIT_QUOTA: 6,
    **dict.fromkeys((State.IRQ, State.SOFTIRQ, State.WAIT_IPI), 7),
    **dict.fromkeys((State.UNKNOWN, State.WAIT_UNEXPLAINED), 8),
    State.QUEUED: 9,
    State.SHARED: 10,
}
_DOINGS: Final = np.array([_DOING_OF.get(state, 2) for state in State], np.int64)


@dataclass(frozen=True)
class Sketch:
    """One execution's threads, in order of first use.

    Attributes
    ----------
    lanes : list of [name, tid, colour]
    stretches : list of [lane, doing, begin, length] or [lane, doing, begin, length, beneath]
        Times in ns from the execution's begin; ``beneath`` is what the thread did meanwhile, of
        a request that was queued or shared a loop.
    left_out : int
        Threads that are not among the lanes.
    links : list of [lane, lane, time]
        From where to where it went on, and what caused what.
    """

    lanes: list[list[Any]]
    stretches: list[list[int]]
    left_out: int
    links: list[list[int]] = field(default_factory=list)


def choose_sketched(table: FactTable, question: Question) -> list[int]:
    """Return the executions that matter most: typical ones, the slowest, and some of everything."""
    latency = table.end - table.begin
    chosen: dict[int, None] = {}
    for members in (question.chosen, question.within & ~question.chosen):
        rows = np.flatnonzero(members)
        if len(rows):
            ordered = rows[np.argsort(latency[rows], kind="stable")]
            chosen[int(ordered[len(ordered) // 2])] = None
    selected = np.flatnonzero(question.chosen)
    slowest = selected[np.argsort(-latency[selected], kind="stable")]
    for row in slowest[: MOST // 2].tolist():
        chosen[row] = None
    everything = np.argsort(latency, kind="stable")
    spread = np.linspace(0, max(len(everything) - 1, 0), MOST).round().astype(np.int64)
    for row in everything[spread].tolist() if len(everything) else ():
        chosen[row] = None
        if len(chosen) >= MOST:
            break
    return list(chosen)[:MOST]


def draw_sketches(
    paths: PathSet, rows: Iterable[int], colours: dict[str, int]
) -> dict[int, Sketch]:
    """Return the sketches of some executions; ``colours`` is filled with names as they come."""
    rows = list(rows)
    some = paths.take(np.array(rows, np.int64))
    critical = some.paths.resident()
    slices = _Slices(paths)
    return {
        row: _draw(critical, at, some.executions, slices.near(row), colours)
        for at, row in enumerate(rows)
    }


class _Slices:
    """Which slice caused which, where that is known."""

    def __init__(self, paths: PathSet) -> None:
        self._of, self._caused = paths.executions, dict[int, list[int]]()
        each = paths.session.tolist()
        row_of = dict(zip(zip(each, self._of.id, strict=True), count(), strict=False))
        self._cause = [
            row_of.get((session, name), -1) if name else -1
            for session, name in zip(each, self._of.causes, strict=False)
        ]
        for row, cause in enumerate(self._cause):
            if cause >= 0:
                self._caused.setdefault(cause, []).append(row)

    def near(self, row: int) -> list[tuple[bool, str, int, int, int]]:
        """Return what caused a slice, and what it caused: name, thread, begin and end of each."""
        cause = self._cause[row : row + 1]
        near = [(False, one) for one in cause if one >= 0]
        near += [(True, one) for one in self._caused.get(row, ())]
        of = self._of
        return [
            (led, of.comm[one], int(of.tid[one]), int(of.begin[one]), int(of.end[one]))
            for led, one in near
        ]


def _draw(
    critical: Any,
    at: int,
    executions: Executions,
    slices: Sequence[tuple[bool, str, int, int, int]],
    colours: dict[str, int],
) -> Sketch:
    tid, comm = int(executions.tid[at]), executions.comm[at]
    part = slice(int(critical.start[at]), int(critical.start[at + 1]))
    begin, end = critical.begin[part], critical.end[part]
    if not len(begin):
        return Sketch([[comm, tid, _colour(comm, colours)]], [], 0)
    origin, last = int(begin[0]), int(end[-1])
    doing = _DOINGS[critical.state[part]]
    beneath = np.where(critical.beneath[part] == State.UNKNOWN, -1, _DOINGS[critical.beneath[part]])
    names = [critical.strings[code] for code in critical.comm[part].tolist()]
    lanes = _Lanes(colours)
    lanes.of(tid, comm)
    raw: list[list[int]] = []
    links: list[list[int]] = []
    before = 0
    for thread, name, what, first, length, under in zip(
        *(critical.tid[part].tolist(), names, doing.tolist(), begin.tolist()),
        *((end - begin).tolist(), beneath.tolist()),
        strict=True,
    ):
        lane = lanes.of(thread, name)
        if lane < 0:
            continue
        raw.append([lane, what, first - origin, length, *([under] if under >= 0 else [])])
        if lane != before and first > origin:
            links.append([before, lane, first - origin])
        before = lane
    own = _filled(raw, last - origin)
    for led, name, thread, first, until in slices:
        lane = lanes.of(thread, name) if first < last else -1
        if lane > 0 and led:
            own.append([lane, _LED, first - origin, min(until, last) - first])
            links.append([0, lane, first - origin])
        elif lane > 0:
            links.append([lane, 0, 0])
    place = lanes.group()
    own = [[place[one[0]], *one[1:]] for one in own]
    links = [[place[one[0]], place[one[1]], one[2]] for one in dict.fromkeys(map(tuple, links))]
    return Sketch(lanes.shown, _joined(own), len(lanes.left_out), links[:MOST_LINKS])


class _Lanes:
    """A lane for each thread, in order of first use."""

    def __init__(self, colours: dict[str, int]) -> None:
        self.shown: list[list[Any]] = []
        self.left_out: set[int] = set()
        self._of: dict[tuple[int, str], int] = {}
        self._colours = colours

    def of(self, thread: int, name: str) -> int:
        """Return a thread's lane, -1 where there are too many."""
        key = thread, split_host(name)[1]  # two hosts may have threads of one number
        if key in self._of:
            return self._of[key]
        if len(self.shown) >= MOST_LANES:
            self.left_out.add(thread)
            return -1
        self.shown.append([name or str(thread), thread, _colour(name, self._colours)])
        return self._of.setdefault(key, len(self._of))

    def group(self) -> list[int]:
        """Put the threads of each host beneath each other; return the new place of every lane."""
        hosts = [split_host(name)[1] for name, *_ in self.shown]
        order = sorted(range(len(hosts)), key=lambda lane: (hosts.index(hosts[lane]), lane))
        self.shown = [self.shown[lane] for lane in order]
        return [order.index(lane) for lane in range(len(order))]


def colours_of(paths: PathSet, table: FactTable) -> dict[str, int]:
    """Return the colours of threads by their names: as the other views have them by label."""
    colours: dict[str, int] = {}
    labels, first = np.unique(table.label, return_index=True)
    for label, row in zip(labels.tolist(), first.tolist(), strict=True):
        colours.setdefault(role_name(paths.executions.comm[row]), label)
    return colours


def _colour(name: str, colours: dict[str, int]) -> int:
    role = role_name(name)
    if role not in colours:  # one that nobody has, while there are any
        used = set(colours.values())
        colours[role] = next((n for n in range(7) if n not in used), len(colours))
    return colours[role] % 7


def _filled(stretches: list[list[int]], length: int) -> list[list[int]]:
    """Say that the execution's own thread waits while its path is on another."""
    result, now = [], 0
    for stretch in sorted((one for one in stretches if one[0] == 0), key=lambda one: one[2]):
        if stretch[2] > now:
            result.append([0, 2, now, stretch[2] - now])
        result.append(stretch)
        now = max(now, stretch[2] + stretch[3])
    if now < length:
        result.append([0, 2, now, length - now])
    return result + [one for one in stretches if one[0]]


def _joined(stretches: list[list[int]]) -> list[list[int]]:
    """Join neighbours that look alike; where there are too many, leave out the shortest."""
    result: list[list[int]] = []
    for stretch in sorted(stretches, key=lambda one: (one[0], one[2])):
        last = result[-1] if result else None
        alike = last is not None and (last[:2], last[4:]) == (stretch[:2], stretch[4:])
        if last and alike and last[2] + last[3] == stretch[2]:
            last[3] += stretch[3]
        else:
            result.append(list(stretch))
    if len(result) > MOST_STRETCHES:
        result.sort(key=lambda one: -one[3])
        result = sorted(result[:MOST_STRETCHES], key=lambda one: (one[0], one[2]))
    return result


def typical(table: FactTable, members: Any, sketched: Iterable[int]) -> int | None:
    """Return the execution of usual duration that has a sketch, None where none has."""
    latency = table.end - table.begin
    rows = np.flatnonzero(members)
    if not len(rows):
        return None
    ordered = rows[np.argsort(latency[rows], kind="stable")]
    has = set(sketched)
    middle = len(ordered) // 2
    near = sorted(range(len(ordered)), key=lambda place: abs(place - middle))
    return next((int(ordered[place]) for place in near if int(ordered[place]) in has), None)
