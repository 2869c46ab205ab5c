"""Critical paths of executions from blocks of timelines: two sweeps against time."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from critpath.errors import UsageError
from critpath.graph._processors import Account, untiled
from critpath.graph._walk import Walks, fill_begins, gather, held_over
from critpath.model import (
    F64,
    I32,
    I64,
    U8,
    Blocks,
    Bool,
    CriticalPaths,
    Executions,
    Loss,
    PathSet,
    ReplayedRecording,
    State,
    Workers,
)
from critpath.model.clocks import HostClock, describe_clocks
from critpath.model.details import (
    IDLE,
    NO_DETAIL,
    Detail,
    DetailCoder,
    code_details,
    name_detail,
)
from critpath.model.paths import find_crossings
from critpath.model.requests import CutRequests, Pieces
from critpath.model.vectors import name_on_host, number_codes
from critpath.schema.environment import Environment
from critpath.schema.notes import IncompleteExecutions, Note, WithoutEvents
from critpath.schema.parameters.replay import WAITING

# technical: rows that are carried into blocks are kept, for walks that come back to one and for
# executions asked for later: so many bytes unless another number is asked for.
MOST_CARRIED: Final = 16 << 20

NET, HOLD, RECEIPT = 1, 2, 3  # technical
NO_ARRIVALS: Final[I64] = np.zeros((0, 3), np.int64)  # technical

ROWS: Final = (np.int64, np.int64, np.uint8, np.int32, np.int32, np.int32, np.int64)
_STOLEN: Final = (np.int64, np.int64, np.uint8, np.int32)
_RAN: Final = (np.int64, np.int64, np.int32)


class TooManySegmentsError(Exception):
    """Paths that are walked together have more segments than they may have."""


class Sweep:
    """Critical paths of the executions of a recording, over its blocks.

    What is found out about the blocks is kept: executions that are asked for later
    cost the blocks that they are in.

    Parameters
    ----------
    blocks : Blocks
        At least one, of the whole recording.  The first executions cost those from the
        last to the one they begin in, each fetched twice, and once more where walks come
        back to it.
    workers : Workers
    strings : sequence of str
        What details and names are codes into.
    processors : sequence of (host, cpu)
    packets : sequence of (int, int, int, int)
        Sender, sent (ns), receiver, received (ns); senders and receivers are workers.
    losses : sequence of Loss
    holds : sequence of (int, int, int, int)
        As `critpath.model.Timelines.holds`.
    receipts : sequence of (int, int, int, int)
        As `critpath.model.ReplayedRecording.receipts`.
    arrivals : int64 [n, 3]
        What came for loops to serve: worker, when it woke it or was there, endpoint.
    interrupts : bool
        Take interrupt work out of running time, as IRQ and SOFTIRQ.
    carried : int
        Bytes of rows that are kept for walks that come back and executions asked for later.

    Notes
    -----
    A path is found backward.  At time t a walk needs the row that covers t; it is in the
    first block with ``cut >= t``, or it is carried: a row of a later block that begins
    before that cut.  So all walks go on together through one block after the other, and
    what is carried is a row or two of each thread.  A second sweep takes interrupt work
    out of running time, and looks who ran while the path waited for a processor.
    """

    def __init__(
        self,
        blocks: Blocks,
        workers: Workers,
        strings: Sequence[str],
        processors: Sequence[tuple[int, int]],
        packets: Sequence[tuple[int, int, int, int]],
        losses: Sequence[Loss],
        *,
        holds: Sequence[tuple[int, int, int, int]] = (),
        receipts: Sequence[tuple[int, int, int, int]] = (),
        arrivals: I64 = NO_ARRIVALS,
        interrupts: bool = True,
        carried: int = MOST_CARRIED,
    ) -> None:
        self._blocks, self._cuts = blocks, blocks.cuts
        self._workers, self._strings, self._losses = workers, tuple(strings), losses
        self._links = _sort_links((packets, holds, receipts), len(workers))
        self._arrivals = sort_arrivals(arrivals, len(workers))
        self._table = _number_processors(processors)
        self._processors, self._interrupts = len(processors), interrupts
        # Details of waits for a cpu, behind all strings: idle, then who ran; first those of idle
        # and of unknown threads.
        names = len(self._strings)
        self._rivals = np.append([names, 0], names + 1 + np.arange(len(workers))).astype(np.int32)
        self._coder = DetailCoder(self._name)
        self._rows = BoundaryRows(self._cuts, ROWS, carried)
        # A row or two of each processor: all are kept.
        self._stolen = BoundaryRows(self._cuts, _STOLEN)
        self._ran = BoundaryRows(self._cuts, _RAN)

    def paths(
        self,
        subjects: I64,
        begin: I64,
        end: I64,
        *,
        most: int = 0,
        askers: I64 | None = None,
        own: I64 | None = None,
    ) -> CriticalPaths:
        """Extract the critical path of every execution.

        Parameters
        ----------
        subjects : int64 [executions]
            Worker of each execution; -1 where the thread never appears in the trace: its
            whole window is UNKNOWN.
        begin, end : int64 [executions]
            Windows (ns).
        most : int
            Segments of all together, where there are several; 0 for no limit.
        askers : int64 [executions] or None
            Worker that asked for what each does: it is answered and not asked; -1 for none.
        own : int64 [executions] or None
            Endpoint at which each is served, -1 for none: who waits for what comes at others of
            its thread's waits for others' sake.

        Returns
        -------
        CriticalPaths
            Exactly one state for every nanosecond of every window, wherever the blocks
            were cut.

        Raises
        ------
        TooManySegmentsError
            As soon as that is known.
        """
        most = most if len(subjects) > 1 else 0
        subjects, begin, end = (np.ascontiguousarray(column) for column in (subjects, begin, end))
        workers = self._workers
        account = Account(
            *self._walk_subjects(subjects, begin, end, (askers, own), most),
            workers.host,
            (workers.idle_cpu >= 0).view(np.uint8),
            self._table,
            self._processors,
            self._interrupts,
            WAITING.held_back,
            WAITING.held_back_share,
        )
        account.most = most
        self._account(account, end)
        start, low, high, state, detail, comm, tid, host, cpu, elsewhere = account.take(
            self._rivals,
            workers.tid,
            workers.name,
        )
        wrong = untiled(start, low, high, begin, end)
        if wrong >= 0:
            # A fault of critpath, never of the input.
            raise AssertionError(f"critical path {wrong} does not tile its window")
        lossy = overlaps_loss(self._losses, host, low, high)
        blamed = blame_losses(self._strings, state, detail, lossy)
        detail, details = self._coder.code(blamed.astype(np.int64), state.astype(np.int64))
        return CriticalPaths(
            start=start,
            begin=low,
            end=high,
            state=state,
            detail=detail,
            comm=comm,
            tid=tid,
            host=host,
            cpu=cpu,
            lossy=lossy,
            strings=self._strings,
            elsewhere_idle=elsewhere,
            details=details,
        )

    def _name(self, code: int, state: int) -> Detail:
        """Return what a state's code means: a name, or who ran during a wait for a cpu.

        The thread that held the processor longest is named, but idle where that alone shows
        that no thread that ran was in the way: under a quota, others run in the meantime.
        """
        names = len(self._strings)
        if code < names:
            return name_detail(State(state), self._strings[code])
        if code == names:
            return Detail(why=IDLE)
        row = code - names - 1
        return Detail(self._strings[int(self._workers.name[row])], int(self._workers.tid[row]))

    def _walk_subjects(
        self, subjects: I64, begin: I64, end: I64, asked: tuple[I64 | None, I64 | None], most: int
    ) -> list[Any]:
        """Return the segments of all walks: start, begin, end, worker, state, detail, cpu."""
        workers = self._workers
        none = np.full(len(subjects), -1, np.int64)
        askers, own = (none if of is None else of for of in asked)
        walks = Walks(
            *(self._cuts, subjects, begin, end, workers.parent, workers.born, *self._links),
            *(askers, *self._arrivals, own),
        )
        walks.most = most
        k = len(self._cuts)
        while walks.left:
            wanted = walks.waits(k)
            if wanted < 0:
                # All that is left has gone back to a later time.
                k = len(self._cuts)
                continue
            k = self._rows.reach(wanted)
            block = self._blocks[k].opened()
            walks.advance(k, block, self._rows.into(k))
            if 0 < most < walks.emitted:
                raise TooManySegmentsError
            if k and walks.waits(k) >= 0:
                fill_begins(block, int(self._cuts[k - 1]))
                self._rows.carry(k, block.columns)
        return walks.take()

    def _account(self, account: Account, end: I64) -> None:
        """Account for what processors did, from the last block that matters to the first."""
        last = len(self._cuts) - 1
        wanted = min(int(np.searchsorted(self._cuts, end.max(initial=0))), last)
        while account.left:
            k = self._stolen.reach(wanted)
            block = self._blocks[k]
            stolen, ran = block.stolen(), block.ran()
            if k == wanted:
                after = int(self._cuts[k - 1]) if k else int(np.iinfo(np.int64).min)
                account.account(after, stolen, self._stolen.into(k), ran, self._ran.into(k))
                if 0 < account.most < account.pieces:
                    raise TooManySegmentsError
                wanted -= 1
            if account.left:
                self._stolen.carry(k, stolen)
                self._ran.carry(k, ran)


def sweep_paths(
    blocks: Blocks,
    workers: Workers,
    strings: Sequence[str],
    processors: Sequence[tuple[int, int]],
    packets: Sequence[tuple[int, int, int, int]],
    losses: Sequence[Loss],
    subjects: I64,
    begin: I64,
    end: I64,
    *,
    holds: Sequence[tuple[int, int, int, int]] = (),
    receipts: Sequence[tuple[int, int, int, int]] = (),
    interrupts: bool = True,
) -> CriticalPaths:
    """Extract the critical path of every execution: `Sweep`, once."""
    sweep = Sweep(
        *(blocks, workers, strings, processors, packets, losses),
        holds=holds,
        receipts=receipts,
        interrupts=interrupts,
    )
    return sweep.paths(subjects, begin, end)


def _sort_links(
    links: Sequence[Sequence[tuple[int, int, int, int]]], workers: int
) -> tuple[I64, I64, I64, I64, U8]:
    """Return packets, holders and receipts: start [workers + 1], time, source, sent, kind."""
    table = np.array([row for of in links for row in of], np.int64).reshape(-1, 4)
    kind = np.repeat(np.array([NET, HOLD, RECEIPT], np.uint8), [len(of) for of in links])
    order = np.lexsort((table[:, 3], table[:, 2]))
    table = table[order]
    counts = np.bincount(table[:, 2], minlength=workers)
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    source, sent, _, time = (np.ascontiguousarray(column) for column in table.T)
    return start, time, source, sent, kind[order]


def sort_arrivals(arrivals: I64, workers: int) -> tuple[I64, I64, I64]:
    """Return start [workers + 1], time and endpoint of what came for loops to serve."""
    worker, time, endpoint = arrivals[np.lexsort((arrivals[:, 1], arrivals[:, 0]))].T.copy()
    start = np.searchsorted(worker, np.arange(workers + 1)).astype(np.int64)
    return start, time, endpoint


def _number_processors(processors: Sequence[tuple[int, int]]) -> I32:
    """Return the index of every (host, cpu), -1 where there is none."""
    width = max((cpu for _, cpu in processors), default=0) + 1
    hosts = max((host for host, _ in processors), default=0) + 1
    table = np.full((hosts, width), -1, np.int32)
    for index, (host, cpu) in enumerate(processors):
        table[host, cpu] = index
    return table


# ------------------------------------------------------------ all executions of a recording


# technical: A first guess, in segments: a path is on one processor at a time, mostly, and
# interrupts cut its rows.
_CUTS: Final = 3
_AT_LEAST: Final = 32  # technical
# technical: executions that are walked together, and segments that so many may have of which more
# than the first are: what all have would take more memory than the recording.  Each time costs
# some milliseconds; how many a file has in a row group is the writer's own (`PathsWriter`).
_TOGETHER: Final = (1000, 8000)
_SEGMENTS: Final = 1 << 17  # technical
# technical: segments of paths that are walked together where memory has no limit, 125 MB: lives of
# thousands of threads have hundreds of times as many.
_MOST_SEGMENTS: Final = 1 << 20
_GROWTH: Final = 4.0  # technical: of the next group at the most
_LOOKED_UP: Final = 1 << 16  # technical: executions whose threads are looked up together


def extract_paths(
    replayed: ReplayedRecording,
    executions: Executions,
    recording: str,
    specification: str,
    *,
    interrupts: bool,
    most_segments: int = 0,
    most_carried: int = 0,
    pieces: CutRequests | None = None,
) -> Iterator[PathSet]:
    """Walk the executions of a recording, together as far as memory allows.

    Parameters
    ----------
    replayed : ReplayedRecording
    executions : Executions
        Found in its events.
    recording, specification : str
        What the sets say of themselves.
    interrupts : bool
        Take interrupt work out of running time.
    most_segments : int
        Of paths that are walked together; 0 for as many as is usual.
    most_carried : int
        Bytes of rows that are kept for executions that are asked for later; 0 for as many as
        is usual.
    pieces : CutRequests or None
        What each execution's path is joined from, where it is not its own thread's alone.

    Yields
    ------
    PathSet
        Each has the facts of the whole recording.
    """
    events = replayed.events
    unknown = _count_unknown(replayed.workers, executions)
    lossy = overlaps_loss(events.losses, executions.host, executions.begin, executions.end)
    notes = (*executions.notes, *left_out(unknown, executions))
    sweep = Sweep(
        replayed.blocks,
        replayed.workers,
        events.strings,
        replayed.processors,
        replayed.packets,
        events.losses,
        holds=replayed.holds,
        receipts=replayed.receipts,
        arrivals=NO_ARRIVALS if pieces is None else _find_arrivals(replayed.workers, pieces),
        interrupts=interrupts,
        carried=most_carried or MOST_CARRIED,
    )

    work = None if pieces is None else _Work(pieces.work)
    limit = most_segments or _MOST_SEGMENTS

    def walk(first: int, last: int) -> tuple[slice, CriticalPaths]:
        """Walk some executions, or the first half of them, or fewer, as memory allows."""
        while True:
            rows = slice(first, last)
            try:
                if pieces is not None and work is not None:
                    return rows, _join_pieces(sweep, replayed, pieces.cut(rows), work, limit)
                these = executions.take(rows)
                subjects = subject_workers(replayed.workers, these)
                return rows, sweep.paths(subjects, these.begin, these.end, most=limit)
            except TooManySegmentsError:
                last = first + (last - first) // 2

    def part(rows: slice, paths: CriticalPaths) -> PathSet:
        return PathSet(
            executions=name_hosts_of(executions.take(rows), events.hosts),
            paths=bound_crossings(name_hosts(paths, events.hosts), events.clocks),
            session=np.zeros(len(paths), np.int64),
            sources=(recording,),
            specification=specification,
            losses=events.losses,
            lossy=lossy[rows],
            environment=(
                *events.environment,
                Environment(
                    clock_epoch=events.clock.epoch,
                    clocks=describe_clocks(events.clocks) if events.clocks else None,
                    recording=recording,
                ),
            ),
            events=events.total,
            warnings=(*events.warnings, *replayed.warnings, *notes),
        )

    most, many = float(limit), float(_SEGMENTS)
    first = 0
    while first < len(executions) or not first:
        # What is kept of each counts where there are a million: the rest is found once more.
        some = executions.take(slice(first, first + _TOGETHER[1]))
        expected = _estimate_segments(replayed, some)
        expected = expected[: max(_TOGETHER[0], _find_end_of_group(expected, many))]
        rows, paths = walk(first, first + _find_end_of_group(expected, most))
        last = rows.stop
        yield part(rows, paths)
        if last >= len(executions):
            return
        # Executions differ: the next group may be so much larger at the most, and less if this
        # one has shown that as many may be too much.  It has also shown what was expected of so
        # many segments.
        size, segments = float(expected[: last - first].sum()), max(len(paths.begin), 1)
        most = size * min(_GROWTH, limit / (2 * segments))
        many = size * _SEGMENTS / segments
        first = last


def name_hosts_of(executions: Executions, hosts: Sequence[str]) -> Executions:
    """Return executions of several hosts with each thread's host in its name."""
    if len(hosts) < 2:
        return executions
    named = zip(executions.comm, executions.host.tolist(), strict=True)
    return replace(executions, comm=tuple(name_on_host(name, hosts[host]) for name, host in named))


