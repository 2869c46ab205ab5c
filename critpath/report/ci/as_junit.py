"""A comparison as JUnit XML, which every CI system shows: a test case per state and per cause.

Of the dialects this is the one that the schema of Jenkins' xunit plugin describes
(junit-10.xsd), which others read as well.  No moment of now is in it: the same document gives
the same bytes.
"""

from __future__ import annotations

from typing import Final
from xml.etree import ElementTree as ET

from critpath.documents import CauseEntry, ComparisonDocument, StateEntry
from critpath.text import sentences, verdict
from critpath.units import NS_PER_S, plural, safe_text

_SUITE: Final = "critpath"
_MOST_CAUSES: Final = 100
_NOT_JUDGED: Final = "not judged: inconclusive"


def render_junit(document: ComparisonDocument) -> str:
    """Render a comparison as JUnit XML.

    Parameters
    ----------
    document : dict
        From `comparison_document` or `load_document`.

    Returns
    -------
    str
        XML 1.0 in UTF-8.  With an anomaly the states that are flagged at level ``error``
        fail, and the causes that took time, each with its sentence; the case ``verdict`` fails
        only if none of these does, and is else skipped.  A state at ``warn`` passes and says so
        in its output; one at ``off`` is skipped.  Where nothing could be decided, every case
        is skipped.  A state's time is the sample's mean in seconds; the total's and the
        suite's is that of whole executions, also where not every state decides.  Names of
        cases have no rank and no figure, so that they have a history.
    """
    cases = [_state(document, state) for state in _states(document)]
    main = verdict.main_causes(document, _MOST_CAUSES)
    names = sentences.cause_names(document, main)
    cases += [_cause(document, *named) for named in zip(names, main, strict=True)]
    # Whatever fails tells of the anomaly already: a further failure would count it twice.
    failed = sum(case.find("failure") is not None for case in cases)
    cases.insert(0, _verdict(document, failed))
    sample = document.sets.sample
    counts = {
        "tests": len(cases),
        **{
            name: sum(case.find(tag) is not None for case in cases)
            for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
        },
    }
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
    suite.extend(cases)
    said = _said(document, len(main))
    if said:
        _text(suite, "system-out", said)
    ET.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suites, "unicode") + "\n"


def _states(document: ComparisonDocument) -> list[StateEntry]:
    """Return the total, then every state in the document's order: the same in every build."""
    total = [s for s in document.states if s.state == "total"]
    return total + [s for s in document.states if s.state != "total"]


def _mean_duration(document: ComparisonDocument) -> float | None:
    """Return how long an execution of the sample took (ns), None where there is none."""
    rows = [row for row in document.executions if row.set == "sample"]
    durations = [max(row.end - row.begin, 0) for row in rows]
    return sum(durations) / len(durations) if durations else None


def _case(kind: str, name: str, seconds: str = "0") -> ET.Element:
    attributes = {"classname": f"{_SUITE}.{kind}", "name": safe_text(name), "time": seconds}
    return ET.Element("testcase", attributes)


def _text(parent: ET.Element, tag: str, lines: list[str], **attributes: str) -> None:
    safe = {name: safe_text(value) for name, value in attributes.items()}
    ET.SubElement(parent, tag, safe).text = "\n".join(map(safe_text, lines))


def _verdict(document: ComparisonDocument, failed: int) -> ET.Element:
    case = _case("verdict", "verdict")
    headline = verdict.headline(document)
    lines = [headline, *verdict.further_reasons(document)]
    if document.verdict == "inconclusive":
        _text(case, "skipped", lines, message=headline)
    elif document.verdict == "ok":
        _text(case, "system-out", lines)
    elif failed:
        _text(case, "skipped", lines, message=f"anomaly: {plural(failed, 'case')} below failed")
    else:
        _text(case, "failure", lines, message=headline, type="anomaly")
    return case


def _state(document: ComparisonDocument, state: StateEntry) -> ET.Element:
    # Where not every state decides, the total's figures are of those that do.
    mean = _mean_duration(document) if state.state == "total" else state.sample_mean
    case = _case("states", state.state, "0" if mean is None else f"{mean / NS_PER_S:.9f}")
    level = sentences.level_of(state)
    sentence = sentences.state_sentence(state)
    lines = [sentence, *sentences.sentences_about(document, state)]
    if level == "off":
        _text(case, "skipped", [sentence], message="level off: not judged")
    elif document.verdict == "inconclusive":
        _text(case, "skipped", [sentence], message=_NOT_JUDGED)
    elif state.flagged and level == "error" and document.verdict == "anomaly":
        _text(case, "failure", lines, message=sentence, type="slower")
    elif state.flagged:
        _text(case, "system-out", [f"warning: {lines[0]}", *lines[1:]])
    else:
        _text(case, "system-out", [sentence])
    return case


def _cause(document: ComparisonDocument, name: str, cause: CauseEntry) -> ET.Element:
    case = _case("causes", name)
    sentence = verdict.cause_sentence(cause)
    lines = [sentence, f"executions: {', '.join(cause.executions)}"]
    if document.verdict == "inconclusive":
        _text(case, "skipped", lines, message=_NOT_JUDGED)
    elif document.verdict == "anomaly" and (cause.contribution or 0) > 0:
        _text(case, "failure", lines, message=sentence, type="cause")
    else:
        _text(case, "system-out", lines)
    return case


def _said(document: ComparisonDocument, listed: int) -> list[str]:
    said = [f"warning: {warning}" for warning in sentences.warnings_of(document)]
    about_all = [
        verdict.other_causes(document, listed),
        verdict.account_sentence(document, listed),
        verdict.difference(document),
        verdict.sensitivity(document),
    ]
    return said + [sentence for sentence in about_all if sentence]


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
