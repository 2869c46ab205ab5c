"""What ``prev_state`` of ``sched_switch`` means, per kernel release."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from critpath.records import dataclass
from critpath.schema.environment import Environment


@dataclass(frozen=True)
class PrevState:
    """How to read ``prev_state``.

    Attributes
    ----------
    runnable : frozenset of int
        Exact values of a thread that still wants the cpu.
    dead : int
        Any of these bits: the thread will not run again.
    stopped : int
        Any of these bits: stopped by a signal or a debugger.
    """

    runnable: frozenset[int]
    dead: int
    stopped: int = 4 | 8


# (first release it holds for, meaning), newest first.
_TABLE: tuple[tuple[tuple[int, int], PrevState], ...] = (
    ((4, 18), PrevState(frozenset({0, 256, 4096}), dead=16 | 32)),
    ((4, 14), PrevState(frozenset({0, 256, 4096}), dead=16 | 32 | 128)),
    ((4, 8), PrevState(frozenset({0, 4096}), dead=16 | 32 | 64)),
    ((4, 2), PrevState(frozenset({0, 2048}), dead=16 | 32 | 64)),
    ((3, 9), PrevState(frozenset({0, 1024}), dead=16 | 32 | 64)),
    ((0, 0), PrevState(frozenset({0, 512}), dead=16 | 32 | 64)),
)

# Where no trace names its kernel: every marker that is unambiguous when it stands
# alone; 64 and 128 may be death or parking, so there the exit event decides.
UNKNOWN_RELEASE = PrevState(frozenset({0, 256, 1024, 2048, 4096}), dead=16 | 32)


def find_prev_state(release: str) -> PrevState:
    """Return the meaning of ``prev_state`` on a kernel."""
    found = re.match(r"(\d+)\.(\d+)", release)
    if not found:
        return UNKNOWN_RELEASE
    version = (int(found[1]), int(found[2]))
    return next(meaning for since, meaning in _TABLE if version >= since)


def prev_states(hosts: Sequence[str], environment: Sequence[Environment]) -> NDArray[np.int64]:
    """Return per host: dead mask, stopped mask, then the runnable values (padded by repeats)."""
    releases = {
        e.hostname or "": e.kernel_release for e in environment if e.kernel_release is not None
    }
    rows = []
    for host in hosts:
        meaning = find_prev_state(releases.get(host, ""))
        runnable = sorted(meaning.runnable)
        rows.append(
            [meaning.dead, meaning.stopped, *runnable, *[runnable[0]] * (5 - len(runnable))]
        )
    return np.array(rows, np.int64)
