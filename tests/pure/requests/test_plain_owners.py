"""What attribution of simulated servers starts from, and what it doubts, row by row."""

from __future__ import annotations

import math
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "oracle"))

import request_tables as plain

from critpath.model.requests import Act, Rule
from critpath.requests import owners as owning
from critpath.schema.parameters.requests import OWNERS


@pytest.fixture(scope="module")
def made(load: Any) -> list[Any]:
    """Return attributions of servers of all classes, after one pass."""
    simulate, drawing = load("pure/requests/simulate.py"), load("pure/requests/drawing.py")
    found = []
    for seed, name in enumerate(simulate.CLASSES):
        world = simulate.simulate(name, 4, 24, seed)
        arguments = list(simulate.arguments(world, drawing))
        if seed % 2:  # the recording ends before some are answered
            requests = arguments[3]
            kept = np.arange(len(requests)) < len(requests) - 5
            columns = {
                n: getattr(requests, n)[kept] for n in type(requests).__annotations__
                if n != "strings"
            }  # fmt: skip
            arguments[3] = type(requests)(**columns, strings=requests.strings)
        of = owning._Attribution(*arguments)
        of.found = of._run(np.zeros(len(of.keys), np.int32))
        of.acts = plain.rows_of(of.activity)
        of.heals = of.native.take_heals()
        found.append(of)
    return found


def thread_of(row: Any) -> int:
    return plain.thread_key(row.host, row.tid)


def test_threads_and_their_processes_have_numbers(made: list[Any]) -> None:
    for of in made:
        keys = of.keys.tolist()
        assert keys == sorted({*keys})
        for at, row in enumerate(of.acts):
            want = keys.index(thread_of(row)) if row.tid >= 0 else -1
            assert of.thread[at] == want
            wakes = row.act == Act.WAKE and row.value >= 0
            woken = keys.index(plain.thread_key(row.host, row.value)) if wakes else -1
            assert of.woken[at] == woken
        workers = plain.rows_of(of.workers)
        assert of.process.tolist() == [plain.find_process(workers, key) for key in keys]
        readers = {keys[number] for number in of.reader.tolist()}
        ends = of.endpoints.host[of.requests.endpoint]
        answerers = {
            plain.thread_key(h, t) for h, t in zip(ends, of.requests.tid.tolist(), strict=True)
        }
        assert {keys[n] for n in np.flatnonzero(of.serving)} == readers | answerers


def test_requests_without_an_answer_wait_like_all_others(made: list[Any]) -> None:
    """The first that an endpoint received after its last answer, near the recording's end."""
    some = 0
    for of in made:
        requests = of.requests
        many = len(requests)
        longest = int((requests.end_ns - requests.begin_ns).max(initial=0))
        end = of.acts[-1].time_ns
        want = {}
        for row in of.acts:
            if row.act != Act.RECEIVE or row.endpoint < 0 or of.endpoints.serves[row.endpoint] != 1:
                continue
            ends = requests.end_ns[requests.endpoint == row.endpoint].tolist()
            closed = [
                r.time_ns for r in of.acts
                if r.endpoint == row.endpoint and r.act in {Act.CLOSE, Act.FINISH}
            ]  # fmt: skip
            late = row.time_ns >= end - longest and row.tid >= 0
            if late and row.time_ns > max([-1, *ends, *closed]):
                want.setdefault(row.endpoint, (row.time_ns, thread_of(row)))
        order = sorted(want, key=lambda e: want[e][0])
        assert of.at[many:].tolist() == order
        assert of.times[many:, 1].tolist() == [want[e][0] for e in order]
        assert (of.times[many:, 2] == end + 1).all()
        assert [of.keys[n] for n in of.reader[many:].tolist()] == [want[e][1] for e in order]
        assert (
            of.times[:many].tolist()
            == np.column_stack([requests.begin_ns, requests.received_ns, requests.end_ns]).tolist()
        )
        some += len(order)
    assert some > 3


def test_requests_begin_alike_by_service_and_size_where_there_are_enough(made: list[Any]) -> None:
    for of in made:
        many = len(of.at)
        service = [*of.requests.service.tolist(), *[0] * (many - len(of.requests))]
        sizes = [int(math.log(max(b, 1)) / math.log(OWNERS.sizes)) for b in of.requests.bytes_in]
        sizes += [0] * (many - len(sizes))
        pairs = list(zip(service, sizes, strict=True))
        counts = Counter(pairs)
        alike = [pair if counts[pair] >= OWNERS.few else (pair[0], -1) for pair in pairs]
        assert of.root.tolist() == [sorted({*alike}).index(one) for one in alike]
        assert of.kinds == len({*service}) + len({*of.asked.tolist()})


