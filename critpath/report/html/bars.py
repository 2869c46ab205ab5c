"""Part 2 of the page: where a request spends its time, before and after, to scale."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from critpath.documents import (
    ComparisonDocument,
    Doing,
    KindEntry,
    MeanPath,
    MeanStretch,
    Pictures,
    ThreadEntry,
)
from critpath.report.html.elements import (
    SHORT,
    WORDS,
    axis,
    box,
    kind_name,
    legend_of,
    place,
    text,
    time_of,
    who,
)
from critpath.text.answer import first_peer, mean_of, tells_of_few
from critpath.text.page import noun_of

Key = tuple[int, Doing, bool]
_CHANGED: Final = 0.04  # of the axis: what grew or shrank by more is marked
_SPOKEN: Final = 3  # blocks that a bar's description names
_SEEN: Final = 0.08  # % of the axis: narrower blocks leave their place empty
# How wide a letter is, in % of a bar, by the class of what only a page so wide shows.
_LETTER: Final = {" phone": 3.6, " tight": 1.6, " wide": 0.95}
# The same of the smaller letters within blocks, and what is left and right of them.
_INSIDE: Final = {"": (1.4, 3.0), " slim": (0.9, 1.8)}
# What joins the two bars; the brackets have the colour of what they span.
_RIBBONS: Final = {
    "rib": "the same before and after",
    "rib added": "what was added",
    "rib saved": "what was saved",
}
_END: Final = 107.0  # % of a bar: labels may stand above what is right of it


class Row(Struct):
    """A mean path as a bar: where every block begins and how long it is, in ns."""

    mean: MeanPath
    blocks: dict[Key, tuple[float, float]]


def render_bars(document: ComparisonDocument, pictures: Pictures, kind: KindEntry) -> str:
    """Return the mean critical paths of a kind, "" where there are none."""
    by_group = {one.group: one for one in kind.means}
    before, after = by_group.get("before"), by_group.get("after")
    if before is None or after is None:
        return ""
    slow, rest = by_group.get("slow"), by_group.get("rest")
    part = slow is not None and rest is not None and tells_of_few(document, kind)
    main = slow if part and slow else after
    rows = {"before": _row(before), "main": _row(main)}
    if part and rest:
        rows["rest"] = _row(rest)
    length = max(row.mean.mean for row in rows.values()) or 1.0
    noun = noun_of
    saved = kind.change == "faster"
    told = kind.change in {"slower", "faster"}
    words = {
        "before": ("before", f"{before.executions:,} {noun(document, before.executions)}"),
        "main": (
            "after",
            f"the {main.executions:,} slow {'one' if main.executions == 1 else 'ones'}"
            if part
            else f"{after.executions:,} {noun(document, after.executions)}",
        ),
        "rest": ("after", f"the other {rest.executions:,}" if rest else ""),
    }
    threads = pictures.threads
    drawn = [_bar(rows["before"], words["before"], length, threads)]
    changes = _changes(rows["before"], rows["main"])
    peer = first_peer(document)
    mean = mean_of(document, main.executions)
    marks = _marks(rows, changes, length, threads, (peer, mean), saved=saved) if told else ""
    ribbon = _ribbon(rows["before"], rows["main"], changes, length, told=told)
    drawn.append(ribbon)
    drawn.append(_bar(rows["main"], words["main"], length, threads))
    if saved:
        drawn.insert(0, marks)
    else:
        drawn.append(marks)
    if "rest" in rows:
        drawn.append(_bar(rows["rest"], words["rest"], length, threads, kind="third"))
    drawn.append(f'<div class="row"><div class="who"></div>{axis(length)}</div>')
    return (
        f'<figure class="panel" id="time"><figcaption>Where a {kind_name(kind)}'
        f"{text(noun(document, 1))} spends its time <span>mean critical path, before and after, "
        f"to scale</span></figcaption><div>{''.join(drawn)}</div>"
        f"{_legend(rows, ribbon + marks, length, threads, noun(document, 1))}</figure>"
    )


def _row(mean: MeanPath) -> Row:
    blocks: dict[Key, tuple[float, float]] = {}
    at = 0.0
    for one in mean.stretches:
        blocks[_key(one)] = at, float(one.time)
        at += float(one.time)
    return Row(mean, blocks)


def _key(one: MeanStretch) -> Key:
    return one.thread, one.doing, one.lead


def _bar(
    row: Row,
    words: tuple[str, str],
    length: float,
    threads: list[ThreadEntry],
    *,
    kind: str = "",
) -> str:
    boxes = []
    times: dict[str, float] = {}
    for (thread, doing, _), (at, time) in row.blocks.items():
        words_ = f"{who(threads[thread])} {WORDS[doing]}"
        times[words_] = times.get(words_, 0.0) + time
        span = 100 * at / length, 100 * time / length
        if span[1] < _SEEN:
            continue
        one = threads[thread]
        label, slim = _inside(who(one), doing, span[1])
        title = f"{words_}: {time_of(time)}"
        boxes.append(box(one, doing, span, label=label, title=title, kind=slim))
    mean = time_of(float(row.mean.mean))
    boxes.append(f'<em class="e" {place(100 * float(row.mean.mean) / length)}>{text(mean)}</em>')
    name, many = words
    main = sorted(times.items(), key=lambda one: -one[1])[:_SPOKEN]
    most = "; ".join(f"{words_} {time_of(time)}" for words_, time in main)
    spoken = f"{name}, {many}: mean {mean}; above all {most}"
    return (
        f'<div class="row {kind}"><div class="who"><b>{text(name)}</b> <span>{text(many)}</span>'
        f'</div><div class="bar" role="img" aria-label="{text(spoken)}">{"".join(boxes)}</div>'
        "</div>"
    )


def _inside(name: str, doing: Doing, width: float) -> tuple[str, str]:
    """Return what a block says that is so wide (%), and its class where a wide page has the room.

    Nothing is cut: a longer name is left to the legend.
    """
    for label in (name if doing == "running" else f"{name} {SHORT[doing]}", name):
        for slim, (letter, sides) in _INSIDE.items():
            if letter * len(label) + sides <= width:
                return label, slim.strip()
    return "", ""


def _changes(before: Row, after: Row) -> dict[Key, float]:
    """Return by how much every block grew (ns), in the order of the bars."""
    keys = list(after.blocks)
    previous = -1
    for key in before.blocks:
        if key in after.blocks:
            previous = keys.index(key)
        else:
            previous += 1
            keys.insert(previous, key)
    none = (0.0, 0.0)
    return {key: after.blocks.get(key, none)[1] - before.blocks.get(key, none)[1] for key in keys}


def _ribbon(
    before: Row, after: Row, changes: dict[Key, float], length: float, *, told: bool
) -> str:
    shapes = []
    ends = [0.0, 0.0]
    for key, change in changes.items():
        points = []
        for side, row in enumerate((before, after)):
            at, time = row.blocks.get(key, (ends[side], 0.0))
            ends[side] = at + time
            points.append((100 * at / length, 100 * (at + time) / length))
        (a, b), (c, d) = points
        if max(b - a, d - c) < 2 * _SEEN:
            continue
        kind = "rib"
        if told and abs(change) > _CHANGED * length:
            kind += " added" if change > 0 else " saved"
        shapes.append(
            f'<polygon class="{kind}" points="{a:.2f},0 {b:.2f},0 {d:.2f},10 {c:.2f},10"/>'
        )
    return (
        '<div class="row"><div class="who"></div><div class="ribbon">'
        '<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f"{''.join(shapes)}</svg></div></div>"
    )


def _marks(
    rows: dict[str, Row],
    changes: dict[Key, float],
    length: float,
    threads: list[ThreadEntry],
    first: tuple[str, str],
    *,
    saved: bool,
) -> str:
    """Return brackets at what was added to the bar above, or saved of the bar below.

    ``first`` is the thread that the first cause names, whose label comes first, and what that
    is a mean of.
    """
    peer, mean = first
    row = rows["before" if saved else "main"]
    sign = -1 if saved else 1
    found = sorted(
        ((sign * change, key) for key, change in changes.items()), key=lambda one: -one[0]
    )
    brackets, words = [], {}
    side = " saved" if saved else ""
    for change, key in found:
        if change <= _CHANGED * length:
            break
        at, time = row.blocks[key]
        left, width = 100 * (at + time - change) / length, 100 * change / length
        brackets.append(f'<span class="mark{side}" {place(left, width)}></span>')
        name = who(threads[key[0]])
        amount = time_of(sign * change, sign=True)
        shown = [f"{amount} {name} {SHORT.get(key[1], 'running')}", amount]
        mine = threads[key[0]].name == peer
        words[left, left + width] = (
            not mine,
            [f"{shown[0]}, {mean}", *shown] if mine and mean else shown,
        )
    labels = _labels({mark: shown for mark, (_, shown) in sorted(words.items(), key=_later)}, side)
    if not brackets:
        return ""
    return (
        f'<div class="row"><div class="who"></div><div class="marks{" over" if saved else ""}">'
        f"{''.join(brackets)}{labels}</div></div>"
    )


def _later(word: tuple[tuple[float, float], tuple[bool, list[str]]]) -> bool:
    return word[1][0]


def _labels(words: dict[tuple[float, float], list[str]], side: str) -> str:
    """Return what brackets say on pages of each width: the longest of theirs that has room."""
    return "".join(
        _label(*label, side + width)
        for width, letter in _LETTER.items()
        for label in _fitting(words, letter).values()
    )


def _fitting(
    words: dict[tuple[float, float], list[str]], letter: float
) -> dict[tuple[float, float], tuple[str, float, str]]:
    """Return which labels do not touch where a letter is so wide (%); where, and whether turned."""
    taken: list[tuple[float, float]] = []
    found: dict[tuple[float, float], tuple[str, float, str]] = {}
    for mark, choices in words.items():
        others = [*taken, *(m for m in words if m != mark and taken)]
        for shown in choices:
            room = letter * len(shown)
            # As far left as its bracket, or ending where that ends.
            turned = mark[0] + room > _END
            span = (mark[1] - room, mark[1]) if turned else (mark[0], mark[0] + room)
            if span[0] >= 0 and all(span[0] >= b + 1 or a >= span[1] + 1 for a, b in others):
                taken.append(span)
                found[mark] = shown, span[turned], " left" if turned else ""
                break
    return found


def _label(shown: str, at: float, turn: str, kind: str) -> str:
    return f'<span class="label{kind}{turn}" {place(at)}>{text(shown)}</span>'


def _legend(
    rows: dict[str, Row], drawn: str, length: float, threads: list[ThreadEntry], noun: str
) -> str:
    """Return who and what the blocks are, and what ribbons and brackets of ``drawn`` mean."""
    keys = {
        key
        for row in rows.values()
        for key, (_, time) in row.blocks.items()
        if 100 * time / length >= 2 * _SEEN
    }
    names: dict[int, list[str]] = {}
    for place_ in sorted({key[0] for key in keys}):
        one = threads[place_]
        own = f" (the {noun}'s own thread)" if one.own and one.name else ""
        names.setdefault(one.colour, []).append(who(one) + own)
    entries = [
        f'<span><i class="s w{colour} running"></i>{text(", ".join(of[:4]))}'
        f"{' and others' if len(of) > 4 else ''}</span>"
        for colour, of in names.items()
    ]
    did = {key[1] for key in keys}
    entries += [
        f'<span><i class="s w6 {doing}"></i>{words}</span>' for doing, words in legend_of(did)
    ]
    entries += [
        f'<span><i class="{kind}"></i>{words}</span>'
        for kind, words in _RIBBONS.items()
        if f'class="{kind}" points' in drawn
    ]
    return f'<div class="legend">{"".join(entries)}</div>'
