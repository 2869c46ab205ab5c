"""What an event costs here: measured at the start by two own threads, or as it was before."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import platform
import secrets
import stat
import statistics
import time
from bisect import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

from critpath.schema.parameters.budget import MEASURED
from critpath.untrusted import read_object
from critpath_record._pulse import measure_calls, measure_turns
from critpath_record.budget.control import SOFT, TRACING_ON, TRACKER, Costs
from critpath_record.budget.gates import BesideGate, Gate
from critpath_record.dirfd import open_dir

AUTO, AGAIN, NEVER = "auto", "again", "off"

Measure = Callable[[Sequence[Gate], int], Costs]

# Where nothing was measured: more than was seen on any machine that is not emulated (ns).
TABLE: Final = Costs(
    events={**dict.fromkeys(("base", "syscalls", "network", "full"), 450.0), "stacks": 15_000.0},
    closed={
        name: {SOFT: soft, TRACKER: soft, TRACING_ON: 100.0}
        for name, soft in (
            *(("base", 25.0), ("syscalls", 60.0), ("network", 30.0), ("full", 60.0)),
            ("stacks", 25.0),
        )
    },
    interval=1.0,
    measured=False,
)
_OF_TURNS: Final = frozenset({"base", "stacks"})  # what threads make that wake each other
_TURNS, _CALLS = 150, 1500  # of a block: one to two ms
_BLOCKS: Final = 20  # of each state, at least
MOST_SECONDS: Final = 0.3
_MOST_NS, _WIDEST = 20_000, 0.4  # emulated machines are slow
_VERSION: Final = 2
_ROOTS_CACHE: Final = Path("/var/cache/critpath")
_LARGEST: Final = 1 << 20  # bytes of the file


def cache_place(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the file of what was measured before.

    Root's lies where no variable leads: sudo may hand on the user's, and the user may have put
    a link there.
    """
    if os.geteuid() == 0:
        return _ROOTS_CACHE / "costs.json"
    home = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    return Path(home) / "critpath" / "costs.json"


def machine_key(layers: Sequence[str]) -> str:
    """Return what costs depend on: beside a full machine an event costs up to twice as much."""
    of = f"{platform.release()} {machine_model()} mono {' '.join(layers)}"
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    return f"{_VERSION} {of} load {bisect(MEASURED.loads, load)}"


def machine_model() -> str:
    """Return the model of the machine's cpus."""
    with contextlib.suppress(OSError):
        for line in (
            Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        ):
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return os.uname().machine


def measure_events(gates: Sequence[Gate], cpu: int) -> Costs:
    """Measure an event of every layer, open and closed, on one cpu; the table if that fails."""
    before = os.sched_getaffinity(0)
    begin = time.thread_time()
    events, closed = dict(TABLE.events), {name: dict(of) for name, of in TABLE.closed.items()}
    intervals = []
    measured = True
    try:
        os.sched_setaffinity(0, {cpu})
        for gate in gates:
            if gate.name == "network":  # nothing here sends: its events are written as others are
                events[gate.name] = events["base"]
                continue
            work: Callable[[], int] = lambda: measure_turns(_TURNS)  # noqa: E731 - one or the other
            if gate.name not in _OF_TURNS:
                work = lambda: measure_calls(_CALLS)  # noqa: E731 - as above
            found = _compare(gate, cpu, work)
            if found is None or not is_sure(*found):
                events = raise_table(found)
                measured = False
                break
            events[gate.name], interval = found
            intervals.append(interval)
    except OSError:
        measured = False
    finally:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, before)
    seconds = time.thread_time() - begin  # also of what came to nothing
    if not measured:
        return replace(TABLE, events=events, seconds=seconds)
    return Costs(events=events, closed=closed, interval=max(intervals), seconds=seconds)


def find_costs(
    choice: str,
    gates: Sequence[Gate],
    cpu: int,
    place: Path | None = None,
    measure: Measure | None = measure_events,
) -> Costs:
    """Return what recording costs, measured now if nothing new is known or it is asked for.

    Without `measure` it is what was measured before, however long ago, or the table's.
    """
    place = place or cache_place()
    key = machine_key([f"{gate.name}:{gate.state}" for gate in gates])
    if choice == NEVER:
        return TABLE
    known, age = _read(place, key) if choice == AUTO else (None, 0.0)
    if known is not None and (measure is None or age < MEASURED.fresh):
        return known
    if measure is None:
        return TABLE
    found = measure(gates, cpu)
    if found.measured:
        with contextlib.suppress(OSError):
            _write(place, key, found)
    return found if found.measured or known is None else replace(known, seconds=found.seconds)


def forget_costs(place: Path | None = None) -> None:
    """Forget what was measured: a recording has found that events cost something else."""
    with contextlib.suppress(OSError):
        (place or cache_place()).unlink()


