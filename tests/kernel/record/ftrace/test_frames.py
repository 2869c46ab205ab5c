"""Frames of HTTP/2 on this machine's own kernel, however sends and receives cut them."""

from __future__ import annotations

import os
import random
import socket
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from critpath.errors import CritpathError
from critpath_record.ftrace import received as module
from critpath_record.ftrace.frames import END, HEADERS, RESET, SENT
from critpath_record.ftrace.preflight import find_needs
from critpath_record.ftrace.received import ReceivedLabels, read_labels
from critpath_record.recorder import RecorderSettings

HINDERED = [o.what for o in find_needs(RecorderSettings("", Path())) if o.fatal]
try:
    module._load_frames().__exit__()
except CritpathError as error:
    HINDERED.append(error.what)
pytestmark = [
    pytest.mark.xdist_group("kernel"),
    pytest.mark.skipif(bool(HINDERED), reason="; ".join(HINDERED)),
]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
BLOCK = b"\x83\x04\x07/orders\x0f\x10\x10application/grpc"
FLAGS = {(0, 1): END, (0, 0): 0, (1, 4): HEADERS, (1, 5): HEADERS | END, (3, 0): RESET}
TOLD = {*FLAGS}


def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def draw_frames(rng, many):
    """Return frames, and how often each stream's are told of with which flags."""
    drawn, truth = [], Counter()
    for number in range(many):
        stream = 2 * number + 1
        kind, flags = rng.choice(((0, 1), (0, 0), (1, 4), (1, 5), (3, 0), (8, 0), (6, 0), (4, 1)))
        payload = BLOCK if kind == 1 else bytes(rng.choice((0, 4, 8, 100, 3000, 20_000)))
        drawn.append(frame(kind, flags, stream, payload))
        if (kind, flags) in TOLD:
            truth[stream, FLAGS[kind, flags], 9 + len(payload)] += 1
    return drawn, truth


def send(rng, sender, data):
    """Send all of it at once, by any call."""
    if rng.random() < 0.5:
        sender.sendall(data) if rng.random() < 0.5 else os.write(sender.fileno(), data)
        return
    cuts = sorted({0, len(data), *(rng.randrange(len(data)) for _ in range(rng.randrange(9)))})
    parts = [data[a:b] for a, b in pairwise(cuts)]
    sent = sender.sendmsg(parts) if rng.random() < 0.5 else os.writev(sender.fileno(), parts)
    assert sent == len(data)


def receive(rng, receiver, many):
    while many:
        how = rng.randrange(4)
        size = min(many, rng.choice((3, 9, 50, 4000, 30_000)))
        if how == 0:
            many -= len(receiver.recv(size))
        elif how == 1:
            many -= len(os.read(receiver.fileno(), size))
        else:
            first = rng.randrange(1, size + 1)
            parts = [bytearray(first), bytearray(size - first)]
            if how == 2:
                many -= receiver.recvmsg_into(parts)[0]
            else:
                many -= os.readv(receiver.fileno(), parts)


@pytest.mark.parametrize("seed", range(6))
def test_every_frame_is_told_of_once_in_each_direction(tmp_path, seed):
    rng = random.Random(seed)  # noqa: S311 - no secrets
    labels = ReceivedLabels(tmp_path / "labels", headers=False)
    labels.open()
    sender, receiver = socket.socketpair()
    frames, truth = draw_frames(rng, 200)
    data = []
    while frames:
        many = rng.randrange(1, 8)
        data.append(b"".join(frames[:many]))
        frames = frames[many:]
    with sender, receiver:
        sender.sendall(PREFACE)
        receiver.recv(len(PREFACE))
        for one in data:
            send(rng, sender, one)
            receive(rng, receiver, len(one))
    labels.close()
    rows = [row for row in read_labels(tmp_path / "labels") if row[2] == os.getpid()]
    for way in (SENT, 0):
        mine = [row for row in rows if row[6] & SENT == way and row[5]]
        assert Counter((row[5], row[6] & ~SENT, row[7]) for row in mine) == truth
    whole = [row[8] for row in rows if row[6] & HEADERS and row[6] & SENT]
    assert Counter(whole)["POST /orders"] >= 0.8 * len(whole)
    assert b"application" not in (tmp_path / "labels").read_bytes()


def test_an_older_connection_is_known_by_a_message_of_whole_frames(tmp_path):
    sender, receiver = socket.socketpair()
    labels = ReceivedLabels(tmp_path / "labels", headers=False)
    labels.open()
    with sender, receiver:
        for data in (b"\0\0\x09no frame", frame(1, 4, 7, BLOCK) + frame(0, 1, 7, b"x" * 50)):
            sender.sendall(data)
            receiver.recv(4096)
        sender.sendall(b"\xff" * 50)  # astray
        receiver.recv(4096)
        sender.sendall(frame(0, 1, 9, b""))
        receiver.recv(4096)
    labels.close()
    rows = [row for row in read_labels(tmp_path / "labels") if row[2] == os.getpid()]
    assert [(row[5], row[6] & ~SENT) for row in rows] == [
        *[(7, HEADERS | END)] * 2,
        *[(9, END)] * 2,
    ]
