"""Measures the machine while something is recorded on it: how fast it is, and who else uses it.

Nothing here decides a verdict.  It says why one may not be possible: another recording was
made while the machine was slower, or while others had its cpus.
"""

from __future__ import annotations

import os
import re
import resource
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from critpath_record._pulse import Chain, measure_calls, measure_overshoot, name_thread
from critpath_record.manifests import sample_clock
from critpath_record.proc import read_text

PERIOD: Final = 0.05  # s between two probes, at least
_SHARE: Final = 0.0024  # of one cpu: with what it takes to be woken, 0.3 %
_ROW: Final = 1.0  # s
_MOST_ROWS: Final = 7200  # of longer recordings every second, fourth... row is kept
_MILLION: Final = 1_000_000
_TOLD: Final = 1.2  # probes that differ so much, and no steal: the host does not tell

_PRESSURES: Final = ("cpu", "io", "memory")
_TICKS: Final = ("busy", "steal", "idle")
_FEW: Final = 10

Probe = Callable[[], int]


def make_probes() -> dict[str, Probe]:
    """Return the probes by kind; each returns nanoseconds."""
    return {
        "l1": Chain(1 << 14, 6000).measure,
        "l2": Chain(1 << 19, 600).measure,
        "memory": Chain(1 << 25, 250).measure,
        "syscall": lambda: measure_calls(150),
        "wake": lambda: measure_overshoot(50_000),
    }


class Machine:
    """The machine's state in rows of a second, `start` to `stop`; probes in turns, if any."""

    def __init__(self, probes: Mapping[str, Probe]) -> None:
        self._probes = probes
        self._seen: dict[str, list[int]] = {kind: [] for kind in probes}
        self._rows: list[list[int]] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="critpath-probe", daemon=True)
        self._first: list[int] = []
        self.clock: list[tuple[int, int]] = []  # samples: the trace's time, and the epoch's
        self._used = (0.0, 0.0)

    def start(self) -> None:
        """Begin to measure."""
        self._first, self._used = self._row(), _used()
        self.clock.append(sample_clock())
        self._thread.start()

    def stop(self, *, alone: bool) -> dict[str, object]:
        """Return everything for the manifest; `alone`: what children used since was recorded."""
        if not self._first:
            return {}
        self._ending.set()
        self._thread.join()
        last, used = self._row(), _used()
        self.clock.append(sample_clock())
        self._rows.append([*last, *(0 for _ in self._probes)])
        pressures, probes = (
            [f"{of}_{kind}" for kind in kinds]
            for of, kinds in (("pressure", _PRESSURES), ("probe", self._probes))
        )
        columns = ["time", *pressures, *_TICKS, "disk_requests", *probes]
        own, children = (b - a for a, b in zip(self._used, used, strict=True))
        summary = self._summarize(last, own, children if alone else None)
        return {"columns": columns, "rows": self._rows, "summary": summary}

    def _run(self) -> None:
        name_thread(b"critpath-probe")
        kinds = list(self._probes)
        keep, wait, number = _ROW, PERIOD, 0
        at = dict.fromkeys(kinds, 0)
        due = time.monotonic() + keep
        while not self._ending.wait(wait if kinds else keep):
            if kinds:
                kind = kinds[number % len(kinds)]
                number += 1
                before = time.thread_time()
                self._seen[kind].append(self._probes[kind]())
                wait = max(PERIOD, (time.thread_time() - before) / _SHARE)
            if time.monotonic() < due:
                continue
            row = self._row()
            for kind in kinds:
                new = self._seen[kind][at[kind] :]
                at[kind] = len(self._seen[kind])
                row.append(int(median(new)) if new else 0)
            self._rows.append(row)
            self.clock.append(sample_clock())
            if len(self._rows) > _MOST_ROWS:
                self.clock = self.clock[::2]
                self._rows, keep = self._rows[::2], 2 * keep
            due = time.monotonic() + keep

    def _row(self) -> list[int]:
        return [time.monotonic_ns(), *read_pressures(), *read_ticks(), _disk_requests()]

    def _summarize(self, last: list[int], own: float, children: float | None) -> dict[str, int]:
        """Return shares in millionths and medians in ns: see `critpath.model.summarize_machine`."""
        changes = [b - a for a, b in zip(self._first, last, strict=True)]
        span = max(changes[0], 1) / 1e9
        found = {
            f"pressure_{kind}": min(_MILLION, round(change / span))
            for kind, change, before in zip(_PRESSURES, changes[1:4], self._first[1:4], strict=True)
            if before >= 0
        }
        busy, steal, idle = changes[4:7]
        total = max((busy + steal + idle) / os.sysconf("SC_CLK_TCK"), 0.01)  # s of all cpus
        found["recorder_cpu"] = _share(own, total)
        if children is not None:
            used = busy / os.sysconf("SC_CLK_TCK")
            found["others_cpu"] = _share(used - own - children, total)
        if steal or not self._varies():
            found["steal"] = _share(steal / os.sysconf("SC_CLK_TCK"), total)
        if changes[7] >= 0:
            found["disk_requests"] = changes[7]
        probes = {f"probe_{kind}": round(median(of)) for kind, of in self._seen.items() if of}
        return {**found, **probes}

    def _varies(self) -> bool:
        """Tell whether any probe says that the machine's speed changed."""
        for of in self._seen.values():
            if len(of) >= _FEW:
                tenths = quantiles(of, n=10)
                if tenths[-1] > _TOLD * tenths[0]:
                    return True
        return False


def _share(part: float, whole: float) -> int:
    return min(_MILLION, max(0, round(_MILLION * part / whole)))


def _used() -> tuple[float, float]:
    """Return the cpu time (s) of this process, and of its children that have ended."""
    return tuple(  # type: ignore[return-value]  # two of them
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def read_pressures() -> list[int]:
    """Return how long something waited for cpu, disk and memory (us, PSI); -1 where unknown."""
    found = []
    for kind in _PRESSURES:
        text = read_text(f"/proc/pressure/{kind}")
        total = re.search(r"^some .*total=(\d+)", text, re.MULTILINE)
        found.append(int(total[1]) if total else -1)
    return found


def read_ticks() -> list[int]:
    """Return how long all cpus were busy, stolen from and idle, in ticks; 0 where unknown."""
    fields = [int(x) for x in read_text("/proc/stat").partition("\n")[0].split()[1:9]]
    user, nice, system, idle, waiting, irq, softirq, steal = [*fields, *[0] * 8][:8]
    return [user + nice + system + irq + softirq, steal, idle + waiting]


def _disk_requests() -> int:
    """Return how many requests all disks have completed; partitions and such count twice."""
    rows = [line.split() for line in read_text("/proc/diskstats").splitlines()]
    whole = [row for row in rows if len(row) > 7 and Path(f"/sys/block/{row[2]}").exists()]
    return sum(int(row[3]) + int(row[7]) for row in whole)
