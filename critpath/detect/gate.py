"""The gate: a max-T permutation test over every state, and every type, at once."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from critpath.detect.assignments import Assignments, Picked, ways
from critpath.model import F64, I64, mid_ranks

_WORK = 200_000_000  # executions drawn in all, over the assignments
_LEAST_DRAWN = 1_999  # assignments drawn all the same
_TAIL = 0.9
_PILOT = 999  # assignments that the balance is found with, at the least
_NORMAL_99, _NORMAL_999 = 2.326, 3.090
SLACK = 1e-9  # rounding of sums must not decide whether an assignment reaches them


@dataclass(frozen=True)
class GateTest:
    """Outcome of the permutation test.

    Attributes
    ----------
    p_value : float64 [columns]
        Of the sums over all strata, adjusted for all columns (and all strata).
    stratum_p_value : float64 [strata, columns]
        Of each stratum by itself, adjusted in the same way; 1 where not tested.
    critical : float
        What the largest standardised sum exceeds in a share ``alpha`` of the
        assignments.
    permutations : int
        Assignments looked at.
    exact : bool
        They were all there are.
    ways : float
        How many there are (inf if beyond a float).
    by_session : bool
        Whole sessions were assigned.
    """

    p_value: F64
    stratum_p_value: F64
    critical: float
    permutations: int
    exact: bool
    ways: float
    by_session: bool


def seed(*arrays: I64) -> int:
    """Make a seed of the data, so that equal data always give equal p-values.

    Rows are put in order first: the order of executions must not matter.
    """
    digest = hashlib.blake2b(digest_size=8)
    for array in arrays:
        digest.update(np.asarray(array.shape, np.int64).tobytes())
        digest.update(
            np.ascontiguousarray(
                array[np.lexsort(array.T[::-1])] if array.size else array
            ).tobytes()
        )
    return int.from_bytes(digest.digest(), "little")


def gate(
    normal: I64,
    sample: I64,
    normal_stratum: I64,
    sample_stratum: I64,
    *,
    alpha: float,
    permutations: int,
    sessions: tuple[I64, I64] | None = None,
) -> GateTest:
    """Test every column for a shift upwards of the sample.

    Parameters
    ----------
    normal : int64 [n, columns]
    sample : int64 [m, columns]
        Durations (ns).
    normal_stratum, sample_stratum : int64
        Execution types, from 0; labels change places only within a type, so a
        different mix of types is no shift.
    alpha : float
        For ``critical``.
    permutations : int
        Random assignments, where there are more than 20,000 in all; fewer, but 1,999
        at the least, for sets of more than 20,000 executions.
    sessions : tuple of int64 arrays, optional
        Session of every normal and sample execution: whole sessions change
        places (then without regard to types; values are still relative to theirs).

    Notes
    -----
    Per column three scores of the pooled values of a stratum: rank, ``log(1 + x /
    mean)`` and "above the 90 % quantile"; each centred and scaled there.  The
    statistic is their sum over the sample, over its standard deviation under
    permutation; with several strata it is enlarged where its upper tail is heavier than
    a normal one, so that small strata do not hide the others.
    Westfall and Young 1993, single step: the family-wise error is exact where
    executions are exchangeable.  Each stratum is in the family by itself as well
    as their sum: a slow-down of one type in seven would drown in the noise of the
    others.
    """
    # One order for any order of arrival: the same assignments, so the same p-values.
    ours = np.lexsort((*normal.T[::-1], normal_stratum))
    theirs = np.lexsort((*sample.T[::-1], sample_stratum))
    if sessions is not None:
        sessions = sessions[0][ours], sessions[1][theirs]
    normal, normal_stratum = normal[ours], normal_stratum[ours]
    sample, sample_stratum = sample[theirs], sample_stratum[theirs]
    columns = normal.shape[1]
    values = np.concatenate([sample, normal])
    stratum = np.concatenate([sample_stratum, normal_stratum])
    members = [np.flatnonzero(stratum == s) for s in range(int(stratum.max()) + 1)]
    chosen = [int((rows < len(sample)).sum()) for rows in members]
    family = family_of(values, members, chosen, sessions, alpha)
    plan, rng = family.plan, np.random.default_rng(seed(sample, normal))
    fewest = max(_LEAST_DRAWN, math.ceil(1 / alpha))
    drawn = min(permutations, max(fewest, _WORK // len(values)))
    # As many as the test draws: with 999 the quantile that it needs is the largest one,
    # and p-values of the same data came out between 0.001 and 0.005.
    pilot = plan.every() if plan.exact else plan.drawn(rng, max(_PILOT, drawn))
    divisors = balance((family.sums(picked) for picked in pilot), family.divisors)
    # In canonical order the sample's executions come first in every stratum.
    found = family.sums(plan.as_given())
    observed = [t[0] / d for t, d in zip(found, divisors, strict=True)]
    reached = [np.zeros(3 * columns, np.int64) for _ in divisors]
    largest = []
    for picked in plan.every() if plan.exact else plan.drawn(rng, drawn):
        standardised = [t / d for t, d in zip(family.sums(picked), divisors, strict=True)]
        most = np.max([t.max(axis=1, initial=-np.inf) for t in standardised], axis=0)
        largest.append(most)
        ordered = np.sort(most)
        for i, value in enumerate(observed):
            reached[i] += len(ordered) - np.searchsorted(ordered, value - SLACK)
    done = np.concatenate(largest)
    shares = [r / len(done) if plan.exact else (1 + r) / (1 + len(done)) for r in reached]
    best = [share.reshape(3, columns).min(axis=0) for share in shares]
    by_stratum = np.ones((len(members), columns))
    for stratum_of, p in zip(family.singles, best[1:], strict=True):
        by_stratum[stratum_of] = p
    return GateTest(
        p_value=best[0],
        stratum_p_value=by_stratum,
        critical=float(np.quantile(done, 1 - alpha)),
        permutations=len(done),
        exact=plan.exact,
        ways=plan.ways,
        by_session=sessions is not None,
    )


@dataclass(frozen=True)
class Family:
    """Scores to add up, and what their sums are divided by: over all strata, then singly."""

    units: list[F64]  # per stratum of the plan: [units, 3 * columns]
    plan: Assignments
    singles: list[int]  # strata that are tested by themselves
    places: list[int]  # of these in the plan
    divisors: list[F64]

    @cached_property
    def _totals(self) -> list[F64]:
        return [each.sum(axis=0) for each in self.units]

    def sums(self, picked: list[Picked]) -> list[F64]:
        """Add up over all strata, then in each stratum that is tested by itself."""
        parts = self.plan.sums(picked, self.units, self._totals)
        nothing = np.zeros((1, len(self.divisors[0])))
        over_all = np.asarray(np.sum(parts, axis=0)) if parts else nothing
        return [over_all, *(parts[i] for i in self.places)]


def family_of(
    values: I64,
    members: list[I64],
    chosen: list[int],
    sessions: tuple[I64, I64] | None,
    alpha: float,
) -> Family:
    """Score the columns in every stratum, and say what their sums are divided by.

    Parameters
    ----------
    values : int64 [n, columns]
        The sample's executions first.
    members : list of int64
        Rows of every stratum.
    chosen : list of int
        How many of these are the sample's.
    sessions : tuple of int64 arrays or None
        As `gate`.
    alpha : float
        Level: what cannot reach it by itself is not tested by itself.
    """
    strata = range(len(members))
    tested = [
        s
        for s in strata
        if 0 < chosen[s] < len(members[s]) or (sessions is not None and len(members[s]))
    ]
    scores = np.zeros((len(values), 3 * values.shape[1]))
    variance = np.zeros((len(members), scores.shape[1]))
    for s in tested:
        rows = members[s]
        scores[rows] = _scores(values[rows])
        size = len(rows)
        if size > 1:
            active = (np.abs(scores[rows]).max(axis=0) > 0).astype(np.float64)
            variance[s] = active * chosen[s] * (size - chosen[s]) / (size - 1)
    if sessions is None:
        units = [scores[members[s]] for s in tested]
        plan = Assignments([len(u) for u in units], [chosen[s] for s in tested])
    else:
        whole, picks = _of_sessions(scores, sessions)
        units, plan = [whole], Assignments([len(whole)], [picks])
    # A family of one stratum twice would be the same test twice; a type too small to
    # reach the level by itself would only blunt the others.
    singles = [
        s
        for s in tested
        if len(tested) > 1
        and sessions is None
        and ways([(len(members[s]) - chosen[s], chosen[s])]) * alpha >= 1
    ]
    scales = [variance.sum(axis=0), *(variance[s] for s in singles)]
    divisors = [np.sqrt(np.where(scale > 1e-12, scale, np.inf)) for scale in scales]
    return Family(units, plan, singles, [tested.index(s) for s in singles], divisors)


def _of_sessions(scores: F64, sessions: tuple[I64, I64]) -> tuple[F64, int]:
    """Add up the scores of every session, the sample's first, and count the latter."""
    normal_session, sample_session = sessions
    first = int(sample_session.max()) + 1
    unit = np.concatenate([sample_session, normal_session + first])
    names, unit = np.unique(unit, return_inverse=True)
    whole = np.zeros((len(names), scores.shape[1]))
    np.add.at(whole, unit.reshape(-1), scores)
    picks = len(np.unique(sample_session))
    # How sessions are numbered must not matter.
    parts = whole[:picks], whole[picks:]
    return np.concatenate([part[np.lexsort(part.T[::-1])] for part in parts]), picks


