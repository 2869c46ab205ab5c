"""Parts 7 and 8 of the page: the slowest requests; recordings and statistics, folded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

from critpath.detect import RULES
from critpath.documents import (
    ClusterEntry,
    ComparisonDocument,
    DetectionEntry,
    HostEntry,
    LossSummary,
    SetEntry,
    StateEntry,
    Window,
)
from critpath.documents.known import MatchEntry
from critpath.report.html.elements import (
    column_head,
    items,
    names_of,
    paragraph,
    said,
    table,
    terms,
    text,
    time_of,
    titled,
    trace_link,
)
from critpath.report.palette import LOOKS
from critpath.text import clocks, verdict
from critpath.text.answer import listed_causes
from critpath.text.known import describe_answer
from critpath.text.page import decision, find_deciding_p, noun_of, recordings_line
from critpath.text.sentences import counts_of, machine_line, thread_of
from critpath.units import format_ns, format_share, plural, shorten

SHOWN: Final = 10
MOST_ROWS: Final = 500  # that a search finds
NAMES: Final = {"normal": "before", "sample": "after"}
_MOST_LOSSES: Final = 30
_MOST_VALUES: Final = 12
_MOST_STATES: Final = 70
_MOST_FINDINGS: Final = 60
_MOST_TYPES: Final = 60
_MOST_NAMES: Final = 6
_MOST_WAITS: Final = 20
_DECIMAL: Final = re.compile(r"-?\d{1,9}\.\d{1,12}")
_PAPER: Final = "Janecek, Ezzati-Jivan and Hamou-Lhadj, ICPC 2022"

# 7: the slowest requests.


def slowest_rows(document: ComparisonDocument) -> list[list[object]]:
    """Return requests of after, those first that lost most against their kind before.

    Each is its name, kind, thread, begin, duration, how much longer it took than the mean of
    its kind before, the numbers of its causes, what it touches and its trace.
    """
    means = {one.label: one.mean[0] for one in document.pictures.kinds} if document.pictures else {}
    causes: dict[int, list[int]] = {}
    for number, cause in listed_causes(document, len(document.causes)):
        for position in cause.positions:
            causes.setdefault(position, []).append(number)
    rows: list[list[object]] = []
    for one in document.executions:
        if one.set == "sample":
            took = one.end - one.begin
            usual = means.get(one.label)
            longer = took if usual is None else round(took - usual)
            rows.append(
                [
                    one.id,
                    one.label,
                    thread_of(one),
                    f"{one.begin / 1e9:.6f} s",
                    took,
                    longer,
                    causes.get(one.position, []),
                    "touches a loss" if one.lossy else "",
                    one.request.trace_id if one.request else "",
                ]
            )
    return sorted(rows, key=lambda row: (-int(row[5]), str(row[0])))  # type: ignore[call-overload]


def render_slowest(
    document: ComparisonDocument,
    rows: list[list[object]],
    *,
    folded: bool,
    causes: set[str],
    trace_url: str = "",
) -> str:
    """Return the ten that lost most, and what a script needs to search all of them.

    ``causes`` are the numbers of those that have a card to link to, ``trace_url`` is where a
    tracing UI shows traces.
    """
    if not rows:
        return ""
    noun = noun_of(document)
    most = max(1, *(int(row[5]) for row in rows))  # type: ignore[call-overload]
    short = names_of(document, "sample")
    labelled = any(row[1] for row in rows)
    kinds = "their kind" if labelled else "those"
    # What lost nothing is not among those that lost most; the search finds it.
    told = [row for row in rows[:SHOWN] if int(row[5]) > 0]  # type: ignore[call-overload]
    told = told if told and document.verdict == "anomaly" else rows[:SHOWN]
    shown = "".join(
        _slow_row(row, most, short, causes, trace_url, labelled=labelled) for row in told
    )
    heads = "".join(
        column_head(name, kind)
        for name, kind in (
            (noun_of(document, 1), ""),
            *([("kind", "")] if labelled else []),
            ("thread", "opt"),
            ("began at", "n opt"),
            ("took", "n"),
            ("against mean", "n"),
            ("", ""),
            ("cause", ""),
        )
    )
    count = len(told)
    title = f"Slowest {noun}"
    which = "that lost most" if document.verdict == "anomaly" else "slowest"
    line = f"The {count} {which} against the mean of {kinds} before."
    content = (
        '<div class="tools needjs"><input id="search" type="search" '
        f'placeholder="Search id, kind or cause 1" aria-label="Search {text(noun)}">'
        '<button class="btn" id="all" type="button">Show all</button>'
        '<span id="count" class="dim" role="status"></span></div>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="Table of {text(noun)}">'
        f'<table class="slowest"><thead><tr>{heads}</tr></thead>'
        f'<tbody id="rows">{shown}</tbody></table></div>'
    )
    if folded:
        return _fold("slowest", title, line, content)
    return (
        f'<section aria-labelledby="slowest"><h2 id="slowest">{text(title)}</h2>'
        f'<p class="sub">{text(line)}</p>{content}</section>'
    )


def _slow_row(
    row: list[object],
    most: int,
    short: dict[str, str],
    known: set[str],
    trace_url: str,
    *,
    labelled: bool,
) -> str:
    name, label, thread, begin, took, longer, causes, marks, trace = row
    links = ", ".join(
        f'<a href="#cause-{n}">{n}</a>' if str(n) in known else str(n)
        for n in causes  # type: ignore[attr-defined]
    )
    part = max(0.0, 100 * int(longer) / most)  # type: ignore[call-overload]
    kind = f"<td><code>{text(str(label))}</code></td>" if labelled else ""
    noted = f' <span class="dim">{text(str(marks))}</span>' if marks else ""
    return (
        f'<tr><th scope="row"><code>{titled(str(name), short)}</code>'
        f"{trace_link(trace_url, str(trace))}{noted}</th>"
        f"{kind}"
        f'<td class="opt"><code>{text(str(thread))}</code></td>'
        f'<td class="n opt">{text(str(begin))}</td>'
        f'<td class="n">{text(time_of(float(str(took))))}</td>'
        f'<td class="n">{text(time_of(float(str(longer)), sign=True))}</td>'
        f'<td class="longer"><i class="x" style="width:{part:.0f}%"></i></td>'
        f"<td>{links or '<span class=dim>-</span>'}</td></tr>"
    )


# 8: recordings.

# What should be the same in both sets, so that only the program can differ.
_ALIKE: Final = (
    ("found by", lambda s: [s.specification]),
    ("host", lambda s: s.hosts),
    ("recorded on", lambda s: s.machines),
    ("CPU", lambda s: s.processors),
    ("number of CPUs", lambda s: s.cpus),
    ("kernel", lambda s: s.kernels),
    ("recorder", lambda s: s.tracers),
    ("profile", lambda s: s.profiles),
)
# What may well differ, or always does.
_OWN: Final[tuple[tuple[str, Callable[[SetEntry], str]], ...]] = (
    ("recordings", lambda s: _names(s.sources)),
    ("recorded", lambda s: _names(_when(s))),
    ("command", lambda s: _names([shorten(c) for c in s.commands] or ["not known"])),
    ("counted", lambda s: f"{s.executions:,}"),
    ("without begin or end", lambda s: f"{s.incomplete:,}"),
    ("kernel events", lambda s: f"{s.events:,}"),
    ("first begin to last end", lambda s: _window(s.window)),
    ("machine", lambda s: machine_line(s) or "not measured"),
)
_LOST: Final[tuple[tuple[str, Callable[[SetEntry], int]], ...]] = (
    ("events lost", lambda s: s.loss.events),
    ("packets lost", lambda s: s.loss.packets),
    ("touched by loss", lambda s: s.lossy),
)


def render_recordings(document: ComparisonDocument) -> str:
    """Return the fold of what was compared: one line, and behind it all that is known."""
    both = [document.sets[which] for which in NAMES]
    commands = any(one.commands for one in both)
    own = [(name, say) for name, say in _OWN if commands or name != "command"]
    if not any(one.machine for one in both):
        own = own[:-1]
    rows = [[text(name), *(text(say(s)) for s in both)] for name, say in own]
    for name, known in _ALIKE:
        values = [known(s) for s in both]
        if any(values):
            first, second = (text(_names(v) or "not known") for v in values)
            same = values[0] == values[1]
            row = [text(name), first, "same" if same else second]
            rows.append(row if same else ["*", *row])
    for name, count in _LOST:
        counts = [count(s) for s in both]
        row = [text(name), *(f"{n:,}" for n in counts)]
        rows.append(["*", *row] if any(counts) else row)
    # The document's warnings have those of both sets already.
    warned = " ".join(document.warnings)
    notes = [
        f"{NAMES[which]}: {note}"
        for which, one in zip(NAMES, both, strict=True)
        for note in dict.fromkeys(one.warnings + one.notes)
        if note not in warned
    ]
    opened = any(one.loss.events or one.loss.packets for one in both)
    opened |= document.verdict == "inconclusive"
    return _fold(
        "recordings",
        "Recordings",
        recordings_line(document),
        items(document.warnings, kind="warnings")
        + table("What was compared", ["", *NAMES.values()], rows, kind="sets", heads=True)
        + "".join(_losses(NAMES[which], one.loss) for which, one in zip(NAMES, both, strict=True))
        + items(notes, kind="notes"),
        opened=opened,
    )


# What was seen before.


def render_seen(document: ComparisonDocument) -> str:
    """Return the panel of what a store knows, "" where none was asked."""
    known = document.known
    if known is None:
        return ""
    head, *rest = describe_answer(known, tables=True)
    rows = []
    for match in known.matches:
        link = ""
        if match.link.startswith("https:"):
            link = f' <a href="{text(match.link)}" rel="noreferrer">{text(match.link)}</a>'
        rows.append(
            [
                f"<code>{text(match.label)}</code>",
                text(match.part),
                text(f"{match.similarity:.2f}"),
                text(f"{match.sessions:,}"),
                text(match.recorded[:10]),
                text(match.note) + link,
            ]
        )
    heads = ["label", "by", ">similarity", ">sessions", "last", "note"]
    parts = table("Labels, the nearest first", heads, rows) if rows else ""
    if known.matches and known.matches[0].terms:
        first = known.matches[0]
        unit = "costs" if first.part == "causes" else "a second"
        shown = [
            [
                f"<code>{text(one.term)}</code>",
                *(text(_amount(first, x)) for x in (one.here, one.there)),
            ]
            for one in first.terms
        ]
        name = f"What makes it like {first.label}"
        parts += table(name, ["term", f">{unit} here", f">{unit} there"], shown)
    return (
        '<section id="seen" aria-labelledby="seen-title"><h2 id="seen-title">Seen before</h2>'
        f'<p class="sub">{text(head)}.</p>{parts}{"".join(said(line) for line in rest)}</section>'
    )


def _amount(match: MatchEntry, value: float) -> str:
    return time_of(value) if match.part == "causes" else f"{value:,.0f}"


# Of several hosts: who waited for whom, and how surely times between them are known.


def render_waits(document: ComparisonDocument) -> str:
    """Return the table of who waited for whom over hosts, "" where there is one."""
    if not document.waits:
        return ""
    rows = []
    for wait in document.waits[:_MOST_WAITS]:
        who, whom = clocks.name_waits(wait)
        before, after = wait.mean
        rows.append(
            [
                f"<code>{text(who)}</code>",
                f"<code>{text(whom)}</code>",
                *(text(f"{count:,}") for count in wait.requests),
                *(text(time_of(ns)) if ns else "0" for ns in (before, after)),
                text(time_of(after - before, sign=True)),
                text(_before_after(wait.transit)),
                text(_before_after(wait.queued)),
            ]
        )
    noun = noun_of(document)
    heads = ["who waited", "for whom", f">{noun} before", ">after", ">mean before", ">after"]
    heads += [">change", ">of it on its way", ">behind others"]
    beyond = verdict.left_out(len(document.waits) - _MOST_WAITS, "pair")
    about = clocks.ABOUT_WAITS.format(noun=noun)
    return (
        f'<section id="waits" aria-labelledby="waits-title"><h2 id="waits-title">{clocks.WAITS}'
        f'</h2><p class="sub">{text(about)}</p>{table(clocks.WAITS, heads, rows)}'
        f"{said(beyond)}</section>"
    )


def _before_after(both: list[int | float]) -> str:
    return " → ".join(time_of(ns) if ns else "0" for ns in both) if any(both) else "–"


def render_clocks(document: ComparisonDocument) -> str:
    """Return the fold of hosts' clocks, "" where there is one host."""
    sets = {which: document.sets[which].clocks for which in NAMES}
    lines = {which: clocks.clocks_line(known) for which, known in sets.items()}
    if not any(lines.values()):
        return ""
    rows = [
        [
            text(NAMES[which]),
            f"<code>{text(one.host)}</code>",
            text(_ahead(one)),
            text(f"{float(one.drift) * 1e6:+.2f} ppm" if _is_told(one) else ""),
            text(clocks.clock_sure(one)),
            text(clocks.clock_known(one)),
            text(clocks.clock_steps(one) if _is_told(one) else ""),
        ]
        for which, known in sets.items()
        for one in known
    ]
    heads = ["", "host", ">ahead by", ">drift", ">within", "known by", "steps"]
    unsure = any(one.source == "none" for known in sets.values() for one in known)
    return _fold(
        "clocks",
        "Clocks",
        lines["sample"] or lines["normal"],
        paragraph(clocks.ABOUT_CLOCKS) + table("Clocks of the hosts", heads, rows),
        opened=unsure,
    )


