"""Find what differs between one anomalous execution and its normal group, and where."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Self

import numpy as np
from msgspec import Struct

from critpath.documents import FindingPart
from critpath.documents.base import number
from critpath.localize.segments import Holders, Segments
from critpath.model import (
    F64,
    I32,
    I64,
    INTERFERENCE,
    RUNNING,
    Alignment,
    Bool,
    ColumnStatistics,
    Finding,
    Loop,
    State,
    Symbol,
)
from critpath.model.details import word_detail
from critpath.schema.parameters.localize import CAUSES, COLUMNS, FACTS, FINDINGS
from critpath.schema.parameters.shared import SPREADS
from critpath.stats.tails import student_tails

__all__ = ["Segments", "find_differences"]


def find_differences(
    execution: tuple[str, int],
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
    symbol's difference lies (`max_scoring_segment`), and what lies elsewhere is a difference
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
    families like those of evaluation/benchmarks/injected.py, which measures the outcome.

    Parameters
    ----------
    execution : (str, int)
        Its id and its position in the sample set, copied to the findings.
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
    work = {
        letter: (symbol.state == State.WAIT_CPU, symbol.role)
        for letter, symbol in enumerate(symbols)
        if symbol.state in RUNNING or symbol.state == State.WAIT_CPU
    }
    chosen = choose(candidates, net_total, work)
    normal_total = sum(int(d.sum()) for d in aligned.durations[:-1])
    shown = net_total > 0 and net_total >= FINDINGS.least * normal_total
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
        execution: tuple[str, int],
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
        symbol = self.symbols[candidate.letter]
        return Finding(
            *self.execution,
            rank=rank,
            kind=made_of.kind,
            state=symbol.state.name,
            role=symbol.role,
            place=symbol.place,
            detail=word_detail(detail),
            qualifier=detail,
            tid=tid,
            comm=comm,
            begin=begin,
            end=end,
            columns=[int(columns[0]), int(columns[-1]) + 1],
            observed=float(held[-1].sum()),
            expected=float(int(held[:-1].sum()) / matrix.n),
            contribution=candidate.net / matrix.n,
            share=candidate.net / net_total if net_total > 0 else None,
            probability=float(here[:-1].any(axis=1).mean()),
            before=before,
            parts=[FindingPart(kind, float(ns)) for kind, ns in made_of.parts],
            abnormal=candidate.abnormal,
            p=number(candidate.p),
            offset=candidate.offset / matrix.n,
            iterations=number(made_of.iterations),
            normal_iterations=[number(turns) for turns in made_of.normal_iterations],
            longest=float(held[-1].max(initial=0)),
            details=self.holders.shares(mine),
            elsewhere_idle=_sum_known(self.segments.elsewhere_idle[mine]),
            cpus=self._most_on(mine),
        )

    def _most_on(self, mine: I32) -> tuple[int, ...]:
        """Return the cpus that segments were on, but for those that had little of their time."""
        segments = self.segments
        cpus, number = np.unique(segments.cpu[mine], return_inverse=True)
        time = np.bincount(number.reshape(-1), segments.end[mine] - segments.begin[mine], len(cpus))
        return tuple(cpus[time >= (1 - FACTS.nearly_all) * time.sum()].tolist())

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


def _sum_known(times: I64) -> float | None:
    """Return a sum of times, None where one of them is not known."""
    return float(times.sum()) if (times >= 0).all() else None


# Attribution: a difference as more occurrences, longer ones, more iterations.


NO_LOOP = (float("nan"), (float("nan"), float("nan")))


class Attribution(Struct, frozen=True):
    """The parts of a difference, and the loop it is about.

    Attributes
    ----------
    parts : tuple of (kind, ns)
        The largest first; the sum is the difference.
    iterations : float
        Of the loop with the largest part; NaN for none.
    normal_iterations : (float, float)
        Mean and standard deviation (ddof 1, 0 for one row) of the normal rows.
    """

    parts: tuple[tuple[str, Fraction], ...]
    iterations: float
    normal_iterations: tuple[float, float]

    @property
    def kind(self) -> str:
        """The largest part that goes the way the whole does."""
        whole = sum(ns for _, ns in self.parts)
        return next(kind for kind, ns in self.parts if ns * whole > 0)


def attribute(matrix: Matrix, letter: int, columns: I64) -> Attribution:
    """Split one symbol's difference in some columns into its parts."""
    n = matrix.n
    counted = Fraction(0)
    stretched = Fraction(0)
    main: tuple[Fraction, Loop | None] = Fraction(0), None
    for loop in matrix.loops:
        inside = columns[(columns >= loop.first) & (columns < loop.last)]
        normal = int(matrix.sums[letter, inside].sum())
        if not normal:
            continue
        columns = columns[(columns < loop.first) | (columns >= loop.last)]
        turns = int(loop.iterations[:-1].sum())
        surplus = n * int(loop.iterations[-1]) - turns
        part = Fraction(surplus * normal, turns)
        counted += part
        stretched += int(matrix.values[letter, inside].sum()) - part
        if abs(part) > abs(main[0]):
            main = part, loop
    occurrence, length = _split(matrix, letter, columns)
    length += stretched
    new = not matrix.support[letter].any()
    more = ("new-state" if new else "extra") if occurrence > 0 else "missing"
    named = (
        (more, occurrence),
        ("longer" if length > 0 else "shorter", length),
        ("loop-count", counted),
    )
    parts = tuple((kind, value / n) for kind, value in named if value)
    iterations, normal_iterations = _turns(main[1])
    return Attribution(
        tuple(sorted(parts, key=lambda part: (-abs(part[1]), part[0]))),
        iterations,
        normal_iterations,
    )


