"""From recordings to the critical path of every execution."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from critpath.errors import UsageError
from critpath.executions.specification import parse_specification
from critpath.units import plural

if TYPE_CHECKING:
    from critpath.model import (
        Events,
        Executions,
        PathSet,
        Timelines,
        Wanted,
    )

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
    """

    specification: str | None = None
    reader: str = "auto"
    interrupts: bool = True
    max_memory: int = 0


def extract(
    sources: Sequence[Path],
    *,
    specification: str | None,
    reader: str = "auto",
    interrupts: bool = True,
    progress: Progress | None = None,
) -> PathSet:
    """Extract the critical path of every execution of some recordings.

    Parameters
    ----------
    sources : sequence of Path
        Recordings, directories of recordings, CTF trace directories, files that an
        earlier `extract` saved, or baselines.
    specification : str or None
        What an execution is (``--execution``); None for what the recording says of
        itself.
    reader : str
        ``auto``, ``native`` or ``babeltrace2``.
    interrupts : bool
        Take interrupt work out of running time.
    progress : callable or None
        Told what is being done.

    Returns
    -------
    PathSet

    Raises
    ------
    UnreadableError, UsageError
        As the readers and finders do.
    """
    from critpath.graph.concatenate import join_sets

    return join_sets(
        extract_each(
            sources,
            specification=specification,
            reader=reader,
            interrupts=interrupts,
            progress=progress,
        )
    )


def extract_each(
    sources: Sequence[Path],
    *,
    specification: str | None,
    reader: str = "auto",
    interrupts: bool = True,
    progress: Progress | None = None,
) -> list[PathSet]:
    """Extract as `extract` does, and leave every recording a set of its own."""
    from critpath import store
    from critpath.baseline.format import is_baseline_file
    from critpath.read.sessions import find_recordings

    tell = progress or (lambda _: None)
    settings = ExtractSettings(specification, reader, interrupts)
    parts: list[PathSet] = []
    for source in sources:
        if is_baseline_file(source):
            from critpath.baseline.read import load_baseline
            from critpath.pipeline.baselines import sets_of

            tell(f"loading {source}")
            parts += sets_of(load_baseline(source), source, interrupts=interrupts)
            continue
        if store.is_paths_file(source):
            tell(f"loading {source}")
            parts.append(store.load_paths(source))
            continue
        for recording in find_recordings(source):
            tell(f"reading {recording}")
            parts += extract_recording(recording, settings, tell)
    return parts


def extract_recording(
    recording: Path, settings: ExtractSettings, progress: Progress | None = None
) -> Iterator[PathSet]:
    """Extract the critical path of every execution of one recording.

    Yields
    ------
    PathSet
        One, or several of the same recording, in order, that belong together.

    Raises
    ------
    UnreadableError, UsageError
        As the readers and finders do.
    """
    tell = progress or (lambda _: None)
    yield _extract_one(
        recording, settings.specification, settings.reader, settings.interrupts, tell
    )


def _extract_one(
    recording: Path, specification: str | None, reader: str, interrupts: bool, tell: Progress
) -> PathSet:
    from critpath.executions.choose import choose_specification, with_label
    from critpath.executions.find import find_executions
    from critpath.executions.marker import WANTED
    from critpath.executions.specification import wanted
    from critpath.read.layout import KERNEL
    from critpath.read.manifest import open_manifest, with_manifest
    from critpath.read.recording import describe

    manifest, said = open_manifest(recording)
    described = describe(recording)
    names = sorted({name for trace in described for name in trace.events})
    marks = partial(_read, recording, (*KERNEL, *WANTED), reader)
    text, how = choose_specification(specification, manifest.execution, recording, names, marks)
    chosen, labelled = with_label(parse_specification(text), [t.texts for t in described])
    events = _read(recording, (*KERNEL, *wanted(chosen)), reader)
    events = with_manifest(events, manifest)
    try:
        executions = find_executions(
            events, chosen, names, manifest.runs, interleaved=bool(manifest.interleaved)
        )
    except UsageError as error:
        # Of several recordings it may be in one that an event or a field is missing.
        raise UsageError(f"{recording}: {error.what}", error.do) from None
    tell(f"walking {plural(len(executions), 'critical path')}")
    timelines = _timelines(events)
    path_set = _walk_all(events, timelines, executions, recording, text, interrupts)
    return replace(path_set, warnings=(*said, *how, *labelled, *path_set.warnings))


def _read(recording: Path, wanted: Sequence[Wanted], reader: str) -> Events:
    from critpath.read.recording import read_events
    from critpath.timeline.missing_switches import with_missing_switches

    return with_missing_switches(read_events(recording, wanted, reader=reader))


def _timelines(events: Events) -> Timelines:
    from critpath.timeline.clocks import align_hosts
    from critpath.timeline.network import link_packets
    from critpath.timeline.replay import replay

    aligned = align_hosts(events)
    return link_packets(aligned, replay(aligned))


def _walk_all(
    events: Events,
    timelines: Timelines,
    executions: Executions,
    recording: Path,
    specification: str,
    interrupts: bool,
) -> PathSet:
    from critpath.graph.loss import overlaps_loss
    from critpath.graph.path import critical_paths
    from critpath.graph.subjects import left_out, subject_workers
    from critpath.model import PathSet

    subjects = subject_workers(timelines.workers, executions)
    paths = critical_paths(
        timelines,
        subjects,
        executions.begin,
        executions.end,
        interrupts=interrupts,
    )
    notes = (*executions.notes, *left_out(subjects, executions))
    return PathSet(
        executions=executions,
        paths=paths,
        session=np.zeros(len(executions), np.int64),
        sources=(str(recording),),
        specification=specification,
        losses=events.losses,
        lossy=overlaps_loss(events.losses, executions.host, executions.begin, executions.end),
        environment=(
            *events.environment,
            {"recording": str(recording), "clock_epoch": events.clock.epoch},
        ),
        events=events.total,
        warnings=(*events.warnings, *timelines.warnings, *notes),
    )


def read_timelines(source: Path, reader: str = "auto") -> tuple[Events, Timelines]:
    """Read the kernel's events of a recording, and what every thread did."""
    from critpath.read.layout import KERNEL
    from critpath.read.manifest import open_manifest, with_manifest

    manifest, _ = open_manifest(source)
    events = with_manifest(_read(source, KERNEL, reader), manifest)
    return events, _timelines(events)


def thread_paths(
    source: Path,
    *,
    tid: int | None,
    comm: str | None,
    begin: int | None,
    end: int | None,
    reader: str = "auto",
    interrupts: bool = True,
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

    Raises
    ------
    UsageError
        If no thread matches, or nothing was recorded in the window.
    """
    from critpath.graph.subjects import lives_of
    from critpath.read.manifest import open_manifest

    _, said = open_manifest(source)
    events, timelines = read_timelines(source, reader)
    executions = lives_of(
        timelines.workers, timelines.strings, tid, comm, (begin, end), (events.begin, events.end)
    )
    path_set = _walk_all(events, timelines, executions, source, "thread", interrupts)
    return replace(path_set, warnings=(*said, *path_set.warnings))
