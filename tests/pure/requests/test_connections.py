"""Who waits for a connection that other requests hold: on drawings, and whatever servers do."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.model import State
from critpath.model.details import word_detail
from critpath.requests.connections import LaidWaits, Waits, _sum_until, find_pool_waits
from critpath.requests.links import attribute
from critpath.requests.paths import Composition

# Threads of one process (p.) that share connections a and b; what is found: request, from, to.
DRAWINGS = {
    "a thread sleeps until the one connection is given back": (
        ["p.x R1  sa      ra !p.y S1  sa3  ra3", "p.y   R2  z               sa2 ra2 S2"],
        [("2", "z", "!p.y")],
        "the only connection to x:6379",
    ),
    "two connections are held": (
        [
            "p.x R1 sa          ra !p.y S1      sa4 ra4",
            "p.y   R2  z                sa2 ra2    S2",
            "p.z R3 sb                      rb S3",
        ],
        [("2", "z", "!p.y")],
        "one of 2 connections to x:6379",
    ),
    "a connection was free": (
        [
            "p.x R1 sa          ra !p.y S1      sa4 ra4",
            "p.y   R2  z                sa2 ra2    S2",
            "p.z R3 sb rb  S3",
        ],
        [],
        "",
    ),
    "it slept for something else, and was woken by nobody of its process": (
        [
            "p.x R1  sa      ra     S1 sa3  ra3",
            "p.y   R2  z           sa2 ra2 S2",
            "net              !p.y",
        ],
        [],
        "",
    ),
    "it asked somebody else meanwhile": (
        ["p.x R1  sa      ra !p.y S1  sa3  ra3", "p.y   R2 sq z         rq  sa2 ra2 S2"],
        [],
        "",
    ),
    "it ran all the time": (
        ["p.x R1  sa      ra S1  sa3  ra3", "p.y   R2              sa2 ra2 S2"],
        [],
        "",
    ),
}


def found_in(load, tmp_path, lines):
    drawing = load("pure/requests/drawing.py")
    file = tmp_path / "drawn.txt"
    file.write_text("# it\n" + "\n".join(lines) + "\n")
    [each] = drawing.read_drawings(file)
    tables = drawing.draw(each)
    activity, workers, endpoints, requests = tables.arguments[:4]
    many = len(endpoints.host)
    ports = np.array([6400 if name == "q" else port for name, port in ends_of(tables, endpoints)])
    endpoints = replace(
        endpoints,
        opened_ns=np.zeros(many, np.int64),
        closed_ns=np.full(many, 10**9, np.int64),
        remote_port=ports.astype(np.int32),
        peer=np.full(many, -1, np.int32),
        strings=("x",),
    )
    found = attribute(activity, workers, endpoints, requests)
    waits = find_pool_waits(
        activity, workers, endpoints, found.requests, found.subrequests, found.slices
    )
    return each, tables, found, endpoints, waits


def ends_of(tables, endpoints):
    names = {}
    for name, row in zip(tables.names, tables.arguments[4].endpoint.tolist(), strict=True):
        names[row] = name[0]
    return [(names.get(at, ""), port) for at, port in enumerate(endpoints.remote_port.tolist())]


@pytest.mark.parametrize(("lines", "expected", "name"), DRAWINGS.values(), ids=DRAWINGS)
def test_drawn(load, tmp_path, lines, expected, name):
    each, tables, found, endpoints, waits = found_in(load, tmp_path, lines)
    told = [
        (tables.numbers[request], begin, end)
        for request, begin, end in zip(
            *(column.tolist() for column in (waits.request, waits.begin, waits.end)), strict=True
        )
    ]
    times = [
        (number, each.time("p.y", begin), each.time("p.x", end)) for number, begin, end in expected
    ]
    assert told == times
    assert tuple(map(word_detail, waits.details)) == ((name,) if name else ())
    rows = np.arange(len(found.requests))
    of = (tables.arguments[0], endpoints, found.requests, found.subrequests, found.slices, rows)
    plain = Composition(*of).cut(slice(None))
    pieces = Composition(*of, waits=(waits,)).cut(slice(None))
    # What is laid over tiles as before, and says what it is about.
    waiting = pieces.state == State.WAIT_POOL
    assert [pieces.details[code] for code in pieces.about[waiting]] == list(waits.details)
    assert (pieces.end - pieces.begin)[waiting].tolist() == [end - begin for _, begin, end in told]
    assert pieces.begin[pieces.start[:-1]].tolist() == plain.begin[plain.start[:-1]].tolist()
    inside = np.setdiff1d(np.arange(len(pieces.begin)), pieces.start)
    assert (pieces.begin[inside] == pieces.end[inside - 1]).all()


MOMENTS = st.integers(0, 1000)


@given(st.lists(st.tuples(MOMENTS, MOMENTS), max_size=8), MOMENTS, MOMENTS)
def test_how_long_waits_overlap_a_hold_is_what_a_plain_sum_says(pairs, one, other):
    waits = np.array([sorted(pair) for pair in pairs], np.int64).reshape(-1, 2)
    begin, end = sorted((one, other))
    low, high = _sum_until(np.array([begin, end], np.int64), *waits.T).tolist()
    assert high - low == sum(max(0, min(e, end) - max(b, begin)) for b, e in waits.tolist())


PIECES = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 20), st.booleans()), max_size=6)
WAITS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(1, 20)), max_size=6)


@given(PIECES, WAITS)
def test_waits_lie_where_a_plain_look_at_each_moment_lays_them(lengths, drawn):
    rows, at = [], dict.fromkeys(range(3), 0)
    for request, length, flies in lengths:
        state = State.NET_TRANSIT if flies else State.SHARED
        rows.append((7, at[request], at[request] + length, int(state), 5, request))
        at[request] += length
    table = np.array(rows, np.int64).reshape(-1, 6)
    start = np.arange(len(rows) + 1)  # a path of each piece
    columns = np.array([(r, b, b + n, code) for code, (r, b, n) in enumerate(drawn)], np.int64)
    request, begin, end, about = columns.reshape(-1, 4).T.copy()
    waits = Waits(
        request, begin, end, about, tuple(map(str, range(int(about.max(initial=-1)) + 1)))
    )
    begins, laid, pool = LaidWaits((waits,)).lay(start, table)
    for number, (_, since, to, state, _, of) in enumerate(rows):
        mine = slice(begins[number], begins[number + 1])
        told = {}
        for (_, low, high, found, _, whose), code in zip(
            laid[mine].tolist(), pool[mine].tolist(), strict=True
        ):
            assert (found, whose) == (state if code < 0 else int(State.WAIT_POOL), of)
            for moment in range(low, high):
                assert told.setdefault(moment, code) == code
        wanted = dict.fromkeys(range(since, to), -1)
        if state != State.NET_TRANSIT:
            for who, low, high, code in sorted(columns.reshape(-1, 4).tolist()):
                for moment in range(max(low, since), min(high, to)) if who == of else ():
                    wanted[moment] = wanted[moment] if wanted[moment] >= 0 else code
        assert told == wanted


@pytest.mark.parametrize("connections", [1, 16])
def test_who_waits_in_servers_of_every_class(load, connections):
    simulate, drawing = load("pure/requests/simulate.py"), load("pure/requests/drawing.py")
    waited = set()
    for seed, name in enumerate(simulate.CLASSES):
        world = simulate.simulate(name, connections, 60, seed)
        activity, workers, endpoints, requests = simulate.arguments(world, drawing)[:4]
        many = len(endpoints.host)
        endpoints = replace(
            endpoints,
            opened_ns=np.zeros(many, np.int64),
            closed_ns=np.full(many, activity.time_ns.max() + 1, np.int64),
        )
        found = attribute(activity, workers, endpoints, requests)
        tables = found.requests, found.subrequests, found.slices
        waits = find_pool_waits(activity, workers, endpoints, *tables)
        if len(waits.request):
            waited.add(name)
        assert (waits.end > waits.begin).all()
        assert (waits.begin >= found.requests.begin_ns[waits.request]).all()
        assert (waits.end <= found.requests.end_ns[waits.request]).all()
    # Of mixed kinds it is doubtful who asks, but not how many wait.
    of_three = {"loop, a pool of 3 (asyncio)", "loop, a pool of 3, mixed kinds"}
    assert waited == (of_three if connections > 3 else set())


def simulate_pool(simulate, monkeypatch, seed, **more):
    """Return a loop's recording, and how long requests waited for its pool in truth."""
    spent = [0]

    class Waiters(deque):
        def append(self, item):
            spent[0] -= world.now
            super().append(item)

        def popleft(self):
            spent[0] += world.now
            return super().popleft()

    class Pool(simulate.Pool):
        def __init__(self, *args):
            super().__init__(*args)
            self.waiters = Waiters()

    monkeypatch.setattr(simulate, "Pool", Pool)
    world = simulate.World(seed)
    simulate.asyncio(world, 16, 150, **more)
    world.run()
    return simulate.tabulate(world), spent[0]


