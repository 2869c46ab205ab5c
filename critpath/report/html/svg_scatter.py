"""The plane of count vectors: what types of executions there are, and who is apart.

Three panels on the same axes, after figures 9, 10 and 13 of the paper (Janecek,
Ezzati-Jivan and Hamou-Lhadj, ICPC 2022): the types of the normal set, those of the
sample set, and both sets together with the anomalous executions marked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from critpath.documents import ComparisonDocument
from critpath.report.html.elements import figure, text
from critpath.report.html.plane_points import ANOMALOUS, GRIDS, Item, Point, by_set, by_type, merged
from critpath.report.html.svg_marks import Labels
from critpath.units import format_share, plural

_WIDTH: Final = 400
_HEIGHT: Final = 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, _WIDTH - 26, 22, _HEIGHT - 38
_MOST_NAMES: Final = 40


def scatter_panels(document: ComparisonDocument) -> str:
    """Draw the first two principal components of the counts in three panels.

    Parameters
    ----------
    document : dict
        A comparison.

    Returns
    -------
    str
        Figures, or nothing where there are no counts.
    """
    plane = document.plane
    if plane is None or not plane.normal + plane.sample:
        return ""
    points = plane.normal + plane.sample
    scales = (
        _scale([p[0] for p in points], _LEFT + 10, _RIGHT),
        _scale([p[1] for p in points], _BOTTOM - 10, _TOP),
    )
    panels = []
    for which in ("normal", "sample"):
        if plane[which]:
            found = by_type(document, plane, which, scales)
            count = len({item.name for item in found})
            title = f"{which.capitalize()} set: {plural(len(plane[which]), 'execution')}"
            title += f" of {plural(count, 'type')}"
            panels.append(_panel(found, plane.explained, title))
    if plane.normal and plane.sample:
        found = by_set(document, plane, scales)
        many = document.outliers.anomalous
        title = "Both sets: circles normal, triangles sample"
        title += f", diamonds the {plural(many, 'anomalous execution')}" if many else ""
        panels.append(_panel(found, plane.explained, title))
    return f'<div class="panels">{"".join(panels)}</div>'


def _scale(values: list[float], low: float, high: float) -> Callable[[float], float]:
    least, most = min(values), max(values)
    if most == least:
        return lambda _value: (low + high) / 2
    return lambda value: low + (value - least) / (most - least) * (high - low)


def _panel(items: list[Item], explained: list[float], title: str) -> str:
    """Draw one panel; what does not fit is said in its caption."""
    ranked, grid, left_out = merged(items)
    labels = Labels(_LEFT - 14, 2, _WIDTH, _BOTTOM + 6)
    for point in ranked:
        labels.block(point.x, point.y, point.radius * 0.8)
    labelled = _label(ranked, labels)
    said = [title + "."]
    stacked = sum(p.count for p in ranked if p.count > 1)
    if stacked:
        where = "on top of" if grid <= GRIDS[0] else f"within about {grid:g} px of"
        said.append(
            f"{stacked:,} executions lie {where} others of their kind: one mark, the larger the "
            "more, with their number."
        )
    if labelled:
        said.append(labelled)
    if left_out:
        said.append(f"{plural(left_out, 'execution')} not drawn.")
    words = " ".join(said)
    drawn = "".join(
        p.mark.at(p.x, p.y, p.radius, title=f"{p.name} {_times(p.count)}".strip()) for p in ranked
    )
    return figure(
        f'<svg class="scatter" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" role="img" aria-label="{text(words)}">{_axes(explained)}'
        f'<g stroke="currentColor" stroke-opacity="0.7" fill-opacity="0.75">{drawn}</g>'
        f"{labels.svg()}</svg>",
        words,
    )


def _label(points: list[Point], labels: Labels) -> str:
    """Name every cluster once, every anomalous mark, and how many a mark stands for."""
    named: set[str] = set()
    unnamed = unnumbered = 0
    # Anomalous ones first, then each type at its largest mark.
    for point in sorted(points, key=lambda p: (-p.layer, -p.count, p.name, p.x, p.y)):
        # The names of anomalous ones under one mark count them already.
        number = "" if point.layer == ANOMALOUS else _times(point.count)
        first = bool(point.name) and (point.layer == ANOMALOUS or point.name not in named)
        words = f"{point.name} {number}".strip() if first else number
        if not words:
            continue
        if first and point.layer != ANOMALOUS:
            named.add(point.name)
        room = len(named) <= _MOST_NAMES
        if room and labels.place(point.x, point.y, point.radius, words, name=first):
            continue
        if first:
            unnamed += 1
        else:
            unnumbered += 1
    said = [f"{plural(unnamed, 'name')}"] if unnamed else []
    said += [f"{plural(unnumbered, 'number')}"] if unnumbered else []
    return f"No room for {' and '.join(said)}." if said else ""


def _times(count: int) -> str:
    return f"\N{MULTIPLICATION SIGN}{count:,}" if count > 1 else ""


def _axes(explained: list[float]) -> str:
    floor = _BOTTOM + 8
    names = [
        f"{which} component, {format_share(share)} of the variance"
        for which, share in zip(("first", "second"), explained, strict=True)
    ]
    return (
        f'<path d="M{_LEFT - 16} 8V{floor}H{_WIDTH - 4}" fill="none" stroke="currentColor" '
        'stroke-opacity="0.4"/>'
        '<g font-size="11" font-family="sans-serif" fill="currentColor" fill-opacity="0.8">'
        f'<text x="{_WIDTH - 4}" y="{floor + 16}" text-anchor="end">{text(names[0])}</text>'
        f'<text transform="translate({_LEFT - 24} {floor}) rotate(-90)">{text(names[1])}</text></g>'
    )
