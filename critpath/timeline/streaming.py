"""Replays a recording as a stream, in as many passes as it takes to know what is assumed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import field, fields, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from critpath import clocks
from critpath.engines import Budget
from critpath.errors import UnreadableError
from critpath.executions import Prefilter, ProcessPlaces
from critpath.model import (
    Block,
    BlockStore,
    Events,
    Kind,
    PackedBlock,
    ReplayedRecording,
    Timelines,
)
from critpath.model.task_states import prev_states
from critpath.read import KERNEL_EVENTS, OutOfOrder, Recording
from critpath.records import dataclass
from critpath.schema.environment import name_timers
from critpath.schema.ways import RECORD_NEXT, SOCKETS
from critpath.timeline.after_gaps import NOTHING, Resumed, find_resumed
from critpath.timeline.functions import FunctionEvents
from critpath.timeline.holders import find_holds
from critpath.timeline.missing_switches import MissingSwitches, insert_switches
from critpath.timeline.network import linked_packets, network_events
from critpath.timeline.opening import RecordingOpener
from critpath.timeline.replay import NoSwitchesError, Replayer
from critpath.timeline.resources import PERIOD_TIMER, ResourceEvents

if TYPE_CHECKING:
    from critpath.executions import Specification
    from critpath.model import Loss
    from critpath.read import Source
    from critpath.requests import ActivityEvents
    from critpath.timeline.missing_switches import Insertions


import errno
import os
import sys
import tempfile
from io import BufferedRandom
from typing import Any, NamedTuple

import numpy as np

from critpath.errors import UsageError
from critpath.model import I64
from critpath.model.packing import BufferPool, FetchedBlock, PackedTable
from critpath.model.timelines import Columns
from critpath.schema.notes import NotRecorded, RecordingInMemory, Remark, Unrecorded


@contextmanager
def replay_recording(
    opener: RecordingOpener,
    recording: Recording,
    specifications: Sequence[Specification],
    budget: Budget,
    remarks: tuple[Remark, ...],
    way: str = SOCKETS,
) -> Iterator[ReplayedRecording]:
    """Replay a recording; `remarks` on it were made before anything was read."""
    try:
        replayed = replay_stream(
            opener,
            replace(assume_declared(recording), addresses=recording.addresses, way=way),
            specifications,
            budget,
            complete=lambda events: opener.tell_clocks(recording.add_manifest(events)),
        )
    except NoSwitchesError as error:
        tool = str(recording.manifest.recorder.get("name", ""))
        if tool and tool in RECORD_NEXT:
            error.do = f"record with: {RECORD_NEXT[tool]}"
        raise
    with closing(replayed.blocks):
        warnings = (
            *remarks,
            *find_not_recorded(recording, replayed.events, replayed.present),
            *replayed.events.warnings,
        )
        if budget.spills and opener.whole:
            warnings += (RecordingInMemory(str(recording), opener.whole),)
        places = ProcessPlaces(replayed.events, recording.groups)
        events = replace(replayed.events, warnings=warnings)
        made = [replace(replayed, events=events, places=places)]
        del events
        del replayed
        yield made.pop()


# -------------------------------------------------- replaying a recording as a stream


# technical: order, losses, kinds of events that never come and missing switches are found out
# once each, and what is put in or lost may show another: more passes find nothing new.
_MOST_PASSES: Final = 6


@dataclass(frozen=True)
class Assumptions:
    """What a pass takes for true before it begins.

    Attributes
    ----------
    waking, syscalls : bool
        Whether there are ``sched_waking`` and entries of system calls.
    losses : tuple of Loss
    searched : bool
        Whether switches contradict each other, so that missing ones are looked for.
    insertions : Insertions or None
        Switches to put in; None before the search.
    strings : sequence of str
        What codes in them mean.
    addresses : frozenset of int
        The host's own.
    way : str
        What tells of sockets, where requests are asked for.
    resumed : Resumed or None
        What was going on at the ends of gaps; None before the search.
    """

    waking: bool
    syscalls: bool
    losses: tuple[Loss, ...] = ()
    searched: bool = False
    insertions: Insertions | None = field(default=None, compare=False)
    strings: Sequence[str] = field(default=(), compare=False)
    addresses: frozenset[int] = frozenset()
    way: str = SOCKETS
    resumed: Resumed | None = field(default=None, compare=False)


def assume_declared(recording: Recording) -> Assumptions:
    """Return what the metadata makes likely: nothing is lost, and what is declared comes."""
    names = recording.event_names
    return Assumptions(_declares(names, Kind.WAKING), _declares(names, Kind.SYSCALL_ENTRY))


def _declares(names: Collection[str], kind: Kind) -> bool:
    patterns = [p for wanted in KERNEL_EVENTS if wanted.kind is kind for p in wanted.names]
    return any(fnmatchcase(name, p) for name in names for p in patterns)


# technical: bytes of blocks that stay in memory where no limit is given, of some 1.5 M events; and
# what has to be free where temporary files are, for the others to go there.
_HELD: Final = 16 << 20
_ROOM: Final = 1 << 30  # technical


def _make_store(budget: Budget) -> BlockStore:
    return SpilledBlocks() if budget.spills else SpilledBlocks(_HELD, limited=False)


def replay_stream(
    opener: RecordingOpener,
    assumed: Assumptions,
    specifications: Collection[Specification],
    budget: Budget,
    *,
    complete: Callable[[Events], Events] = lambda events: events,
) -> ReplayedRecording:
    """Replay a recording, as often as it takes to know what has to be known before."""
    for _ in range(_MOST_PASSES):
        blocks = _make_store(budget)
        try:
            if assumed.resumed is None:
                assumed, source = _search_gaps(opener, assumed)
            else:
                source = opener()
            with closing(source):
                prefilter = Prefilter(specifications, source.gaps, blocks.keep)
                done = _replay_once(source, assumed, prefilter, blocks, budget, complete)
            if isinstance(done, ReplayedRecording):
                return done
            assumed = done
            blocks.close()
            if assumed.searched and assumed.insertions is None:
                with closing(opener()) as source:
                    assumed = _find_missing_switches(source, assumed, complete)
        except OutOfOrder as reason:
            # What was looked for was looked for in the wrong order.
            opener.sort_whole(reason)
            assumed = replace(assumed, searched=False, insertions=None, resumed=None)
        except BaseException:
            blocks.close()
            raise
        blocks.close()
    raise UnreadableError(
        "the recording is another one whenever it is read",
        "wait until it is written, and copied whole",
    )


def _search_gaps(opener: RecordingOpener, assumed: Assumptions) -> tuple[Assumptions, Source]:
    """Look for what was going on at the end of each gap; return the source to read next, too."""
    source = opener()
    if not len(source.gaps):
        return replace(assumed, resumed=NOTHING), source
    with closing(source):
        found = find_resumed(iter(source), source.classes, source.gaps)
    return replace(assumed, resumed=found), opener()


def collect_sockets(
    source: Source, assumed: Assumptions, *, every: bool = False, links: bool = False
) -> ActivityEvents:
    """Return what notes a recording's sockets: for links alone, or with all that threads do."""
    from critpath.requests import ActivityEvents  # noqa: PLC0415 - start-up time

    # Behind the masks: what a thread's previous state is that could go on.
    runnable = prev_states(source.hosts, source.environment)[:, 2:]
    # Between hosts it matters when packets leave: a send is told when its call ends.
    kept = {"leaving": len(source.hosts) > 1, "every": every, "sockets": links, "sleeps": links}
    return ActivityEvents(
        runnable, waking=assumed.waking, way=assumed.way, gaps=source.gaps, **kept
    )


