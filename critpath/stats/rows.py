"""Rows and columns of tables: in order, ranked, in groups, some at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from critpath.model import F64, I64, Whole
from critpath.stats._columns import add_by, add_squares, keep_largest, medians, rank

_AT_ONCE = 1 << 16  # technical: values ranked together: of small tables all
_SORTED: Final = 1 << 32  # technical: what numbers differ by that are sorted by their digits
_FEW = 256  # technical: rows that are sorted by all columns before it is known which decide


def mid_ranks(values: F64 | I64, out: F64 | None = None) -> F64:
    """Rank every column from 1; equal values share the mean of their ranks.

    Parameters
    ----------
    values : float64 or int64 [n, columns]
    out : float64 [n, columns], optional
        Where they are to be.

    Returns
    -------
    float64 [n, columns]
        As ``scipy.stats.rankdata``.
    """
    n, columns = values.shape
    result = np.empty((n, columns)) if out is None else out
    if n and values.dtype.kind == "i":
        low, high = values.min(axis=0).tolist(), values.max(axis=0).tolist()
        if max((b - a for a, b in zip(low, high, strict=True)), default=0) < _SORTED:
            keys = np.empty((2, n), np.uint64)
            for column in range(columns):
                rank(values[:, column], low[column], keys, result[:, column])
            return result
    for block in row_blocks(columns, max(_AT_ONCE // max(n, 1), 1)):
        mine = np.ascontiguousarray(values[:, block].T)
        order = np.argsort(mine, axis=1, kind="stable")  # twice as fast where values are equal
        order += n * np.arange(len(mine))[:, None]  # places in the table, one row after the other
        ordered = mine.take(order)
        new = np.ones(mine.shape, np.bool_)
        np.not_equal(ordered[:, 1:], ordered[:, :-1], out=new[:, 1:])
        first = np.flatnonzero(new)
        last = np.append(first[1:], mine.size)
        ranks = np.repeat((first + last + 1) / 2, last - first).reshape(mine.shape)
        ranks -= n * np.arange(len(mine))[:, None]
        back = np.empty(mine.shape)
        back.put(order, ranks)
        result[:, block] = back.T
    return result


def median(values: F64 | I64) -> F64:
    """Return the median of every row, to the bit as `np.median` does of what has no NaN.

    Of small tables most of its time goes into finding out what it was given.
    """
    half, odd = divmod(values.shape[-1], 2)
    ordered = np.partition(values, half if odd else (half - 1, half), axis=-1)
    upper = ordered[..., half].astype(np.float64)
    return upper if odd else np.asarray((ordered[..., half - 1] + upper) / 2, np.float64)


_LONG: Final = 1 << 12  # technical: rows whose middle one numpy finds sooner


def medians_by(columns: F64, ends: I64) -> F64:
    """Return the median of every row, of what is up to each end [rows, ends], as `median`."""
    found = np.empty((len(columns), len(ends)))
    if np.diff(ends, prepend=0).max(initial=0) > _LONG:  # where ours takes time without bound
        for group, pair in enumerate(pairwise([0, *ends.tolist()])):
            found[:, group] = median(columns[:, slice(*pair)])
    else:
        medians(columns, ends, np.empty(columns.shape[1]), found)
    return found


def quantiles(values: F64 | I64, *shares: float) -> list[F64]:
    """Return quantiles of every column, to the bit as `np.quantile`, in the same way."""
    last = len(values) - 1
    below = [int(last * share) for share in shares]
    places = {*below, *(min(at + 1, last) for at in below)}
    ordered: Any = np.partition(values, sorted(places), axis=0)
    return [_interpolate(ordered, 0, last, share) for share in shares]


def upper_quantiles(parts: Iterable[F64], rows: int, *shares: float) -> list[F64]:
    """Return quantiles of every column of tables that come some of their rows at a time.

    Float64 [tables, some rows, columns], ``rows`` in all: only the largest values are kept.
    """
    first = int((rows - 1) * min(shares))
    ends: F64 | None = None
    for part in parts:
        if ends is None:
            ends = np.full((len(part), part.shape[2], rows - first), -np.inf)
        keep_largest(part, ends)
    if ends is None:
        raise ValueError("no rows")
    ordered = ends.transpose(2, 0, 1)
    return [_interpolate(ordered, first, rows - 1, share) for share in shares]


def _interpolate(ordered: F64 | I64, first: int, last: int, share: float) -> F64:
    """Return a quantile of rows up to the last, which are in order from the first on."""
    at = int(last * share)
    part = last * share - at
    low, high = ordered[at - first], ordered[min(at + 1, last) - first]
    rise = high - low
    return np.asarray(high - rise * (1 - part) if part >= 0.5 else low + rise * part, np.float64)


def order_rows(*tables: F64 | Whole) -> I64:
    """Return the order of rows by their first column, then the next, of all tables in turn.

    As `np.lexsort` does of the columns from the last one to the first; a table may be one column.

    Only rows that are equal so far are sorted by a further column: of durations, few are.
    """
    rows = len(tables[0])
    columns = [column for table in tables for column in np.atleast_2d(table.T)]
    if rows <= _FEW and columns:
        return np.lexsort(columns[::-1])
    order = np.arange(rows)
    # Places in the order whose rows are equal so far, and which of such runs each is in.
    places, run = order.copy(), np.zeros(rows, np.int64)
    for column in columns:
        if not len(places):
            break
        some = order[places]
        by = np.lexsort((column[some], run))
        order[places] = some[by]
        values = column[some[by]]
        new = np.ones(len(places), np.bool_)
        new[1:] = (run[1:] != run[:-1]) | (values[1:] != values[:-1])
        several = ~(new & np.append(new[1:], True))
        places, run = places[several], np.cumsum(new)[several]
    return order


_WHOLE: Final = 1 << 20  # technical: values of a table of which copies count for nothing
_GATHERED: Final = 1 << 16  # technical: rows that are copied at a time


def draw_groups(rng: np.random.Generator, rows: int, size: int) -> I64:
    """Draw groups of so many rows [groups, size]; those left over are in none."""
    return rng.permutation(rows)[: rows // size * size].reshape(-1, size)


def sum_groups(rows: F64, groups: I64) -> F64:
    """Add up the rows of every group."""
    sums = np.empty((len(groups), *rows.shape[1:]))
    for some in row_blocks(len(groups), max(_GATHERED // max(groups.shape[1], 1), 1)):
        rows[groups[some]].sum(axis=1, out=sums[some])
    return sums


def column_blocks(columns: int) -> list[slice]:
    """Divide the columns of a table, so that work on them needs no copy of the whole.

    Into blocks of several: numpy adds up a single column in another order, with another rounding.
    """
    count = max(columns // 3, 1)
    edges = [columns * i // count for i in range(count + 1)]
    return [slice(*pair) for pair in pairwise(edges)]


def table_blocks(rows: int, columns: int) -> list[slice]:
    """Divide the columns of a large table in the same way; a small one is one block."""
    return [slice(0, columns)] if rows * columns <= _WHOLE else column_blocks(columns)


def row_blocks(rows: int, size: int = 1 << 15) -> list[slice]:
    """Divide the rows of a table, in the same way."""
    return [slice(first, first + size) for first in range(0, rows, size)]


_ODD = np.uint64(0x9E3779B97F4A7C15)  # technical: spreads what differs over all higher bits
_HALF = np.uint64(32)  # technical


def hash_rows(*tables: Any) -> npt.NDArray[np.uint64]:
    """Return a number of each row's content in all tables; one may be a single column.

    Of each table only some rows are asked for at a time.
    """
    hashes = np.zeros(len(tables[0]), np.uint64)
    for rows in row_blocks(len(hashes)):
        some = hashes[rows]
        for column in (column for table in tables for column in np.atleast_2d(table[rows].T)):
            kind = np.float64 if column.dtype.kind == "f" else np.int64
            some ^= np.ascontiguousarray(column, kind).view(np.uint64)
            some *= _ODD
            some ^= some >> _HALF
    return hashes


def order_hashed(hashes: npt.NDArray[np.uint64]) -> I64:
    """Return an order of rows that only their content decides."""
    return np.argsort(hashes, kind="stable")


def seed_hashed(*hashes: npt.NDArray[np.uint64]) -> int:
    """Make a seed of rows, as `make_seed`, without an order of their columns."""
    digest = hashlib.blake2b(digest_size=8)
    for each in hashes:
        digest.update(np.int64(len(each)).tobytes())
        digest.update(np.sort(each).data)
    return int.from_bytes(digest.digest(), "little")


def make_seed(*arrays: F64 | I64) -> int:
    """Make a seed of the data, so that equal data always give equal figures.

    Rows are put in order first: the order of executions must not matter.
    """
    digest = hashlib.blake2b(digest_size=8)
    for array in arrays:
        digest.update(np.asarray(array.shape, np.int64).tobytes())
        order = order_rows(array)
        for rows in row_blocks(len(order)):
            digest.update(np.ascontiguousarray(array[order[rows]]).data)
    return int.from_bytes(digest.digest(), "little")


def sum_by(values: F64 | I64, code: I64, count: int) -> F64:
    """Add up the rows of every code [count, columns], one after the other."""
    sums = np.zeros((count, *values.shape[1:]))
    if values.dtype.kind == "i":
        add_by(values, code, sums)
    else:
        np.add.at(sums, code, values)
    return sums


def square_by(values: I64, code: I64, means: F64) -> tuple[F64, F64]:
    """Add up the squared distances of rows to the mean row of their code: of every code, of all."""
    squares, whole = np.zeros(means.shape), np.zeros(values.shape[1])
    if len(whole) > 1:
        add_squares(values, code, means, squares, whole)
    else:  # numpy adds up a single column in another order
        parts = (values - means[code]) ** 2
        whole = parts.sum(axis=0)
        for each in np.unique(code):
            squares[each] = parts[code == each].sum(axis=0)
    return squares, whole


def center_by(values: F64 | I64, stratum: I64) -> F64:
    """Return rows less the mean of their stratum."""
    residual = values.astype(np.float64)
    for s in np.unique(stratum):
        residual[stratum == s] -= values[stratum == s].mean(axis=0)
    return residual
