"""What the TSDL parser steps over tokens with: its place, names in scope, field paths."""

from __future__ import annotations

from critpath.read.records import Record
from critpath.read.schema import FieldClass
from critpath.read.tsdl_lexer import SyntaxFault, Tokens

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


class Shape(Record):
    """A type and what its users need to know of it.

    ``weight`` counts its parts with every named type written out, ``depth`` how far
    they nest; ``open`` says that a selector inside is still to be resolved.
    """

    field: FieldClass
    align: int
    weight: int = 1
    depth: int = 1
    open: bool = False


class Cursor:
    """A place in the tokens, and the lexical scopes of type names there.

    Parameters
    ----------
    tokens : Tokens
    """

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.words = tokens.words
        self.at = 0
        self.scopes: list[dict[str, Shape]] = [{}]

    def fault(self, message: str, at: int | None = None) -> SyntaxFault:
        """Return the fault to raise at the current token, or at another."""
        return self.tokens.fault(self.at if at is None else at, message)

    def expect(self, word: str) -> None:
        """Step over a token that must be there."""
        if self.words[self.at] != word:
            raise self.fault(f"expected {word!r}, found {self.shown()}")
        self.at += 1

    def shown(self) -> str:
        """Return the current token for a message."""
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

    def define(self, key: str, shape: Shape, at: int) -> None:
        """Name a type in the innermost scope."""
        if key in self.scopes[-1]:
            raise self.fault(f"type {key!r} is already defined in this scope", at)
        self.scopes[-1][key] = shape

    def find(self, key: str, at: int) -> Shape:
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
