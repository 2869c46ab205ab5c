"""Processes, threads, windows, markers, and the guess without a specification."""

from __future__ import annotations

import pytest

from critpath.errors import UnreadableError
from critpath.executions.find import FINDERS, find_executions, suggest_specifications
from critpath.executions.specification import KINDS
from critpath.model import Script

IDLE = (0, "swapper/0")
SHELL = (50, "sh")


def test_every_kind_of_specification_has_a_finder():
    # These are not found in events alone: critpath.requests.find and slicing.
    assert set(FINDERS) == set(KINDS) - {"requests", "slices"}


# ------------------------------------------------------------------ processes


def process(made, start, tid, *programs, exits=True):
    made.add(start, 0, "sched_process_fork", parent_tid=50, child_tid=tid)
    made.add(start + 1, 0, "sched_wakeup_new", tid=tid, comm="sh")
    made.switch(start + 2, 0, SHELL, (tid, "sh"))
    for step, program in enumerate(programs, start=3):
        made.add(start + step, 0, "sched_process_exec", tid=tid, filename=program)
    name = programs[-1].rpartition("/")[2] if programs else "sh"
    if exits:
        made.add(start + 20, 0, "sched_process_exit", tid=tid, comm=name)
    made.switch(start + 21, 0, (tid, name), SHELL)


def test_a_process_is_from_its_exec_to_its_exit(record):
    made = record()
    process(made, 100, 7, "/bin/true")
    found = find_executions(made.events(), "process")
    assert (found.begin.tolist(), found.end.tolist()) == ([103], [120])
    assert found.id == ("7@103",)
    assert found.label == ("true",)
    assert found.comm == ("true",)
    assert (found.incomplete, found.notes) == (0, ())


def test_a_second_exec_goes_on_and_names_the_execution(record):
    made = record()
    process(made, 100, 7, "/bin/sh", "/usr/bin/sleep")
    found = find_executions(made.events(), "process")
    assert found.begin.tolist() == [103]
    assert found.label == ("sleep",)
    assert found.notes == ("1 later exec in a run that goes on",)


def test_processes_are_labelled_by_what_their_interpreter_ran(record):
    made = record()
    process(made, 100, 7, "/bin/sh", "/usr/bin/python3")
    process(made, 200, 8, "/usr/bin/python3")
    process(made, 300, 9, "/usr/bin/python3")
    process(made, 400, 7, "/srv/tool.sh")
    process(made, 500, 10, "/bin/true")
    scripts = [
        Script(7, 104, 110, "b.py"),
        Script(8, 203, 204, "-m web"),
        Script(9, 303, 304, ""),
        Script(7, 403, 404, "tool.sh"),
    ]
    found = find_executions(made.events(), "process", scripts=scripts)
    assert found.label == ("python3 b.py", "python3 -m web", "python3 -", "tool.sh", "true")
    for name, count in (("python3 -m web", 1), ("python3", 3), ("web", 0)):
        chosen = find_executions(made.events(), f"process,comm={name}", scripts=scripts)
        assert len(chosen) == count
    assert find_executions(made.events(), "process").label[:2] == ("python3", "python3")


def test_arguments_of_another_program_in_the_same_process_are_not_taken(record):
    made = record()
    process(made, 100, 7, "/usr/bin/python3", "/bin/bash")
    process(made, 200, 8, "/bin/bash")
    # Read when the second program was there already; and before anything was executed.
    scripts = [Script(7, 103, 104, "a.py"), Script(8, 199, 200, "a.sh")]
    assert find_executions(made.events(), "process", scripts=scripts).label == ("bash", "bash")


def test_an_interpreter_that_could_not_be_asked_is_like_none_that_was(record):
    made = record()
    for number in range(3):
        process(made, 100 + 100 * number, 7 + number, "/usr/bin/python3")
    process(made, 500, 20, "/bin/sh")
    found = find_executions(made.events(), "process", scripts=[Script(7, 103, 104, "a.py")])
    assert found.label == ("python3 a.py", "sh")
    assert found.incomplete == 2
    assert "2 processes left out: what the interpreter ran could not be read" in found.notes


