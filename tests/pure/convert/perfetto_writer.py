"""Writes traces as Perfetto's recorder does, by its schema: of raw pages, or drawn events."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

from critpath_record.ftrace._pages import list_records
from critpath_record.ftrace.formats import EventFormat, read_format

BOOTTIME, REALTIME, MONOTONIC = 6, 1, 3
TEXTS = {FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES}


@dataclass
class Event:
    """An event of ftrace: what Perfetto calls it, and what its message holds."""

    time: int
    pid: int
    name: str
    values: dict[str, Any]
    flags: int = 0


@dataclass
class Bundle:
    """What was read of a cpu's buffer at once."""

    cpu: int
    events: list[Event]
    lost: bool = False
    more: dict[str, Any] = field(default_factory=dict)


def read_bundles(raw: Path, page: int = 4096) -> Iterator[Bundle]:
    """Yield what the pages of a raw directory hold, in order of time as a recorder reads them."""
    forms = {
        form.number: form
        for form in (read_format(file) for file in sorted((raw / "formats").iterdir()))
    }
    known = {f.name for f in proto.FtraceEvent.DESCRIPTOR.fields}
    found = []
    for file in sorted(raw.glob("cpu[0-9]*")):
        data = file.read_bytes()
        for at in range(0, len(data), page):
            events = [
                read_event(time, record, forms)
                for time, record in list_records(data[at : at + page])
            ]
            kept = [e for e in events if e.name in known]
            if kept:
                lost = bool(int.from_bytes(data[at + 8 : at + 12], "little") & 0x80000000)
                found.append(Bundle(int(file.name[3:]), kept, lost))
    yield from sorted(found, key=lambda b: (b.events[-1].time, b.cpu))


def read_event(time: int, record: bytes, forms: dict[int, EventFormat]) -> Event:
    """Return a record with its fields by the kernel's names."""
    form = forms[int.from_bytes(record[:2], "little")]
    values: dict[str, Any] = {}
    for one in form.fields:
        part = record[one.offset : one.offset + one.size] if one.size else record[one.offset :]
        if one.located:
            word = int.from_bytes(part, "little")
            at = (word & 0xFFFF) + (one.offset + 4 if one.located == "rel" else 0)
            part = record[at : at + (word >> 16)]
        if one.located or one.array is not None or not one.size:
            values[one.name] = part.split(b"\0")[0].decode("utf-8", "replace")
        else:
            values[one.name] = int.from_bytes(part, "little", signed=one.signed)
    return Event(
        time, int.from_bytes(record[4:8], "little", signed=True), form.name, values, record[2]
    )


def fill_event(into: proto.FtraceEvent, event: Event) -> None:
    """Write an event by the schema: the fields that it has."""
    into.timestamp, into.pid = event.time, event.pid & 0xFFFFFFFF
    into.common_flags = event.flags
    message = getattr(into, event.name)
    message.SetInParent()
    for name, value in event.values.items():
        of = message.DESCRIPTOR.fields_by_name.get(name)
        if of is None:
            continue
        if isinstance(value, list):
            getattr(message, name).extend(value)
        elif of.type in TEXTS:
            setattr(message, name, value)
        else:
            setattr(message, name, _fit(of, value))


