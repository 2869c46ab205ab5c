"""Names of recording sessions, and the processes that own them.

Everything a recorder makes outside its output directory (a tracefs instance, an LTTng
session, a session daemon's run directory) carries the session's name, and the name tells
which process made it.  A program that marks executions writes to the instances of live
recorders only; a recorder removes what carries the name of a dead one.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Final

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
        """Return whether the process is gone; None from another pid or time namespace."""
        if self.namespace != pid_namespace():
            return None
        started = start_time(self.pid)
        if started not in {0, self.started} and _time_namespace(self.pid) != _time_namespace():
            return None  # start times depend on the clock of the namespace that reads them
        return started != self.started


def new_session_name() -> str:
    """Return a name for a session of this process that no other has."""
    pid = os.getpid()
    return f"critpath-{pid_namespace()}-{pid}-{start_time(pid)}-{os.urandom(4).hex()}"


def owner_of(name: str) -> Owner | None:
    """Return the owner of a session by its name, None for a name of something else."""
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


def start_time(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; 0 if it is gone.

    A zombie counts as gone: it holds nothing any more.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - pathlib is slow to import
            text = file.read()
    except OSError:
        return 0
    # The command's name may hold spaces and brackets: count from the last bracket.
    fields = text.rpartition(")")[2].split()
    return 0 if fields[0] in "ZX" else int(fields[19])
