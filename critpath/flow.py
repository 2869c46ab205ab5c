"""The whole analysis, read top to bottom: extract, compare, remember, watch.

Every stage is called here by its door, which imports what is behind a name when it is asked for:
what a command does not reach costs it nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import asdict, field, replace
from functools import partial
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, structs

from critpath import (
    __version__,
    clocks,
    cluster,
    detect,
    engines,
    executions,
    files,
    graph,
    localize,
    read,
    store,
    stores,
    timeline,
    vectors,
)
from critpath.convert import OPENED
from critpath.errors import (
    EXIT_UNREADABLE,
    CritpathError,
    InconclusiveError,
    UsageError,
)
from critpath.model import (
    Analysis,
    CompareSettings,
    ExtractSettings,
    PackedPaths,
    PathSet,
    Piece,
    StoredPaths,
)
from critpath.model.joining import join_sets
from critpath.model.recording import COUNTS
from critpath.processes import MANY, do_for_both, give_back, side_by_side
from critpath.progress import COMPARING, Progress, Stage, name_place
from critpath.records import dataclass
from critpath.schema.notes import (
    HiddenByLevels,
    Note,
    Remark,
    SocketsUnnamed,
    SufficientRecording,
    TooNoisy,
    rename,
)
from critpath.schema.parameters.detect import FLAME
from critpath.schema.ways import SOCKETS
from critpath.text.phrases import VERDICTS
from critpath.units import plural

if TYPE_CHECKING:  # what most runs do not ask
    from critpath import known, signatures
    from critpath.ab import AbRequest
    from critpath.documents import AbCause, ComparisonDocument
    from critpath.documents.known import KnownEntry
    from critpath.documents.pictures import FlameNode
    from critpath.model import (
        EventRequest,
        Events,
        Executions,
        Manifest,
        ReplayedRecording,
        Rows,
        Timelines,
    )
    from critpath.model.requests import CutRequests, Sketches
    from critpath.model.signatures import Counts
    from critpath.requests import Asked, SliceSketches, Way

# Extract: recordings to critical paths.

# technical: of which a column has megabytes
_VERY_MANY: Final = 500_000
# technical: walking a thousand executions leaves 5 MB in small holes, at most some 100 MB, which
# takes 5 ms to give back.
_GIVEN_BACK: Final = 2_000
_MOST_HOLES: Final = 200_000  # technical


def extract_recording(
    recording: read.Recording,
    settings: ExtractSettings,
    progress: Progress | None = None,
    place: str = "",
) -> Iterator[PathSet]:
    """Extract the critical path of every execution of one recording.

    `place` tells who waits where it is among others: `` (2 of 6)``.
    """
    with replay_chosen(recording, settings, progress, place) as chosen:
        found, choice = chosen.replayed, chosen.choice
        with recording.named():
            asked, events, pieces = _find_chosen(chosen, recording)
            if settings.only:
                rows = asked.find_rows(settings.only)
                asked, pieces = asked.take(rows), pieces and pieces.take(rows)
            if choice.specification.kind == "process" and not choice.specification.where:
                events = recording.manifest.count_missing_runs(events, len(asked))
            events = timeline.add_routes(events, asked, *recording.network_devices)
        replayed = replace(found, events=events)
        if len(events.gaps):
            room = chosen.budget.segments
            share = graph.Share(
                *(recording.manifest.overhead, settings.partial, settings.bystanders),
                *(settings.interrupts, room),
            )
            replayed, asked, pieces = graph.leave_out_partial(replayed, asked, pieces, share)
        # Their columns are as large as what is walked, and all is found that is looked for in them.
        replayed = replace(replayed, events=replayed.events.without_rows(), sockets=None)
        stores.require_unchanged(recording.directory)
        troubles = stores.LEDGER.take_notes()
        text, budget = choice.text, chosen.budget
        del chosen, found, events
        if len(asked) > MANY:
            give_back()  # what finding them took
        stage = Stage(progress, f"walking {plural(len(asked), 'critical path')}{place}")
        walked = 0
        for paths in graph.walk_paths(
            *(replayed, asked, recording, text, budget),
            interrupts=settings.interrupts,
            pieces=pieces,
        ):
            yield replace(paths, warnings=(*paths.warnings, *troubles)) if troubles else paths
            before, walked = walked, walked + len(paths)
            if len(asked) > _MOST_HOLES and before // _GIVEN_BACK < walked // _GIVEN_BACK:
                give_back()  # what lies between what is kept of each group
            stage.reach(walked / max(len(asked), 1))


def _find_chosen(
    chosen: _Chosen, recording: read.Recording
) -> tuple[Executions, Events, CutRequests | None]:
    """Return the executions that are asked for, the events with what is known of them, pieces."""
    found, manifest = chosen.replayed, recording.manifest
    if chosen.asked is not None:
        return chosen.asked.find(found)
    asked = executions.find_executions(
        found.events,
        chosen.choice.specification,
        recording.event_names,
        manifest.runs,
        interleaved=bool(manifest.interleaved),
        scripts=manifest.scripts,
    )
    return asked, found.events, None


def sketch_recording(
    recording: read.Recording,
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
    with (
        replay_chosen(recording, settings, progress, place, only="requests") as chosen,
        recording.named(),
    ):
        return chosen.sought.sketch(chosen.replayed)


def _learn_ways(path: Path) -> Mapping[Way, int]:
    """Return what the requests of another recording asked, and how often."""
    recording, settings = read.Recording(path), ExtractSettings("requests")
    with replay_chosen(recording, settings, None, "", only="requests") as chosen:
        return chosen.sought.list_ways(chosen.replayed)


class _Chosen(Struct, frozen=True):
    """A recording that was replayed, and which executions of it are asked for."""

    replayed: ReplayedRecording
    choice: executions.Choice
    asked: Asked | None
    budget: engines.Budget

    @property
    def sought(self) -> Asked:
        """The requests or slices that it was replayed for."""
        if self.asked is None:
            raise TypeError("replayed for neither requests nor slices")
        return self.asked


@contextmanager
def replay_chosen(
    recording: read.Recording,
    settings: ExtractSettings,
    progress: Progress | None,
    place: str,
    *,
    only: str = "",
) -> Iterator[_Chosen]:
    """Find out what is an execution of a recording, and replay it for that."""
    known: list[clocks.Aligned] = []  # the clocks of several hosts, once they are

    def opener(more: Sequence[EventRequest]) -> timeline.RecordingOpener:
        return timeline.RecordingOpener(
            *(recording, (*read.KERNEL_EVENTS, *more), settings.reader),
            ahead=settings.ahead,
            begin=lambda: Stage(progress, f"reading {recording}{place}"),
            known=known,
        )

    def marks() -> Events:
        marker = executions.parse_specification("marker")
        return opener(executions.MARKER_EVENTS).read_for(marker)

    choice = executions.choose(recording, settings.specification, marks, only)
    chosen = choice.specification
    remarks: tuple[Remark, ...] = (*recording.notes, *choice.notes)
    budget = engines.Budget.within(settings.max_memory)
    wanted, way, asked = chosen.get_requests(), SOCKETS, None
    if recording.groups:  # in which container each process is
        wanted = tuple(dict.fromkeys((*wanted, *executions.ProcessPlaces.WANTED)))
    if chosen.kind in {"requests", "slices"}:
        from critpath.requests import Asked  # noqa: PLC0415 - start-up time

        asked = Asked(recording, chosen, _learn_ways)
        wanted, way = (*wanted, *asked.wanted), asked.way
    with ExitStack() as stack:
        stack.enter_context(recording.keep())

        def replay(more: Sequence[EventRequest]) -> ReplayedRecording:
            return stack.enter_context(
                timeline.replay_recording(opener(more), recording, [chosen], budget, remarks, way)
            )

        found = [replay(wanted)]
        if other := asked.find_other_way(found[0]) if asked else "":
            stack.close()
            remarks, way = (*remarks, SocketsUnnamed()), other
            found = [replay((*wanted, *read.CALL_EVENTS))]
        # Held by the caller alone, who may let the events go.
        yield _Chosen(found.pop(), choice, asked, budget)


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
    recording = read.Recording(path)
    manifest = recording.manifest
    opener = timeline.RecordingOpener(recording, read.KERNEL_EVENTS, reader)
    specification = executions.parse_specification("process")
    with recording.keep():
        events = recording.add_manifest(opener.read_for(specification))
        if any(run.pid for run in manifest.runs):
            found = executions.find_executions(events, specification, runs=manifest.runs)
            events = manifest.count_missing_runs(events, len(found))
        return events, manifest, recording.find_other_contents(events.streams)


Require = Callable[["PathSet"], None]


def extract(
    sources: Sequence[Path],
    *,
    specification: str | None,
    reader: str = "auto",
    interrupts: bool = True,
    max_memory: int = 0,
    jobs: int | None = 1,
    progress: Progress | None = None,
    partial: bool = False,
    bystanders: bool = False,
    only: frozenset[tuple[int, int, int]] = frozenset(),
) -> PathSet:
    """Extract the critical path of every execution of some recordings.

    Parameters
    ----------
    sources : sequence of Path
        Recordings, directories of recordings, CTF trace directories, files and datasets
        that an earlier `extract` saved, or baselines.
    specification, reader, interrupts
        See `ExtractSettings`.
    max_memory : int
        Bytes that reading may take, all jobs together; 0 for no limit.
    jobs : int or None
        Processors that reading may use: a process for each recording, and a thread that
        decodes ahead where there are two for each.  1 for this thread alone, None for as many
        as pay.
    progress : callable or None
        Is shown what is being done.
    partial, bystanders : bool
        Which executions of recordings with gaps: as of `ExtractSettings`.
    only : frozenset of (int, int, int)
        As of `ExtractSettings`.

    Returns
    -------
    PathSet
        The segments of large files and datasets stay there until they are needed.

    Raises
    ------
    UnreadableError, UsageError
        As the readers and finders do.
    """
    return join_sets(
        extract_each(
            sources,
            specification=specification,
            reader=reader,
            interrupts=interrupts,
            max_memory=max_memory,
            jobs=jobs,
            progress=progress,
            partial=partial,
            bystanders=bystanders,
            only=only,
        )
    )


def extract_each(
    sources: Sequence[Path],
    *,
    specification: str | None,
    reader: str = "auto",
    interrupts: bool = True,
    max_memory: int = 0,
    jobs: int | None = 1,
    progress: Progress | None = None,
    partial: bool = False,
    bystanders: bool = False,
    only: frozenset[tuple[int, int, int]] = frozenset(),
) -> list[PathSet]:
    """Extract as `extract` does, and leave every recording a set of its own."""
    settings = ExtractSettings(
        *(specification, reader, interrupts, max_memory),
        partial=partial,
        bystanders=bystanders,
        only=only,
    )
    with closing(_extract_sources(sources, settings, jobs, progress)) as found:
        return [_join_parts(part) for part in found]


def extract_groups(
    groups: Sequence[Sequence[Path]],
    *,
    specification: str | None,
    reader: str = "auto",
    interrupts: bool = True,
    max_memory: int = 0,
    jobs: int | None = 1,
    progress: Progress | None = None,
) -> list[PathSet]:
    """Extract as `extract` does, the recordings of all groups at once; return a set of each."""
    settings = ExtractSettings(specification, reader, interrupts, max_memory)
    tell = progress or (lambda _: None)
    items = [list(_resolve_sources(sources, interrupts, tell)) for sources in groups]
    with closing(_extract_items([*chain(*items)], settings, jobs, progress)) as found:
        parts = [_join_parts(part) for part in found]
    ends = accumulate(map(len, items), initial=0)
    return [join_sets(parts[first:last]) for first, last in pairwise(ends)]


def read_sketches(
    sources: Sequence[Path], settings: ExtractSettings, progress: Progress | None = None
) -> list[Sketches]:
    """Return all that is known of the requests of some recordings, one after the other.

    Raises
    ------
    UsageError
        If a source holds paths alone, or executions that are no requests.
    """
    found = _open_recordings(sources, settings, progress, "requests")
    return [sketch_recording(recording, settings, progress, place) for recording, place in found]


def read_slices(
    sources: Sequence[Path], settings: ExtractSettings, progress: Progress | None = None
) -> list[SliceSketches]:
    """Return all slices of some recordings, one recording after the other.

    Raises
    ------
    UsageError
        If a source holds paths alone, or executions that are no slices.
    """
    found = _open_recordings(sources, settings, progress, "slices")
    return [_slice_recording(recording, settings, progress, place) for recording, place in found]


# technical: bytes of streams whose timelines are in memory at once, at about five times as many.
SHOWN_AT_ONCE: Final = 1 << 28


def read_timelines(source: Path, reader: str) -> Timelines | None:
    """Return what all threads of a recording did; None of what is not one of one host, or large.

    Raises UnreadableError if it cannot be read.
    """
    found = () if store.find_format(source) else read.find_recordings(source)
    if len(found) != 1:
        return None
    recording = read.Recording(found[0])
    size = sum(file.stat().st_size for one in recording.traces for file in one.files)
    if recording.is_several or size > SHOWN_AT_ONCE:
        return None
    return timeline.read_timelines(recording.directory, reader)[1]


# technical: bytes of a table of events, where no other bound is given.
EVENTS_AT_ONCE: Final = 1 << 30


def read_event_table(
    sources: Sequence[Path],
    question: read.EventQuestion,
    settings: ExtractSettings,
    progress: Progress | None = None,
) -> Rows | None:
    """Return the events of some recordings as a table; None if it would be too large.

    Raises
    ------
    UsageError
        If a source holds paths alone.
    """
    table = read.EventTable(question, settings.max_memory or EVENTS_AT_ONCE)
    for recording, place in _open_recordings(sources, settings, progress, "events"):
        (progress or (lambda _: None))(f"reading events{place}")
        opener = timeline.RecordingOpener(recording, question.requests, settings.reader)
        if not _add_events(table, recording, opener):
            return None
    return table.finish()


def _add_events(
    table: read.EventTable, recording: read.Recording, opener: timeline.RecordingOpener
) -> bool:
    """Add a recording's events; in memory where they come out of order."""
    table.begin(recording.path.name)
    try:
        with closing(opener()) as source:
            for chunk in source:
                if not table.add(chunk, source.classes, source.hosts, source.text):
                    return False
    except read.OutOfOrder as reason:
        opener.sort_whole(reason)
        table.forget()
        return _add_events(table, recording, opener)
    return True


