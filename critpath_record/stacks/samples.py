"""Stacks by samples: what Python's threads were in, 200 times a second, from 3.8 on.

A thread of this process reads the Pythons' memory from outside (`_sampler`), also of servers that
run already; another looks for those that start.  The kernel says which number it gave last: only
processes after the one seen last are looked at, and those that may become a Python by `exec`.
Who enters a control group had its number before: that is read from the group itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from critpath.errors import CritpathError, with_sudo
from critpath.units import NS_PER_S, plural, safe_text
from critpath_record._pulse import name_thread
from critpath_record.counts.groups import find_root
from critpath_record.ftrace.drain import online_cpus, raise_priority
from critpath_record.identity import CAP_PERFMON, has_capability
from critpath_record.recorder import Requirement
from critpath_record.source import Source, Taken
from critpath_record.stacks._sampler import Sampler
from critpath_record.stacks.interpreters import Unreadable, find_interpreter
from critpath_record.stacks.rings import Windowed
from critpath_record.stacks.sources import (
    PYTHON_FRAMES,
    PYTHON_SAMPLES,
    StackRequest,
)
from critpath_record.stacks.unwind import FORMAT, SAMPLE

_RATE: Final = 200  # samples a second
_PERIOD: Final = NS_PER_S // _RATE
_PAUSE: Final = 0.1  # s between looks for new Pythons
_YOUNG: Final = 10.0  # s for which a process is expected to become another
_RARELY: Final = 2.0  # s between looks at older ones
_THRIFTY: Final = 1.0, 60.0  # s between both kinds of looks, under a budget
_ENTERING: Final = 0.5  # s between looks for who has entered a control group
_MOST_GROUPS: Final = 1024  # within it
_MOST_PYTHONS: Final = 512
_MOST_PROCESSES: Final = 65_536
_MOST_NEW: Final = 8192  # processes that are looked for by their numbers
_MOST_THREADS: Final = 100_000  # of containers
_FAILURES: Final = 20  # samples until what cannot be read is looked for again
_SAID: Final = 3  # kinds of Pythons that cannot be read, in a warning
_MOST_HELD: Final = 400_000  # samples, in memory, until it begins anew
_ENCODINGS: Final = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}
_WITHOUT: Final = "record without --stacks samples"

Packed = tuple[bytes, dict[str, Any]]  # rows, and what they are of


def find_needs() -> list[Requirement]:
    """Return what sampling Pythons lacks here."""
    if platform.machine() not in {"x86_64", "aarch64"}:
        what = f"no Python is sampled on {platform.machine()}"
        return [Requirement("samples", what, _WITHOUT)]
    if os.geteuid() and not has_capability(CAP_PERFMON):
        return [Requirement("root", "taking stacks needs root", with_sudo("record --stacks"))]
    return []


@dataclass
class _Candidate:
    """A process that may be a Python, or become one."""

    program: str = ""
    since: float = 0.0  # when it began that program
    was_there: bool = False  # before anybody looked: what it is has been loaded
    tried: float = 0.0  # when it was last looked at


@dataclass
class PythonWatch:
    """Has a sampler sample the Pythons of a machine, or of some processes and what these start.

    They are this one if none is named.  Of a control group also who enters it later.
    """

    sampler: Sampler
    machine: bool
    processes: tuple[int, ...] = ()
    group: str = ""
    rarely: float = _RARELY  # s between two looks at what has run a program for long
    pythons: int = 0
    refused: int = 0
    unreadable: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    # Of those that number their threads otherwise: the threads' numbers here.
    numbers: dict[int, dict[int, int]] = field(default_factory=dict)
    _pids: dict[int, int] = field(default_factory=dict)
    _family: set[int] = field(default_factory=set)
    _strange: set[int] = field(default_factory=set)
    _candidates: dict[int, _Candidate] = field(default_factory=dict)
    _known_tasks: set[tuple[int, int]] = field(default_factory=set)
    _last: tuple[int, int] = (0, 0)  # numbers that the kernel gave last, at the last two looks
    _entered: float = 0.0  # when the group was looked at last

    def __post_init__(self) -> None:
        """Take what is there: of the machine to be looked at, else as none of this process'."""
        self._family, self._strange = {*self.processes}, _ancestors()
        if not (self.processes or self.group):
            self._family.add(os.getpid())
        self._last = (_last_number(),) * 2
        if self.machine:
            self._meet(_processes())
            for candidate in self._candidates.values():
                candidate.was_there = True

    def look(self) -> None:
        """Take Pythons that are new, and leave those that have ended."""
        self._leave()
        before, last = self._last
        now = _last_number()
        # The kernel gives a number before the process can be seen.
        few = 0 <= now - before <= _MOST_NEW
        self._meet(range(before + 1, now + 1) if few else _processes())
        self._last = (last, now)
        if self.group and time.monotonic() - self._entered > _ENTERING:
            self._entered = time.monotonic()
            entered = _members(self.group) - self._family - self._strange
            self._family |= entered
            self._meet(entered)
        for pid, candidate in list(self._candidates.items()):
            try:
                self._consider(pid, candidate, time.monotonic())
            except (OSError, ValueError):
                self._candidates.pop(pid, None)
        self._find_numbers()

    def _leave(self) -> None:
        for number, failures in self.sampler.states().items():
            if failures < 0 or failures > _FAILURES:
                self.sampler.remove(number)
                pid = self._pids.pop(number)
                if failures > 0:  # it may have begun another program
                    self._candidates[pid] = _Candidate()

    def _meet(self, pids: Iterable[int]) -> None:
        """Let processes that have begun be candidates, if they are in scope."""
        taken = {*self._pids.values(), *self._candidates}
        met = {pid: _parent(pid) for pid in pids if pid not in taken and pid not in self._strange}
        family = [pid for pid, parent in sorted(met.items()) if parent]
        if self.processes or self.group or not self.machine:
            while new := {pid for pid in family if met[pid] in self._family} - self._family:
                self._family |= new
            family = [pid for pid in family if pid in self._family]
        for pid in family:
            if len(self._candidates) < _MOST_PROCESSES:
                self._candidates[pid] = _Candidate()

    def _consider(self, pid: int, candidate: _Candidate, now: float) -> None:
        young = now - candidate.since < _YOUNG
        if not young and now - candidate.tried < self.rarely:
            return
        program = str(Path(f"/proc/{pid}/exe").readlink())
        if program != candidate.program:
            candidate.program, candidate.since = program, now
            if candidate.was_there:
                candidate.since, candidate.was_there = now - _YOUNG, False
        elif now - candidate.tried < (now - candidate.since) / 2 or not young:
            # A library may be loaded later than the program; the longer ago, the less likely.
            candidate.tried = candidate.tried if young else now
            return
        candidate.tried = now
        try:
            found = find_interpreter(pid)
        except Unreadable as error:
            self.unreadable[str(error)].add(pid)
            candidate.since = now - _YOUNG
            return
        if found is None:
            return
        del self._candidates[pid]
        if len(self._pids) >= _MOST_PYTHONS:
            self.refused += 1
            return
        inner = Path(f"/proc/{pid}/ns/pid").readlink() != Path("/proc/self/ns/pid").readlink()
        self.pythons += 1
        self.sampler.add(self.pythons, pid, found.layout, found.runtime, found.code_type, inner)
        self._pids[self.pythons] = pid
        if inner:
            self.numbers[self.pythons] = {}

    def _find_numbers(self) -> None:
        """Note which number a container's threads have here."""
        for number in self.numbers.keys() & self._pids.keys():
            pid = self._pids[number]
            with contextlib.suppress(OSError, ValueError):
                tasks = {(pid, int(name)) for name in os.listdir(f"/proc/{pid}/task")}  # noqa: PTH208
                for task in tasks - self._known_tasks:
                    if len(self._known_tasks) < _MOST_THREADS:
                        self._known_tasks.add(task)
                        inner = _status(f"{pid}/task/{task[1]}")[b"NSpid"].split()[-1]
                        self.numbers[number][int(inner)] = task[1]


