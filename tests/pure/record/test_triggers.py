"""What a flight recorder's conditions see, of a machine that is played."""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from critpath.errors import CritpathError
from critpath_record.flight import triggers as module
from critpath_record.flight.conditions import Condition
from critpath_record.flight.live import MARKER, PROCESS, Execution
from critpath_record.flight.triggers import Triggers

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "played"))
from played_time import PlayedTime, play_time

MEMORY = "pressure memory some 150ms/1s"


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> PlayedTime:
    played = play_time(monkeypatch, module)
    played.loops = 0
    return played


@pytest.fixture
def pressure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return what stands for ``/proc/pressure/memory``."""
    monkeypatch.setattr(module, "_PRESSURE", tmp_path)
    (tmp_path / "memory").write_text("some avg10=1.00 avg60=2.00 avg300=3.00 total=1000\nfull\n")
    return tmp_path / "memory"


def test_pressure_is_told_by_the_kernel(pressure: Path) -> None:
    triggers = Triggers([Condition.parse(MEMORY)])
    assert list(triggers.files()) == [(*triggers._pressure, select.POLLPRI)]
    assert pressure.read_text().startswith("some 150000 1000000\0")
    [file] = triggers._pressure
    pressure.write_text("some avg10=9.00 avg60=2.00 avg300=3.00 total=2000\n")
    [found] = triggers.ready(file, 77)
    assert (found.when, found.kind, found.at) == (MEMORY, "memory", 77)
    assert found.value == "avg10=9.00 avg60=2.00 avg300=3.00"
    pressure.unlink()
    assert [one.value for one in triggers.ready(file, 78)] == [""]
    triggers.close()
    triggers.close()


def test_where_the_kernel_does_not_tell_it_is_looked_at(
    pressure: Path, time: PlayedTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only of a whole window, and only if it was more than the limit of it."""

    def refuse(_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(module, "_open_pressure", refuse)
    triggers = Triggers([Condition.parse(MEMORY)])
    found = []
    for total in (100_000, 149_000, 301_000, 302_000):
        pressure.write_text(f"some avg10=1.00 avg60=2.00 avg300=3.00 total={1000 + total}\n")
        time.pass_time(0.5)
        found.append([one.value for one in triggers.counted(0, 0.0, time.look())])
    # 0.149 s of the first second, 0.153 s of the next.
    assert found == [[], [], [], ["15 %"]]
    pressure.write_text("nothing")
    time.pass_time(2)
    assert list(triggers.counted(0, 0.0, time.look())) == []
    triggers.close()


def test_a_kernel_without_pressure_is_named(
    pressure: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pressure.unlink()
    with pytest.raises(CritpathError, match="does not tell pressure here") as found:
        Triggers([Condition.parse(MEMORY)])
    assert "psi=1" in found.value.do

    def refuse(_: int) -> socket.socket:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(module, "listen", refuse)
    with pytest.raises(CritpathError, match="the kernel does not tell"):
        Triggers([Condition.parse("exit != 0")])


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Triggers, socket.socket]]:
    """Return triggers that watch exits, and what the kernel writes to."""
    ours, kernel = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.setblocking(False)
    monkeypatch.setattr(module, "listen", lambda _: ours)
    made = Triggers([Condition.parse("exit != 0")])
    yield made, kernel
    made.close()
    kernel.close()


def tell(kernel: socket.socket, pid: int, code: int, *, thread: int = 0, parent: int = 1) -> None:
    event = struct.pack("=IIQ6I", 0x8000_0000, 0, 5, thread or pid, pid, code, 17, parent, parent)
    kernel.send(bytes(36) + event)


def test_a_process_that_fails_is_told_with_its_code(
    exits: tuple[Triggers, socket.socket],
) -> None:
    triggers, kernel = exits
    [(_, mask)] = triggers.files()
    assert mask == select.POLLIN
    kernel.send(b"short")
    tell(kernel, 7, 0)  # it did not fail
    tell(kernel, 8, 3 << 8, thread=9)  # a thread
    tell(kernel, 9, 3 << 8, parent=os.getpid())  # a dump of ours
    tell(kernel, 10, 3 << 8)
    tell(kernel, 11, 9)
    file = triggers._exits.fileno()  # type: ignore[union-attr]
    [found] = triggers.ready(file, 77)
    assert (found.when, found.value, found.id, found.at) == ("exit != 0", "3", "10", 77)
    [found] = triggers.ready(file, 78)  # what was left: by a signal
    assert (found.value, found.id) == (str(128 + 9), "11")
    assert list(triggers.ready(file, 79)) == []


def test_the_slowest_execution_of_a_kind_is_told() -> None:
    triggers = Triggers([Condition.parse("latency checkout > 250ms")])
    assert triggers.watches_marks
    ended = [
        Execution(MARKER, "checkout", "a", 0, 251_000_000),
        Execution(MARKER, "checkout", "b", 0, 900_000_000),
        Execution(MARKER, "view", "c", 0, 10**12),
        Execution(PROCESS, "checkout", "d", 0, 10**12),
    ]
    [found] = triggers.ended(ended, 5)
    assert (found.kind, found.id, found.value) == ("checkout", "b", "900 ms")
    assert list(triggers.ended(ended[2:], 5)) == []


def test_losses_and_costs_are_told_by_counts() -> None:
    triggers = Triggers([Condition.parse("loss"), Condition.parse("overhead > 2x")])
    assert not triggers.watches_marks
    assert triggers.signalled(12) is None
    found = [
        [(one.when, one.value) for one in triggers.counted(lost, times, 5)]
        for lost, times in ((7, 0.5), (7, 2.0), (9, 0.1), (9, 2.5))
    ]
    assert found == [[], [], [("loss", "2")], [("overhead > 2x", "2.5x")]]
