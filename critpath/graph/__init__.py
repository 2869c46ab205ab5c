"""Blocks of timelines -> CriticalPaths; Timelines -> ExecutionGraph, for exports."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.graph.execution_graph import window
    from critpath.graph.partial import Share, count_chosen, leave_out_partial
    from critpath.graph.stacks import mark_own
    from critpath.graph.walking import (
        choose_executions,
        resolve_ids,
        thread_paths,
        traces_of,
        walk_paths,
    )
else:
    __getattr__ = hand_on(__name__)
