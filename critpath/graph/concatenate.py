"""Critical paths of several recordings as one table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from critpath.errors import TooMuchTimeError
from critpath.model import I64, MOST_TIME, Executions, PathSet, join_stored


def join_sets(parts: Sequence[PathSet]) -> PathSet:
    """Join the executions of several recordings into one set, one session each.

    Raises
    ------
    TooMuchTimeError
        If what they take cannot be added up.
    """
    if sum(part.executions.time for part in parts) >= MOST_TIME:
        raise TooMuchTimeError
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
        paths=join_stored([part.paths for part in parts]),
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
        Their positions, in the order wanted; of stored paths only these are fetched.
    """
    return path_set.take(rows)
