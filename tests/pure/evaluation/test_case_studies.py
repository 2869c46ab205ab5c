"""How the case studies and the matrix of faults judge, and what they measure when."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest


@pytest.fixture(scope="module")
def faults(load):
    return load("evaluation/case_studies/faults.py")


@pytest.fixture(scope="module")
def case_study_1(load):
    return load("evaluation/case_studies/case_study_1.py")


@pytest.fixture(scope="module")
def case_study_2(load):
    return load("evaluation/case_studies/case_study_2.py")


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
def test_a_cause_is_right_if_state_thread_and_detail_are(faults, kind, change, right):
    holder = faults.FirstCause("RUN", "holder", "", 10.0, 1.0, (1,), "waiting for `holder`")
    assert faults.KINDS[kind].is_right(replace(holder, **change)) is right
    assert not faults.KINDS[kind].is_right(faults.FirstCause())


def test_every_repetition_is_of_everything_before_the_next(faults):
    assert list(faults.plan(["a", "b"], [3], 2, 1)) == [
        ("a", 3, 0, False),
        ("a", 3, 0, True),
        ("b", 3, 0, False),
        ("b", 3, 0, True),
        ("a", 3, 1, False),
        ("b", 3, 1, False),
    ]


def test_a_failed_recording_was_not_detected_and_alarmed_nobody(faults):
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


def test_a_row_that_was_cut_short_is_measured_again(faults, tmp_path):
    table = tmp_path / "rows.csv"
    with faults._writer(table, [faults.Row("lock", 3, 0, 0), faults.Row("lock", 3, 1, 0)]):
        pass
    table.write_text(table.read_text()[:-20])
    assert [row.key for row in faults.load(table)] == [("lock", 3, 0, 0)]


def test_the_interval_of_none_of_ten_is_clopper_and_pearsons(faults):
    low, high = faults.interval(0, 10)
    assert low == 0
    assert high == pytest.approx(100 * (1 - 0.025**0.1))


def test_a_cluster_has_the_type_that_most_of_it_is_of(case_study_1):
    assert case_study_1.majority([0, 0, 0, 1, 1], ["b", "a", "b", "b", "a"]) == {0: "b", 1: "a"}


def test_what_a_table_has_is_not_measured_again(faults, tmp_path, monkeypatch, capsys):
    measured = []

    def measure(_, kind, strength, repetition, *, healthy, **_more):
        measured.append((kind, strength, repetition, healthy))
        verdict = "ok" if healthy else "anomaly"
        return faults.Row(kind, strength, repetition, int(healthy), verdict=verdict, right=1)

    monkeypatch.setattr(faults, "why_not", lambda: "")
    monkeypatch.setattr(faults, "bench", contextlib.nullcontext)
    monkeypatch.setattr(faults, "measure", measure)
    table = tmp_path / "rows.csv"
    options = ["--kinds", "sleep", "--strengths", "3", "--repetitions", "1", "--csv", str(table)]
    assert faults.main(options) == 0
    assert measured == [("sleep", 3, 0, False), ("sleep", 3, 0, True)]
    found = faults.load(table)
    assert "| sleep | 3 |" in capsys.readouterr().out
    assert faults.main([*options, "--resume"]) == 0
    assert len(measured) == 2
    assert faults.load(table) == found


SENTENCE = "3 of 9 executions, +5.00 ms each: waiting for the disk (BLOCK)"


def document(verdict, *findings, sentence=SENTENCE):
    return {
        "verdict": verdict,
        "causes": [{"sentence": sentence, "findings": list(range(len(findings)))}]
        if findings
        else [],
        "findings": [{"state": s, "contribution": c} for s, c in findings],
    }


@pytest.mark.parametrize(
    ("limit", "answer", "right"),
    [
        ("disk", document("anomaly", ("WAIT_DISK", 3.0), ("RUN", 1.0)), True),
        ("disk", document("anomaly", ("WAIT_DISK", 3.0), ("RUN", 4.0)), False),
        ("disk", document("ok", ("WAIT_DISK", 3.0)), False),
        ("disk", document("ok"), False),
        ("competitor", document("anomaly", ("WAIT_CPU", 3.0)), False),
        (
            "competitor",
            document("anomaly", ("WAIT_CPU", 3.0), sentence="kept off the cpu by `intruder (7)`"),
            True,
        ),
        ("none", document("ok"), True),
        ("none", document("anomaly", ("WAIT_DISK", 3.0)), False),
    ],
)
def test_an_answer_is_right_if_it_has_the_verdict_the_state_and_the_holder(
    case_study_2, limit, answer, right
):
    assert case_study_2.judge(case_study_2.LIMITS[limit], answer)[2] is right
