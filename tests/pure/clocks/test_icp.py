"""The paper's clocks: the fit is the best that is allowed, and it finds what it is said to."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2] / "hosts"))

from record import write_split

from critpath.clocks.icp import _fit_below, _pair_nearest, align_either_way, align_nearest
from critpath.commands import main
from critpath.model.clocks import Crossings, HostClock

ARCHIVES = Path(__file__).parents[3] / "fixtures/hosts"


@pytest.fixture(scope="module")
def hosts_by_name(unpack):
    place = unpack(ARCHIVES / "select1-2-8.tar.xz") / "select1-2-8"
    write_split(place, 5)
    return place / "hosts"


@given(st.integers(0, 10**6), st.integers(2, 40))
def test_the_line_is_the_best_below_all_points(seed, many):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, 100, many))
    y = rng.uniform(-2, 2) * x + rng.exponential(10, many)
    slope, value = _fit_below(x, y)

    def cost(line):
        return float(((y - line[0] * x - line[1]) ** 2).sum())

    assert (slope * x + value <= y + 1e-7).all()
    # Any best line is free, or goes through one point with the best slope, or through two.
    lines = [np.polyfit(x, y, 1)]
    for p, q in zip(x, y, strict=True):
        lines.append(through(p, q, ((x - p) * (y - q)).sum() / ((x - p) ** 2).sum()))
        lines += [through(p, q, (s - q) / (r - p)) for r, s in zip(x, y, strict=True) if r > p]
    fit = [cost(line) for line in lines if (line[0] * x + line[1] <= y + 1e-9).all()]
    assert cost((slope, value)) <= min(fit) * (1 + 1e-9) + 1e-9


def through(p, q, slope):
    return slope, q - slope * p


def test_each_start_has_the_first_end_that_is_free():
    starts = np.array([0.0, 1.0, 2.0, 50e6, 60e6])
    ends = np.array([0.5, 5.0, 7.0, 9.0, 51e6])
    assert _pair_nearest(starts, ends).tolist() == [0, 1, 2, 4, -1]


@pytest.mark.parametrize(("many", "most"), [(1000, 60e3), (100, 60e3)])
def test_sparse_messages_are_found_from_some_milliseconds_off(many, most):
    """To the base delay, which one direction cannot see."""
    rng = np.random.default_rng(3)
    left = np.sort(rng.uniform(0, 60e9, many))
    there = left + 30e3 + rng.exponential(20e3, many)
    b = there - 10**15 + 30e-6 * there
    found = align_nearest(
        *(left.astype(np.int64), b.astype(np.int64), int(b[0]), int(b[-1])),
        shift=-(10**15) - 5_000_000,
    )
    at = np.linspace(0, 60e9, 100)
    own = (at - 10**15 + 30e-6 * at).astype(np.int64)
    wrong = at - own - HostClock("b", "messages", found.lines).offsets(own)
    assert np.abs(wrong).max() < most
    assert len(found.sure) == 0


def test_either_direction_tells():
    rng = np.random.default_rng(4)
    left = np.sort(rng.integers(0, 60 * 10**9, 500))
    few = Crossings(left[:20].copy(), left[:20] + 40_000)
    many = Crossings(left, left + 40_000 + rng.integers(0, 9_000, 500))
    for to, back in ((many, few), (few, many)):
        found = align_either_way(to, back, 0, 60 * 10**9)
        own = np.linspace(0, 60e9, 50).astype(np.int64)
        assert np.abs(HostClock("b", "messages", found.lines).offsets(own)).max() < 60_000


def test_nothing_to_pair_is_no_clock():
    none, some = np.zeros(0, np.int64), np.array([5, 6])
    assert align_nearest(none, some, 0, 10) is None
    assert align_nearest(some, none, 0, 10) is None
    assert align_nearest(some, some + 10**12, 0, 10, shift=0) is None


def test_the_command_takes_it_and_claims_no_bound(hosts_by_name, capsys):
    given = [str(hosts_by_name / name) for name in ("app", "web", "client")]
    code = main(["clocks", *given, "--clock-method", "icp", "--json", "-"])
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert code in {0, 3}
    assert "for comparison" in " ".join(found["warnings"])
    assert all(of["uncertainty_ns"] == [] for of in found["hosts"] if of["source"] == "messages")
    assert any(of["source"] == "messages" for of in found["hosts"])
    assert main(["clocks", *given, "--clock-method", "icp"]) == code
    assert "no bound" in capsys.readouterr().out
