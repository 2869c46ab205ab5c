"""An exploration as one HTML file that needs no network and trusts no name in it.

The answer, the conditions and the slowest are there without the script, which draws all views
and counts anew after every selection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final

import numpy as np

from critpath import __version__
from critpath.model import I64, PathSet
from critpath.model.exploration import (
    Condition,
    Exploration,
    Fact,
    FactTable,
    Junction,
    Question,
    Test,
)
from critpath.report.explore.sketches import (
    DOINGS,
    FAR,
    SURE,
    Sketch,
    choose_sketched,
    colours_of,
    draw_sketches,
)
from critpath.report.explore.views import (
    AXES,
    DOING_WORDS,
    condition_rows,
    part_text,
    patterns,
    slowest_rows,
)
from critpath.report.html.elements import WORDS as DOING
from critpath.report.html.elements import legend_of, prose, shell_word, text
from critpath.report.html.page import assemble_page, numbers, read_asset, script_of
from critpath.text.exploring import (
    WORDS,
    condition_text,
    describe_clusters,
    describe_question,
    figure,
    phrases_of,
    say,
    small_print,
)
from critpath.units import in_plural, plural, shorten_names

MOST: Final = 20_000  # executions in a page
_ALIKE: Final = frozenset({"execution", "tid"})  # each is of one execution, or said by another
MOST_IDS: Final = 400_000  # letters of their names
_CHIPS: Final = {"found": "slower", "nothing": "ok", "few": "inconclusive"}
_KEYS: Final = (
    "<kbd>1</kbd> to <kbd>6</kbd> views, <kbd>j</kbd> <kbd>k</kbd> conditions, <kbd>Enter</kbd> "
    "only these, <kbd>Alt</kbd>+<kbd>Enter</kbd> all but these, <kbd>n</kbd> <kbd>p</kbd> "
    "sketches, <kbd>b</kbd> back, <kbd>c</kbd> copy, <kbd>t</kbd> light or dark, "
    "<kbd>Esc</kbd> start again."
)


def render_page(
    exploration: Exploration, paths: PathSet, *, command: Sequence[str], trace_url: str = ""
) -> str:
    """Render an exploration as a self-contained page.

    Parameters
    ----------
    exploration : Exploration
    paths : PathSet
        Of its executions.
    command : sequence of str
        Recordings, as they were named.
    trace_url : str
        Where a tracing UI shows a trace, with `critpath.units.TRACE_ID` for its id.

    Returns
    -------
    str
        HTML; the same exploration gives the same bytes.
    """
    table = exploration.facts
    question = _start(exploration)
    colours = colours_of(paths, table)
    rows = _sample_rows(table, question)
    kept = set(rows.tolist())
    chosen = [row for row in choose_sketched(table, question) if row in kept]
    sketches = {
        row: sketch
        for row, sketch in draw_sketches(paths, chosen, colours).items()
        if len(sketch.stretches)
    }
    said = _say_left_out(exploration, rows)
    call = _call(paths.specification, command)
    body = (
        f"{patterns(sorted({code % 7 for code in colours.values()}))}"
        f"{_top(command, said)}<main>{_trail(table, question)}{_answer(table, question)}"
        '<p id="live" class="vh" role="status"></p><div class="grid">'
        f"{_time(table, question, trace_url)}{_show_differences(table, question)}"
        f"{_sketches(table, sketches)}{_threads(table)}{_clusters(table)}</div>"
        f"<noscript><p>{text(say('no script'))}</p></noscript>"
        f"{_command(call, question)}{_notes(exploration, rows)}</main>{_foot()}"
    )
    data = page_data(table, question, rows, sketches)
    data.update(call=call, trace=trace_url)
    style = read_asset("critpath.report.html", "page.css") + read_asset(
        "critpath.report.explore", "explore.css"
    )
    script = script_of(
        [
            read_asset("critpath.report.html", "base.js"),
            read_asset("critpath.report.explore", "explore.js"),
        ]
    )
    return assemble_page(f"critpath explore: {_name(command)}", style, body, script, data)


def _start(exploration: Exploration) -> Question:
    """Return the question that a page begins with: of what nobody asks for, if that is known."""
    table = exploration.facts
    for question in exploration.questions:
        if not (table.parent[question.within] >= 0).any():
            return question
    return exploration.questions[0]


def _sample_rows(table: FactTable, question: Question) -> I64:
    """Return the page's executions in order of begin: all, or every n-th by label and latency."""
    del question
    rows = np.arange(len(table))
    if len(rows) > MOST:
        order = np.lexsort((table.end - table.begin, table.label))
        rows = np.sort(order[np.linspace(0, len(order) - 1, MOST).round().astype(np.int64)])
    order = np.lexsort((rows, table.begin[rows], table.recording[rows]))
    return np.asarray(rows[order], np.int64)


