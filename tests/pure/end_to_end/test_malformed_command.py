"""Traces on which babeltrace2 crashes or hangs, through the whole command: an exit code, soon."""

from __future__ import annotations

import json
import subprocess
import sys
import time

# What the program did with them: crashed, hung or ran out of memory.
CRASHES = {"134", "136", "139", "124", "137"}


def test_what_crashes_or_hangs_babeltrace2_is_refused_or_salvaged(shared, critpath):
    root = shared("malformed")
    rows = [r.split("\t") for r in (root / "babeltrace2.tsv").read_text().splitlines()]
    cases = [r[0] for r in rows[1:] if CRASHES & {w.split("=")[-1].strip() for w in r[1:3]}]
    assert len(cases) >= 13
    for case in cases:
        begin = time.process_time()
        done = critpath("path", root / case, "--execution", "thread", "--quiet")
        assert done.returncode in {0, 2, 3, 4}, (case, done.stderr)
        if done.returncode == 4:
            assert len(done.stderr.splitlines()) == 2, case  # what, and what to do
        assert "Traceback" not in done.stderr
        assert time.process_time() - begin < 2, case


# In one process: what all take together is at least what any of them does.
ALL = """
import contextlib, io, json, sys
from critpath.commands import main
codes = {}
for case in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        codes[case] = main(["path", case, "--execution", "thread", "--quiet"])
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
print(json.dumps([codes, peak]))
"""


def test_no_malformed_trace_takes_more_than_512_mib(shared):
    root = shared("malformed")
    cases = [str(m.parent) for m in sorted(root.rglob("metadata")) if m.is_file()]
    assert len(cases) >= 91
    done = subprocess.run(
        [sys.executable, "-c", ALL, *cases], capture_output=True, text=True, check=True
    )
    codes, peak = json.loads(done.stdout)
    assert set(codes.values()) <= {0, 2, 3, 4}
    assert peak < 512 << 10  # KiB
