"""Causes: what several executions have in common, and the facts of it."""

from __future__ import annotations

import numpy as np
import pytest
from pure.localize.findings import alter, make_finding

from critpath.localize.causes import Explained, find_rival, group_causes
from critpath.localize.counts import StepCounts
from critpath.localize.facts import most_detail
from critpath.model import Charge, Context, State, Step, Symbol
from critpath.model.details import Detail

MS = 1_000_000
TIMER = make_finding(
    symbol=Symbol(State.WAIT_TIMER),
    columns=[3, 4],
    observed=32 * MS,
    expected=2 * MS,
    contribution=30 * MS,
    share=0.9,
    before="RUN",
)


def explained(count, excess=33 * MS, normals=40):
    return [Explained(e, excess, normals) for e in range(count)]


def cause_of(*findings, total=11, **more):
    executions = explained(max(f.position for f in findings) + 1)
    (cause,) = group_causes(findings, executions, total, **more)
    return cause


def facts_of(*findings, **more):
    return cause_of(*findings, **more).facts


def test_the_same_difference_in_four_executions():
    findings = [
        alter(TIMER, execution=e, contribution=c * MS, observed=(c + 2) * MS)
        for e, c in ((1, 30), (4, 29), (5, 31), (8, 30.4))
    ]
    (cause,) = group_causes(findings, explained(11), 11)
    facts = cause.facts
    assert (facts.executions, facts.of) == (4, 11)
    assert (facts.state, facts.role, facts.comm) == ("WAIT_TIMER", "", "worker")
    assert (facts.tids, facts.certainty) == ([7], "observed")
    assert facts.time_before == 2 * MS
    assert facts.time_after == pytest.approx(32.1 * MS)
    assert cause.positions == [1, 4, 5, 8]
    assert cause.findings == [0, 1, 2, 3]
    assert cause.contribution == pytest.approx(30.1 * MS)
    # Of the excess of all eleven, not only of these four.
    assert cause.share == pytest.approx(4 * 30.1 / (11 * 33))
    assert cause.main == 2
    assert not cause.minor


def test_an_execution_counts_once_with_its_sum():
    second = alter(TIMER, contribution=6 * MS, observed=6 * MS, expected=0, probability=0.0)
    (cause,) = group_causes([TIMER, second], explained(1), 5)
    assert cause.positions == [0]
    assert cause.findings == [0, 1]
    assert cause.contribution == 36 * MS
    assert (cause.facts.executions, cause.facts.of) == (1, 5)
    assert (cause.facts.time_before, cause.facts.time_after) == (2 * MS, 38 * MS)


@pytest.mark.parametrize(
    ("state", "role", "detail", "expected"),
    [
        # Who is waited for, what, in which call, and how sure that is.
        (State.RUN, "holder", "", ("holder", "", "", "observed")),
        (State.RUN, "", "", ("", "", "", "observed")),
        (State.WAIT_CPU, "", "idle", ("", "", "", "inferred")),
        (State.WAIT_CPU, "", "stress", ("stress", "", "", "observed")),
        (State.WAIT_CPU, "", "stress (12)", ("stress", "", "", "observed")),
        (State.WAIT_CPU, "holder", "stress", ("stress", "", "", "observed")),
        (State.WAIT_DISK, "", "vda", ("", "vda", "", "observed")),
        (State.WAIT_DISK, "jbd#", "vda", ("worker", "vda", "", "observed")),
        (State.RUN_SYSCALL, "", "openat", ("", "", "openat", "observed")),
        (State.SOFTIRQ, "", "NET_RX", ("", "NET_RX", "", "observed")),
        (State.IRQ, "", "eth0", ("", "eth0", "", "observed")),
        (State.UNKNOWN, "", "", ("", "", "", "unknown")),
    ],
)
def test_the_facts_of_a_state(state, role, detail, expected):
    comm = role if role == "holder" else "worker"
    finding = alter(TIMER, symbol=Symbol(state, role), detail=detail, comm=comm)
    facts = facts_of(alter(finding, longest=finding.observed))
    assert (facts.peer, facts.device, facts.call, facts.certainty) == expected
    assert (facts.state, facts.role, facts.comm) == (state.name, role, comm)


