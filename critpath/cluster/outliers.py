"""Which sample executions are outliers of the normal cluster they are paired with."""

from __future__ import annotations

import math

import numpy as np

from critpath.cluster.conformal import benjamini_hochberg, conformal
from critpath.cluster.groups import shifted_columns
from critpath.cluster.pairing import normal_space, novel_limits, plausible
from critpath.cluster.reference import (
    LOW_SUPPORT,
    Types,
    bag_scores,
    bag_size,
    describe_types,
    in_both_scales,
    reference_scores,
    sample_scores,
)
from critpath.model import F64, I64, Bool, Clustering, ClusterPairs, Outliers, VectorTable
from critpath.units import plural

# A shift of a whole type may be the session's: twice the floor, as between sessions.
_GROUP_FLOOR = 2.0
# Share of the level that is for whole types where labels do not tell them.
_GROUP_LEVEL = 0.5
# Values that exact conformal p-values may cost to compute: some ten seconds.
EXACT_LIMIT = 50_000_000
BAG_LIMIT = 4_000_000  # of them at once: half a gigabyte


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
    Per column (symbols and the total) an execution has two z, of its duration and of
    the logarithm of it: the deviation from its type's mean in standard deviations,
    these shrunk towards those of all types.  The geometric mean of the two (0 where
    either is not positive) is large only if the excess is large both absolutely and
    relative to what is usual.  The score is the root of the sum of their squares.  In
    simulations the largest z of the plain durations finds a little more; of the
    recorded executions with known bugs it missed those of `sample-fsync`.

    Types can look alike by their counts, so an execution is scored against every
    type that its counts would fit, and the least score is taken: what some normal
    type explains is not abnormal.  Normal executions are scored the same way.  Where
    labels tell the type, only that type counts.

    p-values are full conformal (Vovk, Gammerman and Shafer 2005), over all types
    together: the sample execution joins the normal ones, every member of that bag is
    scored against the others, and p is the share that scores at least as much.  It is
    exact where all are of a kind.  Sets too large for that are scored without the
    sample execution in the bag, and a note says so.  Beyond the largest reference
    score the tail is a Pareto tail (Hill 1975) fitted to the top tenth, as 105 normal
    executions could otherwise never convict one among eleven.  A p below ``1 / (n + 1)``
    is thus extrapolated: it holds its level where tails are of one piece, as in the
    simulations (docs/evaluation-simulated.md), and marks a healthy hiccup that is rarer
    than one in n, which nothing in n executions tells from a fault.

    The verdict is Benjamini and Hochberg's (1995) at ``level`` over the sample; and
    the excess of a column must reach the floor.  Half of the level is for another way:
    membership in a type whose sample executions are slower together in a column
    (`shifted_columns`), slower by the floor as a whole, and more than k * std above its
    mean in that column.  Twelve executions of a type that are all slower than its twelve
    normal ones have each a p of 1/13 at the best, and that alone marks none.  The level
    is of the type's test: where only some of a type's executions have a fault, one in
    ten of the others may be marked with them.
    """
    if normal.symbols != sample.symbols:
        raise ValueError("normal and sample vectors have different symbols")
    if len(normal) == 0:
        raise ValueError("no normal execution to compare with")
    partner = pairs.pair[sample_clusters.labels]
    raw = _columns(normal)
    observed = _columns(sample)
    both, both_observed = in_both_scales(raw, raw), in_both_scales(observed, raw)
    types = describe_types(both, normal_clusters.labels, normal_clusters.size)
    supported = np.asarray(types.sizes[types.labels] > 1, dtype=np.bool_)
    if types_known:
        kinds = np.arange(normal_clusters.size)
        ours, theirs = types.labels[:, None] == kinds, partner[:, None] == kinds
    else:
        ours, theirs = _fitting(normal, normal_clusters, sample, partner)
    score, z = sample_scores(types, both_observed, theirs)
    size = bag_size(types, ours)
    exact = size <= BAG_LIMIT and size * len(observed) <= EXACT_LIMIT
    if exact:
        p_value, beyond = np.ones(len(observed)), np.zeros(len(observed), np.bool_)
        for i, null in bag_scores(types, both, ours, both_observed, partner):
            p_value[i] = conformal(null, score[i : i + 1])[0]
            beyond[i] = score[i] > null.max(initial=0.0)
    else:
        null = reference_scores(types, both, ours)[supported]
        p_value, beyond = conformal(null, score), score > null.max(initial=0.0)
    mean, squares = types.mean[:, : raw.shape[1]], types.squares[:, : raw.shape[1]]
    excess = observed - mean[partner]
    least = floor * mean[partner, -1]
    large = (excess >= least[:, None]) & (excess > 0)
    std = np.sqrt(squares / np.maximum(types.sizes - 1, 1)[:, None])
    above = excess > k * std[partner]
    above &= excess > 1e-9 * mean[partner]  # a mean's rounding is no excess
    above &= types.sizes[partner, None] > 1  # one execution has no standard deviation
    paper = np.asarray(above[:, :-1].any(axis=1), dtype=np.bool_)
    # Single executions: the columns that made the score must carry the excess.
    alone = level * (1 - _GROUP_LEVEL)
    anomalous = benjamini_hochberg(p_value, alone) & (large & (z > 0)).any(axis=1)
    together = _groups(
        raw,
        observed,
        normal_clusters.labels,
        partner,
        mean[:, -1] * floor * _GROUP_FLOOR,
        level * _GROUP_LEVEL,
    )
    # Who is no slower as a whole only spent its time otherwise.
    anomalous |= (together & above & large).any(axis=1) & large[:, -1]
    top = np.where(z.any(axis=1), z.argmax(axis=1), excess.argmax(axis=1)) if len(z) else partner
    return Outliers(
        score=score,
        p_value=p_value,
        anomalous=anomalous,
        paper=paper,
        excess=np.rint(excess[:, -1]).astype(np.int64),
        symbol=np.where(top == len(normal.symbols), -1, top).astype(np.int64),
        notes=(
            *_support_notes(types, partner, supported, exact=exact),
            *_lone_notes(
                int((beyond & large.any(axis=1) & ~anomalous).sum()),
                len(observed),
                int(supported.sum()),
                alone,
            ),
            *_novel_notes(pairs.novel[sample_clusters.labels], anomalous),
        ),
    )


def _columns(table: VectorTable) -> F64:
    """Durations of every symbol and, last, the total (ns)."""
    return np.column_stack([table.durations, table.total]).astype(np.float64)


def _fitting(
    normal: VectorTable, clusters: Clustering, sample: VectorTable, partner: I64
) -> tuple[Bool, Bool]:
    """Plausible types of normal and sample executions."""
    home = normal_space(normal, clusters)
    limits = novel_limits(home)
    labels = home.labels
    own = np.zeros_like(home.sums)
    own[np.arange(len(labels)), labels] = 1.0
    ours = home.sums / np.maximum(home.sizes - own, 1)
    theirs = home.sums_of(sample.structure) / home.sizes
    return plausible(ours, limits, labels), plausible(theirs, limits, partner)


def _groups(raw: F64, observed: F64, labels: I64, partner: I64, least: F64, level: float) -> Bool:
    """Columns in which an execution's whole type is slower, per execution."""
    result = np.zeros(observed.shape, np.bool_)
    types, sizes = np.unique(partner, return_counts=True)
    types = types[sizes > 1]
    for c in types:
        mine = partner == c
        result[mine] = shifted_columns(
            raw[labels == c],
            observed[mine],
            alpha=level / len(types),
            floor=float(least[c]),
        )
    return result


