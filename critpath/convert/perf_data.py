"""Reads ``perf.data``: tracepoints that perf recorded, as a file or from a pipe.

tools/perf/Documentation/perf.data-file-format.txt of Linux describes it, and
include/uapi/linux/perf_event.h what the kernel writes; `_perf_data.pyx` goes through the samples.
"""

from __future__ import annotations

import io
import struct
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from functools import partial
from typing import IO, Final, NamedTuple

from critpath.convert._perf_data import PerfRecords
from critpath.convert.foreign import open_foreign
from critpath.convert.raw_writer import MOST_CPUS, RawWriter
from critpath.errors import UnreadableError
from critpath.extras import require
from critpath.schema.ways import RECORD_NEXT
from critpath.units import plural

ORDERS: Final = {b"PERFILE2": "<", b"2ELIFREP": ">"}  # how a file begins, and its byte order
_PIPE_HEAD: Final = 16  # bytes of the header of what went through a pipe
_HEAD: Final = 104
_BITS: Final = 256  # of features, of which each has a section
_BLOCK: Final = 1 << 20  # bytes that are read at once
_LONGEST_RECORD: Final = 1 << 16
_LARGEST_SECTION: Final = 256 << 20  # bytes: descriptions of all events of a kernel are 4 MB
_MOST_ATTRIBUTES: Final = 1 << 16
_MOST_IDS: Final = 1 << 22
_MOST_EXPANDED: Final = 2000  # times as large as it was compressed; real traces are 5 to 30 times
_LATEST: Final = 1 << 62  # ns
_DIGITS: Final = 6  # of the number of a file
_TRACEPOINT: Final = 2  # perf_event_attr.type
_ANY: Final = 0xFFFF_FFFF  # a thread or cpu that is none in particular

HOW: Final = f"record with: {RECORD_NEXT['perf.data']}"


class RecordKind(IntEnum):
    """The records that `_perf_data.pyx` hands on; its `is_handed_on` lists them."""

    LOST = 2
    COMM = 3
    THROTTLE = 5
    FORK = 7
    SAMPLE = 9  # the first, before which layouts are set
    LOST_SAMPLES = 13
    HEADER_ATTR = 64
    TRACING_DATA = 66
    ID_INDEX = 69
    AUXTRACE = 71
    THREAD_MAP = 73
    HEADER_FEATURE = 80
    COMPRESSED = 81
    COMPRESSED2 = 83


# Those that a reader may know, and of which the others say nothing about tracepoints: Linux 6.18.
_SKIPPED: Final = frozenset((*range(1, 23), *range(64, 85)))


class Feature(IntEnum):
    """Sections of the header that are read."""

    TRACING_DATA = 1
    HOSTNAME = 3
    OSRELEASE = 4
    VERSION = 5
    ARCH = 6
    NRCPUS = 7
    DIR_FORMAT = 24
    CLOCK_DATA = 29


class Sampled(IntFlag):
    """Bits of ``sample_type``, of what may stand before a sample's raw data."""

    IP = 1 << 0
    TID = 1 << 1
    TIME = 1 << 2
    ADDR = 1 << 3
    READ = 1 << 4
    CALLCHAIN = 1 << 5
    ID = 1 << 6
    CPU = 1 << 7
    PERIOD = 1 << 8
    STREAM_ID = 1 << 9
    RAW = 1 << 10
    IDENTIFIER = 1 << 16


_NEEDED: Final = Sampled.TIME | Sampled.CPU | Sampled.RAW
_NEEDED_NAMES: Final = {
    Sampled.TIME: "time",
    Sampled.CPU: "cpu",
    Sampled.RAW: "fields (PERF_SAMPLE_RAW)",
}
# In the order in which a sample has them, 8 bytes each; and the end of every other record.
_IN_SAMPLE: Final = (
    *(Sampled.IDENTIFIER, Sampled.IP, Sampled.TID, Sampled.TIME, Sampled.ADDR, Sampled.ID),
    *(Sampled.STREAM_ID, Sampled.CPU, Sampled.PERIOD),
)
_AT_END: Final = (
    *(Sampled.TID, Sampled.TIME, Sampled.ID, Sampled.STREAM_ID, Sampled.CPU, Sampled.IDENTIFIER),
)
_RECORD: Final = 8  # bytes of a record's header

