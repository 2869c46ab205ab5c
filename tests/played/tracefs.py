"""A kernel that is played: a directory in place of tracefs, and buffers of a real recording.

The product reaches tracefs through one place (`critpath_record.ftrace.tracefs`); a `Kernel`
takes that place, makes instances as real directories below a temporary one and their buffers
as FIFOs, so that threads which poll and splice them do so here too.  Nothing happens by itself:

* `play` lets the recorded events pass, or the next part of them; each instance gets those that
  it records then, by its ``tracing_on`` and ``events/*/enable``, in pages of the kernel's form;
* `emit`, `mark` and `lose` make single ones pass, or count as lost;
* `refuse`, `lack`, `hold`, `tear`, `take_offline`, `unmount` are faults;
* `calls` has what the product did, in order: ``("write", "tracing_on", "1")`` and such.

A test of a recorder takes the fixture ``played``, which is a `Kernel`, and says what happens::

    recorder = played.open_recorder(tmp_path / "rec")    # or any other way to a FtraceRecorder
    begin = recorder.open()
    played.play()                                        # the whole recording passes
    end = recorder.close()
    result = recorder.drain(print)                      # a trace, in tmp_path / "rec"
    assert played.instances == []

Time is the recording's: `clock` stands in for the module ``time`` where the recorder looks at it,
stands still between events, and moves when somebody sleeps.  Recorded by ``capture.py``.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import fnmatch
import functools
import json
import os
import re
import shutil
import struct
import tarfile
import tempfile
import termios
import threading
import time as real_time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from critpath_marks.sessions import new_session_name
from critpath_record import registry, shown, sockets
from critpath_record.ftrace import cleanup, drain, hands, marks, preflight, recorder, tracefs
from critpath_record.recorder import RecorderSettings

ARCHIVE: Final = Path(__file__).resolve().parents[2] / "fixtures/played-tracefs/recording.tar.xz"
PAGE: Final = 4096
DATA: Final = PAGE - 16
DEAD: Final = 4194999  # no process has this number
PRINT, BEAT, SWITCH = "ftrace/print", "ftrace/raw_data", "sched/sched_switch"
CLOCKS: Final = ("local", "global", "counter", "uptime", "perf", "mono", "mono_raw", "boot")

_TIME_EXTEND, _TIME_STAMP, _PADDING = 30, 31, 29
_MISSED, _STORED = 1 << 31, 1 << 30
_PIPE: Final = 1 << 20  # bytes, the most that a FIFO may hold
_SETTINGS: Final = {
    "tracing_on": "1\n",
    "tracing_cpumask": "3\n",
    "buffer_size_kb": "1408\n",
    "buffer_percent": "50\n",
    "buffer_subbuf_size_kb": "4\n",
    "current_tracer": "nop\n",
    "set_event": "",
    "set_event_pid": "",
    "set_event_notrace_pid": "",
    "trace": "",
    "trace_marker": "",
    "trace_marker_raw": "",
    "trace_options": "overwrite\nmarkers\n",
    "options/overwrite": "1\n",
    "options/markers": "1\n",
}
_EAGER: Final = (
    "tracing_on",
    "current_tracer",
    "set_event",
    "trace_clock",
    "trace_marker",
    "options/markers",
)
_OF_EVENT: Final = {"enable": "0\n", "filter": "none\n", "trigger": ""}
_STOP: Final = "sched/sched_kthread_stop"  # on which triggers are put that never fire


@dataclass(frozen=True)
class Event:
    """An event as the kernel has it: ns, cpu, ``group/event``, and its record."""

    time: int
    cpu: int
    name: str
    record: bytes


@dataclass(frozen=True)
class Recording:
    """What `capture.py` recorded; read once."""

    texts: Mapping[str, bytes]
    pages: Mapping[int, bytes]

    @classmethod
    @functools.cache
    def shipped(cls) -> Recording:
        """Return the one of ``fixtures/``."""
        with tarfile.open(ARCHIVE) as tar:
            found = {}
            for entry in tar:
                stream = tar.extractfile(entry)
                assert stream is not None
                found[entry.name] = stream.read()
        pages = {int(n[3:]): found.pop(n) for n in list(found) if re.fullmatch(r"cpu\d+", n)}
        return cls(found, dict(sorted(pages.items())))

    def json(self, name: str) -> Any:
        return json.loads(self.texts[f"{name}.json"])

    @property
    def facts(self) -> dict[str, int]:
        """``pid`` of the command, ``begin`` and ``end`` (ns)."""
        return self.json("facts")

    @functools.cached_property
    def formats(self) -> dict[str, bytes]:
        """The kernel's description of each event, by ``group/event``."""
        found = {n: text for n, text in self.texts.items() if n.startswith("formats/")}
        return {n[8:].replace(".", "/", 1): text for n, text in sorted(found.items())}

    @functools.cached_property
    def ids(self) -> dict[str, int]:
        return {n: int(re.search(rb"ID: (\d+)", text)[1]) for n, text in self.formats.items()}  # type: ignore[index]

    @functools.cached_property
    def events(self) -> tuple[Event, ...]:
        """Every event of every cpu in order of time."""
        names = {number: name for name, number in self.ids.items()}
        found = []
        for cpu, pages in self.pages.items():
            for at in range(0, len(pages), PAGE):
                page = pages[at : at + PAGE]
                for when, first, last in find_records(page):
                    record = page[first:last]
                    found.append(Event(when, cpu, names[record[0] | record[1] << 8], record))
        return tuple(sorted(found, key=lambda event: (event.time, event.cpu)))

    @functools.cached_property
    def fields(self) -> dict[str, dict[str, tuple[int, int]]]:
        pattern = rb"field:[^;]*?(\w+)(?:\[[^;]*\])?;\s*offset:(\d+);\s*size:(\d+);"
        return {
            name: {f.decode(): (int(at), int(size)) for f, at, size in re.findall(pattern, text)}
            for name, text in self.formats.items()
        }

    def make_record(self, name: str, values: Mapping[str, int | bytes]) -> bytes:
        """Return the record of an event of numbers and byte strings of a fixed size."""
        fields = self.fields[name]
        record = bytearray(max(at + size for at, size in fields.values()))
        for key, value in {"common_type": self.ids[name], **values}.items():
            at, size = fields[key]
            raw = (
                value
                if isinstance(value, bytes)
                else (value % (1 << 8 * size)).to_bytes(size, "little")
            )
            if size == 0:  # a text of any length, up to the end
                record += raw + b"\0"
            else:
                record[at : at + size] = raw[:size].ljust(size, b"\0")
        return bytes(record)