def test_every_state_has_facts():
    for state in State:
        facts = facts_of(alter(TIMER, symbol=Symbol(state), detail="x"))
        assert (facts.state, facts.time_after) == (state.name, 32 * MS)


def test_a_state_never_seen_and_one_that_is_gone():
    new = facts_of(alter(TIMER, kind="new-state", expected=0, observed=30 * MS, probability=0.0))
    assert (new.kind, new.time_before, new.time_after) == ("new-state", 0, 30 * MS)
    gone = cause_of(alter(TIMER, kind="missing", contribution=-2 * MS, observed=0))
    assert gone.contribution == -2 * MS
    assert (gone.facts.kind, gone.facts.time_before, gone.facts.time_after) == (
        "missing",
        2 * MS,
        0,
    )


def test_numbers_in_details_do_not_separate_causes():
    disk = alter(TIMER, symbol=Symbol(State.WAIT_DISK), detail="virtio0-req.0")
    other = alter(disk, execution=1, detail="virtio1-req.3", contribution=40 * MS)
    (cause,) = group_causes([disk, other], explained(2), 2)
    assert cause.positions == [0, 1]
    assert cause.facts.device == "virtio1-req.3"  # the heavier one is named


def test_what_separates_causes_and_their_order():
    findings = [
        alter(TIMER, symbol=Symbol(State.WAIT_CPU), detail="stress", contribution=5 * MS),
        alter(TIMER, symbol=Symbol(State.WAIT_CPU), detail="idle", contribution=7 * MS),
        alter(TIMER, contribution=-3 * MS),
        alter(TIMER, contribution=6 * MS),
        alter(TIMER, execution=1, contribution=6 * MS),
    ]
    causes = group_causes(findings, explained(2), 9)
    assert [c.findings for c in causes] == [[3, 4], [1], [0], [2]]


def test_no_excess_has_no_share():
    (cause,) = group_causes([TIMER], [Explained(0, -1.0, 40)], 3)
    assert cause.share is None


def test_nothing_found():
    assert group_causes([], explained(2), 3) == ()


HOLDER = alter(
    TIMER,
    symbol=Symbol(State.RUN, "holder"),
    comm="holder",
    contribution=28 * MS,
    observed=28 * MS,
    expected=0,
    probability=0.0,
)


def waiting_for_cpu(role, detail, ns, **changes):
    return alter(
        HOLDER,
        symbol=Symbol(State.WAIT_CPU, role),
        comm=role or "worker",
        detail=detail,
        contribution=ns,
        observed=ns,
        begin=1,
        before="RUN@holder",
        **changes,
    )


def test_waiting_for_one_thread_is_one_cause_whatever_it_does():
    findings = [
        HOLDER,
        waiting_for_cpu("holder", "worker-1", 16 * MS),
        alter(HOLDER, execution=1),
        waiting_for_cpu("holder", "helper", 20 * MS, execution=1),
    ]
    cause = cause_of(*findings)
    assert (cause.positions, cause.contribution) == ([0, 1], 46 * MS)
    facts = cause.facts
    assert (facts.state, facts.peer, facts.time_before, facts.time_after) == (
        *("RUN", "holder", 0, 46 * MS),
    )


def test_who_had_the_cpu_for_less_than_half_of_one_wait_had_it_above_all():
    wait = waiting_for_cpu("", "kworker/0:1 (25)", 12 * MS)
    shares = (("kworker/0:1 (25)", 0.4), ("cc1 (7)", 0.35), ("idle", 0.25))
    assert most_detail([wait]) == Detail("kworker/0:1", 25)
    assert most_detail([alter(wait, details=shares)]) == Detail("kworker/0:1", others=True)
    assert facts_of(alter(wait, details=shares)).peer == "kworker/0:1"


