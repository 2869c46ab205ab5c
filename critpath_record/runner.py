"""Runs the command once and waits for it: signals, timeouts, orphans."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import stat
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from critpath.errors import CritpathError
from critpath_record._spawn import SpawnError, collect, spawn
from critpath_record.proc import list_pids, read_stat
from critpath_record.signals import InheritedState, Signals, from_terminal, measure_priority
from critpath_record.user import User

EXIT_TIMED_OUT: Final = 124
GRACE: Final = 2.0  # seconds between SIGTERM and SIGKILL
_STUCK: Final = 5.0  # seconds after which a killed process counts as stuck in the kernel
_HALT: Final = 1.0  # seconds to halt a run before it gets a signal
_STEP: Final = 0.02


@dataclass(frozen=True)
class RunResult:
    """How a run ended."""

    pid: int  # as this process sees it
    # Just before the fork, just after the wait (ns, CLOCK_MONOTONIC).
    begin: int
    end: int
    exit_code: int  # as a shell reports it; 124 after a timeout
    timed_out: bool
    outlived: int  # descendants that still live
    # Just before the exec (ns, CLOCK_MONOTONIC); `begin` if it runs as another user.
    executed: int = 0
    running: int = 0  # time on a cpu of the command and of all descendants that have ended (ns)
    # Of that, what the kernel ran for them (ns), and their page faults.
    kernel: int = 0
    faults: int = 0
    # How long the command's first thread waited for a cpu (ns), and what a counter has counted.
    waited: int = 0
    counted: int = 0


class Counts(Protocol):
    """Counts something of every process that is started here, once that has ended."""

    def take(self) -> int:
        """Return how many since the last call."""


class Runner:
    """Runs commands in the state that critpath inherited, as the user behind sudo if any."""

    def __init__(
        self,
        inherited: InheritedState,
        user: User | None,
        signals: Signals,
        say: Callable[[str], None],
    ) -> None:
        self._inherited = inherited
        self._user = user
        self._signals = signals
        self._say = say
        # Children that are not of the run: a recorder's helpers, what earlier runs left.
        self._others: set[int] | None = None
        # Those of them that somebody else collects: the recorder's helpers.
        self._helpers: set[int] = set()

    def run(
        self,
        program: Executable,
        *,
        environment: Mapping[str, str],
        keep: Collection[int] = (),
        timeout: float = 0.0,
        streams: tuple[int, int, int] = (-1, -1, -1),
        group: int = -1,
        counter: Counts | None = None,
    ) -> RunResult:
        """Run a program to its end.

        `environment`: added to the inherited one.  `keep`: descriptors that it inherits beside
        those that critpath inherited.  `timeout`: seconds after which the program and its
        descendants are ended; 0 for never.  `streams`: descriptors that become its stdin, stdout
        and stderr; -1 for what critpath has.  `group`: descriptor by which it joins a control
        group; -1 for none.
        """
        if self._others is None:
            self._helpers = self._remember_children(descendants(os.getpid()))
        before = _measure_ended()
        if counter:
            counter.take()
        pid, begin, executed = self._spawn(program, environment, keep, streams, group)
        deadline = time.monotonic() + timeout if timeout else None
        timed_out = False
        try:
            ended = self._wait(pid, deadline)
            if ended is None:
                timed_out = True
                ended = self._terminate(pid)
        except BaseException:  # whatever it is: the command must not outlive us
            self._kill(pid)
            raise
        status, end, waited = ended
        left = self._collect_survivors()
        alive = sum(process.alive for process in left)
        code = EXIT_TIMED_OUT if timed_out else shell_code(status)
        running, kernel, faults = (
            after - so_far for after, so_far in zip(_measure_ended(), before, strict=True)
        )
        counted = counter.take() if counter else 0
        times = (begin, end, code, timed_out, alive, executed)
        return RunResult(pid, *times, running, kernel, faults, waited, counted)

    def rescan_children(self) -> None:
        """Count the children of now, such as a recorder's helpers, as none of the next run's."""
        self._others = None

    def _spawn(
        self,
        program: Executable,
        environment: Mapping[str, str],
        keep: Collection[int],
        streams: tuple[int, int, int],
        group: int,
    ) -> tuple[int, int, int]:
        inherited, user = self._inherited, self._user
        nice, scheduler = measure_priority()
        variables = {**inherited.environment, **(user.environment if user else {})}
        variables.update({os.fsencode(n): os.fsencode(v) for n, v in environment.items()})
        try:
            return spawn(
                program.path,
                list(program.argv),
                [name + b"=" + value for name, value in variables.items()],
                user=(user.uid, user.gid, user.groups) if user else None,
                mask=inherited.mask,
                ignored=inherited.ignored,
                keep=(*inherited.descriptors, *keep),
                death_signal=signal.SIGKILL,
                nice=inherited.nice if nice != inherited.nice else None,
                scheduler=inherited.scheduler if scheduler != inherited.scheduler else None,
                streams=streams,
                group=group,
            )
        except SpawnError as error:
            number = error.errno or 0
            if error.step == "exec":
                raise exec_error(program.name, number) from None
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

    def _wait(self, pid: int, deadline: float | None) -> tuple[int, int, int] | None:
        """Wait for the command; None after the deadline."""
        while (ended := _collect_waited(pid)) is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            if self._signals.shared:  # SIGCHLD may have gone to another thread
                left = min(left or _STEP, _STEP)
            self._handle_signal(pid, left)
        return ended

    def _handle_signal(self, pid: int, seconds: float | None) -> None:
        """Handle one signal: pass it on, or collect an orphan."""
        info = self._signals.wait(seconds)
        if info is None:
            return
        if info.si_signo == signal.SIGCHLD:
            self._collect_orphans(pid)
        elif self._signals.note(info) and not from_terminal(info):
            self._forward(pid, info.si_signo)

    def _forward(self, pid: int, number: int) -> None:
        """Pass a signal on to those whom a terminal would send it: the process group.

        The kernel signals a group in one step; here a child could be forked between the scan
        and the signal to its parent, and survive.  So all are stopped until a scan finds no
        new process, and only then get the signal.
        """
        group = os.getpgrp()
        stopped: dict[int, Process] = {}
        until = time.monotonic() + _HALT
        while True:
            new = [
                process
                for process in self._live_processes()
                if (process.pid == pid or process.group == group) and process.pid not in stopped
            ]
            if not new:
                break
            for process in new:
                process.send(signal.SIGSTOP)
                stopped[process.pid] = process
            if time.monotonic() > until:  # it forks without end
                break
        for process in reversed(stopped.values()):  # children first: no parent sees one halted
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

    def _live_processes(self) -> list[Process]:
        """Return the living processes of the run: the command and its descendants."""
        found = descendants(os.getpid(), self._others or ())
        return [process for process in found if process.alive]

    def _terminate(self, pid: int) -> tuple[int, int, int]:
        """End the whole run: SIGTERM, then SIGKILL."""
        ended = None
        for process in self._live_processes():
            process.send(signal.SIGTERM)
            process.send(signal.SIGCONT)
        until = time.monotonic() + GRACE
        while time.monotonic() < until:
            ended = ended or collect(pid)
            if ended and not self._live_processes():
                return *ended, 0
            self._handle_signal(pid, _STEP)
        return *(self._kill(pid) if ended is None else (self._kill(None) or ended)), 0

    def _kill(self, pid: int | None) -> tuple[int, int]:
        """Kill the run, and what it starts meanwhile; return how the command ended."""
        ended = None
        until = time.monotonic() + _STUCK
        while True:
            tree = self._live_processes()
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

    def _collect_survivors(self) -> list[Process]:
        """Return the processes that the run left, and collect its zombies."""
        if not self._others and not _has_children():
            return []  # orphans would be ours, so there is none: no need to look through /proc
        found = descendants(os.getpid())
        new = _exclude(found, os.getpid(), self._others or set())
        own = os.getpid()
        for process in new:
            ended = process.parent == own and not process.alive
            if ended and process.pid not in self._helpers:
                _collect(process.pid)
        self._remember_children(found)
        return new

    def _remember_children(self, found: Sequence[Process]) -> set[int]:
        own = os.getpid()
        self._others = {p.pid for p in found if p.parent == own and p.alive}
        return set(self._others)


def _has_children() -> bool:
    """Tell whether this process has any child, dead or alive."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _collect_waited(pid: int) -> tuple[int, int, int] | None:
    """Collect a child that has ended: status, when, how long its first thread waited for a cpu."""
    if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        return None
    end = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    try:  # as long as it is not collected
        with open(f"/proc/{pid}/schedstat", "rb", buffering=0) as file:  # noqa: PTH123 - faster
            waited = int(file.read(64).split()[1])
    except (OSError, IndexError, ValueError):  # a kernel without it
        waited = 0
    found = collect(pid)
    return None if found is None else (found[0], end, waited)


