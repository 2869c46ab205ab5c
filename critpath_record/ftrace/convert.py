"""Converts a raw directory of ring-buffer pages to an LTTng-named CTF 1.8 trace.

Each CPU's pages are read twice.  The first pass gathers what the first packet depends
on: which processes forks belong to, for which the forks of all CPUs are put in order of
time, and where events were lost.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import mmap
import os
import re
import shutil
import struct
import sys
import uuid
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from critpath.errors import CritpathError, UnreadableError
from critpath.model import CpuLoss, Gap, StreamFacts
from critpath.units import plural
from critpath_record.budget.gaps import BASE, JOURNAL, is_under_budget, last_time, read_journal
from critpath_record.ctf.beside import gap_classes, label_class, pack_gaps, pack_labels
from critpath_record.ctf.statedump import Row, ThreadState, pack_statedump, statedump_classes
from critpath_record.ctf.trace import COMPACT_IDS, CtfEventClass, TraceWriter, declare_integer
from critpath_record.dirfd import list_matching
from critpath_record.ftrace import _pages
from critpath_record.ftrace.ctf_events import (
    FORK_BESIDE,
    Step,
    compile_event,
    compile_programs,
    make_names_unique,
)
from critpath_record.ftrace.formats import (
    EventFormat,
    PageLayout,
    check_entry_header,
    read_format,
)
from critpath_record.ftrace.hands import BEAT, find_missing_beats
from critpath_record.ftrace.raw import (
    LABELS,
    LAYERS,
    MARKER_EVENT,
    MARKS,
    RawRecording,
    read_raw,
    read_stats,
)

# Of uuid5: a trace's identity follows from its session, so that converting twice gives
# the same bytes.
_SPACE: Final = uuid.UUID("c0a9f3a2-5f43-5d0c-9a53-0a8a2b1f6c11")

# How far times may lie outside of the recording before a page counts as damaged (ns).
_SLACK: Final = 10 * 10**9
_LONGEST: Final = 400 * 86_400 * 10**9  # where the recording's end is not known

_MOST_LOOKED_THROUGH: Final = 1 << 29  # bytes of pages that are searched for marks

_T = TypeVar("_T")


@dataclass(frozen=True)
class ConversionResult:
    """The result of a conversion."""

    # All that are in the trace: `recorded`, those of the statedump, and ``critpath_current``.
    events: int
    recorded: int  # those of the kernel's buffers only: what its counters and the loss are about
    # Events that were enabled, by their names in the trace, whether they occurred or not.
    names: tuple[str, ...]
    loss: tuple[CpuLoss, ...]  # only CPUs that lost something
    warnings: tuple[str, ...]
    end: int = 0  # when recording ended (ns): by the recorder's note, or else the last event
    marks: int = -1  # marks of executions' begins and ends; -1 where the pages are too many to look
    tasks: int = -1  # marks with tasks that runtimes ran, as far as these are looked for
    gaps: tuple[Gap, ...] = ()  # when the tracer was kept from recording
    streams: tuple[StreamFacts, ...] = ()  # what was written


@dataclass(frozen=True)
class _RecordedEvents:
    """The events that were recorded: their classes, and the formats that conversion needs."""

    classes: tuple[CtfEventClass, ...]
    form: EventFormat
    fork: tuple[EventFormat, CtfEventClass] | None
    newtask: tuple[EventFormat, CtfEventClass] | None
    switch: tuple[EventFormat, CtfEventClass] | None
    beat: tuple[EventFormat, CtfEventClass] | None


@dataclass(frozen=True)
class _CpuScan:
    """The result of the first pass over one CPU's pages; `events` are the kernel's own."""

    events: int
    last: int
    gathered: bytes
    loss: LossPlacement
    warnings: tuple[str, ...]


def _read_events(directory: Path, first: int, *, swap: bool) -> _RecordedEvents:
    """Read the format files; ids in the trace count from `first`."""
    files = [p for p in list_matching(directory, "*.*") if p.is_file()]
    found = []
    by_name: dict[str, tuple[EventFormat, CtfEventClass]] = {}
    forms: dict[int, Path] = {}
    # Of what is read of every record, and each form says only how long its own ones are.
    place: tuple[int, int] | None = None
    for number, file in enumerate(files, first):
        group = file.name.partition(".")[0]
        form = read_format(file)
        if form.number in forms:
            raise UnreadableError(
                f"{file}: has the same ID as {forms[form.number].name}", "record again"
            )
        if place not in (None, _common_offsets(form)):
            raise UnreadableError(
                f"{file}: has other common fields than the others", "record again"
            )
        forms[form.number], place = file, _common_offsets(form)
        one = compile_event(group, form, number, swap=swap)
        found.append((group, one))
        by_name[f"{group}.{form.name}"] = form, one
    if not found:
        raise UnreadableError(
            f"{directory}: has no format files", "convert a raw directory of `critpath record`"
        )
    return _RecordedEvents(
        classes=tuple(make_names_unique(found)),
        form=next(iter(by_name.values()))[0],
        fork=by_name.get("sched.sched_process_fork"),
        newtask=by_name.get("task.task_newtask"),
        switch=by_name.get("sched.sched_switch"),
        beat=by_name.get("ftrace.raw_data"),
    )


def _common_offsets(form: EventFormat) -> tuple[int, int]:
    return form.common["common_flags"].offset, form.common["common_pid"].offset


@contextlib.contextmanager
def _map_pages(file: Path) -> Iterator[mmap.mmap | bytes]:
    """Map a CPU's pages; empty if there is no file."""
    try:
        with file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size == 0:
                yield b""
                return
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                mapped.madvise(mmap.MADV_SEQUENTIAL)
                yield mapped
    except FileNotFoundError:
        yield b""


