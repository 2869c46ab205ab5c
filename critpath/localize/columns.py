"""What the normal group does in every column, and what each column is worth."""

from __future__ import annotations

import numpy as np

from critpath.localize.leave_one_out import judge_columns
from critpath.model import Alignment, ColumnStatistics

MISSING_SHARE = 0.5


def column_statistics(
    alignment: Alignment, *, p_min: float = 0.05, k: float = 1.5
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
        missing=~present & (normal_symbol >= 0) & (common_count / n >= MISSING_SHARE),
        p_structure=verdict.p_structure,
        p_duration=verdict.p_duration,
        abnormal=verdict.abnormal,
        note=verdict.note,
    )
