"""The marker of a recording where other users' programs find it, and where they ask for one.

Done by root alone: below `PLACE`, which belongs to root, a directory that some users can enter, and
in it the marker file of a tracing instance, mounted there (docs/decisions, 12).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import struct
from collections.abc import Sequence
from typing import Final

from critpath_record.rooted import MARKER, PLACE, mount_marker, unmount_marker

EVERYBODY: Final = -1  # in place of a uid
ASK: Final = ".ask"
BACKLOG: Final = 128  # who may wait for a flight recorder's answer
TASKS: Final = ".tasks"  # as programs look for it (critpath_marks.channels)

# Entries of a POSIX ACL (linux/posix_acl_xattr.h): tag, permissions, id.
_OWNER, _USER, _GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x10, 0x20
_ENTER: Final = 1
_NOBODY: Final = 0xFFFFFFFF


def show_marker(instance: str, session: str, users: Sequence[int]) -> str:
    """Let users' programs write to an instance's marker; return where; raises OSError."""
    make_place()
    directory = f"{PLACE}/{session}"
    path = f"{directory}/{MARKER}"
    os.mkdir(directory, 0o700)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0))
    mount_marker(instance, path)
    os.chmod(path, 0o222)  # the kernel's file, which is mounted there
    if EVERYBODY in users:
        os.chmod(directory, 0o711)
    else:
        _let_in(directory, users)
    return path


def hide_marker(session: str) -> None:
    """Undo `show_marker`, as far as it was done."""
    directory = f"{PLACE}/{session}"
    unmount_marker(f"{directory}/{MARKER}")
    with contextlib.suppress(OSError):
        os.unlink(f"{directory}/{MARKER}")
    with contextlib.suppress(OSError):
        os.rmdir(directory)


def make_place() -> None:
    """Make the directory that programs look into; it is root's, as all above it."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(PLACE, 0o755)
        os.chmod(PLACE, 0o755)  # whatever the umask
    found = os.lstat(PLACE)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "not root's alone", PLACE)


def open_requests(session: str) -> socket.socket:
    """Open the socket on which programs ask to mark; raises OSError."""
    make_place()
    found = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        found.setblocking(False)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        found.bind(f"{PLACE}/{session}{ASK}")
        os.chmod(f"{PLACE}/{session}{ASK}", 0o666)
    except OSError:
        found.close()
        raise
    return found


def tell_tasks(session: str) -> str:
    """Let programs find that a recording asks which task runs; return where; raises OSError."""
    make_place()
    path = f"{PLACE}/{session}{TASKS}"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444))
    return path


def hush_tasks(session: str) -> str:
    """Undo `tell_tasks`."""
    path = f"{PLACE}/{session}{TASKS}"
    with contextlib.suppress(OSError):
        os.unlink(path)
    return path


def hold_lock(name: str, group: int, text: bytes) -> int:
    """Hold a lock in a new file that a group may read; raises OSError, if somebody holds it."""
    make_place()
    path = f"{PLACE}/{name}"
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(FileNotFoundError):  # that of one who is dead
        before = os.open(path, flags)
        try:
            fcntl.flock(before, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(before), os.lstat(path)):
                os.unlink(path)
        finally:
            os.close(before)
    held = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.write(held, text)
    os.fchown(held, -1, group)
    os.fchmod(held, 0o640)
    return held


def open_server(name: str, user: int) -> socket.socket:
    """Open the socket on which a user and root ask who holds a lock; raises OSError."""
    path = f"{PLACE}/{name}.sock"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    found = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        found.bind(path)
        os.chmod(path, 0o600)
        os.chown(path, user, -1, follow_symlinks=False)
        found.listen(BACKLOG)
    except OSError:
        found.close()
        raise
    return found


def _let_in(directory: str, users: Sequence[int]) -> None:
    """Let some users enter a directory, by its access control list."""
    entries = [
        (_OWNER, 7, _NOBODY),
        *((_USER, _ENTER, uid) for uid in sorted({*users})),
        (_GROUP, 0, _NOBODY),
        (_MASK, _ENTER, _NOBODY),
        (_OTHER, 0, _NOBODY),
    ]
    packed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in entries)
    os.setxattr(directory, "system.posix_acl_access", packed)
