"""Event patterns: which events begin or end an execution, and the fields they yield.

``NAME``, ``NAME[FIELD=VALUE]`` and ``NAME[FIELD~REGEX]``, the brackets repeated at
will.  Named groups of a regular expression become fields of the event, which is
how log messages (Python's ``logging`` through LTTng, ``tracef``) delimit executions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from critpath.errors import UsageError
from critpath.units import shorten

SYNTAX = "write events:BEGIN,END[,key=FIELD][,label=FIELD]; BEGIN and END are NAME[FIELD=VALUE]..."
# Who an event belongs to, by the contexts that LTTng can add to it.
CONTEXTS = (("vtid",), ("vpid",), ("procname",), ("tid",), ("pid",))

LITERAL = r"write a literal bracket as \[ or \]"

# A regular expression comes from the user, the text from the traced program: what
# one text can cost is bounded by its length, and every distinct text is matched once.
TEXT_LIMIT = 4096
EXPRESSION_LIMIT = 1000

_CONDITION = re.compile(r"([A-Za-z_][\w.]*)([=~])(.*)", re.DOTALL)


@dataclass(frozen=True)
class Condition:
    """A condition on one field: equal to ``value``, or matched by ``expression`` if it is set."""

    field: str
    value: str = ""
    expression: re.Pattern[str] | None = None

    def match(self, text: str) -> dict[str, str] | None:
        """Return the fields that a text yields, None if it does not match.

        A regular expression sees the first `TEXT_LIMIT` characters.
        """
        if self.expression is None:
            return {} if text == self.value else None
        found = self.expression.search(text[:TEXT_LIMIT])
        if found is None:
            return None
        return {name: group for name, group in found.groupdict().items() if group is not None}


@dataclass(frozen=True)
class EventPattern:
    """Events of one name that meet every condition."""

    name: str
    conditions: tuple[Condition, ...] = ()

    @property
    def parsed(self) -> frozenset[str]:
        """Fields that regular expressions take out of a text."""
        return frozenset(
            name for c in self.conditions if c.expression for name in c.expression.groupindex
        )


def _iter_depths(text: str) -> Iterator[tuple[int, str, int]]:
    """Yield each character's index, itself ("" if escaped) and the brackets open after it."""
    depth = 0
    shielded = False
    for place, character in enumerate(text):
        acting = "" if shielded else character
        depth += (acting == "[") - (acting == "]")
        if depth < 0:
            raise UsageError(f"a ']' without its '[' in: {shorten(text)}", LITERAL)
        yield place, acting, depth
        shielded = acting == "\\"
    if depth:
        raise UsageError(f"a '[' without its ']' in: {shorten(text)}", LITERAL)


def split_outside_brackets(text: str, separator: str) -> list[str]:
    """Split at a separator outside of brackets; a backslash escapes a character."""
    parts = []
    start = 0
    for place, character, depth in _iter_depths(text):
        if character == separator and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return [*parts, text[start:]]


def unescape(text: str) -> str:
    """Remove the backslashes that escape characters."""
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


def escape(text: str) -> str:
    """Escape the special characters in an event's name."""
    return re.sub(r"([\\,\[\]])", r"\\\1", text)


def parse_pattern(text: str) -> EventPattern:
    r"""Parse ``NAME[FIELD=VALUE][FIELD~REGEX]...``.

    In ``VALUE`` a backslash shields the next character; in ``REGEX`` backslashes
    stay, since ``\[`` means a literal bracket there too.
    """
    name, *brackets = _split_brackets(text)
    name = unescape(name).strip()
    if not name:
        raise UsageError(f"an event without a name in: {shorten(text) or '(nothing)'}", SYNTAX)
    return EventPattern(name, tuple(_parse_condition(inner) for inner in brackets))


def _split_brackets(text: str) -> list[str]:
    """Return the text before the first brackets, then the inside of each pair."""
    parts: list[str] = []
    start = 0
    last = 0
    for place, character, depth in _iter_depths(text):
        if character == "[" and depth == 1:
            between = text[start:place]
            if parts and between.strip():
                raise UsageError(f"'{shorten(between)}' follows a condition of an event", SYNTAX)
            if not parts:
                parts.append(between)
            start = place + 1
        elif character == "]" and depth == 0:
            parts.append(text[start:place])
            start = place + 1
        last = place + 1
    if parts and text[start:last].strip():
        raise UsageError(f"'{shorten(text[start:last])}' follows a condition of an event", SYNTAX)
    return parts or [text]


def _parse_condition(text: str) -> Condition:
    parts = _CONDITION.fullmatch(text)
    if parts is None:
        raise UsageError(
            f"not a condition: [{shorten(text)}]",
            "write [FIELD=VALUE] or [FIELD~REGULAR EXPRESSION]",
        )
    field, operator, operand = parts.groups()
    if operator == "=":
        return Condition(field, unescape(operand))
    if len(operand) > EXPRESSION_LIMIT:
        raise UsageError(
            f"the regular expression for {field} has {len(operand)} characters",
            f"use at most {EXPRESSION_LIMIT}",
        )
    try:
        return Condition(field, expression=re.compile(operand))
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(
            f"the regular expression for {field} is not valid: {error}",
            "see the syntax of Python's re module; shield a literal bracket as \\[",
        ) from None
