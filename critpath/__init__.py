"""critpath: tells why a program became slower, from the kernel's scheduling events.

What `__all__` lists is the Python API, and all of it: `extract` recordings, `compare` two
sets of executions, `load` what was saved; `explore`, `requests`, `query` and `view` ask more of
recordings, `record` and `ab` make them; `execution` and `mark` are for the program that is
traced.  docs/python.md shows how.
"""

TYPE_CHECKING = False  # that of `typing`, which takes as long to import as Python to start
if TYPE_CHECKING:
    from critpath.api import (
        Comparison,
        ab,
        calibrate,
        compare,
        explore,
        extract,
        load,
        load_comparison,
        look,
        query,
        record,
        requests,
        view,
    )
    from critpath.errors import (
        CritpathError,
        InconclusiveError,
        MetadataError,
        TooMuchTimeError,
        UnreadableError,
        UsageError,
    )
    from critpath.model import CompareSettings, PathSet
    from critpath_marks import execution, mark

__all__ = [
    "CompareSettings",
    "Comparison",
    "CritpathError",
    "InconclusiveError",
    "MetadataError",
    "PathSet",
    "TooMuchTimeError",
    "UnreadableError",
    "UsageError",
    "ab",
    "calibrate",
    "compare",
    "execution",
    "explore",
    "extract",
    "load",
    "load_comparison",
    "look",
    "mark",
    "query",
    "record",
    "requests",
    "view",
]

__version__ = "0.2.0"

_MODULES = {
    "critpath.api": (
        *("CompareSettings", "Comparison", "PathSet"),
        *("calibrate", "compare", "extract", "load", "load_comparison"),
        *("look", "query", "record", "view"),
    ),
    # Packages, too: each can be called (`critpath.doors`).
    "critpath": ("ab", "explore", "requests"),
    "critpath.errors": tuple(name for name in __all__ if name.endswith("Error")),
    "critpath_marks": ("execution", "mark"),
}


if not TYPE_CHECKING:  # else every misspelt name would have a type

    def __getattr__(name: str) -> object:
        # A name is imported when it is first asked for: a marked program needs no numpy.
        for module, names in _MODULES.items():
            if name in names:
                from importlib import import_module  # noqa: PLC0415 - start-up time

                if module == __name__:
                    return import_module(f"critpath.{name}")
                value = getattr(import_module(module), name)
                globals()[name] = value
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
