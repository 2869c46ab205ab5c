"""What ``compare`` and ``report`` write of a comparison, and where."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from critpath.commands import github
from critpath.commands.output import (
    STDOUT,
    attempt,
    check_outputs,
    make_console,
    write_output,
    write_together,
)
from critpath.errors import UsageError
from critpath.units import log_text

if TYPE_CHECKING:
    from rich.console import Console

    from critpath.documents import ComparisonDocument

_FILES: Final = {
    "html": "write a report page (- for stdout)",
    "json": "write the comparison (- for stdout)",
    "junit": "write JUnit XML, a test case per state and per cause, for CI systems (- for stdout)",
    "markdown": "write GitHub-flavoured Markdown, at most 60 kB (- for stdout)",
}


@dataclass(frozen=True)
class Outputs:
    """What is wanted of a comparison.

    Attributes
    ----------
    places : dict of str to str
        By kind of document the file, or ``-``.
    github : bool
        Annotations and a job's summary as well.
    """

    places: dict[str, str]
    github: bool

    @property
    def to_stdout(self) -> bool:
        """Whether stdout is a document's, so that nothing else may stand there."""
        return STDOUT in self.places.values()


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what to write."""
    for name, what in _FILES.items():
        parser.add_argument(f"--{name}", metavar="FILE", help=what)
    parser.add_argument(
        "--github",
        action="store_true",
        help="in a GitHub workflow: append the Markdown to the job's summary, annotate the run",
    )


def wanted_outputs(arguments: argparse.Namespace, inputs: Sequence[Path]) -> Outputs:
    """Return what the options ask for, checked before any work.

    Raises
    ------
    UsageError
        If it cannot be written, or two outputs would have one place.
    """
    given = {name: getattr(arguments, name) for name in _FILES}
    places = {name: place for name, place in given.items() if place is not None}
    outputs = Outputs(places, bool(arguments.github))
    if outputs.github and outputs.to_stdout:
        name = next(name for name, place in places.items() if place == STDOUT)
        raise UsageError(
            f"--{name} - and --github both write to stdout", f"give --{name} a file's name"
        )
    check_outputs([*places.values(), *(github.files() if outputs.github else ())], inputs)
    return outputs


def write_reports(document: ComparisonDocument, outputs: Outputs) -> None:
    """Write every document, and the text of the terminal unless stdout is one's.

    Everything is rendered before anything is written, and files are there all or none.
    They come first, as a reader of stdout may close early; but the verdict and the
    annotations are printed even where a file could not be written.

    Parameters
    ----------
    document : ComparisonDocument
    outputs : Outputs

    Raises
    ------
    CritpathError
        If something could not be written, after everything else was.
    """
    texts = {place: _render(name, document) for name, place in outputs.places.items()}
    for_github = github.prepare(document) if outputs.github else None
    console = make_console()
    with console.capture() as captured:
        if not outputs.to_stdout:
            _show(document, console)

    def print_all() -> None:
        _to_stdout(texts)
        console.file.write(captured.get())
        if for_github is not None:
            sys.stdout.write("".join(f"{line}\n" for line in for_github.annotations))

    def tell_github() -> None:
        if for_github is not None:
            github.append(for_github)

    attempt(lambda: _to_files(texts), tell_github, print_all)


def _show(document: ComparisonDocument, console: Console) -> None:
    from critpath.report.text.as_text import render_comparison  # noqa: PLC0415 - start-up time

    render_comparison(document, console)


def write_files(document: ComparisonDocument, places: dict[str, str]) -> None:
    """Write documents of a comparison, by kind of document the file; all or none."""
    texts = {place: _render(name, document) for name, place in places.items()}
    attempt(lambda: _to_files(texts), lambda: _to_stdout(texts))


def _to_files(texts: dict[str, str]) -> None:
    write_together({place: text for place, text in texts.items() if place != STDOUT})


def _to_stdout(texts: dict[str, str]) -> None:
    text = texts.get(STDOUT)
    if text is not None:
        # JSON is inert by itself, and must stay what it is.
        write_output(STDOUT, text if text.startswith("{") else log_text(text))


def _render(name: str, document: ComparisonDocument) -> str:
    if name == "html":
        from critpath.report.html.as_html import render_html  # noqa: PLC0415 - start-up time

        return render_html(document)
    if name == "junit":
        from critpath.report.ci.as_junit import render_junit  # noqa: PLC0415 - start-up time

        return render_junit(document)
    if name == "markdown":
        from critpath.report.ci.as_markdown import render_markdown  # noqa: PLC0415 - start-up time

        return render_markdown(document)
    from critpath.report.document.as_json import to_json  # noqa: PLC0415 - start-up time

    return to_json(document)
