"""Several hosts over ssh: what runs on them, with a stand-in for ssh that runs it here."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from critpath import __version__
from critpath.commands import main, remote

# Runs what ssh was given after the host's name; from `cut` the line is lost once it records.
SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
HOST=$2; export HOST
PATH=@BIN@:$PATH; export PATH
[ "$HOST" = stay ] && { echo $$ >@BIN@/stays; sh -c "$3"; exec sleep 600; }
[ "$HOST" = cut ] || exec sh -c "$3"
{ echo start; read x <@BIN@/cut; } | sh -c "$3" | head -n 1
"""

# Says that it records, and writes what a recorder would: at once, or when it is told to end.
CRITPATH = """#!/bin/sh
[ "$1" = --version ] && { echo "critpath @IS@"; exit; }
trap 'end=1; kill $!' TERM
for word; do [ "$before" = -o ] && out=$word; before=$word; done
[ "$HOST" = noroot ] && { echo "critpath: not allowed to trace" >&2; exit 125; }
[ "$HOST" = killed ] && { kill -9 $PPID; exit 1; }
case $HOST in wait*|cut) sleep 600 & ;; esac
echo "$out" >@BIN@/$HOST.records
[ "$HOST" = cut ] && echo >@BIN@/cut
wait
[ "$HOST" = wait-late ] && read x <@BIN@/late
mkdir -p "$out/trace" && echo '{"format": "critpath/recording/1"}' > "$out/critpath.json"
head -c 100000 /dev/zero > "$out/trace/stream_0"
echo "told:$end" >@BIN@/$HOST.told
"""


