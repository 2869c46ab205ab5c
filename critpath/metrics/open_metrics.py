"""Metrics in the text format of OpenMetrics 1.0, as prometheus_client writes it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from critpath.extras import require
from critpath.metrics.families import Family, Histogram, Report

if TYPE_CHECKING:
    from prometheus_client import Metric

CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
# Bounds of buckets are powers of two of a second, which exponential buckets end at: 61 µs to 64 s.
_POWERS: Final = range(-14, 7)


class _Once:
    """What prometheus_client calls a registry: it is asked for its metrics."""

    def __init__(self, report: Report, metric: type[Metric]) -> None:
        self._report, self._metric = report, metric

    def collect(self) -> Iterator[Metric]:
        for family in self._report.families:
            yield _convert(family, self._metric)


def format_report(report: Report) -> bytes:
    """Return the text.

    Raises
    ------
    UsageError
        Without prometheus_client.
    """
    require("OpenMetrics", "metrics")
    from prometheus_client import Metric  # noqa: PLC0415 - optional
    from prometheus_client.openmetrics.exposition import generate_latest  # noqa: PLC0415

    content: bytes = generate_latest(_Once(report, Metric))  # type: ignore[no-untyped-call]
    return content


def _convert(family: Family, metric: type[Metric]) -> Metric:
    made = metric(family.name, family.meaning, family.kind, family.unit)
    for one in family.samples:
        labels = dict(one.labels)
        if isinstance(one.value, Histogram):
            for power in _POWERS:
                bound = {**labels, "le": repr(2.0**power)}
                made.add_sample(f"{family.name}_bucket", bound, one.value.up_to(power))
            made.add_sample(f"{family.name}_bucket", {**labels, "le": "+Inf"}, one.value.count)
            made.add_sample(f"{family.name}_count", labels, one.value.count)
            made.add_sample(f"{family.name}_sum", labels, one.value.total)
        elif math.isfinite(one.value):
            suffix = "_total" if family.kind == "counter" else ""
            made.add_sample(family.name + suffix, labels, one.value)
    return made
