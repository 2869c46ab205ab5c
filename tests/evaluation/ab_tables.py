"""What critpath ab decides, simulated and live: ``make ab-tables`` writes docs/evaluation-ab.md.

``ab_tables.py simulate`` and ``ab_tables.py live`` keep what they find below ``--state``, every
document with its raw times; ``ab_tables.py table`` writes the page from that without measuring.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from critpath.ab.evidence import Evidence
from critpath.record.slots import block_order

ROOT: Final = Path(__file__).resolve().parent.parent.parent
PAGE: Final = ROOT / "docs" / "evaluation-ab.md"
REPEATS: Final = 2000
BLOCKS: Final = 200
EFFECTS: Final = (0.0, 0.02, 0.025, 0.05, 0.1, 0.3)
RARE: Final = (0.05, 0.25)
LOOPS: Final = 6_000_000
LIVE: Final = {
    "A/A": (1.0, ()),
    "+2 %": (1.02, ()),
    "+5 %": (1.05, ()),
    "+10 %": (1.1, ()),
    "25 % with +30 ms": (1.0, ("25", "30")),
}


def noise(rng: np.random.Generator, runs: int, executions: int) -> np.ndarray[Any, Any]:
    """Log times of a busy machine: slow drift, steps, neighbours, own noise, rare spikes."""
    slow = np.empty((runs, executions))
    level = rng.normal(0, 0.06, runs)
    step = rng.normal(0, 0.08, runs)
    busy = rng.random(runs) < 0.4
    share = rng.uniform(0.1, 0.5, runs)
    for i in range(executions):
        level = 0.97 * level + math.sqrt(1 - 0.97**2) * rng.normal(0, 0.06, runs)
        step = np.where(rng.random(runs) < 1 / 150, rng.normal(0, 0.08, runs), step)
        busy = np.where(busy, rng.random(runs) > 1 / 40, rng.random(runs) < 1 / 60)
        wait = share * rng.exponential(1.0, runs) * busy
        slow[:, i] = level + step + np.log1p(wait)
    drift = rng.uniform(-0.1, 0.1, (runs, 1)) * np.linspace(0, 1, executions)
    spike = (rng.random((runs, executions)) < 0.01) * (0.3 + rng.pareto(2.0, (runs, executions)))
    own = rng.normal(0, 0.03, (runs, executions))
    return slow + drift + own + np.log1p(np.minimum(spike, 20.0))


def simulate(seed: int, factor: float, rare: float, repeats: int) -> dict[str, Any]:
    """Run blocks until each repeat has its verdict."""
    rng = np.random.default_rng(seed)
    logs = noise(rng, repeats, 4 * BLOCKS).reshape(repeats, BLOCKS, 4)
    found = Evidence(0.05, runs=repeats)
    verdict, blocks = np.zeros(repeats, int), np.full(repeats, BLOCKS)
    for block in range(BLOCKS):
        drawn = [block_order(seed + run, block) == "ABBA" for run in range(repeats)]
        abba = np.array(drawn)[:, None]
        outer, inner = logs[:, block][:, [0, 3]], logs[:, block][:, 1:3]
        a = 10 * np.exp(np.where(abba, outer, inner))
        b = 10 * factor * np.exp(np.where(abba, inner, outer))
        b = b + 30 * (rng.random(b.shape) < rare)
        found.add(a[:, :, None], b[:, :, None])
        fails, passes = found.fails(100), found.passes(100)
        new = (verdict == 0) & (fails | passes)
        verdict[new] = np.where(fails, 1, 2)[new]
        blocks[new] = block + 1
        if verdict.all():
            break
    return {
        "factor": factor,
        "rare": rare,
        "repeats": repeats,
        "fail": int((verdict == 1).sum()),
        "pass": int((verdict == 2).sum()),
        "median": float(np.median(blocks)),
        "mean": float(blocks.mean()),
        "p90": float(np.quantile(blocks, 0.9)),
    }


def compile_work(state: Path) -> Path:
    """Compile the program that live runs execute."""
    program = state / "ab_work"
    source = Path(__file__).with_name("ab_work.c")
    compiler = shutil.which("cc") or "cc"
    subprocess.run([compiler, "-O1", "-o", program, source], check=True)
    return program


def live(state: Path, seconds: float, load: str) -> None:
    """Run the real command, row after row, until the time is over."""
    program = compile_work(state)
    until = time.monotonic() + seconds
    place = state / "live"
    place.mkdir(exist_ok=True)
    number = len(list(place.glob("*.json")))
    while time.monotonic() < until:
        name = list(LIVE)[number % len(LIVE)]
        factor, more = LIVE[name]
        of = ("time", "run")[number // len(LIVE) % 2]
        target = place / f"{number:05}.json"
        a = [str(program), str(LOOPS)]
        b = [str(program), str(round(LOOPS * factor)), *more]
        options = ["--trace", "none", "--quiet", "--of", of, "--seed", str(number)]
        command = [sys.executable, "-m", "critpath", "ab", *options, "--json", str(target)]
        done = subprocess.run(
            [*command, "--", *a, "--", *b], capture_output=True, text=True, check=False
        )
        if done.returncode not in {0, 1, 3}:
            raise SystemExit(done.stderr)
        document = json.loads(target.read_text())
        document["row"], document["load"] = name, load
        target.write_text(json.dumps(document))
        number += 1


def simulated_rows(state: Path) -> Iterator[str]:
    """Yield the simulated table."""
    yield "| B | slower / not slower / undecided, % | blocks: median, mean, p90 |"
    yield "|---|---|---|"
    for line in (state / "simulated.jsonl").read_text().splitlines():
        row = json.loads(line)
        n = row["repeats"]
        shares = [100 * x / n for x in (row["fail"], row["pass"], n - row["fail"] - row["pass"])]
        what = f"{100 * row['rare']:.0f} % with +30 ms" if row["rare"] else ""
        what = what or f"{100 * (row['factor'] - 1):+.1f} %"
        yield (
            f"| {what} | {' / '.join(f'{s:.2f}' for s in shares)} | "
            f"{row['median']:.0f}, {row['mean']:.0f}, {row['p90']:.0f} |"
        )


def live_rows(state: Path) -> Iterator[str]:
    """Yield the table of live runs."""
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for file in sorted((state / "live").glob("*.json")):
        document = json.loads(file.read_text())
        if "row" in document:
            key = document["load"], document["of"], document["row"]
            found.setdefault(key, []).append(document)
    yield "| machine | decides | B | runs | slower | not slower | undecided | median blocks |"
    yield "|---|---|---|---:|---:|---:|---:|---:|"
    names = list(LIVE)
    for (load, of, row), runs in sorted(
        found.items(), key=lambda item: (item[0][0], item[0][1], names.index(item[0][2]))
    ):
        exits = [run["exit"] for run in runs]
        blocks = statistics.median(run["blocks"] for run in runs)
        counts = " | ".join(str(exits.count(code)) for code in (1, 0, 3))
        yield f"| {load} | {of} | {row} | {len(runs)} | {counts} | {blocks:.0f} |"


def write_page(state: Path) -> None:
    """Write the tables between the markers of the page."""
    text = PAGE.read_text(encoding="utf-8")
    for name, rows in (("simulated", simulated_rows(state)), ("live", live_rows(state))):
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, rest = text.split(begin)
        text = before + begin + "\n".join(rows) + "\n" + end + rest.split(end)[1]
    PAGE.write_text(text, encoding="utf-8")


def main() -> None:
    """Simulate, run live, or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("simulate", "live", "table"))
    parser.add_argument("--state", type=Path, default=ROOT / "critpath-evaluation" / "ab")
    parser.add_argument("--seconds", type=float, default=600.0, help="of live runs")
    parser.add_argument("--load", default="as it was", help="what else the machine does")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    given = parser.parse_args()
    given.state.mkdir(parents=True, exist_ok=True)
    if given.what == "simulate":
        cases = [(1 + effect, 0.0) for effect in EFFECTS] + [(1.0, share) for share in RARE]
        lines = []
        for number, (factor, rare) in enumerate(cases):
            lines.append(json.dumps(simulate(1000 + 10_000 * number, factor, rare, given.repeats)))
            (given.state / "simulated.jsonl").write_text("\n".join(lines) + "\n")
    elif given.what == "live":
        live(given.state, given.seconds, given.load)
    else:
        write_page(given.state)


if __name__ == "__main__":
    main()
