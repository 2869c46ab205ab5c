"""Switches out of idle that a kernel did not write."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from building import build, drawn

from critpath.model import Kind, Loss
from critpath.timeline.missing_switches import with_missing_switches
from critpath.timeline.replay import replay

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
    filled = with_missing_switches(build(GAPPED))
    assert len(filled) == len(WHOLE)
    assert lives(filled) == lives(build(WHOLE))
    assert lives(build(GAPPED)) != lives(build(WHOLE))
    assert filled.environment[-1] == {"switches_put_in": 1, "switches_written": 7}
    assert not filled.warnings


def test_a_wake_from_another_cpu():
    rows = [row for row in WHOLE if row[2] not in {ENTRY, EXIT} and row[0] != 20]
    rows.insert(4, (22, 1, WAKING, (1, 0)))
    gapped = [row for row in rows if row != (22, 0, SWITCH, (0, 0, 1))]
    assert lives(with_missing_switches(build(gapped))) == lives(build(rows))


def test_nothing_is_put_into_what_is_whole():
    events = build(WHOLE)
    assert with_missing_switches(events) is events


def test_nothing_is_put_where_events_were_lost():
    events = build(GAPPED, losses=[Loss(12, 18, 0, 0, 3, 0, "discarded")])
    assert with_missing_switches(events) is events


def test_nothing_is_put_where_the_thread_was_not_woken():
    events = build([row for row in GAPPED if row != (20, 0, WAKING, (1, 0))])
    assert with_missing_switches(events) is events


def test_what_was_there_stays_as_it_was():
    events = build(GAPPED)
    filled = with_missing_switches(events)
    kept = np.delete(np.arange(len(filled)), 7)
    assert (filled.timestamp[kept] == events.timestamp).all()
    assert (filled.offset[kept] == events.offset).all()
    assert (np.diff(filled.timestamp) >= 0).all()
