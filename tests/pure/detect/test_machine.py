"""What a slow machine makes of two recordings is no alarm; what it cannot make is one."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from critpath.detect.judging import judge
from critpath.detect.machine import Trips, beyond_sessions, find_queue, find_signs
from critpath.detect.tails import compare_quantile, slow_end
from critpath.detect.verdict import decide
from critpath.model import CompareSettings, State, Symbol, VectorTable
from critpath.text.notes import word

SYMBOLS = (
    *(Symbol(State.RUN), Symbol(State.RUN, "server"), Symbol(State.WAIT_CPU)),
    *(Symbol(State.WAIT_DISK), Symbol(State.WAIT_TIMER)),
)
COUNTS = np.array([3, 2, 1, 1, 0])
TIMES = np.array([4e6, 2e6, 2e5, 1e6, 0])


def drawn(seed, n=30, times=1.0, counts=(0, 0, 0, 0, 0), more=(0, 0, 0, 0, 0)) -> VectorTable:
    rng = np.random.default_rng(seed)
    durations = TIMES * np.asarray(times) * np.exp(rng.normal(0, 0.05, (n, 5))) + np.asarray(more)
    return VectorTable(
        SYMBOLS,
        np.broadcast_to(COUNTS + np.asarray(counts), (n, 5)).copy(),
        np.rint(durations).astype(np.int64),
    )


def verdict(normal, sample, *, apart=True, labels=None):
    n, m = len(normal), len(sample)
    found = judge(
        normal, sample, CompareSettings(permutations=999), labels=labels or (("",) * n, ("",) * m),
        sessions=(np.zeros(n, np.int64), np.zeros(m, np.int64)), apart=apart, screening=False,
    )  # fmt: skip
    whole = np.zeros(n, np.bool_), np.zeros(m, np.bool_)
    return decide(found.detection, found.outliers, whole, ((), ()), apart=found.apart)


def test_a_pace_that_changed_everywhere_alike_is_inconclusive():
    said, reasons = verdict(drawn(1), drawn(2, times=1.4))
    assert said == "inconclusive"
    assert "longer on average, as a slower machine would make it: `critpath ab`" in word(reasons[0])
    assert verdict(drawn(1), drawn(2, times=1.4), apart=False)[0] == "anomaly"


def together(normal, sample, taken, *, size=6):
    """Judge sets recorded together, of which strangers had the cpu for so long (run by run)."""
    sets = []
    for table, times in zip((normal, sample), taken, strict=True):
        durations = table.durations.copy()
        durations[:, 2] += np.repeat(np.asarray(times, np.int64), size)
        sets.append(VectorTable(table.symbols, table.counts, durations))
    runs = np.repeat(np.arange(len(normal) // size), size)
    n = len(normal)
    return judge(
        *sets, CompareSettings(permutations=999), labels=(("",) * n, ("",) * n),
        sessions=(None, None), runs=(runs, runs), clean=(normal, sample), screening=False,
    ).detection.flagged  # fmt: skip


def test_the_burst_of_a_stranger_is_no_alarm_and_hides_none():
    burst, quiet = (0, 9e6, 4e6, 8e6, 1e6), (0, 0, 0, 0, 0)
    assert not together(drawn(1), drawn(2), (quiet, burst))
    # A slowdown is found beside it, in whichever set the burst was.
    assert together(drawn(1), drawn(2, times=1.2), (quiet, burst))
    assert together(drawn(1), drawn(2, times=1.2), (burst, quiet))
    # What no neighbour makes needs no run to confirm it.
    assert together(
        drawn(1), drawn(2, counts=(0, 0, 0, 5, 0), times=(1, 1, 1, 6, 1)), (quiet, burst)
    )


# Mean ms of every turn's 40 requests, with and without what strangers had the cpu for: nginx,
# gunicorn, and PostgreSQL, healthy, beside a neighbour that used 97 % of the machine.
TURNS = (
    ((10.61, 7.99, 9.19, 11.94, 12.31, 16.93, 12.33, 11.41),
     (15.75, 11.58, 10.75, 17.86, 13.13, 19.63, 18.22, 12.21)),
    ((4.45, 4.40, 4.78, 6.23, 5.33, 6.29, 6.04, 6.55),
     (5.37, 5.40, 5.35, 6.02, 5.96, 7.90, 6.70, 7.08)),
)  # fmt: skip


@pytest.mark.parametrize("slower", [1.0, 2.0])
def test_requests_of_few_turns_are_no_independent_units(slower):
    rng = np.random.default_rng(5)
    sets, clean = [], []
    for which, (means, without) in enumerate(zip(*TURNS, strict=True)):
        ms, own = (np.repeat(each, 40) * 1e6 for each in (means, without))
        own = (own * rng.lognormal(0, 0.3, 320) * (slower if which else 1)).astype(np.int64)
        taken = ((ms - np.repeat(without, 40) * 1e6) * rng.exponential(1, 320)).astype(np.int64)
        for to, waits in ((sets, taken), (clean, 0 * taken)):
            counts = np.ones((320, 2), np.int64)
            to.append(VectorTable(SYMBOLS[1:3], counts, np.column_stack([own, waits])))
    block, run = np.arange(320) // 80, np.arange(320) // 40
    single, shared = (
        judge(
            sets[0], sets[1], CompareSettings(permutations=1999), labels=(("",) * 320,) * 2,
            sessions=(None, None), runs=runs, blocks=(block, block), clean=(clean[0], clean[1]),
            screening=False,
        ).detection.flagged
        for runs in (None, (run, run))
    )  # fmt: skip
    assert single
    assert shared == (slower > 1)


def in_blocks(rng, count, *, more=0.0, burst=4):
    """Judge runs of one execution each in blocks of ABBA or BAAB, a stranger busy for a while.

    ``more`` is how much longer one side's runs wait for a cpu that the stranger has.
    """
    side = np.concatenate([((0, 1, 1, 0), (1, 0, 0, 1))[rng.integers(2)] for _ in range(count)])
    block, taken = np.arange(4 * count) // 4, rng.normal(2e6, 1e5, 4 * count) + more * side
    for _ in range(count):
        begin = rng.integers(-burst, 4 * count)
        taken[max(begin, 0) : begin + burst] += rng.exponential(4e6)
    sets, clean = [], []
    for which in (0, 1):
        table = drawn(rng.integers(1 << 30), n=2 * count)
        clean.append(table)
        durations = table.durations.copy()
        durations[:, 2] += taken[side == which].astype(np.int64)
        sets.append(VectorTable(table.symbols, table.counts, durations))
    n = 2 * count
    return judge(
        *sets, CompareSettings(permutations=1999), labels=(("",) * n, ("",) * n),
        sessions=(None, None), blocks=(block[side == 0], block[side == 1]),
        clean=(clean[0], clean[1]), screening=False,
    ).detection.flagged  # fmt: skip


def test_what_every_block_shows_no_stranger_made():
    """A neighbour that the program brings along makes others have the cpu for longer, too."""
    rng = np.random.default_rng(3)
    assert in_blocks(rng, 6, more=12e6)
    assert in_blocks(rng, 5, more=40e6)
    assert not in_blocks(rng, 4, more=40e6)  # too few to tell what they vary by
    assert sum(in_blocks(rng, 6, burst=burst) for burst in (1, 2, 5, 9, 24) for _ in range(4)) == 0


def marks(normal, sample, burst, session, *, known=True):
    """Return which executions are marked in sets of different times, a stranger's time told."""
    n, m = len(normal), len(sample)
    durations = sample.durations.copy()
    durations[:, 2] += np.asarray(burst, np.int64)
    found = judge(
        normal, VectorTable(sample.symbols, sample.counts, durations),
        CompareSettings(permutations=999), labels=(("",) * n, ("",) * m),
        sessions=(np.zeros(n, np.int64), np.asarray(session)), apart=True, together=False,
        clean=(normal, sample) if known else None, screening=False,
    )  # fmt: skip
    return np.flatnonzero(found.outliers.anomalous).tolist()


