"""Executions that programs mark, chosen by kind: the shared pages, and the loop that holds them."""

from __future__ import annotations

import mmap
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from critpath_marks import gate as layout
from critpath_marks.channels import _move_high
from critpath_marks.gate import Gate, kind_number, open_gate
from critpath_marks.sessions import new_session_name
from critpath_record.budget.admission import Admission
from critpath_record.budget.gaps import Journal
from critpath_record.budget.programs import Programs, SharedGates
from critpath_record.budget.selection import Kinds

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "played"))
from budgeted import Switch, World
from played_time import PlayedTime


@pytest.fixture
def admission(tmp_path: Path) -> Iterator[tuple[Admission, Switch]]:
    gate = Switch(PlayedTime(), "base", tmp_path / "switch")
    made = Admission(new_session_name(), 7, [gate.file])
    made.ask(True)
    yield made, gate
    made.close()
    os.close(gate.file)


def join(admission: Admission) -> Gate:
    """What a program makes of the descriptors that it inherits."""
    chances, counts, told, *switches = (os.dup(file) for file in admission.descriptors)
    return Gate(chances, counts, told, switches)


def test_the_first_opens_and_the_last_tells(admission: tuple[Admission, Switch]) -> None:
    shared, gate = admission
    program = join(shared)
    shared.publish({f"{kind_number('never'):x}": 0.0}, 1.0)
    assert program.enter("never")[0] == 0.0
    assert not gate.records
    assert not shared.look().busy
    first, place, begin = program.enter("kind")
    assert first == 1.0
    assert gate.records
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
    admission: tuple[Admission, Switch],
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


def test_whatever_a_program_writes_is_a_count(admission: tuple[Admission, Switch]) -> None:
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
    admission: tuple[Admission, Switch],
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
    admission: tuple[Admission, Switch], tmp_path: Path
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


def test_what_was_given_up_is_outside_until_others_come(
    admission: tuple[Admission, Switch],
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


# The loop


class Program(World):
    """A program that marks executions, and a loop that holds a budget by choosing among them."""

    def __init__(
        self, patch: pytest.MonkeyPatch, place: Path, target: float, longest: float = 0.0
    ) -> None:
        switches: list[Switch] = []

        def make_gate(time: PlayedTime, name: str) -> Switch:
            switches.append(Switch(time, name, place / name))
            return switches[-1]

        def make(journal: Journal, cpus: range) -> tuple[SharedGates, Programs]:
            self.admission = Admission(new_session_name(), 3, [gate.file for gate in switches])
            gates = SharedGates(switches, journal, cpus, self.admission)
            kinds = Kinds(self.control.budget.share, 3)
            return gates, Programs(gates, self.admission, kinds, longest)

        super().__init__(patch, place, target, make_gate=make_gate, make=make)
        patch.setattr(layout, "monotonic_ns", self.time.monotonic_ns)
        self.program = join(self.admission)
        self.program._draw = random.Random(7).random  # noqa: S311 - the same in every process
        self.rows: list[tuple[str, int, int, float]] = []

    def execute(self, kind: str, seconds: float, rate: float = 0.0) -> bool:
        """Let the program execute something that makes so many events a second."""
        chance, place, begin = self.program.enter(kind)
        before, self.rate = self.rate, lambda _: rate
        self.time.pass_time(seconds)
        self.rows.append((kind, begin, self.time.look(), chance))
        self.program.leave(place, begin, admitted=chance > 0)
        self.rate = before
        self.time.settle()
        return chance > 0

    @property
    def admitted(self) -> list[tuple[str, int, int, float]]:
        return [row for row in self.rows if row[3] > 0]

    def end(self) -> None:
        super().end()
        self.program.close()
        self.admission.close()
        for gate in self.gates:
            os.close(gate.file)


@pytest.fixture
def make_programs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[..., Program]]:
    made: list[Program] = []

    def make(target: float, longest: float = 0.0) -> Program:
        made.append(Program(monkeypatch, tmp_path, target, longest))
        return made[-1]

    yield make
    for world in made:
        world.end()


def check_gaps(world: Program) -> None:
    """Every execution that was admitted lies in no gap."""
    rows = world.gaps()
    for _, since, until, _ in world.admitted:
        assert not [g for g in rows if g.begin < until and g.end > since]


def test_a_loop_notes_what_programs_open_and_closes_behind_them(
    make_programs: Callable[..., Program],
) -> None:
    world = make_programs(0.5)
    for _ in range(60):
        world.execute("kind", 0.003, 1e6)
        world.time.pass_time(0.03)
    world.loop.stop()
    assert not world.gates[0].records
    check_gaps(world)
    assert len(world.admitted) > 5
    assert len(world.gaps()) > 5
    assert world.policy.chosen
    assert world.policy.claimed == 60
    assert world.loop.gates.open_seconds() < 0.5 * 60 * 0.033
    assert world.program.enter("kind")[0] == 0.0  # nothing is admitted any more


