"""``critpath incidents`` as the process that it is: it follows, tells, and ends."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

REQUESTS = "events:app:request_begin,app:request_end,key=id"
HOUR = 3600
PATIENCE = 600  # seconds: it makes way for all else that a busy machine does


class Hook(http.server.BaseHTTPRequestHandler):
    """Keeps what it is sent."""

    def do_POST(self) -> None:
        """Take a document."""
        self.server.taken.append(self.rfile.read(int(self.headers["Content-Length"])))  # type: ignore[attr-defined]
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def hook() -> Iterator[Any]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    server.taken = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def make_dump(flight: Path, recording: Path, name: str, when: str, epoch: int) -> None:
    """Make a dump of a recording; it appears whole."""
    place = flight / f".{name}"
    shutil.copytree(recording, place)
    manifest = {
        "format": "critpath/recording/1",
        "state": "complete",
        "execution": REQUESTS,
        "clock": {"epoch": epoch * 10**9},
        "host": {"name": "shop"},
        "trigger": {"when": when, "value": "", "kind": "", "at": 1},
    }
    (place / "critpath.json").write_text(json.dumps(manifest))
    place.rename(flight / name)


def test_a_night(
    guest: Callable[[str], Path],
    critpath_process: Callable[..., Any],
    wait_for: Callable[..., Any],
    hook: Any,
    tmp_path: Path,
) -> None:
    flight, place = tmp_path / "flight", tmp_path / "incidents"
    flight.mkdir()
    make_dump(flight, guest("normal"), "20261129T000000Z-usual", "usual", 1795910400)
    address = f"http://127.0.0.1:{hook.server_port}/critpath"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "critpath", "incidents", str(flight), "-o", str(place)),
            *("--follow", "--webhook", address),
        ],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(lambda: (place / "usual").is_dir() and any((place / "usual").iterdir()), PATIENCE)
        name = "20261129T010000Z-loss"
        make_dump(flight, guest("sample-lock"), name, "loss", 1795910400 + HOUR)
        wait_for(lambda: hook.taken, PATIENCE)
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == 19
    finally:
        process.send_signal(signal.SIGTERM)
        said, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert errors == ""
    [line] = said.splitlines()
    assert line.startswith("2026-11-29T01:00:00Z ")
    [sent] = map(json.loads, hook.taken)
    assert (sent["line"], sent["verdict"]) == (line, "anomaly")
    assert "for thread holder" in line
    assert sent["cause"]["comm"] == "holder"
    assert place.stat().st_mode & 0o777 == 0o700
    page = place / name / "page.html"
    assert page.stat().st_mode & 0o077 == 0
    assert "<html" in page.read_text(encoding="utf-8")
    assert critpath_process("incidents", place).stdout == f"{name}\n  {line}\n"
    shown = critpath_process("incidents", "show", str(place / name))
    assert shown.returncode == 1, shown.stderr
    assert shown.stdout.startswith(f"{line}\n\n")
    # What was usual is a baseline like any other, and says the same.
    [usual] = (place / "usual").iterdir()
    again = critpath_process("compare", usual, flight / name)
    assert again.returncode == 1, again.stderr


def test_an_address_that_takes_nothing_is_counted(
    guest: Callable[[str], Path], critpath_process: Callable[..., Any], tmp_path: Path
) -> None:
    flight, place = tmp_path / "flight", tmp_path / "incidents"
    flight.mkdir()
    make_dump(flight, guest("normal"), "20261129T000000Z-loss", "loss", 1795910400)
    done = critpath_process(*("incidents", flight, "-o", place, "--webhook", "http://127.0.0.1:9/"))
    assert done.returncode == 0, done.stderr
    assert "nothing usual is kept" in done.stdout
    assert json.loads((place / "state.json").read_text())["lost"] == 1
    assert "1 not delivered" in done.stderr
