"""The published schemas: they are what the checks are, and every key has its meaning."""

from __future__ import annotations

import copy
import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pure.ab.asked import request_of
from rich.console import Console

from critpath.ab.judgement import Judge
from critpath.documents import TYPES, AbBlock
from critpath.documents.clocks import CLOCKS_FORMAT
from critpath.documents.incidents import INCIDENT_FORMAT
from critpath.documents.known import CHECK_FORMAT, KNOWN_FORMAT
from critpath.documents.look import LOOK_FORMAT
from critpath.documents.requests import REQUESTS_FORMAT
from critpath.documents.signatures import SIGNATURE_FORMAT
from critpath.documents.trend import TREND_FORMAT
from critpath.errors import UnreadableError
from critpath.explore.questions import explore
from critpath.report.ci.as_github import annotate
from critpath.report.ci.as_junit import render_junit
from critpath.report.ci.as_markdown import render_markdown
from critpath.report.document.as_json import load_document, to_json, to_plain
from critpath.report.document.comparison import comparison_document
from critpath.report.document.exploration import exploration_document
from critpath.report.document.json_schema import file_names, json_schema, schema_text
from critpath.report.document.path import path_document
from critpath.report.html.as_html import render_html
from critpath.report.text.as_text import render_comparison
from critpath.report.text.calibration import render_calibration

DOCS = Path(__file__).parents[3] / "docs" / "schema"
VALIDATORS = {name: Draft202012Validator(json_schema(name)) for name in TYPES}


def rate(share):
    return {"count": int(200 * share), "of": 200, "share": share, "low": 0.0, "high": 0.5}


def calibration():
    """A calibration of three recordings, as small as one can be."""
    sizes = (5, 10)
    kinds = [("total", ""), ("rare", ""), ("new", ""), ("state", "RUN"), ("state", "WAIT_DISK")]
    return {
        "format": "critpath/calibration/1",
        "version": "0.1.0",
        "verdict": "calibrated",
        "reasons": ["1.0 % false alarms"],
        "warnings": [],
        "warning_ids": [],
        "settings": {"alpha": 0.01},
        "executions": 30,
        "mean": 1e7,
        "alpha": 0.01,
        "splits": 200,
        "permutations": 499,
        "false_alarms": [
            {
                "kind": "shuffled",
                "sample": 5,
                "normal": 25,
                "units": 200,
                "alarms": rate(0.01),
                "without_floor": rate(0.015),
                "recommended": None,
                "marked": rate(0.05),
            }
        ],
        "missing": [{"kind": "sessions", "sample": 10, "executions": 2, "recordings": 0}],
        "floor": {
            "recordings": [{"source": "a", "executions": 30, "mean": 1e7}],
            **dict.fromkeys(("spread", "spread_high", "expected", "recommended"), None),
            "in_force": 0.05,
        },
        "detectable": [
            {
                "sample": size,
                "normal": 30 - size,
                "kind": kind,
                "state": state,
                "mean": 1e6,
                "shift": 5e5 if size == 10 else None,
                "of_total": 0.05 if size == 10 else None,
                "of_own": 0.5 if size == 10 else None,
                "by_floor": True,
                "trials": 40,
            }
            for size in sizes
            for kind, state in kinds
        ],
    }


def ab_run():
    """A run of two blocks."""
    judge = Judge(request_of(commands=[["a"], ["b", "x"]], seed=0, slot=1).plan)
    for order in ("ABBA", "BAAB"):
        probes = {"loop": [15, 16, 17, 18]}
        times = [[10], [11], [12], [13]]
        judge.add(AbBlock(order=order, times=times, run=times, probes=probes))
    return judge.document(version="1", discarded=None, spent_s=0.1, stopped_by="max_blocks")


def clocks():
    """Two hosts, one of which stepped."""
    known = {"claim_ns": None, "claim_held": True}
    line = {"begin": 1, "end": 9, "offset_ns": -5, "drift": "0.000048310000"}
    of_web = {"source": "reference", "pieces": [], "uncertainty_ns": [], "steps": []}
    of_app = {
        "source": "messages",
        "pieces": [line, {**line, "offset_ns": -8}],
        "uncertainty_ns": [[1, -20, 21]],
        "steps": [{"at": 5, "by_ns": 3}],
    }
    return {
        "format": CLOCKS_FORMAT,
        "version": "1",
        "reference": "web",
        "hosts": [
            {"host": "web", **of_web, "messages": [2, 3], **known},
            {"host": "app", **of_app, "messages": [3, 2], **known},
        ],
        "warnings": [],
    }


