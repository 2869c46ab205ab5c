"""From recordings to the critical path of every execution."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from critpath.errors import UnreadableError, UsageError
from critpath.executions.find import find_executions, require_events
from critpath.executions.prefilter import Prefilter
from critpath.executions.specification import parse_specification
from critpath.model import (
    BlockStore,
    EventRequest,
    Events,
    ExtractSettings,
    Kind,
    PackedBlocks,
    ReplayedRecording,
)
from critpath.pipeline.opening import RecordingOpener
from critpath.pipeline.partial import Share, leave_out_partial
from critpath.pipeline.progress import Progress, Stage
from critpath.read.event_names import KERNEL_EVENTS, SOURCE_PORT
from critpath.read.streaming import OutOfOrder
from critpath.record.profiles import PACKETS, SOCKETS
from critpath.schema.environment import Environment, name_timers
from critpath.text import notes
from critpath.timeline.after_gaps import NOTHING, Resumed, find_resumed
from critpath.timeline.functions import FunctionEvents, name_functions
from critpath.timeline.holders import find_holds
from critpath.timeline.missing_switches import MissingSwitches, insert_switches
from critpath.timeline.network import linked_packets, network_events
from critpath.timeline.replay import Replayer, prev_states
from critpath.timeline.resources import PERIOD_TIMER, ResourceEvents
from critpath.units import plural, safe_text

if TYPE_CHECKING:
    from critpath.executions.specification import Specification
    from critpath.model import (
        Executions,
        Loss,
        Manifest,
        PathSet,
        Timelines,
        VectorTable,
        Workers,
    )
    from critpath.model.clocks import Messages
    from critpath.model.requests import Collected, Pieces, Sketches
    from critpath.pipeline.limits import Budget
    from critpath.pipeline.opening import Aligned
    from critpath.read.recording import Recording
    from critpath.read.streaming import Source
    from critpath.requests.activity import ActivityEvents
    from critpath.timeline.missing_switches import Insertions


def extract_recording(
    recording: Recording,
    settings: ExtractSettings,
    progress: Progress | None = None,
    place: str = "",
) -> Iterator[PathSet]:
    """Extract the critical path of every execution of one recording.

    `place` tells who waits where it is among others: `` (2 of 6)``.
    """
    with replay_chosen(recording, settings, progress, place) as chosen:
        found, specification = chosen.replayed, chosen.specification
        with recording.named():
            executions, events, pieces = _find_chosen(chosen, recording)
            events = count_missing_runs(events, specification, recording.manifest, len(executions))
            events = _count_routes(events, executions, recording)
        replayed = replace(found, events=events)
        if len(events.gaps):
            room = chosen.budget.segments
            share = Share(
                *(recording.manifest.overhead, settings.partial, settings.bystanders),
                *(settings.interrupts, room),
            )
            replayed, executions, pieces = leave_out_partial(replayed, executions, pieces, share)
        # Their columns are as large as what is walked, and all is found that is looked for in them.
        replayed = replace(replayed, events=replayed.events.without_rows())
        text, budget = chosen.text, chosen.budget
        del chosen, found, events
        stage = Stage(progress, f"walking {plural(len(executions), 'critical path')}{place}")
        walked = 0
        for paths in _walk(
            *(replayed, executions, recording, text, budget),
            interrupts=settings.interrupts,
            pieces=pieces,
        ):
            yield paths
            walked += len(paths)
            stage.reach(walked / max(len(executions), 1))


def _find_chosen(chosen: _Chosen, recording: Recording) -> tuple[Executions, Events, Pieces | None]:
    """Return the executions that are asked for, the events with what is known of them, pieces."""
    found, specification, manifest = chosen.replayed, chosen.specification, recording.manifest
    if specification.kind == "requests":
        from critpath.pipeline.requesting import find_requests

        return find_requests(found, specification, recording)
    if specification.kind == "slices":
        from critpath.pipeline.slicing import find_slices

        return find_slices(found, specification, manifest), found.events, None
    executions = find_executions(
        found.events,
        specification,
        recording.event_names,
        manifest.runs,
        interleaved=bool(manifest.interleaved),
        scripts=manifest.scripts,
    )
    return executions, found.events, None


def sketch_recording(
    recording: Recording,
    settings: ExtractSettings,
    progress: Progress | None = None,
    place: str = "",
) -> Sketches:
    """Return all that is known of the requests of one recording; no paths are walked.

    Raises
    ------
    UsageError
        If its executions are no requests.
    """
    from critpath.pipeline.requesting import find_sketches

    with (
        replay_chosen(recording, settings, progress, place, only="requests") as chosen,
        recording.named(),
    ):
        return find_sketches(chosen.replayed, chosen.specification, recording)


@dataclass(frozen=True)
class _Chosen:
    """A recording that was replayed, and which executions of it are asked for."""

    replayed: ReplayedRecording
    specification: Specification
    text: str
    budget: Budget


@contextmanager
def replay_chosen(
    recording: Recording,
    settings: ExtractSettings,
    progress: Progress | None,
    place: str,
    *,
    only: str = "",
) -> Iterator[_Chosen]:
    """Find out what is an execution of a recording, and replay it for that."""
    from critpath.executions.find import add_label, choose_specification
    from critpath.executions.marker import MARKER_EVENTS
    from critpath.executions.specification import get_event_requests
    from critpath.pipeline.limits import Budget
    from critpath.read.event_names import CALL_EVENTS, KERNEL_EVENTS, SOCKET_EVENTS

    said, names = recording.notes, recording.event_names
    known: list[Aligned] = []  # the clocks of several hosts, once they are

    def opener(more: Sequence[EventRequest]) -> RecordingOpener:
        return RecordingOpener(
            *(recording, (*KERNEL_EVENTS, *more), settings.reader),
            ahead=settings.ahead,
            begin=lambda: Stage(progress, f"reading {recording}{place}"),
            known=known,
        )

    def marks() -> Events:
        return read_finder_events(opener(MARKER_EVENTS), [parse_specification("marker")])

    possible = any(name in names for entry in MARKER_EVENTS for name in entry.names)
    text, how = choose_specification(
        *(settings.specification, recording.manifest.execution, recording, names),
        marks if possible else None,
    )
    texts = [of.texts for of in recording.descriptions]
    chosen, labelled = add_label(parse_specification(text), texts)
    if only and chosen.kind != only:
        raise UsageError(
            f"{recording}: its executions are no {only}: {safe_text(text)}",
            f"add --execution {only}",
        )
    told, way = (*said, *how, *labelled), SOCKETS  # what tells of sockets, where it is asked for
    budget = Budget.within(settings.max_memory)
    with recording.named():
        # Before anything is read, so that a misspelt name fails at once.
        require_events(chosen, names)
    wanted = get_event_requests(chosen)
    if chosen.kind == "requests":
        from critpath.pipeline.requesting import require_sockets

        way = require_sockets(recording, [*_list_usable(recording)])
        wanted = (*wanted, *SOCKET_EVENTS, *(CALL_EVENTS if way != SOCKETS else ()))
    if chosen.kind == "slices":
        from critpath.pipeline.slicing import require_markers

        require_markers(recording, chosen.slices.marker)
        if chosen.slices.marker == "unix":
            wanted = (*wanted, *SOCKET_EVENTS)
    with ExitStack() as stack:
        stack.enter_context(recording.keep())

        def replay(more: Sequence[EventRequest]) -> ReplayedRecording:
            return stack.enter_context(
                _replay_recording(opener(more), recording, [chosen], budget, told, way)
            )

        found = [replay(wanted)]
        if other := _find_other_way(found[0], recording):
            stack.close()
            told, way = (*told, notes.sockets_unnamed()), other
            found = [replay((*wanted, *CALL_EVENTS))]
        # Held by the caller alone, who may let the events go.
        yield _Chosen(found.pop(), chosen, text, budget)


def _link(
    collected: Collected, workers: Workers, events: Events
) -> tuple[tuple[tuple[int, int, int, int], ...], Messages]:
    """Return what leads from host to host, and what these sent: as `link_hosts`."""
    from critpath.pipeline.clocks import link_hosts

    return link_hosts(collected, workers, events)


def _find_other_way(replayed: ReplayedRecording, recording: Recording) -> str:
    if replayed.sockets is None:
        return ""
    from critpath.pipeline.requesting import find_other_way

    return find_other_way(replayed, [*_list_usable(recording)])


def count_missing_runs(
    events: Events, specification: Specification, manifest: Manifest, found: int
) -> Events:
    """Note in the environment how many runs of the command the trace should have, and has not."""
    if specification.kind != "process" or specification.where or not manifest.runs:
        return events
    whole = sum(run.whole for run in manifest.runs)
    counted = Environment(runs_recorded=whole, runs_missing=max(0, whole - found))
    return replace(events, environment=(*events.environment, counted))


def _count_routes(events: Events, executions: Executions, recording: Recording) -> Events:
    """Note in the environment which devices the executions' packets passed."""
    from critpath.timeline.routes import count_routes

    counted = count_routes(events, executions, *recording.network_devices)
    return replace(events, environment=(*events.environment, counted)) if counted else events


