"""Units of pools, datagrams, tiers, and what pieces of paths say: against plain twins, drawn."""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "oracle"))

import request_tables as plain

from critpath.model import State
from critpath.model.requests import Act, Certainty, Collected, Rule, Sketches
from critpath.requests import datagrams, paths, pools, services, tiers
from critpath.requests.endpoints import UDP, EndpointColumn
from critpath.requests.held import SpentSlices, ThreadSlices
from critpath.requests.links import judge_attribution

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def worlds(load: Any) -> list[Any]:
    drawing = load("pure/requests/drawing.py")
    drawn = load("pure/requests/drawn_tables.py")
    found = [drawn.draw_world(drawing, seed) for seed in range(600, 650) if seed % 10]
    for world in found:
        for name, table in list(vars(world).items()):
            setattr(world, f"{name}_rows", plain.rows_of(table))
    return found


@pytest.mark.parametrize("seed", range(30))
def test_what_a_thread_asks_until_it_tells_that_it_is_done_is_a_unit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    asks, backs = {}, {}
    for thread in range(1 + seed % 4):
        begin = np.sort(rng.integers(0, 60, rng.integers(1, 9)))
        asks[thread] = begin, begin + rng.integers(0, 5, len(begin))
        told = np.sort(rng.integers(0, 60, rng.integers(0, 5))).tolist()
        backs[thread] = [(at, at - int(rng.integers(0, 4))) for at in told]
    helpers = SimpleNamespace(hand_backs=lambda _, threads: {t: backs[t] for t in threads})
    units, groups = pools.find_units(helpers, 0, asks)
    want = []
    for thread, (begin, end) in asks.items():
        told = [at for at, _ in backs[thread]]
        by: dict[int, list[int]] = {}
        for row, at in enumerate(begin.tolist()):
            by.setdefault(sum(moment < at for moment in told), []).append(row)
        for number, rows in by.items():
            since = told[number - 1] if number else 0
            result = int(end[rows[-1]])
            done = backs[thread][number][1] if number < len(told) else 0
            want.append((int(begin[rows[0]]), thread, since, result, max(done, result), rows))
    want.sort(key=lambda unit: unit[0])
    columns = (units.asked, units.thread, units.since, units.result, units.done)
    got = list(zip(*(c.tolist() for c in columns), [g.tolist() for g in groups], strict=True))
    assert got == want
    assert len(units) == len(want)


