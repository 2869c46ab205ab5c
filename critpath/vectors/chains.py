"""Critical paths -> time by whom executions wait for, and whom these wait for in turn."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain as each_of
from itertools import pairwise
from typing import Final

import numpy as np

from critpath.documents import HostWaitEntry
from critpath.model import I64, RUNNING, Bool, ChainTimes, PathSet, State, number_codes, role_name
from critpath.model.paths import find_crossings
from critpath.model.stacks import Stack, own_functions
from critpath.model.vectors import InCode, Part
from critpath.schema.parameters.ab import PLACES
from critpath.schema.parameters.localize import WAITS
from critpath.vectors._count import follow_chains
from critpath.vectors.table import Coder

# technical: chains told apart; what is beyond counts as the thread that waits for it
_MOST: Final = 512

_MOST_PLACES: Final = 20_000  # technical: chains of threads and functions
_DEEP: Final = 8  # technical: functions of a stack that are shown
_INTERRUPTED: Final = [int(s) for s in (State.IRQ, State.SOFTIRQ, State.UNKNOWN)]
# States that pictures do not tell apart, as the one that stands for them.
_LIKE: Final[dict[State, State]] = {
    **dict.fromkeys(RUNNING, State.RUN),
    **dict.fromkeys((State.SOFTIRQ, State.WAIT_SOFTIRQ, State.WAIT_IPI), State.IRQ),
    State.WAIT_DEVICE: State.WAIT_DISK,
    State.NET_TRANSIT: State.WAIT_NET,
    **dict.fromkeys((State.WAIT_FUTEX, State.WAIT_PIPE, State.WAIT_POLL), State.WAIT_TASK),
    State.WAIT_UNEXPLAINED: State.UNKNOWN,
    State.NOT_RECORDED: State.UNKNOWN,
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
        idle = np.array([of.idle for of in paths.details])[paths.detail]
        # A cpu that stands idle for long is one that a quota forbids.
        held = (paths.state == State.WAIT_CPU) & idle & (paths.duration >= WAITS.late)
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

    def name_those(self, chain: int, which: Bool) -> tuple[str, ...]:
        """Return the roles of a chain, without those of some chains that it goes on from."""
        result: list[str] = []
        while chain:
            above = int(self.above[chain])
            if which[chain]:
                name = self.roles[int(np.flatnonzero(self._below[above] == chain)[0])]
                result += [] if result and result[-1] == name else [name]
            chain = above
        return tuple(reversed(result))


class _Places:
    """Chains of threads and of places in the code, as they are found: a number for each.

    What a thread waits for stands below where it does so.
    """

    def __init__(self, chains: _Chains) -> None:
        self._chains = chains
        self._known: dict[tuple[int, Part], int] = {}
        self.above: list[int] = [0]
        self.names: list[Part] = [""]

    def of(self, part: PathSet) -> I64:
        """Return the column of every segment: its place times 32, and the state."""
        paths, columns = part.paths, self._chains.of(part)
        chain, state = columns // 32, columns % 32
        stack = np.where(paths.stack >= 0, paths.stack, len(paths.stacks))
        first, place = paths.start[paths.path], np.zeros(len(chain), np.int64)
        frames = {len(paths.stacks): tuple[InCode, ...]()}
        numbers = np.arange(len(chain))
        for number in np.unique(chain).tolist():  # the one above has the lower number
            mine = np.flatnonzero(chain == number)
            roles = self._chains.name(number)
            base = np.zeros(len(mine), np.int64)
            if number:
                waits = chain == self._chains.above[number]
                last = np.maximum.accumulate(np.where(waits, numbers, -1))[mine]
                base = np.where(last >= first[mine], place[last], -1)
            pairs, where = np.unique(np.stack([base, stack[mine]]), axis=1, return_inverse=True)
            found = []
            for below, code in pairs.T.tolist():
                if code not in frames:
                    frames[code] = own_frames(paths.stacks[code])
                names = (roles[-1:] if below >= 0 else roles) + frames[code]
                found.append(self._descend(max(below, 0), names))
            place[mine] = np.array(found, np.int64)[where.reshape(-1)]
        return np.asarray(place * 32 + state, np.int64)

    def _descend(self, at: int, names: Sequence[Part]) -> int:
        for name in names:
            if (at, name) not in self._known:
                if len(self.above) >= _MOST_PLACES:
                    break
                self._known[at, name] = len(self.above)
                self.above.append(at)
                self.names.append(name)
            at = self._known[at, name]
        return at

    def name(self, place: int) -> tuple[Part, ...]:
        """Return threads and functions, from the outermost."""
        result: list[Part] = []
        while place:
            result.append(self.names[place])
            place = self.above[place]
        return tuple(reversed(result))

    def large(self, times: Mapping[int, int]) -> list[int]:
        """Return for every place what stands for it: itself, or the one above that is large."""
        sums = [0] * len(self.above)
        for column, time in times.items():
            sums[column // 32] += time
        for place in range(len(sums) - 1, 0, -1):
            sums[self.above[place]] += sums[place]
        stands = [0] * len(sums)
        for place in range(1, len(sums)):
            large = sums[place] >= PLACES.least * sums[0]
            stands[place] = place if large else stands[self.above[place]]
        return stands


def own_frames(stack: Stack) -> tuple[InCode, ...]:
    """Return the program's own functions of a stack as parts of a chain, the outermost first."""
    names = own_functions(stack)
    found = [name for name, inner in pairwise([*reversed(names), ""]) if name != inner]
    kept = found if len(found) <= _DEEP else [*found[: _DEEP - 3], *found[-3:]]
    return tuple(map(InCode, kept))


