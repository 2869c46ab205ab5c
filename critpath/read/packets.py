"""The table of packets that the decoder fills, and its columns by stream."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Final, Self

import numpy as np

from critpath.model import I64, Bool
from critpath.read.program import Role
from critpath.records import dataclass
from critpath.schema.environment import Environment


class PacketColumn(IntEnum):
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
    DAMAGE = 13  # 0, or a `Damage`
    WHERE = 14  # bit of the packet; -1 - bit if the file ends before the packet
    ROW = 15  # first row of the packet
    PRESENT = 16  # a bit per `Role` that the packet has, and per `PacketBit`


class PacketBit(IntEnum):
    """Bits of `Column.PRESENT` beyond those of the roles."""

    TURNED = 16  # time runs backwards within the packet
    UNWRITTEN = 17  # it has no end, and where its content should end nothing was written
    UNEVEN = 18  # it is not its content, rounded up to pages


class Damage(IntEnum):
    """What is wrong with a packet; 0 is nothing."""

    reason: str

    def __new__(cls, value: int, reason: str = "unreadable") -> Self:  # noqa: D102
        self = int.__new__(cls, value)
        self._value_ = value
        self.reason = reason
        return self

    OUTSIDE = 1, "a field goes beyond the packet's end"
    BAD_OPTION = 2, "a variant selects no option"
    BAD_UUID = 3, "the packet belongs to another trace (its UUID differs)"
    BAD_MAGIC = 4, "no packet begins here (wrong magic number)"
    BAD_STREAM = 5, "the metadata knows no such stream"
    BAD_SIZE = 6, "the packet's sizes contradict each other"
    BAD_EVENT = 7, "the metadata knows no such event"
    EMPTY_EVENT = 8, "an event of no bits would never end"
    BAD_SCHEMA = 9, "the metadata does not say what a field depends on"
    BAD_VARINT = 10, "an integer of more than 64 bits"
    IO_ERROR = 12, "the file cannot be read"
    TOO_MANY = 13, "more packets than any tracer writes"
    BEHIND = 14, "events go on behind the packet's content"


NEVER: Final = (1 << 63) - 1


@dataclass(frozen=True)
class StreamFile:
    """A decoded stream file.

    Attributes
    ----------
    name : str
        Below the recording, for messages.
    packets : int64 [packets, columns]
        See `PacketColumn`.
    nanoseconds : callable
        From a stream class's position and a raw clock value to a timestamp.
    times : callable
        The same for an array of raw clock values.
    wraps : tuple of (int, int)
        For each stream class, the bits of its counters of discarded events and of packets.
    host : int
    """

    name: str
    packets: I64
    nanoseconds: Callable[[int, int], int]
    times: Callable[[int, I64], I64]
    wraps: tuple[tuple[int, int], ...]
    host: int


@dataclass(frozen=True)
class Tracer:
    """Who wrote a trace, as far as that determines how its packets behave.

    Attributes
    ----------
    lttng : bool
    stops_together : bool
        On stop it writes all buffers, even those without events.
    clears : bool
        Nothing lies behind a packet's content: the kernel tracer gives its pages away and
        takes empty ones.  In snapshots and user space, older events lie there.
    by_cpu : bool
        It has a stream for every cpu that is used.
    """

    lttng: bool = False
    stops_together: bool = False
    clears: bool = False
    by_cpu: bool = False


# Directories that `lttng snapshot record` and `lttng rotate` name, the latter as well while
# a chunk is written.
_PART: Final = re.compile(r".*-\d{8}-\d{6}-\d+|\d{8}T\d{6}[+-]\d{4}-(\d{8}T\d{6}[+-]\d{4}-)?\d+")
_LEVELS: Final = 5  # down to ust/uid/0/64-bit


def identify_tracer(environment: Environment, directory: Path | None = None) -> Tracer:
    """Identify the tracer by the ``env`` of the trace and the directories it lies in.

    Snapshots and rotated chunks are written while events go on, one buffer after the other.
    """
    name = environment.tracer_name or ""
    lttng = name.startswith("lttng-")
    major, minor = environment.tracer_major or 0, environment.tracer_minor or 0
    version = (major, minor) if isinstance(major, int) and isinstance(minor, int) else (0, 0)
    parts = directory.parts[-_LEVELS:] if directory is not None else ()
    partial = any(_PART.fullmatch(part) for part in parts)
    kernel = name == "lttng-modules"
    by_cpu = lttng or name == "critpath-ftrace"
    return Tracer(
        lttng, lttng and version >= (2, 9) and not partial, kernel and not partial, by_cpu
    )


@dataclass(frozen=True)
class Packets:
    """The packets of one stream as columns, in the order of their begins.

    Attributes
    ----------
    table : int64 [packets, columns]
    begin, end : int64 [packets]
        As declared (ns); the last event where no end is declared.
    ended : bool [packets]
        Whether an end is declared.
    low, high : int64 [packets]
        Declared times widened to the packet's events.
    before, after : int64 [packets]
        Last event of the preceding packet in the same file and begin of the next, else
        the recording's.
    back : int64 [packets]
        Where a packet begins before its predecessor in the file: the least begin from
        there on, or what precedes both; `NEVER` elsewhere.
    files : tuple of str
    file : int64 [packets]
        Index into ``files``.
    host : int
    """

    table: I64
    begin: I64
    end: I64
    ended: Bool
    low: I64
    high: I64
    before: I64
    after: I64
    back: I64
    files: tuple[str, ...]
    file: I64
    host: int

    def name(self, row: int) -> str:
        """Return the file of a packet."""
        return self.files[int(self.file[row])]


def has_end(rows: I64) -> Bool:
    """Return which packets declare their end.

    LTTng writes 0 when it opens a packet and the end when it closes it; all ones are memory
    that was never written.
    """
    end = rows[:, PacketColumn.END]
    found: Bool = rows[:, PacketColumn.PRESENT] >> Role.END & 1 != 0
    found &= ((end != 0) | (rows[:, PacketColumn.BEGIN] == 0)) & (end != -1)
    return found


def join_packets(parts: Sequence[tuple[StreamFile, I64]], span: tuple[int, int]) -> Packets:
    """Join the packets of one stream from several files; ``span`` is the recording's (ns)."""
    several = [_file_columns(file, rows, span) for file, rows in parts]
    if len(several) == 1:
        (table, low, high, ended, before, unsure, follows, back), (_, rows) = several[0], parts[0]
        number = np.zeros(len(rows), np.int64)
    else:
        table, low, high, ended, before, unsure, follows, back = (
            np.concatenate(of) for of in zip(*several, strict=True)
        )
        number = np.repeat(np.arange(len(parts)), [len(rows) for _, rows in parts])
    if (low[1:] < low[:-1]).any():
        order = np.argsort(low, kind="stable")
        ended, unsure = ended[order], unsure[order]
        table, low, high, before, follows, back, number = (
            of[order] for of in (table, low, high, before, follows, back, number)
        )
    some = table[:, PacketColumn.EVENTS] > 0
    # After a packet out of order it is unknown when the next one should begin.
    lost = unsure | (follows < before)
    first = np.where(some, np.minimum(low, table[:, PacketColumn.FIRST]), low)
    final = np.where(some, np.maximum(high, table[:, PacketColumn.LAST]), np.maximum(low, high))
    return Packets(
        table,
        low,
        high,
        ended,
        np.minimum(first, high),
        final,
        before,
        np.where(lost, np.maximum(follows, span[1]), follows),
        back,
        tuple(file.name for file, _ in parts),
        number,
        parts[0][0].host,
    )


