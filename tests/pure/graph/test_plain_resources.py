"""Parts of waits, queues of disks and members of groups, against plain twins; all is drawn."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_resources import WEB, held, path_of, workers

from critpath.graph import resources
from critpath.model import State
from critpath.model.details import Detail
from critpath.schema.parameters.replay import WAITING

SEEDS = range(30)


@pytest.mark.parametrize("seed", SEEDS)
def test_spans_that_nearly_touch_are_one(seed: int, override: Any) -> None:
    override("waiting.at_once", 3)
    rng = np.random.default_rng(seed)
    begin, end = 10, 80
    spans = []
    for _ in range(seed % 6):
        low = int(rng.integers(begin, end - 1))
        spans.append((low, int(rng.integers(low + 1, end + 1))))
    covered = {t for low, high in spans for t in range(low, high)}
    first, last = min(covered, default=end), max(covered, default=begin - 1) + 1
    if covered and first - begin <= WAITING.at_once:
        covered |= {*range(begin, first)}
    if covered and end - last <= WAITING.at_once:
        covered |= {*range(last, end)}
    times = sorted(covered)
    for one, other in pairwise(times):
        if other - one - 1 <= WAITING.at_once:
            covered |= {*range(one, other)}
    found = resources._join_spans(spans, begin, end)
    assert sorted({t for low, high in found for t in range(low, high)}) == sorted(covered)
    assert all(b[0] - a[1] > WAITING.at_once for a, b in pairwise(found))


@pytest.mark.parametrize("seed", SEEDS)
def test_who_had_a_disk_during_a_wait(seed: int) -> None:
    rng = np.random.default_rng(seed)
    many = seed
    begin = rng.integers(0, 50, many)
    requests = np.column_stack(
        [begin, begin + rng.integers(1, 20, many), rng.choice([8, 9], many),
         rng.integers(1, 5, many), rng.integers(1, 4, many)]
    ).astype(np.int64)  # fmt: skip
    queue = resources._Queue(requests, {3})
    rows = requests.tolist()
    for low in range(0, 60, 7):
        for high in (low + 1, low + 15):
            ended = [row for row in rows if low <= row[1] <= high]
            device = queue.find_awaited(low, high)
            last = max((row[1] for row in ended), default=None)
            assert (device is None) == (not ended)
            assert device is None or device in {row[2] for row in ended if row[1] == last}
            for own in (set(), {1, 2}):
                shares = {}
                for code in (1, 2):
                    mine = [
                        row for row in rows
                        if row[2] == 8 and row[4] == code and row[3] not in own
                    ]  # fmt: skip
                    busy = {t for row in mine for t in range(max(row[0], low), min(row[1], high))}
                    shares[code] = len(busy) / (high - low)
                code, share = queue.find_others(low, high, 8, own)
                most = max(shares.values())
                assert share == pytest.approx(most)
                assert code == (min(c for c, s in shares.items() if s == most) if most else 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_members_of_a_group_are_its_processes_and_what_they_created(seed: int) -> None:
    rng = np.random.default_rng(seed)
    many = 12
    rows = [
        (int(rng.integers(0, 9)), int(rng.choice([-1, 3, 5, 7])), int(rng.integers(-1, many)))
        for at in range(many)
    ]
    pids = frozenset({3, 8})
    member = {at for at, (tid, pid, _) in enumerate(rows) if pid in pids or tid in pids}
    while more := {at for at, (*_, above) in enumerate(rows) if above in member} - member:
        member |= more
    found = resources.members_of(SimpleNamespace(pids=pids), workers(*rows))
    assert found.tolist() == sorted({rows[at][0] for at in member if rows[at][0] > 0})


@pytest.mark.parametrize("seed", SEEDS)
def test_parts_of_segments_change_and_the_rest_stays(seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges = np.cumsum([0, *rng.integers(1, 9, 6)]).tolist()
    path = path_of(*((a, b, State.WAIT_CPU, WEB) for a, b in pairwise(edges))).paths
    details = [Detail(device="a"), Detail(device="b")]
    changes: dict[int, list[Any]] = {}
    for row in rng.choice(6, int(rng.integers(0, 4)), replace=False).tolist():
        low, high = int(path.begin[row]), int(path.end[row])
        cut = sorted(rng.integers(low, high + 1, 4).tolist())
        changes[row] = [
            (cut[0], cut[1], State.WAIT_DISK, details[0]),
            (cut[2], cut[3], State.RECLAIM, details[1]),
        ]  # fmt: skip
    found = resources._put_parts(path, changes)
    assert (found.begin[1:] == found.end[:-1]).all()
    assert (found.end > found.begin).all()
    assert (found.begin[0], found.end[-1]) == (path.begin[0], path.end[-1])
    assert found.start.tolist() == [0, len(found.begin)]
    for at in range(len(found.begin)):
        row = int(np.searchsorted(path.begin, found.begin[at], side="right")) - 1
        middle = int(found.begin[at] + found.end[at]) // 2
        part = [p for p in changes.get(row, ()) if p[0] <= middle < p[1]]
        detail = found.details[found.detail[at]]
        if part:
            assert (found.state[at], detail) == (part[0][2], part[0][3])
        else:
            assert (found.state[at], found.detail[at]) == (State.WAIT_CPU, path.detail[row])
        assert found.tid[at] == WEB
    assert resources._put_parts(path, {}).begin.tolist() == path.begin.tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_quota_holds_no_thread_longer_than_was_counted(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ms = 1_000_000
    rows = [
        (20 * n, 20 * n + 15, int(rng.integers(1, 3)), int(rng.integers(1, 12))) for n in range(4)
    ]
    periods = np.array([(at * ms, 7) for at in range(0, 90, 10)], np.int64)
    limit = resources._find_held(held(*rows), periods if seed % 2 else periods[:0])
    assert limit is not None
    begin = rng.integers(0, 80, 6) * ms
    waits = np.column_stack([begin, begin + rng.integers(1, 15, 6) * ms])
    found = limit.allot(waits)
    for number, spans in found.items():
        for low, high in spans:
            assert waits[number][0] <= low < high <= waits[number][1]
            ends = {at * ms for at in range(0, 90, 10)} | {int(waits[number][1])}
            ends |= {until * ms for _, until, *_ in rows}
            assert high in ends
    every = sum(high - low for spans in found.values() for low, high in spans)
    assert every <= sum(time for *_, time in rows) * ms
    assert resources._find_held(held(*[(a, b, n, 0) for a, b, n, _ in rows]), periods) is None


def test_a_wait_is_explained_to_the_ns_it_was_counted_for() -> None:
    """One thread, one wait, one row: the last of it, up to the end of what was counted."""
    for begin, end in ((0, 30), (5, 12), (12, 30), (14, 15)):
        for time in (1, 5, 40):
            limit = resources._find_held(held((0, 15, 1, time)), np.zeros((0, 2), np.int64))
            assert limit is not None
            found = limit.allot(np.array([[begin, end]]) * 1_000_000)
            over = min(end, 15)
            low = max(begin, over - time)
            want = {0: [(low * 1_000_000, over * 1_000_000)]} if over > low else {}
            assert found == want
