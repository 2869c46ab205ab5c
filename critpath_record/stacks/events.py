"""Stacks from the kernel: perf events, which open and close at once as a layer of a budget does.

At a sleep, at a wake and now and then while a thread runs the kernel copies registers and the top
of the stack (which needs no frame pointers) into a ring of each cpu.  A file is made of that as
``perf record`` would write it, for ``perf script`` to unwind.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import platform
import select
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from critpath.errors import CritpathError
from critpath.units import NS_PER_S
from critpath_record._pulse import name_thread
from critpath_record.budget.control import SOFT
from critpath_record.ftrace import tracefs
from critpath_record.ftrace.drain import online_cpus, raise_priority, write_all
from critpath_record.ftrace.formats import read_format

LAYER: Final = "stacks"
RATE: Final = 199  # samples a second of threads that run
DEPTH: Final = 2048  # bytes of stack: what costs no more than frame pointers
PYTHON_DEPTH: Final = 4096  # its interpreter's own frames lie above the function
# The number of the system call, and the registers that perf unwinds by.
_MACHINES: Final = {"x86_64": (298, 0xFF0FFF), "aarch64": (241, 0x1_FFFF_FFFF)}
_SOFTWARE, _TRACEPOINT, _DUMMY = 1, 2, 9
# perf names tracepoints by what else its own files have; so ours say: context-switches,
# cpu-migrations and cpu-clock.
SLEPT, WOKE, RAN = 3, 4, 0
# What a sample has: its event's number, address, thread, time, cpu, period, callers (of which
# there are none), of a wake the tracepoint's own record, registers and stack.
_IDENTITY: Final = 0x10000 | 0x2 | 0x4 | 0x80
_SAMPLE: Final = _IDENTITY | 0x1 | 0x100 | 0x20 | 0x1000 | 0x2000
_PARTS: Final = {SLEPT: _SAMPLE, WOKE: _SAMPLE | 0x400, RAN: _SAMPLE, _DUMMY: _IDENTITY}
_WAS_TAKEN: Final = 9  # a record that is a sample; where that has its time, and the tracepoint's
_TIME_AT, _RECORD_AT = 32, 68
# Bits of how an event is to be; the last ones are those that all have: the number of the event
# also with what is no sample, no guests, no callers, our clock.
_DISABLED, _INHERIT, _USER, _MAPS, _WATERMARK, _BACKWARD = 1, 2, 0x60, 0x182_2300, 1 << 14, 1 << 27
_EVERY: Final = 1 << 18 | 1 << 20 | 3 << 21 | 1 << 25
_ATTRIBUTES: Final = struct.Struct("<IIQQQQQIIQQQQIi32x")
_MONOTONIC: Final = 1
_ENABLE, _DISABLE, _SET_OUTPUT = 0x2400, 0x2401, 0x2405
_SET_FILTER, _GET_NUMBER = 0x4008_2406, 0x8008_2407
_OF_CONTROL_GROUP, _CLOSE_ON_EXEC = 4, 8
_HEADS: Final = struct.Struct("<QQ")  # how far a ring was written, and read
_HEADS_AT: Final = 1024
_RECORD: Final = struct.Struct("<IHH")
_ROUND: Final = _RECORD.pack(68, 0, 8)  # what comes is younger than what came before the last one
_MMAP2: Final = struct.Struct("<IHHIIQQQIIQQII")
_OF_USER, _DATA, _READ, _EXECUTE, _PRIVATE = 2, 1 << 13, 1, 4, 2
_NOBODY: Final = bytes(32)  # whose event it is, at no time
_HEADER: Final = struct.Struct("<8sQQQQQQQQ32x")
_SIZE_AT: Final = 48  # where that has the data's size
_DATA_AT: Final = 1 << 20  # of a file: behind what says how to read it
_MOST_OWN: Final = 64  # threads that a filter names
_MOST_BYTES: Final = 4 << 30
_MOST_MAPS: Final = 20_000  # lines of a process
_WAIT: Final = 500  # ms
# Neither runnable nor preempted.
_SLEEPS: Final = "prev_state != 0 && prev_state != 256"
_WITHOUT: Final = "record without --stacks"


def is_supported() -> bool:
    """Return whether the registers of this machine are known here."""
    return platform.machine() in _MACHINES


def _attributes(of: int, kind: int, config: int, flags: int, depth: int, wakeup: int = 0) -> bytes:
    """Return how an event is to be that is a sleep, a wake, a sample or a map."""
    registers = _MACHINES[platform.machine()][1]
    period = NS_PER_S // RATE if of == RAN else 1
    if of == _DUMMY:
        registers = depth = 0
    return _ATTRIBUTES.pack(
        *(kind, _ATTRIBUTES.size, config, period, _PARTS[of], 0, flags | _EVERY),
        *(wakeup, 0, 0, 0, 0, registers, depth, _MONOTONIC),
    )


def _open_event(attributes: bytes, whom: int, cpu: int, group: int, flags: int) -> int:
    """Open an event, as ``perf_event_open`` does; raises OSError."""
    number = _MACHINES[platform.machine()][0]
    text = ctypes.create_string_buffer(attributes, len(attributes))
    found = _libc().syscall(number, text, whom, cpu, group, flags | _CLOSE_ON_EXEC)
    if found < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return int(found)


@cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


class Ring:
    """What the kernel writes of one cpu's events."""

    def __init__(self, descriptor: int, size: int, *, overwritten: bool) -> None:
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
        while end + _RECORD.size <= most:
            kind, _, size = _RECORD.unpack_from(self._memory, self._place(end))
            if not size or end + size > most:
                break
            if kind == _WAS_TAKEN and size > _TIME_AT + 8:
                at = self._place(end + _TIME_AT)
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


