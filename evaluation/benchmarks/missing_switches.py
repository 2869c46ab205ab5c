"""How many switches this kernel does not write, for tracefs and for perf.

    python evaluation/benchmarks/missing_switches.py

Two processes on different cpus wake each other in turn while every ``sched_switch`` is
recorded, once through tracefs and once by ``perf record``.  A switch is missing where a
cpu's next switch is from another thread than the one that the last switch put there.
Then the same is recorded with critpath: how much of its critical path is unexplained with
the missing switches put in, and without.  Needs root and two cpus.
"""

from __future__ import annotations

import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from critpath_marks.sessions import new_session_name
from critpath_record.ftrace.tracefs import mount

TRIPS = 2000
SWITCH = re.compile(r"\[(\d+)\].*sched_switch: .*prev_pid=(\d+) .*next_pid=(\d+)")


def wake_each_other() -> None:
    """Pass a byte between two cpus."""
    (there, to_other), (back, to_me) = os.pipe(), os.pipe()
    allowed = os.sched_getaffinity(0)
    first, second = sorted(allowed)[:2]
    child = os.fork()
    os.sched_setaffinity(0, {second if child else first})
    for _ in range(TRIPS):
        if child:
            os.write(to_other, b"x")
            os.read(back, 1)
        else:
            os.read(there, 1)
            os.write(to_me, b"x")
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    os.sched_setaffinity(0, allowed)


def row(name: str, lines: Iterable[str]) -> str:
    """Return a table's row of what a recorder wrote."""
    switches, missing = 0, collections.Counter[str]()
    running: dict[str, str] = {}
    for line in lines:
        found = SWITCH.search(line)
        if not found:
            continue
        cpu, before, following = found.groups()
        switches += 1
        if running.get(cpu, before) != before:
            missing["idle" if running[cpu] == "0" else "others"] += 1
        running[cpu] = following
    share = 100 * missing.total() / max(1, switches + missing.total())
    return (
        f"| {name} | {switches:,} | {missing['idle']:,} | {missing['others']:,} | {share:.1f} % |"
    )


def by_tracefs() -> list[str]:
    """Record with an instance of our own, and read the kernel's own text."""
    instance = mount() / "instances" / new_session_name()
    instance.mkdir()
    try:
        (instance / "buffer_size_kb").write_text("16384")
        (instance / "events/sched/sched_switch/enable").write_text("1")
        wake_each_other()
        (instance / "tracing_on").write_text("0")
        return (instance / "trace").read_text(errors="replace").splitlines()
    finally:
        instance.rmdir()


def by_perf() -> list[str]:
    """Record with perf."""
    with tempfile.TemporaryDirectory(prefix="critpath-switches-") as place:
        data = f"{place}/perf.data"
        record = ["perf", "record", "-q", "-a", "-m", "8M", "-e", "sched:sched_switch", "-o", data]
        subprocess.run([*record, "--", sys.executable, __file__, "workload"], check=True)
        script = ["perf", "script", "-i", data, "-F", "cpu,time,event,trace"]
        return subprocess.run(
            script, capture_output=True, text=True, errors="replace", check=True
        ).stdout.splitlines()


def unexplained() -> str:
    """Tell how much of the workload's path is unexplained, with and without the rule."""
    from critpath import flow  # noqa: PLC0415 - numpy starts threads
    from critpath.model import State  # noqa: PLC0415
    from critpath.timeline import missing_switches  # noqa: PLC0415

    def share() -> str:
        paths = flow.extract([recording], specification=None).paths
        bad = sum(
            int(paths.duration[paths.state == state].sum())
            for state in (State.UNKNOWN, State.WAIT_UNEXPLAINED)
        )
        return f"{100 * bad / int(paths.duration.sum()):.1f} %"

    with tempfile.TemporaryDirectory(prefix="critpath-switches-") as place:
        recording = Path(place) / "recording"
        workload = [sys.executable, __file__, "workload"]
        record = [sys.executable, "-P", "-m", "critpath", "record", "--quiet", "-o", str(recording)]
        subprocess.run([*record, "--", *workload], check=True)
        with_rule = share()
        missing_switches.repair_switches = lambda events: events  # type: ignore[assignment]
        return f"unexplained of its path: {with_rule} with the rule, {share()} without"


def main() -> int:
    """Measure and print."""
    if sys.argv[1:] == ["workload"]:
        wake_each_other()
        return 0
    if os.geteuid() or len(os.sched_getaffinity(0)) < 2:
        print("missing switches: left out, needs root and two cpus")
        return 0
    print(f"kernel {os.uname().release}, {TRIPS:,} round trips between two cpus\n")
    print("| recorded with | switches written | missing out of idle | of others | missing |")
    print("|---|---:|---:|---:|---:|")
    print(row("tracefs", by_tracefs()))
    if shutil.which("perf"):
        print(row("`perf record`", by_perf()))
    print("\n" + unexplained())
    return 0


if __name__ == "__main__":
    sys.exit(main())
