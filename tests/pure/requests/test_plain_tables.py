"""What is done with whole columns, against twins that go row by row, on tables that are drawn."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "oracle"))

import request_tables as plain

from critpath.model.requests import LINK_KINDS, Act, Certainty
from critpath.requests import crossings, links, owners
from critpath.requests.endpoints import NAMELESS
from critpath.requests.rounds import Helpers
from critpath.schema.parameters.requests import OWNERS, ROUNDS, TOKENS

SEEDS = range(80)


@pytest.fixture(scope="module")
def worlds(load: Any) -> list[Any]:
    """Return tables, and their rows."""
    drawing: ModuleType = load("pure/requests/drawing.py")
    drawn = load("pure/requests/drawn_tables.py")
    found = [drawn.draw_world(drawing, seed) for seed in SEEDS]
    for world in found:
        for name, table in list(vars(world).items()):
            setattr(world, f"{name}_rows", plain.rows_of(table))
    return found


def columns_of(*columns: np.ndarray) -> list[tuple[Any, ...]]:
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_turns_that_ask(worlds: list[Any]) -> None:
    seen = set()
    for world in worlds:
        found = owners.cut_subrequests(world.activity, world.endpoints)
        columns = (found.endpoint, found.begin_ns, found.end_ns, found.tid, found.connects)
        want = plain.cut_turns(world.activity_rows, world.endpoints_rows)
        assert columns_of(*columns) == want
        assert (found.request == -1).all()
        assert (found.child == -1).all()
        assert (found.how == 0).all()
        assert (found.attribution == Certainty.DOUBTFUL).all()
        seen |= {turn[-1] for turn in want}
    assert seen == {0, 1}


def test_whom_they_ask(worlds: list[Any]) -> None:
    for world in worlds:
        ends, subs = world.endpoints, world.subrequests
        rows = columns_of(ends.remote_address, ends.remote_port, ends.path)
        whom = [rows[end] for end in subs.endpoint]
        found = owners.find_targets(ends, subs)
        assert found.tolist() == [sorted({*whom}).index(each) for each in whom]


def test_processes_of_threads(worlds: list[Any]) -> None:
    for world in worlds:
        host, tid = (column.reshape(-1) for column in np.indices((3, 6)))
        keys = owners.thread_keys(host.astype(np.int32), tid - 1)
        assert keys.tolist() == [plain.thread_key(h, t - 1) for h, t in zip(host, tid, strict=True)]
        want = [plain.find_process(world.workers_rows, key) for key in keys.tolist()]
        assert owners.process_keys(world.workers, keys).tolist() == want


def test_where_sub_requests_arrive(worlds: list[Any]) -> None:
    seen = set()
    for world in worlds:
        tables = world.activity, world.endpoints, world.requests, world.subrequests
        joined = links.join_tiers(*tables)
        rows = world.activity_rows, world.endpoints_rows, world.requests_rows
        want = [plain.find_child(*rows, sub) for sub in world.subrequests_rows]
        assert joined.child.tolist() == want
        sent = links.find_sent(*tables)
        assert sent.tolist() == [plain.find_sent(*rows, sub) for sub in world.subrequests_rows]
        seen |= {*(joined.child >= 0), *(sent < world.subrequests.begin_ns) * 2}
    assert seen == {0, 1, 2}


def test_what_of_a_request_is_its_own(worlds: list[Any]) -> None:
    for world in worlds:
        table, subs = world.requests, world.subrequests_rows
        sent = world.subrequests.begin_ns - 1
        found = links.complete_requests(
            world.endpoints, table, world.subrequests, world.slices, sent
        )
        for row, request in enumerate(world.requests_rows):
            spans = [
                (sub.begin_ns - 1, sub.end_ns)
                for sub in subs
                if sub.request == row and not sub.connects
            ]
            asked = plain.union(spans, request.begin_ns, request.end_ns)
            assert found.asked_ns[row] == asked
            assert found.true_ns[row] == request.end_ns - request.begin_ns - asked
            assert found.queued_ns[row] == request.received_ns - request.begin_ns
            above = [s.request for s in subs if s.child == row and s.request >= 0]
            assert found.parent[row] == (above[-1] if above else -1)
            threads = {(s.host, s.tid) for s in world.slices_rows if s.request == row}
            assert found.threads[row] == max(len(threads), 1)


def test_how_sure_each_request_is(worlds: list[Any]) -> None:
    for world in worlds:
        many, subs = len(world.requests), world.subrequests
        known = [sub for sub in world.subrequests_rows if sub.request >= 0]
        worst = links.judge_attribution(many, subs)
        for row in range(many):
            mine = [sub.attribution for sub in known if sub.request == row]
            assert worst[row] == max(mine, default=Certainty.CERTAIN)
        unsure = dataclasses.replace(subs, probability=np.where(subs.tid == 1, 0, subs.probability))
        for table in (subs, unsure):
            sure = [1.0] * many
            rows = [sub for sub in plain.rows_of(table) if sub.request >= 0 and not sub.connects]
            for sub in sorted(rows, key=lambda sub: -sub.begin_ns):
                below = sure[sub.child] if sub.child >= 0 else 1.0
                sure[sub.request] *= max(sub.probability, 1e-12) * below
            assert links.find_confidence(many, table).tolist() == pytest.approx(sure)


def test_labels(worlds: list[Any]) -> None:
    for world in worlds:
        label, strings = links.name_labels(world.endpoints, world.requests, world.subrequests)
        want = plain.write_labels(
            *(world.endpoints, world.requests, world.subrequests_rows),
            *(NAMELESS, TOKENS.doubted),
        )
        assert [strings[code] for code in label.tolist()] == want
        assert strings[: len(world.requests.strings)] == world.requests.strings


def test_labels_where_all_is_sure(worlds: list[Any]) -> None:
    for world in worlds:
        sure = np.zeros(len(world.subrequests), np.uint8)
        subs = dataclasses.replace(world.subrequests, attribution=sure)
        label, strings = links.name_labels(world.endpoints, world.requests, subs)
        want = plain.write_labels(
            *(world.endpoints, world.requests, plain.rows_of(subs), NAMELESS, TOKENS.doubted)
        )
        assert [strings[code] for code in label.tolist()] == want


def test_links(worlds: list[Any]) -> None:
    seen = set()
    for world in worlds:
        found = links.find_links(
            *(world.activity, world.endpoints, world.requests, world.subrequests, world.slices)
        )
        kinds = [LINK_KINDS[kind] for kind in found.kind]
        columns = (found.from_slice, found.to_slice, found.sent_ns, found.received_ns)
        got = [(*row, kind) for row, kind in zip(columns_of(*columns), kinds, strict=True)]
        want = plain.find_links(
            *(world.activity_rows, world.endpoints_rows, world.requests_rows),
            *(world.subrequests_rows, world.slices_rows),
        )
        assert got == want
        seen |= {*kinds}
    assert seen == {"wake", "message"}


def test_when_bytes_left(worlds: list[Any]) -> None:
    early = 0
    for world in worlds:
        activity, subs = world.activity, world.subrequests
        want = plain.find_departures(world.activity_rows)
        found = crossings.find_departures(activity)
        assert found.tolist() == want
        early += int((found < activity.time_ns).sum())
        rows = np.flatnonzero(subs.connects == 0)
        first = []
        for sub in (world.subrequests_rows[row] for row in rows):
            at = plain.last_row(world.activity_rows, {Act.SEND}, sub.endpoint, sub.begin_ns)
            first.append(min(want[at], sub.begin_ns) if at >= 0 else sub.begin_ns)
        assert crossings.find_first_departures(activity, subs, rows).tolist() == first
        ends = np.repeat(np.arange(len(world.endpoints), dtype=np.int32), 12)
        times = np.tile(np.arange(12), len(world.endpoints))
        previous = crossings.find_previous(activity, ends, times)
        asked = zip(ends.tolist(), times.tolist(), strict=True)
        rows_of = world.activity_rows
        assert previous.tolist() == [plain.find_previous(rows_of, *each) for each in asked]
    assert early > 20


def test_what_is_on_its_way_between_hosts(worlds: list[Any]) -> None:
    for world in worlds:
        tables = world.activity, world.endpoints, world.requests, world.subrequests
        rows = world.activity_rows, world.endpoints_rows, world.requests_rows
        want = [plain.find_transit(*rows, sub) for sub in world.subrequests_rows]
        found = crossings.find_transits(*tables)
        assert list(map(tuple, found.tolist())) == want


def test_who_slept_for_bytes(worlds: list[Any]) -> None:
    many = 0
    for world in worlds:
        found = crossings.find_receipts(world.activity, world.messages, world.workers)
        rows = world.activity_rows, world.messages_rows, world.workers_rows
        assert [*found] == plain.find_receipts(*rows)
        many += len(found)
    assert many > 10


def test_lives_of_threads(worlds: list[Any]) -> None:
    for world in worlds:
        lives = crossings._Lives(world.workers)
        host, tid, time = (each.reshape(-1).astype(np.int32) for each in np.indices((2, 5, 20)))
        found = lives.find(host, tid - 1, time)
        asked = zip(host.tolist(), (tid - 1).tolist(), time.tolist(), strict=True)
        assert found.tolist() == [plain.find_life(world.workers_rows, *each) for each in asked]


def number_threads(activity: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of every row's thread, and of whom it wakes; -1 for none."""
    thread = np.where(activity.tid < 0, -1, activity.tid + 4 * activity.host)
    wakes = (activity.act == Act.WAKE) & (activity.value >= 0)
    woken = np.where(wakes, activity.value + 4 * activity.host, -1)
    return thread.astype(np.int32), woken.astype(np.int32)


