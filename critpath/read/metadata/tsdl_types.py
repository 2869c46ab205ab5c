"""Parses TSDL type declarations (CTF 1.8, chapter 7) into field classes.

Selectors of sequences and variants stay as written, marked by a first element ``""``
(relative) or the scope's name (absolute), for `tsdl.Resolver`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from critpath.read.metadata.lexer import (
    COMPOUND,
    KEYWORDS,
    MAX_DEPTH,
    SPECIFIERS,
    Cursor,
    DeclaredType,
    SyntaxFault,
    Tokens,
    is_string,
    number_value,
    string_value,
)
from critpath.read.metadata.schema import (
    ArrayClass,
    FieldClass,
    FloatClass,
    IntegerClass,
    Member,
    Option,
    StringClass,
    StructureClass,
    VariantClass,
)
from critpath.records import dataclass

_DECLARATIONS = ("typedef", "typealias")

# Far beyond any tracer; it bounds what hostile metadata can make of a few lines.
_MAX_WEIGHT = 100_000


class TypeParser(Cursor):
    """A recursive-descent parser over tokens, with scopes of named types.

    ``outer`` is the parser of the top level, whose types this one may name.
    """

    def __init__(
        self, tokens: Tokens, *, big_endian: bool, outer: TypeParser | None = None
    ) -> None:
        super().__init__(tokens)
        self.warnings: dict[str, None] = {}
        # Where an unresolved selector stands; the field class is kept, so its id stays its own.
        self.places: dict[int, tuple[FieldClass, int]] = {}
        self.leaves = NumberBuilder(tokens, big_endian, self.warnings)
        self.integers: dict[str, DeclaredType] = {}
        self.members_known: dict[tuple[str, int], tuple[Member, DeclaredType]] = {}
        # Types by their text, as named at the top level.
        self.plain_types: dict[str, DeclaredType] = {}
        if outer is not None:
            self.warnings = self.leaves.warnings = outer.warnings
            self.leaves.clocks = outer.leaves.clocks
            self.plain_types = outer.plain_types
            self.integers, self.members_known = outer.integers, outer.members_known
            self.scopes = [outer.scopes[0]]

    # Declarations.

    def declaration(self) -> bool:
        """Parse a typedef, a typealias or a type by itself; return False if there is none."""
        word = self.words[self.at]
        if word == "typedef":
            self.at += 1
            shape = self.type()
            while True:
                at = self.at
                name, declared = self._declarator(shape)
                self.define(name, declared, at)
                if self.words[self.at] != ",":
                    break
                self.at += 1
            self.expect(";")
        elif word == "typealias":
            self.at += 1
            shape = self.dimensions(self.type())
            self.expect(":=")
            at = self.at
            self.define(self._alias(), shape, at)
            self.expect(";")
        elif word in COMPOUND:
            self.type()
            if self.words[self.at] == ";":  # babeltrace also does without
                self.at += 1
        else:
            return False
        return True

    def _alias(self) -> str:
        """Return the key of the name that a typealias gives."""
        if self.words[self.at] in COMPOUND:
            self.at += 1
            return f"{self.words[self.at - 1]} {self.name()}"
        return self._type_name()

    def _type_name(self) -> str:
        parts = []
        while self.words[self.at] in SPECIFIERS or self.words[self.at] == "const":
            if self.words[self.at] != "const":
                parts.append(self.words[self.at])
            self.at += 1
        if not parts:
            parts.append(self.name())
        while self.words[self.at] in {"*", "const"}:
            if self.words[self.at] == "*":
                parts.append("*")
            self.at += 1
        return " ".join(parts)

    def _declarator(self, shape: DeclaredType) -> tuple[str, DeclaredType]:
        name = self.name()
        return name, self.dimensions(shape) if self.words[self.at] == "[" else shape

    def dimensions(self, shape: DeclaredType) -> DeclaredType:
        """Wrap a type in the arrays that follow it; the first dimension is the outermost."""
        lengths: list[tuple[int | tuple[str, ...], int]] = []
        while self.words[self.at] == "[":
            at = self.at
            self.at += 1
            number = number_value(self.words[self.at])
            if number is None:
                lengths.append((self.path("]"), at))
            elif number >= 1 << 63:
                raise self.fault(f"an array of {number} elements")
            else:
                self.at += 1
                lengths.append((number, at))
            self.expect("]")
            if len(lengths) > MAX_DEPTH:
                raise self.fault(f"arrays nest deeper than {MAX_DEPTH}")
        for length, at in reversed(lengths):
            array = ArrayClass(shape.field, length, shape.align)
            shape = self._checked(
                array, shape.align, [shape], shape.open or not isinstance(length, int)
            )
            if not isinstance(length, int):
                self.places[id(array)] = (array, at)
        return shape

    # Types.

    def type(self) -> DeclaredType:
        """Parse a type specifier."""
        word = self.words[self.at]
        shape = self.integers.get(word)
        if shape is not None:
            self.at += 1
            return shape
        match word:
            case "struct":
                shape = self._structure()
            case "enum":
                shape = self._enumeration()
            case "variant":
                shape = self._variant()
            case "string":
                shape = self._string()
            case "integer" | "floating_point":
                start = self.at
                attributes, self.at = Attributes.parse(self.tokens, start + 1, word)
                leaf = self.leaves.number(word, attributes, start)
                shape = DeclaredType(leaf, leaf.align)
            case _ if word.endswith("}") and word.startswith("integer"):
                attributes, _ = Attributes.parse(self.tokens.block(self.at), 0, "integer")
                leaf = self.leaves.number("integer", attributes, self.at)
                shape = self.integers[word] = DeclaredType(leaf, leaf.align)
                self.at += 1
            case _:
                at = self.at
                shape = self.find(self._type_name(), at)
        return shape

    def _string(self) -> DeclaredType:
        self.at += 1
        if self.words[self.at] == "{":
            attributes, self.at = Attributes.parse(self.tokens, self.at, "string")
            self.leaves.string(attributes)
        return DeclaredType(StringClass(), 8)

    def _title(self) -> str:
        """Step over the name of a struct, enum or variant, if it has one."""
        word = self.words[self.at]
        return self.name() if word not in {"{", ":", "<"} else ""

    def _structure(self) -> DeclaredType:
        start = self.at
        self.at += 1
        title = self._title()
        if self.words[self.at] != "{":
            if not title:
                raise self.fault(f"expected '{{', found {self.shown()}")
            return self.find(f"struct {title}", start)
        parts = self._body()
        align = 1
        if self.words[self.at] == "align":
            self.at += 1
            self.expect("(")
            at = self.at
            align, self.at = parse_constant(self.tokens, self.at)
            if align < 1 or align & (align - 1) or align > 1 << 32:
                raise self.fault(f"an alignment of {align} bits is no power of two", at)
            self.expect(")")
        for _, shape in parts:
            align = max(align, shape.align)
        structure = StructureClass(tuple([member for member, _ in parts]), align)
        shapes = [shape for _, shape in parts]
        made = self._checked(structure, align, shapes, any(s.open for s in shapes))
        if title:
            self.define(f"struct {title}", made, start)
        return made

    def plain_structure(self, fields: Sequence[tuple[str, str, str]]) -> DeclaredType | None:
        """Make a structure of fields that neither name nor define types.

        ``fields`` are (type, name, dimensions), from `_scan.plain_fields`.  Returns None for
        anything else and for faults, which `type` then parses and reports.
        """
        align = weight = depth = 1
        members = {}
        for text, name, dimensions in fields:
            shape = self.plain_types.get(text + dimensions)
            if shape is None:
                shape = self._plain_type(text, dimensions)
                if shape is None:
                    return None
                self.plain_types[text + dimensions] = shape
            key = (name, id(shape))
            part = self.members_known.get(key)
            if part is None:
                part = self.members_known[key] = (Member(name, shape.field), shape)
            members[name] = part[0]
            weight += shape.weight
            align = max(align, shape.align)
            depth = max(depth, shape.depth + 1)
        if len(members) < len(fields) or weight > _MAX_WEIGHT or not KEYWORDS.isdisjoint(members):
            return None
        return DeclaredType(StructureClass(tuple(members.values()), align), align, weight, depth)

    def _plain_type(self, text: str, dimensions: str) -> DeclaredType | None:
        """Parse a type that depends on nothing around it; return None for any other."""
        if text.startswith((*COMPOUND, *_DECLARATIONS)):
            return None
        try:
            inner = TypeParser(
                Tokens(text + dimensions), big_endian=self.leaves.big_endian, outer=self
            )
            shape = inner.dimensions(inner.type())
        except SyntaxFault:
            return None
        return None if inner.words[inner.at] or shape.open else shape

    def _body(self) -> list[tuple[Member, DeclaredType]]:
        """Parse ``{ members }`` of a structure or a variant."""
        self.expect("{")
        self.push_scope()
        words = self.words
        members = self.members_known
        parts: list[tuple[Member, DeclaredType]] = []
        seen = set()
        while words[self.at] != "}":
            if words[self.at] in _DECLARATIONS:
                self.declaration()
                continue
            shape = self.type()
            while words[self.at] != ";":
                at = self.at
                name, declared = self._declarator(shape)
                if name in seen:
                    raise self.fault(f"two members are called {name!r}", at)
                seen.add(name)
                # The shape is kept with the member, so its id stays its own.
                key = (name, id(declared))
                part = members.get(key)
                if part is None:
                    part = members[key] = (Member(name, declared.field), declared)
                parts.append(part)
                if words[self.at] == ",":
                    self.at += 1
                elif words[self.at] != ";":
                    raise self.fault(f"expected ';', found {self.shown()}")
            self.at += 1
        self.at += 1
        self.pop_scope()
        return parts

    def _variant(self) -> DeclaredType:
        start = self.at
        self.at += 1
        title = self._title()
        selector: tuple[str, ...] = ()
        if self.words[self.at] == "<":
            self.at += 1
            selector = self.path(">")
            self.expect(">")
        if self.words[self.at] == "{":
            parts = self._body()
            if not parts:
                self.warnings["a variant without options is never decoded"] = None
            options = tuple([Option(member.name, (), member.field) for member, _ in parts])
            variant = VariantClass(selector, options)
            made = self._checked(variant, 1, [shape for _, shape in parts], is_open=True)
            if title:
                self.define(f"variant {title}", made, start)
        elif title:
            made = self.find(f"variant {title}", start)
            if selector and isinstance(made.field, VariantClass):
                made = replace(made, field=replace(made.field, selector=selector))
        else:
            raise self.fault(f"expected '{{', found {self.shown()}")
        self.places[id(made.field)] = (made.field, start)
        return made

    def _enumeration(self) -> DeclaredType:
        start = self.at
        self.at += 1
        title = self._title()
        container = None
        if self.words[self.at] == ":":
            self.at += 1
            container = self.type()
        if self.words[self.at] != "{":
            if not title or container is not None:
                raise self.fault(f"expected '{{', found {self.shown()}")
            return self.find(f"enum {title}", start)
        if container is None:
            container = self.find("int", start)
        labels, self.at = parse_labels(self.tokens, self.at)
        leaf = self.leaves.enumeration(container.field, labels, start)
        made = DeclaredType(leaf, leaf.align)
        if title:
            self.define(f"enum {title}", made, start)
        return made

    def _checked(
        self, field: FieldClass, align: int, parts: Sequence[DeclaredType], is_open: bool
    ) -> DeclaredType:
        """Return a compound's shape, after checking that it stays within bounds."""
        weight = 1 + sum([shape.weight for shape in parts])
        depth = 1 + max([shape.depth for shape in parts], default=0)
        if weight > _MAX_WEIGHT:
            raise self.fault(f"a type with more than {_MAX_WEIGHT} parts")
        if depth > MAX_DEPTH:
            raise self.fault(f"types nest deeper than {MAX_DEPTH}")
        return DeclaredType(field, align, weight, depth, is_open)


