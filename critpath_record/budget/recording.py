"""A recording under a budget: gates, loop, and what is told at the end."""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from critpath.errors import CritpathError
from critpath.schema.parameters.budget import CONTROL, PROGRAMS
from critpath.stats.medians import compare_sides
from critpath.units import plural
from critpath_record.budget.account import overhead_of
from critpath_record.budget.admission import Admission
from critpath_record.budget.calibrate import (
    AGAIN,
    MOST_SECONDS,
    Measure,
    add_costs,
    find_costs,
    forget_costs,
    measure_events,
)
from critpath_record.budget.control import COMMAND, Budget, Control, Costs
from critpath_record.budget.gaps import BASE, JOURNAL, SELECTED, SUMMARY, Journal
from critpath_record.budget.gates import BesideGate, Gate, Gates
from critpath_record.budget.loop import Loop, Policy, count_switches
from critpath_record.budget.natural import pool_kinds
from critpath_record.budget.policies import Runs, Windows
from critpath_record.budget.programs import Programs, SharedGates
from critpath_record.budget.selection import Kinds
from critpath_record.ftrace import raw as raws
from critpath_record.ftrace.drain import Drain, online_cpus
from critpath_record.ftrace.marks import make_place

_FULL_HORIZONS: Final = 24  # times what switching events off and on costs, over the share
_MOST_CUT: Final = 0.01  # of those that were chosen
_LATE: Final = 0.01  # of all polls
_LONGEST_OPEN: Final = 0.1  # s between two polls while open: sooner when pages were moved
_MOVED: Final = 0.2  # of the most credit: so much is recorded before it is counted
_PLAIN_TIME: Final = 1.0  # ns: what counts as events is time itself
_MOST_CORRECTED: Final = 1.5  # times what is assumed, beyond which it is said


class LayerGate(Gate, Protocol):
    """A gate of what paths are made of."""

    @property
    def events(self) -> Sequence[str]:
        """What it records."""

    @property
    def switches(self) -> Sequence[int]:
        """The descriptors to which ``1`` opens."""

    @property
    def drain(self) -> Drain | None:
        """What moves its pages, if that is a thread here."""

    def move_after(self, events: float) -> None:
        """Move pages, which is when the count is looked at, after so many events of a cpu."""

    def stop(self) -> Mapping[int, Mapping[str, int]]:
        """Close, move the rest, and return the kernel's counts by cpu."""

    def remove(self) -> None:
        """Remove what it is made of; raises CritpathError if somebody holds it."""


@dataclass(frozen=True)
class Pace:
    """Of gates that take long to open, and count late: s between two looks, and a horizon."""

    open: float
    closed: tuple[float, float]
    horizon: float = 0.0