def _say_left_out(exploration: Exploration, rows: I64) -> str:
    table = exploration.facts
    labels = len(table.labels)
    kinds = (
        "" if labels < 2 else f" of {labels} {'services' if 'service' in table.facts else 'labels'}"
    )
    some = "" if len(rows) == len(table) else f", {len(rows):,} of them here"
    return f"{plural(len(table), table.noun)}{kinds}{some}"


def _name(command: Sequence[str]) -> str:
    return ", ".join(PurePath(one).name or one for one in command)


def _top(command: Sequence[str], said: str) -> str:
    return (
        f'<header class="top"><b>critpath</b><code class="sets">{text(_name(command))}</code>'
        f'<span class="date">{text(said)}</span><span class="room"></span>'
        '<button class="btn" id="copy" type="button">Copy command</button>'
        '<button class="btn" id="theme" type="button">Light / dark</button></header>'
    )


def _trail(table: FactTable, question: Question) -> str:
    steps = [(say("all", noun=in_plural(table.noun)), len(table))]
    steps += [
        (describe_condition(condition, step.condition, table.facts), step.executions)
        for condition, step in zip(question.steps, question.given, strict=True)
    ]
    items = "".join(
        f'<li><button class="tr" type="button" data-k="{k}">{prose(label)} '
        f"<b>{n:,}</b></button></li>"
        for k, (label, n) in enumerate(steps)
    )
    return (
        '<nav id="view-6" tabindex="-1" aria-label="Steps so far"><ol class="trail" id="trail">'
        f'{items}<li><span class="tr sel">{prose(what_text(table, question))} '
        f"<b>{question.selected:,}</b></span></li></ol></nav>"
    )


def what_text(table: FactTable, question: Question) -> str:
    """Say what is selected: a quantile by the time that it is."""
    if question.bound is not None:
        bound = Test("latency", ">=", (question.bound, "ns"))
        return condition_text([bound], table.facts)
    return describe_condition(question.asked, question.what, table.facts)


def describe_condition(condition: Condition | None, source: str, facts: Mapping[str, Fact]) -> str:
    """Say a condition as a list does if it is as simple as those, else as it was written."""
    if (
        isinstance(condition, Test)
        and (isinstance(condition.value, str) or isinstance(condition.value[0], float))
        and condition.operator in {"==", ">="}
        and (condition.operator == "==") == (_is_each(facts[condition.field]))
    ):
        return condition_text([condition], facts)
    return source


def _is_each(fact: Fact) -> bool:
    return fact.each or fact.kind == "text"


def _answer(table: FactTable, question: Question) -> str:
    chip, headline, why = describe_question(question, table)
    return (
        f'<section class="answer" aria-label="The answer">{_ratio(question)}'
        f'<p class="chip {_CHIPS[question.answer]}" id="chip">{text(chip)}</p>'
        f'<h1 id="h">{prose(headline)}</h1><p class="why" id="why">{prose(why)}</p></section>'
    )


def _ratio(question: Question) -> str:
    best = question.best if question.answer == "found" else None
    shown, words = "", ""
    if best is not None and best.z > 0:
        ratio, low = best.ratio, best.ratio_interval[0]
        never = not best.without.count
        shown = f"≥{figure(max(1.0, low))}×" if never else f"{figure(ratio)}×"
        words = say("as often")
    hidden = "" if shown else " hidden"
    return (
        f'<div class="ratio" id="ratio" aria-hidden="true"{hidden}><b>{text(shown)}</b>'
        f"<span>{text(words)}</span></div>"
    )


def _head(title: str, said: str, more: str = "", count: str = "") -> str:
    named = f' id="{count}"' if count else ""
    return (
        f'<div class="ph"><h2>{title}</h2><span{named}>{said}</span>'
        f'<span class="room"></span>{more}</div>'
    )


