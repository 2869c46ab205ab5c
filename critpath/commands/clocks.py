"""``critpath clocks``: how well the clocks of several hosts' recordings agree."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from critpath.commands.declared import FORCE, JSON, option
from critpath.commands.output import (
    STDOUT,
    Progress,
    check_outputs,
    make_console,
    warn,
    write_output,
)
from critpath.commands.settings import Settings
from critpath.commands.sources import check_inputs
from critpath.units import format_ns, safe_text

if TYPE_CHECKING:
    from critpath.clocks import FoundClocks
    from critpath.documents.clocks import ClocksDocument, HostClockEntry
    from critpath.model.clocks import HostClock

SETTINGS = ("hosts",)
EXIT_UNKNOWN: Final = 3  # as `compare`'s inconclusive: the clock of a host is not known


OPTIONS: Final = (
    option("traces", "TRACE", "a recording or CTF trace of each host, or a directory with them",
        Path, nargs="+"),
    option("--reference-host", "HOST", "whose clock all others are compared with (default: the "
        "first by name)"),
    option("--clock-method", None, "bounds (what messages both ways leave possible), or for "
        "comparison icp (nearest neighbours and least squares in turns, as PInfer; it knows no "
        "bound) (default: bounds)", default="bounds", choices=("bounds", "icp")),
    JSON,
    FORCE,
)  # fmt: skip


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Align the clocks, say how surely, and return 3 where one is not known."""
    check_inputs(arguments.traces)
    check_outputs([arguments.json], arguments.traces, force=arguments.force)

    from critpath.clocks import read_clocks  # noqa: PLC0415 - start-up time
    from critpath.report.document import to_json  # noqa: PLC0415 - start-up time

    with Progress(quiet=settings["quiet"]) as progress:
        found = read_clocks(
            arguments.traces,
            arguments.reference_host,
            progress,
            nearest=arguments.clock_method == "icp",
        )
    warn(found.warnings, quiet=settings["quiet"])
    if arguments.json:
        write_output(arguments.json, to_json(_document(found)) + "\n")
    if arguments.json != STDOUT:
        _show(found)
    return 0 if all(clock.aligned for clock in found.alignment.hosts) else EXIT_UNKNOWN


def _document(found: FoundClocks) -> ClocksDocument:
    from critpath import __version__  # noqa: PLC0415 - as above
    from critpath.documents.clocks import CLOCKS_FORMAT, ClocksDocument  # noqa: PLC0415 - as above

    return ClocksDocument(
        format=CLOCKS_FORMAT,
        version=__version__,
        reference=found.alignment.reference,
        hosts=[_entry(clock) for clock in found.alignment.hosts],
        warnings=list(found.warnings),
    )


def _entry(clock: HostClock) -> HostClockEntry:
    from critpath.documents.clocks import (  # noqa: PLC0415 - as above
        ClockPiece,
        ClockStep,
        HostClockEntry,
    )

    source: Any = clock.source  # one of those that the schema has
    return HostClockEntry(
        host=clock.host,
        source=source,
        pieces=[
            ClockPiece(
                begin=line.begin, end=line.end, offset_ns=line.offset, drift=f"{line.drift:.12f}"
            )
            for line in clock.lines
        ],
        uncertainty_ns=clock.sure.tolist(),
        steps=[ClockStep(at=at, by_ns=-by) for at, by in clock.steps],
        messages=list(clock.messages),
        claim_ns=clock.claim if clock.claim >= 0 else None,
        claim_held=clock.claim_held,
    )


def _show(found: FoundClocks) -> None:
    from rich.table import Table  # noqa: PLC0415 - start-up time

    from critpath.text.clocks import claim_text  # noqa: PLC0415 - as above

    reference = safe_text(found.alignment.reference)
    table = Table(box=None, pad_edge=False, header_style="")
    table.add_column("host")
    for name in (f"ahead of {reference} by", "drift", "messages in / out", "within"):
        table.add_column(name, justify="right")
    table.add_column("pieces")
    begins = {of.host: of.begin for of in found.facts}
    for clock in found.alignment.hosts:
        table.add_row(safe_text(clock.host), *_cells(clock, begins[clock.host]))
    console = make_console()
    console.print(table)
    for clock in found.alignment.hosts:
        claim = claim_text(clock)
        if claim and clock.claim_held:
            console.print(claim)


def _cells(clock: HostClock, begin: int) -> tuple[str, ...]:
    """Return what a row says of a clock: ahead of the reference by, drift, and so on."""
    if clock.source == "reference":
        return ("0", "", "", "", "")
    if not clock.aligned:
        return ("not known", "", _messages(clock), "", "")
    ahead = -clock.lines[0].offset
    if clock.source == "same kernel":
        return (_seconds(ahead), "", "", "exactly", "the same kernel")
    pieces = str(len(clock.steps) + 1)
    if clock.steps:
        steps = ", ".join(
            f"{format_ns(-by, sign=True)} at {format_ns(at - begin)}" for at, by in clock.steps
        )
        pieces += f": {'steps' if len(clock.steps) > 1 else 'step'} {steps}"
    if clock.source == "samples":
        pieces += " (by the operating systems' clocks)"
    return (
        *(_seconds(ahead), f"{clock.drift * 1e6:+.2f} ppm", _messages(clock)),
        *(f"±{format_ns(clock.middle_bound)}" if len(clock.sure) else "no bound", pieces),
    )


def _messages(clock: HostClock) -> str:
    return f"{clock.messages[0]:,} / {clock.messages[1]:,}"


def _seconds(ns: int) -> str:
    """Return nanoseconds as seconds, digits in threes."""
    whole, rest = divmod(abs(ns), 10**9)
    digits = f"{rest:09d}"
    sign = "-" if ns < 0 else "+"
    return f"{sign}{whole:,}.{digits[:3]} {digits[3:6]} {digits[6:]} s"
