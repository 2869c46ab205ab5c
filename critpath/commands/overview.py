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
GROUPS: Final[dict[str, dict[str, str]]] = {
    "find out": {
        "record": "record runs of a command, or the whole machine, for compare",
        "compare": "say what became slower from one set to another, where and why",
        "explore": "say what the slow ones have in common that the rest have not",
        "path": "show what a thread, or every run, spent its time on",
        "view": "show a window whole: threads, who woke whom, who had the CPUs",
        "top": "show requests as they come: rate, p50, p99 and where time goes",
    },
    "gate": {
        "ab": "run two commands in turns until it is shown which is slower",
        "bisect": "find the git revision since which a command is slower",
        "calibrate": "say how often healthy sets alarm, and what would be seen",
        "trend": "say since which commit CI's kept answers are slower",
        "baseline": "keep what is normal in a small file, for compare",
    },
    "data": {
        "convert": "keep what trace-cmd, perf or Perfetto recorded, as CTF",
        "export": "save critical paths, or write them for other programs",
        "query": "ask runs, paths and requests in SQL",
        "requests": "say what was asked of whom, for whom, and how surely",
        "report": "render what was saved again, also without names of yours",
    },
    "recorder": {
        "doctor": "say what this machine lacks, or whether a recording is whole",
        "dump": "ask a running flight recorder to save what it holds",
        "mark": "mark where a run of a shell script begins or ends",
        "demo": "record a workload without and with a fault, and compare",
    },
    "expert": {
        "incidents": "say what became slower than usual on a machine, and why",
        "metrics": "tell Prometheus or OpenTelemetry what a flight measures",
        "clocks": "say how well the clocks of several hosts agree",
        "signature": "count what the kernel did, second by second, for known",
        "known": "keep what was seen before, and say whether this was",
        "completion": "print what completes commands in bash, zsh or fish",
    },
}
VERBS: Final = {name: what for verbs in GROUPS.values() for name, what in verbs.items()}
# Verbs that read what others wrote, and do not record (of doctor and top: given recordings).
READERS: Final = frozenset(
    {
        *("compare", "explore", "path", "view", "calibrate", "trend", "baseline", "convert"),
        *("export", "query", "requests", "report", "clocks", "signature", "known"),
        *("doctor", "top"),
    }
)
# Verbs of before, and what does the same now.
FOLDED: Final[dict[str, tuple[str, ...]]] = {
    "extract": ("export", "--format", "paths"),
    "share": ("report", "--redact"),
    "verify": ("doctor",),
}
_SHARED: Final = {"-o": "--html", "--output": "--html", "--threads": "--redact-threads"}
# What other tools call it: perf, strace, hyperfine, git, docker.
HABITS: Final = {
    "diff": "compare",
    "benchmark": "ab",
    "bench": "ab",
    "trace": "record",
    "annotate": "path",
    "timechart": "view",
    "attach": "record -a",
    "stat": "record --counts",
    "script": "path",
    "list": "requests",
    "ls": "requests",
    "live": "top",
    "check": "doctor",
    "version": "--version",
}

# What options of others are here, which has none of these names.
_PROCESS: Final = (
    "the whole machine is recorded, with -a; of one process then: critpath path REC --tid PID"
)
_RATE: Final = (
    "nothing is sampled: every switch is recorded, and --overhead 3% bounds what it costs"
)
OPTIONS_OF_OTHERS: Final[dict[str, str]] = {
    **dict.fromkeys(("-p", "--pid"), _PROCESS),
    **dict.fromkeys(("-g", "--call-graph"), "stacks are taken with record --stacks auto"),
    **dict.fromkeys(("-F", "--freq", "--count"), _RATE),
    **dict.fromkeys(("-e", "--event"), "record --profile NAME says which events, --counts counts"),
    **dict.fromkeys(("-f", "--follow-forks"), "all that a command starts is recorded, always"),
    **dict.fromkeys(("-r", "--repeat", "-m", "--min-runs", "-M", "--max-runs"), "-n RUNS"),
    **dict.fromkeys(("-w",), "--warmup K"),
    **dict.fromkeys(("-N", "--shell", "-S"), "no shell is started: give sh -c 'LINE' for one"),
    **dict.fromkeys(("-i", "--ignore-failure"), "runs that fail are recorded, and counted"),
    **dict.fromkeys(("-s", "--setup"), "--prepare LINE"),
    **dict.fromkeys(("-c", "--cleanup"), "--prepare LINE, before every run"),
    **{f"--export-{name}": f"--{name} FILE" for name in ("json", "markdown")},
    **dict.fromkeys(("-T", "--threads"), "every thread is shown by itself anyway"),
    **dict.fromkeys(("--stdio",), "answers are text; --html FILE writes a page"),
}

