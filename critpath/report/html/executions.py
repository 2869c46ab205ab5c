"""The section of the HTML report that lists the executions of both sets."""

from __future__ import annotations

from typing import Final

from critpath.documents import ComparisonDocument
from critpath.report.html.aligned import drawn
from critpath.report.html.elements import paragraph, said, table, terms, text
from critpath.text import verdict
from critpath.text.sentences import thread_of

MOST_EXECUTIONS: Final = 500

_ORDER: Final = {"sample": 0, "normal": 1}
_MARKS: Final = {
    "anomalous": "anomalous",
    "paper": "marked by the paper's rule",
    "weak": "in no dense group: joined its nearest type",
    "lossy": "touches a loss",
}
_TERMS: Final = (
    ("excess", "duration less the mean of the normal executions of its type."),
    ("p", "how often a normal execution of its type stands out as much as this one."),
    ("begins", "time on the trace's clock, to look it up in the trace with another tool."),
)


def executions(document: ComparisonDocument) -> str:
    """Return the table of executions, anomalous ones first, then the sample's."""
    linkable = {aligned.position for aligned in drawn(document)}
    # Of these the page's script makes links.
    beyond = {aligned.position for aligned in document.aligned} - linkable
    ranked = sorted(
        document.executions,
        key=lambda r: (
            not r.anomalous,
            _ORDER[r.set],
            -(r.excess or 0) if r.anomalous else 0,
            r.position,
        ),
    )
    if not ranked:
        return paragraph("Neither set has an execution.")
    shown = ranked[:MOST_EXECUTIONS]
    labels = any(row.label for row in document.executions)
    rows = []
    for row in shown:
        linked = row.set == "sample" and row.position in linkable
        name = f'<a href="#x{row.position}">{text(row.id)}</a>' if linked else text(row.id)
        if row.set == "sample" and row.position in beyond:
            name = f'<span data-position="{row.position}">{name}</span>'
        marks = [words for mark, words in _MARKS.items() if getattr(row, mark)]
        cells = [
            name,
            row.set,
            *([text(row.label)] if labels else []),
            text(thread_of(row)),
            f"{row.begin / 1e9:.6f} s",
            text(verdict.duration(row.end - row.begin)),
            text(verdict.duration(row.excess, sign=True)),
            text(verdict.probability(row.p_value)),
            "-" if row.cluster is None else f"{row.set[0]}{row.cluster}",
            text(", ".join(marks)),
        ]
        rows.append(["*", *cells] if row.anomalous else cells)
    headers = ["execution", "set", *(["label"] if labels else []), "thread", ">begins"]
    headers += [">duration", ">excess", ">p", "type", "marks"]
    caption = "Executions: anomalous ones first, then the sample's, then the normal ones"
    return (
        table(caption, headers, rows, kind="long", heads=True)
        + said(verdict.left_out(len(ranked) - len(shown), "execution"))
        + terms(_TERMS)
    )
