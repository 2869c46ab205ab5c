"""Events a second of the native reader, as a ratio to babeltrace2 on the same trace."""

from __future__ import annotations

import resource
import shutil
import statistics
import subprocess
import sys
import time

import pytest

from critpath.read.layout import KERNEL
from critpath.read.recording import read_events

pytestmark = pytest.mark.benchmark
ROUNDS = 7


def babeltrace2_seconds(path):
    """CPU time of the command that only counts: it decodes and merges every event."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["babeltrace2", str(path), "-o", "dummy"], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.skipif(not shutil.which("babeltrace2"), reason="needs the babeltrace2 command")
@pytest.mark.parametrize("name", ["public/selora-namespace_live", "public/tc-many-threads"])
def test_native_reader_against_babeltrace2(shared, name, capsys):
    path = shared(name)
    total = read_events(path, KERNEL).total
    ours, theirs = [], []
    for _ in range(ROUNDS):
        begin = time.process_time()
        read_events(path, KERNEL)
        ours.append(time.process_time() - begin)
        theirs.append(babeltrace2_seconds(path))
    mine, its = statistics.median(ours), statistics.median(theirs)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{name}: {total:,} events; critpath {total / mine / 1e6:.1f} M/s with metadata"
            f" and KERNEL's columns, babeltrace2 -o dummy {total / its / 1e6:.2f} M/s,"
            f" ratio {its / mine:.1f}\n"
        )
    assert mine < its
