"""What additional trips bring with them on a path."""

from __future__ import annotations

import numpy as np
import pytest

from critpath.localize.counts import charge_steps
from critpath.model import CriticalPaths, Executions, PathSet, State, Step, Symbol

MS = 1_000_000
OWN, THERE = Symbol(State.RUN), Symbol(State.RUN, "holder")


def path_of(*segments):
    """Return one path of thread 7: (code, thread, milliseconds)."""
    n = len(segments)
    edges = np.cumsum([0, *(length * MS for *_, length in segments)])
    code, tid = (np.array([one[i] for one in segments], np.int64) for i in (0, 1))
    zeros, narrow = np.zeros(n, np.int64), np.zeros(n, np.int32)
    state = np.full(n, State.RUN, np.uint8)
    paths = CriticalPaths(
        *(np.array([0, n]), edges[:-1], edges[1:], state, narrow, narrow, tid, zeros, narrow),
        *(np.zeros(n, np.bool_), ("",)),
    )
    one = np.zeros(1, np.int64)
    executions = Executions(("0",), edges[:1], edges[-1:], one + 7, one, ("",), ("",))
    return PathSet(
        executions, paths, one, ("here",), "thread", (), np.zeros(1, np.bool_)
    ), code.tolist()


@pytest.mark.parametrize(("inferred", "own"), [((), 40), ({"holder"}, 0)])
def test_what_runs_before_is_preparation_unless_the_other_waits_for_its_turn(inferred, own):
    """Whoever waits for Python's lock takes it the more often the longer another has it."""
    path, codes = path_of(*[(0, 7, 5), (1, 8, 1)] * 10)
    risen = {Step(None, "holder"): (2.0, 10.0)}
    usual = {OWN: 10 * MS, THERE: 2 * MS}
    [charge] = charge_steps(path, codes, (OWN, THERE), risen, usual, inferred)
    assert charge.time.get(OWN, 0) == own * MS
    assert charge.time[THERE] == 8 * MS
