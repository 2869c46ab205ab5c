"""Loops that hand requests over to helpers and share connections, against one that does it."""

from __future__ import annotations

import heapq
import random
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.model.requests import Act, Activity
from critpath.requests.rounds import Helpers, Rounds, Step, follow_ends, try_orders


class Loop:
    """An event loop, its pool of connections and one helper, one callback after another."""

    def __init__(self, seed: int, hands: tuple[bool, ...], clients: int, size: int) -> None:
        self.random, self.hands, self.free = random.Random(seed), hands, size  # noqa: S311
        self.now, self.rows = 0, []
        self.owner: dict[int, int] = {}
        self.ready: deque[tuple[str, int]] = deque()
        self.waiting: deque[int] = deque()
        self.helper_free = 0
        self.done: dict[int, int] = {}
        self.socket: list[tuple[int, str, int]] = []  # arrival, what, whose
        self.helped: deque[tuple[int, int]] = deque()
        self.gives: set[int] = set()
        self.left, self.requests = 20 * clients, 0
        for _ in range(clients):
            self.ask_anew()

    def ask_anew(self) -> None:
        if self.left:
            self.left -= 1
            row, self.requests = self.requests, self.requests + 1
            at = self.now + self.random.randint(1, 3000)
            heapq.heappush(self.socket, (at, "request", row))

    def tick(self, most: int = 30) -> int:
        self.now += self.random.randint(1, most)
        while self.helped and self.helped[0][0] <= self.now:
            self.ready.append(("back", self.helped.popleft()[1]))
        return self.now

    def run(self) -> Loop:
        while self.socket or self.ready or self.helped:
            if not self.ready:
                first = [*self.socket[:1], *list(self.helped)[:1]]
                self.now = max(self.now, min(at for at, *_ in first))
            self.tick()
            seen = []
            while self.socket and self.socket[0][0] <= self.now:
                seen.append(heapq.heappop(self.socket))
            turns = [*self.ready]
            self.ready.clear()
            for what, row in turns:
                self.tick()
                if what == "back":
                    self.done[row] += 1
                    self.ready.append(("go on", row))
                else:
                    self.go_on(row)
            for arrived, what, row in seen:
                self.receive(arrived, what, row)
        self.rows.sort()
        return self

    def receive(self, arrived: int, what: str, row: int) -> None:
        step = Step.RECEIVE if what == "request" else Step.RESULT
        self.rows.append((self.tick(), step, row, arrived))
        self.rows.append((self.now, Step.BECOME_READY, row if what == "request" else ~row, 0))
        of = row if what == "request" else self.owner[row]
        self.done.setdefault(of, 0)
        self.ready.append(("go on", of))
        if what != "request":
            self.gives.add(of)

    def go_on(self, row: int) -> None:
        if row in self.gives:
            self.gives.discard(row)
            self.free += 1
            if self.waiting:
                self.ready.append(("go on", self.waiting.popleft()))
        done = self.done[row]
        if done == len(self.hands):
            self.rows.append((self.tick(), Step.ANSWER, row, 0))
            self.ask_anew()
        elif self.hands[done]:
            self.helper_free = max(self.helper_free, self.now) + self.random.randint(1, 300)
            self.helped.append((self.helper_free, row))
            self.rows.append((self.helper_free, Step.HAND_BACK, 0, 0))
        elif self.free:
            self.free -= 1
            sub = len(self.owner)
            self.owner[sub] = row
            self.done[row] += 1
            self.rows.append((self.tick(), Step.ASK, sub, 0))
            at = self.now + self.random.randint(1, 500)
            heapq.heappush(self.socket, (at, "result", sub))
        else:
            self.waiting.append(row)


ORDERS = st.sampled_from([(False, True, False), (True, False), (False, True), (False, False, True)])


def share(loop: Loop, found: Rounds) -> float:
    right = sum(found.owner.get(sub) == row for sub, row in loop.owner.items())
    return right / len(loop.owner)


@given(st.integers(0, 10**6), ORDERS, st.integers(1, 5))
def test_alone_everything_is_right(seed: int, hands: tuple[bool, ...], size: int) -> None:
    """One client: nothing may be contradicted."""
    loop = Loop(seed, hands, 1, size).run()
    found = Rounds(hands, size).follow(loop.rows)
    assert found.owner == loop.owner
    assert not found.broken


@given(st.integers(0, 10**6), ORDERS, st.integers(2, 4), st.integers(4, 20))
def test_most_are_right(seed: int, hands: tuple[bool, ...], clients: int, size: int) -> None:
    """Where rounds begin that nobody asked in is not seen; everything else is."""
    loop = Loop(seed, hands, clients, size).run()
    assert share(loop, Rounds(hands, size).follow(loop.rows)) >= 0.9


