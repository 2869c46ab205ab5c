"""Executions that are runs of a recorded command."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from critpath.executions.fields import field_texts
from critpath.executions.matching import build
from critpath.executions.process import program_name
from critpath.executions.scheduling import Owners, Scheduling, rows_of_kind
from critpath.model import I64, Events, Executions, Kind, Run
from critpath.units import plural


def find_runs(events: Events, runs: Sequence[Run]) -> Executions:
    """Find the runs that a recorder started: from the exec of the command to its exit.

    What the command forks belongs to its run and is no execution of its own; where the
    command waits for it, the path goes through it.  What outlives the command lies after
    the execution's end.  Runs have no label: all are of one command, and the program of
    a sample may have another name than that of the normal set.

    Parameters
    ----------
    events : Events
        EXEC with ``tid`` and ``filename``, EXIT with ``tid``.
    runs : sequence of Run
        From the recording's manifest; each one's window tells its events from those of
        another process with the same pid.

    Returns
    -------
    Executions
        Runs without an exec or an exit in the trace, and those that did not end by
        themselves, are counted as incomplete.
    """
    execs, exits = _of_thread(events, Kind.EXEC), _of_thread(events, Kind.EXIT)
    begins, ends, pids = [], [], []
    whole = [run for run in runs if run.whole]
    for run in whole:
        begin = _first(events, execs.get(run.pid), run.begin, run.end)
        end = _last(events, exits.get(run.pid), run.begin, run.end)
        if begin is not None and end is not None and begin < end:
            begins.append(begin)
            ends.append(end)
            pids.append(run.pid)
    rows = np.array(begins, np.int64), np.array(ends, np.int64)
    counts = (
        (len(whole) - len(begins), "of the command without its exec or exit in the trace"),
        (len(runs) - len(whole), "ended by the timeout or by whoever ended the recording"),
    )
    return build(
        events,
        Scheduling(events),
        rows,
        Owners(np.zeros(len(begins), np.int64), np.array(pids, np.int64), ()),
        [None] * len(begins),
        [""] * len(begins),
        incomplete=len(runs) - len(begins),
        notes=tuple(f"{plural(count, 'run')} {why}" for count, why in counts if count),
        forward=True,
        names=[program_name(name or "") for name in field_texts(events, rows[0], "filename")],
    )


def within_runs(executions: Executions, runs: Sequence[Run]) -> Executions:
    """Keep the executions that begin while a run goes on.

    Parameters
    ----------
    executions : Executions
    runs : sequence of Run
        One after the other.
    """
    ordered = sorted(runs, key=lambda run: run.begin)
    begins = np.array([run.begin for run in ordered], np.int64)
    ends = np.array([run.end for run in ordered], np.int64)
    run = np.searchsorted(begins, executions.begin, "right") - 1
    inside = run >= 0
    inside[inside] = executions.begin[inside] <= ends[run[inside]]
    others = int((~inside).sum())
    if not others:
        return executions
    rows = np.flatnonzero(inside)

    def kept(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(texts[i] for i in rows.tolist())

    return Executions(
        id=kept(executions.id),
        begin=executions.begin[rows],
        end=executions.end[rows],
        tid=executions.tid[rows],
        host=executions.host[rows],
        comm=kept(executions.comm),
        label=kept(executions.label),
        incomplete=executions.incomplete,
        notes=(*executions.notes, f"{plural(others, 'execution')} outside the recording's runs"),
    )


def _of_thread(events: Events, kind: Kind) -> dict[int, I64]:
    """Return the rows of a kind by the thread that they are about."""
    rows = rows_of_kind(events, kind)
    tid = events.column(rows, "tid")
    order = np.argsort(tid, kind="stable")
    threads, start = np.unique(tid[order], return_index=True)
    parts = np.split(rows[order], start[1:])
    return dict(zip(threads.tolist(), parts, strict=False))


def _last(events: Events, rows: I64 | None, begin: int, end: int) -> int | None:
    """Return the last of some rows that lies in a window.

    Of a command's exits: where another thread than the first calls exec, the first one's
    exit comes before it, and the pid is the other's from then on.
    """
    if rows is None:
        return None
    at = int(np.searchsorted(events.timestamp[rows], end, "right")) - 1
    found = at >= 0 and events.timestamp[rows[at]] >= begin
    return int(rows[at]) if found else None


def _first(events: Events, rows: I64 | None, begin: int, end: int) -> int | None:
    """Return the first of some rows that lies in a window."""
    if rows is None:
        return None
    at = int(np.searchsorted(events.timestamp[rows], begin))
    found = at < len(rows) and events.timestamp[rows[at]] <= end
    return int(rows[at]) if found else None
