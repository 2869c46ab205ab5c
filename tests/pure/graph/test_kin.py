"""What who had the cpu is to the thread that waited for it: by forks and the statedump."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "timeline"))
from building import build

from critpath.graph.execution_graph import critical_paths
from critpath.graph.kin import Kinship
from critpath.model import BlockList, Executions, Kind, PathSet, ReplayedRecording, State
from critpath.model.details import NO_DETAIL, Detail, Kin, is_of_program, name_detail
from critpath.timeline.replay import replay
from critpath.timeline.streaming import read_parents

MS = 1_000_000
WAITER, RIVAL = 10, 30


def told_kin(rows, waiter, subject):
    """Return the path of a thread, as one of an execution that a thread may be another's."""
    events = build(rows)
    timelines = replay(events)
    worker = np.flatnonzero(timelines.workers.tid == waiter)
    begin, end = np.array([0]), np.array([60 * MS])
    paths = critical_paths(timelines, worker, begin, end)
    of = Executions(("one",), begin, end, np.array([subject]), np.array([0]), ("x",), ("",))
    no = np.zeros(1, np.bool_)
    made = PathSet(of, paths, np.zeros(1, np.int64), ("here",), "thread", (), no)
    replayed = ReplayedRecording(
        *(events.without_rows(), BlockList(), timelines.workers, timelines.processors),
        *(0, (), (), ()),
        parents=read_parents(events),
    )
    return Kinship(replayed).tell(made).paths


def kin_of(*known, waiter=WAITER, subject=WAITER, rival=RIVAL):
    """A thread leaves the cpu to another, which runs meanwhile; what is that to it?

    In switches thread 10 is called t10, 90 is ksoftirqd/0.
    """
    rows = [
        *((i, 0, *one) for i, one in enumerate(known)),
        (100, 0, Kind.SWITCH, (0, 0, waiter)),
        (10 * MS, 0, Kind.SWITCH, (waiter, 0, rival)),
        (50 * MS, 0, Kind.SWITCH, (rival, 0, waiter)),
        (60 * MS, 0, Kind.SWITCH, (waiter, 0, subject)),
        (70 * MS, 0, Kind.SWITCH, (subject, 0, 0)),
    ]
    if waiter == subject:
        del rows[-2:]
        rows.append((60 * MS, 0, Kind.SWITCH, (waiter, 0, 0)))
    told = told_kin(rows, waiter, subject)
    waits = np.flatnonzero((told.state == State.WAIT_CPU) & (told.end == 50 * MS))
    [kin] = {told.details[code].kin for code in told.detail[waits]}
    return kin


def was(tid, process, parent, name=""):
    """A thread that was there when the recording began."""
    return Kind.STATEDUMP, (tid, 5, process, parent, name)


FORKED = (Kind.FORK, (WAITER, RIVAL, WAITER, RIVAL))


@pytest.mark.parametrize(
    ("known", "kin"),
    [
        ([was(WAITER, 7, 1), was(RIVAL, 7, 1)], Kin.THREAD),
        ([was(WAITER, WAITER, 1), (Kind.FORK, (WAITER, RIVAL, WAITER, WAITER))], Kin.THREAD),
        ([was(WAITER, WAITER, 1), was(RIVAL, RIVAL, WAITER)], Kin.CHILD),
        ([was(WAITER, WAITER, 1), FORKED], Kin.CHILD),
        (
            [was(WAITER, WAITER, 1), was(20, 20, WAITER), was(RIVAL, RIVAL, 20)],
            Kin.CHILD,
        ),
        ([was(WAITER, WAITER, RIVAL), was(RIVAL, RIVAL, 1)], Kin.STARTER),
        (
            [was(5, 5, 1, "t5"), was(WAITER, WAITER, 5), was(RIVAL, RIVAL, 5)],
            Kin.SIBLING,
        ),
        (
            [was(5, 5, 1, "make"), was(WAITER, WAITER, 5), was(RIVAL, RIVAL, 5)],
            Kin.NAMESAKE,
        ),
        ([was(WAITER, WAITER, 1), was(RIVAL, RIVAL, 2)], Kin.NAMESAKE),
        ([], Kin.UNKNOWN),
        ([was(WAITER, WAITER, 1)], Kin.UNKNOWN),
    ],
)  # fmt: skip
def test_what_it_is_to_who_waited(known, kin):
    assert kin_of(*known) == kin


