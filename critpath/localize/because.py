"""Why executions take longer: work or the machine, of every piece of work and of a cause."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from msgspec import Struct, structs

from critpath.documents import Because, RivalShare
from critpath.model import F64, I64, RUNNING, Member, State, Step
from critpath.model.details import Detail, Kin, is_of_program
from critpath.model.vectors import name_family
from critpath.schema.parameters.localize import DIFFERENCE
from critpath.stats.difference import (
    NONE,
    ByWho,
    Parts,
    add_parts,
    factors_of,
    round_parts,
    take_apart,
)

if TYPE_CHECKING:
    from critpath.localize.counts import StepCounts
    from critpath.vectors import Weather

OWN, STRANGERS, NOBODY = range(3)
_INTERRUPTS: Final = frozenset({State.IRQ, State.SOFTIRQ})
_COUNTED: Final = frozenset({"new-state", "extra", "missing", "loop-count"})


def is_ours(rival: Detail, program: Collection[str]) -> bool:
    """Tell whether who had a CPU is of the program: ``program`` are families of its names.

    So is who works for it on normal paths, though it is no kin.
    """
    known = is_of_program(rival.kin)
    if known is None or rival.kin == Kin.STRANGER:
        return not rival.idle and name_family(rival.peer) in program
    return known


class Side(NamedTuple):
    """What a thread does on one side, on average: nanoseconds that it runs, and waits for a CPU."""

    running: float
    waits: ByWho


class Piece(Struct, frozen=True):
    """A piece of work: what of its difference is due to what, and both sides of it.

    ``run`` is the same without waits for a CPU, which have the rest.
    """

    parts: Parts
    run: Parts
    before: Side
    after: Side

    @property
    def is_brought(self) -> bool:
        """Whether its waits for a CPU grew because there is more or longer work that waits."""
        grown = math.fsum(self.after.waits) - math.fsum(self.before.waits)
        work = grown - math.fsum(self.parts[2:])
        return grown > 0 and work >= DIFFERENCE.consequence * grown


# A thread's running, by role, or a state that it is in.
PieceKey = tuple[State | None, str, str]


def take_work_apart(counts: StepCounts, executions: Sequence[int]) -> dict[PieceKey, Piece]:
    """Return every piece of work of some executions: they add up to what these take longer."""
    if counts.weather is None or not executions:
        return {}
    return _take_apart(
        counts, counts.weather, (counts.weigh_normals(executions), _weigh(executions))
    )


def explain_whole(
    counts: StepCounts, before: tuple[I64, F64], effect: float, executions: int
) -> Because | None:
    """Return what the mean of all differs by, in parts that add up to ``effect``.

    ``before`` are rows of the normal set and what each counts in the mean.
    """
    if counts.weather is None or not executions or not math.isfinite(effect):
        return None
    pieces = _take_apart(counts, counts.weather, (before, _weigh(range(executions))))
    return Because(*round_parts(add_parts(piece.parts for piece in pieces.values()), effect))


def _take_apart(
    counts: StepCounts,
    weather: tuple[Weather, Weather],
    weights: tuple[tuple[I64, F64], tuple[I64, F64]],
) -> dict[PieceKey, Piece]:
    times = [w[1] @ time[w[0]] for w, time in zip(weights, counts.times, strict=True)]
    often = [
        w[1] @ steps[w[0]] for w, steps in zip(weights, (counts.normal, counts.sample), strict=True)
    ]
    waits = [_sum_waits(of, w, counts.program) for of, w in zip(weather, weights, strict=True)]
    wakes = [float(w[1] @ of.wakes[w[0]]) for of, w in zip(weather, weights, strict=True)]
    place = {step: i for i, step in enumerate(counts.steps)}
    symbols = [step for step in counts.steps[: len(times[0])] if step.state is not None]
    result: dict[PieceKey, Piece] = {}
    for role in {step.role for step in symbols}:
        sides, factors = [], []
        for time, many, mine, woken in zip(times, often, waits, wakes, strict=True):
            running, cut, delay = _of_thread(role, symbols, time, mine)
            trips = many[place[Step(None, role)]] if Step(None, role) in place else 1.0
            sides.append(Side(running, _plus(cut, delay)))
            if role:
                factors.append([factors_of(float(trips), running, cut, delay)])
            else:  # however often it is woken, it runs no longer for that
                factors.append(
                    [factors_of(1.0, running, cut, NONE), factors_of(woken, 0.0, NONE, delay)]
                )
        pairs = list(zip(*factors, strict=True))
        parts = add_parts(take_apart(*both) for both in pairs)
        dry = [
            [structs.replace(side, dilation=NONE, delay=NONE) for side in both] for both in pairs
        ]
        run = add_parts(take_apart(*both) for both in dry)
        result[None, role, ""] = Piece(parts, run, *sides)
    for step in symbols:
        at = place[step]
        if step.state in RUNNING | _INTERRUPTS | {State.WAIT_CPU, State.WAIT_QUOTA}:
            continue
        both = [
            factors_of(float(many[at]), float(time[at]), NONE, NONE)
            for many, time in zip(often, times, strict=True)
        ]
        nothing, parts = Side(0.0, NONE), take_apart(*both)
        result[step.state, step.role, step.place] = Piece(parts, parts, nothing, nothing)
    return result


def _weigh(some: Sequence[int]) -> tuple[I64, F64]:
    """Return executions and what each counts in their mean."""
    return np.array(some, np.int64), np.full(len(some), 1 / len(some))


def _of_thread(
    role: str, symbols: Sequence[Step], time: F64, waits: Mapping[tuple[str, bool], ByWho]
) -> tuple[float, ByWho, ByWho]:
    """Return what a thread runs, and waits for a CPU where it was cut, and where it was woken."""
    mine = [
        (step.state, float(ns)) for step, ns in zip(symbols, time, strict=True) if step.role == role
    ]
    running = math.fsum(ns for state, ns in mine if state in RUNNING)
    interrupted = math.fsum(ns for state, ns in mine if state in _INTERRUPTS)
    held = math.fsum(ns for state, ns in mine if state == State.WAIT_QUOTA)
    cut = _plus(waits.get((role, False), NONE), (0.0, interrupted, held))
    return running, cut, waits.get((role, True), NONE)


def _plus(one: ByWho, other: ByWho) -> ByWho:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _sum_waits(
    weather: Weather, weights: tuple[I64, F64], program: Collection[str]
) -> dict[tuple[str, bool], ByWho]:
    """Return mean waits for a CPU by role and whether woken, by who had it."""
    who = [find_class(rival, program) for rival in weather.rivals]
    result: dict[tuple[str, bool], list[float]] = {}
    for (role, rival, woken), ns in _mean_waits(weather, weights).items():
        result.setdefault((role, woken), [0.0, 0.0, 0.0])[who[rival]] += ns
    return {key: (of[0], of[1], of[2]) for key, of in result.items()}


def find_class(rival: Detail, program: Collection[str]) -> int:
    """Return who had a CPU: the program's own thread, a stranger or nobody."""
    if rival.idle:
        return NOBODY
    return OWN if is_ours(rival, program) else STRANGERS