def _open_recordings(
    sources: Sequence[Path], settings: ExtractSettings, progress: Progress | None, of: str
) -> Iterator[tuple[read.Recording, str]]:
    """Yield the recordings of some sources, and which of how many each is.

    Raises UsageError for paths, which have not all tables.
    """
    recordings = []
    for item in _resolve_sources(sources, settings.interrupts, progress or (lambda _: None)):
        if not isinstance(item, Path):
            raise UsageError(
                f"{', '.join(item.sources)}: paths alone, without the tables of {of}",
                "name the recordings that they were extracted from",
            )
        recordings.append(item)
    for n, recording in enumerate(recordings, 1):
        yield read.Recording(recording), name_place(n, len(recordings))


def _slice_recording(
    recording: read.Recording, settings: ExtractSettings, progress: Progress | None, place: str
) -> SliceSketches:
    """Return all slices of one recording and what led to which; no paths are walked."""
    with (
        replay_chosen(recording, settings, progress, place, only="slices") as chosen,
        recording.named(),
    ):
        return chosen.sought.sketch_slices(chosen.replayed)


def extract_file(
    sources: Sequence[Path],
    file: Path,
    settings: ExtractSettings,
    *,
    require: Require,
    jobs: int | None = 1,
    progress: Progress | None = None,
) -> PathSet:
    """Extract into one Parquet file, recording after recording.

    Parameters
    ----------
    sources, jobs, progress
        See `extract`.
    file : Path
        Appears when it is whole.
    settings : ExtractSettings
    require : callable
        Given the set before the file appears; what it raises keeps it from that.

    Returns
    -------
    PathSet
        What is in the file now; segments of a large one, and facts of requests, stay in it.
    """
    # A process that has to stay within a limit cannot send what it found: that is in files.
    limited = settings.max_memory > 0 and jobs != 1
    scratch = files.scratch_directory(file) if limited else nullcontext()
    with files.atomic(file) as stream, scratch as parts:
        items = list(_resolve_sources(sources, settings.interrupts, progress or (lambda _: None)))
        stacks = any(map(_has_stacks, items))
        found = _extract_items(items, settings, jobs, progress, parts)
        aside = jobs != 1 and not settings.max_memory and engines.usable_cores() > 1
        with store.PathsWriter(stream, stacks=stacks, aside=aside) as writer, closing(found):
            many = _write_sets(found, writer)
        if many > MANY:
            give_back()  # what the writer knew of every row group
        [written] = store.load_sets(files.readable(stream), resident=0, later=file)
        require(written)
    return written


