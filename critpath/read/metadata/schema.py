"""What a CTF metadata stream describes, as both metadata parsers deliver it.

Plain data: `tsdl` (CTF 1.8) and `ctf2` (CTF 2 JSON) build it, `program` compiles it for
the native decoder.  Names follow CTF 2 ("data stream class", "event record class", "field
class").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field

from critpath.records import dataclass
from critpath.schema.environment import Environment


@dataclass(frozen=True)
class IntegerClass:
    """A fixed-length integer of 1 to 64 bits.

    ``mappings`` (enumerations, CTF 2 mappings) are (label, ((low, high), ...)).
    ``clock`` names the clock class whose value it updates.  ``roles`` are CTF 2's
    ("default-clock-timestamp", "event-record-class-id", ...); the TSDL parser
    assigns them from the names CTF 1.8 reserves (magic, uuid, stream_id,
    timestamp_begin, timestamp_end, content_size, packet_size, packet_seq_num,
    events_discarded, id, timestamp).
    """

    bits: int
    signed: bool = False
    big_endian: bool = False
    align: int = 1
    base: int = 10
    text: bool = False  # CTF 1.8 encoding UTF8/ASCII: an array of these is a string
    mappings: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()
    clock: str = ""
    roles: frozenset[str] = frozenset()
    bit_reversed: bool = False  # CTF 2 bit-order against the byte order


@dataclass(frozen=True)
class VarintClass:
    """A variable-length (LEB128) integer; CTF 2 only."""

    signed: bool = False
    base: int = 10
    mappings: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()
    clock: str = ""
    roles: frozenset[str] = frozenset()


@dataclass(frozen=True)
class FloatClass:
    """An IEEE 754 number of 16, 32, 64 or 128 bits."""

    bits: int
    big_endian: bool = False
    align: int = 1
    bit_reversed: bool = False


@dataclass(frozen=True)
class StringClass:
    """A null-terminated string; ``encoding`` as CTF 2 spells it."""

    encoding: str = "utf-8"


@dataclass(frozen=True)
class TextClass:
    """A string or blob of fixed or dynamic length in *bytes*.

    ``length`` is the number of bytes, or the path of the field that holds it.
    """

    length: int | tuple[str, ...]
    blob: bool = False
    encoding: str = "utf-8"
    roles: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ArrayClass:
    """An array of ``length`` elements, or of the length in the field at that path."""

    element: FieldClass
    length: int | tuple[str, ...]
    align: int = 1
    roles: frozenset[str] = frozenset()  # CTF 1.8 uuid[16] in the packet header


@dataclass(frozen=True)
class Option:
    """One alternative of a variant (or the content of a CTF 2 optional)."""

    name: str
    ranges: tuple[tuple[int, int], ...]
    field: FieldClass


@dataclass(frozen=True)
class VariantClass:
    """A choice by the value of the integer or enumeration at path ``selector``.

    An optional is a variant whose ``optional`` is True and which has one option;
    with no ranges in its option the selector is a boolean.
    """

    selector: tuple[str, ...]
    options: tuple[Option, ...]
    optional: bool = False


@dataclass(frozen=True)
class Member:
    """A named member of a structure."""

    name: str
    field: FieldClass


@dataclass(frozen=True)
class StructureClass:
    """Members one after the other."""

    members: tuple[Member, ...] = ()
    align: int = 1


FieldClass = (
    IntegerClass
    | VarintClass
    | FloatClass
    | StringClass
    | TextClass
    | ArrayClass
    | VariantClass
    | StructureClass
)

FieldPath = tuple[str, ...]

# A path names a scope first ("packet-header", "packet-context", "event-header",
# "event-common-context", "event-specific-context", "event-payload"), then members.
SCOPES = (
    "packet-header",
    "packet-context",
    "event-header",
    "event-common-context",
    "event-specific-context",
    "event-payload",
)


@dataclass(frozen=True)
class ClockClass:
    """A clock: ``offset`` is in its own cycles, ``offset_seconds`` in seconds."""

    name: str
    frequency: int = 1_000_000_000
    offset_seconds: int = 0
    offset: int = 0
    uuid: str = ""
    absolute: bool = False
    description: str = ""


@dataclass(frozen=True)
class EventRecordClass:
    """One event class of a stream."""

    name: str
    id: int
    context: StructureClass | None = None
    payload: StructureClass | None = None


@dataclass(frozen=True)
class StreamClass:
    """A data stream class: what its packets and event records look like."""

    id: int
    packet_context: StructureClass | None = None
    event_header: StructureClass | None = None
    event_context: StructureClass | None = None
    events: Mapping[int, EventRecordClass] = field(default_factory=dict)
    clock: str = ""


@dataclass(frozen=True)
class TraceClass:
    """The metadata of one trace."""

    packet_header: StructureClass | None = None
    streams: Mapping[int, StreamClass] = field(default_factory=dict)
    clocks: Mapping[str, ClockClass] = field(default_factory=dict)
    environment: Environment = Environment()
    uuid: str = ""
    big_endian: bool = False
    version: tuple[int, int] = (1, 8)
    warnings: tuple[str, ...] = ()


class LazyEventClasses(Mapping[int, EventRecordClass]):
    """Event classes by id, parsed when first asked for.

    Parameters
    ----------
    names : mapping of int to str
        Every event's name by its id, in the order of the metadata.
    parsed : mapping of int to EventRecordClass
        Classes parsed already: at least those whose fields may depend on headers.
    parse : callable
        Makes the class of any other id; raises `MetadataError` if its text is malformed.
    warnings : mapping of str to None
        Warnings about the text parsed so far; it may grow.
    """

    __slots__ = ("_parse", "_parsed", "eager", "names", "warnings")

    def __init__(
        self,
        names: Mapping[int, str],
        parsed: Mapping[int, EventRecordClass],
        parse: Callable[[int], EventRecordClass],
        warnings: Mapping[str, None],
    ) -> None:
        self.names = names
        self.eager = tuple(parsed.values())
        self.warnings = warnings
        self._parsed = dict(parsed)
        self._parse = parse

    def __getitem__(self, number: int) -> EventRecordClass:
        event = self._parsed.get(number)
        if event is None:
            if number not in self.names:
                raise KeyError(number)
            event = self._parsed[number] = self._parse(number)
        return event

    def __iter__(self) -> Iterator[int]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, number: object) -> bool:
        return number in self.names


def get_event_names(events: Mapping[int, EventRecordClass]) -> Mapping[int, str]:
    """Return the name of every event by its id, without parsing any."""
    if isinstance(events, LazyEventClasses):
        return events.names
    return {number: event.name for number, event in events.items()}


def get_eager_events(events: Mapping[int, EventRecordClass]) -> tuple[EventRecordClass, ...]:
    """Return the events whose fields may depend on fields of the headers."""
    return events.eager if isinstance(events, LazyEventClasses) else tuple(events.values())


def get_parse_warnings(events: Mapping[int, EventRecordClass]) -> tuple[str, ...]:
    """Return warnings about the events that have been parsed."""
    return tuple(events.warnings) if isinstance(events, LazyEventClasses) else ()
