"""Sets with nothing to compute from: an answer or a reason, never a NaN, warning or traceback."""

from __future__ import annotations

import io
import json
import math
import warnings

import numpy as np
import pytest
from rich.console import Console

from critpath.errors import InconclusiveError
from critpath.flow import compare
from critpath.model import CompareSettings
from critpath.report.document.as_json import to_json
from critpath.report.document.comparison import comparison_document
from critpath.report.html.as_html import render_html
from critpath.report.text.as_text import render_comparison

from .drawn_sets import draw

rng = np.random.default_rng(3)
SAME = "r30 t500 r40"
NOISE = [
    " ".join(f"{letter}{rng.integers(1, 90)}" for letter in rng.choice(list("rtdh"), size))
    for size in rng.integers(1, 60, 40)
]
CASES = {
    "one against one": ([SAME], [SAME], "inconclusive"),
    "one against one slower": ([SAME], ["r30 t5000 r40"], "inconclusive"),
    "one against many": ([SAME], [SAME] * 30, "inconclusive"),
    "many against one": ([SAME] * 30, [SAME], "inconclusive"),
    "many against one slower": ([SAME] * 30, ["r30 t9000 r40"], "inconclusive"),
    "all identical": ([SAME] * 30, [SAME] * 30, "ok"),
    "identical and slower": ([SAME] * 30, ["r30 t600 r40"] * 30, "anomaly"),
    "identical and slower by a nanosecond": ([SAME] * 30, ["r30 t500.001 r40"] * 30, "ok"),
    "a state never seen": ([SAME] * 30, ["r30 t500 d100 r40"] * 30, "anomaly"),
    "a state gone": (["r30 t500 d100 r40"] * 30, [SAME] * 30, "ok"),
    "no state in common": (["r30"] * 30, ["h300"] * 30, "anomaly"),
    "all noise": (NOISE[:20], NOISE[20:], "inconclusive"),
    "no duration": (["r0"] * 20, ["r0"] * 20, "ok"),
    "no duration and some": (["r0"] * 20, ["r1"] * 20, "anomaly"),
    "only unexplained": (["u50"] * 20, ["u50"] * 20, "ok"),
    "1,000 identical against one": ([SAME] * 1_000, [SAME], "ok"),
    "1,000 identical against one slower": ([SAME] * 1_000, ["r30 t9000 r40"], "anomaly"),
    "one against 1,000": ([SAME], [SAME] * 1_000, "ok"),
    "two against three": ([SAME] * 2, ["r30 t501 r40"] * 3, "inconclusive"),
}


def finite(value):
    if isinstance(value, float):
        return math.isfinite(value)
    children = value.values() if isinstance(value, dict) else value
    return all(map(finite, children)) if isinstance(value, dict | list | tuple) else True


@pytest.mark.parametrize("rule", ["gate", "paper"])
@pytest.mark.parametrize("case", CASES)
def test_an_answer_or_a_reason(case, rule):
    normal, sample, verdict = CASES[case]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with np.errstate(all="warn"):
            found = compare(
                draw(normal), draw(sample), CompareSettings(rule=rule, permutations=999)
            )
    document = comparison_document(found)
    assert finite(json.loads(to_json(document)))
    assert found.reasons
    text = io.StringIO()
    render_comparison(document, Console(file=text, width=80))
    assert "nan" not in text.getvalue().lower().split()
    assert render_html(document)
    if rule == "gate":
        assert found.verdict == verdict, found.reasons
    if found.verdict == "inconclusive":
        assert "needs" in document.reasons[0] or "would do" in document.reasons[0]


@pytest.mark.parametrize("method", ["optics", "raw", "silcut", "linkage"])
@pytest.mark.parametrize("case", ["one against many", "all identical", "all noise"])
def test_every_clustering_has_an_answer(case, method):
    normal, sample, _ = CASES[case]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compare(
            draw(normal), draw(sample), CompareSettings(cluster_method=method, permutations=999)
        )


def test_an_empty_set_is_inconclusive():
    with pytest.raises(InconclusiveError, match="there is no run before"):
        compare(draw([]), draw([SAME]))


@pytest.mark.parametrize(
    ("before", "after", "faster"),
    [
        (["r30 t500 r40"] * 30, ["r30 t300 r40"] * 30, True),
        (["r300 k200 r40"] * 30, ["r300 k10 r40"] * 30, False),  # strangers had the CPU
        (["r30 t500 r40"] * 30, ["r30 t480 r40"] * 30, False),  # below what counts
        (["r30 t500 r40"] * 27 + ["r30 t2500 r40"] * 3, ["r30 t499 r40"] * 30, False),
    ],
)
def test_faster_is_what_would_be_slower_the_other_way(before, after, faster):
    sets = draw(before), draw(after)
    found = compare(*sets, CompareSettings(permutations=999))
    back = compare(*sets[::-1], CompareSettings(permutations=999))
    assert found.detection.faster == faster
    assert back.verdict == "anomaly" or not faster


def test_what_strangers_took_of_sets_that_took_turns_is_slower_by_the_machine():
    """No run confirms a burst; that they were slower, and by whom, is known all the same."""
    normal = [f"r300 k{10 + i % 3} r40" for i in range(30)]
    sample = [f"r300 k{200 + i % 7} r40" for i in range(30)]
    found = compare(draw(normal), draw(sample), CompareSettings(permutations=999))
    assert found.verdict == "by_machine"
    assert [one.name for one in found.detection.weather.rivals] == ["helper"]
    longer = compare(draw(normal), draw(["r600 k20 r40"] * 30), CompareSettings(permutations=999))
    assert longer.verdict == "anomaly"
