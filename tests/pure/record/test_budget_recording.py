"""Whole recordings under a budget, of a played kernel in played time."""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from critpath_record.budget import admission, gaps, gates, loop, natural, policies, programs
from critpath_record.budget import recording as module
from critpath_record.budget.control import Budget
from critpath_record.ftrace import drain
from critpath_record.ftrace.recorder import finish_killed
from critpath_record.source import Taken

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "played"))
from budgeted import Busy
from played_time import play_time


class Recorded:
    """A recorder under a budget, and the kernel and the time that are played to it."""

    def __init__(
        self, patch: pytest.MonkeyPatch, kernel: Any, place: Path, overhead: float, **more: Any
    ) -> None:
        self.kernel, self.place = kernel, place / "rec"
        self.time = play_time(
            patch,
            *(loop, gates, policies, programs, natural, gaps, module),
            clock=kernel.clock,
        )
        self.time.happen = self.happen
        self.time.step = 0.005
        self.busy = Busy(())
        patch.setattr(loop, "BusyTimes", self._make_busy)
        # What threads do that move pages takes time of this machine, not of the played one.
        patch.setattr(drain.Drain, "cpu_time", lambda _: 0.0)
        patch.setattr(module.BudgetRecording, "poke", lambda _: None)
        # No program of this machine finds the gate of a played recording.
        patch.setattr(admission, "PLACE", str(kernel.home / "marks"))
        patch.setattr(module.secrets, "randbits", lambda _: 5)
        self.switches = 0
        patch.setattr(module, "count_switches", lambda: self.switches)
        budget = Budget(overhead, 1.0, calibrate="off")
        values = {"profile": "minimal", "budget": budget} | more
        beside = values.pop("beside", ())
        self.recorder = kernel.open_recorder(self.place, **values)
        self.recorder.open_beside([gate(self) for gate in beside])
        self.begin = self.recorder.open()

    def _make_busy(self, cpus: tuple[int, ...]) -> Busy:
        self.busy = Busy(cpus)
        return self.busy

    def happen(self, seconds: float) -> None:
        if self.busy.times:
            self.busy.times[0] += seconds

    def emit(self, count: int) -> None:
        values = {"prev_comm": b"a", "next_comm": b"b", "next_pid": 7}
        self.switches += count
        self.kernel.emit("sched/sched_switch", 0, times=count, **values)

    def run(self, kind: str, number: int, seconds: float, *, limited: bool = False) -> bool:
        """Run a command, of which so many events are recorded, if any are."""
        taken = self.recorder.begin_run(kind, limited=limited)
        began = self.time.look()
        self.emit(50)
        self.time.pass_time(seconds)
        self.ended = self.time.look()
        self.recorder.end_run(kind, round(seconds * 1e9))
        self.recorder.note_run(kind, number, began, 7)
        self.runs[number] = began, self.ended
        return taken

    runs: dict[int, tuple[int, int]]

    def finish(self) -> Taken:
        self.recorder.close()
        result = self.recorder.drain(lambda _: None)
        assert self.kernel.instances == []
        return result

    def rows(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.place / name).read_text().splitlines()]

    def end(self) -> None:
        self.recorder.abort()
        self.time.close()


@pytest.fixture
def record(
    played: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[..., Recorded]]:
    made: list[Recorded] = []

    def make(overhead: float, **more: Any) -> Recorded:
        made.append(Recorded(monkeypatch, played, tmp_path, overhead, **more))
        made[-1].runs = {}
        return made[-1]

    yield make
    for one in made:
        one.end()


