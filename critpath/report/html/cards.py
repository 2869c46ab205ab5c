"""Part 5 of the page: why, a card per cause.

A card draws the paths that its sentence is about: a typical request, others to choose from, the
median request before, and the multiple alignment step by step.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from critpath.documents import (
    SLOWER,
    AlignedEntry,
    CauseEntry,
    CauseFacts,
    ComparisonDocument,
    Doing,
    DrawnPath,
    ExecutionEntry,
    KindEntry,
    Pictures,
    RivalShare,
)
from critpath.report.document.pictures import doing_of, find_thread
from critpath.report.html.elements import (
    WORDS,
    prose,
    shell_word,
    table,
    text,
    time_of,
    titled,
    trace_link,
    who,
)
from critpath.report.html.elements import names_of as short_names_of
from critpath.report.html.lanes import (
    Scale,
    common_scale,
    draw_axis,
    draw_lanes,
    draw_strip,
    lanes_of,
    length_of,
    scale_of,
)
from critpath.report.html.steps import render_steps
from critpath.text import verdict
from critpath.text.answer import is_decided
from critpath.text.explanation import (
    describe_cause,
    describe_effect,
    describe_origins,
    describe_other_causes,
    describe_probability,
    explained,
    find_share,
)
from critpath.text.page import noun_of

# What is bold of "+9.38 ms each".
_FIGURE: Final = re.compile(r"\S+\s\S+")
_SMALL: Final = 0.03  # of the slowdown: smaller causes are one line
_MOST_CARDS: Final = 8
_MOST_SMALL: Final = 6  # sentences of smaller ones
_EXAMPLES: Final = (12, 6)  # of short paths, and of such that have more steps than
_LONG: Final = 60
_STEPS: Final = 1_500  # drawn on a page: beyond, a card shows its typical request alone
_NAMED: Final = 12  # requests in the table of facts
_COUNTED: Final = {
    "trips": "goes to it",
    "waits": "waits so",
    "iterations": "runs the loop",
    "segments": "is in it",
}
_CERTAINTY: Final = {
    "observed": "observed: the events of the recording show it",
    "inferred": "inferred: from an idle CPU or a quota",
    "unknown": "not known: no event of the recording says why",
}


@dataclass
class _Page:
    """What all cards of a page share."""

    document: ComparisonDocument
    pictures: Pictures
    saved: bool
    trace_url: str = ""
    budget: int = _STEPS
    paths: dict[tuple[str, int], DrawnPath] = field(init=False)
    rows: dict[int, ExecutionEntry] = field(init=False)
    aligned: dict[int, AlignedEntry] = field(init=False)
    kinds: dict[str, KindEntry] = field(init=False)
    names: dict[str, dict[str, str]] = field(init=False)

    def __post_init__(self) -> None:
        self.paths = {(one.set, one.position): one for one in self.pictures.paths}
        self.rows = {one.position: one for one in self.document.executions if one.set == "sample"}
        self.aligned = {one.position: one for one in self.document.aligned}
        self.kinds = {one.label: one for one in self.pictures.kinds}
        self.names = {s: short_names_of(self.document, s) for s in ("normal", "sample")}

    def noun(self, count: int = 2) -> str:
        """Return what an execution is called."""
        return noun_of(self.document, count)


def render_causes(document: ComparisonDocument, trace_url: str = "") -> str:
    """Return the section of causes, its title with it; "" where there is nothing to explain."""
    pictures = document.pictures
    if pictures is None or not document.causes:
        return ""
    saved = document.verdict == "ok" and any(k.change == "faster" for k in pictures.kinds[:1])
    undecided = document.verdict == "inconclusive" and document.detection.flagged
    if document.verdict not in SLOWER and not saved and not undecided:
        return ""
    page = _Page(document, pictures, saved, trace_url)
    way = -1 if saved else 1
    numbered = list(enumerate(verdict.main_causes(document, len(document.causes)), 1))
    told = [(n, c) for n, c in numbered if way * (c.contribution or 0.0) > 0]
    large = [(n, c) for n, c in told if saved or (c.share or 0.0) >= _SMALL][:_MOST_CARDS]
    large = large or told[:1]
    small = [one for one in told if one not in large]
    other = [(n, c) for n, c in numbered if way * (c.contribution or 0.0) < 0]
    cards = "".join(
        _card(page, number, cause, first=not place) for place, (number, cause) in enumerate(large)
    )
    title = "What was saved" if saved else "What differs (not decided)" if undecided else "Why"
    return (
        f'<section id="causes" aria-labelledby="causes-title"><h2 id="causes-title">{title}</h2>'
        f'<p class="sub">{prose(_account(page))}</p>{cards}{_smaller(page, small)}'
        f"{_other_way(page, other)}</section>"
    )


def _account(page: _Page) -> str:
    said = explained(page.document, page.document.causes)
    return (
        f"{said} A cause is a difference, not a culprit: it tells which thread to look at next."
    ).strip()


def _sentence(page: _Page, cause: CauseEntry) -> str:
    decided = is_decided(page.document)
    return f"{describe_cause(page.document, cause)}{'' if decided else ' (not decided)'}"


def _effect(cause: CauseEntry) -> tuple[str, str]:
    """Return what a cause comes to, as HTML, and its share in words."""
    amount, _, share = describe_effect(cause).partition(", ")
    figure = _FIGURE.match(amount)
    end = figure.end() if figure else 0
    colour = "fast" if (cause.contribution or 0.0) < 0 else "slow"
    shown = text(amount[:end].replace("-", "\u2212"))
    return f'<b class="{colour}">{shown}</b>{text(amount[end:])}', share


def _smaller(page: _Page, small: list[tuple[int, CauseEntry]]) -> str:
    """Return the line of what is not worth a card."""
    said = [
        f'<span id="cause-{number}">{prose(_sentence(page, cause))} ({_effect(cause)[0]})</span>'
        for number, cause in small[:_MOST_SMALL]
    ]
    rest = [cause for _, cause in small[_MOST_SMALL:]]
    rest += [cause for cause in page.document.causes if cause.minor]
    beyond = text(describe_other_causes(page.document, rest).replace("-", "\u2212")).removeprefix(
        "and "
    )
    said += [beyond] if beyond else []
    if not small:
        return f'<p class="sub">Besides: {beyond}.</p>' if beyond else ""
    return f'<p class="sub">Smaller differences: {"; ".join(said)}.</p>'


def _other_way(page: _Page, other: list[tuple[int, CauseEntry]]) -> str:
    """Return the card of what went the other way."""
    if not other:
        return ""
    lines = "".join(
        f'<li id="cause-{number}">{prose(_sentence(page, cause))}: {_effect(cause)[0]}</li>'
        for number, cause in other[:_MOST_SMALL]
    )
    beyond = len(other) - _MOST_SMALL
    more = f"<li>{beyond:,} more</li>" if beyond > 0 else ""
    title, sign, kind = (
        ("Slower steps", "▲", "") if page.saved else ("Faster steps", "▼", " faster")
    )
    return (
        f'<article class="card{kind} other"><div class="head"><span class="num" aria-hidden="true">'
        f"{sign}</span><h3>{title}</h3></div><ul>{lines}{more}</ul></article>"
    )


def _card(page: _Page, number: int, cause: CauseEntry, *, first: bool) -> str:
    part = min(max(find_share(cause), 0.0), 1.0)
    effect, share = _effect(cause)
    meter = (
        f'<span class="meter" aria-hidden="true"><i class="x" style="width:{100 * part:.0f}%"></i>'
        f"</span>explains {text(share)}"
        if share
        else ""
    )
    head = (
        f'<div class="head"><span class="num" aria-hidden="true">{number}</span>'
        f'<h3>{prose(_sentence(page, cause))}</h3><p class="fig">{effect}{meter}</p></div>'
    )
    link = f'<p class="small"><a href="#cause-{number}">Link to cause {number}</a></p>'
    body = _examples(page, number, cause, first=first) + _facts(page, number, cause) + link
    if first:
        return f'<article class="card" id="cause-{number}">{head}{body}</article>'
    return f'<details class="card" id="cause-{number}"><summary>{head}</summary>{body}</details>'


# The requests of a cause: one of them in lanes, the others to choose from.


def _examples(page: _Page, number: int, cause: CauseEntry, *, first: bool) -> str:
    chosen = _choose(page, cause)
    if not chosen:
        return ""
    typical = chosen[0]
    hot = _hot(page, cause)
    usual = _usual(page, typical)
    scale = common_scale(typical, [*chosen, *([usual] if usual else [])])
    lanes = lanes_of(page.pictures, [*([usual] if usual else []), *chosen], scale)
    drawn = [f'<fieldset class="ex"><legend>A {text(page.noun(1))} to show</legend>']
    alone = "" if len(chosen) > 1 else " hidden"  # nothing to choose
    for place, path in enumerate(chosen):
        words = f"{_name(page, path)}, {time_of(length_of(path))}"
        checked = "" if place else " checked"
        drawn.append(
            f'<input type="radio" name="c{number}" id="c{number}e{place}"{checked}{alone} '
            f'aria-label="{text(words)}">'
        )
    if usual:
        drawn.append(_lane(page, usual, lanes, Scale(scale), hot, ("before", "the median")))
    panels = []
    for place, path in enumerate(chosen):
        fit = scale_of(path, scale)
        note = "" if place else "the typical one" if len(chosen) > 1 else ""
        if fit.times > 1:
            note = f"drawn at 1/{fit.times} of the scale"
        shown = _lane(page, path, lanes, fit, hot, ("after", note))
        panels.append(f"<div>{shown}</div>")
    drawn.append(f'<div class="panels">{"".join(panels)}</div>{draw_axis(Scale(scale))}')
    if len(chosen) > 1:
        of = len(cause.positions)
        many = f"All {of:,}" if of == len(chosen) else f"{len(chosen)} of {of:,}"
        strips = "".join(
            f'<label for="c{number}e{place}">'
            f"{draw_strip(page.pictures, path, scale_of(path, scale), hot)}"
            f"<span>{titled(_id(page, path), page.names['sample'])} · "
            f"{text(time_of(length_of(path)))}</span></label>"
            for place, path in enumerate(chosen)
        )
        drawn.append(
            f'<p class="lead">{many} {text(page.noun())} with this cause. Choose one to see it '
            f'above.</p><div class="mult">{strips}</div>'
        )
    drawn.append("</fieldset>")
    shown = "".join(drawn) + _steps(page, number, typical, hot, first=first)
    return shown + _whole(page, [*([usual] if usual else []), typical])


def _whole(page: _Page, paths: Sequence[DrawnPath]) -> str:
    """Return what shows all threads around requests: the page has only what was on their paths."""
    commands = []
    for path in paths:
        row, of = _row(page, path), getattr(page.document.sets, path.set)
        if row is None or row.source >= len(of.sources):
            return ""
        words = ("critpath", "view", of.sources[row.source], "--around", row.id)
        asked = ("--execution", of.specification) if of.specification else ()
        out = ("-o", f"{'before' if path.set == 'normal' else 'after'}.html")
        commands.append(text(" ".join(map(shell_word, (*words, *asked, *out)))))
    shown = "\n".join(commands)
    return (
        '<details class="more"><summary>What all other threads did meanwhile, and who had the CPUs'
        '</summary><p class="lead">Where the recording is, these write a page each:</p>'
        f'<pre class="calls">{shown}</pre></details>'
    )


def _choose(page: _Page, cause: CauseEntry) -> list[DrawnPath]:
    """Return the requests of a cause that are drawn: the typical one, then the largest."""
    moved: dict[int, float] = dict.fromkeys(cause.positions, 0.0)
    for at in cause.findings:
        if at < len(page.document.findings):
            one = page.document.findings[at]
            moved[one.position] = moved.get(one.position, 0.0) + (one.contribution or 0.0)
    known = [p for p in moved if ("sample", p) in page.paths and p in page.rows]
    if not known:
        return []
    way = -1 if page.saved else 1
    ranked = sorted(known, key=lambda p: (-way * moved[p], p))
    # Better one of a kind that has a median before to hold it against.
    fit = [p for p in ranked if _median_of(page, p) >= 0] or ranked
    typical = fit[len(fit) // 2] if len(fit) % 2 else fit[len(fit) // 2 - 1]
    order = [typical, *(p for p in ranked if p != typical)]
    paths = [page.paths["sample", p] for p in order]
    most = _EXAMPLES[len(paths[0].steps) > _LONG]
    chosen: list[DrawnPath] = []
    for path in paths[:most]:
        if chosen and page.budget < len(path.steps):
            break
        page.budget -= len(path.steps)
        chosen.append(path)
    return chosen


def _median_of(page: _Page, position: int) -> int:
    """Return the place of the median request before of a request's kind, -1 for none."""
    kind = page.kinds.get(page.rows[position].label)
    return kind.medians[0] if kind else -1


