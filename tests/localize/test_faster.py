"""What is faster: the headline and the causes judge by one rule."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from critpath.localize.segments import is_faster
from critpath.text import answer


@pytest.mark.parametrize(
    ("high", "fall", "apart", "faster"),
    [
        (-60.0, 100.0, False, True),
        (-40.0, 100.0, False, False),  # surely less, but not by more than the floor
        (float("nan"), 100.0, False, False),
        (-60.0, 300.0, True, False),  # as the machine of another hour may make it
        (-60.0, 340.0, True, True),
    ],
)
def test_headline_and_causes_agree(high, fall, apart, faster):
    total = {"effect": -fall, "effect_high": high, "normal_mean": 1000.0}
    detection = SimpleNamespace(
        flagged=False, floor=50.0, apart=apart, states=[SimpleNamespace(**total)]
    )
    assert is_faster(SimpleNamespace(detection=detection, apart=apart)) is faster
    total["effect_high"] = high if high == high else None  # noqa: PLR0124 - not a number
    document = SimpleNamespace(
        states=[SimpleNamespace(state="total", **total)], detection=detection
    )
    assert answer._faster_in_all(document) is faster
