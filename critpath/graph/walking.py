"""Walks the critical paths of executions, threads and windows of a recording."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import structs

from critpath.engines import Budget, require_room
from critpath.graph.critical_path import (
    extract_paths,
    find_lifetimes,
    take_executions,
)
from critpath.graph.kin import Kinship, tell_places
from critpath.graph.resources import explain_waits
from critpath.graph.stacks import add_stacks
from critpath.model import (
    ReplayedRecording,
)
from critpath.read import KERNEL_EVENTS, Recording
from critpath.schema.environment import Environment
from critpath.timeline import RecordingOpener, name_functions, replay_recording

if TYPE_CHECKING:
    from critpath.model import (
        Executions,
        PathSet,
    )
    from critpath.model.requests import CutRequests


def walk_paths(
    replayed: ReplayedRecording,
    executions: Executions,
    recording: Recording,
    specification: str,
    budget: Budget,
    *,
    interrupts: bool,
    pieces: CutRequests | None = None,
) -> Iterator[PathSet]:
    """Walk executions within a budget; warn of those that exceed it by themselves."""
    stacks = recording.stacks if len(replayed.events.hosts) == 1 else []
    if stacks:
        counted = Environment(stacks=sum(map(len, stacks)))
        events = replace(replayed.events, environment=(*replayed.events.environment, counted))
        replayed = replace(replayed, events=events)
    kinship = Kinship(replayed)
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
        explained = tell_places(kinship.tell(paths), replayed)
        explained = _explain_waits(explained, replayed, recording)
        if replayed.functions is not None:
            explained = name_functions(explained, replayed.functions, *recording.functions)
        for taken in stacks:
            explained = add_stacks(explained, taken)
        yield replace(explained, warnings=(*paths.warnings, *budget.note_long(longest)))


def _explain_waits(paths: PathSet, replayed: ReplayedRecording, recording: Recording) -> PathSet:
    """Say of waits what limits of control groups, disks and memory made of them."""
    if replayed.resources is None:
        return paths
    reached, disks = recording.reached_limits, recording.disks
    strings = replayed.events.strings
    return explain_waits(paths, replayed.workers, replayed.resources, reached, disks, strings)


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
    require_room(max_memory, 1)
    recording = Recording(source)
    remarks, budget = recording.notes, Budget.within(max_memory)
    with replay_recording(
        *(RecordingOpener(recording, KERNEL_EVENTS, reader), recording, [], budget, remarks)
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
        together = structs.replace(budget, segments=0)
        [paths] = walk_paths(
            *(replayed, executions, recording, "thread", together),
            interrupts=interrupts,
        )
    return paths


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
    if not ids:
        return paths
    wanted = set(resolve_ids(ids, paths.executions.id, traces_of(paths)))
    rows = [i for i, name in enumerate(paths.executions.id) if name in wanted]
    return take_executions(paths, np.array(rows, np.int64))
