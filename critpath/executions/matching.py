"""Begins and ends paired, and the pairs made into executions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from critpath.executions.scheduling import UNKNOWN, Owners, Scheduling
from critpath.model import I64, Events, Executions
from critpath.units import plural


@dataclass(frozen=True)
class Pairs:
    """Begins with their ends.

    Attributes
    ----------
    pairs : list of (int, int)
        Position of the begin and of its end, in their own sequences.
    repeated : int
        Begins given up because the same group began again.
    open : int
        Begins without an end.
    unbegun : int
        Ends without a begin.
    unknown : int
        Begins and ends whose group is None.
    """

    pairs: list[tuple[int, int]]
    repeated: int
    open: int
    unbegun: int
    unknown: int

    @property
    def incomplete(self) -> int:
        """Everything that is no pair."""
        return self.repeated + self.open + self.unbegun + self.unknown

    def notes(self) -> tuple[str, ...]:
        """Return one line per reason that left something out."""
        reasons = (
            (self.repeated, "begin", "given up: the same thread or key began again before an end"),
            (self.open, "begin", "without an end in the recording"),
            (self.unbegun, "end", "without a begin in the recording"),
        )
        return tuple(f"{plural(count, noun)} {why}" for count, noun, why in reasons if count)


def pair(
    begin_rows: I64,
    begin_groups: Sequence[Hashable],
    end_rows: I64,
    end_groups: Sequence[Hashable],
) -> Pairs:
    """Pair every end with the last begin of its group.

    A group that begins again before its end gives up the earlier begin: its end
    was lost or never emitted, and pairing it with a later end would invent a long
    execution.  An event that is both ends the old execution first.

    Parameters
    ----------
    begin_rows, end_rows : int64 [begins], int64 [ends]
        Positions in the events.
    begin_groups, end_groups : sequence of hashable or None
        What must be equal; None where it is unknown.
    """
    rows = np.concatenate([end_rows, begin_rows])
    order = np.argsort(rows, kind="stable")  # stable: ends before begins of the same event
    waiting: dict[Hashable, int] = {}
    pairs = []
    repeated = unbegun = unknown = 0
    for position in order.tolist():
        is_end = position < len(end_rows)
        index = position if is_end else position - len(end_rows)
        group = end_groups[index] if is_end else begin_groups[index]
        if group is None:
            unknown += 1
        elif not is_end:
            repeated += group in waiting
            waiting[group] = index
        elif group in waiting:
            pairs.append((waiting.pop(group), index))
        else:
            unbegun += 1
    return Pairs(sorted(pairs), repeated, len(waiting), unbegun, unknown)


def build(
    events: Events,
    scheduling: Scheduling,
    rows: tuple[I64, I64],
    owners: Owners,
    ids: Sequence[str | None],
    labels: Sequence[str],
    *,
    incomplete: int,
    notes: tuple[str, ...],
    forward: bool = False,
    names: Sequence[str] | None = None,
) -> Executions:
    """Make executions of paired rows; those that cannot have a path are counted.

    Parameters
    ----------
    events : Events
    scheduling : Scheduling
    rows : (int64 [n], int64 [n])
        Positions of the begins and the ends.
    owners : Owners
        The subject of every execution.
    ids : sequence of str or None
        None for ``TID@BEGIN``.
    labels : sequence of str
    incomplete : int
        What was already left out.
    notes : tuple of str
    forward : bool
        Take thread names from the first switch after the begin, not the last before.
    names : sequence of str, optional
        Thread names to fall back on where ``sched_switch`` never shows the thread.
    """
    begin, end = (events.timestamp[r] for r in rows)
    known = owners.tid != UNKNOWN
    lasting = end > begin
    more = []
    if not known.all():
        more.append(
            f"{plural(int((~known).sum()), 'execution')} left out: the thread is unknown "
            "(no vtid context, and no sched_switch says who held the cpu)"
        )
    if not (lasting | ~known).all():
        count = int((~lasting & known).sum())
        more.append(f"{plural(count, 'execution')} of 0 ns left out")
    keep = np.flatnonzero(known & lasting)
    keep = keep[np.lexsort((owners.tid[keep], end[keep], begin[keep]))]
    shown = scheduling.names(owners.host[keep], owners.tid[keep], rows[0][keep], forward=forward)
    if names is not None:
        shown = [a or names[k] for a, k in zip(shown, keep.tolist(), strict=True)]
    return Executions(
        id=tuple(
            text if (text := ids[k]) is not None else f"{owners.tid[k]}@{begin[k]}"
            for k in keep.tolist()
        ),
        begin=begin[keep],
        end=end[keep],
        tid=owners.tid[keep],
        host=owners.host[keep],
        comm=tuple(shown),
        label=tuple(labels[k] for k in keep.tolist()),
        incomplete=incomplete + len(known) - len(keep),
        notes=(*notes, *owners.notes, *more),
    )
