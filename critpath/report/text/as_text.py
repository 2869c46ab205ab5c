"""A document as text for a terminal or a pipe."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from critpath.documents import ClusterEntry, ComparisonDocument
from critpath.report.text.alignment import print_alignment
from critpath.report.text.answer import cause_line, print_answer
from critpath.report.text.table import Row, print_line, print_table
from critpath.text import sentences, verdict
from critpath.text.explanation import (
    describe_because,
    describe_facts,
    describe_other_causes,
    explained,
)
from critpath.text.notes import side
from critpath.text.page import noun_of
from critpath.units import plural

# A screen answers the question; the HTML report and the JSON hold the rest.
_MOST_STATES = 12
_MOST_EXECUTIONS = 10
_MOST_CLUSTERS = 10
_MOST_LABELS = 10
_MOST_ALIGNED = 2
_MOST_WAITS = 12


def render_comparison(
    document: ComparisonDocument,
    console: Console,
    *,
    verbose: bool = False,
    places: Sequence[str] = (),
) -> None:
    """Print a comparison: the answer on a screen, its first line first.

    Parameters
    ----------
    document : dict
        From `comparison_document` or `load_document`.
    console : rich.console.Console
        Its width, colours and encoding are honoured; a pipe gets plain text.
    verbose : bool
        All tables below: states and tests, executions, alignments, types; the first line
        once more at the end.
    places : sequence of str
        Files that were written of it: the last line need not offer them.
    """
    print_answer(document, console, verbose=verbose, places=places)
    if not verbose:
        return
    from critpath.text import clocks  # noqa: PLC0415 - start-up time

    _heading(console, "How it was decided")
    for reason in verdict.further_reasons(document):
        print_line(console, reason)
    if due := describe_because(document.because):
        print_line(console, f"the mean differs because of {due}")
    for which in ("normal", "sample"):
        print_line(console, sentences.set_in_short(document, which), style="dim")
    _print_warnings(document, console)
    for line in clocks.say_clocks(document):
        print_line(console, line)
    _print_causes(document, console)
    _print_waits(document, console)
    if document.states:
        _print_states(document, console)
    _print_durations(document, console)
    _print_executions(document, console)
    _print_aligned(document, console)
    _print_clusters(document, console)
    for sentence in (verdict.sensitivity(document), verdict.headline(document)):
        if sentence:
            console.print()
            print_line(console, sentence)


def _print_warnings(document: ComparisonDocument, console: Console) -> None:
    for warning in document.warnings:
        print_line(console, f"warning: {warning}", style="yellow")
    noun = noun_of(document, 1)
    for which in ("normal", "sample"):
        one = document.sets[which]
        where, loss = side(which), one.loss
        if loss.events or loss.packets or one.lossy:
            print_line(
                console,
                f"warning: {where}: {plural(loss.events, 'event')} and "
                f"{plural(loss.packets, 'packet')} lost; "
                f"{one.lossy:,} of {plural(one.executions, noun)} touched",
                style="yellow",
            )
        if one.incomplete:
            print_line(
                console,
                f"note: {where}: {plural(one.incomplete, noun)} without begin or end, not counted",
            )


def _print_causes(document: ComparisonDocument, console: Console) -> None:
    shown = verdict.main_causes(document, len(document.causes))
    account = explained(document, document.causes)
    if not document.causes and not account:
        return
    _heading(console, "Causes")
    for number, cause in enumerate(shown, 1):
        print_line(console, f"{number}. {cause_line(document, cause)}")
        for fact in describe_facts(cause):
            print_line(console, f"   {fact}", style="dim")
    rest = describe_other_causes(document, [one for one in document.causes if one not in shown])
    for line in filter(None, (rest, account)):
        print_line(console, line)


def _print_waits(document: ComparisonDocument, console: Console) -> None:
    """Print who waited for whom over hosts; nothing of one host."""
    if not document.waits:
        return
    from critpath.text import clocks  # noqa: PLC0415 - as above

    _heading(console, f"{clocks.WAITS}, before → after")
    rows = []
    for wait in document.waits[:_MOST_WAITS]:
        times = [
            " → ".join(verdict.duration(ns) if ns else "0" for ns in both) if any(both) else "-"
            for both in (wait.mean, wait.transit, wait.queued)
        ]
        count = " → ".join(f"{count:,}" for count in wait.requests)
        rows.append(Row((*clocks.name_waits(wait), count, *times)))
    noun = noun_of(document)
    heads = ("who", "for whom", f">{noun}", ">mean", ">on its way", ">behind others")
    print_table(console, heads, rows, folding=("who", "for whom"), spare=("behind others", noun))
    _left_out(console, len(document.waits) - _MOST_WAITS, "pair")


def _print_states(document: ComparisonDocument, console: Console) -> None:
    _heading(console, f"States, mean per {noun_of(document, 1)}")
    total = [s for s in document.states if s.state == "total"]
    states = verdict.states_by_weight(document)
    rows = [
        Row(
            (
                verdict.name_of(document, state),
                verdict.duration(state.normal_mean),
                verdict.duration(state.sample_mean),
                verdict.duration(state.effect, sign=True),
                sentences.counts_of(state),
                verdict.interval(state),
                verdict.probability(state.p_value),
                verdict.flag(state),
            ),
            "bold" if state.flagged else "",
        )
        for state in states[:_MOST_STATES] + total
    ]
    print_table(
        console,
        ("state", ">before", ">after", ">effect", ">times", ">95 % interval", ">p", "flagged"),
        rows,
        folding=("state",),
        spare=("95 % interval", "before", "after", "p", "times"),
    )
    _left_out(console, len(states) - _MOST_STATES, "state")
    paper = verdict.by_the_paper(document)
    for sentence in (verdict.difference(document), paper):
        if sentence:
            print_line(console, sentence)
    for note in document.detection.notes:
        print_line(console, f"note: {note}")


def _print_durations(document: ComparisonDocument, console: Console) -> None:
    rows = sentences.durations_by_label(document)
    if not rows:
        return
    _heading(console, "Durations, before → after")
    first, *others = sentences.DURATIONS
    headers = (first, *(f">{name}" for name in others))
    shown = [Row(row) for row in rows[: _MOST_LABELS + 1]]
    print_table(console, headers, shown, folding=(first,), spare=("p95", "count"))
    _left_out(console, len(rows) - len(shown), "kind")


def _print_executions(document: ComparisonDocument, console: Console) -> None:
    rows = verdict.anomalous(document)
    if not rows:
        return
    _heading(console, f"Slow {noun_of(document)}")
    print_table(
        console,
        (noun_of(document, 1), ">duration", ">excess", ">p", "mostly"),
        [
            Row(
                (
                    row.id + (f" {row.label}" if row.label else ""),
                    verdict.duration(row.end - row.begin),
                    verdict.duration(row.excess, sign=True),
                    verdict.probability(row.p_value),
                    verdict.mostly(document, row),
                )
            )
            for row in rows[:_MOST_EXECUTIONS]
        ],
        folding=(noun_of(document, 1), "mostly"),
        spare=("p", "duration"),
    )
    _left_out(console, len(rows) - _MOST_EXECUTIONS, f"slow {noun_of(document, 1)}")


def _print_aligned(document: ComparisonDocument, console: Console) -> None:
    aligned = verdict.by_excess(document.aligned)
    for one in aligned[:_MOST_ALIGNED]:
        _heading(
            console,
            f"{noun_of(document, 1).capitalize()} {one.execution} beside like ones of before",
        )
        print_alignment(document, one, console)
    _left_out(console, len(aligned) - _MOST_ALIGNED, "alignment")


def _print_clusters(document: ComparisonDocument, console: Console) -> None:
    pairs = document.clusters.pairs
    if not pairs:
        return
    _heading(
        console,
        f"Types of {noun_of(document)} after, and those of before that they are compared with",
    )
    sizes = {
        which: {c.cluster: c for c in document.clusters[which].clusters}
        for which in ("normal", "sample")
    }
    rows = []
    for pair in pairs[:_MOST_CLUSTERS]:
        cells = [f"s{pair.sample}", *_size(sizes["sample"].get(pair.sample))]
        cells += [f"n{pair.normal}", *_size(sizes["normal"].get(pair.normal))]
        score = "-" if pair.score is None else f"{pair.score:.2f}"
        notes = [word for word in ("weak", "novel") if getattr(pair, word)]
        rows.append(Row((*cells, score, ", ".join(notes))))
    print_table(
        console,
        ("after", ">size", ">mean", "before", ">of", ">mean before", ">score", "note"),
        rows,
        spare=("score", "mean before", "note"),
    )
    _left_out(console, len(pairs) - _MOST_CLUSTERS, "pair")


def _size(cluster: ClusterEntry | None) -> list[str]:
    if cluster is None:
        return ["-", "-"]
    return [f"{cluster.size:,}", verdict.duration(cluster.mean_duration)]


def _heading(console: Console, text: str) -> None:
    console.print()
    print_line(console, text, style="bold")


def _left_out(console: Console, count: int, noun: str) -> None:
    if count > 0:
        print_line(console, verdict.left_out(count, noun), style="dim")
