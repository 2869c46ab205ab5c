"""The first cause where the truth is drawn: what a recording cannot show at will."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from critpath import flow
from critpath.model import Analysis, CompareSettings, State

from .drawn_sets import draw

NORMALS, SAMPLES = 40, 12


def compare(normal: list[str], sample: list[str]) -> Analysis:
    return flow.compare(draw(normal), draw(sample), CompareSettings(permutations=999))


def jittered(rng: np.random.Generator, words: str) -> str:
    """Vary every duration by 3 %."""
    return " ".join(f"{w[0]}{float(w[1:]) * rng.normal(1, 0.03):.3f}" for w in words.split())


@pytest.mark.parametrize("late", [1500, 4000, 10_000])
def test_a_helper_that_answers_late(late):
    """It works 2 ms for each answer, normally beside the worker, on the same cpu.

    If the helper sleeps before that, the worker sleeps by then, and the same work is on
    its path as the helper's.  That is no more time; the helper's sleep is.
    """
    rng = np.random.default_rng(late)
    normal = [jittered(rng, "r1500 s20 k2000 r2000 d300 r200") for _ in range(NORMALS)]
    sample = [jittered(rng, f"r1500 s20 T{late} h2000 r2000 d300 r200") for _ in range(SAMPLES)]
    result = compare(normal, sample)
    assert result.verdict == "anomaly"
    cause = result.causes[0]
    main = result.findings[cause.main]
    assert (main.symbol.state, main.symbol.role) == (State.WAIT_TIMER, "helper")
    assert cause.contribution == pytest.approx(late * 1000, rel=0.15)
    facts = cause.facts
    assert (facts.call, facts.peer, facts.tids) == ("recvmsg", "helper", [8])
    assert cause.positions == [*range(SAMPLES)]


def test_a_helper_that_has_the_cpu_for_longer():
    """The other way round: it no longer sleeps, and works longer beside the worker."""
    rng = np.random.default_rng(1)
    normal = [jittered(rng, "r1500 h2000 r2000") for _ in range(NORMALS)]
    sample = [jittered(rng, "r1500 k5000 r2000") for _ in range(SAMPLES)]
    cause = compare(normal, sample).causes[0]
    assert cause.contribution == pytest.approx(3e6, rel=0.1)
    facts = cause.facts
    assert (facts.state, facts.comm, facts.peer) == ("WAIT_CPU", "worker", "helper")


@pytest.mark.parametrize(
    ("share", "cpus"),
    [(0.9, 1), (0.6, 2), (0.4, 1)],
)
def test_a_cpu_that_others_had_while_another_was_idle(share, cpus):
    rng = np.random.default_rng(2)
    normal = draw([jittered(rng, "r1500 h2000 r2000") for _ in range(NORMALS)])
    sample = draw([jittered(rng, "r1500 k5000 r2000 k5000 r9") for _ in range(SAMPLES)])
    waits = sample.paths.state == State.WAIT_CPU
    idle = np.where(waits, share * sample.paths.duration, 0).astype(np.int64)
    cpu = np.where(waits, 3 + np.cumsum(waits) % cpus, 0).astype(np.int32)
    sample = replace(sample, paths=replace(sample.paths, elsewhere_idle=idle, cpu=cpu))
    result = flow.compare(normal, sample, CompareSettings(permutations=999))
    facts = result.causes[0].facts
    assert facts is not None
    assert facts.elsewhere_idle == pytest.approx(share, abs=0.01)
    assert facts.cpu == (3 if cpus == 1 else None)


@pytest.mark.parametrize(
    ("waits", "certainty"), [("i30 r40 " * 100, "observed"), ("i3000 r4000", "inferred")]
)
def test_many_late_starts_are_not_throttling(waits, certainty):
    rng = np.random.default_rng(4)
    normal = [jittered(rng, "r1500 i5 r4000 d100 r500") for _ in range(NORMALS)]
    sample = [jittered(rng, f"r1500 {waits} d100 r500") for _ in range(SAMPLES)]
    cause = compare(normal, sample).causes[0]
    assert cause.contribution == pytest.approx(3e6, rel=0.1)
    facts = cause.facts
    assert (facts.state, facts.peer, facts.certainty) == ("WAIT_CPU", "", certainty)


def test_what_was_not_observed_comes_after_what_was():
    rng = np.random.default_rng(2)
    normal = [jittered(rng, "r2000 d1000 r1000") for _ in range(NORMALS)]
    sample = [jittered(rng, "r2000 d3000 u2500 r1000") for _ in range(SAMPLES)]
    result = compare(normal, sample)
    states = [result.findings[c.main].symbol.state for c in result.causes]
    assert states[:2] == [State.WAIT_DISK, State.UNKNOWN]
    assert result.causes[1].facts.certainty == "unknown"
    # Not where it is most of it by far.
    much = [jittered(rng, "r2000 d3000 u9000 r1000") for _ in range(SAMPLES)]
    result = compare(normal, much)
    assert result.findings[result.causes[0].main].symbol.state == State.UNKNOWN


def test_small_differences_are_minor_and_none_is_dropped():
    rng = np.random.default_rng(3)
    normal = [jittered(rng, "r2000 d1000 h300 r1000") for _ in range(NORMALS)]
    sample = [jittered(rng, "r2000 d9000 h300 r1000") for _ in range(SAMPLES - 1)]
    sample.append("r2000 d9000 h1500 r1000")
    result = compare(normal, sample)
    first, *others = result.causes
    assert not first.minor
    assert first.facts.state == "WAIT_DISK"
    assert [c.minor for c in others if c.facts.peer == "helper"] == [True]
    assert sorted(p for c in result.causes for p in c.findings) == list(range(len(result.findings)))
