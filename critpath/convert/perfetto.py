"""Reads traces of Perfetto: what ftrace recorded, and the slices that programs wrote.

The format is https://perfetto.dev/docs/reference/trace-packet-proto.  Times are those of
CLOCK_BOOTTIME, as Perfetto's viewer shows them.  A slice of a thread becomes what atrace writes
into ftrace for one, ``B|PROCESS|NAME`` and ``E|PROCESS``, beside the events of the kernel.
"""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import PurePosixPath
from typing import IO, Any, Final, NamedTuple

from critpath.convert import _perfetto
from critpath.convert.perfetto_described import DescribedEvents
from critpath.convert.perfetto_events import PRINT, SHAPES, SWITCH, WAKING
from critpath.convert.raw_writer import RawWriter
from critpath.errors import UnreadableError
from critpath.extras import require
from critpath.units import plural

_BLOCK: Final = 1 << 22  # bytes that are read at once
_LARGEST: Final = 1 << 29  # bytes of a packet, and of what is packed in one
_MARKS: Final = "marks"  # as `critpath_record.ftrace.raw` has it
_GZIP: Final = b"\x1f\x8b"
_MOST: Final = 1 << 20  # threads, tracks, sequences, and names of each
_TIMES: Final = 1 << 62  # ns

# Fields of TracePacket.
_TREE, _CLOCKS, _TRACK_EVENT, _INTERNED, _CONFIG, _FTRACE_STATS, _STATS = 2, 6, 11, 12, 33, 34, 35
_THREAD, _SYSTEM, _ZLIB, _DEFAULTS, _TRACK, _ZSTD = 44, 45, 50, 59, 60, 133
_OTHER_KERNELS: Final = {95: "Windows", 117: "a kernel without ftrace"}
_CLEARED, _NEEDED = 1, 2  # sequence flags
_REALTIME, _RAW, _BOOTTIME = 1, 5, 6
_OWN_CLOCKS: Final = range(64, 128)  # of a sequence
_FTRACE_CLOCKS: Final = {1: "one that is not known", 2: "global", 3: "local", 4: "mono_raw"}
_LOCAL: Final = 3
_BEGIN, _END, _INSTANT = 1, 2, 3  # types of a track event
_PHASES: Final = {"B": _BEGIN, "X": _BEGIN, "E": _END, "I": _INSTANT, "i": _INSTANT}

Fields = list[tuple[int, int | bytes]]


class PacketFacts(NamedTuple):
    """What a packet says of itself."""

    time: int | None
    clock: int  # 0: the one of its sequence
    sequence: int
    flags: int
    dropped: bool  # packets before it are missing


def _numbers(fields: Fields) -> dict[int, int]:
    return {number: value for number, value in fields if isinstance(value, int)}


def _messages(fields: Fields, number: int) -> Iterator[Fields]:
    for found, value in fields:
        if found == number and isinstance(value, bytes):
            yield _perfetto.read_fields(value)[0]


def _texts(fields: Fields, number: int) -> list[str]:
    return [
        value.decode("utf-8", "replace")
        for found, value in fields
        if found == number and isinstance(value, bytes)
    ]


def _text(fields: Fields, number: int) -> str:
    return next(iter(_texts(fields, number)), "")


@dataclass
class _OwnClock:
    """A clock of one sequence, and where it stood when the clocks were compared."""

    boot: int
    value: int
    unit: int
    incremental: bool


class _Clocks:
    """Turns times of any clock into those of CLOCK_BOOTTIME, by the snapshots so far."""

    def __init__(self) -> None:
        self.epoch = 0
        self.shifts: dict[int, int] = {_BOOTTIME: 0}
        self._own: dict[tuple[int, int], _OwnClock] = {}

    def take(self, fields: Fields, sequence: int) -> None:
        """Take a snapshot."""
        shown: dict[int, tuple[int, int, bool]] = {}
        for message in _messages(fields, 1):
            of = _numbers(message)
            unit = of.get(4, 1) or 1
            value = of.get(2, 0) * unit
            if value < _TIMES:
                shown[of.get(1, 0)] = value, unit, bool(of.get(3))
        boot = shown.get(_BOOTTIME, (None,))[0]
        if boot is None:
            known = (value + self.shifts[c] for c, (value, *_) in shown.items() if c in self.shifts)
            boot = next(known, None)
        if boot is None:
            return
        if _REALTIME in shown and not self.epoch:
            self.epoch = shown[_REALTIME][0] - boot
        for clock, (value, unit, incremental) in shown.items():
            if clock not in _OWN_CLOCKS:
                self.shifts[clock] = boot - value
            elif len(self._own) < _MOST:
                self._own[sequence, clock] = _OwnClock(boot - value, value, unit, incremental)

    def convert(self, time: int, clock: int, sequence: int) -> int | None:
        """Return a time, None where its clock is not known."""
        own = self._own.get((sequence, clock))
        if own is not None:
            own.value = time * own.unit + (own.value if own.incremental else 0)
            found = own.boot + own.value
        elif clock in self.shifts:
            found = time + self.shifts[clock]
        else:
            return None
        return found if 0 < found < _TIMES else None


