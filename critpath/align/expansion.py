"""Collapsed rows, aligned -> whole rows, aligned: every iteration of every loop back in place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from critpath.align.repeats import Collapsed, Run
from critpath.model import I32

I8 = npt.NDArray[np.int8]
Block = tuple[tuple[int, ...], bytes]  # columns of a unit, and its letters


def expand(codes: I8, rows: Sequence[Collapsed], of: Sequence[int]) -> I32:
    """Put the iterations back that were left out when rows were collapsed.

    Runs of one unit whose iteration stands in the same columns are one loop; its further
    iterations get columns of their own behind these, as many as the row with most
    needs, filled from the left.

    Parameters
    ----------
    codes : int8 [distinct collapsed rows, columns]
        Letters, -1 for a gap.
    rows : sequence of Collapsed
    of : sequence of int
        The row of `codes` that each of `rows` is aligned in.

    Returns
    -------
    int32 [rows, columns]
        Position of every letter in its whole row, -1 for a gap.
    """
    width = codes.shape[1]
    columns = [np.flatnonzero(codes[i] >= 0) for i in range(len(codes))]
    blocks: dict[Block, dict[int, int]] = {}  # row -> iterations
    for number, row in enumerate(rows):
        for run, block in _blocks_of(row, columns[of[number]]):
            blocks.setdefault(block, {})[number] = run.iterations
    # By column and letters alone, so that a row added later moves nothing.
    order = sorted(blocks, key=lambda block: (block[0][-1], block))
    extra = [len(key) * (max(blocks[key, unit].values()) - 1) for key, unit in order]
    behind = np.zeros(width + 1, np.int64)
    np.add.at(behind, np.array([key[-1] + 1 for key, _ in order], np.int64), extra)
    place = np.arange(width) + np.cumsum(behind)[:width]
    room: dict[Block, int] = {}  # where the further iterations begin
    taken = np.zeros(width, np.int64)
    for block, wide in zip(order, extra, strict=True):
        last = block[0][-1]
        room[block] = int(place[last] + 1 + taken[last])
        taken[last] += wide
    positions = np.full((len(rows), width + sum(extra)), -1, np.int32)
    for number, row in enumerate(rows):
        _fill(positions[number], row, columns[of[number]], place, room)
    return positions


def _blocks_of(row: Collapsed, columns: npt.NDArray[np.intp]) -> list[tuple[Run, Block]]:
    """Return the runs of a row, each with where its one iteration is aligned."""
    result = []
    for run, begin in zip(row.runs, row.begins(), strict=True):
        end = begin + run.period
        result.append((run, (tuple(columns[begin:end].tolist()), row.letters[begin:end].tobytes())))
    return result


def _fill(
    positions: I32,
    row: Collapsed,
    columns: npt.NDArray[np.intp],
    place: npt.NDArray[np.int64],
    room: dict[Block, int],
) -> None:
    """Write one row's positions, in place."""
    at = done = 0  # in the collapsed and in the whole row
    for run, block in _blocks_of(row, columns):
        end = at + run.first + run.period - done
        positions[place[columns[at:end]]] = np.arange(done, run.first + run.period)
        further = run.last - run.first - run.period
        start = room[block]
        positions[start : start + further] = np.arange(run.first + run.period, run.last)
        at, done = end, run.last
    left = len(columns) - at
    positions[place[columns[at:]]] = np.arange(done, done + left)
