"""What every thread was doing, when, and who woke it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, fields
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from critpath.model._lookup import Numbers, last_begun
from critpath.model.clocks import Messages
from critpath.model.containers import Places
from critpath.model.requests import Collected
from critpath.model.table import I32, I64, U8, Column, FlatTable, Table, col, freeze_columns
from critpath.records import dataclass
from critpath.schema.kinds import STATES, Kind

if TYPE_CHECKING:
    from critpath.model.events import Events, Loss
    from critpath.model.packing import PackedBlock


@dataclass(frozen=True, eq=False)
class Workers(FlatTable):
    """The threads of a recording: one row per life of a thread id; `Timelines` knows the names.

    Idle threads are one row per (host, cpu) with tid 0.
    """

    COUNTED = "worker"

    host: I64 = field(metadata=col("where"))
    tid: I64 = field(metadata=col("its id", least=0))
    pid: I64 = field(metadata=col("the thread group", least=0))
    name: I32 = field(metadata=col("last name (comm), a code into `Timelines.strings`"))
    first: I64 = field(metadata=col("when it was first seen on a cpu", "first_ns", least=0))
    last: I64 = field(metadata=col("the last event that touched it", "last_ns", least=0))
    parent: I64 = field(metadata=col("worker that created it", least=0))
    born: I64 = field(metadata=col("when it was created", "born_ns", least=0))
    idle_cpu: I32 = field(metadata=col("the cpu of an idle thread", least=0))

    @cached_property
    def lives(self) -> Lives:
        """Which worker a thread id was when."""
        return Lives(self)


class Lives:
    """Finds the life of a thread id that a time falls into."""

    def __init__(self, workers: Workers) -> None:
        rows = np.flatnonzero((workers.first >= 0) & (workers.idle_cpu < 0))
        self._threads = Numbers()
        of = self._threads.add(workers.host[rows], workers.tid[rows])
        order = np.argsort(of, kind="stable")
        self._rows, first = rows[order], workers.first[rows[order]]
        self._start = np.searchsorted(of[order], np.arange(len(self._threads) + 1))
        # Lives of one tid follow each other: the last that had begun by a time is meant.  Begins
        # are made to ascend where they do not.
        for low, high in pairwise(self._start.tolist()):
            if high - low > 1:
                first[low:high] = np.minimum.accumulate(first[low:high][::-1])[::-1]
        self._first = first

    def find(self, host: I64, tid: I64, time: I64) -> I64:
        """Return the worker of each thread at a time, -1 where it never appears.

        Who asks for a time before all lives of a thread has the first of them.
        """
        if not len(self._rows):
            return np.full(len(tid), -1, np.int64)
        host, tid, time = (np.ascontiguousarray(of, np.int64) for of in (host, tid, time))
        found = last_begun(self._threads.find(host, tid), self._start, self._first, time)
        return np.where(found >= 0, self._rows[found], -1)


def freeze_rows(table: Timelines | Block, workers: int = -1, processors: int = -1) -> None:
    """Check and freeze the columns that timelines and their blocks have alike."""
    of_threads = ("begin", "end", "state", "detail", "cpu", "waker", "woken")
    freeze_columns(table, len(table.begin), *of_threads)
    stolen = ("stolen_begin", "stolen_end", "stolen_state", "stolen_detail")
    freeze_columns(table, len(table.stolen_begin), *stolen)
    freeze_columns(table, len(table.ran_begin), "ran_begin", "ran_end", "ran_worker")
    # One more than there are owners: where the rows of the last end.
    freeze_columns(table, workers + 1 if workers >= 0 else -1, "start")
    of_processors = processors + 1 if processors >= 0 else -1
    freeze_columns(table, of_processors, "stolen_start", "ran_start")


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
    holds : tuple of (int, int, int, int)
        Sleeps that a timer ended and that another worker is the reason of: (holder, when it gave
        back what it had, at the sleep's end at the latest (ns), sleeper, end of the sleep (ns)).
    strings : tuple of str
    losses : tuple of Loss
    warnings : tuple of str
        One line each: what was left out and why.
    receipts : tuple of (int, int, int, int)
        Of several hosts, as `ReplayedRecording.receipts`.
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
    holds: tuple[tuple[int, int, int, int], ...] = ()
    receipts: tuple[tuple[int, int, int, int], ...] = ()

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


# Timelines of a recording in pieces, so that not all of them need be in memory.


# Where the rows of each owner start, then the columns of the rows.
Columns = tuple[np.ndarray[Any, Any], ...]


class OpenColumns(NamedTuple):
    """What threads did; the rows of a thread are unpacked when they are first read.

    A walk needs those of few threads of a block, and of all others the first row or two.

    Attributes
    ----------
    columns : tuple of arrays
        As `Block.intervals`; of the rows of a thread whose `filled` is 0 only ``start``
        means anything.
    filled : uint8 [threads + 1]
        Set by who reads all rows of a thread (`critpath.graph`); of others the first ones
        may be there.
    base : int
        Of the block: the first packed row of a thread is relative to it.
    data : uint8 [bytes]
        The rows, as ``_packed_rows.pxi`` has them.
    at : int64 [threads + 1]
        Which byte the first row of each thread begins at.
    """

    columns: Columns
    filled: U8
    base: int
    data: U8
    at: I64


@dataclass(frozen=True, eq=False)
class Block:
    """What threads and processors did, as far as it ended between two moments.

    The columns are those of `critpath.model.Timelines`.  Over the blocks of a
    recording the rows of one worker, and of one processor, are in order of time and
    do not overlap.  Every row of a block and of those before it ends at ``cut`` or
    earlier; a row of a later block may begin before ``cut``.  So what a worker did just
    before a time ``t`` is in the first block with ``cut >= t`` or in one after it.

    Attributes
    ----------
    cut : int
        Time of the last event before the cut (ns); of the last block, the end of the
        recording.
    start : int64 [workers known at the cut + 1]
    begin, end, woken : int64
    state : uint8
    detail, cpu, waker : int32
    stolen_start, ran_start : int64 [processors known at the cut + 1]
    stolen_begin, stolen_end, ran_begin, ran_end : int64
    stolen_state : uint8
    stolen_detail, ran_worker : int32
    """

    cut: int
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

    def __post_init__(self) -> None:
        freeze_rows(self)

    def __len__(self) -> int:
        return len(self.begin)

    def by_name(self) -> dict[str, Any]:
        """All columns by their names, which are those of `critpath.model.Timelines`."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "cut"}

    def intervals(self) -> Columns:
        """Return what threads did: start, begin, end, state, detail, cpu, waker, woken."""
        return (
            *(self.start, self.begin, self.end, self.state, self.detail),
            *(self.cpu, self.waker, self.woken),
        )

    def opened(self) -> OpenColumns:
        """Return what threads did, all of it filled in."""
        return open_filled(self.intervals())

    def stolen(self) -> Columns:
        """Return interrupt work: start, begin, end, state, detail."""
        return (
            *(self.stolen_start, self.stolen_begin, self.stolen_end),
            *(self.stolen_state, self.stolen_detail),
        )

    def ran(self) -> Columns:
        """Return who ran on processors: start, begin, end, worker."""
        return self.ran_start, self.ran_begin, self.ran_end, self.ran_worker


