"""Parts 3 and 4 of the page: how long requests take, of the main kind and kind by kind."""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

import numpy as np

from critpath.documents import ComparisonDocument, KindEntry
from critpath.report.html.elements import (
    axis,
    column_head,
    kind_name,
    pair_of,
    place,
    text,
    time_of,
)
from critpath.text.page import NOISE, noun_of
from critpath.units import plural, shorten_names, split_common

_MOST_DOTS: Final = 60
_MANY: Final = 100  # from here on the 99th percentile is known, and an axis may end
_BINS: Final = 46
_ROOM: Final = 84.0  # px for each side
_MOST_KINDS: Final = 8
_LONGEST_NAME: Final = 24  # technical
_MOST_TICKS: Final = 40

Sides = tuple[list[float], list[float]]


def durations_by_kind(
    document: ComparisonDocument,
) -> dict[str, tuple[list[tuple[float, bool]], ...]]:
    """Return per label the durations before and after; with each whether it stands out."""
    result: dict[str, tuple[list[tuple[float, bool]], ...]] = {}
    for one in document.executions:
        sides = result.setdefault(one.label, ([], []))
        sides[one.set == "sample"].append((float(one.end - one.begin), one.anomalous))
    for sides in result.values():
        for side in sides:
            side.sort()
    return result


def render_durations(document: ComparisonDocument, kind: KindEntry, *, alone: bool) -> str:
    """Return the distribution of a kind's durations, before above and after below one axis."""
    found = durations_by_kind(document).get(kind.label, ([], []))
    before, after = ([time for time, _ in side] for side in found)
    if not before or not after:
        return ""
    coloured = document.verdict != "inconclusive" and kind.change in {"slower", "faster"}
    many = len(before) >= _MANY
    longest = max(before[-1], after[-1])
    p99 = [float(np.quantile(side, 0.99)) for side in (before, after) if len(side) >= _MANY]
    length = min(longest, 1.25 * max(p99)) if len(p99) == 2 else longest
    length = length or 1.0
    dots = max(len(before), len(after)) <= _MOST_DOTS
    least = float(np.quantile(before, 0.99)) if many else before[-1]
    if dots:
        marks = _dots(found, length, least, coloured=coloured)
    else:
        marks = _bars(found, length, coloured=coloured)
    beyond = sum(time > length for time in [*before, *after])
    said = _beyond(after, least, many=many, kind=kind)
    if beyond:
        said += f"{'; ' if said else ''}{beyond:,} beyond the edge"
    shade = ""
    if least < length and said:
        shade = f'<div class="shade" {place(100 * least / length)}><span>{text(said)}</span></div>'
    what = "one dot per " + noun_of(document, 1) if dots else f"share of {noun_of(document)}"
    noun = noun_of(document)
    spoken = (
        f"Durations of {len(before):,} {kind.label} {noun} before and {len(after):,} after: "
        f"{said or 'none took longer than those before'}"
    )
    low = " low" if dots and max(len(before), len(after)) <= 20 else ""
    return (
        f'<figure class="panel" id="durations"><figcaption>How long {kind_name(kind)}{text(noun)} '
        f"take <span>{what}</span></figcaption>"
        f'<div class="dist{low}" role="img" aria-label="{text(spoken)}">'
        f'<span class="side up">before</span><span class="side down">after</span>{shade}{marks}'
        f'<div class="middle">{axis(length)}</div></div>'
        f"{_figures(kind, alone=alone, coloured=coloured)}</figure>"
    )


def _beyond(after: list[float], least: float, *, many: bool, kind: KindEntry) -> str:
    count = sum(time > least for time in after)
    if not count or (kind.change != "slower" and not many and count <= 1):
        return f"{count:,} took longer than any before" if count else ""
    than = "99 % of those before" if many else "any before"
    return f"{count:,} took longer than {than}"


