"""The native reader against what is known of real traces."""

from __future__ import annotations

import numpy as np
import pytest

from critpath.model import EventRequest, Kind
from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.traces import describe, read_events

EVERYTHING = (EventRequest(Kind.OTHER, ("*",), (("*",),)),)


def test_a_trace_that_babeltrace2_gives_up_is_read_whole(shared):
    events = read_events(shared("public/tc-scp_dest"), EVERYTHING)
    assert events.total == len(events) == 85_729  # as its tracer wrote them
    assert (np.diff(events.timestamp) >= 0).all()
    assert set(events.cpu.tolist()) == {0}
    assert any("packets" in w for w in events.warnings)


def test_losses_of_a_recording_that_lost(guest):
    losses = read_events(guest("lossy"), KERNEL_EVENTS).losses
    discarded = [x for x in losses if x.reason == "discarded"]
    assert sum(x.events for x in discarded) == 5010
    assert all(x.begin < x.end and x.cpu in {0, 1} and not x.packets for x in discarded)


def test_losses_of_a_public_trace(shared):
    losses = read_events(shared("public/bt-multi-domains"), KERNEL_EVENTS).losses
    assert [(x.events, x.reason, x.cpu) for x in losses] == [(728, "discarded", 0)]


def test_kernel_events_have_their_kinds_and_fields(guest):
    events = read_events(guest("full"), KERNEL_EVENTS)
    kinds = {c.kind for c in events.classes}
    assert {Kind.SWITCH, Kind.WAKEUP, Kind.FORK, Kind.SYSCALL_ENTRY, Kind.STATEDUMP} <= kinds
    wanted = {w.kind: w for w in KERNEL_EVENTS}
    for of in events.classes:
        assert of.fields == tuple(names[0] for names in wanted[of.kind].fields)
    switch = next(c for c in events.classes if c.kind is Kind.SWITCH)
    assert switch.types == ("str", "int", "int", "str", "int")
    rows = events.rows("sched_switch")
    names = {events.strings[c] for c in events.column(rows, "next_comm").tolist()}
    assert "worker" in names
    # Who comes in next on a cpu is who goes out at the following switch.
    for cpu in (0, 1):
        here = rows[events.cpu[rows] == cpu]
        came = events.column(here, "next_tid")[:-1]
        went = events.column(here, "prev_tid")[1:]
        assert (came == went).all()


def test_old_names_have_the_same_kinds(shared):
    events = read_events(shared("public/tc-bug446190"), KERNEL_EVENTS)
    names = {c.name: c for c in events.classes}
    assert names["softirq_entry"].kind is Kind.SOFTIRQ_ENTRY
    assert names["hrtimer_expire_entry"].kind is Kind.TIMER_ENTRY
    assert names["exit_syscall"].kind is Kind.SYSCALL_EXIT
    assert names["sys_open"].kind is Kind.SYSCALL_ENTRY
    assert names["sched_switch"].types == ("str", "int", "int", "str", "int")
    assert names["sched_wakeup"].types == ("int", "str", "int", "int")


def test_network_headers_are_read_by_their_dotted_names(shared):
    events = read_events(shared("public/cb-nodes-pipeline"), KERNEL_EVENTS)
    rows = np.concatenate([events.rows("net_dev_queue"), events.rows("net_if_receive_skb")])
    local = events.column(rows, "network_header.saddr") == (127 << 24) + 1
    ports = events.column(rows, "network_header.transport_header.source_port")
    assert local.any()
    assert (ports[local] > 0).any()
    assert (events.column(rows, "network_header.transport_header.seq")[ports > 0] >= 0).all()


def test_kernel_and_user_space_events_are_one_timeline(guest):
    wanted = (
        *KERNEL_EVENTS,
        EventRequest(Kind.OTHER, ("app:*",), (("id",), ("type",), ("vtid", "tid"))),
    )
    events = read_events(guest("full"), wanted)
    assert not events.warnings  # both count one clock, whatever their offsets say
    assert (np.diff(events.timestamp) >= 0).all()
    begins = events.rows("app:request_begin")
    ends = events.rows("app:request_end")
    assert len(begins) == len(ends) > 0
    assert {c.domain for c in events.classes} == {"kernel", "ust"}
    # The thread that begins a request runs on that cpu in the kernel's view too.
    switches = events.rows("sched_switch")
    running = checked = 0
    for row in begins.tolist():
        before = switches[(switches < row) & (events.cpu[switches] == events.cpu[row])]
        if len(before):
            checked += 1
            tid = events.column(before[-1:], "next_tid")[0]
            running += tid == events.column(np.array([row]), "vtid")[0]
    assert checked > 0
    assert running == checked


CTF2 = {
    "CTF2-7.0-debug-info": 4,
    "CTF2-7.0-lttng-crash": 400,
    "CTF2-7.0-smalltrace": 2,
    "CTF2-7.0-trace-with-index": 4000,
    "CTF2-vl-ints": 1,
}


@pytest.mark.parametrize("name", CTF2)
def test_ctf2_traces_are_read_whole(shared, name):
    path = shared("ctf2") / name
    events = read_events(path, EVERYTHING)
    assert events.total == len(events) == CTF2[name]
    assert not [x for x in events.losses if x.reason.startswith(("damaged", "truncated"))]
    assert (np.diff(events.timestamp) >= 0).all()


def test_describe_names_events_and_fields(guest):
    kernel, user = describe(guest("full"))
    assert kernel.domain == "kernel"
    assert user.domain == "ust"
    assert kernel.host == user.host == "guest"
    assert kernel.events["sched_switch"][:3] == ("prev_comm", "prev_tid", "prev_prio")
    assert {"pid", "tid", "procname", "cpu_id"} <= set(kernel.events["sched_switch"])
    assert "network_header.transport_header.seq" in kernel.events["net_dev_queue"]
    assert kernel.environment.tracer_name == "lttng-modules"
    assert {"app:request_begin", "app:request_end"} <= set(user.events)
