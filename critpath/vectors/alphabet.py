"""Segments -> symbols: the letters that vectors count and alignments align."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from critpath.model import I32, I64, U8, PathSet, State, Symbol
from critpath.vectors._count import add_up, spent_on

# Symbols are uint8 codes with room for gaps; the aligner's matrices are this square.
LIMIT = 64
OTHER_ROLE = "*"
# A key of a segment is the row of a name and a state, of which there are fewer.
_STATES = 32

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
    return _alphabet([_keyed(path_set, with_roles=True) for path_set in path_sets])


def by_state(path_sets: Sequence[PathSet]) -> Alphabet:
    """Tell only states apart: the paper's vectors."""
    return _alphabet([_keyed(path_set, with_roles=False) for path_set in path_sets])


ALPHABETS = {"thread": by_thread, "state": by_state}
_WITH_ROLES = {"thread": True, "state": False}


@dataclass(frozen=True, eq=False)
class _Keyed:
    """The symbols of a set: those it has, their keys, their time; the key of each segment."""

    symbols: list[Symbol]
    keys: I64
    time: list[int]
    of_segment: I32


def _keyed(path_set: PathSet, *, with_roles: bool) -> _Keyed:
    paths, executions = path_set.paths, path_set.executions
    if paths.state.max(initial=0) >= _STATES:
        raise ValueError(f"a state {paths.state.max()}")
    names = np.zeros(len(paths.begin), np.int32)
    used = np.zeros(max(len(paths.strings), 1), np.uint8)
    if with_roles:
        own = executions.tid, executions.host
        spent_on(paths.start, paths.tid, paths.host, paths.comm, *own, names, used)
    used[0] = 1
    row = np.cumsum(used, dtype=np.int64) - 1
    counts, sums = np.zeros((2, (int(row[-1]) + 1) * _STATES), np.int64)
    add_up(names, row, paths.state, paths.begin, paths.end, counts, sums)
    keys = np.flatnonzero(counts)
    roles = [role_name(paths.strings[code]) if code else "" for code in np.flatnonzero(used)]
    symbols = [Symbol(State(key % _STATES), roles[key // _STATES]) for key in keys.tolist()]
    return _Keyed(symbols, keys, sums[keys].tolist(), names)


def _alphabet(keyed: Sequence[_Keyed]) -> Alphabet:
    time: dict[Symbol, int] = {}
    for each in keyed:
        _add_time(time, each)
    kept, folded = _within_limit(time)
    return Alphabet(kept, tuple(_codes(kept, each) for each in keyed), folded)


def _add_time(time: dict[Symbol, int], keyed: _Keyed) -> None:
    for symbol, total in zip(keyed.symbols, keyed.time, strict=True):
        time[symbol] = time.get(symbol, 0) + total


def _codes(kept: Sequence[Symbol], keyed: _Keyed) -> U8:
    order = {symbol: code for code, symbol in enumerate(kept)}
    table = np.zeros(int(keyed.keys.max(initial=0)) + 1, np.uint8)
    table[keyed.keys] = [
        order.get(s, order.get(Symbol(s.state, OTHER_ROLE), 0)) for s in keyed.symbols
    ]
    codes: U8 = table[keyed.of_segment]
    return codes


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
                _add_time(time, _keyed(chunk, with_roles=self._with_roles))
        self.symbols, self.folded = _within_limit(time)

    def codes(self, part: PathSet) -> U8:
        """Return the symbol of every segment of some executions of the sets."""
        return _codes(self.symbols, _keyed(part, with_roles=self._with_roles))


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
