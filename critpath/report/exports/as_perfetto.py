"""Critical paths as a Perfetto trace, for https://ui.perfetto.dev.

The format is that of https://perfetto.dev/docs/reference/trace-packet-proto, in the encoding
of https://protobuf.dev/programming-guides/encoding/: a field is its number and wire type
in one varint, then its value.

Times are those of the trace's clock, to the nanosecond.  They are written without a
clock of their own, which Perfetto takes for its own clock of traces (CLOCK_BOOTTIME):
so its views show them as they are.  Where one recording is exported and its place in
time is known, a snapshot of the clocks lets the viewer show the date as well.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from critpath.documents import FindingEntry
from critpath.model import CriticalPaths, State
from critpath.model.details import word_detail
from critpath.model.stacks import frame_name
from critpath.model.vectors import host_of
from critpath.report.exports.exported import Exported, execution_name, thread_name
from critpath.report.exports.protobuf import fixed64, message, number, text, varint
from critpath.report.exports.schedule import find_processes, pack_schedule
from critpath.report.palette import LOOKS, words_of
from critpath.text.phrases import KINDS
from critpath.units import safe_text

# Field numbers, by the message that they are of.
_PACKET: Final = 1  # of Trace
_CLOCK_SNAPSHOT, _TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _INTERNED, _FLAGS = 6, 8, 10, 11, 12, 13
_TRACK_DESCRIPTOR: Final = 60
_UUID, _TRACK_NAME, _THREAD, _PARENT, _CHILD_ORDERING, _RANK = 1, 2, 4, 5, 11, 12
_PID, _TID = 1, 2  # of ThreadDescriptor
_CATEGORIES, _NAMES, _ANNOTATION_NAMES, _ANNOTATION_STRINGS = 1, 2, 3, 29  # of InternedData
_CATEGORY_ID, _ANNOTATION, _TYPE, _NAME_ID, _OF_TRACK, _FLOW, _FLOW_ENDS = 3, 4, 9, 10, 11, 47, 48
_ANNOTATION_ID, _BOOL, _INT, _STRING_ID = 1, 2, 4, 17
_CLOCK, _CLOCK_ID, _CLOCK_TIME = 1, 1, 2
# Values.
_SLICE_BEGIN, _SLICE_END = 1, 2
_CLEARED, _NEEDED = 1, 2
_EXPLICIT: Final = 3  # children stand in the order of their rank
_REALTIME, _BOOTTIME = 1, 6
_MINE: Final = 1  # the sequence of tracks and slices
_SCHEDULE: Final = 2  # that of the kernel's events

# What tracks are called.
_PATHS: Final = "critical paths"
_FINDINGS: Final = "findings"
_THREADS: Final = "threads on critical paths"
_MORE_PATHS: Final = "on another critical path"
_LONG: Final = 1 << 62

_BATCH: Final = 4096
_HEAD: Final = varint(_PACKET << 3 | 2)
_STAMP: Final = varint(_TIMESTAMP << 3)
_EVENT: Final = varint(_TRACK_EVENT << 3 | 2)
_ANNOTATION_TAG: Final = varint(_ANNOTATION << 3 | 2)
_INT_TAG: Final = varint(_INT << 3)
_ENDING: Final = number(_SEQUENCE, _MINE) + number(_FLAGS, _NEEDED)

# What every slice says: its times on the trace's clock, to paste into other tools.
WINDOW: Final = ("begin (ns)", "end (ns)")

_SURE: Final = 1000  # per mille
UNKNOWN: Final = "not known"

Value = str | int | bool | None


class _Table:
    """Interned texts: packets refer to them by number."""

    def __init__(self, field: int) -> None:
        self._field = field
        self._ids: dict[str, int] = {}

    def __getitem__(self, value: str) -> int:
        return self._ids.setdefault(value, len(self._ids) + 1)

    def packed(self) -> bytes:
        """Return the part of InternedData that says them."""
        return b"".join(
            message(self._field, number(1, code), text(2, value))
            for value, code in self._ids.items()
        )


class SliceWriter:
    """Tracks and slices, collected in any order of time, written in order of time.

    What is opened and closed at one moment keeps the order of these calls, which so have
    to be in order of time for every track.
    """

    def __init__(self) -> None:
        self._tracks: list[bytes] = []
        self._places: list[bytes] = []  # the field by which an event names its track
        self._ranks: dict[tuple[int, str], int] = {}  # of what has the same track above and name
        self._categories, self._names = _Table(_CATEGORIES), _Table(_NAMES)
        self._keys, self._texts = _Table(_ANNOTATION_NAMES), _Table(_ANNOTATION_STRINGS)
        # One entry per slice; the texts of most are shared.
        self._track, self._until = array("q"), array("q")
        self._body: list[bytes] = []
        self._flows: dict[int, bytes] = {}
        # One entry per event: when, and 2 * slice (+ 1 for its end).
        self._time, self._event = array("q"), array("q")

    def track(self, name: str, above: int = 0, *, thread: tuple[int, int] | None = None) -> int:
        """Add a track below another one (0 for none) and return its number.

        Tracks of one name below one are shown as rows of one.  `thread`: the process and thread
        that it is of; the viewer puts it below these.
        """
        number_ = len(self._tracks) + 1
        self._places.append(number(_OF_TRACK, number_))
        rank = self._ranks.setdefault((above, name), len(self._ranks) + 1)
        if thread is None:
            of = text(_TRACK_NAME, safe_text(name))
        else:
            pid, tid = thread
            of = message(_THREAD, number(_PID, pid), number(_TID, tid))
        self._tracks.append(
            message(
                _TRACK_DESCRIPTOR,
                number(_UUID, number_),
                number(_PARENT, above) if above else b"",
                of,
                number(_CHILD_ORDERING, _EXPLICIT),
                number(_RANK, rank),
            )
        )
        return number_

    def body(self, name: str, category: str, about: Mapping[str, Value]) -> bytes:
        """Return everything of a slice but its place; equal slices share it."""
        return b"".join(
            (
                number(_CATEGORY_ID, self._categories[safe_text(category)]),
                number(_NAME_ID, self._names[safe_text(name)]),
                *(self._annotation(key, v) for key, v in about.items() if v not in {None, ""}),
            )
        )

    def _annotation(self, key: str, value: Value) -> bytes:
        """Return one fact about a slice."""
        if isinstance(value, bool):
            content = number(_BOOL, value)
        elif isinstance(value, int):
            content = number(_INT, value)
        else:
            content = number(_STRING_ID, self._texts[safe_text(str(value))])
        return message(_ANNOTATION, number(_ANNOTATION_ID, self._keys[key]), content)

    def open(self, time: int, track: int, body: bytes) -> int:
        """Begin a slice and return its number."""
        slice_ = len(self._track)
        self._track.append(track)
        self._until.append(time)
        self._body.append(body)
        self._time.append(time)
        self._event.append(2 * slice_)
        return slice_

    def close(self, time: int, slice_: int) -> None:
        """End a slice."""
        self._until[slice_] = time
        self._time.append(time)
        self._event.append(2 * slice_ + 1)

    def flow(self, source: int, target: int, flow: int) -> None:
        """Let a flow, by its number, lead from one slice to another."""
        self._flows[source] = self._flows.get(source, b"") + fixed64(_FLOW, flow)
        self._flows[target] = self._flows.get(target, b"") + fixed64(_FLOW_ENDS, flow)

    def write(self, epoch: int = 0) -> Iterator[bytes]:
        """Yield the file, piece by piece.

        Parameters
        ----------
        epoch : int
            What to add to a time for nanoseconds since 1970, 0 if unknown.
        """
        time = np.frombuffer(self._time, np.int64)
        keys = [self._keys[key] for key in WINDOW]
        order = np.argsort(time, kind="stable")
        yield _packet(
            message(_INTERNED, *(t.packed() for t in self._tables)), number(_FLAGS, _CLEARED)
        )
        if epoch and len(time):
            yield _packet(_snapshot(int(time[order[0]]), epoch))
        yield b"".join(map(_packet, self._tracks))
        for first in range(0, len(order), _BATCH):
            yield b"".join(self._events(order[first : first + _BATCH].tolist(), keys))

    @property
    def _tables(self) -> tuple[_Table, ...]:
        return self._categories, self._names, self._keys, self._texts

    def _events(self, order: list[int], keys: list[int]) -> Iterator[bytes]:
        begins, ends = number(_TYPE, _SLICE_BEGIN), number(_TYPE, _SLICE_END)
        begin_key, end_key = (number(_ANNOTATION_ID, key) + _INT_TAG for key in keys)
        # A time occurs four times: as end and begin of two segments and of their slices.
        stamp = lru_cache(_BATCH * 4)(varint)
        for place in order:
            slice_, closing = divmod(self._event[place], 2)
            time, of_track = stamp(self._time[place]), self._places[self._track[slice_] - 1]
            if closing:
                event = ends + of_track
            else:
                begin, end = begin_key + time, end_key + stamp(self._until[slice_])
                event = b"".join(
                    (
                        *(begins, of_track, self._body[slice_]),
                        *(_ANNOTATION_TAG, varint(len(begin)), begin),
                        *(_ANNOTATION_TAG, varint(len(end)), end),
                        self._flows.get(slice_, b""),
                    )
                )
            content = b"".join((_STAMP, time, _EVENT, varint(len(event)), event, _ENDING))
            yield _HEAD + varint(len(content)) + content


def _packet(*parts: bytes, sequence: int = _MINE) -> bytes:
    return message(_PACKET, *parts, number(_SEQUENCE, sequence))


def _snapshot(time: int, epoch: int) -> bytes:
    """Say which date one moment of the trace's clock is."""
    clocks = ((_BOOTTIME, time), (_REALTIME, time + epoch))
    return message(
        _CLOCK_SNAPSHOT,
        *(message(_CLOCK, number(_CLOCK_ID, c), number(_CLOCK_TIME, t)) for c, t in clocks),
    )