def _find_missing_switches(
    source: Source, assumed: Assumptions, complete: Callable[[Events], Events]
) -> Assumptions:
    """Look for switches that the kernel left out; the losses come to light as well."""
    search = MissingSwitches(len(source.hosts))
    for chunk in source:
        search.feed(chunk, source.classes)
    about = source.finish()
    found = search.finish(about.losses, source.gaps)
    return replace(
        assumed, insertions=found, strings=source.strings(), losses=complete(about).losses
    )


def _replay_once(
    source: Source,
    assumed: Assumptions,
    prefilter: Prefilter,
    blocks: BlockStore,
    budget: Budget,
    complete: Callable[[Events], Events],
) -> ReplayedRecording | Assumptions:
    """Return what was replayed, or what to assume instead."""
    put = assumed.insertions
    functions = FunctionEvents()
    replayer = Replayer(
        hosts=source.hosts,
        environment=source.environment,
        losses=assumed.losses,
        code=source.code,
        text=source.text,
        has_waking=assumed.waking,
        has_syscalls=assumed.syscalls,
        addresses=assumed.addresses,
        gaps=source.gaps,
        resumed=assumed.resumed or NOTHING,
    )
    if put is None:
        chunks = iter(source)
    else:
        put = put.recoded(assumed.strings.__getitem__, source.code)
        chunks = insert_switches(iter(source), put, source.classes)
    rows = 0
    timers = name_timers(source.environment)
    ends = [at for at, name in timers.items() if name == PERIOD_TIMER]
    resources = ResourceEvents(ends)
    # None or one: what threads do with sockets and to each other, where that is asked for.
    several = len(source.hosts) > 1
    kept = {"every": prefilter.slices, "links": not prefilter.requests}
    collect = partial(collect_sockets, source, assumed, **kept)
    sockets = [collect()] if prefilter.requests or several else []
    for chunk in chunks:
        prefilter.feed(chunk, source.classes)
        resources.feed(chunk, source.classes)
        functions.feed(chunk, source.classes)
        for each in sockets:
            each.feed(chunk, source.classes)
        replayer.feed(chunk, source.classes)
        if put is None and replayer.contradicted and not source.filled:
            return replace(assumed, searched=True)
        if replayer.waiting >= budget.rows:
            rows += replayer.waiting
            blocks.append(replayer.cut())
    about = source.finish()
    if put is not None and len(put):
        about = replace(about, environment=(*about.environment, put.counted))
    if put is not None:
        about = replace(about, warnings=(*about.warnings, *put.warnings))
    events = complete(about)
    found = replace(
        assumed,
        losses=events.losses,
        waking=Kind.WAKING in replayer.present,
        syscalls=Kind.SYSCALL_ENTRY in replayer.present,
    )
    if found != assumed:
        return found
    rows += replayer.waiting
    blocks.append(replayer.finish(events.end))
    loaded = replayer.load(events.end)
    events = replace(prefilter.events(events), strings=tuple(source.strings()))
    events = replace(events, environment=(*events.environment, loaded))
    workers = replayer.workers()
    holds = find_holds(events, replayer.holders(), workers, events.strings)
    if holds.links:
        events = replace(events, environment=(*events.environment, holds.counted))
    collected = [each.finish(workers, events.strings) for each in sockets]
    receipts, messages = clocks.link_hosts(collected[0], workers, events) if several else ((), None)
    return ReplayedRecording(
        events,
        blocks,
        workers,
        replayer.processors,
        rows,
        linked_packets(network_events(events), replayer.network()),
        holds.links,
        replayer.warnings,
        resources.finish(events.end),
        collected[0] if collected else None,
        receipts=receipts,
        messages=messages,
        functions=functions.finish(events.end),
        parents=read_parents(events),
        present=replayer.present,
    )


