"""Executions that are processes, runs of a recorded command, or threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from msgspec import Struct, field

from critpath.executions.events import build_executions
from critpath.executions.fields import field_texts
from critpath.executions.membership import ThreadFilter, describe_known_places
from critpath.executions.scheduling import Owners, Scheduling, rows_of_kind
from critpath.model import I64, Bool, Events, Executions, Kind, Run, Script
from critpath.model.recording import is_interpreter
from critpath.units import plural

COMM_LENGTH = 15  # technical: characters the kernel keeps of a thread's name


class _Lives(Struct):
    """Executions found so far, and those running: begin, first and last program, its exec."""

    begin: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    thread: list[tuple[int, int]] = field(default_factory=list)
    first: list[str] = field(default_factory=list)
    last: list[str] = field(default_factory=list)
    last_row: list[int] = field(default_factory=list)
    running: dict[tuple[int, int], tuple[int, str, str, int]] = field(default_factory=dict)
    again: int = 0
    replaced: int = 0
    strange: int = 0

    def keep(self, chosen: Bool) -> None:
        """Drop the executions that are not chosen."""
        mine = np.flatnonzero(chosen).tolist()
        self.begin = [self.begin[i] for i in mine]
        self.end = [self.end[i] for i in mine]
        self.thread = [self.thread[i] for i in mine]
        self.first = [self.first[i] for i in mine]
        self.last = [self.last[i] for i in mine]
        self.last_row = [self.last_row[i] for i in mine]


def find_processes(
    events: Events, where: ThreadFilter | None = None, scripts: Sequence[Script] = ()
) -> Executions:
    """Find every process that both executed a program and exited in the recording.

    An execution begins at the first exec after the thread was created and ends with the exit
    of the same thread.  An exec always leaves its thread as the leader of its group, so
    threads that never exec are not processes; other threads of the group may outlive the
    leader.  A later exec in the same process (``sh -c command``, ``env command``) ends
    nothing; the label is the name of the last program, the one that did the work, and what
    it ran where it is an interpreter of which `scripts` tell.  Where they tell of others of
    its kind and not of it, it is like none of them and left out.
    """
    lives = _follow_processes(events)
    found = len(lives.begin)
    ran = _find_scripts(events, scripts)
    known_programs = {label.partition(" ")[0] for label in ran.values()}
    unknown = _filter_processes(events, lives, where, ran) if where else 0
    elsewhere = found - len(lives.begin)
    known = [
        row in ran or program_name(name) not in known_programs
        for row, name in zip(lives.last_row, lives.last, strict=True)
    ]
    lives.keep(np.array(known, np.bool_))
    rows = np.array(lives.begin, np.int64), np.array(lives.end, np.int64)
    threads = np.array(lives.thread, np.int64).reshape(-1, 2)
    counts = (
        (elsewhere, "process", "not of those asked for"),
        (known.count(False), "process", "left out: what the interpreter ran could not be read"),
        (unknown, "process", "of which the trace does not tell the namespace or group"),
        (len(lives.running), "execution", "still running at the end of the recording"),
        (lives.replaced, "execution", "without an exit: the thread id was used again"),
        (lives.again, "later exec", "in a run that goes on"),
        (lives.strange, "exit", "of threads that executed no program in the recording"),
    )
    return build_executions(
        events,
        Scheduling(events),
        rows,
        Owners(threads[:, 0], threads[:, 1], ()),
        [None] * len(lives.begin),
        [
            ran.get(row, program_name(name))
            for row, name in zip(lives.last_row, lives.last, strict=True)
        ],
        incomplete=len(lives.running) + lives.replaced + known.count(False),
        notes=(
            *(describe_known_places(events, where) if where and not lives.begin else ()),
            *(f"{plural(n, noun)} {why}" for n, noun, why in counts if n),
        ),
        # The exec renames the thread, as every switch after it shows.
        forward=True,
        names=[program_name(name)[:COMM_LENGTH] for name in lives.first],
    )


def _find_scripts(events: Events, scripts: Sequence[Script]) -> dict[int, str]:
    """Return the labels of execs of interpreters whose arguments were read before the next exec."""
    rows = _rows_by_thread(events, Kind.EXEC) if scripts else {}
    found = {}
    for script in scripts:
        mine = rows.get(script.pid, np.zeros(0, np.int64))
        times = events.timestamp[mine]
        at = int(np.searchsorted(times, script.begin, "right")) - 1
        if at >= 0 and (at + 1 == len(mine) or times[at + 1] > script.read):
            found[int(mine[at])] = script.name
    paths = field_texts(events, np.array([*found], np.int64), "filename")
    return {
        row: f"{program} {name or '-'}"
        for (row, name), path in zip(found.items(), paths, strict=True)
        # A script that is executed itself is called by its name already.
        if is_interpreter(program := program_name(path or "")) and name != program
    }


def _filter_processes(
    events: Events, lives: _Lives, where: ThreadFilter, ran: Mapping[int, str]
) -> int:
    """Drop the processes that do not match; return how many are in an unknown place."""
    if where.comm:
        programs = zip(lives.first, lives.last, lives.last_row, strict=True)
        named = [
            _is_named(where.comm, first)
            or _is_named(where.comm, last)
            or ran.get(row) == where.comm
            for first, last, row in programs
        ]
        lives.keep(np.array(named, np.bool_))
    threads = np.array(lives.thread, np.int64).reshape(-1, 2)
    inside, unknown = where.match(
        events, threads[:, 0], threads[:, 1], np.array(lives.end, np.int64)
    )
    lives.keep(inside)
    return unknown


def _is_named(name: str, program: str) -> bool:
    return program_name(program)[:COMM_LENGTH] == name[:COMM_LENGTH]


def program_name(path: str) -> str:
    """Return the last component of a program's path."""
    return path.rstrip("/").rpartition("/")[2]


