"""OTLP's JSON: metrics (exponential histograms, counters since the exporter began), and logs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from critpath.metrics.families import Family, Histogram, Report, Sample

PATH: Final = "/v1/metrics"  # where collectors take them
LOGS: Final = "/v1/logs"  # and lines of a log
_SEVERITIES: Final = {"WARN": 13, "INFO": 9}
_MOST_BUCKETS: Final = 160  # as SDKs have it
_CUMULATIVE: Final = 2


def format_report(report: Report) -> str:
    """Return a request to a collector, in ASCII."""
    metrics = [_metric(family, report) for family in report.families if family.samples]
    return _format("Metrics", report.host, report.version, "metrics", metrics)


def format_log(
    line: str, severity: str, at: int, attributes: Mapping[str, str], host: str, version: str
) -> str:
    """Return a line of a log as a request to a collector, in ASCII; `at` in ns since 1970."""
    record = {
        "timeUnixNano": str(at),
        "severityNumber": _SEVERITIES[severity],
        "severityText": severity,
        "body": {"stringValue": line},
        "attributes": _attributes(attributes),
    }
    return _format("Logs", host, version, "logRecords", [record])


def _format(what: str, host: str, version: str, name: str, values: Sequence[Any]) -> str:
    resource = {"service.name": "critpath", "host.name": host}
    scope = {"name": "critpath", "version": version}
    return json.dumps(
        {
            f"resource{what}": [
                {
                    "resource": {"attributes": _attributes(resource)},
                    f"scope{what}": [{"scope": scope, name: values}],
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
