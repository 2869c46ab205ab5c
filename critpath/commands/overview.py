"""The verbs, and ``critpath --help``: with nothing that takes time to import.

argparse, with what it imports, takes longer than Python itself to start.  The text is
what argparse makes of the same grammar, which a test holds it to.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # that of `typing`, which takes as long to import as Python to start
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Final

# Every verb is a module beside this one, with `OPTIONS`, `SETTINGS` and `run`.
VERBS: Final[dict[str, str]] = {
    "record": "record runs of a command, or the whole machine, for compare",
    "path": "show what a thread, or every execution, spent its time on",
    "extract": "save the critical path of every execution, for compare and report",
    "compare": "compare a normal with a sample set and say what became slower, where and why",
    "ab": "run two commands in random order until it is shown whether the second is slower",
    "bisect": "find the git revision since which a command is slower, by ab of builds",
    "calibrate": (
        "compare normal recordings with each other: how often that alarms falsely, which floor "
        "they ask for, and the smallest slow-down that would show"
    ),
    "baseline": "keep what is normal in a small file, so that compare needs no recording of it",
    "report": (
        "render a saved comparison (compare --json), calibration (calibrate --json) or "
        "saved paths (extract, path --format json) again"
    ),
    "explore": "say what the slow executions, or any others, have in common that the rest have not",
    "query": "ask executions, paths and requests in SQL (needs critpath[query])",
    "share": "write a saved comparison as one page without names of hosts, users, paths, commands",
    "requests": "say what was asked of whom, for whom, and how surely that is known",
    "signature": "count what the kernel did, second by second: what `critpath known` compares",
    "known": "keep what was seen before in a team's store, and say whether something was",
    "clocks": "say how well the clocks of several hosts' recordings agree, and how surely",
    "export": "write executions, or a saved comparison's alignments, for other programs",
    "verify": "say whether a recording is whole: what was recorded, and what of it is there",
    "doctor": "say what this machine lacks to record, and how to mend it; remove leftovers",
    "dump": "ask a running flight recorder (record --always) to save what it holds, or how it is",
    "incidents": (
        "hold the dumps of a flight recorder against what is usual, say in a line what became "
        "slower and why, and list what was found"
    ),
    "top": "show executions by label: rate, p50, p99 and where their time goes",
    "metrics": (
        "tell Prometheus or a collector of OpenTelemetry what a flight recorder measures (needs "
        "critpath[metrics])"
    ),
    "mark": "mark where an execution of a shell script begins or ends",
    "demo": (
        "record a workload without and with a fault (where that is not possible, take shipped "
        "recordings), compare, and write a report"
    ),
}

DESCRIPTION: Final = "Tells why a program became slower, from the kernel's scheduling events."
EPILOG: Final = (
    "Exit codes: 0 no anomaly, 1 anomaly, 2 usage, 3 inconclusive, "
    "4 unreadable input, 125 critpath's own failure."
)
QUIET: Final = "no warnings, no progress, no hints on stderr"
CONFIG: Final = "settings from this file"
SHOW_CONFIG: Final = "print every setting's value and origin, and do nothing"
DEBUG: Final = "show tracebacks"

_USAGE: Final = "usage: critpath "
_OPTIONS: Final = (
    *("[-h]", "[--version]", "[--config FILE]", "[--show-config]", "[--debug]"),
    "[--quiet | --no-quiet]",
)
_COMMAND: Final = "COMMAND ..."
_COLUMN: Final = 23  # where help begins: after the longest option and two blanks
_NARROW: Final = 50  # argparse breaks usage otherwise there


def before_command(arguments: Sequence[str]) -> Sequence[str]:
    """Return the arguments that are critpath's for sure: those before ``--``."""
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def terminal_width() -> int:
    """Return the columns that help may take, as argparse counts them."""
    try:
        columns = int(os.environ["COLUMNS"])
    except (KeyError, ValueError):
        columns = 0
    if columns <= 0:
        try:
            columns = os.get_terminal_size(sys.__stdout__.fileno()).columns  # type: ignore[union-attr]  # caught
        except (AttributeError, ValueError, OSError):
            columns = 0
    return (columns or 80) - 2


def help_text(width: int) -> str | None:
    """Return what ``critpath --help`` prints, None where only argparse knows how."""
    if width < _NARROW:
        return None
    lines = [*_usage(width), "", *_wrap_words(DESCRIPTION, width)]
    lines += ["", "positional arguments:", "  COMMAND"]
    for name, summary in VERBS.items():
        lines += _entry(f"    {name}", summary, width)
    lines += ["", "options:"]
    lines += _entry("  -h, --help", "show this help message and exit", width)
    lines += _entry("  --version", "show program's version number and exit", width)
    lines += ["", "everywhere:"]
    lines += _entry("  --config FILE", CONFIG, width)
    lines += _entry("  --show-config", SHOW_CONFIG, width)
    lines += _entry("  --debug", DEBUG, width)
    lines += _entry("  --quiet, --no-quiet", QUIET, width)
    lines += ["", *_wrap_words(EPILOG, width)]
    return "\n".join(lines) + "\n"


def _usage(width: int) -> list[str]:
    whole = f"{_USAGE}{' '.join(_OPTIONS)} {_COMMAND}"
    if len(whole) <= width:
        return [whole]
    indent = " " * len(_USAGE)
    first, *others = _fill_lines(_OPTIONS, width - len(indent))
    return [_USAGE + first, *(indent + line for line in others), indent + _COMMAND]


def _entry(name: str, what: str, width: int) -> Iterator[str]:
    column = min(_COLUMN, width - 20)
    text = iter(_wrap_words(what, width - column))
    if len(name) <= column - 2:
        yield f"{name:<{column}}{next(text)}"
    else:
        yield name
    for line in text:
        yield " " * column + line


def _fill_lines(parts: Sequence[str], width: int) -> Iterator[str]:
    """Yield lines of parts that are not broken."""
    line = ""
    for part in parts:
        if line and len(line) + 1 + len(part) > width:
            yield line
            line = part
        else:
            line = f"{line} {part}" if line else part
    yield line


def _wrap_words(text: str, width: int) -> Iterator[str]:
    """Yield lines of words, as `textwrap` does; words may be broken at hyphens."""
    line = ""
    for word in text.split(" "):
        for number, piece in enumerate(_pieces(word)):
            blank = " " if line and not number else ""
            if line and len(line) + len(blank) + len(piece) > width:
                yield line
                line = piece
            else:
                line += blank + piece
    yield line


def _pieces(word: str) -> list[str]:
    """Return a word's parts: a hyphen between two letters on either side ends one."""
    begin, found = 0, []
    for at in range(2, len(word) - 2):
        if word[at] == "-" and (word[at - 2 : at] + word[at + 1 : at + 3]).isalpha():
            found.append(word[begin : at + 1])
            begin = at + 1
    return [*found, word[begin:]]
