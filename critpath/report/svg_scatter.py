"""The plane of count vectors: what types of executions there are, and who is apart.

Three panels on the same axes, after figures 9, 10 and 13 of the paper (Janecek,
Ezzati-Jivan and Hamou-Lhadj, ICPC 2022): the types of the normal set, those of the
sample set, and both sets together with the anomalous executions marked.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from critpath.report import verdict
from critpath.report.html_elements import figure, text
from critpath.report.palette import ORANGE, SKY, VERMILLION
from critpath.report.svg_marks import DIAMOND, Labels, Mark, looks, mark_of
from critpath.units import format_share, plural

_WIDTH: Final = 400
_HEIGHT: Final = 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, _WIDTH - 26, 22, _HEIGHT - 38
_MOST_MARKS: Final = 600  # per panel; each may stand for several executions
_MOST_LABELS: Final = 40
_LONGEST_NAME: Final = 22
_GRID: Final = 3.0  # px: marks nearer than this are one mark

_Scales = tuple[Callable[[float], float], Callable[[float], float]]


@dataclass(frozen=True)
class _Point:
    """Executions that would be drawn on top of each other."""

    x: float
    y: float
    mark: Mark
    name: str
    count: int
    # Drawn last, always labelled.
    marked: bool = False

    @property
    def radius(self) -> float:
        """Radius (px): the area grows with the logarithm of the number."""
        return 4.5 * math.sqrt(1 + math.log2(self.count) / 2)


def scatter_panels(document: dict[str, Any]) -> str:
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
    plane = document["plane"]
    if plane is None or not plane["normal"] + plane["sample"]:
        return ""
    points = plane["normal"] + plane["sample"]
    scales = (
        _scale([p[0] for p in points], _LEFT + 10, _RIGHT),
        _scale([p[1] for p in points], _BOTTOM - 10, _TOP),
    )
    panels = []
    marks = looks(document)
    for which in ("normal", "sample"):
        if plane[which]:
            found = _by_cluster(document, which, marks[which], scales)
            count = len({point.name for point in found})
            title = f"{which.capitalize()} set: {plural(len(plane[which]), 'execution')}"
            title += f" of {plural(count, 'type')}"
            panels.append(_panel(found, plane["explained"], title))
    if plane["normal"] and plane["sample"]:
        found = _both_sets(document, scales)
        many = document["outliers"]["anomalous"]
        title = "Both sets: circles normal, triangles sample"
        title += f", diamonds the {plural(many, 'anomalous execution')}" if many else ""
        panels.append(_panel(found, plane["explained"], title))
    return f'<div class="panels">{"".join(panels)}</div>'


def _scale(values: list[float], low: float, high: float) -> Callable[[float], float]:
    least, most = min(values), max(values)
    if most == least:
        return lambda _value: (low + high) / 2
    return lambda value: low + (value - least) / (most - least) * (high - low)


def _cell(x: float, y: float) -> tuple[int, int]:
    return round(x / _GRID), round(y / _GRID)


def _merged(
    items: Iterable[tuple[float, float, Any]], scales: _Scales
) -> dict[tuple[Any, tuple[int, int]], list[tuple[float, float]]]:
    """Gather places (px) of one kind that would lie on top of each other."""
    groups: dict[tuple[Any, tuple[int, int]], list[tuple[float, float]]] = defaultdict(list)
    for x, y, kind in items:
        at = scales[0](x), scales[1](y)
        groups[kind, _cell(*at)].append(at)
    return groups


def _by_cluster(
    document: dict[str, Any], which: str, marks: dict[int, Mark], scales: _Scales
) -> list[_Point]:
    clusters = {r["position"]: r["cluster"] for r in document["executions"] if r["set"] == which}
    places = document["plane"][which]
    groups = _merged(((x, y, clusters.get(i)) for i, (x, y) in enumerate(places)), scales)
    return [
        _Point(
            *at[0],
            mark=mark_of(0) if cluster is None else marks.get(cluster, mark_of(cluster)),
            name="no type" if cluster is None else f"{which[0]}{cluster}",
            count=len(at),
        )
        for (cluster, _), at in groups.items()
    ]


def _both_sets(document: dict[str, Any], scales: _Scales) -> list[_Point]:
    anomalous = {row["position"]: row["id"] for row in verdict.anomalous(document)}
    plane = document["plane"]
    kinds = {
        "normal": Mark(mark_of(0).shape, SKY),
        "sample": Mark(mark_of(2).shape, ORANGE),
        "anomalous": Mark(DIAMOND, VERMILLION),
    }
    items = [(x, y, "normal") for x, y in plane["normal"]]
    items += [(x, y, "sample") for i, (x, y) in enumerate(plane["sample"]) if i not in anomalous]
    found = [
        _Point(*at[0], mark=kinds[kind], name="", count=len(at))
        for (kind, _), at in _merged(items, scales).items()
    ]
    names: dict[tuple[int, int], list[str]] = defaultdict(list)
    items = []
    # Those with the largest excess first: they lend a shared mark their name.
    for position, name in anomalous.items():
        if position < len(plane["sample"]):
            x, y = plane["sample"][position]
            names[_cell(scales[0](x), scales[1](y))].append(name)
            items.append((x, y, "anomalous"))
    for (_, cell), at in _merged(items, scales).items():
        name = _joined(names[cell])
        found.append(_Point(*at[0], kinds["anomalous"], name, len(at), marked=True))
    return found


def _joined(names: list[str]) -> str:
    """Return the names of executions under one mark, or the first of too many."""
    every = ", ".join(names)
    if len(every) <= _LONGEST_NAME:
        return every
    more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
    return names[0][: _LONGEST_NAME - len(more)] + more


def _panel(points: list[_Point], explained: list[float], title: str) -> str:
    """Draw one panel; what does not fit is said in its caption."""
    # Small ones over large ones, anomalous ones over all.
    ranked = sorted(points, key=lambda p: (p.marked, -p.count, p.name, p.x, p.y))
    left_out = ranked[_MOST_MARKS:] if not any(p.marked for p in ranked) else []
    if len(ranked) > _MOST_MARKS and not left_out:
        plain = [p for p in ranked if not p.marked]
        marked = [p for p in ranked if p.marked]
        room = max(0, _MOST_MARKS - len(marked))
        left_out = plain[room:] + marked[_MOST_MARKS:]
        ranked = plain[:room] + marked[:_MOST_MARKS]
    else:
        ranked = ranked[:_MOST_MARKS]
    labels = Labels(_LEFT - 14, 2, _WIDTH, _BOTTOM + 6)
    for point in ranked:
        labels.block(point.x, point.y, point.radius * 0.8)
    labelled = _label(ranked, labels)
    said = [title + "."]
    stacked = sum(p.count for p in ranked if p.count > 1)
    if stacked:
        said.append(
            f"{stacked:,} executions lie on top of others: a larger mark with their number."
        )
    if labelled:
        said.append(labelled)
    if left_out:
        said.append(f"{plural(sum(p.count for p in left_out), 'execution')} not drawn.")
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


def _label(points: list[_Point], labels: Labels) -> str:
    """Name every cluster once, every anomalous mark, and how many a mark stands for."""
    named: set[str] = set()
    unnamed = unnumbered = 0
    # Anomalous ones first, then each type at its largest mark.
    for point in sorted(points, key=lambda p: (not p.marked, -p.count, p.name, p.x, p.y)):
        # The names of anomalous ones under one mark count them already.
        number = "" if point.marked else _times(point.count)
        first = bool(point.name) and (point.marked or point.name not in named)
        words = f"{point.name} {number}".strip() if first else number
        if not words:
            continue
        if first and not point.marked:
            named.add(point.name)
        room = len(named) <= _MOST_LABELS
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
