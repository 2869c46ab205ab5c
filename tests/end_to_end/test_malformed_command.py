"""Traces on which babeltrace2 crashes or hangs, through the whole command: an exit code, soon."""

from __future__ import annotations

import time

# What the program did with them: crashed, hung or ran out of memory.
CRASHES = {"134", "136", "139", "124", "137"}


def test_what_crashes_or_hangs_babeltrace2_is_refused_or_salvaged(shared, inside):
    root = shared("malformed")
    rows = [r.split("\t") for r in (root / "babeltrace2.tsv").read_text().splitlines()]
    cases = [r[0] for r in rows[1:] if CRASHES & {w.split("=")[-1].strip() for w in r[1:3]}]
    assert len(cases) >= 13
    for case in cases:
        begin = time.process_time()
        done = inside("path", root / case, "--execution", "thread", "--quiet")
        assert done.returncode in {0, 2, 3, 4}, (case, done.stderr)
        if done.returncode == 4:
            assert len(done.stderr.splitlines()) == 2, case  # what, and what to do
        assert "Traceback" not in done.stderr
        assert time.process_time() - begin < 2, case
