"""Opening a recording, as often as it is asked for, by one host's clock or by several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from critpath import clocks
from critpath.executions import Prefilter
from critpath.model import EventRequest, Events
from critpath.model.gaps import Gaps
from critpath.progress import Stage
from critpath.read import (
    SOCKET_EVENTS,
    EventStream,
    OutOfOrder,
    Source,
    WholeRecording,
)
from critpath.text import notes
from critpath.timeline.missing_switches import repair_switches

if TYPE_CHECKING:
    from critpath.executions import Specification
    from critpath.model.clocks import ClockAlignment
    from critpath.read import Recording

# technical: chunks that are decoded ahead: one, and others for the time that a block is cut in.
_AHEAD: Final = 3


class RecordingOpener:
    """Begins to read one recording, as often as it is asked to.

    Parameters
    ----------
    recording : Recording
    wanted : sequence of EventRequest
    reader : str
        As `critpath.read.traces.read_events`.
    ahead : bool
        Decode in a thread of its own.
    begin : callable, optional
        Called whenever reading begins, for the stage of the work that shows how much was read.
    known : list, optional
        Where the clocks of several hosts are kept for the recording's other openers.

    Attributes
    ----------
    whole : str
        Why the recording is in memory as a whole, as a clause; "" where it is not.
    several : bool
        Whether it is of several hosts: they are read once for their clocks, then as one.
    """

    def __init__(
        self,
        recording: Recording,
        wanted: Sequence[EventRequest],
        reader: str,
        *,
        ahead: bool = False,
        begin: Callable[[], Stage] | None = None,
        known: list[clocks.Aligned] | None = None,
    ) -> None:
        self._known = [] if known is None else known
        self._recording, self.several = recording, recording.is_several
        # What one host sends another it receives at sockets.
        self._wanted = tuple(dict.fromkeys((*wanted, *(SOCKET_EVENTS if self.several else ()))))
        self._reader = reader
        self._ahead, self._begin = ahead, begin
        self._events: Events | None = None
        self._gaps: Gaps | None = None  # of a stream
        self.whole = ""
        if reader == "babeltrace2":
            self.whole = "babeltrace2 reads it"

    @property
    def alignment(self) -> ClockAlignment | None:
        """How the clocks of several hosts relate, once something was read."""
        return self._known[0].clocks if self._known else None

    def __call__(self) -> Source:
        """Begin."""
        stage = self._begin() if self._begin else None
        if not self.whole:
            return self._stream(stage or Stage(None, ""), _AHEAD if self._ahead else 0)
        if self._events is None:
            self._events = self._aligned(self._recording.read(self._wanted, self._reader))
        return WholeRecording(self._events)

    def _aligned(self, events: Events) -> Events:
        """Return events in memory with the recording's gaps, in the time of one clock."""
        gaps = self._recording.find_gaps(events.hosts, ())
        events = repair_switches(replace(events, gaps=gaps))

        aligned = clocks.align_events(events)
        return replace(aligned, gaps=self._recording.find_gaps(events.hosts, aligned.clocks))

    def _stream(self, stage: Stage, ahead: int = 0) -> EventStream:
        if self.several and not self._known:
            self._known.append(clocks.align_traces(self._recording, stage))
        stream = EventStream(
            self._recording.traces,
            self._wanted,
            ahead=ahead,
            reached=stage.reach,
            alignment=self.alignment,
        )
        if self._gaps is None:
            known = self.alignment.hosts if self.alignment else ()
            self._gaps = self._recording.find_gaps(stream.hosts, known)
        stream.gaps = self._gaps
        return stream

    def read(self) -> Events:
        """Return all events at once."""
        if not self.whole:
            try:
                with closing(self._stream(Stage(None, ""))) as stream:
                    return repair_switches(stream.read())
            except OutOfOrder as reason:
                self.sort_whole(reason)
        return self._aligned(self._recording.read(self._wanted, self._reader))

    def read_for(self, specification: Specification) -> Events:
        """Return what the finder of executions asks about, where nothing else is needed."""
        try:
            with closing(self()) as source:
                prefilter = Prefilter([specification], source.gaps)
                source.watch(prefilter.feed)
                for _ in source:
                    pass
                return prefilter.events(source.finish())
        except OutOfOrder as reason:
            self.sort_whole(reason)
            return self.read_for(specification)

    def tell_clocks(self, events: Events) -> Events:
        """Say how surely the clocks of several hosts are known, and what each host lost."""
        known = events.clocks if self.whole else [of for a, _ in self._known for of in a.hosts]
        if self.several and known:
            events = self._recording.add_host_losses(events, known)
        if self.whole or not self._known:
            return events

        return self._known[0].tell(events)

    def sort_whole(self, reason: OutOfOrder) -> None:
        """From now on, have all events in memory: they come out of order."""
        self.whole = notes.out_of_order(reason)
        self._known.clear()
