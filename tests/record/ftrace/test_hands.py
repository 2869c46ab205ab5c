"""What others do to the instance while it records is told, and placed in time."""

from __future__ import annotations

import itertools
import subprocess
import time
from pathlib import Path

import pytest

from critpath.record.ftrace.hands import _join_touches, _Touch, find_missing_beats
from critpath.record.ftrace.preflight import missing_requirements
from critpath.record.ftrace.recorder import FtraceRecorder
from critpath.record.recorder import RecorderSettings
from critpath_marks.sessions import new_session_name

HINDERED = [o.what for o in missing_requirements(RecorderSettings("", Path())) if o.fatal]
kernel = pytest.mark.skipif(bool(HINDERED), reason="; ".join(HINDERED))
pytestmark = pytest.mark.xdist_group("kernel")

SWITCH = "events/sched/sched_switch"
WAIT = "sleep 0.05"
# As a person or a script at the same instance would do it, and undo it 50 ms later.
HANDS = {
    "tracing is turned off": f"echo 0 >tracing_on; {WAIT}; echo 1 >tracing_on",
    "tracing is left off": "echo 0 >tracing_on",
    "a mask of cpus": f"all=$(cat tracing_cpumask); echo 1 >tracing_cpumask; {WAIT}; "
    "echo $all >tracing_cpumask",
    "an event off": f"echo 0 >{SWITCH}/enable; {WAIT}; echo 1 >{SWITCH}/enable",
    "a group off": f"echo 0 >events/sched/enable; {WAIT}; echo 1 >{SWITCH}/enable",
    "an event off by name": f"echo '!sched_switch' >>set_event; {WAIT}; "
    "echo sched_switch >>set_event",
    "a filter": f"echo prev_pid==1 >{SWITCH}/filter; {WAIT}; echo 0 >{SWITCH}/filter",
    "a filter of the group": f"echo pid==1 >events/sched/filter; {WAIT}; "
    "echo 0 >events/sched/filter",
    "a list of pids": f"echo 1 >set_event_pid; {WAIT}; : >set_event_pid",
    "pids that are not traced": f"echo $$ >set_event_notrace_pid; {WAIT}; : >set_event_notrace_pid",
    "a trigger": f"echo traceoff >{SWITCH}/trigger; {WAIT}; echo '!traceoff' >{SWITCH}/trigger; "
    "echo 1 >tracing_on",
    "another clock": f"echo global >trace_clock; {WAIT}; echo mono >trace_clock",
    "a clear of everything": ": >trace",
    "a clear of one cpu": ": >per_cpu/cpu0/trace",
    "another size of the buffer": "echo 64 >buffer_size_kb",
    "another size of one buffer": "echo 64 >per_cpu/cpu0/buffer_size_kb",
    "no marks": f"echo 0 >options/markers; {WAIT}; echo 1 >options/markers",
    "overwriting off": f"echo nooverwrite >trace_options; {WAIT}; echo overwrite >trace_options",
}


def record(directory, hand):
    """Record a little with a hand on the instance: the gaps, and when the hand was there."""
    directory.mkdir()
    recorder = FtraceRecorder(RecorderSettings(new_session_name(), directory))
    recorder.start()
    time.sleep(0.05)
    place = Path(recorder.environment()["CRITPATH_MARKER"]).parent
    begin = time.monotonic_ns()
    subprocess.run(["/bin/sh", "-c", hand], cwd=place, check=True)
    end = time.monotonic_ns()
    time.sleep(0.05)
    recorder.stop()
    return recorder.finish(lambda _: None).gaps, begin, end


@kernel
def test_nobody_touches_it(tmp_path):
    gaps, _, _ = record(tmp_path / "recording", "sleep 0.1; cat tracing_on set_event >/dev/null")
    assert gaps == ()


@kernel
def test_a_filter_is_told_and_who_put_it_on(tmp_path):
    gaps, begin, end = record(tmp_path / "recording", HANDS["a filter"])
    assert len(gaps) == 1, gaps
    [gap] = gaps
    assert gap.what.startswith("events/sched/sched_switch/filter was changed by sh (")
    assert begin - 20_000_000 < gap.begin < gap.end < end + 20_000_000
    assert gap.end - gap.begin > 40_000_000


def test_who_is_heard_of_late():
    """The kernel says that a file was written before it says who did it."""
    row = [_Touch("f", 0, 9, "was changed{who}"), _Touch("f", 1, 2, "was written{who}", " by sh")]
    assert [gap.what for gap in _join_touches(row)] == ["f was changed by sh"]


@pytest.mark.long
@kernel
@pytest.mark.parametrize("hand", HANDS)
def test_no_hand_is_silent(hand, tmp_path):
    gaps, begin, end = record(tmp_path / "recording", HANDS[hand])
    assert [gap for gap in gaps if gap.begin <= end and gap.end >= begin], gaps


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
