"""What was there when a recording began, as events: threads, control groups, sockets."""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from critpath_record.ctf.trace import (
    TEXT,
    CtfEventClass,
    TraceWriter,
    declare_address,
    declare_characters,
    declare_integer,
    pack_text,
)
from critpath_record.identity import INITIAL_PID_NAMESPACE


@dataclass(frozen=True)
class ThreadState:
    """A thread, when it was read (ns); `state` is the letter of ``/proc/TID/stat``."""

    time: int
    tid: int
    tgid: int
    ppid: int
    comm: str
    state: str
    cpu: int
    kernel: bool
    namespace: int  # inode number of its pid namespace, 0 if unknown


@dataclass(frozen=True)
class Cgroup:
    """A control group that a process was in, when that was read (ns)."""

    time: int
    tgid: int
    hierarchy: int  # its number: 0 for version 2's only one
    path: str


@dataclass(frozen=True)
class Socket:
    """A socket that was open, when that was read (ns); see `critpath_record.sockets`."""

    time: int
    namespace: int
    inode: int
    family: int
    protocol: int
    state: int
    local: bytes  # as on the wire; empty where there is none, as is the other
    remote: bytes
    ports: tuple[int, int]  # local and remote
    place: int  # its address in the kernel, 0 where that is hidden
    path: str
    last: bool = False  # read at the end


@dataclass(frozen=True)
class Descriptor:
    """A descriptor of a process that named a socket, when that was read (ns).

    With ``tid``, that thread was in a system call with it.
    """

    time: int
    pid: int
    fd: int
    inode: int
    tid: int
    last: bool = False


Row = Socket | Descriptor | Cgroup


def _are_within(*numbers: tuple[object, int]) -> bool:
    """Tell whether each is a whole number of so many bits."""
    return all(isinstance(n, int) and 0 <= n < 1 << bits for n, bits in numbers)


# Rows that were written as lists; None stands for one that is malformed.


def make_thread(row: Any) -> ThreadState | None:
    """Return a row as a thread."""
    try:
        time, tid, tgid, ppid, comm, state, cpu, kernel, namespace = row
    except (TypeError, ValueError):
        return None
    ids = ((time, 63), (tid, 31), (tgid, 31), (ppid, 31), (cpu, 31), (namespace, 32))
    if not _are_within(*ids):
        return None
    return ThreadState(time, tid, tgid, ppid, str(comm), str(state), cpu, bool(kernel), namespace)


def make_cgroup(row: Any) -> Cgroup | None:
    """Return a row as a control group of a process."""
    try:
        time, tgid, hierarchy, path = row
    except (TypeError, ValueError):
        return None
    right = isinstance(path, str) and _are_within((time, 63), (tgid, 31), (hierarchy, 31))
    return Cgroup(time, tgid, hierarchy, path) if right else None


def make_descriptor(row: Any) -> Descriptor | None:
    """Return a row as a descriptor."""
    try:
        time, pid, fd, inode, tid = row
    except (TypeError, ValueError):
        return None
    right = _are_within((time, 63), (pid, 31), (fd, 31), (inode, 63), (tid, 31))
    return Descriptor(time, pid, fd, inode, tid) if right else None


def make_socket(row: Any) -> Socket | None:
    """Return a row as a socket."""
    try:
        time, namespace, inode, family, protocol, state, *ends, place, path = row
        local, sport, remote, dport = ends
        right = _are_within(
            *((time, 63), (namespace, 32), (inode, 63), (family, 16), (protocol, 16)),
            *((state, 8), (sport, 16), (dport, 16), (place, 64)),
        )
        both = bytes.fromhex(local), bytes.fromhex(remote)
    except (TypeError, ValueError):
        return None
    if not right or {len(b) for b in both} - {0, 4, 16} or not isinstance(path, str):
        return None
    return Socket(
        *(time, namespace, inode, family, protocol, state, *both, (sport, dport), place, path)
    )


