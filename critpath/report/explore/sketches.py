"""Sketches of executions: who worked for one, when, and what they waited for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct, field

from critpath.model import CriticalPaths, Executions, PathSet, State, role_name
from critpath.model.exploration import FactTable, Question
from critpath.model.vectors import split_host
from critpath.report.document.pictures import moves_of
from critpath.report.html.lanes import SEEN

MOST: Final = 200  # executions whose sketch is in a page
MOST_LANES: Final = 8
MOST_STRETCHES: Final = 400  # of one sketch
MOST_LINKS: Final = 40
FAR: Final = 5  # columns of a link from host to host
SURE: Final = 1000  # per mille
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
    **dict.fromkeys((State.UNKNOWN, State.WAIT_UNEXPLAINED, State.NOT_RECORDED), 8),
    **dict.fromkeys((State.QUEUED, State.WAIT_POOL, State.WAIT_QUEUE), 9),
    State.SHARED: 10,
}
_DOINGS: Final = np.array([_DOING_OF.get(state, 2) for state in State], np.int64)


class Sketch(Struct, frozen=True):
    """One execution's threads, in order of first use; of several hosts, those of each together.

    Attributes
    ----------
    lanes : list of [name, tid, colour] or [name, tid, colour, host]
        ``name`` without the host, where there is one.
    stretches : list of [lane, doing, begin, length] or [lane, doing, begin, length, beneath]
        Times in ns from the execution's begin; ``beneath`` is what the thread did meanwhile, of
        a request that was queued or shared a loop.
    left_out : int
        Threads that are not among the lanes.
    links : list of [lane, lane, time], [lane, lane, time, sure] or [lane, lane, time, sure, bound]
        From where to where it went on, and what caused what: how probable it is that this work
        was for this execution (per mille), and how wrong the time may be (ns, -1 not known).
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
    several = bool((critical.host > 0).any())
    return {
        row: _draw(critical, at, some.executions, slices.near(row), _Lanes(colours, several))
        for at, row in enumerate(rows)
    }


class _SketchedThread(NamedTuple):
    """Who a lane is of: two hosts may have threads of one number."""

    host: int
    tid: int


class _Near(NamedTuple):
    """A slice that caused this one, or that it led to."""

    led: bool
    thread: _SketchedThread
    name: str
    begin: int
    end: int


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

    def near(self, row: int) -> list[_Near]:
        """Return what caused a slice, and what it caused."""
        cause = self._cause[row : row + 1]
        near = [(False, one) for one in cause if one >= 0]
        near += [(True, one) for one in self._caused.get(row, ())]
        return [_Near(led, *_slice_of(self._of, one)) for led, one in near]


def _slice_of(of: Executions, row: int) -> tuple[_SketchedThread, str, int, int]:
    thread = _SketchedThread(int(of.host[row]), int(of.tid[row]))
    return thread, of.comm[row], int(of.begin[row]), int(of.end[row])


