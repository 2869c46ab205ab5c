"""Counts that the kernel keeps of the machine anyway, in /proc: nothing is attached for them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from critpath.record.counts.events import handler_name

_PROC: Final = Path("/proc")
# What goes up and down is no count.
_LEVELS: Final = re.compile(
    r"nr_(?!dirtied|written)|.*(?:threshold|Estab|Default\w+|MaxConn|Rto\w+|Forwarding)$"
)

_OF_DISKS: Final = ((3, "reads"), (5, "read_sectors"), (7, "writes"), (9, "written_sectors"))


class FreeCounts:
    """Counters of /proc.

    Raises
    ------
    OSError
        If it is not mounted.
    """

    how = "free"

    def __init__(self) -> None:
        self.skipped: list[str] = []
        self.terms = sorted(_read_all())
        if not self.terms:
            raise OSError(2, "no counters in /proc")

    def read(self) -> list[list[int]]:
        """Return the counts since the machine began, by term."""
        found = _read_all()
        return [[found.get(term, 0) for term in self.terms]]

    def count_misses(self) -> int:
        """Return 0."""
        return 0

    def close(self) -> None:
        """Do nothing."""


def _read_all() -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in _counters():
        if not _LEVELS.match(name.rpartition(".")[2]):
            term = f"proc:{name}"
            found[term] = found.get(term, 0) + value
    return found


def _counters() -> Iterator[tuple[str, int]]:
    for line in _lines("vmstat"):
        name, _, value = line.partition(" ")
        yield f"vmstat.{name}", int(value)
    for line in _lines("stat"):
        words = line.split()
        if words[0] in {"ctxt", "processes"}:
            yield f"stat.{words[0]}", int(words[1])
    for line in _lines("diskstats"):
        words = line.split()
        for at, name in _OF_DISKS if len(words) > _OF_DISKS[-1][0] else ():
            yield f"disks.{name}", int(words[at])
    yield from _of_networks()
    yield from _of_interrupts()


def _of_networks() -> Iterator[tuple[str, int]]:
    for file in ("net/snmp", "net/netstat"):
        lines = _lines(file)
        for head, counted in zip(lines[::2], lines[1::2], strict=False):
            kind, *columns = head.split()
            for column, value in zip(columns, counted.split()[1:], strict=False):
                if value.isdecimal():
                    yield f"{kind.rstrip(':')}.{column}", int(value)


def _of_interrupts() -> Iterator[tuple[str, int]]:
    for line in _lines("softirqs")[1:]:
        name, *values = line.split()
        yield f"softirqs.{name.rstrip(':')}", sum(map(int, values))
    interrupts = _lines("interrupts")
    cpus = len(interrupts[0].split()) if interrupts else 0
    for line in interrupts[1:]:
        name, _, rest = line.strip().partition(":")
        values = [word for word in rest.split()[:cpus] if word.isdecimal()]
        called = handler_name(rest) if name.isdecimal() else name
        yield f"interrupts.{called}", sum(map(int, values))


def _lines(name: str) -> list[str]:
    with contextlib.suppress(OSError):
        return (_PROC / name).read_text(encoding="ascii", errors="replace").splitlines()
    return []
