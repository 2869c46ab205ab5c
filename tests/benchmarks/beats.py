"""What beats, probes and the watch on the instance cost: by thread, and by what others lose.

``python tests/benchmarks/beats.py [SECONDS]``, as root, on a machine that may be traced.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

from critpath.record.ftrace.drain import online_cpus
from critpath.record.ftrace.hands import Pulse
from critpath.record.ftrace.recorder import FtraceRecorder
from critpath.record.machine import Machine, make_probes
from critpath.record.recorder import RecorderSettings
from critpath_marks.sessions import new_session_name

TASKS = Path("/proc/self/task")


def cpu_times() -> dict[str, int]:
    """Return the cpu time (ns) of this process' threads by name."""
    found: dict[str, int] = {}
    for task in TASKS.iterdir():
        name = (task / "comm").read_text().strip()
        used = int((task / "schedstat").read_text().split()[0])
        found[name] = found.get(name, 0) + used
    return found


def work(seconds: float) -> float:
    """Return the work done per second of cpu time and wall time: rounds of hashing."""
    block, rounds, begin = b"x" * 4096, 0, time.monotonic()
    while time.monotonic() - begin < seconds:
        hashlib.sha256(block).digest()
        rounds += 1
    return rounds / (time.monotonic() - begin)


def main() -> None:
    """Record for a while, and say what each thread used."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10
    with tempfile.TemporaryDirectory() as place:
        recorder = FtraceRecorder(RecorderSettings(new_session_name(), Path(place)))
        machine = Machine(make_probes())
        recorder.start()
        machine.start()
        before = cpu_times()
        time.sleep(seconds)
        after = cpu_times()
        machine.stop(alone=False)
        recorder.stop()
        raw = sum(file.stat().st_size for file in (Path(place) / "raw").glob("cpu*"))
        recorder.finish(lambda _: None)
        for name in sorted(after):
            share = (after[name] - before.get(name, after[name])) / (seconds * 1e9)
            print(f"{name:16} {100 * share:.3f} % of a cpu")
        print(f"{raw / seconds / len(online_cpus()) / 1024:.0f} KiB a second and cpu in all")
        # The same instance's file, with and without beats, in alternation.
        other = Path(place) / "other"
        other.mkdir()
        again = FtraceRecorder(RecorderSettings(new_session_name(), other))
        again.start()
        again._pulse.stop()
        ratios = []
        for number in range(int(2 * seconds)):
            pace = {}
            for on in (number % 2 == 0, number % 2 == 1):
                pulse = Pulse(again._instance, online_cpus()) if on else None
                pace[on] = work(0.5)
                if pulse is not None:
                    pulse.stop()
            ratios.append(pace[False] / pace[True])
        again.abort()
        print(f"work without beats / with: median {median(ratios):.4f} of {len(ratios)} pairs")
    assert threading.active_count() == 1


if __name__ == "__main__":
    main()