def _usual(page: _Page, path: DrawnPath) -> DrawnPath | None:
    """Return the path of that request."""
    return page.paths.get(("normal", _median_of(page, path.position)))


def _hot(page: _Page, cause: CauseEntry) -> set[tuple[int, int]]:
    """Return what a cause is about: all that is waited for a thread, or one state of the own."""
    facts = cause.facts
    if facts is None or (cause.contribution or 0.0) < 0:
        return set()
    doings = page.pictures.doings
    thread = find_thread(page.pictures, facts.role)
    if facts.role:
        return {(thread, doing) for doing in range(len(doings))}
    name = doing_of(facts.state)
    same: tuple[Doing, ...] = ("cpu", "throttled") if name == "cpu" else (name,)
    return {(thread, doings.index(one)) for one in same if one in doings}


def _lane(
    page: _Page,
    path: DrawnPath,
    lanes: dict[int, int],
    scale: Scale,
    hot: set[tuple[int, int]],
    words: tuple[str, str],
) -> str:
    when, note = words
    name = titled(_id(page, path), page.names[path.set])
    time = Counter[tuple[int, int]]()
    for _, length, thread, doing in path.steps:
        time[thread, doing] += length
    main = "; ".join(
        f"{who(page.pictures.threads[thread])} {WORDS[page.pictures.doings[doing]]} {time_of(ns)}"
        for (thread, doing), ns in time.most_common(3)
    )
    spoken = f"{when}: {_name(page, path)}, {time_of(length_of(path))}; above all {main}"
    about = hot if path.set == "sample" else set()
    drawn = draw_lanes(page.pictures, path, lanes, scale, about, spoken)
    note = f", {note}" if note else ""
    noun = page.noun(1)
    request = row.request if (row := _row(page, path)) else None
    link = trace_link(page.trace_url, request.trace_id if request else "")
    return f'<p class="lead"><b>{when}</b> {text(noun)} {name}{link}{text(note)}</p>{drawn}'


