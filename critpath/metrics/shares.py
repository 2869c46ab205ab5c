"""Where the time of requests goes: what is counted of all, and what a few walked ones tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

# By state and peer ("" for its own): ns, or a part of all.
Times = Mapping[tuple[str, str], float]

OWN: Final = "OWN"  # until what is walked tells more
ANSWER: Final = "WAIT_ANSWER"  # of somebody who was asked
QUEUED, SHARED = "QUEUED", "SHARED"


def read_times(took: int, shares: Sequence[object]) -> dict[tuple[str, str], float]:
    """Return where time went, by a flight recorder: `shares` is its answer's ``time``."""
    queued, shared, asked = shares
    times = {(QUEUED, ""): float(str(queued)), (SHARED, ""): float(str(shared))}
    rows: Iterable[Sequence[object]] = asked if isinstance(asked, list) else ()
    for peer, _, ns in rows:
        key = ANSWER, str(peer)
        times[key] = times.get(key, 0.0) + float(str(ns))
    times[OWN, ""] = max(took - sum(times.values()), 0.0)
    return times


def find_parts(times: Times) -> dict[tuple[str, str], float]:
    """Return what part of all time each has; nothing where there was none."""
    whole = sum(times.values())
    return {key: ns / whole for key, ns in times.items() if ns > 0} if whole > 0 else {}


def refine(live: Times, walked: Times) -> dict[tuple[str, str], float]:
    """Return parts as counted of all requests, with what they do themselves as those walked did.

    What was counted tells who was waited for, what was walked how a request's own time is spent.
    """
    if not live:
        return dict(walked)
    asked = {peer.partition(":")[0] for state, peer in live if state == ANSWER} - {""}
    own = {key: part for key, part in walked.items() if key[1] not in asked and key[0] != QUEUED}
    whole = sum(own.values())
    left = live.get((OWN, ""), 0.0)
    if whole <= 0 or left <= 0:
        return dict(live)
    found = {key: part for key, part in live.items() if key != (OWN, "")}
    for key, part in own.items():
        found[key] = found.get(key, 0.0) + left * part / whole
    return found
