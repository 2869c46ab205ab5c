"""Two families of tests at one level, what they flag, and the least that would show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from critpath.detect.tails import SlowEnd, slow_end
from critpath.model import F64, I64, Bool, Change, VectorTable
from critpath.processes import side_by_side
from critpath.schema.parameters.detect import EFFECTS
from critpath.schema.parameters.shared import NORMAL, SPREADS
from critpath.stats.means import (
    Effects,
    compare_blocks,
    compare_runs,
    compare_runs_by_stratum,
    effects,
    take_robust_logs,
)
from critpath.stats.permutations import GateTest, Together, gate, gates
from critpath.stats.rows import medians_by, row_blocks


def detectable_shift(error: float, critical: float, floor: float) -> float:
    """Smallest shift of the mean total that these sets would show four times in five.

    ``error`` is of the difference of the means, by the spread of both sets: what makes the
    sample vary hides a shift of it as well.
    """
    return max(floor + NORMAL.q80 * error, (critical + NORMAL.q80) * error)


# What the gate flags: significant, large enough, and surely so.


class Flags(Struct, frozen=True):
    """Bool arrays: over all types [columns], in each [strata, columns]."""

    over_all: Bool
    by_type: Bool

    @property
    def columns(self) -> Bool:
        """Columns that are flagged anywhere."""
        return np.asarray(self.over_all | self.by_type.any(axis=0), dtype=np.bool_)


def reach_floor(effect: F64, error: F64, floor: F64 | float) -> Bool:
    """Tell which effects reach the floor, and are surely above nothing."""
    return np.asarray(
        (effect > 0) & (effect >= floor) & (effect >= NORMAL.q90 * error), dtype=np.bool_
    )  # fmt: skip


def flag(
    families: Families,
    effects: Effects,
    cpu_waits: Bool,
    alpha: float,
    floor: float,
    clean: Effects | None = None,
) -> Flags:
    """Apply the gate.

    Parameters
    ----------
    families : Families
    effects : Effects
    cpu_waits : bool [columns]
        Which are waits for a CPU.  If one thread waits longer for one and others wait less, the
        scheduler only chose another one to wait: such waits count if their sum reaches the floor,
        with those for strangers or without: a program that crowds itself may meet fewer of them.
    alpha : float
    floor : float
        Share of the normal mean duration; within a type, of that type's.
    clean : Effects, optional
        Of the same without waits for a cpu that strangers had.
    """
    whole = effects.sample_mean - effects.normal_mean
    least = floor * effects.normal_mean[-1]
    over_all = reach_floor(whole, effects.error, least)
    over_all &= ~cpu_waits | (_sum_waits(effects, clean, cpu_waits)[0] >= least)
    least = floor * effects.stratum_mean[:, -1:]
    by_type = reach_floor(effects.stratum_effect, effects.stratum_error, least)
    by_type &= ~cpu_waits | (_sum_waits(effects, clean, cpu_waits)[1][:, None] >= least)
    return Flags(
        over_all & (families.p_value <= alpha), by_type & (families.stratum_p_value <= alpha)
    )


def _sum_waits(effects: Effects, clean: Effects | None, cpu_waits: Bool) -> tuple[float, F64]:
    """Return by how much waits for a cpu grew, over all types and in each: with others, or not."""
    both = [(of.sample_mean - of.normal_mean, of.stratum_effect) for of in (effects, clean) if of]
    over_all = max(float(whole[cpu_waits].sum()) for whole, _ in both)
    of_types = np.max([by_type[:, cpu_waits].sum(axis=1) for _, by_type in both], axis=0)
    return over_all, np.asarray(of_types, np.float64)


def is_work_longer(
    families: Families, whole: Effects, work: Effects, alpha: float, floor: float
) -> bool:
    """Tell whether the work surely became longer where strangers' time hides it in the whole."""
    totals = [
        reach_floor(
            of.sample_mean[-1] - of.normal_mean[-1], of.error[-1], floor * of.normal_mean[-1]
        )
        for of in (whole, work)
    ]
    return bool(families.p_value[-1] <= alpha and totals[1] and not totals[0])


def use_work(whole: Effects, work: Effects) -> Effects:
    """Return effects whose total, which says what is large, is that of the work."""
    names = (
        *("normal_mean", "sample_mean", "error"),
        *("stratum_effect", "stratum_mean", "stratum_error"),
    )
    both = {name: (getattr(whole, name), getattr(work, name)) for name in names}
    return replace(
        whole, **{name: np.append(a[..., :-1], b[..., -1:], -1) for name, (a, b) in both.items()}
    )


