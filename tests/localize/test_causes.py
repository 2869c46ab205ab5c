"""Causes: what several executions have in common, in one true sentence."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from critpath.localize.causes import Explained, group_causes
from critpath.model import Finding, State, Symbol

MS = 1_000_000
TIMER = Finding(
    execution=0,
    rank=1,
    kind="longer",
    symbol=Symbol(State.WAIT_TIMER),
    detail="",
    tid=7,
    comm="worker",
    begin=0,
    end=1,
    columns=(3, 4),
    observed=32 * MS,
    expected=2 * MS,
    contribution=30 * MS,
    share=0.9,
    probability=1.0,
    before="RUN",
)


def explained(count, excess=33 * MS, normals=40):
    return [Explained(e, excess, normals) for e in range(count)]


def sentence_of(*findings, total=11):
    executions = explained(max(f.execution for f in findings) + 1)
    (cause,) = group_causes(findings, executions, total)
    return cause.sentence


def test_the_same_difference_in_four_executions():
    findings = [
        replace(TIMER, execution=e, contribution=c * MS, observed=(c + 2) * MS)
        for e, c in ((1, 30), (4, 29), (5, 31), (8, 30.4))
    ]
    (cause,) = group_causes(findings, explained(11), 11)
    assert cause.sentence == (
        "4 of 11 executions, +30.1 ms each: waiting for a timer in `worker` (tid 7)"
        " (normally 2.00 ms here, in 40 of 40; now 32.1 ms)"
    )
    assert cause.executions == (1, 4, 5, 8)
    assert cause.findings == (0, 1, 2, 3)
    assert cause.contribution == pytest.approx(30.1 * MS)
    # Of the excess of all eleven, not only of these four.
    assert cause.share == pytest.approx(4 * 30.1 / (11 * 33))
    assert cause.main == 2
    assert not cause.minor


def test_an_execution_counts_once_with_its_sum():
    second = replace(TIMER, contribution=6 * MS, observed=6 * MS, expected=0, probability=0.0)
    (cause,) = group_causes([TIMER, second], explained(1), 5)
    assert cause.executions == (0,)
    assert cause.findings == (0, 1)
    assert cause.contribution == 36 * MS
    assert cause.sentence.startswith("1 of 5 executions, +36.0 ms: ")
    assert "normally 2.00 ms here, in 40 of 40; now 38.0 ms" in cause.sentence


@pytest.mark.parametrize(
    ("state", "role", "detail", "comm", "words"),
    [
        (
            State.RUN,
            "holder",
            "",
            "holder",
            "waiting for thread `holder` (tid 7), which was running",
        ),
        (State.RUN, "", "", "worker", "running in `worker` (tid 7)"),
        (
            State.WAIT_CPU,
            "",
            "idle",
            "worker",
            (
                "waiting in `worker` (tid 7) for a cpu that was idle"
                " (throttled: held back by a quota or an affinity)"
            ),
        ),
        (
            State.WAIT_CPU,
            "",
            "stress",
            "worker",
            "waiting in `worker` (tid 7) for a cpu that `stress` had",
        ),
        (
            State.WAIT_CPU,
            "",
            "stress (12)",
            "worker",
            "waiting in `worker` (tid 7) for a cpu that `stress` (tid 12) had",
        ),
        (
            State.WAIT_CPU,
            "holder",
            "stress",
            "holder",
            "waiting for thread `holder` (tid 7), which was waiting for a cpu that `stress` had",
        ),
        (
            State.WAIT_DISK,
            "jbd#/vda-#",
            "virtio0-req.0",
            "jbd2/vda-8",
            (
                "waiting for thread `jbd2/vda-8` (tid 7), which was waiting for the disk"
                " (virtio0-req.0)"
            ),
        ),
        (State.WAIT_DISK, "", "", "worker", "waiting for the disk in `worker` (tid 7)"),
        (
            State.RUN_SYSCALL,
            "",
            "openat",
            "worker",
            "running in a system call (openat) in `worker` (tid 7)",
        ),
        (
            State.SOFTIRQ,
            "",
            "NET_RX",
            "worker",
            "interrupted by deferred work (softirq NET_RX) in `worker` (tid 7)",
        ),
        (
            State.IRQ,
            "",
            "eth0",
            "worker",
            "interrupted by a device (eth0) in `worker` (tid 7)",
        ),
        (
            State.UNKNOWN,
            "",
            "",
            "worker",
            "`worker` (tid 7) not observed: no event of the trace says what it did",
        ),
    ],
)
def test_words(state, role, detail, comm, words):
    finding = replace(TIMER, symbol=Symbol(state, role), detail=detail, comm=comm, before="")
    assert sentence_of(finding) == (
        f"1 of 11 executions, +30.0 ms: {words} (normally 2.00 ms here, in 40 of 40; now 32.0 ms)"
    )


def test_every_state_has_words():
    for state in State:
        assert len(sentence_of(replace(TIMER, symbol=Symbol(state), detail="x"))) > 60


def test_a_state_never_seen_and_one_that_is_gone():
    new = replace(TIMER, kind="new-state", expected=0, observed=30 * MS, probability=0.0)
    assert sentence_of(new).endswith("(never in 40 normal executions; now 30.0 ms)")
    gone = replace(TIMER, kind="missing", contribution=-2 * MS, observed=0, before="RUN@holder")
    assert sentence_of(gone) == (
        "1 of 11 executions, -2.00 ms: less time waiting for a timer in `worker` (tid 7)"
        " (normally 2.00 ms here, in 40 of 40; now not at all)"
    )


def test_numbers_in_details_do_not_separate_causes():
    disk = replace(TIMER, symbol=Symbol(State.WAIT_DISK), detail="virtio0-req.0")
    other = replace(disk, execution=1, detail="virtio1-req.3", contribution=40 * MS)
    (cause,) = group_causes([disk, other], explained(2), 2)
    assert cause.executions == (0, 1)
    assert "(virtio1-req.3)" in cause.sentence  # the heavier one is named


def test_what_separates_causes_and_their_order():
    findings = [
        replace(TIMER, symbol=Symbol(State.WAIT_CPU), detail="stress", contribution=5 * MS),
        replace(TIMER, symbol=Symbol(State.WAIT_CPU), detail="idle", contribution=7 * MS),
        replace(TIMER, contribution=-3 * MS),
        replace(TIMER, contribution=6 * MS),
        replace(TIMER, execution=1, contribution=6 * MS),
    ]
    causes = group_causes(findings, explained(2), 9)
    assert [c.findings for c in causes] == [(3, 4), (1,), (0,), (2,)]


def test_normal_groups_of_unlike_size():
    executions = [Explained(0, 33 * MS, 40), Explained(1, 33 * MS, 10)]
    findings = [TIMER, replace(TIMER, execution=1, probability=0.5)]
    (cause,) = group_causes(findings, executions, 3)
    assert "in 90 % of 10 to 40 normal executions;" in cause.sentence
    absent = [replace(f, probability=0.0, expected=0) for f in findings]
    (cause,) = group_causes(absent, executions, 3)
    assert "never in 10 to 40 normal executions" in cause.sentence


def test_no_excess_has_no_share():
    (cause,) = group_causes([TIMER], [Explained(0, -1.0, 40)], 3)
    assert math.isnan(cause.share)


def test_nothing_found():
    assert group_causes([], explained(2), 3) == ()


HOLDER = replace(
    TIMER,
    symbol=Symbol(State.RUN, "holder"),
    comm="holder",
    contribution=28 * MS,
    observed=28 * MS,
    expected=0,
    probability=0.0,
)


def waiting_for_cpu(role, detail, ns, **changes):
    return replace(
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
        replace(HOLDER, execution=1),
        waiting_for_cpu("holder", "helper", 20 * MS, execution=1),
    ]
    (cause,) = group_causes(findings, explained(2), 11)
    assert cause.sentence == (
        "2 of 11 executions, +46.0 ms each: waiting for thread `holder` (tid 7), which was running"
        " (28.0 ms) and waiting for a cpu that `helper` had (18.0 ms)"
        " (never in 40 normal executions; now 46.0 ms)"
    )


def test_a_part_that_is_nearly_all_is_said_alone():
    findings = [HOLDER, waiting_for_cpu("holder", "worker-1", 3 * MS)]
    (cause,) = group_causes(findings, explained(1), 11)
    assert "waiting for thread `holder` (tid 7), which was running (never" in cause.sentence
    assert "+31.0 ms: " in cause.sentence


def test_throttling_is_one_cause_whichever_thread_it_hits():
    findings = [
        waiting_for_cpu("", "idle", 90 * MS),
        waiting_for_cpu("holder", "idle", 60 * MS),
        replace(HOLDER, contribution=5 * MS, observed=5 * MS),
        waiting_for_cpu("helper", "idle", 90 * MS, execution=1),
    ]
    throttled, other = group_causes(findings, explained(2), 14)
    assert throttled.executions == (0, 1)
    assert throttled.findings == (0, 1, 3)
    assert throttled.sentence == (
        "2 of 14 executions, +120 ms each: waiting in `worker` (tid 7) for a cpu that was idle"
        " (throttled: held back by a quota or an affinity), 75.0 ms of it in threads `helper`"
        " (tid 7) and `holder` (tid 7)"
        " (never in 40 normal executions; now 120 ms)"
    )
    assert other.findings == (2,)
    assert "waiting for thread `holder` (tid 7), which was running" in other.sentence


def test_a_late_start_is_not_called_throttling():
    late = waiting_for_cpu("", "idle", 1 * MS)
    assert "for a cpu that was idle (late to start it)" in sentence_of(late)
    # Beside the thread's own work it is part of waiting for that thread.
    findings = [HOLDER, waiting_for_cpu("holder", "idle", 9 * MS)]
    (cause,) = group_causes(findings, explained(1), 11)
    assert cause.findings == (0, 1)


def test_what_many_bear_out_comes_before_one_that_was_held_up_once():
    disk = replace(TIMER, symbol=Symbol(State.WAIT_DISK), contribution=302 * MS)
    timers = [replace(TIMER, execution=e, contribution=11 * MS) for e in range(1, 13)]
    first, second = group_causes([disk, *timers], explained(13), 36)
    assert first.sentence.startswith("12 of 36 executions, +11.0 ms each")
    assert second.sentence.startswith("1 of 36 executions, +302 ms")
    # A tail of one that is most of the slow-down stays first.
    few = [replace(TIMER, execution=e, contribution=0.5 * MS) for e in range(1, 31)]
    first, _ = group_causes([disk, *few], explained(31), 36)
    assert first.sentence.startswith("1 of 36 executions, +302 ms")
