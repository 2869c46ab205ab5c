"""Where the time of requests goes, tier by tier: what each service adds by itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from critpath.model import I64, Bool
from critpath.model.requests import Certainty, Sketches, Tier, Untold
from critpath.schema.parameters.requests import TIERS

_DEEPEST: Final = 50  # technical


@dataclass
class _Sum:
    """What the requests of a place in the tree take together (ns)."""

    requests: int = 0
    latency: int = 0
    own: int = 0
    asked: int = 0
    queued: int = 0
    unknown: int = 0
    here: bool = True
    threads: set[tuple[int, int, int]] = field(default_factory=set)
    below: dict[str, _Sum] = field(default_factory=dict)


def sum_tiers(
    sketches: Iterable[Sketches], *, ids: Collection[str] = (), doubtful: bool = False
) -> tuple[Sequence[Tier], Untold]:
    """Add up what requests took, and what those took that they asked.

    Of those of which it is doubtful what they asked, all but their wait is unknown.

    Parameters
    ----------
    sketches : iterable of Sketches
        Of every recording; the chosen requests, and all that was asked for them, count.
    ids : collection of str
        Only these executions; all that are chosen without.
    doubtful : bool
        Count what is doubtful as if it were not.

    Returns
    -------
    tiers : sequence of Tier
        Each after the one that asks it; of several, who takes most time first.
    untold : Untold
        Chosen requests of which it is doubtful what they asked.
    """
    top = _Sum()
    took: tuple[list[I64], list[I64]] = ([], [])
    for number, each in enumerate(sketches):
        for of, lasting in zip(
            took, _add_recording(top, each, number, set(ids), doubtful=doubtful), strict=True
        ):
            of.append(lasting)
    told, untold = (np.concatenate([np.zeros(0, np.int64), *of]) for of in took)
    return tuple(_list_tiers(top, 0)), _compare(told, untold)


def _compare(told: I64, untold: I64) -> Untold:
    """Say whether requests of which it is doubtful what they asked are like the others."""
    middle, other = (float(np.median(of)) if len(of) else 0.0 for of in (untold, told))
    low, high = np.quantile(told, TIERS.middle) if len(told) else (0.0, 0.0)
    few = min(len(told), len(untold)) < TIERS.few
    unlike = len(untold) > 0 and (few or not low <= middle <= high)
    return Untold(len(untold), middle, other, bool(unlike and len(told)))


def _add_recording(
    top: _Sum, sketches: Sketches, number: int, ids: Collection[str], *, doubtful: bool
) -> tuple[I64, I64]:
    """Add a recording; return how long its requests took, told and untold."""
    requests = sketches.requests
    chosen = sketches.chosen
    if ids:
        chosen = chosen & np.fromiter((one in ids for one in sketches.id), np.bool_)
    root = _find_roots(requests.parent.astype(np.int64), chosen)
    doubted = np.zeros(len(requests), np.bool_)
    asked_by = root[sketches.attribution == Certainty.DOUBTFUL]
    doubted[asked_by[asked_by >= 0]] = not doubtful
    top_most = root == np.arange(len(requests))
    counted = (root >= 0) & ~doubted[root]
    place: dict[int, _Sum] = {}
    told, untold = np.flatnonzero(top_most & ~doubted), np.flatnonzero(top_most & doubted)
    _add_level(top, {}, untold, sketches, number, known=False)
    level = told
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
    lasting = requests.end_ns - requests.begin_ns
    return lasting[told], lasting[untold]


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
    top: _Sum,
    place: dict[int, _Sum],
    rows: I64,
    sketches: Sketches,
    number: int,
    *,
    known: bool = True,
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
        latency, queued = int(table.end_ns[row] - table.begin_ns[row]), int(table.queued_ns[row])
        mine.latency += latency
        mine.own += int(table.true_ns[row]) if known else queued
        mine.asked += int(table.asked_ns[row]) if known else 0
        mine.unknown += 0 if known else latency - queued
        mine.queued += queued
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
            unknown_ns=each.unknown / n if each.here else None,
        )
        yield from _list_tiers(each, depth + 1)