class _Rows:
    """Tracks of one name, as many as it takes for nothing to lie over something else."""

    def __init__(self, slices: SliceWriter, name: str, above: int, *first: int) -> None:
        self._slices, self._name, self._above = slices, name, above
        self._free = [(-_LONG, track) for track in first]  # until when each is taken

    def place(self, begin: int, end: int) -> int:
        """Return the track for something from `begin` to `end`; they come in order of begin."""
        row = next((i for i, (until, _) in enumerate(self._free) if until <= begin), None)
        if row is None:
            row = len(self._free)
            self._free.append((begin, self._slices.track(self._name, self._above)))
        track = self._free[row][1]
        self._free[row] = end, track
        return track


def perfetto_trace(sets: Sequence[Exported]) -> Iterator[bytes]:
    """Write critical paths as a Perfetto trace, piece by piece.

    A track for each kind of execution, beside it one with their critical paths; a track for each
    thread on a path, with what it did for that.  Where executions overlap, a track has as many
    rows.  Where the path moves to another thread, a flow leads from the segment of who woke it to
    that of who was woken.  Findings of a comparison have a track of their own.  Of one recording
    whose timelines are there, the viewer has who ran on each cpu and what each thread did, and
    shows threads below their processes.  Each set has a track above.

    Parameters
    ----------
    sets : sequence of Exported

    Yields
    ------
    bytes
        One after the other they are the file.
    """
    slices = SliceWriter()
    timelines = sets[0].timelines if len(sets) == 1 else None
    groups = find_processes(timelines) if timelines is not None else {}
    flows = 0
    for one in sets:
        above = slices.track(one.name)
        flows = _Set(slices, one, above, groups).write(flows)
    yield from slices.write(_epoch(sets))
    if timelines is not None:
        yield from (_packet(content, sequence=_SCHEDULE) for content in pack_schedule(timelines))


