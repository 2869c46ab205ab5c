"""What strangers did to executions: how much of a slowdown they explain, and who they were.

Work that is ready and has no CPU is delayed.  Who has the CPU meanwhile is of the program, which
crowds itself, or a stranger.  A computation that takes longer waits longer for strangers, too:
theirs is only by how much each nanosecond of work waits longer than before.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Self

import numpy as np
from msgspec import Struct

from critpath.detect.machine import is_helper, is_surely_more
from critpath.documents import WeatherEntry, WeatherRival
from critpath.documents.base import number
from critpath.model import F64, RUNNING, Bool, PathSet, State, VectorTable
from critpath.model.details import Detail, is_of_program
from critpath.model.vectors import name_family
from critpath.schema.parameters.detect import MACHINE, VERDICT
from critpath.schema.parameters.shared import NORMAL

_SMALL: Final = 0.05  # technical: share of a rival that is not named

KindRows = tuple[str, Bool, Bool]  # a label, and which executions of either set have it
Labels = tuple[Sequence[str], Sequence[str]]


def list_kinds(labels: Labels) -> Iterator[KindRows]:
    """Yield the kinds of execution that are in both sets, and which those are."""
    ours, theirs = (np.array(of, dtype=object) for of in labels)
    for label in sorted(set(labels[0]) & set(labels[1])):
        yield label, ours == label, theirs == label


class Strangers(Struct, frozen=True):
    """Who is not of the program: neither what its executions are of, nor on their normal paths.

    Attributes
    ----------
    program : frozenset of str
        Families of its threads' names, where nothing tells how processes are related.
    asked : frozenset of str
        Of the threads that normal executions wait for.
    """

    program: frozenset[str]
    asked: frozenset[str]

    @classmethod
    def of(cls, normal: PathSet, sample: PathSet, before: VectorTable) -> Self:
        """Return the strangers of two sets; ``before``: vectors of the normal one."""
        there = [before.symbols[at] for at in np.flatnonzero(before.durations.any(axis=0)).tolist()]
        asked = {symbol.role for symbol in there if symbol.role and not is_helper(symbol)}
        program = {comm for of in (normal, sample) for comm in of.executions.comm}
        return cls(*(frozenset(map(name_family, names)) for names in (program, asked)))

    def has(self, who: Detail) -> bool:
        """Tell whether the thread that had a CPU is one of them; an idle CPU is not."""
        ours = is_of_program(who.kin)
        if ours or who.idle or not who.rival:
            return False
        family = name_family(who.rival)
        return family not in self.asked and (ours is not None or family not in self.program)


class Sides(Struct, frozen=True, eq=False):
    """Two sets, and the same without the time that strangers had the cpu; the kind of each."""

    normal: VectorTable
    sample: VectorTable
    own: tuple[VectorTable, VectorTable]
    labels: Labels


class _Hit(Struct, frozen=True):
    """What became of a kind of execution, on average (ns)."""

    label: str
    share: float  # of the sample
    mean: float
    longer: float
    by_strangers: float
    waited_more: float  # for strangers
    error: float  # of that
    surely: bool  # it waited more

    @property
    def explained(self) -> float:
        """How much of it strangers made."""
        return min(self.by_strangers, self.longer)


def find_weather(sides: Sides, floor: float) -> WeatherEntry | None:
    """Return how much of a slowdown strangers explain; None where they do not explain most of it.

    Parameters
    ----------
    sides : Sides
    floor : float
        Least effect that counts, as a share of a kind's mean duration.
    """
    kinds = [
        _look_at(sides, *of) for of in list_kinds(sides.labels) if min(of[1].sum(), of[2].sum()) > 0
    ]
    hit = [
        one
        for one in kinds
        if one.longer > 0
        and one.longer >= floor * one.mean
        and one.by_strangers >= VERDICT.mostly * one.longer
    ]
    slower = sum(one.share * max(one.longer, 0.0) for one in kinds)
    effect = sum(one.share * one.explained for one in hit)
    if not hit or effect < VERDICT.mostly * slower:
        return None
    more = sum(one.share * one.waited_more for one in hit)
    if more < NORMAL.q90 * math.hypot(*(one.share * one.error for one in hit)):
        return None
    # One kind by itself is named where it surely was hit; that they are slower is known.
    named = [one for one in hit if one.surely]
    named = named if len(named) < len(kinds) else []
    of = named or hit
    explains = sum(one.share * one.explained for one in of)
    explains /= sum(one.share * one.longer for one in of)
    figures = number(explains), number(effect), [one.label for one in named]
    return WeatherEntry(*figures, rivals=[], cpus=[], before=0.0, after=0.0)


def _look_at(sides: Sides, label: str, ours: Bool, theirs: Bool) -> _Hit:
    """Take apart by how much longer one kind's executions take."""
    whole = [t.durations[rows] for t, rows in ((sides.normal, ours), (sides.sample, theirs))]
    own = [t.durations[rows] for t, rows in zip(sides.own, (ours, theirs), strict=True)]
    taken = [(a - b).astype(np.float64) for a, b in zip(whole, own, strict=True)]
    symbols = sides.normal.symbols
    runs = np.array([symbol.state in RUNNING for symbol in symbols], np.bool_)
    by_strangers = 0.0
    for role in {symbol.role for symbol in symbols}:
        mine = np.array([symbol.role == role for symbol in symbols], np.bool_)
        work = [float(of[:, mine & runs].sum(axis=1).mean()) for of in own]
        waits = [float(of[:, mine].sum(axis=1).mean()) for of in taken]
        if min(work) > 0:
            # As much longer work as a machine makes is not the program's, nor are its waits.
            usual = work[0] * min(max(work[1] / work[0], 1.0), MACHINE.apart)
            each = waits[0] / usual, waits[1] / work[1]
            by_strangers += (each[1] - each[0]) * (usual + work[1]) / 2
    before, after = (float(of.sum(axis=1).mean()) for of in whole)
    waited: list[F64] = [of.sum(axis=1) for of in taken]
    enough = min(len(of) for of in whole) >= MACHINE.group
    return _Hit(
        label, float(theirs.mean()), before, after - before, by_strangers,
        waited_more=float(waited[1].mean() - waited[0].mean()),
        error=math.sqrt(sum(float(of.var()) / max(len(of) - 1, 1) for of in waited)),
        surely=enough and is_surely_more(*waited),
    )  # fmt: skip


