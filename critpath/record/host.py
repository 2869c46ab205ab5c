"""What a recording says of the machine and of its clock."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

# Inode number of the initial pid namespace on every kernel (PROC_PID_INIT_INO).
INITIAL_PID_NAMESPACE: Final = 0xEFFFFFFC


def host_facts() -> Mapping[str, object]:
    """Return name, kernel release, machine, cpus, cpu model and memory (bytes)."""
    system = os.uname()
    return {
        "name": system.nodename,
        "kernel": system.release,
        "machine": system.machine,
        "cpus": os.cpu_count() or 0,
        "cpu_model": _cpu_model(),
        "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
    }


def clock_facts() -> Mapping[str, object]:
    """Return the trace's clock: its name, and what makes its times those of day (ns)."""
    # The narrowest of some tries: a preemption between the readings would count as time.
    tries = []
    for _ in range(5):
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        real = time.clock_gettime_ns(time.CLOCK_REALTIME)
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        tries.append((after - before, real - (before + after) // 2))
    return {"name": "monotonic", "epoch": min(tries)[1]}


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^(?:model name|Model|cpu model|cpu)\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor()
