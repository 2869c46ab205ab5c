"""Limits of control groups that were reached while something was recorded: cpu, memory, disk.

The kernel counts them by group, in files of both versions of control groups.  A look at all
groups takes a while, so it is repeated seldom enough to cost little; a group that is made and
removed between two looks is not seen.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from critpath.model.recording import QUOTA_HELD
from critpath.units import NS_PER_S, format_ns, plural, safe_text
from critpath_record._pulse import name_thread
from critpath_record.proc import read_text

_MOUNTS: Final = Path("/proc/self/mountinfo")
_MOST: Final = 3  # groups of a kind that are named
_WORTH: Final = 0.01  # of the time recorded: less is not reported
_FULL: Final = 0.8  # of a limit to a disk's rate, between two looks: more is the limit
_PAUSE: Final = 0.25  # seconds between two looks
_CLOSE: Final = 0.01  # seconds between two looks at groups that have a quota, or a disk's limit
_FOLLOWED: Final = 16  # groups that are looked at so often
_ROWS: Final = 20_000  # of all groups: later ones are not placed in time
_MOST_PIDS: Final = 10_000
_SHARE: Final = 50  # a pause is so many times as long as a look at least
_UNLIMITED: Final = 1 << 60  # bytes of memory; version 1 has a number for no limit
# Version 1 counts in nanoseconds, version 2 in microseconds.
_THROTTLED: Final = {"throttled_time": 1, "throttled_usec": 1000}
_RATE_NAMES: Final = {"rbps": "read", "wbps": "written", "riops": "reads", "wiops": "writes"}
_DISK: Final = re.compile(r"\d{1,9}:\d{1,9}")
# Version 1's files of limits and of what was done, by rate.
_FILES_1: Final = {
    "rbps": ("blkio.throttle.read_bps_device", "blkio.throttle.io_service_bytes", "Read"),
    "wbps": ("blkio.throttle.write_bps_device", "blkio.throttle.io_service_bytes", "Write"),
    "riops": ("blkio.throttle.read_iops_device", "blkio.throttle.io_serviced", "Read"),
    "wiops": ("blkio.throttle.write_iops_device", "blkio.throttle.io_serviced", "Write"),
}

Counts = Mapping[str, int]  # by name; of disks ``MAJOR:MINOR RATE``


@dataclass
class _Group:
    """What a group had counted at first, and last; its limits, and how long they were full."""

    first: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    full: dict[str, int] = field(default_factory=dict)  # ns, of limits to a disk's rate
    seen: dict[str, int] = field(default_factory=dict)  # when each was last read (ns)
    place: Path = Path()
    places: set[Path] = field(default_factory=set)  # in several hierarchies of version 1
    pids: set[int] = field(default_factory=set)  # in it while it reached a limit
    # Begin and end (ns) of when a count rose, by how much; ns that a quota held it back, pages
    # that were read again, ns at the limit of a disk's rate.
    rows: dict[str, list[tuple[int, int, int, int]]] = field(default_factory=dict)

    def since(self, name: str) -> int:
        """Return how much more there is of something."""
        return self.last.get(name, 0) - self.first.get(name, 0)

    def update(self, counts: Counts, limits: Counts, now: int, before: int) -> None:
        """Take what was read anew; `before`: when everything was read last."""
        again = any(count < self.last.get(name, 0) for name, count in counts.items())
        if again:  # another group of the same name, which counts from 0
            self.first = {name: self.first.get(name, 0) - last for name, last in self.last.items()}
            self.last = {}
        for name, limit in limits.items():
            seen = self.seen.get(name, now)
            if _DISK.match(name) and limit and now > seen:
                done = counts.get(name, 0) - self.last.get(name, counts.get(name, 0))
                if done * NS_PER_S >= _FULL * limit * (now - seen):
                    self.full[name] = self.full.get(name, 0) + now - seen
                    self._note(name, (seen, now, done, now - seen))
        for times, time_ in (("throttles", "throttled"), ("memory", "refaults")):
            more, longer = (counts.get(x, 0) - self.last.get(x, 0) for x in (times, time_))
            if times in counts and (more > 0 or longer > 0):
                self._note(times, (self.seen.get(times, before), now, more, longer))
        self.last.update(counts)
        self.limits.update(limits)
        self.seen.update(dict.fromkeys((*counts, *limits), now))

    def _note(self, what: str, row: tuple[int, int, int, int]) -> None:
        """Note when something rose; whose it was is asked while they are there."""
        self.rows.setdefault(what, []).append(row)
        self.find_members()

    def find_members(self) -> None:
        """Add the processes that are in the group now, or in those below it."""
        for place, _, files in (found for top in self.places for found in os.walk(top)):
            if "cgroup.procs" in files and len(self.pids) < _MOST_PIDS:
                self.pids.update(map(int, filter(_is_count, _lines(Path(place) / "cgroup.procs"))))


class Limits:
    """Limits that control groups reach from construction on.

    `mounts` is a file like ``/proc/self/mountinfo``; ``born`` is told of every group at each look.
    """

    def __init__(
        self,
        mounts: Path = _MOUNTS,
        clock: Callable[[], int] = time.monotonic_ns,
        *,
        born: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._mounts, self._clock, self._born = mounts, clock, born
        self._groups: dict[str, _Group] = {}
        self._looked = clock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self.look()
        for group in self._groups.values():
            group.first = dict(group.last)
            group.rows.clear()

    def start(self) -> None:
        """Look again and again, for groups that come and go."""
        self._thread = threading.Thread(target=self._run, name="critpath-limits", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End looking; idempotent."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        name_thread(b"critpath-limits")
        with contextlib.suppress(OSError):  # what comes late is counted, but not placed in time
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -20)
        took, close, due = 0.0, 0.0, time.monotonic() + _PAUSE
        while not self._ending.wait(max(_CLOSE if self._followed() else _PAUSE, _SHARE * close)):
            before = time.thread_time()
            for group in self._followed():
                counts: dict[str, int] = {}
                limits: dict[str, int] = {}
                _read_cpu(group.place, counts, limits)
                if counts:
                    group.update(counts, limits, self._clock(), self._looked)
            close = time.thread_time() - before
            if time.monotonic() < due:
                continue
            before = time.thread_time()
            self.look()
            took = time.thread_time() - before
            due = time.monotonic() + max(_PAUSE, _SHARE * took)

    def _followed(self) -> list[_Group]:
        """Return the groups with a quota, or that had one: as many as may be looked at closely."""
        rows = sum(len(rows) for group in self._groups.values() for rows in group.rows.values())
        limited = [group for group in self._groups.values() if "throttles" in group.last]
        return limited[:_FOLLOWED] if rows < _ROWS else []

    def look(self, since: int = 0) -> None:
        """Look at all groups; what rose before a time (ns) is forgotten."""
        begin = self._clock()
        for name, place, counts, limits in _look(self._mounts):
            self._born(name)
            if not (counts or limits):
                continue
            group = self._groups.setdefault(name, _Group())
            group.places.add(place)
            # A hierarchy of version 1 for each controller: the one that has a quota is asked again.
            if "throttles" in counts or group.place == Path():
                group.place = place
            group.update(counts, limits, self._clock(), self._looked)
        self._looked = begin
        if since:
            for group in self._groups.values():
                rows = {of: [row for row in each if row[1] > since]
                        for of, each in group.rows.items()}  # fmt: skip
                group.rows = {of: each for of, each in rows.items() if each}

    def facts(self) -> list[dict[str, object]]:
        """Return for the manifest which groups reached a limit, when, and who was in them."""
        self.stop()
        return [
            {
                "group": name,
                "limits": dict(of.limits),
                "pids": sorted(of.pids),
                "rows": {what: rows[:_ROWS] for what, rows in of.rows.items()},
            }
            for name, of in sorted(self._groups.items())
            if of.rows
        ]

    def notes(self, duration: int) -> tuple[str, ...]:
        """Return a line for each group that reached a limit since, of each kind the worst first.

        Groups throttled, or at a disk's limit, for less than 1 % of `duration` (ns) are left
        out.
        """
        self.stop()
        self.look()
        groups = self._groups.items()
        quotas = [
            (time_, _quota_note(name, of, time_))
            for name, of in groups
            if (time_ := of.since("throttled")) >= max(1, _WORTH * duration)
        ]
        memory = [
            (of.since("memory"), _memory_note(name, of))
            for name, of in groups
            if of.since("memory") > 0
        ]
        disks = [found for name, of in groups for found in _disk_notes(name, of, duration)]
        return (
            *_worst(quotas, "CPU quotas held back"),
            *_worst(memory, "memory limits were reached by"),
            *_worst(disks, "limits of disks were reached by"),
        )


def _worst(found: list[tuple[int, str]], what: str) -> list[str]:
    lines = [line for _, line in sorted(found, key=lambda x: (-x[0], x[1]))]
    beyond = len(lines) - _MOST
    more = [f"{what} {plural(beyond, 'other control group')}, too"] if beyond > 0 else []
    return [*lines[:_MOST], *more]


def _quota_note(name: str, of: _Group, time_: int) -> str:
    periods, count = of.since("periods"), of.since("throttles")
    quota, period = of.limits.get("quota", 0), of.limits.get("period", 0)
    facts = [f"in {count:,} of {plural(periods, 'period')}"] if periods else []
    if quota and period:
        facts.append(f"{format_ns(quota)} of cpu time in each {format_ns(period)}")
    rests = f" ({'; '.join(facts)})" if facts else ""
    return (
        f"{QUOTA_HELD} the control group {name} back {plural(count, 'time')}, "
        f"{format_ns(time_)} in all{rests}: who ran then did not keep it off the cpu"
    )


def _memory_note(name: str, of: _Group) -> str:
    limit = of.limits.get("memory", 0)
    size = f" of {limit / 2**20:,.0f} MiB" if limit else ""
    facts = [
        f"{plural(of.since(key), noun)} {what}"
        for key, noun, what in (
            ("refaults", "page", "read again that had been dropped"),
            ("killed", "process", "killed"),
        )
        if of.since(key) > 0
    ]
    rests = f" ({', '.join(facts)})" if facts else ""
    return (
        f"the control group {name} reached its memory limit{size} "
        f"{plural(of.since('memory'), 'time')}{rests}: its threads then freed memory themselves "
        "or waited for the disk"
    )


def _disk_notes(name: str, of: _Group, duration: int) -> Iterator[tuple[int, str]]:
    for key, time_ in sorted(of.full.items()):
        disk, _, rate = key.partition(" ")
        if time_ < max(1, _WORTH * duration):
            continue
        limit = of.limits.get(key, 0)
        amount = f"{limit / 2**20:,.1f} MiB" if rate.endswith("bps") else f"{limit:,}"
        yield (
            time_,
            (
                f"the control group {name} was at the limit of its disk {disk} for "
                f"{format_ns(time_)} ({amount} {_RATE_NAMES[rate]} a second): who waited for the "
                "disk waited for that"
            ),
        )


def name_disks(block: Path = Path("/sys/dev/block")) -> dict[str, str]:
    """Return the names of disks and partitions by device, ``MAJOR:MINOR``."""
    with contextlib.suppress(OSError):
        return {place.name: place.readlink().name for place in sorted(block.iterdir())}
    return {}


# Reading control groups


def _look(mounts: Path) -> Iterator[tuple[str, Path, Counts, Counts]]:
    """Yield each group's name and place, what it has counted, and its limits, by hierarchy.

    Most have counted nothing, and have no limit.
    """
    for root, version, controllers in hierarchies(mounts):
        for place, _, files in os.walk(root):
            name = safe_text("/" + os.path.relpath(place, root).removeprefix("."))
            counts: dict[str, int] = {}
            limits: dict[str, int] = {}
            here = Path(place)
            if "cpu.stat" in files and "cpu" in controllers:
                _read_cpu(here, counts, limits)
            if version == 1 and "memory" in controllers:
                _read_memory_1(here, counts, limits)
            if version == 1 and "blkio" in controllers:
                _read_disks_1(here, counts, limits)
            if version == 2:
                _read_2(here, files, counts, limits)
            yield name, here, counts, limits


def hierarchies(mounts: Path) -> Iterator[tuple[Path, int, frozenset[str]]]:
    """Yield the mount points of hierarchies, their version, and controllers of version 1."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 2:  # what is mounted may have no name
            continue
        # Blanks and such are written as \040.
        place = Path(re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[4]))
        if kind[0] == "cgroup2":
            yield place, 2, frozenset({"cpu"})
        elif kind[0] == "cgroup":
            controllers = frozenset(kind[-1].split(",")) & {"cpu", "memory", "blkio"}
            if controllers:
                yield place, 1, controllers


