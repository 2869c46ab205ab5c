"""Processes of a whole machine are compared program by program, and types have names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from critpath.errors import UsageError
from critpath.pipeline import CompareSettings, compare
from critpath.text.notes import with_type_names

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
    [said] = [w for w in result.warnings if "whatever they were given" in w]
    assert said.startswith("processes of `python3` are compared whatever they were given")
    assert not [t for t in (*result.reasons, *result.warnings) if " n0" in t or " n1" in t]


SCRIPTS = {"python3 a.py": 30, "python3 b.py": 30}


def test_scripts_are_compared_with_themselves(machine):
    result = compare(machine(**SCRIPTS), machine(**SCRIPTS), QUICK)
    assert {*result.normal.executions.label} == {*SCRIPTS}
    assert not [w for w in result.warnings if "whatever they were given" in w]


def test_code_that_interpreters_were_given_is_not_known(machine):
    sets = [machine(**{"python3 -": 30, "python3 a.py": 30}) for _ in range(2)]
    [said] = [w for w in compare(*sets, QUICK).warnings if "whatever they were given" in w]
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
        assert [w for w in result.warnings if "whatever they were given" in w]


def test_types_are_called_by_their_labels():
    names = {0: "checkout", 1: "render", 2: "render"}
    said = "RUN@n0 is +1 ms an execution of type n0 (p = 0.1); types n1 (3), n2 (4), n3 (5)"
    assert with_type_names(said, names) == (
        "RUN@n0 is +1 ms an execution of type `checkout` (p = 0.1); "
        "types `render` (n1) (3), `render` (n2) (4), n3 (5)"
    )


def test_requests_that_ask_others_than_before_are_no_other_kind(machine):
    cached, asking = "web:80", "web:80 → app:81"
    few, many = {cached: 30, asking: 3, "db:5": 20}, {cached: 3, asking: 30, "db:5": 20}
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
