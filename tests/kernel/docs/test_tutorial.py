"""The tutorial, typed as it stands, on this machine's own kernel.

What holds is its structure: exit codes, and that the first sentence names the cause.  The
figures are the machine's.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from critpath_record.ftrace.recorder import find_needs

ROOT = Path(__file__).resolve().parents[3]
TUTORIAL = ROOT / "docs" / "tutorial.md"
SOURCES = ROOT / "docs" / "tutorial"


@pytest.fixture(scope="module")
def transcripts():
    place = importlib.util.spec_from_file_location("transcripts", ROOT / "docs/transcripts.py")
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def typed(transcripts, tmp_path_factory):
    """What came of the tutorial's commands, and where they ran."""
    if os.geteuid():
        pytest.skip("recording needs root")
    if wrong := [o.what for o in find_needs(None) if o.fatal]:
        pytest.skip(f"cannot record here: {wrong[0]}")
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    place = tmp_path_factory.mktemp("tutorial")
    _, steps = transcripts.renew(TUTORIAL.read_text(encoding="utf-8"), SOURCES, place)
    return steps, place


def of(steps, *words):
    found = [step for step in steps if all(word in step.command for word in words)]
    assert found, words
    return found[0]


def test_the_command_that_record_ends_with_can_be_typed(typed):
    steps, place = typed
    first = of(steps, " record ", "normal-1")
    (following,) = re.findall(r"^next, in the other state: (.+)$", first.output, re.MULTILINE)
    # Where sudo is behind the tests or not there, the commands of the page are run without it.
    command = following.replace('sudo env "PATH=$PATH" ', "")
    done = subprocess.run(
        ["/bin/sh", "-c", command], cwd=place, capture_output=True, text=True, check=False
    )
    assert done.returncode in {0, 1, 3}, done.stderr
    assert re.search(r"^[✓▲▼?] (OK|SLOWER|FASTER|INCONCLUSIVE)", done.stdout, re.MULTILINE)


def test_everything_is_built_and_recorded(typed):
    steps, place = typed
    recorded = [step for step in steps if " record " in step.command]
    assert len(recorded) >= 5
    assert {step.code for step in steps if step.command.startswith(("cc ", "sudo "))} == {0}
    assert (place / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_calibration_says_what_the_gate_would_do(typed):
    step = of(typed[0], "critpath calibrate")
    assert step.code in {0, 1}  # a machine may be too restless; then it says so
    assert step.output.startswith("CALIBRATED: ")
    assert "recommended" in step.output


@pytest.fixture(scope="module")
def regression(typed):
    """Return the comparison that finds the regression, where the baseline is of a quiet machine."""
    step = of(typed[0], "critpath compare", "version-1.1")
    if step.code == 0 and "recordings before may differ by" in step.output.splitlines()[0]:
        pytest.skip(f"others disturbed the baseline: {step.output.splitlines()[0]}")
    skip_where_inconclusive_beside_others(step)
    return step


def skip_where_inconclusive_beside_others(step):
    """Skip a comparison that rightly cannot decide, others having used most of the machine."""
    others = re.search(r"others used (\d+) %", step.output)
    if step.code == 3 and others and int(others[1]) >= 50:
        pytest.skip(f"others disturbed the recordings: {others[0]} of the machine")


def headline(step) -> str:
    """Return the verdict and the first cause, which may take several lines."""
    first, *rest = step.output.splitlines()
    return " ".join([first, *itertools.takewhile(lambda line: line.startswith(" "), rest)])


def test_the_regression_turns_the_gate_red_and_the_first_cause_names_the_thread(regression):
    step = regression
    assert step.code == 1
    assert step.output.startswith("▲ SLOWER  ")
    # Waiting for it, or on a busy machine for the processor that it computes on.
    assert "reporter" in headline(step)


def test_the_baseline_holds_all_normal_recordings(typed):
    assert "120 runs of 3 recordings" in of(typed[0], "critpath baseline show").output


@pytest.mark.usefixtures("regression")
def test_what_ci_systems_read_is_written(typed):
    steps, place = typed
    assert of(steps, "--junit").output == "1"
    first = (place / "critpath.md").read_text(encoding="utf-8")
    assert first.startswith("**▲ Slower: ")
    assert (place / "critpath.xml").read_text(encoding="utf-8").startswith("<?xml")


def test_the_exit_code_that_the_reader_sees_is_the_one_before(typed):
    steps = typed[0]
    seen = [
        (before.code, after.output)
        for before, after in itertools.pairwise(steps)
        if after.command == "echo $?"
    ]
    assert len(seen) >= 2
    assert all(str(code) == shown for code, shown in seen)


def test_the_fix_turns_it_green(typed):
    step = of(typed[0], "critpath compare", "version-1.2")
    skip_where_inconclusive_beside_others(step)
    if step.code == 1 and "reporter" not in headline(step):
        pytest.skip(f"others disturbed the recording: {step.output.splitlines()[0]}")
    assert step.code == 0
    # Where others disturbed the baseline the fix is faster than that.
    assert step.output.startswith(("✓ OK  ", "▼ FASTER  "))
