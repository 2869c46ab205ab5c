"""Plain twin of the sweep: whole timelines, one execution after the other, numpy after.

`walk` has the links of `build_graph` and every interval at hand; interrupts, who ran and
merging go over whole columns.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import replace

import numpy as np
from detailing import detailed

from critpath.graph.critical_path import blame_losses, overlaps_loss
from critpath.graph.execution_graph import build_graph
from critpath.model import RUNNING, CriticalPaths, State

HELD_BACK_NS = 2_000_000
HELD_BACK_SHARE = 0.1
NEARLY_ALL = 0.9
RECEIPT, ASKED = 3, 4
# Python looks an enum's member up slowly.
WAIT_CPU, UNKNOWN = State.WAIT_CPU, State.UNKNOWN
OWN = (State.WAIT_CPU, State.NET_TRANSIT, State.WAIT_TIMER, State.NET_TRANSIT)
WAITS = {s for s in State if s >= State.WAIT_TASK and s != State.WAIT_STOPPED}


class Graph:
    """The lists of an ExecutionGraph."""

    def __init__(self, graph):
        columns = ("start", "begin", "end", "state", "parent", "born", "link_start")
        links = ("link_time", "link_source", "link_sent", "link_kind")
        for name in (*columns, *links):
            setattr(self, name, getattr(graph, name).tolist())

    def before(self, worker, t):
        first = self.start[worker]
        i = bisect_left(self.begin, t, first, self.start[worker + 1]) - 1
        return i if i >= first and self.end[i] >= t else -1

    def into(self, worker, after, t, end, state):
        first = self.link_start[worker]
        i = bisect_right(self.link_time, t, first, self.link_start[worker + 1]) - 1
        while i >= first and self.link_kind[i] == ASKED:
            if self.link_time[i] == end == t and state == WAIT_CPU:
                return i
            i -= 1
        told = i
        while told >= first and self.link_kind[told] == 0:
            told -= 1
        if t == end and told >= first and self.link_kind[told] == RECEIPT:
            # What bytes of another host ended, they did whoever woke the thread.
            i = told if self.link_time[told] > after else i
        return i if i >= first and self.link_time[i] > after else -1


class Frame:
    """A worker that a walk is in, down to ``lo``."""

    def __init__(self, worker, lo, t):
        self.worker, self.lo, self.t, self.at = worker, lo, t, t + 1
        self.bypassed, self.rewound = None, False


class Walk:
    """One walk; ``out`` has (begin, end, worker, interval, state), latest first."""

    def __init__(self, graph, subject, lo, hi, asker=-1):
        self.g, self.out, self.frames = graph, [], [Frame(subject, lo, hi)]
        self.lo, self.asker = lo, asker
        while self.frames:
            self.step(self.frames[-1])

    def emit(self, begin, end, worker, interval, state):
        if end > begin:
            self.out.append((begin, end, worker, interval, state))

    def circular(self, source, t):
        if self.frames[-1].worker == source:
            return True
        for frame in self.frames[-2::-1]:
            if frame.at != t:
                return False
            if frame.worker == source:
                return True
        return False

    def follow(self, frame, link, s, t, e=-1):
        kind = self.g.link_kind[link]
        sent = max(min(self.g.link_sent[link], t - (kind == RECEIPT)), s)
        own = OWN[kind]
        # A sleep that goes on is still the interval's: its detail.
        self.emit(sent, t, frame.worker, e if kind == 2 else -1, own)
        frame.at, frame.t = t, s
        if sent > s:
            self.frames.append(Frame(self.g.link_source[link], s, sent))

    def step(self, f):
        g, t = self.g, f.t
        if t <= f.lo:
            self.frames.pop()
            return
        e = g.before(f.worker, t)
        if e < 0:
            self.unobserved(f, t)
            return
        s = max(g.begin[e], f.lo)
        link = g.into(f.worker, s, t, g.end[e], g.state[e])
        if link >= 0 and g.link_kind[link] == ASKED:
            source = g.link_source[link]
            if (
                g.link_sent[link] >= self.lo
                and source != self.asker
                and not self.circular(source, t)
            ):
                f.at, f.t = t, s
                self.frames.append(Frame(source, s, t))
                return
        elif link >= 0 and g.link_kind[link] == RECEIPT:
            if g.state[e] in WAITS and g.end[e] == t:
                self.emit(g.link_time[link], t, f.worker, e, g.state[e])
                self.follow(f, link, s, g.link_time[link])
                return
        elif link >= 0 and g.state[e] in WAITS:
            if g.link_time[link] == g.end[e] == t and not (
                g.link_sent[link] >= t and self.circular(g.link_source[link], t)
            ):
                self.follow(f, link, s, t, e)
                return
        elif link >= 0 and not f.rewound:
            f.bypassed = link, len(self.out), e, t
        self.emit(s, t, f.worker, e, g.state[e])
        f.t = s

    def unobserved(self, f, t):
        g = self.g
        parent, born = g.parent[f.worker], g.born[f.worker]
        if parent >= 0 and born <= t and not (born == t and self.circular(parent, t)):
            born = max(born, f.lo)
            self.emit(born, t, f.worker, -1, WAIT_CPU)
            f.at, f.t = t, f.lo
            if born > f.lo:
                self.frames.append(Frame(parent, f.lo, born))
            return
        if f.bypassed is not None and not f.rewound:
            link, count, e, top = f.bypassed
            at = g.link_time[link]
            if not (g.link_sent[link] >= at and self.circular(g.link_source[link], at)):
                del self.out[count:]
                self.emit(at, top, f.worker, e, g.state[e])
                f.rewound, f.bypassed = True, None
                self.follow(f, link, f.lo, at)
                return
        self.emit(f.lo, t, f.worker, -1, UNKNOWN)
        self.frames.pop()


def critical_paths(timelines, subjects, begin, end, *, interrupts=True):
    """Return the critical path of every execution, as `critpath.graph.execution_graph` should."""
    graph = Graph(build_graph(timelines))
    workers = timelines.workers
    rows = []
    for path, (subject, lo, hi) in enumerate(
        zip(subjects.tolist(), begin.tolist(), end.tolist(), strict=True)
    ):
        if subject < 0:
            found = [(lo, hi, -1, -1, UNKNOWN)] if hi > lo else []
        else:
            found = Walk(graph, subject, lo, hi).out[::-1]
        rows += [(path, *row) for row in found]
    table = np.array(rows, np.int64).reshape(-1, 6).T
    path, low, high, worker, interval, state = table
    state = state.astype(np.uint8)
    cpu = np.where(interval >= 0, _at(timelines.cpu, interval), -1).astype(np.int32)
    detail = np.where(interval >= 0, _at(timelines.detail, interval), 0).astype(np.int32)
    for i in range(len(low) - 2, -1, -1):
        same = worker[i] == worker[i + 1] and path[i] == path[i + 1]
        if state[i] == WAIT_CPU and cpu[i] < 0 and same:
            cpu[i] = cpu[i + 1]
    host = np.where(worker >= 0, _at(workers.host, worker), 0)
    number = {place: i for i, place in enumerate(timelines.processors)}
    processor = np.array(
        [number.get(place, -1) for place in zip(host.tolist(), cpu.tolist(), strict=True)],
        np.int64,
    )
    strings = list(timelines.strings)
    detail = _who_ran(timelines, low, high, state, processor, detail, strings)
    elsewhere = _elsewhere_idle(timelines, low, high, state, processor)
    if interrupts:
        pieces = _carve(timelines, low, high, state, processor)
        low, high, source, state, stolen = pieces
        worker, cpu, path, host = worker[source], cpu[source], path[source], host[source]
        elsewhere = elsewhere[source]
        detail = np.where(stolen >= 0, stolen, detail[source]).astype(np.int32)
    new = np.ones(len(low), bool)
    new[1:] = np.any([c[1:] != c[:-1] for c in (path, worker, state, detail, cpu)], axis=0)
    keep = np.flatnonzero(new)
    low, high = low[keep], high[np.append(keep[1:], len(low))[: len(keep)] - 1]
    path, worker, state, detail, cpu, host = (
        c[keep] for c in (path, worker, state, detail, cpu, host)
    )
    elsewhere = np.add.reduceat(elsewhere, keep) if len(keep) else elsewhere
    lossy = overlaps_loss(timelines.losses, host, low, high)
    made = detailed(
        CriticalPaths(
            start=np.searchsorted(path, np.arange(len(begin) + 1)),
            begin=low,
            end=high,
            state=state,
            detail=blame_losses(timelines.strings, state, detail, lossy),
            comm=np.where(worker >= 0, _at(workers.name, worker), 0).astype(np.int32),
            tid=np.where(worker >= 0, _at(workers.tid, worker), -1),
            host=host,
            cpu=cpu,
            lossy=lossy,
            strings=tuple(strings),
            elsewhere_idle=elsewhere,
        )
    )
    return replace(made, strings=tuple(timelines.strings))


def _at(column, index):
    return column[index] if len(column) else np.zeros(len(index), column.dtype)


def _who_ran(timelines, begin, end, state, processor, detail, strings):
    workers, detail = timelines.workers, detail.copy()
    waits = np.flatnonzero(state == State.WAIT_CPU).tolist()
    named = {}
    for i in waits:
        shares, last, p = {}, {}, processor[i]
        if p >= 0:
            lo, hi = timelines.ran_start[p : p + 2].tolist()
            first = lo + np.searchsorted(timelines.ran_end[lo:hi], begin[i], "right")
            for row in range(int(first), hi):
                if timelines.ran_begin[row] >= end[i]:
                    break
                time = min(timelines.ran_end[row], end[i]) - max(timelines.ran_begin[row], begin[i])
                who = int(timelines.ran_worker[row])
                shares[who] = shares.get(who, 0) + int(time)
                last[who] = row
        idle = sum(time for who, time in shares.items() if workers.idle_cpu[who] >= 0)
        longest = max(shares, key=shares.get) if any(shares.values()) else -1
        held_back = idle >= HELD_BACK_NS and idle >= HELD_BACK_SHARE * (end[i] - begin[i])
        if held_back or (longest >= 0 and workers.idle_cpu[longest] >= 0):
            longest = -2
        if longest >= 0:
            held = {w: t for w, t in shares.items() if t and workers.idle_cpu[w] < 0}
            if shares[longest] < NEARLY_ALL * sum(held.values()):
                longest = draw_rival(held, last, int(end[i]))
        named[i] = longest
    if waits:
        strings.append("idle")
    codes = {-1: 0, -2: len(strings) - 1}
    for who in sorted(set(named.values()) - {-1, -2}):
        codes[who] = len(strings)
        strings.append(f"{strings[workers.name[who]]} ({workers.tid[who]})")
    for i, who in named.items():
        detail[i] = codes[who]
    return detail


def draw_rival(held, last, end):
    """Return who had a moment of a wait that its end draws: by when they last ran, from the end."""
    left = scatter(end) % sum(held.values())
    for who in sorted(held, key=last.get, reverse=True):
        left -= held[who]
        if left < 0:
            return who
    raise AssertionError("no moment")


def scatter(time):
    """Return splitmix64's number of a time."""
    every = 2**64 - 1
    time = (time + 0x9E3779B97F4A7C15) & every
    time = ((time ^ (time >> 30)) * 0xBF58476D1CE4E5B9) & every
    time = ((time ^ (time >> 27)) * 0x94D049BB133111EB) & every
    return time ^ (time >> 31)


