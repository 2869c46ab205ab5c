"""Which sample executions are outliers of the normal cluster they are paired with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from critpath.cluster.conformal import benjamini_hochberg, conformal
from critpath.cluster.groups import shifted_columns
from critpath.cluster.pairing import normal_space, novel_limits, plausible, sum_distances
from critpath.cluster.space import stabilise
from critpath.model import F64, I64, Bool, Clustering, ClusterPairs, Outliers, VectorTable
from critpath.units import plural

_LOW_SUPPORT = 5  # below this a cluster's own variance says nothing
_PRIOR = 5.0  # observations' worth of the pooled variance
_SHRINK = 0.05  # spread that is never believed to be less: share of the mean total, and of a log
_OFFSET = 0.02  # share of the overall mean total added before taking logs
# A shift of a whole type may be the session's: twice the floor, as between sessions.
_GROUP_FLOOR = 2.0


@dataclass(frozen=True)
class _Model:
    """Mean and pooled sums of squares of every normal cluster, in one scale."""

    values: F64  # [n, columns]
    labels: I64
    sizes: F64  # [clusters]
    mean: F64  # [clusters, columns]
    squares: F64  # [clusters, columns], about the mean


def outliers(
    normal: VectorTable,
    normal_clusters: Clustering,
    sample: VectorTable,
    sample_clusters: Clustering,
    pairs: ClusterPairs,
    *,
    k: float = 1.5,
    level: float = 0.05,
    floor: float = 0.05,
    types_known: bool = False,
) -> Outliers:
    """Judge every sample execution against its paired normal cluster.

    Parameters
    ----------
    normal, sample : VectorTable
        Over the same symbols; at least one normal execution.
    normal_clusters, sample_clusters : Clustering
        Of these executions.
    pairs : ClusterPairs
        Normal cluster of each sample cluster.
    k : float
        The paper's factor: a state above mean + k * std makes an outlier.
    level : float
        False discovery rate of the verdict.
    floor : float
        Least excess, as a share of the cluster's mean total, that counts.
    types_known : bool
        Types come from labels: an execution is held against its own alone.

    Returns
    -------
    Outliers
        ``paper`` is the paper's rule (std with ddof 1; it marks a quarter to a
        half of *healthy* executions).  ``anomalous`` is the verdict.

    Raises
    ------
    ValueError
        If the tables have different symbols or there is no normal execution.

    Notes
    -----
    Per column (symbols and the total) an execution has two shrunk z, of its
    duration and of the logarithm of it; the geometric mean of the two (0 where
    either is not positive) is large only if the excess is large both absolutely
    and relative to what is usual.  The score is the root of the sum of their
    squares.  On recorded executions with known bugs it separated healthy from
    slow better than the largest z, in either scale.

    Types can look alike by their counts, so an execution is scored against every
    type that its counts would fit, and the least score is taken: what some normal
    type explains is not abnormal.  Normal executions are scored the same way.  Where
    labels tell the type, only that type counts.

    p-values are conformal over all types together: every normal execution is
    scored against the rest of its own cluster.  Types of fifteen executions would
    never give a p below 1/16 one by one.  Beyond the largest null score the tail
    is a Pareto tail (Hill 1975) fitted to the top tenth, as 105 normal executions
    could otherwise never convict one among eleven.  The verdict is Benjamini and
    Hochberg's (1995) at ``level`` over the sample; and the excess of a column that
    made the score must reach the floor.  Where types are not known, which costs the
    single execution its power, membership in a type whose sample executions are
    slower together in a column (`shifted_columns`, at ``level`` over all types) and
    more than k * std above its mean there counts as well.
    """
    if normal.symbols != sample.symbols:
        raise ValueError("normal and sample vectors have different symbols")
    if len(normal) == 0:
        raise ValueError("no normal execution to compare with")
    partner = pairs.pair[sample_clusters.labels]
    raw = _columns(normal)
    observed = _columns(sample)
    offset = max(_OFFSET * float(raw[:, -1].mean()), 1.0)
    linear = _model(raw, normal_clusters)
    logs = _model(np.log(raw + offset), normal_clusters)
    ours, theirs, supported = _fitting(normal, normal_clusters, sample, partner)
    if types_known:
        kinds = np.arange(normal_clusters.size)
        ours = normal_clusters.labels[:, None] == kinds
        theirs = partner[:, None] == kinds
    null = _least(_leave_one_out(linear, log=False), _leave_one_out(logs, log=True), ours)[0]
    null = null[supported]
    score, z = _least(
        _z(observed, linear, log=False), _z(np.log(observed + offset), logs, log=True), theirs
    )
    p_value = conformal(null, score)
    excess = observed - linear.mean[partner]
    least = floor * linear.mean[partner, -1]
    large = (excess >= least[:, None]) & (excess > 0)
    std = np.sqrt(linear.squares / np.maximum(linear.sizes - 1, 1)[:, None])
    above = excess > k * std[partner]
    above &= excess > 1e-9 * linear.mean[partner]  # a mean's rounding is no excess
    paper = np.asarray(above[:, :-1].any(axis=1), dtype=np.bool_)
    # Single executions: the columns that made the score must carry the excess.
    anomalous = benjamini_hochberg(p_value, level) & (large & (z > 0)).any(axis=1)
    if not types_known:
        together, _group_notes = _groups(
            raw,
            observed,
            normal_clusters.labels,
            partner,
            linear.mean[:, -1] * floor * _GROUP_FLOOR,
            level,
        )
        anomalous |= (together & above & large).any(axis=1)
    top = np.where(z.any(axis=1), z.argmax(axis=1), excess.argmax(axis=1)) if len(z) else partner
    return Outliers(
        score=score,
        p_value=p_value,
        anomalous=anomalous,
        paper=paper,
        excess=np.rint(excess[:, -1]).astype(np.int64),
        symbol=np.where(top == len(normal.symbols), -1, top).astype(np.int64),
        notes=(*_notes(linear, partner, supported, pairs, sample_clusters.labels, anomalous),),
    )


def _columns(table: VectorTable) -> F64:
    """Durations of every symbol and, last, the total (ns)."""
    return np.column_stack([table.durations, table.total]).astype(np.float64)


def _model(values: F64, clusters: Clustering) -> _Model:
    size = clusters.size
    mean = np.zeros((size, values.shape[1]))
    squares = np.zeros_like(mean)
    for c in range(size):
        mine = values[clusters.labels == c]
        mean[c] = mine.mean(axis=0)
        squares[c] = ((mine - mean[c]) ** 2).sum(axis=0)
    sizes = np.bincount(clusters.labels, minlength=size).astype(np.float64)
    return _Model(values, clusters.labels, sizes, mean, squares)


def _variance(squares: F64, sizes: F64, pooled: F64) -> F64:
    """Shrink a cluster's variance towards that of all; tiny clusters take the latter."""
    freedom = np.maximum(sizes - 1, 0)[:, None]
    shrunk = (squares + _PRIOR * pooled) / (freedom + _PRIOR)
    return np.where(sizes[:, None] < _LOW_SUPPORT, pooled, shrunk)


