"""What is missing from a trace or wrong in it, judged from its packets.

`find_losses` takes the packets of one trace: damaged packets, counters that jump,
inconsistent packets, streams that end early.  `find_missing_streams` takes all traces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

import numpy as np

from critpath.model import I32, I64, Bool, EventClass, Kind, Loss
from critpath.read.packets import (
    NEVER,
    Damage,
    PacketBit,
    PacketColumn,
    Packets,
    StreamFile,
    Tracer,
    has_end,
    join_packets,
)
from critpath.read.program import Role
from critpath.records import dataclass
from critpath.units import NS_PER_S, plural

REASONS: Final = {int(damage): damage.reason for damage in Damage}
_UNKNOWN_TRACER: Final = Tracer()


@dataclass(frozen=True)
class _Packet:
    """One row of the packet table, for packets whose counters step."""

    stream: int
    begin: int
    end: int
    sequence: int | None
    discarded: int | None
    cpu: int
    bits: tuple[int, int]
    nanoseconds: Callable[[int, int], int]

    def time(self, raw: int) -> int:
        return self.nanoseconds(self.stream, raw)


def find_losses(
    files: Sequence[StreamFile],
    begin: int,
    end: int,
    tracer: Tracer = _UNKNOWN_TRACER,
) -> tuple[list[Loss], list[str]]:
    """Find everything that a trace's packets show to be missing.

    Counters of discarded events are compared from one packet to the next of the same
    stream, as babeltrace2 does: the events were lost between the two packets' ends.
    """
    if not files:
        return [], []
    found: list[Loss] = []
    streams: dict[tuple[int, int, int], list[tuple[StreamFile, I64]]] = {}
    for number, file in enumerate(files):
        table = np.asfortranarray(file.packets)  # for access by column
        if not tracer.clears:  # what lies there may be anything
            table = table.copy(order="F")
            table[table[:, PacketColumn.DAMAGE] == Damage.BEHIND, PacketColumn.DAMAGE] = 0
        odd = np.flatnonzero(
            (table[:, PacketColumn.DAMAGE] != 0) | (table[:, PacketColumn.WHERE] < 0)
        )
        good = (table[:, PacketColumn.STREAM] >= 0) & (table[:, PacketColumn.DAMAGE] == 0)
        cpus = np.unique(table[good, PacketColumn.CPU]) if len(odd) else odd
        found += summarize_losses(
            (_damage_loss(file, at, begin, end, cpus) for at in odd.tolist()),
            f"damaged: {file.name}",
        )
        for key, rows in _split_by_stream(table, number):
            streams.setdefault(key, []).append((file, rows))
    overlapping = 0
    of_class: dict[int, list[Packets]] = {}
    for (stream, _, _), parts in streams.items():
        columns = join_packets(parts, (begin, end))
        found += find_inconsistencies(columns, tracer, files[0].wraps[stream][1], end)
        of_class.setdefault(stream, []).append(columns)
        pairs, overlaps = _find_counter_steps(parts)
        for before, after in pairs:
            found += _count_lost_packets(before, after, files[0].host)
            found += _count_discarded_events(before, after, files[0].host)
        overlapping += overlaps
    for same in of_class.values():
        found += find_uncovered_time(same, tracer, begin, end)
    warnings = []
    if overlapping:
        warnings.append(
            f"{files[0].name.rpartition('/')[0]}: {plural(overlapping, 'pair')} of packets"
            " overlap in time, which babeltrace2 refuses: their events were ordered by time"
        )
    return found, warnings


@dataclass(frozen=True)
class TraceFiles:
    """The stream files of one trace, for `find_missing_streams`."""

    name: str
    tracer: Tracer
    host: int
    kernel: bool
    files: Sequence[StreamFile]


def _split_by_stream(table: I64, number: int) -> Iterator[tuple[tuple[int, int, int], I64]]:
    """Yield the packets with a readable header by stream: (class, instance, is named)."""
    present = table[:, PacketColumn.PRESENT]
    known = (table[:, PacketColumn.STREAM] >= 0) & (present >> Role.BEGIN & 1 != 0)
    if not known.all():
        table = table[known]
    # Without an instance id every file is a stream of its own.
    named = table[:, PacketColumn.PRESENT] >> Role.INSTANCE & 1
    instance = np.where(named != 0, table[:, PacketColumn.INSTANCE], number)
    if not len(table):
        return
    keys = (table[:, PacketColumn.STREAM], instance, named)
    if all((key == key[0]).all() for key in keys):  # nearly always; the general case is slow
        stream, of, name = (int(key[0]) for key in keys)
        yield (stream, of, name), table
        return
    different, first, of_row = np.unique(
        np.column_stack(keys), axis=0, return_index=True, return_inverse=True
    )
    by_key = np.split(np.argsort(of_row, kind="stable"), np.cumsum(np.bincount(of_row))[:-1])
    for at in np.argsort(first).tolist():
        stream, of, name = different[at].tolist()
        yield (stream, of, name), table[by_key[at]]


def _find_counter_steps(
    parts: Sequence[tuple[StreamFile, I64]],
) -> tuple[list[tuple[_Packet | None, _Packet]], int]:
    """Return packets whose counters step, each with its predecessor in the stream.

    Also return the number of packets that begin before their predecessor has ended.
    """
    file = parts[0][0]
    table = np.concatenate([rows for _, rows in parts]) if len(parts) > 1 else parts[0][1]
    events, packets = (np.uint64((1 << b) - 1) for b in file.wraps[table[0, PacketColumn.STREAM]])
    unsigned = table.view(np.uint64)
    if (unsigned[1:, PacketColumn.BEGIN] < unsigned[:-1, PacketColumn.BEGIN]).any():
        order = np.argsort(unsigned[:, PacketColumn.BEGIN], kind="stable")
        table, unsigned = table[order], unsigned[order]
    present = table[:, PacketColumn.PRESENT]
    end = np.where(has_end(table), unsigned[:, PacketColumn.END], unsigned[:, PacketColumn.BEGIN])
    numbered = present >> Role.SEQUENCE & 1 != 0
    counted = present >> Role.DISCARDED & 1 != 0
    steps = np.diff(unsigned[:, PacketColumn.SEQUENCE]) - np.uint64(1) & packets
    more = np.diff(unsigned[:, PacketColumn.DISCARDED]) & events
    steps_seen = np.zeros(len(table), bool)
    steps_seen[1:] = numbered[1:] & numbered[:-1] & (steps != 0)
    steps_seen[1:] |= counted[1:] & counted[:-1] & (more != 0)
    first = np.append(True, ~counted[:-1])  # nothing to compare with
    steps_seen |= first & counted & (unsigned[:, PacketColumn.DISCARDED] & events != 0)
    rows = np.flatnonzero(steps_seen).tolist()
    pairs = [
        (
            _read_row(file, table[row - 1].tolist()) if row else None,
            _read_row(file, table[row].tolist()),
        )
        for row in rows
    ]
    return pairs, int((unsigned[1:, PacketColumn.BEGIN] < end[:-1]).sum())


def _read_row(file: StreamFile, row: list[int]) -> _Packet:
    """Convert a row of the packet table."""
    present = row[PacketColumn.PRESENT]
    bits = file.wraps[row[PacketColumn.STREAM]]
    return _Packet(
        row[PacketColumn.STREAM],
        row[PacketColumn.BEGIN] % (1 << 64),
        row[PacketColumn.END if has_end(np.array([row]))[0] else PacketColumn.BEGIN] % (1 << 64),
        row[PacketColumn.SEQUENCE] % (1 << bits[1]) if present >> Role.SEQUENCE & 1 else None,
        row[PacketColumn.DISCARDED] % (1 << bits[0]) if present >> Role.DISCARDED & 1 else None,
        row[PacketColumn.CPU],
        bits,
        file.nanoseconds,
    )


def _damage_loss(file: StreamFile, at: int, begin: int, end: int, cpus: I64) -> Loss:
    """Return the loss for a damaged packet, or for one that the file's end cuts off.

    Damage shows where decoding fails, which may be far behind it, so the whole packet is
    in doubt.  A packet that was cut off is valid up to there.  ``cpus`` are those of the
    file's undamaged packets.
    """
    table = file.packets
    row = table[at].tolist()
    cut, where = row[PacketColumn.WHERE] < 0, row[PacketColumn.WHERE]
    if cut:
        where = -1 - where
    low, high = _packet_span(file, row, begin, end)
    if at and row[PacketColumn.STREAM] < 0:
        # Or the predecessor's size is wrong, which puts it in doubt as well.
        low = min(_packet_span(file, table[at - 1].tolist(), begin, end))
        low = max(low, begin)
    # Without this packet's size, it is unknown where the next one begins.
    if at + 1 < len(table):
        following = _packet_span(file, table[at + 1].tolist(), begin, end)[0]
        high = following if row[PacketColumn.STREAM] < 0 else max(high, row[PacketColumn.LAST])
    elif cut or not row[PacketColumn.CONTENT]:
        high = max(high, end)
    if row[PacketColumn.DAMAGE]:
        ended = _packet_span(file, table[at - 1].tolist(), begin, begin)[1] if at else begin
        begins = (
            _packet_span(file, table[at + 1].tolist(), end, end)[0] if at + 1 < len(table) else end
        )
        if not ended <= low <= high <= begins:
            # Its times, or its neighbours', were damaged: it lies between these.
            low, high = min(low, ended), max(high, begins)
    if row[PacketColumn.EVENTS]:
        if cut and row[PacketColumn.DAMAGE] in {0, Damage.OUTSIDE}:
            low = row[PacketColumn.LAST]
        else:
            low, high = min(low, row[PacketColumn.FIRST]), max(high, row[PacketColumn.LAST])
    cpu = row[PacketColumn.CPU]
    if row[PacketColumn.DAMAGE] or row[PacketColumn.STREAM] < 0:
        # Its own may be damaged.
        cpu = int(cpus[0]) if len(cpus) == 1 else -1
    place = f"{file.name} at byte {row[PacketColumn.OFFSET] + where // 8}"
    reason = (
        f"truncated: {file.name} ends within the packet at byte {row[PacketColumn.OFFSET]}"
        if cut
        else f"damaged: {place}: {REASONS.get(row[PacketColumn.DAMAGE], 'unreadable')}"
    )
    return Loss(low, max(low, high), file.host, cpu, 0, 1, reason)


def _packet_span(file: StreamFile, row: list[int], begin: int, end: int) -> tuple[int, int]:
    """Return when a packet claims to begin and end; defaults to the recording's range."""
    present = row[PacketColumn.PRESENT]
    if row[PacketColumn.STREAM] >= 0:
        if present >> Role.BEGIN & 1:
            begin = file.nanoseconds(row[PacketColumn.STREAM], row[PacketColumn.BEGIN] % (1 << 64))
        if has_end(np.array([row]))[0]:
            end = file.nanoseconds(row[PacketColumn.STREAM], row[PacketColumn.END] % (1 << 64))
    return begin, end


