"""Who asked, of real servers whose truth is known; and who might, of what is learned."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "servers"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "hosts"))

from truth import judge

from critpath.model.requests import Certainty
from critpath.requests.transitions import ANSWER, END, Transitions

TESTS = Path(__file__).resolve().parents[1]
ARCHIVES = TESTS.parent / "fixtures/hosts"
SETS = ("cpu-1-8", "select1-2-8", "outer-3-8", "lock-4-8", "sleep-5-8")


def find(recorded, method="queues"):
    found = importlib.util.spec_from_file_location("servers_judge", TESTS / "servers/judge.py")
    module = importlib.util.module_from_spec(found)
    sys.modules["servers_judge"] = module
    found.loader.exec_module(module)
    return module.find_requests(recorded / "recording", f"requests:assign={method}")


@pytest.mark.parametrize("name", SETS)
def test_concurrent_requests_are_told_apart(unpack, name):
    recorded = unpack(ARCHIVES / f"{name}.tar.xz") / name
    found = find(recorded)
    score = judge(recorded, found)
    precision, recall = score.mean
    assert score.missing == 0
    assert precision >= 0.99
    assert recall >= 0.98
    # What is called so probable is at least so often right.
    subs = found.subrequests
    assert ((subs.probability >= 0) & (subs.probability <= 1)).all()
    assert (subs.probability[subs.request < 0] == 0).all()
    sure = [right for probable, right in score.links if probable >= 0.9]
    assert sum(sure) >= 0.99 * len(sure)
    certain = subs.attribution[subs.request >= 0] == Certainty.CERTAIN
    assert (subs.probability[subs.request >= 0][certain] == 1).all()


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
