"""The section of the HTML report with the time in every state of both sets."""

from __future__ import annotations

from typing import Any, Final

from critpath.report import verdict
from critpath.report.html.elements import paragraph, said, table, terms, text
from critpath.report.palette import BLUE, LOOKS, VERMILLION
from critpath.units import format_ns, format_share, plural

MOST_STATES: Final = 70
_HALF: Final = 80  # width of half an interval's drawing, px
_INSET: Final = 6

_TERMS: Final = (
    (
        "state",
        (
            "what the critical path was doing: the time of these states adds up to the duration. "
            "STATE@thread is time on another thread that the execution waited for."
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


def states(document: dict[str, Any]) -> str:
    """Return the table of states, flagged ones first, with the interval of each effect."""
    if not document["states"]:
        return paragraph("No state was tested.")
    total = [s for s in document["states"] if s["state"] == "total"]
    rest = verdict.states_by_weight(document)
    shown = rest[:MOST_STATES]
    ends = ("effect", "effect_low", "effect_high")
    reach = max([abs(s[key] or 0.0) for s in shown + total for key in ends] + [1.0])
    words = {symbol["name"]: LOOKS[symbol["state"]].words for symbol in document["symbols"]}
    some = document["detection"].get("whole")
    words["total"] = "the part of the duration that decides" if some else "the whole duration"
    # Everything fails a build by itself where the settings say nothing else.
    levels = any(s.get("level", "error") not in {"error", None} for s in document["states"])
    fires = any(s["average_fires"] or s["probability_fires"] for s in document["states"])
    headers = ["state", "the path is", ">normal", ">sample", ">effect", "95 % interval, drawn"]
    headers += [">in figures", ">p", *(["the paper's rules"] if fires else [])]
    headers += [*(["level"] if levels else []), "verdict"]

    def cells(state: dict[str, Any]) -> list[str]:
        told = words.get(state["state"], "")
        shown_cells = _cells(state, told, reach, levels=levels, fires=fires)
        return [*shown_cells, text(_verdict(document["detection"], state))]

    scale = f"drawn from {format_ns(-reach)} to {format_ns(reach, sign=True)}"
    return (
        table(
            f"Time in each state, mean per execution; intervals are {scale}",
            headers,
            [["*", *cells(s)] if s["flagged"] else cells(s) for s in shown],
            kind="states",
            heads=True,
            foot=[["*", *cells(s)] if s["flagged"] else cells(s) for s in total],
        )
        + said(verdict.left_out(len(rest) - MOST_STATES, "state"))
        + said(_count(document, rest, total))
        + terms((*_TERMS, *([_LEVEL] if levels else [])))
    )


def _count(
    document: dict[str, Any], rest: list[dict[str, Any]], total: list[dict[str, Any]]
) -> str:
    flagged = [plural(count, "state")] if (count := sum(s["flagged"] for s in rest)) else []
    flagged += ["the total"] if any(s["flagged"] for s in total) else []
    detection = document["detection"]
    level = verdict.figure(detection["alpha"])
    return (
        f"Flagged by the {detection['rule']} rule at level {level}: "
        f"{' and '.join(flagged) or 'nothing'}, of {plural(len(rest), 'state')} and the total. "
        f"Increases below {verdict.duration(detection['floor'])} are not judged."
    )


def _cells(
    state: dict[str, Any], words: str, reach: float, *, levels: bool, fires: bool
) -> list[str]:
    rules = [
        word
        for word, key in (("average", "average_fires"), ("probability", "probability_fires"))
        if state[key]
    ]
    cells = [
        f"<code>{text(state['state'])}</code>",
        f"<small>{text(words)}</small>",
        text(verdict.duration(state["normal_mean"])),
        text(verdict.duration(state["sample_mean"])),
        text(verdict.duration(state["effect"], sign=True) + _relative(state)),
        _interval(state, reach),
        text(verdict.interval(state)),
        text(verdict.probability(state["p_value"])),
    ]
    if fires:
        cells.append(text(", ".join(rules)))
    if levels:
        cells.append(text(str(state.get("level") or "")))
    return cells


def _verdict(detection: dict[str, Any], state: dict[str, Any]) -> str:
    """Return what the rule in force says of a state, "" where there is nothing to say."""
    if state["flagged"]:
        return "flagged, new" if state["new_state"] else "flagged"
    figures = detection["alpha"], detection["floor"], state["p_value"], state["effect"]
    if detection["rule"] != "gate" or None in figures:
        return ""
    alpha, floor, p_value, effect = figures
    return "below the floor" if p_value <= alpha and 0 < effect < floor else ""


def _relative(state: dict[str, Any]) -> str:
    """Return the effect as a share of the normal mean, where that is not next to nothing."""
    mean, effect = state["normal_mean"], state["effect"]
    if not mean or effect is None or abs(effect) > 10 * mean or not round(effect / mean, 3):
        return ""
    return f" ({'+' if effect > 0 else ''}{format_share(effect / mean)})"


def _interval(state: dict[str, Any], reach: float) -> str:
    effect, low, high = state["effect"], state["effect_low"], state["effect_high"]
    if effect is None or low is None or high is None:
        return ""

    def x_of(ns: float) -> float:
        return _HALF + (_HALF - _INSET) * ns / reach

    colour, kind = (VERMILLION, "flagged") if state["flagged"] else (BLUE, "usual")
    return (
        f'<svg class="interval" viewBox="0 0 {2 * _HALF} 16" width="{2 * _HALF}" height="16" '
        'aria-hidden="true">'
        f'<path d="M{_HALF} 0v16" stroke="currentColor" stroke-opacity="0.5"/>'
        f'<path d="M0 8h{2 * _HALF}" stroke="currentColor" stroke-opacity="0.15"/>'
        f'<g class="{kind}" fill="{colour}" stroke="{colour}">'
        f'<path d="M{x_of(low):.1f} 8H{x_of(high):.1f}" stroke-width="2.5"/>'
        f'<circle cx="{x_of(effect):.1f}" cy="8" r="3.5"/></g></svg>'
    )