_START: Final = "lttng_statedump_start"
_THREAD: Final = "lttng_statedump_process_state"
_END: Final = "lttng_statedump_end"
_CGROUP: Final = "critpath_statedump_cgroup"
_SOCKET: Final = "critpath_statedump_socket"
_DESCRIPTOR: Final = "critpath_statedump_fd"
_FIELDS: Final = (
    *(
        declare_integer(name, 4, signed=True)
        for name in ("tid", "vtid", "pid", "vpid", "ppid", "vppid")
    ),
    declare_characters("name", 16),
    *(declare_integer(name, 4, signed=True) for name in ("type", "mode", "submode", "status")),
    declare_integer("ns_level", 4, signed=True),
    declare_integer("ns_inum", 4, signed=False),
    declare_integer("cpu", 4, signed=False),
)
_CGROUP_FIELDS: Final = (
    declare_integer("pid", 4, signed=True),
    declare_integer("dst_root", 4, signed=True),
    TEXT.format("dst_path"),
)
_SOCKET_FIELDS: Final = (
    declare_integer("skaddr", 8, signed=False, base=16),
    *(declare_integer(name, 4, signed=True) for name in ("oldstate", "newstate")),
    *(declare_integer(name, 2, signed=False) for name in ("sport", "dport", "family", "protocol")),
    *declare_address("saddr", 4),
    *declare_address("daddr", 4),
    *declare_address("saddr_v6", 16),
    *declare_address("daddr_v6", 16),
    declare_integer("inode", 8, signed=False),
    declare_integer("net_ns_inum", 4, signed=False),
    TEXT.format("path"),
)
_DESCRIPTOR_FIELDS: Final = (
    declare_integer("pid", 4, signed=True),
    declare_integer("fd", 4, signed=True),
    declare_integer("inode", 8, signed=False),
    declare_integer("in_tid", 4, signed=True),
)
_PROCESS: Final = struct.Struct("<6i16s5iII")
_SOCKET_HEAD: Final = struct.Struct("<Qii4H")

# LTTng's numbers.
_USER, _KERNEL = 0, 1
_MODE_UNKNOWN, _NO_SUBMODE = 5, 0
_UNNAMED, _WAIT_CPU, _ZOMBIE, _WAIT, _DEAD = 0, 2, 4, 5, 7
_STATUS: Final = {
    "R": _WAIT_CPU,  # running or about to: LTTng does not tell either
    **dict.fromkeys("SDI", _WAIT),
    "Z": _ZOMBIE,
    **dict.fromkeys("Xx", _DEAD),
}


def statedump_classes(
    first: int, cgroups: object, sockets: object, descriptors: object
) -> dict[str, CtfEventClass]:
    """Return the event classes of a statedump that has some of these, with ids from `first` on.

    LTTng lacks those of critpath.  That of control groups has the fields of the kernel's
    ``cgroup_attach_task``, that of sockets those of ``inet_sock_set_state``, with an old state
    of 1 for those that were there at the end.
    """
    wanted = {
        _START: (),
        _THREAD: _FIELDS,
        _END: (),
        **({_CGROUP: _CGROUP_FIELDS} if cgroups else {}),
        **({_SOCKET: _SOCKET_FIELDS} if sockets else {}),
        **({_DESCRIPTOR: _DESCRIPTOR_FIELDS} if descriptors else {}),
    }
    return {
        name: CtfEventClass(name, number, fields)
        for number, (name, fields) in enumerate(wanted.items(), first)
    }


def _namespace_ids(thread: ThreadState) -> tuple[int, int, int, int]:
    """Return vtid, vpid, vppid and the level of a thread's namespace; 0 where unknown."""
    if thread.namespace == INITIAL_PID_NAMESPACE:
        return thread.tid, thread.tgid, thread.ppid, 0
    return 0, 0, 0, int(thread.namespace != 0)


def _pack_thread(thread: ThreadState) -> bytes:
    vtid, vpid, vppid, level = _namespace_ids(thread)
    comm = thread.comm
    if thread.kernel and comm.startswith("kworker/"):
        # /proc adds what the worker last did, which is no part of its name in events.
        comm = re.split("[-+]", comm, maxsplit=1)[0]
    name = comm.encode("utf-8", "surrogateescape")[:15]
    return _PROCESS.pack(
        *(thread.tid, vtid, thread.tgid, vpid, thread.ppid, vppid, name.partition(b"\0")[0]),
        _KERNEL if thread.kernel else _USER,
        *(_MODE_UNKNOWN, _NO_SUBMODE, _STATUS.get(thread.state, _UNNAMED)),
        *(level, thread.namespace, thread.cpu),
    )


