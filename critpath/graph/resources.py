"""What limits, disks and memory made of the waits on critical paths.

The scheduler's events tell that a thread could run and did not, or that a disk ended its sleep.
Other sources say why: what control groups counted while they reached a limit, the timers that
end a quota's periods, the requests of disks, and when a thread had to free memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from msgspec import Struct

from critpath.model import (
    I64,
    RUNNING,
    U8,
    Bool,
    CriticalPaths,
    PathSet,
    ReachedLimit,
    Resources,
    State,
    Workers,
)
from critpath.model.details import Detail, disk_limit, memory_of, quota_of, word_detail
from critpath.model.paths import SEGMENT_COLUMNS
from critpath.model.recording import DiskRate
from critpath.schema.kinds import WAITS
from critpath.schema.parameters.replay import WAITING

_WORKER: Final = "kworker/"  # issues requests for threads that the trace may not name
_QUOTA: Final = "throttles"
_MEMORY: Final = "memory"
# What a thread that has to free memory does meanwhile, all for that.
_RECLAIMING: Final = np.array(
    sorted(RUNNING | WAITS - {State.WAIT_CPU, State.WAIT_QUOTA, State.WAIT_STOPPED})
)
# Another meaning of a part of a segment: its begin and end, the state, the detail.
Part = tuple[int, int, State, Detail]


def explain_waits(
    paths: PathSet,
    workers: Workers,
    resources: Resources,
    reached: Sequence[ReachedLimit],
    disks: Mapping[int, str],
    names: Sequence[str],
) -> PathSet:
    """Return the paths with what limits, disks and memory made of their waits.

    Parameters
    ----------
    paths : PathSet
        Of one recording.
    workers : Workers
    resources : Resources
    reached : sequence of ReachedLimit
    disks : mapping of int to str
        Names of devices.
    names : sequence of str
        What the codes of `resources` mean.
    """
    segments = paths.paths
    limits = [(limit, members_of(limit, workers)) for limit in reached]
    changes: dict[int, list[Part]] = {}
    for limit, members in limits:
        changes |= dict(_find_quota_parts(segments, limit, members, resources.periods))
    changes |= dict(_find_disk_parts(segments, limits, resources.requests, disks, names))
    changes |= dict(_find_reclaim_parts(segments, limits, resources.reclaims))
    beneath = _find_held_beneath(segments, limits)
    if beneath is not None:
        segments = replace(segments, beneath=beneath)
    elif not changes:
        return paths
    return replace(paths, paths=_put_parts(segments, changes) if changes else segments)


def members_of(limit: ReachedLimit, workers: Workers) -> I64:
    """Return the threads of a group: of the processes seen in it, and what they created."""
    pids = np.array(sorted(limit.pids), np.int64)
    member = np.isin(workers.pid, pids) | np.isin(workers.tid, pids)
    while True:
        parent = workers.parent
        more = ~member & (parent >= 0) & member[np.maximum(parent, 0)]
        if not more.any():
            return np.unique(workers.tid[member & (workers.tid > 0)])
        member |= more


# Quotas


class _Held(Struct, frozen=True):
    """When a quota held a group back: rows of what was counted, and ends of its periods."""

    rows: I64
    ends: I64
    period: int

    def allot(self, waits: I64) -> dict[int, list[tuple[int, int]]]:
        """Return the parts of waits in which a quota held a thread back, by the wait's number.

        Never more than was counted: of a row's time those waits get first that begin when its
        time does, as that of a thread does that ran until its group was held back.
        """
        found = [(i, *one) for i, w in enumerate(waits.tolist()) for one in self._candidates(*w)]
        left = dict(enumerate(self.rows[:, 3].tolist()))
        result: dict[int, list[tuple[int, int]]] = {}
        for number, row, off, begin, end in sorted(found, key=lambda x: (x[1], x[2], x[3])):
            del off
            length = min(end - begin, left[row])
            if length > 0:
                left[row] -= length
                result.setdefault(number, []).append((end - length, end))
        return result

    def _candidates(self, begin: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield for a wait: row, how far its begin is from that row's, and the part."""
        first = int(np.searchsorted(self.rows[:, 1], begin, side="right"))
        last = int(np.searchsorted(self.rows[:, 0], end))
        for row in range(first, last):
            since, until, times, time = self.rows[row].tolist()
            # How long each of several was is not recorded, but none exceeds a period.
            longest = time if times <= 1 or not self.period else min(time, self.period)
            over = [min(end, until)]
            if len(self.ends):
                low, high = np.searchsorted(
                    self.ends, (max(since - WAITING.late, begin), min(until, end)), side="right"
                )
                over = self.ends[low:high].tolist()
            for at in over:
                low = max(begin, at - longest)
                if at > low:
                    yield row, abs(begin - (at - longest)), low, at