def _count_lost_packets(before: _Packet | None, after: _Packet, host: int) -> list[Loss]:
    if before is None or before.sequence is None or after.sequence is None:
        return []
    missing = (after.sequence - before.sequence - 1) % (1 << after.bits[1])
    # Numbers that go back belong to packets out of order, which is no loss.
    if missing == 0 or missing >= 1 << (after.bits[1] - 1):
        return []
    begin, end = before.time(before.end), after.time(after.begin)
    if end <= begin:
        # No time is left for the missing packets: one of the two times is wrong.
        end = max(begin, after.time(after.end))
    return [Loss(begin, end, host, after.cpu, 0, missing, "packets lost")]


def _count_discarded_events(before: _Packet | None, after: _Packet, host: int) -> list[Loss]:
    if after.discarded is None:
        return []
    if before is None or before.discarded is None:
        if after.discarded == 0:
            return []
        # The tracer counts from the begin of the session.  What it counted before the
        # first packet we have is of unknown size unless that is the first of all.
        count = after.discarded if after.sequence == 0 else 0
        begin, end = after.time(after.begin), after.time(after.end)
        return [Loss(begin, max(begin, end), host, after.cpu, count, 0, "discarded")]
    count = (after.discarded - before.discarded) % (1 << after.bits[0])
    if count == 0 or count >= 1 << (after.bits[0] - 1):
        return []
    begin, end = before.time(before.end), after.time(after.end)
    return [Loss(begin, max(begin, end), host, after.cpu, count, 0, "discarded")]


