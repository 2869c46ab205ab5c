"""``critpath record``: from a command to a recording that can be compared."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from critpath.commands.declared import command, flag, option
from critpath.commands.output import Progress, check_outputs, hint
from critpath.commands.recorded import describe_flaws, describe_outcome
from critpath.commands.settings import (
    COUNTING,
    FLYING,
    RECORDING,
    Settings,
    number,
    split_budget,
    whole,
)
from critpath.errors import CritpathError, UsageError
from critpath.model.recording import MANIFEST_RUNS
from critpath.units import NS_PER_S, format_span, plural, safe_text

if TYPE_CHECKING:
    from critpath.model import StreamFacts
    from critpath.model.recording import Chosen
    from critpath_record import (
        Budget,
        Count,
        CountsRequest,
        RecordRequest,
        Reporter,
        RunResult,
    )

SETTINGS = ("execution", *RECORDING, *FLYING, *COUNTING)

_SMALL_OVERHEAD, _LONG_HORIZON = 0.02, 10.0  # below it switching events off takes its share
_SECONDS = number(0, 31_536_000, "a number of seconds above 0")
_THREADS = "OPENBLAS_NUM_THREADS"
_RUNS = whole(1, MANIFEST_RUNS)


# What --help shows together; the last group has the rest.
GROUPS: Final = {
    "everyday": (
        *("output", "runs", "all", "duration", "interleave", "container", "warmup", "prepare"),
        *("timeout", "force", "execution", "then"),
    ),
    "who may trace": ("as-root", "marks-from"),
    "names of requests": ("labels-from",),
    "inside programs": ("functions", "tasks"),
    "counts": ("counts", "events", "kernel-functions", "interval", "scope"),
    "where in the code": ("stacks", "files"),
    "under a budget": ("overhead", "controller", "overhead-of", "calibrate"),
    "always on": ("always", "keep", "memory", "when", "at-most", "dumps", "after", "usual"),
    "method": (),
}


OPTIONS: Final = (
    option("-o --output", "DIR", "the recording's directory (critpath-TIME-NAME)", Path),
    option("-n --runs", "RUNS", "runs that are recorded (1)", _RUNS),
    option("--warmup", "K", "runs before that are not recorded", whole(0, 1_000_000), 0),
    option("--prepare", "LINE", "a line for sh before every run", default=""),
    option("--timeout", "S", "end a run, with all that it started, after S seconds",
        _SECONDS, 0.0),
    flag("-a --all", "the whole machine, without a command"),
    option("--duration", "S", "with -a or --container: seconds (or until Ctrl-C)", _SECONDS,
        0.0),
    option("--container", "NAME", "the machine; runs are the processes of this container",
        default=""),
    option("--hosts", "A,B", "the whole machine on each of these hosts at once, over ssh, into "
        "DIR/A, DIR/B", default=""),
    option("--remote-command", "CMD", "with --hosts: how critpath is called there, such as: sudo "
        "critpath", default="critpath"),
    option("--interleave", ("A", "B"), "two commands in turn, in blocks of random order, into "
        "DIR/normal and DIR/sample", nargs=2),
    option("--marks-from", "WHO", "users whose programs may mark runs though they may not "
        "trace: names separated by commas, all, or none (default: who called sudo)", default=""),
    option("--labels-from", "WHAT", "name requests by the first 64 bytes of their messages: bytes "
        "(method and path, first words of SQL, a command's name), bytes,traceparent for trace ids "
        "besides, bytes,tls or bytes,traceparent,tls for what OpenSSL decrypts, too; "
        "docs/labels.md says what is looked at and kept", default="",
        choices=("bytes", "bytes,traceparent", "bytes,tls", "bytes,traceparent,tls")),
    option("--events", None, "what is counted: minimal (system calls, and what tells what runs), "
        "broad (what tells faults, too), all tracepoints, or free (only what /proc has of the "
        "machine anyway, which needs no root); docs/counts.md says what each costs",
        default="minimal", choices=("minimal", "broad", "all", "free")),
    option("--kernel-functions", "NAMES", "count these kernel functions besides, where the kernel "
        "can: names separated by commas, with * for any text", default=""),
    option("--stacks", "WHAT", "with which stacks threads sleep, wake others and run, for causes "
        "that name functions and lines: native (any program, by perf), python (besides functions "
        "of Python 3.12 and later, and samples), samples (Python from 3.8 on, sampled, also what "
        "runs already), with commas between, or auto for what this machine offers; "
        "docs/code-locations.md says what it costs", default=""),
    flag("--files", "look what threads sleep for, for causes that name the file or the peer that "
        "a system call waits for: fsync(audit.log), recvfrom(127.0.0.1:5432)"),
    option("--then", None, "explore: then say what the slow runs have in common, and write "
        "the page to ask on as DIR.html; with -a they are the requests of servers unless "
        "--execution is given", default="", choices=("explore",)),
    flag("--functions", "with a command that is python SCRIPT or python -m MODULE (Python 3.12 or "
        "later), or with --always of programs that have the agent: which function ran, for paths "
        "and findings"),
    flag("--tasks", "ask Python and Node.js which task of their event loop runs, so that it is "
        "certain whose each call is; docs/tasks.md says how, and what it costs"),
    flag("--counts", "count beside it how often each event happens, into DIR/counts"),
    flag("--always", "keep recording into memory, and save it when something goes wrong"),
    flag("--keep-raw", "keep what the trace was converted from"),
    flag("--as-root", "under sudo: run the command as root too"),
    flag("--no-probe", "do not measure meanwhile how fast the machine is"),
    flag("--no-probes", "with --hosts: do not ask the hosts the time before and after"),
    flag("--force", "replace a recording, and a page of --then"),
    command("CMD ARG...", "the command, best after --"),
)  # fmt: skip


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Record and return the command's exit code."""
    if arguments.always:
        from critpath.commands.dump import record_always  # noqa: PLC0415 - start-up time

        return record_always(arguments, settings)
    _refuse_always_options(settings)
    if arguments.hosts:
        return _record_hosts(arguments, settings)
    request = _request(arguments, settings)
    page = f"{str(request.output).rstrip('/')}.html"
    if arguments.then:
        check_outputs([page], force=arguments.force)
    from critpath_record import (  # noqa: PLC0415 - start-up time
        User,
        record,
    )

    quiet = settings["quiet"]
    tell = ProgressReporter(quiet=quiet)
    if (said := _advise_turns(request)) and not arguments.then:
        tell.say(said)
    try:
        observe = foresee(request.runs, tell) if len(request.commands) > 1 else lambda *_: None
        outcome = record(request, tell, survey_recorded, observe, count_chosen)
    finally:
        tell.close()
    for line in describe_outcome(outcome, request, arguments.typed):
        # What makes a recording worth less is printed even with --quiet.
        hint(line, quiet=quiet and not line.startswith("warning: "))
    if not arguments.then or not outcome.recordings:
        return outcome.exit_code
    # What the command ended with counts; that there is nothing to explore is said, and counts else.
    recordings = [one.directory for one in outcome.recordings]
    user = User.behind_sudo(os.environb, as_root=arguments.as_root)
    try:
        if user is not None:
            # Never as root: the command was the user's, and may have put a link there.
            options = ["--quiet"] if quiet else []
            done = user.run_critpath(["explore", *map(str, recordings), "-o", page, *options])
            return outcome.exit_code or done
        _explore(recordings, page, settings)
    except CritpathError as error:
        where = ", ".join(str(one.directory) for one in outcome.recordings)
        hint(f"critpath: {where}: recorded and kept, but not explored", quiet=False)
        if outcome.exit_code:
            hint(f"critpath: {error.what}\n  {error.do}", quiet=False)
        else:
            raise
    return outcome.exit_code


