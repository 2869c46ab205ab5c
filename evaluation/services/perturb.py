"""What answers rest on: ``python perturb.py DIR [--trial NAME ...] [--every N] [--markdown FILE]``.

Compares a corpus (`corpus.py`) again with one thing changed: each threshold times 0.7 and 1.3, the
first half of the runs alone, the sets exchanged (what was slower is then faster: no alarm is
right), and some of the healthy executions made longer, which are the only ones to be marked.
In-sample are the recordings that thresholds were chosen on; out of it, healthy pairs numbered from
`LATER` on.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from judge import Judged, first_facts, healthy_fours, healthy_pairs, interval, read_truth, weigh

import critpath as cp
from critpath.model import INTERFERENCE, PathSet, State

LATER: Final = 10
RARE: Final = 0.1  # of a recording's executions are made longer
LONGER: Final = (0.5, 1.0, 2.0)  # times the mean
THRESHOLDS: Final = {
    "critpath.detect.machine": (
        *("_PACE", "_APART", "_DISK", "_SLEEP", "_OTHER", "_MORE", "_LEAST_RISE", "_KIND"),
        *("_LEVEL", "_NEW"),
    ),
    "critpath.cluster.outliers": ("_OWN", "_OWN_SPREAD", "_GROUP_FLOOR"),
    "critpath.localize.counts": ("LONGER", "RATIO", "SPREAD"),
    "critpath.localize.causes": ("_WEATHER", "_NEWCOMER", "_SHARED", "_MORE_OFTEN", "_BROUGHT"),
}
SETTINGS: Final = {"floor": 0.05, "alpha": 0.01, "outlier_level": 0.05}
FACTORS: Final = (0.7, 1.3)
LONG: Final = " longer"  # behind the id of an execution that was made so


@dataclass(frozen=True)
class Pair:
    """Two recordings, and what is true of them."""

    kind: str  # clear, mild, clear-seq, healthy straight...
    normal: Path
    sample: Path
    truth: dict[str, Any] | None  # None: healthy

    @property
    def name(self) -> str:
        return self.sample.parent.name

    @property
    def later(self) -> bool:
        """Recorded after the thresholds were chosen."""
        found = re.search(r"-(\d+)[ab]?$", self.name)
        return self.truth is None and found is not None and int(found[1]) >= LATER


class Corpus:
    """Recordings, each read once."""

    def __init__(self, place: Path, sets: Path, every: int, permutations: int) -> None:
        self.permutations = permutations
        faults = [
            Pair(kind, file.parent / "normal", file.parent / "sample", truth)
            for file in sorted(place.glob("[!.]*/truth.json"))
            for kind, truth in [read_truth(file)]
        ]
        healthy = [
            Pair(kind, normal, sample, None)
            for kind, normal, sample in (
                *healthy_pairs(place / "healthy"), *healthy_fours(place / "healthy", sets),
            )
        ]  # fmt: skip
        self.faults, self.healthy = faults[::every], healthy[::every]
        self._sets: dict[Path, PathSet] = {}

    def read(self, place: Path) -> PathSet:
        if place not in self._sets:
            self._sets[place] = cp.extract(place)
        return self._sets[place]


@dataclass(frozen=True)
class Answer(Judged):
    """What was answered; of a healthy sample of which some were made longer, also of these."""

    longer: int = 0
    found: int = 0  # of them
    coloured: bool = False  # a box of the flame graph is


Change = Callable[[PathSet, PathSet, int], tuple[PathSet, PathSet]]


def judge(corpus: Corpus, pair: Pair, change: Change | None = None, **settings: Any) -> Answer:
    """Compare two recordings as they are, or changed."""
    sets = corpus.read(pair.normal), corpus.read(pair.sample)
    if change is not None:
        sets = change(*sets, zlib.crc32(pair.name.encode()))
    comparison = cp.compare(*sets, permutations=corpus.permutations, **settings)
    document = comparison.to_dict()
    facts, sentence = first_facts(document)
    right, why = weigh(facts, pair.truth) if pair.truth else ("none", "")
    sample = [e for e in document["executions"] if e["set"] == "sample"]
    faulty = pair.truth and pair.truth["label"]
    others = [e for e in sample if pair.truth is None or (faulty and e["label"] != faulty)]
    longer = [e for e in others if e["id"].endswith(LONG)]
    others = [e for e in others if not e["id"].endswith(LONG)]
    return Answer(
        pair.name, pair.kind, document["verdict"], right, sentence, facts, why,
        len(others), sum(e["anomalous"] for e in others),
        len(longer), sum(e["anomalous"] for e in longer),
        any(node.change for node in comparison.analysis.flame),
    )  # fmt: skip


# What is changed.


@contextmanager
def threshold(module: str, name: str, times: float) -> Iterator[float]:
    """Change a module's constant."""
    place = importlib.import_module(module)
    usual = getattr(place, name)
    setattr(place, name, usual * times)
    try:
        yield usual
    finally:
        setattr(place, name, usual)