def _write_sets(found: Iterable[Iterable[PathSet]], writer: store.PathsWriter) -> int:
    """Write what was found; return how many paths that are.  The last set is not kept."""
    written = 0
    for part in found:
        for number, paths in enumerate(part):
            writer.write(paths, more=number > 0)
            written += len(paths)
    return written


def extract_dataset(
    sources: Sequence[Path],
    directory: Path,
    settings: ExtractSettings,
    *,
    require: Require,
    jobs: int | None = 1,
    engine: engines.Engine | None = None,
    progress: Progress | None = None,
) -> PathSet:
    """Extract into a dataset: a directory with a Parquet file per recording.

    Parameters
    ----------
    sources, jobs, progress
        See `extract`.
    directory : Path
        Appears when it is whole, in place of what was there.
    settings, require
        See `extract_file`.
    engine : Engine or None
        Reads the recordings instead of processes of this machine: a
        `concurrent.futures.Executor` or its like.  Its workers write the parts, so
        they need recordings and directory under the same names.

    Returns
    -------
    PathSet
        What is in the dataset now; its segments stay there.

    Raises
    ------
    UnreadableError, UsageError
        Of the first recording that cannot be read; nothing is left behind then.
    CritpathError
        If workers have another version of critpath.
    """
    tell = progress or (lambda _: None)
    with files.atomic_directory(directory) as place:
        dataset = store.Dataset(place)
        items = list(_resolve_sources(sources, settings.interrupts, tell))
        here = str(Path.cwd()) if engine else ""
        tasks: list[_Task] = []
        parts: dict[int, store.Part] = {}
        for number, item in enumerate(items):
            if isinstance(item, Path):
                tasks.append(_Task(item, settings, number, place, here))
            else:
                parts[number] = dataset.write_part(number, [item])
        recordings = [task.recording for task in tasks]
        count, each = engines.share_out(settings, recordings, jobs, remote=engine is not None)
        tasks = _number_tasks([replace(task, settings=each) for task in tasks])
        work = partial(_write_part, progress=progress) if count == 1 and not engine else _write_part
        done = engines.run(work, tasks, jobs=count, engine=engine, size=_size, progress=tell)
        with closing(done):
            for written in done:
                if written.version != __version__:
                    raise CritpathError(
                        f"a worker has critpath {written.version}, and this is {__version__}",
                        "install the same version everywhere",
                    )
                parts[written.number] = written.part
        ordered = [parts[number] for number in range(len(items))]
        dataset.seal(ordered, {"version": __version__})
        require(join_sets(dataset.load(resident=0)))
    return join_sets(store.Dataset(directory).load(resident=0))