class StackEvents:
    """The events of some threads on some cpus, closed when they are made: a gate of a budget.

    `threads`: whose events: theirs, and of what they start; none for the machine's.  `group`: a
    descriptor of the control group whose threads' events alone are taken; -1 for none.  `depth`,
    `size`: bytes of a stack, and of the ring of each cpu.  `overwritten`: the newest overwrites the
    oldest; else what nobody has moved stays, and the rest is lost.
    """

    name, state, event_ns = LAYER, SOFT, 0.0

    def __init__(
        self,
        threads: Sequence[int] = (),
        *,
        cpus: Sequence[int] = (),
        group: int = -1,
        depth: int = DEPTH,
        size: int = 4 << 20,
        overwritten: bool = False,
    ) -> None:
        self.is_open, self.opened_for, self.windows, self._opened_at = False, 0.0, 0, 0.0
        self.cpus, self.depth = tuple(cpus) or tuple(online_cpus()), depth
        self._whom = [(group, _OF_CONTROL_GROUP)] if group >= 0 else [(t, 0) for t in threads]
        self._size, self._overwritten, self._saving = size, overwritten, False
        # By cpu and what they are of; of each the first leads a group of three.
        self._events: dict[int, dict[int, list[int]]] = {cpu: {} for cpu in self.cpus}
        self._maps: list[int] = []
        self.rings: dict[int, Ring] = {}
        self._numbers: dict[int, list[int]] = {}
        self._leaves_out_own = True
        self.cpu_time_of: list[StackFile] = []
        root = tracefs.find() or tracefs.mount()
        place = root / "events/sched"
        switch, waking = (read_format(place / f"sched_{n}/format") for n in ("switch", "waking"))
        # Where a sample of a wake has whom it woke.
        self.woken_at = _RECORD_AT + next(f.offset for f in waking.fields if f.name == "pid")
        self._kinds = ((SLEPT, switch.number), (WOKE, waking.number), (RAN, RAN))

    def make(self) -> None:
        """Open the events; raises CritpathError, and leaves nothing then."""
        try:
            for cpu in self.cpus:
                self._make(cpu)
        except OSError as error:
            self.close_all()
            why = f"the kernel takes no stacks: {error.strerror}"
            raise CritpathError(why, _WITHOUT) from None

    def _make(self, cpu: int) -> None:
        flags = _INHERIT * (bool(self._whom) and not self._whom[0][1])
        flags |= _BACKWARD if self._overwritten else _WATERMARK
        sizes = self.depth, 0 if self._overwritten else self._size // 4
        of, first = self._events[cpu], -1
        for whom, how in self._whom or [(-1, 0)]:
            leader = -1
            for kind, number in self._kinds:
                by, more = (_SOFTWARE, _USER) if kind == RAN else (_TRACEPOINT, 0)
                more |= _DISABLED if leader < 0 else 0
                one = _attributes(kind, by, number, flags | more, *sizes)
                file = _open_event(one, whom, cpu, leader, how)
                of.setdefault(kind, []).append(file)
                leader = file if leader < 0 else leader
                first = self._put_out(cpu, kind, file, first)
            if not self._overwritten:
                one = _attributes(_DUMMY, _SOFTWARE, _DUMMY, flags | _MAPS, *sizes)
                self._maps.append(file := _open_event(one, whom, cpu, -1, how))
                self._put_out(cpu, _DUMMY, file, first)

    def _put_out(self, cpu: int, kind: int, file: int, first: int) -> int:
        """Have an event write to its cpu's ring; return whose ring it is."""
        number = bytearray(8)
        fcntl.ioctl(file, _GET_NUMBER, number)
        self._numbers.setdefault(kind, []).append(int.from_bytes(number, "little"))
        if first < 0:
            self.rings[cpu] = Ring(file, self._size, overwritten=self._overwritten)
            return file
        fcntl.ioctl(file, _SET_OUTPUT, first)
        return first

    def _leave_out_own(self) -> None:
        """Take no stacks of this process' threads; those that come later are left out when read.

        When it is opened first, as the kernel takes one filter.
        """
        self._leaves_out_own = False
        own = sorted(os.listdir("/proc/self/task"), key=int)[:_MOST_OWN]  # noqa: PTH208 - names
        others = [f"common_pid != {thread}" for thread in own]
        for kind, words in ((SLEPT, [_SLEEPS, *others]), (WOKE, others)):
            text = ctypes.create_string_buffer(" && ".join(words).encode())
            for of in self._events.values():
                for file in of.get(kind, ()):
                    if _libc().ioctl(file, _SET_FILTER, text) < 0:
                        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    # As a gate

    def open(self) -> None:
        """Take stacks from now on, or as soon as what is held was saved."""
        if self._leaves_out_own:
            self._leave_out_own()
        if not self._saving:
            self._switch(_ENABLE)
        self.is_open, self._opened_at = True, time.monotonic()
        self.windows += 1

    def close(self) -> None:
        """Take none from now on."""
        self._switch(_DISABLE)
        if self.is_open:
            self.opened_for += time.monotonic() - self._opened_at
        self.is_open = False

    def _switch(self, what: int) -> None:
        for of in self._events.values():
            for leader in of.get(SLEPT, ()):
                fcntl.ioctl(leader, what, 0)

    def pause(self) -> None:
        """Take none, though it is open, until `resume`: what is held is being saved."""
        self._saving = True
        self._switch(_DISABLE)

    def resume(self) -> None:
        """Take stacks again, if it is open."""
        self._saving = False
        if self.is_open:
            self._switch(_ENABLE)

    def adopt(self) -> int:
        """Open it, as a program has opened what else there is; return when that was (ns)."""
        self.open()
        return time.monotonic_ns()

    def end(self) -> None:
        """Take none, whatever comes."""
        self.close()

    def turn_off(self) -> None:
        """Do nothing: while it is closed the kernel looks whether there is anybody, and goes on."""

    def counts(self, cpus: Sequence[int]) -> list[int]:
        """Return how many stacks were taken so far on each cpu."""
        return [self._count(self._events.get(cpu, {})) for cpu in cpus]

    @staticmethod
    def _count(of: dict[int, list[int]]) -> int:
        found = 0
        for kind, files in of.items():
            for file in files:
                number = int.from_bytes(os.read(file, 8), "little")
                found += number if kind != RAN else number * RATE // NS_PER_S
        return found

    def cpu_time(self) -> float:
        """Return the cpu time of what moves stacks (s)."""
        return sum(one.cpu_time() for one in self.cpu_time_of)

    @contextlib.contextmanager
    def probe(self, cpu: int) -> Iterator[StackEvents]:
        """Yield what takes stacks of one cpu for nobody, to measure what one costs."""
        one = StackEvents(cpus=(cpu,), depth=PYTHON_DEPTH, size=1 << 20, overwritten=True)
        one.make()
        one._leaves_out_own = False
        try:
            yield one
        finally:
            one.close_all()

    def poll_on(self) -> list[int]:
        """Return what is readable when there is something to move."""
        return [of[SLEPT][0] for of in self._events.values() if of]

    def close_all(self) -> None:
        """Close everything; idempotent."""
        for ring in self.rings.values():
            ring.close()
        for file in (f for of in self._events.values() for files in of.values() for f in files):
            os.close(file)
        for file in self._maps:
            os.close(file)
        self.rings, self._maps, self._events = {}, [], {cpu: {} for cpu in self.cpus}

    # As a file

    def head(self, size: int) -> bytes:
        """Return what a file of so many bytes begins with, so that ``perf script`` reads it."""
        numbers, rows = b"", b""
        at = _HEADER.size
        kinds = [(kind, self._numbers.get(kind, [])) for kind in _PARTS]
        rows_size = len(kinds) * (_ATTRIBUTES.size + 16)
        for kind, own in kinds:
            row = _attributes(kind, _SOFTWARE, kind, 0, self.depth)
            rows += row + struct.pack("<QQ", at + rows_size + len(numbers), 8 * len(own))
            numbers += struct.pack(f"<{len(own)}Q", *own)
        places = at, rows_size, _DATA_AT, max(size - _DATA_AT, 0), 0, 0
        head = _HEADER.pack(b"PERFILE2", at, _ATTRIBUTES.size + 16, *places) + rows + numbers
        if len(head) > _DATA_AT:
            raise CritpathError("stacks of too many threads were asked for", "take fewer, or -a")
        return head

    @property
    def wakes(self) -> str:
        """Where a wake has whom it woke, and the numbers of the events that are wakes."""
        return ",".join(map(str, [self.woken_at, *self._numbers.get(WOKE, [])]))