def _mean_waits(weather: Weather, weights: tuple[I64, F64]) -> dict[tuple[str, int, bool], float]:
    rows, weight = weights
    of = np.zeros(len(weather.wakes))
    of[rows] = weight
    mean = of[weather.execution] * weather.time
    sizes = (len(weather.roles), max(len(weather.rivals), 1), 2)
    keys = np.ravel_multi_index(
        (weather.role, weather.rival, weather.woken.astype(np.int64)), sizes
    )
    sums = np.bincount(keys, weights=mean, minlength=math.prod(sizes))
    there = np.flatnonzero(sums)
    role, rival, woken = np.unravel_index(there, sizes)
    return {
        (weather.roles[a], b, bool(c)): ns
        for a, b, c, ns in zip(
            *(of.tolist() for of in (role, rival, woken, sums[there])), strict=True
        )
    }


def share_rivals(
    counts: StepCounts, role: str, executions: Sequence[int], *, who: int, fell: bool = False
) -> list[RivalShare]:
    """Return who had the CPU for what a thread waits longer, by family; the largest share first.

    A neighbour that had it as much before, for as much work, has no share.  ``who`` is `OWN` or
    `STRANGERS`; ``fell``: for what it waits less.
    """
    if counts.weather is None or not executions:
        return []
    weights = counts.weigh_normals(executions), _weigh(executions)
    sums: tuple[defaultdict[str, float], defaultdict[str, float]]
    sums = defaultdict(float), defaultdict(float)
    ours: set[str] = set()
    names: defaultdict[str, set[str]] = defaultdict(set)
    kin: defaultdict[str, set[str]] = defaultdict(set)
    places: defaultdict[str, set[str]] = defaultdict(set)
    for into, of, w in zip(sums, counts.weather, weights, strict=True):
        for (whose, rival, _), ns in _mean_waits(of, w).items():
            detail = of.rivals[rival]
            mine = find_class(detail, counts.program)
            if whose == role and mine == who and detail.peer:
                family = name_family(detail.peer)
                into[family] += ns
                names[family].add(detail.peer)
                kin[family].add(detail.kin)
                places[family].add(detail.place)
                ours |= {family} if mine == OWN else set()
    piece = take_work_apart(counts, executions).get((None, role, ""))
    longer = 1.0
    if piece and 0 < piece.before.running < piece.after.running:
        longer = piece.after.running / piece.before.running
    way = -1 if fell else 1
    there = {**sums[0], **sums[1]}
    grown = {name: way * (sums[1][name] - longer * sums[0][name]) for name in there}
    if fell or not any(ns > 0 for ns in grown.values()):
        grown = {name: way * (sums[1][name] - sums[0][name]) for name in there}
    whole = math.fsum(ns for ns in grown.values() if ns > 0)
    before, after = (math.fsum(of.values()) for of in sums)
    ranked = sorted((-ns, name) for name, ns in grown.items() if ns > 0)
    return [
        RivalShare(
            name=min(names[name]) if len(names[name]) == 1 else name,
            share=-ns / whole,
            before=sums[0][name] / before if before else 0.0,
            after=sums[1][name] / after if after else 0.0,
            ours=name in ours,
            kin=min(kin[name]) if len(kin[name]) == 1 else "",
            place=min(places[name]) if len(places[name]) == 1 else "",
        )
        for ns, name in ranked
    ]


