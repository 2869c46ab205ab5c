"""A cause in a sentence: a template per kind of cause, in all its cases."""

from __future__ import annotations

import re

import pytest
from msgspec import structs

from critpath.documents import CauseFacts, CodePlace
from critpath.report.document.comparison import comparison_document
from critpath.report.text.answer import answer_lines
from critpath.text import notes
from critpath.text.answer import describe_hints
from critpath.text.explanation import (
    describe_cause,
    describe_effect,
    describe_facts,
    describe_other_causes,
    describe_share,
    explained,
)

MS = 1_000_000.0
FACTS = CauseFacts(
    state="RUN",
    role="",
    comm="worker",
    tids=[1201],
    peer="",
    device="",
    call="",
    kind="longer",
    counted="segments",
    count_before=1.0,
    count_after=1.0,
    time_before=1.9 * MS,
    time_after=11.3 * MS,
    share=0.99,
    executions=2,
    of=6,
    certainty="observed",
)
NET_DEVICE = {"state": "WAIT_NET", "device": "eth0", "local": False}
IN_THE_CODE = {
    "state": "WAIT_TIMER",
    "location": "flush (app/log.c:4)",
    "locations": [CodePlace("flush (app/log.c:4)", 1.0)],
}
HOLDER = {"role": "holder", "comm": "holder", "peer": "holder", "counted": "trips"}


@pytest.fixture
def told(factory):
    """Return a function that gives a document and a cause of given facts."""

    def make(*, of=2, contribution=9.4 * MS, **changes):
        document = comparison_document(factory.comparison())
        cause = document.causes[0]
        cause.facts = structs.replace(FACTS, **changes)
        cause.positions, cause.contribution, cause.share = [0, 1][:of], contribution, 0.99
        document.findings[0].state = cause.facts.state
        document.findings[0].detail = ""
        return document, cause

    return make