def _pack_socket(socket: Socket) -> bytes:
    pairs = [(a, b"") if len(a) == 4 else (b"", a) for a in (socket.local, socket.remote)]
    addresses = b"".join(
        address.rjust(size, b"\0")
        for size, ends in zip((4, 16), zip(*pairs, strict=True), strict=True)
        for address in ends
    )
    return (
        _SOCKET_HEAD.pack(
            *(socket.place, socket.last, socket.state),
            *(*socket.ports, socket.family, socket.protocol),
        )
        + addresses
        + struct.pack("<QI", socket.inode, socket.namespace)
        + pack_text(socket.path)
    )


def _pack_cgroup(cgroup: Cgroup) -> bytes:
    return struct.pack("<ii", cgroup.tgid, cgroup.hierarchy) + pack_text(cgroup.path)


def pack_statedump(
    writer: TraceWriter,
    classes: Mapping[str, CtfEventClass],
    threads: Sequence[ThreadState],
    cgroups: Sequence[Cgroup],
    rows: Sequence[Row],
) -> tuple[int, int, list[bytes]]:
    """Return the one packet of the statedump's stream; there are threads."""
    first, last = threads[0].time, threads[-1].time
    events = [writer.pack_event(classes[_START].id, first)]
    number = classes[_THREAD].id
    events += (writer.pack_event(number, one.time) + _pack_thread(one) for one in threads)
    for cgroup in cgroups:
        last = max(last, cgroup.time)
        events.append(writer.pack_event(classes[_CGROUP].id, last) + _pack_cgroup(cgroup))
    events.append(writer.pack_event(classes[_END].id, last))
    events += _pack_rows(writer, classes, rows)
    return first, max([last, *(row.time for row in rows)]), events


def _pack_rows(
    writer: TraceWriter, classes: Mapping[str, CtfEventClass], rows: Sequence[Row]
) -> Iterator[bytes]:
    """Yield sockets, descriptors and later control groups as events, in order of time."""
    for row in sorted(rows, key=lambda row: row.time):
        if isinstance(row, Socket):
            yield writer.pack_event(classes[_SOCKET].id, row.time) + _pack_socket(row)
        elif isinstance(row, Cgroup):
            yield writer.pack_event(classes[_CGROUP].id, row.time) + _pack_cgroup(row)
        else:
            packed = struct.pack("<iiQi", row.pid, row.fd, row.inode, row.tid)
            yield writer.pack_event(classes[_DESCRIPTOR].id, row.time) + packed


def write_sockets(
    place: Path,
    rows: Sequence[tuple[str, Sequence[Any], bool]],
    *,
    clock: uuid.UUID,
    epoch: int,
    environment: Mapping[str, object],
) -> None:
    """Write sockets and descriptors as a trace of their own, into a directory that is made.

    Each of `rows` has ``sockets`` or ``descriptors``, what `critpath_record.sockets` found, and
    whether at the end; `clock` is that of another tracer, which is CLOCK_MONOTONIC.
    """
    made: list[Row] = []
    for name, found, last in rows:
        make = make_socket if name == "sockets" else make_descriptor
        made += [replace(row, last=last) for row in map(make, found) if row is not None]
    if not made:
        return
    classes = {
        _SOCKET: CtfEventClass(_SOCKET, 0, _SOCKET_FIELDS),
        _DESCRIPTOR: CtfEventClass(_DESCRIPTOR, 1, _DESCRIPTOR_FIELDS),
    }
    place.mkdir(mode=0o700)
    writer = TraceWriter(
        place, [*classes.values()], clock=clock, epoch=epoch, environment=environment
    )
    times = [row.time for row in made]
    packet = min(times), max(times), [*_pack_rows(writer, classes, made)]
    writer.write_stream("sockets_0", 0, [packet])
