"""Hosts that are played: what each would send over ssh is there from the beginning."""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MANIFEST = b'{"format": "critpath/recording/1"}'


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return an archive as a host sends it."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


@dataclass
class PlayedHost:
    """A host that answers as a sound one does, but for what is said.

    Attributes
    ----------
    ready, done : str
        Its two answers; what comes after another one is not sent.
    clock : bool
        Says what time it is; else it says that it is about to, and no more.
    files : mapping
        Of its recording.
    told : str
        What ssh prints to stderr.
    code : int
        What ssh ends with.
    silent : bool
        After all of it the line stays open.
    """

    ready: str = "critpath-hosts ready /tmp/there\tcritpath @"
    done: str = "critpath-hosts done"
    clock: bool = True
    files: Mapping[str, bytes] = field(default_factory=lambda: {"critpath.json": MANIFEST})
    told: str = ""
    code: int = 0
    silent: bool = False

    def answer(self, version: str, *, probes: bool) -> bytes:
        ticks = b"".join(b"%d\n" % n for n in range(200)) if self.clock else b""
        clock = b"critpath-hosts clock\n" + ticks if probes else b""
        sent = b""
        for text in (self.ready, self.done):
            sent += text.replace("@", version).encode() + b"\n" * bool(text)
            if not re.match(r"critpath-hosts (ready|done)\b", text):
                return sent
            sent += clock
            if probes and not self.clock:
                return sent
        return sent + pack(self.files)


class PlayedSsh:
    """In the place of ssh's process; `heard` returns what the host was sent."""

    def __init__(self, sent: bytes, told: bytes, code: int, *, silent: bool) -> None:
        self._listening, speaking = os.pipe()
        self.stdin = os.fdopen(speaking, "wb")
        reader, self._sending = os.pipe()
        self.stdout = os.fdopen(reader, "rb")
        errors, complaining = os.pipe()
        self.stderr = os.fdopen(errors, "rb", buffering=0)
        os.write(complaining, told)
        os.close(complaining)
        os.write(self._sending, sent)  # less than a pipe takes
        self.killed = False
        self._code = code
        if not silent:
            self._hang_up()

    def _hang_up(self) -> None:
        if self._sending >= 0:
            os.close(self._sending)
            self._sending = -1

    def heard(self) -> list[str]:
        return os.read(self._listening, 4096).decode().split()

    def poll(self) -> int | None:
        return self.wait() if self._code else None

    def wait(self, _seconds: float | None = None) -> int:
        return -9 if self.killed else self._code

    def kill(self) -> None:
        self.killed = True
        self._hang_up()


class PlayedNetwork:
    """What of `subprocess` the module uses that calls ssh, with a played host for each name."""

    DEVNULL, PIPE = subprocess.DEVNULL, subprocess.PIPE
    TimeoutExpired = subprocess.TimeoutExpired

    def __init__(self, version: str, **hosts: PlayedHost) -> None:
        self.version, self.hosts = version, hosts
        self.calls: dict[str, list[str]] = {}  # of ssh, by host
        self.lines: dict[str, PlayedSsh] = {}

    def Popen(self, words: Sequence[str], **_: Any) -> PlayedSsh:  # noqa: N802 - as it is called
        *_, name, script = words
        host = self.hosts[name.rpartition("@")[2]]
        self.calls[name] = [*words]
        sent = host.answer(self.version, probes="tell_time\n" in script.partition("ready")[2])
        line = PlayedSsh(sent, host.told.encode(), host.code, silent=host.silent)
        self.lines[name] = line
        return line
