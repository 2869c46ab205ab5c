"""Watches for what a flight recorder saves its memory for."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError
from critpath.units import format_ns, format_share
from critpath_record.flight.conditions import EXIT, LATENCY, LOSS, OVERHEAD, PRESSURE, Condition
from critpath_record.flight.dumps import Trigger
from critpath_record.flight.live import MARKER, Execution, LiveExecutions
from critpath_record.flight.noticing import RequestConditions
from critpath_record.scripts import listen

_PRESSURE: Final = Path("/proc/pressure")
_EXITED: Final = 0x8000_0000  # of linux/cn_proc.h
_AT: Final = 36  # where an event says what it is
_EXIT_EVENT: Final = struct.Struct(
    "=IIQ6I"
)  # what, cpu, time, thread, process, code, signal, parents
_MOST: Final = 1000  # events at a time


class Triggers:
    """The conditions of a flight recorder, from construction to `close`."""

    def __init__(self, conditions: Sequence[Condition]) -> None:
        self.conditions = tuple(conditions)
        self._pressure: dict[int, Condition] = {}
        self._exits: socket.socket | None = None
        self._totals: dict[Condition, tuple[int, int]] = {}  # when looked at last, and us then
        self._lost: int | None = None
        self.requests: RequestConditions | None = None  # where sockets are followed
        try:
            for one in self.conditions:
                if one.word == PRESSURE:
                    self._watch_pressure(one)
            if self._of(EXIT):
                try:
                    self._exits = listen(_EXITED)
                except OSError as error:
                    raise CritpathError(
                        f"--when exit != 0: the kernel does not tell ({error.strerror})",
                        "leave it out, or run as root outside of a container",
                    ) from None
        except BaseException:
            self.close()
            raise

    def _watch_pressure(self, one: Condition) -> None:
        """Let the kernel tell, or look each second where it refuses: it wants a capability."""
        try:
            self._pressure[_open_pressure(one)] = one
        except OSError as error:
            if (total := _read_total(one.name)) is None:
                raise CritpathError(
                    f"--when {one.text}: the kernel does not tell pressure here ({error.strerror})",
                    "boot with psi=1, or leave this condition out",
                ) from None
            self._totals[one] = (time.monotonic_ns(), total)

    def files(self) -> Iterator[tuple[int, int]]:
        """Yield what to wait for, and how: it comes by itself."""
        yield from ((file, select.POLLPRI) for file in self._pressure)
        if self._exits is not None:
            yield self._exits.fileno(), select.POLLIN

    def follow(self, live: LiveExecutions) -> None:
        """Watch requests, as they are followed."""
        self.requests = RequestConditions(live, self.conditions)

    def _of(self, word: str) -> list[Condition]:
        return [one for one in self.conditions if one.word == word]

    @property
    def watches_marks(self) -> bool:
        """Whether slow executions are watched for, each by itself."""
        return any(not one.window for one in self._of(LATENCY))

    def signalled(self, number: int) -> Condition | None:
        """Return the condition of a signal."""
        return next((one for one in self.conditions if one.signal == number), None)

    def ready(self, descriptor: int, now: int) -> Iterator[Trigger]:
        """Yield what a poll has found."""
        if descriptor in self._pressure:
            one = self._pressure[descriptor]
            said = _read_average(one.name)
            yield Trigger(one.text, said, one.name, at=now)
        elif self._exits is not None and descriptor == self._exits.fileno():
            for pid, code in self._read_exits():
                yield Trigger(self._of(EXIT)[0].text, str(code), id=str(pid), at=now)
                return  # the others are about the same moment

    def _read_exits(self) -> Iterator[tuple[int, int]]:
        for _ in range(_MOST):
            try:
                data = self._exits.recv(4096) if self._exits else b""
            except OSError:  # none is left, or they were too many
                return
            if len(data) < _AT + _EXIT_EVENT.size:
                continue
            found = _EXIT_EVENT.unpack_from(data, _AT)
            what, _, _, thread, process, code, _, _, parent = found
            # A dump of ours that fails is no reason for another.
            if what == _EXITED and thread == process and code and parent != os.getpid():
                yield process, code >> 8 & 0xFF or 128 + (code & 0x7F)

    def ended(self, executions: Sequence[Execution], now: int) -> Iterator[Trigger]:
        """Yield a trigger for the slowest execution of each kind that is too slow."""
        for one in (one for one in self._of(LATENCY) if not one.window):
            of = (e for e in executions if (e.what, e.kind) == (MARKER, one.name))
            slow = [e for e in of if e.end - e.begin > one.limit]
            if slow:
                worst = max(slow, key=lambda e: e.end - e.begin)
                yield Trigger(one.text, format_ns(worst.end - worst.begin), one.name, worst.id, now)

    def counted(self, lost: int, times: float, now: int) -> Iterator[Trigger]:
        """Yield what counts tell: events lost so far, and how many times its target it costs."""
        if self.requests is not None:
            yield from self.requests.look(now)
        seen, self._lost = self._lost, lost
        if seen is not None and lost > seen:
            for one in self._of(LOSS):
                yield Trigger(one.text, str(lost - seen), at=now)
        for one, (then, before) in self._totals.items():
            total = _read_total(one.name)
            if total is not None and now - then >= one.window:
                self._totals[one] = now, total
                part = (total - before) * 1000 / (now - then)
                if part > one.limit / one.window:
                    yield Trigger(one.text, format_share(part), one.name, at=now)
        for one in self._of(OVERHEAD):
            if times > one.limit:
                yield Trigger(one.text, f"{times:.1f}x", at=now)

    def close(self) -> None:
        """Close what is open; idempotent."""
        for descriptor in self._pressure:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._pressure = {}
        if self._exits is not None:
            self._exits.close()
            self._exits = None


def _open_pressure(one: Condition) -> int:
    """Return a descriptor that is ready when there is so much pressure; raises OSError."""
    descriptor = os.open(_PRESSURE / one.name, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        words = f"some {round(one.limit / 1000)} {round(one.window / 1000)}\0"
        os.write(descriptor, words.encode())
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _read_total(name: str) -> int | None:
    """Return the time in which some thread waited for a resource (us), None if unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = (_PRESSURE / name).read_text(encoding="ascii")
        return int(text.partition("\n")[0].split("total=")[1])
    return None


def _read_average(name: str) -> str:
    with contextlib.suppress(OSError):
        line = (_PRESSURE / name).read_text(encoding="ascii").partition("\n")[0]
        return line.partition(" total")[0].removeprefix("some ")
    return ""
