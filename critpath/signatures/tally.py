"""Counts the events of a trace by document and term, chunk after chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from critpath.model import I32, I64, Bool, EventChunk, EventClass, Kind
from critpath.model.signatures import Counts
from critpath.signatures._classes import count_classes
from critpath.signatures.terms import (
    INTERRUPT,
    OTHER,
    SOFTIRQ,
    SOFTIRQS,
    event_term,
    qualified_term,
)

# technical: terms of a trace at most; a document's rows begin at multiples of it
_ROOM: Final = 1 << 14
# Events by which threads come into a scope, and the field that names the thread.
ATTACH: Final = ("cgroup_attach_task", "cgroup:cgroup_attach_task", "critpath_statedump_cgroup")
_NOBODY: Final = -1  # technical
# Classes whose terms need a field of the event, the first that is decoded.
_QUALIFIED: Final = {-2: INTERRUPT, -3: SOFTIRQ}
_QUALIFYING: Final = {Kind.IRQ_ENTRY: -2, Kind.SOFTIRQ_ENTRY: -3}
_FEW: Final = 64  # technical: windows that a chunk is cut into
_PENDING: Final = 1 << 22  # technical


@dataclass
class Owners:
    """Whose events are counted: threads by what brings them in, their descendants with them.

    Attributes
    ----------
    groups : tuple of str
        Control groups whose threads belong to document 0.
    programs : mapping of int to sequence of (int, int, int)
        By the pid that executes one: begin and end of the time, and the document.
    threads : mapping of int to sequence of (int, int, int)
        By tid, without descendants: the same.
    """

    groups: tuple[str, ...] = ()
    programs: Mapping[int, Sequence[tuple[int, int, int]]] = field(default_factory=dict)
    threads: Mapping[int, Sequence[tuple[int, int, int]]] = field(default_factory=dict)


class Tally:
    """Hits by document and term.

    Parameters
    ----------
    begin, end : int64 [documents]
        Windows; ascending and apart from one another, unless `apart` is False.
    owners : Owners, optional
        Whose events are counted; None for all.
    apart : bool
        Documents are windows of time.  If not, an event's document is its owner's.
    """

    def __init__(
        self, begin: I64, end: I64, owners: Owners | None = None, *, apart: bool = True
    ) -> None:
        self._begin, self._end = begin, end
        self._owners, self._apart = owners, apart
        self._terms: dict[str, int] = {}
        self._of_class = np.zeros(0, np.int64)
        self._of_values: dict[tuple[int, bool], dict[int, int]] = {}
        self._current: dict[tuple[int, int], int] = {}
        self._members: dict[tuple[int, int], int] = {}
        self._roots: set[int] = set()
        self._keys: list[I64] = []
        self._counts: list[I64] = []
        self._pending = 0

    def declare(self, names: Iterable[str]) -> None:
        """Note that events of these names could have been counted, whether they happened or not."""
        for name in names:
            term = event_term(name)
            if term == SOFTIRQ:
                for each in (*SOFTIRQS, OTHER):
                    self._term(SOFTIRQ + each)
            elif term and term != INTERRUPT:
                self._term(term)

    def add(
        self, chunk: EventChunk, classes: Sequence[EventClass], text: Callable[[int], str]
    ) -> None:
        """Count a chunk."""
        self._learn(classes)
        owner = None if self._owners is None else self._find_owners(chunk, classes, text)
        time = chunk.timestamp
        if self._apart:
            first, last = (np.searchsorted(self._begin, time[[0, -1]], "right") - 1).tolist()
            if last - first < _FEW:
                for document in range(max(first, 0), last + 1):
                    bounds = (self._begin[document], self._end[document])
                    rows = slice(*np.searchsorted(time, bounds).tolist())
                    kept = None if owner is None else owner[rows] >= 0
                    self._add_slice(document, chunk, rows, kept, classes, text)
                return
            document_of = np.searchsorted(self._begin, time, "right") - 1
            counted = document_of >= 0 if owner is None else (document_of >= 0) & (owner >= 0)
        else:
            document_of = np.zeros(len(chunk), np.int64) if owner is None else owner
            counted = document_of >= 0
        at = np.maximum(document_of, 0)
        counted &= (time >= self._begin[at]) & (time < self._end[at])
        # By document, as each is a slice then.
        order = np.flatnonzero(counted)
        if not len(order):
            return
        order = order[np.argsort(document_of[order], kind="stable")]
        found, start = np.unique(document_of[order], return_index=True)
        ends = np.append(start[1:], len(order))
        for document, low, high in zip(found.tolist(), start.tolist(), ends.tolist(), strict=True):
            self._add_slice(document, chunk, order[low:high], None, classes, text)

    def _add_slice(
        self,
        document: int,
        chunk: EventChunk,
        rows: slice | I64,
        kept: Bool | None,
        classes: Sequence[EventClass],
        text: Callable[[int], str],
    ) -> None:
        """Count some events of a chunk, or those of them that are kept, for one document."""
        of = chunk.event_class[rows]
        of = of if kept is None else of[kept]
        count = np.zeros(len(classes), np.int64)
        term = self._of_class
        special = term < _NOBODY
        places = np.empty(len(of), np.int64)
        few = places[: count_classes(of, special.view(np.uint8), count, places)]
        plain = np.flatnonzero((count > 0) & (term >= 0))
        self._note(document, term[plain], count[plain])
        if not len(few):
            return
        offset = chunk.offset[rows]
        offset = offset if kept is None else offset[kept]
        value_of, class_of = chunk.values[offset[few]], of[few]
        for code in np.flatnonzero((count > 0) & special).tolist():
            distinct, each = np.unique(value_of[class_of == code], return_counts=True)
            named = classes[code].types[0] == "str"
            of_value = self._of_values.setdefault((int(term[code]), named), {})
            for value in distinct.tolist():
                if value not in of_value:
                    qualifier = text(value) if named else value
                    kind = _QUALIFIED[int(term[code])]
                    of_value[value] = self._term(qualified_term(kind, qualifier))
            codes = [of_value[value] for value in distinct.tolist()]
            self._note(document, np.array(codes, np.int64), each)

    def _note(self, document: int, term: I64, count: I64) -> None:
        self._keys.append(document * _ROOM + term)
        self._counts.append(count)
        self._pending += len(term)
        if self._pending > _PENDING:
            self._settle()

    def _settle(self) -> tuple[I64, I64]:
        """Add up what was counted of the same document and term."""
        keys = np.concatenate([np.zeros(0, np.int64), *self._keys])
        counts = np.concatenate([np.zeros(0, np.int64), *self._counts])
        distinct, place = np.unique(keys, return_inverse=True)
        total = np.zeros(len(distinct), np.int64)
        np.add.at(total, place, counts)
        self._keys, self._counts, self._pending = [distinct], [total], len(distinct)
        return distinct, total

    def counts(self, scope: str, lossy: Bool, *, interval: int = 0) -> Counts:
        """Return what was counted.

        Parameters
        ----------
        scope : str
        lossy : bool [documents]
        interval : int
        """
        keys, count = self._settle()
        names = sorted(self._terms)
        place = np.zeros(len(names), np.int32)
        for rank, name in enumerate(names):
            place[self._terms[name]] = rank
        document, term = keys // _ROOM, place[keys % _ROOM] if names else keys
        order = np.lexsort((term, document))
        return Counts(
            vocabulary=tuple(names),
            scopes=(scope,),
            begin=self._begin,
            end=self._end,
            scope=np.zeros(len(self._begin), np.int32),
            lossy=lossy,
            document=document[order].astype(np.int32),
            term=term[order].astype(np.int32),
            count=count[order],
            interval=interval,
            source="trace",
        )

    def _term(self, term: str) -> int:
        code = self._terms.setdefault(term, len(self._terms))
        if code >= _ROOM:  # names of handlers could be as many as there are events
            del self._terms[term]
            return self._terms.setdefault(term, 0)
        return code

    def _learn(self, classes: Sequence[EventClass]) -> None:
        """Find the terms of classes that are new."""
        if len(classes) == len(self._of_class):
            return
        new = []
        for each in classes[len(self._of_class) :]:
            term = event_term(each.name, each.domain)
            wanted = _QUALIFYING.get(each.kind)
            if term in {INTERRUPT, SOFTIRQ} and wanted and _QUALIFIED[wanted] == term:
                new.append(wanted)
            else:
                new.append(self._term(term) if term not in {"", INTERRUPT, SOFTIRQ} else _NOBODY)
        self._of_class = np.concatenate([self._of_class, np.array(new, np.int64)])

    def _find_owners(
        self, chunk: EventChunk, classes: Sequence[EventClass], text: Callable[[int], str]
    ) -> I64:
        """Return the document that each event's thread belongs to, -1 for none."""
        host = np.array([each.host for each in classes], np.int64)[chunk.event_class]
        tid = self._find_threads(chunk, classes, host)
        thread = host << 32 | (tid & 0xFFFFFFFF)
        distinct, place = np.unique(thread, return_inverse=True)
        known = np.array(
            [self._members.get(_split(each), _NOBODY) for each in distinct.tolist()], np.int64
        )
        owner = known[place]
        rows = np.arange(len(chunk))
        for row, who, document in self._changes(chunk, classes, text):
            self._members[who] = document
            mine = (thread == (who[0] << 32 | who[1] & 0xFFFFFFFF)) & (rows > row)
            owner[mine] = document
        owners = self._owners
        for each, windows in owners.threads.items() if owners else ():
            mine = np.flatnonzero(tid == each)
            for begin, end, document in windows if len(mine) else ():
                time = chunk.timestamp[mine]
                owner[mine[(time >= begin) & (time < end)]] = document
        return owner

    def _find_threads(self, chunk: EventChunk, classes: Sequence[EventClass], host: I64) -> I64:
        """Return who ran where each event happened: a switch is the thread's that leaves.

        Some kernels leave switches out: then the recorder says who is current.
        """
        switching = np.array([each.kind in {Kind.SWITCH, Kind.CURRENT} for each in classes])[
            chunk.event_class
        ]
        tid = np.full(len(chunk), _NOBODY, np.int64)
        cpus = host << 16 | chunk.cpu.astype(np.int64)
        for cpu in np.unique(cpus).tolist():
            rows = np.flatnonzero(cpus == cpu)
            switches = switching[rows]
            next_tid = chunk.values[chunk.offset[rows[switches]]]
            before = np.cumsum(switches) - switches
            key = (cpu >> 16, cpu & 0xFFFF)
            all_of = np.append(self._current.get(key, _NOBODY), next_tid)
            tid[rows] = all_of[before]
            self._current[key] = int(all_of[-1])
        return tid

    def _changes(
        self, chunk: EventChunk, classes: Sequence[EventClass], text: Callable[[int], str]
    ) -> Iterable[tuple[int, tuple[int, int], int]]:
        """Yield who belongs to another document from a row on."""
        changing = np.array(
            [each.kind in {Kind.FORK, Kind.EXEC} or each.name in ATTACH for each in classes]
        )
        owners = self._owners or Owners()
        for row in np.flatnonzero(changing[chunk.event_class]).tolist():
            each = classes[chunk.event_class[row]]
            first = int(chunk.offset[row])
            time = int(chunk.timestamp[row])
            if each.kind is Kind.FORK:
                parent, child = chunk.values[first : first + 2].tolist()
                document = self._members.get((each.host, parent), _NOBODY)
                if self._members.get((each.host, child), _NOBODY) != document:
                    yield row, (each.host, child), document
            elif each.kind is Kind.EXEC:
                pid = int(chunk.values[first])
                for begin, end, document in owners.programs.get(pid, ()):
                    if begin <= time < end:
                        yield row, (each.host, pid), document
            elif owners.groups:
                pid, path, root = chunk.values[first : first + 3].tolist()
                inside = any(_is_below(text(path), group) for group in owners.groups)
                self._roots |= {root} if inside else set()
                # Of several hierarchies only one has the group.
                if inside or root in self._roots:
                    yield row, (each.host, pid), 0 if inside else _NOBODY


