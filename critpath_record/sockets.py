"""Sockets that were open before the recording: ``/proc/net`` of every network namespace.

A trace tells of a socket what happens to it; who it belongs to, what it is connected with
and who listens must be known from before.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from array import array
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from typing import Any, Final

from critpath.schema.ways import way_of_requests
from critpath.units import plural
from critpath_record.proc import read_name

# ns, network namespace, inode, family, protocol, state, local address (its bytes in
# hexadecimal), local port, remote address, remote port, kernel address (0: hidden), path.
SocketRow = tuple[int, int, int, int, int, int, str, int, str, int, int, str]

INET: Final = 2
INET6: Final = 10
UNIX: Final = 1
LISTEN: Final = 10  # TCP's state, also for unix sockets that accept connections
_TCP, _UDP = 6, 17
_FILES: Final = (
    *(("tcp", INET, _TCP), ("tcp6", INET6, _TCP)),
    *(("udp", INET, _UDP), ("udp6", INET6, _UDP)),
)
_ACCEPTS: Final = 0x10000
_PATH: Final = 108  # bytes of sockaddr_un
_LINK: Final = "socket:["
# A machine with more is recorded without the rest: what is asked of them tells who they are.
MOST: Final = 100_000


def scan_sockets(most: int = MOST) -> tuple[list[SocketRow], int]:
    """Return rows for sockets that have an address, of all namespaces; how many too many."""
    rows: list[SocketRow] = []
    for namespace, pids in _find_namespaces().items():
        for name, family, protocol in _FILES:
            now, text = _read(pids, name)
            found = parse_inet(text, family, protocol)
            rows += ((now, namespace, *row) for row in found)
        now, text = _read(pids, "unix")
        rows += ((now, namespace, *row) for row in parse_unix(text))
        if len(rows) > most:
            break
    return rows[:most], max(len(rows) - most, 0)


# ns, process, descriptor, inode, thread that is in a system call with it (0: any of the process)
DescriptorRow = tuple[int, int, int, int, int]


def scan_descriptors(most: int = MOST) -> tuple[list[DescriptorRow], int]:
    """Return rows for descriptors of sockets, and calls that had begun; how many too many."""
    rows: list[DescriptorRow] = []
    for pid in os.listdir("/proc"):  # noqa: PTH208 - no object per process: this is timed
        if not pid.isdecimal():
            continue
        now = time.monotonic_ns()
        inodes = dict(_find_descriptors(f"/proc/{pid}/fd"))
        rows += ((now, int(pid), fd, inode, 0) for fd, inode in inodes.items())
        if inodes:
            for tid, fd in _find_calls(f"/proc/{pid}/task"):
                if fd in inodes:
                    rows.append((now, int(pid), fd, inodes[fd], tid))
    return rows[:most], max(len(rows) - most, 0)


# What listens on machines that serve nothing: who logs in, names, clocks, printers.
_USUAL: Final = frozenset(
    {"sshd", "systemd", "systemd-resolve", "dnsmasq", "rpcbind", "rpc.statd", "cupsd", "chronyd"}
)


def find_servers() -> list[str]:
    """Return the programs that listen for connections by TCP, such as ``nginx:80``, by ports."""
    rows = (row for row in scan_sockets()[0] if row[4] == _TCP and row[5] == LISTEN)
    ports = {row[2]: row[7] for row in rows}
    # Of those that share a socket the first process, which opened it.
    whose: dict[int, int] = {}
    for _, pid, _, inode, _ in scan_descriptors()[0] if ports else ():
        if inode in ports:
            whose[inode] = min(pid, whose.get(inode, pid))
    found = {(ports[inode], read_name(pid)) for inode, pid in whose.items()}
    return [f"{name}:{port}" for port, name in sorted(found) if name and name not in _USUAL]


def _find_descriptors(place: str) -> Iterator[tuple[int, int]]:
    """Yield a process's descriptors of sockets and their inodes."""
    with contextlib.suppress(OSError):  # it ended, or is another user's
        for number in os.listdir(place):  # noqa: PTH208 - timed
            with contextlib.suppress(OSError, ValueError):
                link = os.readlink(f"{place}/{number}")  # noqa: PTH115 - timed
                if link.startswith(_LINK):
                    yield int(number), int(link[len(_LINK) : -1])