def add_costs(
    costs: Costs,
    choice: str,
    beside: Sequence[BesideGate],
    cpu: int,
    measure: Measure | None = measure_events,
) -> Costs:
    """Return costs with those of gates beside the layers, measured apart by probes of theirs."""
    known = {gate.name: gate.event_ns for gate in beside if gate.event_ns}
    met = {of.name: dict.fromkeys((SOFT, TRACING_ON), of.closed_ns) for of in beside if of.event_ns}
    closed = {**costs.closed, **met}
    costs = replace(costs, events={**costs.events, **known}, closed=closed)
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(of.probe(cpu)) for of in beside if not of.event_ns]
        if not probes:
            return costs
        found = find_costs(choice, probes, cpu, measure=measure)
    return replace(
        costs,
        events={**costs.events, **{gate.name: found.events[gate.name] for gate in probes}},
        interval=max(costs.interval, found.interval),
        measured=costs.measured and found.measured,
        seconds=costs.seconds + found.seconds,
    )


def _compare(gate: Gate, cpu: int, work: Callable[[], int]) -> tuple[float, float] | None:
    """Return ns of an event and half its 95 % interval as a share; None if too few blocks."""
    coin = Random(1)  # noqa: S311 - an order
    times: dict[bool, list[float]] = {True: [], False: []}
    counted: list[int] = []
    until = time.monotonic() + MOST_SECONDS
    try:
        while time.monotonic() < until:
            for opened in coin.sample((True, False), 2):
                (gate.open if opened else gate.close)()
                [first] = gate.counts([cpu])
                taken = work()
                if taken < 0:
                    return None
                if opened:
                    counted.append(gate.counts([cpu])[0] - first)
                times[opened].append(taken)
            if len(counted) >= _BLOCKS and estimate(times, counted)[1] < 0.1:
                break
    finally:
        gate.close()
    return estimate(times, counted) if len(counted) >= _BLOCKS else None


def is_sure(each: float, interval: float) -> bool:
    """Return whether it is ours: on a machine that is busy with others it may be theirs."""
    return 20 < each < _MOST_NS and interval <= _WIDEST


def raise_table(found: tuple[float, float] | None) -> dict[str, float]:
    """Return upper values: those of the table, or of what was measured badly if that is more."""
    each, interval = found or (0.0, 0.0)
    least = min(each * (1 + interval), _MOST_NS)
    return {name: max(ns, least) for name, ns in TABLE.events.items()}


def estimate(
    times: Mapping[bool, Sequence[float]], counted: Sequence[float]
) -> tuple[float, float]:
    """Return ns of an event and half its 95 % interval as a share, of blocks open and closed."""
    number = statistics.median(counted)
    if number <= 0:
        return 0.0, 1.0
    # What others do meanwhile only adds: the lower quarter is told by, not the middle.
    lows, spread = {}, 0.0
    for opened, of in times.items():
        low, middle, _ = statistics.quantiles(of, n=4) if len(of) > 1 else (0.0, 0.0, 0.0)
        lows[opened] = low
        spread += ((middle - low) / 0.6745) ** 2 / len(of)
    each = (lows[True] - lows[False]) / number
    error = 1.96 * 1.36 * math.sqrt(spread) / number
    return each, error / each if each > 0 else 1.0


@contextlib.contextmanager
def _directory(place: Path) -> Iterator[int]:
    """Open a directory of one's own, in which nobody else can write; OSError else."""
    descriptor = open_dir(place)
    try:
        about = os.fstat(descriptor)
        if about.st_uid != os.geteuid() or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(errno.EPERM, "others may write there", str(place))
        yield descriptor
    finally:
        os.close(descriptor)


def _read_all(place: Path, directory: int) -> Mapping[str, Any]:
    """Return what is kept; OSError where it cannot be read now, and is not to be replaced."""
    owners = {os.geteuid()}
    return read_object(place.name, _LARGEST, strict=True, dir_fd=directory, owners=owners)


def _read(place: Path, key: str) -> tuple[Costs | None, float]:
    """Return what was measured before, and how long ago (s)."""
    nothing = None, 0.0
    try:
        with _directory(place.parent) as directory:
            found = _read_all(place, directory)[key]
        age = time.time() - found["at"]
        if not 0 <= age < MEASURED.kept:
            return nothing
        events = {name: float(found["events"][name]) for name in TABLE.events}
        interval = float(found["interval"])
    except (OSError, ValueError, TypeError, KeyError):
        return nothing
    if not all(20 < ns < _MOST_NS for ns in events.values()) or not 0 <= interval <= 10:
        return nothing
    return Costs(events=events, closed=TABLE.closed, interval=interval), age


def _write(place: Path, key: str, costs: Costs) -> None:
    place.parent.mkdir(mode=0o755, parents=os.geteuid() != 0, exist_ok=True)
    with _directory(place.parent) as directory:
        entry = {"at": int(time.time()), "events": dict(costs.events), "interval": costs.interval}
        kept = dict([*_read_all(place, directory).items()][-20:]) | {key: entry}
        unfinished = f".{place.name}.{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(unfinished, flags, 0o644, dir_fd=directory)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(json.dumps(kept))
            os.replace(unfinished, place.name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(unfinished, dir_fd=directory)
            raise