def test_who_is_called_otherwise_is_a_stranger():
    assert kin_of(was(WAITER, WAITER, 1), was(90, 90, 1), rival=90) == Kin.STRANGER


def test_on_the_path_of_another_thread():
    """Thread 10 works for 40, whose program 30 is of as well, or has begun 10."""
    tree = [was(40, 40, 1), was(WAITER, WAITER, 1), was(RIVAL, RIVAL, 40)]
    assert kin_of(*tree, subject=40) == Kin.PROGRAM
    tree = [was(40, 40, 1), was(RIVAL, RIVAL, 40), was(WAITER, WAITER, RIVAL)]
    assert kin_of(*tree, subject=40) == Kin.PARENT


def test_a_worker_of_the_kernel_is_a_thread_of_the_process_that_it_works_for():
    """Of io_uring's workers there is no fork, but their first wake."""
    known = [
        was(WAITER, WAITER, 1, "main"),
        (Kind.FORK, (WAITER, 99, WAITER, 99)),
        (Kind.SWITCH, (0, 0, WAITER)),
        (Kind.WAKEUP_NEW, (RIVAL,)),
        # It sleeps before it waits: what it asked for is done.
        (Kind.SWITCH, (WAITER, 1, 0)),
    ]
    assert kin_of(*known) == Kin.THREAD


@pytest.mark.parametrize(
    ("known", "kin"),
    [
        ([was(WAITER, WAITER, 1), was(RIVAL, WAITER, 1)], Kin.THREAD),
        ([was(WAITER, WAITER, 1), was(RIVAL, RIVAL, WAITER)], Kin.CHILD),
        ([was(5, 5, 1, "t5"), was(WAITER, WAITER, 5), was(RIVAL, RIVAL, 5)], Kin.SIBLING),
        ([was(WAITER, WAITER, 1), was(RIVAL, RIVAL, 2)], Kin.NAMESAKE),
        # Nobody takes it for the execution's own: it is nothing to tell.
        ([was(WAITER, WAITER, RIVAL), was(RIVAL, RIVAL, 1)], Kin.UNKNOWN),
    ],
)
def test_what_a_thread_is_that_is_waited_for(known, kin):
    """A thread sleeps until another, which runs on another cpu, wakes it."""
    rows = [
        *((i, 0, *one) for i, one in enumerate(known)),
        (100, 0, Kind.SWITCH, (0, 0, WAITER)),
        (200, 1, Kind.SWITCH, (0, 0, RIVAL)),
        (10 * MS, 0, Kind.SWITCH, (WAITER, 1, 0)),
        (50 * MS, 1, Kind.WAKING, (WAITER, 0)),
        (50 * MS + 10, 0, Kind.SWITCH, (0, 0, WAITER)),
        (60 * MS, 0, Kind.SWITCH, (WAITER, 0, 0)),
    ]
    told = told_kin(rows, WAITER, WAITER)
    [kin_of_it] = {
        told.details[code].kin for code in told.detail[(told.tid == RIVAL) & (told.state == 1)]
    }
    assert kin_of_it == kin
    assert {told.details[code].kin for code in told.detail[told.tid == WAITER]} == {""}


def test_who_is_of_the_program():
    assert [is_of_program(kin) for kin in Kin] == [
        *(None, True, True, True, True, True, False, False, False)
    ]
    assert is_of_program("what another version says") is None


def test_kin_is_no_text_of_a_recording():
    detail = Detail("x", 3, kin=Kin.CHILD).with_texts(str.upper)
    assert detail == Detail("X", 3, kin=Kin.CHILD)
    assert name_detail(State.WAIT_CPU, "") == NO_DETAIL
