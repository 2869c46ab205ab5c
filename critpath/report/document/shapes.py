"""A small language for the shape of documents, and the check of a value against one.

A shape is a type (JSON's true is no number); a tuple of shapes of which one must fit; a list
with the shape of its items; `Items` where their number is limited; `Choice` for one of some
texts; `Each` for a mapping from any text to one shape; `Named` for one that has a name in the
published schema; or a dict of keys.  The value of a key is a shape, or a `Field`, which says what
it means and whether it must be there.  More keys are always welcome: newer minor versions add
some.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

NONE: Final = type(None)
NUMBER: Final = (int, float)
MAYBE: Final = (int, float, NONE)
TEXTS: Final = [str]
WHOLE: Final = (int, NONE)


class Invalid(Exception):  # noqa: N818 - never seen outside; as_json turns it into an error
    """A document is not of its shape; says where and what is wrong."""


@dataclass(frozen=True)
class Field:
    """A key of an object.

    Attributes
    ----------
    shape : shape
    meaning : str
        One sentence without its full stop.
    optional : bool
        It need not be there: the first files of this version have none.
    """

    shape: Any
    meaning: str
    optional: bool = False


@dataclass(frozen=True)
class Each:
    """A mapping from any text to values of one shape."""

    shape: Any


@dataclass(frozen=True)
class Choice:
    """One of some texts."""

    values: tuple[str, ...]


@dataclass(frozen=True)
class Items:
    """A list of at least and at most so many items."""

    shape: Any
    least: int
    most: int | None = None


@dataclass(frozen=True)
class Named:
    """A shape with a name: defined once in the published schema."""

    name: str
    shape: Any


def fields(shape: Any, *named: tuple[str, str], optional: bool = False) -> dict[str, Field]:
    """Return keys of one shape, each with its meaning."""
    return {name: Field(shape, meaning, optional) for name, meaning in named}


def check(value: Any, shape: Any, place: str = "document") -> None:
    """Raise `Invalid` where a value does not have a shape.

    Parameters
    ----------
    value : JSON value
    shape : shape
        As the module describes.
    place : str
        Where the value stands, for the message.
    """
    if isinstance(shape, Named):
        check(value, shape.shape, place)
    elif isinstance(shape, dict):
        expect(isinstance(value, dict), place, "an object")
        for key, inner in shape.items():
            _check_key(value, key, inner, place)
    elif isinstance(shape, list):
        expect(isinstance(value, list), place, "a list")
        _check_all(value, shape[0], place)
    elif isinstance(shape, Items):
        most = len(value) if isinstance(value, list) and shape.most is None else shape.most
        sized = isinstance(value, list) and most is not None and shape.least <= len(value) <= most
        expect(sized, place, f"a list of {_amount(shape)}")
        _check_all(value, shape.shape, place)
    elif isinstance(shape, Each):
        expect(isinstance(value, dict), place, "an object")
        _check_all(value.values(), shape.shape, place)
    elif isinstance(shape, Choice):
        expect(isinstance(value, str) and value in shape.values, place, _listed(shape.values))
    elif isinstance(shape, tuple):
        _one_of(value, shape, place)
    else:
        expect(_is(value, shape), place, f"{shape.__name__}")


def expect(holds: bool, place: str, wanted: str) -> None:
    """Raise `Invalid` unless something holds."""
    if not holds:
        raise Invalid(f"{place} lacks or is not {wanted}")


def _check_key(value: dict[str, Any], key: str, inner: Any, place: str) -> None:
    field = inner if isinstance(inner, Field) else Field(inner, "")
    if field.optional and key not in value:
        return
    expect(key in value, place, f"a key {key!r}")
    check(value[key], field.shape, f"{place}.{key}")


def _check_all(values: Iterable[Any], shape: Any, place: str) -> None:
    if isinstance(shape, type):
        # Matrices: a million numbers, of which nobody needs to know which is wrong.
        expect(all(_is(value, shape) for value in values), place, f"all {shape.__name__}")
        return
    for i, item in enumerate(values):
        check(item, shape, f"{place}[{i}]")


def _one_of(value: Any, shapes: tuple[Any, ...], place: str) -> None:
    simple = [s for s in shapes if isinstance(s, type)]
    if any(_is(value, s) for s in simple):
        return
    for shape in shapes:
        if not isinstance(shape, type):
            check(value, shape, place)
            return
    expect(False, place, " or ".join(s.__name__ for s in simple))


def _is(value: Any, wanted: type) -> bool:
    # JSON's true is no number, though Python's is.
    return isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool))


def _amount(shape: Items) -> str:
    if shape.least == shape.most:
        return str(shape.least)
    return f"{shape.least} or more" if shape.most is None else f"{shape.least} to {shape.most}"


def _listed(values: tuple[str, ...]) -> str:
    return f"one of {', '.join(values)}"