def _is_told(clock: HostEntry) -> bool:
    return clock.source not in {"reference", "none"} and _DECIMAL.fullmatch(clock.drift) is not None


def _ahead(clock: HostEntry) -> str:
    return f"{clock.ahead_ns / 1e9:+.9f} s" if _is_told(clock) else ""


def _fold(anchor: str, title: str, line: str, content: str, *, opened: bool = False) -> str:
    return (
        f'<details class="fold" id="{anchor}"{" open" if opened else ""}><summary>{text(title)} '
        f"<span>{text(line)}</span></summary>{content}</details>"
    )


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


def _losses(name: str, loss: LossSummary) -> str:
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
    beyond = max(0, len(loss.places) - _MOST_LOSSES) + loss.places_left_out
    headers = [">from", ">for", ">cpu", ">events", ">packets", "reason"]
    listed = table(f"Losses {name}", headers, rows)
    rest = said(f"{plural(beyond, 'loss place')} left out." if beyond else "")
    return f"<details><summary>Losses {name}</summary>{listed}{rest}</details>"


# 8: statistics.


def render_statistics(document: ComparisonDocument) -> str:
    """Return the fold of how it was decided: tests, states, types, differences, settings."""
    detection = document.detection
    p = find_deciding_p(document)
    line = f"{verdict.p_equals(p)}; " if p is not None else ""
    line += plural(detection.permutations, "permutation")
    facts = [
        *document.reasons,
        (
            f"Rule in force: {detection.rule}, level {verdict.figure(detection.alpha)}, "
            f"effect floor {verdict.duration(detection.floor)}."
        ),
        verdict.difference(document) or "",
        verdict.sensitivity(document) or "",
        f"{plural(document.outliers.anomalous, 'slow ' + noun_of(document, 1))}.",
        *_paper_facts(document),
        *detection.notes,
        *document.outliers.notes,
    ]
    return _fold(
        "statistics",
        "Statistics",
        line,
        paragraph(decision(document))
        + items([fact for fact in facts if fact], kind="notes")
        + _states(document)
        + _differences(document)
        + _types(document)
        + _settings(document),
    )


