"""What a flight recorder holds: layers in the kernel's buffers, the rest in pages of our own.

The kernel overwrites the oldest events of a layer.  What is recorded all the time is moved to
memory as it comes, where triggers and ``critpath top`` look at it: marks, forks, execs and exits,
and what sockets send and receive.
"""

from __future__ import annotations

import contextlib
import copy
import fcntl
import itertools
import os
import re
import resource
import shutil
import threading
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError
from critpath.units import NS_PER_S
from critpath_record.budget.gaps import Journal
from critpath_record.dirfd import list_matching
from critpath_record.flight.pages import HEAD, SIZE, find_begin, page_time
from critpath_record.ftrace import raw as raws
from critpath_record.ftrace.drain import (
    THREADS,
    online_cpus,
    pour,
    raise_priority,
    write_all,
)
from critpath_record.ftrace.gate import Layer, count_lost
from critpath_record.ftrace.marks import UserMarks
from critpath_record.ftrace.preflight import CLOCK
from critpath_record.ftrace.raw import LAYERS
from critpath_record.ftrace.tracefs import Instance

DUMP: Final = "dump"  # why a gate was closed
# Of the memory, one part for marks and more of it for layers that last; in the kernel no more than
# this of either (KiB).
_MARKS_PART, _LASTING_PART = 16, 4
_MARKS_KIB, _LASTING_KIB = 512, 4096
_MARKS_PLACE: Final = "."  # below raw/; those of users who may not trace have one beside
_SETTLE: Final = 0.001  # s
_PIPE: Final = 1 << 20  # bytes: as large as a pipe may be without further rights
_ROWS: Final = 20_000  # closings and openings that are remembered
_OVERWRITTEN: Final = re.compile(rb"^overrun: (\d+)", re.MULTILINE)
_OLDEST: Final = re.compile(r"overrun: (\d+)\n(?:.*\n)*?oldest event ts: +(\d+\.\d+)")


def _side_by_side(every: Sequence[CpuPages]) -> None:
    """Take all, each cpu's in a thread; raises what went wrong."""
    count = min(len(online_cpus()), THREADS, len(every))

    def run(number: int) -> None:
        raise_priority()
        for one in every[number::count]:
            one.take()

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(1, count)]
    for thread in threads:
        thread.start()
    run(0)
    for thread in threads:
        thread.join()
    for one in every:
        if one.failure is not None:
            raise one.failure


class MemoryJournal(Journal):
    """When gates were closed, as far back as anything is held; never more than so many rows."""

    def __init__(self) -> None:
        self.rows: deque[dict[str, object]] = deque(maxlen=_ROWS)

    @property
    def since(self) -> int:
        """From when on it is known (ns); 0 for always."""
        if len(self.rows) < _ROWS:
            return 0
        first = self.rows[0]
        return int(str(first.get("end") or first.get("closed")))

    def rows_since(self, begin: int) -> list[dict[str, object]]:
        """Return the rows of gaps that end after a time (ns), or have not ended."""
        first: dict[object, int] = {}  # by layer, its last row that had come to its end by then
        for number, row in enumerate(self.rows):
            if int(str(row.get("end", begin + 1))) <= begin:
                first[row["layer"]] = number
        return [row for number, row in enumerate(self.rows) if number > first.get(row["layer"], -1)]

    def list_opened(self, layers: Collection[str], since: int) -> list[int]:
        """Return when any of these layers was opened since a time (ns): there was a gap before."""
        found = []
        for row in reversed(self.rows):
            if int(str(row.get("end") or row["closed"])) < since:
                break
            if "end" in row and row["layer"] in layers:
                found.append(int(str(row["end"])))
        return sorted(found)

    def note_other(self, layer: str, since: int) -> None:
        """Note that somebody else kept a layer from recording, at some time since.

        Where it is closed anyway there is a gap, which lasts until it is opened here.
        """
        last = next((r for r in reversed(self.rows) if r["layer"] == layer), {})
        if "begin" in last:
            return
        now = time.monotonic_ns()
        opened = int(str(last.get("end", since)))  # by this recorder: nobody had closed it then
        self.note_closed(layer, max(since, opened), now, "other")
        self.note_opened(layer, now, now)

    def note_closing(self, layer: str, begin: int, why: str) -> None:
        """Nothing: what is in memory does not outlive this process."""

    def note_closed(self, layer: str, begin: int, closed: int, why: str) -> None:
        """Note when a layer was closed."""
        self.rows.append({"layer": layer, "begin": begin, "closed": closed, "why": why})

    def note_opened(self, layer: str, opening: int, end: int) -> None:
        """Note when a layer was opened."""
        self.rows.append({"layer": layer, "opening": opening, "end": end})

    def close(self) -> None:
        """Nothing is open."""