def _kind_of(numbers: Mapping[int, int], fields: Fields) -> tuple[int, int]:
    """Return what a track event is, and how long (ns) where it says so, as Chrome's old ones do."""
    legacy = next(_messages(fields, 6), None)
    if numbers.get(9) or legacy is None:
        return numbers.get(9, 0), 0
    of = _numbers(legacy)
    phase = chr(of.get(2, 0) & 0x7F)
    duration = of.get(3, 0) * 1000 if phase == "X" else 0
    return _PHASES.get(phase, 0), duration


@dataclass
class _Sequence:
    """What the packets of one sequence refer to."""

    valid: bool = True
    names: dict[int, str] = field(default_factory=dict)
    track: int = 0
    clock: int = 0
    thread: tuple[int, int] | None = None

    def clear(self) -> None:
        self.names.clear()
        self.track = self.clock = 0
        self.valid = True


class _SliceMarks:
    """Writes slices as marks of their threads."""

    def __init__(self, clocks: _Clocks, pages: _perfetto.PageWriter) -> None:
        self._clocks, self._pages = clocks, pages
        self._sequences: dict[int, _Sequence] = {}
        self._tracks: dict[int, tuple[int, int, int]] = {}  # parent, process, thread (0: none)
        self.written = 0
        self.left: Counter[str] = Counter()

    def follow(self, facts: PacketFacts, *, anew: bool = False) -> _Sequence:
        """Return the sequence of a packet; `anew`: its flags and losses are taken."""
        if len(self._sequences) >= _MOST and facts.sequence not in self._sequences:
            return _Sequence()
        of = self._sequences.setdefault(facts.sequence, _Sequence())
        if anew and facts.dropped:
            of.valid = False
        if anew and facts.flags & _CLEARED:
            of.clear()
        return of

    def intern(self, of: _Sequence, fields: Fields) -> None:
        for name in _messages(fields, 2):
            if len(of.names) < _MOST:
                of.names[_numbers(name).get(1, 0)] = _text(name, 2)

    def describe_track(self, fields: Fields) -> tuple[int, int] | None:
        """Note a track; return its process and thread if it is one's."""
        numbers = _numbers(fields)
        process = thread = 0
        for of in _messages(fields, 3):
            process = _numbers(of).get(1, 0)
        for of in _messages(fields, 4):
            process, thread = _numbers(of).get(1, 0), _numbers(of).get(2, 0)
        if len(self._tracks) < _MOST:
            self._tracks[numbers.get(1, 0)] = numbers.get(5, 0), process, thread
        return (process, thread) if thread else None

    def _owner(self, track: int) -> tuple[int, int] | None:
        """Return the process and thread of a track, thread 0 for one that is of no thread."""
        own = True
        for _ in range(64):
            known = self._tracks.get(track)
            if known is None:
                return None
            parent, process, thread = known
            if thread and own:
                return process, thread
            if process:
                return process, 0
            own, track = False, parent
            if not track:
                return 0, 0
        return None

    def take(self, of: _Sequence, facts: PacketFacts, fields: Fields) -> None:
        """Write what begins or ends a slice."""
        numbers = _numbers(fields)
        kind, duration = _kind_of(numbers, fields)
        if kind not in {_BEGIN, _END, _INSTANT}:
            return  # of a counter or a state
        if facts.time is None:
            self.left["without a time of their own"] += 1
            return
        if facts.flags & _NEEDED and not of.valid:
            self.left["whose names were in packets that are missing"] += 1
            return
        time = self._clocks.convert(
            facts.time, facts.clock or of.clock or _BOOTTIME, facts.sequence
        )
        if time is None:
            self.left["of a clock that the file does not relate to others"] += 1
            return
        track = numbers.get(11, of.track)
        owner = self._owner(track) if track else of.thread
        if owner is None:
            self.left["of a track that is not described"] += 1
            return
        name = _text(fields, 23) or of.names.get(numbers.get(10, 0), "")
        self._mark(kind, time, owner, name, track)
        if kind == _BEGIN and owner[1] and 0 < duration < _TIMES:
            self._mark(_END, time + duration, owner, "", track)

    def _mark(self, kind: int, time: int, owner: tuple[int, int], name: str, track: int) -> None:
        """Write a begin, an end or a moment; of no thread they have a cookie, and may overlap."""
        process, thread = owner
        if kind == _INSTANT:
            text = f"I|{process}|{name}"
        elif not thread:
            text = f"{'S' if kind == _BEGIN else 'F'}|{process}|{name}|{track}"
        else:
            text = f"E|{process}" if kind == _END else f"B|{process}|{name}"
        self._write(time, thread or process, text)

    def _write(self, time: int, thread: int, text: str) -> None:
        made = _PRINT + text.replace("\n", " ").encode("utf-8", "replace")[:1000] + b"\n\0"
        self._pages.add(0, time, made[:4] + (thread & 0xFFFFFFFF).to_bytes(4, "little") + made[8:])
        self.written += 1


