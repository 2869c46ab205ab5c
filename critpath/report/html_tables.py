"""Sections of the HTML report that are tables: causes, states, clusters, sets."""

from __future__ import annotations

import json
from typing import Any, Final

from critpath.report import verdict
from critpath.report.html_aligned import drawn
from critpath.report.html_elements import items, paragraph, table, text
from critpath.report.palette import BLUE, VERMILLION
from critpath.report.svg_scatter import scatter_svg
from critpath.units import format_ns, plural

MOST_CAUSES: Final = 40
MOST_STATES: Final = 70
MOST_EXECUTIONS: Final = 500
MOST_CLUSTERS: Final = 60
_MOST_LINKS: Final = 20
_MOST_LOSSES: Final = 30


def causes(document: dict[str, Any]) -> str:
    """Return the causes, the largest first, each with the executions it explains."""
    if not document["causes"]:
        none = paragraph("No cause: no execution is anomalous, or none could be explained.")
        return none + _said(verdict.unexplained(document))
    linkable = {aligned["position"] for aligned in drawn(document)}
    main = verdict.main_causes(document, MOST_CAUSES)
    entries = "".join(_cause(cause, linkable) for cause in main)
    shown = f'<ol class="causes">{entries}</ol>'
    rest = [cause for cause in document["causes"] if cause not in main]
    if rest:
        entries = "".join(_cause(cause, linkable) for cause in rest[:MOST_CAUSES])
        shown += (
            f"<details><summary>{text(verdict.other_causes(document, len(main)))}</summary>"
            f'<ol class="causes" start="{len(main) + 1}">{entries}</ol>'
            f"{_said(verdict.left_out(len(rest) - MOST_CAUSES, 'cause'))}</details>"
        )
    return shown + _said(verdict.unexplained(document))


def _cause(cause: dict[str, Any], linkable: set[int]) -> str:
    part = min(max(cause["share"] or 0.0, 0.0), 1.0)
    bar = (
        '<svg class="share" width="120" height="10" aria-hidden="true">'
        '<rect width="120" height="10" fill="currentColor" fill-opacity="0.15"/>'
        f'<rect width="{120 * part:.0f}" height="10" fill="{VERMILLION}"/></svg>'
    )
    links = [
        f'<a href="#x{position}">{text(name)}</a>' if position in linkable else text(name)
        for name, position in zip(cause["executions"], cause["positions"], strict=False)
    ]
    beyond = len(links) - _MOST_LINKS
    more = f" and {beyond} more" if beyond > 0 else ""
    facts = [f"executions {', '.join(links[:_MOST_LINKS])}{more}"]
    if of_excess := verdict.share_of_excess(cause["share"]):
        facts.insert(0, text(of_excess))
    return f'<li><p>{text(cause["sentence"])}</p><p class="facts">{bar} {"; ".join(facts)}</p></li>'


def states(document: dict[str, Any]) -> str:
    """Return the table of states, flagged ones first, with the interval of each effect."""
    if not document["states"]:
        return paragraph("No state was tested.")
    total = [s for s in document["states"] if s["state"] == "total"]
    rest = [s for s in document["states"] if s["state"] != "total"]
    rest.sort(key=lambda s: (not s["flagged"], -abs(s["effect"] or 0), s["state"]))
    shown = rest[:MOST_STATES] + total
    reach = max(
        [abs(s[key] or 0.0) for s in shown for key in ("effect", "effect_low", "effect_high")]
        + [1.0]
    )
    rows = []
    for state in shown:
        rules = [
            word
            for word, key in (("average", "average_fires"), ("probability", "probability_fires"))
            if state[key]
        ]
        flagged = ("flagged, new" if state["new_state"] else "flagged") if state["flagged"] else ""
        cells = [
            f"<code>{text(state['state'])}</code>",
            text(verdict.duration(state["normal_mean"])),
            text(verdict.duration(state["sample_mean"])),
            text(verdict.duration(state["effect"], sign=True)),
            _interval(state, reach),
            text(verdict.probability(state["p_value"])),
            text(", ".join(rules)),
            text(flagged),
        ]
        rows.append(["*", *cells] if state["flagged"] else cells)
    headers = ["state", ">normal mean", ">sample mean", ">effect", "95 % interval", ">p"]
    headers += ["the paper's rules that fire", "verdict"]
    shown_table = table("Time in each state, mean per execution", headers, rows)
    return shown_table + _said(verdict.left_out(len(rest) - MOST_STATES, "state"))