def test_units_of_queues_in_order_are_of_the_requests_in_order() -> None:
    many = 300  # more than one assignment
    received = 100 * np.arange(many)
    asked = received + 30 + np.arange(many) % 7
    units = pools.Units(
        np.arange(many) % 5, np.zeros(many, np.int64), asked, asked + 20, asked + 25
    )
    owner, sure = pools.assign_units(units, received, received + 90)
    assert owner.tolist() == [*range(many)]
    assert (sure > 0.9).all()
    pooled = pools.Pooled(2 * many)
    rows = {t: np.flatnonzero(np.arange(2 * many) // 2 % 5 == t) for t in range(5)}
    groups = [np.array([2 * (at // 5), 2 * (at // 5) + 1]) for at in range(many)]
    times = np.column_stack([received, received, received + 90])
    pooled.add(units, groups, rows, np.arange(1000, 1000 + many), times)
    assert pooled.owner.tolist() == [1000 + at // 2 for at in range(2 * many)]
    made = pooled.slices()
    assert made[:, 3].tolist() == [1000 + at for at in range(many)]
    assert (made[:, 1] == received).all()
    assert (made[:, 2] == np.minimum(asked + 25, received + 90)).all()
    # Of threads that were made for one request each nothing is said.
    alone = pools.Pooled(2 * many)
    each = dataclasses.replace(units, thread=np.arange(many))
    alone.add(each, groups, rows, np.arange(many), times)
    assert (alone.owner == -1).all()
    assert not len(alone.slices())


def test_places_are_the_ranks_of_times() -> None:
    times = np.array([30, 10, 20, 10])
    assert pools._places(times).tolist() == [3, 0, 2, 1]


def draw_datagrams(seed: int, drawing: Any) -> Collected:
    """Return servers and clients over UDP, who receive and send in any order."""
    rng = np.random.default_rng(seed)
    ends, many = 2 + seed % 4, 60
    table = np.zeros((ends, len(EndpointColumn)), np.int64)
    table[:, EndpointColumn.SOCKET] = np.arange(1, ends + 1)
    table[:, EndpointColumn.FAMILY] = 2
    table[:, EndpointColumn.PROTOCOL] = np.where(rng.random(ends) < 0.9, UDP, 6)
    table[:, EndpointColumn.FIRST] = np.where(np.arange(ends) % 2, 2, 1)
    table[:, EndpointColumn.PARTNER] = rng.integers(-1, ends, ends)
    table[:, EndpointColumn.CLOSED] = -1
    table[:, EndpointColumn.LOCAL_PORT] = np.where(rng.random(ends) < 0.5, 53, 0)
    table[:, EndpointColumn.REMOTE_PORT] = np.where(rng.random(ends) < 0.2, 99, 0)
    act = rng.choice([int(a) for a in (Act.ARRIVAL, Act.SEND, Act.RECEIVE, Act.SLEEP)], many)
    activity = drawing.fill(
        drawing.Activity, many, time_ns=np.arange(many), act=act, tid=rng.integers(-1, 4, many),
        host=np.zeros(many), endpoint=rng.integers(-1, ends, many), value=np.ones(many),
    )  # fmt: skip
    row = (0, int(rng.integers(0, 3)), 53, 0, 2, 0x0A000001, 0, 0, 0, 0, 0, UDP, 0, 7, 70, 0, "")
    return Collected(activity, table, [row] if seed % 2 else [])


def test_what_drawn_datagrams_come_to(load: Any, golden: Any) -> None:
    drawing = load("pure/requests/drawing.py")
    lines = []
    for seed in range(40):
        before = draw_datagrams(seed, drawing)
        after, doubtful = datagrams.split_datagrams(before)
        lines.append(f"{seed} {after.activity.endpoint.tolist()}")
        kept = [EndpointColumn[n] for n in ("OPENING", "PARTNER", "VOTES", "LOCAL_PORT", "KNOWN")]
        made = after.endpoints[:, [*kept, EndpointColumn.REMOTE_PORT]].tolist()
        lines.append(f"{seed} {made} {np.flatnonzero(doubtful).tolist()}")
        # What is no datagram of a server stays as it is; nothing else happened.
        assert (after.activity.time_ns == before.activity.time_ns).all()
        same = before.activity.endpoint == after.activity.endpoint
        moved = before.activity.endpoint[~same]
        assert (before.endpoints[moved, EndpointColumn.PROTOCOL] == UDP).all()
    golden(HERE / "snapshots" / "wild_datagrams.txt", "\n".join(lines) + "\n")


def test_where_a_client_waits_for_each_request(worlds: list[Any]) -> None:
    some = 0
    for world in worlds:
        calls, begin = paths.find_calls(world.activity, world.requests, world.subrequests)
        departures = plain.find_departures(world.activity_rows)
        want, since = [-1] * len(calls), [r.begin_ns for r in world.requests_rows]
        for at, sub in enumerate(world.subrequests_rows):
            if sub.child < 0 or sub.connects or sub.tid <= 0 or sub.end_ns <= sub.begin_ns:
                continue
            want[sub.child] = at
            sent = plain.last_row(world.activity_rows, {Act.SEND}, sub.endpoint, sub.begin_ns)
            left = min(departures[sent], sub.begin_ns) if sent >= 0 else sub.begin_ns
            since[sub.child] = min(world.requests_rows[sub.child].begin_ns, left)
        assert calls.tolist() == want
        assert begin.tolist() == since
        some += sum(at >= 0 for at in want)
    assert some > 30


def test_what_leads_to_a_piece_is_as_probable_as_all_links_together() -> None:
    """A chain of requests: each asks the next, over a link of its own probability."""
    many = 12
    sure = np.linspace(0.3, 0.95, many - 1)
    requests = SimpleNamespace(__len__=lambda: many)

    class Rows(SimpleNamespace):
        def __len__(self) -> int:
            return many

    subs = SimpleNamespace(
        probability=sure, child=np.arange(1, many), request=np.arange(many - 1),
        connects=np.zeros(many - 1, np.int64),
    )  # fmt: skip
    mine = np.arange(many - 1)
    rows, roots, want = [], [], []
    for root in range(0, many, 3):
        for below in range(root, many):
            for flies in (-1, 2 * (many - 2), 2 * (many - 2) + 1):
                rows.append([0, 0, 0, 0, flies, below])
                roots.append(root)
                want.append(np.prod(sure[root:below]) * (sure[-1] if flies >= 0 else 1))
    found = paths._Links(Rows(), subs, mine).multiply(np.array(rows), np.array(roots))
    assert found.tolist() == pytest.approx(want)
    assert requests is not None


def test_who_asked_for_what_others_wait_behind(worlds: list[Any]) -> None:
    some = 0
    for number, world in enumerate(worlds):
        rng = np.random.default_rng(number)
        slices = world.slices_rows
        keys = np.unique([plain.thread_key(s.host, s.tid) for s in slices]).astype(np.int64)
        if not len(keys) or not len(world.requests):
            continue
        many = 20
        begin = rng.integers(0, 40, many)
        table = np.column_stack(
            [rng.integers(0, len(keys), many), begin, begin + rng.integers(1, 20, many),
             rng.choice([int(State.QUEUED), int(State.WAIT_NET)], many)]
        )  # fmt: skip
        row = rng.integers(0, len(world.requests), many)
        askers = paths._find_askers(world.endpoints, world.subrequests, len(world.requests))
        asking, place = np.unique(askers, return_inverse=True)
        of = ThreadSlices(keys, world.slices, by=place.reshape(-1)[world.slices.request])
        spent = SpentSlices(table, of)
        found = paths._find_most_asking(table[:, 3], row, spent, asking).tolist()
        asker = {}
        for sub in world.subrequests_rows:
            if sub.child >= 0:
                host = world.endpoints_rows[sub.endpoint].host
                asker[sub.child] = plain.thread_key(host, sub.tid) if sub.tid > 0 else -1
        for at, (thread, low, high, state) in enumerate(table.tolist()):
            spent: dict[int, int] = {}
            for each in slices:
                inside = min(each.end_ns, high) - max(each.begin_ns, low)
                mine = plain.thread_key(each.host, each.tid) == keys[thread]
                if mine and inside > 0 and each.request != row[at]:
                    by = asker.get(each.request, -1) if each.request >= 0 else -1
                    spent[by] = spent.get(by, 0) + inside
            if state != State.QUEUED or not spent:
                assert found[at] == -1
            else:
                assert spent[found[at]] == max(spent.values())
                some += found[at] >= 0
    assert some > 20


@pytest.mark.parametrize("doubtful", [True, False])
def test_tiers_as_the_plain_twin(worlds: list[Any], doubtful: bool) -> None:
    deep = 0
    for number, world in enumerate(worlds):
        rng = np.random.default_rng(number)
        many = len(world.requests)
        parent = np.array([int(rng.integers(-1, at)) for at in range(many)], np.int32)
        requests = dataclasses.replace(
            world.requests, parent=parent, true_ns=np.arange(many) + 1,
            asked_ns=np.arange(many) * 3, queued_ns=np.arange(many) * 5,
        )  # fmt: skip
        chosen = rng.random(many) < 0.4
        ids = tuple(f"r{at}" for at in range(many))
        sketches = Sketches(
            "x", world.endpoints, requests, world.subrequests, world.slices, None,
            judge_attribution(many, world.subrequests), ids, chosen,
        )  # fmt: skip
        asked = set(ids[: many // 2]) if number % 3 == 0 else set()
        found, left = tiers.sum_tiers([sketches], ids=asked, doubtful=doubtful)
        some = [at for at in range(many) if chosen[at] and (not asked or ids[at] in asked)]

        def chain(at: int, parent: Any = parent) -> list[int]:
            above = [at]
            while parent[above[-1]] >= 0:
                above.append(int(parent[above[-1]]))
            return above[::-1]

        roots = [next((up for up in chain(at) if up in some), -1) for at in range(many)]
        unsure = {
            roots[sub.request] for sub in world.subrequests_rows
            if sub.request >= 0 and sub.attribution == Certainty.DOUBTFUL
        }  # fmt: skip
        bad = set() if doubtful else unsure
        assert left.requests == sum(at in bad and roots[at] == at for at in some)
        sums: dict[tuple[str, ...], list[float]] = {}
        threads: dict[tuple[str, ...], set[Any]] = {}

        def name(at: int, requests: Any = requests) -> str:
            return requests.strings[int(requests.service[at])]

        counted = {at for at in range(many) if roots[at] >= 0 and roots[at] not in bad}
        for at in counted:
            way = chain(at)
            place = tuple(name(up) for up in way[way.index(roots[at]) :])
            its = (1, int(requests.end_ns[at] - requests.begin_ns[at]), at + 1, 3 * at, 5 * at, 0)
            sums[place] = [a + b for a, b in zip(sums.get(place, [0] * 6), its, strict=True)]
            host = int(world.endpoints.host[requests.endpoint[at]])
            threads.setdefault(place, set()).add((host, int(requests.tid[at])))
        for at in (at for at in some if at in bad and roots[at] == at):
            latency, place = int(requests.end_ns[at] - requests.begin_ns[at]), (name(at),)
            its = (1, latency, 5 * at, 0, 5 * at, latency - 5 * at)
            sums[place] = [a + b for a, b in zip(sums.get(place, [0] * 6), its, strict=True)]
            host = int(world.endpoints.host[requests.endpoint[at]])
            threads.setdefault(place, set()).add((host, int(requests.tid[at])))
        for sub in world.subrequests_rows:
            if sub.request in counted and sub.child < 0 and not sub.connects:
                way = chain(sub.request)
                above = tuple(name(up) for up in way[way.index(roots[sub.request]) :])
                end = world.endpoints_rows[sub.endpoint]
                path, port = world.endpoints.strings[end.path], end.remote_port
                place = (*above, path or (f":{port}" if port else "unknown"))
                its = (1, sub.end_ns - sub.begin_ns, 0, 0, 0, 0)
                sums[place] = [a + b for a, b in zip(sums.get(place, [0] * 6), its, strict=True)]

        def below(above: tuple[str, ...], sums: Any = sums) -> list[tuple[str, ...]]:
            mine = [p for p in sums if p[:-1] == above]
            order = sorted(mine, key=lambda p: (-sums[p][1], p[-1]))
            return [each for p in order for each in (p, *below(p))]

        places = below(())
        assert [(t.service, t.depth, t.requests) for t in found] == [
            (p[-1], len(p) - 1, sums[p][0]) for p in places
        ]
        for tier, place in zip(found, places, strict=True):
            n = sums[place][0]
            assert tier.latency_ns == sums[place][1] / n
            assert tier.threads == len(threads.get(place, ()))
            if place in threads:
                own = (tier.own_ns, tier.asked_ns, tier.queued_ns, tier.unknown_ns)
                assert own == tuple(each / n for each in sums[place][2:])
            else:
                assert (tier.own_ns, tier.asked_ns, tier.queued_ns) == (None, None, None)
        deep += any(tier.depth > 1 for tier in found)
    assert deep > 5


def test_services_as_the_plain_twin(worlds: list[Any]) -> None:
    """Who asked whom, how often, how surely and by which rule, over two recordings."""
    calls_of_all = 0
    for number, (one, other) in enumerate(pairwise(worlds)):
        rng = np.random.default_rng(number)
        sketches = []
        for world in (one, other):
            many = len(world.requests)
            requests = dataclasses.replace(
                world.requests,
                parent=np.array([int(rng.integers(-1, many)) for _ in range(many)], np.int32),
                why=rng.choice([0, 5, 6], many).astype(np.int32),
                strings=(*world.requests.strings, "multiplexed"),
            )
            ends = dataclasses.replace(
                world.endpoints, local_address=np.full(len(world.endpoints), 4, np.int32),
                strings=("", "127.0.0.1", "10.0.0.9", "::1", "10.0.0.1"),
                remote_address=rng.integers(0, 5, len(world.endpoints)).astype(np.int32),
                path=np.zeros(len(world.endpoints), np.int32),
            )  # fmt: skip
            sketches.append(
                Sketches(
                    "x", ends, requests, world.subrequests, world.slices, None,
                    np.zeros(many, np.uint8), ("r",) * many, np.ones(many, np.bool_),
                    ("note", f"note {number}"), hosts=("a", "b") if number % 2 else (), alone=2,
                )
            )  # fmt: skip
        found = services.sum_services(sketches, "1")
        counts: Counter[str] = Counter()
        callers: dict[str, Counter[str]] = {}
        asks: dict[str, Counter[str]] = {}
        how: dict[str, Counter[str]] = {}
        sure: dict[str, list[float]] = {}
        several = elsewhere = 0
        for each in sketches:
            table, ends = each.requests, each.endpoints
            names = [table.strings[code] for code in table.service.tolist()]
            counts.update(names)
            for row, parent in enumerate(table.parent.tolist()):
                mine = callers.setdefault(names[row], Counter())
                mine[names[parent] if parent >= 0 else ""] += 1
            several += len({e for e, why in zip(table.endpoint, table.why, strict=True)
                            if table.strings[why] == "multiplexed"})  # fmt: skip
            for sub in plain.rows_of(each.subrequests):
                if sub.connects:
                    continue
                at = sub.endpoint
                address = ends.strings[ends.remote_address[at]]
                far = ends.peer[at] < 0 and address == "10.0.0.9"
                elsewhere += far
                if sub.request < 0:
                    continue
                asker, port = names[sub.request], int(ends.remote_port[at])
                if sub.child >= 0:
                    asked = names[sub.child]
                elif not port:
                    asked = {1: "unix", 16: "netlink"}.get(int(ends.family[at]), "?")
                elif ends.peer[at] >= 0 and len(each.hosts) > 1:
                    asked = f"{each.hosts[ends.host[ends.peer[at]]]}:{port}"
                else:
                    asked = f"{address}:{port}"
                asks.setdefault(asker, Counter())[asked] += 1
                how.setdefault(asker, Counter())[Rule(sub.how).name.lower()] += 1
                sure.setdefault(asker, []).append(sub.probability)
                calls_of_all += 1
        assert {of.service: of.requests for of in found.services} == counts
        for of in found.services:
            many = counts[of.service]
            want = {to: n / many for to, n in asks.get(of.service, {}).items()}
            assert of.calls == want
            assert Counter(of.callers) == callers[of.service]
            if of.service in sure:
                total = len(sure[of.service])
                assert of.sure == pytest.approx(sum(sure[of.service]) / total, abs=1e-6)
                assert of.how == {r: n / total for r, n in how[of.service].items()}
            else:
                assert of.sure is None
        assert (found.alone, found.several_at_once) == (4, several)
        assert found.not_recorded == elsewhere
        assert found.notes == ["note", f"note {number}"]
        assert found.hosts == []
    assert calls_of_all > 100


def test_services_come_in_the_order_in_which_requests_reach_them() -> None:
    def order(**asks: tuple[str, dict[str, int]]) -> list[str]:
        entries = [
            SimpleNamespace(service=name, calls=calls, callers={"": 1} if way == "in" else {"x": 1})
            for name, (way, calls) in asks.items()
        ]
        return [of.service for of in services._put_askers_first(entries)]

    chain = {"db": ("", {}), "app": ("", {"db": 1}), "web": ("in", {"app": 1, "away": 1})}
    assert order(**chain) == ["web", "app", "db"]
    deep = {"a": ("in", {"c": 1, "b": 1}), "b": ("", {}), "c": ("", {"d": 1}), "d": ("", {"a": 1})}
    assert order(**deep) == ["a", "c", "d", "b"]
    alone = {"x": ("", {"y": 1}), "y": ("", {"x": 1}), "z": ("in", {})}
    assert order(**alone) == ["z", "x", "y"]
