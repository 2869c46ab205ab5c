"""A machine with LTTng on it, played in this process."""

from __future__ import annotations

import os

import pytest

from tests.played import lttng, programs
from tests.played.processes import Clock


@pytest.fixture
def machine(tmp_path, monkeypatch):
    directory = tmp_path / "machine"
    commands = directory / "bin"
    commands.mkdir(parents=True)
    for name in ("lttng", "lttng-sessiond"):
        (commands / name).touch(mode=0o755)  # to be found; nobody runs it
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    played = lttng.Machine(directory)
    lttng.play(played, monkeypatch.setattr, programs, Clock())
    return played
