"""Sketches of executions: who worked for one, when, and what they waited for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from critpath.model import PathSet, State, role_name
from critpath.model.exploration import FactTable, Question

MOST: Final = 200  # executions whose sketch is in a page
MOST_LANES: Final = 8
MOST_STRETCHES: Final = 400  # of one sketch
# What a thread does, in the order of the page's textures.
DOINGS: Final = (
    *("running", "cpu", "waiting", "network", "timer", "disk", "throttled", "interrupts"),
    *("unknown", "queued", "shared"),
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
    """

    lanes: list[list[Any]]
    stretches: list[list[int]]
    left_out: int


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
    return {
        row: _draw(critical, at, int(some.executions.tid[at]), some.executions.comm[at], colours)
        for at, row in enumerate(rows)
    }


def _draw(critical: Any, at: int, tid: int, comm: str, colours: dict[str, int]) -> Sketch:
    part = slice(int(critical.start[at]), int(critical.start[at + 1]))
    begin, end = critical.begin[part], critical.end[part]
    if not len(begin):
        return Sketch([[comm, tid, _colour(comm, colours)]], [], 0)
    origin = int(begin[0])
    doing = _DOINGS[critical.state[part]]
    beneath = np.where(critical.beneath[part] == State.UNKNOWN, -1, _DOINGS[critical.beneath[part]])
    threads = critical.tid[part]
    names = [critical.strings[code] for code in critical.comm[part].tolist()]
    lanes: dict[int, int] = {tid: 0}
    shown = [[comm or str(tid), tid, _colour(comm, colours)]]
    left_out: set[int] = set()
    raw: list[list[int]] = []
    for thread, name, what, first, last, under in zip(
        *(threads.tolist(), names, doing.tolist(), begin.tolist(), end.tolist(), beneath.tolist()),
        strict=True,
    ):
        if thread not in lanes:
            if len(lanes) >= MOST_LANES:
                left_out.add(thread)
                continue
            lanes[thread] = len(lanes)
            shown.append([name or str(thread), thread, _colour(name, colours)])
        meanwhile = [under] if under >= 0 else []
        raw.append([lanes[thread], what, first - origin, last - first, *meanwhile])
    own = _filled(raw, int(end[-1]) - origin)
    return Sketch(shown, _joined(own), len(left_out))


def _colour(name: str, colours: dict[str, int]) -> int:
    return colours.setdefault(role_name(name), len(colours)) % 7


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
