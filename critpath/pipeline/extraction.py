"""From recordings to the critical path of every execution."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from critpath.errors import UnreadableError, UsageError
from critpath.executions.find import find_executions, require_events
from critpath.executions.prefilter import Prefilter
from critpath.executions.specification import parse_specification
from critpath.model import Blocks, EventRequest, Events, Kind, PackedBlock, PackedBlocks
from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.metadata.schema import get_event_names
from critpath.read.recording import read_events
from critpath.read.streaming import EventStream, OutOfOrder, split_into_chunks
from critpath.text import notes
from critpath.timeline.blocks import SpilledBlocks
from critpath.timeline.clocks import align_hosts
from critpath.timeline.missing_switches import (
    MissingSwitches,
    with_insertions,
    with_missing_switches,
)
from critpath.timeline.network import linked_packets, network_events
from critpath.timeline.replay import Replayer
from critpath.units import plural

if TYPE_CHECKING:
    from critpath.executions.specification import Specification
    from critpath.model import (
        EventChunk,
        EventClass,
        Loss,
        Manifest,
        PathSet,
        Timelines,
        VectorTable,
        Workers,
    )
    from critpath.pipeline.limits import Budget
    from critpath.read.clocks import Trace
    from critpath.timeline.missing_switches import Insertions

Progress = Callable[[str], None]


@dataclass(frozen=True)
class ExtractSettings:
    """How recordings become paths: plain values, which go to other processes as they are.

    Attributes
    ----------
    specification : str or None
        What an execution is (``--execution``); None for what a recording says of itself.
    reader : str
        ``auto``, ``native`` or ``babeltrace2``.
    interrupts : bool
        Take interrupt work out of running time.
    max_memory : int
        Bytes that one recording may take (``--max-memory``); 0 for no limit.
    ahead : bool
        Decode in a thread of its own: where other recordings are not read at the same time.
    """

    specification: str | None = None
    reader: str = "auto"
    interrupts: bool = True
    max_memory: int = 0
    ahead: bool = False


def extract_recording(
    recording: Path, settings: ExtractSettings, progress: Progress | None = None
) -> Iterator[PathSet]:
    """Extract the critical path of every execution of one recording.

    Yields
    ------
    PathSet
        One, or several of the same recording, in order, that belong together.  Whoever
        does not take all of them closes the generator: it may hold a temporary file.

    Raises
    ------
    UnreadableError, UsageError
        As the readers and finders do.
    """
    from critpath.executions.find import add_label, choose_specification
    from critpath.executions.marker import MARKER_EVENTS
    from critpath.executions.specification import get_event_requests
    from critpath.pipeline.limits import Budget
    from critpath.pipeline.walking import walked
    from critpath.read.event_names import KERNEL_EVENTS
    from critpath.read.manifest import open_manifest
    from critpath.read.recording import Description, find_traces

    tell = progress or (lambda _: None)
    manifest, said = open_manifest(recording)
    traces = find_traces(recording)
    described = [Description(trace) for trace in traces]
    names = sorted({name for of in described for name in of.events})

    def opener(more: Sequence[EventRequest]) -> Opener:
        return Opener(
            recording, traces, (*KERNEL_EVENTS, *more), settings.reader, ahead=settings.ahead
        )

    def marks() -> Events:
        return few_events(opener(MARKER_EVENTS), [parse_specification("marker")])

    possible = any(name in names for entry in MARKER_EVENTS for name in entry.names)
    text, how = choose_specification(
        settings.specification, manifest.execution, recording, names, marks if possible else None
    )
    chosen, labelled = add_label(parse_specification(text), [of.texts for of in described])
    recorded = _Recorded(recording, traces, manifest, (*said, *how, *labelled))
    budget = Budget.within(settings.max_memory)
    with _naming(recording):
        # Before anything is read: what is misspelt is told at once.
        require_events(chosen, names)
    with _replayed(opener(get_event_requests(chosen)), recorded, [chosen], budget) as replayed:
        with _naming(recording):
            executions = find_executions(
                replayed.events,
                chosen,
                names,
                manifest.runs,
                interleaved=bool(manifest.interleaved),
            )
        tell(f"walking {plural(len(executions), 'critical path')}")
        yield from walked(
            replayed, executions, str(recording), text, budget, interrupts=settings.interrupts
        )


@contextmanager
def _naming(recording: Path) -> Iterator[None]:
    """Say of which recording it is that an event or a field is missing in."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{recording}: {error.what}", error.do) from None