def _interval(state: dict[str, Any], reach: float) -> str:
    effect, low, high = state["effect"], state["effect_low"], state["effect_high"]
    if effect is None or low is None or high is None:
        return ""

    def x_of(ns: float) -> float:
        return 80 + 74 * ns / reach

    words = f"{format_ns(low, sign=True)} to {format_ns(high, sign=True)}"
    colour, kind = (VERMILLION, "flagged") if state["flagged"] else (BLUE, "usual")
    return (
        f'<svg class="interval" width="160" height="16" role="img" aria-label="{text(words)}">'
        f"<title>{text(words)}</title>"
        '<path d="M80 0v16" stroke="currentColor" stroke-opacity="0.4"/>'
        f'<g class="{kind}" fill="{colour}" stroke="{colour}">'
        f'<path d="M{x_of(low):.1f} 8H{x_of(high):.1f}" stroke-width="2.5"/>'
        f'<circle cx="{x_of(effect):.1f}" cy="8" r="3.5"/></g></svg>'
    )


def clusters(document: dict[str, Any]) -> str:
    """Return the clusters of both sets, their pairs, and the plane of counts."""
    found = document["clusters"]
    size = {which: {c["cluster"]: c for c in found[which]["clusters"]} for which in _SETS}
    rows = []
    for pair in found["pairs"][:MOST_CLUSTERS]:
        mine, other = size["sample"].get(pair["sample"]), size["normal"].get(pair["normal"])
        notes = [words for key, words in _PAIR_NOTES.items() if pair[key]]
        score = "-" if pair["score"] is None else f"{pair['score']:.2f}"
        rows.append(
            [
                f"s{pair['sample']}",
                *_cluster(mine),
                f"n{pair['normal']}",
                *_cluster(other),
                score,
                text("; ".join(notes)),
            ]
        )
    headers = ["sample cluster", ">size", ">mean", "its normal pair", ">size", ">mean", ">score"]
    content = ""
    if rows:
        content = table("Clusters of the sample set and their pairs", [*headers, "notes"], rows)
        content += _said(verdict.left_out(len(found["pairs"]) - MOST_CLUSTERS, "pair"))
    else:
        content = paragraph("No pair of clusters: a set had nothing to cluster.")
    paired = {pair["normal"] for pair in found["pairs"]}
    unpaired = [c for c in found["normal"]["clusters"] if c["cluster"] not in paired]
    if unpaired:
        names = ", ".join(f"n{c['cluster']} ({c['size']:,})" for c in unpaired[:MOST_CLUSTERS])
        beyond = len(unpaired) - MOST_CLUSTERS
        more = f" and {beyond} more" if beyond > 0 else ""
        content += paragraph(f"Normal clusters without a pair: {names}{more}.")
    methods = [f"{which}: {found[which]['method']}" for which in _SETS]
    notes = [f"{which}: {note}" for which in _SETS for note in found[which]["notes"]]
    listed = items([*methods, *notes, *found["notes"]], kind="notes")
    return f'<div class="beside"><div>{content}{listed}</div>{scatter_svg(document)}</div>'


_SETS: Final = ("normal", "sample")
_PAIR_NOTES: Final = {
    "weak": "weak: no candidate scored above zero",
    "novel": "novel: farther from its pair than the pair is wide",
}


def _cluster(cluster: dict[str, Any] | None) -> list[str]:
    if cluster is None:
        return ["-", "-"]
    return [f"{cluster['size']:,}", text(verdict.duration(cluster["mean_duration"]))]


def executions(document: dict[str, Any]) -> str:
    """Return the table of all executions, anomalous ones first."""
    linkable = {aligned["position"] for aligned in drawn(document)}
    order = {"sample": 0, "normal": 1}
    ranked = sorted(
        document["executions"],
        key=lambda r: (
            not r["anomalous"],
            order[r["set"]],
            -(r["excess"] or 0) if r["anomalous"] else 0,
            r["position"],
        ),
    )
    if not ranked:
        return paragraph("Neither set has an execution.")
    rows = []
    for row in ranked[:MOST_EXECUTIONS]:
        linked = row["set"] == "sample" and row["position"] in linkable
        name = f'<a href="#x{row["position"]}">{text(row["id"])}</a>' if linked else text(row["id"])
        marks = [word for word in ("anomalous", "paper", "weak", "lossy") if row[word]]
        cells = [
            name,
            row["set"],
            text(row["label"]),
            text(f"{row['comm']} {row['tid']}"),
            text(verdict.duration(row["end"] - row["begin"])),
            text(verdict.duration(row["excess"], sign=True)),
            text(verdict.probability(row["p_value"])),
            "-" if row["cluster"] is None else f"{row['set'][0]}{row['cluster']}",
            text(", ".join(_MARKS[mark] for mark in marks)),
        ]
        rows.append(["*", *cells] if row["anomalous"] else cells)
    headers = ["execution", "set", "label", "thread", ">duration", ">excess", ">p", "cluster"]
    shown = table("Executions, anomalous ones first", [*headers, "marks"], rows, kind="long")
    return shown + _said(verdict.left_out(len(ranked) - MOST_EXECUTIONS, "execution"))


