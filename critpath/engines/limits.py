"""What processes may use of this machine: its processors and memory, or a container's share.

A container is a control group, and the groups above bind it as well.  What their files mean
is in the kernel's Documentation/admin-guide: cgroup-v2.rst, and cgroup-v1/memory.rst; and of
version 1's processors in Documentation/scheduler/sched-bwc.rst.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from msgspec import Struct

from critpath.errors import UsageError
from critpath.schema.notes import ExecutionInMemory, Note

_ROOT: Final = Path("/")
# Of a group: its limit, what it has, and which part of that is inactive cache.
_MEMORY: Final = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def usable_cores(root: Path = _ROOT) -> int:
    """Return how many processors this process may use: at least 1.

    Those that it may run on, and no more than its control group has time for.
    """
    try:
        cores = len(os.sched_getaffinity(0))
    except OSError:
        cores = os.cpu_count() or 1
    quotas = (_quota(group) for group in _groups(root, "cpu"))
    return max(1, min([cores, *(quota for quota in quotas if quota is not None)]))


def available_memory(root: Path = _ROOT) -> int:
    """Return how many bytes the kernel says that processes can take now.

    That is what ``/proc/meminfo`` calls available, or what is left to this process's control
    group if that is less.  Inactive cache counts as free: the kernel takes
    it back before a limit is met.
    """
    found = [sys.maxsize]
    with suppress(OSError, ValueError, StopIteration):
        lines = _text(root / "proc/meminfo").splitlines()
        found.append(1024 * int(next(x for x in lines if x.startswith("MemAvailable:")).split()[1]))
    for group in _groups(root, "memory"):
        left = (_left(group, *names) for names in _MEMORY)
        found += [room for room in left if room is not None]
    return min(found)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the directories of this process's control groups, and of all above them.

    Some may not exist: a container sees its own group as the root, under whatever name.
    """
    lines = []
    with suppress(OSError):
        lines = _text(root / "proc/self/cgroup").split("\n")  # nothing else ends one
    mounted = root / "sys/fs/cgroup"
    for line in lines:
        number, controllers, name = (*line.split(":", 2), "", "")[:3]
        if number == "0":  # version 2, by itself or beside version 1
            places = [mounted, mounted / "unified"]
        elif controller in controllers.split(","):
            places = [mounted / controllers, mounted / controller]
        else:
            continue
        # Of a process in a group outside of its container's it begins with "..".
        parts = [part for part in name.split("/") if part]
        depth = 0 if ".." in parts else len(parts)
        for place in dict.fromkeys(places):
            for above in range(depth, -1, -1):
                yield place.joinpath(*parts[:above])


def _left(group: Path, limit: str, used: str, cache: str) -> int | None:
    """Return what a group may still take (bytes), None if it may take all.

    Version 1 says that by a limit that no machine has.
    """
    try:
        most, now = (int(_text(group / name)) for name in (limit, used))
    except (OSError, ValueError):  # no such group, or "max"
        return None
    with suppress(OSError, ValueError):
        fields = (line.split() for line in _text(group / "memory.stat").splitlines())
        now -= sum(int(field[1]) for field in fields if field[:1] == [cache])
    return max(most - max(now, 0), 0)


def _quota(group: Path) -> int | None:
    """Return how many processors a group may keep busy, rounded up; None for all."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        with suppress(OSError, ValueError):  # no such group, or "max"
            words = " ".join(_text(group / name) for name in names).split()
            quota, period = map(int, words)
            if quota > 0 and period > 0:  # version 1 has -1 for all
                return -(-quota // period)
    return None


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="surrogateescape")


# How much of a recording may be in memory at a time (``--max-memory``).


_MIB: Final = 1 << 20  # technical
# technical: below this there is no room for the buffers of the decoders and one small block.
_LEAST: Final = 32 * _MIB
# technical: what writing a row group takes, and reading it back to see that it is whole.
_WRITING: Final = 64 * _MIB
# technical: what a row takes while its block is made, sorted, written and fetched again, and a
# segment while it is walked, accounted for and written: measured, rounded up.
_ROW: Final = 200
_SEGMENT: Final = 400  # technical
_FEWEST_ROWS: Final = 1 << 12  # technical
# technical: what a process takes by itself varies from one start to the next, with what of its
# libraries the kernel maps at once: what is advised is somewhat more than what is refused.
_SPARE: Final = 8 * _MIB
_ROUND: Final = 16 * _MIB  # technical
# technical: rows of a block where memory does not matter: what sorting them reads and writes,
# and chunks of events beside it, stay in the caches of a core.
ROWS: Final = 1 << 16


class Budget(Struct, frozen=True):
    """How large the pieces are that a recording is read in.

    Attributes
    ----------
    rows : int
        Of a block of timelines.
    segments : int
        Of the paths that are walked together; 0 for no limit.
    alone : int
        Of a path that fits if nothing else does; 0 for no limit.
    carried : int
        Bytes of rows that are kept for executions that are asked for later; 0 for as many
        as is usual.
    spills : bool
        Blocks are kept in a temporary file.
    """

    rows: int = ROWS
    segments: int = 0
    alone: int = 0
    carried: int = 0
    spills: bool = False

    @classmethod
    def within(cls, limit: int) -> Self:
        """Return what fits beside what this process takes now."""
        if not limit:
            return cls()
        free = max(limit - _itself() - _WRITING, _LEAST)
        rows = max(_FEWEST_ROWS, min(ROWS, free // 3 // _ROW))
        return cls(
            rows,
            max(1, free // 3 // _SEGMENT),
            (free + _WRITING) // _SEGMENT,
            free // 4,
            spills=True,
        )

    def note_long(self, segments: int) -> tuple[Note, ...]:
        """Return what to say where the longest of some paths does not fit by itself."""
        if not 0 < self.alone < segments:
            return ()
        return (ExecutionInMemory(segments, segments * _SEGMENT),)


def least_room() -> int:
    """Return what a process like this one needs at least, in bytes.

    That is what it takes by itself, which differs by 40 MB between two machines and is
    measured therefore, and room to work.
    """
    return _itself() + _WRITING + _LEAST


def require_room(limit: int, jobs: int, least: int | None = None) -> None:
    """Refuse a limit that leaves no room to work, before any work."""
    if not limit:
        return
    if least is None:
        least = least_room()
    if limit < jobs * least:
        more, fewer = (f" for {jobs} jobs", ", or --jobs 1") if jobs > 1 else ("", "")
        raise UsageError(
            f"--max-memory {limit / _MIB:g}M is too little{more}",
            f"give at least {_advised(least, jobs) // _MIB}M{fewer}",
        )


def _advised(least: int, jobs: int) -> int:
    """Return what will do on the next start as well, as a round number of bytes."""
    return -(-jobs * (least + _SPARE) // _ROUND) * _ROUND


def _itself() -> int:
    """Return what this process takes now, with what writes the paths that it finds."""
    from critpath.store import PathsWriter

    PathsWriter.settle()
    return _resident()


def _resident() -> int:
    """Return the bytes of memory that this process has now."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGESIZE")
