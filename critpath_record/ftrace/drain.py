"""Moves the kernel's pages from the ring buffers to files while it goes on tracing.

Pages are moved, not read: ``splice`` hands them from the ring buffer through a pipe to the
file, and no event passes through Python.  A thread sleeps until its cpu's buffer has
`CHUNK` bytes, so that the traced machine is woken seldom and never for long.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from fcntl import F_SETPIPE_SZ, fcntl
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError
from critpath_record._pulse import name_thread
from critpath_record.ftrace.raw import FULL
from critpath_record.ftrace.tracefs import Instance

CHUNK: Final = 1 << 20  # bytes that a buffer has to hold before its thread is woken
PIPE: Final = 1 << 18  # bytes between a buffer and its file, which a SIGKILL loses
ROOM: Final = 1 << 18  # bytes of a cpu's pages that are given up on a full disk
SPARE: Final = 1 << 20  # bytes per cpu that stay free beside the trace, which raw pages become
MOST_SPARE: Final = 1 << 26  # bytes, of however many cpus
THREADS: Final = 64  # more cpus share them

_IDLE: Final = 1.0  # s until whole pages of a quiet cpu are moved as well
_PAUSE: Final = 0.01  # s, where the kernel wakes a reader for less than was asked for
_NICE: Final = -20
_ONLINE: Final = Path("/sys/devices/system/cpu/online")
_MAKE_ROOM: Final = (
    "free space there, or record elsewhere (-o DIR); a shorter recording, or --profile minimal, "
    "needs less"
)

Pipe = tuple[int, int]


def watermark(buffer_bytes: int) -> int:
    """Return how full a buffer is when its reader is woken (percent)."""
    return max(1, min(50, 100 * CHUNK // max(buffer_bytes, 1)))


def online_cpus() -> list[int]:
    """Return the CPUs that are online, or all possible ones if unknown."""
    with contextlib.suppress(OSError, ValueError):
        return parse_cpus(_ONLINE.read_text(encoding="ascii"))
    return list(range(os.cpu_count() or 1))


def parse_cpus(text: str) -> list[int]:
    """Parse the kernel's form of a set of CPUs: ``0-3,8``."""
    found = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found += list(range(int(first), int(last or first) + 1))
    return found


class Stream:
    """Moves one CPU's ring buffer, in its pages of so many bytes, to the end of its file."""

    def __init__(self, instance: Instance, cpu: int, path: Path, page_bytes: int) -> None:
        self.cpu = cpu
        self.path = path
        self.bytes = 0  # in the file
        self._page_bytes = page_bytes
        with contextlib.ExitStack() as opened:
            name = f"per_cpu/cpu{cpu}/trace_pipe_raw"
            self.source = instance.open(name, os.O_RDONLY | os.O_NONBLOCK)
            opened.callback(os.close, self.source)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.open(path, flags, 0o600)
            opened.callback(os.close, self._file)
            self._end_in_whole_page()
            self.bytes = os.fstat(self._file).st_size
            self._closing = opened.pop_all()

    def move(self, pipe: Pipe, most: int = sys.maxsize) -> int:
        """Move the full pages that are there, or the first so many bytes; return how many."""
        moved = 0
        while moved < most:
            try:
                size = os.splice(self.source, pipe[1], PIPE)
            except BlockingIOError:
                return moved
            if size == 0:
                return moved
            moved += size
            pour(pipe[0], self._file, size)
            self.bytes += size
        return moved

    def move_rest(self, pipe: Pipe) -> None:
        """Move what is left once tracing is off, including the last, partly filled page."""
        self.move(pipe)
        while True:
            try:
                page = os.read(self.source, self._page_bytes)
            except BlockingIOError:
                return
            if not page:
                return
            write_all(self._file, page.ljust(self._page_bytes, b"\0"))

    def free_bytes(self) -> int | None:
        """Return the free bytes of the file's file system, None if unknown."""
        with contextlib.suppress(OSError):
            found = os.fstatvfs(self._file)
            if found.f_blocks:
                return found.f_bavail * found.f_frsize
        return None

    def drop_last_pages(self) -> None:
        """Free space on a full disk for the manifest and the kernel's counts.

        The pages that are dropped count as lost.
        """
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, max(0, os.fstat(self._file).st_size - ROOM))

    def close(self) -> None:
        """Close both ends, leaving only whole pages in the file; idempotent."""
        if self._file < 0:
            return
        with contextlib.suppress(OSError):
            self._end_in_whole_page()
        self._file = self.source = -1  # numbers that others have from now on
        self._closing.close()

    def _end_in_whole_page(self) -> None:
        # A full disk, or a SIGKILL, may leave a part of one.
        size = os.fstat(self._file).st_size
        whole = size - size % self._page_bytes
        if whole != size:
            os.ftruncate(self._file, whole)
        os.lseek(self._file, whole, os.SEEK_SET)


