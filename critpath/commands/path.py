"""``critpath path``: the critical path of a thread, or of every execution."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from critpath.commands.output import (
    check_inputs,
    make_console,
    messages_of,
    require_executions,
    warn,
)
from critpath.commands.parser import checked
from critpath.commands.progress import Progress
from critpath.commands.settings import READING, Settings
from critpath.commands.values import whole
from critpath.errors import UsageError

if TYPE_CHECKING:
    from critpath.model import PathSet

SUMMARY = "show what a thread, or every execution, spent its time on"
SETTINGS = READING


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the verb takes beside settings."""
    parser.add_argument("trace", metavar="TRACE", type=Path, help="a recording or CTF trace")
    who = parser.add_mutually_exclusive_group()
    who.add_argument(
        "--tid", type=checked(whole(1, 2**31 - 1)), metavar="N", help="this thread's whole life"
    )
    who.add_argument("--comm", metavar="NAME", help="every thread of this name")
    for option, what in (("--from", "begin"), ("--to", "end")):
        parser.add_argument(
            option,
            dest=what,
            type=checked(whole(0, 2**63 - 1)),
            metavar="NS",
            help=f"{what} of the window, in ns of the trace's clock",
        )
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="json: one object a line"
    )


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the paths and return the exit code."""
    check_inputs([arguments.trace])
    paths = _paths(arguments, settings)
    warn(messages_of(paths), quiet=settings["quiet"])
    print_paths(paths, arguments.format)
    return 0


def _paths(arguments: argparse.Namespace, settings: Settings) -> PathSet:
    window = arguments.begin is not None or arguments.end is not None
    threads = window or arguments.tid is not None or arguments.comm is not None
    if threads and settings.origins["execution"] == "command line":
        raise UsageError(
            "--execution together with a thread or a window", "use one way to say what to show"
        )
    if None not in {arguments.begin, arguments.end} and arguments.begin >= arguments.end:
        raise UsageError("--from is not before --to", "exchange them")

    from critpath import pipeline  # noqa: PLC0415 - numpy and the stages

    with Progress(quiet=settings["quiet"]) as progress:
        progress(f"reading {arguments.trace}")
        if not threads:
            paths = pipeline.extract(
                [arguments.trace],
                specification=settings["execution"],
                reader=settings["reader"],
                interrupts=settings["interrupts"],
                progress=progress,
            )
            require_executions(paths, [arguments.trace])
            return paths
        paths = pipeline.thread_paths(
            arguments.trace,
            tid=arguments.tid,
            comm=arguments.comm,
            begin=arguments.begin,
            end=arguments.end,
            reader=settings["reader"],
            interrupts=settings["interrupts"],
        )
    if not len(paths):
        who = (
            f"thread {arguments.tid}"
            if arguments.tid is not None
            else f"thread named {arguments.comm}"
            if arguments.comm is not None
            else "thread"
        )
        raise UsageError(
            f"no {who} in {arguments.trace}" + " within the window" * window,
            f"critpath path {arguments.trace} --execution thread shows every thread",
        )
    return paths


def print_paths(paths: PathSet, format_: str) -> None:
    """Print every path of a set as text, or as JSON, one object a line."""
    if format_ == "json":
        from critpath.report.document_path import path_json  # noqa: PLC0415 - start-up time

        for index in range(len(paths)):
            sys.stdout.write(
                path_json(
                    paths.paths,
                    index,
                    tid=int(paths.executions.tid[index]),
                    comm=paths.executions.comm[index],
                    losses=paths.losses,
                )
            )
        return
    from critpath.report.document_path import path_document  # noqa: PLC0415 - start-up time
    from critpath.report.text_path import render_path  # noqa: PLC0415 - as above

    console = make_console()
    for index in range(len(paths)):
        document = path_document(
            paths.paths,
            index,
            tid=int(paths.executions.tid[index]),
            comm=paths.executions.comm[index],
            losses=paths.losses,
        )
        render_path(document, console)
