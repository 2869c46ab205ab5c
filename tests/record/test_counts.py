"""Counts of this machine's kernel: the kernel, strace and perf are the oracles."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from critpath.pipeline.signing import SignSettings, read_source
from critpath.record import bpf
from critpath.record.counts import groups
from critpath.record.counts.attach import ProgramCounts, assemble
from critpath.record.counts.events import EVENT_SETS, Counted, select_counted
from critpath.record.counts.fallback import PerfCounts
from critpath.record.counts.recorder import find_leftovers, missing_requirements
from critpath.record.counts.syscall_names import syscall_names
from critpath.signatures.terms import ALIASES

pytestmark = pytest.mark.xdist_group("kernel")

CRITPATH = (sys.executable, "-m", "critpath")
PYTHON = (sys.executable, "-S", "-E", "-c")
PROGRAMS = {
    "getppid": "import os\nfor i in range(100_000): os.getppid()",
    "forks": "import os\nfor i in range(1000):\n p = os.fork()\n if not p: os._exit(0)\n"
    " os.waitpid(p, 0)",
    "pipe": "import os\nr, w = os.pipe()\nfor i in range(10_000): os.write(w, b'x'); os.read(r, 1)",
    "files": "import os\nfor i in range(5000): os.close(os.open('/dev/null', os.O_RDONLY))",
}
# What a program of a kind makes at least, by term.
MADE = {
    "getppid": {"sys:getppid": 100_000},
    "forks": {"sys:wait4": 1000, "sched_process_fork": 1000, "sched_process_exit": 1001},
    "pipe": {"sys:write": 10_000},
    "files": {"sys:openat": 5000},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Skip with the reason where nothing can be counted by group."""
    if os.geteuid():
        pytest.skip("counting needs root")
    lacking = [o.what for o in missing_requirements(None)]
    if lacking:
        pytest.skip(f"the kernel cannot be counted here: {lacking[0]}")
    try:
        groups.remove_group(groups.make_group("critpath-test").path)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the reason
        pytest.skip(f"no control groups here: {error}")
    return tmp_path_factory.mktemp("counts")


def available():
    lines = Path("/sys/kernel/tracing/available_events").read_text(encoding="ascii").split()
    return [line.replace(":", "/", 1) for line in lines]


