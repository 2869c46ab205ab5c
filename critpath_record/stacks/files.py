"""Which file or peer a thread went to sleep for: by its system call, and that call's descriptor.

A private instance of ftrace has the system calls of descriptors and the switches; what paths and
addresses programs gave is read by a small program in the kernel (bpf), as no event has it.  Both
are joined after the recording, and written as stacks of one frame: ``fsync(audit.log)``.
"""

from __future__ import annotations

import bisect
import contextlib
import heapq
import json
import os
import platform
import shutil
import struct
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, ClassVar, Final

from critpath.errors import CritpathError
from critpath.units import plural
from critpath_record import bpf
from critpath_record.counts.syscall_names import syscall_names
from critpath_record.ftrace import tracefs
from critpath_record.ftrace._pages import list_records
from critpath_record.ftrace.drain import Drain, online_cpus
from critpath_record.ftrace.formats import read_format
from critpath_record.ftrace.gate import instance_name
from critpath_record.ftrace.raw import page_bytes
from critpath_record.ftrace.received import Probe
from critpath_record.ftrace.tracefs import Instance, TracingWatchdog
from critpath_record.recorder import Requirement
from critpath_record.sockets import INET, INET6, LISTEN, UNIX, scan_sockets
from critpath_record.source import Source, Taken
from critpath_record.stacks.descriptors import (
    CALLS,
    WITH_ARGUMENTS,
    Descriptors,
    Named,
    clean,
    host_port,
    of_listener,
    short_names,
)
from critpath_record.stacks.sources import OBJECT_FRAMES, OBJECTS, RAW_OBJECTS, StackRequest
from critpath_record.stacks.unwind import FORMAT, ROW

LAYER: Final = "files"
_BUFFER_KIB: Final = 8 << 10  # of each cpu
_RING: Final = 1 << 23
_PAUSE: Final = 0.1  # s between looks at the ring
_MOST_ARGUMENTS: Final = 500_000  # paths and addresses that are kept
_MOST_EVENTS: Final = 20_000_000
_MOST_BYTES: Final = 2 << 30  # of pages
_MOST_OBJECTS: Final = 100_000
_MOST_LINKS: Final = 100_000
_APART: Final = 50_000  # ns between the event of a call and what the program read for it
_WINDOW: Final = 256  # bytes of a path or an address
_FACTS: Final = 24  # before them
_ADDRESS: Final = 112
_RECORD: Final = -_FACTS - _WINDOW
# Where the registers of an x86-64 call are.
_FIRST, _SECOND, _THIRD = 112, 104, 96
_READ_TEXT: Final = 114  # bpf_probe_read_user_str
_SLEEPS: Final = "prev_state != 0 && prev_state != 256"
_SCHEDULING: Final = (
    *("sched/sched_switch", "sched/sched_process_exec", "sched/sched_process_exit"),
    "task/task_newtask",
)
_WITHOUT: Final = "record without --files"


def find_needs() -> list[Requirement]:
    """Return what naming files and peers lacks here."""
    if os.geteuid():
        return [Requirement("root", "naming files needs root", "sudo critpath record --files")]
    if platform.machine() != "x86_64":
        what = f"files are named on x86-64 only, this is {platform.machine()}"
        return [Requirement("files", what, _WITHOUT)]
    root = tracefs.find()
    if root is not None and not (root / "events/syscalls/sys_enter_openat").is_dir():
        what = "this kernel has no events of system calls"
        return [Requirement("files", what, _WITHOUT)]
    return []


def assemble(ring: int, lost: int) -> bytes:
    """Return the program at the begin of system calls: arguments are (registers, number).

    Registers: 6 the arguments, 7 the number, 8 where to read, 9 how many bytes to hand over.
    """
    a = bpf.Assembler()
    _choose_place(a)
    _read_place(a)
    _hand_over(a, ring, lost)
    return a.bytes()


