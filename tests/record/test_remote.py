"""Several hosts over ssh, with a stand-in for ssh that runs the host's part here."""

from __future__ import annotations

import io
import json
import os
import signal
import stat
import tarfile
import threading
import time

import pytest

from critpath import __version__
from critpath.commands import main
from critpath.errors import UsageError
from critpath.record import remote
from critpath.record.remote import check_hosts, directory_of, unpack

# Runs what ssh was given after the host's name; some hosts are odd.
SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
host=$2
[ "$host" = gone ] && { echo "ssh: connect to host gone port 22: No route to host" >&2; exit 255; }
[ "$host" = rude ] && { echo hello; exit 0; }
HOST=$host; export HOST
PATH=@BIN@/$host:@BIN@:$PATH exec sh -c "$3"
"""

# Records: waits for its time or SIGTERM, and writes what a recorder would.
CRITPATH = """#!/bin/sh
[ "$1" = --version ] && { echo "critpath @IS@"; exit; }
trap 'end=1' TERM
until=$(($(date +%s%N) / 1000000 + 300))
for word; do [ "$before" = -o ] && out=$word; before=$word; done
echo "$@" > "@BIN@/$HOST.said"
[ "$HOST" = noroot ] && { echo "critpath: not allowed to trace" >&2; exit 125; }
[ "$HOST" = killed ] && { sleep 0.1; kill -9 $PPID; exit 1; }
while [ -z "$end" ] && [ $(($(date +%s%N) / 1000000)) -lt $until ]; do sleep 0.02; done
mkdir -p "$out/trace" && echo '{"format": "critpath/recording/1"}' > "$out/critpath.json"
head -c 100000 /dev/zero > "$out/trace/stream_0"
"""


def program(place, text):
    place.write_text(text)
    place.chmod(place.stat().st_mode | stat.S_IXUSR)


@pytest.fixture(autouse=True)
def ssh(tmp_path, monkeypatch):
    """A directory with `ssh` and `critpath`, and what hosts leave behind."""
    place = tmp_path / "bin"
    (tmp_path / "tmp").mkdir()
    place.mkdir()
    program(place / "ssh", SSH.replace("@BIN@", str(place)))
    program(place / "critpath", CRITPATH.replace("@BIN@", str(place)).replace("@IS@", __version__))
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    return place


def record(tmp_path, hosts, *more):
    return main(["record", "--hosts", hosts, "--duration", "0.3", "-o", str(tmp_path / "o"), *more])


def left(tmp_path):
    """Return what is in the output, and what hosts and this one left elsewhere."""
    until = time.monotonic() + 5
    while any((tmp_path / "tmp").iterdir()) and time.monotonic() < until:
        time.sleep(0.02)
    elsewhere = [p.name for p in (*tmp_path.iterdir(), *(tmp_path / "tmp").iterdir())]
    out = tmp_path / "o"
    inside = sorted(p.name for p in out.iterdir()) if out.exists() else []
    return inside, sorted({*elsewhere} - {"bin", "tmp", "o"})


def test_all_hosts_are_recorded_and_fetched(tmp_path, ssh, capsys):
    assert record(tmp_path, "web,me@app", "--no-probe") == 0
    assert left(tmp_path) == (["app", "hosts.json", "web"], [])
    listed = json.loads((tmp_path / "o/hosts.json").read_text())
    assert listed["format"] == "critpath/hosts/1"
    assert [of["name"] for of in listed["hosts"]] == ["web", "app"]
    assert (tmp_path / "o/web/trace/stream_0").stat().st_size == 100_000
    said = (ssh / "web.said").read_text().split()
    assert said[:2] == ["record", "-a"]
    assert {"--duration", "0.3", "--profile", "network", "--no-probe"} <= {*said}
    assert "next: critpath clocks" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("bad", "said"), [("gone", "No route to host"), ("rude", "unexpected answer: hello")]
)
def test_one_that_cannot_begin_keeps_all_from_it(tmp_path, bad, said, capsys):
    assert record(tmp_path, f"web,{bad}") == 125
    assert left(tmp_path) == ([], [])
    shown = capsys.readouterr().err
    assert bad in shown
    assert said in shown
    assert "no host was recorded" in shown


def test_a_host_without_critpath(tmp_path, capsys):
    assert record(tmp_path, "web,app", "--remote-command", "none/critpath") == 125
    assert left(tmp_path) == ([], [])
    assert "none/critpath was not found on the host" in capsys.readouterr().err


@pytest.mark.parametrize(("bad", "said"), [("noroot", "not allowed to trace"), ("killed", "")])
def test_one_that_fails_ends_the_others_and_leaves_what_was_recorded(tmp_path, bad, said, capsys):
    begin = time.monotonic()
    assert main(["record", "--hosts", f"web,{bad}", "-o", str(tmp_path / "o")]) == 125
    assert time.monotonic() - begin < 30
    assert left(tmp_path)[0] == ["hosts.json", "web"]
    shown = capsys.readouterr().err
    assert f"warning: {bad}: " in shown
    assert said in shown


def test_nothing_is_left_where_no_host_recorded(tmp_path, capsys):
    assert record(tmp_path, "noroot") == 125
    assert left(tmp_path) == ([], [])
    assert "nothing was kept" in capsys.readouterr().err


def test_a_host_whose_connection_is_lost_stops_and_keeps_nothing(tmp_path, ssh):
    lost = '{ echo start; sleep 0.1; } | sh -c "$3" | head -n 1'
    program(ssh / "ssh", SSH.replace('exec sh -c "$3"', f"; {lost}").replace("@BIN@", str(ssh)))
    assert record(tmp_path, "web") == 125
    assert left(tmp_path) == ([], [])


def test_an_interrupt_ends_the_recording_and_keeps_it(tmp_path, ssh):
    def wait(seconds):
        time.sleep(seconds)
        raise KeyboardInterrupt

    request = remote.RemoteRequest(("web", "app"), tmp_path / "o", 0.0, ("--no-probe",))
    assert remote.record_hosts(request, lambda _: None, wait) == (["web", "app"], [])
    assert "--duration 86400" in (ssh / "web.said").read_text()
    assert left(tmp_path) == (["app", "hosts.json", "web"], [])


def test_a_second_interrupt_says_where_the_recording_will_be(tmp_path, ssh):
    """While it is converted: it is neither fetched nor lost."""
    text = (ssh / "critpath").read_text()
    program(ssh / "critpath", text.replace("mkdir -p", "sleep 1; mkdir -p"))

    def wait(seconds):
        time.sleep(seconds)
        threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT)).start()
        raise KeyboardInterrupt

    request = remote.RemoteRequest(("web",), tmp_path / "o", 0.0, ("--no-probe",), probes=False)
    fetched, [wrong] = remote.record_hosts(request, lambda _: None, wait)
    assert fetched == []
    [there] = (tmp_path / "tmp").iterdir()
    assert "interrupted" in wrong
    assert f"is left there once it is whole, in {there}/recording" in wrong
    until = time.monotonic() + 5
    while not (there / "recording/trace/stream_0").exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert (there / "recording/critpath.json").is_file()
    assert not (tmp_path / "o").exists()


def test_a_host_that_never_says_what_time_it_is_is_given_up(tmp_path, ssh, monkeypatch, capsys):
    monkeypatch.setattr(remote, "_SILENT", 0.5)
    (ssh / "web").mkdir()
    program(ssh / "web/python3", "#!/bin/sh\necho critpath-hosts clock\nexec sleep 5\n")
    begin = time.monotonic()
    assert record(tmp_path, "web") == 125
    assert time.monotonic() - begin < 15
    shown = capsys.readouterr().err
    assert "web: it does not say what time it is" in shown
    assert "--no-probes" in shown


def test_only_a_set_or_a_recording_is_replaced_and_only_if_asked(tmp_path, capsys):
    assert record(tmp_path, "web,app") == 0
    assert record(tmp_path, "web") == 2
    assert "has a recording already" in capsys.readouterr().err
    assert record(tmp_path, "web", "--force") == 0
    assert left(tmp_path) == (["hosts.json", "web"], [])
    (tmp_path / "o/thesis.txt").write_text("mine")
    assert record(tmp_path, "web", "--force") == 2
    assert "no recording: --force does not replace it" in capsys.readouterr().err
    assert left(tmp_path) == (["hosts.json", "thesis.txt", "web"], [])


def test_what_was_there_stays_where_no_host_recorded(tmp_path):
    assert record(tmp_path, "web") == 0
    assert record(tmp_path, "noroot", "--force") == 125
    assert left(tmp_path) == (["hosts.json", "web"], [])


@pytest.mark.parametrize("kind", ["home", "file", "link", "here", "nowhere"])
def test_a_place_that_cannot_be_written_is_refused_before_a_host_is_asked(
    tmp_path, ssh, monkeypatch, kind
):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("mine")
    (tmp_path / "link").symlink_to(mine)
    monkeypatch.chdir(mine)
    places = {"home": mine, "file": mine / "thesis.txt", "link": tmp_path / "link"}
    place = str(places.get(kind, "." if kind == "here" else "no/where"))
    assert main(["record", "--hosts", "web", "--duration", "1", "--force", "-o", place]) == 2
    assert (mine / "thesis.txt").read_text() == "mine"
    assert not (ssh / "web.said").exists()


@pytest.mark.parametrize(
    "text",
    ["-oProxyCommand=x", "web,-l", "", "web,", "a b", "a;b", "web,web", "hosts.json", "a" * 300],
)
def test_hosts_that_ssh_could_take_for_something_else(text):
    with pytest.raises(UsageError):
        check_hosts(text)


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


def test_hosts_end_by_themselves_and_are_told_to_only_when_far_too_late(tmp_path, ssh, monkeypatch):
    program(ssh / "critpath", (ssh / "critpath").read_text().replace("+ 300", "+ 1000"))
    with (ssh / "critpath").open("a") as stream:
        stream.write(f'echo "told:$end" > {ssh}/$HOST.end\n')
    assert record(tmp_path, "web") == 0
    assert (ssh / "web.end").read_text() == "told:\n"
    monkeypatch.setattr(remote, "_MARGIN", 0.1)
    assert record(tmp_path, "web", "--force") == 0
    assert (ssh / "web.end").read_text() == "told:1\n"


def test_a_recording_that_cannot_be_fetched_stays_where_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(remote, "_SPARE", 1 << 60)
    assert record(tmp_path, "web") == 125
    shown = capsys.readouterr().err
    assert "too little space is free here" in shown
    [there] = (tmp_path / "tmp").iterdir()
    assert f"its recording is left there, in {there}/recording" in shown
    assert (there / "recording/critpath.json").is_file()
    assert not (tmp_path / "o").exists()


def test_options_are_handed_on_or_refused(tmp_path, ssh, capsys):
    assert record(tmp_path, "web", "--labels-from", "bytes", "--marks-from", "all") == 0
    said = (ssh / "web.said").read_text()
    assert "--labels-from bytes --marks-from all" in said
    for more in (["-n", "3"], ["--warmup", "1"], ["--prepare", "x"], ["--timeout", "1"]):
        assert record(tmp_path, "app", *more) == 2
        assert f"{more[0]} without a command" in capsys.readouterr().err
    assert record(tmp_path, "app", "--as-root") == 2
    assert "--as-root with --hosts" in capsys.readouterr().err


def test_what_a_recorder_warned_of_is_printed_by_host(tmp_path, ssh, capsys):
    text = (ssh / "critpath").read_text()
    more = {"format": "critpath/recording/1", "warnings": ["much was odd"], "begin": 0, "end": 1}
    more |= dict.fromkeys(("state", "session", "execution", "profile"), "")
    more |= {key: {} for key in ("recorder", "clock", "host")}
    program(ssh / "critpath", text.replace('{"format": "critpath/recording/1"}', json.dumps(more)))
    assert record(tmp_path, "web", "--quiet") == 0
    assert "warning: web: much was odd" in capsys.readouterr().err


def test_archives_that_are_too_large_or_end_early(tmp_path, monkeypatch):
    whole = archive(("a", tarfile.REGTYPE, 5000)).getvalue()
    with pytest.raises((ValueError, OSError, tarfile.TarError)):
        unpack(io.BytesIO(whole[:3000]), tmp_path / "cut")
    monkeypatch.setattr(remote, "_MOST_BYTES", 4000)
    with pytest.raises(ValueError, match="too large"):
        unpack(io.BytesIO(whole), tmp_path / "large")


def test_a_host_that_never_answers(tmp_path, ssh, monkeypatch, capsys):
    monkeypatch.setattr(remote, "_PATIENCE", 0.3)
    program(ssh / "ssh", "#!/bin/sh\nexec sleep 30\n")
    before = threading.active_count()  # with those of tests before
    assert record(tmp_path, "web") == 125
    assert "no answer in time" in capsys.readouterr().err
    assert left(tmp_path) == ([], [])
    assert threading.active_count() < before + 10
