"""``critpath report``: a saved comparison or saved paths, rendered again."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from critpath.commands.output import (
    STDOUT,
    check_inputs,
    check_outputs,
    make_console,
    write_output,
)
from critpath.commands.path import print_paths
from critpath.commands.saved import load_saved
from critpath.commands.settings import Settings
from critpath.errors import UsageError

SUMMARY = "render a saved comparison (compare --json) or saved paths (extract) again"
SETTINGS = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the verb takes beside settings."""
    parser.add_argument(
        "file", metavar="FILE", help="of compare --json or extract (- for JSON from stdin)"
    )
    parser.add_argument("--html", metavar="FILE", help="write a report page (- for stdout)")
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Render and return 0: the verdict was given when the comparison was made."""
    del settings
    source = Path(arguments.file)
    if arguments.file != STDOUT:
        check_inputs([source])
        check_outputs([arguments.html], [source])
    else:
        check_outputs([arguments.html])

    from critpath.baseline.format import is_baseline_file  # noqa: PLC0415 - numpy
    from critpath.store import is_paths_file  # noqa: PLC0415 - numpy

    saved = arguments.file != STDOUT
    if saved and (is_paths_file(source) or is_baseline_file(source)):
        if arguments.html is not None:
            raise UsageError(
                f"{source} holds paths, and --html shows a comparison",
                f"critpath compare {source} SAMPLE --html {arguments.html}",
            )
        from critpath import pipeline  # noqa: PLC0415 - the stages

        print_paths(pipeline.saved_paths(source), arguments.format)
        return 0
    _render(load_saved(arguments.file), arguments)
    return 0


def _render(document: dict[str, Any], arguments: argparse.Namespace) -> None:
    is_path = str(document.get("format", "")).startswith("critpath/path/")
    if arguments.html is not None:
        if is_path:
            raise UsageError(
                f"{arguments.file} holds a path, and --html shows a comparison",
                "give a file of critpath compare --json",
            )
        from critpath.report.as_html import render_html  # noqa: PLC0415 - start-up time

        write_output(arguments.html, render_html(document))
    if arguments.html == STDOUT:
        return
    if arguments.format == "json":
        from critpath.report.as_json import to_json  # noqa: PLC0415 - start-up time

        write_output(STDOUT, to_json(document))
        return
    from critpath.report.as_text import render_comparison  # noqa: PLC0415 - as above
    from critpath.report.text_path import render_path  # noqa: PLC0415 - as above

    (render_path if is_path else render_comparison)(document, make_console())
