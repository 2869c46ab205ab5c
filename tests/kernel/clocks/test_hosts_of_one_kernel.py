"""Servers on hosts of one kernel, recorded: each host has what it would have recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "hosts"))

import services
import spaces

HOSTS = Path(__file__).resolve().parents[2] / "hosts"
# Of an interpreter with the servers' packages, where this one has not got them.
PYTHON = Path(os.environ.get("CRITPATH_SERVERS_PYTHON", sys.executable))


def test_servers_on_hosts_of_their_own_are_recorded(tmp_path):
    lacks = spaces.missing() or services.missing(PYTHON)
    if not Path("/sys/kernel/tracing/instances").exists():
        lacks = lacks or "no tracefs"
    if lacks:
        pytest.skip(lacks)
    words = [sys.executable, HOSTS / "record.py", tmp_path, "--python", PYTHON]
    more = ("--connections", "4", "--requests", "40", "--split", "1", "sleep:3")
    late = ("--delay", "redis:500,100,0,1")
    subprocess.run([*words, *late, *more], check=True)
    [made] = tmp_path.iterdir()
    assert {p.name for p in (made / "hosts").iterdir()} == set(services.HOSTS)
    assert json.loads((made / "clocks.json").read_text()).keys() == {*services.HOSTS[1:]}
    assert len((made / "truth").read_text().splitlines()) == 3 * 40
    left = f"cp{os.getpid()}-"
    assert not [s for s in Path("/run/netns").glob("cp*-*") if s.name.startswith(left)]
