"""The section of the HTML report with the time in every state of both sets."""

from __future__ import annotations

from typing import Final

from critpath.detect.rules import RULES
from critpath.documents import ComparisonDocument, DetectionEntry, StateEntry
from critpath.report.html.elements import paragraph, said, table, terms, text
from critpath.report.palette import BLUE, LOOKS, VERMILLION
from critpath.text import verdict
from critpath.units import format_ns, format_share, plural

MOST_STATES: Final = 70
_MOST_NAMES: Final = 6
_PAPER: Final = "Janecek, Ezzati-Jivan and Hamou-Lhadj, ICPC 2022"
_HALF: Final = 60  # width of half an interval's drawing, px
_INSET: Final = 6

_TERMS: Final = (
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


def states(document: ComparisonDocument) -> str:
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
    headers += [*(["level"] if levels else []), ">p", "~>95 % interval", "~drawn"]

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
        + terms((*_TERMS, *([_LEVEL] if levels else [])))
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
