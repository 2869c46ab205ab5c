"""Target: what a recorder as root is told by programs, runtimes of containers and servers.

The first byte of an input says what (`KINDS`): messages of a connection, HTTP/2 frames and header
blocks, names of control groups, files of runtimes, the answer of a webhook.  Whatever it is, a
label is short and printable, a name is text, and nothing is read beside the place.
"""

from __future__ import annotations

import http.client
import io
import os
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

from contract import ContractError, hold, scratch

from critpath.incidents.webhook import Webhook
from critpath.model.containers import find_group, parse_group
from critpath_record.ftrace.frames import Streams
from critpath_record.group_names import GroupNames, RuntimeFiles
from critpath_record.hpack import Headers
from critpath_record.messages import HEADERS, LABEL, WINDOW, MessageLabels, find_trace_id

KINDS: Final = ("messages", "headers", "frames", "groups", "docker", "podman", "bundle", "webhook")
BETWEEN: Final = b"\n==next==\n"
ID: Final = "0123456789abcdef" * 4
# Where files of each kind are looked for, below the root of a machine.
PLACES: Final = {
    "docker": (
        f"var/lib/docker/containers/{ID}/config.v2.json", "etc/docker/daemon.json", "etc/passwd",
    ),
    "podman": (
        "var/lib/containers/storage/overlay-containers/containers.json",
        "etc/containers/storage.conf", "etc/passwd",
    ),
    "bundle": (
        f"run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json",
        f"run/containers/storage/overlay-containers/{ID}/userdata/config.json",
    ),
}  # fmt: skip
PATHS: Final = {
    "docker": f"/system.slice/docker-{ID}.scope",
    "podman": f"/user.slice/user-1000.slice/libpod-{ID}.scope",
    "bundle": f"/kubepods.slice/kubepods-pod{ID[:32]}.slice/cri-containerd-{ID}.scope",
}


def check_label(label: str) -> None:
    """Refuse a label that a recorder must not keep."""
    if len(label.encode()) > LABEL or not label.isprintable():
        raise ContractError(f"a label {label!r}")


def use_messages(data: bytes) -> None:
    """Label the messages of a connection."""
    labels = MessageLabels()
    for number, one in enumerate(data.split(BETWEEN)):
        check_label(labels.label(number % 2, one[:WINDOW]))
        if len(find_trace_id(one[:HEADERS])) != 16:
            raise ContractError("a trace id of another length")


def use_headers(data: bytes) -> None:
    """Read header blocks of a connection, each whole or not."""
    headers = Headers()
    for one in data.split(BETWEEN):
        label, trace = headers.label(one[1:], whole=bool(one[:1] and one[0] & 1))
        check_label(label)
        if len(trace) != 16:
            raise ContractError("a trace id of another length")


def use_frames(data: bytes) -> None:
    """Follow the streams of frames as the program in the kernel hands them over: 16 bytes first."""
    handed = [
        (number, 1 + number % 3, 7, len(one), one.ljust(16, b"\0"))
        for number, one in enumerate(data.split(BETWEEN))
    ]
    for row in Streams().tell(handed, headers=True):
        check_label(row[8])


def use_groups(data: bytes) -> None:
    """Read names of control groups, as /proc has them."""
    names = GroupNames(empty_root())
    for path in data.decode("utf-8", "replace").split("\n"):
        found = {of.path: of for of in parse_group(path[:4096])}
        find_group(path[:4096], found)
        names.note_birth(path[:4096])
    check_names(names.found)


def check_names(groups: object) -> None:
    """Refuse names that are no short texts."""
    for of in groups:
        for text in (of.name, of.pod, of.namespace, of.image):
            if len(text) > 4096 or "\x1b" in text:
                raise ContractError(f"a name {text!r:.200}")


@cache
def empty_root() -> Path:
    """Return the root of a machine without runtimes."""
    place = scratch() / "empty"
    place.mkdir()
    return place


def use_files(kind: str, data: bytes) -> None:
    """Name a container by files of its runtime."""
    root = scratch() / "machine"
    shutil.rmtree(root, ignore_errors=True)
    for name, content in zip(PLACES[kind], data.split(BETWEEN), strict=False):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    root.mkdir(exist_ok=True)
    found = RuntimeFiles(root).name_group(PATHS[kind], os.geteuid())
    check_names([found] if found else [])


class Answered:
    """A connection that has answered."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, *_: object, **__: object) -> io.BytesIO:
        """Return what it answered."""
        return io.BytesIO(self._data)


def use_answer(data: bytes) -> None:
    """Read a webhook's answer; whatever it is, the next text is sent."""
    hook = Webhook.__new__(Webhook)

    def send(*_: object) -> None:
        answer = http.client.HTTPResponse(Answered(data))  # type: ignore[arg-type]
        answer.begin()
        answer.close()

    hook._send = send
    hook._try(None)  # type: ignore[arg-type]


def one(data: bytes) -> str:
    """Try one input."""
    if not data or data[0] >= len(KINDS):
        return "nothing"
    kind, rest = KINDS[data[0]], data[1:]
    use = {
        "messages": use_messages, "headers": use_headers, "frames": use_frames,
        "groups": use_groups, "webhook": use_answer,
    }  # fmt: skip
    return hold(lambda: use[kind](rest) if kind in use else use_files(kind, rest))


def json_begins(data: bytes) -> int:
    """Return where an input's JSON begins, -1 if it has none."""
    return 1 if data and data[0] < len(KINDS) and KINDS[data[0]] in PLACES else -1
