"""A comparison as JUnit XML, which every CI system shows: a test case per gate.

Of the dialects this is the one that the schema of Jenkins' xunit plugin describes
(junit-10.xsd), which others read as well.  No moment of now is in it: the same document gives
the same bytes.
"""

from __future__ import annotations

from typing import Final
from xml.etree import ElementTree as ET

from critpath.documents import ComparisonDocument
from critpath.report.text.answer import answer_lines, cause_line
from critpath.text import sentences, verdict
from critpath.text.answer import describe_headline, describe_why
from critpath.text.explanation import describe_facts
from critpath.text.known import describe_seen
from critpath.units import NS_PER_S, safe_text

_SUITE: Final = "critpath"
_MOST_CAUSES: Final = 20
_IN_MESSAGE: Final = 3


def render_junit(document: ComparisonDocument) -> str:
    """Render a comparison as JUnit XML.

    Parameters
    ----------
    document : dict
        From `comparison_document` or `load_document`.

    Returns
    -------
    str
        XML 1.0 in UTF-8 with one case, named after what decides: ``duration``, or ``p99``
        where that percentile does; so it has a history.  A slowdown is its failure: the message
        is the answer and its first causes, the text the terminal's answer with all causes.  Where
        nothing could be decided, or the machine made it, it is skipped.  Its time is that of a
        request after, on average.
    """
    case = _gate(document)
    counts = {"tests": 1, "failures": 0, "errors": 0, "skipped": 0}
    for name, tag in (("failures", "failure"), ("skipped", "skipped")):
        counts[name] = int(case.find(tag) is not None)
    sample = document.sets.sample
    whole = {name: str(count) for name, count in counts.items() if name != "skipped"}
    suites = ET.Element("testsuites", {"name": _SUITE, **whole})
    attributes = {"name": _SUITE, **{name: str(count) for name, count in counts.items()}}
    mean = _mean_duration(document)
    if mean is not None:
        # The schema allows three digits here.
        attributes["time"] = f"{mean / NS_PER_S:.3f}"
    if sample.hosts:
        attributes["hostname"] = safe_text(", ".join(sample.hosts))
    suite = ET.SubElement(suites, "testsuite", attributes)
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(document):
        ET.SubElement(properties, "property", {"name": safe_text(name), "value": safe_text(value)})
    suite.append(case)
    _text(suite, "system-out", _said(document))
    ET.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suites, "unicode") + "\n"


def _gate(document: ComparisonDocument) -> ET.Element:
    """Return the case of what decides."""
    gate = document.detection.gate
    mean = _mean_duration(document)
    attributes = {
        "classname": _SUITE,
        "name": gate.name if gate else "duration",
        "time": "0" if mean is None else f"{mean / NS_PER_S:.9f}",
    }
    case = ET.Element("testcase", attributes)
    headline = describe_headline(document)
    first = f"{headline.sign} {headline.title}: {headline.sentence}"
    message = f"{first}. {describe_why(document)}".replace("`", "")
    lines = answer_lines(document)
    if document.verdict != "ok" and not document.fails_build():
        _text(case, "skipped", lines, message=message)
    elif document.verdict == "ok":
        _text(case, "system-out", lines)
    else:
        more = verdict.main_causes(document, _IN_MESSAGE)[1:]
        told = [f"{n}. {cause_line(document, cause)}" for n, cause in enumerate(more, 2)]
        message = "\n".join([message, *told]).replace("`", "")
        _text(case, "failure", lines, message=message, type="slower")
    return case


def _mean_duration(document: ComparisonDocument) -> float | None:
    """Return how long an execution of the sample took (ns), None where there is none."""
    rows = [row for row in document.executions if row.set == "sample"]
    durations = [max(row.end - row.begin, 0) for row in rows]
    return sum(durations) / len(durations) if durations else None


def _text(parent: ET.Element, tag: str, lines: list[str], **attributes: str) -> None:
    safe = {name: safe_text(value) for name, value in attributes.items()}
    ET.SubElement(parent, tag, safe).text = "\n".join(map(safe_text, lines))


def _said(document: ComparisonDocument) -> list[str]:
    """Return what stands below the case: all causes with their facts, states, warnings."""
    causes = [
        line
        for number, cause in enumerate(verdict.main_causes(document, _MOST_CAUSES), 1)
        for line in (f"{number}. {cause_line(document, cause)}", *describe_facts(cause))
    ]
    flagged = [sentences.state_sentence(state) for state in document.states if state.flagged]
    warned = [f"warning: {warning}" for warning in sentences.warnings_of(document)]
    decided = [verdict.difference(document), verdict.sensitivity(document)]
    return [
        *warned,
        *causes,
        *describe_seen(document)[:1],
        *flagged,
        *(text for text in decided if text),
    ]


def _properties(document: ComparisonDocument) -> list[tuple[str, str]]:
    found = [("format", document.format), ("version", document.version)]
    for which in ("normal", "sample"):
        one = document.sets[which]
        found += [
            (f"{which}.executions", str(one.executions)),
            (f"{which}.sources", ", ".join(one.sources)),
            (f"{which}.hosts", ", ".join(one.hosts)),
            (f"{which}.kernels", ", ".join(one.kernels)),
            (f"{which}.tracers", ", ".join(one.tracers)),
            (f"{which}.recorded", ", ".join(filter(None, one.recorded))),
            (f"{which}.lost_events", str(one.loss.events)),
        ]
    settings = sorted(document.settings.items())
    return found + [(f"settings.{name}", sentences.setting(value)) for name, value in settings]
