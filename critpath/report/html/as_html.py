"""A comparison as one HTML file that needs no network and trusts no name in it.

Everything is there without the script, which only adds search, zoom, copy and keys.  The
content security policy names the hashes of our own script and style, so that nothing else could
run even where escaping had failed.
"""

from __future__ import annotations

import html
import re
from pathlib import PurePath
from typing import Final

from critpath.documents import ComparisonDocument, KindEntry
from critpath.report.ci.as_markdown import render_markdown
from critpath.report.html.bars import render_bars
from critpath.report.html.cards import render_causes
from critpath.report.html.durations import render_durations, render_kinds, render_load
from critpath.report.html.elements import prose, text
from critpath.report.html.flame import render_flame
from critpath.report.html.folds import (
    MOST_ROWS,
    render_clocks,
    render_recordings,
    render_seen,
    render_slowest,
    render_statistics,
    render_waits,
    slowest_rows,
)
from critpath.report.html.page import assemble_page, read_asset, script_of
from critpath.schema.parameters.text import ANSWERS
from critpath.text import verdict
from critpath.text.answer import (
    describe_headline,
    describe_hints,
    describe_why,
    left_out,
    unusual_warnings,
)
from critpath.text.page import noun_of, small_print

STYLES: Final = ("page.css", "cards.css")
SCRIPTS: Final = ("base.js", "page.js", "flame.js")
_CHIPS: Final = {
    "slower": "▲ SLOWER",
    "machine": "▲ SLOWER, BY THE MACHINE",
    "faster": "▼ FASTER",
    "ok": "✓ OK",
    "inconclusive": "? INCONCLUSIVE",
}
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
# What a headline's change is: the one thing in it that has a colour.
_CHANGE: Final = re.compile(
    r"take [\d.,]+ times as long|[\d.,]+.% (?:slower|faster)|(?<=take )[\d.,]+\s\w+(?= instead)"
)
_PLACED: Final = re.compile(r'class="([^"]*)" style="([^"]*)"')


def render_html(
    document: ComparisonDocument,
    *,
    explore: str = "",
    framed: str = "",
    trace_url: str = "",
    line: str = "",
) -> str:
    """Render a comparison as a self-contained page.

    Parameters
    ----------
    document : dict
        From `comparison_document` or `load_document`.
    explore : str
        Where the page to explore its executions on is, from here; "" for none.
    framed : str
        That page itself, to be part of this one.
    trace_url : str
        Where a tracing UI shows a trace, with `critpath.units.TRACE_ID` for its id.
    line : str
        The line of the incident that it is about, which stands above the answer.

    Returns
    -------
    str
        HTML; the same document gives the same bytes.
    """
    answer = answer_of(document)
    rows = slowest_rows(document)
    folded = answer in {"ok", "inconclusive"}
    causes = render_causes(document, trace_url)
    cards = {*re.findall(r'id="cause-(\d+)"', causes)}
    slowest = render_slowest(document, rows, folded=folded, causes=cards, trace_url=trace_url)
    flame = "" if answer == "inconclusive" else render_flame(document)
    opened = "" if flame.startswith("<details") else flame
    body, rules = place_by_rules(
        f"{_top(document, explore, framed=bool(framed))}<main>"
        f"{_answer(document, answer, line)}{_first_screen(document)}"
        f"{causes}{render_seen(document)}{render_waits(document)}"
        f"{opened}{'' if folded else slowest}"
        f'<div class="folds">{"" if opened else flame}{slowest if folded else ""}'
        f"{render_recordings(document)}"
        f"{render_clocks(document)}"
        f"{render_statistics(document)}{_frame(framed, noun_of(document))}</div>"
        f"</main>{_foot(document, causes=bool(causes))}"
    )
    style = "".join(map(_asset, STYLES)) + rules
    data = {
        "rows": rows[:MOST_ROWS],
        "of": len(rows),
        "trace": trace_url,
        "markdown": render_markdown(document),
    }
    title = f"critpath: {_plain(verdict.headline(document))}"
    script = script_of(map(_asset, SCRIPTS))
    return assemble_page(title, style, body, script, data, kind=answer, framed=framed)


def answer_of(document: ComparisonDocument) -> str:
    """Return what a page answers: ``slower``, ``faster``, ``ok`` or ``inconclusive``."""
    return describe_headline(document).word.lower()


def place_by_rules(body: str) -> tuple[str, str]:
    """Return the page with a class for every ``style`` that follows a class, and their rules.

    The policy allows no style but that of the page's head. No text of a trace has a quote.
    """
    known: dict[str, str] = {}

    def rule(found: re.Match[str]) -> str:
        name = known.setdefault(found[2], f"p{len(known):x}")
        return f'class="{found[1]} {name}"'

    placed = _PLACED.sub(rule, body)
    return placed, "".join(f".{name}{{{where}}}\n" for where, name in known.items())


def _frame(page: str, noun: str) -> str:
    """Return the fold that has the page to explore on."""
    if not page:
        return ""
    inner = html.escape(page, quote=True)
    return (
        '<details class="fold" id="explore"><summary>'
        f"Explore these {noun}</summary>"
        f'<iframe class="explore" title="explore these {noun}" srcdoc="{inner}"></iframe>'
        "</details>"
    )


