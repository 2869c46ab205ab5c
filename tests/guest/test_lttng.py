"""`critpath record` with LTTng's kernel tracer, for real: in an emulated Debian guest.

``make test-guest`` runs these; ``build`` makes the guest, ``jobs/`` is what runs in it.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

MOMENTS = 20
PROFILES = ("minimal", "syscalls", "network", "full")


@pytest.fixture(scope="session")
def recorded(run_in_guest) -> Path:
    return run_in_guest("record.sh", "marked.py", "flood.py")


@pytest.fixture(scope="session")
def said(recorded, printed_by):
    return printed_by(recorded)


def compare(critpath, normal: Path, sample: Path, place: Path) -> tuple[int, dict]:
    done = critpath("compare", normal, sample, "--json", place)
    assert place.exists(), done.stderr
    return done.returncode, json.loads(place.read_text())


def main_state(found: dict, cause: dict) -> str:
    """Return the state that most of a cause's time is in."""
    weight: dict[str, float] = {}
    for finding in (found["findings"][place] for place in cause["findings"]):
        weight[finding["state"]] = weight.get(finding["state"], 0) + finding["contribution"]
    return max(weight, key=weight.__getitem__)


def test_the_doctor_finds_nothing_in_the_way(said):
    document = json.loads(said("doctor"))
    found = document["recorders"]["lttng"]
    assert (found["obstacles"], found["usable"]) == ([], True)
    assert found["requests"] in {"calls", "calls+packets"}  # LTTng has no events of sockets
    assert document["recorder"] == "lttng"


def test_auto_takes_lttng_and_says_so(said, recorded, manifest):
    assert "recorder: lttng" in said("auto")
    assert manifest(recorded / "auto")["recorder"]["name"] == "lttng"


def test_the_manifest_says_what_was_recorded(said, recorded, manifest):
    said("same")
    known = manifest(recorded / "same" / "normal")
    assert known["state"] == "complete"
    assert len(known["runs"]) == 50
    assert {run["exit_code"] for run in known["runs"]} == {0}
    assert known["loss"] == []
    recorder = known["recorder"]
    assert recorder["name"] == "lttng"
    assert recorder["format"] == "ctf-1.8"
    assert recorder["contexts"] == ["pid", "tid"]
    assert recorder["version"].split(".")[0] == "2"
    assert {"sched_switch", "sched_waking"} <= set(recorder["events"])


def test_every_run_is_one_execution(said, recorded, manifest, executions):
    said("sleep")
    found = executions(recorded / "sleep")
    runs = manifest(recorded / "sleep")["runs"]
    assert len(found) == len(runs) == 30
    for path, run in zip(found, runs, strict=True):
        assert path["subject"]["tid"] == run["pid"]
        assert run["begin"] <= path["begin"] < path["end"] <= run["end"]
        assert path["unexplained"] <= 0.02 * (path["end"] - path["begin"])


def test_the_same_twice_is_no_anomaly(said, recorded, critpath, tmp_path):
    said("same")
    both = recorded / "same"
    code, found = compare(critpath, both / "normal", both / "sample", tmp_path / "found.json")
    assert (code, found["verdict"]) == (0, "ok"), found["reasons"]


@pytest.mark.parametrize(
    ("fault", "state", "among"),
    # What the emulator does for a write is, to the guest, running time of the writer: the
    # disk is one of the first two causes, and need not be the first.
    [("sleep", "WAIT_TIMER", 1), ("fsync", "WAIT_DISK", 2)],
)
def test_a_fault_is_found(said, recorded, critpath, tmp_path, fault, state, among):
    said("same")
    said(fault)
    normal = recorded / "same" / "normal"
    code, found = compare(critpath, normal, recorded / fault, tmp_path / "found.json")
    assert (code, found["verdict"]) == (1, "anomaly"), found["reasons"]
    causes = found["causes"][:among]
    states = [main_state(found, cause) for cause in causes]
    assert state in states, [cause["sentence"] for cause in causes]


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_records(said, recorded, profile, manifest, executions):
    directory = recorded / ("auto" if profile == "minimal" else profile)
    if profile != "minimal":
        assert "2 of 2 runs failed (exit code 3)" in said(profile, code=3)
    known = manifest(directory)
    assert known["profile"] == profile
    assert known["loss"] == []
    assert not any("does not have" in warning for warning in known["warnings"])
    assert len(executions(directory)) == 2


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("marks-python", {"keyed": 5, "plain": 5, "decorated": 5}),
        ("marks-shell", {"job": 3}),
        ("marks-file", {"job": 4}),
    ],
)
def test_marks_are_executions(said, recorded, critpath, tmp_path, name, labels):
    said(name)
    # A comparison with itself lists every execution with its label.
    _, found = compare(critpath, recorded / name, recorded / name, tmp_path / "found.json")
    counted: dict[str, int] = {}
    for execution in found["executions"]:
        if execution["set"] == "normal":
            counted[execution["label"]] = counted.get(execution["label"], 0) + 1
            assert execution["end"] - execution["begin"] >= 9_000_000
    assert counted == labels


