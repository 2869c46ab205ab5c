"""From what a user names to sets of paths: recordings are extracted, what is saved is loaded."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from critpath.errors import EXIT_UNREADABLE, CritpathError, TooMuchTimeError, UsageError
from critpath.model import ExtractSettings
from critpath.pipeline.engines import Engine, Failure, choose_jobs, run, size_of
from critpath.pipeline.limits import least_room, require_room, usable_cores
from critpath.pipeline.progress import Progress, name_place

if TYPE_CHECKING:
    from critpath.model import F64, PathSet
    from critpath.model.requests import Sketches
    from critpath.pipeline.slicing import SliceSketches
    from critpath.read.recording import Recording
    from critpath.store import Part

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
        Told what is being done.
    partial, bystanders : bool
        Which executions of recordings with gaps: as of `ExtractSettings`.

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
) -> list[PathSet]:
    """Extract as `extract` does, and leave every recording a set of its own."""
    settings = ExtractSettings(
        *(specification, reader, interrupts, max_memory), partial=partial, bystanders=bystanders
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
    from critpath.pipeline.extraction import sketch_recording
    from critpath.read.recording import Recording

    recordings = _find_recordings(sources, settings, progress, "requests")
    return [
        sketch_recording(Recording(recording), settings, progress, name_place(n, len(recordings)))
        for n, recording in enumerate(recordings, 1)
    ]


def read_slices(
    sources: Sequence[Path], settings: ExtractSettings, progress: Progress | None = None
) -> list[SliceSketches]:
    """Return all slices of some recordings, one recording after the other.

    Raises
    ------
    UsageError
        If a source holds paths alone, or executions that are no slices.
    """
    from critpath.read.recording import Recording

    recordings = _find_recordings(sources, settings, progress, "slices")
    return [
        _slice_recording(Recording(recording), settings, progress, name_place(n, len(recordings)))
        for n, recording in enumerate(recordings, 1)
    ]


def _find_recordings(
    sources: Sequence[Path], settings: ExtractSettings, progress: Progress | None, of: str
) -> list[Path]:
    """Return the recordings of some sources; UsageError for paths, which have not all tables."""
    recordings = []
    for item in _resolve_sources(sources, settings.interrupts, progress or (lambda _: None)):
        if not isinstance(item, Path):
            raise UsageError(
                f"{', '.join(item.sources)}: paths alone, without the tables of {of}",
                "name the recordings that they were extracted from",
            )
        recordings.append(item)
    return recordings


def _slice_recording(
    recording: Recording, settings: ExtractSettings, progress: Progress | None, place: str
) -> SliceSketches:
    """Return all slices of one recording and what led to which; no paths are walked."""
    from critpath.pipeline import extraction
    from critpath.pipeline.slicing import sketch_slices

    with (
        extraction.replay_chosen(recording, settings, progress, place, only="slices") as chosen,
        recording.named(),
    ):
        return sketch_slices(chosen.replayed, chosen.specification, recording)


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
        What is in the file now; segments of a large one stay in it.
    """
    from critpath import store

    # A process that has to stay within a limit cannot send what it found: that is in files.
    limited = settings.max_memory > 0 and jobs != 1
    scratch = store.scratch_directory(file) if limited else nullcontext()
    with store.atomic(file) as stream, scratch as parts:
        items = list(_resolve_sources(sources, settings.interrupts, progress or (lambda _: None)))
        stacks = any(map(_has_stacks, items))
        found = _extract_items(items, settings, jobs, progress, parts)
        with store.PathsWriter(stream, stacks=stacks) as writer, closing(found):
            for part in found:
                for number, paths in enumerate(part):
                    writer.write(paths, more=number > 0)
        written = store.open_paths(store.readable(stream), resident=0, later=file)
        require(written)
    return written


