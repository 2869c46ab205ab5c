"""The script of docs/ci.md, as it stands, on this kernel."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from critpath_record import preflight
from tests.pure.test_ci_examples import block

WORK = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done"


@pytest.fixture
def programs(tmp_path):
    """Write two programs: one that works, and one that sleeps besides."""
    if preflight.doctor(tmp_path).recorder is None:
        pytest.skip("this machine may not record")
    for name, more in (("base", ""), ("slow", "sleep 0.03\n")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{WORK}\n{more}")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "performance.sh").write_text(block("performance.sh"))
    return tmp_path


def performance(place: Path, head: str, name: str) -> tuple[int, Path]:
    directory = place / name
    directory.mkdir()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["sh", str(place / "performance.sh"), str(place / "base"), str(place / head)],
        cwd=directory,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    (directory / "said").write_text(done.stdout + done.stderr)
    return done.returncode, directory


def test_the_script_as_it_stands(programs):
    """Red for a build that sleeps 30 ms, with every file; green needs a quiet machine."""
    code, place = performance(programs, "slow", "red")
    assert code == 1, (place / "said").read_text()
    assert {p.name for p in place.iterdir()} == {
        *("recordings", "report.html", "comparison.json", "junit.xml", "summary.md", "said"),
    }
    suites = ET.parse(place / "junit.xml").getroot()  # noqa: S314 - our own file
    assert [case for case in suites.iter("testcase") if case.find("failure") is not None]
    assert "sleep" in (place / "summary.md").read_text()


def test_a_program_that_fails_ends_the_script(programs):
    (programs / "slow").write_text("#!/bin/sh\nexit 7\n")
    code, place = performance(programs, "slow", "failing")
    assert code == 7
    assert not (place / "report.html").exists()