_FEW: Final = 3
_SOON: Final = NS_PER_S // 4  # in which a few MB are written, on a loaded machine too
_NONE: Final = -(1 << 63)


def find_uncovered_time(
    streams: Sequence[Packets], tracer: Tracer, begin: int, end: int
) -> list[Loss]:
    """Find when some streams of a class have no packet yet, or no more, while others go on.

    ``streams`` are all of one stream class; ``begin`` and ``end`` (ns) span the events.
    """
    if not tracer.lttng or len(streams) < 2:
        return []
    return summarize_losses(_uncovered_time(streams, tracer, begin, end), "packets lost")


def _uncovered_time(
    streams: Sequence[Packets], tracer: Tracer, begin: int, end: int
) -> Iterator[Loss]:
    lasts = [
        of.table[:, PacketColumn.LAST].max(
            where=of.table[:, PacketColumn.EVENTS] > 0, initial=_NONE
        )
        for of in streams
    ]
    last = max(lasts)
    last = int(last) if last > _NONE else end
    earliest = max(min(int(of.begin[0]) for of in streams), begin)
    stops_together = tracer.stops_together and not _is_flushed_in_turn(streams, last)
    jump = _next_begin_after(streams) if stops_together else None
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


def _next_begin_after(streams: Sequence[Packets]) -> Callable[[int], int]:
    """Return a function from a time to the earliest event before a packet that begins later."""
    begin = np.concatenate([of.begin for of in streams])
    order = np.argsort(begin, kind="stable")
    begin, before = begin[order], np.concatenate([of.before for of in streams])[order]
    least = np.append(np.minimum.accumulate(before[::-1])[::-1], NEVER)
    return lambda until: min(until, int(least[np.searchsorted(begin, until, side="right")]))