def _find_held(limit: ReachedLimit, periods: I64) -> _Held | None:
    rows = np.array(sorted(limit.rows.get(_QUOTA, ())), np.int64).reshape(-1, 4)
    rows = rows[rows[:, 3] > 0]
    if not len(rows):
        return None
    period = limit.limits.get("period", 0)
    best: tuple[float, float] | None = None
    ends = np.zeros(0, np.int64)
    for timer in sorted(set(periods[:, 1].tolist())):
        mine = periods[periods[:, 1] == timer, 0]
        found = np.searchsorted(mine, rows[:, 1], side="right") > np.searchsorted(
            mine, rows[:, 0] - WAITING.late
        )
        gap = float(np.median(np.diff(mine))) if len(mine) > 1 else 0.0
        score = float(found.mean()), -abs(gap - period)
        if score[0] >= WAITING.mostly and (best is None or score > best):
            best, ends = score, mine
    return _Held(rows, ends, period)


def _find_quota_parts(
    paths: CriticalPaths, limit: ReachedLimit, members: I64, periods: I64
) -> Iterator[tuple[int, list[Part]]]:
    """Yield the parts of waits for a cpu in which a group's quota held its threads back."""
    held = _find_held(limit, periods)
    if held is None or not len(members):
        return
    detail = quota_of(limit.group, *(limit.limits.get(x, 0) for x in ("quota", "period")))
    rows = np.array(_find_rows(paths, members, [State.WAIT_CPU]), np.int64)
    waits = np.stack([paths.begin[rows], paths.end[rows]], axis=1)
    for number, spans in held.allot(waits).items():
        begin, end = waits[number].tolist()
        whole = _join_spans(spans, begin, end)
        if whole[0][0] == begin:
            # It lost its turn, too: whom it then queues behind did not take it from it.
            whole = [(begin, end)]
        yield int(rows[number]), [(a, b, State.WAIT_QUOTA, detail) for a, b in whole]


def _find_held_beneath(
    paths: CriticalPaths, limits: Sequence[tuple[ReachedLimit, I64]]
) -> U8 | None:
    """Return what threads did while others waited for their turn, where a quota held them back.

    For most of that time, as far as was counted; None where none did.
    """
    behind = np.isin(paths.state, [State.QUEUED, State.SHARED]) & (paths.beneath == State.WAIT_CPU)
    found = np.zeros(len(behind), np.bool_)
    for limit, members in limits if behind.any() else ():
        counted = np.array(sorted(limit.rows.get(_QUOTA, ())), np.int64).reshape(-1, 4)
        for row in np.flatnonzero(behind & np.isin(paths.tid, members)).tolist():
            begin, end = int(paths.begin[row]), int(paths.end[row])
            over = np.minimum(counted[:, 1], end) - np.maximum(counted[:, 0], begin)
            held = int(np.minimum(over.clip(min=0), counted[:, 3]).sum())
            found[row] |= held >= WAITING.mostly * (end - begin)
    made = np.where(found, State.WAIT_QUOTA, paths.beneath).astype(np.uint8)
    return made if found.any() else None


