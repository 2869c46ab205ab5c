"""The native passes that find things in columns, against plain Python that does the same."""

from __future__ import annotations

import numpy as np
import pytest

from critpath.model.requests import NONE, Act
from critpath.requests import _finding
from critpath.requests.crossings import mask_acts


def draw_acts(seed, many, threads=5, ends=4):
    rng = np.random.default_rng(seed)
    act = rng.integers(0, len(Act), many).astype(np.uint8)
    columns = [
        rng.integers(low, high, many).astype(np.int32)
        for low, high in ((-1, threads), (0, 2), (-1, ends))
    ]
    return act, *columns


@pytest.mark.parametrize("seed", range(20))
def test_rows_of_endpoints_are_those_before_and_after(seed):
    many = seed * 7
    act, _, _, endpoint = draw_acts(seed, many)
    wanted = (Act.SEND, Act.RECEIVE)
    rows = _finding.EndpointRows(act, endpoint, mask_acts(*wanted))
    asked = [(e, r) for e in range(-1, 6) for r in range(-1, many + 2)]
    of, at = np.array(asked, np.int64).T
    mine = [
        [i for i in range(many) if endpoint[i] == e and act[i] in wanted] if e >= 0 else []
        for e in range(-1, 6)
    ]
    before = [max([i for i in mine[e + 1] if i < r], default=NONE) for e, r in asked]
    after = [min([i for i in mine[e + 1] if i > r], default=NONE) for e, r in asked]
    assert rows.before(of, at).tolist() == before
    assert rows.after(of, at).tolist() == after


@pytest.mark.parametrize("seed", range(20))
def test_threads_have_numbers_in_the_order_of_their_keys(seed):
    # More threads than the table has room for at first.
    act, tid, host, _ = draw_acts(seed, 4000, threads=(3, 1 << 30)[seed % 2])
    value = np.random.default_rng(seed).integers(-1, 1 << 31, len(act))
    more = np.array([7, 3 << 32, 7], np.int64)
    woken = (act == Act.WAKE) & (value >= 0)
    keys = (host.astype(np.int64) << 32) | tid
    whom = (host.astype(np.int64) << 32) | value
    every = sorted({*keys[tid >= 0].tolist(), *whom[woken].tolist(), *more.tolist()})
    place = {key: number for number, key in enumerate(every)}
    found, who, of_woken = _finding.number_threads(act, tid, host, value, more)
    assert found.tolist() == every
    assert who.tolist() == [place[k] if t >= 0 else NONE for k, t in zip(keys, tid, strict=True)]
    assert of_woken.tolist() == [
        place[k] if is_one else NONE for k, is_one in zip(whom, woken, strict=True)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_causes_of_wakes_are_what_their_wakers_did_last(seed):
    # More threads than the table has room for at first.
    act, tid, host, endpoint = draw_acts(seed, 3000, threads=(3, 1500)[seed % 2])
    act[::3] = Act.WAKE
    serves = np.array([1, 0, 1, -1], np.int32)
    comes = (Act.ARRIVAL, Act.OPEN)
    last, expected = {}, []
    for i in range(len(act)):
        who = host[i], tid[i]
        if tid[i] < 0:
            continue
        if act[i] != Act.WAKE:
            last[who] = i
        elif who in last and act[last[who]] in comes:
            of = endpoint[last[who]]
            if of >= 0 and serves[of] == 1:
                expected.append((i, last[who]))
    columns = act, tid, host, endpoint, serves
    rows, causes = _finding.find_causes(*columns, mask_acts(*comes))
    assert list(zip(rows.tolist(), causes.tolist(), strict=True)) == expected
    assert expected or tid.max() > 100


@pytest.mark.parametrize("seed", range(40))
def test_most_of_a_stretch_is_what_its_slices_add_up_to(seed):
    rng = np.random.default_rng(seed)
    threads, none = 3, (0, NONE)[seed % 2]
    many = rng.integers(0, 30, threads)
    start = np.concatenate([[0], np.cumsum(many)]).astype(np.int64)
    edges = [np.sort(rng.integers(0, 100, 2 * n)) for n in many]
    begin, end = (np.concatenate([e[at::2] for e in edges]).astype(np.int64) for at in (0, 1))
    request, code = (
        rng.integers(least, most, len(begin)).astype(np.int32)
        for least, most in ((-1, 4), (none, 5))
    )
    waits = rng.integers(0, threads, 60)
    low = rng.integers(0, 90, 60)
    high, own = low + rng.integers(1, 40, 60), rng.integers(-2, 4, 60)
    found, spent = _finding.find_most(
        *(waits, low, high, own, start, begin, end, request, code, 6, none)
    )
    for i, thread in enumerate(waits.tolist()):
        sums: dict[int, int] = {}
        for k in range(start[thread], start[thread + 1]):
            if end[k] > low[i] and begin[k] < high[i] and request[k] != own[i] and code[k] != none:
                part = min(end[k], high[i]) - max(begin[k], low[i])
                sums[int(code[k])] = sums.get(int(code[k]), 0) + int(part)
        time, most = max(((time, of) for of, time in sums.items()), default=(0, none))
        assert (found[i], spent[i]) == (most, time), i