# Of a cause: what its findings come to.


def explain_cause(
    counts: StepCounts, members: Sequence[Member], executions: Sequence[int], *, counted: bool
) -> Because | None:
    """Return what a cause's contribution is due to, in parts that add up to it.

    ``counted``: something was done more often, which brought what no thread of it did, too.
    """
    pieces = take_work_apart(counts, executions)
    if not pieces:
        return None
    amounts: defaultdict[tuple[PieceKey, bool], list[Member]] = defaultdict(list)
    for m in members:
        state, role, place = m.finding.symbol.state, m.finding.role, m.finding.place
        waits = state == State.WAIT_CPU
        runs = waits or state in RUNNING
        amounts[(None, role, "") if runs else (state, role, place), waits].append(m)
    size = len(executions)
    whole = math.fsum(m.finding.contribution for m in members) / size
    found = []
    for (key, waits), mine in sorted(amounts.items(), key=lambda item: str(item[0])):
        amount = math.fsum(m.finding.contribution for m in mine) / size
        if counted and not key[1]:
            found.append(Parts(amount, 0.0, 0.0, 0.0, 0.0))
            continue
        parts = Parts(0.0, 0.0, 0.0, 0.0, 0.0)
        if piece := pieces.get(key):
            parts = piece.run
        if piece and waits:
            parts = Parts(*(a - b for a, b in zip(piece.parts, piece.run, strict=True)))
        difference = math.fsum(parts)
        if difference * amount > 0 and abs(amount) <= 2 * abs(difference):
            found.append(Parts(*(amount / difference * part for part in parts)))
        else:  # on the whole it went the other way: each finding for itself
            found += [_part_of(m, counts.program, size) for m in mine]
    return Because(*round_parts(add_parts(found), whole))


def _part_of(member: Member, program: Collection[str], size: int) -> Parts:
    finding = member.finding
    amount = finding.contribution / size
    state = finding.symbol.state
    if state == State.WAIT_CPU:
        who = [0.0, 0.0, 0.0]
        for detail, share in finding.details or ((finding.qualifier, 1.0),):
            who[find_class(detail, program)] += share * amount
        return Parts(0.0, 0.0, *_exactly(who, amount))
    if state == State.WAIT_QUOTA:
        return Parts(0.0, 0.0, 0.0, 0.0, amount)
    if state in _INTERRUPTS:
        return Parts(0.0, 0.0, 0.0, amount, 0.0)
    if finding.kind in _COUNTED:
        return Parts(amount, 0.0, 0.0, 0.0, 0.0)
    return Parts(0.0, amount, 0.0, 0.0, 0.0)


def _exactly(who: Sequence[float], amount: float) -> ByWho:
    whole = math.fsum(who)
    if not whole:
        return 0.0, amount, 0.0
    return who[0] / whole * amount, who[1] / whole * amount, who[2] / whole * amount
