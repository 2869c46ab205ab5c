"""``critpath ab``: is B slower than A, by executions in blocks of random order."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import secrets
import shutil
import signal
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from critpath.commands.declared import VERBOSE, command, flag, option
from critpath.commands.output import (
    STDOUT,
    Progress,
    check_outputs,
    hint,
    make_console,
    write_output,
)
from critpath.commands.settings import Settings, WrongValueError, number, share, whole
from critpath.commands.sources import check_inputs
from critpath.errors import CritpathError, UnreadableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from critpath.ab import AbRequest, Slots
    from critpath.documents import AbDocument
    from critpath_record import Reporter, RunResult


DOCUMENT: Final = "ab.json"
THREADS: Final = "OPENBLAS_NUM_THREADS"
_RECORDINGS: Final = "recordings"
_COUNTED: Final = frozenset({"instructions", "cycles"})
_ALARMS: Final = frozenset({"slower", "slower_in_part"})
_UNITS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_TIME: Final = 600.0
_BLOCKS: Final = 200
_UNTRACED: Final = 8
_FLOOR: Final = share(10, "a share of A's time, such as 0.05 or 5%")


def _until(value: Any) -> tuple[float, tuple[float, ...]]:
    first, *others = str(value).split(",")
    return _FLOOR(first), tuple(_quantile(other) for other in others)


def _quantile(value: Any) -> float:
    found = re.fullmatch(r"p(\d{1,2}(?:\.\d+)?)", str(value).strip())
    quantile = float(found[1]) / 100 if found else 0.0
    if not 0.5 <= quantile < 1:
        raise WrongValueError("a percentile from p50 to below p100, such as p99")
    return round(quantile, 12)


def _seconds(value: Any) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d*)?)\s*([smh]?)", str(value).strip())
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not 0 < seconds <= 31_536_000:
        raise WrongValueError("a time such as 90s, 10m or 1h")
    return seconds


def _slot(value: Any) -> int:
    return 0 if value == "auto" else whole(1, 10_000)(value)


def _expression(value: Any) -> str:
    try:
        re.compile(os.fsencode(str(value)))
    except (re.error, UnicodeError, OverflowError) as error:
        raise WrongValueError(f"a regular expression ({error})") from None
    return str(value)


# How executions are run and judged, here and by `bisect`.
MEASURING: Final = (
    option("--until", "SHARE[,pNN]", "B may be slower by less than this, and is not to be called "
        "slower below half of it (5%%); with pNN this percentile is watched, too", _until,
        (0.05, ())),
    option("--seed", "N", "of the order of the slots (drawn and printed)", whole(0, 2**63 - 1)),
    option("--of", None, "what decides: time from exec to exit, and of programs that only compute "
        "time on a cpu, too (time); time on a cpu alone (run); either of both (both); or what the "
        "processor counts of the programs' own code, where it can: instructions or cycles",
        default="time", choices=("time", "run", "both", "instructions", "cycles")),
    option("--tail", "pNN", "a percentile that is watched beside p90, such as p99 (repeatable)",
        _quantile, [], action="append"),
    option("--alpha", "SHARE", "chance of a wrong alarm, and of a wrong pass (1%%)",
        number(0, 0.5, "a share above 0 and at most 0.5"), 0.01),
    option("--max-blocks", "N", f"blocks after which it ends undecided ({_BLOCKS})",
        whole(1, 100_000), _BLOCKS),
    option("--time", "TIME", "time after which it ends undecided, such as 90s or 10m (10m)",
        _seconds, _TIME),
    option("--statistic", None, "what the times of a block come to: geometric mean, mean, or least "
        "time, which says nothing of rare slow runs (geo)", default="geo",
        choices=("geo", "mean", "min")),
    option("--slot", "K", "runs of a slot: a number, or auto for as many as take 20 ms "
        "(auto)", _slot, 0),
    option("--warmup", "N", "runs of each that are discarded before (2)",
        whole(1, 1_000_000), 2),
    option("--prepare", "LINE", "a line for sh before every slot, not timed", default=""),
    option("--timeout", "TIME", "end a run, with all that it started, after so long: it "
        "counts as failed", _seconds, 0.0),
    flag("--failures-are-slow", "a failed run counts as the slowest so far; else its block "
        "is dropped"),
    option("--label", "REGEX", "judge each kind of run by itself: what REGEX (its first "
        "group) finds in what a run prints", _expression, ""),
    flag("--show-output", "show what the commands print"),
    flag("--as-root", "under sudo: run the commands as root too"),
)  # fmt: skip
# What --help shows together; the last group has the rest.
GROUPS: Final = {
    "everyday": (
        *("until", "of", "tail", "time", "warmup", "prepare", "timeout", "label"),
        *("trace", "output", "json", "verbose"),
    ),
    "method": (),
}


OPTIONS: Final = (
    *MEASURING,
    option("--trace", None, "after an alarm, record 12 further blocks and say the cause, where "
        "this machine can be recorded (after): tracing does not decide; or record every block: the "
        "verdict is then of the commands with tracing, and the cost of tracing is reported for "
        "each (all)", default="after", choices=("after", "none", "all")),
    option("--execution", "SPEC", "what to name the cause of, such as slices:wake, marker or "
        "requests (whole runs)", default=""),
    option("-o --output", "DIR", "keep the blocks there, for --again", Path),
    option("--json", "FILE", "write the document (- for stdout)"),
    option("--again", "DIR", "run nothing: compute everything anew from the blocks in DIR, or a "
        "file of --json", Path),
    flag("--skip-first", "the first run of each slot, which meets what the other command "
        "left, does not count: slots of two and more"),
    VERBOSE,
    command("-- A ARG... -- B ARG...", "what is known to be good, and what is judged"),
)  # fmt: skip


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Compare the commands, say what is shown and return its exit code."""
    # Before anything changes: the commands get what critpath was started with.
    from critpath_record import InheritedState  # noqa: PLC0415 - start-up time

    inherited = InheritedState.capture()
    # A thread of the linear algebra library would take signals that are meant for us.
    os.environ.setdefault(THREADS, "1")
    if arguments.again is not None:
        return _run_again(arguments)
    commands = _split_commands(arguments.command)
    check_outputs([arguments.json])
    if arguments.output is not None and arguments.output.exists():
        raise UsageError(f"{arguments.output} exists already", "name another directory with -o")
    request = request_of(arguments, commands)
    quiet = settings["quiet"] or arguments.json == STDOUT
    with kept_directory(arguments.output) as directory:
        document = judge(request, inherited, directory, arguments, quiet=quiet)
        if directory is not None:
            _write_document(directory / DOCUMENT, document)
    code = _show(document, arguments.json)
    return 128 + signal.SIGTERM if document.stopped_by == "signal" else code


