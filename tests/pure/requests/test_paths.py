"""Paths of requests are cut where their sketches are: on simulated servers, and on drawings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.model import STATES, State
from critpath.model.requests import Certainty
from critpath.requests.links import attribute, find_missing, judge_attribution
from critpath.requests.paths import Composition

SEEDS = st.integers(0, 2**31)


def composed(arguments: Any) -> Any:
    """Return what is attributed, the pieces of all requests, and how many are in doubt."""
    activity, workers, endpoints, requests = arguments
    requests = replace(requests, boundary=np.zeros(len(requests), np.uint8))
    found = attribute(activity, workers, endpoints, requests)
    rows = np.arange(len(found.requests))
    tables = found.requests, found.subrequests, found.slices
    missing = find_missing(workers, endpoints, *tables[:2])
    doubted = judge_attribution(len(rows), found.subrequests, missing) == Certainty.DOUBTFUL
    made = Composition(activity, endpoints, *tables, rows, doubted=doubted)
    return found, made.cut(slice(None)), made.left


@pytest.mark.parametrize("connections", [1, 16])
def test_pieces_tile_every_request_of_every_class(load: Any, connections: int) -> None:
    simulate, drawing = load("pure/requests/simulate.py"), load("pure/requests/drawing.py")
    for seed, name in enumerate(simulate.CLASSES):
        world = simulate.simulate(name, connections, 60, seed)
        found, pieces, _ = composed(simulate.arguments(world, drawing)[:4])
        requests = found.requests
        first, last = pieces.start[:-1], pieces.start[1:] - 1
        assert (last >= first).all(), name
        np.testing.assert_array_equal(pieces.begin[first], requests.begin_ns, name)
        np.testing.assert_array_equal(pieces.end[last], requests.end_ns, name)
        inside = np.setdiff1d(np.arange(1, len(pieces.begin)), first)
        np.testing.assert_array_equal(pieces.begin[inside], pieces.end[inside - 1], name)
        assert (pieces.end > pieces.begin).all(), name


@given(st.data())
def test_what_always_holds_of_requests(load: Any, data: Any) -> None:
    """Own and asked time are the latency; who asks lasts from before to after; pieces tile."""
    simulate, drawing = load("pure/requests/simulate.py"), load("pure/requests/drawing.py")
    name = data.draw(st.sampled_from(list(simulate.CLASSES)))
    world = simulate.simulate(
        name, data.draw(st.integers(1, 40)), data.draw(st.integers(2, 40)), data.draw(SEEDS)
    )
    found, pieces, _ = composed(simulate.arguments(world, drawing)[:4])
    requests, slices = found.requests, found.slices
    latency = requests.end_ns - requests.begin_ns
    np.testing.assert_array_equal(requests.true_ns + requests.asked_ns, latency, name)
    assert (requests.true_ns >= 0).all()
    child = np.flatnonzero(requests.parent >= 0)
    above = requests.parent[child]
    assert (requests.begin_ns[above] <= requests.begin_ns[child]).all()
    assert (requests.end_ns[above] >= requests.end_ns[child]).all()
    mine = np.flatnonzero(slices.request >= 0)
    assert (slices.begin_ns[mine] >= requests.begin_ns[slices.request[mine]]).all()
    assert (slices.end_ns[mine] <= requests.end_ns[slices.request[mine]]).all()
    order = np.lexsort((slices.begin_ns, slices.tid))
    same = slices.tid[order][1:] == slices.tid[order][:-1]
    assert (slices.begin_ns[order][1:] >= slices.end_ns[order][:-1])[same].all()
    of = np.repeat(np.arange(len(requests)), np.diff(pieces.start))
    whole = np.bincount(of, pieces.end - pieces.begin, len(requests))
    np.testing.assert_array_equal(whole, latency, name)


@pytest.mark.parametrize("doubtful", [False, True])
def test_the_native_pieces_are_those_of_the_plain_twin(load: Any, doubtful: bool) -> None:
    simulate, drawing = load("pure/requests/simulate.py"), load("pure/requests/drawing.py")
    twin = load("oracle/pieces.py")
    some = 0
    for seed, name in enumerate(simulate.CLASSES):
        for connections in (1, 5, 16):
            world = simulate.simulate(name, connections, 30, seed)
            activity, workers, endpoints, requests = simulate.arguments(world, drawing)[:4]
            requests = replace(requests, boundary=np.zeros(len(requests), np.uint8))
            found = attribute(activity, workers, endpoints, requests)
            rows = np.random.default_rng(seed).permutation(len(requests))
            tables = (found.requests, found.subrequests, found.slices, rows)
            made = Composition(activity, endpoints, *tables, doubtful=doubtful)
            pieces, left = made.cut(slice(None)), made.left
            table = [pieces.host, pieces.tid, pieces.begin, pieces.end, pieces.state]
            each = list(zip(*(column.tolist() for column in table), strict=True))
            bounds = zip(pieces.start[:-1], pieces.start[1:], strict=True)
            expected, in_doubt = twin.compose(activity, endpoints, *tables, doubtful=doubtful)
            bare = [[piece[:-1] for piece in request] for request in expected]
            assert [each[low:high] for low, high in bounds] == bare, name
            sure = [piece[-1] for request in expected for piece in request]
            assert pieces.confidence.tolist() == pytest.approx(sure)
            assert left == in_doubt
            some += left
    assert doubtful or some > 0


def test_a_request_goes_on_in_the_tiers_that_it_asks(load: Any) -> None:
    simulate, drawing = load("pure/requests/simulate.py"), load("pure/requests/drawing.py")
    world = simulate.simulate("two tiers and a database", 4, 100, 3)
    found, pieces, doubtful = composed(simulate.arguments(world, drawing)[:4])
    assert not doubtful
    requests = found.requests
    row_of = np.repeat(np.arange(len(requests)), np.diff(pieces.start))
    for row in np.flatnonzero(requests.parent < 0).tolist():
        below = [row]
        for each in below:
            below += np.flatnonzero(requests.parent == each).tolist()
        threads = {*requests.tid[below].tolist(), *requests.reader_tid[below].tolist()}
        assert {*pieces.tid[row_of == row].tolist()} == threads
        assert len(below) == 3


def test_who_waits_behind_others_knows_who_asked_for_them(load: Any) -> None:
    simulate, drawing = load("pure/requests/simulate.py"), load("pure/requests/drawing.py")
    world = simulate.simulate("two tiers and a database", 16, 100, 3)
    found, pieces, _ = composed(simulate.arguments(world, drawing)[:4])
    waits = pieces.state == State.QUEUED
    assert (pieces.by[~waits] == -1).all()
    asked = np.flatnonzero(waits & (pieces.by >= 0))
    assert len(asked) > 20
    known = set(found.subrequests.tid[found.subrequests.child >= 0].tolist())
    assert {int(by) & 0xFFFFFFFF for by in pieces.by[asked]} <= known


# What is to be found: thread, what it is there, begin and end in columns from the first line's
# begin; "walk" where the thread's own path tells.
DRAWINGS = (
    (
        "who is served later waits behind who is served first",
        "w1  R1      S1    R2   S2",
        "net A1  A2",
        "2",
        [("w1", "QUEUED", 8, 12), ("w1", "walk", 12, 18), ("w1", "walk", 18, 23)],
    ),
    (
        "between two of them it waits too",
        "w1  R1   S1  R3  S3 R2   S2",
        "net A1 A2      A3",
        "2",
        [("w1", "QUEUED", 7, 17), ("w1", "walk", 17, 20), ("w1", "walk", 20, 25)],
    ),
    (
        "a thread that others do not use is walked",
        "w1  R1  sa   ra  S1",
        "net A1",
        "1",
        [("w1", "walk", 4, 8), ("w1", "walk", 8, 17)],
    ),
    (
        "what a loop asks of another machine is a wait for it, whatever it did meanwhile",
        "lp  R1 sa R2 S2   ra S1",
        "net A1    A2",
        "1",
        [("lp", "walk", 4, 7), ("lp", "WAIT_NET", 7, 18), ("lp", "walk", 18, 21)],
    ),
)


@pytest.mark.parametrize(
    ("first", "second", "request_", "expected"),
    [each[1:] for each in DRAWINGS],
    ids=[each[0] for each in DRAWINGS],
)
def test_drawn(
    load: Any, tmp_path: Path, first: str, second: str, request_: str, expected: list[Any]
) -> None:
    drawing = load("pure/requests/drawing.py")
    file = tmp_path / "drawn.txt"
    file.write_text(f"# it\n{first}\n{second}\n")
    [each] = drawing.read_drawings(file)
    tables = drawing.draw(each)
    _, pieces, doubtful = composed(tables.arguments[:4])
    assert not doubtful
    names = {tid: name for name, tid in tables.tids.items()}
    row = tables.numbers.index(request_)
    found = [
        (
            names[int(pieces.tid[k])],
            STATES[pieces.state[k]] if pieces.state[k] else "walk",
            *(round(int(t[k]) / drawing.COLUMN) for t in (pieces.begin, pieces.end)),
        )
        for k in range(pieces.start[row], pieces.start[row + 1])
    ]
    assert found == expected


def test_doubt_about_what_was_asked_is_counted_and_not_followed(load: Any) -> None:
    simulate, drawing = load("pure/requests/simulate.py"), load("pure/requests/drawing.py")
    world = simulate.simulate("loop, unequal sleeps", 16, 100, 1)
    found, pieces, doubtful = composed(simulate.arguments(world, drawing)[:4])
    assert doubtful > 0.7 * len(found.requests)
    assert State.WAIT_NET not in pieces.state
    assert State.SHARED in pieces.state
