"""Writes trace.dat of both versions and byte orders, from trace-cmd.dat.v6(5) and .v7(5).

Shares nothing with the reader. What it holds is given: formats, and the pages of each buffer.
"""

from __future__ import annotations

import random
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MAGIC = b"\x17\x08\x44tracing"
DATE, CPUSTAT, BUFFER, CLOCK, UNAME, OFFSET = 1, 2, 3, 4, 5, 7
VERSION, TIME_SHIFT, TSC2NSEC, BUFFER_TEXT, TGIDS = 9, 12, 14, 22, 23
HEADER_PAGE = (
    "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n"
    "\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n"
    "\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n"
    "\tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n"
)
HEADER_EVENT = (
    "# compressed entry header\n\ttype_len    :    5 bits\n\ttime_delta  :   27 bits\n"
    "\tarray       :   32 bits\n\n\tpadding     : type == 29\n\ttime_extend : type == 30\n"
    "\ttime_stamp : type == 31\n\tdata max type_len  == 28\n"
)
PAGE = 4096


@dataclass
class Buffer:
    """The pages of a buffer: of the top (no name), or of an instance."""

    cpus: Mapping[int, bytes]
    name: str = ""
    clock: str = "mono"


@dataclass
class TraceDat:
    """What a file holds."""

    formats: Mapping[str, Sequence[str]]  # by group, without that of ftrace
    buffers: Sequence[Buffer]
    ftrace: Sequence[str] = ()
    options: Sequence[tuple[int, bytes]] = ()
    header_page: str = HEADER_PAGE
    header_event: str = HEADER_EVENT
    big: bool = False
    page: int = PAGE
    tgids: str = ""
    clock: str = "mono"
    text: bytes = b""  # of a latency tracer, in the place of pages; version 6

    def pack(self, kinds: str, *values: object) -> bytes:
        """Pack numbers in the file's order."""
        return struct.pack((">" if self.big else "<") + kinds, *values)

    def sized(self, kind: str, text: str) -> bytes:
        """Return a text after its size."""
        content = text.encode()
        return self.pack(kind, len(content)) + content

    def head(self, version: str) -> bytes:
        """Return what both versions begin with."""
        return MAGIC + version.encode() + b"\0" + bytes([self.big, 8]) + self.pack("I", self.page)

    def headers(self) -> bytes:
        """Return what describes a page and a record."""
        return b"".join(
            (
                *(b"header_page\0", self.sized("Q", self.header_page)),
                *(b"header_event\0", self.sized("Q", self.header_event)),
            )
        )

    def ftrace_formats(self) -> bytes:
        """Return the formats of ftrace's own events."""
        return self.pack("I", len(self.ftrace)) + b"".join(self.sized("Q", t) for t in self.ftrace)

    def systems(self) -> bytes:
        """Return the formats of all others."""
        out = self.pack("I", len(self.formats))
        for group, texts in self.formats.items():
            out += group.encode() + b"\0" + self.pack("I", len(texts))
            out += b"".join(self.sized("Q", text) for text in texts)
        return out

    def all_options(self) -> list[tuple[int, bytes]]:
        """Return the options, with the clock's name as trace-cmd has it."""
        known = "local global counter uptime perf mono mono_raw boot tai x86-tsc"
        text = re.sub(rf"(?<![a-z_]){self.clock}(?![a-z_])", f"[{self.clock}]", known, count=1)
        return [(CLOCK, text.encode() + b"\n\0"), *self.options]

    def version_6(self) -> bytes:
        """Return the file as version 6."""
        return b"".join(self.pieces_6())

    def pieces_6(self) -> Iterator[bytes]:
        """Yield the file as version 6; pages may be what has a length and yields them."""
        cpus = 1 + max((cpu for of in self.buffers for cpu in of.cpus), default=0)
        out = bytearray(self.head("6") + self.headers() + self.ftrace_formats() + self.systems())
        out += self.sized("I", "ffffffff81000000 T _stext\n") + self.sized("I", "")
        out += self.sized("Q", "1 init\n") + self.pack("I", cpus) + b"options  \0"
        for number, content in self.all_options():
            out += self.pack("HI", number, len(content)) + content
        holes = []
        for of in self.buffers[1:]:
            name = of.name.encode() + b"\0"
            out += self.pack("HI", BUFFER, 8 + len(name))
            holes.append(len(out))
            out += bytes(8) + name
        out += self.pack("H", 0)
        if self.text:
            yield bytes(out) + b"latency  \0" + self.text
            return
        # Tables stand before their pages; where the next buffer's is, is known by then.
        at, parts = len(out), []
        for number, of in enumerate(self.buffers):
            if number:
                struct.pack_into(">Q" if self.big else "<Q", out, holes[number - 1], at)
            table = b"flyrecord\0"
            begin = end = -(-(at + len(table) + 16 * cpus) // self.page) * self.page
            for cpu in range(cpus):
                size = len(of.cpus.get(cpu, b""))
                table += self.pack("QQ", end, size)
                end += size
            parts += [[table.ljust(begin - at, b"\0")], *(of.cpus.get(c, b"") for c in range(cpus))]
            at = end
        yield bytes(out)
        for part in parts:
            yield from [part] if isinstance(part, bytes) else part

    def version_7(self, compress: str = "none", chunk: int = 3) -> bytes:
        """Return the file as version 7, compressed pages in chunks of so many."""
        pack: Callable[[bytes], bytes] = COMPRESS[compress]
        out = bytearray(self.head("7") + compress.encode() + b"\0" + b"1.0\0")
        hole = len(out)
        out += bytes(8)
        options = self.all_options()

        def section(number: int, content: bytes, flag: int | None = None) -> int:
            at = len(out)
            squeezed = compress != "none" and flag is None
            if squeezed:
                small = pack(content)
                content = self.pack("II", len(small), len(content)) + small
            flags = squeezed if flag is None else flag
            out.extend(self.pack("HHIQ", number, flags, 0, len(content)) + content)
            return at

        for number, content in (
            (16, self.headers()),
            (17, self.ftrace_formats()),
            (18, self.systems()),
            *([(TGIDS, self.sized("Q", self.tgids))] if self.tgids else []),
        ):
            options.append((number, self.pack("Q", section(number, content))))
        for of in self.buffers:
            at = section(3, b"", int(compress != "none"))
            rows = b""
            for cpu, pages in sorted(of.cpus.items()):
                if compress == "none":
                    out.extend(bytes(-len(out) % self.page))
                begin = len(out)
                if compress == "none":
                    out.extend(pages)
                elif pages:
                    step = chunk * self.page
                    pieces = [pages[n : n + step] for n in range(0, len(pages), step)]
                    out.extend(self.pack("I", len(pieces)))
                    for piece in pieces:
                        small = pack(piece)
                        out.extend(self.pack("II", len(small), len(piece)) + small)
                rows += self.pack("IQQ", cpu, begin, len(out) - begin)
            content = self.pack("Q", at) + of.name.encode() + b"\0" + of.clock.encode() + b"\0"
            content += self.pack("II", self.page, len(of.cpus)) + rows
            options.append((BUFFER, content))
        # In two sections, of which one leads to the other.
        half, following = len(options) // 2, 0
        for part in (options[half:], options[:half]):
            packed = b"".join(self.pack("HI", n, len(c)) + c for n, c in part)
            done = self.pack("HIQ", 0, 8, following)
            following = section(0, packed + done, 0)
        struct.pack_into(">Q" if self.big else "<Q", out, hole, following)
        return bytes(out)


def _compress_zstd(content: bytes) -> bytes:
    import pyarrow as pa  # noqa: PLC0415 - where it is asked for

    return bytes(pa.Codec("zstd").compress(content, asbytes=True))


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "zlib": zlib.compress,
    "zstd": _compress_zstd,
}


