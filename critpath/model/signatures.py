"""Counts of what the kernel did, and signatures made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from critpath.documents.known import EntryKind
from critpath.model.table import F64, I32, I64, Bool, Column, Table, freeze_columns

COUNTS_FORMAT: Final = "critpath/counts/1"
MACHINE_SCOPE: Final = "machine"  # what everything on the machine did
# Terms that the kernel counts by itself for a control group: amounts of other units (ms, kB),
# no hits of events, so that they are part of no weight but `rate`.
FREE: Final = "cg:"


def is_free(term: str) -> bool:
    """Tell whether a term is what the kernel counts by itself."""
    return term.startswith(FREE)


# What a reader accepts, of files that others wrote.
MOST_TERMS: Final = 4_096  # technical: of an entry of a store
LONGEST_TERM: Final = 256  # technical: letters
MOST_SCOPES: Final = 64  # technical
MOST_COUNT: Final = 2**63 - 1  # technical


@dataclass(frozen=True, eq=False, repr=False)
class Counts(Table):
    """How often what happened, in documents: intervals of time, or executions.

    A row per document and term that occurs in it, in order of document, then term.

    Attributes
    ----------
    vocabulary : tuple of str
        Terms that could have been counted, sorted, each once: what is none of them was not
        looked at, which is something else than a count of 0.
    scopes : tuple of str
        Whose doing is counted: ``machine``, ``command``, or a control group's path.
    begin, end : int64 [documents]
        ns of the recording's clock.
    scope : int32 [documents]
        Code into ``scopes``.  Documents of several scopes may be of the same time.
    lossy : bool [documents]
        Something was lost meanwhile: the counts are too small, and no answer rests on them.
    document : int32 [rows]
        Ascending.
    term : int32 [rows]
        Code into ``vocabulary``, ascending within a document.
    count : int64 [rows]
        Above 0.
    interval : int
        Nominal length of a document (ns), 0 where documents are executions.
    source : str
        How it was counted: ``bpf``, ``perf``, ``free``, ``trace``.
    executions : tuple of str
        Id of every document's execution; empty where documents are intervals.
    """

    vocabulary: tuple[str, ...]
    scopes: tuple[str, ...]
    begin: I64
    end: I64
    scope: I32
    lossy: Bool
    document: I32
    term: I32
    count: I64
    interval: int = 0
    source: str = ""
    executions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        freeze_columns(self, len(self.begin), "begin", "end", "scope", "lossy")
        freeze_columns(self, len(self.count), "document", "term", "count")
        place = self.document.astype(np.int64) * max(1, len(self.vocabulary)) + self.term
        if (np.diff(place) <= 0).any():
            raise ValueError("Counts: rows are not in order of document and term, each once")

    def __len__(self) -> int:
        return len(self.begin)

    @cached_property
    def start(self) -> I64:
        """First row of every document, and behind the last: int64 [documents + 1]."""
        return np.searchsorted(self.document, np.arange(len(self) + 1)).astype(np.int64)

    @cached_property
    def free(self) -> Bool:
        """Which terms of the vocabulary are no hits."""
        return np.array([*map(is_free, self.vocabulary)], np.bool_)

    @cached_property
    def hits(self) -> I64:
        """Hits of every document together: int64 [documents]."""
        counted = ~self.free[self.term]
        total = np.zeros(len(self), np.int64)
        np.add.at(total, self.document[counted], self.count[counted])
        return total

    def take(self, documents: Any) -> Counts:
        """Return some documents, in the order given: indices, or a bool per document."""
        kept = np.asarray(documents)
        kept = np.flatnonzero(kept) if kept.dtype == np.bool_ else kept.astype(np.int64)
        rows, document = take_rows(self.start, kept)
        return Counts(
            *(self.vocabulary, self.scopes, self.begin[kept], self.end[kept]),
            *(self.scope[kept], self.lossy[kept], document),
            term=self.term[rows],
            count=self.count[rows],
            interval=self.interval,
            source=self.source,
            executions=tuple(self.executions[at] for at in kept) if self.executions else (),
        )

    def of_scope(self, name: str) -> Counts:
        """Return the documents of one scope, which is their only one."""
        kept = self.take(np.array([self.scopes[at] == name for at in self.scope], np.bool_))
        return replace(kept, scopes=(name,), scope=np.zeros(len(kept), np.int32))

    def table_columns(self) -> Mapping[str, Column]:
        """Return a row per document and term that occurs in it."""
        return _rows_of_terms(self, {}, {"count": Column(self.count)})


@dataclass(frozen=True, eq=False, repr=False)
class Signatures(Table):
    """Documents as weighted vectors over the terms that could have been counted.

    Rows as scipy's compressed ones have them: those of document d are
    ``start[d]:start[d + 1]``, with ``term`` for ``indices`` and ``weight`` for ``data``.

    Attributes
    ----------
    vocabulary, scopes : tuple of str
        As of `Counts`.
    begin, end : int64 [documents]
    scope : int32 [documents]
    lossy, quiet : bool [documents]
        Not judged: what was lost meanwhile, and what did too little to tell what it is.
    hits : int64 [documents]
        What the vector was made of.
    start : int64 [documents + 1]
    term : int32 [rows]
    weight : float64 [rows]
    weights : str
        ``hellinger``, ``tf``, ``tfidf``, ``tfidf-smooth`` or ``rate``; all but the last have
        vectors of length 1, or 0 where there was no hit.
    interval : int
    source : str
    executions : tuple of str
        As of `Counts`.
    """

    vocabulary: tuple[str, ...]
    scopes: tuple[str, ...]
    begin: I64
    end: I64
    scope: I32
    lossy: Bool
    quiet: Bool
    hits: I64
    start: I64
    term: I32
    weight: F64
    weights: str
    interval: int = 0
    source: str = ""
    executions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        freeze_columns(self, len(self.begin), "begin", "end", "hits", "scope", "lossy", "quiet")
        freeze_columns(self, len(self.begin) + 1, "start")
        freeze_columns(self, len(self.weight), "term", "weight")

    def __len__(self) -> int:
        return len(self.begin)

    @property
    def document(self) -> I32:
        """Document of every row: int32 [rows]."""
        return np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self.start))

    def take(self, documents: Any) -> Signatures:
        """Return some documents, in the order given: indices, or a bool per document."""
        kept = np.asarray(documents)
        kept = np.flatnonzero(kept) if kept.dtype == np.bool_ else kept.astype(np.int64)
        rows, _ = take_rows(self.start, kept)
        start: I64 = np.append(np.int64(0), np.cumsum(np.diff(self.start)[kept]))
        return Signatures(
            *(self.vocabulary, self.scopes, self.begin[kept], self.end[kept]),
            *(self.scope[kept], self.lossy[kept], self.quiet[kept], self.hits[kept]),
            start=start,
            term=self.term[rows],
            weight=self.weight[rows],
            weights=self.weights,
            interval=self.interval,
            source=self.source,
            executions=tuple(self.executions[at] for at in kept) if self.executions else (),
        )

    def table_columns(self) -> Mapping[str, Column]:
        """Return a row per document and term that occurs in it."""
        quiet = {"quiet": Column(self.quiet[self.document])}
        return _rows_of_terms(self, quiet, {"weight": Column(self.weight)})


def _rows_of_terms(
    table: Counts | Signatures, judged: Mapping[str, Column], figure: Mapping[str, Column]
) -> dict[str, Column]:
    """Return what both tables have of a row, and what one alone has of its document and term."""
    at = table.document
    return {
        "document": Column(at),
        "scope": Column(table.scope[at], table.scopes or ("",)),
        "begin_ns": Column(table.begin[at]),
        "end_ns": Column(table.end[at]),
        "lossy": Column(table.lossy[at]),
        **judged,
        "term": Column(table.term, table.vocabulary or ("",)),
        **figure,
        **({"execution": Column(at, table.executions)} if table.executions else {}),
    }


@dataclass(frozen=True, eq=False)
class Entry:
    """One session of a label: what a store keeps of a recording.

    Attributes
    ----------
    label, note, link : str
        What it is called, and what people wrote about it.
    kind : str
        ``state``: what ran; ``incident``: how a system differed from its own normal.
    recorded : str
        When, UTC, as ``2026-05-03T14:02:11Z``.
    counts : Counts
        Documents of one scope, at most `MOST_DOCUMENTS`.
    left_out : int
        Documents of the session that are not kept.
    host : mapping of str to str
        Kernel, machine, processors; empty where the store is anonymous.
    normal : Counts or None
        Of an incident, documents of the normal side.
    causes : mapping of str to float
        Of an incident that `critpath compare` found: what its findings cost, by term (ns).
    name : str
        Its file in the store, ``LABEL/NAME.json``; "" where it is in none.
    digest : str
        Hash of what the file has.
    """

    label: str
    kind: EntryKind
    recorded: str
    counts: Counts
    note: str = ""
    link: str = ""
    left_out: int = 0
    host: Mapping[str, str] = field(default_factory=dict)
    normal: Counts | None = None
    causes: Mapping[str, float] = field(default_factory=dict)
    name: str = ""
    digest: str = ""


MOST_DOCUMENTS: Final = 64  # technical: of an entry's side


def take_rows(start: I64, documents: I64) -> tuple[I64, I32]:
    """Return the rows of some documents, one after the other, and each row's new document."""
    length = np.diff(start)[documents]
    before = np.cumsum(length) - length
    new = np.repeat(np.arange(len(documents), dtype=np.int32), length)
    rows: I64 = np.arange(int(length.sum()), dtype=np.int64) + (start[documents] - before)[new]
    return rows, new
