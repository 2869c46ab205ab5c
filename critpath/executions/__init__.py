"""EventChunks -> few Events -> Executions (windows: who, from when to when)."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.executions.find import Choice, choose, find_executions
    from critpath.executions.listed import ListAskedError, ListedRow
    from critpath.executions.marker import MARKER_EVENTS
    from critpath.executions.membership import ProcessPlaces
    from critpath.executions.prefilter import Prefilter
    from critpath.executions.process import select_within_runs
    from critpath.executions.scheduling import Scheduling
    from critpath.executions.specification import (
        EVERY_MARKER,
        Specification,
        parse_specification,
    )
else:
    __getattr__ = hand_on(__name__)
