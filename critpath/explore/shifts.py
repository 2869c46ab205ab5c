"""What chance shows: the same selection, turned along time against what executions have.

Executions that are near in time share what happened then; each test by itself, or labels in
random order, would find differences where there are none.  A selection that is turned as a whole
keeps how it clumps.  All groups (services, labels, recordings) are turned by the same share of
their lengths: requests and their sub-requests are selected together, and would not be any more if
each group were turned by itself.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from critpath.explore._bits import common, largest_differences
from critpath.model import F64, I32, I64, Bool
from critpath.model.exploration import FEWEST_WITH
from critpath.schema.parameters.explore import CONDITIONS
from critpath.schema.parameters.shared import EVEN

U64 = npt.NDArray[np.uint64]
_THREADS: Final = 2  # technical
_LARGE: Final = 1 << 28  # technical: words to be counted from which on a second thread pays


@dataclass(frozen=True, eq=False)
class BitPlaces:
    """Where executions stand among bits: group by group, each from a whole word on.

    Attributes
    ----------
    bit : int64 [n]
        Of every execution, in the order of the groups.
    lengths : int64 [groups]
        Executions.
    words_at : int64 [groups + 1]
    """

    bit: I64
    lengths: I64
    words_at: I64

    @property
    def words(self) -> int:
        """Words of a set."""
        return int(self.words_at[-1])

    def pack(self, members: Bool) -> U64:
        """Return a set as bits."""
        spread = np.zeros(self.words * 64, np.bool_)
        spread[self.bit[members]] = True
        return np.packbits(spread, bitorder="little").view("<u8").astype(np.uint64, copy=False)


def place_groups(lengths: I64) -> BitPlaces:
    """Return where executions stand that are sorted by group."""
    words_at = np.concatenate([[0], np.cumsum(-(-lengths // 64))]).astype(np.int64)
    first = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    total = int(lengths.sum())
    bit = np.arange(total) + np.repeat(words_at[:-1] * 64 - first, lengths)
    return BitPlaces(bit.astype(np.int64), lengths, words_at)


def shifts_of(lengths: I64) -> tuple[I64, bool]:
    """Return by how many executions each group is turned, shift by shift.

    Returns
    -------
    shifts : int64 [shifts, groups]
    exact : bool
        They are all that there are.
    """
    if len(lengths) == 1 and lengths[0] - 1 <= CONDITIONS.shifts:
        return np.arange(1, lengths[0], dtype=np.int64)[:, None], True
    share = (np.arange(1, CONDITIONS.shifts + 1) * EVEN.golden) % 1.0
    if len(lengths) == 1:
        return (1 + np.floor(share * (lengths[0] - 1)).astype(np.int64))[:, None], False
    return np.floor(share[:, None] * lengths[None, :]).astype(np.int64), False


def judge(
    bits: U64,
    sizes: I64,
    domain: I64,
    domains: U64,
    places: BitPlaces,
    selected: Bool,
    *,
    pairs: bool = False,
) -> tuple[F64, bool]:
    """Return the largest standardised difference over all conditions, for every shift.

    Parameters
    ----------
    bits : uint64 [conditions, words]
    sizes : int64 [conditions]
        How many executions have each.
    domain : int64 [conditions]
    domains : uint64 [domains, words]
        Within which executions each is compared.
    places : BitPlaces
    selected : bool [n]
        In the order of the groups.
    pairs : bool
        Look also at any two of the best conditions, chosen anew under each shift.

    Returns
    -------
    largest : float64 [shifts]
    exact : bool
    """
    shifts, exact = shifts_of(places.lengths)
    among = count_common(domains, places, np.ones(len(selected), np.bool_))
    scale = np.ascontiguousarray(1.0 / np.sqrt(1 / sizes + 1 / (among[domain] - sizes)))
    twice, twice_at = _lay_twice(places, selected)
    largest = np.zeros(len(shifts))
    best = min(CONDITIONS.best, len(bits)) if pairs else 0
    work = len(bits) * len(shifts) * places.words
    parts = np.array_split(np.arange(len(shifts)), _THREADS if work > _LARGE else 1)

    def count(rows: I64) -> None:
        known: I32 = np.full((len(bits),) * 2 if best else (1, 1), -1, np.int32)
        found = np.zeros(len(rows))
        largest_differences(
            bits,
            sizes,
            scale,
            domain,
            domains,
            among,
            twice,
            twice_at,
            places.words_at,
            np.ascontiguousarray(shifts[rows]),
            best,
            FEWEST_WITH,
            known,
            found,
        )
        largest[rows] = found

    if len(bits) and len(parts) == 1:
        count(parts[0])
    elif len(bits):
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(count, parts))
    return largest, exact


def _lay_twice(places: BitPlaces, selected: Bool) -> tuple[U64, I64]:
    """Return every group's selection twice one after the other, as bits, and where it begins."""
    words: list[U64] = []
    begins, at, first = [], 0, 0
    for length in places.lengths.tolist():
        own = selected[first : first + length]
        first += length
        # A turned group reads whole words from wherever it begins, and a word more.
        size = 64 * (-(-2 * length // 64) + 2)
        spread = np.zeros(size, np.bool_)
        spread[:length] = spread[length : 2 * length] = own
        words.append(np.packbits(spread, bitorder="little").view("<u8").astype(np.uint64))
        begins.append(at)
        at += size // 64
    return np.concatenate(words), np.array(begins, np.int64)


def count_common(bits: U64, places: BitPlaces, selected: Bool) -> I64:
    """Return how many of every condition's executions are selected."""
    found = np.zeros(len(bits), np.int64)
    if len(bits):
        common(bits, places.pack(selected), found)
    return found
