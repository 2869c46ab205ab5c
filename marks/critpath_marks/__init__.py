"""Mark where an execution of a program begins and ends, for ``critpath record``.

``execution`` is a context manager and a decorator, `mark` a function for what has no scope.
While nothing records, either costs next to nothing.
"""

from critpath_marks.marks import execution, mark

__all__ = ["__version__", "execution", "mark"]

__version__ = "0.2.0"
