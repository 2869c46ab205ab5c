"""An exploration as text for a terminal or a pipe."""

from __future__ import annotations

import math
from typing import Final

from rich.console import Console

from critpath.documents import ExplorationDocument
from critpath.documents.exploration import ConditionEntry, QuestionEntry
from critpath.report.text.table import Row, print_line, print_table
from critpath.schema.parameters.explore import CONDITIONS
from critpath.text.exploring import chance, percent, say, times_text
from critpath.units import format_ns

SHOWN: Final = 4  # conditions of each group, unless all are asked for
CLUSTERS: Final = 6
_STYLES: Final = {"found": "bold", "nothing": "bold green", "few": "bold yellow"}


def render_exploration(
    document: ExplorationDocument, console: Console, *, every: bool = False
) -> None:
    """Print the answers, one after the other.

    Parameters
    ----------
    document : ExplorationDocument
    console : rich.console.Console
    every : bool
        All findings, those that chance shows too, and parts of the latency.
    """
    for number, question in enumerate(document.questions):
        if number:
            print_line(console, "")
        _print_question(question, console, every=every)
    slices = document.specification.partition(":")[0] == "slices"
    if len(document.clusters) > 1 and (every or slices):
        _print_clusters(document, console, every=every)
    print_line(console, "")
    print_line(console, say("foot"), style="dim")


def _print_clusters(document: ExplorationDocument, console: Console, *, every: bool) -> None:
    """List labels and types, those first that wait most for a CPU, all together."""
    print_line(console, "")
    head = say("clusters")
    rows = []
    most = len(document.clusters) if every else CLUSTERS
    for one in document.clusters[:most]:
        name = one.label or say("clusters.none")
        if one.cluster:
            name += f", {say('clusters.type', k=one.cluster)}"
        if one.words:
            name += f": {one.words}".replace("`", "")
        times = (
            f"{format_ns(mean or 0.0)} ± {format_ns(math.sqrt(variance or 0.0))}"
            for mean, variance in (
                (one.cpu, one.cpu_variance),
                (one.idle_mean, one.idle_variance),
            )
        )
        rows.append(Row((name, f"{one.executions:,}", format_ns(one.latency or 0.0), *times)))
    columns = [head, ">n", ">median", f">{say('clusters.cpu')}", f">{say('clusters.idle')}"]
    print_table(console, columns, rows, folding=(head,))
    if len(document.clusters) > most:
        print_line(console, say("more", k=len(document.clusters) - most), style="dim")


def _print_question(question: QuestionEntry, console: Console, *, every: bool) -> None:
    headline, why = question.sentences
    chip = say(f"chip.{question.answer}")
    print_line(console, f"{chip}: {headline.replace('`', '')}", style=_STYLES[question.answer])
    print_line(console, why.replace("`", ""))
    among = " and ".join(one.condition for one in question.given)
    chosen = say(
        "asked of" if among else "asked",
        m=f"{question.selected:,}",
        n=f"{question.executions:,}",
        what=question.what,
        among=among,
    )
    print_line(console, chosen, style="dim")
    few = question.answer == "few"
    shown, more = _choose(question, every=every)
    if shown:
        print_line(console, "")
        print_table(
            console,
            ["the more for", ">with", ">without", ">times", ">p"],
            [row for title, listed in shown for row in _rows(title, listed, few=few)],
            folding=("the more for",),
        )
    left_out, note = question.small_print
    rest = [say("more", k=more)] if more else []
    line = " · ".join([*rest, *([left_out] if left_out else [])])
    for text in (line, note):
        if text:
            print_line(console, text, style="dim")
    if every and question.part:
        print_line(console, "")
        title = say("part" if question.bound is not None else "part.other")
        print_table(
            console,
            [title, ">with", ">without"],
            [
                Row((one.words.replace("`", ""), _share(one, with_it=True), _share(one)))
                for one in question.part
            ],
            folding=(title,),
        )


def _choose(
    question: QuestionEntry, *, every: bool
) -> tuple[list[tuple[str, list[ConditionEntry]]], int]:
    """Return what is listed by group, and how many findings are not."""
    found = [one for one in question.conditions if one.p is not None and one.p < CONDITIONS.level]
    listed = question.conditions if every or question.answer == "few" else found
    most = len(listed) if every else SHOWN
    begin = [one for one in listed if one.known]
    way = [one for one in listed if not one.known]
    groups = [("begin", begin[:most]), ("way", way[:most])]
    shown = [(name, some) for name, some in groups if some]
    return shown, len(listed) - sum(len(some) for _, some in shown)


def _rows(title: str, listed: list[ConditionEntry], *, few: bool) -> list[Row]:
    rows = [Row((f"{say(title)}:", "", "", "", ""), "bold")]
    for one in listed:
        ratio = (one.ratio, *one.ratio_interval)
        times, interval = times_text(ratio, more=one.z > 0, never=not one.without.count)
        also = f" {one.also_words}" if one.also_words else ""
        cells = (
            f"  {one.words}{also}".replace("`", ""),
            _share(one, with_it=True),
            _share(one),
            f"{times} ({interval})",
            "–" if few or one.p is None else chance(one.p),
        )
        rows.append(Row(cells))
    return rows


def _share(one: ConditionEntry, *, with_it: bool = False) -> str:
    entry = one.having if with_it else one.without
    return f"{percent(entry.share)} of {entry.of:,}"