def _walk(
    replayed: ReplayedRecording,
    executions: Executions,
    recording: Recording,
    specification: str,
    budget: Budget,
    *,
    interrupts: bool,
    pieces: Pieces | None = None,
) -> Iterator[PathSet]:
    """Walk executions within a budget; warn of those that exceed it by themselves."""
    from critpath.graph.critical_path import extract_paths
    from critpath.graph.stacks import add_stacks
    from critpath.pipeline.limits import note_long_paths

    stacks = recording.stacks if len(replayed.events.hosts) == 1 else []
    if stacks:
        counted = Environment(stacks=sum(map(len, stacks)))
        events = replace(replayed.events, environment=(*replayed.events.environment, counted))
        replayed = replace(replayed, events=events)
    for paths in extract_paths(
        replayed,
        executions,
        str(recording),
        specification,
        interrupts=interrupts,
        most_segments=budget.segments,
        most_carried=budget.carried,
        pieces=pieces,
    ):
        longest = int(np.diff(paths.paths.start).max(initial=0))
        explained = _explain_waits(paths, replayed, recording)
        if replayed.functions is not None:
            explained = name_functions(explained, replayed.functions, *recording.functions)
        for taken in stacks:
            explained = add_stacks(explained, taken)
        yield replace(explained, warnings=(*paths.warnings, *note_long_paths(longest, budget)))