def save_rings(events: StackEvents, file: int, since: int) -> None:
    """Write what is held to a file as perf reads it, but for the maps of programs: `add_maps`."""
    os.lseek(file, _DATA_AT, os.SEEK_SET)
    for ring in events.rings.values():
        ring.take(file, since)
    os.pwrite(file, events.head(os.lseek(file, 0, os.SEEK_CUR)), 0)


def add_maps(file: int) -> None:
    """Add which files the machine's processes have mapped now."""
    os.lseek(file, 0, os.SEEK_END)
    write_maps(file, [int(name) for name in os.listdir("/proc") if name.isdecimal()])  # noqa: PTH208
    size = os.lseek(file, 0, os.SEEK_CUR) - _DATA_AT
    os.pwrite(file, struct.pack("<Q", size), _SIZE_AT)


class StackFile:
    """Moves what events write to a file, in a thread, from construction to `stop`."""

    def __init__(self, events: StackEvents, file: int, processes: Sequence[int]) -> None:
        self._events, self._file = events, file
        self.failure = ""
        self._moved, self._own = 0, 0.0
        self._ending = threading.Event()
        os.lseek(file, _DATA_AT, os.SEEK_SET)
        write_maps(file, processes)
        events.cpu_time_of.append(self)
        self._thread = threading.Thread(target=self._run, name="stacks", daemon=True)
        self._thread.start()

    def cpu_time(self) -> float:
        """Return the cpu time that it took so far (s)."""
        return self._own

    def _run(self) -> None:
        name_thread(b"critpath-stacks")
        raise_priority()  # else it loses stacks beside what has the cpus
        poll = select.poll()
        for file in self._events.poll_on():
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
            for ring in self._events.rings.values():
                self._moved += ring.move(self._file)
            if self._moved > before:
                write_all(self._file, _ROUND)
            if self._moved > _MOST_BYTES:
                self.failure = f"they had {_MOST_BYTES >> 30} GiB"
        except OSError as error:
            self.failure = error.strerror or str(error)
        if self.failure:
            self._events.close()

    def stop(self) -> None:
        """Move the rest, and make it a file that perf reads; idempotent."""
        if self._ending.is_set():
            return
        self._ending.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            self._events.close()
        self._move()
        with contextlib.suppress(OSError):
            os.pwrite(self._file, self._events.head(os.fstat(self._file).st_size), 0)


