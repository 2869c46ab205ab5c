"""Answers in another order: whose pieces are mixed, and whose are only gathered differently."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from critpath.model.requests import Act, Activity
from critpath.requests.turns import find_reordered

HEAD, BODY = 23, 9


def make_turns(answers: Sequence[Sequence[int]]) -> tuple[Activity, tuple[np.ndarray, ...]]:
    """Return a connection's turns that send these pieces, and their columns."""
    times, values, columns = [], [], []
    for turn, pieces in enumerate(answers):
        sent = [1000 * turn + place for place in range(len(pieces))]
        times += sent
        values += pieces
        columns.append((0, sent[0], sent[-1], 168, sum(pieces)))
    many = len(times)
    activity = Activity(
        time_ns=np.array(times, np.int64),
        act=np.full(many, Act.SEND, np.uint8),
        tid=np.ones(many, np.int32),
        host=np.zeros(many, np.int32),
        endpoint=np.zeros(many, np.int32),
        value=np.array(values, np.int64),
    )
    return activity, tuple(np.array(column, np.int64) for column in zip(*columns, strict=True))


def find(answers: Sequence[Sequence[int]]) -> np.ndarray:
    activity, (endpoint, answered, end, got, sent) = make_turns(answers)
    service = np.zeros(len(answers), np.int64)
    return find_reordered(activity, endpoint, answered, end, (got, sent), service)


def mix(drawn: np.random.Generator, gather: bool) -> list[int]:
    """Return the pieces of 8 answers: rounds with some heads, then their bodies."""
    pieces, left = [], 8
    while left:
        some = int(drawn.integers(1, left + 1))
        left -= some
        pieces += [some * HEAD, some * BODY] if gather else [HEAD] * some + [BODY] * some
    return pieces


def gather(drawn: np.random.Generator, pieces: Sequence[int]) -> list[int]:
    """Return pieces of which some go with the one before."""
    sent: list[int] = []
    for piece in pieces:
        if sent and drawn.random() < 0.5:
            sent[-1] += piece
        else:
            sent.append(piece)
    return sent


@pytest.mark.parametrize("gathered", [False, True])
def test_mixed_answers_come_in_other_orders(gathered: bool) -> None:
    drawn = np.random.default_rng(1)
    assert find([mix(drawn, gathered) for _ in range(200)]).mean() > 0.05


@pytest.mark.parametrize(
    "pieces", [[17] * 8, [9] * 20, [120, 7, 7, 7, 300], [5, 8, 13, 21, 34, 55], [200, 40, 200, 40]]
)
def test_one_answer_is_gathered_differently_but_in_order(pieces: list[int]) -> None:
    drawn = np.random.default_rng(2)
    answers = [gather(drawn, pieces) for _ in range(200)]
    if len(set(pieces)) < len(pieces):  # some do come in another order
        kinds = {(tuple(sorted(one)), tuple(one)) for one in answers}
        assert len({kind for kind, _ in kinds}) < len(kinds)
    assert not find(answers).any()


def test_what_differs_in_size_or_is_large_or_has_few_pieces_tells_nothing() -> None:
    drawn = np.random.default_rng(3)
    draw: Sequence[Callable[[], list[int]]] = (
        lambda: [int(drawn.integers(20, 90)) for _ in range(4)],
        lambda: drawn.permutation([400, 410, 420, 430]).tolist(),
        lambda: drawn.permutation([23, 9]).tolist(),
        lambda: [HEAD + BODY],
    )
    for one in draw:
        assert not find([one() for _ in range(100)]).any()


def test_no_turns() -> None:
    activity, _ = make_turns([[1, 2, 3]])
    none = np.zeros(0, np.int64)
    assert not len(find_reordered(activity, none, none, none, (none, none), none))
