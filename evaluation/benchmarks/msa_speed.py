"""How fast the aligner is beside MUSCLE 3, MUSCLE 5 and MAFFT, and what long paths take.

Run as ``python evaluation/benchmarks/msa_speed.py [--tiny]``.  30 paths of 300 states and 50 of
1000 are aligned by critpath and by peers in turns; a ratio is the median over the rounds.  Seconds
are elapsed: of a peer its process from start to end, of critpath the call, without the
start of Python.  CPU seconds stand beside, as peers may use several cores.  Then 20 paths
of 50,000 segments are aligned in a process of its own, whose largest memory is reported
(all of it: Python, numpy and the paths themselves are some 60 MiB).

The paths are simulated: an ancestor is a program of straight stretches and loops; each path
redraws some of its states, drops or adds stretches, and runs its loops more or less often.
Which segments belong together is known, so that what was fast is also seen to be as right as
the others (SP, see msa.py).  Which iteration of a loop a path left out nobody can know: SP stays
well below 1.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import peers
from measuring import LeftOut, Row, add_rows, table, take_rows
from msa import Score, columns_in, score_whole

from critpath.align.multiple import align
from critpath.errors import CritpathError
from critpath.model import Alignment
from critpath.text.notes import word_all

U8 = npt.NDArray[np.uint8]
LETTERS: Final = 12
MIB: Final = 1 << 20
MEMORY: Final = 2048 * MIB
# More than this and the machine suffers: the process is refused it and says so.
ADDRESS_SPACE: Final = 12_288 * MIB

METHODS: Final[dict[str, Callable[..., Alignment]]] = {
    "critpath": align,
    "critpath, muscle": partial(align, method="muscle"),
}


class Paths(NamedTuple):
    """Sequences, and for every segment the number of what it descends from."""

    sequences: list[U8]
    origins: list[list[int]]


class Ratio(NamedTuple):
    """A target: one method's seconds over a peer's, at most so much."""

    peer: str
    most: float


class Case(NamedTuple):
    """So many paths, measured in so many rounds beside peers."""

    paths: int
    length: int
    rounds: int
    beside: tuple[str, ...]
    ratios: tuple[Ratio, ...]


TINY: Final = Case(5, 60, 1, ("muscle3",), ())
CASES: Final = (
    Case(30, 300, 7, ("muscle3", "muscle5"), (Ratio("muscle3", 1.0), Ratio("muscle5", 0.1))),
    Case(50, 1000, 3, ("muscle3", "mafft-text-ginsi"), (Ratio("mafft-text-ginsi", 1.0),)),
)


def draw(
    seed: int, paths: int, length: int, *, substitutions: float = 0.1, indels: float = 0.015
) -> Paths:
    """Simulate paths of about `length` segments; half of the ancestor is loops.

    Parameters
    ----------
    seed, paths, length : int
    substitutions : float
        Share of segments whose state is drawn anew.
    indels : float
        Stretches dropped or added, per segment; they have 1 / 0.4 segments on average.
        Every loop runs once more or less often with a chance of 0.4.
    """
    rng = np.random.default_rng(seed)
    background = rng.dirichlet(np.full(LETTERS, 2.0))
    number = count()

    def stretch(size: int) -> list[tuple[int, int]]:
        states: list[int] = []
        while len(states) < size:
            state = int(rng.choice(LETTERS, p=background))
            if not states or states[-1] != state:
                states.append(state)
        return [(state, next(number)) for state in states]

    # Blocks of the ancestor: the iterations of each, one for a straight stretch.
    blocks: list[list[list[tuple[int, int]]]] = []
    drawn = 0
    while drawn < length:
        if rng.random() < 0.5:
            blocks.append([stretch(int(rng.integers(4, 17)))])
        else:
            unit = [state for state, _ in stretch(int(rng.integers(2, 7)))]
            most = min(2 + int(rng.geometric(0.2)), 25)
            blocks.append([[(state, next(number)) for state in unit] for _ in range(most)])
        drawn += sum(map(len, blocks[-1]))
    sequences, origins = [], []
    for _ in range(paths):
        path: list[tuple[int, int]] = []
        for block in blocks:
            here = block
            if len(block) > 1 and rng.random() < 0.4:
                if rng.random() < 0.5:
                    here = block[:-1]
                else:
                    here = [*block, [(state, next(number)) for state, _ in block[-1]]]
            path += [segment for iteration in here for segment in iteration]
        kept: list[tuple[int, int]] = []
        place = 0
        while place < len(path):
            chance = rng.random()
            if chance < indels / 2:
                place += int(rng.geometric(0.4))
                continue
            if chance < indels:
                kept += stretch(int(rng.geometric(0.4)))
            state, origin = path[place]
            if rng.random() < substitutions:
                state = int(rng.choice(LETTERS, p=background))
            kept.append((state, origin))
            place += 1
        sequences.append(np.array([state for state, _ in kept], np.uint8))
        origins.append([origin for _, origin in kept])
    return Paths(sequences, origins)


def nothing_took_time(sequences: list[U8]) -> list[Any]:
    """Return durations for sequences: the aligner carries them along."""
    return [np.ones(len(s), np.int64) for s in sequences]


def checked(alignment: Alignment, paths: Paths) -> Score:
    """Return how right an alignment is; its rows must be the paths."""
    for row, sequence in zip(alignment.symbols, paths.sequences, strict=True):
        if not np.array_equal(row[row >= 0], sequence):
            raise AssertionError("a row is not the path that it was made from")
    return score_whole(paths.origins, columns_in(alignment.rows))


def cpu(of: int) -> float:
    used = resource.getrusage(of)
    return used.ru_utime + used.ru_stime


def compare(method: str, case: Case, rounds: int) -> tuple[list[str], list[Row | LeftOut]]:
    """Measure one case; return its lines, and ratios beside what is wanted."""
    paths, length = case.paths, case.length
    names = [peer for peer in case.beside if not peers.why_not(peer)]
    lines = [f"\n{paths} paths of {length} states, {rounds} rounds\n"]
    lines += [
        f"{peer}: left out, {peers.why_not(peer)}" for peer in case.beside if peer not in names
    ]
    lines += ["| | s | range | CPU s | SP | ours / it |", "|---|---:|---:|---:|---:|---:|"]
    seconds: dict[str, list[float]] = {name: [] for name in (method, *names)}
    used: dict[str, list[float]] = {name: [] for name in seconds}
    right: dict[str, list[float]] = {name: [] for name in seconds}
    for number in range(rounds):
        drawn = draw(number, paths, length)
        durations = nothing_took_time(drawn.sequences)
        begin, before = time.perf_counter(), cpu(resource.RUSAGE_SELF)
        aligned = METHODS[method](drawn.sequences, durations, LETTERS)
        seconds[method].append(time.perf_counter() - begin)
        used[method].append(cpu(resource.RUSAGE_SELF) - before)
        right[method].append(checked(aligned, drawn).sp)
        for peer in list(names):
            before = cpu(resource.RUSAGE_CHILDREN)
            try:
                rows, elapsed = peers.run(peer, drawn.sequences)
            except peers.PeerError as error:
                lines.insert(1, f"{peer}: left out, {error}")
                names.remove(peer)
                continue
            seconds[peer].append(elapsed)
            used[peer].append(cpu(resource.RUSAGE_CHILDREN) - before)
            right[peer].append(score_whole(drawn.origins, columns_in(rows)).sp)
    ratio = {}
    for name in (method, *names):
        pairs = zip(seconds[method], seconds[name], strict=True)
        ratio[name] = statistics.median(ours / theirs for ours, theirs in pairs)
        lines.append(
            f"| {name} | {statistics.median(seconds[name]):.3f} |"
            f" {min(seconds[name]):.3f}-{max(seconds[name]):.3f} |"
            f" {statistics.median(used[name]):.3f} | {statistics.mean(right[name]):.3f} |"
            f" {ratio[name]:.3f} |"
        )
    found: list[Row | LeftOut] = []
    for peer, most in case.ratios:
        what = f"aligning {paths} paths of {length:,} states: times {peer}'s time"
        if peer in names:
            each = tuple(a / b for a, b in zip(seconds[method], seconds[peer], strict=True))
            bound = f"{statistics.median(seconds[method]):.2f} s"
            found.append(Row(f"{peer}_{paths}", what, each, most, at_least=False, bound=bound))
        else:
            found.append(LeftOut(what, peers.why_not(peer) or "it failed"))
    return lines, found


def long_paths(method: str, paths: int, length: int) -> dict[str, Any]:
    """Align long paths in this process; return what it took."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    drawn = draw(1, paths, length, substitutions=0.02, indels=0.004)
    durations = nothing_took_time(drawn.sequences)
    begin = time.perf_counter()
    try:
        aligned = METHODS[method](drawn.sequences, durations, LETTERS)
    except CritpathError as error:
        return {"refused": error.what}
    except MemoryError:
        return {"refused": f"no memory within {ADDRESS_SPACE // MIB} MiB of address space"}
    seconds = time.perf_counter() - begin
    # Before the score is computed, which is not the aligner's.
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found = checked(aligned, drawn)
    return {
        "seconds": seconds,
        "memory": memory,
        "columns": aligned.rows.shape[1],
        "segments": max(map(len, drawn.sequences)),
        "sp": found.sp,
        "ppv": found.ppv,
        "notes": word_all(aligned.notes),
    }


