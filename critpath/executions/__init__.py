"""EventChunks -> few Events -> Executions (windows: who, from when to when)."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.executions.fields import escape
    from critpath.executions.find import (
        add_label,
        choose_specification,
        find_executions,
        require_events,
    )
    from critpath.executions.marker import MARKER_EVENTS, find_markers
    from critpath.executions.membership import match_threads
    from critpath.executions.prefilter import Prefilter
    from critpath.executions.process import (
        count_missing_runs,
        select_within_runs,
    )
    from critpath.executions.scheduling import Scheduling, hosts_of
    from critpath.executions.specification import (
        Specification,
        get_event_requests,
        parse_specification,
        request_marker_events,
    )
else:
    __getattr__ = hand_on(__name__)
