"""What the normal group does in every column, and what each column is worth."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from critpath.model import F64, I32, I64, Alignment, Bool, ColumnStatistics
from critpath.schema import notes
from critpath.schema.notes import Note
from critpath.schema.parameters.localize import COLUMNS
from critpath.schema.parameters.shared import DEFAULTS, NORMAL, SPREADS
from critpath.stats.tails import benjamini_hochberg


def column_statistics(
    alignment: Alignment, *, p_min: float | None = None, k: float | None = None
) -> ColumnStatistics:
    """Compare the last row of an alignment with the others, column by column.

    The paper's rule (Janecek et al. 2022): a state is abnormal where fewer than
    `p_min` of the normal rows have it (gaps count among them), a duration where it
    is above mean + `k` standard deviations (ddof 1) of at least two normal rows
    with that state.  A column is *missing* where the row has a gap and at least
    half of the normal rows agree on a state.

    Beside it stands the verdict of the leave-one-out comparison (`judge_columns`).

    Parameters
    ----------
    alignment : Alignment
        The anomalous execution last, one or more normal rows before it.
    p_min, k : float
        The rule's two thresholds.

    Returns
    -------
    ColumnStatistics
        ``contribution`` sums exactly to ``n * total(last row) - sum of totals`` of
        the n normal rows.

    Raises
    ------
    ValueError
        If there is no normal row.
    """
    p_min = DEFAULTS.p_min if p_min is None else p_min
    k = DEFAULTS.outlier_k if k is None else k
    n = len(alignment.sequences) - 1
    if n < 1:
        raise ValueError("column statistics need at least one normal row and the anomalous one")
    symbols, durations = alignment.symbols, alignment.column_durations
    mine, normal = symbols[-1], symbols[:-1]
    columns = len(mine)
    letters = int(symbols.max()) + 1 if columns else 0
    counts = np.zeros((letters + 1, columns), np.int64)  # the last row counts gaps
    for row in normal:
        counts[row, np.arange(columns)] += 1
    # Among equals a state comes before a gap: argmax takes the first.
    common = np.argmax(counts, axis=0)
    common_count = counts[common, np.arange(columns)]
    normal_symbol = np.where(common == letters, -1, common).astype(np.int32)
    present = mine >= 0
    probability = counts[mine, np.arange(columns)] / n

    of_interest = np.where(present, mine, normal_symbol)
    support = (normal == of_interest) & (of_interest >= 0)
    size = support.sum(axis=0)
    values = np.where(support, durations[:-1], 0).astype(np.float64)
    mean = np.where(size > 0, values.sum(axis=0) / np.maximum(size, 1), np.nan)
    deviation = np.where(support, values - mean, 0.0)
    variance = (deviation**2).sum(axis=0) / np.maximum(size - 1, 1)
    std = np.where(size > 1, np.sqrt(variance), np.nan)

    contribution = n * durations[-1] - durations[:-1].sum(axis=0)
    totals = [int(d.sum()) for d in alignment.durations]
    if int(contribution.sum()) != n * totals[-1] - sum(totals[:-1]):
        raise AssertionError("the columns' contributions do not add up to the excess")
    verdict = judge_columns(symbols, durations)
    # NaN compares false: without two supporting rows no duration is abnormal.
    threshold = mean + k * std
    return ColumnStatistics(
        probability=probability,
        normal_symbol=normal_symbol,
        normal_probability=common_count / n,
        mean=mean,
        std=std,
        contribution=contribution,
        abnormal_state=present & (probability < p_min),
        abnormal_duration=present & (durations[-1] > threshold),
        missing=~present & (normal_symbol >= 0) & (common_count / n >= COLUMNS.missing),
        p_structure=verdict.p_structure,
        p_duration=verdict.p_duration,
        abnormal=verdict.abnormal,
        note=verdict.note,
    )


# Leave-one-out: columns that are odder than the normal executions among themselves.


_CHUNK = 1 << 14  # technical: groups at a time, for memory


class Verdict(Struct, frozen=True, eq=False):
    """What the leave-one-out comparison says of every column of the anomalous row.

    Attributes
    ----------
    p_structure, p_duration : float64 [columns]
        NaN where the column is not tested.
    abnormal : bool [columns]
        Either is rejected (Benjamini-Hochberg at 5 %, each on its own).
    note : Note or None
        What keeps the verdict from being given or sharp.
    """

    p_structure: F64
    p_duration: F64
    abnormal: Bool
    note: Note | None = None


def judge_columns(letters: I32, durations: I64) -> Verdict:
    """Judge the last row's states and durations by what the other rows do."""
    n, columns = len(letters) - 1, letters.shape[1]
    nothing = np.full(columns, np.nan)
    if n < COLUMNS.least_normals or not columns:
        few = notes.UntestableColumns(n) if n < COLUMNS.least_normals else None
        return Verdict(nothing, nothing, np.zeros(columns, np.bool_), few)
    kinds = max(int(letters.max()), 0) + 1
    codes = np.where(letters < 0, kinds, letters)
    counts = np.zeros((kinds + 1, columns), np.int64)
    places = np.arange(columns)
    for row in codes[:-1]:
        counts[row, places] += 1
    p_structure, odd_structure = _test(*_structure_scores(codes, counts))
    logs = np.log(np.maximum(durations, 0) + COLUMNS.blur)
    p_duration, odd_duration = _test(*_duration_scores(codes, logs, counts))
    note = notes.BluntColumns(n, COLUMNS.sharp_normals) if n < COLUMNS.sharp_normals else None
    return Verdict(p_structure, p_duration, odd_structure | odd_duration, note)


