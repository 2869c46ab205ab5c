"""What is recorded under a budget, and whole flights, in played time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "played"))
from budgeted import World
from flown import Flown


@pytest.fixture
def make_world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Return a function that makes a `World`; its loop is ended in the end."""
    made: list[World] = []

    def make(*values: Any, **more: Any) -> World:
        made.append(World(monkeypatch, tmp_path, *values, **more))
        return made[-1]

    yield make
    for world in made:
        world.end()


@pytest.fixture
def fly(
    played: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[..., Flown]]:
    made: list[Flown] = []

    def begin(*when: str, **more: Any) -> Flown:
        made.append(Flown(monkeypatch, played, tmp_path / "flight", *when, **more))
        return made[-1]

    yield begin
    for one in made:
        one.end()
    assert played.instances == []
