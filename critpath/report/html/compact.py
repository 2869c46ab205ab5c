"""Columns of figures as short texts, for pages that carry hundreds of thousands.

One character stands for a symbol, a few for a duration: a binary floating point of
our own, whole nanoseconds while they are small.  Only whole numbers are computed
with, so that every machine writes the same page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

# Printable ASCII that neither JSON nor HTML escapes, less the sign of a gap.
_EXCLUDED: Final = frozenset("\"\\<>&'. ")
ALPHABET: Final = "".join(c for c in map(chr, range(33, 127)) if c not in _EXCLUDED)
_GAP: Final = "."
# Symbols beyond the alphabet: letters of Latin Extended, two bytes each.
_BEYOND: Final = 0x100

# Characters of a duration and the bits of its mantissa: within 0.4 % and 0.01 %.
ROUGH: Final = (2, 7)
FINE: Final = (3, 13)
_SHARES: Final = 7000


def pack_symbols(codes: Iterable[int]) -> str:
    """Return symbol codes as one character each, ``.`` for a gap (-1)."""
    size = len(ALPHABET)
    return "".join(
        _GAP if code < 0 else ALPHABET[code] if code < size else chr(_BEYOND + code - size)
        for code in codes
    )


def pack_durations(values: Sequence[float | None], form: tuple[int, int]) -> str:
    """Return durations (ns, None where there is none) in characters of `ALPHABET`.

    Parameters
    ----------
    values : sequence of float or None
        Not negative.
    form : (int, int)
        `ROUGH` or `FINE`.
    """
    import numpy as np  # noqa: PLC0415 - start-up: only pages need it here

    width, bits = form
    known = np.array([value is not None for value in values], np.bool_)
    whole = np.array([0 if value is None else min(int(value), 2**62) for value in values], np.int64)
    # frexp may round a large value up to the next power of two, and then the mantissa
    # is one short: the level is still the same on every machine, and as near.
    exponent = np.maximum(np.frexp(whole.astype(np.float64))[1] - (bits + 1), 0).astype(np.int64)
    level = np.where(known, 1 + (exponent << bits) + (whole >> exponent), 0)
    return _digits(level, width)


def pack_shares(values: Sequence[float | None]) -> str:
    """Return shares between 0 and 1 (None where undefined), two characters each."""
    import numpy as np  # noqa: PLC0415 - start-up: only pages need it here

    bounded = [0 if v is None else 1 + round(_SHARES * min(max(v, 0.0), 1.0)) for v in values]
    return _digits(np.array(bounded, np.int64), 2)


def _digits(level: Any, width: int) -> str:
    import numpy as np  # noqa: PLC0415 - start-up: only pages need it here

    letters = np.frombuffer(ALPHABET.encode("ascii"), np.uint8)
    places = len(ALPHABET) ** np.arange(width - 1, -1, -1, dtype=np.int64)
    return str(letters[level[:, None] // places % len(ALPHABET)].tobytes().decode("ascii"))


def runs(values: Iterable[int]) -> list[int]:
    """Return values and how often each occurs in a row, flat: ``[5, 5, 7]`` is ``[5, 2, 7, 1]``."""
    result: list[int] = []
    for value in values:
        if result and result[-2] == value:
            result[-1] += 1
        else:
            result += [value, 1]
    return result
