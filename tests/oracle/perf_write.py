"""Writes perf.data as its documentation describes it: what a reader has to find is known.

It shares nothing with `critpath.convert`: include/uapi/linux/perf_event.h and
tools/perf/Documentation/perf.data-file-format.txt of Linux are what it follows.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

IDENTIFIER, IP, TID, TIME, ADDR = 1 << 16, 1, 2, 4, 8
READ, CALLCHAIN, ID, CPU, PERIOD, STREAM_ID, RAW = 16, 32, 64, 128, 256, 512, 1024
USUAL = IDENTIFIER | IP | TID | TIME | CPU | PERIOD | RAW
INHERIT, ENABLE_ON_EXEC, SAMPLE_ID_ALL, USE_CLOCKID = 1 << 1, 1 << 12, 1 << 18, 1 << 25
TRACEPOINT, SOFTWARE = 2, 1
NONE = (1 << 64) - 1

COMMON = """\
name: {name}
ID: {number}
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

{fields}
print fmt: ""
"""
# Fields as (declaration, size, signed); a declaration that ends with ] is of bytes.
FIELDS = {
    "sched_switch": (
        *(("char prev_comm[16]", 16, 0), ("pid_t prev_pid", 4, 1), ("int prev_prio", 4, 1)),
        *(("long prev_state", 8, 1), ("char next_comm[16]", 16, 0)),
        *(("pid_t next_pid", 4, 1), ("int next_prio", 4, 1)),
    ),
    "sched_waking": (
        *(("char comm[16]", 16, 0), ("pid_t pid", 4, 1), ("int prio", 4, 1)),
        ("int target_cpu", 4, 1),
    ),
    "sched_process_exit": (*(("char comm[16]", 16, 0), ("pid_t pid", 4, 1), ("int prio", 4, 1)),),
}
NUMBERS = {name: 300 + number for number, name in enumerate(FIELDS)}


def describe(name: str) -> bytes:
    """What tracefs says of an event."""
    at, lines = 8, []
    for declared, size, signed in FIELDS[name]:
        at += -at % min(size, 8)
        lines.append(f"\tfield:{declared};\toffset:{at};\tsize:{size};\tsigned:{signed};\n")
        at += size
    return COMMON.format(name=name, number=NUMBERS[name], fields="".join(lines)).encode()


def pack_fields(order: str, name: str, pid: int, values: tuple[object, ...]) -> bytes:
    """The raw data of an event."""
    data = struct.pack(f"{order}HBBi", NUMBERS[name], 0, 0, pid)
    for (declared, size, signed), value in zip(FIELDS[name], values, strict=True):
        data += bytes(-len(data) % min(size, 8))
        if declared.endswith("]"):
            data += str(value).encode()[: size - 1].ljust(size, b"\0")
        else:
            letter = {4: "i", 8: "q"}[size]
            data += struct.pack(order + (letter if signed else letter.upper()), value)
    return data


def switch(prev: int, state: int, following: int) -> tuple[object, ...]:
    """The fields of a switch, with names that follow from the threads."""
    names = [f"t{tid}" if tid else "swapper/0" for tid in (prev, following)]
    return names[0], prev, 120, state, names[1], following, 120


def waking(tid: int, cpu: int) -> tuple[object, ...]:
    """The fields of a wake."""
    return f"t{tid}", tid, 120, cpu


@dataclass
class Attribute:
    """One event that perf opened: on every cpu, with an id each."""

    type: int
    config: int
    sampled: int = USUAL
    flags: int = INHERIT | SAMPLE_ID_ALL
    read_format: int = 4 | 16
    clock: int = 0
    ids: tuple[int, ...] = ()

    def pack(self, order: str) -> bytes:
        """A ``struct perf_event_attr`` of 128 bytes."""
        flags = self.flags
        if order == ">":
            flags = int(f"{flags:064b}"[::-1], 2)
        data = struct.pack(
            f"{order}IIQQQQQII",
            *(self.type, 128, self.config, 1, self.sampled),
            *(self.read_format, flags, 0, 0),
        )
        data = data.ljust(92, b"\0") + struct.pack(f"{order}i", self.clock)
        return data.ljust(128, b"\0")


@dataclass
class PerfFile:
    """A perf.data in the making; records are written in the order of the calls."""

    order: str = "<"
    cpus: int = 2
    sampled: int = USUAL
    read_format: int = 4 | 16
    flags: int = INHERIT | SAMPLE_ID_ALL
    clock: int = 0
    callchain: int = 3  # addresses in each, where they are sampled
    names: tuple[str, ...] = tuple(FIELDS)
    beside: bool = False  # an event that is no tracepoint, too
    divided: bool = False  # records are in files of their own
    records: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.attributes = []
        for number, name in enumerate(self.names):
            ids = tuple(1000 + 100 * number + cpu for cpu in range(self.cpus))
            self.attributes.append(
                Attribute(
                    *(TRACEPOINT, NUMBERS[name], self.sampled, self.flags, self.read_format),
                    *(self.clock, ids),
                )
            )
        if self.beside:
            ids = tuple(5000 + cpu for cpu in range(self.cpus))
            sampled = (self.sampled | CALLCHAIN) & ~RAW
            self.attributes.append(
                Attribute(SOFTWARE, 0, sampled, self.flags, self.read_format, self.clock, ids)
            )

    def pack(self, form: str, *values: object) -> bytes:
        """Bytes in the file's order."""
        return struct.pack(self.order + form, *values)

    def record(self, kind: int, body: bytes, misc: int = 0) -> None:
        """Any record."""
        self.records.append(self.pack("IHH", kind, misc, 8 + len(body)) + body)

    def _end(self, of: Attribute, cpu: int, time: int, tid: tuple[int, int]) -> bytes:
        if not of.flags & SAMPLE_ID_ALL:
            return b""
        parts = (
            (TID, self.pack("II", *tid)),
            (TIME, self.pack("Q", time)),
            (ID, self.pack("Q", of.ids[cpu])),
            (STREAM_ID, self.pack("Q", of.ids[cpu])),
            (CPU, self.pack("II", cpu, 0)),
            (IDENTIFIER, self.pack("Q", of.ids[cpu])),
        )
        return b"".join(data for bit, data in parts if of.sampled & bit)

    def end(self, cpu: int, time: int) -> bytes:
        """What is behind a record that is no sample."""
        return self._end(self.attributes[0], cpu, time, (0, 0))

    def sample(self, cpu: int, time: int, name: str, values: tuple[object, ...], tid: int) -> None:
        """An event that occurred."""
        of = self.attributes[self.names.index(name)]
        raw = pack_fields(self.order, name, tid, values)
        raw += bytes(-(len(raw) + 4) % 8)
        self._sample(of, cpu, time, (tid, tid), self.pack("I", len(raw)) + raw)

    def cpu_sample(self, cpu: int, time: int, tid: int) -> None:
        """A sample of what ran."""
        self._sample(self.attributes[-1], cpu, time, (tid, tid), b"")

    def _sample(self, of: Attribute, cpu: int, time: int, tid: tuple[int, int], raw: bytes) -> None:
        form = of.read_format
        if form & 8:
            read = self.pack("Q", 2) + bytes(8 * bool(form & 1) + 8 * bool(form & 2))
            read += 2 * bytes(8 + 8 * bool(form & 4) + 8 * bool(form & 16))
        else:
            read = bytes(8 * (1 + (form & 23).bit_count()))
        number = of.ids[cpu]
        parts = (
            *((IDENTIFIER, self.pack("Q", number)), (IP, self.pack("Q", 0xFFFF0000))),
            *((TID, self.pack("II", *tid)), (TIME, self.pack("Q", time))),
            *((ADDR, self.pack("Q", 0)), (ID, self.pack("Q", number))),
            *((STREAM_ID, self.pack("Q", number)), (CPU, self.pack("II", cpu, 0))),
            *((PERIOD, self.pack("Q", 1)), (READ, read)),
            (
                CALLCHAIN,
                self.pack(f"{self.callchain + 1}Q", self.callchain, *range(self.callchain)),
            ),
            (RAW, raw),
        )
        self.record(9, b"".join(data for bit, data in parts if of.sampled & bit))

    def lost(self, cpu: int, time: int, count: int) -> None:
        """A loss as the kernel notes it when there is room again."""
        of = self.attributes[0]
        self.record(2, self.pack("QQ", of.ids[cpu], count) + self._end(of, cpu, time, (0, 0)))

    def lost_samples(self, cpu: int, count: int, misc: int = 0) -> None:
        """A loss as perf reads it at the end: of an event, without a time and a cpu."""
        of = self.attributes[0]
        end = self.pack("Q", of.ids[cpu])
        size = len(self._end(of, cpu, 0, (0, 0)))
        self.record(13, self.pack("Q", count) + end.rjust(size, b"\0"), misc)

    def comm(self, pid: int, tid: int, name: str, time: int = 0) -> None:
        """A thread and its name."""
        text = name.encode().ljust(16, b"\0")
        end = self._end(self.attributes[0], 0, time, (pid, tid))
        self.record(3, self.pack("II", pid, tid) + text + end)

    def fork(self, pid: int, tid: int, parent: int, time: int = 0) -> None:
        """A thread that was made."""
        end = self._end(self.attributes[0], 0, time, (parent, parent))
        self.record(7, self.pack("IIIIQ", pid, parent, tid, parent, time) + end)

    def round(self) -> None:
        """The end of a round."""
        self.record(68, b"")

    def index(self, tid: int = NONE) -> None:
        """Which id is of which cpu."""
        rows = [(one, cpu) for of in self.attributes for cpu, one in enumerate(of.ids)]
        body = b"".join(
            self.pack("4Q", one, number, cpu, tid) for number, (one, cpu) in enumerate(rows)
        )
        self.record(69, self.pack("Q", len(rows)) + body)

    def compress(self, compressor: object, kind: int = 81, most: int = 3000) -> None:
        """Replace all records so far by compressed ones, cut anywhere."""
        data, self.records = b"".join(self.records), []
        for at in range(0, len(data), most):
            packed = compressor(data[at : at + most])  # type: ignore[operator]
            if kind == 83:
                padded = packed + bytes(-len(packed) % 8)
                self.record(83, self.pack("Q", len(packed)) + padded)
            else:
                self.record(81, packed)

    def tracing_data(self) -> bytes:
        """What perf keeps of tracefs."""
        page = b"\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n"
        data = b"\x17\x08\x44tracing0.6\0" + self.pack("BBI", self.order == ">", 8, 4096)
        for name in (b"header_page\0", b"header_event\0"):
            data += name + self.pack("Q", len(page)) + page
        data += self.pack("I", 0) + self.pack("I", 1) + b"sched\0"
        data += self.pack("I", len(self.names))
        for name in self.names:
            text = describe(name)
            data += self.pack("Q", len(text)) + text
        return data + self.pack("IIQ", 0, 0, 0)

    def features(self) -> dict[int, bytes]:
        """Sections of the header."""

        def text(of: str) -> bytes:
            data = of.encode() + b"\0"
            data += bytes(-len(data) % 64)
            return self.pack("I", len(data)) + data

        clock = self.pack("IIQQ", 1, 1, 1_700_000_000_000_000_000, 5_000_000_000)
        return {
            1: self.tracing_data(),
            3: text("machine"),
            4: text("6.1.0"),
            5: text("6.1.1"),
            6: text("x86_64"),
            7: self.pack("II", self.cpus, self.cpus),
            **({24: self.pack("Q", 1)} if self.divided else {}),
            **({29: clock} if self.flags & USE_CLOCKID else {}),
        }

    def file(self) -> bytes:
        """The file as ``perf record -o FILE`` writes it."""
        ids = b"".join(self.pack(f"{len(of.ids)}Q", *of.ids) for of in self.attributes)
        at, table = 104, b""
        for of in self.attributes:
            table += of.pack(self.order) + self.pack("QQ", at, 8 * len(of.ids))
            at += 8 * len(of.ids)
        attributes, data = at, at + len(table)
        body, features = b"".join(self.records), self.features()
        place = data + len(body) + 16 * len(features)
        sections = b""
        for one in features.values():
            sections += self.pack("QQ", place, len(one))
            place += len(one)
        bits = sum(1 << bit for bit in features)
        head = b"PERFILE2" if self.order == "<" else b"2ELIFREP"
        head += self.pack("QQ", 104, 144) + self.pack("QQ", attributes, len(table))
        head += self.pack("QQ", data, len(body)) + bytes(16) + self.pack("4Q", bits, 0, 0, 0)
        return head + ids + table + body + sections + b"".join(features.values())

    def pipe(self) -> bytes:
        """What ``perf record -o -`` writes."""
        body, self.records = self.records, []
        for of in self.attributes:
            self.record(64, of.pack(self.order) + self.pack(f"{len(of.ids)}Q", *of.ids))
        features = self.features()
        for number, one in features.items():
            if number != 1:
                self.record(80, self.pack("Q", number) + one)
        data = features[1]
        self.record(66, self.pack("II", len(data), 0))
        self.records.append(data + bytes(-len(data) % 8))
        head = b"PERFILE2" if self.order == "<" else b"2ELIFREP"
        found = head + self.pack("Q", 16) + b"".join(self.records + body)
        self.records = body
        return found