def _find_calls(place: str) -> Iterator[tuple[int, int]]:
    """Yield threads that are in a system call, and its first argument."""
    with contextlib.suppress(OSError):
        for number in os.listdir(place):  # noqa: PTH208 - timed
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"{place}/{number}/syscall", "rb") as stream:  # noqa: PTH123 - timed
                    words = stream.read().split()
                yield int(number), int(words[1], 16)


def _find_namespaces() -> dict[int, list[str]]:
    """Return some processes of every network namespace."""
    found: dict[int, list[str]] = {}
    for pid in os.listdir("/proc"):  # noqa: PTH208 - no object per process: this is timed
        if pid.isdecimal():
            try:
                namespace = os.stat(f"/proc/{pid}/ns/net").st_ino  # noqa: PTH116 - as above
            except OSError:
                continue
            found.setdefault(namespace, []).append(pid)
    return found


def _read(pids: list[str], name: str) -> tuple[int, bytes]:
    """Return when the first process that is still there was asked, and the file."""
    for pid in pids:
        now = time.monotonic_ns()
        try:
            with open(f"/proc/{pid}/net/{name}", "rb") as stream:  # noqa: PTH123 - timed
                return now, stream.read()
        except OSError:
            continue
    return 0, b""


_Row = tuple[int, int, int, int, str, int, str, int, int, str]


def parse_inet(text: bytes, family: int, protocol: int) -> Iterator[_Row]:
    """Yield the sockets of ``/proc/net/tcp`` and its like; what is malformed is left out."""
    digits = 8 if family == INET else 32
    for line in text.split(b"\n")[1:]:
        words = line.split(None, 12)
        if len(words) < 12:
            continue
        try:
            inode, state = int(words[9]), int(words[3], 16)
            local, remote = read_address(words[1], digits), read_address(words[2], digits)
            where = _kernel_address(words[11])
        except ValueError:
            continue
        # Without an inode it is no program's any more (TIME_WAIT), or not yet.
        if 0 < inode < 1 << 63 and 0 < state < 16:
            yield inode, family, protocol, state, *local, *remote, where, ""


def parse_unix(text: bytes) -> Iterator[_Row]:
    """Yield the sockets of ``/proc/net/unix`` that have a path; what is malformed is left out."""
    for line in text.split(b"\n")[1:]:
        words = line.split(None, 7)
        if len(words) < 8:
            continue
        try:
            where = _kernel_address(words[0].rstrip(b":"))
            flags, kind = int(words[3], 16), int(words[4], 16)
            state, inode = int(words[5], 16), int(words[6])
        except ValueError:
            continue
        if not (0 < inode < 1 << 63 and 0 < kind < 16 and 0 <= state < 16):
            continue
        # A state of unix sockets that are connected is TCP's of others: these have few.
        state = LISTEN if flags & _ACCEPTS else {3: 1}.get(state, 7)
        path = words[7][:_PATH].decode("utf-8", "replace")
        yield inode, UNIX, kind, state, "", 0, "", 0, where, path


@lru_cache(1 << 12)
def read_address(text: bytes, digits: int) -> tuple[str, int]:
    """Return an address's bytes in hexadecimal, as on the wire, and its port."""
    address, _, port = text.partition(b":")
    if len(address) != digits:
        raise ValueError(text)
    words = array("I", bytes.fromhex(address.decode("ascii")))
    number = int(port, 16)
    if not 0 <= number < 1 << 16:
        raise ValueError(text)
    if sys.byteorder == "little":
        words.byteswap()
    return words.tobytes().hex(), number


def _kernel_address(text: bytes) -> int:
    """Return where a socket is in the kernel; 0 where the kernel shows a hash of that."""
    address = int(text, 16)
    return address if 1 << 32 <= address < 1 << 64 else 0


def scan_open(names: Collection[str]) -> Iterator[tuple[str, list[Any], str]]:
    """Yield what is open that events of these names are about: name, rows, and a warning."""
    scans: dict[str, Callable[[], tuple[list[Any], int]]] = {}
    if way_of_requests(names):
        scans["sockets"] = scan_sockets
    if way_of_requests(names, sockets=False):
        scans["descriptors"] = scan_descriptors
    for name, scan in scans.items():
        rows, left_out = scan()
        what = plural(left_out, name.removesuffix("s"))
        said = f"{what} that were open are left out: they are too many" if left_out else ""
        yield name, rows, said