class _Conversion:
    """One conversion under way."""

    def __init__(self, raw: RawRecording, report: Callable[[str], None]) -> None:
        self.raw, self._report = raw, report
        self.layout = _read_layout(raw)
        dump: dict[str, CtfEventClass] = {}
        if raw.threads:
            groups = raw.cgroups or raw.cgroups_end
            dump = statedump_classes(0, groups, raw.sockets, raw.descriptors)
        self.events = _read_events(raw.directory / "formats", len(dump) + 1, swap=raw.big_endian)
        self.dump = dump
        current = CtfEventClass(
            "critpath_current", len(dump), (declare_integer("tid", 4, signed=True),)
        )
        self.labels = label_class(len(dump) + 1 + len(self.events.classes))
        labels = (self.labels,) * (raw.directory / LABELS).is_file()
        self.layers = find_layers(raw.directory)
        first = self.labels.id + len(labels)
        self.gap_classes = gap_classes(first) if is_under_budget(raw.directory) else ()
        self.classes = (
            *(*dump.values(), current, *self.events.classes, *labels, *self.gap_classes),
        )
        self.identity = uuid.uuid5(_SPACE, f"{raw.session} {raw.begin} {raw.epoch}")
        end = raw.end + _SLACK if raw.end else raw.begin + _LONGEST
        self.decoder, self.marks_decoder = (
            _pages.Pages(
                (
                    *(self.layout.commit_offset, self.layout.commit_size),
                    *(self.layout.data_offset, self.layout.data_size, self.layout.bytes),
                    *_common_offsets(self.events.form),
                ),
                (max(0, raw.begin - _SLACK), end),
                *compile_programs(self.classes),
                large=len(self.classes) > COMPACT_IDS,
                current=arguments,
                swap=raw.big_endian,
            )
            # Of the pages of marks alone nobody can tell who should be current.
            for arguments in (_current_arguments(current, self.events.switch), _NONE)
        )

    def write(self, directory: Path, below: str) -> ConversionResult:
        """Write the trace into an empty directory, which is to be at a place below another."""
        raw = self.raw
        size = sum(_size(raw.directory / f"cpu{cpu}") for cpu in raw.cpus)
        self._report(
            f"converting {size / 2**20:.0f} MB of {plural(len(raw.cpus), 'cpu')} to an LTTng trace"
        )
        environment = _environment(raw)
        clock = uuid.uuid5(_SPACE, f"{raw.host.get('name', '')} {raw.epoch}")
        writer = TraceWriter(
            directory,
            self.classes,
            identity=self.identity,
            clock=clock,
            clock_name="monotonic" if raw.clock == "mono" else raw.clock,
            epoch=raw.epoch,
            environment=environment,
        )
        also = gathering_programs(
            self.events.fork, self.events.newtask, self.events.beat, swap=raw.big_endian
        )
        scanned = self._each(lambda cpu: self._scan(cpu, *also))
        end = raw.end or self._find_end(scanned)
        beside = resolve_forks([s.gathered for s in scanned], raw.threads, raw.threads_end)
        parts = dict(zip(raw.cpus, zip(scanned, beside, strict=True), strict=True))
        decoder = self.marks_decoder if self.layers else self.decoder

        def convert_cpu(cpu: int) -> int:
            scan, forks = parts[cpu]
            file, number = raw.directory / f"cpu{cpu}", raw.cpus.index(cpu)
            return self._write_pages(
                writer, file, f"kernel_{cpu}", number, decoder, end, scan, forks
            )

        events = sum(self._each(convert_cpu))
        if self.dump:
            rows: list[Row] = [*raw.sockets, *raw.descriptors, *raw.cgroups_end]
            packet = pack_statedump(writer, self.dump, raw.threads, raw.cgroups, rows)
            events += writer.write_stream("statedump_0", len(raw.cpus), [packet])
        # Streams are numbered: those of the cpus, the statedump, marks, labels, layers and gaps.
        after = 2 * len(raw.cpus) + 1
        if self.labels in self.classes:
            from critpath_record.ftrace.received import read_labels  # noqa: PLC0415 - rare

            found = read_labels(raw.directory / LABELS)
            packets = pack_labels(writer, self.labels.id, found, (raw.begin, end))
            events += writer.write_stream("labels_0", after, packets)
        marked = self._convert_marks(writer, end)
        marked += self._convert_layers(writer, end)
        events += sum(s.events for _, s in marked)
        if self.gap_classes:
            gaps = read_journal(raw.directory / JOURNAL, raw.begin, end)
            packets = pack_gaps(writer, self.gap_classes, gaps)
            number = after + 1 + len(self.layers) * len(raw.cpus)
            events += writer.write_stream("gaps_0", number, packets)
        warnings = [w for s in scanned for w in s.warnings]
        beyond = "a layer" if self.layers else "marks of other users"
        warnings += [f"{beyond}: {w}" for _, s in marked for w in s.warnings]
        if raw.stats is None:
            warnings.append("the recorder did not get to its end: events may be missing at the end")
        marks, tasks = count_marks(raw.directory)
        return ConversionResult(
            events=events,
            recorded=sum(s.events for s in scanned) + sum(s.events for _, s in marked),
            names=tuple(sorted(c.name for c in self.classes)),
            loss=_sum_losses([*zip(raw.cpus, scanned, strict=True), *marked]),
            warnings=tuple(warnings),
            end=end,
            marks=marks,
            tasks=tasks,
            gaps=tuple(self._find_gaps(scanned, end)),
            streams=writer.survey(below),
        )

    def _find_end(self, scanned: Sequence[_CpuScan]) -> int:
        """Return the last time of any buffer or the journal (ns): who was killed noted no end."""
        places = [self.raw.directory / MARKS]
        places += [self.raw.directory / LAYERS / name for name in self.layers]
        beside = [(p / f"cpu{cpu}", cpu) for p in places for cpu in self.raw.cpus]
        none = gathering_programs(None, None)
        found = [self._scan_file(file, cpu, None, none) for file, cpu in beside if file.is_file()]
        last = (one.last for one in (*scanned, *found))
        return max(last_time(self.raw.directory / JOURNAL), *last, 0)

    def _find_gaps(self, scanned: Sequence[_CpuScan], end: int) -> Iterator[Gap]:
        """Yield what the recorder noticed, and what its beats tell."""
        for gap in self.raw.gaps:
            yield replace(gap, begin=max(gap.begin, self.raw.begin), end=min(gap.end, end))
        for cpu, one in zip(self.raw.cpus, scanned, strict=True):
            found = [
                (time, number & 0xFFFF_FFFF)
                for time, which, tag, number, _ in _GATHERED.iter_unpack(one.gathered)
                if which == _BEAT and tag == BEAT
            ]
            # A recorder that was killed could not say how many there were.
            written = self.raw.beats.get(cpu, 0 if self.raw.end else None)
            if written != 0 or found:
                yield from find_missing_beats(cpu, found, written, self.raw.begin, end)

    def _each(self, work: Callable[[int], _T]) -> list[_T]:
        """Do `work` for every CPU, as many at once as may run here."""
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - not for little

        most = max(1, min(len(self.raw.cpus), len(os.sched_getaffinity(0))))
        with ThreadPoolExecutor(most) as threads:
            try:
                return list(threads.map(work, self.raw.cpus))
            except BaseException:
                self.decoder.cancel()
                threads.shutdown(cancel_futures=True)
                raise

    def _scan(self, cpu: int, starts: array[int], words: array[int]) -> _CpuScan:
        stats = None if self.raw.stats is None else self.raw.stats.get(cpu)
        return self._scan_file(self.raw.directory / f"cpu{cpu}", cpu, stats, (starts, words))

    def _scan_file(
        self,
        file: Path,
        cpu: int,
        stats: Mapping[str, int] | None,
        also: tuple[array[int], array[int]],
    ) -> _CpuScan:
        with _map_pages(file) as data, memoryview(data) as view:
            events, unknown, short, backward, _, last, missed, damaged, gathered = (
                self.decoder.scan(view, *also, mapped=len(view) > 0)
            )
            cut = len(view) % self.layout.bytes
        warnings = []
        if not file.exists():
            warnings.append(f"cpu {cpu}: there is no file of it")
        if cut:
            warnings.append(f"cpu {cpu}: the file ends within a page")
        if unknown:
            warnings.append(
                f"cpu {cpu}: {plural(unknown, 'event')} of kinds without a format file left out"
            )
        if short:
            warnings.append(f"cpu {cpu}: {plural(short, 'event')} without all fields left out")
        if backward:
            warnings.append(
                f"cpu {cpu}: {plural(backward, 'event')} earlier than the one before,"
                " whose time they were given"
            )
        loss = place_losses(cpu, missed, damaged, events + unknown + short, stats)
        return _CpuScan(events, last, gathered, loss, (*warnings, *loss.warnings))

    def _convert_marks(self, writer: TraceWriter, end: int) -> list[tuple[int, _CpuScan]]:
        """Write the streams of other users' marks; return the cpus that have any or lost some."""
        place, first = self.raw.directory / MARKS, len(self.raw.cpus) + 1
        return self._convert_beside(writer, place, "marks", first, end, self.marks_decoder)

    def _convert_layers(self, writer: TraceWriter, end: int) -> list[tuple[int, _CpuScan]]:
        """Write the streams of the layers of a recording under a budget."""
        found = []
        for number, name in enumerate(self.layers):
            place = self.raw.directory / LAYERS / name
            first = (2 + number) * len(self.raw.cpus) + 2
            # Switches are of one layer: only of that it can be told who should be current.
            decoder = self.decoder if name == BASE else self.marks_decoder
            found += self._convert_beside(writer, place, name, first, end, decoder)
        return found

    def _convert_beside(
        self,
        writer: TraceWriter,
        place: Path,
        name: str,
        first: int,
        end: int,
        decoder: _pages.Pages,
    ) -> list[tuple[int, _CpuScan]]:
        """Write streams of pages from buffers beside those of the kernel's own streams."""
        stats = read_stats(place / "stats.json") or {}
        found = []
        for number, cpu in enumerate(self.raw.cpus, first):
            file = place / f"cpu{cpu}"
            if not file.is_file():
                continue
            scanned = self._scan_file(file, cpu, stats.get(cpu), gathering_programs(None, None))
            if scanned.events or scanned.loss.events:
                self._write_pages(writer, file, f"{name}_{cpu}", number, decoder, end, scanned)
                found.append((cpu, scanned))
        return found

    def _write_pages(
        self,
        writer: TraceWriter,
        file: Path,
        name: str,
        number: int,
        decoder: _pages.Pages,
        end: int,
        scanned: _CpuScan,
        beside: bytes | bytearray = b"",
    ) -> int:
        """Write the stream of one buffer's pages; return how many events."""
        cpu, header = int(file.name.removeprefix("cpu")), writer.pack_header(number)
        span = self.raw.begin, max(self.raw.begin, end)
        with (
            _map_pages(file) as data,
            memoryview(data) as view,
            (writer.place / name).open("wb", buffering=0) as stream,
        ):
            events = decoder.write(
                *(view, stream.fileno(), header, cpu, span, scanned.loss.places),
                memoryview(beside),
                mapped=len(view) > 0,
            )
        writer.events[name] = events
        return events


