"""Escaping, the few HTML elements of the report, and short names of executions and threads."""

from __future__ import annotations

import html
import re
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from critpath.documents import ComparisonDocument, Doing, KindEntry, OnThread, ThreadEntry
from critpath.model import role_name
from critpath.units import format_ns, safe_text, trace_address

# Escaping adds no backtick; one in a name moves the ends of the code, and does nothing else.
_QUOTED: Final = re.compile("`([^`]+)`")
# A unit does not leave its figure.
_UNIT: Final = re.compile(r"(?<=\d) (?=(?:[nµm]?s|%)(?!\w))")


def text(value: str) -> str:
    """Return text as HTML: inert, escaped with both quotes, fit for attributes too."""
    return html.escape(safe_text(value), quote=True)


def prose(value: str) -> str:
    """Return a sentence as HTML: names between backticks as code, everything escaped."""
    return _UNIT.sub("\u00a0", _QUOTED.sub(r"<code>\1</code>", text(value)))


def shell_word(word: str) -> str:
    """Quote a word for a shell: in double quotes, if single ones would have to be escaped."""
    if "'" in word and re.fullmatch(r"[^\"$`\\!]*", word):
        return f'"{word}"'
    return shlex.quote(word)


def paragraph(value: str, *, kind: str = "") -> str:
    """Return a paragraph of plain text."""
    return f"<p{_class(kind)}>{text(value)}</p>"


def items(values: Iterable[str], *, kind: str = "") -> str:
    """Return a list of plain texts, nothing where there are none."""
    entries = "".join(f"<li>{text(value)}</li>" for value in values)
    return f"<ul{_class(kind)}>{entries}</ul>" if entries else ""


def table(
    caption: str,
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    kind: str = "",
    heads: bool = False,
    foot: Iterable[Sequence[str]] = (),
) -> str:
    """Return a table whose cells are HTML already."""
    kinds = [
        " ".join(
            word
            for mark, word in ((">", "number"), ("~", "minor"))
            if mark in header[: len(header) - len(header.lstrip("~>"))]
        )
        for header in headers
    ]
    head = "".join(
        column_head(header.lstrip("~>"), name) for header, name in zip(headers, kinds, strict=True)
    )
    body = "".join(_row(row, kinds, heads=heads) for row in rows)
    below = "".join(_row(row, kinds, heads=heads) for row in foot)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}">'
        f"<table{_class(kind)}><caption>{text(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
        f"{f'<tfoot>{below}</tfoot>' if below else ''}</table></div>"
    )


def column_head(name: str, kind: str = "") -> str:
    """Return the head of a column; where nothing names it, it is no head."""
    return (
        f'<th scope="col"{_class(kind)}>{text(name)}</th>' if name else f"<td{_class(kind)}></td>"
    )


def _row(row: Sequence[str], kinds: Sequence[str], *, heads: bool) -> str:
    # By their number: a text of the trace may be "*" too.
    strong = len(row) > len(kinds)
    cells: list[str] = []
    for cell, name in zip(row[1:] if strong else row, kinds, strict=True):
        kind = _class(name)
        if heads and not cells:
            cells.append(f'<th scope="row"{kind}>{cell}</th>')
        else:
            cells.append(f"<td{kind}>{cell}</td>")
    return f"<tr{_class('strong' if strong else '')}>{''.join(cells)}</tr>"


def terms(pairs: Iterable[tuple[str, str]]) -> str:
    """Return what words mean, as a list of definitions; plain text both."""
    entries = "".join(
        f"<div><dt>{text(word)}</dt><dd>{text(meaning)}</dd></div>" for word, meaning in pairs
    )
    return f'<dl class="terms">{entries}</dl>' if entries else ""


def said(words: str) -> str:
    """Return a remark about what stands above it, nothing where there is none."""
    return paragraph(words, kind="said") if words else ""


