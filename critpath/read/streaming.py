"""The native reader as a stream: trace directories -> chunks of events, one after the other.

One decoder per stream file decodes some hundred events at a time into a small buffer;
a merge takes them in the order of time.  Nothing grows with the trace but the table of
packets, so that a recording may be larger than memory.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np

from critpath.model import EventChunk, EventClass, Events, Wanted
from critpath.read import _decode
from critpath.read.clocks import Clocks, Trace
from critpath.read.compiled import CompiledTrace, not_readable, stream_size
from critpath.read.named import NamedCpus
from critpath.read.selection import selection
from critpath.read.shapes import decoded
from critpath.read.summary import Columns, Summary

if TYPE_CHECKING:
    from critpath.read.ahead import Ahead

# Rows that all decoders together keep waiting, so that they stay in the cache; a decoder
# gets its share of them within bounds.
_WAITING = 32768
_FEWEST, _MOST = 128, 2048
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


class _Chunks:
    """Makes one chunk after the other; nothing of it knows who wants them.

    Parameters
    ----------
    merge : Merge
    files : list of (CompiledTrace, Path, Decoder)
        As the merge counts them.
    recording : Recording
    classes : list of EventClass
    named : NamedCpus
    """

    def __init__(
        self,
        merge: _decode.Merge,
        files: list[tuple[CompiledTrace, Path, _decode.Decoder]],
        recording: _decode.Recording,
        classes: list[EventClass],
        named: NamedCpus,
    ) -> None:
        self._merge, self._files, self._recording = merge, files, recording
        self._classes, self._named = classes, named
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
            raise not_readable(error) from error
        if self._merge.backwards >= 0:
            of, path, _ = self._files[self._merge.backwards]
            raise OutOfOrder(f"{of.trace.name}/{path.name}")
        if self._merge.count == 0:
            return None
        chunk = EventChunk(*self._merge.columns())
        self._named.look(chunk.event_class, chunk.offset, chunk.values, self._classes)
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
        texts = list(decoded(self._recording.texts(first)))
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
    wanted : sequence of Wanted
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
        wanted: Sequence[Wanted],
        chunk: int = 32768,
        *,
        ahead: int = 0,
    ) -> None:
        if chunk < 1:
            raise ValueError("a chunk has at least one event")
        clocks = Clocks(traces)
        chosen = selection(tuple(wanted))
        self._about = Summary(traces, clocks)
        self._recording = _decode.Recording()
        self._traces = [
            CompiledTrace(
                trace,
                chosen,
                partial(clocks.shift, trace),
                self._recording,
                self._about.classes,
                self._about.hosts,
            )
            for trace in traces
        ]
        files = [(of, path) for of in self._traces for path in of.trace.files]
        batch = max(_FEWEST, min(_MOST, _WAITING // max(len(files), 1)))
        keep = len(files) <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _DESCRIPTORS
        merge = _decode.Merge(self._recording, chunk, 4 * chunk, 1 + ahead)
        self._files: list[tuple[CompiledTrace, Path, _decode.Decoder]] = []
        for of, path in files:
            decoder = _decode.Decoder(self._recording, batch)
            decoder.file(of.tables, os.fsencode(path), stream_size(path), keep)
            merge.add(decoder)
            self._files.append((of, path, decoder))
        self._chunks = _Chunks(
            merge, self._files, self._recording, self._about.classes, self._about.named
        )
        self._strings: list[str] = []
        self._ended = self._closed = False
        # Those of chunks that were asked for: what is decoded ahead may know more.
        self._classes = [] if ahead else self._about.classes
        self._ahead: Ahead[tuple[EventChunk | None, int, int, list[str]]] | None = None
        if ahead:
            from critpath.read.ahead import Ahead  # noqa: PLC0415 - slow, and not always needed

            self._ahead = Ahead(self._chunks.make_all, ahead)

    @property
    def classes(self) -> list[EventClass]:
        """The event classes that came up so far."""
        return self._classes

    @property
    def hosts(self) -> tuple[str, ...]:
        """The machines that were traced."""
        return tuple(self._about.hosts) or ("",)

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
        self._chunks.watch = look

    # ---------------------------------------------------------------- strings

    def code(self, text: str) -> int:
        """Return the code of a text of the caller's, as ``str`` fields have it."""
        self._settle()
        return self._recording.code(text.encode("utf-8", "replace"))

    def strings(self) -> Sequence[str]:
        """Return the texts that came up so far, by their codes; the same list, grown."""
        self._settle()
        self._strings += decoded(self._recording.texts(len(self._strings)))
        return self._strings

    def text(self, code: int) -> str:
        """Return the text of a code."""
        if code >= len(self._strings):
            self.strings()
        return self._strings[code]

    def _settle(self) -> None:
        """Have nobody else at the table of texts, and in it what is there on every run."""
        if self._ahead is not None:
            self._ahead.settle()

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
        if self._ahead is None:
            return self._chunks.make()
        chunk, classes, first, texts = self._ahead.next()
        self._classes += self._about.classes[len(self._classes) : classes]
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
        self._about.files = [
            [
                trace.stream_file(path, decoder.file_packets())
                for _, path, decoder in islice(files, len(trace.trace.files))
            ]
            for trace in self._traces
        ]
        return self._about.events(_no_columns(), tuple(self.strings()))

    # ---------------------------------------------------------------- closing

    def close(self) -> None:
        """Close every file; there are no more chunks."""
        self._closed = True
        if self._ahead is not None:
            self._ahead.close()
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


def _no_columns() -> Columns:
    wide, narrow = np.zeros(0, np.int64), np.zeros(0, np.int32)
    return wide, narrow, narrow, wide, wide


def chunks_of(events: Events, size: int = 65536) -> Iterator[EventChunk]:
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
