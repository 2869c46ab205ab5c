"""What descriptors name, followed by system calls: files by their paths, peers by addresses.

A path is that of its process: two servers open ``pg_wal/000000010000000000000001``, each below
where it works.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

_LETTERS: Final = 200  # of a name
_MOST_PARTS: Final = 6  # of a short one
_MOST: Final = 1 << 16  # descriptors of one process
_CLOSE_ON_EXEC: Final = 0o2000000  # O_CLOEXEC, SOCK_CLOEXEC
_SHARES: Final = 0x400  # CLONE_FILES
_SHARES_PLACE: Final = 0x200  # CLONE_FS
_HERE: Final = -100  # AT_FDCWD
_DUPLICATES: Final = {0: False, 1030: True}  # F_DUPFD, F_DUPFD_CLOEXEC
_SET_FLAGS: Final = 2  # F_SETFD
_RANGE_FLAG: Final = 4  # CLOSE_RANGE_CLOEXEC
_UNIX, _INET, _INET6 = 1, 2, 10

# System calls whose first argument is the descriptor that they are about.
USES: Final = (
    *("read", "readv", "pread64", "preadv", "preadv2", "getdents64"),
    *("write", "writev", "pwrite64", "pwritev", "pwritev2", "sendfile64", "ftruncate", "fallocate"),
    *("fsync", "fdatasync", "sync_file_range", "syncfs", "flock", "fcntl"),
    *("recvfrom", "recvmsg", "recvmmsg", "sendto", "sendmsg", "sendmmsg"),
    *("connect", "bind", "accept", "accept4"),
)
# Where the flags of those that open a path are.
_FLAGS: Final = {"open": 1, "openat": 2, "creat": -1, "openat2": -1}
# What makes a descriptor of no file: its name, and where its flags are.
_MAKES: Final = {
    "socket": ("socket", 1),
    "eventfd2": ("eventfd", 1),
    "epoll_create1": ("epoll", 0),
    "timerfd_create": ("timerfd", 1),
    "memfd_create": ("memory", -1),
    "inotify_init1": ("inotify", 0),
}
# From where on paths are that do not begin at the root; and the argument that says from where.
_MOVES: Final = ("chdir", "fchdir")
_FROM: Final = ("openat", "openat2")
_OTHERS: Final = ("dup", "dup2", "dup3", "close", "close_range", "poll", *_MOVES)
CALLS: Final = (*USES, *_FLAGS, *_MAKES, *_OTHERS)
# Those with something in the caller's memory that names a file, a peer or a descriptor.
WITH_ARGUMENTS: Final = (*_FLAGS, "connect", "bind", "poll", "chdir")


@dataclass(slots=True)
class _Call:
    name: str
    arguments: Sequence[int]
    path: str = ""
    about: int = -1  # a descriptor


@dataclass(frozen=True, slots=True)
class Named:
    """What a descriptor names, and whether a new program has it no longer."""

    name: str
    closes: bool = False


@dataclass(slots=True)
class _Place:
    """The directory in which a process works; "" where that is not known."""

    path: str = ""


@dataclass
class Descriptors:
    """The descriptors of every process: threads share them, children have a copy."""

    _tables: dict[int, dict[int, Named]] = field(default_factory=dict)
    _places: dict[int, _Place] = field(default_factory=dict)
    _calls: dict[int, _Call] = field(default_factory=dict)

    def dump(self, tids: Sequence[int], table: Mapping[int, Named], place: str = "") -> None:
        """Take what a process has open, as it is seen from outside, and where it works."""
        own = dict(list(table.items())[:_MOST])
        self._tables |= dict.fromkeys(tids, own)
        self._places |= dict.fromkeys(tids, _Place(place))

    def fork(self, tid: int, child: int, flags: int) -> None:
        """Give a thread what its creator has: the same, or a copy."""
        own = self._of(tid)
        self._tables[child] = own if flags & _SHARES else dict(own)
        place = self._place_of(tid)
        self._places[child] = place if flags & _SHARES_PLACE else _Place(place.path)
        self._calls.pop(child, None)

    def exec(self, tid: int, before: int) -> None:
        """Keep what a new program inherits, in a table of its own."""
        kept = {fd: of for fd, of in self._of(before).items() if not of.closes}
        place = _Place(self._place_of(before).path)
        self.exit(before)
        self._tables[tid], self._places[tid] = kept, place

    def exit(self, tid: int) -> None:
        """Forget a thread."""
        self._tables.pop(tid, None)
        self._places.pop(tid, None)
        self._calls.pop(tid, None)

    def enter(self, tid: int, name: str, arguments: Sequence[int], given: bytes | None) -> None:
        """Let a thread begin a system call, with what was in its memory."""
        own, fd = self._of(tid), arguments[0]
        call = self._calls[tid] = _Call(name, arguments)
        if name in _FLAGS or name == "chdir":
            call.path = self._path(tid, fd if name in _FROM else _HERE, given or b"")
        elif name == "close":  # another thread may be given the number before the call ends
            own.pop(fd, None)
        elif name == "close_range":
            self._close_range(own, *arguments[:3])
        elif name in {"connect", "bind"}:
            before = own.get(fd)
            self._name(own, fd, address_name(given or b""), closes=bool(before and before.closes))
            call.about = fd
        elif name == "poll":
            one = given is not None and len(given) >= 4
            call.about = int.from_bytes(given[:4], "little", signed=True) if given and one else -1
        elif name in USES:
            call.about = fd

    def leave(self, tid: int, name: str, result: int) -> None:
        """Let a thread end a system call."""
        call = self._calls.pop(tid, None)
        if call is None or call.name != name or result < 0:
            return
        own, given = self._of(tid), call.arguments
        first = own.get(given[0])
        if name in _MOVES:
            self._place_of(tid).path = call.path if name == "chdir" else first.name if first else ""
        if name in _FLAGS:
            at = _FLAGS[name]
            closes = at >= 0 and bool(given[at] & _CLOSE_ON_EXEC)
            self._name(own, result, call.path, closes=closes)
        elif name in _MAKES:
            what, at = _MAKES[name]
            self._name(own, result, what, closes=at >= 0 and bool(given[at] & _CLOSE_ON_EXEC))
        elif name in {"accept", "accept4"}:
            closes = name == "accept4" and bool(given[3] & _CLOSE_ON_EXEC)
            of = first.name if first else ""
            self._name(own, result, of and of_listener(of), closes=closes)
        elif name in {"dup", "dup2", "dup3"}:
            closes = name == "dup3" and bool(given[2] & _CLOSE_ON_EXEC)
            self._name(own, result, first.name if first else "", closes=closes)
        elif name == "fcntl":
            if given[1] in _DUPLICATES:
                text = first.name if first else ""
                self._name(own, result, text, closes=_DUPLICATES[given[1]])
            elif given[1] == _SET_FLAGS and first:
                own[given[0]] = Named(first.name, bool(given[2] & 1))

    def find(self, tid: int) -> tuple[str, str] | None:
        """Return the call that a thread is in and what it is about; None if of no descriptor.

        What a descriptor names that was not followed is its number.
        """
        call = self._calls.get(tid)
        if call is None:
            return None
        if call.path:
            return call.name, call.path
        if call.about < 0:
            return None
        of = self._of(tid).get(call.about)
        return call.name, of.name if of else f"descriptor {call.about}"

    def _path(self, tid: int, start: int, given: bytes) -> str:
        """Return a path as it was given, from the root on where it is known where it starts."""
        text = given.split(b"\0")[0].decode("utf-8", "replace")
        if text and not text.startswith("/"):
            of = self._of(tid).get(start)
            base = self._place_of(tid).path if start == _HERE else of.name if of else ""
            text = f"{base.rstrip('/')}/{text}" if base.startswith("/") else text
        return clean(text)

    def _place_of(self, tid: int) -> _Place:
        return self._places.setdefault(tid, _Place())

    def _of(self, tid: int) -> dict[int, Named]:
        return self._tables.setdefault(tid, {})

    def _name(self, own: dict[int, Named], fd: int, name: str, *, closes: bool) -> None:
        if not name or len(own) >= _MOST:
            own.pop(fd, None)
        else:
            own[fd] = Named(name, closes)

    def _close_range(self, own: dict[int, Named], first: int, last: int, flags: int) -> None:
        for fd in [fd for fd in own if first <= fd <= last & 0xFFFFFFFF]:
            of = own.pop(fd)
            if flags & _RANGE_FLAG:
                own[fd] = Named(of.name, closes=True)


def clean(text: str) -> str:
    """Return the end of a name without what cannot be printed."""
    return "".join(c if c.isprintable() else "?" for c in text[-_LETTERS:])


def of_listener(name: str) -> str:
    """Return the name of a connection that was accepted: its peer's port says nothing."""
    return f"client of {name}"


