"""What an exploration's page has without its script, but for sentences: conditions, the slowest.

All else, and these after the first step, is drawn by the script (`explore.js`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from critpath.model.exploration import FactTable, Question, Ranked
from critpath.report.html.elements import WORDS, prose, text, trace_link
from critpath.text.exploring import chance, percent, say, times_text
from critpath.units import format_ns

LISTED: Final = 4
SLOWEST: Final = 10
# What may stand on the vertical axis, as far as executions have it.
AXES: Final = {
    "latency": "latency",
    "true": "true latency",
    "queued": "queued",
    "time.WAIT_CPU": "waiting for a CPU",
    "idle.mean": "mean wait",
}


def put(value: float) -> str:
    """Return a place in per cent."""
    return f"{value:.2f}"


# The list of conditions.


def condition_rows(question: Question, table: FactTable) -> tuple[str, int]:
    """Return the findings in their two groups, and how many are listed."""
    listed = [one for one in question.ranked if one.sure]
    if question.answer == "few":
        listed = list(question.ranked[: 2 * LISTED])
    if not listed:
        listed = list(question.ranked[:3])
    begin = [one for one in listed if one.known][:LISTED]
    way = [one for one in listed if not one.known][:LISTED]
    most = max([0.05, *(max(o.having.interval[1], o.without.interval[1]) for o in begin + way)])
    shown = ""
    for name, some in (("begin", begin), ("way", way)):
        if some:
            more = say(f"{name}.more", one=table.noun)
            shown += (
                f'<tr class="gh"><th colspan="5" scope="colgroup"><b>{text(say(name))}</b> '
                f"{text(more)}</th></tr>"
            ) + "".join(_condition_row(one, most, question) for one in some)
    return shown, len(begin) + len(way)


def _condition_row(one: Ranked, most: float, question: Question) -> str:
    command, also, ratio = one.condition, one.also_words, (one.ratio, *one.ratio_interval)
    times, interval = times_text(ratio, more=one.z > 0, never=not one.without.count)
    judged = question.answer != "few"
    dull = ' class="few"' if judged and not one.sure else ""
    return (
        f'<tr{dull}><th scope="row"><button class="lk cond" type="button" '
        f'data-c="{text(command)}">{prose(one.words)}</button>'
        f'<button class="notb needjs" type="button" data-not="{text(command)}" '
        f'aria-label="not these">not</button>'
        f"{f'<small>{prose(also)}</small>' if also else ''}</th>"
        f'<td class="dbc">{_bars(one, most)}</td>'
        f'<td class="n"><b>{percent(one.having.share)}</b><span> of {one.having.of:,}</span><br>'
        f"<i>{percent(one.without.share)}</i><span> of {one.without.of:,}</span></td>"
        f'<td class="n"><b>{text(times)}</b><br><span>{text(interval)}</span></td>'
        f'<td class="n">{text(chance(one.p) if judged else "–")}</td></tr>'
    )


def _bars(one: Ranked, most: float) -> str:
    scale = 97 / most
    label = f"{percent(one.having.share)} with, {percent(one.without.share)} without"
    return (
        f'<svg class="db" role="img" aria-label="{label}">'
        f"{_bar(3, one.having.share, one.having.interval, scale, 'b1')}"
        f"{_bar(15, one.without.share, one.without.interval, scale, 'bg')}</svg>"
    )


def _bar(y: int, share: float, around: list[float], scale: float, kind: str) -> str:
    low, high = put(around[0] * scale), put(around[1] * scale)
    return (
        f'<rect class="{kind}" x="0" y="{y}" width="{put(max(0.4, share * scale))}%" height="8" '
        f'rx="1"/><line class="ci" x1="{low}%" x2="{high}%" y1="{y + 4}" y2="{y + 4}"/>'
        f'<line class="ci" x1="{low}%" x2="{low}%" y1="{y + 2}" y2="{y + 6}"/>'
        f'<line class="ci" x1="{high}%" x2="{high}%" y1="{y + 2}" y2="{y + 6}"/>'
    )


def part_text(question: Question) -> str:
    """Return conditions that are parts of what was selected by, the largest first."""
    shown = [
        f"{one.words} ({percent(one.having.share)} of {one.having.of:,})"
        for one in question.parts[:6]
    ]
    return "; ".join(shown) or say("none.part")


def slowest_rows(table: FactTable, question: Question, trace_url: str = "") -> str:
    """Return the ten slowest selected executions."""
    rows = np.flatnonzero(question.chosen)
    latency = table.end - table.begin
    begin = table.facts["begin"].values
    chosen = rows[np.argsort(-latency[rows], kind="stable")][:SLOWEST]
    return "".join(
        f'<tr><th scope=row><button class="lk" type="button" data-row="{row}">'
        f"{text(table.id[row])}</button>{trace_link(trace_url, _trace(table, row))}</th>"
        f"<td class=n>{format_ns(float(begin[row]))}</td>"
        f"<td class=n>{format_ns(float(latency[row]))}</td></tr>"
        for row in chosen.tolist()
    )


def _trace(table: FactTable, row: int) -> str:
    fact = table.facts.get("trace_id")
    return "" if fact is None else fact.words[int(fact.values[row])]


DOING_WORDS: Final[dict[str, str]] = {str(one): words for one, words in WORDS.items()} | {
    "led": "a slice that this one caused"
}


def patterns(colours: Sequence[int]) -> str:
    """Return the marks of services and the textures of states, a set for each colour."""
    shapes = (
        '<circle id="m0" r="3.4"/><rect id="m1" x="-3" y="-3" width="6" height="6"/>'
        '<path id="m2" d="M0-4 4 3H-4z"/>'
    )
    turned = 'patternTransform="rotate(45)"'
    pale = ('width="6" height="6"', "", "")
    striped = ('width="6" height="6"', turned, '<rect width="2.2" height="6" {c}/>')
    empty = ('width="9" height="44"', "", '<rect width="9" height="44" fill="var(--page)"/>')
    grey = ('width="9" height="44"', "", '<rect width="9" height="44" fill="var(--grey)"/>')
    inner: dict[str, tuple[str, str, str]] = {
        **dict.fromkeys(DOING_WORDS, pale),
        **dict.fromkeys(("cpu", "throttled"), striped),
        **dict.fromkeys(("unknown", "led"), empty),
        "interrupts": grey,
    }
    doubt = '<path d="M0 0l8 8M8 0l-8 8" stroke="var(--ink)" stroke-width=".8" opacity=".55"/>'
    found = [
        shapes,
        (
            '<marker id="arrow" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" '
            'markerHeight="6" markerUnits="userSpaceOnUse" orient="auto">'
            '<path class="tip" d="M0 0 6 3 0 6z"/></marker>'
        ),
        f'<pattern id="doubt" width="8" height="8" patternUnits="userSpaceOnUse">{doubt}</pattern>',
    ]
    for colour in colours:
        ink = f'fill="var(--w{colour})"'
        for name, (size, turn, drawn) in inner.items():
            found.append(
                f'<pattern id="{name}{colour}" {size} {turn} patternUnits="userSpaceOnUse">'
                f'<rect width="9" height="44" fill="var(--page)"/>'
                f'<rect width="9" height="44" {ink} opacity=".2"/>{drawn.format(c=ink)}</pattern>'
            )
    return f'<svg class="svgdefs" aria-hidden="true"><defs>{"".join(found)}</defs></svg>'
