"""The twelve faults of the night, each switched on once, and what is true of it.

A truth is written before anything is recorded, and is of the line that `critpath incidents` says:
right if all patterns of one alternative of `right` are found in it and none of `never`
(`weather/judge.py`, `weigh_sentence`).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

GROUPS: Final = Path("/sys/fs/cgroup")
_TIMES: Final = r"\btimes\b|\btwice\b"
_RUNS: Final = r"\brun(s|ning)?\b|comput"
_BLAMED: Final = r"hog|neighbour|others? had|by the machine"
_BUSY: Final = "import ctypes\nctypes.CDLL(None).prctl(15, b'{name}', 0, 0, 0)\nwhile True: pass"


@dataclass(frozen=True)
class Fault:
    """A fault: where it is, what it does, and what a line about it must say."""

    name: str
    where: str  # shop (threads), feed (asyncio) or machine
    what: str
    right: tuple[tuple[str, ...], ...]
    partly: tuple[tuple[str, ...], ...] = ()
    never: str = _BLAMED
    whose: str = "program"


FAULTS: Final = (
    Fault("lock", "shop", "a thread `reports` holds the lock that each request takes",
          ((r"reports",),), ((r"lock|futex",), (r"gunicorn",))),
    Fault("pool", "shop", "one connection is left of eight: requests wait for one another",
          ((r"another|other|one another|lock|futex", r"thread|gunicorn|request"),),
          ((r"gunicorn",), (r"sleep|wait",))),
    Fault("nplus1", "shop", "postgres is asked 22 times instead of 3",
          ((r"postgres", _TIMES),), ((r"postgres",),)),
    Fault("disk", "shop", "reads of the disk take 16 ms and more: its group is throttled",
          ((r"disk|vda|block device|storage|\breads?\b",),), ((r"wait",),)),
    Fault("fsync", "shop", "each request syncs a journal twelve times",
          ((r"fsync|disk|vda|jbd2|journal|write",),), ((r"wait",),)),
    Fault("gc", "shop", "each request collects garbage: it computes longer itself",
          ((_RUNS,), (r"interpreter",)), ((r"gunicorn",),)),
    Fault("quota", "shop", "its control group has a quota of cpu that is used up",
          ((r"quota",),), ((r"cpu",),)),
    Fault("dns", "feed", "the name server sleeps 15 ms before it answers",
          ((r"resolver",),), ((r"asyncio|python3",),)),
    Fault("retry", "feed", "the first try at `rates` fails; a timer of 50 ms, then another",
          ((r"timer|sleep",), (r"rates", _TIMES)), ((r"rates",),)),
    Fault("sync", "feed", "the loop itself waits for postgres, with all its requests",
          ((r"postgres",), (r"loop",)), ((r"python3",),)),
    Fault("cache", "feed", "the cache is off: postgres makes each page",
          ((r"postgres",),), ((r"redis",),)),
    Fault("hog", "machine", "eight busy processes `hog` take the cpus",
          ((r"hog",),), ((r"machine|cpu",),), "", "machine"),
)  # fmt: skip
FLAGS: Final = [fault.name for fault in FAULTS]


def run_busy(name: str) -> subprocess.Popen[bytes]:
    """Start a busy loop of a name."""
    words = [sys.executable, "-c", _BUSY.format(name=name)]
    return subprocess.Popen(words, start_new_session=True)


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
        process.wait()


@contextlib.contextmanager
def switched_on(fault: Fault, night: Path) -> Iterator[None]:
    """Have a fault while this lasts."""
    with contextlib.ExitStack() as stack:
        if fault.name == "hog":
            busy = [run_busy("hog") for _ in range(4 * (os.cpu_count() or 1))]
            stack.callback(end, busy)
            for process in busy:  # as a container with many shares
                Path(f"/proc/{process.pid}/autogroup").write_text("-4")
        elif fault.name == "quota":
            file = GROUPS / "cpu" / "critpath-night" / "cpu.cfs_quota_us"
            file.write_text("5500")  # of 100 ms
            stack.callback(file.write_text, "-1")
        elif fault.name == "disk":
            device = night.stat().st_dev
            number = f"{os.major(device)}:{os.minor(device)}"
            file = GROUPS / "blkio" / "critpath-night" / "blkio.throttle.read_bps_device"
            file.write_text(f"{number} {10 << 20}")
            stack.callback(file.write_text, f"{number} 0")
        else:
            _set(night, fault.name, 1)
            stack.callback(_set, night, fault.name, 0)
        yield


def _set(night: Path, name: str, value: int) -> None:
    with (night / "flags").open("r+b") as file:
        file.seek(FLAGS.index(name))
        file.write(bytes([value]))
