"""Cuts TSDL text (CTF 1.8 metadata) into tokens, fast, and remembers lines lazily."""

from __future__ import annotations

import re
from collections.abc import Sequence

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
    """A fault at one token.

    Parameters
    ----------
    message : str
        What is wrong.
    line : int
        Line of the text, counted from 1.
    """

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
    """Tell whether a token is a complete string literal."""
    return len(word) >= 2 and word[0] == '"' and word[-1] == '"' and _closed(word)


def _closed(word: str) -> bool:
    stripped = word[:-1].rstrip("\\")
    return (len(word) - 1 - len(stripped)) % 2 == 0


def string_value(word: str) -> str:
    """Return what a string literal stands for; a NUL escape ends it, as in C."""

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
