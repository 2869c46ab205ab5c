"""Tables of executions -> what those of a selection have in common."""

from critpath.doors import be_function, hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.explore.questions import SAMPLE, explore, facts_of
else:
    __getattr__ = hand_on(__name__)
    be_function(__name__)
