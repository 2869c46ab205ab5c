"""Parses a whole TSDL text (CTF 1.8 metadata) into a `TraceClass`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from threading import RLock
from typing import TypeGuard

from critpath.errors import MetadataError
from critpath.read.metadata.lexer import DeclaredType, SyntaxFault, Tokens
from critpath.read.metadata.schema import (
    SCOPES,
    ArrayClass,
    ClockClass,
    EventRecordClass,
    FieldClass,
    IntegerClass,
    LazyEventClasses,
    Member,
    Option,
    StreamClass,
    StructureClass,
    TraceClass,
    VariantClass,
)
from critpath.read.metadata.tsdl_types import (
    Attribute,
    Attributes,
    TypeParser,
    parse_byte_order,
    read_key,
    read_value,
)
from critpath.schema.environment import read_environment

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
    """Parse TSDL text."""
    signature = _SIGNATURE.match(text[:4096])
    if signature is not None and signature.groups() != ("1", "8"):
        version = ".".join(number[:20] for number in signature.groups())
        raise SyntaxFault(f"CTF {version} is no version that TSDL describes", 1)
    plain: list[RawEvent] = []
    if len(text) > _WHOLE and text.isascii():
        from critpath.read._scan import plain_events  # noqa: PLC0415 - short texts do without

        plain = plain_events(text)
    blocks = TsdlDocument(text, plain)
    blocks.parse()
    return _Assembler(blocks, file).trace()


class _Assembler:
    def __init__(self, blocks: TsdlDocument, file: str) -> None:
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
            read_environment(self.blocks.environment),
            self._uuid(trace),
            self.blocks.big_endian,
            warnings=tuple(self.types.warnings),
        )

    def _number(self, block: TsdlBlock, key: str, default: int, least: int = 0) -> int:
        entry = block.values.get(key)
        if entry is None:
            return default
        if entry.number is None or not least <= entry.number < 1 << 64:
            raise block.tokens.fault(entry.at, f"{key!r} is {entry.value[:40]!r}, no such number")
        return entry.number

    def _uuid(self, block: TsdlBlock) -> str:
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
        self, block: TsdlBlock, number: int, header: StructureClass | None, default: str
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
        blocks: dict[int, dict[int, RawEvent]] = {}
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
                of, events=LazyEventClasses(names, records, parse, self.types.warnings)
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

    def _reaches(self, plain: RawEvent, near: frozenset[str]) -> bool:
        """Return whether an event may depend on more than itself and named types."""
        begin, end, *_ = plain
        return (
            any(m[1] in near for m in _REFERENCE.finditer(self.blocks.text, begin, end))
            or _MAPS.search(self.blocks.text, begin, end) is not None
        )

    def _plain_event(
        self, plain: RawEvent, header: StructureClass | None, stream: StreamClass, default: str
    ) -> EventRecordClass:
        """Parse the block of a deferred event."""
        return self._event(self.blocks.event(plain), plain[3], header, stream, default)

    def _later(
        self,
        blocks: Mapping[int, RawEvent],
        header: StructureClass | None,
        stream: StreamClass,
        default: str,
        number: int,
    ) -> EventRecordClass:
        """Parse a deferred event when it is asked for."""
        try:
            with self.lock:
                return self._plain_event(blocks[number], header, stream, default)
        except SyntaxFault as fault:
            raise MetadataError(fault.message, self.file, fault.line) from None

    def _event(
        self,
        block: TsdlBlock,
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
        shape: DeclaredType | None,
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
        """Describe the clocks that lack it; ``counted`` are those of packets and events."""
        described = bool(clocks)
        for name in sorted(self.types.leaves.clocks - clocks.keys()):
            if described and name in counted:
                # Guessing which of the others is meant could put events at another time.
                raise self.blocks.inner.fault(f"clock {name[:40]!r} is not among those described")
            clocks[name] = ClockClass(name)
            self.types.warnings[f"clock {name!r} is not described: 1 GHz assumed"] = None


def _headers(streams: Mapping[int, StreamClass]) -> list[StructureClass | None]:
    """Return the scopes that precede an event's own."""
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


# Blocks, and the types between them.

_KNOWN = {
    "trace": frozenset(("major", "minor", "uuid", "byte_order", "packet.header")),
    "stream": frozenset(("id", "packet.context", "event.header", "event.context")),
    "event": frozenset(
        ("name", "id", "stream_id", "context", "fields", "loglevel", "model.emf.uri")
    ),
    "clock": frozenset(
        ("name", "uuid", "freq", "offset", "offset_s", "absolute", "precision", "description")
    ),
}