def _is_flushed_in_turn(streams: Sequence[Packets], last: int) -> bool:
    """Return whether buffers may have been written one after the other while events went on.

    Snapshots and rotated chunks are made this way, and the ends of their streams prove no
    loss.  Signs of it: a first sequence number other than 0, or most streams ending before
    the last event, each soon after another.
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
    if len(ends) < _FEW or early < len(ends) - 1 or int(steps.max()) >= _SOON:
        return False
    # Where all but one end together, the one has lost its clock.
    return bool(steps[-1] <= TOUCHING or (steps > TOUCHING).sum() > 1)


def find_missing_streams(
    traces: Sequence[TraceFiles], begin: int, end: int, woken_on: Callable[[int], set[int]]
) -> list[Loss]:
    """Find the cpus without a stream in a channel where others have one.

    LTTng has a buffer per channel for every cpu, its kernel tracer for every online cpu:
    where a thread was woken or a program wrote an event.
    """
    return summarize_losses(_missing_streams(traces, begin, end, woken_on), "stream missing")


def _missing_streams(
    traces: Sequence[TraceFiles], begin: int, end: int, woken_on: Callable[[int], set[int]]
) -> Iterator[Loss]:
    used = _cpus_with_events(traces)
    expected: dict[int, set[int]] = {}
    for trace in traces:
        if not (trace.tracer.stops_together or (trace.kernel and trace.tracer.by_cpu)):
            continue
        channels: dict[int, set[int]] = {}
        for file in trace.files:
            for stream, cpu in _stream_cpu_pairs(
                file.packets, file.packets[:, PacketColumn.STREAM] >= 0
            ):
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
            own |= used.get(trace.host, set()) | woken_on(trace.host)
        wanted = expected.setdefault(trace.host, own)
        for cpus in placed:
            # LTTng 2.14 can trace user space with one stream for all cpus.
            several = trace.kernel or len(cpus) > 1 or len(wanted) < _FEW
            for cpu in sorted(wanted - cpus) if several else ():
                reason = f"stream missing: {trace.name} has none of cpu {cpu}"
                yield Loss(begin, end, trace.host, cpu, 0, 1, reason)


def _cpus_with_events(traces: Sequence[TraceFiles]) -> dict[int, set[int]]:
    """Return for each host the cpus on which events were written."""
    used: dict[int, set[int]] = {}
    for trace in traces:
        for file in trace.files if trace.tracer.lttng else ():
            table = file.packets
            pairs = _stream_cpu_pairs(
                table, (table[:, PacketColumn.STREAM] >= 0) & (table[:, PacketColumn.EVENTS] > 0)
            )
            used.setdefault(trace.host, set()).update(cpu for _, cpu in pairs if cpu >= 0)
    return used


def _stream_cpu_pairs(table: I64, those: Bool) -> list[tuple[int, int]]:
    """Return the stream classes and cpus of the selected packets: nearly always one pair a file."""
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


# LTTng 2.1 wrote packets that overlap by 2 us, whose events do not; clocks jump farther.
# Snapshots are taken while events go on, one buffer after the other.
TOUCHING: Final = NS_PER_S // 1000
_EARLIEST: Final = TOUCHING - (1 << 63)
_MOST_LOSSES: Final = 100  # losses of one stream, or one file, each with its place


def find_inconsistencies(of: Packets, tracer: Tracer, bits: int, end: int) -> list[Loss]:
    """Find the packets of a stream that contradict themselves or each other.

    ``bits`` is the width of the packets' sequence numbers; ``end`` the recording's end (ns).
    """
    found = chain(
        _inconsistent_packets(of, tracer, end),
        _packets_out_of_order(of, end),
        _inconsistent_neighbours(of, tracer, bits),
    )
    return summarize_losses(_count_packets_once(found), f"contradiction: {of.name(0)}")


def summarize_losses(found: Iterable[Loss], what: str) -> list[Loss]:
    """Return the first losses one by one, and the others as one for each host.

    ``what`` begins the reason of a summary.
    """
    losses: list[Loss] = []
    rest: dict[int, Loss] = {}
    more: dict[int, int] = {}
    for loss in found:
        if len(losses) < _MOST_LOSSES:
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


def _count_packets_once(found: Iterable[Loss]) -> Iterator[Loss]:
    """Yield the losses, with 0 packets for a packet that was counted before."""
    counted: set[str] = set()
    for loss in found:
        packet = loss.reason.rpartition(": ")[0]
        packets = 0 if packet in counted else loss.packets
        counted.add(packet)
        yield replace(loss, packets=packets)


def _packets_out_of_order(of: Packets, end: int) -> Iterator[Loss]:
    """Yield the time in doubt for each packet that begins before its predecessor in the file."""
    latest = max(end, int(of.high.max(initial=end)))
    for row in np.flatnonzero(of.back != NEVER).tolist():
        place = f"{of.name(row)}: packet at byte {of.table[row, PacketColumn.OFFSET]}"
        low, high = int(min(of.back[row], of.low[row])), latest
        cpu = int(of.table[row, PacketColumn.CPU])
        reason = "it begins before the packet before it in the file"
        yield Loss(low, high, of.host, cpu, 0, 1, f"contradiction: {place}: {reason}")


def _inconsistent_packets(of: Packets, tracer: Tracer, end: int) -> Iterator[Loss]:
    table = of.table
    some, whole = (
        table[:, PacketColumn.EVENTS] > 0,
        (table[:, PacketColumn.DAMAGE] == 0) & (table[:, PacketColumn.WHERE] >= 0),
    )
    outside = some & (
        (table[:, PacketColumn.FIRST] < of.begin)
        | of.ended & (table[:, PacketColumn.LAST] > of.end)
    )
    turned = of.ended & (of.end < of.begin)
    backwards = table[:, PacketColumn.PRESENT] >> PacketBit.TURNED & 1 != 0
    declared = table[:, PacketColumn.PRESENT] >> Role.END & 1 != 0
    unfinished = declared & ~of.ended
    misnamed = np.zeros(len(table), bool)
    uneven = np.zeros(len(table), bool)
    if tracer.lttng:
        named = 1 << Role.INSTANCE | 1 << Role.CPU
        misnamed = (table[:, PacketColumn.PRESENT] & named == named) & (
            table[:, PacketColumn.INSTANCE] != table[:, PacketColumn.CPU]
        )
        # One that the file's end cuts is believed up to there, if its sizes may be true.
        cut = (table[:, PacketColumn.DAMAGE] <= Damage.OUTSIDE) & (table[:, PacketColumn.WHERE] < 0)
        uneven = (whole | cut) & (table[:, PacketColumn.PRESENT] >> PacketBit.UNEVEN & 1 != 0)
    odd = outside | turned | backwards | unfinished | misnamed | uneven
    for row in np.flatnonzero(odd).tolist():
        place = f"{of.name(row)}: packet at byte {table[row, PacketColumn.OFFSET]}"
        cpu = int(table[row, PacketColumn.CPU])
        packets = int(whole[row])  # one that is damaged besides is counted as that
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
            right = some[row] and not table[row, PacketColumn.PRESENT] >> PacketBit.UNWRITTEN & 1
            low = int(table[row, PacketColumn.LAST] if right else of.begin[row])
            spans = [(low, max(int(of.high[row]), expected[1]))]
        else:
            reason = "its sizes contradict each other"
            spans = [(spans[0][0], max(spans[0][1], expected[1], end)), expected]
        yield from _merge_spans(spans, of.host, cpu, packets, f"contradiction: {place}: {reason}")


def _merge_spans(
    spans: Sequence[tuple[int, int]], host: int, cpu: int, packets: int, reason: str
) -> Iterator[Loss]:
    """Yield spans of time as losses, merged where they meet; the packets count once."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted((low, max(low, high)) for low, high in spans):
        if joined and low <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], high)
        else:
            joined.append((low, high))
    for number, (low, high) in enumerate(joined):
        yield Loss(low, high, host, cpu, 0, 0 if number else packets, reason)