def test_processes_without_exec_or_exit(record):
    made = record()
    process(made, 100, 7)  # forked, never executed anything
    process(made, 200, 8, "/bin/true", exits=False)  # its exit was lost ...
    process(made, 300, 8, "/bin/date")  # ... as its id is used again
    process(made, 400, 9, "/bin/cat", exits=False)  # alive at the end
    found = find_executions(made.events(), "process")
    assert found.label == ("date",)
    assert found.incomplete == 2
    assert len(found.notes) == 3


def test_a_process_that_is_never_switched_after_its_exec(record):
    made = record()
    made.add(10, 0, "sched_process_exec", tid=7, filename="./a-rather-long-program-name")
    made.add(20, 0, "sched_process_exit", tid=7, comm="x")
    found = find_executions(made.events(), "process")
    assert found.comm == ("a-rather-long-p",)
    assert found.label == ("a-rather-long-program-name",)


# -------------------------------------------------------------------- threads


def test_a_thread_lives_from_its_first_to_its_last_event(record):
    made = record()
    process(made, 100, 7, "/bin/true")
    found = find_executions(made.events(), "thread")
    lives = dict(zip(found.tid.tolist(), zip(found.begin, found.end, strict=True), strict=True))
    assert lives == {7: (100, 121), 50: (102, 121)}
    assert found.comm == ("sh", "sh")


def test_a_thread_id_used_again_is_another_life(record):
    made = record()
    process(made, 100, 7, "/bin/true")
    process(made, 200, 7, "/bin/true")
    found = find_executions(made.events(), "thread")
    lives = [(b, e) for t, b, e in zip(found.tid, found.begin, found.end, strict=True) if t == 7]
    assert lives == [(100, 121), (200, 221)]


def test_idle_threads_and_instants_are_no_lives(record):
    made = record()
    made.switch(10, 0, IDLE, (7, "seven"))
    made.switch(20, 0, (7, "seven"), IDLE)
    made.switch(30, 0, IDLE, (8, "once"))
    found = find_executions(made.events(), "thread")
    assert found.tid.tolist() == [7]
    assert found.notes == ("1 thread seen at a single instant left out",)


# -------------------------------------------------------------------- windows


@pytest.fixture
def seven(record):
    made = record()
    made.switch(0, 0, IDLE, (7, "seven"))
    made.switch(1000, 0, (7, "seven"), IDLE)
    return made.events()


def test_windows(seven, tmp_path):
    file = tmp_path / "w.csv"
    file.write_text(
        "begin_ns,end_ns,tid,label,id,colour\r\n"
        '500,600,7,"a, ""b""",x,red\r\n'
        "\r\n"
        "100,200,7,,,blue\r\n"
        "900,1100,7,late,y,\r\n",
        encoding="utf-8",
    )
    found = find_executions(seven, f"windows:{file}")
    assert found.id == ("7@100", "x")
    assert found.label == ("", 'a, "b"')
    assert found.comm == ("seven", "seven")
    assert found.incomplete == 1
    assert found.notes[0] == "w.csv: columns ignored: colour"
    assert "1 window of w.csv left out" in found.notes[1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "w.csv:1: no column begin_ns, end_ns, tid"),
        ("begin_ns,end_ns\n1,2\n", "w.csv:1: no column tid"),
        ("begin_ns,end_ns,tid,tid\n", "w.csv:1: a column twice"),
        ("begin_ns,end_ns,tid\n1,2\n", "w.csv:2: 2 cells, but 3 columns"),
        ("begin_ns,end_ns,tid\n1,2,3\n1,2x,3\n", "w.csv:3: end_ns is not an integer: 2x"),
        ("begin_ns,end_ns,tid\n1,1_0,3\n", "w.csv:2: end_ns is not an integer"),
        ("begin_ns,end_ns,tid\n1,99999999999999999999,3\n", "w.csv:2: end_ns is not an integer"),
        ("begin_ns,end_ns,tid\n1,9300000000000000000,3\n", "w.csv:2: end_ns is out of range"),
        ("begin_ns,end_ns,tid\n1,2,0\n", "w.csv:2: tid is out of range"),
        ("begin_ns,end_ns,tid\n2,2,3\n", "w.csv:2: end_ns 2 is not after begin_ns 2"),
        ('begin_ns,end_ns,tid\n1,2,"3\n', "w.csv:2: "),
        ("begin_ns,end_ns,tid,host\n1,2,3,x\n", "w.csv:2: no host x"),
    ],
)
def test_wrong_windows_name_the_line(seven, tmp_path, text, says):
    file = tmp_path / "w.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UnreadableError) as caught:
        find_executions(seven, f"windows:{file}")
    assert says in caught.value.what
    assert "header" in caught.value.do


