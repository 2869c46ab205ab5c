"""What tests that start processes share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

# VmHWM, as the resource usage of a child begins with that of its parent.
PEAK = """
import contextlib, io, json, pathlib, sys
from critpath.commands import main
ended = []
for words in json.loads(sys.stdin.read()):
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        ended.append((main(words), said.getvalue()))
lines = pathlib.Path("/proc/self/status").read_text().splitlines()
print(json.dumps((ended, [int(x.split()[1]) for x in lines if x.startswith("VmHWM:")])))
"""


@pytest.fixture(scope="session")
def peak() -> Callable[..., tuple[list[tuple[int, str]], int]]:
    """Return a function that runs commands in a process and tells the most bytes it had.

    Before that, of each command its exit code and what it wrote to stderr.
    """

    def run(*commands: tuple[object, ...]) -> tuple[list[tuple[int, str]], int]:
        done = subprocess.run(
            [sys.executable, "-c", PEAK],
            input=json.dumps([[str(word) for word in words] for words in commands]),
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr
        ended, [most] = json.loads(done.stdout)
        return ended, most * 1024

    return run
