"""Coarse detection: two VectorTables -> Detection.

The executions as a whole and every state of them are tested at one level together
(`critpath.detect.families`).  A state's ``p_value`` is adjusted for all of it; the total's
is that of the whole.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from msgspec import Struct

from critpath.detect.comparability import exchangeable, floor_share, permutable
from critpath.detect.families import (
    Families,
    changes,
    confirm_by_runs,
    detectable_shift,
    flag,
    is_work_longer,
    two_families,
    use_work,
)
from critpath.detect.machine import Trips, find_signs, is_surely_more
from critpath.detect.rules import RULES, RuleEvidence, shift_of
from critpath.detect.tails import percentiles
from critpath.documents import PercentileEntry, SlowShown, StateEntry, UsualEntry, WorkEntry
from critpath.documents.base import change, number
from critpath.errors import InconclusiveError, UsageError
from critpath.model import (
    F64,
    I64,
    INTERFERENCE,
    Bool,
    Change,
    Detection,
    State,
    Symbol,
    VectorTable,
    Whole,
)
from critpath.processes import in_halves, side_by_side
from critpath.schema import notes
from critpath.schema.notes import Note
from critpath.schema.parameters.detect import COARSE, EFFECTS
from critpath.schema.parameters.shared import DEFAULTS
from critpath.stats._subsets import draw
from critpath.stats.means import Effects, effects, find_usual_change
from critpath.stats.permutations import GateTest, count_ways
from critpath.stats.rows import (
    center_by,
    column_blocks,
    hash_rows,
    make_seed,
    order_hashed,
    row_blocks,
    seed_hashed,
)
from critpath.stats.tails import least_rare

# The paper's Algorithm 1: its average rule and its probability rule.


Y_REFERENCES = ("a1", "a2")


class Algorithm1(Struct, frozen=True):
    """Both rules for every column; arrays are [columns], durations in ns.

    Attributes
    ----------
    normal_mean, normal_std : float64
        ``normal_std`` with ddof 1, 0 where there is one execution.
    average_threshold : float64 or None
        None where one execution gives no standard deviation.
    average_fires, probability_fires, new_state : bool
    normal_above, sample_above : float64
        The paper's p1 and p2.
    notes : tuple of str
    """

    normal_mean: F64
    normal_std: F64
    average_threshold: F64 | None
    average_fires: Bool
    normal_above: F64
    sample_above: F64
    probability_fires: Bool
    new_state: Bool
    notes: tuple[Note, ...]


def algorithm1(
    normal: I64,
    sample: I64,
    *,
    t1: float = DEFAULTS.t1,
    t2: float | None = None,
    y_reference: str = "a1",
    alpha: float = DEFAULTS.alpha,
    names: tuple[str, ...] = (),
) -> Algorithm1:
    """Compare the columns of two sets of executions by the paper's two rules.

    The sets are [executions, columns], or many of them at once, [..., executions, columns].
    """
    return apply_rules(
        _measure_sides(normal, sample, y_reference), t1=t1, t2=t2, alpha=alpha, names=names
    )


class _Sides(Struct, frozen=True):
    """What the rules look at of two sets; arrays are [..., columns]."""

    n: int
    m: int
    mean: F64
    std: F64
    sample_mean: F64
    x: I64  # normal executions above the normal mean
    y: I64  # of the sample, above the mean that is referred to


def _measure_sides(normal: I64, sample: I64, y_reference: str) -> _Sides:
    if y_reference not in Y_REFERENCES:
        raise ValueError(f"y_reference {y_reference!r}: choose from {', '.join(Y_REFERENCES)}")
    (n, columns), m = normal.shape[-2:], sample.shape[-2]
    if not n or not m:
        raise ValueError("Algorithm 1 needs a run in both sets")
    mean = normal.mean(axis=-2)
    std = np.zeros_like(mean)
    for block in column_blocks(columns) if n > 1 else ():
        std[..., block] = normal[..., block].std(axis=-2, ddof=1)
    return _Sides(
        *(n, m, mean, std, sample.mean(axis=-2), _count_above(normal, normal)),
        _count_above(sample, normal if y_reference == "a1" else sample),
    )


def apply_rules(
    of: _Sides,
    *,
    t1: float = DEFAULTS.t1,
    t2: float | None = None,
    alpha: float = DEFAULTS.alpha,
    names: tuple[str, ...] = (),
) -> Algorithm1:
    """Decide by the paper's two rules; see `algorithm1`."""
    if t1 < 0 or (t2 is not None and t2 <= 0):
        raise ValueError("t1 >= 0 and t2 > 0 expected")
    n, m, x, y, columns = of.n, of.m, of.x, of.y, of.mean.shape[-1]
    remarks: list[Note] = []
    threshold = None
    average = np.zeros(of.mean.shape, np.bool_)
    if n > 1:
        threshold = of.mean + t1 * of.std
        # Rounding of the threshold is no slowdown: equal sets must not fire.
        average = of.sample_mean > threshold * (1 + 1e-12)
    else:
        remarks.append(notes.AverageRuleSkipped())
    p1, p2 = x / n, y / m
    new_state = (x == 0) & (y > 0)
    if t2 is None:
        rising = _find_rises(x, n, y, m, alpha / columns)
    else:
        rising = p2 > p1 * t2
        mute = np.flatnonzero(((p1 * t2 >= 1) & (x > 0)).reshape(-1, columns).any(axis=0))
        if len(mute):
            known = [names[i] for i in mute if i < len(names)]
            remarks.append(notes.MuteRatio(t2, tuple(known), len(mute)))
    return Algorithm1(of.mean, of.std, threshold, average, p1, p2, rising | new_state, new_state,
                      tuple(remarks))  # fmt: skip