def read_parents(events: Events) -> I64:
    """Return which process began each, as the statedump and then forks say, in order.

    Returns
    -------
    int64 [n, 3]
        Host, process id and that of its parent.
    """
    parts = [np.zeros((0, 3), np.int64)]
    for kind, child, process, parent in (
        (Kind.STATEDUMP, "tid", "pid", "ppid"),
        (Kind.FORK, "child_tid", "child_pid", "parent_pid"),
    ):
        wanted = [i for i, one in enumerate(events.classes) if one.kind == kind]
        rows = np.flatnonzero(np.isin(events.event_class, wanted))
        tid, mine, whose = (events.column(rows, name) for name in (child, process, parent))
        leads = np.flatnonzero((tid == mine) & (whose > 0) & (mine > 0))
        parts.append(np.column_stack([events.hosts_of(rows[leads]), mine[leads], whose[leads]]))
    return np.concatenate(parts)


def read_timelines(
    source: Path,
    reader: str = "auto",
    *,
    begin: int | None = None,
    end: int | None = None,
    max_memory: int = 0,
) -> tuple[Events, Timelines]:
    """Read what is known of a recording, and what every thread of it did, into memory.

    Parameters
    ----------
    begin, end : int or None
        A window (ns): only rows that overlap it are there, each with the begin and end that it
        has; those of other threads and processors are none.
    max_memory : int
        Bytes that the recording may take meanwhile; 0 for no limit.
    """
    recording = Recording(source)
    opener = RecordingOpener(recording, KERNEL_EVENTS, reader)
    budget = Budget.within(max_memory)
    with replay_recording(opener, recording, [], budget, recording.notes) as replayed:
        return replayed.events, _take_window(replayed, begin, end)


