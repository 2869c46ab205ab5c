"""Recordings of this kernel: critpath as a process, and programs beside it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

CRITPATH = (sys.executable, "-m", "critpath")


class Started:
    """A process that was started in a group of its own, and what it prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.pid = process, process.pid
        self.out = self.said = ""

    def read_out(self) -> str:
        """Return the next line that it prints."""
        return self.process.stdout.readline().rstrip("\n")

    def wait_until_said(self, text: str) -> None:
        """Return when it has printed it to stderr."""
        while text not in self.said:
            line = self.process.stderr.readline()
            assert line, f"it ended, and said: {self.said}"
            self.said += line

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self, given: str | None = None) -> int:
        """Return the exit code; `out` and `said` have all that was printed."""
        out, err = self.process.communicate(given, timeout=120)
        self.out, self.said = self.out + out, self.said + err
        return self.process.returncode

    def kill(self) -> None:
        """End it and what it started; idempotent."""
        # Once it was waited for, its number may be that of somebody else.
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            pipe.close()


@pytest.fixture(scope="module")
def start() -> Iterator[Callable[..., Started]]:
    """Return a function that starts words as a process; it is ended with the module."""
    started: list[Started] = []

    def start_words(*words: object, cwd: Path, **variables: str) -> Started:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("SUDO_")}
        process = subprocess.Popen(
            [*map(str, words)],
            cwd=cwd,
            env={**clean, "XDG_CACHE_HOME": str(cwd), **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(Started(process))
        return started[-1]

    yield start_words
    for one in started:
        one.kill()


@pytest.fixture(scope="module")
def record(start: Callable[..., Started]) -> Callable[..., Started]:
    """Return a function that records into a directory ``NAME`` and returns what was said."""

    def record_into(place: Path, name: str, *arguments: object, **variables: str) -> Started:
        done = start(*CRITPATH, "record", "-o", name, *arguments, cwd=place, **variables)
        code = done.end()
        if "cannot record here" in done.said or "the kernel refuses" in done.said:
            pytest.skip(done.said)
        assert code == 0, done.said
        return done

    return record_into


@pytest.fixture(scope="session")
def traceable() -> None:
    """Skip with the reason where ftrace cannot record."""
    from critpath_record.ftrace.recorder import find_needs  # noqa: PLC0415 - as others

    fatal = [o.what for o in find_needs(None) if o.fatal]
    if fatal:
        pytest.skip(f"ftrace cannot record here: {fatal[0]}")
