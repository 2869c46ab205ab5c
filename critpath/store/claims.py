"""What is written beside its place until it is whole: whose it is, and what nobody's any more.

Whoever writes holds a lock on what it writes for as long as it lives.  What nobody has
locked, a process that was killed has left behind.  Its workers do not inherit that lock:
they have one of each file that they write, and those of the same machine end when it does.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final
from zlib import crc32

_ROOM: Final = 200  # bytes of a name that are kept beside what is added to it
_ENDS: Final = re.compile(r"[0-9a-f]{12}\.(partial|old)")


def beside(target: Path, what: str) -> Path:
    """Return a name beside another that nobody has; it tells of which machine it is."""
    # Locks may not reach from one machine to another that sees the same files.
    return target.with_name(f"{_begun_by_us(target)}{os.urandom(6).hex()}.{what}")


def claimed_file(target: Path) -> IO[bytes]:
    """Create a file beside a place, locked until it is closed."""
    while True:
        path = beside(target, "partial")
        # "xb" under the user's umask: neither follows a link nor leaves a private mode.
        stream = path.open("xb")
        if _claim(stream.fileno(), path):
            return stream
        stream.close()


@contextmanager
def claimed_directory(target: Path) -> Iterator[Path]:
    """Create a directory beside a place, locked until the end."""
    while True:
        path = beside(target, "partial")
        path.mkdir()
        with suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            if _claim(descriptor, path):
                break
            os.close(descriptor)
    try:
        yield path
    finally:
        os.close(descriptor)


def remove_abandoned(target: Path) -> None:
    """Remove what processes of this machine that were killed began beside a place.

    Never what another machine or another user began, or a process that lives; what cannot
    be removed stays, and so does what stood at the place as long as nothing new does.
    """
    begins = _begun_by_us(target)
    try:
        with os.scandir(target.parent) as entries:
            names = [entry.name for entry in entries if entry.name.startswith(begins)]
    except OSError:
        return  # whoever creates something there is told why that cannot be
    left = [target.with_name(name) for name in names if _ENDS.fullmatch(name, len(begins))]
    for path in left:
        with suppress(OSError):
            if path.lstat().st_uid != os.geteuid():
                continue
            if path.suffix == ".partial":
                _remove_unclaimed(path)
            elif target.exists():
                _remove(path)


def _begun_by_us(target: Path) -> str:
    """Return how all names begin that `beside` gives of a place on this machine."""
    whose = os.uname().nodename.encode()
    with suppress(OSError):
        whose += Path("/etc/machine-id").read_bytes()
    # Of the whole name as well: another may be the same as far as there is room for it.
    whose += b"/" + os.fsencode(target.name)
    return f".{_cut(target.name)}.{crc32(whose):08x}."


def _cut(name: str) -> str:
    """Return as much of a name as leaves room for more: it has at most 255 bytes."""
    encoded = os.fsencode(name)
    cut = encoded[:_ROOM]
    with suppress(UnicodeDecodeError):
        encoded.decode("utf-8")
        # What is no character by itself is the first part of the one that was cut.
        cut = cut.decode("utf-8", "ignore").encode("utf-8")
    return os.fsdecode(cut)


def _claim(descriptor: int, path: Path) -> bool:
    """Lock a new file or directory; return whether nobody has taken it away before."""
    # Where a file system has no locks nobody gets one, and nothing is taken away.
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return _is_at(descriptor, path)


def let_read(descriptor: int) -> None:
    """Let others read what is locked: on SMB shares nobody else may while it is written."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _remove_unclaimed(path: Path) -> None:
    """Remove a file or directory unless someone holds it."""
    mode = path.lstat().st_mode
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        return
    # NFS locks only what may be written.
    way = os.O_RDONLY if stat.S_ISDIR(mode) else os.O_RDWR
    descriptor = os.open(path, way | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(descriptor, path):
            _remove(path)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
