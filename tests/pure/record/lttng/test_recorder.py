"""The LTTng recorder against a played LTTng; the real one is in tests/guest."""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from critpath.errors import CritpathError, UsageError
from critpath.model import Manifest
from critpath.model.recording import RECORDING
from critpath_marks import sessions
from critpath_record.lttng import program
from critpath_record.lttng import recorder as recorder_module
from critpath_record.lttng.daemon import find_leftovers, start_daemon
from critpath_record.lttng.recorder import find_needs, finish_killed, open_recorder
from critpath_record.manifests import write_manifest
from critpath_record.recorder import RecorderSettings, UnfinishedError
from tests.played.names import dead_name

ENOUGH = {"sched_switch", "sched_waking", "lttng_logger"}


@pytest.fixture
def settings(tmp_path):
    def make(**more):
        directory = tmp_path / "a b&c"
        directory.mkdir(exist_ok=True)
        return RecorderSettings(sessions.new_session_name(), directory, **more)

    return make


def record(settings):
    recorder = open_recorder(settings)
    begin = recorder.open()
    environment = recorder.environment()
    end = recorder.close()
    recorded = recorder.drain(lambda _: None)
    assert begin <= end
    assert environment == {"CRITPATH_RECORDER": "lttng"}
    return recorded


def end(recorder):
    recorder.close()
    return recorder.drain(lambda _: None)


def note(directory, session):
    """Write the manifest of a recording that is being made."""
    write_manifest(
        directory,
        Manifest(
            state=RECORDING,
            session=session,
            command=("true",),
            execution="process",
            runs=(),
            recorder={"name": "lttng"},
            profile="minimal",
            clock={"name": "monotonic"},
            host={},
            begin=1,
            end=0,
        ),
    )


def unfinished(machine, directory, session):
    """What a killed recorder leaves: a session that still writes, and a manifest."""
    machine.add_session(session, str(directory / "trace"))
    (directory / "trace" / "kernel").mkdir(parents=True)
    (directory / "trace" / "kernel" / "metadata").write_bytes(b"\x57\x1d\xd1\x75")
    note(directory, session)


def own_daemon_for(session):
    """A daemon that a dead recorder started."""
    return start_daemon(session)


def test_a_recording_is_one_session_of_a_private_name(machine, settings):
    machine.start_foreign_daemon()
    machine.add_session("mine")
    asked = settings()
    recorded = record(asked)
    assert machine.verbs() == ["load", "enable-event", "add-context", "start", "stop", "destroy"]
    assert machine.sessions() == ["mine"]
    loaded = machine.tree()
    assert loaded.findtext("session/name") == asked.session
    assert loaded.findtext(".//destination/path") == str(asked.directory / "trace")
    assert recorded.facts["version"] == "2.13.9"
    assert recorded.facts["format"] == "ctf-1.8"
    assert recorded.facts["buffer_bytes"] == 8 << 20
    assert recorded.loss == ()
    # Nothing but the trace stays in the recording's directory.
    assert [p.name for p in asked.directory.iterdir()] == ["trace"]
    for call in machine.calls():
        assert call[0] == "--no-sessiond"
        assert "mine" not in call


def test_a_daemon_of_ours_is_ended_again(machine, settings):
    recorder = open_recorder(settings())
    recorder.open()
    assert machine.daemon_runs()
    recorder.close()
    recorder.drain(lambda _: None)
    assert not machine.daemon_runs()


def test_a_daemon_of_others_is_left_alone(machine, settings):
    machine.start_foreign_daemon()
    record(settings())
    assert machine.daemon_runs() == os.getpid()


def test_a_daemon_of_ours_that_others_use_stays_and_that_is_said(machine, settings):
    recorder = open_recorder(settings())
    recorder.open()
    machine.add_session("theirs")
    recorder.close()
    recorded = recorder.drain(lambda _: None)
    assert machine.daemon_runs()
    assert machine.sessions() == ["theirs"]
    assert any("it stays" in warning for warning in recorded.warnings)


def test_a_session_that_somebody_changed_is_said(machine, settings, monkeypatch):
    machine.start_foreign_daemon()
    recorder = open_recorder(settings())
    begin = recorder.open()
    assert end(recorder).gaps == ()
    listed = Path(__file__).with_name("list-session.xml").read_text()
    answers = [listed, listed.replace("sched_waking", "x", 1)]
    answers.append(
        listed.replace("<name>kernel</name><enabled>true", "<name>kernel</name><enabled>no")
    )
    found = []
    for text in answers:
        monkeypatch.setattr(program, "query", lambda *_, text=text: ET.fromstring(text))  # noqa: S314 - our own
        found.append(program.describe_session("demo"))
    assert found[0]["the session"] == "false"
    assert found[0]["the event sched_switch"].startswith("true")
    monkeypatch.undo()
    for changed, what in zip(
        found[1:], ("the event sched_waking", "the channel kernel"), strict=True
    ):
        recorder._begin, recorder._state = begin, found[0]
        monkeypatch.setattr(program, "describe_session", lambda _, now=changed: now)
        [gap] = recorder._find_changes(begin + 5)
        assert (gap.begin, gap.end, gap.cpu) == (begin, begin + 5, -1)
        assert gap.what == f"LTTng: {what} was changed by somebody else"


