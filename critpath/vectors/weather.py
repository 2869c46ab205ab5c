"""Critical paths -> when executions waited for a CPU: which thread, behind whom, cut or woken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

import numpy as np
from msgspec import Struct

from critpath.model import I64, RUNNING, Bool, PathSet, State, Whole
from critpath.model.details import Detail
from critpath.model.vectors import number_codes
from critpath.vectors._count import find_waits

if TYPE_CHECKING:
    from critpath.vectors.table import Coder

# What runs, and what comes between runs.
_OF_STATE: Final = {
    **dict.fromkeys(RUNNING, 1),
    **dict.fromkeys((State.IRQ, State.SOFTIRQ), 2),
    State.WAIT_CPU: 3,
}
_KINDS: Final = np.zeros(256, np.uint8)
_KINDS[[*_OF_STATE]] = [*_OF_STATE.values()]


class Weather(Struct, frozen=True, eq=False):
    """Waits for a CPU, summed: a row for each execution, thread, and who had it.

    Attributes
    ----------
    execution, role, rival : whole numbers
        Rows of the set, of `roles` and of `rivals`.
    woken : bool
        It had slept or was waited for: else it was cut while it ran.
    time : int64
        Nanoseconds.
    wakes : int64 [executions]
        How often the own thread goes on after it slept or waited for another.
    roles : tuple of str
    rivals : tuple of Detail
        Who had the CPU, by name.
    """

    execution: Whole
    role: Whole
    rival: Whole
    woken: Bool
    time: I64
    wakes: I64
    roles: tuple[str, ...]
    rivals: tuple[Detail, ...]

    @classmethod
    def of(cls, path_set: PathSet, coder: Coder) -> Self:
        """Sum what executions waited, with a chunk of their segments in memory at a time."""
        roles = tuple(sorted({symbol.role for symbol in coder.symbols} | {""}))
        role_of = np.array([roles.index(symbol.role) for symbol in coder.symbols] or [0], np.int64)
        rivals: dict[Detail, int] = {}
        wakes, first = np.zeros(len(path_set), np.int64), 0
        # Of very many waits each column is large: as narrow as fits, whatever the others are.
        kinds = (np.int32, np.int16, np.int32, np.bool_, np.int64)
        found = [[np.zeros(0, kind) for kind in kinds]]
        for chunk in path_set.chunks():
            paths = chunk.paths
            rows, woken, mine = _find_waits(chunk)
            codes = np.array(
                [rivals.setdefault(of._replace(peer_tid=-1), len(rivals)) for of in paths.details]
                or [0]
            )
            sizes = max(len(chunk), 1), len(roles), max(len(rivals), 1), 2
            columns = (
                np.searchsorted(paths.start, rows, side="right") - 1,
                role_of[coder.codes(chunk)[rows]],
                codes[paths.detail[rows]],
                woken,
            )
            used, place = number_codes(np.ravel_multi_index(columns, sizes))
            sums = np.zeros(len(used), np.int64)
            np.add.at(sums, place, paths.duration[rows])
            at = np.unravel_index(used, sizes)
            kept = (at[0] + first, *at[1:], sums)
            found.append([of.astype(kind) for of, kind in zip(kept, kinds, strict=True)])
            wakes[first : first + len(chunk)] = mine
            first += len(chunk)
        execution, role, rival, woke, time = map(np.concatenate, zip(*found, strict=True))
        return cls(execution, role, rival, woke, time, wakes, roles, tuple(rivals))


def _find_waits(part: PathSet) -> tuple[I64, I64, I64]:
    """Return which segments wait for a CPU, whether they were woken, how often own ones go on."""
    paths, of = part.paths, part.executions
    rows, woken = np.empty(len(paths.state), np.int64), np.empty(len(paths.state), np.uint8)
    wakes = np.zeros(len(part), np.int64)
    many = find_waits(
        *(paths.start, paths.tid, paths.host, paths.state, of.tid, of.host),
        *(_KINDS, rows, woken, wakes),
    )
    return rows[:many], woken[:many].astype(np.int64), wakes