def name_hosts(paths: CriticalPaths, hosts: Sequence[str]) -> CriticalPaths:
    """Return paths over several hosts with its host in the name of every thread.

    Threads of one name on two hosts so are two everywhere: roles, causes, pictures.
    """
    if len(hosts) < 2:
        return paths
    each, place = number_codes(paths.comm * np.int64(len(hosts)) + paths.host)
    pairs = [divmod(pair, len(hosts)) for pair in each.tolist()]
    texts = [name_on_host(paths.strings[code], hosts[host]) for code, host in pairs]

    def name_rival(state: State, code: int) -> Detail:
        of, host = paths.details[code // len(hosts)], hosts[code % len(hosts)]
        return of._replace(peer=name_on_host(of.peer, host)) if state == State.WAIT_CPU else of

    detail, details = code_details(
        paths.state, paths.detail * np.int64(len(hosts)) + paths.host, name_rival
    )
    comm = (place + len(paths.strings)).astype(np.int32)
    strings = (*paths.strings, *texts)
    return replace(paths, strings=strings, comm=comm, detail=detail, details=details)


def bound_crossings(paths: CriticalPaths, clocks: Sequence[HostClock]) -> CriticalPaths:
    """Return paths with what is known of the times between the hosts that they cross."""
    if len(clocks) < 2:
        return paths
    crosses, other = find_crossings(paths.start, paths.host, paths.state)
    found = np.zeros(len(crosses), np.int64)
    unknown = np.zeros(len(crosses), np.bool_)
    for side in (paths.host, other):
        for host, clock in enumerate(clocks):
            rows = np.flatnonzero(crosses & (side == host))
            bounds = clock.bound_at(paths.end[rows])
            found[rows] += bounds
            unknown[rows] |= bounds < 0
    return replace(paths, uncertainty=np.where(unknown, -1, found))


def _join_pieces(
    sweep: Sweep,
    replayed: ReplayedRecording,
    pieces: Pieces,
    work: _Work,
    most: int,
) -> CriticalPaths:
    """Walk the pieces of some executions, and join those of each."""
    start, host, tid, end, state = (
        pieces.start,
        pieces.host,
        pieces.tid,
        pieces.end,
        pieces.state,
    )
    worker = find_workers(replayed.workers, host, tid, end)
    walked = state == State.UNKNOWN
    # What is known already is not walked: a window of nobody is one segment.
    paths = sweep.paths(
        np.where(walked, worker, -1),
        pieces.begin,
        end,
        most=most if len(start) > 2 else 0,
        askers=_find_askers(replayed.workers, pieces.asker, end),
        own=pieces.endpoint,
    )
    known = np.flatnonzero(~walked & (worker >= 0))
    at = paths.start[known]
    names = ("state", "comm", "tid", "host", "detail")
    columns: dict[str, Any] = {name: getattr(paths, name).copy() for name in names}
    columns["state"][at] = state[known]
    columns["comm"][at] = replayed.workers.name[worker[known]]
    columns["tid"][at], columns["host"][at] = tid[known], host[known]
    by = pieces.by[known]
    asker = _find_askers(replayed.workers, by, end[known])
    named = asker >= 0
    about = pieces.about[known]
    hosts = replayed.events.hosts
    # By whom and about what, as one number; of what is walked, its detail.  Numbers in the same
    # order do as well, and small ones are looked up.
    said = paths.detail.astype(np.int64)
    few, strings = len(paths.details), paths.strings
    whose = np.where(named, 1 + replayed.workers.name[asker] * len(hosts) + (by >> 32), 0)
    kinds = 1 + len(strings) * len(hosts)
    some = named | (about >= 0)
    numbered, number = number_codes(((about + 1) * kinds + whose)[some])
    said[at[some]] = few + number

    def find(_: State, code: int) -> Detail:
        if code < few:
            return paths.details[code]
        what, who = divmod(int(numbered[code - few]), kinds)
        of = pieces.details[what - 1] if what else NO_DETAIL
        if not who:
            return of
        name, host = divmod(who - 1, len(hosts))
        own = strings[name]
        return of._replace(peer=name_on_host(own, hosts[host]) if len(hosts) > 1 else own)

    columns["detail"], columns["details"] = code_details(columns["state"], said, find)
    others = np.isin(state[known], [int(State.QUEUED), int(State.SHARED)])
    beneath = np.zeros(len(paths.begin), np.uint8)
    of = known[others]
    beneath[at[others]] = find_states(replayed.blocks, worker[of], pieces.begin[of], end[of])
    columns["beneath"] = beneath
    many = np.diff(paths.start)
    columns["confidence"] = np.repeat(pieces.confidence, many)
    away = (paths.tid != np.repeat(tid, many)) | (paths.host != np.repeat(host, many))
    theirs = np.repeat(_lead_to_others(start, host, tid, state), many)
    rows = np.flatnonzero(away & (paths.tid >= 0) & ~theirs)
    piece = np.searchsorted(paths.start, rows, side="right") - 1
    theirs[rows] = work.is_for_others(
        *(pieces.root[piece], paths.host[rows], paths.tid[rows], paths.end[rows])
    )
    columns["others"] = theirs & away & (paths.tid >= 0)
    return replace(paths, start=paths.start[start], **columns)


class _Work:
    """What threads did for requests (`Pieces.work`), in which many moments are looked up."""

    def __init__(self, work: I64) -> None:
        self._work = work
        self._threads, number = np.unique(work[:, 0], return_inverse=True)
        # A begin's place among all stands for it, so that threads and times make one key.
        self._moments = np.sort(work[:, 1])
        self._many = len(work) + 1
        begun = np.searchsorted(self._moments, work[:, 1], side="right")
        self._begins = number.reshape(-1) * self._many + begun

    def is_for_others(self, root: I64, host: I64, tid: I64, end: I64) -> Bool:
        """Tell of which segments the thread serves, and not the request that their path is of."""
        if not len(self._work):
            return np.zeros(len(root), np.bool_)
        key = (host << 32) | tid
        place = np.searchsorted(self._threads, key)
        serves = self._threads[np.minimum(place, len(self._threads) - 1)] == key
        begun = np.searchsorted(self._moments, end)
        at = np.searchsorted(self._begins, place * self._many + begun, side="right") - 1
        last = self._work[at]
        own = (at >= 0) & (last[:, 0] == key) & (last[:, 2] >= end) & (last[:, 3] == root)
        return np.asarray(serves & ~own & (root >= 0))


def _lead_to_others(start: I64, host: I64, tid: I64, state: U8) -> Bool:
    """Tell which walked pieces end where their thread goes on with others' requests.

    What woke it then was theirs: what the request asked itself are pieces of their own.  Of a
    path that never leaves its thread these may not be known: none of its pieces is named then.
    """
    path = np.repeat(np.arange(len(start) - 1), np.diff(start))
    found = np.zeros(len(path), np.bool_)
    if not len(path):
        return found
    same = (path[1:] == path[:-1]) & (host[1:] == host[:-1]) & (tid[1:] == tid[:-1])
    found[:-1] = same & np.isin(state[1:], _OTHERS) & (state[:-1] == State.UNKNOWN)
    first = start[path]
    leaves = np.zeros(len(start), np.bool_)
    leaves[path[(host != host[first]) | (tid != tid[first])]] = True
    return np.asarray(found & leaves[path])


_OTHERS: Final = tuple(int(s) for s in (State.QUEUED, State.SHARED, State.WAIT_POOL))


def _find_askers(workers: Workers, keys: I64, time: I64) -> I64:
    """Return the workers of threads, by their host and number in one; -1 for none."""
    found = find_workers(workers, keys >> 32, keys & 0xFFFFFFFF, time)
    return np.where(keys >= 0, found, -1)


def _find_arrivals(workers: Workers, pieces: CutRequests) -> I64:
    """Return what came for loops to serve, by worker."""
    key, time, endpoint = pieces.arrivals.T
    found = np.column_stack([_find_askers(workers, key, time), time, endpoint])
    return found[found[:, 0] >= 0]


def find_states(blocks: Blocks, worker: I64, begin: I64, end: I64) -> U8:
    """Return in which state some threads were for the longest part of some windows.

    Windows of a thread may overlap, as requests that wait behind each other do: each thread's
    rows are added up once.
    """
    found = np.zeros(len(worker), np.uint8)
    if not len(worker):
        return found
    cuts = blocks.cuts
    since, until = begin.min(), end.max()
    first, last = np.searchsorted(cuts, [since, until])
    threads = np.unique(worker)
    rows: dict[int, list[Columns]] = {thread: [] for thread in threads.tolist()}
    for k in range(int(first), min(int(last) + 2, len(cuts))):  # one more: a row may end later
        start, low, high, state, *_ = blocks[k].intervals()
        for thread in threads[threads < len(start) - 1].tolist():
            of = slice(int(start[thread]), int(start[thread + 1]))
            within = slice(*(np.searchsorted(high[of], since), np.searchsorted(low[of], until)))
            columns = [column[of][within].copy() for column in (low, high, state)]
            if len(columns[0]):
                rows[thread].append(tuple(columns))
    for thread, parts in rows.items():
        if parts:
            mine = np.flatnonzero(worker == thread)
            low, high, state = (np.concatenate(column) for column in zip(*parts, strict=True))
            found[mine] = _find_longest_states(low, high, state, begin[mine], end[mine])
    return found


def _find_longest_states(low: I64, high: I64, state: U8, begin: I64, end: I64) -> U8:
    """Return the state with most time in each window, of rows in order of time."""
    best, found = np.zeros(len(begin), np.int64), np.zeros(len(begin), np.uint8)
    ends = []  # of each time the rows before it, the last of them, and how far that goes on
    for time in (begin, end):
        many = np.searchsorted(low, time, side="right")
        last = np.maximum(many - 1, 0)
        ends.append((many, last, np.maximum(high[last] - time, 0) * (many > 0)))
    for one in np.unique(state).tolist():
        of = state == one
        total = np.concatenate([[0], np.cumsum((high - low) * of)])
        before, until = (total[many] - beyond * of[last] for many, last, beyond in ends)
        more = until - before > best
        best[more], found[more] = (until - before)[more], one
    return found


def _estimate_segments(replayed: ReplayedRecording, executions: Executions) -> F64:
    """Return how many segments every execution may have."""
    events = replayed.events
    share = (executions.end - executions.begin) / max(events.end - events.begin, 1)
    return _AT_LEAST + share * (_CUTS * replayed.rows / max(len(replayed.processors), 1))


def _find_end_of_group(expected: F64, most: float) -> int:
    """Return how many of the next executions are walked together."""
    return max(1, int(np.searchsorted(np.cumsum(expected), most, side="right")))


# Rows of later blocks that reach back into an earlier one.


# start, begin, then any other columns of the rows.
Columns = tuple[np.ndarray[Any, Any], ...]


class BoundaryRows:
    """What is carried into each block, as far as that is known.

    Parameters
    ----------
    cuts : int64 [blocks]
    kinds : sequence of numpy types
        Of the rows' columns, ``begin`` and more.
    most : int
        Bytes that are kept; beyond, those of every other block are forgotten.
    """

    def __init__(
        self,
        cuts: I64,
        kinds: Sequence[type[np.generic]],
        most: int = sys.maxsize,
    ) -> None:
        self._cuts, self._most = cuts, most
        self._last = len(cuts) - 1
        none = np.zeros(0, np.int32)
        self._known = {self._last: _CarriedRows(1, none, none, empty_boundary_rows(kinds)[1:])}
        self._size = 0

    def reach(self, k: int) -> int:
        """Return the first block from ``k`` on of which it is known what is carried into it."""
        return next(j for j in range(k, self._last + 1) if j in self._known)

    def into(self, k: int) -> Columns:
        """Return what is carried into a block: the rows of later ones that begin before its cut."""
        return self._known[k].columns

    def carry(self, k: int, columns: Columns) -> None:
        """Keep what is carried out of a block into the one before it."""
        if k == 0 or k - 1 in self._known:
            return
        self._known[k - 1] = found = self._known[k].join(columns, int(self._cuts[k - 1]))
        self._size += found.nbytes
        if self._size > self._most:
            for j in sorted(self._known.keys() - {k - 1, self._last})[::2]:
                self._size -= self._known.pop(j).nbytes


class _CarriedRows(NamedTuple):
    """Rows of the few owners that have some: of a long recording most threads are gone by then."""

    size: int  # of the column that tells where the rows of each owner start
    owners: I32
    counts: I32
    rows: Columns

    def join(self, columns: Columns, cut: int) -> _CarriedRows:
        """Return the rows, of these and of the block's that they are carried into, before a cut."""
        start, *mine = columns
        owners, counts, rows = held_over(
            start, mine[0], self.owners, self.counts, self.rows[0], cut
        )
        taken = [np.empty(len(rows), column.dtype) for column in mine]
        for column, more, into in zip(mine, self.rows, taken, strict=True):
            gather(column, more, rows, into)
        return _CarriedRows(max(len(start), self.size), owners, counts, (*taken,))

    @property
    def columns(self) -> Columns:
        start = np.zeros(self.size, np.int64)
        start[self.owners + 1] = self.counts
        return (np.cumsum(start), *self.rows)

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in (self.owners, self.counts, *self.rows))


