"""Executions that programs mark, chosen by kind: the shared pages, the gate, whole recordings."""

from __future__ import annotations

import json
import math
import mmap
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from critpath.record.budget.admission import Admission
from critpath.record.budget.control import SOFT, TRACING_ON, Budget, Control, Costs
from critpath.record.budget.gaps import Journal, read_journal
from critpath.record.budget.programs import ProgramLoop
from critpath.record.budget.selection import Kinds
from critpath_marks import gate as layout
from critpath_marks.channels import PLACE, _move_high
from critpath_marks.gate import Gate, kind_number, open_gate
from critpath_marks.sessions import new_session_name

pytestmark = pytest.mark.xdist_group("kernel")

INSTANCES = Path("/sys/kernel/tracing/instances")
CRITPATH = (sys.executable, "-m", "critpath")
# One in a hundred executions asks another process far more often than the others.
PROGRAM = """
import json, os, sys, time
from critpath_marks import execution
a, b, until = os.eventfd(0), os.eventfd(0), time.monotonic() + float(sys.argv[1])
other = os.fork()
if other == 0:
    while True:
        os.eventfd_read(a)
        os.eventfd_write(b, 1)
number = 0
while time.monotonic() < until:
    number += 1
    kind = "common" if number % 100 else "rare"
    with execution(kind, key=number):
        for _ in range(4 if number % 100 else 100):
            os.eventfd_write(a, 1)
            os.eventfd_read(b)
    for _ in range(10000):
        pass
os.kill(other, 9)
print(number)
"""


class FakeGate:
    """A layer whose switch is a file: ``1`` in it while it is open."""

    state, name = SOFT, "base"

    def __init__(self, place: Path) -> None:
        self.switch = os.open(place, os.O_RDWR | os.O_CREAT)
        self.is_open = False
        self.recorded = 0
        self.ended = False

    @property
    def lets_through(self) -> bool:
        return os.pread(self.switch, 1, 0) == b"1" and not self.ended

    def open(self) -> None:
        os.pwrite(self.switch, b"1", 0)
        self.is_open = True

    def close(self) -> None:
        os.pwrite(self.switch, b"0", 0)
        self.is_open = False

    def adopt(self) -> None:
        self.is_open = True

    def end(self) -> None:
        self.ended = True

    def turn_off(self) -> None:
        pass

    def cpu_time(self) -> float:
        return 0.0

    def counts(self, _cpus: object) -> list[int]:
        return [self.recorded]


@pytest.fixture
def admission(tmp_path: Path) -> Iterator[tuple[Admission, FakeGate]]:
    gate = FakeGate(tmp_path / "switch")
    made = Admission(new_session_name(), 7, [gate.switch])
    made.ask(True)
    yield made, gate
    made.close()
    os.close(gate.switch)


def join(admission: Admission) -> Gate:
    """What a program makes of the descriptors that it inherits."""
    chances, counts, told, *switches = (os.dup(file) for file in admission.descriptors)
    return Gate(chances, counts, told, switches)


def test_the_first_opens_and_the_last_tells(admission: tuple[Admission, FakeGate]) -> None:
    shared, gate = admission
    program = join(shared)
    shared.publish({f"{kind_number('never'):x}": 0.0}, 1.0)
    assert program.enter("never")[0] == 0.0
    assert not gate.lets_through
    assert not shared.look().busy
    first, place, begin = program.enter("kind")
    assert first == 1.0
    assert gate.lets_through
    second = program.enter("kind")
    look = shared.look()
    assert look.busy
    [(opening, opened)] = look.openings
    assert begin - 10**9 < opening <= opened <= begin
    program.leave(place, begin, admitted=True)
    assert shared.look().busy
    program.leave(*second[1:], admitted=True)
    assert not shared.look().busy
    assert os.read(shared.pipe, 9) == b"1"
    learned = shared.learn()
    kind = f"{kind_number('kind'):x}"
    assert learned.seen[kind] == learned.admitted[kind] == 2
    assert dict(learned.took)[kind] > 0
    program.close()


def test_chances_are_only_read_and_nobody_can_shrink_what_is_shared(
    admission: tuple[Admission, FakeGate],
) -> None:
    """What a program inherits lets it turn this recording on and off, and nothing else."""
    shared, _ = admission
    chances, counts, told, *switches = shared.descriptors
    assert len(switches) == 1
    with pytest.raises(PermissionError):
        mmap.mmap(chances, layout.CHANCES_BYTES)
    again = os.open(f"/proc/self/fd/{chances}", os.O_RDWR)  # as root can
    try:
        with pytest.raises(PermissionError):
            mmap.mmap(again, layout.CHANCES_BYTES)
        with pytest.raises(PermissionError):
            os.write(again, b"x")
    finally:
        os.close(again)
    for size in (0, layout.COUNTS_BYTES * 2):
        with pytest.raises(PermissionError):
            os.ftruncate(counts, size)
    with pytest.raises(OSError, match="Bad file"):
        os.read(told, 1)


