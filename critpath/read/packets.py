"""What the packets of a trace say about what is missing from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum

import numpy as np

from critpath.model import I64, Loss
from critpath.read.records import Record
from critpath.read.steps import Role
from critpath.units import plural


class Column(IntEnum):
    """Columns of the decoder's table of packets."""

    OFFSET = 0  # bytes from the begin of the file
    SIZE = 1  # bytes, within the file
    CONTENT = 2  # bits
    BEGIN = 3  # raw clock values
    END = 4
    SEQUENCE = 5
    DISCARDED = 6
    CPU = 7
    STREAM = 8  # position of the stream class, -1 if unknown
    INSTANCE = 9
    EVENTS = 10  # of any class, decoded whole
    FIRST = 11  # least timestamp (ns), the greatest int64 without events
    LAST = 12
    DAMAGE = 13  # 0, or what was wrong
    WHERE = 14  # bit of the packet; -1 - bit if the file ends before the packet
    ROW = 15  # first row of the packet
    PRESENT = 16  # a bit per `Role` that the packet has


DAMAGE = {
    1: "a field goes beyond the packet's end",
    2: "a variant selects no option",
    3: "the packet belongs to another trace (its UUID differs)",
    4: "no packet begins here (wrong magic number)",
    5: "the metadata knows no such stream",
    6: "the packet's sizes contradict each other",
    7: "the metadata knows no such event",
    8: "an event of no bits would never end",
    9: "the metadata does not say what a field depends on",
    10: "an integer of more than 64 bits",
    12: "the file cannot be read",
    13: "more packets than any tracer writes",
}


