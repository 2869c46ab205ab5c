"""A calibration as plain data (``critpath calibrate --json``)."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from critpath.model import Calibration, Detectable, FalseAlarms, Rate
from critpath.report.document.plain import number, plain

CALIBRATION_FORMAT = "critpath/calibration/1"


def calibration_document(calibration: Calibration) -> dict[str, Any]:
    """Build the versioned document of one calibration.

    Parameters
    ----------
    calibration : Calibration

    Returns
    -------
    dict
        JSON-ready; durations in ns, rates and floors as shares of 1.
    """
    floor = calibration.floor
    recordings = zip(floor.sources, floor.executions, floor.means, strict=True)
    return {
        "format": CALIBRATION_FORMAT,
        "version": version("critpath"),
        "verdict": calibration.verdict,
        "reasons": list(calibration.reasons),
        "warnings": list(calibration.warnings),
        "settings": plain(calibration.settings),
        "executions": calibration.executions,
        "mean": number(calibration.mean),
        "alpha": number(calibration.alpha),
        "splits": calibration.splits,
        "permutations": calibration.permutations,
        "false_alarms": [_alarms(found) for found in calibration.false_alarms],
        "missing": [
            {
                "kind": lack.kind,
                "sample": lack.sample,
                "executions": lack.executions,
                "recordings": lack.recordings,
            }
            for lack in calibration.missing
        ],
        "floor": {
            "recordings": [
                {"source": source, "executions": executions, "mean": number(mean)}
                for source, executions, mean in recordings
            ],
            "spread": number(floor.spread),
            "spread_high": number(floor.spread_high),
            "expected": number(floor.expected),
            "recommended": number(floor.floor),
            "in_force": number(floor.in_force),
        },
        "detectable": [_detectable(each, calibration.mean) for each in calibration.detectable],
    }


def _alarms(found: FalseAlarms) -> dict[str, Any]:
    return {
        "kind": found.kind,
        "sample": found.sample,
        "normal": found.normal,
        "units": found.units,
        "alarms": _rate(found.alarms),
        "without_floor": _rate(found.without_floor),
        "recommended": _rate(found.recommended),
        "marked": _rate(found.marked),
    }


def _rate(rate: Rate | None) -> dict[str, Any] | None:
    if rate is None:
        return None
    return {
        "count": rate.count,
        "of": rate.of,
        "share": number(rate.share),
        "low": number(rate.low),
        "high": number(rate.high),
    }


def _detectable(each: Detectable, mean: float) -> dict[str, Any]:
    shift = each.shift
    return {
        "sample": each.sample,
        "normal": each.normal,
        "kind": each.kind,
        "state": each.state,
        "mean": number(each.mean),
        "shift": number(shift),
        "of_total": None if shift is None or not mean else number(shift / mean),
        "of_own": None if shift is None or not each.mean else number(shift / each.mean),
        "by_floor": each.by_floor,
        "trials": each.trials,
    }
