"""The server that processes for recordings come from.

It imports what they need and does nothing else: a fork of the command's own process, where
threads may be at work (of pyarrow, of the progress on the screen), could inherit a lock that
nobody will open.  This module imports nothing slow, so that a command can begin the server
before its own imports, on another processor.

Works on very many rows are the exception (`side_by_side`): a fork shares the tables, and only
where Python has no other thread, for numpy and natives, is there one.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext

# Importing starts idle threads of OpenBLAS and jemalloc; both prepare for a fork, and nothing
# else runs where these processes come from.
_IMPORTED: Final = [
    *("critpath.flow", "critpath.read.recording", "critpath.executions.marker"),
    *("critpath.timeline.streaming", "critpath.graph.walking", "critpath.engines.limits"),
    *("critpath.store.writing", "pyarrow.parquet"),
]


def begin_server() -> ForkServerContext:
    """Have the server running, and return what starts processes through it.

    It ends with this process.
    """
    import multiprocessing  # noqa: PLC0415 - 20 ms that only readers of several recordings need
    from multiprocessing import forkserver, resource_tracker  # noqa: PLC0415 - as above

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    if (steward := sys.modules.get("critpath.steward")) and steward.is_here():
        # What it listens at, and connects to, for each process: the one way that is left.
        forkserver.socket = SimpleNamespace(socket=steward.Socket, AF_UNIX=steward.AF_UNIX)  # type: ignore[attr-defined]
    with _safe_path():
        with uninterrupted():
            resource_tracker.ensure_running()  # before the others, as it unblocks interrupts
        with uninterrupted():
            forkserver.ensure_running()
    return context


def begin_early(jobs: int | None, sources: Sequence[Path]) -> None:
    """Begin the server where it will be needed: to be called before what takes long to import.

    Parameters
    ----------
    jobs : int or None
        As asked for; None, where the recordings decide, begins nothing yet.
    sources : sequence of Path
        As named; where it is one only, it may be a single recording.
    """
    if (jobs or 1) > 1 and len(sources) > 1:
        begin_server()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let an interrupt wait: one while a process starts would orphan that process.

    It is blocked for what is started here, as a new program has no handler yet; and it is
    handled here, as another thread of this process may receive it.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield
        return
    met: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: met.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # what waited comes now
        signal.signal(signal.SIGINT, before)
        if met:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def _safe_path() -> Iterator[None]:
    """Let Python, where it is started meanwhile, import nothing of the current directory.

    It would, being started with a program on its command line; what lies there, a recording
    from elsewhere perhaps, is data.  Later they have the path of this process.
    """
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


# Tables of more rows are worked on by two processes: threads would wait for each other, as Python
# runs one at a time; a third would take a quarter of a gigabyte for its work.
_ROWS_AT_ONCE: Final = 200_000
_ROWS_ALONE: Final = 1_000  # technical: of which no thread begins: it takes longer than they do
_MMAP_THRESHOLD: Final = -3  # of the C library
_LARGE: Final = 4 << 20  # from here on numpy asks for huge pages
_PROTOCOL: Final = 5  # of what a copy gives: arrays as they lie in memory
# Locked by the one copy that is at work; kept for as long as this process runs.
_TURN: Final = lru_cache(lambda: os.memfd_create("critpath-turn"))
# Whether this is a copy, whose works do what they are made of in order.
_DIVIDED: Final = ContextVar("_DIVIDED", default=False)


def side_by_side(*works: Callable[[], Any], rows: int = 0, copied: bool = True) -> list[Any]:
    """Return what several works give, each done by a thread, as numpy lets others run meanwhile.

    Parameters
    ----------
    works : callables
        None may depend on another's being done.
    rows : int
        Of the tables that each of them looks at: of very many a half of the works is done here,
        one after the other, the other half by a copy of this process, and what these give is
        copied back; of few all is done here.
    copied : bool
        Whether a copy may do so.

    Raises
    ------
    Exception
        Of the first work that failed, as if they had been done one after the other.
    """
    many = copied and rows > _ROWS_AT_ONCE
    if many:
        give_back()
    alone = _DIVIDED.get() if many else 0 < rows <= _ROWS_ALONE
    if alone or len(works) < 2 or len(os.sched_getaffinity(0)) < 2:
        return [work() for work in works]
    if many:
        return _do_in_two(works)
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - start-up time

    pool = ThreadPoolExecutor(len(works) - 1)
    try:
        others = [pool.submit(copy_context().run, work) for work in works[1:]]
        first = works[0]()
        found = [first, *(other.result() for other in others)]
        pool.shutdown()  # no thread is left that a copy of this process would lack
        return found
    finally:
        # Who is interrupted does not wait for the others.
        pool.shutdown(wait=False, cancel_futures=True)


def in_halves(works: Sequence[Callable[[], Any]], rows: int) -> list[Any]:
    """Return what several works give: as `side_by_side` of very many rows, else one by one."""
    return side_by_side(*works, rows=rows) if rows > _ROWS_AT_ONCE else [work() for work in works]


def _do_in_two(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """Do a half of the works here, the other in a copy of this process that shares its memory.

    Of threads only the caller is copied: with others of Python's, which may hold a lock, all is
    done here; as where no process starts, and again where a work failed, for its error.
    """
    here = (len(works) + 1) // 2
    if threading.active_count() > 1:
        return [work() for work in works]
    try:
        copy = _Copy(works[here:])
    except OSError:
        return [work() for work in works]
    try:
        mine, written = [work() for work in works[:here]], copy.read()
    finally:
        whole = copy.end()
    if not whole:
        return [*mine, *(work() for work in works[here:])]
    from multiprocessing.reduction import ForkingPickler  # noqa: PLC0415 - as above

    return [*mine, *ForkingPickler.loads(written)]


class _Copy:
    """A copy of this process that does some works; it ends with the process that waits for them."""

    def __init__(self, works: Sequence[Callable[[], Any]]) -> None:
        _TURN()
        self._result, result = os.pipe()
        asked, self._asking = os.pipe()
        try:
            self._process = os.fork()
        except OSError:
            for each in (self._result, result, asked, self._asking):
                os.close(each)
            raise
        if not self._process:
            self._work(works, result, asked)  # and never returns
        os.close(result)
        os.close(asked)

    def _work(self, works: Sequence[Callable[[], Any]], result: int, asked: int) -> NoReturn:
        """Do the works, write what they give, and end without what a process does at its end."""
        from multiprocessing import reduction  # noqa: PLC0415 - as above

        status = 1
        with suppress(BaseException), os.fdopen(result, "wb") as stream:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # of who waits
            signal.signal(signal.SIGIO, signal.SIG_DFL)  # ends this one, once who waits has ended
            os.close(self._asking)
            _DIVIDED.set(True)
            fcntl.fcntl(asked, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(asked, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
            try:
                os.read(asked, 1)  # end of file if the waiting process has ended already
            except BlockingIOError:
                fcntl.lockf(_TURN(), fcntl.LOCK_EX)  # until copies that began before have done
                given = [work() for work in works]
                fcntl.lockf(_TURN(), fcntl.LOCK_UN)  # who waits for it may wait for others first
                reduction.dump(given, stream, _PROTOCOL)
                stream.flush()
                # Who waits may read the end, and close the pipe, before this process has ended.
                signal.signal(signal.SIGIO, signal.SIG_IGN)
                status = 0
        os._exit(status)

    def read(self) -> bytes:
        """Return what it wrote, once it ended."""
        with os.fdopen(os.dup(self._result), "rb") as stream:
            return stream.read()

    def end(self) -> bool:
        """End it, if it is at work; return whether all works were done."""
        os.close(self._asking)
        os.close(self._result)
        return os.waitpid(self._process, 0)[1] == 0


def do_for_both(normal: Any, sample: Any, work: Callable[..., Any], *given: Any) -> list[Any]:
    """Return what something gives for each of two sets, which are read side by side."""
    works = (partial(work, of, *given) for of in (normal, sample))
    return side_by_side(*works, rows=len(normal) + len(sample))


# technical: executions that take tens of megabytes to be found.
MANY: Final = 10_000


def give_back(*, always: bool = False) -> None:
    """Give memory that was freed back to the system, where the C library can: it keeps some.

    ``always``: from now on, too, of every array that is large enough for huge pages.  Else each
    thread would keep what its largest ones took, for as long as this process runs.
    """
    import ctypes  # noqa: PLC0415 - start-up time

    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        if always:
            library.mallopt(_MMAP_THRESHOLD, _LARGE)
        library.malloc_trim(0)
