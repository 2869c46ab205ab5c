"""What ``compare`` and ``report`` write of a comparison, and where."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import quote

from msgspec import Struct

from critpath.commands.declared import flag, option
from critpath.commands.output import (
    STDOUT,
    attempt,
    check_outputs,
    make_console,
    write_output,
    write_together,
)
from critpath.commands.sources import check_inputs
from critpath.errors import CritpathError, UnreadableError, UsageError
from critpath.units import log_text
from critpath.untrusted import LARGEST, refuse_damaged

if TYPE_CHECKING:
    from rich.console import Console

    from critpath.documents import ComparisonDocument, Document

_FILES: Final = {
    "html": "write a report page (- for stdout)",
    "json": "write the comparison (- for stdout)",
    "junit": "write JUnit XML for CI systems: a test case per gate (- for stdout)",
    "markdown": "write GitHub-flavoured Markdown, fewer than 60 lines (- for stdout)",
}


INLINE: Final = "inline"


class Outputs(Struct, frozen=True):
    """What is wanted of a comparison.

    Attributes
    ----------
    places : dict of str to str
        By kind of document the file, or ``-``.
    github : bool
        Annotations and a job's summary as well.
    verbose : bool
        Every table on the terminal.
    explore : str
        The file of the page to explore the executions on, ``inline`` for a part of the report;
        "" for none.
    trace_url : str
        Where a tracing UI shows a trace; "" for no links.
    """

    places: dict[str, str]
    github: bool
    verbose: bool = False
    explore: str = ""
    trace_url: str = ""

    @property
    def to_stdout(self) -> bool:
        """Whether stdout is a document's, so that nothing else may stand there."""
        return STDOUT in self.places.values()


OUTPUTS: Final = (
    *(option(f"--{name}", "FILE", what) for name, what in _FILES.items()),
    flag("-v --verbose", "print all tables: states and tests, requests, alignments, types"),
    flag("--github", "in a GitHub workflow: append the Markdown to the job's summary, annotate the "
        "run"),
)  # fmt: skip


def wanted_outputs(
    arguments: argparse.Namespace, inputs: Sequence[Path], trace_url: str = ""
) -> Outputs:
    """Return what the options ask for, checked before any work."""
    given = {name: getattr(arguments, name) for name in _FILES}
    places = {name: place for name, place in given.items() if place is not None}
    explore = getattr(arguments, "explore", None) or ""
    if explore == INLINE and "html" not in places:
        raise UsageError("--explore inline is a part of the report", "add --html FILE")
    if explore == STDOUT:
        raise UsageError("--explore - would stand among other text", "give --explore a file's name")
    outputs = Outputs(places, bool(arguments.github), bool(arguments.verbose), explore, trace_url)
    if outputs.github and outputs.to_stdout:
        name = next(name for name, place in places.items() if place == STDOUT)
        raise UsageError(
            f"--{name} - and --github both write to stdout", f"give --{name} a file's name"
        )
    pages = [] if explore in {"", INLINE} else [explore]
    check_outputs([*places.values(), *pages, *(files() if outputs.github else ())], inputs)
    return outputs


def write_reports(document: ComparisonDocument, outputs: Outputs, explore: str = "") -> None:
    """Write every document, and the text of the terminal unless stdout is one's.

    `explore` is the page to explore on, where one is wanted.

    Everything is rendered before anything is written, and files are there all or none.
    They come first, as a reader of stdout may close early; but the verdict and the
    annotations are printed even where a file could not be written.
    """
    texts = {
        place: _render_html(document, outputs, explore)
        if name == "html"
        else _render(name, document)
        for name, place in outputs.places.items()
    }
    if outputs.explore not in {"", INLINE}:
        texts[outputs.explore] = explore
    for_github = prepare(document) if outputs.github else None
    console = make_console()
    with console.capture() as captured:
        if not outputs.to_stdout:
            _show(document, console, outputs)

    def print_all() -> None:
        _to_stdout(texts)
        console.file.write(captured.get())
        if for_github is not None:
            sys.stdout.write("".join(f"{line}\n" for line in for_github.annotations))

    def tell_github() -> None:
        if for_github is not None:
            append(for_github)

    attempt(lambda: _to_files(texts), tell_github, print_all)


def _show(document: ComparisonDocument, console: Console, outputs: Outputs) -> None:
    from critpath.report.text import render_comparison  # noqa: PLC0415 - start-up time

    pages = [place for name, place in outputs.places.items() if name == "html"]
    pages += ["summary"] if outputs.github else []
    render_comparison(document, console, verbose=outputs.verbose, places=pages)


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


def _render_html(document: ComparisonDocument, outputs: Outputs, explore: str) -> str:
    """Return the report, with the way to the page to explore on."""
    from critpath.report.html import render_html  # noqa: PLC0415 - start-up time

    place = outputs.places["html"]
    if not outputs.explore or (place == STDOUT and outputs.explore != INLINE):
        return render_html(document, trace_url=outputs.trace_url)
    if outputs.explore == INLINE:
        return render_html(document, framed=explore, trace_url=outputs.trace_url)
    near = os.path.relpath(outputs.explore, Path(place).parent)
    return render_html(document, explore=f"./{quote(near)}", trace_url=outputs.trace_url)


def _render(name: str, document: ComparisonDocument) -> str:
    if name == "html":
        from critpath.report.html import render_html  # noqa: PLC0415 - start-up time

        return render_html(document)
    if name == "junit":
        from critpath.report.ci import render_junit  # noqa: PLC0415 - start-up time

        return render_junit(document)
    if name == "markdown":
        from critpath.report.ci import render_markdown  # noqa: PLC0415 - start-up time

        return render_markdown(document)
    from critpath.report.document import to_json  # noqa: PLC0415 - start-up time

    return to_json(document)


