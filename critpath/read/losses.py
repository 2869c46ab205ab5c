"""Streams that begin late, end early or are not there, while others of the trace go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np

from critpath.model import I64, Bool, Loss
from critpath.read.packet_table import NEVER, Column, Damage, PacketBit, Packets, Tracer
from critpath.read.program import Role
from critpath.read.records import Record
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
        of.table[:, Column.LAST].max(where=of.table[:, Column.EVENTS] > 0, initial=_NONE)
        for of in streams
    ]
    last = max(lasts)
    last = int(last) if last > _NONE else end
    earliest = max(min(int(of.begin[0]) for of in streams), begin)
    stops_together = tracer.stops_together and not _flushed_in_turn(streams, last)
    jump = _jumps(streams) if stops_together else None
    for of in streams:
        first, cpu = int(of.begin[0]), int(of.table[0, Column.CPU])
        numbered = of.table[0, Column.PRESENT] >> Role.SEQUENCE & 1
        if numbered and of.table[0, Column.SEQUENCE] != 0 and first > earliest:
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
        of.table[0, Column.PRESENT] >> Role.SEQUENCE & 1 and of.table[0, Column.SEQUENCE] != 0
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
            for stream, cpu in _pairs(file.packets, file.packets[:, Column.STREAM] >= 0):
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
            pairs = _pairs(table, (table[:, Column.STREAM] >= 0) & (table[:, Column.EVENTS] > 0))
            used.setdefault(trace.host, set()).update(cpu for _, cpu in pairs if cpu >= 0)
    return used


def _pairs(table: I64, those: Bool) -> list[tuple[int, int]]:
    """Return the stream classes and cpus of some packets: nearly always one pair for a file."""
    if not those.any():
        return []
    stream, cpu, first = table[:, Column.STREAM], table[:, Column.CPU], int(those.argmax())
    pairs = [(int(stream[first]), int(cpu[first]))]
    other = those & ((stream != stream[first]) | (cpu != cpu[first]))
    if other.any():
        pairs += [
            (a, b)
            for a, b in np.unique(table[other][:, (Column.STREAM, Column.CPU)], axis=0).tolist()
        ]
    return pairs


# -----------------------------------------------------------------------------
# Packets that contradict themselves or each other: where a trace cannot be believed.


# LTTng 2.1 wrote packets that overlap by 2 us, whose events do not; clocks jump farther.
# Snapshots are taken while events go on, one buffer after the other.
TOUCHING: Final = NS_PER_S // 1000
_EARLIEST: Final = TOUCHING - (1 << 63)
_MOST: Final = 100  # losses of one stream, or one file, each with its place


def contradictions(of: Packets, tracer: Tracer, bits: int, end: int) -> list[Loss]:
    """Return when a stream's packets cannot be believed.

    Parameters
    ----------
    of : Packets
    tracer : Tracer
    bits : int
        Of the packets' numbers.
    end : int
        Of the recording (ns).
    """
    found = chain(_within(of, tracer, end), _backwards(of, end), _between(of, tracer, bits))
    return gathered(_once(found), f"contradiction: {of.name(0)}")


def gathered(found: Iterable[Loss], what: str) -> list[Loss]:
    """Return the first losses one by one, and all others of a host as one of their whole time.

    Parameters
    ----------
    found : iterable of Loss
    what : str
        Begins the reason of the others.
    """
    losses: list[Loss] = []
    rest: dict[int, Loss] = {}
    more: dict[int, int] = {}
    for loss in found:
        if len(losses) < _MOST:
            losses.append(loss)
            continue
        of = rest.get(loss.host, loss)
        more[loss.host] = more.get(loss.host, 0) + 1
        rest[loss.host] = replace(
            of,
            begin=min(of.begin, loss.begin),
            end=max(of.end, loss.end),
            cpu=loss.cpu if loss.cpu == of.cpu else -1,
            packets=loss.packets + (of.packets if of is not loss else 0),
        )
    together = (replace(of, reason=f"{what}: and {more[at]:,} more") for at, of in rest.items())
    return [*losses, *together]


def _once(found: Iterable[Loss]) -> Iterator[Loss]:
    """Yield losses of which no packet is counted twice."""
    counted: set[str] = set()
    for loss in found:
        packet = loss.reason.rpartition(": ")[0]
        packets = 0 if packet in counted else loss.packets
        counted.add(packet)
        yield replace(loss, packets=packets)


def _backwards(of: Packets, end: int) -> Iterator[Loss]:
    """Yield from when on it is unknown which packets of a file have the wrong time."""
    latest = max(end, int(of.high.max(initial=end)))
    for row in np.flatnonzero(of.back != NEVER).tolist():
        place = f"{of.name(row)}: packet at byte {of.table[row, Column.OFFSET]}"
        low, high = int(min(of.back[row], of.low[row])), latest
        cpu = int(of.table[row, Column.CPU])
        reason = "it begins before the packet before it in the file"
        yield Loss(low, high, of.host, cpu, 0, 1, f"contradiction: {place}: {reason}")


def _within(of: Packets, tracer: Tracer, end: int) -> Iterator[Loss]:
    table = of.table
    some, whole = (
        table[:, Column.EVENTS] > 0,
        (table[:, Column.DAMAGE] == 0) & (table[:, Column.WHERE] >= 0),
    )
    outside = some & (
        (table[:, Column.FIRST] < of.begin) | of.ended & (table[:, Column.LAST] > of.end)
    )
    turned = of.ended & (of.end < of.begin)
    backwards = table[:, Column.PRESENT] >> PacketBit.TURNED & 1 != 0
    declared = table[:, Column.PRESENT] >> Role.END & 1 != 0
    unfinished = declared & ~of.ended
    misnamed = np.zeros(len(table), bool)
    uneven = np.zeros(len(table), bool)
    if tracer.lttng:
        named = 1 << Role.INSTANCE | 1 << Role.CPU
        misnamed = (table[:, Column.PRESENT] & named == named) & (
            table[:, Column.INSTANCE] != table[:, Column.CPU]
        )
        # One that the file's end cuts is believed up to there, if its sizes may be true.
        cut = (table[:, Column.DAMAGE] <= Damage.OUTSIDE) & (table[:, Column.WHERE] < 0)
        uneven = (whole | cut) & (table[:, Column.PRESENT] >> PacketBit.UNEVEN & 1 != 0)
    odd = outside | turned | backwards | unfinished | misnamed | uneven
    for row in np.flatnonzero(odd).tolist():
        place = f"{of.name(row)}: packet at byte {table[row, Column.OFFSET]}"
        cpu = int(table[row, Column.CPU])
        told = int(whole[row])  # one that is damaged besides is counted as that
        spans = [(int(of.low[row]), int(of.high[row]))]
        # Where the packet should be, if its times are wrong.
        expected = int(of.before[row]), int(of.after[row])
        if misnamed[row]:
            reason, cpu = "its stream belongs to another cpu", -1
            spans.append(expected)
        elif turned[row]:
            reason = "it ends before it begins"
            spans.append(expected)
        elif outside[row]:
            reason = "events lie outside of its time"
            spans.append(expected)
        elif backwards[row]:
            reason = "time runs backwards within it"
        elif unfinished[row]:
            reason = "it was never finished"
            # It is right up to its last event, if that is one.
            right = some[row] and not table[row, Column.PRESENT] >> PacketBit.UNWRITTEN & 1
            low = int(table[row, Column.LAST] if right else of.begin[row])
            spans = [(low, max(int(of.high[row]), expected[1]))]
        else:
            reason = "its sizes contradict each other"
            spans = [(spans[0][0], max(spans[0][1], expected[1], end)), expected]
        yield from _all_of(spans, of.host, cpu, told, f"contradiction: {place}: {reason}")


def _all_of(
    spans: Sequence[tuple[int, int]], host: int, cpu: int, packets: int, reason: str
) -> Iterator[Loss]:
    """Yield spans of time as losses, together where they meet; the packets count once."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted((low, max(low, high)) for low, high in spans):
        if joined and low <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], high)
        else:
            joined.append((low, high))
    for number, (low, high) in enumerate(joined):
        yield Loss(low, high, host, cpu, 0, 0 if number else packets, reason)


