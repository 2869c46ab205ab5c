"""Runs and requests as they end: for slow ones, and for ``critpath top``."""

from __future__ import annotations

import contextlib
import re
import struct
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote

from critpath.errors import CritpathError
from critpath.units import safe_text
from critpath_record.flight._requests import Requests, time_of
from critpath_record.flight.kinds import Kinds
from critpath_record.flight.pages import has_missed, page_time
from critpath_record.ftrace.formats import EventFormat, parse_format
from critpath_record.ftrace.tracefs import Instance

MARKER, PROCESS = "marker", "process"

_MOST_OPEN: Final = 10_000
_MOST_SAMPLED: Final = 20_000  # requests, of the last blocks
_EVENT: Final = struct.Struct("=HBBi")  # fields of all events: number and thread
_TEXT: Final = 16  # where a mark's text begins
_COMM_BYTES: Final = 16
GROWTH: Final = 2 ** (1 / 32)  # from one bucket of a sketch to the next
_ROW: Final = 100  # bytes of a kind without its sketch, about
_MARK: Final = re.compile(rb"critpath:(begin|end) ([!-~]{1,800})(?: ([!-~]{1,800}))?", re.ASCII)


class Execution(NamedTuple):
    """A run that ended: a tuple, as there are thousands a second.

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


# What `_requests` makes of an event, and where it finds that: fields behind the bytes it needs.
_OTHER, _ARRIVAL, _RECEIVE, _SEND, _OF, _STATE, _, _FORK = range(1, 9)
_ADDRESSED: Final = ("family", "protocol")
SOCKETS: Final = {
    "sock/sk_data_ready": (_ARRIVAL, ("skaddr", *_ADDRESSED, "", "", "", "")),
    "sock/sock_recv_length": (_RECEIVE, ("sk", *_ADDRESSED, "ret", "flags", "", "")),
    "sock/sock_send_length": (_SEND, ("sk", *_ADDRESSED, "ret", "flags", "", "")),
    "tcp/tcp_rcv_space_adjust": (_OF, ("skaddr", "family", "", "", "", "sport", "dport")),
    "sock/inet_sock_set_state": (
        _STATE,
        ("skaddr", *_ADDRESSED, "oldstate", "newstate", "sport", "dport"),
    ),
}
_FORKS: Final = ("", "", "", "parent_pid", "child_pid", "", "")
_SIZES: Final = {
    **dict.fromkeys(("parent_pid", "child_pid"), 4),
    **dict.fromkeys(("skaddr", "sk"), 8),
    **dict.fromkeys(("family", "protocol", "sport", "dport"), 2),
    **dict.fromkeys(("ret", "flags", "oldstate", "newstate"), 4),
}

Format = tuple[int, int, tuple[int, ...]]


@dataclass(frozen=True)
class Formats:
    """Where the kernel writes what is looked at: numbers of events, and places of names.

    Attributes
    ----------
    mark, exec, exit : int
        0 where the kernel has none.
    comm : int
        Where a name is in what tells that a process ends.
    sockets : tuple
        What `_requests.Requests` takes of the events of sockets; nothing where one is lacking.
    """

    mark: int
    exec: int = 0
    exit: int = 0
    comm: int = 0
    sockets: tuple[Format, ...] = ()

    @classmethod
    def read(cls, instance: Instance) -> Formats:
        """Read the kernel's descriptions; without those of processes only marks are found."""

        def find(event: str) -> EventFormat:
            file = f"events/{event}/format"
            return parse_format(instance.path / file, instance.read(file))

        sockets: tuple[Format, ...] = ()
        with contextlib.suppress(CritpathError):
            sockets = tuple(
                (of.number, what, place_fields(of, names))
                for event, (what, names) in SOCKETS.items()
                for of in [find(event)]
            )
        with contextlib.suppress(CritpathError):
            of = find("sched/sched_process_fork")
            sockets += ((of.number, _FORK, place_fields(of, _FORKS)),) if sockets else ()
        mark = find("ftrace/print").number
        with contextlib.suppress(CritpathError, StopIteration):
            ended = find("sched/sched_process_exit")
            comm = next(f.offset for f in ended.fields if f.name == "comm")
            return cls(mark, find("sched/sched_process_exec").number, ended.number, comm, sockets)
        return cls(mark, sockets=sockets)

    @property
    def table(self) -> tuple[Format, ...]:
        """All events that are looked at."""
        others = (number for number in (self.mark, self.exec, self.exit) if number)
        return (*((number, _OTHER, ()) for number in others), *self.sockets)


