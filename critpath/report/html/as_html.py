"""A comparison as one HTML file that needs no network and trusts no name in it.

Everything essential is plain HTML and static SVG; the script only adds zooming.
The content security policy names the hashes of our own script and style, so that
nothing else could run even where escaping had failed.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from importlib.resources import files
from typing import Final

from critpath.detect.rules import RULES
from critpath.documents import (
    CauseEntry,
    ComparisonDocument,
    DetectionEntry,
    LossSummary,
    SetEntry,
    StateEntry,
    Window,
)
from critpath.report.html import page
from critpath.report.html.aligned import MOST_FINDINGS, drawn, group_findings, render_alignments
from critpath.report.html.clusters import describe_compared, render_clusters
from critpath.report.html.elements import (
    items,
    names_of,
    paragraph,
    prose,
    said,
    section,
    table,
    terms,
    text,
    titled,
)
from critpath.report.html.marks import define_patterns
from critpath.report.html.page_data import render_data
from critpath.report.palette import BLUE, LOOKS, VERMILLION
from critpath.text import verdict
from critpath.text.sentences import counts_of, machine_line, thread_of
from critpath.units import format_ns, format_share, plural, shorten

_SIGNS: Final = {"ok": "✓", "anomaly": "▲", "inconclusive": "?"}


def render_html(document: ComparisonDocument) -> str:
    """Render a comparison as a self-contained page.

    Parameters
    ----------
    document : dict
        From `comparison_document` or `load_document`.

    Returns
    -------
    str
        HTML; the same document gives the same bytes.
    """
    style, script = _asset("report.css") + page.style(), page.script()
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    headline = verdict.headline(document)
    made_by = f"critpath {document.version}, {document.format}"
    sections = _sections(document)
    body = _header(document, headline, [(anchor, title) for anchor, title, _ in sections])
    body += f"<main>{''.join(section(*one) for one in sections)}</main>"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>critpath: {text(headline)}</title>\n<style>{style}</style></head>\n"
        f"<body>{define_patterns()}{body}<footer>{paragraph(made_by)}</footer>\n"
        f"{render_data(document)}"
        f'<script type="module">{script}</script></body></html>\n'
    )


def _sections(document: ComparisonDocument) -> list[tuple[str, str, str]]:
    found = document.causes or document.aligned or document.outliers.anomalous
    title = "Anomalous executions against their normal group"
    return [
        *([("causes", "Causes", render_causes(document))] if found else []),
        ("sets", "The two sets", render_sets(document)),
        ("states", "States", render_states(document)),
        *([("aligned", title, render_alignments(document))] if document.aligned else []),
        ("clusters", "Types of executions", render_clusters(document)),
        ("executions", "Executions", render_executions(document)),
        ("method", "How this was decided", render_method(document)),
    ]


def _header(document: ComparisonDocument, headline: str, sections: list[tuple[str, str]]) -> str:
    word, _, sentence = headline.partition(": ")
    sets = document.sets
    figures = [
        (f"{sets.normal.executions:,}", "normal executions"),
        (f"{sets.sample.executions:,}", "sample executions"),
        (f"{document.outliers.anomalous:,}", "of them anomalous"),
    ]
    total = next((s for s in document.states if s.state == "total"), None)
    test = document.detection.whole or total  # the figure is of the duration
    if test and test.effect is not None:
        figures.append((verdict.duration(test.effect, sign=True), "mean change"))
        figures.append((verdict.probability(test.p_value), "p: how often chance alone does that"))
    if document.detection.detectable is not None:
        detectable = verdict.duration(document.detection.detectable, sign=True)
        figures.append((detectable, "smallest change that would have shown"))
    shown = "".join(f"<div><dt>{text(k)}</dt><dd>{text(v)}</dd></div>" for v, k in figures)
    links = "".join(f'<li><a href="#{anchor}">{text(title)}</a></li>' for anchor, title in sections)
    warnings = items((f"Warning: {w}" for w in _losses(document)), kind="warnings")
    if document.warnings:
        count = plural(len(document.warnings), "warning")
        warnings += f'<p><a href="#sets">{count} about the two sets</a></p>'
    reasons = verdict.further_reasons(document)
    sensitivity = verdict.sensitivity(document)
    # The first reason of a good verdict says so already.
    if sensitivity and document.verdict != "anomaly" and "would have shown" not in sentence:
        reasons.append(sensitivity)
    paragraphs = "".join(f"<p>{prose(reason)}</p>" for reason in reasons)
    return (
        f'<header class="{document.verdict}">'
        f'<h1><span class="verdict"><span aria-hidden="true">{_SIGNS[document.verdict]}</span> '
        f"{text(word)}</span> {prose(sentence)}</h1>{paragraphs}"
        f'<dl class="figures">{shown}</dl>{said(describe_compared(document))}{warnings}'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav></header>'
    )


def _losses(document: ComparisonDocument) -> list[str]:
    lost = []
    for which in ("normal", "sample"):
        loss = document.sets[which].loss
        if loss.events or loss.packets:
            lost.append(
                f"{which} set: {loss.events:,} events and {loss.packets:,} packets were lost."
            )
    return lost


def _asset(name: str) -> str:
    return files("critpath.report.html").joinpath(name).read_text(encoding="utf-8")


def _digest(source: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode("ascii")


MOST_CAUSES: Final = 40
_MOST_LINKS: Final = 8


def render_causes(document: ComparisonDocument) -> str:
    """Return the causes, the largest first, each with the executions it explains."""
    if not document.causes:
        return paragraph(_no_cause(document)) + said(verdict.unexplained(document))
    linkable = _anchors(document)
    main = verdict.main_causes(document, MOST_CAUSES)
    entries = "".join(_cause(document, cause, linkable) for cause in main)
    shown = f'<ol class="causes">{entries}</ol>'
    rest = [cause for cause in document.causes if cause not in main]
    if rest:
        entries = "".join(_cause(document, cause, linkable) for cause in rest[:MOST_CAUSES])
        shown += (
            f"<details><summary>{text(verdict.other_causes(document, len(main)))}</summary>"
            f'<ol class="causes" start="{len(main) + 1}">{entries}</ol>'
            f"{said(verdict.left_out(len(rest) - MOST_CAUSES, 'cause'))}</details>"
        )
    return shown + _account(document)


def _anchors(document: ComparisonDocument) -> dict[int, set[int]]:
    """Return the executions that have an article, each with the findings it lists."""
    findings = group_findings(document)
    return {
        one.position: {f.rank for f in findings.get(one.position, [])[:MOST_FINDINGS]}
        for one in drawn(document)
    }


def _no_cause(document: ComparisonDocument) -> str:
    examined, anomalous = len(document.aligned), document.outliers.anomalous
    if examined:
        return f"No cause: no difference stands out in {plural(examined, 'examined execution')}."
    if document.verdict == "inconclusive" and anomalous:
        stands = "execution stands" if anomalous == 1 else "executions stand"
        return f"{anomalous:,} {stands} out, but nothing can be concluded: none was examined."
    return f"No cause: {plural(anomalous, 'execution')} anomalous, none was examined."


def _cause(document: ComparisonDocument, cause: CauseEntry, linkable: dict[int, set[int]]) -> str:
    part = min(max(cause.share or 0.0, 0.0), 1.0)
    bar = (
        '<svg class="share" width="120" height="10" aria-hidden="true">'
        '<rect width="120" height="10" fill="currentColor" fill-opacity="0.15"/>'
        f'<rect width="{120 * part:.0f}" height="10" fill="{VERMILLION}"/></svg> '
    )
    mine = (document.findings[i] for i in cause.findings if i < len(document.findings))
    rank = {
        finding.position: finding.rank
        for finding in sorted(mine, key=lambda f: -f.rank)
        if finding.rank in linkable.get(finding.position, ())
    }
    short = names_of(document, "sample")
    links = [
        _link(position, titled(name, short), rank.get(position))
        if position in linkable
        else titled(name, short)
        for name, position in zip(cause.executions, cause.positions, strict=False)
    ]
    beyond = len(links) - _MOST_LINKS
    more = f" and {beyond:,} more" if beyond > 0 else ""
    facts = [f"executions {', '.join(links[:_MOST_LINKS])}{more}"]
    if of_excess := verdict.share_of_excess(cause.share):
        facts.insert(0, text(of_excess))
    elif (cause.contribution or 0.0) < 0:
        bar = ""
        facts.insert(0, "took less time: no part of the excess")
    details = f'<p class="facts">{bar}{"; ".join(facts)}</p>'
    return f"<li><p>{prose(cause.sentence)}</p>{details}</li>"


def _link(position: int, name: str, shown: int | None) -> str:
    """Return a link with a name (HTML) to a finding's row in an article, or to the article."""
    anchor = f"x{position}" if shown is None else f"x{position}f{shown}"
    return f'<a href="#{anchor}">{name}</a>'


