"""Labels of what is received, on this machine's own kernel."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from critpath.errors import CritpathError
from critpath.record import messages
from critpath.record.ftrace import received as module
from critpath.record.ftrace.preflight import missing_requirements
from critpath.record.ftrace.received import ROW, ReceivedLabels, assemble, read_labels
from critpath.record.ftrace.recorder import finish_killed, open_recorder
from critpath.record.recorder import LABELS_FROM, RecorderSettings
from critpath_marks.sessions import new_session_name

HINDERED = [o.what for o in missing_requirements(RecorderSettings("", Path())) if o.fatal]
try:
    module._load(headers=False).__exit__()
except CritpathError as error:
    HINDERED.append(error.what)
pytestmark = pytest.mark.xdist_group("kernel")
needs_kernel = pytest.mark.skipif(bool(HINDERED), reason="; ".join(HINDERED))

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
HEADERS = f"X-Filler: {'x' * 300}\r\ntraceparent: 00-{TRACE}-00f067aa0ba902b7-01\r\n\r\n"
REQUEST = f"GET /users/17?token=hunter2 HTTP/1.1\r\n{HEADERS}".encode()


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = {p.name for p in Path("/proc/self/fd").iterdir()}
    yield
    assert {p.name for p in Path("/proc/self/fd").iterdir()} <= before
    assert [t.name for t in threading.enumerate() if t.name == "labels"] == []


def receive_all(receiver):
    """Receive the same by every call that can be labelled."""
    yield lambda: receiver.recv(4096)
    yield lambda: os.read(receiver.fileno(), 4096)
    yield lambda: receiver.recvmsg(4096)
    yield lambda: receiver.recvmsg_into([bytearray(20), bytearray(4096)])
    yield lambda: os.readv(receiver.fileno(), [bytearray(4096)])


def silent(message):
    assert message


def own_rows(file):
    return [row for row in read_labels(file) if row[2] == os.getpid()]


@needs_kernel
@pytest.mark.parametrize("headers", [False, True])
def test_what_is_received_is_labelled_and_nothing_else_kept(tmp_path, headers):
    file = tmp_path / "labels"
    labels = ReceivedLabels(file, headers=headers)
    labels.start()
    sender, receiver = socket.socketpair()
    with sender, receiver:
        for receive in receive_all(receiver):
            sender.sendall(REQUEST)
            receiver.recv(10, socket.MSG_PEEK)
            receive()
        for other in (b"HTTP/1.1 200 OK\r\n\r\n", b"whatever", b"\x16\x03\x01\0"):
            sender.sendall(other)
            receiver.recv(4096)
    had = labels.stop()
    rows = own_rows(file)
    assert [row[5] for row in rows] == ["GET /users/:id"] * 5
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


@needs_kernel
def test_a_recording_has_labels_as_events(tmp_path, rows):
    settings = RecorderSettings(
        new_session_name(), tmp_path, profile="requests", labels_from=LABELS_FROM[-1]
    )
    recorder = open_recorder(settings)
    recorder.start()
    sender, receiver = socket.socketpair()
    with sender, receiver:
        for _ in range(5):
            sender.sendall(REQUEST)
            receiver.recv(4096)
    recorder.stop()
    recorded = recorder.finish(silent)
    recorded.release()
    found, _ = rows(tmp_path / "trace")
    labels = [(t, fields) for t, _, name, fields in found if name == "critpath_message_label"]
    mine = [(t, fields) for t, fields in labels if fields["label"] == "GET /users/:id"]
    assert len(mine) == 5
    received = [f["sk"] for _, _, name, f in found if name == "sock_recv_length"]
    for when, fields in mine:
        assert fields["sk"] in received
        assert fields["length"] == len(REQUEST)
        halves = fields["trace_id_high"], fields["trace_id_low"]
        assert "".join(f"{half % 2**64:016x}" for half in halves) == TRACE
        near = [
            t for t, _, name, _ in found if name == "sock_recv_length" and abs(t - when) < 10**6
        ]
        assert near
    assert recorded.facts["labels"]["from"] == "bytes,traceparent"
    assert recorded.facts["labels"]["count"] >= 5
    assert not (tmp_path / "raw").exists()
    assert not any(
        b"hunter2" in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()
    )


KILLED = """
import os, signal, socket, sys, time
from pathlib import Path
from critpath.record.ftrace.recorder import open_recorder
from critpath.record.recorder import RecorderSettings
from critpath_marks.sessions import new_session_name
session = new_session_name()
print(session, flush=True)
recorder = open_recorder(
    RecorderSettings(session, Path(sys.argv[1]), profile="requests", labels_from="bytes")
)
recorder.start()
a, b = socket.socketpair()
for _ in range(50):
    a.sendall(b"GET /users/17?token=hunter2 HTTP/1.1\\r\\n\\r\\n")
    b.recv(100)
