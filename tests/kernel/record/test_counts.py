"""Counts of this machine's kernel: the kernel, strace and perf are the oracles."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import shutil
import signal
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from critpath.flow import count_documents
from critpath.signatures.signing import SignSettings
from critpath.signatures.terms import ALIASES
from critpath_record import bpf
from critpath_record.counts import groups
from critpath_record.counts.attach import ProgramCounts
from critpath_record.counts.events import EVENT_SETS, select_counted
from critpath_record.counts.fallback import PerfCounts
from critpath_record.counts.groups import find_leftovers
from critpath_record.counts.recorder import find_needs
from critpath_record.counts.syscall_names import syscall_names

PYTHON = (sys.executable, "-S", "-E", "-c")
PROGRAM = """
import os, time
for i in range(5000): os.getppid()
r, w = os.pipe()
for i in range(3000): os.write(w, b'x'); os.read(r, 1)
for i in range(1000): os.close(os.open('/dev/null', os.O_RDONLY))
for i in range(200):
    p = os.fork()
    if not p: os._exit(0)
    os.waitpid(p, 0)
time.sleep(0.7)
"""
# What it makes at least, by term.
MADE = {
    "sys:getppid": 5000,
    "sys:write": 3000,
    "sys:openat": 1000,
    "sys:wait4": 200,
    "sched_process_fork": 200,
    "sched_process_exit": 201,
}


@pytest.fixture(scope="module", autouse=True)
def _can_count() -> None:
    """Skip with the reason where nothing can be counted by group."""
    if os.geteuid():
        pytest.skip("counting needs root")
    lacking = [o.what for o in find_needs(None)]
    if lacking:
        pytest.skip(f"the kernel cannot be counted here: {lacking[0]}")
    try:
        group, processes = groups.make_group("critpath-test")
        os.close(processes)
        groups.remove_group(group.path)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the reason
        pytest.skip(f"no control groups here: {error}")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("counts")


@pytest.fixture(scope="module")
def recording(start, record, place) -> Path:
    """Count two runs of the program, while another group makes as many calls."""
    endless = "while True:" + PROGRAM.replace("\n", "\n ").replace("time.sleep(0.7)", "pass")
    other = start(*PYTHON, endless, cwd=place)
    words = ("--recorder", "counts", "--no-probe", "--interval", "0.2", "-n", 2)
    record(place, "rec", *words, "--", *PYTHON, PROGRAM)
    other.kill()
    return place / "rec"


def available():
    lines = Path("/sys/kernel/tracing/available_events").read_text(encoding="ascii").split()
    return [line.replace(":", "/", 1) for line in lines]


def by_term(counts, document=0):
    rows = slice(*counts.start[document : document + 2])
    names = (counts.vocabulary[term] for term in counts.term[rows])
    return dict(zip(names, counts.count[rows].tolist(), strict=True))


def read_runs(recording):
    counts, _ = count_documents(recording, SignSettings(by="execution", scope="command"))
    assert not counts.lossy.any()
    return [by_term(counts, at) for at in range(len(counts))]


def test_counts_are_those_of_strace(start, recording):
    """Every system call of the program, exactly."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    file = recording.parent / "calls"
    words = ("strace", "-f", "-c", "-U", "calls,name", "-o", file, *PYTHON, PROGRAM)
    assert start(*words, cwd=recording.parent).end() == 0
    rows = re.findall(r"^\s*(\d+)\s+(\w+)$", file.read_text(), re.MULTILINE)
    expected = {f"sys:{name}": int(count) for count, name in rows if name != "total"}
    for found in read_runs(recording):
        calls = {term: count for term, count in found.items() if term.startswith("sys:")}
        # Which never returns, so that strace does not count it.
        assert calls.pop("sys:exit_group") == found["sched_process_exit"]
        assert calls == expected
        assert all(found[term] >= count for term, count in MADE.items())


def test_counts_are_those_of_perf(start, recording):
    """What perf counts of the same program, exactly, where nothing but that decides."""
    if shutil.which("perf") is None:
        pytest.skip("perf is not installed")
    events = ("sched:sched_process_fork", "sched:sched_process_exec", "sched:sched_process_exit")
    file = recording.parent / "stat"
    words = ["perf", "stat", "-x,", "-o", file, *(x for e in events for x in ("-e", e))]
    assert start(*words, *PYTHON, PROGRAM, cwd=recording.parent).end() == 0
    rows = re.findall(r"^(\d+),,(?:sched:)(\w+),", file.read_text(), re.MULTILINE)
    assert len(rows) == len(events)
    counted = read_runs(recording)[0]
    assert {name: counted.get(name, 0) for _, name in rows} == {
        name: int(count) for count, name in rows
    }