def _support_notes(types: Types, partner: I64, supported: Bool, *, exact: bool) -> tuple[str, ...]:
    notes = []
    low = int((types.sizes[partner] < LOW_SUPPORT).sum())
    if low:
        notes.append(
            f"{plural(low, 'sample execution')} compared with a type of fewer than "
            f"{LOW_SUPPORT} normal executions: their spread is that of all types (low support)"
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
    if not exact:
        notes.append(
            f"{len(supported):,} normal executions against {len(partner):,}: reference scores "
            "are computed once, without the sample executions"
        )
    return tuple(notes)


def _lone_notes(lone: int, m: int, n: int, level: float) -> tuple[str, ...]:
    """Say that executions stand out which too few normal ones convict, and how few."""
    needed = math.ceil(m / level) - 1
    if not lone or n >= needed:
        return ()
    beyond = f"{plural(lone, 'sample execution')} of {m} beyond all {n} normal ones"
    chance = f"of healthy ones {m / (n + 1):.2g} would be"
    enough = f"{needed:,} normal executions tell even a single one from chance"
    return (f"{beyond} and yet not marked: {chance}; {enough}",)


def _novel_notes(novel: Bool, anomalous: Bool) -> tuple[str, ...]:
    if not novel.any():
        return ()
    count = plural(int(novel.sum()), "sample execution")
    known = f"{int((novel & anomalous).sum())} of them anomalous against the nearest type"
    return (f"{count} of a type not in the normal set, {known}",)