def _time(table: FactTable, question: Question, trace_url: str) -> str:
    options = "".join(
        f'<option value="{name}">{words}</option>'
        for name, words in AXES.items()
        if name in table.facts
    )
    more = (
        '<button class="btn" id="back" type="button" disabled>Back</button>'
        f'<select id="y" class="needjs" aria-label="Vertical axis">{options}</select>'
    )
    said = f"{question.selected:,} of {question.executions:,} selected"
    head = _head("Time", said, more, "n1")
    return (
        f'<section class="panel" id="view-1" tabindex="-1">{head}'
        '<svg class="plot drawn" id="v1" tabindex="0" role="img" aria-label="Latency of each '
        f'{table.noun} over its begin; arrow keys move the lower bound of the selection"></svg>'
        '<svg class="axs drawn" id="a1" height="18" aria-hidden="true"></svg>'
        '<p class="hint needjs">Drag: select. Shift adds, Alt removes. Click: its sketch. '
        "↑ ↓: move the bound.</p>"
        '<details class="pn"><summary>As a table: the ten slowest selected</summary>'
        '<table class="t1"><thead><tr><td></td><th scope=col class=n>begun</th>'
        f'<th scope=col class=n>latency</th></tr></thead><tbody id="t1">'
        f"{slowest_rows(table, question, trace_url)}</tbody></table></details></section>"
    )


def _show_differences(table: FactTable, question: Question) -> str:
    rows, shown = condition_rows(question, table)
    left_out, note = small_print(question)
    more = len(question.found) - shown
    parts = [*([say("more", k=more)] if more > 0 else []), left_out]
    part = "part" if question.bound is not None else "part.other"
    head = _head("What is different", "share selected with it and without")
    return (
        f'<section class="panel" id="view-4" tabindex="-1">{head}'
        '<div class="prog needjs" role="progressbar" aria-label="Judging chance" hidden></div>'
        '<table class="t4"><thead><tr><th scope=col>the more for</th><th scope=col colspan=2>'
        "with, without</th><th scope=col class=n>times</th><th scope=col class=n>p</th></tr>"
        "</thead>"
        f'<tbody id="t4">{rows}</tbody></table>'
        f'<p class="pn"><span id="none">{text(" · ".join(filter(None, parts)))}</span> '
        '<button class="lk needjs" id="more" type="button" hidden>Show all</button></p>'
        f'<p class="pn" id="pnote">{text(note)}</p>'
        f'<details class="pn"><summary id="part-head">{text(say(part))}</summary>'
        f'<span id="part">{prose(part_text(question))}</span></details></section>'
    )


def _sketches(table: FactTable, sketches: Mapping[int, Sketch]) -> str:
    used = {DOINGS[stretch[1]] for one in sketches.values() for stretch in one.stretches}
    used |= {*DOINGS[:3]}
    drawn: list[tuple[str, str]] = [*legend_of([one for one in DOING if one in used])]
    drawn += [("led", DOING_WORDS["led"])] if "led" in used else []
    legend = "".join(
        f'<span><svg aria-hidden="true"><rect y="11" width="24" height="12" class="sg" '
        f'fill="{"var(--w0)" if kind == "running" else f"url(#{kind}0)"}" stroke="var(--w0)" '
        'transform="translate(0 -11)"/>'
        "</svg>"
        f"{words}</span>"
        for kind, words in drawn
    )
    own = (
        '<span><svg aria-hidden="true"><rect class="own" y="4" width="24" height="4"/></svg>'
        "true latency: its own time</span>"
    )
    bracket = (
        '<span><svg aria-hidden="true"><path class="ask" d="M1 4v4h22v-4"/></svg>'
        "a sub-request</span>"
    )
    arrow = (
        '<span><svg aria-hidden="true"><line class="ln" x1="4" x2="4" y2="11" '
        f'marker-end="url(#arrow)"/></svg>{text(say("link"))}</span>'
    )
    unsure = {
        fact.words[code]
        for name in ("boundary", "attribution")
        if (fact := table.facts.get(name)) is not None
        for code in np.unique(fact.values[list(sketches)].astype(np.int64)).tolist()
    }
    doubt = (
        '<span><svg aria-hidden="true"><rect width="24" height="12" fill="url(#doubt)"/></svg>'
        f"{text(say('doubtful'))}</span>"
    )
    links = [link for one in sketches.values() for link in one.links]
    band = (
        '<span><svg aria-hidden="true"><rect class="band" x="4" width="16" height="12"/>'
        '<line class="ln far" x1="12" x2="12" y2="11" marker-end="url(#arrow)"/></svg>'
        f"{text(say('band'))}</span>"
    )
    dashed = (
        '<span><svg aria-hidden="true"><line class="ln dashed" x1="4" x2="4" y2="11" '
        f'marker-end="url(#arrow)"/></svg>{text(say("dashed"))}</span>'
    )
    legend += arrow * bool(links) + band * any(len(link) == FAR for link in links)
    legend += dashed * any(link[3:4] < [SURE] for link in links if len(link) > 3)
    legend += doubt * ("doubtful" in unsure)
    legend += (own if "true" in table.facts else "") + bracket * bool((table.parent >= 0).any())
    more = (
        '<button class="btn" id="pv" type="button">Previous</button>'
        '<button class="btn" id="nx" type="button">Next</button>'
    )
    said = f"one typical {table.noun} of the selection above one of the others, same scale"
    return (
        '<section class="panel full drawn" id="view-5" tabindex="-1">'
        f'{_head("Sketch", said, more)}<div id="v5"></div><div class="leg2">{legend}</div>'
        "</section>"
    )


