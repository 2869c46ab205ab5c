"""From a request to its trace in a tracing UI, and from a trace's id to its requests."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_facts import found, running, two_tiers
from test_requesting import find, talk
from test_tiers import sketch

from critpath.commands.settings import WrongValueError, as_trace_url
from critpath.errors import UsageError
from critpath.executions.specification import parse_specification
from critpath.explore.questions import explore
from critpath.flow import compare
from critpath.graph.walking import resolve_ids
from critpath.report.document.comparison import comparison_document
from critpath.report.explore.page import render_page
from critpath.report.exports.as_otlp import otlp_spans
from critpath.report.html.as_html import render_html
from critpath.store import save_paths
from critpath.units import trace_address

JAEGER = "https://jaeger.example/trace/{trace_id}?uiEmbed=v0&a=%7B1%7D"


def trace(number: int) -> str:
    return f"{number:032x}"


def traced(times=60, hostile=()):
    """Return requests of two tiers: each of the front, and what it asks, is a trace."""
    executions = found(two_tiers(times))
    known = executions.requests
    ids = list(executions.id)
    fronts = {name: trace(1 + n) for n, name in enumerate(n for n in ids if ">80#" in n)}
    of = [fronts[parent or name] for name, parent in zip(ids, known.parent, strict=True)]
    of[: len(hostile)] = hostile
    return running(replace(executions, requests=replace(known, trace_id=tuple(of))))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    place = tmp_path_factory.mktemp("traces") / "traced.paths"
    save_paths(traced(), place)
    return place


@pytest.mark.parametrize(
    "asked",
    [
        trace(7),
        trace(7).upper(),
        trace(7)[16:],  # as Jaeger writes an id of 64 bits
        f"00-{trace(7)}-00f067aa0ba902b7-01",
    ],
)
def test_a_trace_s_id_finds_its_requests(critpath, file, asked):
    run = critpath("path", file, "--id", asked, "--segments")
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("10.0.0.9:4000>80#7") == 1
    assert run.stdout.count(">90#7") == 1
    assert "#8" not in run.stdout


def test_a_trace_may_be_exported(critpath, file, tmp_path):
    run = critpath("export", file, "--id", trace(3), "--format", "segments", "-o", tmp_path / "x")
    assert run.returncode == 0, run.stderr
    assert "2 paths written" in run.stderr


def test_no_such_trace(critpath, file, tmp_path):
    run = critpath("path", file, "--id", trace(999))
    assert run.returncode == 2
    assert f"has no run {trace(999)}" in run.stderr
    assert "no trace id was recorded" not in run.stderr
    place = tmp_path / "untraced.paths"
    save_paths(running(found(two_tiers())), place)
    run = critpath("path", place, "--id", trace(1))
    assert run.returncode == 2
    assert "no trace id was recorded (--labels-from traceparent)" in run.stderr


@pytest.mark.parametrize(
    "address",
    [
        "https://jaeger.example/trace/{trace_id}",
        "http://127.0.0.1:16686/trace/{trace_id}",
        "https://grafana.example/explore?left=%7B%22queries%22:[%22{trace_id}%22]%7D",
        "",
    ],
)
def test_an_address_of_a_tracing_ui(address):
    assert as_trace_url(address) == address


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert('{trace_id}')",
        "data:text/html,{trace_id}",
        "file:///etc/{trace_id}",
        "//jaeger.example/{trace_id}",
        "https:///trace/{trace_id}",
        "https://{trace_id}.example/",
        "https://jaeger.example/trace/",
        "https://jaeger.example/{trace_id}/{trace_id}",
        "https://jaeger.example/{trace_id}/{span_id}",
        'https://jaeger.example/{trace_id}" onclick="alert(1)',
        "https://jaeger.example/{trace_id}\n",
        "https://jaeger.example/<b>{trace_id}",
        "https://name:word@jaeger.example/{trace_id}",
        "https://jaeger.example:99999/{trace_id}",
        "https://[::1/{trace_id}",
        "https://jæger.example/{trace_id}",
        "https://jaeger.example/{trace_id}" + "x" * 2000,
        7,
        ["https://jaeger.example/{trace_id}"],
    ],
)
def test_what_is_no_such_address(address):
    with pytest.raises(WrongValueError):
        as_trace_url(address)


def test_a_wrong_address_is_an_error_of_its_place(critpath, file, tmp_path):
    (tmp_path / "critpath.toml").write_text('trace-url = "ftp://x/{trace_id}"\n')
    run = critpath("explore", file, "-o", tmp_path / "page.html", cwd=tmp_path)
    assert run.returncode == 2
    assert "critpath.toml: trace-url =" in run.stderr
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("name", ["", "x" * 32, "<script>", trace(1)[1:], trace(1) + "0", "../../"])
def test_what_is_no_trace_s_id_is_no_link(name):
    assert trace_address(JAEGER, name) == ""
    assert not trace_address("", trace(1))


def links(page):
    return re.findall(r'<a class="trace" href="([^"]*)"[^>]*rel="noreferrer noopener"', page)


def test_pages_lead_to_the_trace(critpath, file, tmp_path):
    (tmp_path / "critpath.toml").write_text(f'trace-url = "{JAEGER}"\n')
    run = critpath("explore", file, "-o", "page.html", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    # The slowest that are selected; sketches have theirs from the script.
    assert len(links(page)) == 6
    assert all(
        re.fullmatch(r"https://jaeger\.example/trace/[0-9a-f]{32}\?uiEmbed=v0&amp;a=%7B1%7D", one)
        for one in links(page)
    )
    assert "default-src 'none'" in page
    critpath("compare", file, file, "--html", "report.html", cwd=tmp_path)
    assert len(links((tmp_path / "report.html").read_text(encoding="utf-8"))) >= 8


def test_there_are_no_links_without_a_setting_or_an_id():
    paths = traced(hostile=["javascript:alert(1)", '"><script>', ""])
    asked = explore(paths)
    assert not links(render_page(asked, paths, command=["x"]))
    page = render_page(asked, paths, command=["x"], trace_url=JAEGER)
    assert links(page)
    assert "javascript:alert" not in "".join(links(page))
    document = comparison_document(compare(paths, paths))
    assert not links(render_html(document))
    assert links(render_html(document, trace_url=JAEGER))
    assert not links(render_html(comparison_document(compare(*[running(found(two_tiers()))] * 2)),
                                 trace_url=JAEGER))  # fmt: skip


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("requests:label=:80 → :90", 60),
        ("requests:label=~→", 60),
        (r"requests:label=~^:[0-9]{1\,2}$", 60),
        (r"requests:label=~^:\d\d", 120),
        ("requests:port=80,label=~^:80", 60),
    ],
)
def test_requests_are_chosen_by_what_they_are_called(text, count):
    assert sketch(two_tiers(), text).chosen.sum() == count


def test_a_label_that_nobody_has_names_those_there_are():
    with pytest.raises(UsageError) as caught:
        find(talk(), "requests:label=GET /")
    assert caught.value.what == "requests:label=GET /: no such label among :80"
    assert "label=~REGEX" in caught.value.do


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("requests:label=~", "label=~ has no regular expression"),
        ("requests:label=~(a", "is no regular expression"),
        (r"requests:label=~(a)\1", "is no regular expression"),
        ("requests:label=~" + "a" * 201, "a regular expression of 201 characters"),
        ("requests:label=", "not an option of requests: label="),
    ],
)
def test_labels_that_are_not_understood(text, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        parse_specification(text)


def test_ids_of_executions_come_before_those_of_traces():
    assert resolve_ids(["a", trace(1)], ["a", "b", "c"], ["", trace(1), trace(1)]) == [
        *("a", "b", "c"),
    ]
    assert resolve_ids(["f" * 20], ["f" * 20], []) == ["f" * 20]


def spans_of(told):
    """Return the spans of two requests of two tiers, each told this trace's id."""
    sketches = sketch(two_tiers(2), "requests:port=80")
    table = sketches.requests
    codes = np.arange(len(table.strings), len(table.strings) + len(told))
    assert len(told) == len(table)
    renamed = replace(
        table, strings=(*table.strings, *told), trace_id=codes.astype(table.trace_id.dtype)
    )
    text = b"".join(otlp_spans([replace(sketches, requests=renamed)]))
    resources = json.loads(text)["resourceSpans"]
    spans = [s for r in resources for scope in r["scopeSpans"] for s in scope["spans"]]
    return {span["spanId"]: span for span in spans}


