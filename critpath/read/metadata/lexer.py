"""Cuts TSDL text (CTF 1.8 metadata) into tokens, and steps over them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from critpath.read.metadata.schema import FieldClass
from critpath.records import dataclass

# A token with the blanks and comments before it.  Every text is covered, the last
# branches being faults, so it goes back only within a comment or string that has no
# end, once and in linear time.  Classes of characters are possessive; groups are not,
# as Python 3.11.2 (Debian 12's) gives SystemError for possessive groups.
# A whole ``integer { ... }`` without strings or comments is one token: LTTng repeats
# a few dozen of them ten thousand times.
_TOKEN = re.compile(
    r"""(?:[ \t\r\n\f\v]++|//[^\n]*+|/\*(?:[^*]++|\*(?!/))*\*/)*
    (
      [A-Za-z_][A-Za-z0-9_]*+ (?: (?<=(?<![A-Za-z0-9_])integer) [ \t\r\n]*+ \{[^{}"'/]*+\} )?
    | [{};=\[\]]
    | :=?+
    | [0-9][A-Za-z0-9_]*+
    | "(?:[^"\\\n]++|\\.)*" | '(?:[^'\\\n]++|\\.)*'
    | \.\.\. | ->
    | "(?:[^"\\\n]++|\\.)* | '(?:[^'\\\n]++|\\.)*
    | /\*.*+
    | .
    | \Z
    )""",
    re.VERBOSE | re.DOTALL,
)

_MAX_TOKENS = 4_000_000
_LONGEST_MESSAGE = 300


class SyntaxFault(Exception):  # noqa: N818 -- internal; leaves this package as MetadataError
    """A fault in the metadata's text; ``line`` counts from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.message = message if len(message) <= _LONGEST_MESSAGE else message[:297] + "..."
        self.line = line


class Tokens:
    """The tokens of a text; ``words`` ends with an empty one.

    Parameters
    ----------
    text : str
        The text, or the part of one token from ``inside``'s first brace on.
    inside : (Tokens, int), optional
        The token that ``text`` is the end of.
    cuts : sequence of (int, int)
        Ranges of the text to leave out, in order.
    span : (int, int), optional
        The only range of the text to take.
    """

    __slots__ = ("_inside", "_parts", "_text", "words")

    def __init__(
        self,
        text: str,
        inside: tuple[Tokens, int] | None = None,
        cuts: Sequence[tuple[int, int]] = (),
        span: tuple[int, int] | None = None,
    ) -> None:
        self._text = text
        self._inside = inside
        if span is None:
            span = (0, len(text))
        # What is between the cuts.
        begins = (span[0], *[end for _, end in cuts])
        ends = (*[begin for begin, _ in cuts], span[1])
        self._parts = [
            (begin, end)
            for begin, end in zip(begins, ends, strict=True)
            if begin < end and not text[begin:end].isspace()
        ] or [span]
        self.words: list[str] = []
        for begin, end in self._parts:
            if end - begin <= _MAX_TOKENS - len(self.words):  # as many at the most
                self.words += _TOKEN.findall(text, begin, end)
            else:
                for match in _TOKEN.finditer(text, begin, end):
                    self.words.append(match[1])
                    if len(self.words) > _MAX_TOKENS:
                        raise SyntaxFault(f"more than {_MAX_TOKENS} tokens", self.line(_MAX_TOKENS))
            # Each part ends in an empty match, or two.
            while self.words and not self.words[-1]:
                self.words.pop()
        self.words.append("")

    def block(self, index: int) -> Tokens:
        """Return the tokens of an ``integer { ... }`` from its brace on."""
        word = self.words[index]
        return Tokens(word[word.index("{") :], (self, index))

    def line(self, index: int) -> int:
        """Return the line a token starts on; slow, for messages only."""
        at, position = self._parts[-1][1], 0
        for begin, end in self._parts:
            for match in _TOKEN.finditer(self._text, begin, end):
                if match[1] and position == index:
                    at = match.start(1)
                position += bool(match[1])
            if position > index:
                break
        line = 1 + self._text.count("\n", 0, at)
        if self._inside is not None:
            outer, place = self._inside
            word = outer.words[place]
            line += outer.line(place) - 1 + word.count("\n", 0, word.index("{"))
        return line

    def fault(self, index: int, message: str) -> SyntaxFault:
        """Return the fault to raise at a token."""
        return SyntaxFault(message, self.line(min(index, len(self.words) - 1)))


_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def is_string(word: str) -> bool:
    """Return whether a token is a complete string literal."""
    return len(word) >= 2 and word[0] == '"' and word[-1] == '"' and _closed(word)


def _closed(word: str) -> bool:
    stripped = word[:-1].rstrip("\\")
    return (len(word) - 1 - len(stripped)) % 2 == 0


def string_value(word: str) -> str:
    """Return the value of a string literal; a NUL escape ends it, as in C."""

    def replace(match: re.Match[str]) -> str:
        hexadecimal, octal, other = match.groups()
        if hexadecimal:
            return chr(int(hexadecimal, 16))
        if octal:
            return chr(int(octal, 8) & 0xFF)
        return _ESCAPES.get(other, other)

    body = word[1:-1]
    if "\\" in body:
        body = _ESCAPE.sub(replace, body)
    return body.partition("\0")[0]


