"""Starts a session daemon where there is none; ends it and sessions, also of killed recorders.

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
from functools import partial
from typing import Final

from critpath.errors import CritpathError, with_sudo
from critpath.model import CpuLoss
from critpath.units import safe_text
from critpath_marks.sessions import owner_of, start_time
from critpath_record.identity import SESSION_VARIABLE, is_dead_session
from critpath_record.lttng.program import (
    ChannelCounts,
    LttngError,
    is_installed,
    is_reachable,
    list_channels,
    list_sessions,
    run_lttng,
    trusted_program,
)
from critpath_record.proc import list_pids, read_name, read_stat, read_variable
from critpath_record.recorder import Leftover

# In our daemon's environment, with the session it was started for.  Not SESSION_VARIABLE,
# which marks what descends from a command: a daemon is ended after its sessions, in
# peace, not as a process that outlived its command.
DAEMON_VARIABLE: Final = "CRITPATH_DAEMON"

_PROGRAM: Final = "lttng-sessiond"
_START_LIMIT: Final = 60.0  # seconds: it loads some forty kernel modules
_STOP_LIMIT: Final = 30.0
_POLL: Final = 0.05
send = os.kill


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
    # Those with a session in their environment: parent and session.
    daemons = [pid for pid in list_pids() if read_name(pid) == _PROGRAM]
    named = {pid: read_variable(pid, DAEMON_VARIABLE) for pid in daemons}
    found = {pid: (read_stat(pid), name) for pid, name in named.items() if name}
    # A daemon has a child of the same name, which ends with it.
    for pid, (fields, name) in found.items():
        if fields and int(fields[1]) not in found and owner_of(name) is not None:
            yield pid, name


def end_daemon(pid: int) -> bool:
    """End one of our session daemons if it has no session; return whether it is gone."""
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
                send(one, number)
            except ProcessLookupError:
                continue
            except PermissionError:
                raise CritpathError(
                    f"the session daemon {pid} is another user's", with_sudo("doctor --clean")
                ) from None
        deadline = time.monotonic() + _STOP_LIMIT
        while time.monotonic() < deadline:
            if not _is_alive(pid, started):
                return
            time.sleep(_POLL)
    raise CritpathError(f"the session daemon {pid} does not end", f"sudo kill -9 {pid}")


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
    return [pid for pid in list_pids() if pid != leader and read_stat(pid)[3:4] == [str(leader)]]


# Ending sessions, our own and those of killed recorders

DATA_LIMIT: Final = 120.0  # seconds the consumer daemon may take to write what is left
# What was lost by sessions that this process ended for dead recorders: LTTng forgets it
# with the session, and the manifest is written afterwards.
losses: Final[dict[str, tuple[CpuLoss, ...]]] = {}


def stop_session(session: str, limit: float = DATA_LIMIT) -> str:
    """Turn tracing off; return a warning if the trace was not written in time, else ""."""
    try:
        # Stops first, then asks again and again whether data is pending.
        run_lttng("stop", session, limit=limit)
    except LttngError as error:
        if error.reason == "timeout":
            return (
                f"{limit:.0f} s after tracing was turned off, LTTng's consumer daemon had"
                " not written everything: the trace may lack its end"
            )
        if not any(x in error.reason.lower() for x in ("already stopped", "not started")):
            raise
    return ""


def destroy_session(session: str, *, wait: bool = True) -> None:
    """Remove a session from its daemon, if it is there."""
    try:
        run_lttng("destroy", *(() if wait else ("--no-wait",)), session, limit=DATA_LIMIT)
    except LttngError as error:
        if error.reason == "timeout" and wait:
            destroy_session(session, wait=False)
        elif "not found" not in error.reason.lower():
            raise


def sum_losses(counted: list[ChannelCounts]) -> tuple[CpuLoss, ...]:
    """Return what all channels lost; LTTng does not count by CPU."""
    events = sum(channel.discarded for channel in counted)
    packets = sum(channel.lost_packets for channel in counted)
    return (CpuLoss(-1, events, packets),) if events or packets else ()


def end_session(session: str) -> None:
    """Stop and destroy the session of a dead recorder, which makes its trace readable."""
    stop_session(session)
    with contextlib.suppress(CritpathError):
        losses[session] = sum_losses(list_channels(session))
    destroy_session(session)


def find_leftovers() -> list[Leftover]:
    """Return the sessions and session daemons of dead recorders."""
    if not is_installed():
        return []
    sessions: dict[str, str] = {}
    with contextlib.suppress(LttngError):  # no daemon: no session
        sessions = list_sessions()
    found = [("session", name, name, partial(end_session, name)) for name in sessions]
    found += [("daemon", str(p), name, partial(_end_left, p)) for p, name in find_own_daemons()]
    return [Leftover(*one) for one in found if is_dead_session(one[2])]


def _end_left(pid: int) -> None:
    if not end_daemon(pid):
        raise CritpathError(
            f"the session daemon {pid} still has sessions of others: {', '.join(list_sessions())}",
            "end those, then: critpath doctor --clean",
        )
