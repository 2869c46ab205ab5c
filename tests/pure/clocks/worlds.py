"""Two clocks and messages between them, with the truth to the nanosecond."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from critpath.clocks.corridor import make_corridor
from critpath.clocks.icp import align_nearest
from critpath.clocks.pair import PairClock, align_pair
from critpath.model.clocks import HostClock

S = 1e9


@dataclass(frozen=True)
class World:
    """What is between two clocks: A's is the truth, B's runs away from it.

    ``jitter`` is exponential, a share of messages is ``late`` by milliseconds; ``steps`` say
    when B's clock leapt ahead, and by how much.
    """

    messages: int = 1000
    span: float = 60 * S
    offset: int = 1_702_413_822
    drift: float = 50e-6
    base: tuple[float, float] = (30e3, 30e3)
    jitter: tuple[float, float] = (20e3, 20e3)
    late: float = 0.02
    wander: float = 0.0
    period: float = 60 * S
    steps: tuple[tuple[float, float], ...] = ()

    def b(self, a: np.ndarray) -> np.ndarray:
        """Return B's times at A's."""
        bent = self.wander * self.period / (2 * np.pi) * np.sin(2 * np.pi * a / self.period)
        away = self.offset + self.drift * a + bent
        for at, by in self.steps:
            away = away - np.where(a >= at, by, 0)
        return np.rint(a - away).astype(np.int64)

    def corridor(self, rng: np.random.Generator):
        """Return what messages both ways leave possible."""
        sent, got, sent_b, got_b = self.draw_messages(rng)
        return make_corridor((got, sent - got), (sent_b, got_b - sent_b))

    def draw_messages(self, rng: np.random.Generator):
        """Return when messages left A and were at B, and left B and were at A."""
        (left, arrived), (left_b, arrived_b) = (self._way(rng, way) for way in (0, 1))
        sent, got = np.floor(left).astype(np.int64), self.b(arrived)
        sent_b, got_b = self.b(left_b), np.ceil(arrived_b).astype(np.int64)
        return sent, got, sent_b, got_b

    def _way(self, rng, way):
        left = np.sort(rng.uniform(0, self.span, self.messages))
        delay = self.base[way] + rng.exponential(self.jitter[way], self.messages)
        late = rng.random(self.messages) < self.late
        delay[late] += rng.exponential(2e6, int(late.sum()))
        return left, left + delay

    def align(self, seed: int) -> PairClock | None:
        """Return what is found of messages that a seed draws."""
        ends = self.b(np.array([0.0, self.span]))
        return align_pair(self.corridor(np.random.default_rng(seed)), int(ends[0]), int(ends[1]))

    def align_nearest(self, seed: int, off: int) -> PairClock | None:
        """Return what PInfer's method finds, that begins so far off (ns)."""
        sent, got, *_ = self.draw_messages(np.random.default_rng(seed))
        ends = self.b(np.array([0.0, self.span]))
        return align_nearest(sent, got, int(ends[0]), int(ends[1]), shift=off - self.offset)

    def judge(self, found: PairClock) -> tuple[float, float, int]:
        """Return the largest error, the bound in the middle, and how often truth is outside."""
        host = HostClock("b", "messages", found.lines, found.sure, found.steps)
        a = np.linspace(0, self.span, 5001)
        b = self.b(a)
        wrong = a - b - host.offsets(b)
        low, high = host.bounds(b)
        outside = int(((wrong < low - 1) | (wrong > high + 1)).sum())
        return float(np.abs(wrong).max()), float(host.middle_bound), outside


# The table of the specification (section 4.1), and what it says of the margin line (us).
TABLE = {
    "100 messages each way, jitter 20 µs": (World(messages=100), 0.3, 31),
    "10,000": (World(messages=10_000), 0.1, 30),
    "1,000, jitter 500 µs": (World(jitter=(500e3, 500e3)), 0.9, 32),
    "10,000, jitter 20 µs one way, 500 µs the other": (
        World(messages=10_000, jitter=(20e3, 500e3)),
        *(0.3, 30),
    ),
    "10,000, base delay 30 / 130 µs": (World(messages=10_000, base=(30e3, 130e3)), 50, 80),
    "10,000, clock wanders by 1 ppm": (World(messages=10_000, wander=1e-6), 7.2, 24),
    "10,000, WAN 5 ms, jitter 2 ms": (
        World(messages=10_000, base=(5e6, 5e6), jitter=(2e6, 2e6)),
        *(0.7, 5000),
    ),
}


def draw(seed: int) -> World:
    """Return a world: any delays, drift, span; some that wander, some with steps.

    A step that is smaller than the time there and back together cannot be told from none, and
    one with few messages before or after it cannot be placed.
    """
    rng = np.random.default_rng(seed)
    span = float(rng.choice([1, 10, 60, 300])) * S
    period = float(rng.choice([20, 60, 300])) * S
    world = World(
        messages=int(np.exp(rng.uniform(np.log(3), np.log(3000)))),
        span=span,
        offset=int(rng.integers(-(10**15), 10**15)),
        drift=rng.uniform(-2e-4, 2e-4),
        base=tuple(rng.choice([5e3, 30e3, 130e3, 5e6], 2).tolist()),
        jitter=tuple(rng.choice([2e3, 20e3, 500e3], 2).tolist()),
        late=float(rng.choice([0, 0.02, 0.3])),
        wander=float(rng.choice([0, 0, min(3e-6, 0.99e-15 * period / 2 / np.pi)])),
        period=period,
    )
    if rng.random() > 0.4 or world.messages < 200:
        return world
    size = sum(world.base) + 4 * sum(world.jitter)
    places = (np.array([1, 2]) + rng.uniform(-0.3, 0.3, 2)) * span / 3
    count = int(rng.integers(1, 3))
    steps = tuple((float(p), float(size * rng.uniform(1.5, 30))) for p in places[:count])
    return replace(world, steps=steps)
