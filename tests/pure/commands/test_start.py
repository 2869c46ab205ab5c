"""How little is imported before something is done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import critpath
from critpath.commands import VERBS, main
from critpath.commands.overview import help_text
from critpath.commands.parser import build_parser

ROOT = Path(__file__).resolve().parents[3]
LISTED = """
import sys
from critpath.commands import main
code = main(sys.argv[1:])
print(*sorted(sys.modules), sep="\\n", file=sys.stderr)
sys.exit(code)
"""


def modules(*arguments: str, bare: bool = False) -> set[str]:
    """What has been imported when a command has ended; bare: without an installation's."""
    options = ["-S"] if bare else []
    done = subprocess.run(
        [sys.executable, *options, "-c", LISTED, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT if bare else None,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="argparse shows colours there")
def test_help_is_what_argparse_makes_of_the_grammar(monkeypatch, capsys):
    parser = build_parser(VERBS)
    for width in (*range(50, 130), 200, 500):
        monkeypatch.setenv("COLUMNS", str(width + 2))
        assert help_text(width) == parser.format_help(), width
        assert main(["--help"]) == 0
        assert capsys.readouterr().out == parser.format_help()


def test_help_for_a_narrow_terminal_is_argparse_s_own(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "30")
    assert help_text(28) is None
    assert main(["-h"]) == 0
    assert "COMMAND" in capsys.readouterr().out


def test_help_imports_next_to_nothing():
    # os and what belongs to it: Python imports them itself where there is a site directory.
    listed = [sys.executable, "-S", "-c", "import os, sys; print(*sys.modules)"]
    bare = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()
    more = {name.partition(".")[0] for name in modules("--help", bare=True) - {*bare}}
    assert more <= {"critpath", "__future__", "gc"}


def test_a_path_needs_no_library_of_statistics_or_graphs(guest):
    found = {name.partition(".")[0] for name in modules("path", guest("plain") / "trace")}
    assert "numpy" in found
    assert not found & {"sklearn", "scipy", "Bio", "networkx", "pyarrow"}


def test_other_verbs_are_not_imported():
    found = {name for name in modules("path", "--help") if name.startswith("critpath.commands.")}
    assert not found & {f"critpath.commands.{verb}" for verb in VERBS if verb != "path"}


def test_marks_are_imported_when_asked_for():
    code = "import sys, critpath; a = 'critpath_marks' in sys.modules\n"
    code += "from critpath import execution, mark; print(a, execution.__name__, mark.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False execution mark\n"
    with pytest.raises(AttributeError, match="no attribute 'marks'"):
        critpath.marks  # noqa: B018 - it raises
