"""What values settings take, from text or TOML: every parser says what it wants."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final


class WrongValueError(ValueError):
    """A value is not what its message says it should be."""


def as_bool(value: Any) -> bool:
    """Accept true and false."""
    if not isinstance(value, bool):
        raise WrongValueError("true or false")
    return value


def as_text(value: Any) -> str:
    """Accept a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise WrongValueError("a text")
    return value


def one_of(*choices: str) -> Callable[[Any], str]:
    """Accept one of some words."""

    def parse(value: Any) -> str:
        if value not in choices:
            raise WrongValueError(" or ".join(choices))
        return str(value)

    return parse


def number(low: float, high: float, what: str) -> Callable[[Any], float]:
    """Accept a finite number within ``(low, high]``, or a percentage of 1."""

    def parse(value: Any) -> float:
        text = "" if isinstance(value, bool) else str(value).strip()
        try:
            result = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            raise WrongValueError(what) from None
        if not (math.isfinite(result) and low < result <= high):
            raise WrongValueError(what)
        return result

    return parse


def share(most: float, what: str) -> Callable[[Any], float]:
    """Accept a share from 0 to below 1, or a percentage up to ``most`` wholes.

    A bare 10 could be meant as 10 % or as ten times: it is refused with the question.
    """
    parse = number(-1e-300, most, what)  # 0 is within

    def parse_share(value: Any) -> float:
        result = parse(value)
        if result >= 1 and not str(value).strip().endswith("%"):
            raise WrongValueError(f'a share below 1 or a percentage: did you mean "{result:g}%"?')
        return result

    return parse_share


def whole(low: int, high: int) -> Callable[[Any], int]:
    """Accept a whole number within ``[low, high]``."""

    def parse(value: Any) -> int:
        what = f"a whole number from {low:,} to {high:,}"
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise WrongValueError(what)
        text = str(value).strip()
        if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
            raise WrongValueError(what)
        return int(text)

    return parse


def auto_or(parse: Callable[[Any], float]) -> Callable[[Any], float | None]:
    """Accept ``auto`` (None) besides."""

    def parse_auto(value: Any) -> float | None:
        if value is None or value == "auto":
            return None
        try:
            return parse(value)
        except WrongValueError as error:
            raise WrongValueError(f"auto or {error}") from None

    return parse_auto


_SIZES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def as_size(value: Any) -> int:
    """Accept bytes, or a whole number of KiB, MiB or GiB: ``512k``, ``8M``."""
    what = "a size such as 8M (k, M and G are powers of 1024)"
    found = re.fullmatch(r"(\d{1,15})\s*([kmg]?)(?:i?b)?", str(value).strip().lower(), re.ASCII)
    if isinstance(value, bool) or found is None:
        raise WrongValueError(what)
    size = int(found[1]) * _SIZES[found[2]]
    if size > 1 << 40:
        raise WrongValueError(what)
    return size


def as_name(value: Any) -> str:
    """Accept a name of letters, digits, ``-`` and ``_``."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][\w-]{0,63}", value, re.ASCII):
        raise WrongValueError("a name of letters, digits, - and _")
    return value


LEVELS: Final = ("off", "warn", "error")
TOTAL: Final = "total"


def as_level(value: Any) -> tuple[str, str]:
    """Accept ``PATTERN=LEVEL``: states (or the total), and how much they matter.

    Returns
    -------
    (str, str)
        The pattern and the level, both known to be good.
    """
    pattern, _, level = str(value).rpartition("=")
    if not pattern or level not in LEVELS:
        raise WrongValueError("STATE=LEVEL with a level of off, warn or error, as WAIT_CPU=warn")
    check_pattern(pattern)
    return pattern, level


def as_levels(value: Any) -> tuple[tuple[str, str], ...]:
    """Accept a table from patterns of states to levels."""
    if not isinstance(value, dict):
        raise WrongValueError('a table such as { WAIT_CPU = "warn" }')
    for pattern, level in value.items():
        if level not in LEVELS:
            raise WrongValueError(f"off, warn or error for {pattern}")
        check_pattern(pattern)
    return tuple(value.items())


def check_pattern(pattern: str) -> None:
    """Refuse a pattern of a state that there is not.

    Raises
    ------
    WrongValueError
    """
    from fnmatch import fnmatchcase  # noqa: PLC0415 - start-up time, and rarely needed

    from critpath.model import State  # noqa: PLC0415 - numpy

    state, at, _ = pattern.partition("@")
    known = [s.name for s in State] if at else [*(s.name for s in State), TOTAL]
    if any(fnmatchcase(name, state) for name in known):
        return
    import difflib  # noqa: PLC0415 - as above

    near = difflib.get_close_matches(state.upper(), known, n=1, cutoff=0.5)
    listed = f"did you mean {near[0]}{at}?" if near else f"the states are {', '.join(known)}"
    raise WrongValueError(f"about a state: there is no state {state!r}, {listed}")
