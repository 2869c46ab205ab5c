"""Who received whose bytes: positions, and what recordings make of them."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from wires import MS, US, Host, ask, connect

from critpath.clocks.hosts import align_clocks
from critpath.clocks.messages import (
    HostPackets,
    bound_messages,
    find_crossings,
    find_messages,
    pair_packets,
)
from critpath.model.clocks import ClockFacts
from critpath.model.requests import Act, Certainty

ASKED = np.random.default_rng(1).integers(40, 500, 64).tolist()


def talk(a, b, ends, time, sizes, *, apart=MS):
    for number, size in enumerate(sizes):
        ask(a, b, ends, time + number * apart, size, 1000 + 3 * size)


def found(a, b, **more):
    return find_messages([a.sockets(), b.sockets()], **more)


@pytest.mark.parametrize("seed", range(20))
def test_pieces_are_those_of_every_byte(seed):
    rng = np.random.default_rng(seed)
    a, b = Host(0), Host(1, clock=-5 * MS)
    ends = connect(a, b, 0)
    wrote = rng.integers(1, 40, rng.integers(1, 30))
    total = int(wrote.sum())
    read = []
    while sum(read) < total and (not read or rng.random() > 0.05):
        read.append(min(int(rng.integers(1, 90)), total - sum(read)))
    for number, size in enumerate(wrote.tolist()):
        a.put(MS + number, Act.SEND, ends[0], size)
    for number, size in enumerate(read):
        b.put(9 * MS + number, Act.RECEIVE, ends[1], size)
    messages, account = found(a, b)
    assert (account.joined, account.unmatched) == (1, 0)
    assert (messages.sure == Certainty.CERTAIN).all()
    owner = np.repeat(np.arange(len(wrote)), wrote)[: sum(read)]
    reader = np.repeat(np.arange(len(read)), read)
    truth = Counter(zip(owner.tolist(), reader.tolist(), strict=True))
    told = {
        (int(sent - MS), int(got - 4 * MS)): int(much)
        for sent, got, much in zip(
            messages.sent_ns, messages.received_ns, messages.bytes, strict=True
        )
    }
    assert told == dict(truth)
    assert messages.last.sum() == len(read)


def test_positions_pass_two_to_the_32():
    a, b = Host(0), Host(1)
    ends = connect(a, b, 0)
    for number in range(12):
        ask(a, b, ends, MS * (number + 1), 1 << 30, 5)
    messages, _ = found(a, b)
    assert len(messages) == 24
    assert messages.position.max() == 11 << 30
    assert ((messages.received_ns - messages.sent_ns) == 30 * US).all()


def test_one_way_goes_on_where_the_other_is_closed():
    a, b = Host(0), Host(1)
    ends = connect(a, b, 0)
    talk(a, b, ends, MS, ASKED[:3])
    b.put(5 * MS, Act.FINISH, ends[1], 0)
    for number in range(4):
        b.put((6 + number) * MS, Act.SEND, ends[1], 700)
        a.put((6 + number) * MS + 30 * US, Act.RECEIVE, ends[0], 700)
    assert len(found(a, b)[0]) == 3 + 3 + 4


def lives(a, b, begins, *, sizes=(100, 100)):
    for begin in begins:
        ends = connect(a, b, begin)
        talk(a, b, ends, begin + MS, sizes)
        a.close(begin + 20 * MS, ends[0])
        b.close(begin + 20 * MS, ends[1])


BEGINS = [0, 3000 * MS, 10_000 * MS, 14_000 * MS, 29_000 * MS]


def keep(host, which):
    """Leave out what was not recorded: other connections than these."""
    host.rows = [row for row in host.rows if row[3] in which]


def test_ports_that_were_used_again_are_not_joined_crosswise():
    a, b = Host(0), Host(1, clock=77 * MS)
    lives(a, b, BEGINS)
    keep(a, {0, 1, 2, 3})
    keep(b, {1, 2, 3, 4})
    messages, account = found(a, b)
    assert (account.joined, account.doubtful) == (3, 2)
    assert (messages.sender_endpoint == messages.receiver_endpoint).all()


def test_ports_that_were_used_again_at_even_times_are_left_out():
    a, b = Host(0), Host(1)
    lives(a, b, [n * 5000 * MS for n in range(5)])
    keep(a, {0, 1, 2, 3})
    keep(b, {1, 2, 3, 4})
    messages, account = found(a, b)
    assert (len(messages), account.joined, account.doubtful) == (0, 0, 8)


def test_a_connection_that_began_at_another_time_than_its_neighbours_is_left_out():
    a, b = Host(0), Host(1)
    for number in range(6):
        ends = connect(a, b, number * 10 * MS, port=40_000 + number)
        talk(a, b, ends, number * 10 * MS + MS, [50])
    # Port 50000 was used twice; one recording has the first, one the second.
    for begin, number in ((15 * MS, 6), (8000 * MS, 7)):
        ends = connect(a, b, begin, port=50_000)
        assert ends == (number, number)
        talk(a, b, ends, begin + MS, [50])
    keep(a, {0, 1, 2, 3, 4, 5, 6})
    keep(b, {0, 1, 2, 3, 4, 5, 7})
    messages, account = found(a, b)
    assert (account.joined, account.doubtful) == (6, 2)
    assert (messages.sender_endpoint == messages.receiver_endpoint).all()


def test_a_loss_in_the_middle_leaves_what_is_before_and_behind():
    a, b = Host(0), Host(1)
    ends = connect(a, b, 0)
    talk(a, b, ends, MS, ASKED)
    b.lossy = [(20 * MS, 23 * MS + 500 * US)]
    messages, account = found(a, b)
    assert account.lost == 1
    assert ((messages.received_ns - messages.sent_ns) == 30 * US).all()
    before = messages.received_ns < 20 * MS
    assert (messages.sure[before] == Certainty.CERTAIN).all()
    assert (messages.sure[~before] == Certainty.LIKELY).all()
    assert len(messages) == 2 * 64 - 2 * 4


def test_connections_from_before_the_recording_are_put_together_by_sizes():
    a, b = Host(0), Host(1, clock=123 * MS)
    ends = connect(a, b, -(10**9), known=False)
    talk(a, b, ends, 0, ASKED[:48])
    a.from_ns, b.from_ns = 5 * MS, 123 * MS + 11 * MS
    messages, _ = found(a, b)
    assert len(messages) == 2 * 37
    apart = np.where(messages.sender_host == 0, 123 * MS, -123 * MS)
    assert (messages.received_ns - messages.sent_ns == apart + 30 * US).all()
    assert (messages.sure == Certainty.LIKELY).all()


def test_messages_of_one_size_need_one_clock():
    a, b = Host(0), Host(1)
    ends = connect(a, b, -(10**9), known=False)
    talk(a, b, ends, 0, [100] * 40)
    b.from_ns = 7 * MS
    assert found(a, b)[1].unmatched == 2
    messages, _ = found(a, b, together=True)
    assert (messages.sure == Certainty.DOUBTFUL).all()
    assert (messages.received_ns - messages.sent_ns == 30 * US).all()
    assert len(messages) == 2 * 33
    assert find_crossings(messages) == {}


@pytest.mark.parametrize("many", [8, 60])
def test_messages_of_one_size_are_told_apart_by_their_rhythm(many):
    rng = np.random.default_rng(many)
    a, b = Host(0), Host(1, clock=55 * MS)
    ends = connect(a, b, -(10**9), known=False)
    for time in np.cumsum(rng.exponential(5 * MS, many)).astype(int).tolist():
        ask(a, b, ends, time, 100, 100, delay=30 * US + int(rng.integers(0, 20 * US)))
    b.from_ns = 55 * MS + 6 * MS
    messages, account = found(a, b)
    assert account.unmatched == 0
    truth = np.abs(messages.received_ns - messages.sent_ns) - 55 * MS
    assert (np.abs(truth) <= 50 * US).all()
    assert (messages.sure == Certainty.LIKELY).all()


@pytest.mark.parametrize("seed", range(12))
def test_few_messages_of_one_size_are_told_apart_by_both_ways_at_once(seed):
    """Connections from before the recording, whose hosts' clocks are known by nothing else."""
    rng = np.random.default_rng(seed)
    clock = int(rng.integers(-(10**12), 10**12))
    a, b = Host(0), Host(1, clock=clock)
    for number, many in enumerate(rng.integers(3, 9, 4).tolist()):
        ends = connect(a, b, -(10**9), port=40_000 + number, known=False)
        for time in np.cumsum(rng.exponential(9 * MS, many) + MS).astype(int).tolist():
            ask(a, b, ends, time, 100, 100, delay=30 * US + int(rng.integers(0, 20 * US)))
    a.from_ns, b.from_ns = 0, clock + int(rng.integers(0, 12 * MS))
    messages, account = found(a, b)
    apart = np.where(messages.sender_host == 0, clock, -clock)
    truth = np.abs(messages.received_ns - messages.sent_ns - apart)
    assert (truth <= 50 * US).all()
    assert (messages.sure == Certainty.LIKELY).all()
    assert account.unmatched <= 2
    assert len(messages) >= 12


