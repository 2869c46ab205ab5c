"""A budget through LTTng, against a played LTTng; the real one is in tests/guest."""

from __future__ import annotations

import json
import os
import struct
import threading
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree as ET

import pytest

from critpath.errors import CritpathError
from critpath_record.budget import gaps as gaps_module
from critpath_record.budget import gates as gates_module
from critpath_record.budget import loop as loop_module
from critpath_record.budget import policies as policies_module
from critpath_record.budget import recording as budget_module
from critpath_record.budget.control import Budget
from critpath_record.budget.recording import BudgetRecording
from critpath_record.lttng import gate as gate_module
from critpath_record.lttng import recorder as recorder_module
from critpath_record.lttng.daemon import find_leftovers
from critpath_record.lttng.gate import SessionGate, Tracker, attach, find_daemons
from critpath_record.lttng.recorder import finish_killed, open_recorder
from critpath_record.recorder import RecorderSettings
from tests.played.names import dead_name
from tests.played.processes import Clock
from tests.pure.record.lttng.test_recorder import unfinished

EVENTS = ["sched_switch", "sched_waking", "sched_process_fork", "lttng_logger"]


class PlayedTracker:
    """Notes what is followed; refuses once `refuses`."""

    refuses = False
    index: Path | None = None  # to which every closing adds 100,000 events

    def __init__(self, session: str) -> None:
        self.session, self.followed = session, []

    def follow(self, *, every: bool) -> None:
        if self.refuses:
            raise CritpathError("the daemon refuses", "start it again")
        self.followed.append(every)
        if self.index is not None and not every:
            with self.index.open("ab") as stream:
                stream.write(entries(100_000 * 256))

    def close(self) -> None:
        pass


class AlwaysBusy:
    """In place of ``/proc/stat``: every cpu was busy since the last look."""

    def __init__(self, cpus) -> None:
        self.cpus = len(cpus)

    def passed(self) -> list[float]:
        return [0.05] * self.cpus

    def close(self) -> None:
        pass


