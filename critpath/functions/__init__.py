"""Functions of Python on critical paths: what runs inside the recorded program."""

from critpath.functions.agent import main, start

__all__ = ["main", "start"]
