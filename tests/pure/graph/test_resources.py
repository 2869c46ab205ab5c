"""What limits, disks and memory made of waits: drawn paths, and what the kernel counted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from detailing import texts_of
from hypothesis import given
from hypothesis import strategies as st

from critpath.graph.resources import _find_held, explain_waits
from critpath.model import CriticalPaths, PathSet, ReachedLimit, Resources, State, Workers
from critpath.model.paths import Executions
from critpath.model.recording import DiskRate

MS = 1_000_000
WEB, OTHER = 10, 20
NONE = np.zeros((0, 5), np.int64)


def column(of, kind=np.int64):
    return np.array(of, kind)


def path_of(*segments):
    """Return one path of segments (begin and end in ms, state, thread), of thread 10."""
    begin, end, state, tid = zip(*segments, strict=True)
    n = len(segments)
    paths = CriticalPaths(
        start=column([0, n]),
        begin=column(begin) * MS,
        end=column(end) * MS,
        state=column(state, np.uint8),
        detail=np.zeros(n, np.int32),
        comm=np.zeros(n, np.int32),
        tid=column(tid),
        host=np.zeros(n, np.int64),
        cpu=np.zeros(n, np.int32),
        lossy=np.zeros(n, np.bool_),
        strings=("",),
    )
    executions = Executions(
        id=("1",),
        label=("",),
        begin=paths.begin[:1],
        end=paths.end[-1:],
        host=column([0]),
        tid=column([WEB]),
        comm=("web",),
    )
    return PathSet(executions, paths, column([0]), ("r",), "process", (), np.zeros(1, np.bool_))


def workers(*rows):
    """Return threads (tid, pid, parent)."""
    tid, pid, parent = zip(*rows, strict=True)
    n = len(rows)
    minus = np.full(n, -1, np.int64)
    return Workers(
        *(np.zeros(n, np.int64), column(tid), column(pid), np.zeros(n, np.int32)),
        *(minus, minus, column(parent), minus, np.full(n, -1, np.int32)),
    )


TWO = workers((WEB, WEB, -1), (OTHER, OTHER, -1))


def resources(periods=(), requests=(), reclaims=()):
    def of(rows, width):
        return column(rows).reshape(-1, width)

    return Resources(of(periods, 2), of(requests, 5), of(reclaims, 4))


def held(*rows, what="throttles", limits=None, pids=(WEB,)):
    """Return a group that was held back (begin, end in ms, times, ms)."""
    return ReachedLimit(
        "/web",
        limits or {"quota": 4 * MS, "period": 10 * MS},
        frozenset(pids),
        {what: tuple((a * MS, b * MS, n, time * MS) for a, b, n, time in rows)},
    )


def explained(paths, *reached, found=None, disks=None, names=("",), threads=TWO):
    made = explain_waits(
        paths, threads, found or resources(), reached, disks or {254 << 20: "vda"}, names
    )
    assert made.paths.begin[0] == paths.paths.begin[0]
    assert made.paths.end[-1] == paths.paths.end[-1]
    assert (made.paths.begin[1:] == made.paths.end[:-1]).all()
    return [
        (b / MS, e / MS, State(s).name, text)
        for b, e, s, text in zip(
            *(made.paths.begin, made.paths.end, made.paths.state, texts_of(made.paths)), strict=True
        )
    ]


PERIODS = tuple((at * MS, 7) for at in range(0, 200, 10))
QUOTA = "control group /web, 4.00 ms in each 10.0 ms"


def test_a_quota_held_a_thread_back_while_another_program_had_the_cpu():
    paths = path_of((0, 4, State.RUN, WEB), (4, 12, State.WAIT_CPU, WEB), (12, 13, State.RUN, WEB))
    assert explained(paths, held((3, 13, 1, 6)), found=resources(PERIODS)) == [
        (0, 4, "RUN", ""),
        (4, 12, "WAIT_QUOTA", QUOTA),  # with the turn that it lost
        (12, 13, "RUN", ""),
    ]


def test_before_its_group_was_held_back_others_kept_it_from_the_cpu():
    paths = path_of((0, 2, State.RUN, WEB), (2, 12, State.WAIT_CPU, WEB))
    assert explained(paths, held((3, 13, 1, 6)), found=resources(PERIODS)) == [
        (0, 2, "RUN", ""),
        (2, 4, "WAIT_CPU", ""),
        (4, 10, "WAIT_QUOTA", QUOTA),
        (10, 12, "WAIT_CPU", ""),
    ]


def test_without_the_timers_of_periods_the_wait_ends_with_what_was_counted():
    paths = path_of((0, 4, State.RUN, WEB), (4, 10, State.WAIT_CPU, WEB), (10, 11, State.RUN, WEB))
    assert explained(paths, held((3, 13, 1, 6)))[1] == (4, 10, "WAIT_QUOTA", QUOTA)


def test_a_quota_held_back_whom_others_queue_behind():
    """What a recorder that looks seldom has counted may be of any time since it looked last."""
    paths = path_of((0, 4, State.RUN, OTHER), (4, 12, State.QUEUED, WEB), (12, 14, State.RUN, WEB))
    beneath = np.array([0, State.WAIT_CPU, 0], np.uint8)
    queued = replace(paths, paths=replace(paths.paths, beneath=beneath))
    for row, state in (((-90, 20, 9, 40), "WAIT_QUOTA"), ((-90, 20, 9, 3), "WAIT_CPU"),
                       ((-90, 3, 9, 40), "WAIT_CPU")):  # fmt: skip
        made = explain_waits(queued, TWO, resources(), [held(row)], {}, ("",))
        assert State(made.paths.beneath[1]).name == state
        assert made.paths.beneath[[0, 2]].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("why", "paths", "group"),
    [
        ("not in the group", path_of((4, 12, State.WAIT_CPU, OTHER)), held((3, 13, 1, 6))),
        ("not then", path_of((4, 9, State.WAIT_CPU, WEB)), held((30, 43, 1, 6))),
        ("over before the period was", path_of((4, 9, State.WAIT_CPU, WEB)), held((3, 13, 1, 6))),
        ("not held back at all", path_of((4, 12, State.WAIT_CPU, WEB)), held((3, 13, 1, 0))),
        ("asleep", path_of((4, 12, State.WAIT_TIMER, WEB)), held((3, 13, 1, 6))),
    ],
)
def test_who_else_had_the_cpu_is_said_where_no_quota_held(why, paths, group):
    (segment,) = explained(paths, group, found=resources(PERIODS))
    assert segment[2] != "WAIT_QUOTA", why


def test_the_timer_is_that_of_the_group():
    others = tuple((at * MS, 9) for at in range(5, 200, 100))
    paths = path_of((0, 4, State.RUN, WEB), (4, 12, State.WAIT_CPU, WEB))
    found = resources((*PERIODS, *others))
    assert explained(paths, held((3, 13, 1, 6)), found=found)[1][:3] == (4, 12, "WAIT_QUOTA")


def test_what_a_process_of_the_group_created_is_in_it():
    threads = workers((WEB, WEB, -1), (OTHER, OTHER, 0))
    paths = path_of((0, 4, State.RUN, OTHER), (4, 10, State.WAIT_CPU, OTHER))
    assert explained(paths, held((3, 13, 1, 6)), threads=threads)[1][2] == "WAIT_QUOTA"


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(1, 25), st.integers(0, 3), st.integers(0, 20)), max_size=8),
    st.booleans(),
)
def test_never_more_than_was_counted(lengths, polls, timers):
    at, segments = 0, []
    for run, wait in lengths:
        segments += [(at, at + run, State.RUN, WEB)] if run else []
        segments.append((at + run, at + run + wait, State.WAIT_CPU, WEB))
        at += run + wait
    since, rows = 0, []
    for length, times, time in polls:
        rows.append((since, since + length, times, time))
        since += length
    group = held(*rows)
    paths = path_of(*segments).paths
    waits = np.stack([paths.begin, paths.end], axis=1)[paths.state == State.WAIT_CPU]
    found = _find_held(group, resources(PERIODS if timers else ()).periods)
    spans = [s for of in (found.allot(waits) if found else {}).values() for s in of]
    told = sum(end - begin for begin, end in spans)
    assert told <= sum(time for *_, time in rows) * MS


REQUESTS = (  # issued, completed, device, thread, name
    (2 * MS, 30 * MS, 254 << 20, 99, 1),
    (10 * MS, 40 * MS, 254 << 20, WEB, 2),
    (12 * MS, 13 * MS, 8 << 20, 98, 3),
)


def test_whose_requests_a_disk_was_busy_with():
    paths = path_of((0, 10, State.RUN, WEB), (10, 40, State.WAIT_DISK, WEB))
    found = resources(requests=REQUESTS)
    names = ("", "flusher", "web", "else")
    (_, wait) = explained(paths, found=found, names=names)
    assert wait == (10, 40, "WAIT_DISK", "vda, busy with requests of `flusher`")


def test_requests_of_the_execution_itself_are_no_rivals():
    paths = path_of((0, 10, State.RUN, 99), (10, 40, State.WAIT_DISK, WEB))
    (_, wait) = explained(paths, found=resources(requests=REQUESTS), names=("", "a", "b", "c"))
    assert wait[3] == "vda"


def test_a_wait_that_no_request_ended_stays_as_it_is():
    paths = path_of((50, 60, State.WAIT_DISK, WEB))
    assert explained(paths, found=resources(requests=REQUESTS)) == [(50, 60, "WAIT_DISK", "")]


def test_a_limit_of_the_disks_rate():
    paths = path_of((0, 10, State.RUN, WEB), (10, 40, State.WAIT_DISK, WEB))
    group = held(
        (0, 50, 100, 50),
        what=DiskRate(254 << 20, "wbps"),
        limits={DiskRate(254 << 20, "wbps"): 1 << 20},
    )
    assert explained(paths, group, found=resources(requests=REQUESTS))[1][3] == (
        "vda, limit of 1.0 MiB written a second, control group /web"
    )


@pytest.mark.parametrize(
    ("of_group", "detail"),
    [(1, "memory limit of 64 MiB, control group /web"), (0, "the machine has no more")],
)
def test_freeing_memory_is_a_state(of_group, detail):
    run, wait = State.RUN, State.WAIT_DISK
    paths = path_of((0, 10, run, WEB), (10, 20, wait, WEB), (20, 30, run, WEB))
    group = held((0, 30, 5, 0), what="memory", limits={"memory": 64 << 20})
    found = resources(reclaims=((4 * MS, 25 * MS, WEB, of_group), (0, 30 * MS, OTHER, of_group)))
    assert explained(paths, group, found=found) == [
        (0, 4, "RUN", ""),
        (4, 10, "RECLAIM", detail),
        (10, 20, "RECLAIM", detail),
        (20, 25, "RECLAIM", detail),
        (25, 30, "RUN", ""),
    ]


def test_nothing_known_changes_nothing():
    paths = path_of((0, 10, State.WAIT_CPU, WEB))
    assert explain_waits(paths, TWO, resources(), (), {}, ("",)) is paths
