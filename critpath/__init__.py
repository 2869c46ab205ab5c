"""critpath: tells why a program became slower, from the kernel's scheduling events.

A program marks its own executions with `execution` (and `mark`); the rest is the
command line's.
"""

from critpath.record.marks import execution, mark

__all__ = ["__version__", "execution", "mark"]

__version__ = "0.1.0"
