"""One critical path as a timeline on a terminal or a pipe, and many in sums."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from critpath.documents import PathDocument
from critpath.model.requests import Tier, Untold
from critpath.report.document.path import CodeSummary, LabelSummary
from critpath.report.palette import LOOKS
from critpath.report.text.table import new_table, print_line, shown
from critpath.text import requests, sentences
from critpath.text.phrases import word_state
from critpath.units import format_ns, format_share, in_plural, plural

_BAR = 30
_BESIDE_BAR = 85  # columns that the rest of a summary's row may need
_THREAD = 14  # of them a thread's name
_MOST_LABELS = 20
_MOST_PLACES = 12
_OWN = "(its own)"


def render_summary(summaries: Sequence[LabelSummary], console: Console, noun: str = "run") -> None:
    """Print where the executions of each label spend their time.

    Parameters
    ----------
    summaries : sequence of LabelSummary
        From `summarize_paths`.
    noun : str
        What an execution is called.
    console : rich.console.Console
    """
    for number, of in enumerate(summaries[:_MOST_LABELS]):
        if number:
            console.print()
        label = f"{of.label}: " if of.label else ""
        spread = (
            f", median {format_ns(of.median)}, longest {format_ns(of.longest)}"
            if of.executions > 1
            else f", {format_ns(of.longest)}"
        )
        print_line(console, f"{label}{plural(of.executions, noun)}{spread}", style="bold")
        if of.lossy:
            what = f"warning: {of.lossy:,} of them overlap a loss of events"
            print_line(console, what, style="yellow")
        console.print(_places(of, console, noun))
        if of.beneath:
            print_line(console, sentences.beneath(of.beneath), style="dim")
    beyond = summaries[_MOST_LABELS:]
    if beyond:
        count = sum(of.executions for of in beyond)
        what = f"{plural(len(beyond), 'further label')} of {plural(count, noun)} left out"
        print_line(console, f"{what}: --execution chooses", style="dim")


def render_code(
    places: Sequence[CodeSummary],
    left: CodeSummary | None,
    count: int,
    console: Console,
    noun: str = "run",
) -> None:
    """Print where in the code the time of executions goes.

    Parameters
    ----------
    places, left : sequence of CodeSummary, CodeSummary or None
        From `summarize_code`.
    count : int
        Executions.
    noun : str
        What one is called.
    console : rich.console.Console
    """
    print_line(console, f"{plural(count, noun)}, by place in the code", style="bold")
    table = new_table(
        *(console, "function (file:line)", ">time each", ">share", ">running", ">times each"),
        *(f">{in_plural(noun)}",),
        folding="function (file:line)",
    )
    for place in places:
        name = shown(place.location, console) if place.location else Text("(not known)", "dim")
        table.add_row(name, *_figures(place, console), Text(f"{place.executions:,}"))
    if left:
        table.add_row(
            Text(f"({plural(left.executions, 'further place')})", style="dim"),
            *_figures(left, console),
            Text(),
        )
    console.print(table)


def _figures(place: CodeSummary, console: Console) -> tuple[Text, ...]:
    count = place.count
    return (
        shown(format_ns(place.time), console),
        Text(format_share(place.share)),
        shown(format_ns(place.running) if place.running else "–", console),
        Text(f"{count:,.3g}" if count < 1000 else f"{count:,.0f}"),
    )


def render_tiers(tiers: Sequence[Tier], untold: Untold, console: Console) -> None:
    """Print what each service takes of the requests that are asked from outside.

    Parameters
    ----------
    tiers : sequence of Tier
        From `critpath.requests.tiers.sum_tiers`.
    untold : Untold
    console : rich.console.Console
    """
    count = sum(tier.requests for tier in tiers if not tier.depth)
    if tiers:
        heads = ["", ">latency", ">own", ">asks", *[">unknown"] * bool(untold.requests), ">n", ""]
        table = new_table(console, *heads, folding=("",))
        for tier in tiers:
            branch = "  " * (tier.depth - 1) + "└ " * bool(tier.depth)
            times = [tier.latency_ns, tier.own_ns, tier.asked_ns]
            times += [tier.unknown_ns] * bool(untold.requests)
            table.add_row(
                shown(branch + tier.service, console),
                *(shown(format_ns(time) if time else "–", console) for time in times),
                Text(f"{tier.requests:,}"),
                shown(sentences.tier_queued(tier.queued_ns or 0), console),
            )
        console.print(table)
        print_line(console, sentences.most_of_tiers(tiers))
    if untold.requests:
        print_line(console, sentences.tiers_untold(untold, count), style="yellow")


def _places(of: LabelSummary, console: Console, noun: str) -> Table:
    table = new_table(
        *(console, "state", "thread", ">time each", ">share", ">times each"),
        *(f">{in_plural(noun)}", ""),
        folding=("state", "thread"),
    )
    block = "#" if console.options.ascii_only else "█"
    listed = of.places[:_MOST_PLACES]
    # With several hosts threads have longer names than the kernel's.
    longer = max((len(place.symbol.role or "") - _THREAD for place in listed), default=0)
    room = min(_BAR, max(0, console.width - _BESIDE_BAR - max(0, longer)))
    for place in listed:
        state = place.symbol.state.name
        table.add_row(
            Text(word_state(state), style=_colour(state)),
            shown(place.symbol.role or _OWN, console),
            shown(format_ns(place.time), console),
            Text(format_share(place.share)),
            Text(f"{place.count:,.3g}" if place.count < 1000 else f"{place.count:,.0f}"),
            Text(f"{place.executions:,}"),
            Text(block * max(min(1, room), round(room * place.share)), style=_colour(state)),
        )
    beyond = of.places[_MOST_PLACES:]
    if beyond:
        table.add_row(
            Text(f"({len(beyond)} further)", style="dim"),
            Text(),
            shown(format_ns(sum(p.time for p in beyond)), console),
            Text(format_share(sum(p.share for p in beyond))),
        )
    return table


def render_path(document: PathDocument, console: Console, *, most: int = 200) -> None:
    """Print a path: what the subject's time was spent on, in order, then in sum.

    Parameters
    ----------
    document : dict
        From `path_document`.
    console : rich.console.Console
    most : int
        Segments to list: the longest, in order of time; what is left out between
        them is counted, with its time.
    """
    subject = document.subject
    segments = document.segments
    window = document.end - document.begin
    execution = " ".join(filter(None, (document.execution, document.label)))
    which = f", {execution}" if execution else ""
    print_line(
        console,
        f"{sentences.thread_of(subject)}{which}: {format_ns(window)} in "
        f"{plural(len(segments), 'segment')}",
        style="bold",
    )
    loss = document.loss
    if loss.events or loss.packets:
        print_line(
            console,
            f"warning: {plural(loss.events, 'event')} and "
            f"{plural(loss.packets, 'packet')} lost meanwhile",
            style="yellow",
        )
    for said in requests.path_sure(document.uncertainty_ns, document.confidence):
        print_line(console, said)
    if document.unexplained:
        print_line(
            console,
            f"{format_ns(document.unexplained)} "
            f"({format_share(document.unexplained / max(window, 1))}) unexplained",
            style="yellow",
        )
    if not segments:
        return
    console.print()
    console.print(_timeline(document, console, most))
    if len(segments) > most:
        print_line(
            console,
            f"{plural(len(segments) - most, 'shorter segment')} left out; "
            "`--format json` has them all.",
            style="dim",
        )
    console.print()
    console.print(_totals(document, console))


def _timeline(document: PathDocument, console: Console, most: int) -> Table:
    segments = document.segments
    by_length = sorted(range(len(segments)), key=lambda i: (segments[i].begin - segments[i].end, i))
    kept = set(by_length[:most])
    table = new_table(
        console, ">at", ">for", "thread", "state", "detail", folding=("thread", "detail")
    )
    skipped = time = 0
    for i, segment in enumerate(segments):
        length = segment.end - segment.begin
        if i not in kept:
            skipped, time = skipped + 1, time + length
            continue
        _add_skipped(table, skipped, time, console)
        skipped = time = 0
        table.add_row(
            shown(format_ns(segment.begin - document.begin, sign=True), console),
            shown(format_ns(length), console),
            shown(sentences.thread_of(segment), console),
            Text(segment.state, style=_colour(segment.state)),
            shown(sentences.detail_of(segment), console),
        )
    _add_skipped(table, skipped, time, console)
    return table


def _add_skipped(table: Table, count: int, time: int, console: Console) -> None:
    if count:
        text = f"({plural(count, 'shorter segment')})"
        table.add_row(Text(), shown(format_ns(time), console), Text(text, style="dim"))


def _totals(document: PathDocument, console: Console) -> Table:
    table = new_table(console, "state", ">total", ">share", "")
    whole = max(1, sum(document.totals.values()))
    block = "#" if console.options.ascii_only else "█"
    for state, ns in sorted(document.totals.items(), key=lambda item: (-item[1], item[0])):
        bar = block * max(1 if ns else 0, round(_BAR * ns / whole))
        table.add_row(
            shown(word_state(state), console),
            shown(format_ns(ns), console),
            Text(format_share(ns / whole)),
            Text(bar, style=_colour(state)),
        )
    return table


def _colour(state: str) -> Style:
    look = LOOKS.get(state)
    return Style(color=look.colour) if look else Style()
