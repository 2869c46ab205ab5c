"""Programs whose files lie elsewhere, in containers: opened while their processes run.

What a process executes is found by its mappings, whatever path it has there, and was opened by
those who recorded; it is read by the user who called sudo, for the names of functions.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_MOST: Final = 256  # files
_MOST_LINES: Final = 20_000  # of a process' mappings
# Kinds of file systems that answer by themselves, not a program or another machine.
_LOCAL: Final = {
    *("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs"),
    *("tmpfs", "ramfs", "rootfs", "overlay", "squashfs", "erofs"),
}


def open_programs() -> dict[tuple[int, int, int], int]:
    """Return descriptors of what processes with another root execute, by device and inode.

    Of each file the numbers are those of its mappings, which both ``/proc`` and perf have.
    """
    found: dict[tuple[int, int, int], int] = {}
    here = _place("self")
    for name in os.listdir("/proc"):  # noqa: PTH208
        if not name.isdecimal() or (place := _place(name)) is None or place == here:
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            local = _local_devices("self") | _local_devices(name)
            for key, mapping in _executed(name):
                if key not in found and key[:2] in local and len(found) < _MOST:
                    with contextlib.suppress(OSError):
                        found[key] = _open_regular(f"/proc/{name}/map_files/{mapping}")
    return found


def _place(pid: str) -> tuple[int, int, int] | None:
    """Return the mounts and the root that a process has."""
    try:
        root = os.stat(f"/proc/{pid}/root")  # noqa: PTH116
        return os.stat(f"/proc/{pid}/ns/mnt").st_ino, root.st_dev, root.st_ino  # noqa: PTH116
    except OSError:
        return None


def _local_devices(pid: str) -> set[tuple[int, int]]:
    found = set()
    for line in Path(f"/proc/{pid}/mountinfo").read_text("utf-8", "replace").splitlines():
        mounted, _, kind = line.partition(" - ")
        if kind.split(" ", 1)[0] in _LOCAL:
            major, _, minor = mounted.split(" ")[2].partition(":")
            found.add((int(major), int(minor)))
    return found


def _executed(pid: str) -> Iterator[tuple[tuple[int, int, int], str]]:
    """Yield device and inode of what a process has mapped to execute, and the mapping."""
    with Path(f"/proc/{pid}/maps").open(encoding="utf-8", errors="replace") as stream:
        for line, _ in zip(stream, range(_MOST_LINES), strict=False):
            addresses, rights, _, device, inode = line.split(maxsplit=5)[:5]
            if rights[2] == "x" and inode != "0":
                major, minor = (int(number, 16) for number in device.split(":"))
                begin, end = (int(number, 16) for number in addresses.split("-"))
                yield (major, minor, int(inode)), f"{begin:x}-{end:x}"


def _open_regular(link: str) -> int:
    if not stat.S_ISREG(os.stat(link).st_mode):  # noqa: PTH116
        raise OSError("no file")
    return os.open(link, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