def requests():
    """A service that another host's asks."""
    web = {"service": "nginx@web:80", "requests": 3, "calls": {"app@app:8000": 1.0}}
    known = {"callers": {"": 3}, "sure": 0.999, "how": {"order": 1.0}}
    left = {"requests": 2, "unsure": 1, "middle_ns": 5, "longest_ns": 8, "whole": 4}
    left |= {"estimated": 6, "p50_ns": 3, "p99_ns": 9}
    return {
        "format": REQUESTS_FORMAT,
        "version": "1",
        "services": [{**web, **known, "left_out": left, "untold": None}],
        "hosts": [{"host": "web", "aligned": True, "uncertainty_ns": 0}],
        "alone": 1,
        "several_at_once": 0,
        "not_recorded": 2,
        "notes": [],
    }


def signature():
    """An interval of a recording with counts."""
    one = {"begin": 0, "end": 10, "hits": 3, "lossy": False, "quiet": False, "execution": None}
    source = {"source": "rec", "scope": "machine", "how": "bpf", "interval": 10}
    counted = {"counts": {"sys:read": 3}, "weights": {"sys:read": 1.0}}
    vocabulary = ["sched_switch", "sys:read"]
    return {
        "format": SIGNATURE_FORMAT,
        "version": "1",
        "weights": "hellinger",
        "sources": [{**source, "vocabulary": vocabulary, "documents": [{**one, **counted}]}],
        "notes": [],
    }


def known_answer():
    """A recording that is like a label."""
    term = {"term": "sys:read", "here": 3.0, "there": 4.0, "part": 0.5}
    match = {"label": "web", "labels": ["web"], "kind": "state", "part": "counts"}
    match |= {"similarity": 0.97, "distance": 1.5, "sessions": 3, "terms": [term]}
    match |= {"recorded": "2026-05-03T14:02:11Z", "note": "n", "link": ""}
    stretch = {"begin": 0, "end": 10, "label": "web", "similarity": 0.9}
    known = {"store": "x.known", "digest": "0", "entries": 3, "answer": "known", "reasons": []}
    known |= {"matches": [match], "p": 0.4, "level": 0.01, "calibrated": True, "documents": 9}
    known |= {"quiet": 0, "lossy": 0, "agreement": 1.0, "timeline": [stretch], "left_out": []}
    return {"format": KNOWN_FORMAT, "version": "1", "source": "rec", "known": known, "time": ""}


def known_check():
    """A store of one label."""
    label = {"label": "web", "sessions": 3, "documents": 9, "quiet": 0, "judged": 9}
    label |= {"right": 9, "unknown": 0, "nearest": {"web": 9}}
    checked = {"store": "x.known", "digest": "0", "labels": [label], "strangers": 0}
    checked |= {"tree": [{"one": 0, "other": 1, "similarity": 0.5}], "groups": [["web"]]}
    checked |= {
        "judged_sessions": 3,
        "needed_sessions": 99,
        "recognised": 0,
        "level": 0.01,
        "calibrated": True,
        "twins": [["a", "b"]],
    }
    return {"format": CHECK_FORMAT, "version": "1", **checked, "doubtful": [], "notes": []}


def incident():
    """Requests that became slower at night."""
    found = {"format": INCIDENT_FORMAT, "version": "1", "id": "20261129T030412Z-usual"}
    found |= {"when": "2026-11-29T03:04:12Z", "last": "2026-11-29T03:04:12Z", "count": 1}
    found |= {"host": "shop", "container": "", "program": "web", "kind": "GET /cart"}
    found |= {"trigger": {"when": "usual", "value": "", "kind": ""}, "verdict": "anomaly"}
    found |= {"code": 1, "executions": [200, 60], "p50": [1.0, 2.0], "p95": [1.0, 2.0]}
    found |= {"p99": [None, None], "cause": None, "probability": None, "sentence": "they wait"}
    usual = {"of": "usual", "files": ["usual/a"], "recorded": [""], "executions": 200}
    found |= {"usual": {**usual, "deployed": []}, "known": "", "dumps": ["a"]}
    return {**found, "dump": {"path": "/a", "bytes": 1}, "page": "page.html"}