def _advise_turns(request: RecordRequest) -> str:
    """Say, before a busy machine is recorded once, how what else runs will not count; or ""."""
    from critpath.schema.parameters.ab import FORESIGHT  # noqa: PLC0415 - start-up time

    cpus, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    if len(request.commands) > 1 or request.counts or load < FORESIGHT.busy * cpus:
        return ""
    busy = f"the machine is busy: {load:.1f} threads run or wait for {plural(cpus, 'CPU')}"
    if request.commands:
        return (
            f"{busy}. critpath ab -- A ... -- B ..., or record --interleave A B, runs both states "
            "in turns, so that what else runs counts for neither"
        )
    return (
        f"{busy}. Record both states more than once, in turns, so that what else runs counts for "
        "neither: before/1, after/1, before/2, after/2; then: critpath compare before after"
    )


def _refuse_always_options(settings: Settings) -> None:
    for name in FLYING:
        if "command line" in settings.origins[name]:
            raise UsageError(f"--{name} without --always", "add --always, or leave it out")


def _record_hosts(arguments: argparse.Namespace, settings: Settings) -> int:
    """Record several hosts over ssh; 125 where one of them failed, whatever the others did."""
    from critpath import __version__  # noqa: PLC0415 - start-up time
    from critpath.commands.remote import RemoteRequest  # noqa: PLC0415 - start-up time

    _refuse_hosts_options(arguments)
    options = _host_options(arguments, settings)
    try:
        shlex.split(arguments.remote_command)[0]
    except (ValueError, IndexError):
        raise UsageError("--remote-command: no command", "critpath, or sudo critpath") from None
    output = arguments.output or _default_output("hosts")
    request = RemoteRequest(
        *(tuple(arguments.hosts.split(",")), output, arguments.duration, tuple(options)),
        command=arguments.remote_command,
        force=arguments.force,
        version=f"critpath {__version__}",
        probes=not arguments.no_probes,
    )
    quiet = settings["quiet"]

    def tell(what: str) -> None:
        warning = what.startswith("warning: ")
        hint(what if warning else f"critpath: {what}", quiet=quiet and not warning)

    fetched, wrong = request.record(tell, time.sleep)
    for line in wrong:
        hint(f"warning: {line}", quiet=False)
    for name in fetched:
        for line in _describe_host(output / name):
            hint(line, quiet=False)
    if fetched:
        hint(f"{output}: {', '.join(fetched)}", quiet=quiet)
        hint(f"next: critpath clocks {shlex.quote(str(output))}", quiet=quiet)
    if wrong:
        hosts = plural(len(request.hosts), "host")
        raise CritpathError(
            f"{len(wrong)} of {hosts} sent no recording{'' if fetched else ': nothing was kept'}",
            "record again when what the warnings say is mended, or copy what is left there",
        )
    return 0