class BudgetRecording:
    """The gates of a recording under a budget, from construction until `remove`.

    `layers`: made by its recorder, before `measure`.  `runs`: runs of a command are recorded whole
    or not at all; else programs choose executions, if they can.  `timeout`: s after which an
    execution is given up, 0 for 20 times the median of its kind.  `lasts`: s that it goes on, 0
    where that is not known.
    """

    def __init__(
        self,
        session: str,
        budget: Budget,
        raw: Path,
        *,
        runs: bool,
        timeout: float = 0.0,
        lasts: float = 0.0,
    ) -> None:
        self._session, self.budget, self._raw = session, budget, raw
        self._runs, self._lasts = runs, lasts
        self.seed = secrets.randbits(31)
        self.layers: Sequence[LayerGate] = ()
        self.beside: tuple[BesideGate, ...] = ()  # what else it opens and closes
        self.pace: Pace | None = None  # of gates that are slow
        self.warnings: list[str] = []
        self.costs: Costs | None = None
        self._control: Control | None = None
        self._loop: Loop | None = None
        self._kinds = Kinds(budget.share, self.seed, alike=runs)
        self._timeout = timeout
        self.admission: Admission | None = None
        self._chance, self._recorded = 1.0, False
        self._begun = self._switches = 0
        self._spent = 0.0
        self._selected: list[dict[str, object]] = []
        self._seen: dict[str, int] = {}
        self._cut: dict[str, int] = {}
        self._times: dict[str, dict[bool, list[float]]] = {}  # of cpu
        self._took: dict[str, dict[bool, list[float]]] = {}
        self._stats: dict[str, Mapping[int, Mapping[str, int]]] = {}

    @property
    def events(self) -> list[str]:
        """The events of all layers."""
        return [event for layer in self.layers for event in layer.events]

    def measure(self, measure: Measure = measure_events) -> None:
        """Find out what an event costs; nothing is recorded yet."""
        cpu = online_cpus()[-1]
        pays = self.pace is not None or self._can_pay_for_measuring()
        of = measure if pays else None
        costs = find_costs(self.budget.calibrate, self.layers, cpu, measure=of)
        if self.pace is not None:  # what opens and closes them is charged as it is
            costs = replace(costs, gate=0.0, off=0.0)
        add = measure_events if pays else None
        self.costs = add_costs(costs, self.budget.calibrate, self.beside, cpu, measure=add)
        if not costs.measured:
            why = "could not be measured here" if pays else "is dear to measure for so little"
            self.warnings.append(
                f"what an event costs {why}: upper values of a table are taken"
                + (" (--calibrate again measures)" if not pays else "")
            )
        if not self._runs:
            least = self.pace.horizon if self.pace is not None else 0.0
            self.budget = lengthen_horizon(self.budget, costs, least)

    def _can_pay_for_measuring(self) -> bool:
        """Return whether a part of the budget pays for it, or it is asked for.

        Of runs nobody knows how long they take.
        """
        if self.budget.calibrate == AGAIN:
            return True
        if self._runs:
            return False
        allowed = CONTROL.paid * self.budget.share * self._lasts
        return not self._lasts or allowed >= MOST_SECONDS * len(self.layers)

    def begin(self, cpus: Sequence[int]) -> None:
        """Hold the budget from now on: every layer is closed at first."""
        if self.costs is None:
            raise RuntimeError("the layers were not started")
        # A part of what may be spent at once, whatever comes between two polls.
        most = _MOVED * self.budget.share * self.budget.horizon / 4
        for layer in self.layers:
            layer.move_after(most / (CONTROL.kappa * self.costs.events[layer.name] * 1e-9))
        names = [gate.name for gate in self.gates]
        self._control = control = Control(self.budget, self.costs, names, len(cpus), self.seed)
        control.owe("calibration", self.costs.seconds)
        control.longest = _LONGEST_OPEN
        if self.pace is not None:  # nothing new is counted sooner
            control.shortest = self.pace.open
            control.closed = self.pace.closed
        target = {"target": self.budget.overhead, "seed": self.seed, "counted": None}
        raws.write_json(self._raw / SUMMARY, target)
        self._loop = Loop(control, *self._make_policy(Journal(self._raw / JOURNAL), cpus))
        self._loop.start()
        # Programs that were started before can do without: they are recorded by windows.
        if self.admission is not None:
            with contextlib.suppress(OSError, CritpathError):
                make_place()
                self.admission.publish_place()

    def _make_policy(self, journal: Journal, cpus: Sequence[int]) -> tuple[Gates, Policy]:
        if self._runs:
            return Gates(self.gates, journal, cpus), Runs()
        if self.pace is not None:
            # What comes before an opening is the tracer at work: nothing to compare with.
            return Gates(self.gates, journal, cpus), Windows(compares=False)
        switches = [file for layer in self.layers for file in layer.switches]
        self.admission = admission = Admission(self._session, self.seed, switches)
        shared = SharedGates(self.gates, journal, cpus, admission)
        return shared, Programs(shared, admission, self._kinds, self._timeout)

    @property
    def gates(self) -> list[Gate]:
        """All that is opened and closed."""
        return [*self.layers, *self.beside]

    def poke(self) -> None:
        """Look at the counts now: pages were moved."""
        if self._loop is not None:
            self._loop.poke()

    def charge_beside(self, part: str, spent: Callable[[], float]) -> None:
        """Charge what something else has spent so far (s), such as functions of the command."""
        self._parts()[1].charge_beside(part, spent)

    def _spent_on_events(self) -> float:
        """Return what opening for runs has cost so far; functions are noted in all of them."""
        tally = self._parts()[0].tally
        return sum(tally.cost) - tally.parts.get("functions", 0.0)

    def begin_run(self, kind: str, *, limited: bool) -> bool:
        """Toss the coin, and open if it says so."""
        if not self._runs:
            return True
        control, loop = self._parts()
        loop.look()
        self._recorded, self._chance = self._kinds.toss(kind, control.balance())
        if self._recorded and isinstance(loop.policy, Runs):
            loop.policy.hold(True, 0.0 if limited else self._kinds.longest(kind))
        self._begun = time.monotonic_ns()
        self._spent = self._spent_on_events()
        self._switches = count_switches()
        return self._recorded

    def end_run(self, kind: str, busy: int) -> None:
        """Close, and learn from what the run had in cpu time (ns)."""
        _, loop = self._parts()
        policy = loop.policy
        if not isinstance(policy, Runs):
            loop.look(busy / 1e9)
            return
        took = time.monotonic_ns() - self._begun
        if self._recorded:
            policy.hold(False)
        loop.look(busy / 1e9)
        self._kinds.note({kind: 1}, busy / 1e9)
        self._kinds.note_time(kind, took / 1e9)
        if self._recorded:
            self._kinds.note_cost({kind: 1}, self._spent_on_events() - self._spent)
        else:
            self._kinds.expect(kind, self._expect_cost(count_switches() - self._switches, busy))
        for of, time_of in ((self._times, busy or took), (self._took, took)):
            of.setdefault(kind, {True: [], False: []})[self._recorded].append(time_of)
        if self._recorded and policy.given_up:
            self._cut[kind] = self._cut.get(kind, 0) + 1
            self._recorded = False

    def _expect_cost(self, switches: int, busy: int) -> float:
        """Return what a run would have cost that was not recorded (s), as the kernel's count says.

        What other layers than `BASE` would have recorded is not counted anywhere.
        """
        control, _ = self._parts()
        if {gate.name for gate in self.gates} != {BASE}:
            return PROGRAMS.dearest * busy / 1e9
        each = control.kappa * control.costs.events[BASE] * 1e-9
        return PROGRAMS.per_switch * switches * each

    def note_selected(self, kind: str, number: int, begin: int, pid: int) -> None:
        """Note a run, and if it was recorded the chance that it had."""
        if not self._runs:
            return
        self._seen[kind] = self._seen.get(kind, 0) + 1
        if self._recorded:
            row = {"kind": kind, "key": number, "begin": begin, "tid": pid, "chance": self._chance}
            self._selected.append(row)
            with (self._raw / SELECTED).open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row) + "\n")

    def end_watching(self) -> None:
        """Close every gate and end the loop; idempotent."""
        if self._loop is not None:
            self._loop.stop()

    def stop(self) -> None:
        """Close, move the rest, and write what the manifest says beside the pages."""
        self.end_watching()
        control, loop = self._parts()
        came = loop.gates.count()  # after the last look
        for layer in self.layers:
            cost = control.kappa * control.costs.events[layer.name] * 1e-9
            control.charge("events", cost * sum(came[layer.name]))
            self._stats[layer.name] = layer.stop()
            raws.write_stats(self._raw / raws.LAYERS / layer.name, self._stats[layer.name])
        raws.write_json(self._raw / SUMMARY, self._summarize())

    def failure(self) -> CritpathError | None:
        """Return why pages are not moved, or gates not switched any more, None if they are."""
        drains = [layer.drain for layer in self.layers if layer.drain is not None]
        failed = (drain.failure for drain in drains if drain.failure is not None)
        return next(failed, self._loop.failure if self._loop is not None else None)

    def count_events(self) -> int:
        """Return how many events the layers have so far."""
        cpus = online_cpus()
        return sum(sum(layer.counts(cpus)) for layer in self.layers)

    def remove(self) -> None:
        """Remove every instance; raises CritpathError if somebody holds one."""
        with contextlib.suppress(OSError):
            self.end_watching()
        if self.admission is not None:
            self.admission.close()
        layers, self.layers = self.layers, ()
        wrong = None
        for layer in reversed(layers):
            try:
                layer.remove()
            except CritpathError as error:
                wrong = error
        if wrong is not None:
            raise wrong

    def _parts(self) -> tuple[Control, Loop]:
        if self._control is None or self._loop is None:
            raise RuntimeError("the budget is not held yet")
        return self._control, self._loop

    def _summarize(self) -> dict[str, object]:
        control, loop = self._parts()
        control.settle()
        tally, costs = control.tally, control.costs
        if loop.late > max(1, _LATE * loop.polls):
            self.warnings.append(f"the budget was looked at too late {plural(loop.late, 'time')}")
        seconds = loop.gates.open_seconds()
        events = {
            name: sum(of.get("entries", 0) + of.get("read events", 0) for of in stats.values())
            for name, stats in self._stats.items()
        }
        self._warn_of_cut()
        self._warn_of_none()
        names = [gate.name for gate in self.gates]
        ours, others = pool_kinds(self._times)
        compared: dict[str, object] | None = None
        if found := compare_sides(ours, others, self.seed, "overhead"):
            pairs = min(len(ours), len(others))
            compared = {**found, "pairs": pairs, "by": "cpu time of runs"}
        elif isinstance(loop.policy, Windows) and (ratio := loop.policy.compared.ratio()):
            counted = control.counted()
            part = tally.parts.get("events", 0.0) / max(sum(tally.cost), 1e-9)
            of = [counted * (1 + part * (one / control.kappa - 1)) for one in ratio]
            keys = ("overhead", "low", "high")
            compared = {key: round(value, 6) for key, value in zip(keys, of, strict=True)}
            compared |= {"pairs": len(loop.policy.compared.pairs), "by": "time slices"}
            if not 1 / _MOST_CORRECTED < control.kappa / CONTROL.kappa < _MOST_CORRECTED:
                forget_costs()
                self.warnings.append(
                    f"an event costs {control.kappa:.2f} times here what it did in calibration"
                )
        open_share = 0.0
        if seconds > 0 and sum(tally.busy) > 0:
            whole = max(tally.begun and time.monotonic() - tally.begun, seconds, 1e-9)
            busy_open = sum(tally.busy) * seconds / whole
            open_share = min(0.99, tally.parts.get("events", 0.0) / max(busy_open, 1e-9))
        return control.summarize() | {
            "seed": self.seed,
            "command": round(control.counted(COMMAND), 6) if self._runs else None,
            "compared": compared,
            "felt": {
                kind: felt | {"recorded": len(of[True]), "others": len(of[False])}
                for kind, of in self._took.items()
                if (felt := compare_sides(of[True], of[False], self.seed, "slowdown")) is not None
            },
            "while_open": round(overhead_of(open_share), 6),
            "events_ns": {
                name: round(ns, 1) for name in names if (ns := costs.events[name]) > _PLAIN_TIME
            },
            "layers": {
                layer.name: {
                    "events": events.get(layer.name, 0),
                    "open": round(seconds, 6),
                    "windows": loop.gates.windows,
                    "closed_by": layer.state,
                }
                for layer in self.layers
            }
            | {
                gate.name: {
                    "events": sum(gate.counts(gate.cpus)),
                    "open": round(gate.opened_for, 6),
                    "windows": gate.windows,
                    "closed_by": gate.state,
                }
                for gate in self.beside
            },
            "executions": {
                kind: {
                    "seen": seen,
                    "selected": sum(r["kind"] == kind for r in self._selected),
                    "cut": self._cut.get(kind, 0),
                }
                for kind, seen in self._seen.items()
            },
            "chosen_by": self._chosen_by(),
            "claimed": loop.policy.claimed if isinstance(loop.policy, Programs) else None,
            "trigger": None,
        }

    def _chosen_by(self) -> str:
        _, loop = self._parts()
        if isinstance(loop.policy, Programs) and loop.policy.chosen:
            return "programs"
        return "runs" if self._runs else "windows"

    def _warn_of_none(self) -> None:
        """Say what is needed where no run could be paid for."""
        runs = sum(self._seen.values())
        if not self._runs or not runs or self._selected or self._cut:
            return
        control, _ = self._parts()
        each, busy, share = self._kinds.cost_each, self._kinds.busy_each, self.budget.share
        fixed = max(0.0, share * busy * runs - control.balance())
        least = (PROGRAMS.doubt * each + fixed) / max(busy, 1e-9)
        more = math.ceil(least / share)
        more = more if more > runs else 2 * runs  # it was the coin
        most = math.ceil(100 * overhead_of(min(max(least / runs, 2 * share), 0.99)))
        self.warnings.append(
            f"none of {plural(runs, 'run')} was recorded: one costs some "
            f"{100 * each / max(busy, 1e-9):.1f} % of its own time, and {runs} of them allow "
            f"{100 * share * runs:.1f} %: -n {more}, or --overhead {most}%"
        )

    def _warn_of_cut(self) -> None:
        cut = sum(self._cut.values())
        chosen = cut + len(self._selected)
        if cut > _MOST_CUT * chosen:
            self.warnings.append(
                f"{cut} of {chosen} chosen runs lasted more than 20 times the median of "
                "their kind and were given up: what is left is shorter than all were (--timeout)"
            )


def lengthen_horizon(budget: Budget, costs: Costs, least: float = 0.0) -> Budget:
    """Return a budget over so long a time that events can be switched off and on within it."""
    least = max(least, _FULL_HORIZONS * costs.off / budget.share)
    if budget.horizon < least <= 3600:
        return replace(budget, horizon=round(least, 1))
    return budget
