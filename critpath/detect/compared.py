"""How much of the normal set a comparison rests on."""

from __future__ import annotations

from typing import Final

import numpy as np

from critpath.model import I64
from critpath.units import plural

# Beyond this the comparison is about the smaller part of what was given as normal.
_MOST_LEFT: Final = 0.5
_SHOWN: Final = 4


def partly(normal_type: I64, sample_type: I64) -> str:
    """Say so if most normal executions are of types that no sample execution is of.

    Parameters
    ----------
    normal_type : int64 [n]
        Type of every normal execution.
    sample_type : int64 [m]
        The normal type that every sample execution is compared with.

    Returns
    -------
    str
        One sentence, "" where at least half of the normal set takes part.

    Notes
    -----
    Like is compared with like, so normal executions of a type that the sample has not
    take no part, and the mean of the sample is held against those of the others alone.
    That is right for a mix that changed, and up to half of a set it commonly is one: of
    two usual kinds of requests the sample has one.  Where more than half are left out,
    what is called normal in the result is not what the normal set usually does, and the
    likelier reason is that something split it (a few executions with a little UNKNOWN
    time are a type of their own, and the sample is paired with these).
    """
    types, count = np.unique(normal_type, return_counts=True)
    used = np.isin(types, sample_type)
    left = int(count[~used].sum())
    if not used.any() or left <= _MOST_LEFT * len(normal_type):
        return ""
    unused = sorted(
        zip(types[~used].tolist(), count[~used].tolist(), strict=True), key=lambda x: (-x[1], x[0])
    )
    shown = [f"n{kind} ({size:,})" for kind, size in unused[:_SHOWN]]
    beyond = len(unused) - len(shown)
    named = ", ".join(f"n{kind}" for kind in types[used].tolist()[:_SHOWN])
    named += ", ..." * (int(used.sum()) > _SHOWN)
    return (
        f"compared with {len(normal_type) - left:,} of "
        f"{plural(len(normal_type), 'normal execution')} "
        f"(type{'s' * (int(used.sum()) > 1)} {named}): no sample execution is of the "
        f"type{'s' * (len(unused) > 1)} {', '.join(shown)}"
        + (f" and {beyond:,} more" if beyond else "")
    )
