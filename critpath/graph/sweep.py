"""Critical paths of executions from blocks of timelines: two sweeps against time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from critpath.graph._processors import Account, untiled
from critpath.graph._walk import Walks
from critpath.graph.held_over import Columns, carried_over, nothing_carried
from critpath.graph.loss import blame_losses, overlaps_loss
from critpath.model import I32, I64, U8, Block, Blocks, CriticalPaths, Loss, Workers

# A processor that idles takes who can run within microseconds, a virtual one in less than
# this.  Who waited although it idled for so long was held back, whoever ran besides.
HELD_BACK_NS = 2_000_000
HELD_BACK_SHARE = 0.1

# Rows that are carried into blocks are kept for walks that come back to one: so many bytes.
MOST_CARRIED: Final = 64 << 20

NET: Final = 1

ROWS: Final = (np.int64, np.int64, np.uint8, np.int32, np.int32, np.int32, np.int64)
_STOLEN: Final = (np.int64, np.int64, np.uint8, np.int32)
_RAN: Final = (np.int64, np.int64, np.int32)


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
    """Extract the critical path of every execution.

    Parameters
    ----------
    blocks : Blocks
        Of the whole recording.  Each is fetched once or twice, the last first; one that
        walks come back to, after they have been before it, once more.
    workers : Workers
    strings : sequence of str
        What details and names are codes into.
    processors : sequence of (host, cpu)
    packets : sequence of (int, int, int, int)
        Sender, sent (ns), receiver, received (ns); senders and receivers are workers.
    losses : sequence of Loss
    subjects : int64 [executions]
        Worker of each execution; -1 where the thread never appears in the trace: its
        whole window is UNKNOWN.
    begin, end : int64 [executions]
        Windows (ns).
    interrupts : bool
        Take interrupt work out of running time, as IRQ and SOFTIRQ.

    Returns
    -------
    CriticalPaths
        Exactly one state for every nanosecond of every window, wherever the blocks were
        cut.

    Notes
    -----
    A path is found backward.  At time t a walk needs the row that covers t; it is in the
    first block with ``cut >= t``, or it is carried: a row of a later block that begins
    before that cut.  So all walks go on together through one block after the other, and
    what is carried is a row or two of each thread.  A second sweep takes interrupt work
    out of running time, and looks who ran while the path waited for a processor.
    """
    subjects, begin, end = (np.ascontiguousarray(column) for column in (subjects, begin, end))
    table = _by_receiver(packets, len(workers))
    segments = _walk(blocks, workers, table, subjects, begin, end)
    account = Account(
        *segments,
        workers.host,
        (workers.idle_cpu >= 0).view(np.uint8),
        _processor_table(processors),
        len(processors),
        interrupts,
        HELD_BACK_NS,
        HELD_BACK_SHARE,
    )
    del segments
    _account(blocks, account)
    codes, texts = _who_ran(account, workers, strings)
    start, low, high, state, detail, comm, tid, host, cpu = account.take(
        codes, workers.tid, workers.name
    )
    wrong = untiled(start, low, high, begin, end)
    if wrong >= 0:
        # A fault of critpath, never of the input.
        raise AssertionError(f"critical path {wrong} does not tile its window")
    lossy = overlaps_loss(losses, host, low, high)
    return CriticalPaths(
        start=start,
        begin=low,
        end=high,
        state=state,
        detail=blame_losses(tuple(strings), state, detail, lossy),
        comm=comm,
        tid=tid,
        host=host,
        cpu=cpu,
        lossy=lossy,
        strings=texts,
    )


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


def _walk(
    blocks: Blocks,
    workers: Workers,
    links: tuple[I64, I64, I64, I64, U8],
    subjects: I64,
    begin: I64,
    end: I64,
) -> list[Any]:
    """Return the segments of all walks: start, begin, end, worker, state, detail, cpu."""
    last = len(blocks) - 1
    walks = Walks(blocks.cuts, subjects, begin, end, workers.parent, workers.born, *links)
    carried = {last: nothing_carried(ROWS)}
    k = last + 1
    while walks.left:
        wanted = walks.waits(k)
        if wanted < 0:
            # All that is left has gone back to a later time.
            k = last + 1
            continue
        k = next(j for j in range(wanted, last + 1) if j in carried)
        columns = _rows(blocks[k])
        walks.advance(k, columns, carried[k])
        if k - 1 not in carried and walks.waits(k) >= 0:
            carried[k - 1] = carried_over(columns, carried[k], int(blocks.cuts[k - 1]))
            _thin_out(carried, {k - 1, last})
    return walks.take()


def _rows(block: Block) -> Columns:
    return (
        block.start,
        block.begin,
        block.end,
        block.state,
        block.detail,
        block.cpu,
        block.waker,
        block.woken,
    )


def _thin_out(carried: dict[int, Columns], kept: set[int]) -> None:
    """Forget what is carried into every other block, where that is too much to keep."""
    size = sum(column.nbytes for columns in carried.values() for column in columns)
    if size > MOST_CARRIED:
        for k in [k for k in sorted(carried)[::2] if k not in kept]:
            del carried[k]


def _account(blocks: Blocks, account: Account) -> None:
    """Account for what processors did, from the last block to the first that matters."""
    more_stolen, more_ran = nothing_carried(_STOLEN), nothing_carried(_RAN)
    for k in range(len(blocks) - 1, -1, -1):
        if not account.left:
            return
        block = blocks[k]
        stolen: Columns = (
            block.stolen_start,
            block.stolen_begin,
            block.stolen_end,
            block.stolen_state,
            block.stolen_detail,
        )
        ran: Columns = (block.ran_start, block.ran_begin, block.ran_end, block.ran_worker)
        after = int(blocks.cuts[k - 1]) if k else int(np.iinfo(np.int64).min)
        account.account(after, stolen, more_stolen, ran, more_ran)
        if k:
            more_stolen = carried_over(stolen, more_stolen, after)
            more_ran = carried_over(ran, more_ran, after)


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
