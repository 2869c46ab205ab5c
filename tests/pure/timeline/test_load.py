"""How busy the machine was, in slots that double as a recording goes on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from building import build

from critpath.model import Kind
from critpath.timeline.replay import Replayer

MS = 1 << 20  # of the shortest slot


def load_of(rows, end):
    """Return the hundredths of a cpu that threads had in each slot, and a slot's length."""
    events = build(rows, end=end)
    replayer = Replayer(
        hosts=events.hosts,
        environment=events.environment,
        losses=(),
        code=lambda _: 0,
        text=lambda _: "",
        has_waking=False,
        has_syscalls=False,
    )
    replayer.feed(events, events.classes)
    replayer.finish(end)
    found = replayer.load(end)
    return found.load, found.load_slot_ns


def switches(cpu, *moments):
    """Return a thread that comes and goes on a cpu: at each moment the other of it and nobody."""
    pairs = [(0, 7), (7, 0)]
    return [
        (at, cpu, Kind.SWITCH, (a, 0, b)) for i, at in enumerate(moments) for a, b in [pairs[i % 2]]
    ]


def test_a_slot_has_what_all_cpus_were_busy_in_it():
    rows = sorted([*switches(0, 0, 2 * MS), *switches(1, MS, MS + MS // 2, 3 * MS, 4 * MS)])
    assert load_of(rows, 4 * MS) == ((100, 150, 0, 100), MS)


@pytest.mark.parametrize("times", [1, 3, 50])
def test_the_time_in_all_slots_is_what_threads_had_however_long_a_recording_is(times):
    moments = [m for i in range(64 * times) for m in (i * 2 * MS, i * 2 * MS + MS)]
    load, slot = load_of(switches(0, *moments), 128 * times * MS)
    assert len(load) <= 64
    assert sum(load) * slot == pytest.approx(100 * 64 * times * MS, rel=0.02)
    assert set(load) == {50}


def test_a_recording_shorter_than_a_slot_has_none():
    assert load_of(switches(0, 0, 2), 5) == (None, None)
