"""Joins stacks with the segments of critical paths: by thread and time, one to one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from critpath.model import I32, I64, RUNNING, Bool, CriticalPaths, PathSet, State
from critpath.model.stacks import (
    RUN,
    SAMPLE,
    SLEEP,
    WAKE,
    Stack,
    Stacks,
    is_helper,
    join_stacks,
    mark_frames,
)
from critpath.schema.kinds import WAITS
from critpath.schema.parameters.replay import WAITING

_MOST_REPEATED: Final = 20  # technical: samples of one row that help to tell where threads run
_MOST_TURNS: Final = 256  # technical: of others on a path, before the thread that waits goes on
ASLEEP: Final = tuple(int(state) for state in sorted(WAITS - {State.WAIT_CPU, State.WAIT_QUOTA}))
# What an interrupt ends, it ends on behalf of no thread: whom it interrupted did not wake.
_ENDED_BY_THREADS: Final = tuple(
    int(state) for state in (State.WAIT_TASK, State.WAIT_FUTEX, State.WAIT_POLL, State.WAIT_PIPE)
)
_RUNS: Final = tuple(int(state) for state in RUNNING)
_INTERRUPTS: Final = (int(State.IRQ), int(State.SOFTIRQ))


def add_stacks(paths: PathSet, stacks: Stacks) -> PathSet:
    """Put stacks on the segments of paths.

    A wait has the stack with which its thread went to sleep, and that of the thread that woke it.
    A thread that runs has the sample nearest to the middle of the segment, else what it ended
    with: a wake, or a sleep.  A thread of the kernel has that of the thread that waits for it.
    Where threads were sampled at all times, a segment has the stack of most samples within it.
    A request that waits behind others has that of the thread that works for them.

    Parameters
    ----------
    paths : PathSet
        Of one host.
    stacks : Stacks
    """
    path = paths.paths
    stacks = _keep_threads(stacks, path.tid)
    # Where a request waits behind others, what its thread did for these.
    doing = np.where(path.beneath > 0, path.beneath, path.state)
    asleep = np.isin(doing, ASLEEP)
    runs = np.isin(doing, _RUNS)
    own, woken = np.full(len(path.begin), -1), np.full(len(path.begin), -1)
    slept, woke = stacks.kind == SLEEP, stacks.kind == WAKE
    apart = usual_distance(stacks, path.tid[asleep], path.begin[asleep])
    own[asleep] = find_sleeps(stacks, path.tid[asleep], path.begin[asleep], apart)
    # What comes behind a wait is the next.
    own[(own >= 0) & (np.append(stacks.time, 0)[own] > path.end)] = -1
    if stacks.complete:  # a path may come to a thread that has slept for long
        later = asleep & (own < 0)
        own[later] = _find_last(stacks, slept, path.tid[later], path.begin[later])
    by = np.isin(path.state, _ENDED_BY_THREADS)
    woken[by] = _find_nearest(stacks, woke, stacks.woken, path.tid[by], path.end[by], apart)
    wakes = runs & path.wakes
    for chosen, kind in ((wakes, woke), (runs & ~wakes, slept)):
        own[chosen] = _find_nearest(
            stacks, kind, stacks.tid, path.tid[chosen], path.end[chosen], apart
        )
    middle = _find_within(stacks, path, runs)
    own[runs] = np.where(middle >= 0, middle, own[runs])
    if (stacks.kind == SAMPLE).any():
        chosen = asleep | runs
        spans = _Spans(path.tid[chosen], path.begin[chosen], path.end[chosen], runs[chosen])
        slept_in, ran_in = _count_samples(stacks, spans)
        own[chosen] = _find_sampled(stacks, spans, ran_in > slept_in)
        before, waits = _find_others_turns(path, runs)
        waited_in, _ = _count_samples(stacks, waits)
        short = path.duration[before] < stacks.period
        ends = waits.begin[short], waits.end[short]
        brief = _Spans(waits.tid[short], *ends, waits.runs[short])
        found = _find_sampled(stacks, brief, ran_in > slept_in + waited_in)
        own[before[short]] = np.where(found >= 0, found, own[before[short]])
    if stacks.complete:
        _give_helpers(own, stacks, path, asleep | runs)
        _give_calls(own, stacks, path, runs)
    known = list(path.stacks)
    stack, waker = _code_stacks(own, woken, stacks, known)
    changed = replace(
        path,
        stack=_join_outer_frames(stack, path.stack, known),
        waker_stack=_join_outer_frames(waker, path.waker_stack, known),
        stacks=tuple(known),
    )
    return replace(paths, paths=changed)


def _give_helpers(own: I64, stacks: Stacks, path: CriticalPaths, chosen: Bool) -> None:
    """Let what the kernel's threads do have the sleep of the thread that waits for it.

    A thread that waits for its file waits for the kernel's threads, which have no stack of their
    own: the time is theirs on the path, and the call that it is for is that of the next thread
    that was on it before, too: not what others, whom they serve as well, wait for meanwhile.
    """
    helper = np.isin(path.comm, [n for n, name in enumerate(path.strings) if is_helper(name)])
    size = len(helper)
    pairs = np.stack([path.path, path.tid])
    _, first, which = np.unique(pairs, axis=1, return_index=True, return_inverse=True)
    first = np.append(first[which.ravel()], -1)
    rows = np.where(helper, size, np.arange(size))
    following = np.append(np.minimum.accumulate(rows[::-1])[::-1], size)
    unknown = np.append(stacks.stack, -1)[own] < 0
    mine = np.flatnonzero(helper & chosen & unknown)
    after = following[mine]
    for _ in range(_MOST_TURNS):
        other = first[after] > mine
        if not other.any():
            break
        after[other] = following[after[other] + 1]
    there = (after < size) & (first[after] < mine)
    mine, after = mine[there], after[there]
    mine, after = (rows[path.path[after] == path.path[mine]] for rows in (mine, after))
    found = _find_last(stacks, stacks.kind == SLEEP, path.tid[after], path.begin[after])
    # A thread that slept only later did not wait for it.
    found[(found >= 0) & (np.append(stacks.time, 0)[found] > path.end[mine])] = -1
    own[mine] = found


class _Spans(NamedTuple):
    """Times of threads, and whether they run then."""

    tid: I64
    begin: I64
    end: I64
    runs: Bool


def _find_others_turns(path: CriticalPaths, runs: Bool) -> tuple[I64, _Spans]:
    """Return what ran before others were waited for, and these waits, until its thread goes on.

    The path goes to the others, and has no segment of the thread meanwhile: what it ran, if too
    short to be sampled, was for the call in which it waits, as where a sleep's stack is known.
    """
    back = _next_of_thread(path)
    mine = np.flatnonzero(runs & (back > np.arange(len(back)) + 1))
    ends = path.end[mine], path.begin[back[mine]]
    return mine, _Spans(path.tid[mine], *ends, np.zeros(len(mine), np.bool_))


def _next_of_thread(path: CriticalPaths) -> I64:
    """Return for each segment the thread's next on the path, or -1."""
    order = np.lexsort((np.arange(len(path.tid)), path.tid, path.path))
    same = (np.diff(path.tid[order]) == 0) & (np.diff(path.path[order]) == 0)
    back = np.full(len(order), -1, np.int64)
    back[order[:-1][same]] = order[1:][same]
    return back


