"""The command line as a user meets it: another process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from critpath import __version__


def test_the_version(critpath_process, tmp_path):
    done = critpath_process("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"critpath {__version__}\n")


def shell(script: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", script, sys.executable],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_reader_that_is_gone(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "critpath", "--show-config"],
            cwd=tmp_path,
            stdout=writing,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_stdout_closed_by_the_caller(tmp_path):
    done = shell('"$0" -m critpath --show-config >&-', tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    done = shell('"$0" -m critpath compare 2>&-', tmp_path)
    assert (done.returncode, done.stdout) == (2, "")


def test_a_full_disk_behind_stdout(tmp_path):
    done = shell('"$0" -m critpath --show-config >/dev/full', tmp_path)
    assert done.returncode == 125
    assert "No space left" in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_a_reader_that_is_gone_is_no_verdict(extracted):
    """`critpath compare A B | head -1` must not exit as an anomaly does."""
    words = ("compare", extracted("sample-lock"), extracted("sample-lock"))
    command = [sys.executable, "-m", "critpath", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as done:
        done.stdout.close()
        assert done.wait() == 141
        assert b"Traceback" not in done.stderr.read()
