"""What the sampler sees of Pythons, held against what they say of themselves."""

import ctypes
import itertools
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.record.counts.groups import find_root
from critpath.record.stacks._sampler import Sampler, find_line
from critpath.record.stacks.interpreters import (
    LAYOUTS,
    Unreadable,
    find_interpreter,
    published_layout,
)
from critpath.record.stacks.samples import SamplesSource
from critpath.record.stacks.sources import StackRequest
from critpath.record.stacks.unwind import ROW, SAMPLE

OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"
VERSIONS = [
    pytest.param(version, marks=[pytest.mark.long] if version != OWN else [])
    for version in (f"3.{minor}" for minor in range(8, 15))
]
PERIOD = 5_000_000
NAME = "a\n\x1b[31m\u202e" + "\u0416\U0001f40d" * 300  # of what is executed

# Parks threads in known places, then says where they are, as the interpreter sees it.
PARKED = """
import asyncio, functools, json, re, sys, threading
ready, end, started = threading.Semaphore(0), threading.Event(), []

def park():
    ready.release()
    end.wait()

def deep(n):
    if n:
        return deep(n - 1)
    park()

class Order:
    def total(self):
        return [self.price(n) for n in range(1)]

    @staticmethod
    def price(n):
        yield_from = sum(x for x in Order.parts())
        return yield_from

    @staticmethod
    def parts():
        def inner():
            park()
            yield 1
        yield from inner()

async def ask():
    await answer()

async def answer():
    await asyncio.sleep(0)
    park()

def by_c():
    def key(x):
        re.sub("x", lambda m: (park(), "")[1], "x")
        return x
    sorted([1], key=key)

def reduced():
    functools.reduce(lambda a, b: (
        park()
    ), [1, 2])

def hostile():
    name = json.loads(sys.argv[1])
    exec(compile("\\n" * 70000 + "def f():\\n  park()\\n\\nf()", name, "exec"), {"park": park})

for target in (park, lambda: deep(900), Order().total, lambda: asyncio.run(ask()), by_c, reduced,
               hostile):
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    started.append(thread)
    ready.acquire()

def stack_of(frame):
    found = []
    while frame:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        found.append((name, code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return found

sys.setrecursionlimit(5000)
import time
time.sleep(0.1)
frames = sys._current_frames()
print(json.dumps([[getattr(t, "native_id"), stack_of(frames[t.ident])] for t in started]),
      flush=True)
input()
"""


@cache
def find_python(version):
    """Return a Python of a version that runs; None without one."""
    if version == OWN:
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    names = [*pyenv.glob(f"{version}.*/bin/python"), shutil.which(f"python{version}")]
    for name in filter(None, names):
        if not subprocess.run([name, "-c", ""], check=False, capture_output=True).returncode:
            return str(name)
    return None


@pytest.fixture(params=VERSIONS)
def python(request):
    if (found := find_python(request.param)) is None:
        pytest.skip(f"no Python {request.param} here")
    return found


@pytest.fixture(autouse=True)
def root():
    if os.geteuid():
        pytest.skip("not root")


class Sampled:
    """A sampler of processes, and what it has seen."""

    def __init__(self, *pids, period=PERIOD):
        self.sampler = Sampler(period)
        self.count = 0
        for pid in pids:
            self.add(pid)

    def add(self, pid):
        until = time.monotonic() + 20
        while (found := find_interpreter(pid)) is None:
            assert time.monotonic() < until
            time.sleep(0.01)
        self.count += 1
        self.sampler.add(self.count, pid, found.layout, found.runtime, found.code_type, False)

    def rows(self):
        """Return time, thread and stack of every row: names, files and lines."""
        self.sampler.end()
        assert self.sampler.whole
        encodings = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}
        texts = [data.decode(encodings[width]) for width, data in self.sampler.texts()]
        places = [[texts[name], texts[file], line] for name, file, line in self.sampler.places()]
        stacks = [[places[n] for n in stack] for stack in self.sampler.stacks()]
        rows = ROW.iter_unpack(self.sampler.packed({}, SAMPLE))
        return [(at, tid, stacks[n] if n >= 0 else None) for at, tid, _, n, _ in rows]


