"""critpath record as a process, with a fake recorder and real commands."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "played" / "with_fake_recorder.py"


class Started:
    """A critpath that was started, and what it and its command print."""

    def __init__(self, process: subprocess.Popen) -> None:
        self.process = process
        self.said = ""

    def read_out(self) -> str:
        """Return the next line that the command prints."""
        return self.process.stdout.readline().decode().rstrip("\n")

    def wait_until_said(self, text: str) -> None:
        """Return when critpath has printed it to stderr."""
        while text not in self.said:
            line = self.process.stderr.readline().decode()
            assert line, f"it ended, and said: {self.said}"
            self.said += line

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self, given: bytes | None = None) -> int:
        """Return the exit code; `out` and `said` have all that was printed."""
        out, err = self.process.communicate(given, timeout=60)
        self.out = (out or b"").decode()
        self.said += (err or b"").decode()
        return self.process.returncode


class Box:
    """A directory to record in, and what the fake recorder did."""

    def __init__(self, place: Path) -> None:
        self.place = place / "here"
        self.place.mkdir()
        self.log = place / "fake.log"
        self.output = self.place / "rec"
        self.started: list[subprocess.Popen] = []

    def environment(self, **variables: str) -> dict[str, str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SUDO_", "FAKE_"))}
        return {**clean, "FAKE_LOG": str(self.log), "PYTHONPATH": "", **variables}

    def start(self, *arguments: str | bytes, env=None, through=(), **options) -> Started:
        """Start recording into ``rec``, or as the arguments say; `through` what execs it."""
        output = () if "-o" in arguments else ("-o", "rec")
        words = [*through, sys.executable, SCRIPT, "record", *output, *arguments]
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            words,
            cwd=self.place,
            env=self.environment(**(env or {})),
            **{"stdin": subprocess.DEVNULL, "stdout": pipe, "stderr": pipe, **options},
        )
        self.started.append(process)
        return Started(process)

    def end(self) -> None:
        """End what a failed test has left, so that no other test fails of it."""
        for process in self.started:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()

    def manifest(self, name: str = "rec") -> dict:
        return json.loads((self.place / name / "critpath.json").read_text(encoding="utf-8"))

    def calls(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []

    @property
    def instance(self) -> bool:
        return self.log.with_suffix(".instance").exists()

    def is_clean(self) -> bool:
        """Whether nothing is left but what was there."""
        return not self.instance and not self.output.exists()


@pytest.fixture
def box(tmp_path):
    made = Box(tmp_path)
    yield made
    made.end()


class Watched:
    """Processes whose end is waited for; those that live at the end of the test are killed."""

    def __init__(self) -> None:
        self._handles: list[int] = []

    def add(self, *pids: int | str) -> None:
        self._handles += [os.pidfd_open(int(pid)) for pid in pids]

    def _ended(self, handle: int, seconds: float) -> bool:
        return bool(select.select([handle], [], [], seconds)[0])

    def all_end(self) -> bool:
        """Wait for the end of all; return whether it came."""
        return all(self._ended(handle, 60) for handle in self._handles)

    def all_live(self) -> bool:
        return not any(self._ended(handle, 0) for handle in self._handles)

    def close(self) -> None:
        for handle in self._handles:
            if not self._ended(handle, 0):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            os.close(handle)


@pytest.fixture
def watched():
    made = Watched()
    yield made
    made.close()
