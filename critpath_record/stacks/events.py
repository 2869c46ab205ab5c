"""Stacks from the kernel: perf events, which open and close at once as a layer of a budget does.

At a sleep, at a wake and now and then while a thread runs the kernel copies registers and the top
of the stack (which needs no frame pointers) into a ring of each cpu.  A file is made of that as
``perf record`` would write it, for ``perf script`` to unwind.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError
from critpath.units import NS_PER_S
from critpath_record.ftrace import tracefs
from critpath_record.ftrace.drain import online_cpus, write_all
from critpath_record.ftrace.formats import parse_format
from critpath_record.stacks.rings import (
    ATTRIBUTES,
    BACKWARD,
    MACHINES,
    OF_CONTROL_GROUP,
    RECORD,
    SOFTWARE,
    TRACEPOINT,
    WATERMARK,
    Ring,
    RingFile,
    Windowed,
    libc,
    open_event,
)

LAYER: Final = "stacks"
RATE: Final = 199  # samples a second of threads that run
DEPTH: Final = 2048  # bytes of stack: what costs no more than frame pointers
PYTHON_DEPTH: Final = 4096  # its interpreter's own frames lie above the function
_DUMMY: Final = 9
# perf names tracepoints by what else its own files have; so ours say: context-switches,
# cpu-migrations and cpu-clock.
SLEPT, WOKE, RAN = 3, 4, 0
# What a sample has: its event's number, address, thread, time, cpu, period, callers (of which
# there are none), of a wake the tracepoint's own record, registers and stack.
_IDENTITY: Final = 0x10000 | 0x2 | 0x4 | 0x80
_SAMPLE: Final = _IDENTITY | 0x1 | 0x100 | 0x20 | 0x1000 | 0x2000
_PARTS: Final = {SLEPT: _SAMPLE, WOKE: _SAMPLE | 0x400, RAN: _SAMPLE, _DUMMY: _IDENTITY}
_RECORD_AT: Final = 68  # where a sample has its tracepoint's record
# Bits of how an event is to be; the last ones are those that all have: the number of the event
# also with what is no sample, no guests, no callers, our clock.
_DISABLED, _INHERIT, _USER, _MAPS = 1, 2, 0x60, 0x182_2300
_EVERY: Final = 1 << 18 | 1 << 20 | 3 << 21 | 1 << 25
_MONOTONIC: Final = 1
_ENABLE, _DISABLE, _SET_OUTPUT = 0x2400, 0x2401, 0x2405
_SET_FILTER, _GET_NUMBER = 0x4008_2406, 0x8008_2407
_ROUND: Final = RECORD.pack(68, 0, 8)  # what comes is younger than what came before the last one
_MMAP2: Final = struct.Struct("<IHHIIQQQIIQQII")
_OF_USER, _DATA, _READ, _EXECUTE, _PRIVATE = 2, 1 << 13, 1, 4, 2
_NOBODY: Final = bytes(32)  # whose event it is, at no time
_HEADER: Final = struct.Struct("<8sQQQQQQQQ32x")
_SIZE_AT: Final = 48  # where that has the data's size
_DATA_AT: Final = 1 << 20  # of a file: behind what says how to read it
_MOST_OWN: Final = 64  # threads that a filter names
_MOST_MAPS: Final = 20_000  # lines of a process
# Neither runnable nor preempted.
_SLEEPS: Final = "prev_state != 0 && prev_state != 256"
_WITHOUT: Final = "record without --stacks"


def is_supported() -> bool:
    """Return whether the registers of this machine are known here."""
    return platform.machine() in MACHINES


def _attributes(of: int, kind: int, config: int, flags: int, depth: int, wakeup: int = 0) -> bytes:
    """Return how an event is to be that is a sleep, a wake, a sample or a map."""
    registers = MACHINES[platform.machine()][1]
    period = NS_PER_S // RATE if of == RAN else 1
    if of == _DUMMY:
        registers = depth = 0
    return ATTRIBUTES.pack(
        *(kind, ATTRIBUTES.size, config, period, _PARTS[of], 0, flags | _EVERY),
        *(wakeup, 0, 0, 0, 0, registers, depth, _MONOTONIC),
    )


class StackEvents(Windowed):
    """The events of some threads on some cpus, closed when they are made: a gate of a budget.

    `threads`: whose events: theirs, and of what they start; none for the machine's.  `group`: a
    descriptor of the control group whose threads' events alone are taken; -1 for none.  `depth`,
    `size`: bytes of a stack, and of the ring of each cpu.  `overwritten`: the newest overwrites the
    oldest; else what nobody has moved stays, and the rest is lost.
    """

    name = LAYER

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
        super().__init__()
        self.cpus, self.depth = tuple(cpus) or tuple(online_cpus()), depth
        self._whom = [(group, OF_CONTROL_GROUP)] if group >= 0 else [(t, 0) for t in threads]
        self._size, self._overwritten = size, overwritten
        # By cpu and what they are of; of each the first leads a group of three.
        self._events: dict[int, dict[int, list[int]]] = {cpu: {} for cpu in self.cpus}
        self._maps: list[int] = []
        self.rings: dict[int, Ring] = {}
        self._numbers: dict[int, list[int]] = {}
        self._leaves_out_own = True
        root = tracefs.find() or tracefs.mount()
        place = root / "events/sched"
        files = (place / f"sched_{name}/format" for name in ("switch", "waking"))
        switch, waking = (parse_format(x, tracefs.files.read(x).decode()) for x in files)
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
        flags |= BACKWARD if self._overwritten else WATERMARK
        sizes = self.depth, 0 if self._overwritten else self._size // 4
        of, first = self._events[cpu], -1
        for whom, how in self._whom or [(-1, 0)]:
            leader = -1
            for kind, number in self._kinds:
                by, more = (SOFTWARE, _USER) if kind == RAN else (TRACEPOINT, 0)
                more |= _DISABLED if leader < 0 else 0
                one = _attributes(kind, by, number, flags | more, *sizes)
                file = open_event(one, whom, cpu, leader, how)
                of.setdefault(kind, []).append(file)
                leader = file if leader < 0 else leader
                first = self._put_out(cpu, kind, file, first)
            if not self._overwritten:
                one = _attributes(_DUMMY, SOFTWARE, _DUMMY, flags | _MAPS, *sizes)
                self._maps.append(file := open_event(one, whom, cpu, -1, how))
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
                    if libc().ioctl(file, _SET_FILTER, text) < 0:
                        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    # As a gate

    def open(self) -> None:
        """Take stacks from now on, or as soon as what is held was saved."""
        if self._leaves_out_own:
            self._leave_out_own()
        super().open()

    def _switch(self, *, on: bool) -> None:
        for of in self._events.values():
            for leader in of.get(SLEPT, ()):
                fcntl.ioctl(leader, _ENABLE if on else _DISABLE, 0)

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
        rows_size = len(kinds) * (ATTRIBUTES.size + 16)
        for kind, own in kinds:
            row = _attributes(kind, SOFTWARE, kind, 0, self.depth)
            rows += row + struct.pack("<QQ", at + rows_size + len(numbers), 8 * len(own))
            numbers += struct.pack(f"<{len(own)}Q", *own)
        places = at, rows_size, _DATA_AT, max(size - _DATA_AT, 0), 0, 0
        head = _HEADER.pack(b"PERFILE2", at, ATTRIBUTES.size + 16, *places) + rows + numbers
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


class StackFile(RingFile):
    """Makes a file that perf reads of what events write."""

    def __init__(self, events: StackEvents, file: int, processes: Sequence[int]) -> None:
        os.lseek(file, _DATA_AT, os.SEEK_SET)
        write_maps(file, processes)
        self._events = events
        super().__init__(events, file, LAYER, _ROUND)

    def stop(self) -> bool:
        """Move the rest, and make it a file that perf reads; return whether it had not ended."""
        if not super().stop():
            return False
        with contextlib.suppress(OSError):
            os.pwrite(self._file, self._events.head(os.fstat(self._file).st_size), 0)
        return True


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
