"""The section of the HTML report that draws each anomalous execution."""

from __future__ import annotations

from typing import Final

from critpath.documents import AlignedEntry, ComparisonDocument, ExecutionEntry, FindingEntry
from critpath.report.columns import GAP
from critpath.report.html.elements import paragraph, table, text
from critpath.report.html.names import names_of, titled
from critpath.report.html.svg_alignment import alignment_svg, caption
from critpath.report.html.svg_patterns import swatch
from critpath.report.palette import words_of
from critpath.text import verdict
from critpath.text.sentences import thread_of
from critpath.units import format_ns

MOST_DRAWN: Final = 30
MOST_FINDINGS: Final = 20
_MOST_SEGMENTS: Final = 60


def drawings(document: ComparisonDocument) -> str:
    """Return an article per anomalous execution, the largest excess first."""
    aligned = verdict.by_excess(document.aligned)
    shown = drawn(document)
    if not aligned:
        return paragraph("No execution is anomalous, or none could be aligned with its group.")
    rows = {r.position: r for r in document.executions if r.set == "sample"}
    findings = findings_by_execution(document)
    short = names_of(document, "sample")
    parts = [_legend(document, aligned)]
    for one in aligned:
        position = one.position
        still = len(parts) <= len(shown)
        mine = findings.get(position, [])
        article = _article(document, one, rows.get(position), mine, short, still=still)
        # The script takes it from here when it is asked for; nobody else sees it.
        parts.append(article if still else f'<template id="t{position}">{article}</template>')
    said = verdict.left_out(len(aligned) - len(shown), "drawing")
    if said:
        said += " Where scripts run, the list of executions above draws them too."
    return "".join(parts) + (paragraph(said, kind="said") if said else "")


def drawn(document: ComparisonDocument) -> list[AlignedEntry]:
    """Return the alignments that have an article, the largest excess first."""
    return verdict.by_excess(document.aligned)[:MOST_DRAWN]


def findings_by_execution(document: ComparisonDocument) -> dict[int, list[FindingEntry]]:
    """Return the findings of every sample execution that has some, by rank."""
    result: dict[int, list[FindingEntry]] = {}
    for finding in sorted(document.findings, key=lambda f: f.rank):
        result.setdefault(finding.position, []).append(finding)
    return result


def _legend(document: ComparisonDocument, aligned: list[AlignedEntry]) -> str:
    used = {code for one in aligned for row in one.rows for code in row.symbols}
    used |= {code for one in aligned for code in one.statistics.normal_symbol}
    entries = "".join(
        f"<li>{swatch(symbol)} <code>{text(symbol.name)}</code> {text(words_of(symbol))}</li>"
        for symbol in (document.symbols[code] for code in sorted(used - {GAP}))
    )
    gap = "<li>a line through a row: nothing here (a gap)</li>"
    return f'<ul class="legend" aria-label="Legend">{entries}{gap}</ul>'


def _article(
    document: ComparisonDocument,
    one: AlignedEntry,
    row: ExecutionEntry | None,
    findings: list[FindingEntry],
    short: dict[str, str],
    *,
    still: bool = True,
) -> str:
    position = one.position
    label = f", {row.label}" if row and row.label else ""
    facts = [f"{verdict.duration(one.excess, sign=True)} against its normal group"]
    if row:
        facts.insert(0, f"{thread_of(row)}, {format_ns(row.end - row.begin)}")
        facts.append(f"p {verdict.probability(row.p_value)}")
        if row.lossy:
            facts.append("touches a loss")
    facts.append(f"{verdict.duration(one.unexplained, sign=True)} of it unexplained")
    if one.execution in short:
        facts.append(f"its full name is {one.execution}")
    if one.note:
        facts.append(one.note)
    drawing, said = "", ""
    if still:
        drawing = f'<div class="still">{alignment_svg(document, one)}</div>'
        said = text(caption(document, one))
    return (
        f'<article id="x{position}" aria-labelledby="x{position}-title">'
        f'<h3 id="x{position}-title">Execution {titled(one.execution, short)}{text(label)}</h3>'
        f'<p class="facts">{text("; ".join(facts))}</p>'
        f'<figure data-position="{position}">{drawing}<figcaption>{said}</figcaption></figure>'
        f"{_findings(one, findings, short)}{_segments(one, short) if still else ''}</article>"
    )


def _findings(one: AlignedEntry, findings: list[FindingEntry], short: dict[str, str]) -> str:
    if not findings:
        return paragraph("No difference stands out.")
    anchor = f"x{one.position}f"
    rows = [
        [
            str(f.rank),
            # The causes link here.
            f'<code id="{anchor}{f.rank}">{text(f.state)}</code> {text(f.detail)}',
            text(verdict.kind_of(one, f)),
            text(verdict.duration(f.contribution, sign=True)),
            text(verdict.share(f.share)),
            text(verdict.duration(f.observed)),
            text(verdict.duration(f.expected)),
            text(thread_of(f)),
            text(verdict.share(f.probability)),
            text(f"{f.begin / 1e9:.6f} s"),
        ]
        for f in findings[:MOST_FINDINGS]
    ]
    headers = [">#", "state", "how", ">difference", ">share", ">here", ">normal", "thread"]
    headers += [">normals with it", ">trace time"]
    words = f"What differs in execution {short.get(one.execution, one.execution)}"
    said = verdict.left_out(len(findings) - MOST_FINDINGS, "finding")
    shown = table(words, headers, rows, kind="findings")
    return shown + (paragraph(said, kind="said") if said else "")


def _segments(one: AlignedEntry, short: dict[str, str]) -> str:
    longest = sorted(one.segments, key=lambda s: (s.begin - s.end, s.begin))
    kept = sorted(longest[:_MOST_SEGMENTS], key=lambda s: (s.begin, s.column))
    if not kept:
        return ""
    origin = min(s.begin for s in one.segments)
    rows = [
        [
            text(format_ns(s.begin - origin, sign=True)),
            text(format_ns(s.end - s.begin)),
            f"<code>{text(s.state)}</code>",
            text(s.detail),
            text(thread_of(s)),
            str(s.column + 1),
        ]
        for s in kept
    ]
    headers = [">at", ">for", "state", "detail", "thread", ">column"]
    said = verdict.left_out(len(longest) - len(kept), "shorter segment")
    words = f"Segments of execution {short.get(one.execution, one.execution)}"
    return (
        f"<details><summary>{text(words)}</summary>{table(words, headers, rows)}"
        f"{paragraph(said, kind='said') if said else ''}</details>"
    )
