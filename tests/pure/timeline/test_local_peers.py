"""A softirq that a thread raised is that thread's doing, drawn.

Thread 1 is the client, 2 the server, on cpu 0 and 1; 90 and 91 are their ksoftirqd.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "oracle"))
import replay as twin
from building import FUNCTIONS, KSOFTIRQD, build, drawn, find_lifetimes

from critpath.graph.execution_graph import critical_paths
from critpath.model import Kind, Loss, State
from critpath.timeline.replay import replay

SWITCH, WAKING, RAISE = Kind.SWITCH, Kind.WAKING, Kind.SOFTIRQ_RAISE
ENTRY, EXIT = Kind.SOFTIRQ_ENTRY, Kind.SOFTIRQ_EXIT
NET_TX, NET_RX, BLOCK, TASKLET, TIMER = 2, 3, 4, 6, 1
# ftrace's flags where a thread raises (interrupts are off), and in an interrupt.
THREAD, INTERRUPT = 0x81, 0x09
OWN_IPS = {0x0A000001, 0x0A000002}
ETH = (Kind.IRQ_ENTRY, (7, "eth0")), (Kind.IRQ_EXIT, (7,))


def at(begin, *steps, cpu=1):
    """Steps on a cpu, a nanosecond apart."""
    return [(begin + i, cpu, kind, fields) for i, (kind, fields) in enumerate(steps)]


def sleeping(*between, server=2):
    """Thread 1 sleeps 10-60 on cpu 0; what happens on cpu 1, where the server runs, wakes it."""
    rows = [
        (0, 0, SWITCH, (0, 0, 1)),
        (0, 1, SWITCH, (0, 0, server)),
        (10, 0, SWITCH, (1, 1, 0)),
        *between,
        (60, 0, SWITCH, (0, 0, 1)),
        (70, 0, SWITCH, (1, 0, 0)),
    ]
    return sorted(rows, key=lambda row: row[0])


def wait_of(rows, **options):
    """What thread 1 slept for, as text; the twin says the same."""
    timelines = replay(build(rows, **options), OWN_IPS)
    if not options:
        lives = twin.replay(rows, ksoftirqd=KSOFTIRQD, functions=FUNCTIONS, own_ips=OWN_IPS)
        assert find_lifetimes(timelines) == [(tid, thread.intervals) for tid, thread in lives]
    (text,) = drawn(timelines, 1)
    return text.split(", ")[1].partition(" ")[2]


def packet(vec=NET_RX, flags=THREAD):
    """A softirq that is raised and runs at once, and wakes thread 1."""
    return (RAISE, (vec, flags)), (ENTRY, (vec,)), (WAKING, (1,)), (EXIT, (vec,))


@pytest.mark.parametrize("vec", [NET_TX, NET_RX, BLOCK])
@pytest.mark.parametrize("flags", [THREAD, 0])
def test_what_a_thread_raises_is_its_doing(vec, flags):
    assert wait_of(sleeping(*at(20, *packet(vec, flags)))) == "WAIT_TASK<2@22"


def test_without_raises_it_is_if_no_interrupt_came_before():
    entered = packet()[1:]
    assert wait_of(sleeping(*at(20, *entered))) == "WAIT_TASK<2@21"
    assert wait_of(sleeping(*at(20, *ETH, *entered))) == "WAIT_NET(NET_RX)<@23"
    # The interrupt's own softirq, and then the thread's.
    first = (*ETH, (ENTRY, (NET_RX,)), (EXIT, (NET_RX,)))
    assert wait_of(sleeping(*at(20, *first, *entered))) == "WAIT_TASK<2@25"
    # A timer's softirq and the device's, of one interrupt.
    first = (*ETH, (ENTRY, (TIMER,)), (EXIT, (TIMER,)))
    assert wait_of(sleeping(*at(20, *first, *entered))) == "WAIT_NET(NET_RX)<@25"


def test_an_interrupt_that_raises_names_its_device():
    enter, leave = ETH
    steps = (enter, (RAISE, (NET_RX, INTERRUPT)), leave, (ENTRY, (NET_RX,)), (WAKING, (1,)))
    assert wait_of(sleeping(*at(20, *steps))) == "WAIT_NET(eth0)<@24"


def test_an_interrupt_without_an_event_is_no_thread():
    assert wait_of(sleeping(*at(20, *packet(flags=INTERRUPT)))) == "WAIT_NET(NET_RX)<@22"


@pytest.mark.parametrize(
    ("senders", "said"),
    [
        ([0x0A000001], "packet from this host"),
        ([0x0A000001, 0x0A000002], "packet from this host"),
        ([0x0A000009], "packet from another host"),
        ([0x0A000009, 0x0A000001], "NET_RX"),
        ([0], "NET_RX"),  # of IPv6, or recorded without headers
        ([0x0A000001, 0], "NET_RX"),
    ],
)
def test_a_packets_address_says_whether_it_is_of_this_host(senders, said):
    packets = [(Kind.NET_RECEIVE, (1, address)) for address in senders]
    raise_, enter, wake, leave = packet(flags=INTERRUPT)
    assert wait_of(sleeping(*at(20, raise_, enter, *packets, wake, leave))).startswith(
        f"WAIT_NET({said})<@"
    )
    # A device's name says more than that the packet is another host's.
    steps = (ETH[0], (RAISE, (NET_RX, INTERRUPT)), ETH[1], enter, *packets, wake, leave)
    named = said if said == "packet from this host" else "eth0"
    assert wait_of(sleeping(*at(20, *steps))).startswith(f"WAIT_NET({named})<@")
    # Who sent it by a system call is followed, whatever its address.
    assert wait_of(sleeping(*at(20, packet()[0], enter, *packets, wake, leave))).startswith(
        "WAIT_TASK<2@"
    )
    # Of the softirq before.
    first = (raise_, enter, *packets, leave, raise_, enter, wake, leave)
    assert wait_of(sleeping(*at(20, *first))).startswith("WAIT_NET(NET_RX)<@")


@pytest.mark.parametrize("who", [0, 91])
def test_idle_and_ksoftirqd_are_no_senders(who):
    rows = sleeping(*at(20, *packet(), (EXIT, (NET_RX,))), server=who)
    assert wait_of(rows) == "WAIT_NET(NET_RX)<@22"
    assert wait_of([row for row in rows if row[2] != RAISE]) == "WAIT_NET(NET_RX)<@22"


def test_what_ksoftirqd_does_is_of_the_thread_that_raised_it():
    """The packet is under way from the raise on: the sender may have gone to sleep meanwhile."""
    raise_, enter, wake, leave = packet()
    rows = sleeping(*at(20, raise_), (25, 1, SWITCH, (2, 1, 91)), *at(40, enter, wake, leave))
    assert wait_of(rows) == "WAIT_TASK<2@20"
    timelines = replay(build(rows))
    one = np.flatnonzero(timelines.workers.tid == 1)
    paths = critical_paths(timelines, one, np.array([0]), np.array([70]))
    found = [
        f"{begin}-{end} {State(state).name} {tid}"
        for begin, end, state, tid in zip(
            *(column.tolist() for column in (paths.begin, paths.end, paths.state, paths.tid)),
            strict=True,
        )
    ]
    assert found == ["0-10 RUN 1", "10-20 RUN 2", "20-60 WAIT_CPU 1", "60-70 RUN 1"]


def test_a_packet_that_a_packet_causes_is_of_the_same_thread():
    """An acknowledgement that lets data go is sent by the softirq of the thread that sent it."""
    one = ((RAISE, (NET_RX, THREAD)), (ENTRY, (NET_RX,)), (RAISE, (NET_RX, 0x10)), (EXIT, (3,)))
    assert wait_of(sleeping(*at(20, *one, *packet()[1:]))) == "WAIT_TASK<2@25"
    # Through a tasklet, whose own wakes stay as they are.
    one = ((RAISE, (TASKLET, THREAD)), (ENTRY, (TASKLET,)), (RAISE, (NET_RX, 0x10)), (EXIT, (6,)))
    assert wait_of(sleeping(*at(20, *one, *packet()[1:]))) == "WAIT_TASK<2@25"
    assert wait_of(sleeping(*at(20, *packet(TASKLET)))) == "WAIT_SOFTIRQ(TASKLET)<@22"


def test_a_packet_that_a_timer_sends_is_the_timers():
    one = ((ENTRY, (TIMER,)), (RAISE, (NET_RX, 0x10)), (EXIT, (TIMER,)))
    assert wait_of(sleeping(*at(20, *one, *packet()[1:]))) == "WAIT_TIMER(TIMER)<@24"


def test_the_timers_function_is_named_where_the_recording_knows_it():
    """A delayed acknowledgement lets the peer send, which wakes this thread."""
    expired = (Kind.TIMER_FUNCTION, (-4096,))
    one = ((ENTRY, (TIMER,)), expired, (RAISE, (NET_RX, 0x10)), (EXIT, (TIMER,)), (ENTRY, (3,)))
    two = ((RAISE, (NET_RX, 0x10)), (EXIT, (3,)), *packet()[1:])
    rows = sleeping(*at(20, *one, *two))
    assert wait_of(rows) == "WAIT_TIMER(tcp_delack_timer)<@28"
    woken = ((ENTRY, (TIMER,)), expired, (Kind.TIMER_FUNCTION, (8192,)), (WAKING, (1,)))
    assert wait_of(sleeping(*at(20, *woken))) == "WAIT_TIMER(process_timeout)<@23"
    woken = ((ENTRY, (TIMER,)), expired, (Kind.TIMER_FUNCTION, (7,)), (WAKING, (1,)))
    assert wait_of(sleeping(*at(20, *woken))) == "WAIT_TIMER(TIMER)<@23"


def test_nobody_is_blamed_for_what_may_be_a_devices():
    enter, leave = ETH
    mixed = ((RAISE, (NET_RX, THREAD)), enter, (RAISE, (NET_RX, INTERRUPT)), leave)
    assert wait_of(sleeping(*at(20, *mixed, *packet()[1:]))) == "WAIT_NET(eth0)<@25"
    mixed = (enter, (RAISE, (NET_RX, INTERRUPT)), leave, (RAISE, (NET_RX, THREAD)))
    assert wait_of(sleeping(*at(20, *mixed, *packet()[1:]))) == "WAIT_NET(eth0)<@25"


@pytest.mark.parametrize(
    ("name", "said"), [("virtio2-input.0", "eth0"), ("tsnep-3", "eth9"), ("eth1", "eth1")]
)
def test_a_device_is_named_as_its_owner_knows_it(name, said):
    """The recorder notes whose interrupts are; a driver's names for queues say nothing."""
    enter, leave = (Kind.IRQ_ENTRY, (7, name)), (Kind.IRQ_EXIT, (7,))
    rows = sleeping(*at(20, enter, (RAISE, (NET_RX, INTERRUPT)), leave, *packet()[1:]))
    assert wait_of(rows, kernel="6.18").startswith(f"WAIT_NET({said})<@")