CASES = {
    "new wait": (
        {**HOLDER, "time_before": 0.0, "count_before": 0.0},
        "wait 11.3 ms for thread `holder`, which was running; no request did so before",
    ),
    "longer wait": (
        HOLDER,
        "wait 11.3 ms instead of 1.9 ms for thread `holder`, which was running",
    ),
    "where in the code": (
        {**HOLDER, **IN_THE_CODE, "waits_at": "get (app/pool.py:8)"},
        (
            "wait 11.3 ms instead of 1.9 ms for thread `holder`, which was sleeping; in the code: "
            "`holder` was in `flush` (app/log.c:4), they wait in `get` (app/pool.py:8)"
        ),
    ),
    "several places in the code": (
        {
            **HOLDER,
            **IN_THE_CODE,
            "locations": [
                CodePlace("flush (app/log.c:4)", 0.5),
                CodePlace("sync (app)", 0.3),
                CodePlace("a (b)", 0.2),
            ],
        },
        (
            "wait 11.3 ms instead of 1.9 ms for thread `holder`, which was sleeping; in the code: "
            "`holder` was in `flush` (app/log.c:4) (50 %) and `sync` (app) (30 %)"
        ),
    ),
    "its own place in the code, and the waker's": (
        {**IN_THE_CODE, "state": "WAIT_FUTEX", "waker_location": "put (app/pool.py:9)"},
        (
            "wait 11.3 ms instead of 1.9 ms for a lock; in the code: they were in `flush` "
            "(app/log.c:4), the wait was ended in `put` (app/pool.py:9)"
        ),
    ),
    "the kernel's network work, on another route": (
        {
            **HOLDER,
            "state": "SOFTIRQ",
            "counted": "segments",
            "route": "bridge br0 and 4 veth devices instead of lo",
        },
        (
            "wait 11.3 ms instead of 1.9 ms for thread `holder`, which was interrupted by deferred "
            "work, as packets take another route: bridge br0 and 4 veth devices instead of lo"
        ),
    ),
    "up to where it ran": (
        {**IN_THE_CODE, "state": "RUN"},
        (
            "run 11.3 ms instead of 1.9 ms on the CPU in their own code; in the code: they ran "
            "in or up to `flush` (app/log.c:4)"
        ),
    ),
    "several threads": (
        {**HOLDER, "comm": "worker-#"},
        "wait 11.3 ms instead of 1.9 ms for threads `worker-*`, which were running",
    ),
    "digits of one thread stay": (
        {**HOLDER, "comm": "sha256sum", "role": "sha#sum"},
        "wait 11.3 ms instead of 1.9 ms for thread `sha256sum`, which was running",
    ),
    "the peer waits for the disk": (
        {**HOLDER, "state": "WAIT_DISK", "counted": "waits"},
        "wait 11.3 ms instead of 1.9 ms for thread `holder`, which was waiting for the disk",
    ),
    "the peer waits for a cpu": (
        {**HOLDER, "state": "WAIT_CPU", "counted": "waits", "peer": "cc1"},
        (
            "wait 11.3 ms instead of 1.9 ms for thread `holder`, which was waiting for a CPU that "
            "was busy running `cc1`"
        ),
    ),
    "more often": (
        {**HOLDER, "count_before": 1.9, "count_after": 22.0},
        (
            "wait for `holder` 22 times instead of 1.9 a request, on average: 11.3 ms "
            "instead of 1.9 ms"
        ),
    ),
    "behind others, whose thread waited": (
        {
            **HOLDER,
            "state": "QUEUED",
            "meanwhile": "WAIT_DISK",
            "meanwhile_before": 0.0,
            "meanwhile_after": 8.2 * MS,
        },
        (
            "wait 11.3 ms instead of 1.9 ms behind other requests of `holder`, the thread waiting "
            "for the disk for 8.2 ms"
        ),
    ),
    "on a loop that waited for a cpu": (
        {
            "state": "SHARED",
            "counted": "waits",
            "meanwhile": "WAIT_CPU",
            "meanwhile_before": 1.1 * MS,
            "meanwhile_after": 10.3 * MS,
        },
        (
            "spend 11.3 ms instead of 1.9 ms on a loop shared with other requests, the thread "
            "waiting for a CPU for 10.3 ms instead of 1.1 ms"
        ),
    ),
    "a wait that was never there": (
        {
            "state": "WAIT_DISK",
            "counted": "waits",
            "count_before": 0.0,
            "count_after": 187.5,
            "time_before": 0.0,
        },
        "wait for the disk 188 times a request, on average, instead of never: 11.3 ms",
    ),
    "more often than once": (
        {**HOLDER, "count_before": 1.0, "count_after": 2.0},
        "wait for `holder` twice instead of once: 11.3 ms instead of 1.9 ms",
    ),
    "hardly more often is longer": (
        {**HOLDER, "count_before": 5.0, "count_after": 6.0},
        "wait 11.3 ms instead of 1.9 ms for thread `holder`, which was running",
    ),
    "running longer": ({}, "run 11.3 ms instead of 1.9 ms on the CPU in their own code"),
    "running in a system call": (
        {"state": "RUN_SYSCALL", "call": "read"},
        "run 11.3 ms instead of 1.9 ms in system call `read`",
    ),
    "a loop": (
        {"counted": "iterations", "count_before": 10.0, "count_after": 40.0},
        "run the same steps 40 times instead of 10: 11.3 ms instead of 1.9 ms",
    ),
    "a cpu behind others": (
        {"state": "WAIT_CPU", "peer": "cc1"},
        "wait 11.3 ms instead of 1.9 ms for a CPU that was busy running `cc1`",
    ),
    "a cpu behind own threads": (
        {"state": "WAIT_CPU", "peer": "worker"},
        (
            "wait 11.3 ms instead of 1.9 ms for a CPU that was busy running their own program's "
            "threads"
        ),
    ),
    "a cpu behind own threads though another was idle": (
        {"state": "WAIT_CPU", "peer": "worker", "elsewhere_idle": 0.86, "cpu": 0},
        (
            "wait 11.3 ms instead of 1.9 ms for a CPU that was busy running their own program's "
            "threads; all on CPU 0 while another was idle"
        ),
    ),
    "a cpu though another was idle for half of it": (
        {"state": "WAIT_CPU", "peer": "cc1", "elsewhere_idle": 0.5},
        (
            "wait 11.3 ms instead of 1.9 ms for a CPU that was busy running `cc1`; another CPU was "
            "idle for 50 % of that time"
        ),
    ),
    "a cpu though another was idle for less": (
        {"state": "WAIT_CPU", "peer": "cc1", "elsewhere_idle": 0.49, "cpu": 0},
        "wait 11.3 ms instead of 1.9 ms for a CPU that was busy running `cc1`",
    ),
    "another thread's cpu though another was idle": (
        {
            "state": "WAIT_CPU",
            "role": "worker",
            "peer": "worker",
            "elsewhere_idle": 1.0,
            "cpu": 3,
        },
        (
            "wait 11.3 ms instead of 1.9 ms for thread `worker`, which was waiting for a CPU that "
            "other threads called `worker` had; all on CPU 3 while another was idle"
        ),
    ),
    "throttled": (
        {"state": "WAIT_CPU", "certainty": "inferred"},
        "are held back for 11.3 ms instead of 1.9 ms while a CPU was idle, probably by a CPU quota",
    ),
    "a cpu, and perhaps a quota": (
        {"state": "WAIT_CPU", "certainty": "inferred", "peer": "cc1"},
        (
            "wait 11.3 ms instead of 1.9 ms for a CPU that was busy running `cc1`, or held back by "
            "a CPU quota"
        ),
    ),
    "throttled, as the recording tells": (
        {"state": "WAIT_QUOTA", "device": "/app"},
        "are throttled for 11.3 ms instead of 1.9 ms by their CPU quota of `/app`",
    ),
    "memory": (
        {"state": "RECLAIM", "time_before": 0.0},
        "free memory for 11.3 ms, as too little was left; no request did so before",
    ),
    "its turn": (
        {"state": "QUEUED", "time_before": 0.0},
        "wait 11.3 ms behind other requests; no request did so before",
    ),
    "its turn elsewhere": (
        {"state": "QUEUED", "role": "gunicorn", "comm": "gunicorn"},
        "wait 11.3 ms instead of 1.9 ms behind other requests of `gunicorn`",
    ),
    "its turn, behind somebody's": (
        {"state": "QUEUED", "role": "gunicorn", "comm": "gunicorn", "peer": "crawler"},
        "wait 11.3 ms instead of 1.9 ms behind other requests of `gunicorn`, mostly from `crawler`",
    ),
    "a shared loop": (
        {"state": "SHARED"},
        "spend 11.3 ms instead of 1.9 ms on a loop shared with other requests",
    ),
    "another's shared loop": (
        {"state": "SHARED", "role": "node", "comm": "node"},
        "spend 11.3 ms instead of 1.9 ms on the loop of `node`, shared with other requests",
    ),
    "a disk that others keep busy": (
        {"state": "WAIT_DISK", "device": "vda", "peer": "dd"},
        "wait 11.3 ms instead of 1.9 ms for the disk `vda`, which `dd` kept busy",
    ),
    "a disk that others keep busy now and then": (
        {
            "state": "WAIT_DISK",
            "device": "vda",
            "peer": "dd",
            "peer_share": 0.8,
            "time_before": None,
        },
        "wait 11.3 ms for the disk `vda`, which `dd` kept busy in 80 % of that time",
    ),
    "disk": (
        {"state": "WAIT_DISK", "device": "nvme0n1", "call": "fsync"},
        "wait 11.3 ms instead of 1.9 ms for the disk `nvme0n1` in `fsync`",
    ),
    "disk, more often": (
        {"state": "WAIT_DISK", "counted": "waits", "count_before": 2.0, "count_after": 9.0},
        "wait for the disk 9 times instead of twice: 11.3 ms instead of 1.9 ms",
    ),
    "a disk's interrupt is no name": (
        {"state": "WAIT_DISK", "device": "virtio0-req.0"},
        "wait 11.3 ms instead of 1.9 ms for the disk",
    ),
    "timer": ({"state": "WAIT_TIMER"}, "sleep 11.3 ms instead of 1.9 ms"),
    "new timer": (
        {"state": "WAIT_TIMER", "time_before": 0.0},
        "sleep 11.3 ms; no request did so before",
    ),
    "network": ({"state": "WAIT_NET"}, "wait 11.3 ms instead of 1.9 ms for the network"),
    "a packet of this host": (
        {"state": "WAIT_NET", "local": True, "certainty": "unknown"},
        "wait 11.3 ms instead of 1.9 ms for a packet from this host, whose sender was not recorded",
    ),
    "a packet of another host": (
        {"state": "WAIT_NET", "local": False},
        "wait 11.3 ms instead of 1.9 ms for the network",
    ),
    "a packet of somebody": (
        {"state": "WAIT_NET", "certainty": "unknown"},
        "wait 11.3 ms instead of 1.9 ms for a packet of unknown origin",
    ),
    "network device": (
        {**NET_DEVICE, "time_before": 0.0},
        "wait 11.3 ms for the network device `eth0`; no request did so before",
    ),
    "network device, more often": (
        {**NET_DEVICE, "counted": "waits", "count_after": 9.0},
        "wait for the network device `eth0` 9 times instead of once: 11.3 ms instead of 1.9 ms",
    ),
    "pipe": ({"state": "WAIT_PIPE"}, "wait 11.3 ms instead of 1.9 ms for a pipe"),
    "packet": ({"state": "NET_TRANSIT"}, "wait 11.3 ms instead of 1.9 ms for a packet in flight"),
    "device": ({"state": "WAIT_DEVICE"}, "wait 11.3 ms instead of 1.9 ms for a device"),
    "lock": ({"state": "WAIT_FUTEX"}, "wait 11.3 ms instead of 1.9 ms for a lock"),
    "interrupts": (
        {"state": "IRQ", "device": "eth0"},
        "are interrupted for 11.3 ms instead of 1.9 ms by `eth0`",
    ),
    "deferred work": (
        {"state": "SOFTIRQ", "device": "NET_RX"},
        "are interrupted for 11.3 ms instead of 1.9 ms by softirq `NET_RX`",
    ),
    "stopped": ({"state": "WAIT_STOPPED"}, "are stopped for 11.3 ms instead of 1.9 ms"),
    "unexplained": (
        {"state": "WAIT_UNEXPLAINED"},
        "wait 11.3 ms instead of 1.9 ms; the recording does not tell for what",
    ),
    "unknown": (
        {"state": "UNKNOWN"},
        "take 11.3 ms instead of 1.9 ms that the recording tells nothing of",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_kind_of_cause_has_its_sentence(told, case):
    changes, expected = CASES[case]
    document, cause = told(**changes)
    assert describe_cause(document, cause) == f"2 of 6 `mixed` requests {expected}"
    assert describe_cause(document, cause, they=True) == f"They {expected}"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "runs 11.3 ms instead of 1.9 ms on the CPU in its own code"),
        ({"state": "WAIT_TIMER"}, "sleeps 11.3 ms instead of 1.9 ms"),
        ({"state": "IRQ"}, "is interrupted for 11.3 ms instead of 1.9 ms by the machine"),
    ],
)
def test_one_request_is_singular(told, changes, expected):
    document, cause = told(of=1, **changes)
    assert describe_cause(document, cause) == f"1 of 6 `mixed` requests {expected}"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"state": "WAIT_DISK"}, "no longer wait for the disk: before, that took 1.9 ms"),
        (HOLDER, "no longer wait for thread `holder`: before, that took 1.9 ms"),
        ({"state": "WAIT_TIMER"}, "no longer sleep: before, that took 1.9 ms"),
    ],
)
def test_what_is_gone_is_said_so(told, changes, expected):
    document, cause = told(**{**changes, "time_after": 0.0, "contribution": -1.9 * MS})
    assert describe_cause(document, cause) == f"2 of 6 `mixed` requests {expected}"


