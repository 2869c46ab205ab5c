"""The API's types are part of what is promised: a user's file passes mypy --strict."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import critpath
import critpath_marks

USER = Path(__file__).with_name("user.py")


def check(file, tmp_path):
    settings = tmp_path / "mypy.ini"
    # Of the package itself only its types matter here.
    settings.write_text("[mypy]\nstrict = True\nfollow_imports = silent\n")
    command = [sys.executable, "-m", "mypy", "--config-file", settings, "--cache-dir", tmp_path]
    places = {Path(each.__file__).resolve().parent.parent for each in (critpath, critpath_marks)}
    # Of an editable install mypy has to be told; what is installed it finds.
    paths = os.pathsep.join(str(p) for p in places if p.name != "site-packages")
    return subprocess.run(
        [*command, file],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": paths},
        check=False,
    )


def test_a_users_file_passes_and_a_wrong_one_does_not(tmp_path):
    done = check(USER, tmp_path)
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "import critpath as cp\ncp.extract(3)\ncp.extract('a').nothing\n"
        "cp.compare('a', 'b').causes[0].nothing\ncp.nothing\ncp.CompareSettings(alpha='')\n"
    )
    lines = [line for line in check(wrong, tmp_path).stdout.splitlines() if "error:" in line]
    assert [line.split(":")[1] for line in lines] == ["2", "3", "4", "5", "6"], lines


def test_it_uses_every_name():
    text = USER.read_text(encoding="utf-8")
    assert [name for name in critpath.__all__ if f"cp.{name}" not in text] == []
