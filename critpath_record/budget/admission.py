"""What a recording under a budget shares with the programs that mark runs.

Programs read chances and whether the gate is open; they write what they claim: how many runs
are open that were admitted, how many began, how long the last one took, when they opened the gate
(`critpath_marks.gate` has the layout).  The size of either file is sealed, so that nobody can take
it away under the recorder; claims are clamped, and the marks are what is believed in the end.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from critpath_marks import gate as layout
from critpath_marks.channels import PLACE
from critpath_marks.sessions import start_time

_SEAL_SIZE: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_SEAL_FUTURE_WRITE: Final = 0x10  # fcntl names it from Python 3.13 on
_LOCK: Final = struct.Struct("hhqqi4x")  # struct flock
_MOST_SEEN: Final = 1_000_000  # of a kind and process between two looks
_LONGEST: Final = 3600.0  # s that an execution can have taken


@dataclass(frozen=True)
class Look:
    """Whether anybody is inside, and when programs opened the gate since the last look (ns).

    An opening whose end is not known yet, or is none, has 0 there.
    """

    busy: bool
    openings: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Learned:
    """What programs claim since the last time, by kind: begun, admitted, and s that one took."""

    seen: Mapping[str, int]
    admitted: Mapping[str, int]
    took: Sequence[tuple[str, float]]


@dataclass
class _Row:
    """What was read of a process's row before."""

    pid: int
    openings: int = 0
    places: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)


