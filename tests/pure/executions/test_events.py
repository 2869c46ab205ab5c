"""Executions between two events: threads, keys, names, and everything left out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.errors import UsageError
from critpath.executions.events import pair_events
from critpath.executions.find import find_executions

PAIR = "events:app:begin,app:end"
IDLE = (0, "swapper/0")


def context(tid, name="w", pid=100):
    return {"vpid": pid, "vtid": tid, "procname": name}


def test_pairs_in_one_thread_by_context(record):
    made = record()
    made.add(10, 0, "app:begin", id=1, **context(7))
    made.add(12, 1, "app:begin", id=2, **context(8))
    made.add(20, 1, "app:end", id=1, **context(7))
    made.add(25, 0, "app:end", id=2, **context(8))
    found = find_executions(made.events(), PAIR)
    assert found.id == ("7@10", "8@12")
    assert found.tid.tolist() == [7, 8]
    assert found.begin.tolist() == [10, 12]
    assert found.end.tolist() == [20, 25]
    assert found.comm == ("w", "w")
    assert (found.incomplete, found.notes) == (0, ())


def test_without_contexts_the_switches_tell_the_thread(record):
    made = record()
    made.switch(5, 0, IDLE, (7, "seven"))
    made.add(10, 0, "app:begin", id=1)
    made.switch(11, 0, (7, "seven"), (9, "nine"))
    made.switch(12, 1, IDLE, (7, "seven"))
    made.add(20, 1, "app:end", id=1)
    found = find_executions(made.events(), PAIR + ",key=id")
    assert found.id == ("1",)
    assert found.tid.tolist() == [7]
    assert found.comm == ("seven",)


def test_before_the_first_switch_the_one_who_leaves_was_there(record):
    made = record()
    made.add(10, 0, "app:begin", id=1)
    made.switch(11, 0, (7, "seven"), IDLE)
    made.switch(12, 0, IDLE, (7, "seven"))
    made.add(20, 0, "app:end", id=1)
    assert find_executions(made.events(), PAIR).id == ("7@10",)


def test_a_lost_switch_makes_the_thread_unknown(record):
    made = record()
    made.switch(5, 0, IDLE, (7, "seven"))
    made.add(10, 0, "app:begin", id=1)
    made.add(20, 0, "app:end", id=1)
    made.switch(30, 0, (8, "eight"), IDLE)  # so somebody came in between
    found = find_executions(made.events(), PAIR)
    assert len(found) == 0
    assert found.incomplete == 2
    assert "2 events left out: without a known thread" in found.notes
    by_key = find_executions(made.events(), PAIR + ",key=id")
    assert (len(by_key), by_key.incomplete) == (0, 1)
    assert "the thread is unknown" in by_key.notes[0]


def test_a_key_pairs_across_threads_and_the_end_is_the_subject(record):
    made = record()
    made.add(10, 0, "app:begin", id=5, type="read", **context(7))
    made.add(20, 1, "app:end", id=5, **context(8, "eight"))
    found = find_executions(made.events(), PAIR + ",key=id,label=type")
    assert found.id == ("5",)
    assert found.tid.tolist() == [8]
    assert found.label == ("read",)
    assert found.comm == ("",)  # thread 8 was never seen at the begin, its name then unknown
    assert find_executions(made.events(), PAIR).incomplete == 2


def test_a_begin_on_an_unknown_thread_is_enough_with_a_key(record):
    made = record()
    made.add(10, 0, "app:begin", id=5)
    made.add(20, 1, "app:end", id=5, **context(8))
    assert find_executions(made.events(), PAIR + ",key=id").tid.tolist() == [8]


def test_a_pid_namespace_is_seen_and_the_kernels_thread_used(record):
    made = record()
    made.switch(5, 0, IDLE, (4007, "boxed"))
    made.add(10, 0, "app:begin", id=1, **context(7, "boxed", 1))
    made.add(20, 0, "app:end", id=1, **context(7, "boxed", 1))
    made.switch(30, 0, (4007, "boxed"), IDLE)
    found = find_executions(made.events(), PAIR)
    assert found.tid.tolist() == [4007]
    assert found.comm == ("boxed",)
    assert "pid namespace" in found.notes[0]


def test_a_thread_that_moves_while_it_reads_the_clock_keeps_its_vtid(record):
    made = record()
    made.switch(5, 0, IDLE, (7, "seven"))
    made.add(10, 0, "app:begin", id=1, **context(7))
    made.switch(14, 0, (7, "seven"), (9, "nine"))
    made.switch(15, 1, IDLE, (7, "seven"))
    made.add(20, 0, "app:end", id=1, **context(7))  # the cpu was read before the move
    made.switch(30, 0, (9, "nine"), IDLE)
    found = find_executions(made.events(), PAIR)
    assert found.tid.tolist() == [7]
    assert "moved to another cpu" in found.notes[0]


def test_repeated_begins_and_lone_ends_are_counted(record):
    made = record()
    made.add(1, 0, "app:end", id=0, **context(7))
    made.add(10, 0, "app:begin", id=1, **context(7))
    made.add(12, 0, "app:begin", id=2, **context(7))
    made.add(20, 0, "app:end", id=2, **context(7))
    made.add(21, 0, "app:end", id=1, **context(7))
    made.add(30, 0, "app:begin", id=3, **context(7))
    found = find_executions(made.events(), PAIR)
    assert found.begin.tolist() == [12]
    assert found.incomplete == 4
    assert len(found.notes) == 3
    assert any("1 begin given up" in n for n in found.notes)
    assert any("1 begin without an end" in n for n in found.notes)
    assert any("2 ends without a begin" in n for n in found.notes)


def test_one_event_may_end_and_begin(record):
    made = record()
    for time in (10, 20, 35):
        made.add(time, 0, "app:frame", n=time, **context(7))
    found = find_executions(made.events(), "events:app:frame,app:frame")
    assert found.begin.tolist() == [10, 20]
    assert found.end.tolist() == [20, 35]
    assert found.incomplete == 2


def test_one_event_for_both_is_said(record):
    made = record()
    for time, key in ((10, 1), (20, 1), (30, 2)):
        made.add(time, 0, "app:begin", id=key, **context(7))
    said = "begin and end are the same event, app:begin: runs last from one to the next "
    found = find_executions(made.events(), "events:app:begin,app:begin,key=id")
    assert found.id == ("1",)
    assert found.notes[0] == said + "of the same id"
    found = find_executions(made.events(), "events:app:begin,app:begin")
    assert (found.end - found.begin).tolist() == [10, 10]
    assert found.notes[0] == said + "in the same thread"


def test_zero_length_is_left_out_and_counted(record):
    made = record()
    made.add(10, 0, "app:begin", **context(7))
    made.add(10, 0, "app:end", **context(7))
    found = find_executions(made.events(), PAIR)
    assert (len(found), found.incomplete) == (0, 1)
    assert found.notes == ("1 run of 0 ns left out",)


def test_conditions_select(record):
    made = record()
    for time, tid, kind in ((1, 7, "a"), (2, 8, "b"), (3, 9, "ab")):
        made.add(time, 0, "app:begin", kind=kind, size=tid, **context(tid))
        made.add(time + 10, 0, "app:end", **context(tid))
    events = made.events()
    assert find_executions(events, "events:app:begin[kind=a],app:end").tid.tolist() == [7]
    assert find_executions(events, "events:app:begin[size=8],app:end").tid.tolist() == [8]
    assert find_executions(events, "events:app:begin[kind~a],app:end").tid.tolist() == [7, 9]
    both = find_executions(events, "events:app:begin[kind~a][size=9],app:end")
    assert (both.tid.tolist(), both.incomplete) == ([9], 2)


def test_log_messages(record):
    made = record()
    for time, tid, message, logger in (
        (1, 7, "request_begin 41 sleep", "app"),
        (2, 7, "request_begin 99 sleep", "other"),
        (3, 8, "request_begin 42 read", "app"),
        (5, 8, "request_end 42", "app"),
        (9, 7, "request_end 41", "app"),
    ):
        fields = {"msg": message, "logger_name": logger}
        made.add(time, 0, "lttng_python:event", **fields, **context(tid, "python3"))
    found = find_executions(
        made.events(),
        r"events:lttng_python:event[logger_name=app][msg~request_begin (?P<id>\d+) (?P<type>\S+)],"
        r"lttng_python:event[logger_name=app][msg~request_end (?P<id>\d+)],key=id,label=type",
    )
    assert found.id == ("41", "42")
    assert found.label == ("sleep", "read")
    assert found.tid.tolist() == [7, 8]
    assert found.incomplete == 0


def test_a_very_long_message_is_cut_and_said(record):
    made = record()
    made.add(1, 0, "app:begin", msg="x" * 5000 + "go", **context(7))
    made.add(2, 0, "app:end", **context(7))
    found = find_executions(made.events(), "events:app:begin[msg~go],app:end")
    assert len(found) == 0
    assert any("longer than 4096" in note for note in found.notes)


def test_kernel_events_belong_to_who_runs_not_to_their_tid_field(record):
    made = record()
    made.switch(5, 0, IDLE, (7, "seven"))
    made.add(10, 0, "sched_process_fork", tid=99, child_tid=99)
    made.add(20, 0, "block_rq_issue", tid=99)
    found = find_executions(made.events(), "events:sched_process_fork,block_rq_issue")
    assert found.tid.tolist() == [7]


def test_interrupts_of_an_idle_cpu_are_nobodys(record):
    made = record()
    made.switch(1, 0, (7, "seven"), IDLE)
    made.switch(2, 1, (7, "seven"), (0, "swapper/1"))
    made.switch(3, 2, IDLE, (9, "nine"))
    for cpu in (0, 1, 2):
        made.add(10 + cpu, cpu, "irq_handler_entry", name="disk")
        made.add(20 + cpu, cpu, "irq_handler_exit", name="disk")
    found = find_executions(made.events(), "events:irq_handler_entry,irq_handler_exit")
    assert found.tid.tolist() == [9]
    assert found.incomplete == 4
    assert "4 events on an idle cpu: of no thread" in found.notes
    # With a key such a begin will do: the end says whose execution it is.
    made.add(30, 2, "done", name="disk")
    made.add(29, 0, "arrived", name="disk")
    found = find_executions(made.events(), "events:arrived,done,key=name")
    assert (found.tid.tolist(), found.begin.tolist()) == ([9], [29])


def test_same_thread_id_on_two_hosts(record):
    made = record()
    for host, shift in ((0, 0), (1, 1)):
        made.switch(5 + shift, 0, IDLE, (7, f"host{host}"), host=host)
        made.add(10 + shift, 0, "app:begin", host=host, id=1)
        made.add(20 + shift, 0, "app:end", host=host, id=1)
    found = find_executions(made.events(("a", "b")), PAIR + ",key=id")
    assert found.host.tolist() == [0, 1]
    assert found.comm == ("host0", "host1")
    assert found.begin.tolist() == [10, 11]


def test_unsigned_and_real_keys_as_text(record):
    made = record()
    made.add(1, 0, "app:begin", id=1.5, **context(7))
    made.add(2, 0, "app:end", id=1.5, **context(7))
    assert find_executions(made.events(), PAIR + ",key=id").id == ("1.5",)


def test_unknown_events_name_the_nearest(record):
    known = ["app:request_begin", "app:request_end", "sched_switch"]
    made = record().add(1, 0, "app:request_begin", id=1)
    with pytest.raises(UsageError) as caught:
        find_executions(made.events(), "events:app:request_start,app:request_end", known)
    assert "app:request_start" in caught.value.what
    assert "app:request_begin" in caught.value.do
    assert "lists all" in caught.value.do
    with pytest.raises(UsageError, match="app:request_begin, app:request_end, sched_switch"):
        find_executions(made.events(), "events:?,?", known)


def test_a_known_class_without_events_is_no_error(record):
    made = record().add(1, 0, "app:begin", **context(7))
    found = find_executions(made.events(), PAIR, ["app:begin", "app:end"])
    assert found.incomplete == 1
    assert "no event of the recording matches app:end" in found.notes


@pytest.mark.parametrize("option", ["key=colour", "label=colour"])
def test_a_field_that_is_not_there(record, option):
    made = record()
    made.add(1, 0, "app:begin", id=1, **context(7)).add(2, 0, "app:end", id=1, **context(7))
    with pytest.raises(UsageError, match="no field colour"):
        find_executions(made.events(), f"{PAIR},{option}")
    with pytest.raises(UsageError, match="no field colour"):
        find_executions(made.events(), "events:app:begin[colour=x],app:end")


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from([None, "a", ("h", 1), 7]), st.booleans())),
)
def test_pairs_are_those_of_one_event_after_the_other(drawn):
    """Each end takes the last begin of its group, which waits until one comes or is repeated."""
    sides, row = {False: ([], []), True: ([], [])}, 0
    events = []
    for ends, group, same_row in drawn:
        # An event may be both: the end of what was before it, and then a begin.
        row += not (same_row and events and events[-1][:2] == (True, row) and not ends)
        events.append((ends, row, group, len(sides[ends][0])))
        sides[ends][0].append(row)
        sides[ends][1].append(group)
    waiting, pairs, repeated, unbegun, unknown = {}, [], 0, 0, 0
    for ends, _, group, place in events:
        if group is None:
            unknown += 1
        elif not ends:
            repeated += group in waiting
            waiting[group] = place
        elif group in waiting:
            pairs.append((waiting.pop(group), place))
        else:
            unbegun += 1
    (begins, of_begins), (ends, of_ends) = sides[False], sides[True]
    found = pair_events(np.array(begins, int), of_begins, np.array(ends, int), of_ends)
    assert [*zip(found.begin.tolist(), found.end.tolist(), strict=True)] == sorted(pairs)
    assert (found.repeated, found.open, found.unbegun, found.unknown) == (
        *(repeated, len(waiting)),
        *(unbegun, unknown),
    )