def name_rivals(
    weather: WeatherEntry,
    sets: tuple[PathSet, PathSet],
    strangers: Strangers,
) -> WeatherEntry:
    """Add who had the cpu for so much longer, and where."""
    before, after = (_sum_by_rival(paths, strangers, weather.kinds) for paths in sets)
    called = name_families(name for name, *_ in before.keys() | after.keys())
    grown: dict[str, float] = defaultdict(float)
    inside: defaultdict[str, set[str]] = defaultdict(set)
    places: Counter[int] = Counter()
    for key in sorted(before.keys() | after.keys()):
        name, cpu, place = key
        more = after.get(key, 0.0) - before.get(key, 0.0)
        grown[called[name]] += more
        places[cpu] += round(max(more, 0.0))
        if more > 0:
            inside[called[name]].add(place)
    whole = sum(ns for ns in grown.values() if ns > 0) or 1.0
    ranked = sorted(grown, key=lambda name: (-grown[name], name))
    where = places.most_common(1)
    all_there = where and where[0][0] >= 0 and where[0][1] >= VERDICT.one_cpu * places.total()
    return WeatherEntry(
        weather.explains, weather.effect, weather.kinds,
        rivals=[
            WeatherRival(
                *(name, number(grown[name] / whole)),
                place=min(inside[name]) if len(inside[name]) == 1 else "",
            )
            for name in ranked
            if grown[name] >= _SMALL * whole
        ],
        cpus=[where[0][0]] if all_there else [],
        before=number(sum(before.values())),
        after=number(sum(after.values())),
    )  # fmt: skip


def _sum_by_rival(
    paths: PathSet, strangers: Strangers, kinds: Sequence[str]
) -> dict[tuple[str, int, str], float]:
    """Return how long strangers had the cpus of some kinds of execution, on average (ns)."""
    chosen = np.array([not kinds or label in kinds for label in paths.executions.label], np.bool_)
    sums: dict[tuple[str, int, str], float] = defaultdict(float)
    first = 0
    for chunk in paths.chunks():
        table = chunk.paths
        rows = np.flatnonzero(table.state == State.WAIT_CPU)
        rows = rows[chosen[first + np.searchsorted(table.start, rows, side="right") - 1]]
        first += len(table)
        many = len(table.details)
        keys, place = np.unique(
            table.cpu[rows].astype(np.int64) * many + table.detail[rows], return_inverse=True
        )
        times = np.bincount(place, table.duration[rows].astype(np.float64), len(keys))
        for key, ns in zip(keys.tolist(), times.tolist(), strict=True):
            cpu, code = divmod(key, many)
            who = table.details[code]
            if strangers.has(who):
                sums[who.rival, cpu, who.place] += ns
    return {key: ns / max(int(chosen.sum()), 1) for key, ns in sums.items()}


def name_families(names: Iterable[str]) -> dict[str, str]:
    """Return what each name is called: of several of a family, what they have in common."""
    families: dict[str, set[str]] = defaultdict(set)
    for name in names:
        families[name_family(name)].add(name)
    return {
        name: name if len(some) == 1 else family.replace("#", "*")
        for family, some in families.items()
        for name in some
    }
