"""What others do to the instance while it records is told, and placed in time."""

from __future__ import annotations

import itertools
import threading

import pytest

from critpath_record.ftrace.hands import Watch, _join_touches, _Touch, find_missing_beats
from critpath_record.ftrace.tracefs import Instance

SWITCH = "sched/sched_switch"
# What a hand writes, whether it undoes it, and what is said.
HANDS = {
    "tracing off": ("tracing_on", "0", "1", "was changed{who}"),
    "left off": ("tracing_on", "0", "", "was changed{who} and stayed so"),
    "filter": (f"events/{SWITCH}/filter", "pid", "none", "was changed{who}"),
    "pids": ("set_event_pid", "1", "", "was changed{who} and stayed so"),
    "the same": ("buffer_size_kb", "1408", "", "was written{who}, which empties the buffer"),
    "clear": ("trace", "", "", "was written{who}, which empties the buffer"),
}


@pytest.fixture
def instance(played):
    """Return an instance of the played kernel whose files are all there."""
    made = Instance.at(played.root, "critpath-x")
    made.make()
    for name in ("filter", "trigger"):
        made.read(f"events/{SWITCH}/{name}")
    for name in {name for name, *_ in HANDS.values()} - {f"events/{SWITCH}/filter"}:
        made.read(name)
    return made


@pytest.fixture
def noticed(monkeypatch):
    """Return an event that is set whenever a watch has looked at what was touched."""
    event, compare = threading.Event(), Watch._compare

    def note(watch, *arguments):
        compare(watch, *arguments)
        event.set()

    monkeypatch.setattr(Watch, "_compare", note)
    return event


@pytest.mark.parametrize("hand", HANDS)
def test_a_hand_is_told(played, instance, noticed, hand):
    name, text, undone, said = HANDS[hand]
    watch = Watch(instance, [SWITCH])
    assert watch.watched
    begin = played.clock.now
    for value in (text, undone) if undone else (text,):
        noticed.clear()
        with (instance.path / name).open("r+b") as stream:  # as somebody else does it
            stream.write(f"{value}\n".encode())
            stream.flush()
            assert noticed.wait(60)
    played.clock.sleep(1)
    gaps = watch.stop(played.clock.now)
    [gap] = [gap for gap in gaps if gap.what.startswith(f"{name} ")]
    first, last = said.split("{who}")
    assert gap.what.removeprefix(f"{name} ").startswith(first)
    assert gap.what.endswith(last)
    assert gap.begin <= begin < gap.end


def test_who_only_looks_is_not_told(played, instance):
    watch = Watch(instance, [SWITCH])
    assert (instance.path / "tracing_on").read_text(encoding="ascii")
    assert watch.stop(played.clock.now) == ()


def test_who_is_heard_of_late():
    """The kernel says that a file was written before it says who did it."""
    row = [_Touch("f", 0, 9, "was changed{who}"), _Touch("f", 1, 2, "was written{who}", " by sh")]
    assert [gap.what for gap in _join_touches(row)] == ["f was changed by sh"]


def test_missing_numbers_are_the_places():
    beats = [(10 * n, n) for n in range(1, 11)]
    whole = [(0, 0), *beats]
    assert list(find_missing_beats(0, whole, 11, 0, 110)) == []
    for low, high in itertools.combinations(range(12), 2):
        kept = [(time, n) for time, n in whole if not low <= n < high]
        gaps = list(find_missing_beats(3, kept, 11, 0, 110))
        inside = [(time, n) for time, n in whole if low <= n < high]
        assert bool(gaps) == bool(inside)
        for gap in gaps:
            assert gap.cpu == 3
            assert all(gap.begin <= time <= gap.end for time, _ in inside)
    # Late is not lost, and who was killed could not count.
    assert list(find_missing_beats(0, [(0, 0), (900, 1)], 2, 0, 910)) == []
    assert list(find_missing_beats(0, [(0, 0), (10, 1)], None, 0, 910)) == []
