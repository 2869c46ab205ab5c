"""The types of a request to record, of what a recorder is asked to do, and of its outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from critpath.errors import CritpathError
from critpath.model import Manifest
from critpath.model.recording import NORMAL, SAMPLE

if TYPE_CHECKING:
    from critpath_record.budget.control import Budget
    from critpath_record.source import Count


class UnfinishedError(CritpathError):
    """There is no trace yet, but what was recorded is kept and can become one.

    Nothing is left in the tracer; ``finish_killed`` of the recorder's module makes the trace.

    `end`: when recording ended (ns); 0 if unknown.
    """

    def __init__(self, what: str, do: str, end: int = 0) -> None:
        super().__init__(what, do)
        self.end = end


# What requests may be labelled from, if that is asked for: the first bytes of messages; besides
# the one header that has a trace's id; and the same of what a library of TLS decrypts.
LABELS_FROM: Final = ("bytes", "bytes,traceparent", "bytes,tls", "bytes,traceparent,tls")


@dataclass(frozen=True)
class RecorderSettings:
    """What a recorder is asked to do."""

    # From `critpath_record.sessions.new_session_name`; everything it makes outside ``directory``
    # carries this name.
    session: str
    # The recording's directory, which exists, holds at most the manifest and belongs to root or the
    # user; the recorder puts the trace into ``directory / "trace"``.
    directory: Path
    profile: str = "minimal"  # a file of ``lttng-sessions/`` without its suffix
    buffer_bytes: int = 0  # per CPU; 0 for the recorder's own choice
    trace_format: str = "ctf-1.8"  # ``ctf-1.8`` or ``ctf-2`` (LTTng 2.15 and later only)
    keep_raw: bool = False  # keep what the trace was converted from
    # The same directory through a descriptor of this process (`critpath_record.dirfd`): what this
    # process writes stays in it even if its name is exchanged.
    fd_directory: Path | None = None
    # Uids whose programs may mark executions though they may not trace; -1 for all.
    mark_users: tuple[int, ...] = ()
    # Whether these were asked for, so that it is an error if they cannot.
    marks_required: bool = False
    command_uid: int = 0  # whom the command runs as
    labels_from: str = ""  # of `LABELS_FROM`; "" for nothing
    tasks: bool = False  # marks of runtimes are asked for: which task runs
    budget: Budget | None = None  # what recording may cost; None for all that it does
    runs: bool = False  # under a budget, runs of a command are recorded whole or not at all
    # Under a budget, s after which an execution of a program is given up; 0 for the usual.
    longest: float = 0.0
    lasts: float = 0.0  # s that it goes on; 0 where that is not known
    counts: CountsRequest | None = None  # what is counted besides

    @property
    def write_directory(self) -> Path:
        """The path that this process writes to."""
        return self.fd_directory or self.directory


@dataclass(frozen=True)
class Requirement:
    """Something that recording needs and this machine lacks."""

    name: str  # short and stable, for scripts: ``root``, ``tracefs``, ``lttng-modules``
    # One line each: what is missing, and how to fix it, as a command where possible.
    what: str
    do: str
    fatal: bool = True  # whether recording is impossible without it


@dataclass(frozen=True)
class Leftover:
    """Something that a dead recorder left behind."""

    # ``instance``, ``option``, ``session``, ``daemon``, ``process``, ``recording``, ``directory``.
    kind: str
    name: str
    session: str  # the session it belongs to
    remove: Callable[[], None]  # removes or finishes it; raises CritpathError if that fails


@dataclass(frozen=True)
class CountsRequest:
    """What is counted beside what is recorded."""

    interval: int  # between two lines (ns)
    events: str = "minimal"  # of `critpath_record.counts.events.EVENT_SETS`
    # ``command``, ``machine``, or a control group's path or name; "" for the obvious one.
    scope: str = ""
    # Kernel functions that are counted besides, as patterns with ``*``.
    functions: tuple[str, ...] = ()


# Recorders by name, in the order that `auto` tries them.  Each module (imported when it is
# needed) offers:
#   open_recorder(settings: RecorderSettings) -> critpath_record.source.Source
#   finish_killed(directory: Path, report: Callable[[str], None]) -> Taken | None
RECORDERS: Final[Mapping[str, str]] = {
    "lttng": "critpath_record.lttng.recorder",
    "ftrace": "critpath_record.ftrace.recorder",
    "counts": "critpath_record.counts.recorder",
}
# What each lacks here, and how it can record requests, is asked without the recorder itself:
#   find_needs(settings: RecorderSettings | None) -> list[Requirement]
#   offered_way() -> str
NEEDS: Final[Mapping[str, str]] = {
    "lttng": "critpath_record.lttng.preflight",
    "ftrace": "critpath_record.ftrace.preflight",
    "counts": "critpath_record.counts.recorder",
}
# Where each looks for what dead ones left, by ``find_leftovers() -> list[Leftover]``: without
# the recorder itself.
LEFTOVERS: Final = (
    *("critpath_record.lttng.daemon", "critpath_record.ftrace.cleanup"),
    *("critpath_record.counts.groups", "critpath_record.shared"),
)
# What `auto` tries: a recording has a trace, unless it is asked for otherwise.
TRACING: Final = ("lttng", "ftrace")


# A request to record, and its outcome


# Where a recording has its trace.
TRACE: Final = "trace"
# What may lie beside the manifest.
BESIDE: Final = ("gaps.jsonl", "selected.jsonl", "functions.json")


@dataclass(frozen=True)
class RecordRequest:
    """What to record."""

    output: Path
    # None for the whole machine, one, or two that are recorded in alternation.
    commands: tuple[tuple[str, ...], ...]
    version: str  # of critpath
    # Of each command: recorded, and before tracing begins.
    runs: int = 1
    warmup: int = 0
    prepare: str = ""  # line for ``/bin/sh`` before every run, "" for nothing
    timeout: float = 0.0  # seconds a run may last, 0 for no limit
    duration: float = 0.0  # seconds to record the whole machine, 0 until a signal
    recorder: str = "auto"  # ``auto`` or a name of `critpath_record.recorder.RECORDERS`
    # "" for `requests` where servers listen and the machine is recorded, else `minimal`.
    profile: str = "minimal"
    execution: str = ""  # for the manifest; "" for the obvious one
    container: str = ""  # name of a container, "" for none
    buffer_bytes: int = 0  # per CPU, 0 for the recorder's choice
    trace_format: str = "ctf-1.8"
    # Users whose programs may mark, separated by commas; ``all``, ``none``, or "" for who called
    # sudo.
    marks_from: str = ""
    keep_raw: bool = False
    as_root: bool = False
    force: bool = False
    probe: bool = True  # measure how fast the machine is meanwhile
    order: str = ""  # of the runs of two commands, such as ``ABBABAAB``; "" to draw it
    labels_from: str = ""  # of `LABELS_FROM`; "" for nothing
    show_output: bool = True  # commands' output goes where critpath's goes
    budget: Budget | None = None  # what recording may cost
    functions: bool = False  # record the functions of the command, which is a Python
    tasks: bool = False  # ask runtimes which task runs
    counts: CountsRequest | None = None  # what is counted besides
    # Of `critpath_record.stacks.sources.SOURCES`: what takes stacks besides.
    stacks: tuple[str, ...] = ()
    scope: str = ""  # of whose threads: as in `CountsRequest`

    def directories(self, top: Path) -> tuple[Path, ...]:
        """Return the directories of the recordings below `top`; the first has the trace."""
        return (top / NORMAL, top / SAMPLE) if len(self.commands) > 1 else (top,)


@dataclass(frozen=True)
class Recording:
    """One directory that was recorded."""

    directory: Path  # as the user named it
    manifest: Manifest


@dataclass(frozen=True)
class Outcome:
    """The outcome of a request to record."""

    exit_code: int  # the command's, as a shell reports it: of the first run that failed
    # Empty if recording ended before there was anything to keep.
    recordings: tuple[Recording, ...] = ()
    size: int = 0  # bytes on disk


class Reporter(Protocol):
    """Receives the progress of a recording."""

    def __call__(self, message: str) -> None:
        """Show the current step; no command runs meanwhile."""

    def say(self, message: str) -> None:
        """Show a line that stays."""

    def wait(self, left: float | None, count: Callable[[], Count | None]) -> None:
        """Show that the machine is recorded, for how long (s), and a count if somebody looks."""

    def run(self, number: int, total: int, what: str = "run") -> None:
        """Show which run begins; must cost next to nothing, and nothing while it runs."""