time.sleep(1)
a.sendall(b"GET /last HTTP/1.1\\r\\n\\r\\n")
b.recv(100)
os.kill(os.getpid(), signal.SIGKILL)
"""


@needs_kernel
def test_a_killed_recorder_leaves_no_program_in_the_kernel_and_labels_only(tmp_path, rows):
    from critpath.record.ftrace.cleanup import find_leftovers  # noqa: PLC0415 - kernel only

    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    assert done.returncode == -signal.SIGKILL
    left = [one for one in find_leftovers() if one.session == done.stdout.strip()]
    assert left
    for one in left:
        one.remove()
    assert not any(b"hunter2" in f.read_bytes() for f in tmp_path.rglob("*") if f.is_file())
    finished = finish_killed(tmp_path, silent)
    assert finished is not None
    finished.release()
    assert finished.facts["labels"] == {"from": "bytes"}
    found, _ = rows(tmp_path / "trace")
    labels = [f["label"] for _, _, name, f in found if name == "critpath_message_label"]
    assert labels.count("GET /users/:id") == 50
    # No program runs any more: a new one alone sees what is received.
    assert not any(
        "raw_tracepoint" in Path(f"/proc/{pid}/fdinfo/{fd}").read_text(encoding="ascii")
        for pid, fd in descriptors()
    )


@needs_kernel
@pytest.mark.long
@pytest.mark.parametrize("after", [0.3, 0.6, 0.9, 1.2, 1.8, 2.5])
def test_a_command_killed_at_any_moment_leaves_nothing_attached(tmp_path, after):
    from critpath.record.ftrace.cleanup import find_leftovers  # noqa: PLC0415 - kernel only

    before = {one.session for one in find_leftovers()}
    words = ["-m", "critpath", "record", "-a", "--duration", "5", "--quiet", "--no-probe"]
    words += ["--profile", "requests", "--labels-from", "bytes", "-o", str(tmp_path / "r")]
    with subprocess.Popen([sys.executable, *words], stderr=subprocess.DEVNULL) as command:
        time.sleep(after)
        command.kill()
    for one in find_leftovers():
        if one.session not in before:
            one.remove()
    held = {pid for pid, _ in descriptors()}
    assert str(command.pid) not in held


def descriptors():
    for place in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if "bpf" in str(place.readlink()):
                yield place.parts[2], place.name
        except OSError:
            continue


@needs_kernel
def test_without_sockets_there_is_nothing_to_label(tmp_path):
    settings = RecorderSettings(
        new_session_name(), tmp_path, profile="minimal", labels_from=LABELS_FROM[0]
    )
    recorder = open_recorder(settings)
    with pytest.raises(CritpathError, match="nothing here records their sockets") as refused:
        recorder.start()
    recorder.abort()
    assert "--profile requests" in refused.value.do
    assert not (tmp_path / "raw").exists()


@pytest.mark.parametrize(
    ("number", "said"), [(errno.EPERM, "EPERM"), (errno.ENOSYS, "ENOSYS"), (errno.EINVAL, "EINVAL")]
)
def test_a_kernel_that_refuses_the_program_is_named(tmp_path, monkeypatch, number, said):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("critpath.record.bpf.call", refuse)
    monkeypatch.setattr(module.platform, "machine", lambda: "x86_64")
    with pytest.raises(CritpathError, match=said) as refused:
        ReceivedLabels(tmp_path / "labels", headers=False)
    assert "--labels-from" in refused.value.do
    assert list(tmp_path.iterdir()) == []


def test_other_processors_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(module.platform, "machine", lambda: "aarch64")
    with pytest.raises(CritpathError, match="x86-64 only, this is aarch64"):
        ReceivedLabels(tmp_path / "labels", headers=False)


def test_programs_jump_to_where_they_say():
    for headers in (False, True):
        code = assemble(3, 4, headers=headers)
        assert len(code) % 8 == 0
        assert len(code) // 8 < 4096
        last = code[-8:]
        assert last[0] == 0x95


def test_a_file_that_ends_within_a_row_is_read_as_far_as_it_goes(tmp_path):
    file = tmp_path / "labels"
    assert list(read_labels(file)) == []
    row = ROW.pack(5, 7, 9, 11, bytes(16), "GET /ä".encode())
    file.write_bytes(row * 3 + row[:50])
    assert [r[5] for r in read_labels(file)] == ["GET /ä"] * 3