def _refuse_hosts_options(arguments: argparse.Namespace) -> None:
    if arguments.then:
        raise UsageError("--then explore with --hosts", "critpath explore DIR afterwards")
    if arguments.command or arguments.interleave or arguments.container:
        raise UsageError(
            "--hosts together with a command", "record the whole machines, or this one's command"
        )
    _refuse_command_options(arguments)
    if arguments.stacks or arguments.files:
        raise UsageError(
            "--stacks or --files with --hosts", "record the host's stacks there, by itself"
        )
    if arguments.as_root:
        raise UsageError("--as-root with --hosts, which runs no command", "leave it out")


def _host_options(arguments: argparse.Namespace, settings: Settings) -> list[str]:
    """Return what of the options each host is given."""
    chosen = settings.origins["profile"] != "default"
    options = ["--profile", str(settings["profile"]) if chosen else "network"]
    options += ["--recorder", str(settings["recorder"])]
    given = {
        "--execution": settings["execution"],
        "--buffer-size": settings["buffer-size"],
        "--labels-from": arguments.labels_from,
        "--marks-from": arguments.marks_from,
    }
    if settings.origins["trace-format"] != "default":
        given["--trace-format"] = settings["trace-format"]
    for name, value in given.items():
        options += [name, str(value)] if value else []
    options += ["--no-probe"] if arguments.no_probe else []
    options += ["--tasks"] if arguments.tasks else []
    return options + (["--keep-raw"] if arguments.keep_raw else [])


def _describe_host(directory: Path) -> Iterator[str]:
    """Yield the warnings of a host's recorder, which nobody has read there."""
    os.environ.setdefault(_THREADS, "1")  # as below
    from critpath.read import Recording  # noqa: PLC0415 - start-up time

    name = safe_text(directory.name)
    try:
        for line in describe_flaws(Recording(directory).manifest, directory):
            yield f"warning: {name}: {safe_text(line.removeprefix('warning: '))}"
    except CritpathError as error:
        yield f"warning: {name}: {safe_text(error.what)}"


def _explore(recordings: list[Path], page: str, settings: Settings) -> None:
    """Say what the slow executions of recordings have in common, and write the page."""
    os.environ.setdefault(_THREADS, "1")  # as below
    from critpath.commands import explore  # noqa: PLC0415 - the analysis is for after recording

    asked = argparse.Namespace(
        trace=recordings, given=[], what=None, depth=1, all=False, json=None, output=page
    )
    # What an execution is the recordings say.
    explore.run(asked, replace(settings, values={**settings.values, "execution": None}))