_NONE: Final = (-1, -1, -1)


def _sum_losses(scanned: Sequence[tuple[int, _CpuScan]]) -> tuple[CpuLoss, ...]:
    lost: dict[int, int] = {}
    for cpu, of in scanned:
        lost[cpu] = lost.get(cpu, 0) + of.loss.events
    return tuple(CpuLoss(cpu, events) for cpu, events in sorted(lost.items()) if events)


_MARK: Final = re.compile(rb"critpath:(begin|end|tasks) ")
_LONGEST_MARK: Final = 15  # bytes: so much of one may be cut off at the end of a piece
_PIECE: Final = 1 << 20


def find_layers(raw: Path) -> list[str]:
    """Return the layers of a recording under a budget, by their names."""
    place = raw / LAYERS
    return sorted(one.name for one in place.iterdir()) if place.is_dir() else []


def count_marks(raw: Path) -> tuple[int, int]:
    """Return how many marks of executions, and of tasks, the pages hold; -1 if that takes long."""
    if not (raw / "formats" / MARKER_EVENT.replace("/", ".")).exists():
        return 0, 0
    files = [*list_matching(raw, "cpu*"), *list_matching(raw, MARKS, "cpu*")]
    if sum(map(_size, files)) > _MOST_LOOKED_THROUGH:
        return -1, -1
    count: Counter[bool] = Counter()
    for file in files:
        with contextlib.suppress(FileNotFoundError), file.open("rb") as stream:
            end = b""
            while piece := stream.read(_PIECE):
                # What ends within what was looked through before was counted then.
                marks = (m for m in _MARK.finditer(end + piece) if m.end() > len(end))
                count.update(mark[1] == b"tasks" for mark in marks)
                end = (end + piece)[-_LONGEST_MARK:]
    return count[False], count[True]


