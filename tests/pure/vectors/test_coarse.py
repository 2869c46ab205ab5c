"""Sets traced with and without system calls are compared in the same words."""

from __future__ import annotations

import numpy as np
from detailing import detailed, texts_of

from critpath.model import CriticalPaths, Executions, PathSet, State
from critpath.text.notes import word
from critpath.vectors.table import with_like_states, without_syscalls


def path_set(states, details):
    n = len(states)
    return PathSet(
        executions=Executions(("a",), [0], [10 * n], [7], [0], ("work",), ("",)),
        paths=detailed(
            CriticalPaths(
                start=np.array([0, n]),
                begin=np.arange(n) * 10,
                end=np.arange(n) * 10 + 10,
                state=np.array(states, np.uint8),
                detail=np.array(details, np.int32),
                comm=np.ones(n, np.int32),
                tid=np.full(n, 7),
                host=np.zeros(n, np.int64),
                cpu=np.zeros(n, np.int32),
                lossy=np.arange(n) == 1,
                strings=("", "work", "read", "hrtimer"),
            )
        ),
        session=np.zeros(1, np.int64),
        sources=("r",),
        specification="thread",
        losses=(),
        lossy=np.zeros(1, bool),
    )


FINE = path_set(
    [State.RUN_USER, State.RUN_SYSCALL, State.WAIT_TIMER, State.RUN_SYSCALL, State.RUN_USER],
    [0, 2, 3, 2, 0],
)
PLAIN = path_set([State.RUN, State.WAIT_TIMER, State.RUN], [0, 3, 0])


def test_running_is_one_segment_without_system_calls():
    coarse = without_syscalls(FINE).paths
    assert coarse.state.tolist() == [State.RUN, State.WAIT_TIMER, State.RUN]
    assert coarse.begin.tolist() == [0, 20, 30]
    assert coarse.end.tolist() == [20, 30, 50]
    assert texts_of(coarse) == ["", "hrtimer", ""]
    assert coarse.lossy.tolist() == [True, False, False]
    assert coarse.start.tolist() == [0, 3]


def test_only_unlike_sets_are_changed_and_it_is_said():
    for one in (FINE, PLAIN):
        normal, sample, coder, notes = with_like_states(one, one, "thread")
        assert (normal, sample, notes) == (one, one, ())
        assert {symbol.state for symbol in coder.symbols} == {*map(State, one.paths.state)}
    normal, sample, coder, notes = with_like_states(PLAIN, FINE, "thread")
    assert {symbol.state for symbol in coder.symbols} == {State.RUN, State.WAIT_TIMER}
    assert normal.paths.state.tolist() == sample.paths.state.tolist()
    assert "only what is after" in word(notes[0])
    assert "only what is before" in word(with_like_states(FINE, PLAIN, "thread")[3][0])
