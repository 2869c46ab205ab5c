"""Counts tracepoints by programs in the kernel: a few instructions at each, and memory to read."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError
from critpath_record import bpf
from critpath_record.counts.events import Counted, distinct_terms
from critpath_record.counts.groups import Group

_POSSIBLE: Final = Path("/sys/devices/system/cpu/possible")
_LANE: Final = 8  # bytes of a count
_HIGH: Final = 512  # first descriptor of programs: the command's own are low; 4096 may be the most
_NO_FUNCTION: Final = {errno.EBUSY, errno.E2BIG, errno.ENOTSUP, 524}  # the kernel's own ENOTSUPP
_ABSENT: Final = {errno.ENOENT, errno.EINVAL, errno.EOPNOTSUPP}


class ProgramCounts:
    """Counts of the machine, and of one control group apart.

    `skipped`: events that this kernel has no tracepoint for, or lets nothing be attached to.
    """

    how = "bpf"

    def __init__(self, counted: Sequence[Counted], group: Group | None) -> None:
        self.terms, self._term_of = distinct_terms(counted)
        self.skipped: list[str] = []
        self._programs: list[tuple[int, range]] = []
        self._misses: dict[int, int] = {}
        self._last: list[int] = []
        self._slots = sum(len(each.terms) for each in counted)
        self._row = 1 << max(mmap.PAGESIZE, self._slots * _LANE - 1).bit_length()
        self._cpus = 1 << (possible_cpus() - 1).bit_length()
        with contextlib.ExitStack() as opened, _raised_limits():
            maps = [
                self._keep(opened, bpf.make_array(self._size, mapped=True))
                for _ in range(2 if group else 1)
            ]
            self._rows = [opened.enter_context(bpf.map_memory(each, self._size)) for each in maps]
            first = 0
            for each in counted:
                slots = range(first, first + len(each.terms))
                self._attach(opened, each, slots, maps, group)
                first = slots.stop
            if not self._programs:
                raise OSError(errno.ENOENT, "no event could be counted")
            self._closing = opened.pop_all()

    @property
    def _size(self) -> int:
        return self._row * self._cpus

    @staticmethod
    def _keep(opened: contextlib.ExitStack, descriptor: int) -> int:
        """Move a descriptor out of the way of the command's, and close it at the end."""
        high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH)
        os.close(descriptor)
        opened.callback(os.close, high)
        return high

    def _attach(
        self,
        opened: contextlib.ExitStack,
        counted: Counted,
        slots: range,
        maps: Sequence[int],
        group: Group | None,
    ) -> None:
        code = assemble(maps, slots, counted.argument, (self._row, self._cpus), group=_known(group))
        # One function in many lets nothing be attached; of tracepoints those that are absent.
        skippable = _ABSENT | _NO_FUNCTION if counted.function else _ABSENT
        try:
            program = self._keep(opened, bpf.load(code, b"critpath_count", counted.function))
            self._keep(opened, bpf.attach(counted.tracepoint.encode(), program))
        except OSError as error:
            if error.errno not in skippable:
                raise
            self.skipped.append(counted.event)
            return
        self._programs.append((program, slots))

    def read(self) -> list[list[int]]:
        """Return the counts since the begin: of the machine, then of the group, by term."""
        found = []
        for rows in self._rows:
            # Whole rows are added as numbers of many digits: no count reaches its neighbour.
            total = sum(
                int.from_bytes(rows[at : at + self._slots * _LANE], "little")
                for at in range(0, self._size, self._row)
            )
            slots = memoryview(total.to_bytes(self._slots * _LANE, "little")).cast("Q").tolist()
            counts = [0] * len(self.terms)
            for term, count in zip(self._term_of, slots, strict=True):
                counts[term] += count
            found.append(counts)
            if rows is self._rows[0]:
                self._changed, self._last = self._compare(slots), slots
        return found

    def _compare(self, slots: list[int]) -> list[int]:
        """Return the programs that have counted anything since the last look."""
        before = self._last or [0] * len(slots)
        return [
            program
            for program, of in self._programs
            if slots[of.start : of.stop] != before[of.start : of.stop]
        ]

    def count_misses(self) -> int:
        """Return how many hits since the last call were not counted: one interrupted another."""
        missed = 0
        for program in self._changed:
            now = bpf.count_misses(program)
            missed += now - self._misses.get(program, 0)
            self._misses[program] = now
        return missed

    def close(self) -> None:
        """Detach everything; idempotent."""
        with contextlib.suppress(OSError):
            self._closing.close()


def assemble(
    maps: Sequence[int],
    slots: range,
    argument: int,
    shape: tuple[int, int],
    *,
    group: tuple[int, int] | None,
) -> bytes:
    """Return a program that adds 1 in its cpu's row of every map; `shape`: its bytes, and rows."""
    row, cpus = shape
    a = bpf.Assembler()
    a.copy(6, 1)
    a.call(bpf.CPU)
    a.copy(7, 0)
    a.mask(7, cpus - 1)
    a.shift_left(7, row.bit_length() - 1)
    if len(slots) > 1:
        a.put(bpf.LOAD64, 8, 6, argument * _LANE)
        a.jump_if(8, len(slots) - 1, "known", code=bpf.AT_MOST)
        a.set(8, len(slots) - 1)
        a.name("known")
        a.shift_left(8, 3)
        a.add_register(7, 8)
    for number, each in enumerate(maps):
        if number and group is not None:
            level, identity = group
            a.set(1, level)
            a.call(bpf.ANCESTOR_GROUP)
            a.set64(1, identity)
            a.put(bpf.NOT_EQUAL_REGISTERS, 0, 1, "out")
        a.map_value(1, each, slots.start * _LANE)
        a.add_register(1, 7)
        a.set(2, 1)
        a.put(bpf.ADD_ATOMIC, 1, 2)
    a.name("out")
    a.set(0, 0)
    a.put(0x95)
    return a.bytes()


def _known(group: Group | None) -> tuple[int, int] | None:
    return None if group is None else (group.level, group.id)


def possible_cpus() -> int:
    """Return how many cpus there may ever be."""
    try:
        text = _POSSIBLE.read_text(encoding="ascii").strip()
        return int(text.replace(",", "-").rsplit("-", 1)[-1]) + 1
    except (OSError, ValueError):
        return os.cpu_count() or 1


@contextlib.contextmanager
def _raised_limits() -> Iterator[None]:
    """Allow this process more descriptors and locked memory, for a moment: no command has it."""
    kinds = (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK)
    before = {kind: resource.getrlimit(kind) for kind in kinds}
    for kind, (_, hard) in before.items():
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (hard, hard))
    try:
        yield
    finally:
        for kind, limits in before.items():
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(kind, limits)


def refusal(error: OSError) -> CritpathError:
    """Return the error for a kernel that takes no programs."""
    name = errno.errorcode.get(error.errno or 0, "")
    return CritpathError(
        f"the kernel takes no programs that count ({name}: {error.strerror})",
        "record as root on Linux 5.5 or later with CONFIG_BPF_SYSCALL, outside of containers "
        "whose seccomp filter forbids bpf",
    )