def _file_columns(
    file: StreamFile, rows: I64, span: tuple[int, int]
) -> tuple[I64, I64, I64, Bool, I64, Bool, I64, I64]:
    """Return the columns of one file's packets, in the order of the file.

    These are the table, begins, ends, whether an end is declared, the predecessor's last
    event, whether the predecessor had events beyond its end, the successor's begin, and
    `Packets.back`.
    """
    stream = int(rows[0, PacketColumn.STREAM]) if len(rows) else 0
    low = file.times(stream, rows[:, PacketColumn.BEGIN])
    ended = has_end(rows)
    some, last = rows[:, PacketColumn.EVENTS] > 0, rows[:, PacketColumn.LAST]
    high = np.where(some, np.maximum(low, last), low)
    if ended.all():
        high = file.times(stream, rows[:, PacketColumn.END])
    elif ended.any():
        high[ended] = file.times(stream, rows[ended, PacketColumn.END])
    before = np.empty_like(low)
    before[:1], before[1:] = span[0], np.where(some, np.minimum(high, last), high)[:-1]
    unsure = np.zeros(len(rows), bool)
    unsure[1:] = (some & (last > high))[:-1]
    follows = np.empty_like(low)
    follows[-1:], follows[:-1] = span[1], low[1:]
    back = np.full(len(rows), NEVER)
    turned = low[1:] < low[:-1]
    if turned.any():
        least = np.minimum.accumulate(low[::-1])[::-1]
        # The predecessor may be the wrong one: then this one continues from before it.
        back[1:][turned] = np.minimum(least[1:], before[:-1])[turned]
    return rows, low, high, ended, before, unsure, follows, back