@dataclass(frozen=True)
class _Recorded:
    """A recording, and what has to be said of it before anything is read."""

    path: Path
    traces: Sequence[Trace]
    manifest: Manifest
    notes: tuple[str, ...]


@contextmanager
def _replayed(
    opener: Opener, recorded: _Recorded, specifications: Sequence[Specification], budget: Budget
) -> Iterator[Replayed]:
    from critpath.read.manifest import add_manifest

    replayed = replay_stream(
        opener,
        expected(recorded.traces),
        specifications,
        budget,
        complete=partial(add_manifest, manifest=recorded.manifest),
    )
    with closing(replayed):
        said = (*recorded.notes, *replayed.events.warnings)
        if budget.spills and opener.whole:
            said += (notes.recording_in_memory(str(recorded.path), opener.whole),)
        yield replace(replayed, events=replace(replayed.events, warnings=said))


def read_timelines(source: Path, reader: str = "auto") -> tuple[Events, Timelines]:
    """Read the kernel's events of a recording, and what every thread did, into memory."""
    from critpath.read.event_names import KERNEL_EVENTS
    from critpath.read.manifest import add_manifest, open_manifest
    from critpath.read.recording import read_events
    from critpath.timeline.clocks import align_hosts
    from critpath.timeline.missing_switches import with_missing_switches
    from critpath.timeline.replay import replay

    manifest, _ = open_manifest(source)
    events = with_missing_switches(read_events(source, KERNEL_EVENTS, reader=reader))
    events = add_manifest(align_hosts(events), manifest)
    return events, replay(events)


def thread_paths(
    source: Path,
    *,
    tid: int | None,
    comm: str | None,
    begin: int | None,
    end: int | None,
    reader: str = "auto",
    interrupts: bool = True,
    max_memory: int = 0,
) -> PathSet:
    """Extract the path of threads over their whole life in the trace, or a window of it.

    Parameters
    ----------
    source : Path
        A recording or a CTF trace.
    tid, comm : int or None, str or None
        Which threads; both None for all of them.
    begin, end : int or None
        A window (ns) instead of the thread's first and last event.
    max_memory : int
        Bytes; 0 for no limit.  The paths themselves come on top.

    Raises
    ------
    UsageError
        If no thread matches, or nothing was recorded in the window.
    """
    from critpath.graph.critical_path import lives_of
    from critpath.pipeline.limits import Budget, require_room
    from critpath.pipeline.walking import walked
    from critpath.read.event_names import KERNEL_EVENTS
    from critpath.read.manifest import open_manifest
    from critpath.read.recording import find_traces

    require_room(max_memory, 1)
    manifest, said = open_manifest(source)
    traces = find_traces(source)
    recorded = _Recorded(source, traces, manifest, said)
    budget = Budget.within(max_memory)
    with _replayed(Opener(source, traces, KERNEL_EVENTS, reader), recorded, [], budget) as replayed:
        events = replayed.events
        executions = lives_of(
            replayed.workers,
            events.strings,
            tid,
            comm,
            (begin, end),
            (events.begin, events.end),
        )
        together = replace(budget, segments=0)
        [paths] = walked(
            replayed, executions, str(source), "thread", together, interrupts=interrupts
        )
    return paths


# -----------------------------------------------------------------------------
# One recording, read as a stream: the few events finders need, and blocks of timelines.


# Order, losses, kinds of events that never come and missing switches are found out once
# each, and what is put in or lost may show another: more passes find nothing new.
_MOST_PASSES: Final = 6
Packets = tuple[tuple[int, int, int, int], ...]


class BlockStore(Blocks, Protocol):
    """Where blocks are kept."""

    def append(self, block: PackedBlock) -> None:
        """Add the next one."""

    def close(self) -> None:
        """Free what they take."""