def empty_boundary_rows(kinds: Sequence[type[np.generic]]) -> Columns:
    """Return columns of no rows: what is carried into the last block."""
    return (np.zeros(1, np.int64), *(np.zeros(0, kind) for kind in kinds))


# What of a path lies where events were lost.


def overlaps_loss(losses: Sequence[Loss], host: I64, begin: I64, end: I64) -> Bool:
    """Return which windows overlap a loss on their host."""
    result = np.zeros(len(begin), bool)
    for name in {loss.host for loss in losses}:
        ranges = sorted((loss.begin, loss.end) for loss in losses if loss.host == name)
        low = np.array([r[0] for r in ranges])
        # Ends so far: with begins sorted, the windows that a range reaches into are those
        # that begin before the largest end among the ranges that begin before they end.
        high = np.maximum.accumulate(np.array([r[1] for r in ranges]))
        before = np.searchsorted(low, end, side="right") - 1
        result |= (host == name) & (before >= 0) & (high[np.maximum(before, 0)] >= begin)
    return result


def blame_losses(strings: Sequence[str], state: U8, detail: I32, lossy: Bool) -> I32:
    """Blame a wake that is missing next to a loss on the loss."""
    if "no_wake" not in strings or not lossy.any():
        return detail
    missing = (state == State.WAIT_UNEXPLAINED) & (detail == strings.index("no_wake")) & lossy
    return np.where(missing, np.int32(strings.index("lost_events")), detail).astype(np.int32)


