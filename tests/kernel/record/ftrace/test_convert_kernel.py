"""Conversion of what this machine's kernel recorded, against the kernel's own text of it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from critpath_record.ftrace.convert import convert
from critpath_record.ftrace.ctf_events import compile_event
from critpath_record.ftrace.formats import read_format

pytestmark = pytest.mark.xdist_group("kernel")

TRACEFS = Path("/sys/kernel/tracing")
LINE = re.compile(r"\s*(?P<comm>.*)-(?P<pid>\d+) +\[(\d+)\] \S+ +(\d+)\.(\d{6}): (\w+): ?(.*)")
STATES = {1: "S", 2: "D", 4: "T", 8: "t", 16: "X", 32: "Z", 64: "P", 128: "I"}
SWITCH = (
    "prev_comm={prev_comm} prev_pid={prev_tid} prev_prio={prev_prio} prev_state={prev_state}"
    " ==> next_comm={next_comm} next_pid={next_tid} next_prio={next_prio}"
)
CURRENT = "critpath_current"  # ours, where the kernel did not write a switch
WAKE = "comm={comm} pid={tid} prio={prio} target_cpu={target_cpu:03d}"
# LTTng's name to ftrace's and the fields as the kernel prints them.
TEXTS = {
    "sched_switch": (
        "sched_switch",
        SWITCH,
    ),
    "sched_waking": ("sched_waking", WAKE),
    "sched_wakeup_new": ("sched_wakeup_new", WAKE),
    "sched_process_fork": (
        "sched_process_fork",
        "comm={parent_comm} pid={parent_tid} child_comm={child_comm} child_pid={child_tid}",
    ),
    "sched_process_exec": (
        "sched_process_exec",
        "filename={filename} pid={tid} old_pid={old_tid}",
    ),
    "sched_process_exit": ("sched_process_exit", "comm={comm} pid={tid} prio={prio}"),
    "task_newtask": ("task_newtask", "pid={pid} comm={comm} clone_flags={clone_flags:x}"),
    "irq_handler_entry": ("irq_handler_entry", "irq={irq} name={name}"),
    "irq_handler_exit": ("irq_handler_exit", "irq={irq} ret={ret}"),
    "irq_softirq_entry": ("softirq_entry", "vec={vec} "),
    "irq_softirq_exit": ("softirq_exit", "vec={vec} "),
    "timer_hrtimer_expire_entry": ("hrtimer_expire_entry", "now={now}"),
    "timer_hrtimer_expire_exit": ("hrtimer_expire_exit", ""),
    "print": ("tracing_mark_write", "{buf}"),
}


def as_kernel(name, fields):
    """Undo what conversion does, and print as the kernel does."""
    fields = {k: v + 100 if k.endswith("prio") else v for k, v in fields.items()}
    if "prev_state" in fields:
        state = fields["prev_state"]
        letters = "|".join(letter for bit, letter in STATES.items() if state & bit)
        fields["prev_state"] = (letters or "R") + ("+" if state & 0x100 else "")
    if name == "irq_handler_exit":
        fields["ret"] = "handled" if fields["ret"] else "unhandled"
    return TEXTS[name][1].format(**fields)


def in_front(events):
    """Return time and thread of each critpath_current by the kernel's event that follows."""
    before, number = {}, 0
    for time, name, fields in events:
        if name != CURRENT:
            number += 1
            continue
        assert number not in before
        before[number] = (time, fields["tid"])
    return before


WORK = """
import os, subprocess, threading
here, there = os.pipe(), os.pipe()
def answer():
    while os.read(here[0], 1):
        os.write(there[1], b"x")
threads = [threading.Thread(target=answer)] + [threading.Thread(target=int) for _ in range(3)]
for thread in threads: thread.start()
for _ in range(100):
    os.write(here[1], b"x"); os.read(there[0], 1)
os.close(here[1])
for thread in threads: thread.join()
subprocess.run(["/bin/true"])
"""


