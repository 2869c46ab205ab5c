"""What requests that are followed live are called, and in which bounded table they are counted."""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from critpath.model.containers import is_container, name_in_place, strip_instance, strip_places
from critpath.units import safe_text
from critpath_record.flight._requests import Requests
from critpath_record.ftrace.frames import SESSION
from critpath_record.ftrace.received import ROW, open_probe
from critpath_record.group_names import RuntimeFiles
from critpath_record.messages import LABEL, METHODS, WINDOW, MessageLabels

OTHER: Final = "other"  # all kinds beyond the most
MOST: Final = 1000
_MOST_THREADS: Final = 20_000  # of which it is known what process they are
_MOST_GROUPS: Final = 1000
_MOST_ABOVE: Final = 3  # threads that began each other
_MOST_MESSAGES: Final = 64  # labels of a service, as in the analysis; then first words only
_UNIX, _UDP = 1, 17
_PORTS: Final = 65_537
_ROWS: Final = 256  # bytes of memory to a message that is held, in part for what is held besides
_MOST_LABELS: Final = 65_536  # others are called by their first words
_TIMES, _BATCHES = 100, 9  # receives whose cost is measured
_AT_ONCE: Final = 4096  # rows that are written together
_MESSAGE: Final = METHODS[0] + b" / HTTP/1.1\r\n\r\n"

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
        self._of_process: dict[int, int] = {}
        # By what is called so at a service: its kind; and of kinds, what they are at which service.
        self._messages: dict[int, dict[str, int]] = {}
        self.services: dict[int, int] = {}
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
        where = {_UNIX: "unix", _UDP: str(port or "udp")}.get(family) or str(port or "?")
        number = self._number(name_in_place(f"{strip_instance(comm)}:{where}", place))
        if len(self._of_process) >= _MOST_THREADS:
            self._of_process.clear()
        self._of_process[pid] = number
        if port:
            self._of_port[port] = number
        return number

    def find_service(self, tid: int) -> int:
        """Return the number of what a thread's process serves, as far as it was seen; else -1."""
        process = self._process(tid)
        return self._of_process.get(process[0], -1) if process is not None else -1

    def find_message(self, service: int, label: str) -> int:
        """Return the number of what is called so at a service; of many labels, the first words."""
        if not service:
            return 0
        mine = self._messages.setdefault(service, {})
        if label not in mine and len(mine) >= _MOST_MESSAGES:
            label = f"{label.partition(' ')[0]} …"
        number = mine.get(label, 0)
        if not number:
            number = self._number(f"{self.names[service]} {label}")
            if number:
                mine[label], self.services[number] = number, service
        return number

    def name_asked(self, kind: int) -> str:
        """Return what somebody who is asked is called: a kind's number, or -1 - port."""
        if kind >= 0:
            return self.names[kind]
        return f":{-1 - kind}" if -_PORTS < kind < -1 else OTHER if kind < -1 else "?"

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

    def find_named(self, name: str) -> int:
        """Return the number of a kind by its name; 0 if there is no room for it."""
        return self._number(name)

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
                self.services.pop(number, 0)
        for service in [*self._messages]:
            mine = self._messages[service]
            self._messages[service] = {label: n for label, n in mine.items() if self.names[n]}
            if not self.names[service]:
                del self._messages[service]
        self._of_port.clear()
        self._of_process.clear()

    def list_named(self, name: str) -> list[int]:
        """Return the numbers of a name, wherever that is; of all kinds for ""."""
        return [
            number
            for number, of in enumerate(self.names)
            if number and of and (not name or name in self._names_of(number))
        ]

    def _names_of(self, number: int) -> set[str]:
        """Return what a kind may be called: by its service, too, and wherever that is."""
        of = (self.names[number], self.names[self.services.get(number, number)])
        return {*of, *map(strip_places, of)}

    def forget_thread(self, tid: int) -> None:
        """Ask anew what a thread is: it ended, or executes another program."""
        self._threads.pop(tid, None)


# Their labels


