"""What a command and the package import, and what not: it would be waited for on every run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import critpath
from critpath.commands import VERBS

ROOT = Path(__file__).resolve().parents[3]
SLOW = {"numpy", "scipy", "sklearn", "pyarrow", "networkx", "Bio", "rich", "bt2", "pandas"}

# Runs commands, one per line of arguments, and says what is imported then.
RUN = """
import sys
from critpath.commands import main
code = 0
for line in sys.argv[1].splitlines():
    code = code or main(line.split("\\t"))
print(*sorted(sys.modules), sep="\\n", file=sys.stderr)
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
main(sys.argv[1].split("\\t"))
print(*sorted(found), file=sys.stderr)
"""

IMPORTED = """
import sys
def there(*names):
    return sorted({*names} & {*sys.modules})
before = set(sys.modules)
import critpath
assert set(sys.modules) - before == {"critpath"}, set(sys.modules) - before
critpath.UsageError, critpath.execution
print(there("numpy"))
from critpath import execution, mark
print(execution.__name__, mark.__name__, there("numpy"))
import critpath.model as model
[getattr(model, name) for name in model.__all__]
print(there("pyarrow", "pandas", "polars"))
"""


def run(program: str, *options: str, given: str = "", where: Path | None = None):
    done = subprocess.run(
        [sys.executable, *options, "-c", program, given],
        capture_output=True,
        text=True,
        check=False,
        cwd=where,
    )
    assert done.returncode == 0, done.stderr
    return done


def modules(*commands: tuple[object, ...]) -> set[str]:
    """Return what is imported when these commands have ended, one after another."""
    given = "\n".join("\t".join(map(str, command)) for command in commands)
    return set(run(RUN, given=given).stderr.split())


def packages(found: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in found}


def test_help_imports_next_to_nothing():
    # Without an installation's own; os and what belongs to it Python imports itself.
    bare = run("import os, sys; print(*sys.modules)", "-S").stdout.split()
    more = set(run(RUN, "-S", given="--help", where=ROOT).stderr.split()) - {*bare}
    assert packages(more) <= {"critpath", "__future__", "gc"}


def test_help_and_settings_import_nothing_slow_and_no_other_verb():
    found = modules(("path", "--help"), ("--help",), ("--show-config",))
    assert not packages(found) & SLOW
    of_verbs = {f"critpath.commands.{verb}" for verb in VERBS if verb != "path"}
    assert not found & of_verbs


def test_a_path_needs_no_library_of_statistics_or_graphs(guest):
    found = packages(modules(("path", guest("plain") / "trace")))
    assert "numpy" in found
    assert not found & {"sklearn", "scipy", "Bio", "networkx", "pyarrow"}


def test_saving_paths_imports_nothing_it_does_not_need(extracted, tmp_path):
    """Not pandas either, which pyarrow's converters import wherever it is installed."""
    out = tmp_path / "paths.parquet"
    words = ("--quiet", "export", "--format", "paths", extracted("normal-2"), "-o", out)
    assert not packages(modules(words, ("path", out))) & {"pandas", "sklearn", "Bio", "networkx"}


def test_a_comparison_imports_our_modules_before_its_threads_work(extracted, tmp_path):
    words = ("--quiet", "compare", extracted("normal"), extracted("sample-lock"))
    given = "\t".join(map(str, (*words, "--html", tmp_path / "report.html")))
    assert run(IN_THREADS, given=given).stderr == "\n"


def test_the_package_imports_what_is_asked_for():
    """Nothing for itself; marks without numpy; what holds the facts without Arrow."""
    assert run(IMPORTED).stdout == "[]\nexecution mark []\n[]\n"
    with pytest.raises(AttributeError, match="no attribute 'marks'"):
        critpath.marks  # noqa: B018 - it raises


def test_the_fixture_of_pytest_imports_no_numpy_until_it_is_used():
    program = "import sys, critpath.pytest_gate; print('numpy' in sys.modules)"
    assert run(program).stdout == "False\n"
