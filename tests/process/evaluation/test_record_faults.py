"""Some calls of a recording fail, each in turn: `record_faults.py` tries all of them."""

from __future__ import annotations

import errno
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
FORMAT = "open64 /sys/kernel/tracing/instances/@/events/sched/{}/format"


def test_every_error_of_every_call_is_tried_those_of_other_kinds_first():
    sites = [FORMAT.format("sched_switch"), "rmdir /tmp/rec", FORMAT.format("sched_waking")]
    pairs = record_faults.list_pairs([*sites, "rmdir /tmp/rec"])
    assert len(set(pairs)) == len(pairs) == 2 * 4 + 2 * 4
    first, second, *_ = pairs
    assert [first.site, second.site] == sites[:2]
    assert str(first) == f"{sites[0]}, no 1: EIO"
    assert {pair.code for pair in pairs if pair.site == sites[1]} == {
        *(errno.EIO, errno.EACCES, errno.ENOMEM, errno.EBUSY)
    }
    assert [pair.number for pair in pairs if pair.code == errno.EBUSY] == [1, 2]
    # The same file of another event is tried once the first one's was, with the same error.
    assert pairs.index(record_faults.Pair(sites[2], 1, errno.EIO)) > pairs.index(first) + 1


def test_a_part_is_spread_over_all():
    pairs = record_faults.list_pairs([f"rmdir /tmp/{i}" for i in range(100)])
    part = record_faults.choose_pairs(pairs, 40)
    assert len({*part}) == 40
    assert len({pair.code for pair in part}) == 4
    assert record_faults.choose_pairs(pairs, 0) == record_faults.choose_pairs(pairs, 999) == pairs


kernel = pytest.mark.skipif(
    os.geteuid() != 0 or not record_faults.INSTANCES.is_dir() or not shutil.which("cc"),
    reason="needs root, ftrace and a C compiler",
)


@pytest.mark.long
@pytest.mark.xdist_group("kernel")
@kernel
@pytest.mark.parametrize(("part", "pattern", "fewest"), [(TRIED, "", 3_000), (0, MENDED, 8)])
def test_whichever_call_fails_a_recording_is_there_or_is_not(tmp_path, part, pattern, fewest):
    pairs, tried, met, wrong = record_faults.try_calls(tmp_path, part, pattern)
    assert len(pairs) >= fewest
    assert tried == (part or len(pairs))
    # How often one is made differs a little from one recording to the next.
    assert met >= tried - 2
    assert not wrong, "\n".join(wrong)
