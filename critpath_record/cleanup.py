"""Finds and removes what killed recorders left on this machine.

Nothing is touched whose owner may be alive: a leftover has the name of a session whose process is
gone (see `critpath_marks.sessions`).  No recorder is loaded for it.
"""

from __future__ import annotations

import importlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError, UnreadableError, with_sudo
from critpath.model import MANIFEST
from critpath.model.recording import RECORDING
from critpath.units import plural
from critpath.untrusted import read_object
from critpath_marks.sessions import owner_of, pid_namespace, start_time
from critpath_record.identity import SESSION_VARIABLE, is_dead_session
from critpath_record.manifests import read_manifest
from critpath_record.proc import list_pids, read_name, read_stat, read_variable
from critpath_record.recorder import LEFTOVERS, Leftover
from critpath_record.recovery import find_unfinished, finish_recording
from critpath_record.registry import (
    cleanup_lock,
    find_flights,
    read_entries,
    registry_directory,
    remove_unfinished_entries,
)

_PATIENCE: Final = 2.0  # seconds a process has to end after SIGTERM
_PATIENCE_KILLED: Final = 10.0  # and after SIGKILL
# What uses something goes before it: a process holds the marker file of its instance
# open, an unfinished recording is finished from what the instance's buffers held.
_ORDER: Final = (
    *("process", "session", "daemon", "marker", "option", "instance", "group", "recording"),
    *("directory", "flight"),
)
_ROUNDS: Final = 6
_LONGEST: Final = 65_536  # bytes of what a flight says of itself


def find_leftovers(directories: Sequence[Path] = ()) -> list[Leftover]:
    """Return everything that dead recorders left, in the order to remove it.

    Of `directories` those wait to be finished that nobody knows any more: moved or copied ones.
    """
    unfinished = _list_unfinished(directories)
    left = _find_own()
    known = {Path(x.name) for x in left if x.kind == "recording"}
    return left + [
        Leftover("recording", str(one), "", partial(_finish, one))
        for one in unfinished
        if one.absolute() not in known
    ]


def _finish(directory: Path) -> None:
    finish_recording(directory, lambda _: None)


def _list_unfinished(directories: Sequence[Path]) -> list[Path]:
    """Return the recordings that wait to be finished; raises UnreadableError for none."""
    for directory in directories:
        if not (directory / MANIFEST).is_file():
            raise UnreadableError(
                f"{directory} is not a recording: it holds no {MANIFEST}",
                "name the directory that critpath record wrote to",
            )
    return [one for one in directories if read_manifest(one).state == RECORDING]


def recover(directories: Sequence[Path]) -> tuple[list[str], list[CritpathError]]:
    """Remove what dead recorders left, finish recordings; return what was done and what failed."""
    unfinished = _list_unfinished(directories)
    done: list[str] = []
    failures: list[CritpathError] = []

    def note(leftover: Leftover, error: CritpathError | None) -> None:
        verbs = {"process": "ended", "recording": "finished", "option": "set back"}
        if error is not None:
            failures.append(error)
        else:
            done.append(f"{verbs.get(leftover.kind, 'removed')} {leftover.kind} {leftover.name}")

    # First, as the buffers of a dead recorder on this machine hold a recording's end.
    remove_leftovers(note)
    # What was finished has its own name by now.
    for directory in [one for one in unfinished if (one / MANIFEST).is_file()]:
        try:
            finished = finish_recording(directory, lambda _: None)
        except CritpathError as error:
            if error.what not in {failure.what for failure in failures}:
                failures.append(error)
        else:
            if finished is not None:
                runs = plural(finished.runs, "complete run")
                done.append(f"finished recording {directory}: {runs}")
    return done, failures


def _find_own() -> list[Leftover]:
    found: list[Leftover] = []
    for module in LEFTOVERS:
        # A recorder that cannot look here must not hide what the other one left.
        try:
            found += importlib.import_module(module).find_leftovers()
        except (CritpathError, OSError, ImportError, ValueError):
            continue
    found += find_unfinished()
    flights = map(read_object, find_flights(), repeat(_LONGEST))
    if any(is_dead_session(str(of.get("session"))) for of in flights):
        from critpath_record.flight.state import find_leftovers  # noqa: PLC0415 - rare, and much

        found += find_leftovers()
    found += _find_processes(_killed_sessions({leftover.session for leftover in found}))
    return sorted(found, key=lambda x: (_ORDER.index(x.kind), x.session, x.name))


