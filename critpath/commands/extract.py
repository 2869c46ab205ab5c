"""``critpath extract``: critical paths of every execution, saved."""

from __future__ import annotations

import argparse
from pathlib import Path

from critpath.commands.output import (
    STDOUT,
    check_inputs,
    check_outputs,
    hint,
    messages_of,
    require_executions,
    warn,
)
from critpath.commands.progress import Progress
from critpath.commands.settings import READING, Settings
from critpath.errors import UsageError
from critpath.units import plural

SUMMARY = "save the critical path of every execution, for compare and report"
SETTINGS = READING


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the verb takes beside settings."""
    parser.add_argument(
        "traces", metavar="TRACE", type=Path, nargs="+", help="recordings, CTF traces or baselines"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE.parquet", required=True, help="where to save them"
    )
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Extract, save and return the exit code."""
    if arguments.output == STDOUT:
        raise UsageError("Parquet cannot go to stdout", "name a file with -o")
    check_inputs(arguments.traces)
    check_outputs([arguments.output], arguments.traces, force=arguments.force)

    from critpath import pipeline  # noqa: PLC0415 - numpy and the stages
    from critpath.store import save_paths  # noqa: PLC0415 - numpy

    with Progress(quiet=settings["quiet"]) as progress:
        paths = pipeline.extract(
            arguments.traces,
            specification=settings["execution"],
            reader=settings["reader"],
            interrupts=settings["interrupts"],
            progress=progress,
        )
        require_executions(paths, arguments.traces)
        save_paths(paths, Path(arguments.output))
    warn(messages_of(paths), quiet=settings["quiet"])
    hint(
        f"{plural(len(paths), 'execution')} of {plural(len(paths.sources), 'recording')} "
        f"saved to {arguments.output}; next: critpath compare {arguments.output} SAMPLE",
        quiet=settings["quiet"],
    )
    return 0
