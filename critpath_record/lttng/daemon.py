"""Starts a session daemon where there is none, and ends it again.

A root session daemon has one place, /var/run/lttng, in every release (LTTNG_RUNDIR came
with 2.14, and LTTng-UST's Python agent looks nowhere else), so others can use ours while
it runs: it is only ended when it has no session left.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError
from critpath.units import safe_text
from critpath_marks.sessions import owner_of, start_time
from critpath_record.identity import SESSION_VARIABLE, is_dead_session
from critpath_record.lttng.program import is_reachable, list_sessions, trusted_program

# In our daemon's environment, with the session it was started for.  Not SESSION_VARIABLE,
# which marks what descends from a command: a daemon is ended after its sessions, in
# peace, not as a process that outlived its command.
DAEMON_VARIABLE: Final = "CRITPATH_DAEMON"

_PROGRAM: Final = "lttng-sessiond"
_START_LIMIT: Final = 60.0  # seconds: it loads some forty kernel modules
_STOP_LIMIT: Final = 30.0
_POLL: Final = 0.05


def start_daemon(session: str) -> int:
    """Start a session daemon for a session; it outlives this process until it is ended.

    Returns its pid, 0 if another daemon came up first.  Raises CritpathError if it fails.
    """
    environment = {**os.environ, DAEMON_VARIABLE: session}
    environment.pop(SESSION_VARIABLE, None)
    with tempfile.TemporaryFile() as stderr:
        try:
            program = trusted_program(_PROGRAM)
            if program is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            pid = _launch(program, environment, stderr.fileno())
        except OSError as error:
            raise CritpathError(
                f"cannot start {_PROGRAM}: {error.strerror}", "install lttng-tools"
            ) from None
        deadline = time.monotonic() + _START_LIMIT
        try:
            while _is_alive(pid) and time.monotonic() < deadline:
                if is_reachable():
                    return pid
                time.sleep(_POLL)
        except BaseException:
            _terminate(pid)
            raise
        ended = not _is_alive(pid)
        if not ended:
            _terminate(pid)
        stderr.seek(0)
        lines = stderr.read().decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
    # Another one may have been quicker: two recordings begun at the same moment.
    if ended and is_reachable():
        return 0
    raise CritpathError(
        f"{_PROGRAM} did not come up: {safe_text(lines[-1])}",
        f"see what it says: sudo {_PROGRAM} -v",
    )


def _launch(program: str, environment: Mapping[str, str], stderr: int) -> int:
    """Start a daemon in a session of its own; return its pid."""
    return os.posix_spawn(
        "/bin/sh",
        ["sh", "-c", 'cd / && exec "$0"', program],
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, stderr, 2),
        ],
        setsid=True,
        # The recorder blocks signals; a daemon that inherited that would ignore SIGTERM.
        setsigmask=(),
        setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
    )


def find_own_daemons() -> Iterator[tuple[int, str]]:
    """Yield the session daemons that any critpath started: pid, session."""
    found = _read_daemons()
    # A daemon has a child of the same name, which ends with it.
    for pid, (parent_pid, name) in found.items():
        if parent_pid not in found and owner_of(name) is not None:
            yield pid, name


def _read_daemons() -> dict[int, tuple[int, str]]:
    """Return the session daemons with a session in their environment: parent and session."""
    found = {}
    wanted = DAEMON_VARIABLE.encode() + b"="
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            if (entry / "comm").read_bytes().strip() != _PROGRAM.encode():
                continue
            variables = (entry / "environ").read_bytes().split(b"\0")
            parent = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1]
        except OSError:
            continue
        for variable in variables:
            if variable.startswith(wanted):
                name = variable.removeprefix(wanted).decode("ascii", "replace")
                found[int(entry.name)] = (int(parent), name)
    return found


def end_daemon(pid: int) -> bool:
    """End one of our session daemons if it has no session; return whether it is gone.

    Raises CritpathError if it cannot be ended.
    """
    with contextlib.suppress(CritpathError):
        if list_sessions():
            return False
    _terminate(pid)
    return True


def end_unused_daemons(mine: str = "") -> None:
    """End our daemons that are not needed: those of ``mine``, and of dead recorders."""
    for pid, name in find_own_daemons():
        if name == mine or is_dead_session(name):
            end_daemon(pid)


def _terminate(pid: int) -> None:
    """End a daemon by SIGTERM, which also ends its consumer daemons; then by SIGKILL."""
    started = start_time(pid)
    members = [pid, *_session_members(pid)]
    for number, whom in ((signal.SIGTERM, [pid]), (signal.SIGKILL, members)):
        for one in whom:
            try:
                _send(one, number)
            except ProcessLookupError:
                continue
            except PermissionError:
                raise CritpathError(
                    f"the session daemon {pid} is another user's", "sudo critpath doctor --clean"
                ) from None
        deadline = time.monotonic() + _STOP_LIMIT
        while time.monotonic() < deadline:
            if not _is_alive(pid, started):
                return
            time.sleep(_POLL)
    raise CritpathError(f"the session daemon {pid} does not end", f"sudo kill -9 {pid}")


def _send(pid: int, number: int) -> None:
    os.kill(pid, number)


def _is_alive(pid: int, started: int = 0) -> bool:
    """Return whether a process lives; collect it if it is a dead child of ours."""
    found = start_time(pid)
    if found != 0 and found == (started or found):
        return True
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    return False


def _session_members(leader: int) -> list[int]:
    """Return the other processes of the session (setsid) that a daemon leads."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != leader:
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                if int(stat[3]) == leader:
                    found.append(int(entry.name))
    return found