@pytest.fixture
def played(machine, monkeypatch):
    machine.set(events=EVENTS)
    machine.start_foreign_daemon()
    trackers = []

    class Tracked(PlayedTracker):
        def __init__(self, session: str) -> None:
            super().__init__(session)
            trackers.append(self)

    monkeypatch.setattr(recorder_module, "Tracker", Tracked)
    monkeypatch.setattr(recorder_module, "find_daemons", list)
    return trackers


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Time of its own for all that a budget of runs does."""
    made = Clock()
    for module in (
        gate_module,
        recorder_module,
        gaps_module,
        budget_module,
        loop_module,
        gates_module,
        policies_module,
    ):
        monkeypatch.setattr(module, "time", made)
    monkeypatch.setattr(loop_module, "BusyTimes", AlwaysBusy)
    monkeypatch.setattr(budget_module, "count_switches", lambda: 0)
    # Which runs are recorded is a coin.
    monkeypatch.setattr(budget_module.secrets, "randbits", lambda _bits: 1)
    return made


@pytest.fixture
def settings(tmp_path):
    def make(**more):
        directory = tmp_path / "recording"
        directory.mkdir(exist_ok=True)
        budget = Budget(0.05, 1.0, calibrate="off")
        return RecorderSettings("critpath-1-2-3-4", directory, budget=budget, runs=True, **more)

    return make


def run_until_recorded(recorder):
    while not recorder.begin_run("true", limited=True):
        recorder.end_run("true", 50_000_000)


def test_what_a_budget_closes_is_a_session_of_its_own(machine, played, settings):
    asked = settings()
    recorder = open_recorder(asked)
    recorder.open()
    own, other = machine.sessions()
    assert asked.session in {own, other}
    [tracker] = played
    assert tracker.session != asked.session
    assert tracker.followed[0] is False  # before it is started
    loaded = ET.fromstring(machine.loaded())  # noqa: S314 - our own
    assert loaded.findtext("session/name") == tracker.session
    assert {e.text for e in loaded.iter("name")} >= {"sched_switch", "sched_waking"}
    assert not {e.text for e in loaded.iter("name")} & {"sched_process_fork", "lttng_logger"}
    recorder.close()
    recorder.drain(lambda _: None)
    assert machine.sessions() == []


def test_a_run_that_is_recorded_lies_in_no_gap(played, settings, clock):
    asked = settings()
    recorder = open_recorder(asked)
    begin = recorder.open()
    place = asked.directory / "trace" / "base" / "kernel" / "index"
    place.mkdir(parents=True)
    played[0].index = index(place, os.sched_getaffinity(0).pop())
    spans = []
    for number in range(40):
        recorder.begin_run("true", limited=True)
        since = clock.monotonic_ns()
        until = clock.monotonic_ns()
        recorder.end_run("true", 50_000_000)
        recorder.note_run("true", number, since, 1)
        spans.append((since, until))
    end = recorder.close()
    recorded = recorder.drain(lambda _: None)
    recorded.release()
    gaps = [json.loads(x) for x in (asked.directory / "gaps.jsonl").read_text().splitlines()]
    chosen = [json.loads(x) for x in (asked.directory / "selected.jsonl").read_text().splitlines()]
    assert 0 < len(chosen) < 40  # each costs about 50 ms: of 50 ms at 5 %
    whole = {row["key"] for row in chosen}
    for number, (since, until) in enumerate(spans):
        inside = [g for g in gaps if g["begin"] < until and since < g["end"]]
        assert bool(inside) != (number in whole)
    assert all(begin - 1e9 <= g["begin"] <= g["end"] <= end for g in gaps)
    assert recorded.gaps_file == "gaps.jsonl"
    assert recorded.overhead["executions"]["true"]["seen"] == 40
    assert sorted(p.name for p in asked.directory.iterdir()) == [
        *("gaps.jsonl", "selected.jsonl", "trace")
    ]


def test_a_daemon_that_refuses_ends_the_recording_as_closed(played, settings):
    asked = settings()
    recorder = open_recorder(asked)
    recorder.open()
    [tracker] = played
    tracker.refuses = True
    with pytest.raises(CritpathError, match="refuses"):
        run_until_recorded(recorder)
    end = recorder.close()
    recorder.drain(lambda _: None)
    gaps = [json.loads(x) for x in (asked.directory / "gaps.jsonl").read_text().splitlines()]
    assert gaps[-1]["end"] == end


def test_what_a_killed_recorder_had_closed_is_a_gap_to_the_end(machine, settings, clock):
    dead = dead_name()
    machine.start_foreign_daemon()
    directory = settings().directory
    unfinished(machine, directory, dead)
    machine.add_session(dead[:-8] + "00000000")  # the other one, of the same owner
    (directory / "raw").mkdir()
    now = clock.monotonic_ns()
    journal = (directory / "raw" / "gaps-journal.jsonl").open("w")
    print(json.dumps({"layer": "base", "closing": now, "why": "budget"}), file=journal)
    journal.close()
    for leftover in find_leftovers():
        leftover.remove()
    assert machine.sessions() == []
    recorded = finish_killed(directory, lambda _: None)
    [gap] = [json.loads(x) for x in (directory / "gaps.jsonl").read_text().splitlines()]
    assert gap["begin"] == now
    assert gap["end"] == recorded.end > now
    recorded.release()
    assert not (directory / "raw").exists()


def test_killed_while_it_calibrates_a_recorder_has_recorded_nothing(machine, settings):
    machine.start_foreign_daemon()
    directory = settings().directory
    unfinished(machine, directory, dead_name())
    (directory / "raw").mkdir()
    recorded = finish_killed(directory, lambda _: None)
    [gap] = [json.loads(x) for x in (directory / "gaps.jsonl").read_text().splitlines()]
    assert (gap["begin"], gap["end"]) == (1, recorded.end)
    recorded.release()
    assert not (directory / "raw").exists()


def entries(*bits: int) -> bytes:
    """Packets of an index, as LTTng writes them."""
    rows = enumerate(bits)
    return b"".join(struct.pack(">8Q", 4096 * i, 4096 * 8, n, 0, 0, 0, 0, i) for i, n in rows)


def index(place: Path, cpu: int, *bits: int) -> Path:
    file = place / f"kernel_{cpu}.idx"
    file.write_bytes(struct.pack(">4I", 0xC1F1DCC1, 1, 1, 64) + entries(*bits))
    return file


def test_what_was_recorded_is_counted_by_its_bytes(tmp_path):
    file = index(tmp_path, 0, 256, 2560)
    gate = SessionGate("s", tmp_path, "kernel", PlayedTracker("s"), list)
    assert gate.counts([0, 1]) == [11, 0]
    with file.open("ab") as stream:
        stream.write(entries(256)[:40])
    assert gate.counts([0, 1]) == [11, 0]  # half a line
    with file.open("ab") as stream:
        stream.write(entries(256)[40:])
    index(tmp_path, 1, 512)
    assert gate.counts([0, 1]) == [12, 2]
    gate.remove()


def test_after_closing_a_count_waits_for_what_is_in_the_buffers(tmp_path, clock):
    gate = SessionGate("s", tmp_path, "kernel", PlayedTracker("s"), list)
    gate.open()
    begin = clock.now
    gate.counts([0])
    assert clock.now == begin
    gate.close()
    gate.counts([0])
    assert clock.now - begin >= gate_module._LAG
    gate.counts([0])
    assert clock.now - begin < 2 * gate_module._LAG


@pytest.mark.parametrize("data", [b"", b"x" * 80, struct.pack(">4I", 0xC1F1DCC1, 1, 1, 0)])
def test_another_file_than_an_index_counts_nothing(tmp_path, data):
    (tmp_path / "kernel_0.idx").write_bytes(data)
    gate = SessionGate("s", tmp_path, "kernel", PlayedTracker("s"), list)
    assert gate.counts([0]) == [0]


def test_a_horizon_is_as_long_as_opening_makes_sensible(tmp_path):
    (tmp_path / "raw").mkdir()
    asked = Budget(0.05, 1.0, calibrate="off")
    budget = BudgetRecording("s", asked, tmp_path / "raw", runs=False)
    gate = SessionGate("s", tmp_path, "kernel", PlayedTracker("s"), list)
    attach(budget, gate, tmp_path / "raw")
    assert budget.budget.horizon >= 4
    assert any("is held over" in warning for warning in budget.warnings)
    budget.remove()


def test_without_the_library_that_is_said(monkeypatch):
    monkeypatch.setattr(gate_module, "_LIBRARY", "libno-such-thing.so.0")
    with pytest.raises(CritpathError, match=r"LTTng 2\.12 or later"):
        Tracker("s")


def test_daemons_are_found_by_name():
    assert find_daemons([b"no-such-daemon"]) == []


def test_a_daemon_that_never_answers_is_an_error(monkeypatch):
    over = threading.Event()

    class Library:
        lttng_process_attr_tracker_handle_destroy = mock.MagicMock()
        lttng_session_get_tracker_handle = mock.MagicMock(return_value=10)
        lttng_process_attr_tracker_handle_set_tracking_policy = mock.MagicMock(
            side_effect=lambda *_: over.wait()
        )

    monkeypatch.setattr(gate_module.ctypes, "CDLL", lambda _: Library)
    monkeypatch.setattr(gate_module, "_ANSWERED", 0.05)
    tracker = Tracker("critpath-1")
    try:
        with pytest.raises(CritpathError, match="does not open or close"):
            tracker.follow(every=True)
    finally:
        over.set()
