"""The few events that a stream keeps tell finders the same as all of them."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import critpath.executions.prefilter
from critpath.executions.find import find_executions
from critpath.executions.prefilter import Prefilter
from critpath.executions.specification import parse_specification
from critpath.model import EventChunk, Events
from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.traces import read_events
from critpath.timeline.missing_switches import repair_switches

from .conftest import Recorder

PUBLIC = ("public/tc-bug446190", "public/tc-many-threads", "public/selora-namespace_live")
KERNEL_SPECIFICATIONS = (
    "process",
    "thread",
    "thread,comm=bash",
    "events:sched_switch,sched_switch,key=next_tid",
    "events:sched_process_fork,sched_process_exit",
    "events:sched_wakeup,sched_process_exit,key=tid",
)


def chunks(events: Events, size: int):
    for begin in range(0, len(events), size):
        rows = slice(begin, begin + size)
        yield EventChunk(
            events.timestamp[rows],
            events.cpu[rows],
            events.event_class[rows],
            events.offset[rows],
            events.values,
        )


def digested(events: Events, text: str, size: int = 1000, together: int = 0) -> Events:
    """Return the few, in memory; with a number, marks aside once so many are there."""
    keep = (lambda columns: lambda: columns) if together else None
    prefilter = Prefilter([parse_specification(text)], events.gaps, keep)
    with patch.object(critpath.executions.prefilter, "_TOGETHER", together):
        for chunk in chunks(events, size):
            prefilter.feed(chunk, events.classes)
        return prefilter.events(events)


def assert_same_executions(events: Events, text: str, size: int = 1000) -> int:
    """Compare the executions of all events with those of the few; return how many were kept."""
    few = digested(events, text, size)
    every = find_executions(events, text)
    for some in (few, *(digested(events, text, size, together) for together in (1, 50))):
        found = find_executions(some, text)
        assert every.id == found.id
        assert (every.comm, every.label, every.notes) == (found.comm, found.label, found.notes)
        assert every.incomplete == found.incomplete
        for column in ("begin", "end", "tid", "host"):
            np.testing.assert_array_equal(getattr(every, column), getattr(found, column))
    return len(few)


@pytest.mark.parametrize(
    "text",
    [
        "events:app:request_begin,app:request_end,key=id",
        "events:app:request_begin,app:request_end",
        *KERNEL_SPECIFICATIONS,
    ],
)
@pytest.mark.parametrize("name", ["normal", "sample-lock"])
def test_recordings_of_the_guest(guest, name, text):
    events = repair_switches(
        read_events(guest(name), (*KERNEL_EVENTS, *parse_specification(text).get_requests()))
    )
    kept = assert_same_executions(events, text)
    if "sched_" not in text:
        assert kept < len(events) / 3
    if text.startswith("events:app:"):
        aside = digested(events, text, 100, together=10).aside
        assert aside is not None
        assert len(aside.parts) > 1


@pytest.mark.parametrize("text", KERNEL_SPECIFICATIONS)
@pytest.mark.parametrize("name", PUBLIC)
def test_public_traces(shared, name, text):
    selection = (*KERNEL_EVENTS, *parse_specification(text).get_requests())
    assert_same_executions(read_events(shared(name), selection), text)


def test_windows_of_a_file(guest, tmp_path):
    events = read_events(guest("normal"), KERNEL_EVENTS)
    rows = np.random.default_rng(4).choice(len(events), 300, replace=False)
    tids = np.unique(events.column(events.rows("sched_switch"), "next_tid"))[1:]
    lines = [
        f"{events.timestamp[row]},{events.end},{tids[row % len(tids)]}"
        for row in rows
        if events.timestamp[row] < events.end
    ]
    file = tmp_path / "windows.csv"
    file.write_text("begin_ns,end_ns,tid\n" + "\n".join(lines) + "\n")
    assert_same_executions(events, f"windows:{file}")


NAMES = st.sampled_from(["a", "b", "c"])
TIDS = st.integers(0, 3)
STEP = st.one_of(
    st.tuples(st.just("switch"), st.integers(0, 2), TIDS, NAMES, TIDS, NAMES),
    st.tuples(st.just("mark"), st.integers(-1, 2), st.booleans(), st.integers(0, 1)),
    st.tuples(st.just("born"), st.integers(0, 2), st.integers(1, 3), st.booleans()),
    st.tuples(st.just("ends"), st.integers(0, 2), st.integers(1, 3), st.booleans()),
)


def recorded(steps) -> Events:
    recorder = Recorder()
    for time, step in enumerate(steps, 1):
        match step:
            case ("switch", cpu, prev, prev_name, new, new_session_name):
                recorder.switch(time, cpu, (prev, prev_name), (new, new_session_name))
            case ("mark", cpu, begins, key):
                recorder.add(time, cpu, "app:begin" if begins else "app:end", key=key)
            case ("born", cpu, tid, fork):
                if fork:
                    recorder.add(
                        time,
                        cpu,
                        "sched_process_fork",
                        parent_tid=1,
                        parent_pid=1,
                        child_tid=tid,
                        child_pid=tid,
                    )
                else:
                    recorder.add(time, cpu, "sched_wakeup_new", tid=tid)
            case ("ends", cpu, tid, exits):
                if exits:
                    recorder.add(time, cpu, "sched_process_exit", tid=tid)
                else:
                    recorder.add(time, cpu, "sched_process_exec", tid=tid, filename="/bin/a")
    # Classes of names that are there only sometimes.
    recorder.add(len(steps) + 1, 0, "app:begin", key=9).add(len(steps) + 2, 0, "app:end", key=8)
    return recorder.events()


@given(st.lists(STEP, max_size=60), st.integers(1, 20))
def test_any_events(steps, size):
    events = recorded(steps)
    for text in (
        "events:app:begin,app:end,key=key",
        "events:app:begin,app:end",
        "thread",
        "thread,comm=b",
        "process",
    ):
        assert_same_executions(events, text, size)


def test_nothing():
    events = replace(recorded([]), begin=0, end=0)
    assert len(digested(events, "process")) == 2
