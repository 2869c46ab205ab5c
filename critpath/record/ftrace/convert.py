"""Converts a raw directory of ring-buffer pages to an LTTng-named CTF 1.8 trace.

Each cpu's pages are gone through twice.  What has to be known before the first packet is
gathered first: which processes forks belong to, which takes the forks of all cpus in
order of time, and where events were lost.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import uuid
from array import array
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from critpath.errors import CritpathError
from critpath.model import CpuLoss
from critpath.record.ftrace import _pages
from critpath.record.ftrace.ctf_directory import whole_or_nothing
from critpath.record.ftrace.ctf_events import (
    EventClass,
    compile_event,
    integer,
    programs,
    unique_names,
)
from critpath.record.ftrace.ctf_losses import PlacedLoss, place_losses
from critpath.record.ftrace.ctf_metadata import COMPACT_IDS, metadata, packet_header
from critpath.record.ftrace.ctf_raw import Raw, read_raw
from critpath.record.ftrace.ctf_statedump import statedump_classes, statedump_packet
from critpath.record.ftrace.formats import (
    Format,
    PageLayout,
    check_entry_header,
    read_format,
    read_page_layout,
)
from critpath.record.ftrace.tgids import gathering, resolve_forks
from critpath.units import plural

# Of uuid5: a trace's identity follows from its session, so that converting twice gives
# the same bytes.
_SPACE: Final = uuid.UUID("c0a9f3a2-5f43-5d0c-9a53-0a8a2b1f6c11")

# How far times may lie outside of the recording before a page counts as damaged (ns).
_SLACK: Final = 10 * 10**9
_LONGEST: Final = 400 * 86_400 * 10**9  # where the recording's end is not known

_T = TypeVar("_T")


@dataclass(frozen=True)
class Converted:
    """What became of a raw directory.

    Attributes
    ----------
    events : int
        All that are in the trace: `recorded`, those of the statedump, and
        ``critpath_current``.
    recorded : int
        Those of the kernel's buffers only: what its counters and the loss are about.
    names : tuple of str
        Events that were recorded, as the trace calls them, whether they occurred or not.
    loss : tuple of CpuLoss
        Only cpus that lost something.
    warnings : tuple of str
    end : int
        Until when (ns): what the recorder noted, or the last event if it did not get so far.
    """

    events: int
    recorded: int
    names: tuple[str, ...]
    loss: tuple[CpuLoss, ...]
    warnings: tuple[str, ...]
    end: int = 0


@dataclass(frozen=True)
class _Events:
    """The events that were recorded: their classes, and the formats of the forks'."""

    classes: tuple[EventClass, ...]
    form: Format
    fork: tuple[Format, EventClass] | None
    newtask: tuple[Format, EventClass] | None
    switch: tuple[Format, EventClass] | None


@dataclass(frozen=True)
class _Scanned:
    """What the first pass found in one cpu's pages; `events` are the kernel's own."""

    events: int
    last: int
    gathered: bytes
    loss: PlacedLoss
    warnings: tuple[str, ...]


def _read_events(directory: Path, first: int) -> _Events:
    """Read the format files; ids in the trace count from `first`."""
    files = sorted(p for p in directory.glob("*.*") if p.is_file())
    found = []
    by_name: dict[str, tuple[Format, EventClass]] = {}
    forms: dict[int, Path] = {}
    # Of what is read of every record, and each form says only how long its own ones are.
    place: tuple[int, int] | None = None
    for number, file in enumerate(files, first):
        group = file.name.partition(".")[0]
        form = read_format(file)
        if form.number in forms:
            raise CritpathError(
                f"{file}: has the same ID as {forms[form.number].name}", "record again"
            )
        if place not in (None, _place(form)):
            raise CritpathError(f"{file}: has other common fields than the others", "record again")
        forms[form.number], place = file, _place(form)
        one = compile_event(group, form, number)
        found.append((group, one))
        by_name[f"{group}.{form.name}"] = form, one
    if not found:
        raise CritpathError(
            f"{directory}: has no format files", "convert a raw directory of `critpath record`"
        )
    return _Events(
        classes=tuple(unique_names(found)),
        form=next(iter(by_name.values()))[0],
        fork=by_name.get("sched.sched_process_fork"),
        newtask=by_name.get("task.task_newtask"),
        switch=by_name.get("sched.sched_switch"),
    )


