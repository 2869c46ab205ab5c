"""What is faster: the headline and the causes judge by one rule."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from critpath.detect.verdict import may_be_faster
from critpath.localize.segments import is_faster
from critpath.model import State, Symbol
from critpath.text import answer


@pytest.mark.parametrize(
    ("high", "fall", "waits", "apart", "faster"),
    [
        (-60.0, 100.0, 0.0, False, True),
        (-40.0, 100.0, 0.0, False, False),  # surely less, but not by more than the floor
        (float("nan"), 100.0, 0.0, False, False),
        (-60.0, 300.0, 0.0, True, False),  # as the machine of another hour may make it
        (-60.0, 340.0, 0.0, True, True),
        (-60.0, 400.0, 350.0, True, False),  # waits for a cpu of a machine that was busier
        (-60.0, 400.0, 350.0, False, True),
        (-60.0, 700.0, 350.0, True, True),  # what is left fell as well
    ],
)
def test_headline_and_causes_agree(high, fall, waits, apart, faster):
    total = {"effect": -fall, "effect_high": high, "normal_mean": 1000.0}
    cpu = {"effect": -waits, "normal_mean": 450.0, "level": "error"}
    waited = SimpleNamespace(**cpu)
    detection = SimpleNamespace(
        flagged=False,
        floor=50.0,
        apart=apart,
        faster=None,
        states=[waited, SimpleNamespace(**total)],
        by_symbol=[(Symbol(State.WAIT_CPU), waited)],
    )
    assert may_be_faster(detection, apart=apart) is faster
    total["effect_high"] = high if high == high else None  # noqa: PLR0124 - not a number
    document = SimpleNamespace(
        symbols=[SimpleNamespace(state="WAIT_CPU")],
        states=[
            SimpleNamespace(state="WAIT_CPU", **cpu),
            SimpleNamespace(state="total", level="error", **total),
        ],
        detection=detection,
    )
    assert answer._faster_in_all(document) is faster  # of a file of earlier versions
    for known in (True, False):
        detection.faster = known
        assert is_faster(SimpleNamespace(detection=detection)) is known
        assert answer._faster_in_all(document) is known