def test_moments_at_which_the_last_connection_was_taken_say_nothing(made: list[Any]) -> None:
    some = 0
    for of in made:
        subs = plain.rows_of(of.subrequests)
        how = of.found[:, 1]
        host = of.endpoints.host
        groups: dict[tuple[int, int], list[int]] = {}
        for at, sub in enumerate(subs):
            if not sub.connects:
                key = plain.thread_key(host[sub.endpoint], sub.tid)
                groups.setdefault((key, int(of.asked[at])), []).append(at)
        want = []
        for (key, _), mine in groups.items():
            ends = {subs[at].endpoint for at in mine}
            for at in mine:
                begun = sum(subs[n].begin_ns <= subs[at].begin_ns for n in mine)
                over = sum(subs[n].end_ns < subs[at].begin_ns for n in mine)
                if how[at] == Rule.ORDER and begun - over >= len(ends):
                    request = int(of.found[at, 0])
                    until = max(subs[at].begin_ns, int(of.times[request, 2]))
                    want.append((until, of.keys.tolist().index(key), request, request))
        found = of._find_contended(how)
        assert sorted(map(tuple, found.tolist())) == sorted(want)
        some += len(want)
    assert some > 10


def test_where_results_come_to_other_threads_work_wanders(made: list[Any]) -> None:
    for of in made:
        subs, workers = plain.rows_of(of.subrequests), plain.rows_of(of.workers)
        process, wanders = of._find_wanderers()
        asked: Counter[int] = Counter()
        moved: Counter[int] = Counter()
        for at, sub in enumerate(subs):
            key = plain.thread_key(of.endpoints.host[sub.endpoint], sub.tid)
            its = plain.find_process(workers, key)
            assert process[at] == its
            if sub.connects:
                continue
            asked[its] += 1
            first = next(row for row in of.acts if row.time_ns >= sub.end_ns)
            got = first.endpoint == sub.endpoint and first.act == Act.RECEIVE
            moved[its] += got and first.tid != sub.tid
        want = [
            p for p in sorted(asked)
            if moved[p] > OWNERS.wanders * asked[p] and asked[p] >= OWNERS.few
        ]  # fmt: skip
        assert wanders.tolist() == want


def test_how_long_slices_ran_and_where(made: list[Any]) -> None:
    for of in made[::3]:
        rng = np.random.default_rng(len(of.keys))
        thread = rng.integers(0, len(of.keys), 40)
        last = of.acts[-1].time_ns
        begin = rng.integers(0, last, 40)
        end = begin + rng.integers(1, last // 4, 40)
        run, cpus = of._spend(thread, begin, end)
        for at, number in enumerate(thread.tolist()):
            acts = (Act.RUN, Act.SLEEP, Act.PREEMPT, Act.EXIT)
            mine = [
                row for n, row in enumerate(of.acts) if of.thread[n] == number and row.act in acts
            ]
            if not mine:
                assert (run[at], cpus[at]) == (end[at] - begin[at], 0)
                continue
            edges = [min(mine[0].time_ns, int(begin[at])), *(r.time_ns for r in mine),
                     max(mine[-1].time_ns, int(end[at]))]  # fmt: skip
            runs = [mine[0].act != Act.RUN, *(r.act == Act.RUN for r in mine)]
            ran = sum(
                max(0, min(b, int(end[at])) - max(a, int(begin[at])))
                for (a, b), on in zip(pairwise(edges), runs, strict=True)
                if on
            )
            assert run[at] == ran


def test_loops_whose_requests_ask_another_number_of_times_are_odd(made: list[Any]) -> None:
    some = 0
    for of in made:
        request = of.found[:, 0]
        asked = Counter(
            int(r)
            for r, c in zip(request, of.subrequests.connects, strict=True)
            if r >= 0 and not c
        )
        many = len(of.requests)
        usual = {}
        for root in {*of.root[:many].tolist()}:
            counts = Counter(asked[r] for r in range(many) if of.root[r] == root)
            usual[root] = min(counts, key=lambda n: (-counts[n], n))
        found = of._find_odd(request)
        confused = {int(row[1]) for row in of.heals}
        for number in range(len(of.keys)):
            mine = [r for r in range(many) if of.reader[r] == number]
            odd = sum(asked[r] != usual[int(of.root[r])] for r in mine)
            unseen = number in confused and not of.followed[number] and of._hands_over[number]
            want = of.loops[number] and len(mine) >= OWNERS.few
            want = want and (odd > OWNERS.odd * len(mine) or unseen)
            assert found[number] == want
            some += want
    assert some


def test_loops_that_wake_threads_of_their_process_hand_over(made: list[Any]) -> None:
    for of in made:
        handed: Counter[int] = Counter()
        for at, row in enumerate(of.acts):
            by, to = of.thread[at], of.woken[at]
            if row.act == Act.WAKE and by >= 0 and to >= 0 and of.loops[by]:
                handed[int(by)] += bool(of.process[by] == of.process[to] and not of.serving[to])
        for number in range(len(of.keys)):
            its = int((of.reader[: len(of.requests)] == number).sum())
            want = of.loops[number] and its > 0 and handed[number] > OWNERS.odd * its
            assert of._hands_over[number] == want
