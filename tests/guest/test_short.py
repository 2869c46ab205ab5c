"""What every change must keep of LTTng's kernel tracer: record, hold a budget, be read back."""

from __future__ import annotations

import json

import pytest


@pytest.fixture(scope="module")
def out(run_in_guest):
    return run_in_guest("short.sh", "flood.py", "listening.py")


@pytest.fixture(scope="module")
def said(out, printed_by):
    return printed_by(out)


def test_the_doctor_finds_nothing_in_the_way(said):
    found = json.loads(said("doctor"))["recorders"]["lttng"]
    assert (found["obstacles"], found["usable"]) == ([], True)


def test_every_run_is_recorded_and_read_back(out, said, manifest, executions):
    said("runs", 3)  # the command's own exit code
    known = manifest(out / "runs")
    assert (known["state"], known["recorder"]["name"]) == ("complete", "lttng")
    assert [run["exit_code"] for run in known["runs"]] == [3] * 4
    assert known["loss"] == []
    found = executions(out / "runs")
    assert len(found) == 4
    states = {segment["state"] for one in found for segment in one["segments"]}
    assert {"RUN", "WAIT_TIMER"} <= states


def test_under_a_budget_runs_are_recorded_whole_or_not_at_all(out, said, manifest, executions):
    said("budget")
    assert len(manifest(out / "budget")["runs"]) == 8
    # How many a budget pays for depends on how fast the machine is; of none there is no list.
    kept = out / "budget" / "selected.jsonl"
    chosen = kept.read_text().splitlines() if kept.exists() else []
    assert len(executions(out / "budget") if chosen else []) == len(chosen)


def test_an_ordinary_user_with_capabilities_records_what_root_does(out, said, manifest):
    """What differs is when it was, and how much happened; its command gets no capability."""
    mine, roots = (manifest(out / name) for name in ("user/rec", "root"))
    for name in ("root", "capable", "commanded", "read"):
        said(name)
    for of in (mine, roots):
        of["recorder"] |= {"event_count": 0, "clock": 0, "marks": 0}
    assert mine["recorder"] == roots["recorder"]
    assert mine["warnings"] == roots["warnings"]
    assert [one["cpu"] for one in mine["streams"]] == [one["cpu"] for one in roots["streams"]]
    name, *capabilities = (out / "user" / "told").read_text().split()
    assert name == "stranger"
    assert {word.strip("0") for word in capabilities[1::2]} == {""}


def test_nothing_is_left(out):
    assert (out / "left").read_text() == ""
