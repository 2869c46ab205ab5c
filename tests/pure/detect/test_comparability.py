"""What is said of two sets before their difference is believed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from critpath.detect.comparability import (
    doubtful_requests,
    find_blocks,
    find_routes,
    find_runs,
    missing_runs,
    partial_comparison_note,
    recorded_apart,
    recording_differences,
    route_differences,
    set_warnings,
    unlike_events,
)
from critpath.model import CriticalPaths, Executions, PathSet, State
from critpath.schema import notes
from critpath.schema.environment import Environment, read_environment
from critpath.text.notes import name_route, word


def path_set(**environment) -> PathSet:
    whole, narrow = np.zeros(0, np.int64), np.zeros(0, np.int32)
    small, flags = np.zeros(0, np.uint8), np.zeros(0, np.bool_)
    return PathSet(
        executions=Executions((), whole, whole, whole, whole, (), ()),
        paths=CriticalPaths(
            *(np.zeros(1, np.int64), whole, whole, small, narrow, narrow),
            *(whole, whole, narrow, flags, ("",)),
        ),
        session=whole,
        sources=(),
        specification="process",
        losses=(),
        lossy=flags,
        environment=(Environment(domain="kernel"), read_environment(environment)),
    )


@pytest.mark.parametrize(
    ("key", "one", "other", "says"),
    [
        ("kernel_release", "6.1", "6.18", "different kernels: 6.1 and 6.18"),
        ("recorded_on", "a", "b", "different machines: a and b"),
        ("recorded_profile", "minimal", "full", "different profiles: minimal and full"),
        ("recorded_cpus", 2, 8, "different numbers of cpus: 2 and 8"),
        ("recorded_cpu", "new", "old", "different processors: new and old"),
    ],
)
def test_what_differs_is_said(key, one, other, says):
    (warning,) = set_warnings(path_set(**{key: one}), path_set(**{key: other}), 0)
    assert says in word(warning)
    assert set_warnings(path_set(**{key: one}), path_set(**{key: one}), 0) == ()


def test_a_trace_without_a_manifest_is_no_difference():
    assert set_warnings(path_set(recorded_on="a"), path_set(), 0) == ()
    (warning,) = set_warnings(path_set(kernel_release="6.1"), path_set(), 0)
    assert "6.1 and unknown" in word(warning)


def test_an_interleaved_recording_is_best_compared_with_its_partner():
    one = path_set(recorded_session="s1", recorded_beside="sample")
    other = path_set(recorded_session="s1", recorded_beside="normal")
    stranger = path_set(recorded_session="s2")
    assert set_warnings(one, other, 0) == ()
    (warning,) = set_warnings(one, stranger, 0)
    assert word(warning).startswith("before: recorded in alternation with 'sample'")
    (warning,) = set_warnings(stranger, other, 0)
    assert word(warning).startswith("after: recorded in alternation with 'normal'")


def test_what_recordings_of_one_set_differ_in_is_said():
    one = path_set(kernel_release="6.1", tracer_name="lttng-modules")
    assert recording_differences(one) == ()
    kernel = Environment(domain="kernel", tracer_name="lttng-modules")
    user = Environment(domain="ust", tracer_name="lttng-ust")
    assert recording_differences(replace(one, environment=(kernel, user))) == ()
    other = Environment(domain="kernel", tracer_name="critpath")
    (warning,) = recording_differences(replace(one, environment=(kernel, user, other)))
    assert word(warning).endswith("different tracers: critpath, lttng-modules")
    (empty,) = recording_differences(replace(one, sources=("monday",)))
    assert word(empty) == "monday has no run"


def test_sets_of_one_session_are_not_apart():
    def of(session, **environment):
        made = path_set(**environment)
        return replace(
            made,
            executions=Executions(("1",), *(np.ones(1, np.int64),) * 4, ("x",), ("",)),
            paths=replace(made.paths, start=np.zeros(2, np.int64)),
            session=np.array([session]),
            lossy=np.zeros(1, np.bool_),
        )

    assert not recorded_apart(of(0), of(0))  # of no recording
    assert recorded_apart(of(0, hostname="a"), of(0, hostname="a"))
    assert recorded_apart(of(0, recorded_session="a"), of(0, recorded_session="b"))
    assert not recorded_apart(of(0, recorded_session="a"), of(0, recorded_session="a"))


def test_sets_that_take_turns_on_one_clock_are_not_apart():
    turns = recorded([10, 30, 50], hostname="a"), recorded([20, 40, 60], hostname="a")
    assert not recorded_apart(*turns)
    later = recorded([110, 130, 150], hostname="a")
    assert recorded_apart(turns[0], later)
    assert recorded_apart(turns[0], recorded([20, 40, 60], hostname="b"))


def test_threads_at_work_at_one_time_are_of_one_run():
    def of(*threads):
        begins = [begin for _, begins in threads for begin in begins]
        tids = [tid for tid, begins in threads for _ in begins]
        made = recorded(begins)
        rows = replace(made.executions, tid=np.array(tids, np.int64))
        return replace(made, executions=rows)

    # Two threads of one run, then one thread of each of two.
    normal = of((7, [10, 30]), (8, [20, 40]), (9, [110, 120]), (10, [210, 220]))
    sample = of((11, [50, 55]), (12, [150, 155]), (13, [250, 255]))
    runs = find_runs(normal, sample)
    assert [each.tolist() for each in runs] == [[0, 0, 0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 2, 2]]
    alone = of((7, [10]), (8, [20]), (9, [30]))
    assert find_runs(normal, alone) is None
    assert find_runs(normal, of((7, [10, 20]), (8, [30, 40]))) is None


def test_requests_of_a_server_that_outlives_the_runs_are_of_the_turn_in_which_they_began():
    def of(begins, starts, tids=(7,), specification="requests"):
        made = recorded(begins)
        tid = np.resize(np.array(tids, np.int64), len(begins))
        turns = {"recorded_turns": starts} if starts else {}
        return replace(
            made,
            executions=replace(made.executions, tid=tid),
            specification=specification,
            environment=(
                read_environment({"recorded_session": "s1", **turns}),
                *made.environment,
            ),
        )

    # ABBA, BA: runs begin at 100, 200, ...
    normal, sample = [101, 150, 401, 450, 601, 650], [201, 250, 301, 350, 501, 550]
    starts = "100 300 200", "200 100 200"
    runs = find_runs(of(normal, starts[0]), of(sample, starts[1]))
    assert [each.tolist() for each in runs] == [[0, 0, 1, 1, 2, 2]] * 2
    assert find_runs(of(normal, ""), of(sample, "")) is None
    # A thread for every request, and requests in turns that each have one.
    each = [of(begins, s, range(6)) for begins, s in zip((normal, sample), starts, strict=True)]
    assert [run.tolist() for run in find_runs(*each)] == [[0, 0, 1, 1, 2, 2]] * 2
    assert find_runs(of(normal[::2], starts[0]), of(sample[::2], starts[1])) is None
    # Processes of one thread are runs of their own.
    alone = [replace(one, specification="process") for one in each]
    assert find_runs(*alone) is None


def recorded(begins, epoch=5, **environment) -> PathSet:
    made, n = path_set(**environment), len(begins)
    begin = np.array(begins, np.int64)
    zero = np.zeros(n, np.int64)
    return replace(
        made,
        executions=Executions(
            tuple(map(str, begins)), begin, begin + 1, zero, zero, ("x",) * n, ("",) * n
        ),
        paths=replace(made.paths, start=np.zeros(n + 1, np.int64)),
        session=zero,
        sources=("r",),
        lossy=np.zeros(n, np.bool_),
        environment=(*made.environment, Environment(recording="r", clock_epoch=epoch)),
    )


def test_one_recording_on_both_sides_is_said():
    (warning,) = set_warnings(recorded([1, 2]), recorded([1, 2]), 0)
    assert word(warning) == "the recording after is one of those before: nothing can differ"
    (warning,) = set_warnings(recorded([1, 2, 3]), recorded([3, 4]), 0)
    assert word(warning).startswith("1 of 2 runs after are among those before, too")
    assert set_warnings(recorded([1, 2]), recorded([1, 2], epoch=6), 0) == ()
    assert set_warnings(recorded([1, 2]), recorded([3, 4]), 0) == ()
    # Two machines may both have begun at 1 by their clocks, whose epochs are unknown.
    assert set_warnings(recorded([1, 2], epoch=0), recorded([1, 4], epoch=0), 0) == ()


def test_different_programs_are_said_unless_recorded_in_alternation():
    one, other = path_set(recorded_program="shop"), path_set(recorded_program="cart")
    (warning,) = set_warnings(one, other, 0)
    assert word(warning) == "before and after are of different programs: shop and cart"
    assert set_warnings(one, path_set(), 0) == ()
    both = [
        path_set(recorded_program=p, recorded_session="s1", recorded_beside=beside)
        for p, beside in (("shop", "sample"), ("cart", "normal"))
    ]
    assert set_warnings(*both, 0) == ()


def test_how_much_of_the_normal_set_takes_part_is_said():
    normal = np.array([0] * 113 + [1] * 7)
    assert word(partial_comparison_note(normal, np.ones(30, np.int64))) == (
        "compared with 7 of 120 runs before (type n1): no run after is of the type n0 (113)"
    )
    assert partial_comparison_note(normal, np.zeros(30, np.int64)) is None
    assert (
        partial_comparison_note(np.array([0, 0, 1, 1]), np.array([1])) is None
    )  # one of two usual kinds
    many = np.arange(12) // 2
    said = partial_comparison_note(many, np.array([3]))
    said = word(said)
    assert said.startswith("compared with 2 of 12 runs before (type n3): no run after")
    assert said.endswith("of the types n0 (2), n1 (2), n2 (2), n4 (2) and 1 more")


def test_runs_that_the_trace_lacks_leave_no_verdict():
    whole, few = path_set(runs_recorded=24, runs_missing=0), path_set(runs_recorded=24)
    one, many = (path_set(runs_recorded=24, runs_missing=n) for n in (1, 2))
    assert missing_runs(whole, few) == missing_runs(one, path_set()) == []
    [said] = missing_runs(whole, many)
    assert "2 of 24 runs after" in word(said)


def in_blocks(begins, blocks, session="s1"):
    made = recorded(begins)
    facts = {"recorded_session": session, **({"recorded_blocks": blocks} if blocks else {})}
    return replace(made, environment=(read_environment(facts), *made.environment))


def test_executions_are_of_the_blocks_that_a_coin_has_ordered():
    # ABBA, BAAB: runs at 100, 200, ...; each set knows when its own first run of a block began.
    normal, sample = (
        in_blocks([101, 401, 601, 701], "100 500"),
        in_blocks([801, 201, 301], "200 300"),
    )
    blocks = find_blocks(normal, sample)
    assert [each.tolist() for each in blocks] == [[0, 0, 1, 1], [1, 0, 0]]
    # An execution missing, and a whole block of one side.
    blocks = find_blocks(in_blocks([401], "100 500"), in_blocks([201, 501, 801], "200 300"))
    assert [each.tolist() for each in blocks] == [[0], [0, 1, 1]]


def test_without_an_order_or_a_common_session_there_are_no_blocks():
    normal, sample = in_blocks([101, 601], "100 500"), in_blocks([201, 801], "200 300")
    assert find_blocks(normal, sample) is not None
    assert find_blocks(in_blocks([101, 601], ""), sample) is None
    assert find_blocks(normal, in_blocks([201, 801], "200 300", "s2")) is None
    assert find_blocks(in_blocks([50, 601], "100 500"), sample) is None
    for wrong in ("12 x", "9" * 19, " ", "-5 6"):
        assert find_blocks(in_blocks([101, 601], wrong), sample) is None


def test_where_requests_share_a_connection_is_said():
    few = path_set(requests=100, requests_doubtful=5, requests_shared_8443=5)
    many = path_set(requests=100, requests_doubtful=12, requests_shared_8443=12)
    (line,) = doubtful_requests(few, many)
    assert "12 % of the requests after share a connection at once (:8443)" in word(line)
    late = path_set(requests=100, requests_doubtful=12)
    (line,) = doubtful_requests(few, late)
    assert "share a connection at once, were read late, or came over UDP: how" in word(line)


def routed(softirq=0, **counts):
    """Return a set of one execution, its environment with counts of routes."""
    one, narrow = np.array([0], np.int64), np.array([0], np.int32)
    state = np.array([State.SOFTIRQ], np.uint8)
    named = {f"route_{key}": count for key, count in counts.items()}
    return replace(
        path_set(**named),
        executions=Executions(("1",), one, one + 9000, one, one, ("",), ("",)),
        paths=CriticalPaths(
            *(np.array([0, 1], np.int64), one, one + softirq, state, narrow, narrow),
            *(one, one, narrow, np.array([False]), ("",)),
        ),
        session=one,
        lossy=np.array([False]),
        sources=("a",),
    )


LOOPBACK = {
    "executions": 1,
    "perhaps_loopback": 1,
    "devices_loopback": 1,
    "packets_loopback": 2000,
    "begun_loopback": 2000,
    "names_loopback": "lo",
}
BRIDGE = {
    "executions": 1,
    "perhaps_loopback": 1,
    "perhaps_veth": 2,
    "devices_veth": 2,
    "packets_veth": 2000,
    "begun_veth": 2000,
    "names_veth": "to-client/to-server",
    "perhaps_bridged_veth": 2,
    "devices_bridged_veth": 2,
    "packets_bridged_veth": 2100,
    "names_bridged_veth": "client/server",
    "names_bridge": "br0",
}


def test_another_route_of_packets_is_said_with_its_devices_and_softirqs():
    before, after = routed(2000, **LOOPBACK), routed(8000, **BRIDGE)
    (said,) = route_differences(before, after)
    assert word(said) == (
        "network packets take another route: before loopback (lo, 2,000 packets a "
        "run); after veth on a bridge (client, server, 2,100 packets a run), veth "
        "(to-client, to-server, 2,000 packets a run); each passes 2.0 instead of 1.0 "
        "devices; softirq takes 8.00 µs instead of 2.00 µs of a run's critical path"
    )
    assert route_differences(after, before)
    routes = find_routes(before, after)[0]
    assert name_route(routes) == "bridge br0 and 4 veth devices instead of lo"
    assert name_route(routes[::-1]) == "lo instead of bridge br0 and 4 veth devices"


def test_up_to_three_devices_of_a_kind_are_named():
    one = {k: v for k, v in BRIDGE.items() if "bridge" not in k}
    for names, many, said in (
        ("veth1", 1, "veth veth1"),
        ("b/a", 2, "veth a and b"),
        ("a/b/c", 3, "veth a, b and c"),
        ("a/b/c/d", 4, "4 veth devices"),
        ("a/b", 3, "3 veth devices"),  # of two recordings: which are the same is not known
        ("", 2, "2 veth devices"),
        ("a b/c", 2, "2 veth devices"),
        ("\x1b[2J/\u202e", 2, "veth \ufffd[2J and \ufffd"),
    ):
        given = {**one, "names_veth": names, "devices_veth": many, "perhaps_veth": many}
        (_, after), *_ = find_routes(routed(**LOOPBACK), routed(**given))
        assert name_route([after, after]) == f"{said} instead of {said}"
        assert "\x1b" not in word(route_differences(routed(**LOOPBACK), routed(**given))[0])
    unnamed = {k: v for k, v in BRIDGE.items() if "names" not in k}
    (_, after), *_ = find_routes(routed(**LOOPBACK), routed(**unnamed))
    assert name_route([after, after]).startswith("a bridge and 4 veth devices instead")


def test_a_set_that_has_more_packets_takes_no_other_route():
    # The same way, ten times as often; and to more containers on that bridge.
    often = {k: 10 * v if k.startswith(("packets", "begun")) else v for k, v in BRIDGE.items()}
    assert route_differences(routed(**BRIDGE), routed(**often)) == []
    wide = {k: 2 * v if k.startswith(("devices", "perhaps_v")) else v for k, v in often.items()}
    wide["perhaps_bridged_veth"] = 4
    assert route_differences(routed(**BRIDGE), routed(**wide)) == []
    # What was sent before is sent as before; to somebody else something is sent besides.
    card = {"devices_physical": 1, "perhaps_physical": 1, "names_physical": "eth0"}
    besides = {**LOOPBACK, **card, "packets_physical": 900, "begun_physical": 900}
    assert route_differences(routed(**LOOPBACK), routed(**besides)) == []
    assert route_differences(routed(**besides), routed(**LOOPBACK)) == []
    # It is another one if packets leave the one way for the other, or pass more each.
    instead = {**besides, "packets_loopback": 1100, "begun_loopback": 1100}
    found = find_routes(routed(**LOOPBACK), routed(**instead))
    assert name_route(found[0]) == "lo and network card eth0 instead of lo"
    further = {**LOOPBACK, **card, "packets_physical": 2000}
    assert route_differences(routed(**LOOPBACK), routed(**further))
    assert route_differences(
        routed(**BRIDGE),
        routed(**{**wide, "packets_bridged_veth": 42_000, "packets_veth": 20_000}),
    )
    # By executions: twice as many with twice the packets.
    twice = {**often, "executions": 10}
    assert route_differences(routed(**BRIDGE), routed(**twice)) == []


def test_the_same_route_is_not_mentioned():
    more = {**BRIDGE, "packets_veth": 9000, "perhaps_physical": 3, "perhaps_loopback": 2}
    assert route_differences(routed(5, **BRIDGE), routed(9, **more)) == []
    assert route_differences(routed(5, **BRIDGE), routed()) == []
    # A device of which it is not known what it is tells nothing.
    unknown = {"executions": 1, "perhaps_unknown": 1, "devices_unknown": 1, "packets_unknown": 2}
    assert route_differences(routed(5, **BRIDGE), routed(**{**BRIDGE, **unknown})) == []


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ((), ("wakes",), [("sample", ("wakes",))]),
        (("states", "exits"), ("exits",), [("normal", ("states",))]),
        (("wakes",), ("wakes",), []),
        ((), ("interrupts",), []),
    ],
)
def test_sets_of_which_one_lacks_what_tells_waits_are_not_compared(before, after, said):
    sets = [
        SimpleNamespace(warnings=(notes.NotRecorded(missing, "perf"),) if missing else ())
        for missing in (before, after)
    ]
    found = unlike_events(*sets)
    assert [(of.name, of.missing) for of in found] == said
    assert all("cannot be compared" in word(of) for of in found)