class Admission:
    """Chances, counts and a pipe, from construction until `close`.

    `seed`: of the programs' coins.  `switches`: what programs write ``1`` to.
    """

    def __init__(self, session: str, seed: int, switches: Sequence[int]) -> None:
        self._place = Path(PLACE) / (session + layout.SUFFIX)
        self._switches = tuple(switches)
        self._files: list[int] = []
        chances, self._chances = self._share(layout.CHANCES, layout.CHANCES_BYTES, 0o400)
        counts, self._counts = self._share(layout.COUNTS, layout.COUNTS_BYTES, 0o600)
        # Nobody can map it to be written from here on, not even through /proc.
        with contextlib.suppress(OSError):  # Linux 5.1 and later
            fcntl.fcntl(chances, fcntl.F_ADD_SEALS, _SEAL_FUTURE_WRITE)
        for file in (chances, counts):
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
        readable = os.open(f"/proc/self/fd/{chances}", os.O_RDONLY | os.O_CLOEXEC)
        self.pipe, told = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._files += [readable, self.pipe, told]
        self._file = counts
        self._passed = (readable, counts, told)
        self._rows: dict[int, _Row] = {}
        self._pids = bytes(8 * layout.PROCESSES)
        self._stuck: dict[int, int] = {}  # executions that were given up, by process
        self._kinds: dict[str, int] = {}
        self._chances[layout.SEED] = seed

    def _share(self, name: str, size: int, mode: int) -> tuple[int, memoryview]:
        file = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self._files.append(file)
        os.ftruncate(file, size)
        os.fchmod(file, mode)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEAL_SIZE)
        return file, memoryview(mmap.mmap(file, size)).cast("Q")

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What a program inherits."""
        return (*self._passed, *self._switches)

    @property
    def text(self) -> str:
        """What a program's environment says of it."""
        pid = os.getpid()
        return f"{pid}.{start_time(pid)}:" + ",".join(map(str, self.descriptors))

    def publish_place(self) -> None:
        """Write the same where programs look that may trace the machine."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        file = os.open(self._place, flags, 0o600)
        try:
            os.write(file, self.text.encode("ascii"))
        finally:
            os.close(file)

    def set_open(self) -> None:
        """Say that the gate is open."""
        self._chances[layout.OPEN] = 1

    def set_closed(self) -> None:
        """Say that the gate is closed, from before it is."""
        self._chances[layout.CLOSINGS] += 1
        self._chances[layout.OPEN] = 0

    def ask(self, tell: bool) -> None:
        """Say whether the last run to end is to be told of."""
        self._chances[layout.TELL] = int(tell)

    def publish(self, chances: Mapping[str, float], others: float) -> None:
        """Set the chance of each kind, and of those that are not known."""
        words = self._chances
        for kind in (words_of for words_of in chances if words_of not in self._kinds):
            if len(self._kinds) == layout.MOST_KINDS:
                break
            self._kinds[kind] = at = layout.FIRST_KIND + 2 * len(self._kinds)
            words[at + 1] = 0
            words[at] = int(kind, 16)
            words[layout.KINDS] = len(self._kinds)
        for kind, at in self._kinds.items():
            words[at + 1] = _part(chances.get(kind, others))
        words[layout.OTHERS] = _part(others)

    def look(self) -> Look:
        """Look who is inside, and who opened."""
        words = self._counts
        openings = []
        busy = False
        pids = bytes(words[layout.PROCESSES : layout.FIRST_ROW])
        if pids != self._pids:
            self._pids = pids
            for process, pid in enumerate(memoryview(pids).cast("Q")):
                if pid and (process not in self._rows or self._rows[process].pid != pid):
                    self._rows[process] = _Row(pid)
                    self._stuck.pop(process, None)
        for process, row in self._rows.items():
            at = layout.FIRST_ROW + layout.ROW_WORDS * process
            count = words[at + layout.OPENINGS]
            if count != row.openings:
                row.openings = count
                openings.append((words[at + layout.OPENING], words[at + layout.OPENED]))
            busy |= self._is_inside(process)
        return Look(busy, tuple(openings))

    def _is_inside(self, process: int) -> bool:
        """Return whether a process has runs that were admitted, and lives."""
        inside = self._counts[process]
        stuck = self._stuck.get(process, 0)
        if inside < stuck:
            self._stuck[process] = stuck = inside
        if inside <= stuck:
            return False
        asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, process, 1, 0)
        found = _LOCK.unpack(fcntl.fcntl(self._file, fcntl.F_OFD_GETLK, asked))
        if found[0] == fcntl.F_UNLCK:  # nobody has the lock of a process that is gone
            self._counts[process] = 0
            return False
        return True

    def give_up(self) -> None:
        """Count those who are inside as outside from now on."""
        for process in self._rows:
            self._stuck[process] = max(self._counts[process], self._stuck.get(process, 0))

    def learn(self) -> Learned:
        """Read what programs claim of their runs."""
        seen: dict[str, int] = {}
        admitted: dict[str, int] = {}
        took: list[tuple[str, float]] = []
        for process, row in self._rows.items():
            first = layout.FIRST_ROW + layout.ROW_WORDS * process + layout.FIRST_PLACE
            for number in range(layout.PLACES):
                at = first + layout.PLACE_WORDS * number
                kind, *now = self._counts[at : at + layout.PLACE_WORDS].tolist()
                if not kind:
                    break
                owner, *before = row.places.get(number, (0, 0, 0, 0))
                row.places[number] = (kind, now[0], now[1], now[2])
                if owner != kind or now[0] < before[0] or now[1] < before[1]:
                    before = [0, 0, 0]  # a program that executed another, and began anew
                name = f"{kind:x}"
                if new := _clamp(now[0] - before[0], _MOST_SEEN):
                    seen[name] = seen.get(name, 0) + new
                if new := _clamp(now[1] - before[1], new):
                    admitted[name] = admitted.get(name, 0) + new
                if now[2] not in {0, before[2]}:
                    took.append((name, min(now[2] / 1e9, _LONGEST)))
        return Learned(seen, admitted, took)

    def close(self) -> None:
        """Close every file: programs notice that nobody reads any more; idempotent."""
        with contextlib.suppress(OSError):
            self._place.unlink()
        files, self._files = self._files, []
        for file in files:
            os.close(file)


def _clamp(count: int, most: int) -> int:
    return min(max(0, count), most)


def _part(chance: float) -> int:
    return round(min(1.0, max(0.0, chance)) * layout.WHOLE)
