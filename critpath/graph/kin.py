"""How threads are related: who had the cpu, to the thread that waited for it; and where it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from critpath.graph.critical_path import find_workers
from critpath.model import I64, Events, Kind, PathSet, ReplayedRecording, State, Workers
from critpath.model.details import NO_DETAIL, Kin
from critpath.model.vectors import name_family, number_codes

Process = tuple[int, int]  # host, process id
_KINDS: Final = tuple(Kin)
_MOST_ANCESTORS: Final = 64  # technical: process ids that are used again may make a circle


class Kinship:
    """Tells how a thread is related to another, by what forks and the statedump say.

    Parameters
    ----------
    workers : Workers
    events : Events
        Their classes and strings.
    parents : mapping of (int, int) to (int, int)
        As `ReplayedRecording.parents`.
    """

    def __init__(
        self, workers: Workers, events: Events, parents: Mapping[Process, Process]
    ) -> None:
        self._parents = parents
        process = _find_processes(workers, events)
        each, place = np.unique(np.stack([workers.host, process]), axis=1, return_inverse=True)
        self._processes = [(host, pid) for host, pid in each.T.tolist()]
        names, name_of = np.unique(workers.name, return_inverse=True)
        families = [name_family(events.strings[name]) for name in names.tolist()]
        numbers = {family: number for number, family in enumerate(families)}
        family = np.array([numbers[one] for one in families], np.int64)[name_of]
        # By worker, that of none behind: the process's place, -1 for none; and the name's family.
        self._place = np.append(np.where(process > 0, place.ravel(), -1), -1)
        self._family = np.append(family, -1)
        leads = np.flatnonzero((workers.tid == process) & (workers.tid > 0)).tolist()
        self._leader = {self._processes[self._place[row]]: int(family[row]) for row in leads}

    def relate_all(self, who: I64, waiter: I64, subject: I64) -> I64:
        """Return the places in `Kin` of what workers are to others: see `relate`."""
        many = len(self._processes) + 1
        alike = self._family[who] == self._family[waiter]
        codes = alike.astype(np.int64)
        for workers in (who, waiter, subject):
            codes = codes * many + self._place[workers] + 1
        _, first, place = np.unique(codes, return_index=True, return_inverse=True)
        found = []
        for row in first.tolist():
            one, other, of = (self._process_of(int(of[row])) for of in (who, waiter, subject))
            found.append(self.relate(one, other, of, alike=bool(alike[row])))
        return np.array([_KINDS.index(one) for one in found], np.int64)[place]

    def relate(
        self, one: Process | None, other: Process | None, first: Process | None, *, alike: bool
    ) -> Kin:
        """Return what a process's thread is to another's that waits, on the path of a third's.

        ``alike`` says whether their names are.
        """
        if one is None or other is None:
            return Kin.UNKNOWN
        if one == other:
            return Kin.THREAD
        above = self._ancestors(one)
        program = first is not None and (one == first or first in above)
        if other in above:
            return Kin.CHILD
        if one in self._ancestors(other):
            return Kin.PARENT if program else Kin.STARTER
        if program:
            return Kin.PROGRAM
        if self._are_workers(one, other) or (first and self._are_workers(one, first)):
            return Kin.SIBLING
        return Kin.NAMESAKE if alike else Kin.STRANGER

    def _process_of(self, worker: int) -> Process | None:
        place = self._place[worker]
        return self._processes[place] if place >= 0 else None

    def _ancestors(self, process: Process) -> list[Process]:
        found: list[Process] = []
        while (parent := self._parents.get(process)) and len(found) < _MOST_ANCESTORS:
            found.append(parent)
            process = parent
        return found

    def _are_workers(self, one: Process, other: Process) -> bool:
        """Tell whether processes are of one parent, and run the program that it runs."""
        parent = self._parents.get(one)
        if parent is None or parent != self._parents.get(other):
            return False
        families = {self._leader.get(process) for process in (parent, one, other)}
        return len(families) == 1 and None not in families


# Relations that are named for threads that are waited for; without one, a reader takes the
# thread for the waiting one itself, or for a stranger.
_NAMED: Final = frozenset({Kin.THREAD, Kin.CHILD, Kin.SIBLING, Kin.NAMESAKE})


def find_others(path_set: PathSet) -> tuple[I64, I64, I64]:
    """Return the segments that are on other threads, or waits for a cpu; whose; of which path.

    Of a wait it is who had the cpu.
    """
    paths, of = path_set.paths, path_set.executions
    path = np.repeat(np.arange(len(of)), np.diff(paths.start))
    waits = paths.state == State.WAIT_CPU
    peers = np.array([each.peer_tid for each in paths.details], np.int64)[paths.detail]
    # On another thread; whose it is is not asked where a request is joined from several threads'.
    theirs = ~waits & ((paths.tid != of.tid[path]) | (paths.host != of.host[path]))
    theirs &= paths.tid > 0
    rows = np.flatnonzero((waits & (peers >= 0)) | theirs)
    return rows, np.where(waits, peers, paths.tid)[rows], path[rows]


def tell_kin(path_set: PathSet, replayed: ReplayedRecording) -> PathSet:
    """Return paths whose waits for a cpu say how whoever had it is related to the waiting thread.

    What else other threads do says what these are to the execution's own thread.
    """
    paths, of, workers = path_set.paths, path_set.executions, replayed.workers
    rows, who, path = find_others(path_set)
    if not len(rows):
        return path_set
    waits = paths.state == State.WAIT_CPU
    host, end = paths.host[rows], paths.end[rows]
    subject = find_workers(workers, of.host, of.tid, of.end)[path]
    waiter = subject.copy()
    mine = waits[rows]
    waiter[mine] = find_workers(workers, host[mine], paths.tid[rows][mine], end[mine])
    threads = find_workers(workers, host, who, end), waiter, subject
    kin = Kinship(workers, replayed.events, replayed.parents).relate_all(*threads)
    named = np.array([one in _NAMED for one in _KINDS], np.bool_)
    said, kinds = paths.detail.astype(np.int64), len(paths.details)
    said[rows] += kinds * np.where(waits[rows] | named[kin], kin, 0)

    used, place = number_codes(said)
    table = {NO_DETAIL: 0}
    codes = []
    for code in used.tolist():
        one, kin_of_it = paths.details[code % kinds], _KINDS[code // kinds].value
        known = one._replace(kin=kin_of_it) if kin_of_it else one
        codes.append(table.setdefault(known, len(table)))
    detail = np.array(codes, np.int32)[place]
    return replace(path_set, paths=replace(paths, detail=detail, details=tuple(table)))


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
