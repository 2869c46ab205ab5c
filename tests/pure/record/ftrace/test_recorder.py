"""The ftrace recorder on a played kernel: order, what fails, what is left, what is said."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path

import pytest

from critpath.errors import CritpathError, UsageError
from critpath.model import EventRequest, Kind
from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.traces import read_events
from critpath_marks.sessions import new_session_name
from critpath_record import profiles, registry
from critpath_record.ftrace import drain, tracefs
from critpath_record.ftrace import recorder as module
from critpath_record.ftrace.cleanup import find_leftovers
from critpath_record.ftrace.recorder import FtraceRecorder, finish_killed, open_recorder
from critpath_record.recorder import RecorderSettings, UnfinishedError
from critpath_record.registry import register

PROFILE = """<?xml version="1.0" encoding="UTF-8"?>
<sessions><session><name>x</name><domains><domain><type>KERNEL</type><channels><channel>
<name>kernel</name><enabled>true</enabled><events>{events}</events></channel></channels>
</domain></domains></session></sessions>
"""
RULE = "<event><name>{}</name><enabled>true</enabled><type>TRACEPOINT</type></event>"


def silent(message: str) -> None:
    assert message


@pytest.fixture(autouse=True)
def nothing_is_left(played):
    before = {p.name for p in Path("/proc/self/fd").iterdir()}
    yield
    assert played.instances == []
    assert [t.name for t in threading.enumerate() if t.name.startswith("critpath")] == []
    assert {p.name for p in Path("/proc/self/fd").iterdir()} <= before


@pytest.fixture
def settings(tmp_path):
    def make(name="rec", **values):
        (tmp_path / name).mkdir()
        return RecorderSettings(new_session_name(), tmp_path / name, **values)

    return make


@pytest.fixture
def profile(tmp_path, monkeypatch):
    def make(name, events):
        text = PROFILE.format(events="".join(RULE.format(event) for event in events))
        (tmp_path / f"{name}.lttng").write_text(text, encoding="utf-8")
        monkeypatch.setattr(profiles, "profile_directory", lambda: tmp_path)

    return make


def record(played, settings):
    """Record all that is played; return the result, and when it began and ended."""
    recorder = open_recorder(settings)
    begin = recorder.open()
    played.play()
    end = recorder.close()
    recorded = recorder.drain(silent)
    recorded.release()
    return recorded, begin, end


def fail(error):
    def function(*_, **__):
        raise error

    return function


# ------------------------------------------------------------------------ what is recorded


def test_what_the_kernel_had_is_in_the_trace_and_told(played, settings):
    made = settings(keep_raw=True)
    recorded, begin, end = record(played, made)
    assert (recorded.loss, recorded.warnings, recorded.gaps) == ((), (), ())
    assert recorded.facts["name"] == "ftrace"
    assert {"sched_switch", "sched_process_exec"} <= {*recorded.facts["events"]}
    assert recorded.facts["missing"] == []
    assert recorded.facts["priority"] == "fifo"
    assert recorded.facts["clock"]["epoch"] == played.recording.json("raw")["epoch"]
    assert recorded.facts["marks"] == 6
    events = read_events(made.directory / "trace", KERNEL_EVENTS)
    kinds = {c.kind: i for i, c in enumerate(events.classes)}
    executed = [
        events.strings[events.values[offset + 1]]
        for offset in events.offset[events.event_class == kinds[Kind.EXEC]]
    ]
    assert executed.count("/bin/true") == 5
    exits = events.timestamp[events.event_class == kinds[Kind.EXIT]]
    assert sum(begin <= t <= end for t in exits) >= 6
    counts = json.loads((made.directory / "raw/stats.json").read_text(encoding="utf-8"))
    assert {c["entries"] + c["overrun"] for c in counts.values()} == {0}
    # What conversion adds is not counted as the kernel's.
    count = recorded.facts["event_count"]
    assert count == sum(c["read events"] for c in counts.values())
    dumped = (EventRequest(Kind.OTHER, ("lttng_statedump_process_state",)),)
    assert read_events(made.directory / "trace", dumped).total > count


def test_tracing_is_on_only_when_all_is_ready_and_off_before_it_is_moved(played, settings):
    record(played, settings())
    calls = played.calls
    pipe, on = ("open", "per_cpu/cpu1/trace_pipe_raw"), ("write", "tracing_on", "1")
    off = [i for i, call in enumerate(calls) if call == ("write", "tracing_on", "0")]
    assert calls.index(pipe) < calls.index(on)
    last_event = max(i for i, call in enumerate(calls) if call[:2] == ("write", "set_event"))
    assert off[0] < last_event < calls.index(on) < off[-1]
    assert ("write", "trace_clock", "mono") in calls
    assert {call[0] for call in calls[off[-1] + 1 :]} == {"read", "remove"}
    assert [call[0] for call in calls if call[0] in {"make", "remove"}] == ["make", "remove"]


def test_pages_are_whole_and_can_be_kept(played, settings):
    made = settings(keep_raw=True)
    record(played, made)
    raw = made.directory / "raw"
    description = json.loads((raw / "raw.json").read_text(encoding="utf-8"))
    assert description["format"] == "critpath/raw/1"
    assert description["session"] == made.session
    assert description["begin"] < description["end"]
    for cpu in description["cpus"]:
        assert (raw / f"cpu{cpu}").stat().st_size % description["page_bytes"] == 0
    assert {"sched.sched_switch", "task.task_newtask", "ftrace.print"} <= {
        p.name for p in (raw / "formats").iterdir()
    }
    for name in ("statedump.json", "statedump-end.json"):
        assert json.loads((raw / name).read_text(encoding="utf-8"))


def test_the_raw_data_goes_when_it_is_not_kept(played, settings):
    made = settings()
    record(played, made)
    assert [p.name for p in made.directory.iterdir()] == ["trace"]


def test_a_command_is_told_where_its_marks_go(played, settings):
    recorder = open_recorder(settings())
    recorder.open()
    told = recorder.environment()
    place = played.root / "instances" / played.instances[0] / "trace_marker"
    assert told["CRITPATH_MARKER"] == str(place)
    [descriptor] = recorder.descriptors()
    assert told["CRITPATH_MARKER_FD"] == str(descriptor)
    assert os.get_inheritable(descriptor)
    assert Path(f"/proc/self/fd/{descriptor}").readlink() == place
    recorder.abort()


def test_loss_is_what_the_kernel_counted(played, settings):
    made = settings(keep_raw=True)
    recorder = open_recorder(made)
    recorder.open()
    played.play(0.3)
    played.lose(0, 70)
    played.play(0.6)
    played.lose(1, 500)
    played.play()
    recorder.close()
    recorded = recorder.drain(silent)
    assert {loss.cpu: loss.events for loss in recorded.loss} == {0: 70, 1: 500}
    events = read_events(made.directory / "trace", KERNEL_EVENTS)
    assert {loss.cpu: loss.events for loss in events.losses} == {0: 70, 1: 500}


def test_events_are_counted_while_it_records(played, settings):
    recorder = open_recorder(settings())
    recorder.open()
    before = recorder.count_events()
    played.play(0.5)
    played.lose(0, 4)
    after = recorder.count_events()
    recorder.abort()
    assert (before.events, before.lost) == (0, 0)
    assert (after.events > 100, after.lost) == (True, 4)


def test_two_recorders_at_once_do_not_meet(played, settings):
    first, second = settings("first"), settings("second")
    recorders = [open_recorder(first), open_recorder(second)]
    for recorder in recorders:
        recorder.open()
    assert played.instances == sorted((first.session, second.session))
    played.play()
    for recorder in recorders:
        recorder.close()
        assert recorder.drain(silent).loss == ()
    one, two = (read_events(made.directory / "trace", KERNEL_EVENTS) for made in (first, second))
    assert one.total == two.total > 1000


@pytest.mark.parametrize("seen", [True, False])
def test_a_cpu_that_comes_while_recording_is_recorded_too(played, settings, seen):
    played.hide_cpu(1)
    made = settings(keep_raw=True)
    recorder = open_recorder(made)
    recorder.open()
    if seen:
        played.show_cpus()
        found = recorder._drain._add
        added = threading.Event()

        def add(cpu):
            stream = found(cpu)
            added.set()
            return stream

        recorder._drain._add = add
        now = played.clock.now
        # It looks once a second, whenever pages wake it: its thread may only just begin.
        for _ in range(600):
            played.clock.now += 2_000_000_000
            played.emit("sched/sched_waking", 0, at=now)
            if added.wait(0.1):
                break
        assert added.is_set()
        played.clock.now = now
    played.play()
    recorder.close()
    recorded = recorder.drain(silent)
    assert (recorded.loss, recorded.warnings) == ((), ())
    events = read_events(made.directory / "trace", KERNEL_EVENTS)
    assert {*events.cpu.tolist()} == {0, 1}
    description = json.loads((made.directory / "raw/raw.json").read_text(encoding="utf-8"))
    assert description["cpus"] == [0, 1]


def test_a_cpu_that_goes_takes_with_it_what_nobody_has_read(played, settings):
    made = settings(keep_raw=True)
    recorder = open_recorder(made)
    recorder.open()
    played.play(0.5)
    played.take_offline(1)
    played.play()
    recorder.close()
    recorded = recorder.drain(silent)
    events = read_events(made.directory / "trace", KERNEL_EVENTS)
    last = {cpu: int(events.timestamp[events.cpu == cpu].max()) for cpu in (0, 1)}
    assert last[1] < last[0]
    assert recorded.facts["event_count"] > 1000


def test_half_a_page_at_the_end_is_no_page(played, settings):
    made = settings(keep_raw=True)
    recorder = open_recorder(made)
    recorder.open()
    played.play()
    played.tear(0)
    recorder.close()
    recorded = recorder.drain(silent)
    assert recorded.facts["event_count"] > 1000
    size = (made.directory / "raw/cpu0").stat().st_size
    assert size % 4096 == 0


# ---------------------------------------------------------------------- what it cannot have


def test_an_event_that_the_kernel_lacks_is_said(played, settings, profile):
    profile("odd", ("sched_switch", "sched_waking", "sched_no_such_event", "lttng_statedump_end"))
    recorded, _, _ = record(played, settings(profile="odd"))
    [warning] = recorded.warnings
    assert "sched_no_such_event" in warning
    assert recorded.facts["missing"] == ["sched_no_such_event"]


def test_an_event_that_the_kernel_refuses_is_said_with_its_reason(played, settings):
    played.lack("irq/softirq_raise")
    played.refuse("write", "set_event", errno.ENODEV, times=1)
    recorder = open_recorder(settings())
    recorder.open()
    recorder.close()
    [warning] = recorder.drain(silent).warnings
    assert "irq_softirq_raise" in warning
    assert os.strerror(errno.ENODEV) in warning


def test_a_kernel_without_raw_marks_takes_no_beats(played, settings):
    played.lack("ftrace/raw_data")
    recorded, _, _ = record(played, settings())
    assert recorded.loss == ()


def test_without_switches_there_is_no_recording(settings, profile):
    profile("empty", ("sched_waking",))
    with pytest.raises(CritpathError, match="sched_switch"):
        open_recorder(settings(profile="empty")).open()


def test_a_profile_that_is_none_is_named(settings):
    with pytest.raises(UsageError, match="no-such"):
        open_recorder(settings(profile="no-such")).open()


def test_only_ctf_1_8_is_written(settings):
    with pytest.raises(UsageError, match=r"ctf-1\.8"):
        open_recorder(settings(trace_format="ctf-2"))


def test_tracefs_that_is_not_mounted_is_mounted_and_that_is_said(played, settings):
    played.unmount()
    recorded, _, _ = record(played, settings())
    [warning] = recorded.warnings
    assert warning.startswith("tracefs was not mounted; it is now")


def test_an_instance_is_reached_when_tracefs_is_unmounted_meanwhile(played, settings):
    made = settings()
    recorder = open_recorder(made)
    recorder.open()
    played.unmount()
    elsewhere = played.root.with_name("away")
    played.root.rename(elsewhere)
    played.root = elsewhere
    played.play()
    recorder.close()
    assert recorder.drain(silent).loss == ()


# ----------------------------------------------------------------- what fails leaves nothing


def test_abort_removes_everything_and_may_come_again(played, settings):
    made = settings()
    recorder = open_recorder(made)
    recorder.abort()
    recorder.open()
    assert played.instances == [made.session]
    recorder.abort()
    recorder.abort()
    assert list(made.directory.iterdir()) == []
    assert [watch.dismissed for watch in tracefs.TracingWatchdog.made] == [1]


@pytest.mark.parametrize("name", ["scan_threads", "measure_epoch", "online_cpus", "select_events"])
def test_a_start_that_is_interrupted_leaves_nothing(settings, monkeypatch, name):
    monkeypatch.setattr(module, name, fail(KeyboardInterrupt()))
    made = settings()
    with pytest.raises(KeyboardInterrupt):
        open_recorder(made).open()
    assert list(made.directory.iterdir()) == []


def test_a_signal_at_any_call_of_the_kernel_leaves_nothing(played, tmp_path):
    recorder = played.open_recorder(tmp_path / "undisturbed")
    recorder.open()
    recorder.close()
    # What is done with each event is tried with one.
    names = [" ".join(call[:2]).rpartition("/")[::2] for call in played.calls]
    names = ["/*/" * bool(of) + name for of, name in names]
    recorder.abort()
    numbers = [number for number, name in enumerate(names, 1) if names.index(name) == number - 1]
    assert len(numbers) > 15
    for number in numbers:
        recorder = played.open_recorder(tmp_path / f"rec{number}")
        played.interrupt(len(played.calls) + number)
        with pytest.raises(KeyboardInterrupt):
            (recorder.open(), recorder.close())
        assert played.instances == []
        assert list((tmp_path / f"rec{number}").iterdir()) == []


@pytest.mark.parametrize("code", [errno.ENOMEM, errno.EACCES, errno.EBUSY])
@pytest.mark.parametrize(
    "call",
    [
        ("make", "critpath-*"),
        ("open", "trace_marker"),
        ("write", "trace_clock"),
        ("write", "buffer_size_kb"),
        ("open", "set_event"),
        ("read", "events/header_page"),
        ("read", "events/sched/sched_switch/format"),
        ("open", "per_cpu/cpu1/trace_pipe_raw"),
    ],
)
def test_whatever_the_kernel_refuses_at_the_start_is_named_and_leaves_nothing(
    played, settings, call, code
):
    played.refuse(*call, code, times=1)
    made = settings()
    with pytest.raises(CritpathError, match=os.strerror(code)) as caught:
        open_recorder(made).open()
    assert caught.value.do
    assert made.session in caught.value.what
    assert list(made.directory.iterdir()) == []


def test_what_is_only_of_newer_kernels_is_no_loss(played, settings):
    played.refuse("write", "buffer_percent", errno.EINVAL)
    recorded, _, _ = record(played, settings())
    assert (recorded.loss, recorded.warnings) == ((), ())


def test_a_conversion_that_fails_leaves_no_instance(played, settings, monkeypatch):
    monkeypatch.setattr(module, "convert", fail(CritpathError("no", "space")))
    with pytest.raises(CritpathError, match="no"):
        record(played, settings())


def finished(directory):
    recorded = finish_killed(directory, silent)
    assert recorded is not None
    recorded.release()
    return recorded


@pytest.mark.parametrize(
    ("where", "wrong", "said"),
    [
        ("drain.stop", CritpathError("tracefs is away", "mount it"), "tracefs is away"),
        ("stats", CritpathError("no counts", "look"), "no counts"),
        ("statedump", OSError(122, "Disk quota exceeded"), "Disk quota exceeded"),
        ("convert", MemoryError("no memory"), "no trace could be made (MemoryError: no memory)"),
        ("convert", OSError(5, "Input/output error"), "Input/output error"),
    ],
)
def test_whatever_fails_after_the_runs_keeps_what_was_recorded(
    played, settings, monkeypatch, where, wrong, said
):
    made = settings()
    recorder = FtraceRecorder(made)
    recorder.open()
    played.play()
    with monkeypatch.context() as patched:
        if where == "drain.stop":
            patched.setattr(tracefs.Instance, "cpus", fail(wrong))
        elif where == "stats":
            patched.setattr(tracefs.Instance, "stats", fail(wrong))
        else:
            name = "scan_threads" if where == "statedump" else "convert"
            patched.setattr(module, name, fail(wrong))

        def end():
            recorder.close()
            recorder.drain(silent)

        with pytest.raises(UnfinishedError) as caught:
            end()
    assert said in caught.value.what
    assert played.instances == []
    assert finished(made.directory).facts["name"] == "ftrace"
    assert "/bin/true" in read_events(made.directory / "trace", KERNEL_EVENTS).strings


@pytest.mark.parametrize("step", ["start", "stop"])
def test_an_instance_that_cannot_be_removed_hides_no_failure(settings, monkeypatch, step):
    def refuse(instance):
        remove(instance)
        raise CritpathError("the instance is busy", "wait")

    remove = tracefs.Instance.remove
    monkeypatch.setattr(tracefs.Instance, "remove", refuse)
    recorder = FtraceRecorder(settings())
    if step == "stop":
        recorder.open()
    monkeypatch.setattr(module, "scan_threads", fail(OSError(28, "No space left on device")))
    with pytest.raises(CritpathError, match="No space left") as caught:
        recorder.close() if step == "stop" else recorder.open()
    assert isinstance(caught.value, UnfinishedError) == (step == "stop")


def test_a_full_disk_ends_the_recording_and_is_said(played, settings, monkeypatch):
    """As where a quota is what is used up, which no question tells beforehand."""
    made = settings(keep_raw=True)
    recorder = FtraceRecorder(made)
    recorder.open()
    off = threading.Event()
    turn_off = recorder._drain._failed
    recorder._drain._failed = lambda: (turn_off(), off.set())
    played.play(0.5)
    monkeypatch.setattr(drain, "pour", fail(OSError(errno.ENOSPC, "No space left on device")))
    played.play()
    assert off.wait(60)
    assert "No space left" in recorder.failure.what
    assert "free space there" in recorder.failure.do
    last = [text for name, text in played.written if name == "tracing_on"][-1]
    assert last == "0"
    now = played.clock.monotonic_ns()
    assert recorder.close() < now
    with monkeypatch.context() as full:
        full.setattr(module, "convert", fail(OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(UnfinishedError, match="No space left"):
            recorder.drain(silent)
    for file in (made.directory / "raw").glob("cpu*"):
        assert file.stat().st_size % 4096 == 0
    # With room again.
    recorded = recorder.drain(silent)
    assert "No space left" in recorded.warnings[0]
    assert read_events(made.directory / "trace", KERNEL_EVENTS).total > 100


def test_a_disk_without_room_for_the_trace_ends_the_recording_with_all_of_it(
    played, settings, monkeypatch
):
    room = [1 << 40]
    monkeypatch.setattr(drain.Stream, "free_bytes", lambda _: room[0])
    recorder = FtraceRecorder(settings())
    recorder.open()
    off = threading.Event()
    turn_off = recorder._drain._failed
    recorder._drain._failed = lambda: (turn_off(), off.set())
    played.play(0.3)
    room[0] = 1 << 20
    played.play(0.6)
    assert off.wait(60)
    assert "has room left for its trace, no more" in recorder.failure.what
    counted = recorder.count_events()
    recorder.close()
    recorded = recorder.drain(silent)
    recorded.release()
    assert recorded.loss == ()
    assert recorded.facts["event_count"] == counted.events
    assert "cut short" in recorded.warnings[0]


# --------------------------------------------------------------- an instance that is held


def test_an_instance_that_is_held_is_turned_off_and_named(played, settings, monkeypatch):
    monkeypatch.setattr(tracefs, "find_holders", lambda _: ["process 7 (sleep)"])
    made = settings()
    recorder = open_recorder(made)
    recorder.open()
    played.play()
    recorder.close()
    played.refuse("remove", made.session, errno.EBUSY, times=20)
    recorded = recorder.drain(silent)
    [warning] = recorded.warnings
    assert "held open by process 7 (sleep)" in warning
    path = played.root / "instances" / made.session
    assert (path / "tracing_on").read_text(encoding="ascii").strip() == "0"
    assert (path / "set_event").read_text(encoding="ascii") == ""
    assert sum(played.clock.slept) == pytest.approx(20 * tracefs._BUSY_PAUSE, abs=0.01)
    assert read_events(made.directory / "trace", KERNEL_EVENTS).total > 1000
    tracefs.Instance(path).remove()


def test_an_instance_that_is_busy_for_a_moment_is_removed(played, settings):
    made = settings()
    recorder = open_recorder(made)
    recorder.open()
    recorder.close()
    played.refuse("remove", made.session, errno.EBUSY, times=3)
    assert recorder.drain(silent).warnings == ()
    assert len(played.of("remove")) == 4


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ENODEV])
def test_an_instance_that_somebody_else_removes_is_no_error(played, settings, code):
    made = settings()
    recorder = open_recorder(made)
    recorder.open()
    recorder.close()
    played.refuse("remove", made.session, code, times=1)
    assert recorder.drain(silent).warnings == ()
    tracefs.Instance.at(played.root, made.session).remove()


def test_what_an_interrupted_start_left_open_does_not_keep_the_instance(settings, monkeypatch):
    def interrupted(_, instance):
        os.open(instance.path / "trace_marker", os.O_WRONLY)
        raise KeyboardInterrupt

    monkeypatch.setattr(FtraceRecorder, "_set_up", interrupted)
    with pytest.raises(KeyboardInterrupt):
        open_recorder(settings()).open()


# --------------------------------------------------------------------- the table of names


@pytest.mark.parametrize("others", [False, True])
def test_the_kernels_table_of_names_is_filled_for_others_only(
    played, settings, monkeypatch, others
):
    option = played.root / tracefs.NAMES_OPTION
    seen = []
    if others:
        other = tracefs.Instance.at(played.root, "somebody-elses")
        other.make()
        other.enable_events(["sched:sched_switch"])
    make = played.make

    def note(place):
        seen.append(option.read_text(encoding="ascii").strip())
        make(place)

    monkeypatch.setattr(played, "make", note)
    recorded, _, _ = record(played, settings())
    assert recorded.loss == ()
    assert seen == ["1" if others else "0"]
    assert option.read_text(encoding="ascii").strip() == "1"
    if others:
        other.remove()


def test_a_recorder_killed_as_it_made_its_instance_leaves_no_option(played):
    option = played.root / tracefs.NAMES_OPTION
    session = played.dead_session()
    option.write_text("0", encoding="ascii")
    assert find_leftovers() == []  # somebody else's wish
    with registry.note_change(session):  # what a killed recorder leaves
        [leftover] = find_leftovers()
        assert (leftover.kind, leftover.name) == ("option", tracefs.NAMES_OPTION)
        leftover.remove()
        assert find_leftovers() == []
    assert option.read_text(encoding="ascii").strip() == "1"


# ----------------------------------------------------------------------- a killed recorder


@pytest.fixture
def killed(played, tmp_path):
    """Return session and directory of a recorder that was killed while it recorded."""
    session, directory = played.dead_session(), tmp_path / "killed"
    directory.mkdir()
    recorder = FtraceRecorder(RecorderSettings(session, directory))
    recorder.open()
    played.play(0.5)
    played.kill(recorder)
    played.play(0.7)  # nobody moves this
    played.turn_off(session)  # as the watchdog does
    return session, directory


def test_the_instance_of_a_killed_recorder_is_found_and_removed(killed):
    session, directory = killed
    [leftover] = find_leftovers()
    assert (leftover.session, leftover.kind) == (session, "instance")
    leftover.remove()
    assert find_leftovers() == []
    # Nobody knew where it belonged: what was written by then is readable all the same.
    recorded = finished(directory)
    assert any("end" in warning for warning in recorded.warnings)


def test_what_the_buffers_of_a_killed_recorder_held_is_saved(played, killed):
    session, directory = killed
    register(session, directory, "ftrace")
    until = played.clock.now
    [leftover] = find_leftovers()
    leftover.remove()
    recorded = finished(directory)
    assert (recorded.loss, recorded.warnings) == ((), ())
    assert recorded.facts["name"] == "ftrace"
    events = read_events(directory / "trace", KERNEL_EVENTS)
    assert "/bin/true" in events.strings
    assert until - 10_000_000 < events.timestamp.max() <= until
    assert [p.name for p in directory.iterdir()] == ["trace"]
    # Again, as after a kill between the trace and the manifest.
    assert finished(directory).facts["name"] == "ftrace"


def test_buffers_of_a_killed_recorder_stay_while_there_is_no_room(played, killed, monkeypatch):
    session, directory = killed
    register(session, directory, "ftrace")
    [leftover] = find_leftovers()
    with monkeypatch.context() as full:
        full.setattr(os, "posix_fallocate", fail(OSError(122, "Disk quota exceeded")))
        with pytest.raises(CritpathError, match=r"needs .* MiB") as caught:
            leftover.remove()
        assert "kept until then" in caught.value.do
        # Nor is a trace made of the part that is on disk.
        with pytest.raises(CritpathError, match="still holds a part"):
            finish_killed(directory, silent)
    assert (played.root / "instances" / session / "tracing_on").read_text().strip() == "0"
    leftover.remove()
    recorded = finished(directory)
    assert (recorded.loss, recorded.warnings) == ((), ())
    assert "/bin/true" in read_events(directory / "trace", KERNEL_EVENTS).strings


def test_nothing_is_made_of_nothing(tmp_path):
    place = tmp_path / "nothing"
    place.mkdir()
    assert finish_killed(place, silent) is None
    # Killed while it was being set up.
    (place / "raw").mkdir()
    (place / "raw/header_page").touch()
    assert finish_killed(place, silent) is None
    assert list(place.iterdir()) == []


def test_damaged_raw_data_stays_as_it_is(tmp_path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/raw.json").touch()
    with pytest.raises(CritpathError, match=r"raw\.json"):
        finish_killed(tmp_path, silent)
    assert (tmp_path / "raw/raw.json").exists()
