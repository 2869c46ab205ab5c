"""What a function returned as lines of facts, for golden files: names, states and numbers."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np

from critpath.model.details import Detail, word_detail
from critpath.schema.notes import Note
from critpath.text.notes import word

DIGITS = 7  # what linear algebra adds up in another order agrees in more
NOTHING = 1e-8
MOST = 40  # numbers of a row that are listed; longer ones are told by sums
WORDS = 2  # a longer text is a sentence: its numbers are facts
# A field of a record that says no more than that is not listed.
EMPTY = frozenset({"''", "none", "nan", "no"})


def _number(value: float) -> str:
    # What should be nothing is next to nothing where sums are added up in another order.
    return "0" if abs(value) < NOTHING else f"{float(value):.{DIGITS}g}"


def _scalar(value: object) -> str | None:
    """Return a value without parts as text."""
    if value is None or isinstance(value, bool | np.bool_):
        return {None: "none", True: "yes", False: "no"}[None if value is None else bool(value)]
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, int | float | Fraction | np.integer | np.floating):
        return _number(float(value))
    if isinstance(value, str):
        few = len(value.split()) <= WORDS
        return repr(value) if few else "#" + ",".join(re.findall(r"\d[\d.,]*", value))
    if isinstance(value, Detail):
        return _scalar(word_detail(value))
    if isinstance(value, Note):
        return _scalar(word(value))
    if type(value).__name__ == "Symbol":
        return str(value.name)  # type: ignore[attr-defined]  # as its type says
    return None


def _row(values: np.ndarray) -> str:
    numbers = values.astype(np.float64)
    if len(numbers) <= MOST:
        return "[" + " ".join(map(_number, numbers.tolist())) + "]"
    known = np.where(np.isfinite(numbers), numbers, -1.0)
    places = 1.0 + np.arange(len(known)) % 97
    return f"{len(known)} of sum {_number(known.sum())}, {_number((known * places).sum())}"


def _array(name: str, value: np.ndarray) -> Iterator[str]:
    if value.ndim < 2:
        yield f"{name} = {_row(value.reshape(-1))}"
        return
    yield f"{name}.shape = {value.shape}"
    rows = value.reshape(-1, value.shape[-1])[:MOST] if value.size else ()
    for place, row in enumerate(rows):
        yield f"{name}[{place}] = {_row(row)}"


def _record(name: str, value: Any) -> Iterator[str]:
    """Yield what has no parts on one line, then the rest."""
    named = getattr(value, "__struct_fields__", None)
    fields = named or [f.name for f in dataclasses.fields(value) if not f.name.startswith("_")]
    fields = [f for f in fields if f != "qualifier"]  # which `detail` words
    plain = {f: text for f in fields if (text := _scalar(getattr(value, f))) is not None}
    if named and "state" in plain:  # a name in a document
        plain["state"] = plain["state"].strip("'")
    yield f"{name}: " + " ".join(f"{f}={text}" for f, text in plain.items() if text not in EMPTY)
    for field in fields:
        each = getattr(value, field)
        if field not in plain and (isinstance(each, np.ndarray) or each):
            yield from list_facts(f"{name}.{field}", each)


def list_facts(name: str, value: Any) -> Iterator[str]:
    """Yield ``name = fact`` for every part of a value."""
    if (text := _scalar(value)) is not None:
        yield f"{name} = {text}"
    elif isinstance(value, np.ndarray):
        yield from _array(name, value)
    elif dataclasses.is_dataclass(value) or hasattr(value, "__struct_fields__"):
        yield from _record(name, value)
    elif isinstance(value, Mapping):
        pairs = [(_scalar(key) or repr(key), each) for key, each in value.items()]
        for key, each in sorted(pairs, key=lambda pair: pair[0]):
            yield from list_facts(f"{name}[{key}]", each)
    elif isinstance(value, set | frozenset):
        yield f"{name} = {{{' '.join(sorted(str(_scalar(each)) for each in value))}}}"
    else:
        parts = list(value)
        texts = [_scalar(each) for each in parts]
        if all(text is not None for text in texts):
            yield f"{name} = ({' '.join(map(str, texts))})"
        else:
            for place, each in enumerate(parts):
                yield from list_facts(f"{name}[{place}]", each)


def text_of(facts: Mapping[str, Any]) -> str:
    """Return the facts of named values, a line each."""
    return "".join(f"{line}\n" for name, value in facts.items() for line in list_facts(name, value))
