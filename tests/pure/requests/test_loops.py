"""Whose calls are on a loop: chains that are drawn, and how sure they are."""

from __future__ import annotations

from collections import deque
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from critpath.requests import assign
from critpath.requests.loops import (
    Loop,
    States,
    _Drawn,
    _find_waiting,
    _find_waits,
    draw_owners,
    draw_states,
    find_uses,
    guess_asks,
    guess_rounds,
)
from critpath.requests.owners import find_owners
from critpath.requests.statements import Holds, find_holds, read_holds
from critpath.schema.parameters import overridden


@pytest.fixture(scope="module")
def simulate(load: Any) -> tuple[ModuleType, ModuleType]:
    return load("pure/requests/simulate.py"), load("pure/requests/drawing.py")


def answer(simulate: Any, name: str, connections: int, seed: int) -> tuple[Any, Any]:
    """Return which sub-requests of a simulated server are right, and how probable they are said."""
    simulated, drawing = simulate
    world = simulated.simulate(name, connections, 200, seed)
    arguments = simulated.arguments(world, drawing)
    found = assign.assign("queues", *arguments[:4], find_owners(*arguments), {})
    asked = found.connects == 0
    right = (found.request == world.owner) & (world.owner >= 0)
    return right[asked], found.probability[asked]


@pytest.mark.parametrize(
    ("name", "connections", "least"),
    [
        ("loop, pooled, mixed kinds", 4, 0.99),
        ("loop, pooled, mixed kinds", 16, 0.99),
        ("loop, a pool of 3, mixed kinds", 4, 0.98),
        ("loop, pooled, 3 hops in, 1 back", 16, 0.8),
        ("loop, a sleep and two services", 4, 0.99),
        ("loop, a sleep and 2 calls", 4, 0.5),
        ("loop, unequal sleeps", 16, 0.0),  # nothing tells: of next to none it is said
    ],
)
def test_what_is_likely_is_right(simulate: Any, name: str, connections: int, least: float) -> None:
    right, probable = answer(simulate, name, connections, 7)
    assert right.mean() >= least
    likely = probable >= 0.9
    assert right[likely].sum() >= 0.98 * likely.sum()
    # Nowhere is much more believed than is right; who sleeps for unequal times is the worst.
    assert probable.mean() <= right.mean() + 0.12


WAYS = ((0, 1), (1, 1, 0), (0, 0))


def full_loop(requests: int = 240, clients: int = 12, size: int = 5, seed: int = 4) -> Any:
    """Return a loop whose two pools are mostly full: who wants a connection waits for its turn.

    Requests of three kinds ask two services, one of them one twice.  And whose each call is.
    """
    rng = np.random.default_rng(seed)
    waiting = [deque[int](), deque[int]()]
    due: list[tuple[int, int, int, int]] = []  # round, connection, who, which call
    at, calls, rows, open_now = [0] * requests, [], np.zeros((requests, 5), np.int64), 0
    begun, time, number = 0, 0, 0
    used: dict[int, list[int]] = {0: [*range(size)], 1: [*range(size)]}

    def ask(who: int) -> None:
        pool = WAYS[who % 3][at[who]]
        if not used[pool]:
            waiting[pool].append(who)
            return
        end = used[pool].pop(0)
        calls.append([time, 0, 2, number, 0, pool, pool, pool, who, pool * size + end])
        lasts = int(rng.integers(1, 7))
        due.append((number + lasts, len(calls) - 1, who, end))

    while begun < requests or open_now or due:
        number += 1
        came = []
        while open_now < clients and begun < requests and rng.random() < 0.7:
            time += 1
            rows[begun] = time, 0, number, 0, begun % 3
            came.append(begun)
            begun, open_now = begun + 1, open_now + 1
        for row in sorted(of for of in due if of[0] <= number):
            due.remove(row)
            _, call, who, end = row
            time += 1
            calls[call][1], calls[call][4] = time, number
            pool = calls[call][5]
            used[pool].append(end)
            if waiting[pool]:
                came.append(waiting[pool].popleft())
            at[who] += 1
            came.append(who)
        for who in came:
            time += 1
            if at[who] < len(WAYS[who % 3]):
                ask(who)
            elif not rows[who, 1]:
                rows[who, 1], rows[who, 3], open_now = time, number, open_now - 1
    table = np.array(sorted(calls))
    owner, endpoint = table[:, 8], table[:, 9]
    calls_of = np.ascontiguousarray(table[:, :8])
    _find_waits(calls_of, endpoint)
    nobody = np.full(len(owner), -1)
    return Loop(calls_of, rows, np.arange(len(owner)), nobody, 2, 3), owner