# ------------------------------------------------------------------ what is named


def _resolve_sources(
    sources: Sequence[Path], interrupts: bool, tell: Progress
) -> Iterator[Path | PathSet]:
    """Yield every recording of the sources by its path, and what is saved as it is."""
    for source in sources:
        if store.find_format(source):
            tell(f"loading {source}")
            yield from store.load_sets(source, interrupts=interrupts)
        else:
            if source.is_file():
                tell(f"converting {source}")
            yield from read.find_recordings(source)


def _has_stacks(item: Path | PathSet) -> bool:
    """Tell whether paths may come with stacks, before they are read."""
    if not isinstance(item, Path):
        return item.has_stacks
    return read.Recording(item).has_stacks


def _extract_sources(
    sources: Sequence[Path],
    settings: ExtractSettings,
    jobs: int | None,
    progress: Progress | None,
    parts: Path | None = None,
) -> Generator[Iterable[PathSet]]:
    """Yield the sets of every recording of the sources: `_extract_items`."""
    items = list(_resolve_sources(sources, settings.interrupts, progress or (lambda _: None)))
    yield from _extract_items(items, settings, jobs, progress, parts)


def _extract_items(
    items: Sequence[Path | PathSet],
    settings: ExtractSettings,
    jobs: int | None,
    progress: Progress | None,
    parts: Path | None = None,
) -> Generator[Iterable[PathSet]]:
    """Yield the sets of every recording, in order; with one job each when it is asked for.

    To be closed: other processes are at work while it is suspended.  They write what they
    find into a directory, if there is one, and send it else.
    """
    tell = progress or (lambda _: None)
    recordings = [item for item in items if isinstance(item, Path)]
    count, each = engines.share_out(settings, recordings, jobs)
    tasks = _number_tasks(
        [_Task(recording, each, number, parts) for number, recording in enumerate(recordings)]
    )
    # A stream cannot go from one process to another.
    work: Callable[[_Task], Any] = _read_set if parts is None else _write_part
    if count == 1:
        work = partial(_stream_sets, progress=progress)
    with closing(engines.run(work, tasks, jobs=count, size=_size, progress=tell)) as results:
        for item in items:
            if not isinstance(item, Path):
                yield [item]
            elif count > 1 and parts is not None:
                file = parts / next(results).part.file
                yield store.load_sets(file, resident=0)
                file.unlink(missing_ok=True)
            elif count > 1:
                yield [_make_read_only(paths) for paths in next(results)]
            else:
                yield next(results)
        # To the end: who is closed before it is interrupted.
        next(results, None)


