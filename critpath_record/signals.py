"""Ctrl-C and its kin: the first lets the recording be finished, the second ends it.

All of them are blocked while there is a recording, in every thread and in every helper
process, and taken where it is safe: between two steps, while waiting for the command,
and by a watching thread while the recorder works.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final, Self

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

# si_code of a signal from the kernel, such as a terminal's Ctrl-C: all processes in the
# terminal's foreground have got it, the command too.
SI_KERNEL: Final = 0x80

# What passes the same signal on twice (a supervisor to the process and to its group)
# does it at once; no user presses Ctrl-C twice as fast.
_ONE_REQUEST: Final = 0.1

# Our own, between threads: for the watching thread to end, for the main thread to stop.
_WAKE: Final = signal.SIGRTMIN + 3
_STOP: Final = signal.SIGRTMIN + 4
_AGAIN: Final = 0.05  # seconds until the main thread is told once more to stop


class StopRequested(KeyboardInterrupt):
    """The user has asked twice: drop everything, but clean up."""


class Signals:
    """Takes signals while there is a recording; a context manager.

    Threads inherit the blocked signals, so start them inside.

    `inherited`: signals that it ignores (nohup) stay ignored.  `say`: called once, after the first
    signal, with what happens next.
    """

    def __init__(self, inherited: InheritedState, say: Callable[[str], None]) -> None:
        self._ending = frozenset(int(s) for s in ENDING) - inherited.ignored
        self._say = say
        self._requests: list[tuple[int, float]] = []
        self._mask: set[int] = set()
        self._child_handler: object = signal.SIG_DFL
        self._armed = False
        # Whether threads that were there before the signals were blocked, such as a library's,
        # may take one that this thread waits for.
        self.shared = False

    def __enter__(self) -> Self:
        with contextlib.suppress(OSError):
            self.shared = len(list(Path("/proc/self/task").iterdir())) > 1
        taken = {*self._ending, int(signal.SIGCHLD), _WAKE}
        # A parent that ignores SIGCHLD would have the kernel collect our children.
        self._child_handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._mask = {int(s) for s in signal.pthread_sigmask(signal.SIG_BLOCK, taken)}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Everything is done: who asks now asks for what has happened.
        while signal.sigtimedwait({*self._ending, signal.SIGCHLD, _WAKE}, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        signal.signal(signal.SIGCHLD, self._child_handler)  # type: ignore[arg-type]  # as it was

    @property
    def first(self) -> int:
        """The first signal that asked for an end, 0 for none."""
        return self._requests[0][0] if self._requests else 0

    @property
    def exit_code(self) -> int:
        """The exit code that a shell reports for the latest signal."""
        return 128 + self._requests[-1][0]

    def poll(self) -> bool:
        """Take pending signals; return whether an end was asked for."""
        while (info := signal.sigtimedwait(self._ending, 0)) is not None:
            self.note(info)
        return bool(self._requests)

    def wait(self, seconds: float | None) -> signal.struct_siginfo | None:
        """Wait for a signal, or for a child to change; None after the timeout."""
        watched = {*self._ending, signal.SIGCHLD}
        if seconds is None:
            return signal.sigwaitinfo(watched)
        return signal.sigtimedwait(watched, max(0.0, seconds))

    def note(self, info: signal.struct_siginfo, *, raising: bool = True) -> bool:
        """Count a request; return whether it is a new one."""
        now = time.monotonic()
        again = self._requests and self._requests[-1][0] == info.si_signo
        if again and now - self._requests[-1][1] < _ONE_REQUEST:
            return False
        self._requests.append((info.si_signo, now))
        if len(self._requests) == 1:
            self._say("ending: the recording is being finished; once more stops at once")
        elif raising:
            raise StopRequested
        return True

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch while the main thread works: the second request raises `StopRequested` there."""
        main = threading.get_ident()
        before = signal.signal(_STOP, self._stop)
        watcher = threading.Thread(target=self._watch, args=(main,), name="signals", daemon=True)
        self._armed = True
        watcher.start()
        try:
            yield
        finally:
            try:  # it may come right here
                self._armed = False
            finally:
                if watcher.is_alive() and watcher.ident is not None:
                    signal.pthread_kill(watcher.ident, _WAKE)
                    watcher.join()
                signal.signal(_STOP, before)

    def _watch(self, main: int) -> None:
        watched = {*self._ending, _WAKE}
        stopping = False
        while True:
            # A thread that is just falling asleep has heard of it, and sleeps all the same.
            again = stopping and self._armed
            info = signal.sigtimedwait(watched, _AGAIN) if again else signal.sigwaitinfo(watched)
            if info is not None:
                if info.si_signo == _WAKE:
                    return
                stopping |= self.note(info, raising=False) and len(self._requests) > 1
            if stopping and self._armed:
                signal.pthread_kill(main, _STOP)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        if self._armed:
            self._armed = False
            raise StopRequested


def from_terminal(info: signal.struct_siginfo) -> bool:
    """Return whether a signal has reached the whole foreground group already."""
    return info.si_code == SI_KERNEL and info.si_pid in {0, os.getpid()}


# The state that critpath was started in


# Python ignores these from its start on; a program that it starts must not.
_PYTHONS_OWN = frozenset({signal.SIGPIPE, signal.SIGXFSZ})


@dataclass(frozen=True)
class InheritedState:
    """The state that this process was started in, which the command gets instead of ours."""

    # Signals that were blocked and ignored.
    mask: frozenset[int]
    ignored: frozenset[int]
    descriptors: tuple[int, ...]  # beyond 2, that were inherited and are inheritable
    nice: int
    scheduler: tuple[int, int]  # policy and priority
    environment: Mapping[bytes, bytes]

    @classmethod
    def capture(cls) -> InheritedState:
        """Capture the state; call it in the main thread before anything is changed."""
        ignored = {
            number
            for number in signal.valid_signals() - _PYTHONS_OWN
            if signal.getsignal(number) is signal.SIG_IGN
        }
        nice, scheduler = measure_priority()
        return cls(
            mask=frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
            ignored=frozenset(ignored),
            descriptors=_inheritable(),
            nice=nice,
            scheduler=scheduler,
            environment=dict(os.environb),
        )


def measure_priority() -> tuple[int, tuple[int, int]]:
    """Return this process's nice value, and its scheduler with the priority there."""
    scheduler = os.sched_getscheduler(0), os.sched_getparam(0).sched_priority
    return os.getpriority(os.PRIO_PROCESS, 0), scheduler


def _inheritable() -> tuple[int, ...]:
    """Return descriptors beyond 2 without close-on-exec: a make's job server, 3<FILE."""
    try:
        names = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
    except OSError:
        return ()
    found = []
    for number in sorted(names):
        try:
            if number > 2 and os.get_inheritable(number):
                found.append(number)
        except OSError:  # the one that listed them
            continue
    return tuple(found)
