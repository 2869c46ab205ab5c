"""OK means that a slowdown of so much would have been seen; else how many would do is said."""

from __future__ import annotations

import numpy as np
import pytest

from critpath.detect.coarse import detect
from critpath.detect.verdict import Apart, decide, find_unseen
from critpath.documents.base import change
from critpath.model import Change, State, Symbol, VectorTable
from critpath.schema import notes


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
        return change(found, states=[*found.states[:-1], change(whole, **figures)], flagged=False)

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