def test_lines_of_intervals_are_whole_whatever_the_interval(recording, critpath):
    """A piece at the end of a run is none."""
    each, _ = count_documents(recording, SignSettings())
    assert len(each) >= 2 * 3
    assert (each.end - each.begin >= 180_000_000).all()
    twice, _ = count_documents(recording, SignSettings(interval=400_000_000))
    assert 2 * len(twice) <= len(each)
    assert (twice.end - twice.begin >= 380_000_000).all()
    machine, _ = count_documents(recording, SignSettings(scope="machine"))
    assert machine.hits.sum() > each.hits.sum()
    # The width of a terminal decides where the line breaks.
    assert "in command" in " ".join(critpath("signature", recording).stdout.split())
    found = json.loads(critpath("signature", recording, "--json", "-").stdout)
    assert found["format"] == "critpath/signature/1"
    assert len(found["sources"][0]["documents"]) == len(each)


def test_saved_signatures_are_read_as_they_were(recording, critpath, tmp_path):
    saved = [tmp_path / f"{n}.parquet" for n in range(2)]
    for file in saved:
        assert critpath("signature", recording, "-o", file).returncode == 0
    assert saved[0].read_bytes() == saved[1].read_bytes()
    before, _ = count_documents(recording, SignSettings())
    after, _ = count_documents(saved[0], SignSettings())
    assert after.vocabulary == before.vocabulary
    for name in ("begin", "end", "document", "term", "count", "lossy"):
        assert np.array_equal(getattr(after, name), getattr(before, name))


@pytest.mark.usefixtures("traceable")
def test_a_trace_of_the_same_time_has_the_same_counts(record, place):
    """By run every term that both count, exactly; at the edges of intervals others go on."""
    words = ("--recorder", "ftrace", "--counts", "--profile", "syscalls", "--no-probe")
    record(place, "both", *words, "--interval", "0.4", "-n", 2, "--", *PYTHON, PROGRAM)

    def read_both(by):
        settings = {"by": by, "scope": "command"}
        counted, _ = count_documents(place / "both", SignSettings(**settings))
        traced, _ = count_documents(place / "both", SignSettings(**settings, traced=True))
        both = {*counted.vocabulary} & {*traced.vocabulary}
        assert {"sched_switch", "sys:getppid"} <= both
        assert len(counted) == len(traced) >= 2
        return [
            [{t: n for t, n in by_term(of, at).items() if t in both} for at in range(len(of))]
            for of in (counted, traced)
        ]

    counted, traced = read_both("execution")
    assert counted == traced
    assert sum(counted[0].values()) > 1000
    read_both("interval")


def test_interleaved_recordings_have_their_own(record, place):
    words = ("--recorder", "counts", "--no-probe", "-n", 2, "--interleave")
    record(place, "pair", *words, "/bin/sh -c ':'", "/bin/sh -c 'exec /bin/true'")
    for name, execs in (("normal", 1), ("sample", 2)):
        runs = read_runs(place / "pair" / name)
        assert [run["sys:execve"] for run in runs] == [execs] * 2


def program_ids() -> set[int]:
    """Return the ids of all programs in the kernel."""
    found: set[int] = set()
    last = 0
    while True:
        buffer = ctypes.create_string_buffer(struct.pack("<II", last, 0).ljust(128, b"\0"), 128)
        number = bpf._NUMBERS[platform.machine()]
        if bpf._libc().syscall(number, bpf.PROG_NEXT_ID, buffer, 128) < 0:
            return found
        last = int.from_bytes(buffer.raw[4:8], "little")
        found.add(last)


def test_nothing_stays_after_a_kill(start, wait_for, critpath, place):
    """No program is attached, no group stays, what was counted is kept."""
    before = program_ids()
    words = ("record", "--recorder", "counts", "--interval", "0.1", "-o", "killed")
    recorder = start(
        *(sys.executable, "-m", "critpath", *words, "--", "cat"), cwd=place, PYTHONUNBUFFERED="1"
    )
    counts = wait_for(lambda: next(place.rglob("*killed*/counts/counts.jsonl"), None))
    wait_for(lambda: counts.read_bytes().count(b"\n") > 3)
    assert program_ids() - before
    recorder.send(signal.SIGKILL)
    recorder.process.wait()
    wait_for(lambda: not program_ids() - before)  # freed after a grace period
    critpath("doctor", "--clean")
    assert not find_leftovers()
    assert not [g for g in groups._walk() if str(recorder.pid) in g.name]
    [manifest] = place.rglob("*killed*/critpath.json")
    assert json.loads(manifest.read_text())["state"] == "interrupted"


