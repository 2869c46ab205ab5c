"""A world of processes that is played: who is started, signalled and waited for, and when.

Time passes in it only when somebody waits.  Its pids are above all that a kernel gives.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Self

from critpath_record import runner
from critpath_record.signals import SI_KERNEL, Signals, StopRequested

FIRST_PID = 5_000_000  # the kernel's largest is 4,194,304
STAYS = -1  # what a command returns that does not end by itself


class Clock:
    """What modules of critpath take for `time`."""

    CLOCK_MONOTONIC = time.CLOCK_MONOTONIC

    def __init__(self) -> None:
        self.now = 1000.0
        self.waiting: list[tuple[float, Callable[[], object]]] = []

    def monotonic(self) -> float:
        return self.now

    def monotonic_ns(self) -> int:
        return self.clock_gettime_ns(self.CLOCK_MONOTONIC)

    def clock_gettime_ns(self, _which: int) -> int:
        self.now += 1e-6  # no two moments are the same
        return int(self.now * 1e9)

    def clock_gettime(self, _which: int) -> float:
        return self.now

    def time_ns(self) -> int:
        return self.monotonic_ns()

    def thread_time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def call_at(self, when: float, what: Callable[[], object]) -> None:
        """Have something happen once it is so late and somebody waits."""
        self.waiting.append((when, what))
        self.waiting.sort(key=lambda pair: pair[0])

    def pass_to_next(self, seconds: float | None) -> bool:
        """Wait for what comes next, at most so long; return whether something came."""
        until = None if seconds is None else self.now + seconds
        if self.waiting and (until is None or self.waiting[0][0] <= until):
            when, what = self.waiting.pop(0)
            self.now = max(self.now, when)
            what()
            return True
        if until is None:
            raise AssertionError("it waits for what never comes")
        self.now = until
        return False


@dataclass(eq=False)
class PlayedProcess:
    """A process; what a signal does to it is in `traps` (None: nothing), else it dies of it."""

    world: World
    pid: int
    parent: int
    group: int
    words: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    status: int | None = None
    traps: dict[int, Callable[[], object] | None] = field(default_factory=dict)
    got: list[int] = field(default_factory=list)
    began: float = 0.0
    started: int = 0

    @property
    def alive(self) -> bool:
        return self.status is None

    def exit(self, code: int = 0) -> None:
        self._end(code << 8)

    def fork(self, *, group: int | None = None) -> PlayedProcess:
        """Start a child that stays."""
        return self.world.add(self.pid, self.group if group is None else group)

    def send(self, number: int) -> None:
        if not self.alive:
            return
        self.got.append(number)
        if number in {signal.SIGSTOP, signal.SIGCONT}:
            return
        if number in self.traps and number != signal.SIGKILL:
            (self.traps[number] or int)()
        else:
            self._end(number)

    def _end(self, status: int) -> None:
        if self.alive:
            self.status = status
            self.world.orphan(self.pid)


class World:
    """All played processes; critpath is this process, and adopts orphans."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.own = os.getpid()
        self.processes: dict[int, PlayedProcess] = {}
        self.pids = 0
        self.started: list[PlayedProcess] = []  # by critpath, in order
        self.commands: dict[str, Callable[[PlayedProcess], int | None]] = {}
        self.pending: list[SimpleNamespace] = []
        self.signals: PlayedSignals | None = None
        self.watching = False

    def add(self, parent: int, group: int) -> PlayedProcess:
        self.pids += 1
        pid = FIRST_PID + self.pids
        made = PlayedProcess(self, pid, parent, group, started=pid, began=self.clock.now)
        self.processes[pid] = made
        return made

    def orphan(self, pid: int) -> None:
        for process in self.processes.values():
            if process.parent == pid:
                process.parent = self.own

    # In the place of `critpath_record.runner`'s.

    def spawn(
        self, path: bytes, argv: list[bytes], environment: list[bytes], **options: Any
    ) -> tuple[int, int, int]:
        begin = self.clock.clock_gettime_ns(0)
        process = self.add(self.own, os.getpgrp())
        process.words = tuple(map(os.fsdecode, argv))
        pairs = (os.fsdecode(text).partition("=") for text in environment)
        process.environment = {name: value for name, _, value in pairs}
        process.options = options
        self.started.append(process)
        executed = self.clock.clock_gettime_ns(0)
        try:
            code = self.commands[os.fsdecode(path).rpartition("/")[2]](process)
        except BaseException:
            del self.processes[process.pid]
            raise
        if code != STAYS and process.alive:
            process.exit(code or 0)
        return process.pid, begin, executed

    def collect(self, pid: int) -> tuple[int, int] | None:
        process = self.processes.get(pid)
        if process is None or process.parent != self.own:
            raise ChildProcessError(pid)
        if process.status is None:
            return None
        del self.processes[pid]
        return process.status, self.clock.clock_gettime_ns(0)

    def collect_waited(self, pid: int) -> tuple[int, int, int] | None:
        found = self.collect(pid)
        return None if found is None else (*found, 0)

    def reap(self, pid: int) -> None:
        process = self.processes.get(pid)
        if process is not None and not process.alive:
            del self.processes[pid]

    def read_processes(self) -> list[Any]:
        return list(self.processes.values())

    def has_children(self) -> bool:
        return any(p.parent == self.own for p in self.processes.values())

    # Signals to critpath.

    def interrupt(self, number: int = signal.SIGINT, *, terminal: bool = False) -> None:
        """Send critpath a signal; the terminal's go to the processes of its group, too."""
        code, sender = (SI_KERNEL, 0) if terminal else (0, 1)
        info = SimpleNamespace(si_signo=number, si_code=code, si_pid=sender)
        if terminal:
            for process in [p for p in self.processes.values() if p.group == os.getpgrp()]:
                process.send(number)
        if not self.watching or self.signals is None:
            self.pending.append(info)
        elif self.signals.note(info, raising=False) and self.signals.asked > 1:
            raise StopRequested

    def play(self, replace: Callable[[Any, str, object], None], *modules: Any) -> None:
        """Let `critpath_record.runner` and other modules live in this world."""
        for module in (runner, *modules):
            replace(module, "time", self.clock)
        replace(runner, "spawn", self.spawn)
        replace(runner, "collect", self.collect)
        replace(runner, "_collect_waited", self.collect_waited)
        replace(runner, "_collect", self.reap)
        replace(runner, "_read_processes", self.read_processes)
        replace(runner, "_has_children", self.has_children)

    def make_signals(self, inherited: Any, say: Callable[[str], None]) -> PlayedSignals:
        self.signals = PlayedSignals(inherited, say, self)
        return self.signals


class PlayedSignals(Signals):
    """Takes signals from a played world; nothing of this process changes."""

    def __init__(self, inherited: Any, say: Callable[[str], None], world: World) -> None:
        super().__init__(inherited, say)
        self.world = world

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.world.pending.clear()

    @property
    def asked(self) -> int:
        return len(self._requests)

    def poll(self) -> bool:
        while self.world.pending:
            self.note(self.world.pending.pop(0))
        return bool(self._requests)

    def wait(self, seconds: float | None) -> Any:
        if not self.world.pending:
            self.world.clock.pass_to_next(seconds)
        return self.world.pending.pop(0) if self.world.pending else None

    @contextmanager
    def watching(self) -> Any:
        self.world.watching = True
        try:
            for info in self.world.pending:  # those that came before are seen at once
                self.note(info, raising=False)
            self.world.pending.clear()
            yield
        finally:
            self.world.watching = False
