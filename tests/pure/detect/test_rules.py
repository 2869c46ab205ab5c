"""A rule for the verdict is one record: its sentences and all that depends on it follow."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from critpath.commands.settings import SETTINGS
from critpath.detect.judging import judge
from critpath.detect.rules import RULES, VerdictRule
from critpath.detect.verdict import decide
from critpath.model import CompareSettings, State, Symbol, VectorTable
from critpath.schema.notes import NotFlaggedByRule
from critpath.text.notes import word


@pytest.fixture
def interval(monkeypatch):
    """A rule of somebody's own: the total's bootstrap interval is above the floor."""

    def flag(evidence):
        flagged = np.zeros(len(evidence.effects.low), np.bool_)
        flagged[-1] = evidence.effects.low[-1] > evidence.floor
        return flagged

    monkeypatch.setitem(RULES, "interval", VerdictRule(flag, floor=True))


def verdict_of(rule, factor):
    rng = np.random.default_rng(3)
    sets = []
    for slower in (1.0, factor):
        durations = np.rint(rng.lognormal(8, 0.1, (20, 1)) * 1000 * slower).astype(np.int64)
        sets.append(VectorTable((Symbol(State.RUN),), np.ones((20, 1), np.int64), durations))
    settings = CompareSettings(rule=rule, permutations=999)
    nothing = [""] * 20, [""] * 20
    found = judge(*sets, settings, labels=nothing, sessions=(None, None), screening=False)
    outliers = SimpleNamespace(anomalous=np.zeros(20, np.bool_))
    lossless = np.zeros(20, np.bool_)
    return decide(found.detection, outliers, (lossless, lossless), ((), ()))


@pytest.mark.usefixtures("interval")
def test_a_new_rule_decides_and_has_sentences():
    verdict, reasons = verdict_of("interval", 1.5)
    assert verdict == "anomaly"
    assert word(reasons[0]).startswith("total is +")
    assert word(reasons[0]).endswith("a run; flagged by the interval rule: the total")
    assert verdict_of("interval", 1.0) == ("ok", (NotFlaggedByRule("interval"),))


def test_the_command_line_offers_every_rule():
    parse = SETTINGS["rule"].parse
    assert [parse(name) for name in RULES] == list(RULES)
    assert all(name in SETTINGS["rule"].help for name in RULES)
    assert SETTINGS["rule"].default == CompareSettings().rule
    with pytest.raises(ValueError, match=" or ".join(RULES)):
        parse("nothing")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_every_rule_says_why(rule, factor):
    verdict, reasons = verdict_of(rule, factor)
    assert verdict == ("anomaly" if factor > 1 else "ok")
    assert (f"the {rule} rule" in word(reasons[0])) == (factor > 1 or rule != "gate")