def half(normal: PathSet, sample: PathSet, _seed: int) -> tuple[PathSet, PathSet]:
    """Return the first half of the executions of each."""
    first, second = (each.take(np.arange(len(each) // 2)) for each in (normal, sample))
    return first, second


def exchange(normal: PathSet, sample: PathSet, _seed: int) -> tuple[PathSet, PathSet]:
    return sample, normal


def lengthen(times: float) -> Change:
    """Make one segment of a tenth of the sample's executions longer, by so many mean times."""

    def change(normal: PathSet, sample: PathSet, seed: int) -> tuple[PathSet, PathSet]:
        rng = np.random.default_rng(seed)
        rows = np.sort(rng.choice(len(sample), max(1, round(RARE * len(sample))), replace=False))
        paths, executions = sample.paths.resident(), sample.executions
        begin, end, last = paths.begin.copy(), paths.end.copy(), executions.end.copy()
        more = int(times * (normal.executions.end - normal.executions.begin).mean())
        for row in rows.tolist():
            segments = np.arange(paths.start[row], paths.start[row + 1])
            own = [s for s in segments if State(int(paths.state[s])) not in INTERFERENCE]
            at = int(rng.choice(own or segments))
            begin[at + 1 : segments[-1] + 1] += more
            end[at : segments[-1] + 1] += more
            last[row] += more
        ids = np.array(executions.id, dtype=object)
        ids[rows] += LONG
        changed = replace(executions, end=last, id=tuple(ids.tolist()))
        return normal, replace(
            sample, paths=replace(paths, begin=begin, end=end), executions=changed
        )

    return change


# Tables.


def trials(corpus: Corpus, names: list[str]) -> Iterator[str]:
    """Yield a line for each trial."""
    yield (
        "| changed | clear found, right | mild | clear, one after the other | mild "
        "| healthy alarms, alternation | otherwise | innocents marked |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    pairs = [*corpus.faults, *corpus.healthy]

    def line(what: str, change: Change | None = None, **settings: Any) -> str:
        return f"| {what} | {summarize([judge(corpus, p, change, **settings) for p in pairs])} |"

    if not names or "plain" in names:
        yield line("nothing")
    if not names or "half" in names:
        yield line("the first half of the runs", half)
    if not names or "swap" in names:
        yield line("sets exchanged", exchange)
    if not names or "thresholds" in names:
        for name, usual in SETTINGS.items():
            for times in FACTORS:
                yield line(f"`{name}` {usual} x {times}", **{name: usual * times})
        for module, constants in THRESHOLDS.items():
            for name in constants:
                for times in FACTORS:
                    with threshold(module, name, times) as usual:
                        yield line(f"`{name}` {usual:g} x {times}")


def summarize(results: list[Answer]) -> str:
    """Return the cells of a line."""
    kinds: dict[str, list[Answer]] = defaultdict(list)
    for result in results:
        kinds[result.kind].append(result)
    cells = []
    for kind in ("clear", "mild", "clear-seq", "mild-seq"):
        found = [r for r in kinds[kind] if r.verdict == "anomaly"]
        right = sum(r.right == "right" for r in found)
        cells.append(f"{len(found)} of {len(kinds[kind])}, {right}")
    healthy = [r for r in results if r.kind.startswith("healthy")]
    for together in (True, False):
        those = [r for r in healthy if ("alternation" in r.kind) == together]
        alarms = sum(r.verdict == "anomaly" for r in those)
        cells.append(f"{alarms} of {len(those)}")
    cells.append(_percent(sum(r.marked for r in healthy), sum(r.innocents for r in healthy)))
    return " | ".join(cells)


def rare(corpus: Corpus) -> Iterator[str]:
    """Yield how many healthy executions are marked, and how many of those made longer."""
    yield "| healthy pairs | marked | without those that alarm | +50 % found | +100 % | +200 % |"
    yield "|---|---|---|---|---|---|"
    kinds: dict[str, list[Pair]] = defaultdict(list)
    for pair in corpus.healthy:
        kinds[pair.kind.removeprefix("healthy ")].append(pair)
    for kind, pairs in sorted(kinds.items()):
        results = [judge(corpus, pair) for pair in pairs]
        calm = [r for r in results if r.verdict != "anomaly"]
        cells = [
            _share(sum(r.marked for r in those), sum(r.innocents for r in those))
            for those in (results, calm)
        ]
        for times in LONGER:
            found = [judge(corpus, pair, lengthen(times)) for pair in pairs]
            cells.append(_percent(sum(r.found for r in found), sum(r.longer for r in found)))
        yield f"| {kind} | {' | '.join(cells)} |"


def sides(corpus: Corpus) -> Iterator[str]:
    """Yield healthy pairs of which thresholds were chosen, and of which they were not."""
    yield "| healthy pairs | in-sample | alarms | executions marked | OK with a coloured box |"
    yield "|---|---|---|---|---|"
    for together in (True, False):
        for later in (False, True):
            those = [
                judge(corpus, p)
                for p in corpus.healthy
                if ("alternation" in p.kind) == together and p.later == later
            ]
            alarms = sum(r.verdict == "anomaly" for r in those)
            marked, of = sum(r.marked for r in those), sum(r.innocents for r in those)
            fine = [r for r in those if r.verdict == "ok"]
            yield (
                f"| {'alternation' if together else 'one after the other'} "
                f"| {'no' if later else 'yes'} | {_share(alarms, len(those))} "
                f"| {_share(marked, of)} | {_share(sum(r.coloured for r in fine), len(fine))} |"
            )


def _percent(count: int, of: int) -> str:
    return f"{100 * count / of:.1f} %" if of else "-"


def _share(count: int, of: int) -> str:
    low, high = interval(count, of)
    return f"{count} of {of} ({_percent(count, of)}, {100 * low:.1f} to {100 * high:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("corpus", type=Path)
    parser.add_argument(
        "--trial",
        action="append",
        default=[],
        choices=("rare", "sides", "plain", "half", "swap", "thresholds"),
    )
    parser.add_argument("--every", type=int, default=1, help="one pair of so many")
    parser.add_argument("--permutations", type=int, default=9_999)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as sets:
        corpus = Corpus(given.corpus, Path(sets), given.every, given.permutations)
        if not given.trial or "rare" in given.trial:
            show(rare(corpus))
        if not given.trial or "sides" in given.trial:
            show(sides(corpus))
        changes = [each for each in given.trial if each not in {"rare", "sides"}]
        if changes or not given.trial:
            show(trials(corpus, changes))


def show(lines: Iterator[str]) -> None:
    for line in lines:
        print(line, flush=True)
    print(flush=True)


if __name__ == "__main__":
    main()
