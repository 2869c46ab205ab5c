"""Critical paths -> when executions waited for a CPU: which thread, behind whom, cut or woken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

import numpy as np
from msgspec import Struct

from critpath.model import I64, RUNNING, Bool, CriticalPaths, PathSet, State
from critpath.model.details import Detail
from critpath.model.vectors import number_codes

if TYPE_CHECKING:
    from critpath.vectors.table import Coder

_CUTS: Final = (State.IRQ, State.SOFTIRQ, State.WAIT_CPU)  # what comes between runs


class Weather(Struct, frozen=True, eq=False):
    """Waits for a CPU, summed: a row for each execution, thread, and who had it.

    Attributes
    ----------
    execution, role, rival : int64
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

    execution: I64
    role: I64
    rival: I64
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
        found = []
        for chunk in path_set.chunks():
            paths = chunk.paths
            rows, woken, mine = _find_waits(chunk)
            codes = np.array(
                [rivals.setdefault(of._replace(peer_tid=-1), len(rivals)) for of in paths.details]
                or [0]
            )
            columns = (
                np.searchsorted(paths.start, rows, side="right") - 1 + first,
                role_of[coder.codes(chunk)[rows]],
                codes[paths.detail[rows]],
                woken.astype(np.int64),
            )
            found.append((*columns, paths.duration[rows]))
            wakes[first : first + len(chunk)] = mine
            first += len(chunk)
        empty = np.zeros((5, 0), np.int64)
        execution, role, rival, woke, time = np.concatenate([empty, *found], axis=1)
        sizes = (len(roles), max(len(rivals), 1), 2)
        keys = np.ravel_multi_index((execution, role, rival, woke), (max(len(path_set), 1), *sizes))
        used, place = number_codes(keys)
        sums = np.zeros(len(used), np.int64)
        np.add.at(sums, place, time)
        at = np.unravel_index(used, (max(len(path_set), 1), *sizes))
        return cls(at[0], at[1], at[2], at[3] > 0, sums, wakes, roles, tuple(rivals))


def _find_waits(part: PathSet) -> tuple[I64, Bool, I64]:
    """Return which segments wait for a CPU, whether they were woken, how often own ones go on."""
    paths: CriticalPaths = part.paths
    state, path = paths.state, paths.path
    between = np.isin(state, _CUTS)
    # The last segment that is no cut, for each: that of its own thread tells what was cut.
    last = np.maximum.accumulate(np.where(between, -1, np.arange(len(state))))
    before = np.concatenate([[-1], last[:-1]])
    same = (before >= 0) & (path[before] == path)
    same &= (paths.tid[before] == paths.tid) & (paths.host[before] == paths.host)
    ran = same & np.isin(state[before], [*RUNNING])
    rows = np.flatnonzero(state == State.WAIT_CPU)
    own = paths.tid == part.executions.tid[path]
    own &= paths.host == part.executions.host[path]
    active = own & (between | np.isin(state, [*RUNNING]))
    goes_on = active.copy()
    goes_on[1:] &= ~active[:-1] | (path[1:] != path[:-1])
    return rows, ~ran[rows], np.bincount(path[goes_on], minlength=len(part))
