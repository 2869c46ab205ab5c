"""Parses what TSDL types are made of: attribute lists, numbers, enumeration labels."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

from critpath.read.records import Record, replace
from critpath.read.schema import FieldClass, FloatClass, IntegerClass
from critpath.read.tsdl_lexer import Tokens, is_string, number_value, string_value

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


def constant(tokens: Tokens, at: int) -> tuple[int, int]:
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


class Attribute(Record):
    """One ``key = value;``: the value's tokens, joined, and whether it was a string."""

    key: str
    value: str
    is_string: bool
    number: int | None
    at: int


class Attributes:
    """The attributes of one ``{ ... }`` in order.

    Parameters
    ----------
    tokens : Tokens
    entries : list of Attribute
    """

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
    """Return the number that a value is, None if it is a word."""
    value = tokens.words[start:end]
    for left, right in itertools.pairwise(value):
        if left[-1] not in _MARKS and right[0] not in _MARKS:
            raise tokens.fault(start, f"the value of {key!r} is not one word")
    if not (value[0][0] == "'" or value[-1][0].isdigit()) or len(value) > 2:
        return None
    number, at = constant(tokens, start)
    if at != end:
        raise tokens.fault(start, f"the value of {key!r} is not one number")
    return number


def enum_labels(tokens: Tokens, at: int) -> tuple[Labels, int]:
    """Parse ``{ label = low ... high, ... }``; ranges of one label are put together."""
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
    low, at = constant(tokens, at)
    high = low
    if tokens.words[at] == "...":
        high, at = constant(tokens, at + 1)
    if low > high:
        raise tokens.fault(start, f"the range {low} ... {high} is empty")
    return low, high, at


class Leaves:
    """Makes number classes from attributes.

    Parameters
    ----------
    tokens : Tokens
        For the places of faults.
    big_endian : bool
        The trace's own byte order.
    warnings : dict
        Keys are the warnings so far, each once.
    """

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
        """Make an enumeration of its container and its labels."""
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
        return byte_order(attributes.tokens, entry)

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


def byte_order(tokens: Tokens, entry: Attribute) -> bool:
    """Return whether a ``byte_order`` other than native is big-endian."""
    if entry.value not in {"le", "be", "network"}:
        raise tokens.fault(entry.at, f"{entry.value!r} is no byte order")
    return entry.value != "le"
