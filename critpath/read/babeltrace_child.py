"""The program that reads a trace with bt2, in a process of its own.

`babeltrace` runs this file, with limits, in any interpreter that has bt2: the system's
``python3`` where ours has not.  So it imports nothing but the standard library.

It writes frames to its standard output: a letter, the length of the content (4 bytes,
little-endian), and the content, which is JSON or packed columns.  For each event class it
asks which fields to read; the answer is one line of JSON on its standard input.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import struct
import sys
from array import array
from collections.abc import Sequence
from typing import IO, Any

NO_BT2, NO_MEMORY = 3, 4  # exit codes of a child
_BLOCK = 1 << 15  # events a frame
# Where in an event the fields of a scope are; "packet" stands for its packet's context.
_SCOPES = {
    "event-payload": "payload_field",
    "event-specific-context": "specific_context_field",
    "event-common-context": "common_context_field",
    "packet-context": "packet",
}


_ANCESTRY: dict[type, frozenset[str]] = {}


def _is_a(of: Any, *kinds: str) -> bool:
    """Test a bt2 object's class, public (EventMessage) or private (_EventMessageConst)."""
    names = _ANCESTRY.get(type(of))
    if names is None:
        bare = [c.__name__.removeprefix("_").removesuffix("Const") for c in type(of).__mro__]
        names = _ANCESTRY[type(of)] = frozenset(bare)
    return not names.isdisjoint(kinds)


def _describe(of: Any) -> dict[str, Any]:
    """Describe a bt2 field class in JSON, as far as the parent needs it."""
    made: dict[str, Any]
    if _is_a(of, "StructureFieldClass", "VariantFieldClass"):
        kind = "structure" if _is_a(of, "StructureFieldClass") else "variant"
        members = [[name, _describe(inner.field_class)] for name, inner in of.items()]
        made = {"kind": kind, "members": members}
    elif _is_a(of, "OptionFieldClass"):
        made = {"kind": "variant", "members": [["", _describe(of.field_class)]]}
    elif _is_a(of, "ArrayFieldClass"):
        length = of.length if _is_a(of, "StaticArrayFieldClass") else -1
        made = {"kind": "array", "length": length, "element": _describe(of.element_field_class)}
    elif _is_a(of, "IntegerFieldClass"):
        signed = _is_a(of, "SignedIntegerFieldClass")
        made = {"kind": "integer", "signed": signed, "bits": of.field_value_range}
    elif _is_a(of, "BoolFieldClass", "BitArrayFieldClass"):
        made = {"kind": "integer", "signed": False, "bits": 64}
    elif _is_a(of, "StringFieldClass"):
        made = {"kind": "string"}
    else:
        made = {"kind": "real" if _is_a(of, "RealFieldClass") else "other"}
    return made


def _find(field: Any, names: Sequence[str]) -> Any:
    """Return the field at a path, None if this event lacks it."""
    remaining = iter(names)
    while field is not None:
        if _is_a(field, "VariantField"):
            field = field.selected_option
        elif _is_a(field, "OptionField"):
            field = field.field if field.has_field else None
        else:
            name = next(remaining, None)
            if name is None:
                break
            field = field[name] if _is_a(field, "StructureField") and name in field else None
    return field


