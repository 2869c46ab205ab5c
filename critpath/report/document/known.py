"""Answers of a store as documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from critpath.documents.base import number
from critpath.documents.known import (
    CHECK_FORMAT,
    KNOWN_FORMAT,
    CheckDocument,
    CheckedLabel,
    JoinEntry,
    KnownDocument,
    KnownEntry,
    MatchedTermEntry,
    MatchEntry,
    StretchEntry,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from critpath.model.signatures import Answer, Check, Match


def known_entry(answer: Answer, store: str, digest: str, entries: int) -> KnownEntry:
    """Return an answer as a part of a document."""
    states = any(match.kind == "state" for match in answer.matches)
    return KnownEntry(
        store=store,
        digest=digest,
        entries=entries,
        answer=answer.status,
        reasons=list(answer.reasons),
        matches=[_match(match) for match in answer.matches],
        p=number(answer.p_value) if states or answer.calibrated else None,
        level=answer.level,
        calibrated=answer.calibrated,
        documents=answer.documents,
        quiet=answer.quiet,
        lossy=answer.lossy,
        agreement=answer.agreement,
        timeline=[
            StretchEntry(begin=s.begin, end=s.end, label=s.label, similarity=s.similarity)
            for s in answer.timeline
        ],
        left_out=list(answer.left_out),
    )


def _match(match: Match) -> MatchEntry:
    return MatchEntry(
        label=match.label,
        labels=list(match.labels),
        kind=match.kind,
        part=match.part,
        similarity=match.similarity,
        distance=match.distance,
        sessions=match.sessions,
        recorded=match.recorded,
        note=match.note,
        link=match.link,
        terms=[
            MatchedTermEntry(term=t.term, here=t.here, there=t.there, part=t.part)
            for t in match.terms
        ],
    )


def known_document(source: str, entry: KnownEntry, version: str, time: str = "") -> KnownDocument:
    """Return what `critpath known search --json` writes, and `watch` for an interval."""
    return KnownDocument(
        format=KNOWN_FORMAT, version=version, source=source, time=time, known=entry
    )


def check_document(
    check: Check, store: str, digest: str, notes: Sequence[str], version: str
) -> CheckDocument:
    """Return what `critpath known check --json` writes."""
    labels = []
    for at, label in enumerate(check.labels):
        row = check.nearest[at].tolist()
        labels.append(
            CheckedLabel(
                label=label,
                sessions=int(check.sessions[at]),
                documents=int(check.documents[at]),
                quiet=int(check.quiet[at]),
                judged=int(check.judged[at]),
                right=row[at],
                unknown=int(check.unknown[at]),
                nearest={check.labels[i]: n for i, n in enumerate(row) if n},
            )
        )
    return CheckDocument(
        format=CHECK_FORMAT,
        version=version,
        store=store,
        digest=digest,
        labels=labels,
        strangers=check.strangers,
        recognised=check.recognised,
        level=check.level,
        calibrated=check.calibrated,
        judged_sessions=check.judged_sessions,
        needed_sessions=check.needed_sessions,
        twins=[list(of) for of in check.twins],
        doubtful=list(check.doubtful),
        notes=list(notes),
        tree=[JoinEntry(one=a, other=b, similarity=s) for a, b, s in check.tree.joins],
        groups=[[check.labels[i] for i in group] for group in check.tree.groups],
    )
