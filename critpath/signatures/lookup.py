"""Whether a store knows a state, by its signatures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from critpath import __version__
from critpath.documents.base import change, number
from critpath.documents.known import (
    CHECK_FORMAT,
    CheckDocument,
    CheckedLabel,
    JoinEntry,
    KnownAnswer,
    KnownEntry,
    MatchedTermEntry,
    MatchEntry,
    StretchEntry,
)
from critpath.errors import InconclusiveError, UsageError
from critpath.model.signatures import MOST_DOCUMENTS, MOST_TERMS, Counts, Entry
from critpath.schema.parameters.signatures import LOOKUP
from critpath.signatures.classifiers import (
    adjusted_rand,
    find_syndromes,
    fit_svm,
    largest_gap,
    purity,
    tree_of,
    weigh_terms,
)
from critpath.signatures.classifiers import (
    group as group_vectors,
)
from critpath.signatures.drift import sessions_needed, strangers_of
from critpath.signatures.library import (
    Library,
    find_comparable,
    make_library,
    make_vectors,
    rates,
)
from critpath.stores import show_place
from critpath.text import known as words
from critpath.units import NS_PER_S, safe_text

if TYPE_CHECKING:
    from critpath.known import Store
    from critpath.model import F64, I64, Manifest

_SHOWN: Final = 5  # technical
_TERMS: Final = 20  # technical: of a label


def search_states(
    store: Store,
    asked: Counts,
    *,
    level: float,
    best: int = 5,
    classifier: str = "nearest",
    library: Library | None = None,
) -> KnownEntry:
    """Look up what ran.

    Parameters
    ----------
    store : Store
    asked : Counts
    level : float
        At most this p-value is like nothing known.
    best : int
        Labels to return.
    classifier : str
        ``nearest`` by drift distance, or ``svm``: which label it is; how strange it is the
        distance says in either case.
    library : Library, optional
        Of the store and these terms, if it was made before.
    """
    states = [entry for entry in store.entries if entry.kind == "state"]
    known = library or make_library(states, asked)
    lossy = int(asked.lossy.sum())
    if known is None:
        left = find_comparable(states, asked)[1]
        reason = words.nothing_comparable(len(states))
        return no_answer(
            store, asked, "not comparable", reason, level=level, lossy=lossy, left_out=left
        )
    vectors, rows = make_vectors(asked, known.terms)
    quiet = len(asked) - lossy - len(rows)
    answer = no_answer(
        *(store, asked, "inconclusive"),
        words.too_few_documents(len(rows), LOOKUP.least_documents, quiet),
        level=level,
        quiet=quiet,
        lossy=lossy,
        left_out=known.left_out,
    )
    if len(rows) < LOOKUP.least_documents:
        return answer
    return _judge(known, asked, vectors[rows], rows, answer, best=best, classifier=classifier)


def no_answer(
    store: Store,
    asked: Counts,
    answer: KnownAnswer,
    reason: str,
    *,
    level: float,
    lossy: int,
    left_out: Sequence[str],
    quiet: int = 0,
) -> KnownEntry:
    """Return that a store cannot tell, and why."""
    return KnownEntry(
        store=show_place(store.path),
        digest=store.digest,
        entries=len(store.entries),
        answer=answer,
        reasons=[reason],
        matches=[],
        p=None,
        level=level,
        calibrated=False,
        documents=len(asked),
        quiet=quiet,
        lossy=lossy,
        agreement=0.0,
        timeline=[],
        left_out=list(left_out),
    )


def _judge(
    known: Library,
    asked: Counts,
    vectors: Any,
    rows: I64,
    answer: KnownEntry,
    *,
    best: int,
    classifier: str,
) -> KnownEntry:
    calibration = known.calibration
    corpus = calibration.corpus
    count = len(known.labels)
    distances = calibration.to_labels(vectors)
    if classifier == "svm":
        label = fit_svm(corpus).predict(vectors.toarray())
    else:
        label = np.argmin(distances, axis=1)
    votes = np.bincount(label, minlength=count)
    # Most documents decide; of labels with as many, the one that is nearer.
    order = np.lexsort((np.median(distances, axis=0), -votes))
    order = np.concatenate([order[:1], _by_distance(order[1:], distances)])
    first = int(order[0])
    family = next((of for of in calibration.twins if first in of), (first,))
    agreement = float(np.isin(label, family).mean())
    own = distances[np.arange(len(rows)), label]
    strange = calibration.strange(own, label)
    sessions = calibration.is_calibrated(answer.level, sessions=True)
    level = calibration.level(answer.level, sessions=True)  # they are what is independent
    calibrated = calibration.is_calibrated(answer.level, sessions=sessions)
    p = float(calibration.p_values(np.median(strange), sessions=sessions))
    status, reasons = _decide(known, p, level, calibrated=calibrated, by_session=sessions)
    if answer.level < p <= level:
        reasons = [words.level_raised(level, answer.level), *reasons]
    matches = [
        _match(known, int(one), asked, vectors, distances, explained=place == 0)
        for place, one in enumerate(order[:best].tolist())
        if np.isfinite(distances[:, one]).any()
    ]
    sure = calibrated and sessions and calibration.has_enough
    timeline: list[StretchEntry] = []
    if agreement < LOOKUP.agree:
        each = calibration.p_values(strange)
        unknown = each <= calibration.level(answer.level)
        timeline = _timeline(known, asked, rows, np.where(unknown, -1, label), vectors)
    return change(
        answer,
        answer=status,
        reasons=reasons,
        matches=matches,
        p=number(p) if matches or sure else None,
        calibrated=sure,
        level=level,
        agreement=agreement,
        timeline=timeline,
    )


def _by_distance(labels: I64, distances: F64) -> I64:
    return labels[np.argsort(np.median(distances[:, labels], axis=0), kind="stable")]


def _decide(
    known: Library, p: float, level: float, *, calibrated: bool, by_session: bool
) -> tuple[KnownAnswer, list[str]]:
    """Return what the p-value allows to be said, and why no more."""
    calibration = known.calibration
    if not calibrated:
        return "inconclusive", [words.not_calibrated(len(calibration.known))]
    reasons: list[str] = []
    if not by_session:
        reasons = [words.by_interval(len(calibration.medians))]
    if not calibration.has_enough:
        reasons = [words.few_sessions(float(np.median(calibration.corpus.sessions)))]
        if level / LOOKUP.near < p <= level * LOOKUP.near:
            return "inconclusive", [words.near_level(p, level), *reasons]
    return ("unknown" if p <= level else "known"), reasons


def _match(
    known: Library, label: int, asked: Counts, vectors: Any, distances: F64, *, explained: bool
) -> MatchEntry:
    calibration, corpus = known.calibration, known.calibration.corpus
    mine = corpus.take(corpus.label == label).vectors
    cosine = np.asarray((vectors @ mine.T).toarray())
    nearest = np.argsort(-cosine, axis=1, kind="stable")[:, :3]
    entries = [e for e in known.entries if e.label == known.labels[label]]
    family = next((of for of in calibration.twins if label in of), (label,))
    terms: list[MatchedTermEntry] = []
    if explained:
        terms = _explain(known, asked, vectors, mine, nearest, label)
    return MatchEntry(
        label=known.labels[label],
        labels=[known.labels[i] for i in family],
        kind="state",
        part="counts",
        similarity=float(np.take_along_axis(cosine, nearest, axis=1).mean()),
        distance=float(np.median(distances[:, label])),
        terms=terms,
        **describe_entries(entries),
    )


def describe_entries(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return what is said of a label's sessions."""
    latest = sorted(entries, key=lambda e: e.recorded)[::-1]
    return {
        "sessions": len(entries),
        "recorded": latest[0].recorded,
        "note": next((e.note for e in latest if e.note), ""),
        "link": next((e.link for e in latest if e.link), ""),
    }


