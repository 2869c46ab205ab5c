"""The tree of all time: sums, what a test marks, and how seldom where nothing changed."""

from __future__ import annotations

import numpy as np
import pytest

from critpath.detect.flame import FlameSets, build_flame
from critpath.model import ChainTimes, State

CHAINS = ((), ("db",), ("db", "disk"), ("cache",))
LEAVES = (
    (0, State.RUN), (0, State.WAIT_CPU), (1, State.RUN), (1, State.WAIT_CPU),
    (2, State.WAIT_DISK), (3, State.RUN),
)  # fmt: skip
MEANS = np.array([500_000, 50_000, 800_000, 20_000, 300_000, 400])


def draw(rng, n):
    return np.rint(MEANS * rng.lognormal(0, 0.3, (n, len(MEANS)))).astype(np.int64)


def tree(normal, sample, labels=((), ()), *, level=0.05, directions=("more", "less")):
    sizes = len(normal), len(sample)
    none = tuple(np.zeros(n, np.int64) for n in sizes)
    times = ChainTimes(CHAINS, LEAVES, normal, sample)
    sets = FlameSets(labels, none, none)
    return build_flame(times, sets, level=level, permutations=1999, directions=directions)


def kinds(n):
    return ["a", "b", "c"] * (n // 3)


@pytest.mark.parametrize("labelled", [False, True])
def test_nodes_below_add_up_and_the_first_is_the_mean(labelled):
    rng = np.random.default_rng(1)
    normal, sample = draw(rng, 60), draw(rng, 30)
    nodes = tree(normal, sample, (kinds(60), kinds(30)) if labelled else ((), ()))
    assert nodes[0].after == pytest.approx(sample.sum(axis=1).mean())
    assert nodes[0].before == pytest.approx(normal.sum(axis=1).mean())  # the same mix
    for place, node in enumerate(nodes):
        assert node.parent < place
        below = [one for one in nodes if one.parent == place]
        for side in ("before", "after"):
            if below:
                whole = sum(getattr(one, side) for one in below)
                assert whole == pytest.approx(getattr(node, side))


def test_what_became_longer_is_marked_up_to_its_kind_and_nothing_else():
    rng = np.random.default_rng(2)
    normal, sample = draw(rng, 90), draw(rng, 90)
    sample[::3, 4] *= 4  # kind a waits for the disk in the database
    nodes = tree(normal, sample, (kinds(90), kinds(90)))
    marked = {(one.kind, one.name) for one in nodes if one.change}
    assert marked == {
        ("all", ""), ("label", "a"), ("thread", "db"), ("thread", "disk"), ("state", "WAIT_DISK"),
    }  # fmt: skip
    assert {one.change for one in nodes if one.change} == {"more"}


def test_what_became_shorter_is_marked_so():
    rng = np.random.default_rng(3)
    normal, sample = draw(rng, 60), draw(rng, 60)
    sample[:, 2] //= 3
    changes = {one.name: one.change for one in tree(normal, sample) if one.kind == "state"}
    assert changes["RUN"] in {"", "less"}
    assert any(one.change == "less" and one.role == "db" for one in tree(normal, sample))


def test_without_a_direction_nothing_is_marked():
    rng = np.random.default_rng(4)
    nodes = tree(draw(rng, 40), 3 * draw(rng, 40), directions=())
    assert not any(one.change for one in nodes)


def test_kinds_with_few_executions_are_never_marked():
    rng = np.random.default_rng(5)
    labels = ["a"] * 40 + ["b"] * 4
    nodes = tree(draw(rng, 44), 5 * draw(rng, 44), (labels, labels))
    few = next(place for place, one in enumerate(nodes) if one.name == "b")
    assert not nodes[few].change
    assert not any(one.change for one in nodes if one.parent == few)


@pytest.mark.deep
def test_of_like_sets_few_are_marked():
    rng = np.random.default_rng(6)
    rounds = 60
    marked = sum(
        any(one.change for one in tree(draw(rng, 24), draw(rng, 24), (kinds(24), kinds(24))))
        for _ in range(rounds)
    )
    assert marked <= 9  # 5 % of 60 is 3; more than 9 happens in 1 of 500 runs of this test


def drifting(rng, change):
    """Return sets in 30 blocks of which half were disturbed, and how many nodes are marked."""
    blocks = np.repeat(np.arange(30), 2)
    disturbed = 1 + 2.0 * (rng.random(30) < 0.5)[blocks, None]
    normal = np.rint(draw(rng, 60) * disturbed).astype(np.int64)
    sample = np.rint(draw(rng, 60) * disturbed * change).astype(np.int64)
    none = np.zeros(60, np.int64)
    found = []
    for known in (None, (blocks, blocks)):
        nodes = build_flame(
            ChainTimes(CHAINS, LEAVES, normal, sample),
            FlameSets(((), ()), (none, none), (none, none), blocks=known),
            level=0.05, permutations=999, directions=("more", "less"),
        )  # fmt: skip
        found.append(sum(bool(one.change) for one in nodes))
    return found


def test_within_blocks_what_a_machine_did_to_both_hides_nothing_and_marks_nothing():
    rng = np.random.default_rng(11)
    plain, within = drifting(rng, np.array([1, 1, 1.25, 1, 1, 1]))
    assert plain == 0
    assert within > 0
    marked = [drifting(rng, 1.0)[1] > 0 for _ in range(30)]
    assert sum(marked) <= 5  # 1.5 are due at 5 %
