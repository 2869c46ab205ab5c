"""Requests of servers, found in what threads do with sockets: nobody marks them."""

from critpath.doors import be_function, hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.requests.activity import ActivityEvents
    from critpath.requests.asked import Asked
    from critpath.requests.crossings import find_receipts
    from critpath.requests.endpoints import UDP, EndpointColumn, resolve_endpoints
    from critpath.requests.services import sum_services
    from critpath.requests.slices import SliceSketches
    from critpath.requests.tiers import sum_tiers
    from critpath.requests.transitions import Way
else:
    __getattr__ = hand_on(__name__)
    be_function(__name__)
