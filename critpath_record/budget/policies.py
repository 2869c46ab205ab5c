"""Policies of a control loop: windows, runs."""

from __future__ import annotations

import time
from typing import Final

from critpath.schema.parameters.budget import CONTROL, NATURAL
from critpath_record.budget.loop import Policy
from critpath_record.budget.natural import Neighbours

_CORRECTED: Final = 10  # pairs after which the correction is made anew


class Windows(Policy):
    """Opens and closes as the law says.

    Where that tells something (`compares`), time just before an opening is compared with that
    after, which corrects what an event is taken to cost.
    """

    def __init__(self, *, compares: bool = True) -> None:
        self.compared = Neighbours()  # with the time in between
        self._compares = compares
        self._opens_at: float | None = None  # when something may open, if that is to be compared
        self._prepared = 0.0

    def act(self, planned: float) -> float:
        """Look, or get ready to compare the time until something may open with that after."""
        if self._opens_at is not None and planned >= self._opens_at - NATURAL.stretch:
            opens_at, self._opens_at = self._opens_at, None
            if abs(time.monotonic() - planned) < NATURAL.stretch / 2:
                self.compared.prepare()
                self._prepared = time.monotonic()
                return max(0.001, opens_at - time.monotonic())
        if not self.compared.is_under_way and self.loop.may_rest():
            return self.loop.rest()
        wait = self._end_in_time(self.poll())
        compares = self.compared.is_under_way or self._opens_at is not None
        return self.loop.rest() if not compares and self.loop.may_rest_now() else wait

    def _end_in_time(self, wait: float) -> float:
        """Return when to look again so that time before and after an opening can be compared."""
        self._opens_at = None
        control = self.loop.control
        if not self._compares or control.held:
            return wait
        passed = self.compared.charge(control.events_cost / control.kappa)
        if passed is not None and self.loop.gates.is_open:
            if passed < NATURAL.stretch:
                return min(wait, max(0.001, NATURAL.stretch - passed))
            self._end_comparison()
        elif (
            self.loop.expects
            and wait > 1.5 * NATURAL.stretch
            and time.monotonic() + wait >= self._prepared + self.rest
        ):
            self._opens_at = time.monotonic() + wait
            return wait - NATURAL.stretch
        return wait

    def _end_comparison(self) -> None:
        before = len(self.compared.pairs)
        self.compared.end()
        after = len(self.compared.pairs)
        if after > before and after % _CORRECTED == 0:
            self.loop.control.kappa = self.compared.correct(CONTROL.kappa)

    def opened(self) -> None:
        """Compare from now on."""
        if self._compares and not self.loop.control.held:
            self.compared.open()

    def closing(self) -> None:
        """Compare what there was of a time after an opening."""
        control = self.loop.control
        if self.compared.charge(control.events_cost / control.kappa) is not None:
            self._end_comparison()

    def close(self) -> None:
        """Close what is compared."""
        self.compared.close()


class Runs(Policy):
    """Opens everything for a run of a command that was chosen, and closes behind it."""

    held = True

    def __init__(self) -> None:
        self.given_up = False  # what was open last
        self._until: float | None = None

    def hold(self, opened: bool, longest: float = 0.0) -> None:
        """Open every layer, or close all, from another thread; returns when it is done.

        What is open for longer than `longest` (s; 0 for never) is given up: all are closed.
        """
        with self.loop.waiting():
            self.given_up = False if opened else self.given_up
            self._until = time.monotonic() + longest if opened and longest > 0 else None
            self.poll()
            self.loop.force(frozenset(self.loop.control.layers) if opened else frozenset())

    def poll(self) -> float:
        """Count, and give up what lasts for too long."""
        wait = self.loop.count()
        if self._until is not None and time.monotonic() >= self._until:
            self.given_up, self._until = True, None
            self.loop.force(frozenset())
        return wait
