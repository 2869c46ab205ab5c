"""Which conditions are looked at: values and quantiles of every fact, pairs, and no doubles."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from critpath.explore._bits import common_of
from critpath.explore.conditions import quantiles
from critpath.explore.shifts import U64, BitPlaces, count_common
from critpath.model import F64, I64, Bool
from critpath.model.exploration import FEWEST_WITH, Fact, FactTable, Test
from critpath.schema.parameters.explore import CONDITIONS


@dataclass(frozen=True, eq=False)
class Candidates:
    """Conditions that are looked at, and who has them.

    Attributes
    ----------
    tests : tuple of tuple of Test
    known, part : bool [conditions]
        Known at the begin; a part of what was selected by.
    bits : uint64 [conditions, words]
    sizes : int64 [conditions]
    domain : int64 [conditions]
        Within which executions each is compared: an index into ``domains``.
    domains : uint64 [domains, words]
        The first is everything.
    among : int64 [domains]
        How many executions are in each.
    rare, left_out : int
        Conditions that too few have, or too few have not; that are more than are looked at.
    """

    tests: tuple[tuple[Test, ...], ...]
    known: Bool
    part: Bool
    bits: U64
    sizes: I64
    domain: I64
    domains: U64
    among: I64
    rare: int
    left_out: int

    @property
    def others(self) -> I64:
        """How many executions each is compared with: those of its domain that have it not."""
        return np.asarray(self.among[self.domain] - self.sizes, np.int64)


def find_candidates(
    table: FactTable, rows: I64, places: BitPlaces, used: Iterable[str], families: Iterable[str]
) -> Candidates:
    """Return the conditions that some executions may have in common.

    Parameters
    ----------
    table : FactTable
    rows : int64 array
        The executions, in the order of ``places``.
    places : BitPlaces
    used, families : iterable of str
        Fields that they were selected by, and these fields' families: parts of the selection.

    Returns
    -------
    Candidates
        In the order of facts and values.
    """
    used, families = set(used), {one for one in families if one}
    inverse = np.full(len(table), -1, np.int64)
    inverse[rows] = np.arange(len(rows))
    found: list[tuple[int, Fact, str, Any]] = []  # size, fact, operator, value
    rare = 0
    everyone = np.ones(len(rows), np.bool_)
    domains, domain_of = {places.pack(everyone).tobytes(): 0}, {}
    for fact in table.facts.values():
        if not fact.asked:
            continue
        valid = everyone if fact.valid is None else fact.valid[rows]
        domain_of[fact.name] = domains.setdefault(places.pack(valid).tobytes(), len(domains))
        for operator, value, size in _values(fact, rows, inverse):
            if FEWEST_WITH <= size <= int(valid.sum()) - FEWEST_WITH:
                found.append((size, fact, operator, value))
            else:
                rare += 1
    within = np.frombuffer(b"".join(domains), np.uint64).reshape(len(domains), places.words)
    order = sorted(range(len(found)), key=lambda at: -found[at][0])[: CONDITIONS.most]
    kept = [found[at] for at in sorted(order)]
    bits = np.zeros((len(kept), places.words), np.uint64)
    for at, (_, fact, operator, value) in enumerate(kept):
        bits[at] = places.pack(_members(fact, rows, inverse, operator, value))
    return Candidates(
        tuple((_test(fact, operator, value),) for _, fact, operator, value in kept),
        np.array([fact.known for _, fact, _, _ in kept], np.bool_),
        np.array([f.name in used or f.family in families for _, f, _, _ in kept], np.bool_),
        bits,
        np.array([size for size, *_ in kept], np.int64),
        np.array([domain_of[fact.name] for _, fact, _, _ in kept], np.int64),
        within,
        count_common(within, places, everyone),
        rare,
        len(found) - len(kept),
    )


def _test(fact: Fact, operator: str, value: Any) -> Test:
    if fact.kind == "text":
        return Test(fact.name, operator, fact.words[value])
    return Test(fact.name, operator, (float(value), "ns" if fact.kind == "time" else ""))


def _take_within(fact: Fact, rows: I64, inverse: I64) -> tuple[Any, I64]:
    """Return the values of some executions, and whose each is by its place among them."""
    if fact.rows is not None:
        place = inverse[fact.rows]
        return fact.values[place >= 0], place[place >= 0]
    values = fact.values[rows]
    place = np.arange(len(rows))
    if fact.valid is not None:
        valid = fact.valid[rows]
        values, place = values[valid], place[valid]
    return values, place


def _values(fact: Fact, rows: I64, inverse: I64) -> Iterable[tuple[str, Any, int]]:
    """Yield operator, value and how many executions have it."""
    values, place = _take_within(fact, rows, inverse)
    if not len(values):
        return
    if fact.kind == "text" or fact.each:
        if fact.rows is not None:  # an execution has each once
            distinct, codes = np.unique(values, return_inverse=True)
            # With counts, as that sorts: many different ones are found more slowly by hash.
            pairs, _ = np.unique(codes.ravel() * len(rows) + place, return_counts=True)
            values = distinct[pairs // len(rows)]
        distinct, sizes = np.unique(values, return_counts=True)
        for value, size in zip(distinct.tolist(), sizes.tolist(), strict=True):
            yield "==", value, size
        return
    least = float(values.min())
    for cut in sorted(quantiles(values, CONDITIONS.cuts)):
        if cut > least:
            yield ">=", cut, int((values >= cut).sum())


def _members(fact: Fact, rows: I64, inverse: I64, operator: str, value: Any) -> Bool:
    values, place = _take_within(fact, rows, inverse)
    result = np.zeros(len(rows), np.bool_)
    result[place[values == value if operator == "==" else values >= value]] = True
    return result


def merge_alike(
    candidates: Candidates, order: Iterable[int], height: F64
) -> list[tuple[int, list[tuple[int, bool]], bool]]:
    """Make one of conditions that the same executions have, or that one's others have.

    Parameters
    ----------
    candidates : Candidates
    order : iterable of int
        From the largest difference to the smallest.
    height : float64 [conditions]
        The standardised difference of each.

    Returns
    -------
    list of (condition, also, known)
        ``also`` has the others of its kind, True where they hold for all the others; ``known`` if
        any of them is.  What is shown of a kind is known at the begin, if any of it is, and then
        what is more frequent in the selection.
    """
    kinds: list[tuple[int, list[tuple[int, bool]]]] = []
    for at in order:
        for first, also in kinds:
            both = common_of(candidates.bits, first, at)
            mine, theirs = int(candidates.sizes[at]), int(candidates.sizes[first])
            either = mine + theirs - both
            domain = int(candidates.domain[at])
            all_of = int(candidates.among[domain if domain == candidates.domain[first] else 0])
            # With the complement of the second: theirs without both, and all but what only it has.
            without, beside = theirs - both, all_of - (mine - both)
            if both >= CONDITIONS.alike * either or without >= CONDITIONS.alike * beside:
                also.append((at, without >= CONDITIONS.alike * beside))
                break
        else:
            kinds.append((at, []))
    result = []
    for first, also in kinds:
        members = [(first, False), *also]
        known = any(candidates.known[at] for at, _ in members)

        def rank(member: tuple[int, bool]) -> tuple[bool, bool]:
            return bool(candidates.known[member[0]]), bool(height[member[0]] > 0)

        shown = max(members, key=rank)
        others = [(at, other != shown[1]) for at, other in members if at != shown[0]]
        result.append((shown[0], others, known))
    return result


def pair_best(candidates: Candidates, order: list[int], places: BitPlaces) -> Candidates:
    """Add any two of some conditions together, where enough executions have both.

    They are compared within what both are compared within.
    """
    tests, known = [*candidates.tests], [candidates.known]
    bits, sizes, domain = [candidates.bits], [*candidates.sizes], [*candidates.domain]
    domains, among = [*candidates.domains], [*candidates.among]
    place: dict[tuple[int, int], int] = {}
    for i, first in enumerate(order):
        for second in order[:i]:
            low, high = sorted((int(candidates.domain[first]), int(candidates.domain[second])))
            if low in {0, high}:
                place[low, high] = high
            elif (low, high) not in place:
                place[low, high] = len(domains)
                domains.append(candidates.domains[low] & candidates.domains[high])
                among.append(common_of(candidates.domains, low, high))
            size, all_of = common_of(candidates.bits, first, second), among[place[low, high]]
            if not FEWEST_WITH <= size <= all_of - FEWEST_WITH:
                continue
            tests.append((*candidates.tests[second], *candidates.tests[first]))
            known.append(candidates.known[[first]] & candidates.known[[second]])
            bits.append(candidates.bits[[first]] & candidates.bits[[second]])
            sizes.append(size)
            domain.append(place[low, high])
    return replace(
        candidates,
        tests=tuple(tests),
        known=np.concatenate(known),
        part=np.pad(candidates.part, (0, len(tests) - len(candidates.part))),
        bits=np.concatenate(bits),
        sizes=np.array(sizes, np.int64),
        domain=np.array(domain, np.int64),
        domains=np.array(domains, np.uint64).reshape(len(domains), places.words),
        among=np.array(among, np.int64),
    )