def test_what_was_lost_is_read_back_before_the_session_is_gone(machine, settings):
    machine.start_foreign_daemon()
    machine.set(counts=[1234, 5])
    recorded = record(settings())
    assert [(x.cpu, x.events, x.packets) for x in recorded.loss] == [(-1, 1234, 5)]
    assert recorded.facts["channels"] == [
        {"domain": "kernel", "name": "kernel", "discarded_events": 1234, "lost_packets": 5}
    ]


def test_events_that_the_tracer_lacks_are_left_out_and_named(machine, settings):
    machine.start_foreign_daemon()
    recorded = record(settings(profile="syscalls"))
    assert set(recorded.facts["events"]) == {*ENOUGH, "syscall_entry_*", "syscall_exit_*"}
    assert "irq_handler_entry" in "".join(recorded.warnings)
    assert "irq_handler_entry" not in machine.loaded()


def test_full_adds_the_context_that_session_files_cannot_have(machine, settings):
    machine.start_foreign_daemon()
    recorded = record(settings(profile="full"))
    assert recorded.facts["contexts"] == ["pid", "tid", "procname", "vtid", "pid_ns"]
    assert any("--type=pid_ns" in call for call in machine.calls())


@pytest.mark.parametrize(
    ("wanted", "got"), [(1, 8192), (20_000, 32_768), (1 << 20, 1 << 20), ((1 << 20) + 1, 2 << 20)]
)
def test_buffers_are_at_least_what_was_asked_for(machine, settings, wanted, got):
    machine.start_foreign_daemon()
    recorded = record(settings(buffer_bytes=wanted))
    assert recorded.facts["buffer_bytes"] == got
    loaded = machine.tree()
    size = int(loaded.findtext(".//subbuffer_size"))
    count = int(loaded.findtext(".//subbuffer_count"))
    assert size * count == got
    assert count >= 2
    assert size & (size - 1) == 0


@pytest.mark.parametrize(
    ("version", "asked", "element", "written"),
    [
        ("2.13.9", "ctf-1.8", None, "ctf-1.8"),
        ("2.15.2", "ctf-1.8", "CTF_1_8", "ctf-1.8"),
        ("2.15.2", "ctf-2", "CTF_2", "ctf-2"),
        ("3.0.0-rc1", "ctf-1.8", "CTF_1_8", "ctf-1.8"),
    ],
)
def test_ctf_18_is_asked_for_where_there_is_a_choice(
    machine, settings, version, asked, element, written
):
    machine.start_foreign_daemon()
    machine.set(version=version)
    recorded = record(settings(trace_format=asked))
    assert machine.tree().findtext(".//trace_format") == element
    assert recorded.facts["format"] == written
    assert not any("asked for" in warning for warning in recorded.warnings)


def test_ctf_2_of_an_old_lttng_is_refused(machine, settings):
    machine.start_foreign_daemon()
    with pytest.raises(UsageError, match="does not write ctf-2"):
        open_recorder(settings(trace_format="ctf-2")).open()
    assert machine.sessions() == []


def test_another_format_than_asked_for_is_said(machine, settings):
    machine.start_foreign_daemon()
    machine.set(metadata="\x1e{}")
    recorded = record(settings())
    assert recorded.facts["format"] == "ctf-2"
    assert any("asked for ctf-1.8, LTTng wrote ctf-2" in x for x in recorded.warnings)


def test_without_user_space_tracing_marks_take_the_logger_file(machine, settings):
    machine.start_foreign_daemon()
    machine.set(fails={"enable-event": "UST is not supported"})
    recorder = open_recorder(settings())
    recorder.open()
    assert recorder.environment() == {"CRITPATH_RECORDER": "lttng-logger"}
    recorder.abort()


@pytest.mark.parametrize("verb", ["load", "start"])
def test_a_start_that_fails_leaves_nothing(machine, settings, verb):
    machine.set(fails={verb: "Kernel tracer not\x1b[2J available"})
    asked = settings()
    with pytest.raises(CritpathError, match="Kernel tracer not") as caught:
        open_recorder(asked).open()
    assert "\x1b" not in caught.value.what
    assert machine.sessions() == []
    assert not machine.daemon_runs()
    assert list(asked.directory.iterdir()) == []


def test_no_kernel_tracer(machine, settings, monkeypatch):
    machine.set(events=[])
    monkeypatch.setattr(recorder_module, "find_needs", lambda _: [])
    with pytest.raises(CritpathError, match="Kernel tracer not available"):
        open_recorder(settings()).open()
    assert not machine.daemon_runs()


def test_a_daemon_that_does_not_come_up(machine, settings):
    machine.set(daemon_fails="Could not create lock file")
    with pytest.raises(CritpathError, match="did not come up: Error: Could not create lock file"):
        open_recorder(settings()).open()


