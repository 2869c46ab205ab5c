"""The section of the HTML report with a static drawing of each anomalous execution."""

from __future__ import annotations

import math
from typing import Final

from critpath.documents import AlignedEntry, ComparisonDocument, ExecutionEntry, FindingEntry
from critpath.report.columns import (
    GAP,
    Layout,
    consensus,
    distinct_rows,
    layout,
    own_columns,
    stretches,
)
from critpath.report.html.elements import names_of, paragraph, table, text, titled
from critpath.report.html.marks import draw_cells, draw_symbol_swatch
from critpath.report.palette import BLUE, ORANGE, VERMILLION, words_of
from critpath.text import verdict
from critpath.text.sentences import thread_of
from critpath.units import format_ns, plural

MOST_DRAWN: Final = 30
MOST_FINDINGS: Final = 20
_MOST_SEGMENTS: Final = 60


def render_alignments(document: ComparisonDocument) -> str:
    """Return an article per anomalous execution, the largest excess first."""
    aligned = verdict.by_excess(document.aligned)
    shown = drawn(document)
    if not aligned:
        return paragraph("No execution is anomalous, or none could be aligned with its group.")
    rows = {r.position: r for r in document.executions if r.set == "sample"}
    findings = group_findings(document)
    short = names_of(document, "sample")
    parts = [_legend(document, aligned)]
    for one in aligned:
        position = one.position
        still = len(parts) <= len(shown)
        mine = findings.get(position, [])
        article = _article(document, one, rows.get(position), mine, short, still=still)
        # The script shows it on demand; without scripts it stays hidden.
        parts.append(article if still else f'<template id="t{position}">{article}</template>')
    said = verdict.left_out(len(aligned) - len(shown), "drawing")
    if said:
        said += " Where scripts run, the list of executions above draws them too."
    return "".join(parts) + (paragraph(said, kind="said") if said else "")


def drawn(document: ComparisonDocument) -> list[AlignedEntry]:
    """Return the alignments that have an article, the largest excess first."""
    return verdict.by_excess(document.aligned)[:MOST_DRAWN]


def group_findings(document: ComparisonDocument) -> dict[int, list[FindingEntry]]:
    """Return the findings of every sample execution that has some, by rank."""
    result: dict[int, list[FindingEntry]] = {}
    for finding in sorted(document.findings, key=lambda f: f.rank):
        result.setdefault(finding.position, []).append(finding)
    return result


