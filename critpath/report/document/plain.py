"""Values as JSON can hold them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

_ALREADY: Final = frozenset({str, int, bool, type(None)})


def number(value: float | None) -> float | int | None:
    """Return a figure as JSON can hold it: None where it is undefined or infinite."""
    if value is None or not math.isfinite(value):
        return None
    return value if isinstance(value, int) else float(value)


def plain(value: Any) -> Any:
    """Return settings as JSON holds them; what JSON has no type for becomes text."""
    if type(value) in _ALREADY:  # most are, and there may be a million
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = [plain(item) for item in value]
        return sorted(items, key=repr) if isinstance(value, set | frozenset) else items
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int | float):
        return number(value)
    return value if value is None else str(value)
