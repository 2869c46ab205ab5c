"""What the names of calls say of who holds a connection: transactions, and what puts it back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

import numpy as np

from critpath.model import I64, U8, Bool


class Holds(IntEnum):
    """What a call says of its connection."""

    NOTHING = 0
    BEGIN = 1  # from here on it is one request's
    END = 2  # until here it was
    RESET = 3  # a pool puts it back as it was: until here it was one request's


_SAYS: Final = (
    (
        Holds.RESET,
        re.compile(r"SELECT pg_advisory_unlock_all|DISCARD ALL|RESET ALL", re.IGNORECASE),
    ),
    (Holds.BEGIN, re.compile(r"(BEGIN|START TRANSACTION|MULTI|WATCH)\b", re.IGNORECASE)),
    (Holds.END, re.compile(r"(COMMIT|END|ROLLBACK(?! TO)|EXEC|DISCARD)\b", re.IGNORECASE)),
)


def read_holds(names: Sequence[str]) -> U8:
    """Return what each name says."""
    found = [next((says for says, of in _SAYS if of.match(name)), 0) for name in names]
    return np.array(found, np.uint8)


def find_holds(endpoint: I64, begin: I64, says: U8, opens: Bool) -> I64:
    """Return the first call of the time that each call's connection is held for one request.

    Itself where nothing is said.
    """
    first = np.arange(len(endpoint))
    resets = set(np.unique(endpoint[says == Holds.RESET]).tolist())
    head: dict[int, int] = {}
    opened: dict[int, int] = {}
    order = np.lexsort((begin, endpoint))
    columns = (order, endpoint[order], says[order], opens[order])
    for row, of, said, opening in zip(*(c.tolist() for c in columns), strict=True):
        first[row] = at = head.get(of, opened.pop(of, row))
        if said in {Holds.END, Holds.RESET}:
            # A pool puts back after each use: what is between two of these is one.
            if said == Holds.RESET or of not in resets:
                head.pop(of, None)
        elif said == Holds.BEGIN or of in resets:
            head[of] = at
        elif opening:
            opened[of] = at
    return first
