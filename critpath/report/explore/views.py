"""The views of an exploration as they stand in the page without its script.

The script draws the same again after every step (`explore.js`): what changes here changes there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from critpath.model import I64, Bool
from critpath.model.exploration import FactTable, Question, Ranked
from critpath.report.explore.sketches import DOINGS, FAR, HEAD, LANE, SURE, Sketch
from critpath.report.html.elements import prose, text, trace_link
from critpath.report.html.lanes import LEAST_BAND
from critpath.text.exploring import (
    WORDS,
    chance,
    number_text,
    percent,
    say,
    times_text,
)
from critpath.text.requests import describe_crossing, describe_inferred
from critpath.units import format_ns, shorten_names

MOST_DOTS: Final = 2_000  # of the static page
MOST_COLUMNS: Final = 12
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


class LatencyScale:
    """A logarithmic axis from below the least value to above the largest."""

    def __init__(self, values: Any) -> None:
        positive = values[values > 0]
        self.least = float(positive.min()) if len(positive) else 1.0
        self.low = self.least / 1.25
        self.high = (float(positive.max()) if len(positive) else 1.0) * 1.35

    def place(self, value: float) -> float:
        """Return where a value stands, in per cent from above."""
        value = max(self.least, value)
        return 100 - 100 * math.log(value / self.low) / math.log(self.high / self.low)

    def ticks(self) -> Iterator[tuple[float, bool]]:
        """Yield values for lines, and whether one is a power of ten."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        for exponent in range(first, last + 1):
            for digit in (1, 2, 5):
                value = digit * 10.0**exponent
                if self.low * 0.999 <= value <= self.high * 1.001:
                    yield value, digit == 1


def grid(scale: LatencyScale) -> tuple[str, str]:
    """Return the lines of a scale and their labels; those of tens, or all where they are few."""
    lines, labels = [], []
    for value, ten in scale.ticks():
        y = scale.place(value)
        lines.append(
            f'<line class="{"g1" if ten else "g0"}" x1="0" x2="100%" y1="{put(y)}%" '
            f'y2="{put(y)}%"/>'
        )
        if (ten or scale.high / scale.low < 30) and y > 4:
            labels.append(f'<text class="yl" x="4" y="{put(y)}%" dy="-3">{word_ns(value)}</text>')
    return "".join(lines), "".join(labels)


def word_ns(ns: float) -> str:
    """Return a round time of an axis."""
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if ns >= scale * 0.9995:
            return f"{ns / scale:g} {unit}"
    return f"{ns:g} ns"


def thin_rows(rows: I64, most: int) -> I64:
    """Return at most so many of some rows, evenly."""
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).round().astype(np.int64)]


def draw_time(table: FactTable, question: Question) -> tuple[str, str]:
    """Return the plot of latency over begin, and its axis."""
    within = np.flatnonzero(question.within)
    latency = table.facts["latency"].values
    begin = table.facts["begin"].values
    scale, most = LatencyScale(latency[within]), max(float(begin.max()), 1.0) * 1.01
    lines, labels = grid(scale)
    box = ""
    if question.bound is not None:
        height = min(100.0, max(0.0, scale.place(question.bound)))
        box = f'<rect class="selbox" x="0" y="0" width="100%" height="{put(height)}%"/>'
    share = MOST_DOTS // 2
    others = thin_rows(within[~question.chosen[within]], MOST_DOTS - share)
    chosen = thin_rows(within[question.chosen[within]], share)
    dots = [
        f'<use href="#m{table.label[row] % 3}" class="{kind} w{table.label[row] % 7}" '
        f'x="{put(100 * begin[row] / most)}%" y="{put(scale.place(latency[row]))}%"/>'
        for kind, rows in (("p", others), ("p on", chosen))
        for row in rows.tolist()
    ]
    return lines + box + "".join(dots) + labels, time_axis(most)


def time_axis(most: float) -> str:
    """Return the labels of a linear axis from 0."""
    step = next(
        (n * 10.0**e for e in range(13) for n in (1, 2, 5) if most / (n * 10.0**e) <= 6), most
    )
    shown, value = [], 0.0
    while value < 0.97 * most:
        anchor = "middle" if value else "start"
        label = word_ns(value) if value else "0"
        shown.append(
            f'<text x="{put(100 * value / most)}%" y="13" text-anchor="{anchor}">{label}</text>'
        )
        value += step
    return "".join(shown)


