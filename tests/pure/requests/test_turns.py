"""Turns: the drawings, the plain twin, and what holds whatever happens."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2] / "oracle"))
import turns as oracle

from critpath.model.requests import Act, Activity, Endpoints
from critpath.requests import turns as native

DRAWINGS = Path(__file__).parent / "drawings" / "turns.txt"
ACTS = {
    "O": Act.OPEN,
    "A": Act.ARRIVAL,
    "a": Act.ARRIVAL,
    "R": Act.RECEIVE,
    "L": Act.RECEIVE,
    "S": Act.SEND,
    "F": Act.FINISH,
    "C": Act.CLOSE,
    "W": Act.WAKE,
}
VALUES = {"O": 1, "R": 100, "L": 1448, "S": 50, "W": 1}
UNIT = 60_000  # ns of a character
HOWS = {"": native.BY_ARRIVAL, "w": native.BY_WAKE, "r": native.BY_READ}


def make_activity(rows):
    time, act, tid, endpoint, value = (
        (list(x) for x in zip(*rows, strict=True)) if rows else [[]] * 5
    )
    return Activity(
        np.array(time, np.int64),
        np.array(act, np.uint8),
        np.array(tid, np.int32),
        np.zeros(len(time), np.int32),
        np.array(endpoint, np.int32),
        np.array(value, np.int64),
    )


def make_endpoints(peers, serving):
    n = len(peers)
    zeros = np.zeros(n, np.int32)
    times = np.zeros(n, np.int64)
    return Endpoints(
        *(zeros, zeros + 2, zeros, zeros, zeros, zeros, zeros),
        *(np.array(serving, np.int32), zeros, times, times, np.array(peers, np.int32)),
    )


def read_drawings():
    blocks = re.split(r"\n\s*\n", DRAWINGS.read_text().split("\n\n", 1)[1])
    for block in blocks:
        title, *lines = block.strip("\n").split("\n")
        yield pytest.param(lines, id=title)


def parse(lines):
    by, marks, peers, asks, expected = "", [], {}, set(), ""
    for line in lines:
        head, rest = line[:5].strip(), line[5:]
        if line.startswith("by"):
            by = rest
        elif line.startswith("="):
            expected = rest.strip()
        elif line.startswith("peer"):
            one, other = (int(x) for x in line.split()[1:])
            peers[one], peers[other] = other, one
        elif line.startswith("asks"):
            asks = {int(x) for x in line.split()[1:]}
        else:
            marks += [(at, int(head), c) for at, c in enumerate(rest) if c != " "]
    asks |= {max(peers)} if peers else set()
    rows = []
    for at, endpoint, letter in sorted(marks, key=lambda mark: mark[:2]):
        who = int(by[at]) if at < len(by) and by[at] != " " else 1
        tid = -1 if letter in "aW" else who
        value = who if letter == "W" else VALUES.get(letter, 0)
        rows.append((at * UNIT, ACTS[letter], tid, -1 if letter == "W" else endpoint, value))
    count = 1 + max((endpoint for _, endpoint, _ in marks), default=0)
    return (
        rows,
        [peers.get(i, -1) for i in range(count)],
        [i not in asks for i in range(count)],
        expected,
    )


def describe(turns, endpoints, tids):
    each = []
    for endpoint in range(endpoints):
        mine = turns.table[turns.column(native.ENDPOINT) == endpoint]
        shown = []
        for turn in mine.tolist():
            how = next(k for k, v in HOWS.items() if v == turn[native.HOW])
            text = f"{turn[native.BEGIN] // UNIT}-{turn[native.END] // UNIT}{how}"
            text += f"!{turn[native.INTRUSIONS]}" if turn[native.INTRUSIONS] else ""
            text += f"~{turn[native.PAUSES]}" if turn[native.PAUSES] else ""
            shown.append(text + (f"by{turn[native.TID]}" if tids else ""))
        each.append(" ".join(shown))
    parts = [" / ".join(x for x in each if x)]
    for name, counts in (("incomplete", turns.incomplete), ("unsolicited", turns.unsolicited)):
        if counts.sum():
            parts.append(f"{name} {counts.sum()}")
    return " ".join(p for p in parts if p) or "nothing"


@pytest.mark.parametrize("lines", list(read_drawings()))
def test_a_drawing(lines):
    rows, peers, serving, expected = parse(lines)
    found = native.cut_turns(make_activity(rows), make_endpoints(peers, serving), 1)
    assert describe(found, len(peers), "by" in expected) == expected


def test_there_are_drawings_of_every_rule():
    assert len(list(read_drawings())) >= 30


STEPS = st.lists(
    st.tuples(
        st.integers(0, 30),  # ns since the one before
        st.sampled_from("OAAaRRRLSSSFCW"),
        st.integers(1, 3),
        st.integers(0, 3),
    ),
    max_size=80,
)


@given(STEPS)
def test_the_twin_says_the_same_and_requests_of_one_endpoint_never_overlap(steps):
    time, rows = 1, []
    for wait, letter, tid, endpoint in steps:
        time += wait * 200_000
        value = tid if letter == "W" else VALUES.get(letter, 0)
        who = -1 if letter in "aW" else tid
        rows.append((time, ACTS[letter], who, -1 if letter == "W" else endpoint, value))
    peers, serving = [1, 0, 3, 2], [True, False, True, True]
    found = native.cut_turns(make_activity(rows), make_endpoints(peers, serving), 1)
    expected, endpoints = oracle.cut(rows, peers, serving)
    names = ("endpoint", "number", "begin", "received", "answered", "end", "reader", "tid")
    names += ("bytes_in", "bytes_out", "intrusions", "how", "pauses")
    assert found.table.tolist() == [[int(turn[name]) for name in names] for turn in expected]
    assert found.incomplete.tolist() == [of.incomplete for of in endpoints]
    assert found.unsolicited.tolist() == [of.unsolicited for of in endpoints]
    for endpoint in range(4):
        mine = found.table[found.column(native.ENDPOINT) == endpoint]
        begin, end = mine[:, native.BEGIN], mine[:, native.END]
        assert (begin <= end).all()
        assert (begin[1:] >= end[:-1]).all()
