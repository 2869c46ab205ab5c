"""Sets of executions drawn as text, for comparisons without a recording."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from detailing import detailed

from critpath.model import CriticalPaths, Executions, PathSet, State

# State, and codes of the thread's name and of the detail.
STATES = {
    "r": (State.RUN, 1, 0),
    "t": (State.WAIT_TIMER, 1, 0),
    "d": (State.WAIT_DISK, 1, 0),
    "c": (State.WAIT_CPU, 1, 0),
    "h": (State.RUN, 2, 0),
    "u": (State.UNKNOWN, 1, 0),
    "k": (State.WAIT_CPU, 1, 3),  # helper has the cpu
    "i": (State.WAIT_CPU, 1, 5),  # nobody has the cpu
    "T": (State.WAIT_TIMER, 2, 0),  # helper sleeps
    "s": (State.RUN_SYSCALL, 1, 4),
    "q": (State.WAIT_CPU, 2, 0),
    "l": (State.WAIT_TIMER, 6, 0),  # locker sleeps
    "n": (State.WAIT_CPU, 1, 7),  # neighbours have the cpu
    "m": (State.WAIT_CPU, 1, 8),
    "o": (State.WAIT_CPU, 1, 9),
    "N": (State.WAIT_CPU, 2, 7),
    "w": (State.WAIT_CPU, 1, 10),  # a thread of the worker's program has it
    "a": (State.RUN, 11, 0),  # whom helper asks
    "A": (State.WAIT_CPU, 11, 7),
    "b": (State.RUN, 12, 0),  # and whom that one asks
    "B": (State.WAIT_CPU, 12, 7),
}
STRINGS = ("", "worker", "helper", "helper (8)", "recvmsg", "idle", "locker")
STRINGS += ("cc1 (20)", "make (21)", "xz (22)", "worker (9)", "app", "base")


def draw(executions: Sequence[str], *, session: Sequence[int] = ()) -> PathSet:
    """Return executions, each drawn as ``r30 t5 h2``: states and their microseconds."""
    words = [[(word[0], round(float(word[1:]) * 1000)) for word in e.split()] for e in executions]
    sizes = np.array([len(e) for e in words], np.int64)
    flat = [word for e in words for word in e]
    durations = np.array([ns for _, ns in flat], np.int64)
    # Executions of a millisecond's distance, one after the other.
    gaps = np.repeat(np.arange(len(words), dtype=np.int64) * 1_000_000, sizes)
    end = np.cumsum(durations) + gaps
    begin = end - durations
    start = np.concatenate([[0], np.cumsum(sizes)])
    n, segments = len(words), len(flat)
    comm = np.array([STATES[letter][1] for letter, _ in flat], np.int32)
    return PathSet(
        executions=Executions(
            tuple(map(str, range(n))),
            begin[start[:-1]],
            end[start[1:] - 1],
            np.full(n, 7, np.int64),
            np.zeros(n, np.int64),
            ("worker",) * n,
            ("",) * n,
        ),
        paths=detailed(
            CriticalPaths(
                start,
                begin,
                end,
                np.array([STATES[letter][0] for letter, _ in flat], np.uint8),
                np.array([STATES[letter][2] for letter, _ in flat], np.int32),
                comm,
                np.array([-1, 7, 8, -1, -1, -1, 9, -1, -1, -1, -1, 10, 11])[comm],
                np.zeros(segments, np.int64),
                np.zeros(segments, np.int32),
                np.zeros(segments, np.bool_),
                STRINGS,
            )
        ),
        session=np.array(session or [0] * n, np.int64),
        sources=tuple(f"session {s}" for s in sorted(set(session or [0]))),
        specification="process",
        losses=(),
        lossy=np.zeros(n, np.bool_),
    )
