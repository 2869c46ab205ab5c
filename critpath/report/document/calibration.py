"""The document of a calibration (``critpath calibrate --json``)."""

from __future__ import annotations

from typing import Literal, cast

from critpath import __version__
from critpath.documents import (
    CALIBRATION_FORMAT,
    CalibrationDocument,
    DetectableEntry,
    FalseAlarmsEntry,
    FloorEntry,
    LackEntry,
    RateEntry,
    RecordingEntry,
    ShiftKind,
    SplitKind,
)
from critpath.documents.base import number
from critpath.model import Calibration, Detectable, FalseAlarms, Rate
from critpath.report.document.comparison import plain


def calibration_document(calibration: Calibration) -> CalibrationDocument:
    """Build the versioned document of one calibration.

    Parameters
    ----------
    calibration : Calibration

    Returns
    -------
    CalibrationDocument
        Durations in ns, rates and floors as shares of 1.
    """
    floor = calibration.floor
    recordings = zip(floor.sources, floor.executions, floor.means, strict=True)
    return CalibrationDocument(
        format=CALIBRATION_FORMAT,
        version=__version__,
        verdict=cast("Literal['calibrated', 'alarming']", calibration.verdict),
        reasons=list(calibration.reasons),
        warnings=list(calibration.warnings),
        settings=plain(calibration.settings),
        executions=calibration.executions,
        mean=_figure(calibration.mean),
        alpha=_figure(calibration.alpha),
        splits=calibration.splits,
        permutations=calibration.permutations,
        false_alarms=[_false_alarms(found) for found in calibration.false_alarms],
        missing=[
            LackEntry(
                kind=cast("SplitKind", lack.kind),
                sample=lack.sample,
                executions=lack.executions,
                recordings=lack.recordings,
            )
            for lack in calibration.missing
        ],
        floor=FloorEntry(
            recordings=[
                RecordingEntry(source=source, executions=executions, mean=_figure(mean))
                for source, executions, mean in recordings
            ],
            spread=number(floor.spread),
            spread_high=number(floor.spread_high),
            expected=number(floor.expected),
            recommended=number(floor.floor),
            in_force=_figure(floor.in_force),
        ),
        detectable=[_detectable(each, calibration.mean) for each in calibration.detectable],
    )


def _figure(value: float) -> float | int:
    """Return a figure that is always defined, such as a mean of executions that are there."""
    return cast("float | int", number(value))


def _false_alarms(found: FalseAlarms) -> FalseAlarmsEntry:
    return FalseAlarmsEntry(
        kind=cast("SplitKind", found.kind),
        sample=found.sample,
        normal=found.normal,
        units=found.units,
        alarms=_rate(found.alarms),
        without_floor=None if found.without_floor is None else _rate(found.without_floor),
        recommended=None if found.recommended is None else _rate(found.recommended),
        marked=_rate(found.marked),
    )


def _rate(rate: Rate) -> RateEntry:
    return RateEntry(
        count=rate.count,
        of=rate.of,
        share=_figure(rate.share),
        low=_figure(rate.low),
        high=_figure(rate.high),
    )


def _detectable(each: Detectable, mean: float) -> DetectableEntry:
    shift = each.shift
    return DetectableEntry(
        sample=each.sample,
        normal=each.normal,
        kind=cast("ShiftKind", each.kind),
        state=each.state,
        mean=_figure(each.mean),
        shift=number(shift),
        of_total=None if shift is None or not mean else number(shift / mean),
        of_own=None if shift is None or not each.mean else number(shift / each.mean),
        by_floor=each.by_floor,
        trials=each.trials,
    )
