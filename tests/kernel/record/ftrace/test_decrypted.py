"""Labels of what TLS hides, on this machine's own kernel and with its own OpenSSL."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import threading

import pytest

from critpath.errors import CritpathError
from critpath_marks.sessions import new_session_name
from critpath_record.ftrace import decrypted as module
from critpath_record.ftrace import frames
from critpath_record.ftrace.decrypted import Decrypted
from critpath_record.ftrace.received import ReceivedLabels, read_labels
from critpath_record.ftrace.recorder import open_recorder
from critpath_record.recorder import LABELS_FROM, RecorderSettings
from tests.kernel.record.ftrace.test_received import HINDERED, TRACE, own_programs

HINDERED = [*HINDERED]
try:
    Decrypted(headers=False).__exit__()
except CritpathError as error:
    HINDERED.append(error.what)
pytestmark = [
    pytest.mark.xdist_group("kernel"),
    pytest.mark.skipif(bool(HINDERED), reason="; ".join(HINDERED)),
]

HEADERS = f"X-Filler: {'x' * 300}\r\ntraceparent: 00-{TRACE}-00f067aa0ba902b7-01\r\n\r\n"
REQUEST = f"GET /users/17?token=hunter2 HTTP/1.1\r\n{HEADERS}".encode()
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture(scope="module")
def contexts(tmp_path_factory):
    """Return how a server and a client encrypt."""
    place = tmp_path_factory.mktemp("tls")
    key, certificate = place / "key.pem", place / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3"]
    command += ["-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    serves, asks = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    serves.load_cert_chain(certificate, key)
    asks.check_hostname, asks.verify_mode = False, ssl.CERT_NONE
    return serves, asks


def connect(contexts, *, memory):
    """Return the two ends of a connection; the server's in memory, as asyncio has it, or not."""
    serves, asks = contexts
    with socket.create_server(("127.0.0.1", 0)) as listener:
        plain = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    made = []
    thread = threading.Thread(target=lambda: made.append(asks.wrap_socket(plain)))
    thread.start()
    server = InMemory(accepted, serves) if memory else serves.wrap_socket(accepted, True)
    thread.join()
    return server, made[0]


class InMemory:
    """What is received goes to the library by memory, and back."""

    def __init__(self, plain, context):
        self._plain, self._in, self._out = plain, ssl.MemoryBIO(), ssl.MemoryBIO()
        self._session = context.wrap_bio(self._in, self._out, server_side=True)
        self._repeat(self._session.do_handshake)

    def _repeat(self, action):
        while True:
            try:
                return action()
            except ssl.SSLWantReadError:
                self._flush()
                self._in.write(self._plain.recv(1 << 16))
            finally:
                self._flush()

    def _flush(self):
        if data := self._out.read():
            self._plain.sendall(data)

    def recv(self, size):
        return self._repeat(lambda: self._session.read(size))

    def sendall(self, data):
        self._repeat(lambda: self._session.write(data))

    def close(self):
        self._plain.close()


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("headers", [False, True])
def test_what_is_decrypted_is_labelled_and_nothing_else_kept(tmp_path, contexts, headers, memory):
    file = tmp_path / "labels"
    labels = ReceivedLabels(file, headers=headers, decrypted=Decrypted(headers=headers))
    labels.open()
    for _ in range(2):
        server, client = connect(contexts, memory=memory)
        for _ in range(3):
            client.sendall(REQUEST)
            assert server.recv(4096) == REQUEST
            server.sendall(ANSWER)
            assert client.recv(4096) == ANSWER
        client.close()
        server.close()
    labels.close()
    facts = labels.drain(lambda _: None).facts
    rows = [row for row in read_labels(file) if row[2] == os.getpid()]
    assert [row[8] for row in rows] == ["GET /users/:id"] * 6
    assert [row[3] for row in rows] == [len(REQUEST)] * 6
    assert {row[4].hex() for row in rows} == {TRACE if headers else "0" * 32}
    assert {row[6] for row in rows} == {frames.SESSION}
    assert [rows[0][1] == row[1] for row in rows] == [True] * 3 + [False] * 3
    assert facts["libraries"] >= 1
    assert facts["lost"] == 0
    assert b"hunter2" not in file.read_bytes()
    assert list(own_programs()) == []


