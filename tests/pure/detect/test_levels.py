"""Levels of states: who matches, what decides, and that alpha holds for the decision."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from critpath.detect.judging import judge
from critpath.detect.verdict import decide as verdict_of
from critpath.detect.verdict import symbol_level, symbol_levels
from critpath.documents import DurationTest
from critpath.documents.base import change, narrow
from critpath.model import CompareSettings, State, Symbol, VectorTable
from critpath.text.notes import word, word_all

RUN = Symbol(State.RUN)
HELPER = Symbol(State.RUN, "kworker/#:#")
WAIT = Symbol(State.WAIT_CPU)
ELSEWHERE = Symbol(State.WAIT_CPU, "helper")
SYMBOLS = (RUN, HELPER, WAIT, ELSEWHERE)


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ({}, ("error", "error", "error", "error", "error")),
        ({"WAIT_CPU": "warn"}, ("error", "error", "warn", "warn", "error")),
        ({"RUN@kworker/*": "off"}, ("error", "off", "error", "error", "error")),
        ({"RUN@": "off"}, ("off", "error", "error", "error", "error")),
        ({"RUN@*": "off"}, ("error", "off", "error", "error", "error")),
        ({"RUN@KWORKER/*": "off"}, ("error",) * 5),
        ({"total": "warn"}, ("error", "error", "error", "error", "warn")),
        ({"*": "off"}, ("off",) * 5),
        ({"*": "off", "RUN": "error"}, ("error", "error", "off", "off", "off")),
        ({"RUN": "error", "*": "off"}, ("error", "error", "off", "off", "off")),
        ({"RUN@kworker/*": "warn", "RUN": "off"}, ("off", "warn", "error", "error", "error")),
        (
            {"RUN@kworker/#:#": "error", "RUN@*": "off", "RUN@k*": "warn"},
            ("error", "error", "error", "error", "error"),
        ),
    ],
)
def test_the_most_specific_pattern_wins(levels, expected):
    assert symbol_levels(SYMBOLS, tuple(levels.items())) == expected


def test_among_equals_the_last_wins():
    assert symbol_level(WAIT, (("WAIT_C*", "warn"), ("WAIT*PU", "off"))) == "off"


def table(rng, n, *, slower=(1, 1, 1, 1), sigma=0.2):
    durations = rng.lognormal(8, sigma, (n, 4)) * 1000 * np.array(slower)
    durations = np.rint(durations).astype(np.int64)
    return VectorTable(SYMBOLS, np.ones((n, 4), np.int64), durations)


def decide(normal, sample, levels=(), **settings):
    chosen = CompareSettings(level=tuple(dict(levels).items()), permutations=999, **settings)
    nothing = [""] * len(normal), [""] * len(sample)
    found = judge(normal, sample, chosen, labels=nothing, sessions=(None, None), screening=False)
    return found.detection, found.warnings


@pytest.fixture
def waiting():
    """Return sets of which the sample waits four times as long for a cpu, and else is equal."""
    rng = np.random.default_rng(5)
    return table(rng, 40), table(rng, 40, slower=(1, 1, 4, 1))


def test_a_state_at_warn_fails_neither_by_itself_nor_through_the_total(waiting):
    alone, said = decide(*waiting)
    assert alone.flagged
    assert said == ()
    assert {s.state for s in alone.states if s.flagged} == {"WAIT_CPU", "total"}
    found, said = decide(*waiting, {"WAIT_CPU": "warn"})
    assert not found.flagged
    assert (found.slower, len(found.states)) == ((), 5)
    [warning] = said
    assert word(warning).startswith("WAIT_CPU is +")
    assert word(warning).endswith(": level warn")
    shown = {s.state: s for s in found.states}
    before = {s.state: s for s in alone.states}
    assert shown["WAIT_CPU"] == change(before["WAIT_CPU"], level="warn")
    assert not shown["total"].flagged
    assert any("with them the total is +" in note for note in word_all(found.remarks))


def test_at_off_nothing_is_said(waiting):
    found, said = decide(*waiting, {"WAIT_CPU": "off"})
    assert (found.flagged, said) == (False, ())
    assert next(s for s in found.states if s.state == "WAIT_CPU").flagged  # in the table


def test_what_is_left_still_fails():
    rng = np.random.default_rng(6)
    found, said = decide(table(rng, 40), table(rng, 40, slower=(3, 1, 4, 1)), {"WAIT_CPU": "warn"})
    assert found.flagged
    assert {c.name for c in found.slower} == {"RUN", "total"}
    assert len(said) == 1


def test_the_total_can_be_taken_out_of_it(waiting):
    found, said = decide(*waiting, {"WAIT_CPU*": "off", "total": "warn"})
    assert not found.flagged
    assert len(said) == 1
    assert "total is +" in word(said[0])


def test_everything_may_be_off(waiting):
    found, said = decide(*waiting, {"*": "warn"})
    assert not found.flagged
    assert len(said) == 2


def test_the_papers_rules_heed_levels(waiting):
    assert decide(*waiting, rule="paper")[0].flagged
    found, said = decide(*waiting, {"WAIT_CPU": "warn"}, rule="paper")
    assert "WAIT_CPU is +" in word(said[0])
    assert {s.state for s in found.states if s.flagged and s.level == "error"} <= {"RUN", "RUN@k"}


@pytest.mark.deep
def test_alpha_holds_for_the_decision_on_what_is_left():
    """A state at warn that is always slower, 120 comparisons at 5 %: expected 6, 99.9 % below 15.

    The total, the unusualness and every type see that state's time; the decision must not.
    """
    rng = np.random.default_rng(7)
    alarms = warned = 0
    for _ in range(120):
        normal, sample = table(rng, 20), table(rng, 20, slower=(1, 1, 5, 1))
        found, said = decide(normal, sample, {"WAIT_CPU": "warn"}, alpha=0.05, floor=0.0)
        alarms += found.flagged
        warned += bool(said)
    assert alarms <= 14
    assert warned == 120


def test_the_total_alone_is_that_of_everything(waiting):
    levels = {"*": "off", "total": "error"}
    found, _ = decide(*waiting, levels)
    full, _ = decide(*waiting)
    assert found.flagged
    assert found.states[-1].effect == full.states[-1].effect
    assert found.whole is None
    assert [c.name for c in found.slower] == ["total"]
    assert any("only the total decides" in note for note in word_all(found.remarks))
    rng = np.random.default_rng(6)
    equal, _ = decide(table(rng, 40), table(rng, 40), levels)
    assert not equal.flagged
    outliers = SimpleNamespace(anomalous=np.zeros(40, np.bool_))
    lossless = np.zeros(40, np.bool_)
    verdict, (reason,) = verdict_of(equal, outliers, (lossless, lossless), ((), ()))
    assert verdict == "ok"
    assert word(reason).startswith(
        "the total, which alone decides, is not slower at alpha 0.01; a chan"
    )
    nothing, _ = decide(*waiting, {"*": "off"})
    assert not nothing.flagged


def test_the_real_total_stands_beside_that_of_what_decides(waiting):
    found, _ = decide(*waiting, {"WAIT_CPU": "warn"})
    full, _ = decide(*waiting)
    assert found.whole == narrow(DurationTest, full.states[-1])
    assert found.states[-1].effect < full.states[-1].effect
    assert full.whole is None
    shown, _ = decide(*waiting, {"total": "warn"})
    assert shown.whole is None
