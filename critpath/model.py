"""Every type that passes between stages, in the order of the pipeline.

Tables are frozen dataclasses of equal-length numpy columns, checked and made
read-only on construction.  Times are int64 nanoseconds since the origin of the
trace's clock (for LTTng: CLOCK_MONOTONIC), named ``begin``, ``end``,
``duration``.  Text from a trace is interned: a column holds int32 or int64
codes into a tuple of strings beside it; code 0 is always ``""``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
U8 = npt.NDArray[np.uint8]
F64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]


def freeze_columns(table: object, length: int, **columns: type[np.generic]) -> None:
    """Check that columns have one length and dtype; replace them by read-only views.

    Parameters
    ----------
    table : object
        The frozen dataclass under construction.
    length : int
        Rows every column must have; -1 leaves the length free.
    **columns : numpy scalar type
        Column name and its dtype.

    Raises
    ------
    ValueError
        If a column has another length or cannot be cast without loss of kind.
    """
    for name, dtype in columns.items():
        column = np.asarray(getattr(table, name))
        if column.dtype != dtype:
            column = column.astype(dtype, casting="same_kind")
        if length >= 0 and len(column) != length:
            raise ValueError(f"{type(table).__name__}.{name}: {len(column)} rows, not {length}")
        column = column.view()
        column.flags.writeable = False
        object.__setattr__(table, name, column)


# --------------------------------------------------------------------- read/


class Kind(IntEnum):
    """What an event means to critpath, whatever its tracer calls it."""

    OTHER = 0  # asked for by name only (executions, tests)
    SWITCH = 1
    WAKING = 2
    WAKEUP = 3
    WAKEUP_NEW = 4
    FORK = 5
    EXEC = 6
    EXIT = 7
    IRQ_ENTRY = 8
    IRQ_EXIT = 9
    SOFTIRQ_ENTRY = 10
    SOFTIRQ_EXIT = 11
    TIMER_ENTRY = 12
    TIMER_EXIT = 13
    STATEDUMP = 14
    SYSCALL_ENTRY = 15
    SYSCALL_EXIT = 16
    NET_SEND = 17
    NET_RECEIVE = 18
    VECTOR_ENTRY = 19  # x86 interrupt vectors: local timer, reschedule, function calls
    VECTOR_EXIT = 20


@dataclass(frozen=True)
class Wanted:
    """One class of events to decode, and the fields of it, in the order wanted.

    Attributes
    ----------
    kind : Kind
        What the event means.
    names : tuple of str
        Spellings of the event's name; ``fnmatch`` patterns (``syscall_entry_*``).
    fields : tuple of tuple of str
        For each field wanted its alternative spellings, without LTTng's leading
        underscore; dots lead into structures and variants
        (``network_header.transport_header.seq``).  Looked up in the payload, then
        the event's own context, the stream's event context, the packet context.
        ``("*",)`` as the only entry asks for every scalar field and context.
    """

    kind: Kind
    names: tuple[str, ...]
    fields: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class EventClass:
    """One event class as found in a trace, with the fields that were decoded.

    Attributes
    ----------
    name : str
        Name as the tracer spells it.
    kind : Kind
        What it means.
    fields : tuple of str
        First spelling of each field wanted (or the field's own dotted name for
        ``*``), in the order of ``Events.values``.
    types : tuple of str
        ``int``, ``uint``, ``float``, ``str`` or ``absent`` for each field.  In
        ``Events.values`` a ``uint`` and a ``float`` are the same 64 bits seen as
        int64, a ``str`` is a code into ``Events.strings``, an ``absent`` one is 0.
    domain : str
        ``kernel``, ``ust`` or whatever the trace's env says.
    host : int
        Index into ``Events.hosts``.
    """

    name: str
    kind: Kind
    fields: tuple[str, ...]
    types: tuple[str, ...]
    domain: str = "kernel"
    host: int = 0


@dataclass(frozen=True)
class Loss:
    """Events or packets that the tracer or the reader lost, placed in time.

    Attributes
    ----------
    begin, end : int
        The time range in which something is missing (ns); equal to the ends of
        the recording where it is unknown.
    host, cpu : int
        Where; cpu -1 where a stream does not belong to one cpu.
    events : int
        Number of events lost, 0 if unknown (a lost or damaged packet).
    packets : int
        Number of packets lost or damaged.
    reason : str
        ``discarded``, ``packets lost``, ``damaged`` (with the file and offset),
        ``truncated``, ``stream missing``.
    """

    begin: int
    end: int
    host: int
    cpu: int
    events: int
    packets: int
    reason: str


@dataclass(frozen=True)
class Clock:
    """The clock that timestamps count.

    Attributes
    ----------
    name, uuid : str
        As in the metadata ("" where absent).
    frequency : int
        Ticks per second of the raw clock; timestamps are already nanoseconds.
    epoch : int
        Nanoseconds to add to a timestamp to get time since the Unix epoch, 0
        where the clock is not absolute or the offset unknown.
    """

    name: str = ""
    uuid: str = ""
    frequency: int = 1_000_000_000
    epoch: int = 0


@dataclass(frozen=True, eq=False)
class Events:
    """The events of one recording that were asked for, in order of time.

    Attributes
    ----------
    timestamp : int64 [n]
        Nanoseconds, non-decreasing.
    cpu : int32 [n]
        CPU of the event within its host, -1 if unknown.
    event_class : int32 [n]
        Index into ``classes``.
    offset : int64 [n]
        Where the event's fields start in ``values``.
    values : int64 [m]
        All fields of all events; see `EventClass.types`.
    classes : tuple of EventClass
    strings : tuple of str
    hosts : tuple of str
    losses : tuple of Loss
    clock : Clock
    begin, end : int
        Range of the recording: first and last event of *any* class in it, asked
        for or not, where the reader knows it.
    total : int
        Number of events in the recording, asked for or not.
    environment : tuple of mapping
        The ``env`` of every trace read.
    warnings : tuple of str
        One line each: what was odd about the input and how it was read.
    """

    timestamp: I64
    cpu: I32
    event_class: I32
    offset: I64
    values: I64
    classes: tuple[EventClass, ...]
    strings: tuple[str, ...]
    hosts: tuple[str, ...] = ("",)
    losses: tuple[Loss, ...] = ()
    clock: Clock = Clock()
    begin: int = 0
    end: int = 0
    total: int = 0
    environment: tuple[Mapping[str, str | int], ...] = ()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        freeze_columns(
            self,
            len(self.timestamp),
            timestamp=np.int64,
            cpu=np.int32,
            event_class=np.int32,
            offset=np.int64,
        )
        freeze_columns(self, -1, values=np.int64)

    def __len__(self) -> int:
        return len(self.timestamp)

    def rows(self, name: str) -> I64:
        """Return the positions of every event of that name."""
        wanted = [i for i, c in enumerate(self.classes) if c.name == name]
        return np.flatnonzero(np.isin(self.event_class, wanted))

    def column(self, rows: I64, name: str) -> I64:
        """Return one field of some events, 0 where their class has no such field."""
        result = np.zeros(len(rows), np.int64)
        of_row = self.event_class[rows]
        for index, event_class in enumerate(self.classes):
            if name in event_class.fields:
                mine = of_row == index
                place = self.offset[rows[mine]] + event_class.fields.index(name)
                result[mine] = self.values[place]
        return result


# ----------------------------------------------------------------- timeline/


class State(IntEnum):
    """States of a thread on a path; names as in the path's JSON."""

    UNKNOWN = 0
    RUN = 1
    RUN_USER = 2
    RUN_SYSCALL = 3
    IRQ = 4
    SOFTIRQ = 5
    WAIT_CPU = 6
    WAIT_TASK = 7
    WAIT_DISK = 8
    WAIT_NET = 9
    WAIT_TIMER = 10
    WAIT_DEVICE = 11
    WAIT_SOFTIRQ = 12
    WAIT_IPI = 13
    WAIT_FUTEX = 14
    WAIT_POLL = 15
    WAIT_PIPE = 16
    WAIT_STOPPED = 17
    NET_TRANSIT = 18
    WAIT_UNEXPLAINED = 19