def test_where_storage_interrupts_block_needs_to_be_said_to_be_a_threads():
    """Another processor's interrupt may have sent it, by one of which there is no event."""
    disk = (Kind.IRQ_ENTRY, (7, "nvme0q1")), (Kind.IRQ_EXIT, (7,))
    assert wait_of(sleeping(*at(20, *disk, *packet(BLOCK, 0)))) == "WAIT_DISK(BLOCK)<@24"
    assert wait_of(sleeping(*at(20, *disk, *packet(BLOCK, THREAD)))) == "WAIT_TASK<2@24"


def test_who_raised_is_forgotten_where_events_were_lost():
    raise_, *rest = packet()
    rows = sleeping(*at(20, raise_), *at(40, *rest))
    lost = Loss(begin=25, end=26, host=0, cpu=1, events=3, packets=0, reason="discarded")
    assert wait_of(rows, losses=[lost]) == "WAIT_NET(NET_RX)<@41"
    assert wait_of([r for r in rows if r[2] != RAISE], losses=[lost]) == "WAIT_NET(NET_RX)<@41"


def test_a_thread_that_sends_to_itself_runs():
    rows = [
        (0, 0, SWITCH, (0, 0, 1)),
        *at(5, *packet(), cpu=0),
        (20, 0, SWITCH, (1, 0, 0)),
    ]
    assert drawn(replay(build(rows)), 1) == ["0-20 RUN"]
    # Deferred: it waits for ksoftirqd to get on.
    raise_, *rest = packet()
    rows = [
        *((0, 0, SWITCH, (0, 0, 1)), *at(5, raise_, cpu=0), (10, 0, SWITCH, (1, 1, 90))),
        *at(20, *rest, cpu=0),
        *((30, 0, SWITCH, (90, 1, 1)), (40, 0, SWITCH, (1, 0, 0))),
    ]
    assert drawn(replay(build(rows)), 1) == [
        "0-10 RUN, 10-21 WAIT_TASK<1@5, 21-30 WAIT_CPU, 30-40 RUN"
    ]
    timelines = replay(build(rows))
    one = np.flatnonzero(timelines.workers.tid == 1)
    paths = critical_paths(timelines, one, np.array([0]), np.array([40]))
    assert [State(s).name for s in paths.state] == ["RUN", "WAIT_CPU", "RUN"]
    assert set(paths.tid.tolist()) == {1}