def test_what_helpers_do_for_a_loop(load: Any) -> None:
    drawing, drawn = load("pure/requests/drawing.py"), load("pure/requests/drawn_tables.py")
    backs = ready = early = 0
    for seed in range(20):
        activity, endpoints = drawn.draw_loop(drawing, seed)
        thread, woken = number_threads(activity)
        helpers = Helpers(activity, endpoints, thread, woken)
        acts, ends = plain.rows_of(activity), plain.rows_of(endpoints)
        ids = thread.tolist(), woken.tolist()
        for loop in (1, 2, 5, 9):  # the last does nothing
            others = [n for n in range(4) if n != loop]
            found = helpers.hand_backs(loop, others)
            assert found == plain.find_hand_backs(acts, ends, *ids, loop, others, ROUNDS.most)
            backs += len(found)
            early += sum(at != done for each in found.values() for at, done in each)
            since = helpers.ready_since(loop)
            assert since == plain.find_ready(acts, *ids, loop)
            ready += len(since)
        asked = np.repeat(np.arange(len(ends)), 12)
        times = np.tile(np.arange(12), len(ends))
        each = zip(asked.tolist(), times.tolist(), strict=True)
        rows = [plain.last_row(acts, {Act.ARRIVAL}, *one) for one in each]
        want = [acts[row].time_ns if row >= 0 else 0 for row in rows]
        assert helpers.arrived(asked, times).tolist() == want
    assert min(backs, ready, early) > 5