def _place(form: Format) -> tuple[int, int]:
    return form.common["common_flags"].offset, form.common["common_pid"].offset


@contextlib.contextmanager
def _pages_of(file: Path) -> Iterator[mmap.mmap | bytes]:
    """Map a cpu's pages; nothing where there are none."""
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
    """One conversion under way.

    Parameters
    ----------
    raw : Raw
    tell : callable
    """

    def __init__(self, raw: Raw, tell: Callable[[str], None]) -> None:
        self.raw, self._tell = raw, tell
        self.layout = _layout(raw)
        dump = statedump_classes(0, cgroups=bool(raw.cgroups)) if raw.threads else ()
        self.events = _read_events(raw.directory / "formats", len(dump) + 1)
        self.dump = dump
        current = EventClass("critpath_current", len(dump), (integer("tid", 4, signed=True),))
        self.classes = (*dump, current, *self.events.classes)
        self.identity = uuid.uuid5(_SPACE, f"{raw.session} {raw.begin} {raw.epoch}")
        end = raw.end + _SLACK if raw.end else raw.begin + _LONGEST
        self.decoder = _pages.Pages(
            (
                *(self.layout.commit_offset, self.layout.commit_size),
                *(self.layout.data_offset, self.layout.data_size, self.layout.bytes),
                *_place(self.events.form),
            ),
            (max(0, raw.begin - _SLACK), end),
            *programs(self.classes),
            large=len(self.classes) > COMPACT_IDS,
            current=_current(current, self.events.switch),
        )

    def write(self, directory: Path) -> Converted:
        """Write the trace into an empty directory."""
        raw = self.raw
        size = sum(_size(raw.directory / f"cpu{cpu}") for cpu in raw.cpus)
        self._tell(
            f"converting {size / 2**20:.0f} MB of {plural(len(raw.cpus), 'cpu')} to an LTTng trace"
        )
        environment = _environment(raw)
        clock = uuid.uuid5(_SPACE, f"{raw.host.get('name', '')} {raw.epoch}")
        text = metadata(
            self.classes,
            identity=self.identity,
            clock=clock,
            epoch=raw.epoch,
            environment=environment,
        )
        (directory / "metadata").write_text(text, encoding="utf-8")
        also = gathering(self.events.fork, self.events.newtask)
        scanned = self._each(lambda cpu: self._scan(cpu, *also))
        end = raw.end or max((s.last for s in scanned), default=0)
        beside = resolve_forks([s.gathered for s in scanned], raw.threads, raw.threads_end)
        parts = dict(zip(raw.cpus, zip(scanned, beside, strict=True), strict=True))
        events = sum(self._each(lambda cpu: self._convert(directory, cpu, end, *parts[cpu])))
        if self.dump:
            header = packet_header(self.identity, len(raw.cpus))
            packet = statedump_packet(
                raw.threads, raw.cgroups, self.dump, header, count=len(self.classes)
            )
            with (directory / "statedump_0").open("wb") as stream:
                stream.writelines(packet)
            events += len(raw.threads) + len(raw.cgroups) + 2
        warnings = [w for s in scanned for w in s.warnings]
        if raw.stats is None:
            warnings.append("the recorder did not get to its end: events may be missing at the end")
        return Converted(
            events=events,
            recorded=sum(s.events for s in scanned),
            names=tuple(sorted(c.name for c in self.classes)),
            loss=tuple(
                CpuLoss(cpu, s.loss.events)
                for cpu, s in zip(raw.cpus, scanned, strict=True)
                if s.loss.events
            ),
            warnings=tuple(warnings),
            end=end,
        )

    def _each(self, work: Callable[[int], _T]) -> list[_T]:
        """Do something for every cpu, as many at once as may run here."""
        most = max(1, min(len(self.raw.cpus), len(os.sched_getaffinity(0))))
        with ThreadPoolExecutor(most) as threads:
            try:
                return list(threads.map(work, self.raw.cpus))
            except BaseException:
                self.decoder.cancel()
                threads.shutdown(cancel_futures=True)
                raise

    def _scan(self, cpu: int, starts: array[int], words: array[int]) -> _Scanned:
        file = self.raw.directory / f"cpu{cpu}"
        with _pages_of(file) as data, memoryview(data) as view:
            events, unknown, short, backward, _, last, missed, damaged, gathered = (
                self.decoder.scan(view, starts, words)
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
        stats = None if self.raw.stats is None else self.raw.stats.get(cpu)
        loss = place_losses(cpu, missed, damaged, events + unknown + short, stats)
        return _Scanned(events, last, gathered, loss, (*warnings, *loss.warnings))

    def _convert(
        self, directory: Path, cpu: int, end: int, scanned: _Scanned, beside: bytearray
    ) -> int:
        header = packet_header(self.identity, self.raw.cpus.index(cpu))
        with (
            _pages_of(self.raw.directory / f"cpu{cpu}") as data,
            memoryview(data) as view,
            (directory / f"kernel_{cpu}").open("wb", buffering=0) as stream,
        ):
            span = self.raw.begin, max(self.raw.begin, end)
            return self.decoder.write(
                view, stream.fileno(), header, cpu, span, scanned.loss.places, memoryview(beside)
            )


def _current(current: EventClass, switch: tuple[Format, EventClass] | None) -> tuple[int, int, int]:
    """Return what the decoder needs to see that a switch was not written.

    Every record has the thread that was current.  Where that is not the one of the last
    switch, ``critpath_current`` is put in front and names it: some kernels leave out
    switches, mostly from idle, without counting them as lost.
    """
    if switch is None:
        return -1, -1, -1
    form, one = switch
    offset = next((f.offset for f in form.fields if f.name == "next_pid" and f.size == 4), -1)
    return (current.id, one.number, offset) if offset >= 0 else (-1, -1, -1)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def _layout(raw: Raw) -> PageLayout:
    if sys.byteorder != "little":
        raise CritpathError(
            "ring-buffer pages of a big-endian machine cannot be converted",
            "record with LTTng: critpath record --recorder lttng",
        )
    check_entry_header(raw.directory / "header_event")
    file = raw.directory / "header_page"
    layout = read_page_layout(file)
    if layout.bytes != raw.page_bytes:
        raise CritpathError(
            f"{file}: describes pages of {layout.bytes} bytes, raw.json has {raw.page_bytes}",
            "convert a raw directory that is whole",
        )
    return layout


def _environment(raw: Raw) -> Mapping[str, object]:
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
    }


def convert(raw: Path, trace: Path, tell: Callable[[str], None]) -> Converted:
    """Convert a raw directory to a CTF trace, whole or not at all.

    Parameters
    ----------
    raw : Path
        What the ftrace recorder left; also of one that was killed, and then without the
        kernel's counters and perhaps with half a page at the end.
    trace : Path
        Directory that is made; the trace is in its ``kernel``.
    tell : callable
        Is told in one line what takes a while.

    Returns
    -------
    Converted

    Raises
    ------
    CritpathError
        If the raw directory lacks what is needed, `trace` exists already, or cannot be
        written.  Damaged pages are no error but a loss and a warning.
    """
    try:
        conversion = _Conversion(read_raw(raw), tell)
        with whole_or_nothing(trace) as directory:
            kernel = directory / "kernel"
            kernel.mkdir(mode=0o700)
            return conversion.write(kernel)
    except OSError as error:
        raise CritpathError(
            f"{error.filename or trace}: {error.strerror}",
            "make room or choose another place, and convert again: the raw recording is whole",
        ) from error
