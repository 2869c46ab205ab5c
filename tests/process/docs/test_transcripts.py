"""What documents show of critpath is what it prints: run ``make docs`` where it is not."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]


def script(name: str) -> ModuleType:
    place = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def renew() -> ModuleType:
    return script("renew")


def test_the_transcript_in_the_readme_is_what_critpath_says(renew):
    shown = (ROOT / "README.md").read_text(encoding="utf-8")
    assert shown == renew.readme(), "run make docs"


def test_the_alignment_that_is_explained_is_what_critpath_says(renew):
    shown = (ROOT / "docs" / "reading-the-report.md").read_text(encoding="utf-8")
    assert shown == renew.reading(), "run make docs"


def test_the_examples_in_python_give_what_is_shown(renew):
    shown = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    assert "Traceback" not in shown
    assert shown == renew.python(), "run make docs"


@pytest.mark.deep
def test_the_examples_of_exports_print_what_is_shown():
    examples = script("examples")
    assert examples.PAGE.read_text(encoding="utf-8") == examples.page(), "run make docs"


def test_no_file_names_a_place_of_one_machine():
    places = re.compile(r"/(?:home|Users|root|work|opt)/\w")
    found = []
    done = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip("no git checkout")
    for path in (ROOT / line for line in done.stdout.splitlines()):
        if path.suffix in {".xz", ".png", ".parquet"} or not path.is_file():
            continue
        if ROOT / "tests" / "fuzz" in path.parents and path.suffix in {"", ".stream"}:
            continue  # bytes that are meant to be no text
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if places.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert found == []