def _take_window(replayed: ReplayedRecording, begin: int | None, end: int | None) -> Timelines:
    """Return the rows of all blocks that overlap a window, by their owners."""
    limits = np.iinfo(np.int64)
    low = limits.min if begin is None else begin
    high = limits.max if end is None else end
    owners = (len(replayed.workers), len(replayed.processors), len(replayed.processors))
    tables: tuple[list[Columns], ...] = ([], [], [])
    for place, cut in enumerate(replayed.blocks.cuts.tolist()):
        if cut < low:
            continue
        block = replayed.blocks[place]
        for rows, columns in zip(
            tables, (block.intervals(), block.stolen(), block.ran()), strict=True
        ):
            start, begins, ends, *rest = columns
            chosen = np.flatnonzero((ends > low) & (begins < high))
            owner = np.repeat(np.arange(len(start) - 1), np.diff(start))[chosen]
            rows.append((owner, *(column[chosen] for column in (begins, ends, *rest))))
    names = [field.name for field in fields(Block) if field.name != "cut"]
    joined = [c for n, rows in zip(owners, tables, strict=True) for c in _join_rows(rows, n)]
    return Timelines(
        workers=replayed.workers,
        **dict(zip(names, joined, strict=True)),
        processors=replayed.processors,
        strings=tuple(replayed.events.strings),
        losses=replayed.events.losses,
        warnings=replayed.warnings,
        packets=replayed.packets,
        holds=replayed.holds,
        receipts=replayed.receipts,
    )


def _join_rows(parts: Sequence[Columns], owners: int) -> Columns:
    """Return where the rows of each owner start, and the columns of parts in order of time."""
    owner, *columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(owner, kind="stable")
    start = np.searchsorted(owner[order], np.arange(owners + 1))
    return (start.astype(np.int64), *(column[order] for column in columns))


# Blocks that do not fit in memory.


class _Spilled(NamedTuple):
    """A block in the file: where each table begins, its owners, rows and bytes."""

    cut: int
    base: int
    places: tuple[tuple[int, int, int, int], ...]


class SpilledBlocks:
    """Blocks in a temporary file without a name (`critpath.model.Blocks`).

    The file is made where ``TMPDIR`` says and takes 10 to 15 bytes an event.

    Parameters
    ----------
    held : int
        Bytes of the first blocks, which stay in memory.
    limited : bool
        Whether memory is: otherwise blocks stay there, too, that the file has no room for.

    Raises
    ------
    UsageError
        If the file cannot be made, or the place has no more room.
    """

    def __init__(self, held: int = 0, *, limited: bool = True) -> None:
        # Python goes elsewhere if it cannot write where TMPDIR says: perhaps into memory.
        self._place = os.environ.get("TMPDIR", "")
        self._file: BufferedRandom | None = None
        self._held, self._limited = held, limited
        self._blocks: list[PackedBlock | _Spilled] = []
        self._buffers = BufferPool()
        if limited:
            self._open()

    def _open(self) -> BufferedRandom:
        if self._file is None:
            try:
                self._place = self._place or tempfile.gettempdir()
                self._file = tempfile.TemporaryFile(prefix="critpath-", dir=self._place)  # noqa: SIM115 - closed by close()
            except OSError as error:
                raise self._no_room(error) from error
        return self._file

    def append(self, block: PackedBlock) -> None:
        """Keep the next block."""
        self._held -= sum(len(table.data) for table in block.tables)
        if self._held >= 0:
            self._blocks.append(block)
            return
        try:
            self._blocks.append(self._spill(block))
        except UsageError:
            if self._limited:
                raise
            self._blocks.append(block)
            self._held = sys.maxsize

    def _spill(self, block: PackedBlock) -> _Spilled:
        begins = self._write(tuple(table.data for table in block.tables))
        places = (
            (begin, table.owners, table.rows, len(table.data))
            for begin, table in zip(begins, block.tables, strict=True)
        )
        return _Spilled(block.cut, block.base, tuple(places))

    def _write(self, columns: Columns) -> list[int]:
        """Write columns into the file; return where each begins."""
        file, begins = self._open(), []
        try:
            free = os.fstatvfs(file.fileno())
            scarce = not self._limited and free.f_bavail * free.f_frsize < _ROOM
            begin = file.seek(0, os.SEEK_END)
            for column in columns:
                file.write(column.data)
                begins.append(begin)
                begin += column.nbytes
            file.flush()
        except OSError as error:
            raise self._no_room(error) from error
        if scarce:  # others need some, too
            self._held = sys.maxsize
        return begins

    def keep(self, columns: Columns) -> Callable[[], Columns]:
        """Keep some columns beside the blocks; return what gives them back."""
        self._held -= sum(column.nbytes for column in columns)
        if self._held >= 0:
            return lambda: columns
        try:
            begins = self._write(columns)
        except UsageError:
            if self._limited:
                raise
            self._held = sys.maxsize
            return lambda: columns
        kinds = [(column.dtype, len(column)) for column in columns]
        return lambda: tuple(
            self._fill(np.empty(count, kind), begin)
            for begin, (kind, count) in zip(begins, kinds, strict=True)
        )

    @property
    def cuts(self) -> I64:
        """The cut of every block (ns)."""
        return np.array([block.cut for block in self._blocks], np.int64)

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, index: int) -> FetchedBlock:
        block = self._blocks[index]
        fetch: Callable[[int], PackedTable] = (
            block.tables.__getitem__
            if isinstance(block, PackedBlock)
            else partial(self._read, block.places)
        )
        return FetchedBlock(block.cut, block.base, fetch, self._buffers.take)

    def _read(self, places: Sequence[tuple[int, int, int, int]], table: int) -> PackedTable:
        begin, owners, rows, size = places[table]
        return PackedTable(owners, rows, self._fill(self._buffers.take(size), begin))

    def _fill(self, data: np.ndarray[Any, Any], begin: int) -> np.ndarray[Any, Any]:
        file = self._open()
        try:
            file.seek(begin)
            read = file.readinto(data.data)
        except OSError as error:
            raise self._no_room(error) from error
        if read != data.nbytes:
            raise self._no_room(OSError(errno.EIO, os.strerror(errno.EIO)))
        return data

    def close(self) -> None:
        """Free the blocks' room."""
        self._blocks.clear()
        if self._file is not None:
            self._file.close()

    def _no_room(self, error: OSError) -> UsageError:
        where = f" in {self._place}" if self._place else ""
        return UsageError(
            f"the temporary file of --max-memory{where}: {error.strerror or error}",
            "set TMPDIR to a directory that has room (10 to 15 bytes an event)",
        )


