"""Every hand on the instance that this kernel allows is told."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from critpath_marks.sessions import new_session_name
from critpath_record.ftrace.hands import Watch
from critpath_record.ftrace.preflight import find_needs
from critpath_record.ftrace.recorder import FtraceRecorder
from critpath_record.ftrace.tracefs import Instance
from critpath_record.recorder import RecorderSettings

HINDERED = [o.what for o in find_needs(RecorderSettings("", Path())) if o.fatal]
pytestmark = [
    pytest.mark.xdist_group("kernel"),
    pytest.mark.skipif(bool(HINDERED), reason="; ".join(HINDERED)),
]

EVENT = "sched/sched_switch"
SWITCH = f"events/{EVENT}"
# As a person or a script at the same instance would do it, and undo it: file and text in turn.
HANDS = {
    "tracing is turned off": ("tracing_on", "0", "tracing_on", "1"),
    "tracing is left off": ("tracing_on", "0"),
    "a mask of cpus": ("tracing_cpumask", "1", "tracing_cpumask", "3"),
    "an event off": (f"{SWITCH}/enable", "0", f"{SWITCH}/enable", "1"),
    "a group off": ("events/sched/enable", "0", f"{SWITCH}/enable", "1"),
    "an event off by name": ("set_event", "!sched_switch", "set_event", "sched_switch"),
    "a filter": (f"{SWITCH}/filter", "prev_pid==1", f"{SWITCH}/filter", "0"),
    "a filter of the group": ("events/sched/filter", "pid==1", "events/sched/filter", "0"),
    "a list of pids": ("set_event_pid", "1", "set_event_pid", ""),
    "pids that are not traced": ("set_event_notrace_pid", "1", "set_event_notrace_pid", ""),
    "a trigger": (f"{SWITCH}/trigger", "traceoff", f"{SWITCH}/trigger", "!traceoff"),
    "another clock": ("trace_clock", "global", "trace_clock", "mono"),
    "a clear of everything": ("trace", ""),
    "a clear of one cpu": ("per_cpu/cpu0/trace", ""),
    "another size of the buffer": ("buffer_size_kb", "64"),
    "another size of one buffer": ("per_cpu/cpu0/buffer_size_kb", "64"),
    "no marks": ("options/markers", "0", "options/markers", "1"),
    "overwriting off": ("trace_options", "nooverwrite", "trace_options", "overwrite"),
}


def touch(place: Path, name: str, text: str) -> None:
    """Write as a shell does: ``>`` empties what it writes to, ``>>`` adds a line."""
    adds = text.lstrip("!").startswith(("sched_", "traceoff"))
    descriptor = os.open(place / name, os.O_WRONLY | (os.O_APPEND if adds else os.O_TRUNC))
    try:
        if text:
            os.write(descriptor, f"{text}\n".encode())
    finally:
        os.close(descriptor)


@pytest.fixture(scope="module")
def instance():
    made = Instance.at(Path("/sys/kernel/tracing"), new_session_name())
    made.make()
    yield made
    made.remove()


@pytest.mark.parametrize("hand", HANDS)
def test_no_hand_is_silent(hand, instance):
    for name, text in (("tracing_on", "1"), ("trace_clock", "mono"), ("buffer_size_kb", "128")):
        instance.write(name, text)
    assert instance.enable_events([EVENT.replace("/", ":")]) == []
    watch = Watch(instance, [EVENT])
    assert watch.watched
    begin = time.monotonic_ns()
    steps = HANDS[hand]
    for name, text in zip(steps[::2], steps[1::2], strict=True):
        touch(instance.path, name, text)
    end = time.monotonic_ns()
    gaps = watch.stop(end + 10**9)
    assert [gap for gap in gaps if gap.end >= begin], gaps


def test_who_only_reads_is_not_told(instance):
    watch = Watch(instance, [EVENT])
    assert instance.read("tracing_on")
    assert instance.read("set_event")
    assert watch.stop(time.monotonic_ns() + 10**9) == ()


def test_a_recording_tells_a_filter_and_who_put_it_on(tmp_path):
    recorder = FtraceRecorder(RecorderSettings(new_session_name(), tmp_path))
    recorder.open()
    place = Path(recorder.environment()["CRITPATH_MARKER"]).parent
    # It stays until it was looked at: who is gone is known by its number only.
    script = f"echo prev_pid==1 >{SWITCH}/filter; echo 0 >{SWITCH}/filter; echo done; read line"
    begin = time.monotonic_ns()
    pipe = subprocess.PIPE
    with subprocess.Popen(["/bin/sh", "-c", script], cwd=place, stdin=pipe, stdout=pipe) as hand:
        assert hand.stdout.readline() == b"done\n"
        recorder.close()
    gaps = recorder.drain(lambda _: None).gaps
    # One, or where the hand was slow to let go of the file one for that as well.
    told = [gap for gap in gaps if gap.what.startswith(f"{SWITCH}/filter was ")]
    assert any(" by sh (" in gap.what for gap in told)
    assert all(gap.end > begin for gap in told)