RUNNING: Final = frozenset({State.RUN, State.RUN_USER, State.RUN_SYSCALL})

# What the machine does to an execution, rather than the execution itself.
INTERFERENCE: Final = frozenset({State.IRQ, State.SOFTIRQ, State.WAIT_CPU})

# Trace Compass's coarser names, for cross-checks with its views.
TRACE_COMPASS: Final[dict[State, str]] = {
    State.UNKNOWN: "UNKNOWN",
    State.RUN: "RUNNING",
    State.RUN_USER: "RUNNING",
    State.RUN_SYSCALL: "RUNNING",
    State.IRQ: "INTERRUPTED",
    State.SOFTIRQ: "INTERRUPTED",
    State.WAIT_CPU: "PREEMPTED",
    State.WAIT_TASK: "BLOCKED",
    State.WAIT_DISK: "BLOCK_DEVICE",
    State.WAIT_NET: "NETWORK",
    State.WAIT_TIMER: "TIMER",
    State.WAIT_DEVICE: "INTERRUPTED",
    State.WAIT_SOFTIRQ: "INTERRUPTED",
    State.WAIT_IPI: "IPI",
    State.WAIT_FUTEX: "BLOCKED",
    State.WAIT_POLL: "BLOCKED",
    State.WAIT_PIPE: "BLOCKED",
    State.WAIT_STOPPED: "BLOCKED",
    State.NET_TRANSIT: "NETWORK",
    State.WAIT_UNEXPLAINED: "UNKNOWN",
}


