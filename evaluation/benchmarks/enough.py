"""Whether fewer explained executions give as good an answer.

``python evaluation/benchmarks/enough.py``.
Sets of 200 executions against 200, of seven kinds of paths (see `compare_speed`), are compared
as ever, where explaining stops when the causes are settled (`critpath.localize.explaining`), and
with up to 50 explained, whatever they show.  Changes are planted into the sample: time added to
a state of some of its executions, in shares of the excess that are known.  Of the
causes that are not minor ones, precision is the share that is about something planted,
recall the share of the planted changes of a tenth of the excess or more that are named.

*First* is how often the first cause is about the change that adds most.  *Ordered* is a second
reading, written down when the wrong ones had been looked at: it is about one that has nine tenths
of the most, at least, by what causes are ordered by, the time added times the square root of how
many executions it is added to.  Fifty of two hundred cannot tell changes a tenth apart.

``--way settled`` or ``50``: only that.  ``--repeats N``: of every case (10), from ``--seed N``
(0); ``--size N``: executions of either set.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from compare_speed import HELPER, MS, WORKER, Type, draw, types_of

from critpath.flow import compare
from critpath.model import Analysis, CriticalPaths, PathSet, State
from critpath.schema.parameters import overridden
from critpath.schema.parameters.localize import ENOUGH

NINE_TENTHS: Final = 0.9
WAYS: Final = {"settled": ENOUGH.first, "50": 50}  # executions in the first batch


class Change(NamedTuple):
    """Something planted: a state on a thread, in a share of the executions, of a mean (ms)."""

    state: State
    thread: int
    share: float
    ms: float
    spread: float = 0.2


CASES: Final = {
    "one change in all": (Change(State.WAIT_FUTEX, WORKER, 1.0, 20),),
    "one in all, of any length": (Change(State.WAIT_FUTEX, WORKER, 1.0, 20, 1.2),),
    "one in one of twenty": (Change(State.WAIT_FUTEX, WORKER, 0.05, 60),),
    "two in all": (
        Change(State.WAIT_FUTEX, WORKER, 1.0, 14),
        Change(State.RUN, HELPER, 1.0, 8),
    ),
    "three, in some each": (
        Change(State.WAIT_FUTEX, WORKER, 0.5, 30),
        Change(State.WAIT_DISK, WORKER, 0.3, 30),
        Change(State.RUN, HELPER, 0.2, 30),
    ),
    "five, in few each": tuple(
        Change(state, thread, 0.12, 50, 0.5)
        for state, thread in (
            (State.WAIT_FUTEX, WORKER),
            (State.WAIT_DISK, WORKER),
            (State.RUN, HELPER),
            (State.WAIT_NET, WORKER),
            (State.WAIT_TIMER, WORKER),
        )
    ),
    "a rare one of half, a small one": (
        Change(State.WAIT_DISK, WORKER, 0.05, 200),
        Change(State.WAIT_FUTEX, WORKER, 1.0, 10),
    ),
}


def plant(
    paths: PathSet, changes: tuple[Change, ...], seed: int
) -> tuple[PathSet, list[tuple[float, int]]]:
    """Return a set with waits or work more; what each change adds, and to how many."""
    rng = np.random.default_rng(seed)
    of, n = paths.paths, len(paths)
    added: list[tuple[int, int, int, int]] = []  # after segment, state, thread, ns
    sums = []
    for change in changes:
        hit = np.flatnonzero(rng.random(n) < change.share)
        ns = change.ms * MS * rng.lognormal(0, change.spread, len(hit))
        sums.append((float(ns.sum()), len(hit)))
        for execution, more in zip(hit.tolist(), ns.astype(np.int64).tolist(), strict=True):
            first, last = int(of.start[execution]), int(of.start[execution + 1])
            place = first + (last - first) * 2 // 3
            added.append((place, int(change.state), change.thread, more))
    added.sort()
    at = np.array([row[0] for row in added])
    state, thread, ns = (np.array([row[i] for row in added], np.int64) for i in (1, 2, 3))

    def insert(column: np.ndarray, values: np.ndarray | int) -> np.ndarray:
        return np.insert(column, at, np.broadcast_to(values, at.shape)).astype(column.dtype)

    duration = insert(of.end - of.begin, ns)
    start = of.start + np.searchsorted(at, of.start, side="left")
    end = np.cumsum(duration)
    begin = end - duration
    device = np.where(state == State.WAIT_DISK, 1, np.where(state == State.WAIT_FUTEX, 2, 0))
    changed = CriticalPaths(
        start=start,
        begin=begin,
        end=end,
        state=insert(of.state, state),
        detail=insert(of.detail, device),
        comm=insert(of.comm, thread),
        tid=insert(of.tid, 1199 + thread),
        host=insert(of.host, 0),
        cpu=insert(of.cpu, 0),
        lossy=insert(of.lossy, 0),
        strings=of.strings,
        details=of.details,
    )
    executions = replace(paths.executions, begin=begin[start[:-1]], end=end[start[1:] - 1])
    return replace(paths, executions=executions, paths=changed), sums


def named(answer: Analysis, changes: tuple[Change, ...]) -> list[int]:
    """Return which change each cause that is not minor is about, the first first; -1: none."""
    result = []
    for cause in answer.causes:
        facts = cause.facts
        if facts is None or cause.minor or cause.contribution <= 0:
            continue
        role = "helper" if facts.role else ""
        about = (
            i
            for i, change in enumerate(changes)
            if (role == "helper") == (change.thread == HELPER)
            and (change.thread == HELPER or facts.state == change.state.name)
        )
        result.append(next(about, -1))
    return result


class Tally(NamedTuple):
    """What one comparison gave."""

    explained: int
    seconds: float
    right: int
    named: int
    found: int
    planted: int
    first: bool
    ordered: bool


def once(
    answer: Analysis,
    seconds: float,
    changes: tuple[Change, ...],
    planted: list[tuple[float, int]],
) -> Tally:
    """Count what a comparison names."""
    about = named(answer, changes)
    sums = [ns for ns, _ in planted]
    ranks = [ns * executions**0.5 for ns, executions in planted]
    large = {i for i, added in enumerate(sums) if added >= sum(sums) / 10}
    return Tally(
        len(answer.aligned),
        seconds,
        sum(i >= 0 for i in about),
        len(about),
        len(large & set(about)),
        len(large),
        bool(about) and about[0] == int(np.argmax(sums)),
        bool(about) and about[0] >= 0 and ranks[about[0]] >= NINE_TENTHS * max(ranks),
    )


def measure(
    size: int, repeats: int, first_seed: int, ways: tuple[str, ...]
) -> dict[tuple[str, str], list[Tally]]:
    """Compare all cases in every way, in turns."""
    types: list[Type] = types_of((20, 24, 30, 36, 40, 50, 60))
    found = defaultdict(list)
    for name, changes in CASES.items():
        for seed in range(first_seed, first_seed + repeats):
            normal = draw(size, types, 1000 + seed, faulty=False)
            drawn = draw(size, types, 2000 + seed, faulty=False)
            sample, sums = plant(drawn, changes, seed)
            for way in ways:
                with overridden("enough.first", WAYS[way]):
                    began = time.process_time()
                    answer = compare(normal, sample)
                    spent = time.process_time() - began
                found[name, way].append(once(answer, spent, changes, sums))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--way", choices=WAYS, action="append")
    options = parser.parse_args()
    ways = tuple(options.way or WAYS)
    found = measure(options.size, options.repeats, options.seed, ways)
    print("| planted | explained | CPU s | precision | recall | first | ordered |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    whole: defaultdict[str, list[Tally]] = defaultdict(list)
    for (name, way), tallies in found.items():
        whole[way] += tallies
        print(row(f"{name}, {way}", tallies))
    for way, tallies in whole.items():
        print(row(f"all, {way}", tallies))


def row(name: str, tallies: list[Tally]) -> str:
    """Return a line of the table."""
    sums = [sum(column) for column in zip(*tallies, strict=True)]
    n = len(tallies)
    explained, seconds, right, of, hit, planted, first, ordered = sums
    return (
        f"| {name} | {explained / n:.0f} | {seconds / n:.2f} | {right / max(of, 1):.2f} "
        f"| {hit / max(planted, 1):.2f} | {first} of {n} | {ordered} of {n} |"
    )


if __name__ == "__main__":
    main()
