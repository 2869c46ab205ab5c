"""The played kernel itself: what is played is what is recorded."""

from __future__ import annotations

import os

import pytest

from critpath.errors import CritpathError
from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.traces import read_events
from critpath_record.ftrace.tracefs import Instance


def test_all_that_is_played_is_recorded_drained_and_converted(played, tmp_path):
    recorder = played.open_recorder(tmp_path / "rec", profile="minimal")
    begin = recorder.open()
    [instance] = played.instances
    events = set(Instance.at(played.root, instance).enabled_events())
    assert played.play(0.5) > 1000
    before = recorder.count_events()
    assert played.play() > 1000
    assert recorder.count_events().events > before.events
    end = recorder.close()
    result = recorder.drain(lambda _: None)
    assert (result.loss, result.warnings, result.gaps) == ((), (), ())
    assert played.instances == []
    whole = [e for e in played.recording.events if e.name in {*events, "ftrace/print"}]
    beats = [e for e in played.recording.events if e.name == "ftrace/raw_data"]
    assert result.facts["event_count"] == len(whole) + len(beats)
    trace = read_events(tmp_path / "rec", KERNEL_EVENTS)
    times = trace.timestamp.tolist()
    assert begin < times[-1] <= trace.end
    assert played.recording.events[-1].time <= end
    assert {"/bin/true", "other"} <= {*trace.strings}


def test_what_is_not_enabled_or_while_tracing_is_off_is_not_recorded(played, tmp_path):
    recorder = played.open_recorder(tmp_path / "rec")
    recorder.open()
    played.emit("sched/sched_waking", 1, comm=b"a", pid=5)
    played.emit("sock/sk_data_ready", 1)
    assert recorder.count_events().events == 1
    recorder._instance.write("tracing_on", "0")
    played.emit("sched/sched_waking", 1, comm=b"a", pid=5)
    assert recorder.count_events().events == 1
    recorder.abort()
    assert (played.instances, list((tmp_path / "rec").iterdir())) == ([], [])


def test_losses_are_counted_and_placed(played, tmp_path):
    recorder = played.open_recorder(tmp_path / "rec")
    recorder.open()
    played.play(0.5)
    before = played.clock.now
    played.lose(1, 300)
    played.play()
    recorder.close()
    [loss] = recorder.drain(lambda _: None).loss
    assert (loss.cpu, loss.events) == (1, 300)
    [place] = read_events(tmp_path / "rec", KERNEL_EVENTS).losses
    assert (place.cpu, place.events) == (1, 300)
    assert place.begin <= before <= place.end


@pytest.mark.parametrize("action", ["make", "open", "read", "write", "remove"])
def test_faults_are_refusals(played, action):
    name = "critpath-x" if action in {"make", "remove"} else "tracing_on"
    played.refuse(action, name, 28, times=1)
    instance = Instance.at(played.root, "critpath-x")

    def use() -> None:
        instance.make()
        instance.write("tracing_on", "0")
        assert instance.read("tracing_on") == "0\n"
        played.remove(instance.path)

    with pytest.raises((OSError, CritpathError), match=os.strerror(28)):
        use()
    if instance.path.exists():
        played.remove(instance.path)
    use()
