"""The factory of synthetic comparisons, which the tests of reports have, for tables too."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def factory() -> ModuleType:
    """Return ``tests/report/factory.py``: importlib mode puts no test directory on the path."""
    name = "critpath_model_factory"
    if name not in sys.modules:
        place = Path(__file__).resolve().parent.parent / "report" / "factory.py"
        spec = importlib.util.spec_from_file_location(name, place)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]