def test_all_of_a_kind_are_all(told):
    document, cause = told()
    cause.positions = list(range(6))
    for row in document.executions:
        row.anomalous = row.set == "sample" and row.position in {0, 1}
    assert describe_cause(document, cause).startswith("All 6 `mixed` requests run ")


def test_of_many_slow_ones_those_examined_are_told(told):
    document, cause = told()
    document.warnings = [notes.some_examined(2, 6)]
    assert describe_cause(document, cause).startswith("2 of 2 `mixed` requests examined run ")


@pytest.mark.parametrize(
    ("specification", "commands", "noun"),
    [
        ("marker", [], "requests"),
        ("events:a,b,key=id", [], "requests"),
        ("process,comm=x", ["x"], "runs"),
        ("process,comm=x", [], "processes"),
        ("thread", [], "threads"),
        ("windows:a.csv", [], "windows"),
    ],
)
def test_what_is_compared_has_its_noun(told, specification, commands, noun):
    document, cause = told()
    document.sets.sample.specification = specification
    document.sets.sample.commands = commands
    assert describe_cause(document, cause).startswith(f"2 of 6 `mixed` {noun} run ")


def test_an_effect_is_the_difference_of_the_sentence(told):
    _, cause = told(contribution=9.38 * MS)
    assert describe_effect(cause) == "+9.40 ms each, all of the slowdown"
    _, cause = told(contribution=14 * MS)
    assert describe_effect(cause).startswith("+14.0 ms each with what it brings along, ")
    _, cause = told(contribution=4 * MS)
    assert describe_effect(cause).startswith("+4.00 ms each net, ")


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (None, ""),
        (-0.2, ""),
        (0.004, "1 % of the slowdown"),
        (0.68, "68 % of the slowdown"),
        (1.04, "all of the slowdown"),
        (1.4, "more than the slowdown"),
    ],
)
def test_a_share_is_in_words(share, words):
    assert describe_share(share) == words


