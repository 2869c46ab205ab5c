"""Paths joined from pieces: what stands for a whole piece hides its thread's path, and no more.

`QUEUED` and `SHARED` replace what a thread did for others.  With that put back (the thread's own
path in these pieces) a request's path is what it was before.
"""

from __future__ import annotations

import sys
import tarfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from detailing import texts_of
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from test_sweep import MOMENTS, facts, recordings

from critpath import flow
from critpath.graph import critical_path
from critpath.graph.critical_path import (
    Sweep,
    _join_pieces,
    _lead_to_others,
    _Work,
)
from critpath.graph.execution_graph import make_single_block
from critpath.model import RUNNING, BlockList, Events, ReplayedRecording, State, Workers
from critpath.model.requests import Pieces

ROOT = Path(__file__).resolve().parents[3]
# Python has the filter from 3.11.4 on.
DATA_ONLY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
OTHERS = (int(State.QUEUED), int(State.SHARED))


@st.composite
def requests(draw, threads):
    """Draw requests as pieces that tile them: of any thread, some of them done for others."""
    bounds, rows = [0], []
    for _ in range(draw(st.integers(1, 3))):
        times = sorted(draw(st.sets(MOMENTS, min_size=2, max_size=6)))
        alone = draw(st.booleans())
        first = draw(st.sampled_from(threads))
        for begin, end in pairwise(times):
            host, tid = first if alone else draw(st.sampled_from(threads))
            state = draw(st.sampled_from([int(State.UNKNOWN), *OTHERS]))
            rows.append((host, tid, begin, end, state, -1))
        bounds.append(len(rows))
    host, tid, begin, end, state, by = np.array(rows, np.int64).T.copy()
    about = np.full(len(by), -1)
    return Pieces(np.array(bounds), host, tid, begin, end, state.astype(np.uint8), by, about)


def put_back(pieces):
    """Return the pieces with what is beneath waits behind others and shared stretches."""
    walked = np.where(np.isin(pieces.state, OTHERS), State.UNKNOWN, pieces.state)
    return replace(pieces, state=walked.astype(np.uint8))


def check_put_back(sweep, replayed, pieces):
    """Check what pieces come to, with and without what is beneath."""
    rows = slice(0, len(pieces.start) - 1)
    shown, whole = (
        _join_pieces(sweep, replayed, p, _Work(p.work), 0) for p in (pieces, put_back(pieces))
    )
    compared = 0
    for row in range(rows.stop):
        mine = slice(int(pieces.start[row]), int(pieces.start[row + 1]))
        begin, end = pieces.begin[mine], pieces.end[mine]
        seen, beneath = segments(shown, row), segments(whole, row)
        for found in (seen, beneath):
            assert [s[0] for s in found] == [int(begin[0]), *(s[1] for s in found[:-1])]
            assert found[-1][1] == end[-1]
        for first, last, state in zip(begin, end, pieces.state[mine], strict=True):
            inside = [s for s in beneath if first <= s[0] < last]
            assert inside[0][0] == first
            assert inside[-1][1] == last
            check_whose(shown, pieces, mine, row)
            if state in OTHERS:
                [only] = [s for s in seen if first <= s[0] < last]
                assert only[:3] == (first, last, state)
            else:
                assert [s for s in seen if first <= s[0] < last] == inside
        compared += check_as_before(sweep, replayed, pieces, mine, beneath)
    return compared


def check_whose(paths, pieces, mine, row):
    """Check that only what a thread was woken by for others is for others: elsewhere."""
    part = slice(int(paths.start[row]), int(paths.start[row + 1]))
    piece = np.searchsorted(pieces.begin[mine], paths.begin[part], side="right") - 1
    own = [*zip(pieces.host[mine].tolist(), pieces.tid[mine].tolist(), strict=True)]
    there = zip(paths.host[part].tolist(), paths.tid[part].tolist(), strict=True)
    state = [*pieces.state[mine].tolist(), int(State.UNKNOWN)]
    for at, thread, theirs in zip(piece.tolist(), there, paths.others[part], strict=True):
        others = state[at] == State.UNKNOWN and state[at + 1] in OTHERS
        others = others and own[at + 1] == own[at] and len({*own}) > 1
        assert theirs == (others and thread not in {own[at], (thread[0], -1)})


@pytest.mark.parametrize(
    "drawing",
    [
        # A request of g, which asks the pooler p; that asks the database d for it.
        "g p d p g",
        "g pS d pQ pS g",
        "g pQ pS *p pS *p pS p d pS g",
        "g *p pW p d *p pQ p g",
        # The thread of the next piece is another, or another request's.
        "g p gS *g gQ p | pS g",
        # What it asked itself may not be known.
        "p pS p pS p",
        "p pS | g *p pS",
        "",
    ],
)
def test_what_a_loop_was_woken_by_for_others_is_theirs(drawing):
    """A piece is its thread, and S, Q, W where it does not go by that; * has others' wakes."""
    states = {"S": State.SHARED, "Q": State.QUEUED, "W": State.WAIT_POOL}
    paths = [path.split() for path in drawing.split("|")]
    words = [word for path in paths for word in path]
    start = np.cumsum([0, *map(len, paths)])
    bare = [word.lstrip("*") for word in words]
    tid = np.array([ord(word[0]) for word in bare], np.int64)
    state = np.array([states.get(word[1:], State.UNKNOWN) for word in bare], np.uint8)
    found = _lead_to_others(start, np.zeros(len(tid), np.int64), tid, state)
    assert found.tolist() == [word[0] == "*" for word in words]