# Attribute lists, numbers and enumeration labels.

Labels = tuple[tuple[str, tuple[tuple[int, int], ...]], ...]

_BASES: Mapping[str, int] = {
    **dict.fromkeys(("2", "binary", "bin", "b"), 2),
    **dict.fromkeys(("8", "octal", "oct", "o"), 8),
    **dict.fromkeys(("10", "decimal", "dec", "d", "i", "u"), 10),
    **dict.fromkeys(("16", "hexadecimal", "hex", "x", "X", "p"), 16),
}
_TRUE = frozenset(("true", "TRUE", "1"))
_FALSE = frozenset(("false", "FALSE", "0"))
_TEXT = frozenset(("UTF8", "UTF-8", "ASCII"))
_MARKS = frozenset("+-.")
_CLOCK = re.compile(r"clock\.(\w+)\.value")
_KNOWN = {
    "integer": frozenset(("size", "align", "signed", "byte_order", "base", "encoding", "map")),
    "floating_point": frozenset(("exp_dig", "mant_dig", "align", "byte_order")),
    "string": frozenset(["encoding"]),
}


def parse_constant(tokens: Tokens, at: int) -> tuple[int, int]:
    """Parse a signed integer or character constant; return it and the next position."""
    word = tokens.words[at]
    sign = 1
    if word in {"-", "+"}:
        sign = -1 if word == "-" else 1
        at += 1
        word = tokens.words[at]
    value = number_value(word)
    if value is None and len(word) >= 3 and word[0] == word[-1] == "'":
        text = string_value(word)
        value = ord(text) if len(text) == 1 else 0 if word == "'\\0'" else None
    if value is None or (sign < 0 and value > 1 << 63):
        raise tokens.fault(at, f"expected an integer of 64 bits, found {word[:40]!r}")
    return sign * value, at + 1