def first_look():
    """A thread that waited for another, and its process."""
    states = {"RUN": 5, "WAIT_CPU": 3}
    worst = {"begin": 2, "end": 5, "cpu": 0, "tid": 7, "comm": "w", "rival": "hog", "rival_tid": 9}
    worst |= {"rival_time": 3, "others": 0, "lossy": False}
    row = {"host": "a", "pid": 7, "comm": "w", "begin": 1, "end": 9, "cpu": 5, "turns": 2}
    row |= {"migrations": 0, "wait": 3, "waits": 1, "preempted": 1, "wait_p50": 3, "wait_p99": 3}
    row |= {"worst": worst, "blocked": 0, "unwoken": 0}
    row |= {"woken": 0, "wakes": 0, "states": states}
    cpu = {"host": "a", "cpu": 0, "busy": 8, "idle": 0, "unobserved": 0, "interrupts": 1}
    loss = {"host": "a", "cpu": None, "reason": "discarded", "events": 1, "packets": 0}
    event = {"name": "sched_switch", "domain": "kernel", "count": 4, "per_second": 0.5}
    found = {"format": LOOK_FORMAT, "version": "1", "source": "rec", "hosts": ["a"], "kernel": ""}
    found |= {"begin": 1, "end": 9, "epoch_ns": 0, "total": 4, "events": [event]}
    found |= {"losses": [{**loss, "times": 1, "begin": 1, "end": 2}], "sort": "cpu"}
    found |= {"cpus": [{**cpu, "softirqs": 0, "turns": 3}], "waiting": 0.375, "worst": worst}
    found |= {"interrupts": [{"name": "eth0", "kind": "IRQ", "time": 1}]}
    found |= {"threads": [row | {"tid": 7, "process": "w"}], "processes": [row | {"threads": 1}]}
    found |= {"further_processes": 0, "further_threads": 2}
    return found | {"executions": ["process"], "warnings": []}


def trend():
    """A commit after another, slower."""
    ends = {"levels": [1.0, 1.5], "intervals": [[0.9, 1.1], [None, None]]}
    change = {"commit": "b", "at": 1, "before": 1.0, "after": 1.5, "p": 0.01}
    commit = {"when": "", "base": "", "verdict": "ok", "exit": 0, "sentence": ""}
    found = {"format": TREND_FORMAT, "version": "1", "verdict": "slower", "exit": 1}
    found |= {"lines": ["SLOWER SINCE b: ..."], "commits": [commit | {"name": n} for n in "ab"]}
    return found | {"series": [{"kind": "", **ends, "changes": [change]}]}


@pytest.fixture(scope="module")
def documents(factory, load):
    comparison = factory.comparison(columns=8, normals=3, samples=2, anomalous=1)
    path = path_document(comparison.sample.paths, 0, tid=1, comm="w", losses=(), execution="1")
    explored = explore(load("pure/explore/made.py").paths(80))
    exploration = exploration_document(explored, "events:made")
    found = [
        json.loads(to_json(made))
        for made in (comparison_document(comparison), path, ab_run(), exploration)
    ]
    return {
        document["format"]: document
        for document in [
            *(*found, calibration(), clocks(), requests(), signature()),
            *(known_answer(), known_check(), incident(), trend(), first_look()),
        ]
    }


def test_every_format_is_there(documents):
    assert set(documents) == set(TYPES)


@pytest.mark.parametrize("name", TYPES)
def test_documents_are_of_their_schema(documents, name):
    Draft202012Validator.check_schema(json_schema(name))
    VALIDATORS[name].validate(documents[name])
    assert to_plain(load_document(json.dumps(documents[name]))) == documents[name]


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": "ok", "anomalous": 0},
        {"verdict": "inconclusive", "anomalous": 0, "samples": 0},
        {"verdict": "inconclusive", "anomalous": 0, "samples": 0, "normals": 0},
        {"samples": 30, "anomalous": 20, "columns": 90},
    ],
)
def test_other_comparisons_are_of_the_schema(factory, changes):
    document = json.loads(to_json(comparison_document(factory.comparison(**changes))))
    VALIDATORS[document["format"]].validate(document)


@pytest.mark.parametrize("name", TYPES)
def test_the_published_schema_is_made_from_the_types(name):
    published = DOCS / file_names()[name]
    assert published.read_text(encoding="ascii") == schema_text(name), "run make docs"


def test_nothing_else_is_published():
    assert {p.name for p in DOCS.glob("*.json")} == set(file_names().values())


def described(schema, place="document"):
    """Yield every property with what the schema says of it."""
    for key, inner in schema.get("properties", {}).items():
        yield f"{place}.{key}", inner.get("description", "")
        yield from described(inner, f"{place}.{key}")
    for inner in [*filter(None, [schema.get("items")]), *schema.get("anyOf", ())]:
        yield from described(inner, place)
    for name, inner in schema.get("$defs", {}).items():
        yield from described(inner, name)


@pytest.mark.parametrize("name", TYPES)
def test_every_key_has_its_meaning_in_a_line(name):
    found = dict(described(json_schema(name)))
    assert len(found) > 10
    wrong = {
        place: text
        for place, text in found.items()
        if not 3 < len(text) < 100 or text.endswith(".") or "\n" in text
    }
    assert wrong == {}


@pytest.mark.parametrize("name", TYPES)
def test_every_key_of_a_document_is_described(documents, name):
    """What a document has and its shape has not would be published without a meaning."""

    whole = json_schema(name)

    def keys(value: Any, schema: dict[str, Any]) -> None:
        while "$ref" in schema:
            schema = whole["$defs"][schema["$ref"].rpartition("/")[2]]
        if "anyOf" in schema:
            schema = schema["anyOf"][0]
        if isinstance(value, dict) and "properties" in schema:
            assert set(value) <= set(schema["properties"])
            for key, inner in value.items():
                keys(inner, schema["properties"][key])
        elif isinstance(value, list):
            for item in value:
                keys(item, schema["items"])

    keys(documents[name], whole)


