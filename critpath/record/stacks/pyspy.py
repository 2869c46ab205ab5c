"""Stacks by py-spy: what Python's threads were in, 200 times a second, of any version.

py-spy reads a Python's memory from outside, also of a server that runs already.  It counts time
from a start of its own and notes all of it as it ends, in a file that it makes only then: that
its last time lies between the making of that file and its last change says when its time began, to
some milliseconds.  Where this process is sampled, too, it is in a function at known times.
`critpath.graph.stacks` finds within what is left where the samples fit the path.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import re
import resource
import shutil
import signal
import struct
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from critpath.errors import CritpathError
from critpath.record._spawn import SpawnError, collect, spawn
from critpath.record.lttng.program import trusted_program
from critpath.record.recorder import Requirement
from critpath.record.stacks.sources import FRAMES, RAW_SAMPLES, SAMPLES, StackFacts, StackRequest
from critpath.record.stacks.unwind import FORMAT, ROW, SAMPLE
from critpath.units import NS_PER_S, plural, safe_text

_RATE: Final = 200  # samples a second
_PERIOD: Final = NS_PER_S // _RATE
_FILE: Final = "samples.json"
_LARGEST: Final = 256 << 20  # bytes of it
_MOST_PYTHONS: Final = 8  # that are sampled of a machine
_MOST_STACKS: Final = 500_000
_DEPTH: Final = 1024  # frames of a stack, as `critpath.read.stacks` takes them
_LETTERS: Final = 400  # of a name
_LATEST: Final = 1 << 60  # ns of its clock
_PATIENCE: Final = 20.0  # s for py-spy to begin and to end
_COARSE: Final = 6  # CLOCK_MONOTONIC_COARSE, which files' times are of
_STAYS, _STAY, _AWAY = 8, 0.012, 0.0083  # how often and how long (s) this process is in a function
_CHUNK: Final = 1 << 20
_PROGRAM: Final = re.compile(r"python\d?(\.\d+)?t?")
_THREAD: Final = re.compile(r"thread \((\d{1,10})\)")
_DO: Final = "pip install 'critpath[python]'"


def obstacles() -> list[Requirement]:
    """Return what sampling Pythons lacks here."""
    if _find_program() is None:
        return [Requirement("py-spy", "there is no py-spy here", _DO)]
    if os.geteuid():
        return [Requirement("root", "taking stacks needs root", "sudo critpath record --stacks")]
    return []


def _find_program() -> str | None:
    """Return py-spy beside this Python, which is trusted as critpath itself is, or the system's."""
    beside = Path(sys.prefix) / "bin" / "py-spy"
    return str(beside) if os.access(beside, os.X_OK) else trusted_program("py-spy")


@dataclass
class Sampled:
    """A py-spy at work, and where it writes."""

    pid: int
    directory: Path
    output: int  # a file without a name for what it prints

    def collect(self) -> bool:
        """Return whether it has ended."""
        if self.pid and collect(self.pid) is not None:
            self.pid = 0
        return not self.pid


def sampling(whom: int, output: str) -> list[str]:
    """Return the arguments with which py-spy samples a process and those that it starts."""
    return [
        *("record", "--pid", str(whom), "--subprocesses", "--threads", "--idle"),
        *("--nonblocking", "--full-filenames", "--rate", str(_RATE)),
        *("--format", "chrometrace", "--output", output),
    ]


