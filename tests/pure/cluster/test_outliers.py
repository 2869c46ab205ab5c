"""Outlier executions, and the whole chain on a simulated workload."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from critpath.cluster.optics import cluster
from critpath.cluster.outliers import find_outliers, shifted_columns
from critpath.cluster.pairing import pair
from critpath.cluster.types import cluster_sample
from critpath.detect.coarse import detect
from critpath.model import State, Symbol, VectorTable
from critpath.stats.tails import conformal
from critpath.text.notes import word_all


def chain(normal, sample, *, permutations=499):
    types = cluster(normal)
    sample_types = cluster_sample(sample, normal, types)
    pairs = pair(normal, types, sample, sample_types)
    found = find_outliers(normal, types, sample, sample_types, pairs)
    detection = detect(
        normal,
        sample,
        normal_type=types.labels,
        sample_type=pairs.pair[sample_types.labels],
        permutations=permutations,
    )
    return found, detection


@pytest.mark.parametrize(
    ("kind", "bug"), [("mixed", "delay"), ("read", "fsync"), ("cpu", "lock"), ("write", "lock")]
)
def test_the_slow_executions_are_marked_and_at_most_one_other(
    simulated, healthy, faulty, kind, bug
):
    """``cpu`` with the lock bug has the counts of the healthy type ``lock``."""
    missed = 0
    for seed in range(2):
        normal = simulated(healthy, 1000 + seed)
        sample = simulated(faulty(kind, bug), 5000 + seed)
        found, _ = chain(normal.table, sample.table)
        missed += int((~found.anomalous[sample.buggy]).sum())
        assert found.anomalous[~sample.buggy].sum() <= 1
        assert found.excess[sample.buggy].min() > 0
    assert missed <= 1


@pytest.mark.parametrize("small", [False, True])
def test_healthy_sets_raise_no_alarm(simulated, healthy, faulty, small):
    """Also where the sample has another mix of types: that is no slowdown."""
    marked = flagged = 0
    for seed in range(6):
        normal = simulated(healthy, 200 + seed)
        sample = simulated(faulty("read", "none") if small else healthy, 700 + seed)
        found, detection = chain(normal.table, sample.table)
        marked += bool(found.anomalous.any())
        flagged += detection.flagged
    assert flagged == 0
    assert marked <= 1  # the marks are made at a false discovery rate of 5 %


def table(durations):
    durations = np.asarray(durations, np.int64)
    names = tuple(Symbol(State.RUN, str(i)) for i in range(durations.shape[1]))
    return VectorTable(names, np.ones_like(durations), durations)


def judge(normal, sample, **settings):
    types, sample_types = cluster(normal), cluster(sample)
    pairs = pair(normal, types, sample, sample_types)
    return find_outliers(normal, types, sample, sample_types, pairs, **settings)


def test_the_papers_rule_is_mean_plus_k_std_of_any_state():
    normal = table([[100, 10], [110, 10], [120, 10], [130, 10]])
    # mean 115, std (ddof 1) 12.909...: the threshold at k = 1.5 is 134.36
    found = judge(normal, table([[134, 10], [135, 10], [115, 11], [115, 10]]))
    assert found.paper.tolist() == [False, True, True, False]
    assert found.excess.tolist() == [19, 20, 1, 0]


def plain_scores(bag, kinds, offset):
    """Score every member of a bag against its type's others, as the definition has it."""
    scores = []
    for i in range(len(bag)):
        product = np.ones(bag.shape[1])
        for values, in_logs in ((bag, False), (np.log(bag + offset), True)):
            rest, kind = np.delete(values, i, axis=0), np.delete(kinds, i)
            squares = sum(
                ((rest[kind == k] - rest[kind == k].mean(axis=0)) ** 2).sum(axis=0)
                for k in set(kind.tolist())
            )
            pooled = squares / (len(rest) - len(set(kinds.tolist())))
            mine = rest[kind == kinds[i]]
            variance = pooled
            if len(mine) >= 5:
                variance = ((mine - mine.mean(axis=0)) ** 2).sum(axis=0) + 5 * pooled
                variance /= len(mine) - 1 + 5
            least = 0.05 if in_logs else 0.05 * mine[:, -1].mean()
            z = (values[i] - mine.mean(axis=0)) / np.sqrt(variance + least**2)
            product *= np.maximum(z, 0)
        scores.append(np.sqrt(product.sum()))
    return np.array(scores)


def two_types(simulated, each, seed):
    """Executions of two types that their counts tell apart, durations as simulated."""
    drawn = simulated([("read", "none"), ("cpu", "none")] * each, seed).table
    counts = np.zeros_like(drawn.counts)
    counts[1::2, 0] = 50
    return drawn.symbols, counts, drawn.durations.copy()