# Which life of which thread an execution is about.


def subject_workers(workers: Workers, executions: Executions) -> I64:
    """Return the worker of every execution: the life of its thread that the end falls into.

    Returns
    -------
    int64 [executions]
        -1 where the thread never appears.
    """
    return find_workers(workers, executions.host, executions.tid, executions.end)


def find_workers(workers: Workers, host: I64, tid: I64, time: I64) -> I64:
    """Return the life of each thread that a time falls into, -1 where it never appears."""
    return workers.lives.find(host, tid, time)


def _count_unknown(workers: Workers, executions: Executions) -> int:
    """Return how many executions are of threads that never appear."""
    parts = range(0, len(executions), _LOOKED_UP)
    some = (executions.take(slice(first, first + _LOOKED_UP)) for first in parts)
    return sum(int((subject_workers(workers, each) < 0).sum()) for each in some)


def left_out(unknown: int, executions: Executions) -> tuple[Note, ...]:
    """Note how many executions have no path, or none that tells anything."""
    notes = WithoutEvents(unknown), IncompleteExecutions(executions.incomplete)
    return tuple(note for note in notes if note.executions)


def find_lifetimes(
    workers: Workers,
    strings: Sequence[str],
    tid: int | None,
    comm: str | None,
    window: tuple[int | None, int | None],
    recorded: tuple[int, int],
) -> Executions:
    """Return the lives of threads as executions.

    Parameters
    ----------
    workers : Workers
    strings : sequence of str
        What names are codes into.
    tid, comm : int or None, str or None
        Which threads; both None for all of them.
    window : tuple of (int or None, int or None)
        Begin and end (ns) instead of the first and last event of each.
    recorded : tuple of (int, int)
        Begin and end of the recording (ns).

    Raises
    ------
    UsageError
        If no thread matches, or the window lies outside the recording.
    """
    begin, end = window
    low = recorded[0] if begin is None else begin
    high = recorded[1] if end is None else end
    if low >= min(high, recorded[1]) or high <= recorded[0]:
        raise UsageError(
            f"nothing was recorded between {low} and {high}",
            f"the recording lasts from {recorded[0]} to {recorded[1]}",
        )
    chosen = (workers.first >= 0) & (workers.idle_cpu < 0)
    if tid is not None:
        chosen &= workers.tid == tid
    if comm is not None:
        chosen &= np.array([text == comm for text in strings], bool)[workers.name]
    rows = np.flatnonzero(chosen)
    if not len(rows):
        raise UsageError(
            "the trace has no thread " + (f"with tid {tid}" if comm is None else f"called {comm}"),
            "critpath path TRACE without --tid or --comm shows every run",
        )
    begins = workers.first[rows] if begin is None else np.full(len(rows), begin, np.int64)
    ends = workers.last[rows] if end is None else np.full(len(rows), end, np.int64)
    return Executions(
        id=tuple(
            f"{tid}@{time}"
            for tid, time in zip(workers.tid[rows].tolist(), begins.tolist(), strict=True)
        ),
        begin=begins,
        end=np.maximum(begins, ends),
        tid=workers.tid[rows],
        host=workers.host[rows],
        comm=tuple(strings[code] for code in workers.name[rows].tolist()),
        label=("",) * len(rows),
    )


# Critical paths of several recordings as one table.


def take_executions(path_set: PathSet, rows: I64) -> PathSet:
    """Return some executions of a set, with their paths, as a set.

    Parameters
    ----------
    path_set : PathSet
    rows : int64 array
        Their positions, in the order wanted; of stored paths only these are fetched.
    """
    return path_set.take(rows)
