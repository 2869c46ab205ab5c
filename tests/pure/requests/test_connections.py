"""Who waits for a connection that other requests hold: on drawings, and whatever servers do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.model import State
from critpath.requests.connections import _sum_until, find_pool_waits
from critpath.requests.links import attribute
from critpath.requests.paths import compose_paths

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
    assert waits.names == ((name,) if name else ())
    rows = np.arange(len(found.requests))
    of = (tables.arguments[0], endpoints, found.requests, found.subrequests, found.slices, rows)
    plain, _ = compose_paths(*of)
    pieces, _ = compose_paths(*of, waits=waits)
    # What is laid over tiles as before, and says what it is about.
    waiting = pieces.state == State.WAIT_POOL
    assert [pieces.names[code] for code in pieces.about[waiting]] == list(waits.names)
    assert (pieces.end - pieces.begin)[waiting].tolist() == [end - begin for _, begin, end in told]
    assert pieces.begin[pieces.start[:-1]].tolist() == plain.begin[plain.start[:-1]].tolist()
    inside = np.setdiff1d(np.arange(len(pieces.begin)), pieces.start)
    assert (pieces.begin[inside] == pieces.end[inside - 1]).all()


MOMENTS = st.integers(0, 1000)


@given(st.lists(st.tuples(MOMENTS, MOMENTS), max_size=8), MOMENTS, MOMENTS)
def test_how_long_waits_overlap_a_hold_is_what_a_plain_sum_says(pairs, one, other):
    waits = [(0, *sorted(pair)) for pair in pairs]
    begin, end = sorted((one, other))
    low, high = _sum_until(np.array([begin, end], np.int64), waits).tolist()
    assert high - low == sum(max(0, min(e, end) - max(b, begin)) for _, b, e in waits)


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
    # Of mixed kinds it is doubtful who asks, so nothing is known of who waits.
    assert waited == ({"loop, a pool of 3 (asyncio)"} if connections > 3 else set())
