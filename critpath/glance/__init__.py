"""A recording -> LookDocument: what is there, before anybody says what an execution is."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.glance.looking import look
else:
    __getattr__ = hand_on(__name__)