def address_name(data: bytes) -> str:
    """Return an address as the caller gave it (``sockaddr``): ``127.0.0.1:5432``."""
    family = int.from_bytes(data[:2], "little")
    if family == _UNIX:
        path, abstract = data[2:], data[2:3] == b"\0"
        text = path.lstrip(b"\0").split(b"\0")[0].decode("utf-8", "replace")
        return clean(f"@{text}" if abstract else text)
    port = int.from_bytes(data[2:4], "big")
    if family == _INET and len(data) >= 8:
        return host_port(data[4:8], port)
    if family == _INET6 and len(data) >= 24:
        return host_port(data[8:24], port)
    return ""


def host_port(address: bytes, port: int) -> str:
    """Return an address of the internet with its port."""
    found = ipaddress.ip_address(address)
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    found = mapped or found
    return f"[{found}]:{port}" if found.version == 6 else f"{found}:{port}"


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return a short form of every path: its last part, or as many as tell it from others."""
    left, found = sorted({*names}), dict[str, str]()
    for parts in range(1, _MOST_PARTS + 1):
        found |= {name: _ending(name, parts) for name in left}
        count = Counter(found[name] for name in left)
        left = [name for name in left if count[found[name]] > 1]
    return found


def _ending(name: str, parts: int) -> str:
    return "/".join([part for part in name.split("/") if part not in {"", "."}][-parts:]) or name
