"""Whose work it is, as the runtime says: which task of its loop a thread runs.

`ActivityEvents` reads what `critpath_marks.tasks` wrote (``critpath:tasks``) into rows of
`Act.TASK`.  A task is of the request whose answer is sent while it runs, or while one runs that it
made or that made it; docs/tasks.md has the rules.
"""

from __future__ import annotations

import dataclasses
from base64 import b64decode
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Final

import numpy as np

from critpath.model import I64, Workers
from critpath.model.requests import (
    NONE,
    Act,
    Activity,
    Certainty,
    Endpoints,
    RequestTable,
    Rule,
    Slices,
)
from critpath.records import dataclass
from critpath.requests.owners import Owned, process_keys, spend_thread, thread_keys

MADE: Final = 1 << 31  # technical: of a number: the task is made, it does not run yet
_OLDEST: Final = 10 * 10**9  # technical: ns between a note and the mark that it comes with
_PREFIX: Final = "critpath:tasks "
_PAIR: Final = np.dtype([("time", "<i8"), ("number", "<u4")])
_DEEPEST: Final = 64  # technical: how many tasks made each other


def read_tasks(
    marks: Sequence[tuple[int, int, int, str]], workers: Workers
) -> tuple[I64, I64, I64, I64]:
    """Return what marks of tasks say: time, thread, host and number of each note.

    `marks`: time, host and thread of who wrote each, and its text.  A thread writes of itself, by
    the number that it has in its container; ``@`` in front says that another thread writes.
    """
    known = [
        (when, host, tid, of, data)
        for when, host, tid, text in marks
        if tid > 0 and (parsed := _parse(text)) is not None
        for of, data in [parsed]
    ]
    host = np.array([row[1] for row in known], np.int32)
    writer = thread_keys(host, np.array([row[2] for row in known], np.int32))
    process = process_keys(workers, writer).tolist()
    names = {
        (of, int(row[3])): row[2]
        for of, row in zip(process, known, strict=True)
        if row[3].isdecimal()
    }
    parts = [np.zeros((0, 4), np.int64)]
    for of, (when, at, tid, name, data) in zip(process, known, strict=True):
        thread = tid if name.isdecimal() else names.get((of, int(name[1:])), int(name[1:]))
        time = data["time"]
        # What others wrote: in order, and not from another time.
        if (
            len(time)
            and (np.diff(time) >= 0).all()
            and max(0, when - _OLDEST) <= time[0] <= time[-1] <= when
        ):
            part = np.empty((len(data), 4), np.int64)
            part[:, 0], part[:, 1], part[:, 2], part[:, 3] = time, thread, at, data["number"]
            parts.append(part)
    rows = np.concatenate(parts)
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    return rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3]


def _parse(text: str) -> tuple[str, np.ndarray] | None:
    if not text.startswith(_PREFIX):
        return None
    thread, _, data = text[len(_PREFIX) :].strip().partition(" ")
    number = thread.removeprefix("@")
    if not (number.isascii() and number.isdecimal() and len(number) < 10):
        return None
    try:
        packed = b64decode(data, validate=True)
    except ValueError:
        return None
    return (thread, np.frombuffer(packed, _PAIR)) if len(packed) % _PAIR.itemsize == 0 else None


def follow_tasks(
    activity: Activity,
    workers: Workers,
    endpoints: Endpoints,
    requests: RequestTable,
    owned: Owned,
) -> Owned:
    """Return what was found with what the runtimes say instead, where they say it."""
    tasks = Tasks(activity, workers, endpoints, requests)
    subs = owned.subrequests
    keys = thread_keys(endpoints.host[subs.endpoint], subs.tid)
    found = tasks.find(keys, subs.begin_ns)
    told, theirs = found > UNKNOWN, found >= 0
    subrequests = dataclasses.replace(
        subs,
        request=np.where(told, np.maximum(found, NONE), subs.request).astype(np.int32),
        how=np.where(told, np.where(theirs, Rule.TASK, Rule.NONE), subs.how).astype(np.uint8),
        attribution=np.where(
            told, np.where(theirs, Certainty.CERTAIN, Certainty.DOUBTFUL), subs.attribution
        ).astype(np.uint8),
        probability=np.where(told, theirs, subs.probability).astype(np.float64),
    )
    return dataclasses.replace(
        owned, subrequests=subrequests, slices=tasks.replace_slices(owned.slices)
    )


UNKNOWN: Final = -2  # technical: of a moment: no task says whose it is; -1: none that is open


@dataclass(frozen=True, eq=False)
class _Steps:
    """When tasks of one thread ran: ``task[i]`` from ``time[i]`` on, 0 for none."""

    time: I64
    task: I64