def places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [place] if place else []
    if isinstance(value, dict):
        for key, item in value.items():
            found += places(item, (*place, key))
    elif isinstance(value, list):
        for i, item in enumerate(value[:2]):
            found += places(item, (*place, i))
    return found


# 1.0 is an integer to JSON Schema and none to critpath, which the schema says.
ODD = [None, True, 0, -1, 10**18, 0.5, "", "x", "normal", "ok", "RUN", "error", [], {}, [1]]
ODD += [[0, 1], [0, 1, 2], ["x"], {"x": 1}, {"begin": 0, "end": 1}]


@given(data=st.data())
def test_the_check_and_the_schema_refuse_the_same(documents, data):
    name = data.draw(st.sampled_from(sorted(TYPES)))
    broken = copy.deepcopy(documents[name])
    for _ in range(data.draw(st.integers(1, 3))):
        *way, last = data.draw(st.sampled_from(places(broken) or [("format",)]))
        inner = broken
        for step in way:
            inner = inner[step]
        if data.draw(st.booleans()) or isinstance(inner, list):
            inner[last] = copy.deepcopy(data.draw(st.sampled_from(ODD)))
        else:
            del inner[last]
    try:
        msgspec.convert(broken, TYPES[name])
    except msgspec.ValidationError:
        ours = False
    else:
        ours = True
    assert VALIDATORS[name].is_valid(broken) == ours
    if not ours:
        with pytest.raises(UnreadableError):
            load_document(json.dumps(broken))


@given(data=st.data())
def test_a_calibration_that_passes_the_reader_renders(documents, data):
    broken = copy.deepcopy(documents["critpath/calibration/1"])
    *way, last = data.draw(st.sampled_from(places(broken)))
    inner = broken
    for step in way:
        inner = inner[step]
    if data.draw(st.booleans()):
        inner[last] = copy.deepcopy(data.draw(st.sampled_from(ODD)))
    else:
        del inner[last]
    try:
        read = load_document(json.dumps(broken))
    except UnreadableError:
        return
    render_calibration(read, Console(file=io.StringIO(), width=80))


@pytest.mark.parametrize(
    ("way", "value"),
    [
        (("causes", 0, "findings"), [1_000_000]),
        (("causes", 0, "findings"), [-99]),
        (("causes", 0, "main"), -1),
        (("causes", 1, "main"), 2),
        (("findings", 0, "columns"), [0, 10_000]),
        (("findings", 0, "columns"), [-3, 1]),
        (("findings", 0, "columns"), [2, 2]),
        (("aligned", 0, "statistics", "mean", 0), -1e308),
        (("aligned", 0, "statistics", "std", 0), -1.0),
        (("aligned", 0, "excess"), 1e31),
        (("executions", 0, "comm"), "x" * 4_097),
        (("findings", 0, "role"), "x" * 4_097),
        (("executions", 0, "id"), "x" * 100_001),
        (("warnings",), ["x" * 1_000_000]),
        (("settings", "x" * 1_000_000), 1),
    ],
)
def test_what_refers_to_nothing_or_is_too_large_is_refused(documents, way, value):
    broken = copy.deepcopy(documents["critpath/comparison/1"])
    *first, last = way
    inner = broken
    for step in first:
        inner = inner[step]
    inner[last] = value
    with pytest.raises(UnreadableError):
        load_document(json.dumps(broken))


def test_the_longest_names_and_a_large_tree_are_read(documents):
    document = copy.deepcopy(documents["critpath/comparison/1"])
    document["executions"][0]["comm"] = "x" * 4_096
    document["aligned"][0]["tree"] = "x" * 1_000_000
    assert to_plain(load_document(json.dumps(document))) == document


@given(data=st.data())
def test_a_comparison_that_passes_the_reader_renders(documents, data):
    broken = copy.deepcopy(documents["critpath/comparison/1"])
    for _ in range(data.draw(st.integers(1, 3))):
        *way, last = data.draw(st.sampled_from(places(broken)))
        inner = broken
        for step in way:
            inner = inner[step]
        numbers = [10**18, -(10**18), 1e30, -1e30, 1e-300, -1.5]
        inner[last] = copy.deepcopy(data.draw(st.sampled_from([*ODD, *numbers])))
    try:
        read = load_document(json.dumps(broken))
    except UnreadableError:
        return
    render_comparison(read, Console(file=io.StringIO(), width=80), verbose=True)
    for render in (render_html, render_markdown, render_junit, annotate):
        render(read)