def write_maps(file: int, processes: Sequence[int]) -> None:
    """Write which files processes have mapped, as of no time."""
    for pid in processes:
        with contextlib.suppress(OSError, ValueError):
            text = Path(f"/proc/{pid}/maps").read_bytes()
            records = (_map_record(pid, line) for line in text.splitlines()[:_MOST_MAPS])
            write_all(file, b"".join(records))


def _map_record(pid: int, line: bytes) -> bytes:
    addresses, rights, offset, device, inode, *name = line.split(None, 5)
    executed = b"x" in rights
    if not (executed or (name and name[0].startswith(b"/"))):
        return b""  # what tells callers lies in a program's other parts
    begin, end = (int(number, 16) for number in addresses.split(b"-"))
    major, minor = (int(number, 16) for number in device.split(b":"))
    of_nobody = not name or name[0].startswith(b"[anon")  # which a program may have named
    path = (b"//anon" if of_nobody else name[0])[:4095] + b"\0"
    path += b"\0" * (-len(path) % 8)
    size = _MMAP2.size + len(path) + len(_NOBODY)
    return (
        _MMAP2.pack(
            *(10, _OF_USER if executed else _OF_USER | _DATA, size, pid, pid),
            *(begin, end - begin, int(offset, 16), major, minor, int(inode), 0),
            *(_READ | (_EXECUTE if executed else 0), _PRIVATE),
        )
        + path
        + _NOBODY
    )