def _elsewhere_idle(timelines, begin, end, state, processor):
    """Return for every wait for a cpu how long any other processor of the host was idle."""
    result = np.zeros(len(begin), np.int64)
    idle = np.flatnonzero(timelines.workers.idle_cpu[timelines.ran_worker] >= 0)
    first, last = timelines.ran_begin[idle], timelines.ran_end[idle]
    of = np.repeat(np.arange(len(timelines.processors)), np.diff(timelines.ran_start))[idle]
    hosts = np.array([host for host, _ in timelines.processors], np.int64)
    for i in np.flatnonzero((state == State.WAIT_CPU) & (processor >= 0)).tolist():
        other = (hosts[of] == hosts[processor[i]]) & (of != processor[i])
        within = np.flatnonzero(other & (first < end[i]) & (last > begin[i]))
        low = np.maximum(first[within], begin[i]).tolist()
        high = np.minimum(last[within], end[i]).tolist()
        at = int(begin[i])
        for begun, ended in sorted(zip(low, high, strict=True)):
            if ended > max(begun, at):
                result[i] += ended - max(begun, at)
                at = ended
    return result


def _carve(timelines, begin, end, state, processor):
    pieces = []
    for i in range(len(begin)):
        at, p = int(begin[i]), processor[i]
        if p >= 0 and state[i] in RUNNING:
            lo, hi = timelines.stolen_start[p : p + 2].tolist()
            row = lo + int(np.searchsorted(timelines.stolen_end[lo:hi], at, "right"))
            while row < hi and timelines.stolen_begin[row] < end[i]:
                if timelines.stolen_begin[row] > at:
                    pieces.append((at, timelines.stolen_begin[row], i, state[i], -1))
                    at = timelines.stolen_begin[row]
                until = min(timelines.stolen_end[row], end[i])
                stolen = timelines.stolen_state[row], timelines.stolen_detail[row]
                pieces.append((at, until, i, *stolen))
                at, row = until, row + 1
        if at < end[i]:
            pieces.append((at, end[i], i, state[i], -1))
    low, high, source, kind, detail = np.array(pieces, np.int64).reshape(-1, 5).T
    return low, high, source, kind.astype(np.uint8), detail
