"""What calibrate finds of healthy executions whose spread is known."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from critpath.detect.coarse import detect
from critpath.detect.trials import calibrate
from critpath.errors import InconclusiveError
from critpath.model import CompareSettings
from critpath.vectors.table import by_thread, vector_table

pytestmark = pytest.mark.usefixtures("few_draws")


def table_of(path_set):
    alphabet = by_thread((path_set,))
    return vector_table(path_set, alphabet.symbols, alphabet.codes[0])


def permuted(path_set, of_durations, order):
    durations = path_set.paths.duration.reshape(len(path_set), -1)[order]
    return of_durations(durations, path_set.session[order], path_set.sources)


def found(calibration, kind, sample, state=""):
    return next(
        d
        for d in calibration.detectable
        if d.kind == kind and d.sample == sample and d.state == state
    )


@pytest.fixture(scope="module")
def quick():
    """Settings of a level that few permutations reach."""
    return CompareSettings(permutations=99, alpha=0.05)


@pytest.fixture(scope="module")
def calm(healthy, few_draws, quick):
    """Three sessions of no difference, calibrated."""
    del few_draws
    return calibrate(healthy([60, 60, 60]), quick, splits=5, sizes=(10, 30, 100))


@pytest.fixture(scope="module")
def large(healthy):
    """Enough executions that their spread is that of what they are drawn from."""
    return calibrate(healthy([200, 200], seed=2), CompareSettings(), splits=40, sizes=(30,))


def test_exchangeable_executions_alarm_no_more_than_the_level_promises(calm):
    assert calm.verdict == "calibrated"
    for each in calm.false_alarms:
        if each.kind == "shuffled":
            assert each.without_floor.count <= binom.ppf(0.9999, each.alarms.of, calm.alpha)
            assert each.alarms.count <= each.without_floor.count
            assert each.units == each.alarms.of == 5
        assert each.alarms.low <= each.alarms.share <= each.alarms.high


def test_what_is_too_large_for_the_recordings_is_said(calm):
    assert [(m.kind, m.sample, m.executions) for m in calm.missing] == [("sessions", 100, 40)]
    assert {(a.kind, a.sample) for a in calm.false_alarms} == {
        *(("shuffled", n) for n in (10, 30, 100)),
        *(("sessions", n) for n in (10, 30)),
    }


def test_more_executions_show_smaller_changes(calm):
    kinds = {(d.kind, d.state) for d in calm.detectable}
    assert ("new", "") in kinds
    assert ("state", "WAIT_TIMER") in kinds
    for kind, state in kinds:
        shifts = [found(calm, kind, n, state).shift for n in (10, 30, 100)]
        shifts = [np.inf if s is None else s for s in shifts]
        # One step of the search is 4 %.
        assert shifts[0] * 1.05 >= shifts[1]
        assert shifts[1] * 1.05 >= shifts[2]


def test_no_change_shows_below_the_floor_on_the_average(calm):
    for each in calm.detectable:
        if each.kind in {"total", "state"}:
            assert each.shift > 0.8 * 0.05 * calm.mean
    assert found(calm, "rare", 100).shift > 4 * 0.05 * calm.mean
    assert found(calm, "total", 100).by_floor


@pytest.mark.deep
@pytest.mark.parametrize(
    ("kind", "state"), [("state", "WAIT_TASK"), ("state", "RUN"), ("total", "")]
)
def test_the_smallest_change_shows_on_fresh_executions_four_times_in_five(
    large, healthy, kind, state
):
    each = found(large, kind, 30, state)
    shown, repeats = 0, 100
    for repeat in range(repeats):
        table = table_of(healthy([100, 30], seed=1000 + repeat))
        durations = table.durations.copy()
        if kind == "total":
            durations[100:] = durations[100:] * (1 + each.shift / large.mean)
        else:
            column = [s.name for s in table.symbols].index(state)
            durations[100:, column] += round(each.shift)
        normal = replace(table, counts=table.counts[:100], durations=durations[:100],
                         structure=table.structure[:100])  # fmt: skip
        sample = replace(table, counts=table.counts[100:], durations=durations[100:],
                         structure=table.structure[100:])  # fmt: skip
        shown += detect(normal, sample, permutations=999, screening=False).flagged
    assert 0.65 <= shown / repeats <= 0.95


def test_sessions_of_a_known_spread_give_its_floor(healthy, quick):
    factors = [0.9, 1.0, 1.1]
    result = calibrate(healthy([60, 60, 60], factors, spread=0.05), quick, splits=3, sizes=(10,))
    assert result.floor.spread == pytest.approx(0.1, rel=0.05)
    assert result.floor.recommended == pytest.approx(0.3, rel=0.05)
    # Two degrees of freedom: the 5 % quantile of chi-square is 0.1026.
    high = result.floor.spread * (2 / 0.1026) ** 0.5
    assert result.floor.spread_high == pytest.approx(high, rel=1e-3)
    assert result.floor.expected == pytest.approx(0.05 / 60**0.5 * 0.55, rel=0.5)
    assert result.floor.in_force == pytest.approx(result.floor.recommended)
    across = next(a for a in result.false_alarms if a.kind == "sessions")
    assert across.units == 3
    # The slowest session is slower than the others: it alarms by p, and for good reason.
    assert across.without_floor.share >= 0.3
    assert across.recommended.count == 0
    assert across.alarms.high - across.alarms.low > 0.5


def test_sessions_that_differ_more_than_the_floor_are_alarming(healthy, quick):
    sets = healthy([60, 60], [1.0, 1.25], spread=0.02)
    # What a slower machine would make is no alarm between recordings, unless that is asked for.
    assert calibrate(sets, quick, splits=3, sizes=(10,)).verdict == "calibrated"
    result = calibrate(sets, replace(quick, sessions=False), splits=3, sizes=(10,))
    assert result.verdict == "alarming"
    across = next(a for a in result.false_alarms if a.kind == "sessions")
    # The slower of the two always, the faster one never.
    assert across.alarms.share == 0.5
    assert any("--interleave" in reason for reason in result.reasons)
    shuffled = next(a for a in result.false_alarms if a.kind == "shuffled")
    assert shuffled.alarms.low <= quick.alpha


def test_one_recording_has_no_floor_to_recommend(healthy, quick):
    result = calibrate(healthy([40]), quick, splits=3, sizes=(10, 30))
    assert result.floor.recommended is None
    assert result.floor.spread is None
    assert any("cannot be known from one recording" in r for r in result.reasons)
    assert ("sessions", 10, 10, 1) in [
        (m.kind, m.sample, m.executions, m.recordings) for m in result.missing
    ]
    assert ("shuffled", 30, 20) in [(m.kind, m.sample, m.executions) for m in result.missing]


def test_two_recordings_have_a_distance_and_no_floor(healthy, quick):
    result = calibrate(healthy([30, 30]), quick, splits=3, sizes=(10,))
    assert result.floor.recommended is None
    assert result.floor.spread is not None


@pytest.mark.parametrize("sizes", [[1], [10], [10, 9]])
def test_too_few_executions_are_inconclusive_and_say_how_many_are_needed(healthy, sizes):
    with pytest.raises(InconclusiveError) as error:
        calibrate(healthy(sizes))
    assert f"needs {20 - sum(sizes)} more" in error.value.what


def test_the_order_of_recordings_and_executions_does_not_matter(healthy, of_durations, quick):
    one = healthy([20, 25], [1.0, 1.1])
    order = np.random.default_rng(3).permutation(45)
    other = permuted(one, of_durations, order)
    # The other way round: session 0 becomes session 1.
    swapped = replace(other, session=1 - other.session, sources=other.sources[::-1])
    results = [calibrate(s, quick, splits=3, sizes=(10,)) for s in (one, other, swapped)]
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("spread", [0, 1])
def test_identical_executions_are_no_trouble(of_durations, quick, spread):
    durations = np.full((40, 3), 1_000_000, np.int64)
    durations[0, 0] += spread
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = calibrate(
            of_durations(durations, np.arange(40) % 4, ["a", "b", "c", "d"]), quick,
            splits=3, sizes=(10,),
        )  # fmt: skip
    assert result.floor.recommended == 0.05
    assert all(a.alarms.count == 0 for a in result.false_alarms)
    assert found(result, "total", 10).shift == pytest.approx(0.05 * result.mean, rel=0.05)


def test_executions_without_any_duration_are_no_trouble(of_durations, quick):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = calibrate(
            of_durations(np.zeros((40, 3), np.int64), np.arange(40) % 3, "abc"), quick,
            splits=3, sizes=(10,),
        )  # fmt: skip
    assert result.verdict == "calibrated"


def test_the_papers_rule_is_measured_as_well(healthy, quick):
    asked = replace(quick, rule="paper", t2=1.25)
    result = calibrate(healthy([60, 60, 60]), asked, splits=5, sizes=(10,))
    assert result.verdict == "alarming"
    assert result.detectable == []
    assert result.false_alarms[0].without_floor is None
    assert any("use --rule gate" in reason for reason in result.reasons)


def test_what_no_time_is_left_for_is_left_out_and_said(healthy, quick):
    """Twenty splits of each kind are judged in any case; each rate says of how many it is."""
    spent = iter(range(10_000))
    shown = []
    result = calibrate(
        *(healthy([60, 60, 60]), quick),
        splits=60,
        sizes=(10,),
        progress=shown.append,
        left=lambda: 30.0 - next(spent),
    )
    judged = [one.alarms.of for one in result.false_alarms]
    assert judged[0] == 20
    assert max(judged) < 60
    assert "splits-cut" in result.warning_ids
    assert any("the time was over after" in warning for warning in result.warnings)
    assert any(", at most " in line for line in shown)
