"""What a window's page draws: which threads, in which order, and their rows as columns."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import Any, Final

import numpy as np
from msgspec import Struct

from critpath.errors import UsageError
from critpath.model import I64, PathSet, State, Timelines
from critpath.model.details import name_detail, word_detail
from critpath.report.html.page import numbers
from critpath.report.palette import LOOKS
from critpath.units import plural, safe_text

# Intervals of a page: some 20 bytes each, and drawn in a few ms whatever is zoomed to.
MOST: Final = 150_000


class Segments(Struct, frozen=True, eq=False):
    """One execution's critical path: where each segment is drawn, and what it is called.

    Attributes
    ----------
    begin, end : int64
        ns.
    thread : int64
        The thread's place on the page; -1 where it is none of the window's.
    state, cpu : int64
    detail, name : tuple of str
        In words; the thread that it is spent on.
    """

    begin: I64
    end: I64
    thread: I64
    state: I64
    cpu: I64
    detail: tuple[str, ...]
    name: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.begin)


class DrawnWindow(Struct, frozen=True, eq=False):
    """A window of timelines as a page has it.

    Attributes
    ----------
    timelines : Timelines
        Of the window.
    begin, end : int
        ns.
    threads : int64
        Workers in the page's order: those on the path, then by their time on a cpu.
    on_path : int
        How many of them are on the path.
    on_cpu : int64
        How long each was on a cpu within the window (ns).
    path : Segments
    left_out : tuple of (int, int)
        Threads that the page has no room for, and how many intervals they have.
    """

    timelines: Timelines
    begin: int
    end: int
    threads: I64
    on_path: int
    on_cpu: I64
    path: Segments
    left_out: tuple[int, int]

    def name_of(self, worker: int) -> str:
        """Return what a thread is called, safe to show; idle time and what is unknown, too."""
        workers = self.timelines.workers
        if worker < 0:
            return ""
        if workers.idle_cpu[worker] >= 0:
            return "idle"
        name = safe_text(self.timelines.strings[int(workers.name[worker])])
        return f"{name} {int(workers.tid[worker])}".lstrip()

    def clip(self, begin: I64, end: I64) -> I64:
        """Return how long each of some intervals lasts within the window."""
        return np.minimum(end, self.end) - np.maximum(begin, self.begin)

    def occupants(self, processor: int) -> list[tuple[int, int]]:
        """Return who had a processor and for how long (ns), the longest first: workers."""
        lines = self.timelines
        rows = slice(int(lines.ran_start[processor]), int(lines.ran_start[processor + 1]))
        of = lines.ran_worker[rows].astype(np.int64)
        spent = self.clip(lines.ran_begin[rows], lines.ran_end[rows])
        sums = np.bincount(of, spent, len(lines.workers)).astype(np.int64)
        order = np.argsort(-sums, kind="stable")
        return [(worker, int(sums[worker])) for worker in order[: np.count_nonzero(sums)].tolist()]


def draw_window(timelines: Timelines, begin: int, end: int, path: PathSet | None) -> DrawnWindow:
    """Choose what of a window is drawn.

    Parameters
    ----------
    timelines : Timelines
        Of the window alone.
    begin, end : int
        ns.
    path : PathSet or None
        One execution, whose path is lit.

    Raises
    ------
    UsageError
        If what has to be drawn is too much for a page.
    """
    workers = timelines.workers
    counts = np.diff(timelines.start)
    spent = np.minimum(timelines.ran_end, end) - np.maximum(timelines.ran_begin, begin)
    on_cpu = np.bincount(timelines.ran_worker, spent, len(workers)).astype(np.int64)
    rank = np.full(len(workers), len(workers), np.int64)
    of_path = rows = np.zeros(0, np.int64)
    if path is not None:
        rows = np.flatnonzero((path.paths.end > begin) & (path.paths.begin < end))
        of_path = _workers_of(timelines, path)[rows]
        known = of_path >= 0
        times = np.bincount(of_path[known], path.paths.duration[rows][known], len(workers))
        order = np.argsort(-times, kind="stable")
        order = order[times[order] > 0]
        own = _workers_of(timelines, path, own=True)
        order = np.concatenate([own[np.isin(own, order)], order[~np.isin(order, own)]])
        rank[order] = np.arange(len(order))
    seen = np.flatnonzero(((counts > 0) | (rank < len(workers))) & (workers.idle_cpu < 0))
    threads = seen[np.lexsort((-counts[seen], -on_cpu[seen], rank[seen]))]
    on_path = int(np.count_nonzero(rank[threads] < len(workers)))
    fixed = len(timelines.ran_begin) + len(timelines.stolen_begin) + len(of_path)
    fit = np.cumsum(counts[threads]) + fixed <= MOST
    kept = int(np.count_nonzero(fit))
    if kept < on_path or (len(threads) and not kept):
        most = fixed + int(counts[threads[: max(on_path, 1)]].sum())
        fits = begin + (end - begin) * MOST // most * 9 // 10
        raise UsageError(
            f"the window has {most:,} intervals of CPUs and of "
            f"{'threads on the path' if on_path else 'the busiest thread'} alone, and a page has "
            f"room for {MOST:,}",
            f"take a shorter one, such as --from {begin} --to {fits}",
        )
    left = threads[kept:]
    place = np.full(len(workers) + 1, -1, np.int64)  # the last is who is -1
    place[threads[:kept]] = np.arange(kept)
    return DrawnWindow(
        timelines,
        begin,
        end,
        threads[:kept],
        on_path,
        on_cpu[threads[:kept]],
        _segments(path, rows, place[of_path]),
        (len(left), int(counts[left].sum())),
    )


def _workers_of(timelines: Timelines, path: PathSet, *, own: bool = False) -> I64:
    """Return the life of the thread of each segment, or of the execution itself; -1 for none."""
    workers = timelines.workers
    of = path.executions if own else path.paths
    lives: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for worker in np.argsort(workers.first, kind="stable").tolist():
        if workers.idle_cpu[worker] < 0 and workers.first[worker] >= 0:
            key = int(workers.host[worker]), int(workers.tid[worker])
            lives[key].append((int(workers.first[worker]), worker))
    found = []
    for host, tid, end in zip(of.host.tolist(), of.tid.tolist(), of.end.tolist(), strict=True):
        known = lives.get((host, tid), [])
        at = bisect_right(known, (end, len(workers))) - 1
        found.append(known[max(at, 0)][1] if known else -1)
    return np.array(found, np.int64)


def _segments(path: PathSet | None, rows: I64, place: I64) -> Segments:
    if path is None:
        return Segments(*(rows,) * 5, (), ())
    of = path.paths
    return Segments(
        of.begin[rows],
        of.end[rows],
        place,
        of.state[rows].astype(np.int64),
        of.cpu[rows].astype(np.int64),
        tuple(safe_text(word_detail(of.details[code])) for code in of.detail[rows].tolist()),
        tuple(
            f"{safe_text(of.strings[comm])}{f' {tid}' if tid >= 0 else ''}".lstrip()
            for comm, tid in zip(of.comm[rows].tolist(), of.tid[rows].tolist(), strict=True)
        ),
    )


# Columns for the script: times from the window's begin on, each as what is before it leaves open.


def window_data(window: DrawnWindow, hosts: tuple[str, ...]) -> dict[str, Any]:
    """Return what the script draws."""
    lines, threads = window.timelines, window.threads
    workers = lines.workers
    place = np.full(len(workers) + 1, -1, np.int64)
    place[threads] = np.arange(len(threads))
    rows = _rows_of(lines.start, threads)
    waker = lines.waker[rows].astype(np.int64)
    details, detail = _detail_words(lines, rows)
    woken = lines.woken[rows]
    since = np.where((waker >= 0) & (woken >= 0), np.maximum(lines.end[rows] - woken, 0), 0)
    path = window.path
    texts: dict[str, int] = {"": 0}
    path_detail = [texts.setdefault(one, len(texts)) for one in path.detail]
    names: dict[str, int] = {}
    path_name = [names.setdefault(one, len(names)) for one in path.name]
    host, cpu = np.array(lines.processors, np.int64).reshape(-1, 2).T
    everyone = np.arange(len(lines.processors))
    ran, stolen = _rows_of(lines.ran_start, everyone), _rows_of(lines.stolen_start, everyone)
    who = lines.ran_worker[ran]
    idle = workers.idle_cpu[who] >= 0
    # Who has no row of its own still has a name: a waker, or who had a cpu.
    asked = np.unique(np.concatenate([waker[waker >= 0], who[~idle]]))
    others = asked[place[asked] < 0]
    place[others] = len(threads) + np.arange(len(others))
    return {
        "begin": str(window.begin),
        "length": window.end - window.begin,
        "hosts": [safe_text(one) for one in hosts],
        "onPath": window.on_path,
        "names": [window.name_of(worker) for worker in (*threads.tolist(), *others.tolist())],
        "host": numbers(workers.host[threads]),
        "active": numbers(window.on_cpu > 0),
        "rows": {
            "start": numbers(np.append(0, np.cumsum(np.diff(lines.start)[threads]))),
            **_times(window, lines.begin[rows], lines.end[rows], np.diff(lines.start)[threads]),
            "state": numbers(lines.state[rows]),
            "detail": numbers(detail),
            "cpu": numbers(lines.cpu[rows] + 1),
            "waker": numbers(place[waker] + 1),
            "woken": numbers(since),
        },
        "details": details,
        "cpus": {
            "host": numbers(host),
            "cpu": numbers(cpu),
            "ran": {
                "start": numbers(lines.ran_start),
                **_times(
                    window,
                    *(lines.ran_begin[ran], lines.ran_end[ran], np.diff(lines.ran_start)),
                ),
                "thread": numbers(np.where(idle, 0, place[who] + 1)),
            },
            "stolen": {
                "start": numbers(lines.stolen_start),
                **_times(
                    window,
                    *(lines.stolen_begin[stolen], lines.stolen_end[stolen]),
                    np.diff(lines.stolen_start),
                ),
                "state": numbers(lines.stolen_state[stolen]),
            },
        },
        "path": {
            **_times(window, path.begin, path.end, np.array([len(path)])),
            "thread": numbers(path.thread + 1),
            "state": numbers(path.state),
            "cpu": numbers(path.cpu + 1),
            "detail": numbers(path_detail),
            "name": numbers(path_name),
        },
        "pathDetails": list(texts),
        "pathNames": list(names),
        "states": [
            [LOOKS[s.name].words, LOOKS[s.name].colour, LOOKS[s.name].pattern, kind_of(s)]
            for s in sorted(State)
        ],
        "losses": [
            [
                float(max(loss.begin, window.begin) - window.begin),
                float(min(loss.end, window.end) - window.begin),
                loss.host,
                loss.cpu,
                loss.events,
            ]
            for loss in losses_in(window)
        ],
    }


def losses_in(window: DrawnWindow) -> list[Any]:
    """Return what was lost within the window."""
    return [
        loss
        for loss in window.timelines.losses
        if loss.begin < window.end and loss.end > window.begin
    ]


def kind_of(state: State) -> int:
    """Return 2 for a thread that runs, 1 for one that could, 0 for one that waits."""
    if state.trace_compass == "RUNNING" or state in {State.IRQ, State.SOFTIRQ}:
        return 2
    return int(state.trace_compass == "PREEMPTED")


def _rows_of(start: I64, owners: I64) -> I64:
    """Return the rows of some owners, one owner after the other."""
    counts = np.diff(start)[owners]
    offset = start[:-1][owners] - np.append(0, np.cumsum(counts))[:-1]
    rows: I64 = np.arange(counts.sum()) + np.repeat(offset, counts)
    return rows


def _times(window: DrawnWindow, begin: I64, end: I64, counts: I64) -> dict[str, Any]:
    """Return begins after what ends before them, and lengths, within the window.

    What the window cuts is listed besides, with the begin and the end that it has.
    """
    low = np.maximum(begin, window.begin) - window.begin
    high = np.minimum(end, window.end) - window.begin
    before = np.append(0, high)[:-1]
    before[np.append(0, np.cumsum(counts))[:-1][counts > 0]] = 0
    cut = np.flatnonzero((begin < window.begin) | (end > window.end))
    return {
        "gap": numbers(low - before),
        "length": numbers(high - low),
        "cut": numbers(cut),
        "cutBegin": numbers(begin[cut] - window.begin),
        "cutEnd": numbers(end[cut] - window.begin),
    }


def _detail_words(lines: Timelines, rows: I64) -> tuple[list[str], I64]:
    """Return details in words, and which of them each row has."""
    pairs = lines.detail[rows].astype(np.int64) * len(State) + lines.state[rows]
    used, codes = np.unique(pairs, return_inverse=True)
    table: dict[str, int] = {"": 0}
    found = []
    for pair in used.tolist():
        code, state = divmod(pair, len(State))
        words = safe_text(word_detail(name_detail(State(state), lines.strings[code])))
        found.append(table.setdefault(words, len(table)))
    return list(table), np.array(found, np.int64)[codes] if found else codes


def describe_left_out(window: DrawnWindow) -> str:
    """Say what the page has no room for; "" where it has all."""
    threads, intervals = window.left_out
    if not threads:
        return ""
    which = ", none of them on the path," if window.on_path else ", those that ran least,"
    return (
        f"{plural(threads, 'thread')} with {intervals:,} intervals{which} left out: a page has "
        f"room for {MOST:,}; a shorter window has them"
    )