def test_a_slow_hour_and_strangers_mark_no_execution_and_hide_none():
    hours = np.repeat([0, 1, 2, 3], 15)
    pace = np.where(hours == 2, 1.4, 1.0)[:, None]
    burst = np.where(np.arange(60) % 15 < 4, 6e6, 0)
    slow_hour = drawn(2, n=60, times=pace)
    assert marks(drawn(1, n=60), slow_hour, 0 * burst, hours) == []
    assert marks(drawn(1, n=60), slow_hour, burst, hours) == []
    late = np.zeros((60, 5))
    late[[5, 38], 4] = 8e6  # a sleep, in an hour like the others and in the slow one
    rare = drawn(2, n=60, times=pace, more=late)
    assert marks(drawn(1, n=60), rare, 0 * burst, hours) == [5, 38]
    assert marks(drawn(1, n=60), rare, burst, hours) == [5, 38]
    # Whose having the cpu it was not told: the same times are then executions' own.
    assert len(marks(drawn(1, n=60), rare, burst, hours, known=False)) > 2


@pytest.mark.parametrize(("rare_waits", "often"), [(30e6, True), (600e6, False), (0, True)])
def test_a_sign_of_many_is_not_held_against_one_execution_of_few(rare_waits, often):
    """54 executions with 5 more trips to the disk, 6 of another kind that waited for a cpu."""
    kinds = np.repeat([0, 1], [54, 6])
    more = np.zeros((60, 5))
    more[:54, 3] = 2.5e6
    more[54:, 2] = rare_waits
    counts = np.where((kinds == 0)[:, None], (0, 0, 0, 5, 0), 0)
    signs = find_signs(
        *(drawn(1, n=60), drawn(2, n=60, counts=counts, more=more)),
        *((kinds, kinds), ("many", "few"), np.ones(5, np.bool_), 0.05),
    )
    assert any((s.kind, s.name) == ("count", "WAIT_DISK") for s in signs) == often


