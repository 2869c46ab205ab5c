"""The babeltrace2 reader: bt2 in a child process, because it cannot be trusted here.

bt2 2.0.4 aborts, hangs or takes all memory on damaged traces.  So this file is also
the program that a child runs, with limits, in any interpreter that has bt2: the
system's own `python3` where ours has not.  For that it imports nothing but the
standard library at its top; what needs numpy is in `babeltrace_events`.

The child writes frames to its standard output: a letter, the length of what follows
(4 bytes, little-endian), JSON or packed columns.  For each event class it asks which
fields are wanted and reads the answer, one line of JSON, from its standard input.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import struct
import subprocess
import sys
import tempfile
import threading
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from critpath.errors import UnreadableError
from critpath.model import I32, I64, EventClass, EventRequest, Events, Loss
from critpath.read.clocks import Clocks, Trace
from critpath.read.compiled import choose, selection
from critpath.read.metadata.schema import (
    ArrayClass,
    ClockClass,
    EventRecordClass,
    FieldClass,
    FloatClass,
    IntegerClass,
    Member,
    Option,
    StreamClass,
    StringClass,
    StructureClass,
    TextClass,
    TraceClass,
    VariantClass,
)

DEFAULT_MEMORY_LIMIT = 4 << 30

_NO_BT2, _NO_MEMORY = 3, 4  # exit codes of a child
_BLOCK = 1 << 15  # events a frame
# Where in an event the fields of a scope are; "packet" stands for its packet's context.
_SCOPES = {
    "event-payload": "payload_field",
    "event-specific-context": "specific_context_field",
    "event-common-context": "common_context_field",
    "packet-context": "packet",
}


def read_events(
    trace_directories: Sequence[Path],
    wanted: Sequence[EventRequest],
    *,
    memory_limit: int = DEFAULT_MEMORY_LIMIT,
    time_limit: float | None = None,
) -> Events:
    """Read traces with babeltrace2.

    Parameters
    ----------
    trace_directories : sequence of Path
        Directories with a metadata file each, of one recording.
    wanted : sequence of EventRequest
    memory_limit : int
        Bytes of address space the child may take, and of its answers.
    time_limit : float, optional
        Seconds it may take; by default a minute and 10 s/MB, a tenth of bt2's speed.

    Returns
    -------
    Events
        As the native reader gives them; events of the same time stand in
        babeltrace2's order within a trace.

    Raises
    ------
    UnreadableError
        If bt2 refuses a trace, crashes, hangs or needs too much memory.
    UsageError
        If no Python here has bt2.
    """
    from critpath.errors import UsageError  # noqa: PLC0415 -- the child cannot

    if time_limit is None:
        time_limit = 60 + sum(_size(d) for d in trace_directories) / 100_000
    for interpreter in _interpreters():
        collector = Collector(trace_directories, wanted, memory_limit)
        if _run_child(interpreter, collector, memory_limit, time_limit):
            return collector.events()
    raise UsageError(
        "the babeltrace2 reader needs babeltrace2's Python module, bt2",
        "install it: sudo apt-get install python3-bt2",
    )


def _interpreters() -> Iterator[str]:
    system = Path("/usr/bin/python3")
    if sys.executable:
        yield sys.executable
    # A virtual environment's interpreter is a link to the system's, but sees other modules.
    if system.exists() and str(system) != sys.executable:
        yield str(system)


def _size(directory: Path) -> int:
    with os.scandir(directory) as entries:
        return sum(e.stat().st_size for e in entries if e.is_file())


def _run_child(interpreter: str, collector: Any, memory_limit: int, time_limit: float) -> bool:
    """Run one child to its end; False if its interpreter has no bt2."""
    from critpath.errors import UnreadableError  # noqa: PLC0415 -- the child cannot

    directories = [str(d.resolve()) for d in collector.directories]
    command = [interpreter, __file__, str(memory_limit), *directories]
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors) as child,  # noqa: S603 -- ourselves
    ):
        timer = threading.Timer(time_limit, child.kill)
        timer.start()
        try:
            finished = collector.read(child.stdout, child.stdin)
            if not finished and not collector.failure:
                child.wait()  # its code says why; the timer still runs
        finally:
            expired = not timer.is_alive()
            timer.cancel()
            child.kill()
        code = child.wait()
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - 4096))
        said = errors.read().decode("utf-8", "replace").split("\n")
    if finished or code == _NO_BT2:
        return bool(finished)
    if expired:
        what = f"took longer than {time_limit:.0f} s"
    elif code == _NO_MEMORY:
        what = f"needs more than {memory_limit >> 20} MiB of memory"
    else:
        what = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    last = next((line.strip() for line in reversed(said) if line.strip()), "no message")
    names = ", ".join(str(d) for d in collector.directories)
    raise UnreadableError(
        f"{names}: babeltrace2 {collector.failure or f'{what} ({last[:300]})'}",
        "read it with --reader native, which also reads damaged traces",
    )


_ANCESTRY: dict[type, frozenset[str]] = {}


def _is(of: Any, *kinds: str) -> bool:
    """Tell what a bt2 object is: EventMessage of the private _EventMessageConst, and so on."""
    names = _ANCESTRY.get(type(of))
    if names is None:
        bare = [c.__name__.removeprefix("_").removesuffix("Const") for c in type(of).__mro__]
        names = _ANCESTRY[type(of)] = frozenset(bare)
    return not names.isdisjoint(kinds)


def _describe(of: Any) -> dict[str, Any]:
    """Describe a bt2 field class in JSON: its kind and what the parent needs of it."""
    made: dict[str, Any]
    if _is(of, "StructureFieldClass", "VariantFieldClass"):
        kind = "structure" if _is(of, "StructureFieldClass") else "variant"
        members = [[name, _describe(inner.field_class)] for name, inner in of.items()]
        made = {"kind": kind, "members": members}
    elif _is(of, "OptionFieldClass"):
        made = {"kind": "variant", "members": [["", _describe(of.field_class)]]}
    elif _is(of, "ArrayFieldClass"):
        length = of.length if _is(of, "StaticArrayFieldClass") else -1
        made = {"kind": "array", "length": length, "element": _describe(of.element_field_class)}
    elif _is(of, "IntegerFieldClass"):
        signed = _is(of, "SignedIntegerFieldClass")
        made = {"kind": "integer", "signed": signed, "bits": of.field_value_range}
    elif _is(of, "BoolFieldClass", "BitArrayFieldClass"):
        made = {"kind": "integer", "signed": False, "bits": 64}
    elif _is(of, "StringFieldClass"):
        made = {"kind": "string"}
    else:
        made = {"kind": "real" if _is(of, "RealFieldClass") else "other"}
    return made


def _find(field: Any, names: Sequence[str]) -> Any:
    """Return the field at a path, None where this event has it not."""
    remaining = iter(names)
    while field is not None:
        if _is(field, "VariantField"):
            field = field.selected_option
        elif _is(field, "OptionField"):
            field = field.field if field.has_field else None
        else:
            name = next(remaining, None)
            if name is None:
                break
            field = field[name] if _is(field, "StructureField") and name in field else None
    return field


class _Child:
    """Iterates over traces and writes frames; runs where bt2 is."""

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
        """Forget what belongs to the trace before."""
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
        if _is(message, "EventMessage"):
            self.event(message)
        elif _is(message, "StreamBeginningMessage"):
            self.stream(message.stream)
        elif _is(message, "PacketBeginningMessage"):
            context = message.packet.context_field
            if context is not None and "cpu_id" in context:
                self.cpus[_key(message.packet.stream)] = int(context["cpu_id"])
        elif _is(message, "DiscardedEventsMessage"):
            self.lost(message, [message.count or 0, 0])
        elif _is(message, "DiscardedPacketsMessage"):
            self.lost(message, [0, message.count or 0])

    def lost(self, message: Any, counts: list[int]) -> None:
        span = [0, -1]  # of a stream that does not say when
        if message.stream.cls.default_clock_class is not None:
            with contextlib.suppress(ValueError, AttributeError):
                ends = message.beginning_default_clock_snapshot, message.end_default_clock_snapshot
                frequency = self.frequencies[message.stream.cls.id]
                span = [end.value * 10**9 // frequency for end in ends]
        self.losses.append((_key(message.stream), [*span, *counts]))

    def stream(self, stream: Any) -> None:
        if not self.frequencies:
            trace = stream.trace
            environment = {
                str(key): int(value) if _is(value, "IntegerValue") else str(value)
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
        time = _wrapped(raw * 10**9 // frequency)
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
        self.cpu.append(self.cpus.get(_key(stream), -1))
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
        """Return a field as 64 bits; 0 where this event has it not."""
        if field is None:
            return 0
        if kind == "str":
            return self.code(str(field))
        if kind == "float":
            return int(struct.unpack("<q", struct.pack("<d", float(field)))[0])
        if _is(field, "BitArrayField"):
            return _wrapped(field.value_as_integer)
        if _is(field, "ArrayField"):
            return _wrapped(int.from_bytes(bytes(map(int, field)), "big"))
        return _wrapped(int(field))

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


def _key(stream: Any) -> tuple[int, int]:
    return stream.cls.id, stream.id


def _wrapped(value: int) -> int:
    """Return the same 64 bits as a signed number."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _child(arguments: Sequence[str]) -> int:
    try:
        import bt2  # noqa: PLC0415 -- found only out by trying
    except ImportError:
        return _NO_BT2
    limit = int(arguments[0])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever bt2 prints is not for the parent
    child = _Child(bt2, output, sys.stdin.buffer)
    try:
        child.run(arguments[1:])
    except MemoryError:
        return _NO_MEMORY
    except Exception as error:  # noqa: BLE001 -- whatever bt2 raises is an answer
        causes = list(error) if _is(error, "Error") and isinstance(error, Sequence) else []
        cause = str(causes[0].message if causes else error)
        child.frame("X", f"cannot read it: {cause.strip()[:400]}")
        child.output.flush()
        return 1
    return 0