def _split(matrix: Matrix, letter: int, columns: I64) -> tuple[Fraction, Fraction]:
    """Return n times what is due to the number of occurrences and to their length."""
    n = matrix.n
    here = matrix.letters[-1, columns] == letter
    own = np.where(here, matrix.durations[-1, columns], 0)
    support, sums = matrix.support[letter, columns], matrix.sums[letter, columns]
    extra = Fraction(n * int(own[here & (support == 0)].sum()))
    extra_count = n * int((here & (support == 0)).sum())
    length = Fraction(n * int(own[here & (support > 0)].sum()))
    # Columns with as many supporting rows have one denominator: no more than n fractions.
    for k in np.unique(support[here & (support > 0)]).tolist():
        alike = here & (support == k)
        time = int(sums[alike].sum())
        extra += Fraction((n - k) * time, k)
        extra_count += (n - k) * int(alike.sum())
        length -= Fraction(n * time, k)
    missing, missing_count = int(sums[~here].sum()), int(support[~here].sum())
    each = extra / extra_count if extra_count else Fraction(0)
    each_missing = Fraction(missing, missing_count) if missing_count else Fraction(0)
    pairs = min(extra_count, missing_count)
    length += pairs * (each - each_missing)
    return (extra_count - pairs) * each - (missing_count - pairs) * each_missing, length


def _turns(loop: Loop | None) -> tuple[float, tuple[float, float]]:
    if loop is None:
        return NO_LOOP
    normal = loop.iterations[:-1].astype(np.float64)
    sd = float(normal.std(ddof=1)) if len(normal) > 1 else 0.0
    return float(loop.iterations[-1]), (float(normal.mean()), sd)


# An alignment as tables.


