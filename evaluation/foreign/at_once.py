"""Records the whole machine with critpath and other tools at the same time, by one clock."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from pure.convert.perfetto_writer import write_raw_as_perfetto

# What a user of each tool would ask for, so that it has what paths need.
EVENTS: Final = (
    *("sched:sched_switch", "sched:sched_waking", "sched:sched_wakeup", "sched:sched_wakeup_new"),
    *("sched:sched_process_fork", "sched:sched_process_exec", "sched:sched_process_exit"),
    *("task:task_newtask", "task:task_rename", "irq:*"),
    *("timer:hrtimer_expire_entry", "timer:hrtimer_expire_exit"),
    *("timer:timer_expire_entry", "timer:timer_expire_exit"),
)
PERFETTO: Final = "perfetto, compact"
CRITPATH: Final = (sys.executable, "-P", "-m", "critpath")
# trace-cmd does not record where the function tracer is dead, though events do without it: it is
# given files in place of those that it cannot write.
ENABLED: Final = (
    *("unshare", "-m", "sh", "-c"),
    (
        "for file in /proc/sys/kernel/ftrace_enabled /sys/kernel/tracing/set_ftrace_*; do "
        'mount --bind "$0" $file; done; exec "$@"'
    ),
)


def commands(place: Path) -> dict[str, tuple[str, ...]]:
    """Return how each tool records the whole machine, into which file or directory."""
    perf = [word for event in EVENTS for word in ("-e", event)]
    cmd = [word for event in EVENTS for word in ("-e", event)]
    return {
        "critpath": (
            *(*CRITPATH, "record", "-a", "--recorder", "ftrace", "--profile", "minimal"),
            *("--keep-raw", "-o", f"{place}/critpath"),
        ),
        "trace-cmd": (
            *(*ENABLED, f"{place}/enabled"),
            *("trace-cmd", "record", "-q", "-C", "mono", "-b", "16384"),
            *("-o", f"{place}/trace-cmd", *cmd),
        ),
        "perf": (
            *("perf", "record", "-q", "-a", "-k", "mono", "-m", "4096"),
            *("-o", f"{place}/perf", *perf),
        ),
    }


@contextlib.contextmanager
def recorded(place: Path) -> Iterator[None]:
    """Record with every tool; those that end with an error are said."""
    # Whoever starts this in the background ignores what ends the recorders.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    place.mkdir(parents=True)
    (place / "enabled").write_text("1")
    running = {}
    try:
        for name, words in commands(place).items():
            log = (place / f"{name}.log").open("wb")
            running[name] = subprocess.Popen(words, stdout=log, stderr=log)
        time.sleep(6)  # until all of them record; on a busy machine perf is late
        yield
    finally:
        for process in running.values():
            process.send_signal(signal.SIGINT)
        for name, process in running.items():
            if process.wait(120) not in {0, 130, -signal.SIGINT}:
                print(f"{name} ended with {process.returncode}: {place}/{name}.log")


def write_perfetto(place: Path) -> None:
    """Write what critpath recorded as Perfetto does by default, with compact switches."""
    made = write_raw_as_perfetto(place / "critpath" / "raw", compact=True)
    (place / PERFETTO).write_bytes(made)