def test_throttling_is_one_cause_whichever_thread_it_hits():
    findings = [
        waiting_for_cpu("", "idle", 90 * MS, longest=90 * MS),
        waiting_for_cpu("holder", "idle", 60 * MS),
        alter(HOLDER, contribution=5 * MS, observed=5 * MS),
        waiting_for_cpu("helper", "idle", 90 * MS, execution=1),
    ]
    throttled, other = group_causes(findings, explained(2), 14)
    assert throttled.positions == [0, 1]
    assert throttled.findings == [0, 1, 3]
    assert throttled.contribution == 120 * MS
    facts = throttled.facts
    assert (facts.state, facts.role, facts.certainty) == ("WAIT_CPU", "", "inferred")
    assert other.findings == [2]
    assert (other.facts.state, other.facts.peer) == ("RUN", "holder")


def test_a_late_start_is_not_called_throttling():
    late = waiting_for_cpu("", "idle", 1 * MS)
    assert facts_of(late).certainty == "observed"
    # Beside the thread's own work it is part of waiting for that thread.
    findings = [HOLDER, waiting_for_cpu("holder", "idle", 9 * MS)]
    (cause,) = group_causes(findings, explained(1), 11)
    assert cause.findings == [0, 1]


def test_what_many_bear_out_comes_before_one_that_was_held_up_once():
    disk = alter(TIMER, symbol=Symbol(State.WAIT_DISK), contribution=302 * MS)
    timers = [alter(TIMER, execution=e, contribution=11 * MS) for e in range(1, 13)]
    first, second = group_causes([disk, *timers], explained(13), 36)
    assert (len(first.positions), first.contribution) == (12, 11 * MS)
    assert (second.positions, second.contribution) == ([0], 302 * MS)
    # A tail of one that is most of the slowdown stays first.
    few = [alter(TIMER, execution=e, contribution=0.5 * MS) for e in range(1, 31)]
    first, _ = group_causes([disk, *few], explained(31), 36)
    assert (first.positions, first.contribution) == ([0], 302 * MS)


def test_what_the_verdict_rests_on_comes_first_where_no_execution_stands_out():
    disk = alter(TIMER, symbol=Symbol(State.WAIT_DISK), contribution=3 * MS, observed=5 * MS)
    less = alter(disk, execution=1, contribution=-3 * MS, observed=0)
    findings = [TIMER, disk, less]
    order = [c.findings for c in group_causes(findings, explained(2), 11)]
    assert order == [[0], [1], [2]]
    told = group_causes(findings, explained(2), 11, flagged={"WAIT_DISK"})
    assert [c.findings for c in told] == [[1], [0], [2]]


def test_what_many_bear_out_in_the_order_given_or_another():
    findings = [alter(TIMER, execution=e, contribution=(10 + 0.1 * e) * MS) for e in range(9)]
    findings += [alter(HOLDER, execution=e, contribution=(10 + 0.1 * e) * MS) for e in range(9)]
    # As they are shown: Python 3.13 asks each field whether it is equal, and "not known" never is.
    found = repr([c.facts for c in group_causes(findings, explained(9), 9)])
    assert repr([c.facts for c in group_causes(findings[::-1], explained(9)[::-1], 9)]) == found


def test_numbered_threads_are_named_by_number_only_where_it_is_one():
    def named(*findings):
        facts = facts_of(*findings)
        return facts.comm, facts.tids

    same = [alter(TIMER, execution=e, comm="worker-3", tid=12) for e in (0, 1)]
    assert named(*same) == ("worker-3", [12])
    assert named(same[0], alter(same[1], tid=14)) == ("worker-3", [12, 14])
    several = [same[0], alter(same[1], comm="worker-4", tid=13)]
    assert named(*several) == ("worker-#", [12, 13])
    assert named(several[0], alter(several[1], tid=-1)) == ("worker-#", [12])
    # Threads of two families are nobody in particular.
    assert named(same[0], alter(same[1], comm="main", tid=13)) == ("", [12, 13])


