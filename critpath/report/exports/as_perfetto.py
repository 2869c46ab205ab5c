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
from critpath.model import Bool, CriticalPaths, State
from critpath.model.details import word_detail
from critpath.model.stacks import frame_name
from critpath.model.vectors import host_of
from critpath.report.exports.exported import Exported, execution_name, thread_name
from critpath.report.palette import LOOKS, words_of
from critpath.text.phrases import KINDS
from critpath.units import safe_text

_VARINT, _FIXED64, _LENGTH = 0, 1, 2
_SEVEN: Final = 0x7F
_MORE: Final = 0x80
_SHORT: Final = tuple(bytes([value]) for value in range(_MORE))


def varint(value: int) -> bytes:
    """Return an integer in groups of seven bits, the lowest first.

    A negative one is its 64 bits of two's complement, as ``int32`` and ``int64`` have it.
    """
    if 0 <= value < _MORE:
        return _SHORT[value]
    value &= 0xFFFF_FFFF_FFFF_FFFF
    groups = bytearray()
    while value >= _MORE:
        groups.append(value & _SEVEN | _MORE)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def number(field: int, value: int) -> bytes:
    """Return a field of type int, uint, bool or enum."""
    return varint(field << 3 | _VARINT) + varint(value)


def fixed64(field: int, value: int) -> bytes:
    """Return a field of type fixed64."""
    return varint(field << 3 | _FIXED64) + value.to_bytes(8, "little")


def message(field: int, *parts: bytes) -> bytes:
    """Return a field that holds a message: its fields one after the other."""
    content = b"".join(parts)
    return varint(field << 3 | _LENGTH) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """Return a field of type string; lone surrogates, which UTF-8 has not, become ``?``."""
    return message(field, value.encode("utf-8", "replace"))


# Field numbers, by the message that they are of.
_PACKET: Final = 1  # of Trace
_CLOCK_SNAPSHOT, _TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _INTERNED, _FLAGS = 6, 8, 10, 11, 12, 13
_TRACK_DESCRIPTOR: Final = 60
_UUID, _TRACK_NAME, _PARENT, _CHILD_ORDERING, _RANK, _MERGING = 1, 2, 5, 11, 12, 15
_CATEGORIES, _NAMES, _ANNOTATION_NAMES, _ANNOTATION_STRINGS = 1, 2, 3, 29  # of InternedData
_CATEGORY_ID, _ANNOTATION, _TYPE, _NAME_ID, _OF_TRACK, _FLOW, _FLOW_ENDS = 3, 4, 9, 10, 11, 47, 48
_ANNOTATION_ID, _BOOL, _INT, _STRING_ID = 1, 2, 4, 17
_CLOCK, _CLOCK_ID, _CLOCK_TIME = 1, 1, 2
# Values.
_SLICE_BEGIN, _SLICE_END = 1, 2
_CLEARED, _NEEDED = 1, 2
_EXPLICIT: Final = 3  # children stand in the order of their rank
_NEVER_MERGED: Final = 2  # two executions may have one name
_REALTIME, _BOOTTIME = 1, 6
_MINE: Final = 1  # all packets are one sequence

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