def _join_spans(spans: Iterable[tuple[int, int]], begin: int, end: int) -> list[tuple[int, int]]:
    """Join spans that overlap or nearly do, and what is left at either end of the whole."""
    result: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        first = begin if low - begin <= WAITING.at_once else low
        last = end if end - high <= WAITING.at_once else high
        if result and first - result[-1][1] <= WAITING.at_once:
            result[-1] = result[-1][0], max(result[-1][1], last)
        else:
            result.append((first, last))
    return result


# Disks


def _find_disk_parts(
    paths: CriticalPaths,
    limits: Sequence[tuple[ReachedLimit, I64]],
    requests: I64,
    disks: Mapping[int, str],
    names: Sequence[str],
) -> Iterator[tuple[int, list[Part]]]:
    """Yield for waits for a disk which it was, whose requests were in it, or which limit held."""
    full = {
        (limit.group, what): (np.array(rows, np.int64), members, limit.limits.get(what, 0))
        for limit, members in limits
        for what, rows in limit.rows.items()
        if isinstance(what, DiskRate) and rows
    }
    if not len(requests) and not full:
        return
    queue = _Queue(requests, {c for c, name in enumerate(names) if name.startswith(_WORKER)})
    waits = np.flatnonzero(paths.state == State.WAIT_DISK)
    path_of = np.searchsorted(paths.start, waits, side="right") - 1
    own: dict[int, set[int]] = {}  # the threads of a path
    for row, path in zip(waits.tolist(), path_of.tolist(), strict=True):
        begin, end, tid = int(paths.begin[row]), int(paths.end[row]), int(paths.tid[row])
        detail: Detail | None = None
        for (group, what), (rows, members, limit) in full.items():
            if np.any((rows[:, 0] < end) & (rows[:, 1] > begin)) and tid in members:
                number = f"{what.device >> 20}:{what.device & 0xFFFFF}"
                name = disks.get(what.device, number)
                detail = disk_limit(name, group, what.rate, limit)
        if detail is None and (device := queue.find_awaited(begin, end)) is not None:
            if path not in own:
                mine = paths.tid[paths.start[path] : paths.start[path + 1]]
                own[path] = set(mine.tolist())
            code, share = queue.find_others(begin, end, device, own[path])
            known = word_detail(paths.details[paths.detail[row]])
            name = disks.get(device, known or f"{device >> 20}:{device & 0xFFFFF}")
            detail = Detail(device=name, peer=names[code] if share >= WAITING.mostly else "")
        if detail is not None:
            yield row, [(begin, end, State.WAIT_DISK, detail)]


class _Queue:
    """The requests of all disks, for who had them during a wait."""

    def __init__(self, requests: I64, unknown: Collection[int]) -> None:
        self._unknown = unknown  # names of threads that issue what others asked for
        self._requests = requests[np.argsort(requests[:, 0], kind="stable")]
        self._by_end = requests[np.argsort(requests[:, 1], kind="stable")]
        self._longest = int((requests[:, 1] - requests[:, 0]).max(initial=0))

    def find_awaited(self, begin: int, end: int) -> int | None:
        """Return the disk whose completed request ended a wait."""
        last = int(np.searchsorted(self._by_end[:, 1], end, side="right")) - 1
        if last < 0 or self._by_end[last, 1] < begin:
            return None
        return int(self._by_end[last, 2])

    def find_others(
        self, begin: int, end: int, device: int, own: Collection[int]
    ) -> tuple[int, float]:
        """Return whose requests were in a disk for most of a wait, and for what share of it."""
        low, high = np.searchsorted(self._requests[:, 0], (begin - self._longest, end))
        near = self._requests[low:high]
        near = near[(near[:, 2] == device) & (near[:, 1] > begin)]
        # Few are left: sets are faster than `np.isin`.
        foreign = [tid not in own and by not in self._unknown for *_, tid, by in near.tolist()]
        near = near[np.array(foreign, np.bool_)]
        best = (0, 0.0)
        for code in sorted(set(near[:, 4].tolist())):
            spans = near[near[:, 4] == code, :2].clip(begin, end)
            reach = np.maximum.accumulate(np.append(begin, spans[:, 1]))[:-1]
            covered = int((spans[:, 1] - np.maximum(spans[:, 0], reach)).clip(min=0).sum())
            if covered > best[1] * (end - begin):
                best = code, covered / (end - begin)
        return best