@pytest.mark.parametrize(
    ("front", "back", "traces"),
    [
        (trace(1), "", {trace(1)}),
        ("", trace(2), {trace(2)}),  # nginx was told nothing, and what it asks was
        (trace(1), trace(1), {trace(1)}),
        (trace(1), trace(2), {trace(1), trace(2)}),
        ("<script>", "F" * 32, None),
    ],
)
def test_spans_of_one_trace_share_its_id(front, back, traces):
    def told(table):
        return [front if parent < 0 else back for parent in table.parent.tolist()]

    spans = spans_of(told(sketch(two_tiers(2), "requests:port=80").requests))
    assert len(spans) == 6  # two requests, what each asks, and as what that is served
    found = {span["traceId"] for span in spans.values()}
    assert all(re.fullmatch("[0-9a-f]{32}", one) for one in found)
    assert found == traces if traces else len(found) == 2
    for span in spans.values():
        if above := spans.get(span["parentSpanId"]):
            assert above["traceId"] == span["traceId"]
    links = [(s, link) for s in spans.values() for link in s.get("links", [])]
    # With another id set, a request begins a trace, linked to the span that led to it.
    assert len(links) == (2 if traces and len(traces) == 2 else 0)
    for span, link in links:
        assert span["parentSpanId"] == ""
        assert spans[link["spanId"]]["traceId"] == link["traceId"] != span["traceId"]


@pytest.mark.parametrize("text", ["requests:label=~x{1,3}", "requests:port=80,label=~a,b"])
def test_a_comma_in_a_regular_expression_says_how_it_is_written(text):
    with pytest.raises(UsageError) as caught:
        parse_specification(text)
    assert "a comma ends the regular expression" in caught.value.what
    what, _, whole = caught.value.do.partition(": ")
    assert what == "write a comma of its own with a backslash"
    assert parse_specification(f"requests:{whole}").requests.pattern in {"x{1,3}", "a,b"}
