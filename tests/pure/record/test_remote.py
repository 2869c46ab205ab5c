"""Several hosts over ssh: what is asked of them, and what is made of their answers."""

from __future__ import annotations

import io
import json
import stat
import tarfile
import threading
from pathlib import Path

import pytest

from critpath import __version__
from critpath.commands import main, remote
from critpath.commands import record as verb
from critpath.commands.remote import RemoteRequest, directory_of, unpack
from critpath.errors import UsageError
from tests.played.hosts import MANIFEST, PlayedHost, PlayedNetwork
from tests.played.processes import Clock


class Waiting(Clock):
    """Lets the threads that listen to hosts go on for a moment."""

    def sleep(self, seconds):
        super().sleep(seconds)
        threading.Event().wait(0.001)


@pytest.fixture
def network(monkeypatch):
    """Return a function that says which hosts there are."""

    def make(**hosts):
        made = PlayedNetwork(__version__, **hosts)
        monkeypatch.setattr(remote, "subprocess", made)
        monkeypatch.setattr(verb, "time", Waiting())
        return made

    return make


def record(tmp_path, hosts, *more):
    return main(["record", "--hosts", hosts, "--duration", "9", "-o", str(tmp_path / "o"), *more])


def kept(tmp_path):
    out = tmp_path / "o"
    return sorted(p.name for p in out.iterdir()) if out.exists() else []


def test_all_hosts_are_recorded_and_fetched(tmp_path, network, capsys):
    hosts = network(web=PlayedHost(), app=PlayedHost())
    assert record(tmp_path, "web,me@app") == 0
    assert kept(tmp_path) == ["app", "hosts.json", "web"]
    listed = json.loads((tmp_path / "o/hosts.json").read_text())
    assert listed["format"] == "critpath/hosts/1"
    assert [of["name"] for of in listed["hosts"]] == ["web", "app"]
    assert [len(of["probes"]) for of in listed["hosts"]] == [40, 40]
    assert (tmp_path / "o/web/critpath.json").read_bytes() == MANIFEST
    said = hosts.lines["web"].heard()
    assert [word.strip("?.") for word in said] == ["start", "stop", "fetched"]
    assert "next: critpath clocks" in capsys.readouterr().err


def test_options_are_handed_on_or_refused(tmp_path, network, capsys):
    hosts = network(web=PlayedHost())
    words = ("--labels-from", "bytes", "--marks-from", "all", "--no-probe", "--no-probes")
    assert record(tmp_path, "web", *words) == 0
    script = hosts.calls["web"][-1]
    assert "critpath record -a --profile network --recorder auto" in script
    assert "--labels-from bytes --marks-from all --no-probe --duration 9" in script
    assert hosts.lines["web"].heard() == ["start", "stop", "fetched"]  # nobody asked the time
    for more in (["-n", "3"], ["--warmup", "1"], ["--prepare", "x"], ["--timeout", "1"]):
        assert record(tmp_path, "app", *more) == 2
        assert f"{more[0]} without a command" in capsys.readouterr().err
    assert record(tmp_path, "app", "--as-root") == 2
    assert "--as-root with --hosts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (PlayedHost(ready="", told="ssh: No route to host", code=255), "No route to host"),
        (PlayedHost(ready="hello"), "unexpected answer: hello"),
        (PlayedHost(ready="critpath-hosts failed: it was not found"), "it was not found"),
        (PlayedHost(ready=""), "the line is dead"),
    ],
)
def test_one_that_cannot_begin_keeps_all_from_it(tmp_path, network, bad, said, capsys):
    hosts = network(web=PlayedHost(), bad=bad)
    assert record(tmp_path, "web,bad") == 125
    assert kept(tmp_path) == []
    shown = capsys.readouterr().err
    assert "bad: " in shown
    assert said in shown
    assert "no host was recorded" in shown
    assert "start" not in hosts.lines["web"].heard()


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (PlayedHost(done="critpath-hosts failed: not allowed to trace"), "not allowed to trace"),
        (PlayedHost(done="", code=255), "exit code 255"),
        (PlayedHost(files={"other": b""}), "it ended early"),
    ],
)
def test_one_that_fails_ends_the_others_and_leaves_what_was_recorded(
    tmp_path, network, bad, said, capsys
):
    network(web=PlayedHost(), bad=bad)
    assert record(tmp_path, "web,bad") == 125
    assert kept(tmp_path) == ["hosts.json", "web"]
    shown = capsys.readouterr().err
    assert "warning: bad: " in shown
    assert said in shown