def test_p_is_the_share_of_the_bag_that_scores_as_much(simulated):
    """The closed form must give what joining, leaving out and refitting gives."""
    symbols, counts, durations = two_types(simulated, 15, 3)
    normal = VectorTable(symbols, counts, durations)
    _, counts, durations = two_types(simulated, 4, 8)
    durations[:3] *= 2
    sample = VectorTable(symbols, counts, durations)
    types, sample_types = cluster(normal), cluster(sample, min_samples=2)
    pairs = pair(normal, types, sample, sample_types)
    found = find_outliers(normal, types, sample, sample_types, pairs, types_known=True)

    x = np.column_stack([normal.durations, normal.total]).astype(float)
    y = np.column_stack([sample.durations, sample.total]).astype(float)
    partner = pairs.pair[sample_types.labels]
    assert len(set(partner.tolist())) == 2
    for i, row in enumerate(y):
        kinds = np.append(types.labels, partner[i])
        scores = plain_scores(np.vstack([x, row]), kinds, 0.02 * x[:, -1].mean())
        assert found.score[i] == pytest.approx(scores[-1])
        assert found.p_value[i] == pytest.approx(conformal(scores[:-1], scores[-1:])[0])


def test_large_sets_are_scored_once_and_it_is_said(simulated, monkeypatch):
    symbols, counts, durations = two_types(simulated, 40, 3)
    normal = VectorTable(symbols, counts, durations)
    _, counts, durations = two_types(simulated, 4, 8)
    durations[0] *= 4
    sample = VectorTable(symbols, counts, durations)
    exact = judge(normal, sample, types_known=True)
    monkeypatch.setattr("critpath.cluster.outliers.EXACT_LIMIT", 0)
    quick = judge(normal, sample, types_known=True)
    assert quick.score == pytest.approx(exact.score)
    assert np.abs(quick.p_value - exact.p_value).max() < 0.1
    assert quick.anomalous.tolist() == exact.anomalous.tolist()
    assert any("computed once" in note for note in word_all(quick.notes))
    assert not any("computed once" in note for note in word_all(exact.notes))


def test_one_execution_alone_beyond_all_is_named_if_it_cannot_be_convicted():
    rng = np.random.default_rng(4)
    drawn = rng.lognormal(13, 0.3, (41, 4)).astype(np.int64)
    drawn[40] = np.sort(drawn[:40], axis=0)[-1] * 1.15
    few = judge(table(drawn[:15]), table(drawn[[*range(15, 35), 40]]), types_known=True)
    assert not few.anomalous.any()
    assert any(
        "beyond all 15 before" in note and "839 runs before" in note for note in word_all(few.notes)
    )


def test_a_groups_test_does_not_depend_on_the_order():
    rng = np.random.default_rng(6)
    normal, sample = rng.lognormal(0, 0.5, (40, 6)), rng.lognormal(0.25, 0.5, (25, 6))
    for alpha in (0.02, 0.05, 0.1, 0.2, 0.4):
        first = shifted_columns(normal, sample, alpha=alpha, floor=0.0)
        for _ in range(3):
            again = shifted_columns(
                rng.permutation(normal), rng.permutation(sample), alpha=alpha, floor=0.0
            )
            assert again.tolist() == first.tolist()


def test_of_many_executions_groups_change_places_in_any_order(override):
    """At 5 % equal sets alarm about as often as with single ones, and what is slower shows."""
    rng, alarms = np.random.default_rng(9), 0
    override("permutations.units", 60)
    override("permutations.least_groups", 20)
    for _ in range(30):
        normal, sample = rng.lognormal(0, 0.5, (190, 3)), rng.lognormal(0, 0.5, (83, 3))
        alarms += shifted_columns(normal, sample, alpha=0.05, floor=0.0).any()
    assert alarms <= 6  # 99.9 % of the time where one in twenty does
    for sides in ((normal, sample), (sample, normal)):
        sides[1][:, 2] *= 1.6
        found = shifted_columns(*sides, alpha=0.01, floor=0.0)
        assert found.tolist() == [False, False, True]
        again = shifted_columns(*map(rng.permutation, sides), alpha=0.01, floor=0.0)
        assert again.tolist() == found.tolist()
        sides[1][:, 2] /= 1.6


def test_a_groups_test_takes_sets_of_thousands():
    rng = np.random.default_rng(1)
    normal, sample = rng.lognormal(0, 0.3, (3000, 2)), rng.lognormal(0, 0.3, (2500, 2))
    sample[:, 0] *= 1.1
    assert shifted_columns(normal, sample, alpha=0.01, floor=0.05).tolist() == [True, False]


def test_a_group_may_be_the_larger_set():
    """The assignments of the smaller set decide, whichever it is."""
    rng = np.random.default_rng(0)
    normal, sample = rng.uniform(100, 110, (5, 3)), rng.uniform(100, 110, (15, 3))
    sample[:, 1] += 50
    assert shifted_columns(normal, sample, alpha=0.01, floor=5).tolist() == [False, True, False]
    assert not shifted_columns(sample, normal, alpha=0.01, floor=5).any()


