"""Libraries that `critpath-core` leaves to its extras (pyproject.toml), and asking for one."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from critpath.errors import UsageError

# What each extra brings: modules, each with the name of its library.
EXTRAS: Final = {
    "parquet": {"pyarrow": "pyarrow"},
    "stats": {"scipy": "scipy"},
    "known": {"scipy": "scipy", "sklearn": "scikit-learn"},
    "graph": {"networkx": "networkx"},
    "alignments": {"Bio": "Biopython"},
    "query": {"duckdb": "DuckDB", "pyarrow": "pyarrow"},
    "dask": {"distributed": "dask.distributed", "pyarrow": "pyarrow"},
    "metrics": {"prometheus_client": "prometheus_client"},
    "fleet": {"s3fs": "s3fs", "gcsfs": "gcsfs", "fsspec": "fsspec"},
}


class MissingExtraError(UsageError):
    """What was asked for needs a library of an extra (exit 2)."""


def find_missing(extra: str, only: str = "") -> list[str]:
    """Return the libraries of an extra that are not here, or one of them."""
    return [
        library
        for module, library in EXTRAS[extra].items()
        if only in {"", module} and find_spec(module) is None
    ]


def require(what: str, extra: str, only: str = "") -> None:
    """Raise MissingExtraError where a library of an extra, or one of them, is not here."""
    if missing := find_missing(extra, only):
        raise _lacks(what, missing[0], extra)


def explain_missing(error: ModuleNotFoundError) -> MissingExtraError | None:
    """Return what to say of a module that was not found; None of one that no extra has."""
    module = (error.name or "").partition(".")[0]
    for extra, modules in EXTRAS.items():
        if module in modules:
            return _lacks("what was asked for", modules[module], extra)
    return None


def _lacks(what: str, library: str, extra: str) -> MissingExtraError:
    return MissingExtraError(
        f"{what} needs {library}, which is not installed", f"pip install 'critpath-core[{extra}]'"
    )