if __name__ == "__main__":
    del sys.path[0]  # our own modules must not pass for the standard library's
    sys.exit(_child(sys.argv[1:]))


# -----------------------------------------------------------------------------
# Makes `Events` of what the child of the babeltrace2 reader writes.


_Block = tuple[int, I64, I32, I32, I64]
_NO_EVENTS: _Block = (
    0,
    np.zeros(0, np.int64),
    np.zeros(0, np.int32),
    np.zeros(0, np.int32),
    np.zeros(0, np.int64),
)
_LONGEST_FRAME = 1 << 28
_MAX_DEPTH = 100


def _field_class(of: Mapping[str, Any], depth: int = 0) -> FieldClass:
    """Make a field class of the child's description; bt2 has decoded it already."""
    if depth > _MAX_DEPTH:
        raise UnreadableError("babeltrace2 describes fields without end", "record it again")
    inner = [(name, _field_class(x, depth + 1)) for name, x in of.get("members", ())]
    made: FieldClass
    match of["kind"]:
        case "structure":
            made = StructureClass(tuple(Member(name, x) for name, x in inner))
        case "variant":
            made = VariantClass((), tuple(Option(name, (), x) for name, x in inner))
        case "array":
            element = _field_class(of["element"], depth + 1)
            made = ArrayClass(element, int(of["length"]) if of["length"] >= 0 else ("",))
        case "integer":
            made = IntegerClass(int(of["bits"]), bool(of["signed"]), align=8)
        case "real":
            made = FloatClass(64)
        case "string":
            made = StringClass()
        case _:
            made = TextClass(0, blob=True)
    return made


