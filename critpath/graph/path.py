"""Critical paths of executions: the native walk, interrupts, who ran instead, loss."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from critpath.graph._walk import Walk, carve, who_ran
from critpath.graph.execution_graph import ExecutionGraph
from critpath.model import I32, I64, U8, Bool, CriticalPaths, Loss, State, Timelines

# A processor that idles takes who can run within microseconds, a virtual one in less than
# this.  Who waited although it idled for so long was held back, whoever ran besides.
HELD_BACK_NS = 2_000_000
HELD_BACK_SHARE = 0.1
_HELD_BACK = -2  # in place of a worker


def walk_paths(
    graph: ExecutionGraph, workers: I64, begin: I64, end: I64
) -> tuple[I64, I64, I64, I64, I64, U8]:
    """Walk the graph backward from the end of each execution.

    Parameters
    ----------
    graph : ExecutionGraph
    workers, begin, end : int64 [executions]
        Subject and window (ns) of each execution.

    Returns
    -------
    start : int64 [executions + 1]
    begin, end, worker, interval, state : arrays [segments]
        Segments in order of time; ``interval`` is -1 for a link's own time and for
        time that no interval covers.
    """
    core = Walk(
        graph.start,
        graph.begin,
        graph.end,
        graph.state,
        graph.link_start,
        graph.link_time,
        graph.link_source,
        graph.link_sent,
        graph.link_kind,
        graph.parent,
        graph.born,
    )
    parts = []
    for subject, low, high in zip(workers.tolist(), begin.tolist(), end.tolist(), strict=True):
        core.walk(subject, low, high)
        parts.append(core.take())
    start = np.concatenate([[0], np.cumsum([len(p[0]) for p in parts])]).astype(np.int64)
    if not parts:
        parts = [core.take()]
    low, high, worker, interval, state = (np.concatenate([p[i] for p in parts]) for i in range(5))
    return start, low, high, worker, interval, state


def critical_paths(
    timelines: Timelines,
    graph: ExecutionGraph,
    workers: I64,
    begin: I64,
    end: I64,
    *,
    interrupts: bool = True,
) -> CriticalPaths:
    """Extract the critical path of every execution.

    Parameters
    ----------
    timelines : Timelines
    graph : ExecutionGraph
        Of the same timelines.
    workers : int64 [executions]
        Subject of each execution; -1 where the thread never appears in the trace:
        its whole window is UNKNOWN.
    begin, end : int64 [executions]
        Windows (ns).
    interrupts : bool
        Take interrupt work out of running time, as IRQ and SOFTIRQ.

    Returns
    -------
    CriticalPaths
        Exactly one state for every nanosecond of every window.
    """
    known = np.where(workers >= 0, workers, 0)
    # An empty window has an empty path; so has, for the walk, an unknown subject.
    stop = np.where(workers >= 0, end, begin)
    start, low, high, worker, interval, state = walk_paths(graph, known, begin, stop)
    start, low, high, worker, interval, state = _fill_unknown(
        start, low, high, worker, interval, state, workers, begin, end
    )
    cpu = np.where(interval >= 0, timelines.cpu[interval], np.int32(-1)).astype(np.int32)
    detail = np.where(interval >= 0, timelines.detail[interval], np.int32(0)).astype(np.int32)
    path = np.repeat(np.arange(len(begin)), np.diff(start))
    cpu = _cpu_of_wake_delay(cpu, worker, state, path)
    host = np.where(worker >= 0, timelines.workers.host[worker], 0)
    processor = _processors(timelines, host, cpu)
    strings = list(timelines.strings)
    detail = _who_ran(timelines, low, high, state, processor, detail, strings)
    if interrupts:
        low, high, source, state, stolen = carve(
            low,
            high,
            state,
            processor,
            timelines.stolen_start,
            timelines.stolen_begin,
            timelines.stolen_end,
            timelines.stolen_state,
            timelines.stolen_detail,
        )
        worker, cpu, path, host = worker[source], cpu[source], path[source], host[source]
        detail = np.where(stolen >= 0, stolen, detail[source]).astype(np.int32)
    keep = _merge(path, worker, state, detail, cpu)
    last = np.append(keep[1:], len(low))[: len(keep)] - 1  # no segment at all has no last
    low, high = low[keep], high[last]
    path, worker, state, detail = path[keep], worker[keep], state[keep], detail[keep]
    cpu, host = cpu[keep], host[keep]
    lossy = overlaps_loss(timelines.losses, host, low, high)
    detail = _lost_events(timelines.strings, state, detail, lossy)
    result = CriticalPaths(
        start=np.searchsorted(path, np.arange(len(begin) + 1)),
        begin=low,
        end=high,
        state=state,
        detail=detail,
        comm=np.where(worker >= 0, timelines.workers.name[worker], 0).astype(np.int32),
        tid=np.where(worker >= 0, timelines.workers.tid[worker], -1),
        host=host,
        cpu=cpu,
        lossy=lossy,
        strings=tuple(strings),
    )
    check_tiling(result, begin, end)
    return result


def check_tiling(paths: CriticalPaths, begin: I64, end: I64) -> None:
    """Check that every path covers its window exactly: no gap, no overlap.

    Raises
    ------
    AssertionError
        With the first path that does not: a fault of critpath, never of the input.
    """
    first, last = paths.start[:-1], paths.start[1:]
    some = last > first
    good = np.where(some, True, begin >= end)
    good[some] &= paths.begin[first[some]] == begin[some]
    good[some] &= paths.end[last[some] - 1] == end[some]
    inner = np.ones(max(len(paths.begin) - 1, 0), bool)
    inner[first[some & (first > 0)] - 1] = False
    joined = ~inner | (paths.end[:-1] == paths.begin[1:])
    if not good.all() or not joined.all() or not np.all(paths.end > paths.begin):
        worst = int(np.flatnonzero(~good)[0]) if not good.all() else -1
        raise AssertionError(f"critical path {worst} does not tile its window")


def overlaps_loss(losses: Sequence[Loss], host: I64, begin: I64, end: I64) -> Bool:
    """Return which windows overlap a loss on their host.

    Parameters
    ----------
    losses : sequence of Loss
    host, begin, end : int64 [windows]
    """
    result = np.zeros(len(begin), bool)
    for name in {loss.host for loss in losses}:
        ranges = sorted((loss.begin, loss.end) for loss in losses if loss.host == name)
        low = np.array([r[0] for r in ranges])
        # Ends so far: with begins sorted, the windows that a range reaches into are those
        # that begin before the largest end among the ranges that begin before they end.
        high = np.maximum.accumulate(np.array([r[1] for r in ranges]))
        before = np.searchsorted(low, end, side="right") - 1
        result |= (host == name) & (before >= 0) & (high[np.maximum(before, 0)] >= begin)
    return result


def _fill_unknown(
    start: I64,
    low: I64,
    high: I64,
    worker: I64,
    interval: I64,
    state: U8,
    subjects: I64,
    begin: I64,
    end: I64,
) -> tuple[I64, I64, I64, I64, I64, U8]:
    """Give executions whose thread never appears one UNKNOWN segment."""
    missing = np.flatnonzero((subjects < 0) & (end > begin))
    if not len(missing):
        return start, low, high, worker, interval, state
    at = start[missing]
    counts = np.diff(start)
    counts[missing] += 1
    return (
        np.concatenate([[0], np.cumsum(counts)]),
        np.insert(low, at, begin[missing]),
        np.insert(high, at, end[missing]),
        np.insert(worker, at, -1),
        np.insert(interval, at, -1),
        np.insert(state, at, State.UNKNOWN),
    )


def _cpu_of_wake_delay(cpu: I32, worker: I64, state: U8, path: I64) -> I32:
    """Let the time between waking and wakeup wait for the cpu it then ran on."""
    result = cpu.copy()
    for i in np.flatnonzero((state[:-1] == State.WAIT_CPU) & (cpu[:-1] < 0))[::-1].tolist():
        if worker[i] == worker[i + 1] and path[i] == path[i + 1]:
            result[i] = result[i + 1]
    return result


def _processors(timelines: Timelines, host: I64, cpu: I32) -> I64:
    """Return the processor of every segment, -1 where its cpu is unknown."""
    width = max((c for _, c in timelines.processors), default=0) + 1
    hosts = max((h for h, _ in timelines.processors), default=0) + 1
    table = np.full((hosts, width), -1, np.int64)
    for index, (of_host, of_cpu) in enumerate(timelines.processors):
        table[of_host, of_cpu] = index
    inside = (cpu >= 0) & (cpu < width)
    return np.where(inside, table[np.minimum(host, hosts - 1), np.where(inside, cpu, 0)], -1)


def _who_ran(
    timelines: Timelines,
    begin: I64,
    end: I64,
    state: U8,
    processor: I64,
    detail: I32,
    strings: list[str],
) -> I32:
    """Name in every WAIT_CPU segment who held the cpu: ``comm (tid)``, or ``idle``.

    Whoever held it longest, but ``idle`` where that alone shows that nobody who ran was
    in the way: under a quota, others run in the meantime.
    """
    waits = np.flatnonzero(state == State.WAIT_CPU)
    if not len(waits):
        return detail
    runner = who_ran(
        begin[waits],
        end[waits],
        processor[waits],
        timelines.ran_start,
        timelines.ran_begin,
        timelines.ran_end,
        timelines.ran_worker,
    )
    idle = idle_time(timelines, begin[waits], end[waits], processor[waits])
    long = (idle >= HELD_BACK_NS) & (idle >= HELD_BACK_SHARE * (end[waits] - begin[waits]))
    runner[long] = _HELD_BACK
    table = timelines.workers
    codes = {-1: 0, _HELD_BACK: len(strings)}
    strings.append("idle")
    for worker in np.unique(runner[runner >= 0]).tolist():
        if table.idle_cpu[worker] >= 0:
            codes[worker] = codes[_HELD_BACK]
            continue
        codes[worker] = len(strings)
        strings.append(f"{strings[table.name[worker]]} ({table.tid[worker]})")
    detail = detail.copy()
    keys = np.array(sorted(codes))
    values = np.array([codes[k] for k in keys.tolist()], np.int32)
    detail[waits] = values[np.searchsorted(keys, runner)]
    return detail


def idle_time(timelines: Timelines, begin: I64, end: I64, processor: I64) -> I64:
    """Return how long each processor idled in a window.

    Parameters
    ----------
    timelines : Timelines
    begin, end : int64 [windows]
        ns.
    processor : int64 [windows]
        Index into ``timelines.processors``; -1 for none.

    Returns
    -------
    int64 [windows]
        ns; 0 where there is no processor.
    """
    result = np.zeros(len(begin), np.int64)
    idle = timelines.workers.idle_cpu[timelines.ran_worker] >= 0
    for index in np.unique(processor[processor >= 0]).tolist():
        rows = slice(int(timelines.ran_start[index]), int(timelines.ran_start[index + 1]))
        low, high = (x[rows][idle[rows]] for x in (timelines.ran_begin, timelines.ran_end))
        here = processor == index
        result[here] = _covered(end[here], low, high) - _covered(begin[here], low, high)
    return result


def _covered(time: I64, low: I64, high: I64) -> I64:
    """Return how much of some sorted ranges lies before each time."""
    done = np.searchsorted(high, time, side="right")
    sums: I64 = np.append(0, np.cumsum(high - low)).astype(np.int64)
    # Beyond the last range begins none.
    begun = np.append(low, np.iinfo(np.int64).max)[done]
    result: I64 = sums[done] + np.maximum(time - begun, 0)
    return result


def _merge(path: I64, worker: I64, state: U8, detail: I32, cpu: I32) -> I64:
    """Return the first row of every run of rows that differ in nothing but their time."""
    if not len(path):
        return np.zeros(0, np.int64)
    new = np.ones(len(path), bool)
    new[1:] = (
        (path[1:] != path[:-1])
        | (worker[1:] != worker[:-1])
        | (state[1:] != state[:-1])
        | (detail[1:] != detail[:-1])
        | (cpu[1:] != cpu[:-1])
    )
    return np.flatnonzero(new)


def _lost_events(strings: tuple[str, ...], state: U8, detail: I32, lossy: Bool) -> I32:
    """Blame a wake that is missing next to a loss on the loss."""
    if "no_wake" not in strings or not lossy.any():
        return detail
    missing = (state == State.WAIT_UNEXPLAINED) & (detail == strings.index("no_wake")) & lossy
    return np.where(missing, np.int32(strings.index("lost_events")), detail).astype(np.int32)
