"""A trace's metadata compiled for the decoder, each event class when it first occurs."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from critpath.errors import UnreadableError
from critpath.model import I64, EventClass
from critpath.model.clocks import HostClock
from critpath.read import _decode
from critpath.read.clocks import Trace, clock_of
from critpath.read.metadata.layout import fixed_layout, flat_header, iter_references
from critpath.read.metadata.schema import (
    ClockClass,
    FieldClass,
    FieldPath,
    IntegerClass,
    StreamClass,
    StructureClass,
    TraceClass,
    get_eager_events,
)
from critpath.read.packets import PacketColumn, StreamFile
from critpath.read.program import Compiler, Program, Role
from critpath.read.selection import NO_FIELDS, RequestMatcher, iter_leaves, select_fields
from critpath.records import dataclass
from critpath.stores import is_hole, open_stream
from critpath.units import NS_PER_S

_FAR_SECONDS = (1 << 62) // NS_PER_S  # and no clock is shifted by more than as much again
_HOLE = 1 << 30  # bytes of a file that were never written
_PERF_CPU = "perf_cpu"  # the field of an event that has its cpu
_FASTEST_CLOCK = 18 * NS_PER_S  # beyond that, parts of a second overflow 64 bits


@dataclass(frozen=True)
class _CompiledStream:
    """A compiled stream class.

    ``registers`` belong to its headers, ``context`` to the fields of the packet context;
    ``position`` is what is known of the bit position behind an event header.
    """

    schema: StreamClass
    registers: dict[FieldPath, tuple[int, bool]]
    context: dict[FieldPath, tuple[int, str]]
    position: tuple[int, int]
    frequency: int
    shift: int
    present: int


@dataclass(frozen=True)
class _TraceHeader:
    """What the decoder needs before the first event.

    ``streams`` has for each stream class the arguments for the decoder, less the clock's
    shift, its flat header, its clock and the compiled stream.
    """

    header: tuple[int, int]
    streams: tuple[
        tuple[tuple[int, int, int, int, int], Any, ClockClass | None, _CompiledStream], ...
    ]


class _Programs:
    """A trace's programs, cached for the next recording with the same metadata.

    Compiling takes a third of the time of reading a recording of 0.7 M events.
    """

    def __init__(self, schema: TraceClass, chosen: object) -> None:
        # Held, so that their identities stay theirs.
        self.of = (schema, chosen)
        self.program = Program()
        self.head: _TraceHeader | None = None
        # By (stream, id): place and layout for the decoder, name, kind and fields.
        self.events: dict[tuple[int, int], tuple[tuple[int, int, int], str, Any, Any]] = {}

    def copy(self) -> _Programs:
        """Return a copy to extend, of which no decoder has anything yet."""
        other = _Programs(*self.of)
        other.program = self.program.copy()
        other.head, other.events = self.head, dict(self.events)
        return other


_KEPT = 8
_compiled: dict[tuple[int, int], _Programs] = {}


class CompiledTrace:
    """The decoder's tables of one trace, and the names behind their numbers.

    Parameters
    ----------
    trace : Trace
    matcher : RequestMatcher
    shift : callable
        From a clock to the ns to add to its timestamps.
    recording : Recording
        State shared by the decoders of one recording.
    classes, hosts : list
        Of the recording; extended here.
    clock : HostClock or None
        By which the times of packets, and of decoders, are another host's.
    """

    def __init__(
        self,
        trace: Trace,
        matcher: RequestMatcher,
        shift: Callable[[ClockClass | None], int],
        recording: _decode.Recording,
        classes: list[EventClass],
        hosts: list[str],
        clock: HostClock | None = None,
    ) -> None:
        self.trace = trace
        self._clock = clock if clock is not None and clock.lines else None
        self._matcher = matcher
        self._classes = classes
        self._key = id(trace.schema), id(matcher)
        known = _compiled.get(self._key)
        self._compiled = known.copy() if known else _Programs(trace.schema, matcher)
        if trace.host not in hosts:
            hosts.append(trace.host)
        self.host = hosts.index(trace.host)
        head = self._compiled.head
        if head is None:
            head = self._compiled.head = self._compile_trace(trace.schema)
        self.tables = _decode.Tables(recording, *head.header)
        streams = []
        for arguments, flat, counted, stream in head.streams:
            offset = shift(counted)
            self.tables.stream(*arguments, offset, flat)
            streams.append(replace(stream, shift=offset))
        self._streams = tuple(streams)
        self._hand_over()
        self._wraps = tuple(
            (
                _role_bits(s.schema, "discarded-event-record-counter-snapshot"),
                _role_bits(s.schema, "packet-sequence-number"),
            )
            for s in streams
        )

    def nanoseconds(self, stream: int, raw: int) -> int:
        """Convert one raw clock value of a stream class, given by position, to a timestamp."""
        of = self._streams[stream]
        ns = max(-(1 << 63), min(raw * NS_PER_S // of.frequency + of.shift, (1 << 63) - 1))
        return int(self._move(np.array([ns], np.int64))[0])

    def times(self, stream: int, raw: I64) -> I64:
        """Convert raw clock values (unsigned 64 bits) to timestamps."""
        of = self._streams[stream]
        seconds, rest = np.divmod(raw.view(np.uint64), np.uint64(of.frequency))
        far = seconds > _FAR_SECONDS
        # Less than 18 s, so that no product overflows.
        rest = rest * np.uint64(NS_PER_S) // np.uint64(of.frequency)
        ns = (seconds * np.uint64(NS_PER_S) + rest).view(np.int64) + np.int64(of.shift)
        ns = self._move(ns)
        for row in np.flatnonzero(far).tolist():
            ns[row] = self.nanoseconds(stream, int(raw[row]) % (1 << 64))
        return ns

    def _move(self, times: I64) -> I64:
        return times if self._clock is None else self._clock.move(times)

    def begin(self, decoder: _decode.Decoder, path: Path, *, keep: bool = True) -> None:
        """Have a decoder begin one of the trace's files."""
        size = stream_size(path, self.trace)
        decoder.file(self.tables, os.fsencode(path), size, keep, open_stream(path))
        if self._clock is not None:
            lines = [(line.begin, line.offset) for line in self._clock.lines]
            decoder.move(
                np.column_stack([np.array(lines, np.int64), self._clock.floors]),
                np.array([line.drift for line in self._clock.lines]),
            )

    def stream_file(self, path: Path, packets: I64) -> StreamFile:
        """Return the packets of a decoded stream file with what is needed to interpret them."""
        name = f"{self.trace.name}/{path.name}"
        if self._clock is not None:
            filled = packets[:, PacketColumn.EVENTS] > 0
            for column in (PacketColumn.FIRST, PacketColumn.LAST):
                packets[filled, column] = self._clock.move(packets[filled, column])
        return StreamFile(name, packets, self.nanoseconds, self.times, self._wraps, self.host)

    def keep(self) -> None:
        """Cache the programs for the next recording with the same metadata."""
        _compiled.pop(self._key, None)
        _compiled[self._key] = self._compiled
        while len(_compiled) > _KEPT:
            _compiled.pop(next(iter(_compiled)), None)

    def answer(self, decoder: _decode.Decoder, stream: int, number: int) -> None:
        """Supply the event class that a decoder stopped at."""
        known = self._compiled.events.get((stream, number))
        if known is None:
            known = self._compile_new(stream, number)
            if known is None:
                decoder.reject()
                return
            self._compiled.events[stream, number] = known
            self._hand_over()
        place, name, selected, chosen = known
        row = -1
        if selected is not None:
            row = len(self._classes)
            self._classes.append(
                EventClass(
                    name, selected.kind, chosen.names, chosen.types, self.trace.domain, self.host
                )
            )
        self.tables.event_class(stream, number, *place, row, len(chosen.names))

    def _hand_over(self) -> None:
        self.tables.steps(*self._compiled.program.new())

    def _compile_trace(self, schema: TraceClass) -> _TraceHeader:
        program = self._compiled.program
        strip = schema.version < (2, 0)
        every: list[FieldClass | None] = [schema.packet_header]
        for stream in schema.streams.values():
            every += [stream.packet_context, stream.event_header, stream.event_context]
            for event in get_eager_events(stream.events):
                every += [event.context, event.payload]
        # Fields of packet and event headers that anything behind them depends on.
        needed = frozenset(iter_references(every))
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
                    f"{self.trace.name}: a clock of {frequency} Hz",
                    "correct the frequency in the metadata",
                )
            context = Compiler(
                program, needed, dict(head.registers), stream.clock, strip=strip, bank=1
            )
            kept = {
                leaf.path: (program.register(), leaf.type)
                for leaf in iter_leaves(stream.packet_context, ("packet-context",), strip=strip)
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
                    (to_signed(number), context_pc, event_pc, present, frequency),
                    flat,
                    clock,
                    _CompiledStream(stream, header.registers, kept, behind, frequency, 0, present),
                )
            )
        return _TraceHeader((header_pc, head.present), tuple(streams))

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
        strip = self.trace.schema.version < (2, 0)
        selected = self._matcher.match(event.name)
        chosen = NO_FIELDS
        if selected is not None:
            chosen = select_fields(of.schema, event, selected, strip=strip)
        scopes: tuple[tuple[str, StructureClass | None], ...] = (
            ("event-common-context", of.schema.event_context),
            ("event-specific-context", event.context),
            ("event-payload", event.payload),
        )
        payload = event.payload.members if event.payload is not None else ()
        # Early versions of perf had one stream for all cpus.
        cpu = ""
        if not of.present >> Role.CPU & 1 and any(member.name == _PERF_CPU for member in payload):
            cpu = _PERF_CPU
        needless = not chosen.outputs and not (cpu and selected is not None)
        layout = fixed_layout(fields for _, fields in scopes) if needless else None
        if layout is not None:
            return (0, *layout), event.name, selected, chosen
        body = Compiler(
            self._compiled.program,
            frozenset(iter_references(fields for _, fields in scopes)),
            dict(of.registers),
            of.schema.clock,
            chosen.outputs,
            strip,
            cpu=cpu,
        )
        pc = body.begin(of.position)
        for name, fields in scopes:
            body.scope(name, fields)
        for path, (places, _) in chosen.outputs.items():
            for place in places if path[0] == "packet-context" else ():
                body.copy(of.context[path][0], place)
        body.end()
        return (pc, 1, -1), event.name, selected, chosen