class Matrix(Struct, frozen=True, eq=False):
    """The alignment as arrays; the last row is the anomalous one.

    Attributes
    ----------
    letters : int32 [rows, columns]
    durations : int64 [rows, columns]
        Nanoseconds, 0 for a gap.
    rows : int32 [rows, columns]
        Position within the own path, -1 for a gap.
    n : int
        Normal rows.
    support, sums : int64 [letters, columns]
        How many normal rows have a letter in a column, and their time in it.
    values : int64 [letters, columns]
        n times the difference: ``n * observed - sums``.
    totals : int64 [rows, letters]
        Time in a letter over the whole path.
    loops : tuple of Loop
        Those that at least half of the normal rows run, twice or more often, and the last
        row unusually often or seldom: at least one iteration, and more than two standard
        deviations, from the mean of the normal rows.
    """

    letters: I32
    durations: I64
    rows: I32
    n: int
    support: I64
    sums: I64
    values: I64
    totals: I64
    loops: tuple[Loop, ...]

    @classmethod
    def of(cls, alignment: Alignment, interference: Collection[int] = ()) -> Self:
        """Build the tables of an alignment.

        Parameters
        ----------
        alignment : Alignment
        interference : collection of int
            Letters that only interrupt: one state and what cuts it is no loop of a program.
        """
        letters, durations = alignment.symbols, alignment.column_durations
        n, columns = len(letters) - 1, letters.shape[1]
        kinds = int(letters.max(initial=-1)) + 1
        support, sums = np.zeros((2, kinds, columns), np.int64)
        values = np.zeros((kinds, columns), np.int64)
        totals = np.zeros((n + 1, kinds), np.int64)
        for row in range(n + 1):
            places = np.flatnonzero(letters[row] >= 0)
            own, time = letters[row, places], durations[row, places]
            np.add.at(totals[row], own, time)
            if row < n:
                support[own, places] += 1
                sums[own, places] += time
            else:
                values[own, places] = n * time
        values -= sums
        unusual = tuple(
            loop
            for loop in alignment.loops
            if _unusual(loop)
            and _does_things(letters[:, loop.first : loop.last], loop, interference)
        )
        return cls(letters, durations, alignment.rows, n, support, sums, values, totals, unusual)


def _unusual(loop: Loop) -> bool:
    normal = loop.iterations[:-1].astype(np.float64)
    if not len(normal) or np.median(normal) < FINDINGS.least_turns:
        return False  # one iteration, or a few rows' many, are nothing to count in
    far = abs(float(loop.iterations[-1]) - normal.mean())
    sd = float(normal.std(ddof=1)) if len(normal) > 1 else 0.0
    return bool(far >= 1 and far > FINDINGS.spread * sd)


def _does_things(block: I32, loop: Loop, interference: Collection[int]) -> bool:
    """Tell whether an iteration has two states or more, interference not counted."""
    here, counts = np.unique(block[block >= 0], return_counts=True)
    in_every = here[2 * counts >= int(loop.iterations.sum())]
    return len(set(in_every.tolist()) - set(interference)) > 1


# Candidates for findings, symbol by symbol.


class Candidate(Struct, frozen=True, eq=False):
    """A difference in one symbol.

    Attributes
    ----------
    letter : int
    columns : int64 [m]
        Where it lies: all columns there in which anyone has the symbol.
    net : int
        n times the difference (ns).
    offset : int
        n times what other symbols have less (more) in the same place, at most the net;
        with its sign.
    weight : float
        What it ranks by.
    abnormal : bool
    p : float
        Least p-value of its columns, NaN for none.
    """

    letter: int
    columns: I64
    net: int
    offset: int
    weight: float
    abnormal: bool
    p: float


