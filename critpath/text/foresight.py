"""What a recording of two commands in turns will show, while more can be recorded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from critpath.schema.parameters.ab import FORESIGHT
from critpath.schema.parameters.shared import NORMAL
from critpath.units import format_share


def describe_power(before: Sequence[int], after: Sequence[int], planned: int) -> str:
    """Return which difference of whole runs will show when all are recorded, "" if unknown.

    `before`, `after`: how long each run took (ns), in the order of their blocks.  `planned`: runs
    of each, when all are recorded.
    """
    blocks = [math.log(b / a) for a, b in zip(before, after, strict=False) if a > 0 and b > 0]
    if len(blocks) < FORESIGHT.blocks:
        return ""
    middle = median(blocks)
    spread = NORMAL.per_mad * median(abs(block - middle) for block in blocks)
    if not spread:
        return ""
    needed = NORMAL.q995 + NORMAL.q80
    shown = math.expm1(needed * spread / math.sqrt(planned))
    said = f"{planned} blocks: a difference of whole runs of {format_share(shown)} would show"
    if shown <= FORESIGHT.wanted:
        return said
    wanted = math.ceil((needed * spread / math.log1p(FORESIGHT.wanted)) ** 2)
    return f"{said}; record {wanted - planned} more: {format_share(FORESIGHT.wanted)} would show"
