"""Every notebook runs, and prints what it shows; what is measured only has to run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[3] / "docs"
NAMES = sorted(file.stem for file in (DOCS / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def notebooks(load):
    return load("../docs/notebooks.py")


def test_there_is_one_for_each_door():
    assert NAMES == ["ab", "explore", "query", "record", "requests", "view"]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_prints_what_it_shows(notebooks, name):
    file = DOCS / "notebooks" / f"{name}.ipynb"
    if name == "query":
        pytest.importorskip("duckdb")
    ran = notebooks.run_notebook(file)
    shown = [cell["outputs"] for cell in notebooks.read_code(json.loads(file.read_text()))]
    assert len(ran) == len(shown)
    if name not in notebooks.MEASURED:
        assert ran == shown
