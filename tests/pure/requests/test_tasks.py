"""Whose work it is where runtimes say which task runs: what they write, and what follows of it."""

from __future__ import annotations

import struct
from base64 import b64encode

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.model import Workers
from critpath.model.requests import (
    Act,
    Activity,
    Certainty,
    Endpoints,
    RequestTable,
    Rule,
    Slices,
    Subrequests,
)
from critpath.requests.owners import Owned
from critpath.requests.tasks import MADE, Tasks, follow_tasks, read_tasks

LOOP, WATCHER, HELPER, PID = 11, 12, 13, 11


@pytest.fixture(scope="module")
def fill(load):
    return load("pure/requests/drawing.py").fill


def make_workers(fill):
    tids = np.array([LOOP, WATCHER, HELPER, 40])
    pids = np.array([PID, PID, PID, 40])
    return fill(Workers, 4, host=np.zeros(4), tid=tids, pid=pids)


def pack(*notes):
    return b64encode(b"".join(struct.pack("<QI", *note) for note in notes)).decode()


def read(fill, *marks):
    return list(
        zip(*(c.tolist() for c in read_tasks(list(marks), make_workers(fill))), strict=True)
    )


def test_marks_of_a_thread_and_of_who_writes_for_it(fill) -> None:
    """A number of a container is that of the thread that once wrote it itself."""
    said = f"critpath:tasks 7 {pack((100, 1), (150, 0))}\n"
    later = f"critpath:tasks @7 {pack((300, 2))}\n"
    other = f"critpath:tasks @{HELPER} {pack((250, 3))}\n"
    found = read(fill, (200, 0, LOOP, said), (260, 0, WATCHER, other), (400, 0, WATCHER, later))
    assert found == [(100, LOOP, 0, 1), (150, LOOP, 0, 0), (250, HELPER, 0, 3), (300, LOOP, 0, 2)]


@pytest.mark.parametrize(
    "text",
    [
        "critpath:begin job",
        "critpath:tasks",
        "critpath:tasks 7",
        "critpath:tasks 7 ????",
        "critpath:tasks 7 QUJD",
        "critpath:tasks -7 " + pack((100, 1)),
        "critpath:tasks 99999999999 " + pack((100, 1)),
        "critpath:tasks \u0667 " + pack((100, 1)),
        "critpath:tasks 7 " + pack((100, 1), (99, 0)),  # out of order
        "critpath:tasks 7 " + pack((201, 1)),  # after it was written
        "critpath:tasks 7 " + pack((2**64 - 1, 1)),
    ],
)
def test_what_is_no_such_mark_tells_nothing(fill, text) -> None:
    assert read(fill, (200, 0, LOOP, text)) == []


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(-1, 50), st.text()), max_size=5))
def test_whatever_others_write_is_read(fill, marks) -> None:
    for text in ("", "critpath:tasks ", "critpath:tasks 5 "):
        read(fill, *((at, 0, tid, text + said) for at, tid, said in marks))


def make_tables(fill, notes, requests, asked):
    """Return tables: notes of (time, thread, number), requests (endpoint, begin, end), asks."""
    notes = np.array(notes, np.int64).reshape(-1, 3)
    activity = fill(
        Activity, len(notes), time_ns=notes[:, 0], act=np.full(len(notes), Act.TASK),
        tid=notes[:, 1], host=np.zeros(len(notes)), endpoint=np.full(len(notes), -1),
        value=notes[:, 2],
    )  # fmt: skip
    endpoints = fill(Endpoints, 4, host=np.zeros(4), serves=np.array([1, 1, 0, 0]), strings=("",))
    rows = np.array(requests, np.int64)
    table = fill(
        RequestTable, len(rows), endpoint=rows[:, 0], begin_ns=rows[:, 1], received_ns=rows[:, 1],
        answered_ns=rows[:, 2], end_ns=rows[:, 2], reader_tid=np.full(len(rows), LOOP),
        tid=np.full(len(rows), LOOP), strings=("",),
    )  # fmt: skip
    rows = np.array(asked, np.int64)
    many = len(rows)
    subrequests = fill(
        Subrequests, many, endpoint=np.full(many, 2), begin_ns=rows[:, 0], end_ns=rows[:, 0] + 1,
        tid=rows[:, 1], request=np.zeros(many), how=np.full(many, Rule.ORDER),
        attribution=np.full(many, Certainty.DOUBTFUL), connects=np.zeros(many),
        probability=np.full(many, 0.25),
    )  # fmt: skip
    owned = Owned(subrequests, fill(Slices, 0), 0, np.zeros(0, np.int64), np.zeros(many, np.bool_))
    return activity, make_workers(fill), endpoints, table, owned


