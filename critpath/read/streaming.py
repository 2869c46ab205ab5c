"""The native reader as a stream: trace directories -> chunks of events, one after the other.

One decoder per stream file decodes some hundred events at a time into a small buffer;
a merge takes them in the order of time.  Nothing grows with the trace but the table of
packets, so that a recording may be larger than memory.
"""

from __future__ import annotations

import os
import resource
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

import numpy as np

from critpath.errors import UnreadableError
from critpath.model import I32, I64, EventChunk, EventClass, EventRequest, Events, Loss
from critpath.read import _decode, _merge
from critpath.read.clocks import Clocks, Trace
from critpath.read.compiled_trace import CompiledTrace, stream_size, unreadable_file
from critpath.read.losses import TraceFiles, WakeTargets, find_losses, find_missing_streams
from critpath.read.metadata.layout import decode_texts
from critpath.read.metadata.schema import TraceClass, get_parse_warnings
from critpath.read.packets import PacketColumn, StreamFile, identify_tracer
from critpath.read.selection import compile_requests

# Rows that all decoders together keep waiting, so that they stay in the cache; a decoder
# gets its share of them within bounds.
_WAITING = 32768
_SMALLEST_BATCH, _LARGEST_BATCH = 128, 2048
_DESCRIPTORS = 128  # left to others


class OutOfOrder(Exception):  # noqa: N818 - says what is the matter, and is no failure
    """Time runs backwards within a stream file: only `read_traces` can sort its events.

    Parameters
    ----------
    file : str
        The stream file, below the recording.
    """

    def __init__(self, file: str) -> None:
        super().__init__(file)
        self.file = file

    def __str__(self) -> str:
        return f"time runs backwards within {self.file}"


class _ChunkMaker:
    """Makes one chunk after the other; nothing of it knows who wants them.

    Parameters
    ----------
    merge : Merge
    files : list of (CompiledTrace, Path, Decoder)
        As the merge counts them.
    recording : Recording
    classes : list of EventClass
    wake_targets : WakeTargets
    """

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
        """Return the next chunk, None if there is no more."""
        if self._ended:
            return None
        # Unless it comes to the end of this function, it is not called for another.
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
        """Return the next chunk, how many classes are known with it, and texts.

        The texts are those that came up since the last call, with the first one's code.
        """
        chunk = self.make()
        first = self._texts
        texts = list(decode_texts(self._recording.texts(first)))
        self._texts += len(texts)
        return chunk, len(self._classes), first, texts


