"""What loops that keep no order come to: who asked, and what contradicts it, in whole.

Of such histories nobody knows the truth; that what is said of them changes is to be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from critpath.requests.rounds import Pool, PoolStep, Rounds, Step, follow_ends, try_orders
from critpath.schema.parameters.requests import ROUNDS, TOKENS

HERE = Path(__file__).resolve().parent
ORDERS = ((False,), (True, False), (False, True, False), (False, False, True))


def draw_steps(seed: int, many: int = 60) -> list[tuple[int, Step, int, int]]:
    """Return steps that are possible one by one, whoever makes them."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[int, Step, int, int]] = []
    received = asked = now = 0
    unanswered: list[int] = []
    under_way: list[int] = []
    for _ in range(many):
        before = now
        now += int(rng.integers(0, 4))
        arrived = int(rng.integers(max(before - 6, 0), now + 1))
        match int(rng.integers(0, 7)):
            case 0 | 1:
                rows.append((now, Step.RECEIVE, received, arrived))
                late = int(rng.integers(0, 3)) * int(rng.integers(0, 2))
                rows.append((now + late, Step.BECOME_READY, received, 0))
                unanswered.append(received)
                received += 1
            case 2 | 3:
                rows.append((now, Step.ASK, asked, 0))
                under_way.append(asked)
                asked += 1
            case 4 if under_way:
                sub = under_way.pop(int(rng.integers(0, len(under_way))))
                rows.append((now, Step.RESULT, sub, arrived))
                rows.append((now, Step.BECOME_READY, ~sub, 0))
            case 5:
                rows.append((now, Step.HAND_BACK, 0, 0))
            case 6 if unanswered:
                # Now and then of one that was not received here.
                row = unanswered.pop(int(rng.integers(0, len(unanswered))))
                rows.append((now, Step.ANSWER, row if rng.random() < 0.9 else 99, 0))
    return sorted(rows)


def write(owner: dict[int, int], *more: object) -> str:
    """Return whose each is, in order, and what else is said."""
    told = " ".join(f"{sub}:{of}" for sub, of in sorted(owner.items()))
    return " | ".join((told, *map(str, more)))


def tell_rounds() -> Iterator[str]:
    for seed in range(60):
        hands, free = ORDERS[seed % len(ORDERS)], 1 + seed // 4 % 3
        found = Rounds(hands, free, patient=seed % 2 == 0).follow(draw_steps(seed))
        yield f"rounds {seed}: " + write(found.owner, *found.broken, sorted(found.against))


def tell_ends() -> Iterator[str]:
    for seed in range(60):
        rows, half = draw_steps(1000 + seed), 0
        receives = sum(step == Step.RECEIVE for _, step, _, _ in rows)
        # As many asks as there have to be, none twice, and their results.
        kept = {row for _, step, row, _ in rows if step == Step.ASK and row < 2 * receives}
        rows = [
            row for row in rows
            if row[1] in {Step.RECEIVE, Step.ANSWER}
            or (row[1] in {Step.ASK, Step.RESULT} and row[2] in kept)
        ]  # fmt: skip
        last = rows[-1][0]
        rows += [(last + n, Step.ASK, 500 + n, 0) for n in range(2 * receives - len(kept))]
        half = follow_ends(rows)
        yield f"ends {seed}: " + ("nothing" if half is None else write(half))


def tell_pools() -> Iterator[str]:
    for seed in range(60):
        rng = np.random.default_rng(2000 + seed)
        endpoint = rng.integers(0, 3, 100).tolist()
        pool, told = Pool(seed % 3, endpoint), []
        for time, step, row, _ in draw_steps(2000 + seed):
            match step:
                case Step.RECEIVE:
                    of = PoolStep.RECEIVE
                case Step.RESULT:
                    of = PoolStep.RESULT
                case Step.ANSWER:
                    of = PoolStep.ANSWER
                case Step.ASK:
                    of = PoolStep.OPEN if rng.random() < 0.3 else PoolStep.ASK
                case _:
                    continue
            against = pool.follow(of, row)
            if against >= 0:
                told.append((time, against))
        yield f"pool {seed}: " + write(pool.owner, *told)


@pytest.mark.parametrize("tell", [tell_rounds, tell_ends, tell_pools])
def test_what_histories_without_an_order_come_to(
    golden: Any, tell: Callable[[], Iterator[str]]
) -> None:
    name = tell.__name__.removeprefix("tell_")
    golden(HERE / "snapshots" / f"wild_{name}.txt", "\n".join(tell()) + "\n")