def _current_arguments(
    current: CtfEventClass, switch: tuple[EventFormat, CtfEventClass] | None
) -> tuple[int, int, int]:
    """Return what the decoder needs to detect a switch that was not written.

    Every record has the thread that was current.  Where it differs from that of the last
    switch, ``critpath_current`` is inserted and names it: some kernels omit switches,
    mostly from idle, without counting them as lost.
    """
    if switch is None:
        return _NONE
    form, one = switch
    offset = next((f.offset for f in form.fields if f.name == "next_pid" and f.size == 4), -1)
    return (current.id, one.number, offset) if offset >= 0 else _NONE


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def _read_layout(raw: RawRecording) -> PageLayout:
    if sys.byteorder != "little":
        raise CritpathError(
            "ring-buffer pages of a big-endian machine cannot be converted",
            "record with LTTng: critpath record --recorder lttng",
        )
    check_entry_header(raw.directory / "header_event")
    file = raw.directory / "header_page"
    layout = PageLayout.read(file)
    if layout.bytes != raw.page_bytes:
        raise UnreadableError(
            f"{file}: describes pages of {layout.bytes} bytes, raw.json has {raw.page_bytes}",
            "convert a raw directory that is whole",
        )
    return layout


def _environment(raw: RawRecording) -> Mapping[str, object]:
    noted = ("timer_functions", "net_devices")
    known = {key: raw.host[key] for key in noted if raw.host.get(key)}
    version = str(raw.recorder.get("version", "0"))
    numbers = [int(part) if part.isdecimal() else 0 for part in version.split(".")[:3]]
    major, minor, patch = [*numbers, 0, 0, 0][:3]
    return {
        "hostname": raw.host.get("name", ""),
        "domain": "kernel",
        "sysname": "Linux",
        "kernel_release": raw.host.get("kernel", ""),
        "machine": raw.host.get("machine", ""),
        "tracer_name": "critpath-ftrace",
        "tracer_major": major,
        "tracer_minor": minor,
        "tracer_patchlevel": patch,
        "recorder_version": version,
        "architecture_bit_width": 64,
        "trace_buffering_scheme": "global",
        "trace_name": raw.session,
        **known,
    }