class Tables(Protocol):
    """What walks ask of a block."""

    def opened(self) -> OpenColumns:
        """Return what threads did, to be read thread by thread."""

    def intervals(self) -> Columns:
        """Return what threads did, as `Block.intervals`."""

    def stolen(self) -> Columns:
        """Return interrupt work, as `Block.stolen`."""

    def ran(self) -> Columns:
        """Return who ran, as `Block.ran`."""


class Blocks(Protocol):
    """The blocks of a recording in order of time; each may have to be fetched.

    Attributes
    ----------
    cuts : int64 [blocks]
        ``cut`` of every block, ascending.
    """

    @property
    def cuts(self) -> I64:
        """The cut of every block (ns)."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Tables: ...


class BlockList:
    """Blocks that are all in memory.

    Parameters
    ----------
    blocks : sequence of Block
        In order of time.
    """

    def __init__(self, blocks: Sequence[Block] = ()) -> None:
        self._blocks = list(blocks)

    @property
    def cuts(self) -> I64:
        """The cut of every block (ns)."""
        return np.array([block.cut for block in self._blocks], np.int64)

    def append(self, block: Block) -> None:
        """Add the next block."""
        self._blocks.append(block)

    def close(self) -> None:
        """Forget the blocks."""
        self._blocks.clear()

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, index: int) -> Block:
        return self._blocks[index]

    def __iter__(self) -> Iterator[Block]:
        return iter(self._blocks)


def open_filled(columns: Columns) -> OpenColumns:
    """Return columns that are all there as an `OpenColumns`.

    Parameters
    ----------
    columns : tuple of arrays
        As `Block.intervals`.
    """
    # As many as there are starts: one more than threads, and so never none.
    filled, at = np.ones(len(columns[0]), np.uint8), np.zeros(len(columns[0]), np.int64)
    return OpenColumns(columns, filled, 0, np.zeros(1, np.uint8), at)


def make_single_block(timelines: Timelines) -> Block:
    """Return the timelines of a recording as one block."""
    ends = (timelines.end, timelines.stolen_end, timelines.ran_end)
    columns = [field.name for field in fields(Block) if field.name != "cut"]
    return Block(
        cut=max((int(end.max()) for end in ends if len(end)), default=0),
        **{name: getattr(timelines, name) for name in columns},
    )


class BlockStore(Blocks, Protocol):
    """Where blocks are kept."""

    def append(self, block: PackedBlock) -> None:
        """Add the next one."""

    def keep(self, columns: Columns) -> Callable[[], Columns]:
        """Keep some columns beside them; return what gives these back."""

    def close(self) -> None:
        """Free what they take."""


@dataclass(frozen=True, eq=False)
class Resources:
    """What a recording says of quotas, disks and memory.

    Attributes
    ----------
    periods : int64 [n, 2]
        Where a period of a quota ended (ns), and which timer did it.
    requests : int64 [n, 5]
        Of disks: issued, completed (ns), device, issuing thread, the code of its name.
    reclaims : int64 [n, 4]
        When a thread had to free memory: begin, end, thread, 1 for its control group's limit.
    """

    periods: I64
    requests: I64
    reclaims: I64


@dataclass(frozen=True, eq=False)
class FunctionSpans:
    """What functions of Python the threads of a recording were in.

    Spans of a thread nest: one that calls another begins before it and ends after it.

    Attributes
    ----------
    begin, end : int64 [spans]
        ns; where the exit is missing, that of the one that called it.
    code : int64 [spans]
        The function: its number in the recording's list.
    parent, thread : int64 [spans]
        The span that called it, -1 for none; which of the threads.
    changes : int64 [changes, 2]
        From when on (ns), thread by thread, which span is the innermost, -1 for none.
    threads : int64 [threads, 4]
        Host, thread id, and the first change and the one after the last.
    """

    begin: I64
    end: I64
    code: I64
    parent: I64
    thread: I64
    changes: I64
    threads: I64

    def __len__(self) -> int:
        return len(self.begin)


@dataclass(frozen=True, eq=False)
class ReplayedRecording:
    """What is known of a recording before its executions are walked.

    Attributes
    ----------
    events : Events
        The few that finders of executions ask about, and all that is known besides.
    blocks : Blocks
        What every thread was doing; to be closed with `close`.
    workers : Workers
    processors : tuple of (int, int)
        Host and cpu.
    rows : int
        Of all blocks.
    packets, holds : tuple
        As in `Timelines`.
    warnings : tuple of str
    resources : Resources or None
    sockets : Collected or None
        Where requests of servers are asked for.
    receipts : tuple of (int, int, int, int)
        Of several hosts, what ended sleeps: the worker that sent bytes, when they left (ns), the
        worker that slept until it received them, when they were there (ns).
    messages : Messages or None
        Of several hosts, what they sent each other.
    functions : FunctionSpans or None
        Where functions of Python were recorded.
    parents : int64 [n, 3]
        Which process began each, as far as that is known: host, process id, that of its parent;
        of two parents of one the last holds.
    places : Places
        In which container, pod or unit each process was, where the recorder named them.
    present : frozenset of Kind
        Kinds of kernel events that there was at least one of.
    """

    events: Events
    blocks: BlockStore
    workers: Workers
    processors: tuple[tuple[int, int], ...]
    rows: int
    packets: tuple[tuple[int, int, int, int], ...]
    holds: tuple[tuple[int, int, int, int], ...]
    warnings: tuple[str, ...]
    resources: Resources | None = None
    sockets: Collected | None = None
    receipts: tuple[tuple[int, int, int, int], ...] = ()
    messages: Messages | None = None
    functions: FunctionSpans | None = None
    parents: I64 = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    places: Places = field(default_factory=Places)
    present: frozenset[Kind] = frozenset()

    def close(self) -> None:
        """Free what the blocks take."""
        self.blocks.close()
