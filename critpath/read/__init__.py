"""A recording -> EventChunks (a stream), or Events (all of it)."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.read.clocks import Trace
    from critpath.read.counts import parse_counts
    from critpath.read.event_names import (
        CALL_EVENTS,
        HEADER_LENGTHS,
        HEADERS,
        KERNEL_EVENTS,
        PACKET_EVENTS,
        PACKETS,
        SOCKET_EVENTS,
        SOURCE_PORT,
    )
    from critpath.read.event_table import EVENT_COLUMNS, EventQuestion, EventTable
    from critpath.read.hosts import decide_hosts, decided_hosts
    from critpath.read.recording import Recording
    from critpath.read.streaming import (
        EventStream,
        OutOfOrder,
        Source,
        WholeRecording,
    )
    from critpath.read.traces import find_recordings
else:
    __getattr__ = hand_on(__name__)
