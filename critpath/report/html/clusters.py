"""The section of the HTML report with the types of executions and their pairs."""

from __future__ import annotations

from typing import Final

from critpath.documents import ClusterEntry, ComparisonDocument
from critpath.report.html.elements import items, paragraph, said, table, terms, text
from critpath.report.html.svg_marks import Mark, looks, swatch
from critpath.report.html.svg_reachability import reachability_plots
from critpath.report.html.svg_scatter import scatter_panels
from critpath.text import verdict
from critpath.units import plural

MOST_CLUSTERS: Final = 60

_SETS: Final = ("normal", "sample")
_NOTES: Final = {
    "weak": "weak: no candidate scored above zero",
    "novel": "novel: farther from its pair than the pair is wide",
}
_TERMS: Final = (
    (
        "type (cluster)",
        (
            "executions that enter each state about equally often: n0, n1 … of the normal set, "
            "s0, s1 … of the sample set, the largest first. A sample type has the colour and "
            "shape of the normal type it is paired with, unless a larger one has them already."
        ),
    ),
    ("pair", "the normal type that a sample type is held against."),
    (
        "score",
        (
            "silhouette of the pair, -1 to 1: how much nearer it is than the next one; none where "
            "there was nothing to choose from."
        ),
    ),
    (
        "component",
        (
            "one of the two directions in which the executions' counts differ most (principal "
            "components): near marks have like counts."
        ),
    ),
    (
        "reachability",
        (
            "how far an execution's counts are from those of a dense group visited before it. A "
            "valley between steep edges is a type; how steep is the method's xi, not a height."
        ),
    ),
)


def clusters(document: ComparisonDocument) -> str:
    """Return the pairs of clusters, the planes of counts and the reachability plots."""
    found = document.clusters
    notes = [f"{which} set: {note}" for which in _SETS for note in found[which].notes]
    return (
        _pairs(document)
        + scatter_panels(document)
        + reachability_plots(document)
        + items([*notes, *found.notes], kind="notes")
        + terms(_TERMS)
    )


def _pairs(document: ComparisonDocument) -> str:
    found = document.clusters
    size = {which: {c.cluster: c for c in found[which].clusters} for which in _SETS}
    marks = looks(document)
    anomalous: dict[int | None, int] = {}
    for row in verdict.anomalous(document):
        anomalous[row.cluster] = anomalous.get(row.cluster, 0) + 1
    rows = [
        [
            _name("s", pair.sample, marks["sample"]),
            *_cluster(size["sample"].get(pair.sample)),
            f"{anomalous.get(pair.sample, 0):,}",
            _name("n", pair.normal, marks["normal"]),
            *_cluster(size["normal"].get(pair.normal)),
            "-" if pair.score is None else f"{pair.score:.2f}",
            text("; ".join(words for key, words in _NOTES.items() if getattr(pair, key))),
        ]
        for pair in found.pairs[:MOST_CLUSTERS]
    ]
    headers = ["sample type", ">size", ">mean", ">anomalous", "its normal pair", ">size", ">mean"]
    if not rows:
        content = paragraph("No pair of types: a set had nothing to cluster.")
    else:
        caption = "Types of the sample set and the normal type each is held against"
        content = table(caption, [*headers, ">score", "notes"], rows, kind="pairs", heads=True)
        content += said(verdict.left_out(len(found.pairs) - MOST_CLUSTERS, "pair"))
    paired = {pair.normal for pair in found.pairs}
    unpaired = [c for c in found.normal.clusters if c.cluster not in paired]
    if unpaired:
        names = ", ".join(f"n{c.cluster} ({c.size:,})" for c in unpaired[:MOST_CLUSTERS])
        beyond = len(unpaired) - MOST_CLUSTERS
        more = f" and {beyond:,} more" if beyond > 0 else ""
        content += paragraph(f"Normal types without a pair: {names}{more}.")
    return content


def compared_with(document: ComparisonDocument) -> str:
    """Return how much of the normal set was compared with, "" where that is all of it."""
    found = document.clusters
    paired = {pair.normal for pair in found.pairs}
    sizes = {c.cluster: c.size for c in found.normal.clusters}
    count = sum(size for cluster, size in sizes.items() if cluster in paired)
    whole = document.sets.normal.executions
    if not paired or count >= whole:
        return ""
    return (
        f"Compared with {count:,} of {plural(whole, 'normal execution')}: the others are of types "
        "that the sample set has none of."
    )


def _name(letter: str, number: int, marks: dict[int, Mark]) -> str:
    return f"{swatch(marks[number]) if number in marks else ''} {letter}{number}"


def _cluster(cluster: ClusterEntry | None) -> list[str]:
    if cluster is None:
        return ["-", "-"]
    return [f"{cluster.size:,}", text(verdict.duration(cluster.mean_duration))]