def _give_calls(own: I64, stacks: Stacks, path: CriticalPaths, runs: Bool) -> None:
    """Let what ran last before others were waited for have the sleep in which that was.

    It may have gone on for a while after it woke the other, as who asks a peer does.
    """
    back = _next_of_thread(path)
    mine = np.flatnonzero((own < 0) & runs & (back > np.arange(len(own)) + 1))
    after = back[mine]
    found = _find_last(stacks, stacks.kind == SLEEP, path.tid[mine], path.begin[after])
    found[np.append(stacks.time, 0)[found] < path.end[mine] - WAITING.apart] = -1
    own[mine] = found


def _join_outer_frames(inner: I32, outer: I32, known: list[Stack]) -> I32:
    """Return the codes of stacks of which one part was known before: the outer frames."""
    both = (inner >= 0) & (outer >= 0)
    result = np.where(inner >= 0, inner, outer)
    pairs, place = np.unique(np.stack([inner[both], outer[both]]), axis=1, return_inverse=True)
    result[both] = len(known) + place.ravel()
    known += [join_stacks(known[a], known[b]) for a, b in pairs.T.tolist()]
    return result.astype(np.int32)


def mark_own(paths: PathSet, own: str, not_own: str) -> PathSet:
    """Return paths whose stacks say which frames are the program's own: names with commas."""
    if not (own or not_own):
        return paths
    mark = partial(mark_frames, own={*own.split(",")} - {""}, not_own={*not_own.split(",")} - {""})
    return replace(paths, paths=paths.paths.map_stacks(mark))


