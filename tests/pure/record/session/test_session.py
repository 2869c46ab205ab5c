"""A recording as its user sees it: codes, runs, manifests, what is said."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import stat
from pathlib import Path

import pytest

from critpath.errors import CritpathError
from critpath_marks.sessions import owner_of
from critpath_record import session as choose
from critpath_record._spawn import SpawnError
from critpath_record.recorder import RecorderSettings
from tests.played.session import STAYS


@pytest.mark.parametrize("code", [0, 7, 127])
def test_the_exit_code_is_the_commands(session, code):
    session.commands(work=lambda _: code)
    done = session.record("work")
    assert done.code == code, done.err
    [run] = session.manifest()["runs"]
    assert run["exit_code"] == code
    assert session.manifest()["state"] == "complete"
    assert ("1 of 1 run failed" in done.err) == bool(code)
    assert not session.instance


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_the_exit_code_of_a_signal_is_a_shells(session, number):
    session.commands(work=lambda process: process.send(number))
    assert session.record("work").code == 128 + number


def test_the_manifest(session):
    done = session.record("-n", "3", "--warmup", "2", "sh", "-c", "true")
    assert done.code == 0
    manifest = session.manifest()
    assert [r["number"] for r in manifest["runs"]] == [1, 2, 3]
    assert [r["pid"] for r in manifest["runs"]] == [p.pid for p in session.started[2:]]
    assert manifest["command"] == ["sh", "-c", "true"]
    assert manifest["execution"] == "process"
    assert manifest["warmup"] == 2
    assert manifest["recorder"]["name"] == "ftrace"
    assert manifest["host"]["kernel"] == os.uname().release
    assert manifest["clock"]["name"] == "monotonic"
    assert abs(manifest["clock"]["epoch"]) > 10**15
    assert owner_of(manifest["session"])
    begins = [manifest["begin"], *(t for r in manifest["runs"] for t in (r["begin"], r["end"]))]
    assert begins == sorted(begins)
    assert manifest["runs"][-1]["end"] <= manifest["end"]
    assert sorted(p.name for p in session.output.iterdir()) == ["critpath.json", "trace"]
    assert stat.S_IMODE(session.output.stat().st_mode) == 0o700
    modes = {stat.S_IMODE(p.stat().st_mode) for p in session.output.rglob("*") if p.is_file()}
    assert modes == {0o600}


def test_the_summary_names_what_is_there_and_what_comes_next(session):
    done = session.record("-n", "12", "true")
    assert "recorder: lttng" in done.err
    assert re.search(r"rec: 12 runs in \S+ \S+", done.err)
    assert "42 events" in done.err
    assert "critpath compare rec other" in done.err
    assert "warning" not in done.err
    assert not done.out
    assert not session.record("--force", "--quiet", "true").err


def test_every_run_gets_what_the_recorder_offers_and_the_sessions_name(session):
    assert session.record("-n", "2", "--prepare", "tidy", "true").code == 0
    name = session.manifest()["session"]
    assert {p.environment["CRITPATH_SESSION"] for p in session.started} == {name}
    prepared, run, *_ = session.started
    assert prepared.words == ("sh", "-c", "tidy")
    # Beside what critpath has inherited; nothing else that the recorder has open.
    [kept] = {*run.options["keep"]} - {*prepared.options["keep"]}
    assert run.environment["CRITPATH_MARKER"] == f"/dev/fd/{kept}"
    assert run.options["streams"] == (-1, -1, -1)
    assert "CRITPATH_MARKER" not in prepared.environment


def test_a_command_that_is_not_there(session):
    done = session.record("nosuch-command", "x")
    assert done.code == 127
    assert "nosuch-command: command not found" in done.err
    assert session.is_clean()
    assert session.calls() == []


def test_a_command_that_is_not_executable(session):
    (session.place / "plain").write_text("echo hi\n")
    for name in ("./plain", "/"):
        done = session.record(name)
        assert done.code == 126, done.err
        assert f"{name}: cannot be executed" in done.err
        assert session.is_clean()


def test_arguments_arrive_as_they_are(session):
    odd = [b"a b", b"", b"\xff\xfe", "ä".encode(), b"--debug", b"--", b"$HOME\n", b"--show-config"]
    done = session.record("--", "true", *map(os.fsdecode, odd))
    assert done.code == 0, done.err
    assert [os.fsencode(word) for word in session.started[0].words[1:]] == odd
    assert [os.fsencode(word) for word in session.manifest()["command"][1:]] == odd


def test_options_end_at_the_command(session):
    words = ("sh", "-c", 'echo : "$@"', "sh", "-n", "5", "--force", "--quiet")
    assert session.record("-n", "2", *words).code == 0
    assert [process.words for process in session.started] == [words] * 2


def test_a_timeout_ends_the_whole_tree(session):
    tree = []

    def work(process):
        child = process.fork()
        apart = process.fork(group=child.pid)  # in a session of its own
        for one in (process, child):
            one.traps[signal.SIGTERM] = None
        tree.extend((process, child, apart))
        return STAYS

    session.commands(work=work)
    done = session.record("--timeout", "0.3", "work")
    assert done.code == 124
    assert "reached the timeout of 0.3 s" in done.err
    [run] = session.manifest()["runs"]
    assert (run["timed_out"], run["exit_code"]) == (True, 124)
    assert 300_000_000 < run["end"] - run["begin"] < 3_000_000_000
    assert [process.got for process in tree] == [
        [signal.SIGTERM, signal.SIGCONT, signal.SIGKILL],
        [signal.SIGTERM, signal.SIGCONT, signal.SIGKILL],
        [signal.SIGTERM],
    ]


def test_what_outlives_a_run_is_counted_and_let_be(session):
    def work(process):
        process.fork(group=0)

    session.commands(work=work)
    done = session.record("-n", "2", "work")
    assert done.code == 0
    assert [r["outlived"] for r in session.manifest()["runs"]] == [1, 1]
    assert "2 of 2 runs left processes running (2 in all)" in done.err
    assert [process.got for process in session.world.processes.values()] == [[], []]


def test_orphans_that_end_are_collected_and_not_counted(session):
    def work(process):
        for _ in range(3):
            process.fork().exit()

    session.commands(work=work)
    assert session.record("work").code == 0
    assert [r["outlived"] for r in session.manifest()["runs"]] == [0]
    assert session.world.processes == {}


def test_the_first_failure_is_the_code(session):
    session.commands(work=lambda _: len(session.started) - 1)
    done = session.record("-n", "4", "work")
    assert done.code == 1
    assert [r["exit_code"] for r in session.manifest()["runs"]] == [0, 1, 2, 3]
    assert "3 of 4 runs failed (exit code 1, 2, 3)" in done.err


def test_prepare_comes_before_every_run(session):
    done = session.record("-n", "2", "--warmup", "1", "--prepare", "tidy", "true")
    assert done.code == 0, done.err
    assert [process.words[0] for process in session.started] == ["sh", "true"] * 3


def test_a_prepare_that_fails_ends_it(session):
    session.commands(sh=lambda _: int(len(session.started) > 1))
    done = session.record("-n", "3", "--prepare", "test ! -e ran", "true")
    assert done.code == 125
    assert "--prepare failed with 1 before run 2" in done.err
    assert session.is_clean()
    assert session.calls() == ["open", "abort"]


def test_interleaved_recordings_run_in_blocks_of_random_order(session):
    ran = []
    session.commands(work=lambda process: ran.append(process.words[1]) or 2 * (ran[-1] == "B B"))
    done = session.record("-n", "7", "--interleave", "work A", "work 'B B'")
    assert done.code == 2, done.err
    normal, sample = session.manifest("rec/normal"), session.manifest("rec/sample")
    order = normal["order"]
    assert sample["order"] == order
    assert {order[i : i + 2] for i in range(0, 14, 2)} <= {"AB", "BA"}
    assert (len(order), normal["block_runs"], sample["block_runs"]) == (14, 2, 2)
    assert [word[0] for word in ran] == list(order)
    assert (normal["interleaved"], sample["interleaved"]) == ("sample", "normal")
    assert normal["session"] == sample["session"]
    assert [r["number"] for r in normal["runs"]] == list(range(1, 8))
    assert [r["number"] for r in sample["runs"]] == list(range(1, 8))
    assert normal["command"] == ["work", "A"]
    assert {r["exit_code"] for r in sample["runs"]} == {2}
    starts = sorted((r["begin"], k) for k, m in ((0, normal), (1, sample)) for r in m["runs"])
    assert "".join("AB"[k] for _, k in starts) == order
    files = [session.output / k / "trace/kernel/channel0_0" for k in ("normal", "sample")]
    assert files[0].samefile(files[1])
    assert "next: critpath compare rec/normal rec/sample" in done.err
    assert session.calls() == ["open", "close", "drain"]
    # The pair is ours to replace, as a single recording is.
    assert session.record("true").code == 2
    assert session.record("--force", "true").code == 0
    assert sorted(p.name for p in session.output.iterdir()) == ["critpath.json", "trace"]


def test_the_whole_machine_for_a_while(session):
    done = session.record("-a", "--duration", "5")
    assert done.code == 0
    manifest = session.manifest()
    assert manifest["runs"] == manifest["command"] == []
    assert manifest["execution"] == ""
    assert 5_000_000_000 <= manifest["end"] - manifest["begin"] < 5_100_000_000
    assert " left" not in done.err + done.out  # which is for a terminal
    assert "\r" not in done.err


def test_an_execution_that_is_no_specification(session):
    done = session.record("--execution", "nonsense:", "true")
    assert done.code == 2
    assert session.is_clean()
    assert session.record("--execution", "thread", "true").code == 0
    assert session.manifest()["execution"] == "thread"


@pytest.mark.parametrize("step", ["open", "close", "drain"])
def test_a_recorder_that_fails_leaves_nothing(session, step):
    done = session.record("true", fail=step)
    assert done.code == 125
    assert f"cannot {step}" in done.err
    assert session.is_clean()


def test_a_recorder_that_gives_up_ends_the_runs(session):
    done = session.record("-n", "5", "--", "true", fail="run")
    assert done.code == 125
    manifest = session.manifest()
    assert (manifest["state"], len(manifest["runs"])) == ("interrupted", 1)
    assert "recording ended in run 1: no space left" in manifest["warnings"]


def test_a_recorder_that_gives_up_ends_a_recording_of_the_machine(session):
    done = session.record("-a", "--duration", "60", fail="run")
    assert done.code == 125
    assert session.manifest()["state"] == "interrupted"
    assert "recording ended early: no space left" in session.manifest()["warnings"]


@pytest.mark.parametrize("interleaved", [False, True])
def test_what_cannot_become_a_trace_yet_is_kept_with_its_runs(session, interleaved):
    command = ("--interleave", "true", "true") if interleaved else ("true",)
    done = session.record("-n", "3", *command, fail="later")
    assert done.code == 125
    first = "rec/normal" if interleaved else "rec"
    place = session.output / "normal" if interleaved else session.output
    assert f"critpath doctor --clean {place}; what was recorded is kept" in done.err
    for name in (first, first.replace("normal", "sample")):
        manifest = session.manifest(name)
        assert (manifest["state"], len(manifest["runs"])) == ("recording", 3)
        assert manifest["warnings"] == ["no space left"]
    # For the next recording, or doctor, to find.
    assert len(list(session.registry.iterdir())) == 1
    assert not session.instance


@pytest.mark.parametrize("half", ["", "normal", "sample"])
def test_a_disk_that_is_full_at_the_manifest_costs_no_recording(session, half):
    command = ("--interleave", "true", "true") if half else ("true",)
    done = session.record("-n", "3", *command, full="manifest", half=half)
    assert done.code == 125
    assert "what was recorded is kept" in done.err
    for name in ("rec/normal", "rec/sample") if half else ("rec",):
        manifest = session.manifest(name)
        assert (manifest["state"], len(manifest["runs"])) == ("recording", 3)
        assert manifest["end"] >= manifest["runs"][-1]["end"]
        assert manifest["loss"] == []
    assert (session.output / ("normal" if half else "") / "raw" / "raw.json").exists()
    assert not list(session.output.rglob("metadata"))
    assert len(list(session.registry.iterdir())) == 1


def test_a_trace_that_cannot_be_linked_costs_no_recording(session):
    done = session.record("--interleave", "true", "true", full="link")
    assert done.code == 125
    assert "sample/trace cannot be made: " in done.err
    assert "what was recorded is kept" in done.err
    for name in ("rec/normal", "rec/sample"):
        manifest = session.manifest(name)
        assert (manifest["state"], len(manifest["runs"])) == ("recording", 1)
        assert manifest["end"] >= manifest["runs"][-1]["end"]
    assert (session.output / "normal" / "raw" / "raw.json").exists()


@pytest.mark.parametrize("what", ["owner", "release"])
def test_what_fails_after_the_recording_is_only_said(session, what):
    session.output.mkdir()
    done = session.record("true", full=what)
    assert (done.code, session.manifest()["state"]) == (0, "complete"), done.err
    assert "warning: " in done.err
    assert re.search("could (not )?be", done.err)
    assert "quota" in done.err


def test_what_cannot_be_replaced_gets_the_recording_beside_it(session):
    assert session.record("true").code == 0
    before = session.manifest()
    done = session.record("--force", "true", full="name")
    assert done.code == 125
    assert "cannot replace" in done.err
    assert "busy" in done.err
    [beside] = session.place.glob("rec.critpath-*")
    assert f"the new recording is {beside}" in done.err
    assert session.manifest(beside.name)["state"] == "complete"
    assert session.manifest() == before


def test_more_runs_than_a_manifest_takes_are_refused_at_the_start(session):
    done = session.record("-n", "200001", "true")
    assert (done.code, session.calls()) == (2, [])
    assert "200,000" in done.err


def test_a_run_that_cannot_be_noted_is_said_and_the_others_go_on(session):
    """As on a disk that the command has filled; here something is in the way."""
    session.commands(work=lambda _: (session.output / "runs.jsonl").mkdir(exist_ok=True))
    done = session.record("-n", "2", "work")
    manifest = session.manifest()
    assert (done.code, len(manifest["runs"])) == (0, 2)
    assert [w for w in manifest["warnings"] if "could not be noted" in w]


def test_auto_says_which_and_why(session):
    done = session.record("true", missing={"lttng": "no modules"})
    assert "recorder: ftrace (lttng: no modules)" in done.err
    neither = {"lttng": "no modules", "ftrace": "not root"}
    done = session.record("-o", "b", "true", missing=neither)
    assert done.code == 125
    assert "lttng: no modules; ftrace: not root" in done.err
    assert "critpath doctor" in done.err
    done = session.record("-o", "b", "--recorder", "ftrace", "true", missing=neither)
    assert "mend ftrace" in done.err
    assert not (session.place / "b").exists()


def test_without_proc_nothing_is_recorded(monkeypatch):
    monkeypatch.setattr(choose, "lacks_proc", lambda: True)
    with pytest.raises(CritpathError, match="/proc is not mounted"):
        choose.choose_recorder("auto", RecorderSettings("", Path()))


def test_loss_is_said_loudly_even_when_quiet(session):
    done = session.record("--quiet", "true", lost=100)
    assert done.code == 0
    assert "warning: 100 events were lost (10 %)" in done.err
    assert "--buffer-size" in done.err
    manifest = session.manifest()
    assert manifest["loss"] == [{"cpu": 0, "events": 100, "packets": 0}]
    assert "a warning of the recorder" in manifest["warnings"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "no command to record"),
        (("-a", "true"), "-a or --container together with the command true"),
        (("-a", "-n", "3"), "-n without a command"),
        (("--duration", "3", "true"), "--duration with a command"),
        (("--interleave", "a", "b", "true"), "--interleave has its two commands"),
        (("--interleave", "a 'b", "c"), "cannot split"),
        (("--interleave", "", "c"), "a command is empty"),
        (("-n", "0", "true"), "'0' is not a whole number"),
        (("--timeout", "-1", "true"), "is not a number of seconds"),
        (("--buffer-size", "big", "true"), "is not a size"),
        (("--profile", "x y", "true"), "is not a name"),
        (("--profile", "../x", "true"), "there is no profile '../x'"),
        (("--nosuch", "true"), "--nosuch"),
    ],
)
def test_usage(session, arguments, says):
    done = session.record(*arguments)
    assert done.code == 2
    assert says in done.err
    assert session.is_clean()


def test_the_output_has_a_default(session):
    assert session.record("/bin/sh", "-c", "true", output=None).code == 0
    [made] = [p.name for p in session.place.iterdir()]
    assert re.fullmatch(r"critpath-\d{8}T\d{6}-sh", made)


def test_runs_are_on_disk_while_it_records(session):
    seen = []

    def work(_):
        runs = session.output / "runs.jsonl"
        seen.append(runs.read_text() if runs.exists() else "")
        assert session.manifest()["state"] == "recording"

    session.commands(work=work)
    assert session.record("-n", "2", "work").code == 0
    assert seen[0] == ""
    assert (json.loads(seen[1])["number"], seen[1][-1]) == (1, "\n")
    assert not (session.output / "runs.jsonl").exists()


def failed(number, step):
    error = SpawnError(number, os.strerror(number))
    error.step = step
    return error


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (failed(errno.ENOENT, "exec"), 127, "work: command not found"),
        (failed(errno.EACCES, "exec"), 126, "work: cannot be executed"),
        (failed(errno.EPERM, "user"), 125, "give --as-root to run it as root"),
        (OSError(errno.EAGAIN, "no more processes"), 125, "no more processes"),
    ],
)
def test_a_start_that_fails_late_leaves_nothing(session, error, code, said):
    def fail(_):
        raise error

    session.commands(work=fail)
    done = session.record("work")
    assert done.code == code
    assert said in done.err
    assert session.is_clean()
    assert session.calls() == ["open", "abort"]


def test_a_machine_with_servers_is_recorded_with_their_requests(session):
    session.servers = ["nginx:80", "postgres:5432"]
    done = session.record("-a", "--duration", "1")
    assert done.code == 0
    assert session.manifest()["profile"] == "requests"
    assert "servers listen here (nginx:80, postgres:5432)" in done.err
    assert "--profile minimal undoes it" in done.err
    assert "--labels-from bytes" in done.err
    for asked in (["--profile", "minimal"], ["--execution", "marker"]):
        done = session.record("-a", "--duration", "1", "--force", *asked)
        assert session.manifest()["profile"] == "minimal"
        assert "servers listen" not in done.err


def test_without_events_of_sockets_a_machine_is_recorded_as_any(session):
    session.servers = ["nginx:80"]
    assert session.record("-a", "--duration", "1", way="calls+packets").code == 0
    assert session.manifest()["profile"] == "minimal"


def test_a_busy_machine_is_to_be_recorded_in_turns(session):
    assert "busy" not in session.record("true").err
    session.load = 10_000.0
    for words, advice in ((["true"], "--interleave"), (["-a", "--duration", "1"], "before/1")):
        done = session.record("--force", *words)
        assert advice in done.err
        assert done.err.index(advice) < done.err.index("recorder: ")