def test_what_is_not_in_the_sentence_is_in_the_facts(told):
    _, cause = told(**{**HOLDER, "call": "futex", "count_before": 0.5, "count_after": 3.0})
    assert describe_facts(cause) == [
        "thread `holder`, id 1201; state RUN; in system call `futex`; trips: 0.5 → 3; observed"
    ]


def test_causes_add_up_to_a_sentence(told):
    document, cause = told()
    whole = sum(one.excess for one in document.aligned)
    cause.contribution = whole / 2
    assert explained(document, [cause]).endswith("This cause explains 100 % of it.")
    assert explained(document, []).endswith("explain 0 % of it; 100 % is unexplained.")
    assert describe_other_causes(document, [cause]).startswith(
        "and 1 more difference in 2 requests"
    )
    # Of more than there is, faster steps won something back: of a cause, or of none.
    back = structs.replace(cause, contribution=-cause.contribution)
    for causes in ([cause, cause, cause, back], [cause, cause, cause]):
        account = explained(document, causes)
        lost, won, less = map(float, re.findall(r"([\d.]+) ms", account))
        assert account.endswith(f" by these causes, less {less:g} ms that faster steps won back.")
        assert (lost, lost) == pytest.approx((won - less, whole / MS), abs=0.06)
    cause.contribution = -62_500.0
    assert describe_other_causes(document, [cause]).endswith(", \u2212125 µs in all")


