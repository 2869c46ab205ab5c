"""Parses a whole TSDL text (CTF 1.8 metadata) into a `TraceClass`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import partial
from threading import RLock

from critpath.errors import MetadataError
from critpath.read.event_classes import EventClasses
from critpath.read.records import replace
from critpath.read.schema import (
    ArrayClass,
    ClockClass,
    EventRecordClass,
    FieldClass,
    StreamClass,
    StructureClass,
    TraceClass,
    VariantClass,
)
from critpath.read.tsdl_blocks import Block, Blocks, Plain
from critpath.read.tsdl_cursor import Shape
from critpath.read.tsdl_lexer import SyntaxFault
from critpath.read.tsdl_resolve import Resolver, assign_roles

_SIGNATURE = re.compile(r"\s*+/\*\s*+CTF\s++([0-9]++)\.([0-9]++)\s*+\*/")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

# All events together, every named type written out.
_MAX_TOTAL_WEIGHT = 5_000_000

# Text this short is parsed whole, so that every fault in it is found.  Beyond, an event
# is parsed when it is asked for: a kernel has thousands that a recording never holds.
_WHOLE = 32768

# What the field names in ``[length]`` and ``<selector>`` begin with.
_REFERENCE = re.compile(r"[\[<]\s*([A-Za-z_]\w*)")
_MAPS = re.compile(r"\bmap\b")
_FAR = frozenset(("trace", "stream", "event", "packet", "env"))


def parse_tsdl(text: str, file: str = "metadata") -> TraceClass:
    """Parse TSDL text.

    Parameters
    ----------
    text : str
        The metadata without packet headers.
    file : str
        Its name, for the `MetadataError` of an event that is parsed later.

    Returns
    -------
    TraceClass

    Raises
    ------
    SyntaxFault
        With the line, if the text is not well-formed CTF 1.8 metadata.
    """
    signature = _SIGNATURE.match(text[:4096])
    if signature is not None and signature.groups() != ("1", "8"):
        version = ".".join(number[:20] for number in signature.groups())
        raise SyntaxFault(f"CTF {version} is no version that TSDL describes", 1)
    plain: list[Plain] = []
    if len(text) > _WHOLE and text.isascii():
        from critpath.read._scan import plain_events  # noqa: PLC0415 - short texts do without

        plain = plain_events(text)
    blocks = Blocks(text, plain)
    blocks.parse()
    return _Assembler(blocks, file).trace()


class _Assembler:
    def __init__(self, blocks: Blocks, file: str) -> None:
        self.blocks = blocks
        self.tokens = blocks.tokens
        self.types = blocks.types
        self.file = file
        self.lock = RLock()
        self.weight = 0
        self.resolver = Resolver(blocks.environment, self._fault_at)

    def trace(self) -> TraceClass:
        blocks = self.blocks.found["trace"]
        if len(blocks) != 1:
            at = blocks[1].at if blocks else self.types.at
            raise self.tokens.fault(at, "not one 'trace' block")
        trace = blocks[0]
        version = (self._number(trace, "major", 1), self._number(trace, "minor", 8))
        if version != (1, 8):
            raise self.tokens.fault(trace.at, f"CTF {version[0]}.{version[1]} is not 1.8")
        clocks = self._clocks()
        default = next(iter(clocks)) if len(clocks) == 1 else ""
        header = self._scope("packet-header", trace.types.get("packet.header"), {}, default)
        streams: dict[int, StreamClass] = {}
        for block in self.blocks.found["stream"]:
            number = self._number(block, "id", 0)
            if number in streams:
                raise self.tokens.fault(block.at, f"stream {number} is described twice")
            streams[number] = self._stream(block, number, header, default)
        self._events(streams, header, default)
        self._check_clocks(clocks, {stream.clock for stream in streams.values()})
        return TraceClass(
            header,
            streams,
            clocks,
            self.blocks.environment,
            self._uuid(trace),
            self.blocks.big_endian,
            warnings=tuple(self.types.warnings),
        )

    def _number(self, block: Block, key: str, default: int, least: int = 0) -> int:
        entry = block.values.get(key)
        if entry is None:
            return default
        if entry.number is None or not least <= entry.number < 1 << 64:
            raise block.tokens.fault(entry.at, f"{key!r} is {entry.value[:40]!r}, no such number")
        return entry.number

    def _uuid(self, block: Block) -> str:
        entry = block.values.get("uuid")
        if entry is None:
            return ""
        if not entry.is_string or _UUID.fullmatch(entry.value) is None:
            raise self.tokens.fault(entry.at, f"{entry.value[:40]!r} is no UUID")
        return entry.value.lower()

    def _clocks(self) -> dict[str, ClockClass]:
        clocks: dict[str, ClockClass] = {}
        for block in self.blocks.found["clock"]:
            name = block.values.get("name")
            if name is None:
                raise self.tokens.fault(block.at, "a clock without a name")
            if name.value in clocks:
                raise self.tokens.fault(block.at, f"clock {name.value!r} is described twice")
            absolute = block.values.get("absolute")
            description = block.values.get("description")
            clocks[name.value] = ClockClass(
                name.value,
                self._number(block, "freq", 1_000_000_000, 1),
                self._number(block, "offset_s", 0, -(1 << 63)),
                self._number(block, "offset", 0, -(1 << 63)),
                self._uuid(block),
                absolute is not None and absolute.value.lower() in {"true", "1"},
                description.value if description is not None else "",
            )
        return clocks

    def _stream(
        self, block: Block, number: int, header: StructureClass | None, default: str
    ) -> StreamClass:
        scopes = {"packet-header": header}
        for key, scope in (
            ("packet.context", "packet-context"),
            ("event.header", "event-header"),
            ("event.context", "event-common-context"),
        ):
            scopes[scope] = self._scope(scope, block.types.get(key), scopes, default)
        clock = _clock_of(scopes["event-header"]) or _clock_of(scopes["packet-context"])
        return StreamClass(
            number,
            scopes["packet-context"],
            scopes["event-header"],
            scopes["event-common-context"],
            clock=clock or default,
        )

    def _events(
        self, streams: dict[int, StreamClass], header: StructureClass | None, default: str
    ) -> None:
        """Put the events into their streams."""
        events = self._whole_events(streams, header, default)
        blocks: dict[int, dict[int, Plain]] = {}
        near = _FAR.union(*(_names_in(s) for s in (header, *_headers(streams))))
        for plain in self.blocks.plain:
            _, _, _, number, stream, refers, _ = plain
            if stream not in streams and streams:
                raise self.blocks.fault(plain, f"an event of stream {stream}, which is missing")
            later = blocks.setdefault(stream, {})
            if number in later or number in events.get(stream, {}):
                raise self.blocks.fault(plain, f"event {number} of stream {stream} comes twice")
            later[number] = plain
            if refers and self._reaches(plain, near):
                events.setdefault(stream, {})[number] = self._plain_event(
                    plain, header, streams.get(stream, StreamClass(stream)), default
                )
        for stream in {**events, **blocks}:
            of = streams.get(stream, StreamClass(stream))
            records, later = events.get(stream, {}), blocks.get(stream, {})
            if not later:
                streams[stream] = replace(of, events=records)
                continue
            names = {n: r.name for n, r in records.items()} | {n: p[2] for n, p in later.items()}
            parse = partial(self._later, later, header, of, default)
            streams[stream] = replace(
                of, events=EventClasses(names, records, parse, self.types.warnings)
            )

    def _whole_events(
        self, streams: dict[int, StreamClass], header: StructureClass | None, default: str
    ) -> dict[int, dict[int, EventRecordClass]]:
        """Return the events that were parsed with everything else."""
        events: dict[int, dict[int, EventRecordClass]] = {}
        only = next(iter(streams), 0) if len(streams) <= 1 else None
        for block in self.blocks.found["event"]:
            if only is None and "stream_id" not in block.values:
                raise self.tokens.fault(block.at, "an event that does not say of which stream")
            stream = self._number(block, "stream_id", only or 0)
            number = self._number(block, "id", 0)
            if stream not in streams and streams:
                raise self.tokens.fault(block.at, f"an event of stream {stream}, which is missing")
            records = events.setdefault(stream, {})
            if number in records:
                raise self.tokens.fault(block.at, f"event {number} of stream {stream} comes twice")
            of = streams.get(stream, StreamClass(stream))
            records[number] = self._event(block, number, header, of, default)
        return events

    def _reaches(self, plain: Plain, near: frozenset[str]) -> bool:
        """Tell whether an event may need more than itself and types with names."""
        begin, end, *_ = plain
        return (
            any(m[1] in near for m in _REFERENCE.finditer(self.blocks.text, begin, end))
            or _MAPS.search(self.blocks.text, begin, end) is not None
        )

    def _plain_event(
        self, plain: Plain, header: StructureClass | None, stream: StreamClass, default: str
    ) -> EventRecordClass:
        """Parse a block that was left out."""
        return self._event(self.blocks.event(plain), plain[3], header, stream, default)

    def _later(
        self,
        blocks: Mapping[int, Plain],
        header: StructureClass | None,
        stream: StreamClass,
        default: str,
        number: int,
    ) -> EventRecordClass:
        """Parse an event that is asked for after everything else."""
        try:
            with self.lock:
                return self._plain_event(blocks[number], header, stream, default)
        except SyntaxFault as fault:
            raise MetadataError(fault.message, self.file, fault.line) from None

    def _event(
        self,
        block: Block,
        number: int,
        header: StructureClass | None,
        stream: StreamClass,
        default: str,
    ) -> EventRecordClass:
        scopes: dict[str, StructureClass | None] = {
            "packet-header": header,
            "packet-context": stream.packet_context,
            "event-header": stream.event_header,
            "event-common-context": stream.event_context,
        }
        name = block.values.get("name")
        context = self._scope("event-specific-context", block.types.get("context"), scopes, default)
        scopes["event-specific-context"] = context
        payload = self._scope("event-payload", block.types.get("fields"), scopes, default)
        return EventRecordClass(name.value if name is not None else "", number, context, payload)

    def _scope(
        self,
        scope: str,
        shape: Shape | None,
        scopes: dict[str, StructureClass | None],
        default: str,
    ) -> StructureClass | None:
        if shape is None:
            return None
        structure = shape.field
        assert isinstance(structure, StructureClass)  # noqa: S101 -- _block() has checked it
        self.weight += shape.weight
        if self.weight > _MAX_TOTAL_WEIGHT:
            raise self.blocks.inner.fault(f"more than {_MAX_TOTAL_WEIGHT} fields")
        if shape.open:
            structure = self.resolver.resolve(scope, structure, scopes)
        if scope in {"packet-header", "packet-context", "event-header"}:
            structure = assign_roles(scope, structure, default)
        return structure

    def _fault_at(self, of: FieldClass, message: str) -> SyntaxFault:
        for types in (self.blocks.inner, self.types):
            place = types.places.get(id(of))
            if place is not None:
                return types.fault(message, place[1])
        return self.blocks.inner.fault(message)

    def _check_clocks(self, clocks: dict[str, ClockClass], counted: Collection[str]) -> None:
        """Describe clocks that are not; ``counted`` are those of packets and events."""
        described = bool(clocks)
        for name in sorted(self.types.leaves.clocks - clocks.keys()):
            if described and name in counted:
                # Whether one of the others is meant nobody knows: a guess would put events
                # at another time.
                raise self.blocks.inner.fault(f"clock {name[:40]!r} is not among those described")
            clocks[name] = ClockClass(name)
            self.types.warnings[f"clock {name!r} is not described: 1 GHz assumed"] = None


def _headers(streams: Mapping[int, StreamClass]) -> list[StructureClass | None]:
    """Return the scopes that stand before an event's own."""
    found: list[StructureClass | None] = []
    for stream in streams.values():
        found += [stream.packet_context, stream.event_header, stream.event_context]
    return found


def _names_in(structure: StructureClass | None) -> set[str]:
    """Return the names of all fields of a scope, at any depth."""
    found: set[str] = set()
    waiting: list[FieldClass] = [structure] if structure is not None else []
    while waiting:
        of = waiting.pop()
        match of:
            case StructureClass():
                found.update(member.name for member in of.members)
                waiting.extend(member.field for member in of.members)
            case VariantClass():
                found.update(option.name for option in of.options)
                waiting.extend(option.field for option in of.options)
            case ArrayClass():
                waiting.append(of.element)
    return found


def _clock_of(structure: StructureClass | None) -> str:
    """Return the clock of the first timestamp of a scope, at any depth."""
    waiting: list[FieldClass] = [structure] if structure is not None else []
    while waiting:
        of = waiting.pop()
        match of:
            case StructureClass():
                waiting.extend(member.field for member in reversed(of.members))
            case VariantClass():
                waiting.extend(option.field for option in reversed(of.options))
            case _:
                if getattr(of, "clock", ""):
                    return str(getattr(of, "clock", ""))
    return ""