def place_fields(of: EventFormat, names: Sequence[str]) -> tuple[int, ...]:
    """Return how long a record is at least, and where its fields are, -1 for none.

    Raises CritpathError where one is not as it was when this was written.
    """
    fields = {field.name: field for field in of.fields}
    found = []
    need = 0
    for name in names:
        field = fields.get(name)
        if name and (field is None or field.size != _SIZES[name]):
            raise CritpathError(f"the kernel's {of.name} has no {name}", "report it")
        found.append(field.offset if field else -1)
        need = max(need, found[-1] + _SIZES.get(name, 0))
    return (need, *found)


class LiveExecutions:
    """What goes on, in the order in which pages come: marks and processes in pairs, and requests.

    Parameters
    ----------
    formats : Formats
    kinds : Kinds
        What requests are called.
    """

    def __init__(self, formats: Formats, kinds: Kinds) -> None:
        self._formats = formats
        self._open: dict[tuple[str, str, str], int] = {}
        self.kinds = kinds
        self.requests = Requests(formats.table, self.kinds.find)
        self.kinds.find_parent = self.requests.find_parent
        self.requests.find_service = kinds.find_service
        self._sampled: deque[tuple[int, int, int, int, float]] = deque(maxlen=_MOST_SAMPLED)

    def add(
        self, pages: list[bytes], until: int = 0, opened: Sequence[int] = (), *, looks: bool = True
    ) -> list[Execution]:
        """Return the runs that ended in these pages, if somebody looks at them.

        With the pages all that happened until a time (ns) is known: so far requests are followed.
        Before each of `opened` nothing was recorded for a while.
        """
        self.requests.hand_on(self._formats.mark, wanted=looks)
        found = []
        steps = sorted(step for page in pages for step in self._steps(page))
        for time in opened:
            self.requests.cross_gap(time)
        self.requests.advance(until)
        if not looks:
            self.forget()
            return []
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

    def end_block(self) -> None:
        """Note which requests of the block that ends now are worth to be walked."""
        self._sampled += self.requests.take_sample()

    def list_sampled(self, since: int) -> list[tuple[str, int, int, int, float]]:
        """Return those that began since a time: kind, begin, end, thread, chance to be chosen."""
        names = self.kinds.names
        return [
            (names[kind], begin, end, tid, chance)
            for kind, begin, end, tid, chance in self._sampled
            if begin >= since
        ]

    def forget(self) -> None:
        """Forget which runs began: pages are left out from here on."""
        self._open.clear()

    def tell(self, number: int, room: int) -> dict[str, object]:
        """Return what requests there were so far, of kinds from a number on.

        A row of each: name, requests, ns, cut, resets, and its sketch: buckets and how many are in
        each (`sketch` says what a bucket is).  As many as there is room for (bytes).  Of each in
        `time`, too: ns queued, ns of which it is not known whose they were, and of each that it
        asked name, how often, and ns for which it waited.
        """
        rows: list[list[object]] = []
        times: dict[str, list[object]] = {}
        while number < len(self.kinds.names) and room > 0:
            *counts, sketch = self.requests.read_kind(number)
            if any(counts) and self.kinds.names[number]:
                rows.append([self.kinds.names[number], *counts, array("I", sketch).tolist()])
                queued, shared, _, asked = self.requests.read_time(number)
                service = self.kinds.services.get(number)
                if service is not None and self.requests.read_time(service)[2]:
                    # What was asked for them by others is known of their service as a whole.
                    shared = max(int(counts[1]) - queued - sum(ns for *_, ns in asked), 0)
                called = [[self.kinds.name_asked(kind), *of] for kind, *of in asked]
                times[self.kinds.names[number]] = [queued, shared, called]
                room -= _ROW * (1 + len(called)) + len(sketch)
            number += 1
        return {
            "requests": rows,
            "time": times,
            "next": number if number < len(self.kinds.names) else 0,
            "sketch": {"base": GROWTH, "first": time_of(-0.5)},
        }

    def _steps(self, page: bytes) -> Iterator[tuple[int, bool, str, str, str]]:
        of = self._formats
        if has_missed(page):
            yield page_time(page), False, "", "", ""
        for time, data in self.requests.add(page):
            kind, _, _, pid = _EVENT.unpack_from(data)
            if kind == of.mark:
                found = _MARK.match(data, _TEXT)
                if found is not None:
                    begins, name, key = found.groups()
                    yield time, begins == b"begin", MARKER, _word(name), _word(key) or str(pid)
                continue
            self.kinds.forget_thread(pid)
            self.requests.forget_thread(pid)
            if kind == of.exec:
                yield time, True, PROCESS, "", str(pid)
            else:
                comm = data[of.comm : of.comm + _COMM_BYTES].partition(b"\0")[0]
                yield time, False, PROCESS, safe_text(comm.decode("utf-8", "replace")), str(pid)


@lru_cache(maxsize=1024)
def _word(text: bytes | None) -> str:
    return safe_text(unquote((text or b"").decode("ascii"), errors="replace"))