@dataclass(frozen=True)
class Attribute:
    """One ``key = value;``: the value's tokens, joined, and whether it was a string."""

    key: str
    value: str
    is_string: bool
    number: int | None
    at: int


class Attributes:
    """The attributes of one ``{ ... }``, in order."""

    def __init__(self, tokens: Tokens, entries: list[Attribute]) -> None:
        self.tokens = tokens
        self.entries = entries

    @classmethod
    def parse(cls, tokens: Tokens, at: int, of: str) -> tuple[Attributes, int]:
        """Parse from the opening brace on; return also the position after the closing one."""
        words = tokens.words
        if words[at] != "{":
            raise tokens.fault(at, f"expected '{{' after {of!r}, found {words[at][:40]!r}")
        at += 1
        entries = []
        while words[at] != "}":
            key, at = read_key(tokens, at)
            if words[at] != "=":
                raise tokens.fault(at, f"expected '=' after {key!r}, found {words[at][:40]!r}")
            entry, at = read_value(tokens, key, at + 1)
            entries.append(entry)
        return cls(tokens, entries), at + 1


def read_key(tokens: Tokens, at: int) -> tuple[str, int]:
    """Parse a dotted attribute name; return it and the next position."""
    words = tokens.words
    start = at
    while words[at].isidentifier():
        at += 1
        if words[at] != ".":
            return "".join(words[start:at]), at
        at += 1
    raise tokens.fault(at, f"expected an attribute's name, found {words[at][:40]!r}")


