"""What signs, strangers and trees are made of: small rules at their limits, and drawn tables."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from critpath.detect import comparability, flame, machine
from critpath.detect.flame import FlameSets, build_flame
from critpath.detect.machine import beyond_sessions, find_limit, find_queue, find_rival, find_signs
from critpath.model import ChainTimes, Rival, State, Symbol, VectorTable
from critpath.model.details import IDLE
from critpath.model.vectors import InCode
from critpath.schema.parameters.detect import COMPARABILITY, MACHINE
from critpath.schema.parameters.localize import WAITS
from critpath.schema.parameters.shared import NORMAL
from critpath.stats.tails import student_quantile

GOLDEN = Path(__file__).resolve().parent / "golden"


@pytest.mark.parametrize("seed", range(30))
def test_values_rose_by_ranks_or_by_how_many_are_above_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, m = 4 + seed % 9, 3 + seed % 7
    before = rng.integers(0, 6, n)
    after = rng.integers(0, 6, m) + seed % 4
    ranks = stats.rankdata(np.concatenate([after, before]))
    above = sum(after > before.max())
    beyond = stats.hypergeom.sf(above - 1, n + m, above, m) if above else 1
    deviation = math.sqrt(m * n / (n + m) * ranks.var(ddof=1))
    more = deviation > 0 and ranks[:m].sum() - m * ranks.mean() > NORMAL.q995 * deviation
    assert machine.is_surely_more(before, after) == (beyond <= MACHINE.level or more)


@pytest.mark.parametrize("seed", range(30))
def test_shares_of_types_moved_beyond_chance(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, m = 10 + seed, 40 - seed
    before = rng.integers(0, 3, n)
    after = rng.integers(0, 3, m) if seed % 2 else np.minimum(rng.integers(0, 9, m), 2)
    tests = []
    for s in np.unique(before):
        one, other = (before == s).sum(), (after == s).sum()
        tests.append(stats.hypergeom.sf(other - 1, n + m, one + other, m))
        tests.append(stats.hypergeom.sf(one - 1, n + m, one + other, n))
    assert machine._has_moved(before, after) == (min(tests) * len(tests) <= MACHINE.level)


@pytest.mark.parametrize("freedom", [2, 3, 4, 7, 30, 499, 500, 10_000])
def test_quantiles_of_students_distribution(freedom: int) -> None:
    for probability in (0.9, 0.95, 0.99, 0.999):
        found = student_quantile(probability, freedom)
        assert found == pytest.approx(stats.t.ppf(probability, freedom), rel=1e-6)


def draw_recordings(seed: int, k: int, m: int) -> Any:
    """Return durations, types and recordings of both sets; each has a type of its own, too."""
    rng = np.random.default_rng(seed)
    sets = []
    for which, many in enumerate((k, m)):
        session = np.repeat(np.arange(many), 6) + 10
        kind = rng.choice([0, 1, 2 + which], len(session))
        pace = np.exp(rng.normal(0, 0.1, many))[session - 10]
        sets.append((np.rint(1e6 * pace * (1 + kind) * rng.lognormal(0, 0.2, len(kind))), kind,
                     session))  # fmt: skip
    return tuple(zip(*sets, strict=True))


@pytest.mark.parametrize("seed", range(12))
def test_recordings_differ_by_what_students_test_says(seed: int) -> None:
    k, m = 2 + seed % 4, 1 + seed // 2 % 4
    total, kinds, sessions = draw_recordings(seed, k, m)
    middle = {s: np.median(total[0][kinds[0] == s]) for s in np.unique(kinds[0])}
    means = []
    for which in (0, 1):
        rows = [
            (int(of), math.log(value / middle[kind]))
            for value, kind, of in zip(total[which], kinds[which], sessions[which], strict=True)
            if kind in middle
        ]
        means.append([np.median([v for s, v in rows if s == of]) for of in sorted({*dict(rows)})])
    apart = np.mean(means[1]) - np.mean(means[0])
    found = beyond_sessions(total, kinds, sessions, None, 0.01)
    assert found[0] == pytest.approx(math.expm1(apart))
    if k < 3 or k + m < 4:
        assert found[1] == math.inf
    else:
        squares = sum(np.sum((np.array(x) - np.mean(x)) ** 2) for x in means)
        wide = math.sqrt(squares / (k + m - 2) * (1 / k + 1 / m))
        limit = stats.t.ppf(0.99, k + m - 2) * wide
        if m >= 3 and min(means[1]) <= max(means[0]):
            limit = max(limit, apart * (1 + 1e-9))
        assert found[1] == pytest.approx(math.expm1(limit), rel=1e-6)
    known = beyond_sessions(total, kinds, sessions, 0.05, 0.01)
    limit = stats.t.ppf(0.99, 7) * math.log(1.05) * math.sqrt(1 / k + 1 / m)
    assert known == (found[0], pytest.approx(math.expm1(limit), rel=1e-6))


def test_how_much_longer_a_slow_machine_makes_a_state() -> None:
    for pace in (1.0, 1.2, 1.9, 2.5):
        ran = machine._most(State.RUN, pace, known=True)
        assert ran == min(pace * MACHINE.apart, max(MACHINE.pace, pace))
        assert machine._most(State.RUN, pace, known=False) == MACHINE.pace
        for known in (True, False):
            assert machine._most(State.WAIT_TIMER, pace, known=known) == MACHINE.sleep
            assert machine._most(State.WAIT_DISK, pace, known=known) == MACHINE.disk * pace
            assert machine._most(State.WAIT_DEVICE, pace, known=known) == MACHINE.disk * pace
            assert machine._most(State.WAIT_TASK, pace, known=known) == MACHINE.other * pace


def test_who_comes_first_is_chance_where_few_and_no_more_have_a_state() -> None:
    least, new = MACHINE.least_rise, MACHINE.new
    for before in (0, new, new + 0.01, 0.5, least - 0.01, least, 2):
        for more in (0, least - 0.01, least, 2):
            by_chance = new < before < least and before + more - before < least
            assert machine._met_or_not(before, before + more) == by_chance


def test_time_is_shared_out_by_what_rose() -> None:
    rise = np.array([1.0, -2.0, 3.0, 0.0])
    assert machine._shared_out(8.0, rise).tolist() == [2.0, 0.0, 6.0, 0.0]
    assert machine._shared_out(8.0, -rise[:1]).tolist() == [0.0]


STATES = (
    *(State.RUN, State.WAIT_CPU, State.WAIT_DISK, State.WAIT_TIMER, State.WAIT_TASK),
    *(State.NET_TRANSIT, State.QUEUED, State.SHARED, State.UNKNOWN, State.SOFTIRQ),
)


def draw_tables(seed: int) -> tuple[VectorTable, VectorTable]:
    """Return executions of which some states became longer, more frequent, or are new."""
    rng = np.random.default_rng(seed)
    symbols = [Symbol(state) for state in STATES]
    symbols += [Symbol(State.RUN, "server"), Symbol(State.WAIT_DISK, "kworker")]
    symbols += [Symbol(State.SHARED, "server"), Symbol(State.WAIT_TIMER, "server")]
    many = len(symbols)
    usual = rng.choice([0, 0.03, 1, 3], many)
    size = rng.choice([1e5, 1e6, 5e6], many)
    more = rng.choice([0] * 6 + [0.5, 0.9, 1, 4], many)
    times = rng.choice([1, 1, 1, 1.3, 1.8, 2.6, 4, 0.7], many) * rng.choice([1, 1.5])
    tables = []
    for n, add, factor in ((30, 0 * more, 0 * times + 1), (24 + seed % 12, more, times)):
        counts = (
            rng.poisson(usual + add, (n, many))
            if seed % 2
            else np.rint(np.broadcast_to(usual + add, (n, many))).astype(np.int64)
        )
        counts = np.where(rng.random((n, many)) < (usual + add) % 1, counts + 1, counts)
        ns = counts * size * factor * rng.lognormal(0, 0.15, (n, many))
        tables.append(VectorTable(tuple(symbols), counts, np.rint(ns).astype(np.int64)))
    return tables[0], tables[1]


def test_signs_of_drawn_tables(golden: Any) -> None:
    lines = []
    for seed in range(60):
        normal, sample = draw_tables(seed)
        rng = np.random.default_rng(5000 + seed)
        kinds = 1 + seed % 3
        strata = tuple(rng.integers(0, kinds, len(each)) for each in (normal, sample))
        names = ("a", "b", "a")[:kinds]
        significant = rng.random(len(normal.symbols)) < 0.8
        found = find_signs(normal, sample, strata, names, significant, 0.02)
        for s in found:
            numbers = " ".join(f"{x:.5g}" for x in (s.before, s.after, s.effect))
            lines.append(f"{seed} {s.kind} {s.name} {s.label} {numbers}")
    golden(GOLDEN / "wild_signs.txt", "\n".join(lines) + "\n")


def make_paths(waits: list[tuple[int, str, int]], many: int) -> Any:
    """Return paths in two chunks, each of its own details: waits for a cpu (row, who, ns)."""
    names = sorted({who for _, who, _ in waits} | {""})
    chunks = []
    for low, high in ((0, many // 2), (many // 2, many)):
        mine = sorted(wait for wait in waits if low <= wait[0] < high)
        order = names if low else names[::-1]
        start = [sum(row < low + at for row, *_ in mine) for at in range(high - low + 1)]
        start = [first + at for at, first in enumerate(start)]  # each begins with what runs
        state, detail, duration = [], [], []
        for row in range(low, high):
            own = [(State.WAIT_CPU, order.index(who), ns) for of, who, ns in mine if of == row]
            for what, which, ns in [(State.RUN, 0, 7), *own]:
                state.append(int(what))
                detail.append(which)
                duration.append(ns)
        table = SimpleNamespace(
            start=np.array(start), state=np.array(state, np.int64),
            detail=np.array(detail, np.int64), duration=np.array(duration, np.int64),
            details=[SimpleNamespace(rival=who, idle=who == IDLE) for who in order],
        )  # fmt: skip
        chunks.append(SimpleNamespace(paths=SizedTable(table, high - low)))
    comm = ("app",) * many
    return SizedTable(
        SimpleNamespace(
            chunks=lambda: iter(chunks), hosts=frozenset(), executions=SimpleNamespace(comm=comm)
        ),
        many,
    )


class SizedTable(SimpleNamespace):
    """Some names, with a length."""

    def __init__(self, of: SimpleNamespace, many: int) -> None:
        super().__init__(**vars(of))
        self._many = many

    def __len__(self) -> int:
        return self._many


def test_who_had_the_cpu_and_for_how_long() -> None:
    late = WAITS.late
    waits = [(0, "make", 40), (0, "make", 2), (3, "make", 30), (1, "cc", 10), (2, IDLE, late),
             (3, IDLE, late - 1)]  # fmt: skip
    paths = make_paths(waits, 5)
    found = machine._waits_by_rival(paths)
    assert found == {"make": 72 / 5, "cc": 10 / 5, IDLE: late / 5}
    runs = np.array([7, 7, 8, 9, 9])
    assert machine._runs_by_rival(paths, runs) == {"make": {7, 9}, "cc": {7}, IDLE: {8, 9}}
    before = make_paths([(0, "make", 100), (1, "cc", 5)], 5)
    assert find_rival(before, paths) == Rival(IDLE, 0.0, late / 5)
    assert find_rival(paths, before) == Rival("make", 72 / 5, 100 / 5)
    assert find_rival(before, make_paths([(0, "make", 100)], 5)) is None
    assert find_rival(before, make_paths([], 5)) is None


@pytest.mark.parametrize("after", range(9))
def test_who_is_in_most_runs_and_was_not_before_is_no_stranger(after: int) -> None:
    """In four of eight runs he may be weather; in more, new beyond chance, he is a change."""
    for before in (0, 1, 4, 8):
        sets = [
            make_paths([(row, "make-3", 5) for row in range(many)], 8) for many in (before, after)
        ]
        found = machine.find_strangers(*sets, {"server"}, None)
        tail = stats.hypergeom.sf(after - 1, 16, before + after, 8) if before + after else 1
        new = 2 * after > 8 and tail <= MACHINE.newcomer
        assert found == ({"make-3"} if before + after and not new else set())
        # Nor is who is in the paths themselves, or is an execution.
        assert machine.find_strangers(*sets, {"make-#"}, None) == set()
    # Of many runs a third is beyond chance as well, and no sign of a change.
    many = [make_paths([(row, "cc1", 5) for row in range(n)], 30) for n in (0, 10, 16)]
    assert machine.find_strangers(*many[:2], set(), None) == {"cc1"}
    assert machine.find_strangers(many[0], many[2], set(), None) == set()
    own = make_paths([(0, "app", 5), (1, IDLE, 5), (2, "", 5)], 8)
    assert machine.find_strangers(own, own, set(), None) == set()


def entry(before: float, after: float, *, flagged: bool = True) -> Any:
    return SimpleNamespace(
        normal_mean=before, sample_mean=after, effect=after - before, flagged=flagged
    )


@pytest.mark.parametrize(
    ("before", "after", "is_sign"),
    [(0, 100, True), (0, 99, False), (100, 200, False), (100, 201, True), (300, 500, False)],
)
def test_a_quota_holds_threads_back_beyond_what_machines_do(
    before: float, after: float, is_sign: bool
) -> None:
    detection = SimpleNamespace(
        floor=100.0, by_symbol=[(Symbol(State.WAIT_QUOTA), entry(before, after))], states=()
    )
    found = find_limit(
        None, SimpleNamespace(**{**vars(detection), "states": [entry(0, 0)]}), throttled=0
    )
    assert [(s.kind, s.before, s.after) for s in found] == [("quota", before, after)] * is_sign


@pytest.mark.parametrize("told", [True, False])
def test_a_cpu_that_idles_while_threads_wait_for_it_is_a_limit(told: bool) -> None:
    def signs(rival: Rival | None, effect: float) -> int:
        of = SimpleNamespace(floor=100.0, by_symbol=[], states=[entry(0, effect)])
        return len(find_limit(rival, of, throttled=told))

    assert signs(None, 100) == signs(Rival("make", 0.0, 900.0), 100) == told
    assert signs(None, 99) == 0
    assert signs(Rival(IDLE, 0.0, 100.0), 0) == 1
    assert signs(Rival(IDLE, 0.0, 99.0), 999) == 0
    assert signs(Rival(IDLE, 100.0, 200.0), 0) == 1  # twice as long
    assert signs(Rival(IDLE, 101.0, 201.5), 0) == told


@pytest.mark.parametrize("flagged", [True, False])
def test_queues_are_a_sign_at_their_limits(flagged: bool) -> None:
    def signs(queue: tuple[float, float], rest: tuple[float, float], floor: float) -> int:
        states = [entry(*queue, flagged=flagged), entry(*rest), entry(0, 0)]
        by_symbol = [(Symbol(State.QUEUED), states[0]), (Symbol(State.RUN), states[1])]
        of = SimpleNamespace(states=states, by_symbol=by_symbol, floor=floor)
        return len(find_queue(of))

    assert signs((100, 201), (1000, 1000), 1) == flagged
    assert signs((100, 200), (1000, 1000), 1) == 0
    assert signs((100, 301), (1000, 1500), 1) == flagged  # the others 1.5 times as long
    assert signs((100, 300), (1000, 1500), 1) == 0
    assert signs((100, 250), (1000, 900), 1) == flagged  # a faster machine asks for no less
    assert signs((100, 201), (1000, 1000), 102) == 0  # less than the floor
    assert signs((100, 250), (0, 0), 1) == flagged


@pytest.mark.parametrize("labelled", [True, False])
def test_executions_are_held_against_those_of_their_kind(labelled: bool) -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        types = rng.integers(0, 5, 12), rng.integers(2, 7, 9)
        labels = tuple([f"k{t}" for t in each] if labelled else () for each in types)
        sets = FlameSets(labels, types, types)
        (ours, theirs), names = flame._strata(sets)
        both = sorted({*types[0].tolist()} & {*types[1].tolist()})
        for found, each in ((ours, types[0]), (theirs, types[1])):
            assert found.tolist() == [both.index(t) if t in both else -1 for t in each.tolist()]
        assert names == ([f"k{t}" for t in both] if labelled else [""] * len(both))


CHAINS = ((), ("db",), ("db", "disk"), ("cache",), (InCode("f"),), (InCode("f"), "db"))


def test_drawn_trees(golden: Any) -> None:
    lines = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        states = (State.RUN, State.WAIT_CPU, State.WAIT_DISK)
        leaves = tuple((chain, states[n]) for chain in range(6) for n in range(1 + chain % 3))
        means = rng.choice([200, 2e4, 1e6], len(leaves))
        sets = [
            np.rint(means * rng.lognormal(0, 0.2, (n, len(leaves)))).astype(np.int64)
            for n in (18, 15)
        ]
        sets[1] = (sets[1] * rng.choice([1, 1, 1, 3, 0.4], len(leaves))).astype(np.int64)
        kinds = rng.integers(0, 3, 18), rng.integers(1, 4, 15) if seed % 4 else np.ones(15, int)
        labels = tuple([f"k{t}" for t in each] if seed % 2 else () for each in kinds)
        none = np.zeros(18, np.int64), np.zeros(15, np.int64)
        nodes = build_flame(
            ChainTimes(CHAINS, leaves, *sets), FlameSets(labels, kinds, none),
            level=0.05, permutations=199, directions=("more", "less")[: 1 + seed % 3],
        )  # fmt: skip
        lines += [
            f"{seed} {at} {n.parent} {n.kind} {n.name} {n.role} {n.before:.6g} {n.after:.6g} "
            f"{n.change} {n.executions}"
            for at, n in enumerate(nodes)
        ]
    golden(GOLDEN / "wild_trees.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize("seed", range(20))
def test_sets_take_turns_where_one_follows_the_other_often_enough(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    order = np.sort(rng.integers(0, 2, 12)) if seed % 5 == 0 else rng.integers(0, 2, 12)
    order[:2] = 0, 1
    if seed % 3:  # in blocks
        order = np.repeat(order[:4], 3)
        order[-1] = 1 - order[0]
    moments: Any = ([], [])
    for at, which in enumerate(order.tolist()):
        moments[which].append((1000, 10 * at, 10 * at + 5))
    sets = [SimpleNamespace(environment=(), rows=rows) for rows in moments]
    monkeypatch.setattr(comparability, "_moments", lambda each: each.rows)
    turns = sum(a != b for a, b in pairwise(order.tolist()))
    fewer = min(map(len, moments))
    want = turns >= COMPARABILITY.turns * fewer
    assert comparability._take_turns(*sets) == want
    assert not comparability._take_turns(sets[0], SimpleNamespace(environment=(), rows=[]))
    unknown = [(0, begin, end) for _, begin, end in moments[1]]
    other = SimpleNamespace(environment=(), rows=unknown)
    assert not comparability._take_turns(sets[0], other)


def make_group(normal: Any, sample: Any, symbols: Any, share: float = 1.0) -> machine._TypeGroup:
    """Return executions of one type; each has a state as often as it is in it, a ms each time."""
    tables = [np.array(each, np.int64) for each in (normal, sample)]
    times = tuple(each.astype(np.float64) * 1e6 for each in tables)
    return machine._TypeGroup([0], "", symbols, (tables[0], tables[1]), (times[0], times[1]), share)


@pytest.mark.parametrize("before", range(5))
@pytest.mark.parametrize("after", range(6))
def test_a_state_is_new_where_hardly_any_had_it_and_some_have(before: int, after: int) -> None:
    n, m = 60, 10
    normal, sample = np.zeros((n, 2), int), np.zeros((m, 2), int)
    normal[:before, 0] = sample[:after, 0] = 1
    symbols = Symbol(State.WAIT_DISK), Symbol(State.WAIT_DISK, "kworker/0:1")
    sample[:, 1] = 1  # to meet a thread of the kernel is no change
    group = make_group(normal, sample, symbols, 0.5)
    longer = float(group.longer[0])
    assert longer == pytest.approx((after / m - before / n) * 1e6)
    tail = stats.hypergeom.sf(after - 1, n + m, before + after, m) if before + after else 1
    new = before <= MACHINE.new * n and after >= MACHINE.group - 1 and tail <= MACHINE.level
    for least in (longer, longer + 1):
        found = list(machine._new_states(group, least))
        assert len(found) == (new and least <= longer)
        for one in found:
            assert (one.sign.kind, one.sign.name) == ("new", "WAIT_DISK")
            assert (one.sign.before, one.sign.after) == pytest.approx((before / n, after / m))
            assert one.brought == pytest.approx(longer)
            assert one.sign.effect == pytest.approx(longer / 2)
            assert one.share == 0.5


def test_a_sign_explains_a_share_of_what_was_added_to_its_kind_and_to_the_worst() -> None:
    least = MACHINE.explains
    for brought in (0.0, 0.9 * least, least, 5 * least):
        for share in (0.1, 1.0):
            one = machine._FoundSign(None, 100 * brought, 100.0, share)
            own = brought >= least
            assert machine._explains(one, None) == own
            for added, of in ((100.0, 0.5), (1000.0, 0.01), (1000.0, 1.0)):
                most = SimpleNamespace(added=added, share=of)
                each = 100 * brought >= least * added
                whole = 100 * brought * share >= least * added * of
                assert machine._explains(one, most) == (own and (each or whole))


@pytest.mark.parametrize("seed", range(10))
def test_what_was_added_leaves_out_waits_behind_others(seed: int) -> None:
    rng = np.random.default_rng(seed)
    symbols = tuple(Symbol(s) for s in (State.RUN, State.QUEUED, State.WAIT_TIMER, State.SHARED))
    normal, sample = rng.integers(0, 5, (9, 4)), rng.integers(0, 6, (7, 4))
    group = make_group(normal, sample, symbols)
    before, after = normal.mean(axis=0), sample.mean(axis=0)
    longer = (after - before) * 1e6
    assert group.mean == pytest.approx(normal.sum(axis=1).mean() * 1e6)
    assert group.longer.tolist() == pytest.approx(longer.tolist())
    assert group.added == pytest.approx(max(longer[0], 0) + max(longer[2], 0))
    queued = (after - before)[[1, 3]].sum()
    for at in range(4):
        met = max(0.0, min(after[at] - before[at], queued)) / max(after[at], 1e-9)
        assert group.met(at) == pytest.approx(met)
        # While a request waits, a loop works for others or, with nothing to do, sleeps.
        columns = [2, 3] if at == 2 else [at]
        seen = group.seen(at, group.counts)
        for found, table in zip(seen, (normal, sample), strict=True):
            assert found.tolist() == table[:, columns].sum(axis=1).tolist()


def test_classes_that_one_machine_slows_alike() -> None:
    none = {State.WAIT_QUOTA, State.SOFTIRQ, State.IRQ, State.QUEUED, State.SHARED}
    for state in State:
        [marks] = machine._classes([Symbol(state)], waits=True).tolist()
        if state in machine.RUNNING:
            assert marks == [1, 0, 0, 0]
        elif state in {State.WAIT_DISK, State.WAIT_DEVICE, State.WAIT_SOFTIRQ}:
            assert marks == [0, 1, 0, 0]
        elif state == State.WAIT_CPU:
            assert marks == [0, 0, 0, 1]
            assert not machine._classes([Symbol(state)], waits=False).any()
        elif state in none:
            assert marks == [0, 0, 0, 0]
        elif state in {State.UNKNOWN, State.WAIT_TIMER, State.WAIT_TASK}:
            assert marks == [0, 0, 1, 0]