def _states(document: ComparisonDocument) -> str:
    if not document.states:
        return paragraph("No state was tested.")
    total = [s for s in document.states if s.state == "total"]
    rest = verdict.states_by_weight(document)
    words = {symbol.name: LOOKS[symbol.state].words for symbol in document.symbols}
    words["total"] = (
        "the part of the duration that decides" if document.detection.whole else "all of it"
    )
    levels = any(s.level != "error" for s in document.states)
    headers = [f"mean a {noun_of(document, 1)}", "what it is", ">before", ">after", ">change"]
    headers += [">95 % interval", ">p", "counts", *(["level"] if levels else []), ">times"]
    rows = []
    for state in [*total, *rest[:_MOST_STATES]]:
        cells = [
            f"<code>{text(state.state)}</code>",
            text(words.get(state.state, "")),
            text(verdict.duration(state.normal_mean)),
            text(verdict.duration(state.sample_mean)),
            text(verdict.duration(state.effect, sign=True) + _relative(state)),
            text(verdict.interval(state)),
            text(verdict.probability(state.p_value)),
            text(_flagged(document.detection, state)),
            *([text(state.level)] if levels else []),
            text(counts_of(state)),
        ]
        rows.append(["*", *cells] if state.flagged else cells)
    return (
        table("Time on the critical path by state, like types compared", headers, rows, heads=True)
        + said(verdict.left_out(len(rest) - _MOST_STATES, "state"))
        + said(_by_the_paper(document))
    )


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
    """Return the effect as a share of the mean before, where that is not next to nothing."""
    mean, effect = state.normal_mean, state.effect
    if not mean or effect is None or abs(effect) > 10 * mean or not round(effect / mean, 3):
        return ""
    return f" ({'+' if effect > 0 else ''}{format_share(effect / mean)})"