def extract_dataset(
    sources: Sequence[Path],
    directory: Path,
    settings: ExtractSettings,
    *,
    require: Require,
    jobs: int | None = 1,
    engine: Engine | None = None,
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
    from critpath import __version__, store

    tell = progress or (lambda _: None)
    with store.atomic_directory(directory) as place:
        items = list(_resolve_sources(sources, settings.interrupts, tell))
        here = str(Path.cwd()) if engine else ""
        tasks: list[_Task] = []
        parts: dict[int, Part] = {}
        for number, item in enumerate(items):
            if isinstance(item, Path):
                tasks.append(_Task(item, settings, number, place, here))
            else:
                parts[number] = store.write_part(place, number, [item])
        count = 1 if engine else fit_jobs(jobs, [task.recording for task in tasks], settings)
        each = split_resources(settings, count, jobs, remote=engine is not None)
        tasks = _number_tasks([replace(task, settings=each) for task in tasks])
        work = partial(_write_part, progress=progress) if count == 1 and not engine else _write_part
        done = run(work, tasks, jobs=count, engine=engine, size=_size, progress=tell)
        with closing(done):
            for written in done:
                if written.version != __version__:
                    raise CritpathError(
                        f"a worker has critpath {written.version}, and this is {__version__}",
                        "install the same version everywhere",
                    )
                parts[written.number] = written.part
        ordered = [parts[number] for number in range(len(items))]
        store.seal(place, ordered, {"version": __version__})
        require(join_sets(store.load_dataset(place, resident=0)))
    return join_sets(store.load_dataset(directory, resident=0))


# ------------------------------------------------------------------ what is joined


def join_sets(parts: Sequence[PathSet]) -> PathSet:
    """Join the executions of several recordings into one set, one session each.

    Raises
    ------
    TooMuchTimeError
        If what they take cannot be added up.
    """
    import numpy as np

    from critpath.model import MOST_TIME, Executions, PathSet, join_facts, join_stored

    if sum(part.executions.time for part in parts) >= MOST_TIME:
        raise TooMuchTimeError
    if len(parts) == 1:
        return parts[0]

    def join_chances() -> F64 | None:
        # 1 where one was recorded whatever it was like.
        if all(one.chance is None for one in every):
            return None
        return np.concatenate([np.ones(len(e)) if e.chance is None else e.chance for e in every])

    sources = tuple(source for part in parts for source in part.sources)
    offsets = np.cumsum([0, *(len(part.sources) for part in parts)])
    every = [part.executions for part in parts]
    return PathSet(
        executions=Executions(
            id=tuple(chain.from_iterable(e.id for e in every)),
            begin=np.concatenate([e.begin for e in every]),
            end=np.concatenate([e.end for e in every]),
            tid=np.concatenate([e.tid for e in every]),
            host=np.concatenate([e.host for e in every]),
            comm=tuple(chain.from_iterable(e.comm for e in every)),
            label=tuple(chain.from_iterable(e.label for e in every)),
            incomplete=sum(e.incomplete for e in every),
            notes=tuple(note for e in every for note in e.notes),
            requests=join_facts([e.requests for e in every if len(e)]),
            causes=tuple(c for e in every for c in e.causes)
            if all(len(e.causes) == len(e) for e in every)
            else (),
            chance=join_chances(),
        ),
        paths=join_stored([part.paths for part in parts]),
        session=np.concatenate([p.session + o for p, o in zip(parts, offsets, strict=False)]),
        sources=sources,
        specification=" | ".join(dict.fromkeys(part.specification for part in parts)),
        losses=tuple(loss for part in parts for loss in part.losses),
        lossy=np.concatenate([part.lossy for part in parts]),
        environment=tuple(e for part in parts for e in part.environment),
        events=sum(part.events for part in parts),
        warnings=tuple(w for part in parts for w in part.warnings),
    )


# ------------------------------------------------------------------ what is named


def _resolve_sources(
    sources: Sequence[Path], interrupts: bool, tell: Progress
) -> Iterator[Path | PathSet]:
    """Yield every recording of the sources by its path, and what is saved as it is."""
    from critpath import store
    from critpath.store.baseline import is_baseline_file

    for source in sources:
        if is_baseline_file(source):
            from critpath.pipeline.baselines import split_baseline
            from critpath.store.baseline import load_baseline

            tell(f"loading {source}")
            yield from split_baseline(load_baseline(source), source, interrupts=interrupts)
        elif store.is_paths_file(source):
            tell(f"loading {source}")
            yield store.open_paths(source)
        elif store.is_dataset(source):
            tell(f"loading {source}")
            yield from store.load_dataset(source)
        else:
            from critpath.read.traces import find_recordings

            yield from find_recordings(source)


def _has_stacks(item: Path | PathSet) -> bool:
    """Tell whether paths may come with stacks, before they are read."""
    from critpath import store
    from critpath.read.stacks import EVERY, find_stacks

    if not isinstance(item, Path):
        return store.has_stacks(item)
    return any(find_stacks(item, names) for names in EVERY)


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
    from critpath import store

    tell = progress or (lambda _: None)
    recordings = [item for item in items if isinstance(item, Path)]
    count = fit_jobs(jobs, recordings, settings)
    each = split_resources(settings, count, jobs)
    tasks = _number_tasks(
        [_Task(recording, each, number, parts) for number, recording in enumerate(recordings)]
    )
    # A stream cannot go from one process to another.
    work: Callable[[_Task], Any] = _read_set if parts is None else _write_part
    if count == 1:
        work = partial(_stream_sets, progress=progress)
    with closing(run(work, tasks, jobs=count, size=_size, progress=tell)) as results:
        for item in items:
            if not isinstance(item, Path):
                yield [item]
            elif count > 1 and parts is not None:
                file = parts / next(results).part.file
                yield [store.open_paths(file, resident=0)]
                file.unlink(missing_ok=True)
            elif count > 1:
                yield [_make_read_only(paths) for paths in next(results)]
            else:
                yield next(results)
        # To the end: who is closed before it is interrupted.
        next(results, None)


def _join_parts(parts: Iterable[PathSet]) -> PathSet:
    """Join the sets of one recording, whose facts each of them has."""
    each = list(parts)
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


_FACTS: Final = ("sources", "specification", "losses", "environment", "events")


# --------------------------------------------------------------------- one of them


def _decided_hosts() -> str:
    from critpath.read.hosts import decided_hosts

    return decided_hosts()


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
    """

    recording: Path
    settings: ExtractSettings
    number: int = 0
    directory: Path | None = None
    here: str = ""
    place: str = ""
    hosts: str = field(default_factory=_decided_hosts)

    def __str__(self) -> str:
        return str(self.recording)


@dataclass(frozen=True)
class _Written:
    """What a worker says of a part that it wrote."""

    number: int
    part: Part
    version: str


def _number_tasks(tasks: list[_Task]) -> list[_Task]:
    """Say of every task which of how many it is."""
    if len(tasks) < 2:
        return tasks
    return [replace(task, place=name_place(n, len(tasks))) for n, task in enumerate(tasks, 1)]


def _size(task: _Task) -> int:
    return size_of(task.recording)


def _stream_sets(task: _Task, progress: Progress | None = None) -> Iterator[PathSet]:
    """Extract a recording in this process."""
    from critpath.pipeline.extraction import extract_recording
    from critpath.read.recording import Recording

    yield from extract_recording(Recording(task.recording), task.settings, progress, task.place)


def _read_set(task: _Task) -> list[PathSet]:
    """Extract a recording in another process, which sends what it found."""
    from critpath.read.hosts import decide_hosts

    with decide_hosts(task.hosts):
        return list(_stream_sets(task))


def _write_part(task: _Task, progress: Progress | None = None) -> _Written:
    """Extract a recording, wherever this is, and write its part of the dataset."""
    from critpath import __version__, store
    from critpath.read.hosts import decide_hosts

    if task.directory is None:
        raise ValueError("a part of no dataset")
    sets = (
        rebase_paths(task.recording, task.settings, task.here)
        if task.here
        else _stream_sets(task, progress)
    )
    with decide_hosts(task.hosts):
        part = store.write_part(task.directory, task.number, sets)
    return _Written(task.number, part, __version__)


def _make_read_only(paths: PathSet) -> PathSet:
    """Make a set that came from another process read-only again."""
    known = paths.executions.requests
    executions = replace(paths.executions, requests=known and replace(known))
    return replace(paths, executions=executions, paths=replace(paths.paths))


# How processes that read at the same time share processors and memory.


def fit_jobs(jobs: int | None, recordings: Sequence[Path], settings: ExtractSettings) -> int:
    """Return how many processes read some recordings."""
    limit = settings.max_memory
    count = choose_jobs(jobs, recordings, limit)
    if not recordings or not limit:
        return count
    # Once: a second look may find more, and refuse what was chosen by the first.
    least = least_room()
    if jobs is None:
        count = max(1, min(count, limit // least))
    require_room(limit, count, least)
    return count


def split_resources(
    settings: ExtractSettings, count: int, jobs: int | None, *, remote: bool = False
) -> ExtractSettings:
    """Divide what there is among as many as read at the same time."""
    cores = usable_cores() if jobs is None else min(jobs, usable_cores())
    return replace(
        settings,
        max_memory=settings.max_memory // count,
        ahead=cores >= 2 * count and not remote,
    )


# Recordings read by a worker with another current directory than the user's.


_WINDOWS: Final = "windows:"


def rebase_paths(recording: Path, settings: ExtractSettings, here: str) -> Iterator[PathSet]:
    """Extract a recording where the user's current directory is another; say its given name."""
    from critpath.pipeline.extraction import extract_recording
    from critpath.read.recording import Recording

    near = str(recording)
    far = str(Path(here) / near)
    names = {far: near}
    given = settings.specification or ""
    if given.startswith(_WINDOWS):
        file = str(Path(here) / given.removeprefix(_WINDOWS))
        names[file] = given.removeprefix(_WINDOWS)
        settings = replace(settings, specification=_WINDOWS + file)

    def named(text: str) -> str:
        for there, given_name in names.items():
            text = text.replace(there, given_name)
        return text

    try:
        for paths in extract_recording(Recording(Path(far)), settings):
            yield _rename_texts(paths, named)
    except CritpathError as error:
        raise Failure(
            error.exit_code,
            named(error.what),
            named(error.do)
            + "; workers need it under the same name" * (error.exit_code == EXIT_UNREADABLE),
        ).error() from error


def _rename_texts(paths: PathSet, named: Callable[[str], str]) -> PathSet:
    executions = paths.executions
    return replace(
        paths,
        executions=replace(executions, notes=tuple(map(named, executions.notes))),
        sources=tuple(map(named, paths.sources)),
        specification=named(paths.specification),
        losses=tuple(replace(loss, reason=named(loss.reason)) for loss in paths.losses),
        environment=tuple(each.map_texts(named) for each in paths.environment),
        warnings=tuple(map(named, paths.warnings)),
    )