def test_what_requests_ask_is_found_though_all_wait_for_a_connection() -> None:
    """No moment tells it: what most ask is found by what others ask, warmed again and again."""
    loop, owner = full_loop()
    states = draw_states(loop, np.full(len(owner), -1))
    right = states.owner == owner
    stated = states.judge()
    assert right.mean() > 0.75
    assert stated.mean() <= right.mean() + 0.1
    likely = stated >= 0.9
    assert right[likely].sum() >= 0.95 * likely.sum()


def test_how_probable_an_owner_is_said_to_be() -> None:
    """The more states say so and the fewer runs differ; nothing where these end too far apart."""

    def judge(share: float, apart: float = 0.0) -> float:
        return float(States(np.array([0]), np.array([share]), apart).judge()[0])

    shares = [judge(share) for share in (0.1, 0.4, 0.7, 0.95, 1.0)]
    assert shares == sorted(shares)
    assert judge(1.0) > 0.99
    assert judge(1.0, 0.15) < 0.98
    assert judge(1.0, 0.4) == 0.0
    assert States(np.array([-1]), np.zeros(1), 0.0).judge().tolist() == [0.0]


def test_the_same_is_drawn_again(simulate: Any) -> None:
    one, other = (answer(simulate, "loop, a sleep and 2 calls", 4, 3) for _ in range(2))
    assert all((a == b).all() for a, b in zip(one, other, strict=True))


def uses_of(rows: list[tuple[int, int]], opens: frozenset[int] = frozenset()) -> list[int]:
    """Return uses of messages: endpoint and kind of each, one after the other."""
    endpoint, kind = np.array(rows, np.int64).T
    begin = np.arange(len(rows)) * 100
    opened = np.isin(np.arange(len(rows)), [*opens])
    return find_uses(kind, endpoint, begin, begin + 50, opened).tolist()


def test_a_query_and_what_cleans_up_after_it_are_one_use() -> None:
    """On every connection the one follows the other; of what is asked between nothing is fixed."""
    rows = []
    for turn in range(40):
        rows += [(turn % 3, 0), (9, 5), (turn % 3, 1), (8, 5)]
    uses = uses_of(rows)
    for at in range(0, len(rows), 4):
        assert uses[at] == uses[at + 2] == at
        assert uses[at + 1] == at + 1


def test_kinds_in_any_order_are_no_use() -> None:
    rng = np.random.default_rng(5)
    rows = [(int(rng.integers(3)), int(rng.integers(2))) for _ in range(300)]
    assert uses_of(rows) == list(range(300))
    assert uses_of([(0, 4)] * 100) == list(range(100))


def test_an_opened_connection_is_used_by_who_opened_it() -> None:
    assert uses_of([(0, 0), (1, 0), (0, 0), (0, 0)], frozenset({0})) == [0, 1, 0, 3]