@dataclass(frozen=True, eq=False)
class Replayed:
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
    packets : tuple
        As `critpath.model.Timelines.packets`.
    warnings : tuple of str
    """

    events: Events
    blocks: BlockStore
    workers: Workers
    processors: tuple[tuple[int, int], ...]
    rows: int
    packets: Packets
    warnings: tuple[str, ...]

    def close(self) -> None:
        """Free what the blocks take."""
        self.blocks.close()


@dataclass(frozen=True)
class Facts:
    """What a pass takes for true before it begins.

    Attributes
    ----------
    waking, syscalls : bool
        Whether there are ``sched_waking`` and entries of system calls.
    losses : tuple of Loss
    searched : bool
        Whether switches contradict each other, so that missing ones are looked for.
    insertions : Insertions or None
        Switches to put in; None where nobody has looked for them.
    strings : sequence of str
        What codes in them mean.
    """

    waking: bool
    syscalls: bool
    losses: tuple[Loss, ...] = ()
    searched: bool = False
    insertions: Insertions | None = field(default=None, compare=False)
    strings: Sequence[str] = field(default=(), compare=False)


def expected(traces: Sequence[Trace]) -> Facts:
    """Return what the metadata makes likely: nothing is lost, and what is declared comes."""
    names = {
        name
        for t in traces
        for s in t.schema.streams.values()
        for name in get_event_names(s.events).values()
    }
    return Facts(_any_of(names, Kind.WAKING), _any_of(names, Kind.SYSCALL_ENTRY))


def _any_of(names: Collection[str], kind: Kind) -> bool:
    patterns = [p for wanted in KERNEL_EVENTS if wanted.kind is kind for p in wanted.names]
    return any(fnmatchcase(name, p) for name in names for p in patterns)


def few_events(opener: Opener, specifications: Collection[Specification]) -> Events:
    """Return what finders of executions ask about, where nothing else is needed."""
    prefilter = Prefilter(specifications)
    try:
        with closing(opener()) as source:
            source.watch(prefilter.feed)
            for _ in source:
                pass
            return prefilter.events(source.finish())
    except OutOfOrder as reason:
        opener.sort_whole(reason)
        return few_events(opener, specifications)


def replay_stream(
    opener: Opener,
    facts: Facts,
    specifications: Collection[Specification],
    budget: Budget,
    *,
    complete: Callable[[Events], Events] = lambda events: events,
) -> Replayed:
    """Replay a recording, as often as it takes to know what has to be known before.

    Parameters
    ----------
    opener : Opener
        Of the recording.
    facts : Facts
        What to begin with.
    specifications : collection of Specification
        Of executions that will be looked for.
    budget : Budget
    complete : callable
        Adds what a manifest knows to what the traces say.

    Returns
    -------
    Replayed

    Raises
    ------
    UnreadableError
        As the readers do; or if the recording changes while it is read.
    """
    for _ in range(_MOST_PASSES):
        blocks: BlockStore = SpilledBlocks() if budget.spills else PackedBlocks()
        try:
            with closing(opener()) as source:
                done = _one_pass(source, facts, Prefilter(specifications), blocks, budget, complete)
            if isinstance(done, Replayed):
                return done
            facts = done
            blocks.close()
            if facts.searched and facts.insertions is None:
                with closing(opener()) as source:
                    facts = _missing(source, facts, complete)
        except OutOfOrder as reason:
            # What was looked for was looked for in the wrong order.
            opener.sort_whole(reason)
            facts = replace(facts, searched=False, insertions=None)
        except BaseException:
            blocks.close()
            raise
        blocks.close()
    raise UnreadableError(
        "the recording is another one whenever it is read",
        "wait until it is written, and copied whole",
    )


def _missing(source: Source, facts: Facts, complete: Callable[[Events], Events]) -> Facts:
    """Look for switches that the kernel left out; the losses come to light as well."""
    search = MissingSwitches(len(source.hosts))
    for chunk in source:
        search.feed(chunk, source.classes)
    about = source.finish()
    found = search.finish(about.losses)
    return replace(facts, insertions=found, strings=source.strings(), losses=complete(about).losses)


def _one_pass(
    source: Source,
    facts: Facts,
    prefilter: Prefilter,
    blocks: BlockStore,
    budget: Budget,
    complete: Callable[[Events], Events],
) -> Replayed | Facts:
    """Return what was replayed, or what to assume instead."""
    put = facts.insertions
    replayer = Replayer(
        hosts=source.hosts,
        environment=source.environment,
        losses=facts.losses,
        code=source.code,
        text=source.text,
        has_waking=facts.waking,
        has_syscalls=facts.syscalls,
    )
    if put is None:
        chunks = iter(source)
    else:
        put = put.recoded(facts.strings.__getitem__, source.code)
        chunks = with_insertions(iter(source), put, source.classes)
    rows = 0
    for chunk in chunks:
        prefilter.feed(chunk, source.classes)
        replayer.feed(chunk, source.classes)
        if put is None and replayer.contradicted and not source.filled:
            return replace(facts, searched=True)
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
        facts,
        losses=events.losses,
        waking=Kind.WAKING in replayer.present,
        syscalls=Kind.SYSCALL_ENTRY in replayer.present,
    )
    if found != facts:
        return found
    rows += replayer.waiting
    blocks.append(replayer.finish(events.end))
    events = replace(prefilter.events(events), strings=tuple(source.strings()))
    return Replayed(
        events,
        blocks,
        replayer.workers(),
        replayer.processors,
        rows,
        linked_packets(network_events(events), replayer.network()),
        replayer.warnings,
    )


# -----------------------------------------------------------------------------
# How the events of a recording come: as a stream, or all at once where that must be.


# Chunks that are decoded ahead: one, and others for the time that a block is cut in.
_AHEAD: Final = 3


# Looks at a chunk and the classes that are known with it.
Look = Callable[["EventChunk", Sequence["EventClass"]], None]


class Source(Protocol):
    """A recording whose events come in the order of time; read once from begin to end."""

    @property
    def filled(self) -> bool:
        """Whether switches that the kernel left out have been put in."""

    @property
    def classes(self) -> Sequence[EventClass]:
        """Those known now; it grows."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Every machine of the recording."""

    @property
    def environment(self) -> tuple[Mapping[str, str | int], ...]:
        """What the traces say of themselves."""

    def __iter__(self) -> Iterator[EventChunk]: ...

    def watch(self, look: Look) -> None:
        """Have a function look at every chunk before it is delivered."""

    def code(self, text: str) -> int:
        """Return the code of a text of ours."""

    def text(self, code: int) -> str:
        """Return the text of a code."""

    def strings(self) -> Sequence[str]:
        """Return the texts known now."""

    def finish(self) -> Events:
        """Return everything but the events."""

    def close(self) -> None:
        """Give up what is open."""


