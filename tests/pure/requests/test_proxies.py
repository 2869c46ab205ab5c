"""Whose calls of proxies and poolers are: where one request alone can have asked, it is certain."""

from __future__ import annotations

import random
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.model.requests import Act, Activity, Certainty
from critpath.requests.exact import Passing, pair_calls
from critpath.schema.parameters.requests import PROXIES

_ACTS = {"r": Act.RECEIVE, "z": Act.SLEEP}


def draw(text: str) -> tuple[Activity, Passing]:
    """Return what happens by a drawing: R0 is received, s0 asks, r0 its result, S0 the answer.

    z: a thread sleeps; o0: the connection of s0 is opened.  Behind a comma the thread, 0 else.
    """
    words = [word.partition(",") for word in text.split()]
    times: dict[str, list[int]] = {}
    threads: dict[str, int] = {}
    rows = []
    for time, (word, _, thread) in enumerate(words):
        times.setdefault(word, []).append(time * 10)
        threads[word] = int(thread or 0)
        if word[0] in _ACTS:
            rows.append((time * 10, _ACTS[word[0]], int(word[1:] or -1), int(thread or 0)))
    of = [word[1:] for word in times if word[0] == "R"]
    calls = [word[1:] for word in times if word[0] == "s"]
    columns = np.array(rows, np.int64).reshape(-1, 4)
    none = np.zeros(len(rows), np.int64)
    activity = Activity(
        time_ns=columns[:, 0],
        act=columns[:, 1].astype(np.uint8),
        endpoint=columns[:, 2].astype(np.int32),
        tid=columns[:, 3].astype(np.int32),
        host=none.astype(np.int32),
        value=none,
    )

    def pick(kind: str, names: list[str], place: int = 0) -> np.ndarray:
        return np.array([times[f"{kind}{name}"][place] for name in names], np.int64)

    tid = [threads[f"R{n}"] if threads[f"R{n}"] == threads[f"S{n}"] else -1 for n in of]
    passing = Passing(
        *(pick("R", of), pick("S", of), pick("S", of, -1), np.array(tid, np.int32)),
        np.array(calls, np.int32),
        np.array([threads[f"s{name}"] for name in calls], np.int32),
        pick("s", calls),
        *(pick("s", calls), pick("r", calls, -1)),
    )
    return activity, passing


def pair(text: str) -> tuple[list[int], list[int]]:
    """Return owners and certainties, in the order in which calls are made."""
    paired = pair_calls(*draw(text))
    assert paired is not None
    return paired.owner.tolist(), paired.sure.tolist()


def alone(since: int, many: int = 6) -> str:
    """Return requests that come one after the other, with a wait before each."""
    numbers = range(since, since + many)
    return " ".join(f"R{n} s{n} z r{n} S{n} z" for n in numbers)


@pytest.mark.parametrize(
    ("text", "owners"),
    [
        # Each asks as soon as it was received, whoever is answered first.
        ("R0 s0 z R1 s1 z R2 s2 z r1 S1 z r0 S0 z r2 S2", [0, 1, 2]),
        # Two wait for the only connection, and the later one gets it first: the answers tell.
        ("R0 s0 z R1 z R2 z r0 S0 s2 z r2 S2 s1 z r1 S1", [0, 2, 1]),
        # Two threads, each with its own.
        ("R0,0 R1,1 s1,1 s0,0 z,0 z,1 r0,0 S0,0 r1,1 S1,1", [1, 0]),
        # An answer that comes and goes on in two pieces, another between.
        ("R0 s0 z R1 s1 z r0 S0 z r1 S1 z r0 S0 z r1 S1", [0, 1]),
        # The proxy answers one itself.
        ("R0 s0 z R9 S9 z r0 S0 z R1 s1 z r1 S1", [0, 2]),
    ],
)
def test_where_one_alone_can_have_asked_it_is_certain(text, owners):
    assert pair(text) == (owners, [Certainty.CERTAIN] * len(owners))


