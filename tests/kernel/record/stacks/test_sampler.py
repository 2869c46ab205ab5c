"""What the sampler sees of Pythons, held against what they say of themselves."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from critpath_record.counts.groups import find_root
from critpath_record.stacks._sampler import Sampler, find_line
from critpath_record.stacks.interpreters import LAYOUTS, Unreadable, find_interpreter
from critpath_record.stacks.samples import SamplesSource
from critpath_record.stacks.sources import StackRequest
from critpath_record.stacks.unwind import ROW, SAMPLE

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "played"))
from pythons import find_python

VERSIONS = range(8, 15)
PERIOD = 1_000_000  # ns
NAME = "a\n\x1b[31m\u202e" + "\u0416\U0001f40d" * 300  # of what is executed

# Does what its lines of input say, and says when it is at it.
CHILD = """
import asyncio, functools, json, os, re, sys, threading, time
from pathlib import Path
sys.setrecursionlimit(5000)
going = []

def say(*words):
    print(json.dumps(words), flush=True)

# Threads that spin, until the next line.
def even(n):
    return n and odd(n - 1)
def odd(n):
    return n and even(n - 1)
def spin():
    while going:
        even(30)

# Code that lies where other code did.
def execute():
    number = 0
    while going:
        number = (number + 1) % 3
        text = f"import time\\ndef f_{number}():\\n    time.sleep(0.002)\\nf_{number}()"
        exec(compile(text, f"file_{number}", "exec"))

def begin(target, count):
    going.append(1)
    threads = [threading.Thread(target=target) for _ in range(count)]
    for thread in threads:
        thread.start()
    say()
    sys.stdin.readline()
    going.clear()
    for thread in threads:
        thread.join()
    say()

def brief():
    time.sleep(0.004)

