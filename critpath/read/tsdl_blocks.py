"""Reads the blocks of a TSDL text (CTF 1.8 metadata) and the types between them."""

from __future__ import annotations

from dataclasses import dataclass, field

from critpath.read.schema import StructureClass
from critpath.read.tsdl_cursor import Shape
from critpath.read.tsdl_leaves import Attribute, Attributes, byte_order, read_key, read_value
from critpath.read.tsdl_lexer import SyntaxFault, Tokens
from critpath.read.tsdl_types import TypeParser

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
Plain = tuple[int, int, str, int, int, bool, int]


@dataclass
class Block:
    """One ``trace``, ``stream``, ``event`` or ``clock`` block as written."""

    tokens: Tokens
    at: int
    values: dict[str, Attribute] = field(default_factory=dict)
    types: dict[str, Shape] = field(default_factory=dict)


class Blocks:
    """The blocks of a text in order, and what its types are called.

    Parameters
    ----------
    text : str
    plain : list of Plain
        Events to leave out, for `event` to parse later.
    """

    def __init__(self, text: str, plain: list[Plain]) -> None:
        self.text = text
        self.plain = plain
        self.tokens = tokens = Tokens(text, cuts=[(begin, end) for begin, end, *_ in plain])
        self.words = tokens.words
        big_endian = self._find_byte_order()
        self.types = self.inner = TypeParser(tokens, big_endian=big_endian)
        self.big_endian = big_endian
        self.found: dict[str, list[Block]] = {"trace": [], "stream": [], "event": [], "clock": []}
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
                return byte_order(self.tokens, entry)
            at += 1
        if not words[at]:
            raise self.tokens.fault(at, "the 'trace' block does not end")
        raise self.tokens.fault(start, "the trace has no 'byte_order'")

    # ------------------------------------------------------------ blocks

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
                block = Block(self.tokens, types.at)
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

    def _block(self, kind: str, types: TypeParser) -> Block:
        tokens = types.tokens
        words = types.words
        block = Block(tokens, types.at)
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

    def _add(self, kind: str, block: Block, key: str, entry: Attribute) -> None:
        if key in block.values:
            raise block.tokens.fault(entry.at, f"{key!r} is given twice")
        if key not in _KNOWN[kind]:
            self.types.warnings[f"unknown attribute {key!r} of {kind!r} ignored"] = None
        block.values[key] = entry

    def event(self, plain: Plain) -> Block:
        """Parse an event that was left out."""
        from critpath.read._scan import plain_fields  # noqa: PLC0415 - short texts do without

        fields = plain_fields(self.text, plain[6], plain[1])
        shape = None if fields is None else self.types.plain_structure(fields)
        if shape is not None:
            return Block(
                self.tokens,
                self.types.at,
                {"name": Attribute("name", plain[2], True, None, self.types.at)},
                {"fields": shape},
            )
        tokens = Tokens(self.text, span=plain[:2])
        self.inner = TypeParser(tokens, big_endian=self.big_endian, outer=self.types)
        return self._block("event", self.inner)

    def fault(self, plain: Plain, message: str) -> SyntaxFault:
        """Return the fault to raise at an event that was left out."""
        return SyntaxFault(message, 1 + self.text.count("\n", 0, plain[0]))
