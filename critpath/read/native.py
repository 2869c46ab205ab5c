"""The native reader: trace directories -> Events."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from critpath.errors import UnreadableError
from critpath.model import I64, EventClass, Events, Loss, Wanted
from critpath.read import _decode, _merge
from critpath.read.clocks import Clocks, Trace, clock_of
from critpath.read.event_classes import depending, late_warnings
from critpath.read.packets import Column, StreamFile, losses
from critpath.read.program import Compiler
from critpath.read.records import Record, replace
from critpath.read.schema import (
    ClockClass,
    FieldClass,
    IntegerClass,
    StreamClass,
    StructureClass,
    TraceClass,
)
from critpath.read.selection import NO_FIELDS, choose, leaves, selection
from critpath.read.shapes import ENCODINGS, fixed_layout, flat_header, selectors
from critpath.read.shapes import Path as FieldPath
from critpath.read.steps import Program, Role
from critpath.units import NS_PER_S

_FASTEST_CLOCK = 18 * NS_PER_S  # beyond that, parts of a second overflow 64 bits


class _Stream(Record):
    """A stream class as compiled.

    ``registers`` are those of its headers, ``context`` those of the packet context's
    fields; ``position`` is what is known of it behind an event's header.
    """

    schema: StreamClass
    registers: dict[FieldPath, tuple[int, bool]]
    context: dict[FieldPath, tuple[int, str]]
    position: tuple[int, int]
    frequency: int
    shift: int
    present: int


class _Head(Record):
    """What the decoder is told of a trace before its events.

    ``streams`` has the arguments of each stream class, less the clock's shift, and
    the stream as compiled.
    """

    header: tuple[int, int]
    streams: tuple[tuple[tuple[int, int, int, int, int], Any, ClockClass | None, _Stream], ...]


class _Compiled:
    """A trace's programs, kept for the next recording with the same metadata.

    Compiling takes a third of the time of reading a recording of 0.7 M events; a
    process that reads many of one machine does it once.
    """

    def __init__(self, schema: TraceClass, chosen: object) -> None:
        # Held, so that their identities stay theirs.
        self.of = (schema, chosen)
        self.program = Program()
        self.head: _Head | None = None
        # By (stream, id): place and layout for the decoder, name, kind and fields.
        self.events: dict[tuple[int, int], tuple[tuple[int, int, int], str, Any, Any]] = {}

    def copy(self) -> _Compiled:
        """Return one that a reader may add to; nothing of it is with a decoder yet."""
        other = _Compiled(*self.of)
        other.program = self.program.copy()
        other.head, other.events = self.head, dict(self.events)
        return other


_KEPT = 8
_compiled: dict[tuple[int, int], _Compiled] = {}


class _Reader:
    """Decodes the traces of one recording into one set of columns."""

    def __init__(self, wanted: Sequence[Wanted]) -> None:
        self.decoder = _decode.Decoder()
        self.classes: list[EventClass] = []
        self.hosts: list[str] = []
        self.warnings: list[str] = []
        self._compiled: _Compiled
        self._streams: list[_Stream] = []
        self._selection = selection(tuple(wanted))
        self._trace: Trace

    def read(self, trace: Trace, shift: Callable[[ClockClass | None], int]) -> list[StreamFile]:
        """Decode every stream file of a trace; append to the decoder's columns."""
        self._trace = trace
        self._streams = []
        key = id(trace.schema), id(self._selection)
        known = _compiled.get(key)
        self._compiled = known.copy() if known else _Compiled(trace.schema, self._selection)
        if trace.host not in self.hosts:
            self.hosts.append(trace.host)
        self._begin_trace(trace.schema, shift)
        streams = tuple(self._streams)

        def nanoseconds(stream: int, raw: int) -> int:
            of = streams[stream]
            ns = raw * NS_PER_S // of.frequency + of.shift
            return max(-(1 << 63), min(ns, (1 << 63) - 1))

        wraps = tuple(
            (
                _role_bits(s.schema, "discarded-event-record-counter-snapshot"),
                _role_bits(s.schema, "packet-sequence-number"),
            )
            for s in streams
        )
        host = self.hosts.index(trace.host)
        files = [
            StreamFile(f"{trace.name}/{f.name}", self._decode(f), nanoseconds, wraps, host)
            for f in trace.files
        ]
        _compiled.pop(key, None)
        _compiled[key] = self._compiled
        while len(_compiled) > _KEPT:
            _compiled.pop(next(iter(_compiled)), None)
        return files

    def _decode(self, path: Path) -> I64:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise UnreadableError(
                f"{path}: {error.strerror}", "make the file readable for this user"
            ) from error
        try:
            self.decoder.file(descriptor, os.fstat(descriptor).st_size)
            while (new := self.decoder.run()) is not None:
                self._compile_event(*new)
            packets: I64 = self.decoder.file_packets()
        finally:
            os.close(descriptor)
        return packets

    # ------------------------------------------------------------ compilation

    def _hand_over(self) -> None:
        self.decoder.steps(*self._compiled.program.new())

    def _begin_trace(self, schema: TraceClass, shift: Callable[[ClockClass | None], int]) -> None:
        head = self._compiled.head
        if head is None:
            head = self._compiled.head = self._compile_trace(schema)
        self.decoder.trace(*head.header)
        for arguments, flat, clock, stream in head.streams:
            offset = shift(clock)
            self.decoder.stream(*arguments, offset, flat)
            self._streams.append(replace(stream, shift=offset))
        self._hand_over()

    def _compile_trace(self, schema: TraceClass) -> _Head:
        program = self._compiled.program
        strip = schema.version < (2, 0)
        every: list[FieldClass | None] = [schema.packet_header]
        for stream in schema.streams.values():
            every += [stream.packet_context, stream.event_header, stream.event_context]
            for event in depending(stream.events):
                every += [event.context, event.payload]
        # Fields of packet and event headers that anything behind them depends on.
        needed = frozenset(selectors(every))
        head = Compiler(program, needed, strip=strip, uuid=_uuid_bytes(schema.uuid))
        header_pc = head.begin((1 << 32, 0))
        head.scope("packet-header", schema.packet_header)
        behind_header = head.end()
        streams = []
        for number, stream in schema.streams.items():
            clock = clock_of(schema, stream)
            frequency = clock.frequency if clock is not None else NS_PER_S
            if not 1 <= frequency <= _FASTEST_CLOCK:
                raise UnreadableError(
                    f"{self._name()}: a clock of {frequency} Hz",
                    "correct the frequency in the metadata",
                )
            context = Compiler(
                program, needed, dict(head.registers), stream.clock, strip=strip, bank=1
            )
            kept = {
                leaf.path: (program.register(), leaf.type)
                for leaf in leaves(stream.packet_context, ("packet-context",), strip=strip)
            }
            context.outputs = {path: ((place,), kind) for path, (place, kind) in kept.items()}
            context_pc = context.begin(behind_header)
            for register, _ in kept.values():
                context.clear(register)
            context.scope("packet-context", stream.packet_context)
            context.end()
            header = Compiler(program, needed, dict(context.registers), stream.clock, strip=strip)
            event_pc = header.begin()
            header.scope("event-header", stream.event_header)
            behind = header.end()
            present = context.present | header.present
            flat = flat_header(stream.event_header, stream.clock, needed)
            streams.append(
                (
                    (as_signed(number), context_pc, event_pc, present, frequency),
                    flat,
                    clock,
                    _Stream(stream, header.registers, kept, behind, frequency, 0, present),
                )
            )
        return _Head((header_pc, head.present), tuple(streams))

    def _name(self) -> str:
        return self._trace.name

    def _compile_event(self, stream: int, number: int) -> None:
        """Answer the decoder's question for an event class."""
        known = self._compiled.events.get((stream, number))
        if known is None:
            known = self._compile_new(stream, number)
            if known is None:
                self.decoder.reject()
                return
            self._compiled.events[stream, number] = known
            self._hand_over()
        place, name, selected, chosen = known
        row = -1
        if selected is not None:
            row = len(self.classes)
            host = self.hosts.index(self._trace.host)
            self.classes.append(
                EventClass(
                    name, selected.kind, chosen.names, chosen.types, self._trace.domain, host
                )
            )
        self.decoder.event_class(stream, number, *place, row, len(chosen.names))

    def _compile_new(
        self, stream: int, number: int
    ) -> tuple[tuple[int, int, int], str, Any, Any] | None:
        """Compile an event class: (place, alignment, bits), name, selection and fields."""
        of = self._streams[stream]
        event = of.schema.events.get(number % (1 << 64))
        if event is None and len(of.schema.events) == 1 and not of.present >> Role.EVENT & 1:
            event = next(iter(of.schema.events.values()))
        if event is None:
            return None
        strip = self._trace.schema.version < (2, 0)
        selected = self._selection.of(event.name)
        chosen = NO_FIELDS
        if selected is not None:
            chosen = choose(of.schema, event, selected, strip=strip)
        scopes: tuple[tuple[str, StructureClass | None], ...] = (
            ("event-common-context", of.schema.event_context),
            ("event-specific-context", event.context),
            ("event-payload", event.payload),
        )
        layout = None if chosen.outputs else fixed_layout(fields for _, fields in scopes)
        if layout is not None:
            return (0, *layout), event.name, selected, chosen
        body = Compiler(
            self._compiled.program,
            frozenset(selectors(fields for _, fields in scopes)),
            dict(of.registers),
            of.schema.clock,
            chosen.outputs,
            strip,
        )
        pc = body.begin(of.position)
        for name, fields in scopes:
            body.scope(name, fields)
        for path, (places, _) in chosen.outputs.items():
            for place in places if path[0] == "packet-context" else ():
                body.copy(of.context[path][0], place)
        body.end()
        return (pc, 1, -1), event.name, selected, chosen