@dataclass
class PySpySource:
    """A py-spy for each Python: for a command one on this process, whose children it follows."""

    request: StackRequest
    program: str
    running: list[Sampled] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    stays: list[tuple[int, int]] = field(default_factory=list)  # ns
    threads: ThreadWatch | None = None

    def start(self) -> None:
        """Start py-spy, and return when it samples."""
        wanted = find_pythons() if self.request.machine else [os.getpid()]
        if not wanted:
            raise CritpathError("--stacks py-spy: no Python runs here", "record without it")
        if (more := len(wanted) - _MOST_PYTHONS) and more > 0:
            self.warnings.append(f"stacks of {plural(more, 'Python')} more were not sampled")
        try:
            for pid in wanted[:_MOST_PYTHONS]:
                self._start(pid)
            for sampled in self.running:
                self._wait_for_begin(sampled)
            self.threads = ThreadWatch(wanted[:_MOST_PYTHONS])
        except BaseException:
            self.abort()
            raise

    def _start(self, whom: int) -> None:
        directory = self.request.directory / f"{RAW_SAMPLES}{whom}"
        directory.mkdir(mode=0o700)
        place = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        command = ["py-spy", *sampling(whom, f"/proc/self/fd/{place}/{_FILE}")]
        output = os.memfd_create("py-spy")
        try:
            with Path(os.devnull).open("rb", buffering=0) as nothing:
                pid, _, _ = spawn(
                    os.fsencode(self.program),
                    [os.fsencode(word) for word in command],
                    [b"LC_ALL=C", b"PATH=/usr/bin:/bin"],
                    keep=(place,),
                    death_signal=signal.SIGKILL,
                    streams=(nothing.fileno(), output, output),
                )
        except (OSError, SpawnError) as error:
            os.close(output)
            raise CritpathError(
                f"py-spy cannot be started: {error.strerror}", "record without it"
            ) from None
        finally:
            os.close(place)
        self.running.append(Sampled(pid, directory, output))
        with contextlib.suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (_LARGEST, _LARGEST))

    def _wait_for_begin(self, sampled: Sampled) -> None:
        until = time.monotonic() + _PATIENCE
        while b"Sampling process" not in os.pread(sampled.output, 1 << 16, 0):
            if sampled.collect() or time.monotonic() > until:
                said = os.pread(sampled.output, 1 << 16, 0).decode("utf-8", "replace").split("\n")
                why = next(
                    (safe_text(line.strip()) for line in said if "rror" in line), "no reason"
                )
                raise CritpathError(f"py-spy did not begin: {why}", "record without it")
            time.sleep(0.005)

    def environment(self) -> Mapping[str, str]:
        """Return nothing: no program is asked for anything."""
        return {}

    def stop(self) -> None:
        """End each py-spy, which then writes what it saw."""
        if not self.request.machine:
            self.stays = [self._stay(_AWAY * (1 + n / 4)) for n in range(_STAYS)]
        for sampled in self.running:
            if not sampled.collect():
                os.kill(sampled.pid, signal.SIGINT)
        if self.threads is not None:
            self.threads.end()
        until = time.monotonic() + _PATIENCE
        for sampled in self.running:
            while sampled.pid and not sampled.collect():
                if time.monotonic() > until:
                    self._kill(sampled)
                time.sleep(0.005)

    def _stay(self, after: float) -> tuple[int, int]:
        """Return from when to when this was in a function that py-spy sees."""
        time.sleep(after)
        begin = time.monotonic_ns()
        _stay_for_py_spy()
        return begin, time.monotonic_ns()

    def read(self) -> StackFacts:
        """Write the samples of all Pythons but this one."""
        found = Samples(ignored=os.getpid(), stays=self.stays, watch=self.threads)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        place = self.request.directory
        opened = [os.open(place / name, flags, 0o600) for name in (SAMPLES, FRAMES)]
        with os.fdopen(opened[0], "wb") as rows, os.fdopen(opened[1], "w") as stream:
            for sampled in self.running:
                try:
                    found.read(sampled.directory, rows)
                except (
                    OSError,
                    ValueError,
                    LookupError,
                    TypeError,
                    ArithmeticError,
                    RecursionError,
                ):
                    self.warnings.append(
                        "the stacks of a Python are not whole: py-spy was ended, or wrote more "
                        f"than {_LARGEST >> 20} MiB"
                    )
            found.write_frames(stream)
        self._close()
        if found.nameless:
            self.warnings.append(
                f"which {plural(found.nameless, 'sampled thread')} of Python up to 3.10 these are "
                "is not known: they ended soon, or their C library is another; their stacks are "
                "left out"
            )
        if not found.samples:
            self.warnings.append("no stacks were taken: py-spy takes a moment to find a Python")
        facts = {"source": "py-spy", "mode": f"{_RATE} a second", "samples": found.samples}
        facts |= {"stacks": len(found.stacks), "lost": found.lost, "cut": 0}
        return StackFacts({**facts, "within_ns": found.within}, tuple(self.warnings))

    def abort(self) -> None:
        """Kill each py-spy and delete what it wrote."""
        if self.threads is not None:
            self.threads.end()
        for sampled in self.running:
            self._kill(sampled)
        self._close()

    def _kill(self, sampled: Sampled) -> None:
        if not sampled.collect():
            os.kill(sampled.pid, signal.SIGKILL)
        while not sampled.collect():
            time.sleep(0.001)

    def _close(self) -> None:
        for sampled in self.running:
            os.close(sampled.output)
            shutil.rmtree(sampled.directory, ignore_errors=True)
        self.running.clear()


def open_source(request: StackRequest) -> PySpySource:
    """Return py-spy for a request."""
    if (program := _find_program()) is None:
        raise CritpathError("there is no py-spy here", _DO)
    return PySpySource(request, program)


def _stay_for_py_spy() -> None:
    time.sleep(_STAY)