def thread_columns(table: FactTable, rows: Any) -> list[tuple[int, str, Any]]:
    """Return a column per thread (label, name, its rows); per label where they are too many."""
    threads = table.facts["thread"]
    columns = [
        (
            label,
            threads.words[code],
            rows[(table.label[rows] == label) & (threads.values[rows] == code)],
        )
        for label in np.unique(table.label[rows]).tolist()
        for code in np.unique(threads.values[rows][table.label[rows] == label]).tolist()
    ]
    if len(columns) <= MOST_COLUMNS:
        return columns
    return [
        (label, "", rows[table.label[rows] == label])
        for label in np.unique(table.label[rows]).tolist()
    ][:MOST_COLUMNS]


def family(table: FactTable, within: Bool, chosen: Bool) -> tuple[I64, Bool]:
    """Return some executions with all sub-requests of theirs, and which are of chosen ones."""
    seen, marked = within.copy(), chosen.copy()
    for _ in range(64):
        above = table.parent >= 0
        more = np.zeros(len(table), np.bool_)
        more[above] = seen[table.parent[above]]
        mark = np.zeros(len(table), np.bool_)
        mark[above] = marked[table.parent[above]]
        if not (more & ~seen).any() and not (mark & ~marked).any():
            break
        seen |= more
        marked |= mark
    return np.flatnonzero(seen), marked


