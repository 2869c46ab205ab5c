"""Plain-Python twins of the alignment's native loops, written from the recurrences."""

from __future__ import annotations

from itertools import product

NONE = float("-inf")
MATCH, DELETE, INSERT = 0, 1, 2


def solve(scores, open_a, close_a, open_b, close_b, extend):
    """Return the best score and its path, by the three-state recurrences."""
    n, m = len(open_a), len(open_b)
    best = [[[NONE] * 3 for _ in range(m + 1)] for _ in range(n + 1)]
    back = [[[MATCH] * 3 for _ in range(m + 1)] for _ in range(n + 1)]
    best[0][0][MATCH] = 0.0

    def put(i, j, state, choices, gain):
        # choices in order of preference: the first of equals wins
        score, came = choices[0]
        for other, state_before in choices[1:]:
            if other > score:
                score, came = other, state_before
        best[i][j][state] = score + gain
        back[i][j][state] = came

    for i, j in product(range(n + 1), range(m + 1)):
        if i and j:
            m0, d0, i0 = best[i - 1][j - 1]
            close_d = close_a[i - 2] if i > 1 else 0.0
            close_i = close_b[j - 2] if j > 1 else 0.0
            choices = [(m0, MATCH), (d0 + close_d, DELETE), (i0 + close_i, INSERT)]
            put(i, j, MATCH, choices, scores[i - 1][j - 1])
        if i:
            m0, d0, i0 = best[i - 1][j]
            close_i = close_b[j - 1] if j else 0.0
            opening = open_a[i - 1]
            choices = [(m0 + opening, MATCH), (d0, DELETE), (i0 + close_i + opening, INSERT)]
            put(i, j, DELETE, choices, extend)
        if j:
            m0, _, i0 = best[i][j - 1]
            put(i, j, INSERT, [(m0 + open_b[j - 1], MATCH), (i0, INSERT)], extend)
    m0, d0, i0 = best[n][m]
    ends = [m0, d0 + (close_a[-1] if n else 0.0), i0 + (close_b[-1] if m else 0.0)]
    score = max(ends)
    state = ends.index(score)
    path = []
    i, j = n, m
    while i or j:
        path.append(state)
        before = back[i][j][state]
        i -= state != INSERT
        j -= state != DELETE
        state = before
    return score, path[::-1]


def path_score(path, scores, open_a, close_a, open_b, close_b, extend):
    """Return what a path is worth, from its gaps rather than by recurrence."""
    i = j = 0
    total = 0.0
    for place, step in enumerate(path):
        starts = place == 0 or path[place - 1] != step
        ends = place == len(path) - 1 or path[place + 1] != step
        if step == MATCH:
            total += scores[i][j]
        elif step == DELETE:
            total += extend + starts * open_a[i] + ends * close_a[i]
        else:
            total += extend + starts * open_b[j] + ends * close_b[j]
        i += step != INSERT
        j += step != DELETE
    return total


def all_paths(n, m):
    """Yield every path through n and m columns (a gap of A's never before one of B's)."""
    if n == 0 and m == 0:
        yield []
        return
    if n and m:
        for rest in all_paths(n - 1, m - 1):
            yield [*rest, MATCH]
    if n:
        for rest in all_paths(n - 1, m):
            yield [*rest, DELETE]
    if m:
        for rest in all_paths(n, m - 1):
            if not rest or rest[-1] != DELETE:
                yield [*rest, INSERT]


def pair_score(a, b, log_ratio, gap_open, extend, centre):
    """Return the score of two aligned rows, gaps at an end paying half."""
    columns = [(x, y) for x, y in zip(a, b, strict=True) if x >= 0 or y >= 0]
    kinds = [MATCH if x >= 0 and y >= 0 else DELETE if x >= 0 else INSERT for x, y in columns]
    total = sum(log_ratio[x][y] + centre for x, y in columns if x >= 0 and y >= 0)
    for state, of in ((DELETE, 0), (INSERT, 1)):
        places = [c for c, column in enumerate(columns) if column[of] >= 0]
        for place, kind in enumerate(kinds):
            if kind != state:
                continue
            total += extend
            begins = place == 0 or kinds[place - 1] != state
            stops = place == len(kinds) - 1 or kinds[place + 1] != state
            total += gap_open / 2 * (begins and place != places[0])
            total += gap_open / 2 * (stops and place != places[-1])
    return total


def sum_of_pairs(rows, weights, log_ratio, gap_open, extend, centre):
    """Return the weighted sum over all pairs of rows."""
    return sum(
        weights[i] * weights[j] * pair_score(rows[i], rows[j], log_ratio, gap_open, extend, centre)
        for i in range(len(rows))
        for j in range(i + 1, len(rows))
    )
