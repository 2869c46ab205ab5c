"""Interpreters that begin while the whole machine is recorded, as the kernel tells of them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from critpath_record.scripts import ScriptWatch

SECRET = "hunter2"  # noqa: S105 - no password


@pytest.mark.skipif(os.geteuid() != 0, reason="only root hears of every exec")
def test_the_kernel_tells_of_interpreters_that_begin(tmp_path):
    script = tmp_path / "wait.py"
    script.write_text("print(flush=True); input()", encoding="utf-8")
    watch = ScriptWatch()
    watch.start()
    command = [sys.executable, "-S", str(script), SECRET]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()  # it runs: the kernel has told
        found, said = watch.stop()
        child.communicate(b"\n")
    if any("tells of no exec" in text for text in said):
        pytest.skip(said[0])
    [mine] = [one for one in found if one.pid == child.pid]
    assert mine.name == "wait.py"
    assert mine.begin < mine.read
    assert SECRET not in repr(found)
    assert watch.stop()[0] == found
