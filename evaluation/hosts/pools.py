"""Whose units of a pool are, by places in order and by the times between both ends.

Run: ``python evaluation/hosts/pools.py DIR``, on recordings of pattern 6 of
``tests/hosts/record.py`` (``sleep:6``: a loop before a pool of eight threads). By squared times an
assignment is the better the more alike they are: of begins, of ends, of both, and of both as far
as each alone is told from its best exchange. ``nobody`` is what is found where pools are not looked
for. Precision/recall as in `hosts.py`, mean and lowest of all sets.

``--exact UNITS`` compares with an integer program instead: of blocks of so many units all that is
asked is assigned at once, whatever the windows of `assign_units`, and a request may have several
units as far as none overlap and it asks nothing more often than is usual. How often the two differ
in the middle half of a block, and which of them is right by the truth.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from hosts import _load, tell
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array
from truth import find_parents, judge

from critpath.model import F64, I64
from critpath.requests import pools
from critpath.requests.matching import IMPOSSIBLE, find_regrets, match
from critpath.schema.parameters.requests import POOLS

_ROUNDS: Final = 3
Way = Callable[[pools.Units, I64, I64], tuple[I64, F64]]


def by_times(begins: float, ends: float) -> Way:
    """Return a way that weighs both ends so; below 0: by how sharp they are."""

    def assign(units: pools.Units, received: I64, answered: I64) -> tuple[I64, F64]:
        fits = units.asked[:, np.newaxis] >= received
        fits &= units.result[:, np.newaxis] <= answered
        apart = (
            np.maximum(units.asked[:, np.newaxis] - received, 0) / 1e3,
            np.maximum(answered - units.done[:, np.newaxis], 0) / 1e3,
        )

        def solve(weights: tuple[float, float]) -> tuple[I64, float]:
            spread = [1e3, 1e3]
            for _ in range(_ROUNDS):
                parts = zip(weights, apart, spread, strict=True)
                cost = np.add(*(w * each**2 / of for w, each, of in parts))
                cost = np.where(fits, cost, IMPOSSIBLE)
                chosen = match(cost)
                rows = np.flatnonzero(chosen >= 0)
                some = (each[rows, chosen[rows]] for each in apart)
                spread = [float(np.sqrt(np.mean(each**2))) + 1 for each in some]
            return chosen, float(np.median(find_regrets(cost, chosen)))

        weights = begins, ends
        if begins < 0:
            sharp = solve((1, 0))[1], solve((0, 1))[1]
            weights = sharp[0] / sum(sharp), sharp[1] / sum(sharp)
        chosen = solve(weights)[0]
        return chosen, np.where(chosen >= 0, 0.5, 0.0)

    return assign


def assign_none(units: pools.Units, _: I64, __: I64) -> tuple[I64, F64]:
    """Say nothing of any unit."""
    return np.full(len(units), -1), np.zeros(len(units))


Handed = tuple[pools.Units, Sequence[I64], I64, I64]


def record_hand_overs(kept: list[Handed]) -> Callable[..., None]:
    """Return a way to add to pools that keeps units, their rows, requests and times."""
    add = pools.Pooled.add

    def added(
        of: pools.Pooled,
        units: pools.Units,
        groups: Sequence[I64],
        rows: Mapping[int, I64],
        *requests: I64,
    ) -> None:
        add(of, units, groups, rows, *requests)
        mine = [
            rows[thread][group] for thread, group in zip(units.thread.tolist(), groups, strict=True)
        ]
        kept.append((units, mine, *requests))

    return added


def solve_block(units: pools.Units, kinds: Sequence[I64], times: I64, cost: F64) -> I64:
    """Return whose the units of a block are by an integer program; -1 where none fits."""
    fits = units.asked[:, np.newaxis] >= times[:, 1]
    fits &= units.result[:, np.newaxis] <= times[:, 2]
    pairs = np.argwhere(fits)
    rules: list[Sequence[int]] = [np.flatnonzero(pairs[:, 0] == unit) for unit in range(len(units))]
    each = np.unique(np.concatenate(kinds))
    asks = np.array([(kind == each[:, np.newaxis]).sum(axis=1) for kind in kinds])
    shared = (asks[:, np.newaxis] + asks > np.median(asks, axis=0)).any(axis=2)
    clash = units.asked[:, np.newaxis] < units.result
    clash = shared | (clash & clash.T)
    for request in range(len(times)):
        mine = np.flatnonzero(pairs[:, 1] == request)
        for place, one in enumerate(mine.tolist()):
            others = mine[place + 1 :]
            rules += [(one, at) for at in others[clash[pairs[one, 0], pairs[others, 0]]].tolist()]
    rows = np.repeat(np.arange(len(rules)), [len(rule) for rule in rules])
    columns = np.concatenate([np.asarray(rule, np.int64) for rule in rules])
    matrix = csr_array((np.ones(len(rows)), (rows, columns)), (len(rules), len(pairs)))
    least = -1e4  # what leaves a unit to nobody costs more than any places
    done = milp(
        cost[fits] + least,
        constraints=LinearConstraint(matrix, -np.inf, 1),
        bounds=Bounds(0, 1),
        integrality=np.ones(len(pairs)),
        options={"mip_rel_gap": 0},
    )
    found = np.full(len(units), -1)
    chosen = pairs[done.x > 0.5]
    found[chosen[:, 0]] = chosen[:, 1]
    return found


def compare_exactly(
    handed: Handed, owner: I64, truth: Mapping[int, int], kind: I64, size: int
) -> Iterator[tuple[int, int, int]]:
    """Yield of each unit of a block's middle half whose it is: by us, exactly, and in truth."""
    units, rows, requests, times = handed
    place = {int(request): at for at, request in enumerate(requests)}
    ours = np.array([place.get(int(owner[mine[0]]), -1) for mine in rows])
    some = np.flatnonzero(ours >= 0)
    ends = ((units.asked, times[:, 1]), (units.done, times[:, 2]))
    places = [(pools._places(unit), pools._places(request)) for unit, request in ends]
    for begin in range(0, len(units) - size + 1, size // 2):
        block = np.arange(begin, begin + size)
        could = np.flatnonzero(
            (times[:, 1] <= units.asked[block].max()) & (times[:, 2] >= units.result[block].min())
        )
        cost = np.zeros((len(block), len(could)))
        for (unit, request), least in zip(places, POOLS.sharpest, strict=True):
            # Requests without a unit move places apart: by as much as they are here.
            apart = unit[some] - request[ours[some]]
            near = np.median(apart[np.isin(some, block)]) if np.isin(some, block).any() else 0.0
            spread = max(float(np.sqrt(np.mean((apart - np.median(apart)) ** 2))), least)
            cost += ((unit[block, np.newaxis] - request[could] - near) / spread) ** 2 / 2
        part = pools.Units(*(getattr(units, name)[block] for name in units.__dataclass_fields__))
        found = solve_block(part, [kind[rows[at]] for at in block], times[could], cost)
        for at in range(size // 4, size - size // 4):
            true = truth.get(int(rows[block[at]][0]), -1)
            exact = int(could[found[at]]) if found[at] >= 0 else -1
            if true >= 0:
                yield int(ours[block[at]]), exact, place.get(true, -1)


def simulate(late: float, many: int = 800, threads: int = 8) -> Handed:
    """Return units of a pool whose threads ask, end, and are answered late by chance (ns)."""
    draw = np.random.default_rng(18)
    received = np.cumsum(draw.exponential(1e6, many))
    free, columns = np.zeros(threads), []
    for at in received.tolist():
        thread = int(np.argmin(free))
        asked = max(at, free[thread]) + draw.exponential(late)
        result = asked + draw.exponential(4e6)
        free[thread] = done = result + draw.exponential(late)
        columns.append((thread, 0, asked, result, done))
    answered = np.array(columns)[:, 4] + draw.exponential(late, many)
    times = np.column_stack([received, received, answered]).astype(np.int64)
    table = np.array(columns).astype(np.int64)
    order = np.argsort(table[:, 2], kind="stable")
    return (
        pools.Units(*table[order].T),
        [order[at : at + 1] for at in range(many)],
        times[:, 0],
        times,
    )


def print_exactly(recorded: Sequence[Path], size: int) -> None:
    """Print how often ours is another than an integer program's, and which is right."""
    find_requests = _load("evaluation/servers/judge.py").find_requests
    heads = ("set", "units", "differ", "ours right", "exact right", "ours wrong in all")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    add = pools.Pooled.add

    def tell_one(name: str, judged: Iterator[tuple[int, int, int]]) -> None:
        ours, exact, true = np.array([*judged], np.int64).reshape(-1, 3).T
        other = ours != exact
        right = other & (ours == true), other & (exact == true)
        found = (len(ours), *(int(each.sum()) for each in (other, *right, ours != true)))
        print(f"| {name} | {' | '.join(map(str, found))} |", flush=True)

    for place in recorded:
        kept: list[Handed] = []
        pools.Pooled.add = record_hand_overs(kept)
        found = find_requests(place / "recording")
        pools.Pooled.add = add
        subs, truth = found.subrequests, find_parents(place, found)
        kind = found.endpoints.remote_port[subs.endpoint].astype(np.int64)
        owner = subs.request.astype(np.int64)
        for handed in kept:
            tell_one(place.name, compare_exactly(handed, owner, truth, kind, size))
    for late in (1e5, 3e5, 1e6):
        units, rows, requests, times = simulate(late)
        chosen = pools.assign_units(units, times[:, 1], times[:, 2])[0]
        owner = np.full(len(units), -1)
        owner[np.concatenate(rows)] = np.where(chosen >= 0, requests[chosen], -1)
        truth = {row: int(requests[row]) for row in range(len(units))}
        judged = compare_exactly(
            (units, rows, requests, times), owner, truth, np.zeros(len(units), np.int64), size
        )
        tell_one(f"simulated, late by {late / 1e6} ms", judged)


def main() -> None:
    """Print a row for each way."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("place", type=Path)
    parser.add_argument("--exact", type=int, metavar="UNITS", help="compare with an optimum")
    given = parser.parse_args()
    recorded = sorted(path for path in given.place.glob("*-6-*") if (path / "recording").exists())
    if given.exact:
        print_exactly(recorded, given.exact)
        return
    find_requests = _load("evaluation/servers/judge.py").find_requests
    ways = {
        "nobody": assign_none,
        "begins, squared times": by_times(1, 0),
        "ends": by_times(0, 1),
        "both alike": by_times(1, 1),
        "both by sharpness": by_times(-1, -1),
        "places": pools.assign_units,
    }
    print(f"| way | mean of {len(recorded)} sets | lowest | wholly right |\n|---|---|---|---|")
    for name, way in ways.items():
        pools.assign_units = way
        scores = [judge(each, find_requests(each / "recording")) for each in recorded]
        low = np.min([score.mean for score in scores], axis=0)
        mean = np.mean([score.mean for score in scores], axis=0)
        whole = np.mean([score.whole for score in scores])
        shares = "/".join(f"{share:.3f}" for share in mean)
        print(f"| {name} | {shares} | {low[0]:.3f}/{low[1]:.3f} | {whole:.3f} |")
    print(f"\n{', '.join(f'{e.name} {tell(s)}' for e, s in zip(recorded, scores, strict=True))}")


if __name__ == "__main__":
    main()
