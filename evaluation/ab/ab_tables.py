"""What critpath ab decides, simulated and live: ``make ab-tables``.

``ab_tables.py simulate`` and ``ab_tables.py live`` keep what they find below ``--state``, every
document with its raw times; ``ab_tables.py table`` makes evaluation/results/ab.json of that,
without measuring.
"""

from __future__ import annotations

import argparse
import hashlib
import http.server
import json
import math
import multiprocessing
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy import stats

from critpath.ab.run import block_order
from critpath.stats.evidence import BlockEvidence, BoundProcess, TailProcess, settle
from critpath_record.signals import InheritedState
from critpath_record.slots import SlotRunner

sys.path.append(str(Path(__file__).resolve().parents[1]))

from results import describe_machine, parse_rows, publish_rows

ROOT: Final = Path(__file__).resolve().parent.parent.parent

REPEATS: Final = 2000
BLOCKS: Final = 200
EFFECTS: Final = (0.0, 0.02, 0.025, 0.05, 0.1, 0.3)
RARE: Final = (0.05, 0.25)
# Rows of live runs: by how much more work B has, and in how many per cent it sleeps how many ms.
LIVE: Final = {
    "A/A": (1.0, ()),
    "+2 %": (1.02, ()),
    "+5 %": (1.05, ()),
    "+10 %": (1.1, ()),
    "25 % with +30 ms": (1.0, ("25", "30")),
}
# How much work each program has; of `gzip` bytes, of `web` the server.
WORK: Final = {"cpu": 6_000_000, "gzip": 400_000, "fsync": 16_384, "pipes": 200, "web": 300_000}
SCALES: Final = frozenset({"cpu", "gzip", "pipes"})  # whose time is that of their work
SERVER_ALONE: Final = "web"  # whose time on a cpu is mostly not its own


def noise(rng: np.random.Generator, runs: int, executions: int) -> np.ndarray[Any, Any]:
    """Log times of a busy machine: slow drift, steps, neighbours, own noise, rare spikes."""
    running, waiting = noise_apart(rng, runs, executions)
    return running + waiting


