"""Sets of critical paths on their way to another program's format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from critpath.documents import (
    AlignedSegment,
    ComparisonDocument,
    ExecutionEntry,
    FindingEntry,
    SetEntry,
)
from critpath.errors import UnreadableError
from critpath.model import I64, CriticalPaths, Executions, PathSet, RequestFacts, State, Timelines
from critpath.model.details import read_details
from critpath.model.requests import FACT_NUMBERS, FACT_TEXTS
from critpath.schema.environment import Environment
from critpath.units import safe_text

UNSEEN = "unknown thread"


class Exported(Struct, frozen=True, eq=False):
    """One set of executions to export.

    Attributes
    ----------
    name : str
        What the set is called: the source as the user named it.
    paths : PathSet
    clusters : tuple of (int or None)
        The type of every execution, where a comparison found it; else empty.
    findings : tuple of tuple of FindingEntry
        Of every execution, the findings of a comparison's document; else empty.
    timelines : Timelines, optional
        What all threads did, where the recording is at hand and small enough.
    """

    name: str
    paths: PathSet
    clusters: tuple[int | None, ...] = ()
    findings: tuple[tuple[FindingEntry, ...], ...] = ()
    timelines: Timelines | None = None

    def cluster(self, index: int) -> int | None:
        """Return the type of an execution, None where it is not known."""
        return self.clusters[index] if self.clusters else None


def thread_name(comm: str, tid: int) -> str:
    """Return a thread as reports name it, safe to show."""
    if tid < 0:
        return safe_text(comm) or UNSEEN
    return f"{safe_text(comm)} {tid}".lstrip()


def execution_name(executions: Executions, index: int) -> str:
    """Return an execution as reports name it, safe to show: id, label, thread."""
    label = executions.label[index]
    shown = safe_text(executions.id[index]) + (f" ({safe_text(label)})" if label else "")
    thread = thread_name(executions.comm[index], int(executions.tid[index]))
    # An execution without a name is called TID@BEGIN.
    return shown if not executions.comm[index] else f"{shown}, {thread}"


def read_aligned_executions(
    document: ComparisonDocument, name: str, chosen: Sequence[str]
) -> Exported:
    """Return what a saved comparison knows segment by segment: its anomalous executions.

    Parameters
    ----------
    document : dict
        Of `comparison_document`, or read back from its JSON.
    name : str
        What to call the set.
    chosen : sequence of str
        Ids of the executions wanted; all if empty.

    Returns
    -------
    Exported
        With types and findings.

    Raises
    ------
    UnreadableError
        If a number in it is none that a trace can have.
    """
    try:
        return _executions_aligned(document, name, chosen)
    except (OverflowError, ValueError, KeyError, IndexError) as error:
        raise UnreadableError(
            f"{safe_text(name)}: the segments of its runs are damaged: {error}",
            "give a file that `critpath compare --json FILE` wrote",
        ) from error


def read_all_executions(
    document: ComparisonDocument, name: str
) -> tuple[PathSet, int, Sequence[int]]:
    """Return every execution of a saved comparison, those of the normal set first.

    Returns
    -------
    paths : PathSet
        Paths are empty but of those that are aligned: a comparison has no others.
    normal : int
        How many recordings are the normal set's.
    clusters : sequence of int
        Types from 1, of the sample those that they are compared with; 0 for none.

    Raises
    ------
    UnreadableError
        If a number in it is none that a trace can have.
    """
    sets = document.sets
    try:
        rows = [e for which in ("normal", "sample") for e in document.executions if e.set == which]
        segments = {one.position: one.segments for one in document.aligned}
        paths = _path_set(
            rows,
            [segments.get(e.position, []) if e.set == "sample" else [] for e in rows],
            [sets.normal, sets.sample],
        )
        known = [e.cluster for e in rows if e.set == "normal" and e.cluster is not None]
        more = max(known, default=-1) + 1
        clusters = [_common_cluster(e, more) for e in rows]
    except (OverflowError, ValueError, KeyError, IndexError) as error:
        raise UnreadableError(
            f"{safe_text(name)}: its runs are damaged: {error}",
            "give a file that `critpath compare --json FILE` wrote",
        ) from error
    return paths, len(sets.normal.sources), clusters


def _common_cluster(row: ExecutionEntry, more: int) -> int:
    """Return an execution's type among those of both sets, from 1."""
    if row.cluster is None:
        return 0
    if row.set == "normal":
        return row.cluster + 1
    return 1 + (more + row.cluster if row.pair is None else row.pair)


