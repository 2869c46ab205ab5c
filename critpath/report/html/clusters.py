"""The section of the HTML report with the types of executions and their pairs.

The plane of count vectors has three panels on the same axes, after figures 9, 10 and 13
of the paper (Janecek, Ezzati-Jivan and Hamou-Lhadj, ICPC 2022): the types of the normal
set, those of the sample set, and both sets with the anomalous executions marked; what
lies on top of each other is one mark.  The reachability plots show how far each execution
is from those that OPTICS visited before: a valley is a dense group, a type, and the bars
stand in order of visit (Ankerst, Breunig, Kriegel, Sander: OPTICS, SIGMOD 1999).
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from critpath.documents import ClusterEntry, ComparisonDocument, Plane
from critpath.report.html.elements import (
    figure,
    items,
    names_of,
    paragraph,
    said,
    table,
    terms,
    text,
)
from critpath.report.html.marks import DIAMOND, Labels, Mark, draw_mark_swatch, looks, mark_of
from critpath.report.palette import ORANGE, SKY, VERMILLION
from critpath.text import verdict
from critpath.units import format_share, plural

MOST_CLUSTERS: Final = 60

_SETS: Final = ("normal", "sample")
_NOTES: Final = {
    "weak": "weak: no candidate scored above zero",
    "novel": "novel: farther from its pair than the pair is wide",
}
_TERMS: Final = (
    (
        "type (cluster)",
        (
            "executions that enter each state about equally often: n0, n1 … of the normal set, "
            "s0, s1 … of the sample set, the largest first. A sample type has the colour and "
            "shape of the normal type it is paired with, unless a larger one has them already."
        ),
    ),
    ("pair", "the normal type that a sample type is held against."),
    (
        "score",
        (
            "silhouette of the pair, -1 to 1: how much nearer it is than the next one; none where "
            "there was nothing to choose from."
        ),
    ),
    (
        "component",
        (
            "one of the two directions in which the executions' counts differ most (principal "
            "components): near marks have like counts."
        ),
    ),
    (
        "reachability",
        (
            "how far an execution's counts are from those of a dense group visited before it. A "
            "valley between steep edges is a type; how steep is the method's xi, not a height."
        ),
    ),
)


def render_clusters(document: ComparisonDocument) -> str:
    """Return the pairs of clusters, the planes of counts and the reachability plots."""
    found = document.clusters
    notes = [f"{which} set: {note}" for which in _SETS for note in found[which].notes]
    return (
        _pairs(document)
        + draw_scatter_panels(document)
        + draw_reachability(document)
        + items([*notes, *found.notes], kind="notes")
        + terms(_TERMS)
    )


def _pairs(document: ComparisonDocument) -> str:
    found = document.clusters
    size = {which: {c.cluster: c for c in found[which].clusters} for which in _SETS}
    marks = looks(document)
    anomalous: dict[int | None, int] = {}
    for row in verdict.anomalous(document):
        anomalous[row.cluster] = anomalous.get(row.cluster, 0) + 1
    rows = [
        [
            _name("s", pair.sample, marks["sample"]),
            *_cluster(size["sample"].get(pair.sample)),
            f"{anomalous.get(pair.sample, 0):,}",
            _name("n", pair.normal, marks["normal"]),
            *_cluster(size["normal"].get(pair.normal)),
            "-" if pair.score is None else f"{pair.score:.2f}",
            text("; ".join(words for key, words in _NOTES.items() if getattr(pair, key))),
        ]
        for pair in found.pairs[:MOST_CLUSTERS]
    ]
    headers = ["sample type", ">size", ">mean", ">anomalous", "its normal pair", ">size", ">mean"]
    if not rows:
        content = paragraph("No pair of types: a set had nothing to cluster.")
    else:
        caption = "Types of the sample set and the normal type each is held against"
        content = table(caption, [*headers, ">score", "notes"], rows, kind="pairs", heads=True)
        content += said(verdict.left_out(len(found.pairs) - MOST_CLUSTERS, "pair"))
    paired = {pair.normal for pair in found.pairs}
    unpaired = [c for c in found.normal.clusters if c.cluster not in paired]
    if unpaired:
        names = ", ".join(f"n{c.cluster} ({c.size:,})" for c in unpaired[:MOST_CLUSTERS])
        beyond = len(unpaired) - MOST_CLUSTERS
        more = f" and {beyond:,} more" if beyond > 0 else ""
        content += paragraph(f"Normal types without a pair: {names}{more}.")
    return content


def describe_compared(document: ComparisonDocument) -> str:
    """Return how much of the normal set was compared with, "" where that is all of it."""
    found = document.clusters
    paired = {pair.normal for pair in found.pairs}
    sizes = {c.cluster: c.size for c in found.normal.clusters}
    count = sum(size for cluster, size in sizes.items() if cluster in paired)
    whole = document.sets.normal.executions
    if not paired or count >= whole:
        return ""
    return (
        f"Compared with {count:,} of {plural(whole, 'normal execution')}: the others are of types "
        "that the sample set has none of."
    )


def _name(letter: str, number: int, marks: dict[int, Mark]) -> str:
    return f"{draw_mark_swatch(marks[number]) if number in marks else ''} {letter}{number}"


def _cluster(cluster: ClusterEntry | None) -> list[str]:
    if cluster is None:
        return ["-", "-"]
    return [f"{cluster.size:,}", text(verdict.duration(cluster.mean_duration))]


MOST_MARKS: Final = 600  # per panel; each may stand for several executions
# Marks in one cell of so many px become one: finer as long as that leaves few enough.
GRIDS: Final = (3.0, 5.0, 8.0, 12.0, 18.0)
_LONGEST_NAME: Final = 22

NORMAL, SAMPLE, ANOMALOUS = 0, 1, 2

Scales = tuple[Callable[[float], float], Callable[[float], float]]


@dataclass(frozen=True)
class Item:
    """One execution in a panel.

    Attributes
    ----------
    x, y : float
        Place (px).
    mark : Mark
    name : str
        Of its type, or of an anomalous execution; "" for none.
    layer : int
        ``NORMAL``, ``SAMPLE`` or ``ANOMALOUS``: what is drawn over what.
    """

    x: float
    y: float
    mark: Mark
    name: str
    layer: int


@dataclass(frozen=True)
class Point:
    """Executions that would be drawn on top of each other, as `Item`."""

    x: float
    y: float
    mark: Mark
    name: str
    layer: int
    count: int

    @property
    def radius(self) -> float:
        """Radius (px): the area grows with the logarithm of the number."""
        return 4.5 * math.sqrt(1 + math.log2(self.count) / 2)


def items_by_type(
    document: ComparisonDocument, plane: Plane, which: str, scales: Scales
) -> list[Item]:
    """Return the executions of one set, each with the look of its type."""
    clusters = {r.position: r.cluster for r in document.executions if r.set == which}
    marks = looks(document)[which]
    items = []
    for position, (x, y) in enumerate(plane[which]):
        cluster = clusters.get(position)
        known = mark_of(0) if cluster is None else marks.get(cluster, mark_of(cluster))
        name = "no type" if cluster is None else f"{which[0]}{cluster}"
        items.append(Item(scales[0](x), scales[1](y), known, name, NORMAL))
    return items


def items_by_set(document: ComparisonDocument, plane: Plane, scales: Scales) -> list[Item]:
    """Return the executions of both sets, the anomalous ones by name."""
    # Those with the largest excess first: they lend a shared mark their name.
    short = names_of(document, "sample")
    anomalous = {r.position: short.get(r.id, r.id) for r in verdict.anomalous(document)}
    marks = (Mark(mark_of(0).shape, SKY), Mark(mark_of(2).shape, ORANGE), Mark(DIAMOND, VERMILLION))

    def item(place: Sequence[float], name: str, layer: int) -> Item:
        return Item(scales[0](place[0]), scales[1](place[1]), marks[layer], name, layer)

    usual = [at for position, at in enumerate(plane.sample) if position not in anomalous]
    return [
        *(item(at, "", NORMAL) for at in plane.normal),
        *(item(at, "", SAMPLE) for at in usual),
        *(
            item(plane.sample[position], name, ANOMALOUS)
            for position, name in anomalous.items()
            if position < len(plane.sample)
        ),
    ]


def merge_items(items: Sequence[Item]) -> tuple[list[Point], float, int]:
    """Draw what lies on top of each other as one mark, until there are few enough."""
    points, grid = _in_cells(items, GRIDS[0]), GRIDS[0]
    for grid in GRIDS:
        points = _in_cells(items, grid)
        if len(points) <= MOST_MARKS:
            break
    points.sort(key=lambda p: (-p.layer, -p.count, p.name, p.x, p.y))
    left_out = sum(point.count for point in points[MOST_MARKS:])
    kept = sorted(points[:MOST_MARKS], key=lambda p: (p.layer, -p.count, p.name, p.x, p.y))
    return kept, grid, left_out


def _in_cells(items: Sequence[Item], grid: float) -> list[Point]:
    groups: dict[tuple[int, str, int, int], list[Item]] = defaultdict(list)
    for item in items:
        kind = "" if item.layer == ANOMALOUS else item.name
        groups[item.layer, kind, round(item.x / grid), round(item.y / grid)].append(item)
    return [
        Point(
            x=math.fsum(item.x for item in group) / len(group),
            y=math.fsum(item.y for item in group) / len(group),
            mark=group[0].mark,
            name=_joined([item.name for item in group]) if layer == ANOMALOUS else kind,
            layer=layer,
            count=len(group),
        )
        for (layer, kind, _, _), group in groups.items()
    ]


def _joined(names: list[str]) -> str:
    """Return the names of executions under one mark, or the first of too many."""
    every = ", ".join(names)
    if len(every) <= _LONGEST_NAME:
        return every
    more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
    return names[0][: _LONGEST_NAME - len(more)] + more


_PANEL_WIDTH: Final = 400
_PANEL_HEIGHT: Final = 300
_PANEL_LEFT, _PANEL_RIGHT, _PANEL_TOP, _PANEL_BOTTOM = 40, _PANEL_WIDTH - 26, 22, _PANEL_HEIGHT - 38
_MOST_NAMES: Final = 40


def draw_scatter_panels(document: ComparisonDocument) -> str:
    """Draw the first two principal components of the counts in three panels."""
    plane = document.plane
    if plane is None or not plane.normal + plane.sample:
        return ""
    points = plane.normal + plane.sample
    scales = (
        _scale([p[0] for p in points], _PANEL_LEFT + 10, _PANEL_RIGHT),
        _scale([p[1] for p in points], _PANEL_BOTTOM - 10, _PANEL_TOP),
    )
    panels = []
    for which in ("normal", "sample"):
        if plane[which]:
            found = items_by_type(document, plane, which, scales)
            count = len({item.name for item in found})
            title = f"{which.capitalize()} set: {plural(len(plane[which]), 'execution')}"
            title += f" of {plural(count, 'type')}"
            panels.append(_panel(found, plane.explained, title))
    if plane.normal and plane.sample:
        found = items_by_set(document, plane, scales)
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
    """Draw one panel; its caption counts what does not fit."""
    ranked, grid, left_out = merge_items(items)
    labels = Labels(_PANEL_LEFT - 14, 2, _PANEL_WIDTH, _PANEL_BOTTOM + 6)
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
        f'<svg class="scatter" viewBox="0 0 {_PANEL_WIDTH} {_PANEL_HEIGHT}" width="{_PANEL_WIDTH}" '
        f'height="{_PANEL_HEIGHT}" role="img" aria-label="{text(words)}">{_axes(explained)}'
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
    floor = _PANEL_BOTTOM + 8
    names = [
        f"{which} component, {format_share(share)} of the variance"
        for which, share in zip(("first", "second"), explained, strict=True)
    ]
    return (
        f'<path d="M{_PANEL_LEFT - 16} 8V{floor}H{_PANEL_WIDTH - 4}" fill="none" '
        'stroke="currentColor" stroke-opacity="0.4"/>'
        '<g font-size="11" font-family="sans-serif" fill="currentColor" fill-opacity="0.8">'
        f'<text x="{_PANEL_WIDTH - 4}" y="{floor + 16}" text-anchor="end">{text(names[0])}</text>'
        f'<text transform="translate({_PANEL_LEFT - 24} {floor}) rotate(-90)">'
        f"{text(names[1])}</text></g>"
    )


_PLOT_WIDTH: Final = 620
_PLOT_LEFT: Final = 46
_PLOT_TOP: Final = 14
_FLOOR: Final = 150  # y of a reachability of 0
_PLOT_HEIGHT: Final = 196
_MOST_BARS: Final = 500


@dataclass(frozen=True)
class _Bar:
    """One execution, or the highest of several in a row."""

    height: float | None  # None: undefined
    cluster: int | None


def draw_reachability(document: ComparisonDocument) -> str:
    """Draw the reachability plot of each set that has one, side by side."""
    marks = looks(document)
    plots = [_plot(document, which, marks[which]) for which in ("normal", "sample")]
    drawn = "".join(plots)
    return f'<div class="panels">{drawn}</div>' if drawn else ""


def _plot(document: ComparisonDocument, which: str, marks: dict[int, Mark]) -> str:
    found = document.clusters[which]
    heights = found.reachability
    visited = found.ordering
    if not visited:
        return ""
    clusters = {r.position: r.cluster for r in document.executions if r.set == which}
    every = [_Bar(heights[i], clusters.get(i)) for i in visited]
    step = math.ceil(len(every) / _MOST_BARS)
    bars = [_highest(every[i : i + step]) for i in range(0, len(every), step)]
    reach = max((bar.height for bar in bars if bar.height is not None), default=0.0)
    width = (_PLOT_WIDTH - _PLOT_LEFT - 4) / len(bars)
    runs = _runs(bars)
    strip, unnamed = _strip(runs, width, which, marks)
    undefined = sum(bar.height is None for bar in every)
    zero = sum(bar.height == 0 for bar in every)
    words = [f"{which.capitalize()} set in the order of visit; the strip has the types as found."]
    if undefined:
        words.append(
            f"Undefined for {undefined:,} of {len(every):,} (dashed): the first visited of a "
            "group, and all of one that has nothing to tell its executions apart by."
        )
    if zero:
        words.append(f"{zero:,} at 0: enough others have the same counts.")
    if step > 1:
        words.append(f"A bar is the highest of {step} executions.")
    if unnamed:
        words.append(f"No room for {plural(unnamed, 'name')}.")
    words.append(f"Method: {found.method}.")
    said = " ".join(words)
    return figure(
        f'<svg class="reachability" viewBox="0 0 {_PLOT_WIDTH} {_PLOT_HEIGHT}" '
        f'width="{_PLOT_WIDTH}" height="{_PLOT_HEIGHT}" role="img" aria-label="{text(said)}">'
        f"{_axis(reach)}{_bars(runs, width, reach, marks)}{strip}</svg>",
        said,
    )


def _highest(bars: list[_Bar]) -> _Bar:
    """Return the bar that stands for several: an edge of a valley must not vanish."""
    return max(bars, key=lambda bar: math.inf if bar.height is None else bar.height)


def _runs(bars: list[_Bar]) -> list[tuple[int, int | None, list[_Bar]]]:
    """Return neighbours of one cluster: place of the first, cluster, bars."""
    runs = []
    at = 0
    for cluster, run in itertools.groupby(bars, key=lambda bar: bar.cluster):
        members = list(run)
        runs.append((at, cluster, members))
        at += len(members)
    return runs


def _bars(
    runs: list[tuple[int, int | None, list[_Bar]]],
    width: float,
    reach: float,
    marks: dict[int, Mark],
) -> str:
    gap = 1.0 if width > 3 else 0.0
    parts = []
    for first, cluster, bars in runs:
        solid = []
        for undefined, members in itertools.groupby(
            enumerate(bars, first), key=lambda item: item[1].height is None
        ):
            places = list(members)
            if undefined:
                parts.append(
                    _undefined(_PLOT_LEFT + places[0][0] * width, len(places) * width - gap)
                )
                continue
            for i, bar in places:
                high = (_FLOOR - _PLOT_TOP) * (bar.height or 0.0) / reach if reach > 0 else 0.0
                x = _PLOT_LEFT + i * width
                solid.append(f"M{x:.1f} {_FLOOR}v-{max(high, 1.5):.1f}h{width - gap:.1f}V{_FLOOR}z")
        if solid:
            parts.append(
                f'<path d="{"".join(solid)}" fill="{_look(cluster, marks).colour}" '
                'stroke="currentColor" stroke-width="0.4" stroke-opacity="0.8"/>'
            )
    return "".join(parts)


def _undefined(x: float, width: float) -> str:
    """Return a box over executions without a reachability, with the word where it fits."""
    box = (
        f'<rect x="{x + 0.5:.1f}" y="{_PLOT_TOP}" width="{max(width - 1, 0.5):.1f}" '
        f'height="{_FLOOR - _PLOT_TOP}" fill="none" stroke="currentColor" stroke-opacity="0.5" '
        'stroke-dasharray="2 2"/>'
    )
    if width < 12:
        return box
    at = f"translate({x + width / 2 + 4:.1f} {_FLOOR - 8}) rotate(-90)"
    return (
        f'{box}<text transform="{at}" font-size="11" font-family="sans-serif" '
        'fill="currentColor" fill-opacity="0.8">undefined</text>'
    )


def _strip(
    runs: list[tuple[int, int | None, list[_Bar]]],
    width: float,
    which: str,
    marks: dict[int, Mark],
) -> tuple[str, int]:
    """Return the clusters as found, below the bars, and how many names had no room."""
    parts, names, unnamed = [], [], 0
    for first, cluster, bars in runs:
        x, wide = _PLOT_LEFT + first * width, len(bars) * width
        mark = _look(cluster, marks)
        parts.append(
            f'<rect x="{x:.1f}" y="{_FLOOR + 5}" width="{max(wide - 1, 0.5):.1f}" height="9" '
            f'fill="{mark.colour}"/>'
        )
        name = "none" if cluster is None else f"{which[0]}{cluster}"
        if wide < 7 * len(name) + 14:
            unnamed += 1
            continue
        middle = x + wide / 2
        names.append(mark.at(middle - 3.5 * len(name) - 1, _FLOOR + 24, 4))
        names.append(
            f'<text x="{middle - 3.5 * len(name) + 6:.1f}" y="{_FLOOR + 28}">{name}</text>'
        )
    drawn = (
        f'<g stroke="currentColor" stroke-width="0.5" stroke-opacity="0.7">{"".join(parts)}'
        f"{''.join(n for n in names if n.startswith('<polygon'))}</g>"
        '<g font-size="11" font-family="sans-serif" fill="currentColor">'
        f"{''.join(n for n in names if n.startswith('<text'))}</g>"
    )
    return drawn, unnamed


def _look(cluster: int | None, marks: dict[int, Mark]) -> Mark:
    return mark_of(0) if cluster is None else marks.get(cluster, mark_of(cluster))


def _axis(reach: float) -> str:
    top = f"{reach:.3g}" if reach > 0 else ""
    return (
        f'<path d="M{_PLOT_LEFT - 4} {_PLOT_TOP}V{_FLOOR}H{_PLOT_WIDTH}" fill="none" '
        'stroke="currentColor" stroke-opacity="0.4"/>'
        '<g font-size="11" font-family="sans-serif" fill="currentColor" fill-opacity="0.8">'
        f'<text x="{_PLOT_LEFT - 8}" y="{_PLOT_TOP + 9}" text-anchor="end">{top}</text>'
        f'<text x="{_PLOT_LEFT - 8}" y="{_FLOOR}" text-anchor="end">0</text>'
        f'<text transform="translate({_PLOT_LEFT - 24} {_FLOOR}) rotate(-90)">reachability</text>'
        f'<text x="{_PLOT_WIDTH}" y="{_FLOOR + 42}" text-anchor="end">order of visit</text></g>'
    )
