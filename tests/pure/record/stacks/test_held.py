"""Stacks that a flight recorder holds become those of a dump."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.read.stacks import EVERY, open_stacks
from critpath_record.stacks import held
from critpath_record.stacks.held import HeldStacks, finish
from critpath_record.stacks.unwind import FORMAT, ROW, SAMPLE

PARTS = st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-1, 2)), max_size=6))


def document(names: list[str]) -> dict[str, Any]:
    frames = [[name, f"{name}.py", 3, "python", False] for name in names]
    stacks = [[number] for number in range(len(names))]
    return {"format": FORMAT, "frames": frames, "stacks": stacks, "cut": [], "lost": 1, "period": 5}


class Samples:
    """A sampler that holds what it is told."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts

    def hold(self) -> list[Any]:
        return self.parts


def save(place: Path, parts: list[Any]) -> None:
    made = HeldStacks((), 0, ())
    made._samples = Samples(parts)
    made.save(place, 0)


@given(PARTS)
def test_what_was_sampled_before_and_since_is_one(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[tuple[str, int]]]
) -> None:
    """Each sample has the function that it had, whichever list that was in."""
    place = tmp_path_factory.mktemp("dump")
    packed, expected = [], []
    for number, part in enumerate(parts):
        names = [f"{name}{number}" for name, _ in part]
        rows = b""
        for at, (_, shift) in enumerate(part):
            stack = min(at + shift, len(names) - 1) if shift >= 0 else -1
            rows += ROW.pack(10 * number + at, 7, 0, stack, SAMPLE)
            expected.append(names[stack] if stack >= 0 else "")
        packed.append((rows, document(names)))
    save(place, packed)
    facts, warnings = finish(place)
    assert warnings == ()
    assert {file.suffix for file in (place / "stacks").iterdir()} <= {".json", ".bin"}
    if not parts:
        assert facts == {}
        return
    assert (facts["samples"]["samples"], facts["samples"]["lost"]) == (len(expected), len(parts))
    found = open_stacks(place, EVERY[0])
    assert found is not None
    names = [found.distinct[n][0].function if n >= 0 else "" for n in found.stack.tolist()]
    assert names == expected
    assert (found.period, found.complete) == (5, False)


def test_a_dump_of_a_recorder_that_holds_none_has_none(tmp_path: Path) -> None:
    assert finish(tmp_path) == ({}, ())


def test_without_perf_no_memory_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "trusted_program", lambda _: None)
    monkeypatch.setattr(held, "add_maps", lambda _: None)
    place = tmp_path / "stacks"
    place.mkdir()
    (place / "perf.data").write_bytes(b"memory")
    (place / "held.json").write_text(json.dumps({"own": 1, "wakes": "92,5", "python": 0}))
    facts, warnings = finish(tmp_path)
    assert facts == {}
    assert "there is no perf here" in warnings[0]
    assert list(place.iterdir()) == []


class Played:
    """In place of what takes stacks: a gate, and a list that is held."""

    name, state, event_ns, closed_ns = "stacks", "soft", 3000.0, 0.0
    is_open, opened_for, windows = False, 0.0, 0

    def __init__(self, _sources: object, memory: int, cpus: list[int]) -> None:
        self.memory, self.cpus, self.gates = memory, cpus, [self]
        self.steps: list[str] = []
        self.open, self.close, self.end = (lambda: None,) * 3
        self.turn_off = self.pause = self.close
        self.resume: Callable[[], list[Any]] = lambda: [self]

    def adopt(self) -> None: ...

    def counts(self, cpus: list[int]) -> list[int]:
        return [0 for _ in cpus]

    def cpu_time(self) -> float:
        return 0.0

    def save(self, place: Path, since: int) -> None:  # noqa: ARG002
        save(place, [(ROW.pack(5, 7, 0, 0, SAMPLE), document(["flush"]))])


def test_a_flight_saves_them_and_says_when_there_are_none(
    fly: Callable[..., Any], critpath: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = sys.modules["critpath_record.flight.service"]
    monkeypatch.setattr(service, "HeldStacks", Played)
    flown = fly(overhead=10.0, stacks=("samples",))
    assert flown.flight._stacks.memory == (8 << 20) // 4
    flown.switch()
    flown.time.pass_time(0.5)
    done = critpath("dump", flown.place)
    assert done.returncode == 0, done.stderr
    made = Path(done.stdout.strip())
    manifest = json.loads((made / "critpath.json").read_text())
    assert manifest["recorder"]["samples"]["samples"] == 1
    assert {*manifest["layers"]} == {"base", "stacks"}
    assert {file.name for file in (made / "stacks").iterdir()} == {"python.json", "python.bin"}
    rows = [json.loads(line) for line in (made / "gaps.jsonl").read_text().splitlines()]
    assert {row["layer"] for row in rows} <= {"base", "stacks"}