def _fit(of: FieldDescriptor, value: int) -> int:
    """Return a number as its field's type has it."""
    bits = 64 if of.type in {3, 4, 6, 16, 18} else 32
    value &= (1 << bits) - 1
    signed = of.type in {3, 5, 15, 16, 17, 18}
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def fill_bundle(into: proto.FtraceEventBundle, bundle: Bundle, *, compact: bool = False) -> None:
    """Write a bundle, switches and wakes in their compact form if that is wanted."""
    into.cpu = bundle.cpu
    if bundle.lost:
        into.lost_events = True
    for name, value in bundle.more.items():
        setattr(into, name, value)
    packed = {"sched_switch", "sched_waking"} if compact else set()
    names: dict[str, int] = {}
    last = {"switch": 0, "waking": 0}
    for event in bundle.events:
        if event.name not in packed:
            fill_event(into.event.add(), event)
            continue
        of, values = into.compact_sched, event.values
        which = event.name.removeprefix("sched_")
        getattr(of, f"{which}_timestamp").append(event.time - last[which])
        last[which] = event.time
        comm = values["next_comm" if which == "switch" else "comm"]
        index = names.setdefault(comm, len(names))
        if which == "switch":
            of.switch_prev_state.append(values["prev_state"])
            of.switch_next_pid.append(values["next_pid"])
            of.switch_next_prio.append(values["next_prio"])
            of.switch_next_comm_index.append(index)
        else:
            of.waking_pid.append(values["pid"])
            of.waking_target_cpu.append(values["target_cpu"])
            of.waking_prio.append(values["prio"])
            of.waking_comm_index.append(index)
            of.waking_common_flags.append(event.flags)
    if names:
        into.compact_sched.intern_table.extend(names)


class Writer:
    """A trace, packet by packet."""

    def __init__(self) -> None:
        self.packets: list[proto.TracePacket] = []

    def add(self, sequence: int = 1, **values: Any) -> proto.TracePacket:
        """Add a packet of a sequence and return it."""
        packet = proto.TracePacket(trusted_packet_sequence_id=sequence, **values)
        self.packets.append(packet)
        return packet

    def clocks(self, boot: int, realtime: int, sequence: int = 1) -> None:
        """Say how the clocks compare."""
        of = self.add(sequence).clock_snapshot
        for clock, time in ((BOOTTIME, boot), (MONOTONIC, boot), (REALTIME, realtime)):
            of.clocks.add(clock_id=clock, timestamp=time)

    def bundle(self, bundle: Bundle, *, compact: bool = False, sequence: int = 1) -> None:
        """Add what was read of a cpu at once."""
        fill_bundle(self.add(sequence).ftrace_events, bundle, compact=compact)

    def threads(self, rows: Iterable[Sequence[Any]]) -> None:
        """Add threads: their number, process and name."""
        tree = self.add().process_tree
        for tid, tgid, comm in rows:
            if tid == tgid:
                tree.processes.add(pid=tid, cmdline=[comm], cmdline_is_comm=True)
            else:
                tree.threads.add(tid=tid, tgid=tgid, name=comm)

    def bytes(self, *, packed: str = "") -> bytes:
        """Return the file; `packed`: its packets in packed ones, by zlib or zstd."""
        if not packed:
            return proto.Trace(packet=self.packets).SerializeToString()
        found = proto.Trace()
        for at in range(0, len(self.packets), 10):
            part = proto.Trace(packet=self.packets[at : at + 10]).SerializeToString()
            if packed == "zlib":
                found.packet.add(compressed_packets=zlib.compress(part))
            else:
                codec = pa.Codec("zstd").compress(part, asbytes=True)
                found.packet.add(zstd_compressed_packets=codec)
        return found.SerializeToString()


def write_raw_as_perfetto(raw: Path, *, compact: bool = False, packed: str = "") -> bytes:
    """Return what Perfetto would have written of the same events."""
    writer = Writer()
    about = json.loads((raw / "raw.json").read_text())
    system = writer.add().system_info
    system.utsname.sysname, system.utsname.release = "Linux", about["host"]["kernel"]
    system.utsname.machine = about["host"]["machine"]
    system.tracing_service_version = "Perfetto v50.1"
    writer.clocks(about["begin"], about["begin"] + about["epoch"])
    rows = json.loads((raw / "statedump.json").read_text())
    writer.threads((row[1], row[2], row[4]) for row in rows)
    for bundle in read_bundles(raw):
        writer.bundle(bundle, compact=compact)
    return writer.bytes(packed=packed)