def find_pythons() -> list[int]:
    """Return the Pythons that run, less their children, which go with them, and this one."""
    parents: dict[int, int] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            name = (process / "exe").readlink().name.removesuffix(" (deleted)")
            if _PROGRAM.fullmatch(name):
                state = (process / "stat").read_text("utf-8", "replace").rpartition(")")[2]
                parents[int(process.name)] = int(state.split()[1])
    above = {os.getpid()}
    pid = os.getpid()
    while pid in parents:  # Pythons that started this one: their other children are not meant
        pid = parents[pid]
        above.add(pid)
    return sorted(
        pid for pid, of in parents.items() if pid not in above and of not in parents.keys() - above
    )


@dataclass
class Samples:
    """What py-spy saw, each frame and stack once."""

    ignored: int  # a process
    stays: list[tuple[int, int]]  # of that, in `_stay_for_py_spy`
    watch: ThreadWatch | None = None
    frames: dict[tuple[str, str, int], int] = field(default_factory=dict)
    stacks: dict[tuple[int, ...], int] = field(default_factory=dict)
    samples: int = 0
    lost: int = 0
    nameless: int = 0  # threads
    within: int = 0  # ns that they may be later

    def read(self, directory: Path, rows: IO[bytes]) -> None:
        """Add the rows of what a py-spy wrote: from when on a thread was in a stack."""
        file = directory / _FILE
        # The kernel's clock of files ticks: what is read from it lies up to a tick back.
        tick = int(time.clock_getres(_COARSE) * NS_PER_S)
        apart = time.clock_gettime_ns(time.CLOCK_REALTIME) - time.clock_gettime_ns(
            time.CLOCK_MONOTONIC
        )
        made = directory.stat().st_mtime_ns - apart
        last, seen = self._read_times(file)
        zero, until = made - last, file.stat().st_mtime_ns + tick - apart - last
        if self.stays and seen:
            zero, until = self._narrow(zero, until, seen)
        self.within = max(self.within, until - zero, 0)
        stacks: defaultdict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
        since: dict[tuple[int, int], int] = {}
        threads: dict[tuple[int, int], int] = {}
        for event in read_events(file):
            key, at = (int(event["pid"]), int(event["tid"])), int(event["ts"]) * 1000
            if key[0] == self.ignored or not 0 <= at <= last:
                continue
            stack = stacks[key]
            if since.setdefault(key, at) != at:
                self._add(rows, zero + since[key], stack, threads, key)
                since[key] = at
            if event["ph"] == "B":
                stack.append(event)
            elif stack:
                stack.pop()
        for key, at in since.items():
            self._add(rows, zero + at, stacks[key], threads, key)

    def _narrow(self, first: int, last: int, seen: Sequence[int]) -> tuple[int, int]:
        """Return between which times py-spy's began so that most of what it saw fits the stays."""

        def count(zero: int) -> int:
            return sum(any(b <= zero + at <= e for b, e in self.stays) for at in seen)

        possible = [begin - at for begin, _ in self.stays for at in seen]
        possible = [zero for zero in possible if first <= zero <= last]
        most = max(map(count, possible), default=0)
        zero = max((zero for zero in possible if count(zero) == most), default=first)
        ends = [e - at for _, e in self.stays for at in seen if e - at >= zero]
        # Of eight samples the first comes within two fifths of a period but once in sixty times.
        return zero, min([last, zero + 2 * _PERIOD // 5, *ends])

    def _read_times(self, file: Path) -> tuple[int, list[int]]:
        """Return when all ended, and when this process was seen in its function (ns of py-spy)."""
        if file.stat().st_size > _LARGEST:
            raise ValueError("too large")
        last, seen = 0, []
        for event in read_events(file):
            last = max(last, int(event["ts"]) * 1000)
            if last > _LATEST:
                raise ValueError("a time that cannot be")
            named = event["ph"] == "B" and event["name"] == _stay_for_py_spy.__name__
            if named and event["pid"] == self.ignored:
                seen.append(int(event["ts"]) * 1000)
        return last, sorted(seen)

    def _add(
        self,
        rows: IO[bytes],
        at: int,
        stack: list[dict[str, Any]],
        threads: dict[tuple[int, int], int],
        key: tuple[int, int],
    ) -> None:
        """Write from which sample on a thread was in a stack."""
        own = next((n for n, event in enumerate(stack) if event["args"]["filename"]), len(stack))
        for event in stack[:own]:
            if named := _THREAD.match(event["name"]):
                threads[key] = int(named[1])
            elif event["name"].endswith(": MainThread"):  # up to 3.10 all have an address
                threads[key] = key[0]
        thread = threads.get(key, 0)
        if not thread and self.watch is not None:
            thread = self.watch.find(*key, at)
        if not 0 < thread < 2**31:
            self.nameless += bool(stack[:own]) and key not in threads
            threads.setdefault(key, 0)
            return
        numbers = tuple(self._number(event) for event in reversed(stack[own:]))[:_DEPTH]
        known = numbers in self.stacks or len(self.stacks) < _MOST_STACKS
        self.lost += not known
        number = -1
        if numbers and known:
            number = self.stacks.setdefault(numbers, len(self.stacks))
        rows.write(ROW.pack(at, thread, 0, number, SAMPLE))
        self.samples += 1

    def _number(self, event: dict[str, Any]) -> int:
        line = int(event["args"]["line"])
        frame = (
            _clean(event["name"]),
            _clean(event["args"]["filename"]),
            min(max(0, line), 2**31 - 1),
        )
        return self.frames.setdefault(frame, len(self.frames))

    def write_frames(self, stream: IO[str]) -> None:
        """Write frames and stacks."""
        frames = [(*frame, "python", False) for frame in self.frames]
        document: dict[str, object] = {"format": FORMAT, "frames": frames, "cut": []}
        document |= {
            "stacks": list(self.stacks),
            "lost": self.lost,
            "period": _PERIOD,
            "within": self.within,
        }
        json.dump(document, stream, separators=(",", ":"))


def read_events(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a trace as py-spy writes it, one list of objects, piece by piece."""
    decoder, text, at = json.JSONDecoder(), "", 0
    with file.open(encoding="utf-8", errors="replace") as stream:
        if stream.read(1) != "[":
            raise ValueError("not a list")
        while chunk := stream.read(_CHUNK):
            text, at = text[at:] + chunk, 0
            while True:
                begin = text.find("{", at)
                end = begin
                try:
                    if begin < 0:
                        break
                    event, end = decoder.raw_decode(text, begin)
                except ValueError:
                    break  # goes on in the next piece
                at = end
                yield event
            if len(text) - at > 2 * _CHUNK:
                raise ValueError("an event without an end")
    if text[at:].strip(", \n") != "]":
        raise ValueError("it has no end")


def _clean(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in str(text)[-_LETTERS:])


# Which thread it is that has an address of the C library, while others read Pythons' memory.
#
# Up to 3.10 a Python knows its threads by these addresses (``pthread_self``), and so does py-spy.
# The kernel knows them too: the list of robust mutexes that the C library gives it lies within the
# same description of a thread.


_PAUSE: Final = 0.1  # s between looks
_MOST_THREADS: Final = 100_000
# Of glibc on x86-64: where the list lies in the description, and the address of that in itself.
_LIST, _SELF, _HEAD = 0x2E0, 0x10, 0x18
_GET_ROBUST_LIST: Final = 274


class ThreadWatch:
    """Looks at the threads of processes and their children again and again, until it is ended."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._family = set(pids)
        self._seen: set[int] = set()  # processes
        self._known: set[tuple[int, int]] = set()
        self._found: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="threads", daemon=True)
        if platform.machine() == "x86_64":
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._thread.start()

    def end(self) -> None:
        """Look no more; idempotent."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def find(self, pid: int, address: int, time: int) -> int:
        """Return the thread that a process had at an address, the last one that began; or 0.

        Where another has the address of one that has ended before it is looked at, what is found
        is one that does not run then.
        """
        found = self._found.get((pid, address), [(0, 0)])
        return next((tid for since, tid in reversed(found) if since <= time), found[0][1])

    def _run(self) -> None:
        while not self._ending.wait(_PAUSE):
            self.look()

    def look(self) -> None:
        """Note the threads that are new."""
        self._look_for_children()
        for pid in sorted(self._family):
            new = {(pid, tid) for tid in _threads(pid)} - self._known
            if not new or len(self._known) > _MOST_THREADS:
                continue
            self._known |= new
            with contextlib.suppress(OSError):
                memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
                try:
                    self._note(memory, new)
                finally:
                    os.close(memory)

    def _look_for_children(self) -> None:
        there = {int(name) for name in os.listdir("/proc") if name.isdecimal()}  # noqa: PTH208
        parents = {pid: _parent(pid) for pid in there - self._seen}
        self._seen = there
        self._family &= there
        while new := {pid for pid, of in parents.items() if of in self._family} - self._family:
            self._family |= new

    def _note(self, memory: int, new: set[tuple[int, int]]) -> None:
        now = time.monotonic_ns()
        for pid, tid in new:
            head, size = ctypes.c_uint64(), ctypes.c_size_t()
            asked = ctypes.byref(head), ctypes.byref(size)
            if self._libc.syscall(_GET_ROBUST_LIST, tid, *asked) or head.value < _LIST:
                continue
            address = head.value - _LIST
            with contextlib.suppress(OSError, OverflowError, struct.error):
                (itself,) = struct.unpack_from("<Q", os.pread(memory, _HEAD, address), _SELF)
                if itself == address:  # else it is no glibc of this layout
                    self._found[pid, address].append((now, tid))


def _parent(pid: int) -> int:
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2]
        return int(state.split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208
    except OSError:
        return []
