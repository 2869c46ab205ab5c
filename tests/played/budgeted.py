"""A program, its events, and a loop that records them under a budget, in played time."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from critpath.errors import CritpathError
from critpath_record.budget import gaps, gates, loop, natural, policies, programs
from critpath_record.budget.account import overhead_of
from critpath_record.budget.control import SOFT, TRACING_ON, Budget, Control, Costs
from critpath_record.budget.gaps import Journal, LayerGap, read_journal
from critpath_record.budget.gates import Gates
from critpath_record.budget.loop import Loop
from critpath_record.budget.policies import Runs, Windows
from critpath_record.ftrace import drain

sys.path.insert(0, str(Path(__file__).parent))
from played_time import PlayedTime, play_time

NS: Final = 258.0  # of an event
RESIDUAL: Final = 20.0  # of one that meets a closed gate
VOLUME: Final = 2500  # events after which pages are moved
COSTS: Final = Costs(
    {"base": NS, "network": NS},
    {n: {SOFT: RESIDUAL, TRACING_ON: RESIDUAL} for n in ("base", "network")},
)


class Gate:
    """A layer that counts what is recorded while it is open."""

    state = SOFT

    def __init__(self, time: PlayedTime, name: str) -> None:
        self.time, self.name = time, name
        self.is_open = False
        self.recorded = self.spent = 0.0
        self.steps: list[tuple[int, bool]] = []
        self.refuses = False
        self.is_off = False

    def switch(self, opened: bool) -> None:
        if self.refuses:
            raise CritpathError("the kernel refuses", "nothing")
        self.spent += COSTS.gate / 2 + self.is_off * COSTS.off / 2
        self.is_open, self.is_off = opened, False
        self.steps.append((self.time.monotonic_ns(), opened))

    def open(self) -> None:
        self.switch(True)

    def close(self) -> None:
        self.switch(False)

    def adopt(self) -> None:
        self.is_open = True

    def end(self) -> None:
        pass

    def turn_off(self) -> None:
        self.spent += COSTS.off / 2
        self.is_off = True

    def cpu_time(self) -> float:
        return 0.0

    @property
    def records(self) -> bool:
        """Whether what happens is recorded."""
        return self.is_open

    def counts(self, cpus: tuple[int, ...]) -> list[int]:
        return [int(self.recorded) if cpu == 0 else 0 for cpu in cpus]


class Switch(Gate):
    """A layer whose switch is a file, as programs have it: ``1`` in it while it is open."""

    def __init__(self, time: PlayedTime, name: str, place: Path) -> None:
        super().__init__(time, name)
        self.file = os.open(place, os.O_RDWR | os.O_CREAT)
        self.ended = False

    def switch(self, opened: bool) -> None:
        os.pwrite(self.file, b"01"[opened : opened + 1], 0)
        super().switch(opened)

    @property
    def records(self) -> bool:
        return os.pread(self.file, 1, 0) == b"1" and not self.ended

    def end(self) -> None:
        self.ended = True


class Busy:
    """In place of ``/proc/stat``: cpu 0 is as busy as the world says."""

    def __init__(self, cpus: tuple[int, ...]) -> None:
        self.times = [0.0] * len(cpus)

    def passed(self) -> list[float]:
        found, self.times = self.times, [0.0] * len(self.times)
        return found

    def close(self) -> None:
        pass


class World:
    """A program on cpu 0, its events, and a loop that records them under a budget."""

    def __init__(
        self, patch: pytest.MonkeyPatch, place: Path, target: float = 0.05, **more: Any
    ) -> None:
        self.time = play_time(patch, loop, gates, policies, programs, natural, gaps)
        self.names = more.pop("names", ["base"])
        make_gate = more.pop("make_gate", Gate)
        self.gates = [make_gate(self.time, name) for name in self.names]
        self.control = Control(
            Budget(target, more.pop("horizon", 1.0)), COSTS, self.names, more.pop("cpus", 1), 1
        )
        self.control.kappa = more.pop("kappa", 1.0)
        self.journal = place / "journal"
        self.rate: Callable[[float], float] = lambda _: 0.0
        self.cost = self.busy = self.waiting = 0.0
        self.begin = self.time.clock.now
        patch.setattr(loop, "BusyTimes", self._make_busy)
        patch.setattr(drain, "raise_priority", lambda: "normal")
        self.more: Callable[[float], None] = lambda _: None
        self.time.happen = self.happen
        cpus = range(self.control.tally.cpus)
        made = more.pop("make", self._make)(Journal(self.journal), cpus, **more)
        self.loop = Loop(self.control, *made)
        self.policy: Any = self.loop.policy
        self.loop.start()

    def _make(
        self, journal: Journal, cpus: range, *, held: bool = False, compares: bool = False
    ) -> tuple[Gates, Windows | Runs]:
        policy = Runs() if held else Windows(compares=compares)
        return Gates(self.gates, journal, cpus), policy

    def _make_busy(self, cpus: tuple[int, ...]) -> Busy:
        self.busy_times = Busy(cpus)
        return self.busy_times

    def happen(self, seconds: float) -> None:
        rate = self.rate((self.time.clock.now - self.begin) / 1e9)
        each = sum(NS if g.records else 0.0 if g.is_off else RESIDUAL for g in self.gates) * 1e-9
        events = rate * seconds / (1 + rate * each)
        self.cost += events * each
        busy = seconds if rate else 0.03 * seconds
        self.busy += busy
        if hasattr(self, "busy_times"):
            self.busy_times.times[0] += busy
        for gate in self.gates:
            gate.recorded += events * gate.records
            self.waiting += events * gate.records
        if self.waiting > VOLUME:  # whoever moves pages says so
            self.waiting = 0.0
            self.loop.poke()
        self.more(seconds)

    @property
    def overhead(self) -> float:
        """What recording truly cost."""
        own = self.time.poll_costs * self.loop.polls + self.gates[0].spent
        return overhead_of((self.cost + own) / self.busy)

    def end(self) -> None:
        self.loop.stop()
        self.time.close()

    def gaps(self, name: str = "base") -> list[LayerGap]:
        found = read_journal(self.journal, self.begin, self.time.clock.now)
        return [gap for gap in found if gap.layer == name]
