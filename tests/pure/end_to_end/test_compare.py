"""``critpath compare`` on recordings with a known bug: verdict, executions, first cause."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from functools import partial
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


@dataclass(frozen=True)
class Outcome:
    code: int
    text: str
    stderr: str
    document: dict[str, Any]
    html: bytes
    json: bytes

    @property
    def marked(self) -> set[str]:
        return {e["id"] for e in self.document["executions"] if e["anomalous"]}

    @property
    def first_cause(self) -> dict[str, Any]:
        return self.document["causes"][0]

    @property
    def first_findings(self) -> list[dict[str, Any]]:
        return [self.document["findings"][i] for i in self.first_cause["findings"]]


@pytest.fixture(scope="module")
def compare(guest, critpath, critpath_process, tmp_path_factory):
    """Return a function from a sample's name to the outcome, computed once."""
    done: dict[tuple[str, str], Outcome] = {}

    def run(name: str, hash_seed: str = "") -> Outcome:
        if (name, hash_seed) not in done:
            home = tmp_path_factory.mktemp(f"compare-{name}")
            of_seed = partial(critpath_process, PYTHONHASHSEED=hash_seed)
            process = (of_seed if hash_seed else critpath)(
                *("compare", guest("normal"), guest(name), "--execution", SPECIFICATION),
                *("--json", home / "c.json", "--html", home / "c.html"),
            )
            text = (home / "c.json").read_bytes()
            done[name, hash_seed] = Outcome(
                process.returncode,
                process.stdout,
                process.stderr,
                json.loads(text),
                (home / "c.html").read_bytes(),
                text,
            )
        return done[name, hash_seed]

    return run


def buggy(recording: Path) -> set[str]:
    with (recording / "truth.csv").open(encoding="utf-8") as text:
        return {row["id"] for row in csv.DictReader(text) if row["bug"] != "none"}


def test_a_second_normal_recording_is_no_anomaly(compare):
    outcome = compare("normal-2")
    assert outcome.code == 0
    assert outcome.document["verdict"] == "ok"
    assert outcome.marked == set()
    assert outcome.document["findings"] == []
    assert not any(s["flagged"] for s in outcome.document["states"])


@pytest.mark.parametrize("name", ["sample-delay", "sample-fsync", "sample-lock"])
def test_the_buggy_executions_are_marked_and_at_most_one_other(compare, guest, name):
    outcome = compare(name)
    truth = buggy(guest(name))
    assert len(truth) == 4
    assert (outcome.code, outcome.document["verdict"]) == (1, "anomaly")
    assert truth <= outcome.marked
    assert len(outcome.marked - truth) <= 1
    # The first cause is that of the buggy ones, all of them, and of no other.
    assert set(outcome.first_cause["executions"]) == truth
    assert outcome.first_cause["contribution"] > 0


def test_delay_the_first_cause_is_a_timer(compare):
    outcome = compare("sample-delay")
    assert {f["state"] for f in outcome.first_findings} == {"WAIT_TIMER"}
    # It sleeps 30 ms.
    assert all(30e6 <= f["contribution"] <= 33e6 for f in outcome.first_findings)
    assert " sleep 3" in outcome.first_cause["sentence"]
    flagged = {s["state"] for s in outcome.document["states"] if s["flagged"]}
    assert "WAIT_TIMER" in flagged


def test_fsync_the_first_cause_is_the_journals_disk_wait(compare):
    outcome = compare("sample-fsync")
    waits = [f for f in outcome.first_findings if f["state"] == "WAIT_DISK"]
    assert waits
    assert all("virtio" in f["detail"] and "-req" in f["detail"] for f in waits)
    threads = {f["comm"].partition("/")[0] for f in outcome.first_findings}
    assert threads <= {"jbd2", "kworker"}
    # Every buggy execution waited for it, not just one.
    assert len({f["execution"] for f in waits}) == 4
    sentence = outcome.first_cause["sentence"]
    assert "waiting for the disk" in sentence
    assert "jbd2" in sentence or "kworker" in sentence


def test_lock_the_first_cause_is_the_holder(compare):
    outcome = compare("sample-lock")
    assert {f["comm"] for f in outcome.first_findings if f["role"]} == {"holder"}
    # What is not: until the worker had a cpu again.
    assert {f["state"] for f in outcome.first_findings if not f["role"]} <= {"WAIT_CPU"}
    assert "RUN" in {f["state"] for f in outcome.first_findings}
    assert "`holder`" in outcome.first_cause["sentence"]


def test_durations_of_both_sets_are_listed_by_percentile(compare, critpath, tmp_path):
    found = compare("sample-lock")
    (tmp_path / "c.json").write_bytes(found.json)
    text = critpath("report", tmp_path / "c.json", "-v").stdout
    table = text.split("Durations, before → after\n")[1].split("\n\n")[0]
    listed = found.document["detection"]["percentiles"]
    (p50,) = (p for p in listed if (p["name"], p["label"]) == ("p50", ""))
    assert p50["executions"] == [105, 11]
    row = next(line for line in table.splitlines() if line.startswith("all "))
    assert f"{format_ns(p50['normal'])} → {format_ns(p50['sample'])}" in row