def test_a_faster_step_is_the_same_sentence_with_less(told):
    document, cause = told(time_before=11.3 * MS, time_after=1.9 * MS, contribution=-9.4 * MS)
    assert describe_cause(document, cause) == (
        "2 of 6 `mixed` requests run 1.9 ms instead of 11.3 ms on the CPU in their own code"
    )
    assert describe_effect(cause).startswith("-9.4")


@pytest.mark.parametrize(
    ("state", "detail", "profile", "expected"),
    [
        ("WAIT_DISK", "virtio0-req.0", "minimal", "--profile io"),
        ("WAIT_DISK", "vda", "io", ""),
        ("WAIT_DISK", "vda", "", ""),  # not recorded by critpath
        ("WAIT_TIMER", "hrtimer", "minimal", "--profile locks"),
        ("WAIT_TIMER", "hrtimer", "full", ""),
        ("WAIT_TIMER", "tcp_delack_timer", "minimal", ""),
        ("WAIT_FUTEX", "futex", "syscalls", "--profile locks"),
        ("RUN", "", "minimal", ""),
    ],
)
def test_a_profile_that_would_tell_more_is_offered(told, state, detail, profile, expected):
    one, cause = told(state=state)
    one.findings[cause.main].state, one.findings[cause.main].detail = state, detail
    for which in (one.sets.normal, one.sets.sample):
        which.profiles = [profile] if profile else []
    hints = describe_hints(one)
    assert len(hints) == bool(expected)
    assert expected in "".join(hints)
    assert expected in "\n".join(answer_lines(one))


