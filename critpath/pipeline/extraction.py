"""From recordings to the critical path of every execution."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from critpath.errors import UsageError
from critpath.executions.find import find_executions
from critpath.executions.specification import parse_specification
from critpath.units import plural

if TYPE_CHECKING:
    from critpath.executions.specification import Specification
    from critpath.model import Events, Executions, Manifest, PathSet, Timelines, Wanted
    from critpath.pipeline.replaying import Replayed
    from critpath.pipeline.sources import Opener
    from critpath.read.clocks import Trace

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
    from critpath.executions.choose import choose_specification, with_label
    from critpath.executions.marker import WANTED
    from critpath.executions.specification import wanted
    from critpath.pipeline.replaying import few_events
    from critpath.pipeline.sources import Opener
    from critpath.read.description import Description
    from critpath.read.layout import KERNEL
    from critpath.read.manifest import open_manifest
    from critpath.read.recording import find_traces

    tell = progress or (lambda _: None)
    manifest, said = open_manifest(recording)
    traces = find_traces(recording)
    described = [Description(trace) for trace in traces]
    names = sorted({name for of in described for name in of.events})

    def opener(more: Sequence[Wanted]) -> Opener:
        return Opener(recording, traces, (*KERNEL, *more), settings.reader)

    def marks() -> Events:
        return few_events(opener(WANTED), [parse_specification("marker")])

    possible = any(name in names for entry in WANTED for name in entry.names)
    text, how = choose_specification(
        settings.specification, manifest.execution, recording, names, marks if possible else None
    )
    chosen, labelled = with_label(parse_specification(text), [of.texts for of in described])
    recorded = _Recorded(recording, traces, manifest, (*said, *how, *labelled))
    with _replayed(opener(wanted(chosen)), recorded, [chosen], settings) as replayed:
        try:
            executions = find_executions(
                replayed.events, chosen, names, manifest.runs, interleaved=bool(manifest.interleaved)
            )
        except UsageError as error:
            # Of several recordings it may be in one that an event or a field is missing.
            raise UsageError(f"{recording}: {error.what}", error.do) from None
        tell(f"walking {plural(len(executions), 'critical path')}")
        yield from _walked(replayed, executions, recorded, text, settings)


@dataclass(frozen=True)
class _Recorded:
    """A recording, and what has to be said of it before anything is read."""

    path: Path
    traces: Sequence[Trace]
    manifest: Manifest
    notes: tuple[str, ...]


@contextmanager
def _replayed(
    opener: Opener,
    recorded: _Recorded,
    specifications: Sequence[Specification],
    settings: ExtractSettings,
) -> Iterator[Replayed]:
    from critpath.pipeline.replaying import ROWS, expected, replay_stream
    from critpath.read.manifest import with_manifest

    replayed = replay_stream(
        opener,
        expected(recorded.traces),
        specifications,
        rows=ROWS,
        spill=bool(settings.max_memory),
        complete=partial(with_manifest, manifest=recorded.manifest),
    )
    with closing(replayed):
        yield replayed


def _walked(
    replayed: Replayed,
    executions: Executions,
    recorded: _Recorded,
    specification: str,
    settings: ExtractSettings,
) -> Iterator[PathSet]:
    """Walk the executions, and yield their paths."""
    from critpath.graph.loss import overlaps_loss
    from critpath.graph.subjects import left_out, subject_workers
    from critpath.graph.sweep import sweep_paths
    from critpath.model import PathSet

    events = replayed.events
    subjects = subject_workers(replayed.workers, executions)
    paths = sweep_paths(
        replayed.blocks,
        replayed.workers,
        events.strings,
        replayed.processors,
        replayed.packets,
        events.losses,
        subjects,
        executions.begin,
        executions.end,
        interrupts=settings.interrupts,
    )
    notes = (*executions.notes, *left_out(subjects, executions))
    yield PathSet(
        executions=executions,
        paths=paths,
        session=np.zeros(len(executions), np.int64),
        sources=(str(recorded.path),),
        specification=specification,
        losses=events.losses,
        lossy=overlaps_loss(events.losses, executions.host, executions.begin, executions.end),
        environment=(
            *events.environment,
            {"recording": str(recorded.path), "clock_epoch": events.clock.epoch},
        ),
        events=events.total,
        warnings=(*recorded.notes, *events.warnings, *replayed.warnings, *notes),
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