def _choose_place(a: bpf.Assembler) -> None:
    """Go on for the calls that are wanted: with the place in register 8, a length in 2."""
    numbers = {name: number for number, name in syscall_names().items()}
    a.copy(6, 1)
    a.put(bpf.LOAD64, 7, 6, 8)
    for name in WITH_ARGUMENTS:
        a.jump_if(7, numbers[name], "wanted")
    a.jump("out")
    a.name("wanted")
    a.set(1, 0)
    for at in range(_RECORD, 0, 8):
        a.put(bpf.STORE64, 10, 1, at)
    a.call(bpf.CURRENT)
    a.copy(1, 0)
    a.call(bpf.REGISTERS)
    a.put(bpf.LOAD64, 8, 0, _SECOND)
    a.put(bpf.LOAD64, 2, 0, _THIRD)
    for name in ("connect", "bind"):
        a.jump_if(7, numbers[name], "address")
    a.jump_if(7, numbers["openat"], "path")
    a.jump_if(7, numbers["openat2"], "path")
    a.copy(1, 8)
    a.put(bpf.LOAD64, 8, 0, _FIRST)
    a.jump_if(7, numbers["poll"], "path", code=bpf.NOT_EQUAL)
    a.jump_if(1, 1, "out", code=bpf.NOT_EQUAL)  # of several descriptors none is the one
    a.set(2, 8)
    a.set(9, 8)
    a.jump("read")


def _read_place(a: bpf.Assembler) -> None:
    """Read a path, or so many bytes; what cannot be read stays zeros."""
    a.name("path")
    a.copy(1, 10)
    a.add(1, _RECORD + _FACTS)
    a.set(2, _WINDOW)
    a.copy(3, 8)
    a.call(_READ_TEXT)
    a.set(9, _WINDOW)
    a.jump("facts")
    a.name("address")
    a.set(9, _ADDRESS)
    a.jump_if(2, _ADDRESS, "read", code=bpf.AT_MOST)
    a.set(2, _ADDRESS)
    a.name("read")
    a.jump_if(2, 0, "facts")
    a.copy(1, 10)
    a.add(1, _RECORD + _FACTS)
    a.copy(3, 8)
    a.call(bpf.READ_USER)


def _hand_over(a: bpf.Assembler, ring: int, lost: int) -> None:
    a.name("facts")
    a.call(bpf.NOW)
    a.put(bpf.STORE64, 10, 0, _RECORD)
    a.put(bpf.STORE64, 10, 7, _RECORD + 8)
    a.call(bpf.PID_TGID)
    a.put(bpf.STORE32, 10, 0, _RECORD + 16)
    a.put(bpf.STORE32, 10, 9, _RECORD + 20)
    a.map(1, ring)
    a.copy(2, 10)
    a.add(2, _RECORD)
    a.copy(3, 9)
    a.add(3, _FACTS)
    a.set(4, bpf.NO_WAKEUP)
    a.call(bpf.OUTPUT)
    a.jump_if(0, 0, "out")
    bpf.count_loss(a, lost)