def _join_parts(parts: Iterable[PathSet]) -> PathSet:
    """Join the sets of one recording, whose facts each of them has; many segments are packed."""
    each, segments = [], 0
    for part in parts:
        # What is stored stays so: asked for a column it would be fetched, and kept, as a whole.
        stored = isinstance(part.paths, StoredPaths)
        segments += 0 if stored else len(part.paths.begin)
        many = segments > store.RESIDENT and not stored
        each.append(_pack(part) if many else part)
        del part  # while the next is walked
    if len(each) == 1:
        return each[0]
    first, joined = each[0], join_sets(each)
    return replace(
        joined,
        session=joined.session % len(first.sources),
        executions=replace(
            joined.executions,
            incomplete=first.executions.incomplete,
            notes=first.executions.notes,
        ),
        warnings=tuple(dict.fromkeys(text for of in each for text in of.warnings)),
        **{name: getattr(first, name) for name in _FACTS},
    )


def _pack(paths: PathSet) -> PathSet:
    """Return a set whose segments are in few bytes, and these in a temporary file with room."""
    packed = PackedPaths(paths.paths)
    with suppress(OSError):
        packed.move(files.open_overflow().put)
    return replace(paths, paths=StoredPaths([Piece(len(paths), packed.unpack)]))


_FACTS: Final = ("sources", "specification", "losses", "environment", "events")


# --------------------------------------------------------------------- one of them


def _decided_hosts() -> str:

    return read.decided_hosts()


@dataclass(frozen=True)
class _Task:
    """One recording, and where its paths go: plain values for any process.

    Attributes
    ----------
    recording : Path
        By the name that the user gave.
    settings : ExtractSettings
    number : int
        Of its part.
    directory : Path or None
        Of the dataset.
    here : str
        The user's current directory, if the process that reads it may have another.
    place : str
        Among the others, for who waits: `` (2 of 6)``; nothing of a single one.
    hosts : str
        Which directories are sets of hosts, as the user decided (`decide_hosts`).
    converted : mapping
        What files of other tools were converted into (`OpenedFiles.share`).
    root : str
        Below which what lies on a store has its place in the process that made the task.
    """

    recording: Path
    settings: ExtractSettings
    number: int = 0
    directory: Path | None = None
    here: str = ""
    place: str = ""
    hosts: str = field(default_factory=_decided_hosts)
    converted: Mapping[str, Path] = field(default_factory=OPENED.share)
    root: str = field(default_factory=stores.own_root)

    def __str__(self) -> str:
        return stores.show_place(self.recording)

    def open_here(self) -> _Task:
        """Return it as another process has it: what lies on a store is opened there."""
        OPENED.adopt(self.converted)
        here = stores.reopen(self.recording, self.root)
        directory = self.directory and stores.reopen(self.directory, self.root)
        if directory is not None and directory != self.directory:
            directory.mkdir(parents=True, exist_ok=True)
        return replace(self, recording=here, directory=directory)