def test_runs_are_recorded_whole_or_not_at_all(record: Callable[..., Recorded]) -> None:
    of = record(0.003, runs=True)
    taken = {n: of.run("job", n, 0.01) for n in range(1, 81)}
    result = of.finish()
    chosen = {row["key"]: row for row in of.rows("selected.jsonl")}
    assert {*chosen} == {n for n, was in taken.items() if was}
    assert 30 <= len(chosen) <= 50
    rows = of.rows("gaps.jsonl")
    for number, (begin, end) in of.runs.items():
        inside = [g for g in rows if g["begin"] < end and g["end"] > begin]
        if number in chosen:
            assert not inside
        else:
            [gap] = inside
            assert gap["begin"] <= begin
            assert end <= gap["end"]
    assert all(0 < row["chance"] <= 1 for row in chosen.values())
    told: Any = result.overhead
    assert told["executions"] == {"job": {"seen": 80, "selected": len(chosen), "cut": 0}}
    assert told["chosen_by"] == "runs"
    assert told["target"] == 0.003
    assert told["counted"] == pytest.approx(0.003, rel=0.3)
    assert told["layers"]["base"]["events"] == 50 * len(chosen)
    assert told["layers"]["base"]["windows"] == len(chosen)
    assert told["compared"]["by"] == "cpu time of runs"
    assert told["felt"]["job"]["recorded"] == len(chosen)
    # All runs took as long.
    assert abs(told["compared"]["overhead"]) < 0.01


def test_a_run_that_lasts_far_longer_than_the_others_is_given_up(
    record: Callable[..., Recorded],
) -> None:
    of = record(5.0, runs=True)
    for number in range(1, 9):
        assert of.run("job", number, 0.01)
    assert of.run("job", 9, 1.0)
    assert of.run("job", 10, 0.01)
    assert of.run("job", 11, 1.0, limited=True)  # the user says how long it may last
    result = of.finish()
    told: Any = result.overhead
    assert {row["key"] for row in of.rows("selected.jsonl")} == {*range(1, 12)} - {9}
    assert told["executions"] == {"job": {"seen": 11, "selected": 10, "cut": 1}}
    begin, end = of.runs[9]
    [cut] = [g for g in of.rows("gaps.jsonl") if begin < g["begin"] < end]
    assert cut["begin"] - begin == pytest.approx(20 * 0.01 * 1e9, rel=0.4)
    assert cut["end"] >= end
    assert any("given up" in text for text in result.warnings)


def test_both_of_two_commands_are_chosen_by_one_coin(record: Callable[..., Recorded]) -> None:
    """Each has the same chance, though one costs more: they are compared with each other."""
    of = record(0.003, runs=True)
    order = random.Random(4)  # noqa: S311 - drawn
    for number in range(1, 61):
        kind = order.choice(("cheap", "dear"))
        of.run(kind, number, 0.01 if kind == "cheap" else 0.012)
    result = of.finish()
    kinds: Any = result.overhead["executions"]
    shares = {kind: row["selected"] / row["seen"] for kind, row in kinds.items()}
    assert abs(shares["cheap"] - shares["dear"]) < 0.25
    assert min(shares.values()) > 0.1


def test_the_machine_is_recorded_by_windows(record: Callable[..., Recorded]) -> None:
    of = record(0.05)
    for _ in range(40):
        of.emit(30)
        of.time.pass_time(0.02)
    assert of.recorder.count_events().events > 0
    result = of.finish()
    rows = of.rows("gaps.jsonl")
    last = of.begin
    for gap in rows:
        assert last <= gap["begin"] <= gap["closed"] <= gap["opening"] <= gap["end"]
        last = gap["end"]
    assert rows[0]["why"] == "start"
    told: Any = result.overhead
    assert (told["chosen_by"], told["command"], told["executions"]) == ("windows", None, {})
    assert told["counted"] < 1.2 * 0.05
    assert told["layers"]["base"]["windows"] >= 1
    assert 0 < told["layers"]["base"]["events"] <= 40 * 30
    assert (result.gaps_file, result.loss) == ("gaps.jsonl", ())
    metadata = (of.place / "trace" / "kernel" / "metadata").read_text()
    assert "critpath_gap_begin" in metadata


