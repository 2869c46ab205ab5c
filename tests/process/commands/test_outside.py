"""The command line as a user meets it: another process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from critpath import __version__
from critpath.commands import VERBS


def test_help_and_version(critpath_process, tmp_path):
    done = critpath_process("--help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for verb in VERBS:
        assert verb in done.stdout
    done = critpath_process("--version", cwd=tmp_path)
    assert done.stdout == f"critpath {__version__}\n"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(critpath, verb):
    done = critpath(verb, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"usage: critpath {verb}" in done.stdout
    assert "--debug" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "required: COMMAND"),
        (("comapre",), "did you mean compare?"),
        (("compare",), "required: NORMAL, SAMPLE"),
        (("compare", "a", "b", "--alpha", "2"), "'2' is not a level"),
        (("compare", "a", "b", "--rul", "gate"), "unrecognized arguments"),
        (("path", "\x1b[31m", "--bad"), "unrecognized"),
        (("extract", "a"), "-o"),
    ],
)
def test_wrong_usage_is_two_lines_and_exit_2(critpath, arguments, says):
    done = critpath(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("critpath: ")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 2
    assert "\x1b" not in done.stderr


def test_an_input_that_is_not_there_is_exit_4(critpath):
    done = critpath("compare", "no-normal", "no-sample")
    assert done.returncode == 4
    assert done.stderr.splitlines()[0] == "critpath: no-normal does not exist"
    done = critpath("path", "x\x1b[31m")
    assert done.returncode == 4
    assert "\x1b" not in done.stderr


def shell(script: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", script, sys.executable],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
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
            timeout=60,
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


def test_help_and_usage_errors_import_nothing_slow():
    code = (
        "import sys; from critpath.commands import main; "
        "main(['--help']); main(['compare', '--help']); main(['compare']); main(['--show-config']);"
        "slow = {'numpy', 'scipy', 'sklearn', 'pyarrow', 'networkx', 'Bio', 'rich', 'bt2'};"
        "print('SLOW', sorted(slow & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "SLOW []"


def test_a_reader_that_is_gone_is_no_verdict(guest):
    """`critpath compare A B | head -1` must not exit as an anomaly does."""
    normal = guest("normal")
    command = [sys.executable, "-m", "critpath", "compare", str(normal), str(guest("normal-2"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as done:
        done.stdout.close()
        assert done.wait(timeout=60) == 141
        assert b"Traceback" not in done.stderr.read()


def test_an_event_that_one_of_two_recordings_lacks_is_told_with_the_recording(critpath, guest):
    normal, sample = guest("normal"), guest("sample-lock")
    events = "events:app:request_begin,app:request_ending,key=id"
    done = critpath("compare", normal, sample, "--execution", events)
    assert done.returncode == 2
    assert done.stderr.startswith(f"critpath: {normal}: no event app:request_ending among the ")
    assert len(done.stderr.splitlines()) == 2


def test_a_comparison_of_a_recording_in_every_form(critpath_process, guest, tmp_path):
    normal, sample = guest("normal"), guest("sample-lock")
    events = "events:app:request_begin,app:request_end,key=id"
    outputs = ("--junit", "j.xml", "--markdown", "m.md", "--github")
    done = critpath_process(
        *("compare", normal, sample, "--execution", events, *outputs),
        cwd=tmp_path,
        GITHUB_STEP_SUMMARY="summary",
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert not [line for line in done.stdout.splitlines() if line != line.rstrip()]
    commands = [line for line in done.stdout.splitlines() if line.startswith("::")]
    first = "::error title=critpath%3A ▲ SLOWER::cpu requests take 2.4 times as long"
    assert commands[0].startswith(first)
    assert 2 < len(commands) <= 10
    assert '<testcase classname="critpath" name="duration" ' in (tmp_path / "j.xml").read_text(
        encoding="utf-8"
    )
    text = (tmp_path / "m.md").read_text(encoding="utf-8")
    assert text == (tmp_path / "summary").read_text(encoding="utf-8")
    assert "1. 4 of 5 `cpu` requests wait " in text
