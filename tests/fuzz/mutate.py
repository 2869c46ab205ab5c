"""A campaign of changed traces: ``python tests/fuzz/mutate.py``, or ``make mutations``.

Small traces made of all real ones here (`mutate_seeds`) are changed in one of some twenty
ways (`mutate_kinds`), tried on critpath from the stream files to critical paths, and judged
(`mutate_judge` says what is wrong).  Input N of campaign S is the same on every run, so that
``--only N`` repeats it.

Inputs come in blocks.  What came of a block is a line of ``--state``, so that a campaign that
is interrupted goes on where it was.  Every process has written which input it tries before
it does: one that dies, or takes more than 2 s of processor time or 512 MiB, is known by it,
counted, and begun again behind it.
"""

from __future__ import annotations

import argparse
import gc
import json
import mmap
import os
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import mutate_judge  # noqa: E402 - found by the path above
from mutate_kinds import mutation, seed_of  # noqa: E402
from mutate_seeds import SEEDS, Seed, make  # noqa: E402

SECONDS = 2.0  # of processor time, for one input
ELAPSED = 600.0  # asleep for ever; a process may get little of a processor, or be stopped
MEMORY = 512 << 20
BLOCK = 2000
SLOT = struct.Struct("<qdd")  # input, processor time and clock when it was begun
MOST_SHOWN = 20  # findings of a block that are kept


def make_seeds(names: list[str], into: Path) -> list[Seed]:
    """Make the small traces of all archives that are here."""
    found = [make(name, into) for name in names]
    return [seed for seed in found if seed is not None]


def scratch() -> Path:
    """Return a directory of our own, in memory where that is possible."""
    shm = Path("/dev/shm")  # noqa: S108 - a directory of its own is made below it
    return Path(tempfile.mkdtemp(prefix="critpath-mutate-", dir=shm if shm.is_dir() else None))


