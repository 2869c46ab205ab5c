"""Chunks that are decoded in the background, where processes end or fork."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from pure.read.test_ahead import many
from pure.read.test_decode_packets import VALUES, trace

from critpath.read.streaming import EventStream


def test_an_interpreter_ends_though_nothing_was_closed():
    code = (
        "import sys, critpath.read.streaming as a\n"
        "ahead = a.Prefetcher(lambda: 1, 2)\nprint(ahead.next())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_process_that_forks_between_chunks_goes_on(tmp_path):
    of = trace(tmp_path, many())
    with EventStream([of], VALUES, 100, ahead=2) as stream:
        first = len(next(stream))
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert first + sum(map(len, stream)) == 27000
