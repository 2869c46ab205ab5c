"""``critpath report``: a saved comparison, calibration or saved paths, rendered again."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import structs

from critpath.commands.declared import flag, option
from critpath.commands.output import STDOUT, hint, make_console, write_output, write_pieces
from critpath.commands.path import print_paths
from critpath.commands.reports import (
    OUTPUTS,
    Outputs,
    load_saved,
    wanted_outputs,
    write_files,
    write_reports,
)
from critpath.commands.settings import LINKING, Settings
from critpath.commands.sources import check_inputs
from critpath.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from critpath.documents import ComparisonDocument, Document


SETTINGS = LINKING

MOST_BYTES: Final = 300_000  # of a page that is shown to others
_COMPARISON: Final = "comparison"
_KINDS: Final = {
    "path": "a path",
    "calibration": "a calibration",
    "ab": "a run of ab",
    "exploration": "an exploration",
}


OPTIONS: Final = (
    option("file", "FILE", "of compare --json, calibrate --json, ab --json, explore --json, or "
        "saved paths (- for JSON from stdin)"),
    *OUTPUTS,
    option("--format", None, "", default="text", choices=("text", "json")),
    flag("--redact", "replace names of hosts, users, commands, files, paths and messages, and "
        "keep a page below 300 kB, to be shown to others"),
    flag("--redact-threads", "replace names of threads and programs, too"),
    flag("--segments", "of saved paths: every path in order of time, as critpath path has it"),
)  # fmt: skip


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Render and return 0: the verdict was given when the comparison was made."""
    source = Path(arguments.file)
    inputs = [] if arguments.file == STDOUT else [source]
    check_inputs(inputs)
    outputs = wanted_outputs(arguments, inputs, settings["trace-url"])
    if outputs.github and arguments.format == "json":
        raise UsageError("--format json and --github both write to stdout", "use one of them")

    redacted = arguments.redact or arguments.redact_threads
    from critpath.store import find_format  # noqa: PLC0415 - start-up time

    if inputs and find_format(source):
        _refuse_outputs(
            outputs, f"{source} holds paths", f"critpath compare {source} SAMPLE shows them"
        )
        _refuse_redacting(f"{source} holds paths", redacted=redacted)
        # Saved paths, or a baseline: nothing is read anew.
        from critpath import flow  # noqa: PLC0415 - the stages

        paths = flow.load_saved_paths(source)
        if arguments.format == "json":
            from critpath.report.document import write_paths  # noqa: PLC0415 - start-up time

            write_pieces(STDOUT, write_paths(paths))
        else:
            print_paths(paths, segments=arguments.segments)
        return 0
    document = load_saved(arguments.file)
    kind = document.format.split("/")[1]
    if kind != _COMPARISON:
        _refuse_outputs(
            outputs,
            f"{arguments.file} holds {_KINDS[kind]}",
            "give a file of critpath compare --json",
        )
        _refuse_redacting(f"{arguments.file} holds {_KINDS[kind]}", redacted=redacted)
    elif redacted:
        document = redact_names(
            cast("ComparisonDocument", document),
            threads=arguments.redact_threads,
            page="html" in outputs.places,
        )
        # An address of a tracing UI tells whose it is.
        outputs = structs.replace(outputs, trace_url="")
        hint(document.warnings[-1], quiet=settings["quiet"])
    if arguments.format == "json":
        _as_json(document, outputs)
    elif kind == _COMPARISON:
        write_reports(cast("ComparisonDocument", document), outputs)
        if redacted and (page := outputs.places.get("html", STDOUT)) != STDOUT:
            hint(f"to be shown to others: {page}", quiet=settings["quiet"])
    else:
        _renderer(kind)(document, make_console())
    return 0


def _as_json(document: Document, outputs: Outputs) -> None:
    from critpath.report.document import to_json  # noqa: PLC0415 - start-up time

    text = to_json(document)
    # Only a comparison has other outputs.
    write_files(cast("ComparisonDocument", document), outputs.places)
    if not outputs.to_stdout:
        write_output(STDOUT, text)


def _refuse_outputs(outputs: Outputs, what: str, do: str) -> None:
    options = [f"--{name}" for name in outputs.places] + ["--github"] * outputs.github
    if options:
        raise UsageError(f"{what}, and {options[0]} shows a comparison", do)


def _refuse_redacting(what: str, *, redacted: bool) -> None:
    if redacted:
        raise UsageError(f"{what}, and --redact is of comparisons", "leave --redact out")


def _renderer(kind: str) -> Callable[[Any, Console], None]:
    if kind == "path":
        from critpath.report.text import render_path  # noqa: PLC0415 - start-up time

        return render_path
    if kind == "ab":
        from critpath.report.text import render_ab  # noqa: PLC0415 - start-up time

        return render_ab
    if kind == "exploration":
        from critpath.report.text import render_exploration  # noqa: PLC0415 - start-up time

        return render_exploration
    from critpath.report.text import render_calibration  # noqa: PLC0415 - start-up time

    return render_calibration


# What is shown to others.


def redact_names(document: ComparisonDocument, *, threads: bool, page: bool) -> ComparisonDocument:
    """Replace names; of what a page would have too much of, leave examples out.

    Its last warning says what was replaced.  `threads`: names of threads and programs, too.
    """
    from critpath.report.document import redact, to_json  # noqa: PLC0415 - start-up time
    from critpath.report.html import render_html  # noqa: PLC0415 - start-up time

    render = render_html if page else to_json
    shared = redact(document, threads=threads, users=_users(), render=render)
    if not page:
        return shared
    size = len(render_html(shared).encode())
    for kept in (8, 4, 2, 1, 0):
        if size < MOST_BYTES:
            return shared
        shared.aligned = shared.aligned[:kept]
        if shared.pictures is not None:
            shared.pictures.paths = shared.pictures.paths[: 8 * kept]
        size = len(render_html(shared).encode())
    if size >= MOST_BYTES:
        raise UsageError(
            f"the page has {size:,} bytes, and {MOST_BYTES:,} are the limit of a shared one",
            "share the Markdown: --markdown FILE instead of --html",
        )
    return shared


def _users() -> set[str]:
    """Return who is at work here, by the names that paths and commands may have of them."""
    names = {os.environ.get(key, "") for key in ("USER", "LOGNAME", "SUDO_USER")}
    return {name for name in names if name}
