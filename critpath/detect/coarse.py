"""Coarse detection: two VectorTables -> Detection."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from critpath.detect.algorithm1 import Algorithm1, algorithm1
from critpath.detect.assignments import ways
from critpath.detect.changes import Flags, changes, flag
from critpath.detect.effects import Effects, detectable_shift, effects
from critpath.detect.families import WHOLE, Families, two_families
from critpath.detect.gate import seed
from critpath.detect.notes import Circumstances, describe
from critpath.detect.ordinal import ordinal_effects
from critpath.detect.screening import false_alarms
from critpath.detect.sessions import floor_share, permutable
from critpath.errors import InconclusiveError, UsageError
from critpath.model import F64, I64, Bool, Detection, StateTest, VectorTable


@dataclass(frozen=True)
class _Evidence:
    """What the rules decide from."""

    paper: Algorithm1
    families: Families
    effects: Effects
    flags: Flags


def _by_gate(evidence: _Evidence) -> Bool:
    """Ask for the adjusted p and the effect floor, over all types or within one."""
    return evidence.flags.columns


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
    screening: bool = True,
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
    screening : bool
        Find out how often the paper's rules alarm; costs more than the rest.

    Returns
    -------
    Detection
        With types, ``normal_mean`` and ``effect`` are adjusted to the sample's
        mix; ``p_value`` of a state is the smaller of its p over all types and
        within one type.  The paper's figures never are adjusted.

    Raises
    ------
    InconclusiveError
        If a set is empty.
    UsageError
        If so few permutations could never reach the level.

    Notes
    -----
    The gate tests the executions as a whole and every state of them, at one level
    together: see `critpath.detect.families`.  ``p_value`` is adjusted for all of it; the
    total's is that of the whole.
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
    by_paper = partial(algorithm1, t1=t1, t2=t2, y_reference=y_reference, alpha=alpha)
    paper = by_paper(x, y, names=names)
    least = alpha * min(WHOLE, 1 - WHOLE)
    sessions, why_not = permutable(normal_session, sample_session, least)
    families = two_families(
        x, y, judged or (normal, sample), (normal_stratum, sample_stratum),
        alpha=alpha, permutations=permutations, sessions=sessions,
    )  # fmt: skip
    whole = families.whole
    if rule == "gate" and not whole.exact and (permutations + 1) * least < 1:
        raise UsageError(
            f"{permutations} permutations cannot reach the level {alpha:g}",
            f"give --permutations {math.ceil(1 / least)} or more",
        )
    fewer = not whole.exact and whole.permutations < permutations
    few = f"{whole.permutations:,} permutations drawn: the sets are large" if fewer else ""
    units = "whole sessions are permuted: no type is tested by itself" if whole.by_session else ""
    found = effects(x, y, normal_stratum, sample_stratum, seed(y, x))
    share = floor_share(floor, x[:, -1], normal_stratum, normal_session)
    enough = whole.ways * least >= 1
    flags = flag(families, found, alpha=alpha, floor=share)
    evidence = _Evidence(paper, families, found, flags)
    flagged = RULES[rule](evidence)
    strata = normal_stratum, sample_stratum
    ordinal = ordinal_effects(x, y, *strata) if screening else None
    slower, slight = changes(families, found, flags, names, alpha=alpha, floor=share)
    floor_ns = share * float(found.normal_mean[-1])
    about = Circumstances(
        names=names,
        strata=(normal_stratum, sample_stratum),
        effects=found,
        slower=slower,
        alpha=alpha,
        floor=floor_ns,
        asked_floor=floor,
        floor_share=share,
        enough=enough,
    )
    return Detection(
        rule=rule,
        states=_states(normal, evidence, t2, flagged, ordinal),
        flagged=bool(flagged.any()),
        alpha=alpha,
        floor=floor_ns,
        detectable=detectable_shift(
            x[:, -1], normal_stratum, sample_stratum, whole.critical, floor_ns
        )
        if enough and len(x) > 1
        else None,
        permutations=whole.permutations,
        enough=enough,
        needed=0 if enough else _needed(normal_stratum, sample_stratum, least),
        paper_false_alarms=false_alarms(x, y, by_paper, seed(y, x)) if screening else 0.0,
        slower=slower,
        slight=slight,
        notes=(*paper.notes, *filter(None, (why_not, units, few)), *describe(about)),
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


def _needed(normal_stratum: I64, sample_stratum: I64, least: float) -> int:
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
        if ways(list(zip(*grown, strict=True))) * least >= 1:
            return size
        size += 1


def _states(
    normal: VectorTable,
    evidence: _Evidence,
    t2: float | None,
    flagged: Bool,
    ordinal: tuple[F64, F64] | None,
) -> tuple[StateTest, ...]:
    nothing = np.zeros(len(flagged))
    delta, ratio = ordinal or (nothing, nothing * np.nan)
    paper, found = evidence.paper, evidence.effects
    families = evidence.families
    p_value = np.minimum(families.p_value, families.stratum_p_value.min(axis=0))
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
            cliffs_delta=float(delta[i]),
            median_ratio=float(ratio[i]) if math.isfinite(ratio[i]) else None,
        )
        for i, symbol in enumerate((*normal.symbols, None))
    )