def _row(page: _Page, path: DrawnPath) -> ExecutionEntry | None:
    rows = page.document.executions
    at = path.position + (path.set == "sample") * page.document.sets.normal.executions
    if at < len(rows) and (rows[at].set, rows[at].position) == (path.set, path.position):
        return rows[at]
    return next((r for r in rows if (r.set, r.position) == (path.set, path.position)), None)


def _id(page: _Page, path: DrawnPath) -> str:
    row = _row(page, path)
    return row.id if row else str(path.position)


def _name(page: _Page, path: DrawnPath) -> str:
    name = _id(page, path)
    return f"{page.noun(1)} {page.names[path.set].get(name, name)}"


def _rival(one: RivalShare) -> str:
    return f"<code>{text(one.name)}</code> {100 * one.share:.0f} %"


def _steps(
    page: _Page, number: int, typical: DrawnPath, hot: set[tuple[int, int]], *, first: bool
) -> str:
    aligned = page.aligned.get(typical.position)
    if aligned is None or len(aligned.rows) < 2:
        return ""
    doings = page.pictures.doings
    about = {(thread, doings[doing]) for thread, doing in hot}
    title = f"Cause {number} step by step"
    shown = render_steps(page.document, page.pictures, aligned, about, page.noun(1), title)
    summary = f"Step by step: {text(_name(page, typical))}, aligned with what is usual"
    opened = " open" if first else ""
    return f'<details class="more"{opened}><summary>{summary}</summary>{shown}</details>'


