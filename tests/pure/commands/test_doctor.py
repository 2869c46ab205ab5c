"""``critpath doctor`` on a played kernel: what it says of a machine, and its exit codes."""

from __future__ import annotations

import json
import os
import socket
import struct

import pytest

from critpath.commands import doctor as verb
from critpath.commands import main
from critpath_record import trials
from critpath_record.ftrace import preflight
from critpath_record.ftrace.marks import MarkRequests
from tests.played.names import dead_name

OTHER = 65533  # a user without a name


@pytest.fixture
def doctor(played, capsys):
    """Return a function: exit code and what ``critpath doctor ...`` prints."""
    assert played.instances == []

    def run(*arguments):
        code = main(["doctor", *arguments])
        return code, capsys.readouterr()

    return run


def test_json_has_everything(doctor):
    code, said = doctor("--json")
    document = json.loads(said.out)
    assert document["format"] == "critpath/doctor/1"
    assert set(document["recorders"]) == {"lttng", "ftrace", "counts"}
    assert document["recorders"]["ftrace"] == {
        "usable": True,
        "obstacles": [],
        "requests": "sockets",
    }
    assert document["can_record"]
    assert code == 0
    for recorder in document["recorders"].values():
        fatal = any(o["fatal"] for o in [*recorder["obstacles"], *document["obstacles"]])
        assert recorder["usable"] != fatal
        assert all(o["what"] and o["do"] for o in recorder["obstacles"])


def test_text_names_the_recorders(doctor):
    code, said = doctor()
    assert said.out.startswith("This machine can")
    assert "lttng: " in said.out
    assert "ftrace: " in said.out
    assert code == 0


def test_what_ftrace_lacks_is_said_with_what_to_do(doctor, played):
    preflight._LOCKDOWN.write_text("none integrity [confidentiality]\n", encoding="ascii")
    played.lack("sched/sched_switch")
    _, said = doctor("--json")
    found = json.loads(said.out)["recorders"]["ftrace"]
    assert not found["usable"]
    texts = " ".join(o["what"] for o in found["obstacles"])
    assert "locked down" in texts
    assert "no scheduling events" in texts


def test_what_is_left_is_said_and_removed(doctor, played):
    left = dead_name()
    played.make_left_over(left)
    code, said = doctor()
    assert code == 1
    assert left in said.out
    code, said = doctor("--clean")
    assert code == 0
    assert f"removed instance {left}" in said.out
    assert played.instances == []
    assert left not in doctor()[1].out


def test_programs_that_mark_without_access_are_named(doctor, monkeypatch):
    look = MarkRequests.look
    uid = os.geteuid() or OTHER
    who = (socket.SOL_SOCKET, socket.SCM_CREDENTIALS, struct.pack("iII", os.getpid(), uid, uid))

    def ask_and_look(requests):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
            asking.sendmsg([b""], [who], 0, str(requests._path))
        look(requests)

    monkeypatch.setattr(MarkRequests, "look", ask_and_look)
    assert f"({uid}): critpath record -a --marks-from {uid}" in doctor()[1].out


def test_what_is_no_recording_is_refused(doctor, tmp_path):
    (tmp_path / "nothing").mkdir()
    code, said = doctor("--clean", str(tmp_path / "nothing"))
    assert code == 4
    assert "is not a recording" in said.err


def test_what_is_tried_has_words():
    """What is lost, and what gives it: the recorder has facts alone."""
    assert [*verb._TRIED] == [*trials._TRIALS]


@pytest.mark.parametrize(("name", "code"), [("tracing", 1), ("CAP_BPF", 0)])
def test_what_a_container_keeps_from_a_recorder_is_said(doctor, monkeypatch, name, code):
    """Without tracing nothing is recorded, whatever else looks well; the rest is a warning."""
    found = [trials.Trial("limits", fatal=False, why="")]
    found.append(trials.Trial(name, fatal=name in trials._FATAL, why="Operation not permitted"))
    monkeypatch.setattr(trials, "try_all", lambda: found)
    usual, _ = doctor()
    done, said = doctor("--deep")
    assert (done, usual) == (code, 0)
    assert ("cannot record" in said.out) == bool(code)
    lost, do = verb._TRIED[name]
    assert "tried, and works: limits" in said.out
    assert f"{name}: Operation not permitted: {lost}" in said.out
    assert do in said.out
    _, said = doctor("--deep", "--json")
    tried = json.loads(said.out)["tried"]
    assert [(one["name"], bool(one["why"])) for one in tried] == [("limits", False), (name, True)]