def _inconsistent_neighbours(of: Packets, tracer: Tracer, bits: int) -> Iterator[Loss]:
    table = of.table
    some = table[:, PacketColumn.EVENTS] > 0
    # Not their difference, which times at the ends of the range have none of.
    overlap = of.begin[1:] < np.maximum(of.end[:-1], _EARLIEST) - TOUCHING
    mixed = some[:-1] & some[1:] & (table[:-1, PacketColumn.LAST] > table[1:, PacketColumn.FIRST])
    numbered = table[:, PacketColumn.PRESENT] >> Role.SEQUENCE & 1 != 0
    numbered = numbered[:-1] & numbered[1:]
    numbers = table[:, PacketColumn.SEQUENCE].view(np.uint64)
    step = numbers[1:] - numbers[:-1] & np.uint64((1 << bits) - 1)
    back = numbered & ((step == 0) | (step >= np.uint64(1 << (bits - 1))))
    other = (
        table[:-1, PacketColumn.CPU] != table[1:, PacketColumn.CPU]
        if tracer.by_cpu
        else np.zeros(len(overlap), bool)
    )
    for row in np.flatnonzero(overlap | mixed | back | other).tolist():
        pair = (row, row + 1)
        spans = [(int(min(of.low[list(pair)])), int(max(of.high[list(pair)])))]
        spans += [(int(of.before[i]), int(of.after[i])) for i in pair]
        place = f"{of.name(row + 1)}: packet at byte {table[row + 1, PacketColumn.OFFSET]}"
        reason = "its clock and that of the packet before disagree"
        if numbered[row] and step[row] == 0:
            reason = "it has the number of the packet before"
        cpu = int(table[row + 1, PacketColumn.CPU])
        if other[row]:
            reason, cpu = "it is of another cpu than the packet before", -1
        yield from _merge_spans(spans, of.host, cpu, 1, f"contradiction: {place}: {reason}")


