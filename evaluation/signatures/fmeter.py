"""How well signatures tell what runs, and what went wrong, across sessions.

    python evaluation/signatures/fmeter.py DIR

DIR has sessions of `fmeter_sessions.py`.  First the experiment of Fmeter (Marian et al., 2012):
three workloads, six groupings, K folds, linear SVM, K-means; then what a user would get: every
session judged by the others, strangers, retrieval, groups, and incidents of which neither the
workload nor the session was seen with that fault.
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from scipy.sparse import vstack
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import LinearSVC

from critpath.flow import count_documents
from critpath.known.entries import Store
from critpath.model.signatures import Counts, Entry
from critpath.signatures.classifiers import adjusted_rand, fit_svm, group, purity
from critpath.signatures.drift import Corpus, calibrate, mean_of_nearest
from critpath.signatures.incidents import search_incident
from critpath.signatures.library import make_library, make_vectors
from critpath.signatures.lookup import check, make_entry, search_states
from critpath.signatures.signing import SignSettings
from critpath.signatures.weights import weigh

PAPER: Final = ("scp", "gcc", "dbench")
TWINS: Final = (
    ("nginx", "nginx-read"),
    ("pg", "pg-async"),
    ("pipe-4k", "pipe-64k"),
    ("fio-psync", "fio-uring"),
    ("redis-mem", "redis-aof"),
)
FOLDS: Final = 10


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sessions", type=Path)
    place = parser.parse_args().sessions
    read = read_sessions(place)
    sessions = sorted({session for session, _ in read})
    states = {k: v for k, v in read.items() if "+" not in k[1]}
    labels = sorted({label for _, label in states})
    print(f"{len(sessions)} sessions, {len(labels)} labels, {len(states)} recordings of states\n")
    papers(states)
    twins(states, sessions)
    across(states)
    held_out(states, sessions)
    groups(states, labels)
    incidents(read)


def read_sessions(place: Path) -> dict[tuple[str, str], Counts]:
    """Return the counts of every recording by session and label."""
    found = {}
    for session in sorted(p for p in place.iterdir() if p.is_dir()):
        for recording in sorted(session.iterdir()):
            if (recording / "counts" / "counts.jsonl").is_file():
                counts, _ = count_documents(recording, SignSettings())
                found[session.name, recording.name] = counts.take(~counts.lossy)
    return found


def corpus_of(chosen: dict[tuple[str, str], Counts], labels: list[str], weights: str) -> Corpus:
    """Return documents with any of the weights, over the terms of all."""
    vocabulary = sorted(set.intersection(*(set(c.vocabulary) for c in chosen.values())))
    vectors, label, session = [], [], []
    for number, ((_, name), counts) in enumerate(sorted(chosen.items())):
        if weights == "hellinger":
            found, rows = make_vectors(counts, vocabulary)
            found = found[rows]
        else:
            from scipy.sparse import csr_array  # noqa: PLC0415 - beside its use

            of = weigh(counts, weights)
            place = {term: at for at, term in enumerate(vocabulary)}
            column = np.array([place.get(t, -1) for t in of.vocabulary])[of.term]
            kept = (column >= 0) & ~of.quiet[of.document]
            rows = np.flatnonzero(~of.quiet)
            found = csr_array(
                (of.weight[kept], (of.document[kept], column[kept])),
                shape=(len(of), len(vocabulary)),
            )[rows]
        vectors.append(found)
        label += [labels.index(name)] * found.shape[0]
        session += [number] * found.shape[0]
    stacked = vstack(vectors, format="csr")
    return Corpus.of(stacked, np.array(label), np.array(session), len(labels))


def papers(states: dict[tuple[str, str], Counts]) -> None:
    """The paper's protocol: one label against others, accuracy over folds; and across sessions."""
    print("| grouping | weights | folds | next session |")
    print("|---|---|---:|---:|")
    groupings = [
        *(((one,), (other,)) for one, other in itertools.combinations(PAPER, 2)),
        *(((one,), tuple(x for x in PAPER if x != one)) for one in PAPER),
    ]
    mine = {k: v for k, v in states.items() if k[1] in PAPER}
    for one, rest in groupings:
        for weights in ("hellinger", "tfidf"):
            chosen = {k: v for k, v in mine.items() if k[1] in {*one, *rest}}
            corpus = corpus_of(chosen, sorted({k[1] for k in chosen}), weights)
            truth = np.isin(corpus.label, [sorted({k[1] for k in chosen}).index(x) for x in one])
            folds = []
            for train, test in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(
                corpus.vectors, truth
            ):
                svm = LinearSVC(C=10, dual=False).fit(corpus.vectors[train].toarray(), truth[train])
                folds.append(np.mean(svm.predict(corpus.vectors[test].toarray()) == truth[test]))
            names = sorted({k[0] for k in chosen})
            of_session = np.array([names.index(k[0]) for k in sorted(chosen)])[corpus.session]
            found = []
            for held in range(len(names)):
                test = of_session == held
                svm = LinearSVC(C=10, dual=False).fit(corpus.vectors[~test].toarray(), truth[~test])
                found.append(np.mean(svm.predict(corpus.vectors[test].toarray()) == truth[test]))
            name = f"{'+'.join(one)} against {'+'.join(rest)}"
            print(
                f"| {name} | {weights} | {np.mean(folds):.4f} ± {np.std(folds):.4f} "
                f"| {np.mean(found):.4f} |"
            )
    print()


