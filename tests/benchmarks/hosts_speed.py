"""How fast what is asked across hosts is answered, and in how much memory.

    python tests/benchmarks/hosts_speed.py [--rounds 5] [--events 20e6] [--recordings DIR ...]

The clocks of a pair of hosts with 100,000 messages, and with ten times as many.  Who asked, where
tokens say it: the simulated asyncio server of `tests/requests` with 32 clients, events a second and
the share of the whole; real recordings (``--recordings``) likewise.  What a million requests and
what was asked for them take as tables.  Three hosts whose traces are simulated
(`large_trace.py`), read as one set within 512 MiB.  (Operations of sockets a second, and extraction
by requests beside the same windows, are `requests_speed.py`; what recording costs is
`recording_requests.py`.)
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import numpy as np
from large_trace import EXECUTION, generate
from measuring import Row, Taken, run, table
from requests_speed import timed

from critpath.clocks.corridor import make_corridor
from critpath.clocks.pair import align_pair
from critpath.model.recording import HOSTS, HOSTS_FORMAT
from critpath.pipeline import extraction
from critpath.requests import assign, links

_CRITPATH = Path(sys.executable).with_name("critpath")
_MESSAGES, _SPAN = 100_000, 60_000_000_000
_HOSTS = 3


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


def token_rows(recordings: list[Path], rounds: int) -> list[Row]:
    """Time tokens on a simulated server, and on recordings."""
    home = Path(__file__).resolve().parents[1] / "requests"
    simulate, drawing = (load(name, home / f"{name}.py") for name in ("simulate", "drawing"))
    given = simulate.arguments(simulate.simulate("loop, a sleep and a call", 32, 3000, 1), drawing)
    rows = token_row(
        "simulated",
        "attributing, simulated asyncio server, 32 clients",
        lambda: links.attribute(*given[:4]),
        rounds,
    )
    for number, place in enumerate(recordings):
        settings = extraction.ExtractSettings(specification="requests")
        work = partial(_extract, place, settings)
        work()
        rows += token_row(str(number), f"extract {place.parent.name}", work, rounds)
    return rows


def _extract(place: Path, settings: extraction.ExtractSettings) -> int:
    return sum(map(len, extraction.extract_recording(place, settings)))


def set_rows(home: Path, events: int) -> list[Row]:
    """Extract a set of simulated hosts, in one process."""
    for host in range(_HOSTS):
        generate(home / f"h{host}", events=events, seed=host + 1)
    hosts = [{"name": f"h{host}", "recording": f"h{host}"} for host in range(_HOSTS)]
    (home / HOSTS).write_text(json.dumps({"format": HOSTS_FORMAT, "hosts": hosts}))
    out = ("--execution", EXECUTION, "--jobs", "1", "--max-memory", "512M")
    taken: Taken = run([_CRITPATH, "--quiet", "extract", home, *out, "-o", home / "out.parquet"])
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
    parser.add_argument("--recordings", type=Path, nargs="*", default=[])
    given = parser.parse_args()
    rows = clock_rows(given.rounds) + token_rows(given.recordings, given.rounds)
    print(table(rows, {}), flush=True)
    if given.events:
        with tempfile.TemporaryDirectory(prefix="critpath-hosts-", dir="/var/tmp") as made:
            print(table(set_rows(Path(made), int(given.events)), {}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