class Stacks:
    """What takes stacks, of every tenth event, while it is open."""

    name, state, event_ns, closed_ns = "stacks", "soft", 20_000.0, 0.0
    cpus = (0,)

    def __init__(self, of: Recorded) -> None:
        self.of = of
        self.is_open, self.opened_for, self.windows, self.since, self.taken = False, 0.0, 0, 0.0, 0

    def emit(self, count: int) -> None:
        self.taken += count * self.is_open
        self.of.emit(10 * count)

    def open(self) -> None:
        self.is_open, self.since = True, self.of.time.look() / 1e9
        self.windows += 1

    def close(self) -> None:
        self.opened_for += (self.of.time.look() / 1e9 - self.since) * self.is_open
        self.is_open = False

    end = turn_off = close

    def counts(self, cpus: Sequence[int]) -> list[int]:
        return [self.taken * (cpu == 0) for cpu in cpus]

    def cpu_time(self) -> float:
        return 0.0


def test_stacks_are_taken_as_the_budget_allows_and_it_is_said_when(
    record: Callable[..., Recorded],
) -> None:
    """They cost some times what paths do: these go on while there is no credit for stacks."""
    of = record(0.05, beside=[Stacks])
    [stacks] = of.recorder._beside
    for _ in range(2000):
        stacks.emit(8)
        of.time.pass_time(0.002)
    result = of.finish()
    told: Any = result.overhead
    base, beside = told["layers"]["base"], told["layers"]["stacks"]
    assert told["counted"] < 1.2 * 0.05
    assert told["events_ns"]["stacks"] == 20_000
    assert base["open"] > 2 * beside["open"] > 0
    assert beside["events"] == stacks.taken > 100
    gaps = {
        name: [g for g in of.rows("gaps.jsonl") if g["layer"] == name] for name in told["layers"]
    }
    closed = sum(gap["end"] - gap["begin"] for gap in gaps["stacks"]) / 1e9
    assert closed == pytest.approx(4 - beside["open"], abs=0.2)
    # Nothing is taken of what has no path.
    for gap in gaps["base"]:
        middle = (gap["closed"] + gap["opening"]) // 2
        assert any(one["begin"] <= middle <= one["end"] for one in gaps["stacks"])


def test_programs_find_the_gate_and_without_a_budget_there_is_none(
    record: Callable[..., Recorded], played: Any, tmp_path: Path
) -> None:
    of = record(0.05)
    assert of.recorder.environment()["CRITPATH_GATE"].split(":")[1].count(",") >= 3
    assert len(of.recorder.descriptors()) > 4
    [place] = (of.kernel.home / "marks").iterdir()
    assert place.read_text() == of.recorder.environment()["CRITPATH_GATE"]
    plain = played.open_recorder(tmp_path / "plain", profile="minimal")
    plain.open()
    assert "CRITPATH_GATE" not in plain.environment()
    assert len(plain.descriptors()) == 1
    plain.abort()


@pytest.mark.parametrize("always", [1000, 0])
def test_of_a_recorder_that_was_killed_there_are_gaps(
    record: Callable[..., Recorded], always: int
) -> None:
    """What is on disk at some moment makes a recording: what was not known is a gap."""
    of = record(0.05)
    of.time.pass_time(0.5)
    of.emit(1000)  # several pages of them, and perhaps of what is always recorded
    if always:
        of.kernel.emit("sched/sched_process_exec", 0, times=always, pid=7)
    of.recorder._drain.stop()
    for layer in of.recorder._budget.layers:
        layer.drain.stop()
    found = finish_killed(of.place, lambda _: None)
    assert found is not None
    rows = of.rows("gaps.jsonl")
    assert rows
    assert rows[0]["why"] == "start"
    assert found.end >= of.begin + 0.5e9
    told: Any = found.overhead
    assert told["target"] == 0.05
    assert told["counted"] is None


def test_where_no_run_is_paid_for_it_is_said_what_would_be(record: Callable[..., Recorded]) -> None:
    of = record(0.001, runs=True)
    for number in range(10):
        assert not of.run("job", number, 0.002)
    result = of.finish()
    overhead = result.overhead
    assert overhead["used"] <= 1.1
    assert overhead["worst_horizon"] >= overhead["counted"]
    [said] = [line for line in result.warnings if "none of 10 runs" in line]
    assert re.search(r"one costs some [\d.]+ % of its own time.*-n \d+, or --overhead \d+%", said)
