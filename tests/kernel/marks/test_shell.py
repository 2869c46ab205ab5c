"""``critpath mark`` and the shell's own line, as the kernel sees them."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from critpath_marks import channels


def test_a_shell_script_marks_in_the_kernel(tracefs_instance):
    script = """
        echo $$
        "$0" -m critpath mark begin backup --strict
        echo "critpath:begin quick" > "$CRITPATH_MARKER"
        echo "critpath:end quick" > "$CRITPATH_MARKER"
        "$0" -m critpath mark end backup --strict
    """
    done = subprocess.run(
        ["sh", "-c", script, sys.executable],
        env={**os.environ, channels.MARKER: str(tracefs_instance / "trace_marker")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    shell = int(done.stdout)
    lines = (tracefs_instance / "trace").read_text().splitlines()
    found = [re.search(r"-(\d+) +\[.*: critpath:(.*)$", line) for line in lines]
    marks = [(int(m[1]), m[2]) for m in found if m]
    assert [re.sub(r"@\d+:", "@", text) for _, text in marks] == [
        f"begin backup @{shell}", "begin quick", "end quick", f"end backup @{shell}",
    ]  # fmt: skip
    assert [tid == shell for tid, _ in marks] == [False, True, True, False]
