"""A program with several kinds of executions, to record and to see a fault found in.

``python -m critpath.commands.workload --seed N --executions N --fault NAME`` runs each kind
as often as the others, in a random order, marked with `critpath_marks.execution`:

========== ======================================================================
compute    computes
sleep      sleeps
pipe       asks a process called ``helper``, which computes, and waits for its answer
lock       waits for a lock that a thread called ``holder`` has
write      writes a file and waits for the disk
mix        a little of each
========== ======================================================================

A fault slows down some executions of one kind, by a cause that an analysis should name:

========== ======================================================================
delay      ``helper`` sleeps before it answers (pipe)
lock       ``holder`` keeps the lock longer (lock)
fsync      a file is written to the disk in between (compute)
cpu        a process called ``intruder`` computes on the same cpu (compute)
========== ======================================================================
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import mmap
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Self

from critpath_marks import execution

KINDS: Final = ("compute", "sleep", "pipe", "lock", "write", "mix")
# Each fault, and the kind of executions that it slows down.
FAULTS: Final = {"delay": "pipe", "fsync": "compute", "lock": "lock", "cpu": "compute"}
FAULTY_SHARE: Final = 0.4

_WARMING: Final = 3
_BLOCK: Final = bytes(1 << 16)
_PAGE: Final = bytes(1 << 12)
_SMALL, _LARGE = 50, 200  # blocks to hash: 2 and 8 ms, where one takes 40 us
_BURST: Final = 25
_LET_WAIT: Final = 0.0003  # seconds
_WRITES: Final = 16
_DELAY: Final = 0.012  # seconds
_WRITING: Final = 0.012  # seconds, however fast the disk is


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="critpath.commands.workload", allow_abbrev=False)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--executions", type=int, default=120, help="of all kinds together")
    parser.add_argument("--fault", choices=sorted(FAULTS), default=None)
    parser.add_argument("--directory", type=Path, default=None, help="on a disk, to write to")
    given = parser.parse_args(arguments)
    schedule = plan(given.seed, given.executions, given.fault)
    # One cpu for all of it: how long something takes must not depend on which are free.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    # Processes come before threads.
    with (
        _Process("intruder", _intrude) as intruder,
        _lower_priority(),
        _Process("helper", _help) as helper,
        _Holder() as holder,
        tempfile.TemporaryFile(dir=given.directory) as file,
    ):
        name_thread("workload")
        work = Workload(helper, intruder, holder, file.fileno())
        for kind in KINDS * _WARMING:
            work.kinds[kind]("")
        for number, (kind, fault) in enumerate(schedule):
            with execution(kind, key=number):
                work.kinds[kind](fault)
    return 0


def plan(seed: int, executions: int, fault: str | None) -> list[tuple[str, str]]:
    """Return the kind of each execution and its fault, "" for none.

    The order does not depend on the fault.
    """
    chance = random.Random(seed)  # noqa: S311 - a schedule, not a secret
    order = [KINDS[i % len(KINDS)] for i in range(executions)]
    chance.shuffle(order)
    target = FAULTS.get(fault or "")
    mine = [i for i, kind in enumerate(order) if kind == target]
    faulty = set(chance.sample(mine, round(len(mine) * FAULTY_SHARE)))
    return [(kind, fault if fault and i in faulty else "") for i, kind in enumerate(order)]


class Workload:
    """The kinds of executions, each a function of its fault ("" for none)."""

    def __init__(self, helper: _Process, intruder: _Process, holder: _Holder, file: int) -> None:
        self._helper, self._intruder, self._holder, self._file = helper, intruder, holder, file
        self.kinds: dict[str, Callable[[str], None]] = {
            "compute": self._compute,
            "sleep": lambda _: time.sleep(0.006),
            "pipe": self._pipe,
            "lock": self._lock,
            "write": lambda _: self._write(_WRITES),
            "mix": self._mix,
        }

    def _compute(self, fault: str) -> None:
        if fault == "cpu":
            self._intruder.begin()
        compute(_LARGE)
        if fault == "cpu":
            self._intruder.end()
        if fault == "fsync":
            enough = time.monotonic() + _WRITING
            while time.monotonic() < enough:
                self._write(1)

    def _pipe(self, fault: str) -> None:
        self._helper.ask(b"slow" if fault == "delay" else b"fast")

    def _lock(self, fault: str) -> None:
        self._holder.wait(_SMALL * (6 if fault == "lock" else 1))

    def _write(self, times: int) -> None:
        for _ in range(times):
            os.pwrite(self._file, _PAGE, 0)
            os.fsync(self._file)

    def _mix(self, _: str) -> None:
        compute(_SMALL)
        self._pipe("")
        self._lock("")
        time.sleep(0.002)


class _Process:
    """A child process that answers; it ends with this one."""

    def __init__(self, name: str, answer: Callable[[bytes, mmap.mmap], None]) -> None:
        self._flag = mmap.mmap(-1, mmap.PAGESIZE)  # shared with the process
        there, self._ask = os.pipe()
        self._answer, back = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.close(self._ask)
                os.close(self._answer)
                name_thread(name)
                while question := os.read(there, 4):
                    answer(question, self._flag)
                    os.write(back, b"done")
            finally:
                os._exit(0)
        os.close(there)
        os.close(back)

    def ask(self, question: bytes) -> None:
        """Ask and wait for the answer."""
        os.write(self._ask, question)
        os.read(self._answer, 4)

    def begin(self) -> None:
        """Start its work without waiting."""
        self._flag[0] = 1
        os.write(self._ask, b"work")

    def end(self) -> None:
        """Stop its work; it may notice a little later."""
        self._flag[0] = 0
        os.read(self._answer, 4)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._ask)
        os.waitpid(self._pid, 0)
        os.close(self._answer)


class _Holder:
    """A thread that on request takes a lock, computes, and releases it."""

    def __init__(self) -> None:
        self._lock, self._has_it, self._told = (
            threading.Lock(),
            threading.Semaphore(0),
            threading.Semaphore(0),
        )
        self._blocks = 0
        self._thread = threading.Thread(target=self._hold, name="holder", daemon=True)

    def wait(self, blocks: int) -> None:
        """Have the thread compute while it holds the lock, and wait for the lock."""
        self._blocks = blocks
        self._told.release()
        self._has_it.acquire()
        with self._lock:
            pass

    def _hold(self) -> None:
        name_thread("holder")
        while True:
            self._told.acquire()
            if not self._blocks:
                return
            with self._lock:
                self._has_it.release()
                # On one cpu, it would else have computed before the other waits.
                time.sleep(_LET_WAIT)
                compute(self._blocks)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._blocks = 0
        self._told.release()
        self._thread.join()


def _help(question: bytes, _: mmap.mmap) -> None:
    if question == b"slow":
        time.sleep(_DELAY)
    compute(_SMALL)


def _intrude(_: bytes, flag: mmap.mmap) -> None:
    # In bursts: with a real-time priority it would not share the cpu otherwise.
    while flag[0]:
        compute(_BURST)
        time.sleep(0.001)


def compute(blocks: int) -> None:
    """Compute for a while without Python's lock, so that other threads can run."""
    for _ in range(blocks):
        hashlib.sha256(_BLOCK).digest()


def name_thread(name: str) -> None:
    """Name the calling thread, as the kernel and its traces show it."""
    with contextlib.suppress(OSError):
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name, "ascii")


@contextlib.contextmanager
def _lower_priority() -> Iterator[None]:
    """Lower a real-time priority by one: less than that of ``intruder``."""
    mine = os.sched_getparam(0).sched_priority
    if mine > 1:
        os.sched_setscheduler(0, os.sched_getscheduler(0), os.sched_param(mine - 1))
    yield


if __name__ == "__main__":
    try:
        code = main()
    except KeyboardInterrupt:  # the recorder reports it
        code = 130
    raise SystemExit(code)
