"""The gate: a max-T permutation test over every state, and every type, at once."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from critpath.model import F64, I64, Bool

EXACT = 20_000
_CHUNK = 1 << 22  # values of a batch of assignments held at once
_WORK = 400_000_000  # executions drawn in all, over the assignments
_LEAST_DRAWN = 1_999  # assignments drawn all the same
_TAIL = 0.9
_MANY = 600.0  # logarithm of a count that is as good as infinite
_PILOT = 999  # assignments that the balance is found with
_NORMAL_99, _NORMAL_999 = 2.326, 3.090
_SLACK = 1e-9  # rounding of sums must not decide whether an assignment reaches them


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


def ways(counts: list[tuple[int, int]]) -> float:
    """Count the assignments of executions to the two sets, within strata.

    Parameters
    ----------
    counts : list of (int, int)
        Normal and sample executions of every stratum.
    """
    # Through the logarithm: the exact number has thousands of digits for large sets.
    log = sum(math.lgamma(n + m + 1) - math.lgamma(n + 1) - math.lgamma(m + 1) for n, m in counts)
    if log > _MANY:
        return math.inf
    return float(math.prod(math.comb(n + m, m) for n, m in counts))


def seed(*arrays: I64) -> int:
    """Make a seed of the data, so that equal data always give equal p-values.

    Rows are put in order first: the order of executions must not matter.
    """
    digest = hashlib.blake2b(digest_size=8)
    for array in arrays:
        digest.update(np.asarray(array.shape, np.int64).tobytes())
        digest.update(np.ascontiguousarray(array[np.lexsort(array.T[::-1])]).tobytes())
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
        at the least, for sets of more than 40,000 executions.
    sessions : tuple of int64 arrays, optional
        Session of every normal and sample execution: whole sessions change
        places (then without regard to types; values are still relative to theirs).

    Notes
    -----
    Per column three scores of the pooled values of a stratum: rank, ``log(1 + x /
    mean)`` and "above the 90 % quantile"; each centred and scaled there.  The
    statistic is their sum over the sample, over its standard deviation under
    permutation, enlarged where its upper tail is heavier than a normal one.
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
    in_sample = np.arange(len(values)) < len(sample)
    strata = int(stratum.max()) + 1
    members = [np.flatnonzero(stratum == s) for s in range(strata)]
    chosen = [int(in_sample[rows].sum()) for rows in members]
    tested = [s for s in range(strata) if 0 < chosen[s] < len(members[s]) or sessions is not None]
    scores = np.zeros((len(values), 3 * columns))
    variance = np.zeros((strata, 3 * columns))
    for s in tested:
        rows = members[s]
        scores[rows] = _scores(values[rows])
        size = len(rows)
        if size > 1:
            active = (np.abs(scores[rows]).max(axis=0) > 0).astype(np.float64)
            variance[s] = active * chosen[s] * (size - chosen[s]) / (size - 1)
    blocks = [np.arange(len(values))]
    scales = [variance.sum(axis=0)]
    # A family of one stratum twice would be the same test twice.
    singles = [s for s in tested if len(tested) > 1 and sessions is None]
    # A type too small to reach the level by itself would only blunt the others.
    singles = [s for s in singles if ways([(len(members[s]) - chosen[s], chosen[s])]) * alpha >= 1]
    blocks += [members[s] for s in singles]
    scales += [variance[s] for s in singles]
    divisors = [np.sqrt(np.where(scale > 1e-12, scale, np.inf)) for scale in scales]
    rng = np.random.default_rng(seed(sample, normal))
    pilot = _plan(rng, members, chosen, in_sample, sessions, _PILOT)
    divisors = _balanced(pilot.batches, scores, blocks, divisors)
    observed = [scores[b][in_sample[b]].sum(axis=0) / d
                for b, d in zip(blocks, divisors, strict=True)]  # fmt: skip
    most_drawn = max(_LEAST_DRAWN, _WORK // len(values))
    plan = _plan(rng, members, chosen, in_sample, sessions, min(permutations, most_drawn))
    reached = [np.zeros(3 * columns, np.int64) for _ in blocks]
    largest = []
    for batch in plan.batches:
        most = np.full(len(batch), -np.inf)
        for b, d in zip(blocks, divisors, strict=True):
            most = np.maximum(most, (batch[:, b] @ scores[b] / d).max(axis=1, initial=-np.inf))
        largest.append(most)
        ordered = np.sort(most)
        for i, value in enumerate(observed):
            reached[i] += len(ordered) - np.searchsorted(ordered, value - _SLACK)
    done = np.concatenate(largest)
    shares = [r / len(done) if plan.exact else (1 + r) / (1 + len(done)) for r in reached]
    best = [share.reshape(3, columns).min(axis=0) for share in shares]
    by_stratum = np.ones((strata, columns))
    for s, p in zip(singles, best[1:], strict=True):
        by_stratum[s] = p
    return GateTest(
        p_value=best[0],
        stratum_p_value=by_stratum,
        critical=float(np.quantile(done, 1 - alpha)),
        permutations=len(done),
        exact=plan.exact,
        ways=plan.ways,
        by_session=sessions is not None,
    )


def _balanced(
    batches: Iterator[F64], scores: F64, blocks: list[I64], divisors: list[F64]
) -> list[F64]:
    """Enlarge the divisors of sums whose upper tail is heavier than a normal one.

    One execution of a type among fifteen has the longest wait of them in one
    assignment of sixteen, at 3.9 standard deviations: the largest sum would mostly
    be such a one, and hide real shifts.  The assignments are drawn apart from those
    of the test, so it stays valid.
    """
    tails: list[list[F64]] = [[] for _ in blocks]
    for batch in batches:
        for tail, b, d in zip(tails, blocks, divisors, strict=True):
            tail.append(batch[:, b] @ scores[b] / d)
    balanced = []
    for tail, d in zip(tails, divisors, strict=True):
        quantiles = np.quantile(np.concatenate(tail), (0.99, 0.999), axis=0)
        excess = np.maximum(quantiles[0] / _NORMAL_99, quantiles[1] / _NORMAL_999)
        balanced.append(d * np.maximum(excess, 1.0))
    return balanced


def _scores(values: I64) -> F64:
    """Rank, log and tail of every column, centred, with standard deviation 1 or 0."""
    from scipy.stats import rankdata  # noqa: PLC0415 - takes half a second to import

    mean = values.mean(axis=0)
    pooled = np.concatenate(
        [
            np.asarray(rankdata(values, axis=0), dtype=np.float64),
            np.log1p(values / np.where(mean > 0, mean, 1.0)),
            (values > np.quantile(values, _TAIL, axis=0)).astype(np.float64),
        ],
        axis=1,
    )
    centred = pooled - pooled.mean(axis=0)
    scale = centred.std(axis=0)
    scaled: F64 = np.divide(centred, scale, out=np.zeros_like(centred), where=scale > 1e-9)
    return scaled


@dataclass(frozen=True)
class _Plan:
    batches: Iterator[F64]  # [assignments, executions], 1 where in the sample
    exact: bool
    ways: float


def _plan(
    rng: np.random.Generator,
    members: list[I64],
    chosen: list[int],
    in_sample: Bool,
    sessions: tuple[I64, I64] | None,
    permutations: int,
) -> _Plan:
    total = len(in_sample)
    if sessions is not None:
        normal_session, sample_session = sessions
        first = int(sample_session.max()) + 1
        unit = np.concatenate([sample_session, normal_session + first])
        names, unit = np.unique(unit, return_inverse=True)
        picks = len(np.unique(sample_session))
        members, chosen = [np.arange(len(names))], [picks]
        expand = unit.reshape(-1)
    else:
        expand = np.arange(total)
    size = sum(len(rows) for rows in members)
    count = ways([(len(rows) - k, k) for rows, k in zip(members, chosen, strict=True)])
    exact = count <= EXACT
    step = max(1, _CHUNK // max(1, total))
    source = (
        _every(members, chosen, size, step)
        if exact
        else _drawn(rng, members, chosen, size, step, permutations)
    )
    return _Plan((batch[:, expand] for batch in source), exact, count)


def _every(members: list[I64], chosen: list[int], size: int, step: int) -> Iterator[F64]:
    choices = [itertools.combinations(rows, k) for rows, k in zip(members, chosen, strict=True)]
    assignments = itertools.product(*choices)
    while picked := list(itertools.islice(assignments, step)):
        batch = np.zeros((len(picked), size))
        for row, parts in zip(batch, picked, strict=True):
            for part in parts:
                row[list(part)] = 1.0
        yield batch


def _drawn(
    rng: np.random.Generator,
    members: list[I64],
    chosen: list[int],
    size: int,
    step: int,
    permutations: int,
) -> Iterator[F64]:
    for begin in range(0, permutations, step):
        many = min(step, permutations - begin)
        batch = np.zeros((many, size))
        for rows, k in zip(members, chosen, strict=True):
            if k:
                keys = rng.random((many, len(rows)), dtype=np.float32)
                picked = np.argpartition(keys, min(k, len(rows) - 1), axis=1)[:, :k]
                np.put_along_axis(batch, rows[picked], 1.0, axis=1)
        yield batch
