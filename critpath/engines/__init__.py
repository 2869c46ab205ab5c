"""Where recordings are read: in which processes, in how much memory."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.engines.limits import Budget, note_long_paths, require_room
    from critpath.engines.tasks import (
        Engine,
        Failure,
        dask_address,
        dask_engine,
        fit_jobs,
        run,
        size_of,
        split_resources,
    )
else:
    __getattr__ = hand_on(__name__)
