"""The gate of a recording under a budget: a session that follows no process while it is closed.

To disable events or a channel takes LTTng's probes out of the kernel, which patches code on every
cpu, and a channel that was disabled stays so.  Which processes a session follows is one pointer of
the session: where it follows none, its probes stay and return at once.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError
from critpath_record._pulse import measure_turns
from critpath_record.budget.calibrate import TABLE, estimate, is_sure, raise_table
from critpath_record.budget.control import TRACKER, Costs
from critpath_record.budget.gaps import BASE
from critpath_record.budget.gates import Gate
from critpath_record.budget.recording import BudgetRecording, Pace
from critpath_record.ftrace.drain import online_cpus
from critpath_record.ftrace.raw import LAYERS

FLUSHED_EVERY: Final = 50_000  # us after which LTTng writes what a cpu has, and looks for it
_LAG: Final = 0.12  # s in which what was recorded is on disk: flushed, looked for, written
_OPEN, _CLOSED = 0.05, (0.25, 1.0)  # s between two looks
_EVENT_BYTES: Final = 32  # that count as one event: LTTng counts none
_TURNS: Final = 50
_PHASES: Final = 3  # open, and as often closed, to find out what an event costs
_PHASE: Final = 0.1  # s
_ENOUGH: Final = 12  # blocks of each state, at least
# Of what may be spent at once, opening and closing takes a tenth, and a count comes in its first
# half: a horizon has four times as much.
_TOGGLES, _LAGS = 40, 40

# Of liblttng-ctl, the same since LTTng 2.12.
_LIBRARY: Final = "liblttng-ctl.so.0"
_KERNEL, _PROCESSES, _OK = 1, 0, 10
_EVERY, _NONE = 0, 1

_ANSWERED: Final = 10.0  # s

_INDEX: Final = struct.Struct(">4I")  # magic, version, version, bytes of an entry
_MAGIC: Final = 0xC1F1DCC1
_ENTRY: Final = struct.Struct(">3Q")  # where, its bits, and how many of them have content


class Tracker:
    """Says which processes a session follows: every one, or none."""

    def __init__(self, session: str) -> None:
        try:
            library = ctypes.CDLL(_LIBRARY)
            find = library.lttng_session_get_tracker_handle
            self._set = library.lttng_process_attr_tracker_handle_set_tracking_policy
            self._release = library.lttng_process_attr_tracker_handle_destroy
        except (OSError, AttributeError):
            raise CritpathError(
                f"a budget needs {_LIBRARY} of LTTng 2.12 or later",
                "install liblttng-ctl0, or --recorder ftrace",
            ) from None
        self._handle = ctypes.c_void_p()
        self._set.argtypes = [ctypes.c_void_p, ctypes.c_int]
        self._release.argtypes = [ctypes.c_void_p]
        self._session = session
        handle = ctypes.byref(self._handle)
        if _wait_for(lambda: find(session.encode(), _KERNEL, _PROCESSES, handle)) != _OK:
            raise _refused(session)

    def follow(self, *, every: bool) -> None:
        """Follow every process or none; raises CritpathError if the daemon refuses."""
        policy = _EVERY if every else _NONE
        if _wait_for(lambda: self._set(self._handle, policy)) != 0:
            raise _refused(self._session)

    def close(self) -> None:
        """Give the handle back; idempotent."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        if handle:
            self._release(handle)


def _wait_for(ask: Callable[[], int]) -> int | None:
    """Return what the daemon answers, None if it does not: the library waits for ever."""
    answers: list[int] = []
    asking = threading.Thread(target=lambda: answers.append(ask()), daemon=True)
    asking.start()
    asking.join(_ANSWERED)
    return answers[0] if answers else None


def _refused(session: str) -> CritpathError:
    return CritpathError(
        f"LTTng's session daemon does not open or close the session {session}",
        "see whether it is alive, and whether somebody destroyed the session: lttng list",
    )


