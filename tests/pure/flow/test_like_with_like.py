"""Processes of a whole machine are compared program by program, and types have names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from critpath.errors import UsageError
from critpath.flow import compare
from critpath.model import CompareSettings
from critpath.model.joining import join_sets
from critpath.model.requests import RequestFacts
from critpath.report.document.comparison import comparison_document
from critpath.report.html.as_html import render_html
from critpath.schema.notes import PartialComparison, Shift, SlowerType
from critpath.text.notes import Words, word, word_all

QUICK = CompareSettings(permutations=500)


@pytest.fixture
def machine(healthy):
    """Return a maker of a whole machine's processes: so many of each program."""

    def make(specification="process", **programs):
        made = healthy([sum(programs.values())], seed=len(programs))
        labels = tuple(name for name, count in programs.items() for _ in range(count))
        return replace(
            made, specification=specification, executions=replace(made.executions, label=labels)
        )

    return make


def test_processes_of_programs_that_one_set_lacks_are_refused(machine):
    normal, sample = machine(work=30, cron=2), machine(work=30, logrotate=1)
    with pytest.raises(UsageError) as caught:
        compare(normal, sample, QUICK)
    assert "processes of 3 programs" in caught.value.what
    assert caught.value.do == "choose one: --execution process,comm=work"


def test_what_was_typed_stays_in_what_to_type(machine):
    specification = "process,cgroup=/a b"
    sets = (machine(specification, work=30, cron=count) for count in (2, 3))
    with pytest.raises(UsageError, match="2 programs") as caught:
        compare(*sets, QUICK)
    assert "--execution 'process,cgroup=/a b,comm=work'" in caught.value.do


@pytest.mark.parametrize("specification", ["process,comm=work", "thread", "marker"])
def test_what_was_chosen_is_compared(machine, specification):
    sets = [machine(specification, work=30, cron=count) for count in (2, 3)]
    assert compare(*sets, QUICK).verdict


def test_alike_programs_are_compared_and_their_arguments_are_unknown(machine):
    sets = [machine(python3=30, work=30) for _ in range(2)]
    result = compare(*sets, QUICK)
    [said] = [w for w in word_all(result.warnings) if "whatever they were given" in w]
    assert said.startswith("processes of `python3` are compared whatever they were given")
    assert not [
        t for t in word_all((*result.reasons, *result.warnings)) if " n0" in t or " n1" in t
    ]


SCRIPTS = {"python3 a.py": 30, "python3 b.py": 30}


def test_scripts_are_compared_with_themselves(machine):
    result = compare(machine(**SCRIPTS), machine(**SCRIPTS), QUICK)
    assert {*result.normal.executions.label} == {*SCRIPTS}
    assert not [w for w in word_all(result.warnings) if "whatever they were given" in w]


def test_code_that_interpreters_were_given_is_not_known(machine):
    sets = [machine(**{"python3 -": 30, "python3 a.py": 30}) for _ in range(2)]
    [said] = [
        w for w in word_all(compare(*sets, QUICK).warnings) if "whatever they were given" in w
    ]
    assert said.startswith("processes of `python3` are")


def test_other_scripts_of_an_interpreter_are_refused(machine):
    with pytest.raises(UsageError, match="not the same ones") as caught:
        compare(machine(**{"python3 a.py": 30}), machine(**{"python3 b.py": 30}), QUICK)
    assert caught.value.do == "choose one: --execution process,comm=python3"
    with pytest.raises(UsageError) as caught:
        compare(machine(**SCRIPTS), machine(**{"python3 a.py": 30, "python3 c.py": 5}), QUICK)
    assert caught.value.do == "choose one: --execution 'process,comm=python3 a.py'"


def test_a_recording_without_scripts_is_compared_by_program(machine):
    for sets in (
        (machine(**SCRIPTS), machine(python3=30)),
        (machine(python3=60), machine(**SCRIPTS)),
    ):
        result = compare(*sets, QUICK)
        assert {*result.normal.executions.label, *result.sample.executions.label} == {"python3"}
        assert [w for w in word_all(result.warnings) if "whatever they were given" in w]


def test_types_are_called_by_their_labels():
    words = Words(types={0: "checkout", 1: "render", 2: "render"})
    shift = Shift("RUN", 1e6, 0, "", 0.1)
    assert word(SlowerType(shift), words) == (
        "type `checkout` by itself: RUN +1.00 ms (adjusted p = 0.1)"
    )
    said = word(PartialComparison(5, 17, (0,), ((1, 3), (2, 4), (3, 5))), words)
    assert "(type `checkout`)" in said
    assert said.endswith("of the types `render` (n1) (3), `render` (n2) (4), n3 (5)")


def test_requests_that_ask_others_than_before_are_no_other_kind(machine):
    cached, asking = "web:80", "web:80 → app:81"
    few, many = {cached: 60, asking: 6, "db:5": 20}, {cached: 6, asking: 60, "db:5": 20}
    result = compare(machine("requests:port=80", **few), machine("requests:port=80", **many), QUICK)
    for side in (result.normal, result.sample):
        assert {*side.executions.label} == {cached, "db:5"}
    # As many as before: who asks is a kind of its own.
    result = compare(machine("requests", **few), machine("requests", **few), QUICK)
    assert {*result.sample.executions.label} == {cached, asking, "db:5"}
    # A service that one of the sets has not is left as it is.
    one, other = {"db:5": 20, cached: 20}, {"db:5": 20, "other:1 → app:81": 20}
    result = compare(machine("requests", **one), machine("requests", **other), QUICK)
    assert {*result.sample.executions.label} == {*other}


