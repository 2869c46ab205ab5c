"""How often executions do what, against plain twins; and what is at a limit."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import replace
from statistics import fmean, median, stdev
from types import SimpleNamespace

import numpy as np
import pytest
from pure.end_to_end.drawn_sets import draw

from critpath.detect import coarse
from critpath.errors import InconclusiveError, UsageError
from critpath.localize import counts as counting
from critpath.localize.counts import StepCounts, count_rivals, count_steps
from critpath.model import INTERFERENCE, RUNNING, State, Step, Symbol, VectorTable
from critpath.schema.parameters.localize import COUNTS
from critpath.vectors import Coder
from critpath.vectors.table import trips_of

SYMBOLS = (
    Symbol(State.RUN), Symbol(State.WAIT_DISK), Symbol(State.WAIT_TASK, "db"),
    Symbol(State.WAIT_CPU), Symbol(State.UNKNOWN), Symbol(State.RUN, "db"),
)  # fmt: skip
STEPS = (*map(Step.of, SYMBOLS), Step(None, "db"), Step(None, "cache"))


def draw_counts(seed: int) -> StepCounts:
    rng = np.random.default_rng(seed)
    n, m = 12, 6
    normal = rng.poisson(rng.choice([0, 1, 4, 9], len(STEPS)), (n, len(STEPS)))
    sample = rng.poisson(normal.mean(axis=0) * rng.choice([1, 1, 2, 4]), (m, len(STEPS)))
    sample += rng.integers(0, 3, (m, len(STEPS)))
    times = tuple(
        rng.integers(0, 1000, (rows, len(SYMBOLS))) * (rng.random((rows, len(SYMBOLS))) < 0.7)
        for rows in (n, m)
    )
    halves = np.arange(n // 2), np.arange(n // 2, n), np.zeros(0, np.int64)
    groups = {e: halves[2 if seed % 5 == 0 and e == m - 1 else e % 2] for e in range(m)}
    return StepCounts(STEPS, normal, sample, groups, times, {})


@pytest.mark.parametrize("seed", range(25))
def test_how_often_and_how_long(seed: int) -> None:
    of = draw_counts(seed)
    groups = {e: g.tolist() for e, g in of.groups.items()}
    whole = [e for e in groups if groups[e]]
    for e in range(6):
        rises = {}
        for column, step in enumerate(STEPS):
            usual = [int(of.normal[row, column]) for row in groups[e]]
            mine = int(of.sample[e, column])
            if not usual:
                continue
            mean = fmean(usual)
            assert of.of(e)[step] == (pytest.approx(mean), mine)
            spread = math.sqrt(fmean([(u - mean) ** 2 for u in usual]))
            many = fmean([u >= mine for u in usual]) <= COUNTS.rare
            much = mine >= mean + 1 and mine >= COUNTS.ratio * mean
            much = much and mine > mean + COUNTS.spread * spread
            none = RUNNING | INTERFERENCE | {State.UNKNOWN}
            if much and many and step.state not in none:
                rises[step] = (pytest.approx(mean), mine)
        assert of.risen(e) == rises
        if groups[e]:
            for symbol, ns in of.usual(e).items():
                column = SYMBOLS.index(symbol)
                assert ns == pytest.approx(fmean(of.times[0][groups[e], column].tolist()))
    for some in ([0], whole[:3], whole):
        for column, step in enumerate(STEPS):
            pairs = [of.of(e)[step] for e in some]
            means = tuple(fmean(side) for side in zip(*pairs, strict=True))
            assert of.mean_counts(step, some) == pytest.approx(means)
            less = [
                fmean([(u < x) + (u == x) / 2 for u in of.normal[groups[e], column].tolist()])
                for e in some
                for x in [int(of.sample[e, column])]
            ]
            assert of.apart(step, some) == pytest.approx(fmean(less))
        for column, symbol in enumerate(SYMBOLS):
            before = [fmean(of.times[0][groups[e], column].tolist()) for e in some]
            after = [float(of.times[1][e, column]) for e in some]
            less = [
                fmean([(u < x) + (u == x) / 2 for u in of.times[0][groups[e], column].tolist()])
                for e, x in zip(some, after, strict=True)
            ]
            found = of.growth(symbol, some)
            assert found == pytest.approx((fmean(before), fmean(after), fmean(less)))
            risen = sum(Step.of(symbol) in of.risen(e) for e in some)
            assert of.is_more_often(symbol, some) == (2 * risen > len(some))
        assert of.growth(Symbol(State.RECLAIM), some) == (0, 0, 0.5)


@pytest.mark.parametrize("own", [True, False])
def test_a_newcomer_is_met_by_many_and_was_by_few(own: bool) -> None:
    many, few = COUNTS.many, COUNTS.few
    for after in (0, many - 0.01, many, 1.0):
        for before in (0, few * after, few * after + 0.01):
            of = StepCounts(
                STEPS, np.zeros((1, 8)), np.zeros((1, 8)), {}, (np.zeros((1, 6)),) * 2,
                {"make": (before, after)}, frozenset({"make"} if own else ()),
            )  # fmt: skip
            new = after >= many and before <= few * after and not own
            assert of.is_newcomer("make") == new
            assert not of.is_newcomer("other")


def test_what_counts_as_a_step_is_done_by_the_program() -> None:
    """Interrupts and waits for a cpu count as often as they are; the rest by its structure."""
    rng = np.random.default_rng(1)
    tables = []
    for n in (5, 4):
        counted, structure = (rng.integers(0, 9, (n, 6)) for _ in range(2))
        times = rng.integers(0, 9, (n, 6)) * np.array([1, 1, 1, 1, 1, 0])
        tables.append(VectorTable(SYMBOLS, counted, times, structure))
    trips = rng.integers(0, 9, (5, 2)), rng.integers(0, 9, (4, 2))
    of = count_steps(SYMBOLS, (tables[0], tables[1]), ("db", "cache"), trips, {}, {})
    assert of.steps == STEPS
    for found, table, more in zip((of.normal, of.sample), tables, trips, strict=True):
        outside = [s.state in INTERFERENCE for s in SYMBOLS]
        assert any(outside)
        for row in range(len(found)):
            want = [
                int((table.counts if out else table.structure)[row, at])
                for at, out in enumerate(outside)
            ]
            assert found[row].tolist() == [*want, *more[row].tolist()]
    assert of.own == {"db"}


def test_who_had_the_cpu_by_share_of_executions() -> None:
    # Five executions; the first waits twice behind two threads of one name, which count once.
    weather = SimpleNamespace(
        rivals=tuple(SimpleNamespace(rival=name) for name in ("make-1", "cc", "make-2", "idle")),
        execution=np.array([0, 0, 1, 3, 4, 4]), rival=np.array([0, 2, 1, 2, 1, 0]),
        wakes=np.zeros(5, np.int64),
    )  # fmt: skip
    assert count_rivals(weather) == {"make-#": 3 / 5, "cc": 2 / 5}


@pytest.mark.parametrize("seed", range(20))
def test_what_preparing_takes_at_least(seed: int) -> None:
    sums = np.random.default_rng(seed).integers(0, 100, 1 + seed % 9).tolist()
    rest = sorted(sums)[:-1]
    if len(sums) < COUNTS.enough or len(rest) < 2:
        want = median(sums)
    else:
        want = max(0.0, fmean(rest) - COUNTS.sure * stdev(rest) / math.sqrt(len(rest)))
    assert counting._typical_lead(sums) == pytest.approx(want)


def test_trips_go_on_until_their_thread_is_left_for_good() -> None:
    symbols = (Symbol(State.RUN), Symbol(State.RUN, "db"), Symbol(State.RUN, "disk"))

    def within(*path: tuple[int, int]) -> list[list[str]]:
        threads, codes = zip(*path, strict=True)
        found = counting._trips_within(threads, codes, symbols)
        return [[trip.step.role for trip in counting._go_outwards(now)][::-1] for now in found]

    own, db, disk = (1, 0), (2, 1), (3, 2)
    assert within(own, db, own) == [[], ["db"], []]
    assert within(own, db, disk, db, own) == [[], ["db"], ["db", "disk"], ["db"], []]
    assert within(db, disk, own) == [["disk", "db"], ["disk"], []]
    other = (4, 1)
    assert within(own, db, own, other) == [[], ["db"], [], ["db"]]


@pytest.mark.parametrize(
    ("alpha", "floor", "permutations", "right"),
    [
        (0.05, 0.0, 1, True), (0.999, 0.5, 999, True), (0.0, 0.0, 1, False), (1.0, 0.0, 1, False),
        (-0.1, 0.0, 1, False), (1.5, 0.0, 9, False), (0.05, -0.01, 9, False), (0.05, 0.0, 0, False),
        (0.05, 0.0, -1, False),
    ],
)  # fmt: skip
def test_settings_that_no_test_can_have_are_refused(
    alpha: float, floor: float, permutations: int, right: bool
) -> None:
    zeros = np.zeros((2, 1), np.int64)
    table = VectorTable(SYMBOLS[:1], zeros, zeros)

    def check(one: VectorTable, other: VectorTable, rule: str = "t1") -> None:
        coarse._check(one, other, rule, alpha, floor, permutations)

    rule = next(iter(coarse.RULES))
    if not right:
        with pytest.raises(ValueError, match="expected"):
            check(table, table, rule)
        return
    check(table, table, rule)
    with pytest.raises(ValueError, match="choose from"):
        check(table, table, "no such rule")
    with pytest.raises(ValueError, match="different symbols"):
        check(table, VectorTable(SYMBOLS[1:2], zeros, zeros), rule)
    none = VectorTable(SYMBOLS[:1], zeros[:0], zeros[:0])
    for sets, name in (((none, table), "before"), ((table, none), "after")):
        with pytest.raises(InconclusiveError, match=f"there is no run {name}"):
            check(*sets, rule)


def test_so_many_permutations_reach_a_level_and_one_less_does_not() -> None:
    for exact in (True, False):
        for least, enough in ((0.01, 99), (0.003, 333), (0.5, 1)):
            whole = SimpleNamespace(exact=exact, permutations=enough, by_session=False)
            coarse._require_permutations(whole, enough, 0.05, least)
            few = max(enough - 2, 0)
            if exact:
                coarse._require_permutations(whole, few, 0.05, least)
            else:
                with pytest.raises(UsageError, match="cannot reach the level"):
                    coarse._require_permutations(whole, few, 0.05, least)


@pytest.mark.parametrize(
    ("drawn", "trips"),
    [
        ("r5 a3 b2 a3 r5", {"app": 1, "base": 1}),
        ("r5 a3 b2 a3 b4 a3 b9 a2 r5", {"app": 1, "base": 3}),
        ("r5 a3 b2 a3 *b4 a3 *b9 *h2 a2 r5", {"app": 1, "base": 1}),
        ("r5 a3 *b4 *A5 a3 *b9 a2 r5 a3 b2 a1 b3 a2 r5", {"app": 2, "base": 2}),
    ],
)
def test_what_others_asked_is_no_trip(drawn: str, trips: dict[str, int]) -> None:
    """A pooler is woken by the answers to others while a request waits for it (*: for these)."""
    one = draw([drawn.replace("*", "")])
    others = [word[0] == "*" for word in drawn.split()]
    assert len(one.paths.begin) == len(others)
    sure = np.where(others, 0.5, 1.0)
    one = replace(one, paths=replace(one.paths, others=np.array(others), confidence=sure))
    coder = Coder((one, one), "thread")
    roles, [found] = trips_of(one, coder)
    assert {r: n for r, n in zip(roles, found.tolist(), strict=True) if n} == trips
    costs = counting._costs(one, coder.codes(one).tolist(), coder.symbols)
    entered = {s.role: len(c.leads) for s, c in costs.items() if s.state is None and s.role}
    assert entered == trips
    assert one.confidence(0) == 1


WORDS = ["r", "h", "l", "a", "b", "A", "B", "N", "w", "k", "t", "d"]


def plain_trips(roles: list[str], threads: list[int]) -> list[list[tuple[int, str, int]]]:
    """Return the trips that each segment is in: from a thread's first to its last before a return.

    A thread that is waited for is left where a path is back in who waits for it.
    """
    within: list[tuple[int, str, int]] = []
    result = []
    for role, thread in zip(reversed(roles), reversed(threads), strict=True):
        open_ones = [trip[0] for trip in within]
        if not role:
            within = []
        elif thread in open_ones:
            within = within[: open_ones.index(thread) + 1]
        else:
            within = [*within, (thread, role, len(result))]
        result.append(list(within))
    return result[::-1]


@pytest.mark.parametrize("seed", range(40))
def test_what_trips_take_and_the_way_to_each(seed: int) -> None:
    rng = np.random.default_rng(seed)
    drawn = [f"{rng.choice(WORDS)}{rng.integers(1, 900)}" for _ in range(rng.integers(1, 60))]
    one = draw([" ".join([*drawn, "r5"])])
    coder = Coder((one, one), "thread")
    codes, symbols = coder.codes(one).tolist(), coder.symbols
    paths = one.paths
    roles = [symbols[code].role for code in codes]
    trips = plain_trips(roles, paths.tid.tolist())
    lengths = (paths.end - paths.begin).tolist()
    time: Counter[tuple[str, Symbol]] = Counter()
    entered: Counter[str] = Counter()
    ways: defaultdict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
    before: list[tuple[int, str, int]] = []
    for code, ns, role, now in zip(codes, lengths, roles, trips, strict=True):
        for _, whose, _ in now:
            time[whose, symbols[code]] += ns
        entered.update(trip[1] for trip in now if trip not in before)
        before = now
        if role:
            way = [whose for _, whose, _ in now[:-1] if whose != role]
            ways[role][tuple(dict.fromkeys(way))] += ns
    costs = counting._costs(one, codes, symbols)
    for step, cost in costs.items():
        if step.state is None and step.role in entered:
            mine = {s: ns for (whose, s), ns in time.items() if whose == step.role}
            assert {s: cost.time[s] for s in mine} == mine
            assert len(cost.leads) >= entered[step.role]
    callers: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for role, now in zip(roles, trips, strict=True):
        if role and len(now) > 1:
            callers[now[-2][1], role].add(now[-2][0])
    counted = counting.count_callers(one, codes, symbols)
    assert counted == {pair: len(of) for pair, of in callers.items()}
    found = counting.find_chains(one, codes, symbols)
    assert found in ({}, {role: dict(way) for role, way in ways.items()})