def _explain(
    known: Library, asked: Counts, vectors: Any, theirs: Any, nearest: I64, label: int
) -> list[MatchedTermEntry]:
    """Return the terms that make the similarity, beyond what every label has: parts of it."""
    from scipy.sparse import csr_array  # noqa: PLC0415 - start-up time

    documents, of = nearest.shape
    pick = csr_array(
        (
            np.full(documents * of, 1 / of),
            (np.repeat(np.arange(documents), of), nearest.ravel()),
        ),
        shape=(documents, theirs.shape[0]),
    )
    part = np.asarray(vectors.multiply(pick @ theirs).mean(axis=0)).ravel()
    corpus = known.calibration.corpus
    rest = corpus.take(corpus.label != label).vectors
    usual = np.asarray(rest.mean(axis=0)).ravel() if rest.shape[0] else np.zeros(len(part))
    mean = np.asarray(vectors.mean(axis=0)).ravel()
    order = np.argsort(-(part - mean * usual), kind="stable")[:_SHOWN]
    here = rates(asked, known.terms)
    entries = [e.counts for e in known.entries if e.label == known.labels[label]]
    there = np.mean([rates(counts, known.terms) for counts in entries], axis=0)
    return [
        MatchedTermEntry(known.terms[at], float(here[at]), float(there[at]), float(part[at]))
        for at in order.tolist()
        if part[at] > 0
    ]


