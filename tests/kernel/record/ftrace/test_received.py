"""Labels of what is received, on this machine's own kernel."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from critpath.errors import CritpathError
from critpath_marks.sessions import new_session_name
from critpath_record import messages, registry
from critpath_record.ftrace import received as module
from critpath_record.ftrace.cleanup import find_leftovers
from critpath_record.ftrace.preflight import find_needs
from critpath_record.ftrace.received import ROW, ReceivedLabels, read_labels
from critpath_record.ftrace.recorder import finish_killed, open_recorder
from critpath_record.recorder import LABELS_FROM, RecorderSettings

HINDERED = [o.what for o in find_needs(RecorderSettings("", Path())) if o.fatal]
try:
    module._load(headers=False).__exit__()
except CritpathError as error:
    HINDERED.append(error.what)
pytestmark = [
    pytest.mark.xdist_group("kernel"),
    pytest.mark.skipif(bool(HINDERED), reason="; ".join(HINDERED)),
]

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
HEADERS = f"X-Filler: {'x' * 300}\r\ntraceparent: 00-{TRACE}-00f067aa0ba902b7-01\r\n\r\n"
REQUEST = f"GET /users/17?token=hunter2 HTTP/1.1\r\n{HEADERS}".encode()


def receive_all(receiver):
    """Receive the same by every call that can be labelled."""
    yield lambda: receiver.recv(4096)
    yield lambda: os.read(receiver.fileno(), 4096)
    yield lambda: receiver.recvmsg(4096)
    yield lambda: receiver.recvmsg_into([bytearray(20), bytearray(4096)])
    yield lambda: os.readv(receiver.fileno(), [bytearray(4096)])


def silent(message):
    assert message


def own_programs():
    """Yield this process's programs in the kernel, and what they are attached to."""
    for place in Path("/proc/self/fd").iterdir():
        try:
            if "bpf" in str(place.readlink()):
                yield place.name
        except OSError:
            continue


@pytest.mark.parametrize("headers", [False, True])
def test_what_is_received_is_labelled_and_nothing_else_kept(tmp_path, headers):
    file = tmp_path / "labels"
    labels = ReceivedLabels(file, headers=headers)
    labels.open()
    sender, receiver = socket.socketpair()
    with sender, receiver:
        for receive in receive_all(receiver):
            sender.sendall(REQUEST)
            receiver.recv(10, socket.MSG_PEEK)
            receive()
        for other in (b"HTTP/1.1 200 OK\r\n\r\n", b"whatever", b"\x16\x03\x01\0"):
            sender.sendall(other)
            receiver.recv(4096)
    labels.close()
    had = labels.drain(lambda _: None).facts
    rows = [row for row in read_labels(file) if row[2] == os.getpid()]
    assert [row[8] for row in rows] == ["GET /users/:id"] * 5
    # The fourth has its first part only: 20 bytes.
    assert [row[4].hex() for row in rows] == [
        TRACE if headers and call != 3 else "0" * 32 for call in range(5)
    ]
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    assert had["lost"] == 0
    assert had["bytes"] == messages.WINDOW
    content = file.read_bytes()
    assert len(content) % ROW.size == 0
    assert b"hunter2" not in content
    assert b"critpath/asks" not in content
    assert list(own_programs()) == []


def test_a_recording_has_labels_of_the_messages_that_it_has(tmp_path, rows):
    settings = RecorderSettings(
        new_session_name(), tmp_path, profile="requests", labels_from=LABELS_FROM[-1]
    )
    recorder = open_recorder(settings)
    recorder.open()
    sender, receiver = socket.socketpair()
    with sender, receiver:
        for _ in range(5):
            sender.sendall(REQUEST)
            receiver.recv(4096)
    recorder.close()
    recorder.drain(silent).release()
    found, _ = rows(tmp_path / "trace")
    labels = [(t, fields) for t, _, name, fields in found if name == "critpath_message_label"]
    mine = [(t, fields) for t, fields in labels if fields["label"] == "GET /users/:id"]
    assert len(mine) == 5
    received = [
        t
        for t, _, name, fields in found
        if name == "sock_recv_length" and fields["sk"] == mine[0][1]["sk"]
    ]
    # One by one: each label has the time of the receive after which the next one comes.
    assert len(received) == 5
    for (when, _), after in zip(mine[:-1], received[1:], strict=True):
        assert when < after
    for (when, _), before in zip(mine[1:], received[:-1], strict=True):
        assert before < when


KILLED = """
import os, signal, socket, sys
from pathlib import Path
from critpath_record import registry
from critpath_record.ftrace.recorder import open_recorder
from critpath_record.recorder import RecorderSettings
from critpath_marks.sessions import new_session_name
session = new_session_name()
registry._ROOT = Path(sys.argv[2])
registry.register(session, Path(sys.argv[1]), "ftrace")
print(session, flush=True)
recorder = open_recorder(
    RecorderSettings(session, Path(sys.argv[1]), profile="requests", labels_from="bytes")
)
recorder.open()
a, b = socket.socketpair()
for _ in range(50):
    a.sendall(b"GET /users/17?token=hunter2 HTTP/1.1\\r\\n\\r\\n")
    b.recv(100)
labels = recorder._labels
while labels.count < 50:
    pass
labels._file.flush()
a.sendall(b"GET /last HTTP/1.1\\r\\n\\r\\n")
b.recv(100)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_recorder_leaves_no_program_in_the_kernel_and_labels_only(
    tmp_path, rows, monkeypatch
):
    place, noted = tmp_path / "rec", tmp_path / "registry"
    place.mkdir()
    monkeypatch.setattr(registry, "_ROOT", noted)
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(place), str(noted)]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    assert done.returncode == -signal.SIGKILL
    left = [one for one in find_leftovers() if one.session == done.stdout.strip()]
    assert left
    for one in left:
        one.remove()
    assert not any(b"hunter2" in f.read_bytes() for f in tmp_path.rglob("*") if f.is_file())
    finished = finish_killed(place, silent)
    assert finished is not None
    finished.release()
    assert finished.facts["labels"] == {"from": "bytes"}
    found, _ = rows(place / "trace")
    labels = [f["label"] for _, _, name, f in found if name == "critpath_message_label"]
    assert labels.count("GET /users/:id") == 50