@dataclass(frozen=True, eq=False)
class Workers:
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


@dataclass(frozen=True, eq=False)
class Timelines:
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
    waker : int64
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
    """

    workers: Workers
    start: I64
    begin: I64
    end: I64
    state: U8
    detail: I32
    cpu: I32
    waker: I64
    woken: I64
    stolen_start: I64
    stolen_begin: I64
    stolen_end: I64
    stolen_state: U8
    stolen_detail: I32
    ran_start: I64
    ran_begin: I64
    ran_end: I64
    ran_worker: I64
    processors: tuple[tuple[int, int], ...]
    strings: tuple[str, ...]
    losses: tuple[Loss, ...] = ()
    packets: tuple[tuple[int, int, int, int], ...] = ()

    def __post_init__(self) -> None:
        freeze_columns(
            self,
            len(self.begin),
            begin=np.int64,
            end=np.int64,
            state=np.uint8,
            detail=np.int32,
            cpu=np.int32,
            waker=np.int64,
            woken=np.int64,
        )
        freeze_columns(self, len(self.workers) + 1, start=np.int64)
        freeze_columns(
            self,
            len(self.stolen_begin),
            stolen_begin=np.int64,
            stolen_end=np.int64,
            stolen_state=np.uint8,
            stolen_detail=np.int32,
        )
        freeze_columns(
            self, len(self.ran_begin), ran_begin=np.int64, ran_end=np.int64, ran_worker=np.int64
        )
        freeze_columns(self, len(self.processors) + 1, stolen_start=np.int64, ran_start=np.int64)


# --------------------------------------------------------------- executions/


@dataclass(frozen=True, eq=False)
class Executions:
    """The executions of one recording: who, from when to when.

    Attributes
    ----------
    id : tuple of str
        The key's value, else ``TID@BEGIN``.
    begin, end, tid, host : int64
    comm : tuple of str
        Thread name at the begin, "" where unknown.
    label : tuple of str
        A name that the specification gives (a field, a file's column), or "".
    incomplete : int
        Begins without an end and ends without a begin: counted, never guessed.
    notes : tuple of str
        One line each: what was left out and why.
    """

    id: tuple[str, ...]
    begin: I64
    end: I64
    tid: I64
    host: I64
    comm: tuple[str, ...]
    label: tuple[str, ...]
    incomplete: int = 0
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        freeze_columns(
            self, len(self.id), begin=np.int64, end=np.int64, tid=np.int64, host=np.int64
        )
        if not len(self.id) == len(self.comm) == len(self.label):
            raise ValueError("Executions: text columns of unequal length")

    def __len__(self) -> int:
        return len(self.id)


# -------------------------------------------------------------------- graph/


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


# ------------------------------------------------------------------ vectors/


@dataclass(frozen=True, order=True)
class Symbol:
    """One letter of the alphabet that vectors count and alignments align.

    Attributes
    ----------
    state : State
    role : str
        "" for the subject's own thread; else the thread's name with its numbers
        taken out (``kworker/u#:#``), so that the same helper is the same symbol in
        every execution.
    """

    state: State
    role: str = ""

    @property
    def name(self) -> str:
        """``STATE`` or ``STATE@role``."""
        return f"{self.state.name}@{self.role}" if self.role else self.state.name


@dataclass(frozen=True, eq=False)
class VectorTable:
    """Count and duration vectors of executions, over one alphabet.

    Attributes
    ----------
    symbols : tuple of Symbol
        Columns; at most 64.
    counts : int64 [executions, symbols]
        Segments of each symbol.
    durations : int64 [executions, symbols]
        Nanoseconds in each symbol.
    structure : int64 [executions, symbols]
        Segments of each symbol once interference (interrupts, waits for the cpu) is
        taken out and neighbours are joined: what the program did, whatever else the
        machine did meanwhile.  Types of executions are found on these; the counts
        themselves where they are not given.
    """

    symbols: tuple[Symbol, ...]
    counts: I64
    durations: I64
    structure: I64 = None  # type: ignore[assignment]  # replaced below, so never None to a reader

    def __post_init__(self) -> None:
        if self.structure is None:
            object.__setattr__(self, "structure", self.counts)
        freeze_columns(self, -1, counts=np.int64, durations=np.int64, structure=np.int64)
        shape = (len(self.counts), len(self.symbols))
        if not shape == self.counts.shape == self.durations.shape == self.structure.shape:
            raise ValueError("VectorTable: executions x symbols expected")

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def total(self) -> I64:
        """Duration of every execution (ns)."""
        return np.asarray(self.durations.sum(axis=1), dtype=np.int64)


# ------------------------------------------------------------------- detect/


@dataclass(frozen=True)
class StateTest:
    """Every test of one state (or of the total), normal set against sample set.

    Durations in ns.  ``None`` where a figure is undefined (one execution has no
    standard deviation).

    Attributes
    ----------
    symbol : Symbol or None
        None for the total latency.
    normal_mean, sample_mean, normal_std : float
    average_threshold : float or None
        Algorithm 1, average rule: mean + t1 * std of the normal set.
    average_fires, probability_fires : bool
        The paper's two rules.
    normal_above, sample_above : float
        Algorithm 1, probability rule: share of executions above the normal mean.
    probability_threshold : float or None
        The t2 in force, None for ``auto`` (Fisher's exact test).
    new_state : bool
        Never seen (or never varying) in the normal set, present in the sample.
    p_value : float
        Family-wise adjusted p of the max-T permutation.
    effect : float
        sample_mean - normal_mean.
    effect_low, effect_high : float
        Bootstrap 95 % interval of the effect.
    flagged : bool
        By the rule in force.
    """

    symbol: Symbol | None
    normal_mean: float
    sample_mean: float
    normal_std: float
    average_threshold: float | None
    average_fires: bool
    normal_above: float
    sample_above: float
    probability_threshold: float | None
    probability_fires: bool
    new_state: bool
    p_value: float
    effect: float
    effect_low: float
    effect_high: float
    flagged: bool

    @property
    def name(self) -> str:
        """The symbol's name, or ``total``."""
        return "total" if self.symbol is None else self.symbol.name


@dataclass(frozen=True)
class Detection:
    """Outcome of the coarse detection over two sets.

    Attributes
    ----------
    rule : str
        ``gate`` or ``paper``: the one that decides ``flagged``.
    states : tuple of StateTest
        One per symbol, and last the total.
    flagged : bool
        Any state flagged.
    alpha : float
        Level of the gate.
    floor : float
        Effect floor (ns) below which nothing is flagged by the gate.
    detectable : float or None
        Smallest mean shift of the total (ns) that these sets could have shown at
        ``alpha``, None if no shift could.
    permutations : int
    enough : bool
        The sets are large enough for the gate to fire at all.
    needed : int
        Executions needed in the smaller set if not ``enough``.
    notes : tuple of str
    """

    rule: str
    states: tuple[StateTest, ...]
    flagged: bool
    alpha: float
    floor: float
    detectable: float | None
    permutations: int
    enough: bool
    needed: int
    notes: tuple[str, ...] = ()


# ------------------------------------------------------------------ cluster/


@dataclass(frozen=True, eq=False)
class Clustering:
    """Execution types of one set.

    Attributes
    ----------
    labels : int64 [n]
        Cluster of every execution, from 0, by size then canonical first member;
        never noise: see ``weak``.
    raw_labels : int64 [n]
        What the extraction said, -1 for noise, same numbering.
    weak : bool [n]
        Noise that joined its nearest cluster (or became one of its own).
    ordering : int64 [n]
        OPTICS ordering: positions of executions in order of visit.
    reachability : float64 [n]
        Per execution (not in visiting order), inf where undefined.
    method : str
        ``optics`` with its parameters, or ``single`` where there was nothing to cluster.
    notes : tuple of str
    """

    labels: I64
    raw_labels: I64
    weak: Bool
    ordering: I64
    reachability: F64
    method: str
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        freeze_columns(
            self,
            len(self.labels),
            labels=np.int64,
            raw_labels=np.int64,
            weak=np.bool_,
            ordering=np.int64,
            reachability=np.float64,
        )

    @property
    def size(self) -> int:
        """Number of clusters."""
        return int(self.labels.max()) + 1 if len(self.labels) else 0


@dataclass(frozen=True, eq=False)
class ClusterPairs:
    """Algorithm 2: the normal cluster that each sample cluster belongs to.

    Attributes
    ----------
    pair : int64 [sample clusters]
        Normal cluster.
    score : float64 [sample clusters]
        Silhouette of the merged labelling, NaN where there is one normal cluster.
    weak : bool [sample clusters]
        No candidate had a positive score: the arg max was taken.
    novel : bool [sample clusters]
        Farther from its pair than the pair's own members are from each other.
    notes : tuple of str
    """

    pair: I64
    score: F64
    weak: Bool
    novel: Bool
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        freeze_columns(
            self,
            len(self.pair),
            pair=np.int64,
            score=np.float64,
            weak=np.bool_,
            novel=np.bool_,
        )


@dataclass(frozen=True, eq=False)
class Outliers:
    """Which sample executions are outliers of their paired normal cluster.

    Attributes
    ----------
    score : float64 [sample]
        How far above the normal type that explains it best: root of the sum of
        squares of the shrunk z of every symbol and of the total.
    p_value : float64 [sample]
        Conformal p.
    anomalous : bool [sample]
        The verdict: Benjamini-Hochberg over the p-values, with the effect floor.
    paper : bool [sample]
        The paper's rule: any symbol above mean + k * std of the paired cluster.
    excess : int64 [sample]
        Duration minus the paired cluster's mean (ns).
    symbol : int64 [sample]
        Symbol (column of the vectors) with the largest score, -1 for the total.
    notes : tuple of str
    """

    score: F64
    p_value: F64
    anomalous: Bool
    paper: Bool
    excess: I64
    symbol: I64
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        freeze_columns(
            self,
            len(self.score),
            score=np.float64,
            p_value=np.float64,
            anomalous=np.bool_,
            paper=np.bool_,
            excess=np.int64,
            symbol=np.int64,
        )


# -------------------------------------------------------------------- align/


@dataclass(frozen=True, eq=False)
class Alignment:
    """A multiple alignment of critical paths.

    Attributes
    ----------
    rows : int32 [sequences, columns]
        Position of the segment within its own path, -1 for a gap.
    sequences : tuple of uint8 arrays
        The symbol codes of every row, degapped.
    durations : tuple of int64 arrays
        Nanoseconds of every segment of every row.
    tree : str
        Guide tree in Newick form, rows named by their index.
    score : float
        Sum-of-pairs score (natural-log units).
    notes : tuple of str
        One line each: what the aligner left out and why.
    """

    rows: I32
    sequences: tuple[U8, ...]
    durations: tuple[I64, ...]
    tree: str = ""
    score: float = 0.0
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        freeze_columns(self, len(self.sequences), rows=np.int32)
        if len(self.durations) != len(self.sequences):
            raise ValueError("Alignment: durations and sequences differ in number")

    @property
    def symbols(self) -> I32:
        """Symbol codes [sequences, columns], -1 for a gap."""
        result = np.full(self.rows.shape, -1, np.int32)
        for i, sequence in enumerate(self.sequences):
            present = self.rows[i] >= 0
            result[i, present] = sequence[self.rows[i, present]]
        return result

    @property
    def column_durations(self) -> I64:
        """Durations [sequences, columns], 0 for a gap (ns)."""
        result = np.zeros(self.rows.shape, np.int64)
        for i, durations in enumerate(self.durations):
            present = self.rows[i] >= 0
            result[i, present] = durations[self.rows[i, present]]
        return result


# ----------------------------------------------------------------- localize/


@dataclass(frozen=True, eq=False)
class ColumnStatistics:
    """What the normal group does in every column of an alignment.

    Attributes
    ----------
    probability : float64 [columns]
        Share of normal rows with the anomalous row's symbol there (gaps count).
    normal_symbol : int32 [columns]
        Most common normal symbol, -1 for gap.
    normal_probability : float64 [columns]
        Its share.
    mean, std : float64 [columns]
        Duration of the normal rows that have the anomalous row's symbol (ns);
        where it has a gap, of those with the most common symbol.  NaN if none.
    contribution : int64 [columns]
        ``normal rows * observed - sum of normal durations``: n times the column's
        part of the excess, so that it stays an integer and sums exactly.
    abnormal_state, abnormal_duration, missing : bool [columns]
        The paper's view.
    """

    probability: F64
    normal_symbol: I32
    normal_probability: F64
    mean: F64
    std: F64
    contribution: I64
    abnormal_state: Bool
    abnormal_duration: Bool
    missing: Bool

    def __post_init__(self) -> None:
        freeze_columns(
            self,
            len(self.probability),
            probability=np.float64,
            normal_symbol=np.int32,
            normal_probability=np.float64,
            mean=np.float64,
            std=np.float64,
            contribution=np.int64,
            abnormal_state=np.bool_,
            abnormal_duration=np.bool_,
            missing=np.bool_,
        )


@dataclass(frozen=True)
class Finding:
    """One difference between an anomalous execution and its normal group.

    Attributes
    ----------
    execution : int
        Position in the sample set.
    rank : int
        From 1, by contribution.
    kind : str
        ``new-state``, ``extra``, ``longer``, ``missing``, ``shorter``.
    symbol : Symbol
    detail : str
        Qualifier of the segments (irq name, who ran instead...).
    tid, comm
        The thread the time was spent on (or would have been, for ``missing``).
    begin, end : int
        Place in the sample's trace (ns).
    columns : tuple of (int, int)
        First column and one past the last, in the execution's alignment.
    observed, expected, contribution : float
        Nanoseconds: in this execution, on average in the normal group, difference.
    share : float
        Contribution over the execution's excess; NaN if that is not positive.
    probability : float
        Share of the normal group that has this state here.
    before : str
        What the path was doing just before, for the sentence.
    """

    execution: int
    rank: int
    kind: str
    symbol: Symbol
    detail: str
    tid: int
    comm: str
    begin: int
    end: int
    columns: tuple[int, int]
    observed: float
    expected: float
    contribution: float
    share: float
    probability: float
    before: str = ""


@dataclass(frozen=True)
class Cause:
    """Findings of several anomalous executions that share a cause.

    Attributes
    ----------
    sentence : str
        "4 of 11 executions, +30.1 ms each: waiting for a timer in `worker-#`..."
    findings : tuple of int
        Positions in `Comparison.findings`.
    executions : tuple of int
        Positions in the sample set, ascending.
    contribution : float
        Mean contribution per execution (ns).
    share : float
        Of the summed excess of these executions.
    """

    sentence: str
    findings: tuple[int, ...]
    executions: tuple[int, ...]
    contribution: float
    share: float


@dataclass(frozen=True, eq=False)
class Aligned:
    """One anomalous execution aligned with its normal group.

    The anomalous execution is the last row of the alignment.
    """

    execution: int
    normals: tuple[int, ...]
    left_out: int
    alignment: Alignment
    statistics: ColumnStatistics
    excess: float
    unexplained: float


# ------------------------------------------------------------------ pipeline


@dataclass(frozen=True)
class CompareSettings:
    """Everything that can change the outcome of a comparison.

    Attributes
    ----------
    rule : str
        ``gate`` or ``paper``: who decides the verdict.
    alpha : float
        Family-wise level of the gate.
    floor : float
        Least effect of interest, as a share of the normal mean.
    t1 : float
        Average rule: standard deviations.
    t2 : float or None
        Probability rule: ratio of shares; None for Fisher's exact test.
    y_reference : str
        Mean that sample executions are held against: ``a1`` (the paper's text) or
        ``a2`` (its pseudo-code).
    permutations : int
    cluster_method : str
    vector : str
        Alphabet of the vectors: ``thread`` or ``state``.
    outlier_k : float
        The paper's rule for single executions: standard deviations.
    outlier_level : float
        False discovery rate of the marked executions.
    group_limit : int
        Most normal executions that an anomalous one is aligned with.
    explain_limit : int
        Most anomalous executions that are aligned and explained.
    interrupts : bool
        The paths tell interrupt work apart; decided when they were extracted, kept
        here because a report says everything that could change its outcome.
    """

    rule: str = "gate"
    alpha: float = 0.01
    floor: float = 0.05
    t1: float = 1.5
    t2: float | None = None
    y_reference: str = "a1"
    permutations: int = 9999
    cluster_method: str = "optics"
    vector: str = "thread"
    outlier_k: float = 1.5
    outlier_level: float = 0.05
    group_limit: int = 50
    explain_limit: int = 50
    interrupts: bool = True


@dataclass(frozen=True, eq=False)
class Comparison:
    """The answer: every stage's outcome for one normal and one sample set.

    Attributes
    ----------
    verdict : str
        ``ok``, ``anomaly`` or ``inconclusive``.
    reasons : tuple of str
        One sentence each: why this verdict.
    warnings : tuple of str
        What a reader must know about the input (loss, differing kernels...).
    settings : mapping
        Everything that could change the outcome, as used.
    """

    verdict: str
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    normal: PathSet
    sample: PathSet
    normal_vectors: VectorTable
    sample_vectors: VectorTable
    detection: Detection
    normal_clusters: Clustering
    sample_clusters: Clustering
    pairs: ClusterPairs
    outliers: Outliers
    aligned: tuple[Aligned, ...]
    findings: tuple[Finding, ...]
    causes: tuple[Cause, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)


def field_names(table: type[Any]) -> tuple[str, ...]:
    """Return the field names of a model class, in order."""
    return tuple(f.name for f in fields(table))
