"""Parses a whole TSDL text (CTF 1.8 metadata) into a `TraceClass`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from critpath.read.schema import (
    ClockClass,
    EventRecordClass,
    FieldClass,
    StreamClass,
    StructureClass,
    TraceClass,
    VariantClass,
)
from critpath.read.tsdl_cursor import Shape
from critpath.read.tsdl_leaves import Attribute, Attributes, byte_order, read_key, read_value
from critpath.read.tsdl_lexer import SyntaxFault, Tokens
from critpath.read.tsdl_resolve import Resolver, assign_roles
from critpath.read.tsdl_types import TypeParser

_SIGNATURE = re.compile(r"\s*+/\*\s*+CTF\s++([0-9]++)\.([0-9]++)\s*+\*/")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

# All events together, every named type written out.
_MAX_TOTAL_WEIGHT = 5_000_000

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


def parse_tsdl(text: str) -> TraceClass:
    """Parse TSDL text.

    Parameters
    ----------
    text : str
        The metadata without packet headers.

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
    return _Parser(Tokens(text)).trace()


@dataclass
class _Block:
    """One ``trace``, ``stream``, ``event`` or ``clock`` block as written."""

    at: int
    values: dict[str, Attribute] = field(default_factory=dict)
    types: dict[str, Shape] = field(default_factory=dict)


class _Parser:
    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.words = tokens.words
        big_endian = self._find_byte_order()
        self.types = TypeParser(tokens, big_endian=big_endian)
        self.big_endian = big_endian
        self.weight = 0
        self.blocks: dict[str, list[_Block]] = {"trace": [], "stream": [], "event": [], "clock": []}
        self.environment: dict[str, str | int] = {}
        self.resolver = Resolver(self.environment, self._fault_at)

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
                return byte_order(self.tokens, entry)
            at += 1
        if not words[at]:
            raise self.tokens.fault(at, "the 'trace' block does not end")
        raise self.tokens.fault(start, "the trace has no 'byte_order'")

    # ------------------------------------------------------------ blocks

    def trace(self) -> TraceClass:
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
                block = _Block(types.at)
                for entry in self._attributes(word).entries:
                    self._add(word, block, entry.key, entry)
                self.blocks[word].append(block)
            elif word in self.blocks:
                self._block(word)
            elif not types.declaration():
                types.type()
                types.expect(";")
        return self._assemble()

    def _attributes(self, word: str) -> Attributes:
        types = self.types
        attributes, types.at = Attributes.parse(self.tokens, types.at + 1, word)
        types.expect(";")
        return attributes

    def _block(self, kind: str) -> None:
        types = self.types
        words = self.words
        block = _Block(types.at)
        types.at += 1
        types.expect("{")
        types.push_scope()
        while words[types.at] != "}":
            if types.declaration():
                continue
            start = types.at
            key, types.at = read_key(self.tokens, start)
            if words[types.at] == "=":
                entry, types.at = read_value(self.tokens, key, types.at + 1)
                self._add(kind, block, key, entry)
            else:
                types.expect(":=")
                shape = types.type()
                types.expect(";")
                if key in block.types:
                    raise self.tokens.fault(start, f"{key!r} is given twice")
                if key not in _KNOWN[kind]:
                    types.warnings[f"unknown {key!r} of {kind!r} ignored"] = None
                elif not isinstance(shape.field, StructureClass):
                    raise self.tokens.fault(start, f"{key!r} is no structure")
                else:
                    block.types[key] = shape
        types.pop_scope()
        types.at += 1
        types.expect(";")
        self.blocks[kind].append(block)

    def _add(self, kind: str, block: _Block, key: str, entry: Attribute) -> None:
        if key in block.values:
            raise self.tokens.fault(entry.at, f"{key!r} is given twice")
        if key not in _KNOWN[kind]:
            self.types.warnings[f"unknown attribute {key!r} of {kind!r} ignored"] = None
        block.values[key] = entry

    # ------------------------------------------------------------ assembly

    def _assemble(self) -> TraceClass:
        blocks = self.blocks["trace"]
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
        for block in self.blocks["stream"]:
            number = self._number(block, "id", 0)
            if number in streams:
                raise self.tokens.fault(block.at, f"stream {number} is described twice")
            streams[number] = self._stream(block, number, header, default)
        events = self._events(streams, header, default)
        for number, records in events.items():
            stream = streams.get(number, StreamClass(number))
            streams[number] = replace(stream, events=records)
        self._check_clocks(clocks)
        return TraceClass(
            header,
            streams,
            clocks,
            self.environment,
            self._uuid(trace),
            self.big_endian,
            warnings=tuple(self.types.warnings),
        )

    def _number(self, block: _Block, key: str, default: int, least: int = 0) -> int:
        entry = block.values.get(key)
        if entry is None:
            return default
        if entry.number is None or not least <= entry.number < 1 << 64:
            raise self.tokens.fault(entry.at, f"{key!r} is {entry.value[:40]!r}, no such number")
        return entry.number

    def _uuid(self, block: _Block) -> str:
        entry = block.values.get("uuid")
        if entry is None:
            return ""
        if not entry.is_string or _UUID.fullmatch(entry.value) is None:
            raise self.tokens.fault(entry.at, f"{entry.value[:40]!r} is no UUID")
        return entry.value.lower()

    def _clocks(self) -> dict[str, ClockClass]:
        clocks: dict[str, ClockClass] = {}
        for block in self.blocks["clock"]:
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
        self, block: _Block, number: int, header: StructureClass | None, default: str
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
    ) -> dict[int, dict[int, EventRecordClass]]:
        events: dict[int, dict[int, EventRecordClass]] = {}
        only = next(iter(streams), 0) if len(streams) <= 1 else None
        for block in self.blocks["event"]:
            if only is None and "stream_id" not in block.values:
                raise self.tokens.fault(block.at, "an event that does not say of which stream")
            number = self._number(block, "stream_id", only or 0)
            if number not in streams and streams:
                raise self.tokens.fault(block.at, f"an event of stream {number}, which is missing")
            stream = streams.get(number)
            scopes: dict[str, StructureClass | None] = {"packet-header": header}
            if stream is not None:
                scopes["packet-context"] = stream.packet_context
                scopes["event-header"] = stream.event_header
                scopes["event-common-context"] = stream.event_context
            records = events.setdefault(number, {})
            event = self._number(block, "id", 0)
            name = block.values.get("name")
            if event in records:
                raise self.tokens.fault(block.at, f"event {event} of stream {number} comes twice")
            context = self._scope(
                "event-specific-context", block.types.get("context"), scopes, default
            )
            scopes["event-specific-context"] = context
            payload = self._scope("event-payload", block.types.get("fields"), scopes, default)
            records[event] = EventRecordClass(
                name.value if name is not None else "", event, context, payload
            )
        return events

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
            raise self.tokens.fault(self.types.at, f"more than {_MAX_TOTAL_WEIGHT} fields")
        if shape.open:
            structure = self.resolver.resolve(scope, structure, scopes)
        if scope in {"packet-header", "packet-context", "event-header"}:
            structure = assign_roles(scope, structure, default)
        return structure

    def _fault_at(self, of: FieldClass, message: str) -> SyntaxFault:
        place = self.types.places.get(id(of))
        return self.tokens.fault(place[1] if place is not None else self.types.at, message)

    def _check_clocks(self, clocks: dict[str, ClockClass]) -> None:
        for name in sorted(self.types.leaves.clocks - clocks.keys()):
            clocks[name] = ClockClass(name)
            self.types.warnings[f"clock {name!r} is not described: 1 GHz assumed"] = None


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