def find_candidates(
    matrix: Matrix, statistics: ColumnStatistics, symbols: Sequence[Symbol]
) -> tuple[list[Candidate], int]:
    """Return every symbol's difference, split in its place and elsewhere; and their sum."""
    result = []
    total = 0
    enough = matrix.n >= FINDINGS.least_normals
    beyond_all = judge_totals(matrix.totals)
    sums = np.zeros((len(matrix.values), matrix.values.shape[1] + 1), np.int64)
    np.cumsum(matrix.values, axis=1, out=sums[:, 1:])
    for letter in np.flatnonzero(matrix.totals.any(axis=0) | matrix.support.any(axis=1)).tolist():
        columns = np.flatnonzero((matrix.support[letter] > 0) | (matrix.letters[-1] == letter))
        values = matrix.values[letter, columns]
        whole = int(values.sum())
        total += whole
        beyond = bool(beyond_all[letter])
        own_run = symbols[letter].role == "" and symbols[letter].state in RUNNING
        factor = FINDINGS.discount if own_run and not beyond else 1.0
        unit = _units(matrix, letter, columns)
        place = max_scoring_segment(
            np.add.reduceat(values, unit), unseen=not matrix.support[letter].any()
        )
        parts = [columns]
        if place is not None:
            ends = [*unit.tolist(), len(columns)]
            first, last = ends[place[0]], ends[place[1]]
            parts = [columns[first:last], np.delete(columns, slice(first, last))]
        for part in parts:
            net = int(matrix.values[letter, part].sum())
            if net:
                offset = _offset(sums, letter, part, net)
                p, odd = _verdict(matrix, statistics, letter, part, net)
                # What lies elsewhere is not odd because the symbol as a whole is.
                abnormal = odd or (beyond and 2 * net * whole >= whole * whole)
                weight = factor * (abs(net) - FINDINGS.moved * abs(offset))
                if enough and not abnormal:
                    weight *= FINDINGS.ordinary
                result.append(Candidate(letter, part, net, offset, weight, abnormal, p))
    return result, total


def _units(matrix: Matrix, letter: int, columns: I64) -> I64:
    """Return where units of columns begin: a loop whose iterations count is one."""
    begins = np.ones(len(columns), np.bool_)
    for loop in matrix.loops:
        inside = (columns >= loop.first) & (columns < loop.last)
        if matrix.sums[letter, columns[inside]].any():
            begins[np.flatnonzero(inside)[1:]] = False
    return np.flatnonzero(begins)


def _offset(sums: I64, letter: int, columns: I64, net: int) -> int:
    """Return by how much other symbols went the other way in the same place.

    Time that only moved, from waiting for a cpu to running on it for example, makes two
    large differences of opposite sign, of which none explains why the whole took longer.
    """
    first = max(int(columns[0]) - FINDINGS.near, 0)
    last = min(int(columns[-1]) + 1 + FINDINGS.near, sums.shape[1] - 1)
    nets = sums[:, last] - sums[:, first]
    nets[letter] = 0
    if net > 0:
        return min(net, -int(nets[nets < 0].sum()))
    return max(net, -int(nets[nets > 0].sum()))


def _verdict(
    matrix: Matrix, statistics: ColumnStatistics, letter: int, columns: I64, net: int
) -> tuple[float, bool]:
    """Return the least p-value and the verdict of the columns that are about a difference.

    Those go the way that the whole of it does, and there the row has the symbol, or a gap
    where most of the others have it.
    """
    columns = columns[matrix.values[letter, columns] * np.sign(net) > 0]
    mine = matrix.letters[-1, columns]
    about = columns[(mine == letter) | ((mine < 0) & (statistics.normal_symbol[columns] == letter))]
    p = np.concatenate([statistics.p_structure[about], statistics.p_duration[about]])
    known = p[~np.isnan(p)]
    least = float(known.min()) if len(known) else float("nan")
    return least, bool(statistics.abnormal[about].any())


def choose(
    candidates: list[Candidate],
    net_total: int,
    work: Mapping[int, tuple[bool, str]] = MappingProxyType({}),
) -> list[Candidate]:
    """Take candidates by weight until enough is explained; slower ones first.

    ``work`` are letters of threads that run or wait for a cpu to do so: whether, and their roles.
    """
    scale = net_total
    if net_total <= 0:
        scale = max(-net_total, sum(c.net for c in candidates if c.net > 0))
    chosen: list[Candidate] = []
    rest = net_total
    ranked = sorted(
        (c for c in candidates if c.net and abs(c.net) >= FINDINGS.least * scale),
        key=lambda c: (-c.weight, -abs(c.net), c.letter, int(c.columns[0])),
    )
    for candidate in ranked:
        if len(chosen) == FINDINGS.most:
            break
        if chosen and abs(rest) <= (1 - FINDINGS.explained) * scale:
            # Waits for a cpu may explain nearly all, and be there because their thread ran longer.
            waits = {work.get(c.letter) for c in chosen if c.net > 0}
            waiting, role = work.get(candidate.letter, (True, ""))
            if waiting or (True, role) not in waits or not candidate.abnormal:
                continue
            if candidate.net < CAUSES.minor * scale:
                continue
        chosen.append(candidate)
        rest -= candidate.net
    return sorted(chosen, key=lambda c: c.net < 0)


