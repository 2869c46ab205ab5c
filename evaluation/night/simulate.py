"""Nights in simulated time: recorded streams of requests through all that is above the kernel.

``python simulate.py NIGHT... [--days N] [--json FILE]``: NIGHT is what ``night.py --keep`` kept:
how long each request took, and when which fault was on. Days are made of stretches of the healthy
time, drawn anew each (all kinds of a stretch together, with its bursts and its neighbour; by day
there are more requests than at night): how often is it noticed that something is slower than
usual? Then the stretch of each fault is put into such a day: is it noticed, after how long?
``--kinds K``: the memory that a day of K kinds takes, instead.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import resource
import struct
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

sys.path.append(str(Path(__file__).resolve().parents[1]))

from results import write_results

from critpath.schema.parameters.noticing import NOTICING
from critpath_record.flight._requests import find_bucket
from critpath_record.flight.noticing import MACHINE, Noticing

_STRETCH: Final = 12  # blocks that are kept together
_AFTER: Final = 10.0  # s after a fault that are not healthy yet
_QUIET: Final = 0.4  # of a stretch's requests that there are at night
_LEARNED: Final = 1_500  # blocks, before a fault is put in

# Of one block: by kind, how long each request took (ns).
Block = dict[str, list[int]]


class Played:
    """What `Noticing` asks of requests, made of blocks."""

    def __init__(self) -> None:
        self.names = ["other"]
        self._rows: list[tuple[Any, ...]] = []

    def set_block(self, block: Block) -> None:
        self._rows = []
        for kind, times in block.items():
            if kind not in self.names:
                self.names.append(kind)
            counts = sorted(Counter(map(find_bucket, times)).items())
            sketch = b"".join(struct.pack("<II", *pair) for pair in counts)
            number = self.names.index(kind)
            self._rows.append((number, len(times), sum(times), 0, 0, 0, 0, 0, 0, sketch))

    def take_block(self) -> list[tuple[Any, ...]]:
        return self._rows

    def look_at_open(self, longest: int) -> None:
        """Nothing is open between blocks."""

    def set_limit(self, kind: int, ns: int) -> None:
        """Nothing is open, so nothing becomes longer than that."""


def read_blocks(night: Path) -> tuple[list[Block], dict[str, list[Block]]]:
    """Return the healthy blocks of a night, and those of each fault."""
    truth = json.loads((night / "truth.json").read_text())
    blocks: dict[tuple[str, int], Block] = defaultdict(lambda: defaultdict(list))
    first: dict[str, float] = {}
    for line in (night / "requests.txt").read_text().splitlines():
        fields = line.split()
        if len(fields) != 4 or fields[3] != "200":
            continue
        at = float(fields[0])
        state = next(
            (s["fault"] if at < s["off"] else ""
             for s in truth if s["on"] <= at < s["off"] + _AFTER), "healthy",
        )  # fmt: skip
        if state:
            begin = first.setdefault(state, at)
            place = state, int((at - begin) / NOTICING.block)
            blocks[place][fields[1]].append(round(1e6 * float(fields[2])))
    healthy = [b for (state, _), b in sorted(blocks.items()) if state == "healthy"]
    faults: dict[str, list[Block]] = defaultdict(list)
    for (state, _), block in sorted(blocks.items()):
        if state != "healthy":
            faults[state].append(block)
    # Those that a fault or the end cut are of fewer requests.
    usual = sorted(sum(map(len, b.values())) for b in healthy)[len(healthy) // 2]
    return [b for b in healthy if sum(map(len, b.values())) > usual / 4], faults


def draw_day(healthy: Sequence[Block], blocks: int, coin: random.Random) -> Iterator[Block]:
    """Yield the blocks of some time, in stretches as they were recorded."""
    made = 0
    phase = coin.random()
    while made < blocks:
        begin = coin.randrange(max(1, len(healthy) - _STRETCH))
        for block in healthy[begin : begin + _STRETCH]:
            turn = made * NOTICING.block / 86_400 + phase
            kept = _QUIET + (1 - _QUIET) * (0.5 + 0.5 * math.sin(2 * math.pi * turn))
            yield {
                kind: [t for t in times if coin.random() < kept] for kind, times in block.items()
            }
            made += 1
            if made == blocks:
                return


def count_alarms(healthy: Sequence[Block], days: int, seed: int) -> Counter[str]:
    """Return how often something was noticed while all was healthy, by what it was."""
    coin = random.Random(seed)
    played = Played()
    noticing = Noticing(played, played.names)
    found: Counter[str] = Counter()
    for number, block in enumerate(draw_day(healthy, round(days * 86_400 / NOTICING.block), coin)):
        played.set_block(block)
        found.update(one.how for one in noticing.end_block(round(1e9 * NOTICING.block * number)))
    return found


def notice(
    healthy: Sequence[Block], fault: Sequence[Block], seed: int, longest: int = 30
) -> tuple[float | None, str]:
    """Return how many s after a fault began it was noticed, and what was said of it."""
    coin = random.Random(seed)
    played = Played()
    noticing = Noticing(played, played.names)
    number = 0
    for block in draw_day(healthy, _LEARNED, coin):
        played.set_block(block)
        noticing.end_block(round(1e9 * NOTICING.block * number))
        number += 1
    for later in range(longest):
        played.set_block(fault[later % len(fault)])
        for one in noticing.end_block(round(1e9 * NOTICING.block * (number + later))):
            which = "the machine" if one.how == MACHINE else one.kind
            return (later + 1) * NOTICING.block, which
    return None, ""


def measure_memory(kinds: int, hours: float) -> Iterator[dict[str, str]]:
    """Yield the memory of a process that watches so many kinds, hour by hour."""
    coin = random.Random(1)
    played = Played()
    noticing = Noticing(played, played.names)
    for hour in range(math.ceil(hours)):
        begin = time.process_time()
        for number in range(round(3600 / NOTICING.block)):
            drawn = [round(coin.lognormvariate(15.4, 0.6)) for _ in range(60)]
            played.set_block({f"server-{k}:80": drawn[k % 7 :: 7] for k in range(kinds)})
            noticing.end_block(round(1e9 * (3600 * hour + NOTICING.block * number)))
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        spent = (time.process_time() - begin) / 3600
        yield {
            "hour": str(hour + 1), "kinds": str(kinds), "memory": f"{rss:.0f} MiB",
            "share of a cpu": f"{100 * spent:.2f} %",
        }  # fmt: skip


def show_rows(rows: Sequence[dict[str, str]]) -> None:
    if rows:
        print(f"| {' | '.join(rows[0])} |\n|{'---|' * len(rows[0])}")
    for row in rows:
        print(f"| {' | '.join(row.values())} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("nights", nargs="*", type=Path)
    parser.add_argument("--days", type=int, default=10, help="healthy ones, one after the other")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kinds", type=int, default=0, help="memory of so many kinds, instead")
    parser.add_argument("--hours", type=float, default=24.0, help="of --kinds")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.kinds:
        rows = list(measure_memory(given.kinds, given.hours))
    else:
        healthy: list[Block] = []
        faults: dict[str, list[Block]] = {}
        for night in given.nights:
            more, of = read_blocks(night)
            healthy += more
            faults |= {name: blocks for name, blocks in of.items() if blocks}
        print(f"{len(healthy)} healthy blocks, {len(faults)} faults")
        rows = []
        for seed in range(given.seeds):
            alarms = count_alarms(healthy, given.days, seed)
            rows.append({
                "what": f"{given.days} healthy days", "times": "1",
                "noticed": f"{alarms.total()} times ({alarms.total() / given.days:.1f} a day)",
                "after": "-", "of": ", ".join(f"{n} {how}" for how, n in alarms.items()),
            })  # fmt: skip
        for name, blocks in sorted(faults.items()):
            found = [notice(healthy, blocks, seed) for seed in range(given.seeds)]
            after = sorted(seconds for seconds, _ in found if seconds is not None)
            rows.append({
                "what": name, "times": str(len(found)), "noticed": str(len(after)),
                "after": f"{after[len(after) // 2]:.0f} s" if after else "-",
                "of": ", ".join(sorted({which for _, which in found if which})),
            })  # fmt: skip
    show_rows(rows)
    if given.json:
        write_results(given.json, rows)


if __name__ == "__main__":
    main()