def test_messages_at_even_times_are_not_told_apart():
    a, b = Host(0), Host(1, clock=10**9)
    ends = connect(a, b, -(10**9), known=False)
    talk(a, b, ends, 0, [100] * 9, apart=5 * MS)
    b.from_ns = 10**9 + 12 * MS
    assert found(a, b)[1].unmatched == 2


def test_addresses_that_were_translated():
    a, b = Host(0), Host(1)
    inside = ("172.17.0.2", 8080)
    for number in range(3):
        ends = connect(
            a,
            b,
            number * MS,
            port=40_000 + number,
            translated=(inside, ("172.17.0.1", 40_000 + number)),
        )
        talk(a, b, ends, (number + 1) * 10 * MS, ASKED[number : number + 3])
    messages, account = found(a, b)
    assert (account.joined, account.translated) == (3, 3)
    assert (messages.sender_endpoint == messages.receiver_endpoint).all()
    assert (messages.sure == Certainty.LIKELY).all()


def test_translated_connections_that_look_alike_are_not_joined():
    a, b = Host(0), Host(1)
    for number in range(2):
        ends = connect(
            a,
            b,
            number * MS,
            port=40_000 + number,
            translated=(("172.17.0.2", 80), ("172.17.0.1", 50_000 + number)),
        )
        talk(a, b, ends, (number + 1) * 10 * MS, ASKED[:3])
    messages, account = found(a, b)
    assert (len(messages), account.translated, account.doubtful) == (0, 0, 4)


