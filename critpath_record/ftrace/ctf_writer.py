"""Reads what a recorder left beside the pages: what they are, and what was counted."""

from __future__ import annotations

import contextlib
import json
import re
import struct
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from critpath.errors import CritpathError
from critpath.model import Gap
from critpath_record.budget.gaps import LayerGap
from critpath_record.ftrace.ctf_events import (
    CtfEventClass,
    declare_address,
    declare_characters,
    declare_integer,
)
from critpath_record.ftrace.raw import AT_END, RAW_FORMAT
from critpath_record.ftrace.received import read_labels
from critpath_record.identity import INITIAL_PID_NAMESPACE

_LARGEST_PAGE: Final = 1 << 27
_MOST: Final = (1 << 63) - 1


@dataclass(frozen=True)
class ThreadState:
    """One row of a statedump.

    Attributes
    ----------
    time : int
        When it was read (ns).
    tid, tgid, ppid : int
    comm : str
    state : str
        Letter of ``/proc/TID/stat``.
    cpu : int
    kernel : bool
        A kernel thread.
    namespace : int
        Inode number of its pid namespace, 0 if unknown.
    """

    time: int
    tid: int
    tgid: int
    ppid: int
    comm: str
    state: str
    cpu: int
    kernel: bool
    namespace: int


@dataclass(frozen=True)
class Cgroup:
    """A control group that a process is in.

    Attributes
    ----------
    time : int
        When it was read (ns).
    tgid : int
    hierarchy : int
        Its number: 0 for version 2's only one.
    path : str
    """

    time: int
    tgid: int
    hierarchy: int
    path: str


@dataclass(frozen=True)
class Socket:
    """A socket that was open; `critpath_record.sockets` has the words.

    Attributes
    ----------
    time : int
        When it was read (ns).
    namespace, inode, family, protocol, state : int
    local, remote : bytes
        Addresses as on the wire; empty where there is none.
    ports : tuple of (int, int)
        Local and remote.
    place : int
        Its address in the kernel, 0 where that is hidden.
    path : str
    """

    time: int
    namespace: int
    inode: int
    family: int
    protocol: int
    state: int
    local: bytes
    remote: bytes
    ports: tuple[int, int]
    place: int
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


_Row = TypeVar("_Row", Socket, Descriptor)


@dataclass(frozen=True)
class RawRecording:
    """A raw directory without its pages.

    Attributes
    ----------
    directory : Path
    session : str
    epoch : int
        Offset from the trace's clock to the Unix epoch (ns).
    page_bytes : int
    cpus : tuple of int
    begin, end : int
        ns; end is 0 if the recorder was killed.
    host, recorder : mapping
    threads, threads_end : tuple of ThreadState
        At the start and at the end.
    stats : mapping of int to mapping of str to int, or None
        The kernel's counts by CPU; None if they were not written.
    cgroups : tuple of Cgroup
        At the start.
    sockets : tuple of Socket
    descriptors : tuple of Descriptor
        At the start, then at the end.
    gaps : tuple of Gap
        What the recorder noticed itself.
    beats : mapping of int to int
        How many beats each cpu wrote; nothing where they were not counted.
    """

    directory: Path
    session: str
    epoch: int
    page_bytes: int
    cpus: tuple[int, ...]
    begin: int
    end: int
    host: Mapping[str, Any]
    recorder: Mapping[str, Any]
    threads: tuple[ThreadState, ...]
    threads_end: tuple[ThreadState, ...]
    stats: Mapping[int, Mapping[str, int]] | None
    cgroups: tuple[Cgroup, ...] = ()
    sockets: tuple[Socket, ...] = ()
    descriptors: tuple[Descriptor, ...] = ()
    gaps: tuple[Gap, ...] = ()
    beats: Mapping[int, int] = field(default_factory=dict)


def _broken(file: Path, what: str) -> CritpathError:
    return CritpathError(f"{file}: {what}", "convert a raw directory of `critpath record`")