class EventStream:
    """The events of one recording that were asked for, as chunks in the order of time.

    Iterate over it for `EventChunk`s; then `finish` tells the rest.  Chunk by chunk the
    same events in the same order as `read_traces` has them; event classes and strings
    may be numbered differently.

    Parameters
    ----------
    traces : sequence of Trace
        The first one's clock is the recording's.
    requests : sequence of EventRequest
    chunk : int
        The most events a chunk has; it may have less, but at least one.
    ahead : int
        So many chunks are decoded ahead by a thread in the background, which runs from
        the first chunk on until the last, an error or `close`.  Chunks, classes and
        codes are the same on every run; codes may be others than with 0.

    Attributes
    ----------
    classes : list of EventClass
        Those that came up so far; it grows.
    hosts : tuple of str
    environment : tuple of mapping
        The ``env`` of every trace.

    Raises
    ------
    UnreadableError
        If a stream file cannot be opened, here or when it is read on.  That there is no
        event is known when the stream is finished.
    OutOfOrder
        While iterating.  Chunks delivered before it are of no use then.
    """

    def __init__(
        self,
        traces: Sequence[Trace],
        requests: Sequence[EventRequest],
        chunk: int = 32768,
        *,
        ahead: int = 0,
    ) -> None:
        if chunk < 1:
            raise ValueError("a chunk has at least one event")
        clocks = Clocks(traces)
        matcher = compile_requests(tuple(requests))
        self._summary = Summary(traces, clocks)
        self._recording = _decode.Recording()
        self._traces = [
            CompiledTrace(
                trace,
                matcher,
                partial(clocks.shift, trace),
                self._recording,
                self._summary.classes,
                self._summary.hosts,
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
            decoder.file(of.tables, os.fsencode(path), stream_size(path), keep)
            merge.add(decoder)
            self._files.append((of, path, decoder))
        self._maker = _ChunkMaker(
            merge, self._files, self._recording, self._summary.classes, self._summary.wake_targets
        )
        self._strings: list[str] = []
        self._ended = self._closed = False
        # Those of chunks that were asked for: what is decoded ahead may know more.
        self._classes = [] if ahead else self._summary.classes
        self._prefetcher: Prefetcher[tuple[EventChunk | None, int, int, list[str]]] | None = None
        if ahead:
            self._prefetcher = Prefetcher(self._maker.make_all, ahead)

    @property
    def classes(self) -> list[EventClass]:
        """The event classes that came up so far."""
        return self._classes

    @property
    def hosts(self) -> tuple[str, ...]:
        """The machines that were traced."""
        return tuple(self._summary.hosts) or ("",)

    @property
    def environment(self) -> tuple[Mapping[str, str | int], ...]:
        """The ``env`` of every trace."""
        return tuple(t.trace.schema.environment for t in self._traces)

    @property
    def filled(self) -> bool:
        """Whether switches that the kernel left out have been put in: not here."""
        return False

    def watch(self, look: Callable[[EventChunk, Sequence[EventClass]], None]) -> None:
        """Have a function look at every chunk, in the thread that makes the chunks.

        It may see more of them than are delivered, and is done with all that are; to be
        called before the first.

        Parameters
        ----------
        look : callable
            Of a chunk and the classes that are known with it.  It asks nothing of the
            stream, and has no reference to it: that would keep its thread alive.
        """
        self._maker.watch = look

    # ---------------------------------------------------------------- strings

    def code(self, text: str) -> int:
        """Return the code of a text of the caller's, as ``str`` fields have it."""
        self._settle()
        return self._recording.code(text.encode("utf-8", "replace"))

    def strings(self) -> Sequence[str]:
        """Return the texts that came up so far, by their codes; the same list, grown."""
        self._settle()
        self._strings += decode_texts(self._recording.texts(len(self._strings)))
        return self._strings

    def text(self, code: int) -> str:
        """Return the text of a code."""
        if code >= len(self._strings):
            self.strings()
        return self._strings[code]

    def _settle(self) -> None:
        """Have nobody else at the table of texts, and in it what is there on every run."""
        if self._prefetcher is not None:
            self._prefetcher.settle()

    # ----------------------------------------------------------------- events

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
        return chunk

    def _next(self) -> EventChunk | None:
        if self._prefetcher is None:
            return self._maker.make()
        chunk, classes, first, texts = self._prefetcher.next()
        self._classes += self._summary.classes[len(self._classes) : classes]
        self._strings += texts[len(self._strings) - first :]
        return chunk

    def skim(self) -> None:
        """Decode everything and deliver nothing: what decoding alone costs, for benchmarks.

        Instead of iterating.
        """
        for of, _, decoder in self._files:
            while (asked := decoder.skim()) is not None:
                of.answer(decoder, *asked)
        self._ended = True

    def finish(self) -> Events:
        """Return what `read_traces` would, but without one event.

        Only after the last chunk.

        Raises
        ------
        UnreadableError
            If not one event could be decoded.
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
        return self._summary.to_events(_empty_columns(), tuple(self.strings()))

    # ---------------------------------------------------------------- closing

    def close(self) -> None:
        """Close every file; there are no more chunks."""
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
    """Yield events that are there already as chunks of at most `size` events.

    Columns are views; ``values`` is that of all events, for every chunk.
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


# -----------------------------------------------------------------------------
# Makes the next things in a background thread while the present one is worked on.


T = TypeVar("T")


class Prefetcher(Generic[T]):
    """Calls a function in one background thread, some calls ahead of who wants the results.

    Calls are made one after the other.  How many were begun hangs on `next` alone, so
    that behind `settle` everything is as it would be whichever thread was faster.  The
    thread ends with `close`, when this object is gone, or with the interpreter, whatever
    comes first; it must not be what keeps this object alive.

    Parameters
    ----------
    make : callable
        Of no arguments, and without a reference to this object.  Where it raises, `next`
        does, and later calls must do no harm.
    depth : int
        Calls ahead.
    """

    def __init__(self, make: Callable[[], T], depth: int = 1) -> None:
        self._make, self._depth = make, depth
        self._pool: ThreadPoolExecutor | None = None
        self._begun: deque[Future[T]] = deque()

    def next(self) -> T:
        """Return the next result; begin another call in its place."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="critpath-prefetch")
            self._begun.extend(self._pool.submit(self._make) for _ in range(self._depth))
        # What was made before may be overwritten only now.
        self._begun.append(self._pool.submit(self._make))
        return self._begun.popleft().result()

    def settle(self) -> None:
        """Wait until all that was begun is done."""
        wait(self._begun)

    def close(self) -> None:
        """Drop what was not begun, wait for what was, end the thread."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._begun.clear()


# -----------------------------------------------------------------------------
# What is known of a recording once its stream files have been read to their ends.


EventColumns = tuple[I64, I32, I32, I64, I64]


class Summary:
    """Gathers what every trace of a recording tells besides its events.

    Parameters
    ----------
    traces : sequence of Trace
    clocks : Clocks

    Attributes
    ----------
    classes, hosts : list
        As in `Events`; they grow while events are decoded.
    files : list of list of StreamFile
        Of each trace, once it was read.
    wake_targets : WakeTargets
        To be shown the events.
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
        """Return the events of the recording with all that is known of it.

        Parameters
        ----------
        columns : tuple of array
            timestamp, cpu, event_class, offset and values.
        strings : tuple of str
        backwards : int
            Places where time ran backwards within a stream.

        Raises
        ------
        UnreadableError
            If not one event could be decoded.
        """
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
                of,
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
            warnings=tuple(warnings + self.clocks.warnings),
        )


def _metadata_warnings(schema: TraceClass) -> tuple[str, ...]:
    """Return what was odd about the metadata of everything that was read."""
    late = [w for of in schema.streams.values() for w in get_parse_warnings(of.events)]
    return tuple(dict.fromkeys((*schema.warnings, *late)))


# -----------------------------------------------------------------------------
# The native reader: trace directories -> Events, all at once.


def _decode_files(compiled: CompiledTrace, decoder: _decode.Decoder) -> list[StreamFile]:
    """Decode every stream file of a trace; append to the decoder's columns."""
    files = []
    for path in compiled.trace.files:
        decoder.file(compiled.tables, os.fsencode(path), stream_size(path))
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
    """Read the traces of one recording.

    Parameters
    ----------
    traces : sequence of Trace
        The first one's clock is the recording's.
    requests : sequence of EventRequest

    Returns
    -------
    Events
        Events of the same time stand in the order of traces and files.

    Raises
    ------
    UnreadableError
        If not one event could be decoded, or a file cannot be opened.
    """
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
