"""System calls of what saves fail, each once, as SQLite tests it: ``trying.py`` says what is right.

All of them, with every error, are ``evaluation/recording/writer_faults.py``.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from failing import Pair, Switch, build
from trying import try_writers

# One of each kind of what is written, and how many of its calls fail by day.
FEW = (
    (6, r"^export (paths|dataset, again|collapsed, again)|^baseline update|^query parquet, again"),
    (8, r"^report, red|^explore|^convert perf.data|^convert Perf.*again|^demo|^record, of"),
    (12, r"^known (remove|relabel)|^known add, a label|^metrics|^costs|^what |state, 2$"),
    (10, r"^incidents|^a dump of a flight"),
    (6, r"^confined: (export dataset, again|baseline update|report, red|known remove|query json)"),
)
pytestmark = pytest.mark.skipif(
    not shutil.which("cc") or not sys.platform.startswith("linux"),
    reason="needs a C compiler, on Linux",
)


@pytest.mark.parametrize(("part", "pattern"), FEW)
def test_whichever_call_fails_the_old_state_is_there_or_the_new(part, pattern):
    # The name of a socket has 107 bytes at most, and pytest's directories are long.
    with tempfile.TemporaryDirectory(prefix="faults-") as place:
        rows = [*try_writers(Path(place), part, pattern)]
    # A library that is not asked, as another C library's names, would prove nothing.
    assert min(row.met for row in rows) > part / 2, rows
    assert len(rows) > pattern.count("|")
    wrong = [f"{row.writer}: {one}" for row in rows for one in row.wrong]
    assert not wrong, "\n".join(wrong[:20])


def run(environment, *words):
    return subprocess.run(
        [sys.executable, "-P", "-m", "critpath", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("before", [False, True])
def test_files_of_a_confined_command_are_all_new_or_all_old(tmp_path, before):
    """A process beside it gives them their names: of four the third does not get its own."""
    switch, out = Switch(tmp_path), tmp_path / "out"
    kinds = ("html", "json", "markdown", "junit")
    places = [word for kind in kinds for word in (f"--{kind}", str(out / kind))]
    golden = Path(__file__).parents[2] / "pure" / "report" / "golden" / "factory.json"
    out.mkdir()
    for kind in kinds if before else ():
        (out / kind).write_text("before")
    environment = {**os.environ, **switch.environment(build(tmp_path))}
    switch.arm(out, pair=Pair("rename", 3, errno.EIO))
    done = run(environment, "report", str(golden), *places)
    assert switch.called == "rename"
    assert done.returncode == 2, done.stderr
    assert {path.name: path.read_text() for path in out.iterdir()} == (
        dict.fromkeys(kinds, "before") if before else {}
    )


def test_a_directory_that_cannot_be_made_leaves_none_of_a_confined_command(tmp_path):
    """It makes two of its own before it reads: the second is refused."""
    switch, out = Switch(tmp_path), tmp_path / "out"
    out.mkdir()
    paths = Path(__file__).parents[3] / "fixtures" / "requests" / "shop.paths"
    words = ("export", str(paths), "--format", "speedscope", "-o", str(out / "made"))
    environment = {**os.environ, **switch.environment(build(tmp_path))}
    switch.arm(out, pair=Pair("mkdir", 2, errno.EDQUOT))
    done = run(environment, *words)
    assert (switch.called, done.returncode) == ("mkdir", 125), done.stderr
    assert len(done.stderr.splitlines()) == 2
    assert not [*out.iterdir()]
