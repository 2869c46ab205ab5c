"""Strangers who had the CPUs explain a slowdown where work did not change, and only there."""

from __future__ import annotations

import numpy as np
import pytest

from critpath.detect.coarse import detect
from critpath.detect.machine import find_signs
from critpath.detect.verdict import is_alarm, is_only_waiting
from critpath.detect.weather import Sides, Strangers, find_weather
from critpath.documents.base import change
from critpath.model import State, Symbol, VectorTable
from critpath.model.details import Detail, Kin

SYMBOLS = (
    *(Symbol(State.RUN), Symbol(State.RUN, "server"), Symbol(State.WAIT_CPU)),
    *(Symbol(State.WAIT_CPU, "server"), Symbol(State.WAIT_TIMER)),
)


def world(seed, *, runs=4e6, serves=2e6, each=0.5, crowd=0.1, sleeps=1e6, n=40):
    """Return executions, and the same without what strangers had: waits for each ns of work."""
    rng = np.random.default_rng(seed)
    work = np.array([runs, serves]) * rng.lognormal(0, 0.15, (n, 2))
    taken = work * np.asarray(each).reshape(-1, 1) * rng.exponential(1, (n, 2))
    crowded = work * crowd * rng.exponential(1, (n, 2))
    slept = sleeps * rng.lognormal(0, 0.02, (n, 1))
    tables = [
        VectorTable(
            SYMBOLS,
            np.ones((n, 5), np.int64),
            np.rint(np.hstack([work, crowded + strangers, slept])).astype(np.int64),
        )
        for strangers in (taken, 0 * taken)
    ]
    return tables[0], tables[1]


def look(before, after, *, labels=None, floor=0.05):
    sides = Sides(
        *(before[0], after[0], (before[1], after[1])),
        labels or (("",) * len(before[0]), ("",) * len(after[0])),
    )
    return find_weather(sides, floor)


@pytest.mark.parametrize("pace", [1.0, 1.3])
@pytest.mark.parametrize(("one", "other"), [(0.0, 1.0), (0.5, 2.0), (3.0, 9.0)])
def test_a_neighbour_explains_what_it_took_though_it_cools_caches_too(one, other, pace):
    slower = world(2, each=other, runs=4e6 * pace, serves=2e6 * pace)
    found = look(world(1, each=one), slower)
    assert found is not None
    assert found.kinds == []
    assert found.explains > 0.5


@pytest.mark.parametrize(
    "change",
    [
        {"runs": 27e6, "each": 3.2},  # computes 6.7 times as long, and waits with that
        {"serves": 30e6},
        {"sleeps": 9e6, "each": 3.1},
        {"crowd": 3.0},  # its own threads have the cpus
        {},
    ],
)
def test_what_the_program_did_is_no_strangers_doing(change):
    assert look(world(1, each=3.0), world(2, **{"each": 3.0, **change})) is None


def test_one_kind_that_a_neighbour_hits_is_named_and_the_others_are_not():
    kinds = ("a",) * 20 + ("b",) * 20
    each = np.repeat([0.3, 0.3], 20), np.repeat([4.0, 0.25], 20)
    before, after = (world(seed, each=of) for seed, of in zip((1, 2), each, strict=True))
    found = look(before, after, labels=(kinds, kinds))
    assert found.kinds == ["a"]


def test_worlds_of_both_are_told_by_the_larger_share():
    """Of 300 worlds in which work and neighbours change, by what each is due to exactly."""
    rng = np.random.default_rng(11)
    wrong = told = 0
    for seed in range(300):
        grown, more = rng.choice([1.0, 1.0, 1.2, 3.0, 6.0]), rng.choice([1.0, 1.0, 2.0, 6.0])
        before = world(2 * seed, each=0.7)
        after = world(2 * seed + 1, each=0.7 * more, runs=4e6 * grown)
        found = look(before, after)
        # Exactly: work and its waits as long as before, against waits for each ns of it.
        by_work = 4e6 * (grown - 1) * (1 + 0.7)
        by_strangers = 0.7 * (more - 1) * (4e6 * grown + 2e6)
        told += found is not None
        # A fifth longer is what neighbours make of caches; its waits are theirs.
        wrong += found is not None and by_work > 2 * by_strangers and grown > 1.2
        wrong += found is None and by_strangers > 6e6 > 3 * by_work
    assert told > 60
    assert wrong <= 3


def test_who_is_of_the_program_is_told_by_kin_else_by_names():
    strangers = Strangers(frozenset({"shop"}), frozenset({"redis-server"}))
    assert strangers.has(Detail(peer="hog"))
    assert not strangers.has(Detail(peer="shop"))
    assert strangers.has(Detail(peer="shop", kin=Kin.NAMESAKE))
    assert not strangers.has(Detail(peer="gzip", kin=Kin.CHILD))
    assert not strangers.has(Detail(peer="redis-server", kin=Kin.STRANGER))
    assert not strangers.has(Detail(why="idle"))
    assert not strangers.has(Detail())


def test_a_change_of_the_program_is_seen_beside_a_neighbour_who_came_and_a_pace_is_not():
    """Held against what was added without strangers: in 100 worlds each, no sign and all signs."""
    rng = np.random.default_rng(4)
    zeros, every = np.zeros(40, np.int64), np.ones(5, np.bool_)
    found = {1.0: 0, 3.0: 0}
    for seed in range(100):
        pace = rng.uniform(0.8, 1.4)
        for grown, count in found.items():
            before = world(2 * seed, each=0.5)
            after = world(2 * seed + 1, each=9, runs=4e6 * pace, serves=2e6 * pace * grown)
            floor = 0.05 * before[0].total.mean() / before[1].total.mean()
            own = before[1], after[1]
            signs = find_signs(*own, (zeros, zeros), ("",), every, floor)
            found[grown] = count + bool(signs)
            assert not find_signs(before[0], after[0], (zeros, zeros), ("",), every, 0.05) or signs
    assert found == {1.0: 0, 3.0: 100}


@pytest.mark.parametrize(
    ("after", "waits"),
    [
        ({"each": 9.0}, True),  # a hog comes with every run of one of two sets in turns
        ({"each": 9.0, "runs": 12e6}, False),  # and so does longer work
        ({"each": 9.0, "sleeps": 9e6}, False),
        ({"runs": 12e6}, False),
        ({"crowd": 9.0}, False),  # its own threads have the cpus
    ],
)
def test_in_turns_only_waits_behind_strangers_are_no_change_of_the_program(after, waits):
    sets = world(1), world(2, **after)
    found = detect(sets[0][0], sets[1][0], own=(sets[0][1], sets[1][1]))
    assert found.flagged
    by_strangers = is_only_waiting(found) and look(*sets) is not None
    assert by_strangers == waits
    said = change(found, weather=look(*sets) if waits else None)
    assert is_alarm(said, None) != waits
