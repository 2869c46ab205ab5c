"""Numbers are halved and doubled as far as they have room, and what changes is told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from critpath.schema.parameters import CUSTOM, Parameter, overridden
from critpath.schema.parameters.detect import MACHINE

sys.path.append(str(Path(__file__).resolve().parents[3] / "evaluation"))


@pytest.fixture(scope="module")
def parameters(load):
    return load("evaluation/parameters.py")


@pytest.mark.parametrize(
    ("value", "unit", "halved", "doubled"),
    [
        (0.2, "share", 0.1, 0.4),
        (0.9, "share", 0.8, 0.95),
        (0.5, "share", 0.25, 0.75),
        (1.5, "times", 1.25, 2.0),
        (0.5, "times", 0.25, 1.0),
        (8.0, "ns", 4.0, 16.0),
        (5, "executions", 2, 10),
        (1, "rounds", 0, 2),
        (0, "rounds", None, None),
        ((0.1, 0.9), "quantiles", (0.05, 0.8), (0.2, 0.95)),
    ],
)
def test_a_number_is_halved_and_doubled_as_far_as_it_has_room(
    parameters, value, unit, halved, doubled
):
    number = Parameter(value, unit, "something", CUSTOM)
    for factor, expected in zip(parameters.FACTORS, (halved, doubled), strict=True):
        changed = parameters.change(number, factor)
        assert changed == (expected if expected is None else pytest.approx(expected))


def test_what_is_read_meanwhile_is_noted(parameters):
    with parameters.noted() as names, overridden("machine.disk", 4.0):
        assert MACHINE.pace == 2.0
    assert names == {"machine.pace"}
    with parameters.noted() as names:
        pass
    assert names == set()


def test_the_most_that_changed_is_told(parameters):
    before = {"code": 0, "verdict": "ok", "cause": None, "words": "a", "all": "b"}
    assert parameters.differences(before, before) == ""
    assert parameters.differences(before, {**before, "all": "c"}) == "figures"
    assert parameters.differences(before, {**before, "words": "c", "all": "c"}) == "words"
    assert parameters.differences(before, {**before, "cause": ["x"], "words": "c"}) == "cause"
    assert parameters.differences(before, {**before, "code": 1, "cause": ["x"]}) == "verdict"
    assert parameters.differences(before, {"error": "ValueError"}) == "error"
    assert parameters.differences(before, {**before, "code": 125}) == "error"


def test_changes_are_counted_by_number_and_factor(parameters):
    rows = [
        {"case": "a", "parameter": "x.y", "factor": 0.5, "value": 1, "changed": "verdict"},
        {"case": "a", "parameter": "x.y", "factor": 2.0, "value": 4, "changed": "figures"},
        {"case": "b", "parameter": "x.y", "factor": 0.5, "value": 1, "changed": ""},
    ]
    assert parameters.summarize(rows) == {
        "x.y": {
            "read": 2,
            "0.5": {"value": 1, "verdict": ["a"]},
            "2": {"value": 4, "figures": 1},
        }
    }
