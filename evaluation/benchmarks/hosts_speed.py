"""How fast what is asked across hosts is answered, and in how much memory.

    python evaluation/benchmarks/hosts_speed.py [--rounds 5] [--events 20e6] [--requests 1e6]
                                           [--seconds 15] [--recordings DIR ...]
                                           [--pair NORMAL SAMPLE]

The clocks of a pair of hosts with 100,000 messages, and with ten times as many. Who asked, where
tokens say it: the simulated asyncio server of `tests/pure/requests` with 32 clients, events a
second and the share of the whole; real recordings (``--recordings``) likewise. A million
requests of that server, in a process of its own: operations of sockets a second that are cut into
exchanges, the tables that are kept of requests and what they asked, and the peak of memory while
it is found out who asked. (Both are on top of the rows of sockets and threads themselves, 29
bytes each.) The whole `compare` of two recordings of Redis (made as root, or ``--pair``) by
requests, beside the same executions as ``windows:`` of one file. Three hosts whose traces are
simulated (`large_trace.py`), read as one set within 512 MiB. (What an event of a socket costs to
record is `recording_requests.py`.)
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import numpy as np
from large_trace import EXECUTION, generate
from measuring import LeftOut, Row, Taken, ratios, run, table
from requests_speed import PORTS, record_redis, timed, why_not, width, write_windows

from critpath import flow
from critpath.clocks.corridor import make_corridor
from critpath.clocks.pair import align_pair
from critpath.model import ExtractSettings
from critpath.model.recording import HOSTS, HOSTS_FORMAT
from critpath.model.requests import Act
from critpath.read.recording import Recording
from critpath.requests import assign, links
from critpath.requests.owners import cut_subrequests
from critpath.requests.turns import cut_turns

_CRITPATH = Path(sys.executable).with_name("critpath")
_MESSAGES, _SPAN = 100_000, 60_000_000_000
_HOSTS = 3
_SERVER, _CLIENTS, _DRAWN = "loop, a sleep and a call", 32, 3000
_OPERATIONS = (Act.OPEN, Act.SEND, Act.RECEIVE, Act.CLOSE)
_VERDICTS = {0, 1, 3}  # exit codes of a comparison that was made


def load(name: str, place: Path) -> ModuleType:
    """Import a module of other tests."""
    found = importlib.util.spec_from_file_location(name, place)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    return module


def clock_rows(rounds: int) -> list[Row]:
    """Time the alignment of a pair of hosts."""
    taken: dict[int, list[float]] = {}
    for many in (_MESSAGES, 10 * _MESSAGES):
        rng = np.random.default_rng(1)
        sides = []
        for sign in (-1, 1):
            at = np.sort(rng.integers(0, _SPAN, many // 2))
            delay = (20_000 + rng.exponential(60_000, many // 2)).astype(np.int64)
            sides.append((at, 5_000_000 + (3e-5 * at).astype(np.int64) + sign * delay))

        def align(sides: list[Any] = sides) -> None:
            assert align_pair(make_corridor(*sides), 0, _SPAN) is not None

        align()
        taken[many] = [1e3 * timed(align).cpu for _ in range(rounds)]
    few, all_of = taken[_MESSAGES], taken[10 * _MESSAGES]
    more = tuple(b / a for a, b in zip(few, all_of, strict=True))
    return [
        Row("clocks_pair", "clocks of two hosts, 100,000 messages, ms", tuple(few), 50, False),
        Row("clocks_more", "the same, times as long for ten times as many", more, 3, False),
    ]


class Watched:
    """Times `critpath.requests.assign` while it is entered, within whatever calls it."""

    def __init__(self) -> None:
        self.whole, self.passes, self.events = 0.0, 0.0, 0

    def __enter__(self) -> Self:
        self._assign, self._run = links.assign, assign.run_tokens

        def whole(*given: Any) -> Any:
            found: list[Any] = []
            self.whole += timed(lambda: found.append(self._assign(*given))).cpu
            return found[0]

        def one(tokens: Any, *given: Any, **how: Any) -> Any:
            found: list[Any] = []
            self.passes += timed(lambda: found.append(self._run(tokens, *given, **how))).cpu
            self.events += len(tokens)
            return found[0]

        links.assign, assign.run_tokens = whole, one
        return self

    def __exit__(self, *_: object) -> None:
        links.assign, assign.run_tokens = self._assign, self._run


def token_row(name: str, what: str, work: Any, rounds: int) -> list[Row]:
    """Time what follows tokens in some piece of work, as a share and in events a second."""
    shares, speeds = [], []
    for _ in range(rounds):
        with Watched() as watched:
            total = timed(work).cpu
        shares.append(100 * watched.whole / total)
        if watched.events:
            speeds.append(watched.events / 1e6 / watched.passes)
    rows = [Row(f"tokens_share_{name}", f"tokens, % of {what}", tuple(shares), 5, False)]
    if speeds:
        rows.append(Row(f"tokens_{name}", "M events of tokens a second there", tuple(speeds), 1))
    return rows


def simulated() -> tuple[Any, ...]:
    """Return what is attributed, of a simulated server."""
    home = Path(__file__).resolve().parents[2] / "tests" / "pure" / "requests"
    simulate, drawing = (load(name, home / f"{name}.py") for name in ("simulate", "drawing"))
    given: tuple[Any, ...] = simulate.arguments(
        simulate.simulate(_SERVER, _CLIENTS, _DRAWN, 1), drawing
    )
    return given


def repeated(rows: Any, times: int, span: int, moments: Iterable[str]) -> Any:
    """Return a table so many times, each later than the one before."""
    later = np.repeat(np.arange(times, dtype=np.int64) * span, len(rows))
    columns = {
        field.name: np.tile(getattr(rows, field.name), times) + later * (field.name in moments)
        for field in dataclasses.fields(rows)
        if field.name != "strings"
    }
    kept = {name: of.astype(getattr(rows, name).dtype, copy=False) for name, of in columns.items()}
    return dataclasses.replace(rows, **kept)


def memory_now(what: str) -> int:
    """Return bytes of this process: ``VmRSS``, or ``VmHWM``, the most since it was reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(what))