def _keep_threads(stacks: Stacks, tid: I64) -> Stacks:
    """Return the events of some threads, and those that woke them: a machine has many more."""
    threads = np.unique(tid)
    mine = np.isin(stacks.tid, threads) | np.isin(stacks.woken, threads)
    kept = ("time", "tid", "woken", "kind", "stack")
    return replace(stacks, **{name: getattr(stacks, name)[mine] for name in kept})


def _code_stacks(own: I64, woken: I64, stacks: Stacks, known: list[Stack]) -> tuple[I32, I32]:
    """Return the codes of events' stacks, which are added; -1 where there is none."""
    stack_of = np.append(stacks.stack, np.int32(-1))  # of some events there is no stack
    used, codes = np.unique(np.append(stack_of[np.append(own, woken)], -1), return_inverse=True)
    codes = np.where(used >= 0, len(known) - 1 + np.arange(len(used)), -1)[codes]
    known += [stacks.distinct[number] for number in used[1:].tolist()]
    stack, waker, _ = np.split(codes.astype(np.int32), [len(own), len(own) + len(woken)])
    return stack, waker


def find_sleeps(stacks: Stacks, tid: I64, begin: I64, apart: int | None = None) -> I64:
    """Return for every sleep, of a thread from a time on, the event that is its own, or -1."""
    apart = WAITING.apart if apart is None else apart
    return _find_nearest(stacks, stacks.kind == SLEEP, stacks.tid, tid, begin, apart)


def usual_distance(stacks: Stacks, tid: I64, begin: I64) -> int:
    """Return how far apart two tracers' times of a switch may be.

    Where stacks were lost, the nearest may be that of another switch: no more than some times
    what is usual.
    """
    found = find_sleeps(stacks, tid, begin)
    if stacks.complete or not (found >= 0).any():
        return WAITING.apart
    usual = np.median(abs(stacks.time[found] - begin)[found >= 0])
    return int(min(WAITING.apart, max(WAITING.surely_apart, WAITING.times_usual * usual)))


def _find_nearest(
    stacks: Stacks, chosen: Bool, whose: I64, tid: I64, time: I64, apart: int | None = None
) -> I64:
    """Return for every thread and time the event of that thread that is nearest, or -1.

    The other way round it is the nearest as well: no event belongs to two times, but where
    paths share one.
    """
    apart = WAITING.apart if apart is None else apart
    events = np.flatnonzero(chosen)
    result = np.full(len(tid), -1, np.int64)
    pairs, place = np.unique(np.stack([tid, time]), axis=1, return_inverse=True)
    place = place.ravel()
    found = np.full(pairs.shape[1], -1, np.int64)
    of_thread = _sort_by_thread(events, whose)
    threads = whose[of_thread]
    for thread in np.unique(pairs[0]).tolist():
        low, high = np.searchsorted(threads, [thread, thread + 1])
        first, last = np.searchsorted(pairs[0], [thread, thread + 1])
        if low < high:
            mine = of_thread[low:high]
            near = _find_mutual(stacks.time[mine], pairs[1][first:last], apart)
            found[first:last] = np.where(near >= 0, mine[near], -1)
    result[:] = found[place]
    return result


