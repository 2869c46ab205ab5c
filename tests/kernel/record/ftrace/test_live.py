"""The ftrace recorder on this machine's own kernel."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from critpath.errors import CritpathError, UsageError
from critpath.model import EventRequest, Kind
from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.recording import read_events
from critpath.record import profiles, registry
from critpath.record.ftrace import cleanup as leftover_module
from critpath.record.ftrace import drain, tracefs
from critpath.record.ftrace import recorder as module
from critpath.record.ftrace.preflight import missing_requirements
from critpath.record.ftrace.recorder import (
    FtraceRecorder,
    find_leftovers,
    finish_killed,
    open_recorder,
)
from critpath.record.recorder import RecorderResult, RecorderSettings, UnfinishedError
from critpath.record.registry import Entry
from critpath_marks.sessions import new_session_name

HINDERED = [o.what for o in missing_requirements(RecorderSettings("", Path())) if o.fatal]
pytestmark = [
    pytest.mark.xdist_group("kernel"),
    pytest.mark.skipif(bool(HINDERED), reason="; ".join(HINDERED)),
]

PROFILE = """<?xml version="1.0" encoding="UTF-8"?>
<sessions><session><name>x</name><domains><domain><type>KERNEL</type><channels><channel>
<name>kernel</name><enabled>true</enabled><events>{events}</events></channel></channels>
</domain></domains></session></sessions>
"""
RULE = "<event><name>{}</name><enabled>true</enabled><type>TRACEPOINT</type></event>"
# Two processes on one cpu that wake each other: nothing makes more events.
FLOOD = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
(a, b), (c, d) = os.pipe(), os.pipe()
child = os.fork()
for _ in range(20000):
    if child:
        os.write(b, b"x"); os.read(c, 1)
    else:
        os.read(a, 1); os.write(d, b"x")
"""

MARK = 'echo by-descriptor >&"$CRITPATH_MARKER_FD"; ! test -w "$CRITPATH_MARKER"'


def silent(message: str) -> None:
    assert message


def instances() -> set[str]:
    root = tracefs.find()
    assert root is not None
    return {p.name for p in (root / "instances").iterdir() if f"-{os.getpid()}-" in p.name}


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    yield
    assert instances() == set()
    assert [t.name for t in threading.enumerate() if "drain" in t.name] == []
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) <= before


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., RecorderSettings]:
    def make(name: str = "recording", **values: object) -> RecorderSettings:
        (tmp_path / name).mkdir()
        return RecorderSettings(new_session_name(), tmp_path / name, **values)  # type: ignore[arg-type]

    return make


@pytest.fixture
def profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, tuple[str, ...]], None]:
    def make(name: str, events: tuple[str, ...]) -> None:
        place = tmp_path / "profiles"
        place.mkdir(exist_ok=True)
        text = PROFILE.format(events="".join(RULE.format(e) for e in events))
        (place / f"{name}.lttng").write_text(text, encoding="utf-8")
        monkeypatch.setattr(profiles, "profile_directory", lambda: place)

    return make


def record(
    settings: RecorderSettings, *command: str, **options: object
) -> tuple[RecorderResult, int, int]:
    recorder = open_recorder(settings)
    try:
        begin = recorder.start()
        subprocess.run(
            command,
            env={**os.environ, **recorder.environment()},
            pass_fds=recorder.descriptors(),
            check=True,
            **options,  # type: ignore[call-overload]
        )
        end = recorder.stop()
        recorded = recorder.finish(silent)
        recorded.release()
        return recorded, begin, end
    finally:
        recorder.abort()


def kernel_counts(directory: Path) -> dict[int, dict[str, int]]:
    document = json.loads((directory / "raw/stats.json").read_text(encoding="utf-8"))
    return {int(cpu): counts for cpu, counts in document.items()}