class _Bodies:
    """Everything of a segment but its time and its track, made once per kind."""

    def __init__(self, slices: SliceWriter, paths: CriticalPaths) -> None:
        self.slices, self.paths = slices, paths
        mille = np.floor(_SURE * np.where(paths.others, 0, paths.confidence)).astype(np.int64)
        names = ("state", "detail", "comm", "tid", "cpu", "lossy", "uncertainty", "stack")
        columns = (*(getattr(paths, name) for name in (*names, "waker_stack")), mille)
        self._kinds = list(zip(*(column.tolist() for column in columns), strict=True))
        self._made: dict[tuple[object, ...], bytes] = {}

    def of(self, row: int, *, named: bool = False) -> bytes:
        """Return that of a segment; `named`: its thread is in its name."""
        key = named, *self._kinds[row]
        if key not in self._made:
            self._made[key] = self._make(self._kinds[row], named=named)
        return self._made[key]

    def _make(self, kind: tuple[int, ...], *, named: bool) -> bytes:
        code, detail, comm, tid, cpu, lossy, bound, stack, waker, mille = kind
        state, said = State(code), word_detail(self.paths.details[detail])
        waited = state == State.WAIT_CPU
        thread = self.paths.strings[comm]
        return self.slices.body(
            LOOKS[state.name].words + f": {thread_name(thread, tid)}" * named,
            state.name,
            {
                "state": state.name,
                "who ran" if waited else "detail": said,
                "thread": thread,
                "tid": tid if tid >= 0 else None,
                "cpu": cpu if cpu >= 0 else None,
                "lossy": True if lossy else None,
                "between hosts, wrong by at most (ns)": bound or None if bound >= 0 else UNKNOWN,
                "inferred, sure (per mille)": mille if mille < _SURE else None,
                "in the code": self._calls(stack),
                "woken in the code": self._calls(waker),
            },
        )

    def _calls(self, code: int) -> str:
        """Return the functions of a stack, the outermost first."""
        return " > ".join(map(frame_name, reversed(self.paths.stacks[code]))) if code >= 0 else ""


