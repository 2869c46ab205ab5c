"""Switches out of idle that a kernel did not write."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "oracle"))
import missing_switches as twin
from building import build, drawn
from test_blocks import chunks_of, streamed
from wild import gapped_events, on_two_hosts, wild_events

from critpath.model import EventChunk, Kind, Loss
from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.traces import read_events
from critpath.schema.environment import Environment
from critpath.timeline.missing_switches import (
    MissingSwitches,
    insert_switches,
    repair_switches,
)
from critpath.timeline.replay import replay
from critpath_record.ftrace.convert import convert

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
SWITCH, WAKING = Kind.SWITCH, Kind.WAKING
ENTRY, EXIT = Kind.TIMER_ENTRY, Kind.TIMER_EXIT

# 1 sleeps on cpu 0 until a timer wakes it at 20; it runs from 22 to 40 and wakes 2.
WHOLE = [
    (0, 0, SWITCH, (0, 0, 1)),
    (0, 1, SWITCH, (0, 0, 2)),
    (5, 1, SWITCH, (2, 1, 0)),
    (10, 0, SWITCH, (1, 1, 0)),
    (19, 0, ENTRY, ()),
    (20, 0, WAKING, (1, 0)),
    (22, 0, EXIT, ()),
    (22, 0, SWITCH, (0, 0, 1)),
    (30, 0, WAKING, (2, 1)),
    (31, 1, SWITCH, (0, 0, 2)),
    (40, 0, SWITCH, (1, 1, 0)),
    (50, 1, SWITCH, (2, 1, 0)),
]
GAPPED = [row for row in WHOLE if row != (22, 0, SWITCH, (0, 0, 1))]


def lives(events):
    timelines = replay(events)
    return [drawn(timelines, tid) for tid in (1, 2)]


def test_it_is_put_after_the_wake_and_the_interrupt_that_was_open():
    filled = repair_switches(build(GAPPED))
    assert len(filled) == len(WHOLE)
    assert lives(filled) == lives(build(WHOLE))
    assert lives(build(GAPPED)) != lives(build(WHOLE))
    assert filled.environment[-1] == Environment(switches_put_in=1, switches_written=7)
    assert not filled.warnings


def test_a_wake_from_another_cpu():
    rows = [row for row in WHOLE if row[2] not in {ENTRY, EXIT} and row[0] != 20]
    rows.insert(4, (22, 1, WAKING, (1, 0)))
    gapped = [row for row in rows if row != (22, 0, SWITCH, (0, 0, 1))]
    assert lives(repair_switches(build(gapped))) == lives(build(rows))


def test_nothing_is_put_into_what_is_whole():
    events = build(WHOLE)
    assert repair_switches(events) is events


def test_nothing_is_put_where_events_were_lost():
    events = build(GAPPED, losses=[Loss(12, 18, 0, 0, 3, 0, "discarded")])
    assert repair_switches(events) is events


def test_nothing_is_put_where_the_thread_was_not_woken():
    events = build([row for row in GAPPED if row != (20, 0, WAKING, (1, 0))])
    assert repair_switches(events) is events


def test_what_was_there_stays_as_it_was():
    events = build(GAPPED)
    filled = repair_switches(events)
    kept = np.delete(np.arange(len(filled)), 7)
    assert (filled.timestamp[kept] == events.timestamp).all()
    assert (filled.offset[kept] == events.offset).all()
    assert (np.diff(filled.timestamp) >= 0).all()


COLUMNS = ("timestamp", "cpu", "event_class", "offset", "values")


def assert_as_the_twin(events):
    filled, expected = repair_switches(events), twin.repair_switches(events)
    for name in COLUMNS:
        assert (getattr(filled, name) == getattr(expected, name)).all(), name
    assert filled.environment == expected.environment
    assert filled.warnings == expected.warnings
    return len(filled) - len(events)


@given(gapped_events() | wild_events() | on_two_hosts(gapped_events()))
def test_random_events_as_the_twin(events):
    assert_as_the_twin(events)


def rows_with_fields(chunks, fields=9):
    """What the events of some chunks say, whatever their offsets."""
    rows = []
    for chunk in chunks:
        values = np.concatenate([chunk.values, np.zeros(fields, np.int64)])
        for row in range(len(chunk)):
            head = [int(getattr(chunk, name)[row]) for name in COLUMNS[:3]]
            at = int(chunk.offset[row])
            rows.append((head, values[at : at + fields].tolist()))
    return rows


@given(gapped_events(), st.lists(st.integers(0, 9), max_size=30))
def test_chunks_give_the_same(events, sizes):
    sizes = [*sizes, len(events)]
    search = MissingSwitches(len(events.hosts))
    for chunk in chunks_of(events, sizes):
        search.feed(chunk, events.classes)
    insertions = search.finish(events.losses)
    expected = twin.repair_switches(events)
    assert len(insertions) == len(expected) - len(events)
    fields = [len(c.fields) for c in events.classes]
    found = rows_with_fields(insert_switches(chunks_of(events, sizes), insertions, events.classes))
    whole = EventChunk(*(getattr(expected, name) for name in COLUMNS))
    for (head, values), (head_, values_) in zip(found, rows_with_fields([whole]), strict=True):
        assert head == head_
        assert values[: fields[head[2]]] == values_[: fields[head[2]]]


@given(gapped_events() | wild_events())
def test_the_replay_says_where_there_may_be_something_to_put_in(events):
    if len(repair_switches(events)) > len(events):
        assert streamed(events, [len(events)], lambda: False)[0].contradicted


def test_the_replay_says_that_there_is_nothing_to_put_in(guest):
    events = read_events(guest("normal"), KERNEL_EVENTS)
    assert not streamed(events, [len(events)], lambda: False)[0].contradicted


@pytest.mark.parametrize("name", ["normal", "lossy", "sample-quota", "plain"])
def test_recordings_as_the_twin(guest, name):
    assert_as_the_twin(read_events(guest(name), KERNEL_EVENTS))


def test_a_recording_of_this_kernel_as_the_twin(unpack, tmp_path):
    raw = next(unpack(FIXTURES / "ftrace-raw" / "minimal.tar.xz").rglob("raw.json")).parent
    convert(raw, tmp_path / "trace", lambda _: None)
    assert assert_as_the_twin(read_events(tmp_path / "trace", KERNEL_EVENTS)) > 0


def test_codes_of_another_stream():
    events = build(GAPPED)
    search = MissingSwitches(1)
    search.feed(events, events.classes)
    insertions = search.finish(())
    other = insertions.recoded(events.strings.__getitem__, {"swapper": 70, "t1": 71}.__getitem__)
    assert insertions.values.tolist() == [[1, 0, 0, 2, 1]]
    assert other.values.tolist() == [[70, 0, 0, 71, 1]]


def test_classes_of_another_recording_are_refused():
    events = build(GAPPED)
    search = MissingSwitches(1)
    search.feed(events, events.classes)
    with pytest.raises(ValueError, match="classes"):
        list(insert_switches([events], search.finish(()), events.classes[::-1]))


def test_what_there_is_no_room_for_is_counted_and_said():
    # Interrupts of a cpu that is idle all the while.
    ticks = [row for t in range(11, 19) for row in ((t, 0, ENTRY, ()), (t, 0, EXIT, ()))]
    rows = sorted([*GAPPED, *ticks], key=lambda row: row[0])
    events = build(rows)
    for most, put, left in ((5, 0, 1), (9, 1, 0)):
        search = MissingSwitches(1, most=most)
        search.feed(events, events.classes)
        insertions = search.finish(())
        assert (len(insertions), insertions.left, len(insertions.warnings)) == (put, left, left)
