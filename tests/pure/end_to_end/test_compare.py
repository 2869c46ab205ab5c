"""``critpath compare`` on recordings with a known bug: verdict, executions, first cause."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from critpath.units import format_ns

SPECIFICATION = "events:app:request_begin,app:request_end,key=id"
TOP = {"format", "verdict", "reasons", "executions", "findings", "states"}
EXECUTION = {
    *("id", "set", "begin", "end", "tid", "comm", "label", "cluster", "pair", "anomalous"),
    "excess",
}
FINDING = {
    *("execution", "rank", "kind", "state", "detail", "tid", "comm", "begin", "end"),
    *("observed", "expected", "contribution", "share"),
}
STATE = {"state", "normal_mean", "sample_mean", "p_value", "effect", "flagged"}


def marked(found) -> set[str]:
    return {e["id"] for e in found.plain["executions"] if e["anomalous"]}


def first_findings(found) -> list[dict[str, Any]]:
    return [found.plain["findings"][i] for i in found.plain["causes"][0]["findings"]]


def buggy(recording: Path) -> set[str]:
    with (recording / "truth.csv").open(encoding="utf-8") as text:
        return {row["id"] for row in csv.DictReader(text) if row["bug"] != "none"}


def test_a_second_normal_recording_is_no_anomaly(answer):
    outcome = answer("normal-2")
    assert outcome.code == 0
    assert outcome.plain["verdict"] == "ok"
    assert marked(outcome) == set()
    assert outcome.plain["findings"] == []
    assert not any(s["flagged"] for s in outcome.plain["states"])


@pytest.mark.parametrize("name", ["sample-delay", "sample-fsync", "sample-lock"])
def test_the_buggy_executions_are_marked_and_at_most_one_other(answer, guest, name):
    outcome = answer(name)
    truth = buggy(guest(name))
    assert len(truth) == 4
    assert (outcome.code, outcome.plain["verdict"]) == (1, "anomaly")
    assert truth <= marked(outcome)
    assert len(marked(outcome) - truth) <= 1
    # The first cause is that of the buggy ones, all of them, and of no other.
    assert set(outcome.plain["causes"][0]["executions"]) == truth
    assert outcome.plain["causes"][0]["contribution"] > 0


def test_delay_the_first_cause_is_a_timer(answer):
    outcome = answer("sample-delay")
    assert {f["state"] for f in first_findings(outcome)} == {"WAIT_TIMER"}
    # It sleeps 30 ms.
    assert all(30e6 <= f["contribution"] <= 33e6 for f in first_findings(outcome))
    facts = outcome.document.causes[0].facts
    assert (facts.state, facts.role) == ("WAIT_TIMER", "")
    assert 30e6 <= facts.time_after <= 33e6
    flagged = {s["state"] for s in outcome.plain["states"] if s["flagged"]}
    assert "WAIT_TIMER" in flagged


def test_fsync_the_first_cause_is_the_journals_disk_wait(answer):
    outcome = answer("sample-fsync")
    waits = [f for f in first_findings(outcome) if f["state"] == "WAIT_DISK"]
    assert waits
    assert all("virtio" in f["detail"] and "-req" in f["detail"] for f in waits)
    threads = {f["comm"].partition("/")[0] for f in first_findings(outcome)}
    assert threads <= {"jbd2", "kworker"}
    # Every buggy execution waited for it, not just one.
    assert len({f["execution"] for f in waits}) == 4
    facts = outcome.document.causes[0].facts
    assert (facts.state, facts.peer) == ("WAIT_DISK", "jbd2/vda-8")


def test_lock_the_first_cause_is_the_holder(answer):
    outcome = answer("sample-lock")
    assert {f["comm"] for f in first_findings(outcome) if f["role"]} == {"holder"}
    # What is not: until the worker had a cpu again.
    assert {f["state"] for f in first_findings(outcome) if not f["role"]} <= {"WAIT_CPU"}
    assert "RUN" in {f["state"] for f in first_findings(outcome)}
    facts = outcome.document.causes[0].facts
    assert (facts.state, facts.peer, facts.executions, facts.of) == ("RUN", "holder", 4, 11)


def test_durations_of_both_sets_are_listed_by_percentile(answer, critpath, tmp_path):
    found = answer("sample-lock")
    (tmp_path / "c.json").write_bytes(found.json)
    text = critpath("report", tmp_path / "c.json", "-v").stdout
    table = text.split("Durations, before → after\n")[1].split("\n\n")[0]
    listed = found.plain["detection"]["percentiles"]
    (p50,) = (p for p in listed if (p["name"], p["label"]) == ("p50", ""))
    assert p50["executions"] == [105, 11]
    row = next(line for line in table.splitlines() if line.startswith("all "))
    assert f"{format_ns(p50['normal'])} → {format_ns(p50['sample'])}" in row


def test_quota_the_cpu_was_idle_and_the_thread_throttled(answer):
    outcome = answer("sample-quota")
    assert (outcome.code, outcome.plain["verdict"]) == (1, "anomaly")
    assert {(f["state"], f["detail"]) for f in first_findings(outcome)} == {("WAIT_CPU", "idle")}
    facts = outcome.document.causes[0].facts
    assert (facts.state, facts.peer, facts.certainty) == ("WAIT_CPU", "", "inferred")
    # 10 ms in 100 ms: nearly every execution is held back for a period or more.
    assert len(outcome.plain["causes"][0]["executions"]) >= 12
    assert outcome.plain["causes"][0]["contribution"] > 80e6


def test_a_lossy_sample_is_inconclusive_and_says_what_was_lost(answer):
    outcome = answer("lossy")
    assert (outcome.code, outcome.plain["verdict"]) == (3, "inconclusive")
    assert any("5,010 events" in reason for reason in outcome.plain["reasons"])
    assert "5,010 events" in outcome.stdout
    assert "5,010 events" in outcome.html


@pytest.mark.parametrize("name", ["normal-2", "sample-delay", "sample-quota", "lossy"])
def test_the_document_has_every_name_of_the_design(answer, name):
    document = answer(name).plain
    assert document["format"] == "critpath/comparison/1"
    assert set(document) >= TOP
    assert {e["set"] for e in document["executions"]} == {"normal", "sample"}
    for rows, names in (("executions", EXECUTION), ("findings", FINDING), ("states", STATE)):
        for row in document[rows]:
            assert set(row) >= names
    known = {e["id"] for e in document["executions"] if e["set"] == "sample"}
    assert {f["execution"] for f in document["findings"]} <= known
    ranks: dict[str, list[int]] = {}
    for finding in document["findings"]:
        ranks.setdefault(finding["execution"], []).append(finding["rank"])
    assert all(sorted(r) == list(range(1, len(r) + 1)) for r in ranks.values())


def test_times_of_executions_are_the_traces(answer, guest):
    document = answer("sample-delay").plain
    with (guest("sample-delay") / "truth.csv").open(encoding="utf-8") as text:
        truth = {row["id"]: row for row in csv.DictReader(text)}
    sample = {e["id"]: e for e in document["executions"] if e["set"] == "sample"}
    assert set(sample) == set(truth)
    for key, e in sample.items():
        row = truth[key]
        assert int(row["begin_ns"]) <= e["begin"] < e["end"] <= int(row["end_ns"])
        assert (e["tid"], e["label"]) == (int(row["tid"]), row["type"])


def test_findings_explain_the_excess_of_each_execution(answer):
    """What an execution was slower than its group is shared out, not invented."""
    document = answer("sample-delay").plain
    for one in document["aligned"]:
        of = [f for f in document["findings"] if f["execution"] == one["execution"]]
        explained = sum(f["contribution"] for f in of)
        # Findings may leave small differences out: the rest is said, in one figure.
        assert explained + one["unexplained"] == pytest.approx(one["excess"], abs=len(of) + 1)


@pytest.fixture(scope="module")
def direct(guest, critpath, tmp_path_factory):
    """Return a comparison that the command makes of recordings, and its files."""
    place = tmp_path_factory.mktemp("direct")
    words = ("compare", guest("normal"), guest("sample-lock"), "--execution", SPECIFICATION)
    done = critpath(*words, "--json", "c.json", "--html", "c.html", "--jobs", "1", cwd=place)
    assert done.returncode == 1, done.stderr
    return done, place


def test_saved_paths_compare_like_the_recordings_they_came_from(direct, answer):
    _, place = direct
    document = json.loads((place / "c.json").read_text(encoding="utf-8"))
    # Everything that was found out; "sets" names the files, which differ.
    for part in ("verdict", "reasons", "states", "executions", "findings", "causes", "aligned"):
        assert document[part] == answer("sample-lock").plain[part], part


def test_a_recording_and_a_file_may_be_mixed(extracted, guest, answer, critpath):
    done = critpath(
        *("compare", extracted("normal"), guest("sample-lock")),
        *("--execution", SPECIFICATION, "--json", "-"),
    )
    assert done.returncode == 1
    assert json.loads(done.stdout)["findings"] == answer("sample-lock").plain["findings"]


def test_a_saved_comparison_is_rendered_again_to_the_same_bytes(direct, critpath, tmp_path):
    outcome, place = direct
    done = critpath("report", place / "c.json", "--html", tmp_path / "again.html")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again.html").read_bytes() == (place / "c.html").read_bytes()
    assert done.stdout == outcome.stdout


def test_the_report_needs_nothing_from_the_network(answer):
    html = answer("sample-delay").html.replace("http://www.w3.org/", "")
    assert "http://" not in html
    assert "https://" not in html