def drawn_loop(requests: int = 300, seed: int = 2) -> tuple[Loop, Any]:
    """Return a loop that asks two kinds 2 and 3 rounds later: 0 and then 1, or 1 twice."""
    rng = np.random.default_rng(seed)
    calls, rows, owner = [], [], []
    for number in range(requests):
        at = 4 * number + int(rng.integers(4))
        asks = (0, 1) if number % 2 else (1, 1)
        received, now = at, at
        for kind in asks:
            began = now + (2 if now == received else 3)
            now = began + int(rng.integers(1, 4))
            calls.append((began, now, kind, number))
        rows.append((received, now + 1))
    calls.sort()
    table = np.array(
        [
            (1000 * b + n % 900, 1000 * e + n % 900, 2, b, e, k, k, 0)
            for n, (b, e, k, _) in enumerate(calls)
        ]
    )
    owner = np.array([of for *_, of in calls])
    made = np.array([(1000 * a, 1000 * b + 950, a, b, 0) for a, b in rows])
    nobody = np.full(len(calls), -1)
    return Loop(table, made, np.arange(len(calls)), nobody, 2, 1), owner


def test_rounds_are_guessed_without_knowing_whose_anything_is() -> None:
    loop, _ = drawn_loop()
    guess = guess_rounds(loop)
    received, answer = 2, 2
    assert guess[received].argmax(axis=1)[:2].tolist() == [2, 2]
    assert guess[1, 1].argmax() == 3
    assert guess[1, answer].argmax() == 1
    assert np.allclose(guess[:2].sum(axis=(1, 2)), 1, atol=0.15)


def test_exchanges_make_no_state_less_probable_in_the_cold() -> None:
    """The sums that are changed by each exchange are those of the whole state."""
    loop, owner = drawn_loop(60)
    run = _Drawn(loop, 4)
    run.begin(np.random.default_rng(1).permutation(owner))
    before = run.chains.score()
    for _ in range(5):
        run.chains.sweep(1e-9, 4)
        after = run.chains.score()
        assert after >= before - 1e-6
        before = after
    taken = run.owner.copy()
    run.chains.place()
    assert (run.owner == taken).all()
    assert run.chains.score() == pytest.approx(before)


def test_who_is_sure_stays_so() -> None:
    loop, owner = drawn_loop(60)
    sure = np.where(np.arange(len(owner)) % 3 == 0, owner, -1)
    loop = Loop(loop.calls, loop.requests, loop.use, sure, loop.kinds, 1)
    found, _ = draw_owners(loop, np.full(len(owner), -1))
    assert (found[sure >= 0] == sure[sure >= 0]).all()


def test_a_long_loop_is_learned_from_its_begin() -> None:
    loop, owner = drawn_loop(400)
    with overridden("chains.learned_from", 300):
        found, probable = draw_owners(loop, np.full(len(owner), -1))
    likely = probable >= 0.9
    assert (found == owner).mean() > 0.9
    assert (found == owner)[likely].mean() > 0.98


def test_who_waits_for_a_connection_waits_for_one_of_its_pool() -> None:
    """Two of one target are taken; that one of another target is free is nothing to them."""
    rows = [(0, 100, 1), (10, 60, 2), (20, 30, 3), (60, 90, 2), (110, 120, 1)]
    calls = np.array([(*row[:2], 0, 0, 0, 7 + 2 * (row[2] == 3), 7, 0) for row in rows], np.int64)
    endpoint = np.array([of for *_, of in rows])
    _find_waits(calls, endpoint)
    assert calls[:, 7].tolist() == [0, 0, 1, 0, 0]
    assert _find_waiting(calls, endpoint, np.array([2, 1])).tolist() == [False] * 3 + [True, False]


def test_who_asks_as_soon_as_who_waits_has_waited() -> None:
    """A connection for two is given on after 3 rounds; who comes before that is sooner."""
    spans = [(10 * turn, 10 * turn + 7) for turn in range(30)] + [(299, 305), (330, 335)]
    calls = np.array([(1 + 9 * b, 9 * e, 0, b, e, 0, 0, 0) for b, e in spans], np.int64)
    _find_waits(calls, np.zeros(len(spans), np.int64))
    assert calls[:, 2].tolist() == [2] + [1] * 29 + [0, 2]