def _sort_by_thread(events: I64, whose: I64) -> I64:
    """Return events, which are in order of time, thread after thread."""
    ordered: I64 = events[np.argsort(whose[events], kind="stable")]
    return ordered


def _find_last(stacks: Stacks, chosen: Bool, tid: I64, time: I64) -> I64:
    """Return for every thread and time that thread's last event before it, or -1."""
    events = np.flatnonzero(chosen)
    order = _sort_by_thread(events, stacks.tid)
    threads, result = stacks.tid[order], np.full(len(tid), -1, np.int64)
    for thread in np.unique(tid).tolist():
        low, high = np.searchsorted(threads, [thread, thread + 1])
        mine = np.flatnonzero(tid == thread)
        at = low + np.searchsorted(stacks.time[order[low:high]], time[mine], side="right") - 1
        result[mine] = np.where(at >= low, order[np.maximum(at, 0)], -1) if high > low else -1
    return result


def _find_mutual(events: I64, times: I64, apart: int) -> I64:
    """Return for each time the event that is nearest and has none nearer, both sorted; or -1."""
    there = _find_closest(events, times)
    back = _find_closest(times, events)
    agreed = back[there] == np.arange(len(times))
    near = abs(events[there] - times) <= apart
    return np.where(agreed & near, there, -1)


def _find_closest(values: I64, to: I64) -> I64:
    right = np.clip(np.searchsorted(values, to), 0, len(values) - 1)
    left = np.maximum(right - 1, 0)
    return np.where(abs(values[left] - to) < abs(values[right] - to), left, right)


def _find_within(stacks: Stacks, path: CriticalPaths, runs: Bool) -> I64:
    """Return for each segment that runs the sample nearest to its middle, or -1.

    An interrupt takes the sample, which ends the segment: what a thread runs until it does
    something else than being interrupted is one stretch, whose samples are those of its segments.
    """
    events = np.flatnonzero(stacks.kind == RUN)
    order = _sort_by_thread(events, stacks.tid)
    result, threads = np.full(int(runs.sum()), -1, np.int64), stacks.tid[order]
    if not len(result):
        return result
    part = runs | np.isin(path.state, _INTERRUPTS)
    follows = part[1:] & part[:-1] & (np.diff(path.tid) == 0) & (np.diff(path.path) == 0)
    first = np.flatnonzero(np.append(True, ~follows))
    stretch = np.cumsum(np.append(True, ~follows)) - 1
    begin = path.begin[first][stretch][runs]
    end = np.append(path.end[first[1:] - 1], path.end[-1])[stretch][runs]
    middle, tid = (path.begin[runs] + path.end[runs]) // 2, path.tid[runs]
    for thread in np.unique(tid).tolist():
        low, high = np.searchsorted(threads, [thread, thread + 1])
        mine = np.flatnonzero(tid == thread)
        times = stacks.time[order[low:high]]
        some = np.searchsorted(times, end[mine], "right") > np.searchsorted(times, begin[mine])
        mine = mine[some]
        if len(mine):
            near = _find_closest(times, middle[mine])
            # That of another stretch may be nearer than those of this one.
            near = np.clip(
                near,
                np.searchsorted(times, begin[mine]),
                np.searchsorted(times, end[mine], "right") - 1,
            )
            result[mine] = order[low + near]
    return result


