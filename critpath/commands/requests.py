"""``critpath requests``: what was asked of whom, for whom, and how surely that is known."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from critpath.commands.declared import FORCE, JSON, option
from critpath.commands.output import (
    STDOUT,
    Progress,
    check_outputs,
    hint,
    make_console,
    write_output,
)
from critpath.commands.settings import READING, Settings
from critpath.commands.sources import check_inputs
from critpath.units import safe_text

if TYPE_CHECKING:
    from critpath.documents.requests import RequestsDocument, ServiceEntry

SETTINGS = READING


OPTIONS: Final = (
    option("traces", "RECORDING", "recordings with sockets (--profile requests), or directories of "
        "them", Path, nargs="+"),
    JSON,
    FORCE,
)  # fmt: skip


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Show a row per service, and return 0."""
    check_inputs(arguments.traces)
    check_outputs([arguments.json], arguments.traces, force=arguments.force)

    from critpath import (  # noqa: PLC0415 - numpy and the stages
        __version__,
        flow,
        model,
    )
    from critpath.report.document import to_json  # noqa: PLC0415 - start-up time
    from critpath.requests import sum_services  # noqa: PLC0415 - numpy and the stages

    chosen = model.ExtractSettings(
        settings["execution"] or "requests", settings["reader"], max_memory=settings["max-memory"]
    )
    with Progress(quiet=settings["quiet"]) as progress:
        sketches = flow.read_sketches(arguments.traces, chosen, progress)
    found = sum_services(sketches, __version__)
    for note in found.notes:
        hint(note, quiet=settings["quiet"])
    if arguments.json:
        write_output(arguments.json, to_json(found) + "\n")
    if arguments.json != STDOUT:
        _show(found)
    return 0


def _show(found: RequestsDocument) -> None:
    from rich.table import Table  # noqa: PLC0415 - start-up time

    from critpath.report.text import print_line  # noqa: PLC0415 - as above
    from critpath.text.requests import (  # noqa: PLC0415 - as above
        callers_text,
        calls_text,
        how_text,
        left_out_text,
        left_text,
        sure_text,
        untold_text,
    )

    table = Table(box=None, pad_edge=False, header_style="")
    table.add_column("service")
    table.add_column("requests", justify="right")
    for name in ("calls each", "from"):
        table.add_column(name)
    table.add_column("sure", justify="right")
    table.add_column("how")
    gaps = any(of.left_out is not None for of in found.services)
    if gaps:
        for name in ("left out", "p50, p99 weighed"):
            table.add_column(name, justify="right")

    def row(of: ServiceEntry) -> tuple[str, ...]:
        texts: tuple[str, ...] = (calls_text(of), callers_text(of), sure_text(of), how_text(of))
        texts += left_out_text(of) if gaps else ()
        return (safe_text(of.service), f"{of.requests:,}", *map(safe_text, texts))

    for of in found.services:
        table.add_row(*row(of))
    console = make_console()
    console.print(table)
    for of in found.services:
        if said := untold_text(of):
            print_line(console, said, style="yellow")
    console.print(left_text(found))
