"""From recordings to the critical path of every execution."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from critpath.errors import UsageError
from critpath.executions.find import find_executions, require_events
from critpath.executions.specification import parse_specification
from critpath.units import plural

if TYPE_CHECKING:
    from critpath.executions.specification import Specification
    from critpath.model import Events, Manifest, PathSet, Timelines, Wanted
    from critpath.pipeline.budget import Budget
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
    from critpath.executions.choose import choose_specification, with_label
    from critpath.executions.marker import WANTED
    from critpath.executions.specification import wanted
    from critpath.pipeline.budget import Budget
    from critpath.pipeline.replaying import few_events
    from critpath.pipeline.sources import Opener
    from critpath.pipeline.walking import walked
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
        return Opener(recording, traces, (*KERNEL, *more), settings.reader, ahead=settings.ahead)

    def marks() -> Events:
        return few_events(opener(WANTED), [parse_specification("marker")])

    possible = any(name in names for entry in WANTED for name in entry.names)
    text, how = choose_specification(
        settings.specification, manifest.execution, recording, names, marks if possible else None
    )
    chosen, labelled = with_label(parse_specification(text), [of.texts for of in described])
    recorded = _Recorded(recording, traces, manifest, (*said, *how, *labelled))
    budget = Budget.within(settings.max_memory)
    with _naming(recording):
        # Before anything is read: what is misspelt is told at once.
        require_events(chosen, names)
    with _replayed(opener(wanted(chosen)), recorded, [chosen], budget) as replayed:
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
    from critpath.pipeline.replaying import expected, replay_stream
    from critpath.read.manifest import with_manifest

    replayed = replay_stream(
        opener,
        expected(recorded.traces),
        specifications,
        budget,
        complete=partial(with_manifest, manifest=recorded.manifest),
    )
    with closing(replayed):
        said = (*recorded.notes, *replayed.events.warnings)
        if budget.spills and opener.whole:
            said += (
                f"{recorded.path} was in memory as a whole, whatever --max-memory: {opener.whole}",
            )
        yield replace(replayed, events=replace(replayed.events, warnings=said))


def read_timelines(source: Path, reader: str = "auto") -> tuple[Events, Timelines]:
    """Read the kernel's events of a recording, and what every thread did, into memory."""
    from critpath.read.layout import KERNEL
    from critpath.read.manifest import open_manifest, with_manifest
    from critpath.read.recording import read_events
    from critpath.timeline.clocks import align_hosts
    from critpath.timeline.missing_switches import with_missing_switches
    from critpath.timeline.replay import replay

    manifest, _ = open_manifest(source)
    events = with_missing_switches(read_events(source, KERNEL, reader=reader))
    events = with_manifest(align_hosts(events), manifest)
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
    from critpath.graph.subjects import lives_of
    from critpath.pipeline.budget import Budget, require_room
    from critpath.pipeline.sources import Opener
    from critpath.pipeline.walking import walked
    from critpath.read.layout import KERNEL
    from critpath.read.manifest import open_manifest
    from critpath.read.recording import find_traces

    require_room(max_memory, 1)
    manifest, said = open_manifest(source)
    traces = find_traces(source)
    recorded = _Recorded(source, traces, manifest, said)
    budget = Budget.within(max_memory)
    with _replayed(Opener(source, traces, KERNEL, reader), recorded, [], budget) as replayed:
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
