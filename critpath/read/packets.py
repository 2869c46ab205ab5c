"""What the packets of a trace say about what is missing from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

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
    streams: dict[tuple[int, int, int], list[_Packet]] = {}
    for number, file in enumerate(files):
        damages: list[Loss] = []
        for row in file.packets.tolist():
            if row[Column.DAMAGE] or row[Column.WHERE] < 0:
                damages.append(_damage(file, row, begin, end))
            packet = _packet(file, row)
            if packet is not None:
                # Without an instance id every file is a stream of its own.
                named = row[Column.PRESENT] >> Role.INSTANCE & 1
                key = (row[Column.STREAM], row[Column.INSTANCE] if named else number, named)
                streams.setdefault(key, []).append(packet)
        found += _gathered(damages, file)
    overlapping = 0
    for packets in streams.values():
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


def _packet(file: StreamFile, row: list[int]) -> _Packet | None:
    """Return a packet whose header could be read."""
    present = row[Column.PRESENT]
    if row[Column.STREAM] < 0 or not present >> Role.BEGIN & 1:
        return None
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
