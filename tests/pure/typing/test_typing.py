"""The API's types are part of what is promised: a user's file passes mypy --strict."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import critpath
import critpath_marks

USER = Path(__file__).with_name("user.py")
WRONG = """\
import critpath as cp
cp.extract(3)
cp.extract('a').nothing
cp.compare('a', 'b').causes[0].nothing
cp.nothing
cp.CompareSettings(alpha='')
"""


def test_a_users_file_passes_and_a_wrong_one_does_not(tmp_path, monkeypatch):
    mypy = pytest.importorskip("mypy.api")
    places = {Path(each.__file__).resolve().parent.parent for each in (critpath, critpath_marks)}
    # Of an editable install mypy has to be told; what is installed it finds.
    paths = os.pathsep.join(str(p) for p in places if p.name != "site-packages")
    monkeypatch.setenv("MYPYPATH", paths)
    settings, wrong = tmp_path / "mypy.ini", tmp_path / "wrong.py"
    # Of the package itself only its types matter here.
    settings.write_text("[mypy]\nstrict = True\nfollow_imports = silent\n")
    wrong.write_text(WRONG)
    options = ("--config-file", settings, "--no-incremental", "--cache-dir", os.devnull)
    out, err, _ = mypy.run([*map(str, options), str(USER), str(wrong)])
    found = [
        line.rpartition("/")[2].split(":")[:2] for line in out.splitlines() if ": error" in line
    ]
    assert found == [["wrong.py", number] for number in "23456"], out + err


def test_it_uses_every_name():
    text = USER.read_text(encoding="utf-8")
    assert [name for name in critpath.__all__ if f"cp.{name}" not in text] == []