def twins(states: dict[tuple[str, str], Counts], sessions: list[str]) -> None:
    """Pairs that differ in one setting: trained on the other sessions."""
    print("| twins | right across sessions |")
    print("|---|---:|")
    for pair in TWINS:
        chosen = {k: v for k, v in states.items() if k[1] in pair}
        if len({k[1] for k in chosen}) < 2:
            continue
        corpus = corpus_of(chosen, sorted(pair), "hellinger")
        of_session = np.array([sessions.index(k[0]) for k in sorted(chosen)])[corpus.session]
        right = total = 0
        for held in np.unique(of_session).tolist():
            train, test = np.flatnonzero(of_session != held), np.flatnonzero(of_session == held)
            found = fit_svm(corpus.take(train)).predict(corpus.vectors[test].toarray())
            right += int((found == corpus.label[test]).sum())
            total += len(test)
        print(f"| {', '.join(pair)} | {right / total:.4f} of {total} |")
    print()


def entries_of(states: dict[tuple[str, str], Counts]) -> tuple[Entry, ...]:
    """Return the entries that a store would have."""
    return tuple(
        replace(make_entry(label, counts), name=f"{label}/{session}", digest=f"{session}{label}")
        for (session, label), counts in sorted(states.items())
    )


def across(states: dict[tuple[str, str], Counts]) -> None:
    """Every session judged by the others: what `known check` says, and retrieval."""
    found = check(Store(Path("x.known"), entries_of(states)), level=0.01)
    assert found is not None
    judged, right = (sum(getattr(one, of) for one in found.labels) for of in ("judged", "right"))
    twin = {label: of for of in found.twins for label in of}
    family = sum(
        many
        for one in found.labels
        for other, many in one.nearest.items()
        if one.label == other or other in twin.get(one.label, ())
    )
    print("| every session judged by the others | |")
    print("|---|---:|")
    print(f"| right | {right / judged:.4f} of {judged} |")
    print(f"| right, twins as one ({'; '.join(' = '.join(t) for t in found.twins)}) "
          f"| {family / judged:.4f} |")  # fmt: skip
    for level in (0.01, 0.05):
        at_level = check(Store(Path("x.known"), entries_of(states)), level=level)
        assert at_level is not None
        unknown = sum(one.unknown for one in at_level.labels) / judged
        print(f"| known ones called unknown, level {level:g} | {unknown:.4f} |")
        share = at_level.recognised / at_level.strangers
        print(f"| strangers recognised, level {level:g} | {share:.4f} of {at_level.strangers} |")
    print(f"| quiet, not judged | {sum(one.quiet for one in found.labels)} |")
    known = make_library(entries_of(states))
    assert known is not None
    corpus, drift = known.calibration.corpus, known.calibration.drift
    at: dict[int, list[float]] = {1: [], 5: [], 10: []}
    for one in np.unique(corpus.session).tolist():
        mine, rest = np.flatnonzero(corpus.session == one), np.flatnonzero(corpus.session != one)
        if corpus.sessions[corpus.label[mine[0]]] < 2:
            continue
        each = replace(corpus.take(rest), label=np.arange(len(rest)), labels=len(rest))
        lengths = drift.lengths(each.vectors).astype(np.float32)
        order = np.argsort(drift.to_labels(corpus.take(mine).vectors, each, lengths), axis=1)
        same = corpus.label[rest][order[:, :10]] == corpus.label[mine[0]]
        for count, values in at.items():
            values.extend(same[:, :count].mean(axis=1).tolist())
    said = ", ".join(f"{np.mean(values):.3f}" for values in at.values())
    print(f"| retrieval: precision at 1, 5, 10 | {said} |\n")


