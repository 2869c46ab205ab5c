"""What is to be recorded, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from critpath.model import Manifest

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