_NUMBER = re.compile(r"(?:(0[xX][0-9a-fA-F]+)|(0[0-7]*)|([1-9][0-9]*))[uUlL]{0,3}")


def number_value(word: str) -> int | None:
    """Return the value of an integer literal, None for anything else or above 64 bits."""
    match = _NUMBER.fullmatch(word) if len(word) < 64 else None
    if match is None:
        return None
    hexadecimal, octal, decimal = match.groups()
    if hexadecimal:
        value = int(hexadecimal, 16)
    elif octal:
        value = int(octal, 8)
    else:
        value = int(decimal)
    return value if value < 1 << 64 else None


# The cursor: a position in the tokens, with the type names in scope.

# What C builds the names of its arithmetic types from.
SPECIFIERS = frozenset(
    (
        *("char", "short", "int", "long", "float", "double", "signed", "unsigned", "void"),
        *("_Bool", "_Complex", "_Imaginary"),
    )
)
COMPOUND = ("struct", "enum", "variant")
KEYWORDS = SPECIFIERS.union(
    COMPOUND,
    ("integer", "floating_point", "string", "align", "const", "typealias", "typedef"),
    ("trace", "stream", "event", "clock", "env", "callsite"),
)

# What the dynamic scopes are called in TSDL, and in our paths.
_SCOPES = {
    ("trace", "packet", "header"): "packet-header",
    ("stream", "packet", "context"): "packet-context",
    ("stream", "event", "header"): "event-header",
    ("stream", "event", "context"): "event-common-context",
    ("event", "context"): "event-specific-context",
    ("event", "fields"): "event-payload",
    ("env",): "env",
}

# Far deeper than any tracer nests; it keeps hostile metadata off Python's stack.
MAX_DEPTH = 64


@dataclass(frozen=True)
class DeclaredType:
    """A type in TSDL and its measures.

    ``weight`` counts its parts with every named type written out, ``depth`` their nesting;
    ``open`` marks a selector inside that is still to be resolved.
    """

    field: FieldClass
    align: int
    weight: int = 1
    depth: int = 1
    open: bool = False


class Cursor:
    """A position in the tokens, and the lexical scopes of type names there."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.words = tokens.words
        self.at = 0
        self.scopes: list[dict[str, DeclaredType]] = [{}]

    def fault(self, message: str, at: int | None = None) -> SyntaxFault:
        """Return the fault to raise at the current token, or at another."""
        return self.tokens.fault(self.at if at is None else at, message)

    def expect(self, word: str) -> None:
        """Step over a required token."""
        if self.words[self.at] != word:
            raise self.fault(f"expected {word!r}, found {self.shown()}")
        self.at += 1

    def shown(self) -> str:
        """Format the current token for a message."""
        word = self.words[self.at]
        return repr(word if len(word) < 40 else word[:37] + "...") if word else "the end"

    def name(self) -> str:
        """Step over an identifier that is no keyword."""
        word = self.words[self.at]
        if word in KEYWORDS or not word.isidentifier():
            raise self.fault(f"expected a name, found {self.shown()}")
        self.at += 1
        return word

    def push_scope(self) -> None:
        """Open a lexical scope of type names."""
        if len(self.scopes) > MAX_DEPTH:
            raise self.fault(f"types nest deeper than {MAX_DEPTH}")
        self.scopes.append({})

    def pop_scope(self) -> None:
        """Close it."""
        self.scopes.pop()

    def define(self, key: str, shape: DeclaredType, at: int) -> None:
        """Name a type in the innermost scope."""
        if key in self.scopes[-1]:
            raise self.fault(f"type {key!r} is already defined in this scope", at)
        self.scopes[-1][key] = shape

    def find(self, key: str, at: int) -> DeclaredType:
        """Return the type of that name, from the innermost scope outwards."""
        for scope in reversed(self.scopes):
            if key in scope:
                return scope[key]
        raise self.fault(f"unknown type {key!r}", at)

    def path(self, end: str) -> tuple[str, ...]:
        """Parse a field's path up to a closing token, which stays."""
        start = self.at
        names: list[str] = []
        while True:
            word = self.words[self.at]
            if not word.isidentifier():
                raise self.fault(f"expected a field's name, found {self.shown()}")
            names.append(word)
            self.at += 1
            if self.words[self.at] == end:
                break
            if self.words[self.at] not in {".", "->"} or len(names) > MAX_DEPTH:
                raise self.fault(f"expected {end!r} after a field's name, found {self.shown()}")
            self.at += 1
        for prefix, scope in _SCOPES.items():
            if tuple(names[: len(prefix)]) == prefix and len(names) > len(prefix):
                return (scope, *names[len(prefix) :])
        if names[0] in KEYWORDS:
            raise self.fault(f"{'.'.join(names)!r} names no field", start)
        return ("", *names)
