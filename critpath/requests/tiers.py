"""Where the time of requests goes, tier by tier: what each service adds by itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from critpath.model import I64, Bool
from critpath.model.requests import Certainty, Sketches, Tier

_DEEPEST: Final = 50  # technical


@dataclass
class _Sum:
    """What the requests of a place in the tree take together (ns)."""

    requests: int = 0
    latency: int = 0
    own: int = 0
    asked: int = 0
    queued: int = 0
    here: bool = True
    threads: set[tuple[int, int, int]] = field(default_factory=set)
    below: dict[str, _Sum] = field(default_factory=dict)


def sum_tiers(
    sketches: Iterable[Sketches], *, ids: Collection[str] = (), doubtful: bool = False
) -> tuple[Sequence[Tier], int]:
    """Add up what requests took, and what those took that they asked.

    Parameters
    ----------
    sketches : iterable of Sketches
        Of every recording; the chosen requests, and all that was asked for them, count.
    ids : collection of str
        Only these executions; all that are chosen without.
    doubtful : bool
        Count requests of which it is doubtful what they asked.

    Returns
    -------
    tiers : sequence of Tier
        Each after the one that asks it; of several, who takes most time first.
    left : int
        Chosen requests that do not count, as it is doubtful what they asked.
    """
    top, left = _Sum(), 0
    for number, each in enumerate(sketches):
        left += _add_recording(top, each, number, set(ids), doubtful=doubtful)
    return tuple(_list_tiers(top, 0)), left


def _add_recording(
    top: _Sum, sketches: Sketches, number: int, ids: Collection[str], *, doubtful: bool
) -> int:
    requests, subs = sketches.requests, sketches.subrequests
    chosen = sketches.chosen
    if ids:
        chosen = chosen & np.fromiter((one in ids for one in sketches.id), np.bool_)
    root = _find_roots(requests.parent.astype(np.int64), chosen)
    doubted = np.zeros(len(requests), np.bool_)
    unsure = (subs.request >= 0) & (subs.attribution == Certainty.DOUBTFUL)
    asked_by = root[subs.request[unsure]]
    doubted[asked_by[asked_by >= 0]] = not doubtful
    left = int((chosen & doubted & (root == np.arange(len(requests)))).sum())
    counted = (root >= 0) & ~doubted[root]
    place: dict[int, _Sum] = {}
    level = np.flatnonzero(counted & (root == np.arange(len(requests))))
    for _ in range(_DEEPEST):
        if not len(level):
            break
        _add_level(top, place, level, sketches, number)
        within = np.zeros(len(requests), np.bool_)
        within[level] = True
        level = np.flatnonzero(
            counted & within[requests.parent] & (requests.parent >= 0) & (root != _rows(root))
        )
    _add_elsewhere(place, sketches)
    return left


def _rows(of: I64) -> I64:
    return np.arange(len(of), dtype=np.int64)


def _find_roots(parent: I64, chosen: Bool) -> I64:
    """Return of every request the topmost chosen one that it was asked for, -1 for none."""
    root = np.where(chosen, _rows(parent), -1)
    above = parent.copy()
    for _ in range(_DEEPEST):
        some = above >= 0
        if not some.any():
            break
        found = some & chosen[above]
        root[found] = above[found]
        above = np.where(some, parent[above], -1)
    return root


def _add_level(
    top: _Sum, place: dict[int, _Sum], rows: I64, sketches: Sketches, number: int
) -> None:
    """Add requests of one depth to their places in the tree."""
    table = sketches.requests
    host = sketches.endpoints.host[table.endpoint]
    for row in rows.tolist():
        above = place.get(int(table.parent[row]), top)
        service = table.strings[int(table.service[row])]
        mine = above.below.setdefault(service, _Sum())
        place[row] = mine
        mine.requests += 1
        mine.latency += int(table.end_ns[row] - table.begin_ns[row])
        mine.own += int(table.true_ns[row])
        mine.asked += int(table.asked_ns[row])
        mine.queued += int(table.queued_ns[row])
        mine.threads.add((number, int(host[row]), int(table.tid[row])))


def _add_elsewhere(place: dict[int, _Sum], sketches: Sketches) -> None:
    """Add what was asked of who is not in the recording: only how long that took is known."""
    subs, endpoints = sketches.subrequests, sketches.endpoints
    far = (subs.request >= 0) & (subs.child < 0) & (subs.connects == 0)
    for row in np.flatnonzero(far).tolist():
        above = place.get(int(subs.request[row]))
        if above is None:
            continue
        at = int(subs.endpoint[row])
        path, port = endpoints.strings[int(endpoints.path[at])], int(endpoints.remote_port[at])
        name = path or (f":{port}" if port else "unknown")
        mine = above.below.setdefault(name, _Sum(here=False))
        mine.requests += 1
        mine.latency += int(subs.end_ns[row] - subs.begin_ns[row])


def _list_tiers(of: _Sum, depth: int) -> Iterable[Tier]:
    for service, each in sorted(of.below.items(), key=lambda one: (-one[1].latency, one[0])):
        n = each.requests
        yield Tier(
            service=service,
            depth=depth,
            requests=n,
            latency_ns=each.latency / n,
            own_ns=each.own / n if each.here else None,
            asked_ns=each.asked / n if each.here else None,
            queued_ns=each.queued / n if each.here else None,
            threads=len(each.threads),
        )
        yield from _list_tiers(each, depth + 1)