def _timeline(
    known: Library, asked: Counts, rows: I64, label: I64, vectors: Any
) -> list[StretchEntry]:
    """Return runs of one label each; a single document between others is theirs."""
    smooth = label.copy()
    for at in range(1, len(label) - 1):
        if label[at - 1] == label[at + 1] != label[at]:
            smooth[at] = label[at - 1]
    corpus = known.calibration.corpus
    cuts = np.flatnonzero(np.append(True, smooth[1:] != smooth[:-1]))
    found = []
    for first, end in zip(cuts, np.append(cuts[1:], len(smooth)), strict=True):
        one = int(smooth[first])
        similarity = 0.0
        if one >= 0:
            theirs = corpus.take(corpus.label == one).vectors
            cosine = (vectors[first:end] @ theirs.T).toarray()
            similarity = float(np.sort(cosine, axis=1)[:, -3:].mean())
        found.append(
            StretchEntry(
                begin=int(asked.begin[rows[first]]),
                end=int(asked.end[rows[end - 1]]),
                label=known.labels[one] if one >= 0 else "",
                similarity=similarity,
            )
        )
    return found


def check(store: Store, *, level: float) -> CheckDocument | None:
    """Judge every session of a store by the others; None where it has no state to judge."""
    states = [entry for entry in store.entries if entry.kind == "state"]
    known = make_library(states)
    if known is None:
        return None
    calibration, corpus = known.calibration, known.calibration.corpus
    count = len(known.labels)
    judged = calibration.nearest >= 0
    nearest = np.zeros((count, count), np.int64)
    np.add.at(nearest, (corpus.label[judged], calibration.nearest[judged]), 1)
    # As a search has it: sessions are independent of each other, their intervals are not.
    found_level = calibration.level(level, sessions=True)
    raised = (words.level_raised(found_level, level),) if found_level > level else ()
    unknown = np.zeros(count, np.int64)
    best = calibration.nearest[judged]
    strange = calibration.strange(calibration.distance[judged], best)
    called = calibration.p_values(strange) <= found_level
    np.add.at(unknown, corpus.label[judged][called], 1)
    seen, p = strangers_of(calibration, calibration.twins)
    totals = np.zeros(count, np.int64)
    sessions = np.zeros(count, np.int64)
    for entry in known.comparable:
        totals[known.labels.index(entry.label)] += len(entry.counts)
        sessions[known.labels.index(entry.label)] += 1
    used = np.bincount(corpus.label, minlength=count)
    odd = [
        bool(mine.any())
        and float((calibration.nearest[mine] == corpus.label[mine]).mean()) <= 1 / 2
        for mine in ((corpus.session == number) & judged for number in range(len(known.entries)))
    ]
    doubtful = []
    for entry, is_odd in zip(known.entries, odd, strict=True):
        others = [o for e, o in zip(known.entries, odd, strict=True) if e.label == entry.label]
        # Where most sessions of a label are nearer to another the two are twins.
        if is_odd and sum(others) <= len(others) / 2:
            doubtful.append(entry.name or entry.label)
    tree, groups = join_labels(known)
    of_labels = np.bincount(corpus.label[judged], minlength=count)
    return CheckDocument(
        format=CHECK_FORMAT,
        version=__version__,
        store=show_place(store.path),
        digest=store.digest,
        labels=[
            CheckedLabel(
                label=label,
                sessions=int(sessions[at]),
                documents=int(totals[at]),
                quiet=int(totals[at] - used[at]),
                judged=int(of_labels[at]),
                right=int(nearest[at, at]),
                unknown=int(unknown[at]),
                nearest={known.labels[i]: n for i, n in enumerate(nearest[at].tolist()) if n},
            )
            for at, label in enumerate(known.labels)
        ],
        strangers=int(seen.sum()),
        recognised=int((p[seen] <= found_level).sum()),
        level=found_level,
        calibrated=calibration.holds(found_level),
        judged_sessions=len(calibration.medians),
        needed_sessions=sessions_needed(found_level),
        twins=[list(of) for of in known.twins],
        doubtful=doubtful,
        notes=[*store.notes, *raised, *known.left_out],
        tree=tree,
        groups=groups,
    )


