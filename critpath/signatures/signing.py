"""From a recording, counted or traced, to counts by document, and to signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from critpath.errors import InconclusiveError, UnreadableError, UsageError
from critpath.model import EventRequest, Kind
from critpath.model.recording import COUNTS
from critpath.model.signatures import MACHINE_SCOPE, Counts, Signatures
from critpath.progress import Stage
from critpath.read import KERNEL_EVENTS, OutOfOrder, Recording
from critpath.schema.parameters.signatures import LOOKUP, QUIET
from critpath.signatures.tally import ATTACH, Owners, Tally, add_up
from critpath.signatures.terms import normalised
from critpath.signatures.weights import NEEDING_CORPUS, join_corpora, make_corpus, weigh
from critpath.store import CountsFile
from critpath.timeline import RecordingOpener
from critpath.units import NS_PER_S, format_ns, safe_text

if TYPE_CHECKING:
    from critpath.model import I64, Bool, Events, Executions, Manifest
    from critpath.progress import Progress

COMMAND_SCOPE: Final = "command"
_MOST_INTERVALS: Final = 1_000_000  # technical


@dataclass(frozen=True)
class SignSettings:
    """What a document is.

    Attributes
    ----------
    by : str
        ``interval`` or ``execution``.
    interval : int
        Nanoseconds; 0 for that of what was counted, or 1 s.
    scope : str
        As `Counts.scopes` has it; "" for the command or control group that was recorded, else the
        machine.
    specification, reader
        As of `critpath.model.ExtractSettings`.
    traced : bool
        Count the events of the trace even where the recording has counts.
    """

    by: Literal["interval", "execution"] = "interval"
    interval: int = 0
    scope: str = ""
    specification: str | None = None
    reader: str = "auto"
    traced: bool = False


def read_source(
    source: Path,
    settings: SignSettings,
    find: Callable[[Path, SignSettings], Executions],
    progress: Progress | None = None,
) -> tuple[Counts, tuple[str, ...]]:
    """Return how often what happened in a recording, document by document, and notes.

    Parameters
    ----------
    source : Path
        A recording with counts or without, a CTF trace, or a file that `critpath signature`
        saved.
    settings : SignSettings
    find : callable
        Finds the executions of a recording, where documents are these.
    progress : callable, optional

    Returns
    -------
    counts : Counts
        Of one scope.
    notes : tuple of str

    Raises
    ------
    UnreadableError
        If the source is none of these, or malformed.
    UsageError
        If it has no such scope, or was counted in longer intervals.
    InconclusiveError
        If it has no document.
    """
    notes: tuple[str, ...] = ()
    if (file := CountsFile(source)).is_one():
        counts = file.load()
    elif (source / COUNTS).is_file() and not settings.traced:
        recording = Recording(source)
        found, notes = recording.read_counts()
        notes = (*recording.notes, *notes)
        counts = _choose_lines(normalised(found), recording.manifest, settings, source)
    else:
        counts, notes = _tally_trace(Recording(source), settings, find, progress)
    if not len(counts):
        raise InconclusiveError(
            f"{source}: no whole {settings.by} was counted",
            "use a shorter --interval, --by execution, or record for longer",
        )
    return counts, notes


def sign(
    counts: Sequence[Counts], weights: str, *, quiet_rate: float | None = None
) -> list[Signatures]:
    """Return the signatures of several sources' documents, which are one corpus.

    Parameters
    ----------
    counts : sequence of Counts
    weights : str
        Of `critpath.signatures.weights.WEIGHTS`.
    quiet_rate : float, optional
        Hits a second below which a document is quiet.
    """
    rate = QUIET.rate if quiet_rate is None else quiet_rate
    corpus = None
    if weights in NEEDING_CORPUS:
        corpus = join_corpora([make_corpus(each, quiet_rate=rate) for each in counts])
    return [weigh(each, weights, corpus, quiet_rate=rate) for each in counts]


# From what was counted


def _choose_lines(
    counts: Counts, manifest: Manifest, settings: SignSettings, source: Path
) -> Counts:
    """Return the documents of a recording's counts: whole intervals, or runs."""
    others = [name for name in counts.scopes if name != MACHINE_SCOPE]
    scope = settings.scope or (others[0] if others else MACHINE_SCOPE)
    if scope not in counts.scopes:
        raise UsageError(
            f"{source}: counts no scope {safe_text(scope)}",
            f"it has {', '.join(safe_text(name) for name in counts.scopes)}",
        )
    counts = counts.of_scope(scope)
    # A run that was cut short is no execution; its intervals are as good as any.
    runs = [run for run in manifest.runs if run.whole or settings.by == "interval"]
    begin = np.array([run.begin for run in runs], np.int64)
    end = np.array([run.end for run in runs], np.int64)
    run = np.searchsorted(begin, counts.end, "left") - 1
    inside = (run >= 0) & (counts.begin < end[run] if len(end) else np.False_)
    if settings.by == "execution":
        if not len(begin):
            raise UsageError(
                f"{source}: has counts of no run: no command was run",
                "leave --by out: its documents are intervals",
            )

        names = tuple(f"{one.pid}@{one.begin}" for one in runs)
        return replace(add_up(counts, np.where(inside, run, -1), begin, end), executions=names)
    if manifest.interleaved or (len(begin) and scope == COMMAND_SCOPE):
        counts = counts.take(inside)  # between runs there is nothing of the command's
    return _regroup(counts, settings.interval or counts.interval, source)