def _read_cpu(place: Path, counts: dict[str, int], limits: dict[str, int]) -> None:
    found = _read_pairs(place / "cpu.stat")
    if not found.get("nr_throttled"):
        return
    counts["throttles"] = found["nr_throttled"]
    counts["periods"] = found.get("nr_periods", 0)
    counts["throttled"] = sum(found.get(name, 0) * unit for name, unit in _THROTTLED.items())
    words = read_text(place / "cpu.max").split()
    if not words:
        words = [read_text(place / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    if len(words) == 2 and all(map(_is_count, words)):
        limits["quota"], limits["period"] = (int(word) * 1000 for word in words)


def _read_memory_1(place: Path, counts: dict[str, int], limits: dict[str, int]) -> None:
    failed = read_text(place / "memory.failcnt").strip()
    if _is_count(failed) and int(failed):
        counts["memory"] = int(failed)
        limit = read_text(place / "memory.limit_in_bytes").strip()
        limits["memory"] = int(limit) if _is_count(limit) and int(limit) < _UNLIMITED else 0
        _read_refaults(place, counts)


def _read_2(place: Path, files: list[str], counts: dict[str, int], limits: dict[str, int]) -> None:
    events = "memory.events.local"  # without those of the groups below, which are named
    if events in files or "memory.events" in files:
        found = _read_pairs(place / (events if events in files else "memory.events"))
        reached = found.get("max", 0) + found.get("high", 0)
        if reached:
            counts["memory"] = reached
            counts["killed"] = found.get("oom_kill", 0)
            texts = [read_text(place / f"memory.{name}").strip() for name in ("high", "max")]
            limits["memory"] = min((int(t) for t in texts if _is_count(t)), default=0)
            _read_refaults(place, counts)
    if "io.max" in files:
        done = {words[0]: words[1:] for words in map(str.split, _lines(place / "io.stat")) if words}
        # io.stat's names of what io.max limits.
        stat = {"rbps": "rbytes", "wbps": "wbytes", "riops": "rios", "wiops": "wios"}
        for disk, *settings in filter(None, map(str.split, _lines(place / "io.max"))):
            for rate, value in (word.partition("=")[::2] for word in settings):
                if _DISK.fullmatch(disk) and rate in stat and _is_count(value):
                    pairs = dict(word.partition("=")[::2] for word in done.get(disk, []))
                    limits[f"{disk} {rate}"] = int(value)
                    count = pairs.get(stat[rate], "")
                    counts[f"{disk} {rate}"] = int(count) if _is_count(count) else 0


def _read_disks_1(place: Path, counts: dict[str, int], limits: dict[str, int]) -> None:
    for rate, (file, done, direction) in _FILES_1.items():
        for words in map(str.split, _lines(place / file)):
            if len(words) == 2 and _DISK.fullmatch(words[0]) and _is_count(words[1]):
                key = f"{words[0]} {rate}"
                limits[key] = int(words[1])
                counts[key] = sum(
                    int(w[2])
                    for w in map(str.split, _lines(place / done))
                    if len(w) == 3 and w[:2] == [words[0], direction] and _is_count(w[2])
                )


def _read_refaults(place: Path, counts: dict[str, int]) -> None:
    found = _read_pairs(place / "memory.stat")
    counts["refaults"] = sum(
        value for name, value in found.items() if name.startswith("workingset_refault")
    )


def _read_pairs(file: Path) -> dict[str, int]:
    """Return the numbers of a file of names and numbers."""
    pairs = (line.split() for line in _lines(file))
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and _is_count(pair[1])}


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20


def _lines(file: Path) -> list[str]:
    return read_text(file).splitlines()
