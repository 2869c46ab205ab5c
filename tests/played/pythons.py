"""Pythons of several versions, where they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path


@cache
def find_python(minor: int) -> str | None:
    """Return a Python 3 of this version that runs, None without one."""
    if minor == sys.version_info[1]:
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    code = "import sys; print(sys.version_info[1])"
    for place in (*pyenv.glob(f"3.{minor}.*/bin/python"), shutil.which(f"python3.{minor}")):
        if place is None:
            continue
        done = subprocess.run([place, "-c", code], capture_output=True, text=True, check=False)
        if done.stdout == f"{minor}\n":  # pyenv's stand-ins end in an error
            return str(place)
    return None


def find_pythons(*minors: int) -> list[str]:
    """Return a Python 3 of each of these versions that is here."""
    return [found for minor in minors if (found := find_python(minor)) is not None]
