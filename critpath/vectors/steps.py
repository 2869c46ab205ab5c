"""Critical paths -> the steps that pictures show of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from msgspec import Struct

from critpath.model import I64, PathSet
from critpath.vectors._count import fold_steps


class Steps(Struct, frozen=True):
    """Paths as they are drawn: neighbours of one thread and kind joined, short interrupts folded.

    ``path`` counts within the part of a set that was folded; ``hair`` has ``path`` and moment of
    every interrupt that was folded; ``beneath`` is what a thread did while a request was queued
    or shared, -1 elsewhere.
    """

    path: I64
    begin: I64
    length: I64
    thread: I64
    doing: I64
    hair: tuple[I64, I64]
    beneath: I64

    @classmethod
    def of(
        cls,
        part: PathSet,
        threads: I64,
        doing: tuple[I64, I64],
        kinds: Sequence[int],
        *,
        late: int,
        hair: float,
    ) -> Self:
        """Return the steps of some executions' paths.

        Parameters
        ----------
        part : PathSet
            With its paths in memory.
        threads : int64 [strings]
            Who has each name; an execution's own thread is 0.
        doing : (int64 [256], int64 [256])
            By state: what its thread does, and what it did beneath where that is known.
        kinds : sequence of int
            Running, an interrupt, a wait for a cpu, and one while that was idle for ``late`` ns.
        hair : float
            Of a stretch's running time: shorter interrupts are folded.
        """
        paths, of = part.paths, part.executions
        rows = len(paths.state)
        steps, hairs = np.empty((6, rows), np.int64), np.empty((2, rows), np.int64)
        idle = np.array([detail.idle for detail in paths.details], np.uint8)
        many, cut = fold_steps(
            *(paths.start, paths.begin, paths.end, paths.tid, paths.host, paths.comm),
            *(paths.state, paths.beneath, paths.detail, of.tid, of.host, threads, *doing),
            *(idle, np.array(kinds, np.int64), late, hair, steps, hairs),
        )
        path, begin, length, thread, does, beneath = (column[:many] for column in steps)
        return cls(*(path, begin, length, thread, does), (hairs[0, :cut], hairs[1, :cut]), beneath)