class WholeRecording:
    """Events that are all in memory, as a `Source`."""

    def __init__(self, events: Events) -> None:
        self.filled = True
        self._events = events
        self._strings = list(events.strings) or [""]
        self._codes = {text: code for code, text in reversed(list(enumerate(self._strings)))}
        self.classes: Sequence[EventClass] = events.classes
        self.hosts = events.hosts
        self.environment = events.environment
        self._look: Look | None = None

    def __iter__(self) -> Iterator[EventChunk]:
        for chunk in split_into_chunks(self._events):
            if self._look is not None:
                self._look(chunk, self.classes)
            yield chunk

    def watch(self, look: Look) -> None:
        """Have a function look at every chunk before it is delivered."""
        self._look = look

    def code(self, text: str) -> int:
        """Return the code of a text of ours."""
        if text not in self._codes:
            self._codes[text] = len(self._strings)
            self._strings.append(text)
        return self._codes[text]

    def text(self, code: int) -> str:
        """Return the text of a code."""
        return self._strings[code]

    def strings(self) -> Sequence[str]:
        """Return the texts known now."""
        return self._strings

    def finish(self) -> Events:
        """Return everything but the events."""
        none = np.zeros(0, np.int64)
        return replace(
            self._events,
            timestamp=none,
            cpu=none.astype(np.int32),
            event_class=none.astype(np.int32),
            offset=none,
            values=none,
        )

    def close(self) -> None:
        """Nothing is open."""