class MarkPages:
    """Pages of marks by cpu, the newest of so many bytes."""

    def __init__(self, instance: Instance, cpus: Sequence[int], page: int, most: int) -> None:
        self._page, self.most = page, most
        self._held: dict[int, deque[bytes]] = {cpu: deque() for cpu in cpus}
        self.bytes = 0
        self._sources = {
            cpu: instance.open(f"per_cpu/cpu{cpu}/trace_pipe_raw", os.O_RDONLY | os.O_NONBLOCK)
            for cpu in cpus
        }
        self._stats = [instance.open(f"per_cpu/cpu{cpu}/stats", os.O_RDONLY) for cpu in cpus]
        self.dropped: dict[int, bool] = dict.fromkeys(cpus, False)

    def lost(self) -> list[int]:
        """Return how many events each cpu lost so far: here none is overwritten on purpose."""
        texts = [os.pread(file, 512, 0) for file in self._stats]
        return [count_lost(t) + sum(map(int, _OVERWRITTEN.findall(t))) for t in texts]

    def read(self) -> list[bytes]:
        """Move what there is, also from pages that are not full; return the new pages."""
        found = []
        for cpu, source in self._sources.items():
            while page := self._read_one(source):
                found.append(page)
                self.keep(cpu, page)
        return found

    def keep(self, cpu: int, page: bytes) -> None:
        """Hold a page, and forget the oldest ones for it."""
        self._held[cpu].append(page)
        self.bytes += len(page)
        self._forget()

    def _read_one(self, source: int) -> bytes:
        try:
            page = os.read(source, self._page)
        except BlockingIOError:
            return b""
        if len(page) < HEAD.size:
            return b""
        # What is behind the data of a page that is not full need not be kept.
        return page[: HEAD.size + (HEAD.unpack_from(page)[1] & SIZE)]

    def _forget(self) -> None:
        while self.bytes > self.most:
            cpu = min(
                (c for c, held in self._held.items() if held),
                key=lambda c: page_time(self._held[c][0]),
            )
            self.bytes -= len(self._held[cpu].popleft())
            self.dropped[cpu] = True

    def first(self) -> int:
        """Return from when on all marks are held (ns), 0 if none was dropped."""
        times = [
            page_time(held[0]) for cpu, held in self._held.items() if self.dropped[cpu] and held
        ]
        return max(times, default=0)

    def copy(self) -> MarkPages:
        """Return what is held now."""
        found = copy.copy(self)
        found.__dict__.update(
            _held={cpu: deque(held) for cpu, held in self._held.items()}, dropped={**self.dropped}
        )
        return found

    def save(self, raw: Path, cutoff: int) -> None:
        """Write the pages that end after a time."""
        for cpu, held in self._held.items():
            with (raw / f"cpu{cpu}").open("xb") as stream:
                for page, after in zip_longest(held, itertools.islice(held, 1, None)):
                    if after is None or page_time(after) >= cutoff:
                        stream.write(page.ljust(self._page, b"\0"))

    def clear(self) -> None:
        """Forget all."""
        for held in self._held.values():
            held.clear()
        self.bytes = 0
        self.dropped = dict.fromkeys(self.dropped, False)

    def close(self) -> None:
        """Close the files; idempotent."""
        for source in (*self._sources.values(), *self._stats):
            with contextlib.suppress(OSError):
                os.close(source)
        self._sources, self._stats = {}, []


