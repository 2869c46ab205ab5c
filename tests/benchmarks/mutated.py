"""How well mutated copies of one path are aligned: SP and TC beside MUSCLE and MAFFT.

Run as ``python tests/benchmarks/mutated.py [--replicates N] [--no-peers] [--speed]``.  The second
kind of families (see `simulated`): every row is changed from one template, so that no
tree joins the rows; this is what executions of one program look like.  MUSCLE 3, MUSCLE
5 and MAFFT are run on the same families where `muscle3`, `muscle` and `mafft` are on the
path, MAFFT as plain text.
Parameters were tuned on other seeds.  ``--speed`` takes the time of 30 paths of about
300 states and of 50 of about 1,000 instead, the aligners taking turns.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
from msa import score
from simulated import LETTERS, Family, draw, draw_all

from critpath.align.consistency import align_consistent
from critpath.align.multiple import align
from critpath.align.profiles import f81_model

AMINO = "ACDFGHKLNPWY"  # what MUSCLE takes our twelve letters for
SIZES = [(8, 100), (20, 150), (30, 300)]
FIRST_SEED = 1_000
Rows = list[list[int]]


def by_programme(command: list[str], *, to_file: bool = True) -> Callable[[Family], Rows]:
    """Return a function that aligns a family by a programme; ``IN`` and ``OUT`` are filled in."""

    def run(family: Family) -> Rows:
        with tempfile.TemporaryDirectory() as directory:
            names = {"IN": f"{directory}/in", "OUT": f"{directory}/out"}
            rows_as_text = ["".join(AMINO[x] for x in row) for row in family.sequences]
            text = "".join(f">{i}\n{row}\n" for i, row in enumerate(rows_as_text))
            Path(names["IN"]).write_text(text, encoding="ascii")
            done = subprocess.run(
                [names.get(word, word) for word in command],
                check=True,
                capture_output=True,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            answer = Path(names["OUT"]).read_text(encoding="ascii") if to_file else done.stdout
        rows: Rows = [[] for _ in family.sequences]
        for block in answer.split(">")[1:]:
            name, _, row = block.partition("\n")
            letters = row.replace("\n", "")
            rows[int(name)] = [c for c, letter in enumerate(letters) if letter != "-"]
        return rows

    return run


def by_le(family: Family) -> Rows:
    durations = [np.zeros(len(s), np.int64) for s in family.sequences]
    aligned = align(family.sequences, durations, LETTERS)
    return [list(np.flatnonzero(row >= 0)) for row in aligned.rows]


def by_consistency(family: Family) -> Rows:
    keys = sorted({s.tobytes() for s in family.sequences}, key=lambda key: (len(key), key))
    distinct = [np.frombuffer(key, np.uint8) for key in keys]
    letters = np.bincount(np.concatenate(distinct), minlength=LETTERS).astype(np.int64)
    codes, _, _ = align_consistent(distinct, f81_model(letters))
    place = {key: i for i, key in enumerate(keys)}
    return [list(np.flatnonzero(codes[place[s.tobytes()]] >= 0)) for s in family.sequences]


def aligners(*, peers: bool) -> dict[str, Callable[[Family], Rows]]:
    """Return what there is to compare, by name."""
    result = {"critpath LE": by_le, "critpath consistency": by_consistency}
    muscle3 = shutil.which("muscle3")
    mafft = ["mafft", "--text", "--quiet", "--thread", "1", "--maxiterate", "1000"]
    found = {
        "muscle 3": muscle3 and by_programme([muscle3, "-in", "IN", "-out", "OUT", "-quiet"]),
        "muscle 5": shutil.which("muscle")
        and by_programme(["muscle", "-align", "IN", "-output", "OUT", "-threads", "1"]),
        "mafft FFT-NS-i": shutil.which("mafft") and by_programme([*mafft, "IN"], to_file=False),
        "mafft G-INS-i": shutil.which("mafft")
        and by_programme([*mafft, "--globalpair", "IN"], to_file=False),
    }
    if peers:
        for name, run in found.items():
            if run:
                result[name] = run
            else:
                sys.stdout.write(f"{name}: not installed, left out\n")
    return result


def take_times(runs: dict[str, Callable[[Family], Rows]]) -> None:
    """Write seconds, and how often MUSCLE 3's, of each aligner; the least of three."""
    for history, kind in (("tree", "flat"), ("tree", "loop"), ("star", "loop")):
        for rows, length in ((30, 300), (50, 1000)):
            family = draw(history, kind, "mid", rows, length, FIRST_SEED)
            least: dict[str, float] = {}
            for _ in range(3):
                for name, run in runs.items():
                    # What took long once is not asked again; MUSCLE 5 takes minutes.
                    if least.get(name, 0) > 5 or (name == "muscle 5" and length > 300):
                        continue
                    begin = time.perf_counter()
                    run(family)
                    least[name] = min(least.get(name, np.inf), time.perf_counter() - begin)
            sys.stdout.write(f"{rows} x {length}, {history}, {kind}:\n")
            for name, seconds in least.items():
                ratio = f"{seconds / least['muscle 3']:8.2f}" if "muscle 3" in least else ""
                sys.stdout.write(f"  {name:21}{seconds:8.3f} s{ratio}\n")
            sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=2)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--speed", action="store_true")
    options = parser.parse_args()
    if options.speed:
        take_times(aligners(peers=not options.no_peers))
        return 0
    families = draw_all("star", FIRST_SEED, options.replicates, SIZES)
    groups = [f"{kind} {level}" for kind in ("flat", "loop") for level in ("low", "mid", "high")]
    heads = "".join(f"{group:>13}" for group in [*groups, "all"])
    sys.stdout.write(f"{len(families)} families, SP/TC\n{'':21}{heads}{'s':>8}\n")
    for name, run in aligners(peers=not options.no_peers).items():
        table: defaultdict[str, list[tuple[float, float, float]]] = defaultdict(list)
        for family in families:
            begin = time.perf_counter()
            rows = run(family)
            seconds = time.perf_counter() - begin
            _, _, level, kind, _ = family.name.split("_")
            measured = (*score(family.columns, rows), seconds)
            table[f"{kind} {level}"].append(measured)
            table["all"].append(measured)
        means = {group: np.mean(table[group], axis=0) for group in [*groups, "all"]}
        cells = "".join(f"{m[0]:7.3f}/{m[1]:5.3f}" for m in means.values())
        sys.stdout.write(f"{name:21}{cells}{means['all'][2]:8.3f}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
