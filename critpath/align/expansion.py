"""Collapsed rows, aligned -> whole rows, aligned: every iteration of every loop back in place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from critpath.align.repeats import Collapsed
from critpath.model import I32, Loop

I8 = npt.NDArray[np.int8]
Columns = tuple[int, ...]


def expand(codes: I8, rows: Sequence[Collapsed], of: Sequence[int]) -> tuple[I32, tuple[Loop, ...]]:
    """Put the iterations back that were left out when rows were collapsed.

    Runs whose iteration stands in the same columns are one loop; its further
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
    positions : int32 [rows, columns]
        Position of every letter in its whole row, -1 for a gap.
    loops : tuple of Loop
        Those whose iterations stand one behind the other; `iterations` per row.
    """
    width = codes.shape[1]
    columns = [np.flatnonzero(codes[i] >= 0) for i in range(len(codes))]
    blocks: dict[Columns, dict[int, int]] = {}  # columns of the unit -> row -> iterations
    for number, row in enumerate(rows):
        for run, begin in zip(row.runs, row.begins(), strict=True):
            key = tuple(columns[of[number]][begin : begin + run.period].tolist())
            blocks.setdefault(key, {})[number] = run.iterations
    # Behind one column, the loop of most rows comes first; so its columns stay together.
    order = sorted(blocks, key=lambda key: (key[-1], -len(blocks[key]), key))
    extra = [len(key) * (max(blocks[key].values()) - 1) for key in order]
    behind = np.zeros(width + 1, np.int64)
    np.add.at(behind, np.array([key[-1] + 1 for key in order], np.int64), extra)
    place = np.arange(width) + np.cumsum(behind)[:width]
    room: dict[Columns, int] = {}  # where the further iterations begin
    taken = np.zeros(width, np.int64)
    for key, wide in zip(order, extra, strict=True):
        room[key] = int(place[key[-1]] + 1 + taken[key[-1]])
        taken[key[-1]] += wide
    positions = np.full((len(rows), width + sum(extra)), -1, np.int32)
    for number, row in enumerate(rows):
        _fill(positions[number], row, columns[of[number]], place, room)
    loops = [
        Loop(
            first=int(place[key[0]]),
            last=room[key] + wide,
            period=len(key),
            iterations=_iterations(codes, key, blocks[key], of),
        )
        for key, wide in zip(order, extra, strict=True)
        if room[key] - place[key[0]] == len(key)
    ]
    return positions, tuple(sorted(loops, key=lambda loop: loop.first))


def _fill(
    positions: I32,
    row: Collapsed,
    columns: npt.NDArray[np.intp],
    place: npt.NDArray[np.int64],
    room: dict[Columns, int],
) -> None:
    """Write one row's positions, in place."""
    at = done = 0  # in the collapsed and in the whole row
    for run, begin in zip(row.runs, row.begins(), strict=True):
        end = begin + run.period
        positions[place[columns[at:end]]] = np.arange(done, run.first + run.period)
        start = room[tuple(columns[begin:end].tolist())]
        further = run.last - run.first - run.period
        positions[start : start + further] = np.arange(run.first + run.period, run.last)
        at, done = end, run.last
    left = len(columns) - at
    positions[place[columns[at:]]] = np.arange(done, done + left)


def _iterations(codes: I8, key: Columns, counts: dict[int, int], of: Sequence[int]) -> I32:
    """Return how often every row runs a loop: once where it has the unit and no run."""
    result = np.zeros(len(of), np.int32)
    unit = codes[of[next(iter(counts))], key]
    once = (codes[:, key] == unit).all(axis=1)
    result[once[list(of)]] = 1
    result[list(counts)] = list(counts.values())
    return result
