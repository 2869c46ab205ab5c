"""Record the corpus: ``python record.py DIR --critpath C --phase busy [--phase ...] [CASE ...]``.

Each pair becomes ``DIR/pairs/NAME`` with ``normal``, ``sample`` and ``truth.json``, which is
written before the first run and completed by the load that was measured. Conditions: quiet; small
(quiet, and a smaller change); busy (stress-ng or two busy loops on both cpus, on both sides); after
or before (a neighbour on that side only, one after the other). Needs root, tracefs, and what
`services.sh` starts.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fcntl
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

from cases import CASES, FEW, HOGS, Case

HERE: Final = Path(__file__).resolve().parent / "programs"
LOCK: Final = Path("/tmp/kernel.lock")  # one recording at a time


def fill(line: str, place: Path) -> str:
    """Return a command line with this machine's paths."""
    python = os.path.realpath(sys.executable)
    return (
        line.replace("BIN/", f"{place}/bin/").replace("PYTHON", python).replace("HERE", str(HERE))
    )


def stop_when_told() -> None:
    """Have SIGTERM end this process as Ctrl-C does: neighbours are ended, too."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@contextlib.contextmanager
def keep_busy(place: Path, who: str, *, really: bool) -> Iterator[None]:
    """Have both cpus used by neighbours meanwhile."""
    lines = {
        "stress-ng": [["stress-ng", "-q", "--cpu", "2"]],
        "indexer": [[f"{place}/bin/indexer"], [f"{place}/bin/indexer"]],
    }[who]
    started = [
        subprocess.Popen(line, start_new_session=True, stdout=subprocess.DEVNULL)
        for line in (lines if really else [])
    ]
    if started:
        time.sleep(0.3)
    try:
        yield
    finally:
        for one in started:
            os.killpg(one.pid, signal.SIGTERM)
            one.wait()


def rest_hogs() -> None:
    """Have no hog run until a command asks for it (`underhog`)."""
    for flag in HOGS.values():
        if Path(flag).exists():
            with Path(flag).open("r+b") as file:
                file.write(b"\0")


def used() -> tuple[float, float]:
    """Return cpu time used and all there was, since boot."""
    fields = [int(f) for f in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return sum(fields) - fields[3] - fields[4], sum(fields)


def record(critpath: str, case: Case, to: Path, *what: str) -> dict[str, float]:
    """Record once; return the load meanwhile."""
    execution = [] if case.execution == "process" else ["--execution", case.execution]
    runs = ["-n", str(case.runs), *execution, *case.options]
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rest_hogs()
        before, load = used(), os.getloadavg()[0]
        done = subprocess.run(
            [critpath, "record", "--quiet", "-o", str(to), "--force", *runs, *what],
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"} | case.environment,
        )
        after = used()
    if done.returncode:
        print(f"{to}: code {done.returncode}: {done.stderr[-400:]}", flush=True)
        raise RuntimeError(to.name)
    share = (after[0] - before[0]) / max(1, after[1] - before[1])
    return {"load": load, "used": round(share, 2)}


def record_pair(
    critpath: str,
    place: Path,
    case: Case,
    *,
    condition: str,
    straight: bool,
    healthy: bool,
    who: str,
) -> None:
    """Record both sides of a pair, with the truth beside it."""
    order = "straight" if straight else "turns"
    name = f"{'healthy-' if healthy else ''}{case.name}-{condition}-{order}"
    to = place / "pairs" / name
    if (to / "truth.json").exists() and "load" in json.loads((to / "truth.json").read_text()):
        return
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    after = case.small if condition == "small" else case.after
    lines = [fill(case.before, place), fill(case.before if healthy else after, place)]
    truth = dataclasses.asdict(case) | {
        "name": name,
        "case": case.name,
        "before": lines[0],
        "after": lines[1],
        "condition": condition,
        "order": order,
        "neighbour": who if condition not in {"quiet", "small"} else "",
        "whose": "nobody" if healthy else case.whose,
    }
    if healthy:
        truth |= {"what": "nothing changed", "right": [], "partly": [], "changed": "none"}
    write = (to / "truth.json").write_text
    write(json.dumps(truth, indent=1))
    if straight:
        loads = []
        for side, line in zip(("normal", "sample"), lines, strict=True):
            busy = condition in {"busy", {"normal": "before", "sample": "after"}[side]}
            with keep_busy(place, who, really=busy):
                loads.append(record(critpath, case, to / side, "--", *shlex.split(line)))
    else:
        with keep_busy(place, who, really=condition == "busy"):
            loads = [record(critpath, case, to / "both", "--interleave", *lines)]
        for side in ("normal", "sample"):
            (to / "both" / side).rename(to / side)
        shutil.rmtree(to / "both")
    write(json.dumps(truth | {"load": loads, "time": time.strftime("%H:%M")}, indent=1))
    size = sum(f.stat().st_size for f in to.rglob("*") if f.is_file()) / 1e6
    print(f"{time.strftime('%H:%M:%S')} {name} {size:.1f} MB {loads}", flush=True)


def plan(phase: str) -> Iterator[tuple[Case, dict[str, object]]]:
    """Yield what a phase records."""
    for i, case in enumerate(FEW if phase == "few" else ()):
        who = ("stress-ng", "indexer")[i % 2]
        for condition in ("quiet", "busy", "small"):
            yield case, {"healthy": False, "who": who, "condition": condition, "straight": False}
    for i, case in enumerate(CASES):
        who = ("stress-ng", "indexer")[i % 2]
        both = {"healthy": phase == "healthy", "who": who}
        if phase == "busy":
            yield case, both | {"condition": "busy", "straight": False}
        elif phase == "quiet":
            yield case, both | {"condition": "quiet", "straight": False}
        elif phase == "small" and case.small:
            yield case, both | {"condition": "small", "straight": False}
        elif phase == "straight":
            condition = ("after", "before", "busy", "quiet")[i % 4]
            yield case, both | {"condition": condition, "straight": True}
        elif phase == "healthy":
            yield case, both | {"condition": ("busy", "quiet")[i // 2 % 2], "straight": False}
            condition = ("after", "busy", "before", "quiet")[i % 4]
            yield case, both | {"condition": condition, "straight": True}


def main() -> None:
    """Record what a phase plans, of some cases or all."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("place", type=Path)
    parser.add_argument("--critpath", default=shutil.which("critpath") or "critpath")
    parser.add_argument(
        "--phase", choices=("busy", "quiet", "straight", "healthy", "small", "few"), action="append"
    )
    parser.add_argument("names", nargs="*")
    given = parser.parse_intermixed_args()
    stop_when_told()
    for phase in given.phase:
        for case, how in plan(phase):
            if given.names and case.name not in given.names:
                continue
            try:
                record_pair(given.critpath, given.place.resolve(), case, **how)  # type: ignore[arg-type]
            except (RuntimeError, subprocess.TimeoutExpired) as problem:
                print(f"left out: {problem}", flush=True)


if __name__ == "__main__":
    main()
