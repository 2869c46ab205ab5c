"""Some calls of a recording fail, each in turn: `record_faults.py` tries all of them."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import record_faults

TRIED = 12  # 2 s each, more on a busy machine
PART = 36


def test_a_part_is_spread_over_calls_and_errors():
    pairs = record_faults.choose_pairs(1_175, PART)
    calls = [call for call, _ in pairs]
    assert len(set(pairs)) == PART
    assert {b - a for a, b in pairwise(calls)} == {32, 33}
    assert set(Counter(code for _, code in pairs).values()) == {PART // 4}
    assert len(set(record_faults.choose_pairs(10, 30))) == 30
    assert len(set(record_faults.choose_pairs(10, None))) == 40


@pytest.mark.long
@pytest.mark.xdist_group("kernel")
@pytest.mark.skipif(
    os.geteuid() != 0 or not record_faults.INSTANCES.is_dir() or not shutil.which("cc"),
    reason="needs root, ftrace and a C compiler",
)
def test_whichever_call_fails_a_recording_is_there_or_is_not(tmp_path):
    many, met, wrong = record_faults.try_calls(record_faults.Loop(tmp_path), TRIED)
    assert many > 500
    # How many calls there are differs a little from one recording to the next.
    assert met >= TRIED - 2
    assert not wrong, "\n".join(wrong)
