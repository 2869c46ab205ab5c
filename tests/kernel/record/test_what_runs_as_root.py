"""What ``critpath record`` and ``critpath doctor`` do as root is a short list, and all of it."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from critpath_record.counts.groups import find_root, group_of

pytestmark = pytest.mark.xdist_group("kernel")

WITH_AUDIT = Path(__file__).resolve().parents[2] / "played" / "with_audit.py"
# Where root writes: the recording, its tracing instance, the note for whoever finishes it; and
# the control group that a command is counted in.
GROUPS = f"{find_root()}{group_of('self').rstrip('/')}/critpath-"
WRITTEN = ("/proc/self/fd/", "/sys/kernel/tracing/instances/critpath-", "/run/critpath", GROUPS)
# For the moment in which the instance is made: the kernel's table of names.
NOTHING = {"/dev/null", "/sys/kernel/tracing/options/record-cmd"}


RECORD = ("record", "-n", "2", "-o", "rec")
# What each way begins with, and what is noted.
WAYS = {
    "record": ((), (*RECORD, "--", "true")),
    "prepare": ((), (*RECORD, "--prepare", "true", "--", "true")),
    "force": ((*RECORD, "--", "true"), (*RECORD, "--force", "--", "true")),
    "counts": ((), ("record", "--recorder", "counts", "-n", "2", "-o", "rec", "--", "true")),
    "beside": ((), (*RECORD, "--counts", "--", "true")),
    "stacks": ((), (*RECORD, "--stacks", "native", "--", "true")),
    "doctor": ((), ("doctor",)),
    "doctor --clean": ((), ("doctor", "--clean")),
}


@pytest.fixture(scope="module", params=WAYS)
def audit(request, tmp_path_factory):
    """Return everything that a command as root did, as (event, argument, ...)."""
    from critpath_record.ftrace.recorder import find_needs  # noqa: PLC0415 - may not import elsewhere
    from critpath_record.stacks.sources import find_obstacles  # noqa: PLC0415 - as above

    fatal = [o.what for o in find_needs(None) if o.fatal]
    if os.geteuid() or fatal:
        pytest.skip(f"ftrace cannot record here: {fatal[0] if fatal else 'not root'}")
    if request.param == "stacks" and (obstacles := find_obstacles("native")):
        pytest.skip(obstacles[0].what)
    place = tmp_path_factory.mktemp("audit")
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SUDO_")}
    for log, words in zip(("before", "log"), WAYS[request.param], strict=True):
        if words:
            done = subprocess.run(
                [sys.executable, str(WITH_AUDIT), log, *words],
                cwd=place,
                env={**clean, "PYTHONDONTWRITEBYTECODE": "1"},
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
            assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in (place / "log").read_text().splitlines()]


def listed_files() -> dict[str, set[str]]:
    """Return the modules that docs/security.md lists, by when it says that they are loaded."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "security.md").read_text("utf-8")
    found: dict[str, set[str]] = {}
    row = re.compile(r"^\| (?:\*\*(.+?)\*\*|`(critpath\S+)\.\w+`) \|", re.MULTILINE)
    for when, file in row.findall(page):
        if when:
            rows = found.setdefault(when, set())
        else:
            rows.add(file.replace("/", "."))
    return found


def test_what_is_loaded_is_listed(audit, request):
    """No file is loaded that docs/security.md does not name, and none is named in vain."""
    way, listed = request.node.callspec.params["audit"], listed_files()
    named = set().union(*listed.values())
    packages = {name.rpartition(".")[0] for name in named} | {"critpath.schema"}
    ours = re.compile(r"critpath(_record)?\.")
    loaded = {event[1] for event in audit if event[0] == "loaded" and ours.match(event[1])}
    beside = {"critpath.commands.doctor", "critpath.commands.sources", "critpath.report"}
    assert {name for name in loaded - packages if not name.startswith((*beside,))} <= named
    if way == "record":
        without = {when for when in listed if when.startswith("with ")}
        rare = set().union(*(listed[when] for when in without))
        # A package has no line of its own among what is loaded later.
        named -= {name for name in named if name.endswith(".__init__")}
        assert sorted(loaded - packages) == sorted(named - rare)


def test_what_is_imported(audit, request):
    """A list by parts: what is not here cannot be attacked while critpath is root."""
    names = {event[1] for event in audit if event[0] == "import"}
    ours = {n.split(".")[1] for n in names if n.startswith("critpath.")}
    assert ours <= {
        "_cyutility",
        "commands",
        "confined",
        "doors",
        "errors",
        "extras",
        "model",
        "records",
        "schema",
        "units",
        "untrusted",
    }
    foreign = (
        {n.split(".")[0] for n in names}
        - sys.stdlib_module_names
        - {"critpath", "critpath_marks", "critpath_record"}
    )
    # Python's own `copy` looks whether it runs in Java; doctor's answer is a table.
    assert foreign <= {"org", "rich"} if "[doctor" in request.node.name else {"org"}


def test_what_is_written(audit):
    written = {event[1] for event in audit if event[0] == "open"}
    elsewhere = {p for p in written if not p.startswith(WRITTEN)} - NOTHING
    assert elsewhere == set()


def test_what_is_renamed_removed_or_given_away(audit):
    changes = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink")
    # Without a directory a name is one that a descriptor leads to.
    names = {event[1] for event in audit if event[0] in changes}
    assert {n for n in names if "/" in n and not n.startswith(WRITTEN)} == set()
    assert not [e for e in audit if e[0] in {"os.symlink", "os.chown", "os.setxattr"}]


def test_what_is_run(audit):
    """LTTng's client is asked whether there is a daemon; a shell waits for our end.

    The command, by `_spawn`, is not here.
    """
    run = [e for e in audit if e[0].startswith(("subprocess.", "os.exec", "os.posix_spawn"))]
    # Stacks are unwound by a process of their own, which is the invoking user's.
    unwinding = "'-I', '-m', 'critpath_record.stacks.unwind', "
    run = [e for e in run if not (e[1] == sys.executable and unwinding in e[2])]
    assert {Path(e[1]).name for e in run} <= {"lttng", "sh"}
    assert {e[1] for e in run if Path(e[1]).name == "sh"} <= {"/bin/sh"}
    assert all(Path(e[1]).is_absolute() for e in run)
    assert not [e for e in audit if e[0] in {"os.system", "os.fork", "os.forkpty"}]


def test_no_network_and_no_foreign_library(audit):
    """Doctor hears from programs that mark, by a socket that is a file."""
    assert not [e for e in audit if e[0].startswith("tempfile.")]
    # The C library that Python itself has, for calls of the kernel that Python lacks.
    assert {e[1] for e in audit if e[0] == "ctypes.dlopen"} <= {"None"}
    sockets = [e for e in audit if e[0].startswith("socket.")]
    assert {e[0] for e in sockets} <= {"socket.__new__", "socket.bind"}
    assert {e[2] for e in sockets if e[0] == "socket.__new__"} <= {str(int(socket.AF_UNIX))}
    assert all(e[2].startswith(WRITTEN) for e in sockets if e[0] == "socket.bind")
