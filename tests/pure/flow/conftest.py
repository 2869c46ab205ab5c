"""Healthy executions of a known spread, recorded in sessions of a known spread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from critpath.model import CompareSettings, CriticalPaths, Executions, PathSet, State
from critpath.schema.parameters import overridden

STATES = (
    *(State.RUN, State.WAIT_CPU, State.WAIT_TIMER, State.WAIT_TASK, State.WAIT_DISK),
    *(State.IRQ, State.SOFTIRQ),
)
MEANS = np.array([4.0, 1.0, 2.0, 0.5, 1.5, 0.05, 0.02]) * 1e6


def path_set(durations: np.ndarray, session: np.ndarray, sources: Sequence[str]) -> PathSet:
    """One segment per state, in one thread."""
    n, states = durations.shape
    ends = np.cumsum(durations.reshape(-1))
    begins = ends - durations.reshape(-1)
    return PathSet(
        executions=Executions(
            id=tuple(f"e{i}" for i in range(n)),
            begin=begins[::states],
            end=ends[states - 1 :: states],
            tid=np.full(n, 7),
            host=np.zeros(n, np.int64),
            comm=("worker",) * n,
            label=("",) * n,
        ),
        paths=CriticalPaths(
            start=np.arange(n + 1) * states,
            begin=begins,
            end=ends,
            state=np.tile(np.array([int(s) for s in STATES[:states]], np.uint8), n),
            detail=np.zeros(n * states, np.int32),
            comm=np.ones(n * states, np.int32),
            tid=np.full(n * states, 7),
            host=np.zeros(n * states, np.int64),
            cpu=np.zeros(n * states, np.int32),
            lossy=np.zeros(n * states, np.bool_),
            strings=("", "worker"),
        ),
        session=session,
        sources=tuple(sources),
        specification="thread",
        losses=(),
        lossy=np.zeros(n, np.bool_),
    )


@pytest.fixture(scope="session")
def healthy() -> Callable[..., PathSet]:
    """Return a maker of healthy executions: log-normal, each session by a factor slower."""

    def make(sizes: Sequence[int], factors: Sequence[float] | None = None, *, seed: int = 1,
             spread: float = 0.2) -> PathSet:  # fmt: skip
        rng = np.random.default_rng(seed)
        session = np.repeat(np.arange(len(sizes)), sizes)
        drawn = MEANS * rng.lognormal(-(spread**2) / 2, spread, (len(session), len(MEANS)))
        drawn *= np.asarray(factors or [1.0] * len(sizes))[session, None]
        sources = [f"normal-{k}" for k in range(len(sizes))]
        return path_set(drawn.astype(np.int64), session, sources)

    return make


@pytest.fixture(scope="session")
def of_durations() -> Callable[..., PathSet]:
    return path_set


@pytest.fixture(scope="module")
def few_draws() -> Iterator[None]:
    """Draw samples of one recording three times: each is a comparison of its own."""
    with overridden("trials.least_draws", 3):
        yield


@pytest.fixture
def quick() -> CompareSettings:
    """Settings whose permutations are fewer than the default."""
    return CompareSettings(permutations=499)
