"""One state, one cause, one set in a sentence: shared by the outputs that list them."""

from __future__ import annotations

import json
from typing import Any

from critpath.report import verdict
from critpath.report.palette import KINDS
from critpath.units import plural

_MOST_NAMES = 3


def level_of(state: dict[str, Any]) -> str:
    """Return what a flagged state counts as: ``error``, ``warn`` or ``off``."""
    return str(state.get("level", "error"))


def state_sentence(state: dict[str, Any]) -> str:
    """Return one state's test in a sentence: difference, interval, p, both means."""
    effect = verdict.duration(state["effect"], sign=True)
    between = verdict.interval(state)
    between = f" (95 % interval {between})" if between != "-" else ""
    normal, sample = (verdict.duration(state[f"{which}_mean"]) for which in ("normal", "sample"))
    return (
        f"{state['state']} is {effect} an execution{between}, "
        f"p {verdict.probability(state['p_value'])}: {normal} normally, {sample} here"
    )


def sentences_about(document: dict[str, Any], state: dict[str, Any]) -> list[str]:
    """Return the causes whose main finding is of a state; of the total, the main ones."""
    causes = verdict.main_causes(document, _MOST_NAMES)
    if state["state"] != "total":
        causes = [c for c in document["causes"] if _state_of(document, c) == state["state"]]
    return [verdict.cause_sentence(cause) for cause in causes[:_MOST_NAMES]]


def cause_in_short(document: dict[str, Any], cause: dict[str, Any]) -> str:
    """Return a cause in two or three words that change less than its sentence."""
    finding = _main_finding(document, cause)
    if finding is None:
        return "cause"
    return f"{_state_of(document, cause)}, {KINDS.get(finding['kind'], finding['kind'])}"


def _main_finding(document: dict[str, Any], cause: dict[str, Any]) -> dict[str, Any] | None:
    findings: list[dict[str, Any]] = document["findings"]
    return findings[cause["main"]] if 0 <= cause["main"] < len(findings) else None


def _state_of(document: dict[str, Any], cause: dict[str, Any]) -> str:
    """Return the symbol of a cause's main finding, named as the states' table does."""
    finding = _main_finding(document, cause)
    if finding is None:
        return ""
    return str(finding["state"]) + (f"@{finding['role']}" if finding["role"] else "")


def setting(value: object) -> str:
    """Return a setting as text."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def set_in_short(document: dict[str, Any], which: str) -> str:
    """Return one of the two sets in a line: how many, from where, of what kernel, when."""
    one = document["sets"][which]
    parts = [
        f"{which}: {plural(one['executions'], 'execution')} from {_several(one['sources'])}",
        *([f"on {_several(one['hosts'])}"] if one["hosts"] else []),
        *([f"kernel {_several(one['kernels'])}"] if one["kernels"] else []),
    ]
    moments = [moment for moment in one.get("recorded", []) if moment]
    if moments:
        parts.append(f"recorded {min(moments)}")
    return ", ".join(parts)


def _several(names: list[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    beyond = len(names) - _MOST_NAMES
    return f"{shown} and {beyond} more" if beyond > 0 else shown or "nowhere"
