"""How threads are related: who had the cpu, to the thread that waited for it; and where it is."""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from typing import Final

import numpy as np

from critpath.graph.critical_path import find_workers
from critpath.model import I64, Bool, Events, Kind, PathSet, ReplayedRecording, State, Workers
from critpath.model._lookup import Numbers, translate
from critpath.model.details import NO_DETAIL, Detail, DetailCoder, Kin
from critpath.model.vectors import name_family, number_codes

_KINDS: Final = tuple(Kin)
_TEXTS: Final = tuple(one.value for one in _KINDS)
_MOST_ANCESTORS: Final = 64  # technical: process ids that are used again may make a circle
_MOST_PAIRS: Final = 1 << 17  # technical: of processes that are kept with their ties, 4 MB


class Kinship:
    """Tells how threads are related, by what forks and the statedump say.

    What was found out of two processes is kept: paths of one recording ask again and again.
    """

    def __init__(self, replayed: ReplayedRecording) -> None:
        self._workers = replayed.workers
        workers, names = replayed.workers, replayed.events.strings
        process = _find_processes(workers, replayed.events)
        known = Numbers()
        place = known.add(workers.host, process)
        host, child, parent = replayed.parents.T
        child, parent = known.add(host, child), known.add(host, parent)
        # By process; -1 for none, and of none behind.
        self._parent = np.full(len(known) + 1, -1, np.int32)
        self._parent[child] = parent  # of two the last
        used, name_of = number_codes(workers.name.astype(np.int64))
        families = [name_family(names[name]) for name in used.tolist()]
        numbers = {family: number for number, family in enumerate(families)}
        family = np.array([numbers[one] for one in families], np.int64)[name_of]
        # By worker, that of none behind: the process's place, -1 for none; and the name's family.
        self._place = np.append(np.where(process > 0, place, -1), -1)
        self._family = np.append(family, -1)
        # By process, the family of the thread that leads it.
        leads = np.flatnonzero((workers.tid == process) & (workers.tid > 0))
        self._leader = np.full(len(known) + 1, -1, np.int64)
        self._leader[place[leads]] = family[leads]
        self._pairs = Numbers()
        self._ties: I64 = np.zeros(0, np.int64)  # by the number of a pair
        self._coder = DetailCoder(self._name)

    def relate_all(self, who: I64, waiter: I64, subject: I64) -> I64:
        """Return the places in `Kin` of what workers are to others that wait, on a third's paths.

        Parameters
        ----------
        who, waiter, subject : int64
            Workers; -1 where it is not known which.
        """
        one, other, first = (self._place[of] for of in (who, waiter, subject))
        alike = self._family[who] == self._family[waiter]
        place: I64 = _KIN[(32 * self._tie(one, other) + self._tie(one, first)) * 2 + alike]
        return place

    def _tie(self, one: I64, other: I64) -> I64:
        """Return what processes are to others, as sums of `_Tie`."""
        if len(self._pairs) > _MOST_PAIRS:
            self._pairs, self._ties = Numbers(), np.zeros(0, np.int64)
        places = self._pairs.add(one, other)
        if len(self._pairs) > len(self._ties):
            first, second = self._pairs.since(len(self._ties))
            self._ties = np.append(self._ties, self._find_ties(first, second))
        return self._ties[places]

    def _find_ties(self, one: I64, other: I64) -> I64:
        parent, leader = self._parent[one], self._leader
        workers = (parent >= 0) & (parent == self._parent[other])
        workers &= (leader[one] >= 0) & (leader[one] == leader[other])
        workers &= leader[one] == leader[parent]
        found = _Tie.BELOW * self._is_above(other, one) | _Tie.ABOVE * self._is_above(one, other)
        found |= _Tie.WORKERS * workers
        found = np.where(one == other, int(_Tie.SAME), found)
        return np.where((one < 0) | (other < 0), int(_Tie.UNKNOWN), found)

    def _is_above(self, one: I64, other: I64) -> Bool:
        """Tell which processes began others, or what did."""
        found, at = np.zeros(len(one), np.bool_), self._parent[other]
        for _ in range(_MOST_ANCESTORS):
            if not (at >= 0).any():
                break
            found |= (at == one) & (at >= 0)
            at = self._parent[at]
        return found

    def tell(self, path_set: PathSet) -> PathSet:
        """Return paths whose waits for a cpu name how its thread and the waiter are related.

        What else other threads do says what these are to the execution's own thread.
        """
        paths, of, workers = path_set.paths, path_set.executions, self._workers
        rows, who, path = find_others(path_set)
        if not len(rows):
            return path_set
        mine = paths.state[rows] == State.WAIT_CPU
        host, end = paths.host[rows], paths.end[rows]
        subject = find_workers(workers, of.host, of.tid, of.end)[path]
        waiter = subject.copy()
        waiter[mine] = find_workers(workers, host[mine], paths.tid[rows[mine]], end[mine])
        kin = self.relate_all(find_workers(workers, host, who, end), waiter, subject)
        said = np.zeros(len(paths.detail), np.int64)
        said[rows] = np.where(mine | _IS_NAMED[kin], kin, 0)
        detail, details = self._coder.recode(paths.detail, paths.details, said)
        return replace(path_set, paths=replace(paths, detail=detail, details=details))

    def _name(self, place: int, kin: int) -> Detail:
        of = self._coder.known[place]
        return of._replace(kin=_TEXTS[kin]) if kin else of


