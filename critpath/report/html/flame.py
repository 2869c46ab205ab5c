"""Part 6 of the page: what changed, over all requests, as a differential flame graph.

Width is time, the larger of before and after of what is lowest, added up upwards; the right part
of a box is what was added or saved, where a test supports it.  All boxes are there without the
script, which only zooms.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from critpath.documents import ComparisonDocument, FlameEntry, Pictures
from critpath.report.document.pictures import FEWEST, doing_of
from critpath.report.html.elements import SHORT, place, table, text, time_of, who
from critpath.text.page import noun_of

_ROW: Final = 24  # px
_SEEN: Final = 0.15  # % of the whole: narrower boxes are not drawn
_DEEPEST: Final = 32  # boxes below each other that are shown: those of the style sheet
_LABEL: Final = 1.6  # % that the shortest label takes
_PARTS: Final = {"more": "added", "less": "saved"}


class Box(Struct):
    """A node as it is drawn, in ns from the left."""

    entry: FlameEntry
    depth: int
    left: float
    width: float
    above: int
    few: bool


def lay_out(entries: list[FlameEntry]) -> list[Box]:
    """Return where every node stands; those below another fill its width."""
    width = [0.0] * len(entries)
    inner = {one.parent for one in entries}
    for at in range(len(entries) - 1, -1, -1):
        if at not in inner:
            width[at] = float(max(entries[at].before, entries[at].after))
        if 0 <= entries[at].parent < at:
            width[entries[at].parent] += width[at]
    boxes: list[Box] = []
    end: list[float] = []
    for at, one in enumerate(entries):
        above = one.parent if 0 <= one.parent < at else -1
        left = end[above] if above >= 0 else 0.0
        if above >= 0:
            end[above] += width[at]
        end.append(left)
        depth = boxes[above].depth + 1 if above >= 0 else 0
        few = boxes[above].few if above >= 0 else False
        few |= one.kind == "label" and min(one.executions or [FEWEST]) < FEWEST
        boxes.append(Box(one, depth, left, width[at], above, few))
    return boxes


def render_flame(document: ComparisonDocument) -> str:
    """Return the section of the flame graph, its title with it; "" where there is none."""
    pictures = document.pictures
    if pictures is None or not pictures.flame:
        return ""
    boxes = lay_out(pictures.flame)
    whole = boxes[0].width
    if whole <= 0:
        return ""
    nouns = noun_of(document)
    names = [_name(pictures, boxes, at, nouns) for at in range(len(boxes))]
    deepest = 1 + max((b.depth for b in boxes if 100 * b.width / whole >= _SEEN), default=0)
    depth = min(deepest, _DEEPEST)
    drawn = []
    for at, box in enumerate(boxes):
        if 100 * box.width / whole >= _SEEN:
            drawn.append(_box(pictures, boxes, names, at, document))
    kinds = "kind, " if any(one.kind == "label" for one in pictures.flame) else ""
    framed = any(one.kind == "frame" for one in pictures.flame)
    code = "in which of the program's own functions, " if framed else ""
    coloured = {box.entry.change for box in boxes}
    legend = '<span><i class="f"></i>as before, or no test supports a change</span>' + "".join(
        f'<span><i class="{part}"></i>{part}</span>'
        for change, part in _PARTS.items()
        if change in coloured
    )
    section = (
        f'<p class="sub">Width is time on the critical path, as a mean over all {text(nouns)}. '
        f"Downwards: {kinds}{code}what its own thread did, whom it waited for, and whom that "
        'thread waited for. <span class="needjs">Choose a box to zoom; <kbd>Esc</kbd> goes back.'
        "</span>"
        f'</p><div class="legend flat">{legend}</div>'
        f'<div class="flame d{depth}" role="group" aria-label="Flame graph">{"".join(drawn)}</div>'
        '<p id="box" class="needjs small" role="status"></p>'
        f"{_figures(boxes, names, noun_of(document, 1))}"
    )
    title = f"What changed, over all {text(nouns)}"
    if document.verdict == "anomaly" or any(box.entry.change for box in boxes):
        return f'<section aria-labelledby="flame"><h2 id="flame">{title}</h2>{section}</section>'
    return (
        f'<details class="fold" id="flame"><summary>Where time goes <span>over all {text(nouns)}, '
        f"before and after</span></summary>{section}</details>"
    )


def _figures(boxes: list[Box], names: list[str], noun: str) -> str:
    """Return what the boxes that are drawn say, as a table: for paper, and without a pointer."""
    rows = []
    for box, name in zip(boxes, names, strict=True):
        if 100 * box.width / boxes[0].width >= _SEEN:
            one = box.entry
            times = one.before, one.after
            shown = [text(time_of(time)) if time else "–" for time in times]
            change = text(time_of(one.after - one.before, sign=True))
            below = "· " * box.depth
            rows.append([f"{below}{text(name)}", *shown, change, _PARTS.get(one.change, "")])
    headers = [f"mean a {noun}", ">before", ">after", ">change", "a test supports it"]
    listed = table("What the boxes of the flame graph say", headers, rows, heads=True)
    return f'<details class="more"><summary>The boxes as a table</summary>{listed}</details>'


def _name(pictures: Pictures, boxes: list[Box], at: int, nouns: str) -> str:
    """Return what a box is called, plain text."""
    one = boxes[at].entry
    name = who(pictures.threads[one.thread]) if one.thread >= 0 else "other threads"
    if one.kind == "all":
        return f"all {nouns}"
    if one.kind == "label":
        return one.name
    if one.kind == "thread":
        return f"waits for {name}"
    if one.kind == "frame":
        return one.name
    doing = doing_of(one.name)
    said = "other" if one.kind == "rest" else SHORT.get(doing, "running")
    own = boxes[at].above < 0 or boxes[boxes[at].above].entry.kind in {"all", "label", "frame"}
    return said if own else f"{name} {said}"


def _box(
    pictures: Pictures, boxes: list[Box], names: list[str], at: int, document: ComparisonDocument
) -> str:
    box, whole = boxes[at], boxes[0].width
    one = box.entry
    change = one.after - one.before
    marked = _PARTS.get(one.change, "")
    part = ""
    if marked and box.width > 0:
        size = min(100.0, 100 * abs(change) / box.width)
        part = f'<i class="{marked}" style="width:{size:.1f}%"></i>'
    chain = [names[at]]
    above = box.above
    while above >= 0:
        chain.append(names[above])
        above = boxes[above].above
    new = time_of(one.after) + ", new" if not one.before else ""
    times = new or f"{time_of(one.before)} → {time_of(one.after)}"
    title = f"{' > '.join(reversed(chain))}: {times} a {noun_of(document, 1)}"
    title += f", {time_of(change, sign=True)}" if change else ""
    if box.few:
        title += "; too few to judge"
    wide = 100 * box.width / whole
    label = ""
    if wide >= _LABEL:
        shown = f" {time_of(change, sign=True)}" if marked else ""
        few = f", too few {noun_of(document)}" if one.kind == "label" and box.few else ""
        label = f"<span>{text(names[at])}{text(few)}{text(shown)}</span>"
    stripe = ""
    if one.kind in {"thread", "frame", "state"} and one.thread >= 0:
        stripe = f'<s class="w{pictures.threads[one.thread].colour}"></s>'
    kind = " k" if one.kind == "label" else ""
    where = place(100 * box.left / whole, wide, top=f"{box.depth * _ROW}px")
    at_ = f"{100 * box.left / whole:.3f} {wide:.3f} {box.depth}"
    return (
        f'<button type="button" class="f{kind}" {where} data-at="{at_}" '
        f'title="{text(title)}">{part}{stripe}{label}</button>'
    )
