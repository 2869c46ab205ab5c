"""Format files of every kind become classes and steps."""

from __future__ import annotations

import re

import pytest

from critpath.errors import CritpathError
from critpath_record.ftrace.ctf_events import Step, compile_event
from critpath_record.ftrace.events import LTTNG_NAMES, lttng_name
from critpath_record.ftrace.formats import read_format

COMMON = """\
name: {name}
ID: 42
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

{fields}

print fmt: "%d", REC->x
"""


def compiled(tmp_path, *fields, group="any", name="thing"):
    at, lines = 8, []
    for declaration, size, signed in fields:
        lines.append(f"\tfield:{declaration};\toffset:{at};\tsize:{size};\tsigned:{signed};")
        at += size
    file = tmp_path / f"{group}.{name}"
    file.write_text(COMMON.format(name=name, fields="\n".join(lines)))
    return compile_event(group, read_format(file), 5)


def short(field):
    """Return a declaration as (bits, signed, base or encoding, name and brackets)."""
    if field.startswith("string"):
        return field
    match = re.fullmatch(
        r"integer { size = (\d+); align = 8; signed = ([01]); encoding = (\w+); base = (\d+); }"
        r" (.*);",
        field,
    )
    return " ".join(match.groups())


@pytest.mark.parametrize(
    ("declaration", "size", "signed", "expected", "step"),
    [
        ("int x", 4, 1, ["32 1 none 10 _x"], (Step.COPY, 8, 4, 0)),
        ("bool x", 1, 0, ["8 0 none 10 _x"], (Step.COPY, 8, 1, 0)),
        ("enum mode x", 4, 0, ["32 0 none 10 _x"], (Step.COPY, 8, 4, 0)),
        ("const char * x", 8, 0, ["64 0 none 16 _x"], (Step.COPY, 8, 8, 0)),
        ("char x[16]", 16, 0, ["8 1 UTF8 10 _x[16]"], (Step.COPY, 8, 16, 0)),
        ("unsigned long x[6]", 48, 0, ["64 0 none 10 _x[6]"], (Step.COPY, 8, 48, 0)),
        ("__u8 x[4]", 4, 0, ["8 0 none 16 _x[4]"], (Step.COPY, 8, 4, 0)),
        ("struct in6 x", 16, 0, ["8 0 none 16 _x[16]"], (Step.COPY, 8, 16, 0)),
        ("u32 x[WORDS]", 12, 0, ["8 0 none 16 _x[12]"], (Step.COPY, 8, 12, 0)),
        ("__data_loc char[] x", 4, 0, ["string _x;"], (Step.TEXT_AT, 8, 0, 0)),
        ("__rel_loc char[] x", 4, 0, ["string _x;"], (Step.TEXT_AT, 8, 12, 0)),
        (
            *("__data_loc u64[] x", 4, 0),
            ["32 0 none 10 __x_length", "64 0 none 16 _x[ __x_length ]"],
            (Step.SEQUENCE_AT, 8, 0, 8),
        ),
        (
            *("char x[]", 0, 0),
            ["32 0 none 10 __x_length", "8 0 none 16 _x[ __x_length ]"],
            (Step.SEQUENCE_REST, 8, 0, 0),
        ),
    ],
)
def test_fields_of_every_kind(tmp_path, declaration, size, signed, expected, step):
    one = compiled(tmp_path, (declaration, size, signed))
    assert [short(field) for field in one.fields] == expected
    assert one.steps == (step,)
    assert (one.name, one.id, one.number, one.need) == ("thing", 5, 42, 8 + size)


def test_fields_side_by_side_are_copied_at_once(tmp_path):
    one = compiled(tmp_path, ("int a", 4, 1), ("int b", 4, 1), ("u64 c", 8, 0))
    assert one.steps == ((Step.COPY, 8, 16, 0),)


def test_arguments_of_system_calls_have_their_own_size(tmp_path):
    fields = [("int __syscall_nr", 4, 1), ("int fd", 8, 0), ("const char * name", 8, 0)]
    one = compiled(tmp_path, *fields, group="syscalls", name="sys_enter_openat")
    assert one.name == "syscall_entry_openat"
    assert [short(f) for f in one.fields] == ["32 1 none 10 _fd", "64 0 none 16 _name"]


@pytest.mark.parametrize(
    ("event", "name"),
    [
        ("sched/sched_switch", "sched_switch"),
        ("task/task_newtask", "task_newtask"),
        ("irq/softirq_raise", "irq_softirq_raise"),
        ("timer/hrtimer_setup", "timer_hrtimer_init"),
        ("timer/hrtimer_start", "timer_hrtimer_start"),
        ("irq_vectors/reschedule_entry", "x86_irq_vectors_reschedule_entry"),
        ("net/netif_receive_skb", "net_if_receive_skb"),
        ("raw_syscalls/sys_exit", "raw_syscalls:sys_exit"),
        ("syscalls/sys_exit_read", "syscall_exit_read"),
        ("ext4/ext4_sync_file_enter", "ext4_sync_file_enter"),
    ],
)
def test_names_are_lttngs(event, name):
    assert lttng_name(*event.split("/")) == name


def test_the_table_says_where_an_event_comes_from():
    assert LTTNG_NAMES["sched_process_fork"] == ("sched/sched_process_fork", "task/task_newtask")
    assert LTTNG_NAMES["lttng_statedump_*"] == ()


def test_everything_that_was_recorded_is_understood(played, tmp_path):
    for event, text in played.recording.formats.items():
        group, _, name = event.partition("/")
        file = tmp_path / f"{group}.{name}"
        file.write_bytes(text)
        one = compile_event(group, read_format(file), 1)
        names = [field.split("} _")[-1].removeprefix("string _") for field in one.fields]
        assert len({*names}) == len(names), file


def test_a_broken_file_is_named(tmp_path):
    with pytest.raises(CritpathError, match=r"any.thing: not a field of a record"):
        compiled(tmp_path, ("int x", 70000, 1))
    with pytest.raises(CritpathError, match=r"any.thing: a place of 8 bytes"):
        compiled(tmp_path, ("__data_loc char[] x", 8, 0))