class Recorded:
    """One recording, the kernel's own text of it, and what it was converted to."""

    def __init__(self, tracer, place, read_rows):
        tracer.start()
        tracer.mark(b'begin "\xc3\xa9"\\ \n')
        subprocess.run([sys.executable, "-S", "-c", WORK], check=True)
        tracer.mark(b"no newline")
        self.cpus, self.texts = tracer.cpus, tracer.stop()
        self.trace = place / "trace"
        self.done = convert(tracer.raw, self.trace, lambda _: None)
        self.rows, self.events = read_rows(self.trace)


@pytest.fixture(scope="module")
def recorded(make_instance, tmp_path_factory, load):
    place = tmp_path_factory.mktemp("converted")
    return Recorded(make_instance(8192, place / "raw"), place, load("played/rows.py").read_rows)


def test_every_event_is_the_kernels(recorded):
    done, found, events = recorded.done, recorded.rows, recorded.events
    assert (done.loss, done.warnings) == ((), ())
    assert done.events == events.total == len(found)
    assert events.warnings == ()
    ours = {cpu: [] for cpu in recorded.cpus}
    for time, cpu, name, fields in found:
        if not name.startswith("lttng_statedump"):
            ours[cpu].append((time, name, fields))
    compared = Counter()
    for cpu, text in recorded.texts.items():
        lines = [x for x in text.splitlines() if x and not x.startswith("#")]
        kernels = [event for event in ours[cpu] if event[1] != CURRENT]
        assert len(lines) == len(kernels)
        before = in_front(ours[cpu])
        running, missing = None, set()  # by the kernel's own text
        for number, (line, (time, name, fields)) in enumerate(zip(lines, kernels, strict=True)):
            match = LINE.fullmatch(line)
            pid, cpu_of, seconds, micro, theirs, text_of = match.groups()[1:]
            assert (int(cpu_of), int(seconds) * 10**6 + int(micro)) == (cpu, (time + 500) // 1000)
            # The context's tid, where the event has none of its own.
            assert int(pid) == fields["tid"] or "{tid}" in TEXTS[name][1]
            assert theirs == TEXTS[name][0]
            assert as_kernel(name, fields) in text_of + " ", line
            compared[name] += 1
            if theirs == "sched_switch":
                running = int(re.search(r"next_pid=(\d+)", text_of)[1])
                continue
            if running not in {None, int(pid)}:
                missing.add(number)
                assert before[number] == (time, int(pid))
            running = int(pid)
        assert missing == before.keys()
    assert sum(compared.values()) == done.recorded
    assert compared["sched_switch"] > 20
    assert compared["print"] == 2
    assert compared["sched_process_fork"] >= 5


def test_forks_know_their_processes(recorded):
    found = recorded.rows
    clone = {f["pid"]: f["clone_flags"] for _, _, name, f in found if name == "task_newtask"}
    forks = [f for _, _, name, f in found if name == "sched_process_fork"]
    new_threads = [f for f in forks if clone[f["child_tid"]] & 0x10000]
    assert len(new_threads) >= 3
    assert all(f["child_pid"] == f["parent_pid"] != f["child_tid"] for f in new_threads)
    others = [f for f in forks if f not in new_threads]
    assert all(f["child_pid"] == f["child_tid"] for f in others)
    dumped = {f["tid"]: f for _, _, name, f in found if name == "lttng_statedump_process_state"}
    known = [f for f in forks if f["parent_tid"] in dumped]
    assert known
    for fork in known:
        parent = dumped[fork["parent_tid"]]
        assert fork["parent_pid"] == parent["pid"]
        assert fork["parent_ns_inum"] == fork["child_ns_inum"] == parent["ns_inum"] != 0


@pytest.mark.skipif(not shutil.which("babeltrace2"), reason="babeltrace2 is not installed")
def test_babeltrace2_has_nothing_to_say(recorded):
    command = ["babeltrace2", str(recorded.trace)]
    text = subprocess.run(command, capture_output=True, text=True, check=True)
    assert text.stderr == ""
    assert len(text.stdout.splitlines()) == recorded.done.events


def test_everything_that_this_kernel_has_is_understood():
    files = sorted((TRACEFS / "events").glob("*/*/format"))
    if not files:
        pytest.skip("no tracefs to be read here")
    for file in files:
        one = compile_event(file.parts[-3], read_format(file), 1)
        names = [field.split("} _")[-1].removeprefix("string _") for field in one.fields]
        assert len(set(names)) == len(names), file
