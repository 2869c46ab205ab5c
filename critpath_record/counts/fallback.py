"""Counts where nothing can be attached: by perf's counting events, or by what /proc has anyway."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from critpath_record.counts.attach import possible_cpus
from critpath_record.counts.events import SYSCALL, Counted, handler_name
from critpath_record.counts.groups import Group
from critpath_record.ftrace import tracefs
from critpath_record.proc import read_text

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
    """Counts of the machine, and of one control group apart, of at most `MOST` tracepoints."""

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


# What /proc has of the machine


_PROC: Final = Path("/proc")
# What goes up and down is no count.
_LEVELS: Final = re.compile(
    r"nr_(?!dirtied|written)|.*(?:threshold|Estab|Default\w+|MaxConn|Rto\w+|Forwarding)$"
)

_OF_DISKS: Final = ((3, "reads"), (5, "read_sectors"), (7, "writes"), (9, "written_sectors"))


class FreeCounts:
    """Counters of /proc."""

    how = "free"

    def __init__(self) -> None:
        self.skipped: list[str] = []
        self.terms = sorted(_read_all())
        if not self.terms:
            raise OSError(2, "no counters in /proc")

    def read(self) -> list[list[int]]:
        """Return the counts since the machine began, by term."""
        found = _read_all()
        return [[found.get(term, 0) for term in self.terms]]

    def count_misses(self) -> int:
        """Return 0."""
        return 0

    def close(self) -> None:
        """Do nothing."""


def _read_all() -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in _counters():
        if not _LEVELS.match(name.rpartition(".")[2]):
            term = f"proc:{name}"
            found[term] = found.get(term, 0) + value
    return found


def _counters() -> Iterator[tuple[str, int]]:
    for line in _lines("vmstat"):
        name, _, value = line.partition(" ")
        yield f"vmstat.{name}", int(value)
    for line in _lines("stat"):
        words = line.split()
        if words[0] in {"ctxt", "processes"}:
            yield f"stat.{words[0]}", int(words[1])
    for line in _lines("diskstats"):
        words = line.split()
        for at, name in _OF_DISKS if len(words) > _OF_DISKS[-1][0] else ():
            yield f"disks.{name}", int(words[at])
    yield from _of_networks()
    yield from _of_interrupts()


def _of_networks() -> Iterator[tuple[str, int]]:
    for file in ("net/snmp", "net/netstat"):
        lines = _lines(file)
        for head, counted in zip(lines[::2], lines[1::2], strict=False):
            kind, *columns = head.split()
            for column, value in zip(columns, counted.split()[1:], strict=False):
                if value.isdecimal():
                    yield f"{kind.rstrip(':')}.{column}", int(value)


def _of_interrupts() -> Iterator[tuple[str, int]]:
    for line in _lines("softirqs")[1:]:
        name, *values = line.split()
        yield f"softirqs.{name.rstrip(':')}", sum(map(int, values))
    interrupts = _lines("interrupts")
    cpus = len(interrupts[0].split()) if interrupts else 0
    for line in interrupts[1:]:
        name, _, rest = line.strip().partition(":")
        values = [word for word in rest.split()[:cpus] if word.isdecimal()]
        called = handler_name(rest) if name.isdecimal() else name
        yield f"interrupts.{called}", sum(map(int, values))


def _lines(name: str) -> list[str]:
    return read_text(_PROC / name).splitlines()