# Where along the columns a symbol's excess lies.


def maximal_stretches(scores: F64) -> list[tuple[int, int]]:
    """Return all maximal scoring stretches (Ruzzo and Tompa 1999), in linear time."""
    # Each: first, last, sum before its first score, sum up to its last.
    stack: list[tuple[int, int, float, float]] = []
    total = 0.0
    for place, score in enumerate(scores.tolist()):
        before, total = total, total + score
        if score <= 0:
            continue
        first, left, right = place, before, total
        while True:
            lower = len(stack) - 1
            while lower >= 0 and stack[lower][2] >= left:
                lower -= 1
            if lower < 0 or stack[lower][3] >= right:
                break
            first, left = stack[lower][0], stack[lower][2]
            del stack[lower:]
        stack.append((first, place + 1, left, right))
    return [(first, last) for first, last, _, _ in stack]


def max_scoring_segment(values: I64, *, unseen: bool = False) -> tuple[int, int] | None:
    """Find the stretch of columns that holds most of a symbol's net difference.

    Every column is first charged a quarter of the mean difference per column, so
    that a stretch ends where the difference does.  Stretches are then taken from
    the largest until they hold 95 % of the net or the next is less than a tenth of
    it (2 % if `unseen`); the place runs from the first to the last of them.
    """
    net = int(values.sum())
    if net == 0:
        return None
    signed = values * (1 if net > 0 else -1)
    size = abs(net)
    charged: F64 = signed.astype(float) - size / (4 * len(values))
    stretches = maximal_stretches(charged)
    sums = [int(signed[first:last].sum()) for first, last in stretches]
    least = (FINDINGS.crumb if unseen else FINDINGS.noise) * size
    low, high = len(values), 0
    for index in sorted(range(len(sums)), key=lambda i: (-sums[i], i)):
        held = int(signed[low:high].sum()) if low < high else 0
        if low < high and (held >= FINDINGS.enough * size or sums[index] < least):
            break
        low, high = min(low, stretches[index][0]), max(high, stretches[index][1])
    if low >= high:
        return None
    held = int(signed[low:high].sum())
    if not FINDINGS.trusted[0] * size <= held <= FINDINGS.trusted[1] * size:
        return None
    return low, high


# Totals of symbols that are out of the ordinary.


def judge_totals(totals: I64) -> Bool:
    """Tell in which symbols the last row's total is beyond the others' fluctuation."""
    n, symbols = len(totals) - 1, totals.shape[1]
    known = np.flatnonzero(totals.any(axis=0))
    result = np.zeros(symbols, np.bool_)
    if n < FINDINGS.least_normals or not len(known):
        return result
    # Rounded: equal rows have to tie whatever the last bit of their sums.
    distance = np.round(_distances(totals[:, known]), 9)
    mine, furthest = distance[-1], distance[:-1].max(axis=1)
    as_far = (furthest[:, None] >= mine).sum(axis=0)
    rare = as_far <= FINDINGS.as_far * n
    result[known] = rare & (student_tails(mine, n - 1) < COLUMNS.level / len(known))
    return result


def _distances(totals: I64) -> F64:
    """Return how far each row's logarithm is from all the others', as Student's t."""
    logs = np.log(np.maximum(totals, 0) + COLUMNS.blur)
    n = len(logs) - 1
    off = logs - logs.mean(axis=0)
    # Of the other n rows: both follow from the sums over all n + 1.
    squares = (off**2).sum(axis=0) - off**2 * (n + 1) / n
    spread = np.sqrt(np.maximum(squares, 0.0) / (n - 1))
    apart = np.abs(off) * (n + 1) / n
    result: F64 = apart / (np.maximum(spread, SPREADS.least) * np.sqrt(1 + 1 / n))
    return result