def changes(
    families: Families,
    effects: Effects,
    flags: Flags,
    names: tuple[str, ...],
    labels: Sequence[str],
    *,
    alpha: float,
    floor: float,
) -> tuple[tuple[Change, ...], tuple[Change, ...]]:
    """Return what is flagged, and what is significant all the same; the largest first."""
    whole = effects.sample_mean - effects.normal_mean
    rows = [
        (-1, whole, families.p_value, flags.over_all, effects.normal_mean[-1], effects.error),
        *(
            (
                *(s, effects.stratum_effect[s], families.stratum_p_value[s], flags.by_type[s]),
                *(mean, effects.stratum_error[s]),
            )
            for s, mean in enumerate(effects.stratum_mean[:, -1])
        ),
    ]
    slower: list[Change] = []
    slight: list[Change] = []
    for kind, effect, p_value, flagged, mean, error in rows:
        for i in np.flatnonzero((p_value <= alpha) & (effect > 0)):
            change = Change(
                *(names[i], float(effect[i]), kind),
                label=labels[kind] if 0 <= kind < len(labels) else "",
                p_value=float(p_value[i]),
                floor=floor * float(mean),
                mean=float(mean),
                error=float(error[i]),
            )
            (slower if flagged[i] else slight).append(change)
    return tuple(_sort_changes(slower)), tuple(_sort_changes(slight))


def _sort_changes(found: list[Change]) -> list[Change]:
    # Over all types before one of them, if it is as large.
    return sorted(found, key=lambda c: (-c.effect, c.kind, c.name))


# Two families of hypotheses at one level: anything, and each state.


class Families(Struct, frozen=True):
    """Outcome of both families; p-values are adjusted for everything that is tested.

    Attributes
    ----------
    p_value : float64 [symbols + 1]
        Over all types; the last is of the whole: the total latency and the
        unusualness of the executions, whichever is smaller.
    stratum_p_value : float64 [strata, symbols + 1]
        Of each type by itself.
    whole, states : GateTest
        As tested, not adjusted for one another.
    slow : SlowEnd
        Whether few executions are slower than their number can be by chance.
    """

    p_value: F64
    stratum_p_value: F64
    whole: GateTest
    states: GateTest
    slow: SlowEnd


def two_families(
    normal: VectorTable,
    sample: VectorTable,
    judged: tuple[VectorTable, VectorTable],
    strata: tuple[I64, I64],
    *,
    alpha: float,
    permutations: int,
    sessions: tuple[I64, I64] | None = None,
    kinds: tuple[I64, I64] | None = None,
    runs: tuple[I64, I64] | None = None,
    blocks: tuple[I64, I64] | None = None,
    work: tuple[I64, I64] | None = None,
) -> Families:
    """Test the whole executions and every state of them, at one level together.

    Of the whole these are the total, how unusual it is and, in the same permutations, ``work``:
    the total without the time that strangers had the cpu.  ``kinds`` are types that are surer than
    ``strata`` and coarser: the labels.  With ``blocks`` only these are exchanged, which is valid
    whatever the machine did meanwhile; else see `confirm_by_runs`.
    """
    scores = score_unusualness(*judged, *strata)
    total = normal.total, sample.total
    level = alpha * EFFECTS.whole
    # Of whole sessions only an exchange of these is a test.
    divided = kinds is not None and sessions is None and _has_divided_kinds(strata, kinds)
    share = (1 - EFFECTS.slow) - EFFECTS.regardless if divided else (1 - EFFECTS.slow)
    unlike = work is not None and any((x != y).any() for x, y in zip(work, total, strict=True))
    others = [work] if work is not None and unlike else []
    before, after = map(np.column_stack, zip(total, scores, *others, strict=True))
    (whole, states), slow = side_by_side(
        partial(
            gates,
            [
                Together(before, after, level * share),
                Together(normal.durations, sample.durations, alpha * (1 - EFFECTS.whole)),
            ],
            *strata,
            permutations=permutations,
            sessions=sessions,
            blocks=blocks,
        ),
        partial(slow_end, *total, *strata, level * EFFECTS.slow),
        rows=len(normal) + len(sample),
        copied=False,
    )
    over_all = [float(whole.p_value.min()) / share]
    if sessions is None:
        often = 0.0 if runs is None or blocks is None else _test_slow_runs(slow, runs)
        over_all.append(max(slow.p_value, often) / EFFECTS.slow)
    if divided and kinds is not None:
        regardless = gate(
            total[0][:, None],
            total[1][:, None],
            *kinds,
            alpha=level * EFFECTS.regardless,
            permutations=permutations,
            blocks=blocks,
        )
        over_all.append(float(regardless.p_value.min()) / EFFECTS.regardless)
    by_type = whole.stratum_p_value.min(axis=1) / share
    first = min(*over_all, float(by_type.min()), math.inf) / EFFECTS.whole
    p_value = np.append(
        _adjust_states(states.p_value, first), min(1.0, min(over_all) / EFFECTS.whole)
    )
    by_stratum = np.column_stack(
        [_adjust_states(states.stratum_p_value, first), np.minimum(by_type / EFFECTS.whole, 1.0)]
    )
    return Families(
        p_value=p_value,
        stratum_p_value=by_stratum,
        whole=whole,
        states=states,
        slow=slow,
    )


