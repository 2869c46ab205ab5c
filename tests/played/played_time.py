"""Time that is played: it stands still until a test lets it pass, and loops in threads with it.

`play_time` puts a `PlayedTime` in the place of the modules ``time`` and ``select`` of what waits.
A loop that polls with a timeout then waits until `pass_time` has come so far, or until one of its
files is ready, as with the kernel; what happens meanwhile, `happen` is told in small steps::

    time = play_time(monkeypatch, loop, gaps)
    made = Loop(...)                   # its thread polls, and waits
    time.happen = lambda seconds: ...  # what is recorded in so many seconds
    time.pass_time(10)                 # all polls of ten seconds, one after the other
    made.stop()

Between two calls of the test every loop waits, so that what they did is seen whole.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from array import array
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import pytest

from critpath_record._pulse import rest

NS: Final = 1_000_000_000
_PATIENCE: Final = 60.0  # real seconds for a loop to come to wait; then the test fails


class Poll:
    """A poll whose timeout is of the played time."""

    def __init__(self, time: PlayedTime) -> None:
        self._time = time
        # One to wait with, one to ask with afterwards, one to ask while it waits.
        self._real, self._files, self._seen = (select.poll() for _ in range(3))
        self._go = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        for poll in (self._real, self._seen):
            poll.register(self._go, select.POLLIN)
        self.thread = threading.current_thread()
        self.due: float | None = None  # ns, while it waits

    def register(self, file: Any, mask: int = select.POLLIN) -> None:
        for poll in (self._real, self._files, self._seen):
            poll.register(file, mask)

    def unregister(self, file: Any) -> None:
        for poll in (self._real, self._files, self._seen):
            poll.unregister(file)

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        time = self._time
        time.spend(time.poll_costs)
        if ready := self._files.poll(0):
            return ready
        with time.changed:
            self.due = float("inf") if timeout is None else time.clock.now + timeout * 1e6
            time.changed.notify_all()
        self._real.poll()
        with time.changed:
            self.due = None
            time.changed.notify_all()
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._go)
        return self._files.poll(0)

    @property
    def rests(self) -> bool:
        """Whether it waits, and nothing is there that it waits for."""
        return self.due is not None and not self._seen.poll(0)

    def go(self) -> None:
        os.eventfd_write(self._go, 1)

    def close(self) -> None:
        os.close(self._go)


class PlayedTime:
    """Stands in for the modules ``time`` and ``select``.

    Parameters
    ----------
    clock : object, optional
        Whose ``now`` (ns) is the time, where something else moves it too.
    """

    POLLIN, POLLPRI = select.POLLIN, select.POLLPRI

    def __init__(self, clock: Any = None) -> None:
        self.clock = clock or SimpleNamespace(now=1000 * NS)
        self.happen: Callable[[float], None] = lambda _: None
        self.step = 0.001  # s of which `happen` is told at once, at most
        self.poll_costs = 15e-6  # s of cpu time, of the thread that polls
        self.loops = 1  # that there are to be
        self.slept = 0  # ns for which the machine was suspended
        self.real = 1_700_000_000 * NS  # from the time to the Unix epoch (ns)
        self.changed = threading.Condition()
        self._spent: dict[int, float] = {}
        self._polls: list[Poll] = []

    # What the product asks

    def monotonic_ns(self) -> int:
        self.clock.now += 100  # looking takes time: no two times are alike
        return int(self.clock.now)

    def monotonic(self) -> float:
        return self.clock.now / NS

    def clock_gettime_ns(self, clock: int) -> int:
        of = {time.CLOCK_BOOTTIME: self.slept, time.CLOCK_REALTIME: self.real}
        return int(self.clock.now) + of.get(clock, 0)

    def thread_time(self) -> float:
        return self._spent.get(threading.get_ident(), 0.0)

    def sleep(self, seconds: float) -> None:
        self._advance(int(self.clock.now + seconds * NS))

    def poll(self) -> Poll:
        self._polls.append(Poll(self))
        return self._polls[-1]

    def rest(
        self,
        _: array[int],
        counters: array[int],
        before: array[int],
        weights: array[float],
        limits: array[float],
        pace: int,
        until: int,
    ) -> bool:
        """As `critpath_record._pulse.rest`, with the poll of the thread that asks."""
        (poll,) = (of for of in self._polls if of.thread is threading.current_thread())
        nothing = array("i", [os.eventfd(0, os.EFD_CLOEXEC), select.POLLIN])
        try:
            while (left := until - self.clock.now) > 0:
                if poll.poll(min(left, pace) / 1e6):
                    return False
                now = int(time.monotonic() * NS) + NS // 1000
                if rest(nothing, counters, before, weights, limits, NS // 1000, now):
                    return True
        finally:
            os.close(nothing[0])
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    # What a test says

    def suspend(self, seconds: float) -> None:
        """Let the machine be suspended: time stands still but for that of the day."""
        self.slept += int(seconds * NS)
        self.real += int(seconds * NS)

    def look(self) -> int:
        """Return the time (ns), as the product would see it."""
        return self.monotonic_ns()

    def spend(self, seconds: float) -> None:
        """Let this thread have spent so much cpu time (s)."""
        of = threading.get_ident()
        self._spent[of] = self._spent.get(of, 0.0) + seconds

    def pass_time(self, seconds: float) -> None:
        """Let time pass; whoever waits goes on when its time has come."""
        until = int(self.clock.now + seconds * NS)
        while True:
            waiting = self.settle()
            due = min((of.due for of in waiting if of.due is not None), default=float("inf"))
            if due > until:
                break
            self._advance(max(int(due), self.clock.now))
            for of in waiting:
                if of.due is not None and of.due <= self.clock.now:
                    of.go()
        self._advance(until)
        self.settle()

    def settle(self) -> list[Poll]:
        """Wait until every loop waits, with nothing to do; return their polls."""
        end = time.monotonic() + _PATIENCE
        with self.changed:
            while True:
                mine = threading.current_thread()
                of = [p for p in self._polls if p.thread.is_alive() and p.thread is not mine]
                if len(self._polls) >= self.loops and all(poll.rests for poll in of):
                    return of
                if time.monotonic() > end:
                    pytest.fail("a loop does not come to wait")
                self.changed.wait(0.01)  # a thread that ends says nothing

    def close(self) -> None:
        for poll in self._polls:
            poll.close()

    def _advance(self, until: int) -> None:
        while self.clock.now < until:
            passed = min(until - self.clock.now, int(self.step * NS))
            self.clock.now += passed
            self.happen(passed / NS)
            self.settle()  # something may be ready now


def play_time(
    monkeypatch: pytest.MonkeyPatch, *modules: ModuleType, clock: Any = None
) -> PlayedTime:
    """Let some modules have a time that is played; to be closed."""
    played = PlayedTime(clock)
    for module in modules:
        for name in ("time", "select"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, played)
        if hasattr(module, "rest"):
            monkeypatch.setattr(module, "rest", played.rest)
    return played