# As `_scan.plain_events` finds them: begin, end, name, id, stream, whether it refers, rest.
RawEvent = tuple[int, int, str, int, int, bool, int]


@dataclass
class TsdlBlock:
    """One ``trace``, ``stream``, ``event`` or ``clock`` block as written."""

    tokens: Tokens
    at: int
    values: dict[str, Attribute] = field(default_factory=dict)
    types: dict[str, DeclaredType] = field(default_factory=dict)


class TsdlDocument:
    """The blocks of a text in order, and what its types are called.

    Parameters
    ----------
    text : str
    plain : list of Plain
        Events to leave out, for `event` to parse later.
    """

    def __init__(self, text: str, plain: list[RawEvent]) -> None:
        self.text = text
        self.plain = plain
        self.tokens = tokens = Tokens(text, cuts=[(begin, end) for begin, end, *_ in plain])
        self.words = tokens.words
        big_endian = self._find_byte_order()
        self.types = self.inner = TypeParser(tokens, big_endian=big_endian)
        self.big_endian = big_endian
        self.found: dict[str, list[TsdlBlock]] = {
            "trace": [],
            "stream": [],
            "event": [],
            "clock": [],
        }
        self.environment: dict[str, str | int] = {}

    def _find_byte_order(self) -> bool:
        """Look for the trace's byte order, which types before it depend on."""
        words = self.words
        at = -1
        while True:
            try:
                at = words.index("trace", at + 1)
            except ValueError:
                raise self.tokens.fault(len(words) - 1, "no 'trace' block") from None
            if words[at + 1] == "{":
                break
        start = at
        depth = 0
        while words[at]:
            if words[at] == "{":
                depth += 1
            elif words[at] == "}":
                depth -= 1
                if depth == 0:
                    break
            elif depth == 1 and words[at] == "byte_order" and words[at + 1] == "=":
                entry, _ = read_value(self.tokens, "byte_order", at + 2)
                return parse_byte_order(self.tokens, entry)
            at += 1
        if not words[at]:
            raise self.tokens.fault(at, "the 'trace' block does not end")
        raise self.tokens.fault(start, "the trace has no 'byte_order'")

    # Blocks.

    def parse(self) -> None:
        """Parse the text."""
        types = self.types
        words = self.words
        while words[types.at]:
            word = words[types.at]
            if word == ";":
                types.at += 1
            elif word in {"env", "callsite"}:
                attributes = self._attributes(word)
                if word == "env":
                    for entry in attributes.entries:
                        value = entry.value if entry.number is None else entry.number
                        self.environment[entry.key] = value
            elif word == "clock":
                block = TsdlBlock(self.tokens, types.at)
                for entry in self._attributes(word).entries:
                    self._add(word, block, entry.key, entry)
                self.found[word].append(block)
            elif word in self.found:
                self.found[word].append(self._block(word, types))
            elif not types.declaration():
                types.type()
                types.expect(";")

    def _attributes(self, word: str) -> Attributes:
        types = self.types
        attributes, types.at = Attributes.parse(self.tokens, types.at + 1, word)
        types.expect(";")
        return attributes

    def _block(self, kind: str, types: TypeParser) -> TsdlBlock:
        tokens = types.tokens
        words = types.words
        block = TsdlBlock(tokens, types.at)
        types.at += 1
        types.expect("{")
        types.push_scope()
        while words[types.at] != "}":
            if types.declaration():
                continue
            start = types.at
            key, types.at = read_key(tokens, start)
            if words[types.at] == "=":
                entry, types.at = read_value(tokens, key, types.at + 1)
                self._add(kind, block, key, entry)
            else:
                types.expect(":=")
                shape = types.type()
                types.expect(";")
                if key in block.types:
                    raise tokens.fault(start, f"{key!r} is given twice")
                if key not in _KNOWN[kind]:
                    types.warnings[f"unknown {key!r} of {kind!r} ignored"] = None
                elif not isinstance(shape.field, StructureClass):
                    raise tokens.fault(start, f"{key!r} is no structure")
                else:
                    block.types[key] = shape
        types.pop_scope()
        types.at += 1
        types.expect(";")
        return block

    def _add(self, kind: str, block: TsdlBlock, key: str, entry: Attribute) -> None:
        if key in block.values:
            raise block.tokens.fault(entry.at, f"{key!r} is given twice")
        if key not in _KNOWN[kind]:
            self.types.warnings[f"unknown attribute {key!r} of {kind!r} ignored"] = None
        block.values[key] = entry

    def event(self, plain: RawEvent) -> TsdlBlock:
        """Parse a deferred event."""
        from critpath.read._scan import plain_fields  # noqa: PLC0415 - short texts do without

        fields = plain_fields(self.text, plain[6], plain[1])
        shape = None if fields is None else self.types.plain_structure(fields)
        if shape is not None:
            return TsdlBlock(
                self.tokens,
                self.types.at,
                {"name": Attribute("name", plain[2], True, None, self.types.at)},
                {"fields": shape},
            )
        tokens = Tokens(self.text, span=plain[:2])
        self.inner = TypeParser(tokens, big_endian=self.big_endian, outer=self.types)
        return self._block("event", self.inner)

    def fault(self, plain: RawEvent, message: str) -> SyntaxFault:
        """Return the fault to raise at a deferred event."""
        return SyntaxFault(message, 1 + self.text.count("\n", 0, plain[0]))


