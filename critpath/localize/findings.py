"""Find what differs between one anomalous execution and its normal group, and where."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from critpath.localize.attribution import attribute
from critpath.localize.candidates import LEAST, Candidate, choose, find_candidates
from critpath.localize.matrix import Matrix
from critpath.localize.segments import Holders, Segments, detail_family
from critpath.model import (
    I32,
    INTERFERENCE,
    Alignment,
    ColumnStatistics,
    Finding,
    Symbol,
)

__all__ = ["Segments", "detail_family", "find_differences"]


def find_differences(
    execution: int,
    aligned: Alignment,
    statistics: ColumnStatistics,
    symbols: Sequence[Symbol],
    segments: Segments,
    normals: Sequence[Segments] = (),
) -> tuple[tuple[Finding, ...], float]:
    """Explain the excess of the last row of an alignment over the rows before it.

    The excess of the total is the sum over the symbols of (time in the symbol less
    the group's mean time in it), whatever the alignment.  So symbols are compared
    first, each netted over the whole path: a segment that the aligner put beside
    its counterpart then counts nothing.  The alignment says where along the path a
    symbol's difference lies (`find_place`), and what lies elsewhere is a difference
    of its own where it matters.

    This does what merging neighbouring columns of one sign is for.  A place is made of
    maximal stretches, so it may hold columns of the other sign and none at all between
    (other symbols' columns do not count); its net is what it ranks by, and a pair of
    columns that cancel has none; a region that nets to nothing is never taken, and
    nothing is dropped, since what is not taken is in the rest.

    Differences are taken by weight until at most a tenth of the excess is left, ten
    are taken, or the next is below a hundredth of it.  The weight is the difference

    - less half of the time that other symbols lost in the same place (`Finding.offset`):
      what only moved from one state to another does not explain why the whole took
      longer;
    - a quarter of that if it is normal: no column of it stands out (`judge_columns`), and
      nor does the time in the symbol (`judge_totals`).  This needs five normal rows.
      The abnormal ones do not come first outright, lest a small one hide a large cause
      that many ordinary columns make up together;
    - three quarters of that for running time of the subject's own thread that does not
      stand out in total, since on virtual machines it fluctuates.

    Longer ones come first, then shorter ones, each by weight.  The shares were chosen on
    families like those of tests/benchmarks/injected.py, which measures the outcome.

    Parameters
    ----------
    execution : int
        Position in the sample set, copied to the findings.
    aligned : Alignment
        The anomalous execution last.
    statistics : ColumnStatistics
        Of the same alignment.
    symbols : sequence of Symbol
        The alphabet.
    segments : Segments
        Of the anomalous execution.
    normals : sequence of Segments, optional
        Of the normal rows, in order.  With them the detail of a finding is the one
        that grew most rather than the one that holds most time, and a missing
        segment has its thread's name.

    Returns
    -------
    tuple of (findings, unexplained)
        Contributions and `unexplained` (ns) add up to the excess; the parts of every
        finding to its contribution, exactly.
    """
    n = len(aligned.sequences) - 1
    matrix = Matrix.of(aligned, [i for i, s in enumerate(symbols) if s.state in INTERFERENCE])
    net_total = int(statistics.contribution.sum())
    candidates, explained = find_candidates(matrix, statistics, symbols)
    if explained != net_total:
        raise AssertionError("the symbols' differences do not add up to the excess")
    chosen = choose(candidates, net_total)
    normal_total = sum(int(d.sum()) for d in aligned.durations[:-1])
    shown = net_total > 0 and net_total >= LEAST * normal_total
    describe = _Describer(execution, matrix, symbols, segments, normals)
    findings = tuple(
        describe(rank, candidate, net_total if shown else 0)
        for rank, candidate in enumerate(chosen, 1)
    )
    return findings, (net_total - sum(c.net for c in chosen)) / n


class _Describer:
    """Turns candidates into findings: kind, who, from when to when."""

    def __init__(
        self,
        execution: int,
        matrix: Matrix,
        symbols: Sequence[Symbol],
        segments: Segments,
        normals: Sequence[Segments],
    ) -> None:
        self.execution = execution
        self.matrix = matrix
        self.symbols = symbols
        self.segments = segments
        self.holders = Holders(segments, normals)

    def __call__(self, rank: int, candidate: Candidate, net_total: int) -> Finding:
        matrix, columns = self.matrix, candidate.columns
        here = matrix.letters[:, columns] == candidate.letter
        held = np.where(here, matrix.durations[:, columns], 0)
        mine = matrix.rows[-1, columns[here[-1]]]
        members = [row[at] for row, at in zip(matrix.rows[:, columns], here, strict=True)]
        detail, tid, comm = self.holders.most(members, 1 if candidate.net > 0 else -1)
        begin, end, before = self._when(mine, int(columns[0]))
        made_of = attribute(matrix, candidate.letter, columns)
        if sum(ns for _, ns in made_of.parts) != Fraction(candidate.net, matrix.n):
            raise AssertionError("the parts of a finding do not add up to its contribution")
        return Finding(
            execution=self.execution,
            rank=rank,
            kind=made_of.kind,
            symbol=self.symbols[candidate.letter],
            detail=detail,
            tid=tid,
            comm=comm,
            begin=begin,
            end=end,
            columns=(int(columns[0]), int(columns[-1]) + 1),
            observed=float(held[-1].sum()),
            expected=float(int(held[:-1].sum()) / matrix.n),
            contribution=candidate.net / matrix.n,
            share=candidate.net / net_total if net_total > 0 else float("nan"),
            probability=float(here[:-1].any(axis=1).mean()),
            before=before,
            parts=made_of.parts,
            abnormal=candidate.abnormal,
            p=candidate.p,
            offset=candidate.offset / matrix.n,
            iterations=made_of.iterations,
            normal_iterations=made_of.normal_iterations,
            longest=float(held[-1].max(initial=0)),
            details=self.holders.shares(mine),
        )

    def _when(self, mine: I32, column: int) -> tuple[int, int, str]:
        """Return begin, end and what came before, for the row's own segments or a hole."""
        segments, matrix = self.segments, self.matrix
        if len(mine):
            first, begin, end = (
                int(mine[0]),
                int(segments.begin[mine[0]]),
                int(segments.end[mine[-1]]),
            )
        else:
            earlier = matrix.rows[-1, :column]
            first = int(earlier.max(initial=-1)) + 1
            if first:
                begin = end = int(segments.end[first - 1])
            else:
                begin = end = int(segments.begin[0]) if len(segments.begin) else 0
        if first == 0:
            return begin, end, ""
        place = int(np.flatnonzero(matrix.rows[-1] == first - 1)[0])
        return begin, end, self.symbols[int(matrix.letters[-1, place])].name
