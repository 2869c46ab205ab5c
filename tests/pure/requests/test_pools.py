"""Threads of a pool that ask for a loop: units, and whose they are."""

from __future__ import annotations

import heapq
import random

import numpy as np
import pytest

from critpath.model.requests import Certainty, Rule
from critpath.requests.pools import Pooled, Units, assign_units, find_units


def serve(seed, clients, threads, requests=200, jitter=20, skip=0.0):
    """Serve over a pool, first in, first out; threads are late by some us; return all and truth.

    `skip`: the share of requests that the loop answers by itself.
    """
    rng = random.Random(seed)  # noqa: S311
    arrivals = [(rng.randint(0, 500), number) for number in range(clients)]
    heapq.heapify(arrivals)
    free = [(0, thread) for thread in range(threads)]
    since = [0] * threads
    rows, received, answered = [], [], {}
    while len(received) < requests:
        at, _ = heapq.heappop(arrivals)
        request = len(received)
        received.append(at)
        end = at + 10
        if rng.random() >= skip:
            begins, thread = heapq.heappop(free)
            asked = max(at, begins) + 5 + rng.randint(0, jitter)
            done = asked + rng.randint(500, 4000)
            rows.append((thread, since[thread], asked, done - 5, done, request))
            since[thread] = done
            heapq.heappush(free, (done, thread))
            end = done
        answered[request] = end
        heapq.heappush(arrivals, (end + rng.randint(50, 900), request))
    # The loop answers in order of what it is told, one after the other.
    now, ends = 0, [0] * requests
    for request in sorted(answered, key=answered.get):
        now = max(now, answered[request]) + 3
        ends[request] = now
    table = np.array(sorted(rows, key=lambda row: row[2]), np.int64) * 1000
    order = np.argsort(received, kind="stable")
    place = np.empty(requests, np.int64)
    place[order] = np.arange(requests)
    times = np.array(received)[order] * 1000, np.array(ends)[order] * 1000
    return Units(*table.T[:5]), *times, place[table[:, 5] // 1000]


@pytest.mark.parametrize("clients", [1, 8, 16, 32])
@pytest.mark.parametrize("seed", range(3))
def test_units_are_those_of_their_requests(clients, seed):
    units, received, answered, truth = serve(seed, clients, 8)
    owner, sure = assign_units(units, received, answered)
    assert (owner == truth).mean() >= 0.98
    certain = sure >= 0.9
    assert (owner == truth)[certain].mean() >= 0.98
    assert certain.mean() >= 0.5


def test_ends_decide_where_begins_are_out_of_order():
    units, received, answered, truth = serve(5, 16, 8, jitter=300)
    assert (assign_units(units, received, answered)[0] == truth).mean() >= 0.95


def test_requests_without_a_unit_have_none():
    units, received, answered, truth = serve(7, 12, 4, skip=0.3)
    owner, _ = assign_units(units, received, answered)
    assert (owner == truth).mean() >= 0.9
    assert len(set(owner.tolist())) == len(owner)


def test_no_unit_begins_before_its_request_or_ends_after_it():
    units, received, answered, _ = serve(9, 32, 8)
    owner, _ = assign_units(units, received, answered)
    given = owner >= 0
    assert (units.asked[given] >= received[owner[given]]).all()
    assert (units.result[given] <= answered[owner[given]]).all()


def test_where_answers_come_first_only_begins_count():
    units, received, _, truth = serve(11, 8, 4)
    owner, _ = assign_units(units, received, received + 1)
    assert (owner == truth).mean() >= 0.9


class _Told:
    """Helpers of which it is known when they told the loop."""

    def __init__(self, told):
        self._told = told

    def hand_backs(self, loop, threads):
        assert loop == 1
        return {thread: self._told[thread] for thread in threads if thread in self._told}


def test_what_is_asked_until_the_loop_is_told_is_one_unit():
    asks = {
        7: (np.array([10, 20, 50, 90]), np.array([15, 30, 60, 95])),
        8: (np.array([40]), np.array([45])),
    }
    told = {7: [(35, 33), (65, 58)]}  # 8 tells the loop nothing
    units, groups = find_units(_Told(told), 1, asks)
    assert units.asked.tolist() == [10, 50, 90]
    assert units.since.tolist() == [0, 35, 65]
    assert units.result.tolist() == [30, 60, 95]
    assert units.done.tolist() == [33, 60, 95]  # none before its last result
    assert [group.tolist() for group in groups] == [[0, 1], [2], [3]]


def test_threads_that_are_made_for_one_request_are_no_pool():
    units = Units(*np.array([[7, 0, 10, 12, 13], [8, 0, 20, 22, 23]]).T)
    rows = {7: np.array([0]), 8: np.array([1])}
    times = np.array([[1, 2, 30], [11, 12, 30]])
    pooled = Pooled(2)
    pooled.add(units, [np.array([0]), np.array([0])], rows, np.array([4, 5]), times)
    assert pooled.owner.tolist() == [-1, -1]
    assert not len(pooled.slices())


def test_slices_of_pools_lie_within_their_requests():
    units, received, answered, _ = serve(3, 8, 4)
    times = np.column_stack([received - 1000, received, answered])
    every = {t: np.flatnonzero(units.thread == t) for t in set(units.thread.tolist())}
    place = np.empty(len(units), np.int64)
    for rows in every.values():
        place[rows] = np.arange(len(rows))
    pooled = Pooled(len(units))
    groups = [np.array([at]) for at in place.tolist()]
    pooled.add(units, groups, every, np.arange(len(received)), times)
    slices = pooled.slices()
    assert len(slices) >= 0.95 * len(units)
    assert (slices[:, 1] >= times[slices[:, 3], 1]).all()
    assert (slices[:, 2] <= times[slices[:, 3], 2]).all()
    assert (slices[:, 2] > slices[:, 1]).all()
    assert set(slices[:, 5].tolist()) == {Rule.ASSIGNED}
    assert set(slices[:, 6].tolist()) <= {Certainty.LIKELY, Certainty.DOUBTFUL}


def test_what_is_called_sure_is_right_where_both_ends_are_late():
    """A fifth is wrong in all, hardly any of what is called 0.9 and more."""
    right, probable = [], []
    for seed in range(6):
        units, received, answered, truth = serve(seed, 16, 8, requests=600, jitter=400)
        late = np.random.default_rng(seed).exponential(4e5, len(answered)).astype(np.int64)
        owner, sure = assign_units(units, received, answered + late)
        right.append(owner == truth)
        probable.append(sure)
    right, probable = np.concatenate(right), np.concatenate(probable)
    assert right.mean() < 0.9
    assert right[probable >= 0.9].mean() >= 0.95