class HeldLabels:
    """Labels what is received anywhere on the machine (``--labels-from``), until it is closed.

    `tls`: also what libraries decrypt.  Raises CritpathError if this kernel does not let the bytes
    be read.
    """

    def __init__(self, requests: Requests, kinds: Kinds, memory: int, *, tls: bool = False) -> None:
        self._requests, self._kinds = requests, kinds
        self._messages = MessageLabels()
        self._texts = [""]
        self._numbers = {"": 0}
        self._requests.keep_messages(self._find_kind, max(memory // _ROWS, _AT_ONCE))
        without = _measure_receive()
        self._probe = open_probe(headers=False)
        self.cost = max(_measure_receive() - without, 0.0)  # s of each receive, in the kernel
        self._charged = 0.0
        self._decrypted, self._cost_of_call = None, 0.0
        try:
            if tls:
                from critpath_record.ftrace.decrypted import (  # noqa: PLC0415 - only if asked
                    Decrypted,
                )

                self._decrypted = Decrypted(headers=False, streams=False)
                self._cost_of_call = self._decrypted.measure()
        except BaseException:
            self._probe.closing.close()
            raise
        self._rings = [(self._probe, False)]
        if self._decrypted is not None:
            self._rings.append((self._decrypted.labels, True))
        for probe, _ in self._rings:
            for _ in probe.take():
                pass  # ours

    def _find_kind(self, service: int, label: int) -> int:
        return self._kinds.find_message(service, self._texts[label])

    def _label(self, sock: int, data: bytes) -> int:
        text = self._messages.label(sock, data)
        number = self._numbers.get(text)
        if number is None:
            if len(self._texts) >= _MOST_LABELS:
                text = f"{text.partition(' ')[0]} …"
            number = self._numbers.setdefault(text, len(self._texts))
            if number == len(self._texts):
                self._texts.append(text)
        return number

    def take(self) -> None:
        """Take what came: before requests are followed until now."""
        for probe, sessions in self._rings:
            taken, given = probe.taken, probe.given
            at, end = (int.from_bytes(of[:8], "little") for of in (taken, given))
            with memoryview(given) as whole, whole[mmap.PAGESIZE :] as ring:
                at = self._requests.add_messages(ring, at, end, self._label, sessions)
            taken[:8] = at.to_bytes(8, "little")

    def charge(self) -> float:
        """Return what it cost the machine since this was asked last (s of cpu time)."""
        before, self._charged = self._charged, self._requests.received * self.cost
        if self._decrypted is not None:
            self._charged += self._decrypted.count_calls() * self._cost_of_call
        return self._charged - before

    def save(self, file: Path, since: int) -> dict[str, object]:
        """Write what is held since a time as a recording has it; return what there is to say."""
        count = 0
        with file.open("xb") as stream:
            for rows in self._list_rows(since):
                stream.write(rows)
                count += len(rows) // ROW.size
        return {
            "from": "bytes" if self._decrypted is None else "bytes,tls",
            "count": count,
            "lost": sum(probe.lost() for probe, _ in self._rings),
            "bytes": WINDOW,
            "looked_through": WINDOW,
        }

    def _list_rows(self, since: int) -> Iterator[bytes]:
        texts = [text.encode().ljust(LABEL, b"\0") for text in self._texts]
        rows = []
        for when, sock, tid, size, label, hidden in self._requests.list_messages(since):
            flags = SESSION if hidden else 0
            rows.append(ROW.pack(when, sock, tid, size, bytes(16), 0, flags, 0, texts[label]))
            if len(rows) == _AT_ONCE:
                yield b"".join(rows)
                rows = []
        yield b"".join(rows)

    def close(self) -> None:
        """Detach."""
        self._probe.detach()
        self._probe.closing.close()
        if self._decrypted is not None:
            self._decrypted.__exit__()


def _measure_receive() -> float:
    """Return what receiving something takes at least (s)."""
    sender, receiver = socket.socketpair()
    best = float("inf")
    with sender, receiver:
        for _ in range(_BATCHES):
            for _ in range(_TIMES):
                sender.send(_MESSAGE)
            before = time.thread_time()
            for _ in range(_TIMES):
                receiver.recv(len(_MESSAGE))
            best = min(best, (time.thread_time() - before) / _TIMES)
    return best
