"""Which executions have the change, kind by kind: drawn sets whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from critpath.detect.affected import find_affected, mark_affected
from critpath.model import Outliers, State, Symbol, VectorTable

SYMBOLS = (Symbol(State.RUN, ""), Symbol(State.WAIT_TASK, "holder"), Symbol(State.WAIT_CPU, ""))


def outliers(many):
    nothing = np.zeros(many)
    return Outliers(
        *(nothing, nothing, np.zeros(many, np.bool_), np.zeros(many, np.bool_)),
        *(np.zeros(many, np.int64), np.zeros(many, np.int64), np.full(many, np.nan)),
    )


def table(rng, many, *, noise=0.05, waits=None, cpu=0.0):
    """Draw executions: 4 ms of running, what they wait, and for a cpu that strangers had."""
    durations = np.zeros((many, 3))
    durations[:, 0] = 4e6 * rng.lognormal(0, noise, many)
    durations[:, 1] = 0 if waits is None else waits
    durations[:, 2] = cpu * rng.lognormal(0, 1.5, many)
    whole = np.rint(durations).astype(np.int64)
    return VectorTable(SYMBOLS, np.ones_like(whole), whole)


def without_cpu(one):
    return VectorTable(SYMBOLS, one.counts, one.durations * np.array([1, 1, 0]))


def find(before, after, labels, *, work=None, in_turns=False):
    types = [np.unique(labels[0], return_inverse=True)[1]]
    types.append(np.searchsorted(np.unique(labels[0]), labels[1]))
    whole = before, after
    return find_affected(
        *(outliers(len(after)), work or whole, whole, (types[0], types[1]), labels),
        in_turns=in_turns,
    )


def test_a_state_that_rose_shows_what_the_whole_time_hides():
    """A wait of 1 ms in some beside 4 ms that vary by half of it."""
    rng = np.random.default_rng(1)
    has = np.arange(30) % 3 == 0
    before = table(rng, 30, noise=0.5, waits=2e5 * rng.lognormal(0, 0.1, 30))
    waits = 2e5 * rng.lognormal(0, 0.1, 30) + 1e6 * has
    found = find(before, table(rng, 30, noise=0.5, waits=waits), ([""] * 30, [""] * 30))
    assert ((found.posterior > 0.5) == has).all()
    assert found.affected == (("", 10, 10, 10),)


def test_strangers_on_the_cpu_hide_nothing_of_the_work():
    rng = np.random.default_rng(2)
    has = np.arange(30) % 2 == 0
    before, after = table(rng, 30, cpu=3e6), table(rng, 30, cpu=9e6, waits=8e6 * has)
    found = find(
        *(before, after, ([""] * 30, [""] * 30)), work=(without_cpu(before), without_cpu(after))
    )
    assert ((found.posterior > 0.5) == has).all()


@pytest.mark.parametrize("pace", [1.0, 1.08])
def test_kinds_that_the_machine_made_slower_have_no_change(pace):
    """One of six kinds has it; all of them take 8 % longer on a slower machine."""
    rng = np.random.default_rng(3)
    labels = [f"kind-{i % 6}" for i in range(120)]
    has = np.array([label == "kind-2" for label in labels]) & (np.arange(120) % 12 < 6)
    before, after = table(rng, 120), table(rng, 120, waits=1e7 * has)
    after = VectorTable(SYMBOLS, after.counts, np.rint(after.durations * pace).astype(np.int64))
    found = find(before, after, (labels, labels))
    assert ((found.posterior > 0.5) == has).all()
    assert {one.label: one.many for one in found.affected if one.many} == {"kind-2": has.sum()}


def test_all_kinds_may_have_it():
    rng = np.random.default_rng(4)
    labels = [f"kind-{i % 4}" for i in range(80)]
    before, after = table(rng, 80), table(rng, 80, waits=3e6)
    found = find(before, after, (labels, labels))
    assert (found.posterior > 0.5).mean() >= 0.95


def test_marks_stay_where_a_kind_is_too_small_to_tell():
    rng = np.random.default_rng(5)
    labels = ["large"] * 20 + ["small"] * 2
    before, after = table(rng, 22), table(rng, 22, waits=5e6)
    found = find(before, after, (labels, labels))
    assert np.isnan(found.posterior[20:]).all()
    assert mark_affected(found).anomalous.tolist() == [True] * 20 + [False] * 2


def test_what_nobody_has_changes_no_mark():
    rng = np.random.default_rng(6)
    labels = [f"kind-{i % 2}" for i in range(60)]
    found = find(table(rng, 60), table(rng, 60), (labels, labels))
    assert not (found.posterior > 0.5).any()
    assert mark_affected(found).affected == ()