def _draw(
    critical: CriticalPaths, at: int, executions: Executions, slices: Sequence[_Near], lanes: _Lanes
) -> Sketch:
    own, comm, *_ = _slice_of(executions, at)
    part = slice(int(critical.start[at]), int(critical.start[at + 1]))
    begin, end = critical.begin[part], critical.end[part]
    length = end - begin
    threads = list(map(_SketchedThread, critical.host[part].tolist(), critical.tid[part].tolist()))
    lanes.choose(own, threads, length.tolist())
    lanes.of(own, comm)
    if not len(begin):
        return Sketch(lanes.group()[0], [], 0)
    origin, last = int(begin[0]), int(end[-1])
    doing = _DOINGS[critical.state[part]]
    beneath = np.where(critical.beneath[part] == State.UNKNOWN, -1, _DOINGS[critical.beneath[part]])
    names = [critical.strings[code] for code in critical.comm[part].tolist()]
    moves = moves_of(critical, part)
    sure = dict(zip(moves.rows.tolist(), moves.mille.tolist(), strict=True))
    bounds = dict(
        zip(moves.rows[moves.crosses].tolist(), moves.bound[moves.crosses].tolist(), strict=True)
    )
    raw: list[list[int]] = []
    links: list[list[int]] = []
    before, since, there = 0, 0, own.host  # the last that has a lane, and where
    for row, (thread, name, what, first, took, under) in enumerate(
        zip(threads, names, *(a.tolist() for a in (doing, begin, length, beneath)), strict=True)
    ):
        lane = lanes.of(thread, name)
        if lane < 0:
            continue
        raw.append([lane, what, first - origin, took, *([under] if under >= 0 else [])])
        if lane != before and first > origin:
            way = range(since + 1, row + 1)
            mille = min((sure[r] for r in way if r in sure), default=SURE)
            wrong = [bounds[r] for r in way if r in bounds and there != thread.host]
            bound = [-1 if min(wrong) < 0 else max(wrong)] if wrong else []
            known = [mille, *bound] if bound or mille < SURE else []
            links.append([before, lane, first - origin, *known])
        before, since, there = lane, row, thread.host
    own_stretches = _fill_waits(raw, last - origin)
    for one in slices:
        lane = lanes.of(one.thread, one.name) if one.begin < last else -1
        if lane > 0 and one.led:
            until = min(one.end, last) - one.begin
            own_stretches.append([lane, _LED, one.begin - origin, until])
            links.append([0, lane, one.begin - origin])
        elif lane > 0:
            links.append([lane, 0, 0])
    shown, place = lanes.group()
    stretches = _join_alike([[place[one[0]], *one[1:]] for one in own_stretches])
    several = list(dict.fromkeys((place[a], place[b], *more) for a, b, *more in links))
    far = sorted(range(len(several)), key=lambda at: len(several[at]) < FAR)
    kept = [list(several[at]) for at in sorted(far[:MOST_LINKS])]
    return Sketch(shown, stretches, len(lanes.left_out), kept)


class _Lanes:
    """A lane for each thread, in order of first use."""

    def __init__(self, colours: dict[str, int], several: bool) -> None:
        self.left_out: set[_SketchedThread] = set()
        self._of: dict[_SketchedThread, int] = {}
        self._path: set[_SketchedThread] = set()
        self._chosen: set[_SketchedThread] = set()
        self._shown: list[list[Any]] = []
        self._colours, self._several = colours, several

    def choose(
        self, own: _SketchedThread, threads: Sequence[_SketchedThread], length: Sequence[int]
    ) -> None:
        """Choose who is shown of many: the own thread, the longest of each host, the longest.

        Of several hosts, whoever is only interrupted by what comes from another is not.
        """
        time: dict[_SketchedThread, int] = {}
        for thread, ns in zip(threads, length, strict=True):
            time[thread] = time.get(thread, 0) + ns
        longest = sorted(time, key=lambda thread: -time[thread])
        first = {thread.host: thread for thread in reversed([own, *longest])}
        if self._several:
            least = SEEN / 100 * sum(length)
            seen = {thread for thread, ns in zip(threads, length, strict=True) if ns >= least}
            longest = [thread for thread in longest if thread in seen | {*first.values()}]
        order = dict.fromkeys([own, *(t for t in longest if first[t.host] == t), *longest])
        self._path, self._chosen = {*time}, set(list(order)[:MOST_LANES])

    def of(self, thread: _SketchedThread, name: str) -> int:
        """Return a thread's lane, -1 where there are too many."""
        if thread in self._of:
            return self._of[thread]
        # No path goes through threads of other slices: they have what is free.
        free = thread not in self._path and len(self._chosen) < MOST_LANES
        if thread not in self._chosen and not free:
            self.left_out.add(thread)
            return -1
        self._chosen.add(thread)
        own, host = split_host(name) if self._several else (name, "")
        colour = _colour(name, self._colours)
        on = [host[1:]] if host else []
        self._shown.append([own or str(thread.tid), thread.tid, colour, *on])
        return self._of.setdefault(thread, len(self._of))

    def group(self) -> tuple[list[list[Any]], list[int]]:
        """Return the lanes, those of each host together, and the new place of every one."""
        hosts = [lane[3:] for lane in self._shown]
        order = sorted(range(len(hosts)), key=lambda lane: (hosts.index(hosts[lane]), lane))
        places = [order.index(lane) for lane in range(len(order))]
        return [self._shown[lane] for lane in order], places


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


def _fill_waits(stretches: list[list[int]], length: int) -> list[list[int]]:
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


def _join_alike(stretches: list[list[int]]) -> list[list[int]]:
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
