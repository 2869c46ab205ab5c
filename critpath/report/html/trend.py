"""The answers of commits as one HTML file: `critpath trend --html`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from critpath.report.html.as_html import place_by_rules
from critpath.report.html.elements import figure, prose, section, table, text
from critpath.report.html.page import assemble_page, read_asset, script_of
from critpath.text import trend as words

if TYPE_CHECKING:
    from critpath.documents.trend import TrendDocument, TrendSeries

_HEIGHT: Final = 220  # px of a picture
_MOST_KINDS: Final = 12  # pictures; the table has all
_CHIPS: Final = {"slower": ("▲ ", "slower"), "faster": ("▼ ", "ok"), "no_change": ("✓ ", "ok")}


def render_trend_page(document: TrendDocument) -> str:
    """Return the page; the same document gives the same bytes."""
    pictures = [_picture(document, one) for one in document.series[:_MOST_KINDS]]
    body, rules = place_by_rules(
        f"{_top(document)}<main>{_answer(document)}"
        f"{section('levels', 'Time of each commit', _legend(document) + ''.join(pictures))}"
        f"{section('commits', 'Commits', _table(document))}</main>"
        f"<footer>critpath {text(document.version)}, {text(document.format)}. The page is one file "
        "and needs no network; all but copying and light or dark works without scripts.</footer>"
    )
    style = "".join(read_asset("critpath.report.html", f"{name}.css") for name in ("page", "trend"))
    first, *others = document.lines
    return assemble_page(
        "critpath trend",
        style + rules,
        body,
        script_of(read_asset("critpath.report.html", name) for name in ("base.js", "page.js")),
        {"markdown": "\n".join([f"**{first}**", "", *(f"- {o}" for o in others)]), "rows": []},
    )


def _top(document: TrendDocument) -> str:
    names = [commit.name for commit in document.commits]
    return (
        f'<header class="top"><b>critpath</b><span class="sets">{text(names[0])} → '
        f'{text(names[-1])}</span><span class="room"></span>'
        '<button class="btn" id="copy" type="button">Copy summary</button>'
        '<button class="btn" id="theme" type="button">Light / dark</button></header>'
    )


def _answer(document: TrendDocument) -> str:
    mark, kind = _CHIPS.get(document.verdict, ("? ", "inconclusive"))
    first, *others = document.lines
    headline = first.partition(": ")
    named = headline[0].partition(" SINCE ")
    title = f"{'Slower' if document.verdict == 'slower' else 'Faster'} since {named[2]}: "
    shown = f"{title if named[2] else ''}{headline[2]}"
    lines = "".join(f'<p class="small">{prose(one)}</p>' for one in others)
    return (
        '<section class="answer" aria-label="The answer">'
        f'<p class="chip {kind}">{text(mark + words.name_verdict(document))}</p>'
        f"<h1>{prose(shown[:1].upper() + shown[1:])}</h1>{lines}</section>"
    )


def _picture(document: TrendDocument, series: TrendSeries) -> str:
    """Return one kind's levels: a dot and its limits for each commit, a line for each level."""
    known = [level for level in series.levels if level]
    if not known:
        return ""
    # Limits may be far out: the picture has the levels, and as much again.
    low, high = min(*known, 1.0), max(*known, 1.0)
    room = max(high / low, 1.02)
    low, high = low / math.sqrt(room), high * math.sqrt(room)
    count = len(document.commits)

    def y(level: float) -> float:
        inside = min(max(level, low), high)
        return round(100 * (1 - math.log(inside / low) / math.log(high / low)), 2)

    def x(at: float) -> float:
        return round(100 * (at + 0.5) / count, 2)

    parts = [f'<line class="base" x1="0" x2="100" y1="{y(1.0)}" y2="{y(1.0)}"/>']
    ends = [0, *(change.at for change in series.changes), count]
    levels = [change.before for change in series.changes[:1]]
    levels += [change.after for change in series.changes]
    for begin, end, typical in zip(ends, ends[1:], levels, strict=False):
        x1, x2, at_y = x(begin - 0.5), x(end - 0.5), y(typical)
        parts.append(f'<line class="level" x1="{x1}" x2="{x2}" y1="{at_y}" y2="{at_y}"/>')
    for change in series.changes:
        kind = "worse" if change.after > change.before else "better"
        at = x(change.at - 0.5)
        parts.append(f'<line class="change {kind}" x1="{at}" x2="{at}" y1="0" y2="100"/>')
    dots = []
    for at, (level, limits) in enumerate(zip(series.levels, series.intervals, strict=True)):
        if level is None:
            continue
        if limits[0] is not None and limits[1] is not None:
            upright = f'x1="{x(at)}" x2="{x(at)}" y1="{y(limits[1])}" y2="{y(limits[0])}"'
            parts.append(f'<line class="limits" {upright}/>')
        code = document.commits[at].exit
        state = {0: "pass", 1: "fail"}.get(code, "open")
        dots.append(f'<i class="dot {state}" style="left:{x(at)}%;top:{y(level)}%"></i>')
    scale = "".join(
        f'<span class="tick" style="top:{y(level)}%">{text(words.describe_level(level))}</span>'
        for level in sorted({round(min(known), 4), 1.0, round(max(known), 4)})
        if level == 1.0 or abs(y(level) - y(1.0)) > 9
    )
    name = f"Time of {series.kind or 'all'}, commit by commit"
    drawing = (
        f'<div class="plot" role="img" aria-label="{text(name)}; the table below has the figures">'
        f'<div class="scale">{scale}</div><div class="field"><svg viewBox="0 0 100 100" '
        f'preserveAspectRatio="none" aria-hidden="true">{"".join(parts)}</svg>{"".join(dots)}</div>'
        "</div>"
    )
    return figure(drawing, series.kind or "All")


def _legend(document: TrendDocument) -> str:
    about = "Over that of the first base. Bars: what it is at least and at most."
    if any(one.changes for one in document.series):
        about += " Upright lines: here it changes."
    return f'<p class="small">{text(about)}</p>'


def _table(document: TrendDocument) -> str:
    changes = {(one.kind, change.at): change for one in document.series for change in one.changes}
    rows = []
    for at, commit in enumerate(document.commits):
        cells = []
        for one in document.series:
            low, high = one.intervals[at]
            limits = ""
            if low is not None and high is not None:
                ends = (words.describe_level(end) for end in (low, high))
                limits = f'<span class="dim minor"> ({text(" to ".join(ends))})</span>'
            change = changes.get((one.kind, at))
            mark = "" if change is None else "▲ " if change.after > change.before else "▼ "
            cells.append(f"{mark}{text(words.describe_level(one.levels[at]))}{limits}")
        answer = f'<span class="exit{commit.exit}">{text(words.describe_commit(commit))}</span>'
        rows.append(
            [
                f"<code>{text(commit.name)}</code>",
                text(words.describe_time(commit.when)),
                answer,
                *cells,
            ]
        )
    heads = ["commit", "~when", "answer", *(f">{one.kind or 'time'}" for one in document.series)]
    newest = rows[::-1]
    return table("Commits, the newest first", heads, newest, kind="commits", heads=True)