def _account(document: ComparisonDocument) -> str:
    """Return what all causes add up to, in figures that add up as they are printed."""
    found = verdict.account(document, MOST_CAUSES)
    if found is None:
        return said(verdict.unexplained(document))
    whole, parts = found
    width = 2 if whole.share else 1  # what is no slow-down has no shares
    return table(
        "How the causes add up",
        ["", *[">time in all", ">of the excess"][:width]],
        [
            [text(part.words.removeprefix("that ")), *[text(part.shown), text(part.share)][:width]]
            for part in parts
        ],
        kind="sum",
        heads=True,
        foot=[
            [text(f"whole excess {whole.words}"), *[text(whole.shown), text(whole.share)][:width]]
        ],
    ) + said("The excess of an execution is its duration less the mean of its normal group.")


SETS: Final = ("normal", "sample")
_MOST_LOSSES: Final = 30
_MOST_VALUES: Final = 12

# What should be the same in both sets, so that only the program can differ.
_ALIKE: Final = (
    ("executions found by", lambda s: [s.specification]),
    ("host", lambda s: s.hosts),
    ("recorded on", lambda s: s.machines),
    ("processor", lambda s: s.processors),
    ("number of cpus", lambda s: s.cpus),
    ("kernel", lambda s: s.kernels),
    ("tracer", lambda s: s.tracers),
    ("recording profile", lambda s: s.profiles),
)

