"""Annotations: which there are, and that a line that acts is one of ours."""

from __future__ import annotations

import importlib.util
import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from critpath.report.ci.as_github import MOST, Annotation, annotate
from critpath.report.document.comparison import comparison_document
from critpath.text.answer import describe_headline
from critpath.units import log_text, safe_text

spec = importlib.util.spec_from_file_location("hostile", Path(__file__).with_name("hostile.py"))
names = importlib.util.module_from_spec(spec)
spec.loader.exec_module(names)

OURS = re.compile(r"::(error|warning|notice) title=([^:,\r\n]*)::([^\r\n]*)")


def unescaped(text):
    for mark, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ",")):
        text = text.replace(mark, character)
    return text.replace("%25", "%")


def commands(text):
    """Return the lines that GitHub's runner takes for commands, by its own rules."""
    lines = re.split(r"\r\n|\r|\n", text)
    return [line for line in lines if line.lstrip().startswith("::") or "##[" in line]


def test_the_verdict_comes_first_then_causes_and_states(factory):
    document = comparison_document(factory.comparison())
    found = annotate(document)
    assert [one.level for one in found] == [
        *("error", "notice", "notice", "error", "error", "notice")
    ]
    assert found[0].message.startswith(describe_headline(document).sentence.replace("`", ""))
    assert [one.title for one in found[1:]] == [
        "critpath: cause 1",
        "critpath: cause 2",
        "critpath: WAIT_TIMER",
        "critpath: total",
        "critpath: 1 warning",
    ]


@pytest.mark.parametrize(("said", "level"), [("ok", "notice"), ("inconclusive", "warning")])
def test_other_verdicts_have_other_levels(factory, said, level):
    changes = {"verdict": said, "anomalous": 0, "warnings": ()}
    (one,) = annotate(comparison_document(factory.comparison(**changes)))
    assert one.level == level


@pytest.mark.parametrize("said", ["ok", "inconclusive"])
def test_only_an_anomaly_is_an_error(factory, said):
    document = comparison_document(factory.comparison())
    document.verdict = said
    first, *others = annotate(document)
    assert {one.level for one in others} == {"notice"}
    assert first.level != "error"
    (total,) = [one for one in others if one.title == "critpath: total"]
    assert total.message.endswith("; not judged") == (said == "inconclusive")


def test_levels_of_states(factory):
    document = comparison_document(factory.comparison(warnings=()))
    flagged = [s for s in document.states if s.flagged]
    flagged[0].level, flagged[1].level = "warn", "off"
    assert [one.level for one in annotate(document)] == ["error", "notice", "notice", "warning"]


def test_all_warnings_are_one_notice(factory):
    warnings = tuple(f"number {i}" for i in range(30))
    document = comparison_document(factory.comparison(warnings=warnings))
    document.sets.sample.loss.events = 5
    *_, last = annotate(document)
    assert (last.level, last.title) == ("notice", "critpath: 31 warnings")
    assert last.message.split("\n") == [
        "The recording after lost 5 events: 0 of 6 requests touched.",
        "Number 0",
        "Number 1",
        "and 28 more warnings; the JSON has them all",
    ]


@pytest.mark.parametrize("warnings", [(), ("labels",)])
def test_at_most_ten_and_the_rest_is_counted(factory, warnings):
    document = comparison_document(factory.comparison(warnings=warnings))
    document.causes *= 10
    flagged = next(s for s in document.states if s.flagged)
    document.states += [structs.replace(flagged, state=f"S{i}") for i in range(10)]
    found = annotate(document)
    assert len(found) == MOST
    assert found[1].title == "critpath: cause 1"
    states = sum(one.level == "error" for one in found[1:])
    assert states == (4 if warnings else 5)
    shown = MOST - 1 - len(warnings)
    more = f"and {20 + 12 - shown} more annotations that GitHub would not show"
    assert found[-1].message.endswith(f"\n{more}")
    assert f"%0A{more}" in str(found[-1])


@given(st.text(), st.text())
def test_an_annotation_is_one_line_that_reads_back(title, message):
    line = str(Annotation("error", title, message))
    found = OURS.fullmatch(line)
    assert found
    assert unescaped(found[2]) == safe_text(title)
    assert unescaped(found[3]) == "\n".join(map(safe_text, message[:2000].split("\n")))


@names.hostile
def test_a_line_that_acts_is_ours(factory, name):
    from critpath.commands import (  # noqa: PLC0415 - what commands print
        output,
        reports,
    )

    document = names.document_with(factory, name)
    lines = reports.prepare(document).annotations
    assert all(OURS.fullmatch(line) for line in lines)
    assert len(lines) == len(annotate(document))
    assert not any("##[" in line for line in lines)
    from rich.console import Console  # noqa: PLC0415 - beside what uses it

    from critpath.report.text.as_text import render_comparison  # noqa: PLC0415 - as above

    raw = io.StringIO()
    render_comparison(document, Console(file=output._LogStream(raw), width=40), verbose=True)
    assert commands(raw.getvalue()) == []


@given(st.text(alphabet=": \n#[]vsoteamcity\u00a0x\t"))
def test_no_mark_survives_in_a_log(text):
    assert commands(log_text(text)) == []
    assert not re.search(r"##(\[|vso\[|teamcity\[)", log_text(text))
    assert log_text(text).replace(" ", "") == text.replace(" ", "")
