"""Which calls of a recording `record_faults.py` lets fail, and in which order."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "evaluation" / "recording"))
import record_faults

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
