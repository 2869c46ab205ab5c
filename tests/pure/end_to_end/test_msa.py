"""`msa`: executions added to their aligned group, or aligned together with it."""

from __future__ import annotations

import numpy as np
import pytest

from critpath.flow import compare
from critpath.model import CompareSettings

from .drawn_sets import draw


def run_of(rng, extra=""):
    """One execution: a start, a loop of some iterations, an end; times a little unlike."""
    words = ["r30", "t500", "r40", *["d20", "r5"] * int(rng.integers(14, 20)), "c10", "r60"]
    if extra:
        words[3:3] = extra.split()
    return " ".join(f"{w[0]}{float(w[1:]) * rng.uniform(0.95, 1.05):.3f}" for w in words)


@pytest.fixture(scope="module")
def answers():
    rng = np.random.default_rng(11)
    normal = draw([run_of(rng) for _ in range(40)])
    sample = draw([run_of(rng, "h400" if i % 2 else "h300 r7") for i in range(20)])
    return {
        msa: compare(normal, sample, CompareSettings(msa=msa, permutations=999))
        for msa in ("add", "joint")
    }


def test_both_name_the_same_cause(answers):
    for answer in answers.values():
        assert answer.verdict == "anomaly"
        assert answer.causes[0].facts.peer == "helper"
        assert answer.settings["msa"] in answers
    first, second = (answer.causes[0] for answer in answers.values())
    assert first.executions == second.executions
    assert first.contribution == pytest.approx(second.contribution, rel=0.05)


def test_executions_of_a_group_share_its_alignment(answers):
    """The group's rows stand the same relative to each other, whatever was added."""
    seen = {}
    for one in answers["add"].aligned:
        symbols = one.alignment.symbols[:-1]
        # A loop is as wide as the added execution needs: compare what the rows have.
        columns = tuple(map(tuple, symbols[:, (symbols >= 0).any(axis=0)].tolist()))
        assert seen.setdefault(one.normals, columns) == columns
        (loop,) = one.alignment.loops
        assert loop.period == 2
        assert (loop.iterations >= 13).all()
    assert seen


def test_excess_is_the_same_either_way(answers):
    add, joint = answers["add"].aligned, answers["joint"].aligned
    assert [a.execution for a in add] == [a.execution for a in joint]
    for one, other in zip(add, joint, strict=True):
        assert one.excess == other.excess
        assert one.normals == other.normals
        contribution = one.statistics.contribution.sum() / len(one.normals)
        assert contribution == pytest.approx(one.excess)