def _between(of: Packets, tracer: Tracer, bits: int) -> Iterator[Loss]:
    table = of.table
    some = table[:, Column.EVENTS] > 0
    # Not their difference, which times at the ends of the range have none of.
    overlap = of.begin[1:] < np.maximum(of.end[:-1], _EARLIEST) - TOUCHING
    mixed = some[:-1] & some[1:] & (table[:-1, Column.LAST] > table[1:, Column.FIRST])
    numbered = table[:, Column.PRESENT] >> Role.SEQUENCE & 1 != 0
    numbered = numbered[:-1] & numbered[1:]
    numbers = table[:, Column.SEQUENCE].view(np.uint64)
    step = numbers[1:] - numbers[:-1] & np.uint64((1 << bits) - 1)
    back = numbered & ((step == 0) | (step >= np.uint64(1 << (bits - 1))))
    other = (
        table[:-1, Column.CPU] != table[1:, Column.CPU]
        if tracer.lttng
        else np.zeros(len(overlap), bool)
    )
    for row in np.flatnonzero(overlap | mixed | back | other).tolist():
        pair = (row, row + 1)
        spans = [(int(min(of.low[list(pair)])), int(max(of.high[list(pair)])))]
        spans += [(int(of.before[i]), int(of.after[i])) for i in pair]
        place = f"{of.name(row + 1)}: packet at byte {table[row + 1, Column.OFFSET]}"
        reason = "its clock and that of the packet before disagree"
        if numbered[row] and step[row] == 0:
            reason = "it has the number of the packet before"
        cpu = int(table[row + 1, Column.CPU])
        if other[row]:
            reason, cpu = "it is of another cpu than the packet before", -1
        yield from _all_of(spans, of.host, cpu, 1, f"contradiction: {place}: {reason}")