def start(python, text, *words):
    return subprocess.Popen(
        [python, "-c", text, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_stacks_are_those_that_the_interpreter_has(python):
    with start(python, PARKED, json.dumps(NAME)) as child:
        said = json.loads(child.stdout.readline())
        sampled = Sampled(child.pid)
        for _ in range(3):
            sampled.sampler.sample()
        rows = sampled.rows()
        child.communicate("\n")
    found = {tid: stack for _, tid, stack in rows if stack}
    assert len(said) == 7
    for tid, stack in said:
        wanted = [[name[-400:], file[-400:], line] for name, file, line in stack]
        assert found[tid] == wanted[:1024]
    assert sampled.sampler.torn == sampled.sampler.lost == sampled.sampler.unknown == 0
    assert "<module>" in found[child.pid][-1]


BUSY = """
import sys, threading, time
def even(n):
    return n and odd(n - 1)
def odd(n):
    return n and even(n - 1)
def spin():
    until = time.monotonic() + 2
    while time.monotonic() < until:
        even(30)
threads = [threading.Thread(target=spin) for _ in range(3)]
for thread in threads:
    thread.start()
print(1, flush=True)
for thread in threads:
    thread.join()
"""


def sample_to_the_end(child):
    """Sample a Python each millisecond until it has ended."""
    sampled = Sampled(child.pid, period=1_000_000)
    thread = threading.Thread(target=sampled.sampler.run)
    thread.start()
    child.wait()
    sampled.sampler.stop()
    thread.join()
    return sampled


def test_what_runs_is_seen_and_its_callers_call_it(python):
    with start(python, BUSY) as child:
        child.stdout.readline()
        sampled = sample_to_the_end(child)
    stacks = [stack for _, tid, stack in sampled.rows() if stack and tid != child.pid]
    names = [[name for name, *_ in stack] for stack in stacks]
    inside = [found for found in names if "spin" in found]
    assert len(inside) > 100
    callers = {"even": {"odd", "spin"}, "odd": {"even"}, "spin": {"run", "Thread.run"}}
    for found in inside:
        for inner, outer in itertools.pairwise(found):
            assert outer in callers.get(inner, {outer})
    assert sampled.sampler.torn < 0.5 * sampled.sampler.samples  # the more, the slower the machine


EXECUTED = """
import threading, time
print(1, flush=True)
number = 0
until = time.monotonic() + 1.5
while time.monotonic() < until:
    number = (number + 1) % 3
    text = f"import time\\ndef f_{number}():\\n    time.sleep(0.002)\\nf_{number}()"
    exec(compile(text, f"file_{number}", "exec"))
"""


def test_code_that_lies_where_another_did_has_its_own_name(python):
    with start(python, EXECUTED) as child:
        child.stdout.readline()
        sampled = sample_to_the_end(child)
    inner = {tuple(stack[0]) for _, _, stack in sampled.rows() if stack and stack[0][0][:2] == "f_"}
    # A function that has just been entered is in the line of its def: a slow machine shows some.
    entered = {(f"f_{n}", f"file_{n}", 2) for n in range(3)}
    assert inner - entered == {(f"f_{n}", f"file_{n}", 3) for n in range(3)}


FORKED = """
import os, threading, time
def work():
    time.sleep(0.3)
def parent():
    time.sleep(0.6)
read, write = os.pipe()
pid = os.fork()
if not pid:
    thread = threading.Thread(target=work)
    thread.start()
    os.write(write, str(thread.native_id).encode())
    thread.join()
    os._exit(0)
print(pid, os.read(read, 20).decode(), flush=True)
parent()
"""


def test_threads_of_a_fork_are_its_own(python):
    with start(python, FORKED) as child:
        pid, tid = map(int, child.stdout.readline().split())
        sampled = Sampled(child.pid, pid)
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            sampled.sampler.sample()
            time.sleep(0.005)
        states = sampled.sampler.states()
    rows = sampled.rows()
    seen = {thread: set() for _, thread, _ in rows}
    for _, thread, stack in rows:
        seen[thread] |= {name for name, *_ in stack or ()}
    assert set(seen) == {child.pid, pid, tid}
    assert "work" in seen[tid]
    assert "parent" in seen[child.pid] - seen[tid] - seen[pid]
    assert states[2] == -1
    assert rows[-1][2] is None


def test_threads_come_and_go(python):
    text = """
import threading, time
def brief():
    time.sleep(0.004)
print(1, flush=True)
for _ in range(150):
    threads = [threading.Thread(target=brief) for _ in range(5)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""
    with start(python, text) as child:
        child.stdout.readline()
        sampled = Sampled(child.pid, period=500_000)
        thread = threading.Thread(target=sampled.sampler.run)
        thread.start()
        child.wait()
        sampled.sampler.stop()
        thread.join()
    by_thread = {}
    for at, tid, stack in sampled.rows():
        by_thread.setdefault(tid, []).append((at, stack))
    assert len(by_thread) > 300
    for rows in by_thread.values():
        assert [at for at, _ in rows] == sorted(at for at, _ in rows)
        assert rows[-1][1] is None or len(rows) == 1
    inner = [stack[0][0] for rows in by_thread.values() for _, stack in rows if stack]
    assert inner.count("brief") > 300


# Lines

LINES = """
import dis, json, sys
def codes(code):
    yield code
    for const in code.co_consts:
        if hasattr(const, "co_code"):
            yield from codes(const)
found = []
for name in ("argparse", "dataclasses", "typing", "tarfile"):
    with open(__import__(name).__file__) as stream:
        code = compile(stream.read(), name, "exec")
    for one in codes(code):
        if hasattr(one, "co_positions"):
            lines, table = [p[0] for p in one.co_positions()], one.co_linetable
        else:
            lines, at = [], dict(dis.findlinestarts(one))
            line = one.co_firstlineno
            for offset in range(0, len(one.co_code), 2):
                line = at.get(offset, line)
                lines.append(line)
            if hasattr(one, "co_lines"):
                lines = [None] * len(lines)
                for begin, end, line in one.co_lines():
                    lines[begin // 2 : end // 2] = [line] * ((end - begin) // 2)
            table = getattr(one, "co_linetable", one.co_lnotab)
        found.append([one.co_firstlineno, table.hex(), lines])
print(json.dumps(found))
"""


def test_lines_are_those_of_the_interpreter(python):
    version = json.loads(
        subprocess.check_output([python, "-c", "import sys; print(list(sys.version_info[:2]))"])
    )
    table = 2 if version >= [3, 11] else 1 if version == [3, 10] else 0
    rows = json.loads(subprocess.check_output([python, "-c", LINES]))
    assert len(rows) > 300
    for first, lines, wanted in rows:
        data = bytes.fromhex(lines)
        assert [find_line(table, data, first, 2 * n) for n in range(len(wanted))] == [
            line or 0 for line in wanted
        ]


@given(st.integers(0, 2), st.binary(max_size=64), st.integers(0, 2**31), st.integers(-2, 2**31))
def test_no_table_of_lines_is_read_beyond_its_end(table, lines, first, offset):
    assert isinstance(find_line(table, lines, first, offset), int)


# Hostile memory


@pytest.mark.parametrize("version", [(3, 9), (3, 11), (3, 12)])
def test_memory_of_anything_is_survived(version):
    """Words that lead into the same memory, and are changed meanwhile: chains of all kinds."""
    rng = random.Random(20)  # noqa: S311 - a test's
    size = 1 << 16
    memory = ctypes.create_string_buffer(size + 8192)
    base = (ctypes.addressof(memory) + 4095) & ~4095
    ending = threading.Event()

    def scribble():
        while not ending.is_set():
            at = rng.randrange(size // 8)
            ctypes.memmove(base + 8 * at, word(rng, base, size), 8)

    layout = LAYOUTS[version]
    scribbler = threading.Thread(target=scribble)
    scribbler.start()
    begin = time.monotonic()
    rounds = 0
    while time.monotonic() < begin + 2:
        words = b"".join(word(rng, base, size) for _ in range(size // 8))
        ctypes.memmove(base, words, size)
        sampler = Sampler(PERIOD)
        runtime = base + 8 * rng.randrange(size // 8 - 300)
        code_type = rng.choice([base, struct.unpack("<Q", words[80:88])[0]])
        sampler.add(1, os.getpid(), layout, runtime, code_type, True)
        for _ in range(5):
            sampler.sample()
        sampler.end()
        sampler.packed({}, SAMPLE)
        rounds += 1
    ending.set()
    scribbler.join()
    assert rounds > 10


def word(rng, base, size):
    kind = rng.random()
    if kind < 0.8:
        return struct.pack("<Q", base + 8 * rng.randrange(size // 8))
    return struct.pack("<Q", rng.choice([0, 1, 4, 0x64, 2**31, 2**64 - 1, rng.getrandbits(64)]))


def test_a_chain_without_an_end_is_bounded():
    """A thread's frames lead to themselves, and so does the list of threads."""
    memory = ctypes.create_string_buffer(8192)
    base = (ctypes.addressof(memory) + 15) & ~15
    layout = LAYOUTS[3, 11]
    words = {40: base, 0: 0, 16: base}  # interpreters, the next one, threads
    words |= {8: base, 56: base + 1024, 152: 1, 160: os.getpid()}
    words |= {1024 + 8: base + 2048, 2048 + 48: base + 2048, 2048 + 32: base + 4096}
    for at, value in words.items():
        ctypes.memmove(base + at, struct.pack("<Q", value), 8)
    sampler = Sampler(PERIOD)
    sampler.add(1, os.getpid(), layout, base, 1, False)
    begin = time.monotonic()
    for _ in range(3):
        sampler.sample()
    assert time.monotonic() - begin < 20
    assert sampler.torn
    assert sampler.stacks() == []


def test_a_layout_that_leads_far_away_is_refused():
    far = published_layout((3, 13), b"\xff" * 1024)
    with pytest.raises((ValueError, OverflowError)):
        Sampler(PERIOD).add(1, os.getpid(), far, 0, 0, False)
    with pytest.raises(ValueError, match="layout"):
        Sampler(PERIOD).add(1, os.getpid(), LAYOUTS[3, 12]._replace(code=-8), 0, 0, False)


def test_what_is_no_python_has_none():
    with subprocess.Popen(["sleep", "5"]) as child:
        time.sleep(0.05)
        assert find_interpreter(child.pid) is None
        child.kill()


def test_a_version_that_nobody_knows_is_named(monkeypatch):
    monkeypatch.setattr("critpath.record.stacks.interpreters.LAYOUTS", {(3, 12): LAYOUTS[3, 12]})
    python = find_python("3.10") or find_python("3.11")
    if python is None:
        pytest.skip("no such Python here")
    with start(python, "print(1, flush=True); input()") as child:
        child.stdout.readline()
        with pytest.raises(Unreadable, match=r"Python 3\.1[01]"):
            find_interpreter(child.pid)
        child.communicate("\n")


# The source

COMMAND = """
import os, subprocess, sys, time
def wait_here():
    time.sleep(0.5)
if len(sys.argv) > 1:
    wait_here()
else:  # another program in the same process, a while after it began
    time.sleep(0.3)
    os.execv("/bin/sh", ["sh", "-c", f"sleep 0.3; exec {sys.executable} {__file__} again"])
"""


def test_pythons_that_start_meanwhile_are_taken(python, tmp_path):
    (tmp_path / "app.py").write_text(COMMAND)
    source = SamplesSource(StackRequest(tmp_path))
    source.start()
    subprocess.run([python, tmp_path / "app.py"], check=True)
    source.stop()
    facts = source.read()
    frames = json.loads((tmp_path / "python.json").read_text())["frames"]
    assert facts.facts["source"] == "samples"
    assert facts.facts["pythons"] >= 2
    assert not facts.warnings
    assert ["wait_here", str(tmp_path / "app.py"), 4, "python", False] in frames


def test_a_python_that_runs_already_is_sampled(python, tmp_path):
    text = "import time\ndef serve():\n    time.sleep(20)\nprint(1, flush=True)\nserve()"
    with start(python, text) as child:
        child.stdout.readline()
        source = SamplesSource(StackRequest(tmp_path, machine=True))
        source.start()
        time.sleep(0.3)
        source.stop()
        source.read()
        child.kill()
    rows = [*ROW.iter_unpack((tmp_path / "python.bin").read_bytes())]
    document = json.loads((tmp_path / "python.json").read_text())
    mine = [row for row in rows if row[1] == child.pid]
    inner = document["frames"][document["stacks"][mine[0][3]][0]]
    assert inner[:3] == ["serve", "<string>", 3]
    assert mine[-1][3] == -1


def test_of_named_processes_no_other_python_is_sampled(tmp_path):
    text = "import time\nprint(1, flush=True)\ntime.sleep(20)"
    with start(sys.executable, text) as mine, start(sys.executable, text) as other:
        for child in (mine, other):
            child.stdout.readline()
        source = SamplesSource(StackRequest(tmp_path, machine=True, processes=(mine.pid,)))
        source.start()
        time.sleep(0.3)
        source.stop()
        source.read()
        mine.kill()
        other.kill()
    rows = [*ROW.iter_unpack((tmp_path / "python.bin").read_bytes())]
    assert {row[1] for row in rows} == {mine.pid}


@pytest.fixture
def group():
    """Return a control group, of version 2, with one below it; both are removed."""
    if (root := find_root()) is None:
        pytest.skip("no control groups of version 2 here")
    place = root / f"critpath-test-{os.getpid()}"
    (place / "below").mkdir(parents=True)
    yield place
    until = time.monotonic() + 5
    for one in (place / "below", place):
        while (one / "cgroup.procs").read_text() and time.monotonic() < until:
            time.sleep(0.02)
        one.rmdir()


def test_who_enters_a_control_group_later_is_sampled_and_nobody_outside(group, tmp_path):
    text = "import time\nprint(1, flush=True)\ntime.sleep(20)"
    with (
        start(sys.executable, text) as first,
        start(sys.executable, text) as second,
        start(sys.executable, text) as outside,
    ):
        for child in (first, second, outside):
            child.stdout.readline()
        # Nobody is in it when it begins: that is not the whole machine.
        source = SamplesSource(StackRequest(tmp_path, machine=True, group=f"/{group.name}"))
        source.start()
        (group / "cgroup.procs").write_text(str(first.pid))
        (group / "below" / "cgroup.procs").write_text(str(second.pid))
        time.sleep(1.5)
        source.stop()
        source.read()
        for child in (first, second, outside):
            child.kill()
    rows = [*ROW.iter_unpack((tmp_path / "python.bin").read_bytes())]
    assert {row[1] for row in rows} == {first.pid, second.pid}


def test_threads_of_a_container_have_the_numbers_of_this_machine(tmp_path):
    if shutil.which("unshare") is None:
        pytest.skip("no unshare here")
    text = "import time\ndef serve():\n    time.sleep(0.6)\nserve()"
    source = SamplesSource(StackRequest(tmp_path))
    source.start()
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", text]
    with subprocess.Popen(command) as child:
        time.sleep(0.4)
        children = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        child.wait()
        if child.returncode:
            pytest.skip("no namespaces here")
    source.stop()
    source.read()
    rows = [*ROW.iter_unpack((tmp_path / "python.bin").read_bytes())]
    assert {row[1] for row in rows} == {int(children[0])}


# Layouts

TOOL = Path(__file__).parents[3] / "tools" / "python_layouts.py"


def test_layouts_are_those_of_the_headers(python):
    if shutil.which("cc") is None:
        pytest.skip("no compiler here")
    done = subprocess.run(
        [sys.executable, TOOL, python], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip("it has no headers of its internals")
    (version, numbers), *_ = (line.split(": ") for line in done.stdout.splitlines())
    with start(python, "print(1, flush=True); input()") as child:
        child.stdout.readline()
        found = find_interpreter(child.pid)
        child.communicate("\n")
    assert str(found.version) == version
    assert str(tuple(found.layout)) == numbers
