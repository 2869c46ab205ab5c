"""The processes that a command has started: who they are, and how they are ended."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A process, told from a later one with the same pid by its start.

    Attributes
    ----------
    pid, parent, group : int
    started : int
        Clock ticks since boot.
    alive : bool
        False for a zombie.
    """

    pid: int
    parent: int
    group: int
    started: int
    alive: bool

    def send(self, number: int) -> None:
        """Send a signal, unless the process is gone."""
        try:
            handle = os.pidfd_open(self.pid)
        except OSError as error:
            if error.errno == errno.ENOSYS:  # Linux before 5.3
                self._send_by_pid(number)
            return
        try:
            # The handle is of the process that has the pid now.
            now = _look(self.pid)
            if now is not None and now.started == self.started:
                signal.pidfd_send_signal(handle, number)
        except OSError:  # gone, or of a user that we may not signal
            return
        finally:
            os.close(handle)

    def _send_by_pid(self, number: int) -> None:
        """Send a signal where there are no handles: between look and kill is a moment."""
        now = _look(self.pid)
        if now is not None and now.started == self.started:
            with contextlib.suppress(OSError):
                os.kill(self.pid, number)


def descendants(root: int, without: Iterable[int] = ()) -> list[Process]:
    """Return the descendants of a process, its zombies too, parents first.

    Parameters
    ----------
    root : int
    without : iterable of int
        Pids that are left out with all that is below them.
    """
    children: dict[int, list[Process]] = {}
    for process in _all():
        children.setdefault(process.parent, []).append(process)
    left_out = set(without)
    found: list[Process] = []
    pending = [root]
    while pending:
        below = [p for p in children.get(pending.pop(), ()) if p.pid not in left_out]
        found += below
        pending += [p.pid for p in below]
    return found


def _all() -> list[Process]:
    # Not every kernel offers /proc/PID/task/TID/children.
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
    return [found for pid in pids if (found := _look(pid)) is not None]


def _look(pid: int) -> Process | None:
    try:
        data = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # A name may hold spaces and brackets: count from the last bracket.
    fields = data.rpartition(b")")[2].split()
    return Process(
        pid, int(fields[1]), int(fields[2]), int(fields[19]), alive=fields[0] not in {b"Z", b"X"}
    )