def _is_below(path: str, group: str) -> bool:
    """Return whether a control group is one, by its path or its name, or below it."""
    if not group.startswith("/"):
        return group in path.split("/")
    return path == group or path.startswith(f"{group.rstrip('/')}/")


def _split(thread: int) -> tuple[int, int]:
    tid = thread & 0xFFFFFFFF
    return thread >> 32, tid - (1 << 32) if tid >> 31 else tid


def add_up(counts: Counts, document: I64, begin: I64, end: I64) -> Counts:
    """Return documents that are sums of others.

    Parameters
    ----------
    counts : Counts
        Of one scope.
    document : int64 [documents of counts]
        Which one each is a part of; -1 for none.
    begin, end : int64 [documents]
    """
    lossy = np.zeros(len(begin), np.bool_)
    part = document >= 0
    np.logical_or.at(lossy, document[part], counts.lossy[part])
    of_row = document[counts.document]
    kept = of_row >= 0
    terms = max(1, len(counts.vocabulary))
    key = of_row[kept] * terms + counts.term[kept]
    distinct, place = np.unique(key, return_inverse=True)
    total = np.zeros(len(distinct), np.int64)
    np.add.at(total, place, counts.count[kept])
    scope: I32 = np.zeros(len(begin), np.int32)
    return Counts(
        vocabulary=counts.vocabulary,
        scopes=counts.scopes[:1],
        begin=begin,
        end=end,
        scope=scope,
        lossy=lossy,
        document=(distinct // terms).astype(np.int32),
        term=(distinct % terms).astype(np.int32),
        count=total,
        source=counts.source,
    )