def chain_times(normal: PathSet, sample: PathSet, coder: Coder | None = None) -> ChainTimes:
    """Add up what executions do, by the chain of threads that were waited for.

    Parameters
    ----------
    normal, sample : PathSet
        Read chunk by chunk.
    coder : Coder or None
        Of these sets, by thread; None to make one.

    Returns
    -------
    ChainTimes
    """
    chains = _Chains(coder or Coder((normal, sample), "thread"))
    # Of one set alone every function would be new.
    coded = all(
        any(about.stacks is not None for about in one.environment) for one in (normal, sample)
    )
    places = _Places(chains) if coded else None
    of = places.of if places else chains.of
    found = [[_add_up(part, of) for part in one.chunks()] for one in (normal, sample)]
    stands: Mapping[int, int] = {}
    if places is not None:
        times = Counter[int]()
        for columns, table in each_of(*found):
            times.update(dict(zip(columns, table.sum(axis=0).tolist(), strict=True)))
        large = places.large(times)
        stands = {key: 32 * large[key // 32] + key % 32 for key in times}
    keys = sorted({stands.get(key, key) for columns, _ in each_of(*found) for key in columns})
    place = {key: i for i, key in enumerate(keys)}
    tables = []
    for parts in found:
        rows = [np.zeros((0, len(keys)), np.int64)]
        for columns, times_of in parts:
            table = np.zeros((len(times_of), len(keys)), np.int64)
            for column, key in enumerate(columns):
                table[:, place[stands.get(key, key)]] += times_of[:, column]
            rows.append(table)
        tables.append(np.concatenate(rows))
    names: list[tuple[Part, ...]]
    if places is None:
        names = [chains.name(number) for number in range(chains.known)]
    else:
        kept_places = sorted({0, *large})
        number_of = {old: new for new, old in enumerate(kept_places)}
        names = [places.name(number) for number in kept_places]
        keys = [32 * number_of[key // 32] + key % 32 for key in keys]
    return ChainTimes(
        chains=tuple(names),
        leaves=tuple((key // 32, State(key % 32)) for key in keys),
        normal=tables[0],
        sample=tables[1],
    )


def _add_up(part: PathSet, of: Callable[[PathSet], I64]) -> tuple[list[int], I64]:
    """Return the columns that some executions have, and their time in each."""
    paths = part.paths
    columns, where = number_codes(of(part))
    size = max(len(columns), 1)
    cells = np.bincount(
        paths.path * size + where, weights=paths.duration, minlength=len(paths) * size
    )
    table = np.asarray(np.rint(cells), np.int64).reshape(len(paths), size)
    return columns.tolist(), table[:, : len(columns)]


# Of several hosts: who waited for whom.


def sum_waits(normal: PathSet, sample: PathSet) -> tuple[HostWaitEntry, ...]:
    """Add up how long who waited for whom, on which host; nothing of one host.

    What is waited for counts with whatever it waits for itself, and with the way there and back.

    Parameters
    ----------
    normal, sample : PathSet
        Read chunk by chunk.

    Returns
    -------
    tuple of HostWaitEntry
        Those that took most time first, without those of less than a thousandth of the longest.
    """
    sets = normal, sample
    if not any((part.paths.host > 0).any() for one in sets for part in one.chunks()):
        return ()
    chains = _Chains(Coder(sets, "thread"))
    sums: dict[tuple[str, str], list[_WaitSum]] = {}
    for side, one in enumerate(sets):
        for part in one.chunks():
            for pair, path, ns, kind in _find_waits(part, chains):
                sums.setdefault(pair, [_WaitSum(), _WaitSum()])[side].add(path, ns, kind)
    sizes = [max(len(one), 1) for one in sets]

    def row(pair: tuple[str, str], both: list[_WaitSum]) -> HostWaitEntry:
        before, after = both
        return HostWaitEntry(
            *pair,
            requests=[before.executions, after.executions],
            mean=[before.time[0] / sizes[0], after.time[0] / sizes[1]],
            transit=[before.time[1] / sizes[0], after.time[1] / sizes[1]],
            queued=[before.time[2] / sizes[0], after.time[2] / sizes[1]],
        )

    rows = [row(pair, both) for pair, both in sums.items()]
    least = PLACES.least_wait * max((max(one.mean) for one in rows), default=0.0)
    rows = [one for one in rows if max(one.mean) >= least]
    return tuple(sorted(rows, key=lambda one: (-max(one.mean), one.who, one.whom)))


class _WaitSum:
    """Executions, and their time: all of it, in flight, behind other requests."""

    def __init__(self) -> None:
        self.executions = 0
        self.time = [0, 0, 0]

    def add(self, path: I64, ns: I64, kind: int) -> None:
        """Add some segments of one chunk's paths: of kind 0 all are."""
        self.time[kind] += int(ns.sum())
        self.executions += 0 if kind else len(np.unique(path))


def _find_waits(part: PathSet, chains: _Chains) -> Iterator[tuple[tuple[str, str], I64, I64, int]]:
    """Yield of each pair the path and time of its segments: all, in flight, queued."""
    paths = part.paths
    chain, path, ns = chains.of(part) // 32, paths.path, paths.duration
    hosts = part.hosts
    own = np.array([role_name(name, hosts=hosts) for name in part.executions.comm] or [""], object)
    flies = paths.state == State.NET_TRANSIT
    _, other = find_crossings(paths.start, paths.host, paths.state)
    # In flight, a wait is for who is at the other end; for what was not recorded, its address.
    last = np.array([(chains.name(number) or ("",))[-1] for number in range(chains.known)], object)
    told = np.where(chain > 0, last[chain], own[path])
    there = np.append(told[1:], "")
    back = np.append(True, path[1:] != path[:-1]) | (np.append(-1, paths.host[:-1]) != other)
    whom = np.where(back, there, np.append("", told[:-1]))
    unseen = flies & (other == paths.host)
    addresses = np.array([of.device for of in paths.details], object)
    whom[unseen] = addresses[paths.detail[unseen]]
    pair_of: defaultdict[tuple[str, str], list[I64]] = defaultdict(list)
    # Whoever is only interrupted, by a packet for another, is not waited for.
    works = ~np.isin(paths.state, _INTERRUPTED) & ~flies
    worked = np.bincount(chain[works], minlength=chains.known) > 0
    for number in np.unique(chain[chain > 0]).tolist():
        rows = np.flatnonzero((chain == number) & ~flies)
        names = chains.name_those(number, worked)
        for at, name in enumerate(names):
            if at:
                pair_of[names[at - 1], name].append(rows)
            else:
                for first in np.unique(own[path[rows]].astype(str)).tolist():
                    pair_of[first, name].append(rows[own[path[rows]] == first])
    on_way: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for at in np.flatnonzero(flies).tolist():
        on_way[str(told[at]), str(whom[at])].append(at)
    for pair in {**pair_of, **on_way}:
        if pair[0] == pair[1]:
            continue
        way = np.array(on_way.get(pair, []), np.int64)
        rows = np.unique(np.concatenate([way, *pair_of.get(pair, [])]))
        yield pair, path[rows], ns[rows], 0
        yield pair, path[way], ns[way], 1
        late = rows[(paths.state[rows] == State.QUEUED) & (told[rows] == pair[1])]
        yield pair, path[late], ns[late], 2
