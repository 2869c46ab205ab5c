"""The native reader: trace directories to chunks of events, or to all events at once.

One decoder per stream file decodes a few hundred events at a time into a small buffer,
and a merge takes them in order of time.  Only the table of packets grows with the trace,
so a recording may be larger than memory.
"""

from __future__ import annotations

import resource
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

import numpy as np

from critpath.errors import UnreadableError
from critpath.model import I32, I64, EventChunk, EventClass, EventRequest, Events, Loss
from critpath.model.clocks import ClockAlignment
from critpath.model.gaps import Gaps
from critpath.read import _decode, _merge
from critpath.read.clocks import Clocks, Trace
from critpath.read.compiled_trace import CompiledTrace, unreadable_file
from critpath.read.losses import TraceFiles, WakeTargets, find_losses, find_missing_streams
from critpath.read.metadata.layout import decode_texts
from critpath.read.metadata.schema import TraceClass, get_parse_warnings
from critpath.read.packets import PacketColumn, StreamFile, identify_tracer
from critpath.read.selection import compile_requests
from critpath.read.streams import describe_streams
from critpath.schema.environment import Environment

# Rows that all decoders together keep waiting, so that they stay in the cache; a decoder
# gets its share of them within bounds.
_WAITING = 32768
_SMALLEST_BATCH, _LARGEST_BATCH = 128, 2048
_ASIDE = ("statedump_", "marks_")
_DESCRIPTORS = 128  # left to others


class OutOfOrder(Exception):  # noqa: N818 - control flow, not a failure
    """Time runs backwards within a stream file: only `read_traces` can sort its events."""

    def __init__(self, file: str) -> None:
        super().__init__(file)
        self.file = file

    def __str__(self) -> str:
        return f"time runs backwards within {self.file}"


class _ChunkMaker:
    """Makes one chunk after the other, without a reference to the stream that delivers them."""

    def __init__(
        self,
        merge: _decode.Merge,
        files: list[tuple[CompiledTrace, Path, _decode.Decoder]],
        recording: _decode.Recording,
        classes: list[EventClass],
        wake_targets: WakeTargets,
    ) -> None:
        self._merge, self._files, self._recording = merge, files, recording
        self._classes, self._wake_targets = classes, wake_targets
        self._texts = 0
        self._ended = False
        self.watch: Callable[[EventChunk, Sequence[EventClass]], None] | None = None

    def make(self) -> EventChunk | None:
        """Return the next chunk, None at the end."""
        if self._ended:
            return None
        # Whatever leaves this function early ends the iteration.
        self._ended = True
        try:
            while (asked := self._merge.run()) is not None:
                number, stream, event = asked
                of, _, decoder = self._files[number]
                of.answer(decoder, stream, event)
        except OSError as error:
            raise unreadable_file(error) from error
        if self._merge.backwards >= 0:
            of, path, _ = self._files[self._merge.backwards]
            raise OutOfOrder(f"{of.trace.name}/{path.name}")
        if self._merge.count == 0:
            return None
        chunk = EventChunk(*self._merge.columns())
        self._wake_targets.add(chunk.event_class, chunk.offset, chunk.values, self._classes)
        if self.watch is not None:
            self.watch(chunk, self._classes)
        self._ended = False
        return chunk

    def make_all(self) -> tuple[EventChunk | None, int, int, list[str]]:
        """Return the next chunk, the number of classes known with it, and new texts.

        The texts come with the code of their first.
        """
        chunk = self.make()
        first = self._texts
        texts = list(decode_texts(self._recording.texts(first)))
        self._texts += len(texts)
        return chunk, len(self._classes), first, texts


