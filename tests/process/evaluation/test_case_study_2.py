"""The second case study in small: one limit, on this machine's kernel."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "evaluation" / "case_studies"))
import bench
import case_study_2
from limits import find_hierarchies

pytestmark = pytest.mark.xdist_group("kernel")

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
def test_an_answer_is_right_if_it_has_the_verdict_the_state_and_the_holder(limit, answer, right):
    assert case_study_2.judge(case_study_2.LIMITS[limit], answer)[2] is right


def why_not():
    if shutil.which("taskset") is None:
        return "taskset (util-linux) is not installed"
    if "cpu" not in find_hierarchies():
        return "no control group hierarchy has the controller cpu"
    return bench.why_not()


@pytest.mark.long
@pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")
def test_a_quota_is_seen_and_the_groups_are_gone(tmp_path):
    (answer,) = case_study_2.run(tmp_path, ["quota-10"], 1, 36)
    root = find_hierarchies()["cpu"].root
    assert not list(root.glob(f"critpath-evaluation-{os.getpid()}-*"))
    # Who ran meanwhile is this machine's affair, and with it how long requests took: the wait and
    # the verdict are not.
    assert (answer.verdict, answer.state) == ("anomaly", "WAIT_QUOTA"), answer.cause