def request_of(
    arguments: argparse.Namespace,
    commands: tuple[tuple[str, ...], tuple[str, ...]],
) -> AbRequest:
    """Return what was asked for, with a seed from the system if none was given."""
    from critpath.ab import AbRequest  # noqa: PLC0415 - start-up time
    from critpath.commands.record import check_execution, needed  # noqa: PLC0415 - as below
    from critpath.schema.parameters.ab import EVIDENCE  # noqa: PLC0415 - as above

    floor, tails = arguments.until
    if arguments.label and arguments.show_output:
        raise UsageError("--label reads what --show-output shows", "leave one of them out")
    traced = getattr(arguments, "trace", "none") == "all"
    if traced and (arguments.label or arguments.slot > 1):
        option = "--label" if arguments.label else "--slot"
        raise UsageError(
            f"--trace all records single runs: {option} does not go with it",
            f"leave out {option}, or --trace all",
        )
    skip_first = getattr(arguments, "skip_first", False)
    if skip_first and (traced or arguments.slot == 1):
        raise UsageError(
            "--skip-first leaves nothing of slots of one run",
            "leave out --trace all" if traced else "give --slot 3, or leave it out",
        )
    specification = getattr(arguments, "execution", "")
    if specification:
        check_execution(specification)
    if arguments.of in _COUNTED and arguments.failures_are_slow:
        raise UsageError(
            "what a failed run would have counted is not known",
            f"leave out --failures-are-slow, or --of {arguments.of}",
        )
    if arguments.of in _COUNTED and traced:
        raise UsageError(
            "--trace all does not count what the processor does",
            f"leave out --trace all, or --of {arguments.of}",
        )
    if floor <= 0:
        raise UsageError("--until 0 can never be shown", "give a share above 0, such as 5%")
    asked = sorted({*tails, *arguments.tail})
    return AbRequest(
        commands=[[*command] for command in commands],
        floor=floor,
        alpha=arguments.alpha,
        seed=secrets.randbits(32) if arguments.seed is None else arguments.seed,
        statistic=arguments.statistic,
        of=arguments.of,
        tails=sorted({EVIDENCE.slow, *asked}),
        asked_tails=asked,
        slot=1 if traced else arguments.slot,
        max_blocks=arguments.max_blocks,
        time=arguments.time,
        # Of these what tracing costs is known.
        warmup=max(arguments.warmup, _UNTRACED) if traced else arguments.warmup,
        prepare=arguments.prepare,
        timeout=arguments.timeout,
        failures_are_slow=arguments.failures_are_slow,
        as_root=arguments.as_root,
        show_output=arguments.show_output,
        label=arguments.label,
        specification=specification,
        profile=needed(specification) or "minimal",
        every_block=getattr(arguments, "verbose", False),
        traced=traced,
        skip_first=skip_first,
    )


