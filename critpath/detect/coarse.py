"""Coarse detection: two VectorTables -> Detection."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from critpath.detect.algorithm1 import Algorithm1, algorithm1
from critpath.detect.effects import Effects, detectable_shift, effects
from critpath.detect.gate import GateTest, gate, seed, ways
from critpath.detect.mix import mix_shift
from critpath.detect.unusual import unusual
from critpath.errors import InconclusiveError
from critpath.model import F64, I64, Bool, Detection, StateTest, VectorTable
from critpath.units import format_ns, format_share, plural


@dataclass(frozen=True)
class _Evidence:
    """What the rules decide from; floors in ns."""

    paper: Algorithm1
    test: GateTest
    effects: Effects
    alpha: float
    floor: float
    floor_share: float


def _by_gate(evidence: _Evidence) -> Bool:
    """Ask for the adjusted p and the effect floor, over all types or within one."""
    whole = evidence.effects.sample_mean - evidence.effects.normal_mean
    flagged = (evidence.test.p_value <= evidence.alpha) & (whole >= evidence.floor) & (whole > 0)
    return np.asarray(flagged | _types(evidence).any(axis=0), dtype=np.bool_)


def _types(evidence: _Evidence) -> Bool:
    """Return [strata, columns]: the type by itself is slower in the column."""
    effect = evidence.effects.stratum_effect
    least = evidence.floor_share * evidence.effects.stratum_mean[:, -1:]
    significant = evidence.test.stratum_p_value <= evidence.alpha
    return np.asarray(significant & (effect >= least) & (effect > 0), dtype=np.bool_)


def _by_paper(evidence: _Evidence) -> Bool:
    """Either of the paper's rules, on states (the paper does not test the total)."""
    fires = evidence.paper.average_fires | evidence.paper.probability_fires
    fires[-1] = False
    return fires


RULES: dict[str, Callable[[_Evidence], Bool]] = {"gate": _by_gate, "paper": _by_paper}