class _TraceWriter:
    """Iterates over traces and writes frames."""

    def __init__(self, bt2: Any, output: IO[bytes], answers: IO[bytes]) -> None:
        self.bt2 = bt2
        self.output = output
        self.answers = answers
        self.strings: dict[str, int] = {"": 0}
        self.new_strings: list[str] = []
        self.timestamp, self.values = array("q"), array("q")
        self.cpu, self.event_class = array("i"), array("i")
        self.columns = (self.timestamp, self.cpu, self.event_class, self.values)
        self.classes = 0
        self.begin_trace()

    def begin_trace(self) -> None:
        """Reset the state that belongs to one trace."""
        self.chosen: dict[tuple[int, int], tuple[int, int, list[Any]] | None] = {}
        self.frequencies: dict[int, int] = {}  # of stream classes
        self.cpus: dict[tuple[int, int], int] = {}  # of streams
        self.losses: list[tuple[tuple[int, int], list[int]]] = []
        self.total, self.first, self.last = 0, math.inf, -math.inf

    def frame(self, letter: str, content: Any) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.output.write(letter.encode() + struct.pack("<I", len(data)) + data)

    def run(self, directories: Sequence[str]) -> None:
        make = self.bt2.ComponentSpec.from_named_plugin_and_component_class
        for directory in directories:
            source = make("ctf", "fs", {"inputs": [directory]})
            self.begin_trace()
            self.frame("N", {})
            for message in self.bt2.TraceCollectionMessageIterator(source):
                self.message(message)
            self.flush()
            for key, loss in self.losses:
                self.frame("L", [self.cpus.get(key, -1), *loss])
            if self.total:
                self.frame("R", [self.total, self.first, self.last])
        self.frame("D", {})
        self.output.flush()

    def message(self, message: Any) -> None:
        if _is_a(message, "EventMessage"):
            self.event(message)
        elif _is_a(message, "StreamBeginningMessage"):
            self.stream(message.stream)
        elif _is_a(message, "PacketBeginningMessage"):
            context = message.packet.context_field
            if context is not None and "cpu_id" in context:
                self.cpus[_stream_key(message.packet.stream)] = int(context["cpu_id"])
        elif _is_a(message, "DiscardedEventsMessage"):
            self.lost(message, [message.count or 0, 0])
        elif _is_a(message, "DiscardedPacketsMessage"):
            self.lost(message, [0, message.count or 0])

    def lost(self, message: Any, counts: list[int]) -> None:
        span = [0, -1]  # of a stream that does not say when
        if message.stream.cls.default_clock_class is not None:
            with contextlib.suppress(ValueError, AttributeError):
                ends = message.beginning_default_clock_snapshot, message.end_default_clock_snapshot
                frequency = self.frequencies[message.stream.cls.id]
                span = [end.value * 10**9 // frequency for end in ends]
        self.losses.append((_stream_key(message.stream), [*span, *counts]))

    def stream(self, stream: Any) -> None:
        if not self.frequencies:
            trace = stream.trace
            environment = {
                str(key): int(value) if _is_a(value, "IntegerValue") else str(value)
                for key, value in trace.environment.items()
            }
            self.frame("T", {"environment": environment, "uuid": str(trace.uuid or "")})
        if stream.cls.id in self.frequencies:
            return
        clock = stream.cls.default_clock_class
        self.frequencies[stream.cls.id] = clock.frequency if clock is not None else 10**9
        if clock is not None:
            offset = clock.offset
            described = [clock.frequency, offset.seconds, offset.cycles, str(clock.uuid or "")]
            self.frame("K", [clock.name or "", *described])

    def event(self, message: Any) -> None:
        event = message.event
        stream = event.stream
        number = (stream.cls.id, event.cls.id)
        frequency = self.frequencies[number[0]]
        raw = message.default_clock_snapshot.value if stream.cls.default_clock_class else 0
        time = _to_signed(raw * 10**9 // frequency)
        self.total += 1
        self.first = min(self.first, time)
        self.last = max(self.last, time)
        if number not in self.chosen:
            self.chosen[number] = self.ask(event, stream)
        chosen = self.chosen[number]
        if chosen is None:
            return
        index, width, fields = chosen
        values = [0] * width
        for scope, names, kind, places in fields:
            owner = event.packet.context_field if scope == "packet" else getattr(event, scope)
            value = self.value(_find(owner, names), kind)
            for place in places:
                values[place] = value
        self.timestamp.append(time)
        cpu = self.cpus.get(_stream_key(stream), -1)
        payload = event.payload_field
        if cpu < 0 and payload is not None and "perf_cpu" in payload:
            cpu = int(payload["perf_cpu"])  # one stream of all cpus
        self.cpu.append(cpu)
        self.event_class.append(index)
        self.values.extend(values)
        if len(self.timestamp) >= _BLOCK:
            self.flush()

    def ask(self, event: Any, stream: Any) -> tuple[int, int, list[Any]] | None:
        """Let the parent choose among the fields of an event class."""
        classes = (
            event.cls.payload_field_class,
            event.cls.specific_context_field_class,
            stream.cls.event_common_context_field_class,
            stream.cls.packet_context_field_class if stream.cls.supports_packets else None,
        )
        scopes = {
            scope: None if of is None else _describe(of)
            for scope, of in zip(_SCOPES, classes, strict=True)
        }
        self.frame("C", {"name": event.name or "", "scopes": scopes})
        self.output.flush()
        answer = json.loads(self.answers.readline())
        if answer is None:
            return None
        self.classes += 1
        fields = [(_SCOPES[path[0]], path[1:], kind, places) for path, kind, places in answer[1]]
        return self.classes - 1, answer[0], fields

    def value(self, field: Any, kind: str) -> int:
        """Return a field as 64 bits, 0 if this event lacks it."""
        if field is None:
            return 0
        if kind == "str":
            return self.code(str(field))
        if kind == "float":
            return int(struct.unpack("<q", struct.pack("<d", float(field)))[0])
        if _is_a(field, "BitArrayField"):
            return _to_signed(field.value_as_integer)
        if _is_a(field, "ArrayField"):
            return _to_signed(int.from_bytes(bytes(map(int, field)), "big"))
        return _to_signed(int(field))

    def code(self, text: str) -> int:
        code = self.strings.get(text)
        if code is None:
            code = self.strings[text] = len(self.strings)
            self.new_strings.append(text)
        return code

    def flush(self) -> None:
        if self.new_strings:
            self.frame("S", [text.encode("utf-8", "replace").decode() for text in self.new_strings])
            self.new_strings = []
        columns = self.columns
        if self.timestamp:
            head = struct.pack("<II", len(self.timestamp), len(self.values))
            self.frame("E", head + b"".join(column.tobytes() for column in columns))
            for column in columns:
                del column[:]


def _stream_key(stream: Any) -> tuple[int, int]:
    return stream.cls.id, stream.id


def _to_signed(value: int) -> int:
    """Return the same 64 bits as a signed number."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _main(arguments: Sequence[str]) -> int:
    try:
        import bt2  # noqa: PLC0415 -- found only out by trying
    except ImportError:
        return NO_BT2
    limit = int(arguments[0])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever bt2 prints is not for the parent
    child = _TraceWriter(bt2, output, sys.stdin.buffer)
    try:
        child.run(arguments[1:])
    except MemoryError:
        return NO_MEMORY
    except Exception as error:  # noqa: BLE001 -- whatever bt2 raises is an answer
        causes = list(error) if _is_a(error, "Error") and isinstance(error, Sequence) else []
        cause = str(causes[0].message if causes else error)
        child.frame("X", f"cannot read it: {cause.strip()[:400]}")
        child.output.flush()
        return 1
    return 0


if __name__ == "__main__":
    del sys.path[0]  # our own modules must not pass for the standard library's
    sys.exit(_main(sys.argv[1:]))