def _threads(table: FactTable) -> str:
    said = f"every {table.noun} by its thread; line: median"
    return (
        f'<section class="panel drawn" id="view-2" tabindex="-1">{_head("By process", said)}'
        f'<svg class="plot p2" id="v2" role="img" aria-label="Latency by thread"></svg>'
        f'<svg class="axs ax2" id="a2" height="38" aria-hidden="true"></svg>'
        '<details class="pn"><summary>As a table</summary><table><thead><tr><td></td>'
        "<th scope=col class=n>n</th><th scope=col class=n>median</th><th scope=col class=n>90 %"
        f'</th><th scope=col class=n>selected</th></tr></thead><tbody id="t2"></tbody>'
        "</table></details></section>"
    )


def _clusters(table: FactTable) -> str:
    heads = "".join(
        f'<th scope=col class="{kind}"><button class="so" type="button" data-o="{key}">{name}'
        "</button></th>"
        for key, name, kind in (
            ("c", "cluster", ""),
            ("n", "n", "n"),
            ("med", "median", "n"),
            ("tr", "true", "n opt"),
            ("w", "CPU wait ± sd", "n"),
        )
        if key != "tr" or "true" in table.facts
    )
    return (
        f'<section class="panel drawn" id="view-3" tabindex="-1">'
        f"{_head('Clusters', 'by what happened on the way')}"
        '<svg class="plot reach" id="v3" role="img" aria-label="Reachability: each in the '
        'order in which OPTICS visits them; a valley is a cluster"></svg>'
        f'<table class="t3"><thead><tr>{heads}<th scope=col class=n colspan=2>'
        '<button class="so" type="button" data-o="sh">selected</button></th></tr></thead>'
        f'<tbody id="t3"></tbody></table></section>'
    )


def _call(specification: str, command: Sequence[str]) -> str:
    named = f" --execution {shell_word(specification)}" if specification else ""
    return f"critpath explore {' '.join(map(shell_word, command))}{named}"


def _command(call: str, question: Question) -> str:
    lines = [call, *(f"  --given {shell_word(one.condition)}" for one in question.given)]
    lines.append(f"  --what {shell_word(question.what)}")
    shown = " \\\n".join(lines)
    return (
        '<h2>The same on the command line</h2><div class="cmd"><pre id="cmd">'
        f"{shown_lines(shown)}</pre>"
        '<button class="btn" id="copy2" type="button">Copy</button></div>'
    )


def shown_lines(lines: str) -> str:
    """Return lines of ours as HTML, each made safe by itself."""
    return "\n".join(text(line) for line in lines.split("\n"))


def _notes(exploration: Exploration, rows: I64) -> str:
    notes = list(exploration.notes)
    if len(rows) < len(exploration.facts):
        notes.append(
            f"The page has {len(rows):,} of {len(exploration.facts):,}: every so many by label and "
            "latency; the answer it opens with is of all."
        )
    return "".join(f'<p class="small">{prose(note)}</p>' for note in notes)