def remove_leftovers(report: Callable[[Leftover, CritpathError | None], None]) -> bool:
    """Remove what dead recorders left, each told to `report`; return whether all of it is gone."""
    remove_unfinished_entries()
    if not find_leftovers():  # spares the wait for the lock
        return True
    with cleanup_lock():
        return _remove_all(report)


def _remove_all(report: Callable[[Leftover, CritpathError | None], None]) -> bool:
    failed: set[tuple[str, str]] = set()
    for _ in range(_ROUNDS):
        pending = [x for x in find_leftovers() if (x.kind, x.name) not in failed]
        if not pending:
            break
        # A process may just have started others, which cannot be recognised once the rest
        # of its session is gone.
        for leftover in [x for x in pending if x.kind == "process"] or pending:
            error = _try_remove(leftover)
            report(leftover, error)
            if error is not None:
                failed.add((leftover.kind, leftover.name))
    return not failed


def _try_remove(leftover: Leftover) -> CritpathError | None:
    try:
        leftover.remove()
    except CritpathError as error:
        return error
    except OSError as error:
        return CritpathError(
            f"the system refused to remove the {leftover.kind} {leftover.name}: {error}",
            "remove it by hand",
        )
    return None


def _killed_sessions(sessions: set[str]) -> set[str]:
    """Return those of the dead recorders' sessions that did not end properly.

    A recorder that ends unregisters its session even if it must leave the tracing instance:
    a daemon that the command left running on purpose holds the marker file open.  Without a
    registry the two cannot be distinguished.
    """
    if registry_directory() is None:
        return sessions
    return sessions & {entry.session for entry in read_entries()}


def _find_processes(sessions: set[str]) -> Iterator[Leftover]:
    """Yield the processes that belong to sessions that did not end properly.

    A process with such a session in its environment descends from the session's command.
    A daemon that a command left running on purpose has a session there, too, but of one
    that ended properly and left nothing else.
    """
    sessions = {session for session in sessions if is_dead_session(session)}
    if not sessions:
        return
    spared = _ancestors() | _live_recorders()
    for pid in list_pids():
        if pid in spared:
            continue
        started = start_time(pid)
        session = session_of(pid)
        if not started or session not in sessions or pid_namespace(pid) != pid_namespace():
            continue
        if read_name(pid).startswith("lttng-"):
            continue  # a daemon of ours: ends with its sessions, whose traces it writes
        yield Leftover("process", str(pid), session, partial(_terminate, pid, started))


def session_of(pid: int) -> str:
    """Return the session that a process was started in, "" if none or if it cannot be read."""
    return read_variable(pid, SESSION_VARIABLE)


def _ancestors() -> set[int]:
    """Return this process and its ancestors, which must not be cleaned away."""
    found, pid = set(), os.getpid()
    while pid > 0 and pid not in found:
        found.add(pid)
        pid = int((read_stat(pid) or "00")[1])
    return found


def _live_recorders() -> set[int]:
    """Return the processes that record now: one may run inside a dead recorder's command."""
    owners = [owner_of(entry.session) for entry in read_entries()]
    return {owner.pid for owner in owners if owner is not None and owner.is_gone() is False}


def _terminate(pid: int, started: int) -> None:
    """End one process: SIGTERM, then SIGKILL."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        # The handle is of the process that has the pid now: it must still be the same.
        if start_time(pid) != started:
            return
        for number, patience in ((signal.SIGTERM, _PATIENCE), (signal.SIGKILL, _PATIENCE_KILLED)):
            signal.pidfd_send_signal(handle, number)
            if select.select([handle], [], [], patience)[0]:
                return
    except ProcessLookupError:
        return
    except PermissionError:
        raise CritpathError(
            f"process {pid} of a dead recording belongs to another user",
            with_sudo("doctor --clean"),
        ) from None
    finally:
        os.close(handle)
    # Dead, but stuck in the kernel or not collected by its parent: a zombie is no trouble.
    deadline = time.monotonic() + 1.0
    while start_time(pid) == started:
        if time.monotonic() > deadline:
            raise CritpathError(
                f"process {pid} of a dead recording does not end, not even by SIGKILL",
                f"see what it waits for: cat /proc/{pid}/stack; a restart removes it",
            )
        time.sleep(0.02)