def as_signed(number: int) -> int:
    """Return the same 64 bits as a signed number."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _uuid_bytes(text: str) -> bytes:
    """Return the 16 bytes of a UUID, or none."""
    try:
        return UUID(text).bytes
    except ValueError:
        return b""


def _role_bits(stream: StreamClass, role: str) -> int:
    """Return the width of a field of the packet context, 64 if it has none."""
    members = stream.packet_context.members if stream.packet_context is not None else ()
    return next(
        (
            m.field.bits
            for m in members
            if isinstance(m.field, IntegerClass) and role in m.field.roles
        ),
        64,
    )


def _metadata_warnings(schema: TraceClass) -> tuple[str, ...]:
    """Return what was odd about the metadata of everything that was read."""
    late = [w for of in schema.streams.values() for w in late_warnings(of.events)]
    return tuple(dict.fromkeys((*schema.warnings, *late)))


# ------------------------------------------------------------------ the recording


def read_traces(traces: Sequence[Trace], wanted: Sequence[Wanted]) -> Events:
    """Read the traces of one recording.

    Parameters
    ----------
    traces : sequence of Trace
        The first one's clock is the recording's.
    wanted : sequence of Wanted

    Returns
    -------
    Events
        Events of the same time stand in the order of traces and files.

    Raises
    ------
    UnreadableError
        If not one event could be decoded, or a file cannot be opened.
    """
    reader = _Reader(wanted)
    clocks = Clocks(traces)
    starts: list[int] = []
    files: list[tuple[Trace, list[StreamFile]]] = []
    for trace in traces:
        files.append((trace, reader.read(trace, partial(clocks.shift, trace))))
        starts += [int(f.packets[0, Column.ROW]) for f in files[-1][1] if len(f.packets)]
    packets = [f.packets for _, of in files for f in of if len(f.packets)]
    table = np.concatenate(packets) if packets else np.zeros((0, len(Column)), np.int64)
    table = table[table[:, Column.EVENTS] > 0]
    total = int(table[:, Column.EVENTS].sum())
    begin = int(table[:, Column.FIRST].min()) if total else 0
    end = int(table[:, Column.LAST].max()) if total else 0
    missing: list[Loss] = []
    for _, of in files:
        lost, odd = losses(of, begin, end)
        missing += lost
        reader.warnings += odd
    if total == 0:
        damage = next((loss.reason for loss in missing if loss.packets), "")
        where = traces[0].directory if traces else "the recording"
        raise UnreadableError(
            f"{where}: holds no event" + (f" that can be read ({damage})" if damage else ""),
            "check that the recording was stopped and copied whole, or record it again",
        )
    # Known only now: events are parsed as they come up.
    reader.warnings[:0] = [w for t in traces for w in _metadata_warnings(t.schema)]
    ts, place, values = reader.decoder.columns()
    runs = _merge.run_starts(ts)
    back = len(set(runs.tolist()) - set(starts)) if len(runs) > 1 else 0
    if back:
        reader.warnings.append(
            f"time runs backwards at {back} places within a stream: its events were sorted"
        )
    widths = np.array([len(c.fields) for c in reader.classes], np.int64)
    timestamp, event_class, cpu, offset = _merge.merge(ts, place, widths, runs)
    return Events(
        timestamp=timestamp,
        cpu=cpu,
        event_class=event_class,
        offset=offset,
        values=values,
        classes=tuple(reader.classes),
        strings=tuple(
            text.decode(ENCODINGS[encoding], "replace") for text, encoding in reader.decoder.texts()
        ),
        hosts=tuple(reader.hosts) or ("",),
        losses=tuple(sorted(missing, key=lambda x: (x.begin, x.end, x.host, x.cpu, x.reason))),
        clock=clocks.reference,
        begin=begin,
        end=end,
        total=total,
        environment=tuple(t.schema.environment for t in traces),
        warnings=tuple(reader.warnings + clocks.warnings),
    )