JOURNAL = alter(
    HOLDER,
    symbol=Symbol(State.WAIT_DISK, "jbd2/vda-#"),
    detail="virtio0-req.1",
    comm="jbd2/vda-8",
    tid=141,
    begin=10 * MS,
    end=20 * MS,
)
KWORKER = alter(
    JOURNAL,
    symbol=Symbol(State.RUN, "kworker/u#:#"),
    detail="",
    comm="kworker/u4:1",
    tid=25,
    contribution=8 * MS,
    observed=8 * MS,
    begin=12 * MS,
    end=15 * MS,
)


def test_threads_that_take_turns_in_a_new_stretch_are_one_cause():
    cause = cause_of(JOURNAL, KWORKER)
    assert (cause.contribution, cause.main) == (36 * MS, 0)
    assert (cause.facts.state, cause.facts.peer) == ("WAIT_DISK", "jbd2/vda-8")
    # Right before it, too; not somewhere else, and not where it is normal.
    before = alter(KWORKER, begin=7 * MS, end=9 * MS)
    assert len(group_causes([JOURNAL, before], explained(1), 11)) == 1
    for other in (
        alter(KWORKER, begin=90 * MS, end=95 * MS),
        alter(KWORKER, probability=0.5, expected=1 * MS),
        alter(KWORKER, execution=1),
    ):
        assert len(group_causes([JOURNAL, other], explained(2), 11)) == 2


PEER = alter(HOLDER, symbol=Symbol(State.RUN, "peer-#"), comm="peer-1", tid=9)


def test_time_that_only_moved_is_set_off():
    """`peer` works as long as ever: the worker once had to leave it the cpu, and now sleeps."""
    beside = alter(
        waiting_for_cpu("", "peer-1 (9)", -1.9 * MS),
        expected=1.9 * MS,
        observed=0,
        probability=1.0,
    )
    works = alter(PEER, contribution=2 * MS, observed=2 * MS)
    sleeps = alter(
        PEER, symbol=Symbol(State.WAIT_TIMER, "peer-#"), contribution=1.5 * MS, observed=1.5 * MS
    )
    (cause,) = group_causes([beside, works, sleeps], explained(1), 11)
    assert cause.contribution == pytest.approx(1.6 * MS)
    assert cause.findings == [0, 1, 2]
    assert cause.main == 2
    facts = cause.facts
    assert (facts.state, facts.peer) == ("WAIT_TIMER", "peer-1")
    assert (facts.time_before, facts.time_after) == (0, 3.5 * MS)
    # Another thread's turn on the cpu is another matter.
    other = alter(beside, detail="stress (9)")
    assert len(group_causes([other, works, sleeps], explained(1), 11)) == 2


def test_minor_causes_are_a_twentieth_of_the_whole_and_never_the_first():
    small = alter(TIMER, symbol=Symbol(State.WAIT_DISK), contribution=1 * MS)
    causes = group_causes([TIMER, small], explained(1), 3)
    assert [c.minor for c in causes] == [False, True]
    (only,) = group_causes([small], explained(1), 3)
    assert not only.minor
    (only,) = group_causes([small], [Explained(0, -1.0, 40)], 3)
    assert not only.minor


def test_what_was_not_observed_comes_after_what_was_unless_it_is_twice_as_much():
    unseen = alter(TIMER, symbol=Symbol(State.WAIT_UNEXPLAINED), contribution=40 * MS)
    first, second = group_causes([unseen, TIMER], explained(1), 3)
    assert (first.facts.state, second.facts.state) == ("WAIT_TIMER", "WAIT_UNEXPLAINED")
    assert second.facts.certainty == "unknown"
    first, _ = group_causes([alter(unseen, contribution=70 * MS), TIMER], explained(1), 3)
    assert first.facts.state == "WAIT_UNEXPLAINED"


