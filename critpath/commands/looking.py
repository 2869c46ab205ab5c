"""The first look at a trace (``critpath path``): what is there, and what can be asked next."""

from __future__ import annotations

import argparse
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from critpath.commands.output import (
    STDOUT,
    Progress,
    hint,
    make_console,
    warn,
    write_output,
    write_rows,
)
from critpath.commands.settings import Settings
from critpath.errors import UsageError
from critpath.units import plural

if TYPE_CHECKING:
    from critpath.documents.look import LookDocument

SORTS: Final = ("cpu", "wait", "worst", "blocked", "wakes", "migrations")
ROWS_OF: Final = ("process", "thread")
FORMATS: Final = ("text", "json", "csv")
_ROWS: Final = 10  # of text


def is_asked(arguments: argparse.Namespace) -> bool:
    """Tell whether the look is asked for, whatever an execution of the trace is."""
    return bool(
        arguments.look or arguments.sort or arguments.by in ROWS_OF or arguments.format == "csv"
    )


def names_paths(arguments: argparse.Namespace) -> str:
    """Return the option that asks for paths, which a look has not; "" for none."""
    threads = (arguments.tid, arguments.comm, arguments.begin, arguments.end, arguments.id)
    options = ("--tid", "--comm", "--from", "--to", "--id")
    asked = [name for name, value in zip(options, threads, strict=True) if value is not None]
    asked += ["--segments"] * arguments.segments + ["--by tier"] * (arguments.by == "tier")
    return next(iter([*asked, *["--partial"] * arguments.partial]), "")


def show_look(arguments: argparse.Namespace, settings: Settings, name: str) -> None:
    """Show what is in a trace, or write it."""
    if option := names_paths(arguments):
        raise UsageError(
            f"{option} is about paths, and this is a look at the whole trace",
            f"leave {option} out, or --look, --sort, --by thread and --format csv",
        )
    if name not in FORMATS:
        raise UsageError(
            f"{name} is a format of paths, and this is a look at the whole trace",
            f"choose --format {', '.join(FORMATS[:-1])} or {FORMATS[-1]}",
        )
    document = _look(arguments, settings, 0 if name != "text" else _ROWS)
    warn(document.warnings, quiet=settings["quiet"])
    if name == "json":
        from critpath.report.document import to_json  # noqa: PLC0415 - start-up time

        text = to_json(document) + "\n"
    elif name == "csv":
        text = _write_csv(document, arguments.by)
    else:
        from critpath.report.text import render_look  # noqa: PLC0415 - start-up time

        if arguments.output == STDOUT:
            render_look(document, make_console(), by=arguments.by or "")
            _hint_next(document, settings)
            return
        stream = StringIO()
        render_look(document, make_console(stream), by=arguments.by or "")
        text = stream.getvalue()
    write_output(arguments.output, text)
    if arguments.output != STDOUT:
        what = plural(len(document.threads), "thread")
        hint(f"{what} written to {arguments.output}", quiet=settings["quiet"])


def _look(arguments: argparse.Namespace, settings: Settings, most: int) -> LookDocument:
    from critpath.glance import look  # noqa: PLC0415 - numpy and the stages
    from critpath.progress import Stage  # noqa: PLC0415 - as above
    from critpath.read import find_recordings  # noqa: PLC0415 - as above
    from critpath.store import find_format  # noqa: PLC0415 - as above

    trace: Path = arguments.trace
    if find_format(trace) in {"paths", "dataset"}:
        raise UsageError(
            f"{trace} holds paths alone", "name the recording that they were extracted from"
        )
    found = find_recordings(trace)
    if len(found) > 1:
        raise UsageError(
            f"{trace} has {plural(len(found), 'recording')}, and a look is at one",
            f"name one of them, such as {found[0]}",
        )
    with Progress(quiet=settings["quiet"]) as progress:
        return look(
            found[0],
            sort=arguments.sort or "cpu",
            most=arguments.top or most,
            reader=settings["reader"],
            max_memory=settings["max-memory"],
            begin=lambda: Stage(progress, f"reading {trace}"),
        )


def _hint_next(document: LookDocument, settings: Settings) -> None:
    from critpath.text.look import next_commands  # noqa: PLC0415 - start-up time

    for number, command in enumerate(next_commands(document)):
        hint(f"{'     ' if number else 'next:'} {command}", quiet=settings["quiet"])


def _write_csv(document: LookDocument, by: str | None) -> str:
    """Return the lines: a row for each thread, or process."""
    from critpath.documents.look import flatten_rows  # noqa: PLC0415 - start-up time

    rows = list(flatten_rows(document.processes if by == "process" else document.threads))
    return write_rows([*rows[:1], *(of.values() for of in rows)])