# -------------------------------------------------- what a trace lacks: nobody asked for it

_WAKES: Final = {Kind.WAKING, Kind.WAKEUP}
_INTERRUPTS: Final = {Kind.IRQ_ENTRY, Kind.SOFTIRQ_ENTRY, Kind.TIMER_ENTRY, Kind.VECTOR_ENTRY}
# What traces call who wrote them, where no manifest does.
_TRACERS: Final = {"perf": "perf.data", "lttng-modules": "lttng"}


# Of which tools a file describes events that were not asked for, or only those that occurred.
_DECLARE_OTHERS: Final = {"trace.dat", "ftrace's text", "Perfetto"}


def find_not_recorded(
    recording: Recording, events: Events, present: Collection[Kind]
) -> tuple[NotRecorded, ...]:
    """Return a note on what a recording has not, if anything.

    `events` has all classes that it declares; of kinds `present` at least one event came.
    """
    tool = _find_tool(recording, events)
    declared = {of.kind for of in events.classes}
    missing = tuple(_find_missing(events, present if tool in _DECLARE_OTHERS else declared))
    if tool in _DECLARE_OTHERS:
        missing = tuple(of for of in missing if of != "exits")  # there may have been none
    return (NotRecorded(missing, tool),) if missing else ()


def _find_missing(events: Events, kinds: Collection[Kind]) -> Iterator[Unrecorded]:
    if _WAKES.isdisjoint(kinds):
        yield "wakes"
    for of in events.classes:
        if of.kind == Kind.SWITCH:
            types = dict(zip(of.fields, of.types, strict=True))
            if types.get("prev_state", "absent") == "absent":
                yield "states"
                break
    if _INTERRUPTS.isdisjoint(kinds):
        yield "interrupts"
    if Kind.EXIT not in kinds:
        yield "exits"


def _find_tool(recording: Recording, events: Events) -> str:
    name = str(recording.manifest.recorder.get("name", ""))
    if name and name in RECORD_NEXT:
        return name
    tracers = (of.tracer_name or "" for of in events.environment)
    return next((_TRACERS[name] for name in tracers if name in _TRACERS), "")
