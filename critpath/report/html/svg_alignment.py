"""The aligned paths of one anomalous execution as a static drawing."""

from __future__ import annotations

import math
from typing import Any, Final

from critpath.report import verdict
from critpath.report.columns import GAP, Layout, consensus, distinct_rows, layout
from critpath.report.html.elements import text
from critpath.report.html.svg_patterns import cells
from critpath.report.palette import BLUE, ORANGE, VERMILLION
from critpath.units import plural

WIDTH: Final = 1120
_LABEL: Final = 120
_ROOM: Final = WIDTH - _LABEL - 8
_CELL: Final = 22.0
_LINE: Final = 18
# Up to here every column is drawn; beyond, where something is out of the ordinary.
_WHOLE: Final = 100
# Narrower than this a cell is no longer seen: columns are drawn in bins.
_MOST_CELLS: Final = 480
MOST_ROWS: Final = 8


def alignment_svg(document: dict[str, Any], aligned: dict[str, Any]) -> str:
    """Draw an alignment: normal rows, the anomaly, its findings, two tracks.

    Parameters
    ----------
    document, aligned : dict
        The comparison, and one entry of its ``aligned``.

    Returns
    -------
    str
        One ``<svg>`` that needs neither script nor style.
    """
    placed = _layout(document, aligned)
    bins = placed.cells
    width = min(_CELL, _ROOM / max(1, len(bins)))
    normals, anomaly = aligned["rows"][:-1], aligned["rows"][-1]
    distinct = distinct_rows(normals)
    parts: list[str] = []
    y = 4.0

    def draw(label: str, symbols: list[int], durations: list[int] | None, height: float) -> None:
        nonlocal y
        parts.append(_label(label, y + height / 2))
        row = []
        for i, columns in enumerate(bins):
            if i in placed.elided:
                continue
            code = _representative(symbols, durations, columns)
            if code != GAP:
                row.append((_LABEL + i * width, width, document["symbols"][code]))
        # The line through a row is what a gap shows.
        parts.append(_rule(y + height / 2, len(bins) * width))
        parts.append(cells(row, y, height))
        y += height + 3

    draw(f"most of {len(normals)}", consensus(aligned), None, 16)
    y += 4
    for row, count in distinct[:MOST_ROWS]:
        label = f"{count} normals" if count > 1 else f"normal {row['id'][:12]}"
        draw(label, row["symbols"], row["durations"], 12)
    y += 4
    draw("this execution", anomaly["symbols"], anomaly["durations"], 22)
    parts.append(_marks(document, aligned, y, width, placed))
    y += _LINE + 2
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
        f"execution {aligned['execution']} below, {plural(aligned['columns'], 'column')}."
    )
    return (
        f'<svg class="aligned" viewBox="0 0 {WIDTH} {math.ceil(y + 4)}" width="{WIDTH}" '
        f'height="{math.ceil(y + 4)}" role="img" aria-label="{text(summary)}">'
        f"{''.join(parts)}</svg>"
    )


def _layout(document: dict[str, Any], aligned: dict[str, Any]) -> Layout:
    return layout(document, aligned, whole=_WHOLE, most=_MOST_CELLS)


def caption(document: dict[str, Any], aligned: dict[str, Any]) -> str:
    """Return what the drawing leaves out, as one plain sentence each."""
    distinct = len(distinct_rows(aligned["rows"][:-1]))
    said = []
    if aligned["left_out"]:
        said.append(f"{plural(aligned['left_out'], 'normal execution')} of the group not aligned.")
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


def _label(words: str, y: float) -> str:
    return (
        f'<text x="{_LABEL - 8}" y="{y + 4:.1f}" font-size="11" font-family="sans-serif" '
        f'text-anchor="end" fill="currentColor">{text(words)}</text>'
    )


def _rule(y: float, length: float) -> str:
    return (
        f'<path d="M{_LABEL} {y:.1f}h{length:.1f}" stroke="currentColor" '
        'stroke-opacity="0.25" stroke-width="1"/>'
    )


def _marks(
    document: dict[str, Any], aligned: dict[str, Any], y: float, width: float, placed: Layout
) -> str:
    parts = []
    for finding in verdict.findings_of(document, aligned["position"]):
        begin = max(0, finding["columns"][0])
        end = min(aligned["columns"], finding["columns"][1])
        if begin >= end:
            continue
        first, last = placed.cell_of(begin), placed.cell_of(end - 1)
        x = _LABEL + first * width
        length = max(4.0, (last + 1 - first) * width)
        parts.append(
            f'<path d="M{x:.1f} {y:.1f}v4h{length:.1f}v-4" fill="none" '
            f'stroke="{VERMILLION}" stroke-width="2"/>'
            f'<text x="{x + length / 2:.1f}" y="{y + 15:.1f}" font-size="11" font-weight="bold" '
            f'font-family="sans-serif" text-anchor="middle" fill="currentColor">'
            f"{finding['rank']}</text>"
        )
    return "".join(parts)


def _tracks(
    aligned: dict[str, Any], placed: Layout, width: float, y: float, parts: list[str]
) -> float:
    """Draw how usual each column is, and here against the normal mean; return the next y."""
    statistics = aligned["statistics"]
    drawn = [(i, cell) for i, cell in enumerate(placed.cells) if i not in placed.elided]
    length = len(placed.cells) * width
    bars = []
    for i, columns in drawn:
        known = [p for c in columns if (p := statistics["probability"][c]) is not None]
        height = 26 * min(max(min(known, default=0.0), 0.0), 1.0)
        bars.append(_bar(_LABEL + i * width, y + 26, width, height))
    parts.append(_label("share of normals", y + 13))
    parts.append(f'<path d="{"".join(bars)}" fill="currentColor" fill-opacity="0.45"/>')
    parts.append(_rule(y + 26, length))
    y += 34
    here, usual = [], []
    durations = aligned["rows"][-1]["durations"]
    for i, columns in drawn:
        x = _LABEL + i * width
        mean = max((statistics["mean"][c] or 0.0 for c in columns), default=0.0)
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