def _dots(
    found: tuple[list[tuple[float, bool]], ...], length: float, least: float, *, coloured: bool
) -> str:
    """Return a dot per request; what falls on each other is stacked, two or three abreast.

    Columns begin at the border between usual and longer, so that each dot is on its side of it.
    """
    largest = max(map(len, found))
    big = largest <= 20
    size = 9.0 if big else 7.0
    columns = 34 if big else 44
    half = 53.0 if big else 86.0
    parts = []
    for side, rows in enumerate(found):
        cells: dict[int, list[bool]] = {}
        for time, slow in rows:
            cell = math.ceil(round((time - least) / length * columns, 9)) - 1
            cells.setdefault(cell, []).append(slow)
        highest = max(map(len, cells.values()), default=1)
        room = int(half / size)
        abreast = min(3, -(-highest // room))
        step = min(size, half / -(-highest // abreast))
        for cell, marked in sorted(cells.items()):
            lines = -(-len(marked) // max(room, 1)) if abreast > 1 else 1
            for i, slow in enumerate(marked):
                column, line = (i % abreast, i // abreast) if lines > 1 or abreast > 1 else (0, i)
                middle = 100 * (least / length + (cell + 0.5) / columns)
                left = middle + (column - (abreast - 1) / 2) * 100 / columns / 2
                kind = "after" if side else "before"
                kind = "after slowx" if side and slow and coloured else kind
                top = (
                    f"{half + 21 + line * step:.1f}px"
                    if side
                    else f"{half - (line + 1) * step:.1f}px"
                )
                name = f"d {kind}{' big' if big else ''}"
                parts.append(f'<i class="{name}" {place(left, top=top)}></i>')
    return "".join(parts)


def _bars(found: tuple[list[tuple[float, bool]], ...], length: float, *, coloured: bool) -> str:
    """Return a histogram of shares; slow ones are coloured within the bars of after."""
    counts = []
    for rows in found:
        whole: Counter[int] = Counter()
        slow: Counter[int] = Counter()
        for time, marked in rows:
            if time <= length:
                cell = min(int(time / length * _BINS), _BINS - 1)
                whole[cell] += 1
                slow[cell] += marked and coloured
        counts.append((whole, slow, len(rows)))
    highest = max((n / size for whole, _, size in counts for n in whole.values()), default=1.0)
    width = 100 / _BINS - 0.2
    parts = []
    for side, (whole, slow, size) in enumerate(counts):
        for cell, count in sorted(whole.items()):
            left = 100 * cell / _BINS
            pieces = [(count, "after" if side else "before")]
            if side and slow[cell]:
                pieces.append((slow[cell], "slowx"))
            for n, kind in pieces:
                height = max(1.0, _ROOM * n / size / highest)
                top = f"{_ROOM + 22:.0f}px" if side else f"{_ROOM - height:.1f}px"
                at = place(left, width, top=top, height=f"{height:.1f}px")
                parts.append(f'<i class="h {kind}" {at}></i>')
    return "".join(parts)


def _figures(kind: KindEntry, *, alone: bool, coloured: bool) -> str:
    shown = [("mean", kind.mean), ("p50", kind.p50)]
    shown.append(("p95", kind.p95) if None not in kind.p95 else ("slowest", kind.slowest))
    if alone and None not in kind.p99:
        shown.append(("p99", kind.p99))
    parts = []
    for name, (before, after) in shown:
        if before is None or after is None:
            continue
        a, b, unit = pair_of(float(before), float(after))
        grade = _grade(kind, float(before), float(after)) if coloured else ""
        figure = f'<b class="{grade}">{text(b)}</b>' if grade else f"<b>{text(b)}</b>"
        parts.append(f"<span><small>{name}</small>{text(a)} → {figure} {unit}</span>")
    return f'<p class="figures">{"".join(parts)}</p>'


def _grade(kind: KindEntry, before: float, after: float) -> str:
    """Return the class of a figure: what changed with its kind, and by enough to be seen."""
    if kind.change == "slower" and after > 1.05 * before:
        return "worse"
    return "better" if kind.change == "faster" and after < 0.95 * before else ""


def render_kinds(document: ComparisonDocument, kinds: list[KindEntry]) -> str:
    """Return the table of kinds: changed ones first, at most 8."""
    if not kinds:
        return ""
    found = durations_by_kind(document)
    shown = kinds[:_MOST_KINDS]
    both = [one for one in shown if all(one.executions)]
    last = "p99" if any(None not in one.p99 for one in both) else "slowest"
    middle = any(None not in one.p95 for one in both)
    most = max(
        (time for one in shown for side in found.get(one.label, ([], [])) for time, _ in side),
        default=1.0,
    )
    columns = ["p50", *(["p95"] if middle else []), last]
    heads = "".join(f'<th scope="col" class="n">{name}</th>' for name in columns)
    lead, names = split_common([one.label for one in shown])
    names = shorten_names(names, _LONGEST_NAME)
    rows = "".join(
        _kind(document, one, name, columns, found.get(one.label, ([], [])), most or 1.0)
        for one, name in zip(shown, names, strict=True)
    )
    noun = noun_of(document)
    labelled = any(one.label for one in kinds)
    name = "kind" if labelled else ""
    title = f"By kind of {noun_of(document, 1)}" if labelled else f"All {noun}"
    of = f"of <code>{text(lead)}</code>, " if lead else ""
    rest = len(kinds) - len(shown)
    same = all(one.change in {"same", "few"} for one in kinds[_MOST_KINDS:])
    same = same and document.verdict != "inconclusive"
    more = f"and {plural(rest, 'more kind')}{f': {NOISE}' if same else ''}" if rest > 0 else ""
    return (
        f'<section class="panel" id="kinds" aria-labelledby="kinds-title">'
        f'<h2 id="kinds-title">{text(title)} <span>{of}before → after</span></h2>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(title)}">'
        f'<table class="kinds"><thead><tr>{column_head(name)}'
        f'<th scope="col" class="n count">{text(noun)}</th>{heads}'
        f'<th scope="col" class="n">mean</th>'
        f'<th scope="col" class="rughead">spread, 0 to {text(time_of(most))}</th>'
        f"</tr></thead><tbody>{rows}</tbody></table></div>"
        f"{f'<p class=small>{more}</p>' if more else ''}</section>"
    )


def _kind(
    document: ComparisonDocument,
    kind: KindEntry,
    shown: str,
    columns: list[str],
    found: tuple[list[tuple[float, bool]], ...],
    most: float,
) -> str:
    spread = f"spread, 0 to {text(time_of(most))}"
    changed = kind.change in {"slower", "faster"}
    coloured = changed and document.verdict != "inconclusive"
    quantiles = {"p50": kind.p50, "p95": kind.p95, "p99": kind.p99, "slowest": kind.slowest}
    cells = []
    for name in columns:
        before, after = quantiles[name]
        few = name != "p50" and kind.change == "few"
        if before is None or after is None or few:
            cells.append(f'<td class="n dim" data-of="{name}">-</td>')
            continue
        a, b, unit = pair_of(float(before), float(after))
        grade = _grade(kind, float(before), float(after)) if coloured else ""
        cells.append(
            f'<td class="n" data-of="{name}"><span class="from">{text(a)} →</span> '
            f'<span class="to {grade}">{text(b)}</span><span class="unit"> {unit}</span></td>'
        )
    before, after = kind.executions
    mean = {"few": "too few", "same": NOISE}.get(kind.change, "")
    grade = "same"
    open_ = document.verdict == "inconclusive" and kind.change == "same"
    if (changed or open_) and None not in kind.mean:
        mean = time_of(float(kind.mean[1] or 0) - float(kind.mean[0] or 0), sign=True)
    if coloured:
        grade = "worse" if kind.change == "slower" else "better"
    row = "chg" if changed else "few" if kind.change == "few" else "usual"
    strips = "".join(
        _strip(side, most, coloured=coloured and i == 1) for i, side in enumerate(found)
    )
    whole = text(kind.label)
    name = f'<code title="{whole}">{text(shown)}</code>' if kind.label else "all"
    return (
        f'<tr class="{row}"><th scope="row">{name}</th>'
        f'<td class="n count" data-of="{text(noun_of(document))}">{before:,} → {after:,}</td>'
        f'{"".join(cells)}<td class="n {grade}" data-of="mean">{text(mean)}</td>'
        f'<td class="rug" data-of="{spread}"><div>{strips}</div></td></tr>'
    )


def _strip(rows: list[tuple[float, bool]], most: float, *, coloured: bool) -> str:
    """Return a tick per request; of many, of as many quantiles."""
    count = len(rows)
    if count > _MOST_TICKS:
        rows = [rows[int((i + 0.5) * count / _MOST_TICKS)] for i in range(_MOST_TICKS)]
    ticks = "".join(
        f'<i class="{"slowx" if slow and coloured else "t"}" '
        f"{place(round(100 * time / most, 1))}></i>"
        for time, slow in rows
    )
    return f"<span>{ticks}</span>"


def render_load(document: ComparisonDocument) -> str:
    """Return how many CPUs threads had while each side was recorded, a strip each."""
    sides = {"before": document.sets.normal, "after": document.sets.sample}
    if not all(one.load for one in sides.values()):
        return ""
    known = [int(cpus) for one in sides.values() for cpus in one.cpus if cpus.isdecimal()]
    most = max(known + [math.ceil(max(one.load)) for one in sides.values()]) or 1
    rows = []
    for name, one in sides.items():
        step = 100 / len(one.load)
        points = [
            f"{x:.2f},{10 - 10 * busy / most:.2f}"
            for i, busy in enumerate(one.load)
            for x in (i * step, (i + 1) * step)
        ]
        mean = f"{sum(one.load) / len(one.load):.1f}"
        spoken = f"{name}: {mean} of {most} CPUs were busy on average, {max(one.load):.1f} at most"
        rows.append(
            f'<div class="row"><div class="who"><b>{name}</b> <span>{mean} of {most}</span></div>'
            f'<svg class="load" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" '
            f'aria-label="{spoken}"><polygon points="0,10 {" ".join(points)} 100,10"/></svg></div>'
        )
    return (
        '<figure class="panel" id="load"><figcaption>How busy the machine was <span>CPUs that '
        "threads had, from begin to end of each recording</span></figcaption>"
        f"{''.join(rows)}</figure>"
    )
