"""A cause in a sentence: a template per kind of cause, in all its cases (`sentences.toml`)."""

from __future__ import annotations

import itertools
import re
import tomllib
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from critpath.documents import CauseFacts, CodePlace
from critpath.report.document.comparison import comparison_document
from critpath.report.text.answer import answer_lines
from critpath.schema.causes import BY_ID, CATALOGUE, OF_STATE, needs_of
from critpath.schema.kinds import State
from critpath.schema.notes import SomeExamined
from critpath.text.answer import describe_hints
from critpath.text.explanation import (
    describe_cause,
    describe_effect,
    describe_facts,
    describe_other_causes,
    describe_share,
    explained,
)
from critpath.text.notes import word
from critpath.text.phrases import name_kind

MS = 1_000_000.0
TABLE = tomllib.loads(Path(__file__).with_name("sentences.toml").read_text(encoding="utf-8"))


def from_table(of: tuple[str, Any]) -> tuple[str, Any]:
    """Return a fact as a document has it: times in nanoseconds, places in the code as such."""
    name, value = of
    if name == "locations":
        value = [CodePlace(**place) for place in value]
    elif name.startswith(("time_", "meanwhile_")):
        value = None if value == "none" else value * MS
    return name, value


FACTS = CauseFacts(**dict(map(from_table, TABLE["facts"].items())))
HOLDER = {"role": "holder", "comm": "holder", "peer": "holder", "counted": "trips"}


@pytest.fixture(scope="module")
def made(factory):
    return comparison_document(factory.comparison())


@pytest.fixture
def told(made):
    """Return a function that gives a document and a cause of given facts."""

    def make(*, of=2, contribution=9.4 * MS, **changes):
        document = deepcopy(made)
        cause = document.causes[0]
        cause.facts = structs.replace(FACTS, **changes)
        cause.positions, cause.contribution, cause.share = [0, 1][:of], contribution, 0.99
        document.findings[0].state = cause.facts.state
        document.findings[0].detail = ""
        return document, cause

    return make


@pytest.mark.parametrize("case", TABLE["cause"], ids=lambda case: case["case"])
def test_a_cause_has_its_sentence(told, case):
    changes = dict(map(from_table, case.get("facts", {}).items()))
    count = case.get("requests", 2)
    document, cause = told(of=count, contribution=case.get("contribution", 9.4) * MS, **changes)
    assert describe_cause(document, cause) == f"{count} of 6 `mixed` requests {case['says']}"
    if count > 1:
        assert describe_cause(document, cause, they=True) == f"They {case['says']}"


def test_all_of_a_kind_are_all(told):
    document, cause = told()
    cause.positions = list(range(6))
    for row in document.executions:
        row.anomalous = row.set == "sample" and row.position in {0, 1}
    assert describe_cause(document, cause).startswith("All 6 `mixed` requests run ")


def test_of_many_slow_ones_those_examined_are_told(told):
    document, cause = told()
    examined = SomeExamined(2, 6)
    document.warnings, document.warning_ids = [word(examined)], [examined.id]
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
    assert describe_other_causes(document, [cause]).endswith(", -125 µs in all")


def test_an_effect_of_a_faster_step_is_negative(told):
    _, cause = told(time_before=11.3 * MS, time_after=1.9 * MS, contribution=-9.4 * MS)
    assert describe_effect(cause).startswith("-9.4")


