"""``critpath record``: from a command to a recording that can be compared."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from critpath.commands.output import hint
from critpath.commands.parser import checked
from critpath.commands.progress import Progress
from critpath.commands.recorded import said_of
from critpath.commands.settings import RECORDING, Settings
from critpath.commands.values import number, whole
from critpath.errors import UsageError
from critpath.model.recording import MANIFEST_RUNS

if TYPE_CHECKING:
    from critpath.record.request import Request

SETTINGS = ("execution", *RECORDING)

_SECONDS = number(0, 31_536_000, "a number of seconds above 0")
_THREADS = "OPENBLAS_NUM_THREADS"
_RUNS = whole(1, MANIFEST_RUNS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the verb takes beside settings."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        type=Path,
        help="the recording's directory (default: critpath-TIME-NAME)",
    )
    parser.add_argument(
        "-n", "--runs", metavar="RUNS", type=checked(_RUNS), help="runs that are recorded (1)"
    )
    parser.add_argument(
        "--warmup",
        metavar="K",
        type=checked(whole(0, 1_000_000)),
        default=0,
        help="runs before that are not recorded",
    )
    parser.add_argument(
        "--prepare", metavar="LINE", default="", help="a line for sh before every run"
    )
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=checked(_SECONDS),
        default=0.0,
        help="end a run, with all that it started, after so many seconds",
    )
    parser.add_argument(
        "-a", "--all", action="store_true", help="the whole machine, without a command"
    )
    parser.add_argument(
        "--duration",
        metavar="S",
        type=checked(_SECONDS),
        default=0.0,
        help="with -a or --container: seconds (default: until Ctrl-C)",
    )
    parser.add_argument(
        "--container",
        metavar="NAME",
        default="",
        help="the machine; executions are the processes of this container",
    )
    parser.add_argument(
        "--interleave",
        nargs=2,
        metavar=("A", "B"),
        help="two commands in alternation, into DIR/normal and DIR/sample",
    )
    for option, what in (
        ("--keep-raw", "keep what the trace was converted from"),
        ("--as-root", "under sudo: run the command as root too"),
        ("--force", "replace a recording that is there"),
    ):
        parser.add_argument(option, action="store_true", help=what)
    parser.add_argument(
        "command",
        metavar="CMD ARG...",
        nargs=argparse.REMAINDER,
        help="the command, best after --",
    )


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Record and return the command's exit code."""
    request = _request(arguments, settings)
    from critpath.record.session import record  # noqa: PLC0415 - start-up time of other verbs

    quiet = settings["quiet"]
    tell = Teller(quiet=quiet)
    try:
        outcome = record(request, tell)
    finally:
        tell.close()
    for line in said_of(outcome, request):
        # What makes a recording worth less is said to those who want quiet, too.
        hint(line, quiet=quiet and not line.startswith("warning: "))
    return outcome.exit_code


def _request(arguments: argparse.Namespace, settings: Settings) -> Request:
    import critpath  # noqa: PLC0415 - the version only
    from critpath.record.request import Request  # noqa: PLC0415 - start-up time

    commands = _commands(arguments)
    specification = settings["execution"] or ""
    if specification:
        _check_execution(specification)
    name = arguments.container or (commands[0][0] if commands else "all")
    return Request(
        output=arguments.output or _default_output(name),
        commands=commands,
        version=critpath.__version__,
        runs=arguments.runs or 1,
        warmup=arguments.warmup,
        prepare=arguments.prepare,
        timeout=arguments.timeout,
        duration=arguments.duration,
        recorder=settings["recorder"],
        profile=settings["profile"],
        execution=specification,
        container=arguments.container,
        buffer_bytes=settings["buffer-size"],
        trace_format=settings["trace-format"],
        keep_raw=arguments.keep_raw,
        as_root=arguments.as_root,
        force=arguments.force,
    )


def _check_execution(specification: str) -> None:
    """Refuse a wrong specification; the environment stays what the command inherits."""
    # A thread of the linear algebra library would take signals that are meant for us.
    given = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"
    try:
        from critpath import pipeline  # noqa: PLC0415 - numpy

        pipeline.parse_specification(specification)
    finally:
        if given is None:
            del os.environ[_THREADS]
        else:
            os.environ[_THREADS] = given


def _commands(arguments: argparse.Namespace) -> tuple[tuple[str, ...], ...]:
    """Return the commands, or refuse what does not go together."""
    machine = arguments.all or bool(arguments.container)
    command = tuple(arguments.command)
    if arguments.interleave:
        if command or machine:
            raise UsageError(
                "--interleave has its two commands already",
                "critpath record --interleave 'A ARG...' 'B ARG...'",
            )
        return tuple(_split(text) for text in arguments.interleave)
    if machine:
        if command:
            raise UsageError(
                f"-a or --container together with the command {command[0]}",
                "leave -a out: a recording of a command has the whole machine in it anyway",
            )
        given = {
            "-n": arguments.runs,
            "--warmup": arguments.warmup,
            "--prepare": arguments.prepare,
            "--timeout": arguments.timeout,
        }
        for option, value in given.items():
            if value:
                raise UsageError(f"{option} without a command", "leave it out; see --duration")
        return ()
    if arguments.duration:
        raise UsageError("--duration with a command", "--timeout ends a run; -a records without")
    if not command:
        raise UsageError(
            "no command to record",
            "critpath record -n 30 -o DIR -- CMD ARG...; or -a for the whole machine",
        )
    return (command,)


def _split(text: str) -> tuple[str, ...]:
    try:
        command = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(
            f"--interleave: cannot split {text!r}: {error}", "close its quotes"
        ) from None
    if not command:
        raise UsageError("--interleave: a command is empty", "give two commands")
    return command


def _default_output(name: str) -> Path:
    plain = re.sub(r"[^A-Za-z0-9._+-]+", "-", name.rstrip("/").rpartition("/")[2])
    return Path(f"critpath-{time.strftime('%Y%m%dT%H%M%S')}-{plain[:40].strip('.-') or 'command'}")


class Teller:
    """Shows on stderr what goes on, but wakes nothing up while the command runs."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._terminal = not quiet and sys.stderr.isatty()
        self._progress: Progress | None = None
        self._begin = time.monotonic()
        self._shown = 0.0
        self._line = False

    def __call__(self, message: str) -> None:
        """Show what is being done; a spinner if it takes long."""
        self._clear()
        if self._progress is None:
            self._progress = Progress(quiet=self._quiet)
            self._progress.__enter__()
        self._progress(message)

    def say(self, message: str) -> None:
        """Print a line."""
        self._stop()
        self._clear()
        # Nobody reads stderr any more: no reason to lose a recording.
        with contextlib.suppress(OSError):
            hint(f"critpath: {message}", quiet=self._quiet and not message.startswith("warning: "))

    def run(self, number: int, total: int, what: str = "run") -> None:
        """Show which run begins, now and then: the spinner would disturb it."""
        self._stop()
        now = time.monotonic()
        if not self._terminal or total == 1 or now - self._begin < 1 or now - self._shown < 0.25:
            return
        self._shown, self._line = now, True
        # What the command prints comes after it on the same line.
        sys.stderr.write(f"\r\x1b[K[{what} {number} of {total}] ")
        sys.stderr.flush()

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._stop()
        self._clear()

    def _stop(self) -> None:
        progress, self._progress = self._progress, None
        if progress is not None:
            progress.__exit__(None, None, None)

    def _clear(self) -> None:
        if self._line:
            self._line = False
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