def _spread(variance: F64, mean: F64, *, log: bool) -> F64:
    # One nanosecond keeps a set without any duration finite.
    least = np.full(len(mean), _SHRINK) if log else np.maximum(_SHRINK * mean[:, -1], 1.0)
    return np.asarray(np.sqrt(variance + least[:, None] ** 2), dtype=np.float64)


def _pooled(model: _Model) -> F64:
    freedom = max(float(model.sizes.sum()) - len(model.sizes), 1.0)
    return np.asarray(model.squares.sum(axis=0) / freedom, dtype=np.float64)


def _fitting(
    normal: VectorTable, clusters: Clustering, sample: VectorTable, partner: I64
) -> tuple[Bool, Bool, Bool]:
    """Plausible types of normal and sample executions; which normal ones have company."""
    home = normal_space(normal, clusters)
    limits = novel_limits(home)
    labels, sizes = home.labels, home.sizes
    own = np.zeros_like(home.sums)
    own[np.arange(len(labels)), labels] = 1.0
    ours = home.sums / np.maximum(sizes - own, 1)
    theirs = sum_distances(stabilise(sample.structure), home.space, home.onehot) / sizes
    return (
        plausible(ours, limits, labels),
        plausible(theirs, limits, partner),
        np.asarray(sizes[labels] > 1, dtype=np.bool_),
    )


