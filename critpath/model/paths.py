"""Critical paths, and the sets of them that are saved and compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from critpath.model.columns import I32, I64, U8, Bool, freeze_columns

if TYPE_CHECKING:
    from critpath.model.events import Loss
    from critpath.model.executions import Executions


@dataclass(frozen=True, eq=False)
class CriticalPaths:
    """Critical paths of several executions, one after the other.

    ``start[i]:start[i + 1]`` are the segments of path ``i``; they tile
    ``[begin, end]`` of the execution exactly.

    Attributes
    ----------
    start : int64 [paths + 1]
    begin, end : int64 [segments]
    state : uint8 [segments]
        A `State`.
    detail, comm : int32 [segments]
        Codes into ``strings``: the state's qualifier, and the name of the thread
        the segment is spent on.
    tid, host : int64 [segments]
        The thread the segment is spent on; it need not be the subject.
    cpu : int32 [segments]
    lossy : bool [segments]
        The segment overlaps a loss on its host.
    strings : tuple of str
    """

    start: I64
    begin: I64
    end: I64
    state: U8
    detail: I32
    comm: I32
    tid: I64
    host: I64
    cpu: I32
    lossy: Bool
    strings: tuple[str, ...]

    def __post_init__(self) -> None:
        freeze_columns(
            self,
            len(self.begin),
            begin=np.int64,
            end=np.int64,
            state=np.uint8,
            detail=np.int32,
            comm=np.int32,
            tid=np.int64,
            host=np.int64,
            cpu=np.int32,
            lossy=np.bool_,
        )
        freeze_columns(self, -1, start=np.int64)

    def __len__(self) -> int:
        return len(self.start) - 1

    @property
    def duration(self) -> I64:
        """Duration of every segment (ns)."""
        return self.end - self.begin


@dataclass(frozen=True, eq=False)
class PathSet:
    """Executions with their critical paths: what ``extract`` saves and ``compare`` reads.

    Attributes
    ----------
    executions : Executions
    paths : CriticalPaths
        One path per execution.
    session : int64 [executions]
        Which recording each came from: index into ``sources``.
    sources : tuple of str
        Names of the recordings, as given by the user.
    specification : str
        The ``--execution`` specification that found them.
    losses : tuple of Loss
    lossy : bool [executions]
        The execution's window overlaps a loss on its host.
    environment : tuple of mapping
    events : int
        Events in the recordings.
    warnings : tuple of str
    """

    executions: Executions
    paths: CriticalPaths
    session: I64
    sources: tuple[str, ...]
    specification: str
    losses: tuple[Loss, ...]
    lossy: Bool
    environment: tuple[Mapping[str, str | int], ...] = ()
    events: int = 0
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        freeze_columns(self, len(self.executions), session=np.int64, lossy=np.bool_)
        if len(self.paths) != len(self.executions):
            raise ValueError("PathSet: one path per execution")

    def __len__(self) -> int:
        return len(self.executions)