def test_waits_for_a_cpu_that_others_had_are_inconclusive():
    said, reasons = verdict(drawn(1), drawn(2, times=(1.1, 1.1, 20, 1, 1)))
    assert said == "inconclusive"
    assert "busier machine" in word(reasons[0])


@pytest.mark.parametrize(
    "fault",
    [
        {"counts": (20, 20, 0, 0, 0), "times": (2, 2, 3, 1, 1)},  # more trips
        {"counts": (0, 0, 0, 5, 0), "times": (1, 1, 1, 6, 1)},  # more syncs
        {"counts": (0, 0, 0, 0, 1), "more": (0, 0, 0, 0, 5e6)},  # a sleep
        {"times": (1, 3, 1, 1, 1)},  # one thread alone
    ],
)
def test_what_a_machine_does_not_make_is_an_anomaly_on_a_slower_one_too(fault):
    for pace in (1.0, 1.3):
        slower = {**fault, "times": np.asarray(fault.get("times", 1.0)) * pace}
        assert verdict(drawn(1), drawn(2, **slower))[0] == "anomaly"


def test_one_kind_of_request_slower_than_the_others_is_an_anomaly():
    kinds = ("a",) * 15 + ("b",) * 15
    times = np.ones((30, 5)) * 1.2
    times[:15] *= 1.8
    said, _ = verdict(drawn(1), drawn(2, times=times), labels=(kinds, kinds))
    assert said == "anomaly"
    alike = verdict(drawn(1), drawn(2, times=1.5), labels=(kinds, kinds))
    assert alike[0] == "inconclusive"


def test_a_sign_that_is_small_beside_what_was_added_decides_nothing():
    """Cold caches lengthen short work to a multiple, beside a neighbour on every cpu."""
    cold = {"times": (1, 2.6, 1, 1, 1)}
    assert verdict(drawn(1), drawn(2, **cold))[0] == "anomaly"
    beside = verdict(drawn(1), drawn(2, **cold, more=(0, 0, 60e6, 0, 0)))
    assert beside[0] == "inconclusive"
    assert "busier machine" in word(beside[1][0])


