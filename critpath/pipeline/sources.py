"""How the events of a recording come: as a stream, or all at once where that must be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from critpath.model import Events, Wanted
from critpath.read.recording import read_events
from critpath.read.streaming import EventStream, OutOfOrder, chunks_of
from critpath.timeline.clocks import align_hosts
from critpath.timeline.missing_switches import with_missing_switches

if TYPE_CHECKING:
    from critpath.model import EventChunk, EventClass
    from critpath.read.clocks import Trace


# Chunks that are decoded ahead: one, and others for the time that a block is cut in.
_AHEAD: Final = 3


# Looks at a chunk and the classes that are known with it.
Look = Callable[["EventChunk", Sequence["EventClass"]], None]


class Source(Protocol):
    """A recording whose events come in the order of time; read once from begin to end."""

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
    def environment(self) -> tuple[Mapping[str, str | int], ...]:
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
        self.environment = events.environment
        self._look: Look | None = None

    def __iter__(self) -> Iterator[EventChunk]:
        for chunk in chunks_of(self._events):
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


class Opener:
    """Begins to read one recording, as often as it is asked to.

    Parameters
    ----------
    recording : Path
    traces : sequence of Trace
    wanted : sequence of Wanted
    reader : str
        As `critpath.read.recording.read_events`.
    ahead : bool
        Decode in a thread of its own.

    Attributes
    ----------
    whole : str
        Why the recording is in memory as a whole, as a clause; "" where it is not.
    """

    def __init__(
        self,
        recording: Path,
        traces: Sequence[Trace],
        wanted: Sequence[Wanted],
        reader: str,
        *,
        ahead: bool = False,
    ) -> None:
        self._recording, self._traces = recording, traces
        self._wanted, self._reader = tuple(wanted), reader
        self._ahead = ahead
        self._events: Events | None = None
        self.whole = ""
        if reader == "babeltrace2":
            self.whole = "babeltrace2 reads it"
        elif len({trace.host for trace in traces}) > 1:
            self.whole = "it is of several hosts, whose clocks have to be aligned first"

    def __call__(self) -> Source:
        """Begin."""
        if not self.whole:
            return EventStream(self._traces, self._wanted, ahead=_AHEAD if self._ahead else 0)
        if self._events is None:
            events = read_events(self._recording, self._wanted, reader=self._reader)
            self._events = align_hosts(with_missing_switches(events))
        return WholeRecording(self._events)

    def sort_whole(self, reason: OutOfOrder) -> None:
        """From now on, have all events in memory: they come out of order."""
        self.whole = f"{reason}, and its events have to be sorted"
