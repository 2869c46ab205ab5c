"""A window's rows are those of the whole recording that overlap it, whatever is in memory."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from critpath.engines.limits import Budget
from critpath.timeline.streaming import read_timelines

TABLES = {
    "": ("begin", "end", "state", "detail", "cpu", "waker", "woken"),
    "stolen_": ("stolen_begin", "stolen_end", "stolen_state", "stolen_detail"),
    "ran_": ("ran_begin", "ran_end", "ran_worker"),
}


def rows_of(lines, low=None, high=None):
    """Return the rows of each table with their owners, those alone that overlap a window."""
    found = {}
    for prefix, names in TABLES.items():
        start = getattr(lines, f"{prefix}start")
        columns = [np.repeat(np.arange(len(start) - 1), np.diff(start))]
        columns += [getattr(lines, name) for name in names]
        rows = list(zip(*(column.tolist() for column in columns), strict=True))
        found[prefix] = [r for r in rows if low is None or (r[2] > low and r[1] < high)]
    return found


@pytest.fixture(scope="module")
def recording(guest):
    return guest("sample-lock")


@pytest.mark.parametrize(
    "budget",
    [None, Budget(500, 0, spills=False), Budget(100, 1, spills=True)],
    ids=["one block", "blocks", "spilled"],
)
@pytest.mark.parametrize("part", [(0.0, 1.0), (0.3, 0.35), (0.5, 0.50001)])
def test_a_window_has_the_rows_that_overlap_it(recording, monkeypatch, budget, part):
    events, whole = read_timelines(recording)
    if budget is not None:
        monkeypatch.setattr(Budget, "within", lambda _: budget)
    low, high = (events.begin + int(share * (events.end - events.begin)) for share in part)
    _, lines = read_timelines(recording, begin=low, end=high)
    assert rows_of(lines) == rows_of(whole, low, high)
    assert len(lines.begin)
    for name in ("processors", "strings", "losses"):
        assert getattr(lines, name) == getattr(whole, name)
    for field in fields(whole.workers):
        column = getattr(lines.workers, field.name)
        assert np.array_equal(column, getattr(whole.workers, field.name))