# From recordings and comparisons to what a store keeps


def make_entry(
    label: str,
    counts: Counts | None,
    *,
    note: str = "",
    link: str = "",
    normal: Counts | None = None,
    causes: Mapping[str, float] | None = None,
    manifest: Manifest | None = None,
    anonymous: bool = False,
) -> Entry:
    """Return what a store keeps of a recording, or of what `critpath compare` found.

    Parameters
    ----------
    label, note, link : str
    counts : Counts
        Of one scope; None of an incident that is only causes.
    normal : Counts, optional
        The normal side, which makes it an incident.
    causes : mapping of str to float, optional
        Of a comparison, likewise.
    manifest : Manifest, optional
        Of the recording: when and where it was made.
    anonymous : bool
        Leave out the host and the control group's name.
    """
    counts = _no_counts() if counts is None else counts
    kept = _spread(counts)
    sides = _only_occurring(kept, [_spread(normal)] if normal is not None else [])
    if anonymous:
        sides = tuple(
            replace(side, scopes=tuple(map(_anonymous_scope, side.scopes))) for side in sides
        )
    return Entry(
        label=label,
        kind="state" if normal is None and causes is None else "incident",
        recorded=_recorded(manifest),
        counts=sides[0],
        note=note,
        link=link,
        left_out=len(counts) - len(kept),
        host={} if anonymous or manifest is None else _host(manifest),
        normal=sides[1] if len(sides) > 1 else None,
        causes={} if causes is None else causes,
    )


def _spread(counts: Counts, most: int = MOST_DOCUMENTS) -> Counts:
    """Return at most so many documents, evenly spread, without lossy ones."""
    rows = np.flatnonzero(~counts.lossy)
    if len(rows) > most:
        rows = rows[np.linspace(0, len(rows) - 1, most).round().astype(np.int64)]
    return counts.take(rows)


def _only_occurring(counts: Counts, others: Sequence[Counts] = ()) -> tuple[Counts, ...]:
    """Return counts whose vocabularies fit an entry: terms that occur, and as many that did not.

    A kernel offers more terms than an entry may list; which were looked at and did not occur is
    kept of as many as there is room for, in order of their names.
    """
    every = (counts, *others)
    if len(counts.vocabulary) <= MOST_TERMS:
        return every
    used = np.unique(np.concatenate([each.term for each in every]))
    rest = np.setdiff1d(np.arange(len(counts.vocabulary)), used)
    kept = np.sort(np.concatenate([used, rest[: max(0, MOST_TERMS - len(used))]]))
    if len(kept) > MOST_TERMS:
        raise UsageError(
            f"{len(used):,} different terms occur: an entry has at most {MOST_TERMS:,}",
            "count fewer events",
        )
    new = np.zeros(len(counts.vocabulary), np.int32)
    new[kept] = np.arange(len(kept))
    words = tuple(counts.vocabulary[at] for at in kept)
    return tuple(replace(each, vocabulary=words, term=new[each.term]) for each in every)


def _anonymous_scope(scope: str) -> str:
    return scope if scope in {"machine", "command"} else "group"