# What may well differ, or always does.
_OWN: Final[tuple[tuple[str, Callable[[SetEntry], str]], ...]] = (
    ("recordings", lambda s: _names(s.sources)),
    ("recorded", lambda s: _names(_when(s))),
    ("command", lambda s: _names([shorten(c) for c in s.commands] or ["not known"])),
    ("executions", lambda s: f"{s.executions:,}"),
    ("without begin or end", lambda s: f"{s.incomplete:,}"),
    ("events", lambda s: f"{s.events:,}"),
    ("first begin to last end", lambda s: _window(s.window)),
    ("machine", lambda s: machine_line(s) or "not measured"),
)

_LOST: Final[tuple[tuple[str, Callable[[SetEntry], int]], ...]] = (
    ("events lost", lambda s: s.loss.events),
    ("packets lost", lambda s: s.loss.packets),
    ("executions touched by loss", lambda s: s.lossy),
)


def render_sets(document: ComparisonDocument) -> str:
    """Return the warnings, what the two sets are, and what was lost in them."""
    both = [document.sets[which] for which in SETS]
    commands = any(one.commands for one in both)
    own = [(name, say) for name, say in _OWN if commands or name != "command"]
    if not any(one.machine for one in both):
        own = own[:-1]
    rows = [[text(name), *(text(say(s)) for s in both), ""] for name, say in own]
    for name, known in _ALIKE:
        values = [known(s) for s in both]
        if any(values) or name in {"host", "kernel", "tracer"}:
            shown = [text(_names(v) or "not known") for v in values]
            rows.append(_marked([text(name), *shown], _difference(values)))
    for name, count in _LOST:
        counts = [count(s) for s in both]
        rows.append(
            _marked([text(name), *(f"{n:,}" for n in counts)], "loss" if any(counts) else "")
        )
    warnings = items((f"Warning: {w}" for w in document.warnings), kind="warnings")
    # The document's warnings have those of both sets already.
    warned = " ".join(document.warnings)
    notes = [
        f"{which}: {note}"
        for which, one in zip(SETS, both, strict=True)
        for note in dict.fromkeys(one.warnings + one.notes)
        if note not in warned
    ]
    caption = "Where and how each set was recorded; the last column says what differs"
    return (
        (warnings or said("No warning about these sets."))
        + table(caption, ["", *SETS, "compared"], rows, kind="sets", heads=True)
        + "".join(_list_losses(which, one.loss) for which, one in zip(SETS, both, strict=True))
        + items(notes, kind="notes")
    )


