"""Critical paths of executions from blocks of timelines: two sweeps against time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from critpath.graph._processors import Account, untiled
from critpath.graph._walk import Walks, fill_begins
from critpath.graph.carried import Carried
from critpath.graph.loss import blame_losses, overlaps_loss
from critpath.model import I32, I64, U8, Blocks, CriticalPaths, Loss, Workers

# A processor that idles takes who can run within microseconds, a virtual one in less than
# this.  Who waited although it idled for so long was held back, whoever ran besides.
HELD_BACK_NS = 2_000_000
HELD_BACK_SHARE = 0.1

# Rows that are carried into blocks are kept, for walks that come back to one and for
# executions asked for later: so many bytes unless another number is asked for.
MOST_CARRIED: Final = 64 << 20

NET: Final = 1

ROWS: Final = (np.int64, np.int64, np.uint8, np.int32, np.int32, np.int32, np.int64)
_STOLEN: Final = (np.int64, np.int64, np.uint8, np.int32)
_RAN: Final = (np.int64, np.int64, np.int32)


class TooManySegments(Exception):  # noqa: N818 - says what is the matter, and is no failure
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
        interrupts: bool = True,
        carried: int = MOST_CARRIED,
    ) -> None:
        self._blocks, self._cuts = blocks, blocks.cuts
        self._workers, self._strings, self._losses = workers, tuple(strings), losses
        self._links = _by_receiver(packets, len(workers))
        self._table = _processor_table(processors)
        self._processors, self._interrupts = len(processors), interrupts
        self._rows = Carried(self._cuts, ROWS, carried)
        # A row or two of each processor: all are kept.
        self._stolen = Carried(self._cuts, _STOLEN)
        self._ran = Carried(self._cuts, _RAN)

    def paths(self, subjects: I64, begin: I64, end: I64, *, most: int = 0) -> CriticalPaths:
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

        Returns
        -------
        CriticalPaths
            Exactly one state for every nanosecond of every window, wherever the blocks
            were cut.

        Raises
        ------
        TooManySegments
            As soon as that is known.
        """
        most = most if len(subjects) > 1 else 0
        subjects, begin, end = (np.ascontiguousarray(column) for column in (subjects, begin, end))
        workers = self._workers
        account = Account(
            *self._walked(subjects, begin, end, most),
            workers.host,
            (workers.idle_cpu >= 0).view(np.uint8),
            self._table,
            self._processors,
            self._interrupts,
            HELD_BACK_NS,
            HELD_BACK_SHARE,
        )
        account.most = most
        self._account(account, end)
        codes, texts = _who_ran(account, workers, self._strings)
        start, low, high, state, detail, comm, tid, host, cpu = account.take(
            codes, workers.tid, workers.name
        )
        wrong = untiled(start, low, high, begin, end)
        if wrong >= 0:
            # A fault of critpath, never of the input.
            raise AssertionError(f"critical path {wrong} does not tile its window")
        lossy = overlaps_loss(self._losses, host, low, high)
        return CriticalPaths(
            start=start,
            begin=low,
            end=high,
            state=state,
            detail=blame_losses(self._strings, state, detail, lossy),
            comm=comm,
            tid=tid,
            host=host,
            cpu=cpu,
            lossy=lossy,
            strings=texts,
        )

    def _walked(self, subjects: I64, begin: I64, end: I64, most: int) -> list[Any]:
        """Return the segments of all walks: start, begin, end, worker, state, detail, cpu."""
        workers = self._workers
        walks = Walks(self._cuts, subjects, begin, end, workers.parent, workers.born, *self._links)
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
                raise TooManySegments
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
                    raise TooManySegments
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
    interrupts: bool = True,
) -> CriticalPaths:
    """Extract the critical path of every execution: `Sweep`, once."""
    sweep = Sweep(blocks, workers, strings, processors, packets, losses, interrupts=interrupts)
    return sweep.paths(subjects, begin, end)


def _by_receiver(
    packets: Sequence[tuple[int, int, int, int]], workers: int
) -> tuple[I64, I64, I64, I64, U8]:
    """Return links of packets: start [workers + 1], time, source, sent, kind."""
    table = np.array(packets, np.int64).reshape(-1, 4)
    table = table[np.lexsort((table[:, 3], table[:, 2]))]
    counts = np.bincount(table[:, 2], minlength=workers)
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    source, sent, _, time = (np.ascontiguousarray(column) for column in table.T)
    return start, time, source, sent, np.full(len(table), NET, np.uint8)


def _processor_table(processors: Sequence[tuple[int, int]]) -> I32:
    """Return the index of every (host, cpu), -1 where there is none."""
    width = max((cpu for _, cpu in processors), default=0) + 1
    hosts = max((host for host, _ in processors), default=0) + 1
    table = np.full((hosts, width), -1, np.int32)
    for index, (host, cpu) in enumerate(processors):
        table[host, cpu] = index
    return table


def _who_ran(
    account: Account, workers: Workers, strings: Sequence[str]
) -> tuple[I32, tuple[str, ...]]:
    """Return details of waits for a cpu by who ran, and the strings with them.

    They are by worker from 2 on, after those of idle and of nobody known.  Whoever held
    the processor longest is named, ``comm (tid)``, but ``idle`` where that alone shows
    that nobody who ran was in the way: under a quota, others run in the meantime.
    """
    codes = np.zeros(len(workers) + 2, np.int32)
    texts = list(strings)
    if account.waits:
        codes[0] = len(texts)
        texts.append("idle")
    for worker in np.flatnonzero(account.ran).tolist():
        codes[2 + worker] = len(texts)
        texts.append(f"{strings[workers.name[worker]]} ({workers.tid[worker]})")
    return codes, tuple(texts)