def wrap_raw(raw: Path, **more: object) -> TraceDat:
    """Return what a raw directory of the ftrace recorder holds as a trace.dat."""
    groups: dict[str, list[str]] = {}
    for file in sorted((raw / "formats").iterdir()):
        groups.setdefault(file.name.partition(".")[0], []).append(file.read_text())
    cpus = {int(file.name[3:]): file.read_bytes() for file in sorted(raw.glob("cpu[0-9]*"))}
    return TraceDat(
        formats={group: texts for group, texts in groups.items() if group != "ftrace"},
        ftrace=groups.get("ftrace", []),
        buffers=[Buffer(cpus)],
        header_page=(raw / "header_page").read_text(),
        header_event=(raw / "header_event").read_text(),
        **more,
    )


# Records of some events, and files of them


BEGIN = 10**12
UNAMED = (UNAME, b"Linux box 6.1.0 x86_64\0")
COMMON = (
    "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
    "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
    "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n"
    "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
)
SWITCH, WAKING, FORK, PRINT = 310, 311, 312, 5
FORMATS = {
    SWITCH: (
        "name: sched_switch\nID: 310\nformat:\n" + COMMON + "\tfield:char prev_comm[16];\toffset:8;"
        "\tsize:16;\tsigned:0;\n\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n"
        "\tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;\n"
        "\tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n"
        "\tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;\n"
        "\tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;\n"
        "\tfield:int next_prio;\toffset:60;\tsize:4;\tsigned:1;\n"
    ),
    WAKING: (
        "name: sched_waking\nID: 311\nformat:\n" + COMMON + "\tfield:char comm[16];\toffset:8;"
        "\tsize:16;\tsigned:0;\n\tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n"
        "\tfield:int prio;\toffset:28;\tsize:4;\tsigned:1;\n"
        "\tfield:int target_cpu;\toffset:32;\tsize:4;\tsigned:1;\n"
    ),
    FORK: (
        "name: sched_process_fork\nID: 312\nformat:\n"
        + COMMON
        + "\tfield:__data_loc char[] parent_comm;\toffset:8;\tsize:4;\tsigned:0;\n"
        "\tfield:pid_t parent_pid;\toffset:12;\tsize:4;\tsigned:1;\n"
        "\tfield:__data_loc char[] child_comm;\toffset:16;\tsize:4;\tsigned:0;\n"
        "\tfield:pid_t child_pid;\toffset:20;\tsize:4;\tsigned:1;\n"
    ),
}
PRINTED = (
    "name: print\nID: 5\nformat:\n" + COMMON + "\tfield:unsigned long ip;\toffset:8;\tsize:8;"
    "\tsigned:0;\n\tfield:char buf[];\toffset:16;\tsize:0;\tsigned:0;\n"
)