def test_nothing_is_left_where_no_host_recorded(tmp_path, network, capsys):
    network(bad=PlayedHost(done="critpath-hosts failed: no"))
    assert record(tmp_path, "bad") == 125
    assert kept(tmp_path) == []
    assert "nothing was kept" in capsys.readouterr().err


def test_another_version_is_said(tmp_path, network, capsys):
    network(web=PlayedHost(ready="critpath-hosts ready /tmp/there\tcritpath 0.0.1"))
    assert record(tmp_path, "web") == 0
    shown = capsys.readouterr().err
    assert "warning: web: it has critpath 0.0.1, this is critpath " in shown


@pytest.mark.parametrize("times", [1, 2])
def test_a_recording_that_is_interrupted(tmp_path, network, monkeypatch, times):
    """Once: it is kept. Twice, while it is made whole: it is neither fetched nor lost."""
    hosts = network(web=PlayedHost(done="critpath-hosts done" * (times == 1), silent=times == 2))

    def wait(_):
        raise KeyboardInterrupt

    def join(*_):
        for line in hosts.lines.values():
            line.kill()
        raise KeyboardInterrupt

    if times == 2:
        monkeypatch.setattr(remote, "_join", join_after(join))
    request = remote.RemoteRequest(("web",), tmp_path / "o", 0.0, (), probes=False)
    fetched, wrong = request.record(lambda _: None, wait)
    assert "--duration 86400" in hosts.calls["web"][-1]
    if times == 1:
        assert (fetched, wrong) == (["web"], [])
        assert kept(tmp_path) == ["hosts.json", "web"]
    else:
        assert fetched == []
        assert "its recording is left there once it is whole, in /tmp/there/recording" in wrong[0]
        assert kept(tmp_path) == []


def join_after(act):
    """Return a `_join` that does it for the first time, and acts at the second."""
    calls, real = [], remote._join

    def join(*given):
        calls.append(given)
        return real(*given) if len(calls) == 1 else act(*given)

    return join


def test_a_host_that_never_answers_and_one_that_never_says_what_time_it_is(
    tmp_path, network, monkeypatch, capsys
):
    monkeypatch.setattr(remote, "_PATIENCE", 0.05)
    network(web=PlayedHost(ready="", silent=True))
    before = threading.active_count()  # with those of tests before
    assert record(tmp_path, "web") == 125
    assert "no answer in time" in capsys.readouterr().err
    monkeypatch.setattr(remote, "_PATIENCE", 60.0)
    monkeypatch.setattr(remote, "_SILENT", 0.05)
    hosts = network(web=PlayedHost(clock=False, silent=True))
    assert record(tmp_path, "web") == 125
    shown = capsys.readouterr().err
    assert "web: it does not say what time it is" in shown
    assert "--no-probes" in shown
    assert hosts.lines["web"].killed
    assert kept(tmp_path) == []
    assert threading.active_count() < before + 10


def test_only_a_set_or_a_recording_is_replaced_and_only_if_asked(tmp_path, network, capsys):
    network(web=PlayedHost(), app=PlayedHost(), bad=PlayedHost(done="critpath-hosts failed: no"))
    assert record(tmp_path, "web,app") == 0
    assert record(tmp_path, "web") == 2
    assert "has a recording already" in capsys.readouterr().err
    assert record(tmp_path, "web", "--force") == 0
    assert kept(tmp_path) == ["hosts.json", "web"]
    assert record(tmp_path, "bad", "--force") == 125
    assert kept(tmp_path) == ["hosts.json", "web"]  # what was there stays
    (tmp_path / "o/thesis.txt").write_text("mine")
    assert record(tmp_path, "web", "--force") == 2
    assert "no recording: --force does not replace it" in capsys.readouterr().err
    assert kept(tmp_path) == ["hosts.json", "thesis.txt", "web"]


@pytest.mark.parametrize("kind", ["home", "file", "link", "here", "nowhere"])
def test_a_place_that_cannot_be_written_is_refused_before_a_host_is_asked(
    tmp_path, network, monkeypatch, kind
):
    hosts = network(web=PlayedHost())
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("mine")
    (tmp_path / "link").symlink_to(mine)
    monkeypatch.chdir(mine)
    places = {"home": mine, "file": mine / "thesis.txt", "link": tmp_path / "link"}
    place = str(places.get(kind, "." if kind == "here" else "no/where"))
    assert main(["record", "--hosts", "web", "--duration", "1", "--force", "-o", place]) == 2
    assert (mine / "thesis.txt").read_text() == "mine"
    assert hosts.calls == {}