def balance(batches: Iterator[list[F64]], divisors: list[F64]) -> list[F64]:
    """Enlarge the divisors of sums whose upper tail is heavier than a normal one.

    One execution of a type among fifteen has the longest wait of them in one
    assignment of sixteen, at 3.9 standard deviations: the largest sum would mostly
    be such a one, and hide real shifts.  The assignments are drawn apart from those
    of the test, so it stays valid.
    """
    if len(divisors) < 2:  # one stratum: nothing that it could hide
        return divisors
    tails: list[list[F64]] = [[] for _ in divisors]
    for batch in batches:
        for tail, t, d in zip(tails, batch, divisors, strict=True):
            tail.append(t / d)
    balanced = []
    for tail, d in zip(tails, divisors, strict=True):
        quantiles = np.quantile(np.concatenate(tail), (0.99, 0.999), axis=0)
        excess = np.maximum(quantiles[0] / _NORMAL_99, quantiles[1] / _NORMAL_999)
        balanced.append(d * np.maximum(excess, 1.0))
    return balanced


def _scores(values: I64) -> F64:
    """Rank, log and tail of every column, centred, with standard deviation 1 or 0."""
    mean = values.mean(axis=0)
    pooled = np.concatenate(
        [
            mid_ranks(values),
            np.log1p(values / np.where(mean > 0, mean, 1.0)),
            (values > np.quantile(values, _TAIL, axis=0)).astype(np.float64),
        ],
        axis=1,
    )
    centred = pooled - pooled.mean(axis=0)
    scale = centred.std(axis=0)
    scaled: F64 = np.divide(centred, scale, out=np.zeros_like(centred), where=scale > 1e-9)
    return scaled