def allow_pipes(most_bytes: int) -> None:
    """Allow as many open files as pipes for so many bytes need, if that may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = soft + most_bytes // _PIPE + len(online_cpus())
    with contextlib.suppress(OSError, ValueError):
        if soft != resource.RLIM_INFINITY:
            most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class CpuPages:
    """Pages of one cpu, moved from its buffer to pipes: none of them is copied.

    So gates are closed for a sixth of the time that it takes to write them.  Where there can be
    no more pipes what is left is read.
    """

    def __init__(self, instance: Instance, cpu: int, page: int) -> None:
        self._instance, self._cpu, self._page = instance, cpu, page
        self._pipes: list[tuple[int, int]] = []  # the end to read from, and how much is in it
        self._rest: list[bytes] = []
        self.failure: OSError | CritpathError | None = None

    def take(self) -> None:
        """Move all, with tracing off; what fails is kept in `failure`, as this runs in a thread."""
        try:
            name = f"per_cpu/cpu{self._cpu}/trace_pipe_raw"
            source = self._instance.open(name, os.O_RDONLY | os.O_NONBLOCK)
            try:
                while self._fill(source):
                    pass
                with contextlib.suppress(BlockingIOError):
                    while page := os.read(source, self._page):
                        self._rest.append(page.ljust(self._page, b"\0"))
            finally:
                os.close(source)
        except (OSError, CritpathError) as error:
            self.failure = error

    def _fill(self, source: int) -> bool:
        """Fill a pipe; return whether there may be more, and more pipes."""
        try:
            out, into = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:  # too many
            return False
        size = held = 0
        try:
            with contextlib.suppress(OSError):
                fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, _PIPE)
            size = fcntl.fcntl(into, fcntl.F_GETPIPE_SZ)
            with contextlib.suppress(BlockingIOError):
                while held < size and (moved := os.splice(source, into, size - held)):
                    held += moved
        finally:
            os.close(into)
            self._pipes.append((out, held))
        return held == size > 0

    def save(self, file: Path) -> None:
        """Write all to a file."""
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            for out, held in self._pipes:
                pour(out, descriptor, held)
            for page in self._rest:
                write_all(descriptor, page)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Forget what is left; idempotent."""
        pipes, self._pipes = self._pipes, []
        for out, _ in pipes:
            os.close(out)
        self._rest = []


@dataclass(frozen=True)
class Loss:
    """Events that a buffer lost between two looks at the kernel's counts (ns).

    `place` is the directory of its pages below ``raw/``.
    """

    since: int
    until: int
    place: str
    cpu: int
    events: int


@dataclass(frozen=True)
class Before:
    """What the last dump of what is usual took, on the disk: another one may hold it, too."""

    place: Path  # with a directory of each layer's pages
    begin: int  # from when on everything is there (ns)

    def put_first(self, layers: Path) -> None:
        """Put these pages before those of every layer and cpu."""
        for file in list_matching(self.place, "*", "cpu*"):
            to = layers / file.parent.name / file.name
            joined = to.with_name(f".{to.name}")
            with joined.open("xb") as stream:
                for one in (one for one in (file, to) if one.exists()):
                    with one.open("rb") as own:
                        shutil.copyfileobj(own, stream)
            joined.replace(to)

    def remove(self) -> None:
        """Forget it."""
        shutil.rmtree(self.place, ignore_errors=True)


@dataclass(frozen=True)
class Held:
    """What was taken out of the buffers and is not written yet."""

    begin: int  # from when on gaps and what is kept are known (ns)
    layers: Mapping[str, Mapping[int, CpuPages]]  # by layer and cpu
    counts: Mapping[str, Mapping[int, Mapping[str, int]]]  # what the kernel counted
    kept: Mapping[str, MarkPages]  # what is moved as it comes, by place below ``raw/``
    page: int
    losses: Sequence[Loss] = field(default=())
    came: Sequence[bytes] = ()  # the pages of it that were moved just now

    def save(self, raw: Path, since: int, until: int, before: Before | None = None) -> int:
        """Write all to ``raw/``; return since when (ns) everything is there, at most `until`.

        The pages are no recording yet: what `describe` writes makes them one.  What was taken
        `before` comes first, unless something was overwritten since.
        """
        overwritten = 0
        for name, pages in self.layers.items():
            place = raw / LAYERS / name
            place.mkdir(mode=0o700, parents=True)
            for cpu, of in pages.items():
                of.save(place / f"cpu{cpu}")
                of.close()
                overwritten = max(overwritten, find_begin(place / f"cpu{cpu}", self.page))
        if before is not None and not overwritten:
            before.put_first(raw / LAYERS)
            since = before.begin
        begin = min(max(since, self.begin, overwritten), until)
        for name, of_cpus in self.counts.items():
            # What was overwritten, on purpose, is no loss.
            counts = {cpu: {"entries": of.get("entries", 0)} for cpu, of in of_cpus.items()}
            self._write_stats(raw, f"{LAYERS}/{name}", begin, counts)
        for where, pages_of in self.kept.items():
            (raw / where).mkdir(mode=0o700, parents=True, exist_ok=True)
            pages_of.save(raw / where, begin)
            self._write_stats(raw, where, begin, {})
        return begin

    def _write_stats(
        self, raw: Path, where: str, begin: int, counts: dict[int, dict[str, int]]
    ) -> None:
        for loss in self.losses:
            if loss.place == where and loss.until > begin:
                of = counts.setdefault(loss.cpu, {})
                of["dropped events"] = of.get("dropped events", 0) + loss.events
        raws.write_stats(raw / where, counts)

    def silences(self, begin: int) -> list[dict[str, object]]:
        """Return when events were lost since a time: what is between them cannot be believed."""
        return [
            {"begin": since, "end": until, "cpu": -1, "what": "events were lost"}
            for since, until in sorted({(loss.since, loss.until) for loss in self.losses})
            if until > begin
        ]

    def close(self) -> None:
        """Forget what is left; idempotent."""
        for of in (one for pages in self.layers.values() for one in pages.values()):
            of.close()


