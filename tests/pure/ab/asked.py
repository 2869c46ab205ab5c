"""What tests ask `critpath ab` for: two commands, and whatever else matters to the test."""

from __future__ import annotations

from typing import Any

from critpath.ab.run import AbRequest
from critpath.schema.parameters.ab import EVIDENCE
from critpath.schema.parameters.shared import DEFAULTS


def request_of(**options: Any) -> AbRequest:
    """Return a request with the usual plan but for some of it."""
    asked = sorted(options.pop("tails", ()))
    usual = {
        "commands": [["a"], ["b"]],
        "seed": 7,
        "floor": DEFAULTS.floor,
        "alpha": DEFAULTS.alpha,
        "statistic": "geo",
        "of": "time",
        "slot": 0,
        "max_blocks": 200,
        "tails": sorted({EVIDENCE.slow, *asked}),
        "asked_tails": asked,
        "failures_are_slow": False,
    }
    return AbRequest(**usual | options)
