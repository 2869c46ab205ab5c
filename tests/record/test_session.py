"""A recording as its user sees it: codes, runs, manifests, what is said."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from pathlib import Path

import pytest

from critpath.errors import CritpathError
from critpath.record import session as choose
from critpath.record.recorder import RecorderSettings
from critpath_marks.sessions import owner_of


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("true",), 0),
        (("sh", "-c", "exit 7"), 7),
        (("sh", "-c", "kill -TERM $$"), 143),
        (("sh", "-c", "kill -KILL $$"), 137),
        (("sh", "-c", "kill -INT $$"), 130),
        (("sh", "-c", "exit 127"), 127),
    ],
)
def test_the_exit_code_is_the_commands(box, command, code):
    done = box.record("--", *command)
    assert done.code == code, done.err
    [run] = box.manifest()["runs"]
    assert run["exit_code"] == code
    assert box.manifest()["state"] == "complete"
    assert ("1 of 1 run failed" in done.err) == bool(code)
    assert not box.instance


def test_the_manifest(box):
    done = box.record("-n", "3", "--warmup", "2", "sh", "-c", "true")
    assert done.code == 0
    manifest = box.manifest()
    assert [r["number"] for r in manifest["runs"]] == [1, 2, 3]
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
    assert len({r["pid"] for r in manifest["runs"]}) == 3
    assert sorted(p.name for p in box.output.iterdir()) == ["critpath.json", "trace"]
    assert stat.S_IMODE(box.output.stat().st_mode) == 0o700
    modes = {stat.S_IMODE(p.stat().st_mode) for p in box.output.rglob("*") if p.is_file()}
    assert modes == {0o600}


def test_the_summary_names_what_is_there_and_what_comes_next(box):
    done = box.record("-n", "12", "true")
    assert "recorder: lttng" in done.err
    assert re.search(r"rec: 12 runs, median \S+ \S+ \(", done.err)
    assert "42 events" in done.err
    assert "critpath compare rec other" in done.err
    assert "warning" not in done.err
    assert not done.out
    assert not box.record("--force", "--quiet", "true").err


def test_pids_are_the_commands_own(box):
    done = box.record("-n", "2", "sh", "-c", "echo $$")
    assert [r["pid"] for r in box.manifest()["runs"]] == [int(x) for x in done.out.split()]


def test_a_command_that_is_not_there(box):
    done = box.record("nosuch-command", "x")
    assert done.code == 127
    assert "nosuch-command: command not found" in done.err
    assert box.clean()
    assert box.calls() == []


def test_a_command_that_is_not_executable(box):
    (box.place / "plain").write_text("echo hi\n")
    for name in ("./plain", "/"):
        done = box.record(name)
        assert done.code == 126, done.err
        assert f"{name}: cannot be executed" in done.err
        assert box.clean()


def test_a_script_without_a_first_line_is_run_by_sh(box):
    script = box.place / "script"
    script.write_text('echo "<$1>"; exit 3\n')
    script.chmod(0o755)
    done = box.record("./script", "a b")
    assert (done.code, done.out) == (3, "<a b>\n")


def test_an_exec_that_fails_late_leaves_nothing(box):
    script = box.place / "script"
    script.write_text("#!/nosuch/interpreter\n")
    script.chmod(0o755)
    done = box.record("./script")
    assert done.code == 127
    assert box.clean()
    assert box.calls() == ["start", "abort"]


def test_arguments_arrive_as_they_are(box):
    odd = [b"a b", b"", b"\xff\xfe", "ä".encode(), b"--debug", b"--", b"$HOME\n", b"--show-config"]
    code = "import os, sys; print([os.fsencode(a) for a in sys.argv[1:]], end='')"
    done = box.record("--", sys.executable, "-c", code, *(os.fsdecode(x) for x in odd))
    assert done.code == 0, done.err
    assert done.out == repr(odd)
    assert [os.fsencode(a) for a in box.manifest()["command"][3:]] == odd


def test_options_end_at_the_command(box):
    done = box.record("-n", "2", "sh", "-c", 'echo : "$@"', "sh", "-n", "5", "--force", "--quiet")
    assert done.code == 0
    assert done.out.splitlines() == [": -n 5 --force --quiet"] * 2


def test_a_timeout_ends_the_whole_tree(box, is_alive, wait_for):
    line = (
        "trap '' TERM; echo $$ >pids; (trap '' TERM; sleep 600) & echo $! >>pids; "
        "setsid sh -c 'echo $$ >>pids; sleep 600'; sleep 600"
    )
    done = box.record("--timeout", "0.3", "sh", "-c", line)
    assert done.code == 124
    assert "reached the timeout of 0.3 s" in done.err
    [run] = box.manifest()["runs"]
    assert run["timed_out"]
    assert run["exit_code"] == 124
    for pid in (box.place / "pids").read_text().split():
        wait_for(lambda pid=pid: not is_alive(int(pid)))


def test_what_outlives_a_run_is_counted_and_let_be(box, is_alive, no_orphans):
    done = box.record("-n", "2", "sh", "-c", "setsid sleep 30 >/dev/null 2>&1 & echo $!")
    no_orphans += [int(x) for x in done.out.split()]
    assert done.code == 0
    assert [r["outlived"] for r in box.manifest()["runs"]] == [1, 1]
    assert "2 of 2 runs left processes running (2 in all)" in done.err
    assert all(map(is_alive, no_orphans))


def test_what_an_earlier_run_left_does_not_keep_zombies(box):
    """The first child that has ended is told of first, whoever it belonged to."""
    code = (
        "if mkdir first 2>/dev/null; then sleep 0.3 & exit; fi; sleep 0.6;"
        "for i in 1 2 3 4 5; do (true &); done; sleep 0.4;"
        "cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '$PPID >zombies; true"
    )
    assert box.record("-o", "rec", "-n", "2", "sh", "-c", code).code == 0
    assert int((box.place / "zombies").read_text()) == 0


def test_orphans_that_end_are_not_counted(box):
    done = box.record("sh", "-c", "for i in 1 2 3; do (true &) ; done; sleep 0.2")
    assert done.code == 0
    assert [r["outlived"] for r in box.manifest()["runs"]] == [0]


def test_the_first_failure_is_the_code(box):
    done = box.record("-n", "4", "sh", "-c", "echo x >>n; exit $(($(wc -l <n) - 1))")
    assert done.code == 1
    assert [r["exit_code"] for r in box.manifest()["runs"]] == [0, 1, 2, 3]
    assert "3 of 4 runs failed (exit code 1, 2, 3)" in done.err


def test_prepare_comes_before_every_run(box):
    done = box.record(
        *("-n", "2", "--warmup", "1", "--prepare", "echo p >>order"), "sh", "-c", "echo r >>order"
    )
    assert done.code == 0, done.err
    assert (box.place / "order").read_text().split() == list("prprpr")


def test_a_prepare_that_fails_ends_it(box):
    done = box.record("-n", "3", "--prepare", "test ! -e ran", "touch", "ran")
    assert done.code == 125
    assert "--prepare failed with 1 before run 2" in done.err
    assert box.clean()
    assert box.calls() == ["start", "abort"]


def test_interleaved_recordings_run_in_blocks_of_random_order(box):
    done = box.record(
        "-n", "7", "--interleave", "sh -c 'echo A >>order'", "sh -c 'echo \"B B\" >>order; exit 2'"
    )
    assert done.code == 2, done.err
    normal, sample = box.manifest("rec/normal"), box.manifest("rec/sample")
    order = normal["order"]
    assert sample["order"] == order
    assert [order[i : i + 4] in {"ABBA", "BAAB"} for i in (0, 4, 8)] == [True] * 3
    assert order[12:] in {"AB", "BA"}
    ran = (box.place / "order").read_text().replace("B B", "B").split()
    assert ran == list(order)
    assert (normal["interleaved"], sample["interleaved"]) == ("sample", "normal")
    assert normal["session"] == sample["session"]
    assert [r["number"] for r in normal["runs"]] == list(range(1, 8))
    assert [r["number"] for r in sample["runs"]] == list(range(1, 8))
    assert normal["command"] == ["sh", "-c", "echo A >>order"]
    assert {r["exit_code"] for r in sample["runs"]} == {2}
    starts = sorted((r["begin"], k) for k, m in ((0, normal), (1, sample)) for r in m["runs"])
    assert "".join("AB"[k] for _, k in starts) == order
    files = [box.output / k / "trace/kernel/channel0_0" for k in ("normal", "sample")]
    assert files[0].samefile(files[1])
    assert "next: critpath compare rec/normal rec/sample" in done.err
    assert box.calls() == ["start", "stop", "finish"]
    # The pair is ours to replace, as a single recording is.
    assert box.record("true").code == 2
    assert box.record("--force", "true").code == 0
    assert sorted(p.name for p in box.output.iterdir()) == ["critpath.json", "trace"]


def test_the_whole_machine_for_a_while(box):
    done = box.record("-a", "--duration", "0.2")
    assert done.code == 0
    manifest = box.manifest()
    assert manifest["runs"] == manifest["command"] == []
    assert manifest["execution"] == ""
    assert manifest["end"] - manifest["begin"] >= 150_000_000


def test_an_execution_that_is_no_specification(box):
    done = box.record("--execution", "nonsense:", "true")
    assert done.code == 2
    assert box.clean()
    assert box.record("--execution", "thread", "true").code == 0
    assert box.manifest()["execution"] == "thread"


@pytest.mark.parametrize("step", ["start", "stop", "finish"])
def test_a_recorder_that_fails_leaves_nothing(box, step):
    done = box.record("true", env={"FAKE_FAIL": step})
    assert done.code == 125
    assert f"cannot {step}" in done.err
    assert box.clean()


def test_a_recorder_that_gives_up_ends_the_runs(box):
    done = box.record("-n", "5", "--", "true", env={"FAKE_FAIL": "run"})
    assert done.code == 125
    manifest = box.manifest()
    assert (manifest["state"], len(manifest["runs"])) == ("interrupted", 1)
    assert "recording ended in run 1: no space left" in manifest["warnings"]


def test_a_recorder_that_gives_up_ends_a_recording_of_the_machine(box):
    done = box.record("-a", "--duration", "60", env={"FAKE_FAIL": "run"})
    assert done.code == 125
    assert box.manifest()["state"] == "interrupted"
    assert "recording ended early: no space left" in box.manifest()["warnings"]


@pytest.mark.parametrize("interleaved", [False, True])
def test_what_cannot_become_a_trace_yet_is_kept_with_its_runs(box, interleaved):
    command = ("--interleave", "true", "true") if interleaved else ("true",)
    done = box.record("-n", "3", *command, env={"FAKE_FAIL": "later"})
    assert done.code == 125
    first = "rec/normal" if interleaved else "rec"
    place = box.output / "normal" if interleaved else box.output
    assert f"critpath doctor --clean {place}; what was recorded is kept" in done.err
    for name in (first, first.replace("normal", "sample")):
        manifest = box.manifest(name)
        assert (manifest["state"], len(manifest["runs"])) == ("recording", 3)
        assert manifest["warnings"] == ["no space left"]
    # For the next recording, or doctor, to find.
    assert len(list(box.log.with_suffix(".registry").iterdir())) == 1
    assert not box.instance


@pytest.mark.parametrize("half", ["", "normal", "sample"])
def test_a_disk_that_is_full_at_the_manifest_costs_no_recording(box, half):
    command = ("--interleave", "true", "true") if half else ("true",)
    done = box.record("-n", "3", *command, env={"FAKE_FULL": "manifest", "FAKE_HALF": half})
    assert done.code == 125
    assert "what was recorded is kept" in done.err
    for name in ("rec/normal", "rec/sample") if half else ("rec",):
        manifest = box.manifest(name)
        assert (manifest["state"], len(manifest["runs"])) == ("recording", 3)
        assert manifest["end"] >= manifest["runs"][-1]["end"]
        assert manifest["loss"] == []
    assert (box.output / ("normal" if half else "") / "raw" / "raw.json").exists()
    assert not list(box.output.rglob("metadata"))
    assert len(list(box.log.with_suffix(".registry").iterdir())) == 1


def test_a_trace_that_cannot_be_linked_costs_no_recording(box):
    done = box.record("--interleave", "true", "true", env={"FAKE_FULL": "link"})
    assert done.code == 125
    assert "sample/trace cannot be made: " in done.err
    assert "what was recorded is kept" in done.err
    for name in ("rec/normal", "rec/sample"):
        manifest = box.manifest(name)
        assert (manifest["state"], len(manifest["runs"])) == ("recording", 1)
        assert manifest["end"] >= manifest["runs"][-1]["end"]
    assert (box.output / "normal" / "raw" / "raw.json").exists()


@pytest.mark.parametrize("what", ["owner", "release"])
def test_what_fails_after_the_recording_is_only_said(box, what):
    (box.place / "rec").mkdir()
    done = box.record("true", env={"FAKE_FULL": what})
    assert (done.code, box.manifest()["state"]) == (0, "complete"), done.err
    assert "warning: " in done.err
    assert re.search("could (not )?be", done.err)
    assert "quota" in done.err


def test_what_cannot_be_replaced_gets_the_recording_beside_it(box):
    assert box.record("true").code == 0
    before = box.manifest()
    done = box.record("--force", "true", env={"FAKE_FULL": "name"})
    assert done.code == 125
    assert "cannot replace" in done.err
    assert "busy" in done.err
    [beside] = box.place.glob("rec.critpath-*")
    assert f"the new recording is {beside}" in done.err
    assert box.manifest(beside.name)["state"] == "complete"
    assert box.manifest() == before


def test_more_runs_than_a_manifest_takes_are_refused_at_the_start(box):
    done = box.record("-n", "200001", "true")
    assert (done.code, box.calls()) == (2, [])
    assert "200,000" in done.err


def test_a_run_that_cannot_be_noted_is_said_and_the_others_go_on(box):
    """As on a disk that the command has filled; here something is in the way."""
    done = box.record("-n", "2", "sh", "-c", "mkdir -p rec/runs.jsonl; exit 0")
    manifest = box.manifest()
    assert (done.code, len(manifest["runs"])) == (0, 2)
    assert [w for w in manifest["warnings"] if "could not be noted" in w]


def test_auto_says_which_and_why(box):
    done = box.record("true", env={"FAKE_NO_LTTNG": "no modules"})
    assert "recorder: ftrace (lttng: no modules)" in done.err
    done = box.record(
        "-o", "b", "true", env={"FAKE_NO_LTTNG": "no modules", "FAKE_NO_FTRACE": "not root"}
    )
    assert done.code == 125
    assert "lttng: no modules; ftrace: not root" in done.err
    assert "critpath doctor" in done.err
    done = box.record("-o", "b", "--recorder", "ftrace", "true", env={"FAKE_NO_FTRACE": "not root"})
    assert "mend ftrace" in done.err
    assert not (box.place / "b").exists()


def test_without_proc_nothing_is_recorded(monkeypatch):
    monkeypatch.setattr(choose, "lacks_proc", lambda: True)
    with pytest.raises(CritpathError, match="/proc is not mounted"):
        choose.choose_recorder("auto", RecorderSettings("", Path()))


def test_loss_is_said_loudly_even_when_quiet(box):
    done = box.record("--quiet", "true", env={"FAKE_LOST": "100"})
    assert done.code == 0
    assert "warning: 100 events were lost (10 %)" in done.err
    assert "--buffer-size" in done.err
    manifest = box.manifest()
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
def test_usage(box, arguments, says):
    done = box.record(*arguments)
    assert done.code == 2
    assert says in done.err
    assert box.clean()


def test_the_output_has_a_default(box):
    done = box.record("--quiet", "-o", "x", "true")
    process = box.popen("/bin/sh", "-c", "true")
    process.communicate()
    assert done.code == process.returncode == 0
    [made] = [p.name for p in box.place.iterdir() if p.name.startswith("critpath-")]
    assert re.fullmatch(r"critpath-\d{8}T\d{6}-sh", made)


def test_runs_are_on_disk_while_it_records(box, wait_for):
    process = box.popen("-o", "rec", "-n", "2", "sh", "-c", "test ! -e ran || sleep 600; touch ran")
    runs = box.output / "runs.jsonl"
    wait_for(lambda: runs.exists() and runs.read_text().endswith("\n"))
    assert box.manifest()["state"] == "recording"
    assert json.loads(runs.read_text())["number"] == 1
    process.terminate()
    process.communicate(timeout=20)
    assert not runs.exists()
    assert Path(box.output, "critpath.json").exists()
