"""Critical paths -> count and duration vectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np
from msgspec import Struct

from critpath.model import (
    I32,
    I64,
    INTERFERENCE,
    RUNNING,
    U8,
    CriticalPaths,
    PathSet,
    State,
    Symbol,
    VectorTable,
    Whole,
    role_name,
)
from critpath.model.details import Detail
from critpath.model.paths import SEGMENT_COLUMNS
from critpath.model.stacks import location_of
from critpath.model.vectors import COUNTS, TIMES, look_up, widen
from critpath.processes import do_for_both, side_by_side
from critpath.schema import notes
from critpath.schema.notes import Note
from critpath.vectors._count import add_up, count, count_trips, spent_on


def vector_table(path_set: PathSet, symbols: Sequence[Symbol], codes: U8) -> VectorTable:
    """Count the segments of every execution, and add up their durations.

    Counting with interference, a helper that a timer interrupts three times has run
    four times; two executions of one type then differ by what else the machine did.
    So segments are also counted without it (`VectorTable.structure`).

    Parameters
    ----------
    path_set : PathSet
    symbols : sequence of Symbol
    codes : uint8 [segments]
        Symbol of every segment of the set.

    Returns
    -------
    VectorTable
        Counts and nanoseconds [executions, symbols]; each execution's
        durations add up to its window exactly.
    """
    paths = path_set.paths
    if codes.max(initial=0) >= max(len(symbols), 1):
        raise ValueError(f"code {codes.max()} of {len(symbols)} symbols")
    shape = (len(paths), len(symbols))
    counts, structure = np.zeros((2, *shape), np.int32)
    durations = np.zeros(shape, np.int64)
    interference = np.zeros(256, np.uint8)
    interference[[int(state) for state in INTERFERENCE]] = 1
    count(
        paths.start,
        paths.begin,
        paths.end,
        paths.state,
        codes,
        interference,
        counts,
        durations,
        structure,
    )
    return VectorTable(tuple(symbols), counts, durations, structure)


def vectors_of(path_set: PathSet, coder: Coder) -> VectorTable:
    """Return the vectors of a set, with a chunk of its segments in memory at a time.

    Parameters
    ----------
    path_set : PathSet
    coder : Coder
        Of this set, and those that it is compared with.

    Returns
    -------
    VectorTable
        As `vector_table` gives it.
    """
    # Not joined from the chunks' tables: what is left of these the process would keep.
    shape = len(path_set), len(coder.symbols)
    counts: Whole = np.zeros(shape, np.int8)
    structure: Whole = np.zeros(shape, np.int8)
    durations: Whole = np.zeros(shape, np.int32)
    first = 0
    for chunk in path_set.chunks():
        table = vector_table(chunk, coder.symbols, coder.codes(chunk))
        mine = slice(first, first + len(chunk))
        counts = widen(counts, int(table.counts.max(initial=0)), COUNTS)
        structure = widen(structure, int(table.structure.max(initial=0)), COUNTS)
        durations = widen(durations, int(table.total.max(initial=0)), TIMES)
        counts[mine], structure[mine] = table.counts, table.structure
        durations[mine] = table.durations
        first += len(chunk)
    return VectorTable(coder.symbols, counts, durations, structure)


def trips_of(path_set: PathSet, coder: Coder) -> tuple[tuple[str, ...], Whole]:
    """Return how often every execution's path goes to another thread, by that one's role.

    A thread that is woken on the waker's own cpu works while that one waits for the cpu: the
    same trip, which otherwise would be one or none by where the scheduler put it.

    Parameters
    ----------
    path_set : PathSet
    coder : Coder
        Of this set, and those that it is compared with.

    Returns
    -------
    roles : tuple of str
    trips : int8, int16 or int32 [executions, roles]
    """
    roles = tuple(sorted({s.role for s in coder.symbols if s.role}))
    column = np.full(256, -1, np.int64)
    for code, symbol in enumerate(coder.symbols):
        column[code] = roles.index(symbol.role) if symbol.role else -1
    kind = np.zeros(256, np.uint8)
    kind[[int(state) for state in RUNNING]] = 1
    kind[[int(State.IRQ), int(State.SOFTIRQ)]] = 2
    result: Whole = np.zeros((len(path_set), len(roles)), COUNTS[0])
    first, hosts = 0, path_set.hosts
    places = {role: place for place, role in enumerate(roles)}
    for chunk in path_set.chunks():
        paths = chunk.paths
        trips = np.zeros((len(paths), len(roles)), np.int64)
        if roles:
            rival = np.full(len(paths.state), -1, np.int64)
            waits = (paths.state == State.WAIT_CPU) & ~paths.others
            rival[waits] = look_up(
                paths.detail[waits],
                paths.details,
                lambda of: places.get(role_name(of.rival, hosts=hosts), -1),
            )
            # What others asked is no trip of this one: the thread that they woke is still there.
            at = paths.find_served()
            codes, kinds = coder.codes(chunk)[at], kind[paths.state]
            count_trips(
                paths.start, paths.tid[at], paths.host[at], codes, kinds, column, rival, trips
            )
        result = widen(result, int(trips.max(initial=0)), COUNTS)
        result[first : first + len(chunk)] = trips
        first += len(chunk)
    return roles, result


def trips_of_both(
    normal: PathSet, sample: PathSet, coder: Coder
) -> tuple[tuple[str, ...], Whole, Whole]:
    """Return what `trips_of` gives of two sets, of which it is found once."""
    if not (normal in coder.trips and sample in coder.trips):
        found = do_for_both(normal, sample, trips_of, coder)
        coder.trips.update(zip((normal, sample), found, strict=True))
    (roles, ours), (_, theirs) = coder.trips[normal], coder.trips[sample]
    return roles, ours, theirs


# Alphabets: segments -> symbols.


# technical: symbols are uint8 codes with room for gaps; the aligner's matrices are this square.
LIMIT = 64
OTHER_ROLE = "*"
# technical: A key of a segment is the row of a name and a state, of which there are fewer.
_STATES = 32


class Alphabet(Struct, frozen=True, eq=False):
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
    """
    return _alphabet([_key_segments(path_set) for path_set in path_sets])


