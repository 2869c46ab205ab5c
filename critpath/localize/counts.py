"""How often executions do what: more trips to a thread, more waits, and what these bring along."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec import field as msgspec_field

from critpath.documents.base import change, number
from critpath.model import (
    F64,
    I64,
    INTERFERENCE,
    RUNNING,
    Cause,
    Charge,
    PathSet,
    State,
    Step,
    Symbol,
    VectorTable,
    Whole,
    is_recorder,
    role_name,
)
from critpath.model.stacks import is_helper
from critpath.model.vectors import name_family
from critpath.schema.causes import needs_of
from critpath.schema.parameters.localize import COUNTS

if TYPE_CHECKING:
    from critpath.vectors import Weather

_NO_STEPS: Final = RUNNING | INTERFERENCE | {State.UNKNOWN}


class Growth(NamedTuple):
    """How long some executions are in a symbol: normally, they, and how far apart that is.

    ``apart`` is the share of normal executions that are in it for less time: 1 where all
    are, a half where it is chance.
    """

    before: float
    after: float
    apart: float


class StepCounts(Struct, frozen=True, eq=False):
    """How often every execution of two sets does every step, and is in every other state.

    Attributes
    ----------
    steps : tuple of Step
    normal, sample : int32 [executions, steps]
    groups : tuple of int64 arrays
        Per sample execution the normal ones it is held against: those with its label
        or, where labels tell nothing, of its type.
    times : (int64, int64) [executions, symbols]
        Nanoseconds of the normal set and the sample in every symbol; those of `steps`
        come first there, in the same order.
    rivals : mapping of str to (float, float)
        Share of the executions in which a thread of that family of names had the cpu that was
        waited for: of the normal set, and of the sample.
    own : frozenset of str
        Roles on normal paths.
    program : frozenset of str
        Families of names that are of the program: of the executions, and of `own`.
    weather : (Weather, Weather) or None
        When they waited for a cpu, of both sets.
    """

    steps: tuple[Step, ...]
    normal: Whole
    sample: Whole
    groups: Mapping[int, I64]
    times: tuple[I64, I64]
    rivals: Mapping[str, tuple[float, float]]
    own: frozenset[str] = frozenset()
    program: frozenset[str] = frozenset()
    weather: tuple[Weather, Weather] | None = None
    _risen: dict[int, dict[Step, tuple[float, float]]] = msgspec_field(default_factory=dict)
    _usual: dict[int, tuple[F64, F64, F64]] = msgspec_field(default_factory=dict)
    pieces: dict[tuple[int, ...], Any] = msgspec_field(
        default_factory=dict
    )  # `take_work_apart` keeps them

    def _of_group(self, execution: int) -> tuple[F64, F64, F64]:
        """Return mean and spread of the counts, and mean times, of the group of an execution."""
        group = self.groups[execution]
        if id(group) not in self._usual:  # most executions share it with others
            counts, times = self.normal[group], self.times[0][group]
            mean = counts.mean(axis=0)
            spread = counts.std(axis=0) if len(group) else mean
            self._usual[id(group)] = mean, spread, times.mean(axis=0)
        return self._usual[id(group)]

    def weigh_normals(self, executions: Sequence[int]) -> tuple[I64, F64]:
        """Return normal executions and what each counts in the mean that some are held against."""
        weight = np.zeros(len(self.normal))
        for execution in executions:
            group = self.groups[execution]
            weight[group] += 1 / (len(executions) * max(len(group), 1))
        rows = np.flatnonzero(weight)
        return rows, weight[rows]

    def of(self, execution: int) -> dict[Step, tuple[float, float]]:
        """Return how often an execution does every step: normally, and it."""
        before = self._of_group(execution)[0].tolist()
        after = self.sample[execution].tolist()
        return {s: (b, a) for s, b, a in zip(self.steps, before, after, strict=True)}

    def mean_counts(self, step: Step, executions: Sequence[int]) -> tuple[float, float]:
        """Return how often some executions do a step, on average: normally, and they."""
        pairs = [self.of(e).get(step, (math.nan, math.nan)) for e in executions]
        before, after = (math.fsum(of) / len(pairs) for of in zip(*pairs, strict=True))
        return before, after

    def growth(self, symbol: Symbol, executions: Sequence[int]) -> Growth:
        """Return how much longer executions are in a symbol, and how surely."""
        step = Step.of(symbol)
        if step not in self.steps:
            return Growth(0.0, 0.0, 0.5)
        column = self.steps.index(step)
        normal, sample = (time[:, column] for time in self.times)
        before, after, apart = 0.0, 0.0, 0.0
        for execution in executions:
            usual, mine = normal[self.groups[execution]], sample[execution]
            before += float(usual.mean())
            after += float(mine)
            apart += float((usual < mine).mean() + (usual == mine).mean() / 2)
        n = len(executions)
        return Growth(before / n, after / n, apart / n)

    def apart(self, step: Step, executions: Sequence[int]) -> float:
        """Return the share of normal executions that do a step less often, ties by half."""
        column = self.steps.index(step)
        pairs = [(self.normal[self.groups[e], column], self.sample[e, column]) for e in executions]
        shares = [
            float((usual < mine).mean() + (usual == mine).mean() / 2) for usual, mine in pairs
        ]
        return sum(shares) / len(shares)

    def usual(self, execution: int) -> dict[Symbol, float]:
        """Return how long normal executions like one are in every symbol."""
        mean = self._of_group(execution)[2].tolist()
        states = self.steps[: len(mean)]
        return {
            Symbol(s, r, p): ns for (s, r, p), ns in zip(states, mean, strict=True) if s is not None
        }

    def is_more_often(self, symbol: Symbol, executions: Sequence[int]) -> bool:
        """Tell whether most of some executions do a wait more often than normal ones."""
        step = Step.of(symbol)
        return 2 * sum(step in self.risen(e) for e in executions) > len(executions)

    def is_newcomer(self, name: str) -> bool:
        """Tell whether a thread has the cpu instead in many of these, and normally in none.

        A thread that normal executions wait for is none: it is part of the program.
        """
        before, after = self.rivals.get(name_family(name), (0.0, 0.0))
        return after >= COUNTS.many and before <= COUNTS.few * after and name not in self.own

    def risen(self, execution: int) -> dict[Step, tuple[float, float]]:
        """Return the steps that an execution does more often than normal ones vary."""
        if execution not in self._risen:
            self._risen[execution] = self._find_risen(execution)
        return self._risen[execution]

    def _find_risen(self, execution: int) -> dict[Step, tuple[float, float]]:
        group, mine = self.groups[execution], self.sample[execution]
        if not len(group):
            return {}
        mean, spread, _ = self._of_group(execution)
        more = (
            (mine >= mean + 1)
            & (mine >= COUNTS.ratio * mean)
            & (mine > mean + COUNTS.spread * spread)
        )
        counts = self.of(execution)
        chosen = [
            self.steps[i]
            for i in np.flatnonzero(more).tolist()
            if (self.normal[group, i] >= mine[i]).mean() <= COUNTS.rare
        ]
        return {step: counts[step] for step in chosen if step.state not in _NO_STEPS}


def count_steps(
    symbols: Sequence[Symbol],
    vectors: tuple[VectorTable, VectorTable],
    roles: Sequence[str],
    trips: tuple[Whole, Whole],
    groups: Mapping[int, I64],
    rivals: Mapping[str, tuple[float, float]],
    weather: tuple[Weather, Weather] | None = None,
    program: Collection[str] = (),
) -> StepCounts:
    """Put together how often all executions of the normal set and the sample do what.

    ``program`` are families of the executions' names.
    """
    # Interrupts and waits for a cpu are no part of what the program does.
    outside = np.array([s.state in INTERFERENCE for s in symbols], np.bool_)
    normal, sample = (
        np.hstack([np.where(outside, table.counts, table.structure), of_trips])
        for table, of_trips in zip(vectors, trips, strict=True)
    )
    steps = (*(Step.of(s) for s in symbols), *(Step(None, role) for role in roles))
    times = vectors[0].durations, vectors[1].durations
    there = times[0].sum(axis=0).tolist()
    own = {s.role for s, time in zip(symbols, there, strict=True) if time and s.role}
    served = {name_family(role) for role in own if not is_helper(role)}
    return StepCounts(
        *(steps, normal, sample, groups, times, rivals, frozenset(own)),
        program=frozenset({*program, *served}),
        weather=weather,
    )


def count_rivals(weather: Weather) -> dict[str, float]:
    """Return who had the cpu that was waited for, and in what share of the executions."""
    names = [name_family(of.rival) for of in weather.rivals]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    known = np.array([numbers[name] for name in names], np.int64)
    which = weather.execution.astype(np.int64)
    pairs = np.unique(which * max(len(numbers), 1) + known[weather.rival])
    many = np.bincount(pairs % max(len(numbers), 1), minlength=len(numbers)).tolist()
    executions = max(len(weather.wakes), 1)
    return {name: many[number] / executions for name, number in numbers.items() if many[number]}


# What a step costs: on one path, what there would not be if it were done less often.


@dataclass
class _Cost:
    """What the occurrences of one step take on a path."""

    time: defaultdict[Symbol, float] = field(default_factory=lambda: defaultdict(float))
    content: defaultdict[Symbol, float] = field(default_factory=lambda: defaultdict(float))
    behind: defaultdict[Symbol, float] = field(default_factory=lambda: defaultdict(float))
    leads: list[dict[Symbol, int]] = field(default_factory=list)


def charge_steps(
    one: PathSet,
    codes: Sequence[int],
    symbols: Sequence[Symbol],
    risen: Mapping[Step, tuple[float, float]],
    usual: Mapping[Symbol, float],
    inferred: Collection[str] = (),
) -> tuple[Charge, ...]:
    """Return what the additional occurrences of steps brought with them on one path.

    A trip to a thread is what happens there, the wait for a cpu when it is back, and what
    the caller ran to prepare it; the same holds for a wait.

    Parameters
    ----------
    one : PathSet
        A single execution.
    codes : sequence of int
        The symbol of every segment.
    symbols : sequence of Symbol
    risen : mapping
        Steps that it does more often, with how often normally and how often it does.
    usual : mapping
        Nanoseconds of a normal execution in every symbol.
    inferred : collection of str
        Roles whose work coincides with time-outs: as others that wait for Python's lock interrupt
        who has it, the more often the longer that runs, which is no preparation of theirs.
    """
    if not risen:
        return ()
    costs = _costs(one, codes, symbols)
    charges = []
    for step, cost in costs.items():  # what holds others comes before them
        if step not in risen or not cost.content or is_recorder(step.role):
            continue  # a recorder that wakes a thread more often is no reason for its work
        before, after = risen[step]
        # Where a trip goes on to another thread no more often, that one has its own reasons.
        time = {
            symbol: ns
            for symbol, ns in cost.time.items()
            if symbol.role in {"", step.role} or Step(None, symbol.role) in risen
        }
        within = {symbol: float(ns) for symbol, ns in time.items()}
        for symbol, ns in cost.behind.items():
            time[symbol] = time.get(symbol, 0.0) + ns
        sums = [sum(lead.values()) for lead in cost.leads]
        # What normal executions never do says nothing of how they prepare it.
        if before and step.role not in inferred and (whole := sum(sums)):
            scale = min(1.0, _typical_lead(sums) * len(sums) / whole)
            for lead in cost.leads:
                for symbol, ns in lead.items():
                    time[symbol] = time.get(symbol, 0.0) + scale * ns
        surplus = (after - before) / after
        own = max(
            sorted(cost.content), key=lambda s: (s.state not in INTERFERENCE, cost.content[s])
        )
        charged = {symbol: surplus * ns for symbol, ns in time.items()}
        for symbol in [s for s in charged if s.role and s.state in RUNNING and before]:
            # A thread that computes longer each time does so for its own reasons.
            most = COUNTS.longer * (after - before) * usual.get(symbol, 0.0) / before
            charged[symbol] = min(charged[symbol], most)
        itself = {symbol: min(surplus * ns, charged[symbol]) for symbol, ns in within.items()}
        charges.append(Charge(step, before, after, own, charged, itself))
    return tuple(charges)


def _typical_lead(sums: Sequence[int]) -> float:
    """Return the preparation that an occurrence takes at least, if all take about the same.

    One long computation before a wait is not its doing.  Where the others differ widely as
    well, they are no preparation: as when helpers interrupt what is computed anyway.
    """
    rest = sorted(sums)[:-1]
    if len(sums) < COUNTS.enough or len(rest) < 2:  # one has no spread
        return median(sums)
    return max(0.0, fmean(rest) - COUNTS.sure * stdev(rest) / math.sqrt(len(rest)))


def _costs(one: PathSet, codes: Sequence[int], symbols: Sequence[Symbol]) -> dict[Step, _Cost]:
    paths = one.paths
    lengths = (paths.end - paths.begin).tolist()
    costs: defaultdict[Step, _Cost] = defaultdict(_Cost)
    within: _Trip | None = None
    lead: defaultdict[object, dict[Symbol, int]] = defaultdict(dict)
    back: dict[object, Step] = {}  # what a thread that waits for a cpu comes back from
    threads = list(zip(paths.tid.tolist(), paths.host.tolist(), strict=True))
    served = paths.find_served().tolist()  # what others asked is no trip of this one
    trips = _trips_within([threads[k] for k in served], [codes[k] for k in served], symbols)
    taken = [
        rival if at == k else ""
        for k, (at, rival) in enumerate(zip(served, _taken_from(one, symbols, trips), strict=True))
    ]
    for thread, code, ns, now, rival in zip(threads, codes, lengths, trips, taken, strict=True):
        symbol = symbols[code]
        here = thread if symbol.role else None
        if now is not within:
            common = _leave(within, now, costs)
            entered = [*_go_outwards(now, common)]
            within = now
            for trip in reversed(entered):
                caller = trip.outer.thread if trip.outer else None
                costs[trip.step].leads.append(lead.pop(caller, {}))
                back[caller] = trip.step
        if within is not None:
            within.time[symbol] = within.time.get(symbol, 0) + ns
        step, content = (Step(None, rival), Symbol(State.RUN, rival)) if rival else (None, symbol)
        if symbol.state not in INTERFERENCE | RUNNING:
            step = Step.of(symbol)
        if step:
            costs[step].leads.append(lead.pop(here, {}))
            costs[step].time[symbol] += ns
            costs[step].content[content] += ns
            back[here] = step
        elif symbol.state == State.WAIT_CPU and here in back:
            costs[back[here]].behind[symbol] += ns
        elif symbol.state in RUNNING:
            back.pop(here, None)
            lead[here][symbol] = lead[here].get(symbol, 0) + ns
    _leave(within, None, costs)
    return dict(costs)


@dataclass(eq=False, slots=True)
class _Trip:
    """A stretch in which a path is in a thread that another waits for, or beyond it.

    ``way`` are the roles from the outermost on, each once.
    """

    thread: object
    step: Step
    outer: _Trip | None
    depth: int
    way: tuple[str, ...]
    time: dict[Symbol, int] = field(default_factory=dict)


def _go_outwards(trip: _Trip | None, until: _Trip | None = None) -> Iterator[_Trip]:
    """Yield a trip and those that it is within, the innermost first."""
    while trip is not None and trip is not until:
        yield trip
        trip = trip.outer


def _leave(within: _Trip | None, to: _Trip | None, costs: Mapping[Step, _Cost]) -> _Trip | None:
    """Count what trips took that are over, and return the one that goes on."""
    while within is not None and (to is None or within.depth > to.depth):
        within = _end_trip(within, costs)
    outer = to
    while outer is not None and within is not None and outer.depth > within.depth:
        outer = outer.outer
    while within is not outer and within is not None and outer is not None:
        within, outer = _end_trip(within, costs), outer.outer
    return within


def _end_trip(trip: _Trip, costs: Mapping[Step, _Cost]) -> _Trip | None:
    cost, outer = costs[trip.step], trip.outer
    for symbol, ns in trip.time.items():
        cost.time[symbol] += ns
        if trip.step.role == symbol.role:
            cost.content[symbol] += ns
        if outer is not None:
            outer.time[symbol] = outer.time.get(symbol, 0) + ns
    return outer


def _trips_within(
    threads: Sequence[object], codes: Sequence[int], symbols: Sequence[Symbol]
) -> list[_Trip | None]:
    """Return the innermost trip that every segment is in, as `count_trips` has it."""
    result: list[_Trip | None] = []
    within: _Trip | None = None
    there: dict[object, _Trip] = {}  # the threads that are waited for
    for thread, code in zip(reversed(threads), reversed(codes), strict=True):
        role = symbols[code].role
        known = there.get(thread) if role else None
        if role and known is None:
            way = within.way if within else ()
            way = way if role in way else (*way, role)
            depth = within.depth + 1 if within else 0
            within = there[thread] = _Trip(thread, Step(None, role), within, depth, way)
        else:
            while within is not known and within is not None:
                del there[within.thread]
                within = within.outer
        result.append(within)
    return result[::-1]


def find_chains(
    one: PathSet, codes: Sequence[int], symbols: Sequence[Symbol]
) -> dict[str, dict[tuple[str, ...], int]]:
    """Return on one path through whom each thread is waited for, and for how long (ns), by role.

    A chain has the roles between the own thread and that one, from the own one on.
    """
    if len({symbols[code].role for code in {*codes}} - {""}) < 2:
        return {}  # nobody is between
    paths = one.paths
    threads = list(zip(paths.tid.tolist(), paths.host.tolist(), strict=True))
    result: defaultdict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
    lengths = (paths.end - paths.begin).tolist()
    trips = _trips_within(threads, codes, symbols)
    for code, within, ns in zip(codes, trips, lengths, strict=True):
        if role := symbols[code].role:
            outer = within.outer if within else None
            between = (name for name in (outer.way if outer else ()) if name != role)
            result[role][tuple(between)] += ns
    return {role: dict(chains) for role, chains in result.items()}


def count_callers(
    one: PathSet, codes: Sequence[int], symbols: Sequence[Symbol]
) -> dict[tuple[str, str], int]:
    """Return through how many threads of a role one path comes to threads of another.

    More than before are threads that wait for one another: each has the other's time, too.
    """
    threads = list(zip(one.paths.tid.tolist(), one.paths.host.tolist(), strict=True))
    found: defaultdict[tuple[str, str], set[object]] = defaultdict(set)
    for code, within in zip(codes, _trips_within(threads, codes, symbols), strict=True):
        if (role := symbols[code].role) and within is not None and within.outer is not None:
            found[within.outer.step.role, role].add(within.outer.thread)
    return {pair: len(of) for pair, of in found.items()}


def _taken_from(
    one: PathSet, symbols: Sequence[Symbol], trips: Sequence[_Trip | None]
) -> list[str]:
    """Return whose work took the cpu from a thread that ran, "" elsewhere."""
    paths, hosts = one.paths, one.hosts
    roles = {symbol.role for symbol in symbols if symbol.role}
    result = []
    before: tuple[object, bool] = (None, False)  # the last thread, and whether it ran
    columns = (paths.tid, paths.host, paths.state, paths.detail)
    for tid, host, state, detail, within in zip(
        *(column.tolist() for column in columns), trips, strict=True
    ):
        role = ""
        if state == State.WAIT_CPU and before == ((tid, host), True):
            role = role_name(paths.details[detail].rival, hosts=hosts)
        # Who waits for this one is no callee of it.
        theirs = role in roles and (within is None or role not in within.way)
        result.append(role if theirs else "")
        if state not in {State.IRQ, State.SOFTIRQ}:
            before = (tid, host), state in RUNNING
    return result


# What a thread did while requests waited for their turn on it.

# What a thread sleeps for between the requests of others tells nothing.
_TELLING: Final = RUNNING | {
    *(State.WAIT_CPU, State.WAIT_QUOTA, State.WAIT_DISK, State.WAIT_TIMER, State.RECLAIM)
}


# Of a loop that sleeps though requests are there, that does.
_BLOCKING: Final = frozenset({State.WAIT_FUTEX, State.WAIT_TASK, State.WAIT_PIPE})


def add_meanwhile(
    causes: Sequence[Cause], counts: StepCounts, sums: Callable[[State, str], tuple[I64, I64]]
) -> tuple[Cause, ...]:
    """Say of causes behind others' requests what the thread did, where that is mostly one state.

    ``sums`` gives nanoseconds of threads of a role, of both sets, [executions, states] as of
    `PathSet.sum_beneath`.
    """
    known: dict[tuple[State, str], tuple[I64, I64]] = {}
    result = []
    for cause in causes:
        facts = cause.facts
        if (
            facts is None
            or "meanwhile" not in needs_of(State[facts.state])
            or cause.contribution <= 0
        ):
            result.append(cause)
            continue
        what = State[facts.state], facts.role
        if what not in known:
            known[what] = sums(*what)
        normal, sample = known[what]
        mine = cause.positions
        before = np.mean([normal[counts.groups[e]].mean(axis=0) for e in mine], axis=0)
        after = sample[mine].mean(axis=0)
        grown = after - before
        most = State(int(grown.argmax()))
        telling = most in _TELLING or (most in _BLOCKING and bool(facts.loop) and not facts.asks)
        if telling and grown[most] > COUNTS.mostly * np.maximum(grown, 0).sum():
            facts = change(
                facts,
                meanwhile=most.name,
                meanwhile_before=number(float(before[most])),
                meanwhile_after=number(float(after[most])),
            )
        result.append(change(cause, facts=facts))
    return tuple(result)
