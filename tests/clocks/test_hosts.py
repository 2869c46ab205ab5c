"""Several hosts at once: the truth is within every bound, and no message arrives before it left."""

from __future__ import annotations

import numpy as np
import pytest

from critpath.clocks.hosts import align_clocks
from critpath.model.clocks import UNALIGNED, ClockFacts, Crossings

SPAN, HOSTS = 60e9, 4


@pytest.mark.parametrize("seed", range(12))
def test_clocks_of_four_hosts(seed):
    rng = np.random.default_rng(seed)
    offset, drift = rng.integers(-(10**13), 10**13, HOSTS), rng.uniform(-1e-4, 1e-4, HOSTS)

    def clock(host, time):
        return np.rint(time + offset[host] + drift[host] * time).astype(np.int64)

    exchanged = {}
    for a in range(HOSTS):
        for b in range(a + 1, HOSTS):
            if b > a + 1 and rng.random() < 0.5:
                continue  # these two do not talk
            count, base = int(rng.integers(5, 2000)), rng.choice([5e3, 3e4, 1e6], 2)
            for (left, to), least in zip(((a, b), (b, a)), base, strict=True):
                sent = np.sort(rng.uniform(0, SPAN, count))
                got = sent + least + rng.exponential(2e4, count)
                exchanged[left, to] = Crossings(clock(left, sent) - 1, clock(to, got) + 1)
    facts = [
        ClockFacts(f"h{host}", int(clock(host, 0)), int(clock(host, SPAN))) for host in range(HOSTS)
    ]
    reference = int(rng.integers(HOSTS))
    found = align_clocks(facts, exchanged, reference).hosts
    time = np.linspace(0, SPAN, 501)
    for host, of in enumerate(found):
        own = clock(host, time)
        wrong = clock(reference, time) - own - of.offsets(own)
        low, high = of.bounds(own)
        assert ((low - 1 <= wrong) & (wrong <= high + 1)).all()
    for (a, b), crossed in exchanged.items():
        left = crossed.left + found[a].offsets(crossed.left)
        arrived = crossed.arrived + found[b].offsets(crossed.arrived)
        assert (left <= arrived).all()


def test_hosts_that_talk_to_each_other_but_not_to_the_reference():
    sent = np.arange(0, 10**9, 10**6)
    both = {(1, 2): Crossings(sent, sent + 50_000), (2, 1): Crossings(sent + 10, sent + 50_010)}
    facts = [ClockFacts(name, 0, 10**9) for name in ("app", "db", "web")]
    found = align_clocks(facts, both, 0).hosts
    assert [host.source for host in found[1:]] == [UNALIGNED, UNALIGNED]
