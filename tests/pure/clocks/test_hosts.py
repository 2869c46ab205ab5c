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


def exchange(rng, clocks, pair, count=600, delay=30_000):
    """Return messages both ways between two hosts of which neither stands still then."""
    found = {}
    for a, b in (pair, pair[::-1]):
        sent = np.sort(rng.uniform(0, SPAN, count))
        got = sent + delay + rng.exponential(1e4, count)
        awake = np.ones(count, np.bool_)
        for host in pair:
            begin, end = clocks[host][1]
            awake &= (got < begin) | (sent > end)
        found[a, b] = Crossings(
            stopped(clocks[a], sent[awake]) - 1, stopped(clocks[b], got[awake]) + 1
        )
    return found


def stopped(of, time):
    """Return a clock's times, which stood still for a while."""
    ahead, (begin, end) = of
    return np.rint(ahead + time - np.clip(time - begin, 0, end - begin)).astype(np.int64)


@pytest.mark.parametrize("sleeper", [0, 1, 2])
@pytest.mark.parametrize("reference", [0, 1, 2])
def test_a_host_that_was_suspended_whoever_is_the_reference(sleeper, reference):
    rng = np.random.default_rng(10 * sleeper + reference)
    never = (2 * SPAN, 2 * SPAN)
    clocks = [(10**9 * (n + 1), never) for n in range(3)]
    clocks[sleeper] = (clocks[sleeper][0], (25e9, 32e9))
    exchanged = exchange(rng, clocks, (0, 1)) | exchange(rng, clocks, (1, 2))
    facts = [
        ClockFacts(f"h{n}", *stopped(of, np.array([0, SPAN])).tolist())
        for n, of in enumerate(clocks)
    ]
    found = align_clocks(facts, exchanged, reference).hosts
    time = np.linspace(0, SPAN, 2001)
    for place, host in enumerate(found):
        own, truth = stopped(clocks[place], time), stopped(clocks[reference], time)
        # While a clock stands still it has one time for many of another's.
        goes = np.ones(len(time), np.bool_)
        for of in (clocks[place], clocks[reference]):
            goes &= (time < of[1][0]) | (time > of[1][1])
        wrong = (truth - own - host.offsets(own))[goes]
        low, high = (x[goes] for x in host.bounds(own))
        assert ((low - 1 <= wrong) & (wrong <= high + 1)).all()
        assert len(host.steps) == (place != reference and sleeper in {place, reference})
        assert all(abs(abs(by) - 7e9) < 1e5 for _, by in host.steps)


SAMPLED = np.column_stack([np.arange(0, 61, 5) * 10**9, 10**18 + np.arange(0, 61, 5) * 10**9])


def test_the_source_is_that_of_the_least_sure_pair():
    sent = np.arange(0, 60 * 10**9, 10**7)
    talk = {(1, 2): Crossings(sent, sent + 50_000), (2, 1): Crossings(sent + 10, sent + 50_010)}
    facts = [
        ClockFacts("app", 0, 60 * 10**9, "", SAMPLED, 1000, "ptp"),
        ClockFacts("db", 0, 60 * 10**9, "", SAMPLED, 1000, "ptp"),
        ClockFacts("web", 0, 60 * 10**9, "boot"),
        ClockFacts("pod", 0, 60 * 10**9, "boot"),
    ]
    found = align_clocks(facts, talk, 0).hosts
    assert [host.source for host in found] == ["reference", "samples", "samples", "samples"]
    found = align_clocks(facts, talk, 2).hosts
    assert [host.source for host in found] == ["samples", "messages", "reference", "same kernel"]


