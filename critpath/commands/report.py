"""``critpath report``: a saved comparison, calibration or saved paths, rendered again."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from critpath.commands.declared import flag, option
from critpath.commands.output import STDOUT, make_console, write_output
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

_COMPARISON: Final = "comparison"
_KINDS: Final = {
    "path": "a path",
    "calibration": "a calibration",
    "ab": "a run of ab",
    "exploration": "an exploration",
}


OPTIONS: Final = (
    option("file", "FILE", "of compare --json or extract (- for JSON from stdin)"),
    *OUTPUTS,
    option("--format", None, "", default="text", choices=("text", "json")),
    flag("--segments", "of extract: every path in order of time, as critpath path has it"),
)  # fmt: skip


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Render and return 0: the verdict was given when the comparison was made."""
    source = Path(arguments.file)
    inputs = [] if arguments.file == STDOUT else [source]
    check_inputs(inputs)
    outputs = wanted_outputs(arguments, inputs, settings["trace-url"])
    if outputs.github and arguments.format == "json":
        raise UsageError("--format json and --github both write to stdout", "use one of them")

    from critpath.store import find_format  # noqa: PLC0415 - start-up time

    if inputs and find_format(source):
        _refuse_outputs(
            outputs, f"{source} holds paths", f"critpath compare {source} SAMPLE shows them"
        )
        # What extract wrote, or a baseline: nothing is read anew.
        from critpath import flow  # noqa: PLC0415 - the stages

        paths = flow.load_saved_paths(source)
        print_paths(paths, arguments.format, segments=arguments.segments)
        return 0
    document = load_saved(arguments.file)
    kind = document.format.split("/")[1]
    if kind != _COMPARISON:
        _refuse_outputs(
            outputs,
            f"{arguments.file} holds {_KINDS[kind]}",
            "give a file of critpath compare --json",
        )
    if arguments.format == "json":
        _as_json(document, outputs)
    elif kind == _COMPARISON:
        write_reports(cast("ComparisonDocument", document), outputs)
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