def test_marks_in_python_come_through_the_agent(recorded, manifest):
    assert manifest(recorded / "marks-python")["recorder"]["python_agent"] is True
    metadata = list((recorded / "marks-python" / "trace" / "ust").rglob("metadata"))
    assert len(metadata) == 1


def test_loss_is_what_lttng_counted_and_no_verdict_rests_on_it(
    said, recorded, critpath, tmp_path, manifest
):
    assert "lost" in said("loss")
    known = manifest(recorded / "loss")
    lost = sum(loss["events"] for loss in known["loss"])
    assert lost > 0
    assert known["recorder"]["buffer_bytes"] == 8192
    # The trace's own marks add up to the same.
    read = subprocess.run(
        ["babeltrace2", recorded / "loss" / "trace"], capture_output=True, text=True, check=True
    )
    assert sum(map(int, re.findall(r"discarded (\d+) event", read.stderr))) == lost
    place = tmp_path / "found.json"
    done = critpath("compare", recorded / "loss", recorded / "loss", "--json", place)
    assert done.returncode == 3, done.stderr
    # All three runs may have lost their begin or end; then there is nothing to compare.
    if place.exists():
        assert json.loads(place.read_text())["verdict"] == "inconclusive"
    else:
        assert "no complete run" in done.stderr


def test_a_session_of_somebody_else_is_left_alone(said, recorded):
    said("beside")
    assert "foreign: [active]" in said("foreign")
    assert (recorded / "foreign.metadata").read_text().strip() == "1"


def test_the_group_tracing_records_without_root(said, recorded):
    said("member")
    for line in (recorded / "member.stat").read_text().splitlines():
        owner, mode, name = line.split()
        assert owner == "tracer", line
        assert name != "tracer/member" or mode == "700", line


def test_others_are_told_what_they_lack(said):
    assert "group tracing" in said("stranger", code=125)
    assert "session daemon is not running" in said("nobody", code=125)


@pytest.mark.parametrize("step", ["auto", "fsync", "marks", "nobody"])
def test_nothing_is_left(recorded, step):
    assert [x for x in (recorded / f"{step}.left").read_text().split() if not x.endswith(":")] == []


@pytest.fixture(scope="session")
def killed(run_in_guest):
    out = run_in_guest("kill.sh", "kill.py", limit=1800)
    lines = (out / "moments").read_text().splitlines()
    return out, [json.loads(line) for line in lines]


def test_a_recorder_that_is_ended_leaves_nothing(killed):
    _, moments = killed
    assert len(moments) == MOMENTS
    for moment in moments:
        where = json.dumps(moment, indent=1)
        assert moment["after"] == [], where
        assert moment["cleaned"] == 0, where
        if moment["signal"] != "SIGKILL":
            # It cleaned up by itself.
            assert moment["before"] == [], where
    assert len({moment["state"] for moment in moments}) > 1


def test_what_was_recorded_until_then_is_readable(killed, manifest, executions):
    out, moments = killed
    for moment in moments:
        if moment["state"] == "absent":
            continue
        directory = out / str(moment["number"])
        known = manifest(directory)
        assert known["state"] in {"complete", "interrupted"}, moment
        # What Ctrl-C ended is no execution.
        whole = [run for run in known["runs"] if not run["interrupted"]]
        if whole:
            assert len(executions(directory)) == len(whole), moment


@pytest.fixture  # of one test: tried again, it is recorded again
def asked(run_in_guest) -> Path:
    return run_in_guest("requests.sh", "served.py", limit=300)