def come_and_go():
    for _ in range(60):
        threads = [threading.Thread(target=brief) for _ in range(5)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
    say()

def work(file):
    os.read(file, 1)

def fork():
    (end, ends), (told, tells) = os.pipe(), os.pipe()
    pid = os.fork()
    if not pid:
        thread = threading.Thread(target=work, args=(end,))
        thread.start()
        os.write(tells, str(thread.native_id).encode())
        thread.join()
        os._exit(0)
    say(pid, int(os.read(told, 20)))
    sys.stdin.readline()
    os.write(ends, b"x")
    os.waitpid(pid, 0)
    say()

# Threads that wait in known places.
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

def park_in(target):
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    started.append(thread)
    ready.acquire()
    say()

def stack_of(frame):
    found = []
    while frame:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        found.append((name, code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return found

def state_of(thread):
    said = Path(f"/proc/self/task/{thread.native_id}/stat").read_text()
    return said.rpartition(")")[2].split()[0]

def stacks():
    frames = sys._current_frames()
    return [(thread.native_id, stack_of(frames[thread.ident])) for thread in started]

def stay():
    before = None
    while True:  # until all of them sleep where they slept before
        now = stacks()
        asleep = all(state_of(thread) == "S" for thread in started)
        if asleep and now == before and all(s[0][0].endswith("wait") for _, s in now):
            return say(now)
        before = now
        time.sleep(0.02)

say()
for line in sys.stdin:
    exec(line)
"""
# As in the program, for what it parks.
PARKED = 7


class Child:
    """A Python that does what it is told."""

    def __init__(self, start, python: str, place: Path) -> None:
        self.started = start(python, "-c", CHILD, json.dumps(NAME), cwd=place)
        self.pid = self.started.pid
        self.started.read_out()

    def tell(self, line: str) -> list:
        """Give it a line, and return what it says to it."""
        self.started.process.stdin.write(f"{line}\n")
        self.started.process.stdin.flush()
        return json.loads(self.started.read_out())


@pytest.fixture(scope="module", params=VERSIONS, ids=lambda minor: f"3.{minor}")
def python(request) -> str:
    if os.geteuid():
        pytest.skip("not root")
    if (found := find_python(request.param)) is None:
        pytest.skip(f"no Python 3.{request.param} here")
    return found


@pytest.fixture(scope="module")
def child(start, python, tmp_path_factory) -> Iterator[Child]:
    made = Child(start, python, tmp_path_factory.mktemp("child"))
    yield made
    made.started.kill()


class Sampled:
    """A sampler of processes, and what it has seen."""

    def __init__(self, *pids, period=PERIOD):
        self.sampler = Sampler(period)
        for number, pid in enumerate(pids, 1):
            found = find_interpreter(pid)
            self.sampler.add(number, pid, found.layout, found.runtime, found.code_type, False)

    @contextlib.contextmanager
    def running(self):
        """Sample in a thread meanwhile."""
        thread = threading.Thread(target=self.sampler.run)
        thread.start()
        try:
            yield
        finally:
            self.sampler.stop()
            thread.join()

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


def sample_while(child: Child, line: str, wait_for, samples: int = 300) -> Sampled:
    """Sample a child that does something until it is told to end that."""
    child.tell(line)
    sampled = Sampled(child.pid)
    with sampled.running():
        wait_for(lambda: sampled.sampler.samples > samples)
    child.tell("")
    return sampled


def test_what_runs_is_seen_and_its_callers_call_it(child, wait_for):
    sampled = sample_while(child, "begin(spin, 3)", wait_for)
    stacks = [stack for _, tid, stack in sampled.rows() if stack and tid != child.pid]
    names = [[name for name, *_ in stack] for stack in stacks]
    inside = [found for found in names if "spin" in found]
    assert len(inside) > 5  # a busy machine lets few be taken
    callers = {"even": {"odd", "spin"}, "odd": {"even"}, "spin": {"run", "Thread.run"}}
    for found in inside:
        for inner, outer in itertools.pairwise(found):
            assert outer in callers.get(inner, {outer})


def test_code_that_lies_where_another_did_has_its_own_name(child, wait_for):
    sampled = sample_while(child, "begin(execute, 1)", wait_for)
    inner = {tuple(stack[0]) for _, _, stack in sampled.rows() if stack and stack[0][0][:2] == "f_"}
    # A function that has just been entered is in the line of its def: a slow machine shows some.
    entered = {(f"f_{n}", f"file_{n}", 2) for n in range(3)}
    assert inner - entered == {(f"f_{n}", f"file_{n}", 3) for n in range(3)}


def test_threads_come_and_go(child):
    sampled = Sampled(child.pid)
    with sampled.running():
        child.tell("come_and_go()")
    by_thread = {}
    for at, tid, stack in sorted(sampled.rows(), key=lambda row: row[0]):
        by_thread.setdefault(tid, []).append((at, stack))
    assert len(by_thread) > 30
    # The main thread is there to the end; the others' last row says that they are gone.
    gone = [rows for tid, rows in by_thread.items() if tid != child.pid and len(rows) > 1]
    assert all(rows[-1][1] is None for rows in gone)
    inner = [stack[0][0] for rows in by_thread.values() for _, stack in rows if stack]
    assert inner.count("brief") > 30


def test_threads_of_a_fork_are_its_own(child, wait_for):
    pid, tid = child.tell("fork()")
    sampled = Sampled(child.pid, pid)
    for _ in range(5):
        sampled.sampler.sample()

    def has_ended():
        sampled.sampler.sample()
        return sampled.sampler.states()[2] == -1

    child.tell("")
    wait_for(has_ended)
    rows = sampled.rows()
    seen = {thread: set() for _, thread, _ in rows}
    for _, thread, stack in rows:
        seen[thread] |= {name for name, *_ in stack or ()}
    assert set(seen) == {child.pid, pid, tid}
    assert "work" in seen[tid]
    assert "fork" in seen[child.pid] & seen[pid]
    assert "work" not in seen[child.pid] | seen[pid]
    assert [stack for _, thread, stack in rows if thread == pid][-1] is None


def test_stacks_are_those_that_the_interpreter_has(child):
    for target in ("park", "lambda: deep(900)", "Order().total", "lambda: asyncio.run(ask())"):
        child.tell(f"park_in({target})")
    for target in ("by_c", "reduced", "hostile"):
        child.tell(f"park_in({target})")
    [said] = child.tell("stay()")
    sampled = Sampled(child.pid)
    for _ in range(3):
        sampled.sampler.sample()
    rows = sampled.rows()
    found = {tid: stack for _, tid, stack in rows if stack}
    assert len(said) == PARKED
    for tid, stack in said:
        wanted = [[name[-400:], file[-400:], line] for name, file, line in stack]
        assert found[tid] == wanted[:1024]
    assert sampled.sampler.torn == sampled.sampler.lost == sampled.sampler.unknown == 0
    assert "<module>" in found[child.pid][-1]


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
print(json.dumps([sys.version_info[:2], found]))
"""


def test_lines_are_those_of_the_interpreter(start, python, tmp_path):
    said = start(python, "-c", LINES, cwd=tmp_path)
    assert said.end() == 0
    version, rows = json.loads(said.out)
    table = 2 if version >= [3, 11] else 1 if version == [3, 10] else 0
    assert len(rows) > 300
    for first, lines, wanted in rows:
        data = bytes.fromhex(lines)
        assert [find_line(table, data, first, 2 * n) for n in range(len(wanted))] == [
            line or 0 for line in wanted
        ]


# Who is a Python


def test_what_is_no_python_has_none(start, wait_for, tmp_path):
    other = start("cat", cwd=tmp_path)
    wait_for(lambda: Path(f"/proc/{other.pid}/exe").readlink().name != Path(sys.executable).name)
    assert find_interpreter(other.pid) is None
    other.kill()


def test_a_version_that_nobody_knows_is_named(start, monkeypatch, tmp_path):
    monkeypatch.setattr("critpath_record.stacks.interpreters.LAYOUTS", {(3, 12): LAYOUTS[3, 12]})
    python = find_python(10) or find_python(11)
    if python is None:
        pytest.skip("no such Python here")
    other = start(python, "-c", "print(1, flush=True); input()", cwd=tmp_path)
    other.read_out()
    with pytest.raises(Unreadable, match=r"Python 3\.1[01]"):
        find_interpreter(other.pid)
    other.kill()


TOOL = Path(__file__).resolve().parents[4] / "tools" / "python_layouts.py"


def test_layouts_are_those_of_the_headers(start, child, python, tmp_path):
    if shutil.which("cc") is None:
        pytest.skip("no compiler here")
    done = start(sys.executable, TOOL, python, cwd=tmp_path)
    if done.end():
        pytest.skip("it has no headers of its internals")
    (version, numbers), *_ = (line.split(": ") for line in done.out.splitlines())
    found = find_interpreter(child.pid)
    assert str(found.version) == version
    assert str(tuple(found.layout)) == numbers


# The source

# Waits for a line in a function; then for the next one as another program, and as a Python again.
COMMAND = """
import os, sys
def wait_here():
    print(len(sys.argv), flush=True)
    sys.stdin.readline()
wait_here()
if len(sys.argv) == 1:
    os.execv("/bin/sh", ["sh", "-c", f"echo 0; read x; exec {sys.executable} {__file__} again"])
"""
SERVING = "def serve():\n    print(1, flush=True)\n    input()\nserve()"


@pytest.fixture
def source(tmp_path):
    """Return a function that begins a source; it is ended in the end."""
    if os.geteuid():
        pytest.skip("not root")
    made = []

    def begin(**request) -> SamplesSource:
        made.append(SamplesSource(StackRequest(tmp_path, **request)))
        made[-1].open()
        return made[-1]

    yield begin
    for one in made:
        one.close()


def rows_of(place: Path) -> list[tuple]:
    return [*ROW.iter_unpack((place / "python.bin").read_bytes())]


def wait_for_samples(source: SamplesSource, wait_for, more: int = 20) -> None:
    seen = source.sampler.samples
    wait_for(lambda: source.sampler.samples > seen + more)


def test_pythons_that_start_meanwhile_are_taken(start, source, wait_for, tmp_path):
    (tmp_path / "app.py").write_text(COMMAND)
    sampling = source()
    app = start(sys.executable, tmp_path / "app.py", cwd=tmp_path)
    for count, said in ((1, "1"), (1, "0"), (2, "2")):
        assert app.read_out() == said
        wait_for(lambda count=count: sampling.watch.pythons >= count)
        if said != "0":
            wait_for_samples(sampling, wait_for)
        app.process.stdin.write("\n")
        app.process.stdin.flush()
    assert app.end() == 0
    sampling.close()
    facts = sampling.drain(lambda _: None)
    frames = json.loads((tmp_path / "python.json").read_text())["frames"]
    assert facts.facts["source"] == "samples"
    assert facts.facts["pythons"] >= 2
    assert not facts.warnings
    assert ["wait_here", str(tmp_path / "app.py"), 5, "python", False] in frames


def test_of_those_that_run_already_only_the_named_are_sampled(start, source, wait_for, tmp_path):
    mine, other = (start(sys.executable, "-c", SERVING, cwd=tmp_path) for _ in range(2))
    for each in (mine, other):
        each.read_out()
    sampling = source(machine=True, processes=(mine.pid,))
    wait_for_samples(sampling, wait_for)
    sampling.close()
    sampling.drain(lambda _: None)
    rows = rows_of(tmp_path)
    document = json.loads((tmp_path / "python.json").read_text())
    inner = document["frames"][document["stacks"][rows[0][3]][0]]
    # On a busy machine it may not have come from what it printed to what it waits for.
    assert inner[:2] == ["serve", "<string>"]
    assert inner[2] in {2, 3}
    assert rows[-1][3] == -1
    assert {row[1] for row in rows} == {mine.pid}
    for each in (mine, other):
        each.kill()


def test_who_enters_a_control_group_later_is_sampled_and_nobody_outside(
    start, source, wait_for, tmp_path
):
    if (root := find_root()) is None:
        pytest.skip("no control groups of version 2 here")
    group = root / f"critpath-test-{os.getpid()}"
    (group / "below").mkdir(parents=True)
    first, second, outside = (start(sys.executable, "-c", SERVING, cwd=tmp_path) for _ in range(3))
    try:
        for each in (first, second, outside):
            each.read_out()
        # Nobody is in it when it begins: that is not the whole machine.
        sampling = source(machine=True, group=f"/{group.name}")
        (group / "cgroup.procs").write_text(str(first.pid))
        (group / "below" / "cgroup.procs").write_text(str(second.pid))
        wait_for(lambda: sampling.watch.pythons == 2)
        wait_for_samples(sampling, wait_for)
        sampling.close()
        sampling.drain(lambda _: None)
        assert {row[1] for row in rows_of(tmp_path)} == {first.pid, second.pid}
    finally:
        for each in (first, second, outside):
            each.kill()
        for place in (group / "below", group):
            wait_for(lambda place=place: not (place / "cgroup.procs").read_text())
            place.rmdir()


def test_threads_of_a_container_have_the_numbers_of_this_machine(start, source, wait_for, tmp_path):
    if shutil.which("unshare") is None:
        pytest.skip("no unshare here")
    sampling = source()
    apart = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    outer = start(*apart, sys.executable, "-c", SERVING, cwd=tmp_path)
    if outer.read_out() != "1":
        pytest.skip("no namespaces here")
    [inside] = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
    wait_for(lambda: sampling.watch.pythons == 1)
    wait_for_samples(sampling, wait_for)
    outer.kill()
    sampling.close()
    sampling.drain(lambda _: None)
    assert {row[1] for row in rows_of(tmp_path)} == {int(inside)}