def confirm_by_runs(
    families: Families,
    durations: tuple[I64, I64],
    others: tuple[VectorTable, VectorTable],
    strata: tuple[I64, I64],
    runs: tuple[I64, I64] | None,
    floor: float,
    blocks: tuple[I64, I64] | None = None,
) -> Families:
    """Raise the p-values of what a neighbour's burst may have made of sets recorded together.

    The executions of a run share what a neighbour does, so the runs have to show a change, too:
    without the time that strangers had the cpu instead, or with it, if that is `EFFECTS.bursts`
    times as sure.

    Parameters
    ----------
    families : Families
        Of single executions.
    durations : (int64 [n, columns], int64 [m, columns])
        With the total.
    others : (VectorTable, VectorTable)
        The same without waits for a cpu that strangers had.
    strata : (int64 array, int64 array)
    runs : (int64 array, int64 array) or None
        Run of every execution; None where each is one.
    floor : float
        Share of the mean duration that a change has to be without these waits, too.
    blocks : (int64 array, int64 array) or None
        Block of every execution, too few to be exchanged.
    """
    ours, theirs = (np.column_stack([t.durations, t.total]) for t in others)
    clean = ours, theirs
    found = effects(*clean, *strata, 0, replicates=0)
    over_all = reach_floor(
        found.sample_mean - found.normal_mean, found.error, floor * found.normal_mean[-1]
    )
    by_type = reach_floor(
        found.stratum_effect, found.stratum_error, floor * found.stratum_mean[:, -1:]
    )
    least, least_of = 1.0 - over_all, 1.0 - by_type
    # Where every execution is a run, a burst is longer than these: only blocks tell them apart.
    usual, usual_of = np.ones_like(least), np.ones_like(least_of)
    if runs is None and blocks is not None:
        usual = _block_p_values(*durations, strata, blocks)
    elif runs is not None:
        slow = slow_end(clean[0][:, -1], clean[1][:, -1], *strata, EFFECTS.slow)
        of_clean = _run_p_values(*clean, strata, runs, slow)
        least, least_of = np.maximum(least, of_clean[0]), np.maximum(least_of, of_clean[1])
        usual, usual_of = _run_p_values(*durations, strata, runs, families.slow)
    least = np.minimum(least, EFFECTS.bursts * usual)
    least_of = np.minimum(least_of, EFFECTS.bursts * usual_of)
    return replace(
        families,
        p_value=np.maximum(families.p_value, least),
        stratum_p_value=np.maximum(families.stratum_p_value, least_of),
    )


def _block_p_values(
    normal: I64, sample: I64, strata: tuple[I64, I64], blocks: tuple[I64, I64]
) -> F64:
    """Return p-values of blocks over all types [columns]."""
    ours, theirs = normal.astype(np.float64), sample.astype(np.float64)
    for s in np.unique(strata[0]):
        middle = ours[strata[0] == s].mean(axis=0)
        ours[strata[0] == s] -= middle
        theirs[strata[1] == s] -= middle
    known = np.isin(strata[1], strata[0])
    logs = take_robust_logs((normal, sample[known]), (strata[0], strata[1][known]))
    return compare_blocks(ours, theirs[known], (blocks[0], blocks[1][known]), logs)


def _run_p_values(
    normal: I64, sample: I64, strata: tuple[I64, I64], runs: tuple[I64, I64], slow: SlowEnd
) -> tuple[F64, F64]:
    """Return p-values of runs over all types [columns] and of each type [strata, columns].

    The total's is the lesser of its own and that of how many of a run's executions are slow.
    """
    over_all, by_type = compare_runs_by_stratum(normal, sample, strata, runs)
    over_all[-1] = min(over_all[-1], _test_slow_runs(slow, runs))
    return over_all, by_type


def _test_slow_runs(slow: SlowEnd, runs: tuple[I64, I64]) -> float:
    """Return the p-value of how many of a run's executions are slow; 1 where none is."""
    if not slow.slow:
        return 1.0
    members = np.zeros((len(runs[1]), 1))
    members[slow.members] = 1
    return float(compare_runs(np.zeros((len(runs[0]), 1)), members, *runs)[0])