def figure(drawing: str, words: str) -> str:
    """Return a drawing (HTML) with its caption (plain text)."""
    return f"<figure>{drawing}<figcaption>{text(words)}</figcaption></figure>"


def section(anchor: str, title: str, content: str) -> str:
    """Return a titled section; ``anchor`` is ours, ``content`` is HTML."""
    return (
        f'<section id="{anchor}" aria-labelledby="{anchor}-title">'
        f'<h2 id="{anchor}-title">{text(title)}</h2>{content}</section>'
    )


# Times as the page writes them: a unit does not leave its figure, a minus is one.
_SCALES: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_TINY: Final = 0.05  # of a pair: the smaller below this has a unit of its own


def time_of(ns: float, *, sign: bool = False) -> str:
    """Return a duration with three digits, plain text."""
    shown = format_ns(ns, sign=sign).replace(" us", " µs").replace(" ", "\u00a0")
    return shown.replace("-", "\u2212")


def in_unit(ns: float, scale: float) -> str:
    """Return a duration's figure in a given unit, three digits."""
    value = ns / scale
    size = abs(value)
    return f"{value:.{2 if size < 9.995 else 1 if size < 99.95 else 0}f}"


def pair_of(before: float, after: float) -> tuple[str, str, str]:
    """Return two durations as figures of one unit, and the unit; the first may bring its own."""
    larger, smaller = max(before, after), min(before, after)
    scale, unit = next(((s, u) for s, u in _SCALES if larger >= s * 0.9995), _SCALES[-1])
    if 0 < smaller < _TINY * larger:
        if smaller == before:
            return time_of(before), in_unit(after, scale), unit
        figure, small = time_of(after).split("\u00a0")
        return f"{in_unit(before, scale)}\u00a0{unit}", figure, small
    return in_unit(before, scale), in_unit(after, scale), unit


# What threads do, for texts and as classes.
WORDS: Final[dict[Doing, str]] = {
    "running": "running",
    "cpu": "waiting for a CPU",
    "throttled": "throttled by a quota",
    "timer": "waiting for a timer",
    "disk": "waiting for the disk",
    "network": "waiting for the network",
    "interrupts": "interrupts",
    "waiting": "waiting for another thread",
    "unknown": "not known",
    "queued": "waiting behind other requests",
    "shared": "on a loop shared with other requests",
}
# Readers cannot distinguish more than three textures: solid is running, stripes are waiting for a
# CPU, pale is any other wait.  Unknown time is empty, and interrupts are solid grey.
_LEGEND: Final[tuple[tuple[str, tuple[Doing, ...]], ...]] = (
    ("", ("running",)),
    ("", ("cpu", "throttled")),
    ("waiting ", ("waiting", "timer", "disk", "network", "queued", "shared")),
    ("", ("interrupts",)),
    ("", ("unknown",)),
)
SHORT: Final[dict[Doing, str]] = {
    "cpu": "waits for CPU",
    "throttled": "throttled",
    "timer": "waits for timer",
    "disk": "waits for disk",
    "network": "waits for network",
    "interrupts": "interrupts",
    "waiting": "waits",
    "unknown": "not known",
    "queued": "queued",
    "shared": "shared",
}


def legend_of(doings: Collection[Doing]) -> list[tuple[Doing, str]]:
    """Return of each texture that these have one of them, and what it stands for in words."""
    found = []
    for lead, of in _LEGEND:
        here = [one for one in of if one in doings]
        words = " or ".join(WORDS[one].removeprefix(lead) for one in here)
        found += [(here[0], lead + words)] if here else []
    return found


def who(thread: ThreadEntry) -> str:
    """Return what pictures call a thread, plain text."""
    return thread.name or ("own thread" if thread.own else "unknown")


