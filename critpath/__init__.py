"""critpath: tells why a program became slower, from the kernel's scheduling events.

A program marks its own executions with `execution` (and `mark`); the rest is the
command line's.
"""

TYPE_CHECKING = False  # that of `typing`, which takes as long to import as Python to start
if TYPE_CHECKING:
    from typing import Any

    from critpath_marks import execution, mark

__all__ = ["__version__", "execution", "mark"]

__version__ = "0.1.0"


def __getattr__(name: str) -> "Any":
    # What marks need is imported when they are asked for: the command line does not.
    if name in {"execution", "mark"}:
        from critpath_marks import execution, mark  # noqa: PLC0415 - see above

        globals().update(execution=execution, mark=mark)
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
