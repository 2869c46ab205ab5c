"""Fields of events as text and numbers, and the events that meet a pattern."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from critpath.errors import UsageError
from critpath.executions.pattern import TEXT_LIMIT, EventPattern
from critpath.model import I64, Bool, EventClass, Events

Texts = npt.NDArray[np.object_]  # str, or None where the event has no such field


def field_numbers(events: Events, rows: I64, field: str) -> tuple[I64, Bool]:
    """Return an integer field of events, and where it is present."""
    present = np.array([_type(c, field) in {"int", "uint"} for c in events.classes] or [False])
    return events.column(rows, field), present[events.event_class[rows]]


def field_texts(events: Events, rows: I64, field: str) -> Texts:
    """Return a field of events (given by position) as text, None where it is absent."""
    result = np.full(len(rows), None, object)
    of_row = events.event_class[rows]
    for index in np.unique(of_row):
        event_class = events.classes[index]
        kind = _type(event_class, field)
        if kind == "absent":
            continue
        mine = of_row == index
        place = events.offset[rows[mine]] + event_class.fields.index(field)
        # Per distinct value, not per event: most fields have few.
        distinct, inverse = np.unique(events.values[place], return_inverse=True)
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