def test_two_ends_within_a_host():
    a = Host(0)
    near, far = ("", 0), ("", 0)
    ends = (a.open(0, near, far, 0, peer=1), a.open(0, near, far, 0, peer=0))
    talk(a, a, ends, MS, ASKED[:16])
    messages, account = find_messages([a.sockets()])
    assert (account.joined, account.within) == (0, 1)
    assert len(messages) == 32
    assert (messages.received_ns - messages.sent_ns == 30 * US).all()


@pytest.mark.parametrize("lose", [False, True])
def test_datagrams_of_connected_sockets(lose):
    a, b = Host(0), Host(1)
    ends = connect(a, b, 0, known=False)
    talk(a, b, ends, MS, ASKED[:5])
    if lose:
        b.rows = [row for row in b.rows if row[4] != ASKED[2]]
    messages, account = find_messages([h.sockets(datagram=True) for h in (a, b)])
    assert (len(messages), account.unmatched) == ((5, 1) if lose else (10, 0))
    assert (messages.sure == Certainty.LIKELY).all()


def test_packets_without_sequence_numbers_pair_nothing():
    headers = np.array([[1, 53, 2, 4000, 0, 0, 0]] * 5)
    times = np.arange(5) * MS
    none = np.zeros((0, 7), np.int64)
    sent = HostPackets(times, np.zeros(5, np.bool_), headers)
    # The first was lost: what arrives first is the second.
    got = HostPackets(times[1:] + 30 * US, np.ones(4, np.bool_), headers[1:])
    assert pair_packets([sent, got]) == {}
    headers[:, 4] = 1 + np.arange(5)
    [pair] = pair_packets([sent, HostPackets(got.times, got.received, headers[1:])]).values()
    assert (pair.arrived - pair.left == 30 * US).all()
    assert pair_packets([sent, HostPackets(none[:, 0], none[:, 0] > 0, none)]) == {}


def test_a_port_scan_and_many_connections_are_quick():
    a, b = Host(0), Host(1)
    for number in range(2000):
        connect(a, b, number, port=1 + number)
    for number in range(300):
        ends = connect(a, b, number * MS, port=10_000 + number)
        talk(a, b, ends, number * MS + US, [50, 60], apart=100 * US)
    messages, account = found(a, b)
    assert (account.joined, len(messages)) == (300, 1200)


def test_two_processes_share_a_listening_socket_and_a_child_inherits_a_connection():
    a, b = Host(0), Host(1)
    ends = connect(a, b, 0)
    for number, tid in enumerate((20, 21, 20, 22)):
        at = MS * (number + 1)
        a.put(at, Act.SEND, ends[0], 10)
        b.put(at + 30 * US, Act.RECEIVE, ends[1], 10, tid=tid)
    messages, _ = found(a, b)
    assert messages.receiver_tid.tolist() == [20, 21, 20, 22]


def test_a_response_longer_than_the_recording():
    a, b = Host(0), Host(1)
    ends = connect(a, b, 0)
    b.put(2 * MS, Act.SEND, ends[1], 1000)
    for number in range(5):  # the sends behind the first were not recorded any more
        a.put((3 + number) * MS, Act.RECEIVE, ends[0], 500)
    messages, account = found(a, b)
    assert account.unmatched == 0
    assert messages.bytes.tolist() == [500, 500]
    assert (messages.sure == Certainty.LIKELY).all()


def test_bounds_are_those_of_both_clocks():
    a, b = Host(0), Host(1, clock=10**9)
    ends = connect(a, b, 0)
    talk(a, b, ends, MS, ASKED[:16])
    messages, _ = found(a, b)
    facts = [ClockFacts("a", 0, 30 * MS), ClockFacts("b", 10**9, 10**9 + 30 * MS)]
    alignment = align_clocks(facts, find_crossings(messages))
    clock = alignment.hosts[1]
    b.clock = 0
    aligned = bound_messages(found(a, b, together=True)[0], alignment)
    assert (aligned.bound_ns >= 25 * US).all()
    assert aligned.bound_ns.max() <= clock.bound + 1
