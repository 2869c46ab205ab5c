"""Places that two long sequences surely share, so that only what lies between is aligned."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from critpath.model import I64, U8

WORD = 12
# Closer anchors would only add bookkeeping.
LEAST_DISTANCE = 32
# A word that shifts the diagonal by more of the length is elsewhere by chance.
MOST_SHIFT = 0.1


def find_anchors(a: U8, b: U8) -> tuple[I64, I64]:
    """Return positions in two sequences that belong to each other.

    The middles of words of 12 letters that occur exactly once in either sequence, in
    the longest chain that rises in both; none that shifts the diagonal by more than a
    tenth of the length, and at least 32 apart.

    Parameters
    ----------
    a, b : uint8 array
        Letters below 64.

    Returns
    -------
    (int64 array, int64 array)
        Strictly rising positions in `a` and in `b`.
    """
    words_a, at_a = _unique_words(a)
    words_b, at_b = _unique_words(b)
    _, in_a, in_b = np.intersect1d(words_a, words_b, assume_unique=True, return_indices=True)
    first, second = at_a[in_a], at_b[in_b]
    order = np.argsort(first)
    first, second = first[order], second[order]
    chain = _longest_rising(second.tolist())
    most = MOST_SHIFT * max(len(a), len(b))
    kept: list[int] = []
    x, y = -LEAST_DISTANCE, -LEAST_DISTANCE
    for i in chain:
        begin, other = int(first[i]), int(second[i])
        near = min(begin - x, other - y) < LEAST_DISTANCE
        if not near and abs((other - begin) - (y - x)) <= most:
            kept.append(i)
            x, y = begin, other
    return first[kept] + WORD // 2, second[kept] + WORD // 2


def _unique_words(sequence: U8) -> tuple[I64, I64]:
    """Return the words that occur exactly once, as hashes, and where each begins.

    64**12 is more than 64 bits hold, so equal numbers may be unlike words: the chain
    drops them like words that are shared by chance.
    """
    count = len(sequence) - WORD + 1
    if count < 1:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    codes = np.zeros(count, np.uint64)
    for offset in range(WORD):
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
