"""Modules beside these tests: importlib mode puts no test directory on the path."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def load(name: str) -> ModuleType:
    """Return a module of this directory."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def large_trace() -> ModuleType:
    """Return ``large_trace.py``."""
    return load("large_trace")


@pytest.fixture(scope="session")
def measuring() -> ModuleType:
    """Return ``measuring.py``."""
    return load("measuring")