def test_a_sign_of_another_kind_than_what_became_slower_decides_nothing():
    kinds = ("a",) * 15 + ("b",) * 15
    more = np.zeros((30, 5))
    more[:15, 2] = 90e6  # a waits for a cpu
    times = np.ones((30, 5))
    times[15:, 1] = 2.6  # b runs longer
    said, _ = verdict(drawn(1), drawn(2, times=times, more=more), labels=(kinds, kinds))
    assert said == "inconclusive"
    assert verdict(drawn(1), drawn(2, times=times), labels=(kinds, kinds))[0] == "anomaly"


@pytest.mark.parametrize(("sizes", "is_sign"), [((40, 40), False), ((20, 60), True)])
def test_types_that_executions_came_into_by_chance_are_compared_as_one(sizes, is_sign):
    """Of one kind, a quarter runs 2.5 times as long; by what it met it is of another type."""
    before, after = drawn(1, n=80), drawn(2, n=80)
    longer = after.durations.copy()
    longer[:20, 1] = longer[:20, 1] * 5 // 2
    after = VectorTable(after.symbols, after.structure, longer)
    strata = np.repeat([0, 1], (20, 60)), np.repeat([0, 1], sizes)
    found = find_signs(before, after, strata, ("a", "a"), np.ones(5, np.bool_), 0.01)
    assert [(sign.kind, sign.name) for sign in found] == [("share", "RUN@server")] * is_sign


def looped(seed, shared, slept, *, runs=1.0, cuts=0, n=40) -> VectorTable:
    """Return requests of a loop: the times (ms) that it worked for others, and slept."""
    rng = np.random.default_rng(seed)
    symbols = (*SYMBOLS, Symbol(State.SHARED))
    times = np.array([4e6, 2e6 * runs, 2e5, 0, slept * 1e6, shared * 1e6])
    counts = np.array([3, 2 + cuts, 1, 0, round(slept), round(shared) + cuts])
    durations = np.rint(times * np.exp(rng.normal(0, 0.1, (n, 6)))).astype(np.int64)
    return VectorTable(symbols, np.tile(counts, (n, 1)), durations)


def test_a_loop_that_sleeps_where_it_had_others_to_work_for_is_no_sign():
    assert verdict(looped(1, 12, 0), looped(2, 9, 5))[0] == "inconclusive"
    assert verdict(looped(1, 12, 0), looped(2, 12, 20))[0] == "anomaly"


def test_what_others_cut_into_more_pieces_is_no_more_trips():
    assert verdict(looped(1, 4, 0), looped(2, 16, 0, cuts=5, runs=3))[0] == "inconclusive"
    more = looped(1, 4, 0), looped(2, 4, 0, runs=3)
    assert verdict(*more)[0] == "anomaly"


@pytest.mark.parametrize("trips", [0, 1])
def test_flights_are_more_trips_only_where_somebody_runs_once_more(trips):
    """Seen is a flight whose receiver waits for it: more of them where waits for a CPU grew."""
    rng = np.random.default_rng(5)
    peer = "server"
    states = (State.RUN, State.WAIT_CPU)
    symbols = (*map(Symbol, states), Symbol(State.RUN, peer), Symbol(State.NET_TRANSIT, peer))
    tables = []
    for wait, more in ((1e5, 0), (8e5, 1)):
        counts = np.tile([3 + trips * more, 1, 2 + trips * more, 1 + more], (40, 1))
        times = np.array([4e5, wait, 2e5, 1e4]) * np.exp(rng.normal(0, 0.1, (40, 4)))
        times[:, 3] *= counts[:, 3]
        tables.append(VectorTable(symbols, counts, np.rint(times).astype(np.int64)))
    strata = np.zeros(40, np.int64), np.zeros(40, np.int64)
    found = find_signs(*tables, strata, ("a",), np.ones(4, np.bool_), 0.01)
    assert ({"NET_TRANSIT@server"} <= {sign.name for sign in found}) == bool(trips)
    assert bool(found) == bool(trips)


