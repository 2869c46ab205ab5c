"""The native decoder against its plain twin, on any bytes."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
from contract import ContractError
from oracle.ctf_decode import Trace as Twin

from critpath.errors import UnreadableError
from critpath.model import EventRequest, Events, Kind
from critpath.read.clocks import Trace
from critpath.read.metadata.schema import TraceClass
from critpath.read.streaming import read_traces

EVERYTHING = (EventRequest(Kind.OTHER, ("*",), (("*",),)),)
_MOST = (1 << 63) - 1


def compare(schema: TraceClass, files: list[bytes], directory: Path) -> None:
    """Decode with both; every event, value and damaged packet must agree.

    Raises
    ------
    UnreadableError
        If there is nothing to read, for both.
    ContractError
        If they differ.
    """
    paths = []
    for number, data in enumerate(files):
        path = directory / f"stream_{number}"
        path.write_bytes(data)
        paths.append(path)
    twin = Twin(schema)
    frequency = schema.clocks["c"].frequency
    expected, damaged = [], 0
    for data in files:
        decoded = twin.file(data)
        expected += decoded.events
        damaged += sum(bad for _, bad in decoded.packets)
    try:
        events = read_traces([Trace("t", directory, tuple(paths), schema)], EVERYTHING)
    except UnreadableError:
        if expected:
            raise ContractError(f"nothing decoded, the twin has {len(expected)} events") from None
        raise
    times = [min(e.timestamp * 10**9 // frequency, _MOST) for e in expected]
    order = np.argsort(np.array(times, np.int64), kind="stable")
    if events.timestamp.tolist() != [times[i] for i in order]:
        raise ContractError("other timestamps than the twin's")
    reasons = [loss.reason.split(":")[0] for loss in events.losses]
    lost = sum(reason in {"damaged", "truncated"} for reason in reasons)
    if lost != damaged:
        raise ContractError(f"{lost} packets damaged, the twin says {damaged}")
    for row, position in enumerate(order.tolist()):
        _same_event(events, row, expected[position])


def _same_event(events: Events, row: int, event: object) -> None:
    of = events.classes[events.event_class[row]]
    cpu = event.cpu if event.cpu < 1 << 31 else -1
    if of.name != event.name or events.cpu[row] != cpu or not set(event.fields) <= set(of.fields):
        raise ContractError(f"event {row} is another than the twin's")
    start = int(events.offset[row])
    values = events.values[start : start + len(of.fields)].tolist()
    for name, kind, value in zip(of.fields, of.types, values, strict=True):
        if not _same(_shown(events, kind, value), event.fields.get(name), kind):
            raise ContractError(f"event {row}: {name} is {value}, not {event.fields.get(name)}")


def _shown(events: Events, kind: str, value: int) -> object:
    if kind == "str":
        return events.strings[value]
    if kind == "float":
        return struct.unpack("<d", struct.pack("<q", value))[0]
    return value % (1 << 64) if kind == "uint" else value


def _same(ours: object, theirs: object, kind: str) -> bool:
    if theirs is None:  # a field of an option that was not taken
        return ours == ("" if kind == "str" else 0)
    if kind == "float":
        return ours == theirs or (math.isnan(ours) and math.isnan(theirs))
    if kind == "int":  # options of either sign share one column
        return (ours - theirs) % (1 << 64) == 0
    return ours == theirs
