"""Rings that the kernel's perf events write to, one of each cpu: moved to a file, or held."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import platform
import select
import struct
import threading
import time
from functools import cache
from typing import Any, Final, Protocol, Self

from critpath_record._pulse import name_thread
from critpath_record.budget.control import SOFT
from critpath_record.ftrace.drain import raise_priority, write_all

# The number of the system call, and the registers that perf unwinds by.
MACHINES: Final = {"x86_64": (298, 0xFF0FFF), "aarch64": (241, 0x1_FFFF_FFFF)}
SOFTWARE, TRACEPOINT = 1, 2
# Bits of how an event is to be: for all, another process is told of what fills it, the newest
# overwrites the oldest.
WATERMARK, BACKWARD = 1 << 14, 1 << 27
ATTRIBUTES: Final = struct.Struct("<IIQQQQQIIQQQQIi32x")
OF_CONTROL_GROUP, CLOSE_ON_EXEC = 4, 8
RECORD: Final = struct.Struct("<IHH")  # kind, flags, size
SAMPLED: Final = 9  # a record that is a sample
TIME_AT: Final = 32  # where that of a stack has its time
_HEADS: Final = struct.Struct("<QQ")  # how far a ring was written, and read
_HEADS_AT: Final = 1024
_MOST_BYTES: Final = 4 << 30
_WAIT: Final = 500  # ms


def open_event(attributes: bytes, whom: int, cpu: int, group: int, flags: int) -> int:
    """Open an event, as ``perf_event_open`` does; raises OSError."""
    number = MACHINES[platform.machine()][0]
    text = ctypes.create_string_buffer(attributes, len(attributes))
    found = libc().syscall(number, text, whom, cpu, group, flags | CLOSE_ON_EXEC)
    if found < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return int(found)


@cache
def libc() -> Any:
    """Return the C library, whose errors are kept."""
    return ctypes.CDLL(None, use_errno=True)


class Ring:
    """What the kernel writes of one cpu's events."""

    def __init__(
        self, descriptor: int, size: int, *, overwritten: bool, time_at: int = TIME_AT
    ) -> None:
        self._time_at = time_at  # where a sample has its time
        rights = mmap.PROT_READ | (0 if overwritten else mmap.PROT_WRITE)
        self._size, self._overwritten = size, overwritten
        self._memory = mmap.mmap(descriptor, mmap.PAGESIZE + size, mmap.MAP_SHARED, rights)
        self._view = memoryview(self._memory)

    def _pieces(self, begin: int, end: int) -> list[memoryview]:
        at, length = begin % self._size, end - begin
        first = min(length, self._size - at)
        data = self._view[mmap.PAGESIZE :]
        return [piece for piece in (data[at : at + first], data[: length - first]) if len(piece)]

    def move(self, file: int) -> int:
        """Write what is new to a file; return how many bytes that was."""
        head, tail = _HEADS.unpack_from(self._memory, _HEADS_AT)
        for piece in self._pieces(tail, head):
            write_all(file, piece)
        struct.pack_into("<Q", self._memory, _HEADS_AT + 8, head)
        return int(head - tail)

    def take(self, file: int, since: int) -> int:
        """Write what an overwritten ring holds, the newest first, down to a time (ns).

        Nothing is written to the ring meanwhile; what it holds stays.
        """
        head, _ = _HEADS.unpack_from(self._memory, _HEADS_AT)
        end, most = head, min(head + self._size, 1 << 64)
        while end + RECORD.size <= most:
            kind, _, size = RECORD.unpack_from(self._memory, self._place(end))
            if not size or end + size > most:
                break
            if kind == SAMPLED and size > self._time_at + 8:
                at = self._place(end + self._time_at)
                if int.from_bytes(self._view[at : at + 8], "little") < since:
                    break
            end += size
        for piece in self._pieces(head, end):
            write_all(file, piece)
        return int(end - head)

    def _place(self, at: int) -> int:
        return mmap.PAGESIZE + at % self._size

    def close(self) -> None:
        """Give the memory back."""
        self._view.release()
        self._memory.close()