class Made:
    """Records of one cpu, in pages of either byte order."""

    def __init__(self, *, big: bool = False, time: int = BEGIN) -> None:
        self.order, self.big = ">" if big else "<", big
        self.pages, self.data = bytearray(), bytearray()
        self.begin = self.time = time
        self.lost = 0

    def pack(self, kinds: str, *values: object) -> bytes:
        return struct.pack(self.order + kinds, *values)

    def switch(self, time: int, prev: int, state: int, following: int) -> None:
        names = (f"t{tid}".encode() for tid in (prev, following))
        one, other = names
        self.add(
            time,
            self.pack("HBBi", SWITCH, 1, 0, prev)
            + self.pack("16siiq", one, prev, 120, state)
            + self.pack("16sii", other, following, 120),
        )

    def waking(self, time: int, by: int, tid: int) -> None:
        name = f"t{tid}".encode()
        self.add(time, self.pack("HBBi16siii", WAKING, 0, 0, by, name, tid, 120, 1))

    def fork(self, time: int, parent: int, child: int) -> None:
        place = (4 << 16) + 24
        record = self.pack("HBBiIiIi", FORK, 0, 0, parent, place, parent, place + 4, child)
        self.add(time, record + b"abc\0def\0")

    def mark(self, time: int, by: int, text: str) -> None:
        self.add(time, self.pack("HBBiQ", PRINT, 0, 0, by, 0) + text.encode() + b"\n\0")

    def word(self, kind: int, delta: int) -> bytes:
        return self.pack("I", kind << 27 | delta if self.big else kind | delta << 5)

    def add(self, time: int, record: bytes) -> None:
        record = record.ljust(-(-len(record) // 4) * 4, b"\0")
        if not self.data:
            self.begin = self.time = time
        head, delta = b"", time - self.time
        if delta >= 1 << 27:
            head, delta = self.word(30, delta % (1 << 27)) + self.pack("I", delta >> 27), 0
        entry = head + self.word(len(record) // 4, delta) + record
        if len(self.data) + len(entry) + 8 > PAGE - 16:
            self.end_page()
            self.add(time, record)
            return
        self.data += entry
        self.time = time

    def lose(self, count: int) -> None:
        """Have the next page say that events went missing before it."""
        self.end_page()
        self.lost = count

    def end_page(self) -> None:
        flags = (3 << 30 if self.lost > 0 else 1 << 31) if self.lost else 0
        behind = self.pack("Q", self.lost) if self.lost > 0 else b""
        word = self.pack("QQ", self.begin, flags | len(self.data))
        whole = word + bytes(self.data) + behind
        self.pages += whole.ljust(PAGE, b"\0")
        self.data, self.lost = bytearray(), 0

    def done(self) -> bytes:
        if self.data or self.lost:
            self.end_page()
        return bytes(self.pages)


def trace(*buffers: Buffer, big: bool = False, **more: object) -> TraceDat:
    return TraceDat(
        formats={"sched": list(FORMATS.values())},
        ftrace=[PRINTED],
        buffers=buffers,
        big=big,
        options=[UNAMED, *more.pop("options", ())],
        **more,
    )


def draw(seed: int, *, big: bool, count: int = 300) -> dict[int, bytes]:
    """Return pages of two cpus: switches, wakes, forks and marks; the same in either order."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    made = [Made(big=big), Made(big=big)]
    running = [1, 2]
    time = BEGIN
    for number in range(count):
        time += chance.choice([1, 500, 10**6, 1 << 28, 3 << 40] if number % 50 else [10**6])
        cpu = chance.randrange(2)
        what = chance.randrange(8)
        if what < 4:
            following = chance.randrange(1, 30)
            made[cpu].switch(time, running[cpu], chance.randrange(3), following)
            running[cpu] = following
        elif what < 6:
            made[cpu].waking(time, running[cpu], chance.randrange(1, 30))
        elif what == 6:
            made[cpu].fork(time, running[cpu], 1000 + number)
        else:
            made[cpu].mark(time, running[cpu], f"number {number}")
        if number == count // 2:
            made[cpu].lose(7)
    return {cpu: of.done() for cpu, of in enumerate(made)}
