"""Splits a recording of one kernel by network namespaces into one recording per host.

Each host gets what its threads did, what interrupts did for its sockets and devices, and the
processors' interrupts. Threads of other hosts are one neighbour per processor, as those of another
virtual machine. Its clock may be changed by a known `Clock`: the truth, to the nanosecond.
"""

from __future__ import annotations

import bisect
import ipaddress
import json
import struct
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from critpath.read.metadata.schema import (
    ArrayClass,
    IntegerClass,
    StringClass,
    StructureClass,
    TextClass,
)
from critpath.read.traces import find_traces

NEIGHBOUR: Final = 4_100_000  # and the processor's number
EVERYWHERE: Final = "*"  # the host of kernel threads, and of what all hosts have
_PACKET: Final = 4000  # events
_ALL: Final = ("irq_", "timer_", "lttng_statedump_start", "lttng_statedump_end")


@dataclass(frozen=True)
class Clock:
    """What a host's clock shows: offset, drift, slow wander, and steps (time, ns; forward)."""

    offset: int = 0
    drift: float = 0.0
    wander: float = 0.0  # the rate's largest change
    period: float = 20e9
    steps: tuple[tuple[int, int], ...] = ()

    def show(self, time: Any, begin: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return what it shows at true times (ns); `begin` is when the recording began."""
        since = np.asarray(time, np.int64) - begin
        angle = 2 * np.pi / self.period
        bent = self.wander / angle * (1 - np.cos(angle * since)) if self.wander else 0.0
        shown = begin + since + self.offset + np.rint(self.drift * since + bent).astype(np.int64)
        for at, by in self.steps:
            shown += np.where(since >= at - begin, by, 0)
        return np.asarray(shown, np.int64)


@dataclass
class Event:
    """An event of the recording."""

    cpu: int
    time: int
    number: int
    tid: int
    flags: int
    payload: bytes
    fields: dict[str, tuple[int, int, Any]] = field(default_factory=dict)  # offset, bytes, value

    def get(self, name: str) -> Any:
        """Return a field's value, None if it has none of that name."""
        return self.fields[name][2] if name in self.fields else None


class Recording:
    """The events of a recording that critpath made with ftrace."""

    def __init__(self, place: Path) -> None:
        [trace] = [t for t in find_traces(place) if t.directory.name == "kernel"]
        [stream] = trace.schema.streams.values()
        self.place, self.directory = place, trace.directory
        self.manifest = json.loads((place / "critpath.json").read_text())
        self.metadata = (trace.directory / "metadata").read_text()
        self.names = {number: of.name for number, of in stream.events.items()}
        self._payloads = {number: of.payload for number, of in stream.events.items()}
        self.large = "event.header := struct event_header_large" in self.metadata
        self.streams = {
            file.name: [*self._read(file.read_bytes())]
            for file in sorted(trace.directory.iterdir())
            if file.name != "metadata"
        }

    def _read(self, data: bytes) -> Iterator[Event]:
        at = 0
        while at < len(data):
            begin, _, content, size, _, _, cpu = struct.unpack_from("<6QI", data, at + 32)
            position, stop, now = at + 32 + 52, at + content // 8, begin
            while position < stop:
                number, now, position = self._read_header(data, position, now)
                tid, flags = struct.unpack_from("<iB", data, position)
                position += 5
                fields, after = read_fields(self._payloads[number], data, position)
                payload = data[position:after]
                yield Event(cpu, now, number, tid, flags, payload, fields)
                position = after
            at += size // 8

    def _read_header(self, data: bytes, at: int, now: int) -> tuple[int, int, int]:
        if self.large:
            [number] = struct.unpack_from("<H", data, at)
            if number == 0xFFFF:
                number, now = struct.unpack_from("<IQ", data, at + 2)
                return number, now, at + 14
            [low], bits, size = struct.unpack_from("<I", data, at + 2), 32, 6
        else:
            [word] = struct.unpack_from("<I", data, at)
            number = word & 31
            if number == 31:
                number, now = struct.unpack_from("<IQ", data, at + 1)
                return number, now, at + 13
            low, bits, size = word >> 5, 27, 4
        mask = (1 << bits) - 1
        if low < now & mask:
            now += mask + 1
        return number, now & ~mask | low, at + size


def read_fields(
    of: StructureClass | None, data: bytes, at: int
) -> tuple[dict[str, tuple[int, int, Any]], int]:
    """Return the fields of a payload, all in whole bytes, and where it ends."""
    fields: dict[str, tuple[int, int, Any]] = {}
    begin = at
    for member in of.members if of is not None else ():
        kind = member.field
        name = member.name.removeprefix("_")
        if isinstance(kind, IntegerClass):
            size = kind.bits // 8
            value: Any = int.from_bytes(
                data[at : at + size], "big" if kind.big_endian else "little", signed=kind.signed
            )
        elif isinstance(kind, StringClass):
            size = data.index(0, at) + 1 - at
            value = data[at : at + size - 1]
        elif isinstance(kind, ArrayClass | TextClass):
            length = kind.length
            if not isinstance(length, int):
                length = fields[length[-1].removeprefix("_")][2]
            unit = 1
            if isinstance(kind, ArrayClass):
                assert isinstance(kind.element, IntegerClass)
                unit = kind.element.bits // 8
            size = length * unit
            value = data[at : at + size].partition(b"\0")[0]
        else:
            raise TypeError(f"{name}: {kind}")
        fields[name] = at - begin, size, value
        at += size
    return fields, at


class Owners:
    """Which host everything is on.

    Parameters
    ----------
    recording : Recording
    about : mapping
        ``threads``, ``addresses``, ``inodes`` of `Services.record`.
    """

    def __init__(self, recording: Recording, about: Mapping[str, Any]) -> None:
        self._names = recording.names
        self.hosts = tuple(about["addresses"])
        self._threads: dict[int, str] = {int(t): host for t, host in about["threads"].items()}
        self._addresses = {
            int(ipaddress.ip_address(a)): host for host, a in about["addresses"].items()
        }
        self._inodes = {number: host for host, number in about["inodes"].items()}
        for run in recording.manifest["runs"]:
            self._threads.setdefault(run["pid"], "client")
        self._kernel = {0}
        self._found: dict[int, set[str]] = {}  # by the event's identity; the recording has them all
        self._sockets: dict[int, list[tuple[int, str]]] = defaultdict(list)
        every = sorted((e for s in recording.streams.values() for e in s), key=lambda e: e.time)
        for event in every:
            self._learn(event, recording.names[event.number])
        for told in self._sockets.values():
            told.sort()

    def _learn(self, event: Event, name: str) -> None:
        if name == "lttng_statedump_process_state" and event.get("type") == 1:
            self._kernel.add(event.get("tid"))
        elif name == "sched_process_fork":
            parent, child = event.get("parent_tid"), event.get("child_tid")
            if parent in self._threads:
                self._threads.setdefault(child, self._threads[parent])
        elif name == "task_newtask" and event.tid in self._threads:
            self._threads.setdefault(event.get("pid") or event.get("tid"), self._threads[event.tid])
        host = self._by_address(event)
        socket = self.socket(event)
        if socket and not host and name in {"sock_send_length", "sock_recv_length"}:
            host = self._threads.get(event.tid, "")
        if socket and host:
            self._sockets[socket].append((event.time, host))

    def _by_address(self, event: Event) -> str:
        if event.get("net_ns_inum"):
            return self._inodes.get(event.get("net_ns_inum"), "")
        address = event.get("saddr")
        return self._addresses.get(address, "") if isinstance(address, int) else ""

    def find_once(self, event: Event) -> set[str]:
        """Return what `find` does: of each host's recording the same events are asked about."""
        found = self._found.get(id(event))
        if found is None:
            found = self._found[id(event)] = self.find(event)
        return found

    @staticmethod
    def socket(event: Event) -> int:
        """Return the socket that an event is about, 0 for none."""
        for name in ("skaddr", "sk"):
            if event.get(name):
                return int(event.get(name))
        return 0

    def thread(self, tid: int) -> str:
        """Return a thread's host."""
        return EVERYWHERE if tid in self._kernel else self._threads.get(tid, "")

    def find(self, event: Event) -> set[str]:
        """Return the hosts that an event is of."""
        name = self._names[event.number]
        if name.startswith(_ALL):
            return {EVERYWHERE}
        socket = self.socket(event)
        if socket:
            told = self._sockets.get(socket)
            if not told:
                return {self.thread(event.tid)}
            return {told[max(0, bisect.bisect_right(told, (event.time, "~")) - 1)][1]}
        if name == "sched_switch":
            return {self.thread(event.get("prev_tid")), self.thread(event.get("next_tid"))}
        for key in ("child_tid", "pid", "tid"):
            if name != "critpath_current" and isinstance(event.get(key), int):
                return {self.thread(event.get(key))}
        if name == "critpath_current":
            return {EVERYWHERE}
        device = event.get("name")
        if name.startswith("net") and isinstance(device, bytes):
            host = device.decode("utf-8", "replace").removeprefix("to-")
            if device.startswith(b"to-") and host in self.hosts:
                return {host}
            if device != b"lo":
                return set()
        return {self.thread(event.tid)}


@dataclass(frozen=True)
class Host:
    """A host that is written: what it is called, whose threads it has, and its clock."""

    name: str
    of: Collection[str]
    clock: Clock = Clock()
    error: int = 0  # by how much its time since the epoch is wrong (ns)


def split(
    source: Path, target: Path, clocks: Mapping[str, Clock], *, together: str = ""
) -> dict[str, Path]:
    """Write one recording per host, or with `together` one of all of that name.

    Parameters
    ----------
    source : Path
        What `Services.record` made.
    target : Path
        Gets a directory for each host.
    clocks : mapping of str to Clock
        Of hosts whose clocks are to be changed; the others have that of the kernel.
    together : str, optional
    """
    recording = Recording(source / "recording")
    about = json.loads((source / "hosts.json").read_text())
    owners = Owners(recording, about)
    hosts = [Host(name, {name}, clocks.get(name, Clock())) for name in owners.hosts]
    if together:
        hosts = [Host(together, set(owners.hosts))]
    found = {}
    for host in hosts:
        found[host.name] = target / host.name
        _Writer(recording, owners, host, about).write(target / host.name)
    return found


class _Writer:
    """Writes one host's recording."""

    def __init__(
        self, recording: Recording, owners: Owners, host: Host, about: Mapping[str, Any]
    ) -> None:
        self._recording, self._owners, self._host = recording, owners, host
        self._about = about
        self._places = frozenset((EVERYWHERE, *host.of))
        self._begin = int(recording.manifest["begin"])
        self._identity = uuid.uuid5(uuid.NAMESPACE_DNS, f"{host.name}.critpath.invalid")

    def _mine(self, tid: int) -> bool:
        return self._owners.thread(tid) in self._places

    def _has(self, event: Event) -> bool:
        return not self._places.isdisjoint(self._owners.find_once(event))

    def write(self, place: Path) -> None:
        """Write the recording to a directory, which is made."""
        kernel = place / "trace/kernel"
        kernel.mkdir(parents=True)
        old = self._recording.metadata
        epoch = int(self._recording.manifest["clock"]["epoch"]) - self._host.clock.offset
        parts = []
        for line in old.split("\n"):
            text = line
            if line.startswith("\tuuid = "):
                text = f'\tuuid = "{self._identity}";'
            elif line.startswith("\thostname = "):
                text = f'\thostname = "{self._host.name}";'
            elif line.startswith("\toffset = "):
                text = f"\toffset = {epoch};"
            parts.append(text)
        (kernel / "metadata").write_text("\n".join(parts))
        for instance, (name, events) in enumerate(self._recording.streams.items()):
            with (kernel / name).open("wb") as stream:
                stream.writelines(self._packets([*self._of_host(events)], instance))
        manifest = self._manifest(epoch)
        (place / "critpath.json").write_text(json.dumps(manifest, indent=1))

    def _of_host(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yield the host's events; threads of others are the processor's neighbour."""
        for event in events:
            name = self._recording.names[event.number]
            neighbour = NEIGHBOUR + event.cpu
            if name == "sched_switch":
                ends = [self._cut(event.get(f"{w}_tid"), neighbour) for w in ("prev", "next")]
                if ends[0] == ends[1]:
                    continue
            elif not self._has(event):
                continue
            else:
                ends = []
            payload = bytearray(event.payload)
            for which, tid in zip(("prev", "next"), ends, strict=False):
                if tid == neighbour:
                    put(payload, event, f"{which}_tid", tid)
                    put_text(payload, event, f"{which}_comm", b"neighbour")
            if name == "critpath_current":
                put(payload, event, "tid", self._cut(event.get("tid"), neighbour))
            tid = self._cut(event.tid, neighbour) if event.tid else 0
            yield Event(event.cpu, event.time, event.number, tid, event.flags, bytes(payload))

    def _cut(self, tid: int, neighbour: int) -> int:
        return tid if self._mine(tid) else neighbour

    def _packets(self, events: Sequence[Event], instance: int) -> Iterator[bytes]:
        shown = self._show([event.time for event in events])
        large = self._recording.large
        mark = b"\xff\xff" if large else b"\x1f"
        header = struct.pack("<I16sIQ", 0xC1FC1FC1, self._identity.bytes, 0, instance)
        for number, first in enumerate(range(0, len(events), _PACKET)):
            some = events[first : first + _PACKET]
            times = shown[first : first + _PACKET]
            body = b"".join(
                mark + struct.pack("<IQiB", e.number, time, e.tid, e.flags) + e.payload
                for e, time in zip(some, times, strict=True)
            )
            bits = 8 * (len(header) + 52 + len(body))
            context = struct.pack("<6QI", times[0], times[-1], bits, bits, number, 0, some[0].cpu)
            yield header + context + body

    def _show(self, times: Sequence[int]) -> list[int]:
        found: list[int] = self._host.clock.show(np.array(times, np.int64), self._begin).tolist()
        return found

    def _manifest(self, epoch: int) -> dict[str, Any]:
        old = self._recording.manifest
        begin, end = self._show([self._begin, int(old["end"])])
        mine = [self._about["addresses"][name] for name in self._host.of]
        devices = sorted(["lo", *(f"to-{name}" for name in self._host.of)])
        runs = [
            {
                **run,
                **dict(zip(("begin", "end"), self._show([run["begin"], run["end"]]), strict=True)),
            }
            for run in old["runs"]
            if "client" in self._host.of
        ]
        made = {**old, "begin": begin, "end": end, "runs": runs, "streams": []}
        made["session"] = f"{old['session']}-{self._host.name}"
        of_all = {"event_count"}  # not of this host's part
        made["recorder"] = {k: v for k, v in old["recorder"].items() if k not in of_all}
        made["command"] = old["command"] if runs else []
        made["clock"] = {**old["clock"], "epoch": epoch, "synchronised": "no"}
        for key in ("samples", "error_ns"):
            made["clock"].pop(key, None)
        of_host = {
            "name": self._host.name,
            "boot_id": str(self._identity),
            "machine_id": self._identity.hex,
            "addresses": sorted(mine),
            "net_devices": devices,
        }
        made["host"] = {**old["host"], **of_host}
        for key in ("network", "namespaces", "machine"):
            made.pop(key, None)
        return made


def put(payload: bytearray, event: Event, name: str, value: int) -> None:
    """Write a number into a payload."""
    at, size, _ = event.fields[name]
    payload[at : at + size] = value.to_bytes(size, "little", signed=True)


def put_text(payload: bytearray, event: Event, name: str, text: bytes) -> None:
    """Write a text of fixed length into a payload."""
    at, size, _ = event.fields[name]
    payload[at : at + size] = text.ljust(size, b"\0")[:size]
