"""Every thread there is, from /proc: who runs before the trace's first event."""

from __future__ import annotations

import os
import time
from typing import Final

from critpath_marks.sessions import pid_namespace

# One thread: ns, tid, tgid, ppid, comm, state, cpu, kernel thread (0 or 1), pid namespace.
Row = tuple[int, int, int, int, str, str, int, int, int]

_KERNEL_THREAD: Final = 0x0020_0000  # PF_KTHREAD, include/linux/sched.h
_COMM_BYTES: Final = 15


def scan() -> list[Row]:
    """Return a row for every thread; one that exits meanwhile is left out.

    Returns
    -------
    list of tuple
        ``ns`` (CLOCK_MONOTONIC, when it was read), ``tid``, ``tgid``, ``ppid``, ``comm``
        (as the kernel's events have it), ``state`` (a letter), ``cpu`` (last), ``1`` for a
        kernel thread, inode of its pid namespace (0 for kernel threads, or if unknown).
    """
    rows: list[Row] = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - no object per thread: this is timed
        if not name.isdecimal():
            continue
        namespace = -1
        try:
            threads = os.listdir(f"/proc/{name}/task")  # noqa: PTH208 - as above
        except OSError:
            continue
        for tid in threads:
            try:
                with open(f"/proc/{name}/task/{tid}/stat", "rb") as stream:  # noqa: PTH123 - as above
                    text = stream.read()
                row = _row(text, int(tid), int(name))
            except (OSError, ValueError, IndexError):
                continue
            if row[7] == 0:
                namespace = pid_namespace(name) if namespace < 0 else namespace
                row = (*row[:8], namespace)
            rows.append(row)
    return rows


def _row(text: bytes, tid: int, tgid: int) -> Row:
    # The name may hold brackets and spaces: the last bracket is the one that counts.
    before, _, after = text.rpartition(b")")
    comm = before.partition(b"(")[2]
    fields = after.split()
    kernel = int(bool(int(fields[6]) & _KERNEL_THREAD))
    if kernel and comm.startswith(b"kworker/") and not comm.startswith(b"kworker/R-"):
        # /proc adds what a worker is busy with; the scheduler's events do not.
        comm = comm.partition(b"-")[0].partition(b"+")[0]
    return (
        time.monotonic_ns(),
        tid,
        tgid,
        int(fields[1]),
        comm[:_COMM_BYTES].decode("utf-8", errors="replace"),
        fields[0].decode("ascii", errors="replace"),
        int(fields[36]),
        kernel,
        0,
    )