def _measure_ended() -> tuple[int, int, int]:
    """Return cpu time of ended children, of that in the kernel (ns), and their page faults."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    kernel = round(used.ru_stime * 1_000_000) * 1000
    running = round((used.ru_utime + used.ru_stime) * 1_000_000) * 1000
    return running, kernel, used.ru_minflt + used.ru_majflt


def shell_code(status: int) -> int:
    """Return the exit code that a shell reports for a wait status."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _exclude(found: Sequence[Process], root: int, without: set[int]) -> list[Process]:
    """Return the descendants of `root`, without those below the pids `without`."""
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


# Processes, from /proc


@dataclass(frozen=True)
class Process:
    """A process; its start time tells it from a later one with the same pid."""

    pid: int
    parent: int
    group: int
    started: int  # clock ticks since boot
    alive: bool  # false for a zombie

    def send(self, number: int) -> None:
        """Send a signal, unless the process is gone."""
        handle = -1
        with contextlib.suppress(OSError):  # gone, or of a user that we may not signal
            try:
                handle = os.pidfd_open(self.pid)
            except OSError as error:
                if error.errno != errno.ENOSYS:  # Linux before 5.3: racy between check and kill
                    return
            # The handle is of the process that has the pid now.
            if (now := _read_process(self.pid)) is not None and now.started == self.started:
                if handle < 0:
                    os.kill(self.pid, number)
                else:
                    signal.pidfd_send_signal(handle, number)
        if handle >= 0:
            os.close(handle)