@pytest.mark.parametrize(
    ("state", "detail", "profile", "expected"),
    [
        ("WAIT_DISK", "virtio0-req.0", "minimal", "--profile io"),
        ("WAIT_DISK", "vda", "io", "with `--stacks auto --files`"),
        ("WAIT_DISK", "vda", "", ""),  # not recorded by critpath
        ("WAIT_TIMER", "hrtimer", "minimal", "with `--profile syscalls --files`"),
        ("WAIT_TIMER", "hrtimer", "locks", "with `--profile syscalls --files`"),
        ("WAIT_TIMER", "hrtimer", "syscalls", "--profile locks"),  # by turns in several calls
        ("WAIT_TIMER", "hrtimer", "full", ""),
        ("WAIT_TIMER", "tcp_delack_timer", "minimal", ""),
        ("WAIT_FUTEX", "futex", "syscalls", "--profile locks"),
        ("RUN", "", "minimal", "with `--profile syscalls --stacks auto`"),
        ("RUN_USER", "", "syscalls", "with `--stacks auto`"),
        ("RUN_SYSCALL", "read", "syscalls", "with `--stacks auto`"),
        ("WAIT_NET", "", "minimal", ""),
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
    assert expected.replace("`", "") in " ".join(" ".join(answer_lines(one)).split())


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        *((call, "--stacks auto --files") for call in ("poll", "epoll_wait", "clock_nanosleep")),
        *((call, "--stacks auto --files") for call in ("select", "pselect6", "ppoll", "pause")),
        *((call, "--profile locks") for call in ("flock", "fcntl", "semtimedop")),
    ],
)
def test_a_sleep_of_a_known_length_is_not_for_a_lock(told, call, expected):
    one, cause = told(state="WAIT_TIMER", call=call)
    one.findings[cause.main].state, one.findings[cause.main].detail = "WAIT_TIMER", "hrtimer"
    for which in (one.sets.normal, one.sets.sample):
        which.profiles = ["syscalls"]
    [hint] = describe_hints(one)
    assert expected in hint
    assert ("lock" in hint) == ("lock" in expected)
    cause.facts = structs.replace(cause.facts, locations=[CodePlace("poll(127.0.0.2:53)", 1.0)])
    assert not [hint for hint in describe_hints(one) if "--stacks" in hint]


@pytest.mark.parametrize(
    ("state", "counted", "says"),
    [
        ("RUN", {}, "in their own code or the kernel's for it"),
        ("RUN_USER", {}, "in their own code"),
        ("RUN", {"kernel": (2, 50), "faults": (4182, 41046)},
         "in the kernel for page faults, 41,046 a request instead of 4,182"),
        ("RUN_USER", {"kernel": (2, 50), "faults": (4182, 41046)},
         "in the kernel for page faults, 41,046 a request instead of 4,182"),
        ("RUN", {"kernel": (2, 50), "faults": (4182, 4200)}, "in the kernel for them"),
        ("RUN", {"kernel": (2, 5), "faults": (4182, 4200)}, "in their own code"),
        ("RUN", {"kernel": (2, 30), "faults": (4182, 41046)},
         "in their own code or the kernel's for it"),
    ],
)  # fmt: skip
def test_whose_code_ran_is_told_as_far_as_it_is_known(told, state, counted, says):
    changes = {
        f"{name}_{when}": value * (MS if name == "kernel" else 1)
        for name, pair in counted.items()
        for when, value in zip(("before", "after"), pair, strict=True)
    }
    _, cause = made_of = told(
        state=state, time_before=10 * MS, time_after=69 * MS, contribution=59 * MS, **changes
    )
    said = describe_cause(made_of[0], cause, they=True)
    assert said == f"They run 69.0 ms instead of 10.0 ms on the CPU {says}"


def test_of_a_short_run_the_kernels_part_is_not_known(told):
    """Its times are sampled by ticks: of a run without any all is the program's."""
    document, cause = told(
        time_before=1.3 * MS, time_after=1.8 * MS, contribution=0.5 * MS, kernel_before=0.0,
        kernel_after=0.0, faults_before=90.0, faults_after=91.0,
    )  # fmt: skip
    assert describe_cause(document, cause).endswith(
        "1.8 ms instead of 1.3 ms on the CPU in their own code or the kernel's for it"
    )


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
    assert expected.replace("`", "") in " ".join(" ".join(answer_lines(one)).split())


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


# Every kind of the catalogue, in every form that a sentence has.

NEEDED = {
    "location": "flush (app/log.c:4)", "caller": "serve (app/main.c:2)", "call": "read",
    "device": "vda", "route": "bridge br0 instead of lo", "peer": "make", "peer_share": 0.4,
    "kin": "sibling", "kernel_before": 1.0 * MS, "kernel_after": 9.0 * MS,
    "faults_before": 10.0, "faults_after": 9000.0,
    "elsewhere_idle": 0.9, "cpu": 3, "host": "db", "control_group": "/web", "limit": "1 in 10",
    "meanwhile": "WAIT_DISK", "meanwhile_before": 1.0 * MS, "meanwhile_after": 8.0 * MS,
    "local": True, "place": "pod shop/ci-*",
    "loop": "node:3000", "request": "GET /login", "asks": "pricing:9101", "under_way": 7.8,
    "connections": 4, "held": 88.0,
}  # fmt: skip
THEIRS = {"role": "holder", "comm": "holder", "peer": "holder"}
OFTEN = {"count_before": 1.0, "count_after": 22.0}
FORMS = {
    "longer": {},
    "new": {"time_before": 0.0, "count_before": 0.0},
    "more often": {"counted": "waits", **OFTEN},
    "the same steps": {"counted": "iterations", **OFTEN},
    "gone": {"time_before": 11.3 * MS, "time_after": 0.0, "contribution": -11.3 * MS},
    "not known how long": {"time_after": None},
    "one": {"of": 1},
    "all": {"of": 6},
    "theirs longer": THEIRS,
    "theirs inferred": {**THEIRS, "certainty": "inferred"},
    "theirs more trips": {**THEIRS, "counted": "trips", **OFTEN},
    "theirs gone": {
        **THEIRS, "time_before": 11.3 * MS, "time_after": 0.0, "contribution": -11.3 * MS,
    },
}  # fmt: skip