def _has_divided_kinds(strata: tuple[I64, I64], kinds: tuple[I64, I64]) -> bool:
    """Tell whether some kind has several types."""
    pairs = {*zip(kinds[0].tolist(), strata[0].tolist(), strict=True)}
    return len(pairs) > len({kind for kind, _ in pairs})


def _adjust_states(p_value: F64, first: float) -> F64:
    """Adjust the states' p for the other family, whose least adjusted p is ``first``."""
    alone = np.minimum(p_value / (1 - EFFECTS.whole), 1.0)
    return np.asarray(np.minimum(alone, np.maximum(p_value, first)), dtype=np.float64)


# Unusualness: one number per execution.


_AT_ONCE = 1 << 18  # technical: values looked at together
_SCALE = 1_000_000  # technical: the score is kept in integers, like the durations it stands beside


def score_unusualness(
    normal: VectorTable, sample: VectorTable, normal_type: I64, sample_type: I64
) -> tuple[I64, I64]:
    """Score every execution against all others of its type, whichever set they are in."""
    types = _Types.of(np.concatenate([normal_type, sample_type]))
    tables = (normal, normal.total), (sample, sample.total)
    width = len(normal.symbols) + 1

    def take(columns: slice) -> F64:
        """Return some columns of both, one after the other, in order of the types."""
        found = np.empty((columns.stop - columns.start, len(types.order)))
        first = 0
        for table, total in tables:
            rows = slice(first, first := first + len(table))
            some = table.durations[:, columns]
            found[: some.shape[1], rows] = some.T
            if columns.stop == width:
                found[-1, rows] = total
        return found.take(types.order, axis=1)

    middle = medians_by(take(slice(width - 1, width)), types.ends)[0]
    least = np.maximum(SPREADS.least * middle, 1.0)
    offset = np.maximum(EFFECTS.offset * middle, 1.0)
    # By columns, then by rows: a whole table of each scale would be the largest of all there are.
    scales = np.empty((4, len(least), width))  # middle and spread of values, of logarithms
    step = max(_AT_ONCE // max(len(types.order), 1), 1)
    for columns in (slice(at, min(at + step, width)) for at in range(0, width, step)):
        values = take(columns)
        scales[:2, :, columns] = types.find_middles(values, least)
        logs = np.log(values + types.spread(offset))
        scales[2:, :, columns] = types.find_middles(logs, SPREADS.least)
    scores: list[I64] = []
    for (table, total), kind in zip(tables, types.divide(len(normal)), strict=True):
        score = np.empty(len(table), np.int64)
        for rows in row_blocks(len(table)):
            some = np.empty((len(kind[rows]), width))
            some[:, :-1], some[:, -1] = table.durations[rows], total[rows]
            *linear, middles, spreads = scales[:, kind[rows]]
            product = _robust_z(some, *linear)
            product *= _robust_z(np.log(some + offset[kind[rows], None]), middles, spreads)
            score[rows] = np.rint(np.sqrt(product.sum(axis=1)) * _SCALE)
        scores.append(score)
    return scores[0], scores[1]


class _Types(Struct, frozen=True):
    """Executions in order of their types: up to each end they are of one."""

    kind: I64  # of each execution, as numbered in order
    order: I64
    sizes: I64
    ends: I64

    @classmethod
    def of(cls, kind: I64) -> _Types:
        """Return those of executions whose types are given."""
        sizes = np.bincount(kind)
        used = sizes > 0
        sizes, kind = sizes[used], (np.cumsum(used) - 1)[kind]
        return cls(kind, np.argsort(kind, kind="stable"), sizes, np.cumsum(sizes))

    def divide(self, many: int) -> list[I64]:
        """Return the types of so many executions, and of the others."""
        return [self.kind[:many], self.kind[many:]]

    def spread(self, values: F64) -> F64:
        """Return values of types for each execution in order."""
        return np.repeat(values, self.sizes, axis=-1)

    def find_middles(self, values: F64, least: F64 | float) -> F64:
        """Return the medians of types, and robust standard deviations, kept off zero.

        ``values`` are of executions in order [columns, executions]; [2, types, columns].
        """
        middle = medians_by(values, self.ends)
        spread = medians_by(np.abs(values - self.spread(middle)), self.ends)
        return np.stack([middle.T, np.hypot(NORMAL.per_mad * spread.T, np.reshape(least, (-1, 1)))])


def _robust_z(values: F64, middle: F64, spread: F64) -> F64:
    """Positive deviation from the median, in robust standard deviations."""
    return np.asarray(np.maximum((values - middle) / spread, 0.0))
