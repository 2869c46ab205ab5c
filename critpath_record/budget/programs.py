"""A budget whose gates programs open, for executions of theirs that a coin chose.

As long as programs mark executions and may open the gate, no windows in time are opened: chances
by kind are what holds the budget, and the gate closes when nobody is inside.  It stays open a
little longer where the next execution will come sooner than opening costs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from critpath.schema.parameters.budget import PROGRAMS
from critpath_record.budget.admission import Admission, Look
from critpath_record.budget.control import Control
from critpath_record.budget.gaps import BUDGET, Journal
from critpath_record.budget.loop import Gate, Loop
from critpath_record.budget.selection import Kinds

_SHORTEST: Final = 0.002  # s between two polls while open
_CLOSED: Final = 0.2
_NOTHING: Final = 60.0  # s until to look again, if only programs count
_TRIES: Final = 3


class ProgramLoop(Loop):
    """Holds a budget by choosing executions, where programs mark any; else by windows.

    `control`, `gates`, `journal`, `cpus`: as of `Loop`.  `longest`: s after which an execution is
    given up; 0 for 20 times the median of its kind.
    """

    def __init__(
        self,
        control: Control,
        gates: Sequence[Gate],
        journal: Journal,
        cpus: Sequence[int],
        admission: Admission,
        kinds: Kinds,
        longest: float,
    ) -> None:
        self._admission, self._kinds, self._most = admission, kinds, longest
        self._active_until = 0.0
        self.chosen = False  # whether programs ever did
        self.claimed = 0
        self._left_at: float | None = None  # since when nobody is inside
        self._admitted: dict[str, int] = {}
        self._cost = self._cost_since = 0.0
        self._was_open_for = 0.0
        self._rates = (0.0, 0.0)  # of admissions, and of cost while open, per second
        self._closed_at = time.monotonic_ns()
        self._settled: dict[str, list[int]] | None = None
        admission.ask(True)
        admission.publish({}, min(1.0, control.budget.share / PROGRAMS.guess))
        super().__init__(control, gates, journal, cpus, held=False, told=admission.pipe)

    @property
    def _is_open(self) -> bool:
        return self.gates[0].is_open

    def _act(self, due: float, *, told: bool) -> float:
        now = time.monotonic()
        if told and now < due and self.control.held:
            return min(self._serve(), due - now)
        return super()._act(due, told=told)

    def stop(self) -> None:
        """Close everything and end, whatever programs do; idempotent."""
        if not self._ending:
            self._admission.publish({}, 0.0)
        super().stop()

    def _end_gates(self) -> None:
        begin = time.monotonic_ns()
        self._admission.set_closed()
        for gate in self.gates:
            gate.end()
        look = self._admission.look()
        if look.openings or self._were_events():
            self._note_crossing(begin)

    # What programs did

    def _serve(self) -> float:
        """Take over what programs opened, and close when nobody is inside; return until when."""
        look = self._admission.look()
        if look.openings and not all(gate.is_open for gate in self.gates):
            self._adopt(look)
        if not self._is_open or not self.control.held:
            return _NOTHING
        now = time.monotonic()
        if look.busy:
            self._left_at = None
            self._admission.ask(True)
            if now - self._opened_at < self._longest():
                return self.control.longest
            self._admission.give_up()
        elif self._left_at is None:
            self._left_at = now
        stay = self._stay() - (now - (self._left_at or now))
        if stay > 0 and not look.busy:
            self._admission.ask(False)
            return stay
        self._switch(frozenset())
        return _NOTHING

    def _longest(self) -> float:
        if self._most:
            return self._most
        return (
            max((self._kinds.longest(kind) for kind in self._kinds.known), default=0)
            or PROGRAMS.longest
        )

    def _stay(self) -> float:
        """Return how long to stay open for nobody (s): while the next saves more than it costs."""
        admissions, cost = self._rates
        return PROGRAMS.longest_stay if admissions * PROGRAMS.switch > cost > 0 else 0.0

    def _adopt(self, look: Look) -> None:
        """Note that programs opened, from when on it is open if they said so."""
        now = time.monotonic_ns()
        closed = [gate for gate in self.gates if not gate.is_open]
        ends = [
            (opening, opened)
            for opening, opened in look.openings
            if self._closed_at < opening <= opened <= now
        ]
        if not ends:
            if not look.busy:  # somebody who failed, or was killed
                self._cross()
                return
            for gate in self.gates:
                gate.open()
        opening = min((of[0] for of in ends), default=self._closed_at)
        # One of which the end is not known may have begun before.
        opening = opening if len(ends) == len(look.openings) else self._closed_at
        end = min((of[1] for of in ends), default=time.monotonic_ns())
        for gate in closed:
            self._journal.note_opened(gate.name, opening, gate.adopt() or end)
        self._note_open(end / 1e9)

    def _note_open(self, since: float) -> None:
        self._say_open()
        self._settled = None
        self._opened_at = since
        self._left_at = None
        self.windows += 1
        self.control.force(frozenset(gate.name for gate in self.gates if gate.is_open))

    def _say_open(self) -> None:
        if all(gate.is_open for gate in self.gates):
            self._admission.set_open()

    def _switch(self, opened: frozenset[str], why: str = BUDGET) -> None:
        if opened:
            was = self._is_open
            if any(gate.is_open and gate.name not in opened for gate in self.gates):
                self._admission.set_closed()
            super()._switch(opened, why)
            self._say_open()
            if not was:
                self._settled = None
        elif self._is_open:
            self._close(why)

    def _close(self, why: str) -> None:
        """Close, and look afterwards whether anybody came in between."""
        self._leave_comparison()
        self._admission.ask(True)
        names = [gate.name for gate in self.gates if gate.is_open]
        begin = time.monotonic_ns()
        for name in names:
            self._journal.note_closing(name, begin, why)
        for _ in range(_TRIES):
            self._admission.set_closed()
            for gate in reversed(self.gates):
                gate.close()
            self._settle()
            look = self._admission.look()
            if not look.openings:
                break
            if look.busy:
                # Who came may have opened some of what was closed just then; the next ones
                # know that it is open.
                for gate in self.gates:
                    gate.open()
                for name in names:
                    self._journal.note_closed(name, begin, self._closed_at, why)
                end = time.monotonic_ns()
                for gate in self.gates:
                    self._journal.note_opened(gate.name, self._closed_at, end)
                self._count_open(begin)
                self._note_open(end / 1e9)
                return
        for name in names:
            self._journal.note_closed(name, begin, self._closed_at, why)
        self._count_open(begin)
        self.control.force(frozenset())

    def _count_open(self, until: int) -> None:
        self.opened_for += max(0.0, until / 1e9 - self._opened_at)

    def _settle(self) -> None:
        """Note what was recorded until it was closed."""
        self._settled = {gate.name: gate.counts(self._cpus) for gate in self.gates}
        self._closed_at = time.monotonic_ns()

    def _were_events(self) -> bool:
        """Return whether something was recorded while all was closed."""
        settled = self._settled
        if settled is None or self._is_open:
            return False
        return any(settled[gate.name] != gate.counts(self._cpus) for gate in self.gates)

    def _cross(self) -> None:
        """Close what somebody opened who does not count."""
        begin = time.monotonic_ns()
        self._admission.set_closed()
        for gate in reversed(self.gates):
            gate.close()
        self._note_crossing(begin)

    def _note_crossing(self, begin: int) -> None:
        """Note that what was recorded since it was closed is worth nothing: both edges meet."""
        before = self._closed_at
        self._settle()
        for gate in self.gates:
            if not gate.is_open:
                self._journal.note_opened(gate.name, before, begin)
                self._journal.note_closed(gate.name, begin, self._closed_at, BUDGET)

    # What is held

    def _poll(self) -> float:
        learned = self._admission.learn()
        now = time.monotonic()
        if learned.seen:
            self._active_until, self.chosen = now + PROGRAMS.active, True
        self.claimed += sum(learned.seen.values())
        active = now < self._active_until
        if not active and self.control.held:
            self._switch(frozenset())
        self.control.held = active
        self._serve()
        self.control.charge("programs", PROGRAMS.begin * sum(learned.seen.values()))
        wait = super()._poll()
        if not self._ending and not self._is_open and self._were_events():
            look = self._admission.look()
            if look.openings:
                self._adopt(look)
            else:
                self._cross()
        if not active:
            self._publish()
            return min(wait, self._serve())
        self._learn(learned.seen, learned.admitted, learned.took)
        self._publish()
        low, high = (_SHORTEST, self.control.longest) if self._is_open else (_CLOSED, _CLOSED)
        return min(max(low, min(high, self.control.time_to_spend())), self._serve())

    def _opened_since(self) -> float | None:
        total = self.opened_for + (time.monotonic() - self._opened_at if self._is_open else 0.0)
        found, self._was_open_for = total - self._was_open_for, total
        return max(0.0, found) if self.control.held else None

    def _learn(
        self,
        seen: Mapping[str, int],
        admitted: Mapping[str, int],
        took: Sequence[tuple[str, float]],
    ) -> None:
        control, kinds = self.control, self._kinds
        _, _, place = control.room()
        spent = control.spent
        kinds.note(seen, spent.busy[place])
        for kind, seconds in took:
            kinds.note_time(kind, seconds)
        for kind, count in admitted.items():
            self._admitted[kind] = self._admitted.get(kind, 0) + count
        weight = min(1.0, spent.passed / PROGRAMS.half)
        rate = sum(admitted.values()) / max(spent.passed, 1e-3)
        if self._admitted:
            self._cost += spent.cost[place]
        of_cost = self._rates[1]
        if control.opened > 0:
            part = min(1.0, control.opened / PROGRAMS.half * 10)
            of_cost += part * (control.events_cost / control.opened - of_cost)
        self._rates = self._rates[0] + weight * (rate - self._rates[0]), of_cost
        late = spent.now - self._cost_since > 1
        if self._admitted and (not self._is_open or late):
            kinds.note_cost(self._admitted, self._cost)
            self._admitted, self._cost, self._cost_since = {}, 0.0, spent.now

    def _publish(self) -> None:
        """Say what chance each kind has now: none while there is a debt."""
        credit, size, _ = self.control.room()
        if credit <= 0 or self._ending:
            self._admission.publish({}, 0.0)
            return
        balance, scale = credit - size / 2, size / 2
        others = min(1.0, self.control.budget.share / PROGRAMS.guess)
        self._admission.publish(self._kinds.chances(balance, scale), others)