def _last_number() -> int:
    """Return the number that the kernel gave to a process last."""
    return int(Path("/proc/loadavg").read_bytes().split()[-1])


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208


def _members(group: str) -> set[int]:
    """Return the processes of a control group, and of those below it."""
    found, root = set[int](), find_root()
    places = os.walk(root / group.lstrip("/")) if root is not None else ()
    for place, _ in zip(places, range(_MOST_GROUPS), strict=False):
        with contextlib.suppress(OSError):  # it has gone, or has threads alone
            found |= {*map(int, Path(place[0], "cgroup.procs").read_text("ascii").split())}
    return found


def _status(of: int | str) -> dict[bytes, bytes]:
    with open(f"/proc/{of}/status", "rb") as stream:  # noqa: PTH123
        rows = (line.partition(b":") for line in stream.read(1 << 14).splitlines())
        return {name: value.strip() for name, _, value in rows}


def _parent(pid: int) -> int:
    """Return the parent of a process, 0 if it is none, or a thread of one."""
    try:
        said = _status(pid)
        return int(said[b"PPid"]) if int(said[b"Tgid"]) == pid else 0
    except (OSError, ValueError, KeyError):
        return 0


def _ancestors() -> set[int]:
    """Return this process and those that started it."""
    found, pid = set[int](), os.getpid()
    while pid > 1 and pid not in found:
        found.add(pid)
        pid = _parent(pid)
    return found