def _load(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except OSError as error:
        raise _broken(file, error.strerror or "cannot be read") from error
    except (ValueError, RecursionError) as error:
        raise _broken(file, "is not JSON") from error


def _read_integer(file: Path, of: Mapping[str, Any], name: str, *, low: int = 0) -> int:
    value = of.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= _MOST:
        raise _broken(file, f"{name!r} is not a number as it should be")
    return value


def _mapping(of: Any) -> Mapping[str, Any]:
    return of if isinstance(of, dict) else {}


def _read_threads(file: Path) -> tuple[ThreadState, ...]:
    """Read a statedump; a killed recorder may have left none, or half of one."""
    if not file.exists():
        return ()
    try:
        rows = _load(file)
    except CritpathError:
        return ()
    found = []
    for row in rows if isinstance(rows, list) else []:
        if not isinstance(row, list) or len(row) != 9:
            raise _broken(file, "has a row that is not a thread's")
        time, tid, tgid, ppid, comm, state, cpu, kernel, namespace = row
        if not all(
            isinstance(v, int) and 0 <= v < limit
            for v, limit in (
                *((time, 1 << 63), (tid, 1 << 31), (tgid, 1 << 31), (ppid, 1 << 31)),
                *((cpu, 1 << 31), (namespace, 1 << 32)),
            )
        ):
            raise _broken(file, "has a row that is not a thread's")
        found.append(
            ThreadState(time, tid, tgid, ppid, str(comm), str(state), cpu, bool(kernel), namespace)
        )
    return tuple(sorted(found, key=lambda t: t.time))


def _read_cgroups(file: Path) -> tuple[Cgroup, ...]:
    """Read the processes' control groups; a damaged file counts as missing."""
    try:
        rows = _load(file) if file.exists() else []
    except CritpathError:
        return ()
    found = []
    for row in rows if isinstance(rows, list) else []:
        if not isinstance(row, list) or len(row) != 4:
            raise _broken(file, "has a row that is not of a control group")
        time, tgid, hierarchy, path = row
        numbers = ((time, 1 << 63), (tgid, 1 << 31), (hierarchy, 1 << 31))
        if not isinstance(path, str) or not all(
            isinstance(value, int) and 0 <= value < limit for value, limit in numbers
        ):
            raise _broken(file, "has a row that is not of a control group")
        found.append(Cgroup(time, tgid, hierarchy, path))
    return tuple(sorted(found, key=lambda cgroup: cgroup.time))


def _read_rows(
    directory: Path, name: str, make: Callable[[Any], _Row | None], end: int
) -> tuple[_Row, ...]:
    """Read what was there at the start, and at the end, which is not after the recording.

    A damaged file counts as missing, a malformed row is an error.
    """
    found: list[_Row] = []
    for last in (False, True):
        file = directory / f"{name}s{AT_END if last else ''}.json"
        try:
            rows = _load(file) if file.exists() else []
        except CritpathError:
            continue
        made = [make(row) for row in (rows if isinstance(rows, list) else [])]
        if None in made:
            raise _broken(file, f"has a row that is not of a {name}")
        of = sorted((row for row in made if row is not None), key=lambda row: row.time)
        found += (replace(row, time=min(row.time, end or row.time), last=last) for row in of)
    return tuple(found)


def _make_descriptor(row: Any) -> Descriptor | None:
    """Return a row as a descriptor, None for one that is malformed."""
    try:
        numbers = dict(zip(("time", "pid", "fd", "inode", "tid"), row, strict=True))
    except (TypeError, ValueError):
        return None
    if not all(isinstance(n, int) and 0 <= n < 1 << 63 for n in numbers.values()):
        return None
    small = all(numbers[name] < 1 << 31 for name in ("pid", "fd", "tid"))
    return Descriptor(**numbers) if small else None


def _make_socket(row: Any) -> Socket | None:
    """Return a row as a socket, None for one that is malformed."""
    try:
        time, namespace, inode, family, protocol, state, *ends, place, path = row
        local, sport, remote, dport = ends
        numbers = (
            *((time, 63), (namespace, 32), (inode, 63), (family, 16), (protocol, 16)),
            *((state, 8), (sport, 16), (dport, 16), (place, 64)),
        )
        right = all(isinstance(n, int) and 0 <= n < 1 << bits for n, bits in numbers)
        both = bytes.fromhex(local), bytes.fromhex(remote)
    except (TypeError, ValueError):
        return None
    if not right or {len(b) for b in both} - {0, 4, 16} or not isinstance(path, str):
        return None
    return Socket(
        *(time, namespace, inode, family, protocol, state, *both, (sport, dport), place, path)
    )


def read_stats(file: Path) -> Mapping[int, Mapping[str, int]] | None:
    """Read the kernel's counts by cpu; None if they were not written."""
    if not file.exists():
        return None
    try:
        counted = _load(file)
    except CritpathError:
        return None
    return {
        int(cpu): {str(k): v for k, v in _mapping(of).items() if isinstance(v, int) and v >= 0}
        for cpu, of in _mapping(counted).items()
        if cpu.isdecimal()
    }


def _read_gaps(rows: Any) -> Iterator[Gap]:
    """Yield what the recorder noticed; what is malformed is left out."""
    for row in rows if isinstance(rows, list) else ():
        with contextlib.suppress(KeyError, TypeError, ValueError):
            begin, end, cpu = (int(row[key]) for key in ("begin", "end", "cpu"))
            yield Gap(begin, end, cpu, str(row["what"]))


def read_raw(directory: Path) -> RawRecording:
    """Read a raw directory's descriptions; raises CritpathError if ``raw.json`` is unusable."""
    file = directory / "raw.json"
    about = _mapping(_load(file))
    if about.get("format") != RAW_FORMAT:
        raise _broken(file, f"is not {RAW_FORMAT}")
    if about.get("clock") != "mono":
        raise _broken(file, "the clock is not mono")
    cpus = about.get("cpus")
    if not isinstance(cpus, list) or not all(isinstance(c, int) and 0 <= c < 1 << 16 for c in cpus):
        raise _broken(file, "'cpus' is not a list of numbers")
    page_bytes = _read_integer(file, about, "page_bytes", low=64)
    if page_bytes > _LARGEST_PAGE:
        raise _broken(file, "'page_bytes' is not a size of pages")
    end = _read_integer(file, about, "end") if about.get("end") else 0
    return RawRecording(
        directory=directory,
        session=str(about.get("session", "")),
        epoch=_read_integer(file, about, "epoch", low=-_MOST),
        page_bytes=page_bytes,
        cpus=tuple(dict.fromkeys(cpus)),
        begin=_read_integer(file, about, "begin"),
        end=end,
        host=_mapping(about.get("host")),
        recorder=_mapping(about.get("recorder")),
        threads=_read_threads(directory / "statedump.json"),
        threads_end=_read_threads(directory / f"statedump{AT_END}.json"),
        cgroups=_read_cgroups(directory / "cgroups.json"),
        sockets=_read_rows(directory, "socket", _make_socket, end),
        descriptors=_read_rows(directory, "descriptor", _make_descriptor, end),
        stats=read_stats(directory / "stats.json"),
        gaps=tuple(_read_gaps(about.get("gaps"))),
        beats={
            int(cpu): count
            for cpu, count in _mapping(about.get("beats")).items()
            if cpu.isdecimal() and isinstance(count, int)
        },
    )


# Metadata, as LTTng's kernel tracer writes it


MAGIC: Final = 0xC1FC1FC1
# More classes than the compact header has ids for need the large one.
COMPACT_IDS: Final = 31

_HEAD: Final = """\
/* CTF 1.8 */

typealias integer {{ size = 8; align = 8; signed = false; }} := uint8_t;
typealias integer {{ size = 16; align = 8; signed = false; }} := uint16_t;
typealias integer {{ size = 32; align = 8; signed = false; }} := uint32_t;
typealias integer {{ size = 64; align = 8; signed = false; }} := uint64_t;
typealias integer {{ size = 64; align = 8; signed = false; }} := unsigned long;
typealias integer {{ size = 5; align = 1; signed = false; }} := uint5_t;
typealias integer {{ size = 27; align = 1; signed = false; }} := uint27_t;

trace {{
	major = 1;
	minor = 8;
	uuid = "{uuid}";
	byte_order = le;
	packet.header := struct {{
		uint32_t magic;
		uint8_t  uuid[16];
		uint32_t stream_id;
		uint64_t stream_instance_id;
	}};
}};

env {{
{env}
}};

clock {{
	name = "monotonic";
	uuid = "{clock_uuid}";
	description = "Monotonic Clock";
	freq = 1000000000; /* Frequency, in Hz */
	/* clock value offset from Epoch is: offset * (1/freq) */
	offset = {epoch};
}};

"""

_CLOCKS: Final = """\
typealias integer {{
	size = {0}; align = {1}; signed = false;
	map = clock.monotonic.value;
}} := uint{0}_clock_monotonic_t;

"""

_CONTEXT: Final = """\
struct packet_context {
	uint64_clock_monotonic_t timestamp_begin;
	uint64_clock_monotonic_t timestamp_end;
	uint64_t content_size;
	uint64_t packet_size;
	uint64_t packet_seq_num;
	unsigned long events_discarded;
	uint32_t cpu_id;
};

"""

_HEADER: Final = """\
struct event_header_{name} {{
	enum : uint{id_bits}_t {{ compact = 0 ... {most}, extended = {extended} }} id;
	variant <id> {{
		struct {{
			uint{time_bits}_clock_monotonic_t timestamp;
		}} compact;
		struct {{
			uint32_t id;
			uint64_clock_monotonic_t timestamp;
		}} extended;
	}} v;
}} align(8);

"""


def _format_value(value: object) -> str:
    """Format an env value as TSDL; text can end neither its string nor its line."""
    if isinstance(value, int):
        return str(value)
    text = "".join(c if " " <= c <= "~" else "?" for c in str(value))
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def format_metadata(
    classes: Sequence[CtfEventClass],
    *,
    identity: uuid.UUID,
    clock: uuid.UUID,
    epoch: int,
    environment: Mapping[str, object],
) -> str:
    """Return the text of ``metadata``."""
    kind = "large" if len(classes) > COMPACT_IDS else "compact"
    parts = [
        _HEAD.format(
            uuid=identity,
            clock_uuid=clock,
            epoch=epoch,
            env="\n".join(
                f"\t{name} = {_format_value(value)};" for name, value in environment.items()
            ),
        ),
        *(_CLOCKS.format(bits, align) for bits, align in ((27, 1), (32, 8), (64, 8))),
        _CONTEXT,
        _HEADER.format(name="compact", id_bits=5, most=30, extended=31, time_bits=27),
        _HEADER.format(name="large", id_bits=16, most=65534, extended=65535, time_bits=32),
        "stream {\n\tid = 0;\n",
        f"\tevent.header := struct event_header_{kind};\n",
        "\tpacket.context := struct packet_context;\n\tevent.context := struct {\n",
        f"\t\t{declare_integer('tid', 4, signed=True)}\n",
        f"\t\t{declare_integer('common_flags', 1, signed=False, base=16)}\n",
        "\t};\n};\n\n",
    ]
    for one in classes:
        fields = "".join(f"\t\t{field}\n" for field in one.fields)
        parts.append(
            f'event {{\n\tname = "{one.name}";\n\tid = {one.id};\n\tstream_id = 0;\n'
            f"\tfields := struct {{\n{fields}\t}};\n}};\n\n"
        )
    return "".join(parts)


def packet_header(identity: uuid.UUID, instance: int) -> bytes:
    """Return the header of every packet of the stream number `instance`."""
    return struct.pack("<I16sIQ", MAGIC, identity.bytes, 0, instance)


# Statedump: the threads at the start, as LTTng's events


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
    "string { encoding = UTF8; } _dst_path;",
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
    "string { encoding = UTF8; } _path;",
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


def statedump_classes(first: int, raw: RawRecording) -> dict[str, CtfEventClass]:
    """Return the event classes of a recording's statedump, with ids from `first` on.

    LTTng lacks those of critpath.  That of control groups has the fields of the kernel's
    ``cgroup_attach_task``, that of sockets those of ``inet_sock_set_state``, with an old state
    of 1 for those that were there at the end.
    """
    wanted = {
        _START: (),
        _THREAD: _FIELDS,
        _END: (),
        **({_CGROUP: _CGROUP_FIELDS} if raw.cgroups else {}),
        **({_SOCKET: _SOCKET_FIELDS} if raw.sockets else {}),
        **({_DESCRIPTOR: _DESCRIPTOR_FIELDS} if raw.descriptors else {}),
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


def _pack_header(number: int, time: int, *, large: bool, tid: int = 0) -> bytes:
    """Return an event's header with its full time, and a context of a thread alone."""
    mark = b"\xff\xff" if large else b"\x1f"
    return mark + struct.pack("<IQiB", number, time, tid, 0)


def _pack_text(text: str) -> bytes:
    """Return text as a string of the trace, which a zero ends."""
    return text.encode("utf-8", "replace").partition(b"\0")[0] + b"\0"


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
        + _pack_text(socket.path)
    )


def statedump_packet(
    raw: RawRecording, classes: Mapping[str, CtfEventClass], header: bytes, *, count: int
) -> Iterator[bytes]:
    """Yield the one packet of the statedump's stream, in parts; there are threads."""
    large = count > COMPACT_IDS
    first = raw.threads[0].time
    events = [_pack_header(classes[_START].id, first, large=large)]
    for thread in raw.threads:
        events.append(_pack_header(classes[_THREAD].id, thread.time, large=large))
        events.append(_pack_thread(thread))
    last = raw.threads[-1].time
    for cgroup in raw.cgroups:
        last = max(last, cgroup.time)
        events.append(_pack_header(classes[_CGROUP].id, last, large=large))
        events.append(struct.pack("<ii", cgroup.tgid, cgroup.hierarchy) + _pack_text(cgroup.path))
    events.append(_pack_header(classes[_END].id, last, large=large))
    rows: list[Socket | Descriptor] = [*raw.sockets, *raw.descriptors]
    events += _pack_rows(rows, classes, large=large)
    last = max([last, *(row.time for row in rows)])
    yield from _finish_packet(header, first, last, events)


def _finish_packet(
    header: bytes, first: int, last: int, events: Sequence[bytes]
) -> Iterator[bytes]:
    body = b"".join(events)
    bits = 8 * (len(header) + 52 + len(body))
    yield header
    yield struct.pack("<6QI", first, last, bits, bits, 0, 0, 0)
    yield body


def _pack_rows(
    rows: Sequence[Socket | Descriptor], classes: Mapping[str, CtfEventClass], *, large: bool
) -> Iterator[bytes]:
    """Yield sockets and descriptors as events, in order of time."""
    for row in sorted(rows, key=lambda row: row.time):
        if isinstance(row, Socket):
            yield _pack_header(classes[_SOCKET].id, row.time, large=large)
            yield _pack_socket(row)
        else:
            yield _pack_header(classes[_DESCRIPTOR].id, row.time, large=large)
            yield struct.pack("<iiQi", row.pid, row.fd, row.inode, row.tid)


def write_sockets(
    place: Path,
    rows: Sequence[tuple[str, Sequence[Any], bool]],
    *,
    clock: uuid.UUID,
    epoch: int,
    environment: Mapping[str, object],
) -> None:
    """Write sockets and descriptors as a trace of their own, beside that of another tracer.

    Parameters
    ----------
    place : Path
        A directory, which is made.
    rows : sequence of (str, sequence, bool)
        ``sockets`` or ``descriptors``, what `critpath_record.sockets` found, whether at the end.
    clock : UUID
        Of the other tracer's clock, which is CLOCK_MONOTONIC.
    """
    made: list[Socket | Descriptor] = []
    for name, found, last in rows:
        make = _make_socket if name == "sockets" else _make_descriptor
        made += [replace(row, last=last) for row in map(make, found) if row is not None]
    if not made:
        return
    classes = {
        _SOCKET: CtfEventClass(_SOCKET, 0, _SOCKET_FIELDS),
        _DESCRIPTOR: CtfEventClass(_DESCRIPTOR, 1, _DESCRIPTOR_FIELDS),
    }
    identity = uuid.uuid4()
    place.mkdir(mode=0o700)
    text = format_metadata(
        [*classes.values()], identity=identity, clock=clock, epoch=epoch, environment=environment
    )
    (place / "metadata").write_text(text, encoding="utf-8")
    times = [row.time for row in made]
    events = [*_pack_rows(made, classes, large=False)]
    packet = _finish_packet(packet_header(identity, 0), min(times), max(times), events)
    with (place / "sockets_0").open("wb") as stream:
        stream.writelines(packet)


# Labels of received messages: events of their own, which LTTng lacks


LABEL: Final = "critpath_message_label"
_LABEL_FIELDS: Final = (
    declare_integer("sk", 8, signed=False, base=16),
    declare_integer("length", 4, signed=False),
    declare_integer("trace_id_high", 8, signed=False, base=16),
    declare_integer("trace_id_low", 8, signed=False, base=16),
    "string { encoding = UTF8; } _label;",
)
_LABEL_HEAD: Final = struct.Struct("<QI")
_LABELS_AT_ONCE: Final = 4096


def label_class(number: int) -> CtfEventClass:
    """Return the event class of messages' labels."""
    return CtfEventClass(LABEL, number, _LABEL_FIELDS)


def label_packets(
    file: Path, number: int, header: bytes, span: tuple[int, int], *, count: int
) -> Iterator[tuple[int, bytes]]:
    """Yield packets of the labels' stream, each with its number of events.

    `span` are the recording's begin and end: what was received outside is left out.
    """
    large = count > COMPACT_IDS
    rows = (r for r in read_labels(file) if span[0] <= r[0] <= span[1] and r[2] < 1 << 31)
    sequence = 0
    while some := list(islice(rows, _LABELS_AT_ONCE)):
        body = b"".join(
            _pack_header(number, when, large=large, tid=tid)
            + _LABEL_HEAD.pack(socket, size)
            + struct.pack("<QQ", *struct.unpack(">QQ", trace))
            + _pack_text(label)
            for when, socket, tid, size, trace, label in some
        )
        bits = 8 * (len(header) + 52 + len(body))
        context = struct.pack("<6QI", some[0][0], some[-1][0], bits, bits, sequence, 0, 0)
        yield len(some), header + context + body
        sequence += 1


# Gaps of a recording under a budget


_GAP_FIELDS: Final = (
    "string { encoding = UTF8; } _layer;",
    "string { encoding = UTF8; } _why;",
)


def gap_classes(first: int) -> tuple[CtfEventClass, ...]:
    """Return the event classes of a gap's begin and end, numbered from `first`."""
    names = ("critpath_gap_begin", "critpath_gap_end")
    return tuple(CtfEventClass(name, first + i, _GAP_FIELDS) for i, name in enumerate(names))


def gap_packets(
    gaps: Sequence[LayerGap], classes: Sequence[CtfEventClass], header: bytes, *, count: int
) -> Iterator[bytes]:
    """Yield packets of the stream that says when gates were closed."""
    large = count > COMPACT_IDS
    begin, end = (one.id for one in classes)
    rows = [(gap.begin, begin, gap) for gap in gaps] + [(gap.end, end, gap) for gap in gaps]
    rows.sort(key=lambda row: row[:2])
    for sequence, at in enumerate(range(0, len(rows), _LABELS_AT_ONCE)):
        some = rows[at : at + _LABELS_AT_ONCE]
        body = b"".join(
            _pack_header(number, when, large=large) + _pack_text(gap.layer) + _pack_text(gap.why)
            for when, number, gap in some
        )
        bits = 8 * (len(header) + 52 + len(body))
        context = struct.pack("<6QI", some[0][0], some[-1][0], bits, bits, sequence, 0, 0)
        yield header + context + body