def read_value(tokens: Tokens, key: str, at: int) -> tuple[Attribute, int]:
    """Parse an attribute's value and its semicolon; return it and the next position."""
    words = tokens.words
    start = at
    while words[at] != ";":
        if not words[at] or words[at] in {"{", "}", "=", ":="}:
            raise tokens.fault(at, f"the value of {key!r} does not end with ';'")
        if words[at][0] == '"' and not is_string(words[at]):
            raise tokens.fault(at, f"the value of {key!r} is a string without end")
        at += 1
    value = words[start:at]
    if not value:
        raise tokens.fault(at, f"{key!r} has no value")
    if is_string(value[0]):
        if not all(map(is_string, value)):
            raise tokens.fault(start, f"the value of {key!r} is not one string")
        return Attribute(key, "".join(map(string_value, value)), True, None, start), at + 1
    return Attribute(key, "".join(value), False, _number(tokens, key, start, at), start), at + 1


def _number(tokens: Tokens, key: str, start: int, end: int) -> int | None:
    """Return a value's number, None if it is a word."""
    value = tokens.words[start:end]
    for left, right in itertools.pairwise(value):
        if left[-1] not in _MARKS and right[0] not in _MARKS:
            raise tokens.fault(start, f"the value of {key!r} is not one word")
    if not (value[0][0] == "'" or value[-1][0].isdigit()) or len(value) > 2:
        return None
    number, at = parse_constant(tokens, start)
    if at != end:
        raise tokens.fault(start, f"the value of {key!r} is not one number")
    return number


