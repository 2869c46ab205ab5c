"""Which kinds of devices the packets of executions passed."""

from __future__ import annotations

import numpy as np

from critpath.model import EventClass, Events, Executions, Kind
from critpath.model.recording import name_devices
from critpath.schema.environment import read_environment
from critpath.timeline.routes import count_routes

KINDS = {"v1": "veth", "v2": "veth", "eth0": "physical"}
STRINGS = ("", "lo", "v1", "v2", "eth0", "tap", "p1", "p2", "a/b", "x y")
SEND, RECEIVE = range(2)


def packets(*rows, types=("int", "string")):
    """Return packets of (time, name of the device[, buffer, which event, cpu])."""
    rows = [(*row, *(100 + at, SEND, 0)[len(row) - 2 :]) for at, row in enumerate(rows)]
    return Events(
        timestamp=np.array([row[0] for row in rows], np.int64),
        cpu=np.array([row[4] for row in rows], np.int32),
        event_class=np.array([row[3] for row in rows], np.int32),
        offset=np.arange(len(rows), dtype=np.int64) * 2,
        values=np.array([v for row in rows for v in (row[2], STRINGS.index(row[1]))], np.int64),
        strings=STRINGS,
        classes=(
            EventClass("net_dev_queue", Kind.NET_SEND, ("skbaddr", "name"), types, "kernel", 0),
            EventClass(
                "netif_receive_skb", Kind.NET_RECEIVE, ("skbaddr", "name"), types, "kernel", 0
            ),
        ),
        hosts=("a",),
        begin=0,
        end=1000,
    )


def executions(*spans):
    begin, end = (np.array([s[i] for s in spans], np.int64) for i in (0, 1))
    same, texts = np.zeros(len(spans), np.int64), ("",) * len(spans)
    return Executions(tuple(map(str, begin)), begin, end, same, same, texts, texts)


def test_packets_count_while_there_is_an_execution_by_kind_of_device():
    found = [(5, "lo"), *((t, d) for t in (11, 15, 31, 39) for d in ("v1", "v2")), (25, "eth0")]
    counted = count_routes(packets(*found), executions((10, 20), (30, 40)), KINDS)
    assert counted.saved() == {
        "route_executions": 2,
        "route_perhaps_veth": 2,
        "route_devices_veth": 2,
        "route_packets_veth": 8,
        "route_begun_veth": 8,
        "route_names_veth": "v1/v2",
    }


def test_executions_that_overlap_are_one_piece_of_time_and_each_packet_counts_once():
    found = [(t, "lo") for t in (1, 12, 18, 25, 31)]
    counted = count_routes(packets(*found), executions((10, 20), (15, 30), (12, 13)), {})
    assert counted.routes.kinds["loopback"].packets == 3


def test_a_device_of_few_packets_or_few_executions_may_have_been_passed():
    spans = [(i * 100, i * 100 + 50) for i in range(4)]
    often = [(i * 100 + k, "lo") for i in range(4) for k in range(10)]
    once = [(k, "eth0") for k in range(11, 31)]  # many, in one execution only
    few = [(i * 100 + 40, "tap") for i in range(3)]  # less than a tenth
    counted = count_routes(packets(*sorted(often + once + few)), executions(*spans), KINDS)
    kinds = counted.routes.kinds
    assert {kind for kind, route in kinds.items() if route.devices} == {"loopback"}
    assert {kind for kind, route in kinds.items() if route.perhaps} == {
        "loopback",
        "physical",
        "unknown",
    }


def test_without_names_packets_or_executions_nothing_is_said():
    found = [(11, "lo"), (12, "lo")]
    spans = executions((10, 20))
    assert count_routes(packets(*found), spans, {})
    assert count_routes(packets(*found, types=("int", "absent")), spans, {}) is None
    assert count_routes(packets(), spans, {}) is None
    assert count_routes(packets(*found), executions(), {}) is None
    assert count_routes(packets(*found[:1]), executions((10, 20), (30, 40)), {}) is None


def test_a_packet_that_is_forwarded_sets_out_once():
    kinds = {"v1": "veth", "v2": "veth", "p1": "bridged_veth", "p2": "bridged_veth"}
    way = [("v1", SEND), ("p1", RECEIVE), ("p2", SEND), ("v2", RECEIVE)]
    # Two packets on two cpus at once, with the same two buffers in turns.
    found = [
        (20 * turn + 2 * at + cpu, name, 50 + cpu + 2 * (turn % 2), event, cpu)
        for turn in range(5)
        for at, (name, event) in enumerate(way)
        for cpu in (0, 1)
    ]
    counted = count_routes(
        packets(*found), executions((0, 100)), kinds, {"p1": "br0", "p2": "br0", "other": "br1"}
    )
    kinds = counted.routes.kinds
    assert kinds["veth"].packets == kinds["bridged_veth"].packets == 10
    assert (kinds["veth"].begun, kinds["bridged_veth"].begun) == (10, 0)
    assert kinds["bridge"].names == ("br0",)
    assert kinds["bridged_veth"].names == ("p2",)


def test_a_buffer_that_is_used_again_on_its_device_sets_out_again():
    found = [
        (t, "lo", 7, event) for t, event in zip(range(10, 18), (SEND, RECEIVE) * 4, strict=True)
    ]
    counted = count_routes(packets(*found), executions((0, 100)), {})
    loopback = counted.routes.kinds["loopback"]
    assert loopback.begun == loopback.packets == 4


def test_names_that_no_device_can_have_are_not_taken():
    counted = count_routes(packets((1, "a/b"), (2, "x y")), executions((0, 9)), {})
    assert counted.routes.kinds["unknown"].devices == 2
    assert name_devices(read_environment(counted.saved()).routes.kinds["unknown"].names) == ()
    assert name_devices(["lo", "eth0", "eth1"]) == ("eth0", "eth1", "lo")
    assert name_devices("abcd") == name_devices([""]) == name_devices(["a" * 16]) == ()