def say(told, kind, *, of=2, **changes):
    itself = {"state": kind.states[0].name, "cause_id": kind.id, "certainty": kind.sure}
    peer = {"peer": "cc1"} if kind.id in {"busy-cpu", "own-threads"} else {}
    document, cause = told(**{**itself, **peer, **changes})
    if kind.id == "kernel-timer":
        document.findings[0].detail = "tcp_write_timer"
    cause.positions = list(range(of))
    for row in document.executions:
        row.anomalous = row.set == "sample" and row.position in cause.positions
    return describe_cause(document, cause)


def facts_of(kind):
    return {name: NEEDED[name] for name in kind.needs}


def test_every_kind_has_its_sentences(told, golden):
    lines = []
    for kind in CATALOGUE:
        forms = {**FORMS, "all facts": facts_of(kind), "theirs, all facts": THEIRS | facts_of(kind)}
        lines += [f"## {kind.id}", ""]
        lines += [f"{name}: {say(told, kind, **changes)}" for name, changes in forms.items()]
        lines.append("")
    golden(Path(__file__).with_name("kinds.txt"), "\n".join(lines))


LOOP = {"state": "QUEUED", "cause_id": "queue", "loop": "node:3000", "under_way": 7.8}


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (
            {"request": "GET /login"},
            (
                "for the loop of `node:3000`, which worked for `GET /login` (1 of 8 requests under "
                "way)"
            ),
        ),
        ({}, "for the loop of `node:3000`, which worked for other requests (8 requests under way)"),
        (
            {"asks": "pricing:9101"},
            (
                "for the loop of `node:3000`, which was blocked in a call to `pricing:9101` "
                "(8 requests under way)"
            ),
        ),
        (
            {"asks": "pricing:9101", "request": "GET /quote"},
            (
                "for the loop of `node:3000`, which was blocked in a call to `pricing:9101` for "
                "`GET /quote` (1 of 8 requests under way)"
            ),
        ),
        (
            {"request": "GET /nap", "meanwhile": "WAIT_TIMER", "meanwhile_after": 8.0 * MS},
            (
                "for the loop of `node:3000`, which was blocked for `GET /nap` "
                "(1 of 8 requests under way), the thread sleeping for 8.0 ms"
            ),
        ),
        (
            {"loop": "", "request": "GET /login"},
            "behind other requests, mostly `GET /login`",
        ),
        (
            {"state": "SHARED", "cause_id": "shared-loop"},
            "on the loop of `node:3000`, shared with other requests (8 under way)",
        ),
    ],
)
def test_what_held_a_loop_is_said(told, facts, words):
    document, cause = told(**{**LOOP, **facts})
    assert words in describe_cause(document, cause)


@pytest.mark.parametrize(
    ("kin", "words"),
    [
        ("thread", "other threads of their own process (`cc1`)"),
        ("child", "their child `cc1`"),
        ("parent", "their parent `cc1`"),
        ("program", "`cc1` of their own program"),
        ("sibling", "another `cc1`"),
        ("namesake", "another `cc1`"),
        ("starter", "`cc1`"),
        ("stranger", "`cc1`"),
        ("", "`cc1`"),
        ("of a later version", "`cc1`"),
    ],
)
def test_who_had_the_cpu_is_told_from_others_of_its_name(told, kin, words):
    said = say(told, BY_ID["busy-cpu"], kin=kin, time_before=0.0)
    assert f"for a CPU that was busy running {words}; no request" in said


@pytest.mark.parametrize(("kin", "who"), [("stranger", ""), ("namesake", "another ")])
def test_where_who_had_the_cpu_is(told, kin, who):
    place = "pod batch/loader-*"
    said = say(told, BY_ID["busy-cpu"], kin=kin, place=place, time_before=0.0)
    assert f"for a CPU that was busy running {who}`cc1` (pod batch/loader-*); no request" in said