class Windowed:
    """What a budget opens and closes beside the layers that paths are made of."""

    name = ""
    # `event_ns`: what an event costs, 0 where a probe measures it; `closed_ns`: what one costs
    # while it is closed.
    state, event_ns, closed_ns = SOFT, 0.0, 0.0

    def __init__(self) -> None:
        self.is_open, self.opened_for, self.windows, self._opened_at = False, 0.0, 0, 0.0
        self._saving = False
        self.movers: list[RingFile] = []

    def _switch(self, *, on: bool) -> None:
        """Take what comes, or nothing."""
        raise NotImplementedError

    def open(self) -> None:
        """Take what comes from now on, or as soon as what is held was saved."""
        if not self._saving:
            self._switch(on=True)
        self.is_open, self._opened_at = True, time.monotonic()
        self.windows += 1

    def close(self) -> None:
        """Take nothing from now on."""
        self._switch(on=False)
        if self.is_open:
            self.opened_for += time.monotonic() - self._opened_at
        self.is_open = False

    def pause(self) -> None:
        """Take nothing, though it is open, until `resume`: what is held is being saved."""
        self._saving = True
        self._switch(on=False)

    def resume(self) -> None:
        """Go on, if it is open."""
        self._saving = False
        if self.is_open:
            self._switch(on=True)

    def adopt(self) -> int:
        """Open it, as a program has opened what else there is; return when that was (ns)."""
        self.open()
        return time.monotonic_ns()

    def end(self) -> None:
        """Take nothing, whatever comes."""
        self.close()

    def turn_off(self) -> None:
        """Do nothing: while it is closed next to nothing is left to turn off."""

    def cpu_time(self) -> float:
        """Return the cpu time of what moves what was taken (s)."""
        return sum(mover.cpu_time() for mover in self.movers)

    def probe(self, cpu: int) -> contextlib.AbstractContextManager[Self]:  # noqa: ARG002
        """Measure nothing: what an event costs is known."""
        return contextlib.nullcontext(self)


class Ringed(Protocol):
    """What writes to rings."""

    rings: dict[int, Ring]
    movers: list[RingFile]

    def poll_on(self) -> list[int]:
        """Return what is readable when there is something to move."""

    def close(self) -> None:
        """Take nothing from now on."""


class RingFile:
    """Moves what rings have to a file, in a thread, from construction to `stop`.

    `between`: written behind each round that moved something.
    """

    def __init__(self, source: Ringed, file: int, name: str, between: bytes = b"") -> None:
        self._source, self._file, self._name, self._between = source, file, name, between
        self.failure = ""
        self._moved, self._own = 0, 0.0
        self._ending = threading.Event()
        source.movers.append(self)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def cpu_time(self) -> float:
        """Return the cpu time that it took so far (s)."""
        return self._own

    def _run(self) -> None:
        name_thread(f"critpath-{self._name}".encode())
        raise_priority()  # else it loses what comes beside what has the cpus
        poll = select.poll()
        for file in self._source.poll_on():
            poll.register(file, select.POLLIN)
        while not self._ending.is_set():
            poll.poll(_WAIT)
            self._move()
            self._own = time.thread_time()

    def _move(self) -> None:
        if self.failure:
            return
        try:
            before = self._moved
            for ring in self._source.rings.values():
                self._moved += ring.move(self._file)
            if self._moved > before:
                write_all(self._file, self._between)
            if self._moved > _MOST_BYTES:
                self.failure = f"they had {_MOST_BYTES >> 30} GiB"
        except OSError as error:
            self.failure = error.strerror or str(error)
        if self.failure:
            self._source.close()

    def stop(self) -> bool:
        """Move the rest; return whether it had not ended before."""
        if self._ending.is_set():
            return False
        self._ending.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            self._source.close()
        self._move()
        return True
