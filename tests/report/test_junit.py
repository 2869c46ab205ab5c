"""JUnit: what fails, that CI systems can read it, and that no name is more than text."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from msgspec import structs

from critpath.documents import CauseEntry
from critpath.report.ci.as_junit import render_junit
from critpath.report.document.comparison import comparison_document
from critpath.text import sentences, verdict
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


def test_an_anomaly_fails_with_what_it_is(factory):
    document = comparison_document(factory.comparison())
    document.causes[1].main = document.causes[1].findings[0]
    text = render_junit(document)
    failed = {name for name, outcome in outcomes(text).items() if outcome == "failure"}
    # The verdict's own case would count the same once more.
    assert outcomes(text)["verdict"] == "skipped"
    skipped = cases(text)["verdict"].find("skipped")
    assert skipped.get("message") == "anomaly: 4 cases below failed"
    assert skipped.text.startswith(verdict.headline(document))
    causes = {"WAIT_TIMER virtio#-req.#, new here", "RUN@kworker/#:#, longer"}
    assert failed == {"total", "WAIT_TIMER"} | causes
    state = next(s for s in document.states if s.state == "WAIT_TIMER")
    case = cases(text)["WAIT_TIMER"]
    assert float(case.get("time")) == pytest.approx(state.sample_mean / 1e9, abs=1e-9)
    said = case.find("failure")
    for figure in (
        verdict.duration(state.effect, sign=True),
        verdict.interval(state),
        verdict.probability(state.p_value),
        verdict.duration(state.normal_mean),
        verdict.duration(state.sample_mean),
    ):
        assert figure in said.get("message")
    assert document.causes[0].sentence in said.text
    cause = cases(text)["WAIT_TIMER virtio#-req.#, new here"].find("failure")
    assert cause.get("message") == verdict.cause_sentence(document.causes[0])
    assert "executions: 1, 2" in cause.text


def test_levels_decide_what_a_flagged_state_does(factory):
    document = comparison_document(factory.comparison())
    for state in document.states:
        if state.flagged:
            state.level = "off" if state.state == "total" else "warn"
    text = render_junit(document)
    assert outcomes(text)["total"] == "skipped"
    assert outcomes(text)["WAIT_TIMER"] == ""
    assert cases(text)["WAIT_TIMER"].findtext("system-out").startswith("warning: WAIT_TIMER is +")


def test_times_are_of_whole_executions_whatever_decides(factory):
    document = comparison_document(factory.comparison())
    rows = [row for row in document.executions if row.set == "sample"]
    mean = sum(row.end - row.begin for row in rows) / len(rows) / 1e9
    # What a gate with states at level off makes of the total.
    next(s for s in document.states if s.state == "total").sample_mean = 1.0
    text = render_junit(document)
    assert float(cases(text)["total"].get("time")) == pytest.approx(mean, abs=1e-9)
    assert float(parsed(text).find("testsuite").get("time")) == pytest.approx(mean, abs=1e-3)


def test_what_could_not_be_decided_fails_nothing(factory):
    document = comparison_document(factory.comparison(samples=3, normals=4))
    document.verdict = "inconclusive"
    assert any(state.flagged for state in document.states)
    assert document.causes
    text = render_junit(document)
    assert set(outcomes(text).values()) == {"skipped"}
    found = cases(text)
    said = found["verdict"].find("skipped").get("message")
    assert said == f"INCONCLUSIVE: {document.reasons[0]}"
    assert found["total"].find("skipped").get("message") == "not judged: inconclusive"


def test_an_anomaly_that_no_other_case_tells_of_fails_the_verdict(factory):
    document = comparison_document(factory.comparison(anomalous=0))
    for state in document.states:
        state.flagged = False
    failed = [name for name, outcome in outcomes(render_junit(document)).items() if outcome]
    assert failed == ["verdict"]


def test_a_cause_has_the_same_name_in_the_next_run(factory):
    def named(runs):
        document = comparison_document(factory.comparison())
        one = document.findings[0]
        document.findings, document.causes = [], []
        for changes in runs:
            document.findings.append(
                structs.replace(one, **{"role": "", "state": "WAIT_CPU", **changes})
            )
            document.causes.append(
                CauseEntry(
                    main=len(document.findings) - 1,
                    executions=["1"],
                    positions=[0],
                    findings=[],
                    contribution=1e6,
                    share=0.1,
                    minor=False,
                    sentence=f"number {len(document.findings)}",
                )
            )
        found = parsed(render_junit(document)).iter("testcase")
        return [c.get("name") for c in found if c.get("classname") == "critpath.causes"]

    cpu = {"detail": "worker-0 (332)", "kind": "extra", "tid": 17}
    lock = {"state": "RUN", "role": "holder", "kind": "new-state", "detail": "open"}
    assert named([lock, cpu]) == ["RUN@holder, new here", "WAIT_CPU worker-#, more often"]
    later = {**cpu, "detail": "worker-1 (9001)", "tid": 42}
    assert named([later, lock])[::-1] == named([lock, cpu])
    # Only causes that cannot be told apart have a number.
    three = [{**cpu, "detail": ""}, {**cpu, "detail": ""}, {"state": "RUN", "kind": "longer"}]
    assert named(three) == ["WAIT_CPU, more often", "WAIT_CPU, more often (2)", "RUN, longer"]


def test_nothing_fails_where_all_is_well(factory):
    document = comparison_document(factory.comparison(verdict="ok", anomalous=0))
    assert set(outcomes(render_junit(document)).values()) == {""}
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
    usual = render_junit(names.document_with(factory, "w"))
    assert [e.tag for e in parsed(text).iter()] == [e.tag for e in parsed(usual).iter()]
    found = cases(text)
    for state in document.states:
        case = found[safe_text(state.state)]
        said = case.find("failure")
        if said is not None:
            assert said.get("message") == safe_text(sentences.state_sentence(state))
    said = found["verdict"].find("skipped").text.split("\n")
    assert said[0] == safe_text(verdict.headline(document))
    properties = parsed(text).iter("property")
    assert (f"settings.{safe_text(name)}", safe_text(name)) in {
        (p.get("name"), p.get("value")) for p in properties
    }
