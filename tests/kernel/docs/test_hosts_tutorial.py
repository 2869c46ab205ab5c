"""The three hosts of docs/hosts.md, typed as they stand there, on this machine's own kernel.

What holds is exit codes, who asked whom and what the cause is; the figures are the machine's.
The names of the network namespaces are in a mount namespace of the test's own: they meet none of
the machine's, and go with it.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from critpath_record.ftrace.recorder import find_needs

sys.path.insert(0, str(Path(__file__).parents[2] / "hosts"))

import spaces

PAGE = Path(__file__).parents[3] / "docs" / "hosts.md"
BLOCK = re.compile(
    r"(?:<!-- file (?P<file>\S+) -->\n)?```(?P<language>\w+)\n(?P<body>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
CODE = re.compile(r"# exit code (\d+)")
ASKED = "critpath path sample --execution 'requests:?'"  # beside what the page has
LEFT = "ip netns list"
OWN_NAMES = "mkdir -p /run/netns && mount -t tmpfs none /run/netns && exec bash $0"


def lacking():
    if missing := spaces.missing():
        return missing
    if wrong := [o.what for o in find_needs(None) if o.fatal]:
        return f"cannot record here: {wrong[0]}"
    programs = ("unshare", "nginx", "redis-server", "curl", "python3")
    missing = [name for name in programs if not shutil.which(name)]
    return f"no {', '.join(missing)}" if missing else ""


def read_page():
    """Return the files that the reader writes, and the commands to type."""
    text = PAGE.read_text(encoding="utf-8")
    files, lines = {}, []
    for block in BLOCK.finditer(text[text.index("## Three hosts on one machine") :]):
        body = block["body"]
        if block["file"]:
            files[block["file"]] = body
        elif block["language"] == "sh":
            lines += body.splitlines()
        elif block["language"] == "console":
            lines += [line[2:] for line in body.splitlines() if line.startswith("$ ")]
    return files, lines


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    """Each command with its exit code and what it printed."""
    if why := lacking():
        pytest.skip(why)
    place, said = tmp_path_factory.mktemp("hosts"), tmp_path_factory.mktemp("said")
    files, lines = read_page()
    lines += [ASKED, LEFT]
    for name, body in files.items():
        (place / name).write_text(body, encoding="utf-8")
    script = said / "script"
    script.write_text(
        "".join(
            f"exec > {said}/{n}.out 2>&1\n{line}\necho $? > {said}/{n}.code\n"
            for n, line in enumerate(lines)
        )
    )
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shell = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", OWN_NAMES, script],
        cwd=place,
        env={**os.environ, "PATH": path, "LC_ALL": "C.UTF-8", "COLUMNS": "100", "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    handle = os.pidfd_open(shell.pid)
    try:
        os.waitid(os.P_PID, shell.pid, os.WEXITED | os.WNOWAIT)
    finally:
        # It is collected last: afterwards the number of its group may be another's.
        os.killpg(shell.pid, signal.SIGTERM)
        select.select([handle], [], [], 20)
        os.killpg(shell.pid, signal.SIGKILL)
        os.close(handle)
        shell.wait()
    return [
        (line, int((said / f"{n}.code").read_text()), (said / f"{n}.out").read_text())
        for n, line in enumerate(lines)
    ]


def of(typed, *words):
    return next(found for line, *found in typed if all(word in line for word in words))


def test_every_command_ends_as_the_page_says(typed):
    for line, code, printed in typed:
        if "critpath compare" not in line:
            expected = CODE.search(line)
            assert code == (int(expected[1]) if expected else 0), f"{line}\n{printed}"


def test_every_server_is_found_with_what_was_asked_of_it(typed):
    _, printed = of(typed, "critpath path", "requests:?")
    # Others on this machine may have servers as well.
    found = dict(line.split()[:2] for line in printed.splitlines()[1:])
    for service in ("nginx:8080", "python3:8000", "redis-server:6379"):
        assert int(found[service].replace(",", "")) >= 100, printed


def test_a_request_goes_through_all_three(typed):
    _, printed = of(typed, "critpath path", "--by tier")
    assert "\nnginx:8080 " in printed
    assert "\n└ python3:8000 " in printed
    assert "\n  └ redis-server:6379 " in printed


def test_the_database_is_asked_a_hundred_times_as_often(typed):
    _, printed = of(typed, ASKED)
    counts = {line.split()[0]: line.split()[1] for line in printed.splitlines()[1:]}
    assert int(counts["redis-server:6379"].replace(",", "")) >= 10_000, printed


def test_that_is_the_cause(typed):
    code, printed = of(typed, "critpath compare")
    assert code in {0, 1, 3}, printed
    if "redis-server 100 times instead of once" not in " ".join(printed.split()):
        pytest.skip(f"others disturbed the recordings: {printed.splitlines()[0]}")
    assert "nginx:8080 → python3:8000" in printed


def test_nothing_of_the_network_is_left(typed):
    assert of(typed, LEFT) == [0, ""]