def test_whatever_a_program_writes_is_a_count(admission: tuple[Admission, FakeGate]) -> None:
    shared, _ = admission
    words = memoryview(mmap.mmap(shared.descriptors[1], layout.COUNTS_BYTES)).cast("Q")
    for at in range(len(words)):
        words[at] = (1 << 64) - 1
    look = shared.look()
    assert not look.busy  # nobody lives there
    learned = shared.learn()
    assert all(
        0 <= count <= 10**6 * layout.PROCESSES * layout.PLACES for count in learned.seen.values()
    )
    assert all(0 <= seconds <= 3600 for _, seconds in learned.took)
    for at in range(len(words)):
        words[at] = 0
    assert not any(shared.learn().seen.values())


def test_a_program_that_executes_another_is_counted_anew(
    admission: tuple[Admission, FakeGate],
) -> None:
    """It keeps its pid and zeroes its row."""
    shared, _ = admission
    shared.publish({}, 1.0)
    kind = f"{kind_number('kind'):x}"
    for times in (5, 2):
        program = join(shared)
        for _ in range(times):
            program.leave(*program.enter("kind")[1:], admitted=True)
        shared.look()
        learned = shared.learn()
        assert learned.seen[kind] == learned.admitted[kind] == times
        program.close()
    program = join(shared)
    for _ in range(9):
        program.leave(*program.enter("other")[1:], admitted=True)
    assert shared.learn().seen == {f"{kind_number('other'):x}": 9}
    program.close()


def test_a_gate_that_was_closed_touches_no_descriptor(
    admission: tuple[Admission, FakeGate], tmp_path: Path
) -> None:
    """Its numbers may be those of the program's files by then."""
    shared, _ = admission
    shared.publish({}, 1.0)
    program = join(shared)
    _, place, begin = program.enter("kind")
    shared.set_closed()
    os.pwrite(shared.descriptors[3], b"0", 0)
    program.close()
    own = [os.open(tmp_path / str(n), os.O_RDWR | os.O_CREAT) for n in range(8)]
    try:
        chance, *token = program.enter("kind")
        assert chance == 0.0
        program.leave(*token, admitted=False)
        program.leave(place, begin, admitted=True)
        program.close()
        assert [os.fstat(file).st_size for file in own] == [0] * 8
    finally:
        for file in own:
            os.close(file)


def test_a_child_closes_the_gate_that_another_thread_was_in(
    admission: tuple[Admission, FakeGate],
) -> None:
    program = join(admission[0])
    inside, done = threading.Event(), threading.Event()

    def hold() -> None:
        with program._lock:
            inside.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        program.close()
        os._exit(program.enter("kind")[0] != 0)
    assert os.waitpid(child, 0)[1] == 0
    done.set()
    thread.join()
    program.close()


def test_a_process_that_is_gone_is_not_inside(admission: tuple[Admission, FakeGate]) -> None:
    shared, gate = admission
    shared.publish({}, 1.0)
    child = os.fork()
    if child == 0:
        join(shared).enter("kind")
        os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    assert gate.lets_through
    assert not shared.look().busy


def test_what_was_given_up_is_outside_until_others_come(
    admission: tuple[Admission, FakeGate],
) -> None:
    shared, _ = admission
    shared.publish({}, 1.0)
    program = join(shared)
    program.enter("stays")
    assert shared.look().busy
    shared.give_up()
    assert not shared.look().busy
    one = program.enter("comes")
    assert shared.look().busy
    program.leave(*one[1:], admitted=True)
    assert not shared.look().busy
    program.close()


def test_files_of_others_are_no_gate(tmp_path: Path) -> None:
    own = [os.open(tmp_path / str(n), os.O_RDWR | os.O_CREAT) for n in range(4)]
    try:
        for text in (
            *("", "x", "1:2", "1:1,2,3", "1:1,2,3,99999999", "-1:1,2,3,4", "1:" + "1," * 99 + "1"),
            f"{os.getpid()}:" + ",".join(map(str, own)),
        ):
            assert open_gate(text, _move_high) is None
        assert [os.fstat(file).st_size for file in own] == [0] * 4
    finally:
        for file in own:
            os.close(file)