def test_a_command_with_its_processes_is_in_the_trace(settings):
    made = settings(keep_raw=True)
    script = "for i in 1 2 3 4 5; do /bin/true; done"
    recorded, begin, end = record(made, "/bin/sh", "-c", script)
    assert recorded.loss == ()
    assert recorded.warnings == ()
    assert recorded.facts["name"] == "ftrace"
    assert "sched_switch" in recorded.facts["events"]
    assert abs(recorded.facts["clock"]["epoch"] - (time.time_ns() - time.monotonic_ns())) < 10**9
    events = read_events(made.directory / "trace", KERNEL_EVENTS)
    assert begin <= events.end
    assert events.losses == ()
    kinds = {c.kind: i for i, c in enumerate(events.classes)}
    executed = [
        events.strings[events.values[o + 1]]
        for o in events.offset[events.event_class == kinds[Kind.EXEC]]
    ]
    # The machine is traced as a whole: others start programs, too.
    assert [name for name in executed if name.endswith("/true")] == ["/bin/true"] * 5
    exits = events.timestamp[events.event_class == kinds[Kind.EXIT]]
    assert sum(begin <= t <= end for t in exits) >= 6
    # Every event that the kernel says was read is in the pages.
    counts = kernel_counts(made.directory)
    assert sum(c["read events"] for c in counts.values()) > 100
    assert {c["entries"] + c["overrun"] for c in counts.values()} == {0}
    # What conversion adds is not counted as the kernel's.
    count = recorded.facts["event_count"]
    assert count == sum(c["read events"] for c in counts.values())
    dumped = {"critpath_current", "lttng_statedump_process_state"}
    found = read_events(made.directory / "trace", (EventRequest(Kind.OTHER, tuple(dumped)),))
    assert {c.name for c in found.classes} >= dumped - {"critpath_current"}
    assert found.total > count


def test_babeltrace2_reads_it_too(settings):
    made = settings()
    record(made, "/bin/true")
    native = read_events(made.directory / "trace", KERNEL_EVENTS)
    try:
        other = read_events(made.directory / "trace", KERNEL_EVENTS, reader="babeltrace2")
    except CritpathError as error:
        pytest.skip(error.what)
    assert native.timestamp.tolist() == other.timestamp.tolist()


def test_pages_are_whole_and_can_be_kept(settings):
    made = settings(keep_raw=True)
    record(made, "/bin/true")
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
        rows = json.loads((raw / name).read_text(encoding="utf-8"))
        assert os.getpid() in {row[1] for row in rows}


def test_the_raw_data_goes_when_it_is_not_kept(settings):
    made = settings()
    record(made, "/bin/true")
    assert [p.name for p in made.directory.iterdir()] == ["trace"]


def test_a_command_marks_through_a_path_and_whoever_it_is_through_a_descriptor(settings):
    made = settings()
    record(made, "/bin/bash", "-c", MARK, user=65534, group=65534, extra_groups=[])
    text = subprocess.run(
        ["babeltrace2", made.directory / "trace"], capture_output=True, text=True, check=True
    ).stdout
    assert sum("by-descriptor" in line for line in text.splitlines()) == 1
    made = settings("second")
    record(made, "/bin/sh", "-c", 'echo by-path >"$CRITPATH_MARKER"')
    text = subprocess.run(
        ["babeltrace2", made.directory / "trace"], capture_output=True, text=True, check=True
    ).stdout
    assert sum("by-path" in line for line in text.splitlines()) == 1


def test_loss_is_what_the_kernel_counted(settings):
    made = settings(buffer_bytes=4096, profile="syscalls", keep_raw=True)
    # Above the recorder's own priority, on every cpu: otherwise it keeps up.  So long that all
    # are at it at once, however late one begins.
    flood = "dd if=/dev/zero of=/dev/null bs=1 count=150000 2>/dev/null"
    cpus = sorted(os.sched_getaffinity(0))
    floods = " & ".join(f"taskset -c {cpu} chrt -f 50 {flood}" for cpu in cpus)
    recorded, _, _ = record(made, "/bin/sh", "-c", f"{floods} & wait")
    counts = kernel_counts(made.directory)
    lost = {cpu: c["overrun"] + c["dropped events"] for cpu, c in counts.items()}
    assert sum(lost.values()) > 0
    assert {loss.cpu: loss.events for loss in recorded.loss} == {c: n for c, n in lost.items() if n}
    events = read_events(made.directory / "trace", KERNEL_EVENTS)
    assert sum(loss.events for loss in events.losses) == sum(lost.values())


def test_events_are_counted_while_it_records(settings):
    recorder = open_recorder(settings())
    recorder.start()
    try:
        before = recorder.count_events()
        subprocess.run(["/bin/true"], check=True)
        after = recorder.count_events()
    finally:
        recorder.abort()
    assert before is not None
    assert after is not None
    assert after.events > before.events
    assert after.lost == 0


def test_abort_removes_everything_and_may_come_again(settings):
    made = settings()
    recorder = open_recorder(made)
    recorder.abort()
    recorder.start()
    assert instances() == {made.session}
    recorder.abort()
    recorder.abort()
    assert list(made.directory.iterdir()) == []


