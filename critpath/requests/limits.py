"""What the order of events on a connection cannot tell, noticed: several requests at once."""

from __future__ import annotations

from typing import Final

import numpy as np

from critpath.model import I64, Bool

# Receives of new data while an answer is owed, of all receives: more is several requests at once.
_INTRUSIONS: Final = 0.02
# A connection with fewer receives is judged with the others of its service.
_ENOUGH: Final = 50
_FEWEST: Final = 3  # intrusions


def find_multiplexed(endpoint: I64, intrusions: I64, receives: I64, service: I64) -> Bool:
    """Return which endpoints have several requests under way at once.

    A request may come in several receives; what is usual there, of all turns of a service, is
    no sign.

    Parameters
    ----------
    endpoint, intrusions : int64 [turns]
        Of each turn: whose, and how often new data was received before its answer.
    receives, service : int64 [endpoints]
        How often each received, and of which service it is; -1 for none.
    """
    extra = np.zeros(len(receives), np.int64)
    if len(endpoint):
        of_turn = service[endpoint]
        for each in np.unique(of_turn).tolist():
            mine = of_turn == each
            usual = int(np.median(intrusions[mine]))
            np.add.at(extra, endpoint[mine], np.maximum(intrusions[mine] - usual, 0))
    found = np.zeros(len(receives), np.bool_)
    for each in np.unique(service[service >= 0]).tolist():
        mine = service == each
        many = mine & (receives >= _ENOUGH)
        few = mine & ~many
        found |= many & (extra >= _FEWEST) & (extra > _INTRUSIONS * receives)
        total, of = int(extra[few].sum()), int(receives[few].sum())
        if total >= _FEWEST and total > _INTRUSIONS * of:
            found |= few & (receives > 0)
    return found
