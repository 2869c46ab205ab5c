"""Which task of an event loop runs: told to a recording that asks (``record --tasks``).

A switch is noted in memory, when and which task; some fifty go out as one mark,
``critpath:tasks TID DATA``, or ``@TID`` where another thread writes it.  DATA is base64 of pairs: a
time of the monotonic clock (u64), and a task's number in its process (u32), 0 for none, with `MADE`
where the task that runs makes it.

A task's coroutine is wrapped, as no interpreter before 3.12 says which one goes on, and a probe
on the functions of ``_asyncio`` finds no symbols of theirs.
"""

from __future__ import annotations

import atexit
import sys
from _thread import _local, allocate_lock, get_native_id
from binascii import b2a_base64
from itertools import count
from os import register_at_fork
from struct import Struct, pack
from threading import Thread
from time import monotonic_ns, sleep
from typing import TYPE_CHECKING

from critpath_marks.channels import find_asking

if TYPE_CHECKING:
    from typing import Any, Final

    from critpath_marks.channels import Channel

MADE: Final = 1 << 31

_MOST: Final = 110  # times and numbers in a mark: tracers cut what is longer than 1024 bytes
_FLUSH_S: Final = 0.1
_LOOK_S: Final = 0.25
_pack = Struct("<" + "QI" * (_MOST // 2)).pack

_asking: Channel | None = None
_watched = False
_numbers = count(1)
_logs: dict[int, _Log] = {}


class _Log:
    """What one thread has noted and not yet told."""

    __slots__ = ("_telling", "entries", "running", "thread")

    def __init__(self) -> None:
        self.entries: list[int] = []
        self._telling = allocate_lock()
        self.running = 0
        self.thread = get_native_id()
        _logs[self.thread] = self

    def enter(self, number: int) -> int:
        """Note that a task goes on; return which one did before."""
        before, self.running = self.running, number
        self.entries += (monotonic_ns(), number)
        return before

    def leave(self, before: int) -> None:
        """Note that the one before goes on."""
        self.running = before
        entries = self.entries
        entries += (monotonic_ns(), before)
        if len(entries) >= _MOST:
            self.tell()

    def tell(self, by: bytes = b"") -> None:
        """Write what was noted; whatever is noted meanwhile stays for the next time.

        `by`: ``@`` where another thread does, whom a tracer sees.
        """
        if not self._telling.acquire(blocking=False):
            return  # another thread does
        try:
            to, entries = _asking, self.entries
            while entries:
                some = entries[:_MOST]
                del entries[: len(some)]
                whole = len(some) == _MOST
                packed = _pack(*some) if whole else pack("<" + "QI" * (len(some) // 2), *some)
                if to is not None:
                    to.write(b"critpath:tasks %b%d %b" % (by, self.thread, b2a_base64(packed)))
        finally:
            self._telling.release()


class _Thread(_local):
    def __init__(self) -> None:
        self.log = _Log()


_thread = _Thread()


class _Followed:
    """A coroutine that notes when it goes on, and when it waits again."""

    __slots__ = ("_log", "_number", "_send", "_throw", "coroutine")

    def __init__(self, coroutine: Any, log: _Log, number: int) -> None:
        self.coroutine = coroutine
        self._send, self._throw = coroutine.send, coroutine.throw
        self._log, self._number = log, number

    def send(self, value: Any) -> Any:
        """Go on."""
        if _asking is None:
            return self._send(value)
        # As `enter` and `leave` do, whose calls would cost as much again.
        log = self._log
        entries, before, number = log.entries, log.running, self._number
        log.running = number
        entries += (monotonic_ns(), number)
        try:
            return self._send(value)
        finally:
            log.running = before
            entries += (monotonic_ns(), before)
            if len(entries) >= _MOST:
                log.tell()

    def throw(self, *error: Any) -> Any:
        """Go on with an error."""
        if _asking is None:
            return self._throw(*error)
        log = self._log
        before = log.enter(self._number)
        try:
            return self._throw(*error)
        finally:
            log.leave(before)

    def close(self) -> None:
        """End."""
        self.coroutine.close()

    def __await__(self) -> Any:
        return self.coroutine.__await__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.coroutine, name)


def follow_tasks(tasks: Any) -> None:
    """Let every task that is made from now on be followed: `tasks` is the module of asyncio."""
    plain = tasks.Task

    class Task(plain):  # type: ignore[misc, valid-type]
        """A task whose steps are noted."""

        def __init__(self, coro: Any, **how: Any) -> None:
            if not _watched:
                _watch()
            if hasattr(coro, "send") and hasattr(coro, "throw"):
                log, number = _thread.log, next(_numbers) & (MADE - 1)
                if _asking is not None:
                    log.entries += (monotonic_ns(), number | MADE)
                coro = _Followed(coro, log, number)
            super().__init__(coro, **how)

        def get_coro(self) -> Any:
            found = super().get_coro()
            return found.coroutine if type(found) is _Followed else found

    Task.__name__, Task.__qualname__, Task.__module__ = "Task", "Task", plain.__module__
    tasks.Task = Task


def follow_threads(thread: Any) -> None:
    """Let helper threads work for the task that asks: `thread` is of concurrent.futures."""
    submit = thread.ThreadPoolExecutor.submit

    def follow(self: Any, function: Any, /, *args: Any, **named: Any) -> Any:
        number = _thread.log.running if _asking is not None else 0
        if not number:
            return submit(self, function, *args, **named)
        return submit(self, _work, number, function, *args, **named)

    thread.ThreadPoolExecutor.submit = follow


def _work(number: int, function: Any, /, *args: Any, **named: Any) -> Any:
    log = _thread.log
    before = log.enter(number)
    try:
        return function(*args, **named)
    finally:
        log.leave(before)


FOLLOWED: Final = {"asyncio.tasks": follow_tasks, "concurrent.futures.thread": follow_threads}


class Finder:
    """Follows what asyncio and its helpers do, once a program imports them."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:  # noqa: ARG002
        """Return where a module is, with a loader that follows it then."""
        follow = FOLLOWED.get(name)
        if follow is None:
            return None
        from importlib.machinery import PathFinder  # noqa: PLC0415 - imported by now

        found = PathFinder.find_spec(name, path)
        if found is None or found.loader is None:
            return None
        execute = found.loader.exec_module

        def execute_and_follow(module: Any) -> None:
            execute(module)
            follow(module)

        found.loader.exec_module = execute_and_follow  # type: ignore[method-assign]
        return found


def install() -> None:
    """Follow this process's tasks from now on, where a recording asks for it."""
    for name, follow in FOLLOWED.items():
        if name in sys.modules:
            follow(sys.modules[name])
    sys.meta_path.insert(0, Finder())


def _look() -> None:
    global _asking  # noqa: PLW0603 - the state of the process, as sys.stdout is
    _asking = find_asking()


def _watch() -> None:
    """Look for recordings, and tell them what threads noted that are idle now."""
    global _watched  # noqa: PLW0603 - as above
    _watched = True
    _look()
    Thread(target=_run, name="critpath-tasks", daemon=True).start()


def _run() -> None:
    while True:
        sleep(_LOOK_S if _asking is None else _FLUSH_S)
        _tell_all()
        _look()


def _tell_all() -> None:
    mine = get_native_id()
    for log in list(_logs.values()):
        if log.entries:
            log.tell(b"" if log.thread == mine else b"@")


def _after_fork() -> None:
    """Start afresh in a child, which has this one thread and no watcher."""
    global _watched  # noqa: PLW0603 - as above
    _watched = False
    mine = _thread.log
    _logs.clear()
    mine.entries.clear()
    mine.thread = get_native_id()
    _logs[mine.thread] = mine


atexit.register(_tell_all)
register_at_fork(after_in_child=_after_fork)