@pytest.mark.parametrize("step", [0, 5 * 10**6])
@pytest.mark.parametrize("ahead", [0, 10**6])
def test_a_claim_is_judged_against_the_messages_also_where_the_clock_stepped(step, ahead):
    sent = np.arange(0, 60 * 10**9, 10**7)
    later = np.where(sent > 30 * 10**9, step, 0)
    talk = {
        (0, 1): Crossings(sent, sent + later + 50_000),
        (1, 0): Crossings(sent + later + 10, sent + 50_010),
    }
    moved = SAMPLED + np.column_stack(
        [ahead + np.where(SAMPLED[:, 0] > 30 * 10**9, step, 0), 0 * SAMPLED[:, 0]]
    )
    facts = [
        ClockFacts("a", 0, 60 * 10**9, "", SAMPLED, 1000, "ptp"),
        ClockFacts("b", 0, 60 * 10**9, "", moved, 1000, "ptp"),
    ]
    of = align_clocks(facts, talk).hosts[1]
    assert len(of.steps) == (step > 0)
    assert (of.claim, of.claim_held) == (2000, ahead == 0)


@pytest.mark.parametrize("seed", range(6))
def test_who_asked_all_hosts_the_time_aligns_hosts_that_say_nothing(seed):
    rng = np.random.default_rng(seed)
    offset, drift = rng.integers(-(10**13), 10**13, 3), rng.uniform(-1e-4, 1e-4, 3)

    def clock(host, time):
        return np.rint(time + offset[host] + drift[host] * time).astype(np.int64)

    facts = []
    for host in range(3):
        left = np.sort(
            np.concatenate([rng.uniform(-1e9, 0, 20), rng.uniform(SPAN, SPAN + 1e9, 20)])
        )
        there = left + 2e5 + rng.exponential(1e5, 40)
        back = there + 3e5 + rng.exponential(1e5, 40)
        rows = np.column_stack([np.floor(left), clock(host, there), np.ceil(back)])
        facts.append(
            ClockFacts(
                *(f"h{host}", int(clock(host, 0)), int(clock(host, SPAN))),
                probes=rows.astype(np.int64),
            )
        )
    found = align_clocks(facts, {})
    assert [of.host for of in found.hosts] == ["h0", "h1", "h2"]
    time = np.linspace(0, SPAN, 101)
    for host, of in enumerate(found.hosts):
        own = clock(host, time)
        wrong = clock(0, time) - own - of.offsets(own)
        low, high = of.bounds(own)
        assert of.aligned
        assert ((low - 1 <= wrong) & (wrong <= high + 1)).all()
        assert of.middle_bound < 3_000_000
    # What it was asked is no message, and settles nothing where the asker's clock is a host's.
    assert all(of.messages == (0, 0) for of in found.hosts)


@pytest.mark.parametrize("seed", range(8))
def test_hosts_of_one_kernel_are_settled_with_the_others(seed):
    """A host that shares another's kernel says nothing, and changes nothing of the others."""
    rng = np.random.default_rng(seed)
    never = (2 * SPAN, 2 * SPAN)
    clocks = [(10**9 * (n + 1), never) for n in range(3)]
    talk = {}
    for pair in ((0, 1), (1, 2), (0, 2)):
        talk |= exchange(rng, clocks, pair, count=40)
    ends = [stopped(of, np.array([0, SPAN])).tolist() for of in clocks]
    facts = [ClockFacts(f"h{n}", *of, "boot" if n == 1 else "") for n, of in enumerate(ends)]
    pod = ClockFacts("pod", ends[1][0] + 10**9, ends[1][1] - 10**9, "boot")
    alone = align_clocks(facts, talk).hosts
    found = align_clocks([*facts, pod], talk).hosts
    at = np.linspace(*ends[1], 101).astype(np.int64)
    for before, of in zip(alone, found, strict=False):
        assert np.abs(before.offsets(at) - of.offsets(at)).max() <= 2
    assert np.abs(found[1].offsets(at) - found[3].offsets(at)).max() <= 2
    straight = align_clocks(facts, {pair: talk[pair] for pair in talk if 0 in pair}).hosts
    assert any((straight[n].offsets(at) != found[n].offsets(at)).any() for n in (1, 2))