# Resolving what sequences and variants refer to.

FieldPath = tuple[str, ...]
RangesByLabel = dict[str, tuple[tuple[int, int], ...]]

# The roles of the names that CTF 1.8 reserves (chapters 5 and 6), as CTF 2 calls them.
_ROLES: Mapping[str, Mapping[str, str]] = {
    "packet-header": {
        "magic": "packet-magic-number",
        "uuid": "metadata-stream-uuid",
        "stream_id": "data-stream-class-id",
        "stream_instance_id": "data-stream-id",
    },
    "packet-context": {
        "timestamp_begin": "default-clock-timestamp",
        "timestamp_end": "packet-end-default-clock-timestamp",
        "content_size": "packet-content-length",
        "packet_size": "packet-total-length",
        "packet_seq_num": "packet-sequence-number",
        "events_discarded": "discarded-event-record-counter-snapshot",
    },
    "event-header": {
        "id": "event-record-class-id",
        "timestamp": "default-clock-timestamp",
    },
}
_TIMES = frozenset(("default-clock-timestamp", "packet-end-default-clock-timestamp"))


def assign_roles(scope: str, structure: StructureClass, clock: str) -> StructureClass:
    """Assign roles to the fields whose names CTF 1.8 reserves.

    ``clock`` is for timestamps that map none.
    """
    roles = _ROLES.get(scope, {})

    def rewrite(structure: StructureClass, *, deep: bool) -> StructureClass:
        members = []
        for member in structure.members:
            of = member.field
            role = roles.get(member.name)
            if role is not None and isinstance(of, IntegerClass) and role != "metadata-stream-uuid":
                timed = of.clock or (clock if role in _TIMES else "")
                of = replace(of, roles=frozenset([role]), clock=timed)
            elif role == "metadata-stream-uuid" and _is_uuid(of):
                of = replace(of, roles=frozenset([role]))
            elif deep and isinstance(of, StructureClass):
                of = rewrite(of, deep=True)
            elif deep and isinstance(of, VariantClass):
                of = replace(
                    of,
                    options=tuple(
                        replace(option, field=rewrite(option.field, deep=True))
                        if isinstance(option.field, StructureClass)
                        else option
                        for option in of.options
                    ),
                )
            members.append(member if of is member.field else Member(member.name, of))
        return replace(structure, members=tuple(members))

    # In the event header, the extended id and timestamp are inside a variant.
    return rewrite(structure, deep=scope == "event-header")


def _is_uuid(of: FieldClass) -> TypeGuard[ArrayClass]:
    """Return whether a field is 16 consecutive bytes."""
    return (
        isinstance(of, ArrayClass)
        and of.length == 16
        and isinstance(of.element, IntegerClass)
        and (of.element.bits, of.element.align) == (8, 8)
    )