def frame(kind, flags, stream, block=b""):
    return len(block).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + block


def test_frames_of_encrypted_connections_are_told(tmp_path, contexts):
    file = tmp_path / "labels"
    labels = ReceivedLabels(file, headers=False, decrypted=Decrypted(headers=False))
    labels.open()
    server, client = connect(contexts, memory=True)
    asked = frame(1, 5, 1, b"\x82\x84\x87")  # GET / over https
    client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0) + asked)
    server.recv(4096)
    server.sendall(frame(4, 0, 0) + frame(1, 4, 1, b"\x88"))
    server.sendall(frame(0, 1, 1, b"x" * 3000))
    while len(client.recv(4096)) != 3009:
        pass
    client.sendall(frame(1, 5, 3, b"\x82\x84\x87"))
    server.recv(4096)
    client.close()
    server.close()
    labels.close()
    # Of both ends: what one sent the other received.
    rows = [row for row in read_labels(file) if row[5]]
    ways = {way: [r for r in rows if r[6] & frames.SENT == way] for way in (0, frames.SENT)}
    told = sorted([
        (1, frames.SESSION | frames.HEADERS, 10, ""),
        (1, frames.SESSION | frames.END, 3009, ""),
        (1, frames.SESSION | frames.HEADERS | frames.END, 12, "GET /"),
        (3, frames.SESSION | frames.HEADERS | frames.END, 12, "GET /"),
    ])  # fmt: skip
    for some in ways.values():
        assert sorted((r[5], r[6] & ~frames.SENT, r[7], r[8]) for r in some) == told
    assert len({row[1] for row in rows}) == 2


def test_a_recording_has_sessions_and_who_used_them(tmp_path, rows, contexts):
    settings = RecorderSettings(
        new_session_name(), tmp_path, profile="requests", labels_from=LABELS_FROM[-1]
    )
    recorder = open_recorder(settings)
    recorder.open()
    server, client = connect(contexts, memory=False)
    client.sendall(REQUEST)
    server.recv(4096)
    client.close()
    server.close()
    recorder.close()
    taken = recorder.drain(lambda _: None)
    taken.release()
    found, _ = rows(tmp_path / "trace")
    [mine] = [
        fields
        for _, _, name, fields in found
        if name == "critpath_message_label" and fields["tid"] == os.getpid()
    ]
    assert (mine["label"], mine["flags"], mine["length"]) == (
        *("GET /users/:id", frames.SESSION, len(REQUEST)),
    )
    assert taken.facts["labels"]["from"] == "bytes,traceparent,tls"


def test_other_users_files_and_what_is_no_library_are_left_alone(tmp_path):
    made = Decrypted(headers=False)
    try:
        known = made.libraries
        copied = tmp_path / "libssl.so.3"
        copied.write_bytes(b"no library")
        file = os.open(copied, os.O_RDONLY)
        made._probe(file, 0)
        assert made.libraries == known
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(file)
    finally:
        made.__exit__()


def test_a_kernel_that_refuses_is_told(monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(module.bpf, "load", refuse)
    with pytest.raises(CritpathError, match="what TLS hides \\(Operation not permitted") as refused:
        Decrypted(headers=False)
    assert "tls" in refused.value.do
    assert list(own_programs()) == []


def test_what_calls_cost_is_measured_and_they_are_counted(contexts):
    with Decrypted(headers=False, streams=False) as made:
        assert 0 < made.measure() < 1e-3
        before = made.count_calls()
        server, client = connect(contexts, memory=False)
        for _ in range(10):
            client.sendall(REQUEST)
            server.recv(4096)
        client.close()
        server.close()
        assert made.count_calls() - before >= 10
    assert list(own_programs()) == []
