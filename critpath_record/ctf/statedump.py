"""What was there when a recording began, as events: threads, control groups, sockets."""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from critpath_record.ctf.trace import CtfEventClass, TraceWriter, declare_fields, pack_text
from critpath_record.identity import INITIAL_PID_NAMESPACE


class ThreadState(NamedTuple):
    """A thread, when it was read (ns); `state` is the letter of ``/proc/TID/stat``."""

    time: int
    tid: int
    tgid: int
    ppid: int
    comm: str
    state: str
    cpu: int
    kernel: int  # 1 for a thread of the kernel
    namespace: int  # inode number of its pid namespace, 0 if unknown


class Cgroup(NamedTuple):
    """A control group that a process was in, when that was read (ns)."""

    time: int
    tgid: int
    hierarchy: int  # its number: 0 for version 2's only one
    path: str


class Socket(NamedTuple):
    """A socket that was open, when that was read (ns); see `critpath_record.sockets`."""

    time: int
    namespace: int
    inode: int
    family: int
    protocol: int
    state: int
    local: str  # as on the wire, in hexadecimal; empty where there is none, as is the other
    sport: int
    remote: str
    dport: int
    place: int  # its address in the kernel, 0 where that is hidden
    path: str
    last: bool = False  # read at the end


class Descriptor(NamedTuple):
    """A descriptor of a process that named a socket, when that was read (ns)."""

    time: int
    pid: int
    fd: int
    inode: int
    tid: int  # the thread that was in a system call with it; 0 for none
    last: bool = False


Row = Socket | Descriptor | Cgroup
_Kind = TypeVar("_Kind", ThreadState, Cgroup, Socket, Descriptor)

# How many bits a row's numbers have at most; what is not here is text.
_BITS: Final = {
    **dict.fromkeys(("time", "inode"), 63),
    **dict.fromkeys(("tid", "tgid", "ppid", "cpu", "kernel", "hierarchy", "pid", "fd"), 31),
    **dict.fromkeys(("family", "protocol", "sport", "dport"), 16),
    "namespace": 32,
    "state": 8,
    "place": 64,
}


def make_row(kind: type[_Kind], row: object) -> _Kind | None:
    """Return a row that was written as a list; None for one that is malformed."""
    names = [name for name in kind._fields if name != "last"]
    if not isinstance(row, list | tuple) or len(row) != len(names):
        return None
    values: Sequence[Any] = row
    for name, value in zip(names, values, strict=True):
        bits = 0 if kind is ThreadState and name == "state" else _BITS.get(name, 0)
        whole = isinstance(value, int) and 0 <= value < 1 << bits
        if not (whole if bits else isinstance(value, str)):
            return None
    if kind is Socket and any(_decode_address(row[at]) is None for at in (6, 8)):
        return None
    return kind(*row)


def _decode_address(text: str) -> bytes | None:
    """Return an address of 0, 4 or 16 bytes, None for what is none."""
    try:
        found = bytes.fromhex(text)
    except ValueError:
        return None
    return found if len(found) in {0, 4, 16} else None


_START: Final = "lttng_statedump_start"
_THREAD: Final = "lttng_statedump_process_state"
_END: Final = "lttng_statedump_end"
_CGROUP: Final = "critpath_statedump_cgroup"
_SOCKET: Final = "critpath_statedump_socket"
_DESCRIPTOR: Final = "critpath_statedump_fd"
_FIELDS: Final = declare_fields(
    "i4 tid, i4 vtid, i4 pid, i4 vpid, i4 ppid, i4 vppid, c16 name, i4 type, i4 mode, i4 submode, "
    "i4 status, i4 ns_level, u4 ns_inum, u4 cpu"
)
_CGROUP_FIELDS: Final = declare_fields("i4 pid, i4 dst_root, text dst_path")
_SOCKET_FIELDS: Final = declare_fields(
    "x8 skaddr, i4 oldstate, i4 newstate, u2 sport, u2 dport, u2 family, u2 protocol, a4 saddr, "
    "a4 daddr, a16 saddr_v6, a16 daddr_v6, u8 inode, u4 net_ns_inum, text path"
)
_DESCRIPTOR_FIELDS: Final = declare_fields("i4 pid, i4 fd, u8 inode, i4 in_tid")
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

    That of control groups has the fields of the kernel's ``cgroup_attach_task``, that of sockets
    those of ``inet_sock_set_state``, with an old state of 1 for those of the end.
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


def _pack_thread(thread: ThreadState) -> bytes:
    vtid = vpid = vppid = 0  # unknown
    if initial := thread.namespace == INITIAL_PID_NAMESPACE:
        vtid, vpid, vppid = thread.tid, thread.tgid, thread.ppid
    level = int(not initial and thread.namespace != 0)
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
    ends = (_decode_address(text) or b"" for text in (socket.local, socket.remote))
    pairs = [(a, b"") if len(a) == 4 else (b"", a) for a in ends]
    addresses = b"".join(
        address.rjust(size, b"\0")
        for size, ends in zip((4, 16), zip(*pairs, strict=True), strict=True)
        for address in ends
    )
    return (
        _SOCKET_HEAD.pack(
            *(socket.place, socket.last, socket.state),
            *(socket.sport, socket.dport, socket.family, socket.protocol),
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
        kind: Any = Socket if name == "sockets" else Descriptor
        some = (make_row(kind, row) for row in found)
        made += [row._replace(last=last) for row in some if row is not None]
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