class Resolver:
    """Replaces the selectors in one scope's structure by absolute paths.

    ``environment`` may hold lengths; ``fault`` makes the error for a field class and a message.
    """

    def __init__(
        self,
        environment: Mapping[str, str | int],
        fault: Callable[[FieldClass, str], SyntaxFault],
    ) -> None:
        self._environment = environment
        self._fault = fault
        self._scopes: Mapping[str, StructureClass | None] = {}
        # By identity: hostile metadata may ask for the same ones any number of times.
        self._members: dict[int, tuple[StructureClass, dict[str, FieldClass]]] = {}
        self._labels: dict[int, tuple[IntegerClass, tuple[RangesByLabel, RangesByLabel]]] = {}
        # For each structure we are inside of: its path, and its members so far.
        self._frames: list[tuple[FieldPath, dict[str, FieldClass]]] = []

    def resolve(
        self,
        scope: str,
        structure: StructureClass,
        scopes: Mapping[str, StructureClass | None],
    ) -> StructureClass:
        """Resolve every selector of a structure; ``scopes`` are those decoded before it."""
        self._scopes = scopes
        self._frames = []
        return self._structure(structure, (scope,))

    def _structure(self, structure: StructureClass, path: FieldPath) -> StructureClass:
        earlier: dict[str, FieldClass] = {}
        self._frames.append((path, earlier))
        members = []
        for member in structure.members:
            of = self._field(member.field, (*path, member.name))
            earlier[member.name] = of
            members.append(member if of is member.field else Member(member.name, of))
        self._frames.pop()
        return replace(structure, members=tuple(members))

    def _field(self, of: FieldClass, path: FieldPath) -> FieldClass:
        match of:
            case StructureClass():
                return self._structure(of, path) if of.members else of
            case ArrayClass():
                return self._array(of, path)
            case VariantClass():
                return self._variant(of, path)
        return of

    def _array(self, of: ArrayClass, path: FieldPath) -> ArrayClass:
        element = self._field(of.element, path)
        length = of.length
        if not isinstance(length, int):
            if length[0] == "env":
                value = self._environment.get(".".join(length[1:]))
                if not isinstance(value, int) or value < 0:
                    raise self._fault(of, f"{'.'.join(length)!r} is no length")
                length = value
            else:
                length, target = self._find(of, length)
                if target.signed:
                    raise self._fault(of, f"the length {'.'.join(length[1:])!r} is signed")
        if element is of.element and length == of.length:
            return of
        return replace(of, element=element, length=length)

    def _variant(self, of: VariantClass, path: FieldPath) -> VariantClass:
        if not of.selector:
            raise self._fault(of, f"the variant {path[-1]!r} has no tag")
        if of.selector[0] == "env":
            raise self._fault(of, "the environment cannot select a variant's option")
        selector, target = self._find(of, of.selector)
        if not target.mappings:
            raise self._fault(of, f"the tag {'.'.join(selector[1:])!r} is no enumeration")
        ranges, bare = self._spans(target)
        options = []
        for option in of.options:
            # An option that no label selects stays, and is never decoded.
            spans = ranges.get(option.name) or bare.get(option.name.removeprefix("_"), ())
            field = self._field(option.field, (*path, option.name))
            options.append(Option(option.name, spans, field))
        return VariantClass(selector, tuple(options))

    def _spans(self, target: IntegerClass) -> tuple[RangesByLabel, RangesByLabel]:
        """Return the ranges of each label, as written and without a leading underscore.

        LTTng prefixes the names of fields with one, but not always labels.
        """
        known = self._labels.get(id(target))
        if known is None:
            bare = {label.removeprefix("_"): spans for label, spans in target.mappings}
            known = self._labels[id(target)] = (target, (dict(target.mappings), bare))
        return known[1]

    def _of(self, structure: StructureClass | None) -> dict[str, FieldClass]:
        """Return the members of a structure by name."""
        if structure is None:
            return {}
        known = self._members.get(id(structure))
        if known is None:
            members = {member.name: member.field for member in structure.members}
            known = self._members[id(structure)] = (structure, members)
        return known[1]

    def _descend(self, members: Mapping[str, FieldClass], names: list[str]) -> IntegerClass | None:
        """Return the integer at a path below some members, None if there is none."""
        of = members.get(names[0])
        for name in names[1:]:
            match of:
                case StructureClass():
                    of = self._of(of).get(name)
                case VariantClass():
                    of = next((o.field for o in of.options if o.name == name), None)
                case _:
                    return None
        return of if isinstance(of, IntegerClass) else None

    def _find(self, of: FieldClass, path: FieldPath) -> tuple[FieldPath, IntegerClass]:
        """Return the absolute path and class of the integer that a selector names.

        A relative name is looked up from the innermost structure outwards, then in the scopes
        decoded earlier, the latest first (CTF 1.8, 7.3.2).
        """
        scope, *names = path
        if scope:
            for prefix, earlier in reversed(self._frames):
                if path[: len(prefix)] == prefix and len(path) > len(prefix):
                    found = self._descend(earlier, names[len(prefix) - 1 :])
                    if found is not None:
                        return path, found
            found = self._descend(self._of(self._scopes.get(scope)), names)
            if found is not None:
                return path, found
        else:
            for prefix, earlier in reversed(self._frames):
                found = self._descend(earlier, names)
                if found is not None:
                    return (*prefix, *names), found
            for other in reversed(SCOPES):
                found = self._descend(self._of(self._scopes.get(other)), names)
                if found is not None:
                    return (other, *names), found
        raise self._fault(of, f"{'.'.join(names)!r} names no integer decoded earlier")
