"""The loop that opens and closes the gates of a budget, in simulated time."""

from __future__ import annotations

import itertools
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from critpath.schema.parameters.budget import CONTROL
from critpath_record.budget import loop, natural
from critpath_record.budget.account import SLOTS
from critpath_record.budget.loop import BusyTimes

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "played"))
from budgeted import NS, VOLUME, World
from played_time import play_time


@pytest.mark.parametrize("names", [["base"], ["base", "network"]])
@pytest.mark.parametrize("target", [0.03, 0.1])
def test_a_budget_is_held_by_windows_and_each_time_between_is_a_gap(
    make_world: Callable[..., World], target: float, names: list[str]
) -> None:
    world = make_world(target, names=names)
    world.rate = lambda _: 2e6
    world.time.pass_time(6)
    world.loop.stop()
    assert world.overhead == pytest.approx(target, rel=0.1)
    assert world.control.counted() == pytest.approx(target, rel=0.1)
    for gate in world.gates:
        rows = world.gaps(gate.name)
        assert rows[0].why == "start"
        assert {gap.why for gap in rows[1:]} == {"budget"}
        assert not gate.is_open
        edges = [world.begin, *(t for t, _ in gate.steps), world.time.clock.now]
        # Each opening and each closing lies between the edges that are noted of it.
        opened = [t for t, on in gate.steps if on]
        closed = [t for t, on in gate.steps if not on]
        assert all(g.opening < t < g.end for g, t in zip(rows, opened, strict=False))
        assert all(g.begin < t < g.closed for g, t in zip(rows[1:], closed, strict=True))
        assert edges == sorted(edges)
        assert len(rows) == len(opened) + 1
        assert 10 < len(opened) < 500
    windows = [(t, on) for t, on in world.gates[0].steps]
    pairs = zip(windows[::2], windows[1::2], strict=True)
    assert world.loop.gates.windows == len(windows) // 2
    open_for = sum(end - begin for (begin, _), (end, _) in pairs) / 1e9
    assert world.loop.gates.open_seconds() == pytest.approx(open_for, abs=1e-3)
    assert world.loop.late == 0


def test_what_needs_another_layer_is_open_only_with_it(make_world: Callable[..., World]) -> None:
    world = make_world(0.05, names=["base", "network"])
    world.rate = lambda _: 4e5
    seen = set()
    world.more = lambda _: seen.add(tuple(gate.is_open for gate in world.gates))
    world.time.pass_time(6)
    assert seen <= {(False, False), (True, False), (True, True)}
    assert (True, True) in seen


def test_a_quiet_machine_is_recorded_all_the_time_and_seldom_looked_at(
    make_world: Callable[..., World],
) -> None:
    world = make_world(0.05)
    world.rate = lambda _: 100.0
    world.time.pass_time(2)
    windows, polls = world.loop.gates.windows, world.loop.polls
    world.policy.rest = 1.0  # a look at the counts may be enough
    world.time.pass_time(10)
    assert world.loop.gates.windows == windows
    assert world.gates[0].is_open
    assert world.loop.polls - polls <= 25
    assert world.loop.gates.open_seconds() > 10


def test_an_idle_machine_is_polled_seldom_and_a_busy_one_twice_a_slot(
    make_world: Callable[..., World],
) -> None:
    world = make_world(0.05)
    world.time.pass_time(4)
    assert world.gates[0].is_open
    assert not world.loop.may_rest_now()  # whose policy does not rest looks as the law says
    world.policy.rest = world.control.budget.horizon / SLOTS
    assert world.loop.may_rest_now()

    def count_polls(rate: float) -> int:
        world.rate = lambda _: rate  # none: 3 % busy
        world.time.pass_time(4)
        before = world.loop.polls
        world.time.pass_time(10)
        assert world.gates[0].is_open
        return world.loop.polls - before

    assert count_polls(0) <= 25
    assert count_polls(100.0) >= 150
    assert count_polls(0) <= 25
    # What is spent then is seen as soon as ever.
    world.rate = lambda _: 2e6
    world.time.pass_time(0.2)
    assert not world.gates[0].is_open


def test_what_comes_late_is_counted(make_world: Callable[..., World]) -> None:
    world = make_world()
    world.time.pass_time(1)
    assert world.loop.late == 0
    world.time.settle()
    world.time.clock.now += 500_000_000  # nobody ran
    world.time.pass_time(0.3)
    assert world.loop.late == 1


def test_what_is_held_is_open_from_when_it_is_asked_for_until_it_is_closed(
    make_world: Callable[..., World],
) -> None:
    world = make_world(held=True)
    world.rate = lambda _: 1e4
    world.time.pass_time(1)
    assert not world.gates[0].is_open
    begin = world.time.clock.now
    world.policy.hold(True)
    world.time.pass_time(5)
    assert world.gates[0].is_open
    end = world.time.clock.now
    world.policy.hold(False)
    world.time.pass_time(1)
    assert not world.policy.given_up
    assert world.loop.gates.open_seconds() == pytest.approx(5, abs=1e-3)
    assert not [g for g in world.gaps() if g.begin < end and g.opening > begin + 1000]
    assert world.control.tally.parts["events"] == pytest.approx(5e4 * NS * 1e-9, rel=0.01)


def test_what_is_held_for_too_long_is_given_up(make_world: Callable[..., World]) -> None:
    world = make_world(held=True)
    world.policy.hold(True, 2.0)
    world.time.pass_time(1.9)
    assert world.gates[0].is_open
    world.time.pass_time(1)
    assert not world.gates[0].is_open
    assert world.policy.given_up
    world.policy.hold(False)
    assert world.policy.given_up  # whoever held it asks now
    assert 2.0 <= world.loop.gates.open_seconds() < 2.2
    world.policy.hold(True)
    assert not world.policy.given_up


