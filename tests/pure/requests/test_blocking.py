"""What holds a loop while requests wait for it: on drawings whose truth is drawn, and simulated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.model import State
from critpath.model.requests import Act, Certainty, Rule
from critpath.requests.blocking import _subtract, find_arrivals
from critpath.requests.held import Held, note_blocked
from critpath.requests.links import attribute
from critpath.requests.paths import Composition

# One column is 1 ms.  lp is the loop; what is found: call or "-", from, to, whose.
DRAWINGS = {
    "a call while another request is there": (
        ["lp R1 R2 sa z       ra S1 S2 R3 S3", "net    A3     !lp"],
        [("a", "sa", "ra", "1")],
    ),
    "the answer came while it slept for something else": (
        ["lp R1 R2 sa z           ra S1 S2 R3 S3", "net        Va A3   !lp"],
        [("-", "z", "net:!lp", "")],
    ),
    "it waits in epoll: what arrives wakes it": (
        ["lp R1 R2 sa z   R3   z   ra S1 S3 S2", "net            !lp     !lp"],
        [],
    ),
    "a sleep of its own": (
        ["lp R1 R2 z           S2 R3 S3 S1", "net         A3    !lp"],
        [("-", "z", "net:!lp", "2")],
    ),
    "two calls of one request after each other": (
        ["lp R1 R2 sa z     ra sb z     rb S2 R3 S3 S1", "net   A3     !lp         !lp"],
        [("a", "sa", "ra", "2"), ("b", "sb", "rb", "2")],
    ),
    "who goes on after it is not known, as something else is received first": (
        ["lp R1 R2 z         R3 S2 S3 S1", "net         A3  !lp"],
        [("-", "z", "net:!lp", "")],
    ),
    "no loop: it serves one at a time": (
        ["lp R1 sa z        ra S1 R2 S2", "net         A2 !lp"],
        [],
    ),
}


def drawn(load, tmp_path, monkeypatch, lines):
    drawing = load("pure/requests/drawing.py")
    monkeypatch.setattr(drawing, "COLUMN", 1_000_000)
    file = tmp_path / "drawn.txt"
    file.write_text("# it\n" + "\n".join(lines) + "\n")
    [each] = drawing.read_drawings(file)
    tables = drawing.draw(each)
    activity, workers, endpoints, requests = tables.arguments[:4]
    many = len(endpoints.host)
    endpoints = replace(
        endpoints,
        opened_ns=np.zeros(many, np.int64),
        closed_ns=np.full(many, 10**12, np.int64),
        peer=np.full(many, -1, np.int32),
        strings=("x",),
    )
    requests = replace(
        requests,
        boundary=np.zeros(len(requests), np.uint8),
        message=np.arange(len(requests), dtype=np.int32) + 2,
        strings=(*requests.strings, *(f"GET /{number}" for number in tables.numbers)),
    )
    return each, tables, endpoints, attribute(activity, workers, endpoints, requests)


@pytest.mark.parametrize(("lines", "expected"), DRAWINGS.values(), ids=DRAWINGS)
def test_drawn(load, tmp_path, monkeypatch, lines, expected):
    each, tables, _, found = drawn(load, tmp_path, monkeypatch, lines)
    blocked = found.blocked
    columns = (blocked.call, blocked.begin, blocked.end, blocked.owner)
    told = [
        (
            tables.names[call] if call >= 0 else "-",
            begin,
            end,
            tables.numbers[owner] if owner >= 0 else "",
        )
        for call, begin, end, owner in zip(*(c.tolist() for c in columns), strict=True)
    ]
    times = [(call, each.time("lp", b), each.time("lp", e), own) for call, b, e, own in expected]
    assert told == times
    subs, slices = found.subrequests, found.slices
    for call, owner in zip(blocked.call.tolist(), blocked.owner.tolist(), strict=True):
        if call >= 0 and owner >= 0:
            assert (subs.request[call], subs.attribution[call]) == (owner, Certainty.LIKELY)
            assert subs.how[call] == Rule.BLOCKED
    # A slice says the same, and none overlaps another.
    for begin, end, owner in zip(*(c.tolist() for c in columns[1:]), strict=True):
        inside = (slices.begin_ns <= begin) & (slices.end_ns >= end)
        assert owner in slices.request[inside].tolist()
    assert (slices.begin_ns[1:] >= slices.end_ns[:-1]).all()


def test_who_waits_for_a_blocked_loop_is_told_what_blocked_it(load, tmp_path, monkeypatch):
    lines, _ = DRAWINGS["a call while another request is there"]
    _, tables, endpoints, found = drawn(load, tmp_path, monkeypatch, lines)
    endpoints = replace(endpoints, remote_address=np.zeros(len(endpoints), np.int32))
    row = tables.numbers.index("3")
    of = (tables.arguments[0], endpoints, found.requests, found.subrequests, found.slices)
    made = Composition(*of, np.array([row]), held=Held(*of[1:], found.blocked))
    pieces = made.cut(slice(None))
    queued = np.flatnonzero(pieces.state == State.QUEUED)
    [detail] = {pieces.details[code] for code in pieces.about[queued].tolist()}
    assert detail.loop == "server"
    assert detail.asks == "x:6379"
    assert detail.request == f"GET /{tables.numbers[tables.numbers.index('1')]}"
    assert detail.under_way == 3


LONG = " " * 60


@pytest.mark.parametrize("line", [f"lp R1 R2 R3{LONG}S2  S1 S3", f"lp R1 R2 R3 S2{LONG}S2  S1 S3"])
def test_what_a_loop_runs_for_long_is_of_whom_it_answers_then(load, tmp_path, monkeypatch, line):
    lines = [line]
    _, tables, _, found = drawn(load, tmp_path, monkeypatch, lines)
    long = np.flatnonzero(found.slices.run_ns >= 10 * 1_000_000)
    assert [tables.numbers[of] for of in found.slices.request[long].tolist()] == ["2"]
    assert found.slices.attribution[long].tolist() == [Certainty.LIKELY]


TIMES = st.lists(st.integers(0, 100), unique=True, max_size=12).map(sorted)


def stretches(times):
    return np.array(times[: len(times) // 2 * 2], np.int64).reshape(-1, 2)


@given(TIMES.map(stretches), TIMES.map(stretches))
def test_what_is_left_of_stretches_is_what_a_plain_sieve_leaves(some, others):
    row, begin, end = _subtract((some[:, 0], some[:, 1]), (others[:, 0], others[:, 1]))
    found = [
        (int(at), moment)
        for at, low, high in zip(row, begin, end, strict=True)
        for moment in range(low, high)
    ]
    taken = {moment for low, high in others.tolist() for moment in range(low, high)}
    expected = [
        (at, moment)
        for at, (low, high) in enumerate(some.tolist())
        for moment in range(low, high)
        if moment not in taken
    ]
    assert found == expected
    assert (end > begin).all()


@pytest.mark.parametrize("connections", [4, 16])
def test_no_simulated_loop_is_blocked(load, connections):
    """They all wait in epoll."""
    simulate, drawing = load("pure/requests/simulate.py"), load("pure/requests/drawing.py")
    for seed, name in enumerate(simulate.CLASSES):
        world = simulate.simulate(name, connections, 60, seed)
        activity, workers, endpoints, requests = simulate.arguments(world, drawing)[:4]
        requests = replace(requests, boundary=np.zeros(len(requests), np.uint8))
        assert (activity.act == Act.SLEEP).any() or name
        found = attribute(activity, workers, endpoints, requests)
        assert not len(found.blocked.key), name


def test_that_a_loop_was_blocked_is_noted(load, tmp_path, monkeypatch):
    lines, _ = DRAWINGS["a call while another request is there"]
    _, tables, endpoints, found = drawn(load, tmp_path, monkeypatch, lines)
    endpoints = replace(endpoints, remote_address=np.zeros(len(endpoints), np.int32))
    of = (endpoints, found.requests, found.subrequests, found.slices, found.blocked)
    [note] = note_blocked(Held(*of))
    assert (note.service, note.target, note.waits) == ("server", "x:6379", 1)
    begin, end = found.requests.begin_ns.min(), found.requests.end_ns.max()
    [call] = (found.blocked.end - found.blocked.begin).tolist()
    assert note.share == pytest.approx(call / (end - begin))
    row = tables.numbers.index("3")
    waited = found.requests.received_ns[row] - found.requests.begin_ns[row]
    assert note.mean_ns == waited
    nothing = type(found.blocked)(*(np.zeros(0, np.int64),) * 6)
    assert not note_blocked(Held(*of[:-1], nothing))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        # Two clients wake the loop; a is what it asks, and d a thread that helps it.
        (
            [
                "lp.x R1 sa z    R2 z    ra z    S1 z    S2",
                "c.y        A2 !lp",
                "d.x                           !lp",
                "b.z               Va !lp",
                "net                               A3 !lp",
            ],
            [("c.y:!lp", "2")],
        ),
        # No loop: what wakes it is its own.
        (["w.x R1 z    R1 S1 z    R2 S2", "c.y    A1 !w.x      A2 !w.x"], []),
    ],
)
def test_what_comes_for_a_loop_to_serve(load, tmp_path, monkeypatch, lines, expected):
    lines = [line.replace("!lp", "!lp.x") for line in lines]
    expected = [(word.replace("!lp", "!lp.x"), name) for word, name in expected]
    each, tables, endpoints, _ = drawn(load, tmp_path, monkeypatch, lines)
    found = find_arrivals(tables.activity, endpoints, tables.requests)
    number = dict(zip(tables.requests.endpoint.tolist(), tables.numbers, strict=True))
    woken = tables.activity.time_ns[tables.activity.act == Act.WAKE]
    keys = {*found[:, 0].tolist()}
    assert keys <= {tables.tids.get("lp.x", -1)}
    rows = [(time, number[of]) for _, time, of in found.tolist() if time in woken]
    assert rows == [(each.time("", word), name) for word, name in expected]
