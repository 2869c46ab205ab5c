"""What recordings say of themselves: one declaration, read from and saved as anybody's mapping."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.model import summarize_machine
from critpath.schema import environment
from critpath.schema.environment import (
    Environment,
    GapCounts,
    Machine,
    RequestCounts,
    Route,
    Routes,
    add_counts,
    fit_moments,
    list_values,
    name_interrupts,
    name_timers,
    read_environment,
    read_machine,
    saved_keys,
)

FULL = Environment(
    hostname="h",
    domain="kernel",
    kernel_release="6.1.0",
    tracer_name="lttng-modules",
    tracer_major=2,
    tracer_minor=13,
    tracer_patchlevel=9,
    timer_functions={-4096: "tcp_delack_timer", 8192: "process_timeout"},
    net_devices={"virtio2-input.0": "eth0"},
    recorded_on="h",
    recorded_cpu="EPYC",
    recorded_cpus=4,
    recorded_profile="full",
    recorded_session="s",
    recorded_beside="normal",
    recorded_command="a b",
    recorded_program="a",
    recorded_blocks=(100, 500),
    recorded_turns=(100, 200, 500),
    recorded_kernel=80,
    recorded_faults=12,
    machine=Machine(probes={"l1": 7}, pressure={"cpu": 10}, others_cpu=1, recorder_cpu=2, steal=3),
    switches_put_in=1,
    switches_written=9,
    holders_inferred=frozenset("ab"),
    holders_recorded=frozenset("c"),
    runs_recorded=5,
    runs_missing=0,
    clocks_sure_to_ns=40,
    requests=RequestCounts(
        requests=7,
        doubtful=0,
        incomplete=1,
        unsolicited=2,
        skipped=3,
        busy_periods=4,
        streams=5,
        unattributed=6,
        untold=9,
        datagrams=7,
        unsure=8,
        unknown=9,
        rings=10,
        left_out={"web:80": {"requests": 3}},
        shared={443: 3, 80: 2},
    ),
    gaps=GapCounts(
        gaps=2,
        gaps_ns=30,
        recorded_ns=99,
        whole=5,
        partial=1,
        by_label={"whole": {"a": 5}},
        strip=((1, 2), (5, 9)),
        bystander=0,
        cut=1,
        overhead={"target": 0.03},
        took={"more": 0.1},
    ),
    routes=Routes(
        executions=2,
        kinds={"veth": Route(2, 1, 8, 0, ("v1", "v2")), "bridge": Route(names=("br0",))},
    ),
    load=(150, 0, 200),
    load_slot_ns=1 << 20,
    stacks=9,
    clock_epoch=0,
    clocks=({"host": "h", "ahead_ns": 4},),
    recording="r",
    left_out=1,
    left_out_of="r",
    left_out_kept=2,
)


def test_everything_declared_is_saved_and_read_as_it_was():
    saved = FULL.saved()
    again = read_environment(saved)
    for each in dataclasses.fields(Environment):
        if each.name != "said":
            value = getattr(FULL, each.name)
            assert value is not None, each.name
            assert getattr(again, each.name) == value, each.name
    assert again == FULL
    assert again.saved() == saved
    assert saved_keys() <= saved.keys()
    assert saved["recorded_turns"] == "100 100 300"
    assert saved["timer_functions"] == "fffffffffffff000=tcp_delack_timer,2000=process_timeout"
    assert (saved["requests_shared_443"], saved["route_names_veth"]) == (3, "v1/v2")
    assert list(saved)[-6:] == [
        *("clock_epoch", "clocks", "recording", "left_out", "left_out_of", "left_out_kept"),
    ]


def test_every_value_says_what_it_is():
    for of in (Environment, Machine, RequestCounts, GapCounts, Routes):
        for each in dataclasses.fields(of):
            assert each.name == "said" or len(each.metadata["what"]) > 5, each.name


def test_what_says_nothing_is_saved_as_nothing():
    assert Environment().saved() == read_environment({}).saved() == {}
    few = Environment(requests=RequestCounts(requests=3, doubtful=0))
    assert few.saved() == {"requests": 3, "requests_doubtful": 0}
    assert not Environment(domain="ust").recorded
    assert read_environment({"domain": "ust", "x": 1}).recorded


TEXTS = st.text(max_size=9) | st.sampled_from(["[", "{}", '[{"host": 1}]', "5 5", "1=a", "a/b"])
KEYS = st.sampled_from([*FULL.saved(), "requests_shared_x", "machine_", "route_names_", "x"])


@given(st.dictionaries(KEYS | TEXTS, TEXTS | st.integers() | st.booleans(), max_size=9))
def test_what_anybody_wrote_is_saved_again_to_the_letter(said):
    told = read_environment(said)
    assert list(told.saved().items()) == list(said.items())
    assert told.map_texts(str) == told
    repr(told)
    summarize_machine([told])


@pytest.mark.parametrize("value", ["many", True])
def test_a_value_of_another_kind_is_left_out(value):
    for key in ("recorded_cpus", "clock_epoch", "requests_doubtful", "requests_shared_80"):
        assert read_environment({key: value}) == Environment(said={key: value})
        told = read_environment({key: value})
        assert (told.recorded_cpus, told.clock_epoch, told.requests) == (None, None, None)
    assert read_environment({"kernel_release": 6}).kernel_release == "6"
    for wrong in ("12 x", "9" * 19, " ", "-5 6", " ".join(["9" * 18] * 99)):
        assert read_environment({"recorded_turns": wrong}).recorded_turns is None
    odd = read_environment({"recording_overhead": "[", "gaps_strip": "[3]", "clocks": "[4]"})
    assert (odd.gaps.overhead, odd.gaps.strip, odd.clocks) == ({}, (), ())
    assert (odd.gaps.gaps, odd.gaps.by_label) == (0, {})


def test_texts_are_changed_where_they_are():
    told = read_environment({"x": "/a", "recording": "/b", "clock_epoch": 5})
    assert told.map_texts(lambda text: text[1:]).saved() == {
        "x": "a",
        "recording": "b",
        "clock_epoch": 5,
    }
    assert list(told.with_texts(recording="r").saved()) == ["x", "recording", "clock_epoch"]
    assert told.with_texts(hostname="h").hostname == "h"
    with pytest.raises(TypeError, match="hast"):
        told.with_texts(hast="h")


def test_what_several_say_is_put_together():
    told = [Environment(hostname="b", runs_missing=3), Environment(hostname="a"), Environment()]
    odd = Environment(hostname="b", runs_missing=-3)
    assert list_values([*told, odd], lambda each: each.hostname) == ["a", "b"]
    assert add_counts([*told, odd], lambda each: each.runs_missing) == 3
    assert name_timers([FULL, FULL]) == FULL.timer_functions
    assert name_interrupts([FULL, *told]) == FULL.net_devices
    assert fit_moments([1, 5])
    assert not fit_moments([5, 1])
    assert not fit_moments([10**9 * k for k in range(10**4)])


def test_the_machine_is_the_median_of_its_recordings():
    found = summarize_machine(
        [read_machine({"probe_l1": ns, "pressure_cpu": 100_000, "x": 1}) for ns in (5, 9, 8)]
    )
    assert found is not None
    assert (found.probes, found.pressure, found.steal) == ({"l1": 8.0}, {"cpu": 0.1}, None)
    assert summarize_machine([Environment()]) is None


def test_keys_are_of_one_value_each():
    keys = environment._fixed(Environment)
    declared = list(environment._walk(Environment))
    assert len(keys) + len(environment._families(Environment)) == len(declared)
