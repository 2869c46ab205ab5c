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
from typing import Final

_ROOT: Final = Path("/")
# Of a group: its limit, what it has, and what of that is cache that nobody used lately.
_MEMORY: Final = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def usable_cores(root: Path = _ROOT) -> int:
    """Return how many processors this process may use: at least 1.

    Those that it may run on, and no more than its control group has time for.

    Parameters
    ----------
    root : Path
        Where ``proc`` and ``sys`` are.
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
    group if that is less.  Cache that nobody used lately is left as well: the kernel takes
    it back before a limit is met.

    Parameters
    ----------
    root : Path
        Where ``proc`` and ``sys`` are.

    Returns
    -------
    int
        `sys.maxsize` where nothing is known.
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
