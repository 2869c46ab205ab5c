"""Fields of events as text and numbers, and the events that meet a pattern."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from critpath.errors import UsageError
from critpath.model import I64, Bool, EventClass, Events
from critpath.model.vectors import number_codes
from critpath.records import dataclass
from critpath.units import shorten

# Event patterns: which events begin or end an execution, and the fields they yield.


SYNTAX = "write events:BEGIN,END[,key=FIELD][,label=FIELD]; BEGIN and END are NAME[FIELD=VALUE]..."
# Who an event belongs to, by the contexts that LTTng can add to it.
CONTEXTS = (("vtid",), ("vpid",), ("procname",), ("tid",), ("pid",))

LITERAL = r"write a literal bracket as \[ or \]"

# technical: A regular expression comes from the user, the text from the traced program: what
# one text can cost is bounded by its length, and every distinct text is matched once.
TEXT_LIMIT = 4096
EXPRESSION_LIMIT = 1000  # technical

_CONDITION = re.compile(r"([A-Za-z_][\w.]*)([=~])(.*)", re.DOTALL)


class Condition(Struct, frozen=True):
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


class EventPattern(Struct, frozen=True):
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


Texts = npt.NDArray[np.object_]  # str, or None where the event has no such field


def field_numbers(events: Events, rows: I64, field: str) -> tuple[I64, Bool]:
    """Return an integer field of events, and where it is present."""
    present = np.array([_type(c, field) in {"int", "uint"} for c in events.classes] or [False])
    return events.column(rows, field), present[events.event_class[rows]]


def field_texts(events: Events, rows: I64, field: str) -> Texts:
    """Return a field of events (given by position) as text, None where it is absent."""
    result = np.full(len(rows), None, object)
    of_row = events.event_class[rows]
    for index in np.flatnonzero(np.bincount(of_row)).tolist():
        event_class = events.classes[index]
        kind = _type(event_class, field)
        if kind == "absent":
            continue
        mine = of_row == index
        place = events.offset[rows[mine]] + event_class.fields.index(field)
        # Per distinct value, not per event: most fields have few.
        distinct, inverse = number_codes(events.values[place])
        result[mine] = _texts_of(events, kind, distinct)[inverse]
    return result


def _type(event_class: EventClass, field: str) -> str:
    if field not in event_class.fields:
        return "absent"
    return event_class.types[event_class.fields.index(field)]


def _texts_of(events: Events, kind: str, values: I64) -> Texts:
    views: dict[str, Callable[[], list[Any]]] = {
        "int": values.tolist,
        "uint": values.view(np.uint64).tolist,
        "float": values.view(np.float64).tolist,
        "str": lambda: [events.strings[v] for v in values],
    }
    result = np.empty(len(values), object)
    result[:] = [str(value) for value in views[kind]()]
    return result


@dataclass(frozen=True, eq=False)
class Occurrences:
    """The events that meet a pattern.

    Attributes
    ----------
    rows : int64 [n]
        Positions in the events, ascending.
    parsed : mapping of str to object [n]
        Fields taken out of texts by the pattern's regular expressions.
    notes : tuple of str
    """

    events: Events
    pattern: EventPattern
    rows: I64
    parsed: dict[str, Texts]
    notes: tuple[str, ...] = ()

    def texts(self, field: str) -> Texts:
        """Return a field as text, parsed or recorded; None where absent."""
        if field in self.parsed:
            return self.parsed[field]
        return field_texts(self.events, self.rows, field)

    def numbers(self, field: str) -> tuple[I64, Bool] | None:
        """Return a field's integers, and where it is present; None if it may be anything else."""
        kinds = {_type(of, field) for of in self.events.classes if of.name == self.pattern.name}
        if field in self.parsed or not kinds <= {"int", "absent"}:
            return None
        return field_numbers(self.events, self.rows, field)

    def take(self, rows: I64) -> Occurrences:
        """Return some of the events."""
        parsed = {name: column[rows] for name, column in self.parsed.items()}
        return replace(self, rows=self.rows[rows], parsed=parsed)

    def has(self, field: str) -> bool:
        """Tell whether the pattern parses or any class of the events records a field."""
        return field in self.pattern.parsed or has_field(self.events, self.pattern.name, field)


def has_field(events: Events, name: str, field: str) -> bool:
    """Tell whether any event class of a name has a field."""
    return any(_type(c, field) != "absent" for c in events.classes if c.name == name)


def find_occurrences(events: Events, pattern: EventPattern) -> Occurrences:
    """Find the events that meet a pattern."""
    rows = events.rows(pattern.name)
    keep = np.ones(len(rows), np.bool_)
    parsed = {name: np.full(len(rows), None, object) for name in sorted(pattern.parsed)}
    notes = []
    for condition in pattern.conditions:
        if len(rows) and not has_field(events, pattern.name, condition.field):
            raise UsageError(
                f"{pattern.name} has no field {condition.field}",
                "name one of its own fields or contexts (babeltrace2 prints them)",
            )
        texts = field_texts(events, rows, condition.field)
        results = {t: condition.match(t) for t in set(texts.tolist()) if t is not None}
        keep &= np.array([results.get(t) is not None for t in texts], np.bool_)
        for place in np.flatnonzero(keep):
            for name, value in (results[texts[place]] or {}).items():
                parsed[name][place] = value
        cut = sum(len(t) > TEXT_LIMIT for t in results) if condition.expression else 0
        if cut:
            notes.append(
                f"{pattern.name}: {cut} texts of {condition.field} are longer than "
                f"{TEXT_LIMIT} characters; the regular expression saw no more of them"
            )
    return Occurrences(
        events,
        pattern,
        rows[keep],
        {name: column[keep] for name, column in parsed.items()},
        tuple(notes),
    )
