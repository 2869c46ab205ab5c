"""Marks of programs whose users may not trace, on a played kernel: who, where, how many."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import struct
from pathlib import Path

import pytest

from critpath.errors import CritpathError, UsageError
from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.traces import read_events
from critpath_record import shown
from critpath_record.cleanup import remove_leftovers
from critpath_record.ftrace import marks, tracefs
from critpath_record.ftrace.cleanup import find_leftovers
from critpath_record.ftrace.recorder import FtraceRecorder
from critpath_record.recorder import RecorderSettings
from critpath_record.user import User

NOBODY, OTHER = 65534, 65533


def silent(message):
    assert message


def test_whom_marks_are_taken_from():
    user = User(1000, 1000, (1000,), {})
    assert User.find_markers("", None) == User.find_markers("none", user) == ()
    assert User.find_markers("", user) == (1000,)
    assert User.find_markers("all", user) == (marks.EVERYBODY,)
    assert User.find_markers("nobody, 7", user) == (7, 1000, NOBODY)
    for wrong in ("no-such-user", "-1", "4294967295", "\u0663"):
        with pytest.raises(UsageError):
            User.find_markers(wrong, None)


def test_a_place_that_others_can_change_is_not_used(monkeypatch, tmp_path):
    monkeypatch.setattr(shown, "PLACE", str(tmp_path / "marks"))
    marks.make_place()
    (tmp_path / "marks").chmod(0o777)
    with pytest.raises(CritpathError, match="can be changed by others"):
        marks.make_place()


@pytest.mark.skipif(os.geteuid() != 0, reason="says who somebody else is, as only root may")
def test_programs_that_ask_are_named_with_their_users(played):
    assert played.instances == []
    requests = marks.MarkRequests()
    place = Path(marks.PLACE)
    [file] = place.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o666
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        for uid in (OTHER, NOBODY, NOBODY):
            who = struct.pack("iII", os.getpid(), uid, uid)
            who = (socket.SOL_SOCKET, socket.SCM_CREDENTIALS, who)
            asking.sendmsg([b"\x1b[31mwhatever"], [who], 0, str(file))
        requests.look()
        name = Path("/proc/self/comm").read_text(encoding="utf-8").strip()
        assert requests.programs == ((name, str(OTHER)), (name, "nobody"))
    requests.close()
    assert list(place.iterdir()) == []


def test_users_mark_in_a_file_and_buffers_of_their_own(played, tmp_path):
    recorder = played.open_recorder(
        tmp_path / "rec", mark_users=(marks.EVERYBODY,), command_uid=OTHER
    )
    recorder.open()
    session = recorder._settings.session
    assert played.instances == sorted((session, marks.instance_name(session)))
    file = Path(marks.PLACE) / session / "trace_marker"
    assert recorder.environment()["CRITPATH_MARKER"] == str(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o222
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o711
    played.play(0.5)
    texts = (f"critpath:begin job{number}" for number in range(20))
    played.mark(*texts, cpu=1, pid=77, instance=marks.instance_name(session))
    played.play()
    recorder.close()
    assert not file.parent.exists()
    recorded = recorder.drain(silent)
    assert (recorded.loss, recorded.warnings) == ((), ())
    assert recorded.facts["marks"] == 6 + 20
    assert played.instances == []


def test_whatever_is_made_in_the_kernel_is_watched_until_it_is_gone(played, tmp_path):
    """Instances, and what is mounted: who is killed leaves neither tracing."""
    recorder = played.open_recorder(tmp_path / "rec", mark_users=(marks.EVERYBODY,))
    recorder.open()
    session = recorder._settings.session
    made = tracefs.TracingWatchdog.made
    assert sorted(watch.instance.path.name for watch in made) == played.instances
    mounted = [place for watch in made for place in watch.mounts]
    assert mounted == [Path(marks.PLACE) / session / "trace_marker"]
    assert [watch.dismissed for watch in made] == [0, 0]
    recorder.abort()
    assert [watch.dismissed for watch in made] == [1, 1]
    assert (played.instances, tracefs._watched) == ([], {})


def test_who_may_not_mark_is_told_the_recorders_own_file(played, tmp_path):
    recorder = played.open_recorder(tmp_path / "rec", command_uid=OTHER)
    recorder.open()
    told = recorder.environment()["CRITPATH_MARKER"]
    assert told == str(played.root / "instances" / recorder._settings.session / "trace_marker")
    recorder.abort()


def test_some_users_are_let_in_by_name(played, tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(
        shown, "_let_in", lambda directory, users: said.append((Path(directory), users))
    )
    recorder = played.open_recorder(tmp_path / "rec", mark_users=(7, NOBODY))
    recorder.open()
    place = Path(marks.PLACE) / recorder._settings.session
    assert said == [(place, (7, NOBODY))]
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    recorder.abort()
    assert not place.exists()


@pytest.mark.parametrize("required", [True, False])
def test_a_machine_that_lets_nobody_mark_is_an_error_only_where_it_was_asked_for(
    played, tmp_path, monkeypatch, required
):
    def refuse(*_):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(shown, "mount_marker", refuse)
    recorder = played.open_recorder(
        tmp_path / "rec", mark_users=(marks.EVERYBODY,), marks_required=required
    )
    if required:
        with pytest.raises(CritpathError, match=os.strerror(errno.EPERM)):
            recorder.open()
    else:
        recorder.open()
        recorder.close()
        [warning] = recorder.drain(silent).warnings
        assert "marks of other users cannot arrive" in warning
    assert played.instances == []
    assert list(Path(marks.PLACE).iterdir()) == []


def test_what_others_write_is_bounded_and_its_loss_is_said(played, tmp_path, monkeypatch):
    most = 1 << 17
    monkeypatch.setattr(marks, "_MOST_BYTES", most)
    recorder = played.open_recorder(tmp_path / "rec", mark_users=(marks.EVERYBODY,), keep_raw=True)
    recorder.open()
    name = marks.instance_name(recorder._settings.session)
    texts = [f"critpath:begin x{number} " + "a" * 700 for number in range(5_000)]
    played.mark(*texts, instance=name)
    recorder.close()
    result = recorder.drain(silent)
    lost = sum(loss.events for loss in result.loss)
    assert lost > 2_000
    pages = [p.stat().st_size for p in (tmp_path / "rec/raw/marks").glob("cpu*")]
    # One buffer, and what was moved until then.
    assert 1 << 20 <= sum(pages) <= most + (2 << 20)
    events = read_events(tmp_path / "rec", KERNEL_EVENTS)
    assert sum(loss.events for loss in events.losses) == lost
    counted = json.loads((tmp_path / "rec/raw/marks/stats.json").read_text(encoding="utf-8"))
    assert sum(of["overrun"] for of in counted.values()) == lost


def test_who_holds_the_file_open_holds_nothing_else(played, tmp_path):
    recorder = played.open_recorder(tmp_path / "rec", mark_users=(marks.EVERYBODY,))
    recorder.open()
    session = recorder._settings.session
    recorder.close()
    held = marks.instance_name(session)
    played.refuse("remove", held, errno.EBUSY, times=20)
    [warning] = recorder.drain(silent).warnings
    assert f"{held} is turned off but held open" in warning
    assert played.instances == [held]
    assert (played.root / "instances" / held / "tracing_on").read_text() == "0\n"


def test_a_killed_recorder_leaves_nothing_that_cleaning_does_not_remove(played, tmp_path):
    session = played.dead_session()
    (tmp_path / "rec").mkdir()
    recorder = FtraceRecorder(
        RecorderSettings(session, tmp_path / "rec", mark_users=(marks.EVERYBODY,))
    )
    recorder.open()
    asked = marks.MarkRequests(session)
    asked._socket.close()  # its file stays
    played.play(0.2)
    played.kill(recorder)
    assert len(list(Path(marks.PLACE).iterdir())) == 2
    kinds = [leftover.kind for leftover in find_leftovers()]
    assert kinds == ["marker", "instance", "instance"]
    told = []
    assert remove_leftovers(lambda leftover, error: told.append((leftover.kind, error)))
    assert ("marker", None) in told
    assert list(Path(marks.PLACE).iterdir()) == []
    assert played.instances == []
