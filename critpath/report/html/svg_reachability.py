"""Reachability plots: how far each execution is from those that OPTICS visited before.

A valley is a dense group of executions, a type; the bars stand in order of visit.
Ankerst, Breunig, Kriegel, Sander: OPTICS, SIGMOD 1999.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Final

from critpath.documents import ComparisonDocument
from critpath.report.html.elements import figure, text
from critpath.report.html.svg_marks import Mark, looks, mark_of
from critpath.units import plural

_WIDTH: Final = 620
_LEFT: Final = 46
_TOP: Final = 14
_FLOOR: Final = 150  # y of a reachability of 0
_HEIGHT: Final = 196
_MOST_BARS: Final = 500


@dataclass(frozen=True)
class _Bar:
    """One execution, or the highest of several in a row."""

    height: float | None  # None: undefined
    cluster: int | None


def reachability_plots(document: ComparisonDocument) -> str:
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
    width = (_WIDTH - _LEFT - 4) / len(bars)
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
        f'<svg class="reachability" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" role="img" aria-label="{text(said)}">{_axis(reach)}'
        f"{_bars(runs, width, reach, marks)}{strip}</svg>",
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
                parts.append(_undefined(_LEFT + places[0][0] * width, len(places) * width - gap))
                continue
            for i, bar in places:
                high = (_FLOOR - _TOP) * (bar.height or 0.0) / reach if reach > 0 else 0.0
                x = _LEFT + i * width
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
        f'<rect x="{x + 0.5:.1f}" y="{_TOP}" width="{max(width - 1, 0.5):.1f}" '
        f'height="{_FLOOR - _TOP}" fill="none" stroke="currentColor" stroke-opacity="0.5" '
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
        x, wide = _LEFT + first * width, len(bars) * width
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
        f'<path d="M{_LEFT - 4} {_TOP}V{_FLOOR}H{_WIDTH}" fill="none" stroke="currentColor" '
        'stroke-opacity="0.4"/>'
        '<g font-size="11" font-family="sans-serif" fill="currentColor" fill-opacity="0.8">'
        f'<text x="{_LEFT - 8}" y="{_TOP + 9}" text-anchor="end">{top}</text>'
        f'<text x="{_LEFT - 8}" y="{_FLOOR}" text-anchor="end">0</text>'
        f'<text transform="translate({_LEFT - 24} {_FLOOR}) rotate(-90)">reachability</text>'
        f'<text x="{_WIDTH}" y="{_FLOOR + 42}" text-anchor="end">order of visit</text></g>'
    )