def test_executions_that_take_a_quarter_less_have_no_sign():
    times = (1, 2.6, 1, 0.02, 1)
    assert verdict(drawn(1, more=(0, 0, 0, 9e6, 0)), drawn(2, times=times))[0] != "anomaly"


def test_six_of_24_executions_with_a_timeout_are_found_by_their_size():
    rng, zero = np.random.default_rng(3), np.zeros(24, np.int64)
    normal, sample = (
        np.rint(5e6 * np.exp(rng.normal(0, 0.2, 24))).astype(np.int64) for _ in range(2)
    )
    healthy = slow_end(normal, sample, zero, zero, 0.0005)
    assert healthy.p_value == 1
    assert healthy.shown is not None
    sample[:6] += 132_000_000
    found = slow_end(normal, sample, zero, zero, 0.0005)
    assert (found.slow, found.p_value) == (6, 1e-6)


def test_recordings_count_and_executions_do_not():
    rng = np.random.default_rng(5)

    def recordings(k, first, factor=1.0):
        paces = np.exp(rng.normal(0, 0.06, k)) * factor
        session = np.repeat(np.arange(k), 24)
        return np.rint(1e7 * paces[session]).astype(np.int64), session + first

    alarms = found = 0
    for _ in range(200):
        normal, sample, slow = recordings(4, 0), recordings(4, 0), recordings(4, 0, 1.5)
        for other, which in ((sample, 0), (slow, 1)):
            zeros = np.zeros(96, np.int64), np.zeros(96, np.int64)
            apart = beyond_sessions((normal[0], other[0]), zeros, (normal[1], other[1]), None, 0.01)
            alarms += which == 0 and apart[0] > apart[1]
            found += which == 1 and apart[0] > apart[1]
    assert alarms <= 8
    assert found >= 190
    zeros = np.zeros(24, np.int64), np.zeros(24, np.int64)
    one = beyond_sessions((normal[0][:24], slow[0][:24]), zeros, zeros, None, 0.01)
    assert one[1] == np.inf


def test_a_percentile_has_an_interval_only_where_the_sets_are_large_enough():
    few = compare_quantile("", 0.99, np.arange(100), np.arange(100))
    assert few.high is None
    assert few.low is None
    rng = np.random.default_rng(7)
    missed = 0
    for _ in range(200):
        found = compare_quantile("", 0.95, *(rng.exponential(1, 300) for _ in range(2)))
        missed += not found.low <= 0 <= found.high
    assert missed <= 4


def queueing(seed, queued, times=1.0) -> VectorTable:
    """Return executions of which each waits so long (ns) behind others besides."""
    table = drawn(seed, times=times)
    wait = np.random.default_rng(seed).uniform(0.5, 1.5, (len(table), 1)) * queued
    return VectorTable(
        (*table.symbols, Symbol(State.QUEUED)),
        np.hstack([table.counts, np.full((len(table), 1), int(queued > 0))]),
        np.hstack([table.durations, wait.astype(np.int64)]),
    )


def test_a_longer_queue_is_a_sign_where_nothing_else_takes_longer():
    assert verdict(queueing(1, 1e6), queueing(2, 9e6))[0] == "anomaly"
    # A busy machine makes queues longer than it makes anything else.
    assert verdict(queueing(1, 1e6), queueing(2, 9e6, times=1.5))[0] == "inconclusive"
    assert verdict(queueing(1, 0), queueing(2, 1e6, times=1.1))[0] == "inconclusive"


