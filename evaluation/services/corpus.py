"""Record the cases: ``python corpus.py DIR --park PARK [--order ...] [CASE-STRENGTH ...]``.

Each becomes ``DIR/CASE-STRENGTH`` with ``normal``, ``sample`` and ``truth.json``, recorded in
alternation; with ``--order sequential`` ``DIR/CASE-STRENGTH-seq``, one after the other.
``--healthy N`` records N healthy pairs of every request in alternation (``healthy/REQUEST-ab-K``),
with ``--single`` two straight after each other (``healthy/REQUEST-one-Ka`` and ``b``); ``--busy``:
with a neighbour. ``--requests``: with the profile ``requests``, and the client is a server that
somebody else asks (`client.py --served`), so that each marked execution is a request as well.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fcntl
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

from cases import CASES, Case
from park import PORTS

HERE: Final = Path(__file__).resolve().parent
LOCK: Final = Path("/tmp/kernel.lock")  # one recording at a time
STRENGTHS: Final = ("mild", "clear")


def commands(case: Case, strength: str, python: str, *more: str) -> tuple[str, str]:
    """Return the command lines of the normal and the slower version, with `more` of the client."""
    mild = strength == "mild"
    normal = case.mild_normal if mild and case.mild_normal else case.normal
    sample = case.mild if mild else case.clear
    if case.lines:
        return tuple(
            f"sh -c {shlex.quote(case.request.replace('%', value))}"
            for (value,) in (normal, sample)
        )
    client = [
        python,
        str(HERE / "client.py"),
        case.request,
        "--count",
        str(case.count),
        *more,
        *case.common,
        *(case.mildly if mild else ()),
    ]
    return shlex.join([*client, *normal]), shlex.join([*client, *normal, *sample])


def record(critpath: str, to: Path, case: Case, *what: str) -> float:
    """Record once; return the seconds that it took."""
    execution = [] if case.lines else ["--execution", "marker"]
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        begin = time.monotonic()
        done = subprocess.run(
            [
                critpath,
                "record",
                "-o",
                str(to),
                "--force",
                "-n",
                str(case.rounds),
                *execution,
                *(["--profile", case.profile] if case.profile else []),
                *what,
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
    if done.returncode:
        print(f"{to.name}: code {done.returncode}: {done.stderr[-400:]}", flush=True)
    return time.monotonic() - begin


def record_case(
    critpath: str,
    python: str,
    out: Path,
    case: Case,
    strength: str,
    order: str,
    *,
    requests: bool = False,
) -> None:
    """Record both versions of a case, and write down the truth beside them."""
    if requests:
        case = dataclasses.replace(case, profile="requests")
    name = f"{case.name}-{strength}" + ("-seq" if order == "sequential" else "")
    to = out / name
    lines = commands(case, strength, python, *(["--served"] if requests else []))
    fresh = out / f".{name}"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    truth = (
        dataclasses.asdict(case)
        | {
            "case": name,
            "strength": strength,
            "order": order,
            "verdict": "anomaly",
            "commands": lines,
            "execution": "process" if case.lines else "marker",
        }
        | ({"requests": f"requests:port={PORTS['client']}"} if requests else {})
    )
    (fresh / "truth.json").write_text(json.dumps(truth, indent=1))
    if order == "sequential":
        took = sum(
            record(critpath, fresh / side, case, "--", *shlex.split(line))
            for side, line in zip(("normal", "sample"), lines, strict=True)
        )
    else:
        took = record(critpath, fresh / "both", case, "--interleave", *lines)
        for side in ("normal", "sample"):
            if (fresh / "both" / side).exists():
                (fresh / "both" / side).rename(fresh / side)
        shutil.rmtree(fresh / "both", ignore_errors=True)
    shutil.rmtree(to, ignore_errors=True)
    fresh.rename(to)
    print(f"{name}: {took:.0f} s", flush=True)


def healthy_cases() -> list[Case]:
    """Return a case for each request, the first that has it; its normal version counts."""
    found: dict[tuple[str, bool], Case] = {}
    for case in CASES:
        if "web-service" not in case.name:
            found.setdefault((case.request, case.lines), case)
    return list(found.values())


@contextlib.contextmanager
def neighbour(seed: int, *, on: bool) -> Iterator[None]:
    """Run ``stress-ng`` at 50 % of a cpu, on and off at random (2 and 3 s on average)."""
    if not on:
        yield
        return
    chance = random.Random(seed)
    child = os.fork()
    if not child:
        os.setsid()
        running: list[int] = []

        def end(*_: object) -> None:
            for pid in running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGTERM)
            os._exit(0)

        signal.signal(signal.SIGTERM, end)
        while True:
            seconds = max(0.2, chance.expovariate(1 / 2))
            noise = subprocess.Popen(
                ["stress-ng", "--cpu", "1", "--cpu-load", "50", "-t", "60", "-q"],
                start_new_session=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            running[:] = [noise.pid]
            time.sleep(seconds)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(noise.pid, signal.SIGTERM)
            noise.wait()
            running.clear()
            time.sleep(chance.expovariate(1 / 3))
    try:
        yield
    finally:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)


def record_healthy(
    critpath: str, python: str, out: Path, case: Case, number: str, *, pair: bool, busy: bool
) -> None:
    """Record a healthy pair in alternation, or one recording of the normal version."""
    name = f"{case.name}-{'ab' if pair else 'one'}{'-busy' if busy else ''}-{number}"
    line, _ = commands(case, "clear", python)
    fresh = out / f".{name}"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    with neighbour(zlib.crc32(name.encode()), on=busy):
        what = ("--interleave", line, line) if pair else ("--", *shlex.split(line))
        record(critpath, fresh / ("both" if pair else "one"), case, *what)
    if pair:
        for side in ("normal", "sample"):
            if (fresh / "both" / side).exists():
                (fresh / "both" / side).rename(fresh / side)
        shutil.rmtree(fresh / "both", ignore_errors=True)
    truth = {
        "case": name,
        "program": case.program,
        "verdict": "ok",
        "order": "interleaved" if pair else "single",
        "busy": busy,
        "commands": [line],
        "execution": "process" if case.lines else "marker",
        "time": time.time(),
    }
    (fresh / "truth.json").write_text(json.dumps(truth, indent=1))
    shutil.rmtree(out / name, ignore_errors=True)
    fresh.rename(out / name)


def limit_application(park: Path) -> None:
    """Put the application of the port `quota` into a control group of its own, without a limit."""
    base = (
        Path("/sys/fs/cgroup/cpu")
        if Path("/sys/fs/cgroup/cpu").is_dir()
        else Path("/sys/fs/cgroup")
    )
    group = base / "critpath-services"
    group.mkdir(exist_ok=True)
    if (group / "cpu.cfs_period_us").exists():
        (group / "cpu.cfs_period_us").write_text("10000\n")
    master = next(
        line.split()[0]
        for line in (park / "pids").read_text().splitlines()
        if line.endswith(" quota")
    )
    children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
    for pid in (master, *children):
        (group / "cgroup.procs").write_text(f"{pid}\n")


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--critpath", default=shutil.which("critpath") or "critpath")
    parser.add_argument("--order", choices=("interleaved", "sequential"), default="interleaved")
    parser.add_argument("--healthy", type=int, default=0)
    parser.add_argument("--single", action="store_true")
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--requests", action="store_true")
    parser.add_argument("--park", type=Path, required=True)
    given = parser.parse_intermixed_args()
    limit_application(given.park)
    out = given.out.resolve()
    if given.healthy:
        for number in range(given.first, given.first + given.healthy):
            for case in healthy_cases():
                if given.names and case.name not in given.names:
                    continue
                for label in (f"{number}a", f"{number}b") if given.single else (str(number),):
                    record_healthy(
                        given.critpath,
                        given.python,
                        out / "healthy",
                        case,
                        label,
                        pair=not given.single,
                        busy=given.busy,
                    )
            print(f"healthy {number}: {time.strftime('%T')}", flush=True)
        return
    for case in CASES:
        if given.requests and case.lines:
            print(f"{case.name}: left out, no request goes over a socket", flush=True)
            continue
        for strength in STRENGTHS:
            if (
                not given.names
                or f"{case.name}-{strength}" in given.names
                or case.name in given.names
            ):
                record_case(
                    given.critpath,
                    given.python,
                    out,
                    case,
                    strength,
                    given.order,
                    requests=given.requests,
                )


if __name__ == "__main__":
    main()