def _list_usable(recording: Recording) -> Iterator[str]:
    """Yield the events of a recording, but packets of which it does not say whose they are."""
    for of in recording.descriptions:
        for name in of.events:
            if name != PACKETS[0] or SOURCE_PORT in of.events[name]:
                yield name


def _explain_waits(paths: PathSet, replayed: ReplayedRecording, recording: Recording) -> PathSet:
    """Say of waits what limits of control groups, disks and memory made of them."""
    from critpath.graph.resources import explain_waits

    if replayed.resources is None:
        return paths
    reached, disks = recording.reached_limits, recording.disks
    strings = replayed.events.strings
    return explain_waits(paths, replayed.workers, replayed.resources, reached, disks, strings)


@contextmanager
def _replay_recording(
    opener: RecordingOpener,
    recording: Recording,
    specifications: Sequence[Specification],
    budget: Budget,
    told: tuple[str, ...],
    way: str = SOCKETS,
) -> Iterator[ReplayedRecording]:
    """Replay a recording, of which something is `told` from before anything was read."""
    replayed = replay_stream(
        opener,
        replace(assume_declared(recording), addresses=recording.addresses, way=way),
        specifications,
        budget,
        complete=lambda events: opener.tell_clocks(recording.add_manifest(events)),
    )
    with closing(replayed.blocks):
        warnings = (*told, *replayed.events.warnings)
        if budget.spills and opener.whole:
            warnings += (notes.recording_in_memory(str(recording), opener.whole),)
        made = [replace(replayed, events=replace(replayed.events, warnings=warnings))]
        del replayed
        yield made.pop()


def inspect_recording(path: Path, reader: str = "auto") -> tuple[Events, Manifest, tuple[str, ...]]:
    """Read a recording to its end, to say what of it is missing.

    Parameters
    ----------
    path : Path
        Of the recording.
    reader : str

    Returns
    -------
    events : Events
        With every loss, and the runs that are missing in ``environment``.
    manifest : Manifest
    odd : tuple of str
        What differs from what was recorded and is no loss.
    """
    from critpath.executions.process import find_command_runs
    from critpath.read.recording import Recording

    recording = Recording(path)
    manifest = recording.manifest
    opener = RecordingOpener(recording, KERNEL_EVENTS, reader)
    specification = parse_specification("process")
    with recording.keep():
        events = recording.add_manifest(read_finder_events(opener, [specification]))
        if manifest.runs and any(run.pid for run in manifest.runs):
            found = find_command_runs(events, manifest.runs)
            events = count_missing_runs(events, specification, manifest, len(found))
        return events, manifest, recording.find_other_contents(events.streams)


