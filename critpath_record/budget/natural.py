"""The natural experiment: what was recorded by chance against what was not."""

from __future__ import annotations

import contextlib
import heapq
import math
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Final

from critpath.schema.parameters.budget import NATURAL

_THREADS: Final = 8  # that are looked at: those that had most cpu time
_SCAN, _SCAN_SHARE = 5.0, 0.0005  # s between two looks for them at least; of a cpu at most
_MOST_PAIRS: Final = 20_000


def pool_kinds(times: Mapping[str, Mapping[bool, Sequence[float]]]) -> tuple[list[float], ...]:
    """Return recorded and other executions of all kinds, as multiples of their kind's median.

    Kinds have chances of their own: as they are, their times would tell of the mixture.
    """
    ours: list[float] = []
    others: list[float] = []
    for of in times.values():
        middle = max(statistics.median([*of[True], *of[False]]), 1e-9)
        ours += [one / middle for one in of[True]]
        others += [one / middle for one in of[False]]
    return ours, others


class Threads:
    """Cpu time (s) and time slices of the threads of the machine that had most cpu time."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._had: dict[str, int] = {}
        self._due = 0.0

    def scan(self) -> None:
        """Choose the threads, if that was some time ago; own ones are none of them."""
        if time.monotonic() < self._due:
            return
        begun = time.thread_time()
        had, before = {}, self._had
        own = str(os.getpid())
        for process in os.listdir("/proc"):  # noqa: PTH208 - no object per process: this is timed
            if not process.isdecimal() or process == own:
                continue
            with contextlib.suppress(OSError, ValueError, IndexError):
                for thread in os.listdir(f"/proc/{process}/task"):  # noqa: PTH208 - as above
                    path = f"/proc/{process}/task/{thread}/schedstat"
                    with open(path, "rb") as file:  # noqa: PTH123 - as above
                        had[path] = int(file.read(100).split()[0])
        self._had = had
        new = {path: ran - before.get(path, 0) for path, ran in had.items()}
        chosen = heapq.nlargest(_THREADS, new, key=new.__getitem__)
        self.close()
        for path in chosen:
            with contextlib.suppress(OSError):
                self._files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        took = time.thread_time() - begun
        self._due = time.monotonic() + max(_SCAN, took / _SCAN_SHARE)

    def read(self) -> dict[str, tuple[float, int]]:
        """Return what each of them had so far."""
        found = {}
        for path, file in self._files.items():
            with contextlib.suppress(OSError, ValueError):
                ran, _, slices = os.pread(file, 100, 0).split()
                found[path] = int(ran) / 1e9, int(slices)
        return found

    def close(self) -> None:
        """Close every file."""
        for file in self._files.values():
            os.close(file)
        self._files = {}


class Neighbours:
    """Compares time just before openings, when nothing was recorded, with that just after.

    When a gate opens was moved by chance: what the program does then is not why.  A pair has what
    a time slice of the program took more while it was recorded (as a logarithm), and the overhead
    that was counted meanwhile, at a correction of 1.
    """

    def __init__(self) -> None:
        self.pairs: list[tuple[float, float]] = []
        self._threads = Threads()
        self._before: tuple[float, dict[str, tuple[float, int]]] | None = None
        self._closed: dict[str, tuple[float, int]] | None = None
        self._opened: tuple[float, dict[str, tuple[float, int]]] | None = None
        self._cost = 0.0

    def prepare(self) -> None:
        """Begin a stretch that will end with an opening, if it does."""
        self._threads.scan()
        self._before = time.monotonic(), self._threads.read()

    def open(self) -> bool:
        """End it and begin the one after; return whether it is worth to end that in time."""
        before, self._before, self._opened = self._before, None, None
        now = time.monotonic()
        if before is None or not NATURAL.stretch / 2 < now - before[0] < 3 * NATURAL.stretch:
            return False
        read = self._threads.read()
        self._closed, self._opened, self._cost = _between(before[1], read), (now, read), 0.0
        return True

    @property
    def is_under_way(self) -> bool:
        """Whether the time after an opening is being compared."""
        return self._opened is not None

    def charge(self, cost: float) -> float | None:
        """Add what was recorded (s); return for how long the stretch is open, None if none is."""
        if self._opened is None:
            return None
        self._cost += cost
        return time.monotonic() - self._opened[0]

    def end(self) -> None:
        """End the stretch after an opening: a pair, if enough happened in both."""
        opened, self._opened = self._opened, None
        if opened is None or time.monotonic() - opened[0] > 3 * NATURAL.stretch:
            return
        after = _between(opened[1], self._threads.read())
        sums = []
        for part in (self._closed or {}, after):
            # The same threads, or a mixture of others would be compared.
            both = [part[name] for name in part if name in (self._closed or {}) and name in after]
            sums.append((sum(ran for ran, _ in both), sum(slices for _, slices in both)))
        (ran, slices), (ran_open, slices_open) = sums
        if min(slices, slices_open) < NATURAL.slices or ran <= 0 or ran_open <= self._cost:
            return
        more = math.log(ran_open / slices_open) - math.log(ran / slices)
        self.pairs.append((more, self._cost / (ran_open - self._cost)))
        if len(self.pairs) > _MOST_PAIRS:
            del self.pairs[: _MOST_PAIRS // 2]

    def ratio(self, newest: int = _MOST_PAIRS) -> tuple[float, float, float] | None:
        """Return what was measured over what was counted, and its 95 % interval; None for few."""
        pairs = self.pairs[-newest:]
        count = len(pairs)
        if count < NATURAL.fewest:
            return None
        more = sorted(pair[0] for pair in pairs)
        counted = statistics.median(pair[1] for pair in pairs)
        if counted <= 0:
            return None
        half = 0.98 * math.sqrt(count)  # of the ranks between which the median is
        low, high = more[max(0, int(count / 2 - half))], more[min(count - 1, int(count / 2 + half))]
        return tuple(math.expm1(of) / counted for of in (statistics.median(more), low, high))  # type: ignore[return-value]

    def correct(self, kappa: float) -> float:
        """Return the correction that follows from what is assumed and what was measured."""
        found = self.ratio(NATURAL.recent)
        if found is None:
            return kappa
        low, middle, high = sorted(max(0.05, of) for of in found)
        sigma = max(1e-3, math.log(high / low) / (2 * 1.96))
        weights = NATURAL.doubt**-2, sigma**-2
        mean = (weights[0] * math.log(kappa) + weights[1] * math.log(middle)) / sum(weights)
        return min(max(math.exp(mean), NATURAL.bounds[0]), NATURAL.bounds[1])

    def close(self) -> None:
        """Close every file."""
        self._threads.close()


def _between(
    first: Mapping[str, tuple[float, int]], last: Mapping[str, tuple[float, int]]
) -> dict[str, tuple[float, int]]:
    return {
        name: (last[name][0] - ran, last[name][1] - slices)
        for name, (ran, slices) in first.items()
        if name in last
    }