_MARKS: Final = {
    "anomalous": "anomalous",
    "paper": "marked by the paper's rule",
    "weak": "noise that joined its nearest cluster",
    "lossy": "touches a loss",
}


def sets(document: dict[str, Any]) -> str:
    """Return what the two sets are, side by side, and what was lost in them."""
    both = [document["sets"][which] for which in _SETS]
    rows = [
        ("recordings", [", ".join(s["sources"]) for s in both]),
        ("executions found by", [s["specification"] for s in both]),
        ("executions", [f"{s['executions']:,}" for s in both]),
        ("without begin or end", [f"{s['incomplete']:,}" for s in both]),
        ("events", [f"{s['events']:,}" for s in both]),
        ("from first to last", [_window(s["window"]) for s in both]),
        ("host", [", ".join(s["hosts"]) for s in both]),
        ("kernel", [", ".join(s["kernels"]) for s in both]),
        ("tracer", [", ".join(s["tracers"]) for s in both]),
        ("events lost", [f"{s['loss']['events']:,}" for s in both]),
        ("packets lost", [f"{s['loss']['packets']:,}" for s in both]),
        ("executions touched by loss", [f"{s['lossy']:,}" for s in both]),
    ]
    content = table(
        "The two sets",
        ["", "normal", "sample"],
        [[text(name), text(values[0]), text(values[1])] for name, values in rows],
    )
    for which, one in zip(_SETS, both, strict=True):
        content += _losses(which, one["loss"])
    notes = [
        f"{which}: {note}"
        for which, one in zip(_SETS, both, strict=True)
        for note in one["warnings"] + one["notes"]
    ]
    return content + items(notes, kind="notes")


def _window(window: dict[str, int] | None) -> str:
    return "-" if window is None else format_ns(window["end"] - window["begin"])


def _losses(which: str, loss: dict[str, Any]) -> str:
    if not loss["places"]:
        return ""
    rows = [
        [
            text(f"{one['begin'] / 1e9:.6f} s"),
            text(format_ns(one["end"] - one["begin"])),
            "-" if one["cpu"] < 0 else str(one["cpu"]),
            f"{one['events']:,}",
            f"{one['packets']:,}",
            text(one["reason"]),
        ]
        for one in loss["places"][:_MOST_LOSSES]
    ]
    beyond = len(loss["places"]) - _MOST_LOSSES
    beyond = max(0, beyond) + loss["places_left_out"]
    headers = [">from", ">for", ">cpu", ">events", ">packets", "reason"]
    listed = table(f"Losses in the {which} set", headers, rows)
    said = _said(f"{plural(beyond, 'loss place')} left out." if beyond else "")
    return f"<details><summary>Losses in the {which} set</summary>{listed}{said}</details>"


def method(document: dict[str, Any]) -> str:
    """Return how the verdict came about: the rule, its figures, every setting."""
    detection, outliers = document["detection"], document["outliers"]
    facts = [
        (
            f"Rule in force: {detection['rule']}, level {verdict.figure(detection['alpha'])}, "
            f"effect floor {verdict.duration(detection['floor'])}, "
            f"{plural(detection['permutations'], 'permutation')}."
        ),
        verdict.difference(document) or "",
        verdict.sensitivity(document) or "",
        verdict.by_the_paper(document),
        (
            f"{plural(outliers['anomalous'], 'execution')} anomalous; the paper's rule marks "
            f"{outliers['paper']:,}."
        ),
        *detection["notes"],
        *outliers["notes"],
    ]
    rows = [
        [f"<code>{text(name)}</code>", f"<code>{text(json.dumps(value, sort_keys=True))}</code>"]
        for name, value in sorted(document["settings"].items())
    ]
    settings = table("Settings in force", ["setting", "value"], rows) if rows else ""
    return (
        items([fact for fact in facts if fact], kind="notes")
        + f"<details><summary>Settings in force</summary>{settings}</details>"
    )


def _said(words: str) -> str:
    return paragraph(words, kind="said") if words else ""