# Bits of perf_event_attr, counted from the first that C declares.
_ENABLE_ON_EXEC: Final = 12
_SAMPLE_ID_ALL: Final = 18
_USE_CLOCKID: Final = 25
_CLOCKS: Final = {0: "realtime", 1: "mono", 4: "mono_raw", 7: "boot", 11: "tai"}
_FILTERED: Final = 1 << 15  # LOST_SAMPLES: a filter left them out, as the user wished


class PerfAttribute(NamedTuple):
    """What the file says of one event: the kernel's ``perf_event_attr``, and its ids."""

    type: int
    config: int
    sampled: int
    read_format: int
    flags: int
    clock: int
    ids: tuple[int, ...]

    def has(self, bit: int) -> bool:
        """Return whether one of its flags is set."""
        return bool(self.flags >> bit & 1)


class _EndOfRecord(NamedTuple):
    """What stands at the end of records that are no samples."""

    time: int = 0
    id: int = 0
    cpu: int = _ANY


class _Blocks:
    """Bytes that are read a block at a time, of which records are taken.

    Attributes
    ----------
    data : memoryview
        What is there; `at` is where it goes on.
    gone : int
        Bytes before `data`.
    """

    def __init__(self, read: Callable[[memoryview], int], gone: int = 0) -> None:
        self._read, self.gone, self.at = read, gone, 0
        self._buffer = memoryview(bytearray(_BLOCK + _LONGEST_RECORD))
        self.data = self._buffer[:0]

    def fill(self) -> bool:
        """Keep what is left, less than a record, and read on; return whether there was more."""
        left = len(self.data) - self.at
        self.gone += self.at
        self._buffer[:left] = self.data[self.at :]
        count = self._read(self._buffer[left:])
        self.data, self.at = self._buffer[: left + count], 0
        return count > 0

    def take(self, size: int) -> bytes:
        """Return so many bytes and go behind them; fewer at the end."""
        parts = []
        while size > 0:
            part = bytes(self.data[self.at : self.at + size])
            parts.append(part)
            self.at += len(part)
            size -= len(part)
            if size and not self.fill():
                break
        return b"".join(parts)

    def skip(self, size: int) -> None:
        """Go so many bytes further."""
        while size > 0:
            step = min(size, len(self.data) - self.at)
            self.at += step
            size -= step
            if size and not self.fill():
                return


def write_raw(stream: IO[bytes], writer: RawWriter) -> None:
    """Write what a perf.data holds as a raw directory."""
    _Reading(stream, writer).go()


def _read_into(stream: IO[bytes], to: memoryview) -> int:
    return stream.readinto(to) or 0  # type: ignore[attr-defined]