class SamplesGate(Windowed):
    """Sampling that a budget opens and closes: its events are the ns of cpu time that it took."""

    name, event_ns = "samples", 1.0

    def __init__(self) -> None:
        super().__init__()
        self.cpus, self.opened = online_cpus(), threading.Event()
        self.spent = {"samples": 0.0, "pythons": 0.0}  # by thread (s)

    def _switch(self, *, on: bool) -> None:
        (self.opened.set if on else self.opened.clear)()

    def counts(self, cpus: Sequence[int]) -> list[int]:
        """Return the ns that sampling took so far, in equal parts."""
        return [int(NS_PER_S * self.spent["samples"] / len(cpus))] * len(cpus)

    def cpu_time(self) -> float:
        """Return what looking for Pythons took so far (s)."""
        return self.spent["pythons"]

    def run(self, sample: Callable[[], None], ending: threading.Event) -> None:
        """Sample while it is open; the rows say themselves where samples are missing."""
        due = time.monotonic()
        while not ending.is_set():
            if not self.opened.wait(_ENTERING):
                continue
            sample()
            self.spent["samples"] = time.thread_time()
            due = max(due + _PERIOD / NS_PER_S, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))


@dataclass
class SamplesSource(Source):
    """A thread that samples, and one that looks for Pythons."""

    name: ClassVar[str] = "samples"
    follows: ClassVar[bool] = True

    request: StackRequest
    sampler: Sampler = field(default_factory=lambda: Sampler(_PERIOD))
    watch: PythonWatch | None = None
    gate: SamplesGate | None = None
    _pause: float = _PAUSE
    _before: Packed | None = None
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _ending: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def open(self) -> int:
        """Start to sample those that run, and what the command will start."""
        request = self.request
        self.watch = self._watch()
        self._pause = _THRIFTY[0] if request.budgeted else _PAUSE
        self.watch.look()
        if request.machine and not (self.watch.pythons or request.group or request.held):
            self._refuse(self.watch)
        self.gate = SamplesGate() if request.budgeted else None
        work = (("sampler", self._sample), ("pythons", self._look))
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True) for name, target in work
        ]
        for thread in self._threads:
            thread.start()
        return 0

    def _refuse(self, watch: PythonWatch) -> None:
        if watch.unreadable:
            what = f"--stacks samples: {_kinds(watch.unreadable)} cannot be read"
        else:
            what = "--stacks samples: no Python runs here"
        raise CritpathError(what, _WITHOUT)

    def _sample(self) -> None:
        name_thread(b"critpath-sample")
        raise_priority()  # else samples are late beside what has the cpus
        if self.gate is None:
            self.sampler.run()
        else:
            self.gate.run(self._sample_once, self._ending)

    def _sample_once(self) -> None:
        with self._mutex:
            self.sampler.sample()
            full = self.sampler.samples > _MOST_HELD
        if full and self.request.held:
            self._renew()

    def _renew(self) -> None:
        """Begin anew, and forget all but what there is now: it is held in memory."""
        with self._mutex:
            self._before = self._pack()
            self.sampler = Sampler(_PERIOD)
            self.watch = self._watch()
        self.watch.look()

    def _watch(self) -> PythonWatch:
        request = self.request
        watch = PythonWatch(self.sampler, request.machine, request.processes, request.group)
        watch.rarely = _THRIFTY[1] if request.budgeted else _RARELY
        return watch

    def _pack(self) -> Packed:
        """Return what was sampled so far."""
        assert self.watch is not None  # noqa: S101 - for mypy
        return self.sampler.packed(self.watch.numbers, SAMPLE), describe_frames(self.sampler)

    def hold(self) -> list[Packed]:
        """Return what is held."""
        with self._mutex:
            now = self._pack()
        return [now] if self._before is None else [self._before, now]

    def _look(self) -> None:
        name_thread(b"critpath-python")
        while not self._ending.wait(self._pause):
            assert self.watch is not None  # noqa: S101 - for mypy
            self.watch.look()
            if self.gate is not None:
                self.gate.spent["pythons"] = time.thread_time()

    def close(self) -> int:
        """Sample no more."""
        self._ending.set()
        self.sampler.stop()
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        return 0

    def abort(self) -> None:
        """Sample no more; nothing was written."""
        self.close()

    def drain(self, report: Callable[[str], None]) -> Taken:
        """Write the samples."""
        report("writing stacks")
        self.sampler.end()
        assert self.watch is not None  # noqa: S101 - for mypy
        rows = self.sampler.packed(self.watch.numbers, SAMPLE)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        place = self.request.directory
        opened = [os.open(place / name, flags, 0o600) for name in (PYTHON_SAMPLES, PYTHON_FRAMES)]
        with os.fdopen(opened[0], "wb") as stream:
            stream.write(rows)
        lost, document = self.sampler.lost, describe_frames(self.sampler)
        stacks = len(document["stacks"])
        with os.fdopen(opened[1], "w") as stream:
            json.dump(document, stream, separators=(",", ":"))
        facts = {"source": "samples", "mode": f"{_RATE} a second", "samples": self.sampler.samples}
        facts |= {"stacks": stacks, "lost": lost, "cut": 0, "pythons": self.watch.pythons}
        facts |= {"late": self.sampler.late, "torn": self.sampler.torn}
        return Taken(facts=facts, warnings=tuple(self._warnings(self.watch, rows)))

    def _warnings(self, watch: PythonWatch, rows: bytes) -> list[str]:
        found = []
        if watch.unreadable:
            count = sum(map(len, watch.unreadable.values()))
            found.append(
                f"{plural(count, 'process')} could not be sampled: {_kinds(watch.unreadable)}"
            )
        if watch.refused:
            found.append(f"stacks of {plural(watch.refused, 'Python')} more were not sampled")
        if self.sampler.unknown:
            found.append(
                f"which {plural(self.sampler.unknown, 'sampled thread')} these are is not known; "
                "their stacks are left out"
            )
        if not self.sampler.whole:
            found.append("there was no memory for more stacks: samples end early")
        if not rows and not self.request.python:  # whose command may be of another language
            found.append("no stacks were taken: it takes a moment to find a Python")
        return found


def _kinds(unreadable: Mapping[str, set[int]]) -> str:
    counted = Counter({kind: len(pids) for kind, pids in unreadable.items()})
    return ", ".join(safe_text(kind) for kind, _ in counted.most_common(_SAID))


def describe_frames(sampler: Sampler) -> dict[str, Any]:
    """Return frames and stacks, as files have them."""
    texts = [_clean(data.decode(_ENCODINGS[width], "replace")) for width, data in sampler.texts()]
    places = sampler.places()
    frames = [(texts[name], texts[file], line, "python", False) for name, file, line in places]
    document: dict[str, Any] = {"format": FORMAT, "frames": frames, "cut": []}
    return document | {"stacks": sampler.stacks(), "lost": sampler.lost, "period": _PERIOD}


def _clean(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


def open_source(request: StackRequest) -> SamplesSource:
    """Return the sampler for a request."""
    return SamplesSource(request)