def convert(raw: Path, trace: Path, report: Callable[[str], None]) -> ConversionResult:
    """Convert a raw directory to a CTF trace, atomically."""
    try:
        conversion = _Conversion(read_raw(raw), report)
        with staged_directory(trace) as directory:
            kernel = directory / "kernel"
            kernel.mkdir(mode=0o700)
            return conversion.write(kernel, f"{trace.name}/{kernel.name}")
    except OSError as error:
        raise CritpathError(
            f"{error.filename or trace}: {error.strerror}",
            "make room or choose another place, and convert again: the raw recording is whole",
        ) from error


# A directory that appears only when it is complete


_UNFINISHED: Final = ".{}.converting"


def _refuse_existing(trace: Path) -> None:
    if trace.is_symlink() or (trace.exists() and (not trace.is_dir() or any(trace.iterdir()))):
        raise CritpathError(
            f"{trace}: exists already", "choose another place, or remove what is there"
        )


@contextlib.contextmanager
def staged_directory(trace: Path) -> Iterator[Path]:
    """Make a directory that becomes `trace` at the end, and is removed after an error.

    `trace` must not exist, or be empty.  A process that is killed leaves ``.NAME.converting``
    beside it, which the next one removes.  Raises CritpathError if `trace` exists or another
    process makes one beside it.
    """
    _refuse_existing(trace)
    unfinished = trace.parent / _UNFINISHED.format(trace.name)
    holder = os.open(trace.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CritpathError(
                f"{trace.parent}: another process converts into it", "wait until it has finished"
            ) from error
        # Of a conversion that was killed: who has the lock is alone.
        if unfinished.exists():
            shutil.rmtree(unfinished)
        unfinished.mkdir(mode=0o700)
        try:
            yield unfinished
            unfinished.rename(trace)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
    finally:
        os.close(holder)


# Losses: the kernel has the numbers, the pages have the places


# Everything that never got into a page, or was overwritten there before it was read.
LOSS_COUNTERS = ("overrun", "commit overrun", "dropped events")


@dataclass(frozen=True)
class LossPlacement:
    """The loss of one cpu."""

    places: array[int]  # pairs, ascending: a page and the number of events lost before it
    events: int  # all of them, placed or not
    warnings: tuple[str, ...]


def place_losses(
    cpu: int,
    missed: Sequence[int],
    damaged: Sequence[int],
    records: int,
    stats: Mapping[str, int] | None,
) -> LossPlacement:
    """Place the events that one CPU's buffer lost."""
    counted: dict[int, int] = {}
    unknown: list[int] = []
    for page, count in zip(missed[::2], missed[1::2], strict=True):
        if count > 0:
            counted[page] = counted.get(page, 0) + count
        else:
            unknown.append(page)
    unknown = sorted({*unknown, *(page + 1 for page in damaged)})
    sure = sum(counted.values())
    warnings = []
    if damaged:
        warnings.append(
            f"cpu {cpu}: {plural(len(damaged), 'page')} of the buffer damaged or cut off:"
            " what was behind the damage is missing"
        )
    if stats is not None:
        total, odd = _count_lost(cpu, sure, records, stats)
        warnings += odd
    else:
        total = sure + len(unknown)
        if unknown:
            warnings.append(
                f"cpu {cpu}: events are missing at {plural(len(unknown), 'place')} that the"
                " kernel has no number for; each counts as one"
            )
    rest = total - sure
    for number, page in enumerate(unknown):
        share = rest // len(unknown) + (number < rest % len(unknown))
        if share:
            counted[page] = counted.get(page, 0) + share
    if rest and not unknown:
        warnings.append(
            f"cpu {cpu}: {plural(rest, 'event')} lost at a time that the kernel does not tell"
        )
    places = array("q")
    for page in sorted(counted):
        places.extend((page, counted[page]))
    return LossPlacement(places, total, tuple(warnings))


def _count_lost(
    cpu: int, sure: int, records: int, stats: Mapping[str, int]
) -> tuple[int, tuple[str, ...]]:
    """Return how many events the kernel's counters say were lost, and warnings."""
    # Read from the buffer, or still in it, and not among the pages.
    unseen = max(0, stats.get("read events", records) + stats.get("entries", 0) - records)
    total = unseen + sum(stats.get(name, 0) for name in LOSS_COUNTERS)
    warnings = []
    if unseen:
        warnings.append(
            f"cpu {cpu}: {plural(unseen, 'event')} of the kernel's buffer did not get into"
            " the recording"
        )
    if sure > total:
        warnings.append(
            f"cpu {cpu}: the pages say that {plural(sure, 'event')} went missing, the"
            f" kernel's counters {total:,}: the greater is taken"
        )
    return max(total, sure), tuple(warnings)


# Forks: the process and pid namespace of both sides


CLONE_THREAD: Final = 0x00010000
CLONE_NEWPID: Final = 0x20000000

_NEWTASK, _FORK, _BEAT = 0, 1, 2
_GATHERED: Final = struct.Struct("<QIiiQ")  # time, which, parent, child, clone flags
_BESIDE: Final = struct.Struct("<iIiI")
assert _BESIDE.size == FORK_BESIDE  # noqa: S101 - two modules agree on one record


def gathering_programs(
    fork: tuple[EventFormat, CtfEventClass] | None,
    newtask: tuple[EventFormat, CtfEventClass] | None,
    beat: tuple[EventFormat, CtfEventClass] | None = None,
    *,
    swap: bool = False,
) -> tuple[array[int], array[int]]:
    """Return the programs that gather forks, new tasks and beats; None: it was not recorded."""
    wanted = []
    copy = Step.SWAP if swap else Step.COPY

    def gather(of: CtfEventClass, which: int, need: int, *words: tuple[int, int] | None) -> None:
        """Have words of a record, each at a place and so long, noted; a zero for None."""
        steps = [(Step.CONSTANT32, which, 0, 0)]
        steps += [(copy, *at, at[1]) if at else (Step.CONSTANT32, 0, 0, 0) for at in words]
        wanted.append(CtfEventClass(of.name, which, (), of.number, need, tuple(steps)))

    if beat is not None:
        form, of = beat
        tag = next((f.offset for f in form.fields if f.name == "id" and f.size == 4), -1)
        if tag >= 0:
            gather(of, _BEAT, tag + 8, (tag, 4), (tag + 4, 4), None, None)
    if newtask is not None:
        form, of = newtask
        at = {f.name: (f.offset, f.size) for f in form.fields}
        pid, flags = at.get("pid", (0, 0)), at.get("clone_flags", (0, 0))
        if pid[1] == 4 and flags[1] in {4, 8}:
            half = () if flags[1] == 8 else (None,)
            who = form.common["common_pid"].offset, 4
            gather(of, _NEWTASK, of.need, who, pid, flags, *half)
    if fork is not None:
        form, of = fork
        at = {f.name: (f.offset, f.size) for f in form.fields}
        parent, child = at.get("parent_pid", (0, 0)), at.get("child_pid", (0, 0))
        if parent[1] == child[1] == 4:
            gather(of, _FORK, of.need, parent, child, None, None)
    return compile_programs(wanted)


def _parse_forks(gathered: bytes, cpu: int) -> Iterator[tuple[int, int, int, int, int, int]]:
    for time, which, parent, child, flags in _GATHERED.iter_unpack(gathered):
        if which == _BEAT:
            continue
        yield time, cpu, which, parent, child, flags


def resolve_forks(
    gathered: Sequence[bytes], threads: Sequence[ThreadState], later: Sequence[ThreadState]
) -> list[bytearray]:
    """Find the process and pid namespace of both sides of every fork."""
    # What a thread id meant at the end holds for its last fork.
    at_end = {t.tid: t for t in later}
    last_fork: dict[int, int] = {}
    for one in gathered:
        for time, which, _, child, _ in _GATHERED.iter_unpack(one):
            if which == _FORK and child in at_end and time <= at_end[child].time:
                last_fork[child] = max(time, last_fork.get(child, 0))
    group: dict[int, tuple[int, int]] = {
        # The statedump takes a while: threads fork before their turn in it has come.
        **{t.tid: (t.tgid, t.namespace) for t in later if t.tid not in last_fork},
        **{t.tid: (t.tgid, t.namespace) for t in threads},
    }
    dumped = iter(threads)
    waiting = next(dumped, None)
    flags_of: dict[int, int] = {}
    found = [bytearray() for _ in gathered]
    streams = [_parse_forks(one, cpu) for cpu, one in enumerate(gathered)]
    for time, cpu, which, parent, child, flags in heapq.merge(*streams, key=lambda e: e[:1]):
        while waiting is not None and waiting.time <= time:
            group[waiting.tid] = waiting.tgid, waiting.namespace
            waiting = next(dumped, None)
        if which == _NEWTASK:
            flags_of[child] = flags
            continue
        known = at_end.get(child) if last_fork.get(child) == time else None
        cloned = flags_of.pop(child, None)
        if cloned is None:
            cloned = CLONE_THREAD if known is not None and known.tgid != child else 0
        mine = group.get(parent)
        if mine is None:
            # A new thread that was seen at the end tells whose it is.
            mine = (known.tgid if known is not None and cloned & CLONE_THREAD else parent), 0
        if cloned & CLONE_THREAD:
            new = mine
        else:
            # Who unshared its pid namespace makes children in another than its own: what
            # was seen at the end goes before what is inherited.
            seen = known.namespace if known is not None else 0
            new = child, seen or (0 if cloned & CLONE_NEWPID else mine[1])
        group[child] = new
        found[cpu] += _BESIDE.pack(mine[0], mine[1], new[0], new[1])
    return found