def find_records(page: bytes | bytearray) -> Iterator[tuple[int, int, int]]:
    """Yield the time of each event of a page, and where its record begins and ends."""
    now, commit = struct.unpack_from("<QQ", page)
    at, end = 16, 16 + (commit & ((1 << 27) - 1))
    while at < end:
        [word] = struct.unpack_from("<I", page, at)
        kind, delta = word & 31, word >> 5
        at += 4
        if kind == _PADDING:
            if delta == 0:
                return
            at += struct.unpack_from("<I", page, at)[0]
            now += delta
            continue
        if kind in {_TIME_EXTEND, _TIME_STAMP}:
            value = struct.unpack_from("<I", page, at)[0] << 27 | delta
            now = now + value if kind == _TIME_EXTEND else value
            at += 4
            continue
        now += delta
        size = kind * 4
        if kind == 0:
            size = struct.unpack_from("<I", page, at)[0] - 4
            at += 4
        yield now, at, at + size
        at += size


class Ring:
    """One cpu's buffer of an instance; full pages wait in a FIFO."""

    def __init__(self, fifo: Path) -> None:
        self.fifo = fifo
        os.mkfifo(fifo, 0o600)
        self.file = os.open(fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.fcntl(self.file, fcntl.F_SETPIPE_SZ, _PIPE)
        self.counts: list[int] = []  # events of each page that was ever full
        self.overrun = self.dropped = 0
        self._data = bytearray()
        self._count = self._began = self._last = 0
        self._missed = self._overwritten = 0

    def put(self, time: int, record: bytes) -> None:
        """Write an event, as the kernel does."""
        padded = record.ljust(-(-len(record) // 4) * 4, b"\0")
        room = len(padded) + 16
        if self._count and len(self._data) + room > DATA:
            self.end_page()
        if not self._count:
            self._began = self._last = time
        delta = max(0, time - self._last)
        if delta >= 1 << 27:
            self._data += struct.pack("<II", _TIME_EXTEND | delta % (1 << 27) << 5, delta >> 27)
            delta = 0
        if len(padded) <= 112:
            self._data += struct.pack("<I", len(padded) // 4 | delta << 5) + padded
        else:
            self._data += struct.pack("<II", delta << 5, len(padded) + 4) + padded
        self._last = max(time, self._last)
        self._count += 1

    def lose(self, count: int) -> None:
        """Count events as overwritten; the next page says so."""
        self.end_page()
        self.overrun += count
        self._missed += count

    def end_page(self, torn: bool = False) -> None:
        """Let readers have the page that is being written, full or not."""
        if not self._count:
            return
        page = self._finish_page(bytes(self._data), len(self._data), self._missed)
        page = struct.pack("<Q", self._began) + page
        while True:
            try:
                os.write(self.file, page[: PAGE // 2] if torn else page)
                break
            except BlockingIOError:  # full: the oldest goes
                os.read(self.file, PAGE)
                lost = self.counts.pop(-self._waiting() - 1)
                self.overrun += lost
                self._overwritten += lost
        self.counts.append(self._count)
        self._data.clear()
        self._count = self._missed = 0

    @staticmethod
    def _finish_page(data: bytes, commit: int, missed: int) -> bytes:
        """Return a page without its time; it says how many events are missing before it."""
        if missed:
            data = data[:commit]
            if commit + 8 <= DATA:
                data += struct.pack("<Q", missed)
                commit |= _STORED
            commit |= _MISSED
        return (struct.pack("<Q", commit) + data).ljust(PAGE - 8, b"\0")

    def settle(self) -> None:
        """Have the oldest page that waits say what was overwritten before it."""
        self.end_page()
        if not self._overwritten:
            return
        pages = os.read(self.file, _PIPE)
        commit = struct.unpack_from("<Q", pages, 8)[0] & (_STORED - 1)
        first = self._finish_page(pages[16:PAGE], commit, self._overwritten)
        self._overwritten = 0
        os.write(self.file, pages[:8] + first + pages[PAGE:])

    def _waiting(self) -> int:
        """Return how many pages nobody has read."""
        size = array.array("i", [0])
        if self.file >= 0:
            fcntl.ioctl(self.file, termios.FIONREAD, size)
        return -(-size[0] // PAGE)

    def stats(self) -> str:
        """Return the kernel's counts."""
        waiting = self._waiting()
        unread = sum(self.counts[len(self.counts) - waiting :]) + self._count
        read = sum(self.counts) + self._count - unread
        return (
            f"entries: {unread}\noverrun: {self.overrun}\ncommit overrun: 0\n"
            f"bytes: {waiting * DATA + len(self._data)}\noldest event ts:     1.000000\n"
            f"now ts:     2.000000\ndropped events: {self.dropped}\nread events: {read}\n"
        )

    def clear(self) -> None:
        """Forget what nobody has read."""
        self._data.clear()
        self._count = 0
        with contextlib.suppress(BlockingIOError):
            while os.read(self.file, _PIPE):
                pass

    def close(self) -> None:
        """End it: readers see the end, as of a cpu that is gone."""
        file, self.file = self.file, -1
        if file >= 0:
            os.close(file)


class Clock:
    """Stands in for the module ``time``: the recording's time, which only moves when told."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.slept: list[float] = []

    def monotonic_ns(self) -> int:
        self.now += 1000
        return self.now

    def monotonic(self) -> float:
        return self.now / 1e9

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += int(seconds * 1e9)

    def __getattr__(self, name: str) -> Any:
        return getattr(real_time, name)


@dataclass
class _Refusal:
    action: str
    name: str
    number: int
    times: int


class Kernel(tracefs.Files):
    """See the module; made by `play_kernel`, or the fixture ``kernel``."""

    def __init__(self, recording: Recording | None = None) -> None:
        # In memory: hundreds of small files.  And short: a socket's path has 108 bytes.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
        self.home = home = Path(tempfile.mkdtemp(dir=memory))
        self.recording = recording or Recording.shipped()
        self.root = home / "tracefs"
        self.cpus = list(self.recording.pages)
        self.clock = Clock(self.recording.facts["begin"])
        self.calls: list[tuple[str, ...]] = []
        self.rings: dict[str, dict[int, Ring]] = {}
        self.beats: dict[str, dict[int, int]] = {}
        self.lacking: list[str] = []
        self._refusals: list[_Refusal] = []
        self._played = self._interrupted = 0
        self._lock = threading.RLock()
        (home / "rings").mkdir(parents=True)
        self.root.mkdir()
        (self.root / "instances").mkdir()
        self._fill(self.root)
        (self.root / "events/sched/sched_switch").mkdir(parents=True)
        self._write(self.root / "options/record-cmd", "1\n")
        self._write(self.root / "saved_cmdlines", "")
        self._write(self.root / "available_events", self._available())
        self.mounts = home / "mounts"
        self.mount()
        self.online = home / "online"
        self._tell_online()

    # What a test says

    def open_recorder(self, directory: Path, **values: Any) -> recorder.FtraceRecorder:
        """Return a recorder into a directory, which is made; `values` are of its settings."""
        directory.mkdir()
        settings = RecorderSettings(new_session_name(), directory, **values)
        return recorder.FtraceRecorder(settings)

    @property
    def instances(self) -> list[str]:
        """The names of those that exist, sorted."""
        return sorted(p.name for p in (self.root / "instances").iterdir())

    @property
    def written(self) -> list[tuple[str, str]]:
        """What was written, in order: file of an instance, text."""
        return [(name, text) for kind, name, text in self.of("write")]

    def of(self, action: str) -> list[tuple[str, ...]]:
        """Return the calls of one kind."""
        return [call for call in self.calls if call[0] == action]

    def play(self, share: float = 1.0, lost: Callable[[Event], bool] | None = None) -> int:
        """Let recorded events pass, up to a share of them all; return how many did.

        Those that are to be lost are overwritten before anybody reads them.
        """
        until = int(len(self.recording.events) * share)
        events = self.recording.events[self._played : until]
        self._played = max(self._played, until)
        kept: list[Event] = []
        for event in events if lost is not None else ():
            if lost(event):
                self._pass(kept)
                self.lose(event.cpu, 1)
                kept = []
            else:
                kept.append(event)
        self._pass(events if lost is None else kept)
        return len(events)

    def emit(
        self,
        name: str,
        cpu: int = 0,
        *,
        at: int = 0,
        after: int = 1000,
        times: int = 1,
        **values: int | bytes,
    ) -> None:
        """Let an event pass, so many ns later, and as often as it is said; other fields are 0.

        Later than now, or than a time that is given: the clock stands still then.
        """
        record = self.recording.make_record(name, values)
        moments = [(at or self.clock.now) + after * (n + 1) for n in range(times)]
        if not at:
            self.clock.now = moments[-1]
        self._pass([Event(moment, cpu, name, record) for moment in moments])

    def mark(self, *texts: str, cpu: int = 0, pid: int = 1, instance: str = "") -> None:
        """Let marks of a program pass, into one instance or all that have marks."""
        events = []
        for text in texts:
            values = {"common_pid": pid, "buf": text.encode() + b"\n"}
            self.clock.now += 1000
            record = self.recording.make_record(PRINT, values)
            events.append(Event(self.clock.now, cpu, PRINT, record))
        self._pass(events, only=instance)

    def lose(self, cpu: int, count: int) -> None:
        """Let events of a cpu be overwritten before anybody reads them, in every instance."""
        with self._lock:
            for name, rings in self.rings.items():
                if self._is_on(self.root / "instances" / name):
                    rings[cpu].lose(count)
        self._update_stats()

    def drop(self, cpu: int, count: int) -> None:
        """Let events of a cpu find no room, in every instance."""
        with self._lock:
            for rings in self.rings.values():
                rings[cpu].dropped += count
        self._update_stats()

    def end_pages(self) -> None:
        """Let readers have every page as it is, full or not."""
        with self._lock:
            for rings in self.rings.values():
                for ring in rings.values():
                    ring.end_page()

    def tear(self, cpu: int) -> None:
        """Let readers have half a page of what a cpu has written."""
        with self._lock:
            for rings in self.rings.values():
                rings[cpu].end_page(torn=True)

    def refuse(self, action: str, name: str, number: int, times: int = 1 << 30) -> None:
        """Refuse calls of files by a pattern, ``events/*/trigger``: so often, with an errno.

        `action` is make, remove, open, read or write; of make and remove the pattern is of
        the instance's name.
        """
        self._refusals.append(_Refusal(action, name, number, times))

    def interrupt(self, number: int) -> None:
        """Let a signal come, which raises KeyboardInterrupt, with the call of this number."""
        self._interrupted = number

    def lack(self, pattern: str) -> None:
        """Have no such events (``sched/*``) or files (``events/*/*/trigger``) from now on."""
        self.lacking.append(pattern)
        self._write(self.root / "available_events", self._available())
        for file in sorted(self.root.rglob("*"), reverse=True):
            name = file.relative_to(self.root).as_posix()
            if self._lacks(name) and not name.startswith("instances"):
                shutil.rmtree(file) if file.is_dir() else file.unlink()

    def take_offline(self, cpu: int) -> None:
        """Let a cpu go, with what its buffers hold."""
        with self._lock:
            self.cpus.remove(cpu)
            self._tell_online()
            for rings in self.rings.values():
                rings[cpu].close()

    def hide_cpu(self, cpu: int) -> None:
        """Say that a cpu is not online, though it has buffers; `show_cpus` undoes it."""
        self.online.write_text(",".join(str(c) for c in self.cpus if c != cpu) + "\n")

    def show_cpus(self) -> None:
        self._tell_online()

    def unmount(self) -> None:
        """Let tracefs be mounted nowhere."""
        self.mounts.write_text("proc /proc proc rw 0 0\n", encoding="ascii")

    def mount(self) -> Path:
        """Let it be mounted; the product's own `mount` comes here too."""
        place = str(self.root).replace(" ", "\\040")
        self.mounts.write_text(f"nodev {place} tracefs rw 0 0\n", encoding="ascii")
        return self.root

    def make_left_over(self, name: str) -> Path:
        """Make an instance as somebody else would."""
        place = self.root / "instances" / name
        place.mkdir()
        self._populate(place)
        return place

    @staticmethod
    def dead_session() -> str:
        """Return the name of a session whose process is gone."""
        return new_session_name().replace(f"-{os.getpid()}-", f"-{DEAD}-")

    def kill(self, of: recorder.FtraceRecorder) -> None:
        """Let a recorder be gone at once: its threads end and its files close, no more."""
        gone = [of._instance]
        if of._drain is not None:
            of._drain.abandon()
        if of._marks is not None:
            gone.append(of._marks.instance)
            if of._marks._drain is not None:
                of._marks._drain.abandon()
        if of._marker >= 0:
            os.close(of._marker)
        for instance in gone:
            if instance is not None and instance.home >= 0:
                os.close(instance.home)
        of._instance = of._marks = None
        of._marker = -1

    def turn_off(self, name: str) -> None:
        """Turn an instance off as a recorder's watchdog does."""
        place = self.root / "instances" / name
        with self._lock:
            self._end_pages(name)
            self._write(place / "tracing_on", "0\n")
            self._truncated(place / "set_event")

    def close(self) -> None:
        """End it, whatever is still there."""
        shutil.rmtree(self.home, ignore_errors=True)
        for rings in self.rings.values():
            for ring in rings.values():
                ring.close()

    # What the product does

    def make(self, place: Path) -> None:
        place = self._resolve(place)
        self._note("make", place.name)
        place.mkdir()
        self._populate(place)

    def remove(self, place: Path) -> None:
        place = self._resolve(place)
        self._note("remove", place.name)
        if not place.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(place))
        if self._holds(place):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(place))
        with self._lock:
            for ring in self.rings.pop(place.name, {}).values():
                ring.close()
                ring.fifo.unlink()
        shutil.rmtree(place)

    def open(self, place: Path, flags: int) -> int:
        place = self._resolve(place)
        self._note("open", self._name(place))
        self._provide(place)
        if place.name == "trace_pipe_raw":  # who begins to read gets what there is
            self._end_pages(place.relative_to(self.root).parts[1])
        descriptor = super().open(place, flags)
        if flags & os.O_TRUNC:
            self._truncated(place)
        return descriptor

    def read(self, place: Path) -> bytes:
        place = self._resolve(place)
        self._note("read", self._name(place))
        self._provide(place)
        if place.name == "stats":
            self._update_stats()
        return super().read(place)

    def write(self, descriptor: int, text: bytes) -> None:
        place = Path(f"/proc/self/fd/{descriptor}").readlink()
        name, value = self._name(place), text.decode().strip()
        self._note("write", name, value)
        with self._lock:
            if name == "set_event":
                self._set_event(place.parent, value)
                return
            if name == "trace_clock":
                self._check(value in CLOCKS)
                value = " ".join(f"[{c}]" if c == value else c for c in CLOCKS)
            if name == "buffer_size_kb":
                value = str(max(8, -(-int(value) // 4) * 4))
                for file in place.parent.glob("per_cpu/*/buffer_size_kb"):
                    self._write(file, f"{value}\n")
            if name == "tracing_on" and value == "0":
                self._end_pages(place.parent.name)
            if name.endswith("/trigger"):
                self._set_trigger(place, value)
                return
        super().write(descriptor, f"{value}\n".encode())

    # How it is done

    def _note(self, action: str, name: str, *text: str) -> None:
        self.calls.append((action, name, *text))
        if len(self.calls) == self._interrupted:
            raise KeyboardInterrupt
        for refusal in self._refusals:
            if refusal.action == action and fnmatch.fnmatch(name, refusal.name) and refusal.times:
                refusal.times -= 1
                raise OSError(refusal.number, os.strerror(refusal.number), name)

    @staticmethod
    def _resolve(place: Path) -> Path:
        """Return the path without ``/proc/self/fd/N``; a file's own links stay."""
        return Path(os.path.realpath(place.parent)) / place.name

    def _name(self, place: Path) -> str:
        """Return a file's name relative to its instance, or to the root."""
        parts = place.relative_to(self.root).parts
        return "/".join(parts[2:] if parts[0] == "instances" else parts)

    @staticmethod
    def _check(sound: bool) -> None:
        if not sound:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    @staticmethod
    def _write(place: Path, text: str | bytes) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode() if isinstance(text, str) else text)

    def _tell_online(self) -> None:
        self.online.write_text(",".join(map(str, self.cpus)) + "\n", encoding="ascii")

    def _lacks(self, name: str) -> bool:
        return any(
            fnmatch.fnmatch(name, pattern)
            or fnmatch.fnmatch(name, f"events/{pattern}")
            or fnmatch.fnmatch(name, f"events/{pattern}/*")
            for pattern in self.lacking
        )

    def _events(self) -> list[str]:
        return [name for name in self.recording.formats if not self._lacks(f"events/{name}")]

    def _available(self) -> str:
        lines = self.recording.texts["available_events"].decode().splitlines()
        kept = [x for x in lines if not self._lacks("events/" + x.replace(":", "/", 1))]
        return "".join(f"{line}\n" for line in kept)

    def _fill(self, place: Path) -> None:
        """Make those files of the root or an instance that are looked at by their paths."""
        for name in _EAGER:
            self._provide(place / name)

    def _provide(self, place: Path) -> None:
        """Make a file as it first is, if the kernel has it: of thousands few are ever used."""
        name = self._name(place)
        text: str | bytes | None = _SETTINGS.get(name)
        if name == "trace_clock":
            text = " ".join(f"[{c}]" if c == "local" else c for c in CLOCKS) + "\n"
        group, _, file = name.removeprefix("events/").rpartition("/")
        if name.startswith("events/"):
            text = self.recording.texts.get(file) if not group else None
            if group in {*self._events(), _STOP}:
                text = _OF_EVENT.get(file, self.recording.formats.get(group))
        if text is not None and not place.exists() and not self._lacks(name):
            self._write(place, text)

    def _populate(self, place: Path) -> None:
        self._fill(place)
        rings = {}
        for cpu in self.recording.pages:
            of = place / f"per_cpu/cpu{cpu}"
            self._write(of / "buffer_size_kb", "1408\n")
            self._write(of / "trace", "")
            ring = Ring(self.home / "rings" / f"{place.name}.cpu{cpu}")
            (of / "trace_pipe_raw").symlink_to(ring.fifo)
            self._write(of / "stats", ring.stats())
            rings[cpu] = ring
            if cpu not in self.cpus:
                ring.close()
        with self._lock:
            self.rings[place.name] = rings

    def _holds(self, place: Path) -> bool:
        """Return whether this process has a file of an instance open."""
        ours = {ring.file for ring in self.rings.get(place.name, {}).values()}
        rings = str(self.home / "rings" / place.name) + ".cpu"
        for link in list(Path("/proc/self/fd").iterdir()):
            with contextlib.suppress(OSError):
                to = str(link.readlink())
                if to.startswith((f"{place}/", rings)) and int(link.name) not in ours:
                    return True
        return False

    @staticmethod
    def _is_on(place: Path) -> bool:
        return (place / "tracing_on").read_bytes()[:1] == b"1"

    @staticmethod
    def _enabled(place: Path) -> set[str]:
        files = place.glob("events/*/*/enable")
        return {f"{f.parts[-3]}/{f.parts[-2]}" for f in files if f.read_bytes()[:1] == b"1"}

    def _pass(self, events: Iterable[Event], only: str = "") -> None:
        events = list(events)
        with self._lock:
            for name, rings in self.rings.items():
                place = self.root / "instances" / name
                if (only and name != only) or not self._is_on(place):
                    continue
                wanted = self._enabled(place)
                has_marks = (place / "options/markers").read_bytes()[:1] == b"1"
                if has_marks and (only or not name.startswith(marks.PREFIX)):
                    wanted.add(PRINT)
                beats = self.beats.get(name)
                if beats is not None:
                    wanted.add(BEAT)
                for event in events:
                    if event.name in wanted and event.cpu in self.cpus:
                        rings[event.cpu].put(event.time, event.record)
                        if event.name == BEAT and beats is not None:
                            beats[event.cpu] = beats.get(event.cpu, 0) + 1
            if events:
                self.clock.now = max(self.clock.now, events[-1].time)
        self._update_stats()

    def _update_stats(self) -> None:
        with self._lock:
            for name, rings in self.rings.items():
                for cpu, ring in rings.items():
                    stats = self.root / "instances" / name / f"per_cpu/cpu{cpu}/stats"
                    # In place: whoever has it open sees the new counts.
                    with contextlib.suppress(FileNotFoundError), stats.open("r+b") as stream:
                        stream.write(ring.stats().encode())
                        stream.truncate()

    def _end_pages(self, name: str) -> None:
        for ring in self.rings.get(name, {}).values():
            if ring.file >= 0:
                ring.settle()

    def _truncated(self, place: Path) -> None:
        name = self._name(place)
        if name == "set_event":
            for file in place.parent.glob("events/*/*/enable"):
                file.write_bytes(b"0\n")
        if name == "trace":
            for ring in self.rings.get(place.parent.name, {}).values():
                ring.clear()

    def _set_event(self, place: Path, value: str) -> None:
        if not value:
            return
        off = value.startswith("!")
        group, _, event = value.removeprefix("!").rpartition(":")
        pattern = f"{group or '*'}/{event or '*'}"
        known = [e for e in self._events() if fnmatch.fnmatch(e, pattern)]
        known = [e for e in known if not e.startswith("ftrace/")]
        self._check(bool(known))
        for name in known:
            self._write(place / "events" / name / "enable", b"0\n" if off else b"1\n")
        lines = [name.replace("/", ":", 1) + "\n" for name in sorted(self._enabled(place))]
        (place / "set_event").write_text("".join(lines), encoding="ascii")

    def _set_trigger(self, place: Path, value: str) -> None:
        lines = place.read_text(encoding="ascii").splitlines()
        if value.startswith("!"):
            lines = [line for line in lines if line != value[1:]]
        else:
            self._check(value not in lines)
            lines.append(value)
        place.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")


# What else the recorder has to do with the kernel


class Watchdog:
    """In place of the process that turns tracing off if its recorder is killed."""

    made: Final[list[Watchdog]] = []

    def __init__(self, instance: tracefs.Instance, *mounts: Path) -> None:
        self.instance, self.mounts, self.dismissed = instance, mounts, 0
        self.made.append(self)

    def dismiss(self) -> None:
        self.dismissed += 1


class Watch:
    """In place of the one for what others write; `gaps` is what it will have seen."""

    gaps: tuple[Any, ...] = ()

    def __init__(self, *_: object) -> None:
        self.watched = True

    def stop(self, _: int) -> tuple[Any, ...]:
        return self.gaps


def play_kernel(monkeypatch: pytest.MonkeyPatch, recording: Recording | None = None) -> Kernel:
    """Let everything that records through tracefs do so from the played one; see the module."""
    kernel = Kernel(recording)
    home = kernel.home

    class Pulse:
        """In place of the threads that beat: the beats are among what was recorded."""

        def __init__(self, instance: tracefs.Instance, cpus: Iterable[int]) -> None:
            self._beats = kernel.beats.setdefault(instance.path.name, dict.fromkeys(cpus, 0))

        def stop(self) -> dict[int, int]:
            return self._beats

    def threads(name: str = "statedump") -> Callable[[], list[Any]]:
        return lambda: [tuple(row) for row in kernel.recording.json(name)]

    for module in (tracefs, recorder, drain, hands, marks):
        monkeypatch.setattr(module, "time", kernel.clock)
    put = monkeypatch.setattr
    put(tracefs, "files", kernel)
    put(tracefs, "_MOUNTS", kernel.mounts)
    put(tracefs, "_mounted", set())

    def mount() -> Path:
        tracefs._mounted.add(kernel.root)
        return kernel.mount()

    put(tracefs, "mount", mount)
    put(drain, "_ONLINE", kernel.online)
    put(drain, "raise_priority", lambda *_: "fifo")
    put(tracefs, "TracingWatchdog", Watchdog)
    put(tracefs, "_watched", {})
    put(recorder, "Pulse", Pulse)
    put(recorder, "Watch", Watch)
    put(Watchdog, "made", [])
    for module in (recorder, cleanup):
        put(module, "scan_threads", threads())
    put(recorder, "scan_cgroups", threads("cgroups"))
    put(sockets, "scan_sockets", lambda: (kernel.recording.json("sockets"), 0))
    put(sockets, "scan_descriptors", lambda: (kernel.recording.json("descriptors"), 0))
    put(recorder, "measure_epoch", lambda: kernel.recording.json("raw")["epoch"])
    put(recorder, "find_timer_functions", lambda: "")
    put(recorder, "find_net_devices", lambda: "")
    for name, text in (
        ("_LOCKDOWN", "[none] integrity confidentiality\n"),
        ("_FILE_SYSTEMS", "nodev\ttracefs\n"),
        ("_MEMORY", "MemAvailable:  8388608 kB\n"),
    ):
        file = home / name.strip("_").lower()
        file.write_text(text, encoding="ascii")
        put(preflight, name, file)
    put(registry, "_ROOT", home / "registry")
    (home / "run").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home / "run"))
    put(marks, "PLACE", str(home / "marks"))
    put(shown, "PLACE", str(home / "marks"))
    put(shown, "mount_marker", lambda *_: None)
    put(shown, "unmount_marker", lambda _: None)
    return kernel
