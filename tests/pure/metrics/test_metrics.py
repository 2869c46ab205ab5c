"""Metrics: what a flight recorder tells is what parsers of the formats read again."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from critpath.commands.walking import find_shares
from critpath.metrics import open_metrics, otlp
from critpath.metrics.collecting import MOST_KINDS, Collected
from critpath.metrics.families import OTHER, SCALE, Histogram, Report

HOSTILE = [
    *("\x1b[2J", "a\nb", '"', "\\", "{", "\udcff", "\u202e", "#", "# EOF", "\0", "x" * 5000, "é"),
    'a",kind="b',
]
names = st.one_of(st.text(max_size=30), st.sampled_from(HOSTILE))


def status(session: str = "a-1", **more: Any) -> dict[str, Any]:
    return {
        "session": session,
        "gaps": 1.5,
        "dumps": {"made": 2, "refused": {"disk full": 1}},
        "overhead": {"counted": 0.004, "now": 0.02, "target": 0.01},
        **more,
    }


def ended(*rows: tuple[str, int], what: str = "marker") -> dict[str, Any]:
    return {"missed": 0, "ended": [[what, kind, 100, 100 + took] for kind, took in rows]}


def tell(collected: Collected) -> Report:
    return Report(tuple(collected.families()), 10**18, 10**18 + 5, "host", "0")


def read(collected: Collected) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return every sample as a parser of OpenMetrics reads it."""
    text = open_metrics.format_report(tell(collected)).decode()
    return {
        (one.name, frozenset(one.labels.items())): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def point_of(collected: Collected, name: str) -> Any:
    """Return the first point of a metric as a collector reads it."""
    text = otlp.format_report(tell(collected))
    request = json_format.Parse(text, ExportMetricsServiceRequest())
    [metrics] = [scope.metrics for of in request.resource_metrics for scope in of.scope_metrics]
    [found] = [metric for metric in metrics if metric.name == name]
    return getattr(found, found.WhichOneof("data")).data_points[0]


@given(st.lists(st.tuples(names, st.integers(0, 10**11)), max_size=20), names)
def test_what_is_told_is_read_again_whatever_names_are(rows: list[Any], why: str) -> None:
    collected = Collected()
    collected.set_status(status(dumps={"made": 0, "refused": {why: 3}}))
    collected.add_ended(ended(*rows))
    collected.walked = {kind: {("RUN", kind): 1.0} for kind, _ in rows}
    found = read(collected)
    counts = [v for (name, _), v in found.items() if name == "critpath_request_seconds_count"]
    assert sum(counts) == len(rows)
    refused = [v for (name, _), v in found.items() if name == "critpath_dumps_refused_total"]
    assert refused == [3]
    json_format.Parse(otlp.format_report(tell(collected)), ExportMetricsServiceRequest())


@given(st.text(max_size=20), st.text(max_size=20))
def test_a_line_of_a_log_is_read_again(line: str, kind: str) -> None:
    """What `critpath incidents --webhook otlp:URL` sends."""
    about = {"critpath.kind": kind, "critpath.known": ""}
    text = otlp.format_log(line, "WARN", 7, about, "shop", "1")
    request = json_format.Parse(text, ExportLogsServiceRequest())
    [scope] = request.resource_logs[0].scope_logs
    [record] = scope.log_records
    assert (record.body.string_value, record.time_unix_nano, record.severity_number) == (
        line,
        7,
        13,
    )
    found = {one.key: one.value.string_value for one in record.attributes}
    assert found == ({"critpath.kind": kind} if kind else {})


@given(st.lists(st.integers(1, 10**11), min_size=1, max_size=200))
def test_buckets_hold_what_took_so_long(times: list[int]) -> None:
    collected = Collected()
    collected.add_ended(ended(*(("pay", time) for time in times)))
    found = read(collected)
    for (name, labels), value in found.items():
        if name == "critpath_request_seconds_bucket":
            assert value == sum(time <= float(dict(labels)["le"]) * 1e9 for time in times)
    assert found["critpath_request_seconds_sum", frozenset({("kind", "pay")})] == pytest.approx(
        sum(times) / 1e9
    )
    point = point_of(collected, "critpath_request_seconds")
    base = 2**2**-point.scale
    indices = Counter(
        {i + point.positive.offset: n for i, n in enumerate(point.positive.bucket_counts) if n}
    )
    assert sum(indices.values()) == point.count == len(times)
    assert len(point.positive.bucket_counts) <= 160
    for index, count in indices.items():
        low, high = base**index * 1e9, base ** (index + 1) * 1e9
        assert count <= sum(low * (1 - 1e-9) <= time <= high * (1 + 1e-9) for time in times)


def test_a_narrower_histogram_ends_buckets_where_the_wide_one_does() -> None:
    wide = Histogram()
    for power in range(-20, 20):
        wide.add(2.0**power * 1e9)
    narrow = wide.narrow(160)
    assert narrow.scale < SCALE
    assert [narrow.up_to(p) for p in range(-21, 21)] == [wide.up_to(p) for p in range(-21, 21)]


def test_kinds_have_series_up_to_a_number_and_the_rest_one_together() -> None:
    collected = Collected()
    rows = [(f"kind{number}", 1000) for number in range(MOST_KINDS + 50)]
    collected.add_ended(ended(*rows))
    collected.add_ended(ended(*rows))
    found = read(collected)
    counts = {
        dict(labels)["kind"]: value
        for (name, labels), value in found.items()
        if name == "critpath_request_seconds_count"
    }
    assert len(counts) == MOST_KINDS + 1
    assert counts[OTHER] == 100
    assert found["critpath_kinds_folded", frozenset()] == 50


def test_counters_go_on_where_a_flight_recorder_begins_anew() -> None:
    collected = Collected()
    collected.set_status(status("a-1", gaps=10.0))
    collected.set_status(status("a-1", gaps=11.0))
    collected.set_status(status("b-2", gaps=0.25))
    found = read(collected)
    assert found["critpath_gaps_seconds_total", frozenset()] == 11.25
    assert found["critpath_dumps_total", frozenset()] == 4
    refused = ("critpath_dumps_refused_total", frozenset({("why", "disk full")}))
    assert found[refused] == 2
    assert found["critpath_cost_ratio", frozenset({("over", "budget")})] == 0.01
    assert found["critpath_flight_up", frozenset()] == 1


GROWTH = 2 ** (1 / 32)


def told(*rows: tuple[str, int, int, int, int, list[int]]) -> list[dict[str, Any]]:
    """Return what is answered, a kind in each answer."""
    sketch = {"base": GROWTH, "first": 1000.0}
    return [{"sketch": sketch, "requests": [[*row]]} for row in rows]


def test_requests_are_told_as_they_are_so_far_and_added_up() -> None:
    collected = Collected()
    collected.set_status(status("a-1"))
    collected.add_requests(told(("web:80", 2, 3_000_000, 1, 0, [320, 2])))
    collected.add_requests(told(("web:80", 5, 9_000_000, 1, 2, [320, 3, 321, 2])))
    collected.add_requests(told(("web:80", 5, 9_000_000, 1, 2, [320, 3, 321, 2])))
    # Another flight recorder counts from the beginning; so does one that forgot the kind.
    collected.set_status(status("b-2"))
    collected.add_requests(told(("web:80", 1, 2_000_000, 0, 1, [320, 1])))
    collected.add_requests(told(("web:80", 1, 1_000_000, 0, 0, [322, 1])))
    found = read(collected)
    kind = frozenset({("kind", "web:80")})
    assert found["critpath_request_seconds_count", kind] == 7
    assert found["critpath_request_seconds_sum", kind] == pytest.approx(0.012)
    assert found["critpath_requests_cut_total", kind] == 1
    assert found["critpath_request_resets_total", kind] == 3
    # 320 buckets above 1 µs is 1.024 ms.
    for power, count in ((-10, 0), (-9, 7)):
        key = frozenset({("kind", "web:80"), ("le", repr(2.0**power))})
        assert found["critpath_request_seconds_bucket", key] == count


def test_processes_are_no_requests() -> None:
    collected = Collected()
    collected.add_ended(ended(("sh", 1000), what="process"))
    assert not [key for key in read(collected) if key[0].startswith("critpath_request_seconds")]


def test_shares_of_a_kind_are_of_its_whole_time(paths_of: Any) -> None:
    paths = paths_of("sample-lock")
    collected = Collected()
    collected.walked = shares = find_shares(paths, [1.0] * len(paths))
    whole: dict[str, float] = {}
    for (name, labels), value in read(collected).items():
        if name == "critpath_request_time_share":
            kind = dict(labels)["kind"]
            whole[kind] = whole.get(kind, 0.0) + value
    assert {*whole} == {*shares}
    assert all(math.isclose(value, 1.0) for value in whole.values())
    # The lock is held by another thread, which is named.
    assert {"", "holder"} <= {peer for of in shares.values() for _, peer in of}


def test_a_report_in_json_says_whose_it_is() -> None:
    [of] = json.loads(otlp.format_report(tell(Collected())))["resourceMetrics"]
    told = {one["key"]: one["value"]["stringValue"] for one in of["resource"]["attributes"]}
    assert told == {"service.name": "critpath", "host.name": "host"}