def test_conformal_p_counts_scores_at_or_above():
    null = np.array([1.0, 2.0, 3.0])
    assert conformal(null, np.array([0.0, 2.0, 9.0])).tolist() == [1.0, 0.75, 0.25]
    assert conformal(np.zeros(0), np.array([5.0])).tolist() == [1.0]


def test_the_tail_goes_on_below_one_over_n():
    null = np.random.default_rng(5).pareto(3, 200) + 1
    p = conformal(null, np.array([null.max() * 1.01, 50.0, 500.0]))
    assert (p <= 1 / 201).all()
    assert p[0] > p[1] > p[2] > 0
    # Pareto(3): the true tail at 50 is 50**-3 = 8e-6; the estimate must not be below it.
    assert p[1] > 8e-6


def test_conformal_p_is_uniform_enough_under_the_null():
    rng = np.random.default_rng(9)
    rejected = sum(
        conformal(np.abs(rng.normal(size=100)), np.abs(rng.normal(size=1)))[0] <= 0.05
        for _ in range(2000)
    )
    assert 60 <= rejected <= 140


def test_shifted_columns_matches_a_hand_count():
    """Five above all of fifteen in one column: one assignment of 15,504."""
    rng = np.random.default_rng(0)
    normal = rng.uniform(100, 110, (15, 3))
    sample = rng.uniform(100, 110, (5, 3))
    sample[:, 1] += 50
    alpha = float(Fraction(3, 15504))
    assert shifted_columns(normal, sample, alpha=0.01, floor=5).tolist() == [False, True, False]
    assert not shifted_columns(normal, sample, alpha=alpha / 100, floor=5).any()
    assert not shifted_columns(normal, sample, alpha=0.01, floor=60).any()
    assert not shifted_columns(normal[:3], sample[:2], alpha=0.01, floor=5).any()


def test_an_execution_of_a_new_type_does_not_slip_through(simulated, healthy):
    normal = simulated(healthy, 4).table
    counts, durations = normal.counts[:1].copy(), normal.durations[:1].copy()
    counts[:] = 0
    durations[:] = 0
    counts[0, :2] = 60
    durations[0, 1] = 90_000_000
    found, _ = chain(normal, VectorTable(normal.symbols, counts, durations))
    assert found.anomalous.tolist() == [True]
    assert any("not there before" in note for note in word_all(found.notes))


@pytest.mark.parametrize(
    ("normal", "sample"),
    [
        ([[5, 0]], [[5, 0]]),
        ([[0, 0]], [[0, 0], [7, 0]]),
        ([[5, 5]] * 40, [[5, 5]]),
        ([[5, 0]] * 40, [[5, 9]]),
        ([[0, 0]] * 3, [[10**15, 10**15]]),
        ([[1, 2], [3, 4]], [[2, 3]] * 30),
        ([[5, 5]] * 3, np.zeros((0, 2))),
        ([[7, 1]] * 10_000, [[7, 1]]),
    ],
)
def test_degenerate_sets_have_finite_answers(normal, sample):
    normal, sample = table(normal), table(np.reshape(sample, (-1, 2)))
    found = judge(normal, sample)
    assert len(found.score) == len(sample)
    assert np.isfinite(found.score).all()
    assert ((found.p_value > 0) & (found.p_value <= 1)).all()
    same = (sample.durations == normal.durations[0]).all(axis=1)
    if (normal.durations == normal.durations[0]).all():
        assert not (found.paper | found.anomalous)[same].any()
        # One execution has no standard deviation to be above.
        assert found.paper[~same].all() == (len(normal) > 1 or bool(same.all()))


def test_few_normal_executions_are_said():
    found = judge(table([[5, 5], [6, 5]]), table([[5, 5]]))
    assert any("low support" in note for note in word_all(found.notes))
    assert any("no p-value can be below" in note for note in word_all(found.notes))


def test_the_order_of_executions_does_not_matter(simulated, healthy, faulty):
    normal = simulated(healthy, 11).table
    sample = simulated(faulty("mixed", "delay"), 12).table
    rng = np.random.default_rng(0)
    a, b = rng.permutation(len(normal)), rng.permutation(len(sample))
    one, detection = chain(normal, sample)
    other, again = chain(
        VectorTable(normal.symbols, normal.counts[a], normal.durations[a]),
        VectorTable(sample.symbols, sample.counts[b], sample.durations[b]),
    )
    assert other.anomalous.tolist() == one.anomalous[b].tolist()
    assert other.p_value == pytest.approx(one.p_value[b], rel=1e-9)
    assert again.flagged == detection.flagged
