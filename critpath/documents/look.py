"""What is in a trace at a first look: what ``critpath path TRACE --look --format json`` writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Final, Literal

from critpath.documents.base import Number, Part, doc

LOOK_FORMAT: Final = "critpath/look/1"

# What rows are sorted by, the first by default.
SortKey = Literal["cpu", "wait", "worst", "blocked", "wakes", "migrations"]


class LookEvent(Part):
    """How often an event was recorded."""

    name: Annotated[str, doc("as the tracer spells it")]
    domain: Annotated[str, doc("kernel, ust or whatever the trace says")]
    count: Annotated[int, doc("how often")]
    per_second: Annotated[Number, doc("that over the whole span")]


class LookLoss(Part):
    """What was lost of one processor, for one reason."""

    host: Annotated[str, doc("of which host")]
    cpu: Annotated[int | None, doc("of which processor; null where that is not known")]
    reason: Annotated[str, doc("how it is known: discarded, damaged, truncated and others")]
    events: Annotated[int, doc("events, as far as they were counted")]
    packets: Annotated[int, doc("packets that are lost or damaged")]
    times: Annotated[int, doc("stretches in which something is missing")]
    begin: Annotated[int, doc("when the first begins (ns)")]
    end: Annotated[int, doc("when the last ends (ns)")]


class LookCpu(Part):
    """What a processor did: busy, idle and not observed add up to the span."""

    host: Annotated[str, doc("of which host")]
    cpu: Annotated[int, doc("its number")]
    busy: Annotated[int, doc("ns that threads had it")]
    idle: Annotated[int, doc("ns that none had it")]
    unobserved: Annotated[int, doc("ns of which no event tells who had it")]
    interrupts: Annotated[int, doc("ns, of busy and idle ones, that interrupts took")]
    softirqs: Annotated[int, doc("ns likewise, that deferred work took")]
    turns: Annotated[int, doc("how often a thread got it")]


class LookInterrupt(Part):
    """What an interrupt or deferred work took of all processors."""

    name: Annotated[str, doc("the device, or the softirq")]
    kind: Annotated[Literal["IRQ", "SOFTIRQ"], doc("which of the two")]
    time: Annotated[int, doc("ns in all")]


class LookWait(Part, kw_only=True):
    """The longest wait for a processor."""

    begin: Annotated[int, doc("when it began (ns)")]
    end: Annotated[int, doc("when its thread got a processor")]
    cpu: Annotated[int | None, doc("where it waited; null where that is not known")]
    tid: Annotated[int, doc("who waited")]
    comm: Annotated[str, doc("its name")]
    rival: Annotated[
        str, doc("who had that processor for most of it: a thread's name, or idle; '': not known")
    ] = ""
    rival_tid: Annotated[int | None, doc("its thread id; null: idle, or not known")] = None
    rival_time: Annotated[int, doc("ns of it that this one had")] = 0
    others: Annotated[int, doc("how many more threads had it meanwhile")] = 0
    lossy: Annotated[
        bool, doc("events were lost meanwhile: it may be shorter, or several waits")
    ] = False


class LookRow(Part, kw_only=True):
    """What a thread did, or the threads of a process together (times in ns)."""

    host: Annotated[str, doc("of which host")]
    pid: Annotated[int | None, doc("its process; null where no event tells")]
    comm: Annotated[str, doc("its name: of a process, that of its first thread")]
    begin: Annotated[int, doc("when it was first observed")]
    end: Annotated[int, doc("when it was last observed")]
    cpu: Annotated[int, doc("time on a processor, with interrupts in it")]
    turns: Annotated[int, doc("how often it got one")]
    migrations: Annotated[int, doc("how often it got another one than the time before")]
    wait: Annotated[int, doc("time in which it could run and waited for a processor")]
    waits: Annotated[int, doc("how often it did")]
    preempted: Annotated[int, doc("of these, how often as it had to leave a processor")]
    wait_p50: Annotated[int | None, doc("median of these waits; null: none")]
    wait_p99: Annotated[int | None, doc("99 % of them were as long, or shorter")]
    worst: Annotated[LookWait | None, doc("the longest")]
    blocked: Annotated[int, doc("time in which it slept")]
    unwoken: Annotated[int, doc("of that, in sleeps that the trace's end cut")]
    woken: Annotated[int, doc("sleeps that a wake ended")]
    wakes: Annotated[int, doc("sleeps of others that it ended")]
    states: Annotated[dict[str, int], doc("time in each state that it was in")]


class LookThread(LookRow, kw_only=True):
    """What a thread did: one life of a thread id (times in ns)."""

    tid: Annotated[int, doc("its id")]
    process: Annotated[str, doc("name of its process, '' where that is not known")]


class LookProcess(LookRow, kw_only=True):
    """What the threads of a process did together (times in ns)."""

    threads: Annotated[int, doc("how many of them were observed")]


_TIMES: Final = frozenset(
    {"begin", "end", "cpu", "wait", "wait_p50", "wait_p99", "blocked", "unwoken"}
)
_FIRST: Final = ("host", "pid", "tid", "comm")


def flatten_rows(rows: Sequence[LookRow]) -> Iterator[dict[str, str | int | None]]:
    """Yield rows of one value a column: the keys of the JSON, times with their unit."""
    states = sorted({name for row in rows for name in row.states})
    for row in rows:
        names = [name for name in row.__struct_fields__ if name not in {"states", "worst"}]
        cells: dict[str, str | int | None] = {}
        for name in sorted(names, key=[*_FIRST, *names].index):
            cells[f"{name}_ns" if name in _TIMES else name] = getattr(row, name)
        for name in LookWait.__struct_fields__:
            unit = "_ns" if name in {"begin", "end", "rival_time"} else ""
            cells[f"worst_{name}{unit}"] = getattr(row.worst, name) if row.worst else None
        yield cells | {f"{name}_ns": row.states.get(name, 0) for name in states}


class LookDocument(Part, kw_only=True):
    """What critpath path --look --format json writes."""

    format: Annotated[Literal["critpath/look/1"], doc("name and version of this format")]
    version: Annotated[str, doc("version of critpath that wrote it")]
    source: Annotated[str, doc("the trace, as it was named")]
    hosts: Annotated[list[str], doc("whose trace it is")]
    kernel: Annotated[str, doc("release of the kernel, '' where the trace does not say")]
    begin: Annotated[int, doc("first event, in ns of the trace's clock")]
    end: Annotated[int, doc("last event")]
    epoch_ns: Annotated[int, doc("to add for ns since 1970; 0: not known")]
    total: Annotated[int, doc("events in it")]
    events: Annotated[list[LookEvent], doc("by their number, the most frequent first")]
    losses: Annotated[list[LookLoss], doc("what is missing; empty where nothing is")]
    cpus: Annotated[list[LookCpu], doc("in the order of their numbers")] = []
    interrupts: Annotated[list[LookInterrupt], doc("by their time")] = []
    waiting: Annotated[Number, doc("how many threads waited for a processor, on average")] = 0
    worst: Annotated[LookWait | None, doc("the longest wait of all threads; null: none")] = None
    sort: Annotated[SortKey, doc("what processes and threads are sorted by")]
    processes: Annotated[list[LookProcess], doc("all, or as many as were asked for")] = []
    threads: Annotated[list[LookThread], doc("likewise")] = []
    further_processes: Annotated[int, doc("how many more there are")] = 0
    further_threads: Annotated[int, doc("how many more there are")] = 0
    executions: Annotated[
        list[str], doc("what --execution can be of this trace; quoted as it takes it")
    ] = []
    warnings: Annotated[list[str], doc("what a reader must know, in sentences")] = []
