"""What a recorder is: the two that there are differ behind this interface only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from critpath.errors import CritpathError
from critpath.model import Manifest

if TYPE_CHECKING:
    from critpath.model import CpuLoss


class UnfinishedError(CritpathError):
    """There is no trace yet, but what was recorded is kept and can become one.

    Nothing is left in the tracer; ``finish_raw`` of the recorder's module makes the trace.

    Attributes
    ----------
    end : int
        Until when it was recorded (ns); 0 if that is not known.
    """

    def __init__(self, what: str, do: str, end: int = 0) -> None:
        super().__init__(what, do)
        self.end = end


@dataclass(frozen=True)
class RecorderSettings:
    """What a recorder is asked to do.

    Attributes
    ----------
    session : str
        From `critpath_marks.sessions.new_name`; everything it makes outside
        ``directory`` carries this name.
    directory : Path
        The recording's directory, which exists, holds at most the manifest and belongs
        to root or the user; the recorder puts the trace into ``directory / "trace"``.
    profile : str
        A file of ``lttng-sessions/`` without its suffix.
    buffer_bytes : int
        Per cpu; 0 for the recorder's own choice.
    trace_format : str
        ``ctf-1.8`` or ``ctf-2`` (LTTng 2.15 and later only).
    keep_raw : bool
        Keep what the trace was converted from.
    writing : Path, optional
        The same directory through a descriptor of this process (`critpath.record.dirfd`):
        what this process writes stays in it, wherever its name leads meanwhile.
    """

    session: str
    directory: Path
    profile: str = "minimal"
    buffer_bytes: int = 0
    trace_format: str = "ctf-1.8"
    keep_raw: bool = False
    writing: Path | None = None

    @property
    def held(self) -> Path:
        """Where this process writes to."""
        return self.writing or self.directory


def _nothing() -> None:
    """There is nothing to delete."""


@dataclass(frozen=True)
class Recorded:
    """What a recorder has to say when the trace is in place.

    Attributes
    ----------
    loss : tuple of CpuLoss
        As the tracer counted it, whatever the trace's own marks say.
    facts : mapping
        For `critpath.model.Manifest.recorder`: ``name``, ``version``, ``events``,
        ``contexts``, ``buffer_bytes``, ``format``, and what else is known.
    warnings : tuple of str
    release : callable
        Deletes what the trace was made from.  To be called when the manifest is written:
        until then a recorder that is killed must not take the counts of the loss along.
    end : int
        Until when the trace of a recording goes that is finished later (ns); 0 if that is
        not known.
    """

    loss: tuple[CpuLoss, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    release: Callable[[], None] = field(default=_nothing, compare=False)
    end: int = 0


class Recorder(Protocol):
    """A recorder, called in this order: start, stop, finish; or abort at any time.

    Every method raises `critpath.errors.CritpathError` with what to do about it, and
    leaves nothing behind when it does; but for `UnfinishedError`, which leaves what was
    recorded.
    """

    @property
    def failure(self) -> CritpathError | None:
        """What ended the recording while the command ran, such as a full disk."""

    def start(self) -> int:
        """Make the session and turn tracing on.

        Returns
        -------
        int
            When tracing was on for every cpu (ns, CLOCK_MONOTONIC).
        """

    def environment(self) -> Mapping[str, str]:
        """Return what the command's environment needs for markers."""

    def descriptors(self) -> tuple[int, ...]:
        """Return file descriptors that the command inherits for markers."""

    def stop(self) -> int:
        """Turn tracing off and take what the buffers still hold; return when (ns)."""

    def finish(self, tell: Callable[[str], None]) -> Recorded:
        """Put the trace into place and remove the session."""

    def abort(self) -> None:
        """Remove the session at once; what was recorded need not become a trace."""


@dataclass(frozen=True)
class Obstacle:
    """Something between this machine and a recording.

    Attributes
    ----------
    name : str
        Short and stable, for scripts: ``root``, ``tracefs``, ``lttng-modules``.
    what, do : str
        One line each; ``do`` is a command where there is one.
    fatal : bool
        Whether recording is impossible because of it.
    """

    name: str
    what: str
    do: str
    fatal: bool = True


