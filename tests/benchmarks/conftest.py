"""Modules beside these tests: importlib mode puts no test directory on the path."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def large_trace() -> ModuleType:
    """Return ``large_trace.py``."""
    place = Path(__file__).with_name("large_trace.py")
    spec = importlib.util.spec_from_file_location("large_trace", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