OTHER = """
import os, sys
from pathlib import Path
from critpath_marks.channels import _move_high
from critpath_marks.gate import open_gate
gate = open_gate(sys.argv[1], _move_high)
if gate is not None:
    print("open")
    gate.enter("kind")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a layer's instance is made by root")
def test_a_stale_gate_of_another_process_is_none(
    tmp_path: Path,
) -> None:
    """What a program did not inherit must be of the recorder that wrote it, and the kernel's."""
    place = tmp_path / "instances" / "critpath-layer-1"
    place.mkdir(parents=True)
    gate = FakeGate(place / "tracing_on")
    shared = Admission(new_session_name(), 7, [gate.switch])
    shared.publish({}, 1.0)
    text = shared.text
    owner, _, rest = text.partition(":")
    pid, _, started = owner.partition(".")
    switch = text.rpartition(",")[2]

    def ask(changed: str, tracefs: str) -> str:
        line = OTHER.replace(
            "gate =", f"import critpath_marks.gate as g; g.TRACEFS = {tracefs!r},\ngate =", 1
        )
        return subprocess.run(
            [sys.executable, "-c", line, changed], capture_output=True, text=True, check=True
        ).stdout  # fmt: skip

    assert switch == str(gate.switch)
    assert ask(text, str(tmp_path)) == "open\n"
    assert gate.lets_through
    gate.close()
    assert ask(text, "/sys/kernel/tracing") == ""
    for changed in (f"{pid}:{rest}", f"{pid}.0:{rest}", f"{pid}.{int(started) + 1}:{rest}"):
        assert ask(changed, str(tmp_path)) == ""
    unsealed = os.memfd_create(layout.COUNTS, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(unsealed, layout.COUNTS_BYTES)
    words = rest.split(",")
    assert ask(f"{owner}:{words[0]},{unsealed},{words[2]},{switch}", str(tmp_path)) == ""
    assert not gate.lets_through
    os.close(unsealed)
    shared.close()
    os.close(gate.switch)


def test_a_loop_notes_what_programs_open_and_closes_behind_them(tmp_path: Path) -> None:
    """Every execution that was admitted lies in no gap; the gate closes when nobody is inside."""
    gate = FakeGate(tmp_path / "switch")
    costs = Costs({"base": 250.0}, {"base": {SOFT: 20.0, TRACING_ON: 70.0}})
    control = Control(Budget(9.0, 1.0), costs, ["base"], 1, 1)
    shared = Admission(new_session_name(), 3, [gate.switch])
    begin = time.monotonic_ns()
    loop = ProgramLoop(
        *(control, [gate], Journal(tmp_path / "journal"), [0], shared, Kinds(0.9, 3), 0.0)
    )
    shared.publish({}, 1.0)
    times = []
    child = os.fork()
    if child == 0:
        program, inside = join(shared), 0
        for number in range(1000):  # how many a slow machine's budget admits is not known
            if number >= 40 and inside > 5:
                break
            chance, place, since = program.enter("kind")
            inside += chance > 0
            time.sleep(0.003)
            until = time.monotonic_ns()
            program.leave(place, since, admitted=chance > 0)
            with (tmp_path / "log").open("a") as stream:
                stream.write(f"{since} {until} {chance}\n")
            time.sleep(0.01)
        os._exit(0)
    os.waitpid(child, 0)
    loop.stop()
    shared.close()
    assert not gate.lets_through
    gaps = read_journal(tmp_path / "journal", begin, time.monotonic_ns())
    times = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    admitted = [(int(a), int(b)) for a, b, chance in times if float(chance)]
    assert len(admitted) > 5
    assert len(gaps) > 5
    for since, until in admitted:
        assert not [g for g in gaps if g.begin < until and g.end > since]
    assert loop.opened_for < 0.9 * (gaps[-1].end - begin) / 1e9


# On the kernel


@pytest.fixture(scope="module")
def traceable() -> None:
    """Skip with the reason where ftrace cannot record."""
    from critpath.record.ftrace.recorder import missing_requirements  # noqa: PLC0415 - as others

    fatal = [o.what for o in missing_requirements(None) if o.fatal]
    if fatal:
        pytest.skip(f"ftrace cannot record here: {fatal[0]}")


def record(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SUDO_")}
    clean["XDG_CACHE_HOME"] = str(place)
    done = subprocess.run(
        [*CRITPATH, "record", "-o", "a", *arguments],
        cwd=place, env=clean, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


def check(place: Path) -> tuple[dict[str, dict[str, int]], list[dict[str, int]]]:
    """Every execution that was chosen lies in no gap; return kinds, and those that were chosen."""
    manifest = json.loads((place / "a" / "critpath.json").read_text())
    rows = [json.loads(line) for line in (place / "a" / "selected.jsonl").read_text().splitlines()]
    gaps = [json.loads(line) for line in (place / "a" / "gaps.jsonl").read_text().splitlines()]
    assert manifest["overhead"]["chosen_by"] == "programs"
    assert not [r for r in rows for g in gaps if g["begin"] <= r["begin"] < g["end"]]
    return manifest["executions"], rows


@pytest.mark.long
@pytest.mark.usefixtures("traceable")
@pytest.mark.parametrize("way", ["command", "machine"])
def test_a_program_admits_its_executions_by_kind(tmp_path: Path, way: str) -> None:
    """Rare ones have their share; those that were chosen are whole, as the marks say."""
    budget = ("--overhead", "5%", "--execution", "marker")
    program = [sys.executable, "-c", PROGRAM]
    if way == "command":
        seen = int(record_output(tmp_path, [*budget, "--", *program, "5"]))
    else:
        running = subprocess.Popen([*program, "12"], stdout=subprocess.PIPE, text=True)
        time.sleep(0.5)  # it was there before the recorder
        record(tmp_path, *budget, "-a", "--duration", "5")
        seen = int(running.communicate()[0])
    kinds, rows = check(tmp_path)
    total = sum(of["seen"] for of in kinds.values())
    assert total == seen if way == "command" else 0 < total < seen
    common, rare = kinds["common"], kinds["rare"]
    # Of all kinds: what other tests mark meanwhile is recorded with the machine.
    assert sum(of["selected"] for of in kinds.values()) == len(rows) > 20
    assert sum(of["cut"] for of in kinds.values()) <= 0.02 * len(rows) + 1
    # As large a share as of common ones, but for the chance of the few that a slow machine saw.
    share = common["selected"] / common["seen"] * rare["seen"]
    assert rare["selected"] >= share - 2 * math.sqrt(share)
    done = subprocess.run(
        [*CRITPATH, "extract", "a", "-o", "paths.parquet", "--execution", "marker"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "chosen by chance" in done.stderr
    assert all(0 < row["chance"] <= 1 for row in rows)


@pytest.mark.long
@pytest.mark.usefixtures("traceable")
@pytest.mark.parametrize("moment", range(40))
def test_a_recorder_that_is_killed_at_any_moment_leaves_nothing(
    tmp_path: Path, moment: int
) -> None:
    """While programs open and close: a recording that can be read, and none of its instances."""
    chance = random.Random(moment)  # noqa: S311 - a moment
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, "30"], start_new_session=True)
    recorder = subprocess.Popen(
        [*CRITPATH, "record", "--overhead", "5%", "-a", "--duration", "60", "-o", "k"],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert recorder.stderr is not None
        for line in recorder.stderr:
            if chance.random() < 0.2 or "recording for" in line:
                break
        time.sleep(chance.uniform(0, 2.5))
        recorder.kill()
        recorder.wait()
        recorder.stderr.close()
    finally:
        os.killpg(program.pid, 9)
        program.wait()
    time.sleep(0.5)
    done = subprocess.run(
        [*CRITPATH, "doctor", "--clean"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    mine = [
        place
        for top in (INSTANCES, Path(PLACE))
        for place in (top.iterdir() if top.is_dir() else ())
        if f"-{recorder.pid}-" in place.name
    ]
    assert not mine, done.stderr
    if (tmp_path / "k").exists():
        shown = subprocess.run(
            [*CRITPATH, "path", "k", "--execution", "marker"],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        # Of one that is killed as it begins there may be no event at all.
        nothing = ("no execution", "no complete execution", "not one sched_switch event")
        assert shown.returncode == 0 or any(n in shown.stderr for n in nothing), shown.stderr


def record_output(place: Path, arguments: list[str]) -> str:
    return record(place, *arguments).stdout


@pytest.mark.usefixtures("traceable")
def test_without_a_budget_there_is_no_gate(tmp_path: Path) -> None:
    line = "import os; print('CRITPATH_GATE' in os.environ, 'CRITPATH_MARKER' in os.environ)"
    done = record(tmp_path, "--execution", "marker", "--", sys.executable, "-c", line)
    assert done.stdout.split() == ["False", "True"]