@pytest.mark.parametrize("content", [None, b"begin_ns,end_ns,tid,label\n1,2,3,\xff\n"])
def test_windows_that_cannot_be_read(seven, tmp_path, content):
    file = tmp_path / "w.csv"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UnreadableError):
        find_executions(seven, f"windows:{file}")


# -------------------------------------------------------------------- markers


def mark(made, time, tid, message):
    made.add(time, 0, "lttng_ust_tracef:event", msg=message, vpid=1, vtid=tid, procname="app")


def test_marks_by_name_in_a_thread_and_by_key_across_threads(record):
    made = record()
    mark(made, 10, 7, "critpath:begin load")
    mark(made, 11, 7, "critpath:begin load 1")
    mark(made, 12, 7, "critpath:begin save")
    mark(made, 13, 7, "nothing of ours")
    mark(made, 20, 7, "critpath:end load")
    mark(made, 21, 8, "critpath:end load 1\n")
    mark(made, 22, 8, "critpath:end save")  # not the thread of the begin
    found = find_executions(made.events(), "marker")
    assert found.id == ("7@10", "1")
    assert found.label == ("load", "load")
    assert found.tid.tolist() == [7, 8]
    assert found.incomplete == 2


def test_marks_from_trace_marker_and_tracepoints_mix(record):
    made = record()
    made.switch(1, 0, IDLE, (7, "seven"))
    made.add(10, 0, "print", buf="critpath:begin job\n")
    made.add(20, 0, "print", buf="critpath:end job\n")
    made.add(30, 0, "critpath:begin", name="job", key="", vpid=1, vtid=7)
    made.add(40, 0, "critpath:end", name="job", key="", vpid=1, vtid=7)
    made.add(50, 0, "critpath:begin", name="job", key="k", vpid=1, vtid=7)
    made.add(60, 0, "critpath:end", name="job", key="k", vpid=1, vtid=7)
    found = find_executions(made.events(), "marker")
    assert found.id == ("7@10", "7@30", "k")
    assert found.comm == ("seven",) * 3
    assert (found.incomplete, found.notes) == (0, ())


def test_marks_that_name_their_thread(record):
    made = record()
    made.switch(1, 1, IDLE, (7, "sh"))
    for time, tid, message in (
        (10, 100, "critpath:begin backup @7"),
        (20, 101, "critpath:begin other @8"),
        (30, 102, "critpath:begin backup 5 @7"),
        (40, 103, "critpath:end backup @7"),  # not the thread of the begin, nor of the name
        (50, 104, "critpath:end other @7"),
        (60, 8, "critpath:end other"),  # as the shell's own echo says it
        (70, 105, "critpath:end backup 5 @9"),
    ):
        mark(made, time, tid, message)
    found = find_executions(made.events(), "marker")
    assert found.id == ("7@10", "8@20", "5")
    assert found.label == ("backup", "other", "backup")
    assert found.tid.tolist() == [7, 8, 9]
    assert found.comm[0] == "sh"
    assert found.incomplete == 1


