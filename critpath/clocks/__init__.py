"""The clocks of several hosts on one line, with a bound on how wrong that may be."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.clocks.align import (
        Aligned,
        FoundClocks,
        align_events,
        align_traces,
        link_hosts,
        read_clocks,
    )
else:
    __getattr__ = hand_on(__name__)