def test_kinds_have_fair_shares_and_the_budget_is_held(
    make_programs: Callable[..., Program],
) -> None:
    """One in fifty executions costs ten times as much: nearly all of these are recorded."""
    world = make_programs(0.05)
    chance = random.Random(5)  # noqa: S311 - drawn
    for _ in range(2500):
        rare = chance.random() < 0.02
        world.execute("rare" if rare else "common", 0.01 if rare else 0.002, 2e6)
        world.rate = lambda _: 1000.0  # it works, and nothing is recorded of that
        world.time.pass_time(0.004)
    world.loop.stop()
    check_gaps(world)
    share = {
        kind: sum(row[0] == kind for row in world.admitted) / sum(r[0] == kind for r in world.rows)
        for kind in ("rare", "common")
    }
    assert share["common"] > 0.01
    assert share["rare"] > 5 * share["common"]
    assert world.overhead <= 1.1 * 0.05
    assert world.control.counted() <= 1.1 * 0.05
    assert world.control.counted() >= 0.6 * 0.05
    assert world.policy.claimed == len(world.rows)


def test_who_stays_inside_for_too_long_is_given_up(make_programs: Callable[..., Program]) -> None:
    world = make_programs(0.05, longest=2.0)
    world.execute("kind", 0.01)
    while not world.execute("kind", 0.01):
        world.time.pass_time(0.05)
    _, place, begin = world.program.enter("kind")
    while not world.gates[0].records:
        world.program.leave(place, begin, admitted=False)
        world.time.pass_time(0.05)
        _, place, begin = world.program.enter("kind")
    world.time.pass_time(1.9)
    assert world.gates[0].records
    world.time.pass_time(0.5)
    assert not world.gates[0].records
    world.program.leave(place, begin, admitted=True)
    world.time.pass_time(0.5)
    assert not world.gates[0].records


def test_who_opens_and_does_not_count_records_nothing_that_is_believed(
    make_programs: Callable[..., Program],
) -> None:
    world = make_programs(0.05)
    world.execute("kind", 0.003, 1e6)
    world.time.pass_time(1)
    assert not world.gates[0].records
    before = len(world.gaps())
    begin = world.time.look()
    os.pwrite(world.gates[0].file, b"1", 0)
    world.rate = lambda _: 1e5
    world.time.pass_time(0.5)
    assert not world.gates[0].records
    end = world.time.look()
    world.loop.stop()
    rows = world.gaps()
    assert len(rows) > before
    # Whatever was recorded then lies in gaps that follow each other without a space.
    covered = begin
    for gap in rows:
        if gap.begin <= covered:
            covered = max(covered, gap.end)
    assert covered >= end


def test_windows_in_time_are_back_when_no_program_marks_any_more(
    make_programs: Callable[..., Program],
) -> None:
    world = make_programs(0.05)
    world.rate = lambda _: 100.0
    world.time.pass_time(1)
    assert world.gates[0].records
    assert not world.policy.chosen
    for _ in range(3):
        world.execute("kind", 0.003)
        world.time.pass_time(0.3)
    assert world.policy.chosen
    assert not world.gates[0].records
    world.time.pass_time(12)
    assert world.gates[0].records
    check_gaps(world)


def test_who_comes_while_it_closes_keeps_it_open(
    make_programs: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who enters just then is recorded to its end: what is not is a moment, and a gap."""
    world = make_programs(0.5)
    gate = world.gates[0]
    came: list[tuple[float, int, int]] = []
    close = gate.close

    def close_and_be_entered() -> None:
        close()
        if not came and world.program.enter("other")[0]:
            came.append(world.program.enter("other"))
            world.program.leave(*came[0][1:], admitted=True)  # the first is inside

    monkeypatch.setattr(gate, "close", close_and_be_entered)
    while not came:
        world.execute("kind", 0.003, 1e5)
        world.time.pass_time(0.05)
    _, place, begin = came[0]
    assert gate.records
    world.time.pass_time(0.01)
    assert gate.records
    end = world.time.look()
    world.program.leave(place, begin, admitted=True)
    world.time.pass_time(0.5)
    assert not gate.records
    world.loop.stop()
    inside = [g for g in world.gaps() if g.begin < end and g.end > begin - 2000]
    assert len(inside) == 1
    assert inside[0].end - inside[0].begin < 10_000
