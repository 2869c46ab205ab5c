"""Labels of what is received, from a program in the kernel that is played."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.errors import CritpathError
from critpath_record import messages
from critpath_record.ftrace import frames
from critpath_record.ftrace import received as module
from critpath_record.ftrace.frames import END, RESET, SENT, Streams
from critpath_record.ftrace.frames import HEADERS as HEADERS_OF
from critpath_record.ftrace.received import ROW, ReceivedLabels, assemble, read_labels
from critpath_record.recorder import LABELS_FROM

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
HEADERS = f"X-Filler: {'x' * 300}\r\ntraceparent: 00-{TRACE}-00f067aa0ba902b7-01\r\n\r\n"
REQUEST = f"GET /users/17?token=hunter2 HTTP/1.1\r\n{HEADERS}".encode()


class Probe:
    """In place of the program in the kernel: hands over what was put into `received`."""

    def __init__(self, received):
        self.received, self.attached, self.missed = received, False, 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.detach()

    def attach(self, _):
        self.attached = True

    def detach(self):
        self.attached = False

    def take(self):
        while self.received:
            yield self.received.pop(0)

    def lost(self):
        return self.missed


@pytest.fixture
def probe(monkeypatch):
    made = Probe([])
    monkeypatch.setattr(module, "_load", lambda **_: made)
    monkeypatch.setattr(module, "_load_frames", lambda: Probe([]))
    return made


@pytest.fixture
def seen(monkeypatch):
    """Let the program see what it is tried with."""
    monkeypatch.setattr(module, "_check", lambda _: None)


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = {p.name for p in Path("/proc/self/fd").iterdir()}
    yield
    assert {p.name for p in Path("/proc/self/fd").iterdir()} <= before
    assert [t.name for t in threading.enumerate() if t.name == "labels"] == []


@pytest.mark.usefixtures("seen")
@pytest.mark.parametrize("headers", [False, True])
def test_what_is_received_is_labelled_and_nothing_else_kept(tmp_path, probe, headers):
    file = tmp_path / "labels"
    labels = ReceivedLabels(file, headers=headers)
    assert probe.attached
    labels.open()
    most = messages.HEADERS if headers else messages.WINDOW
    others = (b"HTTP/1.1 200 OK\r\n\r\n", b"whatever", b"\x16\x03\x01\0")
    taken = [
        (time, 70 + n, 9, len(data), data[:most])
        for n, (time, data) in enumerate(
            [(5, REQUEST), (4, REQUEST[:20]), *((7, data) for data in others), (9, REQUEST)]
        )
    ]
    probe.missed = 3
    probe.received += taken
    labels.close()
    had = labels.drain(lambda _: None).facts
    assert not probe.attached
    rows = list(read_labels(file))
    assert [row[8] for row in rows] == ["GET /users/:id"] * 3
    full = TRACE if headers else "0" * 32
    assert [row[4].hex() for row in rows] == ["0" * 32, full, full]
    # Of two processors the later may come first.
    assert [row[:4] for row in rows] == [
        *((4, 71, 9, 20), (5, 70, 9, len(REQUEST)), (9, 75, 9, len(REQUEST))),
    ]
    assert had == {"count": 3, "lost": 3, "bytes": messages.WINDOW, "looked_through": most}
    content = file.read_bytes()
    assert len(content) % ROW.size == 0
    assert b"hunter2" not in content


@pytest.mark.usefixtures("probe")
def test_a_program_that_does_not_see_what_is_received_is_refused(tmp_path):
    with pytest.raises(CritpathError, match="does not see what was received"):
        ReceivedLabels(tmp_path / "labels", headers=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("seen")
def test_a_recording_has_labels_as_events(played, probe, tmp_path, rows):
    recorder = played.open_recorder(
        tmp_path / "rec", profile="requests", labels_from=LABELS_FROM[1]
    )
    recorder.open()
    played.play()
    read = next(e for e in played.recording.events if e.name == "sock/sock_recv_length")
    probe.received += [(read.time, 77, 9, len(REQUEST), REQUEST)]
    probe.missed = 2
    recorder.close()
    recorded = recorder.drain(lambda _: None)
    recorded.release()
    found, _ = rows(tmp_path / "rec" / "trace")
    [label] = [fields for _, _, name, fields in found if name == "critpath_message_label"]
    assert (label["label"], label["sk"], label["length"]) == ("GET /users/:id", 77, len(REQUEST))
    halves = label["trace_id_high"], label["trace_id_low"]
    assert "".join(f"{half % 2**64:016x}" for half in halves) == TRACE
    facts = recorded.facts["labels"]
    assert (facts["from"], facts["count"], facts["lost"]) == ("bytes,traceparent", 1, 2)
    assert "2 messages came too fast to be labelled" in recorded.warnings
    assert not (tmp_path / "rec" / "raw").exists()
    files = [file for file in (tmp_path / "rec").rglob("*") if file.is_file()]
    assert not any(b"hunter2" in file.read_bytes() for file in files)


def test_without_sockets_there_is_nothing_to_label(played, tmp_path):
    recorder = played.open_recorder(tmp_path / "rec", profile="minimal", labels_from=LABELS_FROM[0])
    with pytest.raises(CritpathError, match="nothing here records their sockets") as refused:
        recorder.open()
    assert "--profile requests" in refused.value.do
    assert (played.instances, list((tmp_path / "rec").iterdir())) == ([], [])


@pytest.mark.parametrize(
    ("number", "said"), [(errno.EPERM, "EPERM"), (errno.ENOSYS, "ENOSYS"), (errno.EINVAL, "EINVAL")]
)
def test_a_kernel_that_refuses_the_program_is_named(tmp_path, monkeypatch, number, said):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("critpath_record.bpf.call", refuse)
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
    programs = [assemble(3, 4, headers=headers) for headers in (False, True)]
    for code in (*programs, frames.assemble(3, 4, states=5)):
        assert len(code) % 8 == 0
        assert len(code) // 8 < 4096
        last = code[-8:]
        assert last[0] == 0x95


def head(length, kind, flags, stream):
    return length.to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4)


@pytest.mark.usefixtures("seen")
def test_a_message_has_a_row_of_each_stream(tmp_path, monkeypatch):
    block = b"\x83\x44\x0b/shop.S/Get\x5f\x10application/grpc"
    again = b"\x83\xbf\xbe"
    got, sent = bytes([0]) + bytes(6), bytes([1]) + bytes(6)
    framed = Probe([
        (5, 70, 9, 90, head(len(block), 1, 4, 1) + got + block),
        (5, 70, 9, 90, head(12, 0, 1, 1) + got),
        (5, 70, 9, 90, head(len(again), 1, 5, 3) + got + again),
        (5, 70, 9, 90, head(4, 3, 0, 5) + got),
        (7, 70, 9, 40, head(1, 1, 5, 3) + sent + b"\x88"),
        (7, 70, 9, 40, head(4, 0, 1, 0) + sent),
    ])  # fmt: skip
    monkeypatch.setattr(module, "_load", lambda **_: Probe([]))
    monkeypatch.setattr(module, "_load_frames", lambda: framed)
    labels = ReceivedLabels(tmp_path / "labels", headers=False)
    labels.open()
    labels.close()
    called = "POST /shop.S/Get"
    assert [row[:4] + row[5:] for row in read_labels(tmp_path / "labels")] == [
        (5, 70, 9, 90, 1, HEADERS_OF | END, 2 * 9 + len(block) + 12, called),
        (5, 70, 9, 90, 3, HEADERS_OF | END, 9 + len(again), called),
        (5, 70, 9, 90, 5, RESET, 13, ""),
        (7, 70, 9, 40, 3, HEADERS_OF | END | SENT, 10, ""),
    ]


@given(st.lists(st.binary(max_size=60), max_size=6))
def test_whatever_frames_say_they_are_rows_or_nothing(blocks):
    given_ones = [
        (5, 70, 9, 90, head(len(one), kind, kind * 37 & 255, 1 + kind % 3) + bytes(7) + one)
        for kind, one in enumerate(blocks)
    ]
    for row in Streams().tell(given_ones, headers=True):
        assert len(row[8].encode()) <= messages.LABEL


def test_a_file_that_ends_within_a_row_is_read_as_far_as_it_goes(tmp_path):
    file = tmp_path / "labels"
    assert list(read_labels(file)) == []
    row = ROW.pack(5, 7, 9, 11, bytes(16), 0, 0, 0, "GET /ä".encode())
    file.write_bytes(row * 3 + row[:50])
    assert [r[8] for r in read_labels(file)] == ["GET /ä"] * 3
