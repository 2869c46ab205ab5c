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


def long_posteriors(x, y, ratio, gaps):
    """Return what `posteriors` does, for sequences of any length, by sums of logarithms."""
    n, m, add = len(x), len(y), np.logaddexp
    log = np.log(np.asarray(ratio, float))[np.asarray(x)[:, None], np.asarray(y)[None, :]]
    kinds = [
        (np.log(opened * (1 - stay)), np.log(edge * (1 - stay)), np.log(stay))
        for opened, stay, edge in (
            (gaps.open, gaps.extend, gaps.edge),
            (gaps.long_open, gaps.long_extend, gaps.long_edge),
        )
    ]
    pair = np.log(1 - 2 * (gaps.open + gaps.long_open))

    def edge(size):  # of a gap at an end; 0 for none
        if size == 0:
            return 0.0
        return np.logaddexp.reduce([at_edge + (size - 1) * stay for _, at_edge, stay in kinds])

    def before(log):
        """Return the sum over all ways to reach and make every pair, and their matches after."""
        match = np.full((n, m), -np.inf)
        down = [np.full(m, -np.inf) for _ in kinds]
        columns = np.arange(m)
        for i in range(n):
            reach = np.full(m, -np.inf)
            reach[0] = edge(i)
            if i == 0:
                reach = np.array([edge(j) for j in range(m)])
            else:
                # From row i - 1, column j - 1, across gaps in either sequence.
                go_on = match[i - 1] + pair
                for k, (opened, _, stay) in enumerate(kinds):
                    so_far = np.logaddexp.accumulate(match[i - 1] - columns * stay)
                    across = np.full(m, -np.inf)
                    across[1:] = opened + so_far[:-1] + (columns[1:] - 1) * stay
                    go_on = add(go_on, add(across, down[k]))
                    down[k] = add(opened + match[i - 1], stay + down[k])
                reach[1:] = add(reach[1:], go_on[:-1])
            match[i] = reach + log[i]
        return match

    there = before(log)
    back = before(log[::-1, ::-1])[::-1, ::-1]
    ends = [there[n - 1, j] + edge(m - 1 - j) for j in range(m)]
    ends += [there[i, m - 1] + edge(n - 1 - i) for i in range(n - 1)]
    return np.exp(there + back - log - np.logaddexp.reduce(ends))
