"""Which executions of a dump are looked at: whose, of which time, and how many of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from critpath.incidents.dumps import Dump
from critpath.incidents.usual import OF_A_KIND
from critpath.model import F64, I64, Executions, PathSet
from critpath.model.gaps import BASE, hide_layers
from critpath.model.requests import CERTAINTIES, Certainty, names_service, service_of
from critpath.schema.environment import Environment
from critpath.schema.parameters.shared import INCIDENTS

_ENOUGH: Final = 30  # technical: of a kind and a side; a window is doubled until it has them
_FEW: Final = 5  # technical: of the time before it turned
_RARE: Final = 0.05  # technical: of executions; a kind of fewer has no say in that
_LEAST: Final = 0.001  # technical: chance; one of less would speak for a thousand others
_DOUBTFUL: Final = CERTAINTIES[Certainty.DOUBTFUL]
_LONGEST: Final = 5_000  # technical: segments of a path, which take long to align


def focus(kind: str, sample: PathSet, *usual: PathSet) -> tuple[PathSet, ...]:
    """Return the executions of a kind, and those that ask it; all if there are none.

    Where whom they ask is not known as well as it usually is, all of the services that may have
    asked it: of what is usual, too, so that like is compared with like.
    """
    chosen = {label for label in sample.executions.label if names_service(label, kind)}
    if not chosen:
        return (sample, *usual)
    if all(chosen <= set(of.executions.label) for of in usual):
        return tuple(_take(of, [label in chosen for label in of.executions.label])
                     for of in (sample, *usual))  # fmt: skip
    services = {service_of(label) for label in chosen}
    return tuple(_take(of, [service_of(label) in services for label in of.executions.label])
                 for of in (sample, *usual))  # fmt: skip


def is_known(paths: PathSet, kind: str) -> bool:
    """Tell whether there are as many executions of a kind as its window is to have.

    And that few of those that ask it are left out because a gap hides what others had asked: they
    are those of a busy loop, and the rest is of other kinds.
    """
    labels = [label for label in paths.executions.label if names_service(label, kind)]
    services = {kind, *map(service_of, labels)}
    whole = unsure = 0
    for of in paths.environment:
        for name, counts in (of.requests.left_out or {} if of.requests else {}).items():
            if name in services:
                whole, unsure = whole + counts["whole"], unsure + counts["unsure"]
    return len(labels) >= _ENOUGH and unsure <= INCIDENTS.unsure * whole


def _take(paths: PathSet, chosen: Sequence[bool]) -> PathSet:
    return paths.take(np.flatnonzero(chosen))


def split_at(paths: PathSet, moment: int, window: int) -> tuple[PathSet, PathSet]:
    """Return the executions of a dump before something was noticed there, and those of it.

    Of it are those that ended in a time before (ns), and after; in a longer one if it takes that
    to have enough of each kind that is no rare one.  Where they surely became slower within that
    time, only those from then on: a condition holds at times before all that it looks over is slow.
    """
    end = paths.executions.end
    first = int(end.min()) if len(end) else moment
    counts = Counter(paths.executions.label)
    labels = np.array(paths.executions.label, dtype=object)
    asked = [labels == label for label, n in counts.items() if n >= _RARE * counts.total()]
    while True:
        after = end >= moment - window
        fewest = min((np.count_nonzero(after & of) for of in asked), default=sum(after))
        if fewest >= _ENOUGH or moment - window <= first:
            break
        window *= 2
    begin = _find_turn(paths, moment - window, moment)
    turned = end >= begin
    if all(np.count_nonzero(turned & of) >= _ENOUGH for of in asked):
        after = turned
    rows = np.arange(len(end), dtype=np.int64)
    return paths.take(rows[~after]), paths.take(rows[after])


def _find_turn(paths: PathSet, first: int, moment: int) -> int:
    """Return from when on, between two moments, those that ended were slower; the first if none.

    It is where both parts differ most, of what is longer than usual for its kind.
    """
    rows = np.flatnonzero(paths.executions.end >= first)
    rows = rows[np.argsort(paths.executions.end[rows], kind="stable")]
    ends = paths.executions.end[rows]
    _, kind = np.unique(np.array(paths.executions.label, dtype=str)[rows], return_inverse=True)
    logs = np.log(np.maximum(ends - paths.executions.begin[rows], 1))
    logs -= (np.bincount(kind, logs) / np.maximum(np.bincount(kind), 1))[kind]
    many = np.arange(1, len(rows))
    before = np.cumsum(logs)[:-1] / many
    later = -np.cumsum(logs)[:-1] / (len(rows) - many)  # all add up to nothing
    spread = float(logs.std()) if len(rows) else 0.0
    if spread <= 0 or len(rows) < 2 * _FEW:
        return first
    sure = (later - before) / (spread * np.sqrt(1 / many + 1 / (len(rows) - many)))
    sure[many < _FEW] = 0
    at = int(np.argmax(np.round(sure, 6)))
    return int(ends[at + 1]) if sure[at] >= INCIDENTS.turn and ends[at + 1] <= moment else first


def find_chances(executions: Executions, dump: Dump) -> F64:
    """Return the chance of each execution of a dump that no gap cuts it, by how long it takes.

    It is of those moments of the dump at which it could begin, after which as much time was
    recorded.
    """
    gaps = hide_layers(dump.gaps).of(BASE)
    begins = np.append(dump.begin, np.maximum(gaps.end, dump.begin))
    windows = np.sort(np.maximum(np.append(gaps.begin, dump.end) - begins, 0))
    took = executions.end - executions.begin
    whole = np.append(0, np.cumsum(windows))
    first = np.searchsorted(windows, took)
    room = whole[-1] - whole[first] - (len(windows) - first) * took
    chance = room / np.maximum(dump.end - dump.begin - took, 1)
    return np.asarray(np.clip(chance, _LEAST, 1.0), np.float64)


def thin(paths: PathSet, chances: F64 | None = None) -> PathSet:
    """Return at most so many executions of each kind as there are of what is usual.

    The higher the chance that gaps left one whole, the fewer like it are taken: every part of the
    dump speaks for as many as there were.  None is taken whose path would take long to align, nor
    one of which it is in doubt how long it took.
    """
    labels = np.array(paths.executions.label, dtype=object)
    weights = np.ones(len(paths)) if chances is None else 1 / chances
    short = np.concatenate([
        np.zeros(0, np.bool_), *(np.diff(part.start) <= _LONGEST for part in paths.paths.chunks())
    ])  # fmt: skip
    known = paths.executions.requests
    if known is not None:
        sure = np.array([of != _DOUBTFUL for of in known.boundary], np.bool_)
        short &= sure | ~sure.any()
    chosen: list[I64] = []
    for label in sorted(set(paths.executions.label)):
        rows = np.flatnonzero((labels == label) & short)
        weight = np.cumsum(weights[rows])
        if not len(rows):
            continue
        # As many as are worth as much as those of one weight; of as many stretches the middle.
        worth = weight[-1] ** 2 / (weights[rows] ** 2).sum()
        kept = min(round(worth), OF_A_KIND)
        places = (2 * np.arange(kept) + 1) / (2 * kept) * weight[-1]
        chosen.append(rows[np.unique(np.searchsorted(weight, places, side="right"))])
    if not chosen:
        return paths
    taken = paths.take(np.sort(np.concatenate(chosen)))
    return replace(taken, environment=tuple(map(_forget_doubtful, taken.environment)))


def _forget_doubtful(of: Environment) -> Environment:
    """Say no more of those in doubt, which are left out."""
    if of.requests is None or not of.requests.doubtful:
        return of
    return replace(of, said=None, requests=replace(of.requests, doubtful=0, shared={}))
