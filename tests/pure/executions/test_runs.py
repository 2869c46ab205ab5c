"""Runs of a recorded command, and processes chosen by where they live."""

from __future__ import annotations

import pytest

from critpath.errors import UsageError
from critpath.executions.find import find_executions
from critpath.executions.specification import parse_specification
from critpath.model import Run


def add_process(made, start, tid, *programs, parent=50, **namespaces):
    """Fork, exec (one or several) and exit, 10 ns apart."""
    fields = {"parent_tid": parent, "child_tid": tid, **namespaces}
    made.add(start, 0, "sched_process_fork", **fields)
    for step, program in enumerate(programs, 1):
        made.add(start + 10 * step, 0, "sched_process_exec", tid=tid, filename=program)
    made.add(start + 90, 0, "sched_process_exit", tid=tid, comm="x")


def windows(found):
    return list(zip(found.tid.tolist(), found.begin.tolist(), found.end.tolist(), strict=True))


def test_runs_are_the_executions_and_what_they_start_is_not(record):
    made = record()
    add_process(made, 100, 7, "/bin/sh")
    add_process(made, 120, 8, "/bin/cat", parent=7)
    add_process(made, 300, 9, "/bin/elsewhere")
    runs = (Run(1, 7, 95, 195, 0),)
    found = find_executions(made.events(), "process", runs=runs)
    assert windows(found) == [(7, 110, 190)]
    assert found.comm == ("sh",)
    assert found.label == ("",)  # old/work and new/work are to be compared with each other


def test_a_pid_that_is_used_again_is_told_by_the_window(record):
    made = record()
    add_process(made, 100, 7, "./work")
    add_process(made, 300, 7, "/bin/other")
    add_process(made, 500, 7, "./work")
    runs = (Run(1, 7, 95, 195, 0), Run(2, 7, 495, 595, 0))
    found = find_executions(made.events(), "process", runs=runs)
    assert windows(found) == [(7, 110, 190), (7, 510, 590)]


def test_an_exec_of_the_command_itself_does_not_end_its_run(record):
    made = record()
    add_process(made, 100, 7, "/bin/sh", "/usr/bin/env", "./work")
    found = find_executions(made.events(), "process", runs=(Run(1, 7, 95, 195, 0),))
    assert windows(found) == [(7, 110, 190)]


def test_an_exec_by_another_thread_does_not_end_its_run(record):
    made = record()
    add_process(made, 100, 7, "./threads")
    made.add(130, 0, "sched_process_exit", tid=7, comm="x")  # the first thread makes room
    made.add(140, 0, "sched_process_exec", tid=7, filename="./work")
    found = find_executions(made.events(), "process", runs=(Run(1, 7, 95, 195, 0),))
    assert windows(found) == [(7, 110, 190)]


@pytest.mark.parametrize("lost", ["sched_process_exec", "sched_process_exit"])
def test_a_run_whose_exec_or_exit_was_lost_is_counted(record, lost):
    made = record()
    add_process(made, 100, 7, "./work")
    made.rows = [row for row in made.rows if row[2] != lost]
    found = find_executions(made.events(), "process", runs=(Run(1, 7, 95, 195, 0),))
    assert len(found) == 0
    assert found.incomplete == 1
    assert "1 run of the command without its exec or exit" in found.notes[0]


@pytest.mark.parametrize("how", ["timed_out", "interrupted"])
def test_a_run_that_did_not_end_by_itself_is_no_execution(record, how):
    made = record()
    add_process(made, 100, 7, "./work")
    add_process(made, 300, 8, "./work")
    runs = (Run(1, 7, 95, 195, 0), Run(2, 8, 295, 395, 124, **{how: True}))
    found = find_executions(made.events(), "process", runs=runs)
    assert windows(found) == [(7, 110, 190)]
    assert found.incomplete == 1
    assert found.notes == ("1 run ended by the timeout or by whoever ended the recording",)


def test_an_interleaved_recording_without_a_run_of_its_own_has_no_execution(record):
    made = record()
    add_process(made, 100, 7, "./work")
    for specification in ("process", "process,comm=work", "thread"):
        found = find_executions(made.events(), specification, interleaved=True)
        assert len(found) == 0
        assert found.notes or specification == "process"


