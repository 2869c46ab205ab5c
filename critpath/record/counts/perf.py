"""Counts tracepoints by perf's counting events, where the kernel takes no programs."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from critpath.record.counts.attach import possible_cpus
from critpath.record.counts.events import SYSCALL, Counted
from critpath.record.counts.groups import Group
from critpath.record.ftrace import tracefs

# Leaving takes a grace period of the kernel's for each, 30 ms.
MOST: Final = 64
_NUMBERS: Final = {"x86_64": 298, "aarch64": 241, "riscv64": 241}
_TRACEPOINT, _ATTRIBUTE_BYTES = 2, 64
_CLOEXEC, _OF_GROUP = 8, 4
# System calls are counted one by one here: those that tell programs apart.
_CALLS: Final = (
    *("read", "write", "openat", "close", "newfstat", "newfstatat", "lseek", "mmap", "munmap"),
    *("mprotect", "brk", "rt_sigaction", "rt_sigprocmask", "ioctl", "pread64", "pwrite64"),
    *("readv", "writev", "access", "pipe2", "poll", "ppoll", "select", "sched_yield", "madvise"),
    *("nanosleep", "clock_nanosleep", "getpid", "getppid", "sendfile64", "socket", "connect"),
    *("accept4", "sendto", "recvfrom", "sendmsg", "recvmsg", "clone", "clone3", "execve", "wait4"),
    *("exit_group", "fcntl", "fsync", "fdatasync", "getdents64", "unlink", "futex"),
    *("epoll_wait", "epoll_ctl", "io_uring_enter"),
)
_NAMES: Final = {"newfstat": "fstat", "sendfile64": "sendfile"}


class PerfCounts:
    """Counts of the machine, and of one control group apart, of at most `MOST` tracepoints.

    Raises
    ------
    OSError
        If the kernel does not allow it; nothing is left then.
    """

    how = "perf"

    def __init__(self, counted: Sequence[Counted], group: Group | None) -> None:
        root = tracefs.find()
        wanted: dict[str, str] = {}
        for each in counted:
            if each.event == SYSCALL:
                wanted |= {f"syscalls/sys_enter_{n}": f"sys:{_NAMES.get(n, n)}" for n in _CALLS}
            elif len(each.terms) == 1:
                wanted[each.event] = each.terms[0]
        self.terms: list[str] = []
        self.skipped = [each.event for each in counted if each.event not in wanted][1:]
        self._files: list[list[list[int]]] = [[] for _ in range(2 if group else 1)]
        with contextlib.ExitStack() as opened:
            directory = -1
            if group is not None:
                directory = os.open(group.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                opened.callback(os.close, directory)
            # Few are counted: first what is not a system call.
            order = sorted(wanted, key=lambda event: event.startswith("syscalls/"))
            for event in order:
                if len(self.terms) == MOST or root is None:
                    self.skipped.append(event)
                    continue
                with contextlib.suppress(FileNotFoundError):
                    number = int((root / "events" / event / "id").read_text(encoding="ascii"))
                    for scope, files in enumerate(self._files):
                        files.append(_open_counters(opened, number, directory if scope else -1))
                    self.terms.append(wanted[event])
            if not self.terms:
                raise OSError(2, "no event could be counted")
            self._closing = opened.pop_all()

    def read(self) -> list[list[int]]:
        """Return the counts since the begin: of the machine, then of the group, by term."""
        return [
            [sum(int.from_bytes(os.read(one, 8), "little") for one in of) for of in files]
            for files in self._files
        ]

    def count_misses(self) -> int:
        """Return 0: perf skips nothing that it counts."""
        return 0

    def close(self) -> None:
        """Count no more; idempotent."""
        with contextlib.suppress(OSError):
            self._closing.close()


def _open_counters(opened: contextlib.ExitStack, event: int, group: int) -> list[int]:
    """Open an event on every cpu; raises OSError."""
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(38, os.strerror(38))
    libc = ctypes.CDLL(None, use_errno=True)
    attribute = struct.pack("<IIQ", _TRACEPOINT, _ATTRIBUTE_BYTES, event)
    buffer = ctypes.create_string_buffer(attribute.ljust(_ATTRIBUTE_BYTES, b"\0"))
    found = []
    for cpu in range(possible_cpus()):
        if not Path(f"/sys/devices/system/cpu/cpu{cpu}").is_dir():
            continue
        flags = _CLOEXEC | (_OF_GROUP if group >= 0 else 0)
        one = libc.syscall(number, buffer, group, cpu, -1, flags)
        if one < 0:
            error = ctypes.get_errno()
            if error == 19:  # a cpu that is off
                continue
            raise OSError(error, os.strerror(error))
        opened.callback(os.close, one)
        found.append(one)
    return found
