"""A control group of the evaluation holds a real command, and is gone afterwards."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "evaluation" / "case_studies"))
from limits import Group, Limits, NoLimitError, find_hierarchies


def possible():
    if os.geteuid():
        return "control groups need root"
    hierarchies = find_hierarchies()
    if "cpu" not in hierarchies:
        return "no control group hierarchy has the controller cpu"
    if not os.access(hierarchies["cpu"].root, os.W_OK):
        return "control groups are read-only here"
    return ""


@pytest.mark.skipif(bool(possible()), reason=possible() or "-")
def test_a_real_group_limits_its_command_and_is_gone_afterwards():
    with contextlib.ExitStack() as stack:
        try:
            group = stack.enter_context(Group(Limits(quota=(5000, 50_000)), "test"))
        except NoLimitError as error:
            pytest.skip(str(error))
        (place,) = group.places
        script = "cat /proc/self/cgroup; sleep 1000 > /dev/null & exit 3"
        command = group.command(("sh", "-c", script))
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 3
        assert place.name in done.stdout
        (left,) = (place / "cgroup.procs").read_text().split()
    # What a command left running there is ended: nobody else would.
    assert not place.exists()
    assert not Path(f"/proc/{left}/exe").exists()
