"""What is asked for, requests or slices: what it needs of a recording, and where it is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from critpath.executions import EVERY_MARKER
from critpath.model.requests import MARKERS
from critpath.read import CALL_EVENTS, PACKET_EVENTS, SOCKET_EVENTS
from critpath.requests.find import (
    find_other_way,
    find_requests,
    find_sketches,
    leave_out_layers,
    list_ways,
    require_sockets,
)
from critpath.requests.slices import (
    find_slices,
    list_markers,
    require_markers,
    sketch_slices,
)
from critpath.schema.ways import BY_CALLS, BY_LENGTHS, SOCKETS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from critpath.executions import Specification
    from critpath.model import EventRequest, Events, Executions, ReplayedRecording
    from critpath.model.requests import CutRequests, Sketches
    from critpath.read import Recording
    from critpath.requests.find import Learn
    from critpath.requests.slices import SliceSketches
    from critpath.requests.transitions import Way


# What each way asks for besides what sockets do.
MORE_EVENTS: Final = {
    SOCKETS: (),
    **dict.fromkeys(BY_LENGTHS, PACKET_EVENTS),
    **dict.fromkeys(BY_CALLS, CALL_EVENTS),
}


class Asked:
    """The requests or slices of a recording that a specification asks for; of others nothing.

    Refuses a recording without what tells of them.  `learn` returns what the requests of another
    recording asked.

    Attributes
    ----------
    way : str
        What tells of sockets.
    wanted : tuple of EventRequest
        What has to be read.
    """

    def __init__(
        self, recording: Recording, specification: Specification, learn: Learn | None = None
    ) -> None:
        self._of, self._learn = (specification, recording), learn
        self.way = SOCKETS
        self.wanted: tuple[EventRequest, ...] = ()
        if specification.kind == "requests":
            self.way = require_sockets(recording)
            self.wanted = (*SOCKET_EVENTS, *MORE_EVENTS[self.way])
        if specification.kind == "slices":
            if specification.slices.marker != EVERY_MARKER:
                require_markers(recording, specification.slices.marker)
            by_socket = specification.slices.marker in {"unix", EVERY_MARKER}
            self.wanted = SOCKET_EVENTS if by_socket else ()

    def find_other_way(self, replayed: ReplayedRecording) -> str:
        """Return the way by system calls, where the kernel hid which socket is which; else ""."""
        return find_other_way(replayed, self._of[1])

    def find(self, replayed: ReplayedRecording) -> tuple[Executions, Events, CutRequests | None]:
        """Find what is asked for: see `find_requests`."""
        specification, recording = self._of
        if specification.slices.marker == EVERY_MARKER:
            list_markers(replayed, *self._of)
        if specification.kind == "slices":
            if MARKERS[specification.slices.marker].profile != "minimal":
                replayed = leave_out_layers(replayed)
            slices = find_slices(replayed, specification, recording.manifest)
            return slices, replayed.events, None
        return find_requests(replayed, *self._of, self._learn)

    def sketch(self, replayed: ReplayedRecording) -> Sketches:
        """Return all that is known of the requests, whichever are asked for."""
        return find_sketches(replayed, *self._of, self._learn)

    def sketch_slices(self, replayed: ReplayedRecording) -> SliceSketches:
        """Return all slices, whichever are asked for."""
        return sketch_slices(replayed, *self._of)

    def list_ways(self, replayed: ReplayedRecording) -> Mapping[Way, int]:
        """Return what the requests asked, and how often."""
        return list_ways(replayed, *self._of)