class Tasks:
    """Which tasks ran when, and for which request each did."""

    def __init__(
        self, activity: Activity, workers: Workers, endpoints: Endpoints, requests: RequestTable
    ) -> None:
        self._activity, self._workers = activity, workers
        self._endpoints, self._requests = endpoints, requests
        rows = np.flatnonzero((activity.act == Act.TASK) & (activity.tid > 0))
        keys = thread_keys(activity.host[rows], activity.tid[rows])
        self._every, self._processes = self._number(keys)
        self._steps: dict[int, _Steps] = {}
        self._maker: dict[tuple[int, int], int] = {}
        for number, key in enumerate(self._every.tolist()):
            mine = rows[keys == key]
            time, value = activity.time_ns[mine], activity.value[mine]
            runs = value < MADE
            self._steps[key] = steps = _Steps(time[runs], value[runs])
            of = int(self._processes[number])
            makers = self._running(steps, time[~runs])
            for made, maker in zip((value[~runs] - MADE).tolist(), makers.tolist(), strict=True):
                self._maker.setdefault((of, made), maker)

    def _number(self, keys: I64) -> tuple[I64, I64]:
        every = np.unique(keys)
        return every, process_keys(self._workers, every)

    @staticmethod
    def _running(steps: _Steps, time: I64) -> I64:
        """Return which task ran at each time."""
        at = np.searchsorted(steps.time, time, side="right") - 1
        return np.where(at >= 0, steps.task[np.maximum(at, 0)], 0)

    def _find_running(self, keys: I64, time: I64) -> tuple[I64, I64]:
        """Return of moments of threads the process, and the task that ran; 0 for none."""
        process, task = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
        for key, of in zip(self._every.tolist(), self._processes.tolist(), strict=True):
            mine = np.flatnonzero(keys == key)
            process[mine], task[mine] = of, self._running(self._steps[key], time[mine])
        return process, task

    def _above(self, process: int, task: int) -> Iterator[int]:
        """Yield a task, who made it, and so on."""
        for _ in range(_DEEPEST):
            if not task:
                return
            yield task
            task = self._maker.get((process, task), 0)

    @cached_property
    def _served(self) -> Mapping[tuple[int, int], _Served]:
        """The requests that each task answered, or those that it made for one connection."""
        requests = self._requests
        keys = thread_keys(self._endpoints.host[requests.endpoint], requests.tid)
        process, task = self._find_running(keys, requests.end_ns)
        endpoint = requests.endpoint.tolist()
        own: dict[tuple[int, int], list[int]] = {}
        made: dict[tuple[int, int], list[int]] = {}
        order = np.argsort(requests.received_ns, kind="stable")
        for row in order[task[order] > 0].tolist():
            of = int(process[row])
            for depth, each in enumerate(self._above(of, int(task[row]))):
                (made if depth else own).setdefault((of, each), []).append(row)
        one = {key: rows for key, rows in made.items() if len({endpoint[row] for row in rows}) == 1}
        received, ends = requests.received_ns.tolist(), requests.end_ns.tolist()
        return {
            key: _Served(rows, [received[row] for row in rows], [ends[row] for row in rows])
            for key, rows in (one | own).items()
        }

    def find(self, keys: I64, time: I64) -> I64:
        """Return whose the work of threads at times is: a request, -1 for none, or `UNKNOWN`."""
        found = np.full(len(keys), UNKNOWN, np.int64)
        process, task = self._find_running(keys, time)
        for row in np.flatnonzero(task > 0).tolist():
            of = int(process[row])
            for each in self._above(of, int(task[row])):
                if (served := self._served.get((of, each))) is not None:
                    found[row] = served.find(int(time[row]))
                    break
        return found

    def replace_slices(self, slices: Slices) -> Slices:
        """Return slices in which those of threads with tasks are what their tasks ran."""
        parts = [slices.take(~np.isin(thread_keys(slices.host, slices.tid), self._every))]
        parts += [self._make_slices(key) for key in self._every.tolist()]
        made = Slices(**Slices.join_columns(parts))
        return made.take(np.argsort(made.begin_ns, kind="stable"))

    def _make_slices(self, key: int) -> Slices:
        """Return a slice for each step of a task that a thread ran for a request."""
        steps, requests = self._steps[key], self._requests
        begin, end = steps.time[:-1], steps.time[1:]
        request = self.find(np.full(len(begin), key), begin)
        kept = (request >= 0) & (end > begin)
        begin, end, request = begin[kept], end[kept], request[kept]
        mine = thread_keys(self._endpoints.host[requests.endpoint], requests.reader_tid) == key
        received, ended = np.sort(requests.received_ns[mine]), np.sort(requests.end_ns[mine])
        run, cpus = spend_thread(self._activity, key, begin, end)
        many = len(begin)
        return Slices(
            tid=np.full(many, key & 0xFFFFFFFF, np.int32),
            host=np.full(many, key >> 32, np.int32),
            begin_ns=begin,
            end_ns=end,
            request=request.astype(np.int32),
            unanswered=(
                np.searchsorted(received, begin, side="right")
                - np.searchsorted(ended, begin, side="left")
            ).astype(np.int32),
            how=np.full(many, Rule.TASK, np.uint8),
            attribution=np.full(many, Certainty.CERTAIN, np.uint8),
            run_ns=run,
            idle_ns=end - begin - run,
            cpus=cpus,
        )


class _Served:
    """The requests of one task, in order of receiving."""

    def __init__(self, rows: list[int], received: list[int], ends: list[int]) -> None:
        self._rows, self._received, self._ends = rows, received, ends
        self._latest = list(accumulate(ends, max))

    def find(self, time: int) -> int:
        """Return the one that is under way, -1 where none is, `UNKNOWN` where several are."""
        last = bisect_right(self._received, time)
        if not last or self._latest[last - 1] < time:
            return NONE
        if last > 1 and self._latest[last - 2] >= time:
            return UNKNOWN
        return self._rows[last - 1]
