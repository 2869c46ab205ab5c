"""Looks at a recording: what its events, processors, processes and threads are and do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from critpath import __version__
from critpath.documents.look import (
    LOOK_FORMAT,
    LookCpu,
    LookDocument,
    LookEvent,
    LookInterrupt,
    LookLoss,
    LookProcess,
    LookThread,
    LookWait,
    SortKey,
)
from critpath.engines import Budget, require_room
from critpath.errors import InconclusiveError, UnspecifiedError
from critpath.executions import choose
from critpath.glance.gathering import Gathered, find_holders
from critpath.model import (
    I64,
    EventChunk,
    EventClass,
    EventRequest,
    Events,
    Kind,
    ReplayedRecording,
    State,
)
from critpath.read import KERNEL_EVENTS, Recording, Source
from critpath.schema.environment import add_counts
from critpath.schema.kinds import WAITS
from critpath.schema.notes import RepairedSwitches
from critpath.schema.ways import PACKETS, way_of_requests
from critpath.text.look import NO_SWITCHES
from critpath.text.notes import word_all
from critpath.timeline import RecordingOpener, replay_recording
from critpath.units import NS_PER_S

if TYPE_CHECKING:
    from critpath.progress import Stage
    from critpath.schema.notes import Remark

_SWITCHES: Final = next(of.names for of in KERNEL_EVENTS if of.kind is Kind.SWITCH)
_EVERY: Final = EventRequest(Kind.OTHER, ("*",))
# technical: bytes of a trace from which on its blocks are kept in a file, in this much memory
_LARGE, _ROOM = 1 << 28, 1 << 29
_QUANTILES: Final = (0.5, 0.99)  # technical: what is shown
_BLOCKED: Final = sorted(WAITS - {State.WAIT_CPU})
_RUN: Final = [State.RUN, State.RUN_USER, State.RUN_SYSCALL]


class _Counted(RecordingOpener):
    """Counts events by class, while they are read for something else."""

    def __call__(self) -> Source:
        source = super().__call__()
        self.counts = _Counts()
        # The last time that it is opened is the one that counts.
        source.watch(self.counts.add)
        return source


class _Counts:
    """How many events of each class there were."""

    def __init__(self) -> None:
        self._classes: Sequence[EventClass] = ()
        self._counts = np.zeros(0, np.int64)

    def add(self, chunk: EventChunk, classes: Sequence[EventClass]) -> None:
        """Count those of a chunk."""
        found = np.bincount(chunk.event_class)
        found[: len(self._counts)] += self._counts[: len(found)]
        if len(found) < len(self._counts):
            self._counts[: len(found)] = found
        else:
            self._counts = found
        self._classes = classes

    def listed(self, span: int) -> list[LookEvent]:
        """Return how many there were of each name, the most frequent first."""
        sums: dict[tuple[str, str], int] = {}
        for of, count in zip(self._classes, self._counts.tolist(), strict=False):
            sums[of.name, of.domain] = sums.get((of.name, of.domain), 0) + count
        listed = sorted(sums.items(), key=lambda item: (-item[1], item[0]))
        per_second = NS_PER_S / max(span, 1)
        return [
            LookEvent(*name, count, round(count * per_second, 3)) for name, count in listed if count
        ]


def look(
    path: Path,
    *,
    sort: SortKey = "cpu",
    most: int = 0,
    reader: str = "auto",
    max_memory: int = 0,
    begin: Callable[[], Stage] | None = None,
) -> LookDocument:
    """Look at a recording or a trace, in one pass over its events.

    Parameters
    ----------
    path : Path
    sort : str
        Of `SORTED_BY`; what is largest comes first.
    most : int
        Processes and threads to tell of; 0 for all.
    reader : str
    max_memory : int
        Bytes; 0 for as many as a small trace takes: of a large one a temporary file has the rest.
    begin : callable, optional
        As `RecordingOpener` has it.

    Raises
    ------
    UnreadableError
        If it cannot be read.
    """
    require_room(max_memory, 1)
    recording = Recording(path)
    opener = _Counted(recording, (*KERNEL_EVENTS, _EVERY), reader, ahead=True, begin=begin)
    with recording.keep():
        if any(name in recording.event_names for name in _SWITCHES):
            # One that was killed as it began has recorded no switch.
            with suppress(InconclusiveError):
                return _look_at_threads(recording, opener, sort, most, max_memory)
        with closing(opener()) as source:
            for _ in source:
                pass
            events = opener.tell_clocks(recording.add_manifest(source.finish()))
        return _describe(
            recording, events, opener.counts, sort=sort, warnings=(*recording.notes, NO_SWITCHES)
        )


def _look_at_threads(
    recording: Recording, opener: _Counted, sort: SortKey, most: int, max_memory: int
) -> LookDocument:
    size = sum(file.stat().st_size for trace in recording.traces for file in trace.files)
    budget = Budget.within(max_memory or (_ROOM if size > _LARGE else 0))
    with replay_recording(opener, recording, [], budget, recording.notes) as replayed:
        looking = Looking(replayed, sort, most)
        events = replayed.events
        document = _describe(
            *(recording, events, opener.counts),
            sort=sort,
            warnings=(*events.warnings, *replayed.warnings, *_note_repairs(events)),
        )
        looking.fill(document)
        return document


def _describe(
    recording: Recording,
    events: Events,
    counts: _Counts,
    *,
    sort: SortKey,
    warnings: tuple[Remark, ...],
) -> LookDocument:
    """Return what is known of a recording without a look at its threads."""
    return LookDocument(
        format=LOOK_FORMAT,
        version=__version__,
        source=str(recording),
        hosts=list(events.hosts),
        kernel=next((e.kernel_release for e in events.environment if e.kernel_release), ""),
        begin=events.begin,
        end=events.end,
        epoch_ns=events.clock.epoch,
        total=events.total,
        events=counts.listed(events.end - events.begin),
        losses=_sum_losses(events),
        sort=sort,
        executions=_suggest(recording, events),
        warnings=word_all(warnings),
    )


def _note_repairs(events: Events) -> list[Remark]:
    put = add_counts(events.environment, lambda entry: entry.switches_put_in)
    written = add_counts(events.environment, lambda entry: entry.switches_written)
    return [RepairedSwitches(put, put + written)] if put else []


def _sum_losses(events: Events) -> list[LookLoss]:
    found: dict[tuple[int, int, str], LookLoss] = {}
    for loss in events.losses:
        cpu = loss.cpu if loss.cpu >= 0 else None
        saved = loss.saved()
        begin, end = int(saved["begin"]), int(saved["end"])
        one = found.setdefault(
            (loss.host, loss.cpu, loss.reason),
            LookLoss(_host_of(events, loss.host), cpu, loss.reason, 0, 0, 0, begin, end),
        )
        one.events, one.packets = one.events + loss.events, one.packets + loss.packets
        one.times, one.begin, one.end = one.times + 1, min(one.begin, begin), max(one.end, end)
    return [found[key] for key in sorted(found)]


def _suggest(recording: Recording, events: Events) -> list[str]:
    """Return what an execution can be, what the recording suggests first."""
    kinds = {of.kind for of in events.classes}
    if Kind.SWITCH not in kinds:
        return []
    try:
        found = [choose(recording, None, events.without_rows).text]
    except UnspecifiedError as error:
        found = list(error.suggested)
    if way_of_requests(recording.event_names, *PACKETS):
        found.append("requests")
    if Kind.EXEC in kinds:
        found.append("process")
    return list(dict.fromkeys([*found, "thread"]))


def _host_of(events: Events, host: int) -> str:
    return events.hosts[host] if 0 <= host < len(events.hosts) else ""


class Looking:
    """Looks at what threads and processors did, in a recording that was replayed."""

    def __init__(self, replayed: ReplayedRecording, sort: SortKey, most: int) -> None:
        self._replayed, self._sort, self._most = replayed, sort, most
        self._events, self._workers = replayed.events, replayed.workers
        self._idle = self._workers.idle_cpu >= 0
        self._sums = Gathered(
            len(self._idle), len(replayed.processors), self._idle, self._events.end
        )
        for number in range(len(replayed.blocks)):
            tables = replayed.blocks[number]
            self._sums.add(tables.intervals(), tables.stolen(), tables.ran())
        self._sums.waits.finish()
        self._some = np.flatnonzero(~self._idle & (self._sums.end > self._sums.begin))
        # The last first thread of each process, by host and id.
        of = self._workers
        first = np.flatnonzero((of.tid == of.pid) & (of.pid > 0))
        keys = zip(of.host[first].tolist(), of.pid[first].tolist(), strict=True)
        self._leaders = dict(zip(keys, first.tolist(), strict=True))

    def fill(self, document: LookDocument) -> None:
        """Fill in what they did."""
        span = document.end - document.begin
        waited = int(self._sums.states[:, State.WAIT_CPU].sum())
        document.cpus, document.interrupts = self._cpus(span), self._interrupts()
        document.waiting = round(waited / max(span, 1), 6)
        if len(self._some):
            worst = self._some[np.argmax(self._sums.waits.length[self._some])]
            document.worst = self._longest(int(worst))
            self._name_rivals([document.worst], np.array([worst]))
        document.threads, document.further_threads = self._list_threads()
        document.processes, document.further_processes = self._list_processes()

    def _cpus(self, span: int) -> list[LookCpu]:
        sums = self._sums
        figures = zip(
            *(sums.busy.tolist(), sums.idle.tolist(), sums.interrupts.tolist()),
            *(sums.softirqs.tolist(), sums.taken.tolist()),
            strict=True,
        )
        return [
            LookCpu(
                host=_host_of(self._events, host),
                cpu=cpu,
                busy=busy,
                idle=idle,
                unobserved=span - busy - idle,
                interrupts=interrupts,
                softirqs=softirqs,
                turns=turns,
            )
            for (host, cpu), (busy, idle, interrupts, softirqs, turns) in sorted(
                zip(self._replayed.processors, figures, strict=True)
            )
        ]

    def _interrupts(self) -> list[LookInterrupt]:
        strings = self._events.strings
        found = [
            LookInterrupt(strings[detail], "IRQ" if state == State.IRQ else "SOFTIRQ", time)
            for (state, detail), time in self._sums.stolen.items()
        ]
        return sorted(found, key=lambda one: (-one.time, one.name))

    # ---------------------------------------------------------- threads and processes

    def _list_threads(self) -> tuple[list[LookThread], int]:
        """Return rows of threads, and how many more there are."""
        workers, strings = self._workers, self._events.strings
        groups = _Groups(self._sums, self._some, np.arange(len(self._some)))
        rows = []
        chosen = self._choose(groups)
        for at in chosen:
            worker = int(self._some[at])
            leader = self._leaders.get((int(workers.host[worker]), int(workers.pid[worker])), -1)
            rows.append(
                LookThread(
                    **self._figures(groups, at),
                    comm=strings[workers.name[worker]],
                    tid=int(workers.tid[worker]),
                    process=strings[workers.name[leader]] if leader >= 0 else "",
                )
            )
        self._name_rivals([row.worst for row in rows], groups.worst[chosen])
        return rows, len(groups.size) - len(rows)

    def _list_processes(self) -> tuple[list[LookProcess], int]:
        workers, strings, some = self._workers, self._events.strings, self._some
        # A thread whose process no event tells is one by itself; none has number 0.
        known = workers.pid[some] > 0
        keys = np.stack(
            [workers.host[some], known, np.where(known, workers.pid[some], some)], axis=1
        )
        of, places = np.unique(keys, axis=0, return_inverse=True)
        groups = _Groups(self._sums, some, places.ravel())
        rows = []
        chosen = self._choose(groups)
        for at in chosen:
            host, is_known, pid = of[at].tolist()
            first = int(groups.first[at])
            named = self._leaders.get((host, pid), first) if is_known else first
            rows.append(
                LookProcess(
                    **self._figures(groups, at),
                    comm=strings[workers.name[named]],
                    threads=int(groups.size[at]),
                )
            )
        self._name_rivals([row.worst for row in rows], groups.worst[chosen])
        return rows, len(groups.size) - len(rows)

    def _choose(self, groups: _Groups) -> list[int]:
        """Return the groups to tell of, in order."""
        order = np.lexsort((groups.first, -groups.cpu, -groups.keys[self._sort]))
        chosen: list[int] = order[: self._most or len(order)].tolist()
        return chosen

    def _figures(self, groups: _Groups, at: int) -> dict[str, Any]:
        """Return what the threads of a group did together."""
        workers, states, worst = self._workers, groups.states[at], int(groups.worst[at])
        pid = int(workers.pid[worst])
        longest = self._longest(worst)
        return {
            "host": _host_of(self._events, int(workers.host[worst])),
            "pid": pid if pid > 0 else None,
            "states": {State(s).name: int(states[s]) for s in np.flatnonzero(states).tolist()},
            "worst": longest,
            "wait_p50": int(groups.p50[at]) if longest else None,
            "wait_p99": int(groups.p99[at]) if longest else None,
            **{name: int(getattr(groups, name)[at]) for name in _SUMS},
        }

    def _longest(self, worker: int) -> LookWait | None:
        waits, workers = self._sums.waits, self._workers
        length, begin, cpu = (int(of[worker]) for of in (waits.length, waits.begin, waits.cpu))
        end, host = begin + length, int(workers.host[worker])
        if not length:
            return None
        return LookWait(
            begin=begin,
            end=end,
            lossy=any(
                loss.host == host and loss.begin < end and loss.end > begin
                for loss in self._events.losses
            ),
            cpu=cpu if cpu >= 0 else None,
            tid=int(workers.tid[worker]),
            comm=self._events.strings[workers.name[worker]],
        )

    def _name_rivals(self, longest: Sequence[LookWait | None], workers: I64) -> None:
        """Fill in who had the processor while these threads waited longest."""
        places = {of: at for at, of in enumerate(self._replayed.processors)}
        asked = list(zip(longest, self._workers.host[workers].tolist(), strict=True))
        windows = [
            (places.get((host, -1 if of.cpu is None else of.cpu), -1), of.begin, of.end)
            for of, host in asked
            if of is not None
        ]
        waits = [of for of, _ in asked if of is not None]
        holders = find_holders(self._replayed.blocks, windows, self._idle)
        for wait, holder in zip(waits, holders, strict=True):
            if holder.worker < 0:
                continue
            wait.rival_time, wait.others = holder.time, holder.others
            if self._idle[holder.worker]:
                wait.rival = "idle"
            else:
                wait.rival = self._events.strings[self._workers.name[holder.worker]]
                wait.rival_tid = int(self._workers.tid[holder.worker])


_SUMS: Final = (
    *("begin", "end", "cpu", "wait", "blocked", "turns", "migrations"),
    *("waits", "preempted", "unwoken", "woken", "wakes"),
)


class _Groups:
    """Threads, each by itself or those of a process together.

    Parameters
    ----------
    sums : Gathered
    workers : int64 [n]
        Those that anything is known of.
    group : int64 [n]
        Which group each is of; none is empty.
    """

    def __init__(self, sums: Gathered, workers: I64, group: I64) -> None:
        self.size = np.bincount(group)
        n = len(self.size)

        def total(column: I64) -> I64:
            found = np.zeros((n, *column.shape[1:]), np.int64)
            np.add.at(found, group, column[workers])
            return found

        self.states = total(sums.states)
        self.cpu, self.wait = self.states[:, _RUN].sum(axis=1), self.states[:, State.WAIT_CPU]
        self.blocked = self.states[:, _BLOCKED].sum(axis=1)
        self.turns, self.migrations = total(sums.turns), total(sums.migrations)
        self.waits, self.preempted = total(sums.waits.count), total(sums.waits.preempted)
        self.woken, self.wakes = total(sums.woken), total(sums.wakes)
        self.unwoken = total(sums.unwoken)
        order = np.lexsort((workers, group))
        heads = np.searchsorted(group[order], np.arange(n))
        self.first = workers[order][heads]
        ordered = workers[order]
        if n:  # numpy reduces no empty column
            self.begin = np.minimum.reduceat(sums.begin[ordered], heads)
            self.end = np.maximum.reduceat(sums.end[ordered], heads)
        # Of each group the thread that waited longest at once: of equals the first.
        order = np.lexsort((workers, -sums.waits.length[workers], group))
        self.worst = workers[order][heads]
        of = np.full(len(sums.begin), -1, np.int64)
        of[workers] = group
        self.p50, self.p99 = sums.waits.quantiles(of, n, _QUANTILES)
        self.keys: dict[SortKey, I64] = {
            "cpu": self.cpu,
            "wait": self.wait,
            "worst": sums.waits.length[self.worst],
            "blocked": self.blocked,
            "wakes": self.wakes,
            "migrations": self.migrations,
        }
