"""Directories held by a descriptor: what is done in them does not depend on their names.

Root writes below a directory of a user's while a program of that user runs.  A name can
lead elsewhere from one moment to the next; a descriptor cannot.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_DESCRIPTORS: Final = Path("/proc/self/fd")
_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def hold(name: str | Path, *, within: int | None = None) -> int:
    """Open a directory, which is no link; the descriptor is not inherited.

    Parameters
    ----------
    name : str or Path
    within : int, optional
        Descriptor of the directory that has it.
    """
    return os.open(name, _FLAGS, dir_fd=within)


def through(descriptor: int) -> Path:
    """Return a path that leads through a descriptor, for this process only."""
    return _DESCRIPTORS / str(descriptor)


def is_through(path: Path) -> bool:
    """Tell whether a path is that of a descriptor: by its own name it is a link."""
    return path.parent == _DESCRIPTORS


def for_children(path: Path) -> Path:
    """Return a path as a program that this process starts may use it, for as long as both live."""
    descriptor = str(path).removeprefix("/proc/self/")
    return path if descriptor == str(path) else Path(f"/proc/{os.getpid()}/{descriptor}")


def identity_of(status: os.stat_result) -> tuple[int, int]:
    """Return what tells a file from all others that are there."""
    return status.st_dev, status.st_ino


def say_name(error: BaseException, held: Path, name: Path) -> None:
    """Give an error the name that the user knows, for the path through a descriptor."""
    for attribute in ("what", "do", "filename", "filename2"):
        said = getattr(error, attribute, None)
        if isinstance(said, str):
            setattr(error, attribute, with_name(said, held, name))
    error.args = tuple(with_name(a, held, name) if isinstance(a, str) else a for a in error.args)


def with_name(text: str, held: Path, name: Path) -> str:
    """Return a sentence with the name that the user knows."""
    return text.replace(f"{held}/", f"{name}/").replace(str(held), str(name))