def to_signed(number: int) -> int:
    """Return the same 64 bits as a signed number."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _uuid_bytes(text: str) -> bytes:
    """Return the 16 bytes of a UUID, or none."""
    try:
        return UUID(text).bytes
    except ValueError:
        return b""


def _role_field(stream: StreamClass, role: str) -> IntegerClass | None:
    """Return the field of the packet context with a role."""
    members = stream.packet_context.members if stream.packet_context is not None else ()
    fields = (m.field for m in members)
    return next((f for f in fields if isinstance(f, IntegerClass) and role in f.roles), None)


def _role_bits(stream: StreamClass, role: str) -> int:
    """Return the width of a field of the packet context, 64 if it has none."""
    field = _role_field(stream, role)
    return 64 if field is None else field.bits


def stream_size(path: Path, trace: Trace | None = None) -> int:
    """Return the size of a stream file in bytes, after checking that it can be opened.

    Raises UnreadableError also where it is to be decoded, as a part of `trace`, and no packet
    says how large it is but gigabytes of it are a hole, which would be read for days.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            hole = (
                status.st_size - 512 * status.st_blocks > _HOLE
                and os.lseek(descriptor, 0, os.SEEK_HOLE) < status.st_size
                and not is_hole(path)
            )
        finally:
            os.close(descriptor)
    except OSError as error:
        raise unreadable_file(error) from error
    streams = trace.schema.streams.values() if trace and hole else ()
    if not all(_role_field(of, "packet-total-length") for of in streams):
        raise UnreadableError(
            f"{path}: {status.st_size:,} bytes, of which no more than "
            f"{512 * status.st_blocks:,} were ever written",
            "copy the stream again from where it was recorded",
        )
    return status.st_size


def unreadable_file(error: OSError) -> UnreadableError:
    """Return the error for a stream file that cannot be opened."""
    return UnreadableError(
        f"{error.filename}: {error.strerror}", "make the file readable for this user"
    )