# What ``--github`` writes: a job's summary, annotations, a step's outputs.


SUMMARY: Final = "GITHUB_STEP_SUMMARY"
OUTPUT: Final = "GITHUB_OUTPUT"

# GitHub shows nothing of a summary that is larger.
_MOST_SUMMARY: Final = 1024 * 1024
_MARGIN: Final = 1024


class ForGitHub(Struct, frozen=True):
    """The files to write, rendered.

    Attributes
    ----------
    summary, outputs : str
        To be appended to the job's summary and to the step's outputs.
    annotations : tuple of str
        Lines for stdout.
    """

    summary: str
    outputs: str
    annotations: tuple[str, ...]


def summary_file() -> str | None:
    """Return the file that GitHub shows as the job's summary, None outside of GitHub."""
    return os.environ.get(SUMMARY) or None


def files() -> list[str]:
    """Return the files that GitHub names."""
    return [place for name in (SUMMARY, OUTPUT) if (place := os.environ.get(name))]


def prepare(document: ComparisonDocument) -> ForGitHub:
    """Render what GitHub gets of a comparison."""
    from critpath.report.ci import (  # noqa: PLC0415 - start-up time
        MOST_BYTES,
        annotate,
        render_markdown,
    )
    from critpath.units import log_text  # noqa: PLC0415 - as above

    summary = ""
    place = summary_file()
    if place is not None:
        there = _size(place)
        room = min(MOST_BYTES, _MOST_SUMMARY - _MARGIN - there)
        # An empty line, as what is there may end in the middle of one.
        summary = render_markdown(document, most=room)
        summary = f"\n\n{summary}" if summary and there else summary
    anomalous = document.outliers.anomalous
    return ForGitHub(
        summary,
        f"verdict={document.verdict}\nanomalous={anomalous}\n",
        tuple("::" + log_text(str(one)[2:]) for one in annotate(document)),
    )


def append(prepared: ForGitHub) -> None:
    """Append the summary and the outputs where GitHub wants them; say where there is no place.

    Raises
    ------
    CritpathError
        If a file cannot be written; it is then as it was, and the other is written.
    """
    attempt(lambda: _append_outputs(prepared), lambda: _append_summary(prepared))


def _append_outputs(prepared: ForGitHub) -> None:
    if output := os.environ.get(OUTPUT):
        _append(Path(output), prepared.outputs)


def _append_summary(prepared: ForGitHub) -> None:
    place = summary_file()
    if place is None:
        _say(f"{SUMMARY} is not set: no summary, only annotations")
    elif prepared.summary:
        _append(Path(place), prepared.summary)
    else:
        _say(f"no summary: what is in {place} already leaves no room of GitHub's 1 MiB")


def _size(place: str) -> int:
    try:
        return Path(place).stat().st_size
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise CritpathError(
            f"cannot append to {place}: {error.strerror}", "give access there"
        ) from error


def _append(path: Path, text: str) -> None:
    data = text.encode("utf-8", "replace")
    why = "no room for all of it"
    try:
        with path.open("ab", buffering=0) as file:
            before = file.tell()
            whole = file.write(data) == len(data)
            if not whole:
                file.truncate(before)
    except OSError as error:
        whole, why = False, str(error.strerror)
    if not whole:
        raise CritpathError(
            f"cannot append to {path}: {why}",
            "make room or give access there",
        )


def _say(message: str) -> None:
    from critpath.units import log_text, safe_text  # noqa: PLC0415 - start-up time

    print(f"critpath: {log_text(safe_text(message))}", file=sys.stderr)


# Documents that commands saved, read back.


def load_saved(file: str) -> Document:
    """Read the document in a file, or on stdin for ``-``."""
    from critpath.report.document import load_document  # noqa: PLC0415 - start-up time

    if file != STDOUT:
        check_inputs([Path(file)])
        if Path(file).is_dir():
            place = shlex.quote(file)
            raise UnreadableError(
                f"{file} is a directory, and a report is made of one saved answer",
                f"of recordings: critpath compare BEFORE {place} --html report.html; of what one "
                f"spent its time on: critpath path {place}",
            )
    try:
        if file == STDOUT:
            content = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with Path(file).open("rb") as stream:
                content = stream.read(LARGEST + 1)
        content.decode("utf-8")
    except UnicodeDecodeError:
        raise UnreadableError(
            f"{file} is neither JSON nor saved paths",
            "give a file of critpath compare --json, or saved paths",
        ) from None
    except OSError as error:
        raise UnreadableError(
            f"cannot read {file}: {error.strerror}", "give a readable file"
        ) from None
    with refuse_damaged(file, "give a file of critpath compare --json, or saved paths"):
        return load_document(content)


def load_comparison(file: str) -> ComparisonDocument:
    """Read a saved comparison.

    Raises
    ------
    UnreadableError
        If it is not there, or not a comparison.
    """
    document = load_saved(file)
    if not document.format.startswith("critpath/comparison/"):
        raise UnreadableError(
            f"{file} holds no comparison", "give a file of critpath compare --json"
        )
    return cast("ComparisonDocument", document)


def is_saved(source: str) -> bool:
    """Tell a saved comparison from what executions are extracted from."""
    from critpath.convert import identify_foreign  # noqa: PLC0415 - start-up time
    from critpath.store import find_format  # noqa: PLC0415 - start-up time

    path = Path(source)
    if source == STDOUT:
        return True
    return path.is_file() and not find_format(path) and identify_foreign(path) is None