@pytest.mark.parametrize(
    ("timer", "expected"),
    [("hrtimer", "sleeping"), ("tcp_delack_timer", "waiting for data that TCP, without TCP_NODEL")],
)
def test_a_timer_of_the_kernel_is_named_where_another_thread_waits_for_it(told, timer, expected):
    one, cause = told(state="WAIT_TIMER", role="peer")
    one.findings[cause.main].state, one.findings[cause.main].detail = "WAIT_TIMER", timer
    assert f"which was {expected}" in " ".join(" ".join(answer_lines(one)).split())


@pytest.mark.parametrize(
    ("timer", "share", "expected"),
    [
        ("hrtimer", 0.6, ", mostly sleeping"),
        ("hrtimer", 0.4, ""),
        ("tcp_delack_timer", 0.6, ", mostly waiting for data that TCP, without TCP_NODELAY"),
    ],
)
def test_what_took_most_of_many_trips_to_a_thread_is_told_where_it_slept(
    told, timer, share, expected
):
    one, cause = told(
        state="RUN", role="peer", comm="named", counted="trips", count_before=1.0, count_after=20.0
    )
    of = one.findings[cause.main]
    others = [("WAIT_TIMER", timer, share), ("RUN", "", 1 - share)]
    for state, detail, part in others:
        contribution = part * cause.contribution
        one.findings.append(
            structs.replace(of, state=state, detail=detail, contribution=contribution)
        )
    cause.findings = [len(one.findings) - 2, len(one.findings) - 1]
    said = " ".join(" ".join(answer_lines(one)).split())
    assert "wait for named 20 times" in said
    assert ("mostly" in said) == bool(expected)
    assert expected in said


@pytest.mark.parametrize(
    ("time_before", "expected"),
    [
        (5.0, "wait for named 3 times instead of twice: 10.0 ms instead of 5.0 ms"),
        (1.0, "wait 10.0 ms instead of 1.0 ms for thread named."),
    ],
)
def test_trips_that_became_longer_more_than_more_are_told_by_their_time(
    told, time_before, expected
):
    one, _ = told(
        state="RUN", role="peer", comm="named", counted="trips", count_before=2.0, count_after=3.0,
        time_before=time_before * MS, time_after=10.0 * MS,
    )  # fmt: skip
    assert expected in " ".join(" ".join(answer_lines(one)).split())


def test_what_a_busy_machine_adds_to_each_of_many_waits(told):
    document, cause = told(state="WAIT_DISK", counted="waits", count_before=0.0, count_after=187.5,
                           time_before=0.0)  # fmt: skip
    first = document.findings[0]
    behind = structs.replace(first, state="WAIT_CPU", role="", contribution=400 * MS)
    document.findings.append(behind)
    cause.findings = [cause.findings[0], len(document.findings) - 1]
    said = (
        "They wait for the disk 188 times a request, on average, instead of never: 11.3 ms, and "
        "then {} ms more for a CPU"
    )
    cause.contribution = 220.0 * MS
    assert describe_cause(document, cause, they=True) == said.format(200)
    # A step faster won some of it back: no more than "+200 ms each" beside it.
    cause.contribution = 200.0 * MS
    assert describe_cause(document, cause, they=True) == said.format(189)