class _Tie(IntEnum):
    """What a process is to another: bits of a sum, a plain number as `_KIN` asks for 2,048."""

    UNKNOWN = 1  # one of them is
    SAME = 2
    BELOW = 4  # the other began it, or what did
    ABOVE = 8
    WORKERS = 16  # of one parent, all running one program


def _relate(other: int, first: int, *, alike: bool) -> Kin:
    """Return what a process's thread is to another's that waits, on the path of a third's.

    By its ties to both; ``alike`` says whether the names of the first two are.
    """
    if other & _Tie.UNKNOWN:
        return Kin.UNKNOWN
    if other & _Tie.SAME:
        return Kin.THREAD
    program = bool(first & (_Tie.SAME | _Tie.BELOW))
    if other & _Tie.BELOW:
        return Kin.CHILD
    if other & _Tie.ABOVE:
        return Kin.PARENT if program else Kin.STARTER
    if program:
        return Kin.PROGRAM
    if (other | first) & _Tie.WORKERS:
        return Kin.SIBLING
    return Kin.NAMESAKE if alike else Kin.STRANGER


# Places in `Kin`: by the tie to who waits, that to the path's own, whether names are alike.
_KIN: Final[I64] = np.array(
    [
        [[_KINDS.index(_relate(a, b, alike=c)) for c in (False, True)] for b in range(32)]
        for a in range(32)
    ],
    np.int64,
).ravel()


# Relations that are named for threads that are waited for; without one, a reader takes the
# thread for the waiting one itself, or for a stranger.
_NAMED: Final = frozenset({Kin.THREAD, Kin.CHILD, Kin.SIBLING, Kin.NAMESAKE})
_IS_NAMED: Final[Bool] = np.array([one in _NAMED for one in _KINDS], np.bool_)


def find_others(path_set: PathSet) -> tuple[I64, I64, I64]:
    """Return the segments that are on other threads, or waits for a cpu; whose; of which path.

    Of a wait it is who had the cpu.
    """
    paths, of = path_set.paths, path_set.executions
    many = np.diff(paths.start)
    path = np.repeat(np.arange(len(of)), many)
    waits = paths.state == State.WAIT_CPU
    peers = translate(paths.detail, np.array([each.peer_tid for each in paths.details], np.int64))
    # On another thread; whose it is is not asked where a request is joined from several threads'.
    theirs = ~waits & (
        (paths.tid != np.repeat(of.tid, many)) | (paths.host != np.repeat(of.host, many))
    )
    theirs &= paths.tid > 0
    rows = np.flatnonzero((waits & (peers >= 0)) | theirs)
    return rows, np.where(waits, peers, paths.tid)[rows], path[rows]


def _find_processes(workers: Workers, events: Events) -> I64:
    """Return the process of every thread, -1 where nothing tells."""
    process = workers.pid.copy()
    if all(one.kind != Kind.FORK for one in events.classes):
        return process
    # Workers that the kernel makes for a process, such as io_uring's, are threads of it, of
    # whose creation there is no event; all that others create has one.
    for worker in np.flatnonzero((process < 0) & (workers.parent >= 0)).tolist():
        process[worker] = process[workers.parent[worker]]
    return process


def tell_places(path_set: PathSet, replayed: ReplayedRecording) -> PathSet:
    """Return paths whose segments on other threads, and waits, say where these threads are.

    Nothing is said of who is where the execution's own thread is.
    """
    if not replayed.places:
        return path_set
    paths, of = path_set.paths, path_set.executions
    rows, who, path = find_others(path_set)
    if not len(rows):
        return path_set

    def find(host: I64, tid: I64, time: I64) -> list[str]:
        workers = find_workers(replayed.workers, host, tid, time)
        pid = np.append(replayed.workers.pid, -1)[workers]
        return replayed.places.list_all(host, np.where(pid > 0, pid, tid), time)

    own = find(of.host, of.tid, of.end)
    found = find(paths.host[rows], who, paths.end[rows])
    pairs = zip(found, path.tolist(), strict=True)
    told = [place if place != own[row] else "" for place, row in pairs]
    names = {"": 0}
    codes = np.array([names.setdefault(place, len(names)) for place in told], np.int64)
    if len(names) == 1:
        return path_set
    kinds, known = len(paths.details), [*names]
    said = paths.detail.astype(np.int64)
    said[rows] += kinds * codes
    used, at = number_codes(said)
    table = {NO_DETAIL: 0}
    new = [
        table.setdefault(
            paths.details[code % kinds]._replace(place=known[code // kinds]), len(table)
        )
        for code in used.tolist()
    ]
    detail = np.array(new, np.int32)[at]
    return replace(path_set, paths=replace(paths, detail=detail, details=tuple(table)))