def test_a_loop_that_ran_more_often_is_one_cause_with_all_it_does():
    loop = {"kind": "loop-count", "iterations": 58.0, "normal_iterations": (12.0, 2.0)}
    runs = alter(
        TIMER, symbol=Symbol(State.RUN), contribution=60 * MS, observed=75 * MS, columns=(39, 43)
    )
    waits = alter(
        HOLDER, contribution=250 * MS, observed=310 * MS, expected=60 * MS, columns=(39, 43)
    )
    findings = [alter(runs, **loop), alter(waits, **loop, probability=1.0)]
    cause = cause_of(*findings)
    assert cause.contribution == 310 * MS
    facts = cause.facts
    assert (facts.counted, facts.count_before, facts.count_after) == ("iterations", 12, 58)
    assert (facts.time_before, facts.time_after) == (62 * MS, 385 * MS)


def loop_count(now, usual, columns, ns, state=State.WAIT_DISK, **changes):
    changes = {"symbol": Symbol(state), "observed": ns, "expected": 0, **changes}
    return alter(
        TIMER,
        kind="loop-count",
        iterations=float(now),
        normal_iterations=(float(usual), 0.0),
        columns=columns,
        contribution=ns,
        **changes,
    )


def test_time_that_only_moved_is_not_a_part_of_the_loop():
    peer = loop_count(12, 5, (4, 30), 10 * MS, symbol=Symbol(State.RUN, "peer-#"))
    peer = alter(peer, comm="peer-3", tid=12)
    moved = alter(
        waiting_for_cpu("", "peer-3 (12)", -4 * MS), kind="shorter", tid=7, columns=(0, 90)
    )
    for findings in ([peer, moved], [moved, peer]):
        cause = cause_of(*findings)
        assert cause.contribution == 6 * MS
        facts = cause.facts
        assert (facts.counted, facts.count_before, facts.count_after) == ("iterations", 5, 12)
        assert (facts.state, facts.peer, facts.tids) == ("RUN", "peer-3", [12])


def test_more_moved_away_than_a_part_has():
    runs = alter(PEER, contribution=1 * MS)
    sleeps = alter(PEER, symbol=Symbol(State.WAIT_TIMER, "peer-#"), contribution=2.5 * MS)
    moved = waiting_for_cpu("", "peer-1 (9)", -2 * MS)
    cause = cause_of(runs, sleeps, moved)
    assert cause.contribution == 1.5 * MS
    assert (cause.facts.state, cause.facts.peer) == ("WAIT_TIMER", "peer-1")


def iterations(cause):
    assert cause.facts.counted == "iterations"
    return cause.facts.count_before, cause.facts.count_after


def test_two_loops_of_one_execution_are_two_causes():
    short = loop_count(12, 5, (9, 20), 30 * MS)
    long = loop_count(300, 100, (199, 400), 5 * MS)
    first, second = group_causes([long, short], explained(1), 11)
    assert iterations(first) == (5, 12)
    assert first.facts.state == "WAIT_DISK"
    assert iterations(second) == (100, 300)
    # As many iterations, elsewhere: still two.
    alike = loop_count(12, 5, (199, 400), 5 * MS)
    assert len(group_causes([short, alike], explained(1), 11)) == 2
    # What one loop does in the same columns is one.
    runs = loop_count(12, 5, (8, 19), 5 * MS, State.RUN)
    assert iterations(cause_of(short, runs)) == (5, 12)


def test_a_loop_of_several_executions_is_one_that_normally_runs_as_often():
    one = loop_count(12, 5, (9, 20), 30 * MS)
    other = loop_count(400, 100, (9, 500), 30 * MS, execution=1)
    assert len(group_causes([one, other], explained(2), 11)) == 2
    near = loop_count(14, 5.5, (9, 22), 30 * MS, execution=2)
    causes = group_causes([one, other, near], explained(3), 11)
    assert [c.positions for c in causes] == [[0, 2], [1]]
    assert iterations(causes[0])[0] == 5


def test_each_loop_joins_the_one_like_it():
    """Two loops do the same mostly; in both executions the larger is the first."""
    findings = [
        loop_count(12, 5, (9, 20), 30 * MS),
        loop_count(9, 5, (29, 40), 10 * MS),
        loop_count(12, 5, (9, 20), 31 * MS, execution=1),
        loop_count(9, 5, (29, 40), 11 * MS, execution=1),
    ]
    for order in (findings, findings[::-1]):
        causes = group_causes(order, explained(2), 11)
        assert [c.contribution for c in causes] == [30.5 * MS, 10.5 * MS]
        assert [iterations(c)[1] for c in causes] == [12, 9]


