"""What readers deliver: the events of a recording, as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from critpath.model.gaps import Gaps
from critpath.model.recording import StreamFacts
from critpath.model.table import I32, I64, Column, Table, freeze_columns
from critpath.records import dataclass
from critpath.schema.environment import Environment
from critpath.schema.kinds import Kind

if TYPE_CHECKING:
    from critpath.model.clocks import HostClock
    from critpath.schema.notes import Remark

_BOUND: Final = 2**62  # technical


@dataclass(frozen=True)
class EventRequest:
    """One class of events to decode, and the fields of it, in the order wanted.

    Attributes
    ----------
    kind : Kind
        What the event means.
    names : tuple of str
        Spellings of the event's name; ``fnmatch`` patterns (``syscall_entry_*``).
    fields : tuple of tuple of str
        For each field wanted its alternative spellings, without LTTng's leading
        underscore; dots lead into structures and variants
        (``network_header.transport_header.seq``).  Looked up in the payload, then
        the event's own context, the stream's event context, the packet context.
        ``("*",)`` as the only entry asks for every scalar field and context.
    """

    kind: Kind
    names: tuple[str, ...]
    fields: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class EventClass:
    """One event class as found in a trace, with the fields that were decoded.

    Attributes
    ----------
    name : str
        Name as the tracer spells it.
    kind : Kind
        What it means.
    fields : tuple of str
        First spelling of each field wanted (or the field's own dotted name for
        ``*``), in the order of ``Events.values``.
    types : tuple of str
        ``int``, ``uint``, ``float``, ``str`` or ``absent`` for each field.  In
        ``Events.values`` a ``uint`` and a ``float`` are the same 64 bits seen as
        int64, a ``str`` is a code into ``Events.strings``, an ``absent`` one is 0.
    domain : str
        ``kernel``, ``ust`` or whatever the trace's env says.
    host : int
        Index into ``Events.hosts``.
    """

    name: str
    kind: Kind
    fields: tuple[str, ...]
    types: tuple[str, ...]
    domain: str = "kernel"
    host: int = 0


@dataclass(frozen=True)
class Loss:
    """Events or packets that the tracer or the reader lost, placed in time.

    Attributes
    ----------
    begin, end : int
        The time range in which something is missing (ns); equal to the ends of
        the recording where it is unknown.
    host, cpu : int
        Where; cpu -1 where a stream does not belong to one cpu.
    events : int
        Number of events lost, 0 if unknown (a lost or damaged packet).
    packets : int
        Number of packets lost or damaged.
    reason : str
        ``discarded``, ``packets lost``, ``damaged`` (with the file and offset),
        ``truncated``, ``contradiction``, ``stream missing``.
    """

    begin: int
    end: int
    host: int
    cpu: int
    events: int
    packets: int
    reason: str

    def saved(self) -> dict[str, int | str]:
        """Return it as files have it: a packet may say any time and any count.

        Whoever reads them holds times and counts to below 2**62, within which no difference
        overflows.
        """
        return {
            name: max(-_BOUND, min(value, _BOUND - 1)) if isinstance(value, int) else value
            for name, value in asdict(self).items()
        }


@dataclass(frozen=True)
class Clock:
    """The clock that timestamps count.

    Attributes
    ----------
    name, uuid : str
        As in the metadata ("" where absent).
    frequency : int
        Ticks per second of the raw clock; timestamps are already nanoseconds.
    epoch : int
        Nanoseconds to add to a timestamp to get time since the Unix epoch, 0
        where the clock is not absolute or the offset unknown.
    """

    name: str = ""
    uuid: str = ""
    frequency: int = 1_000_000_000
    epoch: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class EventChunk:
    """The next events of a recording that is read as a stream.

    The columns are those of `Events`, for some thousand events; they lie in buffers
    that are used again, and hold until the next chunk is asked for.

    Attributes
    ----------
    timestamp : int64 [n]
    cpu : int32 [n]
    event_class : int32 [n]
        Index into the stream's classes as known now.
    offset : int64 [n]
        Where the event's fields start in ``values``.
    values : int64 [m]
        ``str`` fields are codes of the stream's strings.
    """

    timestamp: I64
    cpu: I32
    event_class: I32
    offset: I64
    values: I64

    def __len__(self) -> int:
        return len(self.timestamp)


@dataclass(frozen=True, eq=False)
class Aside:
    """Events that are kept elsewhere, too many to be in memory together.

    Attributes
    ----------
    position : int64 [n]
        In the recording, of each of the events that are in memory.
    parts : sequence of callables
        In order of time.  Each returns the columns of some events: position in the recording,
        timestamp, event_class, cpu, offset, values, current.
    """

    position: I64
    parts: tuple[Callable[[], tuple[np.ndarray[Any, Any], ...]], ...]


@dataclass(frozen=True, eq=False)
class Events(Table):
    """The events of one recording that were asked for, in order of time.

    Attributes
    ----------
    timestamp : int64 [n]
        Nanoseconds, non-decreasing.
    cpu : int32 [n]
        CPU of the event within its host, -1 if unknown.
    event_class : int32 [n]
        Index into ``classes``.
    offset : int64 [n]
        Where the event's fields start in ``values``.
    values : int64 [m]
        All fields of all events; see `EventClass.types`.
    classes : tuple of EventClass
    strings : tuple of str
    hosts : tuple of str
    losses : tuple of Loss
    clock : Clock
    begin, end : int
        Range of the recording: first and last event of *any* class in it, asked
        for or not, where the reader knows it.
    total : int
        Number of events in the recording, asked for or not.
    environment : tuple of Environment
        What every trace read says of itself; then what its manifest does, and who counts.
    streams : tuple of StreamFacts
        Every stream file that was read.
    warnings : tuple of str
        One line each: what was odd about the input and how it was read.
    clocks : tuple of HostClock
        Of several hosts, each one's against the clock that all times are of; empty for one.
    gaps : Gaps
        When some of it was not recorded.
    current : int64 [n] or None
        Where few were kept of the events that tell: the thread that had each one's cpu, -1 where
        that is unknown, -2 where it was not asked.
    aside : Aside or None
        Further events: `iter_aside`.
    """

    timestamp: I64
    cpu: I32
    event_class: I32
    offset: I64
    values: I64
    classes: tuple[EventClass, ...]
    strings: tuple[str, ...]
    hosts: tuple[str, ...] = ("",)
    losses: tuple[Loss, ...] = ()
    clock: Clock = Clock()
    begin: int = 0
    end: int = 0
    total: int = 0
    environment: tuple[Environment, ...] = ()
    streams: tuple[StreamFacts, ...] = ()
    warnings: tuple[Remark, ...] = ()
    clocks: tuple[HostClock, ...] = ()
    gaps: Gaps = field(default_factory=Gaps)
    current: I64 | None = None
    aside: Aside | None = None

    def __post_init__(self) -> None:
        freeze_columns(self, len(self.timestamp), but={"values"})
        freeze_columns(self, -1, "values")

    def hosts_of(self, rows: I64) -> I64:
        """Return the host of some events, by their positions."""
        of_class = np.array([c.host for c in self.classes] or [0], np.int64)
        return of_class[self.event_class[rows]]

    def __len__(self) -> int:
        return len(self.timestamp)

    def without_rows(self) -> Events:
        """Return what is known of the recording, without its events."""
        wide, narrow = np.zeros(0, np.int64), np.zeros(0, np.int32)
        return replace(
            self,
            timestamp=wide,
            cpu=narrow,
            event_class=narrow,
            offset=wide,
            values=wide,
            current=None,
            aside=None,
        )

    def iter_aside(self) -> Iterator[tuple[I64, Events]]:
        """Yield the events that are kept elsewhere, part by part, with their positions."""
        for fetch in self.aside.parts if self.aside else ():
            position, timestamp, event_class, cpu, offset, values, current = fetch()
            part = replace(
                self, timestamp=timestamp, event_class=event_class, cpu=cpu, offset=offset,
                values=values, current=current, aside=None,
            )  # fmt: skip
            yield position, part

    def table_columns(self) -> dict[str, Column]:
        """Return a row per event, without its fields."""
        of = [(c.name, c.kind.name, c.domain) for c in self.classes]
        names, kinds, domains = ([row[i] for row in of] or [""] for i in range(3))
        return {
            "time_ns": Column(self.timestamp),
            "cpu": Column(self.cpu, valid=self.cpu >= 0),
            "event": Column(self.event_class, names),
            "kind": Column(self.event_class, kinds),
            "domain": Column(self.event_class, domains),
            "host": Column(self.event_class, [self.hosts[c.host] for c in self.classes] or [""]),
        }

    def rows(self, name: str) -> I64:
        """Return the positions of every event of that name."""
        wanted = [i for i, c in enumerate(self.classes) if c.name == name]
        return np.flatnonzero(np.isin(self.event_class, wanted))

    def column(self, rows: I64, name: str) -> I64:
        """Return one field of some events, 0 where their class has no such field."""
        result = np.zeros(len(rows), np.int64)
        of_row = self.event_class[rows]
        for index, event_class in enumerate(self.classes):
            if name in event_class.fields:
                mine = of_row == index
                place = self.offset[rows[mine]] + event_class.fields.index(name)
                result[mine] = self.values[place]
        return result
