"""Slices without a network as executions: which there are, and which are asked for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NoReturn

import numpy as np
from msgspec import structs

from critpath.errors import UnreadableError
from critpath.executions import ListAskedError, ListedRow, Scheduling, select_within_runs
from critpath.model import (
    I64,
    Bool,
    Events,
    Executions,
    Manifest,
    ReplayedRecording,
    Workers,
    role_name,
)
from critpath.model.requests import MARKERS
from critpath.records import dataclass
from critpath.requests.endpoints import EndpointColumn
from critpath.requests.find import leave_out_layers
from critpath.requests.implicit import Calls, ImplicitSlices
from critpath.requests.implicit import find_slices as cut_slices
from critpath.requests.stretches import Stretches, part_workers
from critpath.requests.turns import Processes
from critpath.schema.notes import Remark
from critpath.text import notes

if TYPE_CHECKING:
    from critpath.executions import Specification
    from critpath.read import Recording

_ENTRIES: Final = ("syscall_entry_", "syscalls:sys_enter_")
_CALL: Final = re.compile("^(syscall_(entry|exit)_|syscalls:sys_(enter|exit)_|signal:)")
_LACKS: Final = {"syscalls": "system calls", "requests": "sockets", "full": "signals"}


def require_markers(recording: Recording, marker: str) -> None:
    """Refuse a recording without the events that a marker needs."""
    of = MARKERS[marker]
    entries = [f"{group}{name}" for name, _ in of.calls for group in _ENTRIES]
    needed = of.events or entries
    if not needed or any(name in recording.event_names for name in needed):
        return
    lacks, recorded = _LACKS[of.profile], recording.manifest.profile
    profile = "locks" if marker == "futex" else of.profile
    raise UnreadableError(
        f"{recording}: recorded with {recorded}, which has no {lacks} for slices:{marker}"
        if recorded
        else f"{recording}: it has no {lacks} for slices:{marker}",
        f"record again with --profile {profile}; slices:wake needs none of them",
    )


@dataclass(frozen=True)
class SliceSketches:
    """All slices of a recording, what led to which, and which of them are executions."""

    recording: str
    slices: ImplicitSlices
    names: tuple[str, ...]
    chosen: Bool
    notes: tuple[Remark, ...]


def sketch_slices(
    replayed: ReplayedRecording, specification: Specification, recording: Recording
) -> SliceSketches:
    """Return all slices of a recording, whichever are asked for."""
    if MARKERS[specification.slices.marker].profile != "minimal":
        replayed = leave_out_layers(replayed)
    found, executions, rows = _choose_slices(replayed, specification, recording.manifest)
    chosen = np.zeros(len(found), np.bool_)
    chosen[rows] = True
    processes = Processes(replayed.workers, replayed.events.strings.__getitem__)
    names = tuple(processes.thread(*thread) for thread in _pairs(found.host, found.tid))
    return SliceSketches(str(recording), found, names, chosen, executions.notes)


def find_slices(
    replayed: ReplayedRecording, specification: Specification, manifest: Manifest
) -> Executions:
    """Find the slices that a specification asks for."""
    return _choose_slices(replayed, specification, manifest)[1]


def list_markers(
    replayed: ReplayedRecording, specification: Specification, recording: Recording
) -> NoReturn:
    """Say how many slices each marker finds in a recording: what ``slices:?`` asks for."""
    rows = []
    for marker in MARKERS:
        asked = structs.replace(
            specification, slices=structs.replace(specification.slices, marker=marker)
        )
        try:
            require_markers(recording, marker)
        except UnreadableError:
            continue
        found = find_slices(
            replayed if MARKERS[marker].profile == "minimal" else leave_out_layers(replayed),
            *(asked, recording.manifest),
        )
        lasting = found.duration
        if len(found):
            name, most = Counter(map(role_name, found.comm)).most_common(1)[0]
            rows.append(
                ListedRow(
                    *(marker, len(found), found.incomplete),
                    *(int(np.quantile(lasting, 0.5)), int(np.quantile(lasting, 0.99))),  # technical
                    len(set(_pairs(found.host, found.tid))),
                    f"{name} ({most:,})",
                )
            )
    rows.sort(key=lambda row: -row.count)
    kinds = ", ".join(f"{row.name} ({row.count:,})" for row in rows)
    raise ListAskedError(
        f"the markers of slices with how many there are: {kinds or 'none'}",
        "choose one with slices:MARKER; critpath path TRACE --execution 'slices:?' has figures",
        *(rows, "slices"),
    )


def _choose_slices(
    replayed: ReplayedRecording, specification: Specification, manifest: Manifest
) -> tuple[ImplicitSlices, Executions, I64]:
    """Return all slices, those that are asked for as executions, and the row of each."""
    if replayed.sockets is None:
        raise TypeError("replayed without what threads do to each other")
    asked, events = specification.slices, replayed.events
    found = _cut_slices(replayed, specification)
    processes = Processes(replayed.workers, events.strings.__getitem__)
    end, tid, rows = found.end_ns.copy(), found.tid.copy(), np.arange(len(found))
    if asked.root:
        root = found.root
        np.maximum.at(end, root, found.end_ns)
        # A path is walked back from the thread that was at it last.
        last = found.end_ns == end[root]
        tid[root[last]] = found.tid[last]
        rows = np.flatnonzero(root == rows)
    keep = (end - found.begin_ns)[rows] >= asked.least
    ours = _threads_of_runs(replayed.workers, manifest)
    keep &= _are_of(found.host[rows], found.tid[rows], processes, ours, asked.comm)
    rows = rows[keep]
    cut = _count_cut(found, processes, ours, asked.comm)
    incomplete = sum(count for count, _ in cut.values())
    names = [processes.thread(*thread) for thread in _pairs(found.host[rows], tid[rows])]
    begun = zip(found.tid[rows].tolist(), found.begin_ns[rows].tolist(), strict=True)
    ids = tuple(_tell_apart(f"{first}@{begin}" for first, begin in begun))
    id_of = dict(zip(rows.tolist(), ids, strict=True))
    executions = Executions(
        id=ids,
        begin=found.begin_ns[rows],
        end=end[rows],
        tid=tid[rows],
        host=found.host[rows],
        comm=tuple(names),
        label=tuple(_label(names, manifest, processes)),
        incomplete=incomplete + found.lost,
        notes=notes.slices_left_out(cut, found.lost, gaps=len(events.gaps) > 0),
        causes=tuple(id_of.get(parent, "") for parent in found.parent[rows].tolist()),
    )
    row_of = dict(zip(ids, rows.tolist(), strict=True))
    if manifest.runs or manifest.interleaved:
        interleaved = bool(manifest.interleaved)
        executions = select_within_runs(executions, manifest.runs, interleaved=interleaved)
    return found, executions, np.array([row_of[name] for name in executions.id], np.int64)


def _cut_slices(replayed: ReplayedRecording, specification: Specification) -> ImplicitSlices:
    """Return all slices, and how long those that are cut are known to last.

    With gaps, as if each stretch between two were of a host of its own.
    """
    events, collected = replayed.events, replayed.sockets
    if collected is None:
        raise TypeError("replayed without what threads do to each other")
    activity, workers, marker = collected.activity, replayed.workers, specification.slices.marker
    calls = _read_calls(events, specification)
    families = collected.endpoints[:, EndpointColumn.FAMILY]
    if not len(events.gaps):
        found = cut_slices(activity, workers, marker, calls, families, events.losses)
        found.incomplete[:, 2] = events.end - found.incomplete[:, 2]
        return found
    stretches = Stretches(events.gaps, 1 + int(activity.host.max(initial=0)))
    stretch = stretches.find(activity.host, activity.time_ns)
    parted = replace(activity, host=stretch.astype(np.int32))
    if calls is not None:
        calls = replace(calls, host=stretches.find(calls.host, calls.time_ns))
    losses = [
        replace(loss, host=of)
        for loss in events.losses
        for of in np.flatnonzero(stretches.host == loss.host).tolist()
    ]
    found = cut_slices(
        *(parted, part_workers(parted, workers, stretches), marker, calls, families, losses),
        stretches.follows_gap,
    )
    incomplete = found.incomplete.copy()
    incomplete[:, 2] = np.minimum(stretches.end[incomplete[:, 0]], events.end) - incomplete[:, 2]
    incomplete[:, 0] = stretches.host[incomplete[:, 0]]
    return replace(found, host=stretches.host[found.host], incomplete=incomplete)


def _pairs(host: I64, tid: I64) -> list[tuple[int, int]]:
    return list(zip(host.tolist(), tid.tolist(), strict=True))


def _are_of(host: I64, tid: I64, processes: Processes, ours: I64 | None, comm: str) -> Bool:
    """Return which threads are of the command that was recorded, and called as was asked."""
    chosen = np.ones(len(tid), np.bool_) if ours is None else np.isin((host << 32) | tid, ours)
    if comm:
        threads = _pairs(host, tid)
        named = (comm in processes.names(*thread) for thread in threads)
        chosen &= np.fromiter(named, np.bool_, len(threads))
    return chosen


def _count_cut(
    found: ImplicitSlices, processes: Processes, ours: I64 | None, comm: str
) -> dict[str, tuple[int, int]]:
    """Return by kind how many slices a gap or the end cuts, and how long one lasts at least.

    Of processes that have others: most threads of a machine are woken now and then and never by
    their own process, and what they did is no slice.
    """
    host, tid = found.incomplete.T[:2]
    cut = found.incomplete[_are_of(host, tid, processes, ours, comm)]
    have = {(h, processes.pid(h, t)) for h, t in set(_pairs(found.host, found.tid))}
    counts: dict[str, tuple[int, int]] = {}
    for host, tid, lasts in cut.tolist():
        if (host, processes.pid(host, tid)) in have:
            kind = role_name(processes.thread(host, tid))
            count, longest = counts.get(kind, (0, 0))
            counts[kind] = count + 1, max(longest, lasts)
    return counts


def _threads_of_runs(workers: Workers, manifest: Manifest) -> I64 | None:
    """Return the threads that a recorded command led to; None where all are recorded."""
    pids = [run.pid for run in manifest.runs if run.pid]
    if not pids:
        return None
    ours = np.isin(workers.tid, pids) | np.isin(workers.pid, pids)
    while True:
        more = ours | ((workers.parent >= 0) & ours[workers.parent])
        if (more == ours).all():
            return np.asarray((workers.host[ours] << 32) | workers.tid[ours])
        ours = more


def _label(names: list[str], manifest: Manifest, processes: Processes) -> list[str]:
    """Return what each slice is compared with: those of threads of its name.

    Threads that bear the recorded command's own name have none: that of a sample may have another.
    """
    own = {processes.thread(0, run.pid) for run in manifest.runs if run.pid}
    return ["" if name in own else role_name(name) for name in names]


def _tell_apart(names: Iterable[str]) -> Iterator[str]:
    """Give a number to what has the name of one before it: slices of two objects."""
    seen: Counter[str] = Counter()
    for name in names:
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name}~{seen[name]}"


# What threads asked of the kernel.


def _read_calls(events: Events, specification: Specification) -> Calls | None:
    """Return the events that a marker needs beside the scheduler's; None if it needs none."""
    wanted = specification.get_requests()
    if not wanted:
        return None
    of_name = {name: request for request in wanted for name in request.names}
    classes = [i for i, c in enumerate(events.classes) if c.name in of_name]
    rows = np.flatnonzero(np.isin(events.event_class, classes))
    of_row = events.event_class[rows]
    value, call = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    begins = np.zeros(len(rows), np.bool_)
    names: list[str] = []
    for index in classes:
        name = events.classes[index].name
        mine = of_row == index
        entry = any(name.startswith(prefix) for prefix in _ENTRIES)
        short = _CALL.sub("", name)
        if short not in names:
            names.append(short)
        call[mine], begins[mine] = names.index(short), entry
        value[mine] = events.column(rows[mine], of_name[name].fields[0][0])
    tid = Scheduling(events).current(rows)
    known = tid > 0
    return Calls(
        events.timestamp[rows][known],
        events.hosts_of(rows)[known],
        tid[known],
        call[known],
        begins[known],
        value[known],
        tuple(names),
    )
