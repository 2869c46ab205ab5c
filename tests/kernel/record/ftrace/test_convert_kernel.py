"""Conversion of what this machine's kernel recorded, against the kernel's own text of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from collections import Counter

import pytest

from critpath.record.ftrace.convert import convert

pytestmark = pytest.mark.xdist_group("kernel")

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


def work():
    code = (
        "import os, threading, time, subprocess\n"
        "ts = [threading.Thread(target=time.sleep, args=(.01,)) for _ in range(3)]\n"
        "[t.start() for t in ts]; [t.join() for t in ts]\n"
        "subprocess.run(['/bin/true'])\n"
        "time.sleep(.2)\n"
    )
    subprocess.run([sys.executable, "-S", "-c", code], check=True)


def test_every_event_is_the_kernels(instance, rows, tmp_path):
    tracer = instance(8192)
    tracer.start()
    tracer.mark(b'begin "\xc3\xa9"\\ \n')
    work()
    tracer.mark(b"no newline")
    texts = tracer.stop()
    done = convert(tracer.raw, tmp_path / "trace", lambda _: None)
    assert (done.loss, done.warnings) == ((), ())
    found, events = rows(tmp_path / "trace")
    assert done.events == events.total == len(found)
    assert events.warnings == ()
    ours = {cpu: [] for cpu in tracer.cpus}
    for time, cpu, name, fields in found:
        if not name.startswith("lttng_statedump"):
            ours[cpu].append((time, name, fields))
    compared = Counter()
    for cpu, text in texts.items():
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


def test_forks_know_their_processes(instance, rows, tmp_path):
    tracer = instance(4096)
    tracer.start()
    work()
    tracer.stop()
    convert(tracer.raw, tmp_path / "trace", lambda _: None)
    found, _ = rows(tmp_path / "trace")
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


def test_loss_is_what_the_kernel_counted(instance, rows, tmp_path):
    tracer = instance(64)
    tracer.start()
    flood = "import time\nfor _ in range(20000): time.sleep(0)"
    runs = [
        threading.Thread(target=subprocess.run, args=([sys.executable, "-S", "-c", flood],))
        for _ in range(4)
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    tracer.stop()
    counted = {
        int(cpu): of["overrun"] + of["commit overrun"] + of["dropped events"]
        for cpu, of in json.loads((tracer.raw / "stats.json").read_text()).items()
    }
    done = convert(tracer.raw, tmp_path / "trace", lambda _: None)
    assert {x.cpu: x.events for x in done.loss} == {k: v for k, v in counted.items() if v}
    assert done.loss
    found, events = rows(tmp_path / "trace")
    placed = Counter()
    for loss in events.losses:
        placed[loss.cpu] += loss.events
        # It ends where the events of that cpu begin.
        first = next(t for t, cpu, name, _ in found if cpu == loss.cpu and name[0] != "l")
        assert loss.end == first
    assert dict(placed) == {x.cpu: x.events for x in done.loss}


@pytest.mark.skipif(not shutil.which("babeltrace2"), reason="babeltrace2 is not installed")
def test_babeltrace2_has_nothing_to_say(instance, tmp_path):
    tracer = instance(4096)
    tracer.start()
    work()
    tracer.stop()
    done = convert(tracer.raw, tmp_path / "trace", lambda _: None)
    text = subprocess.run(
        ["babeltrace2", str(tmp_path / "trace")], capture_output=True, text=True, check=True
    )
    assert text.stderr == ""
    assert len(text.stdout.splitlines()) == done.events
