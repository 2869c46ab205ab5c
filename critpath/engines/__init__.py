"""Where recordings are read: in which processes, in how much memory."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.engines.limits import Budget, require_room, usable_cores
    from critpath.engines.tasks import DaskScheduler, Engine, Failure, run, share_out
else:
    __getattr__ = hand_on(__name__)