def survey_recorded(recording: Path) -> tuple[StreamFacts, ...]:
    """Count what a finished recording holds; numpy is not there before, nor while it records."""
    # As other verbs have it: set now, no command inherits it any more.
    os.environ.setdefault(_THREADS, "1")
    from critpath.read import Recording  # noqa: PLC0415 - start-up time

    return Recording(recording).survey_streams()


def count_chosen(recording: Path) -> Chosen | None:
    """Count what a budget chose of the executions that programs mark in a finished recording."""
    os.environ.setdefault(_THREADS, "1")  # as above
    from critpath import graph  # noqa: PLC0415 - as above

    return graph.count_chosen(recording)


def foresee(planned: int, reporter: Reporter) -> Callable[[str, RunResult], None]:
    """Return what reports on each run, and what the blocks will show while more can be recorded."""
    from critpath.text.foresight import describe_power  # noqa: PLC0415 - of two commands only

    took: dict[str, list[int]] = {"A": [], "B": []}

    def observe(which: str, run: RunResult) -> None:
        took[which].append(0 if run.timed_out else run.end - run.begin)
        done = sum(map(len, took.values()))
        if done in {planned, 2 * planned} and (
            said := describe_power(took["A"], took["B"], planned)
        ):
            reporter.say(said)

    return observe


def _request(arguments: argparse.Namespace, settings: Settings) -> RecordRequest:
    import critpath  # noqa: PLC0415 - the version only
    from critpath_record import RecordRequest  # noqa: PLC0415 - start-up time

    commands = _commands(arguments)
    specification = settings["execution"] or ""
    if arguments.then and not commands and not specification and not arguments.container:
        specification = "requests"
    if specification:
        check_execution(specification)
    name = arguments.container or (commands[0][0] if commands else "all")
    budget = make_budget(settings, commands=bool(commands))
    if arguments.tasks and budget is not None:
        raise UsageError(
            "--tasks with --overhead: what runtimes say cannot be switched off in between",
            "record without one of them",
        )
    return RecordRequest(
        output=arguments.output or _default_output(name),
        commands=commands,
        version=critpath.__version__,
        runs=arguments.runs or 1,
        warmup=arguments.warmup,
        prepare=arguments.prepare,
        timeout=arguments.timeout,
        duration=arguments.duration,
        recorder=settings["recorder"],
        profile=_profile(settings, specification, machine=not (commands or arguments.container)),
        execution=specification,
        container=arguments.container,
        buffer_bytes=settings["buffer-size"],
        trace_format=settings["trace-format"],
        marks_from=arguments.marks_from,
        keep_raw=arguments.keep_raw,
        functions=arguments.functions,
        tasks=arguments.tasks,
        labels_from=arguments.labels_from,
        budget=budget,
        counts=_counts(arguments, settings),
        probe=not arguments.no_probe,
        as_root=arguments.as_root,
        force=arguments.force,
        stacks=find_stacks(arguments, settings, commands=bool(commands)),
        scope=settings["scope"],
    )


def _counts(arguments: argparse.Namespace, settings: Settings) -> CountsRequest | None:
    """Return what is counted, None for nothing."""
    if not arguments.counts and settings["recorder"] != "counts":
        for option in ("kernel_functions", "events"):
            if getattr(arguments, option) not in {"", "minimal"}:
                raise UsageError(
                    f"--{option.replace('_', '-')} without counts",
                    "add --counts, or take --recorder counts",
                )
        return None
    from critpath_record import CountsRequest  # noqa: PLC0415 - start-up time

    return CountsRequest(
        round(settings["interval"] * NS_PER_S),
        arguments.events,
        settings["scope"],
        tuple(name for name in arguments.kernel_functions.split(",") if name),
    )


def find_stacks(
    arguments: argparse.Namespace, settings: Settings, *, commands: bool
) -> tuple[str, ...]:
    """Return what takes stacks besides, and say what was chosen or is missing."""
    asked = ",".join(filter(None, (arguments.stacks, "files" if arguments.files else "")))
    if not asked:
        return ()
    option = "--stacks" if arguments.stacks else "--files"
    from critpath_record import AUTO, Preflight, check_stacks  # noqa: PLC0415 - start-up time

    if settings["recorder"] == "counts":
        raise UsageError(
            f"{option} with --recorder counts, which records no paths", "leave one of them out"
        )
    found = check_stacks(asked, machine=not commands, held=arguments.always)
    if arguments.stacks == AUTO:
        missing = "" if found else Preflight.find_stack_sources()["native"][0].what
        said = ", ".join(found) or f"none: {missing}"
        hint(f"critpath: stacks: {said}", quiet=settings["quiet"] and bool(found))
    return found