def program(place, text):
    place.write_text(text)
    place.chmod(place.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def ssh(tmp_path, monkeypatch):
    """A directory with `ssh` and `critpath`, and what hosts say of themselves."""
    place = tmp_path / "bin"
    (tmp_path / "tmp").mkdir()
    place.mkdir()
    program(place / "ssh", SSH.replace("@BIN@", str(place)))
    program(place / "critpath", CRITPATH.replace("@BIN@", str(place)).replace("@IS@", __version__))
    for pipe in ("cut", "late"):
        os.mkfifo(place / pipe)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    return place


def record(tmp_path, hosts, *more):
    out = str(tmp_path / "o")
    return main(["record", "--hosts", hosts, "--duration", "0.01", "-o", out, *more])


def kept(tmp_path):
    out = tmp_path / "o"
    return sorted(p.name for p in out.iterdir()) if out.exists() else []


@pytest.fixture
def nothing_is_left(tmp_path, wait_for):
    """Wait until the hosts have removed what they made."""
    return lambda: wait_for(lambda: not any((tmp_path / "tmp").iterdir()))


def test_hosts_are_recorded_fetched_and_asked_the_time(tmp_path, ssh, nothing_is_left):
    assert record(tmp_path, "web,me@app") == 0
    assert kept(tmp_path) == ["app", "hosts.json", "web"]
    listed = json.loads((tmp_path / "o/hosts.json").read_text())
    for of in listed["hosts"]:
        assert len(of["probes"]) == 40
        assert all(left <= there <= back for left, there, back in of["probes"])
    assert (tmp_path / "o/web/trace/stream_0").stat().st_size == 100_000
    assert (ssh / "web.told").read_text() == "told:\n"  # it ended by itself
    nothing_is_left()


@pytest.mark.usefixtures("ssh")
def test_a_host_without_critpath(tmp_path, capsys, nothing_is_left):
    assert record(tmp_path, "web", "--no-probes", "--remote-command", "none/critpath") == 125
    assert kept(tmp_path) == []
    assert "none/critpath was not found on the host" in capsys.readouterr().err
    nothing_is_left()


@pytest.mark.usefixtures("ssh")
@pytest.mark.parametrize(("bad", "said"), [("noroot", "not allowed to trace"), ("killed", "")])
def test_one_that_fails_ends_the_others_and_leaves_what_was_recorded(tmp_path, bad, said, capsys):
    out = str(tmp_path / "o")
    assert main(["record", "--hosts", f"wait,{bad}", "--no-probes", "-o", out]) == 125
    assert kept(tmp_path) == ["hosts.json", "wait"]
    shown = capsys.readouterr().err
    assert f"warning: {bad}: " in shown
    assert said in shown


@pytest.mark.usefixtures("ssh")
def test_where_the_list_of_hosts_cannot_be_written_nothing_is_kept(tmp_path, monkeypatch, capsys):
    """They keep what they recorded, and it is said where."""
    monkeypatch.setattr(remote, "HOSTS", "none/hosts.json")
    assert record(tmp_path, "web,app", "--no-probes") == 125
    assert kept(tmp_path) == []
    *warnings, what, do = capsys.readouterr().err.splitlines()
    assert sum("could not be kept" in line and "left there, in /" in line for line in warnings) == 2
    assert what == "critpath: 2 of 2 hosts sent no recording: nothing was kept"
    assert do.startswith("  record again")


def test_a_host_that_does_not_hang_up_is_waited_for_no_longer(tmp_path, ssh, monkeypatch):
    monkeypatch.setattr(remote, "_PARTING", 0.1)
    assert record(tmp_path, "stay,web", "--no-probes") == 0
    assert kept(tmp_path) == ["hosts.json", "stay", "web"]
    assert not Path("/proc", (ssh / "stays").read_text().strip()).exists()


@pytest.mark.usefixtures("ssh")
def test_a_host_whose_connection_is_lost_stops_and_keeps_nothing(tmp_path, nothing_is_left):
    assert record(tmp_path, "cut", "--no-probes") == 125
    assert kept(tmp_path) == []
    nothing_is_left()


def test_one_that_does_not_end_is_told_to_far_too_late(tmp_path, ssh, monkeypatch):
    monkeypatch.setattr(remote, "_MARGIN", 0.01)
    assert record(tmp_path, "wait", "--no-probes") == 0
    assert (ssh / "wait.told").read_text() == "told:1\n"


class Interrupted:
    """An event; who waits for it for some time is interrupted."""

    def __init__(self, event):
        self.event, self.is_set = event, event.is_set

    def wait(self, *seconds):
        if seconds:
            raise KeyboardInterrupt
        self.event.wait()


def test_an_interrupt_ends_the_recording_and_a_second_says_where_it_will_be(
    tmp_path, ssh, wait_for, monkeypatch, nothing_is_left
):
    def interrupt(_):
        for host in hosts:
            wait_for((ssh / f"{host}.records").exists)
        raise KeyboardInterrupt

    def ask(*hosts):
        request = remote.RemoteRequest(hosts, tmp_path / "o", 0.0, (), probes=False)
        return request.record(lambda _: None, interrupt)

    hosts = ("wait", "wait2")
    assert ask(*hosts) == (["wait", "wait2"], [])
    nothing_is_left()

    # While it is converted: it is neither fetched nor lost.
    join, hosts = remote._join, ("wait-late",)

    def join_once(*given):
        monkeypatch.setattr(remote, "_join", join_and_interrupt)
        join(*given)

    def join_and_interrupt(hosts, ends, most):
        join(hosts, [Interrupted(event) for event in ends], most)

    monkeypatch.setattr(remote, "_join", join_once)
    (tmp_path / "o").rename(tmp_path / "before")
    fetched, [wrong] = ask(*hosts)
    assert fetched == kept(tmp_path) == []
    [there] = (tmp_path / "tmp").iterdir()
    assert "interrupted" in wrong
    assert f"is left there once it is whole, in {there}/recording" in wrong
    (ssh / "late").write_text("\n")
    wait_for((ssh / "wait-late.told").exists)
    assert (there / "recording/critpath.json").is_file()
    assert (there / "recording/trace/stream_0").is_file()


@pytest.mark.usefixtures("ssh")
def test_a_recording_that_cannot_be_fetched_stays_where_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(remote, "_SPARE", 1 << 60)
    assert record(tmp_path, "web", "--no-probes") == 125
    [there] = (tmp_path / "tmp").iterdir()
    assert f"its recording is left there, in {there}/recording" in capsys.readouterr().err
    assert (there / "recording/critpath.json").is_file()
    assert kept(tmp_path) == []
