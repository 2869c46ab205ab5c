"""What a command does not import: it would be waited for on every run."""

from __future__ import annotations

import subprocess
import sys

REQUESTS = "events:app:request_begin,app:request_end,key=id"

PROGRAM = """
import sys
from critpath.commands import main
code = main(sys.argv[1:])
print(sorted({"pandas", "sklearn", "Bio", "networkx"} & sys.modules.keys()))
sys.exit(code)
"""


def imported(*words) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_saving_paths_imports_nothing_it_does_not_need(guest, tmp_path):
    """Not pandas either, which pyarrow's converters import wherever it is installed."""
    out = tmp_path / "paths.parquet"
    words = ("--quiet", "extract", guest("normal-2"), "--execution", REQUESTS, "-o", out)
    assert imported(*words) == "[]"
    assert imported("path", out) == "[]"
