"""EventChunks -> Blocks of timelines (intervals per thread, with wakers)."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.timeline.functions import name_functions
    from critpath.timeline.opening import RecordingOpener
    from critpath.timeline.routes import add_routes
    from critpath.timeline.streaming import read_timelines, replay_recording
else:
    __getattr__ = hand_on(__name__)
