"""Runs the command once and waits for it, with whatever may come between."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError
from critpath.record._spawn import SpawnError, collect, spawn
from critpath.record.signals import Caller, Signals, from_terminal
from critpath.record.user import User

EXIT_TIMED_OUT: Final = 124
GRACE: Final = 2.0  # seconds between SIGTERM and SIGKILL
_STUCK: Final = 5.0  # seconds after which a killed process counts as stuck in the kernel
_HALT: Final = 1.0  # seconds to halt a run before it gets a signal
_STEP: Final = 0.02


@dataclass(frozen=True)
class Finished:
    """How a run ended.

    Attributes
    ----------
    pid : int
        As this process sees it.
    begin, end : int
        Just before the fork, just after the wait (ns, CLOCK_MONOTONIC).
    exit_code : int
        As a shell has it; 124 after a timeout.
    timed_out : bool
    outlived : int
        Descendants that still live.
    """

    pid: int
    begin: int
    end: int
    exit_code: int
    timed_out: bool
    outlived: int


class Runner:
    """Runs commands as the caller would have, only as the user behind sudo.

    Parameters
    ----------
    caller : Caller
    user : User or None
    signals : Signals
    say : callable
    """

    def __init__(
        self, caller: Caller, user: User | None, signals: Signals, say: Callable[[str], None]
    ) -> None:
        self._caller = caller
        self._user = user
        self._signals = signals
        self._say = say
        # Children that are not of the run: a recorder's helpers, what earlier runs left.
        self._others: set[int] | None = None
        # Those of them that somebody else collects: the recorder's helpers.
        self._helpers: set[int] = set()

    def run(
        self,
        program: Program,
        *,
        environment: Mapping[str, str],
        keep: Collection[int] = (),
        timeout: float = 0.0,
    ) -> Finished:
        """Run a program to its end.

        Parameters
        ----------
        program : Program
        environment : mapping of str
            Added to the caller's.
        keep : collection of int
            Descriptors that it inherits beside the caller's.
        timeout : float
            Seconds after which the program and its descendants are ended; 0 for never.

        Raises
        ------
        CommandError
            If it cannot be executed.
        Stopped
            If the user asked for an end twice; it is killed then.
        CritpathError
            If there can be no process.
        """
        if self._others is None:
            self._helpers = self._remember(descendants(os.getpid()))
        pid, begin = self._spawn(program, environment, keep)
        deadline = time.monotonic() + timeout if timeout else None
        timed_out = False
        try:
            ended = self._wait(pid, deadline)
            if ended is None:
                timed_out = True
                ended = self._end(pid)
        except BaseException:  # whatever it is, nobody would wait for the command any more
            self._kill(pid)
            raise
        status, end = ended
        left = self._left()
        alive = sum(process.alive for process in left)
        code = EXIT_TIMED_OUT if timed_out else shell_code(status)
        return Finished(pid, begin, end, code, timed_out, alive)

    def forget(self) -> None:
        """Count whoever is there now, such as a recorder's helpers, as none of a run's."""
        self._others = None

    def _spawn(
        self, program: Program, environment: Mapping[str, str], keep: Collection[int]
    ) -> tuple[int, int]:
        caller, user = self._caller, self._user
        variables = {**caller.environment, **(user.environment if user else {})}
        variables.update({os.fsencode(n): os.fsencode(v) for n, v in environment.items()})
        try:
            return spawn(
                program.path,
                list(program.argv),
                [name + b"=" + value for name, value in variables.items()],
                user=(user.uid, user.gid, user.groups) if user else None,
                mask=caller.mask,
                ignored=caller.ignored,
                keep=(*caller.descriptors, *keep),
                death_signal=signal.SIGKILL,
                nice=caller.nice if _nice() != caller.nice else None,
                scheduler=caller.scheduler if _scheduler() != caller.scheduler else None,
            )
        except SpawnError as error:
            number = error.errno or 0
            if error.step == "exec":
                raise refusal(program.name, number) from None
            raise CritpathError(
                f"{program.name} cannot be started: {error.step}: {os.strerror(number)}",
                "give --as-root to run it as root"
                if error.step == "user"
                else "check the limits of this user and container",
            ) from None
        except OSError as error:
            raise CritpathError(
                f"{program.name} cannot be started: {error.strerror}",
                "check the limits of processes and memory: ulimit -u",
            ) from None

    def _wait(self, pid: int, deadline: float | None) -> tuple[int, int] | None:
        """Wait for the command; None if the time is over before."""
        while (ended := collect(pid)) is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            self._take(pid, left)
        return ended

    def _take(self, pid: int, seconds: float | None) -> None:
        """Take one signal: pass it on, or collect an orphan."""
        info = self._signals.wait(seconds)
        if info is None:
            return
        if info.si_signo == signal.SIGCHLD:
            self._collect_orphans(pid)
        elif self._signals.note(info) and not from_terminal(info):
            self._forward(pid, info.si_signo)

    def _forward(self, pid: int, number: int) -> None:
        """Pass a signal on to whom a terminal would have given it: the process group.

        The kernel gives a group its signal in one step; here a child could be forked
        between the look at who is there and the signal to its parent, and would live on.
        So all are halted until a look finds nobody new, and the signal comes then.
        """
        group = os.getpgrp()
        held: dict[int, Process] = {}
        until = time.monotonic() + _HALT
        while True:
            new = [
                process
                for process in self._tree()
                if (process.pid == pid or process.group == group) and process.pid not in held
            ]
            if not new:
                break
            for process in new:
                process.send(signal.SIGSTOP)
                held[process.pid] = process
            if time.monotonic() > until:  # it forks without end
                break
        for process in reversed(held.values()):  # children first: no parent sees one halted
            process.send(number)
            process.send(signal.SIGCONT)

    def _collect_orphans(self, pid: int) -> None:
        """Collect adopted descendants as they end, so that zombies do not pile up."""
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None or found.si_pid == pid or found.si_pid in self._helpers:
                return
            _collect(found.si_pid)
            # Of an earlier run: its pid may be used again from now on.
            (self._others or set()).discard(found.si_pid)

    def _tree(self) -> list[Process]:
        """Return the command and all its living descendants."""
        found = descendants(os.getpid(), self._others or ())
        return [process for process in found if process.alive]

    def _end(self, pid: int) -> tuple[int, int]:
        """End the whole run, first gently."""
        ended = None
        for process in self._tree():
            process.send(signal.SIGTERM)
            process.send(signal.SIGCONT)
        until = time.monotonic() + GRACE
        while time.monotonic() < until:
            ended = ended or collect(pid)
            if ended and not self._tree():
                return ended
            self._take(pid, _STEP)
        return self._kill(pid) if ended is None else (self._kill(None) or ended)

    def _kill(self, pid: int | None) -> tuple[int, int]:
        """Kill the run, and whatever it starts meanwhile; return how the command ended."""
        ended = None
        until = time.monotonic() + _STUCK
        while True:
            tree = self._tree()
            for process in tree:
                process.send(signal.SIGKILL)
            if ended is None and pid is not None:
                ended = collect(pid)
            if (ended or pid is None) and not tree:
                break
            if time.monotonic() > until:
                self._say(f"{len(tree)} processes of the run cannot be killed: stuck in the kernel")
                break
            time.sleep(_STEP)
        return ended or (signal.SIGKILL, time.clock_gettime_ns(time.CLOCK_MONOTONIC))

    def _left(self) -> list[Process]:
        """Return what the run has left, and collect those that are zombies."""
        found = descendants(os.getpid())
        new = _below(found, os.getpid(), self._others or set())
        own = os.getpid()
        for process in new:
            ended = process.parent == own and not process.alive
            if ended and process.pid not in self._helpers:
                _collect(process.pid)
        self._remember(found)
        return new

    def _remember(self, found: Sequence[Process]) -> set[int]:
        own = os.getpid()
        self._others = {p.pid for p in found if p.parent == own and p.alive}
        return set(self._others)


def shell_code(status: int) -> int:
    """Return the exit code that a shell has for a wait status."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _nice() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