@pytest.mark.parametrize("seed", range(30))
def test_moments_in_doubt(seed: int) -> None:
    rng = np.random.default_rng(seed)
    requests, threads = 12, 4
    begin = np.sort(rng.integers(0, 40, requests))
    reader = rng.integers(0, threads, requests).astype(np.int32)
    many = seed % 5
    moments = np.column_stack(
        [rng.integers(10, 60, many), rng.integers(0, threads, many)]
        + [rng.integers(0, requests, many) for _ in range(2)]
    )
    odd = rng.random(threads) < 0.2
    doubts = owners.Doubts(moments.copy(), odd, begin, reader)
    thread, time = (each.reshape(-1) for each in np.indices((threads + 1, 70)))
    want = []
    for of, at in zip(thread.tolist(), time.tolist(), strict=True):
        mine = [row for row in moments.tolist() if row[1] == of]
        often = len(mine) > OWNERS.exchanged * np.count_nonzero(reader == of)
        inside = any(min(begin[a], begin[b]) <= at <= end for end, _, a, b in mine)
        want.append(bool((of < threads and odd[of]) or (mine and often) or inside))
    assert doubts.cover(thread, time).tolist() == want


@pytest.mark.parametrize("seed", range(40))
def test_how_long_and_where_a_thread_ran(seed: int) -> None:
    rng = np.random.default_rng(seed)
    many = 1 + seed % 7
    time = np.cumsum(rng.integers(1, 5, many))
    runs = rng.random(many) < 0.6
    cpu = rng.integers(0, 4, many)
    bits = np.int64(1) << cpu
    begin, length = (each.reshape(-1) for each in np.indices((24, 12)))
    end = begin + length + 1
    run, cpus = owners._spend_one(time, runs, bits, begin, end)
    # Where it was in every ns: what stops first had been running, on a cpu that nobody saw.
    where = [0 if not runs[0] else -1] * time[0]
    for at, on, which in zip([*time[1:], 40], runs, bits, strict=True):
        where += [int(which) if on else -1] * (at - len(where))
    ran = [[at for at in where[a:b] if at >= 0] for a, b in zip(begin, end, strict=True)]
    assert run.tolist() == [len(each) for each in ran]
    for each, found, at in zip(ran, cpus.tolist(), begin.tolist(), strict=True):
        least = int(np.bitwise_or.reduce([0, *each]))
        assert found & least == least
        if where[at] > 0:  # it begins while it runs, as slices do
            assert found == least


def test_threads_that_owe_an_answer_when_they_receive() -> None:
    rng = np.random.default_rng(1)
    for many in (0, 1, 2, 3, 5, 8):
        for _ in range(20):
            received = rng.integers(0, 20, many)
            times = np.column_stack([received, received, received + rng.integers(1, 8, many)])
            reader = rng.integers(0, 3, many).astype(np.int32)
            rows = list(zip(reader.tolist(), received.tolist(), times[:, 2].tolist(), strict=True))
            want = [
                any(
                    (of == other == thread and got < later < end)
                    or (of == other == thread and got == later and one != two)
                    for one, (of, got, end) in enumerate(rows)
                    for two, (other, later, _) in enumerate(rows)
                )
                for thread in range(4)
            ]
            assert owners.find_loops(times, reader, 4).tolist() == want