def try_block(
    seeds: list[Seed],
    subjects: dict[str, mutate_judge.Subject],
    campaign: int,
    numbers: list[int],
    slot: mmap.mmap,
) -> dict:
    """Try some inputs; called in a process of its own.

    Those of a seed come together: a reader keeps the compiled metadata of a few traces.
    """
    outcomes: Counter[str] = Counter()
    undetectable: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    findings = []
    for number in sorted(numbers, key=lambda n: seed_of(seeds, campaign, n).name):
        seed, changed = mutation(seeds, campaign, number)
        SLOT.pack_into(slot, 0, number, time.process_time(), time.monotonic())
        outcome, said = subjects[seed.name].judge(changed)
        outcomes[outcome] += 1
        kinds[f"{changed.kind} {outcome}"] += 1
        if outcome == "undetectable":
            undetectable[f"{changed.place}: {changed.kind}" if said != "payload" else said] += 1
        if outcome in {"silent", "crash"}:
            findings.append([number, outcome, seed.name, changed.kind, changed.said, said[-2000:]])
    SLOT.pack_into(slot, 0, -1, 0.0, 0.0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return {
        "outcomes": outcomes, "undetectable": undetectable, "kinds": kinds,
        "findings": findings[:MOST_SHOWN], "peak": peak,
    }  # fmt: skip


class Worker:
    """A process that tries block after block, and is watched."""

    def __init__(self, number: int, seeds: list[Seed], campaign: int, place: Path):
        self.slot = mmap.mmap(-1, SLOT.size)
        here = place / str(number)
        # Read once: every process that is forked has them.
        self.subjects = {seed.name: mutate_judge.Subject(seed, here) for seed in seeds}
        self.seeds, self.campaign = seeds, campaign
        self.block, self.pid, self.left_out = -1, 0, []
        self.result = place / f"{number}.json"

    def start(self, block: int, inputs: int, left_out: list[list]) -> None:
        """Fork a process for a block, without inputs that it came to grief over."""
        self.block, self.left_out = block, left_out
        out = {number for number, *_ in left_out}
        numbers = [
            n for n in range(block * BLOCK, min(inputs, (block + 1) * BLOCK)) if n not in out
        ]
        self.result.unlink(missing_ok=True)
        SLOT.pack_into(self.slot, 0, -1, 0.0, 0.0)
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                gc.freeze()
                done = try_block(self.seeds, self.subjects, self.campaign, numbers, self.slot)
                partial = self.result.with_suffix(".partial")
                partial.write_text(json.dumps(done))
                partial.rename(self.result)
                code = 0
            except BaseException:  # noqa: BLE001 - a forked process ends here, whatever it is
                import traceback  # noqa: PLC0415 - only then

                traceback.print_exc()
            finally:
                os._exit(code)

    def looked_at(self) -> tuple[str, dict | None] | None:
        """Return what became of the block, None while it is tried."""
        gone, status = os.waitpid(self.pid, os.WNOHANG)
        number, processor, clock = SLOT.unpack_from(self.slot, 0)
        if gone:
            if status == 0:
                return "done", json.loads(self.result.read_text())
            told = os.waitstatus_to_exitcode(status)
            if number < 0:
                raise RuntimeError(f"block {self.block}: exit code {told}, and not by an input")
            return f"exit code {told}", None
        if number < 0:
            return None
        spent, memory = usage(self.pid)
        slow = spent - processor > SECONDS or time.monotonic() - clock > ELAPSED
        if slow:
            # While it is written the slot is zero: only what stands there twice is true.
            time.sleep(0.02)
            slow = processor > 0 and SLOT.unpack_from(self.slot, 0) == (number, processor, clock)
        if slow or memory > MEMORY:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            return ("hang" if slow else "memory"), None
        return None


def usage(pid: int) -> tuple[float, int]:
    """Return a process's processor time (s) and its resident memory (bytes)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0, 0
    ticks = os.sysconf("SC_CLK_TCK")
    return (int(stat[11]) + int(stat[12])) / ticks, int(stat[21]) * os.sysconf("SC_PAGE_SIZE")


def campaign(
    seeds: list[Seed], number: int, inputs: int, jobs: int, state: Path | None, *, quiet: bool
) -> dict:
    """Try inputs in several processes; return what came of all of them."""
    blocks = -(-inputs // BLOCK)
    done: dict[int, dict] = {}
    if state is not None and state.exists():
        for line in state.read_text().splitlines():
            one = json.loads(line)
            if one["campaign"] == number and one["seeds"] == [s.name for s in seeds]:
                done[one["block"]] = one
    waiting = iter([b for b in range(blocks) if b not in done])
    place = scratch()
    try:
        workers = [Worker(i, seeds, number, place) for i in range(jobs)]
        busy = [w for w in workers if _next(w, waiting, inputs)]
        shown = time.monotonic()
        while busy:
            time.sleep(0.05)
            for worker in list(busy):
                found = worker.looked_at()
                if found is None:
                    continue
                how, result = found
                if result is None:
                    tried = SLOT.unpack_from(worker.slot, 0)[0]
                    worker.start(worker.block, inputs, [*worker.left_out, [tried, how]])
                    continue
                result.update(
                    campaign=number, seeds=[s.name for s in seeds], block=worker.block,
                    killed=worker.left_out,
                )  # fmt: skip
                done[worker.block] = result
                if state is not None:
                    with state.open("a") as stream:
                        stream.write(json.dumps(result) + "\n")
                if not _next(worker, waiting, inputs):
                    busy.remove(worker)
            if not quiet and time.monotonic() - shown > 60:
                shown = time.monotonic()
                print(line_of(summary(done, number, seeds)), flush=True)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return summary({b: r for b, r in done.items() if b < blocks}, number, seeds)


def _next(worker: Worker, waiting, inputs: int) -> bool:
    block = next(waiting, None)
    if block is not None:
        worker.start(block, inputs, [])
    return block is not None


def summary(done: dict[int, dict], number: int, seeds: list[Seed]) -> dict:
    """Add up what came of blocks."""
    total: dict[str, Counter] = {k: Counter() for k in ("outcomes", "undetectable", "kinds")}
    killed, findings = [], []
    for result in done.values():
        for key, counts in total.items():
            counts.update(result[key])
        killed += result["killed"]
        findings += result["findings"]
    outcomes = total["outcomes"]
    hangs = sum(how == "hang" for _, how in killed)
    return {
        "format": "critpath/mutations/1",
        "campaign": number,
        "seeds": [s.name for s in seeds],
        "inputs": sum(outcomes.values()) + len(killed),
        **{k: outcomes[k] for k in ("refused", "salvaged", "identical", "undetectable")},
        "crashes": outcomes["crash"] + len(killed) - hangs,
        "hangs": hangs,
        "silent": outcomes["silent"],
        "peak": max((r["peak"] for r in done.values()), default=0),
        "undetectable by": dict(total["undetectable"].most_common()),
        "kinds": dict(sorted(total["kinds"].items())),
        "killed": killed,
        "findings": sorted(findings),
    }


def line_of(found: dict) -> str:
    """Return the one line that says it all."""
    return (
        f"{found['inputs']:,} inputs: {found['refused']:,} refused, {found['salvaged']:,} salvaged "
        f"with loss, {found['identical']:,} identical, {found['undetectable']:,} undetectable, "
        f"{found['crashes']:,} crashes, {found['hangs']:,} hangs, "
        f"{found['silent']:,} silent losses; {found['peak'] >> 20} MiB at most"
    )


def main() -> int:
    """Run a campaign, or one input of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--campaign", type=int, default=1, help="the seed of all randomness")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--state", type=Path, help="a file of what was done; resumed if it is there"
    )
    parser.add_argument("--json", type=Path, help="where the figures go")
    parser.add_argument("--seeds", nargs="*", default=list(SEEDS), help="which small traces")
    parser.add_argument("--only", type=int, help="one input, told in full")
    arguments = parser.parse_args()
    place = scratch()
    try:
        seeds = make_seeds(arguments.seeds, place)
        if not seeds:
            print("no archive of a real trace is here", file=sys.stderr)
            return 2
        if arguments.only is not None:
            seed, changed = mutation(seeds, arguments.campaign, arguments.only)
            outcome, said = mutate_judge.Subject(seed, place / "only").judge(changed)
            print(f"{seed.name}: {changed.kind}, {changed.said}: {outcome}\n{said}")
            return 0
        found = campaign(
            seeds,
            arguments.campaign,
            arguments.inputs,
            arguments.jobs,
            arguments.state,
            quiet=False,
        )
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    for one in found["findings"][:MOST_SHOWN]:
        print(*one)
    print(line_of(found))
    return int(bool(found["crashes"] or found["hangs"] or found["silent"]))


if __name__ == "__main__":
    sys.exit(main())