def test_all_is_closed_meanwhile_for_another_reason(make_world: Callable[..., World]) -> None:
    world = make_world(0.05)
    world.rate = lambda _: 100.0
    world.time.pass_time(2)
    with world.loop.closed("dump"):
        assert not world.gates[0].is_open
        world.time.clock.now += 10_000_000
    assert world.gates[0].is_open
    assert [gap.why for gap in world.gaps()] == ["start", "dump"]
    with world.loop.waiting():
        polls = world.loop.polls
        world.time.clock.now += 10_000_000
    assert world.loop.polls == polls


def test_whatever_a_gate_does_the_loop_ends_and_says_why(make_world: Callable[..., World]) -> None:
    world = make_world(0.05)
    world.rate = lambda _: 2e6
    world.time.pass_time(1)
    world.gates[0].refuses = True
    world.time.pass_time(1)
    assert world.loop.failure is not None
    assert world.loop.failure.what == "the kernel refuses"
    world.loop.stop()
    world.loop.stop()
    assert world.loop.failure.what == "the kernel refuses"


def test_what_others_spend_is_charged(make_world: Callable[..., World]) -> None:
    world = make_world(0.05)
    world.rate = lambda _: 1e4
    spent = [0.0]
    world.loop.charge_beside("functions", lambda: spent[0])
    for _ in range(10):
        spent[0] += 0.002
        world.time.pass_time(0.1)
    world.loop.look(0.5)
    assert world.control.tally.parts["functions"] == pytest.approx(0.02)
    assert world.control.tally.command == 0.5
    assert world.loop.gates.count()["base"][0] == 0


def test_moved_pages_are_looked_at_at_once(make_world: Callable[..., World]) -> None:
    world = make_world(0.05)
    world.rate = lambda now: 2e6 if now > 2 else 100.0
    world.time.pass_time(2)
    most = world.control.room()[1]
    world.time.pass_time(world.control.longest)
    assert not world.gates[0].is_open
    assert most < world.cost < most + 3 * VOLUME * NS * 1e-9


class Threads:
    """Threads that have so many time slices a second, each dearer while it is recorded."""

    def __init__(self) -> None:
        self.chance = random.Random(3)  # noqa: S311 - drawn
        self.ran, self.slices, self.closed = 0.0, 0.0, False

    def pass_time(self, seconds: float, more: float) -> None:
        self.slices += 10_000 * seconds / more * self.chance.uniform(0.9, 1.1)
        self.ran += seconds

    def scan(self) -> None: ...

    def close(self) -> None:
        self.closed = True

    def read(self) -> dict[str, tuple[float, int]]:
        return {"one": (self.ran, int(self.slices))}


def test_time_before_openings_is_compared_with_that_after_and_corrects(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events truly cost twice what they are taken for: each opening tells."""
    threads = Threads()
    monkeypatch.setattr(natural, "Threads", lambda: threads)
    world = make_world(0.05, compares=True, kappa=CONTROL.kappa)
    world.rate = lambda _: 3e5
    share = 3e5 * NS * 1e-9

    def pass_time(seconds: float) -> None:
        threads.pass_time(seconds, 1 + 2 * share * world.gates[0].is_open)

    world.more = pass_time
    world.time.pass_time(40)
    assert len(world.policy.compared.pairs) > 40
    ratio, low, high = world.policy.compared.ratio() or (0, 0, 0)
    assert low < ratio < high
    assert low < 2.2
    assert high > 1.8
    assert 1.4 < world.control.kappa < 2.3
    world.loop.stop()
    assert threads.closed


def test_busy_times_are_those_of_the_kernels_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In ticks, of cpus that are asked for; idle, waiting and stolen time is nobody's."""
    time = play_time(monkeypatch, loop)
    time.loops = 0
    table = tmp_path / "stat"

    def write(*fields: int) -> None:
        rows = "".join(f"cpu{n} {' '.join(map(str, fields))}\n" for n in range(3))
        table.write_text(f"cpu  1 1 1 1\n{rows}intr 5\n")

    write(100, 10, 50, 900, 7, 3, 4, 99, 0, 0)
    times = BusyTimes([0, 2], table)
    write(110, 11, 52, 990, 8, 4, 5, 999, 0, 0)
    assert times.passed() == [0.0, 0.0]  # within a tick there is nothing new
    time.clock.now += 20_000_000
    tick = os.sysconf("SC_CLK_TCK")
    assert times.passed() == pytest.approx([15 / tick] * 2)
    time.clock.now += 20_000_000
    write(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)  # a cpu that was taken away and came again
    assert times.passed() == [0.0, 0.0]
    table.write_text("cpu 1\n")
    time.clock.now += 20_000_000
    assert times.passed() == [0.0, 0.0]
    times.close()


def test_gaps_of_a_layer_never_overlap(make_world: Callable[..., World]) -> None:
    world = make_world(0.02, names=["base", "network"])
    world.rate = lambda now: 2e6 if now % 0.4 < 0.13 else 0.0
    world.time.pass_time(6)
    world.loop.stop()
    assert len(world.gaps("base")) > 3
    for name in world.names:
        rows = world.gaps(name)
        assert all(a.end <= b.begin for a, b in itertools.pairwise(rows))
        assert all(g.begin <= g.closed <= g.opening <= g.end for g in rows)