DESCRIPTION: Final = "Tells why a program became slower, from the kernel's scheduling events."
EPILOG: Final = "Exit codes: 0 ok, 1 slower, 2 usage, 3 inconclusive, 4 unreadable, 125 a bug"
QUIET: Final = "no warnings, no progress, no hints on stderr"
CONFIG: Final = "settings from this file"
SHOW_CONFIG: Final = "print every setting's value and origin, and do nothing"
DEBUG: Final = "show tracebacks"

_EVERYWHERE: Final = {
    "-V, --version": "which version this is",
    "--config FILE": CONFIG,
    "--show-config": SHOW_CONFIG,
    "--debug": DEBUG,
    "--quiet": QUIET,
}
_OPTION_COLUMN: Final = 18
_COLUMN: Final = 14  # where help begins: after the longest verb and two blanks
_NARROW: Final = 50  # no help is narrower


def unfold(arguments: Sequence[str]) -> tuple[list[str], str]:
    """Return arguments with what a verb of before is now, and the line that says so; or ""."""
    at = next((n for n, word in enumerate(arguments) if not word.startswith("-")), None)
    if at is not None and arguments[at - 1 : at] == ["--config"]:
        at += 1
    old = arguments[at] if at is not None and at < len(arguments) else ""
    if at is None or old not in FOLDED:
        return list(arguments), ""
    rest = list(arguments[at + 1 :])
    if old == "share":
        # What was there already was kept without --force, which report never does.
        rest = [_renamed(word) for word in rest if word != "--force"]
        asked = any(word.partition("=")[0] in {"--html", "-h", "--help"} for word in rest)
        rest += [] if asked else ["--html", "shared.html"]
    new = FOLDED[old]
    return [*arguments[:at], *new, *rest], f"critpath: {old} is now {' '.join(new)}"


def _renamed(word: str) -> str:
    name, equals, value = word.partition("=")
    return f"{_SHARED.get(name, name)}{equals}{value}"


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


def help_text(width: int) -> str:
    """Return what ``critpath --help`` prints."""
    width = max(width, _NARROW)
    lines = ["usage: critpath COMMAND ...", "", *_wrap_words(DESCRIPTION, width)]
    for title, verbs in GROUPS.items():
        lines += ["", f"{title}:"]
        for name, summary in verbs.items():
            lines += _entry(f"  {name}", summary, width)
    lines += ["", *_wrap_words("critpath help COMMAND says more of each.", width)]
    lines += ["", "everywhere:"]
    for name, what in _EVERYWHERE.items():
        lines += _entry(f"  {name}", what, width, _OPTION_COLUMN)
    lines += ["", *_wrap_words(EPILOG, width)]
    return "\n".join(lines) + "\n"


def _entry(name: str, what: str, width: int, column: int = _COLUMN) -> Iterator[str]:
    for number, text in enumerate(_wrap_words(what, width - column)):
        yield f"{'' if number else name:<{column}}{text}"


def _wrap_words(text: str, width: int) -> Iterator[str]:
    """Yield lines of whole words; `textwrap` takes longer to import than all of this."""
    line = ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > width:
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield line