_MOST_DAMAGES = 100  # of one file, each with its place


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
    wraps : tuple of (int, int)
        For each stream class, the bits of its counters of discarded events and of
        packets.
    host : int
    """

    name: str
    packets: I64
    nanoseconds: Callable[[int, int], int]
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


def losses(files: Sequence[StreamFile], begin: int, end: int) -> tuple[list[Loss], list[str]]:
    """Return everything a trace's packets say is missing, and warnings.

    Counters of discarded events are compared from one packet to the next of the same
    stream, as babeltrace2 does: the events were lost between the two packets' ends.

    Parameters
    ----------
    files : sequence of StreamFile
        Of one trace.
    begin, end : int
        Range of the recording, for what cannot be placed (ns).
    """
    if not files:
        return [], []
    found: list[Loss] = []
    streams: dict[tuple[int, int, int], list[tuple[StreamFile, I64]]] = {}
    for number, file in enumerate(files):
        table = file.packets
        odd = table[(table[:, Column.DAMAGE] != 0) | (table[:, Column.WHERE] < 0)]
        found += _gathered([_damage(file, row, begin, end) for row in odd.tolist()], file)
        for key, rows in _by_stream(table, number):
            streams.setdefault(key, []).append((file, rows))
    overlapping = 0
    for parts in streams.values():
        if _complete(parts):
            continue
        packets = [_packet(file, row) for file, rows in parts for row in rows.tolist()]
        packets.sort(key=lambda p: p.begin)
        before: _Packet | None = None
        for after in packets:
            found += _lost_packets(before, after, files[0].host)
            found += _discarded(before, after, files[0].host)
            overlapping += before is not None and after.begin < before.end
            before = after
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
    table = table[(table[:, Column.STREAM] >= 0) & (present >> Role.BEGIN & 1 != 0)]
    # Without an instance id every file is a stream of its own.
    named = table[:, Column.PRESENT] >> Role.INSTANCE & 1
    instance = np.where(named != 0, table[:, Column.INSTANCE], number)
    keys = np.column_stack((table[:, Column.STREAM], instance, named))
    if len(table) and (keys == keys[0]).all():  # nearly always; what follows is slow
        stream, of, name = keys[0].tolist()
        yield (stream, of, name), table
        return
    rows: dict[tuple[int, int, int], list[int]] = {}
    for row, (stream, of, name) in enumerate(keys.tolist()):
        rows.setdefault((stream, of, name), []).append(row)
    for key, found in rows.items():
        yield key, table[found]


def _complete(parts: Sequence[tuple[StreamFile, I64]]) -> bool:
    """Return whether nothing is missing from a stream's packets: then none is looked at.

    Only where all of them tell all that a loss is known by.
    """
    wanted = 1 << Role.END | 1 << Role.SEQUENCE | 1 << Role.DISCARDED
    table = np.concatenate([rows for _, rows in parts])
    if (table[:, Column.PRESENT] & wanted != wanted).any():
        return False
    events, packets = parts[0][0].wraps[table[0, Column.STREAM]]
    told = table.view(np.uint64)
    told = told[np.argsort(told[:, Column.BEGIN], kind="stable")]
    lost = np.diff(told[:, Column.SEQUENCE]) - np.uint64(1)
    discarded = told[:, Column.DISCARDED] & np.uint64((1 << events) - 1)
    return not (
        (lost & np.uint64((1 << packets) - 1)).any()
        or discarded.any()
        or (told[1:, Column.BEGIN] < told[:-1, Column.END]).any()
    )


def _packet(file: StreamFile, row: list[int]) -> _Packet:
    """Return what one row of the table tells."""
    present = row[Column.PRESENT]
    bits = file.wraps[row[Column.STREAM]]
    return _Packet(
        row[Column.STREAM],
        row[Column.BEGIN] % (1 << 64),
        row[Column.END if present >> Role.END & 1 else Column.BEGIN] % (1 << 64),
        row[Column.SEQUENCE] % (1 << bits[1]) if present >> Role.SEQUENCE & 1 else None,
        row[Column.DISCARDED] % (1 << bits[0]) if present >> Role.DISCARDED & 1 else None,
        row[Column.CPU],
        bits,
        file.nanoseconds,
    )


def _damage(file: StreamFile, row: list[int], begin: int, end: int) -> Loss:
    """Return the loss of a packet's rest."""
    cut, where = row[Column.WHERE] < 0, row[Column.WHERE]
    if cut:
        where = -1 - where
    present = row[Column.PRESENT]
    if row[Column.STREAM] >= 0:
        if present >> Role.BEGIN & 1:
            begin = file.nanoseconds(row[Column.STREAM], row[Column.BEGIN] % (1 << 64))
        if present >> Role.END & 1:
            end = file.nanoseconds(row[Column.STREAM], row[Column.END] % (1 << 64))
    if row[Column.EVENTS]:
        begin = row[Column.LAST]
    place = f"{file.name} at byte {row[Column.OFFSET] + where // 8}"
    reason = (
        f"truncated: {file.name} ends within the packet at byte {row[Column.OFFSET]}"
        if cut
        else f"damaged: {place}: {DAMAGE.get(row[Column.DAMAGE], 'unreadable')}"
    )
    return Loss(begin, max(begin, end), file.host, row[Column.CPU], 0, 1, reason)


def _gathered(damages: list[Loss], file: StreamFile) -> list[Loss]:
    """Return the first damages of a file one by one, and the others as one."""
    rest = damages[_MOST_DAMAGES:]
    if not rest:
        return damages
    begin, end = min(x.begin for x in rest), max(x.end for x in rest)
    reason = f"damaged: {file.name}: and {plural(len(rest), 'packet')} more"
    together = Loss(begin, end, file.host, rest[0].cpu, 0, len(rest), reason)
    return [*damages[:_MOST_DAMAGES], together]


def _lost_packets(before: _Packet | None, after: _Packet, host: int) -> list[Loss]:
    if before is None or before.sequence is None or after.sequence is None:
        return []
    missing = (after.sequence - before.sequence - 1) % (1 << after.bits[1])
    # Numbers that go back belong to packets out of order, which is no loss.
    if missing == 0 or missing >= 1 << (after.bits[1] - 1):
        return []
    begin, end = before.time(before.end), after.time(after.begin)
    return [Loss(begin, max(begin, end), host, after.cpu, 0, missing, "packets lost")]


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
