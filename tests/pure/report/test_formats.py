"""The table of formats holds together: whoever adds one is told what is missing."""

from __future__ import annotations

import re
from importlib import import_module
from itertools import combinations
from pathlib import Path

import pytest

from critpath.report import exports
from critpath.report.exports import ALIGNMENTS, FORMATS, PATHS, WINDOW

ROOM = Path(exports.__file__).parent
COMMANDS = Path(__file__).parents[3] / "docs" / "commands.md"
# Written by commands of their own: they are not of paths, or a directory.
APART = {"as_otlp"}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_written_by_somebody(name):
    format_, missing = FORMATS[name], []
    module, _, function = format_.writer.partition(".")
    if not (ROOM / f"{module}.py").is_file():
        missing.append(f"critpath/report/exports/{module}.py: the module that writes it")
    elif not callable(getattr(import_module(f"critpath.report.exports.{module}"), function, None)):
        missing.append(f"critpath/report/exports/{module}.py: the function {function}")
    if format_.of not in {ALIGNMENTS, PATHS, WINDOW}:
        missing.append("critpath/report/exports/formats.py: what it is made of")
    if not format_.endings or not all(one.startswith(".") for one in format_.endings):
        missing.append("critpath/report/exports/formats.py: how its files end")
    if name not in re.findall(r"[\w-]+", COMMANDS.read_text(encoding="utf-8")):
        missing.append("docs/commands.md: run make docs")
    assert not missing, "\n".join(["", *missing])


def test_every_writer_has_a_row():
    written = {format_.writer.partition(".")[0] for format_ in FORMATS.values()} | APART
    modules = {file.stem for file in ROOM.glob("as_*.py")}
    assert modules <= written, "critpath/report/exports/formats.py: a row in FORMATS"


def test_one_ending_says_one_format_or_asks():
    shared = {
        (one, other)
        for one, other in combinations(FORMATS, 2)
        if {*FORMATS[one].endings} & {*FORMATS[other].endings}
    }
    assert shared == {("segments", "vectors")}
