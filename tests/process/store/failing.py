"""Which system calls can fail, with which errors, and the library that lets one of them fail."""

from __future__ import annotations

import errno
import mmap
import os
import re
import struct
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

FAULTS = Path(__file__).resolve().with_name("faults.c")
SHORT = -1  # in place of an error: a write writes half
# The struct of faults.c.
_ARMED = struct.Struct("lll64s4096s4096s4096s4096s")
_BELOW, _PATH = struct.calcsize("lll64s"), 4096
_NAMED = "CRITPATH_FAULTS"

_PATHS = (errno.EIO, errno.EACCES, errno.ENOMEM)
_CHANGES = (errno.EIO, errno.EACCES, errno.ENOSPC)
_OPENS = (errno.EIO, errno.EACCES, errno.ENOSPC, errno.EMFILE)
_WRITES = (errno.EIO, errno.ENOSPC)
_ELSE = (errno.EIO, errno.ENOMEM)
# What a call can fail with that is not the fault of who calls.
ERRORS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("open", "open64", "openat", "openat64"), _OPENS),
    **dict.fromkeys(("opendir", "fdopendir"), (errno.EIO, errno.EACCES, errno.EMFILE)),
    **dict.fromkeys(("write", "pwrite", "pwrite64", "splice to", "sendfile64", "close"), _WRITES),
    **dict.fromkeys(("ftruncate", "ftruncate64", "fsync", "fdatasync"), _WRITES),
    **dict.fromkeys(("fallocate64", "posix_fallocate64"), (*_WRITES, errno.EOPNOTSUPP)),
    **dict.fromkeys(("rename", "renameat", "mkdir", "mkdirat", "link", "linkat"), _CHANGES),
    **dict.fromkeys(("unlink", "unlinkat", "rmdir"), (*_PATHS, errno.EBUSY)),
    **dict.fromkeys(("stat64", "lstat64", "fstatat64", "access", "readlink"), _PATHS),
    **dict.fromkeys(("chmod", "fchmod", "fchown"), (errno.EIO, errno.EPERM)),
    **dict.fromkeys(("inotify_add_watch", "fanotify_mark"), (errno.EACCES, errno.ENOSPC)),
    **dict.fromkeys(("lseek", "lseek64"), (errno.EIO,)),
    "flock": (errno.EIO, errno.ENOLCK),
}
_LIMITS = (errno.EDQUOT, errno.EROFS)
_WRITTEN = (*_WRITES, errno.EDQUOT, errno.EINTR, SHORT)
# What is tried of the commands, whose calls are far fewer than a recording's.
ALL_ERRORS: Mapping[str, tuple[int, ...]] = {
    **ERRORS,
    **dict.fromkeys(("open", "open64", "openat", "openat64"), (*_OPENS, *_LIMITS, errno.EINTR)),
    **dict.fromkeys(("write", "pwrite", "pwrite64", "sendfile64", "copy_file_range"), _WRITTEN),
    **dict.fromkeys(("close", "fsync", "fdatasync"), (*_WRITES, errno.EDQUOT)),
    **dict.fromkeys(("ftruncate", "ftruncate64"), (*_WRITES, errno.EINTR)),
    **dict.fromkeys(
        ("rename", "renameat", "mkdir", "mkdirat", "link", "linkat", "symlink"),
        (*_CHANGES, *_LIMITS),
    ),
    **dict.fromkeys(("unlink", "unlinkat", "rmdir"), (*ERRORS["unlink"], errno.EROFS)),
    "flock": (*ERRORS["flock"], errno.EINTR),
}


def name_error(code: int) -> str:
    """Return what an error is called."""
    return "half" if code == SHORT else errno.errorcode[code]


@dataclass(frozen=True)
class Pair:
    """A call that fails: the n-th of its site, or of its name, and with which error."""

    site: str
    number: int
    code: int

    def __str__(self) -> str:
        return f"{self.site}, no {self.number}: {name_error(self.code)}"


def build(place: Path) -> Path:
    """Return the library that lets calls fail."""
    library = place / "faults.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, FAULTS, "-ldl"], check=True)
    return library


class Switch:
    """What a process that is preloaded with the library, and its children, have to let fail."""

    def __init__(self, place: Path) -> None:
        self._file = place / "armed"
        if not self._file.exists():
            self._file.write_bytes(bytes(_ARMED.size))
        with self._file.open("r+b") as stream:
            self._armed = mmap.mmap(stream.fileno(), _ARMED.size)

    def environment(self, library: Path) -> dict[str, str]:
        """Return what preloads the library, and lets it find this."""
        return {"LD_PRELOAD": str(library), _NAMED: str(self._file)}

    def arm(
        self,
        below: Path | None,
        also: str = "",
        *,
        pair: Pair | None = None,
        log: Path | None = None,
    ) -> None:
        """Let a call below a directory fail, or have all noted, or none of both (None)."""
        wanted = below if pair or log else None
        site, number, code = (pair.site, pair.number, pair.code) if pair else ("", 0, 0)
        places = (os.fsencode(wanted), also.encode()) if wanted else (b"", b"")
        noted = os.fsencode(log) if log else b""
        _ARMED.pack_into(self._armed, 0, 0, number, code, b"", *places, site.encode(), noted)

    @classmethod
    def of_this_process(cls) -> Switch:
        """Return the one that this process was started with."""
        return cls(Path(os.environ[_NAMED]).parent)

    def rest(self) -> None:
        """Let no call fail from here on; what failed is still told."""
        for at in (_BELOW, _BELOW + _PATH):
            self._armed[at : at + 1] = b"\0"

    @property
    def called(self) -> str:
        """The call that failed, "" if none did."""
        found: bytes = _ARMED.unpack_from(self._armed)[3]
        return found.rstrip(b"\0").decode()


def list_pairs(sites: Sequence[str], errors: Mapping[str, tuple[int, ...]] = ERRORS) -> list[Pair]:
    """Return all pairs of calls, by their sites, and errors: one of each kind first."""
    seen: Counter[str] = Counter()
    calls = []
    for site in sites:
        kind = re.sub(r"/events/\w+/\w+(?=/|$)|/formats/.+", "/*", site)
        seen.update({site, f"kind {kind}"})
        calls.append((seen[f"kind {kind}"], site, seen[site]))
    found = [
        (rank + more, Pair(site, number, code))
        for rank, site, number in calls
        for more, code in enumerate(errors.get(site.partition(" /")[0], _ELSE))
    ]
    return [pair for _, pair in sorted(found, key=lambda ranked: ranked[0])]


def choose_pairs(pairs: list[Pair], part: int) -> list[Pair]:
    """Return all (0), or a part evenly over all."""
    if not part or part >= len(pairs):
        return pairs
    return [pairs[i * len(pairs) // part] for i in range(part)]