class _Written(Struct, frozen=True):
    """What a worker says of a part that it wrote."""

    number: int
    part: store.Part
    version: str


def _number_tasks(tasks: list[_Task]) -> list[_Task]:
    """Say of every task which of how many it is."""
    if len(tasks) < 2:
        return tasks
    return [replace(task, place=name_place(n, len(tasks))) for n, task in enumerate(tasks, 1)]


def _size(task: _Task) -> int:
    return files.size_of(task.recording)


def _stream_sets(task: _Task, progress: Progress | None = None) -> Iterator[PathSet]:
    """Extract a recording in this process."""
    yield from extract_recording(
        read.Recording(task.recording), task.settings, progress, task.place
    )


def _read_set(task: _Task) -> list[PathSet]:
    """Extract a recording in another process, which sends what it found."""
    task = task.open_here()
    with read.decide_hosts(task.hosts):
        return list(_stream_sets(task))


def _write_part(task: _Task, progress: Progress | None = None) -> _Written:
    """Extract a recording, wherever this is, and write its part of the dataset."""
    task = task.open_here()
    if task.directory is None:
        raise ValueError("a part of no dataset")
    sets = (
        rebase_paths(task.recording, task.settings, task.here)
        if task.here
        else _stream_sets(task, progress)
    )
    aside = task.settings.ahead and not task.settings.max_memory
    with read.decide_hosts(task.hosts):
        part = store.Dataset(task.directory).write_part(task.number, sets, aside=aside)
    if task.here:  # a worker, which reads it no more
        stores.release(task.recording)
    return _Written(task.number, part, __version__)


def _make_read_only(paths: PathSet) -> PathSet:
    """Make a set that came from another process read-only again."""
    known = paths.executions.requests
    executions = replace(paths.executions, requests=known and replace(known))
    return replace(paths, executions=executions, paths=replace(paths.paths))


# Recordings read by a worker with another current directory than the user's.


_WINDOWS: Final = "windows:"


def rebase_paths(recording: Path, settings: ExtractSettings, here: str) -> Iterator[PathSet]:
    """Extract a recording where the user's current directory is another; say its given name."""
    near = str(recording)
    far = near if stores.is_stored(recording) else str(Path(here) / near)
    names = {far: near}
    given = settings.specification or ""
    if given.startswith(_WINDOWS):
        file = str(Path(here) / given.removeprefix(_WINDOWS))
        names[file] = given.removeprefix(_WINDOWS)
        settings = structs.replace(settings, specification=_WINDOWS + file)

    def named(text: str) -> str:
        for there, given_name in names.items():
            text = text.replace(there, given_name)
        return text

    try:
        for paths in extract_recording(read.Recording(Path(far)), settings):
            yield _rename_texts(paths, named)
    except CritpathError as error:
        raise engines.Failure(
            error.exit_code,
            named(error.what),
            named(error.do)
            + "; workers need it under the same name" * (error.exit_code == EXIT_UNREADABLE),
        ).error() from error


def _rename_texts(paths: PathSet, named: Callable[[str], str]) -> PathSet:
    executions = paths.executions
    return replace(
        paths,
        executions=replace(
            executions, notes=tuple(rename(note, named) for note in executions.notes)
        ),
        sources=tuple(map(named, paths.sources)),
        specification=named(paths.specification),
        losses=tuple(replace(loss, reason=named(loss.reason)) for loss in paths.losses),
        environment=tuple(each.map_texts(named) for each in paths.environment),
        warnings=tuple(rename(warning, named) for warning in paths.warnings),
    )


# Compare: two sets to the answer.