def make_budget(settings: Settings, *, commands: bool) -> Budget | None:
    """Return what recording may cost, None for whatever it does."""
    if not settings["overhead"]:
        return None
    from critpath_record import BUDGET_OF_COMMAND, Budget  # noqa: PLC0415 - start-up time

    if settings["recorder"] == "counts":
        raise UsageError(
            "--overhead with --recorder counts, which cannot hold a budget",
            "leave --recorder out: the ftrace recorder can",
        )
    of = str(settings["overhead-of"])
    if of == BUDGET_OF_COMMAND and not commands:
        raise UsageError(
            "--overhead-of command without a command", "--overhead-of busiest, or machine"
        )
    overhead, horizon = split_budget(str(settings["overhead"]))
    if horizon is None:
        horizon = _LONG_HORIZON if overhead < _SMALL_OVERHEAD else 1.0
    return Budget(
        *(overhead, horizon, str(settings["controller"])), of=of, calibrate=settings["calibrate"]
    )


def _profile(settings: Settings, specification: str, *, machine: bool) -> str:
    """Return the profile: by default the one that the executions need.

    "" where the whole machine is recorded, and nothing says what executions are.
    """
    given = str(settings["profile"])
    if settings.origins["profile"] != "default":
        return given
    return needed(specification) or (given if specification or not machine else "")


def needed(specification: str) -> str:
    """Return the profile without which there are no such executions; "" where any will do."""
    kind, marker, *_ = (*re.split("[:,]", specification), "")
    if kind != "slices":
        return kind if kind == "requests" else ""
    from critpath.model.requests import MARKERS  # noqa: PLC0415 - numpy

    return MARKERS[marker].profile


def check_execution(specification: str) -> None:
    """Refuse a wrong specification; the environment stays what the command inherits."""
    # A thread of the linear algebra library would take signals that are meant for us.
    given = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"
    try:
        from critpath import executions  # noqa: PLC0415 - numpy

        executions.parse_specification(specification)
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
        _refuse_command_options(arguments)
        return ()
    if arguments.duration:
        raise UsageError("--duration with a command", "--timeout ends a run; -a records without")
    if not command:
        raise UsageError(
            "no command to record",
            "critpath record -n 30 -o DIR -- CMD ARG...; or -a for the whole machine",
        )
    return (command,)


def _refuse_command_options(arguments: argparse.Namespace) -> None:
    given = {
        "-n": arguments.runs,
        "--warmup": arguments.warmup,
        "--prepare": arguments.prepare,
        "--timeout": arguments.timeout,
        "--functions": arguments.functions,
    }
    for name, value in given.items():
        if value:
            raise UsageError(f"{name} without a command", "leave it out; see --duration")


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


class ProgressReporter:
    """Shows on stderr what goes on, but wakes nothing up while the command runs."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._terminal = not quiet and sys.stderr.isatty()
        self._progress: Progress | None = None
        self._begin = time.monotonic()
        self._shown = 0.0
        self._line = False
        self._last: tuple[Count | None, float] | None = None

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

    def wait(self, left: float | None, count: Callable[[], Count | None]) -> None:
        """Count down, with how many events come in."""
        self._stop()
        if not self._terminal:
            return
        now = time.monotonic()
        if self._last is None:
            self._begin = now
        shown = recording_so_far(left, now - self._begin, *self._rate(now, count()))
        self._line = True
        width = shutil.get_terminal_size().columns - 1
        with contextlib.suppress(OSError):
            sys.stderr.write(f"\r\x1b[K{shown[:width]}")
            sys.stderr.flush()

    def _rate(self, now: float, count: Count | None) -> tuple[float | None, int]:
        """Return the events a second since it was asked last, and those lost in all."""
        (before, then), self._last = self._last or (count, now), (count, now)
        if count is None or before is None or now <= then:
            return None, count.lost if count else 0
        return (count.events + count.lost - before.events - before.lost) / (now - then), count.lost

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


def recording_so_far(left: float | None, since: float, rate: float | None, lost: int = 0) -> str:
    """Return the line that is shown while the whole machine is recorded."""
    said = f"{format_span(since)} so far" if left is None else f"{format_span(left)} left"
    if rate is not None:
        said += f", {rate:,.0f} events/s"
    return said + (f", {plural(lost, 'event')} lost" if lost else "")
