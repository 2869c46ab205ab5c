"""What was seen before: the part of a comparison, and what ``critpath known --json`` writes."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from critpath.documents.base import Number, Part, doc

KNOWN_FORMAT: Final = "critpath/known-answer/1"
CHECK_FORMAT: Final = "critpath/known-check/1"

# What ran, or how a system differed from its own normal.
EntryKind = Literal["state", "incident"]
Compared = Literal["counts", "causes"]
KnownAnswer = Literal["known", "unknown", "inconclusive", "not comparable"]


class MatchedTermEntry(Part):
    """A term that makes two things alike."""

    term: Annotated[str, doc("an event, a system call, or a state of a thread")]
    here: Annotated[
        Number, doc("times a second; of incidents by how much more; of causes the ns it costs")
    ]
    there: Annotated[Number, doc("the same of what is known")]
    part: Annotated[Number, doc("what it adds to the similarity; of incidents what both share")]


class MatchEntry(Part):
    """A label beside what was asked about."""

    label: Annotated[str, doc("what it is called in the store")]
    labels: Annotated[list[str], doc("with those that the store cannot tell from it")]
    kind: Annotated[EntryKind, doc("what ran, or how a system changed")]
    part: Annotated[Compared, doc("what was compared")]
    similarity: Annotated[Number, doc("cosine to the nearest documents, at most 1")]
    distance: Annotated[Number, doc("in units of how the same thing differs from day to day")]
    sessions: Annotated[int, doc("recordings of it in the store")]
    recorded: Annotated[str, doc("when the latest was, UTC")]
    note: Annotated[str, doc("what people wrote about it")]
    link: Annotated[str, doc("where they wrote more")]
    terms: Annotated[list[MatchedTermEntry], doc("what makes them alike, the most first")]


class StretchEntry(Part):
    """Consecutive intervals with one answer."""

    begin: Annotated[int, doc("ns of the recording's clock")]
    end: Annotated[int, doc("ns of the recording's clock")]
    label: Annotated[str, doc("the label; '' where it is like nothing known")]
    similarity: Annotated[Number, doc("to that label")]


class KnownEntry(Part):
    """Whether a store knows something like this."""

    store: Annotated[str, doc("as it was named")]
    digest: Annotated[str, doc("hash of the entries that the answer rests on")]
    entries: Annotated[int, doc("sessions in the store")]
    answer: Annotated[KnownAnswer, doc("the answer")]
    reasons: Annotated[list[str], doc("why it is no surer, in sentences")]
    matches: Annotated[list[MatchEntry], doc("the nearest label first")]
    p: Annotated[
        Number | None,
        doc("how often the nearest label is as strange across sessions; null: not calibrated"),
    ]
    level: Annotated[Number, doc("at most this p is like nothing known")]
    calibrated: Annotated[bool, doc("sessions enough for p to mean what it says")]
    documents: Annotated[int, doc("intervals or runs that were asked about")]
    quiet: Annotated[int, doc("of these, in which too little happened")]
    lossy: Annotated[int, doc("of these, in which something was lost")]
    agreement: Annotated[Number, doc("share of the others that are nearest to the first match")]
    timeline: Annotated[list[StretchEntry], doc("where less than four in five agree")]
    left_out: Annotated[list[str], doc("entries that could not be compared, in sentences")]


class KnownDocument(Part):
    """What critpath known search --json writes, and known watch --json for each interval."""

    format: Annotated[Literal["critpath/known-answer/1"], doc("name and version of this format")]
    version: Annotated[str, doc("version of critpath that wrote it")]
    source: Annotated[str, doc("what was asked about, as it was named; of watch the scope")]
    known: Annotated[KnownEntry, doc("the answer")]
    time: Annotated[str, doc("of watch: when the interval was looked up, UTC; else ''")] = ""


class CheckedLabel(Part):
    """A label, its sessions judged by each other."""

    label: Annotated[str, doc("what it is called")]
    sessions: Annotated[int, doc("recordings of it")]
    documents: Annotated[int, doc("intervals or runs of these")]
    quiet: Annotated[int, doc("in which too little happened")]
    judged: Annotated[int, doc("that another session of the label could judge")]
    right: Annotated[int, doc("of these, nearest to their own label")]
    unknown: Annotated[int, doc("of these, called like nothing known")]
    nearest: Annotated[dict[str, int], doc("how many were nearest to which label")]


class JoinEntry(Part):
    """Two labels, or groups of labels, that are more alike than others."""

    one: Annotated[int, doc("a label's place in `labels`, or behind these an earlier join's")]
    other: Annotated[int, doc("the same of the other")]
    similarity: Annotated[Number, doc("mean cosine of the labels of both, at most 1")]


class CheckDocument(Part):
    """What critpath known check --json writes."""

    format: Annotated[Literal["critpath/known-check/1"], doc("name and version of this format")]
    version: Annotated[str, doc("version of critpath that wrote it")]
    store: Annotated[str, doc("as it was named")]
    digest: Annotated[str, doc("hash of its entries")]
    labels: Annotated[list[CheckedLabel], doc("in order of their names")]
    strangers: Annotated[int, doc("documents whose label and twins were left out in turn")]
    recognised: Annotated[int, doc("of these, called like nothing known")]
    level: Annotated[Number, doc("at which something is like nothing known")]
    calibrated: Annotated[bool, doc("sessions enough were judged for that level to hold")]
    twins: Annotated[list[list[str]], doc("labels that cannot be told apart")]
    doubtful: Annotated[list[str], doc("entries nearer to another label than to their own")]
    notes: Annotated[list[str], doc("what was left out, in sentences")]
    judged_sessions: Annotated[int, doc("that another of their label could judge")] = 0
    needed_sessions: Annotated[int, doc("of these, for the level to hold")] = 0
    tree: Annotated[list[JoinEntry], doc("which labels are alike, the most alike first")] = []
    groups: Annotated[list[list[str]], doc("labels that are together where the tree is cut")] = []