# Memory


def _find_reclaim_parts(
    paths: CriticalPaths, limits: Sequence[tuple[ReachedLimit, I64]], reclaims: I64
) -> Iterator[tuple[int, list[Part]]]:
    """Yield the parts in which a thread freed memory, because a limit or the machine had none."""
    parts: dict[int, list[Part]] = {}
    for tid in sorted(set(reclaims[:, 2].tolist())):
        rows = np.array(_find_rows(paths, np.array([tid]), _RECLAIMING), np.int64)
        memory = next(
            (limit for limit, members in limits if _MEMORY in limit.rows and tid in members), None
        )
        for begin, end, _, group in reclaims[reclaims[:, 2] == tid].tolist():
            size = memory.limits.get("memory", 0) if memory else 0
            detail = memory_of(memory.group if memory else "", size, of_group=bool(group))
            for row in rows[(paths.begin[rows] < end) & (paths.end[rows] > begin)].tolist():
                low, high = max(begin, int(paths.begin[row])), min(end, int(paths.end[row]))
                parts.setdefault(row, []).append((low, high, State.RECLAIM, detail))
    yield from parts.items()


# Segments


def _find_rows(paths: CriticalPaths, tids: I64, states: Sequence[int] | I64) -> list[int]:
    """Return the segments of some threads in some states."""
    wanted: Bool = np.isin(paths.state, states) & np.isin(paths.tid, tids)
    return [int(row) for row in np.flatnonzero(wanted)]


def _put_parts(paths: CriticalPaths, changes: Mapping[int, Sequence[Part]]) -> CriticalPaths:
    """Return the paths with parts of segments in another state; the rest stays as it is."""
    codes = {detail: code for code, detail in enumerate(paths.details)}
    pieces: dict[int, list[tuple[int, int, int, int]]] = {}
    for row, parts in changes.items():
        at, end = int(paths.begin[row]), int(paths.end[row])
        same = int(paths.state[row]), int(paths.detail[row])
        found = []
        for low, high, state, detail in sorted(parts):
            if low > at:
                found.append((at, low, *same))
            code = codes.setdefault(detail, len(codes))
            found.append((max(low, at), high, int(state), code))
            at = max(at, high)
        if at < end:
            found.append((at, end, *same))
        pieces[row] = [piece for piece in found if piece[1] > piece[0]]
    count = np.ones(len(paths.begin), np.int64)
    count[list(pieces)] = [len(of) for of in pieces.values()]
    begins = np.concatenate([[0], np.cumsum(count)])
    source = slice(None) if (count == 1).all() else np.repeat(np.arange(len(count)), count)
    changed = {"begin", "end", "state", "detail", "elsewhere_idle"}
    columns: dict[str, Any] = {
        name: np.asarray(getattr(paths, name)[source]) for name in SEGMENT_COLUMNS
    }
    columns |= {name: columns[name].copy() for name in changed}
    for row, of in pieces.items():
        whole = max(int(paths.end[row] - paths.begin[row]), 1)
        for i, values in enumerate(of, int(begins[row])):
            for name, value in zip(("begin", "end", "state", "detail"), values, strict=True):
                columns[name][i] = value
            # When within the wait it was is not kept: every part has its share.
            idle = int(paths.elsewhere_idle[row])
            part = idle * (values[1] - values[0]) // whole if idle >= 0 else idle
            columns["elsewhere_idle"][i] = part if values[2] == State.WAIT_CPU else 0
    details = tuple(codes)
    return replace(paths, start=begins[paths.start], **columns, details=details)