def compare(
    normal: PathSet,
    sample: PathSet,
    settings: CompareSettings | None = None,
    *,
    progress: Progress | None = None,
    flame: bool = True,
) -> Analysis:
    """Compare a sample set with a normal set; the flame graph is for files, no text has it.

    Raises
    ------
    InconclusiveError
        If a set has no execution at all.

    Notes
    -----
    Janecek, Ezzati-Jivan and Hamou-Lhadj, "Performance Anomaly Detection through
    Sequence Alignment of System-Level Traces" (ICPC 2022).  Deviations: types are
    found before the coarse detection, whose tests compare like with like, so that a
    changed mix of types is no slowdown; the verdict comes from a permutation test.
    """
    settings, tell = settings or CompareSettings(), progress or (lambda _: None)
    for name, path_set in (("before", normal), ("after", sample)):
        if not len(path_set):
            raise InconclusiveError(
                f"there is no run {name} ({path_set.specification})",
                "check --execution, or record more: at least 10 runs, better 100",
            )
    normal, sample, newcomers, relabelled = detect.make_alike(normal, sample)
    # Segments may not fit in memory: they are read in chunks, later only of what is aligned.
    normal, sample, coder, unlike = vectors.with_like_states(
        detect.note_repaired_switches(normal),
        detect.note_repaired_switches(sample),
        settings.alphabet,
    )
    if len(normal) + len(sample) > MANY:  # what reading them took; a column of very many is large
        give_back(always=len(normal) + len(sample) > _VERY_MANY)
    normal_vectors, sample_vectors = do_for_both(normal, sample, vectors.vectors_of, coder)
    judgement = detect.judge_sets(
        *((normal, sample), (normal_vectors, sample_vectors), coder, settings),
        newcomers=bool(newcomers),
        progress=tell,
    )
    gaps = detect.partial_comparison_note(judgement.normal_clusters.labels, judgement.types)
    verdict, reasons = detect.decide(
        judgement.detection,
        judgement.outliers,
        *((normal.lossy, sample.lossy), (normal.losses, sample.losses)),
        apart=judgement.apart,
        minimum=settings.minimum_executions,
        least=settings.least,
        differences=detect.find_doubts(normal, sample, strict=settings.strict_environment),
        note=gaps,
    )
    from critpath.documents.base import change  # noqa: PLC0415 - start-up time

    unseen = next((each.would_do for each in reasons if isinstance(each, TooNoisy)), 0)
    detection = change(judgement.detection, would_do=unseen)
    result = Analysis(
        verdict=verdict,
        reasons=(*reasons, *_sufficient(verdict, normal, sample, (settings, judgement))),
        warnings=(
            *newcomers,
            *([gaps] if gaps else []),
            *relabelled,
            *judgement.warnings,
            *detect.set_warnings(normal, sample, coder.folded),
            *(*unlike, *coder.warnings),
        ),
        normal=normal,
        sample=sample,
        normal_vectors=normal_vectors,
        sample_vectors=sample_vectors,
        detection=detection,
        normal_clusters=judgement.normal_clusters,
        sample_clusters=judgement.sample_clusters,
        pairs=judgement.pairs,
        outliers=judgement.outliers,
        aligned=(),
        findings=(),
        causes=(),
        settings=asdict(settings),
        apart=judgement.apart is not None,
        grounds=detect.find_grounds(
            *(verdict, judgement.detection, (normal.lossy, sample.lossy)),
            apart=judgement.apart,
            minimum=settings.minimum_executions,
        ),
    )
    return _explain_and_draw(result, judgement, coder, settings, tell, flame=flame)


def _explain_and_draw(
    result: Analysis,
    judgement: detect.Judgement,
    coder: vectors.Coder,
    settings: CompareSettings,
    tell: Progress,
    *,
    flame: bool,
) -> Analysis:
    """Add what an answer has beside the verdict: causes, and where the time goes."""
    if flame:  # before threads: Python 3.11 fails if two parse modules at once, as pytest has them
        _ = detect.build_flame
    # The verdict is known: what is left to do says only why.
    tell(f"{VERDICTS[result.verdict]}; adding up" + name_place(3, COMPARING))
    explained: Analysis
    explained, nodes, waits = side_by_side(
        partial(localize.explain, result, coder, settings, tell),
        partial(_draw_flame, result, judgement, coder, settings) if flame else tuple,
        partial(vectors.sum_waits, result.normal, result.sample),
        rows=len(result.normal) + len(result.sample),
    )
    # Paths are fetched as they are needed, to the end.
    warnings = (*explained.warnings, *stores.LEDGER.take_notes())
    return structs.replace(explained, flame=nodes, waits=waits, warnings=warnings)


def _draw_flame(
    result: Analysis, judgement: detect.Judgement, coder: vectors.Coder, settings: CompareSettings
) -> tuple[FlameNode, ...]:
    """Return where the time goes; changes are tested in directions that the verdict allows."""
    from critpath.documents import SLOWER  # noqa: PLC0415 - start-up time

    normal, sample = result.normal, result.sample
    labels = normal.executions.label, sample.executions.label
    types = judgement.normal_clusters.labels, judgement.types
    apart = judgement.apart
    # What the machine may have done to sets of different times is nothing to mark.
    sure = apart is None or 1 / (1 + apart.slower) - 1 > apart.beyond
    directions = {
        **dict.fromkeys(SLOWER, ("more", "less")),
        "ok": ("less",) if localize.is_faster(result) and sure else (),
    }.get(result.verdict, ())
    return detect.build_flame(
        vectors.chain_times(normal, sample, coder if coder.kind == "thread" else None),
        detect.FlameSets(
            labels=labels if cluster.labels_are_usable(*labels) else ((), ()),
            types=types,
            sessions=(normal.session, sample.session),
            runs=None if apart or not directions else detect.find_runs(normal, sample),
            blocks=None if apart or not directions else detect.find_blocks(normal, sample),
        ),
        # Behind an alarm, whose level that of the whole tree is.
        level=FLAME.level if result.verdict in SLOWER else settings.alpha,
        permutations=settings.permutations,
        directions=directions,
        whole=result.detection.states[-1] if result.verdict in SLOWER else None,
    )


