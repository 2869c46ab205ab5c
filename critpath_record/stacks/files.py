"""Which file or peer a thread went to sleep for: by its system call, and that call's descriptor.

A small program in the kernel looks that up when a thread goes to sleep, and nowhere else: so a
budget may open and close it as it likes.  What it writes to rings is named after the recording, and
becomes stacks of one frame: ``fsync(audit.log)``.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar, Final

from critpath.errors import CritpathError, with_sudo
from critpath.units import plural
from critpath_marks.sessions import pid_namespace
from critpath_record import bpf
from critpath_record.btf import BTF
from critpath_record.counts.groups import find_root
from critpath_record.counts.syscall_names import syscall_names
from critpath_record.ftrace.drain import online_cpus
from critpath_record.identity import (
    CAP_BPF,
    CAP_PERFMON,
    INITIAL_PID_NAMESPACE,
    has_capability,
)
from critpath_record.recorder import Requirement
from critpath_record.sockets import LISTEN, UNIX, scan_sockets
from critpath_record.source import Source, Taken
from critpath_record.stacks.descriptors import ABOUT, Names, real_names, short_names
from critpath_record.stacks.lookup import (
    EVENTS,
    HEAD,
    LANE,
    LOST,
    MOST,
    OPEN_AT,
    SPENT,
    Lookup,
    Whom,
    assemble_follower,
    find_places,
)
from critpath_record.stacks.rings import (
    ATTRIBUTES,
    BACKWARD,
    RECORD,
    SAMPLED,
    SOFTWARE,
    WATERMARK,
    Ring,
    RingFile,
    Windowed,
    open_event,
)
from critpath_record.stacks.sources import OBJECT_FRAMES, OBJECTS, RAW_OBJECTS, StackRequest
from critpath_record.stacks.unwind import FORMAT, ROW

LAYER: Final = "files"
_RING: Final = 4 << 20  # bytes of each cpu
_BPF_OUTPUT, _RAW = 10, 0x400
_TIME_AT: Final = RECORD.size + 4  # of a record in a ring
_SIZE: Final = struct.Struct("<I")
_ENTERED: Final = 60  # ns to get to the program, and back
_MOST_PROCESSES: Final = 65_536
_MOST_EVENTS: Final = 20_000_000
_MOST_OBJECTS: Final = 100_000
_CHUNK: Final = 4 << 20
_WITHOUT: Final = "record without --files"


def find_needs() -> list[Requirement]:
    """Return what naming files and peers lacks here."""
    if os.geteuid() and not (has_capability(CAP_PERFMON) and has_capability(CAP_BPF)):
        return [Requirement("root", "naming files needs root", with_sudo("record --files"))]
    if platform.machine() != "x86_64":
        what = f"files are named on x86-64 only, this is {platform.machine()}"
        return [Requirement("files", what, _WITHOUT)]
    if not BTF.exists():
        what = "this kernel does not describe its types (CONFIG_DEBUG_INFO_BTF)"
        return [Requirement("files", what, _WITHOUT)]
    if pid_namespace() != INITIAL_PID_NAMESPACE:
        what = "files are not named from within a container (a pid namespace of its own)"
        return [Requirement("files", what, _WITHOUT)]
    return []


class FileEvents(Windowed):
    """The program and its rings, closed when they are made: events are the ns that it took.

    `overwritten`: the newest overwrites the oldest; else what nobody has moved stays, and the rest
    is lost.
    """

    name, event_ns, closed_ns = LAYER, 1.0, 0.04

    def __init__(
        self, request: StackRequest, cpus: Sequence[int] = (), *, size: int, overwritten: bool
    ) -> None:
        super().__init__()
        self.cpus = tuple(cpus) or tuple(online_cpus())
        self.rings: dict[int, Ring] = {}
        self._perf: list[int] = []
        self._link = -1
        self._closing = contextlib.ExitStack()
        try:
            self._make(request, size, overwritten)
        except OSError as error:
            self.close_all()
            what = f"the kernel refuses the program that looks for files: {error.strerror}"
            raise CritpathError(what, _WITHOUT) from None
        except BaseException:
            self.close_all()
            raise

    def _own(self, descriptor: int) -> int:
        self._closing.callback(os.close, descriptor)
        return descriptor

    def _make(self, request: StackRequest, size: int, overwritten: bool) -> None:
        places, tells_state = find_places()
        count = max(self.cpus) + 1
        state = self._own(bpf.make_array(LANE * (count + 1), mapped=True))
        self._state = bpf.map_memory(state, LANE * (count + 1), written=True)
        self._closing.callback(self._state.close)
        events = self._own(bpf.make_map(bpf.EVENTS, 4, 4, count))
        scratch = self._own(bpf.make_map(bpf.ARRAY_OF_CPUS, 4, MOST, 1))
        whom = self._find_whom(request, places["task_struct.tgid"])
        code = Lookup(places, tells_state, whom, count, state, scratch, events).assemble()
        self._program = self._own(bpf.load(code, b"critpath_files"))
        flags, wakeup = (BACKWARD, 0) if overwritten else (WATERMARK, size // 4)
        about = (0, flags, wakeup, 0, 0, 0, 0, 0, 0, 0)
        text = ATTRIBUTES.pack(SOFTWARE, ATTRIBUTES.size, _BPF_OUTPUT, 1, _RAW, *about)
        for cpu in self.cpus:
            file = self._own(open_event(text, -1, cpu, -1, 0))
            self._perf.append(file)
            self.rings[cpu] = Ring(file, size, overwritten=overwritten, time_at=_TIME_AT)
            self._closing.callback(self.rings[cpu].close)
            bpf.write_element(events, cpu, file)

    def _find_whom(self, request: StackRequest, tgid: int) -> Whom:
        """Say whose sleeps are looked at; follow who is started by processes."""
        own, root = os.getpid(), find_root()
        if request.group and root is not None:
            path = root / request.group.lstrip("/")
            return Whom(own, path.stat().st_ino, len(path.relative_to(root).parts))
        if request.machine and not request.processes:
            return Whom(own)
        table = self._own(bpf.make_map(bpf.NEWEST, 4, 4, _MOST_PROCESSES))
        for process in request.processes or (own,):
            bpf.write_element(table, process, process)
        follower = self._own(bpf.load(assemble_follower(table, tgid), b"critpath_forks"))
        self._own(bpf.attach(b"sched_process_fork", follower))
        return Whom(own, processes=table)

    def _switch(self, *, on: bool) -> None:
        if on and self._link < 0:
            self._link = bpf.attach(b"sched_switch", self._program)
        self._state[OPEN_AT] = on

    def turn_off(self) -> None:
        """Run no program, while it is closed."""
        link, self._link = self._link, -1
        if link >= 0:
            os.close(link)

    def _count(self, cpu: int, what: int) -> int:
        return int.from_bytes(self._state[(at := LANE * (cpu + 1) + what) : at + 8], "little")

    def counts(self, cpus: Sequence[int]) -> list[int]:
        """Return the ns that it took so far on each cpu."""
        return [
            self._count(cpu, SPENT) + _ENTERED * self._count(cpu, EVENTS)
            if cpu in self.rings
            else 0
            for cpu in cpus
        ]

    @property
    def lost(self) -> int:
        """How many sleeps found no room."""
        return sum(self._count(cpu, LOST) for cpu in self.cpus)

    def poll_on(self) -> list[int]:
        """Return what is readable when there is something to move."""
        return self._perf

    def close_all(self) -> None:
        """End, and give all back; idempotent."""
        self.turn_off()
        self._closing.close()
        self.rings = {}


@dataclass
class FilesSource(Source):
    """The program, and the file that its rings are moved to."""

    name: ClassVar[str] = LAYER
    follows: ClassVar[bool] = True

    request: StackRequest
    events: FileEvents | None = None
    file: RingFile | None = None
    _data: int = -1
    _lost: int = 0

    @property
    def gate(self) -> FileEvents | None:
        """What a budget opens and closes."""
        return self.events

    def open(self) -> int:
        """Look from now on; under a budget it says when."""
        self.events = FileEvents(self.request, size=_RING, overwritten=False)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        self._data = os.open(self.request.directory / RAW_OBJECTS, flags, 0o600)
        self.file = RingFile(self.events, self._data, LAYER)
        if not self.request.budgeted:
            self.events.open()
        return 0

    def close(self) -> int:
        """Look no more, and move what is left."""
        if self.file is not None and self.events is not None:
            self.file.stop()
            self._lost = self.events.lost
        self._close()
        return 0

    def _close(self) -> None:
        if self.events is not None:
            self.events.close_all()
        if self._data >= 0:
            os.close(self._data)
        self.events, self._data = None, -1

    def drain(self, report: Callable[[str], None]) -> Taken:
        """Name what threads slept for."""
        report("naming files")
        failure = self.file.failure if self.file is not None else ""
        return name_files(self.request.directory, self._lost, failure)

    def abort(self) -> None:
        """End at once; nothing that was taken is kept."""
        if self.file is not None:
            self.file.stop()
        self._close()
        _remove(self.request.directory, RAW_OBJECTS, OBJECTS, OBJECT_FRAMES)


def open_source(request: StackRequest) -> FilesSource:
    """Return what names files and peers."""
    return FilesSource(request)


def _remove(place: Path, *names: str) -> None:
    for name in names:
        with contextlib.suppress(OSError):
            (place / name).unlink()


def name_files(place: Path, lost: int, failure: str = "") -> Taken:
    """Make of what the program wrote what is read: rows of sleeps, and a frame for each object."""
    try:
        facts = _write(place, lost)
    except OSError as error:
        _remove(place, OBJECTS, OBJECT_FRAMES)
        return Taken(warnings=(f"files and peers are not named: {error.strerror}",))
    finally:
        _remove(place, RAW_OBJECTS)
    warnings = []
    if lost:
        warnings.append(f"of {plural(lost, 'sleep')} the file or peer is lost: they came too fast")
    if failure:
        warnings.append(f"of the recording's end no files are named: {failure}")
    return Taken(facts=facts, warnings=tuple(warnings))


def _write(place: Path, lost: int) -> dict[str, object]:
    names = Names(syscall_names(), _find_listening())
    objects: dict[tuple[str, str], int] = {}
    known: dict[bytes, int] = {}
    sleeps = unknown = 0
    with _create(place, OBJECTS) as stream, (place / RAW_OBJECTS).open("rb") as raw:
        for record in _read_records(raw):
            if sleeps >= _MOST_EVENTS:
                lost += 1
                continue
            when, tid, *_, length = HEAD.unpack_from(record)
            about = record[ABOUT : HEAD.size + length]
            if (number := known.get(about)) is None:
                number, found = -1, names.find(record)
                if found is not None and (found in objects or len(objects) < _MOST_OBJECTS):
                    number = objects.setdefault(found, len(objects))
                if len(known) >= _MOST_OBJECTS:
                    known.clear()
                known[about] = number
            stream.write(ROW.pack(when, tid, 0, number, 0))
            sleeps += 1
    whole = real_names({name for _, name in objects})
    short = short_names(whole.values())
    frames = [(f"{call}({short[whole[name]]})", "", 0, "", False) for call, name in objects]
    stacks = [[number] for number in range(len(frames))]
    document = {"format": FORMAT, "frames": frames, "stacks": stacks, "cut": [], "lost": lost}
    with _create(place, OBJECT_FRAMES) as stream:
        stream.write(json.dumps(document, separators=(",", ":")).encode())
    unknown = sum(name.startswith("descriptor ") for _, name in objects)
    facts = {"source": LAYER, "sleeps": sleeps, "objects": len(objects)}
    return {**facts, "unknown": unknown, "lost": lost}


def _create(place: Path, name: str) -> BinaryIO:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    return os.fdopen(os.open(place / name, flags, 0o600), "wb")


def _find_listening() -> set[int]:
    rows, _ = scan_sockets()
    return {row[7] for row in rows if row[5] == LISTEN and row[3] != UNIX}


def _read_records(stream: BinaryIO) -> Iterator[bytes]:
    """Yield what the program wrote, of what rings were moved to a file."""
    left = b""
    while data := stream.read(_CHUNK):
        data, at = left + data, 0
        while at + RECORD.size <= len(data):
            kind, _, size = RECORD.unpack_from(data, at)
            if size < RECORD.size or at + size > len(data):
                break
            if kind == SAMPLED and size >= _TIME_AT + HEAD.size:
                yield data[at + _TIME_AT : at + size]
            at += size
        left = data[at:]
