"""Directories opened by descriptor, so that what is done in them does not depend on names.

Root writes into a user's directory while a program of that user runs.  The program can
exchange a name at any moment; a descriptor keeps pointing at the same directory.
"""

from __future__ import annotations

import os
import stat
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

_DESCRIPTORS: Final = Path("/proc/self/fd")
_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_dir(name: str | Path, *, dir_fd: int | None = None) -> int:
    """Open a directory that is no link; children do not inherit it."""
    return os.open(name, _FLAGS, dir_fd=dir_fd)


def proc_fd_path(descriptor: int) -> Path:
    """Return the path of an open descriptor, valid in this process only."""
    return _DESCRIPTORS / str(descriptor)


def is_proc_fd_path(path: Path) -> bool:
    """Return whether a path comes from `proc_fd_path`; the path itself is a link."""
    return path.parent == _DESCRIPTORS


def path_for_children(path: Path) -> Path:
    """Return a `proc_fd_path` in a form that child processes can open while this one lives."""
    descriptor = str(path).removeprefix("/proc/self/")
    return path if descriptor == str(path) else Path(f"/proc/{os.getpid()}/{descriptor}")


def is_roots(path: Path) -> bool:
    """Tell whether only root can exchange what a path leads to; raises OSError if it is gone."""
    for above in path.absolute().parents:
        found = above.lstat()
        if found.st_uid or found.st_mode & 0o022 or not stat.S_ISDIR(found.st_mode):
            return False
    return True


def identity_of(status: os.stat_result) -> tuple[int, int]:
    """Return device and inode, which identify a file among all that exist."""
    return status.st_dev, status.st_ino


def restore_name_in_error(error: BaseException, fd_path: Path, name: Path) -> None:
    """Replace a descriptor's path by the user's name for it in everything that an error shows."""
    for attribute in ("what", "do", "filename", "filename2"):
        text = getattr(error, attribute, None)
        if isinstance(text, str):
            setattr(error, attribute, restore_name(text, fd_path, name))
    error.args = tuple(
        restore_name(a, fd_path, name) if isinstance(a, str) else a for a in error.args
    )


def restore_name(text: str, fd_path: Path, name: Path) -> str:
    """Replace a descriptor's path by the user's name for it in a text."""
    return text.replace(f"{fd_path}/", f"{name}/").replace(str(fd_path), str(name))


def list_matching(directory: Path, *levels: str) -> list[Path]:
    """Return what is below a directory under such names, a pattern for each level, in order.

    OSError where one cannot be read, which `Path.glob` leaves out in silence.
    """
    found = [directory]
    for pattern in levels:
        found = [one / n for one in found for n in _list_names(one) if fnmatchcase(n, pattern)]
    return found


def _list_names(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))  # noqa: PTH208 - names
    except (FileNotFoundError, NotADirectoryError):
        return []


def list_metadata(trace: Path) -> list[Path]:
    """Return the metadata of all traces below a directory; OSError as `list_matching`."""
    found = list_matching(trace, "metadata")
    for place in list_matching(trace, "*"):
        if place.is_dir() and not place.is_symlink():
            found += list_metadata(place)
    return found


def write_whole(place: Path, text: str, *, sync: bool = False) -> None:
    """Write a file anew, whole or not at all; raises OSError, and leaves the earlier one."""
    unfinished = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        # O_EXCL: never through a link that someone else put there.
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            if sync:
                os.fsync(descriptor)
        unfinished.replace(place)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
