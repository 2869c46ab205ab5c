"""How well an injected difference is found: one block 25 times longer, four extra states.

Run as ``python evaluation/benchmarks/injected.py [--repeats N] [--level low] [--loops]``.  In
every repeat 21 executions are normal and one more of the same family is anomalous: a block
(a state of half a millisecond or more) takes 25 times as long, and four states of 3 ms that
nobody else has stand at random places.  The same execution before the injection, and every
normal one against the others, tell how many columns are marked that should not be.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

import numpy as np
from families import LETTERS, RATES, Path, family

from critpath.align.multiple import align
from critpath.localize.columns import column_statistics
from critpath.localize.findings import Segments, find_differences
from critpath.model import Alignment, ColumnStatistics, Finding, State, Symbol
from critpath.model.details import NO_DETAIL

MS = 1_000_000
FACTOR, EXTRA, EXTRA_NS = 25, 4, 3 * MS
LEAST_BLOCK = MS // 2
NEW = LETTERS  # code of the extra state
SYMBOLS = tuple(Symbol(State(i + 1)) for i in range(LETTERS + 1))
VIEWS = ("loo", "loo structure", "loo duration", "P < 0.05", "mean + 1.5 sd", "paper", "missing")


def inject(rng: np.random.Generator, path: Path) -> tuple[Path, int, set[int]]:
    """Return the anomalous execution, the block's place in it and those of the extra states."""
    durations = path.durations.copy()
    block = int(rng.choice(np.flatnonzero(durations >= LEAST_BLOCK)))
    durations[block] *= FACTOR
    places = np.sort(rng.choice(len(durations), EXTRA, replace=False))
    codes = np.insert(path.codes, places, NEW)
    durations = np.insert(durations, places, EXTRA_NS)
    return (
        Path(codes, durations),
        block + int((places <= block).sum()),
        {int(p) + i for i, p in enumerate(places)},
    )


def aligned(paths: list[Path]) -> Alignment:
    return align([p.codes for p in paths], [p.durations for p in paths], LETTERS + 1)


def marks(statistics: ColumnStatistics) -> dict[str, np.ndarray]:
    """Return the columns that every view marks."""
    p = {"loo structure": statistics.p_structure, "loo duration": statistics.p_duration}
    structure = statistics.abnormal & (np.nan_to_num(p["loo structure"], nan=1) < 0.01)
    return {
        "loo": statistics.abnormal,
        "loo structure": structure,
        "loo duration": statistics.abnormal & ~structure,
        "P < 0.05": statistics.abnormal_state,
        "mean + 1.5 sd": statistics.abnormal_duration,
        "paper": statistics.abnormal_state | statistics.abnormal_duration,
        "missing": statistics.missing,
    }


def explained(alignment: Alignment, statistics: ColumnStatistics) -> tuple[Finding, ...]:
    durations = alignment.durations[-1]
    end = np.cumsum(durations)
    nobody, nothing = ("",) * len(end), (NO_DETAIL,) * len(end)
    segments = Segments(end - durations, end, np.full(len(end), 1), nobody, nothing)
    return find_differences(("0", 0), alignment, statistics, SYMBOLS, segments)[0]


def without_last(alignment: Alignment, row: int) -> Alignment:
    """Put one normal row last and leave the anomalous one out."""
    order = [i for i in range(len(alignment.sequences) - 1) if i != row] + [row]
    rows = alignment.rows[order]
    return Alignment(
        rows[:, (rows >= 0).any(axis=0)],
        tuple(alignment.sequences[i] for i in order),
        tuple(alignment.durations[i] for i in order),
    )


def repeat(seed: int, level: str, normals: int, length: int, *, loops: bool) -> Counter[str]:
    """Run one repeat; return what was counted."""
    rng = np.random.default_rng(seed)
    paths = family(rng, normals + 1, length, level, loops=loops)
    result: Counter[str] = Counter()
    healthy = aligned(paths)
    for view, marked in marks(column_statistics(healthy)).items():
        result["healthy", view] = int(marked.sum())
    for row in range(normals):
        one = column_statistics(without_last(healthy, row))
        result["among normals"] += int(one.abnormal.sum())
    path, block, extra = inject(rng, paths[-1])
    alignment = aligned([*paths[:-1], path])
    begin = time.perf_counter()
    statistics = column_statistics(alignment)
    findings = explained(alignment, statistics)
    result["seconds"] = time.perf_counter() - begin
    column_of = {int(i): c for c, i in enumerate(alignment.rows[-1].tolist()) if i >= 0}
    at = column_of[block]
    of_extra = {column_of[i] for i in extra}
    result["first column"] = int(np.argmax(statistics.contribution)) == at
    first = findings[0]
    whole = first.symbol == SYMBOLS[path.codes[block]]
    result["first finding"] = whole and first.columns[0] <= at < first.columns[1]
    result["first finding is it alone"] = result["first finding"] and first.columns == (at, at + 1)
    result["first finding is abnormal"] = result["first finding"] and first.abnormal
    for view, marked in marks(statistics).items():
        found = set(np.flatnonzero(marked).tolist())
        result["block", view] = at in found
        result["all extra", view] = of_extra <= found
        result["false", view] = len(found - {at} - of_extra)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--normals", type=int, default=21)
    parser.add_argument("--length", type=int, default=165)
    parser.add_argument("--level", choices=RATES, default="low")
    parser.add_argument("--loops", action="store_true")
    options = parser.parse_args()
    counted: Counter[str] = Counter()
    for seed in range(options.repeats):
        counted.update(
            repeat(seed, options.level, options.normals, options.length, loops=options.loops)
        )
    of = options.repeats
    for what in (
        "first column",
        "first finding",
        "first finding is it alone",
        "first finding is abnormal",
    ):
        print(f"block is the {what}: {counted[what]} of {of}")
    print(f"{'':16}block found  all extra found  false beside them  on healthy executions")
    for view in VIEWS:
        block, extra = counted["block", view], counted["all extra", view]
        false, healthy = counted["false", view] / of, counted["healthy", view] / of
        print(f"{view:16}{block:11}  {extra:15}  {false:17.2f}  {healthy:21.2f}")
    among = counted["among normals"] / of / options.normals
    print(f"loo on normal executions against the others: {among:.2f} columns each")
    print(f"statistics and findings: {1000 * counted['seconds'] / of:.1f} ms per execution")


if __name__ == "__main__":
    main()