def _scheduler() -> tuple[int, int]:
    return os.sched_getscheduler(0), os.sched_getparam(0).sched_priority


def _below(found: Sequence[Process], root: int, without: set[int]) -> list[Process]:
    """Return the descendants less the children that are left out, with theirs."""
    inside = {root}
    kept = []
    for process in found:  # parents come first
        if process.parent in inside and process.pid not in without:
            inside.add(process.pid)
            kept.append(process)
    return kept


def _collect(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


# -----------------------------------------------------------------------------
# The processes that a command has started: who they are, and how they are ended.


@dataclass(frozen=True)
class Process:
    """A process, told from a later one with the same pid by its start.

    Attributes
    ----------
    pid, parent, group : int
    started : int
        Clock ticks since boot.
    alive : bool
        False for a zombie.
    """

    pid: int
    parent: int
    group: int
    started: int
    alive: bool

    def send(self, number: int) -> None:
        """Send a signal, unless the process is gone."""
        try:
            handle = os.pidfd_open(self.pid)
        except OSError as error:
            if error.errno == errno.ENOSYS:  # Linux before 5.3
                self._send_by_pid(number)
            return
        try:
            # The handle is of the process that has the pid now.
            now = _look(self.pid)
            if now is not None and now.started == self.started:
                signal.pidfd_send_signal(handle, number)
        except OSError:  # gone, or of a user that we may not signal
            return
        finally:
            os.close(handle)

    def _send_by_pid(self, number: int) -> None:
        """Send a signal where there are no handles: between look and kill is a moment."""
        now = _look(self.pid)
        if now is not None and now.started == self.started:
            with contextlib.suppress(OSError):
                os.kill(self.pid, number)


def descendants(root: int, without: Iterable[int] = ()) -> list[Process]:
    """Return the descendants of a process, its zombies too, parents first.

    Parameters
    ----------
    root : int
    without : iterable of int
        Pids that are left out with all that is below them.
    """
    children: dict[int, list[Process]] = {}
    for process in _all():
        children.setdefault(process.parent, []).append(process)
    left_out = set(without)
    found: list[Process] = []
    pending = [root]
    while pending:
        below = [p for p in children.get(pending.pop(), ()) if p.pid not in left_out]
        found += below
        pending += [p.pid for p in below]
    return found


def _all() -> list[Process]:
    # Not every kernel offers /proc/PID/task/TID/children.
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
    return [found for pid in pids if (found := _look(pid)) is not None]


def _look(pid: int) -> Process | None:
    try:
        data = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # A name may hold spaces and brackets: count from the last bracket.
    fields = data.rpartition(b")")[2].split()
    return Process(
        pid, int(fields[1]), int(fields[2]), int(fields[19]), alive=fields[0] not in {b"Z", b"X"}
    )


# -----------------------------------------------------------------------------
# Finds the command's program as a shell would, before anything is recorded.


EXIT_NOT_EXECUTABLE: Final = 126
EXIT_NOT_FOUND: Final = 127

_DEFAULT_PATH: Final = b"/usr/local/bin:/usr/bin:/bin"


class CommandError(CritpathError):
    """The command cannot be executed (126), or is not there (127)."""

    def __init__(self, what: str, do: str, exit_code: int) -> None:
        super().__init__(what, do)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Program:
    """A command that can be executed.

    Attributes
    ----------
    path : bytes
    argv : tuple of bytes
    """

    path: bytes
    argv: tuple[bytes, ...]

    @property
    def name(self) -> str:
        """As the user gave it."""
        return os.fsdecode(self.argv[0])


def find_program(command: Sequence[str], environment: Mapping[bytes, bytes]) -> Program:
    """Find a command's program along PATH.

    Parameters
    ----------
    command : sequence of str
        Its name and arguments; bytes that are no text come as surrogates.
    environment : mapping of bytes
        Where PATH is.

    Raises
    ------
    CommandError
    """
    argv = tuple(os.fsencode(part) for part in command)
    name = argv[0]
    if not name:
        raise _not_found("''")
    if b"/" in name:
        places = [name]
    else:
        path = environment.get(b"PATH", _DEFAULT_PATH)
        # An empty element is the current directory.
        places = [os.path.join(part or b".", name) for part in path.split(b":")]  # noqa: PTH118 - bytes
    refused = 0
    for place in places:
        error = _refusal(place)
        if not error:
            return Program(place, argv)
        if error not in {errno.ENOENT, errno.ENOTDIR}:
            refused = refused or error
    if refused:
        raise refusal(command[0], refused)
    raise _not_found(command[0])


def refusal(name: str, error: int) -> CommandError:
    """Return the error for what the kernel said to an exec."""
    if error == errno.ENOENT:
        return _not_found(name)
    return CommandError(
        f"{name}: cannot be executed: {os.strerror(error)}",
        "check that it is a program, and executable for the user that it runs as",
        EXIT_NOT_EXECUTABLE,
    )


def _not_found(name: str) -> CommandError:
    return CommandError(
        f"{name}: command not found",
        "check its name and PATH; a line for the shell is recorded as: sh -c 'LINE'",
        EXIT_NOT_FOUND,
    )


def _refusal(place: bytes) -> int:
    """Return why a file cannot be executed, 0 if it can."""
    try:
        found = os.stat(place)  # noqa: PTH116 - bytes
    except OSError as error:
        return error.errno or errno.EACCES
    if stat.S_ISDIR(found.st_mode):
        return errno.EISDIR
    if not stat.S_ISREG(found.st_mode) or not os.access(place, os.X_OK):
        return errno.EACCES
    return 0