def _regroup(counts: Counts, interval: int, source: Path) -> Counts:
    """Return documents of an interval that is a multiple of what was counted."""
    each = counts.interval
    times = max(1, round(interval / each)) if each else 1
    if each and interval < LOOKUP.shortest * each:
        raise UsageError(
            f"{source}: was counted every {format_ns(each)}, not every {format_ns(interval)}",
            f"--interval {each / NS_PER_S:g} or more",
        )
    whole = counts.end - counts.begin >= LOOKUP.shortest * each
    counts = counts.take(whole)
    if times == 1 or not len(counts):
        return counts
    # Whole ones that follow each other without a piece between.
    follows = np.append(False, counts.begin[1:] == counts.end[:-1])
    stretch = np.cumsum(~follows) - 1
    first = np.flatnonzero(~follows)
    place = np.arange(len(counts)) - first[stretch]
    length = np.bincount(stretch)
    kept = place < length[stretch] // times * times
    new = np.cumsum(kept & (place % times == 0)) - 1
    document = np.where(kept, new, -1)
    starts = np.flatnonzero(kept & (place % times == 0))
    return replace(
        add_up(counts, document, counts.begin[starts], counts.end[starts + times - 1]),
        interval=interval,
    )


# From a trace


def trace_requests() -> tuple[EventRequest, ...]:
    """Return what is decoded of a trace: every event, and what tells whose it is."""
    fields = {
        Kind.SWITCH: (("next_tid", "next_pid"),),
        Kind.CURRENT: (("tid",),),
        Kind.FORK: (("parent_tid", "parent_pid"), ("child_tid", "child_pid")),
        Kind.EXEC: (("tid", "pid"),),
        Kind.IRQ_ENTRY: (("name",),),
        Kind.SOFTIRQ_ENTRY: (("vec",),),
    }
    found = [
        EventRequest(of.kind, of.names, fields[of.kind])
        for of in KERNEL_EVENTS
        if of.kind in fields
    ]
    found.append(
        EventRequest(Kind.OTHER, ATTACH, (("pid", "tid"), ("dst_path", "path"), ("dst_root",)))
    )
    return (*found, EventRequest(Kind.OTHER, ("*",), ()))


def _tally_trace(
    recording: Recording,
    settings: SignSettings,
    find: Callable[[Path, SignSettings], Executions],
    progress: Progress | None,
) -> tuple[Counts, tuple[str, ...]]:

    interval = settings.interval or NS_PER_S
    begin, end, owners, ids = _documents(recording, settings, interval, find)
    opener = RecordingOpener(
        *(recording, trace_requests(), settings.reader),
        begin=lambda: Stage(progress, f"counting {recording}"),
    )
    apart = owners is None or not (owners.threads or (owners.programs and ids))
    tally, events = run_tally(opener, recording.event_names, begin, end, owners, apart=apart)
    scope = _scope(settings, recording.manifest)
    lossy = _find_lossy(events, begin, end)
    counts = tally.counts(scope, lossy, interval=0 if ids else interval)
    if ids:
        return replace(counts, executions=ids), recording.notes
    last = recording.manifest.end or events.end + 1
    return counts.take(counts.end <= last), recording.notes