def _test(null: F64, scores: F64) -> tuple[F64, Bool]:
    """Return the p-values of scores, NaN for NaN, and which are rejected."""
    tested = ~np.isnan(scores)
    p = np.full(len(scores), np.nan)
    rejected = np.zeros(len(scores), np.bool_)
    if not tested.any():
        return p, rejected
    # Rounded: equal events have to tie whatever the last bit of their sums.
    known = np.sort(np.round(null[~np.isnan(null)], 9))
    above = len(known) - np.searchsorted(known, np.round(scores[tested], 9))
    p[tested] = (1 + above) / (1 + len(known))
    rejected[tested] = benjamini_hochberg(p[tested], COLUMNS.level)
    return p, rejected


def _structure_scores(codes: I32, counts: I64) -> tuple[F64, F64]:
    """Return the surprisals of the normal rows (flat) and of the last one (bits)."""
    n, columns = len(codes) - 1, codes.shape[1]
    gap = len(counts) - 1
    places = np.arange(columns)
    everybody = counts.copy()
    everybody[codes[-1], places] += 1
    own = np.stack([np.bincount(row, minlength=gap + 1) for row in codes])
    # A row that has a state very often must not make it common for all rows but itself.
    own = np.minimum(own, np.median(own, axis=0) + 1)
    share = (own.sum(axis=0) - own + 1) / (n * columns + gap + 1)
    others = everybody[codes, places] - 1
    scores = -np.log2((others + COLUMNS.smoothing * _taken(share, codes)) / (n + COLUMNS.smoothing))
    scores[(codes == gap) & (2 * others >= n)] = np.nan
    return scores[:-1].ravel(), scores[-1]


def _taken(table: F64, codes: I32) -> F64:
    """Return ``table[i, codes[i, j]]``."""
    result: F64 = np.take_along_axis(table, codes.astype(np.intp), axis=1)
    return result


class _Spread(Struct, frozen=True, eq=False):
    """What is known of every state's log durations, [rows or 1, states]."""

    mean: F64
    overall: F64
    within: F64


def _spread(count: F64, total: F64, squares: F64, held: F64, residual: F64) -> _Spread:
    """Return mean and deviation of all, and the deviation from the columns' medians."""
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(count >= COLUMNS.support, total / count, np.nan)
        variance = np.maximum(squares / count - mean**2, 0.0)
        overall = np.maximum(np.sqrt(variance), SPREADS.least)
        within = np.where(held > 0, np.sqrt(residual / held), overall)
    within = np.where(np.isnan(within), SPREADS.least, within)
    return _Spread(mean, overall, np.maximum(within, SPREADS.least))


def _duration_scores(codes: I32, logs: F64, counts: I64) -> tuple[F64, F64]:
    """Return the robust |z| of the normal rows' log durations (flat) and of the last's."""
    gap = len(counts) - 1
    centre = float(logs.mean())
    logs = logs - centre  # sums of squares keep their digits
    normal, values = codes[:-1], logs[:-1]
    size = counts[normal, np.arange(codes.shape[1])]
    median, mad, medians, mads = _medians(normal, values, counts)

    def tally(of: F64, where: Bool) -> F64:
        return np.stack(
            [
                np.bincount(row[w], weights=v[w], minlength=gap + 1)[:gap]
                for row, v, w in zip(normal, of, where, strict=True)
            ]
        )

    here, held = normal < gap, (normal < gap) & (size >= COLUMNS.support)
    residual = np.where(held, values - medians[normal, np.arange(codes.shape[1])], 0.0)
    ones = np.ones_like(values)
    sums = (
        tally(ones, here),
        tally(values, here),
        tally(values**2, here),
        tally(ones, held),
        tally(residual**2, held),
    )
    rest = _spread(*(s.sum(axis=0) - s for s in sums))
    every = _spread(*(s.sum(axis=0, keepdims=True) for s in sums))
    safe = np.minimum(normal, gap - 1)
    null = _score(values, size - 1, median, mad, rest, safe)
    null[~here] = np.nan
    mine = codes[-1:]
    safe = np.minimum(mine, gap - 1)
    places = np.arange(codes.shape[1])
    size = counts[mine, places]
    # Of three rows with the state each has two others, too few for a median of its own.
    # Measured by narrower means than theirs the last one would be odd wherever it is.
    own = size > COLUMNS.support
    middle, scale = medians[safe, places], mads[safe, places]
    scores = _score(logs[-1:], np.where(own, size, 0), middle, scale, every, safe)
    scores[mine == gap] = np.nan
    return null.ravel(), scores[0]


