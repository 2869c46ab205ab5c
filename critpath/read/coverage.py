"""Streams that begin late, end early or are not there, while others of the trace go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from critpath.model import I64, Bool, Loss
from critpath.read.contradictions import TOUCHING, gathered
from critpath.read.packet_columns import NEVER, PacketColumn, Packets, Tracer
from critpath.read.records import Record
from critpath.read.steps import Role
from critpath.units import NS_PER_S

if TYPE_CHECKING:
    from critpath.read.packets import StreamFile

_THREE: Final = 3
_SOON: Final = NS_PER_S // 4  # in which a few MB are written, on a loaded machine too
_NONE: Final = -(1 << 63)


def coverage(streams: Sequence[Packets], tracer: Tracer, begin: int, end: int) -> list[Loss]:
    """Return when some streams of a class have no packet yet, or none any more.

    Parameters
    ----------
    streams : sequence of Packets
        All of one stream class.
    tracer : Tracer
    begin, end : int
        Of the recording's events (ns).
    """
    if not tracer.lttng or len(streams) < 2:
        return []
    return gathered(_uncovered(streams, tracer, begin, end), "packets lost")


def _uncovered(streams: Sequence[Packets], tracer: Tracer, begin: int, end: int) -> Iterator[Loss]:
    lasts = [
        of.table[:, PacketColumn.LAST].max(
            where=of.table[:, PacketColumn.EVENTS] > 0, initial=_NONE
        )
        for of in streams
    ]
    last = max(lasts)
    last = int(last) if last > _NONE else end
    earliest = max(min(int(of.begin[0]) for of in streams), begin)
    stops_together = tracer.stops_together and not _flushed_in_turn(streams, last)
    jump = _jumps(streams) if stops_together else None
    for of in streams:
        first, cpu = int(of.begin[0]), int(of.table[0, PacketColumn.CPU])
        numbered = of.table[0, PacketColumn.PRESENT] >> Role.SEQUENCE & 1
        if numbered and of.table[0, PacketColumn.SEQUENCE] != 0 and first > earliest:
            reason = f"packets lost: {of.name(0)} begins later than other streams"
            yield Loss(earliest, first, of.host, cpu, 0, 1, reason)
        until = int(of.end.max())
        if jump is not None and until + TOUCHING < last:
            # Or the clock of those that go on has jumped: both would look the same.
            earlier = jump(until)
            reason = f"packets lost: {of.name(-1)} ends earlier than other streams"
            at = -1 if earlier < until else cpu
            yield Loss(earlier, max(last, end), of.host, at, 0, 1, reason)


def _jumps(streams: Sequence[Packets]) -> Callable[[int], int]:
    """Return what tells from a time where packets that begin later follow on, at the earliest."""
    begin = np.concatenate([of.begin for of in streams])
    order = np.argsort(begin, kind="stable")
    begin, before = begin[order], np.concatenate([of.before for of in streams])[order]
    least = np.append(np.minimum.accumulate(before[::-1])[::-1], NEVER)
    return lambda until: min(until, int(least[np.searchsorted(begin, until, side="right")]))


def _flushed_in_turn(streams: Sequence[Packets], last: int) -> bool:
    """Return whether the buffers may have been written while events went on.

    So snapshots and chunks come about, and the ends of streams tell of no loss.  A stream
    whose first number is not 0 may be one; and where most streams end before the last
    event, each soon after another, they are.
    """
    if any(
        of.table[0, PacketColumn.PRESENT] >> Role.SEQUENCE & 1
        and of.table[0, PacketColumn.SEQUENCE] != 0
        for of in streams
    ):
        return True
    ends = sorted(int(of.end.max()) for of in streams)
    early = sum(end + TOUCHING < last for end in ends)
    steps = np.diff(np.array([*ends[:early], last], np.int64))
    if len(ends) < _THREE or early < len(ends) - 1 or int(steps.max()) >= _SOON:
        return False
    # Where all but one end together, the one has lost its clock.
    return bool(steps[-1] <= TOUCHING or (steps > TOUCHING).sum() > 1)


class Channels(Record):
    """The stream files of one trace.

    Attributes
    ----------
    name : str
        Of the trace.
    tracer : Tracer
    host : int
    kernel : bool
    files : sequence of StreamFile
    """

    name: str
    tracer: Tracer
    host: int
    kernel: bool
    files: Sequence[StreamFile]


def absent(
    traces: Sequence[Channels], begin: int, end: int, named: Callable[[int], set[int]]
) -> list[Loss]:
    """Return which cpus have no stream where others have one.

    LTTng has a buffer for every cpu in each channel, its kernel tracer for those that are
    online: where a thread was woken or a program wrote an event.

    Parameters
    ----------
    traces : sequence of Channels
        The kernel's first.
    begin, end : int
        The recording's (ns).
    named : callable
        From a host to the cpus where threads were woken.
    """
    return gathered(_absent(traces, begin, end, named), "stream missing")


def _absent(
    traces: Sequence[Channels], begin: int, end: int, named: Callable[[int], set[int]]
) -> Iterator[Loss]:
    used = _used(traces)
    expected: dict[int, set[int]] = {}
    for trace in traces:
        if not (trace.tracer.stops_together or (trace.kernel and trace.tracer.lttng)):
            continue
        channels: dict[int, set[int]] = {}
        for file in trace.files:
            for stream, cpu in _pairs(file.packets, file.packets[:, PacketColumn.STREAM] >= 0):
                channels.setdefault(stream, set()).add(cpu)
        if not channels:
            reason = f"stream missing: {trace.name} has no packet"
            yield Loss(begin, end, trace.host, -1, 0, 1, reason)
            continue
        # A stream that names no cpu is of all of them.
        placed = [cpus for cpus in channels.values() if max(cpus) >= 0]
        own = {cpu for cpus in placed for cpu in cpus if cpu >= 0}
        if not own:
            continue
        if trace.kernel:
            own |= used.get(trace.host, set()) | named(trace.host)
        wanted = expected.setdefault(trace.host, own)
        for cpus in placed:
            # One stream for all cpus is how LTTng 2.14 can be told to trace user space.
            several = trace.kernel or len(cpus) > 1 or len(wanted) < _THREE
            for cpu in sorted(wanted - cpus) if several else ():
                reason = f"stream missing: {trace.name} has none of cpu {cpu}"
                yield Loss(begin, end, trace.host, cpu, 0, 1, reason)


def _used(traces: Sequence[Channels]) -> dict[int, set[int]]:
    """Return for each host the cpus that an event was written on."""
    used: dict[int, set[int]] = {}
    for trace in traces:
        for file in trace.files if trace.tracer.lttng else ():
            table = file.packets
            pairs = _pairs(
                table, (table[:, PacketColumn.STREAM] >= 0) & (table[:, PacketColumn.EVENTS] > 0)
            )
            used.setdefault(trace.host, set()).update(cpu for _, cpu in pairs if cpu >= 0)
    return used


def _pairs(table: I64, those: Bool) -> list[tuple[int, int]]:
    """Return the stream classes and cpus of some packets: nearly always one pair for a file."""
    if not those.any():
        return []
    stream, cpu, first = (
        table[:, PacketColumn.STREAM],
        table[:, PacketColumn.CPU],
        int(those.argmax()),
    )
    pairs = [(int(stream[first]), int(cpu[first]))]
    other = those & ((stream != stream[first]) | (cpu != cpu[first]))
    if other.any():
        pairs += [
            (a, b)
            for a, b in np.unique(
                table[other][:, (PacketColumn.STREAM, PacketColumn.CPU)], axis=0
            ).tolist()
        ]
    return pairs