@pytest.mark.parametrize(
    ("queued", "rest", "is_sign"),
    [
        ((18e3, 376e3), (226e3, 684e3), True),  # 20 times as long, all else 3 times
        ((18e3, 60e3), (226e3, 684e3), False),  # no more than a slow machine makes of it
        ((0, 5e3), (226e3, 684e3), False),  # hardly anything of what was added
    ],
)
def test_waits_behind_new_clients_are_a_sign_if_the_pace_does_not_make_them(queued, rest, is_sign):
    times = queued, rest, (0, 0)
    states = [SimpleNamespace(normal_mean=t[0], sample_mean=t[1], flagged=True) for t in times]
    by_symbol = [*zip((Symbol(State.QUEUED), Symbol(State.WAIT_CPU)), states, strict=False)]
    found = find_queue(SimpleNamespace(states=states, by_symbol=by_symbol, floor=1e3))
    assert [sign.kind for sign in found] == ["clients"] * is_sign


PEERS = (
    *map(Symbol, (State.RUN, State.WAIT_CPU)),
    *(Symbol(state, "cache") for state in (State.RUN, State.WAIT_CPU, State.QUEUED, State.SHARED)),
    *(Symbol(state, "pool") for state in (State.RUN, State.QUEUED)),
)


def asking(seed, asks, *, wait, crowd=0.4, cuts=0, pool=0.0, n=60):
    """Return requests that ask a cache so often, each of which waits for a cpu (ns), and the asks.

    In an ask the cache may work for others, as often as ``crowd``; ``cuts`` are interrupts of it.
    ``pool``: how often a request waits behind those of others that ask the cache.
    """
    rng = np.random.default_rng(seed)
    asked = asks + rng.poisson(pool, n)
    met = rng.binomial(asked, crowd)
    waits = rng.exponential(wait, (n, 2)) * np.column_stack([np.ones(n), asked])
    nothing = np.zeros(n)
    durations = [
        150e3 + 2e3 * asked, waits[:, 0], 30e3 + 4e3 * asked, waits[:, 1], 1e3 * met, 4e3 * met,
        nothing + 2e3 * pool, 1e4 * (asked - asks),
    ]  # fmt: skip
    counts = [
        1 + asked, nothing, asked + met + cuts, nothing, met, 2 * met, nothing + (pool > 0),
        asked - asks,
    ]  # fmt: skip
    noise = rng.lognormal(0, 0.1, (n, len(PEERS)))
    table = VectorTable(
        PEERS,
        np.rint(np.column_stack(counts)).astype(np.int64),
        np.rint(np.column_stack(durations) * noise).astype(np.int64),
    )
    return table, asked[:, None]


def signs_of_asks(before, after, *, types=None):
    trips = Trips(("cache",), before[1], after[1])
    strata = types or (np.zeros(len(before[0]), np.int64), np.zeros(len(after[0]), np.int64))
    names = ("orders",) * 4
    every = np.ones(len(PEERS), np.bool_)
    found = find_signs(before[0], after[0], strata, names, every, 0.05, trips)
    return {(sign.kind, sign.name): sign for sign in found}


@pytest.mark.parametrize(("asks", "wait"), [(20, 9e3), (5, 60e3), (3, 30e3), (20, 90e3)])
def test_more_asks_are_a_sign_though_each_waits_for_a_cpu_and_behind_others(asks, wait):
    """The waits of the asks are theirs: they neither hide them nor are the machine's."""
    found = signs_of_asks(asking(1, 1, wait=wait), asking(2, asks, wait=wait, crowd=0.8))
    sign = found["count", "RUN@cache"]
    assert sign.before == 1
    assert sign.after == asks


def test_waits_and_interrupts_of_as_many_asks_are_no_sign():
    for asks in (1, 5, 20):
        before = asking(1, asks, wait=9e3)
        assert not signs_of_asks(before, asking(2, asks, wait=90e3, crowd=0.9, cuts=2 * asks))


def test_asks_that_a_pool_makes_for_other_requests_are_not_this_ones():
    before = asking(1, 1, wait=9e3)
    assert ("count", "RUN@cache") not in signs_of_asks(before, asking(2, 1, wait=2e4, pool=2.3))
    assert ("count", "RUN@cache") in signs_of_asks(before, asking(2, 6, wait=2e4, pool=2.3))


