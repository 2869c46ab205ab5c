"""The command line as another process, in a directory without settings of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Completed = subprocess.CompletedProcess[str]


@pytest.fixture(scope="session")
def critpath(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Completed]:
    """Return a function that runs ``critpath ARGUMENT...`` and returns what came of it."""
    elsewhere = tmp_path_factory.mktemp("nowhere")

    def run(*arguments: object, cwd: Path = elsewhere, hash_seed: str = "random") -> Completed:
        # An editable install may build on import, with the tools next to this Python.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        return subprocess.run(
            [sys.executable, "-m", "critpath", *map(str, arguments)],
            cwd=cwd,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PATH": path},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def inside(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Completed]:
    """Return a function as `critpath` that saves the start of a process: it runs in this one."""
    from critpath.commands import main  # noqa: PLC0415 - slow, and not for every test

    def run(*arguments: object) -> Completed:
        capfd.readouterr()
        with contextlib.chdir(tmp_path):
            code = main([str(a) for a in arguments])
        out, err = capfd.readouterr()
        return subprocess.CompletedProcess(list(map(str, arguments)), code, out, err)

    return run
