"""How often healthy requests alarm, and how soon slow ones: ``python noticing.py [--days N]``.

Streams of requests are drawn, with the truth known: they come at a rate that follows the day, are
as long as a curve of the day, a level that wanders and bursts make them, and a slowdown begins at a
known block.  All goes through what a flight recorder does with its blocks (`--when 'slower than
usual'`); only the kernel and the clock are left out.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from critpath.schema.parameters.noticing import NOTICING
from critpath_record.flight.noticing import MACHINE, Noticed, Noticing

_BUCKETS, _IN_OCTAVE, _LOWEST = 1024, 32, 320
DAY: Final = 8640  # blocks
BLOCK: Final = 10_000_000_000  # ns


@dataclass(frozen=True)
class Stream:
    """What requests of a kind are like.

    Attributes
    ----------
    rate : float
        Requests a second.
    wanders, keeps : float
        Of the level's logarithm: standard deviation, and correlation of two blocks.
    bursts, burst : float
        Bursts a day of one to six blocks, in which three of ten take so many times as long.
    day : float
        Amplitude of the day's curve of the level's logarithm.
    """

    rate: float = 20.0
    wanders: float = 0.15
    keeps: float = 0.7
    bursts: float = 6.0
    burst: float = 2.0
    day: float = 0.3


@dataclass(frozen=True)
class Fault:
    """A slowdown: blocks from and until, times, and of which share of requests."""

    begin: int
    end: int
    times: float
    share: float = 1.0


STREAMS: Final = {
    "calm": Stream(wanders=0.05, keeps=0.5, bursts=0),
    "plain": Stream(),
    "bursty": Stream(bursts=60, burst=4),
    "wandering": Stream(wanders=0.3, keeps=0.9),
}


def draw(
    rng: np.random.Generator, of: Stream, blocks: int, fault: Fault | None = None
) -> Iterator[bytes]:
    """Yield the sketch of each block."""
    level, left, phase = 0.0, 0, rng.uniform(0, 2 * math.pi)
    for block in range(blocks):
        level = of.keeps * level + math.sqrt(1 - of.keeps**2) * of.wanders * rng.standard_normal()
        curve = math.sin(2 * math.pi * block / DAY + phase)
        count = int(rng.poisson(of.rate * NOTICING.block * (1 + 0.6 * curve)))
        if left == 0 and rng.random() < of.bursts / DAY:
            left = int(rng.integers(1, 7))
        took = np.exp(rng.normal(math.log(5e6) + level + of.day * curve, 0.6, count))
        took[rng.random(count) < 0.01] *= 8
        if left:
            left -= 1
            took[rng.random(count) < 0.3] *= of.burst
        if fault is not None and fault.begin <= block < fault.end:
            took[rng.random(count) < fault.share] *= fault.times
        yield sketch(took)


def sketch(took: np.ndarray[tuple[int], np.dtype[np.float64]]) -> bytes:
    """Return a sketch of times (ns), as `_requests` makes it."""
    places = np.floor(_IN_OCTAVE * np.log2(np.maximum(took, 1024.0))).astype(int) - _LOWEST
    counts = np.bincount(np.clip(places, 0, _BUCKETS - 1), minlength=1)
    some = np.flatnonzero(counts)
    return np.stack([some, counts[some]], axis=1).astype(np.uint32).tobytes()


class Drawn:
    """Requests that were drawn, in place of those that are followed."""

    def __init__(self, streams: Sequence[Iterator[bytes]]) -> None:
        self._streams = streams

    def look_at_open(self, longest: int) -> None:
        """Nothing is open."""

    def set_limit(self, kind: int, ns: int) -> None:
        """Nothing is open."""

    def take_block(self) -> list[tuple[int, int, int, int, int, int, int, int, int, bytes]]:
        """Return the next block of each kind."""
        rows = []
        for number, stream in enumerate(self._streams, 1):
            of = next(stream)
            count = int(np.frombuffer(of, np.uint32)[1::2].sum())
            if count:
                rows.append((number, count, 0, 0, 0, 0, 0, 0, 0, of))
        return rows


def watch(streams: Sequence[Iterator[bytes]], blocks: int) -> list[tuple[int, Noticed]]:
    """Return what is noticed, with its block."""
    names = ["other", *(f"kind-{n}" for n in range(len(streams)))]
    noticing = Noticing(Drawn(streams), names)  # type: ignore[arg-type]
    return [(at, one) for at in range(blocks) for one in noticing.end_block((at + 1) * BLOCK)]


def count_false(name: str, kinds: int, days: int, seed: int) -> list[tuple[int, Noticed]]:
    """Return what is noticed of healthy kinds of which each has another rate."""
    rates = [0.3, 2.0, 20.0, 60.0]
    rng = np.random.default_rng(seed)
    of = [Stream(**{**vars(STREAMS[name]), "rate": rates[n % 4]}) for n in range(kinds)]
    streams = [draw(np.random.default_rng(rng.integers(1 << 62)), one, days * DAY) for one in of]
    return watch(streams, days * DAY)


def measure_delay(of: Stream, times: float, share: float, seed: int) -> int | None:
    """Return in which block of a slowdown of ten minutes it is noticed, None if not."""
    begin = 480
    rng = np.random.default_rng(seed)
    others = [draw(rng, Stream(rate=5.0), begin + 60) for _ in range(7)]
    slow = draw(rng, of, begin + 60, Fault(begin, begin + 60, times, share))
    found = watch([slow, *others], begin + 60)
    mine = [at - begin + 1 for at, one in found if one.kind == "kind-0" and at >= begin]
    return mine[0] if mine else None


def main() -> None:
    """Print false alarms a day of all kinds together, and how long slowdowns take."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=2)
    parser.add_argument("--kinds", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--streams", nargs="*", default=[*STREAMS])
    asked = parser.parse_args()
    print(f"healthy, {asked.kinds} kinds, {asked.days} days: alarms a day of all together")
    for name in asked.streams:
        found = count_false(name, asked.kinds, asked.days, 7)
        together = sum(one.how == MACHINE for _, one in found)
        early = sum(at < DAY for at, _ in found)
        print(
            f"{name:10} {len(found) / asked.days:5.1f}, {early} of them in the first day, "
            f"{together} of the whole machine",
            flush=True,
        )
    print("slowdowns of one kind beside seven others: blocks of 10 s until it is noticed")
    for rate in (1.0, 5.0, 50.0):
        for times, share in ((1.5, 1.0), (2.0, 1.0), (4.0, 1.0), (10.0, 1.0), (10.0, 0.1)):
            of = Stream(rate=rate)
            delays = [measure_delay(of, times, share, seed) for seed in range(asked.seeds)]
            shown = " ".join("-" if d is None else str(d) for d in delays)
            print(f"{rate:5.0f}/s, {share:4.0%} of requests x{times:<4g} {shown}", flush=True)


if __name__ == "__main__":
    main()
