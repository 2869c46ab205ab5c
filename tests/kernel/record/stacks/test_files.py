"""Files and peers of this kernel: in the recording, and named by the first cause."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from critpath_record.stacks.sources import find_obstacles

pytestmark = pytest.mark.usefixtures("traceable")

ODD = "o\x1b[31md<b>d.log"
PROGRAM = f"""import os, socket, sys
fault, ports = sys.argv[1] == "slow", [int(port) for port in sys.argv[2:]]
def keep(name, size):
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(file, os.urandom(size))
    os.fsync(file)
    os.close(file)
for name in ("data.log", "audit.log", {ODD!r}):
    keep(name, 16 << 20 if fault and name == "audit.log" else 4096)
for number, port in enumerate(ports):
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(b"slow" if fault and number else b"fast")
        peer.recv(16)
"""


@pytest.fixture(scope="module", autouse=True)
def _can_record() -> None:
    if obstacles := find_obstacles("files"):
        pytest.skip(obstacles[0].what)


@pytest.fixture(scope="module")
def ports() -> Iterator[list[str]]:
    """Two peers, which answer late if they are asked to."""
    found, servers = [], [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ended = threading.Event()

    def answer(server: socket.socket) -> None:
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            with peer:
                if peer.recv(16) == b"slow":
                    ended.wait(0.3)
                peer.sendall(b"ok")

    for server in servers:
        found.append(str(server.getsockname()[1]))
        threading.Thread(target=answer, args=(server,), daemon=True).start()
    yield found
    ended.set()
    for server in servers:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


@pytest.fixture(scope="module")
def recorded(record, tmp_path_factory, ports) -> Path:
    """Record a program that writes files and asks peers, quick and slow in turn."""
    place = tmp_path_factory.mktemp("files")
    (place / "app.py").write_text(PROGRAM)
    commands = (f"{sys.executable} app.py {how} {' '.join(ports)}" for how in ("quick", "slow"))
    words = ("--files", "--recorder", "ftrace", "-n", 8, "--interleave")
    record(place, "r", *words, *commands)
    return place / "r"


def test_names_are_in_the_recording_and_nothing_else_of_memory(critpath, recorded, ports):
    stacks = recorded / "normal" / "stacks"
    assert {file.name for file in stacks.iterdir()} == {"files.json", "files.bin"}
    named = {frame[0] for frame in json.loads((stacks / "files.json").read_text())["frames"]}
    assert {"fsync(data.log)", "fsync(audit.log)", "fsync(o?[31md<b>d.log)"} <= named
    assert {f"recvfrom(127.0.0.1:{port})" for port in ports} <= named
    assert not [name for name in named if "\x1b" in name]
    listed = critpath("path", recorded / "normal", "--top", "50").stdout
    assert "fsync(audit.log)" in listed
    assert "\x1b" not in listed


def test_causes_name_the_file_and_the_peer(critpath, recorded, ports, tmp_path):
    page, found = tmp_path / "page.html", tmp_path / "found.json"
    sets = (recorded / "normal", recorded / "sample")
    done = critpath("compare", *sets, "--json", found, "--html", page)
    assert done.returncode in {1, 3}, done.stderr
    facts = [cause["facts"] for cause in json.loads(found.read_text())["causes"]]
    # The peer is recorded as well: it sleeps, and is waited for in the call on its address.
    named = {of["location"] or of["waits_at"] for of in facts}
    # On a busy machine one of the two may be no cause of its own.
    assert {"fsync(audit.log)", f"recvfrom(127.0.0.1:{ports[1]})"} & named, facts
    assert "\x1b" not in done.stdout
    assert "d<b>d" not in page.read_text()


TWO = """import os
def work():
    os.mkdir("pg_wal")
    file = os.open("pg_wal/1", os.O_WRONLY | os.O_CREAT, 0o600)
    for _ in range(5):
        os.write(file, bytes(4096))
        os.fsync(file)
for name in ("a", "b"):
    os.mkdir(name)
    if not os.fork():
        os.chdir(name)
        work()
        os._exit(0)
    os.wait()
"""


def test_the_same_path_of_two_servers_is_told_apart(record, tmp_path):
    words = ("--files", "--recorder", "ftrace", "--", sys.executable, "-c", TWO)
    record(tmp_path, "r", *words)
    document = json.loads((tmp_path / "r" / "stacks" / "files.json").read_text())
    named = {frame[0] for frame in document["frames"] if frame[0].startswith("fsync(")}
    assert named == {"fsync(a/pg_wal/1)", "fsync(b/pg_wal/1)"}


def named(recording: Path) -> set[str]:
    """Return what threads slept for."""
    document = json.loads((recording / "stacks" / "files.json").read_text())
    return {frame[0] for frame in document["frames"]}


WRITER = """import os, time
file = os.open("first.log", os.O_WRONLY | os.O_CREAT, 0o600)
print(flush=True)
while True:
    os.pwrite(file, bytes(512), 0)
    os.fsync(file)
    time.sleep(.001)
"""


@pytest.fixture
def writer(start, tmp_path):
    """A process that writes to a log until it is ended."""
    process = start(sys.executable, "-c", WRITER, cwd=tmp_path)
    process.read_out()
    return process


@pytest.mark.usefixtures("writer")
def test_under_a_budget_what_is_open_already_has_its_name(record, tmp_path):
    """Nothing is followed, so nothing is lost while nobody looks."""
    words = ("--files", "--recorder", "ftrace", "-a", "--overhead", "30%", "--duration", "3")
    done = record(tmp_path, "r", *words, "--calibrate", "off")
    assert "fsync(first.log)" in named(tmp_path / "r")
    assert "files were taken in" in done.said
    manifest = json.loads((tmp_path / "r" / "critpath.json").read_text())
    lasted = (manifest["end"] - manifest["begin"]) / 1e9
    assert 0 < manifest["layers"]["files"]["open"] <= lasted
    assert manifest["recorder"]["files"]["sleeps"] > 0


@pytest.mark.usefixtures("writer")
def test_what_others_sleep_for_is_none_of_the_commands(record, tmp_path):
    program = "import os; f = os.open('own.log', 65); os.write(f, b'x'); os.fsync(f)"
    words = (
        "--files",
        "--recorder",
        "ftrace",
        "--",
        "sh",
        "-c",
        f'{sys.executable} -c "{program}"',
    )
    record(tmp_path, "r", *words)
    assert "fsync(own.log)" in named(tmp_path / "r")
    assert not [name for name in named(tmp_path / "r") if "first.log" in name]