def by_state(path_sets: Sequence[PathSet]) -> Alphabet:
    """Tell only states apart: the paper's vectors."""
    return _alphabet([_key_segments(path_set, with_roles=False) for path_set in path_sets])


def by_function(path_sets: Sequence[PathSet]) -> Alphabet:
    """Tell apart what threads do and, where they run, the function of Python that they ran."""
    return _alphabet([_key_segments(path_set, places=functions_of) for path_set in path_sets])


def by_code(path_sets: Sequence[PathSet]) -> Alphabet:
    """Tell apart what threads do and, where they have stacks, where in the program's own code."""
    return _alphabet([_key_segments(path_set, places=locations_of) for path_set in path_sets])


ALPHABETS = {
    "thread": by_thread,
    "state": by_state,
    "functions": by_function,
    "code": by_code,
}

_Places = Callable[[CriticalPaths], tuple[I32, list[str]]]


def functions_of(paths: CriticalPaths) -> tuple[I32, list[str]]:
    """Return a code for the function of every segment, and what functions are called by code.

    Without lines, which names of recorded functions have: one that only moved is the same.
    """
    runs = np.isin(paths.state, [int(State.RUN), int(State.RUN_USER)])
    texts, place = {"": 0}, np.zeros(len(paths.details), np.int32)
    for code in np.unique(paths.detail[runs]).tolist():
        name = paths.details[code].function
        place[code] = texts.setdefault(re.sub(r":\d+\)$", ")", name), len(texts))
    return np.where(runs, place[paths.detail], np.int32(0)), list(texts)


def locations_of(paths: CriticalPaths) -> tuple[I32, list[str]]:
    """Return a code for the location of every segment's stack, and what those are called by code.

    Without lines, as `functions_of`.
    """
    texts, place = {"": 0}, np.zeros(len(paths.stacks) + 1, np.int32)  # the last: without a stack
    for code in np.unique(paths.stack[paths.stack >= 0]).tolist():
        name = location_of(paths.stacks[code], lines=False)
        place[code] = texts.setdefault(name, len(texts))
    return place[paths.stack], list(texts)


