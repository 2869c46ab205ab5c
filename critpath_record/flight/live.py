"""Executions as they end, by marks and by processes: for slow ones, and for ``critpath top``."""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote

from critpath.errors import CritpathError
from critpath.units import safe_text
from critpath_record.flight.pages import has_missed, page_time
from critpath_record.ftrace._pages import list_records
from critpath_record.ftrace.tracefs import Instance

MARKER, PROCESS = "marker", "process"

_MOST_OPEN: Final = 10_000
_EVENT: Final = struct.Struct("=HBBi")  # fields of all events: number and thread
_TEXT: Final = 16  # where a mark's text begins
_ID: Final = re.compile(r"^ID: (\d+)$", re.MULTILINE)
_COMM: Final = re.compile(r"field:char comm\[16\];\s*offset:(\d+);")
_COMM_BYTES: Final = 16
_MARK: Final = re.compile(rb"critpath:(begin|end) ([!-~]{1,800})(?: ([!-~]{1,800}))?", re.ASCII)


class Execution(NamedTuple):
    """An execution that ended: a tuple, as there are thousands a second.

    Attributes
    ----------
    what : str
        `MARKER` or `PROCESS`.
    kind, id : str
        Name and key of a mark, or name and number of a process.
    begin, end : int
        ns.
    """

    what: str
    kind: str
    id: str
    begin: int
    end: int


@dataclass(frozen=True)
class Formats:
    """Where the kernel writes what is looked at: numbers of events, and places of names."""

    mark: int
    exec: int = 0
    exit: int = 0
    comm: int = 0

    @classmethod
    def read(cls, instance: Instance) -> Formats:
        """Read the kernel's descriptions; without those of processes only marks are found."""

        def number(text: str) -> int:
            found = _ID.search(text)
            return int(found[1]) if found else 0

        mark = number(instance.read("events/ftrace/print/format"))
        with contextlib.suppress(CritpathError):
            ended = instance.read("events/sched/sched_process_exit/format")
            comm = _COMM.search(ended)
            begun = number(instance.read("events/sched/sched_process_exec/format"))
            return cls(mark, begun, number(ended), int(comm[1])) if comm else cls(mark)
        return cls(mark)


class LiveExecutions:
    """Pairs of begins and ends, in the order in which pages come."""

    def __init__(self, formats: Formats) -> None:
        self._formats = formats
        self._open: dict[tuple[str, str, str], int] = {}

    def add(self, pages: list[bytes]) -> list[Execution]:
        """Return the executions that ended in these pages."""
        found = []
        steps = sorted(step for page in pages for step in self._steps(page))
        for time, begins, what, kind, key in steps:
            if not what:
                self.forget()  # the end of what is open may be among what was lost
                continue
            # The name of a process is known when it ends.
            place = (what, kind if what == MARKER else "", key)
            if begins:
                if len(self._open) >= _MOST_OPEN:
                    del self._open[next(iter(self._open))]
                self._open[place] = time
            elif (begin := self._open.pop(place, None)) is not None and begin <= time:
                found.append(Execution(what, kind, key, begin, time))
        return found

    def forget(self) -> None:
        """Forget what began: pages are left out from here on."""
        self._open.clear()

    def _steps(self, page: bytes) -> Iterator[tuple[int, bool, str, str, str]]:
        of = self._formats
        if has_missed(page):
            yield page_time(page), False, "", "", ""
        for time, data in list_records(page):
            if len(data) < _EVENT.size:
                continue
            kind, _, _, pid = _EVENT.unpack_from(data)
            if kind == of.mark:
                found = _MARK.match(data, _TEXT)
                if found is not None:
                    begins, name, key = found.groups()
                    yield time, begins == b"begin", MARKER, _word(name), _word(key) or str(pid)
            elif of.exec and kind == of.exec:
                yield time, True, PROCESS, "", str(pid)
            elif of.exec and kind == of.exit:
                comm = data[of.comm : of.comm + _COMM_BYTES].partition(b"\0")[0]
                yield time, False, PROCESS, safe_text(comm.decode("utf-8", "replace")), str(pid)


@lru_cache(maxsize=1024)
def _word(text: bytes | None) -> str:
    return safe_text(unquote((text or b"").decode("ascii"), errors="replace"))
