"""Two commands in random blocks -> whether the second is slower than the first."""

from critpath.doors import be_function, hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.ab.run import (
        AbRequest,
        Slots,
        TracedSlots,
        add_cause,
        compare_commands,
        judge_again,
    )
    from critpath.ab.trend import Answer, Named, find_trend
else:
    __getattr__ = hand_on(__name__)
    be_function(__name__)