def detect(
    normal: VectorTable,
    sample: VectorTable,
    *,
    rule: str = "gate",
    alpha: float = 0.01,
    floor: float = 0.05,
    t1: float = 1.5,
    t2: float | None = None,
    y_reference: str = "a1",
    permutations: int = 9999,
    normal_type: I64 | None = None,
    sample_type: I64 | None = None,
    normal_session: I64 | None = None,
    sample_session: I64 | None = None,
    judged: tuple[VectorTable, VectorTable] | None = None,
) -> Detection:
    """Decide whether the sample set is slower than the normal set, and in which states.

    Parameters
    ----------
    normal, sample : VectorTable
        Over the same symbols.
    rule : str
        A key of `RULES`; every rule's figures are in the result, this one decides.
    alpha : float
        Family-wise level of the gate, in (0, 1).
    floor : float
        Least effect that the gate reports, as a share of the normal mean total;
        raised to three standard deviations of the normal sessions' means where
        several sessions are known.
    t1, t2, y_reference
        Settings of the paper's rules; see `critpath.detect.algorithm1.algorithm1`.
        ``t2`` None means Fisher's exact test.
    permutations : int
        Random assignments, where enumerating all of them is too much.
    normal_type, sample_type : int64, optional
        Execution types (normal clusters, and the ones that sample executions are
        paired with).  With them a different mix of types is no slow-down, and a
        slow-down of one type is found.
    normal_session, sample_session : int64, optional
        Recording session of every execution.

    judged : tuple of VectorTable, optional
        The sets as single executions are judged on (interrupts folded into running
        time); the sets themselves where not given.

    Returns
    -------
    Detection
        With types, ``normal_mean`` and ``effect`` are adjusted to the sample's
        mix; ``p_value`` of a state is the smaller of its p over all types and
        within one type.  The paper's figures never are adjusted.

    Notes
    -----
    The gate tests two families in a fixed order, each at its full level (serial
    gatekeeping: the states are only reached if the first family is rejected, so the
    family-wise error stays at ``alpha``): first the total latency and `unusual`,
    which are few and see any slow-down; then every state, which says where.  One
    family of all would need far more executions for the same slow-down.
    """
    if rule not in RULES:
        raise ValueError(f"rule {rule!r}: choose from {', '.join(RULES)}")
    if not 0 < alpha < 1 or floor < 0 or permutations < 1:
        raise ValueError("0 < alpha < 1, floor >= 0, permutations >= 1 expected")
    if normal.symbols != sample.symbols:
        raise ValueError("normal and sample vectors have different symbols")
    for table, name in ((normal, "normal"), (sample, "sample")):
        if len(table) == 0:
            raise InconclusiveError(
                f"the {name} set has no execution",
                "check the execution specification, or record the workload again",
            )
    x = np.column_stack([normal.durations, normal.total])
    y = np.column_stack([sample.durations, sample.total])
    normal_stratum, sample_stratum = _strata(normal, sample, normal_type, sample_type)
    names = (*(s.name for s in normal.symbols), "total")
    paper = algorithm1(
        x, y, t1=t1, t2=t2, y_reference=y_reference, alpha=alpha, names=names
    )  # fmt: skip
    notes = list(paper.notes)
    sessions = _sessions(normal_session, sample_session, alpha, notes)
    test = _two_families(
        (x, y), judged or (normal, sample), (normal_stratum, sample_stratum),
        alpha, permutations, sessions,
    )  # fmt: skip
    found = effects(x, y, normal_stratum, sample_stratum, seed(y, x))
    share = _floor_share(floor, x[:, -1], normal_stratum, normal_session, notes)
    enough = test.ways * alpha >= 1 and (test.exact or permutations + 1 >= 1 / alpha)
    evidence = _Evidence(
        paper, test, found, alpha, share * float(found.normal_mean[-1]), share
    )  # fmt: skip
    flagged = RULES[rule](evidence)
    notes += _notes(evidence, normal_stratum, sample_stratum, names, enough=enough)
    p_value = np.minimum(test.p_value, test.stratum_p_value.min(axis=0))
    return Detection(
        rule=rule,
        states=_states(normal, evidence, p_value, t2, flagged),
        flagged=bool(flagged.any()),
        alpha=alpha,
        floor=evidence.floor,
        detectable=detectable_shift(
            x[:, -1], normal_stratum, sample_stratum, test.critical, evidence.floor
        )
        if enough and len(x) > 1
        else None,
        permutations=test.permutations,
        enough=enough,
        needed=0 if enough else _needed(max(len(x), len(y)), alpha),
        notes=tuple(notes),
    )


def _two_families(
    totals: tuple[I64, I64],
    judged: tuple[VectorTable, VectorTable],
    strata: tuple[I64, I64],
    alpha: float,
    permutations: int,
    sessions: tuple[I64, I64] | None,
) -> GateTest:
    """Test the whole (total and unusualness), then the states; the total takes the whole's p."""
    x, y = totals
    scores = unusual(*judged, *strata)
    whole = gate(
        np.column_stack([x[:, -1], scores[0]]),
        np.column_stack([y[:, -1], scores[1]]),
        *strata,
        alpha=alpha,
        permutations=permutations,
        sessions=sessions,
    )
    parts = gate(
        x[:, :-1], y[:, :-1], *strata,
        alpha=alpha, permutations=permutations, sessions=sessions,
    )  # fmt: skip
    first = min(float(whole.p_value.min(initial=1.0)), float(whole.stratum_p_value.min()))
    states = np.maximum(parts.p_value, first)
    within = np.maximum(parts.stratum_p_value, first)
    return replace(
        whole,
        p_value=np.append(states, whole.p_value.min(initial=1.0)),
        stratum_p_value=np.column_stack([within, whole.stratum_p_value.min(axis=1)]),
    )


def _strata(
    normal: VectorTable, sample: VectorTable, normal_type: I64 | None, sample_type: I64 | None
) -> tuple[I64, I64]:
    if normal_type is None or sample_type is None:
        return np.zeros(len(normal), np.int64), np.zeros(len(sample), np.int64)
    if len(normal_type) != len(normal) or len(sample_type) != len(sample):
        raise ValueError("one type per execution expected")
    if normal_type.min() < 0 or sample_type.min() < 0:
        raise ValueError("types are numbered from 0")
    return normal_type, sample_type


