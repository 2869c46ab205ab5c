"""Write enumerations of Python files as Cython ones: ``cython_enums.py OUTPUT SOURCE:CLASS...``.

The build runs this (``critpath/meson.build``), so that a number stands once, in Python.  The
member RUN_USER of a class State becomes ``STATE_RUN_USER`` (``SOURCE:CLASS=PREFIX`` names another
prefix), and ``STATE_COUNT`` is how many there are.  The sources are parsed, not run: what they
import need not be installed.
"""  # noqa: INP001 - a script of the build, no package

from __future__ import annotations

import ast
import sys
from pathlib import Path


def read_members(source: str, name: str) -> dict[str, int]:
    """Return the members of a class: names in capitals with a whole number.

    The number of a member with attributes (``RUN = 1, "RUNNING"``) is the first of the tuple.
    """
    [found] = (
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == name
    )
    members = {}
    for node in found.body:
        if isinstance(node, ast.Assign):
            target = node.targets[0]
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target = node.target
        else:
            continue
        value = node.value.elts[0] if isinstance(node.value, ast.Tuple) else node.value
        if not (isinstance(target, ast.Name) and isinstance(value, ast.Constant)):
            raise TypeError(f"{name}, line {node.lineno}: NAME = number, or NAME = number, ...")
        members[target.id] = int(value.value)
    return members


def cython_enum(prefix: str, members: dict[str, int]) -> str:
    """Return the Cython declaration of a class's members."""
    members = {**members, "COUNT": len(members)}
    lines = [f"    {prefix}_{member} = {value}" for member, value in members.items()]
    return "\n".join(["cdef enum:", *lines]) + "\n"


def main(output: str, *classes: str) -> None:
    """Write the classes, each given as ``SOURCE:CLASS`` or ``SOURCE:CLASS=PREFIX``."""
    parts = ["# Made by tools/cython_enums.py: change the Python class.\n"]
    for place in classes:
        source, _, name = place.rpartition(":")
        name, _, prefix = name.partition("=")
        members = read_members(Path(source).read_text("utf-8"), name)
        parts.append(cython_enum(prefix or name.strip("_").upper(), members))
    Path(output).write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