class Memory:
    """The instances of a flight recorder, from construction to `remove`.

    `root`: of tracefs.  `most_bytes`: of all buffers, of all cpus.
    """

    def __init__(self, root: Path, session: str, most_bytes: int) -> None:
        self._root, self._session, self._most = root, session, most_bytes
        self.cpus = online_cpus()
        self.instance = Instance.pin(root, session)
        self.layers: list[Layer] = []
        self.kept: dict[str, MarkPages] = {}  # what is moved as it comes, by place below raw/
        self._user_marks: UserMarks | None = None
        self.page = 0
        self.journal = MemoryJournal()
        self.events: tuple[str, ...] = ()
        self._overruns: dict[str, list[int]] = {}
        self._taken = 0  # events of the first layer when it was taken out last
        self.lost = 0  # events so far, but for those that were overwritten on purpose
        self._lost: dict[str, list[int]] = {}  # when it was looked at last
        self._looked = time.monotonic_ns()
        self._losses: deque[Loss] = deque(maxlen=_ROWS)
        self._sizes: dict[str, int] = {}  # of each layer's buffers, of one cpu

    def make(self, always: Sequence[str]) -> None:
        """Make the instance that programs know, with what is always recorded."""
        instance = self.instance
        instance.make()
        marks = self._most // _MARKS_PART
        kib = max(64, min(_MARKS_KIB, marks // len(self.cpus) // 1024))
        for name, value in (
            *(("tracing_on", "0"), ("trace_clock", CLOCK), ("options/overwrite", "1")),
            *(("options/markers", "1"), ("buffer_size_kb", str(kib))),
        ):
            instance.write(name, value)
        instance.enable_events(event.replace("/", ":", 1) for event in always)
        self.events = tuple(instance.enabled_events())
        self.page = raws.page_bytes(instance.read("events/header_page"))
        self.kept[_MARKS_PLACE] = MarkPages(instance, self.cpus, self.page, marks)
        instance.write("tracing_on", "1")

    def make_layers(
        self,
        layers: Mapping[str, Sequence[str]],
        available: list[str],
        lasting: Collection[str] = (),
    ) -> None:
        """Make the layers, closed; they share what memory there is, `BASE` with most of it.

        Pages of those that are lasting are moved as they come.
        """
        kept = self._most // _LASTING_PART if lasting else 0
        room = self._most - self._most // _MARKS_PART - kept
        others = len(layers) - len(lasting)
        for number, (name, events) in enumerate(layers.items()):
            layer = Layer(self._root, self._session, name, events)
            self.layers.append(layer)
            part = 1.0 if others == 1 else (0.6, 0.4)[number > 0]
            size = int(room * part) // len(self.cpus)
            if name in lasting:
                size = min(kept // 4 // len(self.cpus), _LASTING_KIB << 10)
            layer.make(available, size, most=size)
            layer.open_counts(self.cpus)
            if name in lasting:
                most = kept - size * len(self.cpus)
                pages = MarkPages(layer.instance, self.cpus, self.page, most)
                self.kept[f"{LAYERS}/{name}"] = pages
            else:
                self._sizes[name] = size
        self._overruns = {}

    def open_user_marks(self, users: Sequence[int]) -> None:
        """Let other users' programs mark executions; raises CritpathError."""
        self._user_marks = of = UserMarks(self._root, self._session, users, None, self.page)
        most = self._most // _MARKS_PART
        self.kept[raws.MARKS] = MarkPages(of.instance, self.cpus, self.page, most)

    def read_marks(self) -> list[bytes]:
        """Move what came of all that is recorded all the time; return the new pages."""
        return [page for pages in self.kept.values() for page in pages.read()]

    @property
    def windowed(self) -> list[Layer]:
        """The layers that are in the kernel's buffers."""
        return [layer for layer in self.layers if layer.name in self._sizes]

    def put_right(self, since: int) -> list[str]:
        """Put right what somebody else has switched since a time; return what that was."""
        found = []
        if self.instance.read("tracing_on").strip() != "1":
            self.instance.write("tracing_on", "1")
            found.append("marks")
        for layer in self.layers:
            if layer.put_right():
                found.append(layer.name)
                self.journal.note_other(layer.name, since)
        return found

    def take(self) -> Held:
        """Take out what is held, with gates closed, to be written when they are open again.

        What is moved as it comes stays: the next dump may hold it, too.
        """
        time.sleep(_SETTLE)
        came = self.read_marks()
        self.note_losses()
        begin = max(self.journal.since, *(pages.first() for pages in self.kept.values()))
        layers = {layer.name: self._pages_of(layer.instance) for layer in self.windowed}
        every = [one for pages in layers.values() for one in pages.values()]
        try:
            _side_by_side(every)
            counts = {
                layer.name: {cpu: layer.instance.stats(cpu) for cpu in layers[layer.name]}
                for layer in self.windowed
            }
        except BaseException:
            for one in every:
                one.close()
            raise
        for name, of in counts.items():
            self._overruns[name] = [of[cpu].get("overrun", 0) for cpu in self.cpus]
        self._taken = sum(self.windowed[0].counts(self.cpus))
        kept = {place: pages.copy() for place, pages in self.kept.items()}
        return Held(begin, layers, counts, kept, self.page, [*self._losses], came)

    def is_empty(self) -> bool:
        """Return whether nothing was recorded since it was taken out last."""
        first = self.windowed[0]
        return sum(first.counts(self.cpus)) == self._taken

    def _pages_of(self, instance: Instance) -> dict[int, CpuPages]:
        """Return what is to be taken, also of cpus that were added since."""
        others = {*instance.cpus()} - {*self.cpus}
        came = [cpu for cpu in sorted(others) if instance.stats(cpu).get("entries")]
        return {cpu: CpuPages(instance, cpu, self.page) for cpu in (*self.cpus, *came)}

    def drop(self) -> None:
        """Forget all that layers hold, as after a dump that failed in part."""
        for layer in self.windowed:
            with contextlib.suppress(CritpathError, OSError):
                layer.instance.write("trace", "")
        self._overruns = {}
        self._taken = sum(self.windowed[0].counts(self.cpus))
        self._lost = self._read_lost()  # those of layers begin at 0 again

    def note_losses(self) -> None:
        """Note what was lost since the last look."""
        since, self._looked = self._looked, time.monotonic_ns()
        before, self._lost = self._lost, self._read_lost()
        for place, counts in self._lost.items():
            for cpu, was, now in zip(self.cpus, before.get(place, counts), counts, strict=True):
                if now > was:
                    self.lost += now - was
                    self._losses.append(Loss(since, self._looked, place, cpu, now - was))

    def _read_lost(self) -> dict[str, list[int]]:
        found = {f"{LAYERS}/{layer.name}": layer.lost(self.cpus) for layer in self.windowed}
        return found | {place: pages.lost() for place, pages in self.kept.items()}

    def oldest(self) -> int:
        """Return from when on all events of all cpus are held (ns), 0 if none was overwritten."""
        times = [0, *(pages.first() for pages in self.kept.values())]
        for layer in self.windowed:
            known = self._overruns.get(layer.name, [0] * len(self.cpus))
            for cpu, before in zip(self.cpus, known, strict=True):
                text = layer.instance.read(f"per_cpu/cpu{cpu}/stats")
                found = _OLDEST.search(text)
                if found and int(found[1]) > before:  # else it has all
                    times.append(round(float(found[2]) * NS_PER_S))
        return max(times)

    def used(self) -> tuple[int, float]:
        """Return the bytes that are held, and how full the fullest buffer is."""
        found, fullest = 0, 0.0
        for pages in self.kept.values():
            found, fullest = found + pages.bytes, max(fullest, pages.bytes / pages.most)
        for layer in self.windowed:
            for cpu in self.cpus:
                held = layer.instance.stats(cpu).get("bytes", 0)
                found, fullest = found + held, max(fullest, held / self._sizes[layer.name])
        return found, min(fullest, 1.0)

    def remove(self) -> None:
        """Turn everything off and remove the instances; raises CritpathError if held by others."""
        with contextlib.suppress(CritpathError):
            self.instance.write("tracing_on", "0")
        for pages in self.kept.values():
            pages.close()
        if self._user_marks is not None:
            self._user_marks.remove()
        layers, self.layers, self._sizes = self.layers, [], {}
        try:
            for layer in reversed(layers):
                layer.remove()
        finally:
            self.instance.remove()
