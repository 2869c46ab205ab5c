"""The thread that counts, decides, and opens and closes the gates."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

from critpath.errors import CritpathError
from critpath.schema.parameters.budget import CONTROL, NATURAL
from critpath_record._pulse import name_thread
from critpath_record.budget.control import OFF, Control, Reading
from critpath_record.budget.gaps import BUDGET, START, Journal
from critpath_record.budget.natural import Neighbours

_HZ: Final = os.sysconf("SC_CLK_TCK")
_LATE: Final = 0.1  # s: a poll that comes later is counted
_BESIDE: Final = 0.02  # s between two looks at what others spend
_CORRECTED: Final = 10  # pairs after which the correction is made anew
_NOT_IDLE: Final = (1, 2, 3, 6, 7)  # user, nice, system, irq, softirq


class Gate(Protocol):
    """A layer that can be opened and closed."""

    name: str
    state: str
    is_open: bool

    def open(self) -> None:
        """Record from now on."""

    def close(self) -> None:
        """Record nothing from now on."""

    def turn_off(self) -> None:
        """Take the costliest events away, while closed."""

    def adopt(self) -> int | None:
        """Know that somebody else has opened the gates; when it is open (ns), if it only is now."""

    def end(self) -> None:
        """Record nothing more, whoever opens it."""

    def counts(self, cpus: Sequence[int]) -> list[int]:
        """Return how many events each cpu recorded so far."""

    def cpu_time(self) -> float:
        """Return the cpu time of the threads that move pages (s)."""


class BesideGate(Gate, Protocol):
    """What is opened and closed beside the layers.

    `event_ns` is what an event costs, 0 where that is to be measured by a probe; `closed_ns` what
    one costs that meets it closed, if that is not measured.
    """

    event_ns: float
    closed_ns: float
    opened_for: float  # s so far
    windows: int

    @property
    def cpus(self) -> Sequence[int]:
        """Whose events it counts."""

    def probe(self, cpu: int) -> contextlib.AbstractContextManager[Gate]:
        """Make a gate whose events cost the same, and go nowhere."""


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


class Loop:
    """Holds a budget from construction until `stop`; every gate is closed at first.

    `gates`: in the order of `Control.layers`.  `held`: runs of a command are recorded whole: opened
    and closed by `hold` only.  `compares`: what comes just before an opening can be compared with
    what comes after.  `told`: a descriptor that is readable when there is something to do; -1 for
    none.
    """

    def __init__(
        self,
        control: Control,
        gates: Sequence[Gate],
        journal: Journal,
        cpus: Sequence[int],
        *,
        held: bool,
        compares: bool = True,
        told: int = -1,
    ) -> None:
        self._told, self._compares = told, compares and not held
        self.failure: CritpathError | None = None  # why nothing can be opened or closed any more
        self.control, self.gates, self._journal, self._cpus = control, gates, journal, tuple(cpus)
        control.held = held
        self.late = self.polls = 0
        self.opened_for = 0.0
        self.windows = 0
        self._lock = threading.Lock()
        self._busy = BusyTimes(cpus)
        self._counts = {gate.name: gate.counts(self._cpus) for gate in gates}
        self._own = 0.0
        self._own_clock = sum(gate.cpu_time() for gate in gates)  # of moving what calibration left
        control.owe("calibration", self._own_clock)
        self._opened_at = 0.0
        self._lasted = dict.fromkeys(control.lasting, 0.0)  # s that layers were open, until when
        self._lasting_since: dict[str, float] = {}
        self._off = False
        self._command = 0.0
        self._beside: tuple[str, Callable[[], float]] | None = None
        self._beside_spent = self._beside_at = 0.0
        self._neighbours = Neighbours()
        self._expects = False  # that something opens when it looks next
        self._opens_at: float | None = None  # when it may open, if that is to be compared
        self.given_up = False  # what was held last
        self._polled = self._prepared = 0.0
        self.rest = 0.0  # s for which a look at the counts may be enough, from pair to pair, too
        self._until: float | None = None
        self.begun = time.monotonic()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._ending = False
        for gate in gates:
            control.set_state(gate.name, gate.state)
            journal.close_layer(gate.name, START, lambda: None)
        self._thread = threading.Thread(target=self._run, name="critpath-budget", daemon=True)
        self._thread.start()

    def charge_beside(self, part: str, spent: Callable[[], float]) -> None:
        """Charge what something else has spent so far (s) as that part, at every poll."""
        with self._lock:
            self._beside = part, spent

    def poke(self) -> None:
        """Look at the counts now: pages were moved."""
        with contextlib.suppress(OSError, ValueError):  # ValueError: it has just ended
            os.eventfd_write(self._wake, 1)

    def hold(self, opened: bool, longest: float = 0.0) -> None:
        """Open every layer, or close all, from another thread; returns when it is done.

        What is open for longer than `longest` (s; 0 for never) is given up: all are closed.
        """
        with self._lock:
            self.given_up = False if opened else self.given_up
            self._until = time.monotonic() + longest if opened and longest > 0 else None
            self._poll()
            self._hold(frozenset(self.control.layers) if opened else frozenset())

    def _hold(self, opened: frozenset[str]) -> None:
        self._switch(opened)
        self.control.force(opened)

    def look(self, command: float = 0.0) -> None:
        """Count now; `command` is cpu time of the command since the last look (s)."""
        with self._lock:
            self._command += command
            self._poll()

    @contextlib.contextmanager
    def closed(self, why: str) -> Iterator[None]:
        """Close every layer but lasting ones meanwhile, for another reason than the budget."""
        with self._lock:
            self._poll()
            opened = frozenset(gate.name for gate in self.gates if gate.is_open)
            self._switch(opened & self.control.lasting, why)
            try:
                yield
            finally:
                self._switch(opened)
                self._poll()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Switch nothing meanwhile."""
        with self._lock:
            yield

    def open_seconds(self, name: str = "") -> float:
        """Return for how long a layer was open so far (s), those that are not lasting together."""
        if name in self._lasted:
            since = self._lasting_since.get(name)
            return self._lasted[name] + (time.monotonic() - since if since else 0.0)
        opened = time.monotonic() - self._opened_at if self.gates[0].is_open else 0.0
        return self.opened_for + opened

    def stop(self) -> None:
        """Close everything and end; idempotent."""
        if self._ending:
            return
        self._ending = True
        self.poke()
        self._thread.join()
        with self._lock:
            try:
                self._poll()
                self._switch(frozenset())
            except CritpathError as error:
                self.failure = self.failure or error
            self._end_gates()
        self._neighbours.close()
        self._busy.close()
        self._journal.close()
        os.close(self._wake)
        self._wake = -1

    def _run(self) -> None:
        name_thread(b"critpath-budget")
        from critpath_record.ftrace.drain import raise_priority  # noqa: PLC0415 - a cycle

        raise_priority()
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if self._told >= 0:
            poll.register(self._told, select.POLLIN)
        wait = 0.001
        while not self._ending:
            due = time.monotonic() + wait
            ready = {file for file, _ in poll.poll(max(1, round(1000 * wait)))}
            for file in ready:
                with contextlib.suppress(OSError):
                    os.read(file, 8 if file == self._wake else 4096)
            self.late += time.monotonic() > due + _LATE
            with self._lock:
                if self._ending:
                    return
                try:
                    wait = self._act(due, told=ready == {self._told})
                except CritpathError as error:
                    self.failure = error
                    return
            self._own = time.thread_time()

    def _act(self, due: float, *, told: bool) -> float:  # noqa: ARG002 - others have a use for it
        """Do what there is to do; return when to look again (s)."""
        if self._opens_at is not None and due >= self._opens_at - NATURAL.stretch:
            opens_at, self._opens_at = self._opens_at, None
            if abs(time.monotonic() - due) < NATURAL.stretch / 2:
                # Something may open then: the time until it is compared with that after.
                self._neighbours.prepare()
                self._prepared = time.monotonic()
                return max(0.001, opens_at - time.monotonic())
        if self._may_rest():
            return self.control.longest
        return self._compare(self._poll())

    def _may_rest(self) -> bool:
        """Return whether so little happened since the last poll that there is nothing to decide."""
        if time.monotonic() >= self._polled + self.rest or self._neighbours.is_under_way:
            return False
        events = {
            gate.name: [
                b - a for a, b in zip(self._counts[gate.name], gate.counts(self._cpus), strict=True)
            ]
            for gate in self.gates
        }
        return self.control.may_wait(events)

    def _compare(self, wait: float) -> float:
        """Return when to look again so that time before and after an opening can be compared."""
        self._opens_at = None
        if not self._compares or self.control.held:
            return wait
        cost = self.control.events_cost / self.control.kappa
        passed = self._neighbours.charge(cost)
        if passed is not None and self.gates[0].is_open:
            if passed < NATURAL.stretch:
                return min(wait, max(0.001, NATURAL.stretch - passed))
            self._end_comparison()
        elif (
            self._expects
            and wait > 1.5 * NATURAL.stretch
            and time.monotonic() + wait >= self._prepared + self.rest
        ):
            self._opens_at = time.monotonic() + wait
            return wait - NATURAL.stretch
        return wait

    def _end_comparison(self) -> None:
        before = len(self._neighbours.pairs)
        self._neighbours.end()
        after = len(self._neighbours.pairs)
        if after > before and after % _CORRECTED == 0:
            self.control.kappa = self._neighbours.correct(CONTROL.kappa)

    def _end_gates(self) -> None:
        """See to it that nothing is recorded any more."""

    def _opened_since(self) -> float | None:
        """Return how long it was open since the last poll (s), None for what `Control` knows."""
        return None

    def uncounted(self, gate: Gate) -> list[int]:
        """Return how many events of each cpu came after the last poll."""
        before = self._counts[gate.name]
        return [b - a for a, b in zip(before, gate.counts(self._cpus), strict=True)]

    def _poll(self) -> float:
        """Count, decide and act; return when to look again (s)."""
        self.polls += 1
        self._polled = time.monotonic()
        if self._beside is not None and time.monotonic() >= self._beside_at + _BESIDE:
            part, read = self._beside
            spent = read()
            self.control.charge(part, max(0.0, spent - self._beside_spent))
            self._beside_spent, self._beside_at = max(spent, self._beside_spent), time.monotonic()
        events = {}
        for gate in self.gates:
            now = gate.counts(self._cpus)
            before = self._counts[gate.name]  # less than that, if it was forgotten meanwhile
            events[gate.name] = [max(0, b - a) for a, b in zip(before, now, strict=True)]
            self._counts[gate.name] = now
        own = self._own + sum(gate.cpu_time() for gate in self.gates)
        spent, self._own_clock = max(0.0, own - self._own_clock), own
        command, self._command = self._command, 0.0
        decision = self.control.step(
            Reading(
                *(time.monotonic(), self._busy.passed(), events, spent, command),
                opened=self._opened_since(),
            )
        )
        if self.control.held:
            if self._until is not None and time.monotonic() >= self._until:
                self.given_up, self._until = True, None
                self._hold(frozenset())
            return decision.wait
        self._switch(decision.open)
        if decision.off and not self._off:
            for gate in self.gates:
                if not gate.is_open:
                    gate.turn_off()
        self._off, self._expects = decision.off, decision.expected
        return decision.wait

    def _leave_comparison(self) -> None:
        """Compare what there was of a time after an opening, which closes now."""
        if self._neighbours.charge(self.control.events_cost / self.control.kappa) is not None:
            self._end_comparison()

    @property
    def compared(self) -> Neighbours:
        """What was compared with the time in between."""
        return self._neighbours

    def _switch(self, opened: frozenset[str], why: str = BUDGET) -> None:
        # What others need opens first and closes last.
        for gate in self.gates:
            if gate.name in opened and not gate.is_open:
                self._journal.open_layer(gate.name, gate.open)
                if gate.name in self._lasted:
                    self._lasting_since[gate.name] = time.monotonic()
                if gate is self.gates[0]:
                    self._opened_at = time.monotonic()
                    self.windows += 1
                    if self._compares and not self.control.held:
                        self._neighbours.open()
        if self.gates[0].name not in opened:
            self._leave_comparison()
        for gate in reversed(self.gates):
            if gate.name not in opened and gate.is_open:
                self._journal.close_layer(gate.name, why, gate.close)
                if since := self._lasting_since.pop(gate.name, None):
                    self._lasted[gate.name] += time.monotonic() - since
                if gate is self.gates[0]:
                    self.opened_for += time.monotonic() - self._opened_at


__all__ = ["OFF", "BusyTimes", "Gate", "Loop", "count_switches"]