def _structure(of: Mapping[str, Any] | None) -> StructureClass | None:
    made = _field_class(of) if of is not None else None
    return made if isinstance(made, StructureClass) else None


class Collector:
    """Reads a child's frames and answers its questions.

    Parameters
    ----------
    directories : sequence of Path
        The traces, in the order the child reads them.
    wanted : sequence of EventRequest
    memory_limit : int
        Bytes of columns and strings at which to give up.
    """

    def __init__(
        self, directories: Sequence[Path], wanted: Sequence[EventRequest], memory_limit: int
    ) -> None:
        self.directories = directories
        self.failure = ""
        self._wanted = wanted
        self._room = memory_limit
        self._classes: list[tuple[int, EventClass]] = []  # with its trace
        self._strings = [""]
        self._blocks: list[_Block] = []  # with its trace
        self._losses: list[tuple[int, list[int]]] = []
        self._ranges: list[tuple[int, list[int]]] = []
        self._traces: list[dict[str, Any]] = []
        self._clocks: list[dict[str, ClockClass]] = []

    def read(self, output: IO[bytes], answers: IO[bytes]) -> bool:
        """Read to the end of the output; tell whether the child said it was the end.

        Parameters
        ----------
        output : binary file
            The child's standard output.
        answers : binary file
            Its standard input.
        """
        handlers: Mapping[bytes, Callable[[Any], None]] = {
            b"N": self._next_trace,
            b"T": self._trace,
            b"K": self._clock,
            b"S": self._strings.extend,
            b"L": lambda loss: self._losses.append((len(self._traces) - 1, loss)),
            b"R": lambda span: self._ranges.append((len(self._traces) - 1, span)),
        }
        while True:
            head = output.read(5)
            if len(head) < 5:
                return False
            letter = head[:1]
            (length,) = struct.unpack("<I", head[1:])
            self._room -= length
            if length > _LONGEST_FRAME or self._room < 0:
                self.failure = "gives more than the memory limit allows to keep"
                return False
            content = output.read(length)
            if len(content) < length:
                return False
            if letter == b"E":
                self._block(content)
                continue
            message = json.loads(content)
            if letter == b"D":
                return True
            if letter == b"X":
                self.failure = str(message)
                return False
            if letter == b"C":
                try:
                    os.write(answers.fileno(), json.dumps(self._choose(message)).encode() + b"\n")
                except BrokenPipeError:
                    return False
            else:
                handlers[letter](message)

    def _next_trace(self, _: Any) -> None:
        self._traces.append({"environment": {}, "uuid": ""})
        self._clocks.append({})

    def _trace(self, message: dict[str, Any]) -> None:
        self._traces[-1] = message

    def _clock(self, message: list[Any]) -> None:
        self._clocks[-1][message[0]] = ClockClass(*message)

    def _choose(self, message: dict[str, Any]) -> Any:
        """Return how many fields are wanted of an event class, and which; None if it is not."""
        name = message["name"]
        selected = selection(tuple(self._wanted)).of(name)
        if selected is None:
            return None
        scopes = {scope: _structure(of) for scope, of in message["scopes"].items()}
        stream = StreamClass(
            0,
            packet_context=scopes["packet-context"],
            event_context=scopes["event-common-context"],
        )
        event = EventRecordClass(name, 0, scopes["event-specific-context"], scopes["event-payload"])
        # bt2 has taken CTF 1.8's underscores off already.
        chosen = choose(stream, event, selected, strip=False)
        trace = len(self._traces) - 1
        made = EventClass(name, selected.kind, chosen.names, chosen.types)
        self._classes.append((trace, made))
        fields = [(path, kind, places) for path, (places, kind) in chosen.outputs.items()]
        return len(chosen.names), fields

    def _block(self, content: bytes) -> None:
        n, m = struct.unpack_from("<II", content)
        at = 8
        columns: list[Any] = []
        for count, dtype in ((n, np.int64), (n, np.int32), (n, np.int32), (m, np.int64)):
            columns.append(np.frombuffer(content, dtype, count, at))
            at += columns[-1].nbytes
        self._blocks.append((len(self._traces) - 1, *columns))

    def events(self) -> Events:
        """Return everything read, in order of time."""
        traces = [self._as_trace(i, directory) for i, directory in enumerate(self.directories)]
        clocks = Clocks(traces)
        hosts = list(dict.fromkeys(t.host for t in traces))
        shifts = [clocks.shift(t, next(iter(t.schema.clocks.values()), None)) for t in traces]
        classes = tuple(
            EventClass(
                c.name, c.kind, c.fields, c.types, traces[i].domain, hosts.index(traces[i].host)
            )
            for i, c in self._classes
        )
        blocks = self._blocks or [_NO_EVENTS]
        timestamp = np.concatenate([block[1] + shifts[block[0]] for block in blocks])
        event_class = np.concatenate([block[3] for block in blocks])
        widths = np.array([len(c.fields) for c in classes], np.int64)
        taken = widths[event_class] if len(event_class) else np.zeros(0, np.int64)
        offset = np.cumsum(taken) - taken
        # Ties keep the order of the traces, and babeltrace2's within one.
        order = np.argsort(timestamp, kind="stable")
        spans = [(a + shifts[i], b + shifts[i], count) for i, (count, a, b) in self._ranges]
        begin = min((a for a, _, _ in spans), default=0)
        end = max((b for _, b, _ in spans), default=0)
        total = sum(count for _, _, count in spans)
        if not total:
            where = self.directories[0] if self.directories else "the recording"
            raise UnreadableError(
                f"{where}: holds no event",
                "check that the recording was stopped and copied whole, or record it again",
            )
        losses = []
        for i, (cpu, first, last, lost, packets) in self._losses:
            placed = last >= first
            losses.append(
                Loss(
                    first + shifts[i] if placed else begin,
                    last + shifts[i] if placed else end,
                    hosts.index(traces[i].host),
                    cpu,
                    lost,
                    packets,
                    "packets lost" if packets else "discarded",
                )
            )
        return Events(
            timestamp=timestamp[order],
            cpu=np.concatenate([block[2] for block in blocks])[order],
            event_class=event_class[order],
            offset=offset[order],
            values=np.concatenate([block[4] for block in blocks]),
            classes=classes,
            strings=tuple(self._strings),
            hosts=tuple(hosts) or ("",),
            losses=tuple(sorted(losses, key=lambda x: (x.begin, x.end, x.host, x.cpu, x.reason))),
            clock=clocks.reference,
            begin=begin,
            end=end,
            total=total,
            environment=tuple(t.schema.environment for t in traces),
            warnings=tuple(clocks.warnings),
        )

    def _as_trace(self, index: int, directory: Path) -> Trace:
        streams = {
            number: StreamClass(number, clock=name)
            for number, name in enumerate(self._clocks[index])
        }
        schema = TraceClass(
            streams=streams,
            clocks=self._clocks[index],
            environment=self._traces[index]["environment"],
            uuid=self._traces[index]["uuid"],
        )
        return Trace(directory.name, directory, (), schema)