def _executions_aligned(document: ComparisonDocument, name: str, chosen: Sequence[str]) -> Exported:
    aligned = [one for one in document.aligned if not chosen or one.execution in chosen]
    known = {e.position: e for e in document.executions if e.set == "sample"}
    rows = [known[one.position] for one in aligned]
    paths = _path_set(rows, [one.segments for one in aligned], [document.sets.sample])
    findings = tuple(
        tuple(f for f in document.findings if f.position == one.position) for one in aligned
    )
    return Exported(name, paths, tuple(row.cluster for row in rows), findings)


def _path_set(
    rows: Sequence[ExecutionEntry],
    of_rows: Sequence[Sequence[AlignedSegment]],
    sets: Sequence[SetEntry],
) -> PathSet:
    """Return executions of one or both sets, with the segments that are known of each."""
    segments = [s for each in of_rows for s in each]
    codes: dict[str, int] = {"": 0}
    said, comm = (
        np.array([codes.setdefault(getattr(s, n), len(codes)) for s in segments], np.int32)
        for n in ("detail", "comm")
    )
    state = np.array([State[s.state] for s in segments], np.uint8)
    detail, details = read_details(state, said, tuple(codes))
    counts = [len(each) for each in of_rows]
    lossy = np.array([row.lossy for row in rows], np.bool_)
    first = {"sample": len(sets[0].sources) if len(sets) > 1 else 0, "normal": 0}
    size = {"sample": len(sets[-1].sources), "normal": len(sets[0].sources)}
    if not all(0 <= row.source < size[row.set] for row in rows):
        raise ValueError("a run is of a recording that the set has not")
    if not all(row.begin <= row.end for row in rows):
        raise ValueError("a run ends before it begins")
    sources = tuple(source for one in sets for source in one.sources)
    epochs = [pair for one in sets for pair in zip(one.sources, one.epochs, strict=False)]

    def texts(key: str) -> tuple[str, ...]:
        return tuple(getattr(row, key) for row in rows)

    def numbers(of: Sequence[ExecutionEntry] | Sequence[AlignedSegment], key: str) -> I64:
        return np.array([getattr(row, key) for row in of], np.int64)

    return PathSet(
        executions=Executions(
            id=texts("id"),
            begin=numbers(rows, "begin"),
            end=numbers(rows, "end"),
            tid=numbers(rows, "tid"),
            host=np.zeros(len(rows), np.int64),
            comm=texts("comm"),
            label=texts("label"),
            requests=_facts_of_requests(rows),
        ),
        paths=CriticalPaths(
            start=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            begin=numbers(segments, "begin"),
            end=numbers(segments, "end"),
            state=state,
            detail=detail,
            details=details,
            comm=comm,
            tid=numbers(segments, "tid"),
            host=np.array([s.host for s in segments], np.int64),
            cpu=numbers(segments, "cpu").astype(np.int32),
            lossy=np.repeat(lossy, counts),
            strings=tuple(codes),
            elsewhere_idle=numbers(segments, "elsewhere_idle"),
        ),
        session=numbers(rows, "source") + np.array([first[row.set] for row in rows], np.int64),
        sources=sources,
        specification=sets[-1].specification,
        losses=(),
        lossy=lossy,
        environment=tuple(
            Environment(clock_epoch=epoch, recording=recording)
            for recording, epoch in epochs
            if epoch
        ),
    )


def _facts_of_requests(rows: Sequence[ExecutionEntry]) -> RequestFacts | None:
    """Return what is known of requests, None where it is not known of all."""
    known = [row.request for row in rows if row.request is not None]
    if not known or len(known) < len(rows):
        return None
    texts: dict[str, Any] = {
        name: tuple(getattr(one, name) for one in known) for name in FACT_TEXTS if name != "asks"
    }
    texts["asks"] = tuple(
        json.dumps({each.service: each.times for each in one.asks}, sort_keys=True) for one in known
    )
    for name in FACT_NUMBERS:
        values = [getattr(one, name.removesuffix("_ns")) for one in known]
        texts[name] = np.array(values, np.int64)
    return RequestFacts(**texts)