def test_marks_that_name_their_thread_as_a_container_numbers_it(record):
    made = record()
    mark(made, 10, 100, "critpath:begin job @4026532281:7")
    mark(made, 11, 200, "critpath:begin job @4026532282:7")
    mark(made, 20, 101, "critpath:end job @4026532281:7")
    mark(made, 21, 201, "critpath:end job @4026532282:7")
    found = find_executions(made.events(), "marker")
    assert found.id == ("101@10", "201@11")
    assert found.incomplete == 0


def test_marks_are_read_as_they_were_meant(record):
    made = record()
    mark(made, 10, 7, "critpath:begin nightly%20backup %40%C3%A4 @8")
    mark(made, 20, 7, "critpath:end nightly%20backup %40%C3%A4 @8")
    mark(made, 30, 7, "critpath:begin 100%")
    mark(made, 40, 7, "critpath:end 100%")
    found = find_executions(made.events(), "marker")
    assert found.label == ("nightly backup", "100%")
    assert found.id == ("@\u00e4", "7@30")
    assert found.tid.tolist() == [8, 7]


def test_words_behind_the_key_are_a_part_of_the_label(record):
    made = record()
    mark(made, 10, 7, "critpath:begin checkout 7 gold  customer")
    mark(made, 11, 7, "critpath:begin checkout 8 gold%20customer @9")
    mark(made, 20, 7, "critpath:end checkout 7 paid")
    mark(made, 21, 7, "critpath:end checkout 8")
    found = find_executions(made.events(), "marker")
    assert found.id == ("7", "8")
    assert found.label == ("checkout gold customer",) * 2
    assert found.incomplete == 0
    assert len(found.notes) == 1
    assert found.notes[0].startswith("2 marks with words behind the key: they are a part of the")


@pytest.mark.parametrize(
    "message",
    ["critpath:start job", "critpath:begin", "critpath: begin job", "critpath:end ", "critpath:"],
)
def test_messages_that_look_like_marks_are_said(record, message):
    made = record()
    mark(made, 10, 7, "critpath:begin job")
    mark(made, 20, 7, message)
    mark(made, 21, 7, "said critpath:nothing")
    mark(made, 30, 7, "critpath:end job")
    found = find_executions(made.events(), "marker")
    assert found.label == ("job",)
    assert len(found.notes) == 1
    assert found.notes[0].startswith("1 message that begins with critpath: and is no mark, as crit")


def test_no_marks_is_said(record):
    found = find_executions(record().add(1, 0, "app:x", a=1).events(), "marker")
    assert len(found) == 0
    assert found.notes == (
        "no event of the recording says critpath:begin",
        "no event of the recording says critpath:end",
    )


def test_nothing_recorded_at_all(record):
    events = record().events()
    for specification in ("process", "thread", "marker"):
        assert len(find_executions(events, specification)) == 0


# ----------------------------------------------------------------- candidates


def test_candidates_are_pairs_of_user_space_events():
    names = [
        *("app:request_begin", "app:request_end", "app:other"),
        *("sched:x_begin", "sched:x_end", "irq:softirq_entry", "irq:softirq_exit"),
        *("lttng_ust_statedump:start", "lttng_ust_statedump:end"),
        *("irq_handler_entry", "irq_handler_exit", "app:begin_alone"),
    ]
    assert suggest_specifications(names) == ["events:app:request_begin,app:request_end"]
    assert suggest_specifications(
        ["ros2:callback_start", "ros2:callback_end", "a:f_entry", "a:f_exit"]
    ) == [
        "events:a:f_entry,a:f_exit",
        "events:ros2:callback_start,ros2:callback_end",
    ]
    assert suggest_specifications(["critpath:begin", "critpath:end"]) == [
        "events:critpath:begin,critpath:end"
    ]


def test_a_candidate_with_odd_characters_can_be_used(record):
    made = record()
    made.add(1, 0, "a:[x],_begin", vpid=1, vtid=7).add(2, 0, "a:[x],_end", vpid=1, vtid=7)
    events = made.events()
    (specification,) = suggest_specifications([c.name for c in events.classes])
    assert len(find_executions(events, specification)) == 1
