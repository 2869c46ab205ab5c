"""Marks of programs whose users may not write to tracefs.

Below `PLACE`, which belongs to root, a recording has a directory that the users who may mark
can enter, and in it the marker file of a tracing instance, mounted there: the kernel itself
notes the time and the thread of each mark.  That instance has buffers of its own, so that
whatever is written there takes no room from what else is recorded (docs/decisions, 12).
Who finds a recording and may not write asks for it by a datagram, which has nothing in it.
"""

from __future__ import annotations

import contextlib
import pwd
import re
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError
from critpath.units import safe_text
from critpath_marks.channels import ASK, PLACE, TASKS_SUFFIX
from critpath_marks.gate import SUFFIX
from critpath_marks.sessions import new_session_name, owner_of
from critpath_record import rooted, shown
from critpath_record.ftrace import raw as raws
from critpath_record.ftrace.drain import Drain, online_cpus
from critpath_record.ftrace.tracefs import Instance
from critpath_record.proc import read_name

PREFIX: Final = "critpath-marks-"
EVERYBODY: Final = shown.EVERYBODY
_FILE: Final = "trace_marker"
_BUFFER_KIB: Final = 1024  # of each cpu
_MOST_BYTES: Final = 1 << 28  # of all cpus: some three million marks
_MOST_ASKING: Final = 32  # programs that are named
_MOST_READ: Final = 256  # datagrams at a time
_CREDENTIALS: Final = struct.Struct("iII")  # pid, uid, gid


class UserMarks:
    """The marker file of a recording for some users, from construction to `remove`.

    `root`: of tracefs.  `users`: uids, or `EVERYBODY`.  `raw`: directory to make for the pages of
    marks; None where somebody else moves them.
    """

    def __init__(
        self, root: Path, session: str, users: Sequence[int], raw: Path | None, page_bytes: int
    ) -> None:
        self.path = Path(PLACE) / session / _FILE
        self._raw = raw
        self.instance = Instance.pin(root, instance_name(session))
        self._drain: Drain | None = None
        self.instance.make(self.path)
        try:
            self._start(users, page_bytes)
        except BaseException as error:
            self.remove()
            if isinstance(error, OSError):
                raise CritpathError(
                    f"marks of other users cannot arrive: {self.path}: {error.strerror}",
                    "--marks-from all, or none",
                ) from None
            raise

    def _start(self, users: Sequence[int], page_bytes: int) -> None:
        instance = self.instance
        for name, value in (
            *(("tracing_on", "0"), ("trace_clock", "mono"), ("options/overwrite", "1")),
            *(("options/markers", "1"), ("buffer_size_kb", str(_BUFFER_KIB))),
        ):
            instance.write(name, value)
        if self._raw is not None:
            self._raw.mkdir(mode=0o700)
            self._drain = Drain(
                *(instance, self._raw, page_bytes, _BUFFER_KIB << 10, None),
                most_threads=1,
                most_bytes=_MOST_BYTES,
            )
            self._drain.start(online_cpus())
        instance.write("tracing_on", "1")
        # From here on there are others.
        session = self.path.parent.name
        if rooted.channel is None:
            shown.show_marker(str(instance.path), session, users)
        else:
            rooted.ask("show", instance.path.name, session, ",".join(map(str, users)))

    def stop(self) -> None:
        """Take the file away and store what the buffers hold."""
        _take_away(self.path)
        self.instance.write("tracing_on", "0")
        if self._drain is not None:
            self._drain.stop()
        stats = {cpu: self.instance.stats(cpu) for cpu in self.instance.cpus()}
        if self._raw is not None:
            raws.write_stats(self._raw, {c: s for c, s in stats.items() if any(s.values())})

    def remove(self) -> str:
        """Remove everything but what was stored; return a warning if somebody prevents it."""
        _take_away(self.path)
        if self._drain is not None:
            self._drain.abandon()
        try:
            self.instance.remove()
        except CritpathError as error:
            return f"{error.what} ({error.do})"
        return ""


def instance_name(session: str) -> str:
    """Return the name of the instance for users' marks; programs of root do not look for it."""
    return PREFIX + session.removeprefix("critpath-")


def session_of(instance: str) -> str:
    """Return the session that an instance of either kind belongs to."""
    return re.sub(f"^{PREFIX}", "critpath-", instance)


def remove_place(session: str) -> None:
    """Remove what a dead recorder left of its files for marks."""
    if owner_of(session) is not None:
        _take_away(Path(PLACE) / session / _FILE)
        for suffix in (ASK, SUFFIX, TASKS_SUFFIX):
            with contextlib.suppress(OSError):
                (Path(PLACE) / (session + suffix)).unlink()


def make_place() -> None:
    """Make the directory that programs look into; raises CritpathError if others can change it.

    Where a helper is root, it does that, before it makes anything there.
    """
    if rooted.channel is not None:
        return
    try:
        shown.make_place()
    except PermissionError as error:
        raise CritpathError(
            f"{PLACE} can be changed by others ({error.strerror})",
            f"remove it, or: chmod go-w {PLACE}",
        ) from None


def _take_away(path: Path) -> None:
    if rooted.channel is None:
        shown.hide_marker(path.parent.name)
    else:
        with contextlib.suppress(OSError):
            rooted.ask("hide", path.parent.name)


class MarkRequests:
    """Programs that would mark executions and may not: a socket; only who sent is looked at."""

    def __init__(self, session: str = "") -> None:
        session = session or new_session_name()
        self._path = Path(PLACE) / (session + ASK)
        self._asking: dict[tuple[str, int], None] = {}
        if rooted.channel is None:
            self._socket = shown.open_requests(session)
        else:
            self._socket = socket.socket(fileno=rooted.ask("ask", session)[1])

    def look(self) -> None:
        """Note who has asked since; call it once a second."""
        for _ in range(_MOST_READ):
            try:
                _, extra, _, _ = self._socket.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size))
            except OSError:
                return
            for level, kind, data in extra:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                    pid, uid, _ = _CREDENTIALS.unpack(data)
                    if len(self._asking) < _MOST_ASKING:
                        self._asking[safe_text(read_name(pid)) or f"process {pid}", uid] = None

    def wait(self, seconds: float) -> None:
        """Note who asks within a time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.look()
            time.sleep(0.05)
        self.look()

    @property
    def programs(self) -> tuple[tuple[str, str], ...]:
        """The programs that asked, and their users."""
        return tuple(sorted({(name, user_name(uid)) for name, uid in self._asking}))

    def close(self) -> None:
        """Remove the socket."""
        self._socket.close()
        with contextlib.suppress(OSError):
            self._path.unlink()


def user_name(uid: int) -> str:
    """Return a user's name, or the number of one without."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


def sessions_with_places() -> Iterator[str]:
    """Yield the sessions that have something below `PLACE`."""
    try:
        names = sorted(p.name for p in Path(PLACE).iterdir())
    except OSError:
        return
    yield from dict.fromkeys(n.partition(".")[0] for n in names)