def place(left: float, width: float | None = None, **more: str) -> str:
    """Return where a box stands, in per cent, as an attribute that follows a ``class``.

    The page's policy forbids such attributes: `as_html` makes rules of them all, one per place.
    """
    shown = {"left": f"{left:.2f}%"}
    if width is not None:
        shown["width"] = f"{width:.2f}%"
    return 'style="' + ";".join(f"{k}:{v}" for k, v in {**shown, **more}.items()) + '"'


def box(
    thread: ThreadEntry,
    doing: Doing,
    span: tuple[float, float],
    *,
    label: str = "",
    title: str = "",
    kind: str = "",
) -> str:
    """Return a segment: colour is who, texture is what it did; ``span`` is left and width in %."""
    named = f' title="{text(title)}"' if title else ""
    inner = f"<b>{text(label)}</b>" if label else ""
    more = f" {kind}" if kind else ""
    return f'<span class="s w{thread.colour} {doing}{more}" {place(*span)}{named}>{inner}</span>'


def axis(length: float, *, most: int = 6) -> str:
    """Return a scale from 0 to some ns, the length being 100 %."""
    scale, unit = next(((s, u) for s, u in _SCALES if length >= s), _SCALES[-1])
    whole = max(length / scale, 1e-9)
    step = next(
        (n * 10.0**e for e in range(-3, 7) for n in (1, 2, 5) if whole / (n * 10.0**e) <= most),
        whole,
    )
    ticks = [step * i for i in range(int(whole / step + 1e-9) + 1) if step * i <= whole * 0.975]
    shown = "".join(
        f'<span class="t" {place(100 * tick / whole)}>{tick:g}{"" if tick else f" {unit}"}</span>'
        for tick in ticks
    )
    return f'<div class="axis" aria-hidden="true">{shown}</div>'


def kind_name(kind: KindEntry) -> str:
    """Return a kind's name as HTML with a space behind it, "" where executions have none."""
    return f"<code>{text(kind.label)}</code> " if kind.label else ""


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


# What an execution is called that nothing in the trace names: thread and time of begin.
_UNNAMED: Final = re.compile(r"(\d+)@(\d+)", re.ASCII)
_FEWEST: Final = 3  # digits of a begin: a single one looks like a number of its own


def short_names(ids: Iterable[str]) -> dict[str, str]:
    """Return for every ``TID@BEGIN`` among the names of a set one that fits a label."""
    known = set(ids)
    begins: dict[str, set[str]] = defaultdict(set)
    for name in known:
        if match := _UNNAMED.fullmatch(name):
            begins[match[1]].add(match[2])
    result = {}
    for tid, found in begins.items():
        if len(found) == 1 and tid not in known:
            result[f"{tid}@{next(iter(found))}"] = tid
            continue
        longest = max(map(len, found))
        digits = next(
            (n for n in range(_FEWEST, longest) if len({b[-n:] for b in found}) == len(found)),
            longest,
        )
        short = {f"{tid}@{b}": f"{tid}@…{b[-digits:]}" for b in found if len(b) > digits + 1}
        result |= {full: name for full, name in short.items() if name not in known}
    return result


def names_of(document: ComparisonDocument, which: str) -> dict[str, str]:
    """Return `short_names` of one set of a comparison, ``normal`` or ``sample``."""
    return short_names(row.id for row in document.executions if row.set == which)


def trace_link(template: str, trace_id: str) -> str:
    """Return a link to a trace where a tracing UI shows it; "" where there is none."""
    address = trace_address(template, trace_id)
    if not address:
        return ""
    where = html.escape(address, quote=True)
    return (
        f' <a class="trace" href="{where}" rel="noreferrer noopener" title="{trace_id}">trace</a>'
    )


def titled(name: str, short: dict[str, str]) -> str:
    """Return an execution's short name as HTML, with the full one to point at."""
    if name not in short:
        return text(name)
    return f'<span title="{text(name)}">{text(short[name])}</span>'


def family_of(one: OnThread) -> str:
    """Return the thread's name with ``#`` for numbers, as the roles of states have it."""
    return role_name(one.comm)