def _sufficient(
    verdict: str, normal: PathSet, sample: PathSet, by: tuple[CompareSettings, detect.Judgement]
) -> Iterator[Note]:
    """Yield what recordings under a budget should have been like to have enough executions."""
    if verdict != "inconclusive":
        return
    wanted = max(by[0].minimum_executions, by[1].detection.needed)
    for name, paths in (("before", normal), ("after", sample)):
        gaps = (entry.gaps for entry in paths.environment)
        of = [each for each in gaps if each is not None and each.overhead is not None]
        if not of or not 0 < len(paths) < wanted:
            continue
        more = wanted / len(paths)
        seen = sum(each.whole + each.partial + (each.bystander or 0) for each in of)
        seconds = sum(each.recorded_ns for each in of) / 1e9
        asked = (of[0].overhead or {}).get("target")
        target = float(asked) if isinstance(asked, int | float) else 0.0
        target = more * target if wanted <= seen else 0.0
        yield SufficientRecording(name, len(paths), seen, wanted, more * seconds, target)


def compare_recordings(
    places: Sequence[Path], request: AbRequest, progress: Callable[[str], None]
) -> AbCause:
    """Compare recorded blocks, for what they say of why."""
    from critpath.documents import AbCause  # noqa: PLC0415 - start-up time
    from critpath.report.document import comparison_document  # noqa: PLC0415 - as above

    def extract_side(name: str) -> PathSet:
        parts = [place / name for place in places]
        return extract(parts, specification=request.specification or None, progress=progress)

    settings = CompareSettings(floor=request.floor / 2)
    analysis = compare(extract_side("normal"), extract_side("sample"), settings)
    document = comparison_document(analysis)
    causes = [cause.sentence for cause in document.causes if not cause.minor]
    return AbCause(verdict=document.verdict, sentences=[*document.reasons[:1], *causes[:3]])


# Remember: what is normal.


class Update(Struct, frozen=True, eq=False):
    """What became of an update.

    Attributes
    ----------
    comparison : Analysis
        The new recording as sample, the baseline as the normal set.
    baseline : Baseline or None
        What to save; None if the update is refused.
    dropped : tuple of str
        Recordings that made way.
    """

    comparison: Analysis
    baseline: store.Baseline | None
    dropped: tuple[str, ...] = ()


def update(
    baseline: store.Baseline,
    file: Path,
    parts: Sequence[PathSet],
    settings: CompareSettings,
    *,
    version: str,
    executions: int,
    sessions: int,
    accept: bool = False,
) -> Update:
    """Hold new recordings against a baseline, and add them if nothing is slower.

    Parameters
    ----------
    baseline : Baseline
    file : Path
        Its name, for messages.
    parts : sequence of PathSet
        New recordings.
    settings : CompareSettings
    version : str
        Of critpath.
    executions, sessions : int
        Most executions of a recording, and most recordings, that are kept.
    accept : bool
        Begin anew with the new recordings if the verdict is not ``ok``: what was
        normal before must not be mixed with them.

    Raises
    ------
    UsageError
        If a recording is in the baseline already.
    """
    old = baseline.list_sets(file, interrupts=settings.interrupts)
    baseline.require_new(parts, file)
    new = store.make_sessions(parts, executions)
    comparison = compare(join_sets(old), join_sets(list(parts)), settings)
    if comparison.verdict == "ok" and settings.level:
        # What a level hides from the gate would be normal from then on.
        full = compare(join_sets(old), join_sets(list(parts)), replace(settings, level=()))
        if full.verdict == "anomaly":
            # A warning: every answer says it, and what the verdict alone says is another.
            comparison = structs.replace(full, warnings=(HiddenByLevels(), *full.warnings))
    if comparison.verdict != "ok":
        anew = structs.replace(baseline, sessions=new, version=version) if accept else None
        dropped = tuple(s for part in old for s in part.sources) if accept else ()
        return Update(comparison, anew, dropped)
    return Update(comparison, *baseline.add(new, version, sessions))


def load_saved_paths(file: Path) -> PathSet:
    """Return the paths in what `extract` wrote or in a baseline, as they were saved.

    Raises
    ------
    UnreadableError
    """
    return join_sets(store.load_sets(file))


def count_documents(
    source: Path, settings: signatures.SignSettings, progress: Progress | None = None
) -> tuple[Counts, tuple[str, ...]]:
    """Return how often what happened in a recording, document by document, and notes.

    See `critpath.signatures.read_source`.
    """
    from critpath import signatures  # noqa: PLC0415 - as said above

    def find(source: Path, settings: signatures.SignSettings) -> Executions:
        return extract(
            [source],
            specification=settings.specification,
            reader=settings.reader,
            progress=progress,
        ).executions

    return signatures.read_source(source, settings, find, progress)


def look_up_comparison(
    known_store: known.Store,
    document: ComparisonDocument,
    sources: tuple[Path, Path],
    settings: signatures.SignSettings,
    *,
    level: float,
    best: int = 5,
) -> KnownEntry:
    """Look up an anomaly: by its causes, and by counts where both sides have some."""
    from critpath import signatures  # noqa: PLC0415 - as said above

    counted = [
        count_documents(source, settings)[0] if (source / COUNTS).is_file() else None
        for source in sources
    ]
    return signatures.search(
        *(known_store, counted[1], counted[0], signatures.find_causes(document)),
        level=level,
        best=best,
    )
