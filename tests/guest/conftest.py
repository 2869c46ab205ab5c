"""The guest, and what came out of it: shared by the short job and the long ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
JOBS = HERE / "jobs"


@pytest.fixture(scope="session")
def run_in_guest(tmp_path_factory):
    """Return a function that runs a job in the guest and returns its /out."""
    if os.geteuid() != 0:
        pytest.skip("the guest can only be built by root")
    for program in ("debootstrap", "qemu-system-x86_64", "mkfs.ext4"):
        if shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin") is None:
            pytest.fail(f"{program} is not installed: make test-guest installs it")
    subprocess.run([HERE / "build"], check=True, timeout=1800)

    def run(job: str, *files: str, limit: int = 900) -> Path:
        for _ in range(2):
            result = tmp_path_factory.mktemp("guest") / "result"
            done = subprocess.run(
                [HERE / "run", JOBS / job, result, *(JOBS / file for file in files)],
                env={**os.environ, "CRITPATH_GUEST_LIMIT": str(limit)},
                timeout=limit + 300,
                check=False,
            )
            # An emulated processor that hangs, as one did, says nothing of critpath.
            console = result / "console.log"
            if not console.exists() or "soft lockup" not in console.read_text(errors="replace"):
                break
        printed = result / "job.log"
        assert done.returncode == 0, printed.read_text() if printed.exists() else "it did not boot"
        return result / "out"

    return run


@pytest.fixture(scope="session")
def printed_by() -> Callable[[Path], Callable[..., str]]:
    """Return a function from a job's /out to a function that gives what a step printed."""

    def steps_of(out: Path) -> Callable[..., str]:
        def text(name: str, code: int = 0) -> str:
            printed = (out / f"{name}.txt").read_text()
            assert int((out / f"{name}.code").read_text()) == code, f"{name}: {printed}"
            return printed

        return text

    return steps_of


@pytest.fixture(scope="session")
def manifest() -> Callable[[Path], dict]:
    """Return a function that reads a recording's manifest."""
    return lambda directory: json.loads((directory / "critpath.json").read_text())


@pytest.fixture(scope="session")
def executions(critpath) -> Callable[[Path], list[dict]]:
    """Return a function that finds the executions of a recording."""

    def find(directory: Path) -> list[dict]:
        done = critpath("path", directory, "--format", "json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return find
