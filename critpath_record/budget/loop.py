"""The one control loop: waits, counts, asks the law, switches.

Every recorder that holds a budget has one.  What may be spent is in its account (`Control`, with a
law), what it opens and closes are its actuators (`Gates`), and what it is for is its policy:
windows in time and whole runs (`policies`), executions that programs choose (`programs`), a flight
that waits for triggers (`critpath_record.flight.service`).
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError
from critpath.units import NS_PER_S
from critpath_record._pulse import name_thread, rest
from critpath_record.budget.control import Control, Reading
from critpath_record.budget.gates import Gates

_HZ: Final = os.sysconf("SC_CLK_TCK")
_LATE: Final = 0.1  # s: a look that comes later is counted
_SECOND: Final = 0.9  # s: what is done as seldom may as well be done before
_IDLE: Final = 1.0  # s between two polls of an idle machine, at most: as often as its status
_BESIDE: Final = 0.02  # s between two looks at what others spend
_SHORTEST: Final = 0.001  # s between two looks, and until the first
_NOT_IDLE: Final = (1, 2, 3, 6, 7)  # user, nice, system, irq, softirq


class BusyTimes:
    """Cpu time in which each cpu was not idle; steal is nobody's."""

    def __init__(self, cpus: Sequence[int], place: Path = Path("/proc/stat")) -> None:
        self._file = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        self._names = [b"cpu%d" % cpu for cpu in cpus]
        self._last = self._read()
        self._looked = time.monotonic()

    def _read(self) -> list[float]:
        found = dict.fromkeys(self._names, 0.0)
        for line in os.pread(self._file, 1 << 16, 0).split(b"\n"):
            fields = line.split()
            if not fields or not fields[0].startswith(b"cpu"):
                break
            if fields[0] in found:
                found[fields[0]] = sum(int(fields[i]) for i in _NOT_IDLE if i < len(fields)) / _HZ
        return list(found.values())

    def passed(self) -> list[float]:
        """Return the busy time of each cpu since the last call (s).

        The kernel counts in ticks: within one there is nothing new, and looking is dear.
        """
        if time.monotonic() < self._looked + 1 / _HZ:
            return [0.0] * len(self._last)
        self._looked = time.monotonic()
        now = self._read()
        before, self._last = self._last, now
        return [max(0.0, b - a) for a, b in zip(before, now, strict=True)]

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def count_switches(place: Path = Path("/proc/stat")) -> int:
    """Return how often threads were switched so far, of the whole machine."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(place.read_bytes().partition(b"\nctxt ")[2].split(None, 1)[0])
    return 0


class Policy:
    """What a loop is for: this one does what the law says, and no more."""

    held = False  # it says itself what is open, and the law what is paid for
    rest = 0.0  # s for which a look at the counts may be enough
    loop: Loop

    def begin(self) -> None:
        """Say what else the loop waits for, and what it does at times."""

    def act(self, planned: float) -> float:  # noqa: ARG002 - others have a use for it
        """Do what there is to do, as planned for a time (s); return when to look again (s)."""
        return self.poll()

    def poll(self) -> float:
        """Count, decide and switch; return when to look again (s)."""
        return self.loop.count()

    def opened(self) -> None:
        """Note that the first gate was opened."""

    def closing(self) -> None:
        """Note that the first gate will be closed."""

    def open_since(self) -> float | None:
        """Return how long it was open since the last look (s), None for what `Control` knows."""
        return None

    def end(self) -> None:
        """Begin nothing more."""

    def close(self) -> None:
        """Close what is open."""


@dataclass
class Task:
    """What is done when its time has come; `act` returns in how many seconds again."""

    act: Callable[[], float]
    due: float
    wait: float = 0.0  # s, as it said last

    def is_due(self) -> bool:
        """Return whether to do it now: what is done each second is done at one wake-up."""
        early = self.wait / 2 if self.wait >= _SECOND else 0.0
        return time.monotonic() >= self.due - early


class Loop:
    """Holds a budget from `start` or `run` until `stop`; every gate is closed at first."""

    def __init__(self, control: Control, gates: Gates, policy: Policy) -> None:
        self.control, self.gates, self.policy = control, gates, policy
        self.failure: CritpathError | None = None  # why nothing can be opened or closed any more
        self.late = self.polls = 0
        self.begun = self.polled = time.monotonic()
        self.expects = False  # that something opens when it looks next
        self.ending = False
        self._off = False
        self._lock = threading.RLock()
        self._busy = BusyTimes(gates.cpus)
        self._own = 0.0  # cpu time of the thread in which it turns (s)
        self._charged = gates.cpu_time()  # of it and those that move pages, which is charged
        control.owe("calibration", self._charged)  # of moving what calibration left
        control.held = policy.held
        self._command = 0.0
        self._beside: tuple[str, Callable[[], float]] | None = None
        self._beside_spent = self._beside_at = 0.0
        self._files: dict[int, tuple[Callable[[], None], int]] = {}
        self._poll: select.poll | None = None
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread: threading.Thread | None = None
        self._poked = False
        # What `rest` needs while there is nothing to decide.
        self._quiet: tuple[array[int], array[int], array[float], array[float]] | None = None
        self._look = Task(self._look_as_planned, self.begun + _SHORTEST)
        self._tasks = [self._look]
        for gate in gates.every:
            control.set_state(gate.name, gate.state)
        self.watch(self._wake, self._take_poke)
        policy.loop = self
        policy.begin()

    # What it waits for

    def watch(self, file: int, act: Callable[[], None], mask: int = select.POLLIN) -> None:
        """Do something whenever a file is ready."""
        self._files[file] = act, mask
        if self._poll is not None:
            self._poll.register(file, mask)

    def ignore(self, file: int) -> None:
        """Wait for a file no more."""
        del self._files[file]
        if self._poll is not None:
            self._poll.unregister(file)

    def plan(self, act: Callable[[], float]) -> Task:
        """Do something now, and again when it says (s)."""
        self._tasks.append(Task(act, time.monotonic()))
        return self._tasks[-1]

    def hasten(self, task: Task, seconds: float = 0.0) -> None:
        """Do what is planned after so many seconds, or before."""
        task.due = min(task.due, time.monotonic() + seconds)

    def poke(self) -> None:
        """Look at the counts now: pages were moved."""
        with contextlib.suppress(OSError, ValueError):  # ValueError: it has just ended
            os.eventfd_write(self._wake, 1)

    def look_within(self, seconds: float) -> None:
        """Look at the counts after so many seconds, or before."""
        self.hasten(self._look, seconds)

    def work_beside(
        self, work: Callable[[], None], then: Callable[[Exception | None], None]
    ) -> None:
        """Do something that takes long in a thread, and then something here, with what it raised.

        What it takes is not charged: it has an account of its own.
        """
        done, wake = [], os.eventfd(0, os.EFD_CLOEXEC)

        def work_and_tell() -> None:
            name_thread(b"critpath-beside")
            failed: Exception | None = None
            try:
                work()
            except Exception as error:  # noqa: BLE001 - told in the loop's thread
                failed = error
            done.append(failed)
            os.eventfd_write(wake, 1)

        def take() -> None:
            self.ignore(wake)
            os.close(wake)
            then(done[0])

        self.watch(wake, take)
        start_thread(work_and_tell)

    # From begin to end

    def start(self) -> None:
        """Turn in a thread of its own."""
        self._thread = threading.Thread(target=self._turn, name="critpath-budget", daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Turn in this thread until `finish`; raises what ended it before."""
        self._turn()
        if self.failure is not None:
            raise self.failure

    def finish(self) -> None:
        """Turn no more."""
        self.ending = True
        self.poke()

    def stop(self) -> None:
        """Close everything and end; idempotent."""
        if self._wake < 0:
            return
        self.policy.end()
        self.finish()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            try:
                self.policy.poll()
                self.switch(frozenset())
            except CritpathError as error:
                self.failure = self.failure or error
            self.gates.end()
        self.policy.close()
        self._busy.close()
        self.gates.journal.close()
        os.close(self._wake)
        self._wake = -1

    def _turn(self) -> None:
        from critpath_record.ftrace.drain import raise_priority  # noqa: PLC0415 - a cycle

        if self._thread is not None:
            name_thread(b"critpath-budget")
        raise_priority()
        before = time.thread_time()
        self._poll = poll = select.poll()
        for file, (_, mask) in self._files.items():
            poll.register(file, mask)
        while not self.ending:
            self._rest()
            wait = min(task.due for task in self._tasks) - time.monotonic()
            ready = poll.poll(max(0, math.ceil(1000 * wait)))
            with self._lock:
                if self.ending:
                    return
                try:
                    self._take(ready)
                except CritpathError as error:
                    self.failure = error
                    return
                except OSError as error:
                    self.failure = CritpathError(
                        f"the recorder cannot go on: {error.strerror or error}",
                        "critpath doctor shows what is missing, and --clean removes what is left",
                    )
                    return
            self._own = time.thread_time() - before

    def _rest(self) -> None:
        """Wait as long as so little happens that there is nothing to decide, without Python."""
        quiet, until = self._quiet, min(task.due for task in self._tasks)
        if quiet is None or until <= time.monotonic() + self.control.longest:
            return
        files = array(
            "i", [word for file, (_, mask) in self._files.items() for word in (file, mask)]
        )
        pace, until = round(self.control.longest * NS_PER_S), round(until * NS_PER_S)
        if rest(files, *quiet, pace, until):
            self._quiet = None
            self.hasten(self._look)

    def _take(self, ready: Sequence[tuple[int, int]]) -> None:
        """Do what there is to do now."""
        for file, _ in ready:
            if file in self._files:
                self._files[file][0]()
        for task in self._tasks:
            if task.is_due() or (self._poked and task is self._look):
                task.wait = max(_SHORTEST, task.act())
                task.due = time.monotonic() + task.wait

    def _take_poke(self) -> None:
        with contextlib.suppress(OSError):
            os.eventfd_read(self._wake)
        self._poked = True

    def _look_as_planned(self) -> float:
        planned, self._poked = self._look.due, False
        self.late += time.monotonic() > planned + _LATE
        return self.policy.act(planned)

    # What is counted and decided

    def charge_beside(self, part: str, spent: Callable[[], float]) -> None:
        """Charge what something else has spent so far (s) as that part, at every look."""
        with self._lock:
            self._beside = part, spent

    def excuse(self, seconds: float) -> None:
        """Charge so much less of its own thread: it is on another account (s)."""
        self._charged += seconds

    def look(self, command: float = 0.0) -> None:
        """Count now; `command` is cpu time of the command since the last look (s)."""
        with self._lock:
            self._command += command
            self.policy.poll()

    @contextlib.contextmanager
    def closed(self, why: str) -> Iterator[None]:
        """Close every layer but lasting ones meanwhile, for another reason than the budget."""
        with self._lock:
            self.policy.poll()
            opened = self.gates.opened
            self.switch(opened & self.control.lasting, why)
            try:
                yield
            finally:
                self.switch(opened)
                self.policy.poll()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Switch nothing meanwhile, but what this thread does."""
        with self._lock:
            yield

    def switch(self, opened: frozenset[str], why: str = "budget") -> None:
        """Open and close, and let the policy know."""
        was = self.gates.is_open
        if self.gates.every[0].name not in opened:
            self.policy.closing()
        self.gates.switch(opened, why)
        if self.gates.is_open and not was:
            self.policy.opened()

    def force(self, opened: frozenset[str]) -> None:
        """Open and close as somebody else decides."""
        self.switch(opened)
        self.control.force(self.gates.opened)

    def may_rest(self) -> bool:
        """Return whether so little happened since the last look that there is nothing to decide."""
        self._quiet = None
        if time.monotonic() >= self.polled + self._find_rest() / 2:
            return False
        return self.control.may_wait(self.gates.count(take=False))

    def may_rest_now(self) -> bool:
        """Return the same just behind a count: nothing has happened since."""
        return self.policy.rest > 0 and min(self.control.may_spend()[1], default=0.0) > 0

    def _find_rest(self) -> float:
        """Return for how long a look at the counts may be enough now (s).

        On an idle machine the slots of a horizon are all alike.
        """
        rest = self.policy.rest
        if rest and self.control.is_idle():
            return max(rest, min(self.control.budget.horizon, _IDLE))
        return rest

    def rest(self) -> float:
        """Return when to look again (s) where there is nothing to decide: it is found if there is.

        Until then no Python is needed.
        """
        counters = self.gates.list_counters()
        if counters is None:
            return self.control.longest
        files, before = counters
        weights, limits = self.control.may_spend()
        ordered = [weights[gate.name] for gate in self.gates.every]
        self._quiet = (
            *(array("i", files), array("q", before), array("d", ordered), array("d", limits)),
        )
        return max(self.control.longest, self.polled + self._find_rest() - time.monotonic())

    def count(self) -> float:
        """Charge what was spent, decide and switch; return when to look again (s)."""
        self.polls += 1
        self.polled, self._quiet = time.monotonic(), None
        if self._beside is not None and time.monotonic() >= self._beside_at + _BESIDE:
            part, read = self._beside
            spent = read()
            self.control.charge(part, max(0.0, spent - self._beside_spent))
            self._beside_spent, self._beside_at = max(spent, self._beside_spent), time.monotonic()
        events = self.gates.count()
        own = self._own + self.gates.cpu_time()
        spent, self._charged = max(0.0, own - self._charged), max(own, self._charged)
        command, self._command = self._command, 0.0
        decision = self.control.step(
            Reading(
                *(time.monotonic(), self._busy.passed(), events, spent, command),
                opened=self.policy.open_since(),
            )
        )
        if self.control.held:
            return decision.wait
        self.force(decision.open)
        if decision.off and not self._off:
            self.gates.turn_off()
        self._off, self.expects = decision.off, decision.expected
        return decision.wait


def start_thread(work: Callable[[], None]) -> None:
    """Let a thread do something."""
    threading.Thread(target=work, daemon=True).start()
