"""critpath-marks by itself: installed by pip in old and new Pythons, and recorded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import critpath
import critpath_marks
from critpath.record.ftrace.recorder import missing_requirements

ROOT = Path(__file__).resolve().parents[2]
MARKS = ROOT / "marks"

# Every kind of mark, in words that Python 3.8 understands.
PROGRAM = """
import asyncio, sys, time
from critpath_marks import execution, mark

@execution("function")
def function():
    time.sleep(0.002)

@execution("coroutine")
async def coroutine():
    await asyncio.sleep(0.002)

@execution("generator")
def generator():
    yield time.sleep(0.002)

@execution("asynchronous-generator")
async def asynchronous_generator():
    await asyncio.sleep(0.002)
    yield 1

class Page:
    @execution("static")
    @staticmethod
    def static():
        time.sleep(0.002)

async def use():
    await asyncio.gather(coroutine(), coroutine())
    return [x async for x in asynchronous_generator()]

with execution("block", key="a b"):
    function()
list(generator())
assert asyncio.run(use()) == [1]
Page.static()
mark("begin", "pair", key=7)
time.sleep(0.002)
mark("end", "pair", key=7)
with execution("long" * 200):
    time.sleep(0.002)
assert "numpy" not in sys.modules and "critpath" not in sys.modules
print("done")
"""
NAMES = {
    *("asynchronous-generator", "block", "coroutine", "function"),
    *("generator", "pair", "static"),
}


def pythons() -> list[str]:
    """Return the oldest and the newest Python that are here and that the marks support."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = {}
    for minor in range(8, 14):
        for place in (*pyenv.glob(f"3.{minor}.*/bin/python"), shutil.which(f"python3.{minor}")):
            if place is None:
                continue
            code = "import sys, venv, ensurepip; print(sys.version_info[1])"
            done = subprocess.run([place, "-c", code], capture_output=True, text=True, check=False)
            if done.stdout == f"{minor}\n":  # pyenv's stand-ins end in an error
                found.setdefault(minor, str(place))
    return list(dict.fromkeys([found[min(found)], found[max(found)]])) if found else []


@pytest.fixture(scope="module", params=pythons() or [sys.executable])
def installed(request, tmp_path_factory) -> Path:
    """Return a new environment's Python, in which pip installed the folder and nothing else."""
    place = tmp_path_factory.mktemp("environment")
    subprocess.run([request.param, "-m", "venv", place], check=True)
    python = place / "bin" / "python"
    # No compiler, nor anything else, is on PATH.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    environment |= {"PATH": str(place / "bin"), "CC": "/nonexistent/cc"}
    done = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", MARKS],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode and "flit" in done.stderr and "No matching distribution" in done.stderr:
        pytest.skip("no package index is reached: flit-core cannot be installed")
    assert done.returncode == 0, done.stderr
    return python


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


@pytest.mark.long
def test_nothing_else_is_installed_and_nothing_was_compiled(installed):
    listed = run(installed, "-m", "pip", "list", "--format=json", "--disable-pip-version-check")
    packages = {p["name"]: p["version"] for p in json.loads(listed.stdout)}
    assert packages.keys() - {"pip", "setuptools"} == {"critpath-marks"}
    assert packages["critpath-marks"] == critpath_marks.__version__
    [wheel] = installed.parent.parent.glob("lib/python3*/site-packages/critpath_marks-*/WHEEL")
    assert "Tag: py3-none-any\n" in wheel.read_text()
    done = run(installed, "-I", "-W", "error", "-c", PROGRAM)
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)


@pytest.mark.long
@pytest.mark.xdist_group("kernel")
def test_a_marked_program_is_found_by_record(installed, tmp_path):
    if os.geteuid():
        pytest.skip("recording needs root")
    if wrong := [o.what for o in missing_requirements(None) if o.fatal]:
        pytest.skip(f"cannot record here: {wrong[0]}")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = (sys.executable, "-m", "critpath")
    recorder = ("--recorder", "ftrace", "--execution", "marker")
    done = run(*command, "record", *recorder, "-o", "made", "--", installed, program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = run(*command, "path", "made", "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    labels = [one["label"] for one in found]
    assert set(labels) >= NAMES
    assert labels.count("coroutine") == 2
    assert {one["execution"] for one in found if one["label"] in {"block", "pair"}} == {"a b", "7"}


def test_critpath_marks_are_critpaths():
    assert critpath.execution is critpath_marks.execution
    assert critpath.mark is critpath_marks.mark
    assert critpath_marks.__version__ == critpath.__version__ == version("critpath")


def test_the_license_is_the_same():
    assert (MARKS / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_every_module_is_in_critpaths_wheel_too():
    listed = (MARKS / "meson.build").read_text(encoding="utf-8")
    modules = [p.name for p in (MARKS / "critpath_marks").iterdir() if p.suffix]
    assert [name for name in modules if f"'critpath_marks/{name}'" not in listed] == []