class Slices:
    """Tracks and slices, collected in any order of time, written in order of time.

    What is opened and closed at one moment keeps the order of these calls, which so have
    to be in order of time for every track.
    """

    def __init__(self) -> None:
        self._tracks: list[bytes] = []
        self._places: list[bytes] = []  # the field by which an event names its track
        self._children: dict[int, int] = {}
        self._categories, self._names = _Table(_CATEGORIES), _Table(_NAMES)
        self._keys, self._texts = _Table(_ANNOTATION_NAMES), _Table(_ANNOTATION_STRINGS)
        # One entry per slice; the texts of most are shared.
        self._track, self._until = array("q"), array("q")
        self._body: list[bytes] = []
        self._flows: dict[int, bytes] = {}
        # One entry per event: when, and 2 * slice (+ 1 for its end).
        self._time, self._event = array("q"), array("q")

    def track(self, name: str, above: int = 0) -> int:
        """Add a track below another one (0 for none) and return its number."""
        number_ = len(self._tracks) + 1
        self._places.append(number(_OF_TRACK, number_))
        rank = self._children[above] = self._children.get(above, 0) + 1
        self._tracks.append(
            message(
                _TRACK_DESCRIPTOR,
                number(_UUID, number_),
                number(_PARENT, above) if above else b"",
                text(_TRACK_NAME, safe_text(name)),
                number(_CHILD_ORDERING, _EXPLICIT),
                number(_RANK, rank),
                number(_MERGING, _NEVER_MERGED),
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


def _packet(*parts: bytes) -> bytes:
    return message(_PACKET, *parts, number(_SEQUENCE, _MINE))


def _snapshot(time: int, epoch: int) -> bytes:
    """Say which date one moment of the trace's clock is."""
    clocks = ((_BOOTTIME, time), (_REALTIME, time + epoch))
    return message(
        _CLOCK_SNAPSHOT,
        *(message(_CLOCK, number(_CLOCK_ID, c), number(_CLOCK_TIME, t)) for c, t in clocks),
    )


def perfetto_trace(sets: Sequence[Exported]) -> Iterator[bytes]:
    """Write critical paths as a Perfetto trace, piece by piece.

    A track per execution, with one slice over all of it; below it one per thread on its
    path, with a slice per segment; of several hosts these stand below their host's.  Where the
    path moves to another thread, a flow leads from the segment of who woke it to that of who
    was woken.  Findings of a comparison have tracks of their own below the execution.  Several
    sets have a track each above.

    Parameters
    ----------
    sets : sequence of Exported

    Yields
    ------
    bytes
        One after the other they are the file.
    """
    slices = Slices()
    flows = 0
    for one in sets:
        above = slices.track(one.name) if len(sets) > 1 else 0
        moves = one.paths.paths.wakes
        bodies = _Bodies(slices, one.paths.paths)
        for index in range(len(one.paths)):
            flows = _execution(slices, bodies, one, moves, index, above, flows)
    yield from slices.write(_epoch(sets))


class _Bodies(dict[tuple[int, ...], bytes]):
    """Everything of a segment but its time and its track, made once per kind."""

    def __init__(self, slices: Slices, paths: CriticalPaths) -> None:
        super().__init__()
        self.slices, self.paths = slices, paths

    def __missing__(self, kind: tuple[int, ...]) -> bytes:
        code, detail, comm, tid, cpu, lossy, bound, stack, waker, mille = kind
        state, said = State(code), word_detail(self.paths.details[detail])
        waited = state == State.WAIT_CPU
        self[kind] = self.slices.body(
            LOOKS[state.name].words,
            state.name,
            {
                "state": state.name,
                "who ran" if waited else "detail": said,
                "thread": self.paths.strings[comm],
                "tid": tid if tid >= 0 else None,
                "cpu": cpu if cpu >= 0 else None,
                "lossy": True if lossy else None,
                "between hosts, wrong by at most (ns)": bound or None if bound >= 0 else UNKNOWN,
                "inferred, sure (per mille)": mille if mille < _SURE else None,
                "in the code": self._calls(stack),
                "woken in the code": self._calls(waker),
            },
        )
        return self[kind]

    def _calls(self, code: int) -> str:
        """Return the functions of a stack, the outermost first."""
        return " > ".join(map(frame_name, reversed(self.paths.stacks[code]))) if code >= 0 else ""


def _execution(
    slices: Slices,
    bodies: _Bodies,
    one: Exported,
    moves: Bool,
    index: int,
    above: int,
    flows: int,
) -> int:
    """Add one execution and return how many flows there are by then."""
    executions, paths = one.paths.executions, one.paths.paths
    begin, end = int(executions.begin[index]), int(executions.end[index])
    name = execution_name(executions, index)
    track = slices.track(name, above)
    about = {
        "id": executions.id[index],
        "label": executions.label[index],
        "set": one.name,
        "recording": one.paths.sources[int(one.paths.session[index])],
        "type": one.cluster(index),
        "tid": int(executions.tid[index]),
        "lossy": True if one.paths.lossy[index] else None,
    }
    whole = slices.open(begin, track, slices.body(name, "execution", about))
    rows = slice(int(paths.start[index]), int(paths.start[index + 1]))
    columns = ("begin", "end", "state", "detail", "comm", "tid", "cpu", "lossy", "uncertainty")
    tracks: dict[tuple[int, int], int] = {}
    hosts: dict[int, int] = {}
    several = bool((paths.host[rows] != executions.host[index]).any())
    before = -1
    for low, high, *kind, mille, host, leaves in zip(
        *(getattr(paths, column)[rows].tolist() for column in (*columns, "stack", "waker_stack")),
        np.floor(_SURE * np.where(paths.others[rows], 0, paths.confidence[rows]))
        .astype(np.int64)
        .tolist(),
        paths.host[rows].tolist(),
        moves[rows].tolist(),
        strict=True,
    ):
        _, _, comm, tid, *_ = kind
        thread = tracks.get((host, tid))
        if thread is None:
            shown = thread_name(paths.strings[comm], tid)
            group = track
            if several:
                name = host_of(paths.strings[comm]) or f"host {host}"
                group = hosts.get(host) or slices.track(name, track)
                hosts[host] = group
            thread = tracks[host, tid] = slices.track(shown, group)
        segment = slices.open(low, thread, bodies[*kind, mille])
        slices.close(high, segment)
        if before >= 0:
            flows += 1
            slices.flow(before, segment, flows)
        before = segment if leaves else -1
    slices.close(end, whole)
    if one.findings:
        _findings(slices, one.findings[index], track)
    return flows


def _findings(slices: Slices, findings: Sequence[FindingEntry], above: int) -> None:
    """Add the findings, on as many tracks as it takes for none to lie over another."""
    free: list[tuple[int, int]] = []  # per track: until when it is taken, and the track
    for finding in sorted(findings, key=lambda f: (f.begin, f.end, f.rank)):
        begin, end = finding.begin, max(finding.begin, finding.end)
        place = next((i for i, (until, _) in enumerate(free) if until <= begin), len(free))
        if place == len(free):
            free.append((begin, slices.track("findings", above)))
        track = free[place][1]
        free[place] = (end, track)
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
