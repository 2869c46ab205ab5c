"""Executions drawn from known distributions: what the simulated tables are measured on.

The specification names its distributions and gives the figures measured on them, but not
every parameter.  What it leaves open was chosen so that the paper's rules, which no part of
critpath's gate can influence, show the published figures (`--table rules`, 104 cells):

rare states: how often each state occurs.  "All normal executions lack the state, one of the
    sample has it" is what fires at 100/100 and no longer at 300/300: that needs one state
    seen in 2 % of the executions, one in 5 % and one in 10 %; durations log-normal 0.7.
heavy tail: log-normal 0.6, and 3 % of the values some six times longer.  A Pareto tail is
    excluded: it would make the average rule alarm at 100/100, where it does not (.001).
3 types mixed: every state of a type is 1, 3 or 9 times as long; log-normal 0.3 within.
rare hiccups: not the specification's; healthy executions of which one in a hundred is an
    outlier, for the marks of single ones.
mean durations of the ten states: 10, 9, .. 1 parts of 55; the changed state is the fourth
    and the delayed one the sixth (share of healthy and of delayed executions found).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from critpath.model import F64, I64, State, Symbol, VectorTable

STATES: Final = 10
CHANGED: Final = 3  # the state that "+50 %" and "x2" slow down
DELAYED: Final = 5  # the state that a whole mean total is added to in some executions
NEW_SHARE: Final = 0.05  # of the normal mean total, times log-normal 0.3: 5.2 % in the mean

_MEANS: Final = np.arange(STATES, 0, -1.0)
_UNIT: Final = 1_000_000  # ns
_OCCURRENCE: Final = np.array([1.0, 0.9, 0.8, 0.5, 0.7, 0.3, 0.2, 0.1, 0.05, 0.02])
_TYPE_FACTORS: Final = np.array([1.0, 3.0, 9.0])

Draw = Callable[[np.random.Generator, int], F64]


def _normal(rng: np.random.Generator, n: int) -> F64:
    return np.maximum(rng.normal(1, 0.1, (n, STATES)), 0)


def _lognormal(sigma: float) -> Draw:
    return lambda rng, n: rng.lognormal(0, sigma, (n, STATES))


def _rare(rng: np.random.Generator, n: int) -> F64:
    return (rng.random((n, STATES)) < _OCCURRENCE) * rng.lognormal(0, 0.7, (n, STATES))


def _heavy(rng: np.random.Generator, n: int) -> F64:
    long = np.where(rng.random((n, STATES)) < 0.03, 6 * rng.lognormal(0, 0.3, (n, STATES)), 1.0)
    return rng.lognormal(0, 0.6, (n, STATES)) * long


def _types(rng: np.random.Generator, n: int) -> F64:
    factor = rng.choice(_TYPE_FACTORS, size=(n, 1))
    return factor * rng.lognormal(0, 0.3, (n, STATES))


def _hiccups(rng: np.random.Generator, n: int) -> F64:
    """Log-normal 0.3, and one execution in a hundred held up for three mean totals."""
    drawn = rng.lognormal(0, 0.3, (n, STATES))
    held_up = rng.random(n) < 0.01
    drawn[held_up, DELAYED] += 3 * _MEANS.sum() / _MEANS[DELAYED]
    return drawn


DISTRIBUTIONS: Final[dict[str, Draw]] = {
    "normal cv .1": _normal,
    "lognormal .3": _lognormal(0.3),
    "lognormal 1": _lognormal(1.0),
    "rare states": _rare,
    "heavy tail": _heavy,
    "3 types mixed": _types,
    "rare hiccups": _hiccups,
}


@dataclass(frozen=True)
class Setting:
    """Two sets of executions drawn from one distribution."""

    data: str
    normal: int
    sample: int

    @property
    def name(self) -> str:
        return f"{self.data}, {self.normal}/{self.sample}"

    def pair(self, rng: np.random.Generator) -> tuple[I64, I64]:
        """Draw a normal and a sample set; durations in ns [executions, states]."""
        return draw(self.data, rng, self.normal), draw(self.data, rng, self.sample)


def draw(data: str, rng: np.random.Generator, n: int) -> I64:
    """Draw executions: durations in ns [n, states]."""
    return to_ns(DISTRIBUTIONS[data](rng, n) * _MEANS)


def to_ns(parts: F64) -> I64:
    return np.rint(parts * _UNIT).astype(np.int64)


def multiplied(sample: I64, factor: float) -> I64:
    """Make one state longer in every execution."""
    changed = sample.copy()
    changed[:, CHANGED] = np.rint(sample[:, CHANGED] * factor)
    return changed


def delayed(sample: I64, normal: I64, rng: np.random.Generator, share: float = 0.2) -> I64:
    """Add the normal mean total to one state of every execution with probability `share`."""
    changed = sample.copy()
    hit = rng.random(len(sample)) < share
    changed[hit, DELAYED] += np.int64(normal.sum(axis=1).mean())
    return changed


def with_new_state(normal: I64, sample: I64, rng: np.random.Generator) -> tuple[I64, I64]:
    """Give both sets one more state, which only the sample's executions are ever in."""
    size = NEW_SHARE * normal.sum(axis=1).mean() * rng.lognormal(0, 0.3, len(sample))
    return (
        np.column_stack([normal, np.zeros(len(normal), np.int64)]),
        np.column_stack([sample, np.rint(size).astype(np.int64)]),
    )


def table(durations: I64) -> VectorTable:
    """Wrap durations as vectors of one type: every execution has the same counts."""
    states = tuple(Symbol(State.RUN, f"state {i}") for i in range(durations.shape[1]))
    return VectorTable(states, np.ones_like(durations), durations)
