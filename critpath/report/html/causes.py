"""The section of the HTML report that tells the causes, and what they add up to."""

from __future__ import annotations

from typing import Final

from critpath.documents import CauseEntry, ComparisonDocument
from critpath.report.html.aligned import MOST_FINDINGS, drawn, findings_by_execution
from critpath.report.html.elements import paragraph, prose, said, table, text
from critpath.report.html.names import names_of, titled
from critpath.report.palette import VERMILLION
from critpath.text import verdict
from critpath.units import plural

MOST_CAUSES: Final = 40
_MOST_LINKS: Final = 8


def causes(document: ComparisonDocument) -> str:
    """Return the causes, the largest first, each with the executions it explains."""
    if not document.causes:
        return paragraph(_no_cause(document)) + said(verdict.unexplained(document))
    linkable = _anchors(document)
    main = verdict.main_causes(document, MOST_CAUSES)
    entries = "".join(_cause(document, cause, linkable) for cause in main)
    shown = f'<ol class="causes">{entries}</ol>'
    rest = [cause for cause in document.causes if cause not in main]
    if rest:
        entries = "".join(_cause(document, cause, linkable) for cause in rest[:MOST_CAUSES])
        shown += (
            f"<details><summary>{text(verdict.other_causes(document, len(main)))}</summary>"
            f'<ol class="causes" start="{len(main) + 1}">{entries}</ol>'
            f"{said(verdict.left_out(len(rest) - MOST_CAUSES, 'cause'))}</details>"
        )
    return shown + _account(document)


def _anchors(document: ComparisonDocument) -> dict[int, set[int]]:
    """Return the executions that have an article, each with the findings it lists."""
    findings = findings_by_execution(document)
    return {
        one.position: {f.rank for f in findings.get(one.position, [])[:MOST_FINDINGS]}
        for one in drawn(document)
    }


def _no_cause(document: ComparisonDocument) -> str:
    examined, anomalous = len(document.aligned), document.outliers.anomalous
    if examined:
        return f"No cause: no difference stands out in {plural(examined, 'examined execution')}."
    if document.verdict == "inconclusive" and anomalous:
        stands = "execution stands" if anomalous == 1 else "executions stand"
        return f"{anomalous:,} {stands} out, but nothing can be concluded: none was examined."
    return f"No cause: {plural(anomalous, 'execution')} anomalous, none was examined."


def _cause(document: ComparisonDocument, cause: CauseEntry, linkable: dict[int, set[int]]) -> str:
    part = min(max(cause.share or 0.0, 0.0), 1.0)
    bar = (
        '<svg class="share" width="120" height="10" aria-hidden="true">'
        '<rect width="120" height="10" fill="currentColor" fill-opacity="0.15"/>'
        f'<rect width="{120 * part:.0f}" height="10" fill="{VERMILLION}"/></svg> '
    )
    mine = (document.findings[i] for i in cause.findings if i < len(document.findings))
    rank = {
        finding.position: finding.rank
        for finding in sorted(mine, key=lambda f: -f.rank)
        if finding.rank in linkable.get(finding.position, ())
    }
    short = names_of(document, "sample")
    links = [
        _link(position, titled(name, short), rank.get(position))
        if position in linkable
        else titled(name, short)
        for name, position in zip(cause.executions, cause.positions, strict=False)
    ]
    beyond = len(links) - _MOST_LINKS
    more = f" and {beyond:,} more" if beyond > 0 else ""
    facts = [f"executions {', '.join(links[:_MOST_LINKS])}{more}"]
    if of_excess := verdict.share_of_excess(cause.share):
        facts.insert(0, text(of_excess))
    elif (cause.contribution or 0.0) < 0:
        bar = ""
        facts.insert(0, "took less time: no part of the excess")
    told = f'<p class="facts">{bar}{"; ".join(facts)}</p>'
    return f"<li><p>{prose(cause.sentence)}</p>{told}</li>"


def _link(position: int, name: str, shown: int | None) -> str:
    """Return a link with a name (HTML) to a finding's row in an article, or to the article."""
    anchor = f"x{position}" if shown is None else f"x{position}f{shown}"
    return f'<a href="#{anchor}">{name}</a>'


def _account(document: ComparisonDocument) -> str:
    """Return what all causes add up to, in figures that add up as they are printed."""
    found = verdict.account(document, MOST_CAUSES)
    if found is None:
        return said(verdict.unexplained(document))
    whole, parts = found
    width = 2 if whole.share else 1  # what is no slow-down has no shares
    return table(
        "How the causes add up",
        ["", *[">time in all", ">of the excess"][:width]],
        [
            [text(part.words.removeprefix("that ")), *[text(part.shown), text(part.share)][:width]]
            for part in parts
        ],
        kind="sum",
        heads=True,
        foot=[
            [text(f"whole excess {whole.words}"), *[text(whole.shown), text(whole.share)][:width]]
        ],
    ) + said("The excess of an execution is its duration less the mean of its normal group.")