@dataclass
class Arguments:
    """What programs gave to system calls, by thread and call, in order of time."""

    numbers: Mapping[int, str]
    count: int = 0
    lost: int = 0
    _found: dict[tuple[int, str], list[tuple[int, bytes]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def add(self, when: int, number: int, tid: int, data: bytes) -> None:
        """Keep one."""
        if self.count >= _MOST_ARGUMENTS:
            self.lost += 1
        else:
            self.count += 1
            self._found[tid, self.numbers.get(number, "")].append((when, data))

    def find(self, when: int, name: str, tid: int) -> bytes | None:
        """Return what a call that began then was given; None where that is not known."""
        rows = self._found.get((tid, name))
        if not rows:
            return None
        at = bisect.bisect_left(rows, (when, b""))
        near = [row for row in rows[max(at - 1, 0) : at + 1] if abs(row[0] - when) <= _APART]
        return min(near, key=lambda row: abs(row[0] - when))[1] if near else None


@dataclass
class FilesSource(Source):
    """An instance and a program in the kernel, and what they wrote."""

    name: ClassVar[str] = "files"
    follows: ClassVar[bool] = True

    request: StackRequest
    instance: Instance | None = None
    mover: Drain | None = None
    page: int = 0
    lost: int = 0
    dumps: list[tuple[int, list[int], dict[int, Named], str]] = field(default_factory=list)
    dropped: int = 0  # descriptors that were too many
    kinds: dict[int, tuple[str, str]] = field(default_factory=dict)
    places: dict[str, dict[str, int]] = field(default_factory=dict)
    arguments: Arguments = field(default_factory=lambda: Arguments(syscall_names()))
    _closing: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _ending: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _watch: TracingWatchdog | None = None

    @property
    def pages(self) -> Path:
        """Where pages are while it is recorded."""
        return self.request.directory / RAW_OBJECTS

    def open(self) -> int:
        """Trace system calls of descriptors; raises CritpathError, and leaves nothing then."""
        try:
            self._start()
        except BaseException:
            self.abort()
            raise
        return 0

    def _start(self) -> None:
        root = tracefs.find() or tracefs.mount()
        instance = Instance.pin(root, instance_name(LAYER, self.request.session))
        instance.make()
        self.instance = instance
        self._watch = TracingWatchdog(instance)
        for name, value in (
            *(("tracing_on", "0"), ("trace_clock", "mono"), ("options/overwrite", "0")),
            *(("options/markers", "0"), ("buffer_size_kb", str(_BUFFER_KIB))),
        ):
            instance.write(name, value)
        with contextlib.suppress(CritpathError):
            instance.write("buffer_percent", "12")
        calls = [f"syscalls/sys_{side}_{name}" for name in CALLS for side in ("enter", "exit")]
        instance.write("events/sched/sched_switch/filter", _SLEEPS)
        instance.enable_events(event.replace("/", ":") for event in (*_SCHEDULING, *calls))
        enabled = instance.enabled_events()
        if not {*_SCHEDULING} <= {*enabled}:
            raise CritpathError("the kernel refuses the events of threads", _WITHOUT)
        for event in enabled:
            self._describe(root, event)
        self.page = page_bytes(instance.read("events/header_page"))
        self.pages.mkdir(mode=0o700)
        self.mover = Drain(
            *(instance, self.pages, self.page, _BUFFER_KIB << 10, None), most_bytes=_MOST_BYTES
        )
        self.mover.start(online_cpus())
        self._start_program()
        if self.request.scope != "machine":
            instance.write("options/event-fork", "1")
            instance.write("set_event_pid", " ".join(map(str, self._threads())))
        instance.write("tracing_on", "1")
        self._dump()

    def _threads(self) -> list[int]:
        """Return the threads that are followed, and what they start."""
        found = [] if self.request.machine else [os.getpid()]
        for pid in self.request.processes:
            with contextlib.suppress(OSError):
                found += map(int, os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208 - names
        return found or [os.getpid()]

    def _describe(self, root: Path, event: str) -> None:
        """Note an event's number and where its fields are."""
        found = read_format(root / "events" / event / "format")
        self.kinds[found.number] = event.partition("/")[0], found.name
        self.places[found.name] = {f.name: f.offset for f in found.fields}

    def _start_program(self) -> None:
        probe = self._closing.enter_context(
            Probe.make(_RING, assemble, b"critpath_files", "the program that reads paths", _WITHOUT)
        )
        probe.attach(b"sys_enter")

        def take() -> None:
            for when, number, tid, _, data in probe.take():
                self.arguments.add(when, number, tid, data)

        def run() -> None:
            while not self._ending.wait(_PAUSE):
                take()
            take()
            self.arguments.lost += probe.lost()

        self._thread = threading.Thread(target=run, name="files", daemon=True)
        self._thread.start()

    def _dump(self) -> None:
        """Note what is open already: of all processes, or what the command will inherit."""
        sockets = name_sockets()
        pids = [*map(str, self.request.processes)] or [str(os.getpid())]
        if self.request.scope == "machine":
            pids = [name for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208
        room = _MOST_LINKS
        for pid in pids:
            now = time.monotonic_ns()
            table = dict(_open_now(f"/proc/{pid}", sockets))
            self.dropped += max(len(table) - room, 0)
            table = dict(list(table.items())[:room])
            room -= len(table)
            with contextlib.suppress(OSError):
                tids = [int(tid) for tid in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208
                place = clean(str(Path(f"/proc/{pid}/cwd").readlink()))
                self.dumps.append((now, tids, table, place))

    def close(self) -> int:
        """Trace no more."""
        instance = self.instance
        if instance is None or self.mover is None:
            return 0
        with contextlib.suppress(CritpathError):
            instance.write("tracing_on", "0")
        self._end_program()
        self.mover.stop()
        with contextlib.suppress(CritpathError):
            for cpu in instance.cpus():
                stats = instance.stats(cpu)
                self.lost += stats.get("overrun", 0) + stats.get("dropped events", 0)
        self._remove()
        return 0

    def _end_program(self) -> None:
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._closing.close()

    def _remove(self) -> None:
        instance, self.instance = self.instance, None
        if instance is not None:
            with contextlib.suppress(CritpathError):
                instance.remove()
        if self._watch is not None:
            self._watch.dismiss()

    def drain(self, report: Callable[[str], None]) -> Taken:
        """Follow descriptors through what was traced; write what threads slept for."""
        report("naming files")
        try:
            return self._write()
        except OSError as error:
            for name in (OBJECTS, OBJECT_FRAMES):
                (self.request.directory / name).unlink(missing_ok=True)
            return Taken(warnings=(f"files and peers are not named: {error.strerror}",))
        finally:
            shutil.rmtree(self.pages, ignore_errors=True)

    def _write(self) -> Taken:
        objects: dict[tuple[str, str], int] = {}
        sleeps = unknown = 0
        with self._create(OBJECTS) as stream:  # as they come: they may be many
            for when, tid, about in self._follow():
                number = -1
                if about is not None and (about in objects or len(objects) < _MOST_OBJECTS):
                    number = objects.setdefault(about, len(objects))
                sleeps += 1
                unknown += about is not None and about[1].startswith("descriptor ")
                stream.write(ROW.pack(when, tid, 0, number, 0))
        whole = real_names({name for _, name in objects})
        short = short_names(whole.values())
        frames = [(f"{call}({short[whole[name]]})", "", 0, "", False) for call, name in objects]
        stacks = [[number] for number in range(len(frames))]
        lost = self.lost + self.arguments.lost
        document = {"format": FORMAT, "frames": frames, "stacks": stacks, "cut": []}
        known = {**document, "lost": self.lost}  # sleeps are complete without paths
        with self._create(OBJECT_FRAMES) as stream:
            stream.write(json.dumps(known, separators=(",", ":")).encode())
        warnings = []
        if self.lost:
            what = plural(self.lost, "event")
            warnings.append(f"{what} of files came too fast: some names may be of another file")
        if self.arguments.lost:
            what = plural(self.arguments.lost, "path")
            warnings.append(f"{what} or addresses came too fast, and are not known")
        if self.dropped:
            what = plural(self.dropped, "descriptor")
            warnings.append(f"{what} that were open before the recording are not known")
        facts = {"source": "files", "sleeps": sleeps, "objects": len(objects)}
        return Taken(facts={**facts, "unknown": unknown, "lost": lost}, warnings=tuple(warnings))

    def _create(self, name: str) -> BinaryIO:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        return os.fdopen(os.open(self.request.directory / name, flags, 0o600), "wb")

    def _follow(self) -> Iterator[tuple[int, int, tuple[str, str] | None]]:
        """Yield when a thread went to sleep, which, and for what."""
        found, waiting, own = Descriptors(), self.dumps[::-1], os.getpid()
        switch, new = self.places["sched_switch"], self.places["task_newtask"]
        before = self.places["sched_process_exec"]["old_pid"]
        files = sorted(self.pages.glob("cpu*"))
        events = heapq.merge(*(self._read_pages(file) for file in files), key=_time)
        for count, (when, record) in enumerate(events):
            while waiting and waiting[-1][0] <= when:
                found.dump(*waiting.pop()[1:])
            if count >= _MOST_EVENTS:
                self.lost += 1
                continue
            kind, tid = _HEAD.unpack_from(record)
            group, name = self.kinds.get(kind, ("", ""))
            if group == "syscalls":
                self._call(found, when, tid, name, record)
            elif name == "sched_switch":
                (tid,) = _INT.unpack_from(record, switch["prev_pid"])
                if tid and tid != own:
                    yield when, tid, found.find(tid)
            elif name == "task_newtask":
                (child,) = _INT.unpack_from(record, new["pid"])
                found.fork(tid, child, *struct.unpack_from("<Q", record, new["clone_flags"]))
            elif name == "sched_process_exec":
                found.exec(tid, *_INT.unpack_from(record, before))
            elif name == "sched_process_exit":
                found.exit(tid)

    def _call(self, found: Descriptors, when: int, tid: int, name: str, record: bytes) -> None:
        """Let a thread begin or end a system call."""
        call = name.removeprefix("sys_enter_")
        if call == name:
            (result,) = struct.unpack_from("<q", record, 16)
            found.leave(tid, name.removeprefix("sys_exit_"), result)
            return
        given = struct.unpack_from(f"<{(len(record) - 16) // 8}q", record, 16)
        arguments = self.arguments.find(when, call, tid) if call in WITH_ARGUMENTS else None
        found.enter(tid, call, _numbers(given), arguments)

    def _read_pages(self, file: Path) -> Iterator[tuple[int, bytes]]:
        with file.open("rb") as stream:
            while len(page := stream.read(self.page)) == self.page:
                yield from (
                    (when, record) for when, record in list_records(page) if len(record) >= 8
                )

    def abort(self) -> None:
        """End at once; nothing that was taken is kept."""
        self._end_program()
        if self.mover is not None:
            self.mover.abandon()
        self._remove()
        for name in (OBJECTS, OBJECT_FRAMES):
            (self.request.directory / name).unlink(missing_ok=True)
        shutil.rmtree(self.pages, ignore_errors=True)


_HEAD: Final = struct.Struct("<H2xi")
_INT: Final = struct.Struct("<i")


def open_source(request: StackRequest) -> FilesSource:
    """Return what names files and peers."""
    return FilesSource(request)


def _time(event: tuple[int, bytes]) -> int:
    return event[0]


def _numbers(given: tuple[int, ...]) -> list[int]:
    """Return a call's arguments as the kernel takes them: descriptors have 32 bits."""
    return [(value & 0xFFFFFFFF) - ((value & 0x80000000) << 1) for value in given] + [0] * 6


def _open_now(place: str, sockets: Mapping[int, str]) -> Iterator[tuple[int, Named]]:
    """Yield the descriptors of a process that is there."""
    with contextlib.suppress(OSError):
        for number in os.listdir(f"{place}/fd"):  # noqa: PTH208 - of every process
            with contextlib.suppress(OSError, ValueError):
                link = os.readlink(f"{place}/fd/{number}")  # noqa: PTH115 - as above
                flags = Path(f"{place}/fdinfo/{number}").read_bytes().partition(b"flags:")[2]
                closes = bool(int(flags.split()[0], 8) & 0o2000000)
                name = _name_link(link, sockets)
                if name:
                    yield int(number), Named(clean(name), closes)


def _name_link(link: str, sockets: Mapping[int, str]) -> str:
    kind, _, rest = link.partition(":[")
    if link.startswith("/"):
        return link.removesuffix(" (deleted)")
    if kind == "socket":
        return sockets.get(int(rest.rstrip("]")), "socket")
    return "pipe" if kind == "pipe" else link.partition(":")[2].strip("[]") or link


def real_names(names: Collection[str]) -> dict[str, str]:
    """Return the path without links of every file that others are named like.

    One that a program opened through a link and one that was open before may be the same.
    """
    last = Counter(name.rpartition("/")[2] for name in names)
    places: dict[str, str] = {}
    found = {name: name for name in names}
    for name in names:
        place, _, own = name.rpartition("/")
        if name.startswith("/") and last[own] > 1:
            if place not in places:
                places[place] = os.path.realpath(place or "/")
            found[name] = clean(f"{places[place].rstrip('/')}/{own}")
    return found


def name_sockets() -> dict[int, str]:
    """Return the peer of every socket by its inode; of one that listens its own address."""
    rows, _ = scan_sockets()
    listening = {row[7] for row in rows if row[5] == LISTEN and row[3] in {INET, INET6}}
    found = {}
    for _, _, inode, family, _, state, local, port, remote, peer, _, path in rows:
        if family == UNIX:
            found[inode] = path if state == LISTEN else of_listener(path)
        elif state == LISTEN or not peer:
            found[inode] = host_port(bytes.fromhex(local), port)
        elif port in listening:
            found[inode] = of_listener(host_port(bytes.fromhex(local), port))
        else:
            found[inode] = host_port(bytes.fromhex(remote), peer)
    return found