@pytest.mark.parametrize("name", ["scan_threads", "measure_epoch", "online_cpus", "select_events"])
def test_a_start_that_fails_leaves_nothing(settings, monkeypatch, name):
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, name, fail)
    made = settings()
    with pytest.raises(KeyboardInterrupt):
        open_recorder(made).start()
    assert list(made.directory.iterdir()) == []


def test_a_conversion_that_fails_leaves_no_instance(settings, monkeypatch):
    def fail(*_: object) -> None:
        raise CritpathError("no", "space")

    monkeypatch.setattr(module, "convert", fail)
    made = settings()
    with pytest.raises(CritpathError, match="no"):
        record(made, "/bin/true")


def end(recorder: FtraceRecorder) -> None:
    recorder.stop()
    recorder.finish(silent)


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
    settings, monkeypatch, where, wrong, said
):
    def fail(*_: object) -> None:
        raise wrong

    made = settings()
    recorder = FtraceRecorder(made)
    recorder.start()
    subprocess.run(["/bin/true"], check=True)
    with monkeypatch.context() as patched:
        if where == "drain.stop":
            patched.setattr(tracefs.Instance, "cpus", fail)
        elif where == "stats":
            patched.setattr(tracefs.Instance, "stats", fail)
        else:
            patched.setattr(module, "scan_threads" if where == "statedump" else "convert", fail)
        with pytest.raises(UnfinishedError) as caught:
            end(recorder)
    assert said in caught.value.what
    assert instances() == set()
    assert finished(made.directory).facts["name"] == "ftrace"
    events = read_events(made.directory / "trace", KERNEL_EVENTS)
    assert "/bin/true" in events.strings or "/usr/bin/true" in events.strings


@pytest.mark.parametrize("step", ["start", "stop"])
def test_an_instance_that_cannot_be_removed_hides_no_failure(settings, monkeypatch, step):
    def refuse(instance: tracefs.Instance) -> None:
        remove(instance)
        raise CritpathError("the instance is busy", "wait")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    remove = tracefs.Instance.remove
    monkeypatch.setattr(tracefs.Instance, "remove", refuse)
    recorder = FtraceRecorder(settings())
    if step == "stop":
        recorder.start()
    monkeypatch.setattr(module, "scan_threads", fail)
    with pytest.raises(CritpathError, match="No space left") as caught:
        recorder.stop() if step == "stop" else recorder.start()
    assert isinstance(caught.value, UnfinishedError) == (step == "stop")


@pytest.fixture
def names() -> Iterator[Path]:
    """Return the option by which the kernel fills its table of names; as it was afterwards."""
    root = tracefs.find()
    assert root is not None
    option = root / tracefs.NAMES_OPTION
    before = option.read_text(encoding="ascii")
    option.write_text("1", encoding="ascii")
    yield option
    option.write_text(before, encoding="ascii")


@pytest.mark.parametrize("others", [False, True])
def test_the_kernels_table_of_names_is_filled_for_others_only(settings, names, others):
    name = f"critname{int(others)}x{os.getpid() % 1000}"
    rename = "open('/proc/self/comm', 'w').write('{}'); import time; time.sleep(0.01)"
    saved = names.parents[1] / "saved_cmdlines"
    other = tracefs.Instance.at(names.parents[1], f"critpath-test-{os.getpid()}")
    try:
        if others:
            other.make()
            other.enable_events(["sched:sched_process_free"])
            subprocess.run([sys.executable, "-c", rename.format("critname-other")], check=True)
            if "critname-other" not in saved.read_text(errors="replace"):
                pytest.skip("this kernel has stopped filling its table, for whoever asks")
        recorded, _, _ = record(settings(), sys.executable, "-c", rename.format(name))
        assert recorded.loss == ()
        assert (name in saved.read_text(errors="replace")) is others
        assert names.read_text(encoding="ascii").strip() == "1"
    finally:
        other.remove()


def test_a_recorder_killed_as_it_made_its_instance_leaves_no_option(names):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    session = new_session_name().replace(f"-{os.getpid()}-", f"-{child.pid}-")
    names.write_text("0", encoding="ascii")
    assert [x for x in find_leftovers() if x.session == session] == []  # somebody else's wish
    with registry.note_change(session):  # what a killed recorder leaves
        [leftover] = [x for x in find_leftovers() if x.session == session]
        assert (leftover.kind, leftover.name) == ("option", tracefs.NAMES_OPTION)
        leftover.remove()
        assert [x for x in find_leftovers() if x.session == session] == []
    assert names.read_text(encoding="ascii").strip() == "1"