@pytest.mark.parametrize("many", [3, 1 << 16, 70_000])
def test_codes_are_put_in_order_however_many_there_are(many: int) -> None:
    codes = np.array([many - 1, 2, min(many - 1, 65_537), 0, 2, many - 1], np.int32)
    assert owners.argsort_codes(codes, many).tolist() == sorted(range(6), key=lambda i: codes[i])


@pytest.mark.parametrize("largest", [5, 70_000, 1 << 25])
def test_codes_get_their_place_among_those_that_there_are(largest: int) -> None:
    codes = np.array([largest, 3, 0, 3, largest])
    every, place = owners._rank(codes)
    assert every.tolist() == [0, 3, largest]
    assert place.tolist() == [2, 1, 0, 1, 2]


def test_threads_are_numbered_in_order_also_of_ids_too_large_for_a_table() -> None:
    for large in (9, 1 << 26):
        of = owners._Attribution.__new__(owners._Attribution)
        every = [
            owners.thread_keys(np.array(hosts, np.int32), np.array(tids, np.int32))
            for hosts, tids in (([0, 2], [5, 5]), ([], []), ([0, 0, 2], [large, 5, 0]))
        ]
        want = sorted({*np.concatenate(every).tolist()})
        of.keys = np.array(want, np.int64)
        of._make_numbers()
        for keys in every:
            assert of._number(keys).tolist() == [want.index(key) for key in keys.tolist()]
        unknown = owners.thread_keys(np.array([0, 5], np.int32), np.array([large + 9, 5], np.int32))
        found = of._number(np.concatenate([unknown, every[0]]))
        assert found[2:].tolist() == [want.index(key) for key in every[0].tolist()]
        for number, key in zip(found.tolist(), unknown.tolist(), strict=False):
            assert number >= len(want) or want[number] != key


@pytest.mark.parametrize("seed", range(30))
def test_the_only_request_of_a_process(seed: int) -> None:
    rng = np.random.default_rng(seed)
    many, threads = seed % 8, 4
    begin = rng.integers(0, 30, many)
    times = np.column_stack([begin, begin, begin + rng.integers(1, 12, many)])
    reader, process = rng.integers(0, threads, many), np.array([50, 50, 60, 70])
    asked, time = (each.reshape(-1) for each in np.indices((3, 45)))
    of = SimpleNamespace(times=times, reader=reader, process=process)
    found = owners._Attribution._find_only(of, 50 + 10 * asked, time)
    for number, at, got in zip(asked.tolist(), time.tolist(), found.tolist(), strict=True):
        mine = np.flatnonzero(process[reader] == 50 + 10 * number)
        there = mine[(times[mine, 0] <= at) & (times[mine, 2] >= at)]
        assert got == -1 or there.tolist() == [got]
        if len(there) == 1 and times[there[0], 0] == times[mine[times[mine, 0] <= at], 0].max():
            last = mine[(times[mine, 0] == times[there[0], 0])]
            assert got == there[0] or len(last) > 1


def test_what_requests_ask_is_learned_as_a_tree() -> None:
    """Of ten requests nine ask 5 and then 6; what one in ten does is expected, one in 40 not."""
    root = np.array([0] * 40 + [1] * 2)
    asks = [(row, kind) for row in range(36) for kind in (5, 6)]
    asks += [(row, 6) for row in (36, 37, 38)] + [(39, 4), (41, 3)]
    request, kind = np.array(sorted(asks, key=lambda ask: ask[1] != 5)).T
    learned = owners._learn(request, kind, root, 8)
    assert learned.root.tolist() == root.tolist()

    def follow(*kinds: int) -> int:
        node = kinds[0]
        for each in kinds[1:]:
            node = learned.child[node, each]
        return int(node)

    def may(node: int) -> list[int]:
        return np.flatnonzero(learned.may[node]).tolist()

    first = follow(0, 5)
    assert {follow(0), first, follow(0, 5, 6)} == {0, first, follow(0, 5, 6)}
    assert len({follow(0), follow(1), first, follow(0, 5, 6), follow(0, 6), follow(1, 3)}) == 6
    share = {5: 36 / 40, 6: 3 / 40, 4: 1 / 40}
    assert may(0) == sorted(each for each, of in share.items() if of >= OWNERS.seldom)
    assert may(first) == [6]
    assert may(follow(0, 5, 6)) == []
    assert may(1) == [3]  # one of two
    assert (learned.child[follow(0, 5, 6)] == -1).all()
    assert len(learned.child) == 2 + 5
    none = owners._learn(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64), 3)
    assert none.child.shape == (0, 3)