class Opener:
    """Begins to read one recording, as often as it is asked to.

    Parameters
    ----------
    recording : Path
    traces : sequence of Trace
    wanted : sequence of EventRequest
    reader : str
        As `critpath.read.recording.read_events`.
    ahead : bool
        Decode in a thread of its own.

    Attributes
    ----------
    whole : str
        Why the recording is in memory as a whole, as a clause; "" where it is not.
    """

    def __init__(
        self,
        recording: Path,
        traces: Sequence[Trace],
        wanted: Sequence[EventRequest],
        reader: str,
        *,
        ahead: bool = False,
    ) -> None:
        self._recording, self._traces = recording, traces
        self._wanted, self._reader = tuple(wanted), reader
        self._ahead = ahead
        self._events: Events | None = None
        self.whole = ""
        if reader == "babeltrace2":
            self.whole = "babeltrace2 reads it"
        elif len({trace.host for trace in traces}) > 1:
            self.whole = notes.several_hosts()

    def __call__(self) -> Source:
        """Begin."""
        if not self.whole:
            return EventStream(self._traces, self._wanted, ahead=_AHEAD if self._ahead else 0)
        if self._events is None:
            events = read_events(self._recording, self._wanted, reader=self._reader)
            self._events = align_hosts(with_missing_switches(events))
        return WholeRecording(self._events)

    def sort_whole(self, reason: OutOfOrder) -> None:
        """From now on, have all events in memory: they come out of order."""
        self.whole = notes.out_of_order(reason)


# -----------------------------------------------------------------------------
# What exports need beyond critical paths: vectors of some sets, the graph of a window.


def vectors(path_sets: Sequence[PathSet]) -> list[VectorTable]:
    """Return the vectors of several sets, over one alphabet of states and threads."""
    from critpath.vectors.table import Coder, vectors_of

    coder = Coder(path_sets, "thread")
    return [vectors_of(paths, coder) for paths in path_sets]


def choose_executions(paths: PathSet, ids: Sequence[str]) -> PathSet:
    """Return the executions of these ids; all if there is none to choose."""
    from critpath.graph.critical_path import take_executions

    if not ids:
        return paths
    wanted = set(ids)
    rows = [i for i, name in enumerate(paths.executions.id) if name in wanted]
    return take_executions(paths, np.array(rows, np.int64))


def window(
    source: Path,
    *,
    begin: int | None,
    end: int | None,
    paths: PathSet | None = None,
    reader: str = "auto",
    all_threads: bool = False,
) -> tuple[Any, Timelines]:
    """Return the execution graph of a window of a recording.

    Parameters
    ----------
    source : Path
        A recording or a CTF trace.
    begin, end : int or None
        The window (ns); None for the begin or end of the recording.
    paths : PathSet or None
        One execution: its path is marked and, where begin and end are None, its window
        is taken.
    all_threads : bool
        With a path, also the threads that have nothing to do with it.

    Returns
    -------
    graph : networkx.MultiDiGraph
        See `graph.window.window_graph`.
    timelines : Timelines
        Names of its workers, details of its intervals.

    Raises
    ------
    UsageError
        If nothing was recorded in the window, or it is too large.
    """
    from critpath.graph.critical_path import subject_workers
    from critpath.graph.execution_graph import build_graph, window_graph

    events, timelines = read_timelines(source, reader)
    subject = None
    if paths is not None:
        begin = int(paths.executions.begin[0]) if begin is None else begin
        end = int(paths.executions.end[0]) if end is None else end
        worker = int(subject_workers(timelines.workers, paths.executions)[0])
        subject = worker if worker >= 0 else None
    low = events.begin if begin is None else begin
    high = events.end if end is None else end
    if low >= min(high, events.end) or high <= events.begin:
        raise UsageError(
            f"nothing was recorded between {low} and {high}",
            f"the recording lasts from {events.begin} to {events.end}",
        )
    graph = build_graph(timelines)
    return window_graph(graph, low, high, subject, all_threads=all_threads), timelines
