"""A calibration as JSON and as text."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from critpath.documents.base import change
from critpath.documents.calibration import (
    CALIBRATION_FORMAT,
    CalibrationDocument,
    DetectableEntry,
    FalseAlarmsEntry,
    FloorEntry,
    LackEntry,
    RateEntry,
    RecordingEntry,
)
from critpath.report.document.as_json import to_json
from critpath.report.text.calibration import render_calibration

GOLDEN = Path(__file__).with_name("calibration.txt")


def alarms(kind: str, sample: int, units: int) -> FalseAlarmsEntry:
    rate = RateEntry(1, 200, 0.005, 0.0001, 0.028)
    bare = RateEntry(3, 200, 0.015, 0.003, 0.04)
    return FalseAlarmsEntry(kind, sample, 100, units, rate, bare, rate, rate)


def detectable(
    kind: str, state: str, mean: float, shift: float | None, sample: int
) -> DetectableEntry:
    of_total = None if shift is None else shift / 10e6
    of_own = None if shift is None or not mean else shift / mean
    by_floor = sample > 10
    return DetectableEntry(sample, 100, kind, state, mean, shift, of_total, of_own, by_floor, 40)


@pytest.fixture
def calibration() -> CalibrationDocument:
    return CalibrationDocument(
        format=CALIBRATION_FORMAT,
        version="0",
        verdict="calibrated",
        reasons=["at 30 runs compare alarms in 0.5 %", "floor 6.3 % recommended"],
        warnings=["a name: \x1b[31m\u202e"],
        executions=300,
        mean=10e6,
        alpha=0.01,
        splits=200,
        permutations=599,
        false_alarms=[alarms("shuffled", 10, 200), alarms("sessions", 10, 3)],
        missing=[LackEntry("sessions", 100, 40, 0), LackEntry("sessions", 100, 10, 1)],
        detectable=[
            detectable(kind, state, mean, shift, n)
            for n, factor in ((10, 2.0), (30, 1.0))
            for kind, state, mean, shift in (
                ("total", "", 10e6, 0.6e6 * factor),
                ("rare", "", 10e6, None),
                ("state", "RUN", 8e6, 0.5e6 * factor),
                ("state", "WAIT_TASK@[bold]x", 2e6, 0.7e6 * factor),
                ("state", "IRQ", 2e3, 0.5e6 * factor),
                ("new", "", 0.0, 0.5e6 * factor),
            )
        ],
        floor=FloorEntry(
            recordings=[
                RecordingEntry(name, 100, mean)
                for name, mean in (("a", 9.8e6), ("b", 10e6), ("c", 10.2e6))
            ],
            spread=0.02,
            spread_high=0.088,
            expected=0.01,
            recommended=0.06,
            in_force=0.06,
        ),
        settings={"alpha": 0.01},
    )


def printed(document, width=80, encoding="utf-8", **options) -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    console = Console(file=stream, width=width, markup=False, highlight=False, **options)
    render_calibration(document, console)
    stream.flush()
    return raw.getvalue().decode(encoding)


def test_the_text_is_the_golden_one(calibration):
    text = printed(calibration)
    actual = GOLDEN.with_suffix(".actual.txt")
    if text != GOLDEN.read_text(encoding="utf-8"):
        actual.write_text(text, encoding="utf-8")
        pytest.fail(f"differs from {GOLDEN.name}; what came out is in {actual.name}")
    actual.unlink(missing_ok=True)


def test_states_for_which_no_time_was_left_are_shown_as_such(calibration):
    """Of a larger size: those of the smallest are there, or were all left out."""
    looked_for = [row for row in calibration.detectable if (row.state, row.sample) != ("RUN", 30)]
    text = printed(change(calibration, detectable=looked_for))
    [line] = [line for line in text.splitlines() if line.startswith("running")]
    assert line.endswith(" -")
    assert "-: not looked for in the time that --time leaves" in text
    assert "--time" not in printed(calibration)


@pytest.mark.parametrize("width", [80, 140])
def test_tables_keep_to_the_width(calibration, width):
    lines = printed(calibration, width).splitlines()
    # Sentences are one line each, however long; tables have the rule of their head.
    assert all(cell_len(line) <= width for line in lines if "─" in line)


def test_what_a_trace_says_is_harmless(calibration):
    text = printed(calibration, encoding="ascii")
    assert "\x1b" not in text
    assert "[bold]x" in text


def test_the_json_is_strict_and_has_every_figure(calibration):
    text = to_json(calibration)
    document = json.loads(text)
    assert document["format"] == "critpath/calibration/1"
    assert text.isascii()
    first = document["detectable"][0]
    assert first["of_total"] == pytest.approx(0.12)
    new = next(d for d in document["detectable"] if d["kind"] == "new")
    assert new["of_own"] is None
    assert document["false_alarms"][1]["units"] == 3


def test_one_recording_without_a_floor_is_shown_as_such(calibration):
    floor = FloorEntry([RecordingEntry("a", 40, 1e6)], None, None, None, None, 0.05)
    alone = change(calibration, floor=floor, detectable=[])
    text = printed(alone)
    assert "floor =" not in text
    assert "standard deviation" not in text
