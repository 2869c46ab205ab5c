"""Plain-Python twin of the pair-HMM: every alignment of two sequences, one by one."""

from __future__ import annotations

import numpy as np


def every_alignment(n, m):
    """Yield all alignments as lists of steps "M", "X", "Y"; X and Y never side by side."""

    def go(i, j, steps):
        if i == n and j == m:
            yield steps
            return
        before = steps[-1] if steps else ""
        if i < n and j < m:
            yield from go(i + 1, j + 1, [*steps, "M"])
        if i < n and before != "Y":
            yield from go(i + 1, j, [*steps, "X"])
        if j < m and before != "X":
            yield from go(i, j + 1, [*steps, "Y"])

    yield from go(0, 0, [])


def weight(steps, x, y, ratio, gaps):
    """Return the weight of one alignment: short and long gaps are summed over."""
    stay_paired = 1 - 2 * (gaps.open + gaps.long_open)
    kinds = [
        (gaps.open, gaps.extend, gaps.edge),
        (gaps.long_open, gaps.long_extend, gaps.long_edge),
    ]
    result, i, j, at = 1.0, 0, 0, 0
    while at < len(steps):
        if steps[at] == "M":
            result *= ratio[x[i]][y[j]]
            if at and steps[at - 1] == "M":
                result *= stay_paired
            i, j, at = i + 1, j + 1, at + 1
            continue
        end = at
        while end < len(steps) and steps[end] == steps[at]:
            end += 1
        size, edge = end - at, at == 0 or end == len(steps)
        result *= sum(
            (kind[2] if edge else kind[0]) * kind[1] ** (size - 1) * (1 - kind[1]) for kind in kinds
        )
        i, j = (i + size, j) if steps[at] == "X" else (i, j + size)
        at = end
    return result


def posteriors(x, y, ratio, gaps):
    """Return the chance of every pair of letters [len(x), len(y)]."""
    total, result = 0.0, np.zeros((len(x), len(y)))
    for steps in every_alignment(len(x), len(y)):
        if "M" not in steps:
            continue
        mass = weight(steps, x, y, ratio, gaps)
        total += mass
        i = j = 0
        for step in steps:
            if step == "M":
                result[i, j] += mass
            i, j = i + (step != "Y"), j + (step != "X")
    return result / total


def best_sum(scores):
    """Return the largest sum of scores over all ways to pair columns in order."""
    n, m = scores.shape
    best = 0
    for steps in every_alignment(n, m) if n and m else []:
        i = j = total = 0
        for step in steps:
            if step == "M":
                total += int(scores[i, j])
            i, j = i + (step != "Y"), j + (step != "X")
        best = max(best, total)
    return best