class Drain:
    """Threads that move what is recorded to files, from start to stop.

    `raw`: directory of the files ``cpuN``.  `buffer_bytes`: of each CPU.  `failed`: called once by
    each thread that cannot write any more, to turn tracing off: what follows a gap at an unknown
    place is useless.  None where tracing is off already; the buffers are then moved as long as
    there is any space.  `most_bytes`: of all files, 0 for any: beyond it nothing is moved before
    the end, and the kernel counts what it overwrites meanwhile.  `moved`: told whenever pages were
    moved.
    """

    def __init__(
        self,
        instance: Instance,
        raw: Path,
        page_bytes: int,
        buffer_bytes: int,
        failed: Callable[[], None] | None,
        *,
        most_threads: int = THREADS,
        most_bytes: int = 0,
        moved: Callable[[], None] | None = None,
    ) -> None:
        self._moved = moved or (lambda: None)
        self._instance = instance
        self._enough = min(CHUNK, buffer_bytes // 2) // 4
        self._buffer_bytes = buffer_bytes
        self._raw = raw
        self._page_bytes = page_bytes
        self._failed = failed
        self._most_threads, self._most_bytes = most_threads, most_bytes
        self._threads: list[threading.Thread] = []
        self._streams: dict[int, Stream] = {}
        self._priorities: set[str] = set()
        self._ending = threading.Event()
        self._abandoned = False
        self._wake = -1
        self.failure: CritpathError | None = None

    @property
    def cpus(self) -> list[int]:
        """The CPUs that have a file, sorted."""
        return sorted(self._streams)

    @property
    def priority(self) -> str:
        """The threads' priority: ``fifo``, ``nice -20`` or ``normal``."""
        return ", ".join(sorted(self._priorities)) or "normal"

    def cpu_time(self) -> float:
        """Return the cpu time of all threads so far (s)."""
        found = 0.0
        for thread in self._threads:
            with contextlib.suppress(OSError):  # it has ended
                found += time.clock_gettime(time.pthread_getcpuclockid(thread.ident or 0))
        return found

    def start(self, cpus: Sequence[int]) -> None:
        """Open every file and start the threads."""
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        for cpu in cpus:
            self._add(cpu)
        streams = list(self._streams.values())
        count = min(len(streams), self._most_threads)
        ready = threading.Barrier(count + 1)
        for number in range(count):
            mine = streams[number::count]
            thread = threading.Thread(
                target=self._run,
                args=(mine, ready, number == 0),
                name=f"critpath-drain{mine[0].cpu}",
                daemon=True,
            )
            self._threads.append(thread)
        try:
            for thread in self._threads:
                thread.start()
            ready.wait()
        except BaseException:
            ready.abort()
            raise

    def stop(self) -> None:
        """Move the rest, with tracing off, end the threads and close the files."""
        self._end_threads()
        # Cpus that were not online before can have come and gone.
        if self._wake >= 0 and not self._abandoned:
            with _pipe() as pipe:
                try:
                    for cpu in self._instance.cpus():
                        if cpu not in self._streams and self._instance.stats(cpu).get("entries"):
                            self._add(cpu).move_rest(pipe)
                except (OSError, CritpathError) as error:
                    self._fail(error)
        self._close()

    def abandon(self) -> None:
        """End the threads and close the files at once, dropping what the buffers hold."""
        self._abandoned = True
        self._end_threads()
        self._close()

    def _end_threads(self) -> None:
        self._ending.set()
        if self._wake >= 0:
            os.eventfd_write(self._wake, 1)
        while self._threads:
            if self._threads[-1].ident is not None:  # it was started
                self._threads[-1].join()
            self._threads.pop()

    def _close(self) -> None:
        for stream in self._streams.values():
            stream.close()
        if self._wake >= 0:
            os.close(self._wake)
            self._wake = -1

    def _add(self, cpu: int) -> Stream:
        stream = Stream(self._instance, cpu, self._raw / f"cpu{cpu}", self._page_bytes)
        self._streams[cpu] = stream
        return stream

    def _run(self, streams: list[Stream], ready: threading.Barrier, first: bool) -> None:
        name_thread(threading.current_thread().name[:15].encode())
        self._priorities.add(raise_priority())
        with contextlib.suppress(threading.BrokenBarrierError):
            ready.wait()
        try:
            with _pipe() as pipe:
                self._move_until_the_end(streams, pipe, first)
                for stream in streams if not self._abandoned else ():
                    stream.move_rest(pipe)
        except (OSError, CritpathError) as error:
            self._fail(error)
            for stream in streams:
                stream.drop_last_pages()

    def _move_until_the_end(self, streams: list[Stream], pipe: Pipe, first: bool) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        for stream in streams:
            poll.register(stream.source, select.POLLIN)
        looked = time.monotonic()
        while not self._ending.is_set():
            ready = dict(poll.poll(int(_IDLE * 1000)))
            # Only so much at once: there may be no room for more, and who writes faster than
            # this moves would keep it busy for ever.
            moved = [stream.move(pipe, self._most_bytes or CHUNK) for stream in streams]
            if any(moved):
                self._moved()
            if any(moved) and not self._has_room(streams[0]):
                self._end_early()
                return
            if self._most_bytes and sum(s.bytes for s in streams) > self._most_bytes:
                self._ending.wait()
                return
            _forget_absent(poll, streams, ready)
            if ready and max(moved) < self._enough:
                self._ending.wait(_PAUSE)
            if first and time.monotonic() - looked > _IDLE:
                looked = time.monotonic()
                for cpu in set(online_cpus()) - set(self._streams):
                    streams.append(self._add(cpu))
                    poll.register(streams[-1].source, select.POLLIN)

    def _has_room(self, stream: Stream) -> bool:
        """Return whether there is space to make a trace, which is no larger than the raw pages.

        What the buffers still hold takes space twice: it is moved in the end, and is in the trace.
        """
        free = stream.free_bytes() if self._failed is not None else None
        streams = list(self._streams.values())
        needed = sum(s.bytes for s in streams) + min(SPARE * len(streams), MOST_SPARE)
        if free is None or free > needed + 2 * self._buffer_bytes * len(streams):
            return True
        return free > needed + 2 * sum(self._buffered(s.cpu) for s in streams)

    def _buffered(self, cpu: int) -> int:
        """Return how many bytes a buffer holds, as far as the kernel tells."""
        with contextlib.suppress(CritpathError):
            return self._instance.stats(cpu).get("bytes", 0)
        return 0

    def _end_early(self) -> None:
        """End while there is space for a trace, and the command; every thread moves its rest."""
        self.failure = self.failure or CritpathError(
            f"recording was cut short: {self._raw.parent} has room left for its trace, no more",
            _MAKE_ROOM,
        )
        self._turn_off()
        self._ending.set()
        os.eventfd_write(self._wake, 1)

    def _turn_off(self) -> None:
        if self._failed is not None:
            self._failed()

    def _fail(self, error: OSError | CritpathError) -> None:
        """Keep the first failure, turn tracing off, and stop all writing."""
        if isinstance(error, OSError):
            full = error.errno in FULL
            error = CritpathError(
                f"recording was cut short, {self._raw} cannot be written: {error.strerror}",
                _MAKE_ROOM if full else "record to another place: -o DIR",
            )
        self.failure = self.failure or error
        self._turn_off()
        self._abandoned = True
        self._ending.set()
        os.eventfd_write(self._wake, 1)


def _forget_absent(poll: select.poll, streams: list[Stream], ready: dict[int, int]) -> None:
    """Wait no more for cpus without a buffer: they would never let us sleep."""
    for stream in streams:
        if ready.get(stream.source, 0) & ~select.POLLIN:
            poll.unregister(stream.source)


@contextlib.contextmanager
def _pipe() -> Iterator[Pipe]:
    ends = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        # Refused beyond what is allowed to us: a small pipe only takes more calls.
        with contextlib.suppress(OSError):
            fcntl(ends[1], F_SETPIPE_SZ, PIPE)
        yield ends
    finally:
        os.close(ends[0])
        os.close(ends[1])


def pour(source: int, file: int, size: int) -> None:
    """Move so many bytes of a pipe to a file."""
    while size > 0:
        try:
            size -= os.splice(source, file, size)
        except OSError as error:
            # A file system without splice.
            if error.errno not in {errno.EINVAL, errno.ENOSYS}:
                raise
            data = os.read(source, size)
            write_all(file, data)
            size -= len(data)


def write_all(file: int, data: bytes | memoryview) -> None:
    """Write all of it."""
    while data:
        data = data[os.write(file, data) :]


def raise_priority(thread: int = 0) -> str:
    """Give a thread, else this one, priority over who is traced; return what was permitted."""
    with contextlib.suppress(OSError):
        # What it starts has no such priority.
        policy = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(thread, policy, os.sched_param(1))
        return "fifo"
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, thread or threading.get_native_id(), _NICE)
        return f"nice {_NICE}"
    return "normal"
