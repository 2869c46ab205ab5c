"""The section of the HTML report that tells the causes, and what they add up to."""

from __future__ import annotations

from typing import Any, Final

from critpath.report import verdict
from critpath.report.html_aligned import drawn
from critpath.report.html_elements import paragraph, said, table, text
from critpath.report.palette import VERMILLION
from critpath.units import plural

MOST_CAUSES: Final = 40
_MOST_LINKS: Final = 20


def causes(document: dict[str, Any]) -> str:
    """Return the causes, the largest first, each with the executions it explains."""
    if not document["causes"]:
        return paragraph(_no_cause(document)) + said(verdict.unexplained(document))
    linkable = {aligned["position"] for aligned in drawn(document)}
    main = verdict.main_causes(document, MOST_CAUSES)
    entries = "".join(_cause(document, cause, linkable) for cause in main)
    shown = f'<ol class="causes">{entries}</ol>'
    rest = [cause for cause in document["causes"] if cause not in main]
    if rest:
        entries = "".join(_cause(document, cause, linkable) for cause in rest[:MOST_CAUSES])
        shown += (
            f"<details><summary>{text(verdict.other_causes(document, len(main)))}</summary>"
            f'<ol class="causes" start="{len(main) + 1}">{entries}</ol>'
            f"{said(verdict.left_out(len(rest) - MOST_CAUSES, 'cause'))}</details>"
        )
    return shown + _account(document)


def _no_cause(document: dict[str, Any]) -> str:
    examined, anomalous = len(document["aligned"]), document["outliers"]["anomalous"]
    if examined:
        return f"No cause: no difference stands out in {plural(examined, 'examined execution')}."
    if document["verdict"] == "inconclusive" and anomalous:
        stands = "execution stands" if anomalous == 1 else "executions stand"
        return f"{anomalous:,} {stands} out, but nothing can be concluded: none was examined."
    return f"No cause: {plural(anomalous, 'execution')} anomalous, none was examined."


def _cause(document: dict[str, Any], cause: dict[str, Any], linkable: set[int]) -> str:
    part = min(max(cause["share"] or 0.0, 0.0), 1.0)
    bar = (
        '<svg class="share" width="120" height="10" aria-hidden="true">'
        '<rect width="120" height="10" fill="currentColor" fill-opacity="0.15"/>'
        f'<rect width="{120 * part:.0f}" height="10" fill="{VERMILLION}"/></svg> '
    )
    rank = {
        finding["position"]: finding["rank"]
        for finding in (
            document["findings"][i]
            for i in reversed(cause["findings"])
            if i < len(document["findings"])
        )
    }
    links = [
        _link(position, name, rank.get(position)) if position in linkable else text(name)
        for name, position in zip(cause["executions"], cause["positions"], strict=False)
    ]
    beyond = len(links) - _MOST_LINKS
    more = f" and {beyond:,} more" if beyond > 0 else ""
    facts = [f"executions {', '.join(links[:_MOST_LINKS])}{more}"]
    if of_excess := verdict.share_of_excess(cause["share"]):
        facts.insert(0, text(of_excess))
    elif (cause["contribution"] or 0.0) < 0:
        bar = ""
        facts.insert(0, "took less time: no part of the excess")
    return f'<li><p>{text(cause["sentence"])}</p><p class="facts">{bar}{"; ".join(facts)}</p></li>'


def _link(position: int, name: str, rank: int | None) -> str:
    """Return a link to an execution's article; the page's script goes on to the finding."""
    finding = "" if rank is None else f' data-finding="{rank}"'
    return f'<a href="#x{position}" data-position="{position}"{finding}>{text(name)}</a>'


def _account(document: dict[str, Any]) -> str:
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
