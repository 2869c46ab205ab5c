"""Which control groups a CPU quota held back while something was recorded.

The scheduler's events do not say it: a thread that its group's quota holds back is
runnable, and on a busy machine somebody else has its cpu meanwhile, who is then named.
The kernel counts it for every group, in ``cpu.stat`` of either version of control groups.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from critpath.model.recording import QUOTA_HELD
from critpath.units import format_ns, plural

_MOUNTS: Final = Path("/proc/self/mountinfo")
_FILE: Final = "cpu.stat"
_MOST: Final = 3  # groups that are named
_WORTH: Final = 0.01  # of the time recorded: less is not said
# Version 1 counts in nanoseconds, version 2 in microseconds.
_UNITS: Final = {"throttled_time": 1, "throttled_usec": 1000}


class Throttling:
    """What quotas held back from now on.

    Parameters
    ----------
    mounts : Path
        A file as ``/proc/self/mountinfo``.
    """

    def __init__(self, mounts: Path = _MOUNTS) -> None:
        self._mounts = mounts
        self._before = _counts(mounts)

    def notes(self, duration: int) -> tuple[str, ...]:
        """Say whom quotas held back since, the longest first.

        Parameters
        ----------
        duration : int
            Nanoseconds recorded.

        Returns
        -------
        tuple of str
            One line a group; nothing for those that were held back for less than 1 %.
        """
        since = []
        for group, (count, time) in _counts(self._mounts).items():
            count_before, time_before = self._before.get(group, (0, 0))
            if time - time_before >= max(1, _WORTH * duration):
                since.append((time - time_before, group, count - count_before))
        since.sort(key=lambda x: (-x[0], x[1]))
        lines = [
            f"{QUOTA_HELD} the control group {group} back {plural(count, 'time')}, "
            f"{format_ns(time)} in all: who ran then did not keep it off the cpu"
            for time, group, count in since[:_MOST]
        ]
        if len(since) > _MOST:
            left = plural(len(since) - _MOST, "other control group")
            lines.append(f"CPU quotas held back {left}, too")
        return tuple(lines)


def _counts(mounts: Path) -> Mapping[str, tuple[int, int]]:
    """Return of every group how often and how long (ns) it was held back."""
    found: dict[str, tuple[int, int]] = {}
    for root in _roots(mounts):
        for place, _, files in os.walk(root):
            if _FILE in files:
                counted = _read(Path(place) / _FILE)
                if counted is not None:
                    found["/" + os.path.relpath(place, root).removeprefix(".")] = counted
    return found


def _roots(mounts: Path) -> Iterator[Path]:
    """Yield where hierarchies with the cpu controller are mounted."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2" or (kind[0] == "cgroup" and "cpu" in kind[2].split(",")):
            # Blanks and such are written as \040.
            yield Path(re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[4]))


def _read(file: Path) -> tuple[int, int] | None:
    """Return how often and how long (ns) a group was held back, None if never."""
    try:
        pairs = dict(line.split() for line in file.read_text().splitlines())
        count = int(pairs.get("nr_throttled", 0))
        time = sum(int(pairs.get(name, 0)) * unit for name, unit in _UNITS.items())
    except (OSError, ValueError):  # it may be gone by now
        return None
    return (count, time) if count else None
