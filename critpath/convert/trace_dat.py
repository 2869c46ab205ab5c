"""Reads trace-cmd's ``trace.dat``, versions 6 and 7 (trace-cmd.dat.v6(5), trace-cmd.dat.v7(5)).

Its pages are those of the kernel's ring buffer, its formats the kernel's: both are copied.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import re
import shutil
import struct
import tempfile
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Final

from critpath.convert import ftrace_text
from critpath.convert._trace_dat import Merger, PageWriter, count_kinds
from critpath.convert.raw_writer import (
    HEADER_EVENT,
    HEADER_PAGE,
    MOST_CPUS,
    MOST_FORMATS,
    RawWriter,
)
from critpath.errors import UnreadableError
from critpath.extras import require
from critpath.units import plural, safe_text

_MAGIC: Final = b"\x17\x08\x44tracing"
_PIECE: Final = 1 << 20  # bytes that are copied at once
_MOST_TEXT: Final = 1 << 12  # bytes of a name or a version
_MOST_FORMAT: Final = 1 << 16  # bytes of an event's format
_MOST_SECTION: Final = 64 << 20  # bytes of a section in memory
_MOST_CHUNK: Final = 256 << 20  # bytes of pages that are compressed together
_MOST_OPTIONS: Final = 1 << 16
_COMPRESSED: Final = 1
_NO_TIME: Final = {
    "counter": "counts events and is no time",
    "x86-tsc": "counts the processor's cycles, and the file has no rate of them (--tsc2nsec)",
}
_KINDS: Final = 1 << 16  # an ID has 16 bits
_MARKS: Final = {"ftrace.print", "ftrace.raw_data"}
_LOST: Final = ("overrun", "commit overrun", "dropped events")
_MOST_SHIFTS: Final = 1 << 16
MOST_BUFFERS: Final = 64

# Options, as trace-cmd numbers them.
_DONE, _DATE, _CPUSTAT, _BUFFER, _CLOCK, _UNAME, _OFFSET = 0, 1, 2, 3, 4, 5, 7
_CPU_COUNT, _VERSION, _TIME_SHIFT, _TSC2NSEC = 8, 9, 12, 14
_HEADER_INFO, _FTRACE_EVENTS, _EVENT_FORMATS, _CMDLINES, _TEXT, _TGIDS = 16, 17, 18, 21, 22, 23


@dataclass(frozen=True)
class _Pages:
    """Where a cpu's pages are."""

    cpu: int
    offset: int
    size: int


@dataclass
class _Buffer:
    """The pages of the main buffer (no name), or of an instance."""

    name: str
    cpus: list[_Pages]
    clock: str = ""
    compressed: bool = False

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return sum(one.size for one in self.cpus)


class _Cursor:
    """Reads numbers and texts from where a stream stands; nothing is believed beyond its end."""

    def __init__(
        self, stream: IO[bytes], broken: Callable[[str], Exception], *, big_endian: bool = False
    ) -> None:
        self.stream, self.broken = stream, broken
        self.order = ">" if big_endian else "<"
        at = stream.tell()
        self.end = stream.seek(0, os.SEEK_END)
        stream.seek(at)

    def left(self) -> int:
        return self.end - self.stream.tell()

    def take(self, size: int, most: int = _MOST_SECTION) -> bytes:
        if not 0 <= size <= min(most, self.left()):
            raise self.broken(f"ends within its header, or is damaged at byte {self.stream.tell()}")
        return self.stream.read(size)

    def skip(self, size: int) -> None:
        if not 0 <= size <= self.left():
            raise self.broken(f"ends within its header, or is damaged at byte {self.stream.tell()}")
        self.stream.seek(size, os.SEEK_CUR)

    def go_to(self, offset: int) -> None:
        if not 0 <= offset <= self.end:
            raise self.broken("names a place beyond its end")
        self.stream.seek(offset)

    def number(self, size: int) -> int:
        return int(struct.unpack(self.order + {2: "H", 4: "I", 8: "Q"}[size], self.take(size))[0])

    def text(self) -> str:
        """Return the text up to a zero."""
        found = self.stream.read(min(_MOST_TEXT, self.left()))
        text, zero, rest = found.partition(b"\0")
        if not zero:
            raise self.broken("has a name without an end")
        self.stream.seek(-len(rest), os.SEEK_CUR)
        return text.decode("utf-8", "replace")

    def expect(self, text: bytes) -> None:
        if self.take(min(len(text), self.left())) != text:
            raise self.broken(f"has no {text.rstrip(bytes(1)).decode()} where it should be")


