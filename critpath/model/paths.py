"""Critical paths, and the sets of them that are saved and compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from critpath.model.columns import I32, I64, U8, Bool, freeze_columns
from critpath.model.table import Column, Table
from critpath.model.timelines import STATES

if TYPE_CHECKING:
    from critpath.model.events import Loss
    from critpath.model.executions import Executions


@dataclass(frozen=True, eq=False)
class CriticalPaths(Table):
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

    @property
    def path(self) -> I64:
        """Which path every segment belongs to."""
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.start))

    @property
    def wakes(self) -> Bool:
        """Whether a segment ends in a wake: its thread woke that of the next segment.

        Not every change of thread is one.  Where a thread begins to wait, its path goes
        on in the thread that will wake it; where that wakes it, the path comes back.
        Only the way back is a wake (or a creation, or a packet).  So, from the end of a
        path: a thread that the path is not inside of yet was followed through a wake.
        """
        result = np.zeros(len(self.begin), np.bool_)
        thread = self.host * 2**32 + self.tid
        changes = np.flatnonzero(thread[1:] != thread[:-1])
        path, last = self.path, self.start[1:] - 1
        changes = changes[path[changes] == path[changes + 1]]
        inside: list[int] = []
        current = -1
        for at, of, before in zip(
            changes[::-1].tolist(),
            path[changes][::-1].tolist(),
            thread[changes][::-1].tolist(),
            strict=True,
        ):
            if of != current:
                current, inside = of, [int(thread[last[of]])]
            if before in inside:
                del inside[inside.index(before) + 1 :]
            else:
                inside.append(before)
                result[at] = True
        return result

    def table_columns(self) -> dict[str, Column]:
        """Return a row per segment.

        ``path`` and ``segment`` number the paths and the segments of each from 0;
        ``wakes`` is the thread that the segment's own woke at its end, where it did.
        """
        path = self.path
        return {
            "path": Column(path),
            "segment": Column(np.arange(len(path), dtype=np.int64) - self.start[path]),
            "begin_ns": Column(self.begin),
            "end_ns": Column(self.end),
            "duration_ns": Column(self.duration),
            "state": Column(self.state, STATES),
            "detail": Column(self.detail, self.strings or ("",)),
            "tid": Column(self.tid, valid=self.tid >= 0),
            "comm": Column(self.comm, self.strings or ("",)),
            "cpu": Column(self.cpu, valid=self.cpu >= 0),
            "host": Column(self.host),
            "lossy": Column(self.lossy),
            "wakes": Column(np.append(self.tid, -1)[1:][: len(path)], valid=self.wakes),
        }


@dataclass(frozen=True, eq=False)
class PathSet(Table):
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

    def table_columns(self) -> dict[str, Column]:
        """Return a row per segment, with the execution that it is of.

        ``recording`` is where the execution comes from; ``position`` numbers the
        executions, whose ids need not differ, from 0.
        """
        rest = self.paths.table_columns()
        path = rest.pop("path").values
        codes = path.astype(np.int32)
        return {
            "recording": Column(self.session[path].astype(np.int32), self.sources or ("",)),
            "execution": Column(codes, self.executions.id or ("",)),
            "position": Column(path),
            "label": Column(codes, self.executions.label or ("",)),
            **rest,
        }