def test_no_more_is_followed_than_may_contradict() -> None:
    for seed in range(20):
        rows = draw_steps(seed)
        every = Rounds((False,), 2).follow(rows)
        for most in range(3):
            found = Rounds((False,), 2).follow(rows, most)
            if len(every.against) <= most:
                assert found.broken == every.broken
            else:
                assert len(found.against) > most
                assert found.broken == every.broken[: len(found.broken)]


def regular(requests: int, asks: int, hands: int) -> list[tuple[int, Step, int, int]]:
    """Return requests one after another: each asks and hands over so often."""
    rows = []
    now = sub = 0
    for row in range(requests):
        now += 100
        rows += [(now, Step.RECEIVE, row, now - 1), (now, Step.BECOME_READY, row, 0)]
        for _ in range(hands):
            now += 10
            rows.append((now, Step.HAND_BACK, 0, 0))
        for _ in range(asks):
            rows += [(now + 5, Step.ASK, sub, 0), (now + 10, Step.RESULT, sub, now + 9)]
            rows.append((now + 10, Step.BECOME_READY, ~sub, 0))
            sub, now = sub + 1, now + 10
        rows.append((now + 3, Step.ANSWER, row, 0))
    return sorted(rows)


@pytest.mark.parametrize("asks", range(4))
@pytest.mark.parametrize("hands", range(4))
def test_orders_are_tried_of_what_asks_and_hands_over(asks: int, hands: int) -> None:
    found = try_orders(regular(6, asks, hands), 1)
    if not asks or not hands:
        assert found is None
        return
    assert found is not None
    assert found.hands == (True,) * hands + (False,) * asks
    assert found.patient
    assert found.owner == {sub: sub // asks for sub in range(6 * asks)}
    assert not found.broken


def test_no_orders_are_tried_of_too_many_steps() -> None:
    for asks in range(1, 8):
        found = try_orders(regular(3, asks, 1), 1)
        assert (found is None) == (asks + 1 > TOKENS.longest)


@pytest.mark.parametrize("step", [Step.ASK, Step.HAND_BACK])
def test_a_few_requests_may_do_otherwise(step: Step) -> None:
    """Up to one in twenty: then numbers are as good as whole ones."""
    many = 50
    for more in range(5):
        rows = regular(many, 1, 1)
        last = rows[-1][0]
        rows += [(last + 1 + n, step, 1000 + n, 0) for n in range(more)]
        assert (try_orders(rows, 1) is None) == (more / many > ROUNDS.alike)
        fewer = [row for row in rows if row[1] != step or row[2] >= more or step != Step.ASK]
        if step == Step.ASK:
            del fewer[len(fewer) - more :]
            assert (try_orders(fewer, 1) is None) == (more / many > ROUNDS.alike)


def test_orders_are_tried_on_the_first_requests_and_followed_to_the_end(
    override: Callable[[str, float], None],
) -> None:
    rows = regular(30, 1, 1)
    override("rounds.tried", 7)
    found = try_orders(rows, 1)
    assert found is not None
    assert found.owner == {sub: sub for sub in range(30)}
    # Behind them most are against it: each is answered before it has asked.
    odd = [
        (time - 12, step, row, arrived) if step == Step.ANSWER and row >= 7 else
        (time, step, row, arrived) for time, step, row, arrived in rows
    ]  # fmt: skip
    found = try_orders(sorted(odd), 1)
    assert found is None or len(found.against) > 15
    override("rounds.wrong", 0.5)
    assert try_orders(sorted(odd), 1) is None


def test_both_ends_are_asked_where_each_asks_twice() -> None:
    """Up to one ask in twenty requests more or less."""
    many = 40
    for asks in (1, 2, 3):
        assert (follow_ends(regular(many, asks, 0)) is None) == (asks != 2)
    for more in range(-4, 5):
        rows = [row for row in regular(many, 2, 0) if row[1] != Step.BECOME_READY]
        if more < 0:
            rows = [row for row in rows if row[1] != Step.ASK or row[2] >= -more]
        rows += [(10**6 + n, Step.ASK, 900 + n, 0) for n in range(more)]
        assert (follow_ends(rows) is None) == (abs(more) / many > ROUNDS.alike)


def test_both_ends_of_requests_one_after_another_are_right() -> None:
    owner = follow_ends([r for r in regular(20, 2, 0) if r[1] != Step.BECOME_READY])
    assert owner == {sub: sub // 2 for sub in range(40)}
