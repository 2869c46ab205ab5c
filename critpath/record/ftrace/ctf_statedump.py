"""Writes the threads that were there at the start as LTTng's statedump events.

The fields are those of LTTng 2.5 to 2.10, whose one event a thread has its namespace
too; later LTTng writes a second event for it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from typing import Final

from critpath.record.ftrace.ctf_events import EventClass, characters, integer
from critpath.record.ftrace.ctf_metadata import COMPACT_IDS
from critpath.record.ftrace.ctf_raw import Cgroup, Thread

# The kernel's own number of the first pid namespace (PROC_PID_INIT_INO).
FIRST_NAMESPACE: Final = 0xEFFFFFFC

_FIELDS: Final = (
    *(integer(name, 4, signed=True) for name in ("tid", "vtid", "pid", "vpid", "ppid", "vppid")),
    characters("name", 16),
    *(integer(name, 4, signed=True) for name in ("type", "mode", "submode", "status")),
    integer("ns_level", 4, signed=True),
    integer("ns_inum", 4, signed=False),
    integer("cpu", 4, signed=False),
)
_CGROUP_FIELDS: Final = (
    integer("pid", 4, signed=True),
    integer("dst_root", 4, signed=True),
    "string { encoding = UTF8; } _dst_path;",
)
_PROCESS: Final = struct.Struct("<6i16s5iII")

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


def statedump_classes(first: int, *, cgroups: bool = False) -> tuple[EventClass, ...]:
    """Return the classes: start, process state, end, and control group of a process.

    Parameters
    ----------
    first : int
        Id of the first of them.
    cgroups : bool
        With the last, which is no event of LTTng's; it has the fields of the kernel's
        ``cgroup_attach_task``.
    """
    return (
        EventClass("lttng_statedump_start", first, ()),
        EventClass("lttng_statedump_process_state", first + 1, _FIELDS),
        EventClass("lttng_statedump_end", first + 2, ()),
    ) + ((EventClass("critpath_statedump_cgroup", first + 3, _CGROUP_FIELDS),) if cgroups else ())


def _virtual(thread: Thread) -> tuple[int, int, int, int]:
    """Return vtid, vpid, vppid and the level of its namespace; 0 for what is not known."""
    if thread.namespace == FIRST_NAMESPACE:
        return thread.tid, thread.tgid, thread.ppid, 0
    return 0, 0, 0, int(thread.namespace != 0)


def _fields(thread: Thread) -> bytes:
    vtid, vpid, vppid, level = _virtual(thread)
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


def _header(number: int, time: int, *, large: bool) -> bytes:
    """Return an event's header with its whole time, and the context of no thread."""
    mark = b"\xff\xff" if large else b"\x1f"
    return mark + struct.pack("<IQiB", number, time, 0, 0)


def statedump_packet(
    threads: Sequence[Thread],
    cgroups: Sequence[Cgroup],
    classes: Sequence[EventClass],
    header: bytes,
    *,
    count: int,
) -> Iterator[bytes]:
    """Yield the packet of the statedump's stream, in parts.

    Parameters
    ----------
    threads : sequence of Thread
        In order of time, at least one.
    cgroups : sequence of Cgroup
        In order of time; none without its class.
    classes : sequence of EventClass
        From `statedump_classes`.
    header : bytes
        Packet header.
    count : int
        Number of event classes of the stream.
    """
    large = count > COMPACT_IDS
    start, process, end, *group = classes
    events = [_header(start.id, threads[0].time, large=large)]
    for thread in threads:
        events.append(_header(process.id, thread.time, large=large))
        events.append(_fields(thread))
    last = threads[-1].time
    for cgroup in cgroups:
        last = max(last, cgroup.time)
        path = cgroup.path.encode("utf-8", "replace").partition(b"\0")[0]
        events.append(_header(group[0].id, last, large=large))
        events.append(struct.pack("<ii", cgroup.tgid, cgroup.hierarchy) + path + b"\0")
    events.append(_header(end.id, last, large=large))
    body = b"".join(events)
    bits = 8 * (len(header) + 52 + len(body))
    yield header
    yield struct.pack("<6QI", threads[0].time, last, bits, bits, 0, 0, 0)
    yield body