def _foot() -> str:
    return (
        f'<footer>{text(say("foot"))} <span class="needjs">Keys: {_KEYS}</span> '
        f"critpath {text(__version__)}. The page is one file and needs no network; what "
        "was asked is answered without scripts, too.</footer>"
    )


# Data for the script: columns instead of rows, numbers in as few bytes as they fit in.


# What views show, whether conditions on it are looked at or not.
_ALWAYS: Final = (
    *("cluster.place", "cluster.reach", "set", "trace_id", "boundary", "attribution"),
)


def page_data(
    table: FactTable, question: Question, rows: I64, sketches: Mapping[int, Sketch]
) -> dict[str, Any]:
    """Return what the script counts with, by the places of ``rows``."""
    place = np.full(len(table) + 1, -1, np.int64)
    place[rows] = np.arange(len(rows))
    letters = sum(len(table.id[row]) for row in rows.tolist())
    begin = table.facts["begin"].values[rows]
    wanted = {*AXES, *_ALWAYS}.union(*map(_fields, (*question.steps, question.asked)))
    return {
        "noun": table.noun,
        "nouns": in_plural(table.noun),
        "n": len(rows),
        "of": len(table),
        "label": numbers(table.label[rows]),
        "labels": list(table.labels),
        "short": shorten_names(table.labels, 24),
        "recording": numbers(table.recording[rows]),
        "parent": numbers(place[table.parent[rows]] + 1),
        "begin": numbers(np.diff(begin, prepend=0.0)),
        "ids": [table.id[row] for row in rows.tolist()] if letters <= MOST_IDS else None,
        "facts": [
            _fact_data(fact, rows, place)
            for name, fact in table.facts.items()
            if name != "begin" and (name in wanted or (fact.asked and name not in _ALIKE))
        ],
        "types": {str(number): words for number, words in describe_clusters(table).items()},
        "axes": {name: words for name, words in AXES.items() if name in table.facts},
        "words": WORDS,
        "doings": list(DOINGS),
        "doing": DOING_WORDS,
        "start": {
            "g": [
                {
                    "c": _tree(step),
                    "s": one.condition,
                    "l": describe_condition(step, one.condition, table.facts),
                }
                for step, one in zip(question.steps, question.given, strict=True)
            ],
            "w": {
                "c": _tree(question.asked),
                "s": question.what,
                "l": what_text(table, question),
            },
        },
        "sketches": {
            str(int(place[row])): [one.lanes, one.stretches, one.left_out, one.links]
            for row, one in sketches.items()
        },
    }


def _fields(condition: Condition | None) -> set[str]:
    """Return what a condition is about: the page has to know it."""
    if isinstance(condition, Junction):
        return set().union(*map(_fields, condition.parts))
    return set() if condition is None else {condition.field}


def _tree(condition: Condition | None) -> Any:
    if isinstance(condition, Junction):
        return {"k": condition.kind, "l": [_tree(part) for part in condition.parts]}
    assert condition is not None  # noqa: S101 - every question has one
    return {"f": condition.field, "o": condition.operator, "v": _value(condition.value)}


def _value(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if value and value[0] == "p":
        return {"p": value[1]}
    if value and isinstance(value[0], float):
        return value[0]
    return [_value(one) for one in value]


def _fact_data(fact: Fact, rows: I64, place: I64) -> dict[str, Any]:
    listed, headline = phrases_of(fact)
    data: dict[str, Any] = {
        "name": fact.name,
        "kind": fact.kind,
        "each": bool(fact.each),
        "known": bool(fact.known),
        "asked": bool(fact.asked),
        "family": fact.family,
        "subject": fact.subject,
        "list": listed,
        "head": headline,
    }
    if fact.rows is not None:
        whose = place[fact.rows]
        values = fact.values[whose >= 0]
        data["rows"] = numbers(whose[whose >= 0])
    else:
        values = fact.values[rows]
        if fact.valid is not None and not fact.valid[rows].all():
            data["valid"] = numbers(fact.valid[rows])
            values = np.where(fact.valid[rows], values, 0)
    if fact.kind == "text":
        used = np.unique(values)
        data["words"] = [fact.words[code] for code in used.tolist()]
        values = np.searchsorted(used, values)
    data["values"] = numbers(values)
    return data