@pytest.mark.parametrize("verb", ["stop", "destroy", "list"])
def test_an_end_that_fails_says_so(machine, settings, verb):
    machine.start_foreign_daemon()
    recorder = open_recorder(settings())
    recorder.open()
    machine.set(fails={verb: "Something odd"})
    with pytest.raises(UnfinishedError, match="Something odd"):  # what it wrote is kept
        end(recorder)
    machine.set(fails={})
    recorder.abort()
    assert machine.sessions() == []


def test_a_consumer_daemon_that_hangs_does_not_hang_the_recorder(machine, settings):
    machine.start_foreign_daemon()
    recorder = open_recorder(settings())
    recorder.open()
    machine.set(hangs=["stop"])
    recorder.close()
    recorded = recorder.drain(lambda _: None)
    assert any("may lack its end" in warning for warning in recorded.warnings)


def test_a_session_without_a_trace_is_an_error(machine, settings):
    machine.start_foreign_daemon()
    asked = settings()
    recorder = open_recorder(asked)
    recorder.open()
    recorder.close()
    (asked.directory / "trace" / "kernel" / "metadata").unlink()
    with pytest.raises(CritpathError, match="left no trace"):
        recorder.drain(lambda _: None)


def test_an_unknown_profile_names_those_there_are(machine, settings):
    machine.start_foreign_daemon()
    with pytest.raises(UsageError) as caught:
        open_recorder(settings(profile="../../etc/passwd")).open()
    assert caught.value.do == (
        "choose one of full, io, locks, minimal, network, requests, syscalls, "
        "or the path of a session file"
    )


def test_the_session_of_a_dead_recorder_is_a_leftover(machine):
    machine.start_foreign_daemon()
    dead, alive = dead_name(), sessions.new_session_name()
    for name in (dead, alive, "critpath-odd", "mine"):
        machine.add_session(name)
    found = find_leftovers()
    assert [(x.kind, x.name) for x in found] == [("session", dead)]
    found[0].remove()
    assert machine.sessions() == sorted([alive, "critpath-odd", "mine"])
    assert find_leftovers() == []


def test_the_daemon_of_a_dead_recorder_is_a_leftover_once_its_sessions_are_gone(machine):
    dead = dead_name()
    pid = own_daemon_for(dead)
    machine.add_session(dead)
    session, daemon = find_leftovers()
    assert (daemon.kind, daemon.name, daemon.session) == ("daemon", str(pid), dead)
    with pytest.raises(CritpathError, match="still has sessions"):
        daemon.remove()
    session.remove()
    daemon.remove()
    assert not machine.daemon_runs()
    assert find_leftovers() == []


def test_the_next_recording_ends_the_daemon_of_a_dead_recorder(machine, settings):
    first = own_daemon_for(dead_name())
    record(settings())
    assert first not in machine.daemons
    assert not machine.daemon_runs()


def test_the_recording_of_a_killed_recorder_is_finished(machine, settings):
    dead = dead_name()
    own_daemon_for(dead)
    directory = settings().directory
    unfinished(machine, directory, dead)
    machine.set(counts=[7, 0])
    recorded = finish_killed(directory, lambda _: None)
    assert recorded.loss[0].events == 7
    assert machine.sessions() == []
    assert not machine.daemon_runs()


def test_counts_survive_the_removal_of_the_session(machine, settings):
    """As `critpath doctor --clean` does it: sessions first, recordings after."""
    dead = dead_name()
    machine.start_foreign_daemon()
    directory = settings().directory
    unfinished(machine, directory, dead)
    machine.set(counts=[9, 0])
    for leftover in find_leftovers():
        leftover.remove()
    assert finish_killed(directory, lambda _: None).loss[0].events == 9


def test_a_recording_that_goes_on_is_not_finished(machine, settings):
    machine.start_foreign_daemon()
    asked = settings()
    recorder = open_recorder(asked)
    recorder.open()
    note(asked.directory, asked.session)
    with pytest.raises(CritpathError, match="still records"):
        finish_killed(asked.directory, lambda _: None)
    recorder.close()
    recorder.drain(lambda _: None)


def test_without_lttng_nothing_is_left_and_that_is_known(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    found = {x.name: x for x in find_needs(None)}
    assert found["lttng-tools"].fatal
    assert "lttng-tools" in found["lttng-tools"].do
    assert find_leftovers() == []
    assert all(x.what and x.do and "\n" not in x.what + x.do for x in found.values())


def test_a_program_that_does_not_answer(machine):
    machine.start_foreign_daemon()
    machine.set(hangs=["list"])
    with pytest.raises(program.LttngError, match=r"lttng list did not answer in 0 s"):
        program.run_lttng("list", limit=0.3)


def test_what_lttng_really_prints_is_understood(machine):
    """`lttng --mi xml list SESSION` of 2.13.9, taken down in the guest."""
    machine.start_foreign_daemon()
    machine.set(prints=(Path(__file__).with_name("list-session.xml")).read_text())
    assert program.list_sessions() == {"demo": "/tmp/t1"}  # noqa: S108 - as it was
    assert program.list_channels("demo") == [
        program.ChannelCounts("KERNEL", "kernel", 1 << 20, 8, 0, 0),
        program.ChannelCounts("UST", "lttng_python_channel", 1 << 19, 4, 0, 0),
    ]
