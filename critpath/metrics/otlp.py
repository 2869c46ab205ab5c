"""Metrics in OTLP's JSON: histograms are exponential ones, counters since the exporter began."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from critpath.metrics.families import Family, Histogram, Report, Sample

PATH: Final = "/v1/metrics"  # where collectors take them
_MOST_BUCKETS: Final = 160  # as SDKs have it
_CUMULATIVE: Final = 2


def format_report(report: Report) -> str:
    """Return a request to a collector, in ASCII."""
    resource = {"service.name": "critpath", "host.name": report.host}
    metrics = [_metric(family, report) for family in report.families if family.samples]
    scope = {"name": "critpath", "version": report.version}
    return json.dumps(
        {
            "resourceMetrics": [
                {
                    "resource": {"attributes": _attributes(resource)},
                    "scopeMetrics": [{"scope": scope, "metrics": metrics}],
                }
            ]
        }
    )


def _metric(family: Family, report: Report) -> dict[str, Any]:
    points = [_point(one, report) for one in family.samples]
    about: dict[str, Any] = {"dataPoints": points}
    if family.kind != "gauge":
        about["aggregationTemporality"] = _CUMULATIVE
    if family.kind == "counter":
        about["isMonotonic"] = True
    kinds = {"gauge": "gauge", "counter": "sum", "histogram": "exponentialHistogram"}
    units = {"seconds": "s", "ratio": "1"}
    return {
        "name": family.name,
        "description": family.meaning,
        "unit": units.get(family.unit, ""),
        kinds[family.kind]: about,
    }


def _point(one: Sample, report: Report) -> dict[str, Any]:
    point: dict[str, Any] = {
        "attributes": _attributes(one.labels),
        "startTimeUnixNano": str(report.since),
        "timeUnixNano": str(report.now),
    }
    if not isinstance(one.value, Histogram):
        return point | {"asDouble": one.value}
    of = one.value.narrow(_MOST_BUCKETS)
    first, last = min(of.buckets, default=0), max(of.buckets, default=-1)
    return point | {
        "count": str(of.count),
        "sum": of.total,
        "scale": of.scale,
        "zeroCount": "0",
        # Theirs is called after where it begins, ours after where it ends.
        "positive": {
            "offset": first - 1,
            "bucketCounts": [str(of.buckets[index]) for index in range(first, last + 1)],
        },
    }


def _attributes(values: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {"key": name, "value": {"stringValue": value}} for name, value in values.items() if value
    ]
