"""What requests that are followed live are called, and in which bounded table they are counted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from critpath.model.containers import name_in_place, strip_instance
from critpath.units import safe_text

OTHER: Final = "other"  # all kinds beyond the most
MOST: Final = 1000
_MOST_THREADS: Final = 20_000  # of which it is known what process they are
_UNIX: Final = 1

# Process, its name, and the container or pod that it is in ("" for none).
Process = tuple[int, str, str]


def find_process(tid: int) -> Process | None:
    """Return the process of a thread that is there, None if it is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        status = Path(f"/proc/{tid}/status").read_text(encoding="utf-8", errors="replace")
        pid = int(status.partition("\nTgid:")[2].split(None, 1)[0])
        name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace")
        return pid, safe_text(name.removesuffix("\n")), ""
    return None


class Kinds:
    """Numbers of kinds: the serving process's name and its port, as `compare` calls them."""

    def __init__(
        self, find: Callable[[int], Process | None] = find_process, most: int = MOST
    ) -> None:
        self._find, self._most = find, most
        self.names = [OTHER]
        self._numbers = {OTHER: 0}
        self._threads: dict[int, Process] = {}
        self._of_port: dict[int, int] = {}
        self.beyond = 0  # times that one was beyond the most

    def find(self, tid: int, port: int, family: int, other: int) -> int:
        """Return the number of what a thread answers at a port; -1 for what is no request."""
        process = self._process(tid)
        if process is None:  # it ended meanwhile: another of the same server is not
            return self._of_port.get(port, 0) if port else self._number("?:unix")
        pid, comm, place = process
        if family == _UNIX and other:
            far = self._process(other)
            if far is not None and far[0] == pid:
                return -1  # what one process says to itself
        where = "unix" if family == _UNIX else str(port or "?")
        number = self._number(name_in_place(f"{strip_instance(comm)}:{where}", place))
        if port:
            self._of_port[port] = number
        return number

    def _process(self, tid: int) -> Process | None:
        found = self._threads.get(tid)
        if found is None and tid > 0:
            found = self._find(tid)
            if found is not None:
                if len(self._threads) >= _MOST_THREADS:
                    del self._threads[next(iter(self._threads))]
                self._threads[tid] = found
        return found

    def _number(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            if len(self.names) > self._most:
                self.beyond += 1
                return 0
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
        return number

    def forget_thread(self, tid: int) -> None:
        """Ask anew what a thread is: it ended, or executes another program."""
        self._threads.pop(tid, None)
