"""The babeltrace2 reader, which runs bt2 in a child process.

bt2 2.0.4 aborts, hangs or takes all memory on damaged traces.  `babeltrace_child` is the
child's program and describes the protocol.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from critpath.errors import UnreadableError, UsageError
from critpath.model import I32, I64, EventClass, EventRequest, Events, Loss
from critpath.read import babeltrace_child
from critpath.read.babeltrace_child import NO_BT2, NO_MEMORY
from critpath.read.clocks import Clocks, Trace
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
from critpath.read.selection import compile_requests, select_fields
from critpath.schema.environment import read_environment

DEFAULT_MEMORY_LIMIT = 4 << 30


def read_with_babeltrace2(
    trace_directories: Sequence[Path],
    requests: Sequence[EventRequest],
    *,
    memory_limit: int = DEFAULT_MEMORY_LIMIT,
    time_limit: float | None = None,
) -> Events:
    """Read traces with babeltrace2."""
    if time_limit is None:
        time_limit = 60 + sum(_size(d) for d in trace_directories) / 100_000
    for interpreter in _interpreters():
        collector = Collector(trace_directories, requests, memory_limit)
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


def _run_child(
    interpreter: str, collector: Collector, memory_limit: int, time_limit: float
) -> bool:
    """Run one child to its end; return False if its interpreter has no bt2."""
    directories = [str(d.resolve()) for d in collector.directories]
    command = [interpreter, babeltrace_child.__file__, str(memory_limit), *directories]
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors) as child,  # noqa: S603 -- ourselves
    ):
        timer = threading.Timer(time_limit, child.kill)
        timer.start()
        try:
            finished = collector.read(child.stdout, child.stdin)  # type: ignore[arg-type]  # pipes
            if not finished and not collector.failure:
                child.wait()  # its exit code says why; the timer still runs
        finally:
            expired = not timer.is_alive()
            timer.cancel()
            child.kill()
        code = child.wait()
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - 4096))
        lines = errors.read().decode("utf-8", "replace").split("\n")
    if finished or code == NO_BT2:
        return bool(finished)
    if expired:
        what = f"took longer than {time_limit:.0f} s"
    elif code == NO_MEMORY:
        what = f"needs more than {memory_limit >> 20} MiB of memory"
    else:
        what = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    last = next((line.strip() for line in reversed(lines) if line.strip()), "no message")
    names = ", ".join(str(d) for d in collector.directories)
    raise UnreadableError(
        f"{names}: babeltrace2 {collector.failure or f'{what} ({last[:300]})'}",
        "read it with --reader native, which also reads damaged traces",
    )


_EventBlock = tuple[int, I64, I32, I32, I64]
_NO_EVENTS: _EventBlock = (
    0,
    np.zeros(0, np.int64),
    np.zeros(0, np.int32),
    np.zeros(0, np.int32),
    np.zeros(0, np.int64),
)
_LONGEST_FRAME = 1 << 28
_MAX_DEPTH = 100


def _field_class(of: Mapping[str, Any], depth: int = 0) -> FieldClass:
    """Build a field class from the child's description."""
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
    """Reads a child's frames, answers its questions and assembles the events."""

    def __init__(
        self, directories: Sequence[Path], requests: Sequence[EventRequest], memory_limit: int
    ) -> None:
        self.directories = directories
        self.failure = ""
        self._requests = requests
        self._room = memory_limit
        self._classes: list[tuple[int, EventClass]] = []  # with its trace
        self._strings = [""]
        self._blocks: list[_EventBlock] = []  # with its trace
        self._losses: list[tuple[int, list[int]]] = []
        self._ranges: list[tuple[int, list[int]]] = []
        self._traces: list[dict[str, Any]] = []
        self._clocks: list[dict[str, ClockClass]] = []

    def read(self, output: IO[bytes], answers: IO[bytes]) -> bool:
        """Read the child's output to its end; return whether it announced that end."""
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
        """Return the number of fields requested of an event class, and which; else None."""
        name = message["name"]
        selected = compile_requests(tuple(self._requests)).match(name)
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
        chosen = select_fields(stream, event, selected, strip=False)
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
            environment=read_environment(self._traces[index]["environment"]),
            uuid=self._traces[index]["uuid"],
        )
        return Trace(directory.name, directory, (), schema)