def _z(values: F64, model: _Model, *, log: bool) -> F64:
    """Shrunk z against every cluster: [executions, clusters, columns]."""
    variance = _variance(model.squares, model.sizes, _pooled(model))
    spread = _spread(variance, model.mean, log=log)
    return np.asarray((values[:, None] - model.mean) / spread, dtype=np.float64)


def _leave_one_out(model: _Model, *, log: bool) -> F64:
    """Compute z of every normal execution; against its own cluster without itself."""
    result = _z(model.values, model, log=log)
    sizes = model.sizes[model.labels]
    rest = np.maximum(sizes - 1, 1)
    difference = model.values - model.mean[model.labels]
    mean = model.mean[model.labels] - difference / rest[:, None]
    gone = difference**2 * (sizes / rest)[:, None]
    squares = np.maximum(model.squares[model.labels] - gone, 0.0)
    freedom = max(float(model.sizes.sum()) - len(model.sizes) - 1, 1.0)
    pooled = np.maximum(model.squares.sum(axis=0) - gone, 0.0) / freedom
    spread = _spread(_variance(squares, sizes - 1, pooled), mean, log=log)
    result[np.arange(len(sizes)), model.labels] = (model.values - mean) / spread
    return result


def _least(linear: F64, logs: F64, fitting: Bool) -> tuple[F64, F64]:
    """Score of every execution in the plausible type that explains it best, and its z."""
    z = np.sqrt(np.maximum(linear, 0) * np.maximum(logs, 0))
    scores = np.where(fitting, np.sqrt((z**2).sum(axis=2)), np.inf)
    best = scores.argmin(axis=1)
    rows = np.arange(len(best))
    return (
        np.asarray(scores[rows, best], dtype=np.float64),
        np.asarray(z[rows, best], dtype=np.float64),
    )


def _groups(
    raw: F64, observed: F64, labels: I64, partner: I64, least: F64, level: float
) -> tuple[Bool, tuple[str, ...]]:
    """Columns in which an execution's whole type is slower, per execution."""
    result = np.zeros(observed.shape, np.bool_)
    types, sizes = np.unique(partner, return_counts=True)
    types = types[sizes > 1]
    found = 0
    for c in types:
        mine = partner == c
        columns = shifted_columns(
            raw[labels == c],
            observed[mine],
            alpha=level / len(types),
            floor=float(least[c]),
        )
        result[mine] = columns
        found += bool(columns.any())
    if not found:
        return result, ()
    return result, (f"{plural(found, 'type')} slower as a group in some state",)


def _notes(
    model: _Model,
    partner: I64,
    supported: Bool,
    pairs: ClusterPairs,
    labels: I64,
    anomalous: Bool,
) -> tuple[str, ...]:
    notes = []
    low = int((model.sizes[partner] < _LOW_SUPPORT).sum())
    if low:
        notes.append(
            f"{plural(low, 'sample execution')} compared with a type of fewer than "
            f"{_LOW_SUPPORT} normal executions: their spread is that of all types (low support)"
        )
    if not supported.all():
        notes.append(
            f"{plural(int((~supported).sum()), 'normal execution')} alone in a type: "
            "left out of the reference scores"
        )
    if supported.sum() < 20:
        notes.append(
            f"{plural(int(supported.sum()), 'reference score')}: no p-value can be below "
            f"{1 / (1 + int(supported.sum())):.2g}"
        )
    novel = pairs.novel[labels]
    if novel.any():
        notes.append(
            f"{plural(int(novel.sum()), 'sample execution')} of a type not in the normal set, "
            f"{int((novel & anomalous).sum())} of them anomalous against the nearest type"
        )
    return tuple(notes)
