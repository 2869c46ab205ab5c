"""What ``--github`` writes: a job's summary, annotations, a step's outputs.

The summary and the annotations are for people.  The outputs are for later steps: a gate that
must not stop the job runs with ``continue-on-error``, and then the exit code is gone.  They are
written where GitHub names a file for them; their values are words of ours and numbers, so that
no name of a trace can add another output.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from critpath.commands.output import attempt
from critpath.errors import CritpathError

if TYPE_CHECKING:
    from critpath.documents import ComparisonDocument

SUMMARY: Final = "GITHUB_STEP_SUMMARY"
OUTPUT: Final = "GITHUB_OUTPUT"

# GitHub shows nothing of a summary that is larger.
_MOST_SUMMARY: Final = 1024 * 1024
_MARGIN: Final = 1024


@dataclass(frozen=True)
class ForGitHub:
    """What is to be written, rendered.

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
    from critpath.report.ci.as_github import annotate  # noqa: PLC0415 - start-up time
    from critpath.report.ci.as_markdown import MOST_BYTES, render_markdown  # noqa: PLC0415 - as above
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
    except OSError:
        return 0


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
