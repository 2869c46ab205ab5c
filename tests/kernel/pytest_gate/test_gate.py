"""``critpath_gate`` with a real recorder."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from critpath_record import preflight

pytest_plugins = ["pytester"]

WORK = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done"


def test_a_real_program_that_sleeps_since_its_baseline_is_red(pytester, monkeypatch):
    """30 ms in each run; that an equal recording is green needs a quiet machine."""
    if preflight.doctor(Path.cwd()).recorder is None:
        pytest.skip("this machine may not record")
    # What stands next to this Python is found first.
    first = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", os.pathsep.join([first, os.environ["PATH"]]))
    app = pytester.path / "app"
    app.write_text(f"#!/bin/sh\n{WORK}\n")
    app.chmod(0o755)
    # Other tests may be after the same processors, and that is not what is tested.
    settings = 'runs=15, floor="100%", level={"WAIT_CPU": "off"}'
    pytester.makepyfile(f"""
        def test_it(critpath_gate):
            critpath_gate(["./app"], baseline="app.baseline.json", {settings})
    """)

    def run(*options):
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *options)

    run("--critpath-update").assert_outcomes(passed=1)
    baseline = json.loads((pytester.path / "app.baseline.json").read_text())
    assert len(baseline["sessions"][0]["executions"]) == 15
    assert str(pytester.path) not in (pytester.path / "app.baseline.json").read_text()
    app.write_text(f"#!/bin/sh\n{WORK}\nsleep 0.03\n")
    done = run()
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["critpath: SLOWER: *", "report: *"])