def test_a_service_whose_container_was_made_anew_is_the_same(machine):
    def labels(before, after):
        sets = (machine("requests", **dict.fromkeys(of, 20)) for of in (before, after))
        result = compare(*sets, QUICK)
        return [{*side.executions.label} for side in (result.normal, result.sample)]

    old, new = "web:80 (container a1)", "web:80 (container b2)"
    assert labels([old], [new]) == [{"web:80"}] * 2
    # In a recording of before containers had names; whom they ask alike.
    asks = "{} → db:5{}"
    named = [asks.format(old, " (pod x/db-*)"), "db:5 (pod x/db-*)"]
    assert labels([asks.format("web:80", ""), "db:5"], named) == [{"web:80 → db:5", "db:5"}] * 2
    # Two that are two stay two.
    assert labels([old, new], [old, new]) == [{old, new}] * 2
    assert labels([old, new], [old, new, "db:5"])[0] == {old, new}


def asked_by(made, clients, size, client="python"):
    """Return a set whose executions are requests of clients, of so many bytes."""
    executions = made.executions
    n = len(executions)
    column = np.full(n, size)
    facts = RequestFacts(
        service=("memcached:11211",) * n,
        parent=("",) * n,
        asks=("{}",) * n,
        boundary=("certain",) * n,
        attribution=("certain",) * n,
        message=("",) * n,
        trace_id=("",) * n,
        client=(client,) * n,
        true_ns=executions.end - executions.begin,
        asked_ns=column * 0,
        queued_ns=column * 0,
        bytes_in=column,
        bytes_out=column,
        threads=column * 0 + 1,
    )
    ids = tuple(f"{clients[i % len(clients)]}>11211#{i}" for i in range(n))
    executions = replace(executions, id=ids, label=facts.service, requests=facts)
    return replace(made, specification="requests", executions=executions)


def join(*sets):
    return replace(join_sets(list(sets)), specification="requests")


STAYED, OTHERS = ("127.0.0.1:5001", "127.0.0.1:5002"), ("127.0.0.1:5003", "127.0.0.1:5004")


def test_a_stray_request_of_another_service_leaves_the_kinds_as_they_are(machine):
    """One request of something else that ran meanwhile made types out of all labels."""
    usual = {"web:80": 40, "db:5": 30}
    normal, sample = machine("requests", **usual), machine("requests", **usual, **{"cron:?": 1})
    result = compare(normal, sample, QUICK)
    assert {*result.sample.executions.label} == {*usual}
    [said] = [w for w in word_all(result.warnings) if "cron" in w]
    assert said.startswith("1 of 71 requests after is of `cron:?`, which had fewer than 5 before")
    assert said.endswith("left out")
    few = machine("requests", **usual, **{"cron:?": 4})
    assert {*compare(few, sample, QUICK).sample.executions.label} == {*usual}
    known = machine("requests", **usual, **{"cron:?": 5})
    assert "cron:?" in compare(known, sample, QUICK).sample.executions.label


def test_a_kind_that_is_rare_is_compared_with_the_usual_one_of_its_service(machine):
    usual = {"web:80": 40, "web:80 → db:5": 60, "db:5": 60}
    rare = {"web:80 → db:5, mail:25": 2}
    result = compare(machine("requests", **usual), machine("requests", **usual, **rare), QUICK)
    assert {*result.sample.executions.label} == {*usual}
    assert sum(label == "web:80 → db:5" for label in result.sample.executions.label) == 62
    assert [w for w in word_all(result.warnings) if w.startswith("2 requests after ask services")]


def test_requests_of_new_clients_that_ask_for_something_else_are_no_slower_requests(healthy):
    before = asked_by(healthy([60], seed=1), STAYED, 100)
    after = asked_by(healthy([60], seed=2), STAYED, 100)
    hog = asked_by(healthy([120], [9.0], seed=3), OTHERS, 100_000)
    result = compare(before, join(after, hog), QUICK)
    assert (result.verdict, len(result.sample)) == ("ok", 60)
    said = word(result.warnings[0])
    assert said.startswith("120 of 180 requests after are of 2 connections that did not ask before")
    page = render_html(comparison_document(result))
    assert said[:60] in page.partition('id="recordings"')[0].partition('class="warn"')[2]
    # As many from before that are gone are said, too.
    gone = asked_by(healthy([40], seed=4), ("127.0.0.1:5009",), 7)
    result = compare(join(before, gone), join(after, hog), QUICK)
    assert "40 of 100 requests before are of connections not there after" in word(
        result.warnings[1]
    )


def test_more_of_the_same_from_new_clients_is_compared(healthy):
    before = asked_by(healthy([60], seed=1), STAYED, 100)
    after = [asked_by(healthy([60], seed=s), who, 100) for s, who in ((2, STAYED), (3, OTHERS))]
    assert len(compare(before, join(*after), QUICK).sample) == 120


def test_where_no_connection_stays_a_client_is_a_process_or_an_address(healthy):
    before = asked_by(healthy([60], seed=1), STAYED, 100)
    slow = healthy([60], [9.0], seed=3)
    assert len(compare(before, asked_by(slow, OTHERS, 100_000), QUICK).sample) == 60
    after = asked_by(healthy([60], seed=2), OTHERS, 100)
    for where, client in (("127.0.0.1:7", "wrk"), ("10.0.0.9:7", "10.0.0.9")):
        result = compare(before, join(after, asked_by(slow, (where,), 100_000, client)), QUICK)
        assert result.verdict == "ok"
        said = f"60 of 120 requests after are of 1 client (`{client}`) that did not ask before"
        assert word(result.warnings[0]).startswith(said)
