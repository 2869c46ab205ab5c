"""critpath-marks by itself: installed by pip in old and new Pythons, where it marks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import pytest

import critpath
import critpath_marks

ROOT = Path(__file__).resolve().parents[3]
MARKS = ROOT / "marks"
SUPPORTED = range(8, 15)  # of Python 3

# Every kind of mark, in words that Python 3.8 understands.
PROGRAM = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from critpath_marks import channels, execution, mark
channels.LOGGER_FILE = sys.argv[2]  # LTTng's, which is written to as it is

@execution("function")
def function():
    pass

@execution("coroutine")
async def coroutine():
    await asyncio.sleep(0)

@execution("generator")
def generator():
    yield 1

@execution("asynchronous-generator")
async def asynchronous_generator():
    await asyncio.sleep(0)
    yield 1

class Page:
    @execution("static")
    @staticmethod
    def static():
        pass

async def use():
    await asyncio.gather(coroutine(), coroutine())
    return [x async for x in asynchronous_generator()]

with execution("block", key="a b"):
    function()
list(generator())
assert asyncio.run(use()) == [1]
Page.static()
mark("begin", "pair", key=7)
mark("end", "pair", key=7)
with execution("long" * 200):
    pass
assert "numpy" not in sys.modules and "critpath" not in sys.modules
print("done")
"""
# How often each is an execution.
NAMES = {
    "asynchronous-generator": 1,
    "block": 1,
    "coroutine": 2,
    "function": 1,
    "generator": 1,
    "pair": 1,
    "static": 1,
}


def run(*command, **environment):
    clean = {
        name: v for name, v in os.environ.items() if not name.startswith(("PYTHON", "CRITPATH"))
    }
    return subprocess.run(
        command, env={**clean, **environment}, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Return the wheel that pip makes of the folder where there is no compiler."""
    place = tmp_path_factory.mktemp("wheel")
    words = ("wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "-w", place, MARKS)
    nothing = {"PATH": str(place), "CC": "/nonexistent/cc"}
    done = run(sys.executable, "-m", "pip", *words, **nothing)
    if done.returncode and "flit" in done.stderr and "No matching distribution" in done.stderr:
        pytest.skip("no package index is reached: flit-core cannot be installed")
    assert done.returncode == 0, done.stderr
    [made] = place.iterdir()
    return made


def find_python(minors):
    """Return the first Python of these versions that is here and has pip."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in minors:
        for place in (*pyenv.glob(f"3.{minor}.*/bin/python"), shutil.which(f"python3.{minor}")):
            # pyenv's stand-ins end in an error
            code = "import sys, pip; print(sys.version_info[1])"
            if place is not None and run(place, "-c", code).stdout == f"{minor}\n":
                return place
    return sys.executable


@pytest.mark.parametrize("minors", [SUPPORTED, SUPPORTED[::-1]], ids=["oldest", "newest"])
def test_it_marks(minors, tmp_path):
    """From its folder, as it is installed."""
    check_marks(find_python(minors), MARKS, tmp_path)


@pytest.mark.deep
@pytest.mark.parametrize("minors", [SUPPORTED, SUPPORTED[::-1]], ids=["oldest", "newest"])
def test_nothing_else_is_installed_and_it_marks(wheel, minors, tmp_path):
    python, place = find_python(minors), tmp_path / "installed"
    words = ("install", "--quiet", "--disable-pip-version-check", "--no-index", "--target", place)
    done = run(python, "-m", "pip", *words, wheel)
    assert done.returncode == 0, done.stderr
    there = {p.name for p in place.iterdir()}
    assert there == {"critpath_marks", f"critpath_marks-{critpath_marks.__version__}.dist-info"}
    assert "py3-none-any" in wheel.name
    check_marks(python, place, tmp_path)


def check_marks(python, place, tmp_path):
    """Run a program with all kinds of marks, which finds the package there."""
    log = tmp_path / "logger"
    log.touch()
    program = ("-I", "-W", "error", "-c", PROGRAM, place, log)
    done = run(python, *program, CRITPATH_RECORDER="lttng-logger")
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)
    for what in ("begin", "end"):
        names = re.findall(rf"^critpath:{what} (\S+)", log.read_text(), re.MULTILINE)
        assert {n: c for n, c in Counter(names).items() if not n.startswith("long")} == NAMES


def test_critpath_marks_are_critpaths():
    assert critpath.execution is critpath_marks.execution
    assert critpath.mark is critpath_marks.mark
    assert critpath_marks.__version__ == critpath.__version__ == version("critpath-core")


def test_the_license_is_the_same():
    assert (MARKS / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_every_module_is_in_critpaths_wheel_too():
    listed = (MARKS / "meson.build").read_text(encoding="utf-8")
    modules = [p.name for p in (MARKS / "critpath_marks").iterdir() if p.suffix]
    assert [name for name in modules if f"'critpath_marks/{name}'" not in listed] == []
