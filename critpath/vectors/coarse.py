"""Two sets in the same words, where only one was recorded with system calls."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from critpath.model import RUNNING, CriticalPaths, PathSet, State

_COARSE = {
    State.RUN_USER: State.RUN,
    State.RUN_SYSCALL: State.RUN,
    State.WAIT_FUTEX: State.WAIT_TASK,
    State.WAIT_POLL: State.WAIT_TASK,
    State.WAIT_PIPE: State.WAIT_TASK,
}


def with_like_states(normal: PathSet, sample: PathSet) -> tuple[PathSet, PathSet, tuple[str, ...]]:
    """Leave out what system calls tell where one of two sets was traced without them.

    Otherwise every running segment of one set would be a state that the other never
    had.

    Returns
    -------
    normal, sample : PathSet
    warnings : tuple of str
        Says so, if it was done.
    """
    traced = [_has_syscalls(path_set) for path_set in (normal, sample)]
    if traced[0] == traced[1]:
        return normal, sample, ()
    which = "sample" if traced[1] else "normal"
    note = f"only the {which} set was traced with system calls: they are left out of account"
    return without_syscalls(normal), without_syscalls(sample), (note,)


def _has_syscalls(path_set: PathSet) -> bool:
    told = [State.RUN_USER, State.RUN_SYSCALL]
    return any(bool(np.isin(paths.state, told).any()) for paths in path_set.paths.chunks())


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
    for column in (path, state, detail, paths.tid, paths.host, paths.cpu):
        new[1:] |= column[1:] != column[:-1]
    keep = np.flatnonzero(new)
    last = np.append(keep[1:], len(path)) - 1 if len(keep) else keep
    return replace(
        paths,
        start=np.searchsorted(path[keep], np.arange(len(paths) + 1)),
        begin=paths.begin[keep],
        end=paths.end[last],
        state=state[keep],
        detail=detail[keep],
        comm=paths.comm[keep],
        tid=paths.tid[keep],
        host=paths.host[keep],
        cpu=paths.cpu[keep],
        lossy=np.logical_or.reduceat(paths.lossy, keep) if len(keep) else paths.lossy,
    )
