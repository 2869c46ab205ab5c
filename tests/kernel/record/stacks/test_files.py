"""Files and peers of this kernel: in the recording, and named by the first cause."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time

import pytest

from critpath.record.stacks.sources import find_obstacles

pytestmark = pytest.mark.xdist_group("kernel")

ODD = "o\x1b[31md<b>d.log"
PROGRAM = f"""import os, socket, sys
fault, ports = sys.argv[1], [int(port) for port in sys.argv[2:]]
def keep(name, size):
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(file, os.urandom(size))
    os.fsync(file)
    os.close(file)
for name in ("data.log", "audit.log", {ODD!r}):
    keep(name, 16 << 20 if fault == name else 4096)
for number, port in enumerate(ports):
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(b"slow" if fault == "peer" and number else b"fast")
        peer.recv(16)
"""


@pytest.fixture(autouse=True)
def _can_record():
    if obstacles := find_obstacles("files"):
        pytest.skip(obstacles[0].what)


@pytest.fixture
def ports():
    """Two peers, which answer late if they are asked to."""
    found, servers = [], [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]

    def answer(server):
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            with peer:
                time.sleep(0.3 if peer.recv(16) == b"slow" else 0)
                peer.sendall(b"ok")

    for server in servers:
        found.append(str(server.getsockname()[1]))
        threading.Thread(target=answer, args=(server,), daemon=True).start()
    yield found
    for server in servers:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def record(critpath_process, place, name, ports, runs):
    (place / "app.py").write_text(PROGRAM)
    done = critpath_process(
        *(
            "record",
            "--files",
            "--recorder",
            "ftrace",
            "-n",
            str(runs),
            "-o",
            place / f"{name} run",
        ),
        *("--", sys.executable, place / "app.py", name, *ports),
        cwd=place,
    )
    if "cannot record here" in done.stderr or "the kernel refuses" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_names_are_in_the_recording_and_nothing_else_of_memory(critpath_process, tmp_path, ports):
    record(critpath_process, tmp_path, "normal", ports, 2)
    stacks = tmp_path / "normal run" / "stacks"
    assert {file.name for file in stacks.iterdir()} == {"files.json", "files.bin"}
    named = {frame[0] for frame in json.loads((stacks / "files.json").read_text())["frames"]}
    assert {"fsync(data.log)", "fsync(audit.log)", "fsync(o?[31md<b>d.log)"} <= named
    assert {f"recvfrom(127.0.0.1:{port})" for port in ports} <= named
    assert not [name for name in named if "\x1b" in name]
    listed = critpath_process("path", tmp_path / "normal run", "--top", "50").stdout
    assert "fsync(audit.log)" in listed
    assert "\x1b" not in listed


@pytest.mark.long
def test_causes_name_the_file_and_the_first_the_peer(critpath_process, tmp_path, ports):
    record(critpath_process, tmp_path, "normal", ports, 8)
    for fault, place in (
        ("audit.log", "fsync(audit.log)"),
        ("peer", f"recvfrom(127.0.0.1:{ports[1]})"),
    ):
        record(critpath_process, tmp_path, fault, ports, 8)
        page = tmp_path / "page.html"
        options = ("--json", tmp_path / "found.json", "--html", page)
        done = critpath_process(
            "compare", tmp_path / "normal run", tmp_path / f"{fault} run", *options
        )
        assert done.returncode in {1, 3}, done.stderr
        causes = json.loads((tmp_path / "found.json").read_text())["causes"]
        # With much to write the cpu, or another file of that disk, may be waited for longer.
        # The peer is recorded as well: it sleeps, and is waited for in the call on its address.
        facts = [cause["facts"] for cause in causes]
        named = [of["location"] or of["waits_at"] for of in facts]
        assert place in (named[:1] if fault == "peer" else named), causes
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


@pytest.mark.long
def test_the_same_path_of_two_servers_is_told_apart(critpath_process, tmp_path):
    place = tmp_path / "run"
    command = ("--", sys.executable, "-c", TWO)
    done = critpath_process(
        "record", "--files", "--recorder", "ftrace", "-o", place, *command, cwd=tmp_path
    )
    if "cannot record here" in done.stderr or "the kernel refuses" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    document = json.loads((place / "stacks" / "files.json").read_text())
    named = {frame[0] for frame in document["frames"] if frame[0].startswith("fsync(")}
    assert named == {"fsync(a/pg_wal/1)", "fsync(b/pg_wal/1)"}
