"""Some calls of a recording fail, each in turn: `record_faults.py` tries all of them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "evaluation" / "recording"))
import record_faults

TRIED = 12  # a second each, more on a busy machine
# What left something once: the registry's entry, what the trace was made of, the instance.
MENDED = r"^close .*/work$|^close .*/rec/\.raw-converted/formats$|^rmdir /sys/kernel/tracing/\S+/@$"


kernel = pytest.mark.skipif(
    os.geteuid() != 0 or not record_faults.INSTANCES.is_dir() or not shutil.which("cc"),
    reason="needs root, ftrace and a C compiler",
)


@kernel
@pytest.mark.parametrize(("part", "pattern", "fewest"), [(TRIED, "", 3_000), (0, MENDED, 8)])
def test_whichever_call_fails_a_recording_is_there_or_is_not(tmp_path, part, pattern, fewest):
    pairs, tried, met, wrong = record_faults.try_calls(tmp_path, part, pattern)
    assert len(pairs) >= fewest
    assert tried == (part or len(pairs))
    # How often one is made differs a little from one recording to the next.
    assert met >= tried - 2
    assert not wrong, "\n".join(wrong)