def judge(
    request: AbRequest,
    inherited: Any,
    directory: Path | None,
    arguments: argparse.Namespace,
    *,
    quiet: bool,
) -> AbDocument:
    """Run blocks, and after an alarm record some for the cause."""
    from critpath.ab import TracedSlots, add_cause, compare_commands  # noqa: PLC0415 - start-up time
    from critpath.commands.record import ProgressReporter  # noqa: PLC0415 - start-up time
    from critpath.flow import compare_recordings  # noqa: PLC0415 - start-up time
    from critpath.text.ab import cause_unknown  # noqa: PLC0415 - start-up time

    lines = _Lines(quiet=quiet, every=request.every_block)
    reporter = ProgressReporter(quiet=True)
    record = partial(_record_blocks, request, reporter)
    with contextlib.ExitStack() as stack:
        stack.callback(reporter.close)
        place = None if directory is None else directory / _RECORDINGS
        traced = None
        if request.traced:
            _drop_own_threads(inherited)
            kept = stack.enter_context(tempfile.TemporaryDirectory(prefix="critpath-ab-"))
            traced = TracedSlots(request, place or Path(kept), record)
            traced.place.mkdir(exist_ok=True)
        try:
            document = compare_commands(request, _open_slots(request, inherited), lines, traced)
        finally:
            lines.close()
        if (
            document.verdict not in _ALARMS
            or getattr(arguments, "trace", "none") == "none"
            or document.stopped_by in {"user", "signal"}
        ):
            return document
        _drop_own_threads(inherited)
        try:
            with Progress(quiet=quiet) as progress:
                if traced is not None:
                    return add_cause(document, compare_recordings(traced.parts, request, progress))
                progress("recording blocks for the cause")
                kept = stack.enter_context(tempfile.TemporaryDirectory(prefix="critpath-ab-"))
                target = place or Path(kept) / "recordings"
                record(target)
                return add_cause(document, compare_recordings([target], request, progress))
        except CritpathError as error:
            hint(cause_unknown(error.what), quiet=quiet)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the verdict must not be lost for its cause
            hint(cause_unknown(f"{type(error).__name__} {error}"), quiet=quiet)
        return document


def _open_slots(request: AbRequest, inherited: Any) -> AbstractContextManager[Slots]:
    """Return what runs blocks of both commands, without tracing."""
    from critpath_record import SlotRunner  # noqa: PLC0415 - start-up time

    return SlotRunner.open(
        inherited,
        request.commands,
        prepare=request.prepare,
        timeout=request.timeout,
        as_root=request.as_root,
        show_output=request.show_output,
        label=request.label,
        counted=request.of if request.of in _COUNTED else "",
    )


