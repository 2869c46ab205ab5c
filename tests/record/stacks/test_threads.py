"""Which thread has an address of the C library: those that `threading` itself says."""

import os
import platform
import subprocess
import sys
import threading
import time

import pytest

from critpath.record.stacks.pyspy import ThreadWatch

THREADS = """
import threading
end = threading.Event()
threads = [threading.Thread(target=end.wait) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:  # one at a time writes: lines of several may come mixed
    print(thread.ident, thread.native_id, flush=True)
input()
end.set()
"""

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.libc_ver()[0] != "glibc", reason="of glibc on x86-64"
)


def test_threads_of_children_are_known_by_their_address():
    watch = ThreadWatch([os.getpid()])
    with subprocess.Popen(
        [sys.executable, "-c", THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        rows = [list(map(int, child.stdout.readline().split())) for _ in range(3)]
        until = time.monotonic() + 10
        while time.monotonic() < until and not watch.find(child.pid, rows[-1][0], 0):
            time.sleep(0.02)
        child.communicate("\n")
    watch.end()
    assert [watch.find(child.pid, address, 0) for address, _ in rows] == [tid for _, tid in rows]
    assert not watch.find(child.pid, rows[0][0] + 64, 0)
    assert not watch.find(os.getpid(), rows[0][0], 0)


def test_of_two_at_one_address_it_is_the_one_that_had_begun():
    watch = ThreadWatch([os.getpid()])
    found, between = [], []
    for _ in range(2):  # the C library gives the second the description of the first
        ends = threading.Event()
        thread = threading.Thread(target=ends.wait)
        thread.start()
        until = time.monotonic() + 10
        while time.monotonic() < until and (
            watch.find(os.getpid(), thread.ident, time.monotonic_ns()) != thread.native_id
        ):
            time.sleep(0.02)
        found.append((thread.ident, thread.native_id))
        between.append(time.monotonic_ns())
        ends.set()
        thread.join()
    watch.end()
    assert [watch.find(os.getpid(), a, at) for (a, _), at in zip(found, between, strict=True)] == [
        tid for _, tid in found
    ]
