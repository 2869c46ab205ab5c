"""Critical paths -> time by whom executions wait for, and whom these wait for in turn."""

from __future__ import annotations

from typing import Final

import numpy as np

from critpath.model import I64, RUNNING, ChainTimes, PathSet, State
from critpath.text.phrases import IDLE, LATE_NS
from critpath.vectors._count import follow_chains
from critpath.vectors.table import Coder

_MOST: Final = 512  # chains told apart; what is beyond counts as the thread that waits for it

# States that pictures do not tell apart, as the one that stands for them.
_LIKE: Final[dict[State, State]] = {
    **dict.fromkeys(RUNNING, State.RUN),
    **dict.fromkeys((State.SOFTIRQ, State.WAIT_SOFTIRQ, State.WAIT_IPI), State.IRQ),
    State.WAIT_DEVICE: State.WAIT_DISK,
    State.NET_TRANSIT: State.WAIT_NET,
    **dict.fromkeys((State.WAIT_FUTEX, State.WAIT_PIPE, State.WAIT_POLL), State.WAIT_TASK),
    State.WAIT_UNEXPLAINED: State.UNKNOWN,
}


class _Chains:
    """The chains that are known so far, and the columns: a chain and a state."""

    def __init__(self, coder: Coder) -> None:
        self._coder = coder
        self.roles = sorted({s.role for s in coder.symbols if s.role})
        self._role = np.full(256, -1, np.int64)
        for code, symbol in enumerate(coder.symbols):
            self._role[code] = self.roles.index(symbol.role) if symbol.role else -1
        self._below = np.full((_MOST, max(len(self.roles), 1)), -1, np.int32)
        self.above = np.zeros(_MOST, np.int32)
        self.known = 1
        self._state = np.arange(256, dtype=np.int64)
        for state, like in _LIKE.items():
            self._state[state] = like

    def of(self, part: PathSet) -> I64:
        """Return the column of every segment: the chain times 32, and the state."""
        paths = part.paths
        chain = np.zeros(len(paths.begin), np.int32)
        codes = self._coder.codes(part)
        self.known = follow_chains(
            paths.start, paths.tid, paths.host, codes, self._role, self._below, self.above,
            self.known, chain,
        )  # fmt: skip
        state = self._state[paths.state]
        idle = np.array([text == IDLE for text in paths.strings] or [False])[paths.detail]
        # A cpu that stands idle for long is one that a quota forbids.
        held = (paths.state == State.WAIT_CPU) & idle & (paths.duration >= LATE_NS)
        state[held] = State.WAIT_STOPPED
        return np.asarray(chain * 32 + state, np.int64)

    def name(self, chain: int) -> tuple[str, ...]:
        """Return the roles of a chain."""
        result: list[str] = []
        while chain:
            above = int(self.above[chain])
            result.append(self.roles[int(np.flatnonzero(self._below[above] == chain)[0])])
            chain = above
        return tuple(reversed(result))


def chain_times(normal: PathSet, sample: PathSet) -> ChainTimes:
    """Add up what executions do, by the chain of threads that were waited for.

    Parameters
    ----------
    normal, sample : PathSet
        Read chunk by chunk.

    Returns
    -------
    ChainTimes
    """
    chains = _Chains(Coder((normal, sample), "thread"))
    found = [[_add_up(part, chains) for part in one.chunks()] for one in (normal, sample)]
    keys = sorted({key for parts in found for columns, _ in parts for key in columns})
    place = {key: i for i, key in enumerate(keys)}
    tables = []
    for parts in found:
        rows = [np.zeros((0, len(keys)), np.int64)]
        for columns, times in parts:
            table = np.zeros((len(times), len(keys)), np.int64)
            table[:, [place[key] for key in columns]] = times
            rows.append(table)
        tables.append(np.concatenate(rows))
    return ChainTimes(
        chains=tuple(chains.name(chain) for chain in range(chains.known)),
        leaves=tuple((key // 32, State(key % 32)) for key in keys),
        normal=tables[0],
        sample=tables[1],
    )


def _add_up(part: PathSet, chains: _Chains) -> tuple[list[int], I64]:
    """Return the columns that some executions have, and their time in each."""
    paths = part.paths
    columns, where = np.unique(chains.of(part), return_inverse=True)
    size = max(len(columns), 1)
    cells = np.bincount(
        paths.path * size + where.reshape(-1), weights=paths.duration, minlength=len(paths) * size
    )
    table = np.asarray(np.rint(cells), np.int64).reshape(len(paths), size)
    return columns.tolist(), table[:, : len(columns)]
