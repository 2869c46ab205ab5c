"""A flight recorder of a played kernel, in played time: see `fly`."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from critpath.errors import CritpathError
from critpath_record import manifests
from critpath_record.budget import gaps, gates, loop, natural, policies
from critpath_record.budget.control import Budget
from critpath_record.flight import dumps, memory, service, state, triggers
from critpath_record.flight.conditions import Condition
from critpath_record.flight.service import Flight, FlightRequest, Refusals
from critpath_record.ftrace import drain, tracefs

sys.path.insert(0, str(Path(__file__).parent))
from budgeted import Busy
from played_time import play_time


class Making:
    """In place of the process that makes a recording of what was moved: made at once."""

    pid = -1

    def __init__(self, words: Sequence[str], **_: object) -> None:
        told, said = b"0", b""
        self.returncode = 0
        try:
            told = b"%d" % dumps._finish(Path(words[-2]))
        except CritpathError as error:
            said, self.returncode = error.what.encode(), 1
        self.stdout, self.stderr = io.BytesIO(told), io.BytesIO(said)

    def poll(self) -> int:
        return self.returncode


class NoThreads:
    """In place of the threads whose time slices are compared: there are none."""

    def scan(self) -> None: ...

    def read(self) -> dict[str, tuple[float, int]]:
        return {}

    def close(self) -> None: ...


class Flown:
    """A flight recorder that runs in a thread, and what it is told."""

    def __init__(
        self, patch: pytest.MonkeyPatch, kernel: Any, place: Path, *when: str, **more: Any
    ) -> None:
        self.kernel, self.place = kernel, place
        kernel.clock.now -= 2_000_000_000  # it begins before what may be played
        self.said: list[str] = []
        self.signals = -1
        modules = (loop, gates, policies, natural, gaps, service, memory, triggers, manifests)
        self.time = play_time(patch, *modules, clock=kernel.clock)
        self.time.loops = 0  # until it runs
        self.time.step = 0.01
        self.time.happen = self.happen
        self.busy: list[Busy] = []
        self.work = 0.2  # of a second, that cpu 0 is busy
        self._patch(patch)
        values: dict[str, Any] = {
            "budget": Budget(more.pop("overhead", 0.5), 1.0, calibrate="off"),
            "keep": 300.0,
            "memory": 8 << 20,
            "conditions": tuple(map(Condition.parse, when)),
            "at_most": 6,
            "dumps": 20,
            "profiles": ("minimal",),
        }
        self.flight = Flight(FlightRequest(place, **values | more), self.said.append)
        self.flight._refusals = Refusals(self.flight.request.at_most, self.time.monotonic)
        self.failure: BaseException | None = None
        self.runs = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        assert self.runs.wait(60)
        assert self.failure is None, self.failure
        self.time.loops = 1
        self.time.pass_time(0.1)  # it looks, and opens

    def _patch(self, patch: pytest.MonkeyPatch) -> None:
        self._short = tempfile.TemporaryDirectory(dir="/tmp")  # a socket's path is short
        run = Path(self._short.name) / "run"
        run.mkdir(mode=0o700)
        patch.setattr(state, "registry_directory", lambda **_: run)
        patch.setattr(state, "find_flights", lambda: sorted(run.glob("flight-*")))
        self.run_directory = run
        patch.setattr(dumps.subprocess, "Popen", Making)
        patch.setattr(natural, "Threads", NoThreads)
        patch.setattr(service.ftrace, "find_needs", lambda _: [])
        patch.setattr(service, "remove_leftovers", lambda _: None)
        patch.setattr(service, "allow_pipes", lambda _: None)
        patch.setattr(service, "_signals", self._signals)
        patch.setattr(service, "_notify", lambda *lines: self._notified(lines))
        rows = [tuple(row) for row in self.kernel.recording.json("statedump")]
        patch.setattr(tracefs, "scan_threads", lambda: rows)
        for module in (memory, drain):
            patch.setattr(module, "raise_priority", lambda *_: "normal")
        patch.setattr(loop, "start_thread", lambda work: work())
        patch.setattr(loop, "BusyTimes", self._make_busy)

    def _make_busy(self, cpus: tuple[int, ...]) -> Busy:
        self.busy.append(Busy(cpus))
        return self.busy[-1]

    @contextlib.contextmanager
    def _signals(self) -> Iterator[int]:
        reading, self.signals = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            yield reading
        finally:
            os.close(reading)
            os.close(self.signals)

    def _notified(self, lines: Sequence[str]) -> None:
        if lines[0] == "READY=1":
            self.runs.set()

    def _run(self) -> None:
        try:
            self.flight.run()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self.failure = error
        self.runs.set()

    def happen(self, seconds: float) -> None:
        for busy in self.busy[-1:]:
            busy.times[0] += seconds * self.work

    # What a test says

    def switch(self, times: int = 50) -> None:
        """Let threads run in turn, so that there is something to record."""
        values = {"prev_comm": b"a", "next_comm": b"b", "next_pid": 7}
        self.kernel.emit("sched/sched_switch", 0, times=times, **values)

    def mark(self, *texts: str) -> None:
        for text in texts:
            self.kernel.mark(text)
        self.kernel.end_pages()

    def signal(self, number: int) -> None:
        os.write(self.signals, bytes([number]))
        self.time.settle()

    def send(self, message: bytes) -> bytes:
        """Return what it answers to a message of any kind."""
        with self.connect() as to:
            to.send(message)
            return to.recv(1 << 20)

    def connect(self) -> socket.socket:
        to = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        to.settimeout(60)
        to.connect(str(state.socket_path(state.lock_path(self.place))))
        return to

    def ask(self, **document: object) -> dict[str, Any]:
        return json.loads(self.send(json.dumps(document).encode()))

    def status(self) -> dict[str, Any]:
        return self.ask(status=True)

    @property
    def dumps(self) -> list[Path]:
        return dumps.find_dumps(self.place)

    def instance(self, layer: str = "") -> Path:
        """Return the directory of a layer, or of what is always recorded."""
        start = f"critpath-layer-{layer}." if layer else self.flight.session
        [name] = [n for n in self.kernel.instances if n.startswith(start)]
        return self.kernel.root / "instances" / name

    def end(self) -> None:
        """End it as by Ctrl-C; idempotent."""
        if self.thread.is_alive():
            os.write(self.signals, bytes([2]))
            self.thread.join(60)
        self._short.cleanup()
        self.time.close()
        assert not self.thread.is_alive()
        assert self.failure is None, self.failure
