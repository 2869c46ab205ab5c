"""Packets: matched, linked from sender to the woken thread, clocks of hosts aligned."""

from __future__ import annotations

import numpy as np
import pytest

from critpath.clocks.align import align_events
from critpath.graph.execution_graph import NET, build_graph, critical_paths
from critpath.model import EventClass, Events, Kind, State
from critpath.schema.environment import Environment
from critpath.timeline.network import match_packets
from critpath.timeline.replay import replay

HEADER = "network_header."
FIELDS = {
    Kind.SWITCH: ("prev_comm", "prev_tid", "prev_state", "next_comm", "next_tid"),
    Kind.WAKING: ("tid", "comm", "target_cpu", "success"),
    Kind.SOFTIRQ_ENTRY: ("vec",),
    Kind.SOFTIRQ_EXIT: ("vec",),
    Kind.NET_SEND: ("skbaddr", HEADER + "saddr", HEADER + "transport_header.seq"),
    Kind.NET_RECEIVE: ("skbaddr", HEADER + "saddr", HEADER + "transport_header.seq"),
}


def events_of(rows, hosts=("a",)):
    """Return Events of (time, host, kind, values); every host has one cpu."""
    classes, number = [], {}
    for host in range(len(hosts)):
        for kind, names in FIELDS.items():
            number[host, kind] = len(classes)
            types = tuple("absent" if name == "success" else "int" for name in names)
            classes.append(EventClass(kind.name, kind, names, types, "kernel", host))
    rows = sorted(rows, key=lambda r: r[0])
    values, offset = [], []
    for _, _, kind, given in rows:
        offset.append(len(values))
        values += [*given, *[0] * (len(FIELDS[kind]) - len(given))]
    return Events(
        timestamp=np.array([r[0] for r in rows], np.int64),
        cpu=np.zeros(len(rows), np.int32),
        event_class=np.array([number[r[1], r[2]] for r in rows], np.int32),
        offset=np.array(offset, np.int64),
        values=np.array(values, np.int64),
        classes=tuple(classes),
        strings=("",),
        hosts=hosts,
        begin=rows[0][0],
        end=rows[-1][0],
        environment=tuple(Environment(hostname=h, kernel_release="6.1.0") for h in hosts),
    )


def switch(time, host, prev, state, following):
    return (time, host, Kind.SWITCH, (0, prev, state, 0, following))


def received(time, host, seq, tid, woken=10):
    """The softirq that receives a packet and wakes a thread."""
    return [
        (time, host, Kind.SOFTIRQ_ENTRY, (3,)),
        (time + 2, host, Kind.NET_RECEIVE, (0, 7, seq)),
        (time + woken, host, Kind.WAKING, (tid, 0, 0, 0)),
        (time + woken + 2, host, Kind.SOFTIRQ_EXIT, (3,)),
    ]


def exchange(skew):
    """Client 100 on host a asks server 200 on host b, whose clock is ahead by ``skew``."""
    a = [
        switch(1000, 0, 0, 0, 100),
        (2000, 0, Kind.NET_SEND, (0, 7, 1)),
        switch(2100, 0, 100, 1, 0),
        *received(8000, 0, 2, 100),
        switch(8100, 0, 0, 0, 100),
        switch(9000, 0, 100, 1, 0),
    ]
    b = [
        switch(500, 1, 0, 0, 200),
        switch(1000, 1, 200, 1, 0),
        *received(3000, 1, 1, 200),
        switch(3100, 1, 0, 0, 200),
        (6000, 1, Kind.NET_SEND, (0, 7, 2)),
        switch(6100, 1, 200, 1, 0),
    ]
    return events_of([*a, *((t + skew, *rest) for t, *rest in b)], ("a", "b"))


def path_of_client(events):
    timelines = replay(events)
    graph = build_graph(timelines)
    worker = int(np.flatnonzero(timelines.workers.tid == 100)[0])
    paths = critical_paths(
        timelines, np.array([worker]), np.array([1000]), np.array([9000]), interrupts=False
    )
    return graph, [
        (b, e, State(s).name, t)
        for b, e, s, t in zip(paths.begin, paths.end, paths.state, paths.tid, strict=True)
    ]


