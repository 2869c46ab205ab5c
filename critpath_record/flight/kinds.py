"""What requests that are followed live are called, and in which bounded table they are counted."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from critpath.model.containers import is_container, name_in_place, strip_instance, strip_places
from critpath.units import safe_text
from critpath_record.group_names import RuntimeFiles

OTHER: Final = "other"  # all kinds beyond the most
MOST: Final = 1000
_MOST_THREADS: Final = 20_000  # of which it is known what process they are
_MOST_GROUPS: Final = 1000
_MOST_ABOVE: Final = 3  # threads that began each other
_UNIX: Final = 1

# Process, its name, and the container or pod that it is in ("" for none).
Process = tuple[int, str, str]


class Processes:
    """Finds the process of a thread that is there, what it is called, and where it runs.

    Parameters
    ----------
    root : Path
        Of the machine's files.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._places: dict[str, str] = {}  # of control groups

    def find(self, tid: int) -> Process | None:
        """Return the process of a thread, None if it is gone."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            of = self._root / "proc"
            status = (of / str(tid) / "status").read_text(encoding="utf-8", errors="replace")
            pid = int(status.partition("\nTgid:")[2].split(None, 1)[0])
            name = (of / str(pid) / "comm").read_text(encoding="utf-8", errors="replace")
            return pid, safe_text(name.removesuffix("\n")), self._find_place(of / str(pid))
        return None

    def _find_place(self, of: Path) -> str:
        text = (of / "cgroup").read_text(encoding="utf-8", errors="replace")
        owner = of.stat().st_uid
        paths = (line.partition(":")[2].partition(":")[2] for line in text.splitlines())
        return next(filter(None, (self._name(path, owner) for path in paths)), "")

    def _name(self, path: str, owner: int) -> str:
        """Return the container or pod of a group, "" for none: files of runtimes are read once."""
        if path not in self._places:
            if len(self._places) >= _MOST_GROUPS:
                self._places.clear()
            group = RuntimeFiles(self._root).name_group(path, owner) if path != "/" else None
            place = group.place if group is not None else ""
            self._places[path] = place if is_container(place) else ""
        return self._places[path]


class Kinds:
    """Numbers of kinds: the serving process's name and its port, as `compare` calls them."""

    def __init__(
        self, find: Callable[[int], Process | None] | None = None, most: int = MOST
    ) -> None:
        self._find = find or Processes().find
        self._most, self._own = most, os.getpid()
        self.names = [OTHER]
        self._numbers = {OTHER: 0}
        self._threads: dict[int, Process] = {}
        self._of_port: dict[int, int] = {}
        self._free: list[int] = []
        self.find_parent: Callable[[int], int] = lambda _: 0  # who began a thread; 0: not known
        self.beyond = 0  # times that one was beyond the most

    def find(self, tid: int, port: int, family: int, other: int) -> int:
        """Return the number of what a thread answers at a port; -1 for what is no request."""
        process = self._process(tid)
        if process is None:  # it ended meanwhile: another of the same server is not
            return self._of_port.get(port, 0)
        pid, comm, place = process
        if pid == self._own:
            return -1  # what is asked of the recorder itself
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
            # Of one that is gone, whoever began it is of the same server.
            found = self._find(tid) or self._find_above(tid)
            if found is not None:
                if len(self._threads) >= _MOST_THREADS:
                    del self._threads[next(iter(self._threads))]
                self._threads[tid] = found
        return found

    def _find_above(self, tid: int) -> Process | None:
        for _ in range(_MOST_ABOVE):
            tid = self.find_parent(tid)
            if tid <= 0 or (found := self._find(tid)):
                return found if tid > 0 else None
        return None

    def _number(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            if not self._free and self.is_full:
                self.beyond += 1
                return 0
            if self._free:
                number = self._free.pop()
                self.names[number] = name
            else:
                number = len(self.names)
                self.names.append(name)
            self._numbers[name] = number
        return number

    @property
    def is_full(self) -> bool:
        """Whether there is no number for another kind, but those that are free."""
        return len(self.names) > self._most

    def free(self, numbers: Iterable[int]) -> None:
        """Let other kinds have numbers of some of which there was no request for long."""
        for number in numbers:
            if self._numbers.pop(self.names[number], 0):
                self.names[number] = ""
                self._free.append(number)
        self._of_port.clear()

    def list_named(self, name: str) -> list[int]:
        """Return the numbers of a name, wherever that is; of all kinds for ""."""
        return [
            number
            for number, of in enumerate(self.names)
            if number and of and (not name or name in {of, strip_places(of)})
        ]

    def forget_thread(self, tid: int) -> None:
        """Ask anew what a thread is: it ended, or executes another program."""
        self._threads.pop(tid, None)
