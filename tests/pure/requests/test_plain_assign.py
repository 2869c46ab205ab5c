"""What assignment starts from, row by row: sizes, kinds, events of a process; other methods."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "oracle"))

import request_tables as plain

from critpath.model.requests import Act, Certainty
from critpath.requests import assign, others, transitions
from critpath.requests.assign import Process, Tables, What
from critpath.requests.matching import IMPOSSIBLE, find_regrets, match, to_probability
from critpath.requests.owners import find_targets
from critpath.requests.transitions import ANSWER, END, Transitions, Way
from critpath.schema.parameters.requests import POOLS, TOKENS, TRANSITIONS


@pytest.fixture(scope="module")
def worlds(load: Any) -> list[Any]:
    """Return tables, and their rows; with activity."""
    drawing = load("pure/requests/drawing.py")
    drawn = load("pure/requests/drawn_tables.py")
    found = [drawn.draw_world(drawing, seed) for seed in range(200, 260) if seed % 10]
    for number, world in enumerate(found):
        for name, table in list(vars(world).items()):
            setattr(world, f"{name}_rows", plain.rows_of(table))
        pooled = np.arange(len(world.subrequests)) % 4 == number % 4
        tables = world.activity, world.workers, world.endpoints, world.requests
        world.tables = Tables(*tables, world.subrequests, pooled, {})
        world.pooled = pooled.tolist()
    return found


def find_sizes(world: Any) -> list[int]:
    subs = world.subrequests_rows
    sizes = [
        sum(
            row.value
            for row in world.activity_rows
            if row.act == Act.SEND
            and row.endpoint == sub.endpoint
            and sub.begin_ns <= row.time_ns <= sub.end_ns
        )
        for sub in subs
    ]
    last: dict[int, int] = {}
    result = sizes.copy()
    for at in reversed(range(len(subs))):
        if subs[at].connects and subs[at].endpoint in last:
            result[at] = sizes[last[subs[at].endpoint]]
        last[subs[at].endpoint] = at
    return result


def test_sizes_and_kinds(worlds: list[Any]) -> None:
    for world in worlds:
        sizes = find_sizes(world)
        assert transitions.find_sizes(world.activity, world.subrequests).tolist() == sizes
        whom = find_targets(world.endpoints, world.subrequests).tolist()
        called = transitions.find_names(world.requests, world.subrequests).tolist()
        says = [" " in world.requests.strings[code] for code in called]
        sizes = [0 if said else size for said, size in zip(says, sizes, strict=True)]
        pairs = list(zip(whom, called, sizes, strict=True))
        kinds = [sorted({*pairs}).index(pair) for pair in pairs]
        words, kind = transitions.name_kinds(
            world.activity, world.endpoints, world.requests, world.subrequests
        )
        assert kind.tolist() == kinds
        assert world.tables.kind.tolist() == kinds
        assert world.tables.kinds == len({*kinds}) == len(words)
        for row, of in enumerate(kinds):
            end = world.subrequests.endpoint[row]
            path = world.endpoints.strings[world.endpoints.path[end]]
            name = world.requests.strings[called[row]]
            asks = f"{path or world.endpoints.remote_port[end]} {name}".rstrip()
            assert words[of][0] == asks
            assert says[row] or words[of][1] == sizes[row]


def test_ways_are_counted_of_what_is_surely_theirs(worlds: list[Any]) -> None:
    many = 0
    for world in worlds:
        words, kind = transitions.name_kinds(
            world.activity, world.endpoints, world.requests, world.subrequests
        )
        want: Counter[Way] = Counter()
        for row, request in enumerate(world.requests_rows):
            mine = [
                (sub.begin_ns, int(kind[at]), sub.probability)
                for at, sub in enumerate(world.subrequests_rows)
                if sub.request == row and not sub.connects
            ]
            if all(sure >= POOLS.sure for *_, sure in mine):
                asks = tuple(words[of] for _, of, _ in sorted(mine))
                before = sum(time <= request.answered_ns for time, *_ in mine)
                service = transitions.name_roots(world.requests)[row]
                want[Way(service, asks, before)] += 1
        tables = world.activity, world.endpoints, world.requests, world.subrequests
        assert transitions.collect_ways(*tables) == want
        many += sum(len(way.asks) > 0 for way in want)
    assert many > 20


def test_events_of_a_process(worlds: list[Any]) -> None:
    seen: Counter[int] = Counter()
    for world in worlds:
        tables, subs, ends = world.tables, world.subrequests_rows, world.endpoints_rows
        made_by = [
            (row.time_ns, row.tid, row.value,
             plain.find_process(world.workers_rows, plain.thread_key(row.host, row.tid)))
            for row in world.activity_rows if row.act == Act.CREATE and row.tid >= 0
        ]  # fmt: skip
        of_request = [
            plain.find_process(
                world.workers_rows, plain.thread_key(ends[r.endpoint].host, r.reader_tid)
            )
            for r in world.requests_rows
        ]
        of_sub = [
            plain.find_process(world.workers_rows, plain.thread_key(ends[s.endpoint].host, s.tid))
            for s in subs
        ]
        assert tables.of_request.tolist() == of_request
        assert tables.of_sub.tolist() == of_sub
        unsure = []
        for number in sorted({*of_request}):
            rows = [r for r, of in enumerate(of_request) if of == number]
            asked = [s for s, of in enumerate(of_sub) if of == number]
            events = []
            for at, row in enumerate(rows):
                its = world.requests_rows[row]
                events.append((its.received_ns, What.RECEIVE, its.reader_tid, at))
                events.append((its.answered_ns, What.ANSWERED, its.tid, at))
            for at, sub in enumerate(asked):
                its = subs[sub]
                events.append((its.begin_ns, What.ASK, its.tid, at))
                last = plain.last_row(world.activity_rows, {Act.RECEIVE}, its.endpoint, its.end_ns)
                got = last >= 0 and world.activity_rows[last].time_ns == its.end_ns
                tid = world.activity_rows[last].tid if got else its.tid
                if not its.connects:
                    events.append((its.end_ns, What.RESULT, tid, at))
            host = number >> 32
            events += [
                (time, What.MADE, tid, new)
                for time, tid, new, of in made_by
                if of == number and of >> 32 == host
            ]
            events.sort(key=lambda e: (e[0], e[1], e[2], e[3]))
            numbers = sorted(
                {tid for _, _, tid, _ in events} | {n for _, w, _, n in events if w == What.MADE}
            )
            process = tables.process(number)
            found = zip(
                *(process.time.tolist(), process.what.tolist(), process.thread.tolist()),
                process.row.tolist(),
                strict=True,
            )
            assert [*found] == [
                (time, what, numbers.index(tid), numbers.index(row) if what == What.MADE else row)
                for time, what, tid, row in events
            ]
            seen.update(what for _, what, *_ in events)
            assert process.requests.tolist() == rows
            assert process.asked.tolist() == asked
            places = sorted({subs[sub].endpoint for sub in asked})
            for at, (kind, end, whose, how) in enumerate(process.asks.tolist()):
                its = subs[asked[at]]
                assert kind == tables.kind[asked[at]]
                assert end == places.index(its.endpoint)
                assert whose == (
                    -1 if its.request < 0
                    else rows.index(its.request) if its.request in rows else -2
                )  # fmt: skip
                sure = its.attribution == Certainty.CERTAIN or world.pooled[asked[at]]
                assert how == its.connects + 2 * sure
            calls = [s for s in asked if not subs[s].connects and not world.pooled[s]]
            doubt = sum(
                subs[s].request < 0 or subs[s].attribution == Certainty.DOUBTFUL for s in calls
            )
            if doubt > TOKENS.unsure * len(calls):
                unsure.append(number)
            what = process.what.tolist()
            ask = [e for e, of in enumerate(what) if of == What.ASK]
            calls_at = [e for e in ask if not subs[asked[process.row[e]]].connects]
            assert process.select(What.ASK).tolist() == calls_at
            assert process.select(What.RESULT).tolist() == [
                e for e, of in enumerate(what) if of == What.RESULT
            ]
            # Whether it asks with no request that is not answered.
            open_at = [
                what[: e + 1].count(What.RECEIVE) - what[: e + 1].count(What.ANSWERED)
                for e in calls_at
            ]
            late = sum(n <= 0 for n in open_at)
            assert assign._asks_later(process) == (late > TOKENS.unsure * max(len(calls_at), 1))
        assert tables.unsure() == unsure
    assert min(seen[what] for what in range(5)) > 20


def test_threads_are_followed(worlds: list[Any]) -> None:
    """Who was last received by the thread, or had a result in it."""
    many = 0
    for world in worlds:
        owner = np.full(len(world.subrequests), -1, np.int64)
        others._follow_threads(world.tables, owner)
        ends, subs = world.endpoints_rows, world.subrequests_rows
        result = {(s.endpoint, s.end_ns): at for at, s in enumerate(subs)}
        events = [
            (row.time_ns, 0, row.host, row.tid, result[row.endpoint, row.time_ns])
            for row in world.activity_rows
            if row.act == Act.RECEIVE and (row.endpoint, row.time_ns) in result
        ]
        events += [
            (r.received_ns, 1, ends[r.endpoint].host, r.reader_tid, at)
            for at, r in enumerate(world.requests_rows)
        ]
        events += [(s.begin_ns, 2, ends[s.endpoint].host, s.tid, at) for at, s in enumerate(subs)]
        last: dict[tuple[int, int], int] = {}
        want = [-1] * len(subs)
        for _, what, host, tid, row in sorted(events):
            if what == 2:
                want[row] = last.get((host, tid), -1)
            else:
                last[host, tid] = row if what else want[row]
        assert owner.tolist() == want
        many += sum(of >= 0 for of in want)
    assert many > 50


def test_what_changes_from_one_exchange_to_the_next(worlds: list[Any]) -> None:
    seen = set()
    for world in worlds[:20]:
        subs, ends = world.subrequests_rows, world.endpoints_rows
        for row, request in enumerate(world.requests_rows[:3]):
            for sub, its in enumerate(subs[:6]):
                first = others._change(world.tables, row, -1, sub)
                assert first == (request.reader_tid != its.tid, True, True)
                for last, before in enumerate(subs[:6]):
                    found = others._change(world.tables, row, last, sub)
                    one, other = ends[before.endpoint], ends[its.endpoint]
                    peer = (one.remote_address, one.remote_port)
                    assert found == (
                        before.tid != its.tid,
                        before.endpoint != its.endpoint,
                        peer != (other.remote_address, other.remote_port),
                    )
                    seen.add(found)
    assert len(seen) == 6  # an endpoint has one peer


def test_other_methods_give_each_sub_request_at_most_one_request(worlds: list[Any]) -> None:
    for world in worlds[:16]:
        subs = world.subrequests
        found = subs.request.astype(np.int64)
        for method in ("thread", "delays", "gap"):
            owner, sure = others.assign_otherwise(method, world.tables, found)
            assert sure.tolist() == [0.5 if of >= 0 else 0.0 for of in owner.tolist()]
            if method == "thread":
                continue
            mine = np.flatnonzero(owner >= 0)
            assert (subs.connects[mine] == 0).all()
            its = owner[mine]
            assert (world.tables.of_request[its] == world.tables.of_sub[mine]).all()
            assert (subs.begin_ns[mine] >= world.requests.received_ns[its]).all()
            assert (subs.begin_ns[mine] <= world.requests.end_ns[its]).all()


def make_tables(asks: list[tuple[int, int, int, int]], received: list[int], end: int) -> Any:
    """Return what other methods read of one process: (begin, end, kind, endpoint) of what it asks.

    Every request lasts until `end`.
    """
    begin, until, kind, endpoint = np.array(asks, np.int64).T
    many = len(received)
    none = np.zeros(0, np.int64)
    return SimpleNamespace(
        activity=SimpleNamespace(act=none),
        of_sub=np.zeros(len(asks), np.int64), of_request=np.zeros(many, np.int64),
        kind=kind, kinds=int(kind.max()) + 1, root=np.full(many, int(kind.max()) + 1),
        requests=SimpleNamespace(
            received_ns=np.array(received), end_ns=np.full(many, end),
            reader_tid=np.zeros(many, np.int64), endpoint=np.zeros(many, np.int64),
        ),
        subrequests=SimpleNamespace(
            begin_ns=begin, end_ns=until, endpoint=endpoint, tid=np.zeros(len(asks), np.int64),
            connects=np.zeros(len(asks), np.int64),
        ),
        endpoints=SimpleNamespace(
            host=np.zeros(9, np.int64), remote_address=np.arange(9), remote_port=np.arange(9)
        ),
    )  # fmt: skip


def test_delays_are_made_most_alike() -> None:
    """Each asks 5 us after it was received and again after 90 us; nobody else can have."""
    received = [100_000 * row for row in range(12)]
    asks, truth = [], []
    for row, at in enumerate(received):
        for kind, after in ((0, 5_000 + 10 * row), (1, 90_000 - 7 * row)):
            asks.append((at + after, at + after + 1_000, kind, 0))
            truth.append(row)
    tables = make_tables(asks, received, 2_000_000)
    owner, _ = others.assign_otherwise("delays", tables, np.full(len(asks), -1))
    assert owner.tolist() == truth


def test_steps_follow_what_was_learned() -> None:
    """All ask 0 and then 1, and each has one connection."""
    received = [1_000 * row for row in range(10)]
    asks, truth = [], []
    for row, at in enumerate(received):
        for kind in (0, 1):
            begin = at + 300 + 1_500 * kind
            asks.append((begin, begin + 700, kind, row % 3))
            truth.append(row)
    tables = make_tables(asks, received, 20_000)
    found = np.array(truth)
    owner, _ = others.assign_otherwise("gap", tables, found)
    assert owner.tolist() == truth
    known, changes = others._train(tables, np.arange(10), np.arange(20), found)
    root = tables.kinds
    assert known.may((root,), 0)
    assert not known.may((root,), 1)
    assert known.probability((root,), 0) > 0.7
    assert known.probability((root, 0, 1), END) > 0.7
    assert changes == {(False, True, True): 0.5, (False, False, False): 0.5}


def test_kinds_are_asked_as_often_as_they_are() -> None:
    for requests, each in ((4, 3), (5, 2), (9, 1)):
        kind = np.array([0] * 12 + [1] * requests)
        asks = [(at, at, int(of), 0) for at, of in enumerate(kind)]
        tables = make_tables(asks, [0] * requests, 100)
        subs = np.arange(len(kind))
        found = others._positions(tables, np.arange(requests), subs)
        assert [of for of, _ in found] == [0] * max(1, round(12 / requests)) + [1]
        assert sorted(np.concatenate([rows for _, rows in found]).tolist()) == subs.tolist()
        assert each == max(1, round(12 / requests))
        for part, (of, rows) in enumerate(found[:each]):
            assert (of, rows.tolist()) == (0, [*range(part, 12, each)])


def test_many_requests_are_taken_in_parts() -> None:
    for many in (0, 1, 400, 401, 950):
        parts = others._chunks(np.arange(many))
        assert np.concatenate([np.zeros(0, int), *parts]).tolist() == [*range(many)]
        assert all(len(part) == 400 for part in parts[:-1])


@pytest.mark.parametrize("seed", range(40))
def test_regrets_are_what_the_best_without_a_link_costs_more(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, columns = 1 + seed % 4, 1 + seed // 4 % 4
    cost = rng.integers(0, 9, (rows, columns)).astype(float)
    cost[rng.random((rows, columns)) < 0.3] = IMPOSSIBLE

    def cheapest(banned: tuple[int, int] | None = None) -> float:
        wide = np.hstack([cost, np.full((rows, rows), IMPOSSIBLE)])
        if banned is not None:
            wide[banned] = 2 * IMPOSSIBLE
        return min(
            sum(wide[row, to] for row, to in enumerate(order))
            for order in permutations(range(columns + rows), rows)
        )

    chosen = match(cost)
    best = cheapest()
    assert sum(cost[r, c] if c >= 0 else IMPOSSIBLE for r, c in enumerate(chosen)) == best
    assert len({*chosen[chosen >= 0]}) == (chosen >= 0).sum()
    for row, regret in enumerate(find_regrets(cost, chosen).tolist()):
        if chosen[row] >= 0:
            assert regret == pytest.approx(cheapest((row, int(chosen[row]))) - best)
        assert regret >= 0


def test_how_probable_a_link_is() -> None:
    regret, candidates = np.array([0.0, 0.0, 1.0, 3.0, 99.0, 0.0]), np.array([1, 2, 2, 0, 5, 9])
    found = to_probability(regret, candidates)
    assert found.tolist() == pytest.approx(
        [0.5, 0.5, 1 / (1 + np.exp(-1)), 1 / (1 + np.exp(-3)),
         1 / (1 + np.exp(-TOKENS.surest)), 0.5]
    )  # fmt: skip
    assert (np.diff(to_probability(np.arange(5.0), np.ones(5))) > 0).all()


@pytest.mark.parametrize("seed", range(20))
def test_what_follows_a_history(seed: int) -> None:
    """Counted after all of it where that is seen often enough, else after its last two, or one."""
    rng = np.random.default_rng(seed)
    kinds = 3
    histories = [(9, *rng.integers(0, kinds, rng.integers(0, 4)).tolist(), END) for _ in range(12)]
    times = rng.integers(1, 5, 12) if seed % 2 else None
    known = Transitions(kinds)
    known.learn(histories, times)
    whole: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    tails: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for row, history in enumerate(histories):
        many = 1 if times is None else int(times[row])
        for at in range(1, len(history)):
            whole[history[:at]][history[at]] += many
            for low in {max(at - 2, 0), at - 1}:
                tails[history[low:at]][history[at]] += many
    asked = {h[:at] for h in histories for at in range(1, len(h))} | {(9, 0, 0, 0), (1, 2), (5,)}
    for history in asked:
        counts = whole.get(history)
        if counts is None or counts.total() < TRANSITIONS.seen:
            counts = tails.get(history[-2:]) or tails.get(history[-1:])
        for kind in (*range(kinds), END, ANSWER):
            if counts is None:
                assert known.probability(history, kind) == 1 / (kinds + 2)
                assert known.may(history, kind)
                continue
            total = counts.total() + TRANSITIONS.smoothing * (kinds + 2)
            want = (counts[kind] + TRANSITIONS.smoothing) / total
            may = counts[kind] >= TRANSITIONS.least * counts.total()
            assert known.probability(history, kind) == pytest.approx(want)
            assert known.may(history, kind) == may
            weight = known.weigh(history, kind)
            assert weight == (pytest.approx(np.log(want)) if may else -np.inf)
        goes = counts is None or any(k >= 0 and known.may(history, k) for k in counts)
        assert known.goes_on(history) == goes


@pytest.mark.parametrize("seed", range(20))
def test_orders_begin_with_what_contradicts_least(seed: int) -> None:
    """Nobody asks a later kind before he has the result of an earlier one."""
    rng = np.random.default_rng(seed)
    events, asks = [], []
    requests = 4
    for row in range(requests):
        now = int(rng.integers(0, 20))
        events.append((now, What.RECEIVE, 0, row))
        for kind in (0, 1, 2)[: 2 + seed % 2]:
            now += int(rng.integers(1, 5))
            events.append((now, What.ASK, 0, len(asks)))
            now += int(rng.integers(1, 9))
            events.append((now, What.RESULT, 0, len(asks)))
            asks.append((kind, 0, -1, 0))
    events.sort()
    time, what, thread, row = np.array(events, np.int64).T
    process = Process(
        time, what.astype(np.uint8), thread.astype(np.int32), row.astype(np.int32),
        np.full(requests, 3, np.int32), np.array(asks, np.int32), np.arange(requests),
        np.arange(len(asks)),
    )  # fmt: skip

    def against(order: tuple[int, ...]) -> int:
        wrong = 0
        for place, later in enumerate(order):
            for earlier in order[:place]:
                asked = done = 0
                for _, of, _, sub in events:
                    done += of == What.RESULT and asks[sub][0] == earlier
                    if of == What.ASK and asks[sub][0] == later:
                        asked += 1
                        wrong += asked > done
        return wrong

    found = list(assign._orders(process))
    orders = [order for order, _ in found]
    assert all(share == {} for _, share in found)
    every = {*permutations(range(2 + seed % 2))}
    assert {*orders} <= every
    assert len(orders) == len({*orders}) == min(len(every), TOKENS.orders)
    costs = [against(order) for order in orders]
    assert costs == sorted(costs)
    assert costs[0] == min(map(against, every))
    assert against(tuple(sorted(orders[0]))) == 0