def test_two_recorders_at_once_do_not_meet(settings):
    first, second = settings("first"), settings("second")
    recorders = [open_recorder(first), open_recorder(second)]
    try:
        for recorder in recorders:
            recorder.start()
        assert instances() == {first.session, second.session}
        subprocess.run(["/bin/true"], check=True)
        for recorder in recorders:
            recorder.stop()
            assert recorder.finish(silent).loss == ()
    finally:
        for recorder in recorders:
            recorder.abort()
    for made in (first, second):
        assert read_events(made.directory / "trace", KERNEL_EVENTS).total > 50


def test_an_event_that_the_kernel_lacks_is_said(settings, profile):
    profile("odd", ("sched_switch", "sched_waking", "sched_no_such_event", "lttng_statedump_end"))
    recorded, _, _ = record(settings(profile="odd"), "/bin/true")
    [warning] = recorded.warnings
    assert "sched_no_such_event" in warning
    assert recorded.facts["missing"] == ["sched_no_such_event"]


def test_without_switches_there_is_no_recording(settings, profile):
    profile("empty", ("sched_waking",))
    with pytest.raises(CritpathError, match="sched_switch"):
        open_recorder(settings(profile="empty")).start()


def test_a_profile_that_is_none_is_named(settings):
    with pytest.raises(UsageError, match="no-such"):
        open_recorder(settings(profile="no-such")).start()


def test_only_ctf_1_8_is_written(settings):
    with pytest.raises(UsageError, match=r"ctf-1\.8"):
        open_recorder(settings(trace_format="ctf-2"))


def test_a_full_disk_ends_the_recording_and_is_said(tmp_path, monkeypatch):
    # As where a quota is what is used up, which no question tells beforehand.
    monkeypatch.setattr(drain.Stream, "free_bytes", lambda _: None)
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "x", small], check=False
    ).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        made = RecorderSettings(new_session_name(), small, profile="syscalls", buffer_bytes=1 << 18)
        recorder = FtraceRecorder(made)
        try:
            recorder.start()
            subprocess.run([sys.executable, "-c", FLOOD], check=True)
            failure = recorder.failure
            assert failure is not None
            assert "No space left" in failure.what
            now = time.monotonic_ns()
            # Whoever records has to be able to say so, on the same disk.
            (small / "manifest").write_bytes(b"x" * 20_000)
            assert recorder.stop() < now
            with pytest.raises(CritpathError, match="No space left"):
                recorder.finish(silent)
            for file in (small / "raw").glob("cpu*"):
                assert file.stat().st_size % 4096 == 0
            # Room for the trace, as a user would make it.
            subprocess.run(["mount", "-o", "remount,size=64m", small], check=True)
            recorded = recorder.finish(silent)
            recorded.release()
            assert "No space left" in recorded.warnings[0]
            assert sum(loss.events for loss in recorded.loss) > 0
            assert read_events(small / "trace", KERNEL_EVENTS).total > 1000
        finally:
            recorder.abort()
    finally:
        subprocess.run(["umount", small], check=True)


def test_an_instance_that_is_held_is_turned_off_and_named(settings, monkeypatch):
    monkeypatch.setattr(tracefs, "_BUSY_TRIES", 2)
    made = settings()
    recorder = open_recorder(made)
    recorder.start()
    path = Path(recorder.environment()["CRITPATH_MARKER"]).parent
    with subprocess.Popen(["sleep", "60"], pass_fds=recorder.descriptors()) as process:
        recorder.stop()
        recorded = recorder.finish(silent)
        assert f"process {process.pid} (sleep)" in recorded.warnings[0]
        assert (path / "tracing_on").read_text(encoding="ascii").strip() == "0"
        assert (path / "set_event").read_text(encoding="ascii") == ""
        process.kill()
    tracefs.Instance(path).remove()
    assert read_events(made.directory / "trace", KERNEL_EVENTS).total > 50


def finished(directory: Path) -> RecorderResult:
    recorded = finish_killed(directory, silent)
    assert recorded is not None
    recorded.release()
    return recorded


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this machine has one cpu")
@pytest.mark.parametrize("seen", [True, False])
def test_a_cpu_that_comes_while_recording_is_recorded_too(settings, monkeypatch, seen):
    first, *_, last = sorted(os.sched_getaffinity(0))
    monkeypatch.setattr(module, "online_cpus", lambda: [first])
    if not seen:
        monkeypatch.setattr(drain, "online_cpus", lambda: [first])
    made = settings(keep_raw=True)
    command = "sleep 2.5; taskset -c {} sh -c 'for i in 1 2 3 4 5; do /bin/true; done'"
    recorded, _, _ = record(made, "/bin/sh", "-c", command.format(last))
    assert recorded.loss == ()
    assert recorded.warnings == ()
    events = read_events(made.directory / "trace", KERNEL_EVENTS)
    assert {first, last} <= set(events.cpu.tolist())


