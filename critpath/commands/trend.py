"""``critpath trend``: where commits became slower, by the answers that CI keeps of each."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from critpath.commands.declared import FORCE, option
from critpath.commands.output import STDOUT, check_outputs, make_console, warn, write_output
from critpath.commands.reports import load_saved
from critpath.commands.settings import Settings
from critpath.commands.sources import check_inputs
from critpath.errors import CritpathError, UnreadableError

if TYPE_CHECKING:
    from rich.console import Console

    from critpath.ab import Answer, Named
    from critpath.documents.trend import TrendDocument

SETTINGS = ()
# 20261130T042158Z-BASE..COMMIT, of which only COMMIT must be.
_NAME: Final = re.compile(r"(?:(\d{8}T\d{6}Z)-)?(?:(.+?)\.\.)?(.+)")
_KEPT: Final = "ab.json"  # of `ab -o DIR`: the directory has the name

OPTIONS: Final = (
    option("directory", "DIR", "answers of ab --json or compare --json, TIME-BASE..COMMIT.json "
        "(20261130T042158Z-v1.4..2070c7b.json; only COMMIT must be), and directories of ab -o; in "
        "order of their names", Path),
    option("--html", "FILE", "write a page (- for stdout)"),
    option("--format", None, "", default="text", choices=("text", "json")),
    FORCE,
)  # fmt: skip


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Say where commits became slower; 1 where the latest change, or the newest answer, is."""
    check_inputs([arguments.directory])
    check_outputs([arguments.html], [arguments.directory], force=arguments.force)
    answers = _load(arguments.directory, quiet=settings["quiet"])

    from critpath.ab import find_trend  # noqa: PLC0415 - start-up time

    document = find_trend(answers)
    if arguments.html is not None:
        from critpath.report.html import render_trend_page  # noqa: PLC0415 - start-up time

        write_output(arguments.html, render_trend_page(document))
    if arguments.format == "json":
        from critpath.report.document import to_json  # noqa: PLC0415 - start-up time

        write_output(STDOUT, to_json(document))
    elif arguments.html != STDOUT:
        _show(document, make_console())
    return document.exit


def _load(directory: Path, *, quiet: bool) -> list[tuple[Named, Answer]]:
    """Return the answers in a directory by name; warn of other files, which are left out."""
    from critpath.ab import Named  # noqa: PLC0415 - start-up time
    from critpath.documents import AbDocument, ComparisonDocument  # noqa: PLC0415 - as above

    if not directory.is_dir():
        raise UnreadableError(f"{directory} is no directory", "give one with an answer per commit")
    places = {path.stem: path for path in directory.glob("*.json")}
    places |= {path.parent.name: path for path in directory.glob(f"*/{_KEPT}")}
    found: list[tuple[Named, Answer]] = []
    for name, place in sorted(places.items()):
        try:
            document = load_saved(str(place))
        except CritpathError as error:
            warn([f"left out: {place}: {error.what}"], quiet=quiet)
            continue
        if isinstance(document, AbDocument | ComparisonDocument):
            parts = _NAME.fullmatch(name)
            words = parts.groups("") if parts else ("", "", name)
            found.append((Named(*words), document))
        else:
            warn([f"left out: {place} is no answer of ab or compare"], quiet=quiet)
    if not found:
        raise UnreadableError(
            f"{directory} has no answer of ab or compare",
            "keep one of each commit: critpath ab --json DIR/TIME-COMMIT.json",
        )
    return found


def _show(document: TrendDocument, console: Console) -> None:
    """Print the answer, and every commit with the level of each kind."""
    from critpath.report.text import new_table, print_line, shown  # noqa: PLC0415 - start-up time
    from critpath.text import trend as text  # noqa: PLC0415 - as above

    first, *others = document.lines
    print_line(console, first)
    for line in others:
        print_line(console, f"  {line}")
    kinds = [f">{series.kind or 'time'}" for series in document.series]
    table = new_table(console, "commit", "answer", *kinds, folding=("commit", "answer"))
    changes = {(series.kind, change.at) for series in document.series for change in series.changes}
    for at, commit in enumerate(document.commits):
        cells = [
            text.describe_level(series.levels[at])
            + (" *" if (series.kind, at) in changes else "  ")
            for series in document.series
        ]
        row = [commit.name, text.describe_commit(commit), *cells]
        table.add_row(*(shown(cell, console) for cell in row))
    console.print(table)
    if changes:
        print_line(console, "* here it changes")