def test_many_late_starts_are_not_called_throttling():
    late = waiting_for_cpu("", "idle", 3 * MS, longest=30_000.0)
    assert facts_of(late).certainty == "observed"
    held = waiting_for_cpu("", "idle", 3 * MS, longest=2.9 * MS)
    assert facts_of(held).certainty == "inferred"


def test_who_had_the_cpu_is_a_family_where_its_threads_took_turns():
    findings = [
        alter(waiting_for_cpu("", "worker-1 (8)", 2 * MS), comm="worker-0", tid=7),
        alter(waiting_for_cpu("", "worker-0 (7)", 3 * MS, execution=1), comm="worker-1", tid=8),
    ]
    facts = facts_of(*findings)
    assert (facts.comm, facts.tids, facts.peer) == ("worker-#", [7, 8], "worker-#")


def test_what_holds_no_more_than_half_is_not_said_alone():
    half = [
        waiting_for_cpu("holder", who, 2 * MS, execution=e)
        for e, who in enumerate(("a (1)", "b (2)"))
    ]
    assert most_detail(half) == Detail("a", others=True)
    assert facts_of(*half).peer == "a"
    calls = [
        alter(TIMER, execution=e, symbol=Symbol(State.RUN_SYSCALL), detail=detail)
        for e, detail in enumerate(("read", "write", "openat"))
    ]
    assert most_detail(calls) == Detail(call="openat", others=True)
    assert facts_of(*calls).call == "openat"


@pytest.mark.parametrize(
    ("calls", "agreed"),
    [
        (("recvmsg", "recvmsg", "recvmsg"), "recvmsg"),
        (("recvmsg", "recvmsg", "read"), "recvmsg"),
        # Only what most of them agree on.
        (("read", "write", "futex"), ""),
        (("read", "write"), ""),
        (("read",), "read"),
    ],
)
def test_the_system_call_that_most_waited_in(calls, agreed):
    findings = [alter(TIMER, execution=e) for e in range(len(calls))]
    assert facts_of(*findings, contexts=[Context(call) for call in calls]).call == agreed


def test_a_system_call_is_the_one_that_waited_not_the_other_threads():
    facts = facts_of(HOLDER, contexts=[Context("read")])
    assert (facts.call, facts.peer) == ("read", "holder")


@pytest.mark.parametrize(
    ("detail", "quota", "peer", "certainty"),
    [
        ("make (3)", True, "make", "inferred"),
        ("make (3)", False, "make", "observed"),
        ("idle", True, "", "inferred"),
    ],
)
def test_a_quota_beside_who_had_the_cpu(detail, quota, peer, certainty):
    facts = facts_of(waiting_for_cpu("", detail, 9 * MS, longest=9 * MS), quota=quota)
    assert (facts.peer, facts.certainty) == (peer, certainty)


def test_what_normal_executions_do_as_well_comes_later():
    usual = alter(TIMER, contribution=40 * MS)
    odd = alter(TIMER, symbol=Symbol(State.WAIT_DISK), contribution=15 * MS, abnormal=True)
    first, _ = group_causes([usual, odd], explained(1), 3)
    assert first.facts.state == "WAIT_DISK"
    # Not where too few normal executions could tell.
    first, _ = group_causes([usual, odd], explained(1, normals=4), 3)
    assert first.facts.state == "WAIT_TIMER"


