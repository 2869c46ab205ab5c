"""OK means that a slowdown of so much would have been seen; else how many would do is said."""

from __future__ import annotations

import numpy as np
import pytest

from critpath.detect.coarse import detect
from critpath.detect.verdict import Apart, decide, find_unseen
from critpath.documents.base import change
from critpath.model import Change, State, Symbol, VectorTable
from critpath.schema import notes
from critpath.stats.means import find_usual_change


def drawn(rng, n, spread, times=1.0):
    durations = 1e7 * times * rng.lognormal(0, spread, (n, 1))
    return VectorTable(
        (Symbol(State.RUN),), np.ones((n, 1), np.int64), np.rint(durations).astype(np.int64)
    )


def judged(rng, n, spread, times=1.0):
    sets = drawn(rng, n, spread), drawn(rng, n, spread, times)
    return detect(*sets, permutations=999, screening=False)


@pytest.mark.parametrize("spread", [0.1, 0.5, 1.0])
def test_as_many_as_it_asks_for_would_do(spread):
    """Equal sets: of those that do not show a quarter, sets of the size advised do."""
    rng = np.random.default_rng(3)
    asked, shown = 0, []
    for _ in range(6):
        note = find_unseen(judged(rng, 12, spread), (12, 12), 0.25)
        if note is None:
            continue
        asked += 1
        assert note.would_do > 12
        if asked > 3:
            continue
        again = [judged(rng, note.would_do, spread) for _ in range(4)]
        shown += [find_unseen(one, (note.would_do,) * 2, 0.25) is None for one in again]
    assert sum(shown) >= 0.7 * len(shown)
    assert (asked == 0) == (spread == 0.1)


def test_an_answer_of_ok_hides_no_slowdown_of_a_quarter():
    """Of 180 pairs of all spreads: none that is slower by 40 % is called OK."""
    rng = np.random.default_rng(5)
    said = {1.0: [], 1.4: []}
    for spread in (0.05, 0.3, 0.8):
        for times, answers in said.items():
            for _ in range(30):
                found = judged(rng, 30, spread, times)
                unseen = find_unseen(found, (30, 30), 0.25)
                answers.append("slower" if found.flagged else "unknown" if unseen else "ok")
    assert said[1.4].count("ok") <= 1
    assert said[1.0].count("slower") <= 2
    assert said[1.0].count("ok") >= 30


def test_what_is_sure_below_the_limit_is_ok_and_what_is_sure_of_no_size_is_not():
    rng = np.random.default_rng(1)
    found = judged(rng, 40, 0.05)
    whole = found.states[-1]

    def with_total(**figures):
        states = [*found.states[:-1], change(whole, **figures)]
        return change(found, states=states, flagged=False, usual=None)

    ms = 1e6
    slight = with_total(p_value=1e-4, effect=0.3 * ms, effect_low=0.1 * ms, effect_high=0.45 * ms)
    assert find_unseen(slight, (40, 40), 0.25) is None
    other = with_total(p_value=1e-4, effect=-0.5 * ms, effect_low=-3 * ms, effect_high=1.9 * ms)
    note = find_unseen(other, (40, 40), 0.25)
    assert isinstance(note, notes.TooNoisy)
    assert note.p_value == 1e-4
    wide = with_total(p_value=0.5, effect=0.5 * ms, effect_low=-2 * ms, effect_high=2.6 * ms)
    assert find_unseen(wide, (40, 40), 0.25) is not None
    assert find_unseen(wide, (40, 40), 0.5) is None
    assert find_unseen(change(wide, faster=True), (40, 40), 0.25) is None