def parse_labels(tokens: Tokens, at: int) -> tuple[Labels, int]:
    """Parse ``{ label = low ... high, ... }``, joining the ranges of each label."""
    words = tokens.words
    found: dict[str, list[tuple[int, int]]] = {}
    following = 0
    at += 1
    if words[at] == "}":
        raise tokens.fault(at, "an enumeration without labels")
    while words[at] != "}":
        word = words[at]
        if is_string(word):
            label = string_value(word)
        elif word.isidentifier():
            label = word
        else:
            raise tokens.fault(at, f"expected a label, found {word[:40]!r}")
        at += 1
        low = high = following
        if words[at] == "=":
            low, high, at = _span(tokens, at + 1)
        elif following >= 1 << 64:
            raise tokens.fault(at, f"the value of {label!r} would be above 64 bits")
        following = high + 1
        found.setdefault(label, []).append((low, high))
        if words[at] == ",":
            at += 1
        elif words[at] != "}":
            raise tokens.fault(at, f"expected ',' or '}}', found {words[at][:40]!r}")
    return tuple([(label, tuple(ranges)) for label, ranges in found.items()]), at + 1


def _span(tokens: Tokens, at: int) -> tuple[int, int, int]:
    """Parse ``low ... high`` or one value; return both ends and the next position."""
    start = at
    low, at = parse_constant(tokens, at)
    high = low
    if tokens.words[at] == "...":
        high, at = parse_constant(tokens, at + 1)
    if low > high:
        raise tokens.fault(start, f"the range {low} ... {high} is empty")
    return low, high, at


