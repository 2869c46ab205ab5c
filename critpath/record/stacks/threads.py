"""Which thread it is that has an address of the C library, while others read Pythons' memory.

Up to 3.10 a Python knows its threads by these addresses (``pthread_self``), and so does py-spy. The
kernel knows them too: the list of robust mutexes that the C library gives it lies within the same
description of a thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_PAUSE: Final = 0.1  # s between looks
_MOST_THREADS: Final = 100_000
# Of glibc on x86-64: where the list lies in the description, and the address of that in itself.
_LIST, _SELF, _HEAD = 0x2E0, 0x10, 0x18
_GET_ROBUST_LIST: Final = 274


class ThreadWatch:
    """Looks at the threads of processes and their children again and again, until it is ended."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._family = set(pids)
        self._seen: set[int] = set()  # processes
        self._known: set[tuple[int, int]] = set()
        self._found: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="threads", daemon=True)
        if platform.machine() == "x86_64":
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._thread.start()

    def end(self) -> None:
        """Look no more; idempotent."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def find(self, pid: int, address: int, time: int) -> int:
        """Return the thread that a process had at an address, the last one that began; or 0.

        Where another has the address of one that has ended before it is looked at, what is found
        is one that does not run then.
        """
        found = self._found.get((pid, address), [(0, 0)])
        return next((tid for since, tid in reversed(found) if since <= time), found[0][1])

    def _run(self) -> None:
        while not self._ending.wait(_PAUSE):
            self.look()

    def look(self) -> None:
        """Note the threads that are new."""
        self._look_for_children()
        for pid in sorted(self._family):
            new = {(pid, tid) for tid in _threads(pid)} - self._known
            if not new or len(self._known) > _MOST_THREADS:
                continue
            self._known |= new
            with contextlib.suppress(OSError):
                memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
                try:
                    self._note(memory, new)
                finally:
                    os.close(memory)

    def _look_for_children(self) -> None:
        there = {int(name) for name in os.listdir("/proc") if name.isdecimal()}  # noqa: PTH208
        parents = {pid: _parent(pid) for pid in there - self._seen}
        self._seen = there
        self._family &= there
        while new := {pid for pid, of in parents.items() if of in self._family} - self._family:
            self._family |= new

    def _note(self, memory: int, new: set[tuple[int, int]]) -> None:
        now = time.monotonic_ns()
        for pid, tid in new:
            head, size = ctypes.c_uint64(), ctypes.c_size_t()
            asked = ctypes.byref(head), ctypes.byref(size)
            if self._libc.syscall(_GET_ROBUST_LIST, tid, *asked) or head.value < _LIST:
                continue
            address = head.value - _LIST
            with contextlib.suppress(OSError, OverflowError, struct.error):
                (itself,) = struct.unpack_from("<Q", os.pread(memory, _HEAD, address), _SELF)
                if itself == address:  # else it is no glibc of this layout
                    self._found[pid, address].append((now, tid))


def _parent(pid: int) -> int:
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2]
        return int(state.split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208
    except OSError:
        return []