def _sessions(
    normal: I64 | None, sample: I64 | None, alpha: float, notes: list[str]
) -> tuple[I64, I64] | None:
    """Return the sessions if they can be permuted whole, else say why not."""
    if normal is None or sample is None:
        return None
    ours, theirs = len(np.unique(normal)), len(np.unique(sample))
    if ours < 2 or theirs < 2:
        return None
    if ways([(ours, theirs)]) * alpha < 1:
        notes.append(
            f"{ours} normal and {theirs} sample sessions are too few to permute whole: "
            "executions are pooled, differences between sessions count as effects"
        )
        return None
    return normal, sample


def _floor_share(
    floor: float, total: I64, stratum: I64, session: I64 | None, notes: list[str]
) -> float:
    """Raise the floor to what the normal sessions differ by among themselves."""
    if session is None or len(np.unique(session)) < 2 or not total.any():
        return floor
    residual = total.astype(np.float64)
    for s in np.unique(stratum):
        residual[stratum == s] -= total[stratum == s].mean()
    means = [float(residual[session == s].mean()) for s in np.unique(session)]
    drift = 3 * float(np.std(means, ddof=1)) / float(total.mean())
    if drift > floor:
        notes.append(
            f"effect floor raised from {format_share(floor)} to {format_share(drift)}: "
            "three standard deviations of the normal sessions' means"
        )
    return max(floor, drift)


def _needed(larger: int, alpha: float) -> int:
    """Size of the smaller set from which on the gate can reach its level."""
    size = 1
    while math.comb(larger + size, size) * alpha < 1:
        size += 1
    return size


def _states(
    normal: VectorTable, evidence: _Evidence, p_value: F64, t2: float | None, flagged: Bool
) -> tuple[StateTest, ...]:
    paper, found = evidence.paper, evidence.effects
    threshold = paper.average_threshold
    return tuple(
        StateTest(
            symbol=symbol,
            normal_mean=float(found.normal_mean[i]),
            sample_mean=float(found.sample_mean[i]),
            normal_std=float(paper.normal_std[i]),
            average_threshold=None if threshold is None else float(threshold[i]),
            average_fires=bool(paper.average_fires[i]),
            normal_above=float(paper.normal_above[i]),
            sample_above=float(paper.sample_above[i]),
            probability_threshold=t2,
            probability_fires=bool(paper.probability_fires[i]),
            new_state=bool(paper.new_state[i]),
            p_value=float(p_value[i]),
            effect=float(found.sample_mean[i] - found.normal_mean[i]),
            effect_low=float(found.low[i]),
            effect_high=float(found.high[i]),
            flagged=bool(flagged[i]),
        )
        for i, symbol in enumerate((*normal.symbols, None))
    )


def _notes(
    evidence: _Evidence,
    normal_stratum: I64,
    sample_stratum: I64,
    names: tuple[str, ...],
    *,
    enough: bool,
) -> list[str]:
    notes = []
    if not enough:
        notes.append(
            f"{plural(len(normal_stratum), 'normal execution')} against {len(sample_stratum)}: "
            f"no difference, however large, could reach the level {evidence.alpha:g}"
        )
    change = float(evidence.effects.sample_mean[-1] - evidence.effects.normal_mean[-1])
    if change <= -evidence.floor and change < 0:
        notes.append(
            f"the sample is faster by {format_ns(-change)} in total; only slow-downs are anomalies"
        )
    mix = mix_shift(normal_stratum, sample_stratum)
    if mix <= evidence.alpha:
        notes.append(
            f"the sample has another mix of execution types (p = {mix:.2g}): "
            "a finding of its own, no slow-down"
        )
    if evidence.effects.orphans:
        notes.append(
            f"{plural(evidence.effects.orphans, 'sample execution')} of a type without normal "
            "executions: compared with the mean of all, not part of the test"
        )
    for stratum, column in np.argwhere(_types(evidence)):
        effect = evidence.effects.stratum_effect[stratum, column]
        p = evidence.test.stratum_p_value[stratum, column]
        notes.append(
            f"type {stratum} by itself: {names[column]} {format_ns(effect, sign=True)} "
            f"(adjusted p = {p:.2g})"
        )
    return notes
