"""Notices what others do to the tracing instance while it records, and what that costs.

Nothing counts events that are not recorded because somebody wrote to a file of the instance:
a filter for 50 ms, a list of pids, a clear of the buffer.  Two things tell.  The files are watched,
and read back after every touch and at the end.  And every cpu writes a numbered beat into its own
buffer each `PERIOD`: numbers that are missing in the trace place what is missing with them.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import select
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError
from critpath.model import Gap
from critpath_record import rooted
from critpath_record._pulse import Beats, name_thread
from critpath_record.ftrace.drain import raise_priority
from critpath_record.ftrace.tracefs import Instance

PERIOD: Final = 10_000_000  # ns between two beats of a cpu
BEAT: Final = 0x74_62_70_63  # "cpbt": the number that tells a beat from others' raw marks
BEAT_FILE: Final = "trace_marker_raw"
_SLACK: Final = PERIOD  # a watcher hears of a touch later than it was
# A write of a filter has changed it long before it ends: kernels wait for all cpus in between.
_WITHIN: Final = 5 * PERIOD

# What is read back, beside the filter and trigger of every enabled event.
_SETTINGS: Final = (
    *("tracing_on", "tracing_cpumask", "set_event", "set_event_pid", "set_event_notrace_pid"),
    *("trace_clock", "current_tracer", "buffer_size_kb", "buffer_subbuf_size_kb", "trace_options"),
)
# Files whose writing empties buffers, whatever they say afterwards.
_CLEARING: Final = ("trace", "trace_clock", "buffer_size_kb", "buffer_subbuf_size_kb")

_IN_MODIFY, _IN_CLOSE_WRITE = 0x2, 0x8  # as fanotify has them
_IN_EVENT: Final = struct.Struct("iIII")
_FAN_EVENT: Final = struct.Struct("IBBHQii")
_FAN_NONBLOCK_CLOEXEC, _FAN_MARK_ADD, _FAN_ON_CHILD = 0x3, 0x1, 0x0800_0000
_AT_FDCWD: Final = -100


@dataclass(frozen=True)
class _Touch:
    """A file of the instance was written to: when at most, and what it did."""

    name: str
    begin: int
    end: int
    how: str
    who: str = ""  # not known at once: the kernel notifies one watch, then the other


class Watch:
    """Watches an instance from construction until `stop`.

    `events` are those that it records, as ``group/event``.
    """

    def __init__(self, instance: Instance, events: Sequence[str]) -> None:
        self._instance, self._events = instance, events
        self._asked = self._read_back()
        self._open: dict[str, tuple[int, str]] = {}  # what is not as it was: since when, by whom
        self._touches: list[_Touch] = []
        self._names: dict[int, str] = {}
        self._end = os.eventfd(0, os.EFD_CLOEXEC)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._inotify = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._fanotify = self._open_fanotify()
        self._libc.fanotify_mark.argtypes = [
            *(ctypes.c_int, ctypes.c_uint, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p)
        ]
        self.watched = self._add_all()
        self._thread = threading.Thread(target=self._run, name="critpath-hands", daemon=True)
        self._thread.start()

    def stop(self, end: int) -> tuple[Gap, ...]:
        """Return when the instance did not record what was asked for, up to `end` (ns).

        Before tracing is turned off.
        """
        os.eventfd_write(self._end, 1)
        self._thread.join()
        self._compare({}, time.monotonic_ns())
        for name, (begin, who) in self._open.items():
            self._touches.append(_Touch(name, begin, end, "was changed{who} and stayed so", who))
        for descriptor in (self._inotify, self._fanotify, self._end):
            if descriptor >= 0:
                os.close(descriptor)
        gaps = sorted(_join_touches(self._touches), key=lambda gap: gap.begin)
        return tuple(gap for gap in gaps if gap.begin + _SLACK < end)

    def _open_fanotify(self) -> int:
        """Open what tells who writes; -1 where the kernel does not."""
        if rooted.channel is None:
            return int(self._libc.fanotify_init(_FAN_NONBLOCK_CLOEXEC, os.O_RDONLY))
        with contextlib.suppress(OSError):
            return rooted.ask("watch")[1]
        return -1

    def _read_back(self) -> dict[str, str]:
        """Return every setting that decides what is recorded."""
        found = {}
        files = [f"events/{event}/{of}" for event in self._events for of in ("filter", "trigger")]
        for name in (*_SETTINGS, *files):
            with contextlib.suppress(CritpathError):  # not on every kernel
                found[name] = self._instance.read(name)
        return found

    def _add_all(self) -> bool:
        """Watch every file that matters; markers, which programs write to, are none."""
        groups = {event.partition("/")[0] for event in self._events}
        below = ["events", *(f"events/{name}" for name in (*sorted(groups), *self._events))]
        below += ["options", *(f"per_cpu/cpu{cpu}" for cpu in self._instance.cpus())]
        watched = [self._add(name, 0) for name in (*_SETTINGS, "trace")]
        watched += [self._add(name, _FAN_ON_CHILD) for name in below]
        return any(watched)

    def _add(self, name: str, on_child: int) -> bool:
        path = os.fsencode(self._instance.place / name)
        mask = _IN_MODIFY | _IN_CLOSE_WRITE
        number = self._libc.inotify_add_watch(self._inotify, path, mask)
        if self._fanotify >= 0:
            self._libc.fanotify_mark(
                self._fanotify, _FAN_MARK_ADD, mask | on_child, _AT_FDCWD, path
            )
        if number >= 0:
            self._names[number] = name
        return bool(number >= 0)

    def _run(self) -> None:
        name_thread(b"critpath-hands")
        raise_priority()
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        if self._inotify >= 0:
            poll.register(self._inotify, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            now = time.monotonic_ns()
            touched = dict.fromkeys(self._read_names(), "") | self._read_pids()
            if touched:
                self._compare(touched, now)
            if self._end in ready:
                return

    def _read_names(self) -> Iterator[str]:
        """Yield the files that were written to, relative to the instance."""
        text = _read_all(self._inotify)
        at = 0
        while at < len(text):
            number, _, _, size = _IN_EVENT.unpack_from(text, at)
            at += _IN_EVENT.size + size
            child = text[at - size : at].rstrip(b"\0").decode("utf-8", "replace")
            if number in self._names:
                yield f"{self._names[number]}/{child}" if child else self._names[number]

    def _read_pids(self) -> dict[str, str]:
        """Return who wrote to which files, where the kernel tells."""
        found = {}
        text = _read_all(self._fanotify)
        at = 0
        while at < len(text):
            size, _, _, _, _, descriptor, pid = _FAN_EVENT.unpack_from(text, at)
            at += max(size, _FAN_EVENT.size)
            if descriptor < 0:
                continue
            with contextlib.suppress(OSError):
                place = Path(f"/proc/self/fd/{descriptor}").readlink()
                name = str(place).partition(f"/{self._instance.path.name}/")[2]
                found[name] = f" by {_name_process(pid)}"
            os.close(descriptor)
        return found

    def _compare(self, touched: Mapping[str, str], now: int) -> None:
        """Note what is no longer as it was, or is so again."""
        seen = self._read_back()
        differs = [name for name, text in self._asked.items() if seen.get(name) != text]
        who = next((by for by in touched.values() if by), "")
        for name in differs:
            # What nobody was seen to touch may have been so all the time.
            self._open.setdefault(name, (now - _SLACK if touched else 0, who))
        for name in [name for name in self._open if name not in differs]:
            begin, by = self._open.pop(name)
            self._touches.append(_Touch(name, begin, now, "was changed{who}", by))
        for name, by in touched.items():
            if name in self._open:
                begin, known = self._open[name]
                self._open[name] = (begin, known or by)
            elif not differs:
                cleared = name.rpartition("/")[2] in _CLEARING
                how = ", which empties the buffer" if cleared else ""
                self._touches.append(
                    _Touch(name, now - _SLACK, now, f"was written{{who}}{how}", by)
                )


def _join_touches(touches: Sequence[_Touch]) -> Iterator[Gap]:
    """Yield a gap for all touches of a file in a row: opening, writing, closing are several."""
    for name in dict.fromkeys(touch.name for touch in touches):
        row: list[_Touch] = []
        for touch in sorted((t for t in touches if t.name == name), key=lambda t: t.begin):
            if row and touch.begin > max(t.end for t in row) + _WITHIN:
                yield _as_gap(row)
                row = []
            row.append(touch)
        yield _as_gap(row)


def _as_gap(row: Sequence[_Touch]) -> Gap:
    # That it was changed goes before that it was written to.
    how = max((touch.how for touch in row), key=lambda how: "changed" in how)
    who = next((touch.who for touch in row if touch.who), "")
    what = f"{row[0].name} {how.replace('{who}', who)}"
    return Gap(row[0].begin, max(touch.end for touch in row), -1, what)


def _read_all(descriptor: int) -> bytes:
    found = b""
    with contextlib.suppress(OSError):  # nothing more, or never opened
        while part := os.read(descriptor, 1 << 16):
            found += part
    return found


def _name_process(pid: int) -> str:
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace")
        return f"{text.strip()} ({pid})"
    return f"process {pid}"


class Pulse:
    """Beats on every cpu from construction until `stop`, by a thread tied to each."""

    def __init__(self, instance: Instance, cpus: Sequence[int]) -> None:
        self._beats: dict[int, Beats] = {}
        self._threads: list[threading.Thread] = []
        self._file = -1
        with contextlib.suppress(CritpathError):  # a kernel without it
            self._file = instance.open(BEAT_FILE, os.O_WRONLY)
        for cpu in cpus if self._file >= 0 else ():
            ready = threading.Event()
            thread = threading.Thread(
                target=self._run, args=(cpu, ready), name=f"critpath-beat{cpu}", daemon=True
            )
            thread.start()
            self._threads.append(thread)
            ready.wait()

    def stop(self) -> dict[int, int]:
        """End all threads; return how many beats each cpu wrote."""
        for beats in self._beats.values():
            beats.stop()
        for thread in self._threads:
            thread.join()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        counts = {cpu: beats.count for cpu, beats in self._beats.items()}
        self._beats, self._threads = {}, []
        return counts

    def _run(self, cpu: int, ready: threading.Event) -> None:
        name_thread(f"critpath-beat{cpu}"[:15].encode())
        raise_priority()
        try:
            os.sched_setaffinity(0, {cpu})
            self._beats[cpu] = beats = Beats()
        except OSError:  # a cpu that is not ours to use
            return
        finally:
            ready.set()
        beats.run(self._file, BEAT, PERIOD)


def find_missing_beats(
    cpu: int, found: Sequence[tuple[int, int]], written: int | None, begin: int, end: int
) -> Iterator[Gap]:
    """Yield the times in which beats of one cpu are missing.

    `found`: time and number of every beat in the trace, in order.  `written`: how many there should
    be; None where the recorder did not get to say.  `begin`, `end`: when it was recorded.
    """
    total = written if written is not None else found[-1][1] + 1 if found else 0
    places = [(begin, -1), *found, (end, total)]
    for (before, first), (after, second) in itertools.pairwise(places):
        missing = second - first - 1
        if missing > 0:
            what = f"{missing:,} of the recorder's beats are missing: tracing was off or cleared"
            yield Gap(before, max(before, after), cpu, what)