def test_every_set_can_be_attached():
    sizes = []
    for name in EVENT_SETS:
        counted = select_counted(name, available())
        source = ProgramCounts(counted, None)
        try:
            assert len(source.skipped) < len(counted) // 10
            assert len({*source.terms}) == len(source.terms)
            before = source.read()[0]
            for _ in range(100):
                os.getppid()
            after = source.read()[0]
            at = source.terms.index("sys:getppid")
            assert after[at] - before[at] >= 100
            assert all(a >= b for a, b in zip(after, before, strict=True))
        finally:
            source.close()
        sizes.append(len(source.terms))
    assert sizes == sorted(sizes)


def test_perf_counts_where_programs_may_not():
    source = PerfCounts(select_counted("minimal", available()), None)
    try:
        before = source.read()[0]
        for _ in range(1000):
            os.getppid()
        after = source.read()[0]
    finally:
        source.close()
    at = source.terms.index("sys:getppid")
    assert after[at] - before[at] >= 1000
    assert len(source.terms) <= 64
    assert "sched_switch" in source.terms


def test_system_calls_are_called_by_the_kernels_names():
    calls = Path("/sys/kernel/tracing/events/syscalls").glob("sys_enter_*")
    kernel = {f"sys:{call.name.removeprefix('sys_enter_')}" for call in calls}
    known = {f"sys:{name}" for name in syscall_names().values()}
    ours = {ALIASES.get(term, term) for term in kernel}
    assert ours - known <= {"sys:uprobe", "sys:uretprobe"}  # newer than the headers may be


def test_a_running_group_is_watched(start, record, wait_for, critpath, place):
    """One that does what the store knows is called so; the label that must not be ends it."""
    store = place / "watch.known"
    calls = {"ppid": "os.getppid()", "opens": "os.close(os.open('/dev/null', 0))"}
    for name, call in calls.items():
        program = f"import os,time\ne=time.time()+1\nwhile time.time()<e:\n {call}"
        for session in range(3):
            made = f"watch-{name}-{session}"
            counted = ("--recorder", "counts", "--no-probe", "--interval", "0.1")
            record(place, made, *counted, "--", *PYTHON, program)
            assert critpath("known", "add", store, place / made, "--label", name).returncode == 0
    group, processes = groups.make_group("critpath-test-watch")
    os.close(processes)
    inside = f"import os\nopen('{group.path}/cgroup.procs','w').write('0')\n"
    busy = start(*PYTHON, inside + "print(flush=True)\nwhile True: os.getppid()", cwd=place)
    busy.read_out()
    watch = ("known", "watch", store, "--interval", "0.1", "--scope", group.name)

    def begin(name):
        lines = place / f"{name}.jsonl"
        begun = start(sys.executable, "-m", "critpath", *watch, "--json", lines, cwd=place)
        wait_for(lambda: lines.exists() and lines.read_text().count("\n") > 2)
        return begun, lines

    try:
        done = critpath(*watch, "--fail-on", "ppid", "--json", "-")
        assert done.returncode == 1, done.stderr
        found = [json.loads(line) for line in done.stdout.splitlines()]
        assert {one["source"] for one in found} == {group.name}
        known = [one["known"] for one in found if one["known"]["answer"] == "known"]
        assert sum("ppid" in one["matches"][0]["labels"] for one in known) >= 5
        watching, lines = begin("interrupted")
        watching.send(signal.SIGINT)
        assert watching.end() == 0
        assert re.match(r"\d+ intervals: ", watching.out.splitlines()[-1])
        for line in lines.read_text().splitlines():
            assert json.loads(line)["known"]["answer"]
        watching, _ = begin("gone")
        busy.kill()
        groups.remove_group(group.path)
        assert watching.end() == 3
        assert "is gone: nothing is counted of it any more" in watching.said
    finally:
        busy.kill()
        groups.remove_group(group.path)
    # A group that is gone is said, and nothing hangs.
    assert critpath(*watch).returncode == 2
