"""From a fault that is switched on to the line in the journal."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("traceable")

# Others may mark executions meanwhile: these have a name of their own.
KIND = f"cart-{os.getpid()}"
# Asks another process twice in each execution; 22 times where a file is there.
SHOP = """
import ctypes, os, socket, sys, time
from critpath_marks.marks import execution
near, far = socket.socketpair()
if os.fork() == 0:
    ctypes.CDLL(None).prctl(15, b"stock", 0, 0, 0)
    near.close()
    while far.recv(1):
        time.sleep(0.01)
        far.send(b".")
    sys.exit()
far.close()
print("runs", flush=True)
while True:
    with execution(sys.argv[1]):
        for _ in range(22 if os.path.exists("fault") else 2):
            near.send(b"?")
            near.recv(1)
    time.sleep(0.005)
"""


def test_a_fault_becomes_a_line(
    start: Callable[..., Any],
    wait_for: Callable[..., Any],
    critpath: Callable[..., Any],
    tmp_path: Path,
) -> None:
    flight, place = tmp_path / f"{tmp_path.name}-{os.getpid()}", tmp_path / "incidents"
    shop = start(sys.executable, "-c", SHOP, KIND, cwd=tmp_path)
    assert shop.read_out() == "runs"
    recorder = start(
        *(sys.executable, "-m", "critpath", "record", "--always", "-o", flight),
        *("--memory", "32M", "--overhead", "1000%", "--calibrate", "off", "--usual", "8s"),
        *("--when", f"latency {KIND} > 200ms", "--after", "8s"),
        cwd=tmp_path,
    )
    recorder.wait_until_said("flight recorder: profile")
    looks = start(
        *(sys.executable, "-m", "critpath", "incidents", flight, "-o", place, "--follow"),
        *("--execution", "marker"),
        cwd=tmp_path,
    )
    wait_for(lambda: (place / "usual").is_dir() and any((place / "usual").iterdir()), 600)
    (tmp_path / "fault").touch()
    slow: list[dict[str, Any]] = []
    while not slow:  # a busy machine may have been told before, and of something else
        assert looks.read_out()
        made = [json.loads(p.read_text()) for p in place.glob("*/incident.json")]
        told = [one for one in made if one["verdict"] == "anomaly" and "stock" in one["sentence"]]
        slow = [one for one in told if "latency" in one["trigger"]["when"]]
    one = slow[0]
    assert (one["kind"], one["host"]) == (KIND, os.uname().nodename)
    assert one["usual"]["of"] == "usual"
    assert critpath("incidents", "show", place / one["id"]).returncode == 1
    looks.send(signal.SIGTERM)
    assert looks.end() == 0, looks.said
    assert critpath("dump", "--stop", flight).returncode == 0
    assert recorder.end() == 0, recorder.said
    programs = json.loads((flight / one["id"] / "critpath.json").read_text())["host"]["programs"]
    assert "stock" in programs