class SessionGate:
    """The session of what a budget opens and closes; see `critpath_record.budget.gates.Gate`.

    `index`: where LTTng writes what each packet of the session has.  `daemons`: returns the pids of
    LTTng's daemons.
    """

    name, state = BASE, TRACKER
    events: tuple[str, ...] = ()
    switches: tuple[int, ...] = ()
    drain = None

    def __init__(
        self,
        session: str,
        index: Path,
        channel: str,
        tracker: Tracker,
        daemons: Callable[[], Sequence[int]],
    ) -> None:
        self.session, self._index, self._channel = session, index, channel
        self._tracker, self._daemons = tracker, daemons
        self._pids: tuple[int, ...] = ()
        self._before = 0.0  # cpu time of the daemons
        self.is_open = False
        self._complete_at = 0.0  # when what was recorded is on disk
        self._files: dict[int, tuple[int, int]] = {}
        self._read: dict[int, tuple[int, int]] = {}  # of a cpu: up to where, and how many bits

    def begin(self) -> None:
        """Charge the daemons from now on."""
        self._pids = tuple(self._daemons())
        self._before = 0.0
        self._before = self.cpu_time()

    def open(self) -> None:
        """Record from now on."""
        self._tracker.follow(every=True)
        self.is_open = True

    def close(self) -> None:
        """Record nothing from now on."""
        self._tracker.follow(every=False)
        self.is_open = False
        self._complete_at = time.monotonic() + _LAG

    def turn_off(self) -> None:
        """Do nothing more: there is nothing between closed and destroyed."""

    def adopt(self) -> None:
        """Do nothing: no program opens it."""

    def end(self) -> None:
        """Do nothing: no program opens it."""

    def move_after(self, events: float) -> None:
        """Do nothing: LTTng's daemon moves what there is, by its own clock."""

    def counts(self, cpus: Sequence[int]) -> list[int]:
        """Return how much each cpu recorded so far; after closing, all of it."""
        if not self.is_open:
            time.sleep(max(0.0, self._complete_at - time.monotonic()))
        return [self._count(cpu) for cpu in cpus]

    def _count(self, cpu: int) -> int:
        at, bits = self._read.get(cpu, (0, 0))
        try:
            file, size = self._open_index(cpu)
        except OSError:
            return 0  # nothing was recorded there yet
        while len(read := os.pread(file, size * 256, at or _INDEX.size)) >= size:
            at = at or _INDEX.size
            for entry in range(0, len(read) - size + 1, size):
                bits += _ENTRY.unpack_from(read, entry)[2]
                at += size
        self._read[cpu] = at, bits
        return bits // (8 * _EVENT_BYTES)

    def _open_index(self, cpu: int) -> tuple[int, int]:
        if cpu not in self._files:
            place = self._index / f"{self._channel}_{cpu}.idx"
            file = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            head = os.pread(file, _INDEX.size, 0)
            magic, _, _, size = _INDEX.unpack(head) if len(head) == _INDEX.size else [0] * 4
            if magic != _MAGIC or not _ENTRY.size <= size <= 4096:
                os.close(file)
                raise OSError
            self._files[cpu] = file, size
        return self._files[cpu]

    def cpu_time(self) -> float:
        """Return the cpu time of LTTng's daemons since `begin` (s)."""
        spent = 0.0
        for pid in self._pids:
            try:
                spent += time.clock_gettime((~pid << 3) | 2)  # the clock of a process's cpu time
            except OSError:
                continue
        return max(0.0, spent - self._before)

    def stop(self) -> Mapping[int, Mapping[str, int]]:
        """Return what was recorded, by cpu: the session is stopped by then."""
        cpus = online_cpus()
        return {cpu: {"entries": n} for cpu, n in zip(cpus, self.counts(cpus), strict=True) if n}

    def remove(self) -> None:
        """Close what this has open; the session is its recorder's; idempotent."""
        self._tracker.close()
        files, self._files = self._files, {}
        for file, _ in files.values():
            os.close(file)


def attach(budget: BudgetRecording, gate: SessionGate, raw: Path) -> None:
    """Let a budget open and close a session that is started and closed; measure what it costs."""
    budget.layers = [gate]
    (raw / LAYERS / gate.name).mkdir(mode=0o700, parents=True)
    gate.begin()
    took, spent = _measure_toggle(gate)
    least = max(_TOGGLES * spent / budget.budget.share, _TOGGLES / 4 * took, _LAGS * _LAG)
    budget.pace = Pace(_OPEN, _CLOSED, least)
    before = budget.budget.horizon
    budget.measure(measure_slowly)
    if budget.budget.horizon > before:
        budget.warnings.append(
            f"the budget is held over {least:.1f} s: LTTng takes {1000 * took:.0f} ms to open"
            " or close, and some time to write what is counted"
        )


def _measure_toggle(gate: SessionGate) -> tuple[float, float]:
    """Return how long it takes to open or close (s), and what cpu time both take."""
    taken: list[float] = []
    before = gate.cpu_time() + time.thread_time()
    for _ in range(_PHASES):
        for act in (gate.open, gate.close):
            begin = time.monotonic()
            act()
            taken.append(time.monotonic() - begin)
    return statistics.median(taken), (gate.cpu_time() + time.thread_time() - before) / _PHASES


def measure_slowly(gates: Sequence[Gate], cpu: int) -> Costs:
    """Measure an event of a gate that takes long to open; the table if that fails."""
    before = os.sched_getaffinity(0)
    begin = time.thread_time()
    events: dict[str, float] = dict(TABLE.events)
    intervals = []
    try:
        os.sched_setaffinity(0, {cpu})
        for gate in gates:
            found = _compare(gate, cpu)
            if found is None or not is_sure(*found):
                seconds = time.thread_time() - begin
                return replace(TABLE, events=raise_table(found), seconds=seconds)
            ns, interval = found
            events |= dict.fromkeys(events, ns)
            intervals.append(interval)
    except OSError:
        return TABLE
    finally:
        os.sched_setaffinity(0, before)
    seconds = time.thread_time() - begin
    return Costs(events, TABLE.closed, interval=max(intervals), seconds=seconds)


def _compare(gate: Gate, cpu: int) -> tuple[float, float] | None:
    times: dict[bool, list[float]] = {True: [], False: []}
    [first] = gate.counts([cpu])
    try:
        for phase in range(2 * _PHASES):
            opened = bool(phase % 2)
            (gate.open if opened else gate.close)()
            until = time.monotonic() + _PHASE
            while (
                time.monotonic() < until
                or len(times[opened]) < _ENOUGH * (phase // 2 + 1) // _PHASES
            ):
                taken = measure_turns(_TURNS)
                if taken < 0:
                    return None
                times[opened].append(taken)
    finally:
        gate.close()
    [last] = gate.counts([cpu])
    return estimate(times, [(last - first) / len(times[True])])


def find_daemons(names: Sequence[bytes] = (b"lttng-sessiond", b"lttng-consumerd")) -> list[int]:
    """Return the pids of LTTng's daemons."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and (entry / "comm").read_bytes().strip() in names:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


__all__ = ["FLUSHED_EVERY", "SessionGate", "Tracker", "attach", "find_daemons"]
