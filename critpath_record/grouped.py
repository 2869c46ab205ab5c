"""The control group that a user's command is counted in: made by root, for who may not."""

from __future__ import annotations

import _thread
import contextlib
import errno
import os
import re
import socket
import struct
from typing import Final

from critpath_record.rooted import read_file, write_file

_CREDENTIALS: Final = struct.Struct("iII")  # pid, uid, gid
_TRIES: Final = 3
_LOOKS: Final = 1000
_BEGAN: Final = 19


class Grouped:
    """A group within that of a process, from construction to `remove`; both raise OSError.

    A descriptor of ``cgroup.procs`` would let its user move anybody's processes there.
    """

    def __init__(self, name: str, pid: int, user: int) -> None:
        self._user, self._own = user, _group_of(pid)
        self._path = f"{_find_root()}{self._own.rstrip('/')}/{name}"
        os.mkdir(self._path, 0o755)

    def serve(self, channel: socket.socket) -> None:
        """Put who sends something there into the group, from now on; each waits for an answer."""
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        _thread.start_new_thread(self._let_in, (channel,))

    def _let_in(self, channel: socket.socket) -> None:
        with channel, contextlib.suppress(OSError):
            while (got := channel.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size)))[0]:
                answer = b"1"
                with contextlib.suppress(OSError, ValueError):
                    self._join(got[1])
                    answer = b"0"
                channel.send(answer, socket.MSG_DONTWAIT)

    def _join(self, extra: list[tuple[int, int, bytes]]) -> None:
        """Let the sender in, by what the kernel says of it: the user's, from the group around."""
        [(_, kind, data)] = extra
        if kind != socket.SCM_CREDENTIALS:
            raise PermissionError(errno.EPERM, "no sender")
        pid = _CREDENTIALS.unpack(data)[0]
        for _ in range(_LOOKS):  # until it waits for the answer: nothing of that is counted
            if _stat_of(pid)[0] == b"S":
                break
            os.sched_yield()
        began = _stat_of(pid)[_BEGAN]
        found = re.search(rb"^Uid:(.*)$", read_file(f"/proc/{pid}/status"), re.MULTILINE)
        users = {*found[1].split()} if found else set[bytes]()
        if users != {b"%d" % self._user} or _group_of(pid) != self._own:
            raise PermissionError(errno.EPERM, "not there, or another's")
        write_file(f"{self._path}/cgroup.procs", b"%d" % pid)
        _, parent, *_ = now = _stat_of(pid)
        if now[_BEGAN] != began:  # it ended meanwhile, and its number is that of who goes back
            back = f"{_find_root()}{_group_of(int(parent))}/cgroup.procs"
            write_file(back, b"%d" % pid)
            raise PermissionError(errno.EPERM, "it has ended")

    def remove(self) -> None:
        """Remove it; processes that still are in it go to the one around it."""
        remove_group(self._path)


def remove_group(path: str) -> None:
    """Remove a group; processes that still are in it go to the one around it; raises OSError."""
    for left in reversed(range(_TRIES)):
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        except OSError:
            if not left:
                raise
        else:
            return
        with contextlib.suppress(OSError):
            for pid in read_file(f"{path}/cgroup.procs").split():
                with contextlib.suppress(OSError):
                    write_file(f"{os.path.dirname(path)}/cgroup.procs", pid)
        for below, *_ in [*os.walk(path)][:0:-1]:
            with contextlib.suppress(OSError):
                os.rmdir(below)


def _stat_of(pid: int) -> list[bytes]:
    """Return state, parent and more of a process; raises OSError."""
    return read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _group_of(pid: int) -> str:
    """Return the path of a process's group; raises OSError where root does not reach it."""
    for line in os.fsdecode(read_file(f"/proc/{pid}/cgroup")).splitlines():
        if line.startswith("0::/") and "/.." not in line:
            return line[3:]
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _find_root() -> str:
    """Return where groups of version 2 are mounted; raises OSError if nowhere."""
    for line in os.fsdecode(read_file("/proc/self/mountinfo")).splitlines():
        before, _, after = line.partition(" - ")
        if after.startswith("cgroup2 "):
            return before.split()[4]
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
