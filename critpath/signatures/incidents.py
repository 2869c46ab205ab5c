"""Whether a store knows an incident: how a system differs from its own normal.

The p-value is conformal, over incidents: each of the store, and the one that is asked about as one
of the nearest label, is as strange as it is unlike the others of its label.  All are weighed and
scaled alike, so an incident of a label is as strange as any other of them by chance alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from critpath.documents.base import number
from critpath.documents.known import (
    Compared,
    KnownAnswer,
    KnownEntry,
    MatchedTermEntry,
    MatchEntry,
)
from critpath.model import F64, role_name
from critpath.model.signatures import LONGEST_TERM, Counts, Entry
from critpath.schema.parameters.signatures import DRIFT, LOOKUP
from critpath.signatures.difference import (
    compare_causes,
    find_scatter,
    make_side,
    nearest_cosine,
    weigh_causes,
)
from critpath.signatures.drift import Ranking
from critpath.signatures.library import common_terms, find_comparable, rates
from critpath.signatures.lookup import describe_entries, search_states
from critpath.stores import show_place
from critpath.text import known as words
from critpath.units import safe_text

if TYPE_CHECKING:
    from critpath.documents import ComparisonDocument
    from critpath.known import Store

    Vectors = dict[int, F64]  # by the place of the incident; of the one asked about the last

_SHOWN: Final = 5  # technical
_MOST_CAUSES: Final = 400  # technical: terms of an incident


def search(
    store: Store,
    sample: Counts | None,
    normal: Counts | None = None,
    causes: Mapping[str, float] | None = None,
    *,
    level: float | None = None,
    best: int = 5,
    classifier: str = "nearest",
) -> KnownEntry:
    """Look up what ran; or, where a normal side or causes are known, how it differs from that."""
    if sample is None or normal is not None or causes is not None:
        return search_incident(store, causes or {}, sample, normal, level=level, best=best)
    level = DRIFT.level if level is None else level
    return search_states(store, sample, level=level, best=best, classifier=classifier)


def search_incident(
    store: Store,
    causes: Mapping[str, float],
    sample: Counts | None = None,
    normal: Counts | None = None,
    *,
    level: float | None = None,
    best: int = 5,
) -> KnownEntry:
    """Look up how a system differs from its own normal, by counts and by causes.

    Either is searched by itself; what is more alike answers.

    Parameters
    ----------
    store : Store
    causes : mapping of str to float
    sample, normal : Counts, optional
    level : float
        At most this p-value is like nothing known; 0.05 where fewer than 200 can be compared with.
    best : int
        Labels to return.
    """
    level = DRIFT.level if level is None else level

    incidents = [entry for entry in store.entries if entry.kind == "incident"]
    all_causes = [*(entry.causes for entry in incidents), causes]
    weight = weigh_causes([one for one in all_causes if one])
    found = [_by_causes(incidents, causes, weight, best)]
    vectors: Vectors = {}
    left_out: list[str] = []
    if sample is not None and normal is not None:
        by_counts, vectors, left_out = _by_counts(incidents, sample, normal, best)
        found.append(by_counts)
    matches = max(found, key=lambda some: some[0].similarity if some else -1.0)
    status: KnownAnswer = "unknown"
    reasons: list[str] = []
    p, calibrated = 1.0, False
    if not incidents:
        reasons = [words.no_incidents()]
    elif matches:
        labels = [*(entry.label for entry in incidents), matches[0].label]
        alike = _own_vectors(labels, vectors)
        if causes:
            alike = np.maximum(alike, _own_causes(labels, all_causes, weight))
        strange = 1 - alike
        judged = strange[:-1][np.isfinite(strange[:-1])]
        known = Ranking(np.sort(judged))
        wanted, level = level, known.level(level)
        calibrated = known.is_calibrated(level)
        if calibrated:
            p = float(known.p_values(strange[-1]))
            status = "unknown" if p <= level else "known"
            if wanted < p <= level:
                reasons = [words.level_raised(level, wanted)]
        else:
            status = "unknown" if matches[0].similarity < LOOKUP.like else "known"
            needed = math.ceil(1 / level - 1e-9) - 1
            reasons = [words.few_incidents(len(judged), needed, LOOKUP.like)]
    return KnownEntry(
        store=show_place(store.path),
        digest=store.digest,
        entries=len(store.entries),
        answer=status,
        reasons=reasons,
        matches=matches,
        p=number(p) if calibrated else None,
        calibrated=calibrated,
        level=level,
        documents=len(sample) if sample is not None else 0,
        quiet=0,
        lossy=int(sample.lossy.sum()) if sample is not None else 0,
        agreement=1.0,
        timeline=[],
        left_out=left_out,
    )


def _own_causes(
    labels: Sequence[str], causes: Sequence[Mapping[str, float]], weight: Mapping[str, float]
) -> F64:
    """Return how alike each incident is to the others of its label; -inf where it has none."""
    found = np.full(len(labels), -np.inf)
    for at, (label, mine) in enumerate(zip(labels, causes, strict=True)):
        for other in range(at):
            if labels[other] == label and mine and causes[other]:
                alike = compare_causes(mine, causes[other], weight)
                found[[at, other]] = np.maximum(found[[at, other]], alike)
    return found


def _own_vectors(labels: Sequence[str], vectors: Vectors) -> F64:

    found = np.full(len(labels), -np.inf)
    for at, mine in vectors.items():
        others = [v for o, v in vectors.items() if o != at and labels[o] == labels[at]]
        if others:
            both = np.concatenate(others)
            label = np.zeros(len(both), np.int64)
            found[at] = nearest_cosine(mine, both, label, 1, DRIFT.nearest).mean()
    return found


def _by_causes(
    incidents: Sequence[Entry],
    causes: Mapping[str, float],
    weight: Mapping[str, float],
    best: int,
) -> list[MatchEntry]:

    with_causes = [entry for entry in incidents if entry.causes]
    if not causes or not with_causes:
        return []
    alike: dict[str, list[tuple[float, Entry]]] = {}
    for entry in with_causes:
        similarity = compare_causes(causes, entry.causes, weight)
        alike.setdefault(entry.label, []).append((similarity, entry))
    order = sorted(alike, key=lambda label: (-max(s for s, _ in alike[label]), label))
    found = []
    for label in order[:best]:
        similarity, nearest = max(alike[label], key=lambda pair: (pair[0], pair[1].name))
        shared = sorted(causes.keys() & nearest.causes.keys())
        shared.sort(key=lambda term: -min(causes[term], nearest.causes[term]))
        terms = [
            MatchedTermEntry(t, causes[t], nearest.causes[t], min(causes[t], nearest.causes[t]))
            for t in shared[:_SHOWN]
        ]
        found.append(_incident(label, incidents, "causes", similarity, terms))
    return found


def _by_counts(
    incidents: Sequence[Entry], sample: Counts, normal: Counts, best: int
) -> tuple[list[MatchEntry], Vectors, list[str]]:

    usable = [e for e in incidents if e.normal is not None and len(e.counts) and len(e.normal)]
    kept, left_out = find_comparable(usable, sample)
    sample, normal = sample.take(~sample.lossy), normal.take(~normal.lossy)
    if not kept or not len(sample) or not len(normal):
        return [], {}, left_out
    sides = [side for e in kept for side in (e.counts, e.normal) if side is not None]
    terms = common_terms([*sides, sample, normal], free=True)
    made = [(make_side(e.counts, terms), make_side(e.normal, terms)) for e in kept if e.normal]
    ours = make_side(sample, terms), make_side(normal, terms)
    scatter = find_scatter([*(n for _, n in made), ours[1]])
    stored = [scatter.difference(*pair) for pair in made]
    mine = scatter.difference(*ours)
    labels = sorted({e.label for e in kept})
    label = np.repeat([labels.index(e.label) for e in kept], [len(each) for each in stored])
    cosine = nearest_cosine(mine, np.concatenate(stored), label, len(labels), DRIFT.nearest)
    votes = np.bincount(np.argmax(cosine, axis=1), minlength=len(labels))
    mean = cosine.mean(axis=0)
    order = np.lexsort((-mean, -votes))
    order = np.concatenate([order[:1], order[1:][np.argsort(-mean[order[1:]], kind="stable")]])
    here = rates(sample, terms) - rates(normal, terms)
    found = []
    for place, one in enumerate(order[:best].tolist()):
        same = [] if place else [e for e in kept if e.label == labels[one]]
        explained = _explain(here, same, terms)
        found.append(_incident(labels[one], incidents, "counts", float(mean[one]), explained))
    places = [incidents.index(entry) for entry in kept]
    vectors = dict(zip(places, stored, strict=True))
    return found, vectors | {len(incidents): mine}, left_out


def _explain(here: F64, same: Sequence[Entry], terms: Sequence[str]) -> list[MatchedTermEntry]:
    """Return the terms that differ alike here and in incidents of one label."""
    rises = [rates(e.counts, terms) - rates(e.normal, terms) for e in same if e.normal]
    if not rises:
        return []
    there = np.mean(rises, axis=0)
    both = np.sign(here) * np.sign(there) * np.sqrt(np.abs(here * there))
    return [
        MatchedTermEntry(terms[at], float(here[at]), float(there[at]), float(both[at]))
        for at in np.argsort(-both, kind="stable")[:_SHOWN].tolist()
        if both[at] > 0
    ]


def _incident(
    label: str,
    incidents: Sequence[Entry],
    part: Compared,
    similarity: float,
    terms: list[MatchedTermEntry],
) -> MatchEntry:
    mine = [entry for entry in incidents if entry.label == label]
    return MatchEntry(
        label=label,
        labels=[label],
        kind="incident",
        part=part,
        similarity=similarity,
        distance=1.0 - similarity,
        terms=terms,
        **describe_entries(mine),
    )


def find_causes(document: ComparisonDocument, *, roles: bool = True) -> dict[str, float]:
    """Return what the findings of a comparison cost, by term (ns).

    A finding adds its contribution to terms with the thread's role and without.
    """
    found: dict[str, float] = {}
    for finding in document.findings:
        cost = finding.contribution or 0.0
        if cost <= 0:
            continue
        state, role = finding.state, role_name(finding.role)
        kind = f"{finding.kind}:{state}" + (f"/{finding.detail}" if finding.detail else "")
        terms = [state, kind]
        if role and roles:
            terms += [f"{state}@{role}", f"{kind}@{role}"]
        for term in terms:
            name = safe_text(term)[:LONGEST_TERM]
            found[name] = found.get(name, 0.0) + float(cost)
    most = sorted(found, key=lambda term: (-found[term], term))[:_MOST_CAUSES]
    return {term: found[term] for term in sorted(most)}