def write_raw(stream: IO[bytes], writer: RawWriter) -> None:
    """Write what a file holds as a raw directory: see `critpath.convert.foreign.Reader`."""
    stream.seek(len(_MAGIC))
    start = _Cursor(stream, writer.broken)
    version = start.text()
    if version not in {"6", "7"}:
        raise UnreadableError(
            f"{writer.file}: trace.dat of version {safe_text(version)[:20]}, and 6 and 7 are read",
            "convert it: trace-cmd convert --file-version 7",
        )
    writer.big_endian = start.take(1) == b"\1"
    file = _Cursor(stream, writer.broken, big_endian=writer.big_endian)
    file.take(1)  # bytes of a long in user space
    page = file.number(4)
    if not 256 <= page <= 1 << 20 or page & (page - 1):
        raise writer.broken(f"has pages of {page} bytes")
    trace = _TraceFile(file, writer, page)
    if version == "6":
        trace.read_6()
    else:
        trace.read_7()
    writer.tool = {"name": "trace-cmd", "version": trace.version, "file": version}
    trace.describe()
    trace.copy_pages()


class _TraceFile:
    """A file that is being read."""

    def __init__(self, file: _Cursor, writer: RawWriter, page: int) -> None:
        self.file, self.writer, self.page = file, writer, page
        self.version = self.clock = self.uname = ""
        self.epoch = 0  # ns to add to times to get the user's
        self.stats: list[str] = []
        self.formats: list[tuple[str, str]] = []  # by group
        self.buffers: list[_Buffer] = []
        # By cpu, from a guest's times to those of its host: see `Merger`.
        self.shifts: dict[int, tuple[array[int], ...]] = {}
        self.rate: tuple[int, int, int] | None = None
        self.has_text = False
        self.text_at = -1  # where what a latency tracer printed begins, in version 6
        self.counters = {*_LOST, "read events", "entries"}
        self._instances: list[tuple[int, str]] = []  # version 6: where a buffer's table is
        self._sections: dict[int, int] = {}  # version 7
        self._expand: Callable[[bytes, int], bytes] = _refuse

    # Version 6: one thing after the other

    def read_6(self) -> None:
        file, writer = self.file, self.writer
        self._read_header(file)
        self._read_formats(file, "ftrace")
        self._read_systems(file)
        file.skip(file.number(4))  # kallsyms
        file.skip(file.number(4))  # trace_printk's formats
        file.skip(file.number(8))  # names of threads, which every switch has
        cpus = file.number(4)
        if cpus > MOST_CPUS:
            raise writer.broken(f"has {cpus} cpus")
        kind = file.take(10)
        if kind == b"options  \0":
            self._read_options(file, is_section=False)
            kind = file.take(10)
        self.has_text = kind == b"latency  \0"
        self.text_at = file.stream.tell()
        if kind == b"flyrecord\0":
            self.buffers.append(_Buffer("", _read_table(file, cpus)))
        elif not self.has_text:
            raise writer.broken("has no pages where they should be")
        for offset, name in self._instances:
            file.go_to(offset)
            file.expect(b"flyrecord\0")
            self.buffers.append(_Buffer(name, _read_table(file, cpus)))

    # Version 7: sections that options point to

    def read_7(self) -> None:
        file = self.file
        self._expand = _EXPANDERS.get(file.text(), _refuse)
        file.text()  # its library's version
        place, seen = file.number(8), set[int]()
        while place:
            if place in seen:
                raise file.broken("has options that lead back to themselves")
            seen.add(place)
            place = self._read_options(self._open_section(place), is_section=True)
        readers: dict[int, Callable[[_Cursor], None]] = {
            _HEADER_INFO: self._read_header,
            _FTRACE_EVENTS: lambda section: self._read_formats(section, "ftrace"),
            _EVENT_FORMATS: self._read_systems,
            _TGIDS: self._read_tgids,
        }
        for number, read in readers.items():
            if number in self._sections:
                read(self._open_section(self._sections[number]))

    def _open_section(self, place: int) -> _Cursor:
        """Return the content of a section."""
        file = self.file
        file.go_to(place)
        _, flags, _, size = file.number(2), file.number(2), file.number(4), file.number(8)
        content = self._read_packed(_MOST_SECTION) if flags & _COMPRESSED else file.take(size)
        return _Cursor(io.BytesIO(content), file.broken, big_endian=self.writer.big_endian)

    def _read_packed(self, most: int) -> bytes:
        """Return what was compressed: its sizes stand before it."""
        packed, size = self.file.number(4), self.file.number(4)
        if size > most:
            raise self.file.broken(f"has {size} bytes that were compressed together")
        content = self.file.take(packed, most)
        try:
            expanded = self._expand(content, size)
        except (OSError, ValueError, EOFError, zlib.error) as error:
            raise self.file.broken(f"has compressed data that is damaged ({error})") from None
        if len(expanded) != size:
            raise self.file.broken("has compressed data that is not as long as it says")
        return expanded

    # What both have

    def _read_header(self, file: _Cursor) -> None:
        file.expect(b"header_page\0")
        header_page = file.take(file.number(8), _MOST_FORMAT)
        file.expect(b"header_event\0")
        header_event = file.take(file.number(8), _MOST_FORMAT)
        self.writer.set_page(_decode(header_page), _decode(header_event))

    def _read_systems(self, file: _Cursor) -> None:
        for _ in range(file.number(4)):
            self._read_formats(file, file.text())

    def _read_formats(self, file: _Cursor, group: str) -> None:
        for _ in range(file.number(4)):
            self.formats.append((group, _decode(file.take(file.number(8), _MOST_FORMAT))))
            if len(self.formats) > MOST_FORMATS:
                raise file.broken("describes more events than there can be")

    def _read_tgids(self, file: _Cursor) -> None:
        """Read which process threads belong to."""
        for line in file.take(file.number(8)).splitlines():
            tid, _, tgid = line.partition(b" ")
            if tid.isdigit() and tgid.isdigit() and len(line) < 24:
                self.writer.add_thread(int(tid), int(tgid), "")

    def _read_options(self, file: _Cursor, *, is_section: bool) -> int:
        """Read options; return where the next are, 0 for nowhere."""
        for _ in range(_MOST_OPTIONS):
            number = file.number(2)
            if number == _DONE and not is_section:
                return 0
            content = file.take(file.number(4))
            option = _Cursor(io.BytesIO(content), file.broken, big_endian=self.writer.big_endian)
            if number == _DONE:
                return option.number(8)
            self._read_option(number, option)
        raise file.broken("has more options than there can be")

    def _read_option(self, number: int, option: _Cursor) -> None:
        if number in {_DATE, _OFFSET}:
            with contextlib.suppress(ValueError):
                self.epoch += int(_decode(option.take(option.left()).rstrip(b"\0")), 0)
        elif number == _CPUSTAT:
            self.stats.append(_decode(option.take(option.left())))
        elif number == _CLOCK:
            found = re.search(r"\[([a-z0-9_-]+)\]", _decode(option.take(option.left())))
            self.clock = found[1] if found else ""
        elif number == _UNAME:
            self.uname = option.text()
        elif number == _VERSION:
            self.version = option.text()
        elif number == _TIME_SHIFT:
            self._read_shifts(option)
        elif number == _TSC2NSEC:
            self.rate = option.number(4), option.number(4), option.number(8)
        elif number == _BUFFER:
            place, name = option.number(8), option.text()
            if option.left():
                self._read_buffer(option, place, name)
            else:
                self._instances.append((place, name))
        elif number == _TEXT:
            self.has_text = True
        elif number >= _HEADER_INFO and option.left() == 8:
            self._sections[number] = option.number(8)

    def _read_buffer(self, option: _Cursor, place: int, name: str) -> None:
        """Read where the pages of a buffer are; version 7."""
        clock, page, cpus = option.text(), option.number(4), option.number(4)
        if cpus > MOST_CPUS or page != self.page:
            raise option.broken(f"has a buffer of {cpus} cpus with pages of {page} bytes")
        pages = [_Pages(option.number(4), option.number(8), option.number(8)) for _ in range(cpus)]
        self.file.go_to(place)
        self.file.skip(2)
        self.buffers.append(_Buffer(name, pages, clock, bool(self.file.number(2) & _COMPRESSED)))

    def _read_shifts(self, option: _Cursor) -> None:
        """Read how times of a guest become those of its host."""
        option.skip(12)  # which file is the host's, flags
        cpus = option.number(4)
        if cpus > MOST_CPUS:
            raise option.broken(f"shifts the times of {cpus} cpus")

        def take(kind: str, count: int) -> array[int]:
            size = 8 * min(count, _MOST_SHIFTS + 1)
            values = struct.iter_unpack(option.order + kind, option.take(size))
            return array(kind, [value for (value,) in values])

        for cpu in range(cpus):
            count = option.number(4)
            if count > _MOST_SHIFTS:
                raise option.broken(f"shifts its times {count} times")
            moments, offsets, scales = take("Q", count), take("q", count), take("Q", count)
            if any(b <= a for a, b in pairwise(moments)):
                raise option.broken("shifts its times out of order")
            if count:
                self.shifts[cpu] = moments, offsets, scales, array("Q", bytes(8 * count))
        if option.left() == 8 * sum(len(of[0]) for of in self.shifts.values()):
            for cpu, (moments, offsets, scales, _) in self.shifts.items():
                self.shifts[cpu] = moments, offsets, scales, take("Q", len(moments))

    def describe(self) -> None:
        """Tell what the options say; only buffers of one clock are read."""
        writer = self.writer
        self.buffers = [of for of in self.buffers if of.size]
        largest = max(self.buffers, key=lambda of: of.size, default=None)
        name = (largest.clock if largest else "") or self.clock or "local"
        for of in self.buffers:
            if of.clock not in {"", name}:
                what = f"the buffer {safe_text(of.name)!r} is left out"
                writer.warn(f"{what}: its clock is {safe_text(of.clock)}, not {name}")
        self.buffers = [of for of in self.buffers if of.clock in {"", name}]
        if name in _NO_TIME and not (name == "x86-tsc" and self.rate):
            raise UnreadableError(
                f"{writer.file}: its clock {name} {_NO_TIME[name]}",
                "record with trace-cmd record -C mono",
            )
        if name == "local":
            writer.warn(
                f"its clock {name} may differ from cpu to cpu: what passes between cpus may seem to"
                " take less or more time (trace-cmd record -C mono)"
            )
        writer.clock, writer.epoch = name.replace("-", "_"), self.epoch
        if self.shifts:
            writer.warn("a guest's file: its times are those of its host, as trace-cmd has them")
        system = self.uname.split()
        if len(system) >= 4:
            host = {"name": system[1], "kernel": system[2], "machine": system[-1]}
            writer.host |= {key: safe_text(value)[:200] for key, value in host.items()}

    def copy_pages(self) -> None:
        """Copy the pages of the only buffer; those of several become one stream for each cpu."""
        buffers = self.buffers
        if self.has_text and self.text_at >= 0:
            self._copy_text()
            return
        for group, text in self.formats:
            self.writer.add_format(group, text)
        if not buffers:
            what = "text of a latency tracer, no events" if self.has_text else "no event"
            raise UnreadableError(
                f"{self.writer.file}: has {what}",
                "record events: trace-cmd record -C mono -e sched -e irq -- COMMAND",
            )
        if len(buffers) > MOST_BUFFERS:
            raise self.file.broken(f"has {len(buffers)} buffers")
        place = self.writer.directory
        if len(buffers) == 1 and self.rate is None and not self.shifts:
            for one in buffers[0].cpus:
                if first := self._copy(one, place / f"cpu{one.cpu}", buffers[0]):
                    time = struct.unpack(self.file.order + "Q", first)[0]
                    self.writer.add_cpu(one.cpu, time)
        else:
            self._merge(buffers)
        self._count_losses([of.name for of in buffers])

    def _copy_text(self) -> None:
        """Read the text that stands in the place of pages where a latency tracer recorded."""
        with tempfile.TemporaryFile(dir=self.writer.directory) as text:
            self.file.stream.seek(self.text_at)
            shutil.copyfileobj(self.file.stream, text, _PIECE)
            text.seek(0)
            clock = self.writer.clock
            ftrace_text.write_raw(text, self.writer)
            self.writer.clock = clock

    def _merge(self, buffers: Sequence[_Buffer]) -> None:
        """Merge the pages of several buffers, or give them other times."""
        writer = self.writer
        of = writer.parse_layout()
        layout = of.commit_offset, of.commit_size, of.data_offset, of.data_size
        cpus = sorted({one.cpu for buffer in buffers for one in buffer.cpus})
        counts: list[Counter[int]] = [Counter() for _ in buffers]
        places: dict[tuple[int, int], Path] = {}
        for number, buffer in enumerate(buffers):
            for one in buffer.cpus:
                place = writer.directory / f"buffer{number}.cpu{one.cpu}"
                if (number, one.cpu) not in places and self._copy(one, place, buffer):
                    places[number, one.cpu] = place
                    with _map(place) as view:
                        counts[number].update(count_kinds(view, layout, writer.big_endian))
        taken = self._choose_buffers(buffers, counts)
        pages = PageWriter(str(writer.directory), big_endian=writer.big_endian)
        for cpu in cpus:
            shifts = self.shifts.get(cpu) or self.shifts.get(min(self.shifts, default=0))
            merger = Merger(
                layout,
                big_endian=writer.big_endian,
                rate=self.rate or (1, 0, 0),
                shifts=shifts or (),
            )
            mine = [number for number in range(len(buffers)) if (number, cpu) in places]
            if not mine:
                writer.add_cpu(cpu)
                continue
            with ExitStack() as stack:
                views = [stack.enter_context(_map(places[number, cpu])) for number in mine]
                _, damaged = merger.merge(views, [taken[number] for number in mine], cpu, pages)
            if damaged:
                writer.warn(
                    f"cpu {cpu}: {plural(damaged, 'page')} damaged or cut off: what was behind"
                    " the damage is missing"
                )
            for number in mine:
                places[number, cpu].unlink()
        writer.set_page(HEADER_PAGE, HEADER_EVENT)
        writer.take_pages(pages.close())

    def _choose_buffers(
        self, buffers: Sequence[_Buffer], counts: Sequence[Counter[int]]
    ) -> list[bytearray]:
        """Choose from which buffer each kind of event is taken: no event is to be there twice."""
        taken = [bytearray(_KINDS) for _ in buffers]
        left: dict[int, set[str]] = {}
        for kind in {kind for of in counts for kind in of}:
            have = [number for number, of in enumerate(counts) if of[kind]]
            most = max(have, key=lambda number: counts[number][kind])
            # A mark is written into one buffer only: it is never the same in two.
            every = have if self.writer.name_of(kind) in _MARKS else [most]
            for number in every:
                taken[number][kind] = 1
            for number in {*have} - {*every}:
                left.setdefault(number, set()).add(self.writer.name_of(kind))
        if left:  # what was read from the buffers is more than what is taken
            self.counters = {*_LOST}
        for number, names in sorted(left.items()):
            shown = ", ".join(sorted(filter(None, names))[:4])
            self.writer.warn(
                f"the buffer {safe_text(buffers[number].name) or 'of the top'} has events that"
                f" another buffer has more of, which are taken from that: {shown}"
            )
        return taken

    def _copy(self, pages: _Pages, place: Path, buffer: _Buffer) -> bytes:
        """Copy a cpu's pages, as far as they are there; return the first page's time, as it is."""
        file, first = self.file, b""
        if not 0 <= pages.cpu < MOST_CPUS:
            raise file.broken(f"has a cpu of the number {pages.cpu}")
        self.writer.add_cpu(pages.cpu)
        if pages.offset > file.end or pages.size > file.end - pages.offset:
            self.writer.warn(f"cpu {pages.cpu}: the file ends before its pages do: cut off")
            self.writer.lose(pages.cpu, 1)
        if not pages.size:
            return b""
        file.stream.seek(min(pages.offset, file.end))
        with place.open("xb") as target:
            for piece in self._pieces(pages, compressed=buffer.compressed):
                first = first or piece[:8]
                target.write(piece)
        return first if len(first) == 8 else b""

    def _pieces(self, pages: _Pages, *, compressed: bool) -> Iterator[bytes]:
        file = self.file
        if not compressed:
            left = min(pages.size, file.left())
            while left and (piece := file.stream.read(min(left, _PIECE))):
                left -= len(piece)
                yield piece
        elif pages.size:
            for _ in range(file.number(4)):
                yield self._read_packed(_MOST_CHUNK)

    def _count_losses(self, names: Sequence[str]) -> None:
        """Tell what the kernel's counters of these buffers say."""
        name, cpu = "", -1
        for line in "\n".join(self.stats).splitlines():
            key, _, value = line.partition(":")
            number = int(value) if re.fullmatch(r" ?[0-9]{1,18}", value) else -1
            if key == "Buffer":
                name, cpu = value.strip(), -1
            elif key == "CPU":
                cpu = number
            elif name in names and cpu >= 0 and number >= 0 and key in self.counters:
                self.writer.count(cpu, {key: number})


