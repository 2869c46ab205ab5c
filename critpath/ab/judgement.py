"""From the log of blocks to the verdict; nothing but the log and what was asked decides."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np

from critpath.ab.effects import carry_over, difference_change, drift, machine_summary
from critpath.documents import (
    AB_FORMAT,
    AbBlock,
    AbCause,
    AbDocument,
    AbEvidence,
    AbPlan,
    AbResult,
    AbTail,
    Sides,
)
from critpath.errors import EXIT_ANOMALY, EXIT_INCONCLUSIVE, EXIT_OK, EXIT_UNREADABLE
from critpath.model import F64
from critpath.schema.parameters.ab import EVIDENCE
from critpath.schema.parameters.shared import DEFAULTS
from critpath.stats.evidence import (
    BlockEvidence,
    blocks_to_go,
    confidence_sequence,
    settle,
    smallest_extra_share,
)
from critpath.text import ab as text

EXIT_CODES: Final = {
    "slower": EXIT_ANOMALY,
    "slower_in_part": EXIT_ANOMALY,
    "not_slower": EXIT_OK,
    "faster": EXIT_OK,
    "undecided": EXIT_INCONCLUSIVE,
    "invalid": EXIT_UNREADABLE,
}
COUNTED: Final = frozenset({"instructions", "cycles"})
_MOST_E: Final = 1e12  # technical: documents have no larger numbers
_MOST_TOLD: Final = 5  # technical: times the blocks so far: a longer forecast is not given


@dataclass
class _Series:
    """The blocks that one question rests on: their evidence, and the times of each side."""

    evidence: BlockEvidence
    times: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    logs: list[float] = field(default_factory=list)  # of the evidence for a pass

    def add(self, a: list[list[int]], b: list[list[int]]) -> None:
        self.evidence.add(_pad_slots(a), _pad_slots(b))
        for side, slots in zip(self.times, (a, b), strict=True):
            side += [time for slot in slots for time in slot]
        self.logs.append(math.log(max(float(self.evidence.not_slower.wealth.value[0]), 1e-300)))


def _pad_slots(slots: list[list[int]]) -> F64:
    """Return [1, slots, executions]; a kind of execution need not be in all slots as often."""
    if len({len(slot) for slot in slots}) > 1:
        slots = [[time] for slot in slots for time in slot]
    # A clock that stands still gives 0, of which there is no logarithm.
    return np.maximum(np.array(slots, np.float64), 1.0)[None, :, :]


def _tracing_cost(document: AbDocument) -> tuple[list[float | None], int]:
    """Return by what share each side's typical time is above that of untraced warm-up executions.

    Also how many of these a side has.
    """
    block = document.discarded
    slots = [] if block is None else zip(block.order, block.times, strict=True)
    without: dict[str, list[int]] = {"A": [], "B": []}
    for side, times in slots:
        without[side] += times
    typical = document.time.typical.a, document.time.typical.b
    shares = [
        whole / float(np.median(times)) - 1 if times and whole else None
        for whole, times in zip(typical, without.values(), strict=True)
    ]
    return shares, min(map(len, without.values()))


def computes(floor: float, blocks: Sequence[AbBlock], *, find: Callable[[F64], float]) -> bool:
    """Tell whether both commands compute: one thread at a time, on a cpu or waiting for one.

    What else an execution's time is must be less than half of the floor, at most of the usual one,
    so that no slowdown hides in it: of the shares of a side's executions what `find` takes.
    """
    most = min(floor, DEFAULTS.floor) / 2
    shares: dict[str, list[float]] = {"A": [], "B": []}
    for block in blocks:
        if not block.waited:
            return False
        for side, *slot in zip(block.order, block.times, block.run, block.waited, strict=True):
            shares[side] += [
                (run + waited) / max(whole, 1) for whole, run, waited in zip(*slot, strict=True)
            ]
    return all(side and abs(find(np.array(side)) - 1) <= most for side in shares.values())


class Judge:
    """Takes block after block and says whether enough is shown."""

    def __init__(self, plan: AbPlan) -> None:
        self.plan = plan
        self.blocks: list[AbBlock] = []
        self._time, self._run, self._counted = self._series(), self._series(), self._series()
        self._labels: dict[str, _Series] = {}
        self._late: set[str] = set()  # kinds that came after the level was shared out
        self._failures = Sides(0, 0)
        self._dropped = 0
        self._slowest = 1

    def _series(self) -> _Series:
        return _Series(
            BlockEvidence(
                self.plan.floor,
                statistic=self.plan.statistic,
                tails=tuple(float(q) for q in self.plan.tails),
            )
        )

    def add(self, block: AbBlock) -> None:
        """Take in a block."""
        self.blocks.append(block)
        failed = block.failed or [0] * len(block.order)
        for side, count in zip(block.order, failed, strict=True):
            if side == "A":
                self._failures.a += count
            else:
                self._failures.b += count
        if sum(failed) and not self.plan.failures_are_slow:
            self._dropped += 1
            return
        times, run = block.times, block.run
        self._slowest = max(self._slowest, *(time for slot in times for time in slot), 1)
        if sum(failed):
            wanted = self.plan.slot
            times = [[*slot, *[self._slowest] * (wanted - len(slot))] for slot in times]
            run = [[*slot, *[self._slowest] * (wanted - len(slot))] for slot in run]
            block = copy(block)
            block.counted = []
        whole = copy(block)
        whole.times, whole.run = times, run
        whole, block = self._drop_first(whole), self._drop_first(block)
        self._time.add(*_sides(block.order, whole.times))
        self._run.add(*_sides(block.order, whole.run))
        if whole.counted:
            self._counted.add(*_sides(block.order, whole.counted))
        if block.labels:
            deciding = {"run": block.run, **dict.fromkeys(COUNTED, block.counted)}
            self._add_labels(block, deciding.get(self.plan.of, block.times))

    def _drop_first(self, block: AbBlock) -> AbBlock:
        """Leave out what meets the state that the other command left."""
        if not self.plan.skip_first:
            return block
        found = copy(block)
        for name in ("times", "run", "waited", "counted", "labels"):
            setattr(found, name, [slot[1:] for slot in getattr(block, name)])
        return found

    def _add_labels(self, block: AbBlock, times: list[list[int]]) -> None:
        names = sorted({name for slot in block.labels for name in slot})
        for name in names:
            # How many kinds share the level is settled before any can have reached it.
            if name not in self._labels and self._time.evidence.blocks > EVIDENCE.least_blocks:
                self._late.add(name)
                continue
            series = self._labels.setdefault(name, self._series())
            chosen = [
                [time for time, found in zip(slot, labels, strict=True) if found == name]
                for slot, labels in zip(times, block.labels, strict=True)
            ]
            sides = _sides(block.order, chosen)
            a, b = ([slot for slot in side if slot] for side in sides)
            if a and b:
                series.add(a, b)

    @property
    def _deciding(self) -> list[_Series]:
        """What decides: all must pass, one may fail; of programs that compute either may pass."""
        if self._labels:
            return list(self._labels.values())
        return {
            "time": [self._time, self._run] if self.plan.computes else [self._time],
            "run": [self._run],
            "both": [self._time, self._run],
        }.get(self.plan.of, [self._counted])

    @property
    def _either(self) -> bool:
        return self.plan.of == "time" and self.plan.computes and not self._labels

    @property
    def _settled(self) -> tuple[str, _Series | None]:
        """What is shown, ``slower``, ``not_slower`` or ``""``, and the series that shows it."""
        series, alpha = self._deciding, self.plan.alpha
        fails, passes = settle([s.evidence for s in series], alpha, either=self._either)
        usable = [s.evidence.blocks >= EVIDENCE.least_blocks for s in series]
        # What the warm-up said must hold: else time on a cpu does not stand for time.
        if self._either and (fails[1, 0] or passes[1, 0]):
            usable[1] &= computes(
                self.plan.floor, self._counted_blocks, find=lambda side: float(np.median(side))
            )
            fails[1] &= usable[1]
        if self._labels and self._time.evidence.blocks < EVIDENCE.least_blocks:
            return "", None
        if fails.any():
            return "slower", series[int(np.argmax(fails[:, 0]))]
        passed = [bool(shown) for shown, use in zip(passes[:, 0], usable, strict=True) if use]
        if passed and (any(passed) if self._either else all(passed)):
            return "not_slower", next(
                s for s, *ok in zip(series, passes[:, 0], usable, strict=True) if all(ok)
            )
        return "", None

    @property
    def decided(self) -> str:
        """``slower``, ``not_slower`` or ``""``, as far as the evidence goes."""
        return "" if self._too_many_dropped else self._settled[0]

    @property
    def _too_many_dropped(self) -> bool:
        return self._dropped > EVIDENCE.dropped * len(self.blocks)

    @property
    def invalid(self) -> bool:
        """Whether failures have spoiled the run for good."""
        if self.plan.failures_are_slow:
            return False
        a, b = self._failures.a, self._failures.b
        if max(a, b) >= EVIDENCE.one_sided and min(a, b) == 0:
            return True
        return self._dropped >= EVIDENCE.one_sided and self._too_many_dropped

    def look(self) -> tuple[AbResult, int | None]:
        """Return what is shown so far, and about how many more blocks it takes."""
        series = self._deciding[0]
        return self._result(series), blocks_to_go(series.logs, self.wanted)

    @property
    def wanted(self) -> float:
        """How much evidence a pass takes."""
        return (len(self._deciding) if self._either else 1) / self.plan.alpha

    def document(
        self,
        *,
        version: str,
        discarded: AbBlock | None,
        spent_s: float,
        stopped_by: Any,
        cause: AbCause | None = None,
    ) -> AbDocument:
        """Return the answer with all that it rests on."""
        time, run = self._result(self._time), self._result(self._run)
        labels = {name: self._result(s) for name, s in sorted(self._labels.items())}
        counted = self._result(self._counted) if self.plan.of in COUNTED else None
        shown, series = self._settled
        by: Any = self.plan.of if self.plan.of != "both" else "time"
        if shown == "slower" and series in self._labels.values():
            decides = next(labels[n] for n, s in self._labels.items() if s is series)
        elif counted is not None:
            decides = counted
        else:
            if not self._labels and series is not None:
                by = "run" if series is self._run else "time"
            decides = run if by == "run" else time
        verdict: Any = self._verdict(decides, stopped_by)
        document = AbDocument(
            **{name: getattr(self.plan, name) for name in AbPlan.__struct_fields__},
            format=AB_FORMAT,
            version=version,
            verdict=verdict,
            exit=EXIT_CODES[verdict],
            sentences=[""],
            blocks=self._time.evidence.blocks,
            dropped=self._dropped,
            executions=time.executions,
            failures=self._failures,
            discarded=discarded,
            ratio=decides.ratio,
            interval=decides.interval,
            e=decides.e,
            tail=decides.tail,
            time=time,
            running=run,
            counted=counted,
            decided_by=by,
            labels=labels,
            by_evidence=_e_bh({n: r.e.alarm for n, r in labels.items()}, self.plan.alpha),
            carry_over=carry_over(self._counted_blocks),
            machine=machine_summary(self._counted_blocks),
            spent_s=spent_s,
            stopped_by=stopped_by,
            cause=cause,
            block_log=self.blocks,
        )
        changed = self._change_of_difference
        if changed and document.exit == EXIT_ANOMALY and changed[1] < self.plan.floor / 2:
            document.exit = EXIT_INCONCLUSIVE
        document.sentences = self._sentences(document, decides)
        return document

    @cached_property
    def _change_of_difference(self) -> tuple[float, float] | None:
        series = self._settled[1] or self._deciding[0]
        return difference_change(np.array([float(d[0]) for d in series.evidence.d]))

    @property
    def _counted_blocks(self) -> list[AbBlock]:
        """The blocks of which no execution failed."""
        return [self._drop_first(block) for block in self.blocks if not any(block.failed)]

    def _verdict(self, decides: AbResult, stopped_by: str) -> str:
        if stopped_by == "invalid" or self.invalid:
            return "invalid"
        decided = self.decided
        if decided == "slower":
            return "slower_in_part" if decides.verdict == "slower_in_part" else "slower"
        if decided == "not_slower":
            return "faster" if decides.verdict == "faster" else "not_slower"
        if not self.plan.failures_are_slow and self._too_many_dropped:
            return "invalid"
        return "undecided"

    def _result(self, series: _Series) -> AbResult:
        evidence, (a, b) = series.evidence, series.times
        d = np.array([float(value[0]) for value in evidence.d])
        limits = confidence_sequence(d, self.plan.alpha)
        return AbResult(
            verdict=self._find_verdict(series),
            blocks=evidence.blocks,
            executions=Sides(len(a), len(b)),
            typical=Sides(*(round(float(np.median(side))) if side else 0 for side in (a, b))),
            ratio=math.exp(float(np.median(d))) if len(d) else None,
            interval=[None, None] if limits is None else [math.exp(end) for end in limits],
            e=AbEvidence(
                slower=_evidence(evidence.slower.wealth.value),
                not_slower=_evidence(evidence.not_slower.wealth.value),
                faster=_evidence(evidence.faster.wealth.value),
                alarm=_evidence(evidence.alarm),
                few_slow=_evidence(evidence.few_slow.wealth.value),
            ),
            extra_slow=smallest_extra_share(np.array([float(x[0]) for x in evidence.extra])),
            tail=[_tail(t.quantile, t.wealth.value, a, b) for t in evidence.tails]
            if a and b
            else [],
        )

    def _find_verdict(self, series: _Series) -> Any:
        evidence, alpha = series.evidence, self.plan.alpha
        if evidence.blocks < EVIDENCE.least_blocks:
            return "too_few" if self._labels else "undecided"
        among = series in self._deciding
        threshold = len(self._deciding) / alpha if among else 1 / alpha
        if evidence.fails(threshold)[0]:
            # No sentence may say "more than" of a typical difference that is less.
            typical = float(np.median([float(d[0]) for d in evidence.d]))
            return "slower" if typical > math.log1p(self.plan.floor / 2) else "slower_in_part"
        if evidence.passes(self.wanted if among else 1 / alpha)[0]:
            return "faster" if evidence.faster.wealth.peak[0] >= 2 / alpha else "not_slower"
        return "undecided"

    def _sentences(self, document: AbDocument, decides: AbResult) -> list[str]:
        """Return the answer in words, then what else is to know."""
        plan = self.plan
        if document.verdict == "invalid":
            return [text.invalid(document.failures, len(self.blocks))]
        found = [text.verdict(document, decides, self._blocks_needed)]
        if plan.of == "time" and document.blocks:
            others = document.machine.others_share
            if document.decided_by == "run":
                found.append(text.elapsed_time(document.time, plan, others))
            else:
                found.append(text.running_time(document.running, plan, others))
        found += [text.label(name, result) for name, result in document.labels.items()]
        if self._late:
            found.append(text.late_labels(sorted(self._late), EVIDENCE.least_blocks))
        found += self._tail_sentences(decides)
        if plan.commands[0] == plan.commands[1]:
            found.append(text.same_command())
        if document.failures.a or document.failures.b:
            found.append(text.failed(document.failures, slow=plan.failures_are_slow))
        if document.stopped_by in {"user", "signal"}:
            found.append(text.stopped(by_user=document.stopped_by == "user"))
        if plan.traced:
            found.append(text.with_tracing(*_tracing_cost(document)))
        return [*found, *self._oddities(document)]

    @property
    def _blocks_needed(self) -> int | None:
        """About how many blocks either sentence takes, as the evidence has grown so far."""
        series = self._deciding[0].evidence
        n, wanted = series.blocks, math.log(self.wanted)
        grown = max(
            math.log(max(float(value[0]), 1.0))
            for value in (series.not_slower.wealth.value, series.alarm)
        )
        found = math.ceil(n * wanted / grown) if grown > 0 else 0
        return found if n < found <= _MOST_TOLD * n else None

    def _oddities(self, document: AbDocument) -> list[str]:
        """Say what is odd about the run itself."""
        found, plan = [], self.plan
        change = drift(self._counted_blocks)
        if abs(change) > EVIDENCE.drift:
            found.append(text.drifted(change))
        if self._change_of_difference:
            found.append(text.difference_changed(*self._change_of_difference))
        carried, (low, high) = document.carry_over.estimate, document.carry_over.interval
        sure = carried is not None and low is not None and high is not None and low * high > 0
        if carried is not None and sure and abs(carried) > plan.floor / 4:
            found.append(text.carried_over(carried, plan))
        for probe, sides in document.machine.by_side.items():
            if sides["e"] >= 2 / plan.alpha:
                found.append(text.changes_machine(probe, sides["b"] / sides["a"] - 1))
        differences = [float(d[0]) for d in self._deciding[0].evidence.d]
        if differences and sum(d == 0 for d in differences) >= EVIDENCE.coarse * len(differences):
            found.append(text.coarse_clock())
        return found

    def _tail_sentences(self, decides: AbResult) -> list[str]:
        found = []
        for tail in decides.tail:
            needed = tail_blocks(float(tail.q))
            if tail.q not in self.plan.asked_tails:
                continue
            if decides.blocks < needed:
                found.append(text.tail_not_shown(float(tail.q), needed))
                continue
            process = next(
                t for t in self._deciding[0].evidence.tails if t.quantile == float(tail.q)
            )
            extra = [float((b - a)[0]) for a, b in process.exceedances.shares]
            found.append(text.tail_bounded(tail, smallest_extra_share(np.array(extra))))
        return found


def tail_blocks(q: float) -> int:
    """Return about how many blocks a verdict on a quantile takes: 400 for p99."""
    return max(40, round(4 / (1 - q)))


def _sides(order: str, slots: Sequence[list[int]]) -> tuple[list[list[int]], list[list[int]]]:
    found: dict[str, list[list[int]]] = {"A": [], "B": []}
    for side, slot in zip(order, slots, strict=True):
        found[side].append(slot)
    return found["A"], found["B"]


def _evidence(value: F64) -> float:
    return min(float(value[0]), _MOST_E)


def _tail(q: float, wealth: F64, a: list[int], b: list[int]) -> AbTail:
    threshold = float(np.quantile(np.array([*a, *b], np.float64), q))
    above = [float(np.mean(np.array(side) > threshold)) for side in (a, b)]
    return AbTail(q, threshold / 1e6, above[0], above[1], _evidence(wealth))


def _e_bh(evidence: dict[str, float], alpha: float) -> list[str]:
    """Return the kinds that e-BH rejects: false discoveries are at most a share alpha."""
    ordered = sorted(evidence, key=lambda name: (-evidence[name], name))
    rejected = 0
    for rank, name in enumerate(ordered, 1):
        if evidence[name] * rank * alpha >= len(ordered):
            rejected = rank
    return ordered[:rejected]