def measure_long(method: str, paths: int, length: int, timeout: float) -> dict[str, Any]:
    """Run `long_paths` in a process of its own."""
    command = [sys.executable, __file__, "--method", method, "--long-only", f"{paths}x{length}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return {"refused": f"not done after {timeout:.0f} s"}
    if done.returncode:
        return {"refused": f"it ended with {done.returncode}: {done.stderr.strip()[-300:]}"}
    return dict(json.loads(done.stdout))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", choices=tuple(METHODS), default=next(iter(METHODS)))
    parser.add_argument("--rounds", type=int, help="of each case (7 and 3)")
    parser.add_argument("--long", default="20x50000", metavar="PATHSxSTATES", help="or none")
    parser.add_argument("--timeout", type=float, default=1800, help="of the long paths, in s")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--tiny", action="store_true", help="one case of 5 paths")
    take_rows(parser)
    parser.add_argument("--long-only", metavar="PATHSxSTATES", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.long_only:
        paths, length = map(int, options.long_only.split("x"))
        print(json.dumps(long_paths(options.method, paths, length)))
        return 0
    rows: list[Row | LeftOut] = []
    for case in (TINY,) if options.tiny else CASES:
        lines, found = compare(options.method, case, options.rounds or case.rounds)
        print("\n".join(lines), flush=True)
        rows += found
    if options.long != "none" and not options.tiny:
        paths, length = map(int, options.long.split("x"))
        long = measure_long(options.method, paths, length, options.timeout)
        what = f"aligning {paths} paths of {length:,} segments: peak, MiB"
        if "refused" in long:
            rows.append(LeftOut(what, long["refused"]))
        else:
            seconds = (
                f"{long['seconds']:.1f} s, {long['columns']:,} columns (longest path"
                f" {long['segments']:,}), SP {long['sp']:.3f}, PPV {long['ppv']:.3f}"
            )
            print("\n".join(f"note: {note}" for note in long["notes"]))
            peak = (long["memory"] / MIB,)
            rows.append(Row("long", what, peak, MEMORY / MIB, at_least=False, bound=seconds))
    print(f"\n{table(rows, {})}")
    add_rows(options.rows, rows)
    return int(options.check and any(isinstance(row, LeftOut) or row.missed for row in rows))


if __name__ == "__main__":
    sys.exit(main())
