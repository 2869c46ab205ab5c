"""What a thread did beneath requests that waited behind others: states of the longest part."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from detailing import detailed
from hypothesis import given
from hypothesis import strategies as st

from critpath.detect.machine import drop_crowded_queues
from critpath.documents import SignEntry
from critpath.graph.critical_path import find_states
from critpath.model import Block, BlockList, CriticalPaths, Executions, PathSet, State, Symbol
from critpath.report.explore.sketches import DOINGS, draw_sketches
from critpath.store import save_paths
from critpath.store.reading import load_paths

NO = np.zeros(0, np.int64)
STATES = (State.RUN, State.WAIT_CPU, State.WAIT_NET)


def blocks_of(threads, cuts):
    """Return rows of threads (tiling from 0) as blocks: each row is in that where it ends."""
    found = []
    for low, cut in zip([0, *cuts], cuts, strict=False):
        rows, start = [], [0]
        for lengths in threads:
            ends = np.cumsum([n for _, n in lengths]).tolist()
            rows += [
                (end - n, end, int(state))
                for (state, n), end in zip(lengths, ends, strict=True)
                if low < end <= cut
            ]
            start.append(len(rows))
        columns = np.array(rows, np.int64).reshape(-1, 3).T
        zero = np.zeros(len(rows), np.int64)
        found.append(
            Block(
                *(cut, np.array(start), columns[0], columns[1], columns[2].astype(np.uint8)),
                *(zero.astype(np.int32),) * 3,
                zero,
                *(np.zeros(1, np.int64), NO, NO, NO.astype(np.uint8), NO.astype(np.int32)),
                *(np.zeros(1, np.int64), NO, NO, NO.astype(np.int32)),
            )
        )
    return BlockList(found)


def longest(lengths, begin, end):
    """Return how long each state lasted within a window, moment by moment."""
    moments = [state for state, n in lengths for _ in range(n)][begin:end]
    return {state: moments.count(state) for state in set(moments)}


row = st.tuples(st.sampled_from(STATES), st.integers(1, 9))
thread = st.lists(row, min_size=1, max_size=12)


@given(st.lists(thread, min_size=1, max_size=4), st.data())
def test_as_the_plain_twin(threads, data):
    length = max(sum(n for _, n in one) for one in threads)
    inner = data.draw(st.lists(st.integers(1, length), max_size=4, unique=True))
    blocks = blocks_of(threads, sorted({*inner, length}))
    windows = data.draw(
        st.lists(
            st.tuples(st.integers(0, len(threads) - 1), st.integers(0, length), st.integers(1, 20)),
            min_size=1,
            max_size=8,
        )
    )
    worker, begin, size = (np.array(column, np.int64) for column in zip(*windows, strict=True))
    found = find_states(blocks, worker, begin, begin + size)
    for at, (of, first, n) in enumerate(windows):
        spent = longest(threads[of], first, first + n)
        if not spent:
            assert found[at] == State.UNKNOWN
        elif blocks.cuts[-1] >= first + n or len(blocks) == 1:
            assert spent.get(State(int(found[at])), 0) in {max(spent.values()), 0}


def test_a_request_behind_others():
    # One thread works for others, asks, waits for that, and is woken.
    lengths = [(State.RUN, 10), (State.WAIT_NET, 30), (State.WAIT_CPU, 5), (State.RUN, 20)]
    blocks = blocks_of([[(State.RUN, 65)], lengths], [20, 40, 65])
    begin, end = np.array([0, 0, 38, 45, 12]), np.array([60, 12, 47, 60, 20])
    found = find_states(blocks, np.ones(5, np.int64), begin, end)
    assert [State(int(one)).name for one in found] == [
        *("WAIT_NET", "RUN", "WAIT_CPU", "RUN", "WAIT_NET"),
    ]


@pytest.fixture
def queued():
    """Return a request that waits behind others, runs, and then shares a loop with them."""
    wide = np.arange(3) * 1_000_000
    paths = detailed(
        CriticalPaths(
            start=np.array([0, 3]),
            begin=wide,
            end=wide + 1_000_000,
            state=np.array([State.QUEUED, State.RUN, State.SHARED], np.uint8),
            detail=np.array([1, 0, 0], np.int32),
            comm=np.array([2, 2, 2], np.int32),
            tid=np.full(3, 7),
            host=np.zeros(3, np.int64),
            cpu=np.zeros(3, np.int32),
            lossy=np.zeros(3, np.bool_),
            strings=("", "nginx", "gunicorn"),
            beneath=np.array([State.WAIT_NET, State.UNKNOWN, State.RUN], np.uint8),
        )
    )
    one = np.zeros(1, np.int64)
    executions = Executions(("a",), one, one + 3_000_000, one + 7, one, ("gunicorn",), ("",))
    return PathSet(executions, paths, one, ("x",), "requests", (), one != 0)


def test_it_is_said_on_the_terminal_and_in_json(queued, critpath, tmp_path, load, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    facts = load("pure/requests/test_facts.py")
    known = facts.found(facts.two_tiers(1)).requests
    asked = replace(known, **{n: getattr(known, n)[:1] for n in known.__dataclass_fields__})
    asked = replace(asked, true_ns=np.array([3_000_000]), asked_ns=np.zeros(1, np.int64))
    queued = replace(queued, executions=replace(queued.executions, requests=asked))
    save_paths(queued, tmp_path / "x.paths")
    assert load_paths(tmp_path / "x.paths").paths.beneath.tolist() == queued.paths.beneath.tolist()
    run = critpath("path", tmp_path / "x.paths", "--segments", "--quiet")
    assert "nginx; meanwhile waiting for the network" in run.stdout, run.stderr
    assert "meanwhile running" in run.stdout
    run = critpath("path", tmp_path / "x.paths", "--quiet")
    said = "while requests were queued or shared a loop, the thread was"
    assert f"{said} running for 50 %, waiting for the network for 50 %" in run.stdout
    run = critpath("path", tmp_path / "x.paths", "--format", "json", "--quiet")
    segments = json.loads(run.stdout)["segments"]
    assert [one["beneath"] for one in segments] == ["WAIT_NET", "", "RUN"]


def test_it_is_added_up_by_thread(queued):
    queued = replace(queued, paths=replace(queued.paths, tid=np.array([7, 7, 8])))
    waits = {
        (State.QUEUED, ""): (State.WAIT_NET, 1_000_000),
        (State.SHARED, "gunicorn"): (State.RUN, 1_000_000),
        (State.SHARED, ""): (State.RUN, 0),
        (State.QUEUED, "gunicorn"): (State.WAIT_NET, 0),
        (State.SHARED, "nginx"): (State.RUN, 0),
    }
    for (state, role), (meanwhile, ns) in waits.items():
        assert queued.sum_beneath(state, role)[0, meanwhile] == ns
    assert queued.sum_beneath().sum() == 2_000_000


def test_it_goes_with_the_paths(queued):
    again = queued.take(np.array([0, 0]))
    assert again.paths.beneath.tolist() == [*queued.paths.beneath.tolist()] * 2
    assert queued.paths.table_columns()["beneath"].valid.tolist() == [True, False, True]


def test_a_sketch_has_a_texture_for_each_and_says_what_is_beneath(queued):
    [sketch] = draw_sketches(queued, [0], {}).values()
    assert [[DOINGS[one[1]], *(DOINGS[b] for b in one[4:])] for one in sketch.stretches] == [
        ["queued", "network"],
        ["running"],
        ["shared", "running"],
    ]


@pytest.mark.parametrize(("beneath", "kept"), [(State.RUN, 1), (State.WAIT_CPU, 0)])
def test_a_loop_that_had_no_cpu_for_longer_is_no_sign_that_the_program_changed(
    queued, beneath, kept
):
    table = queued.paths
    end = table.end + np.array([0, 0, 4_000_000])
    was = np.array([State.WAIT_NET, State.UNKNOWN, beneath], np.uint8)
    after = replace(queued, paths=replace(table, end=end, beneath=was))
    sign = SignEntry("share", "SHARED", "", 1e6, 5e6, 4e6, "")
    other = SignEntry("share", "RUN", "", 1e6, 5e6, 4e6, "")
    judged = SimpleNamespace(
        signs=[sign, other],
        by_symbol=[(Symbol(State.SHARED), None), (Symbol(State.RUN), None)],
        states=[SimpleNamespace(normal_mean=3e6)],
    )
    found = drop_crowded_queues(queued, after, judged)
    assert found == [*[sign] * kept, other]