_WAKES: Final = {Kind.WAKEUP, Kind.WAKEUP_NEW, Kind.WAKING}
# Threads are woken everywhere all the time, so a sample of the events suffices.  It must not
# depend on chunks: the first events, and some of every so many.
_SAMPLED_FIRST, _SAMPLE, _SAMPLE_PERIOD = 1 << 18, 1 << 16, 1 << 22
_LEAST_WAKES: Final = 2  # a single event may be damaged
_MOST_CPUS: Final = 1 << 16


class WakeTargets:
    """Counts on which cpus threads were woken, by host, in a sample of the events."""

    def __init__(self) -> None:
        self._seen = 0
        self._found: dict[tuple[int, int], int] = {}

    def add(
        self, event_class: I32, offset: I64, values: I64, classes: Sequence[EventClass]
    ) -> None:
        """Add the next chunk."""
        begin, end = self._seen, self._seen + len(event_class)
        self._seen = end
        for low, high in _sampled_rows(begin, end):
            of = slice(max(low - begin, 0), high - begin)
            self._count(event_class[of], offset[of], values, classes)

    def _count(
        self, event_class: I32, offset: I64, values: I64, classes: Sequence[EventClass]
    ) -> None:
        for number, of in enumerate(classes):
            if of.kind not in _WAKES or "target_cpu" not in of.fields:
                continue
            place = of.fields.index("target_cpu")
            if of.types[place] == "absent":
                continue
            rows = np.flatnonzero(event_class == number)
            cpus, counts = np.unique(values[offset[rows] + place], return_counts=True)
            for cpu, count in zip(cpus.tolist(), counts.tolist(), strict=True):
                if 0 <= cpu < _MOST_CPUS:
                    key = of.host, cpu
                    self._found[key] = self._found.get(key, 0) + count

    def cpus(self, host: int) -> set[int]:
        """Return the cpus of a host that several events name."""
        return {
            cpu for (at, cpu), count in self._found.items() if at == host and count >= _LEAST_WAKES
        }


def _sampled_rows(begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of rows to look at between two rows of the recording."""
    if begin < _SAMPLED_FIRST:
        yield begin, min(end, _SAMPLED_FIRST)
    for low in range(begin - begin % _SAMPLE_PERIOD, end, _SAMPLE_PERIOD):
        high = min(low + _SAMPLE, end)
        if low >= _SAMPLED_FIRST and high > begin:
            yield max(low, begin), high
