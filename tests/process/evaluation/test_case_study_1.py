"""Case study 1 and the fault matrix in small, on this machine's kernel."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "evaluation" / "case_studies"))
import bench
import case_study_1
import faults
from limits import PREFIX, find_hierarchies

REASON = bench.why_not()
HOLDER = bench.FirstCause("RUN", "holder", "", 10.0, 1.0, (1,), "waiting for thread `holder`")


@pytest.mark.parametrize(
    ("kind", "change", "right"),
    [
        ("lock", {}, True),
        ("lock", {"thread": ""}, False),
        ("lock", {"state": "WAIT_CPU"}, False),
        ("fsync", {"state": "WAIT_DISK", "thread": "jbd#/vda-#"}, True),
        ("intruder", {"state": "WAIT_CPU", "thread": "", "detail": "intruder (7)"}, True),
        ("intruder", {"state": "WAIT_CPU", "thread": "", "detail": "cc1 (7)"}, False),
        ("quota", {"state": "WAIT_CPU", "thread": "", "detail": "idle"}, True),
    ],
)
def test_a_cause_is_right_if_state_thread_and_detail_are(kind, change, right):
    assert faults.KINDS[kind].is_right(replace(HOLDER, **change)) is right
    assert not faults.KINDS[kind].is_right(bench.FirstCause())


def test_every_repetition_is_of_everything_before_the_next():
    assert list(faults.plan(["a", "b"], [3], 2, 1)) == [
        ("a", 3, 0, False),
        ("a", 3, 0, True),
        ("b", 3, 0, False),
        ("b", 3, 0, True),
        ("a", 3, 1, False),
        ("b", 3, 1, False),
    ]


def test_a_failed_recording_was_not_detected_and_alarmed_nobody():
    rows = [
        faults.Row("lock", 3, 0, 0, verdict="anomaly", right=1),
        faults.Row("lock", 3, 1, 0, verdict="ok"),
        faults.Row("lock", 3, 2, 0, error="exit code 1"),
        faults.Row("lock", 3, 0, 1, verdict="anomaly"),
        faults.Row("lock", 3, 1, 1, verdict="ok"),
        faults.Row("lock", 3, 2, 1, error="exit code 1"),
    ]
    found = faults.summary(rows)
    assert (found["detected"], found["right"], found["alarms"]) == ([1, 3], [1, 1], [1, 2])
    assert found["cells"]["lock"]["3"]["of"] == 3


def test_a_row_that_was_cut_short_is_measured_again(tmp_path):
    table = tmp_path / "rows.csv"
    with faults._writer(table, [faults.Row("lock", 3, 0, 0), faults.Row("lock", 3, 1, 0)]):
        pass
    table.write_text(table.read_text()[:-20])
    assert [row.key for row in faults.load(table)] == [("lock", 3, 0, 0)]


def test_the_interval_of_none_of_ten_is_clopper_and_pearsons():
    low, high = faults.interval(0, 10)
    assert low == 0
    assert high == pytest.approx(100 * (1 - 0.025**0.1))


def test_a_cluster_has_the_type_that_most_of_it_is_of():
    assert case_study_1.majority([0, 0, 0, 1, 1], ["b", "a", "b", "b", "a"]) == {0: "b", 1: "a"}


@pytest.fixture
def nothing_left():
    yield
    for hierarchy in find_hierarchies().values():
        assert not list(hierarchy.root.glob(f"{PREFIX}{os.getpid()}-*"))


@pytest.mark.skipif(bool(REASON), reason=REASON or "-")
@pytest.mark.usefixtures("nothing_left")
def test_a_sleep_is_found_and_nothing_is_measured_twice(tmp_path, capsys):
    table = tmp_path / "rows.csv"
    options = ["--kinds", "sleep", "--strengths", "3", "--repetitions", "1", "--csv", str(table)]
    assert faults.main(options) == 0
    found = faults.load(table)
    assert [row.key for row in found] == [("sleep", 3, 0, 0), ("sleep", 3, 0, 1)]
    faulty, healthy = found
    assert (faulty.verdict, faulty.right, faulty.error) == ("anomaly", 1, "")
    assert faulty.faulty == faults.EXECUTIONS * faults.ROUNDS // 3
    assert (healthy.verdict in {"ok", "anomaly"}, healthy.error) == (True, "")
    assert "| sleep | 3 |" in capsys.readouterr().out
    assert faults.main([*options, "--resume"]) == 0
    assert faults.load(table) == found


@pytest.mark.skipif(bool(REASON), reason=REASON or "-")
@pytest.mark.usefixtures("nothing_left")
def test_types_are_found_without_their_names(tmp_path, capsys):
    figures = tmp_path / "figures.json"
    assert case_study_1.main(["--repetitions", "1", "--json", str(figures)]) == 0
    assert "adjusted Rand index" in capsys.readouterr().out
    assert '"agreement"' in figures.read_text()