def _follow_processes(events: Events) -> _Lives:
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
        parts.append(np.stack([rows, what, events.hosts_of(rows), events.column(rows, name)]))
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
                begin, first, _, _ = lives.running[thread]
                lives.running[thread] = (begin, first, program, row)
            else:
                lives.running[thread] = (row, program, program, row)
        elif what == Kind.EXIT and thread in lives.running:
            begin, first, last, last_row = lives.running.pop(thread)
            lives.begin.append(begin)
            lives.end.append(row)
            lives.thread.append(thread)
            lives.first.append(first)
            lives.last.append(last)
            lives.last_row.append(last_row)
        elif what == Kind.EXIT:
            lives.strange += 1
        else:
            lives.replaced += lives.running.pop(thread, None) is not None
    return lives


# Runs of a recorded command.


def find_command_runs(events: Events, runs: Sequence[Run]) -> Executions:
    """Find the runs that a recorder started: from the exec of the command to its exit.

    What the command forks belongs to its run; where the command waits for it, the path goes
    through it.  Runs have no label: all are of one command, and the program of a sample may
    have another name than that of the normal set.
    """
    execs, exits = _rows_by_thread(events, Kind.EXEC), _rows_by_thread(events, Kind.EXIT)
    begins, ends, pids = [], [], []
    whole = [run for run in runs if run.whole]
    for run in whole:
        begin = _first_within(events, execs.get(run.pid), run.begin, run.end)
        end = _last_within(events, exits.get(run.pid), run.begin, run.end)
        if begin is not None and end is not None and begin < end:
            begins.append(begin)
            ends.append(end)
            pids.append(run.pid)
    rows = np.array(begins, np.int64), np.array(ends, np.int64)
    counts = (
        (len(whole) - len(begins), "of the command without its exec or exit in the trace"),
        (len(runs) - len(whole), "ended by the timeout or by whoever ended the recording"),
    )
    return build_executions(
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


def select_within_runs(
    executions: Executions, runs: Sequence[Run], *, interleaved: bool
) -> Executions:
    """Keep the executions that begin during one of the runs, which do not overlap.

    What an interleaved trace has besides is not left out: it is the other recording's.
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
    notes = (
        () if interleaved and runs else (f"{plural(others, 'run')} outside the recording's runs",)
    )
    return replace(executions.take(rows), notes=(*executions.notes, *notes))


def _rows_by_thread(events: Events, kind: Kind) -> dict[int, I64]:
    """Return the rows of a kind by the thread they concern."""
    rows = rows_of_kind(events, kind)
    tid = events.column(rows, "tid")
    order = np.argsort(tid, kind="stable")
    threads, start = np.unique(tid[order], return_index=True)
    parts = np.split(rows[order], start[1:])
    return dict(zip(threads.tolist(), parts, strict=False))


def _last_within(events: Events, rows: I64 | None, begin: int, end: int) -> int | None:
    """Return the last of some rows within a window.

    For a command's exits: where another thread than the first calls exec, the first one's
    exit comes before it, and the pid is the other's from then on.
    """
    if rows is None:
        return None
    at = int(np.searchsorted(events.timestamp[rows], end, "right")) - 1
    found = at >= 0 and events.timestamp[rows[at]] >= begin
    return int(rows[at]) if found else None


def _first_within(events: Events, rows: I64 | None, begin: int, end: int) -> int | None:
    """Return the first of some rows within a window."""
    if rows is None:
        return None
    at = int(np.searchsorted(events.timestamp[rows], begin))
    found = at < len(rows) and events.timestamp[rows[at]] <= end
    return int(rows[at]) if found else None


# Threads.

# Events that show a thread active, and the field with its tid.  A wake is not among
# them: the thread exists, but need not do anything.
ACTIVITY: Final = (
    (Kind.FORK, "child_tid"),
    (Kind.WAKEUP_NEW, "tid"),
    (Kind.SWITCH, "prev_tid"),
    (Kind.SWITCH, "next_tid"),
    (Kind.EXIT, "tid"),
)


def find_threads(events: Events, where: ThreadFilter | None = None) -> Executions:
    """Find the life of every thread, from the first to the last event that shows it active.

    A thread id that is created again begins another life.  Idle threads (tid 0) are no
    executions.
    """
    row, thread, born = _find_activity(events)
    # A creation shows up as a fork and then a first wake: one life begins, not two.
    same = np.diff(thread, prepend=-1) == 0
    after_birth = np.concatenate([[False], born[:-1]]) & same
    starts = np.flatnonzero(~same | (born & ~after_birth))
    ends = np.append(starts[1:], len(row))[: len(starts)] - 1
    first, last = row[starts], row[ends]
    once = events.timestamp[first] == events.timestamp[last]
    counts = [(int(once.sum()), "seen at a single instant left out")]
    keep = ~once
    scheduling = Scheduling(events)
    if where:
        host, tid = thread[starts] >> 32, thread[starts] & 0xFFFFFFFF
        inside, unknown = where.match(events, host, tid, last)
        if where.comm:
            inside &= scheduling.find_named(where.comm[:COMM_LENGTH], (host, tid), (first, last))
        counts.append((int((keep & ~inside).sum()), "not of those asked for"))
        counts.append((unknown, "of which the trace does not tell the namespace or group"))
        keep &= inside
    first, last, of_thread = first[keep], last[keep], thread[starts][keep]
    return build_executions(
        events,
        scheduling,
        (first, last),
        Owners(of_thread >> 32, of_thread & 0xFFFFFFFF, ()),
        [None] * len(first),
        [""] * len(first),
        incomplete=0,
        notes=(
            *(describe_known_places(events, where) if where and not len(first) else ()),
            *(f"{plural(count, 'thread')} {why}" for count, why in counts if count),
        ),
        forward=True,
    )


def _find_activity(events: Events) -> tuple[I64, I64, I64]:
    """Return activity as (row, host << 32 + tid, is a creation), sorted by thread."""
    parts = []
    for kind, name in ACTIVITY:
        rows = rows_of_kind(events, kind)
        tid = events.column(rows, name)
        rows, tid = rows[tid > 0], tid[tid > 0]
        born = np.full(len(rows), kind in {Kind.FORK, Kind.WAKEUP_NEW}, np.int64)
        parts.append(np.stack([rows, (events.hosts_of(rows) << 32) + tid, born]))
    row, thread, born = np.concatenate(parts, axis=1)
    order = np.lexsort((row, thread))
    return row[order], thread[order], born[order]