@pytest.mark.parametrize(
    ("how", "near"),
    [
        ({"size": 3}, 0.15),
        ({"size": 3, "kinds": (1, 2)}, 0.25),  # a loop that works for others is what holds up
        ({"size": 2, "kinds": (0, 1, 2)}, 0.2),
        ({"nap_ns": 2e6}, 0.0),
        ({"kinds": (0, 1, 2)}, 0.0),
        ({"hops": 3}, 0.0),
        ({"size": 14, "nap_ns": 8e6}, 0.0),
    ],
)
def test_as_long_as_requests_of_a_loop_wait_though_nobody_knows_whose_calls_are(
    load, monkeypatch, how, near
):
    simulate, drawing = load("pure/requests/simulate.py"), load("pure/requests/drawing.py")
    truth = told = lasted = 0
    for seed in range(3):
        world, spent = simulate_pool(simulate, monkeypatch, seed, **how)
        activity, workers, endpoints, requests = simulate.arguments(world, drawing)[:4]
        many = len(endpoints.host)
        endpoints = replace(
            endpoints,
            opened_ns=np.zeros(many, np.int64),
            closed_ns=np.full(many, activity.time_ns.max() + 1, np.int64),
        )
        found = attribute(activity, workers, endpoints, requests)
        nobodys = replace(
            found.subrequests,
            request=np.full(len(found.subrequests), -1, np.int32),
            attribution=np.full(len(found.subrequests), 2, np.uint8),
        )
        waits = find_pool_waits(activity, workers, endpoints, found.requests, nobodys, found.slices)
        truth, told = truth + spent, told + int((waits.end - waits.begin).sum())
        lasted += int((found.requests.end_ns - found.requests.begin_ns).sum())
    assert abs(told - truth) <= near * truth + 0.002 * lasted, (told, truth, lasted)
