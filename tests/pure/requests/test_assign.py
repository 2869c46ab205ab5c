"""Who asked, of real servers whose truth is known; and who might, of what is learned."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "evaluation" / "servers"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "hosts"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "oracle"))

import tokens as oracle
from truth import judge

from critpath import flow
from critpath.commands import settings as known
from critpath.errors import UsageError
from critpath.model.requests import Certainty
from critpath.requests import assign
from critpath.requests.assign import (
    Process,
    What,
    _orders,
    _Run,
    make_tokens,
    run_tokens,
)
from critpath.requests.find import learn_ways
from critpath.requests.others import _follow_threads
from critpath.requests.transitions import ANSWER, END, Transitions, Way, translate

ROOT = Path(__file__).resolve().parents[3]
ARCHIVES = ROOT / "fixtures/hosts"
SETS = ("cpu-1-8", "select1-2-8", "outer-3-8", "lock-4-8", "sleep-5-8", "cpu-6-8")


def find(recorded, method="queues", learn=None):
    judge_file = ROOT / "evaluation/servers/judge.py"
    found = importlib.util.spec_from_file_location("servers_judge", judge_file)
    module = importlib.util.module_from_spec(found)
    sys.modules["servers_judge"] = module
    found.loader.exec_module(module)
    text = f"requests:assign={method}{f',learn={learn}' if learn else ''}"
    return module.find_requests(recorded / "recording", text)


@pytest.mark.parametrize("name", SETS)
def test_concurrent_requests_are_told_apart(unpack, name):
    recorded = unpack(ARCHIVES / f"{name}.tar.xz") / name
    found = find(recorded)
    score = judge(recorded, found)
    precision, recall = score.mean
    assert score.missing == 0
    # Two that are taken for each other are 3 % of 60; in a pool that happens at both ends.
    pool = "-6-" in name
    assert precision >= (0.95 if pool else 0.99)
    assert recall >= (0.95 if pool else 0.98)
    # What is called so probable is at least so often right.
    subs = found.subrequests
    assert ((subs.probability >= 0) & (subs.probability <= 1)).all()
    assert (subs.probability[subs.request < 0] == 0).all()
    sure = [right for probable, right in score.links if probable >= 0.9]
    assert sum(sure) >= (0.97 if pool else 0.99) * len(sure)
    certain = subs.attribution[subs.request >= 0] == Certainty.CERTAIN
    assert (subs.probability[subs.request >= 0][certain] == 1).all()


def test_what_requests_ask_is_learned_from_another_recording(unpack, monkeypatch):
    """Where a recording tells by itself neither what is asked alone nor in which order."""
    recorded = unpack(ARCHIVES / "lock-4-8.tar.xz") / "lock-4-8"
    other = unpack(ARCHIVES / "sleep-5-8.tar.xz") / "sleep-5-8/recording"
    assert (
        sum(learn_ways(other, flow._learn_ways).values()) > 100
    )  # which is kept: what follows forgets how
    monkeypatch.setattr(assign, "_orders", lambda *_: ())
    monkeypatch.setattr(assign, "_learn_alone", lambda *_: ((), None))
    assert judge(recorded, find(recorded)).mean[1] < 0.7
    precision, recall = judge(recorded, find(recorded, learn=other)).mean
    assert precision >= 0.99
    assert recall >= 0.99


def test_from_what_is_no_recording_nothing_is_learned(tmp_path):
    (tmp_path / "file").write_text("{}")
    for place in (tmp_path / "none", tmp_path / "file"):
        with pytest.raises(UsageError, match="no recording to learn from"):
            learn_ways(place, flow._learn_ways)
    with pytest.raises(known.WrongValueError):
        known.as_recording("normal,port=1")
    settings = known.SETTINGS["learn"]
    assert settings.parse("normal") == "normal"


def test_ways_of_another_recording_are_said_in_the_words_of_this_one():
    words = [("6379", 9), ("6379", 15), ("8090", 1000), ("/run/db", 9)]
    roots = {"app:80": 7, "other:81": 8}

    def said(*asks, service="app:80", answered=0):
        return [*map(list, translate({Way(service, asks, answered): 1}, words, roots))]

    assert said(("6379", 9), ("6379", 15), answered=1)[0] == [7, 0, ANSWER, 1, END]
    assert said(("8090", 1040))[0] == [7, ANSWER, 2, END]  # a little longer
    assert said(("/run/db", 9), service="other:81")[0] == [8, ANSWER, 3, END]
    assert said() == [[7, ANSWER, END]] * 100
    assert said(("8090", 2000)) == []  # another message
    assert said(("5432", 9)) == []  # nobody asks that here
    assert said(("6379", 9), service="else:80") == []
    often = {Way("app:80", (("6379", 9),), 0): 900, Way("app:80", (), 0): 9}
    assert [len(each) for each in translate(often, words, roots)].count(3) == 1


@pytest.mark.parametrize("method", ["gap", "delays", "thread"])
def test_other_methods_can_be_asked_for(unpack, method):
    recorded = unpack(ARCHIVES / "cpu-1-8.tar.xz") / "cpu-1-8"
    precision, recall = judge(recorded, find(recorded, method)).mean
    assert precision > 0.2
    assert recall > 0.2
    if method == "thread":  # threads that serve: following them is exact
        assert recall > 0.6


def test_what_was_seen_after_a_history_may_follow_it():
    known = Transitions(4)
    known.learn([[9, 1, 2, END]] * 10 + [[9, ANSWER, 1, 3, END]] * 10)
    assert known.may((9,), 1)
    assert not known.may((9,), 2)
    assert known.may((9, 1), 2)
    assert not known.may((9, 1), 3)
    assert known.may((9, ANSWER, 1), 3)
    # Of a history that nobody had, the last two kinds tell; of kinds that nobody saw, nothing.
    assert known.may((8, 9, 1), 2)
    assert not known.may((8, 9, 1), 3)
    assert known.may((77,), 3)
    total = sum(known.probability((9, 1), kind) for kind in (0, 1, 2, 3, END, ANSWER))
    assert total == pytest.approx(1)


def test_of_a_long_history_only_its_end_is_kept():
    known = Transitions(4)
    known.learn([[9, *[1] * 4000, 2, END]] * 10)
    assert sum(map(len, known._counts)) < 1000
    assert known.may((9, *[1] * 4000), 1)
    assert not known.may((9, *[1] * 4000), 3)
    assert known.goes_on((9, *[1] * 4000))
    assert not known.goes_on((9, *[1] * 4000, 2))
    assert known.goes_on((77,))


def make_process(events, asks, roots):
    """Return what happens in a process: time, what, thread and row of events, in order.

    Of what is asked: kind, endpoint, whose by the rules, and how that is.
    """
    time, what, thread, row = (np.array(column, np.int64) for column in zip(*events, strict=True))
    columns = (what.astype(np.uint8), thread.astype(np.int32), row.astype(np.int32))
    asks = np.array(asks, np.int32).reshape(-1, 4)
    root = np.array(roots, np.int32)
    return Process(time, *columns, root, asks, np.arange(len(root)), np.arange(len(asks)))


def follow(process, known, **how):
    return run_tokens(make_tokens(process), known, **how)


def test_each_connection_is_as_sure_as_it_was_when_it_was_opened():
    known = Transitions(1)
    known.learn([[1, 0, END]] * 10)
    received = [(0, What.RECEIVE, 1, 0), (1, What.RECEIVE, 1, 1), (2, What.RECEIVE, 2, 2)]
    asks = [(10 + row, What.ASK, 1 + row % 2, row) for row in range(4)]
    asked = [(0, 7, -1, 1), (0, 8, -1, 1), (0, 7, -1, 0), (0, 8, -1, 0)]
    run = follow(make_process([*received, *asks], asked, [1] * 3), known, later=False)
    assert run.sure[0] < 0.95 < run.sure[1]  # one of two; the only one of its thread
    assert (run.owner[2], run.sure[2]) == (run.owner[0], run.sure[0])
    assert run.sure[3] == run.sure[1]


def test_who_asks_is_found_behind_many_that_wait_for_something_else():
    """As where requests wait for one lock after their answer: more of them than are looked at."""
    many = 200
    asks = [(0, 7, -1, 0)] * many + [(1, 7, -1, 0)]
    known = Transitions(2)
    known.learn([[2, 0, 1, END]] * 10)
    events = []
    for row in range(many):  # each asks once, has its result, and waits
        at = 10 * row
        events += [(at, What.RECEIVE, 1, row), (at + 1, What.ASK, 1, row)]
        events += [(at + 2, What.RESULT, 1, row)]
    events.append((10 * many, What.ASK, 1, many))
    run = follow(make_process(events, asks, [2] * many), known, later=False)
    assert run.owner[:many].tolist() == [*range(many)]
    assert run.owner[many] == 0  # who waits longest


@pytest.mark.parametrize(("spread", "least"), [(4000, 0.9), (0, 1.0)])
def test_answers_heal_what_sleeps_of_random_length_mixed_up(spread, least):
    """Each asks, sleeps for a time of its own, asks again and is answered at once."""
    rng, many = np.random.default_rng(1), 200
    asks = [(0, 7, -1, 0)] * many + [(1, 7, -1, 0)] * many
    events, truth = [], {}
    for row in range(many):
        begin = 400 * row
        woken = begin + 100 + 1000 + int(rng.integers(0, spread + 1))
        steps = ((begin, What.RECEIVE, row), (begin + 1, What.ASK, row))
        steps += ((begin + 100, What.RESULT, row), (woken, What.ASK, many + row))
        steps += ((woken + 100, What.RESULT, many + row), (woken + 101, What.ANSWERED, row))
        events += [(time, what, 1, of) for time, what, of in steps]
        truth[row] = truth[many + row] = row
    known = Transitions(2)
    known.learn([[2, 0, 1, ANSWER, END]] * 10)
    process = make_process(sorted(events), asks, [2] * many)
    run = follow(process, known, later=False, in_order=True)
    assert np.mean([run.owner[row] == of for row, of in truth.items()]) >= least
    assert (run.contradicted > 0) == (spread > 0)


def test_orders_have_what_only_some_ask():
    kinds = [0, 2, 1, 0, 1, 0, 1]  # the first of three asks 2 in between
    events, at = [], 0
    for row, asks in enumerate(([0, 1, 2], [3, 4], [5, 6])):
        events.append((at, What.RECEIVE, 1, row))
        for ask in asks:
            events += [(at + 1, What.ASK, 1, ask), (at + 2, What.RESULT, 1, ask)]
            at += 3
    asked = [(kind, 7, -1, 0) for kind in kinds]
    order, share = next(_orders(make_process(events, asked, [3] * 3)))
    assert order == (0, 2, 1)
    assert share == {2: pytest.approx(1 / 3)}
    asked = [(2, 7, -1, 0)] * 7  # nothing that all ask
    orders = _orders(make_process(events, asked, [3] * 3))
    assert all(len(set(order)) == 1 for order, _ in orders)


def test_how_long_it_waited_tells_runs_apart():
    def waiting(*ns):
        return _Run(np.zeros(0), np.zeros(0), [], np.zeros(0), 0, np.array(ns)).wait

    assert waiting(10, 10) < waiting(10, 10_000)
    assert waiting() == 0


@pytest.mark.parametrize("seed", range(60))
def test_tokens_are_followed_as_by_the_plain_twin(seed):
    """Requests of two kinds in threads that hand over, connect, and answer before or after."""
    rng = np.random.default_rng(seed)
    requests, threads, kinds = 60, 1 + seed % 4, 3
    events, asks, roots = [], [], []
    for row in range(requests):
        at, thread = 40 * row + int(rng.integers(0, 300)), int(rng.integers(0, threads))
        roots.append(kinds + int(rng.integers(0, 2)))
        events.append((at, What.RECEIVE, thread, row))
        steps = [*range(int(rng.integers(0, 5)))]
        answer = int(rng.integers(0, len(steps) + 1)) if seed % 3 == 0 else len(steps)
        for step in [*steps, -1]:
            if step == answer or (step == -1 and answer == len(steps)):
                events.append((at + 1, What.ANSWERED, thread, row))
            if step < 0:
                break
            if rng.random() < 0.2:
                made = int(rng.integers(0, threads + 2))
                events.append((at + 1, What.MADE, thread, made))
                thread = made if rng.random() < 0.8 else thread
            kind, endpoint = int(rng.integers(0, kinds)), int(rng.integers(0, 6))
            ruled = int(rng.choice([row, -1, -2]))
            sure = 2 * int(rng.random() < 0.3)
            if rng.random() < 0.2:
                events.append((at + 2, What.ASK, thread, len(asks)))
                asks.append((kind, endpoint, ruled, 1 | sure))
            at += int(rng.integers(3, 200))
            events.append((at, What.ASK, thread, len(asks)))
            at += int(rng.integers(1, 200))
            events.append((at, What.RESULT, thread, len(asks)))
            asks.append((kind, endpoint, ruled, sure))
    process = make_process(sorted(events), asks or [(0, 0, -1, 0)], roots)
    tokens = make_tokens(process)
    _, nodes = tokens.run_by_rules()
    known = Transitions(kinds)
    known.learn([tokens.spell(node) for node in nodes.tolist()])
    delays = {(before, kind): (6.5, 0.5) for before in range(-2, 4) for kind in range(2)}
    for more in (None, delays):
        for later in (False, True):
            for in_order in (False, True):
                how = {"later": later, "in_order": in_order}
                run = run_tokens(tokens, known, more, **how)
                twin = oracle.Pass(process, known, more, **how).run()
                assert [twin.owner.get(row, -1) for row in range(len(asks))] == run.owner.tolist()
                sure = [twin.sure.get(row, 0) for row in range(len(asks))]
                assert sure == pytest.approx(run.sure.tolist())
                assert sorted(twin.waits.values()) == sorted(run.waits.tolist())
                assert twin.contradicted == run.contradicted
                ways = [tuple(twin.histories[row]) for row in range(requests)]
                assert ways == [run.ways[way] for way in run.way.tolist()]


def test_threads_of_one_number_on_two_hosts_are_two():
    none = np.zeros(0, np.int64)
    tables = SimpleNamespace(
        activity=SimpleNamespace(act=none, tid=none, host=none, endpoint=none, time_ns=none),
        endpoints=SimpleNamespace(host=np.array([0, 1])),
        requests=SimpleNamespace(
            received_ns=np.array([1, 2]), endpoint=np.array([0, 1]), reader_tid=np.array([7, 7])
        ),
        subrequests=SimpleNamespace(
            begin_ns=np.array([3, 4]),
            end_ns=np.array([5, 6]),
            endpoint=np.array([0, 1]),
            tid=np.array([7, 7]),
        ),
    )
    owner = np.full(2, -1)
    _follow_threads(tables, owner)
    assert owner.tolist() == [0, 1]