@contextlib.contextmanager
def watched(words, place, *more):
    """Run a watch; on exit it has ended, and has ``stdout`` and ``stderr`` as text."""
    process = subprocess.Popen(
        [*CRITPATH, *words, *more],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
        process.stdout, process.stderr = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def critpath(place, *arguments, check=True):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SUDO_")}
    done = subprocess.run(
        [*CRITPATH, *arguments],
        cwd=place,
        env=clean,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def by_term(counts, document=0):
    rows = slice(*counts.start[document : document + 2])
    names = (counts.vocabulary[term] for term in counts.term[rows])
    return dict(zip(names, counts.count[rows].tolist(), strict=True))


def of_command(place, *words, recorder="counts", options=()):
    """Count a command, and return the counts of its one run."""
    critpath(
        *(place, "record", "--force", "--no-probe", "-o", "rec", "--recorder", recorder),
        *(*options, "--", *words),
    )
    counts, _ = read_source(place / "rec", SignSettings(by="execution", scope="command"))
    assert not counts.lossy.any()
    return by_term(counts)


def strace(place, *words):
    """Return how often each system call was made, by term, as strace counts it."""
    subprocess.run(
        ["strace", "-f", "-c", "-U", "calls,name", "-o", "calls", *words],
        cwd=place,
        capture_output=True,  # as when it is counted: Python asks what its streams are
        check=True,
        timeout=120,
    )
    found = re.findall(r"^\s*(\d+)\s+(\w+)$", (place / "calls").read_text(), re.MULTILINE)
    return {f"sys:{name}": int(count) for count, name in found if name != "total"}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_counts_are_those_of_strace(place, kind):
    """Every system call of four programs, exactly, while another group makes as many."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    code = PROGRAMS[kind]
    expected = strace(place, *PYTHON, code.replace("100_000", "2_000"))
    if kind == "getppid":  # under strace a call takes a hundred times as long
        expected["sys:getppid"] += 98_000
    endless = "while True:\n " + code.replace("\n", "\n ")
    other = subprocess.Popen([*PYTHON, endless])
    try:
        found = of_command(place, *PYTHON, code)
    finally:
        other.kill()
        other.wait()
    calls = {term: count for term, count in found.items() if term.startswith("sys:")}
    # Which never returns, so that strace does not count it.
    assert calls.pop("sys:exit_group") == found["sched_process_exit"]
    assert calls == expected
    assert all(found[term] >= count for term, count in MADE[kind].items())


@pytest.mark.parametrize("kind", ["forks", "pipe"])
def test_counts_are_those_of_perf(place, kind):
    """What perf counts of the same process, exactly, where nothing but the program decides."""
    if shutil.which("perf") is None:
        pytest.skip("perf is not installed")
    events = ("sched:sched_process_fork", "sched:sched_process_exec", "sched:sched_process_exit")
    words = ["perf", "stat", "-x,", "-o", "stat", *(x for e in events for x in ("-e", e))]
    subprocess.run([*words, *PYTHON, PROGRAMS[kind]], cwd=place, check=True, timeout=120)
    found = re.findall(r"^(\d+),,(?:sched:)(\w+),", (place / "stat").read_text(), re.MULTILINE)
    assert len(found) == len(events)
    counted = of_command(place, *PYTHON, PROGRAMS[kind])
    assert {name: counted.get(name, 0) for _, name in found} == {
        name: int(count) for count, name in found
    }


def test_a_trace_of_the_same_time_has_the_same_counts(place):
    """By interval and by run, every term that both count, exactly: of the command."""
    from critpath.record.ftrace.recorder import missing_requirements as lacking  # noqa: PLC0415 - may not import elsewhere

    if fatal := [o.what for o in lacking(None) if o.fatal]:
        pytest.skip(f"ftrace cannot record here: {fatal[0]}")
    code = (
        "import os, time\nfor k in range(3):\n for i in range(2000): os.getppid()\n"
        " for i in range(4):\n  p = os.fork()\n  if not p: os._exit(0)\n  os.waitpid(p, 0)\n"
        " time.sleep(0.31)"
    )
    of_command(
        *(place, *PYTHON, code),
        recorder="ftrace",
        options=("--counts", "--profile", "syscalls", "--interval", "0.5", "-n", "2"),
    )
    for by in ("interval", "execution"):
        counted, _ = read_source(place / "rec", SignSettings(by=by, scope="command"))
        traced, _ = read_source(place / "rec", SignSettings(by=by, scope="command", traced=True))
        both = {*counted.vocabulary} & {*traced.vocabulary}
        assert {"sched_switch", "sys:getppid", "softirq:TIMER"} <= both
        assert len(counted) == len(traced) >= 2
        for at in range(len(counted)):
            one, other = (
                {t: n for t, n in by_term(x, at).items() if t in both} for x in (counted, traced)
            )
            assert one == other
            assert sum(one.values()) > 1000


def test_intervals_and_runs(place):
    """Lines add up: a run is the sum of its lines, whatever the interval; pieces are none."""
    code = "import os, time\nfor i in range(9): os.getppid(); time.sleep(0.1)"
    critpath(
        *(place, "record", "--recorder", "counts", "--interval", "0.2", "-n", "3", "--force"),
        *("-o", "rec", "--", *PYTHON, code),
    )
    runs, _ = read_source(place / "rec", SignSettings(by="execution"))
    assert [by_term(runs, at)["sys:getppid"] for at in range(3)] == [9] * 3
    each, _ = read_source(place / "rec", SignSettings())
    assert (each.end - each.begin >= 180_000_000).all()
    twice, _ = read_source(place / "rec", SignSettings(interval=400_000_000))
    assert 2 * len(twice) <= len(each)
    assert (twice.end - twice.begin >= 380_000_000).all()
    machine, _ = read_source(place / "rec", SignSettings(scope="machine"))
    assert machine.hits.sum() > each.hits.sum()
    text = critpath(place, "signature", "rec").stdout
    assert "in command" in text
    found = json.loads(critpath(place, "signature", "rec", "--json", "-").stdout)
    assert found["format"] == "critpath/signature/1"
    assert len(found["sources"][0]["documents"]) == len(each)


def test_interleaved_recordings_have_their_own(place):
    a, b = ("/bin/sh -c ':'", "/bin/sh -c 'exec /bin/true'")
    critpath(
        *(place, "record", "--recorder", "counts", "-n", "4", "--force", "-o", "pair"),
        *("--interleave", a, b),
    )
    for name, execs in (("normal", 1), ("sample", 2)):
        counts, _ = read_source(place / "pair" / name, SignSettings(by="execution"))
        assert [by_term(counts, at)["sys:execve"] for at in range(4)] == [execs] * 4


def test_saved_signatures_are_read_as_they_were(place):
    critpath(
        *(place, "record", "--recorder", "counts", "--interval", "0.2", "--force", "-o", "rec"),
        *("--", "sleep", "0.7"),
    )
    critpath(place, "signature", "rec", "-o", "saved.parquet", "--force")
    once = (place / "saved.parquet").read_bytes()
    critpath(place, "signature", "rec", "-o", "saved.parquet", "--force")
    assert (place / "saved.parquet").read_bytes() == once
    before, _ = read_source(place / "rec", SignSettings())
    after, _ = read_source(place / "saved.parquet", SignSettings())
    assert after.vocabulary == before.vocabulary
    for name in ("begin", "end", "document", "term", "count", "lossy"):
        assert np.array_equal(getattr(after, name), getattr(before, name))


def test_nothing_is_left(place):
    before = bpf.program_ids()
    of_command(place, "true")
    until = time.monotonic() + 10
    while bpf.program_ids() - before and time.monotonic() < until:
        time.sleep(0.05)  # the kernel frees what is detached after a grace period
    assert bpf.program_ids() <= before
    assert not list(groups.find_groups("critpath-"))


@pytest.mark.long
def test_nothing_stays_after_a_kill(place):
    """Killed at 20 random moments: no program is attached, no group stays, the rest is kept."""
    draw = random.Random(20)  # noqa: S311 - moments, no secret
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SUDO_")}
    before = bpf.program_ids()
    kept = 0
    for number in range(20):
        recorder = subprocess.Popen(
            [
                *(*CRITPATH, "record", "--recorder", "counts", "--events", "all"),
                *("--interval", "0.1", "-o", f"killed{number}", "--", "sleep", "30"),
            ],
            cwd=place,
            env=clean,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(0.3 + 2.5 * draw.random())
        recorder.send_signal(signal.SIGKILL)
        recorder.wait()
        until = time.monotonic() + 10
        while bpf.program_ids() - before and time.monotonic() < until:
            time.sleep(0.05)
        assert not bpf.program_ids() - before
        critpath(place, "doctor", "--clean", check=False)
        assert not find_leftovers()
        assert not [g for g in groups.find_groups("critpath-") if str(recorder.pid) in g.name]
        kept += any(
            json.loads(file.read_text())["state"] == "interrupted"
            for file in (*place.glob(f"*killed{number}*/critpath.json"),)
        )
    assert kept  # those that were counting have what they counted


@pytest.mark.usefixtures("place")
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


@pytest.mark.usefixtures("place")
def test_perf_counts_where_programs_may_not():
    counted = select_counted("minimal", available())
    source = PerfCounts(counted, None)
    try:
        before = source.read()[0]
        for _ in range(1000):
            os.getppid()
        after = source.read()[0]
    finally:
        source.close()
    at = source.terms.index("sys:getppid")
    assert 1000 <= after[at] - before[at] < 2000
    assert len(source.terms) <= 64
    assert "sched_switch" in source.terms


@pytest.mark.usefixtures("place")
def test_system_calls_are_called_by_the_kernels_names():
    calls = Path("/sys/kernel/tracing/events/syscalls").glob("sys_enter_*")
    kernel = {f"sys:{call.name.removeprefix('sys_enter_')}" for call in calls}
    known = {f"sys:{name}" for name in syscall_names().values()}
    ours = {ALIASES.get(term, term) for term in kernel}
    assert ours - known <= {"sys:uprobe", "sys:uretprobe"}  # newer than the headers may be


def test_rows_of_many_processors_are_added_up():
    """128 of them, simulated by a map in memory: sums, and counts that do not touch each other."""
    counted = [Counted("a/b", ("b",)), Counted("c/d", tuple(f"d{n}" for n in range(600)))]
    source = object.__new__(ProgramCounts)
    source.terms, source._term_of = ["b", *counted[1].terms], list(range(601))
    source._slots, source._row, source._cpus = 601, 8192, 128
    source._programs, source._last, source._misses = [], [], {}
    rows = np.zeros((128, 1024), np.uint64)
    rows[:, :601] = np.random.default_rng(1).integers(0, 2**50, (128, 601), np.uint64)
    source._rows = [rows.tobytes()]
    assert source.read()[0] == rows[:, :601].sum(axis=0).tolist()


def test_a_program_stays_within_its_row():
    """Whatever number an event has, the place is one of its own."""
    code = assemble([3], range(5, 17), 1, (4096, 4), group=None)
    assert len(code) % 8 == 0
    assert code.endswith(b"\x95" + bytes(7))


@pytest.mark.long
def test_a_running_machine_is_watched(place):
    """A group that does what the store knows is called so; the label that must not be ends it."""
    store = place / "watch.known"
    for name, call in (("ppid", "os.getppid()"), ("opens", "os.close(os.open('/dev/null', 0))")):
        program = f"import os,time\ne=time.time()+2\nwhile time.time()<e:\n {call}"
        for session in range(3):
            made = place / f"watch-{name}-{session}"
            counted = ("--recorder", "counts", "--interval", "0.1", "-o", made)
            critpath(place, "record", *counted, "--", *PYTHON, program)
            critpath(place, "known", "add", store, made, "--label", name)
    group = groups.make_group("critpath-test-watch")
    inside = f"import os\nopen('{group.path}/cgroup.procs','w').write('0')\n"
    busy = subprocess.Popen([*PYTHON, inside + "while True: os.getppid()"])
    try:
        watching = ("known", "watch", store, "--interval", "0.1", "--scope", group.name)
        done = critpath(place, *watching, "--fail-on", "ppid", "--json", "-", check=False)
        assert done.returncode == 1, done.stderr
        found = [json.loads(line) for line in done.stdout.splitlines()]
        assert {one["source"] for one in found} == {group.name}
        known = [one["known"] for one in found if one["known"]["answer"] == "known"]
        assert sum("ppid" in one["matches"][0]["labels"] for one in known) >= 5
        for number in (signal.SIGINT, signal.SIGTERM):
            lines = place / f"{number.name}.jsonl"
            with watched(watching, place, "--json", lines) as process:
                wait_until(lambda of=lines: of.exists() and of.read_text().count("\n") > 2)
                process.send_signal(number)
            assert process.returncode == 0, process.stderr
            assert re.match(r"\d+ intervals: ", process.stdout.splitlines()[-1])
            for line in lines.read_text().splitlines():
                assert json.loads(line)["known"]["answer"]
        lines = place / "gone.jsonl"
        with watched(watching, place, "--json", lines) as process:
            wait_until(lambda: lines.exists() and lines.read_text())
            busy.kill()
            busy.wait()
            groups.remove_group(group.path)
        assert process.returncode == 3
        assert "is gone: nothing is counted of it any more" in process.stderr
    finally:
        busy.kill()
        busy.wait()
        groups.remove_group(group.path)
    # A group that is gone is said, and nothing hangs.
    gone = critpath(place, *watching, check=False)
    assert gone.returncode == 2


def test_groups_of_version_1_have_their_counters(tmp_path):
    """A mixed machine: what version 2 lacks comes from the hierarchies of version 1."""
    new, cpu, blkio = (tmp_path / name / "shop" for name in ("unified", "cpu", "blkio"))
    for place in (new, cpu, blkio):
        place.mkdir(parents=True)
    (tmp_path / "mounts").write_text(
        f"1 0 0:1 / {new.parent} rw - cgroup2 cgroup2 rw\n"
        f"2 0 0:2 / {cpu.parent} rw - cgroup cgroup rw,cpu\n"
        f"3 0 0:3 / {blkio.parent} rw - cgroup cgroup rw,blkio\n"
        f"4 0 0:4 / {tmp_path}/absent rw - cgroup cgroup rw,memory\n"
    )
    (new / "cpu.stat").write_text("usage_usec 9000\nuser_usec 7000\nsystem_usec 2000\n")
    (cpu / "cpu.stat").write_text("nr_periods 9\nnr_throttled 4\nthrottled_time 2500000000\n")
    (cpu / "memory.stat").write_text("pgfault 3\ntotal_pgfault 8\n")
    (blkio / "blkio.throttle.io_service_bytes_recursive").write_text(
        "8:0 Read 4096\n8:0 Write 1024\n8:16 Read 1024\n8:0 Total 5120\nTotal 6144\n"
    )
    places = groups.free_places(new, "/shop", tmp_path / "mounts")
    assert places == (new, cpu, blkio)
    assert groups.read_free(places) == {
        "cg:cpu.user_ms": 7,
        "cg:cpu.system_ms": 2,
        "cg:cpu.throttles": 4,
        "cg:cpu.throttled_ms": 2500,
        "cg:memory.pgfault": 8,
        "cg:io.read_kb": 5,
        "cg:io.written_kb": 1,
    }
    assert set(groups.read_free(places)) <= set(groups.free_terms())


@pytest.mark.parametrize(
    "text",
    [
        *("", "\n\n", "nr_throttled", "nr_throttled -1", "nr_throttled 1.5", "nr_throttled \u0663"),
        *("=", "nr_throttled " + "9" * 5000, "8:0 nr_throttled=", "nr_throttled 1" * 3),
    ],
)
def test_counters_that_are_none_are_left_out(tmp_path, text):
    (tmp_path / "cpu.stat").write_text(text, encoding="utf-8")
    (tmp_path / "io.stat").mkdir()
    assert groups.read_free((tmp_path,)) == {}