# ``ftrace/print`` up to its text: the ID, no thread yet, no address.
_PRINT: Final = PRINT.to_bytes(2, "little") + bytes(14)


class _PacketReader:
    """A file on its way into a raw directory."""

    def __init__(self, writer: RawWriter) -> None:
        self._writer = writer
        self.pages = _perfetto.PageWriter(str(writer.directory), held=True)
        self._beside = writer.directory / _MARKS
        self._beside.mkdir(mode=0o700)
        self._marks = _perfetto.PageWriter(str(self._beside), held=True)
        self._clocks = _Clocks()
        self._slices = _SliceMarks(self._clocks, self._marks)
        self._described = DescribedEvents(writer)
        self._enabled: set[str] = set()
        self._overruns: dict[int, dict[int, int]] = {}  # by phase and cpu
        self._kernels: set[str] = set()
        self._depth = self._damaged = 0
        self._takers: dict[int, Callable[[Fields, PacketFacts], None]] = {
            _TREE: self._take_tree,
            _CLOCKS: self._take_clocks,
            _FTRACE_STATS: self._take_ftrace_stats,
            _STATS: self._take_stats,
            _CONFIG: self._take_config,
            _SYSTEM: self._take_system,
            _THREAD: self._take_thread,
            _TRACK: self._take_track,
        }
        self.packets = _perfetto.Packets(
            self.pages,
            [
                (s.number, s.number, s.size, [(t.field, t.way, t.offset, t.size) for t in s.slots])
                for s in SHAPES
            ],
            SWITCH,
            WAKING,
            self._take,
            self._described.make_record,
            frozenset(
                {*self._takers, *_OTHER_KERNELS, _TRACK_EVENT, _INTERNED, _DEFAULTS, _ZLIB, _ZSTD}
            ),
        )

    def _take(
        self, number: int, payload: bytes, said: tuple[int | None, int, int, int, bool]
    ) -> None:
        """Take what a packet holds besides ftrace's events."""
        if number in {_ZLIB, _ZSTD}:
            self._take_packed(number, payload)
            return
        if number in _OTHER_KERNELS:
            self._kernels.add(_OTHER_KERNELS[number])
            return
        facts = PacketFacts(*said)
        of = self._slices.follow(facts, anew=number == 0)
        fields, whole = _perfetto.read_fields(payload)
        self._damaged += not whole
        if number == _TRACK_EVENT:
            self._slices.take(of, facts, fields)
        elif number == _INTERNED:
            self._slices.intern(of, fields)
        elif number == _DEFAULTS:
            of.clock = _numbers(fields).get(58, 0)
            for event in _messages(fields, 11):
                of.track = _numbers(event).get(11, 0)
        elif number:
            self._takers[number](fields, facts)

    def _take_packed(self, number: int, payload: bytes) -> None:
        if self._depth:
            raise self._writer.broken("packs packets within packed ones")
        unpacked = _unpack_zlib(payload) if number == _ZLIB else _unpack_zstd(payload)
        if unpacked is None:
            self._damaged += 1
            self._writer.warn("packets that are packed are damaged: what was in them is missing")
            self.lose_all()
            return
        self._depth += 1
        try:
            taken, _ = self.packets.feed(unpacked)
        finally:
            self._depth -= 1
        if taken < len(unpacked):
            self._damaged += 1
            self.lose_all()

    def lose_all(self) -> None:
        """Note that something is missing of every cpu, from what was read last on."""
        self.packets.mark_all_lost()

    def _take_clocks(self, fields: Fields, facts: PacketFacts) -> None:
        self._clocks.take(fields, facts.sequence)
        if _RAW in self._clocks.shifts:
            self.packets.raw_shift = self._clocks.shifts[_RAW]

    def _take_tree(self, fields: Fields, _: PacketFacts) -> None:
        for process in _messages(fields, 1):
            pid = _numbers(process).get(1, 0)
            command = _text(process, 3)
            if not _numbers(process).get(9):
                command = PurePosixPath(command).name[:15]
            self._writer.add_thread(pid, pid, command)
        for thread in _messages(fields, 2):
            of = _numbers(thread)
            self._writer.add_thread(of.get(1, 0), of.get(3, 0), _text(thread, 2))

    def _take_thread(self, fields: Fields, facts: PacketFacts) -> None:
        of = _numbers(fields)
        self._slices.follow(facts).thread = of.get(1, 0), of.get(2, 0)
        self._writer.add_thread(of.get(2, 0), of.get(1, 0), _text(fields, 5))

    def _take_track(self, fields: Fields, _: PacketFacts) -> None:
        thread = self._slices.describe_track(fields)
        if thread is not None:
            name = next((_text(of, 5) for of in _messages(fields, 4)), "")
            self._writer.add_thread(thread[1], thread[0], name)

    def _take_system(self, fields: Fields, _: PacketFacts) -> None:
        host, of = self._writer.host, _numbers(fields)
        for name in _messages(fields, 1):
            host["kernel"], host["machine"] = _text(name, 3), _text(name, 4)
        host["name"] = _text(fields, 17)
        if 0 < of.get(8, 0) <= 1 << 16:
            host["cpus"] = of[8]
        self._writer.tool["version"] = _text(fields, 4)

    def _take_ftrace_stats(self, fields: Fields, _: PacketFacts) -> None:
        counts = self._overruns.setdefault(_numbers(fields).get(1, 0), {})
        for cpu in _messages(fields, 2):
            of = _numbers(cpu)
            lost = sum(of.get(number, 0) for number in (3, 4, 8))
            number = of.get(1, 0)
            if lost < _TIMES:
                counts[number] = max(counts.get(number, 0), lost)

    def _take_config(self, fields: Fields, _: PacketFacts) -> None:
        for source in _messages(fields, 2):
            for config in _messages(source, 1):
                for ftrace in _messages(config, 100):
                    self._enabled.update(_texts(ftrace, 1)[:_MOST])

    def _add_formats(self) -> None:
        """Describe the events that there were, or that were asked for."""
        found = self.packets.occurred
        for shape in SHAPES:
            names = {shape.name, f"{shape.group}/{shape.name}", f"{shape.group}/*"}
            marks = shape.number == PRINT and self._slices.written
            if shape.number in found or marks or names & self._enabled:
                self._writer.add_format(shape.group, shape.format)

    def _take_stats(self, fields: Fields, _: PacketFacts) -> None:
        dropped = sum(_numbers(b).get(19, 0) for b in _messages(fields, 1))
        if dropped:
            self._writer.warn(
                f"Perfetto's buffers were full: {plural(dropped, 'time')} packets were dropped;"
                " record with larger ones"
            )

    def finish(self) -> None:
        """Write what is left, and say what there is to say."""
        writer, packets = self._writer, self.packets
        packets.finish()
        written = self.pages.close()
        begun, ended = self._overruns.get(1, {}), self._overruns.get(2, {})
        for cpu, (*_, lost, _) in written.items():
            counted = ended.get(cpu, 0) - begun.get(cpu, 0)
            if counted > 0 and counted >= lost:
                writer.count(cpu, {"overrun": counted})
        if not any(records for records, *_ in written.values()):
            raise UnreadableError(
                f"{writer.file}: has no events of the kernel" + self._other_kernels(),
                "record with Perfetto's data source linux.ftrace, with the events sched/* at least",
            )
        self._add_formats()
        writer.take_pages(written)
        self._finish_marks(min(written))
        writer.clock, writer.epoch = self._clock(), self._clocks.epoch
        writer.tool.setdefault("name", "perfetto")
        if packets.skipped_switches:
            writer.warn(
                f"{packets.skipped_switches:,} switch{'es' * (packets.skipped_switches > 1)} left"
                " out: of the first of a cpu, and after a loss, the compact form does not say who"
                " ran"
            )
        if packets.damaged or self._damaged:
            writer.warn(
                f"{plural(packets.damaged + self._damaged, 'message')} damaged: what was in them is"
                " missing"
            )
        if packets.foreign:
            writer.warn(f"{plural(packets.foreign, 'packet')} of other machines left out")
        kinds = packets.left_out | packets.described
        if kinds:
            most = ", ".join(f"{k} ({n:,})" for k, n in Counter(kinds).most_common(5))
            writer.warn(
                f"{plural(sum(kinds.values()), 'event')} of kinds that critpath has no use for left"
                f" out, by their fields in Perfetto's FtraceEvent: {most}"
            )
        for why, count in self._slices.left.items():
            writer.warn(f"{plural(count, 'slice')} left out: {why}")

    def _other_kernels(self) -> str:
        return f"; it is of {', '.join(sorted(self._kernels))}" if self._kernels else ""

    def _finish_marks(self, cpu: int) -> None:
        """Close the marks, and call them a cpu's that there is."""
        for _, first, last, late, *_ in self._marks.close().values():
            self._writer.add_cpu(cpu, first, last)
            if late:
                self._writer.warn(f"{plural(late, 'slice')} out of order, whose times were changed")
            (self._beside / "cpu0").rename(self._beside / f"cpu{cpu}")

    def _clock(self) -> str:
        """Return what the kernel calls the clock of the times."""
        if not self.packets.clockless:
            return "boot"
        names = {_FTRACE_CLOCKS.get(n, f"{n}") for n in self.packets.clocks}
        self._writer.warn(
            f"ftrace's clock is {' and '.join(sorted(names))}, and the file does not relate it to"
            " others: slices of programs may lie elsewhere"
            + (", and cpus may differ" if _LOCAL in self.packets.clocks else "")
        )
        return "local" if _LOCAL in self.packets.clocks else "global"


