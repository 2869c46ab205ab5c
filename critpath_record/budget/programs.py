"""The policy of runs that programs choose, by a coin.

As long as programs mark runs and may open the gates, no windows in time are opened: chances
by kind are what holds the budget, and the gates close when nobody is inside.  They stay open a
little longer where the next run will come sooner than opening costs.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from critpath.schema.parameters.budget import PROGRAMS
from critpath_record.budget.admission import Admission, Look
from critpath_record.budget.gaps import BUDGET, Journal
from critpath_record.budget.gates import Gate, Gates
from critpath_record.budget.policies import Windows
from critpath_record.budget.selection import Kinds

_SHORTEST: Final = 0.002  # s between two looks while open
_CLOSED: Final = 0.2
_NOTHING: Final = 60.0  # s until to look again, if only programs count
_TRIES: Final = 3


class SharedGates(Gates):
    """Gates that programs open, too: closing looks afterwards whether anybody came in between."""

    def __init__(
        self, every: Sequence[Gate], journal: Journal, cpus: Sequence[int], admission: Admission
    ) -> None:
        super().__init__(every, journal, cpus)
        self._admission = admission
        self._settled: dict[str, list[int]] | None = None  # what was recorded until all was closed
        self._closed_at = time.monotonic_ns()

    def adopt(self, look: Look) -> None:
        """Note that programs opened, from when on it is open if they said so."""
        now = time.monotonic_ns()
        closed = [gate for gate in self.every if not gate.is_open]
        ends = [
            (opening, opened)
            for opening, opened in look.openings
            if self._closed_at < opening <= opened <= now
        ]
        if not ends:
            if not look.busy:  # somebody who failed, or was killed
                self.cross()
                return
            for gate in self.every:
                gate.open()
        opening = min((of[0] for of in ends), default=self._closed_at)
        # One of which the end is not known may have begun before.
        opening = opening if len(ends) == len(look.openings) else self._closed_at
        end = min((of[1] for of in ends), default=time.monotonic_ns())
        for gate in closed:
            self.journal.note_opened(gate.name, opening, gate.adopt() or end)
            self.note_open(gate.name, end / 1e9)
        self._say_open()
        self._settled = None

    def _say_open(self) -> None:
        if all(gate.is_open for gate in self.every):
            self._admission.set_open()

    def switch(self, opened: Collection[str], why: str = BUDGET) -> None:
        """Open and close, and tell programs."""
        if not opened:
            if self.is_open:
                self._close(why)
            return
        if self.opened - {*opened}:
            self._admission.set_closed()
        self._settled = self._settled if self.is_open else None
        super().switch(opened, why)
        self._say_open()

    def _close(self, why: str) -> None:
        self._admission.ask(True)
        names = self.opened
        begin = time.monotonic_ns()
        for name in names:
            self.journal.note_closing(name, begin, why)
        came = False
        for _ in range(_TRIES):
            self._close_all()
            self._settle()
            look = self._admission.look()
            came = look.busy and bool(look.openings)
            if came or not look.openings:
                break
        for name in names:
            self.journal.note_closed(name, begin, self._closed_at, why)
            self.note_closed(name, begin / 1e9)
        if came:
            # Who came may have opened some of what was closed just then; the next ones know that
            # it is open.
            for gate in self.every:
                gate.open()
            end = time.monotonic_ns()
            for gate in self.every:
                self.journal.note_opened(gate.name, self._closed_at, end)
                self.note_open(gate.name, end / 1e9)
            self._say_open()
            self._settled = None

    def _close_all(self) -> None:
        self._admission.set_closed()
        for gate in reversed(self.every):
            gate.close()

    def _settle(self) -> None:
        """Note what was recorded until it was closed."""
        self._settled = self._read()
        self._closed_at = time.monotonic_ns()

    def were_events(self) -> bool:
        """Return whether something was recorded while all was closed."""
        return self._settled is not None and not self.is_open and self._settled != self._read()

    def cross(self) -> None:
        """Close what somebody opened who does not count."""
        begin = time.monotonic_ns()
        self._close_all()
        self._note_crossing(begin)

    def _note_crossing(self, begin: int) -> None:
        """Note that what was recorded since it was closed is worth nothing: both edges meet."""
        before = self._closed_at
        self._settle()
        for gate in self.every:
            if not gate.is_open:
                self.journal.note_opened(gate.name, before, begin)
                self.journal.note_closed(gate.name, begin, self._closed_at, BUDGET)

    def end(self) -> None:
        """See to it that nothing is recorded any more, whoever opens."""
        begin = time.monotonic_ns()
        self._admission.set_closed()
        for gate in self.every:
            gate.end()
        if self._admission.look().openings or self.were_events():
            self._note_crossing(begin)


class Programs(Windows):
    """Chooses runs where programs mark any; else opens and closes as the law says.

    `longest`: s after which a run is given up; 0 for 20 times the median of its kind.
    """

    def __init__(
        self, gates: SharedGates, admission: Admission, kinds: Kinds, longest: float
    ) -> None:
        super().__init__()
        self._gates = gates
        self._admission, self._kinds, self._most = admission, kinds, longest
        self._active_until = 0.0
        self.chosen = False  # whether programs ever did
        self.claimed = 0
        self._left_at: float | None = None  # since when nobody is inside
        self._admitted: dict[str, int] = {}
        self._cost = self._cost_since = 0.0
        self._was_open_for = 0.0
        self._rates = (0.0, 0.0)  # of admissions, and of cost while open, per second

    def begin(self) -> None:
        """Wait for what programs tell."""
        self._admission.ask(True)
        share = self.loop.control.budget.share
        self._admission.publish({}, min(1.0, share / PROGRAMS.guess))
        self.loop.watch(self._admission.pipe, self._take_word)

    def _take_word(self) -> None:
        with contextlib.suppress(OSError):
            os.read(self._admission.pipe, 4096)
        self.loop.look_within(self._serve() if self.loop.control.held else 0.0)

    def end(self) -> None:
        """Let nobody open any more."""
        self._admission.publish({}, 0.0)

    # What programs did

    def _serve(self) -> float:
        """Take over what programs opened, and close when nobody is inside; return until when."""
        gates, control = self._gates, self.loop.control
        look = self._admission.look()
        if look.openings and len(gates.opened) < len(gates.every):
            self._adopt(look)
        if not gates.is_open or not control.held:
            return _NOTHING
        now = time.monotonic()
        if look.busy:
            self._left_at = None
            self._admission.ask(True)
            if now - gates.open_at < self._longest():
                return control.longest
            self._admission.give_up()
        elif self._left_at is None:
            self._left_at = now
        stay = self._stay() - (now - (self._left_at or now))
        if stay > 0 and not look.busy:
            self._admission.ask(False)
            return stay
        self._close()
        return _NOTHING

    def _close(self) -> None:
        self.loop.force(frozenset())
        self._left_at = None

    def _adopt(self, look: Look) -> None:
        self._gates.adopt(look)
        self.loop.control.force(self._gates.opened)
        self._left_at = None

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

    # What is held

    def poll(self) -> float:
        """Learn what programs did, count, and say what chance the next ones have."""
        control, gates = self.loop.control, self._gates
        learned = self._admission.learn()
        now = time.monotonic()
        if learned.seen:
            self._active_until, self.chosen = now + PROGRAMS.active, True
        self.claimed += sum(learned.seen.values())
        active = now < self._active_until
        if not active and control.held:
            self._close()
        control.held = active
        self._serve()
        control.charge("programs", PROGRAMS.begin * sum(learned.seen.values()))
        wait = super().poll()
        if not self.loop.ending and gates.were_events():
            look = self._admission.look()
            if look.openings:
                self._adopt(look)
            else:
                gates.cross()
        if not active:
            self._publish()
            return min(wait, self._serve())
        self._learn(learned.seen, learned.admitted, learned.took)
        self._publish()
        low, high = (_SHORTEST, control.longest) if gates.is_open else (_CLOSED, _CLOSED)
        return min(max(low, min(high, control.time_to_spend())), self._serve())

    def open_since(self) -> float | None:
        """Return how long it was open since the last look (s), where programs open."""
        total = self._gates.open_seconds()
        found, self._was_open_for = total - self._was_open_for, total
        return max(0.0, found) if self.loop.control.held else None

    def _learn(
        self,
        seen: Mapping[str, int],
        admitted: Mapping[str, int],
        took: Sequence[tuple[str, float]],
    ) -> None:
        control, kinds = self.loop.control, self._kinds
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
        if self._admitted and (not self._gates.is_open or late):
            kinds.note_cost(self._admitted, self._cost)
            self._admitted, self._cost, self._cost_since = {}, 0.0, spent.now

    def _publish(self) -> None:
        """Say what chance each kind has now: none while there is a debt."""
        control = self.loop.control
        credit, size, _ = control.room()
        if credit <= 0 or self.loop.ending:
            self._admission.publish({}, 0.0)
            return
        balance, scale = credit - size / 2, size / 2
        others = min(1.0, control.budget.share / PROGRAMS.guess)
        self._admission.publish(self._kinds.chances(balance, scale), others)
