"""Names of recording sessions, which identify the process that made them.

Everything a recorder makes outside its output directory (a tracefs instance, an LTTng
session, a session daemon's run directory) carries the session's name, and every process
of the command has it in its environment.  Once the process that a name identifies is
gone, whatever carries the name is a leftover.
"""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# In the environment of the command and its descendants.
SESSION_VARIABLE: Final = "CRITPATH_SESSION"

# What is wrong, and what to do about it.
NO_PROC: Final = (
    "/proc is not mounted, or not that of this process's pid namespace",
    "mount -t proc proc /proc",
)
FOREIGN_CLOCK: Final = (
    "this is inside a time namespace: its clock is not the one that the kernel's events have",
    "record outside, choosing the container: critpath record -a --container NAME",
)

_NAME: Final = re.compile(
    r"critpath-(?P<namespace>\d{1,12})-(?P<pid>\d{1,10})-(?P<started>\d{1,20})-[0-9a-f]{8}"
)


@dataclass(frozen=True)
class Owner:
    """The process that made a session.

    Attributes
    ----------
    namespace : int
        Its pid namespace: a pid means nothing outside.
    pid : int
    started : int
        Its start time in clock ticks since boot, as pids are used again.
    """

    namespace: int
    pid: int
    started: int

    def is_gone(self) -> bool | None:
        """Return whether the process is gone; None if it lives in another pid or time namespace."""
        if self.namespace != pid_namespace():
            return None
        started = start_time(self.pid)
        if started not in {0, self.started} and _time_namespace(self.pid) != _time_namespace():
            return None  # a start is told by the clock of whoever asks
        return started != self.started


def new_session_name() -> str:
    """Return a unique name for a session of this process."""
    pid = os.getpid()
    return f"critpath-{pid_namespace()}-{pid}-{start_time(pid)}-{secrets.token_hex(4)}"


def owner_of(name: str) -> Owner | None:
    """Return the process that a session name identifies, None if the name is not ours."""
    parts = _NAME.fullmatch(name)
    return Owner(*(int(parts[k]) for k in ("namespace", "pid", "started"))) if parts else None


def pid_namespace(pid: int | str = "self") -> int:
    """Return the inode number of a process's pid namespace, 0 if it cannot be read."""
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino  # noqa: PTH116 - no object per process
    except OSError:
        return 0


def _time_namespace(pid: int | str = "self") -> int:
    """Return the inode number of a process's time namespace, 0 if it cannot be read."""
    try:
        return os.stat(f"/proc/{pid}/ns/time").st_ino  # noqa: PTH116 - no object per process
    except OSError:
        return 0


def lacks_proc() -> bool:
    """Return whether /proc does not show this process, so that nothing here can work."""
    return not start_time(os.getpid())


def has_foreign_clock() -> bool:
    """Return whether this process is in a time namespace with another monotonic clock."""
    try:
        text = Path("/proc/self/timens_offsets").read_text(encoding="ascii")
    except (OSError, ValueError):
        return False
    lines = [line.split() for line in text.splitlines()]
    return any(line[0] == "monotonic" and {*line[1:]} != {"0"} for line in lines if line)


def start_time(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; 0 if it is gone.

    A zombie counts as gone, as it holds no resources.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    # The command's name may hold spaces and brackets: count from the last bracket.
    fields = text.rpartition(")")[2].split()
    return 0 if fields[0] in "ZX" else int(fields[19])
