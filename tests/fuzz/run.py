"""Fuzzes the targets one after the other, and says in a table what came of it.

    python tests/fuzz/run.py [--seconds 3600] [--jobs 1] [TARGET...]
    python tests/fuzz/run.py --minimise [TARGET...]
    python tests/fuzz/run.py --table

What is found goes to ``build/fuzz/TARGET``: ``corpus`` with inputs that reached something
new, ``found`` with those that broke a promise, and ``*.log``.  Every run adds a line to
``build/fuzz/results.jsonl``, and ``--table`` adds them up as docs/evaluation.md has them.
After a finding the run goes on with another seed: one fault does not hide the next.
Exits with 1 if anything was found.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent))
import build

HERE: Final = Path(__file__).resolve().parent

TARGETS: Final = ("metadata", "streams", "saved", "sockets", "stacks", "foreign", "told")
RESULTS: Final = build.PLACE / "results.jsonl"
# Traces of others are tried where they are, and not kept.
SHARED: Final = build.ROOT.parent / "shared" / "traces"

_LONGEST: Final = 24_000  # bytes of an input
_PIECE: Final = 600  # seconds until a process makes way for another: what leaks is given back
_SLOWER: Final = 10  # times that sanitizers and counting make it slower, at most
_MOST_FOUND: Final = 20
_SHOWN: Final = 6000  # characters of a log
# Beyond its time, for the kept inputs, which are read first, and for one that never ends.
_GRACE: Final = 400  # seconds
_KEPT: Final = 450_000  # bytes of a corpus in the repository
_STATISTICS: Final = "stat::number_of_executed_units"  # what libFuzzer prints at its end
STOPPED: Final = "stopped: it did not end within"
_LIMITS: Final = (
    # A single allocation beyond the promise ends it; what it takes in all is held against
    # the promise without sanitizers, whose own memory is as much again (test_corpus.py).
    "-malloc_limit_mb=512",
    "-rss_limit_mb=2500",
    # By the clock, for what never ends; what takes too long by the processor is told before.
    "-timeout=180",
    "-report_slow_units=60",
)
_SANITIZERS: Final = {
    # Python does not give back what it has at its end.
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=32",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    # Of the system's allocator, which AddressSanitizer watches.
    "PYTHONMALLOC": "malloc",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ARROW_NUM_THREADS": "1",
    "CRITPATH_FUZZ_SLOWER": str(_SLOWER),
    "PYTHONHASHSEED": "0",
}


def fuzzer(python: Path, target: str, *options: str) -> list[str]:
    """Return the command of a target under libFuzzer."""
    return [str(python), str(HERE / "fuzz.py"), target, f"-max_len={_LONGEST}", *_LIMITS, *options]


def environment(python: Path) -> dict[str, str]:
    """Return the variables that its processes run with."""
    return {
        **os.environ,
        **_SANITIZERS,
        "PYTHONPATH": f"{build.PLACE}:{build.ROOT / 'marks'}",
        "LD_PRELOAD": str(build.preloaded(python)),
    }


def directories(target: str) -> tuple[Path, Path]:
    """Return where new inputs and findings of a target go."""
    place = build.PLACE / target
    for name in ("corpus", "found"):
        (place / name).mkdir(parents=True, exist_ok=True)
    return place / "corpus", place / "found"


def known(target: str) -> list[str]:
    """Return the directories with inputs that are kept."""
    places = (HERE / "corpus" / target, HERE / "crashes" / target)
    return [str(place) for place in places if place.is_dir()]


def of_others(target: str) -> list[str]:
    """Return the directory with metadata of the traces in ``../shared``, where these are."""
    place = build.PLACE / target / "shared"
    if target != "metadata" or not SHARED.is_dir():
        return []
    if not place.exists():
        place.mkdir(parents=True)
        for archive in sorted(SHARED.rglob("*.tar.xz")):
            with tarfile.open(archive) as tar:
                for member in tar:
                    if (
                        member.isfile()
                        and Path(member.name).name == "metadata"
                        and member.size <= _LONGEST
                    ):
                        name = f"{archive.name}-{member.name.replace('/', '-')}"
                        (place / name).write_bytes(tar.extractfile(member).read())
    return [str(place)]


def kind_of(output: str) -> str:
    """Return what broke, from what libFuzzer printed."""
    for kind, sign in (
        ("hang", rf"ERROR: libFuzzer: timeout|ContractError: took |{STOPPED}"),
        ("memory", r"ERROR: libFuzzer: out-of-memory"),
        ("wrong", r"ContractError"),
    ):
        if re.search(sign, output):
            return kind
    return "crash"


def watched(
    command: list[str], env: dict[str, str], log: Path, seconds: float
) -> tuple[int, float]:
    """Run a target with its output in a file; return its exit code and processor time (s).

    libFuzzer's own clock watches a single input only, and only while it is being tried: what
    hangs before or after is stopped from here, with every thread's stack in the log.
    """
    begin = time.monotonic()
    with log.open("wb") as stream:
        pid = os.posix_spawn(
            command[0],
            command,
            env,
            file_actions=[(os.POSIX_SPAWN_DUP2, stream.fileno(), fd) for fd in (1, 2)],
        )
        while not (ended := os.wait4(pid, os.WNOHANG))[0]:
            if time.monotonic() - begin > seconds:
                os.kill(pid, signal.SIGUSR1)
                time.sleep(5)
                os.kill(pid, signal.SIGKILL)
                ended = os.wait4(pid, 0)
                stream.seek(0, os.SEEK_END)
                stream.write(f"\n{STOPPED} {seconds:.0f} s\n".encode())
                break
            time.sleep(0.2)
    _, status, used = ended
    return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime


def fuzz(python: Path, target: str, seconds: float) -> dict[str, Any]:
    """Fuzz one target for some time."""
    corpus, found = directories(target)
    begin, processor, inputs, features, number = time.monotonic(), 0.0, 0, 0, 0
    findings: dict[str, int] = {}
    while (left := seconds - (time.monotonic() - begin)) > 1 and sum(
        findings.values()
    ) < _MOST_FOUND:
        number += 1
        log = build.PLACE / target / f"{number}.log"
        options = (
            f"-max_total_time={max(1, round(min(left, _PIECE)))}",
            f"-artifact_prefix={found}/",
            f"-dict={HERE / 'words.dict'}",
            "-print_final_stats=1",
        )
        command = fuzzer(python, target, *options, str(corpus), *known(target), *of_others(target))
        code, used = watched(command, environment(python), log, min(left, _PIECE) + _GRACE)
        processor += used
        output = log.read_bytes().decode("utf-8", "replace")
        inputs += _last(_STATISTICS + r": *(\d+)", output)
        features = max(features, _last(r" ft: (\d+)", output))
        if code and STOPPED in output and _STATISTICS in output:
            # Behind the last input: of libFuzzer and of libraries, whatever it is.
            print(f"{target}: every input was tried, and the process did not end by itself")
        elif code:
            findings[kind := kind_of(output)] = findings.get(kind_of(output), 0) + 1
            log.replace(log.with_name(f"{number}.{kind}.log"))
            # Where there is nobody to look into the log.
            print(f"{target}: {kind}\n{output[-_SHOWN:]}", flush=True)
            if _STATISTICS not in output and not re.search(f"libFuzzer|{STOPPED}", output):
                sys.exit(f"{target} does not start: {output[-2000:]}")
    return {
        "target": target,
        "seconds": round(time.monotonic() - begin),
        "processor": round(processor),
        "inputs": inputs,
        "features": features,
        **{name: findings.get(name, 0) for name in ("crash", "hang", "memory", "wrong")},
    }


def _last(pattern: str, text: str) -> int:
    found = re.findall(pattern, text)
    return int(found[-1]) if found else 0


def minimise(python: Path, target: str) -> None:
    """Keep the fewest and smallest inputs that reach what all reach."""
    corpus, _ = directories(target)
    fresh = build.PLACE / target / "smallest"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    # A copy: where the target is being fuzzed, inputs make way for smaller ones.
    snapshot = build.PLACE / target / "snapshot"
    shutil.rmtree(snapshot, ignore_errors=True)
    shutil.copytree(corpus, snapshot)
    sources = [str(snapshot), *known(target)[:1]]
    command = fuzzer(python, target, "-merge=1", str(fresh), *sources)
    subprocess.run(command, env=environment(python), check=True, capture_output=True)
    if not any(fresh.iterdir()):
        sys.exit(f"{target}: nothing came of the merge, and the corpus stays")
    kept = HERE / "corpus" / target
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    room, left_out = _KEPT, 0
    for path in sorted(fresh.iterdir(), key=lambda path: (path.stat().st_size, path.name)):
        room -= path.stat().st_size
        if room < 0:
            left_out += 1
        else:
            shutil.copy(path, kept)
    print(f"{target}: {len(list(kept.iterdir()))} inputs kept, {left_out} too large for the corpus")


def table() -> str:
    """Return what all runs so far found, as lines of Markdown."""
    sums: dict[str, dict[str, Any]] = {}
    for line in RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else ():
        run = json.loads(line)
        of = sums.setdefault(run["target"], dict.fromkeys(run, 0))
        for name, value in run.items():
            of[name] = (
                max(of[name], value)
                if name == "features"
                else of[name] + value
                if name != "target"
                else 0
            )
    lines = [
        "| target | hours | of the processor | inputs | crashes | hangs | out of memory | wrong |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for target, of in sums.items():
        figures = (of["crash"], of["hang"], of["memory"], of["wrong"])
        cells = " | ".join(map(str, figures))
        hours = f"{of['seconds'] / 3600:.1f} | {of['processor'] / 3600:.1f}"
        lines.append(f"| `{target}` | {hours} | {of['inputs']:,} | {cells} |")
    return "\n".join(lines)


def main() -> int:
    """Do what was asked for."""
    parser = argparse.ArgumentParser(description="coverage-guided fuzzing")
    parser.add_argument("targets", nargs="*", metavar="TARGET", default=TARGETS)
    parser.add_argument("--seconds", type=float, default=3600, help="for each target")
    parser.add_argument("--jobs", type=int, default=1, help="targets at a time")
    parser.add_argument("--minimise", action="store_true", help="keep what reaches something new")
    parser.add_argument("--table", action="store_true", help="what was found up to now")
    options = parser.parse_args()
    if options.table:
        print(table())
        return 0
    python = build.build()
    if options.minimise:
        for target in options.targets:
            minimise(python, target)
        return 0
    found = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        runs = [pool.submit(fuzz, python, target, options.seconds) for target in options.targets]
        for run in runs:
            result = run.result()
            with RESULTS.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(result) + "\n")
            broken = sum(result[name] for name in ("crash", "hang", "memory", "wrong"))
            found += broken
            print(
                f"{result['target']}: {result['inputs']:,} inputs in {result['seconds']} s, "
                f"{result['features']:,} features, {broken} broke a promise",
                flush=True,
            )
    if found:
        print(f"what broke a promise is in {build.PLACE}/*/found, how in the logs beside it")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
