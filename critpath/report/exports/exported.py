"""Sets of critical paths on their way to another program's format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from critpath.documents import AlignedSegment, ComparisonDocument, ExecutionEntry, FindingEntry
from critpath.errors import UnreadableError
from critpath.model import I64, CriticalPaths, Executions, PathSet, State
from critpath.units import safe_text

UNSEEN = "unknown thread"


@dataclass(frozen=True, eq=False)
class Exported:
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
    """

    name: str
    paths: PathSet
    clusters: tuple[int | None, ...] = ()
    findings: tuple[tuple[FindingEntry, ...], ...] = ()

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
            f"{safe_text(name)}: the segments of its executions are damaged: {error}",
            "give a file that `critpath compare --json FILE` wrote",
        ) from error


def _executions_aligned(document: ComparisonDocument, name: str, chosen: Sequence[str]) -> Exported:
    aligned = [one for one in document.aligned if not chosen or one.execution in chosen]
    known = {e.position: e for e in document.executions if e.set == "sample"}
    rows = [known[one.position] for one in aligned]
    segments = [s for one in aligned for s in one.segments]
    codes: dict[str, int] = {"": 0}
    coded = {
        name: np.array([codes.setdefault(getattr(s, name), len(codes)) for s in segments], np.int32)
        for name in ("detail", "comm")
    }
    counts = [len(one.segments) for one in aligned]
    lossy = np.array([row.lossy for row in rows], np.bool_)
    source = document.sets.sample
    if not all(0 <= row.source < len(source.sources) for row in rows):
        raise ValueError("an execution is of a recording that the set has not")

    def texts(key: str) -> tuple[str, ...]:
        return tuple(getattr(row, key) for row in rows)

    def numbers(of: Sequence[ExecutionEntry] | Sequence[AlignedSegment], key: str) -> I64:
        return np.array([getattr(row, key) for row in of], np.int64)

    paths = PathSet(
        executions=Executions(
            id=texts("id"),
            begin=numbers(rows, "begin"),
            end=numbers(rows, "end"),
            tid=numbers(rows, "tid"),
            host=np.zeros(len(rows), np.int64),
            comm=texts("comm"),
            label=texts("label"),
        ),
        paths=CriticalPaths(
            start=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            begin=numbers(segments, "begin"),
            end=numbers(segments, "end"),
            state=np.array([State[s.state] for s in segments], np.uint8),
            detail=coded["detail"],
            comm=coded["comm"],
            tid=numbers(segments, "tid"),
            host=np.array([s.host for s in segments], np.int64),
            cpu=numbers(segments, "cpu").astype(np.int32),
            lossy=np.repeat(lossy, counts),
            strings=tuple(codes),
        ),
        session=numbers(rows, "source"),
        sources=tuple(source.sources),
        specification=source.specification,
        losses=(),
        lossy=lossy,
        environment=tuple(
            {"recording": recording, "clock_epoch": epoch}
            for recording, epoch in zip(source.sources, source.epochs, strict=False)
            if epoch
        ),
    )
    findings = tuple(
        tuple(f for f in document.findings if f.position == one.position) for one in aligned
    )
    return Exported(name, paths, tuple(row.cluster for row in rows), findings)
