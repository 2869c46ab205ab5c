"""critpath record with a fake recorder and real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("with_fake_recorder.py")


def until(condition, seconds=20.0):
    """Wait for a condition and return its value."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    pytest.fail("it did not happen")
    return None


@dataclass
class Done:
    code: int
    out: str
    err: str


class Box:
    """A directory to record in, and what the fake recorder did."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.log = place / "fake.log"
        self.output = place / "rec"
        self.started: list[subprocess.Popen] = []

    def environment(self, **variables: str) -> dict[str, str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SUDO_", "FAKE_"))}
        return {**clean, "FAKE_LOG": str(self.log), "PYTHONPATH": "", **variables}

    def popen(self, *arguments, env=None, **options) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), "record", *map(os.fsencode, map(str, arguments))],
            cwd=self.place,
            env=self.environment(**(env or {})),
            **{
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                **options,
            },
        )
        self.started.append(process)
        return process

    def end(self) -> None:
        """End what a failed test has left, so that no other test fails of it."""
        for process in self.started:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()

    def record(self, *arguments, env=None, **options) -> Done:
        """Record into ``rec``, or as the arguments say."""
        if "-o" not in arguments:
            arguments = ("-o", "rec", *arguments)
        process = self.popen(*arguments, env=env, **options)
        out, err = process.communicate(timeout=60)
        return Done(process.returncode, (out or b"").decode(), (err or b"").decode())

    def manifest(self, name: str = "rec") -> dict:
        return json.loads((self.place / name / "critpath.json").read_text(encoding="utf-8"))

    def calls(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []

    @property
    def instance(self) -> bool:
        return self.log.with_suffix(".instance").exists()

    def clean(self) -> bool:
        """Whether nothing is left but what was there."""
        return not self.instance and not self.output.exists()


@pytest.fixture
def box(tmp_path):
    made = Box(tmp_path)
    yield made
    made.end()


@pytest.fixture
def wait_for():
    return until


def alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


@pytest.fixture
def is_alive():
    return alive


@pytest.fixture
def no_orphans():
    """Give a list; what is in it as pids is killed in the end."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
