"""What every thread was doing, when, and who woke it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from critpath.model.columns import I32, I64, U8, freeze_columns
from critpath.model.kinds import STATES
from critpath.model.table import Column, Table

if TYPE_CHECKING:
    from critpath.model.blocks import Block
    from critpath.model.events import Loss


@dataclass(frozen=True, eq=False)
class Workers(Table):
    """The threads of a recording: one row per life of a thread id.

    Idle threads are one row per (host, cpu) with tid 0.  All columns have one
    row per worker.

    Attributes
    ----------
    host, tid, pid : int64
        ``pid`` is the thread group, -1 where unknown.
    name : int32
        Last name (comm), a code into `Timelines.strings`.
    first, last : int64
        When it was first seen on a cpu, and the last event that touched it (ns);
        -1 if it never was.
    parent : int64
        Worker that created it, -1 if unknown.
    born : int64
        Time of the creation (ns), -1 if unknown.
    idle_cpu : int32
        The cpu of an idle thread, -1 for every other.
    """

    host: I64
    tid: I64
    pid: I64
    name: I32
    first: I64
    last: I64
    parent: I64
    born: I64
    idle_cpu: I32

    def __post_init__(self) -> None:
        freeze_columns(
            self,
            len(self.tid),
            host=np.int64,
            tid=np.int64,
            pid=np.int64,
            name=np.int32,
            first=np.int64,
            last=np.int64,
            parent=np.int64,
            born=np.int64,
            idle_cpu=np.int32,
        )

    def __len__(self) -> int:
        return len(self.tid)

    def table_columns(self) -> dict[str, Column]:
        """Return a row per life of a thread id; `Timelines` knows the names."""
        return {
            "worker": Column(np.arange(len(self), dtype=np.int64)),
            "host": Column(self.host),
            "tid": Column(self.tid, valid=self.tid >= 0),
            "pid": Column(self.pid, valid=self.pid >= 0),
            "name": Column(self.name),
            "first_ns": Column(self.first, valid=self.first >= 0),
            "last_ns": Column(self.last, valid=self.last >= 0),
            "parent": Column(self.parent, valid=self.parent >= 0),
            "born_ns": Column(self.born, valid=self.born >= 0),
            "idle_cpu": Column(self.idle_cpu, valid=self.idle_cpu >= 0),
        }


def freeze_rows(table: Timelines | Block, workers: int = -1, processors: int = -1) -> None:
    """Check and freeze the columns that timelines and their blocks have alike.

    Parameters
    ----------
    table : Timelines or Block
        Under construction.
    workers, processors : int
        How many owners there are; -1 leaves it free.

    Raises
    ------
    ValueError
        As `freeze_columns` does.
    """
    freeze_columns(
        table,
        len(table.begin),
        begin=np.int64,
        end=np.int64,
        state=np.uint8,
        detail=np.int32,
        cpu=np.int32,
        waker=np.int32,
        woken=np.int64,
    )
    freeze_columns(
        table,
        len(table.stolen_begin),
        stolen_begin=np.int64,
        stolen_end=np.int64,
        stolen_state=np.uint8,
        stolen_detail=np.int32,
    )
    freeze_columns(
        table, len(table.ran_begin), ran_begin=np.int64, ran_end=np.int64, ran_worker=np.int32
    )
    # One more than there are owners: where the rows of the last end.
    freeze_columns(table, workers + 1 if workers >= 0 else -1, start=np.int64)
    of_processors = processors + 1 if processors >= 0 else -1
    freeze_columns(table, of_processors, stolen_start=np.int64, ran_start=np.int64)


@dataclass(frozen=True, eq=False)
class Timelines(Table):
    """What every thread was doing, when, and who woke it.

    Intervals are sorted by (worker, begin) and do not overlap within a worker;
    between two of them a worker may be unobserved.  ``start[w]:start[w + 1]``
    are the intervals of worker ``w``.  Interrupt work is kept apart, per cpu.

    Attributes
    ----------
    workers : Workers
    start : int64 [workers + 1]
    begin, end : int64
    state : uint8
        A `State`.
    detail : int32
        Qualifier, a code into ``strings`` (irq name, softirq, system call...).
    cpu : int32
        Where it ran, or where it waited for a cpu; -1 if unknown.
    waker : int32
        For waits: worker whose wake ended it, -1 if none or not a thread.
    woken : int64
        Time of that wake in the waker's own context (ns), -1 if none.
    stolen_start, stolen_begin, stolen_end, stolen_state, stolen_detail
        Interrupt work per processor, sorted: ``stolen_start[p]:stolen_start[p+1]``
        for processor ``p`` (index into ``processors``); state IRQ or SOFTIRQ.
    ran_start, ran_begin, ran_end, ran_worker
        Who held each processor, sorted, idle threads included.
    processors : tuple of (host, cpu)
    packets : tuple of (int, int, int, int)
        Matched network packets: (sender worker, sent ns, receiver worker, received ns).
    strings : tuple of str
    losses : tuple of Loss
    warnings : tuple of str
        One line each: what was left out and why.
    """

    workers: Workers
    start: I64
    begin: I64
    end: I64
    state: U8
    detail: I32
    cpu: I32
    waker: I32
    woken: I64
    stolen_start: I64
    stolen_begin: I64
    stolen_end: I64
    stolen_state: U8
    stolen_detail: I32
    ran_start: I64
    ran_begin: I64
    ran_end: I64
    ran_worker: I32
    processors: tuple[tuple[int, int], ...]
    strings: tuple[str, ...]
    losses: tuple[Loss, ...] = ()
    warnings: tuple[str, ...] = ()
    packets: tuple[tuple[int, int, int, int], ...] = ()

    def __post_init__(self) -> None:
        freeze_rows(self, len(self.workers), len(self.processors))

    def table_columns(self) -> dict[str, Column]:
        """Return a row per interval of a thread, with the thread it is of."""
        worker = np.repeat(np.arange(len(self.workers), dtype=np.int64), np.diff(self.start))
        return {
            "worker": Column(worker),
            "tid": Column(self.workers.tid[worker]),
            "comm": Column(self.workers.name[worker], self.strings or ("",)),
            "begin_ns": Column(self.begin),
            "end_ns": Column(self.end),
            "duration_ns": Column(self.end - self.begin),
            "state": Column(self.state, STATES),
            "detail": Column(self.detail, self.strings or ("",)),
            "cpu": Column(self.cpu, valid=self.cpu >= 0),
            "waker": Column(self.waker, valid=self.waker >= 0),
            "woken_ns": Column(self.woken, valid=self.woken >= 0),
        }
