"""What the files of /proc and /sys say; of one that is gone, or closed to us, nothing."""

from __future__ import annotations

import os
from pathlib import Path


def read_text(place: str | Path) -> str:
    """Return the text of a file, "" where it cannot be read."""
    try:
        with open(place, "rb") as stream:  # noqa: PTH123 - no object for each: some are timed
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return ""


def list_pids(proc: str | Path = "/proc") -> list[int]:
    """Return the processes that there are."""
    return [int(name) for name in os.listdir(proc) if name.isdecimal()]  # noqa: PTH208 - as above


def read_stat(pid: int | str) -> list[str]:
    """Return what is behind the name in a process's ``stat``: state, parent, group, session, ..."""
    # A name may hold spaces and brackets: count from the last bracket.
    return read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()


def read_variable(pid: int | str, name: str) -> str:
    """Return a variable of a process's environment."""
    for variable in read_text(f"/proc/{pid}/environ").split("\0"):
        if variable.startswith(f"{name}="):
            return variable[len(name) + 1 :]
    return ""


def read_name(pid: int | str) -> str:
    """Return what a process is called."""
    return read_text(f"/proc/{pid}/comm").removesuffix("\n")
