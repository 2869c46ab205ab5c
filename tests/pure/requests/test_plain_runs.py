"""Passes over tokens: how even a run is, what it teaches, and what a process comes to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from critpath.model.requests import Certainty
from critpath.requests import assign
from critpath.requests.assign import Process, What, _Run
from critpath.requests.transitions import ANSWER, END
from critpath.schema.parameters.requests import TOKENS, TRANSITIONS
from critpath.schema.parameters.shared import NORMAL

HERE = Path(__file__).resolve().parent
NOTHING = np.zeros(0, np.int64)
WAYS = ((7, 0, END), (7, 0, 1, END), (7, 2, END), (8, 0, END), (8, END))


def make_run(owner: list[int], way: list[int], waits: list[int] | None = None) -> _Run:
    sure = np.linspace(0.2, 1.0, len(owner))
    columns = np.array(owner, np.int32), sure, WAYS, np.array(way, np.int64)
    return _Run(*columns, 0, np.array(waits or [], np.int64))


@pytest.mark.parametrize("seed", range(30))
def test_a_run_is_as_even_as_its_requests_are_usual(seed: int) -> None:
    """Usual is what a fifth of the most frequent way of those that begin alike has."""
    rng = np.random.default_rng(seed)
    way = rng.choice(len(WAYS), seed, p=[0.5, 0.25, 0.05, 0.1, 0.1]).tolist()
    owner = rng.integers(-1, 3, 12).tolist()
    run = make_run(owner, way)
    times = Counter(way)
    most = {root: max(times[n] for n, of in enumerate(WAYS) if of[0] == root) for root in (7, 8)}
    usual = [5 * times[n] >= most[of[0]] for n, of in enumerate(WAYS)]
    assert run.times.tolist() == [times[n] for n in range(len(WAYS))]
    assert run.usual.tolist() == usual
    if not way:
        assert run.even == 0
        return
    more = sum(usual) - len({of[0] for n, of in enumerate(WAYS) if usual[n]})
    share = sum(usual[n] for n in way) / (len(way) + owner.count(-1))
    assert run.even == pytest.approx(share - TOKENS.way * more)


def test_delays_are_medians_of_logarithms() -> None:
    rng = np.random.default_rng(1)
    rows = [
        (int(b), int(k), int(ns)) for b, k, ns in rng.integers([-2, 0, 10], [2, 3, 9999], (60, 3))
    ]
    tokens = SimpleNamespace(find_delays=lambda *_: np.array(rows))
    found = assign._learn_delays(tokens, make_run([0], [0]))
    want = {}
    for pair in {row[:2] for row in rows}:
        logs = [np.log(max(ns, 1000)) for *of, ns in rows if tuple(of) == pair]
        middle = np.median(logs)
        spread = np.median([abs(one - middle) for one in logs]) * NORMAL.per_mad
        want[pair] = pytest.approx((middle, max(spread, TOKENS.least_spread)))
    assert found == want


@pytest.mark.parametrize("later", [True, False])
@pytest.mark.parametrize("twice", [True, False])
def test_how_probable_what_a_run_found_is(later: bool, twice: bool) -> None:
    """Half as much as the run is even, where a request has no usual history; known is known."""
    owner = [0, 1, 5, -1, 0, 2]
    way = [0, 0, 2, 0, 0, 0, *[0] * 12]  # the third's is a rarity
    run = make_run(owner, way)
    if twice:  # of a way that asks one kind twice, where it was mixed up is not seen
        run = _Run(run.owner, run.sure, ((7, 0, 0, END), *WAYS[1:]), run.way, 0, NOTHING)
    process = SimpleNamespace(asked=np.arange(10, 16), requests=np.arange(100, 118))
    attribution = np.full(16, Certainty.DOUBTFUL)
    attribution[11] = Certainty.CERTAIN
    pooled = np.zeros(16, np.bool_)
    pooled[12] = True
    table = SimpleNamespace(subrequests=SimpleNamespace(attribution=attribution), pooled=pooled)
    rows, who, sure = assign._judge(table, process, run, 0.8, later=later)
    kept = [at for at in range(6) if at != 2 and (later or at != 1)]
    assert rows.tolist() == [10 + at for at in kept]
    assert who.tolist() == [100 + owner[at] if owner[at] >= 0 else -1 for at in kept]
    for at, found in zip(kept, sure.tolist(), strict=True):
        want = run.sure[at] if owner[at] >= 0 else 0.0
        want *= 0.4 if owner[at] == 2 else 1.0
        assert found == pytest.approx(min(want, TOKENS.alike_asks) if twice else want)


def test_what_is_asked_alone_is_learned_where_it_was_seen_often() -> None:
    def learn(*nodes: int) -> Any:
        tokens = SimpleNamespace(run_alone=lambda: np.array(nodes, np.int64), spell=lambda n: (n,))
        ways, times = assign._learn_alone(tokens)
        return list(ways), times.tolist()

    seen = TRANSITIONS.seen
    assert learn(*[3] * seen) == ([(3,)], [seen])
    assert learn(*[3] * (seen - 1)) == ([], [])
    assert learn() == ([], [])
    # Not what is seldom beside the most frequent.
    many = 2 * seen
    assert learn(*[3] * many, *[4] * 2, 5) == ([(3,), (4,)], [many, 2])


def draw_process(seed: int) -> tuple[Process, list[int]]:
    """Return a loop whose requests ask 0, 1 and 0 or 2, and whose each is."""
    rng = np.random.default_rng(seed)
    events, asks, truth = [], [], []
    requests, gap = 40, (120, 60, 30)[seed % 3]
    for row in range(requests):
        now = gap * row + int(rng.integers(0, 10))
        events.append((now, What.RECEIVE, 0, row))
        answer = (3, 3, 1)[seed // 3 % 3]
        for number, kind in enumerate((0, 1, 2 if row % 4 else 0)):
            if number == answer:
                events.append((now, What.ANSWERED, 0, row))
            now += int(rng.integers(1, 4))
            known = rng.random() < 0.2
            events.append((now, What.ASK, 0, len(asks)))
            now += 20 + int(rng.integers(0, 40 if seed % 2 else 4))
            events.append((now, What.RESULT, 0, len(asks)))
            asks.append((kind, int(rng.integers(0, 3)), row if known else -1, 2 * known))
            truth.append(row)
        if answer == 3:
            events.append((now + 1, What.ANSWERED, 0, row))
    events.sort()
    time, what, thread, row = (np.array(c, np.int64) for c in zip(*events, strict=True))
    columns = what.astype(np.uint8), thread.astype(np.int32), row.astype(np.int32)
    every = np.arange(requests), np.arange(len(asks))
    root = np.full(requests, 3, np.int32)
    return Process(time, *columns, root, np.array(asks, np.int32), *every), truth


def follow(seed: int, elsewhere: Any = ()) -> tuple[Any, list[int], Process]:
    process, truth = draw_process(seed)
    certain = (process.asks[:, 3] & 2) > 0
    attribution = np.where(certain, Certainty.CERTAIN, Certainty.DOUBTFUL)
    table = SimpleNamespace(
        process=lambda _: process, kinds=3, elsewhere=elsewhere,
        pooled=np.zeros(len(truth), np.bool_), subrequests=SimpleNamespace(attribution=attribution),
    )  # fmt: skip
    return assign._follow(table, 1), truth, process


def test_what_processes_come_to(golden: Any) -> None:
    lines, right, every = [], 0, 0
    for seed in range(18):
        found, truth, _ = follow(seed)
        if found is None:
            lines.append(f"{seed} by the rules")
            continue
        rows, owner, sure = found
        right += sum(truth[row] == of for row, of in zip(rows, owner, strict=True))
        every += len(rows)
        told = [f"{row}:{of}:{p:.3f}" for row, of, p in zip(rows, owner, sure, strict=True)]
        lines.append(f"{seed} {' '.join(told)}")
    assert right > 0.8 * every
    golden(HERE / "snapshots" / "wild_tokens.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_was_known_before_is_tried_first(seed: int) -> None:
    known = [[3, 0, 1, 2, ANSWER, END]] * 3 + [[3, 0, 1, 0, ANSWER, END]]
    found, truth, process = follow(seed, known)
    assert found is not None
    rows, owner, _ = found
    sure = (process.asks[:, 3] & 2) > 0
    assert not sure[rows].any()
    alone, *_ = follow(seed)
    better = np.mean([truth[row] == of for row, of in zip(rows, owner, strict=True)])
    assert better >= np.mean([truth[row] == of for row, of in zip(*alone[:2], strict=True)]) - 0.05


def test_guesses_come_from_what_is_known_first_then_from_orders() -> None:
    process, _ = draw_process(0)
    tokens = assign.make_tokens(process)
    owner, nodes = tokens.run_by_rules()
    ruled = _Run(owner, np.ones(len(owner)), *assign._spell(tokens, nodes), 0, NOTHING)
    for later in (True, False):
        for elsewhere in ((), [[3, 2, END]] * 9):
            table = SimpleNamespace(kinds=3, elsewhere=elsewhere)
            seeds = list(assign._seeds(table, process, tokens, ruled, later=later))
            if elsewhere:
                assert seeds[0][0].may((3,), 2)
                assert not seeds[0][0].may((3,), 0)
            orders = list(assign._orders(process))
            assert orders
            guesses = len(orders) * (2 if later else 1)
            first = len(seeds) - guesses
            assert 1 <= first <= 3
            assert [several for _, several in seeds[:first]] == [False] * first
            several = [bool(share) for _, share in orders for _ in range(2 if later else 1)]
            assert [each for _, each in seeds[first:]] == several
            order, share = orders[0]
            guess = seeds[first][0]
            start = (3, ANSWER) if later else (3,)
            whole = [kind for kind in order if kind not in share]
            assert guess.may(start, order[0])
            assert whole
            assert guess.may((3,), ANSWER) == later