@dataclass(frozen=True)
class Leftover:
    """Something that a dead recorder left.

    Attributes
    ----------
    kind : str
        ``instance``, ``session``, ``daemon``, ``process``, ``recording``, ``directory``.
    name : str
    session : str
        The session it belongs to.
    remove : callable
        Removes or finishes it; raises CritpathError if that cannot be done.
    """

    kind: str
    name: str
    session: str
    remove: Callable[[], None]


# Name of a recorder to its module, which offers (imported when it is needed):
#   open_recorder(settings: RecorderSettings) -> Recorder
#   obstacles(settings: RecorderSettings | None) -> list[Obstacle]   what is missing here
#   leftovers() -> list[Leftover]                                    of dead recorders
# In the order that `auto` tries them.
RECORDERS: Final[Mapping[str, str]] = {
    "lttng": "critpath.record.lttng.recorder",
    "ftrace": "critpath.record.ftrace.recorder",
}


# -----------------------------------------------------------------------------
# What is to be recorded, and what came of it.


# Names of the two recordings of an interleaved one.
NORMAL: Final = "normal"
SAMPLE: Final = "sample"
# Where a recording has its trace.
TRACE: Final = "trace"


@dataclass(frozen=True)
class Request:
    """What `critpath record` was asked for.

    Attributes
    ----------
    output : Path
    commands : tuple of tuple of str
        None for the whole machine, one, or two that are recorded in alternation.
    version : str
        Of critpath.
    runs, warmup : int
        Of each command: recorded, and before tracing begins.
    prepare : str
        Line for ``/bin/sh`` before every run, "" for nothing.
    timeout : float
        Seconds a run may last, 0 for any time.
    duration : float
        Seconds the whole machine is recorded, 0 until a signal.
    recorder : str
        ``auto`` or a name of `critpath.record.recorder.RECORDERS`.
    profile : str
    execution : str
        For the manifest; "" for the obvious one.
    container : str
        Name of a container, "" for none.
    buffer_bytes : int
        Per cpu, 0 for the recorder's choice.
    trace_format : str
    keep_raw, as_root, force : bool
    """

    output: Path
    commands: tuple[tuple[str, ...], ...]
    version: str
    runs: int = 1
    warmup: int = 0
    prepare: str = ""
    timeout: float = 0.0
    duration: float = 0.0
    recorder: str = "auto"
    profile: str = "minimal"
    execution: str = ""
    container: str = ""
    buffer_bytes: int = 0
    trace_format: str = "ctf-1.8"
    keep_raw: bool = False
    as_root: bool = False
    force: bool = False

    def directories(self, top: Path) -> tuple[Path, ...]:
        """Return the recordings' directories; the first has the trace."""
        return (top / NORMAL, top / SAMPLE) if len(self.commands) > 1 else (top,)


@dataclass(frozen=True)
class Recording:
    """One directory that was recorded.

    Attributes
    ----------
    directory : Path
        As the user named it.
    manifest : Manifest
    """

    directory: Path
    manifest: Manifest


@dataclass(frozen=True)
class Outcome:
    """What came of a request.

    Attributes
    ----------
    exit_code : int
        The command's, as a shell has it: of the first run that failed.
    recordings : tuple of Recording
        None if it was ended before there was anything to keep.
    size : int
        Bytes on disk.
    """

    exit_code: int
    recordings: tuple[Recording, ...] = ()
    size: int = 0


class Tell(Protocol):
    """Whom a recording talks to while it goes on."""

    def __call__(self, message: str) -> None:
        """Show what is being done now; no command runs meanwhile."""

    def say(self, message: str) -> None:
        """Show a line that stays."""

    def run(self, number: int, total: int, what: str = "run") -> None:
        """Show which run begins; must cost next to nothing, and nothing while it runs."""