@pytest.mark.parametrize(
    "text",
    ["-oProxyCommand=x", "web,-l", "", "web,", "a b", "a;b", "web,web", "hosts.json", "a" * 300],
)
def test_hosts_that_ssh_could_take_for_something_else(text):
    with pytest.raises(UsageError):
        RemoteRequest(tuple(text.split(",")), Path("out"), 0.0, ())


def test_names_of_directories():
    assert [directory_of(x) for x in ("me@web-1.example", "[::1]", "a:22")] == [
        *("web-1.example", "1", "a-22")
    ]


def archive(*members):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, kind, much in (("critpath.json", tarfile.REGTYPE, 1), *members):
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, much, "/etc/passwd"
            tar.addfile(info, io.BytesIO(b"x" * much))
    stream.seek(0)
    return stream


@pytest.mark.parametrize(
    "member",
    [
        ("../out", tarfile.REGTYPE, 1),
        ("/out", tarfile.REGTYPE, 1),
        ("a/../../out", tarfile.REGTYPE, 1),
        ("link", tarfile.SYMTYPE, 0),
        ("link", tarfile.LNKTYPE, 0),
        ("pipe", tarfile.FIFOTYPE, 0),
        ("disk", tarfile.BLKTYPE, 0),
        ("d/" * 1500, tarfile.DIRTYPE, 0),
        ("\x1b]0;x\x07", tarfile.REGTYPE, 5),
        ("trace/\u202egpj.exe", tarfile.REGTYPE, 5),
        ("a\n::error::b", tarfile.REGTYPE, 5),
        ("\udcff", tarfile.REGTYPE, 5),
        ("much", tarfile.XHDTYPE, 2_000_000),
        ("holes", tarfile.GNUTYPE_SPARSE, 0),
        ("critpath.json", tarfile.REGTYPE, 1),
    ],
)
def test_hostile_archives_are_refused(tmp_path, member):
    with pytest.raises((ValueError, OSError)):
        unpack(archive(member), tmp_path / "web")
    assert not (tmp_path / "out").exists()


def test_what_is_fetched_is_for_its_owner_alone(tmp_path):
    unpack(archive(("trace/cpu/stream", tarfile.REGTYPE, 5)), tmp_path / "web")
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "web").rglob("*")}
    assert modes == {"critpath.json": 0o600, "trace": 0o700, "cpu": 0o700, "stream": 0o600}
    assert stat.S_IMODE((tmp_path / "web").stat().st_mode) == 0o700


def test_what_a_recorder_warned_of_is_printed_by_host(tmp_path, network, capsys):
    more = {"format": "critpath/recording/1", "warnings": ["much was odd"], "begin": 0, "end": 1}
    more |= dict.fromkeys(("state", "session", "execution", "profile"), "")
    more |= {key: {} for key in ("recorder", "clock", "host")}
    network(web=PlayedHost(files={"critpath.json": json.dumps(more).encode()}))
    assert record(tmp_path, "web", "--quiet") == 0
    assert "warning: web: much was odd" in capsys.readouterr().err


def test_a_recording_that_cannot_be_fetched_stays_where_it_is(
    tmp_path, network, monkeypatch, capsys
):
    monkeypatch.setattr(remote, "_SPARE", 1 << 60)
    hosts = network(web=PlayedHost())
    assert record(tmp_path, "web") == 125
    shown = capsys.readouterr().err
    assert "too little space is free here" in shown
    assert "its recording is left there, in /tmp/there/recording" in shown
    assert "fetched" not in hosts.lines["web"].heard()
    assert kept(tmp_path) == []


def test_archives_that_are_too_large_or_end_early(tmp_path, monkeypatch):
    whole = archive(("a", tarfile.REGTYPE, 5000)).getvalue()
    with pytest.raises((ValueError, OSError, tarfile.TarError)):
        unpack(io.BytesIO(whole[:3000]), tmp_path / "cut")
    monkeypatch.setattr(remote, "_MOST_BYTES", 4000)
    with pytest.raises(ValueError, match="too large"):
        unpack(io.BytesIO(whole), tmp_path / "large")