def test_quota_the_cpu_was_idle_and_the_thread_throttled(compare):
    outcome = compare("sample-quota")
    assert (outcome.code, outcome.document["verdict"]) == (1, "anomaly")
    assert {(f["state"], f["detail"]) for f in outcome.first_findings} == {("WAIT_CPU", "idle")}
    sentence = outcome.first_cause["sentence"]
    assert "held back for " in sentence
    assert "while a CPU was idle, probably by a CPU quota" in sentence
    # 10 ms in 100 ms: nearly every execution is held back for a period or more.
    assert len(outcome.first_cause["executions"]) >= 12
    assert outcome.first_cause["contribution"] > 80e6


def test_a_lossy_sample_is_inconclusive_and_says_what_was_lost(compare):
    outcome = compare("lossy")
    assert (outcome.code, outcome.document["verdict"]) == (3, "inconclusive")
    assert any("5,010 events" in reason for reason in outcome.document["reasons"])
    assert "5,010 events" in outcome.text
    assert "5,010 events" in outcome.html.decode()


@pytest.mark.parametrize("name", ["normal-2", "sample-delay", "sample-quota", "lossy"])
def test_the_document_has_every_name_of_the_design(compare, name):
    document = compare(name).document
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


def test_times_of_executions_are_the_traces(compare, guest):
    document = compare("sample-delay").document
    with (guest("sample-delay") / "truth.csv").open(encoding="utf-8") as text:
        truth = {row["id"]: row for row in csv.DictReader(text)}
    sample = {e["id"]: e for e in document["executions"] if e["set"] == "sample"}
    assert set(sample) == set(truth)
    for key, e in sample.items():
        row = truth[key]
        assert int(row["begin_ns"]) <= e["begin"] < e["end"] <= int(row["end_ns"])
        assert (e["tid"], e["label"]) == (int(row["tid"]), row["type"])


def test_findings_explain_the_excess_of_each_execution(compare):
    """What an execution was slower than its group is shared out, not invented."""
    document = compare("sample-delay").document
    for one in document["aligned"]:
        of = [f for f in document["findings"] if f["execution"] == one["execution"]]
        explained = sum(f["contribution"] for f in of)
        # Findings may leave small differences out: the rest is said, in one figure.
        assert explained + one["unexplained"] == pytest.approx(one["excess"], abs=len(of) + 1)


def test_the_same_input_gives_the_same_bytes(compare):
    first, second = compare("sample-lock"), compare("sample-lock", "4242")
    assert first.json == second.json
    assert first.html == second.html
    assert (first.code, first.text) == (second.code, second.text)


@pytest.fixture(scope="module")
def extracted(guest, critpath, tmp_path_factory):
    home = tmp_path_factory.mktemp("extracted")
    for name in ("normal", "sample-lock"):
        done = critpath(
            *("extract", guest(name), "--execution", SPECIFICATION, "-o", home / f"{name}.parquet")
        )
        assert done.returncode == 0, done.stderr
    return home


def test_saved_paths_compare_like_the_recordings_they_came_from(extracted, compare, critpath):
    done = critpath(
        *("compare", extracted / "normal.parquet", extracted / "sample-lock.parquet"),
        *("--json", extracted / "c.json"),
    )
    direct = compare("sample-lock")
    document = json.loads((extracted / "c.json").read_text(encoding="utf-8"))
    assert done.returncode == direct.code == 1
    # Everything that was found out; "sets" names the files, which differ.
    for part in ("verdict", "reasons", "states", "executions", "findings", "causes", "aligned"):
        assert document[part] == direct.document[part], part


def test_a_recording_and_a_file_may_be_mixed(extracted, guest, compare, critpath):
    done = critpath(
        *("compare", extracted / "normal.parquet", guest("sample-lock")),
        *("--execution", SPECIFICATION, "--json", "-"),
    )
    assert done.returncode == 1
    assert json.loads(done.stdout)["findings"] == compare("sample-lock").document["findings"]


def test_a_saved_comparison_is_rendered_again_to_the_same_bytes(compare, critpath, tmp_path):
    outcome = compare("sample-delay")
    (tmp_path / "c.json").write_bytes(outcome.json)
    done = critpath("report", tmp_path / "c.json", "--html", tmp_path / "again.html")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again.html").read_bytes() == outcome.html
    assert done.stdout == outcome.text


def test_the_report_needs_nothing_from_the_network(compare):
    html = compare("sample-delay").html.replace(b"http://www.w3.org/", b"")
    assert b"http://" not in html
    assert b"https://" not in html