def test_who_asks_what_is_guessed_from_who_is_under_way() -> None:
    """Kinds of requests that ask each its own: one of both is under way more often."""
    rng = np.random.default_rng(3)
    begins = np.sort(rng.integers(0, 40_000, 400))
    root = rng.integers(0, 2, 400)
    requests = np.array([(b, b + 50, b, b + 50, r) for b, r in zip(begins, root, strict=True)])
    calls = np.array([(b + 9, b + 20, 2, b + 9, b + 20, r, r, 0) for b, _, _, _, r in requests])
    order = np.argsort(calls[:, 0], kind="stable")
    nobody = np.full(400, -1)
    guess = guess_asks(Loop(calls[order], requests, np.arange(400), nobody, 2, 2))
    assert np.allclose(guess, np.eye(2), atol=0.15)


BEGIN, END, RESET = Holds.BEGIN, Holds.END, Holds.RESET


@pytest.mark.parametrize(
    ("says", "first"),
    [
        # A transaction is one request's, what is before and behind it not.
        ([0, BEGIN, 0, END, 0], [0, 1, 1, 1, 4]),
        # What a pool puts back was one request's, with all its transactions.
        ([0, RESET, BEGIN, 0, END, 0, RESET, 0], [0, 0, 2, 2, 2, 2, 2, 7]),
        ([0, 0, 0], [0, 1, 2]),
    ],
)
def test_what_names_say_of_connections(says: list[int], first: list[int]) -> None:
    many = len(says)
    nothing = np.zeros(many, np.bool_)
    found = find_holds(np.zeros(many, np.int64), np.arange(many), np.array(says, np.uint8), nothing)
    assert found.tolist() == first


def test_an_opening_is_of_what_comes_first() -> None:
    says = np.array([0, 0, 0, BEGIN], np.uint8)
    opens = np.array([True, False, False, False])
    assert find_holds(np.zeros(4, np.int64), np.arange(4), says, opens).tolist() == [0, 0, 2, 3]


def test_names_that_say_something_of_a_connection() -> None:
    names = ["", "BEGIN", "begin; set", "START TRANSACTION ISOLATION", "COMMIT", "ROLLBACK"]
    names += ["ROLLBACK TO ?", "SELECT pg_advisory_unlock_all(); CLOSE ALL; …", "DISCARD ALL"]
    names += ["DISCARD", "SELECT ended", "GET /begin", "MULTI", "EXEC", "ENDS"]
    said = [Holds(int(of)).name[0] for of in read_holds(names)]
    assert "".join(said) == "NBBBEENRRENNBEN"


def test_what_is_stated_is_right_so_often(simulate: Any) -> None:
    """In each fifth of loops of several kinds; where nothing tells, nobody is named."""
    stated, right = [], []
    for seed, (clients, size) in enumerate([(12, 5), (8, 4), (8, 3), (6, 3), (6, 2)]):
        loop, owner = full_loop(clients=clients, size=size, seed=4 + seed)
        states = draw_states(loop, np.full(len(owner), -1))
        right.append(states.owner == owner)
        stated.append(states.judge())
    for name, connections, told in [
        ("loop, pooled, 3 hops in, 1 back", 16, True),
        ("loop, two helpers between 2 calls", 16, True),
        ("loop, a sleep and 2 calls", 8, False),
        ("loop, unequal sleeps", 4, False),
    ]:
        good, probable = answer(simulate, name, connections, connections + 1)
        assert (probable > 0).mean() > 0.7 if told else (probable > 0).mean() < 0.05, name
        right.append(good[probable > 0])
        stated.append(probable[probable > 0])
    good, probable = np.concatenate(right), np.concatenate(stated)
    for low in (0.5, 0.7, 0.9):
        of = (probable >= low) & (probable < low + 0.2)
        assert of.sum() >= 90
        # In none too sure, by more than chance; all in all as often right as stated.
        stated_then, right_then = probable[of].mean(), good[of].mean()
        chance = np.sqrt(stated_then * (1 - stated_then) / of.sum())
        assert stated_then <= right_then + 0.05 + 2 * chance, low
    assert abs(probable.mean() - good.mean()) < 0.03