def test_requests_of_a_server_are_found_by_system_calls_and_packets(asked, critpath, manifest):
    """LTTng has no events of sockets; one connection is older than the recording."""
    assert (asked / "requests.code").read_text() == "0\n", (asked / "requests.txt").read_text()
    assert manifest(asked / "requests")["recorder"]["requests"] == "calls+packets"
    truth = json.loads((asked / "truth.json").read_text())
    chosen = ("--execution", "requests:port=9000", "--format", "json")
    done = critpath("path", asked / "requests", *chosen)
    assert done.returncode == 0, done.stderr
    assert "found by system calls and packets" in done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert {one["label"].partition(" ")[2] for one in found} == {"→ python:9001"}
    matched = 0
    for one in truth:
        mine = [
            (each["begin"], each["end"])
            for each in found
            if f":{one['port']}>9000#" in each["execution"]
            and one["begin"] <= each["begin"] <= each["end"] <= one["end"]
        ]
        matched += len(mine) == 1
    assert len(truth) == 320
    assert matched >= 0.99 * len(truth)
    assert len(found) <= len(truth)


@pytest.fixture(scope="session")
def held(run_in_guest) -> Path:
    return run_in_guest("budget.sh", "steady.py", "flood.py", limit=1500)


def gaps_of(directory: Path) -> list[dict]:
    return [json.loads(line) for line in (directory / "gaps.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("percent", [5, 20])
def test_a_budget_opens_windows_and_writes_down_what_is_between(
    held, percent, manifest, executions
):
    name = f"windows-{percent}"
    assert (held / f"{name}.code").read_text() == "0\n", (held / f"{name}.txt").read_text()
    known = manifest(held / name)
    assert known["format"] == "critpath/recording/2"
    base, gaps = known["layers"]["base"], gaps_of(held / name)
    assert base["closed_by"] == "tracker"
    assert base["windows"] >= 2
    assert base["events"] > 0
    assert len([gap for gap in gaps if gap["why"] == "budget"]) >= 1
    found = executions(held / name)
    assert found
    for one in found:  # none of those that have a path lies in a gap
        assert not any(g["begin"] < one["end"] and one["begin"] < g["end"] for g in gaps), one


@pytest.mark.parametrize("percent", [5, 20])
def test_under_a_budget_runs_are_recorded_whole_or_not_at_all(held, percent, manifest, executions):
    name = f"runs-{percent}"
    assert (held / f"{name}.code").read_text() == "0\n", (held / f"{name}.txt").read_text()
    chosen = [json.loads(x) for x in (held / name / "selected.jsonl").read_text().splitlines()]
    runs = manifest(held / name)["runs"]
    assert len(runs) == 20
    # Of all runs 5 % pays for hardly any, 20 % for most.
    assert len(chosen) < 20 if percent == 5 else len(chosen) > 0
    gaps = gaps_of(held / name)
    whole = {row["key"] for row in chosen}
    for run in runs:
        inside = any(g["begin"] < run["end"] and run["begin"] < g["end"] for g in gaps)
        assert inside != (run["number"] in whole), run
    assert len(executions(held / name)) == len(chosen)


def test_of_a_killed_recorder_under_a_budget_the_doctor_leaves_the_recording_only(
    held, manifest, executions
):
    assert (held / "clean.code").read_text() == "0\n", (held / "clean.txt").read_text()
    assert (held / "clean.left").read_text() == ""
    assert manifest(held / "killed")["state"] == "interrupted"
    gaps = gaps_of(held / "killed")
    for one in executions(held / "killed"):
        assert not any(g["begin"] < one["end"] and one["begin"] < g["end"] for g in gaps), one
    assert sorted(p.name for p in (held / "killed").iterdir() if p.is_dir()) == ["trace"]


@pytest.fixture(scope="session")
def disturbed(run_in_guest) -> dict[str, dict]:
    out = run_in_guest("faults.sh", "faults.py", "kill.py", limit=900)
    return {row["case"]: row for row in map(json.loads, (out / "cases").read_text().splitlines())}


@pytest.mark.parametrize("case", ["disk", "filled", "removed", "consumer", "daemon"])
def test_what_happens_to_a_recording_is_said_and_the_command_goes_on(disturbed, case):
    """A full disk, another's file that fills it, a removed output, killed daemons of LTTng's."""
    found = disturbed[case]
    where = json.dumps(found, indent=1)
    assert found["ran"], where
    assert found["code"] == 125, where
    assert found["seconds"] < 150, where
    assert "Traceback" not in found["text"], where
    if case == "removed":
        assert found["state"] == "absent", where
    else:
        # What is there is readable or refused, and never called whole.
        assert "critpath doctor --clean" in found["text"], where
        assert found["verified"][0] in {3, 4}, where
    if case in {"disk", "filled"}:
        # Nothing can be finished there; the note of it stays until there is room.
        assert "No space left" in found["cleaned"][1], where
        assert len(found["after"]) == 1, where
    else:
        assert found["after"] == [], where