def test_where_who_is_waited_for_is(told):
    document, cause = told(role="postgres", comm="postgres", peer="postgres", place="container db")
    said = describe_cause(document, cause)
    assert "for thread `postgres` (container db), which was running" in said
    # Of a thread that itself waited for a cpu it is told of who had that.
    document, cause = told(
        state="WAIT_CPU", role="postgres", comm="postgres", peer="gzip", place="unit cron.service"
    )
    for finding in document.findings:
        finding.state = "WAIT_CPU"
    said = describe_cause(document, cause)
    assert "`postgres` (" not in said
    assert "`gzip` (unit cron.service)" in said


_WITHOUT = ("", "control_group", "location", "request")  # which other facts say more than


@pytest.mark.parametrize("state", State)
def test_what_a_kind_needs_is_said(told, state):
    """Of each fact it depends what some sentence of the state says."""
    said = set()
    whose = ({}, {"role": "holder", "comm": "holder"})
    for kind, theirs, without in itertools.product(OF_STATE[state], whose, _WITHOUT):
        every = {key: of for key, of in facts_of(kind).items() if key != without}
        for name in every:
            rest = {key: of for key, of in every.items() if key != name}
            if say(told, kind, **theirs, **every) != say(told, kind, **theirs, **rest):
                said.add(name)
    assert said >= needs_of(state)


@pytest.mark.parametrize(
    ("state", "mostly"),
    [
        ("WAIT_DISK", ", mostly waiting for the disk"),
        ("WAIT_TIMER", ", mostly sleeping"),
        ("RUN", ""),
        ("WAIT_CPU", ""),
        ("UNKNOWN", ""),
    ],
)
def test_trips_say_what_the_other_did(told, state, mostly):
    document, cause = told(
        state=state, role="iou-wrk-#", comm="iou-wrk-#", counted="trips", count_before=1.0,
        count_after=10.0,
    )  # fmt: skip
    for finding in document.findings:
        finding.state = state
    often = "10 times instead of once: 11.3 ms instead of 1.9 ms"
    assert f"wait for threads `iou-wrk-*` {often}{mostly}" in describe_cause(document, cause)


@pytest.mark.parametrize(
    ("comm", "kin", "words"),
    [
        ("worker", "thread", "another thread of their own called `worker`, which was"),
        ("holder", "thread", "thread `holder`, which was"),
        ("worker", "sibling", "another `worker`, which was"),
        ("worker", "namesake", "another `worker`, which was"),
        ("cc1", "child", "their child `cc1`, which was"),
        ("cc1", "stranger", "thread `cc1`, which was"),
        ("cc1", "", "thread `cc1`, which was"),
        ("gc-#", "child", "their child `gc-*`, which were"),
        ("gc-#", "sibling", "threads `gc-*`, which were"),
    ],
)
def test_who_is_waited_for_is_told_from_others_of_its_name(told, comm, kin, words):
    document, cause = told(role=comm, comm=comm, peer=comm, kin=kin)
    for row in document.executions:
        row.comm = "worker"
    assert f"wait 11.3 ms instead of 1.9 ms for {words} running" in describe_cause(document, cause)


def test_what_it_did_is_told_where_waits_for_a_cpu_delayed_it(told):
    document, cause = told(
        state="WAIT_DISK", role="iou-wrk-#", comm="iou-wrk-#", counted="trips", count_before=1.0,
        count_after=10.0,
    )  # fmt: skip
    disk, *rest = (document.findings[index] for index in cause.findings)
    disk.state, disk.contribution = "WAIT_DISK", 3.0 * MS
    for other in rest:
        other.state, other.contribution = "WAIT_CPU", 8.0 * MS
    assert rest
    said = describe_cause(document, cause)
    assert said.endswith("instead of 1.9 ms, waiting for the disk and waiting for a CPU")


@pytest.mark.parametrize(
    ("label", "noun", "name"),
    [
        ("cpu", "requests", "`cpu` requests"),
        ("req", "requests", "requests"),
        ("Request", "request", "request"),
        ("req", "runs", "`req` runs"),
        ("run", "runs", "runs"),
        ("", "requests", "requests"),
    ],
)
def test_a_label_that_is_the_word_itself_is_not_said_twice(label, noun, name):
    assert name_kind(label, noun) == name
