"""What every document is made of: parts that say what their keys mean, and figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import replace

# A whole number stays one when a file is read and written again.
Number = int | float
Maybe = int | float | None
if TYPE_CHECKING:
    # What a stage always has and calculates with; others' files may have null for it.
    Figure = float
else:
    Figure = Maybe
Pair = Annotated[list[Number], Meta(min_length=2, max_length=2)]
MaybePair = Annotated[list[Maybe], Meta(min_length=2, max_length=2)]
Span = Annotated[list[int], Meta(min_length=2, max_length=2)]
SetName = Literal["normal", "sample"]
# Whatever a setting is, as JSON holds it.
Settings = dict[str, Any]


def doc(meaning: str) -> Meta:
    """Return what a key means, in a line, for the schema."""
    return Meta(description=meaning)


class Part(Struct, gc=False):
    """A part of a document: nothing in it can refer back to it."""


SomePart = TypeVar("SomePart", bound=Part)


def change(part: SomePart, **values: Any) -> SomePart:
    """Return a part with other values of some keys."""
    return replace(part, **values)


def number(value: float | None) -> Figure:
    """Return a figure as JSON can hold it: None where it is undefined or infinite."""
    if value is None or not math.isfinite(value):
        return None  # type: ignore[return-value]  # see `Figure`
    return value if isinstance(value, int) else float(value)


def as_float(value: float | None) -> float:
    """Return a figure to calculate with: NaN where it is undefined."""
    return math.nan if value is None else value


_ALREADY: Final = frozenset({str, int, bool, type(None)})


def plain(value: Any) -> Any:
    """Return settings as JSON holds them; what JSON has no type for becomes text."""
    if type(value) in _ALREADY:  # most are, and there may be a million
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = [plain(item) for item in value]
        return sorted(items, key=repr) if isinstance(value, set | frozenset) else items
    if hasattr(value, "item"):  # a scalar of numpy
        value = value.item()
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return number(value)
    return value if value is None else str(value)


def narrow(kind: type[SomePart], source: SomePart, **own: Any) -> SomePart:
    """Return a part without what a stage's own type adds to it, and with other values."""
    return kind(**{name: getattr(source, name) for name in kind.__struct_fields__} | own)


def fill(kind: type[SomePart], source: object, **own: Any) -> SomePart:
    """Return a part whose keys are what a stage found under the same names, and its own ones."""
    names = [name for name in kind.__struct_fields__ if name not in own and hasattr(source, name)]
    return kind(**{name: plain(getattr(source, name)) for name in names}, **own)
