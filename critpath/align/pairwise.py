"""The alignment of two profiles: in a band where it is proven, between anchors where it is long."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

import numpy as np

from critpath.align.dp import (
    GRID,
    HALF_WIDTH,
    MAX_CELLS,
    Band,
    GapCosts,
    band_along,
    band_around,
    certified_half_width,
    is_narrow,
    paired,
    solve,
)
from critpath.align.profiles import LogExpectation, Model, Profile
from critpath.model import F64, I32, I64, U8
from critpath.schema.parameters.align import PROFILES

MOST_PAIRS = 60_000  # technical: whole numbers of 32 bits hold the sum of so many scores
LONG_CELLS = 16_000_000  # technical: 4,000 columns squared
WIDE_BANDS = (256, 512, 1024, 2048, 4096)  # technical: half widths


def align_profiles(
    a: Profile, b: Profile, model: Model, *, known: U8 | None = None, max_cells: int = MAX_CELLS
) -> tuple[float, U8]:
    """Align two profiles optimally.

    A band is looked at where it can be shown that no alignment outside it scores as
    much; so the result is that of the whole programme.  Only above 16 million pairs of
    columns, two shorter ways come before that: a band whose best alignment keeps well
    away from its edges; and pairing first what both surely share (see `anchors`).
    """
    found, half_width = _narrow_band(a, b, model, known, max_cells)
    if found is not None:
        return found
    cells = len(a) * min(2 * half_width if half_width is not None else len(b), len(b))
    if cells > LONG_CELLS:
        found = _wide_band(a, b, model, max_cells)
        if found is not None:
            return found
        pairs = _shared_columns(a, b)
        if len(pairs[0]):
            return _align_between(a, b, model, pairs, max_cells)
    return _solve(a, b, model, _band(a, b, half_width), max_cells)


def _band(a: Profile, b: Profile, half_width: int | None) -> Band | None:
    return None if half_width is None else band_around(len(a), len(b), half_width)


def _solve(
    a: Profile, b: Profile, model: Model, band: Band | None, max_cells: int
) -> tuple[float, U8]:
    """Run the programme, in a band if one is given."""
    gaps = GapCosts(a.open, a.close, b.open, b.close, model.gap_extend)
    expectation = LogExpectation(a, b, model)
    scores: Callable[..., I32 | F64] = expectation
    if min(len(a), len(b)) > MOST_PAIRS:
        scores = lambda *args: expectation(*args) / GRID  # noqa: E731 - sums leave 32 bits
    return solve(scores, gaps, band=band, max_cells=max_cells)


def _narrow_band(
    a: Profile, b: Profile, model: Model, known: U8 | None, max_cells: int
) -> tuple[tuple[float, U8] | None, int | None]:
    """Return the result if a first, narrow band is proven; else a proven band's half width.

    Both are None where a band would leave out too little.
    """
    n, m = len(a), len(b)
    if min(n, m) < PROFILES.band_from or not is_narrow(n, m, HALF_WIDTH):
        return None, None
    if known is None and n * (2 * HALF_WIDTH + abs(n - m)) > LONG_CELLS:
        return None, None
    found = None
    if known is None:
        found = _solve(a, b, model, band_around(n, m, HALF_WIDTH), max_cells)
        least = found[0]
    else:
        gaps = GapCosts(a.open, a.close, b.open, b.close, model.gap_extend)
        least = gaps.of_path(known) + LogExpectation(a, b, model).of_pairs(*paired(known))
    half_width = certified_half_width(
        least, _most_earned(a, b, model), _most_earned(b, a, model), model.gap_extend
    )
    if found is not None and half_width <= HALF_WIDTH:
        return found, None
    return None, half_width if is_narrow(n, m, half_width) else None


def _wide_band(a: Profile, b: Profile, model: Model, max_cells: int) -> tuple[float, U8] | None:
    """Return the best alignment in a band if it keeps a quarter of its half width off the edge."""
    n, m = len(a), len(b)
    for half_width in WIDE_BANDS:
        if not is_narrow(m, m, half_width):
            return None
        found = _solve(a, b, model, band_along(n, m, half_width), max_cells)
        row, column = np.cumsum(found[1] != 2), np.cumsum(found[1] != 1)
        off = int(np.abs(column - row * m // n).max())
        if off <= half_width - half_width // 4:
            return found
    return None


def _most_earned(a: Profile, b: Profile, model: Model) -> F64:
    """Return the most that each column of `a` can score with any column of `b`."""
    letters = b.frequency.any(axis=0)
    # Not by BLAS, which starts threads for thin products.
    ratio = np.einsum("ij,jk->ik", a.frequency, model.ratio[:, letters]).max(axis=1)
    earned = (np.log(np.maximum(ratio, np.exp(PROFILES.log_floor))) + model.centre) * a.occupancy
    # A score on the grid may be half a step above its logarithm.
    return np.asarray(np.maximum(earned, 0) + 1 / GRID)


def _shared_columns(a: Profile, b: Profile) -> tuple[I64, I64]:
    """Return columns of two profiles that surely belong to each other."""
    columns, letters = [], []
    for profile in (a, b):
        full = np.flatnonzero(profile.occupancy >= PROFILES.least_occupancy)
        columns.append(full)
        letters.append(profile.frequency[full].argmax(axis=1).astype(np.uint8))
    first, second = find_anchors(letters[0], letters[1])
    return columns[0][first].astype(np.int64), columns[1][second].astype(np.int64)


def _align_between(
    a: Profile, b: Profile, model: Model, pairs: tuple[I64, I64], max_cells: int
) -> tuple[float, U8]:
    """Align what lies between paired columns, each piece on its own."""
    expectation = LogExpectation(a, b, model)
    score = 0.0
    path: list[U8] = []
    begin_a = begin_b = 0
    anchors = zip(pairs[0].tolist(), pairs[1].tolist(), strict=True)
    for end_a, end_b in [*anchors, (len(a), len(b))]:
        piece = _piece(a, begin_a, end_a), _piece(b, begin_b, end_b)
        found, half_width = _narrow_band(*piece, model, None, max_cells)
        worth, steps = found or _solve(*piece, model, _band(*piece, half_width), max_cells)
        score += worth
        path += [steps, np.zeros(1, np.uint8)]
        begin_a, begin_b = end_a + 1, end_b + 1
    return score + expectation.of_pairs(*pairs), np.concatenate(path[:-1])


def _piece(profile: Profile, first: int, last: int) -> Profile:
    """Return some columns of a profile; gaps at the cuts cost what they cost inside."""
    return Profile(
        profile.frequency[first:last],
        profile.occupancy[first:last],
        profile.open[first:last],
        profile.close[first:last],
    )


# Anchors: what two long sequences surely share.


def find_anchors(a: U8, b: U8) -> tuple[I64, I64]:
    """Return positions in two sequences that belong to each other.

    The middles of words of 12 letters that occur exactly once in either sequence, in
    the longest chain that rises in both; none that shifts the diagonal by more than a
    tenth of the length, and at least 32 apart.
    """
    words_a, at_a = _unique_words(a)
    words_b, at_b = _unique_words(b)
    _, in_a, in_b = np.intersect1d(words_a, words_b, assume_unique=True, return_indices=True)
    first, second = at_a[in_a], at_b[in_b]
    order = np.argsort(first)
    first, second = first[order], second[order]
    chain = _longest_rising(second.tolist())
    most = PROFILES.most_shift * max(len(a), len(b))
    kept: list[int] = []
    x, y = -PROFILES.least_distance, -PROFILES.least_distance
    for i in chain:
        begin, other = int(first[i]), int(second[i])
        near = min(begin - x, other - y) < PROFILES.least_distance
        if not near and abs((other - begin) - (y - x)) <= most:
            kept.append(i)
            x, y = begin, other
    return first[kept] + PROFILES.word // 2, second[kept] + PROFILES.word // 2


def _unique_words(sequence: U8) -> tuple[I64, I64]:
    """Return the words that occur exactly once, as hashes, and where each begins.

    64**12 is more than 64 bits hold, so equal numbers may be unlike words: the chain
    drops them like words that are shared by chance.
    """
    count = len(sequence) - PROFILES.word + 1
    if count < 1:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    codes = np.zeros(count, np.uint64)
    for offset in range(PROFILES.word):
        codes *= np.uint64(0x9E3779B97F4A7C15)
        codes += sequence[offset : offset + count]
    words, at, counts = np.unique(codes, return_index=True, return_counts=True)
    return words[counts == 1].view(np.int64), at[counts == 1].astype(np.int64)


def _longest_rising(values: list[int]) -> list[int]:
    """Return the indices of the longest strictly rising subsequence (patience sorting)."""
    tails: list[int] = []
    ends: list[int] = []  # index of each tail
    before = [-1] * len(values)
    for i, value in enumerate(values):
        at = bisect_left(tails, value)
        before[i] = ends[at - 1] if at else -1
        if at == len(tails):
            tails.append(value)
            ends.append(i)
        else:
            tails[at], ends[at] = value, i
    chain = []
    i = ends[-1] if ends else -1
    while i >= 0:
        chain.append(i)
        i = before[i]
    return chain[::-1]
