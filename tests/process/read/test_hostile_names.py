"""What a trace and a manifest name is text: nothing is opened, run, imported or written by it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

WITH_AUDIT = Path(__file__).parents[2] / "played" / "with_audit.py"
# Commands to a shell, a way out of a directory, modules, templates: of the lengths they replace.
HOSTILE = (b"$(>ran)", b";>ran;#", b"|>ran #", b"../ran\0", b"/tmp/x\0", b"%0A::x\0", b"{{7*7}}")
# What changes names and files, and what else a process does that confines itself before it reads.
CHANGES = {"os.mkdir", "os.chmod", "os.remove", "os.rmdir", "shutil.rmtree"}
CONFINES = {"os.fork", "ctypes.dlsym", "ctypes.create_string_buffer", "ctypes.addressof"}
EVENTS = {"import", "open", "os.putenv", "os.unsetenv", "ctypes.dlopen", *CHANGES, *CONFINES}


@pytest.fixture
def hostile(guest, tmp_path):
    """A recording with hostile texts wherever the trace's environment has one, and a manifest."""
    place = tmp_path / "rec"
    shutil.copytree(guest("plain"), place)
    metadata = next(place.rglob("kernel/metadata"))
    content = metadata.read_bytes()
    for number, name in enumerate((b"hostname", b"domain", b"tracer_name", b"sysname", b"uuid")):
        before, found, rest = content.partition(name + b' = "')
        if found:
            value, quote, after = rest.partition(b'"')
            wrong = HOSTILE[number % len(HOSTILE)].replace(b"\0", b"a")
            made = (wrong * (len(value) // len(wrong) + 1))[: len(value)]
            if name not in {b"domain", b"uuid"}:
                content = before + found + made + quote + after
    metadata.write_bytes(content)
    manifest = {
        "format": "critpath/recording/1",
        "trace": "/etc",
        "interleaved": "../../../etc",
        "session": "../../ran",
        "execution": "",
        "command": ["$(touch ran)", "; touch ran"],
        "prepare": "touch ran",
        "recorder": {"name": "os; touch ran", "module": "critpath.commands.workload"},
        "profile": "../../../../etc/passwd",
        "host": {"name": "$(touch ran)"},
        "warnings": ["\x1b]0;x\x07 `touch ran`"],
    }
    (place / "critpath.json").write_text(json.dumps(manifest))
    # In the working directory, what an import or a program by name would find.
    for name in ("bt2", "os; touch ran", "lttngust", "babeltrace2", "lttng"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w')")
        (tmp_path / name).write_text("#!/bin/sh\ntouch ran\n")
        (tmp_path / name).chmod(0o755)
    return place


@pytest.mark.parametrize("verb", ["compare", "path"])
def test_reading_runs_and_writes_nothing(hostile, verb):
    """Every import, file, program and change of a name of a whole analysis is noted."""
    where = hostile.parent
    arguments = ["rec", "rec", "--jobs", "1"] if verb == "compare" else ["rec"]
    done = subprocess.run(
        [
            *(sys.executable, "-P", str(WITH_AUDIT), "log", verb, *arguments),
            *("--execution", "events:app:request_begin,app:request_end,key=id"),
        ],
        cwd=where,
        env={**os.environ, "PATH": f".:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {0, 1, 3}, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    noted = [json.loads(line) for line in (where / "log").read_text().splitlines()]
    noted = [each for each in noted if each[0] != "loaded"]  # a list of modules, no event
    assert not (where / "ran").exists()
    assert {event for event, *_ in noted} <= EVENTS
    # Which `ctypes` does to Python itself when it is imported.
    assert {e[1] for e in noted if e[0] == "ctypes.dlopen"} <= {"None"}
    assert {e[2] for e in noted if e[0] == "ctypes.dlsym"} <= {
        "capget",
        "capset",
        "prctl",
        "syscall",
    }
    # Its own directory for temporary files, and the file by which Python finds where such may be.
    own = re.compile(
        rf"{re.escape(tempfile.gettempdir())}/(\.critpath\.[0-9a-f]{{8}}|[a-z0-9_]{{8}})"
    )
    named = {e[1] for e in noted if e[0] == "open" or e[0] in CHANGES}
    assert {name for name in named if not own.fullmatch(name)} <= {"/dev/null"}
    imported = {e[1].split(".")[0] for e in noted if e[0] == "import"}
    assert imported.isdisjoint({"bt2", "lttngust", "pickle5", "yaml", "socket"})