def run_tally(
    opener: RecordingOpener,
    names: Sequence[str],
    begin: I64 | int,
    end: I64,
    owners: Owners | None,
    *,
    apart: bool,
) -> tuple[Tally, Events]:
    """Count a trace's events by document; return the rest of what is known of it, too."""
    try:
        with closing(opener()) as stream:
            tally = Tally(np.asarray(begin, np.int64), end, owners, apart=apart)
            tally.declare(names)
            for chunk in stream:
                tally.add(chunk, stream.classes, stream.text)
            return tally, stream.finish()
    except OutOfOrder as reason:
        opener.sort_whole(reason)
        return run_tally(opener, names, begin, end, owners, apart=apart)


def _scope(settings: SignSettings, manifest: Manifest) -> str:
    counted = manifest.counts.get("scope")
    found = settings.scope or (counted if isinstance(counted, str) else "")
    return found or (COMMAND_SCOPE if manifest.runs else MACHINE_SCOPE)


def _documents(
    recording: Recording,
    settings: SignSettings,
    interval: int,
    find: Callable[[Path, SignSettings], Executions],
) -> tuple[I64, I64, Owners | None, tuple[str, ...]]:
    """Return the windows of documents, whose events are theirs, and the ids of executions."""
    manifest, names = recording.manifest, recording.event_names
    scope = _scope(settings, manifest)
    runs = [run for run in manifest.runs if run.whole]
    # Where the command had a control group, and the trace has who joined it.
    grouped = manifest.counts.get("scope") == COMMAND_SCOPE and any(n in ATTACH for n in names)
    if settings.by == "execution":
        if not runs or settings.specification not in {None, "process"}:
            return _own_threads(find(recording.path, settings))
        begin = np.array([run.begin for run in runs], np.int64)
        end = np.array([run.end for run in runs], np.int64)
        ids = tuple(f"{run.pid}@{run.begin}" for run in runs)
        programs: dict[int, list[tuple[int, int, int]]] = {}
        for number, run in enumerate(runs):
            programs.setdefault(run.pid, []).append((run.begin, run.end, number))
        by_group = Owners(groups=(manifest.session,))
        return begin, end, by_group if grouped else Owners(programs=programs), ids
    owners = None
    if scope == COMMAND_SCOPE and grouped:
        owners = Owners(groups=(manifest.session,))
    elif scope == COMMAND_SCOPE:
        whole: dict[int, list[tuple[int, int, int]]] = {}
        for run in manifest.runs:
            whole.setdefault(run.pid, []).append((run.begin, run.end, 0))
        owners = Owners(programs=whole)
    elif scope != MACHINE_SCOPE:
        owners = Owners(groups=(scope,))
    if manifest.counts and (recording.path / COUNTS).is_file():  # the same, counted again
        counted, _ = read_source(recording.path, replace(settings, traced=False), find)
        return counted.begin, counted.end, owners, ()
    first = manifest.begin or _first_time(recording)
    last = manifest.end or first + _MOST_INTERVALS * interval
    most = min(_MOST_INTERVALS, max(1, -(-(last - first) // interval)))
    begin = first + interval * np.arange(most, dtype=np.int64)
    return begin, begin + interval, owners, ()


def _own_threads(found: Executions) -> tuple[I64, I64, Owners, tuple[str, ...]]:
    """Return executions as documents, each of one thread."""
    threads: dict[int, list[tuple[int, int, int]]] = {}
    times = zip(found.tid.tolist(), found.begin.tolist(), found.end.tolist(), strict=True)
    for number, (tid, begin, end) in enumerate(times):
        threads.setdefault(tid, []).append((begin, end, number))
    return found.begin, found.end, Owners(threads=threads), tuple(found.id)


def _first_time(recording: Recording) -> int:
    """Return when the first event of a trace is."""
    with closing(RecordingOpener(recording, trace_requests(), "auto")()) as one:
        for chunk in one:
            return int(chunk.timestamp[0])
    raise UnreadableError(f"{recording}: holds no event", "record again")


def _find_lossy(events: Events, begin: I64, end: I64) -> Bool:
    """Return which documents a loss or a gap overlaps."""
    lossy = np.zeros(len(begin), np.bool_)
    spans = [(loss.begin, loss.end) for loss in events.losses]
    spans += zip(events.gaps.begin.tolist(), events.gaps.end.tolist(), strict=True)
    for first, last in spans:
        lossy |= (begin <= last) & (end >= first)
    return lossy