# Facts as a table.


def _facts(page: _Page, number: int, cause: CauseEntry) -> str:
    facts = cause.facts
    if facts is None:
        return ""
    rows = [[text(what), text(before), text(after)] for what, before, after in _pairs(page, facts)]
    rows += [[text(what), "", value] for what, value in _values(page, cause, facts) if value]
    caption = f"What the sentence of cause {number} says, each fact by itself"
    shown = table(caption, ["", ">before", f"after, these {page.noun()}"], rows, heads=True)
    shown = f'<details class="more facts"><summary>Facts</summary>{shown}</details>'
    return _in_the_code(number, facts) + shown


def _in_the_code(number: int, facts: CauseFacts) -> str:
    """Return where in the code the time of a cause is, as a table; "" without stacks."""
    rows = [
        [f"<code>{text(one.location)}</code>", f"{round(100 * one.share)} %"]
        for one in facts.locations
    ]
    thread = facts.comm if facts.role else "its own thread"
    others = {"waited for in": facts.waits_at, "the wait was ended in": facts.waker_location}
    rows += [[f"{what} <code>{text(at)}</code>", ""] for what, at in others.items() if at]
    if not rows:
        return ""
    caption = f"Where in the code the time of cause {number} is: {text(thread)}"
    shown = table(caption, ["function (file:line)", ">share of the time"], rows)
    return f'<details class="more facts" open><summary>In the code</summary>{shown}</details>'