def test_many_short_waits_and_a_cpu_that_others_have_behind_each():
    # In the first two executions the waits for the disk are too short to be a finding.
    disk, cpu = Symbol(State.WAIT_DISK), Symbol(State.WAIT_CPU)
    findings = [
        alter(TIMER, execution=e, symbol=cpu, detail=f"make ({e})", kind="extra",
                contribution=200 * MS, observed=200 * MS)
        for e in range(4)
    ]  # fmt: skip
    findings += [
        alter(TIMER, execution=e, symbol=disk, detail="vda", kind="new-state", rank=2,
                contribution=13 * MS, observed=13 * MS, expected=0, probability=0.0)
        for e in (2, 3)
    ]  # fmt: skip
    charge = Charge(Step(State.WAIT_DISK, ""), 0.0, 180.0, disk, {disk: 13 * MS, cpu: 190 * MS})
    (cause,) = group_causes(
        findings, explained(4, 220 * MS), 4, charges=dict.fromkeys(range(4), (charge,))
    )
    assert cause.positions == [0, 1, 2, 3]
    # Where none has it, they are one cause all the same.
    (cause,) = group_causes(
        findings[:4], explained(4, 220 * MS), 4, charges=dict.fromkeys(range(4), (charge,))
    )
    assert cause.positions == [0, 1, 2, 3]


def test_one_wait_more_is_one_cause_whoever_normally_waits_as_often():
    """How often varies: of six that wait once more, two are within what is normal."""
    futex, disk = Symbol(State.WAIT_FUTEX), Symbol(State.WAIT_DISK)
    findings = [alter(TIMER, execution=e, symbol=futex, detail="mutex") for e in range(6)]
    findings += [alter(TIMER, execution=e, symbol=disk, detail="vda") for e in range(6, 10)]
    charges = {
        e: (Charge(Step(State.WAIT_FUTEX, ""), before, 4.0, futex, {futex: 30 * MS}),)
        for e, before in ((0, 3.0), (1, 2.5), (2, 0.0), (3, 0.0))
    }
    first, second = group_causes(findings, explained(10), 10, charges=charges)
    assert first.positions == [0, 1, 2, 3, 4, 5]
    assert (first.contribution, first.facts.state) == (30 * MS, "WAIT_FUTEX")
    assert second.positions == [6, 7, 8, 9]
    # Waiting for something else is another cause.
    findings[4] = alter(findings[4], detail="semaphore")
    findings[5] = alter(findings[5], contribution=-30 * MS)
    causes = group_causes(findings, explained(10), 10, charges=charges)
    found = sorted(c.positions for c in causes)
    assert found == [[0, 1, 2, 3], [4], [5], [6, 7, 8, 9]]


def test_what_a_thread_does_as_often_belongs_to_what_most_is_more_often():
    run, futex = Symbol(State.RUN, "helper"), Symbol(State.WAIT_FUTEX, "helper")
    symbols = (run, run, futex, run)
    findings = [alter(TIMER, execution=e, symbol=s) for e, s in enumerate(symbols)]
    charges = {
        e: (Charge(step, 2.0, 4.0, symbols[e], {symbols[e]: 30 * MS}),)
        for e, step in enumerate((Step(None, "helper"), Step(None, "helper"), Step.of(futex)))
    }
    causes = group_causes(findings, explained(4), 4, charges=charges)
    assert sorted(cause.positions for cause in causes) == [[0, 1, 3], [2]]


@pytest.mark.parametrize(
    ("burner", "grown", "who"),
    [
        (0.3, 0.3, "burner"),  # a good part of the whole wait
        (0.05, 0.06, "burner"),  # little of the wait, and most of what it is longer by
        (0.05, 0.2, ""),  # little of both
        (0.05, 0.01, "burner"),
    ],
)
def test_a_neighbour_among_many_is_who_made_the_wait_longer(burner, grown, who):
    none = np.zeros((1, 0), np.int64)
    rivals = {"xz": (1.0, 1.0), "burner": (0.0, 1.0)}
    counts = StepCounts((), none, none, {}, (none, none), rivals)
    finding = alter(
        TIMER,
        symbol=Symbol(State.WAIT_CPU),
        observed=500.0 * MS,
        contribution=500.0 * MS * grown,
        details=(("xz (7)", 1 - burner), ("burner (9)", burner)),
    )
    assert find_rival(finding, counts)[0] == who
    normal = alter(finding, details=(("xz (7)", 1.0),))
    assert find_rival(normal, counts) == ("", 0.0)