def _marked(cells: list[str], word: str) -> list[str]:
    """Return a row that says how the sets compare, set off where that matters."""
    matters = word in {"differs", "loss"}
    return [*(["*"] if matters else []), *cells, f"<mark>{word}</mark>" if matters else word]


def _difference(values: list[list[str]]) -> str:
    if not all(values):
        return "not known"
    return "same" if values[0] == values[1] else "differs"


def _names(values: list[str]) -> str:
    beyond = len(values) - _MOST_VALUES
    return ", ".join(values[:_MOST_VALUES]) + (f" and {beyond:,} more" if beyond > 0 else "")


def _when(one: SetEntry) -> list[str]:
    known = sorted({moment for moment in one.recorded if moment})
    if not known:
        return ["not known"]
    shown = [moment.replace("T", " ").replace("Z", " UTC") for moment in known]
    return shown if len(shown) < 3 else [f"{shown[0]} to {shown[-1]}"]


def _window(window: Window | None) -> str:
    return "-" if window is None else format_ns(window.end - window.begin)


def _list_losses(which: str, loss: LossSummary) -> str:
    if not loss.places:
        return ""
    rows = [
        [
            text(f"{one.begin / 1e9:.6f} s"),
            text(format_ns(one.end - one.begin)),
            "-" if one.cpu < 0 else str(one.cpu),
            f"{one.events:,}",
            f"{one.packets:,}",
            text(one.reason),
        ]
        for one in loss.places[:_MOST_LOSSES]
    ]
    beyond = len(loss.places) - _MOST_LOSSES
    beyond = max(0, beyond) + loss.places_left_out
    headers = [">from", ">for", ">cpu", ">events", ">packets", "reason"]
    listed = table(f"Losses in the {which} set", headers, rows)
    rest = said(f"{plural(beyond, 'loss place')} left out." if beyond else "")
    return f"<details><summary>Losses in the {which} set</summary>{listed}{rest}</details>"


MOST_STATES: Final = 70
_MOST_NAMES: Final = 6
_PAPER: Final = "Janecek, Ezzati-Jivan and Hamou-Lhadj, ICPC 2022"
_HALF: Final = 60  # width of half an interval's drawing, px
_INSET: Final = 6

_STATE_TERMS: Final = (
    (
        "state",
        (
            "what the critical path was doing: the time of these states adds up to the duration. "
            "STATE@thread is time on another thread that the execution waited for."
        ),
    ),
    (
        "normal, sample",
        (
            "means per execution. The normal mean counts each type of normal executions as often "
            "as the sample set has its like, so it is not the plain mean of the normal set."
        ),
    ),
    (
        "times",
        (
            "how often an execution is in the state, on average: normally and in the sample. What "
            "interrupts a state does not divide it."
        ),
    ),
    ("effect", "sample mean less normal mean, per execution, of like types of executions."),
    (
        "95 % interval",
        (
            "the range that holds the true effect in 95 of 100 such comparisons (bootstrap). Where "
            "it spans 0, it is open whether the state became slower or faster."
        ),
    ),
    (
        "p",
        (
            "how often sets that do not differ would show a difference this large, adjusted for "
            "everything that is tested."
        ),
    ),
    (
        "flagged",
        (
            "by the rule in force: the gate wants p at or below its level and the effect above its "
            "floor. The verdict rests on these."
        ),
    ),
)

_LEVEL: Final = (
    "level",
    "what the settings make of a flagged state: an error fails the gate, a warning is only told.",
)