def _paper_facts(document: ComparisonDocument) -> list[str]:
    """Return what the paper's rules say as a whole, where they decide."""
    if document.detection.rule != "paper":
        return []
    marked = document.outliers.paper
    return [verdict.by_the_paper(document), f"The paper's rule marks {marked:,}."]


def _by_the_paper(document: ComparisonDocument) -> str:
    """Return for which states the rules of the paper fire, where they decide."""
    if document.detection.rule != "paper":
        return ""
    names = [
        f"{state.state} ({' and '.join(fired)})"
        for state in document.states
        if (fired := ["average"] * state.average_fires + ["probability"] * state.probability_fires)
    ]
    if not names:
        return ""
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    return f"By the paper's rules ({_PAPER}): {', '.join(names[:_MOST_NAMES])}{more}."


def _differences(document: ComparisonDocument) -> str:
    """Return what differs in the requests that were examined, the largest first."""
    if not document.aligned:
        return ""
    known = {one.position: one for one in document.aligned}
    found = [one for one in document.findings if one.position in known]
    found.sort(key=lambda one: (-abs(one.contribution or 0.0), one.position, one.rank))
    short = names_of(document, "sample")
    rows = [
        [
            titled(one.execution, short),
            f"<code>{text(one.state)}</code> {text(one.detail)}",
            text(verdict.kind_of(known[one.position], one)),
            text(verdict.duration(one.contribution, sign=True)),
            text(verdict.share(one.share)),
            text(verdict.duration(one.observed)),
            text(verdict.duration(one.expected)),
            text(thread_of(one)),
            text(verdict.share(one.probability)),
            text(f"{one.begin / 1e9:.6f} s"),
        ]
        for one in found[:_MOST_FINDINGS]
    ]
    headers = [noun_of(document, 1), "state", "how", ">difference", ">share", ">after"]
    headers += [">before", "thread", ">have it before", ">at"]
    count = f"{len(document.aligned):,} {noun_of(document, len(document.aligned))}"
    notes = dict.fromkeys(one.note for one in document.aligned if one.note)
    title = f"Step by step: what differs in the {count} that were examined"
    return (
        f"<details><summary>{text(title)}</summary>"
        + (table(title, headers, rows) if rows else paragraph("No difference stands out."))
        + said(verdict.left_out(len(found) - _MOST_FINDINGS, "difference"))
        + said(verdict.unexplained(document))
        + items(notes, kind="notes")
        + "</details>"
    )


