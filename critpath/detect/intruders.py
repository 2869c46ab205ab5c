"""A stranger who came: it has a CPU in nearly every execution, and hardly had it before.

The sum over all strangers hides one of them: those who had that CPU before gave way to it.  So
each is asked by itself, on each CPU and for each kind of execution.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct

from critpath.detect.machine import is_helper
from critpath.detect.weather import KindRows, Strangers, name_families
from critpath.documents import WeatherEntry, WeatherRival
from critpath.documents.base import number
from critpath.model import F64, I64, Bool, PathSet, State, Symbol, VectorTable
from critpath.model.details import Detail
from critpath.model.vectors import look_up, name_family
from critpath.processes import do_for_both
from critpath.schema.parameters.detect import INTRUDERS, MACHINE, VERDICT
from critpath.schema.parameters.shared import NORMAL
from critpath.stats.tails import hypergeometric_tail

_ANY: Final = -1  # technical: on whichever CPU


class Intruder(Struct, frozen=True, eq=False):
    """Who came, and what it did.

    Attributes
    ----------
    weather : WeatherEntry
        Who had which CPU for how long, in executions of which kinds.
    slower : bool
        These surely became slower, and it explains most of that.
    hit : bool [sample executions]
        Those of them that waited for it.
    """

    weather: WeatherEntry
    slower: bool
    hit: Bool


class _Hit(Struct, frozen=True, eq=False):
    """A kind of execution that waits for it: on average (ns), and which of the sample do."""

    label: str
    share: float  # of the sample
    before: float
    after: float
    longer: float
    slower: bool
    hit: Bool

    @property
    def explained(self) -> float:
        return min(self.after - self.before, max(self.longer, 0.0))


class _Rival(Struct, frozen=True, eq=False):
    """How long executions of both sets waited for a CPU that a family of strangers had (ns)."""

    family: str
    cpu: int
    waits: tuple[F64, F64]


def find_intruder(
    tables: tuple[VectorTable, VectorTable],
    kinds: Iterable[KindRows],
    sets: tuple[PathSet, PathSet],
    strangers: Strangers,
    runs: tuple[I64, I64] | None,
    floor: float,
) -> Intruder | None:
    """Return the stranger that came and took most; None where there is none.

    Parameters
    ----------
    tables : (VectorTable, VectorTable)
    kinds : iterable
        The label of each kind, and which executions of either set are of it.
    sets : (PathSet, PathSet)
    strangers : Strangers
    runs : (int64 array, int64 array) or None
        Run of every execution; None where each is one.
    floor : float
        Least effect that counts, as a share of a kind's mean duration.
    """
    rivals, called = _list_rivals(sets, strangers)
    places = runs or (np.arange(len(sets[0])), np.arange(len(sets[1])))
    kinds = [*kinds]
    level = MACHINE.level / max(len(rivals) * len(kinds), 1)
    best: tuple[tuple[bool, float], _Rival, list[_Hit]] | None = None
    for rival in rivals:
        looked = (_look_at(kind, tables, rival.waits, places, floor, level) for kind in kinds)
        hits = [hit for hit in looked if hit is not None]
        hits = [hit for hit in hits if hit.slower] or hits
        rank = any(hit.slower for hit in hits), sum(hit.share * hit.after for hit in hits)
        if hits and (best is None or rank > best[0]):
            best = rank, rival, hits
    if best is None:
        return None
    (slower, _), rival, hits = best
    hit = np.any([one.hit for one in hits], axis=0)
    share = sum(one.share for one in hits)
    longer = sum(one.share * max(one.longer, 0.0) for one in hits)
    explained = sum(one.share * one.explained for one in hits)
    weather = WeatherEntry(
        number(explained / longer if longer > 0 else 0.0),
        number(explained),
        [one.label for one in hits if one.label],
        rivals=[WeatherRival(called[rival.family], number(1.0))],
        cpus=[*_name_cpu(rival, rivals, hit)],
        before=number(sum(one.share * one.before for one in hits) / share),
        after=number(sum(one.share * one.after for one in hits) / share),
    )
    return Intruder(weather, slower, hit)


def _look_at(
    kind: KindRows,
    tables: tuple[VectorTable, VectorTable],
    waits: tuple[F64, F64],
    places: tuple[I64, I64],
    floor: float,
    level: float,
) -> _Hit | None:
    """Return what became of a kind that waits for a stranger who came; None where it does not."""
    label, *rows = kind
    before, after = (of[own] for of, own in zip(waits, rows, strict=True))
    whole = [of.total[own].astype(np.float64) for of, own in zip(tables, rows, strict=True)]
    usual = float(whole[0].mean())
    if min(map(len, whole)) < MACHINE.group or after.mean() < INTRUDERS.least * usual:
        return None
    if before.mean() > MACHINE.new * after.mean():
        return None
    hits = [of >= floor * usual for of in (before, after)]
    if hits[1].mean() < INTRUDERS.often or _count_tail(*hits) > level:
        return None
    # The executions of a run share what others do: in each it has to come, and in none before.
    runs = [
        [bool(2 * hit[of == run].mean() >= 1) for run in np.unique(of)]
        for hit, of in zip(hits, (p[own] for p, own in zip(places, rows, strict=True)), strict=True)
    ]
    if _count_tail(*(np.array(of, np.bool_) for of in runs)) > MACHINE.newcomer:
        return None
    hit = np.zeros(len(rows[1]), np.bool_)
    hit[rows[1]] = hits[1]
    return _Hit(
        label, float(rows[1].mean()), float(before.mean()), float(after.mean()),
        float(whole[1].mean()) - usual, _is_slower(whole[0], whole[1], floor), hit,
    )  # fmt: skip


def _count_tail(before: Bool, after: Bool) -> float:
    """Return the chance that as many of those that are hit are among the ones after."""
    n, m, hit = len(before), len(after), int(after.sum())
    return hypergeometric_tail(int(before.sum()) + hit, m, n, hit)


def _is_slower(before: F64, after: F64, floor: float) -> bool:
    """Tell whether executions surely take longer: their mean, and the usual one."""
    least = 1 + floor
    if after.mean() < least * before.mean() or np.median(after) < least * np.median(before):
        return False
    logs = [np.log(np.maximum(of, 1.0)) for of in (before, after)]
    error = math.sqrt(sum(float(of.var(ddof=1)) / len(of) for of in logs))
    return float(logs[1].mean() - logs[0].mean()) >= NORMAL.q90 * error


def _name_cpu(rival: _Rival, rivals: Iterable[_Rival], hit: Bool) -> Iterator[int]:
    """Yield the CPU where nearly all was that a stranger had."""
    if rival.cpu != _ANY:
        yield rival.cpu
        return
    whole = float(rival.waits[1][hit].sum())
    for one in rivals:
        there = float(one.waits[1][hit].sum())
        if one.family == rival.family and one.cpu != _ANY and there >= VERDICT.one_cpu * whole:
            yield one.cpu


def _list_rivals(
    sets: tuple[PathSet, PathSet], strangers: Strangers
) -> tuple[list[_Rival], dict[str, str]]:
    """Return the strangers for whom the sample waited longest, and what each family is called."""
    (before, names), (after, others) = do_for_both(*sets, _list_waits, strangers)
    number = np.array([names.setdefault(name, len(names)) for name in others] or [0], np.int64)
    after = after._replace(who=number[after.who])
    families = {name: name_family(name) for name in names}
    family = np.array([*families.values()], dtype=object)
    longest: dict[tuple[str, int], float] = defaultdict(float)
    pairs, place = np.unique(np.stack([after.who, after.cpu]), axis=1, return_inverse=True)
    times = np.bincount(place.reshape(-1), after.time, pairs.shape[1])
    for (who, cpu), time in zip(pairs.T.tolist(), times.tolist(), strict=True):
        for on in (cpu, _ANY):
            longest[family[who], on] += time
    chosen = sorted(longest, key=lambda of: (-longest[of], of))[: INTRUDERS.most]
    sides = list(zip((before, after), map(len, sets), strict=True))
    rivals = []
    for name, cpu in chosen:
        ours, theirs = (waits.sum_up(name, cpu, family, many) for waits, many in sides)
        rivals.append(_Rival(name, cpu, (ours, theirs)))
    return rivals, {families[name]: text for name, text in name_families(names).items()}


class _Waits(NamedTuple):
    """Waits for a CPU that a stranger had: of which execution, where, for whom, how long (ns)."""

    at: I64
    cpu: I64
    who: I64
    time: F64

    def sum_up(self, name: str, cpu: int, family: np.ndarray[Any, Any], many: int) -> F64:
        """Return how long each of so many executions waited for a family on a CPU."""
        theirs = np.isin(self.who, np.flatnonzero(family == name))
        own = theirs if cpu == _ANY else theirs & (self.cpu == cpu)
        return np.asarray(np.bincount(self.at[own], self.time[own], many), np.float64)


def _list_waits(paths: PathSet, strangers: Strangers) -> tuple[_Waits, dict[str, int]]:
    """Return the waits for CPUs that strangers had, and the numbers of their names."""
    names: dict[str, int] = {}
    none = np.zeros(0, np.int64)
    parts = [_Waits(none, none, none, np.zeros(0))]
    first = 0
    for chunk in paths.chunks():
        table = chunk.paths
        rows = np.flatnonzero(table.state == State.WAIT_CPU)
        who = look_up(table.detail[rows], table.details, partial(_number, strangers, names))
        rows, who = rows[who >= 0], who[who >= 0]
        at = first + np.searchsorted(table.start, rows, side="right") - 1
        time = table.duration[rows].astype(np.float64)
        parts.append(_Waits(at, table.cpu[rows].astype(np.int64), who, time))
        first += len(table)
    return _Waits(*(np.concatenate(column) for column in zip(*parts, strict=True))), names


def _number(strangers: Strangers, names: dict[str, int], of: Detail) -> int:
    """Return the number of the stranger that had a CPU, -1 if it was no stranger's."""
    if not strangers.has(of) or is_helper(Symbol(State.RUN, of.rival)):
        return -1
    return names.setdefault(of.rival, len(names))