@dataclass
class _Header:
    """What a file says of its records: at its begin and end, or in records of its own."""

    stream: IO[bytes]
    writer: RawWriter
    order: str
    attributes: list[PerfAttribute] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)  # by clock
    divided: bool = False  # records are in further files
    traced: bool = False  # descriptions of events were there

    def unpack(self, form: str, data: bytes | memoryview, at: int = 0) -> tuple[int, ...]:
        try:
            return struct.unpack_from(self.order + form, data, at)
        except struct.error:
            raise self.writer.broken("is cut off within its header") from None

    def read(self, head: bytes) -> _Blocks:
        """Read what stands around the records, and return these."""
        total = self.stream.seek(0, io.SEEK_END)
        size, of_attribute, attributes, attributes_size, data, data_size = self.unpack(
            "6Q", head, 8
        )
        if not size <= data <= total:
            raise self.writer.broken("has its records beyond its end")
        self._read_attributes(attributes, attributes_size, of_attribute)
        bits = int.from_bytes(head[72:104], "little")
        if self.order == ">":
            # An array of 64-bit words.
            words = struct.unpack(">4Q", head[72:104].ljust(32, b"\0"))
            bits = sum(word << 64 * number for number, word in enumerate(words))
        if data_size == 0 or bits == 0:
            raise UnreadableError(
                f"{self.writer.file}: perf record did not get to its end, where it describes its"
                " events",
                "end perf record by Ctrl-C (SIGINT), not by SIGKILL, and record again",
            )
        places = [bit for bit in range(_BITS) if bits >> bit & 1]
        table = self._read_section(data + data_size, 16 * len(places))
        for number, bit in enumerate(places):
            if bit in set(Feature):
                offset, length = self.unpack("2Q", table, 16 * number)
                self.read_feature(bit, self._read_section(offset, length))
        self.stream.seek(data)
        left = min(data_size, total - data)

        def read(to: memoryview) -> int:
            nonlocal left
            count = _read_into(self.stream, to[:left])
            left -= count
            return count

        return _Blocks(read, data)

    def _read_section(self, offset: int, size: int) -> bytes:
        if size > _LARGEST_SECTION or offset > _LATEST:
            raise self.writer.broken("has a part of its header that is too large")
        self.stream.seek(offset)
        found = self.stream.read(size)
        if len(found) < size:
            raise self.writer.broken("is cut off: it does not describe its events")
        return found

    def _read_attributes(self, offset: int, size: int, each: int) -> None:
        if each < 80 or size // each > _MOST_ATTRIBUTES:
            raise self.writer.broken("has a list of events that is none")
        table = self._read_section(offset, size)
        ids = 0
        for at in range(0, size - each + 1, each):
            place, length = self.unpack("2Q", table, at + each - 16)
            ids += length // 8
            if ids > _MOST_IDS:
                raise self.writer.broken("has too many events")
            found = self._read_section(place, length)
            self.add_attribute(table[at : at + each - 16], found)

    def add_attribute(self, data: bytes, ids: bytes) -> None:
        """Add an event by its ``perf_event_attr``; one that is shorter ends with zeros."""
        if len(self.attributes) >= _MOST_ATTRIBUTES:
            raise self.writer.broken("has too many events")
        data = data.ljust(96, b"\0")
        kind, _, config, _, sampled, read_format, flags = self.unpack("IIQQQQQ", data)
        if self.order == ">":
            # C allocates bit-fields from the other end there.
            flags = int(f"{flags:064b}"[::-1], 2)
        (clock,) = self.unpack("i", data, 92)
        numbers = self.unpack(f"{len(ids) // 8}Q", ids)
        self.attributes.append(
            PerfAttribute(kind, config, sampled, read_format, flags, clock, numbers)
        )

    def read_feature(self, feature: int, data: bytes) -> None:
        host = self.writer.host
        if feature == Feature.TRACING_DATA:
            self.read_formats(data)
        elif feature == Feature.DIR_FORMAT:
            self.divided = True
        elif feature == Feature.NRCPUS and len(data) >= 8:
            # Those that are there, and those that run; older files have them the other way.
            found = [n for n in self.unpack("2I", data) if 0 < n <= MOST_CPUS]
            if found:
                host["cpus"] = min(found)
        elif feature == Feature.CLOCK_DATA and len(data) >= 24:
            _, clock, wall, of_clock = self.unpack("IIQQ", data)
            if max(wall, of_clock) < _LATEST:
                self.epochs[clock] = wall - of_clock
        elif feature in {Feature.HOSTNAME, Feature.OSRELEASE, Feature.ARCH, Feature.VERSION}:
            (size,) = self.unpack("I", data)
            text = data[4 : 4 + size].partition(b"\0")[0].decode("utf-8", "replace")[:100]
            if feature == Feature.VERSION:
                self.writer.tool["version"] = text
            else:
                name = {Feature.HOSTNAME: "name", Feature.OSRELEASE: "kernel"}.get(
                    Feature(feature), "machine"
                )
                host[name] = text

    # The kernel's descriptions of events

    def read_formats(self, data: bytes) -> None:
        """Take the descriptions of events out of what perf keeps of tracefs."""
        at = 10
        if data[:at] != b"\x17\x08\x44tracing":
            raise self.writer.broken("does not describe its events as perf does")
        at = data.find(b"\0", at, at + 20) + 1  # behind the version
        big, _, _ = struct.unpack_from("<BBI", data.ljust(at + 6, b"\0"), at)
        at += 6
        if at < 17 or bool(big) != self.writer.big_endian:
            raise self.writer.broken("describes its events in another byte order")

        def take(form: str) -> int:
            nonlocal at
            (found,) = self.unpack(form, data, at)
            at += struct.calcsize(form)
            return found

        def text(size: int) -> str:
            nonlocal at
            found = data[at : at + size]
            if len(found) < size:
                raise self.writer.broken("is cut off within the descriptions of its events")
            at += size
            return found.decode("utf-8", "replace")

        for name in (b"header_page\0", b"header_event\0"):
            if data[at : at + len(name)] != name:
                raise self.writer.broken("does not describe its events as perf does")
            at += len(name)
            text(take("Q"))
        for _ in range(min(take("I"), len(data) // 8)):
            self.writer.add_format("ftrace", text(take("Q")))
        for _ in range(min(take("I"), len(data) // 5)):
            end = data.find(b"\0", at)
            if end < 0:
                raise self.writer.broken("is cut off within the descriptions of its events")
            group, at = data[at:end].decode("utf-8", "replace"), end + 1
            for _ in range(min(take("I"), len(data) // 8)):
                self.writer.add_format(group, text(take("Q")))
        self.traced = True

    def find_tracepoints(self) -> tuple[list[PerfAttribute], list[PerfAttribute]]:
        """Return all tracepoints, and those whose samples have all that is needed."""
        events = [of for of in self.attributes if of.type == _TRACEPOINT]
        if not events:
            what = "has no tracepoints, only samples of what ran"
            raise self.refuse(what if self.attributes else "has no events")
        taken = [of for of in events if of.sampled & _NEEDED == _NEEDED]
        if not taken:
            lacking = " and ".join(
                name
                for bit, name in _NEEDED_NAMES.items()
                if not all(of.sampled & bit for of in events)
            )
            raise self.refuse(f"its tracepoints were recorded without their {lacking}")
        return events, taken

    def find_id(self) -> int:
        """Return where every sample has its event's id; -1 where samples need none."""
        forms = {of.sampled for of in self.attributes}
        if all(form & Sampled.IDENTIFIER for form in forms):
            return _RECORD
        if len(forms) == 1 and (form := forms.pop()) & Sampled.ID:
            return _place_of(form, Sampled.ID)
        if len(self.attributes) == 1 or not forms:
            return -1
        raise self.refuse("its samples do not tell which event they are of")

    def refuse(self, what: str) -> UnreadableError:
        """Return the error of a file that has not what is needed."""
        return UnreadableError(f"{self.writer.file}: {what}", HOW)


@dataclass
class _Reading:
    """One file as it is read."""

    stream: IO[bytes]
    writer: RawWriter
    cpus: dict[int, int] = field(default_factory=dict)  # by id of an event on that cpu
    alone: bool = False  # only some processes were recorded
    by_id: dict[int, PerfAttribute] = field(default_factory=dict)
    lost: dict[int, int] = field(default_factory=dict)  # by cpu, as it was noted when it happened
    lost_by_id: dict[int, int] = field(default_factory=dict)  # in all, by id
    forked: set[int] = field(default_factory=set)
    auxiliary: int = 0  # bytes
    throttled: int = 0

    def go(self) -> None:
        """Read it all."""
        head = self.stream.read(_HEAD)
        order = ORDERS.get(head[:8])
        if order is None:
            raise UnreadableError(
                f"{self.writer.file}: perf before Linux 2.6.38 wrote it", "record with a later perf"
            )
        self.header = _Header(self.stream, self.writer, order)
        self.writer.big_endian = order == ">"
        self.writer.clock, self.writer.tool = "perf", {"name": "perf"}
        self.records = PerfRecords(str(self.writer.directory), big_endian=order == ">")
        (size,) = self.header.unpack("Q", head, 8)
        if size == _PIPE_HEAD:
            self.stream.seek(_PIPE_HEAD)
            self._go_through(_Blocks(partial(_read_into, self.stream), _PIPE_HEAD))
        else:
            self._go_through(self.header.read(head))
            if self.header.divided:
                self._go_through_parts()
        self._finish()

    def _go_through_parts(self) -> None:
        """Take the records that ``perf record --threads`` wrote to files beside the header's."""
        file = self.writer.file
        place = file if file.is_dir() else file.parent
        numbers = (of.name.removeprefix("data.") for of in place.glob("data.*"))
        for number in sorted(int(of) for of in numbers if of.isdecimal() and len(of) < _DIGITS):
            with open_foreign(place / f"data.{number}") as stream:
                # Each has rounds of its own.
                self._go_through(_Blocks(partial(_read_into, stream)), rounds=False)

    # The records

    def _go_through(self, blocks: _Blocks, *, rounds: bool = True) -> None:
        """Take all records of a file, or of what was compressed in it."""
        while True:
            blocks.at, kind = self.records.run(blocks.data, blocks.at, rounds=rounds, whole=False)
            if kind == 0:
                if blocks.fill():
                    continue
                if blocks.at < len(blocks.data):
                    self._note_damage("ends within a record")
                return
            if kind < 0:
                place = blocks.gone + blocks.at
                self._note_damage(f"is damaged at byte {place:,}: what follows is missing")
                return
            if kind == RecordKind.SAMPLE:
                self._set_up()
                continue
            _, misc, size = self.header.unpack("IHH", blocks.data, blocks.at)
            record = bytes(blocks.data[blocks.at + _RECORD : blocks.at + size])
            blocks.at += size
            if kind in {RecordKind.COMPRESSED, RecordKind.COMPRESSED2}:
                self._go_through_compressed(blocks, kind, record)
                return
            self._handle(kind, misc, record, blocks)

    def _handle(self, kind: int, misc: int, record: bytes, blocks: _Blocks) -> None:
        """Handle a record that is no sample."""
        if kind == RecordKind.HEADER_ATTR:
            (size,) = self.header.unpack("I", record, 4)
            size = min(size or 64, len(record))
            self.header.add_attribute(
                record[:size], record[size : size + (len(record) - size) // 8 * 8]
            )
            self.records.wait_for_layouts()
        elif kind == RecordKind.TRACING_DATA:
            (size,) = self.header.unpack("I", record)
            if size > _LARGEST_SECTION:
                raise self.writer.broken("has a part of its header that is too large")
            self.header.read_formats(blocks.take(size))
            blocks.skip(-size % 8)
        elif kind == RecordKind.HEADER_FEATURE:
            (feature,) = self.header.unpack("Q", record)
            if feature in set(Feature):
                self.header.read_feature(feature, record[8:])
        elif kind == RecordKind.AUXTRACE:
            (size,) = self.header.unpack("Q", record)
            self.auxiliary += size
            blocks.skip(size)
        elif kind == RecordKind.ID_INDEX:
            self._read_index(record)
        elif kind == RecordKind.THREAD_MAP:
            (count,) = self.header.unpack("Q", record)
            if count and len(record) >= 16:
                self.alone |= 0 < self.header.unpack("Q", record, 8)[0] < _ANY
        elif kind in {RecordKind.COMM, RecordKind.FORK}:
            self._note_thread(kind, record)
        elif kind in {RecordKind.LOST, RecordKind.LOST_SAMPLES, RecordKind.THROTTLE}:
            self._note_loss(kind, misc, record)

    def _read_index(self, record: bytes) -> None:
        """Note the cpu of each id, and whether it is of one thread."""
        (count,) = self.header.unpack("Q", record)
        body = record[8 : 8 + 32 * min(count, len(record) // 32)]
        for number, _, cpu, tid in struct.iter_unpack(
            f"{self.header.order}4Q", body[: len(body) // 32 * 32]
        ):
            if cpu < MOST_CPUS and len(self.cpus) < _MOST_IDS:
                self.cpus[number] = cpu
            self.alone |= 0 < tid < _ANY

    def _end_of(self, record: bytes) -> _EndOfRecord:
        """Return what an event puts behind its records that are no samples."""
        found = dict.fromkeys(("time", "id", "cpu"), 0)
        of = self._attribute_of_end(record)
        if of is None:
            return _EndOfRecord()
        at, found["cpu"] = len(record), _ANY
        for bit in reversed(_AT_END):
            if not of.sampled & bit:
                continue
            at -= 8
            if at < 0:
                return _EndOfRecord()
            if bit == Sampled.CPU:
                (found["cpu"],) = self.header.unpack("I", record, at)
            elif bit == Sampled.TIME:
                (found["time"],) = self.header.unpack("Q", record, at)
            elif bit in {Sampled.ID, Sampled.IDENTIFIER} and not found["id"]:
                (found["id"],) = self.header.unpack("Q", record, at)
        return _EndOfRecord(**found)

    def _attribute_of_end(self, record: bytes) -> PerfAttribute | None:
        if not self.header.attributes:
            return None
        of = self.header.attributes[0]
        if of.sampled & Sampled.IDENTIFIER and len(record) >= 8:
            (number,) = self.header.unpack("Q", record, len(record) - 8)
            of = self.by_id.get(number, of)
        return of if of.has(_SAMPLE_ID_ALL) else None

    def _note_thread(self, kind: int, record: bytes) -> None:
        """Take a thread that was there at the begin; one that was made since is no such."""
        early = self._end_of(record).time == 0 and self.records.samples == 0
        if kind == RecordKind.FORK:
            pid, _, tid = self.header.unpack("3I", record.ljust(12, b"\0"))
            if not early:
                self.forked.add(tid)
                self.writer.add_started(tid, pid)
            return
        pid, tid = self.header.unpack("2I", record)
        if early:
            comm = record[8:24].partition(b"\0")[0].decode("utf-8", "replace")
            self.writer.add_thread(tid, pid, comm[:15])

    def _note_loss(self, kind: int, misc: int, record: bytes) -> None:
        end = self._end_of(record)
        if kind == RecordKind.THROTTLE:
            self.throttled += 1
            if end.cpu < MOST_CPUS and self._is_tracepoint(end.id):
                self.records.lose(end.cpu, min(end.time, _LATEST), 0)
            return
        if kind == RecordKind.LOST_SAMPLES and misc & _FILTERED:
            return
        number, count = self.header.unpack("2Q", record) if kind == RecordKind.LOST else (0, 0)
        if kind == RecordKind.LOST_SAMPLES:
            (count,) = self.header.unpack("Q", record)
            number = end.id
        if not 0 < count < _LATEST:
            return
        if kind == RecordKind.LOST_SAMPLES and end.time == 0:
            # perf read the kernel's count of an event at the end.
            self.lost_by_id[number] = self.lost_by_id.get(number, 0) + count
            return
        cpu = end.cpu if end.cpu < MOST_CPUS else self.cpus.get(number, 0)
        self.lost[cpu] = self.lost.get(cpu, 0) + count
        self.records.lose(cpu, min(end.time or self.records.latest, _LATEST), count)

    def _is_tracepoint(self, number: int) -> bool:
        of = self.by_id.get(number)
        return of is not None and of.type == _TRACEPOINT

    def _note_damage(self, what: str) -> None:
        """Say that something is missing from here on, of every cpu that had events."""
        self.writer.warn(f"{self.writer.file.name} {what}")
        for cpu in set(self.cpus.values()) or {0}:
            self.records.lose(cpu, self.records.latest, 0)

    # What is compressed

    def _go_through_compressed(self, blocks: _Blocks, kind: int, record: bytes) -> None:
        """Take the records that are compressed in this one and all that follow it: one stream."""
        require("a compressed perf.data (perf record -z)", "parquet")
        from pyarrow import ArrowException, CompressedInputStream, PythonFile  # noqa: PLC0415 - slow

        packed = _Compressed(self._find_compressed(blocks, kind, record))
        opened = CompressedInputStream(PythonFile(packed, mode="r"), "zstd")
        size = 0

        def read(to: memoryview) -> int:
            nonlocal size
            # Little at once: of what is damaged the last of these is missing.
            found: bytes = opened.read(1 << 12)
            size += len(found)
            if size > _MOST_EXPANDED * packed.size + _BLOCK:
                raise self.writer.broken("is compressed as no trace is")
            to[: len(found)] = found
            return len(found)

        try:
            self._go_through(_Blocks(read), rounds=False)
        except (ArrowException, OSError) as error:
            if packed.failed is None:
                if isinstance(error, OSError) and error.errno:
                    raise
                self._note_damage("cannot be decompressed to its end: what follows is missing")
        if packed.failed is not None:
            raise packed.failed

    def _find_compressed(self, blocks: _Blocks, kind: int, record: bytes) -> Iterator[bytes]:
        """Yield what is compressed; take the records in between."""
        while True:
            if kind == RecordKind.COMPRESSED2:
                (size,) = self.header.unpack("Q", record)
                record = record[8 : 8 + size]
            yield record
            while True:
                blocks.at, kind = self.records.run(
                    blocks.data, blocks.at, rounds=False, whole=False
                )
                if kind == 0 and blocks.fill():
                    continue
                if kind <= 0:
                    if blocks.at < len(blocks.data):
                        self._note_damage("ends within a record")
                    return
                if kind == RecordKind.SAMPLE:
                    self._set_up()
                    continue
                _, misc, size = self.header.unpack("IHH", blocks.data, blocks.at)
                record = bytes(blocks.data[blocks.at + _RECORD : blocks.at + size])
                blocks.at += size
                if kind in {RecordKind.COMPRESSED, RecordKind.COMPRESSED2}:
                    break
                self._handle(kind, misc, record, blocks)

    # Beginning and end

    def _set_up(self) -> None:
        """Say what the samples of each event look like."""
        events, taken = self.header.find_tracepoints()
        if len(taken) < len(events):
            self.writer.warn(
                f"{plural(len(events) - len(taken), 'tracepoint')} recorded without time, cpu or"
                " fields left out"
            )
        self.by_id = {number: of for of in self.header.attributes for number in of.ids}
        place = self.header.find_id()
        layouts = [word for of in self.header.attributes for word in _lay_out(of)]
        ids = array("Q")
        for number, of in enumerate(self.header.attributes):
            for one in of.ids:
                ids.extend((one, number))
        if place < 0 and self.header.attributes[0] not in taken:
            # One layout serves all, that of what is taken.
            layouts = list(_lay_out(taken[0]))
            ids = array("Q")
        self.records.set_layouts(layouts, ids, place)
        self.alone |= any(of.has(_ENABLE_ON_EXEC) for of in events)
        of = taken[0]
        if of.has(_USE_CLOCKID):
            self.writer.clock = _CLOCKS.get(of.clock, f"clock {of.clock}")
            self.writer.epoch = self.header.epochs.get(of.clock, 0)

    def _finish(self) -> None:
        """Say what was found."""
        writer, records = self.writer, self.records
        if not self.header.attributes:
            raise writer.broken("has no events")
        self._set_up()
        if not self.header.traced:
            raise writer.broken("does not describe its events")
        written = records.close()
        writer.take_pages(written)
        for tid, pid in records.seen_threads().items():
            if tid not in self.forked:
                writer.add_thread(tid, pid, "")
        some = min(written, default=0)
        for number, count in self.lost_by_id.items():
            cpu = self.cpus.get(number, some)
            self.lost[cpu] = self.lost.get(cpu, 0) - count
        for cpu, left in self.lost.items():
            # More than was noted when it happened: after the last event that there was room for.
            writer.lose(cpu, -left)
        writer.lose(some, records.unplaced + records.unknown)
        self._tell()

    def _tell(self) -> None:
        """Say what was left out."""
        writer, records = self.writer, self.records
        for count, what in (
            (records.malformed, "damaged"),
            (records.unplaced, "without a cpu"),
            (records.unknown, "of events that it does not describe"),
        ):
            if count:
                writer.warn(f"{plural(count, 'sample')} {what} left out: lost")
        strange = sum(n for kind, n in records.count_kinds().items() if kind not in _SKIPPED)
        if strange:
            writer.warn(f"{plural(strange, 'record')} of kinds that are not known left out")
        if records.others:
            writer.warn(
                f"{plural(records.others, 'sample')} of events that are no tracepoints left out"
                " (call chains of what ran: perf report shows them)"
            )
        if self.auxiliary:
            writer.warn(f"{self.auxiliary:,} bytes of a processor's own trace (AUX) left out")
        if self.throttled:
            writer.warn(f"the kernel held events back at {plural(self.throttled, 'time')}")
        if self.alone:
            writer.warn(
                "perf recorded some processes only, not the whole machine: who woke them, what ran"
                " instead, and when they ran again is missing; perf record -a records all"
            )


def _place_of(form: int, wanted: Sampled) -> int:
    """Return where a sample has one of its fixed parts."""
    at = _RECORD
    for bit in _IN_SAMPLE:
        if bit == wanted:
            break
        at += 8 if form & bit else 0
    return at


def _lay_out(of: PerfAttribute) -> tuple[int, ...]:
    """Return the words of a layout, as `_perf_data.pyx` names them."""
    form = of.sampled
    taken = of.type == _TRACEPOINT and form & _NEEDED == _NEEDED
    fixed = _RECORD + 8 * sum(bool(form & bit) for bit in _IN_SAMPLE)
    return (
        *(taken, _place_of(form, Sampled.TIME)),
        _place_of(form, Sampled.TID) if form & Sampled.TID else -1,
        *(_place_of(form, Sampled.CPU), fixed),
        of.read_format & 0x1F if form & Sampled.READ else -1,
        *(bool(form & Sampled.CALLCHAIN), 0),
    )


class _Compressed(io.RawIOBase):
    """What was compressed, as one stream.

    perf flushes what it compresses, and never ends it: an empty last block does.
    """

    def __init__(self, parts: Iterator[bytes]) -> None:
        super().__init__()
        self._parts, self._left, self.size = parts, b"", 0
        self.failed: Exception | None = None
        self._ended = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while not self._left and not self._ended:
            try:
                self._left = next(self._parts, b"")
            except Exception as error:  # noqa: BLE001 - raised again by who asked for it
                self.failed, self._left = error, b""
                self._ended = True
                return b""
            if not self._left:
                self._ended, self._left = True, _LAST_BLOCK
            self.size += len(self._left)
        found = self._left if size < 0 else self._left[:size]
        self._left = self._left[len(found) :]
        return found


_LAST_BLOCK: Final = b"\1\0\0"
