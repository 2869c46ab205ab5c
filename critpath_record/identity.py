"""What every process of a recorded command carries, and what recording needs of this machine."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from critpath_marks.sessions import owner_of, start_time
from critpath_record.proc import read_text

_T = TypeVar("_T")

# The session's name, in the environment of the command and its descendants: when the process
# that made the session is gone, whatever carries its name is a leftover.
SESSION_VARIABLE: Final = "CRITPATH_SESSION"

# Inode number of the initial pid namespace on every kernel (PROC_PID_INIT_INO).
INITIAL_PID_NAMESPACE: Final = 0xEFFFFFFC

# What is wrong, and what to do about it.
NO_PROC: Final = (
    "/proc is not mounted, or not that of this process's pid namespace",
    "mount -t proc proc /proc",
)
FOREIGN_CLOCK: Final = (
    "this is inside a time namespace: its clock is not the one that the kernel's events have",
    "record outside, choosing the container: critpath record -a --container NAME",
)


def is_dead_session(name: str) -> bool:
    """Return whether a name is that of a session of ours whose process is certainly gone."""
    owner = owner_of(name)
    return owner is not None and owner.is_gone() is True


def lacks_proc() -> bool:
    """Return whether /proc does not show this process, so that nothing here can work."""
    return not start_time(os.getpid())


def has_foreign_clock() -> bool:
    """Return whether this process is in a time namespace with another monotonic clock."""
    lines = [line.split() for line in read_text("/proc/self/timens_offsets").splitlines()]
    return any(line[0] == "monotonic" and {*line[1:]} != {"0"} for line in lines if line)


CAP_SYS_MODULE: Final = 16
CAP_SYS_ADMIN: Final = 21
CAP_PERFMON: Final = 38
CAP_BPF: Final = 39


def has_capability(number: int) -> bool:
    """Tell whether this process has a capability at hand; if unknown, a try will tell."""
    found = re.search(r"^CapPrm:\s*([0-9a-f]+)$", read_text("/proc/self/status"), re.MULTILINE)
    return found is None or bool(int(found[1], 16) >> number & 1)


def look_inside(place: str | Path, kind: int, look: Callable[[], _T]) -> _T | None:
    """Return what a thread finds in another namespace; None where it may not enter (setns)."""
    found: list[_T] = []

    def enter_and_look() -> None:
        # Only this thread enters; with its end nothing is left to undo.
        with contextlib.suppress(OSError):
            descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if ctypes.CDLL(None).setns(descriptor, kind) == 0:
                    found.append(look())
            finally:
                os.close(descriptor)

    thread = threading.Thread(target=enter_and_look, name="critpath-inside")
    thread.start()
    thread.join()
    return found[0] if found else None
