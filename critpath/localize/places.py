"""Where along the columns a symbol's excess lies."""

from __future__ import annotations

from critpath.model import F64, I64

ENOUGH = 0.95  # stop adding stretches once they hold this share of the net
NOISE = 0.1  # a stretch with less of the net is noise ...
CRUMB = 0.02  # ... but where the group never has the symbol there is none
TRUSTED = (0.5, 1.5)  # share of the net a place must hold to stand for the symbol


def maximal_stretches(scores: F64) -> list[tuple[int, int]]:
    """Return all maximal scoring stretches (Ruzzo and Tompa 1999), in linear time.

    Parameters
    ----------
    scores : float64 [n]

    Returns
    -------
    list of (first, last)
        Half-open, disjoint, in order: the stretch with the largest sum, and in what
        is left of it and right of it again the one with the largest sum, and so on.
    """
    # Each: first, last, sum before its first score, sum up to its last.
    stack: list[tuple[int, int, float, float]] = []
    total = 0.0
    for place, score in enumerate(scores.tolist()):
        before, total = total, total + score
        if score <= 0:
            continue
        first, left, right = place, before, total
        while True:
            lower = len(stack) - 1
            while lower >= 0 and stack[lower][2] >= left:
                lower -= 1
            if lower < 0 or stack[lower][3] >= right:
                break
            first, left = stack[lower][0], stack[lower][2]
            del stack[lower:]
        stack.append((first, place + 1, left, right))
    return [(first, last) for first, last, _, _ in stack]


def find_place(values: I64, *, unseen: bool = False) -> tuple[int, int] | None:
    """Find the stretch of columns that holds most of a symbol's net difference.

    Every column is first charged a quarter of the mean difference per column, so
    that a stretch ends where the difference does.  Stretches are then taken from
    the largest until they hold 95 % of the net or the next is less than a tenth of
    it (2 % if `unseen`); the place runs from the first to the last of them.

    Parameters
    ----------
    values : int64 [n]
        Difference in every column where anyone has the symbol.
    unseen : bool
        Only the anomalous row has it.

    Returns
    -------
    (first, last), half-open, or None
        None where the difference is spread so that no place stands for it: what the
        best one holds is less than half, or more than one and a half, of the net.
    """
    net = int(values.sum())
    if net == 0:
        return None
    signed = values * (1 if net > 0 else -1)
    size = abs(net)
    charged: F64 = signed.astype(float) - size / (4 * len(values))
    stretches = maximal_stretches(charged)
    sums = [int(signed[first:last].sum()) for first, last in stretches]
    least = (CRUMB if unseen else NOISE) * size
    low, high = len(values), 0
    for index in sorted(range(len(sums)), key=lambda i: (-sums[i], i)):
        held = int(signed[low:high].sum()) if low < high else 0
        if low < high and (held >= ENOUGH * size or sums[index] < least):
            break
        low, high = min(low, stretches[index][0]), max(high, stretches[index][1])
    if low >= high:
        return None
    held = int(signed[low:high].sum())
    if not TRUSTED[0] * size <= held <= TRUSTED[1] * size:
        return None
    return low, high
