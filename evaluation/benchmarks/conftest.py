"""Modules beside these tests: importlib mode puts no test directory on the path."""

from __future__ import annotations

import importlib.util
import sys
import tarfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared"
# Python has the filter from 3.11.4 on; Debian 12 ships 3.11.2.
DATA_ONLY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


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
def shared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function from an archive below ``../shared/traces`` to its directory."""

    def find(name: str) -> Path:
        archive = SHARED / "traces" / f"{name}.tar.xz"
        if not archive.exists():
            pytest.skip(f"../shared/traces/{name}.tar.xz is not here")
        top = tmp_path_factory.mktemp("unpacked")
        with tarfile.open(archive) as tar:
            tar.extractall(top, **DATA_ONLY)  # noqa: S202 - archives of our own
        inner = top / Path(name).name
        return inner if inner.exists() else top

    return cache(find)


@pytest.fixture(scope="session")
def measuring() -> ModuleType:
    """Return ``measuring.py``."""
    return load("measuring")