def follow(fill, *what):
    found = follow_tasks(*make_tables(fill, *what)).subrequests
    return [
        (request, Rule(how).name, Certainty(sure).name)
        for request, how, sure in zip(
            found.request.tolist(), found.how.tolist(), found.attribution.tolist(), strict=True
        )
    ]


SURE, GUESS = "CERTAIN", (0, "ORDER", "DOUBTFUL")


def test_a_task_is_of_the_request_that_it_answers(fill) -> None:
    """Two requests take turns on a loop; what neither task asks, no task tells."""
    notes = [(10, 1), (20, 0), (30, 2), (40, 0), (50, 2), (60, 0), (70, 1), (80, 0)]
    notes = [(time, LOOP, number) for time, number in notes]
    requests = [(0, 5, 75), (1, 6, 55)]
    found = follow(fill, notes, requests, [(15, LOOP), (35, LOOP), (45, LOOP), (72, LOOP)])
    assert found == [(0, "TASK", SURE), (1, "TASK", SURE), GUESS, (0, "TASK", SURE)]


def test_a_connections_task_answers_one_request_after_the_other(fill) -> None:
    notes = [(10, LOOP, 1), (90, LOOP, 0)]
    found = follow(fill, notes, [(0, 5, 30), (0, 40, 80)], [(15, LOOP), (35, LOOP), (50, LOOP)])
    assert found == [(0, "TASK", SURE), (-1, "NONE", "DOUBTFUL"), (1, "TASK", SURE)]


def test_tasks_that_a_request_made_and_helpers_that_work_for_it(fill) -> None:
    notes = [
        *((10, LOOP, 1), (12, LOOP, 3 | MADE), (20, LOOP, 0), (30, LOOP, 3), (40, LOOP, 0)),
        *((50, HELPER, 3), (60, HELPER, 0), (70, LOOP, 1), (80, LOOP, 0)),
    ]
    found = follow(fill, notes, [(0, 5, 75), (1, 6, 95)], [(35, LOOP), (55, HELPER), (65, HELPER)])
    assert found == [(0, "TASK", SURE), (0, "TASK", SURE), GUESS]


def test_who_makes_the_tasks_of_several_connections_is_nobodys(fill) -> None:
    """A server's own task makes those of connections; what another of its tasks asks is unknown."""
    notes = [
        *((1, LOOP, 9), (2, LOOP, 1 | MADE), (3, LOOP, 2 | MADE), (4, LOOP, 5 | MADE)),
        *((5, LOOP, 0), (70, LOOP, 5), (72, LOOP, 0), (75, LOOP, 1), (80, LOOP, 2), (99, LOOP, 0)),
    ]
    found = follow(fill, notes, [(0, 6, 78), (1, 7, 90)], [(71, LOOP), (76, LOOP)])
    assert found == [GUESS, (0, "TASK", SURE)]


def test_a_task_that_answers_several_at_once_tells_nothing(fill) -> None:
    notes = [(10, LOOP, 1), (90, LOOP, 0)]
    found = follow(fill, notes, [(0, 5, 60), (1, 6, 80)], [(15, LOOP), (70, LOOP)])
    assert found[0] == GUESS


def test_steps_are_slices(fill) -> None:
    notes = [(10, LOOP, 1), (20, LOOP, 0), (30, LOOP, 2), (40, LOOP, 1), (55, LOOP, 0)]
    tables = make_tables(fill, notes, [(0, 5, 50), (1, 6, 35)], [(15, LOOP)])
    slices = follow_tasks(*tables).slices
    rows = zip(slices.begin_ns.tolist(), slices.end_ns.tolist(), slices.request.tolist(),
               slices.unanswered.tolist(), strict=True)  # fmt: skip
    assert [*rows] == [(10, 20, 0, 2), (30, 40, 1, 2), (40, 55, 0, 1)]


def test_without_marks_nothing_changes(fill) -> None:
    tables = make_tables(fill, [], [(0, 5, 60)], [(15, LOOP)])
    found = follow_tasks(*tables).subrequests
    assert [(*found.request, *found.how)] == [(0, Rule.ORDER)]
    assert Tasks(*tables[:-1]).find(np.array([LOOP]), np.array([15])).tolist() == [-2]
