"""What the packets of a trace say about what is missing from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from critpath.model import I64, Loss
from critpath.read.losses import contradictions, coverage, gathered
from critpath.read.packet_table import Column, Damage, Packets, Tracer, columns_of, has_end
from critpath.read.program import Role
from critpath.read.records import Record
from critpath.units import plural

REASONS: Final = {int(damage): damage.reason for damage in Damage}
_NOBODY: Final = Tracer()


class StreamFile(Record):
    """A stream file that was decoded.

    Attributes
    ----------
    name : str
        Below the recording, for messages.
    packets : int64 [packets, columns]
        See `Column`.
    nanoseconds : callable
        From a stream class's position and a raw clock value to a timestamp.
    times : callable
        The same of an array of raw clock values.
    wraps : tuple of (int, int)
        For each stream class, the bits of its counters of discarded events and of
        packets.
    host : int
    """

    name: str
    packets: I64
    nanoseconds: Callable[[int, int], int]
    times: Callable[[int, I64], I64]
    wraps: tuple[tuple[int, int], ...]
    host: int


class _Packet(Record):
    """One row of the table, for those that have something to tell."""

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


def losses(
    files: Sequence[StreamFile],
    begin: int,
    end: int,
    tracer: Tracer = _NOBODY,
) -> tuple[list[Loss], list[str]]:
    """Return everything a trace's packets say is missing, and warnings.

    Counters of discarded events are compared from one packet to the next of the same
    stream, as babeltrace2 does: the events were lost between the two packets' ends.

    Parameters
    ----------
    files : sequence of StreamFile
        Of one trace.
    begin, end : int
        Range of the recording, for what cannot be placed (ns).
    tracer : Tracer
        Who wrote the trace.
    """
    if not files:
        return [], []
    found: list[Loss] = []
    streams: dict[tuple[int, int, int], list[tuple[StreamFile, I64]]] = {}
    for number, file in enumerate(files):
        table = np.asfortranarray(file.packets)  # it is gone through column by column
        if not tracer.clears:  # what lies there may be anything
            table = table.copy(order="F")
            table[table[:, Column.DAMAGE] == Damage.BEHIND, Column.DAMAGE] = 0
        odd = np.flatnonzero((table[:, Column.DAMAGE] != 0) | (table[:, Column.WHERE] < 0))
        good = (table[:, Column.STREAM] >= 0) & (table[:, Column.DAMAGE] == 0)
        cpus = np.unique(table[good, Column.CPU]) if len(odd) else odd
        found += gathered(
            (_damage(file, at, begin, end, cpus) for at in odd.tolist()),
            f"damaged: {file.name}",
        )
        for key, rows in _by_stream(table, number):
            streams.setdefault(key, []).append((file, rows))
    overlapping = 0
    of_class: dict[int, list[Packets]] = {}
    for (stream, _, _), parts in streams.items():
        columns = columns_of(parts, (begin, end))
        found += contradictions(columns, tracer, files[0].wraps[stream][1], end)
        of_class.setdefault(stream, []).append(columns)
        pairs, overlaps = _telling(parts)
        for before, after in pairs:
            found += _lost_packets(before, after, files[0].host)
            found += _discarded(before, after, files[0].host)
        overlapping += overlaps
    for same in of_class.values():
        found += coverage(same, tracer, begin, end)
    warnings = []
    if overlapping:
        warnings.append(
            f"{files[0].name.rpartition('/')[0]}: {plural(overlapping, 'pair')} of packets"
            " overlap in time, which babeltrace2 refuses: their events were ordered by time"
        )
    return found, warnings


def _by_stream(table: I64, number: int) -> Iterator[tuple[tuple[int, int, int], I64]]:
    """Yield the packets of a file whose header could be read, by the stream they are of."""
    present = table[:, Column.PRESENT]
    known = (table[:, Column.STREAM] >= 0) & (present >> Role.BEGIN & 1 != 0)
    if not known.all():
        table = table[known]
    # Without an instance id every file is a stream of its own.
    named = table[:, Column.PRESENT] >> Role.INSTANCE & 1
    instance = np.where(named != 0, table[:, Column.INSTANCE], number)
    if not len(table):
        return
    keys = (table[:, Column.STREAM], instance, named)
    if all((key == key[0]).all() for key in keys):  # nearly always; what follows is slow
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


def _telling(
    parts: Sequence[tuple[StreamFile, I64]],
) -> tuple[list[tuple[_Packet | None, _Packet]], int]:
    """Return packets of a stream whose counters tell of a loss, each behind the one before.

    And how many of all packets begin before the one before them has ended.
    """
    file = parts[0][0]
    table = np.concatenate([rows for _, rows in parts]) if len(parts) > 1 else parts[0][1]
    events, packets = (np.uint64((1 << b) - 1) for b in file.wraps[table[0, Column.STREAM]])
    told = table.view(np.uint64)
    if (told[1:, Column.BEGIN] < told[:-1, Column.BEGIN]).any():
        order = np.argsort(told[:, Column.BEGIN], kind="stable")
        table, told = table[order], told[order]
    present = table[:, Column.PRESENT]
    end = np.where(has_end(table), told[:, Column.END], told[:, Column.BEGIN])
    numbered = present >> Role.SEQUENCE & 1 != 0
    counted = present >> Role.DISCARDED & 1 != 0
    steps = np.diff(told[:, Column.SEQUENCE]) - np.uint64(1) & packets
    more = np.diff(told[:, Column.DISCARDED]) & events
    tells = np.zeros(len(table), bool)
    tells[1:] = numbered[1:] & numbered[:-1] & (steps != 0)
    tells[1:] |= counted[1:] & counted[:-1] & (more != 0)
    first = np.append(True, ~counted[:-1])  # it has nothing to be compared with
    tells |= first & counted & (told[:, Column.DISCARDED] & events != 0)
    rows = np.flatnonzero(tells).tolist()
    pairs = [
        (
            _packet(file, table[row - 1].tolist()) if row else None,
            _packet(file, table[row].tolist()),
        )
        for row in rows
    ]
    return pairs, int((told[1:, Column.BEGIN] < end[:-1]).sum())


def _packet(file: StreamFile, row: list[int]) -> _Packet:
    """Return what one row of the table tells."""
    present = row[Column.PRESENT]
    bits = file.wraps[row[Column.STREAM]]
    return _Packet(
        row[Column.STREAM],
        row[Column.BEGIN] % (1 << 64),
        row[Column.END if has_end(np.array([row]))[0] else Column.BEGIN] % (1 << 64),
        row[Column.SEQUENCE] % (1 << bits[1]) if present >> Role.SEQUENCE & 1 else None,
        row[Column.DISCARDED] % (1 << bits[0]) if present >> Role.DISCARDED & 1 else None,
        row[Column.CPU],
        bits,
        file.nanoseconds,
    )


def _damage(file: StreamFile, at: int, begin: int, end: int, cpus: I64) -> Loss:
    """Return the loss that a damaged packet is, or one that the file's end cuts.

    ``cpus`` are those of the file's undamaged packets.

    What was damaged is found out where it makes no sense any more, and that may be far
    behind it: the whole packet is in doubt.  A file that was cut is right up to there.
    """
    table = file.packets
    row = table[at].tolist()
    cut, where = row[Column.WHERE] < 0, row[Column.WHERE]
    if cut:
        where = -1 - where
    low, high = _times(file, row, begin, end)
    if at and row[Column.STREAM] < 0:
        # Or the packet before says a wrong size, and then it is in doubt as well.
        low = min(_times(file, table[at - 1].tolist(), begin, end))
        low = max(low, begin)
    # Where the next packet begins is not known if this one does not say how long it is.
    if at + 1 < len(table):
        following = _times(file, table[at + 1].tolist(), begin, end)[0]
        high = following if row[Column.STREAM] < 0 else max(high, row[Column.LAST])
    elif cut or not row[Column.CONTENT]:
        high = max(high, end)
    if row[Column.DAMAGE]:
        ended = _times(file, table[at - 1].tolist(), begin, begin)[1] if at else begin
        begins = _times(file, table[at + 1].tolist(), end, end)[0] if at + 1 < len(table) else end
        if not ended <= low <= high <= begins:
            # Its times are what was damaged, or the neighbours': it is between these.
            low, high = min(low, ended), max(high, begins)
    if row[Column.EVENTS]:
        if cut and row[Column.DAMAGE] in {0, Damage.OUTSIDE}:
            low = row[Column.LAST]
        else:
            low, high = min(low, row[Column.FIRST]), max(high, row[Column.LAST])
    cpu = row[Column.CPU]
    if row[Column.DAMAGE] or row[Column.STREAM] < 0:
        # Its own may be what was damaged.
        cpu = int(cpus[0]) if len(cpus) == 1 else -1
    place = f"{file.name} at byte {row[Column.OFFSET] + where // 8}"
    reason = (
        f"truncated: {file.name} ends within the packet at byte {row[Column.OFFSET]}"
        if cut
        else f"damaged: {place}: {REASONS.get(row[Column.DAMAGE], 'unreadable')}"
    )
    return Loss(low, max(low, high), file.host, cpu, 0, 1, reason)


def _times(file: StreamFile, row: list[int], begin: int, end: int) -> tuple[int, int]:
    """Return when a packet says that it begins and ends, the recording's where it does not."""
    present = row[Column.PRESENT]
    if row[Column.STREAM] >= 0:
        if present >> Role.BEGIN & 1:
            begin = file.nanoseconds(row[Column.STREAM], row[Column.BEGIN] % (1 << 64))
        if has_end(np.array([row]))[0]:
            end = file.nanoseconds(row[Column.STREAM], row[Column.END] % (1 << 64))
    return begin, end


def _lost_packets(before: _Packet | None, after: _Packet, host: int) -> list[Loss]:
    if before is None or before.sequence is None or after.sequence is None:
        return []
    missing = (after.sequence - before.sequence - 1) % (1 << after.bits[1])
    # Numbers that go back belong to packets out of order, which is no loss.
    if missing == 0 or missing >= 1 << (after.bits[1] - 1):
        return []
    begin, end = before.time(before.end), after.time(after.begin)
    if end <= begin:
        # No time is left for those that are missing: one of the two says a wrong one.
        end = max(begin, after.time(after.end))
    return [Loss(begin, end, host, after.cpu, 0, missing, "packets lost")]


def _discarded(before: _Packet | None, after: _Packet, host: int) -> list[Loss]:
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