def _count_samples(stacks: Stacks, spans: _Spans) -> I64:
    """Return for each stack how many samples of it fall on what sleeps, and on what runs.

    A place in the code is one at which threads sleep, or run: a sample that is noted late falls
    on what comes next.
    """
    events, number = _list_samples(stacks)
    counts = np.zeros((2, len(stacks.distinct)), np.int64)
    for thread in np.unique(spans.tid).tolist():
        mine = np.flatnonzero(spans.tid == thread)
        mine = mine[np.argsort(spans.begin[mine], kind="stable")]
        begin, end = spans.begin[mine], np.maximum.accumulate(spans.end[mine])
        sampled = stacks.tid[events] == thread
        of = stacks.stack[events[sampled]]
        times = stacks.time[events[sampled]] + number[sampled] * stacks.period
        at = np.searchsorted(begin, times, "right") - 1
        there = (at >= 0) & (of >= 0)
        there[there] = end[at[there]] > times[there]
        np.add.at(counts, (spans.runs[mine[at[there]]].astype(int), of[there]), 1)
    return counts


def _list_samples(stacks: Stacks) -> tuple[I64, I64]:
    """Return the rows of all samples, and which of its row each is: a row is noted at changes."""
    events = np.flatnonzero(stacks.kind == SAMPLE)
    events = _sort_by_thread(events, stacks.tid)
    time, tid = stacks.time[events], stacks.tid[events]
    same = np.append(np.diff(tid) == 0, np.zeros(min(1, len(tid)), np.bool_))
    until = np.where(same, np.append(time[1:], time[:1]), time + 1)
    period = max(1, stacks.period)
    count = np.clip((until - time + period // 2) // period, 1, _MOST_REPEATED)
    number = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    return np.repeat(events, count), number


def _find_sampled(stacks: Stacks, spans: _Spans, running: Bool) -> I64:
    """Return for each span the event with the stack of most samples within it; -1: not sampled.

    What runs takes no stack in which threads mostly sleep, as a sample that is noted late would
    give it, and the others none in which they mostly run.  What runs for less than a period has
    the stack that the samples before and after both have.
    """
    tid, begin, end, runs = spans
    events = np.flatnonzero(stacks.kind == SAMPLE)
    order = _sort_by_thread(events, stacks.tid)
    threads = stacks.tid[order]
    result = np.full(len(tid), -1, np.int64)
    period = max(1, stacks.period)
    for thread in np.unique(tid).tolist():
        low, high = np.searchsorted(threads, [thread, thread + 1])
        if low == high:
            continue
        mine = np.flatnonzero(tid == thread)
        times = stacks.time[order[low:high]]
        # A row for each stack that a segment may have something of; from its first sample on.
        first = np.maximum(np.searchsorted(times, begin[mine], "right") - 1, 0)
        count = np.maximum(np.searchsorted(times, end[mine], "left") - first, 0)
        row = np.repeat(np.arange(len(mine)), count)
        at = np.repeat(first - (np.cumsum(count) - count), count) + np.arange(len(row))
        until = np.append(times[1:], times[-1] + period)[at]
        since = np.maximum(begin[mine][row] - times[at], 0)
        # A sample lies beside its period: by its time the next row's first may be one of this.
        whole = np.maximum(until - times[at] - period // 2, 0) // period
        last = times[at] + whole * period
        upto = np.minimum(end[mine][row] - 1, last) - times[at]
        number = upto // period - (since + period - 1) // period + 1
        stack = stacks.stack[order[low + at]]
        between = runs[mine][row] & (times[at] <= begin[mine][row]) & (last >= end[mine][row])
        number = np.where(between, np.maximum(number, 1), number)
        number[(stack < 0) | (running[stack] != runs[mine][row])] = 0
        row, at, number = row[number > 0], at[number > 0], number[number > 0]
        best = np.lexsort((number, row))
        best = best[np.append(np.diff(row[best]) != 0, np.ones(min(1, len(best)), np.bool_))]
        result[mine[row[best]]] = order[low + at[best]]
    return result
