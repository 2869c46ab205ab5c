"""Sets of several recordings, joined into one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from critpath.errors import TooMuchTimeError

if TYPE_CHECKING:
    from critpath.model import F64, PathSet


# ------------------------------------------------------------------ what is joined


def join_sets(parts: Sequence[PathSet]) -> PathSet:
    """Join the executions of several recordings into one set, one session each.

    Raises
    ------
    TooMuchTimeError
        If what they take cannot be added up.
    """
    import numpy as np  # noqa: PLC0415 - start-up time

    from critpath.model import MOST_TIME, Executions, PathSet, join_facts, join_stored  # noqa: PLC0415 - start-up time

    if sum(part.executions.time for part in parts) >= MOST_TIME:
        raise TooMuchTimeError
    if len(parts) == 1:
        return parts[0]

    def join_chances() -> F64 | None:
        # 1 where one was recorded whatever it was like.
        if all(one.chance is None for one in every):
            return None
        return np.concatenate([np.ones(len(e)) if e.chance is None else e.chance for e in every])

    sources = tuple(source for part in parts for source in part.sources)
    offsets = np.cumsum([0, *(len(part.sources) for part in parts)])
    every = [part.executions for part in parts]
    return PathSet(
        executions=Executions(
            **Executions.join_columns(every),
            incomplete=sum(e.incomplete for e in every),
            notes=tuple(note for e in every for note in e.notes),
            requests=join_facts([e.requests for e in every if len(e)]),
            causes=tuple(c for e in every for c in e.causes)
            if all(len(e.causes) == len(e) for e in every)
            else (),
            chance=join_chances(),
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