def _unpack_zlib(payload: bytes) -> bytes | None:
    try:
        unpacker = zlib.decompressobj()
        made = unpacker.decompress(payload, _LARGEST)
    except zlib.error:
        return None
    return made if unpacker.eof else None


def _unpack_zstd(payload: bytes) -> bytes | None:
    try:
        zstd: Any = import_module("compression.zstd")
    except ImportError:  # before Python 3.14
        require("a trace whose packets zstd compressed", "parquet")
        arrow: Any = import_module("pyarrow")
        try:
            with arrow.CompressedInputStream(arrow.BufferReader(payload), "zstd") as stream:
                return bytes(stream.read(_LARGEST))
        except OSError:
            return None
    try:
        return bytes(zstd.ZstdDecompressor().decompress(payload, _LARGEST))
    except zstd.ZstdError:
        return None


def write_raw(stream: IO[bytes], writer: RawWriter) -> None:
    """Write what a file holds as a raw directory.

    Raises
    ------
    UnreadableError
        If it has no events of the kernel.
    """
    packed = stream.read(2) == _GZIP
    stream.seek(0)
    conversion = _PacketReader(writer)
    source = gzip.GzipFile(fileobj=stream) if packed else stream
    rest, needed, place = b"", 0, 0
    while True:
        try:
            block = source.read(max(_BLOCK, needed - len(rest)))
        except (EOFError, zlib.error, gzip.BadGzipFile):
            writer.warn("the packed file is cut off or damaged: what follows is missing")
            conversion.lose_all()
            break
        if not block:
            if rest:
                writer.warn("the file ends within a packet: it is cut off")
            break
        data = rest + block
        taken, needed = conversion.packets.feed(data)
        place, rest = place + taken, data[taken:]
        if needed < 0 or needed > _LARGEST:
            writer.warn(f"byte {place:,} is no packet's: what follows is missing")
            conversion.lose_all()
            break
    conversion.finish()