def attribute_many(requests: int, rounds: int) -> dict[str, Any]:
    """Attribute many requests in this process; return what it took."""
    activity, workers, endpoints, turns, _ = simulated()
    span, times = int(np.ptp(activity.time_ns)) + 1_000_000, -(-requests // len(turns))
    activity = repeated(activity, times, span, {"time_ns"})
    ends = ("begin_ns", "received_ns", "answered_ns", "end_ns")
    turns = repeated(turns, times, span, ends)
    operations = int(np.isin(activity.act, _OPERATIONS).sum())

    def cut() -> None:
        cut_turns(activity, endpoints, 1)
        cut_subrequests(activity, endpoints)

    speed = [operations / 1e6 / timed(cut).cpu for _ in range(rounds)]
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak
    before, found = memory_now("VmRSS"), []
    took = timed(lambda: found.append(links.attribute(activity, workers, endpoints, turns)))
    peak, (made,) = memory_now("VmHWM") - before, found
    tables = width(made.requests) * len(turns) + width(made.subrequests) * len(made.subrequests)
    return {
        "speed": speed,
        "requests": len(turns),
        "tables": tables,
        "slices": width(made.slices) * len(made.slices),
        "peak": peak,
        "rate": len(activity) / 1e6 / took.cpu,
    }


def memory_rows(requests: int, rounds: int) -> list[Row]:
    """Attribute many requests in another process."""
    words = (sys.executable, __file__, "--attribute", str(requests), "--rounds", str(rounds))
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout)
    many, mib = f"{found['requests'] / 1e6:g} M requests", 2**20
    tables, slices, peak = (found[key] / mib for key in ("tables", "slices", "peak"))
    beside = f"slices besides: {slices:.0f} MiB"
    what = "M operations of sockets a second, cut into exchanges"
    rate = found["rate"]
    return [
        Row("operations", what, tuple(found["speed"]), 5),
        Row("attribution", "M rows a second attributed, all passes", (rate,), 1),
        Row("requests_tables", f"{many}: tables, MiB", (tables,), 256, False, beside),
        Row("requests_peak", "the same, peak on top while attributing, MiB", (peak,), 256, False),
    ]


