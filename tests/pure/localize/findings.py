"""Findings that tests make: what they are in and of which execution is said by one value each."""

from __future__ import annotations

from typing import Any

from critpath.documents.base import change
from critpath.model import Finding, Symbol
from critpath.model.details import OTHERS, Detail, read_detail


def spell_out(facts: dict[str, Any]) -> dict[str, Any]:
    """Return facts of a finding with a symbol and an execution as the finding has them."""
    if "symbol" in facts:
        symbol: Symbol = facts.pop("symbol")
        facts |= {"state": symbol.state.name, "role": symbol.role, "place": symbol.place}
    if "execution" in facts:
        facts |= {"position": facts["execution"], "execution": str(facts["execution"])}
    return facts


def make_finding(**facts: Any) -> Finding:
    """Return a finding of the first execution's, in which little is known besides some facts."""
    usual = {
        "execution": 0,
        "rank": 1,
        "kind": "longer",
        "detail": "",
        "comm": "worker",
        "tid": 7,
        "before": "",
        "begin": 0,
        "end": 1,
        "columns": [0, 1],
        "share": None,
        "probability": 1.0,
        "parts": [],
        "abnormal": False,
        "p": None,
        "offset": 0.0,
        "iterations": None,
        "normal_iterations": [None, None],
    }
    return _with_details(Finding(**spell_out({**usual, **facts})))


def alter(finding: Finding, **facts: Any) -> Finding:
    """Return a finding with other facts."""
    return _with_details(change(finding, **spell_out(facts)))


def _with_details(finding: Finding) -> Finding:
    """Return a finding with what the texts of its details mean."""

    def read(of: Detail | str) -> Detail:
        if isinstance(of, Detail):
            return of
        found = read_detail(finding.symbol.state, of.removeprefix(OTHERS))
        return found._replace(others=of.startswith(OTHERS))

    details = tuple((read(of), share) for of, share in finding.details)
    return change(finding, qualifier=read(finding.detail), details=details)