def held_out(states: dict[tuple[str, str], Counts], sessions: list[str]) -> None:
    """Train on one session, two, ...; judge whole recordings of the last one."""
    print("| trained on | documents right: nearest by drift | cosine | SVM | whole recordings |")
    print("|---:|---:|---:|---:|---:|")
    last = sessions[-1]
    for count in range(1, len(sessions)):
        train = {k: v for k, v in states.items() if k[0] in sessions[:count]}
        test = {k: v for k, v in states.items() if k[0] == last and k[1] in {x[1] for x in train}}
        known = make_library(entries_of(train))
        assert known is not None
        svm = fit_svm(known.calibration.corpus)
        plain = calibrate(known.calibration.corpus).corpus
        right = {"drift": 0, "cosine": 0, "svm": 0}
        total = whole = recordings = 0
        store = Store(Path("x.known"), entries_of(train))
        for (_, label), counts in test.items():
            vectors, rows = make_vectors(counts, known.terms)
            vectors = vectors[rows]
            if not len(rows) or label not in known.labels:
                continue
            truth = known.labels.index(label)
            labels = len(known.labels)
            near = np.argmin(known.calibration.to_labels(vectors), axis=1)
            right["drift"] += int((near == truth).sum())
            cosine = 1 - (vectors @ plain.vectors.T).toarray()
            near = np.argmin(mean_of_nearest(cosine, plain.label, labels), axis=1)
            right["cosine"] += int((near == truth).sum())
            right["svm"] += int((svm.predict(vectors.toarray()) == truth).sum())
            total += len(rows)
            recordings += 1
            answer = search_states(store, counts, level=0.01)
            whole += bool(answer.matches) and label in answer.matches[0].labels
        figures = " | ".join(f"{right[name] / total:.4f}" for name in right)
        print(f"| {count} | {figures} | {whole} of {recordings} |")
    print()


def groups(states: dict[tuple[str, str], Counts], labels: list[str]) -> None:
    """Purity of groups of documents, for K from the number of labels on, and by their number."""
    corpus = corpus_of(states, labels, "hellinger")
    print("| groups | K | purity | adjusted Rand |")
    print("|---|---:|---:|---:|")
    several = sorted({int(k) for k in (2, 5, 10, len(labels), 1.25 * len(labels))})
    for method, ks in (("k-means", several), ("ward", several[-2:]), ("single", several[-2:-1]),
                       ("optics", [0])):  # fmt: skip
        for k in ks:
            found = group(corpus.vectors, method, k)
            said = quality(found, corpus.label)
            print(f"| {method} | {k or len(np.unique(found))} | {said} |")
    for each in (5, 10, 20):
        rows = np.concatenate(
            [np.flatnonzero(corpus.label == one)[:each] for one in range(corpus.labels)]
        )
        some = corpus.take(rows)
        found = group(some.vectors, "k-means", len(labels))
        said = quality(found, some.label)
        print(f"| k-means, {each} documents a label | {len(labels)} | {said} |")
    print()


def quality(found: np.ndarray, label: np.ndarray) -> str:
    """Return purity and adjusted Rand index."""
    return f"{purity(found, label):.3f} | {adjusted_rand(found, label):.3f}"


def incidents(read: dict[tuple[str, str], Counts]) -> None:
    """A fault looked up among other workloads in other sessions."""
    pairs = {}
    for (session, label), counts in read.items():
        work, _, fault = label.partition("+")
        if fault and (session, work) in read:
            pairs[session, work, fault] = (counts, read[session, work])
    print("| fault, on a workload and in a session never seen with it | right |")
    print("|---|---:|")
    right: dict[str, list[bool]] = {}
    for (session, work, fault), (sample, normal) in pairs.items():
        entries = tuple(
            replace(make_entry(k[2], v[0], normal=v[1]), name="/".join(k), digest="/".join(k))
            for k, v in pairs.items()
            if k[0] != session and k[1] != work
        )
        answer = search_incident(
            Store(Path("x.known"), entries), causes={}, sample=sample, normal=normal
        )
        right.setdefault(fault, []).append(
            bool(answer.matches) and answer.matches[0].label == fault
        )
    for fault, found in sorted(right.items()):
        print(f"| {fault} | {sum(found)} of {len(found)} |")
    found = [one for each in right.values() for one in each]
    print(f"| all | {sum(found)} of {len(found)} |")


if __name__ == "__main__":
    main()