def test_the_path_goes_through_the_other_host():
    graph, path = path_of_client(exchange(0))
    assert (graph.link_kind == NET).sum() == 2
    assert path == [
        (1000, 2100, "RUN", 100),
        # The server was woken at 3010 by a packet that had left at 2000, while the
        # client still ran: only what is not the client's own time is in flight.
        (2100, 3010, "NET_TRANSIT", 200),
        (3010, 3100, "WAIT_CPU", 200),
        (3100, 6000, "RUN", 200),
        (6000, 8010, "NET_TRANSIT", 100),
        (8010, 8100, "WAIT_CPU", 100),
        (8100, 9000, "RUN", 100),
    ]


@pytest.mark.parametrize("skew", [-50_000, -700, 0, 900, 10**12])
def test_clocks_of_hosts_are_aligned(skew):
    events = align_events(exchange(skew))
    sent, got = match_packets(events)
    assert len(sent) == 2
    assert np.all(events.timestamp[got] > events.timestamp[sent])
    # Half the round trip in each direction, since nothing says otherwise.
    flight = events.timestamp[got] - events.timestamp[sent]
    assert abs(int(flight[0] - flight[1])) <= 2
    _, path = path_of_client(events)
    assert [p[2] for p in path] == [
        "RUN", "NET_TRANSIT", "WAIT_CPU", "RUN", "NET_TRANSIT", "WAIT_CPU", "RUN",
    ]  # fmt: skip
    assert "clocks: b aligned with a by 2 messages, within ±" in events.warnings[0]


def test_drift_between_clocks_is_followed():
    rows = []
    for i in range(50):
        t = 1_000_000 * i
        theirs = lambda x: round(x * (1 + 50e-6)) + 12_345  # noqa: E731 - read beside its use
        rows += [
            (t, 0, Kind.NET_SEND, (0, 7, 2 * i + 1)),
            (theirs(t + 300), 1, Kind.NET_RECEIVE, (0, 7, 2 * i + 1)),
            (theirs(t + 5000), 1, Kind.NET_SEND, (0, 7, 2 * i + 2)),
            (t + 5300, 0, Kind.NET_RECEIVE, (0, 7, 2 * i + 2)),
        ]
    events = align_events(events_of(rows, ("a", "b")))
    sent, got = match_packets(events)
    flight = events.timestamp[got] - events.timestamp[sent]
    assert len(flight) == 100
    assert flight.min() > 250
    assert flight.max() < 350


def test_a_host_without_packets_keeps_its_clock_and_says_so():
    rows = [switch(1000, 0, 0, 0, 100), switch(99_000, 1, 0, 0, 200)]
    events = align_events(events_of(rows, ("a", "b")))
    assert events.timestamp.tolist() == [1000, 99_000]
    assert "host b" in events.warnings[0]


def test_a_packet_sent_again_belongs_to_the_last_sending():
    rows = [
        (1000, 0, Kind.NET_SEND, (0, 7, 5)),
        (2000, 0, Kind.NET_SEND, (0, 7, 5)),
        (3000, 0, Kind.NET_RECEIVE, (0, 7, 5)),
        (4000, 0, Kind.NET_RECEIVE, (0, 7, 6)),
    ]
    events = events_of(rows)
    sent, got = match_packets(events)
    assert events.timestamp[sent].tolist() == [2000]
    assert events.timestamp[got].tolist() == [3000]


def test_buffers_pair_where_there_are_no_headers():
    rows = [
        (1000, 0, Kind.NET_SEND, (77,)),
        (2000, 0, Kind.NET_RECEIVE, (78,)),
        (3000, 0, Kind.NET_RECEIVE, (77,)),
    ]
    events = events_of(rows)
    sent, got = match_packets(events)
    assert events.timestamp[got].tolist() == [3000]
    assert events.timestamp[sent].tolist() == [1000]