def read_timelines(source: Path, reader: str = "auto") -> tuple[Events, Timelines]:
    """Read the kernel's events of a recording, and what every thread did, into memory."""
    from critpath.read.event_names import KERNEL_EVENTS
    from critpath.read.recording import Recording
    from critpath.timeline.replay import replay

    recording = Recording(source)
    opener = RecordingOpener(recording, KERNEL_EVENTS, reader)
    if opener.several:
        events = opener.tell_clocks(recording.add_manifest(opener.read()))
    else:
        events = recording.add_manifest(opener.read())
    return events, replay(events, recording.addresses)


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
    from critpath.graph.critical_path import find_lifetimes
    from critpath.pipeline.limits import Budget, require_room
    from critpath.read.event_names import KERNEL_EVENTS
    from critpath.read.recording import Recording

    require_room(max_memory, 1)
    recording = Recording(source)
    told, budget = recording.notes, Budget.within(max_memory)
    with _replay_recording(
        *(RecordingOpener(recording, KERNEL_EVENTS, reader), recording, [], budget, told)
    ) as replayed:
        events = replayed.events
        executions = find_lifetimes(
            replayed.workers,
            events.strings,
            tid,
            comm,
            (begin, end),
            (events.begin, events.end),
        )
        together = replace(budget, segments=0)
        [paths] = _walk(
            *(replayed, executions, recording, "thread", together),
            interrupts=interrupts,
        )
    return paths


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


def read_finder_events(
    opener: RecordingOpener, specifications: Collection[Specification]
) -> Events:
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
        return read_finder_events(opener, specifications)


def _make_store(budget: Budget) -> BlockStore:
    if not budget.spills:
        return PackedBlocks()
    from critpath.timeline.blocks import SpilledBlocks

    return SpilledBlocks()


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
                done = _replay_once(
                    source, assumed, Prefilter(specifications), blocks, budget, complete
                )
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
    from critpath.requests.activity import ActivityEvents

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
    events = replace(prefilter.events(events), strings=tuple(source.strings()))
    workers = replayer.workers()
    holds = find_holds(events, replayer.holders(), workers, events.strings)
    if holds.links:
        events = replace(events, environment=(*events.environment, holds.counted))
    collected = [each.finish(workers, events.strings) for each in sockets]
    receipts, messages = _link(collected[0], workers, events) if several else ((), None)
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
    )


# ------------------------------------------------------------------ what exports need


def vectors(path_sets: Sequence[PathSet]) -> list[VectorTable]:
    """Return the vectors of several sets, over one alphabet of states and threads."""
    from critpath.vectors.table import Coder, vectors_of

    coder = Coder(path_sets, "thread")
    return [vectors_of(paths, coder) for paths in path_sets]


def traces_of(paths: PathSet) -> Sequence[str]:
    """Return the trace id of every execution; nothing where they are no requests."""
    known = paths.executions.requests
    return () if known is None else known.trace_id


_TRACE_ID: Final = re.compile("(?:[0-9a-f]{2}-)?([0-9a-f]{16,32})(?:-[0-9a-f]{16}-[0-9a-f]{2})?")


def resolve_ids(wanted: Iterable[str], ids: Sequence[str], traces: Sequence[str]) -> list[str]:
    """Return the executions that are meant: by name, or all of a trace by its id.

    Parameters
    ----------
    wanted : iterable of str
        Names of executions; ids of traces, also as a whole ``traceparent``.
    ids, traces : sequence of str
        Of every execution; no ``traces`` where nothing is known of them.

    Returns
    -------
    list of str
        Names of executions; what is neither stays as it was asked for.
    """
    of: dict[str, list[str]] = {}
    for name, trace in zip(ids, traces, strict=False):
        if trace:
            of.setdefault(trace, []).append(name)
    found: list[str] = []
    for one in wanted:
        called = _TRACE_ID.fullmatch(one.strip().lower())
        found += of.get(called[1].zfill(32) if called else one, [one])
    return found


def choose_executions(paths: PathSet, ids: Sequence[str]) -> PathSet:
    """Return the executions of these ids (`resolve_ids`); all if there is none to choose."""
    from critpath.graph.critical_path import take_executions

    if not ids:
        return paths
    wanted = set(resolve_ids(ids, paths.executions.id, traces_of(paths)))
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
