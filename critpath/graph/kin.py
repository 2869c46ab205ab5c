"""How threads are related: who had the cpu, to the thread that waited for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from critpath.executions import hosts_of
from critpath.graph.critical_path import find_workers
from critpath.model import I64, Events, Kind, PathSet, State, Workers
from critpath.model.details import Detail, Kin, code_details
from critpath.model.vectors import name_family

Process = tuple[int, int]  # host, process id
_KINDS: Final = tuple(Kin)
_MOST_ANCESTORS: Final = 64  # technical: process ids that are used again may make a circle


class Kinship:
    """Tells how a thread is related to another, by what forks and the statedump say.

    Parameters
    ----------
    workers : Workers
    events : Events
        With forks, and with the threads that were there at the begin.
    """

    def __init__(self, workers: Workers, events: Events) -> None:
        self.workers, self._strings = workers, events.strings
        self._parents = dict(_read_parents(events))
        self._process = _find_processes(workers, events)
        leaders = np.flatnonzero((workers.tid == self._process) & (workers.tid > 0))
        self._names = {
            (host, tid): name
            for host, tid, name in zip(
                workers.host[leaders].tolist(),
                workers.tid[leaders].tolist(),
                workers.name[leaders].tolist(),
                strict=True,
            )
        }

    def relate(self, who: int, waiter: int, subject: int) -> Kin:
        """Return what a thread is to one that waits, on the path of an execution's thread."""
        one, other, first = (self._process_of(worker) for worker in (who, waiter, subject))
        if one is None or other is None:
            return Kin.UNKNOWN
        if one == other:
            return Kin.THREAD
        program = first is not None and (one == first or first in self._ancestors(one))
        if other in self._ancestors(one):
            return Kin.CHILD
        if one in self._ancestors(other):
            return Kin.PARENT if program else Kin.STARTER
        if program:
            return Kin.PROGRAM
        if self._are_workers(one, other) or (first and self._are_workers(one, first)):
            return Kin.SIBLING
        names = [self._strings[self.workers.name[worker]] for worker in (who, waiter)]
        return Kin.NAMESAKE if name_family(names[0]) == name_family(names[1]) else Kin.STRANGER

    def _process_of(self, worker: int) -> Process | None:
        if worker < 0 or self._process[worker] <= 0:
            return None
        return int(self.workers.host[worker]), int(self._process[worker])

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
        names = [self._names.get(process) for process in (parent, one, other)]
        family = {name_family(self._strings[name]) for name in names if name is not None}
        return None not in names and len(family) == 1


def tell_kin(path_set: PathSet, workers: Workers, events: Events) -> PathSet:
    """Return paths whose waits for a cpu say what whoever had it is to the one that waited."""
    paths, of = path_set.paths, path_set.executions
    rows = np.flatnonzero(paths.state == State.WAIT_CPU)
    peers = np.array([each.peer_tid for each in paths.details], np.int64)[paths.detail[rows]]
    rows, peers = rows[peers >= 0], peers[peers >= 0]
    if not len(rows):
        return path_set
    kinship = Kinship(workers, events)
    subject = find_workers(workers, of.host, of.tid, of.end)
    threads = [
        *(
            find_workers(workers, paths.host[rows], tid, paths.end[rows])
            for tid in (peers, paths.tid[rows])
        ),
        subject[np.searchsorted(paths.start, rows, side="right") - 1],
    ]
    each, place = np.unique(np.stack(threads), axis=1, return_inverse=True)
    kin = np.array([_KINDS.index(kinship.relate(*three)) for three in each.T.tolist()], np.int64)
    said, many = paths.detail.astype(np.int64), len(paths.details)
    said[rows] += many * kin[place.ravel()]

    def find(_state: State, code: int) -> Detail:
        return paths.details[code % many]._replace(kin=_KINDS[code // many].value)

    detail, details = code_details(paths.state, said, find)
    return replace(path_set, paths=replace(paths, detail=detail, details=details))


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


def _read_parents(events: Events) -> Iterator[tuple[Process, Process]]:
    """Yield processes with those that began them."""
    for kind, child, process, parent in (
        (Kind.STATEDUMP, "tid", "pid", "ppid"),
        (Kind.FORK, "child_tid", "child_pid", "parent_pid"),
    ):
        wanted = [i for i, one in enumerate(events.classes) if one.kind == kind]
        rows = np.flatnonzero(np.isin(events.event_class, wanted))
        tid, mine, whose = (events.column(rows, name) for name in (child, process, parent))
        leads = np.flatnonzero((tid == mine) & (whose > 0) & (mine > 0))
        host = hosts_of(events, rows[leads]).tolist()
        yield from zip(
            zip(host, mine[leads].tolist(), strict=True),
            zip(host, whose[leads].tolist(), strict=True),
            strict=True,
        )