def noise_apart(
    rng: np.random.Generator, runs: int, executions: int, neighbours: float = 1.0
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the log of time on a cpu, and what waiting adds; `neighbours`: how many times more."""
    slow, waits = np.empty((runs, executions)), np.empty((runs, executions))
    level = rng.normal(0, 0.06, runs)
    step = rng.normal(0, 0.08, runs)
    busy = rng.random(runs) < 0.4
    share = rng.uniform(0.1, 0.5, runs)
    for i in range(executions):
        level = 0.97 * level + math.sqrt(1 - 0.97**2) * rng.normal(0, 0.06, runs)
        step = np.where(rng.random(runs) < 1 / 150, rng.normal(0, 0.08, runs), step)
        busy = np.where(busy, rng.random(runs) > 1 / 40, rng.random(runs) < 1 / 60)
        waits[:, i] = np.log1p(neighbours * share * rng.exponential(1.0, runs) * busy)
        slow[:, i] = level + step
    drift = rng.uniform(-0.1, 0.1, (runs, 1)) * np.linspace(0, 1, executions)
    spike = (rng.random((runs, executions)) < 0.01) * (0.3 + rng.pareto(2.0, (runs, executions)))
    own = rng.normal(0, 0.03, (runs, executions))
    return slow + drift + own, waits + np.log1p(np.minimum(spike, 20.0))


def simulate_computing(seed: int, factor: float, neighbours: float, repeats: int) -> dict[str, Any]:
    """Decide by time, and by time and time on a cpu together, of programs that compute.

    Both kinds of time are B's by the same factor, so at a border each may be wrong.
    """
    rng = np.random.default_rng(seed)
    running, waiting = noise_apart(rng, repeats, 4 * BLOCKS, neighbours)
    logs = [part.reshape(repeats, BLOCKS, 4, 1) for part in (running + waiting, running)]
    series = [BlockEvidence(0.05, runs=repeats) for _ in logs]
    verdicts = np.zeros((2, repeats), int)  # by time alone, by either
    blocks = np.full((2, repeats), BLOCKS)
    for block in range(BLOCKS):
        drawn = [block_order(seed + run, block) == "ABBA" for run in range(repeats)]
        abba = np.array(drawn)[:, None, None]
        for one, log in zip(series, logs, strict=True):
            times = 10 * np.exp(log[:, block])
            outer, inner = times[:, [0, 3]], times[:, 1:3]
            one.add(np.where(abba, outer, inner), factor * np.where(abba, inner, outer))
        for row, asked in enumerate((series[:1], series)):
            fails, passes = (x.any(axis=0) for x in settle(asked, 0.01, either=True))
            new = (verdicts[row] == 0) & (fails | passes)
            verdicts[row, new] = np.where(fails, 1, 2)[new]
            blocks[row, new] = block + 1
        if verdicts.all():
            break
    return {
        "factor": factor,
        "neighbours": neighbours,
        "repeats": repeats,
        **{
            name: {
                "fail": int((verdict == 1).sum()),
                "pass": int((verdict == 2).sum()),
                "repeats": repeats,
                "median": float(np.median(taken)),
                "p90": float(np.quantile(taken, 0.9)),
            }
            for name, verdict, taken in zip(("time", "either"), verdicts, blocks, strict=True)
        },
    }


def computing_rows(state: Path) -> Iterator[str]:
    """Yield what is decided of programs that compute, by time alone and by either."""
    yield "| neighbours | B | by time alone | by time or time on a cpu |"
    yield "|---|---|---|---|"
    for row in kept(state, "computing.jsonl"):
        cells = " | ".join(verdicts(row[name]) for name in ("time", "either"))
        many = f"{row['neighbours']:g} times as many" if row["neighbours"] > 1 else "as above"
        yield f"| {many} | {100 * (row['factor'] - 1):+.1f} % | {cells} |"


def simulate(seed: int, factor: float, rare: float, repeats: int) -> dict[str, Any]:
    """Run blocks on the simulated machine until each repeat has its verdict."""
    rng = np.random.default_rng(seed)
    times = 10 * np.exp(noise(rng, repeats, 4 * BLOCKS)).reshape(repeats, BLOCKS, 4, 1)
    return decide(rng, seed, times, factor, rare)


def decide(
    rng: np.random.Generator, seed: int, times: np.ndarray[Any, Any], factor: float, rare: float
) -> dict[str, Any]:
    """Draw which slots are B's, block by block, until each repeat has its verdict.

    ``times`` is [repeats, blocks, slots, executions of a slot] in milliseconds.
    """
    repeats = len(times)
    found = BlockEvidence(0.05, runs=repeats)
    verdict, blocks = np.zeros(repeats, int), np.full(repeats, BLOCKS)
    for block in range(BLOCKS):
        drawn = [block_order(seed + run, block) == "ABBA" for run in range(repeats)]
        abba = np.array(drawn)[:, None, None]
        outer, inner = times[:, block][:, [0, 3]], times[:, block][:, 1:3]
        a, b = np.where(abba, outer, inner), factor * np.where(abba, inner, outer)
        found.add(a, b + 30 * (rng.random(b.shape) < rare))
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


def relabel(state: Path, repeats: int) -> Iterator[dict[str, Any]]:
    """Draw anew which slots of the kept A/A runs are B's, from random starts, and slow B down.

    The windows overlap: rates are of these few series, not of as many machines.
    """
    rng = np.random.default_rng(4)
    every = [d for d in live_documents(state) if d["row"] == "A/A"]
    for program in WORK:
        runs = [d for d in every if d.get("program", "cpu") == program]
        for of in ("time", "run") if program != SERVER_ALONE else ("time",):
            slots = [
                slot
                for d in runs
                for block in d["block_log"]
                for slot in block["times" if of == "time" else "run"]
                if not any(block["failed"])
            ]
            sizes = [len(slot) for slot in slots]
            size = max(set(sizes), key=sizes.count)
            series = np.array([slot for slot in slots if len(slot) == size]) / 1e6
            starts = rng.integers(len(series) // 4, size=repeats)[:, None]
            rows = 4 * ((starts + np.arange(BLOCKS)) % (len(series) // 4))[:, :, None]
            times = np.maximum(series[rows + np.arange(4)], 1e-6)
            for name, (factor, more) in LIVE.items():
                if more and of == "run":
                    continue  # waiting takes no time on a cpu
                rare = float(more[0]) / 100 if more else 0.0
                found = decide(rng, int(rng.integers(1 << 30)), times, factor, rare)
                yield found | {"program": program, "of": of, "row": name, "slots": len(series)}


def relabelled_rows(state: Path) -> Iterator[str]:
    """Yield what would have been decided of kept runs, had the coin fallen otherwise."""
    found = kept(state, "relabelled.jsonl")
    yield "| program | decides | blocks kept | " + " | ".join(LIVE) + " |"
    yield "|---|---|---:|" + "---|" * len(LIVE)
    for program in WORK:
        for of in ("run", "time"):
            rows = [r for r in found if (r["program"], r["of"]) == (program, of)]
            cells = []
            for name in LIVE if rows else ():
                one = next((r for r in rows if r["row"] == name), None)
                cells.append("-" if one is None else verdicts(one))
            if rows:
                head = f"| {program} | {of} | {rows[0]['slots'] // 4:,} |"
                yield f"{head} {' | '.join(cells)} |"


def verdicts(row: dict[str, Any]) -> str:
    """Return the shares of slower, not slower, undecided, and the blocks that it took."""
    n = row["repeats"]
    shares = [100 * x / n for x in (row["fail"], row["pass"], n - row["fail"] - row["pass"])]
    return f"{' / '.join(f'{s:.1f}' for s in shares)}, {row['median']:.0f} ({row['p90']:.0f})"


def in_order(logs: np.ndarray[Any, Any], order: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return d of every block of every repeat, where `order` says which are ABBA."""
    slots = logs.reshape(len(logs), -1, 4)
    ends, middle = slots[:, :, [0, 3]].mean(axis=2), slots[:, :, 1:3].mean(axis=2)
    return np.where(order, middle - ends, ends - middle)


def simulate_designs(seed: int, repeats: int) -> list[dict[str, Any]]:
    """Count false alarms of healthy programs at 1 %, two-sided, by design."""
    rng = np.random.default_rng(seed)
    logs = noise(rng, repeats, 4 * BLOCKS)
    found = []

    def add(name: str, alarms: Any) -> None:
        found.append({"design": name, "alarms": float(np.mean(alarms))})

    for n in (24, 300):
        p = stats.ttest_ind(logs[:, :n], logs[:, n : 2 * n], axis=1, equal_var=False).pvalue
        add(f"{n} then {n}, at once, Welch", p <= 0.01)
    p = stats.ttest_ind(logs[:, 0:48:2], logs[:, 1:48:2], axis=1, equal_var=False).pvalue
    add("ABAB, 24 each, Welch unpaired", p <= 0.01)
    turns = logs[:, :48] + 0.05 * np.tile([1.0, -1.0], 24)
    p = stats.ttest_rel(turns[:, ::2], turns[:, 1::2], axis=1).pvalue
    add("ABAB, what comes back every 2 executions, paired t", p <= 0.01)
    order = rng.random((repeats, BLOCKS)) < 0.5
    d = in_order(logs, order)
    four = logs + 0.05 * np.tile([1.0, -1.0, -1.0, 1.0], BLOCKS)
    for name, chosen in (("always ABBA", np.ones_like(order)), ("random blocks", order)):
        p = stats.ttest_1samp(in_order(four, chosen)[:, :48], 0, axis=1).pvalue
        add(f"{name}, what comes back every 4 executions, 48 blocks, t", p <= 0.01)
    looks = [stats.ttest_1samp(d[:, :n], 0, axis=1).pvalue <= 0.01 for n in range(6, BLOCKS + 1)]
    add("random blocks, paired t looked at after every block (6 to 200)", np.any(looks, axis=0))
    signs = rng.choice([-1.0, 1.0], (48, 1999))
    reached = np.abs(d[:, :48] @ signs) >= np.abs(d[:, :48].sum(axis=1))[:, None] - 1e-12
    add("random blocks, sign flips, 48 blocks", (1 + reached.sum(axis=1)) / 2000 <= 0.01)
    up, down = (BoundProcess(0.0, sign, repeats) for sign in (1, -1))
    for block in range(BLOCKS):
        up.add(d[:, block])
        down.add(d[:, block])
    add(
        "random blocks, the evidence of `ab`, looked at after every block",
        np.maximum(up.wealth.peak, down.wealth.peak) >= 200,
    )
    return found


TAILS: Final = ((0.0, 0.99), (0.25, 0.9), (0.1, 0.9), (0.03, 0.99), (0.02, 0.99), (0.03, 0.95))


def simulate_tail(seed: int, rare: float, quantile: float, repeats: int) -> dict[str, Any]:
    """Watch a quantile for 1,000 blocks; B sleeps 30 ms in a share of its executions."""
    rng = np.random.default_rng(seed)
    blocks = 1000
    times = 10 * np.exp(noise(rng, repeats, 4 * blocks)).reshape(repeats, blocks, 4)
    process = TailProcess(quantile, 1.025, repeats)
    found = np.full(repeats, np.inf)
    for block in range(blocks):
        abba = (rng.random(repeats) < 0.5)[:, None]
        outer, inner = times[:, block][:, [0, 3]], times[:, block][:, 1:3]
        b = np.where(abba, inner, outer)
        process.add(np.where(abba, outer, inner), b + 30 * (rng.random(b.shape) < rare))
        new = np.isinf(found) & (process.wealth.value >= 100)
        found[new] = block + 1
    known = found[np.isfinite(found)]
    middle, most = np.quantile(known, (0.5, 0.9)) if len(known) else (0.0, 0.0)
    return {
        "rare": rare,
        "quantile": quantile,
        "repeats": repeats,
        "found": len(known) / repeats,
        "median": float(middle),
        "p90": float(most),
    }


SESSIONS: Final = ((1, 1), (3, 1), (5, 1), (8, 1), (20, 1), (3, 3), (4, 4), (8, 3))


def simulate_sessions(seed: int, spread: float, repeats: int) -> dict[str, Any]:
    """Compare K with m sessions of 24 executions by a t test of their means, floor 5 %."""
    rng = np.random.default_rng(seed)
    cells = []
    for k, m in SESSIONS:
        rates = []
        for change in (0.0, 0.1, 0.3):
            base = rng.normal(0, spread, (repeats, k)) + rng.normal(0, 0.1 / 24**0.5, (repeats, k))
            new = rng.normal(0, spread, (repeats, m)) + rng.normal(0, 0.1 / 24**0.5, (repeats, m))
            shift = new.mean(axis=1) + math.log1p(change) - base.mean(axis=1)
            if k + m > 2:
                squares = (base.var(axis=1) * k + new.var(axis=1) * m) / (k + m - 2)
                t = shift / np.sqrt(squares * (1 / k + 1 / m))
                sure = t > stats.t.ppf(0.99, k + m - 2)
            else:  # as if executions were sessions
                sure = shift / (0.1 * math.sqrt(2 / 24)) > stats.t.ppf(0.99, 46)
            rates.append(float(np.mean(sure & (shift > math.log(1.05)))))
        cells.append(rates)
    return {"spread": spread, "repeats": repeats, "cells": cells}


def compile_work(state: Path) -> Path:
    """Compile the program that live runs execute, and make what others work on."""
    program = state / "ab_work"
    source = Path(__file__).with_name("ab_work.c")
    compiler = shutil.which("cc") or "cc"
    subprocess.run([compiler, "-O1", "-o", program, source], check=True)
    words = np.random.default_rng(1).choice(["path", "wait", "cpu", "trace", "\n"], 10**6)
    text = " ".join(words).encode()
    for factor, _ in LIVE.values():
        (state / f"text{factor:g}").write_bytes(text[: round(WORK["gzip"] * factor)])
    return program


class Answer(http.server.BaseHTTPRequestHandler):
    """Answers a request after some work."""

    def do_GET(self) -> None:
        """Compute and answer."""
        found = hashlib.sha256(b"x" * WORK["web"]).hexdigest().encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(found)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def serve(port: Any) -> None:
    """Serve requests in a process of its own, and tell the port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    port.put(server.server_port)
    server.serve_forever()


def command(state: Path, program: str, factor: float, more: Sequence[str], port: int) -> list[str]:
    """Return what is executed."""
    if program == "gzip":
        return ["gzip", "-c", str(state / f"text{factor:g}")]
    work = port if program == "web" else round(WORK[program] * factor)
    return [str(state / "ab_work"), program, str(work), *more]


def live(
    state: Path, seconds: float, load: str, programs: Sequence[str], rows: Sequence[str]
) -> None:
    """Run the real command, row after row, until the time is over."""
    compile_work(state)
    until = time.monotonic() + seconds
    place = state / "live"
    place.mkdir(exist_ok=True)
    ports: Any = multiprocessing.Queue()
    server = multiprocessing.Process(target=serve, args=(ports,), daemon=True)
    server.start()
    port = ports.get()
    every = [
        (program, row, of)
        for row in rows
        for of in ("time", "run")
        for program in programs
        if (row == "A/A" or program in SCALES) and (of, program) != ("run", SERVER_ALONE)
    ]
    number = 1 + max((int(file.stem) for file in place.glob("*.json")), default=-1)
    while time.monotonic() < until:
        program, name, of = every[number % len(every)]
        factor, more = LIVE[name]
        target = place / f"{number:05}.json"
        a, b = command(state, program, 1.0, (), port), command(state, program, factor, more, port)
        options = ["--trace", "none", "--quiet", "--of", of, "--seed", str(number)]
        called = [sys.executable, "-P", "-m", "critpath", "ab", *options, "--json", str(target)]
        done = subprocess.run(
            [*called, "--", *a, "--", *b], cwd=state, capture_output=True, text=True, check=False
        )
        if done.returncode not in {0, 1, 3}:
            raise SystemExit(done.stderr)
        document = json.loads(target.read_text())
        document |= {"row": name, "load": load, "program": program}
        target.write_text(json.dumps(document))
        number += 1
    server.terminate()


def measure_cost(blocks: int = 150) -> dict[str, float]:
    """Run `true` in slots of one execution: what passes between executions, and costs us (ms)."""
    between = []
    commands = (("true",), ("true",))
    with SlotRunner.open(
        InheritedState.capture(),
        commands,
        prepare="",
        timeout=0.0,
        as_root=False,
        show_output=False,
    ) as slots:
        slots.run_block("ABBA", 1)
        begin = time.process_time_ns()
        for number in range(blocks):
            before = time.monotonic_ns()
            block = slots.run_block(block_order(1, number), 1)
            if block is None:
                break
            own = time.monotonic_ns() - before - sum(t for slot in block.times for t in slot)
            between.append(own / 4e6)
        cpu = (time.process_time_ns() - begin) / (4e6 * len(between))
    return {"between": statistics.median(between), "cpu": cpu}


def cost_rows(state: Path) -> Iterator[str]:
    """Yield what passes between slots."""
    found = json.loads((state / "cost.json").read_text())
    yield "| between two executions, median | `ab`'s own time on a cpu, mean |"
    yield "|---:|---:|"
    yield f"| {found['between']:.2f} ms | {found['cpu']:.2f} ms |"


def kept(state: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows of a simulated table."""
    return [json.loads(line) for line in (state / name).read_text().splitlines()]


def design_rows(state: Path) -> Iterator[str]:
    """Yield how often designs alarm falsely."""
    yield "| design | false alarms, % |"
    yield "|---|---:|"
    for row in kept(state, "designs.jsonl"):
        yield f"| {row['design']} | {100 * row['alarms']:.1f} |"


def tail_rows(state: Path) -> Iterator[str]:
    """Yield how soon a quantile shows what is rare."""
    yield "| B has +30 ms in | watched | found in 1,000 blocks | blocks: median, p90 |"
    yield "|---|---|---:|---|"
    for row in kept(state, "tails.jsonl"):
        blocks = f"{row['median']:.0f}, {row['p90']:.0f}" if row["rare"] else "-"
        what = f"{100 * row['rare']:.0f} %" if row["rare"] else "nothing (A/A)"
        yield f"| {what} | p{100 * row['quantile']:.0f} | {100 * row['found']:.1f} % | {blocks} |"


def session_rows(state: Path) -> Iterator[str]:
    """Yield what sessions one after the other can claim."""
    yield "| session sd | " + " | ".join(f"{k} v {m}" for k, m in SESSIONS) + " |"
    yield "|---|" + "---|" * len(SESSIONS)
    for row in kept(state, "sessions.jsonl"):
        cells = [f"{100 * a:.1f} ({100 * b:.0f}, {100 * c:.0f})" for a, b, c in row["cells"]]
        yield f"| {100 * row['spread']:.0f} % | {' | '.join(cells)} |"


def simulated_rows(state: Path) -> Iterator[str]:
    """Yield the simulated table."""
    yield "| B | slower / not slower / undecided, % | blocks: median, mean, p90 |"
    yield "|---|---|---|"
    for row in kept(state, "simulated.jsonl"):
        n = row["repeats"]
        shares = [100 * x / n for x in (row["fail"], row["pass"], n - row["fail"] - row["pass"])]
        what = f"{100 * row['rare']:.0f} % with +30 ms" if row["rare"] else ""
        what = what or f"{100 * (row['factor'] - 1):+.1f} %"
        yield (
            f"| {what} | {' / '.join(f'{s:.2f}' for s in shares)} | "
            f"{row['median']:.0f}, {row['mean']:.0f}, {row['p90']:.0f} |"
        )


def live_documents(state: Path) -> list[dict[str, Any]]:
    """Return what live runs found."""
    every = (json.loads(file.read_text()) for file in sorted((state / "live").glob("*.json")))
    return [document for document in every if "row" in document]


def live_rows(state: Path) -> Iterator[str]:
    """Yield the table of live runs."""
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for document in live_documents(state):
        key = document.get("program", "cpu"), document["of"], document["row"]
        found.setdefault(key, []).append(document)
    yield "| program | decides | B | runs | slower | not slower | undecided | blocks: median, p90 |"
    yield "|---|---|---|---:|---:|---:|---:|---|"
    names, programs = list(LIVE), list(WORK)
    for (program, of, row), runs in sorted(
        found.items(),
        key=lambda item: (programs.index(item[0][0]), item[0][1], names.index(item[0][2])),
    ):
        exits = [run["exit"] for run in runs]
        middle, most = np.quantile([run["blocks"] for run in runs], (0.5, 0.9))
        counts = " | ".join(str(exits.count(code)) for code in (1, 0, 3))
        yield f"| {program} | {of} | {row} | {len(runs)} | {counts} | {middle:.0f}, {most:.0f} |"
    healthy = [d["exit"] for (_, _, row), runs in found.items() if row == "A/A" for d in runs]
    alarms, most = healthy.count(1), upper_limit(healthy.count(1), len(healthy))
    yield ""
    yield (
        f"Of {len(healthy)} A/A runs {alarms} alarmed: {100 * alarms / len(healthy):.1f} %, with "
        f"95 % certainty below {100 * most:.1f} %."
    )


def upper_limit(found: int, of: int) -> float:
    """Return the share that so few are found of with 5 % chance: Clopper and Pearson's."""
    return float(stats.beta.ppf(0.95, found + 1, of - found)) if found < of else 1.0


def probe_rows(state: Path) -> Iterator[str]:
    """Yield what the probes explain of the times of live runs."""
    found: dict[str, list[dict[str, Any]]] = {}
    for document in live_documents(state):
        found.setdefault(document.get("program", "cpu"), []).append(document["machine"])
    yield "| program | runs | R² of running: median, p90 | of waiting | others | speed p90/p10 |"
    yield "|---|---:|---|---|---:|---:|"
    for program in (name for name in WORK if name in found):
        machines = found[program]
        cells = []
        for kind in ("run", "wait"):
            known = [x for m in machines if (x := m["probe_r2"].get(kind)) is not None]
            middle, most = np.quantile(known, (0.5, 0.9)) if known else (math.nan, math.nan)
            cells.append(f"{middle:.2f}, {most:.2f}")
        others, speed = (
            statistics.median(x for m in machines if (x := m[key]) is not None)
            for key in ("others_share", "speed_p90_p10")
        )
        cells += [f"{100 * others:.0f} %", f"{speed:.2f}"]
        yield f"| {program} | {len(machines)} | {' | '.join(cells)} |"


def publish_tables(state: Path) -> None:
    """Write the tables of docs/evaluation/ab.md; ``make docs`` shows them."""
    tables = {
        "designs": design_rows(state),
        "simulated": simulated_rows(state),
        "computing": computing_rows(state),
        "tails": tail_rows(state),
        "sessions": session_rows(state),
        "probes": probe_rows(state),
        "live": live_rows(state),
        "relabelled": relabelled_rows(state),
        "cost": cost_rows(state),
    }
    machine = describe_machine()
    for name, rows in tables.items():
        publish_rows(f"ab/{name}", parse_rows(list(rows)), machine["date"], machine["commit"])


def main() -> None:
    """Simulate, run live, or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("simulate", "live", "cost", "table"))
    parser.add_argument("--state", type=Path, default=ROOT / "critpath-evaluation" / "ab")
    parser.add_argument("--seconds", type=float, default=600.0, help="of live runs")
    parser.add_argument("--programs", nargs="+", choices=WORK, default=list(WORK))
    parser.add_argument("--rows", nargs="+", choices=LIVE, default=list(LIVE))
    parser.add_argument("--load", default="as it was", help="what else the machine does")
    parser.add_argument("--only", nargs="+", help="simulated tables")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    given = parser.parse_args()
    given.state.mkdir(parents=True, exist_ok=True)
    if given.what == "simulate":
        n = given.repeats
        cases = [(1 + effect, 0.0) for effect in EFFECTS] + [(1.0, share) for share in RARE]
        computing = [(1 + effect, many) for many in (1.0, 4.0) for effect in EFFECTS[:-1]]
        tables = {
            "designs": iter(simulate_designs(1, n)),
            "sessions": (simulate_sessions(2, spread, 20 * n) for spread in (0.03, 0.06, 0.12)),
            "tails": (simulate_tail(3, *tail, n // 4) for tail in TAILS),
            "computing": (
                simulate_computing(500_000 + 10_000 * number, *case, n)
                for number, case in enumerate(computing)
            ),
            "relabelled": relabel(given.state, n // 4),
            "simulated": (
                simulate(1000 + 10_000 * number, *case, n) for number, case in enumerate(cases)
            ),
        }
        # What is kept of live runs is drawn anew only when asked for.
        for name in given.only or [each for each in tables if each != "relabelled"]:
            lines = []
            for row in tables[name]:
                lines.append(json.dumps(row))
                (given.state / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    elif given.what == "live":
        live(given.state, given.seconds, given.load, given.programs, given.rows)
    elif given.what == "cost":
        (given.state / "cost.json").write_text(json.dumps(measure_cost()))
    else:
        publish_tables(given.state)


if __name__ == "__main__":
    main()