@pytest.mark.parametrize("hands", [(False, True, False), (True, False), (False, False, True)])
def test_the_order_is_found(hands: tuple[bool, ...]) -> None:
    """What requests do, and in which order, shows in what contradicts it."""
    loop = Loop(7, hands, 3, 4).run()
    found = try_orders(loop.rows, 4)
    assert found is not None
    assert found.hands == hands
    assert share(loop, found) >= 0.95


def test_requests_that_differ_are_not_followed() -> None:
    """Some hand over and some do not: no order of all of them says who asks."""
    rows = Loop(7, (True, False), 3, 4).run().rows
    backs = [row for row in rows if row[1] == Step.HAND_BACK]
    assert try_orders([row for row in rows if row not in backs[::3]], 4) is None


@given(st.integers(0, 10**6), st.integers(1, 4))
def test_with_sleeps_both_ends_tell(seed: int, clients: int) -> None:
    """Nobody sees who sleeps how long; who was received first and who is answered next is seen."""
    loop = Loop(seed, (False, True, False), clients, 20)
    loop.run()
    seen = [row for row in loop.rows if row[1] not in {Step.HAND_BACK, Step.BECOME_READY}]
    owner = follow_ends(seen)
    assert owner is not None
    right = sum(owner.get(sub) == row for sub, row in loop.owner.items())
    assert right >= (0.7 if clients > 1 else 1) * len(loop.owner)


def test_both_ends_say_nothing_of_other_numbers() -> None:
    """What asks once or three times has no first and last that are all."""
    assert follow_ends(Loop(3, (True, False), 3, 20).run().rows) is None


def test_what_requests_leave_behind_is_forgotten() -> None:
    """Half ask four times and half never: what is kept does not grow with them."""
    rows, now = [], 0
    for row in range(4000):
        rows.append((now, Step.RECEIVE, row, 0))
        for sub in range(4 * row, 4 * row + 4 * (row % 2)):
            rows += [(now + 1, Step.ASK, sub, 0), (now + 2, Step.RESULT, sub, 0)]
            now += 2
        rows.append((now + 1, Step.ANSWER, row, 0))
        now += 2
    owner = follow_ends(rows)
    assert owner is not None
    seen = sum(sub // 4 == of for sub, of in owner.items())
    assert seen >= 0.4 * len(owner)


def test_results_that_nobody_accounts_for_say_nothing() -> None:
    """One request stays, and beside it others come and go of which half ask four times."""
    rows = [(0, Step.RECEIVE, 0, 0)]
    for row in range(1, 4000):
        now = 20 * row
        rows.append((now, Step.RECEIVE, row, 0))
        for sub in range(4 * row, 4 * row + 4 * (row % 2)):
            rows += [(now + 1, Step.ASK, sub, 0), (now + 15, Step.RESULT, sub, 0)]
        rows.append((now + 10, Step.ANSWER, row, 0))
    assert follow_ends(sorted(rows)) is None


def test_threads_of_two_hosts_and_interrupts_are_told_apart() -> None:
    """A loop that sleeps for a lock goes on when a thread of its own host gives it back."""
    moves = [
        (0, Act.RECEIVE, 1, 0, 0, 9), (1, Act.SLEEP, 1, 0, -1, 0), (2, Act.RUN, 2, 0, -1, 0),
        (3, Act.ARRIVAL, 2, 1, 0, 0), (4, Act.WAKE, 2, 0, -1, 1), (5, Act.RUN, 1, 0, -1, 0),
        (10, Act.RECEIVE, 1, 0, 0, 9), (11, Act.SLEEP, 1, 0, -1, 0),
        (14, Act.WAKE, -1, 0, -1, 1), (15, Act.RUN, 1, 0, -1, 0),
    ]  # fmt: skip
    time, act, tid, host, end, value = (np.array(column) for column in zip(*moves, strict=True))
    kinds = (np.int64, np.uint8, np.int32, np.int32, np.int32, np.int64)
    columns = zip((time, act, tid, host, end, value), kinds, strict=True)
    activity = Activity(*(column.astype(kind) for column, kind in columns))
    thread = np.where(tid < 0, -1, tid + 2 * host).astype(np.int32)
    woken = np.where(act == Act.WAKE, value, -1).astype(np.int32)
    helpers = Helpers(activity, None, thread, woken)  # type: ignore[arg-type]
    assert helpers.ready_since(1) == {0: 5}