def _count_above(values: I64, reference: I64) -> I64:
    """Count values above the mean of the reference, in exact integers."""
    # e * n > sum is e > floor(sum / n) for integers, where the product could overflow.
    floor = reference.sum(axis=-2, keepdims=True) // reference.shape[-2]
    return np.asarray((values > floor).sum(axis=-2), dtype=np.int64)


def _find_rises(x: I64, n: int, y: I64, m: int, level: float) -> Bool:
    """Whether Fisher's exact test, one-sided, finds the sample's share the larger."""
    counts = zip(x.ravel().tolist(), y.ravel().tolist(), strict=True)
    rises = [b >= least_rare(a + b, m, n, level) for a, b in counts]
    return np.array(rises, np.bool_).reshape(x.shape)


# False alarms of the paper's rules.


_WORK = 1 << 26  # technical: values looked at in all
_AT_ONCE = 1 << 18  # technical: of them


def false_alarms(
    columns: Whole,
    chosen: int,
    rule: Callable[[_Sides], Algorithm1],
    random_seed: int,
    y_reference: str = "a1",
) -> float:
    """Share of random splits of all executions in which Algorithm 1 fires for a state.

    Of each column what all of them have, in an order that only their content decides; so many
    are the sample's.
    """
    many = columns.shape[1]
    splits = int(np.clip(_WORK // max(columns.size, 1), COARSE.least_splits, COARSE.splits))
    rng = np.random.default_rng(random_seed)
    pool = _Pool.of(columns)
    alarms = 0
    for some in row_blocks(splits, max(_AT_ONCE // max(columns.size, 1), 1)):
        marked = np.zeros((len(range(splits)[some]), many), np.uint8)
        draw(rng.integers(0, 1 << 64, len(marked), np.uint64), chosen, marked)
        mine = np.nonzero(marked)[1].reshape(len(marked), -1)
        found = rule(pool.divide(mine, y_reference))
        fires = found.average_fires | found.probability_fires
        alarms += int(fires[:, :-1].any(axis=1).sum())
    return alarms / splits


class _Pool(Struct, frozen=True):
    """All executions of two sets, by column, and what is the same however they are split."""

    columns: Whole
    ordered: Whole  # each column by itself
    totals: I64
    centres: F64
    squares: F64  # about the centres

    @classmethod
    def of(cls, columns: Whole) -> _Pool:
        """Return that of columns [columns, executions]."""
        totals = columns.sum(axis=1, dtype=np.int64)
        centres = totals / max(columns.shape[1], 1)
        squares = [
            float(((column - c) ** 2).sum()) for column, c in zip(columns, centres, strict=True)
        ]
        return cls(columns, np.sort(columns, axis=1), totals, centres, np.array(squares))

    def divide(self, mine: I64, y_reference: str) -> _Sides:
        """Return what the rules look at where these [splits, m] are the sample's."""
        (splits, m), many = mine.shape, self.columns.shape[1]
        n = many - m
        shape = splits, len(self.columns)
        sums, squares = np.empty(shape, np.int64), np.empty(shape)
        x, y = np.empty(shape, np.int64), np.empty(shape, np.int64)
        for i, column in enumerate(self.columns):
            values = column[mine]
            sums[:, i] = values.sum(axis=1, dtype=np.int64)
            centred = values - self.centres[i]
            squares[:, i] = np.einsum("ij,ij->i", centred, centred)
            # As in `_count_above`; the normal ones are all but the sample's.
            floor = ((self.totals[i] - sums[:, i]) // n).astype(column.dtype)  # within its range
            above = (values > floor[:, None]).sum(axis=1)
            x[:, i] = many - np.searchsorted(self.ordered[i], floor, "right") - above
            if y_reference == "a1":
                y[:, i] = above
            else:
                y[:, i] = (values > (sums[:, i] // m)[:, None]).sum(axis=1)
        mean = (self.totals - sums) / n
        rest = self.squares - squares - n * (mean - self.centres) ** 2
        std = np.sqrt(np.maximum(rest, 0.0) / max(n - 1, 1))
        return _Sides(n, m, mean, std, sums / m, x, y)


def detect(
    normal: VectorTable,
    sample: VectorTable,
    *,
    rule: str = "gate",
    alpha: float = DEFAULTS.alpha,
    floor: float = DEFAULTS.floor,
    t1: float = DEFAULTS.t1,
    t2: float | None = None,
    y_reference: str = "a1",
    permutations: int = DEFAULTS.permutations,
    normal_type: I64 | None = None,
    sample_type: I64 | None = None,
    normal_session: I64 | None = None,
    sample_session: I64 | None = None,
    runs: tuple[I64, I64] | None = None,
    blocks: tuple[I64, I64] | None = None,
    judged: tuple[VectorTable, VectorTable] | None = None,
    clean: tuple[VectorTable, VectorTable] | None = None,
    own: tuple[VectorTable, VectorTable] | None = None,
    labels: tuple[Sequence[str], Sequence[str]] | None = None,
    percentile: float | None = None,
    screening: bool = True,
    explained: bool = True,
    trips: Trips | None = None,
) -> Detection:
    """Decide whether the sample set is slower than the normal set, and in which states.

    Parameters
    ----------
    normal, sample : VectorTable, over the same symbols
    rule, alpha, floor
        A key of `critpath.detect.rules.RULES`; family-wise level of the gate, in (0, 1); least
        effect that counts, as a share of the normal mean total, see `floor_share`.
    t1, t2, y_reference
        Settings of the paper's rules; see `critpath.detect.coarse.algorithm1`.
    permutations : int
        Random assignments, where enumerating all of them is too much.
    normal_type, sample_type, normal_session, sample_session, runs, blocks : int64, optional
        Execution types, the sample's as paired with normal ones: another mix is no slowdown, one
        type's is found; recording sessions; of both: runs, which share what the machine did, and
        blocks, in which a coin chose the order.
    judged, clean : tuple of VectorTable, optional
        The sets with interrupts folded into running time, themselves by default; those recorded
        together without waits for a cpu that strangers had.
    own : tuple of VectorTable, optional
        As ``clean``, whenever the sets were recorded.
    labels, percentile, screening, explained, trips : optional
        What each execution is; the quantile that decides; whether to count the paper's alarms, and
        to say what decides nothing, as intervals; how often each asked others.

    Returns
    -------
    Detection
        ``normal_mean`` and ``effect`` are adjusted to the sample's mix of types, ``p_value``
        is the smaller of those over all types and within one; the paper's are unadjusted.

    Raises
    ------
    InconclusiveError, UsageError
        If a set is empty; if so few permutations could never reach the level.
    """
    _check(normal, sample, rule, alpha, floor, permutations)
    strata = _strata(normal, sample, normal_type, sample_type)
    names = (*(s.name for s in normal.symbols), "total")
    by_paper = partial(apply_rules, t1=t1, t2=t2, alpha=alpha)
    least = alpha * min(EFFECTS.whole * (1 - EFFECTS.slow - EFFECTS.regardless), 1 - EFFECTS.whole)
    turns, blocks = blocks, exchangeable(blocks, least)
    sessions, why_not = permutable(None if blocks else normal_session, sample_session, least)
    families, measured = side_by_side(
        partial(two_families, normal, sample, judged or (normal, sample), strata, alpha=alpha,
                permutations=permutations, sessions=sessions, kinds=_kinds(strata, labels),
                runs=runs, blocks=blocks, work=clean and (clean[0].total, clean[1].total)),
        partial(_measure, normal, sample, own, strata, by_paper if screening else None,
                y_reference, blocks, runs, replicates=None if explained else 1),
        rows=len(normal) + len(sample),
    )  # fmt: skip
    whole, found, without = families.whole, measured.effects, measured.without
    if RULES[rule].permutation_test:
        _require_permutations(whole, permutations, alpha, least)
    share = floor_share(floor, normal.total, strata[0], normal_session)
    types = name_types(strata[0], labels)
    enough = whole.ways * least >= 1
    look_for_signs = partial(find_signs, normal, sample, strata, types,
                             families.p_value[:-1] <= alpha, share, trips)  # fmt: skip
    with_tails = explained or percentile
    signs, usual, work, table = in_halves(
        [
            look_for_signs if explained or clean is not None else _know_nothing,
            partial(_find_usual, own or (normal, sample), strata, labels, runs)
            if enough and explained else _know_nothing,
            partial(_measure_work, (normal, sample), own, strata, families, share, (blocks, runs))
            if own else _know_nothing,
            partial(percentiles, normal.total, sample.total, labels, percentile)
            if with_tails else _know_nothing,
        ],
        len(normal) + len(sample),
    )  # fmt: skip
    x, y = _with_totals(normal, sample)
    # What no neighbour can make needs no runs to confirm it.
    if clean is not None and blocks is None and not signs:
        families = confirm_by_runs(families, (x, y), clean, strata, runs, share, turns)
    cpu_waits = np.array([*(s.state == State.WAIT_CPU for s in normal.symbols), False])
    by_work = (
        clean is not None
        and without is not None
        and is_work_longer(families, found, without, alpha, share)
    )
    judged_by = use_work(found, without) if by_work and without is not None else found
    flags = flag(families, judged_by, cpu_waits, alpha, share, without)
    least_ns = share * found.normal_mean[-1]
    paper = by_paper(measured.sides, names=names)
    evidence = RuleEvidence(paper, families, found, flags, float(least_ns))
    flagged = RULES[rule].flag(evidence)
    if signs is None:
        signs = look_for_signs() if flagged.any() else ()
    slower, slight = changes(families, judged_by, flags, names, types, alpha=alpha, floor=share)
    remarks: list[Note] = [*evidence.paper.notes, *_test_notes(whole, permutations, why_not)]
    remarks += [notes.RaisedFloor(floor, share)] if share > floor else []
    remarks += _notes(evidence, strata, slower, names, alpha, enough=enough) if explained else []
    detection = Detection(
        rule=rule, alpha=alpha, floor=evidence.floor, floor_share=share,
        states=_states((normal, sample), evidence, t2, flagged, measured.ordinal),
        symbols=normal.symbols,
        flagged=bool(flagged.any()),
        detectable=_detectable(evidence, x, strata, blocks) if enough and len(x) > 1 else None,
        permutations=whole.permutations,
        enough=enough, needed=0 if enough else _count_needed(*strata, least),
        paper_false_alarms=measured.false_alarms,
        work=change(work, decides=by_work) if work and enough and len(x) > 1 else None,
        usual=usual,
        slower=slower, slight=slight, notes=[], remarks=tuple(remarks), signs=[*signs],
    )  # fmt: skip
    if not with_tails:
        return detection
    return _with_tails(detection, families, len(sample), table, gate=bool(percentile))


class _Measured(Struct, frozen=True):
    """What two sets differ by, whatever is tested."""

    effects: Effects
    without: Effects | None  # the time that strangers had the cpu
    sides: _Sides
    ordinal: tuple[F64, F64] | None
    false_alarms: float  # of the paper's rules


def _measure(
    normal: VectorTable,
    sample: VectorTable,
    own: tuple[VectorTable, VectorTable] | None,
    strata: tuple[I64, I64],
    by_paper: Callable[[_Sides], Algorithm1] | None,
    y_reference: str,
    blocks: tuple[I64, I64] | None,
    runs: tuple[I64, I64] | None,
    *,
    replicates: int | None,
) -> _Measured:
    """Return the effects, and the paper's false alarms where its rules are given."""
    without = own and effects(*_with_totals(*own), *strata, 0, replicates=0)
    x, y = _with_totals(normal, sample)
    sides = _measure_sides(x, y, y_reference)
    hashes = hash_rows(x), hash_rows(y)
    drawn = seed_hashed(hashes[1], hashes[0])
    found = effects(x, y, *strata, drawn, replicates=replicates, blocks=blocks, runs=runs)
    if by_paper is None:
        return _Measured(found, without, sides, None, 0.0)
    ordinal = ordinal_effects(x, y, *strata)
    # By column: what is added up and counted lies side by side; of most sets in half the bytes.
    largest = max(int(of.max(initial=0)) for of in (x, y))
    kind = np.int32 if largest < np.iinfo(np.int32).max else np.int64
    columns = np.empty((x.shape[1], len(x) + len(y)), kind)
    columns[:, : len(x)], columns[:, len(x) :] = x.T, y.T
    order = order_hashed(np.concatenate(hashes))  # in which executions came must not matter
    del x, y, hashes  # of very many executions each copy counts
    for column in columns:
        column[:] = column[order]
    alarms = false_alarms(columns, len(sample), by_paper, drawn, y_reference)
    return _Measured(found, without, sides, ordinal, alarms)


def _know_nothing() -> None:
    """Return what is not asked for."""


def _measure_work(
    whole: tuple[VectorTable, VectorTable],
    clean: tuple[VectorTable, VectorTable],
    strata: tuple[I64, I64],
    families: Families,
    floor: float,
    places: tuple[tuple[I64, I64] | None, tuple[I64, I64] | None],
) -> WorkEntry:
    """Return what is known of the duration without the time that strangers had the cpus."""
    x, y = (of.total[:, None] for of in clean)
    blocks, runs = places
    found = effects(x, y, *strata, make_seed(y, x), blocks=blocks, runs=runs)
    mean, after = float(found.normal_mean[0]), float(found.sample_mean[0])
    usual = _usual_error(x, strata) if blocks is None else 0.0
    error = max(float(found.error[0]), usual)
    shown = detectable_shift(error, families.whole.critical, floor * mean)
    taken = [of.total - without.total for of, without in zip(whole, clean, strict=True)]
    return WorkEntry(
        mean=number(mean),
        effect=number(after - mean),
        low=number(found.low[0]),
        high=number(found.high[0]),
        detectable=number(shown),
        taken=number(taken[1].mean() - taken[0].mean()),
        surely=is_surely_more(*taken),
    )


def _find_usual(
    own: tuple[VectorTable, VectorTable],
    strata: tuple[I64, I64],
    labels: tuple[Sequence[str], Sequence[str]] | None,
    runs: tuple[I64, I64] | None,
) -> UsualEntry | None:
    """Return how the usual execution changed; of several kinds, the one that may have most."""
    kinds = _kinds(strata, labels)
    found = []
    for kind in np.unique(kinds[1]):
        ours, theirs = (of == kind for of in kinds)
        one = find_usual_change(
            (own[0].total[ours, None], own[1].total[theirs, None]),
            (strata[0][ours], strata[1][theirs]),
            runs and (runs[0][ours], runs[1][theirs]),
        )
        if one is None:
            return None
        found.append(one)
    change, low, high = max(found, key=lambda of: of[2])
    return UsualEntry(number(change), number(low), number(high))


def _with_totals(normal: VectorTable, sample: VectorTable) -> tuple[I64, I64]:
    """Return the sets' durations, last the total."""
    x, y = (
        np.column_stack([t.durations, t.total.astype(t.durations.dtype)]) for t in (normal, sample)
    )
    return x, y


def _with_tails(
    detection: Detection,
    families: Families,
    m: int,
    table: Sequence[PercentileEntry],
    *,
    gate: bool,
) -> Detection:
    """Add what the totals' slow ends say."""
    known = detection.detectable is not None
    return change(
        detection,
        slow=_slow(families, m, detection.alpha),
        slow_shown=_slow_shown(families, m, detection.floor) if known else None,
        percentiles=[*table],
        gate=table[0] if gate else None,
    )


def _slow(families: Families, m: int, alpha: float) -> int:
    """Return how many executions are the slow ones, 0 where that may be all of them."""
    slow = families.slow
    fires = slow.p_value <= alpha * EFFECTS.whole * EFFECTS.slow and not families.whole.by_session
    return slow.slow if fires and slow.slow < m // 2 else 0


def _detectable(
    evidence: RuleEvidence, x: I64, strata: tuple[I64, I64], blocks: tuple[I64, I64] | None
) -> float:
    usual = _usual_error(x, strata) if blocks is None else 0.0
    error = max(float(evidence.effects.error[-1]), usual)
    return detectable_shift(error, evidence.families.whole.critical, evidence.floor)


def _usual_error(x: I64, strata: tuple[I64, I64]) -> float:
    """Return the standard error of the total's mean if the sample varied as the normal set."""
    if len(x) < 2:
        return 0.0
    many = np.unique(strata[1], return_counts=True)[1]
    residual = center_by(x[:, -1], strata[0])
    variance = float((residual**2).sum()) / max(len(x) - len(np.unique(strata[0])), 1)
    return math.sqrt(variance * (1 / int(many.sum()) + 1 / len(x)))


def _slow_shown(families: Families, m: int, floor: float) -> SlowShown | None:
    """Return how many slow executions would have shown; their mean must reach the floor, too."""
    shown = families.slow.shown
    if shown is None or families.whole.by_session:
        return None
    return SlowShown(shown[0], number(max(shown[1], floor * m / shown[0])))


def _kinds(
    strata: tuple[I64, I64], labels: tuple[Sequence[str], Sequence[str]] | None
) -> tuple[I64, I64]:
    """Return the types that labels tell, or one for all, where every one has normal executions."""
    nothing = tuple(np.zeros(len(each), np.int64) for each in strata)
    if labels is None or not set(labels[1]) <= set(labels[0]):
        return nothing[0], nothing[1]
    code = {text: i for i, text in enumerate(sorted(set(labels[0])))}
    ours, theirs = (np.array([code[text] for text in each], np.int64) for each in labels)
    return ours, theirs


def name_types(kind: I64, labels: tuple[Sequence[str], Sequence[str]] | None) -> list[str]:
    """Return what to call types: their label where it tells them, else as tables do."""
    names = [f"type n{s}" for s in range(int(kind.max(initial=-1)) + 1)]
    if labels is None or not any(labels[0]):
        return names
    for s in range(len(names)):
        mine = {labels[0][i] for i in np.flatnonzero(kind == s).tolist()}
        if len(mine) == 1:
            names[s] = mine.pop()
    return names


def _check(
    normal: VectorTable,
    sample: VectorTable,
    rule: str,
    alpha: float,
    floor: float,
    permutations: int,
) -> None:
    if rule not in RULES:
        raise ValueError(f"rule {rule!r}: choose from {', '.join(RULES)}")
    if not 0 < alpha < 1 or floor < 0 or permutations < 1:
        raise ValueError("0 < alpha < 1, floor >= 0, permutations >= 1 expected")
    if normal.symbols != sample.symbols:
        raise ValueError("normal and sample vectors have different symbols")
    for table, name in ((normal, "before"), (sample, "after")):
        if len(table) == 0:
            raise InconclusiveError(
                f"there is no run {name}",
                "check --execution, or record the workload again",
            )


def _require_permutations(whole: GateTest, permutations: int, alpha: float, least: float) -> None:
    if not whole.exact and (permutations + 1) * least < 1:
        raise UsageError(
            f"{permutations} permutations cannot reach the level {alpha:g}",
            f"give --permutations {math.ceil(1 / least)} or more",
        )


def _test_notes(whole: GateTest, permutations: int, why_not: Note | None) -> list[Note]:
    """Return how the permutations were drawn, where that is not as usual."""
    result: list[Note] = [why_not] if why_not else []
    result += [notes.SessionsPermuted()] if whole.by_session else []
    if not whole.exact and whole.permutations < permutations:
        result.append(notes.FewPermutations(whole.permutations))
    return result


def _notes(
    evidence: RuleEvidence,
    strata: tuple[I64, I64],
    slower: tuple[Change, ...],
    names: tuple[str, ...],
    alpha: float,
    *,
    enough: bool,
) -> list[Note]:
    """Return what else differs: a faster total, the mix of types, single types."""
    found = evidence.effects
    result: list[Note] = (
        [] if enough else [notes.TooSmallSets(len(strata[0]), len(strata[1]), alpha)]
    )
    change = float(found.sample_mean[-1] - found.normal_mean[-1])
    if change <= -evidence.floor and change < 0:
        result.append(notes.FasterSample(-change))
    mix = mix_shift(*strata)
    if mix <= alpha:
        result.append(notes.OtherMix(mix))
    if found.orphans:
        result.append(notes.Orphans(found.orphans))
    by_type = [c for c in slower if c.kind >= 0]
    result += [
        notes.SlowerType(shift_of(c))
        for c in sorted(by_type, key=lambda c: (c.kind, names.index(c.name)))
    ]
    return result


def _strata(
    normal: VectorTable, sample: VectorTable, normal_type: I64 | None, sample_type: I64 | None
) -> tuple[I64, I64]:
    if normal_type is None or sample_type is None:
        return np.zeros(len(normal), np.int64), np.zeros(len(sample), np.int64)
    if len(normal_type) != len(normal) or len(sample_type) != len(sample):
        raise ValueError("one type per run expected")
    if normal_type.min() < 0 or sample_type.min() < 0:
        raise ValueError("types are numbered from 0")
    return normal_type, sample_type


def _count_needed(normal_stratum: I64, sample_stratum: I64, least: float) -> int:
    """Size of the smaller set from which on the gate can reach its level, 0 if never.

    With the set's mix of types; the other set as it is, or as large.
    """
    strata = int(max(normal_stratum.max(), sample_stratum.max())) + 1
    both = [np.bincount(each, minlength=strata) for each in (normal_stratum, sample_stratum)]
    smaller, larger = sorted(both, key=lambda counts: int(counts.sum()))
    if not (smaller * larger).any():
        return 0
    size = int(smaller.sum())
    while True:
        grown = [
            np.ceil(counts * max(1.0, size / counts.sum())).astype(np.int64).tolist()
            for counts in (larger, smaller)
        ]
        if count_ways(list(zip(*grown, strict=True))) * least >= 1:
            return size
        size += 1


def _states(
    sets: tuple[VectorTable, VectorTable],
    evidence: RuleEvidence,
    t2: float | None,
    flagged: Bool,
    ordinal: tuple[F64, F64] | None,
) -> list[StateEntry]:
    nothing = np.zeros(len(flagged))
    delta, ratio = ordinal or (nothing, nothing * np.nan)
    paper, found = evidence.paper, evidence.effects
    families = evidence.families
    p_value = np.minimum(families.p_value, families.stratum_p_value.min(axis=0))
    threshold = paper.average_threshold
    return [
        StateEntry(
            state=symbol.name if symbol else "total",
            role=symbol.role if symbol else "",
            normal_mean=number(found.normal_mean[i]),
            sample_mean=number(found.sample_mean[i]),
            normal_std=number(paper.normal_std[i]),
            average_threshold=None if threshold is None else number(threshold[i]),
            average_fires=bool(paper.average_fires[i]),
            normal_above=number(paper.normal_above[i]),
            sample_above=number(paper.sample_above[i]),
            probability_threshold=t2,
            probability_fires=bool(paper.probability_fires[i]),
            new_state=bool(paper.new_state[i]),
            p_value=number(p_value[i]),
            effect=number(found.sample_mean[i] - found.normal_mean[i]),
            effect_low=number(found.low[i]),
            effect_high=number(found.high[i]),
            flagged=bool(flagged[i]),
            cliffs_delta=number(delta[i]),
            median_ratio=number(ratio[i]),
            normal_count=_mean_count(sets[0], i, symbol),
            sample_count=_mean_count(sets[1], i, symbol),
        )
        for i, symbol in enumerate((*sets[0].symbols, None))
    ]


def _mean_count(table: VectorTable, column: int, symbol: Symbol | None) -> float | None:
    """Return how often an execution is in a state, on average; None of the total."""
    if symbol is None:
        return None
    # As for types of executions: without what only interrupts the program.
    counts = table.counts if symbol.state in INTERFERENCE else table.structure
    return number(counts[:, column].mean())


# Effect sizes that outliers do not move.


def ordinal_effects(
    normal: I64, sample: I64, normal_stratum: I64, sample_stratum: I64
) -> tuple[F64, F64]:
    """Compute Cliff's delta and the typical ratio of every column."""
    columns = normal.shape[1]
    delta, log, weight = np.zeros(columns), np.zeros(columns), 0.0
    for s in np.unique(sample_stratum):
        x, y = normal[normal_stratum == s], sample[sample_stratum == s]
        if not len(x):
            continue
        weight += len(y)
        x, y = np.sort(x, axis=0), np.sort(y, axis=0)
        for i in range(columns):
            below = np.searchsorted(x[:, i], y[:, i], "left").sum()
            above = len(x) * len(y) - np.searchsorted(x[:, i], y[:, i], "right").sum()
            delta[i] += len(y) * (below - above) / (len(x) * len(y))
            log[i] += len(y) * _compare_typical(x[:, i], y[:, i])
    weight = max(weight, 1.0)
    return delta / weight, np.exp(log / weight)


def _compare_typical(x: I64, y: I64) -> float:
    """Median logarithm of y over x, of all pairs; NaN where that is undefined."""
    if 2 * np.count_nonzero(x) <= len(x) or 2 * np.count_nonzero(y) <= len(y):
        return float("nan")
    few = [
        v[np.linspace(0, len(v) - 1, min(len(v), COARSE.most_paired)).astype(np.int64)]
        for v in (x, y)
    ]
    with np.errstate(divide="ignore"):
        logs = [np.log(v.astype(np.float64)) for v in few]
        # A duration of 0 is below, and above, whatever it is compared with.
        pairs = np.where(
            np.isneginf(logs[1])[:, None],
            -np.inf,
            np.where(np.isneginf(logs[0]), np.inf, 0.0),
        )
    finite = [np.where(np.isneginf(v), 0.0, v) for v in logs]
    middle = float(np.median(pairs + finite[1][:, None] - finite[0]))
    return middle if np.isfinite(middle) else float("nan")


# The mix of types: another one is a finding, no slowdown.


def mix_shift(normal_type: I64, sample_type: I64) -> float:
    """Test whether both sets have the same shares of types."""
    types = int(max(normal_type.max(initial=-1), sample_type.max(initial=-1))) + 1
    normal = np.bincount(normal_type, minlength=types)
    sample = np.bincount(sample_type, minlength=types)
    both = normal + sample
    normal, sample, both = normal[both > 0], sample[both > 0], both[both > 0]
    if not normal.sum() or not sample.sum() or len(both) < 2:
        return 1.0
    digest = hashlib.blake2b(np.stack([normal, sample]).tobytes(), digest_size=8).digest()
    rng = np.random.default_rng(int.from_bytes(digest, "little"))
    drawn = rng.multivariate_hypergeometric(both, int(sample.sum()), size=COARSE.mix_permutations)
    expected = both * (sample.sum() / both.sum())
    observed = float(_distance(sample[None, :], expected)[0])
    reached = int((_distance(drawn, expected) >= observed - 1e-9).sum())
    return (1 + reached) / (1 + COARSE.mix_permutations)


def _distance(sample: I64, expected: F64) -> F64:
    # With both margins fixed the whole chi-square is proportional to this part of it.
    return np.asarray(((sample - expected) ** 2 / expected).sum(axis=1), dtype=np.float64)