def descendants(root: int, without: Iterable[int] = ()) -> list[Process]:
    """Return descendants of a process, zombies too, parents first; none below `without`."""
    children: dict[int, list[Process]] = {}
    for process in _read_processes():
        children.setdefault(process.parent, []).append(process)
    left_out = set(without)
    found: list[Process] = []
    pending = [root]
    while pending:
        below = [p for p in children.get(pending.pop(), ()) if p.pid not in left_out]
        found += below
        pending += [p.pid for p in below]
    return found


def _read_processes() -> list[Process]:
    # Not every kernel offers /proc/PID/task/TID/children.
    return [found for pid in list_pids() if (found := _read_process(pid)) is not None]


def _read_process(pid: int) -> Process | None:
    fields = read_stat(pid)
    if not fields:
        return None
    parent, group, started = (int(fields[at]) for at in (1, 2, 19))
    return Process(pid, parent, group, started, alive=fields[0] not in {"Z", "X"})


# Finding the command's program, as a shell does


EXIT_NOT_EXECUTABLE: Final = 126
EXIT_NOT_FOUND: Final = 127

_DEFAULT_PATH: Final = b"/usr/local/bin:/usr/bin:/bin"


class CommandError(CritpathError):
    """The command cannot be executed (126), or is not there (127)."""

    def __init__(self, what: str, do: str, exit_code: int) -> None:
        super().__init__(what, do)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Executable:
    """A command whose program was found."""

    path: bytes
    argv: tuple[bytes, ...]

    @property
    def name(self) -> str:
        """The name as the user gave it."""
        return os.fsdecode(self.argv[0])


def find_executable(command: Sequence[str], environment: Mapping[bytes, bytes]) -> Executable:
    """Find a command's program along PATH, as a shell would; raises CommandError."""
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
        error = _exec_errno(place)
        if not error:
            return Executable(place, argv)
        # What a directory of PATH hides that may not be looked into is not there, as for a shell.
        hidden = b"/" not in name and not os.path.exists(place)  # noqa: PTH110 - bytes
        if error not in {errno.ENOENT, errno.ENOTDIR} and not hidden:
            refused = refused or error
    if refused:
        raise exec_error(command[0], refused)
    raise _not_found(command[0])


def exec_error(name: str, error: int) -> CommandError:
    """Return the error to raise for the errno of an exec."""
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


def _exec_errno(place: bytes) -> int:
    """Return the errno that an exec of a file would fail with, 0 for none."""
    try:
        found = os.stat(place)  # noqa: PTH116 - bytes
    except OSError as error:
        return error.errno or errno.EACCES
    if stat.S_ISDIR(found.st_mode):
        return errno.EISDIR
    if not stat.S_ISREG(found.st_mode) or not os.access(place, os.X_OK):
        return errno.EACCES
    return 0
