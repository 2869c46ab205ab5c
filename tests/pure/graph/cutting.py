"""Timelines cut into blocks, as a recording that is read as a stream is."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from critpath.model import Block, BlockList

FAMILIES = {
    "": ("begin", "end", "state", "detail", "cpu", "waker", "woken"),
    "stolen_": ("begin", "end", "state", "detail"),
    "ran_": ("begin", "end", "worker"),
}


def cut_up(timelines, cuts, late=None):
    """Return timelines as blocks.

    ``cuts`` are moments; the end of the recording is one more.  A row is in the first
    block with ``cut >= end``, or ``late(rows)`` blocks after that, as far as the order of
    its owner's rows allows.
    """
    columns = [getattr(timelines, f"{family}end") for family in FAMILIES]
    final = max((int(end.max()) for end in columns if len(end)), default=0)
    cuts = [*sorted(cut for cut in cuts if cut < final), final]
    parts = [{} for _ in cuts]
    for family, names in FAMILIES.items():
        start = getattr(timelines, f"{family}start")
        end = getattr(timelines, f"{family}end")
        block = np.searchsorted(cuts, end)
        if late is not None and len(end):
            block = np.minimum(block + late(len(end)), len(cuts) - 1)
        for low, high in pairwise(start.tolist()):
            block[low:high] = np.maximum.accumulate(block[low:high])
        owner = np.repeat(np.arange(len(start) - 1), np.diff(start))
        for k, part in enumerate(parts):
            rows = np.flatnonzero(block == k)
            # A block knows those who have rows so far.
            known = int(owner[block <= k].max(initial=-1)) + 1
            part[f"{family}start"] = np.searchsorted(owner[rows], np.arange(known + 1))
            for name in names:
                part[family + name] = getattr(timelines, family + name)[rows]
    return BlockList([Block(cut=cut, **part) for cut, part in zip(cuts, parts, strict=True)])


def differences(found, expected):
    """Return the names of the columns in which two tables of paths differ."""
    columns = (
        *("start", "begin", "end", "state", "detail", "comm", "tid", "host", "cpu", "lossy"),
        "elsewhere_idle",
    )
    names = [n for n in columns if not same(getattr(found, n), getattr(expected, n))]
    texts = ("strings", "details")
    return names + [n for n in texts if getattr(found, n) != getattr(expected, n)]


def same(a, b):
    return a.dtype == b.dtype and np.array_equal(a, b)
