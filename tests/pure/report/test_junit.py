"""JUnit: what fails, that CI systems can read it, and that no name is more than text."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from critpath.documents import PercentileEntry
from critpath.report.ci.as_junit import render_junit
from critpath.report.document.comparison import comparison_document
from critpath.report.text.answer import answer_lines, cause_line
from critpath.text.answer import describe_headline
from critpath.units import safe_text

spec = importlib.util.spec_from_file_location("hostile", Path(__file__).with_name("hostile.py"))
names = importlib.util.module_from_spec(spec)
spec.loader.exec_module(names)


@pytest.fixture(scope="session")
def schema():
    place = Path(sys.prefix) / "peers" / "junit-10.xsd"
    if not place.is_file():
        pytest.skip("junit-10.xsd is not here: sh .ci/peers .venv/peers fetches it")
    etree = pytest.importorskip("lxml.etree")
    found = etree.XMLSchema(etree.parse(str(place)))
    return lambda text: found.assertValid(etree.fromstring(text.encode("utf-8")))


def parsed(text):
    return ET.fromstring(text)  # noqa: S314 - what we just wrote


def cases(text):
    return {case.get("name"): case for case in parsed(text).iter("testcase")}


def outcomes(text):
    return {
        name: next(
            (tag for tag in ("failure", "error", "skipped") if case.find(tag) is not None), ""
        )
        for name, case in cases(text).items()
    }


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"verdict": "ok", "anomalous": 0},
        {"verdict": "inconclusive", "anomalous": 0, "samples": 0},
        {"verdict": "inconclusive", "anomalous": 0, "samples": 0, "normals": 0},
        {"samples": 30, "anomalous": 20},
    ],
)
def test_it_validates_and_its_counts_are_right(factory, schema, changes):
    text = render_junit(comparison_document(factory.comparison(**changes)))
    schema(text)
    root = parsed(text)
    for element in (root, root.find("testsuite")):
        assert int(element.get("tests")) == len(list(root.iter("testcase")))
        assert int(element.get("failures")) == len(list(root.iter("failure")))
        assert int(element.get("errors")) == len(list(root.iter("error")))
    assert int(root.find("testsuite").get("skipped")) == len(list(root.iter("skipped")))


def test_a_slowdown_fails_its_gate_with_the_answer_and_causes(factory):
    document = comparison_document(factory.comparison())
    text = render_junit(document)
    assert outcomes(text) == {"duration": "failure"}
    found = cases(text)["duration"].find("failure")
    lines = found.get("message").split("\n")
    headline = describe_headline(document).sentence.replace("`", "")
    assert lines[0].startswith(f"▲ SLOWER: {headline}. ")
    assert [line[:3] for line in lines[1:]] == ["2. ", "3. "][: len(lines) - 1]
    assert found.text.split("\n") == [safe_text(line) for line in answer_lines(document)]
    said = parsed(text).findtext("testsuite/system-out")
    for number, cause in enumerate(document.causes, 1):
        assert f"{number}. {cause_line(document, cause)}" in said
    assert "WAIT_TIMER: " in said


def test_times_are_of_whole_executions_whatever_decides(factory):
    document = comparison_document(factory.comparison())
    rows = [row for row in document.executions if row.set == "sample"]
    mean = sum(row.end - row.begin for row in rows) / len(rows) / 1e9
    # What a gate with states at level off makes of the total.
    next(s for s in document.states if s.state == "total").sample_mean = 1.0
    text = render_junit(document)
    assert float(cases(text)["duration"].get("time")) == pytest.approx(mean, abs=1e-9)
    assert float(parsed(text).find("testsuite").get("time")) == pytest.approx(mean, abs=1e-3)


def test_what_could_not_be_decided_fails_nothing(factory):
    document = comparison_document(factory.comparison(samples=3, normals=4))
    document.verdict = "inconclusive"
    text = render_junit(document)
    assert outcomes(text) == {"duration": "skipped"}
    said = cases(text)["duration"].find("skipped").get("message")
    assert said.startswith("? INCONCLUSIVE: ")


def test_a_gate_has_the_same_name_in_the_next_run(factory):
    document = comparison_document(factory.comparison())
    document.detection.gate = PercentileEntry(
        label="",
        name="p99",
        q=0.99,
        normal=1e6,
        sample=2e6,
        low=1e5,
        high=2e6,
        executions=[500, 500],
        needed=400,
    )
    assert set(outcomes(render_junit(document))) == {"p99"}


def test_nothing_fails_where_all_is_well(factory):
    document = comparison_document(factory.comparison(verdict="ok", anomalous=0))
    assert outcomes(render_junit(document)) == {"duration": ""}
    assert "would have shown" in parsed(render_junit(document)).findtext("testsuite/system-out")


def test_it_says_what_was_compared_and_when_it_was_made_matters_not(factory):
    document = comparison_document(factory.comparison())
    text = render_junit(document)
    assert text == render_junit(comparison_document(factory.comparison()))
    suite = parsed(text).find("testsuite")
    assert suite.get("hostname") == "guest"
    assert suite.get("timestamp") is None
    said = {p.get("name"): p.get("value") for p in suite.find("properties")}
    assert said["normal.executions"] == "20"
    assert said["sample.kernels"] == "6.1.0"
    assert said["settings.t2"] == "null"
    assert said["settings.rule"] == "gate"


@names.hostile
def test_a_name_is_text_and_nothing_else(factory, schema, name):
    document = names.document_with(factory, name)
    text = render_junit(document)
    schema(text)
    usual = render_junit(names.usual_document(factory))
    assert [e.tag for e in parsed(text).iter()] == [e.tag for e in parsed(usual).iter()]
    said = cases(text)["duration"].find("failure")
    assert said.text.split("\n") == [safe_text(line) for line in answer_lines(document)]
    properties = parsed(text).iter("property")
    assert (f"settings.{safe_text(name)}", safe_text(name)) in {
        (p.get("name"), p.get("value")) for p in properties
    }