_PAIR_NOTES: Final = {
    "weak": "weak: no candidate scored above zero",
    "novel": "novel: farther from its pair than the pair is wide",
}


def _types(document: ComparisonDocument) -> str:
    """Return which types are compared with which."""
    found = document.clusters
    size = {which: {c.cluster: c for c in found[which].clusters} for which in NAMES}
    rows = [
        [
            f"s{pair.sample}",
            *_type(size["sample"].get(pair.sample)),
            f"n{pair.normal}",
            *_type(size["normal"].get(pair.normal)),
            "-" if pair.score is None else f"{pair.score:.2f}",
            text("; ".join(words for key, words in _PAIR_NOTES.items() if getattr(pair, key))),
        ]
        for pair in found.pairs[:_MOST_TYPES]
    ]
    paired = {pair.normal for pair in found.pairs}
    alone = [c for c in found.normal.clusters if c.cluster not in paired]
    names = ", ".join(f"n{c.cluster} ({c.size:,})" for c in alone[:_MOST_TYPES])
    headers = ["type after", ">size", ">mean", "compared with", ">size", ">mean", ">score", ""]
    notes = [f"{NAMES[which]}: {note}" for which in NAMES for note in found[which].notes]
    title = f"Types: {plural(len(found.pairs), 'type')} compared with their like before"
    return (
        f"<details><summary>{text(title)}</summary>"
        + (table(title, headers, rows) if rows else paragraph("A set had nothing to group."))
        + said(verdict.left_out(len(found.pairs) - _MOST_TYPES, "pair"))
        + (paragraph(f"Only before: {names}.") if alone else "")
        + items([*notes, *found.notes], kind="notes")
        + terms(_TERMS)
        + "</details>"
    )


_TERMS: Final = (
    ("type", "runs that enter each state about equally often; the largest is 0."),
    ("score", "silhouette of the pair, -1 to 1: how much nearer it is than the next one."),
)


def _type(cluster: ClusterEntry | None) -> list[str]:
    if cluster is None:
        return ["-", "-"]
    return [f"{cluster.size:,}", text(verdict.duration(cluster.mean_duration))]


def _settings(document: ComparisonDocument) -> str:
    rows = [
        [f"<code>{text(name)}</code>", f"<code>{text(json.dumps(value, sort_keys=True))}</code>"]
        for name, value in sorted(document.settings.items())
    ]
    if not rows:
        return ""
    shown = table("Settings in force", ["setting", "value"], rows, heads=True)
    return f"<details><summary>Settings in force</summary>{shown}</details>"
