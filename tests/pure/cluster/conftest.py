"""A simulated set of executions of seven types, after the recorded guest workload.

Counts, durations and their spread follow what the types of
``lttng-guest/normal`` show on their critical paths.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from critpath.model import I64, State, Symbol, VectorTable

# scikit-learn asks how many cores there are by starting lscpu, unless it is told of fewer.
os.environ.setdefault("LOKY_MAX_CPU_COUNT", "1")

SYMBOLS = tuple(
    Symbol(state, role)
    for state, role in [
        (State.RUN, ""),
        (State.RUN, "helper"),
        (State.RUN, "holder"),
        (State.RUN, "jbd#/vda-#"),
        (State.IRQ, ""),
        (State.SOFTIRQ, ""),
        (State.WAIT_CPU, ""),
        (State.WAIT_CPU, "helper"),
        (State.WAIT_CPU, "holder"),
        (State.WAIT_CPU, "jbd#/vda-#"),
        (State.WAIT_DISK, ""),
        (State.WAIT_DISK, "jbd#/vda-#"),
        (State.WAIT_TIMER, ""),
    ]
)
COLUMN = {symbol.name: i for i, symbol in enumerate(SYMBOLS)}

# Own running time (ms) and, per symbol, visits and ms of all visits together.
TYPES: dict[str, tuple[float, dict[str, tuple[int, float]]]] = {
    "cpu": (5.0, {}),
    "read": (8.2, {"WAIT_DISK": (32, 7.8)}),
    "write": (
        9.5,
        {
            "RUN@jbd#/vda-#": (8, 1.5),
            "WAIT_CPU@jbd#/vda-#": (7, 1.0),
            "WAIT_DISK@jbd#/vda-#": (4, 3.1),
        },
    ),
    "lock": (2.1, {"RUN@holder": (2, 4.6), "WAIT_CPU@holder": (1, 0.1)}),
    "pipe": (2.5, {"RUN@helper": (1, 4.7), "WAIT_CPU@helper": (1, 0.2)}),
    "sleep": (2.1, {"WAIT_TIMER": (1, 20.2)}),
    "mixed": (4.4, {"RUN@helper": (1, 2.4), "WAIT_CPU@helper": (1, 0.1), "WAIT_DISK": (8, 2.3)}),
}
BUGS: dict[str, dict[str, tuple[int, float]]] = {
    "none": {},
    "delay": {"WAIT_TIMER": (1, 30.0)},
    "fsync": {
        "RUN@jbd#/vda-#": (12, 2.3),
        "WAIT_CPU@jbd#/vda-#": (11, 1.0),
        "WAIT_DISK@jbd#/vda-#": (9, 9.0),
    },
    "lock": {"RUN@holder": (2, 8.0), "WAIT_CPU@holder": (1, 0.1)},
}


@dataclass(frozen=True)
class Simulated:
    """Vectors and the truth about them."""

    table: VectorTable
    types: tuple[str, ...]
    buggy: np.ndarray


def _one(rng: np.random.Generator, kind: str, bug: str) -> tuple[I64, I64]:
    counts = np.zeros(len(SYMBOLS), np.int64)
    durations = np.zeros(len(SYMBOLS))

    def add(name: str, count: int, ms: float, cv: float = 0.3) -> None:
        counts[COLUMN[name]] += count
        if count:
            sigma = np.sqrt(np.log1p(cv**2))
            durations[COLUMN[name]] += ms * rng.lognormal(-(sigma**2) / 2, sigma)

    running, waits = TYPES[kind]
    visits = 1
    for name, (count, ms) in [*waits.items(), *BUGS[bug].items()]:
        seen = rng.binomial(count, 0.92) if count > 3 else count
        add(name, seen, ms * seen / count, 0.15 if name == "WAIT_TIMER" else 0.35)
        visits += seen if "@" not in name else 0
    elapsed = running + sum(ms for _, ms in waits.values())
    preempted = visits - 1 + rng.poisson(0.25)
    add("WAIT_CPU", preempted, 0.12 * preempted, 0.6)
    interrupts = rng.poisson(0.15 * elapsed)
    add("IRQ", interrupts, 0.03 * interrupts)
    softirqs = rng.poisson(0.2 * elapsed)
    add("SOFTIRQ", softirqs, 0.05 * softirqs)
    add("RUN", visits + interrupts + softirqs, running, 0.25)
    return counts, np.rint(durations * 1e6).astype(np.int64)


def simulate(plan: list[tuple[str, str]], seed: int) -> Simulated:
    """Simulate executions, one per (type, bug)."""
    rng = np.random.default_rng(seed)
    rows = [_one(rng, kind, bug) for kind, bug in plan]
    table = VectorTable(SYMBOLS, np.array([r[0] for r in rows]), np.array([r[1] for r in rows]))
    return Simulated(
        table, tuple(kind for kind, _ in plan), np.array([bug != "none" for _, bug in plan])
    )


def normal_plan(each: int = 15) -> list[tuple[str, str]]:
    return [(kind, "none") for _ in range(each) for kind in TYPES]


def sample_plan(kind: str, bug: str) -> list[tuple[str, str]]:
    """Five of one type, four of them buggy, and one of each other type."""
    others = [(other, "none") for other in TYPES if other != kind]
    return [(kind, bug)] * 4 + [(kind, "none"), *others]


@pytest.fixture(scope="session")
def simulated() -> Callable[[list[tuple[str, str]], int], Simulated]:
    return simulate


@pytest.fixture(scope="session")
def healthy() -> list[tuple[str, str]]:
    return normal_plan()


@pytest.fixture(scope="session")
def faulty() -> Callable[[str, str], list[tuple[str, str]]]:
    return sample_plan
