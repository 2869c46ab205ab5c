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

# In pytest, Python 3.11 fails where two threads parse modules at the same time, and pytest parses
# those of its plugins anew, of which critpath is one.
IN_THREADS = """
import builtins, sys, threading
plain, found = builtins.__import__, set()
def watched(*given, **named):
    known = set(sys.modules)
    module = plain(*given, **named)
    if threading.current_thread() is not threading.main_thread():
        found.update(name for name in set(sys.modules) - known if name.startswith("critpath"))
    return module
builtins.__import__ = watched
from critpath.commands import main
main(sys.argv[1:])
print(sorted(found))
"""


def imported(*words, program=PROGRAM) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
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


def test_a_comparison_imports_our_modules_before_its_threads_work(guest, tmp_path):
    words = ("--quiet", "compare", guest("normal"), guest("sample-lock"))
    named = ("--execution", REQUESTS, "--html", tmp_path / "report.html")
    assert imported(*words, *named, program=IN_THREADS) == "[]"