def render_states(document: ComparisonDocument) -> str:
    """Return the table of states, flagged ones first, with the interval of each effect."""
    if not document.states:
        return paragraph("No state was tested.")
    total = [s for s in document.states if s.state == "total"]
    rest = verdict.states_by_weight(document)
    shown = rest[:MOST_STATES]
    ends = [end for s in shown + total for end in (s.effect, s.effect_low, s.effect_high)]
    reach = max([abs(end or 0.0) for end in ends] + [1.0])
    words = {symbol.name: LOOKS[symbol.state].words for symbol in document.symbols}
    some = document.detection.whole
    words["total"] = "the part of the duration that decides" if some else "the whole duration"
    # Everything fails a build by itself where the settings say nothing else.
    levels = any(s.level != "error" for s in document.states)
    headers = ["state", "~the path is", ">normal", ">sample", ">effect", "flagged"]
    headers += [*(["level"] if levels else []), ">p", "~>95 % interval", "~drawn", "~>times"]

    def cells(state: StateEntry) -> list[str]:
        flagged = [text(_flagged(document.detection, state))]
        if levels:
            flagged.append(text(state.level))
        return _cells(state, words.get(state.state, ""), reach, flagged)

    scale = f"drawn from {format_ns(-reach)} to {format_ns(reach, sign=True)}"
    return (
        table(
            f"Time in each state, mean per execution of like types; intervals are {scale}",
            headers,
            [["*", *cells(s)] if s.flagged else cells(s) for s in shown],
            kind="states",
            heads=True,
            foot=[["*", *cells(s)] if s.flagged else cells(s) for s in total],
        )
        + paragraph("In a narrow window not every column is shown.", kind="narrow said")
        + said(verdict.left_out(len(rest) - MOST_STATES, "state"))
        + said(_count(document, rest, total))
        + said(_by_the_paper(document))
        + terms((*_STATE_TERMS, *([_LEVEL] if levels else [])))
    )


def _count(document: ComparisonDocument, rest: list[StateEntry], total: list[StateEntry]) -> str:
    flagged = [plural(count, "state")] if (count := sum(s.flagged for s in rest)) else []
    flagged += ["the total"] if any(s.flagged for s in total) else []
    detection = document.detection
    level = verdict.figure(detection.alpha)
    return (
        f"Flagged by the {detection.rule} rule at level {level}: "
        f"{' and '.join(flagged) or 'nothing'}, of {plural(len(rest), 'state')} and the total. "
        f"Increases below {verdict.duration(detection.floor)} are not judged."
    )


def _by_the_paper(document: ComparisonDocument) -> str:
    """Return for which states the rules of the paper fire, which decide nothing here."""
    names = [
        f"{state.state} ({' and '.join(fired)})"
        for state in document.states
        if (fired := ["average"] * state.average_fires + ["probability"] * state.probability_fires)
    ]
    if not names:
        return ""
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    rate = verdict.share(document.detection.paper_false_alarms)
    return (
        f"By the paper's rules ({_PAPER}) these would be flagged: "
        f"{', '.join(names[:_MOST_NAMES])}{more}. In {rate} of random splits of these executions "
        "those rules flag something."
    )


def _cells(state: StateEntry, words: str, reach: float, flagged: list[str]) -> list[str]:
    return [
        f"<code>{text(state.state)}</code>",
        f"<small>{text(words)}</small>",
        text(verdict.duration(state.normal_mean)),
        text(verdict.duration(state.sample_mean)),
        f"<span>{text(verdict.duration(state.effect, sign=True))}</span>{_relative(state)}",
        *flagged,
        text(verdict.probability(state.p_value)),
        text(verdict.interval(state)),
        _interval(state, reach),
        text(counts_of(state)),
    ]


def _flagged(detection: DetectionEntry, state: StateEntry) -> str:
    """Return what the rule in force says of a state, "" where there is nothing to say."""
    if state.flagged:
        return "yes, new" if state.new_state else "yes"
    alpha, floor = detection.alpha, detection.floor
    rule = RULES.get(detection.rule)
    if rule is None or not rule.permutation_test or alpha is None or floor is None:
        return ""
    if state.p_value is None or state.effect is None:
        return ""
    return "below the floor" if state.p_value <= alpha and 0 < state.effect < floor else ""


def _relative(state: StateEntry) -> str:
    """Return the effect as a share of the normal mean, where that is not next to nothing."""
    mean, effect = state.normal_mean, state.effect
    if not mean or effect is None or abs(effect) > 10 * mean or not round(effect / mean, 3):
        return ""
    share = f"({'+' if effect > 0 else ''}{format_share(effect / mean)})"
    return f" <span>{text(share)}</span>"


