"""Which control groups every process is in, from /proc: a trace only tells of moves."""

from __future__ import annotations

import os
import time
from typing import Final

# ns, process, number of the hierarchy, path.
Row = tuple[int, int, int, str]

_UNIFIED: Final = 0  # number of version 2's one hierarchy


def scan_cgroups() -> list[Row]:
    """Return a row for every process and hierarchy.

    The roots of version 1's hierarchies, in which most processes are, are left out.

    Returns
    -------
    list of tuple
        ``ns`` (CLOCK_MONOTONIC, just before it was read), ``tgid``, the number of the hierarchy
        as `cgroup_attach_task` has it in ``dst_root``, and the path below its root.
    """
    rows: list[Row] = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - no object per process: this is timed
        if not name.isdecimal():
            continue
        # Before it is read: what a move says, even one that comes right then, is newer.
        now = time.monotonic_ns()
        try:
            with open(f"/proc/{name}/cgroup", "rb") as stream:  # noqa: PTH123 - as above
                text = stream.read()
        except OSError:
            continue
        for line in text.decode("utf-8", "replace").splitlines():
            number, _, rest = line.partition(":")
            path = rest.partition(":")[2]
            if number.isdecimal() and path and (path != "/" or int(number) == _UNIFIED):
                rows.append((now, int(name), int(number), path))
    return rows