def _legend(document: ComparisonDocument, aligned: list[AlignedEntry]) -> str:
    used = {code for one in aligned for row in one.rows for code in row.symbols}
    used |= {code for one in aligned for code in one.statistics.normal_symbol}
    entries = "".join(
        f"<li>{draw_symbol_swatch(symbol)} <code>{text(symbol.name)}</code> "
        f"{text(words_of(symbol))}</li>"
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
        drawing = f'<div class="still">{draw_alignment(document, one)}</div>'
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


WIDTH: Final = 1120
_LABEL: Final = 128
_LONGEST_LABEL: Final = 17  # letters there is room for
_ROOM: Final = WIDTH - _LABEL - 8
_CELL: Final = 22.0
_LINE: Final = 18
_MOST_LANES: Final = 20
# Up to here every column is drawn; beyond, where something is out of the ordinary.
_WHOLE: Final = 100
# Narrower than this a cell is no longer seen: columns are drawn in bins.
_MOST_CELLS: Final = 480
MOST_ROWS: Final = 8


def draw_alignment(document: ComparisonDocument, aligned: AlignedEntry) -> str:
    """Draw an alignment: normal rows, the anomaly, its findings, two tracks."""
    placed = _layout(document, aligned)
    bins = placed.cells
    width = min(_CELL, _ROOM / max(1, len(bins)))
    normals, anomaly = aligned.rows[:-1], aligned.rows[-1]
    distinct = distinct_rows(normals)
    parts: list[str] = []
    y = 4.0

    def draw(
        label: str,
        symbols: list[int],
        durations: list[int] | None,
        height: float,
        title: str = "",
    ) -> None:
        nonlocal y
        parts.append(_label(label, y + height / 2, title))
        row = []
        for i, columns in enumerate(bins):
            if i in placed.elided:
                continue
            code = _representative(symbols, durations, columns)
            if code != GAP:
                row.append((_LABEL + i * width, width, document.symbols[code]))
        # The line through a row is what a gap shows.
        parts.append(_rule(y + height / 2, len(bins) * width))
        parts.append(draw_cells(row, y, height))
        y += height + 3

    draw(f"most of {len(normals)}", consensus(aligned), None, 16)
    y += 4
    short = names_of(document, "normal")
    for row, count in distinct[:MOST_ROWS]:
        name = short.get(row.id, row.id)
        label, title = (f"{count} normals", "") if count > 1 else (_name(name), row.id)
        draw(label, row.symbols, row.durations, 12, title)
    y += 4
    draw("this execution", anomaly.symbols, anomaly.durations, 22)
    marks, lanes = _marks(document, aligned, y, width, placed)
    parts.append(marks)
    y += lanes * _LINE + 2
    y = _tracks(aligned, placed, width, y, parts)
    # What is left out has a tint from top to bottom.
    tint = "".join(
        f"M{_LABEL + i * width:.1f} 0h{width:.1f}v{y:.0f}h{-width:.1f}z"
        for i in sorted(placed.elided)
    )
    if tint:
        parts.append(f'<path d="{tint}" fill="currentColor" fill-opacity="0.18"/>')
    summary = (
        f"Aligned critical paths: {plural(len(normals), 'normal execution')} above, "
        f"execution {aligned.execution} below, {plural(aligned.columns, 'column')}."
    )
    return (
        f'<svg class="aligned" viewBox="0 0 {WIDTH} {math.ceil(y + 4)}" width="{WIDTH}" '
        f'height="{math.ceil(y + 4)}" role="img" aria-label="{text(summary)}">'
        f"{''.join(parts)}</svg>"
    )


def _layout(document: ComparisonDocument, aligned: AlignedEntry) -> Layout:
    return layout(document, aligned, whole=_WHOLE, most=_MOST_CELLS)


def caption(document: ComparisonDocument, aligned: AlignedEntry) -> str:
    """Return what the drawing leaves out, as one plain sentence each."""
    distinct = len(distinct_rows(aligned.rows[:-1]))
    said = []
    if aligned.left_out:
        said.append(f"{plural(aligned.left_out, 'normal execution')} of the group not aligned.")
    if distinct > MOST_ROWS:
        said.append(f"{plural(distinct - MOST_ROWS, 'rarer normal row')} not drawn.")
    placed = _layout(document, aligned)
    if placed.step > 1:
        said.append(
            f"Each cell of the still drawing stands for {placed.step} columns and shows the "
            "longest state of them."
        )
    if placed.left_out:
        said.append(
            f"The still drawing leaves out {plural(placed.left_out, 'column')} with nothing out "
            "of the ordinary (tinted)."
        )
    return " ".join(said)


def _representative(symbols: list[int], durations: list[int] | None, columns: range) -> int:
    present = [c for c in columns if symbols[c] != GAP]
    if not present:
        return GAP
    return symbols[present[0] if durations is None else max(present, key=lambda c: durations[c])]


def _name(name: str) -> str:
    """Return what a normal row is called, as much of it as there is room for."""
    label = f"normal {name}"
    if len(label) > _LONGEST_LABEL:
        label = name if len(name) <= _LONGEST_LABEL else f"{name[: _LONGEST_LABEL - 1]}…"
    return label


def _label(words: str, y: float, title: str = "") -> str:
    tooltip = f"<title>{text(title)}</title>" if title else ""
    return (
        f'<text x="{_LABEL - 8}" y="{y + 4:.1f}" font-size="11" font-family="sans-serif" '
        f'text-anchor="end" fill="currentColor">{tooltip}{text(words)}</text>'
    )


def _rule(y: float, length: float) -> str:
    return (
        f'<path d="M{_LABEL} {y:.1f}h{length:.1f}" stroke="currentColor" '
        'stroke-opacity="0.25" stroke-width="1"/>'
    )


def _marks(
    document: ComparisonDocument, aligned: AlignedEntry, y: float, width: float, placed: Layout
) -> tuple[str, int]:
    """Draw the own columns of every finding; return how many lanes that takes, too.

    Brackets that share cells, or whose numbers would touch, are in lanes of their own;
    beyond the last lane a bracket has no number.
    """
    parts = []
    lanes: list[list[tuple[float, float]]] = [[]]
    for finding in verdict.findings_of(document, aligned.position):
        drawn = [
            (_LABEL + placed.cell_of(begin) * width, _LABEL + (placed.cell_of(end - 1) + 1) * width)
            for begin, end in stretches(own_columns(document, aligned, finding))
        ]
        if not drawn:
            continue
        left, right = drawn[0][0], max(drawn[-1][1], drawn[0][0] + 4)
        middle, half = (left + right) / 2, 4.0 + 3.5 * len(str(finding.rank))
        room = min(left, middle - half), max(right, middle + half)
        lane = next((i for i, taken in enumerate(lanes) if _free(taken, room)), len(lanes))
        numbered = lane < _MOST_LANES
        lane = min(lane, _MOST_LANES - 1)
        if lane == len(lanes):
            lanes.append([])
        lanes[lane].append(room)
        top = y + lane * _LINE
        # Columns of one cell of several, or of touching cells, are one bracket.
        path, reached = "", -1.0
        for begin, end in drawn:
            if begin < reached - 0.1:
                continue
            reached = max(end, begin + 4)
            path += f"M{begin + 1:.1f} {top:.1f}v4H{reached - 1:.1f}v-4"
        parts.append(
            f'<path d="M{left:.1f} {top + 4:.1f}H{right:.1f}" stroke="{VERMILLION}" '
            'stroke-width="1" stroke-opacity="0.6"/>'
            f'<path d="{path}" fill="none" stroke="{VERMILLION}" stroke-width="2"/>'
        )
        if numbered:
            parts.append(
                f'<text x="{middle:.1f}" y="{top + 15:.1f}" font-size="11" font-weight="bold" '
                f'font-family="sans-serif" text-anchor="middle" fill="currentColor">'
                f"{finding.rank}</text>"
            )
    return "".join(parts), len(lanes)


def _free(taken: list[tuple[float, float]], room: tuple[float, float]) -> bool:
    return all(right <= room[0] or left >= room[1] for left, right in taken)


def _tracks(
    aligned: AlignedEntry, placed: Layout, width: float, y: float, parts: list[str]
) -> float:
    """Draw how usual each column is, and here against the normal mean; return the next y."""
    statistics = aligned.statistics
    drawn = [(i, cell) for i, cell in enumerate(placed.cells) if i not in placed.elided]
    length = len(placed.cells) * width
    bars = []
    for i, columns in drawn:
        known = [p for c in columns if (p := statistics.probability[c]) is not None]
        height = 26 * min(max(min(known, default=0.0), 0.0), 1.0)
        bars.append(_bar(_LABEL + i * width, y + 26, width, height))
    parts.append(_label("share of normals", y + 13))
    parts.append(f'<path d="{"".join(bars)}" fill="currentColor" fill-opacity="0.45"/>')
    parts.append(_rule(y + 26, length))
    y += 34
    here, usual = [], []
    durations = aligned.rows[-1].durations
    for i, columns in drawn:
        x = _LABEL + i * width
        mean = max((statistics.mean[c] or 0.0 for c in columns), default=0.0)
        here.append(_bar(x, y + 44, width / 2, _height(max(durations[c] for c in columns))))
        usual.append(_bar(x + width / 2, y + 44, width / 2, _height(mean)))
    parts.append(_label("duration here", y + 14))
    parts.append(_label("normal mean", y + 28))
    parts.append(f'<path d="{"".join(here)}" fill="{ORANGE}"/>')
    parts.append(f'<path class="usual" d="{"".join(usual)}" stroke="none" fill="{BLUE}"/>')
    parts.append(f'<path d="M{_LABEL - 6} {y + 6}v8" stroke="{ORANGE}" stroke-width="4"/>')
    parts.append(f'<path d="M{_LABEL - 6} {y + 20}v8" stroke="{BLUE}" stroke-width="4"/>')
    parts.append(_rule(y + 44, length))
    parts.append(
        f'<text x="{_LABEL - 8}" y="{y + 44}" font-size="9" font-family="sans-serif" '
        'text-anchor="end" fill="currentColor">1 us to 1 s, log</text>'
    )
    return y + 48


def _height(ns: float) -> float:
    # Six decades, 1 us to 1 s, on 44 px: a segment of 30 ms stays beside one of 3 us.
    return 44 * min(max(math.log10(max(ns, 1.0)) - 3, 0.0), 6.0) / 6


def _bar(x: float, floor: float, width: float, height: float) -> str:
    if height <= 0:
        return ""
    return f"M{x:.1f} {floor:.1f}v{-height:.1f}h{max(width - 0.6, 0.4):.1f}V{floor:.1f}z"