def test_requests_of_a_type_that_is_gone_are_compared_as_their_kind():
    """After, all are of the type that only few were before, as those met more."""
    before, after = asking(1, 1, wait=2e4), asking(2, 6, wait=2e4)
    few = asking(3, 6, wait=2e4, n=6)
    both = VectorTable(
        PEERS, *(np.vstack([getattr(t[0], of) for t in (few, before)])
                 for of in ("counts", "durations"))
    )  # fmt: skip
    types = np.repeat([1, 0], [6, 60]), np.ones(60, np.int64)
    found = signs_of_asks((both, np.vstack([few[1], before[1]])), after, types=types)
    assert ("count", "RUN@cache") in found


def test_longer_work_has_the_waits_that_it_made_longer():
    """A computation becomes 6.7 times as long where each ns of it waits for 11.5."""
    rng = np.random.default_rng(1)
    tables = []
    for runs, wait in ((36e6, 11.5), (241e6, 12.0)):
        ran = runs * rng.lognormal(0, 0.1, 30)
        times = np.column_stack([ran, ran * wait * rng.lognormal(0, 0.1, 30)])
        tables.append(
            VectorTable(SYMBOLS[:3:2], np.ones((30, 2), np.int64), times.astype(np.int64))
        )
    zeros = np.zeros(30, np.int64)
    found = find_signs(*tables, (zeros, zeros), ("",), np.ones(2, np.bool_), 0.05)
    assert [(sign.kind, sign.name) for sign in found] == [("share", "RUN")]


@pytest.mark.parametrize(
    ("taken", "crowded"), [((16e6, 6e6), 6e6), ((3e6, 3e6), 6e6), ((9e6, 2e6), 0)]
)
def test_a_program_that_crowds_itself_is_slower_though_strangers_took_less(taken, crowded):
    """200 waiters are woken for one job, and wait for the CPUs that others of them have."""
    rng = np.random.default_rng(7)
    n = 40
    block = np.arange(n) // 2, np.arange(n) // 2
    symbols = (Symbol(State.RUN), Symbol(State.WAIT_CPU), Symbol(State.WAIT_CPU, "waiter"))
    sets, clean = [], []
    for strangers, own in zip(taken, (1e5, crowded + 1e5), strict=True):
        mine = np.array([5e6, 1e6, own]) * rng.lognormal(0, 0.2, (n, 3))
        others = np.zeros((n, 3))
        others[:, 1] = strangers * rng.exponential(1, n) * (rng.random(n) < 0.3)
        for to, durations in ((sets, mine + others), (clean, mine)):
            to.append(VectorTable(symbols, np.ones((n, 3), np.int64), durations.astype(np.int64)))
    found = judge(
        *sets, CompareSettings(permutations=1999), labels=(("",) * n, ("",) * n),
        sessions=(None, None), blocks=block, clean=(clean[0], clean[1]), screening=False,
    ).detection  # fmt: skip
    assert ("WAIT_CPU@waiter" in {c.name for c in found.slower}) == bool(crowded)
    assert found.flagged == bool(crowded)


def test_a_kind_that_a_stranger_who_came_held_up_is_not_slower_by_itself():
    """It sleeps three times as long for threads that had no cpu; more than that is its own."""
    rng = np.random.default_rng(8)
    n = 80
    strata = np.arange(n) % 2, np.arange(n) % 2
    symbols = (Symbol(State.RUN), Symbol(State.WAIT_TIMER, "loop"))
    every, counts = np.zeros(2, np.bool_), np.ones((n, 2), np.int64)

    def draw_table(times: float) -> VectorTable:
        mine = np.array([2e6, 1e6]) * rng.lognormal(0, 0.2, (n, 2))
        mine[1::2, 1] *= times
        return VectorTable(symbols, counts, mine.astype(np.int64))

    normal, names = draw_table(1), ("a", "b")
    for times, held_up, kinds in ((3, None, ["b"]), (3, {"b": 4.0}, []), (30, {"b": 4.0}, ["b"])):
        found = find_signs(
            *(normal, draw_table(times), strata, names, every, 0.05), held_up=held_up
        )
        assert [sign.label for sign in found if sign.kind == "kind"] == kinds