class NumberBuilder:
    """Makes number classes from attributes; ``warnings`` are the keys of a dict, each once."""

    def __init__(self, tokens: Tokens, big_endian: bool, warnings: dict[str, None]) -> None:
        self._tokens = tokens
        self.big_endian = big_endian
        self.warnings = warnings
        # Names of the clocks that some integer counts.
        self.clocks: set[str] = set()

    def number(self, kind: str, attributes: Attributes, at: int) -> IntegerClass | FloatClass:
        """Make the class of an ``integer`` or ``floating_point``."""
        found = self._select(kind, attributes)
        big_endian = self._byte_order(attributes, found.get("byte_order"))
        if kind == "integer":
            bits = self._size(attributes, found.get("size"), at, "size", 64)
        else:
            exponent = self._size(attributes, found.get("exp_dig"), at, "exp_dig", 128)
            bits = exponent + self._size(attributes, found.get("mant_dig"), at, "mant_dig", 128)
            if (exponent, bits) not in {(5, 16), (8, 32), (11, 64), (15, 128)}:
                raise self._tokens.fault(
                    at, f"no IEEE 754 number has an exponent of {exponent} bits in {bits}"
                )
        align = 8 if bits % 8 == 0 else 1
        given = found.get("align")
        if given is not None:
            align = given.number or 0
            if align < 1 or align & (align - 1) or align > 1 << 32:
                raise attributes.tokens.fault(
                    given.at, f"an alignment of {given.value} bits is no power of two"
                )
        if kind != "integer":
            return FloatClass(bits, big_endian, align)
        return IntegerClass(
            bits,
            self._boolean(attributes, found.get("signed")),
            big_endian,
            align,
            self._base(attributes, found.get("base")),
            self._encoding(attributes, found.get("encoding")),
            clock=self._clock(attributes, found.get("map")),
        )

    def string(self, attributes: Attributes) -> None:
        """Check the attributes of a ``string``."""
        self._encoding(attributes, self._select("string", attributes).get("encoding"))

    def enumeration(self, container: FieldClass, labels: Labels, at: int) -> IntegerClass:
        """Make an enumeration from its container and labels."""
        if not isinstance(container, IntegerClass):
            raise self._tokens.fault(at, "an enumeration's values are no integers")
        return replace(container, mappings=labels)

    def _select(self, kind: str, attributes: Attributes) -> dict[str, Attribute]:
        found: dict[str, Attribute] = {}
        for entry in attributes.entries:
            if entry.key not in _KNOWN[kind]:
                self.warnings[f"unknown attribute {entry.key!r} of {kind!r} ignored"] = None
            elif entry.key in found:
                raise attributes.tokens.fault(entry.at, f"{entry.key!r} is given twice")
            else:
                found[entry.key] = entry
        return found

    def _size(
        self, attributes: Attributes, entry: Attribute | None, at: int, key: str, most: int
    ) -> int:
        if entry is None:
            raise self._tokens.fault(at, f"a number without {key!r}")
        if entry.number is None or not 1 <= entry.number <= most:
            raise attributes.tokens.fault(
                entry.at, f"{key!r} is {entry.value}, not a number from 1 to {most}"
            )
        return entry.number

    def _byte_order(self, attributes: Attributes, entry: Attribute | None) -> bool:
        if entry is None or entry.value == "native":
            return self.big_endian
        return parse_byte_order(attributes.tokens, entry)

    @staticmethod
    def _boolean(attributes: Attributes, entry: Attribute | None) -> bool:
        if entry is None or entry.value in _FALSE:
            return False
        if entry.value in _TRUE:
            return True
        raise attributes.tokens.fault(entry.at, f"{entry.key!r} is {entry.value}, no boolean")

    @staticmethod
    def _base(attributes: Attributes, entry: Attribute | None) -> int:
        if entry is None:
            return 10
        key = entry.value if entry.number is None else str(entry.number)
        if key not in _BASES:
            raise attributes.tokens.fault(entry.at, f"{entry.value!r} is no base")
        return _BASES[key]

    @staticmethod
    def _encoding(attributes: Attributes, entry: Attribute | None) -> bool:
        if entry is None or entry.value.upper() == "NONE":
            return False
        if entry.value.upper() in _TEXT:
            return True
        raise attributes.tokens.fault(entry.at, f"{entry.value!r} is no encoding")

    def _clock(self, attributes: Attributes, entry: Attribute | None) -> str:
        if entry is None:
            return ""
        match = _CLOCK.fullmatch(entry.value)
        if match is None:
            raise attributes.tokens.fault(entry.at, f"{entry.value!r} is no clock's value")
        self.clocks.add(match[1])
        return match[1]


def parse_byte_order(tokens: Tokens, entry: Attribute) -> bool:
    """Return whether a ``parse_byte_order`` other than native is big-endian."""
    if entry.value not in {"le", "be", "network"}:
        raise tokens.fault(entry.at, f"{entry.value!r} is no byte order")
    return entry.value != "le"
