"""Critical paths of several recordings as one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from critpath.model import I64, CriticalPaths, Executions, PathSet


def concatenate(parts: Sequence[CriticalPaths]) -> CriticalPaths:
    """Join tables of paths; their text gets one common table of strings.

    Parameters
    ----------
    parts : sequence of CriticalPaths

    Returns
    -------
    CriticalPaths
        The paths of all parts in order.
    """
    codes: dict[str, int] = {"": 0}
    details, comms = [], []
    for part in parts:
        table = np.array([codes.setdefault(text, len(codes)) for text in part.strings], np.int32)
        details.append(table[part.detail])
        comms.append(table[part.comm])
    counts = [np.diff(part.start) for part in parts]

    def joined(name: str, dtype: type[np.generic]) -> np.ndarray:
        columns = [getattr(part, name) for part in parts]
        return np.concatenate([np.zeros(0, dtype), *columns]).astype(dtype)

    return CriticalPaths(
        start=np.concatenate([[0], np.cumsum(np.concatenate([[0][:0], *counts]))]).astype(np.int64),
        begin=joined("begin", np.int64),
        end=joined("end", np.int64),
        state=joined("state", np.uint8),
        detail=np.concatenate([np.zeros(0, np.int32), *details]),
        comm=np.concatenate([np.zeros(0, np.int32), *comms]),
        tid=joined("tid", np.int64),
        host=joined("host", np.int64),
        cpu=joined("cpu", np.int32),
        lossy=joined("lossy", np.bool_),
        strings=tuple(codes),
    )


def join_sets(parts: Sequence[PathSet]) -> PathSet:
    """Join the executions of several recordings into one set, one session each."""
    if len(parts) == 1:
        return parts[0]
    sources = tuple(source for part in parts for source in part.sources)
    offsets = np.cumsum([0, *(len(part.sources) for part in parts)])
    every = [part.executions for part in parts]
    return PathSet(
        executions=Executions(
            id=tuple(text for e in every for text in e.id),
            begin=np.concatenate([e.begin for e in every]),
            end=np.concatenate([e.end for e in every]),
            tid=np.concatenate([e.tid for e in every]),
            host=np.concatenate([e.host for e in every]),
            comm=tuple(text for e in every for text in e.comm),
            label=tuple(text for e in every for text in e.label),
            incomplete=sum(e.incomplete for e in every),
            notes=tuple(note for e in every for note in e.notes),
        ),
        paths=concatenate([part.paths for part in parts]),
        session=np.concatenate([p.session + o for p, o in zip(parts, offsets, strict=False)]),
        sources=sources,
        specification=" | ".join(dict.fromkeys(part.specification for part in parts)),
        losses=tuple(loss for part in parts for loss in part.losses),
        lossy=np.concatenate([part.lossy for part in parts]),
        environment=tuple(e for part in parts for e in part.environment),
        events=sum(part.events for part in parts),
        warnings=tuple(w for part in parts for w in part.warnings),
    )


def take_executions(path_set: PathSet, rows: I64) -> PathSet:
    """Return some executions of a set, with their paths, as a set.

    Parameters
    ----------
    path_set : PathSet
    rows : int64 array
        Their positions, in the order wanted.
    """
    every, paths = path_set.executions, path_set.paths
    counts = np.diff(paths.start)[rows]
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    segments = np.arange(start[-1]) + np.repeat(paths.start[rows] - start[:-1], counts)
    columns = ("begin", "end", "state", "detail", "comm", "tid", "host", "cpu", "lossy")

    def texts(column: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(column[row] for row in rows.tolist())

    return replace(
        path_set,
        executions=replace(
            every,
            id=texts(every.id),
            begin=every.begin[rows],
            end=every.end[rows],
            tid=every.tid[rows],
            host=every.host[rows],
            comm=texts(every.comm),
            label=texts(every.label),
        ),
        paths=replace(
            paths, start=start, **{name: getattr(paths, name)[segments] for name in columns}
        ),
        session=path_set.session[rows],
        lossy=path_set.lossy[rows],
    )