def _pairs(page: _Page, facts: CauseFacts) -> list[tuple[str, str, str]]:
    """Return what has a value before and one after."""

    def times(ns: float | None) -> str:
        return "–" if ns is None else time_of(ns)

    def counts(count: float | None) -> str:
        return "–" if count is None else f"{count:.3g}"

    what, threads = WORDS[doing_of(facts.state)], page.pictures.threads
    if facts.role and threads:  # documents of before pictures have none
        what = f"time of {who(threads[find_thread(page.pictures, facts.role)])} on the path"
    return [
        (f"mean time: {what}", times(facts.time_before), times(facts.time_after)),
        (
            f"how often a {page.noun(1)} {_COUNTED.get(facts.counted, 'does so')}",
            counts(facts.count_before),
            counts(facts.count_after),
        ),
    ]


def _values(page: _Page, cause: CauseEntry, facts: CauseFacts) -> list[tuple[str, str]]:
    """Return what has one value, as HTML."""
    short = page.names["sample"]
    names = [f"<code>{titled(name, short)}</code>" for name in cause.executions[:_NAMED]]
    beyond = len(cause.executions) - len(names)
    names += [f"{beyond:,} more"] if beyond > 0 else []
    labels = Counter(page.rows[p].label for p in cause.positions if p in page.rows)
    kinds = ", ".join(f"<code>{text(k)}</code> {n:,}" for k, n in labels.most_common(_NAMED) if k)

    sure = [_CERTAINTY.get(facts.certainty, ""), describe_probability(cause)]

    def code(name: str) -> str:
        return f"<code>{text(name)}</code>" if name else ""

    tids = f" (tid {', '.join(map(str, facts.tids[:_NAMED]))})" if facts.tids else ""
    return [
        (page.noun(), f"{len(cause.executions):,}: {', '.join(names)}"),
        ("of these by kind", kinds),
        ("the time was spent by", code(facts.comm) + tids if facts.comm else ""),
        ("the other thread to look at", code(facts.peer)),
        ("device", code(facts.device)),
        ("limited", f"{code(facts.control_group)} {text(facts.limit)}".strip()),
        ("in system call", code(facts.call)),
        ("because of", text(describe_origins(cause))),
        ("through", ", ".join(code(name) for name in facts.through)),
        ("who had the CPU more", ", ".join(map(_rival, facts.rivals))),
        ("how sure", text("; ".join(filter(None, sure)))),
    ]