def _interval(state: StateEntry, reach: float) -> str:
    effect, low, high = state.effect, state.effect_low, state.effect_high
    if effect is None or low is None or high is None:
        return ""

    def x_of(ns: float) -> float:
        return _HALF + (_HALF - _INSET) * ns / reach

    colour, kind = (VERMILLION, "flagged") if state.flagged else (BLUE, "usual")
    return (
        f'<svg class="interval" viewBox="0 0 {2 * _HALF} 16" width="{2 * _HALF}" height="16" '
        'aria-hidden="true">'
        f'<path d="M{_HALF} 0v16" stroke="currentColor" stroke-opacity="0.5"/>'
        f'<path d="M0 8h{2 * _HALF}" stroke="currentColor" stroke-opacity="0.15"/>'
        f'<g class="{kind}" fill="{colour}" stroke="{colour}">'
        f'<path d="M{x_of(low):.1f} 8H{x_of(high):.1f}" stroke-width="2.5"/>'
        f'<circle cx="{x_of(effect):.1f}" cy="8" r="3.5"/></g></svg>'
    )


MOST_EXECUTIONS: Final = 500

_ORDER: Final = {"sample": 0, "normal": 1}
_MARKS: Final = {
    "anomalous": "anomalous",
    "paper": "marked by the paper's rule",
    "weak": "in no dense group: joined its nearest type",
    "lossy": "touches a loss",
}
_EXECUTION_TERMS: Final = (
    ("excess", "duration less the mean of the normal executions of its type."),
    ("p", "how often a normal execution of its type stands out as much as this one."),
    ("begins", "time on the trace's clock, to look it up in the trace with another tool."),
)


def render_executions(document: ComparisonDocument) -> str:
    """Return the table of executions, anomalous ones first, then the sample's."""
    linkable = {aligned.position for aligned in drawn(document)}
    # Of these the page's script makes links.
    beyond = {aligned.position for aligned in document.aligned} - linkable
    ranked = sorted(
        document.executions,
        key=lambda r: (
            not r.anomalous,
            _ORDER[r.set],
            -(r.excess or 0) if r.anomalous else 0,
            r.position,
        ),
    )
    if not ranked:
        return paragraph("Neither set has an execution.")
    shown = ranked[:MOST_EXECUTIONS]
    labels = any(row.label for row in document.executions)
    rows = []
    for row in shown:
        linked = row.set == "sample" and row.position in linkable
        name = f'<a href="#x{row.position}">{text(row.id)}</a>' if linked else text(row.id)
        if row.set == "sample" and row.position in beyond:
            name = f'<span data-position="{row.position}">{name}</span>'
        marks = [words for mark, words in _MARKS.items() if getattr(row, mark)]
        cells = [
            name,
            row.set,
            *([text(row.label)] if labels else []),
            text(thread_of(row)),
            f"{row.begin / 1e9:.6f} s",
            text(verdict.duration(row.end - row.begin)),
            text(verdict.duration(row.excess, sign=True)),
            text(verdict.probability(row.p_value)),
            "-" if row.cluster is None else f"{row.set[0]}{row.cluster}",
            text(", ".join(marks)),
        ]
        rows.append(["*", *cells] if row.anomalous else cells)
    headers = ["execution", "set", *(["label"] if labels else []), "thread", ">begins"]
    headers += [">duration", ">excess", ">p", "type", "marks"]
    caption = "Executions: anomalous ones first, then the sample's, then the normal ones"
    return (
        table(caption, headers, rows, kind="long", heads=True)
        + said(verdict.left_out(len(ranked) - len(shown), "execution"))
        + terms(_EXECUTION_TERMS)
    )


def render_method(document: ComparisonDocument) -> str:
    """Return how the verdict came about: the rule, its figures, every setting."""
    detection, outliers = document.detection, document.outliers
    facts = [
        (
            f"Rule in force: {detection.rule}, level {verdict.figure(detection.alpha)}, "
            f"effect floor {verdict.duration(detection.floor)}, "
            f"{plural(detection.permutations, 'permutation')}."
        ),
        verdict.difference(document) or "",
        verdict.sensitivity(document) or "",
        verdict.by_the_paper(document),
        (
            f"{plural(outliers.anomalous, 'execution')} anomalous; the paper's rule marks "
            f"{outliers.paper:,}."
        ),
        *detection.notes,
        *outliers.notes,
    ]
    rows = [
        [f"<code>{text(name)}</code>", f"<code>{text(json.dumps(value, sort_keys=True))}</code>"]
        for name, value in sorted(document.settings.items())
    ]
    listed = items([fact for fact in facts if fact], kind="notes")
    if not rows:
        return listed
    settings = table("Settings in force", ["setting", "value"], rows, heads=True)
    return f"{listed}<details><summary>Settings in force</summary>{settings}</details>"