def test_what_an_interrupted_start_left_open_does_not_keep_the_instance(settings, monkeypatch):
    made = settings()
    recorder = open_recorder(made)

    def interrupted(instance: tracefs.Instance) -> None:
        os.open(instance.path / "trace_marker", os.O_WRONLY)
        raise KeyboardInterrupt

    monkeypatch.setattr(FtraceRecorder, "_set_up", lambda _, instance: interrupted(instance))
    with pytest.raises(KeyboardInterrupt):
        recorder.start()


KILLED = """
import sys, time
from pathlib import Path
from critpath.record.ftrace.recorder import open_recorder
from critpath_marks.sessions import new_session_name
from critpath.record.recorder import RecorderSettings
settings = RecorderSettings(new_session_name(), Path(sys.argv[1]))
open_recorder(settings).start()
print(settings.session, flush=True)
time.sleep(60)
"""


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    directory = tmp_path / "killed"
    directory.mkdir()
    command = [sys.executable, "-c", textwrap.dedent(KILLED), directory]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        session = process.stdout.readline().strip()
        assert session
        # It lives: nobody may touch it.
        assert session not in {leftover.session for leftover in find_leftovers()}
        subprocess.run(["/bin/true"], check=True)
        process.send_signal(signal.SIGKILL)
        process.wait()
        yield session, directory


def test_the_instance_of_a_killed_recorder_is_found_and_removed(killed):
    session, directory = killed
    [leftover] = [x for x in find_leftovers() if x.session == session]
    assert leftover.kind == "instance"
    leftover.remove()
    assert session not in {x.session for x in find_leftovers()}
    # Nobody knew where it belonged: what was written by then is readable all the same.
    recorded = finished(directory)
    assert any("end" in warning for warning in recorded.warnings)


def test_what_the_buffers_of_a_killed_recorder_held_is_saved(killed, monkeypatch):
    session, directory = killed
    noted = [Entry(session, directory, "ftrace")]
    monkeypatch.setattr(leftover_module, "read_entries", lambda: noted)
    [leftover] = [x for x in find_leftovers() if x.session == session]
    leftover.remove()
    recorded = finished(directory)
    assert recorded.loss == ()
    assert recorded.warnings == ()
    assert recorded.facts["name"] == "ftrace"
    events = read_events(directory / "trace", KERNEL_EVENTS)
    assert "/bin/true" in events.strings or "/usr/bin/true" in events.strings
    assert [p.name for p in directory.iterdir()] == ["trace"]
    # Again, as after a kill between the trace and the manifest.
    assert finished(directory).facts["name"] == "ftrace"


def test_buffers_of_a_killed_recorder_stay_while_there_is_no_room(killed, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(122, "Disk quota exceeded")

    session, directory = killed
    noted = [Entry(session, directory, "ftrace")]
    monkeypatch.setattr(leftover_module, "read_entries", lambda: noted)
    [leftover] = [x for x in find_leftovers() if x.session == session]
    with monkeypatch.context() as full:
        full.setattr(os, "posix_fallocate", refuse)
        with pytest.raises(CritpathError, match=r"needs .* MiB") as caught:
            leftover.remove()
        assert "kept until then" in caught.value.do
        # Nor is a trace made of the part that is on disk.
        with pytest.raises(CritpathError, match="still holds a part"):
            finish_killed(directory, silent)
    assert (tracefs.find() / "instances" / session / "tracing_on").read_text().strip() == "0"
    leftover.remove()
    recorded = finished(directory)
    assert (recorded.loss, recorded.warnings) == ((), ())
    events = read_events(directory / "trace", KERNEL_EVENTS)
    assert "/bin/true" in events.strings or "/usr/bin/true" in events.strings


def test_nothing_is_made_of_nothing(tmp_path):
    assert finish_killed(tmp_path, silent) is None
    # Killed while it was being set up.
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/header_page").touch()
    assert finish_killed(tmp_path, silent) is None
    assert list(tmp_path.iterdir()) == []


def test_damaged_raw_data_stays_as_it_is(tmp_path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/raw.json").touch()
    with pytest.raises(CritpathError, match=r"raw\.json"):
        finish_killed(tmp_path, silent)
    assert (tmp_path / "raw/raw.json").exists()
