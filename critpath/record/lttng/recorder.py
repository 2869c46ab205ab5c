"""Records through LTTng's kernel tracer, in a session of its own.

What `lttng` does in a terminal, with every step undone when one fails: load the profile
into a session with a private name, start, stop, read the counts back, destroy.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from critpath.errors import CritpathError
from critpath.record.held import for_children
from critpath.record.lttng import program
from critpath.record.lttng.daemon import end_orphans, own_daemons, start_daemon
from critpath.record.lttng.ending import (
    destroy_session,
    finish_dead,
    leftovers,
    loss_of,
    stop_session,
)
from critpath.record.lttng.obstacles import obstacles
from critpath.record.lttng.profile import SessionFile, session_file
from critpath.record.recorder import Recorded, UnfinishedError
from critpath_marks.channels import RECORDER

if TYPE_CHECKING:
    from critpath.record.recorder import Recorder, RecorderSettings

__all__ = ["LttngRecorder", "finish_dead", "leftovers", "obstacles", "open_recorder"]

# Marks of programs in Python come through LTTng-UST's agent, as records of this logger.
LOGGER: Final = "critpath"
_USER_CONTEXTS: Final = ("vpid", "vtid", "procname")
_FORMATS_SINCE: Final = (2, 15)  # before, LTTng writes CTF 1.8 and has no choice


def open_recorder(settings: RecorderSettings) -> Recorder:
    """Return a recorder; nothing is made before `start`."""
    return LttngRecorder(settings)


class LttngRecorder:
    """One recording through LTTng: see `critpath.record.recorder.Recorder`.

    Parameters
    ----------
    settings : RecorderSettings
    """

    def __init__(self, settings: RecorderSettings) -> None:
        self._settings = settings
        self._output = (settings.directory / "trace").absolute()
        self._file: SessionFile | None = None
        self._version = self._modules = ""
        self._agent = self._made = False
        self._warnings: list[str] = []

    def start(self) -> int:
        """Load the profile into a new session and start it."""
        if not program.installed():
            raise CritpathError(
                "LTTng is not installed: no lttng, or no lttng-sessiond",
                "sudo apt install lttng-tools lttng-modules-dkms, or --recorder ftrace",
            )
        try:
            end_orphans()
            if not program.reachable():
                self._start_daemon()
            self._version = program.version()
            self._load()
            self._python_agent()
            program.run("start", self._settings.session)
            self._modules = program.modules_version()
            return time.monotonic_ns()
        except BaseException:
            with contextlib.suppress(CritpathError):
                self.abort()
            raise

    def environment(self) -> Mapping[str, str]:
        """Return which way marks take."""
        return {RECORDER: "lttng" if self._agent else "lttng-logger"}

    def descriptors(self) -> tuple[int, ...]:
        """Return none: /proc/lttng-logger is open to everybody."""
        return ()

    @property
    def failure(self) -> CritpathError | None:
        """LTTng's daemons write: what they could not is counted as lost packets."""
        return None

    def stop(self) -> int:
        """Stop the session, and wait for the consumer daemon to write the trace."""
        try:
            end = time.monotonic_ns()
            warning = stop_session(self._settings.session)
        except CritpathError as error:
            raise self._unfinished(error) from error
        except BaseException:
            with contextlib.suppress(CritpathError):
                self.abort()
            raise
        if warning:
            self._warnings.append(warning)
        return end

    def finish(self, tell: Callable[[str], None]) -> Recorded:
        """Read the counts back, destroy the session and look whether the trace is there."""
        try:
            tell("reading LTTng's counts")
            counted = program.channels(self._settings.session)
            destroy_session(self._settings.session)
            self._made = False
            self._end_daemons()
        except CritpathError as error:
            raise self._unfinished(error) from error
        except BaseException:
            with contextlib.suppress(CritpathError):
                self.abort()
            raise
        # LTTng's daemon wrote by name: to what this recording's directory was by then.
        written = _trace_format(self._settings.held / "trace" / "kernel" / "metadata")
        if written != self._settings.trace_format:
            self._warnings.append(f"asked for {self._settings.trace_format}, LTTng wrote {written}")
        return Recorded(
            loss=loss_of(counted),
            facts=self._facts(counted, written),
            warnings=tuple(self._warnings),
        )

    def _unfinished(self, error: CritpathError) -> UnfinishedError:
        """Destroy the session at once, and keep what LTTng has written by then."""
        with contextlib.suppress(CritpathError):
            self.abort()
        return UnfinishedError(error.what, error.do)

    def abort(self) -> None:
        """Destroy the session at once."""
        try:
            if self._made:
                destroy_session(self._settings.session, wait=False)
                self._made = False
        finally:
            self._end_daemons()

    def _start_daemon(self) -> None:
        if os.geteuid() != 0:
            raise _in_the_way()
        start_daemon(self._settings.session)

    def _load(self) -> None:
        """Load the profile, with the session's name and output filled in."""
        session = self._settings.session
        try:
            available = program.kernel_events()
        except program.LttngError as error:
            raise _in_the_way(error.said) from None
        self._file = session_file(
            self._settings,
            self._output,
            available,
            formats=program.numbers(self._version) >= _FORMATS_SINCE,
        )
        # `lttng load` wants a file that has a name; it is read before load returns.  Where the
        # directory's name leads meanwhile, somebody else's file may be.
        place = for_children(self._settings.held) / f".{session}.lttng"
        try:
            with place.open("x", encoding="utf-8") as stream:
                stream.write(self._file.text)
            self._made = True
            program.run("load", f"--input-path={place}", session)
        finally:
            place.unlink(missing_ok=True)
        if self._file.missing:
            self._warnings.append(
                "events that this tracer does not have: " + ", ".join(self._file.missing)
            )
        for name in self._file.added:
            try:
                program.run(
                    "add-context", "--kernel", f"--session={session}",
                    f"--channel={self._file.channel}", f"--type={name}",
                )  # fmt: skip
            except program.LttngError as error:
                self._warnings.append(f"no context {name}: {error.said}")

    def _python_agent(self) -> None:
        """Have marks of programs in Python recorded, if this LTTng can."""
        session = f"--session={self._settings.session}"
        types = [f"--type={name}" for name in _USER_CONTEXTS]
        try:
            program.run("enable-event", "--python", session, LOGGER)
            program.run("add-context", "--userspace", session, *types)
        except program.LttngError:
            return  # an LTTng without user-space tracing: marks go to /proc/lttng-logger
        self._agent = True

    def _end_daemons(self) -> None:
        mine = self._settings.session
        end_orphans(mine)
        if any(name == mine for _, name in own_daemons()):
            self._warnings.append(
                "the session daemon started for this recording is used by others: it stays"
                " (critpath doctor --clean ends it later)"
            )

    def _facts(self, counted: list[program.Channel], written: str) -> dict[str, object]:
        assert self._file is not None  # noqa: S101 - start() came before
        return {
            "name": "lttng",
            "version": self._version,
            "modules": self._modules,
            "events": list(self._file.events),
            "contexts": [*self._file.contexts, *self._file.added],
            "buffer_bytes": self._file.buffer_bytes,
            "format": written,
            "python_agent": self._agent,
            "channels": [
                {
                    "domain": channel.domain.lower(),
                    "name": channel.name,
                    "discarded_events": channel.discarded,
                    "lost_packets": channel.lost_packets,
                }
                for channel in counted
            ],
        }


def _in_the_way(said: str = "no session daemon") -> CritpathError:
    """Return why the kernel tracer is not there, as far as it can be seen from here."""
    for obstacle in obstacles(None):
        if obstacle.fatal:
            return CritpathError(obstacle.what, obstacle.do)
    return CritpathError(
        f"LTTng's kernel tracer is not available: {said}",
        "sudo modprobe lttng-tracer; if that fails, sudo dmesg tells why",
    )


def _trace_format(metadata: Path) -> str:
    """Return the format of the trace that was written."""
    try:
        with metadata.open("rb") as stream:
            head = stream.read(16)
    except OSError:
        head = b""
    if not head:
        raise CritpathError(
            f"LTTng left no trace in {metadata.parent}",
            "see what the session daemon says: journalctl -u lttng-sessiond",
        )
    # JSON text sequences begin with a record separator; CTF 1.8 with its packets' magic
    # number or, as text, with a comment.
    return "ctf-2" if head[:1] in {b"\x1e", b"{"} else "ctf-1.8"