class _Set:
    """One set of executions on its way."""

    def __init__(
        self, slices: SliceWriter, one: Exported, above: int, processes: Mapping[int, int]
    ) -> None:
        self._slices, self._one, self._above = slices, one, above
        self._processes = processes  # by thread
        self._bodies = _Bodies(slices, one.paths.paths)
        self._named: dict[tuple[int, str], _Rows] = {}
        self._threads: dict[tuple[int, int], _Rows] = {}
        self._groups: dict[int, int] = {}  # the track above the threads of a host
        executions, paths = one.paths.executions, one.paths.paths
        self._several = bool(len(np.unique(np.concatenate([paths.host, executions.host]))) > 1)
        # Each kind and its paths, in order: what is looked at first stands first.
        for kind in dict.fromkeys(map(self._kind, range(len(one.paths)))):
            for name in (kind, f"{kind}: {_PATHS}"):
                self._rows(name)
        self._wakes = paths.wakes

    def _kind(self, index: int) -> str:
        executions = self._one.paths.executions
        return safe_text(executions.label[index] or executions.comm[index]) or "executions"

    def _rows(self, name: str) -> _Rows:
        key = self._above, name
        if key not in self._named:
            self._named[key] = _Rows(
                self._slices, name, self._above, self._slices.track(*key[::-1])
            )
        return self._named[key]

    def write(self, flows: int) -> int:
        """Add all of it, and return how many flows there are by then."""
        begin = self._one.paths.executions.begin
        parts: list[tuple[int, int, int]] = []  # begin, end and number of segments
        for index in np.argsort(begin, kind="stable").tolist():
            parts += self._execution(index)
        paths = self._one.paths.paths
        made = {}
        for low, high, row in sorted(parts):
            body = self._bodies.of(row)
            made[row] = self._slices.open(low, self._thread(row).place(low, high), body)
            self._slices.close(high, made[row])
        starts = set(paths.start.tolist())
        for row in np.flatnonzero(self._wakes).tolist():
            if row + 1 in made and row + 1 not in starts and row in made:
                flows += 1
                self._slices.flow(made[row], made[row + 1], flows)
        return flows

    def _thread(self, row: int) -> _Rows:
        """Return the rows of the thread that a segment is of."""
        paths, slices = self._one.paths.paths, self._slices
        host, tid = int(paths.host[row]), int(paths.tid[row])
        if (host, tid) not in self._threads:
            comm = paths.strings[int(paths.comm[row])]
            if tid in self._processes and not self._several:
                track = slices.track("", thread=(self._processes[tid], tid))
                self._threads[host, tid] = _Rows(slices, _MORE_PATHS, track, track)
            else:
                if host not in self._groups:
                    name = host_of(comm) or f"host {host}" if self._several else _THREADS
                    self._groups[host] = slices.track(name, self._above)
                above = self._groups[host]
                name = thread_name(comm, tid)
                self._threads[host, tid] = _Rows(slices, name, above, slices.track(name, above))
        return self._threads[host, tid]

    def _execution(self, index: int) -> Iterator[tuple[int, int, int]]:
        """Add an execution and its path; yield its segments."""
        one, slices = self._one, self._slices
        executions, paths = one.paths.executions, one.paths.paths
        begin, end = int(executions.begin[index]), int(executions.end[index])
        about = {
            "id": executions.id[index],
            "label": executions.label[index],
            "set": one.name,
            "recording": one.paths.sources[int(one.paths.session[index])],
            "type": one.cluster(index),
            "tid": int(executions.tid[index]),
            "lossy": True if one.paths.lossy[index] else None,
        }
        kind = self._kind(index)
        body = slices.body(execution_name(executions, index), "execution", about)
        slices.close(end, slices.open(begin, self._rows(kind).place(begin, end), body))
        track = self._rows(f"{kind}: {_PATHS}").place(begin, end)
        own = int(executions.host[index]), int(executions.tid[index])
        first, after = int(paths.start[index]), int(paths.start[index + 1])
        for row in range(first, after):
            low, high = int(paths.begin[row]), int(paths.end[row])
            mine = (int(paths.host[row]), int(paths.tid[row])) == own
            slices.close(high, slices.open(low, track, self._bodies.of(row, named=not mine)))
            yield low, high, row
        if one.findings:
            _findings(slices, one.findings[index], self._rows(f"{kind}: {_FINDINGS}"))