def test_a_certain_state_of_a_whole_below_what_counts_is_ok_whoever_made_it():
    """Sets of different times: one state is longer by just what counts, the whole by less."""
    rng = np.random.default_rng(2)
    found = judged(rng, 40, 0.05)
    whole = found.states[-1]
    small = change(
        found,
        flagged=True,
        states=[
            change(found.states[0], flagged=True),
            change(whole, effect=0.3e6, effect_low=0.1e6, effect_high=0.45e6, p_value=0.2),
        ],
        slower=(Change("RUN", 0.6e6, p_value=0.001, floor=5e5, mean=1e7, error=1e5),),
    )
    none = np.zeros(40, np.bool_)
    outliers = type("None", (), {"anomalous": none})()
    apart = Apart(0.03, float("inf"), (1, 1))
    said, _ = decide(small, outliers, (none, none), ((), ()), apart=apart)
    assert said == "ok"
    whole_too = change(
        small,
        slower=(
            *small.slower,
            Change("total", 0.8e6, p_value=0.001, floor=5e5, mean=1e7, error=1e5),
        ),
    )
    said, _ = decide(whole_too, outliers, (none, none), ((), ()), apart=apart)
    assert said == "inconclusive"


def in_runs(rng, spread, between, *, times=1.0, runs=4, each=8):
    """Return rows of runs that differ by what neighbours did, and the number of each one's run."""
    pace = rng.lognormal(0, between, runs).repeat(each)
    rows = np.rint(1e7 * times * pace * rng.lognormal(0, spread, runs * each))
    return rows.astype(np.int64)[:, None], np.arange(runs).repeat(each)


@pytest.mark.parametrize("between", [0.02, 0.1, 0.3])
def test_the_interval_of_the_usual_one_has_the_truth_in_it_whatever_runs_share(between):
    """Of 400 pairs, 30 % slower, the highest figure is below a quarter in a fortieth at most."""
    rng = np.random.default_rng(9)
    below = known = inside = 0
    for _ in range(400):
        (x, one), (y, other) = in_runs(rng, 0.2, between), in_runs(rng, 0.2, between, times=1.3)
        strata = np.zeros(len(x), np.int64), np.zeros(len(y), np.int64)
        found = find_usual_change((x, y), strata, (one, other))
        if found is None:  # runs are so far apart that one counts as far out
            continue
        change, low, high = found
        assert low <= change <= high
        known += 1
        inside += low <= 0.3 <= high
        below += high < 0.25
    assert known >= 300
    assert inside >= 0.92 * known
    assert below <= 10


def test_one_that_is_very_slow_hides_nothing_and_a_part_that_is_slow_is_no_outlier():
    rng = np.random.default_rng(2)
    zeros = np.zeros(30, np.int64)
    x, y = (np.rint(1e7 * rng.lognormal(0, 0.1, (30, 1))).astype(np.int64) for _ in range(2))
    for slow, known in ((0, True), (1, True), (6, False)):
        after = y.copy()
        after[:slow] *= 50
        found = find_usual_change((x, after), (zeros, zeros), None)
        assert (found is not None) == known
        assert not known or -0.1 < found[1] < found[2] < 0.15


def test_what_strangers_took_is_no_work_of_the_program_unless_it_surely_rose():
    """Longer by waits for strangers: OK where that may be chance, by the work alone."""
    rng = np.random.default_rng(6)
    said = {}
    for more, spread in ((1.1, 2.0), (6.0, 0.3)):
        work = [np.rint(4e6 * rng.lognormal(0, 0.02, 40)) for _ in range(2)]
        taken = [np.rint(4e6 * times * rng.lognormal(0, spread, 40)) for times in (1, more)]
        tables = [
            VectorTable(
                (Symbol(State.RUN), Symbol(State.WAIT_CPU)),
                np.ones((40, 2), np.int64),
                np.column_stack([w, strangers]).astype(np.int64),
            )
            for strangers in (taken, (0 * taken[0], 0 * taken[1]))
            for w, strangers in zip(work, strangers, strict=True)
        ]
        found = detect(*tables[:2], own=(tables[2], tables[3]), permutations=999, screening=False)
        total = change(found.states[-1], p_value=1.0)
        found = change(found, states=[*found.states[:-1], total])
        said[more] = find_unseen(found, (40, 40), 0.25) is None, found.work.surely
    assert said == {1.1: (True, False), 6.0: (False, True)}
