"""What is drawn of the plane of counts: executions that lie on top of each other as one."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from critpath.documents import ComparisonDocument, Plane
from critpath.report.html.names import names_of
from critpath.report.html.svg_marks import DIAMOND, Mark, looks, mark_of
from critpath.report.palette import ORANGE, SKY, VERMILLION
from critpath.text import verdict

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


def by_type(document: ComparisonDocument, plane: Plane, which: str, scales: Scales) -> list[Item]:
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


def by_set(document: ComparisonDocument, plane: Plane, scales: Scales) -> list[Item]:
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


def merged(items: Sequence[Item]) -> tuple[list[Point], float, int]:
    """Draw what lies on top of each other as one mark, until there are few enough.

    Returns
    -------
    points : list of Point
        In the order in which to draw them: small ones over large ones, layer by layer.
    grid : float
        Executions of one kind nearer than about this (px) are one mark.
    left_out : int
        Executions that are still too many, of the lowest layers.
    """
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
