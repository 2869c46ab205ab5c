"""A machine with LTTng on it, played: programs `lttng` and `lttng-sessiond` that behave as
2.13.9 does in the guest (tests/guest), kept in a directory, and note how they are called.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

PLAYED = Path(__file__).with_name("played.py")


class Machine:
    """The machine's state, as the played programs see it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.set(version="2.13.9", events=["sched_switch", "sched_waking", "lttng_logger"])

    def set(self, **facts: object) -> None:
        (self.directory / "facts.json").write_text(json.dumps({**self.facts(), **facts}))

    def facts(self) -> dict:
        place = self.directory / "facts.json"
        return json.loads(place.read_text()) if place.exists() else {}

    def calls(self) -> list[list[str]]:
        place = self.directory / "calls"
        lines = place.read_text().splitlines() if place.exists() else []
        return [json.loads(line) for line in lines]

    def verbs(self) -> list[str]:
        """What was asked of lttng, in order, less the asking."""
        verbs = [
            next(a for a in call if not a.startswith("-") and a != "xml") for call in self.calls()
        ]
        return [verb for verb in verbs if verb not in {"list", "version"}]

    def add_session(self, name: str, path: str = "/elsewhere") -> None:
        place = self.directory / "sessions" / name
        place.mkdir(parents=True)
        (place / "path").write_text(path)

    def sessions(self) -> list[str]:
        place = self.directory / "sessions"
        return sorted(p.name for p in place.iterdir()) if place.exists() else []

    def daemon_runs(self) -> int:
        """Return the pid of the session daemon, 0 without one."""
        try:
            pid = int((self.directory / "daemon").read_text())
            os.kill(pid, 0)
        except (OSError, ValueError):
            return 0
        return pid

    def start_foreign_daemon(self) -> None:
        """One that systemd started."""
        (self.directory / "daemon").write_text(str(os.getpid()))

    def loaded(self) -> str:
        """Return the session file that was loaded last."""
        return (self.directory / "loaded").read_text()

    def tree(self) -> ET.Element:
        return ET.fromstring(self.loaded())  # noqa: S314 - our own


@pytest.fixture
def machine(tmp_path, monkeypatch):
    directory = tmp_path / "machine"
    programs = directory / "bin"
    programs.mkdir(parents=True)
    for name in ("lttng", "lttng-sessiond"):
        script = programs / name
        # By its own name, as the real daemon is found by it.
        script.write_text(f"#!{sys.executable} -S\n{PLAYED.read_text()}")
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("PLAYED", str(directory))
    played = Machine(directory)
    yield played
    pid = played.daemon_runs()
    if pid and pid != os.getpid():
        os.kill(pid, signal.SIGKILL)
