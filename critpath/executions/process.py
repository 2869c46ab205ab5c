"""Executions that are processes: from their exec to their exit."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from critpath.executions.fields import field_texts
from critpath.executions.matching import build
from critpath.executions.membership import Where, belong, known_places
from critpath.executions.scheduling import Owners, Scheduling, hosts_of, rows_of_kind
from critpath.model import Bool, Events, Executions, Kind
from critpath.units import plural

COMM_LENGTH = 15  # characters the kernel keeps of a thread's name


@dataclass
class _Lives:
    """Executions found so far, and those that run: begin, first and last program."""

    begin: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    thread: list[tuple[int, int]] = field(default_factory=list)
    first: list[str] = field(default_factory=list)
    last: list[str] = field(default_factory=list)
    running: dict[tuple[int, int], tuple[int, str, str]] = field(default_factory=dict)
    again: int = 0
    replaced: int = 0
    strange: int = 0
    elsewhere: int = 0

    def keep(self, chosen: Bool) -> None:
        """Forget the executions that are not chosen."""
        self.elsewhere += int((~chosen).sum())
        mine = np.flatnonzero(chosen).tolist()
        self.begin = [self.begin[i] for i in mine]
        self.end = [self.end[i] for i in mine]
        self.thread = [self.thread[i] for i in mine]
        self.first = [self.first[i] for i in mine]
        self.last = [self.last[i] for i in mine]


def find_processes(events: Events, where: Where | None = None) -> Executions:
    """Find every process that both executed a program and exited in the recording.

    An execution begins at the first exec after the thread was created and ends
    with the exit of the same thread.  An exec always leaves its thread as the
    leader of its group, so threads that never exec are not processes; other
    threads of the group may outlive the leader, which is not waited for.  A later
    exec in the same process (``sh -c command``, ``env command``) ends nothing; the
    label is the name of the last program, the one that did the work.

    Parameters
    ----------
    events : Events
        EXEC with ``tid`` and ``filename``, EXIT with ``tid``, FORK with ``child_tid``.
    where : Where, optional
        Only processes of this namespace, control group or name (of their first or
        last program).
    """
    lives = _replay(events)
    unknown = _choose(events, lives, where) if where else 0
    rows = np.array(lives.begin, np.int64), np.array(lives.end, np.int64)
    threads = np.array(lives.thread, np.int64).reshape(-1, 2)
    counts = (
        (lives.elsewhere, "process", "not of those asked for"),
        (unknown, "process", "of which the trace does not tell the namespace or group"),
        (len(lives.running), "execution", "still running at the end of the recording"),
        (lives.replaced, "execution", "without an exit: the thread id was used again"),
        (lives.again, "later exec", "in a running execution, which goes on"),
        (lives.strange, "exit", "of threads that executed no program in the recording"),
    )
    return build(
        events,
        Scheduling(events),
        rows,
        Owners(threads[:, 0], threads[:, 1], ()),
        [None] * len(lives.begin),
        [program_name(name) for name in lives.last],
        incomplete=len(lives.running) + lives.replaced,
        notes=(
            *(known_places(events, where) if where and not lives.begin else ()),
            *(f"{plural(n, noun)} {why}" for n, noun, why in counts if n),
        ),
        # The exec renames the thread, as every switch after it shows.
        forward=True,
        names=[program_name(name)[:COMM_LENGTH] for name in lives.first],
    )


def _choose(events: Events, lives: _Lives, where: Where) -> int:
    """Keep the processes that are meant; return how many are in an unknown place."""
    if where.comm:
        programs = zip(lives.first, lives.last, strict=True)
        named = [_named(where.comm, first) or _named(where.comm, last) for first, last in programs]
        lives.keep(np.array(named, np.bool_))
    threads = np.array(lives.thread, np.int64).reshape(-1, 2)
    inside, unknown = belong(
        events, where, threads[:, 0], threads[:, 1], np.array(lives.end, np.int64)
    )
    lives.keep(inside)
    return unknown


def _named(name: str, program: str) -> bool:
    return program_name(program)[:COMM_LENGTH] == name[:COMM_LENGTH]


def program_name(path: str) -> str:
    """Return the last component of a program's path."""
    return path.rstrip("/").rpartition("/")[2]


def _replay(events: Events) -> _Lives:
    """Follow the creations, execs and exits of all threads; they are few."""
    parts = []
    for kind, name in (
        (Kind.FORK, "child_tid"),
        (Kind.WAKEUP_NEW, "tid"),
        (Kind.EXEC, "tid"),
        (Kind.EXIT, "tid"),
    ):
        rows = rows_of_kind(events, kind)
        what = np.full(len(rows), int(kind), np.int64)
        parts.append(np.stack([rows, what, hosts_of(events, rows), events.column(rows, name)]))
    table = np.concatenate(parts, axis=1)
    table = table[:, np.argsort(table[0], kind="stable")]
    execs = rows_of_kind(events, Kind.EXEC)
    programs = dict(zip(execs.tolist(), field_texts(events, execs, "filename"), strict=True))

    lives = _Lives()
    for row, what, host, tid in table.T.tolist():
        thread = (host, tid)
        if what == Kind.EXEC:
            program = programs[row] or ""
            if thread in lives.running:
                lives.again += 1
                begin, first, _ = lives.running[thread]
                lives.running[thread] = (begin, first, program)
            else:
                lives.running[thread] = (row, program, program)
        elif what == Kind.EXIT and thread in lives.running:
            begin, first, last = lives.running.pop(thread)
            lives.begin.append(begin)
            lives.end.append(row)
            lives.thread.append(thread)
            lives.first.append(first)
            lives.last.append(last)
        elif what == Kind.EXIT:
            lives.strange += 1
        else:
            lives.replaced += lives.running.pop(thread, None) is not None
    return lives
