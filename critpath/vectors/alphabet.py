"""Segments -> symbols: the letters that vectors count and alignments align."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from critpath.model import I64, U8, PathSet, State, Symbol

# Symbols are uint8 codes with room for gaps; the aligner's matrices are this square.
LIMIT = 64
OTHER_ROLE = "*"

# Numbers that count instances (kworker/u4:1, worker-12, pool3), not those that are
# part of a program's name (jbd2, x264 ...).
_INSTANCE = re.compile(r"(?<![A-Za-z])\d+|(?<=/u)\d+(?=:)|\d+$")


def role_name(comm: str) -> str:
    """Return a thread's name without the numbers that tell its instances apart."""
    return _INSTANCE.sub("#", comm)


@dataclass(frozen=True, eq=False)
class Alphabet:
    """The symbols of several sets and the code of every segment.

    Attributes
    ----------
    symbols : tuple of Symbol
        At most 64, in canonical order.
    codes : tuple of uint8 arrays
        Per set, the symbol of every segment.
    folded : int
        Symbols beyond the limit that share one ``STATE@*`` per state.
    """

    symbols: tuple[Symbol, ...]
    codes: tuple[U8, ...]
    folded: int


def by_thread(path_sets: Sequence[PathSet]) -> Alphabet:
    """Tell states apart, and the threads they are spent on.

    A segment on the subject's own thread is the bare state; one on another thread
    carries that thread's role, because "waiting for `holder`" and "waiting for
    `helper`" are different types of execution even where their states agree.

    Parameters
    ----------
    path_sets : sequence of PathSet

    Returns
    -------
    Alphabet
    """
    keyed = [_segment_symbols(path_set, with_roles=True) for path_set in path_sets]
    return _alphabet(path_sets, keyed)


def by_state(path_sets: Sequence[PathSet]) -> Alphabet:
    """Tell only states apart: the paper's vectors."""
    keyed = [_segment_symbols(path_set, with_roles=False) for path_set in path_sets]
    return _alphabet(path_sets, keyed)


ALPHABETS = {"thread": by_thread, "state": by_state}
_WITH_ROLES = {"thread": True, "state": False}


def _segment_symbols(path_set: PathSet, *, with_roles: bool) -> tuple[list[Symbol], I64]:
    """Return the distinct symbols of a set and the index of each segment's."""
    paths, executions = path_set.paths, path_set.executions
    path = np.repeat(np.arange(len(paths)), np.diff(paths.start))
    own = (paths.tid == executions.tid[path]) & (paths.host == executions.host[path])
    comm = np.where(own | (paths.tid < 0), 0, paths.comm) if with_roles else np.zeros_like(path)
    key = comm.astype(np.int64) * 256 + paths.state
    distinct, index = np.unique(key, return_inverse=True)
    symbols = [
        Symbol(State(code % 256), role_name(paths.strings[code // 256]) if code >= 256 else "")
        for code in distinct.tolist()
    ]
    return symbols, index.astype(np.int64)


def _alphabet(path_sets: Sequence[PathSet], keyed: Sequence[tuple[list[Symbol], I64]]) -> Alphabet:
    time: dict[Symbol, int] = {}
    for path_set, each in zip(path_sets, keyed, strict=True):
        _add_time(time, path_set, each)
    kept, folded = _within_limit(time)
    return Alphabet(kept, tuple(_codes(kept, each) for each in keyed), folded)


def _add_time(time: dict[Symbol, int], path_set: PathSet, keyed: tuple[list[Symbol], I64]) -> None:
    symbols, index = keyed
    sums = np.zeros(len(symbols), np.int64)
    np.add.at(sums, index, path_set.paths.duration)
    for symbol, total in zip(symbols, sums.tolist(), strict=True):
        time[symbol] = time.get(symbol, 0) + total


def _codes(kept: Sequence[Symbol], keyed: tuple[list[Symbol], I64]) -> U8:
    symbols, index = keyed
    order = {symbol: code for code, symbol in enumerate(kept)}
    table = [order.get(s, order.get(Symbol(s.state, OTHER_ROLE), 0)) for s in symbols]
    return np.array(table, np.uint8)[index] if symbols else np.zeros(0, np.uint8)


class Coder:
    """The alphabet of several sets, found chunk by chunk; it codes any part of them.

    What `Alphabet` has for all segments, which are in memory for it, this has for those
    that are asked for.

    Parameters
    ----------
    path_sets : sequence of PathSet
    kind : str
        A name in `ALPHABETS`.

    Attributes
    ----------
    symbols : tuple of Symbol
    folded : int
        See `Alphabet`.
    """

    def __init__(self, path_sets: Sequence[PathSet], kind: str) -> None:
        self._with_roles = _WITH_ROLES[kind]
        time: dict[Symbol, int] = {}
        for path_set in path_sets:
            for chunk in path_set.chunks():
                _add_time(time, chunk, _segment_symbols(chunk, with_roles=self._with_roles))
        self.symbols, self.folded = _within_limit(time)

    def codes(self, part: PathSet) -> U8:
        """Return the symbol of every segment of some executions of the sets."""
        return _codes(self.symbols, _segment_symbols(part, with_roles=self._with_roles))


def _within_limit(time: dict[Symbol, int]) -> tuple[tuple[Symbol, ...], int]:
    """Keep the symbols with most time; the others share one role per state."""
    if len(time) <= LIMIT:
        return tuple(sorted(time)), 0
    states = sorted({s.state for s in time})
    ranked = sorted((s for s in time if s.role), key=lambda s: (-time[s], s))
    room = LIMIT - len(states) - sum(1 for s in time if not s.role)
    kept = {s for s in time if not s.role} | set(ranked[:room])
    rest = ranked[room:]
    kept |= {Symbol(s.state, OTHER_ROLE) for s in rest}
    return tuple(sorted(kept)), len(rest)
