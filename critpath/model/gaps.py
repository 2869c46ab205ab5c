"""Times in which nothing was recorded, on purpose or because somebody turned tracing off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, fields, replace
from typing import Any, Final

import numpy as np

from critpath.model.table import I64, U8, Bool, FlatTable, col
from critpath.records import dataclass

# What is recorded together, by the code that `Gaps.layer` has; nothing is without `base`.
LAYERS: Final = (
    *("base", "syscalls", "network", "full", "functions", "marks", "stacks", "samples", "files"),
)
# What is beside: how the rest is read does not depend on it.
_BESIDE: Final = frozenset({"functions", "marks", "stacks", "samples", "files"})
BASE: Final = 0  # technical
# Why it was not recorded, by the code that `Gaps.why` has.
REASONS: Final = ("budget", "off", "dump", "start", "other")


def _none() -> Any:
    return np.zeros(0, np.int64)


def _no_code() -> Any:
    return np.zeros(0, np.uint8)


@dataclass(frozen=True, eq=False)
class Gaps(FlatTable):
    """When layers of a recording were not recorded: ascending within a host and layer.

    Events of the layer between begin and closed, or between opening and end, are passed over;
    there are none in between.
    """

    begin: I64 = field(
        default_factory=_none,
        metadata=col("before the first step that turned the layer off", "begin_ns"),
    )
    closed: I64 = field(
        default_factory=_none, metadata=col("after the last such step", "closed_ns")
    )
    opening: I64 = field(
        default_factory=_none,
        metadata=col("before the first that turned it on again", "opening_ns"),
    )
    end: I64 = field(default_factory=_none, metadata=col("after the last", "end_ns"))
    layer: U8 = field(default_factory=_no_code, metadata=col("which layer", words=LAYERS))
    why: U8 = field(
        default_factory=_no_code, metadata=col("why it was not recorded", words=REASONS)
    )
    host: I64 = field(default_factory=_none, metadata=col("where"))

    def of(self, layer: int, host: int | None = None) -> Gaps:
        """Return those of one layer, in order of time."""
        mine = np.flatnonzero((self.layer == layer) & ((host is None) | (self.host == host)))
        return self.take(mine[np.argsort(self.begin[mine], kind="stable")])

    def overlap(self, host: I64, begin: I64, end: I64) -> Bool:
        """Return which windows overlap a gap of `base` on their host.

        One that ends when a gap begins does not, nor one that begins when it ends.
        """
        result = np.zeros(len(begin), np.bool_)
        for name in np.unique(self.host).tolist():
            mine = self.of(BASE, name)
            first = np.searchsorted(mine.end, begin, side="right")
            later = np.append(mine.begin, np.iinfo(np.int64).max)[first]
            result |= (host == name) & (later < end)
        return result


def hide_layers(gaps: Gaps) -> Gaps:
    """Return when not all of it was recorded that is recorded in turns, as gaps of `base`.

    Of threads all is known while only the sockets' events, or calls, are left out; of who works for
    whom it is not.
    """
    layers = [number for number, name in enumerate(LAYERS) if name not in _BESIDE]
    mine = gaps.take(np.isin(gaps.layer, layers))
    if not (mine.layer != BASE).any():
        return mine
    return join_gaps([replace(mine, layer=np.zeros(len(mine), np.uint8))])


def make_gaps(rows: Sequence[Sequence[int]]) -> Gaps:
    """Return gaps of rows: begin, closed, opening, end, codes of layer and reason, host."""
    table = np.array(rows, np.int64).reshape(-1, 7).T
    begin, closed, opening, end, layer, why, host = (column.copy() for column in table)
    return Gaps(begin, closed, opening, end, layer.astype(np.uint8), why.astype(np.uint8), host)


def join_gaps(parts: Sequence[Gaps]) -> Gaps:
    """Return the gaps of several hosts, or of several reasons, in order of time.

    Those of one host and layer that overlap become one: time that two say was not recorded.
    """
    rows = [np.array([getattr(part, of.name) for of in fields(part)], np.int64) for part in parts]
    table = np.concatenate([np.zeros((7, 0), np.int64), *rows], axis=1).T
    merged: list[list[int]] = []
    for row in table[np.lexsort((table[:, 0], table[:, 4], table[:, 6]))].tolist():
        last = merged[-1] if merged else row
        if merged and (last[4], last[6]) == (row[4], row[6]) and row[0] < last[3]:
            if row[3] > last[3]:
                last[2:4] = row[2:4]
            # Where two disagree, nothing between is believed, and no event is an error.
            last[1] = last[2] = last[3]
        else:
            merged.append(row)
    return make_gaps(sorted(merged))
