"""Who did what around gaps: the same as in the whole recording, or nobody known."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_endpoints import no_workers

from critpath.model import EventChunk, EventClass, Kind, Workers
from critpath.model.gaps import BASE, Gaps, make_gaps
from critpath.model.requests import Act
from critpath.requests.activity import ActivityEvents

WIDTHS = {
    Kind.SWITCH: 5,
    Kind.WAKING: 4,
    Kind.FORK: 4,
    Kind.IRQ_ENTRY: 1,
    Kind.IRQ_EXIT: 1,
    Kind.SOFTIRQ_ENTRY: 1,
    Kind.SOFTIRQ_EXIT: 1,
    Kind.SOCKET_SEND: 4,
    Kind.SOCKET_RECEIVE: 5,
    Kind.SOCKET_ARRIVAL: 3,
}
HOSTS, CPUS = 2, 3
KINDS = [(host, kind) for host in range(HOSTS) for kind in WIDTHS]
CLASSES = [
    EventClass(k.name, k, tuple(map(str, range(WIDTHS[k]))), ("int",) * WIDTHS[k], host=host)
    for host, k in KINDS
]
SOCKETS = [1 << 40, 2 << 40, 3 << 40]
MOVES, ABOUT = (Act.SEND, Act.RECEIVE), (Act.WAKE, Act.CREATE)


def live(rng: random.Random, count: int) -> list[tuple[int, int, int, Kind, list[int]]]:
    """Return what two hosts do: cpus switch, are interrupted, wake and use sockets."""
    on = {(h, c): 10 * (c + 1) for h in range(HOSTS) for c in range(CPUS)}
    within: dict[tuple[int, int], list[Kind]] = {key: [] for key in on}
    events = []
    for time in range(1, 7 * count, 7):
        key = host, cpu = rng.choice(list(on))
        inside = within[key]
        what = rng.choice(["switch", "wake", "move", "arrival", "enter", "leave", "leave", "fork"])
        if what in {"switch", "move", "fork"} and inside:
            what = "wake"
        if what == "switch":
            before, on[key] = on[key], rng.choice([0, *(10 * (cpu + 1) + n for n in range(4))])
            events.append((time, host, cpu, Kind.SWITCH, [0, before, 1, 0, on[key]]))
        elif what == "wake":
            events.append((time, host, cpu, Kind.WAKING, [rng.randint(1, 40), 0, 0, 0]))
        elif what == "arrival":
            events.append((time, host, cpu, Kind.SOCKET_ARRIVAL, [rng.choice(SOCKETS), 2, 6]))
        elif what == "move" and on[key]:
            fields = [rng.choice(SOCKETS), 2, 6, 100]
            kind = rng.choice([Kind.SOCKET_SEND, Kind.SOCKET_RECEIVE])
            more = [0] if kind == Kind.SOCKET_RECEIVE else []
            events.append((time, host, cpu, kind, fields + more))
        elif what == "fork" and on[key]:
            events.append((time, host, cpu, Kind.FORK, [on[key], 0, 1000 + time, 0]))
        elif what == "enter" and len(inside) < 2:
            kind = Kind.IRQ_ENTRY if inside else rng.choice([Kind.IRQ_ENTRY, Kind.SOFTIRQ_ENTRY])
            inside.append(kind)
            events.append((time, host, cpu, kind, [7]))
        elif what == "leave" and inside:
            ends = {Kind.IRQ_ENTRY: Kind.IRQ_EXIT, Kind.SOFTIRQ_ENTRY: Kind.SOFTIRQ_EXIT}
            events.append((time, host, cpu, ends[inside.pop()], [7]))
    return events


def draw(rng: random.Random, end: int, count: int) -> Gaps:
    rows = []
    for host in range(HOSTS):
        marks = sorted(rng.sample(range(end), 2 * count))
        for begin, stop in zip(marks[::2], marks[1::2], strict=True):
            closed, opening = sorted((rng.randint(begin, stop), rng.randint(begin, stop)))
            rows.append((begin, closed, opening, stop, BASE, 4, host))
    return make_gaps(sorted(rows))


def feed(events, gaps: Gaps, pieces: int, *, every: bool = True):
    """Return what events tell, fed so many at a time."""
    runnable = np.array([[0]] * HOSTS, np.int64)
    found = ActivityEvents(runnable, waking=True, gaps=gaps, every=every)
    size = max(len(events) // pieces, 1)
    for at in range(0, len(events), size):
        part = events[at : at + size]
        offsets = np.cumsum([0, *(len(e[4]) for e in part)])[:-1]
        chunk = EventChunk(
            np.array([e[0] for e in part], np.int64),
            np.array([e[2] for e in part], np.int32),
            np.array([KINDS.index((e[1], e[3])) for e in part], np.int32),
            offsets.astype(np.int64),
            np.array([v for e in part for v in e[4]], np.int64),
        )
        found.feed(chunk, CLASSES)
    return found


def collect(events, gaps: Gaps, pieces: int):
    """Return of each act who did it."""
    made = feed(events, gaps, pieces).finish(no_workers(), ("",))
    of = made.activity
    sockets = [int(made.endpoints[e, 0]) if e >= 0 else 0 for e in of.endpoint.tolist()]
    columns = (of.time_ns, of.act, of.host, of.value)
    acts = zip(*(column.tolist() for column in columns), sockets, strict=True)
    return dict(zip(acts, of.tid.tolist(), strict=True))


def list_rows(of):
    columns = of.time_ns, of.act, of.tid, of.host, of.endpoint, of.value
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_of_threads_that_use_no_socket_only_what_is_to_those_that_do_is_kept():
    """As events are collected, and before they are a table: the same rows as of the whole table."""
    fewer, siblings = 0, 0
    for seed in range(40):
        rng = random.Random(seed)  # noqa: S311 - drawn worlds
        events = live(rng, rng.choice([30, 80, 600]))
        tids = np.array([t for _ in range(HOSTS) for t in range(10, 10 * CPUS + 14)], np.int64)
        hosts = np.repeat(np.arange(HOSTS), len(tids) // HOSTS)
        pids = np.where(tids % 10 < seed % 4, tids // 2 * 2, -1)
        rest = (np.zeros(len(tids), np.int64),) * 4
        small = rest[0].astype(np.int32)
        workers = Workers(hosts, tids, pids, small, *rest, small)
        every = list_rows(feed(events, Gaps(), 1).finish(workers, ("",)).activity)
        users = {(host, tid) for _, act, tid, host, *_ in every if act in MOVES}
        lives = list(zip(hosts.tolist(), tids.tolist(), pids.tolist(), strict=True))
        shared = {(h, p) for h, t, p in lives if (h, t) in users and p > 0}
        threads = users | {(h, t) for h, t, p in lives if (h, p) in shared}
        siblings += len(threads) > len(users)
        want = [
            row for row in every
            if row[4] >= 0 or (row[3], row[2]) in threads
            or (row[1] in ABOUT and (row[3], row[5]) in threads)
        ]  # fmt: skip
        kept = feed(events, Gaps(), 3, every=False).finish(workers, ("",))
        assert list_rows(kept.activity) == want, seed
        fewer += len(want) < len(every)
    assert fewer > 10
    assert siblings > 5


@pytest.mark.parametrize("seed", range(60))
def test_after_a_gap_nobody_is_taken_for_another(seed):
    rng = random.Random(seed)  # noqa: S311 - drawn worlds
    events = live(rng, 600)
    gaps = draw(rng, events[-1][0], rng.randint(1, 8))
    kept = [
        e
        for e in events
        if e[3] == Kind.FORK
        or not ((gaps.host == e[1]) & (gaps.closed < e[0]) & (e[0] < gaps.opening)).any()
    ]
    whole = collect(events, Gaps(), 1)
    cut = collect(kept, gaps, rng.randint(1, 40))
    times, hosts = (np.array([act[at] for act in whole]) for at in (0, 2))
    clear = ~gaps.overlap(hosts, times, times + 1)
    lives = {act for act in whole if act[1] == Act.CREATE}
    assert set(cut) == {act for act, seen in zip(whole, clear, strict=True) if seen} | lives
    switches = [(e[0], e[1], e[2]) for e in kept if e[3] == Kind.SWITCH]
    cpu_of = {(e[0], e[1]): e[2] for e in events}
    unknown = 0
    for act, tid in cut.items():
        if tid == whole[act]:
            continue
        assert tid == -1, act
        unknown += 1
        # Whoever had a cpu when a switch comes after it is known, but for interrupts' doing.
        if act[1] in {Act.SEND, Act.RECEIVE}:
            later = [t for t, h, c in switches if (h, c) == (act[2], cpu_of[act[0], act[2]])]
            begins = gaps.begin[(gaps.host == act[2]) & (gaps.begin > act[0])]
            until = int(begins.min()) if len(begins) else 1 << 60
            assert not any(act[0] < t < until for t in later), act
    assert unknown < len(cut) / 3
