"""The first look at a trace, on a terminal: the machine, then processes and threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from critpath.documents.look import LookDocument, LookProcess, LookRow, LookThread, SortKey
from critpath.report.text.table import print_line, shown
from critpath.text import look as words
from critpath.units import format_ns, format_share

_FEW: Final = 5  # processes beside threads
_BETWEEN: Final = 2
_WIDEST: Final = 40
_LEFT: Final = {"thread", "process", "had it", "blocked by"}
# What there is room for: the first ones before others, and what is sorted by before all.
_NEEDED: Final = (
    *("thread", "process", "on CPU", "waited", "longest", "blocked by", "tid", "pid", "had it"),
    *("p99", "at", "threads", "%", "wakes", "p50", "migrations"),
)
NAMELESS: Final = "(no name)"
_SORTED: Final[dict[SortKey, tuple[str, ...]]] = {
    "worst": ("longest", "had it", "at"),
    "wakes": ("wakes",),
    "migrations": ("migrations",),
}


def render_look(document: LookDocument, console: Console, *, by: str = "") -> None:
    """Print what is in a trace.

    Parameters
    ----------
    document : LookDocument
    console : rich.console.Console
    by : str
        ``process`` or ``thread``: these alone; "" for both.
    """
    print_line(console, words.headline(document), style="bold")
    if said := words.where_and_when(document):
        print_line(console, said)
    lost = words.losses(document)
    for line in lost:
        print_line(console, line, style="yellow")
    for line in words.load(document):
        print_line(console, line)
    if said := words.worst_wait(document):
        print_line(console, said)
    if document.events:
        print_line(console, words.events(document))
    processes, threads = document.processes, document.threads
    dropped: list[str] = []
    several = any(row.threads > 1 for row in processes)
    if by == "process" or (not by and several):
        few = processes if by else processes[:_FEW]
        further = document.further_processes + len(processes) - len(few)
        dropped = _print_rows(console, document, "process", few, further)
    if by != "process" and threads:
        dropped = _print_rows(console, document, "thread", threads, document.further_threads)
    if threads:
        print_line(console, words.LEGEND, style="dim")
    if dropped:
        print_line(console, words.no_room(dropped), style="dim")


def _print_rows(
    console: Console,
    document: LookDocument,
    noun: str,
    rows: Sequence[LookRow],
    further: int,
) -> list[str]:
    """Print a table of processes or threads; return the columns that there was no room for."""
    console.print()
    nouns = {"process": "processes", "thread": "threads"}
    print_line(console, words.title(nouns[noun], document.sort, len(rows), further), style="bold")
    columns = _columns(document, noun)
    cells = {name: [make(row) for row in rows] for name, make in columns.items()}
    # A trace may name its threads anything.
    widths = {name: min(max(map(cell_len, [name, *cells[name]])), _WIDEST) for name in columns}
    some = [name for name in columns if any(cells[name])]
    needed = [noun, *_SORTED.get(document.sort, ())]
    needed += [name for name in _NEEDED if name not in needed]
    chosen: set[str] = set()
    room = console.width + _BETWEEN
    for name in needed:
        if name in some and widths[name] + _BETWEEN <= room:
            chosen.add(name)
            room -= widths[name] + _BETWEEN
    kept = [name for name in some if name in chosen]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    table.padding = (0, 1, 0, 0)
    for name in kept:
        table.add_column(
            shown(name, console),
            justify="left" if name in _LEFT else "right",
            no_wrap=True,
            max_width=_WIDEST,
        )
    for at in range(len(rows)):
        table.add_row(*(shown(cells[name][at], console) for name in kept))
    console.print(table)
    return [name for name in some if name not in chosen]


def _columns(document: LookDocument, noun: str) -> dict[str, Callable[[LookRow], str]]:
    """Return what makes the cells of each column, from left to right."""

    def time(ns: int | None) -> str:
        return format_ns(ns) if ns else ""

    def share(row: LookRow) -> str:
        return format_share(row.cpu / max(document.end - document.begin, 1))

    ids: dict[str, Callable[[LookRow], str]] = (
        {"tid": lambda row: f"{row.tid}" if isinstance(row, LookThread) else ""}
        if noun == "thread"
        else {
            "pid": lambda row: f"{row.pid}" if row.pid is not None else "",
            "threads": lambda row: f"{row.threads:,}" if isinstance(row, LookProcess) else "",
        }
    )
    return {
        noun: lambda row: (
            (row.comm or NAMELESS) + (f" on {row.host}" if len(document.hosts) > 1 else "")
        ),
        **ids,
        "on CPU": lambda row: time(row.cpu),
        "%": share,
        "waited": lambda row: time(row.wait),
        "p50": lambda row: time(row.wait_p50),
        "p99": lambda row: time(row.wait_p99),
        "longest": lambda row: words.longest(row.worst),
        "at": lambda row: format_ns(row.worst.begin - document.begin) if row.worst else "",
        "had it": lambda row: words.rival(row.worst) if row.worst else "",
        "blocked by": words.blockers,
        "wakes": lambda row: f"{row.wakes:,}" if row.wakes else "",
        "migrations": lambda row: f"{row.migrations:,}" if row.migrations else "",
    }
