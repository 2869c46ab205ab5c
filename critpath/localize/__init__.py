"""Alignment -> Findings (what differs, where, worth how many ms)."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.localize.explaining import explain
    from critpath.localize.segments import is_faster
else:
    __getattr__ = hand_on(__name__)