def _recorded(manifest: Manifest | None) -> str:
    epoch = manifest.clock.get("epoch") if manifest is not None else None
    when = datetime.now(UTC)
    if manifest is not None and isinstance(epoch, int) and manifest.begin:
        with suppress(ValueError, OverflowError, OSError):
            when = datetime.fromtimestamp((manifest.begin + epoch) // NS_PER_S, UTC)
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def _host(manifest: Manifest) -> dict[str, str]:
    wanted = ("name", "kernel", "machine", "cpus")
    found = {name: str(manifest.host.get(name, "")) for name in wanted}
    return {name: safe_text(value)[:128] for name, value in found.items() if value}


def _no_counts() -> Counts:
    """Return counts of nothing: of an incident of which only causes are known."""
    none = np.zeros(0, np.int64)
    few = np.zeros(0, np.int32)
    return Counts(
        *((), ("",), none, none, few, np.zeros(0, np.bool_), few),
        term=few,
        count=none,
        source="causes",
    )


# Groups


def describe_label(store: Store, label: str) -> list[str]:
    """Return a label's sessions and the terms that it has more of than others, in lines."""
    mine = [entry for entry in store.entries if entry.label == label]
    if not mine:
        raise UsageError(
            f"{store.path}: no label {safe_text(label)!r:.80}",
            f"see critpath known list {store.path}",
        )
    lines = [words.label_line(label, mine)]
    noted = {(entry.note, entry.link): entry for entry in mine if entry.note or entry.link}
    lines += [words.note_line(entry) for entry in noted.values()]
    if mine[0].kind == "incident":
        causes: dict[str, float] = {}
        for entry in mine:
            for term, cost in entry.causes.items():
                causes[term] = causes.get(term, 0.0) + cost / len(mine)
        order = sorted(causes, key=lambda term: (-causes[term], term))[:_TERMS]
        return [*lines, *(words.cause_term(term, causes[term]) for term in order)]
    known = make_library([entry for entry in store.entries if entry.kind == "state"])
    if known is None or label not in known.labels:
        return [*lines, words.quiet_entry(label)]
    found = find_syndromes(known.calibration.corpus)
    at = known.labels.index(label)
    weights = weigh_terms(found[at], found.mean(axis=0), known.terms, _TERMS)
    mean = dict(zip(known.terms, found.mean(axis=0).tolist(), strict=True))
    return [*lines, *(words.usual_term(t, weight, mean[t]) for t, weight in weights.items())]


def join_labels(
    known: Library, clusters: int | None = None
) -> tuple[list[JoinEntry], list[list[str]]]:
    """Return which labels are alike, cut into groups: as many as asked for, or at the largest gap.

    Labels are joined two by two, the most alike first.  One in which too little happened is like
    nothing, and left out.
    """
    from scipy.cluster.hierarchy import fcluster  # noqa: PLC0415 - start-up time

    corpus = known.calibration.corpus
    used = np.unique(corpus.label)
    if len(used) < 2:
        return [], [[known.labels[one]] for one in used.tolist()]
    tree = tree_of(find_syndromes(corpus)[used])
    group = fcluster(tree, clusters or largest_gap(tree), "maxclust")
    places = [*used.tolist(), *range(len(known.labels), len(known.labels) + len(tree))]
    joins = [
        JoinEntry(places[int(one)], places[int(other)], float(1 - height))
        for one, other, height, _ in tree.tolist()
    ]
    groups = [used[group == one].tolist() for one in dict.fromkeys(group.tolist())]
    return joins, [[known.labels[i] for i in of] for of in groups]


def group(store: Store, by: str, clusters: int | None) -> list[str]:
    """Return the tree of labels, or documents grouped by a method, in lines."""
    known = make_library([entry for entry in store.entries if entry.kind == "state"])
    if known is None:
        raise InconclusiveError(
            f"{store.path}: has no states to group",
            "add recordings: critpath known add STORE SOURCE --label NAME",
        )
    if by == "tree":
        return _group_labels(store, known, clusters)
    return _group_documents(known, by, clusters)


def _group_labels(store: Store, known: Library, clusters: int | None) -> list[str]:
    """Return the tree of labels in lines: which are alike, cut into groups."""
    joins, groups = join_labels(known, clusters)
    if not joins:
        raise InconclusiveError(
            f"{store.path}: has one label in which enough happened", "add others"
        )
    names = list(known.labels)
    lines = [words.group_line(group) for group in groups]
    for join in joins:
        both = names[join.one], names[join.other]
        names.append(" + ".join(both))
        lines.append(words.joined_line(*both, join.similarity))
    return [*lines, *known.left_out]


def _group_documents(known: Library, method: str, clusters: int | None) -> list[str]:
    """Return groups of documents held against their labels, in lines."""
    corpus = known.calibration.corpus
    count = clusters or len(known.labels)
    groups = group_vectors(corpus.vectors, method, min(count, len(corpus)))
    lines = [words.purity_line(purity(groups, corpus.label), adjusted_rand(groups, corpus.label))]
    for one in np.unique(groups).tolist():
        mine = np.bincount(corpus.label[groups == one], minlength=len(known.labels))
        of = {known.labels[i]: int(mine[i]) for i in np.argsort(-mine).tolist() if mine[i]}
        lines.append(words.members_line(one, of))
    return lines