def _read_table(file: _Cursor, cpus: int) -> list[_Pages]:
    return [_Pages(cpu, file.number(8), file.number(8)) for cpu in range(cpus)]


@contextlib.contextmanager
def _map(place: Path) -> Iterator[memoryview]:
    """Map a file of pages."""
    with (
        place.open("rb") as stream,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as view,
    ):
        yield view


def _decode(text: bytes) -> str:
    return text.decode("utf-8", "replace")


# Expanding what was compressed, to so many bytes


def _expand_zlib(packed: bytes, size: int) -> bytes:
    return zlib.decompressobj().decompress(packed, size) if size else b""


def _expand_zstd(packed: bytes, size: int) -> bytes:
    try:  # Python 3.14
        zstd: Any = import_module("compression.zstd")
    except ModuleNotFoundError:
        require("a file that zstd compressed", "parquet")
        codec: Any = import_module("pyarrow").Codec("zstd")
        return codec.decompress(packed, size, asbytes=True)  # type: ignore[no-any-return]
    return zstd.ZstdDecompressor().decompress(packed, size)  # type: ignore[no-any-return]


def _refuse(_packed: bytes, _size: int) -> bytes:
    raise UnreadableError(
        "trace.dat is compressed in a way that is not known (zstd and zlib are)",
        "convert it: trace-cmd convert --compression none",
    )


_EXPANDERS: Final = {"zlib": _expand_zlib, "zstd": _expand_zstd}