class EventStream:
    """The requested events of one recording, as chunks in order of time.

    Iterate over it for `EventChunk`s, then call `finish` for the rest.  The events and
    their order are those of `read_traces`; event classes and strings may be numbered
    differently.

    Parameters
    ----------
    traces : sequence of Trace
        The first one's clock is the recording's.
    requests : sequence of EventRequest
    chunk : int
        Most events in a chunk; each has at least one.
    ahead : int
        Number of chunks to decode ahead, in a background thread that runs from the first
        chunk until the last, an error or `close`.  Chunks, classes and codes are the same
        on every run; codes may differ from those with 0.
    reached : callable, optional
        Told with every chunk which share of the files was decoded.
    alignment : ClockAlignment or None
        Of several hosts, by the name that each trace has: all times are the reference's.

    Attributes
    ----------
    classes : list of EventClass
        Those that have occurred; it grows.
    hosts : tuple of str
    environment : tuple of Environment
        The ``env`` of every trace.
    gaps : Gaps
        When some of it was not recorded: who opens it knows.

    Raises
    ------
    UnreadableError
        If a stream file cannot be opened or read.  That a recording holds no event is
        reported by `finish`.
    OutOfOrder
        While iterating; chunks delivered before it are then useless.
    """

    def __init__(
        self,
        traces: Sequence[Trace],
        requests: Sequence[EventRequest],
        chunk: int = 32768,
        *,
        ahead: int = 0,
        reached: Callable[[float], None] | None = None,
        alignment: ClockAlignment | None = None,
    ) -> None:
        if chunk < 1:
            raise ValueError("a chunk has at least one event")
        # Where hosts are aligned by what they sent, their offsets to the epoch mean nothing.
        aligned = {of.host: of for of in alignment.hosts} if alignment is not None else {}
        first = alignment.reference if alignment is not None else ""
        each = {host: Clocks([t for t in traces if t.host == host]) for host in aligned}
        clocks = each.get(first) or Clocks(traces)
        matcher = compile_requests(tuple(requests))
        self._summary = Summary(traces, clocks)
        self._recording = _decode.Recording()
        self._traces = [
            CompiledTrace(
                trace,
                matcher,
                partial(each.get(trace.host, clocks).shift, trace),
                self._recording,
                self._summary.classes,
                self._summary.hosts,
                aligned.get(trace.host),
            )
            for trace in traces
        ]
        files = [(of, path) for of in self._traces for path in of.trace.files]
        batch = max(_SMALLEST_BATCH, min(_LARGEST_BATCH, _WAITING // max(len(files), 1)))
        keep = len(files) <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _DESCRIPTORS
        merge = _decode.Merge(self._recording, chunk, 4 * chunk, 1 + ahead)
        self._files: list[tuple[CompiledTrace, Path, _decode.Decoder]] = []
        for of, path in files:
            decoder = _decode.Decoder(self._recording, batch)
            of.begin(decoder, path, keep=keep)
            merge.add(decoder)
            self._files.append((of, path, decoder))
        self._maker = _ChunkMaker(
            merge, self._files, self._recording, self._summary.classes, self._summary.wake_targets
        )
        self.gaps = Gaps()
        self._strings: list[str] = []
        self._reached = reached
        self._ended = self._closed = False
        # Those of delivered chunks: what is decoded ahead may have more.
        self._classes = [] if ahead else self._summary.classes
        self._prefetcher: Prefetcher[tuple[EventChunk | None, int, int, list[str]]] | None = None
        if ahead:
            self._prefetcher = Prefetcher(self._maker.make_all, ahead)

    @property
    def classes(self) -> list[EventClass]:
        """The event classes that have occurred."""
        return self._classes

    @property
    def hosts(self) -> tuple[str, ...]:
        """The traced machines."""
        return tuple(self._summary.hosts) or ("",)

    @property
    def environment(self) -> tuple[Environment, ...]:
        """The ``env`` of every trace."""
        return tuple(t.trace.schema.environment for t in self._traces)

    @property
    def filled(self) -> bool:
        """Whether switches that the kernel left out were filled in; False for a trace."""
        return False

    def watch(self, look: Callable[[EventChunk, Sequence[EventClass]], None]) -> None:
        """Call a function with every chunk, in the thread that makes the chunks.

        It may see more chunks than are delivered, and has returned for each that is.  Set it
        before the first chunk.

        Parameters
        ----------
        look : callable
            Takes a chunk and the classes known with it.  It must not refer to the stream,
            which would keep the stream's thread alive.
        """
        self._maker.watch = look

    # Strings.

    def code(self, text: str) -> int:
        """Return the code for a text, as ``str`` fields have it."""
        self._settle()
        return self._recording.code(text.encode("utf-8", "replace"))

    def strings(self) -> Sequence[str]:
        """Return the texts so far, by their codes; the same list, extended."""
        self._settle()
        self._strings += decode_texts(self._recording.texts(len(self._strings)))
        return self._strings

    def text(self, code: int) -> str:
        """Return the text of a code."""
        if code >= len(self._strings):
            self.strings()
        return self._strings[code]

    def _settle(self) -> None:
        """Wait until the background thread is idle, so that the table of texts is reproducible."""
        if self._prefetcher is not None:
            self._prefetcher.settle()

    # Events.

    def __iter__(self) -> Iterator[EventChunk]:
        return self

    def __next__(self) -> EventChunk:
        if self._ended or self._closed:
            raise StopIteration
        try:
            chunk = self._next()
        except BaseException:
            self.close()
            raise
        if chunk is None:
            self._ended = True
            self.close()
            raise StopIteration
        if self._reached is not None:
            whole = sum(decoder.size for _, _, decoder in self._files)
            self._reached(sum(decoder.at for _, _, decoder in self._files) / max(whole, 1))
        return chunk

    def _next(self) -> EventChunk | None:
        if self._prefetcher is None:
            return self._maker.make()
        chunk, classes, first, texts = self._prefetcher.next()
        self._classes += self._summary.classes[len(self._classes) : classes]
        self._strings += texts[len(self._strings) - first :]
        return chunk

    def skim(self) -> None:
        """Decode everything and deliver nothing, to measure decoding alone."""
        for of, _, decoder in self._files:
            while (asked := decoder.skim()) is not None:
                of.answer(decoder, *asked)
        self._ended = True

    def finish(self) -> Events:
        """Return what `read_traces` would, without the events.

        Raises
        ------
        UnreadableError
            If no event could be decoded.
        RuntimeError
            Before the last chunk.
        """
        if not self._ended:
            raise RuntimeError("the stream was not read to its end")
        self.close()
        for trace in self._traces:
            trace.keep()
        files = iter(self._files)
        self._summary.files = [
            [
                trace.stream_file(path, decoder.file_packets())
                for _, path, decoder in islice(files, len(trace.trace.files))
            ]
            for trace in self._traces
        ]
        events = self._summary.to_events(_empty_columns(), tuple(self.strings()))
        return replace(events, gaps=self.gaps)

    # Closing.

    def read(self) -> Events:
        """Return all events at once."""
        parts: list[EventColumns] = [_empty_columns()]
        used = 0
        for chunk in self:
            parts.append(
                (
                    *(chunk.timestamp.copy(), chunk.cpu.copy(), chunk.event_class.copy()),
                    *(chunk.offset + used, chunk.values.copy()),
                )
            )
            used += len(chunk.values)
        timestamp, cpu, event_class, offset, values = (
            np.concatenate([part[column] for part in parts]) for column in range(5)
        )
        return replace(
            self.finish(),
            timestamp=timestamp,
            cpu=cpu,
            event_class=event_class,
            offset=offset,
            values=values,
        )

    def close(self) -> None:
        """Close every file and end the iteration."""
        self._closed = True
        if self._prefetcher is not None:
            self._prefetcher.close()
        for _, _, decoder in self._files:
            decoder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _empty_columns() -> EventColumns:
    wide, narrow = np.zeros(0, np.int64), np.zeros(0, np.int32)
    return wide, narrow, narrow, wide, wide


def split_into_chunks(events: Events, size: int = 65536) -> Iterator[EventChunk]:
    """Yield events in memory as chunks of at most ``size`` events.

    Columns are views; every chunk's ``values`` are those of all events.
    """
    for begin in range(0, len(events), size):
        of = slice(begin, begin + size)
        yield EventChunk(
            events.timestamp[of],
            events.cpu[of],
            events.event_class[of],
            events.offset[of],
            events.values,
        )


T = TypeVar("T")


class Prefetcher(Generic[T]):
    """Calls a function in one background thread, some calls ahead of the consumer.

    The number of calls begun depends on `next` alone, so that after `settle` the state is
    the same on every run.  The thread ends with `close`, with this object or with the
    interpreter, whichever comes first; it must not keep this object alive.

    Parameters
    ----------
    make : callable
        Takes no arguments and has no reference to this object.  `next` raises what it
        raises, and further calls must then be harmless.
    depth : int
        Calls ahead.
    """

    def __init__(self, make: Callable[[], T], depth: int = 1) -> None:
        self._make, self._depth = make, depth
        self._pool: ThreadPoolExecutor | None = None
        self._begun: deque[Future[T]] = deque()

    def next(self) -> T:
        """Return the next result and begin another call."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="critpath-prefetch")
            self._begun.extend(self._pool.submit(self._make) for _ in range(self._depth))
        # Only now may the previous result be overwritten.
        self._begun.append(self._pool.submit(self._make))
        return self._begun.popleft().result()

    def settle(self) -> None:
        """Wait for all calls that were begun."""
        wait(self._begun)

    def close(self) -> None:
        """Cancel waiting calls, wait for the running one, end the thread."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._begun.clear()


EventColumns = tuple[I64, I32, I32, I64, I64]


class Summary:
    """Gathers everything about a recording but its events.

    Attributes
    ----------
    classes, hosts : list
        As in `Events`; they grow while events are decoded.
    files : list of list of StreamFile
        The decoded files of each trace.
    wake_targets : WakeTargets
        To be fed with the events.
    """

    def __init__(self, traces: Sequence[Trace], clocks: Clocks) -> None:
        self.traces = traces
        self.clocks = clocks
        self.classes: list[EventClass] = []
        self.hosts: list[str] = []
        self.files: list[list[StreamFile]] = []
        self.wake_targets = WakeTargets()

    def to_events(
        self, columns: EventColumns, strings: tuple[str, ...], backwards: int = 0
    ) -> Events:
        """Combine the columns of events with everything known of the recording."""
        packets = [f.packets for of in self.files for f in of if len(f.packets)]
        table = np.concatenate(packets) if packets else np.zeros((0, len(PacketColumn)), np.int64)
        table = table[table[:, PacketColumn.EVENTS] > 0]
        total = int(table[:, PacketColumn.EVENTS].sum())
        begin = int(table[:, PacketColumn.FIRST].min()) if total else 0
        end = int(table[:, PacketColumn.LAST].max()) if total else 0
        missing: list[Loss] = []
        warnings: list[str] = []
        tracers = [
            identify_tracer(t.schema.environment, t.directory.absolute()) for t in self.traces
        ]
        for tracer, of in zip(tracers, self.files, strict=True):
            lost, odd = find_losses(of, begin, end, tracer)
            missing += lost
            warnings += odd
        channels = [
            TraceFiles(
                t.name,
                tracer,
                self.hosts.index(t.host),
                t.domain == "kernel",
                # The recorder's list of threads and users' marks say nothing of a cpu.
                [f for f in of if not f.name.rpartition("/")[2].startswith(_ASIDE)],
            )
            for t, tracer, of in zip(self.traces, tracers, self.files, strict=True)
        ]
        missing += find_missing_streams(channels, begin, end, self.wake_targets.cpus)
        if total == 0:
            damage = next((loss.reason for loss in missing if loss.packets), "")
            where = self.traces[0].directory if self.traces else "the recording"
            raise UnreadableError(
                f"{where}: holds no event" + (f" that can be read ({damage})" if damage else ""),
                "check that the recording was stopped and copied whole, or record it again",
            )
        # Known only now: events are parsed as they come up.
        warnings[:0] = [w for t in self.traces for w in _metadata_warnings(t.schema)]
        if any(t.schema.environment.tracer_name == "perf" for t in self.traces):
            warnings.append(
                "perf data convert leaves out what perf had lost: critpath reads perf.data itself"
            )
        if backwards:
            warnings.append(
                f"time runs backwards at {backwards} places within a stream: its events were sorted"
            )
        return Events(
            *columns,
            classes=tuple(self.classes),
            strings=strings,
            hosts=tuple(self.hosts) or ("",),
            losses=tuple(sorted(missing, key=lambda x: (x.begin, x.end, x.host, x.cpu, x.reason))),
            clock=self.clocks.reference,
            begin=begin,
            end=end,
            total=total,
            environment=tuple(t.schema.environment for t in self.traces),
            streams=describe_streams(self.traces, self.files),
            warnings=tuple(warnings + self.clocks.warnings),
        )


def _metadata_warnings(schema: TraceClass) -> tuple[str, ...]:
    """Return warnings about the metadata that was parsed."""
    late = [w for of in schema.streams.values() for w in get_parse_warnings(of.events)]
    return tuple(dict.fromkeys((*schema.warnings, *late)))


# Reading at once.


def _decode_files(compiled: CompiledTrace, decoder: _decode.Decoder) -> list[StreamFile]:
    """Decode every stream file of a trace, appending to the decoder's columns."""
    files = []
    for path in compiled.trace.files:
        compiled.begin(decoder, path)
        try:
            while (asked := decoder.run()) is not None:
                compiled.answer(decoder, *asked)
        except OSError as error:
            raise unreadable_file(error) from error
        finally:
            decoder.close()
        files.append(compiled.stream_file(path, decoder.file_packets()))
    compiled.keep()
    return files


def read_traces(traces: Sequence[Trace], requests: Sequence[EventRequest]) -> Events:
    """Read the traces of one recording at once, sorting their events."""
    recording = _decode.Recording()
    decoder = _decode.Decoder(recording)
    clocks = Clocks(traces)
    matcher = compile_requests(tuple(requests))
    summary = Summary(traces, clocks)
    starts: set[int] = set()
    for trace in traces:
        shift = partial(clocks.shift, trace)
        compiled = CompiledTrace(trace, matcher, shift, recording, summary.classes, summary.hosts)
        files = _decode_files(compiled, decoder)
        summary.files.append(files)
        starts |= {int(f.packets[0, PacketColumn.ROW]) for f in files if len(f.packets)}
    ts, place, values = decoder.columns()
    runs = _merge.run_starts(ts)
    back = len(set(runs.tolist()) - starts) if len(runs) > 1 else 0
    widths = np.array([len(c.fields) for c in summary.classes], np.int64)
    timestamp, event_class, cpu, offset = _merge.merge(ts, place, widths, runs)
    summary.wake_targets.add(event_class, offset, values, summary.classes)
    columns = (timestamp, cpu, event_class, offset, values)
    return summary.to_events(columns, tuple(decode_texts(recording.texts())), back)


# Looks at a chunk and the classes that are known with it.
Look = Callable[["EventChunk", Sequence["EventClass"]], None]


class Source(Protocol):
    """The events of a recording in the order of time, read once from begin to end."""

    gaps: Gaps

    @property
    def filled(self) -> bool:
        """Whether switches that the kernel left out have been put in."""

    @property
    def classes(self) -> Sequence[EventClass]:
        """Those known now; it grows."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Every machine of the recording."""

    @property
    def environment(self) -> tuple[Environment, ...]:
        """What the traces say of themselves."""

    def __iter__(self) -> Iterator[EventChunk]: ...

    def watch(self, look: Look) -> None:
        """Have a function look at every chunk before it is delivered."""

    def code(self, text: str) -> int:
        """Return the code of a text of ours."""

    def text(self, code: int) -> str:
        """Return the text of a code."""

    def strings(self) -> Sequence[str]:
        """Return the texts known now."""

    def finish(self) -> Events:
        """Return everything but the events."""

    def close(self) -> None:
        """Give up what is open."""


class WholeRecording:
    """Events that are all in memory, as a `Source`."""

    def __init__(self, events: Events) -> None:
        self.filled = True
        self._events = events
        self._strings = list(events.strings) or [""]
        self._codes = {text: code for code, text in reversed(list(enumerate(self._strings)))}
        self.classes: Sequence[EventClass] = events.classes
        self.hosts = events.hosts
        self.gaps = events.gaps
        self.environment = events.environment
        self._look: Look | None = None

    def __iter__(self) -> Iterator[EventChunk]:
        for chunk in split_into_chunks(self._events):
            if self._look is not None:
                self._look(chunk, self.classes)
            yield chunk

    def watch(self, look: Look) -> None:
        """Have a function look at every chunk before it is delivered."""
        self._look = look

    def code(self, text: str) -> int:
        """Return the code of a text of ours."""
        if text not in self._codes:
            self._codes[text] = len(self._strings)
            self._strings.append(text)
        return self._codes[text]

    def text(self, code: int) -> str:
        """Return the text of a code."""
        return self._strings[code]

    def strings(self) -> Sequence[str]:
        """Return the texts known now."""
        return self._strings

    def finish(self) -> Events:
        """Return everything but the events."""
        none = np.zeros(0, np.int64)
        return replace(
            self._events,
            timestamp=none,
            cpu=none.astype(np.int32),
            event_class=none.astype(np.int32),
            offset=none,
            values=none,
        )

    def close(self) -> None:
        """Nothing is open."""
