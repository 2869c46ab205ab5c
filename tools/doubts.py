"""What a reviewer should look at: no limit, a list.  ``make lint`` prints it.

    python tools/doubts.py [--all]

Doubted are files, classes, functions and parameter lists beyond the sizes below, and a name that
two types have.  What is right as it is is argued in ``tools/doubts.toml``, in a line; such doubts
are counted only, unless ``--all`` is given.  An argument for what is doubted no more is named.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from radon.complexity import cc_visit

ROOT: Final = Path(__file__).resolve().parents[1]
ARGUED: Final = ROOT / "tools" / "doubts.toml"
PACKAGES: Final = ("critpath", "critpath_record", "marks")
LINES: Final = 900  # of a file, Python or native
CLASS_LINES: Final = 250
COMPLEXITY: Final = 15  # by radon, which counts boolean operators as branches
PARAMETERS: Final = 8
SOURCES: Final = {".py", ".pyx", ".pxi", ".js", ".c"}


def find_doubts() -> Iterator[tuple[str, str]]:
    """Yield the place of each doubt and what is doubted."""
    types: dict[str, list[str]] = defaultdict(list)
    for path in sorted(p for package in PACKAGES for p in (ROOT / package).rglob("*")):
        if path.suffix not in SOURCES:
            continue
        place = path.relative_to(ROOT).as_posix()
        text = path.read_text(encoding="utf-8")
        if (lines := text.count("\n")) > LINES:
            yield place, f"{lines:,} lines"
        if path.suffix == ".py":
            yield from _doubt_parts(place, text, types)
    for name, places in sorted(types.items()):
        if len(places) > 1:
            yield name, f"{len(places)} types: {', '.join(places)}"


def _doubt_parts(place: str, text: str, types: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Yield what is doubted in a module, and note its types."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            types[node.name].append(place)
            if (lines := (node.end_lineno or 0) - node.lineno + 1) > CLASS_LINES:
                yield f"{place}:{node.name}", f"{lines} lines"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            count = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs)
            if count > PARAMETERS:
                yield f"{place}:{node.name}", f"{count} parameters"
    for block in cc_visit(text):
        if block.letter != "C" and block.complexity > COMPLEXITY:
            yield f"{place}:{block.name}", f"complexity {block.complexity}"


def main() -> int:
    """Print the doubts; return 0, as none of them is an error."""
    argued = tomllib.loads(ARGUED.read_text(encoding="utf-8"))
    found: dict[str, list[str]] = defaultdict(list)
    for place, what in find_doubts():
        found[place].append(what)
    for place, doubts in found.items():
        if place not in argued or "--all" in sys.argv:
            print(f"{place}: {', '.join(doubts)}", *filter(None, [argued.get(place)]), sep="; ")
    for place in sorted(set(argued) - set(found)):
        print(f"{place}: argued in tools/doubts.toml, and doubted no more")
    known = len(found.keys() & argued.keys())
    print(f"{len(found)} doubts, {known} of them argued in tools/doubts.toml")
    return 0


if __name__ == "__main__":
    sys.exit(main())