def _score(values: F64, size: I64, median: F64, mad: F64, known: _Spread, codes: I32) -> F64:
    own = size >= COLUMNS.support
    within = _taken(known.within, codes)
    narrow = np.sqrt(
        (size * (NORMAL.per_mad * mad) ** 2 + COLUMNS.prior * within**2) / (size + COLUMNS.prior)
    )
    middle = np.where(own, median, _taken(known.mean, codes))
    scale = np.where(own, narrow, _taken(known.overall, codes))
    result: F64 = np.abs(values - middle) / scale
    return result


def _medians(normal: I32, values: F64, counts: I64) -> tuple[F64, F64, F64, F64]:
    """Return medians and MADs of the rows with one state in a column."""
    places = np.arange(normal.shape[1])
    whole = counts.copy()
    whole[-1] = 0  # gaps have no duration
    kept = whole >= COLUMNS.support
    group = np.cumsum(kept.ravel()).reshape(kept.shape) - 1
    sizes = whole[kept]
    median, mad = np.zeros(normal.shape), np.zeros(normal.shape)
    medians, mads = np.zeros(kept.shape), np.zeros(kept.shape)
    if not len(sizes):
        return median, mad, medians, mads
    slot = np.zeros(len(sizes), np.int64)
    table = np.full((len(sizes), int(sizes.max())), np.inf)
    taken = []
    for row, value in zip(normal, values, strict=True):
        columns = places[kept[row, places]]
        to = group[row[columns], columns]
        taken.append((columns, to, slot[to]))
        table[to, slot[to]] = value[columns]
        slot[to] += 1
    of = np.empty_like(table), np.empty_like(table)
    of_all = np.empty(len(sizes)), np.empty(len(sizes))
    for first in range(0, len(sizes), _CHUNK):
        part = slice(first, first + _CHUNK)
        found = medians_without_each(table[part], sizes[part])
        of[0][part], of[1][part], of_all[0][part], of_all[1][part] = found
    for i, (columns, to, at) in enumerate(taken):
        median[i, columns], mad[i, columns] = of[0][to, at], of[1][to, at]
    medians[kept], mads[kept] = of_all
    return median, mad, medians, mads


# Medians of many small groups without each member.


def medians_without_each(values: F64, sizes: I64) -> tuple[F64, F64, F64, F64]:
    """Return median and MAD of every group without each of its members, and of all."""
    ordered = np.sort(values, axis=1)
    median = _median_without(ordered, sizes, values)
    of_all = _median(ordered, sizes)
    mad_of_all = _median(np.sort(np.abs(values - of_all[:, None]), axis=1), sizes)
    mad = np.zeros_like(values)
    groups = np.arange(len(values))
    for member in (np.zeros(len(sizes), np.int64), (sizes - 1) // 2, sizes - 1):
        centre = _median_without(ordered, sizes, ordered[groups, member][:, None])
        deviation = np.abs(values - centre)
        found = _median_without(np.sort(deviation, axis=1), sizes, deviation)
        mad = np.where(median == centre, found, mad)
    return median, mad, of_all, mad_of_all


def _median(ordered: F64, sizes: I64) -> F64:
    groups = np.arange(len(ordered))
    result: F64 = (ordered[groups, (sizes - 1) // 2] + ordered[groups, sizes // 2]) / 2
    return result


def _median_without(ordered: F64, sizes: I64, members: F64) -> F64:
    """Return the medians of sorted groups without one member each, given by value."""
    groups = np.arange(len(ordered))
    low, high = (sizes - 2) // 2, (sizes - 1) // 2

    def nth(place: I64) -> F64:
        # What comes after the member moves down by one place.
        here, next_one = ordered[groups, place], ordered[groups, place + 1]
        result: F64 = np.where(members > here[:, None], here[:, None], next_one[:, None])
        return result

    return (nth(low) + nth(high)) / 2
