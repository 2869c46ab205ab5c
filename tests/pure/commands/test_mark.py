"""``critpath mark`` and the shell's own line, as the kernel and the reader see them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from critpath.commands import main
from critpath_marks import channels

pytestmark = pytest.mark.xdist_group("kernel")


@pytest.fixture
def written(monkeypatch, tmp_path) -> Callable[[], str]:
    """Return what marks write, where only LTTng's logger file takes them."""
    logger = tmp_path / "logger"
    logger.touch()
    monkeypatch.delenv(channels.MARKER, raising=False)
    monkeypatch.delenv(channels.DESCRIPTOR, raising=False)
    monkeypatch.setenv(channels.RECORDER, "lttng")
    monkeypatch.setattr(channels, "LOGGER_FILE", str(logger))
    monkeypatch.setattr(channels, "_chosen", None)
    return logger.read_text


def test_a_mark_names_the_shell(written):
    assert main(["mark", "begin", "nightly backup", "7"]) == 0
    assert main(["mark", "end", "nightly backup", "--strict"]) == 0
    parent = rf"@(\d+:)?{os.getppid()}"
    assert re.fullmatch(
        rf"critpath:begin nightly%20backup 7 {parent}\ncritpath:end nightly%20backup {parent}\n",
        written(),
    )


def test_nothing_records(monkeypatch, capsys):
    for name in (channels.MARKER, channels.DESCRIPTOR, channels.RECORDER):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(channels, "INSTANCES", ())
    monkeypatch.setattr(channels, "LOGGER_FILE", "/nowhere/logger")
    monkeypatch.setattr(channels, "_chosen", None)
    assert main(["mark", "begin", "job"]) == 0
    assert capsys.readouterr() == ("", "")
    assert main(["mark", "begin", "job", "--strict"]) == 125
    assert "critpath record" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["begin"], ["start", "x"], ["begin", ""], ["end", "x", "1", "2"], []]
)
def test_wrong_usage(arguments, capsys):
    assert main(["mark", *arguments]) == 2
    assert capsys.readouterr().err.startswith("critpath: ")


def test_a_shell_script_marks_in_the_kernel(tracefs_instance):
    script = """
        echo $$
        "$0" -m critpath mark begin backup --strict
        echo "critpath:begin quick" > "$CRITPATH_MARKER"
        echo "critpath:end quick" > "$CRITPATH_MARKER"
        "$0" -m critpath mark end backup --strict
    """
    done = subprocess.run(
        ["sh", "-c", script, sys.executable],
        env={**os.environ, channels.MARKER: str(tracefs_instance / "trace_marker")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    shell = int(done.stdout)
    lines = (tracefs_instance / "trace").read_text().splitlines()
    found = [re.search(r"-(\d+) +\[.*: critpath:(.*)$", line) for line in lines]
    marks = [(int(m[1]), m[2]) for m in found if m]
    assert [re.sub(r"@\d+:", "@", text) for _, text in marks] == [
        f"begin backup @{shell}", "begin quick", "end quick", f"end backup @{shell}",
    ]  # fmt: skip
    assert [tid == shell for tid, _ in marks] == [False, True, True, False]