def compare_rows(home: Path, seconds: float, pair: list[Path], rounds: int) -> list[Row | LeftOut]:
    """Compare two recordings of one host by requests, and by the same executions as windows."""
    what = "compare by requests / by the same executions as windows"
    if wrong := "" if pair else why_not():
        return [LeftOut(what, wrong)]
    recordings = pair or record_redis(home, seconds)
    by = f"requests:port={PORTS['redis']}"
    listed = [home / f"{number}.csv" for number in range(2)]
    many = [write_windows(*each) for each in zip(recordings, (by, by), listed, strict=True)]
    # One file for both: windows that are not within a recording are left out.
    both, (first, second) = home / "both.csv", (path.read_text() for path in listed)
    both.write_text(first + second.partition("\n")[2])

    def compare(specification: str) -> Taken:
        words = ("--quiet", "compare", *recordings, "--execution", specification)
        return run([_CRITPATH, *words], codes=_VERDICTS)

    taken = [(compare(by), compare(f"windows:{both}")) for _ in range(rounds)]
    found = ratios([one for one, _ in taken], [other for _, other in taken])
    bound = f"{many[0]:,} and {many[1]:,} requests, {taken[-1][0].cpu:.1f} s of cpu"
    return [Row("requests_compare_share", what, found, 1.3, False, bound)]


def token_rows(recordings: list[Path], rounds: int) -> list[Row]:
    """Time tokens on a simulated server, and on recordings."""
    given = simulated()
    rows = token_row(
        "simulated",
        "attributing, simulated asyncio server, 32 clients",
        lambda: links.attribute(*given[:4]),
        rounds,
    )
    for number, place in enumerate(recordings):
        settings = ExtractSettings(specification="requests")
        work = partial(_extract, place, settings)
        work()
        rows += token_row(str(number), f"extract {place.name}", work, rounds)
    return rows


def _extract(place: Path, settings: ExtractSettings) -> int:
    return sum(map(len, flow.extract_recording(Recording(place), settings)))


def set_rows(home: Path, events: int) -> list[Row]:
    """Extract a set of simulated hosts, in one process."""
    for host in range(_HOSTS):
        generate(home / f"h{host}", events=events, seed=host + 1)
    hosts = [{"name": f"h{host}", "recording": f"h{host}"} for host in range(_HOSTS)]
    (home / HOSTS).write_text(json.dumps({"format": HOSTS_FORMAT, "hosts": hosts}))
    out = ("--execution", EXECUTION, "--jobs", "1", "--max-memory", "512M")
    taken: Taken = run(
        [
            _CRITPATH,
            "--quiet",
            "export",
            "--format",
            "paths",
            home,
            *out,
            "-o",
            home / "out.parquet",
        ]
    )
    peak, rate = taken.peak / 2**20, _HOSTS * events / 1e6 / taken.cpu
    what = f"three hosts of {events / 1e6:g} M events, --max-memory 512M, MiB"
    return [
        Row("hosts_memory", what, (peak,), 512, False),
        Row("hosts_speed", "the same, M events a second of CPU", (rate,)),
    ]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--events", type=float, default=20e6, help="of each host; 0: leave out")
    parser.add_argument("--requests", type=float, default=1e6)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each recording of Redis")
    parser.add_argument("--recordings", type=Path, nargs="*", default=[])
    parser.add_argument("--pair", type=Path, nargs=2, default=[], help="of Redis")
    parser.add_argument("--attribute", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.attribute:
        print(json.dumps(attribute_many(given.attribute, given.rounds)))
        return 0
    rows: list[Row | LeftOut] = [
        *memory_rows(int(given.requests), given.rounds),
        *clock_rows(given.rounds),
        *token_rows(given.recordings, given.rounds),
    ]
    print(table(rows, {}), flush=True)
    with tempfile.TemporaryDirectory(prefix="critpath-hosts-", dir="/var/tmp") as made:
        home = Path(made)
        for name in ("redis", "hosts"):
            (home / name).mkdir()
        print(
            table(compare_rows(home / "redis", given.seconds, given.pair, given.rounds), {}),
            flush=True,
        )
        if given.events:
            print(table(set_rows(home / "hosts", int(given.events)), {}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