def test_what_a_thread_does_for_another_request_is_not_this_ones():
    """The thread 5 works for 1 from 10 to 20, for 2 until 30, and for several until 40."""
    none = np.zeros(0, np.int64)
    work = np.array([[5, 10, 20, 1], [5, 20, 30, 2], [5, 30, 40, -1], [6, 10, 20, 2]])
    pieces = Pieces(np.zeros(1, np.int64), *[none] * 7, work=work)
    asked = [
        (5, 5, 1, True), (5, 10, 1, True), (5, 11, 1, False), (5, 20, 1, False),
        (5, 21, 1, True), (5, 21, 2, False), (5, 35, 1, True), (5, 41, 1, True),
        (6, 15, 1, True), (6, 15, 2, False), (6, 15, -1, False), (7, 15, 1, False),
    ]  # fmt: skip
    tid, end, root, expected = zip(*asked, strict=True)
    of = (np.array(root), np.zeros(len(tid), np.int64), np.array(tid), np.array(end))
    assert _Work(pieces.work).is_for_others(*of).tolist() == [*expected]
    bare = Pieces(np.zeros(1, np.int64), *[none] * 7)
    assert not _Work(bare.work).is_for_others(*of).any()


def check_as_before(sweep, replayed, pieces, mine, beneath):
    """Check that a request of one thread has that thread's path again, wherever the thread ran."""
    threads = {*zip(pieces.host[mine].tolist(), pieces.tid[mine].tolist(), strict=True)}
    if len(threads) > 1:
        return 0
    [(host, tid)] = threads
    begin, end = pieces.begin[mine][:1], pieces.end[mine][-1:]
    one = replace(
        put_back(pieces), start=np.array([0, 1]), host=np.array([host]), tid=np.array([tid]),
        begin=begin, end=end, state=np.zeros(1, np.uint8), by=np.array([-1]),
        about=np.array([-1]),
    )  # fmt: skip
    before = segments(_join_pieces(sweep, replayed, one.cut(slice(0, 1)), _Work(one.work), 0), 0)
    ran = [s for s in before if s[2] in RUNNING and s[3:5] == (host, tid)]
    for low, high, *what in ran:
        # A piece that ends within cuts the segment, and changes nothing of it.
        parts = [s for s in beneath if s[0] < high and s[1] > low]
        assert parts[0][0] <= low
        assert parts[-1][1] >= high
        assert all(list(s[2:]) == what for s in parts)
    return len(ran)


def segments(paths, row):
    part = slice(int(paths.start[row]), int(paths.start[row + 1]))
    names = ("begin", "end", "state", "host", "tid", "cpu")
    # By its text: how a table numbers its texts depends on what else was walked.
    detail = texts_of(paths)[part]
    return list(zip(*(getattr(paths, name)[part].tolist() for name in names), detail, strict=True))


@given(recordings(), st.data())
def test_what_is_beneath_put_back_is_the_path_as_it_was(timelines, data):
    workers = timelines.workers
    threads = [
        (host, tid)
        for host, tid, first, idle in zip(
            *(workers.host.tolist(), workers.tid.tolist()),
            *(workers.first.tolist(), workers.idle_cpu.tolist()),
            strict=True,
        )
        if first >= 0 and idle < 0
    ]
    if not threads:
        return
    pieces = data.draw(requests(threads))
    blocks = BlockList([make_single_block(timelines)])
    sweep = Sweep(blocks, *facts(timelines), interrupts=data.draw(st.booleans()))
    empty = np.zeros(0, np.int64)
    none = empty.astype(np.int32)
    events = Events(empty, none, none, empty, empty, (), timelines.strings, begin=0, end=99)
    replayed = ReplayedRecording(events, blocks, workers, timelines.processors, 0, (), (), ())
    check_put_back(sweep, replayed, pieces)


def test_of_a_recorded_server_too(requests_recording, monkeypatch):
    joined, seen = critical_path._join_pieces, []

    def checked(sweep, replayed, pieces, work, most):
        start = pieces.start[:41]
        part = slice(0, int(start[-1]))
        names = ("host", "tid", "begin", "end", "state", "by", "about")
        columns = {name: getattr(pieces, name)[part] for name in names}
        # As if every other piece had been another request's.
        state = columns["state"].copy()
        state[::2] = State.QUEUED
        for each in (columns["state"], state):
            mine = Pieces(**columns | {"start": start, "state": each})
            seen.append(check_put_back(sweep, replayed, mine))
        return joined(sweep, replayed, pieces, work, most)

    monkeypatch.setattr(critical_path, "_join_pieces", checked)
    found = flow.extract([requests_recording], specification="requests")
    assert len(found) == 320
    assert sum(seen) > 100


def test_threads_are_found_by_the_columns_of_a_table():
    """As what came for loops is: no column is in one piece."""
    none, columns = np.full(2, -1), np.array([[5, 7], [0, 10]])
    workers = Workers(
        *(np.zeros(2, np.int64), columns[0], none, none.astype(np.int32)),
        *(columns[1], columns[1], none, none, none.astype(np.int32)),
    )
    tid, time = np.array([[5, 3], [7, 12], [9, 1]]).T
    found = critical_path.find_workers(workers, np.zeros(3, np.int64), tid, time)
    assert found.tolist() == [0, 1, -1]


@pytest.fixture
def requests_recording(tmp_path):
    with tarfile.open(ROOT / "fixtures" / "requests" / "memcached.tar.xz") as archive:
        archive.extractall(tmp_path, **DATA_ONLY)  # noqa: S202 - of this repository
    return next(path.parent for path in tmp_path.rglob("critpath.json"))
