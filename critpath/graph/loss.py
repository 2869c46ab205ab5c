"""What of a path lies where events were lost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from critpath.model import I32, I64, U8, Bool, Loss, State


def overlaps_loss(losses: Sequence[Loss], host: I64, begin: I64, end: I64) -> Bool:
    """Return which windows overlap a loss on their host.

    Parameters
    ----------
    losses : sequence of Loss
    host, begin, end : int64 [windows]
    """
    result = np.zeros(len(begin), bool)
    for name in {loss.host for loss in losses}:
        ranges = sorted((loss.begin, loss.end) for loss in losses if loss.host == name)
        low = np.array([r[0] for r in ranges])
        # Ends so far: with begins sorted, the windows that a range reaches into are those
        # that begin before the largest end among the ranges that begin before they end.
        high = np.maximum.accumulate(np.array([r[1] for r in ranges]))
        before = np.searchsorted(low, end, side="right") - 1
        result |= (host == name) & (before >= 0) & (high[np.maximum(before, 0)] >= begin)
    return result


def blame_losses(strings: Sequence[str], state: U8, detail: I32, lossy: Bool) -> I32:
    """Blame a wake that is missing next to a loss on the loss."""
    if "no_wake" not in strings or not lossy.any():
        return detail
    missing = (state == State.WAIT_UNEXPLAINED) & (detail == strings.index("no_wake")) & lossy
    return np.where(missing, np.int32(strings.index("lost_events")), detail).astype(np.int32)