def draw_threads(table: FactTable, question: Question) -> tuple[str, str, str]:
    """Return the plot by thread, its axis, and the rows of its table."""
    rows, marked = family(table, question.within, question.chosen)
    latency = table.facts["latency"].values
    scale = LatencyScale(latency[rows])
    columns = thread_columns(table, rows)
    lines, labels = grid(scale)
    width = 100 / max(len(columns), 1)
    dots, medians, names, listed = [], [], [], []
    most = MOST_DOTS // max(len(columns), 1)
    for at, (label, name, members) in enumerate(columns):
        shown = thin_rows(members, most)
        for row in sorted(shown.tolist(), key=lambda one: bool(marked[one])):
            x = (at + 0.2 + 0.6 * ((row * 0.618034) % 1)) * width
            dots.append(
                f'<use href="#m{label % 3}" class="{"p on" if marked[row] else "p"} w{label % 7}" '
                f'x="{put(x)}%" y="{put(scale.place(latency[row]))}%"/>'
            )
        ordered = np.sort(latency[members])
        middle = float(ordered[len(ordered) // 2])
        y = put(scale.place(middle))
        medians.append(
            f'<line class="medl" x1="{put((at + 0.14) * width)}%" x2="{put((at + 0.86) * width)}%" '
            f'y1="{y}%" y2="{y}%"/>'
        )
        short = cut_name(name.rpartition(" ")[2] if name else "", 12)
        names.append(
            f'<text x="{put((at + 0.5) * width)}%" y="12" text-anchor="middle">{text(short)}</text>'
        )
        high = float(ordered[min(len(ordered) - 1, math.floor(0.9 * len(ordered)))])
        count = int(marked[members].sum())
        listed.append(
            f"<tr><th scope=row><code>{text(name or table.labels[label])}</code></th>"
            f"<td class=n>{len(members):,}</td><td class=n>{format_ns(middle)}</td>"
            f"<td class=n>{format_ns(high)}</td>"
            f"<td class=n>{percent(count / len(members))} "
            f"<span>of {len(members):,}</span></td></tr>"
        )
    groups = []
    names_of = dict(zip(table.labels, shorten_names(table.labels, 24), strict=True))
    for label in dict.fromkeys(label for label, _, _ in columns):
        places = [at for at, one in enumerate(columns) if one[0] == label]
        left, right = places[0] * width, (places[-1] + 1) * width
        groups.append(
            f'<rect class="grp w{label % 7}" x="{put(left + 0.6)}%" '
            f'width="{put(max(0.4, right - left - 1.2))}%" y="18" height="3"/>'
            f'<text x="{put((left + right) / 2)}%" y="34" text-anchor="middle">'
            f"{text(names_of[table.labels[label]] or 'all')}</text>"
        )
    plot = lines + "".join(dots) + "".join(medians) + labels
    return plot, "".join(names + groups), "".join(listed)


def cut_name(name: str, most: int) -> str:
    """Cut a long name in its middle."""
    if len(name) <= most:
        return name
    return f"{name[: most // 2]}…{name[len(name) - most + most // 2 + 1 :]}"


# The table of clusters.


def cluster_rows(table: FactTable, question: Question) -> str:
    """Return a row per cluster: the highest share selected first, what is in none last."""
    rows = np.flatnonzero(question.within)
    fact = table.facts.get("cluster")
    numbers = fact.values[rows] if fact is not None else np.zeros(len(rows))
    latency = table.facts["latency"].values
    true = table.facts.get("true")
    waits = table.facts.get("time.WAIT_CPU")
    listed = []
    for number in np.unique(numbers).tolist():
        members = rows[numbers == number]
        count = int(question.chosen[members].sum())
        listed.append((number == 0, -count / len(members), number, members, count))
    shown = []
    for none, _, number, members, count in sorted(listed, key=lambda one: one[:3]):
        ordered = np.sort(latency[members])
        wait = waits.values[members] if waits is not None else np.zeros(len(members))
        share = count / len(members)
        name = (
            text(say("cluster.rest"))
            if none
            else f'<button class="lk" type="button" data-cluster="{number:.0f}">'
            f"{number:.0f}</button>"
        )
        own = ""
        if true is not None:
            middle = np.sort(true.values[members])[len(members) // 2]
            own = f'<td class="n opt">{format_ns(float(middle))}</td>'
        shown.append(
            f"<tr{' class=chg' if len(members) >= 10 and share > 0.2 else ''}>"
            f"<th scope=row>{name} <span>{text(typical_of(table, members))}</span></th>"
            f"<td class=n>{len(members):,}</td>"
            f"<td class=n>{format_ns(float(ordered[len(ordered) // 2]))}</td>"
            f"{own}<td class=n>{format_ns(float(wait.mean()))} "
            f"<span>± {format_ns(float(wait.std()))}</span></td>"
            f'<td class="mini"><svg class="mb" aria-hidden="true"><rect class="b0" width="100%" '
            f'height="9" y="5"/><rect class="b1" width="{put(100 * share)}%" height="9" y="5"/>'
            f"</svg></td><td class=n>{percent(share)}</td></tr>"
        )
    return "".join(shown)


def typical_of(table: FactTable, members: Any) -> str:
    """Say what is typical of a cluster."""
    parts = []
    cpus = table.facts.get("cpus")
    if cpus is not None:
        ordered = np.sort(cpus.values[members])
        usual = int(ordered[len(ordered) // 2])
        parts.append(say("cluster.cpu") if usual == 1 else say("cluster.cpus", k=usual))
    waits = table.facts.get("count.WAIT_CPU")
    if waits is not None:
        low, high = float(waits.values[members].min()), float(waits.values[members].max())
        name = "cluster.wait" if low == high else "cluster.waits"
        parts.append(say(name, lo=number_text(low), hi=number_text(high)))
    return ", ".join(parts)


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
        f'aria-label="all but these">not</button>'
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
    return "; ".join(shown) or WORDS["none.part"]


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


# Sketches.


def _window(table: FactTable, row: int) -> tuple[int, int]:
    return int(table.begin[row]), int(table.end[row])


def _latency(table: FactTable, row: int) -> float:
    return float(table.end[row] - table.begin[row])


def sure_of(table: FactTable, row: int) -> str:
    """Return how sure what an execution asked and did is: "" where nothing is known of that."""
    words = [
        fact.words[int(fact.values[row])]
        for name in ("boundary", "attribution")
        if (fact := table.facts.get(name)) is not None
    ]
    return next((word for word in ("doubtful", "likely") if word in words), "")


def _trace(table: FactTable, row: int) -> str:
    fact = table.facts.get("trace_id")
    return "" if fact is None else fact.words[int(fact.values[row])]


def draw_sketch(
    table: FactTable, row: int, sketch: Sketch, title: str, longest: float, trace_url: str = ""
) -> str:
    """Return one execution: its threads below each other, on a scale that several share."""
    latency = _latency(table, row)
    lanes, tops = sketch.lanes, sketch.tops
    height = tops[-1] + LANE
    who, below = [name_of(lane) for lane in lanes], tops[0]

    def x(value: float) -> str:
        return put(100 * value / longest)

    names = "".join(
        (
            f'<div class="sn host">{text(cut_name(host[0], 24))}</div>'
            if host and host != before
            else ""
        )
        + f'<div class="sn"><b>{text(cut_name(str(name), 24))}</b> <span>{tid}</span></div>'
        for (_, _, _, *before), (name, tid, _, *host) in pairwise([("", 0, 0), *lanes])
    )
    boxes = [
        f'<line class="hl" x1="0" x2="100%" y1="{top - HEAD + 0.5}" y2="{top - HEAD + 0.5}"/>'
        for before, top in pairwise([-LANE, *tops])
        if top > before + LANE
    ]
    for lane, doing, begin, length, *beneath in sketch.stretches:
        colour, kind = lanes[lane][2], DOINGS[doing]
        did = DOING_WORDS[kind] + "".join(
            say("beneath", did=DOING_WORDS[DOINGS[b]]) for b in beneath
        )
        fill = f"var(--w{colour})" if kind == "running" else f"url(#{kind}{colour})"
        stroke = "none" if kind == "shared" else f"var(--w{colour})"
        boxes.append(
            f'<rect class="sg" fill="{fill}" stroke="{stroke}" x="{x(begin)}%" '
            f'y="{tops[lane] + 8}" width="{put(max(0.06, 100 * length / longest))}%" height="18">'
            f"<title>{text(who[lane])} {did} {format_ns(length)}</title>"
            "</rect>"
        )
    for link in sketch.links:
        boxes += _link(link, tops, who, longest)
    label, bar = format_ns(latency), ""
    if "true" in table.facts:
        own = float(table.facts["true"].values[row])
        label = say("true of", true=format_ns(own), latency=label) if own < latency else label
        bar = f'<rect class="own" x="0" y="{below + 30}" width="{x(own)}%" height="4"/>'
    sure = sure_of(table, row)
    asked = f"ask {sure}".strip()
    if sure == "doubtful":
        boxes.append(
            f'<rect fill="url(#doubt)" x="0" y="{below + 4}" width="{x(latency)}%" height="26">'
            f"<title>{text(say('doubtful'))}</title></rect>"
        )
    for child in np.flatnonzero(table.parent == row).tolist():
        first, last = (f"{x(float(at - table.begin[row]))}%" for at in _window(table, child))
        low = below + 37
        name = f"{table.labels[table.label[child]]} {format_ns(_latency(table, child))}"
        bar += (
            f'<g class="{asked}"><line x1="{first}" x2="{last}" y1="{low}" y2="{low}"/>'
            f'<line x1="{first}" x2="{first}" y1="{low - 4}" y2="{low}"/>'
            f'<line x1="{last}" x2="{last}" y1="{low - 4}" y2="{low}"/>'
            f"<title>{text(name)}</title></g>"
        )
    step = next(
        (n * 10.0**e for e in range(13) for n in (1, 2, 5) if longest / (n * 10.0**e) <= 7), longest
    )
    ticks, lines, value = [], [], 0.0
    while value < longest:
        anchor = "middle" if value else "start"
        ticks.append(
            f'<text x="{x(value)}%" y="13" text-anchor="{anchor}">'
            f"{word_ns(value) if value else '0'}</text>"
        )
        if value:
            lines.append(f'<line class="g1" x1="{x(value)}%" x2="{x(value)}%" y1="0" y2="100%"/>')
        value += step
    said = say(
        "sketch",
        one=table.noun,
        id=f"`{table.id[row]}`",
        latency=format_ns(latency),
        begin=format_ns(float(table.facts["begin"].values[row])),
    )
    more = f" ({say('lanes.more', k=sketch.left_out)})" if sketch.left_out else ""
    return (
        f'<div class="sk"><p class="lh"><b>{text(title)}</b> {prose(said + more)}'
        f"{trace_link(trace_url, _trace(table, row))}</p>"
        f'<div class="skg"><div class="sns">{names}</div>'
        f'<svg class="sks" height="{height}" role="img" aria-label="{text(title)} '
        f'{len(lanes)} threads, {format_ns(latency)}">{"".join(lines)}{"".join(boxes)}'
        f'{bar}<text class="tl" x="{x(latency)}%" y="{below + 21}" dx="8">{text(label)}</text>'
        f'</svg><span></span><svg class="axs" height="18" aria-hidden="true">{"".join(ticks)}</svg>'
        "</div></div>"
    )


def name_of(lane: Sequence[Any]) -> str:
    """Return a lane's thread, with its host where there are several."""
    return "@".join(map(str, [lane[0], *lane[3:]]))


def _link(
    link: Sequence[int], tops: Sequence[int], who: Sequence[str], longest: float
) -> Iterator[str]:
    """Return an arrow; from host to host with a band as wide as the time may be wrong."""
    one, other, at, *known = link
    top, bottom = (tops[a] + 8 + 18 * (a < b) for a, b in ((one, other), (other, one)))
    kind, titles = "ln", []
    left = 100 * at / longest
    if len(link) == FAR:
        kind += " far"
        bound = known[1] if known[1] >= 0 else None
        titles.append(describe_crossing(who[one], who[other], bound))
        wide = 100 * (bound or 0) / longest
        if 2 * wide >= LEAST_BAND:
            low, high = max(left - wide, 0.0), min(left + wide, 100.0)
            yield (
                f'<rect class="band" x="{put(low)}%" width="{put(high - low)}%" '
                f'y="{min(top, bottom)}" height="{abs(top - bottom)}"/>'
            )
        if bound is None:
            yield f'<text class="qm" x="{put(left)}%" y="{(top + bottom) // 2 + 4}" dx="4">?</text>'
    if known and known[0] < SURE:
        kind += " dashed"
        titles.append(describe_inferred(known[0] / 1000))
    said = f"<title>{text('; '.join(titles))}</title>" if titles else ""
    yield (
        f'<line class="{kind}" x1="{put(left)}%" x2="{put(left)}%" y1="{top}" y2="{bottom}" '
        f'marker-end="url(#arrow)">{said}</line>'
    )


DOING_WORDS: Final = {
    "running": "running",
    "cpu": "waiting for a CPU",
    "waiting": "waiting for another thread",
    "network": "waiting for the network",
    "timer": "waiting for a timer",
    "disk": "waiting for the disk",
    "throttled": "throttled by a quota",
    "interrupts": "interrupts",
    "unknown": "not known",
    "queued": "waiting behind other requests",
    "shared": "on a loop shared with other requests",
    "led": "a slice that this one caused",
}


def patterns(colours: Sequence[int]) -> str:
    """Return the marks of services and the textures of states, a set for each colour."""
    shapes = (
        '<circle id="m0" r="3.4"/><rect id="m1" x="-3" y="-3" width="6" height="6"/>'
        '<path id="m2" d="M0-4 4 3H-4z"/>'
    )
    turned = 'patternTransform="rotate(45)"'
    inner: dict[str, tuple[str, str, str]] = {
        "cpu": ('width="6" height="6"', turned, '<rect width="2.2" height="6" {c}/>'),
        "waiting": ('width="6" height="6"', "", ""),
        "network": ('width="6" height="6"', "", '<rect width="1.6" height="6" {c}/>'),
        "timer": (f'width="6" height="{HEAD}"', "", '<rect y="16" width="6" height="2" {c}/>'),
        "disk": ('width="6" height="6"', "", '<circle cx="3" cy="3" r="1.4" {c}/>'),
        "throttled": (
            'width="6" height="6"',
            turned,
            '<rect width="2" height="6" {c}/><rect width="6" height="2" {c}/>',
        ),
        "interrupts": ('width="4" height="6"', "", '<rect width="3" height="6" {c}/>'),
        "unknown": ('width="6" height="6"', "", '<rect width="6" height="6" fill="var(--page)"/>'),
        "queued": (
            f'width="9" height="{HEAD}"',
            "",
            (
                '<rect width="9" height="44" fill="var(--page)"/>'
                '<rect y="16" width="5" height="2" {c}/>'
            ),
        ),
        "shared": (
            'width="4" height="4"',
            "",
            '<rect width="6" height="6" fill="var(--page)"/><circle cx="2" cy="2" r="1" {c}/>',
        ),
    }
    inner["led"] = ('width="9" height="44"', "", '<rect width="9" height="44" fill="var(--page)"/>')
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