_LETTERS: Final[dict[str, dict[str, Any]]] = {
    "thread": {},
    "state": {"with_roles": False},
    "functions": {"places": functions_of},
    "code": {"places": locations_of},
}


class _Keyed(Struct, frozen=True, eq=False):
    """The symbols of a set: those it has, their keys, their time; the key of each segment."""

    symbols: list[Symbol]
    keys: I64
    time: list[int]
    of_segment: I32


def _key_segments(
    path_set: PathSet, *, with_roles: bool = True, places: _Places | None = None
) -> _Keyed:
    paths, executions = path_set.paths, path_set.executions
    if paths.state.max(initial=0) >= _STATES:
        raise ValueError(f"a state {paths.state.max()}")
    names = np.zeros(len(paths.begin), np.int32)
    used = np.zeros(max(len(paths.strings), 1), np.uint8)
    if with_roles:
        own = executions.tid, executions.host
        spent_on(paths.start, paths.tid, paths.host, paths.comm, *own, names, used)
    used[0] = 1
    whose = np.flatnonzero(used)
    texts, pairs = [""], np.stack([whose, 0 * whose], axis=1)
    if places is not None:
        code, texts = places(paths)
        pairs, of = np.unique(np.stack([names, code], axis=1), axis=0, return_inverse=True)
        names[:] = of.reshape(-1)
        used = np.ones(max(len(pairs), 1), np.uint8)
    row = np.cumsum(used, dtype=np.int64) - 1
    counts, sums = np.zeros((2, (int(row[-1]) + 1) * _STATES), np.int64)
    add_up(names, row, paths.state, paths.begin, paths.end, counts, sums)
    keys = np.flatnonzero(counts)
    hosts = path_set.hosts
    told = [
        (role_name(paths.strings[name], hosts=hosts) if name else "", texts[place])
        for name, place in pairs.tolist()
    ]
    symbols = [Symbol(State(key % _STATES), *told[key // _STATES]) for key in keys.tolist()]
    return _Keyed(symbols, keys, sums[keys].tolist(), names)


def _alphabet(keyed: Sequence[_Keyed]) -> Alphabet:
    time: dict[Symbol, int] = {}
    for each in keyed:
        _add_time(time, each)
    kept, folded = _keep_largest(time)
    return Alphabet(kept, tuple(_codes(kept, each) for each in keyed), folded)


def _add_time(time: dict[Symbol, int], keyed: _Keyed) -> None:
    for symbol, total in zip(keyed.symbols, keyed.time, strict=True):
        time[symbol] = time.get(symbol, 0) + total


def _codes(kept: Sequence[Symbol], keyed: _Keyed) -> U8:
    order = {symbol: code for code, symbol in enumerate(kept)}
    table = np.zeros(int(keyed.keys.max(initial=0)) + 1, np.uint8)
    for key, symbol in zip(keyed.keys.tolist(), keyed.symbols, strict=True):
        state, role = symbol.state, symbol.role
        instead = symbol, Symbol(state, role), Symbol(state, OTHER_ROLE)
        table[key] = next((order[one] for one in instead if one in order), 0)
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
    kind : str
    states : tuple of frozenset of State
        Those that each set has.
    trips : mapping
        What `trips_of_both` found of sets, which is asked for to judge and to explain.
    warnings : tuple of Note
        Says so, if it is of another kind than asked for: see `like_alphabet`.
    """

    def __init__(self, path_sets: Sequence[PathSet], kind: str) -> None:
        self.kind, self.warnings = like_alphabet(kind, path_sets)
        self._letters = _LETTERS[self.kind]
        self.trips = WeakKeyDictionary[PathSet, tuple[tuple[str, ...], Whole]]()
        time: dict[Symbol, int] = {}
        times = side_by_side(*(partial(self._times, path_set) for path_set in path_sets))
        self.states = tuple(frozenset(symbol.state for symbol in found) for found in times)
        for found in times:
            for symbol, total in found.items():
                time[symbol] = time.get(symbol, 0) + total
        self.symbols, self.folded = _keep_largest(time)

    def _times(self, path_set: PathSet) -> dict[Symbol, int]:
        time: dict[Symbol, int] = {}
        for chunk in path_set.chunks():
            _add_time(time, _key_segments(chunk, **self._letters))
        return time

    def codes(self, part: PathSet) -> U8:
        """Return the symbol of every segment of some executions of the sets."""
        return _codes(self.symbols, _key_segments(part, **self._letters))

    def time_without(
        self, path_set: PathSet, table: VectorTable, is_stranger: Callable[[Detail], bool]
    ) -> Whole | None:
        """Return durations without the time that a set waited for cpus that strangers had.

        None where none of them did.

        Parameters
        ----------
        path_set : PathSet
        table : VectorTable
            Its vectors.
        is_stranger : callable
            Tells it of whose having the cpu is left out.
        """
        durations, first = table.durations, 0
        for chunk in path_set.chunks():
            paths, mine = chunk.paths, slice(first, first + len(chunk))
            first += len(chunk)
            rows = np.flatnonzero(paths.state == State.WAIT_CPU)
            rows = rows[look_up(paths.detail[rows], paths.details, is_stranger) > 0]
            if len(rows):
                durations = durations.copy() if durations is table.durations else durations
                path = np.searchsorted(paths.start, rows, side="right") - 1
                where = path, self.codes(chunk)[rows]
                np.subtract.at(durations[mine], where, paths.duration[rows].astype(durations.dtype))
        return None if durations is table.durations else durations


def _keep_largest(time: dict[Symbol, int]) -> tuple[tuple[Symbol, ...], int]:
    """Keep the symbols with most time; the others share one role per state.

    Before that, places in the code with little time become what they are without them.
    """
    if len(time) <= LIMIT:
        return tuple(sorted(time)), 0
    plain = {Symbol(s.state, s.role) for s in time}
    if len(plain) < len(time):
        placed = sorted((s for s in time if s.place), key=lambda s: (-time[s], s))
        small = {*placed[max(0, LIMIT - len(plain)) :]}
        merged: dict[Symbol, int] = {}
        for symbol, total in time.items():
            key = Symbol(symbol.state, symbol.role) if symbol in small else symbol
            merged[key] = merged.get(key, 0) + total
        symbols, folded = _keep_largest(merged)
        return symbols, folded + len(small)
    states = sorted({s.state for s in time})
    ranked = sorted((s for s in time if s.role), key=lambda s: (-time[s], s))
    room = LIMIT - len(states) - sum(1 for s in time if not s.role)
    kept = {s for s in time if not s.role} | set(ranked[:room])
    rest = ranked[room:]
    kept |= {Symbol(s.state, OTHER_ROLE) for s in rest}
    return tuple(sorted(kept)), len(rest)


# Two sets of which only one was recorded with functions, or with system calls.


def like_alphabet(kind: str, path_sets: Sequence[PathSet]) -> tuple[str, tuple[Note, ...]]:
    """Return the alphabet in which sets can be compared, and a warning if it is another one.

    Places in the code that only some of the sets know would be symbols that the others never had.
    """
    places = _LETTERS[kind].get("places")
    if places is None:
        return kind, ()
    known = [any(len(places(of)[1]) > 1 for of in each.paths.chunks()) for each in path_sets]
    if all(known):
        return kind, ()
    which = ("normal", "sample")[known.index(True)] if any(known) else ""
    return "thread", (notes.InOneSet(which, "stacks" if kind == "code" else kind),)


_COARSE = {
    State.RUN_USER: State.RUN,
    State.RUN_SYSCALL: State.RUN,
    State.WAIT_FUTEX: State.WAIT_TASK,
    State.WAIT_POLL: State.WAIT_TASK,
    State.WAIT_PIPE: State.WAIT_TASK,
}


def with_like_states(
    normal: PathSet, sample: PathSet, kind: str
) -> tuple[PathSet, PathSet, Coder, tuple[Note, ...]]:
    """Leave out what system calls tell where one of two sets was traced without them.

    Otherwise every running segment of one set would be a state that the other never
    had.

    Returns
    -------
    normal, sample : PathSet
    coder : Coder
        Of these, of a kind in `ALPHABETS`.
    warnings : tuple of Note
        Says so, if it was done.
    """
    coder = Coder((normal, sample), kind)
    traced = [not states.isdisjoint(_TRACED) for states in coder.states]
    if traced[0] == traced[1]:
        return normal, sample, coder, ()
    which = "sample" if traced[1] else "normal"
    coarse = without_syscalls(normal), without_syscalls(sample)
    return *coarse, Coder(coarse, kind), (notes.InOneSet(which, "system calls"),)


_TRACED: Final = (State.RUN_USER, State.RUN_SYSCALL)


def without_syscalls(path_set: PathSet) -> PathSet:
    """Return the paths as a trace without system calls would have given them.

    Running is RUN, a wait that only its system call named is WAIT_TASK; neighbours
    that then differ in nothing are one segment.
    """
    return replace(path_set, paths=path_set.paths.map(_coarse))


def _coarse(paths: CriticalPaths) -> CriticalPaths:
    table = np.arange(len(State), dtype=np.uint8)
    for fine, coarse in _COARSE.items():
        table[fine] = coarse
    state = table[paths.state]
    silent = np.isin(state, [int(s) for s in RUNNING | {State.WAIT_TASK}])
    detail = np.where(silent, np.int32(0), paths.detail)
    path = np.repeat(np.arange(len(paths)), np.diff(paths.start))
    new = np.ones(len(path), bool)
    new[1:] = False
    for column in (path, state, detail, paths.tid, paths.host, paths.cpu, paths.beneath):
        new[1:] |= column[1:] != column[:-1]
    keep = np.flatnonzero(new)
    last = np.append(keep[1:], len(path)) - 1 if len(keep) else keep
    columns = {name: getattr(paths, name)[keep] for name in SEGMENT_COLUMNS}
    # What it ended with, and who woke it then.
    columns |= {name: getattr(paths, name)[last] for name in ("end", "stack", "waker_stack")}
    columns |= {
        "start": np.searchsorted(path[keep], np.arange(len(paths) + 1)),
        "state": state[keep],
        "detail": detail[keep],
        "lossy": np.logical_or.reduceat(paths.lossy, keep) if len(keep) else paths.lossy,
        "elsewhere_idle": _sum_known(paths.elsewhere_idle, keep),
    }
    return replace(paths, **columns)


def _sum_known(times: I64, first: I64) -> I64:
    """Return the sums of stretches that begin at some places, -1 where a part is not known."""
    if not len(first):
        return first
    unknown = np.minimum.reduceat(times, first) < 0
    return np.where(unknown, -1, np.add.reduceat(times, first))


# Interrupts folded into running time.


_INTERRUPTS = frozenset({State.IRQ, State.SOFTIRQ})


def fold_interrupts(table: VectorTable) -> VectorTable:
    """Count interrupt work as running time of the thread it interrupted.

    Which of two executions a long interrupt strikes is chance; that it made one of
    them slower is in the running time all the same.  For judging single executions.

    Parameters
    ----------
    table : VectorTable

    Returns
    -------
    VectorTable
        The same symbols; durations of IRQ and SOFTIRQ moved to the first running
        state of the same role, where there is one.
    """
    if not any(symbol.state in _INTERRUPTS for symbol in table.symbols):
        return table
    durations = table.durations.copy()
    for column, symbol in enumerate(table.symbols):
        if symbol.state not in _INTERRUPTS:
            continue
        homes = [
            i
            for i, other in enumerate(table.symbols)
            if other.state in RUNNING and other.role == symbol.role
        ]
        if homes:
            durations[:, homes[0]] += durations[:, column]
            durations[:, column] = 0
    return VectorTable(table.symbols, table.counts, np.asarray(durations), table.structure)


# ------------------------------------------------------------------ what exports need


def tables_of(path_sets: Sequence[PathSet]) -> list[VectorTable]:
    """Return the vectors of several sets, over one alphabet of states and threads."""
    from critpath.vectors.table import Coder, vectors_of  # noqa: PLC0415 - start-up time

    coder = Coder(path_sets, "thread")
    return [vectors_of(paths, coder) for paths in path_sets]