def _record_blocks(
    request: AbRequest,
    reporter: Reporter,
    target: Path,
    orders: Sequence[str] = (),
    observe: Callable[[str, RunResult], None] = lambda *_: None,
) -> None:
    """Record blocks of both commands, in random order or that of `orders`."""
    from critpath import __version__  # noqa: PLC0415 - the version only
    from critpath.schema.parameters.ab import EVIDENCE  # noqa: PLC0415 - start-up time
    from critpath_record import RecordRequest, record  # noqa: PLC0415 - start-up time

    record(
        RecordRequest(
            output=target,
            commands=tuple(tuple(command) for command in request.commands),
            version=__version__,
            runs=2 * (len(orders) or EVIDENCE.cause_blocks),
            prepare=request.prepare,
            timeout=request.timeout,
            as_root=request.as_root,
            order="".join(orders),
            show_output=request.show_output,
            profile=request.profile,
        ),
        reporter,
        observe=observe,
    )


def _drop_own_threads(inherited: Any) -> None:
    """Take our setting for the linear algebra library back: what is recorded inherits it."""
    if THREADS.encode() not in inherited.environment:
        os.environ.pop(THREADS, None)


@contextlib.contextmanager
def kept_directory(output: Path | None) -> Any:
    """Give a directory that appears under its name only when it is whole; None for none."""
    if output is None:
        yield None
        return
    from critpath.files import atomic_directory  # noqa: PLC0415 - numpy

    with atomic_directory(output) as place:
        yield place


def _run_again(arguments: argparse.Namespace) -> int:
    from critpath.ab import judge_again  # noqa: PLC0415 - start-up time
    from critpath.documents import AbDocument  # noqa: PLC0415 - numpy
    from critpath.report.document import load_document  # noqa: PLC0415 - start-up time

    if arguments.command:
        raise UsageError("--again runs nothing", "leave the commands out, or --again")
    place = arguments.again / DOCUMENT if arguments.again.is_dir() else arguments.again
    check_inputs([place])
    check_outputs([arguments.json], [place])
    try:
        content = place.read_bytes()
    except OSError as error:
        raise UnreadableError(f"cannot read {place}: {error.strerror}", "check the path") from None
    document = load_document(content)
    if not isinstance(document, AbDocument):
        raise UnreadableError(f"{place} has no blocks", "give a directory of critpath ab -o DIR")
    return _show(judge_again(document), arguments.json)


def _write_document(place: Path, document: AbDocument) -> None:
    from critpath.report.document import to_json  # noqa: PLC0415 - start-up time

    write_output(str(place), to_json(document))


def _show(document: AbDocument, json: str | None) -> int:
    if json is not None:
        from critpath.report.document import to_json  # noqa: PLC0415 - start-up time

        write_output(json, to_json(document))
    if json != STDOUT:
        from critpath.report.text import render_ab  # noqa: PLC0415 - start-up time

        render_ab(document, make_console())
    return document.exit


class _Lines:
    """Print progress to stderr; on a terminal each line replaces the one before."""

    def __init__(self, *, quiet: bool, every: bool) -> None:
        self._quiet, self._every = quiet, every
        self._terminal = not quiet and sys.stderr.isatty() and not every
        self._open = False

    def say(self, line: str) -> None:
        """Show a line that stays."""
        self.close()
        hint(line, quiet=self._quiet)

    def look(self, line: str) -> None:
        """Show the latest state."""
        if self._terminal:
            columns = shutil.get_terminal_size().columns
            sys.stderr.write(f"\r\x1b[K{line[: columns - 1]}")
            sys.stderr.flush()
            self._open = True
        elif self._every:
            hint(line, quiet=self._quiet)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._open:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._open = False


# Values.


def _split_commands(words: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split ``A ARG... -- B ARG...``."""
    if words.count("--") != 1:
        raise UsageError(
            "two commands are needed, with -- before each", "critpath ab -- A ARG... -- B ARG..."
        )
    middle = words.index("--")
    a, b = tuple(words[:middle]), tuple(words[middle + 1 :])
    if not a or not b:
        raise UsageError("a command is empty", "critpath ab -- A ARG... -- B ARG...")
    return a, b
