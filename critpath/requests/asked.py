"""What is asked for, requests or slices: what it needs of a recording, and where it is found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from critpath.read import CALL_EVENTS, SOCKET_EVENTS
from critpath.requests.find import find_requests, require_sockets
from critpath.requests.slices import find_slices, require_markers
from critpath.schema.ways import SOCKETS

if TYPE_CHECKING:
    from critpath.executions import Specification
    from critpath.model import EventRequest, Events, Executions, ReplayedRecording
    from critpath.model.requests import Pieces
    from critpath.read import Recording
    from critpath.requests.find import Learn


def require_events(
    recording: Recording, specification: Specification
) -> tuple[str, tuple[EventRequest, ...]]:
    """Return the way to sockets, and what has to be read for requests or slices.

    Refuses a recording without it; of other executions nothing is needed.
    """
    way = SOCKETS
    wanted: tuple[EventRequest, ...] = ()
    if specification.kind == "requests":
        way = require_sockets(recording)
        wanted = (*SOCKET_EVENTS, *(CALL_EVENTS if way != SOCKETS else ()))
    if specification.kind == "slices":
        require_markers(recording, specification.slices.marker)
        wanted = SOCKET_EVENTS if specification.slices.marker == "unix" else ()
    return way, wanted


def find_asked(
    replayed: ReplayedRecording,
    specification: Specification,
    recording: Recording,
    learn: Learn | None = None,
) -> tuple[Executions, Events, Pieces | None]:
    """Find the requests or slices that a specification asks for: see `find_requests`."""
    if specification.kind == "slices":
        slices = find_slices(replayed, specification, recording.manifest)
        return slices, replayed.events, None
    return find_requests(replayed, specification, recording, learn)