def test_a_users_own_choice_goes_before_the_runs(record):
    made = record()
    add_process(made, 100, 7, "/bin/sh")
    add_process(made, 120, 8, "/bin/cat", parent=7)
    found = find_executions(made.events(), "process,comm=cat", runs=(Run(1, 7, 95, 195, 0),))
    assert windows(found) == [(8, 130, 210)]


def test_a_namespace_is_inherited_by_forks_that_do_not_name_it(record):
    made = record()
    made.add(1, 0, "lttng_statedump_process_pid_ns", tid=50, ns_inum=111, ns_level=0)
    made.add(2, 0, "lttng_statedump_process_pid_ns", tid=60, ns_inum=111, ns_level=0)
    made.add(3, 0, "lttng_statedump_process_pid_ns", tid=60, ns_inum=222, ns_level=1)
    add_process(made, 100, 7, "./outside", parent=50)
    add_process(made, 300, 8, "./inside", parent=60)
    add_process(made, 500, 9, "./told", parent=50, child_ns_inum=222)
    add_process(made, 700, 10, "./unknown", parent=70)
    found = find_executions(made.events(), "process,ns=222")
    assert found.tid.tolist() == [8, 9]
    assert any("1 process of which the trace does not tell" in note for note in found.notes)
    assert find_executions(made.events(), "process,ns=111").tid.tolist() == [7]


def test_the_context_of_the_exec_tells_the_namespace(record):
    made = record()
    for tid, namespace in ((7, 111), (8, 222)):
        made.add(tid * 100, 0, "sched_process_exec", tid=tid, filename="./x", pid_ns=namespace)
        made.add(tid * 100 + 50, 0, "sched_process_exit", tid=tid, comm="x")
    assert find_executions(made.events(), "process,ns=222").tid.tolist() == [8]


def test_a_control_group_stands_for_those_below_it(record):
    made = record()
    made.add(1, 0, "critpath_statedump_cgroup", pid=50, dst_path="/user.slice")
    made.add(2, 0, "critpath_statedump_cgroup", pid=60, dst_path="/docker/a")
    add_process(made, 100, 7, "./outside", parent=50)
    add_process(made, 300, 8, "./below", parent=60)
    made.add(505, 0, "cgroup_attach_task", pid=9, dst_path="/docker/b")
    add_process(made, 500, 9, "./moved", parent=50)
    made.add(1, 0, "critpath_statedump_cgroup", pid=70, dst_path="/dockers")
    add_process(made, 700, 10, "./namesake", parent=70)
    events = made.events()
    assert find_executions(events, "process,cgroup=/docker").tid.tolist() == [8, 9]
    assert find_executions(events, "process,cgroup=/docker/a").tid.tolist() == [8]
    assert find_executions(events, "process,cgroup=/").tid.tolist() == [7, 8, 9, 10]


def test_threads_by_name(record):
    made = record()
    made.switch(10, 0, (0, "idle"), (7, "worker")).switch(50, 0, (7, "worker"), (8, "other"))
    made.switch(90, 0, (8, "other"), (0, "idle"))
    found = find_executions(made.events(), "thread,comm=worker")
    assert found.tid.tolist() == [7]
    assert found.notes == ("1 thread not of those asked for",)


@pytest.mark.parametrize(
    "text", ["process,", "process,ns=x", "process,ns=-1", "process,foo=1", "thread,ns=1,ns=2"]
)
def test_wrong_places_are_refused(text):
    with pytest.raises(UsageError):
        parse_specification(text)


def test_only_what_is_asked_for_is_read():
    assert parse_specification("process").get_requests() == ()
    names = [w.names[0] for w in parse_specification("process,ns=1").get_requests()]
    assert names == ["lttng_statedump_process_pid_ns"]


def test_marks_in_an_interleaved_recording_are_those_of_its_own_runs(record):
    made = record()
    for tid, time in ((7, 120), (8, 320)):
        made.switch(time, 0, (0, "swapper/0"), (tid, "work"))
        made.add(time + 10, 0, "print", buf=f"critpath:begin checkout {tid}")
        made.add(time + 30, 0, "print", buf=f"critpath:end checkout {tid}")
        made.switch(time + 50, 0, (tid, "work"), (0, "swapper/0"))
    runs = (Run(1, 8, 295, 395, 0),)
    assert find_executions(made.events(), "marker", runs=runs).id == ("7", "8")
    own = find_executions(made.events(), "marker", runs=runs, interleaved=True)
    assert own.id == ("8",)