def test_two_that_can_have_asked_each_other_s_are_told_by_nothing():
    owners, sure = pair(f"{alone(0)} R6 R7 s6 s7 z r7 r6 S6 S7 z {alone(8)}")
    assert sure[:6] == sure[8:] == [Certainty.CERTAIN] * 6
    assert sure[6:8] == [Certainty.DOUBTFUL] * 2
    assert sorted(owners) == [*range(14)]


def test_who_mostly_keeps_one_order_at_both_ends_keeps_it_likely():
    pairs = [
        f"R{n} R{n + 1} s{n} s{n + 1} z r{n} r{n + 1} S{n} S{n + 1} z" for n in range(0, 40, 2)
    ]
    owners, sure = pair(f"{alone(40, 20)} {' '.join(pairs)}")
    assert owners == [*range(60)]
    assert sure[20:] == [Certainty.LIKELY] * 40


@pytest.mark.parametrize(
    "text",
    [
        "R0 s0 z r0 s1 z r1 S0 z R1 s2 z r2 s3 z r3 S1",  # asks twice
        "R0 s0 S0 z r0 z R1 s1 S1 z r1",  # answers before the result
        "R0 s0 z r0 z S0 z R1 s1 z r1 z S1",  # sleeps before it answers
        # One asks twice, one waits for a timer and asks nothing: as many calls as requests.
        " ".join(
            f"R{n} s{n} R{n + 1} z r{n} s{n + 1} z r{n + 1} S{n} z S{n + 1} z"
            for n in range(0, 40, 2)
        ),
        "R0 R1 R2 R3 s0 s1 s2 s3 z r0 r1 r2 r3 S0 S1 S2 S3",  # mostly nothing is told
        "R0,0 s0,0 z,0 r0,0 S0,1 z,1 R1,1 s1,1 z,1 r1,1 S1,0",  # one receives, another answers
    ],
)
def test_what_is_no_proxy(text):
    assert pair_calls(*draw(text)) is None


def _draw_proxied(seed: int) -> str:
    """Return a drawing of a proxy with up to seven requests, in an order that can be."""
    chance = random.Random(seed)  # noqa: S311 - a drawing
    steps = {n: [f"R{n}", f"s{n}", f"r{n}"] for n in range(chance.randint(1, 7))}
    words, told = [], []
    while any(steps.values()) or told:
        ready = [n for n, left in steps.items() if left]
        if told and (not ready or chance.random() < 0.5):
            words.append(told.pop(chance.randrange(len(told))))
            continue
        words.append(steps[chance.choice(ready)].pop(0))
        if words[-1][0] == "r":
            told.append(f"S{words[-1][1:]}")
        elif not told and chance.random() < 0.5:
            words.append("z")
    return " ".join(words)


@given(st.integers(0, 1 << 32))
def test_what_is_certain_is_so_in_every_way_to_pair_all(seed):
    text = _draw_proxied(seed)
    activity, passing = draw(text)
    paired = pair_calls(activity, passing)
    sleeps = activity.time_ns[activity.act == Act.SLEEP].tolist()

    def can(request: int, call: int) -> bool:
        told, answered = passing.over[call], passing.answered[request]
        asleep = any(told < time < answered for time in sleeps)
        return passing.received[request] < passing.begin[call] and told < answered and not asleep

    calls = range(len(passing.begin))
    ways = [
        way for way in permutations(calls) if all(can(request, c) for c, request in enumerate(way))
    ]
    assert ways
    certain = [len({way[call] for way in ways}) == 1 for call in calls]
    if paired is None:
        assert np.mean(certain) < PROXIES.certain
        return
    assert [one == Certainty.CERTAIN for one in paired.sure.tolist()] == certain
    received = [word[1:] for word in text.split() if word[0] == "R"]
    for call, owner in enumerate(paired.owner.tolist()):
        if certain[call]:
            assert received[owner] == str(passing.endpoint[call])