def _top(document: ComparisonDocument, explore: str, *, framed: bool) -> str:
    names = [_name(document.sets[which].sources) for which in ("normal", "sample")]
    date = _date(document)
    shown = f'<span class="date">{text(date)}</span>' if date else ""
    where = "#explore" if framed else html.escape(explore, quote=True)
    link = f'<a class="btn" href="{where}">Explore these {noun_of(document)}</a>' if where else ""
    return (
        f'<header class="top"><b>critpath</b><span class="sets"><code>{text(names[0])}</code> → '
        f'<code>{text(names[1])}</code></span>{shown}<span class="room"></span>{link}'
        '<button class="btn" id="copy" type="button">Copy summary</button>'
        '<button class="btn" id="theme" type="button">Light / dark</button></header>'
    )


def _name(sources: list[str]) -> str:
    """Return what a user calls a set: the last part of its recording's name."""
    if len(sources) != 1:
        return f"{len(sources)} recordings"
    return PurePath(sources[0]).name or sources[0]


def _date(document: ComparisonDocument) -> str:
    known = sorted(moment for moment in document.sets.sample.recorded if moment)
    found = re.match(r"(\d{4})-(\d\d)-(\d\d)T(\d\d:\d\d)", known[0]) if known else None
    if not found or not 1 <= int(found[2]) <= 12:
        return ""
    return f"{int(found[3])} {_MONTHS[int(found[2]) - 1]} {found[1]}, {found[4]} UTC"


def _answer(document: ComparisonDocument, answer: str, line: str) -> str:
    find = unusual_warnings if document.verdict == "inconclusive" else left_out
    warned = "".join(f'<p class="warn">⚠ {prose(one)}</p>' for one in find(document))
    small = " ".join([*small_print(document), *describe_hints(document)])
    why = f'<p class="why">{prose(describe_why(document))}</p>'
    headline = describe_headline(document)
    chip = "machine" if headline.by_machine else answer
    said = prose(headline.sentence)
    shown = _CHANGE.sub(lambda found: f'<b class="slow">{found[0]}</b>', said, count=1)
    return (
        f'<section class="answer" aria-label="The answer">{show_ratio(document)}'
        f"{f'<p class=small>{prose(line)}</p>' if line else ''}"
        f'<p class="chip {answer}">{_CHIPS[chip]}</p><h1>{shown}</h1>'
        f"{warned}{why}{f'<p class=small>{prose(small)}</p>' if small else ''}</section>"
    )


def show_ratio(document: ComparisonDocument) -> str:
    """Return what became of the durations in the headline, large; "" where it has none."""
    headline = describe_headline(document)
    before, after = headline.before or 0.0, headline.after or 0.0
    if before <= 0 or after <= 0 or (headline.word == "SLOWER") != (after > before):
        return ""
    if after >= ANSWERS.times * before:
        shown, words = f"{_digits(after / before)}\N{MULTIPLICATION SIGN}", "as long"
    elif headline.word == "SLOWER":
        shown, words = f"+{100 * (after / before - 1):.0f}\u202f%", "longer"
    else:
        shown, words = f"\u2212{100 * (1 - after / before):.0f}\u202f%", "less time"
    return f'<div class="ratio" aria-hidden="true"><b>{shown}</b><span>{words}</span></div>'


def _digits(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio < 9.95 else f"{ratio:,.0f}"


def _first_screen(document: ComparisonDocument) -> str:
    pictures = document.pictures
    if pictures is None or not pictures.kinds:
        return ""
    kind = _main(pictures.kinds)
    several = len(pictures.kinds) > 1 or not pictures.kinds[0].means
    table = render_kinds(document, pictures.kinds) if several else ""
    if several and document.verdict == "ok" and kind.change not in {"slower", "faster"}:
        # What was looked at, not one kind of many.
        return f'<div class="first">{table}{render_load(document)}</div>'
    bars = render_bars(document, pictures, kind) if document.verdict != "inconclusive" else ""
    distribution = render_durations(document, kind, alone=not several)
    load = render_load(document)
    wide = " wide" if any(None not in one.p95 for one in pictures.kinds) or not several else ""
    return (
        f'<div class="first">{bars}<div class="two{wide}">{distribution}{table}</div>{load}</div>'
    )


def _main(kinds: list[KindEntry]) -> KindEntry:
    """Return the kind that pictures show: what changed most, else the most frequent one."""
    if kinds[0].change in {"slower", "faster"}:
        return kinds[0]
    return max(kinds, key=lambda one: (min(one.executions), sum(one.executions)))


def _foot(document: ComparisonDocument, *, causes: bool) -> str:
    keys = "<kbd>/</kbd> search, <kbd>c</kbd> copy, <kbd>t</kbd> light or dark."
    if causes:
        keys = (
            "<kbd>1</kbd> to <kbd>9</kbd> cause, <kbd>j</kbd> <kbd>k</kbd> next and previous, "
            f"<kbd>f</kbd> flame graph, {keys}"
        )
    return (
        f"<footer>critpath {text(document.version)}, {text(document.format)}. "
        f'<span class="needjs">Keys: {keys}</span> The page is one file and needs no network; all '
        "but search, zoom and copy works without scripts.</footer>"
    )


def _plain(headline: str) -> str:
    return headline.replace("`", "")


def _asset(name: str) -> str:
    return read_asset("critpath.report.html", name)
