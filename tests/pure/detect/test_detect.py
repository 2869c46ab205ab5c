"""The gate: exact, calibrated, deterministic, blind to the mix, with an answer to everything."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from critpath.detect.coarse import detect, mix_shift
from critpath.detect.rules import RULES
from critpath.errors import InconclusiveError
from critpath.model import State, Symbol, VectorTable
from critpath.stats.permutations import gate
from critpath.stats.rows import make_seed
from critpath.text.notes import word_all


def table(durations, state=State.RUN):
    durations = np.asarray(durations, np.int64)
    names = tuple(Symbol(state, str(i)) for i in range(durations.shape[1]))
    return VectorTable(names, (durations > 0).astype(np.int64), durations)


def lognormal(rng, n, columns=10, sigma=0.3):
    return np.rint(rng.lognormal(8, sigma, (n, columns)) * 1000).astype(np.int64)


def finite(detection):
    for state in detection.states:
        for name in state.__struct_fields__:
            value = getattr(state, name)
            if isinstance(value, float):
                assert math.isfinite(value), (state.state, name)
    assert math.isfinite(detection.floor)


@pytest.mark.deep
def test_false_alarms_stay_near_the_level():
    """Equal distributions, 200 comparisons at 5 %: expected 10, 99.9 % below 21."""
    rng = np.random.default_rng(1)
    alarms = 0
    for _ in range(200):
        normal, sample = table(lognormal(rng, 30, 4)), table(lognormal(rng, 10, 4))
        alarms += detect(normal, sample, alpha=0.05, floor=0.0, permutations=299).flagged
    assert alarms <= 20


@pytest.mark.deep
def test_stratified_false_alarms_stay_near_the_level():
    rng = np.random.default_rng(2)
    alarms = 0
    for _ in range(100):
        normal, sample = lognormal(rng, 40, 3), lognormal(rng, 14, 3)
        normal_type, sample_type = np.arange(40) % 4, np.array([0] * 8 + [1, 2, 3] * 2)
        normal[normal_type == 0] *= 7
        sample[sample_type == 0] *= 7
        alarms += detect(
            table(normal), table(sample), alpha=0.05, floor=0.0, permutations=299,
            normal_type=normal_type, sample_type=sample_type,
        ).flagged  # fmt: skip
    assert alarms <= 12


def test_a_shift_is_found_and_its_size_is_right():
    rng = np.random.default_rng(3)
    normal, sample = lognormal(rng, 100), lognormal(rng, 100)
    sample[:, 4] *= 2
    found = detect(table(normal), table(sample))
    assert found.flagged
    assert [s.state for s in found.states if s.flagged] in (["RUN@4"], ["RUN@4", "total"])
    state = found.states[4]
    assert state.p_value <= 0.001
    assert state.effect_low <= normal[:, 4].mean() <= state.effect_high
    assert state.effect == pytest.approx(sample[:, 4].mean() - normal[:, 4].mean())
    assert found.states[-1].state == "total"
    assert not found.remarks


def test_enumeration_is_counting_by_hand():
    normal, sample = np.array([[1], [2], [3], [4]]), np.array([[9], [10]])
    test = gate(normal, sample, np.zeros(4, int), np.zeros(2, int), alpha=0.1, permutations=9)
    assert test.exact
    assert test.permutations == 15
    assert test.p_value == pytest.approx([1 / 15])


def test_sampling_agrees_with_enumeration(override):
    rng = np.random.default_rng(5)
    normal, sample = lognormal(rng, 9, 3), lognormal(rng, 6, 3)
    sample[:, 0] = sample[:, 0] * 5 // 4
    zero = np.zeros(9, int), np.zeros(6, int)
    exact = gate(normal, sample, *zero, alpha=0.05, permutations=1)
    assert exact.permutations == math.comb(15, 6)
    override("permutations.exact", 10)
    drawn = gate(normal, sample, *zero, alpha=0.05, permutations=9999)
    assert not drawn.exact
    error = np.sqrt(exact.p_value * (1 - exact.p_value) / 9999)
    assert (np.abs(drawn.p_value - exact.p_value) <= 4 * error + 1e-3).all()


def test_strata_are_enumerated_within_themselves():
    normal, sample = np.array([[1], [2], [101], [102]]), np.array([[3], [103]])
    types = np.array([0, 0, 1, 1]), np.array([0, 1])
    test = gate(normal, sample, *types, alpha=0.1, permutations=9)
    assert test.permutations == 9  # three ways in each type
    assert test.p_value == pytest.approx([1 / 9])


def test_groups_that_change_places_decide_as_single_executions_do(override):
    """Two types of different size, one state longer, one longer still, one in few executions."""
    rng = np.random.default_rng(23)
    normal, sample = lognormal(rng, 1_500, 4), lognormal(rng, 900, 4)
    sample[:, 1] = sample[:, 1] * 1035 // 1000
    sample[:, 2] *= 3
    normal[:, 3], sample[:, 3] = 0, 0
    normal[:8, 3], sample[:13, 3] = 10**7, 10**7
    types = np.arange(1_500) % 3 // 2, np.arange(900) % 3 // 2
    override("permutations.units", 3_000)
    single = gate(normal, sample, *types, alpha=0.05, permutations=4_999)
    override("permutations.units", 300)
    override("permutations.least_groups", 40)
    groups = gate(normal, sample, *types, alpha=0.05, permutations=4_999)
    assert groups.p_value[2] == single.p_value[2] == 1 / 5_000
    assert (single.p_value[[1, 3]] < 0.5).all()
    # A change that is certain must not hide the others: sums are divided by their own spread.
    ratio = groups.p_value[[0, 1, 3]] / single.p_value[[0, 1, 3]]
    assert (np.abs(np.log(ratio)) < 1).all()
    assert groups.critical == pytest.approx(single.critical, rel=0.1)
    again = gate(normal[::-1], sample[::-1], *(t[::-1] for t in types), alpha=0.05,
                 permutations=4_999)  # fmt: skip
    assert again.p_value.tolist() == groups.p_value.tolist()


@pytest.mark.deep
def test_groups_keep_the_level():
    """Equal sets of 4,500 executions in groups of three, 300 times at 5 %: 99.9 % below 28."""
    rng, alarms = np.random.default_rng(22), 0
    for _ in range(300):
        normal, sample = lognormal(rng, 4_500, 2, 1.0), lognormal(rng, 4_500, 2, 1.0)
        zero = np.zeros(4_500, int)
        found = gate(normal, sample, zero, zero, alpha=0.05, permutations=299)
        alarms += bool((found.p_value <= 0.05).any())
    assert 3 <= alarms <= 27


def test_equal_data_give_equal_answers_in_any_order():
    rng = np.random.default_rng(6)
    normal, sample = lognormal(rng, 40), lognormal(rng, 20)
    one = detect(table(normal), table(sample), permutations=299)
    assert one == detect(table(normal), table(sample), permutations=299)
    a, b = rng.permutation(40), rng.permutation(20)
    assert make_seed(normal[a]) == make_seed(normal)
    again = detect(table(normal[a]), table(sample[b]), permutations=299)
    assert [s.p_value for s in again.states] == [s.p_value for s in one.states]
    for field in ("effect", "effect_low", "effect_high"):
        assert [getattr(s, field) for s in again.states] == pytest.approx(
            [getattr(s, field) for s in one.states]
        )


def test_a_mix_shift_is_a_note_and_no_slow_down():
    rng = np.random.default_rng(7)
    normal = np.concatenate([lognormal(rng, 50), lognormal(rng, 50) * 5])
    sample = np.concatenate([lognormal(rng, 5), lognormal(rng, 45) * 5])
    types = np.repeat([0, 1], 50), np.repeat([0, 1], [5, 45])
    assert detect(table(normal), table(sample)).flagged
    found = detect(table(normal), table(sample), normal_type=types[0], sample_type=types[1])
    assert not found.flagged
    assert any("another mix of types" in note for note in word_all(found.remarks))
    total = found.states[-1]
    assert abs(total.effect) < 0.1 * total.normal_mean


def test_a_slow_down_hidden_by_the_mix_is_found():
    rng = np.random.default_rng(8)
    normal = np.concatenate([lognormal(rng, 50), lognormal(rng, 50) * 5])
    sample = np.concatenate([lognormal(rng, 45) * 2, lognormal(rng, 5) * 5])
    types = np.repeat([0, 1], 50), np.repeat([0, 1], [45, 5])
    assert not detect(table(normal), table(sample)).states[-1].flagged
    found = detect(table(normal), table(sample), normal_type=types[0], sample_type=types[1])
    assert found.states[-1].flagged
    assert any("type n0 by itself" in note for note in word_all(found.remarks))


def test_faster_is_no_anomaly_and_is_said():
    rng = np.random.default_rng(9)
    found = detect(table(lognormal(rng, 60) * 2), table(lognormal(rng, 60)))
    assert not found.flagged
    assert any("faster" in note for note in word_all(found.remarks))


@pytest.mark.parametrize("taken", [1, 0])
@pytest.mark.parametrize("types", [1, 2])
def test_waits_for_a_cpu_that_another_thread_has_less_of_are_no_slow_down(taken, types):
    """The scheduler let one thread wait instead of another; the program did not change."""
    rng = np.random.default_rng(3)
    normal, sample = lognormal(rng, 100, 4, 0.1), lognormal(rng, 100, 4, 0.1)
    sample[:, 1] += 3_000_000
    sample[:, 2] -= taken * (sample[:, 2] - 10_000)
    sample[:, 3] += (1 - taken) * 10
    kinds = np.arange(100) % types
    given = {"normal_type": kinds, "sample_type": kinds}
    found = detect(table(normal, State.WAIT_CPU), table(sample, State.WAIT_CPU), **given)
    assert found.flagged is not bool(taken)
    assert not (taken and found.slower)
    assert {c.name for c in (found.slight if taken else found.slower)} >= {"WAIT_CPU@1"}
    assert detect(table(normal), table(sample), **given).flagged  # not of other states


def test_the_floor_silences_what_is_too_small_to_matter():
    rng = np.random.default_rng(10)
    normal = 10**6 + rng.integers(0, 100, (100, 1))
    sample = 10**6 + 1000 + rng.integers(0, 100, (100, 1))
    assert not detect(table(normal), table(sample)).flagged
    found = detect(table(normal), table(sample), floor=0.0)
    assert found.flagged
    assert detect(table(normal), table(sample), rule="paper").flagged


def test_sets_too_small_for_the_level_say_what_is_needed():
    found = detect(table([[100]] * 5), table([[900]] * 2))
    assert not found.enough
    assert not found.flagged
    assert found.detectable is None
    assert math.comb(5 + found.needed, found.needed) >= 200
    assert math.comb(5 + found.needed - 1, found.needed - 1) < 200
    large = detect(table([[100]] * 5), table([[900]] * found.needed))
    assert large.enough
    assert large.flagged


def test_the_detectable_shift_is_detected_and_a_fifth_of_it_is_not():
    rng = np.random.default_rng(11)
    hits = {0.2: 0, 1.5: 0}
    for share in hits:
        for _ in range(6):
            normal, sample = lognormal(rng, 60, 3), lognormal(rng, 60, 3)
            shift = detect(table(normal), table(sample), floor=0.0, permutations=299).detectable
            sample[:, 0] += int(shift * share)
            found = detect(table(normal), table(sample), floor=0.0, permutations=299)
            hits[share] += found.states[-1].flagged
    assert hits[0.2] <= 1
    assert hits[1.5] >= 5


def test_sessions_raise_the_floor_and_are_permuted_whole():
    rng = np.random.default_rng(12)
    drift = np.array([1.0, 1.2, 0.85, 1.1, 0.95, 1.15])
    normal = (lognormal(rng, 60) * drift[np.arange(60) % 6][:, None]).astype(np.int64)
    sample = (lognormal(rng, 50) * 1.1).astype(np.int64)
    session = np.arange(60) % 6
    few = detect(table(normal), table(sample), normal_session=session,
                 sample_session=np.arange(50) % 2, permutations=299)  # fmt: skip
    assert few.floor > 0.2 * normal.sum(axis=1).mean()
    assert any("effect floor raised" in note for note in word_all(few.remarks))
    assert any("too few to permute whole" in note for note in word_all(few.remarks))
    many = detect(table(normal), table(sample), normal_session=session,
                  sample_session=np.arange(50) % 5, permutations=299)  # fmt: skip
    assert many.permutations == math.comb(11, 5)
    assert many.enough


@pytest.mark.parametrize(
    ("normal", "sample"),
    [
        ([[5, 0]], [[5, 0]]),
        ([[0, 0]], [[0, 0]]),
        ([[5, 5]] * 30, [[5, 5]] * 30),
        ([[5, 0]] * 30, [[5, 9]] * 30),
        ([[0, 0]] * 30, [[0, 10**15]] * 30),
        ([[7, 1]] * 10_000, [[7, 1]]),
        ([[1, 2], [3, 4]], [[2, 3]] * 200),
    ],
)
@pytest.mark.parametrize("rule", RULES)
def test_degenerate_sets_have_finite_answers(normal, sample, rule):
    found = detect(table(normal), table(sample), rule=rule, permutations=299)
    finite(found)
    assert all(0 < s.p_value <= 1 for s in found.states)
    if normal[0] == sample[0]:
        assert not found.flagged


def test_empty_sets_are_inconclusive():
    for normal, sample in itertools.permutations([np.zeros((0, 2)), [[1, 2]]]):
        with pytest.raises(InconclusiveError) as caught:
            detect(table(normal), table(sample))
        assert caught.value.do


def test_types_without_a_counterpart_are_counted():
    rng = np.random.default_rng(13)
    found = detect(
        table(lognormal(rng, 20)), table(lognormal(rng, 20)),
        normal_type=np.zeros(20, int), sample_type=np.arange(20) % 2,
    )  # fmt: skip
    finite(found)
    assert any(
        "10 runs after of a type that has none before" in note for note in word_all(found.remarks)
    )


def test_bad_settings_are_refused():
    one = table([[1, 2]])
    with pytest.raises(ValueError, match="median"):
        detect(one, one, rule="median")
    with pytest.raises(ValueError, match="alpha"):
        detect(one, one, alpha=0)
    with pytest.raises(ValueError, match="different symbols"):
        detect(one, table([[1]]))
    with pytest.raises(ValueError, match="one type per run"):
        detect(one, one, normal_type=np.zeros(2, int), sample_type=np.zeros(1, int))


def test_mix_shift():
    assert mix_shift(np.repeat([0, 1], 50), np.repeat([0, 1], 20)) > 0.5
    assert mix_shift(np.repeat([0, 1], 50), np.repeat([0, 1], [36, 4])) < 0.001
    assert mix_shift(np.zeros(5, int), np.zeros(3, int)) == 1.0
    assert mix_shift(np.zeros(0, int), np.zeros(3, int)) == 1.0


def test_large_sets_have_an_answer_and_say_how_many_permutations_it_took(override):
    override("permutations.work", 3_000_000)
    rng = np.random.default_rng(17)
    # More ways to divide each type than a float can hold.
    normal, sample = lognormal(rng, 2_000, 2), lognormal(rng, 2_000, 2)
    types = np.arange(2_000) % 2
    found = detect(table(normal), table(sample), normal_type=types, sample_type=types)
    assert not found.flagged
    assert found.permutations == 3_000
    assert any("3,000 permutations drawn" in note for note in word_all(found.remarks))


def test_a_tiny_certain_shift_does_not_borrow_the_size_of_chance():
    """Type 0 is 2 % slower for certain, type 1 noisy: the mean of both is no evidence."""
    rng = np.random.default_rng(18)
    types = np.repeat([0, 1], [60, 40]), np.repeat([0, 1], [15, 10])
    alarms = 0
    for _ in range(10):
        normal = np.concatenate([rng.normal(1e5, 300, 60), rng.lognormal(11.5, 1.2, 40)])
        sample = np.concatenate([rng.normal(1.02e5, 300, 15), rng.lognormal(11.5, 1.2, 10)])
        found = detect(table(normal[:, None]), table(sample[:, None]), permutations=499,
                       normal_type=types[0], sample_type=types[1])  # fmt: skip
        alarms += found.flagged
        assert any(c.kind == 0 for c in found.slight)
    assert alarms <= 2


def test_what_is_said_of_a_type_is_of_that_type():
    rng = np.random.default_rng(19)
    types = np.repeat([0, 1], 60), np.repeat([0, 1], 15)
    normal = rng.normal(1e6, 2e4, (120, 1))
    sample = rng.normal(1e6, 2e4, (30, 1)) * np.repeat([1.3, 0.6], 15)[:, None]
    found = detect(table(normal), table(sample), normal_type=types[0], sample_type=types[1])
    worst = found.slower[0]
    assert worst.kind == 0
    assert worst.effect == pytest.approx(3e5, rel=0.1)
    assert found.states[0].effect < 0


def test_what_is_needed_keeps_the_mix_of_types():
    normal, sample = np.full((103, 1), 10), np.full((3, 1), 10)
    types = np.repeat([0, 1], [100, 3]), np.ones(3, np.int64)
    found = detect(table(normal), table(sample), normal_type=types[0], sample_type=types[1])
    assert not found.enough
    assert math.comb(3 + found.needed, 3) >= 250 > math.comb(2 + found.needed, 3)
    assert detect(table([[10]]), table([[10]])).needed == 5
    apart = detect(table(normal), table(sample), normal_type=np.zeros(103, np.int64),
                   sample_type=types[1])  # fmt: skip
    assert (apart.enough, apart.needed) == (False, 0)


def test_the_numbering_of_sessions_does_not_matter():
    rng = np.random.default_rng(20)
    normal, sample = lognormal(rng, 60, 2), lognormal(rng, 60, 2)
    session = np.arange(60) % 10
    first, second = (
        detect(table(normal), table(sample), normal_session=s, sample_session=s, permutations=999)
        for s in (session, 9 - session)
    )
    assert [s.p_value for s in first.states] == [s.p_value for s in second.states]
    assert any("whole sessions" in note for note in word_all(first.remarks))