def _findings(slices: SliceWriter, findings: Sequence[FindingEntry], rows: _Rows) -> None:
    """Add the findings of an execution."""
    for finding in sorted(findings, key=lambda f: (f.begin, f.end, f.rank)):
        begin, end = finding.begin, max(finding.begin, finding.end)
        track = rows.place(begin, end)
        body = slices.body(
            f"{words_of(finding)}: {KINDS.get(finding.kind, finding.kind)}",
            "finding",
            {
                "rank": finding.rank,
                "kind": finding.kind,
                "state": finding.state,
                "detail": finding.detail,
                "thread": finding.comm,
                "tid": finding.tid if finding.tid >= 0 else None,
                "more than normal (ns)": _whole(finding.contribution),
                "here (ns)": _whole(finding.observed),
                "normal (ns)": _whole(finding.expected),
                "unusual": finding.abnormal,
            },
        )
        slices.close(end, slices.open(begin, track, body))


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _epoch(sets: Sequence[Exported]) -> int:
    """Return what to add to a time for ns since 1970, 0 unless it is one for all."""
    known = {
        about.clock_epoch
        for one in sets
        for about in one.paths.environment
        if about.clock_epoch is not None
    }
    recordings = sum(len(one.paths.sources) for one in sets)
    return known.pop() if len(known) == 1 and recordings == 1 else 0
